"""What members are told, whom a comment names, claims that end, and questions for which a task waits."""

STATEMENTS = [
    'CREATE TABLE "notice" ("id" TEXT NOT NULL PRIMARY KEY, "member_id" TEXT NOT NULL, "task_id" TEXT NOT NULL, '
    '"actor_id" TEXT, "reason" TEXT NOT NULL, "excerpt" TEXT NOT NULL, "created_at" TEXT NOT NULL, '
    '"read_at" TEXT, FOREIGN KEY ("member_id") REFERENCES "member" ("id"), '
    'FOREIGN KEY ("task_id") REFERENCES "task" ("id") ON DELETE CASCADE, '
    'FOREIGN KEY ("actor_id") REFERENCES "member" ("id"))',
    'CREATE INDEX "notice_member" ON "notice" ("member_id", "id")',
    'CREATE INDEX "notice_task" ON "notice" ("task_id")',
    'CREATE UNIQUE INDEX "notice_unread" ON "notice" ("member_id", "task_id", "reason") WHERE ("read_at" IS NULL)',
    'ALTER TABLE "comment" ADD COLUMN "mentions" TEXT NOT NULL DEFAULT \'[]\'',
    'ALTER TABLE "task" ADD COLUMN "claimed_until" TEXT',
    'CREATE INDEX "task_claimed" ON "task" ("claimed_until") WHERE ("claimed_until" IS NOT NULL)',
    'ALTER TABLE "task" ADD COLUMN "question_id" TEXT',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
