"""Link each notice to its comment. Before, it kept a copy after the comment was changed or deleted."""

STATEMENTS = [
    'ALTER TABLE "notice" ADD COLUMN "comment_id" TEXT REFERENCES "comment" ("id") ON DELETE CASCADE',
    'UPDATE "notice" SET "comment_id" = (SELECT "id" FROM "comment" AS "said" WHERE "said"."task_id" = "notice"."task_id" '
    'AND "said"."author_id" = "notice"."actor_id" AND SUBSTR("said"."content", 1, 200) = "notice"."excerpt" '
    'AND "said"."id" < "notice"."id" ORDER BY "said"."id" DESC LIMIT 1) '
    "WHERE \"reason\" IN ('mentioned', 'commented', 'question', 'answered')",
    'CREATE INDEX "notice_comment" ON "notice" ("comment_id") WHERE ("comment_id" IS NOT NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
