"""Labels of tasks."""

STATEMENTS = [
    'ALTER TABLE "task" ADD COLUMN "labels" TEXT NOT NULL DEFAULT \'[]\'',
    'ALTER TABLE "task" ADD COLUMN "label_keys" TEXT NOT NULL DEFAULT \'[]\'',
    'CREATE INDEX "task_labels" ON "task" ("id", "label_keys", "labels", "project_id", "status", "assignee_id") WHERE ("labels" != \'[]\')',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
