"""Labels and ranks of tasks.

With a million tasks it takes about half a minute.
"""

STATEMENTS = [
    'ALTER TABLE "task" ADD COLUMN "labels" TEXT NOT NULL DEFAULT \'[]\'',
    'ALTER TABLE "task" ADD COLUMN "label_keys" TEXT NOT NULL DEFAULT \'[]\'',
    'ALTER TABLE "task" ADD COLUMN "rank" TEXT NOT NULL DEFAULT \'\'',
    'UPDATE "task" SET "rank" = PRINTF(\'%010d\', 5000000000 + "number")',
    'CREATE INDEX "task_rank" ON "task" ("rank")',
    'CREATE INDEX "task_project_rank" ON "task" ("project_id", "status", "rank", "id")',
    'CREATE INDEX "task_labels" ON "task" ("id", "label_keys", "labels", "project_id", "status", "assignee_id") WHERE ("labels" != \'[]\')',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
