"""What only SQLite and peewee know: stored values, statements, the turn to write, the file and its copies.

This module knows no table. Rows are stored in the form in which they are sent (ids and instants as text),
so that reading is copying: a statement's columns become a dict's keys, and a column named `owner.id`
becomes `{"owner": {"id": …}}`.
"""

import fcntl
import hashlib
import os
import secrets
import sqlite3
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, ClassVar

import orjson
from peewee import SQL, AutoField, DatabaseError, Expression, Model, Query, SqliteDatabase, TextField
from playhouse.migrations import Runner

LOCK_SECONDS = 10  # the longest that a write waits for its turn, in this process and in SQLite together
# Applied once each, in the order of their numbers; a migration that was released is never changed. A new
# column is appended (ALTER TABLE … ADD COLUMN), and its model declares it where it belongs.
MIGRATIONS = Path(__file__).with_name("migrations")

Row = dict[str, Any]


class Database(SqliteDatabase):
    """SQLite, which does not make another file where the database was moved or deleted."""

    def _connect(self) -> sqlite3.Connection:
        check_in_place()
        return super()._connect()  # type: ignore[misc]


db = Database(
    None,
    pragmas={
        "journal_mode": "wal",
        "synchronous": "full",
        "foreign_keys": 1,
        "wal_autocheckpoint": 4000,
        "journal_size_limit": 64 * 1024 * 1024,
    },
    lock_type="immediate",
)


# Errors ---------------------------------------------------------------------------------------


class Unavailable(Exception):
    """The database is locked for too long, full, or read-only."""


class BadDatabase(Exception):
    """The database file cannot be served: damaged, made by a newer version, or not ours."""


# The codes of SQLite's errors when it is busy, full, read-only or without its disk; any other is a bug.
OUTAGES = tuple(
    f"SQLITE_{code}"
    for code in ("BUSY", "LOCKED", "FULL", "READONLY", "IOERR", "CANTOPEN", "CORRUPT", "NOTADB", "PROTOCOL")
)


def is_outage(error: BaseException | None) -> bool:
    """Whether the error, or one that caused it, is an outage; peewee's rollback may hide the cause."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            name = getattr(error, "sqlite_errorname", "") or ""
            if name.startswith(OUTAGES):
                return True
        error = error.__cause__ or error.__context__
    return False


# Time and identity ----------------------------------------------------------------------------


def instant(moment: datetime) -> str:
    """The moment in wire form: UTC, milliseconds, fixed width, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now(seconds: float = 0) -> str:
    """The current time, or the time so many seconds from now, in wire form."""
    return wire_time(time.time_ns() // 1_000_000 + round(seconds * 1000))


def wire_time(epoch_milliseconds: int) -> str:
    whole, milliseconds = divmod(epoch_milliseconds, 1000)
    return f"{_second(whole)}.{milliseconds:03d}Z"


@lru_cache(maxsize=64)
def _second(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat()[:19]


def epoch_ms() -> int:
    """The current time in the gateway's wire form; it never falls within this process."""
    return tick() // TICKS


TICKS = 4096  # a millisecond; one is 244 ns, shorter than any commit
_tick_lock = threading.Lock()
_last_tick = 0


def tick() -> int:
    """Ticks since the epoch: more than at all calls before, also when the system's clock is set back.

    Times and ids of what is stored come from here, inside the write lock, so that they rise in the
    order of commits.
    """
    global _last_tick
    with _tick_lock:
        _last_tick = max(_last_tick + 1, time.time_ns() * TICKS // 1_000_000)
        return _last_tick


def follow_clock(newest: str | None) -> None:
    """Continue the ticks from this id, the newest that is stored, whichever process made it.

    A stored time that is more than a day ahead was a fault of the clock, which is not followed.
    """
    global _last_tick
    if newest is None:
        return
    stored = uuid7_tick(newest)
    with _tick_lock:
        if _last_tick < stored < (time.time_ns() // 1_000_000 + 86_400_000) * TICKS:
            _last_tick = stored


def uuid7_tick(id: str) -> int:
    """The tick in a UUIDv7 that `uuid7` made."""
    return int(id[:8] + id[9:13] + id[15:18], 16)


def uuid7(tick: int, random_bits: int) -> str:
    """A UUIDv7 (RFC 9562, section 6.2, method 3) of a clock that ticks 4096 times a millisecond."""
    value = tick >> 12 << 80 | 7 << 76 | (tick & 0xFFF) << 64 | 0b10 << 62 | random_bits
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_id() -> str:
    """A UUIDv7 that is greater than all that this process has made, and all that changes have stored."""
    return uuid7(tick(), secrets.randbits(62))


def new_request_id() -> str:
    return "req_" + secrets.token_hex(16)


def fold(text: str) -> str:
    """The text without regard to case or composition, in every script, for searching."""
    return unicodedata.normalize("NFC", text.casefold())


def digest(secret: str) -> str:
    """SHA-256, enough for what holds 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


# JSON -----------------------------------------------------------------------------------------


class JSON(str):
    """JSON text, which `to_json` copies as it is."""

    __slots__ = ()


def to_json(value: Any) -> bytes:
    """The value as compact JSON, whose strings and numbers are those of `JSON.stringify`."""
    return orjson.dumps(value, _splice, orjson.OPT_PASSTHROUGH_SUBCLASS)


def _splice(text: Any) -> orjson.Fragment:
    if not isinstance(text, JSON):
        raise TypeError(f"{type(text)} is not JSON")
    return orjson.Fragment(text.encode())


# Statements -----------------------------------------------------------------------------------


class JSONText(TextField):
    """Canonical JSON text, which is copied into answers as it is."""


def placeholder(name: str) -> SQL:
    """A named parameter of a statement."""
    return SQL(f":{name}")


def columns(model: Any, *hidden: str) -> list:
    """The model's columns for a statement, in their order, without the hidden ones."""
    fields = [field for field in model._meta.sorted_fields if field.column_name not in hidden]
    return [f.alias(f"{f.column_name}:json") if isinstance(f, JSONText) else f for f in fields]


def group(alias: Any, key: str, *names: str) -> list:
    """Columns of a joined table that become one object under `key`; the first must be its id."""
    return [getattr(alias, name).alias(f"{key}.{name}") for name in names]


class Statement:
    """A peewee query that is converted to SQL once and then executed with named parameters.

    Building a query costs ten times more than executing it. Columns without a dot come first; each
    group `name.column` follows as one run that begins with its id, and is null where the id is null.
    A column named `name:json` holds JSON text, which is copied into the answer as it is.
    """

    def __init__(self, query: Query):
        self.sql, parameters = db.get_sql_context(value_literals=True).sql(query).query()
        if parameters:
            raise ValueError(f"every constant must be part of the statement: {self.sql}")
        self._plan: tuple[list[str], list[str], list[tuple[str, slice, list[str]]]] | None = None

    def _read_plan(self, cursor: sqlite3.Cursor) -> None:
        columns = [column[0] for column in cursor.description]
        flat = [name for name in columns if "." not in name]
        groups = []
        for key in dict.fromkeys(name.split(".")[0] for name in columns[len(flat) :]):
            places = [i for i, name in enumerate(columns) if name.startswith(f"{key}.")]
            names = [columns[i].split(".")[1] for i in places]
            groups.append((key, slice(places[0], places[-1] + 1), names))
        documents = [name.removesuffix(":json") for name in flat if name.endswith(":json")]
        self._plan = ([name.removesuffix(":json") for name in flat], documents, groups)

    def _row(self, values: tuple) -> Row:
        names, documents, groups = self._plan  # type: ignore[misc]
        row = dict(zip(names, values, strict=False))
        for name in documents:
            if row[name] is not None:
                row[name] = JSON(row[name])
        for key, place, columns in groups:
            group = values[place]
            row[key] = dict(zip(columns, group, strict=True)) if group[0] is not None else None
        return row

    def all(self, **parameters: Any) -> list[Row]:
        """Every row of the result."""
        cursor = db.execute_sql(self.sql, parameters)
        if self._plan is None:
            self._read_plan(cursor)
        return [self._row(values) for values in cursor.fetchall()]

    def one(self, **parameters: Any) -> Row | None:
        """The first row of the result, or None."""
        rows = self.all(**parameters)
        return rows[0] if rows else None

    def existing(self, **parameters: Any) -> Row:
        """The only row of the result. Raises `ValueError` where there is none, which is a bug."""
        (row,) = self.all(**parameters)
        return row

    def value(self, **parameters: Any) -> Any:
        """The first column of the first row, or None."""
        row = db.execute_sql(self.sql, parameters).fetchone()
        return row[0] if row else None

    def run(self, **parameters: Any) -> int:
        """Execute an UPDATE or DELETE, and return the number of rows that it changed."""
        return db.execute_sql(self.sql, parameters).rowcount


class Insertion(Statement):
    """INSERT of a row; the parameters are the columns' names, and a column without one is null."""

    def __init__(self, model: Any, **computed: Any):
        """`computed` gives columns an expression in place of their parameter."""
        fields = [field for field in model._meta.sorted_fields if not isinstance(field, AutoField)]
        values = {field: computed.get(field.column_name, placeholder(field.column_name)) for field in fields}
        super().__init__(model.insert(values))
        self.nulls: Row = dict.fromkeys(field.column_name for field in fields)

    def run(self, **row: Any) -> int:
        """Insert the row, and return its number (`rowid`), which is the value of an `AutoField`."""
        return db.execute_sql(self.sql, self.nulls | row).lastrowid

    def run_many(self, rows: Iterable[Row]) -> None:
        """Insert the rows."""
        db.connection().executemany(self.sql, (self.nulls | row for row in rows))


class compiled:  # noqa: N801 - a decorator-like descriptor, as `property` is
    """A statement of a class: built on first use, then a plain attribute of the class.

    The function, a lambda or a decorated method, gets the class and returns a query or a `Statement`.
    So a query stands beside the method that runs it, and may refer to tables that are declared later.
    """

    def __init__(self, build: Callable[[Any], Query | Statement]):
        self.build = build

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any) -> Statement:
        built = self.build(owner)
        statement = built if isinstance(built, Statement) else Statement(built)
        setattr(owner, self.name, statement)
        return statement


def deletion_of_some(model: Any, condition: Expression) -> Query:
    """DELETE of at most `:most` rows for which the condition holds."""
    rowid = SQL("rowid")
    return model.delete().where(rowid.in_(model.select(rowid).where(condition).limit(placeholder("most"))))


# Tables ---------------------------------------------------------------------------------------


class Base(Model):
    """A table of this database."""

    class Meta:
        database = db
        legacy_table_names = False

    insertion: ClassVar[Insertion] = compiled(Insertion)  # type: ignore[assignment]

    @classmethod
    def update_statement(cls, names: Iterable[str], *conditions: Expression) -> Statement:
        """UPDATE of these columns in the rows for which the conditions hold."""
        assignments = {cls._meta.columns[name]: placeholder(name) for name in names}
        return Statement(cls.update(assignments).where(*conditions))


class Identified(Base):
    """A table whose rows have an id."""

    id = TextField(primary_key=True)

    row = compiled(lambda cls: cls.select(*columns(cls)).where(cls.id == placeholder("id")))
    deletion = compiled(lambda cls: cls.delete().where(cls.id == placeholder("id")))

    @classmethod
    def set_columns(cls, id: str, **values: Any) -> None:
        """Write these columns of the row with this id, and no other."""
        cls._update_of(tuple(sorted(values))).run(id=id, **values)

    @classmethod
    @lru_cache(maxsize=256)
    def _update_of(cls, names: tuple[str, ...]) -> Statement:
        return cls.update_statement(names, cls.id == placeholder("id"))


class Sequenced(Identified):
    """A table whose rows also have a number, which rises with each insertion."""

    seq = AutoField()
    id = TextField(unique=True)


# Writing --------------------------------------------------------------------------------------


class FairLock:
    """A lock that is given to whoever has waited longest, so that no writer starves.

    While it stalls, which means that no holder has reported progress for `STALL_SECONDS`, at most
    `most` threads hold it or wait for it. Of the server's threads some are then left for reads.
    """

    STALL_SECONDS = 2.0

    def __init__(self, most: int = 8) -> None:
        self.most = most
        self._mutex = threading.Lock()
        self._held = False
        self._progress_at = 0.0
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """Wait for the lock, at most so many seconds; returns whether it is held now."""
        ends_at = time.monotonic() + timeout
        with self._mutex:
            if not self._held:
                self._held = True
                self._progress_at = time.monotonic()
                return True
            if self._stalls() and len(self._waiting) + 1 >= self.most:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        while not turn.acquire(timeout=min(max(ends_at - time.monotonic(), 0), self.STALL_SECONDS)):
            with self._mutex:
                if turn not in self._waiting:  # it was handed over while the time ran out
                    return True
                too_many = self._stalls() and self._waiting.index(turn) + 1 >= self.most
                if too_many or time.monotonic() >= ends_at:
                    self._waiting.remove(turn)
                    return False
        return True

    def _stalls(self) -> bool:
        return time.monotonic() - self._progress_at > self.STALL_SECONDS

    def progress(self) -> None:
        """Report that the holder has what it holds the lock for."""
        self._progress_at = time.monotonic()

    def release(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


write_turn = FairLock()


@contextmanager
def write_transaction() -> Iterator[None]:
    """Wait for a turn to write, then BEGIN IMMEDIATE … COMMIT around the body.

    Raises `Unavailable` when the turn does not come within `LOCK_SECONDS`, and when the database
    file is not where it was; SQLite's own errors pass.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    if not write_turn.acquire(LOCK_SECONDS):
        raise Unavailable("the database is busy")
    try:
        check_in_place()
        left = max(deadline - time.monotonic(), 0.1)
        db.execute_sql(f"PRAGMA busy_timeout = {left * 1000:.0f}")
        with db.atomic("IMMEDIATE"):
            write_turn.progress()
            yield
    finally:
        write_turn.release()


# The file -------------------------------------------------------------------------------------


def prepare() -> list[str]:
    """Make the database file where there is none, check it, and bring it to this version.

    Returns the names of the migrations that were applied; before an older database is touched it
    is copied. Raises `BadDatabase` with what to do.
    """
    path = Path(db.database)
    _places.pop(str(path), None)  # it may be another file since, which was restored
    with _explained(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            if (log := Path(f"{path}-wal")).exists():
                raise BadDatabase(
                    f"{path} is missing, but its log {log} is there: put the database back beside it, "
                    "or move the log away to begin with an empty database"
                )
            _create_private(path)
        db.connect(reuse_if_open=True)
        health = db.execute_sql("PRAGMA quick_check(1)").fetchone()[0]
        if health != "ok":
            raise BadDatabase(f"{path} is damaged ({health}); restore a backup")
        applied = _migrate(path)
        optimize()
        _places[str(path)] = _place(path)
        return applied


_places: dict[str, tuple[int, int] | None] = {}  # which file each prepared database is: device and inode


def _place(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_in_place() -> None:
    """Raises `Unavailable` where the path does not lead to the database that was prepared any more.

    SQLite would go on with a file that was moved or deleted, and all that is written be lost.
    """
    prepared = _places.get(str(db.database))
    if prepared and _place(Path(db.database)) != prepared:
        raise Unavailable(
            "the database file was moved, replaced or deleted; put it back and restart the server"
        )


def integrity_problems() -> list[str]:
    """What is wrong with the database's pages and references, in words."""
    integrity = [row[0] for row in db.execute_sql("PRAGMA integrity_check(10)")]
    problems = [f"the database is damaged: {said}" for said in integrity if said != "ok"]
    orphans = db.execute_sql("PRAGMA foreign_key_check").fetchall()
    return problems + [
        f"a row of {table} refers to a {parent} that is gone" for table, _, parent, _ in orphans
    ]


def optimize() -> None:
    """Let SQLite bring the figures up to date from which it chooses its indexes; a write like others."""
    with write_transaction():
        db.execute_sql("PRAGMA analysis_limit = 400")
        db.execute_sql("PRAGMA optimize")


def _migrate(path: Path) -> list[str]:
    runner = Runner(db, str(MIGRATIONS))
    pending, applied = _versions(path, runner)
    if pending and applied:
        backup(path.with_name(f"{path.name}.before-{pending[0]}"))
    return runner.up()


def _versions(path: Path, runner: Runner) -> tuple[list[str], list[str]]:
    """The migrations that are still to be applied, and those that are. Raises `BadDatabase`."""
    steps = runner.status()
    pending = [step.name for step in steps if not step.applied]
    applied = [step.name for step in steps if step.applied]
    newer = [step.name for step in steps if step.path is None]
    if newer:
        raise BadDatabase(f"{path} was made by a newer version, which applied {newer[-1]}")
    if not applied and set(runner.database.get_tables()) - {runner.table_name}:
        raise BadDatabase(f"{path} is a database of something else")
    return pending, applied


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say of which file it is that something failed, in one line: `BadDatabase`."""
    try:
        yield
    except OSError as error:
        raise BadDatabase(f"{path}: {error.strerror or error}") from error
    except (DatabaseError, sqlite3.Error) as error:
        raise BadDatabase(f"{path} cannot be used: {error}") from error


def _create_private(path: Path) -> None:
    """An empty file that only its owner can read, as SQLite would not make it."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def lock_file(path: Path) -> IO[str]:
    """An empty file to be locked, which only its owner can open."""
    return os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w")


def hold(*, alone: bool = False) -> IO[str]:
    """Hold the database as one of its servers, or alone, until the returned file is closed.

    Raises `BadDatabase` while it is held otherwise. The kernel frees it when the process ends.
    """
    path = Path(f"{db.database}.server")
    with _explained(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = lock_file(path)
        try:
            fcntl.flock(held, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            held.close()
            by = "a server or a command uses it; stop it first" if alone else "a backup is being restored"
            raise BadDatabase(f"{db.database}: {by}") from error
    return held


@contextmanager
def turn_to_start() -> Iterator[None]:
    """Prepare the database, or note a server's configuration, while no other process does; wait for it."""
    path = Path(f"{db.database}.start")
    with _explained(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = lock_file(path)
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def register_server() -> IO[str]:
    """Count as a server of the database until the returned file is closed, by all processes that share it."""
    path = Path(f"{db.database}.serving")
    with _explained(path):
        serving = lock_file(path)
        fcntl.flock(serving, fcntl.LOCK_SH)
    return serving


def is_only_server(serving: IO[str]) -> bool:
    """Whether no other server uses the database; asked in one's turn to start.

    Commands hold the database for moments too, but not this file.
    """
    try:
        fcntl.flock(serving, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        fcntl.flock(serving, fcntl.LOCK_SH)  # also after a failure, which releases the shared lock
    return True


# Copies ---------------------------------------------------------------------------------------


def backup(target: Path) -> None:
    """Copy the database while it is in use; the copy holds every write that was done before.

    Raises `BadDatabase` where it cannot be written, or the database is not in order.
    """
    path = Path(db.database)
    with _explained(path):
        connection = db.connection()
    with _explained(target):
        _copy(path, connection, target)


def _copy(source: Path, connection: sqlite3.Connection, target: Path) -> None:
    """Make `target` at once, a single file that only its owner can read, of what is read from `source`."""
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        _create_private(partial)
        with closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            health = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if health != "ok":
            raise BadDatabase(f"{source} is damaged: {health.splitlines()[-1]}")
        partial.replace(target)
    finally:
        for suffix in ("", "-journal"):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


def restore(source: Path) -> Path | None:
    """Put a copy of `source` in the database's place, and the database aside; returns its new path.

    Raises `BadDatabase` for a file that is damaged, not ours, or made by a newer version, and while
    the database is in use; nothing has changed then.
    """
    path = Path(db.database)
    new = path.with_name(f".{path.name}.restored-{secrets.token_hex(4)}")
    with closing(hold(alone=True)), _explained(source):
        try:
            with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                _copy(source, connection, new)
            with SqliteDatabase(str(new)) as copy:
                _, applied = _versions(source, Runner(copy, str(MIGRATIONS)))
            if not applied:
                raise BadDatabase(f"{source} is empty")
            aside = _set_aside(path)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    return aside


def _set_aside(path: Path) -> Path | None:
    """Give the database another name too, with all that was written, or as it is where it is damaged.

    Its logs, which SQLite would apply to what comes in its place, have the other name alone from here on.
    Returns the name, or None where there is no database.
    """
    aside = path.with_name(f"{path.name}.before-restore-{now().replace(':', '')}")
    there = path.exists()
    if there:
        try:
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA journal_mode = DELETE")  # takes in the log, and takes nobody else
        except sqlite3.Error as error:
            if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise BadDatabase(f"{path} is in use; stop what uses it") from error
        os.link(path, aside)
    for suffix in ("-wal", "-shm", "-journal"):
        if (part := Path(f"{path}{suffix}")).exists():
            part.replace(f"{aside}{suffix}")
    return aside if there else None
