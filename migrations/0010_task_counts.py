"""The counters of tasks, by project and by due day, kept by triggers, in place of five kinds kept by Python."""

SUM = 'ON CONFLICT DO UPDATE SET "todo" = "todo" + excluded."todo", "in_progress" = "in_progress" + excluded."in_progress", "review" = "review" + excluded."review", "done" = "done" + excluded."done"'
ADD = 'INSERT INTO "task_count" VALUES (NEW."project_id", (NEW."status" = \'todo\'), (NEW."status" = \'in_progress\'), (NEW."status" = \'review\'), (NEW."status" = \'done\'))'
SUBTRACT = 'INSERT INTO "task_count" VALUES (OLD."project_id", -(OLD."status" = \'todo\'), -(OLD."status" = \'in_progress\'), -(OLD."status" = \'review\'), -(OLD."status" = \'done\'))'

IS_OLD = '(OLD."status" != \'done\' AND OLD."due_date" IS NOT NULL)'
IS_NEW = IS_OLD.replace("OLD", "NEW")
IS_SAME = (
    '(OLD."project_id" = NEW."project_id" AND SUBSTR(OLD."due_date", 1, 10) = SUBSTR(NEW."due_date", 1, 10))'
)
DUE = 'INSERT INTO "due_count" VALUES (NEW."project_id", SUBSTR(NEW."due_date", 1, 10), 1) ON CONFLICT DO UPDATE SET "open" = "open" + 1'
NOT_DUE = 'UPDATE "due_count" SET "open" = "open" - 1 WHERE "project_id" = OLD."project_id" AND "day" = SUBSTR(OLD."due_date", 1, 10)'

STATEMENTS = [
    'DROP TABLE "task_count"',
    'CREATE TABLE "task_count" ("project_id" TEXT NOT NULL PRIMARY KEY, "todo" INTEGER NOT NULL, "in_progress" INTEGER NOT NULL, "review" INTEGER NOT NULL, "done" INTEGER NOT NULL, FOREIGN KEY ("project_id") REFERENCES "project" ("id") ON DELETE CASCADE)',
    'INSERT INTO "task_count" SELECT "project_id", SUM("status" = \'todo\'), SUM("status" = \'in_progress\'), SUM("status" = \'review\'), SUM("status" = \'done\') FROM "task" GROUP BY 1',
    f'CREATE TRIGGER "task_count_insert" AFTER INSERT ON "task" BEGIN {ADD} {SUM}; END',
    f'CREATE TRIGGER "task_count_delete" AFTER DELETE ON "task" BEGIN {SUBTRACT} {SUM}; END',
    f'CREATE TRIGGER "task_count_update" AFTER UPDATE OF "status", "project_id" ON "task" WHEN OLD."status" != NEW."status" OR OLD."project_id" != NEW."project_id" BEGIN {SUBTRACT} {SUM}; {ADD} {SUM}; END',
    'CREATE TABLE "due_count" ("project_id" TEXT NOT NULL, "day" TEXT NOT NULL, "open" INTEGER NOT NULL, PRIMARY KEY ("project_id", "day"), FOREIGN KEY ("project_id") REFERENCES "project" ("id") ON DELETE CASCADE) WITHOUT ROWID',
    'INSERT INTO "due_count" SELECT "project_id", SUBSTR("due_date", 1, 10), COUNT(*) FROM "task" WHERE "status" != \'done\' AND "due_date" IS NOT NULL GROUP BY 1, 2',
    f'CREATE TRIGGER "due_count_insert" AFTER INSERT ON "task" WHEN {IS_NEW} BEGIN {DUE}; END',
    f'CREATE TRIGGER "due_count_delete" AFTER DELETE ON "task" WHEN {IS_OLD} BEGIN {NOT_DUE}; END',
    f'CREATE TRIGGER "due_count_subtract" AFTER UPDATE OF "status", "project_id", "due_date" ON "task" WHEN {IS_OLD} AND NOT ({IS_NEW} AND {IS_SAME}) BEGIN {NOT_DUE}; END',
    f'CREATE TRIGGER "due_count_add" AFTER UPDATE OF "status", "project_id", "due_date" ON "task" WHEN {IS_NEW} AND NOT ({IS_OLD} AND {IS_SAME}) BEGIN {DUE}; END',
    'CREATE TRIGGER "due_count_zero" AFTER UPDATE ON "due_count" WHEN NEW."open" = 0 BEGIN DELETE FROM "due_count" WHERE "project_id" = NEW."project_id" AND "day" = NEW."day"; END',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
