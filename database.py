"""SQLite and peewee: stored values, statements, base tables, the turn to write.

This module defines no table. Rows are stored in the form in which the API shows them, ids and times as text,
so reading needs no conversion.
"""

import hashlib
import logging
import math
import os
import sqlite3
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, ClassVar, NamedTuple

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

from errors import Unavailable
from limits import bound
from times import now

# How many SQLite instructions run between two checks of a read's time limit, about 0.5 s. Each check takes
# the GIL, so they are rare.
PROGRESS_STEPS = 5_000_000
SEARCH_STEPS = 2_000  # for a search, which needs about four instructions for each task, even for a long text
PAGE_BYTES = 4 * 1024 * 1024  # the most that the rows of a page have together; a single row may have more
LOCK_SECONDS = bound("LOCK_SECONDS", 10)  # the longest that a write waits for its turn, also in SQLite

Row = dict[str, Any]
log = logging.getLogger("tasks")

PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": "full",
    "foreign_keys": 1,
    "wal_autocheckpoint": 4000,
    "journal_size_limit": 64 * 1024 * 1024,
}
# Each thread reads through a connection, whose cache a large sort fills. SQLite's 2 MB would take 40 MB more.
READ_PRAGMAS = PRAGMAS | {"cache_size": -1000}  # KiB
WAL_BYTES = 256 * 1024 * 1024  # size of the write-ahead log from which a checkpoint waits for readers


# The turn to write ----------------------------------------------------------------------------


class Group(threading.Event):
    """Writers that share a commit; the event is set after the commit."""

    size = 0  # the number of writers that wait for the commit
    failed = True  # until the commit has succeeded


class Turn(NamedTuple):
    """A thread that holds a `FairLock` or waits for it."""

    comes: threading.Lock  # is released when the turn comes
    begins_group: bool  # whether the thread must not join the group of another


class FairLock:
    """A lock that goes to the thread that has waited longest, so that no writer starves.

    If another process has locked the database for `STALL_SECONDS`, only `most` threads may hold this lock, or
    wait for it or for a commit. Other threads are refused at once, and remain for reads.
    """

    STALL_SECONDS = 2.0

    def __init__(self, most: int = 8) -> None:
        self.most = most
        self.group = Group()  # of the holder
        self._mutex = threading.Lock()
        self._progress_at = 0.0
        self._turns: deque[Turn] = deque()  # of the holder, then of each thread that waits

    def acquire(self, timeout: float, *, begins_group: bool = False) -> bool:
        """Wait for the lock, at most `timeout` seconds; return whether the thread holds it now."""
        ends_at = time.monotonic() + timeout
        turn = Turn(threading.Lock(), begins_group)
        turn.comes.acquire()
        with self._mutex:
            self._turns.append(turn)
            if len(self._turns) == 1:
                self.progress()
        while self._turns[0] is not turn:
            with self._mutex:
                at = time.monotonic()
                stalls = at - self._progress_at > self.STALL_SECONDS
                before = self.group.size + self._turns.index(turn)  # threads
                is_over = at >= ends_at or (stalls and before >= self.most)
                if is_over and self._turns[0] is not turn:
                    self._turns.remove(turn)
                    return False
            turn.comes.acquire(timeout=min(max(ends_at - time.monotonic(), 0), self.STALL_SECONDS))
        return True

    def progress(self) -> None:
        """Note that the holder has SQLite's lock too."""
        self._progress_at = time.monotonic()

    def pass_turn(self) -> bool:
        """Give the lock to the next thread, if that may join this group; return whether it did."""
        with self._mutex:
            if len(self._turns) == 1 or self._turns[1].begins_group or self.group.size + 1 >= self.most:
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


prepared_files: dict[str, os.stat_result] = {}  # by path, of the databases that were prepared


def check_in_place() -> None:
    """Raise `Unavailable` if the path no longer leads to the database that was prepared.

    SQLite would continue with a moved or deleted file, and its writes would be lost.
    """
    prepared = prepared_files.get(db.database)
    with suppress(OSError):
        if prepared is None or os.path.samestat(prepared, os.stat(db.database)):
            return
    raise Unavailable(
        "the database file was moved, replaced or deleted; put it back and restart the server",
        retry_after=None,
    )


# The database ---------------------------------------------------------------------------------


class ThreadState(threading.local):
    """The state of the database for each thread."""

    writer: sqlite3.Connection | None = None  # during a write transaction
    viewer: str | None = None  # the id of the member for whom this thread reads only `Base.SEEN`
    ends_at = math.inf  # the time, as `time.monotonic`, at which a read is interrupted
    steps = PROGRESS_STEPS  # between two checks of that time


class LimitedDatabase(SqliteDatabase):
    """Connections for viewers: members for whom a temporary view hides each table.

    SQLite looks for a name in `temp` before `main`. So each statement reads only the rows of `Base.SEEN`, and
    no row of a table without it. The views stay: a new one would make SQLite prepare all statements again.
    """

    def __init__(self) -> None:
        super().__init__(None, pragmas=READ_PRAGMAS | {"temp_store": "memory"})

    def _connect(self) -> sqlite3.Connection:
        check_in_place()
        connection = super()._connect()  # type: ignore[misc]
        connection.create_function("viewer", 0, lambda: db._thread.viewer)
        for sql in views(connection):
            connection.execute(sql)
        connection.execute("PRAGMA query_only = 1")
        return connection


class Database(SqliteDatabase):
    """SQLite, with one connection through which all threads write, and one for each thread that reads.

    A commit empties the page caches of all other connections. With one connection for writing, a write
    finds the pages that the last write used. Threads that read for a viewer use a `LimitedDatabase`.
    """

    def __init__(self) -> None:
        self._thread = ThreadState()
        # In memory: otherwise each page that a savepoint may have to restore goes to a temporary file.
        self._writer = SqliteDatabase(None, pragmas=PRAGMAS | {"temp_store": "memory"}, thread_safe=False)
        self._limited = LimitedDatabase()
        self._blocked_wal_bytes = 0  # the size of the log at the last checkpoint that readers blocked
        self._busy_seconds = 0  # the timeout of the connection for writing; 0 before `_begin` sets it
        self._changes = 0  # `total_changes` of the connection for writing when the transaction began
        self.refused_since: str | None = None  # when the first write failed after the last commit
        super().__init__(None, pragmas=READ_PRAGMAS, lock_type="immediate")

    def init(self, database: str | None, *arguments: Any, **options: Any) -> None:
        super().init(database, *arguments, check_same_thread=False, **options)
        for other in (self._writer, self._limited):
            other.init(database, *arguments, check_same_thread=False, **options)
        self._busy_seconds = 0

    def _connect(self) -> sqlite3.Connection:
        check_in_place()  # another file may be where the database was
        return super()._connect()  # type: ignore[misc]

    def connection(self) -> sqlite3.Connection:
        """Return the connection on which this thread executes: the viewer's, the writer's, or its own."""
        if self._thread.viewer:
            return self._limited.connection()
        return self._thread.writer or super().connection()  # type: ignore[misc]

    def version(self) -> int:
        """Return a number that changes with every commit; compare it within one thread."""
        return super().connection().execute("PRAGMA data_version").fetchone()[0]  # type: ignore[misc]

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Execute a statement; unlike peewee's method, without hooks and with sqlite3's errors."""
        return self.connection().execute(sql, params or ())

    def read(self, sql: str, parameters: Row, most: int = 0) -> list[tuple]:
        """Return all rows. Raises `sqlite3.DataError` for a value of over `most` bytes, if set."""
        thread = self._thread
        if (connection := thread.writer) is None or thread.viewer:
            # Calling `connection` takes as long as a short statement.
            connection = (not thread.viewer and self._state.conn) or self.connection()  # type: ignore[attr-defined]
            connection.set_progress_handler(lambda: time.monotonic() > thread.ends_at, thread.steps)
        if not most:
            return connection.execute(sql, parameters).fetchall()
        usual = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, usual)

    @contextmanager
    def limit(self, seconds: float, steps: int = PROGRESS_STEPS) -> Iterator[None]:
        """Interrupt reads of this thread after `seconds`, from the start of the body; writes go on.

        SQLite looks at the clock every `steps` instructions. A query that is interrupted raises its error
        `SQLITE_INTERRUPT`. After the body, an outer limit holds again.
        """
        thread = self._thread
        outer = thread.ends_at, thread.steps
        thread.ends_at, thread.steps = time.monotonic() + seconds, steps
        try:
            yield
        finally:
            thread.ends_at, thread.steps = outer

    def renew_limit(self, seconds: float) -> None:
        """Interrupt reads of this thread after `seconds` from now: the body of `limit` has waited."""
        self._thread.ends_at = time.monotonic() + seconds

    @contextmanager
    def viewed_by(self, viewer: str | None) -> Iterator[None]:
        """Let the body read what a viewer sees, even in a transaction; None sees everything."""
        before, self._thread.viewer = self._thread.viewer, viewer
        try:
            yield
        finally:
            self._thread.viewer = before

    @contextmanager
    def writing(self, *, begins_group: bool = False, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Wait for a turn to write, and run the body in a transaction that writers may share (group commit).

        The first writer of a group begins the transaction. While others wait and the group is not full, each
        writer passes its turn to the next; the last one commits. Those that join run in a savepoint, so a
        body that fails is rolled back alone. No writer returns before the commit is on disk, not even one
        whose body failed: the failure may be due to rows of the group. If the commit fails, or SQLite ends
        the transaction, every writer of the group fails and nothing is stored.

        A writer that may change very many rows passes `begins_group`: SQLite keeps each page that a savepoint
        may have to restore in memory, and never frees it.

        Raises `Unavailable` if the turn does not come within `seconds`, if the group fails because of another
        writer, or if the database file was moved. SQLite's own errors are not caught.
        """
        ends_at = time.monotonic() + seconds
        if not write_turn.acquire(seconds, begins_group=begins_group):
            raise Unavailable("the database is busy")
        with ExitStack() as turn:
            turn.callback(write_turn.release)
            try:
                group = write_turn.group
                if not group.size:  # otherwise SQLite might make a new file
                    check_in_place()
                connection = self._writer.connection()
                turn.callback(connection.rollback)  # of what is not committed by then
                self._begin(connection, ends_at)
                write_turn.progress()
                self._thread.writer = connection
                try:
                    yield
                except BaseException:
                    # A full disk ends the transaction. The first writer of a group is undone with the turn.
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
        """Join the open transaction, or begin one: wait for it until `ends_at`, and at least for a second."""
        if connection.in_transaction:
            connection.execute("SAVEPOINT joined")
        else:
            self.checkpoint(FairLock.STALL_SECONDS / 2)  # longer would count as a stall
            if (seconds := max(math.ceil(ends_at - time.monotonic()), 1)) != self._busy_seconds:
                connection.execute(f"PRAGMA busy_timeout = {seconds * 1000}")
                self._busy_seconds = seconds
            connection.execute("BEGIN IMMEDIATE")
            self._changes = connection.total_changes

    def _commit(self, connection: sqlite3.Connection, group: Group, turn: ExitStack) -> None:
        """Pass the turn and wait for the commit of the group, or commit. Raises `Unavailable`."""
        if connection.in_transaction and write_turn.pass_turn():
            turn.pop_all()  # another thread has the turn now
            group.wait()
        else:
            check_in_place()  # again, for the writers that have joined
            connection.execute("COMMIT")
            group.failed = False
            if connection.total_changes > self._changes:  # an empty commit succeeds even on a full disk
                self.refused_since = None
        if group.failed:
            raise Unavailable("the database could not store this together with what others wrote")

    def checkpoint(self, seconds: float) -> None:
        """Empty the log, in the turn to write, if the last write failed or the log has over `WAL_BYTES`.

        SQLite itself does so at 4000 pages, for which the disk may have no space, and only when no reads
        overlap. This waits up to `seconds` for reads; if that is too short, it does not try again before the
        log has grown by another `WAL_BYTES`.
        """
        with suppress(OSError, sqlite3.Error):  # there is no log yet, or the disk is still full
            size = os.stat(f"{self.database}-wal").st_size
            if self.refused_since or size > self._blocked_wal_bytes + WAL_BYTES:
                connection = self._writer.connection()
                # Several short waits: new reads may take over the mark of the read that a long one waits for.
                connection.execute("PRAGMA busy_timeout = 250")
                ends_at = time.monotonic() + (0 if self.refused_since else seconds)
                self._busy_seconds = 0  # `_begin` sets its own
                is_blocked = True
                while is_blocked:
                    ((is_blocked, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    if time.monotonic() >= ends_at:
                        break
                self._blocked_wal_bytes = size if is_blocked else 0

    def disconnect(self) -> None:
        """Close all connections, which a fork must not share. Call this while there is only one thread."""
        for other in (self._writer, self._limited):
            other.close()
        self._busy_seconds = 0  # the next connection begins with SQLite's own timeout
        self.close()


db = Database()
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
    """Return whether the error, or one that caused it, is an outage; peewee's rollback may hide the cause."""
    while error is not None:
        if (getattr(error, "sqlite_errorname", None) or "").startswith(OUTAGES):
            return True
        error = error.__cause__ or error.__context__
    return False


def disk_hint(error: Exception) -> str:
    """Return what to do about an error that a full disk may have caused, or an empty text."""
    name = getattr(error.__context__ or error, "sqlite_errorname", "")  # peewee raises its own
    return "; see that its disk has space" if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")) else ""


# Texts and digests ----------------------------------------------------------------------------


def caseless(text: str) -> str:
    """Return the text for comparing names: without differences of case and Unicode composition."""
    return unicodedata.normalize("NFC", text.casefold())


# Characters that nobody types in a search: strokes, which Unicode does not decompose, and typographic signs.
PLAIN = str.maketrans("ƀȼđɇǥħɨɉłøɍŧɏƶⱥⱦ", "bcdeghijlortyzat")
PLAIN |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), ord("-"))
PLAIN |= dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u02bc"), ord("'"))
PLAIN |= dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), ord('"'))


def fold(text: str) -> str:
    """Return the text for searching and sorting: without accents, strokes, ligatures, widths and typography.

    The columns `search` of tasks and comments contain such texts: a change here needs a migration like 0027.
    """
    if text.isascii():
        return text.lower()
    # Marks of a class below 10 are not accents but parts of letters: が and か are different letters.
    letters = (letter for letter in unicodedata.normalize("NFKD", text) if unicodedata.combining(letter) < 10)
    return caseless("".join(letters)).translate(PLAIN)


def digest(secret: str) -> str:
    """Return the SHA-256 digest; a secret of 256 random bits needs no slower one."""
    return hashlib.sha256(secret.encode()).hexdigest()


# JSON -----------------------------------------------------------------------------------------


class EncodedJSON(str):
    """Free-form JSON as text, as JavaScript would write it; `to_json` copies it."""

    __slots__ = ()


def to_json(value: Any) -> bytes:
    """Return the value as compact JSON, with strings and numbers as `JSON.stringify` writes them."""
    return orjson.dumps(value, _splice, orjson.OPT_PASSTHROUGH_SUBCLASS)


def _splice(text: Any) -> orjson.Fragment:
    if not isinstance(text, EncodedJSON):
        raise TypeError(f"{type(text)} is not JSON")
    return orjson.Fragment(text.encode())


# Statements -----------------------------------------------------------------------------------


for json_type in (list, dict):
    sqlite3.register_adapter(json_type, lambda value: to_json(value).decode())


class JSONField(TextField):
    """A column of JSON; rows contain Python's values."""


class EncodedJSONField(TextField):
    """A column of JSON; rows contain `EncodedJSON`."""


class ChoiceField(TextField):
    """A column that contains one of these texts."""

    def __init__(self, choices: tuple[str, ...], **options: Any):
        super().__init__(**options)
        self.choices = choices


def placeholder(name: str) -> SQL:
    """Return a named parameter of a statement."""
    return SQL(f":{name}")


def columns(model: Any, *hidden: str) -> list:
    """Return the model's columns in their order, without the hidden ones."""
    return [field for field in model._meta.sorted_fields if field.column_name not in hidden]


def rowid(model: Any) -> Column:
    """Return the column with the number that SQLite itself gives each row."""
    return Column(model, "rowid")


def joined(table: Any, key: str, *names: str) -> list:
    """Return columns of a joined table as `key.name`. Its id must be among them; select them last."""
    return [getattr(table, name).alias(f"{key}.{name}") for name in names]


def _name(column: Any) -> str:
    """Return the column's name, or "" without an alias: peewee invents any attribute of an expression."""
    name = getattr(column, "column_name", None) or getattr(column, "_alias", "")
    return name if isinstance(name, str) else ""


def _calls_json(value: Any) -> bool:
    return isinstance(value, Function) and value.name == "JSON"


def _reader(column: Any) -> Callable[[str], Any] | None:
    """Return the function that reads this column's JSON into a row; None for other columns."""
    value = column.unwrap()
    if isinstance(value, EncodedJSONField):
        return EncodedJSON
    return orjson.loads if isinstance(value, JSONField) or _calls_json(value) else None


def _plain(column: Any) -> Any:
    """Return the column without SQLite's function JSON around it."""
    value = column.unwrap()
    return value.arguments[0].alias(_name(column)) if _calls_json(value) else column


def json_object(members: Row) -> Function:
    """Return the expression of a JSON object with these members."""
    return fn.JSON_OBJECT(*chain.from_iterable(members.items()))


class Statement:
    """A peewee query that is converted to SQL once and then executed with named parameters.

    Converting a query to SQL takes 90 times as long as running it. A row is a dict. Results of SQLite's
    function JSON and a `JSONField` are Python's values in it. Columns such as `owner.id` are one object,
    `owner`, or None if its id is null.
    """

    def __init__(self, query: Any, total: Query | None = None):
        """`total` is a query of one number, which `json` returns with the rows."""
        self.query, self.total = query, total
        self.sql, _ = db.get_sql_context(value_literals=True).sql(query).query()
        selected = query._returning or ()
        names = [_name(column) for column in selected]
        self._names = [name for name in names if "." not in name]
        self._readers = [(_name(column), read) for column in selected if (read := _reader(column))]
        self._joined: dict[str, list[str]] = {}
        for key, _, name in (name.partition(".") for name in names[len(self._names) :]):
            self._joined.setdefault(key, []).append(name)

    def _row(self, values: tuple) -> Row:
        rest = iter(values)  # each `zip` takes as many values as it has names
        row = dict(zip(self._names, rest, strict=False))
        for name, read in self._readers:
            if row[name] is not None:
                row[name] = read(row[name])
        for key, names in self._joined.items():
            inner = dict(zip(names, rest, strict=False))
            row[key] = inner if inner["id"] is not None else None
        return row

    def all(self, **parameters: Any) -> list[Row]:
        """Return all rows of the result."""
        return [self._row(values) for values in db.read(self.sql, parameters)]

    def some(self, left: float = PAGE_BYTES, **parameters: Any) -> tuple[list[Row], float]:
        """Return the first rows that fit into `left` bytes of JSON, at least one, and the bytes left.

        That number is negative if more rows follow.
        """
        rows: list[Row] = []
        for values in db.execute_sql(self.sql, parameters):  # as they are needed
            left -= len(orjson.dumps(values))
            if rows and left < 0:
                break
            rows.append(self._row(values))
            left = max(left, 0)
        return rows, left

    def one(self, **parameters: Any) -> Row | None:
        """Return the first row of the result, or None."""
        rows = db.read(self.sql, parameters)
        return self._row(rows[0]) if rows else None

    def json(self, max_bytes: int = 0, **parameters: Any) -> tuple[orjson.Fragment, int, int | None]:
        """Return all rows as a JSON array for `to_json`, the number of rows, and the total.

        This is faster than `all`: SQLite makes the array, and Python releases the interpreter's lock once and
        not once for each row. Raises `sqlite3.DataError` if the JSON has over `max_bytes`, if set.
        """
        ((objects, count, total),) = db.read(self._array.sql, parameters, max_bytes)
        return orjson.Fragment(b"[%b]" % (objects or b"")), count, total

    @cached_property
    def _array(self) -> "Statement":
        """The SELECT of the rows as objects, separated by commas, of their number, and of the total."""
        members: Row = {name: Entity(name) for name in self._names}
        members |= {name: fn.JSON(Entity(name)) for name, _ in self._readers}
        for key, names in self._joined.items():
            inner = {name: Entity(f"{key}.{name}") for name in names}
            members[key] = Case(None, [(inner["id"].is_null(False), json_object(inner))])
        objects = fn.GROUP_CONCAT(json_object(members), ",").cast("BLOB")  # bytes, not decoded
        total = SQL("NULL") if self.total is None else self.total
        rows = self.query.select(*map(_plain, self.query._returning))  # `members` calls JSON
        return Statement(Select([rows.alias("rows")], [objects, fn.COUNT(SQL("*")), total]))

    def value(self, **parameters: Any) -> Any:
        """Return the first column of the first row, or None."""
        rows = db.read(self.sql, parameters)
        return rows[0][0] if rows else None

    def run(self, **parameters: Any) -> int:
        """Execute an UPDATE or DELETE, and return the number of rows that it changed."""
        return db.execute_sql(self.sql, parameters).rowcount


class Insertion(Statement):
    """The INSERT of a row; its parameters are named as the columns, and a missing one is null."""

    def __init__(self, model: Any):
        fields = model._meta.sorted_fields
        super().__init__(model.insert({field: placeholder(field.column_name) for field in fields}))
        self.nulls: Row = dict.fromkeys(field.column_name for field in fields)

    def run(self, **row: Any) -> int:
        """Insert the row, and return its `rowid`, which is the value of an `AutoField` that is null."""
        return db.execute_sql(self.sql, self.nulls | row).lastrowid

    def run_many(self, rows: Iterable[Row]) -> None:
        db.connection().executemany(self.sql, (self.nulls | row for row in rows))


class statement:
    """A decorator: the query that a method builds becomes a `Statement`, an attribute of its table.

    It is built on first use, since a query may refer to tables that are declared later. A query of one line
    is declared as an attribute: `by_name = statement(lambda cls: …)`.
    """

    def __init__(self, build: Callable[[Any], Any]):
        self.build = build

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any) -> Any:
        built = self.build(owner)
        made = built if isinstance(built, Statement) else Statement(built)
        setattr(owner, self.name, made)
        return made


def deletion_of_some(model: Any, condition: Expression, *order: Any) -> Query:
    """Return a DELETE of at most `:most` rows for which the condition holds, the first in this order."""
    rows = model.select(rowid(model)).where(condition).order_by(*order).limit(placeholder("most"))
    return model.delete().where(rowid(model).in_(rows))


# Tables ---------------------------------------------------------------------------------------


class Base(Model):
    """A table of this database.

    `SEEN` and `SEEN_AS` are the SQL of the table's view for a viewer. Tables that they name are views too.
    `seen_project` contains the ids that the viewer sees, and `viewer()` is the viewer's id.
    """

    # The rows of seen projects. With this likelihood SQLite begins with them, unless an index serves the
    # query's other conditions well. Without it, SQLite would read all rows in the order of the result.
    OF_PROJECT: ClassVar[str] = "LIKELIHOOD(project_id IN seen_project, 0.02)"
    SEEN: ClassVar[str] = "0"  # the condition of the rows, often `OF_PROJECT`
    SEEN_AS: ClassVar[Row] = {}  # the columns that are shown in another way

    class Meta:
        database = db
        legacy_table_names = False

    insert_row = statement(Insertion)
    # In place of a row that has the same unique columns.
    replace_row = statement(lambda cls: cls.insert_row.query.on_conflict_replace())

    @classmethod
    def indexed(cls, name: str, attributes: str, **options: Any) -> None:
        """Declare an index, which a migration makes; a test compares both."""
        cls.add_index(*(getattr(cls, one) for one in attributes.split()), name=name, **options)

    @classmethod
    def update_where(cls, expected: Row, **values: Any) -> int:
        """Write these columns of the rows with the expected values (compare-and-swap); return how many."""
        read = {f"read_{name}": value for name, value in expected.items()}
        return cls._update_of(tuple(expected), tuple(values)).run(**read, **values)

    @classmethod
    @lru_cache(maxsize=256)
    def _update_of(cls, expected: tuple[str, ...], names: tuple[str, ...]) -> Statement:
        column = cls._meta.columns
        assignments = {column[name]: placeholder(name) for name in names}
        conditions = [column[name] == placeholder(f"read_{name}") for name in expected]
        return Statement(cls.update(assignments).where(*conditions))


def with_subclasses(model: Any) -> Iterator[Any]:
    """Yield the class and all that are derived from it."""
    yield model
    for derived in model.__subclasses__():
        yield from with_subclasses(derived)


def views(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the statements that hide every table of the file behind a view."""
    models = {model._meta.table_name: model for model in with_subclasses(Base)}
    ids = "SELECT value AS id FROM JSON_EACH((SELECT project_ids FROM main.member WHERE id = viewer()))"
    yield f"CREATE TEMP VIEW seen_project AS {ids}"  # noqa: S608
    tables = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT GLOB 'sqlite_*'"
    for (table,) in connection.execute(tables).fetchall():
        model, shown, seen = models.get(table), "*", Base.SEEN
        if model:
            names = [field.column_name for field in model._meta.sorted_fields]
            shown = ", ".join(f'{model.SEEN_AS.get(name, f"{table}.{name}")} AS "{name}"' for name in names)
            shown += "" if model._meta.without_rowid else ", rowid AS rowid"
            seen = model.SEEN
        yield f'CREATE TEMP VIEW "{table}" AS SELECT {shown} FROM main."{table}" WHERE {seen}'  # noqa: S608


class Identified(Base):
    """A table whose rows have an id."""

    id = TextField(primary_key=True)

    stored_row = statement(lambda cls: cls.select_stored().where(cls.id == placeholder("id")))
    delete_row = statement(lambda cls: cls.delete().where(cls.id == placeholder("id")))

    @classmethod
    def select_stored(cls) -> Query:
        return cls.select()

    @classmethod
    def set_columns(cls, id: str, **values: Any) -> None:
        """Write these columns of the row with this id, and no other."""
        cls.update_where({"id": id}, **values)


class Sequenced(Identified):
    """A table whose rows also have a number, which rises with each row that is inserted."""

    seq = AutoField()
    id = TextField(unique=True)
