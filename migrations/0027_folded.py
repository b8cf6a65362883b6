"""Store searched texts without strokes and typographic signs, and old addresses to notify of a change.

This takes about half a minute with a million tasks.
"""

from database import fold

STATEMENTS = [
    'ALTER TABLE "invitation" ADD COLUMN "old_email" TEXT',
    # As the running version folds; what does not change is not written.
    'UPDATE "task" SET "search" = folded("title", "description") WHERE "search" != folded("title", "description")',
    'UPDATE "comment" SET "search" = folded("content") WHERE "search" != folded("content")',
]


def up(migrator, db):
    db.connection().create_function(
        "folded", -1, lambda *texts: "\x1f".join(fold(text or "") for text in texts)
    )
    for statement in STATEMENTS:
        db.execute_sql(statement)
