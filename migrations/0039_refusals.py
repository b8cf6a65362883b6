"""Count the refusals of a delivery apart from its attempts. Those before the upgrade do not count."""


def up(migrator, db):
    db.execute_sql('ALTER TABLE "delivery" ADD COLUMN "refusals" INTEGER NOT NULL DEFAULT 0')
