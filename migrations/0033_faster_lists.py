"""Index claimable tasks and completed tasks, and add the columns that totals read to the column indexes."""

STATEMENTS = [
    'DROP INDEX "task_project_status"',
    'DROP INDEX "task_project_rank"',
    'DROP INDEX "task_status"',
    'DROP INDEX "task_assignee_id"',
    'CREATE INDEX "task_project_status" ON "task" ("project_id", "status", "updated_at", "id", "completed_at", "rank")',
    'CREATE INDEX "task_project_rank" ON "task" ("project_id", "status", "rank", "id", "assignee_id", "priority")',
    'CREATE INDEX "task_status" ON "task" ("status", "updated_at", "id", "project_id", "priority", "due_date", "completed_at")',
    'CREATE INDEX "task_assignee_id" ON "task" ("assignee_id", "id", "status", "project_id", "priority", "due_date", "rank") WHERE ("assignee_id" IS NOT NULL)',
    'CREATE INDEX "task_ready" ON "task" ("assignee_id", "priority", "due_date", "id", "start_date", "project_id") WHERE ((("status" || \'\') = \'todo\') AND ("question_id" IS NULL))',
    'CREATE INDEX "task_completed" ON "task" ("completed_at", "id", "project_id", "updated_at") WHERE ("completed_at" IS NOT NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
