"""The counters of tasks: a row for each project, kept by triggers, in place of five kinds kept by Python."""

SUM = 'ON CONFLICT DO UPDATE SET "todo" = "todo" + excluded."todo", "in_progress" = "in_progress" + excluded."in_progress", "review" = "review" + excluded."review", "done" = "done" + excluded."done"'
ADD = 'INSERT INTO "task_count" VALUES (NEW."project_id", (NEW."status" = \'todo\'), (NEW."status" = \'in_progress\'), (NEW."status" = \'review\'), (NEW."status" = \'done\'))'
SUBTRACT = 'INSERT INTO "task_count" VALUES (OLD."project_id", -(OLD."status" = \'todo\'), -(OLD."status" = \'in_progress\'), -(OLD."status" = \'review\'), -(OLD."status" = \'done\'))'

STATEMENTS = [
    'DROP TABLE "task_count"',
    'CREATE TABLE "task_count" ("project_id" TEXT NOT NULL PRIMARY KEY, "todo" INTEGER NOT NULL, "in_progress" INTEGER NOT NULL, "review" INTEGER NOT NULL, "done" INTEGER NOT NULL, FOREIGN KEY ("project_id") REFERENCES "project" ("id") ON DELETE CASCADE)',
    'INSERT INTO "task_count" SELECT "project_id", SUM("status" = \'todo\'), SUM("status" = \'in_progress\'), SUM("status" = \'review\'), SUM("status" = \'done\') FROM "task" GROUP BY 1',
    f'CREATE TRIGGER "task_count_insert" AFTER INSERT ON "task" BEGIN {ADD} {SUM}; END',
    f'CREATE TRIGGER "task_count_delete" AFTER DELETE ON "task" BEGIN {SUBTRACT} {SUM}; END',
    f'CREATE TRIGGER "task_count_update" AFTER UPDATE OF "status", "project_id" ON "task" WHEN OLD."status" != NEW."status" OR OLD."project_id" != NEW."project_id" BEGIN {SUBTRACT} {SUM}; {ADD} {SUM}; END',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
