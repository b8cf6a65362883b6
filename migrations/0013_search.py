"""The texts that are searched, without accents.

With a million tasks it takes about half a minute.
"""

from database import fold


def up(migrator, db):
    # As the running version folds; what does not change is not written.
    db.connection().create_function(
        "folded", 2, lambda *texts: "\x1f".join(fold(text or "") for text in texts)
    )
    db.execute_sql(
        'UPDATE "task" SET "search" = folded("title", "description") WHERE "search" != folded("title", "description")'
    )
