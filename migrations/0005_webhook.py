"""The table of webhooks gets the name that they have in the API; so does the column that refers to it."""

STATEMENTS = [
    'DROP INDEX "endpoint_name"',
    'ALTER TABLE "endpoint" RENAME TO "webhook"',
    'CREATE UNIQUE INDEX "webhook_name" ON "webhook" ("name")',
    'ALTER TABLE "delivery" RENAME COLUMN "endpoint_id" TO "webhook_id"',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
