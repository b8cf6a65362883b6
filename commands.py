"""The command line, `flask --app app …`: thin commands over `models` and `webhooks`."""

import math
import signal
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
from flask import Flask, current_app
from flask.cli import AppGroup, with_appcontext
from marshmallow import Schema, ValidationError
from peewee import DatabaseError

import database
import gateway
import models
import schemas
import webhooks
from database import (
    BadDatabase,
    Row,
    Unavailable,
    db,
    hold,
    instant,
    integrity_problems,
    prepare,
    turn_to_start,
)
from demo import PEOPLE, PROJECT_TEXTS, Demonstration
from models import ROLES, SCOPES, ApiKey, Invitation, Member, Problem, Project, ProjectStats, permit, write
from outbox import Delivery, Webhook
from settings import Unresolved, bootstrap_key, exposed_secrets, resolve, resolve_webhooks

NO_OWNER = "there is no owner yet; run: flask --app app init"
SAFE_SQLITE = (3, 51, 3)  # earlier ones can, very rarely, corrupt a WAL database under several writers


def register(app: Flask) -> None:
    groups = (key_commands, member_commands, project_commands, webhook_commands)
    single = (init, deliver_command, redeliver_command, seed, backup_command, restore_command, doctor)
    for command in (*groups, *single):
        app.cli.add_command(command)


# What the server does at its start too --------------------------------------------------------


def start(config: dict[str, Any]) -> tuple[Row, str] | None:
    """Make, check and upgrade the database.

    Makes the first owner where `bootstrap.api_key` is given and there is none yet, and returns them
    with the key. Raises `click.ClickException` with one line that says what to mend.
    """
    try:
        given = bootstrap_key(config)
        with turn_to_start():
            fresh = not Path(db.database).exists()
            prepare()
            if fresh:
                note_webhooks(config)
    except (BadDatabase, LookupError) as error:
        raise click.ClickException(str(error)) from error
    return bootstrap(config, given) if given else None


def prune_activity(config: dict[str, Any]) -> None:
    """Drop activity that is older than `workspace.activity_days`, where that is set."""
    if days := config["WORKSPACE"]["activity_days"]:
        webhooks.in_steps(partial(models.Activity.prune, days))


def check_webhooks(config: dict[str, Any]) -> list[Row]:
    """The configured webhooks with their secrets.

    Raises `LookupError` for a secret, or a file of certificates, that cannot be had.
    """
    webhooks.tls_context(config["DELIVERY"]["ca_file"])
    return resolve_webhooks(config)


def note_webhooks(config: dict[str, Any], *, alone: bool = True) -> list[str]:
    """Make the table of webhooks say what the configuration does; returns the names of who left it.

    The server's to do, once there is a database: the environment of a command may be another one.
    """
    with write() as transaction:
        return Webhook.mirror(transaction, config["WEBHOOKS"], alone=alone)


def bootstrap(config: dict[str, Any], given: str | None = None) -> tuple[Row, str] | None:
    """The first owner and their key, or None where the workspace has an owner already."""
    settings = config["BOOTSTRAP"]
    with write() as transaction:
        if Member.first_owner.one():
            return None
        owner = Member.bootstrap(transaction, full_name=settings["owner_name"], email=settings["owner_email"])
        _, secret = ApiKey.issue(transaction, owner["id"], name="bootstrap", key=given)
    return owner, secret


# Helpers --------------------------------------------------------------------------------------


def in_database(command: Callable) -> Callable:
    """Run the command on a database that exists and is not being restored; a mistake is one line."""

    @wraps(command)
    @with_appcontext
    def call(*arguments: Any, **options: Any) -> Any:
        if not Path(db.database).exists():
            raise click.ClickException(f"{db.database} does not exist; run: flask --app app init")
        try:
            with closing(hold()):
                return command(*arguments, **options)
        except (Problem, BadDatabase, Unavailable) as error:
            raise click.ClickException(str(error)) from error
        except DatabaseError as error:
            raise click.ClickException(f"{db.database}: {error}") from error

    return call


def checked(schema: Schema, fields: Row) -> Row:
    """The fields as the API would take them. Raises `click.UsageError`."""
    try:
        return schema.load({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        problems = "; ".join(f"{field}: {message}" for field, message in schemas.problems_of(error))
        raise click.UsageError(problems) from error


def acting(email: str | None, role: str = "client") -> Row:
    """The member in whose name a command changes something: the first owner unless named.

    Raises `click.ClickException`, and `Forbidden` for one who has not at least this role.
    """
    found = Member.by_email.one(email=email.strip().lower()) if email else Member.first_owner.one()
    if not found or found["status"] != Member.ACTIVE:
        raise click.ClickException(f"no active member {email}" if email else NO_OWNER)
    permit(found, role)
    return found


def table(headings: str, rows: list[list[Any]]) -> None:
    """Print rows under their headings, which a blank separates."""
    lines = [headings.split(), *[["-" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


as_option = click.option("--as", "email", metavar="EMAIL", help="Act as this member (the first owner).")


# Commands -------------------------------------------------------------------------------------


@click.command()
@with_appcontext
def init() -> None:
    """Make the database, and the first owner with an API key.

    The key is printed once. Name, address and key can be given under [bootstrap] in the configuration;
    a key that is given is never printed. Where everything exists already, nothing happens.
    """
    try:
        check_webhooks(current_app.config)
        with closing(hold()):
            given = start(current_app.config) is not None
            made = None if given else bootstrap(current_app.config)
    except (BadDatabase, LookupError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"The database {db.database} is ready.")
    if made is None:
        click.echo("The first owner has the key of the configuration." if given else "It has an owner.")
        return
    owner, secret = made
    base_url = current_app.config["SERVER"]["base_url"]
    click.echo(f"Its first owner is {owner['full_name']} <{owner['email']}>.\n")
    click.echo(f"API key, shown only now:  {secret}\n")
    click.echo(f'Try:  curl -H "Authorization: Bearer {secret}" {base_url}/api/v1/context')


key_commands = AppGroup("key", help="Make, list and revoke API keys.")


@key_commands.command("create")
@click.option("--member", "holder_email", metavar="EMAIL", help="Whose key (the first owner's).")
@click.option("--name", default="command line", show_default=True, help="What the key is for.")
@click.option("--scope", type=click.Choice(SCOPES), default="write", show_default=True)
@click.option("--days", type=click.FloatRange(0.0001, 36500), help="Days until it expires (never).")
@as_option
@in_database
def key_create(
    holder_email: str | None, name: str, scope: str, days: float | None, email: str | None
) -> None:
    """Make an API key, and print it once."""
    fields = checked(schemas.CREATE_KEY, {"name": name, "scope": scope})
    holder = acting(holder_email)
    if days is not None and math.isnan(days):
        raise click.UsageError("--days must be a number")
    expires_at = instant(datetime.now(UTC) + timedelta(days=days)) if days else None
    with write(acting(email)) as transaction:
        _, secret = ApiKey.grant(transaction, member_id=holder["id"], expires_at=expires_at, **fields)
    click.echo(secret)


@key_commands.command("list")
@in_database
def key_list() -> None:
    """List all keys; the keys themselves are not stored."""
    table(
        "PREFIX MEMBER NAME SCOPE CREATED LAST-USED EXPIRES REVOKED ID",
        [
            [k["prefix"], k["member"]["email"], k["name"], k["scope"], k["created_at"]]
            + [k["last_used_at"], k["expires_at"], k["revoked_at"], k["id"]]
            for k in ApiKey.everyones.all()
        ],
    )


@key_commands.command("revoke")
@click.argument("id_or_prefix")
@as_option
@in_database
def key_revoke(id_or_prefix: str, email: str | None) -> None:
    """Revoke the key with this id or prefix, as `key list` shows them."""
    is_id = schemas.Id.PATTERN.fullmatch(id_or_prefix)
    wanted = id_or_prefix if is_id else id_or_prefix[:12]  # the key itself will do too
    found = [k for k in ApiKey.everyones.all() if wanted in (k["id"], k["prefix"])]
    if len(found) != 1:
        raise click.ClickException(f"{len(found) or 'no'} keys have the id or prefix {wanted}")
    with write(acting(email)) as transaction:
        ApiKey.revoke(transaction, found[0]["id"])
    click.echo(f"Revoked {found[0]['prefix']}… of {found[0]['member']['email']}.")


member_commands = AppGroup("member", help="List and invite members.")


@member_commands.command("list")
@in_database
def member_list() -> None:
    """List the team, the clients, and who is invited."""
    table(
        "NAME EMAIL ROLE STATUS JOINED ID",
        [
            [m["full_name"], m["email"], m["role"], m["status"], m["joined_at"], m["id"]]
            for m in Member.everyone()
        ],
    )


@member_commands.command("invite")
@click.argument("address", metavar="EMAIL")
@click.argument("full_name")
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True)
@click.option("--phone", "phone_number", help="Their phone number.")
@as_option
@in_database
def member_invite(
    address: str, full_name: str, role: str, phone_number: str | None, email: str | None
) -> None:
    """Invite someone, and print the link to pass on to them."""
    fields = {"email": address, "full_name": full_name, "role": role, "phone_number": phone_number}
    invitation = checked(schemas.INVITE_MEMBER, fields)
    config = current_app.config
    configured()
    with write(acting(email, "admin")) as transaction:
        invited, token, expires_at, _ = Invitation.invite(
            transaction, config["WORKSPACE"]["invitation_days"], **invitation
        )
        webhooks.emit(transaction, "member.invited", {"member": invited})
    webhooks.deliver(transaction)
    click.echo(f"{config['SERVER']['base_url']}/enroll/{token}")
    click.echo(f"The link works once, until {expires_at}.", err=True)


project_commands = AppGroup("project", help="Make and list projects.")


@project_commands.command("create")
@click.argument("name")
@click.option("--description", help="What it is about.")
@as_option
@in_database
def project_create(name: str, description: str | None, email: str | None) -> None:
    """Make a project, and print its id."""
    fields = checked(schemas.CREATE_PROJECT, {"name": name, "description": description})
    with write(acting(email, "member")) as transaction:
        click.echo(Project.add(transaction, **fields)["id"])


@project_commands.command("list")
@in_database
def project_list() -> None:
    """List the projects, and how far they are."""
    table(
        "NAME STATUS TASKS DONE OVERDUE OWNER ID",
        [
            [p["name"], p["status"], p["stats"]["total"], p["stats"]["done"]]
            + [p["stats"]["overdue"], p["owner"]["email"], p["id"]]
            for p in Project.listing()
        ],
    )


webhook_commands = AppGroup("webhook", help="List, test and enable webhooks.")


def configured() -> None:
    """Make this process know the receivers, with their secrets. Raises `click.ClickException`."""
    config = current_app.config
    try:
        webhooks.configure(check_webhooks(config), config["DELIVERY"])
    except LookupError as error:
        raise click.ClickException(str(error)) from error


def named(name: str) -> str:
    """The id of the webhook with this name or id."""
    for known in Webhook.listing():
        if name in (known["name"], known["id"]):
            return known["id"]
    raise click.ClickException(f"no webhook is called {name}; see: flask --app app webhook list")


def report(delivery_id: str) -> None:
    """Print what came of a delivery; a failure is the command's failure."""
    sent = Delivery.fetch(delivery_id)
    if sent["status"] != "delivered":
        then = "it is tried again" if sent["status"] == "pending" else "it is parked"
        raise click.ClickException(f"not delivered ({sent['last_error'] or 'not sent yet'}); {then}")
    click.echo(f"{sent['webhook']} answered {sent['last_status']} after {sent['duration_ms']} ms.")


@webhook_commands.command("list")
@in_database
def webhook_list() -> None:
    """List the webhooks that the server knows, and how they are.

    It reads the configuration at its start and on a reload.
    """
    table(
        "NAME STATE PENDING FAILURES OPEN-UNTIL REASON URL",
        [
            [w["name"], w["state"], w["pending"], w["failures"], w["open_until"], w["reason"], w["url"]]
            for w in Webhook.listing()
        ],
    )


@webhook_commands.command("test")
@click.argument("name")
@as_option
@in_database
def webhook_test(name: str, email: str | None) -> None:
    """Send a ping to the webhook NAME, and say what it answered."""
    configured()
    with write(acting(email, "admin")) as transaction:
        delivery_id = webhooks.ping(transaction, named(name))
    webhooks.deliver(transaction)
    report(delivery_id)


@webhook_commands.command("enable")
@click.argument("name")
@in_database
def webhook_enable(name: str) -> None:
    """Send to a disabled webhook again, beginning with what was parked."""
    with write() as transaction:
        webhooks.enable(transaction, named(name))
    click.echo(f"{name} is active.")


@click.command()
@in_database
def deliver_command() -> None:
    """Send all deliveries that are due, once.

    The server does so by itself, unless delivery.sweeper is false.
    """
    configured()
    accepted, pending = webhooks.sweep(), Delivery.pending.value()
    click.echo(f"Accepted: {accepted}. Waiting for their next try (see webhook list): {pending}.")


@click.command()
@click.argument("delivery_id")
@in_database
def redeliver_command(delivery_id: str) -> None:
    """Send a delivery again, with the same id and body."""
    configured()
    with write() as transaction:
        webhooks.redeliver(transaction, delivery_id)
    webhooks.deliver(transaction)
    report(delivery_id)


def tidy_when_ended() -> None:
    """Let SIGTERM end this process as an exception does, so that nothing half made is left."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@in_database
def backup_command(file: Path) -> None:
    """Copy the database to FILE, also while the server runs.

    FILE must not exist. It is written whole or not at all, checked, and readable by its owner alone.
    """
    if file.exists():
        raise click.ClickException(f"{file} exists; name another file")
    tidy_when_ended()
    database.backup(file)
    click.echo(f"{file}: {file.stat().st_size:,} bytes, in order.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@with_appcontext
def restore_command(file: Path) -> None:
    """Put the backup FILE in the database's place.

    No server may use the database meanwhile. The one that was there is kept beside it. A backup of an
    older version is upgraded when the server starts.
    """
    tidy_when_ended()
    try:
        aside = database.restore(file)
    except BadDatabase as error:
        raise click.ClickException(str(error)) from error
    if aside:
        click.echo(f"The former database is now {aside}.")
    click.echo(f"{db.database} is restored; start the server.")


def gateway_problems(config: dict[str, Any]) -> list[str]:
    """Print how each route of the gateway is; returns what keeps routes from being served."""
    routes = gateway.configured_routes(config)
    references = [route["secret"] for route in routes.values()]
    problems = []
    secrets = resolve(references, config["SECRETS"]["providers"])
    for (id, route), secret in zip(routes.items(), secrets, strict=True):
        served = not isinstance(secret, Unresolved)
        click.echo(
            f"route {id}: {route['path']} for {route['session_key']}: {'served' if served else 'skipped'}"
        )
        if not served:
            problems.append(f"route {id} is skipped: its secret: {secret}")
    for alias, provider in config["SECRETS"]["providers"].items():
        if file := provider.get("path") or provider.get("command"):
            path = Path(file).expanduser()
            mode = stat.filemode(path.lstat().st_mode) if path.exists() else "does not exist"
            click.echo(f"provider {alias}: {path}: {mode}")
    return problems


@click.command()
@click.option("--repair", is_flag=True, help="Count the projects' tasks anew.")
@in_database
def doctor(repair: bool) -> None:
    """Check configuration, database, deliveries and files.

    Each problem is a line; with one or more, the exit code is 1.
    """
    problems = database_problems(repair)
    for path in (Path(db.database), Path(f"{db.database}-wal")):
        if path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            problems.append(f"{path} can be read by others; chmod 600 it")
    problems += exposed_secrets(current_app.config)
    problems += gateway_problems(current_app.config)
    try:
        check_webhooks(current_app.config)
    except LookupError as error:
        problems.append(str(error))
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        wanted = ".".join(map(str, SAFE_SQLITE))
        click.echo(f"note: SQLite {sqlite3.sqlite_version} is in use; {wanted} mends a rare fault of WAL")
    for problem in problems:
        click.echo(f"problem: {problem}")
    if problems:
        raise click.exceptions.Exit(1)
    click.echo(f"{db.database} and its configuration are in order.")


def database_problems(repair: bool) -> list[str]:
    """Print what is worth knowing of the database; returns what is wrong with it."""
    try:
        if repair:
            with write():
                click.echo(f"counters that were wrong and are right now: {ProjectStats.repair()}")
        problems = integrity_problems()
        problems += [
            f"the counters of project {row['project_id']} are wrong; --repair mends them"
            for row in ProjectStats.wrong()
        ]
        if not Member.first_owner.one():
            problems.append(NO_OWNER)
        if pending := Delivery.pending.value():
            click.echo(f"note: deliveries that are pending: {pending}")
        for row in Delivery.parked.all():
            counted = f"deliveries to {row['name']} that are parked: {row['parked']}"
            click.echo(f"note: {counted}; see GET /api/v1/deliveries")
        problems += [
            f"the webhook {hook['name']} is disabled ({hook['reason']}); webhook enable {hook['name']}"
            for hook in Webhook.listing()
            if hook["state"] == "disabled" and hook["reason"] != Webhook.LEFT
        ]
    except DatabaseError as error:
        return [f"the database cannot be read ({error}); restore a backup"]
    return problems


@click.command()
@click.option("--tasks", type=click.IntRange(0, 5_000_000), default=200, show_default=True, help="How many.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed, the same workspace.")
@in_database
def seed(tasks: int, seed: int) -> None:
    """Fill an empty workspace with a demonstration.

    It has people of every role, projects with milestones, tasks in every status with due dates around
    today, comments, meetings past and to come, whiteboards and attachments.
    """
    if Project.listing():
        raise click.ClickException("the workspace has projects already; seed an empty one")
    with write(acting(None)) as transaction:
        Demonstration(transaction, seed, tasks).fill(partial(click.progressbar, label="Tasks"))
    db.execute_sql("PRAGMA optimize = 0x10002")
    click.echo(
        f"{len(PEOPLE)} people, {len(PROJECT_TEXTS)} projects, {tasks} tasks; flask --app app project list"
    )
