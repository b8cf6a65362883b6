"""Deliveries that are parked: those that were refused, and those that wait for a disabled webhook."""

STATEMENTS = [
    'DROP INDEX "delivery_waiting"',
    'UPDATE "delivery" SET "status" = CASE WHEN "queued" = 1 THEN \'waiting\' ELSE \'refused\' END WHERE "status" = \'parked\'',
    'ALTER TABLE "delivery" RENAME COLUMN "queued" TO "blocks_later"',
    'CREATE INDEX "delivery_waiting" ON "delivery" ("webhook_id", "event_seq") WHERE ("status" = \'waiting\')',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
