"""What waits for a disabled webhook is found by an index; a webhook's failed attempts in a row are counted."""

STATEMENTS = [
    'CREATE INDEX "delivery_waiting" ON "delivery" ("endpoint_id", "event_seq") WHERE (("status" = \'parked\') AND ("queued" = 1))',
    'ALTER TABLE "endpoint" ADD COLUMN "misses" INTEGER NOT NULL DEFAULT 0',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
