"""The status in the index by which the tasks of milestones are counted."""

STATEMENTS = [
    'DROP INDEX "task_milestone"',
    'CREATE INDEX "task_milestone" ON "task" ("milestone_id", "id", "status") WHERE ("milestone_id" IS NOT NULL)',
    # Stored answers are repeated as answers of today: of what has a due date, only tasks have a version.
    'UPDATE "stored_answer" SET "data" = JSON_SET("data", \'$.stats\', JSON(\'{"total":0,"done":0}\')) WHERE JSON_TYPE("data", \'$.due_date\') IS NOT NULL AND JSON_TYPE("data", \'$.version\') IS NULL',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
