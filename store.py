"""The file of the database: create, upgrade, lock and copy it."""

import errno
import fcntl
import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import IO

from playhouse.migrations import Runner

from database import DATABASE_ERRORS, BadDatabase, db, disk_hint, prepared_files
from errors import Unavailable

SMALL_TABLE = 3000  # rows; without statistics SQLite believes that a table is large
# Each is applied once, in the order of their numbers. A released migration is never changed. A migration
# appends a new column (ALTER TABLE … ADD COLUMN); the model declares it where it belongs.
MIGRATIONS = Path(__file__).with_name("migrations")
log = logging.getLogger("tasks")


def prepare(locks: ExitStack | None = None) -> list[str]:
    """Create the database file if it is missing, and apply the migrations; return the names of these.

    A server passes `locks`, to which the lock against a second server is added first. An older database is
    copied before it is upgraded. Raises `BadDatabase`, whose message says what to do.
    """
    path = Path(db.database)
    prepared_files.pop(db.database, None)  # `restore` may have replaced the file
    with as_bad_database(path), ExitStack() as turn:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        turn.callback(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)  # wait for another process that prepares a database here
        if locks is not None:
            locks.enter_context(lock_server())
        _check_wal(path)
        for file in path.parent.glob(f".{path.name}.before-[0-9][0-9][0-9][0-9]_*"):
            file.unlink()  # an incomplete copy of a killed process
        if not path.exists():
            path.touch(0o600)  # SQLite would let others read it
        if unwritable():  # SQLite would open it, to read
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        db.connect(reuse_if_open=True)
        runner = Runner(db, str(MIGRATIONS))
        pending, applied = migration_names(path, runner)
        if pending and applied:
            if locks is None:
                lock_server().close()  # an older server must not go on writing
            backup(copy := path.with_name(f"{path.name}.before-{pending[0]}"))
            log.info("The database is copied to %s", copy)  # now, since the upgrade may be interrupted
        runner.up()
        with suppress(Unavailable, sqlite3.OperationalError):  # a full or busy database can still be read
            optimize()  # at every start: after an upgrade it may have been interrupted
        prepared_files[db.database] = os.stat(path)
    return pending


def _check_wal(path: Path) -> None:
    """Raise `BadDatabase` for a log whose database is missing or empty: SQLite would delete the log."""
    wal, is_there = Path(f"{path}-wal"), path.exists()
    if wal.exists() and not (is_there and (path.stat().st_size or not wal.stat().st_size)):
        raise BadDatabase(
            f"{path} is {'empty' if is_there else 'missing'}, but its log {wal} is there: put the database "
            "back beside it, or move the log away to begin with an empty database"
        )


def optimize() -> None:
    """Update the statistics from which SQLite chooses indexes, in about 20 ms.

    Small tables get none: after such a table has grown, SQLite would still read it as a whole.
    """
    with db.writing():
        db.execute_sql("PRAGMA analysis_limit = 400")
        db.execute_sql("ANALYZE")
        small = "SELECT tbl FROM sqlite_stat1 GROUP BY tbl HAVING MAX(CAST(stat AS INTEGER)) < ?"
        db.execute_sql(f"DELETE FROM sqlite_stat1 WHERE tbl IN ({small})", (SMALL_TABLE,))  # noqa: S608
        db.execute_sql("ANALYZE sqlite_schema")  # reads the statistics again


def migration_names(path: Path, runner: Runner) -> tuple[list[str], list[str]]:
    """Return the names of the pending and of the applied migrations. Raises `BadDatabase`."""
    steps = runner.status()
    pending = [step.name for step in steps if not step.applied]
    applied = [step.name for step in steps if step.applied]
    if newer := [step.name for step in steps if step.path is None]:
        raise BadDatabase(f"{path} was made by a newer version, which applied {newer[-1]}; install that one")
    if not applied and set(runner.database.get_tables()) - {runner.table_name}:
        raise BadDatabase(f"{path} is the database of another program")
    return pending, applied


@contextmanager
def as_bad_database(path: Path) -> Iterator[None]:
    """Turn errors of the file at this path into `BadDatabase`, in one line that names the path."""
    try:
        yield
    except OSError as error:
        hint = "; see who owns it and its folder" if isinstance(error, PermissionError) else ""
        raise BadDatabase(f"{path}: {error.strerror or error}{hint}") from error
    except (Unavailable, *DATABASE_ERRORS) as error:
        raise BadDatabase(f"{path} cannot be used: {error}{disk_hint(error)}") from error


def open_lock_file(path: Path) -> IO[str]:
    """Open an empty file for locking that only its owner can open."""
    return os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w")


def unwritable() -> list[Path]:
    """Return the files of the database, and their folder, that this process may not write."""
    path = Path(db.database)
    files = [path, *(Path(f"{path}{end}") for end in ("-wal", "-shm")), path.parent]
    return [file for file in files if file.exists() and not os.access(file, os.W_OK, effective_ids=True)]


def is_missing() -> bool:
    """Return whether there is no database, or only an empty file."""
    path = Path(db.database)
    return not path.exists() or not path.stat().st_size


def lock_database(*, alone: bool = False, may_be_new: bool = False) -> IO[str]:
    """Lock the database, shared or `alone`, until the returned file is closed.

    Raises `BadDatabase` if another process prevents it, or if there is no database, unless it `may_be_new`.
    """
    path = Path(db.database)
    with as_bad_database(path):
        if not may_be_new:
            _check_wal(path)
            if is_missing():
                problem = f"there is no database at {path}; `init` makes one, `restore` puts a copy there"
                raise BadDatabase(problem)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if alone:
        return _lock("server", fcntl.LOCK_EX, "a server or a command uses it; stop it first")
    return _lock("server", fcntl.LOCK_SH, "a backup is being restored")


def lock_server() -> IO[str]:
    """Lock the database against a second server, but not against commands. Raises `BadDatabase`."""
    return _lock("serving", fcntl.LOCK_EX, "another server uses this database; stop it first")


def _lock(suffix: str, how: int, refusal: str) -> IO[str]:
    """Lock a file beside the database until this process and its forks have closed it or ended."""
    with as_bad_database(Path(db.database)):
        file = open_lock_file(Path(f"{db.database}.{suffix}"))
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise BadDatabase(f"{db.database}: {refusal}") from error
    return file


def backup(target: Path) -> None:
    """Copy the database while it is in use. The copy contains every write that was committed before.

    Raises `BadDatabase` if the copy cannot be written or the database is damaged.
    """
    path = Path(db.database)
    with as_bad_database(path):
        connection = db.connection()
    with as_bad_database(target):
        copy_database(path, connection, target)


def copy_database(source: Path, connection: sqlite3.Connection, target: Path) -> None:
    """Copy a database to `target`, a file that appears when it is complete. Only its owner can read it."""
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
