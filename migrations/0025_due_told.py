"""The index of open tasks by their due dates has those that were told, for which the sweeper looks each second."""

STATEMENTS = [
    'DROP INDEX "task_overdue"',
    'CREATE INDEX "task_overdue" ON "task" ("due_date", "id", "status", "project_id", "due_told") WHERE (("status" != \'done\') AND ("due_date" IS NOT NULL))',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
