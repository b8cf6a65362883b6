"""Store in each activity of a moved task the project in which the task was at that time.

Migration 0032 stored the task's present project, so a client of that project read what the task said elsewhere.
"""

STATEMENTS = [
    'CREATE TEMP TABLE "move" AS SELECT "task_id", "id", JSON_EXTRACT("changes", \'$.project_id[0]\') AS "old" FROM "activity" '
    'WHERE "action" = \'moved\' AND "task_id" IS NOT NULL AND JSON_EXTRACT("changes", \'$.project_id\') IS NOT NULL',
    'CREATE INDEX temp."move_task" ON "move" ("task_id", "id", "old")',
    'UPDATE "activity" SET "project_id" = COALESCE((SELECT "old" FROM "move" WHERE "move"."task_id" = "activity"."task_id" '
    'AND "move"."id" > "activity"."id" ORDER BY "move"."id" LIMIT 1), "project_id") '
    'WHERE "task_id" IN (SELECT "task_id" FROM "move")',
    'DROP TABLE "move"',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
