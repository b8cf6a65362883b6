"""Store which key made each key and link, the last sign-in of a session's member, and webhooks' own headers."""

STATEMENTS = [
    'ALTER TABLE "api_key" ADD COLUMN "made_with" TEXT',
    'ALTER TABLE "api_key" ADD COLUMN "signed_in_at" TEXT',
    'ALTER TABLE "invitation" ADD COLUMN "made_with" TEXT',
    'CREATE INDEX "api_key_made_with" ON "api_key" ("made_with") WHERE ("made_with" IS NOT NULL)',
    'ALTER TABLE "webhook" ADD COLUMN "header_name" TEXT',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
