"""What is mailed, new addresses that a link confirms, and the due dates that were told."""

STATEMENTS = [
    'ALTER TABLE "task" ADD COLUMN "due_told" TEXT',
    'ALTER TABLE "member" ADD COLUMN "mail" TEXT NOT NULL DEFAULT \'at_once\'',
    'ALTER TABLE "member" ADD COLUMN "mail_at" TEXT NOT NULL DEFAULT \'\'',
    'ALTER TABLE "member" ADD COLUMN "mailed_until" TEXT NOT NULL DEFAULT \'\'',
    'ALTER TABLE "member" ADD COLUMN "mail_error" TEXT',
    # Agents read their inbox by the API.
    'UPDATE "member" SET "mail" = \'never\' WHERE "id" IN (SELECT "member_id" FROM "api_key" WHERE "scope" = \'agent\')',
    'ALTER TABLE "invitation" ADD COLUMN "mail_at" TEXT',
    'ALTER TABLE "invitation" ADD COLUMN "mail_hash" TEXT',
    'ALTER TABLE "invitation" ADD COLUMN "new_email" TEXT',
    'CREATE UNIQUE INDEX "invitation_mail_hash" ON "invitation" ("mail_hash") WHERE ("mail_hash" IS NOT NULL)',
    'CREATE INDEX "invitation_mail_at" ON "invitation" ("mail_at") WHERE ("mail_at" IS NOT NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
