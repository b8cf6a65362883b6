"""Answers that are replayed to a repeated `Idempotency-Key`."""

STATEMENTS = [
    'CREATE TABLE "stored_answer" ("api_key_id" TEXT NOT NULL, "idempotency_key" TEXT NOT NULL, "request" TEXT NOT NULL, "status" INTEGER NOT NULL, "headers" TEXT NOT NULL, "data" TEXT NOT NULL, "created_at" TEXT NOT NULL, PRIMARY KEY ("api_key_id", "idempotency_key"), FOREIGN KEY ("api_key_id") REFERENCES "api_key" ("id") ON DELETE CASCADE)',
    'CREATE INDEX "stored_answer_created_at" ON "stored_answer" ("created_at")',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
