"""Index the deliveries that block later ones apart from the refused ones, of which there may be very many."""

STATEMENTS = [
    'CREATE INDEX "delivery_blocking" ON "delivery" ("webhook_id", "event_seq") WHERE (("status" = \'pending\') AND ("blocks_later" = 1))',
    'CREATE INDEX "delivery_free" ON "delivery" ("webhook_id", "next_at") WHERE (("status" = \'pending\') AND ("blocks_later" = 0))',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
