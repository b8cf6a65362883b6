"""Indexes for what waits for disabled webhooks and for flows that never end; a count of failed attempts."""

STATEMENTS = [
    'CREATE INDEX "delivery_waiting" ON "delivery" ("endpoint_id", "event_seq") WHERE (("status" = \'parked\') AND ("queued" = 1))',
    'ALTER TABLE "endpoint" ADD COLUMN "misses" INTEGER NOT NULL DEFAULT 0',
    'CREATE INDEX "flow_idle" ON "flow" ("updated_at") WHERE ("ended_at" IS NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
