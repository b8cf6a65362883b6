"""A session ends with the key with which it was started."""


def up(migrator, db):
    db.execute_sql('ALTER TABLE "api_key" ADD COLUMN "started_with" TEXT')
