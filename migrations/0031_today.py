"""Let members put off notices, and index the entries that wait for a member."""

STATEMENTS = [
    'ALTER TABLE "notice" ADD COLUMN "snoozed_until" TEXT',
    'CREATE INDEX "notice_reason" ON "notice" ("member_id", "reason", "task_id") '
    "WHERE (((\"reason\" = 'question') OR (\"reason\" = 'review')) OR (\"reason\" = 'mentioned'))",
    'CREATE INDEX "task_assignee_due" ON "task" ("assignee_id", "due_date", "id", "status", "project_id") WHERE (("status" != \'done\') AND ("due_date" IS NOT NULL))',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
