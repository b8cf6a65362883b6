"""What only SQLite and peewee know: stored values, statements, the turn to write, the file, its copies.

This module knows no table. Rows are stored in the form in which the API shows them, ids and times as
text, so that reading needs no conversion.
"""

import fcntl
import hashlib
import logging
import math
import os
import secrets
import sqlite3
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

import orjson
from peewee import (
    SQL,
    AutoField,
    Case,
    Column,
    DatabaseError,
    Entity,
    Expression,
    Function,
    Model,
    Query,
    Select,
    SqliteDatabase,
    TextField,
    fn,
)
from playhouse.migrations import Runner

from errors import Unavailable
from limits import bound
from times import now

# How many SQLite instructions run between two checks of a read's time limit, about 0.5 s. Each check takes
# the GIL, so they are rare.
PROGRESS_STEPS = 5_000_000
SEARCH_STEPS = 2_000  # of a search: about four for each task, whose text may be long
SMALL_TABLE = 3000  # rows; without statistics SQLite believes that a table is large
LOCK_SECONDS = bound("LOCK_SECONDS", 10)  # the longest that a write waits for its turn, also in SQLite
# Applied once each, in the order of their numbers; a migration that was released is never changed. A new
# column is appended (ALTER TABLE … ADD COLUMN), and its model declares it where it belongs.
MIGRATIONS = Path(__file__).with_name("migrations")

Row = dict[str, Any]
log = logging.getLogger("tasks")

PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": "full",
    "foreign_keys": 1,
    "wal_autocheckpoint": 4000,
    "journal_size_limit": 64 * 1024 * 1024,
}
LOG_BYTES = 256 * 1024 * 1024  # of the log, after which a checkpoint waits for readers


class ThreadState(threading.local):
    """What the database keeps for each thread."""

    writer: sqlite3.Connection | None = None  # during a write transaction
    ends_at = math.inf  # the time, as `time.monotonic`, at which a read is interrupted


class Database(SqliteDatabase):
    """SQLite, with one connection through which all threads write, and one for each thread that reads.

    A commit empties the page caches of all other connections. With one connection for writing, a write
    finds the pages that the last one used.
    """

    def __init__(self) -> None:
        self._thread = ThreadState()
        # In memory: each page that a savepoint may have to restore would else go to a temporary file.
        self._writer = SqliteDatabase(None, pragmas=PRAGMAS | {"temp_store": "memory"}, thread_safe=False)
        self._long_log = 0  # the size of the log at the last checkpoint that readers blocked
        self._changes = 0  # that the connection for writing had made when the transaction began
        self.refused_since: str | None = None  # when the first write failed after the last commit
        super().__init__(None, pragmas=PRAGMAS, lock_type="immediate")

    def init(self, database: str | None, *arguments: Any, **options: Any) -> None:
        super().init(database, *arguments, check_same_thread=False, **options)
        self._writer.init(database, *arguments, check_same_thread=False, **options)
        self._wait = 0

    def _connect(self) -> sqlite3.Connection:
        check_in_place()  # another file may be where the database was
        return super()._connect()  # type: ignore[misc]

    def connection(self) -> sqlite3.Connection:
        """The connection for what peewee itself executes: in a write transaction the writer's."""
        return self._thread.writer or super().connection()  # type: ignore[misc]

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Execute a statement; unlike peewee's method, without hooks and with sqlite3's errors."""
        return self.connection().execute(sql, params or ())

    def read(self, sql: str, parameters: Row) -> list[tuple]:
        """Every row of a query's result."""
        if (connection := self._thread.writer) is None:
            # `connection` takes as long as a short statement.
            connection = self._state.conn or self.connection()  # type: ignore[attr-defined]
            thread, steps = self._thread, SEARCH_STEPS if "q" in parameters else PROGRESS_STEPS
            connection.set_progress_handler(lambda: time.monotonic() > thread.ends_at, steps)
        return connection.execute(sql, parameters).fetchall()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Interrupt what this thread reads in the body, outside of transactions, after so many seconds.

        The query that is being executed then raises SQLite's error `SQLITE_INTERRUPT`.
        """
        self._thread.ends_at = time.monotonic() + seconds
        try:
            yield
        finally:
            self._thread.ends_at = math.inf

    @contextmanager
    def writing(self, *, first: bool = False) -> Iterator[None]:
        """Wait for a turn to write, and run the body in a transaction that writers may share (group commit).

        The first writer of a group begins the transaction. While others wait and the group is not full, each
        writer passes its turn to the next; the last one commits. Those that join run in a savepoint, so a
        body that fails is rolled back alone. No writer returns before the commit is on disk, not even one
        whose body failed: the failure may be due to rows of the group. If the commit fails, or SQLite ends
        the transaction, every writer of the group fails and nothing is stored.

        A writer that may change very many rows asks to be `first` in a group: SQLite keeps in memory each
        page that a savepoint may have to restore, and never frees it.

        Raises `Unavailable` if the turn does not come within `LOCK_SECONDS`, if the group fails because of
        another writer, or if the database file was moved. SQLite's own errors are not caught.
        """
        ends_at = time.monotonic() + LOCK_SECONDS
        if not write_turn.acquire(LOCK_SECONDS, first=first):
            raise Unavailable("the database is busy")
        with ExitStack() as turn:
            turn.callback(write_turn.release)
            try:
                group = write_turn.group
                if not group.size:  # or SQLite may make a new file
                    check_in_place()
                connection = self._writer.connection()
                turn.callback(connection.rollback)  # of what is not committed by then
                self._begin(connection, ends_at)
                write_turn.progress()
                self._thread.writer = connection
                try:
                    yield
                except BaseException:
                    # A full disk ends the transaction; who begins a group is undone as the turn ends.
                    if group.size and connection.in_transaction:
                        connection.execute("ROLLBACK TO joined")
                        self._commit(connection, group, turn)
                    raise
                self._commit(connection, group, turn)
            except DATABASE_ERRORS as error:
                if is_outage(error):
                    self.refused_since = self.refused_since or now()
                raise
            finally:
                self._thread.writer = None

    def _begin(self, connection: sqlite3.Connection, ends_at: float) -> None:
        """Join the open transaction, or begin one, waiting until `ends_at`, but at least for one second."""
        if connection.in_transaction:
            connection.execute("SAVEPOINT joined")
        else:
            self.shorten_log(FairLock.STALL_SECONDS / 2)  # longer would count as a stall
            if (seconds := max(math.ceil(ends_at - time.monotonic()), 1)) != self._wait:
                connection.execute(f"PRAGMA busy_timeout = {seconds * 1000}")
                self._wait = seconds
            connection.execute("BEGIN IMMEDIATE")
            self._changes = connection.total_changes

    def _commit(self, connection: sqlite3.Connection, group: "Group", turn: ExitStack) -> None:
        """Hand the turn on and wait for the commit of the group, or make it. Raises `Unavailable`."""
        if connection.in_transaction and write_turn.hand_on():
            turn.pop_all()  # the turn is another's
            group.wait()
        else:
            check_in_place()  # again, for who has joined
            connection.execute("COMMIT")
            group.failed = False
            if connection.total_changes > self._changes:  # a commit of nothing succeeds on a full disk
                self.refused_since = None
        if group.failed:
            raise Unavailable("the database could not store this with what others wrote")

    def shorten_log(self, seconds: float) -> None:
        """Empty the log, in the turn to write, if the last write failed or the log has over `LOG_BYTES`.

        SQLite does so itself when the log has 4000 pages, for which the disk may have no space, and not while
        reads overlap. It waits for reads at most so many seconds, and where that was too short, not again
        before the log has grown by `LOG_BYTES`.
        """
        with suppress(OSError, sqlite3.Error):  # there is no log yet, or the disk is still full
            size = os.stat(f"{self.database}-wal").st_size
            if self.refused_since or size > self._long_log + LOG_BYTES:
                connection, checkpoint = self._writer.connection(), "PRAGMA wal_checkpoint(TRUNCATE)"
                # Several short waits: the mark of the read that one waits for may become that of new reads.
                connection.execute("PRAGMA busy_timeout = 250")
                ends_at = time.monotonic() + (0 if self.refused_since else seconds)
                self._wait = 0  # `writing` sets its own
                while (used := connection.execute(checkpoint).fetchone()[0]) and time.monotonic() < ends_at:
                    continue
                self._long_log = size * used

    def disconnect(self) -> None:
        """Close all connections, which a fork must not share; to be called while there is one thread."""
        self._writer.close()
        self._wait = 0  # the next connection has SQLite's own
        self.close()


db = Database()


def remedy(error: Exception) -> str:
    """What helps against an error that a full disk has caused, or may have."""
    name = getattr(error.__context__ or error, "sqlite_errorname", "")  # peewee raises its own
    return "; see that its disk has space" if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")) else ""


DATABASE_ERRORS = (sqlite3.Error, DatabaseError)  # peewee raises its own where it opens a connection


# Errors ---------------------------------------------------------------------------------------


class BadDatabase(Exception):
    """The database file cannot be served: damaged, made by a newer version, or not ours."""


# SQLite's codes for a database that is locked, full, read-only, unreadable or damaged; any other error
# is a bug.
OUTAGES = tuple(
    f"SQLITE_{code}"
    for code in ("BUSY", "LOCKED", "FULL", "READONLY", "IOERR", "CANTOPEN", "CORRUPT", "NOTADB", "PROTOCOL")
)


def is_outage(error: BaseException | None) -> bool:
    """Whether the error, or one that caused it, is an outage; peewee's rollback may hide the cause."""
    while error is not None:
        if (getattr(error, "sqlite_errorname", None) or "").startswith(OUTAGES):
            return True
        error = error.__cause__ or error.__context__
    return False


# Texts and digests ----------------------------------------------------------------------------


def caseless(text: str) -> str:
    """The text for comparing names: without differences of case and of Unicode composition."""
    return unicodedata.normalize("NFC", text.casefold())


def fold(text: str) -> str:
    """The text for searching and sorting: also without accents, ligatures and letters of other widths.

    The column `task.search` holds such texts: who changes this adds a migration like 0013.
    """
    if text.isascii():
        return text.lower()
    # Marks of a class below 10 are no accents but parts of letters: が is another one than か.
    letters = (letter for letter in unicodedata.normalize("NFKD", text) if unicodedata.combining(letter) < 10)
    return caseless("".join(letters))


def digest(secret: str) -> str:
    """SHA-256, enough for what holds 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


# JSON -----------------------------------------------------------------------------------------


class EncodedJSON(str):
    """Free-form JSON, as the text that JavaScript would write; `to_json` copies it."""

    __slots__ = ()


def to_json(value: Any) -> bytes:
    """The value as compact JSON, whose strings and numbers are those of `JSON.stringify`."""
    return orjson.dumps(value, _splice, orjson.OPT_PASSTHROUGH_SUBCLASS)


def _splice(text: Any) -> orjson.Fragment:
    if not isinstance(text, EncodedJSON):
        raise TypeError(f"{type(text)} is not JSON")
    return orjson.Fragment(text.encode())


# Statements -----------------------------------------------------------------------------------


# A list or an object is stored as JSON.
sqlite3.register_adapter(list, lambda value: to_json(value).decode())
sqlite3.register_adapter(dict, lambda value: to_json(value).decode())


class JSONField(TextField):
    """A column of JSON whose values a row has as Python's."""


class EncodedJSONField(TextField):
    """A column of JSON whose values a row has as `EncodedJSON`."""


class ChoiceField(TextField):
    """A column of one of these texts."""

    def __init__(self, choices: tuple[str, ...], **options: Any):
        super().__init__(**options)
        self.choices = choices


def placeholder(name: str) -> SQL:
    """A named parameter of a statement."""
    return SQL(f":{name}")


def columns(model: Any, *hidden: str) -> list:
    """The model's columns in their order, without the hidden ones."""
    return [field for field in model._meta.sorted_fields if field.column_name not in hidden]


def rowid(model: Any) -> Column:
    """The number that SQLite itself gives each row."""
    return Column(model, "rowid")


def joined(table: Any, key: str, *names: str) -> list:
    """Columns of a joined table, its id among them, as `key.name`; in a SELECT they come last."""
    return [getattr(table, name).alias(f"{key}.{name}") for name in names]


def _name(column: Any) -> str:
    """The column's name; none of an expression without an alias, for which peewee makes up any attribute."""
    name = getattr(column, "column_name", None) or getattr(column, "_alias", "")
    return name if isinstance(name, str) else ""


def _is_json(column: Any) -> bool:
    value = column.unwrap()
    return isinstance(value, JSONField) or (isinstance(value, Function) and value.name == "JSON")


def _plain(column: Any) -> Any:
    """The column without SQLite's function JSON around it."""
    value = column.unwrap()
    is_made = isinstance(value, Function) and value.name == "JSON"
    return value.arguments[0].alias(_name(column)) if is_made else column


def json_object(members: Row) -> Function:
    """The object with these members, as SQLite makes it."""
    return fn.JSON_OBJECT(*chain.from_iterable(members.items()))


class Statement:
    """A peewee query that is converted to SQL once and then executed with named parameters.

    Building a query costs a hundred times more than executing it. A row is a dict, in which the results of
    SQLite's function JSON are Python's values as those of a `JSONField`, and columns such as `owner.id` are
    an object, here `owner`, or None where its id is null.
    """

    def __init__(self, query: Any, total: Query | None = None):
        """`total` is a query of one number, which `json` returns with the rows."""
        self.query, self.total = query, total
        self.sql, _ = db.get_sql_context(value_literals=True).sql(query).query()
        selected = query._returning or ()
        names = [_name(column) for column in selected]
        self._names = [name for name in names if "." not in name]
        self._json = [_name(column) for column in selected if _is_json(column)]
        self._encoded = [_name(one) for one in selected if isinstance(one.unwrap(), EncodedJSONField)]
        self._joined: dict[str, list[str]] = {}
        for key, _, name in (name.partition(".") for name in names[len(self._names) :]):
            self._joined.setdefault(key, []).append(name)

    def _row(self, values: tuple) -> Row:
        rest = iter(values)
        row = dict(zip(self._names, rest, strict=False))
        for name in self._json:
            if row[name] is not None:
                row[name] = orjson.loads(row[name])
        for name in self._encoded:
            if row[name] is not None:
                row[name] = EncodedJSON(row[name])
        for key, names in self._joined.items():
            inner = dict(zip(names, rest, strict=False))
            row[key] = inner if inner["id"] is not None else None
        return row

    def all(self, **parameters: Any) -> list[Row]:
        """Every row of the result."""
        return [self._row(values) for values in db.read(self.sql, parameters)]

    def one(self, **parameters: Any) -> Row | None:
        """The first row of the result, or None."""
        rows = db.read(self.sql, parameters)
        return self._row(rows[0]) if rows else None

    def json(self, **parameters: Any) -> tuple[orjson.Fragment, int, int | None]:
        """Every row of the result, as a JSON array that SQLite makes for `to_json`.

        Returns also the number of rows, and the total. It is faster than `all`: Python gives up and takes
        back the interpreter's lock once for the result and not once for each row.
        """
        ((objects, count, total),) = db.read(self._array.sql, parameters)
        return orjson.Fragment(b"[%b]" % (objects or b"")), count, total

    @cached_property
    def _array(self) -> "Statement":
        """SELECT of the rows as objects, separated by commas; of their number; and of the total."""
        members: Row = {name: Entity(name) for name in self._names}
        members |= {name: fn.JSON(Entity(name)) for name in (*self._json, *self._encoded)}
        for key, names in self._joined.items():
            inner = {name: Entity(f"{key}.{name}") for name in names}
            members[key] = Case(None, [(inner["id"].is_null(False), json_object(inner))])
        objects = fn.GROUP_CONCAT(json_object(members), ",").cast("BLOB")  # bytes, not decoded
        total = SQL("NULL") if self.total is None else self.total
        # What is JSON by SQLite's function is made so once, and above.
        rows = self.query.select(*map(_plain, self.query._returning))
        return Statement(Select([rows.alias("rows")], [objects, fn.COUNT(SQL("*")), total]))

    def value(self, **parameters: Any) -> Any:
        """The first column of the first row, or None."""
        rows = db.read(self.sql, parameters)
        return rows[0][0] if rows else None

    def run(self, **parameters: Any) -> int:
        """Execute an UPDATE or DELETE, and return the number of rows that it changed."""
        return db.execute_sql(self.sql, parameters).rowcount


class Insertion(Statement):
    """INSERT of a row; the parameters are the columns' names, and a column without one is null."""

    def __init__(self, model: Any):
        fields = model._meta.sorted_fields
        super().__init__(model.insert({field: placeholder(field.column_name) for field in fields}))
        self.nulls: Row = dict.fromkeys(field.column_name for field in fields)

    def run(self, **row: Any) -> int:
        """Insert the row, and return its number (`rowid`), the value of an `AutoField` that is null."""
        return db.execute_sql(self.sql, self.nulls | row).lastrowid

    def run_many(self, rows: Iterable[Row]) -> None:
        db.connection().executemany(self.sql, (self.nulls | row for row in rows))


class statement:
    """A decorator: the query that a method builds of its table becomes an attribute, its `Statement`.

    It is built on first use, since a query may refer to tables that are declared later.
    """

    def __init__(self, build: Callable[[Any], Any]):
        self.build = build

    def __get__(self, instance: Any, owner: Any) -> Any:
        built = self.build(owner)
        made = built if isinstance(built, Statement) else Statement(built)
        setattr(owner, self.build.__name__, made)
        return made


def deletion_of_some(model: Any, condition: Expression, *order: Any) -> Query:
    """DELETE of at most `:most` rows for which the condition holds, the first ones in this order."""
    rows = model.select(rowid(model)).where(condition).order_by(*order).limit(placeholder("most"))
    return model.delete().where(rowid(model).in_(rows))


# Tables ---------------------------------------------------------------------------------------


class Base(Model):
    """A table of this database."""

    class Meta:
        database = db
        legacy_table_names = False

    @statement
    def insertion(cls: Any):
        return Insertion(cls)

    @classmethod
    def update_where(cls, expected: Row, **values: Any) -> int:
        """Write these columns of the rows that have the expected values; returns how many rows these were.

        One UPDATE compares and writes, so that it takes the place of a lock (compare-and-swap).
        """
        read = {f"read_{name}": value for name, value in expected.items()}
        return cls._update_of(tuple(expected), tuple(values)).run(**read, **values)

    @classmethod
    @lru_cache(maxsize=256)
    def _update_of(cls, expected: tuple[str, ...], names: tuple[str, ...]) -> Statement:
        column = cls._meta.columns
        assignments = {column[name]: placeholder(name) for name in names}
        conditions = [column[name] == placeholder(f"read_{name}") for name in expected]
        return Statement(cls.update(assignments).where(*conditions))


class Identified(Base):
    """A table whose rows have an id."""

    id = TextField(primary_key=True)

    @classmethod
    def select_stored(cls) -> Query:
        return cls.select()

    @statement
    def stored_row(cls: Any):
        return cls.select_stored().where(cls.id == placeholder("id"))

    @statement
    def deletion(cls: Any):
        return cls.delete().where(cls.id == placeholder("id"))

    @classmethod
    def set_columns(cls, id: str, **values: Any) -> None:
        """Write these columns of the row with this id, and no other."""
        cls.update_where({"id": id}, **values)


class Sequenced(Identified):
    """A table whose rows also have a number, which rises with each insertion."""

    seq = AutoField()
    id = TextField(unique=True)


# Writing --------------------------------------------------------------------------------------


class Group(threading.Event):
    """Writers that share a commit; the event is set when that has ended."""

    size = 0  # how many of them wait for it
    failed = True  # until it has succeeded


class Turn(NamedTuple):
    """The place of a thread that holds a `FairLock` or waits for it."""

    comes: threading.Lock  # is released when the turn comes
    is_first: bool  # whether the thread joins no group, but begins one


class FairLock:
    """A lock that goes to the thread that has waited longest, so that no writer starves.

    If nobody got the database for `STALL_SECONDS`, because another process has locked it, only `most` threads
    may hold this lock or wait for it or for a commit; others are refused at once, and remain for reads.
    """

    STALL_SECONDS = 2.0

    def __init__(self, most: int = 8) -> None:
        self.most = most
        self.group = Group()  # of the holder
        self._mutex = threading.Lock()
        self._progress_at = 0.0
        self._turns: deque[Turn] = deque()  # of the holder, then of each thread that waits

    def acquire(self, timeout: float, *, first: bool = False) -> bool:
        """Wait for the lock, at most so many seconds; returns whether it is held now."""
        ends_at = time.monotonic() + timeout
        turn = Turn(threading.Lock(), first)
        turn.comes.acquire()
        with self._mutex:
            self._turns.append(turn)
            if len(self._turns) == 1:
                self.progress()
        while self._turns[0] is not turn:
            with self._mutex:
                at = time.monotonic()
                stalls = at - self._progress_at > self.STALL_SECONDS
                is_over = at >= ends_at or (stalls and self.group.size + self._turns.index(turn) >= self.most)
                if is_over and self._turns[0] is not turn:
                    self._turns.remove(turn)
                    return False
            turn.comes.acquire(timeout=min(max(ends_at - time.monotonic(), 0), self.STALL_SECONDS))
        return True

    def progress(self) -> None:
        """Report that the holder has SQLite's lock too."""
        self._progress_at = time.monotonic()

    def hand_on(self) -> bool:
        """Give the lock to the next thread; not if it joins no group, or if this one has `most` already."""
        with self._mutex:
            if len(self._turns) == 1 or self._turns[1].is_first or self.group.size + 1 >= self.most:
                return False
            self.group.size += 1
            self._turns.popleft()
            self._turns[0].comes.release()
            return True

    def release(self) -> None:
        """End the holder's group, and give the lock to the next thread."""
        with self._mutex:
            group, self.group = self.group, Group()
            self._turns.popleft()
            if self._turns:
                self._turns[0].comes.release()
        group.set()


write_turn = FairLock()


# The file -------------------------------------------------------------------------------------


def prepare(locks: ExitStack | None = None) -> list[str]:
    """Create the database file if there is none, and apply the migrations.

    A server passes `locks`, to which the lock against a second server is added first. An older database is
    copied before it is upgraded. Returns the names of the migrations that were applied. Raises `BadDatabase`,
    whose message says what to do.
    """
    path = Path(db.database)
    _prepared_files.pop(db.database, None)  # `restore` may have replaced the file
    with _as_bad_database(path), ExitStack() as turn:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        turn.callback(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)  # wait for another process that prepares a database here
        if locks is not None:
            locks.enter_context(lock_server())
        _check_log(path)
        for file in path.parent.glob(f".{path.name}.before-[0-9][0-9][0-9][0-9]_*"):
            file.unlink()  # an incomplete copy, which a kill has left
        if not path.exists():
            path.touch(0o600)  # SQLite would let others read it
        db.connect(reuse_if_open=True)
        runner = Runner(db, str(MIGRATIONS))
        pending, applied = _migration_names(path, runner)
        if pending and applied:
            if locks is None:
                lock_server().close()  # a server of an older version would write as if nothing had changed
            backup(copy := path.with_name(f"{path.name}.before-{pending[0]}"))
            log.info("The database is copied to %s", copy)  # also if its upgrade is interrupted
        runner.up()
        with suppress(Unavailable, sqlite3.OperationalError):  # a full or busy database can be read without
            optimize()  # at every start, as one that has applied migrations may have been interrupted
        _prepared_files[db.database] = os.stat(path)
    return pending


def _check_log(path: Path) -> None:
    """Raise `BadDatabase` for a log whose database is missing or empty: SQLite would delete the log."""
    log, is_there = Path(f"{path}-wal"), path.exists()
    if log.exists() and not (is_there and (path.stat().st_size or not log.stat().st_size)):
        raise BadDatabase(
            f"{path} is {'empty' if is_there else 'missing'}, but its log {log} is there: put the database "
            "back beside it, or move the log away to begin with an empty database"
        )


_prepared_files: dict[str, os.stat_result] = {}  # of the databases that were prepared, by path


def check_in_place() -> None:
    """Raise `Unavailable` if the path no longer leads to the database that was prepared.

    SQLite would continue with a moved or deleted file, and its writes would be lost.
    """
    prepared = _prepared_files.get(db.database)
    with suppress(OSError):
        if prepared is None or os.path.samestat(prepared, os.stat(db.database)):
            return
    raise Unavailable(
        "the database file was moved, replaced or deleted; put it back and restart the server",
        retry_after=None,
    )


def integrity_problems() -> list[str]:
    """What is wrong with pages, references and indexes, and what helps. Raises `BadDatabase` too."""
    if _migration_names(Path(db.database), Runner(db, str(MIGRATIONS)))[0]:
        raise BadDatabase(f"{db.database} is of an older version; start the server, which upgrades it")
    try:
        integrity = db.execute_sql("PRAGMA integrity_check(10)").fetchall()
    except DATABASE_ERRORS:  # a page that cannot be read has ended the check: ask for the first problem only
        integrity = db.execute_sql("PRAGMA quick_check(1)").fetchall()
    problems = [message.splitlines()[-1] for (message,) in integrity if message != "ok"]
    if problems:  # the references cannot be read either
        return [f"the database is damaged: {problem}; restore a backup" for problem in problems]
    for table, _, parent, _ in db.execute_sql("PRAGMA foreign_key_check"):
        remedy = "restore a backup, or delete it (PRAGMA foreign_key_check in sqlite3 lists it)"
        problems.append(f"a row of {table} refers to a {parent} that is gone; {remedy}")
    made = "SELECT type || ' ' || name, CASE type WHEN 'index' THEN sql END FROM sqlite_master WHERE sql > ''"
    with SqliteDatabase(":memory:") as fresh:
        Runner(fresh, str(MIGRATIONS)).up()
        present, expected = dict(db.execute_sql(made)), dict(fresh.execute_sql(made))
    for name, sql in sorted(expected.items() - present.items(), key=str):
        drop = f"DROP {name}; " if name in present else ""
        remedy = f"execute in sqlite3: {drop}{sql}" if sql else "restore a backup"
        problems.append(f"the {name} is missing or another one; {remedy}")
    return problems


def optimize() -> None:
    """Update SQLite's statistics, from which it chooses indexes; it takes about 20 ms.

    Small tables get none: SQLite would read one whole that has grown since, as each write did its activity.
    """
    with db.writing():
        db.execute_sql("PRAGMA analysis_limit = 400")
        db.execute_sql("ANALYZE")
        small = "SELECT tbl FROM sqlite_stat1 GROUP BY tbl HAVING MAX(CAST(stat AS INTEGER)) < ?"
        db.execute_sql(f"DELETE FROM sqlite_stat1 WHERE tbl IN ({small})", (SMALL_TABLE,))  # noqa: S608
        db.execute_sql("ANALYZE sqlite_schema")  # which reads them again


def _migration_names(path: Path, runner: Runner) -> tuple[list[str], list[str]]:
    """The names of the migrations to apply, and of those that are applied. Raises `BadDatabase`."""
    steps = runner.status()
    pending = [step.name for step in steps if not step.applied]
    applied = [step.name for step in steps if step.applied]
    newer = [step.name for step in steps if step.path is None]
    if newer:
        raise BadDatabase(f"{path} was made by a newer version, which applied {newer[-1]}; install that one")
    if not applied and set(runner.database.get_tables()) - {runner.table_name}:
        raise BadDatabase(f"{path} is a database of something else")
    return pending, applied


@contextmanager
def _as_bad_database(path: Path) -> Iterator[None]:
    """Turn errors of the file at this path into `BadDatabase`, in one line that names the path."""
    try:
        yield
    except OSError as error:
        hint = "; see who owns it and its folder" if isinstance(error, PermissionError) else ""
        raise BadDatabase(f"{path}: {error.strerror or error}{hint}") from error
    except DATABASE_ERRORS as error:
        raise BadDatabase(f"{path} cannot be used: {error}{remedy(error)}") from error


def open_lock_file(path: Path) -> IO[str]:
    """Open an empty file for locking, which only its owner can open."""
    return os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w")


def is_missing() -> bool:
    """Whether there is no database, or only an empty file in its place."""
    path = Path(db.database)
    return not path.exists() or not path.stat().st_size


def lock_database(*, alone: bool = False, may_be_new: bool = False) -> IO[str]:
    """Lock the database, shared or `alone`, until the returned file is closed.

    Raises `BadDatabase` if another process prevents it, or if there is no database, unless it `may_be_new`.
    """
    path = Path(db.database)
    with _as_bad_database(path):
        if not may_be_new:
            _check_log(path)
            if is_missing():
                raise BadDatabase(
                    f"there is no database at {path}; `init` makes one, `restore` puts a copy there"
                )
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if alone:
        return _lock("server", fcntl.LOCK_EX, "a server or a command uses it; stop it first")
    return _lock("server", fcntl.LOCK_SH, "a backup is being restored")


def lock_server() -> IO[str]:
    """Lock the database for the one server that may use it, beside commands. Raises `BadDatabase`."""
    return _lock("serving", fcntl.LOCK_EX, "another server uses this database; stop it first")


def _lock(suffix: str, how: int, refusal: str) -> IO[str]:
    """Lock a file beside the database until this process and its forks have closed it, or have ended."""
    with _as_bad_database(Path(db.database)):
        file = open_lock_file(Path(f"{db.database}.{suffix}"))
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise BadDatabase(f"{db.database}: {refusal}") from error
    return file


# Copies ---------------------------------------------------------------------------------------


def backups() -> Path:
    """The folder beside the database in which copies are looked for; it may be a link."""
    return Path(db.database).with_name("backups")


def backup_age() -> float | None:
    """Seconds since the newest copy, a `*.db`, was written into `backups`; None if none can be seen."""
    written = []
    with suppress(OSError):  # the folder cannot be read
        for file in backups().glob("*.db"):
            with suppress(OSError):  # it was deleted meanwhile
                written.append(file.stat().st_mtime)
    return max(time.time() - max(written), 0.0) if written else None


def database_age() -> float:
    """Seconds since the database was made; the migrations' runner stores when it applied the first one."""
    ((made_at,),) = db.read("SELECT MIN(applied) FROM schema_migration", {})
    return max(time.time() - datetime.fromisoformat(made_at).timestamp(), 0.0)


def backup(target: Path) -> None:
    """Copy the database while it is in use; the copy contains every write that was committed before.

    Raises `BadDatabase` if the copy cannot be written or the database is damaged.
    """
    path = Path(db.database)
    with _as_bad_database(path):
        connection = db.connection()
    with _as_bad_database(target):
        _copy(path, connection, target)


@contextmanager
def copied() -> Iterator[None]:
    """Run the body on a copy of the database, which is deleted at the end; nobody has to wait for it."""
    path = db.database
    with TemporaryDirectory(prefix="tasks-") as folder:
        backup(Path(folder) / "tasks.db")
        db.disconnect()
        db.init(f"{folder}/tasks.db", timeout=LOCK_SECONDS)
        try:
            yield
        finally:
            db.disconnect()
            db.init(path, timeout=LOCK_SECONDS)


def _copy(source: Path, connection: sqlite3.Connection, target: Path) -> None:
    """Copy a database to `target`, which appears when it is complete and which only its owner can read."""
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        partial.touch(0o600, exist_ok=False)
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
    """Replace the database with a copy of `source`; return the new path of the replaced database.

    Raises `BadDatabase`, and changes nothing, for a file that is damaged, empty, made by a newer version or
    another program's, and while the database is in use.
    """
    path = Path(db.database)
    new = path.with_name(f".{path.name}.restored-{secrets.token_hex(4)}")
    with closing(lock_database(alone=True, may_be_new=True)), _as_bad_database(source):
        if not source.is_file():  # SQLite would wait for the writer of a pipe
            raise BadDatabase(f"{source} is not a regular file")
        try:
            with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                _copy(source, connection, new)
            with SqliteDatabase(str(new)) as copy:
                _, applied = _migration_names(source, Runner(copy, str(MIGRATIONS)))
            if not applied:
                raise BadDatabase(f"{source} is empty")
            aside = _set_aside(path)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    return aside


def _set_aside(path: Path) -> Path | None:
    """Link the database under a second name, with its log merged, or as it is if it is damaged.

    Its log files are renamed, since SQLite would apply them to the next database at this path. Returns the
    second name, or None without a database.
    """
    aside = path.with_name(f"{path.name}.before-restore-{now().replace(':', '')}")
    exists = path.exists()
    if exists:
        try:
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA journal_mode = DELETE")  # merges the log; fails while it is in use
        except sqlite3.Error as error:
            if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise BadDatabase(f"{path} is in use; stop what uses it") from error
        os.link(path, aside)
    for suffix in ("-wal", "-shm", "-journal"):
        if (part := Path(f"{path}{suffix}")).exists():
            part.replace(f"{aside}{suffix}")
    return aside if exists else None
