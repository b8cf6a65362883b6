"""When a comment was edited, and to which task an activity belongs."""

STATEMENTS = [
    'ALTER TABLE "comment" ADD COLUMN "edited_at" TEXT',
    'ALTER TABLE "activity" ADD COLUMN "task_id" TEXT',
    'UPDATE "activity" SET "task_id" = "entity_id" WHERE "entity" = \'task\'',
    'UPDATE "activity" SET "task_id" = (SELECT "task_id" FROM "comment" WHERE "id" = "entity_id") WHERE "entity" = \'comment\'',
    # Stored answers are repeated as answers of today.
    'UPDATE "stored_answer" SET "data" = JSON_SET("data", \'$.edited_at\', NULL) WHERE JSON_TYPE("data", \'$.author_id\') IS NOT NULL',
    'CREATE INDEX "activity_task" ON "activity" ("task_id", "id") WHERE ("task_id" IS NOT NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
