"""Let tasks repeat."""

STATEMENTS = [
    'ALTER TABLE "task" ADD COLUMN "repeat" TEXT',
    'ALTER TABLE "task" ADD COLUMN "repeat_from" TEXT NOT NULL DEFAULT \'due_date\'',
    'ALTER TABLE "task" ADD COLUMN "repeats" INTEGER',
    'CREATE INDEX "task_repeats" ON "task" ("repeats") WHERE ("repeats" IS NOT NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
