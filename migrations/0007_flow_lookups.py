"""Indexes for the newest flow of a session, also the newest that has not ended, and for the tasks of one run."""

STATEMENTS = [
    'DROP INDEX "flow_owner"',
    'CREATE INDEX "flow_owner" ON "flow" ("owner", "created_at", "seq" DESC)',
    'CREATE INDEX "flow_open" ON "flow" ("owner", "created_at", "seq" DESC) WHERE ("status" NOT IN (\'succeeded\', \'failed\', \'cancelled\', \'lost\'))',
    'CREATE INDEX "flow_task_run" ON "flow_task" ("flow_seq", "run_id", "runtime", "child_session_key") WHERE ("run_id" IS NOT NULL)',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
