"""Indexes of activity without what the history does not show; one of that, by which it is pruned."""

STATEMENTS = [
    'DROP INDEX "activity_shown"',
    'DROP INDEX "activity_task"',
    'CREATE INDEX "activity_shown" ON "activity" ("id", "action") WHERE ("is_hidden" IS NULL)',
    'CREATE INDEX "activity_task" ON "activity" ("task_id", "id") WHERE (("task_id" IS NOT NULL) AND ("is_hidden" IS NULL))',
    'CREATE INDEX "activity_hidden" ON "activity" ("id") WHERE ("is_hidden" IS NOT NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
