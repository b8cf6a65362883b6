"""Backups: the commands `backup` and `restore`, and the age of the newest backup."""

import os
import secrets
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import click
from flask.cli import with_appcontext
from peewee import SqliteDatabase
from playhouse.migrations import Runner

from commands import as_click_errors, check_user, cli, exit_on_sigterm, in_database
from database import BadDatabase, db
from store import MIGRATIONS, as_bad_database, backup, copy_database, lock_database, migration_names
from times import now, seconds_since


def backup_folder() -> Path:
    """Return the folder beside the database that is searched for copies; it may be a link."""
    return Path(db.database).with_name("backups")


def age() -> float | None:
    """Return the seconds since the newest `*.db` was written into `backup_folder`; None without a backup."""
    written = []
    with suppress(OSError):  # the folder cannot be read
        for file in backup_folder().glob("*.db"):
            with suppress(OSError):  # it was deleted meanwhile
                written.append(file.stat().st_mtime)
    return max(time.time() - max(written), 0.0) if written else None


def age_of_database() -> float:
    """Return the seconds since the first migration was applied, which made the database."""
    ((made_at,),) = db.read("SELECT MIN(applied) FROM schema_migration", {})
    return max(seconds_since(made_at), 0.0)


def restore(source: Path) -> Path | None:
    """Replace the database with a copy of `source`; return the new path of the replaced database.

    Raises `BadDatabase`, and changes nothing, while the database is in use, and if `source` is damaged,
    empty, of a newer version, or of another program.
    """
    path = Path(db.database)
    new = path.with_name(f".{path.name}.restored-{secrets.token_hex(4)}")
    with closing(lock_database(alone=True, may_be_new=True)), as_bad_database(source):
        if not source.is_file():  # SQLite would wait for somebody to write to a pipe
            raise BadDatabase(f"{source} is not a regular file")
        try:
            with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                copy_database(source, connection, new)
            with SqliteDatabase(str(new)) as copy:
                _, applied = migration_names(source, Runner(copy, str(MIGRATIONS)))
            if not applied:
                raise BadDatabase(f"{source} is empty")
            aside = _set_aside(path)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    return aside


def _set_aside(path: Path) -> Path | None:
    """Link the database under a second name, which is returned; None if there is no database.

    Its log is merged before, unless it is damaged. A log that remains gets the second name too: SQLite
    would apply it to the next database at this path.
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


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@in_database
def backup_command(file: Path) -> None:
    """Copy the database to FILE, even while the server runs.

    FILE must not exist yet. It appears when the copy is complete and checked; only its owner can read it.
    """
    if os.path.exists(file):  # `Path.exists` raises in a folder that must not be entered
        raise click.ClickException(f"{file} exists; name another file")
    exit_on_sigterm()
    backup(file)
    click.echo(f"{file}: {file.stat().st_size:,} bytes, in order.")


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@with_appcontext
@as_click_errors(BadDatabase)
def restore_command(file: Path) -> None:
    """Replace the database with the backup FILE.

    Stop the server before. The replaced database is kept beside the new one. A backup of an older
    version is upgraded when the server starts.
    """
    check_user()
    exit_on_sigterm()
    if old := restore(file):
        click.echo(f"The replaced database is now {old}.")
    click.echo(f"{db.database} is restored; start the server.")
