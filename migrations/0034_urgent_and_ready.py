"""Index urgent tasks by status, and add assignees to the index of statuses, to find unassigned tasks."""

STATEMENTS = [
    'DROP INDEX "task_status_id"',
    'CREATE INDEX "task_status_id" ON "task" ("status", "id", "project_id", "assignee_id")',
    'CREATE INDEX "task_urgent_status" ON "task" ("status", "updated_at", "id", "project_id", "priority") WHERE (("priority" || \'\') = \'urgent\')',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
