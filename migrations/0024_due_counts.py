"""Open tasks are counted by their due dates in place of their days: no context has to count the tasks of today."""

IS_OLD = '(OLD."status" != \'done\' AND OLD."due_date" IS NOT NULL)'
IS_NEW = IS_OLD.replace("OLD", "NEW")
IS_SAME = '(OLD."project_id" = NEW."project_id" AND OLD."due_date" = NEW."due_date")'
DUE = 'INSERT INTO "due_count" VALUES (NEW."project_id", NEW."due_date", 1) ON CONFLICT DO UPDATE SET "open" = "open" + 1'
NOT_DUE = 'UPDATE "due_count" SET "open" = "open" - 1 WHERE "project_id" = OLD."project_id" AND "due_date" = OLD."due_date"'
WHEN = 'AFTER UPDATE OF "status", "project_id", "due_date" ON "task" WHEN'

STATEMENTS = [
    *(f'DROP TRIGGER "due_count_{name}"' for name in ("insert", "delete", "subtract", "add", "zero")),
    'DROP TABLE "due_count"',
    'CREATE TABLE "due_count" ("project_id" TEXT NOT NULL, "due_date" TEXT NOT NULL, "open" INTEGER NOT NULL, PRIMARY KEY ("project_id", "due_date"), FOREIGN KEY ("project_id") REFERENCES "project" ("id") ON DELETE CASCADE) WITHOUT ROWID',
    'INSERT INTO "due_count" SELECT "project_id", "due_date", COUNT(*) FROM "task" WHERE "status" != \'done\' AND "due_date" IS NOT NULL GROUP BY 1, 2',
    f'CREATE TRIGGER "due_count_insert" AFTER INSERT ON "task" WHEN {IS_NEW} BEGIN {DUE}; END',
    f'CREATE TRIGGER "due_count_delete" AFTER DELETE ON "task" WHEN {IS_OLD} BEGIN {NOT_DUE}; END',
    f'CREATE TRIGGER "due_count_subtract" {WHEN} {IS_OLD} AND NOT ({IS_NEW} AND {IS_SAME}) BEGIN {NOT_DUE}; END',
    f'CREATE TRIGGER "due_count_add" {WHEN} {IS_NEW} AND NOT ({IS_OLD} AND {IS_SAME}) BEGIN {DUE}; END',
    'CREATE TRIGGER "due_count_zero" AFTER UPDATE ON "due_count" WHEN NEW."open" = 0 BEGIN DELETE FROM "due_count" WHERE "project_id" = NEW."project_id" AND "due_date" = NEW."due_date"; END',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
