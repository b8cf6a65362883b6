"""Index open questions and reviews, to find a member's waiting entries without reading the tasks."""

STATEMENTS = [
    'CREATE INDEX "task_asks" ON "task" ("id", "question_id", "status", "project_id") WHERE (("question_id" IS NOT NULL) OR (("status" || \'\') = \'review\'))',
    'DROP INDEX "notice_reason"',
    'CREATE INDEX "notice_reason" ON "notice" ("member_id", "reason", "task_id", "id", "comment_id", "read_at", "snoozed_until") '
    "WHERE (((\"reason\" = 'question') OR (\"reason\" = 'review')) OR (\"reason\" = 'mentioned'))",
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
