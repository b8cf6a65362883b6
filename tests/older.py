"""Databases of older versions, and their upgrades."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

from peewee import SqliteDatabase
from playhouse.migrations import Runner

from database import PRAGMAS, db
from models import STATUSES
from store import MIGRATIONS, prepare
from times import TICKS_PER_MS, uuid7

FIRST_TICK = 1_767_225_600_000 * TICKS_PER_MS  # of 2026
DAY = "2026-01-01T00:00:00.000Z"
# Values of an older database's columns, where they matter; the n-th row of a table has the n-th value.
VALUES: dict[str, tuple[Any, ...]] = {"member.role": ("owner", "member"), "member.status": ("active",)}
VALUES["task.search"] = (DAY,)  # which migration 0013 makes again
VALUES |= {"task.status": STATUSES, "due_date": (None, DAY), "activity.entity": ("task", "comment", "member")}
VALUES |= {"attachment.size": (9_000,), "endpoint.events": ("[]",), "stored_answer.data": ("{}",)}
VALUES |= dict.fromkeys(("changes", "metadata", "headers"), ("{}",))
VALUES |= dict.fromkeys(("removed_at", "revoked_at", "project_ids"), (None,))


def versions() -> list[str]:
    """The names of all migrations but the last one: of the versions that are upgraded."""
    return [step.name for step in Runner(db, str(MIGRATIONS)).migrations()][:-1]


def older_database(path: Path, version: str, rows: int = 20) -> None:
    """Make a database as the version with this last migration made it, with rows in every table."""
    path.parent.mkdir(parents=True)
    older = SqliteDatabase(str(path), pragmas=PRAGMAS)
    with older:
        Runner(older, str(MIGRATIONS)).up(version)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = 1")
        connection.execute("BEGIN")
        connection.execute("PRAGMA defer_foreign_keys = 1")  # a table that was rebuilt comes late
        for table in table_names(connection):
            references = {row[3]: row[2] for row in connection.execute(f"PRAGMA foreign_key_list({table})")}
            columns = connection.execute(f"SELECT name, type FROM pragma_table_info('{table}')").fetchall()
            for number in range(rows):
                values = [value(table, name, kind, references, number) for name, kind in columns]
                marks = ", ".join("?" * len(columns))
                # Triggers make the rows of counters.
                connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)
    path.chmod(0o600)


def table_names(connection: sqlite3.Connection) -> list[str]:
    """The tables, in the order in which they were made."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    return [name for (name,) in connection.execute(query) if name != "schema_migration"]


def value(table: str, column: str, kind: str, references: dict[str, str], number: int) -> Any:
    """Return a column's value in the table's n-th row."""
    if known := VALUES.get(f"{table}.{column}") or VALUES.get(column):
        return known[number % len(known)]
    if column == "entity_id":
        return row_id(VALUES["activity.entity"][number % 3], number)
    if column == "id" or column in references:
        is_number = column.endswith(("_seq", "_number"))
        return number + 1 if is_number else row_id(references.get(column, table), number)
    if column == "search":  # the folded texts, which upgrades fold again
        texts = ("content",) if table == "comment" else ("title", "description")
        return "\x1f".join(f"{table} {text} {number}" for text in texts)
    if kind == "INTEGER":
        return number + 1
    if kind == "BLOB":
        return b"x" * 9_000
    return DAY if column.endswith("_at") else f"{table} {column} {number}"


def row_id(table: str, number: int) -> str:
    """The id of the table's n-th row."""
    return uuid7(FIRST_TICK + number, crc32(table.encode()))


def upgrade(path: Path, kill_at: int | None = None) -> int:
    """Do in a process of its own what a start does; return how many statements changed something.

    With `kill_at` it is killed before the statement with that number, and -1 is returned.
    """
    forks = multiprocessing.get_context("fork")
    count = forks.Value("i", 0)

    def trace(statement: str) -> None:
        count.value += not statement.startswith(("SELECT", "PRAGMA"))  # which change nothing
        if count.value == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def start() -> None:
        db.init(str(path), timeout=10)
        for connection in (db.connection(), db._writer.connection()):
            connection.set_trace_callback(trace)
        prepare()

    process = forks.Process(target=start)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"exit code {process.exitcode}, see the part's log"
    return -1 if process.exitcode else count.value


def content(path: Path) -> dict[str, Any]:
    """The schema, rows and statistics of a sound database; raises `AssertionError` for another one."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        master = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        found: dict[str, Any] = {"schema": set(master)}
        for kind, table, _ in master:
            if kind == "table" and table != "schema_migration":
                found[table] = connection.execute(f"SELECT * FROM {table}").fetchall()
    return found


def texts(content: dict[str, Any]) -> set[str]:
    """Return the texts of the rows, almost all written once by `older_database`; without the counters."""
    kept = content.keys() - {"schema", "sqlite_stat1", "project_stats", "task_count", "due_count"}
    return {text for table in kept for row in content[table] for text in row if isinstance(text, str)}


class Upgrade:
    """The upgrade from one version: the database before, and what is to become of it."""

    def __init__(self, folder: Path, version: str):
        self.folder, self.version = folder, version
        self.older = folder / "older" / "tasks.db"
        older_database(self.older, version)
        self.before = content(self.older)
        whole = self.copy_to("whole")
        self.statements = upgrade(whole)
        self.after = content(whole)
        assert texts(self.before) <= texts(self.after), f"the upgrade from {version} loses something"

    def copy_to(self, name: str) -> Path:
        path = self.folder / name / "tasks.db"
        path.parent.mkdir()
        shutil.copy(self.older, path)
        return path

    def interrupted(self, statement: int) -> list[str]:
        """Kill the upgrade before this statement, and start again; return what is wrong afterwards."""
        path = self.copy_to(str(statement))
        assert upgrade(path, statement) == -1, "it was not killed"
        upgrade(path)
        after, copied = content(path), content(min(path.parent.glob("tasks.db.before-*")))
        wrong = [f"{name} differs" for name in self.after if after.get(name) != self.after[name]]
        if copied != self.before:
            wrong.append("the copy is not what was there before")
        shutil.rmtree(path.parent)
        return [f"upgrade from {self.version}, killed before statement {statement}: {what}" for what in wrong]
