"""Index visible activity, hidden activity, and each member's unrevoked keys.

The index of hidden activity finds the entries to prune. The index of keys finds the oldest session, which a new
session ends.
"""

STATEMENTS = [
    'DROP INDEX "activity_shown"',
    'DROP INDEX "activity_task"',
    'CREATE INDEX "activity_shown" ON "activity" ("id", "action") WHERE ("is_hidden" IS NULL)',
    'CREATE INDEX "activity_task" ON "activity" ("task_id", "id") WHERE (("task_id" IS NOT NULL) AND ("is_hidden" IS NULL))',
    'CREATE INDEX "activity_hidden" ON "activity" ("id") WHERE ("is_hidden" IS NOT NULL)',
    'CREATE INDEX "api_key_open" ON "api_key" ("member_id", "id") WHERE ("revoked_at" IS NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
