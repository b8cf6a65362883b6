"""Which keys are sessions of people."""


def up(migrator, db):
    db.execute_sql('ALTER TABLE "api_key" ADD COLUMN "is_session" INTEGER')
