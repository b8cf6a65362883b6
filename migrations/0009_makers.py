"""Through whom keys and invitations were made; the project in the indexes that leave out archived ones."""

STATEMENTS = [
    'ALTER TABLE "api_key" ADD COLUMN "makers" TEXT',
    'UPDATE "api_key" SET "makers" = "created_by"',
    'ALTER TABLE "invitation" ADD COLUMN "makers" TEXT',
    'UPDATE "invitation" SET "makers" = "created_by"',
    'DROP INDEX "task_overdue"',
    'CREATE INDEX "task_overdue" ON "task" ("due_date", "id", "status", "project_id") WHERE (("status" != \'done\') AND ("due_date" IS NOT NULL))',
    'DROP INDEX "task_urgent"',
    'CREATE INDEX "task_urgent" ON "task" (("due_date" IS NULL), "due_date", "id", "project_id") WHERE (("status" != \'done\') AND ("priority" = \'urgent\'))',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
