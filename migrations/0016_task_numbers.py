"""Numbers of tasks, in the order of their creation; external ids; the tasks that block a task; keys of activity.

With a million tasks it takes about a minute. Numbers are the table's rowid, so the table is made anew.
"""

TASK = 'CREATE TABLE "task_new" ("number" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "id" TEXT NOT NULL, "project_id" TEXT NOT NULL, "milestone_id" TEXT, "title" TEXT NOT NULL, "description" TEXT, "status" TEXT NOT NULL, "priority" TEXT NOT NULL, "assignee_id" TEXT, "created_by" TEXT NOT NULL, "start_date" TEXT, "due_date" TEXT, "completed_at" TEXT, "metadata" TEXT NOT NULL, "external_id" TEXT, "version" INTEGER NOT NULL, "created_at" TEXT NOT NULL, "updated_at" TEXT NOT NULL, "search" TEXT NOT NULL, FOREIGN KEY ("project_id") REFERENCES "project" ("id"), FOREIGN KEY ("milestone_id") REFERENCES "milestone" ("id") ON DELETE SET NULL, FOREIGN KEY ("assignee_id") REFERENCES "member" ("id"), FOREIGN KEY ("created_by") REFERENCES "member" ("id"))'
COLUMNS = '"id", "project_id", "milestone_id", "title", "description", "status", "priority", "assignee_id", "created_by", "start_date", "due_date", "completed_at", "metadata", "version", "created_at", "updated_at", "search"'

STATEMENTS = [
    TASK,
    f'INSERT INTO "task_new" ({COLUMNS}) SELECT {COLUMNS} FROM "task" ORDER BY "id"',  # noqa: S608 - constants
    'DROP TABLE "task"',
    'ALTER TABLE "task_new" RENAME TO "task"',
    'CREATE UNIQUE INDEX "task_id" ON "task" ("id")',
    'CREATE UNIQUE INDEX "task_external_id" ON "task" ("external_id") WHERE ("external_id" IS NOT NULL)',
    'CREATE INDEX "task_updated" ON "task" ("updated_at", "id", "project_id", "milestone_id", "assignee_id", "status", "priority", "due_date", "created_by")',
    'CREATE TABLE "blocker" ("task_number" INTEGER NOT NULL, "blocker_number" INTEGER NOT NULL, PRIMARY KEY ("task_number", "blocker_number"), FOREIGN KEY ("task_number") REFERENCES "task" ("number") ON DELETE CASCADE, FOREIGN KEY ("blocker_number") REFERENCES "task" ("number") ON DELETE CASCADE) WITHOUT ROWID',
    'CREATE INDEX "blocker_blocker_number" ON "blocker" ("blocker_number")',
    'ALTER TABLE "activity" ADD COLUMN "key_id" TEXT REFERENCES "api_key" ("id") ON DELETE SET NULL',
    'ALTER TABLE "comment" ADD COLUMN "key_id" TEXT REFERENCES "api_key" ("id") ON DELETE SET NULL',
    # Stored answers are repeated as answers of today. Only tasks have a version, only comments an author.
    'UPDATE "stored_answer" SET "data" = JSON_SET("data", \'$.number\', (SELECT "number" FROM "task" WHERE "id" = JSON_EXTRACT("data", \'$.id\')), \'$.external_id\', NULL, \'$.blocked_by\', JSON(\'[]\')) WHERE JSON_TYPE("data", \'$.version\') IS NOT NULL AND JSON_EXTRACT("data", \'$.id\') IN (SELECT "id" FROM "task")',
    'UPDATE "stored_answer" SET "data" = JSON_SET("data", \'$.via\', NULL) WHERE JSON_TYPE("data", \'$.author_id\') IS NOT NULL',
]


def up(migrator, db):
    made = "SELECT sql FROM sqlite_master WHERE tbl_name = 'task' AND type IN ('index', 'trigger') AND sql > '' AND name != 'task_updated'"
    dropped = [sql for (sql,) in db.execute_sql(made).fetchall()]
    for statement in STATEMENTS + dropped:
        db.execute_sql(statement)
