"""Overdue tasks are counted by their index: those of each day need no counters."""

STATEMENTS = [
    *(f'DROP TRIGGER "due_count_{name}"' for name in ("insert", "delete", "subtract", "add", "zero")),
    'DROP TABLE "due_count"',
]


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
