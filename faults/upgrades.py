"""Upgrades from every released version, killed at every statement, and what the next start makes of them."""

import os
import shutil
import signal
import sqlite3
import traceback
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from disks import Disk, own_mounts
from findings import Run
from peewee import SqliteDatabase
from playhouse.migrations import Runner

from database import MIGRATIONS, PRAGMAS, TICKS_PER_MS, db, prepare, uuid7
from models import STATUSES

FIRST_TICK = 1_767_225_600_000 * TICKS_PER_MS  # of 2026
DAY = "2026-01-01T00:00:00.000Z"
# What the columns of an older database hold, where it matters; the n-th row of a table has the n-th value.
VALUES: dict[str, tuple[Any, ...]] = {
    "member.role": ("owner", "member"),
    "member.status": ("active",),
    "task.status": STATUSES,
    "task.priority": ("low", "medium", "high", "urgent"),
    "task.due_date": (None, DAY),
    "attachment.size": (9_000,),
    "attachment_content.data": (b"x" * 9_000,),
    "activity.entity": ("task", "comment", "member"),
    "activity.changes": ("{}",),
    "endpoint.state": ("active",),
    "endpoint.events": ("[]",),
    "delivery.status": ("delivered",),
    "metadata": ("{}",),
    "headers": ("{}",),
    "data": ('{"author_id": ""}', '{"title": "T"}'),
    "completed_at": (None,),
    "removed_at": (None,),
    "revoked_at": (None,),
    "api_key.expires_at": (None,),
}
# Tables and columns.
RENAMED = {"endpoint": "webhook", "endpoint_id": "webhook_id", "queued": "blocks_later"}
DROPPED = {"project_stats", "task_count"}
REWRITTEN = {("stored_answer", "data")}


class Point(NamedTuple):
    """A moment of an upgrade: before the statement with this number, among those that change something."""

    version: str
    statement: int


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
        for table, columns in table_columns(connection).items():
            references = {row[3]: row[2] for row in connection.execute(f"PRAGMA foreign_key_list({table})")}
            for number in range(rows):
                values = [value(table, name, kind, references, number) for name, kind in columns]
                marks = ", ".join("?" * len(columns))
                # Triggers make the rows of counters.
                connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)
    path.chmod(0o600)


def table_columns(connection: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    """Each table's columns with their types, in the order in which the tables were made."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    names = [name for (name,) in connection.execute(tables) if name != "schema_migration"]
    info = "SELECT name, type FROM pragma_table_info(?)"
    return {name: connection.execute(info, (name,)).fetchall() for name in names}


def value(table: str, column: str, kind: str, references: dict[str, str], number: int) -> Any:
    """What a column holds in the table's n-th row."""
    if column == "entity_id":
        return row_id(VALUES["activity.entity"][number % 3], number)
    known = VALUES.get(f"{table}.{column}") or VALUES.get(column)
    if known:
        return known[number % len(known)]
    if column in references:
        return number + 1 if column.endswith("_seq") else row_id(references[column], number)
    if column == "id":
        return row_id(table, number)
    if kind in ("INTEGER", "BLOB"):
        return number + 1 if kind == "INTEGER" else b"x" * 9_000
    return DAY if column.endswith("_at") else f"{column} {number}"


def row_id(table: str, number: int) -> str:
    """The id of the table's n-th row."""
    return uuid7(FIRST_TICK + number, crc32(table.encode()))


# Interruptions --------------------------------------------------------------------------------


def upgrade(path: Path, kill_at: int | None = None) -> int:
    """Do in a process of its own what a start does; return how many statements changed something.

    With `kill_at` it is killed before the statement with that number, and -1 is returned.
    """
    reader, writer = os.pipe()
    if not (process := os.fork()):
        try:
            os.write(writer, str(_prepare_counting(path, kill_at)).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as said:
        count = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in (0, -signal.SIGKILL), f"exit code {status}, for the reason in the part's log"
    return int(count) if status == 0 else -1


def _prepare_counting(path: Path, kill_at: int | None) -> int:
    count = 0

    def trace(statement: str) -> None:
        nonlocal count
        count += not statement.startswith(("SELECT", "PRAGMA"))  # which change nothing
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    db.init(str(path), timeout=10)
    for connection in (db.connection(), db._writer.connection()):
        connection.set_trace_callback(trace)
    prepare()
    return count


class Content(NamedTuple):
    """What a database holds."""

    schema: dict[str, dict[str, set]]
    rows: dict[str, list[dict]]
    statistics: set[str]  # the indexes that have some


def content(path: Path) -> Content:
    """What a sound database holds; raises `AssertionError` for another one."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        columns = table_columns(connection)
        found = schema(connection)
        indexes = set()
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'").fetchone():
            indexes = {idx for (idx,) in connection.execute("SELECT idx FROM sqlite_stat1")}
        connection.row_factory = sqlite3.Row
        rows = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in columns}
    return Content(found, rows, indexes)


def schema(connection: sqlite3.Connection) -> dict[str, dict[str, set]]:
    """Each table with its columns, foreign keys and indexes, each as a set.

    The order of columns does not count: ALTER TABLE appends a column, and a model declares it where it
    belongs. No statement depends on the order.
    """

    def rows(sql: str) -> set:
        return {tuple(row) for row in connection.execute(sql)}

    found = {}
    for (table,) in rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"):
        fields = "name, type, [notnull], dflt_value, pk, hidden"
        keys = "[from], [table], [to], on_update, on_delete"
        found[table] = {
            "columns": rows(f"SELECT {fields} FROM pragma_table_xinfo('{table}')"),
            "foreign keys": rows(f"SELECT {keys} FROM pragma_foreign_key_list('{table}')"),
            "indexes": rows(
                f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = '{table}'"
            ),
        }
    found.pop("schema_migration", None)
    return found


def lost_rows(before: Content, after: Content) -> list[str]:
    """The tables of which a row is missing or another one."""
    lost = []
    for table, rows in before.rows.items():
        if table in DROPPED:
            continue
        name = RENAMED.get(table, table)
        columns = [c for c in (rows[0] if rows else []) if (table, c) not in REWRITTEN]
        old = Counter(tuple(row[c] for c in columns) for row in rows)
        new = Counter(tuple(row[RENAMED.get(c, c)] for c in columns) for row in after.rows.get(name, []))
        if old != new:
            lost.append(table)
    return lost


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
        pending = versions().index(version) + 1
        self.first_step = [step.name for step in Runner(db, str(MIGRATIONS)).migrations()][pending]

    def copy_to(self, name: str) -> Path:
        path = self.folder / name / "tasks.db"
        path.parent.mkdir()
        shutil.copy(self.older, path)
        return path

    def interrupted(self, statement: int) -> tuple[Path, list[str]]:
        """Kill the upgrade before this statement, and start again; return the database and what is wrong."""
        path = self.copy_to(str(statement))
        assert upgrade(path, statement) == -1, "it was not killed"
        try:
            upgrade(path)
            after = content(path)
        except AssertionError as error:
            return path, [f"the next start: {error}"]
        wrong = [f"rows of {table} are lost" for table in lost_rows(self.before, after)]
        wrong += [
            f"{table} differs"
            for table, parts in self.after.schema.items()
            if parts != after.schema.get(table)
        ]
        if missing := self.after.statistics - after.statistics:
            wrong.append(f"{len(missing)} indexes have no statistics")
        copy = path.with_name(f"tasks.db.before-{self.first_step}")
        if not copy.exists():
            wrong.append("no copy was made before")
        elif content(copy).rows != self.before.rows:
            wrong.append("the copy is not what was there before")
        return path, wrong


def run(run: Run) -> None:
    # In memory, if that is possible: a process that is killed leaves the same there.
    folder = run.folder if own_mounts() else Disk(run.folder / "disk", 16_000).folder
    upgrades = {version: Upgrade(folder / version, version) for version in versions()}
    points = [
        Point(version, number + 1)
        for version, upgrade in upgrades.items()
        for number in range(upgrade.statements)
    ]
    run.random.shuffle(points)
    oldest = next(point for point in points if point.version == versions()[0])
    points.remove(oldest)
    points.insert(0, oldest)  # which is served afterwards: its counters come from a migration
    faults: dict[str, str] = {}
    served = None
    for number in run.rounds(len(points)):
        version, statement = points[number]
        path, wrong = upgrades[version].interrupted(statement)
        for problem in wrong:
            at = f"upgrade from {version}, killed before statement {statement}"
            faults.setdefault(problem, f"{at}: {problem}")
        if served is None:
            served = path
        else:
            shutil.rmtree(path.parent)
    for fault in faults.values():
        run.fault(fault)
    what = f"upgrades from {len(upgrades)} versions, killed at {number + 1} of {len(points)} statements"
    run.found("G19", what, f"{len(faults)} faults", "0 faults", not faults)
    if faults:
        return
    with run.server("upgraded", TASKS_SERVER__DATABASE=str(served)) as server:
        done = server.flask("doctor")
        if done.returncode:
            run.fault(f"doctor after an interrupted upgrade: {' '.join(done.stdout.split())[-300:]}")
