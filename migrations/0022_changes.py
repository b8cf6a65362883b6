"""What `/changes` follows: numbers of tasks in activity, what the history hides; and a webhook's last error."""

from times import new_id

STATEMENTS = [
    'ALTER TABLE "activity" ADD COLUMN "number" INTEGER',
    'ALTER TABLE "activity" ADD COLUMN "is_hidden" INTEGER',
    'UPDATE "activity" SET "number" = (SELECT "number" FROM "task" WHERE "id" = "task_id") WHERE "task_id" IS NOT NULL',
    'CREATE INDEX "activity_gone" ON "activity" ("number") WHERE (("action" = \'deleted\') AND ("entity" = \'task\'))',
    'ALTER TABLE "webhook" ADD COLUMN "last_error" TEXT',
]
# A cursor names an activity; all of an older workspace may be pruned.
FIRST = (
    'INSERT INTO "activity" ("id", "actor_id", "action", "entity", "entity_id", "title", "changes", "request_id", '
    '"created_at", "is_hidden") SELECT ?, "id", \'updated\', \'member\', "id", "full_name", \'{}\', \'\', '
    '"created_at", 1 FROM "member" WHERE NOT EXISTS (SELECT 1 FROM "activity") LIMIT 1'
)


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
    db.execute_sql(FIRST, (new_id(),))
