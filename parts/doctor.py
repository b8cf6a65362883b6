"""The command `doctor`: what is wrong with a configuration, its database, deliveries and files."""

import os
import shutil
import sqlite3
import stat
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import click
from flask import current_app
from peewee import SqliteDatabase
from playhouse.migrations import Runner

import database
import gateway
import members
import schemas
import settings
import times
from commands import NO_OWNER, about, cli, in_database
from outbox import Delivery, Webhook
from parts import backups
from settings import Unset, exposed_secrets
from startup import read_webhooks
from store import MIGRATIONS, migration_names, unwritable

BACKUP_AGE = 36 * 3600  # seconds; the newest of nightly backups is never older
LEAST_FREE = 64 * 2**20  # bytes on the disk; a change needs few, a long log or a copy many
IN_SCHEMA = (
    "SELECT type || ' ' || name, CASE type WHEN 'index' THEN sql END FROM sqlite_master WHERE sql > ''"
)
SAFE_SQLITE = (3, 51, 3)  # older versions can, very rarely, corrupt a WAL database that has several writers


@cli.command()
@in_database
def doctor() -> None:
    """Check configuration, database, deliveries and files.

    Each problem is printed in one line. If there are any, the exit code is 1.
    """
    config = current_app.config
    click.echo(f"note: {about()}")
    if not config["DELIVERY"]["sweeper"]:
        click.echo("note: delivery.sweeper is false: claims never end, and old rows are not deleted")
    problems = database_problems()
    folder = Path(database.db.database).parent
    if folder.is_dir() and (free := shutil.disk_usage(folder).free) < LEAST_FREE:
        problems.append(f"the disk of {folder} has {free >> 20} MiB left; free some, or writes will fail")
    for path in (Path(database.db.database), Path(f"{database.db.database}-wal")):
        if path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            problems.append(f"{path}: others can read it; run chmod 600")
    problems += [f"{path}: the service may not write it; see who owns it" for path in unwritable()]
    problems += exposed_secrets(config) + gateway_problems(config)
    service: Any = current_app  # which has `problems`
    for check in service.problems:
        try:
            problems += check(config)
        except Unset as error:
            click.echo(f"note: {error} here; the service may have it")
        except LookupError as error:
            problems.append(str(error))
    for part in ([], *([webhook] for webhook in config["WEBHOOKS"])):  # one by one: no note hides a problem
        try:
            read_webhooks(config | {"WEBHOOKS": part})
        except Unset as error:
            click.echo(f"note: {error} here; the service may have it")
        except LookupError as error:
            problems.append(str(error))
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        version = ".".join(map(str, SAFE_SQLITE))
        click.echo(f"note: SQLite {sqlite3.sqlite_version}: {version} or newer fixes a very rare bug")
    for problem, count in Counter(problems).items():
        click.echo(f"problem: {problem}" + (f" ({count} times)" if count > 1 else ""))
    if problems:
        raise click.exceptions.Exit(1)
    click.echo(f"{database.db.database} and its configuration are in order.")


@cache
def expected_schema() -> dict[str, str | None]:
    """Return the names of what a new database contains, each index with its SQL."""
    with SqliteDatabase(":memory:") as fresh:
        Runner(fresh, str(MIGRATIONS)).up()
        return dict(fresh.execute_sql(IN_SCHEMA))


def integrity_problems() -> list[str]:
    """Return a line for each wrong page, reference or index, with what to do. Raises `BadDatabase`."""
    path = database.db.database
    if migration_names(Path(path), Runner(database.db, str(MIGRATIONS)))[0]:
        raise database.BadDatabase(f"{path} is of an older version; start the server, which upgrades it")
    try:
        integrity = database.db.execute_sql("PRAGMA integrity_check(10)").fetchall()
    except database.DATABASE_ERRORS:  # an unreadable page has ended the check: ask only for the first problem
        integrity = database.db.execute_sql("PRAGMA quick_check(1)").fetchall()
    problems = [message.splitlines()[-1] for (message,) in integrity if message != "ok"]
    if problems:  # the references of a damaged database cannot be read
        return [f"the database is damaged: {problem}; restore a backup" for problem in problems]
    for table, _, parent, _ in database.db.execute_sql("PRAGMA foreign_key_check"):
        remedy = "restore a backup, or delete it (PRAGMA foreign_key_check in sqlite3 lists it)"
        problems.append(f"a row of {table} refers to a {parent} that is gone; {remedy}")
    present = dict(database.db.execute_sql(IN_SCHEMA))
    for name, sql in sorted(expected_schema().items() - present.items(), key=str):
        drop = f"DROP {name}; " if name in present else ""
        remedy = f"execute in sqlite3: {drop}{sql}" if sql else "restore a backup"
        problems.append(f"the {name} is missing or another one; {remedy}")
    return problems


def database_problems() -> list[str]:
    """Print notes on the database, and return its problems."""
    problems: list[str] = []
    try:
        problems += integrity_problems()
        if not members.Member.active_owners.one():
            problems.append(NO_OWNER)
        for row in members.Member.everyone():
            if row["kind"] == "client" and row["project_ids"] is None:
                click.echo(f"note: {row['email']} is a client and sees all projects")
        for row in members.Member.unreached.all(since=times.now(-86400)):
            problems.append(f"mail to {row['email']}: {row['mail_error']}")
        return problems + backup_problems() + delivery_problems()
    except database.BadDatabase as error:
        return [*problems, str(error)]
    except database.DATABASE_ERRORS as error:
        name = getattr(error.__context__ or error, "sqlite_errorname", "")  # peewee raises its own errors
        is_damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR"))
        remedy = "restore a backup" if is_damaged else "check the space on its disk, and your permissions"
        return [*problems, f"the database cannot be read ({error}); {remedy}"]


def backup_problems() -> list[str]:
    """Print the age of the newest backup, or return its problem. A new database needs no backup yet."""
    folder, age = backups.backup_folder(), backups.age()
    if age is None and os.path.lexists(folder):
        return [f"no backup (*.db) can be seen in {folder}"]
    if age is None:
        text = f"no backup yet; create {folder}, and run {settings.program} backup {folder}/FILE.db"
        return [text] if backups.age_of_database() >= BACKUP_AGE else []
    text = f"the newest backup in {folder} is {age / 3600:.0f} hours old"
    if age > BACKUP_AGE:
        return [text]
    click.echo(f"note: {text}")
    return []


def delivery_problems() -> list[str]:
    """Print the numbers of deliveries that wait, and return a problem for each disabled webhook."""
    if pending := Delivery.pending.value():
        click.echo(f"note: deliveries that are pending: {pending}")
    for row in Webhook.backlog.all():
        for status in filter(row.get, ("refused", "waiting")):
            number = f"deliveries to {row['name']} that are {status}: {row[status]}"
            click.echo(f"note: {number}; see GET {schemas.API}/deliveries")
    problems = []
    for webhook in Webhook.listing():
        name, reason = webhook["name"], webhook["reason"]
        if since := webhook["first_failure_at"]:
            click.echo(f"note: the webhook {name} has failed since {since}: {webhook['last_error']}")
        if webhook["state"] == "disabled" and reason != Webhook.UNCONFIGURED:
            problems.append(f"the webhook {name} is disabled ({reason}); run: webhook enable {name}")
    return problems


def gateway_problems(config: dict[str, Any]) -> list[str]:
    """Print the gateway's routes, and return why routes are skipped."""
    problems = []
    for id, route, secret in gateway.resolved_routes(config):
        state = "served" if isinstance(secret, str) else "unknown" if isinstance(secret, Unset) else "skipped"
        click.echo(f"route {id}: {route['path']} for {route['session_key']}: {state}")
        if state == "unknown":
            click.echo(f"note: route {id}: its secret: {secret} here; the service may have it")
        if state == "skipped":
            problems.append(f"route {id} is skipped: its secret: {secret}")
    return problems
