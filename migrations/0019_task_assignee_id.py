"""The tasks of a member, and of a project with a status, are read in the order of lists.

With a million tasks it takes about ten seconds.
"""

STATEMENTS = [
    'CREATE INDEX "task_assignee_id" ON "task" ("assignee_id", "id", "status", "project_id", "priority") WHERE ("assignee_id" IS NOT NULL)',
    'DROP INDEX "task_status_id"',
    'CREATE INDEX "task_status_id" ON "task" ("status", "id", "project_id")',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
