"""Store the projects that a client may see and each activity's project; delete notices of other projects."""

# INSTR of a list that is null is null: that member sees all projects.
STATEMENTS = [
    'ALTER TABLE "member" ADD COLUMN "project_ids" TEXT',
    'ALTER TABLE "member" ADD COLUMN "projects_since" TEXT',
    'ALTER TABLE "activity" ADD COLUMN "project_id" TEXT',
    'UPDATE "activity" SET "project_id" = (SELECT "project_id" FROM "task" WHERE "task"."id" = "task_id") WHERE "task_id" IS NOT NULL',
    'CREATE INDEX "activity_project" ON "activity" ("project_id", "id") WHERE ("project_id" IS NOT NULL)',
    'CREATE TRIGGER "notice_unseen" BEFORE INSERT ON "notice" WHEN (SELECT INSTR("member"."project_ids", "task"."project_id") = 0 FROM "member", "task" WHERE "member"."id" = NEW."member_id" AND "task"."id" = NEW."task_id") BEGIN SELECT RAISE(IGNORE); END',
    'CREATE TRIGGER "notice_of_moved" AFTER UPDATE OF "project_id" ON "task" BEGIN DELETE FROM "notice" WHERE "task_id" = NEW."id" AND "member_id" IN (SELECT "id" FROM "member" WHERE INSTR("project_ids", NEW."project_id") = 0); END',
    'CREATE TRIGGER "notice_of_limited" AFTER UPDATE OF "project_ids" ON "member" WHEN NEW."project_ids" IS NOT NULL BEGIN DELETE FROM "notice" WHERE "member_id" = NEW."id" AND (SELECT INSTR(NEW."project_ids", "project_id") FROM "task" WHERE "task"."id" = "notice"."task_id") = 0; END',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
