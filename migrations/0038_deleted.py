"""Keep what is deleted, and texts that are replaced, for 30 days; a file that is kept belongs to no task.

A column can only lose its NOT NULL in a new table. The contents of files are not copied: they refer to the table by its name, and a
migration runs while foreign keys are off, so that DROP TABLE deletes nothing but the table.
"""

NAMED = "SELECT JSON_EXTRACT(\"value\", '$.id') FROM JSON_EACH(OLD.\"rows\", '$.{}')"
FORGET_FILES = 'BEGIN DELETE FROM "attachment" WHERE "task_id" IS NULL AND "id" IN ({} UNION ALL {}); END'
FORGET_FILES = FORGET_FILES.format(NAMED.format("attachment"), NAMED.format('"attachment.task_id"'))

STATEMENTS = [
    'CREATE TEMP TABLE "file" AS SELECT * FROM "attachment"',
    'DROP TABLE "attachment"',
    'CREATE TABLE "attachment" ("id" TEXT NOT NULL PRIMARY KEY, "task_id" TEXT, "filename" TEXT NOT NULL, "content_type" TEXT NOT NULL, "size" INTEGER NOT NULL, "created_by" TEXT NOT NULL, "created_at" TEXT NOT NULL, FOREIGN KEY ("task_id") REFERENCES "task" ("id") ON DELETE CASCADE, FOREIGN KEY ("created_by") REFERENCES "member" ("id"))',
    'INSERT INTO "attachment" SELECT * FROM "file"',
    'CREATE INDEX "attachment_task" ON "attachment" ("task_id", "id")',
    'DROP TABLE "file"',
    'CREATE TABLE "deleted" ("id" TEXT NOT NULL PRIMARY KEY, "kind" TEXT NOT NULL, "title" TEXT NOT NULL, "number" INTEGER, "project_id" TEXT, "deleted_by" TEXT NOT NULL, "key_id" TEXT, "deleted_at" TEXT NOT NULL, "part_of_id" TEXT, "rows" TEXT NOT NULL, FOREIGN KEY ("deleted_by") REFERENCES "member" ("id"), FOREIGN KEY ("part_of_id") REFERENCES "deleted" ("id") ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED)',
    'CREATE INDEX "deleted_listed" ON "deleted" ("part_of_id", "deleted_at", "id")',
    f'CREATE TRIGGER "deleted_files" AFTER DELETE ON "deleted" {FORGET_FILES}',
    f'CREATE TRIGGER "deleted_again_files" AFTER UPDATE OF "rows" ON "deleted" {FORGET_FILES}',
    'CREATE TABLE "earlier" ("activity_id" TEXT NOT NULL, "field" TEXT NOT NULL, "value" TEXT NOT NULL, "replaced_by" TEXT NOT NULL, PRIMARY KEY ("activity_id", "field"), FOREIGN KEY ("activity_id") REFERENCES "activity" ("id") ON DELETE CASCADE)',
    'CREATE INDEX "activity_object" ON "activity" ("entity_id", "id") WHERE ("task_id" IS NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
