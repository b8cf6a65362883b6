"""The index by which what waits for a disabled webhook is counted, dropped and resumed."""

STATEMENTS = [
    'CREATE INDEX "delivery_waiting" ON "delivery" ("endpoint_id", "event_seq") WHERE (("status" = \'parked\') AND ("queued" = 1))'
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
