"""Count the tries of agents at a task, and let a person stop all agents."""

STATEMENTS = [
    'ALTER TABLE "task" ADD COLUMN "tries" INTEGER NOT NULL DEFAULT 0',
    'CREATE TABLE "agent_stop" ("id" TEXT NOT NULL PRIMARY KEY, "member_id" TEXT NOT NULL, "reason" TEXT NOT NULL, '
    '"created_at" TEXT NOT NULL, FOREIGN KEY ("member_id") REFERENCES "member" ("id"))',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
