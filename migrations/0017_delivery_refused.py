"""The deliveries that were refused are counted each time that somebody asks for the service's figures."""


def up(migrator, db):
    db.execute_sql(
        'CREATE INDEX "delivery_refused" ON "delivery" ("webhook_id") WHERE ("status" = \'refused\')'
    )
