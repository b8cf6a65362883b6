"""Through whom keys and invitations were made; overdue tasks by project, to leave out those of archived ones."""

STATEMENTS = [
    'ALTER TABLE "api_key" ADD COLUMN "makers" TEXT',
    'UPDATE "api_key" SET "makers" = "created_by"',
    'ALTER TABLE "invitation" ADD COLUMN "makers" TEXT',
    'UPDATE "invitation" SET "makers" = "created_by"',
    'DROP INDEX "task_overdue"',
    'CREATE INDEX "task_overdue" ON "task" ("due_date", "id", "status", "project_id") WHERE (("status" != \'done\') AND ("due_date" IS NOT NULL))',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
