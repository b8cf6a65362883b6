"""Ways in which a database file, or a copy of it, may be spoilt."""

import os
import sqlite3
from contextlib import closing


def delete(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


def write_text(path):
    path.write_text("This is no database. " * 1000)


def cut_off(path):
    os.truncate(path, path.stat().st_size // 2)


def make_newer(path):
    """As if a later version had applied one migration more."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO schema_migration (name, applied) VALUES ('9999_newer', '2026-01-01')")


def make_another(path):
    """Put the database of another program in its place."""
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE recipe (name)")


def overwrite_the_middle(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    content = bytearray(path.read_bytes())
    quarter = len(content) // 4
    content[quarter : 3 * quarter] = b"\xaa" * (2 * quarter)
    path.write_bytes(content)
