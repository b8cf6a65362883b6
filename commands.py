"""The command line, `flask --app app …` or `tasks …`: thin commands over the other modules."""

import logging
import os
import platform
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import reduce, wraps
from pathlib import Path
from subprocess import DEVNULL, SubprocessError, check_output
from typing import Any

import click
import gunicorn.app.wsgiapp
from flask import current_app
from flask.cli import with_appcontext
from marshmallow import Schema, ValidationError

import database
import members
import models
import schemas
import settings
import store
import webhooks
from errors import ApiError
from startup import bootstrap, prepare_database, read_webhooks

NO_OWNER = f"there is no owner yet; run: {settings.program} init"
HOME = Path(__file__).parent  # where gunicorn and flask find their files

cli = click.Group(
    help="Task management for a small team. `init` creates a workspace in this folder, `serve` serves it."
)


@contextmanager
def as_click_errors(*errors: type[Exception]) -> Iterator[None]:
    """Raise these errors as `click.ClickException`, which click prints as one line."""
    try:
        yield
    except errors as error:
        is_of_database = isinstance(error, database.DATABASE_ERRORS)
        text = f"{database.db.database}: {error}{database.disk_hint(error)}" if is_of_database else str(error)
        raise click.ClickException(text) from error


def check_user() -> None:
    """Raise `BadDatabase` as root in another user's folder: that user could not open the new files."""
    folder = next(filter(os.path.exists, Path(database.db.database).parents))
    if os.geteuid() == 0 != (owner := folder.stat().st_uid):
        name = f"'#{owner}'"
        with suppress(KeyError):  # the user has no name
            name = folder.owner()
        raise database.BadDatabase(f"{folder} belongs to another user; run this command with sudo -u {name}")


def in_database(command: Callable) -> Callable:
    """Run the command on a database that exists and is not being restored."""

    @wraps(command)
    @with_appcontext
    @as_click_errors(ApiError, database.BadDatabase, *database.DATABASE_ERRORS)
    def call(*arguments: Any, **options: Any) -> Any:
        check_user()
        with closing(store.lock_database()):
            return command(*arguments, **options)

    return call


def load_fields(schema: Schema, **fields: Any) -> database.Row:
    """Load fields that are not None, as the API would. Raises `click.UsageError`."""
    try:
        return schema.load({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        problems = "; ".join(f"{field}: {message}" for field, message in schemas.problems_of(error))
        raise click.UsageError(problems) from error


def fetch_actor(email: str | None, role: str = "client") -> database.Row:
    """Return the active member with this address, or the first owner. Raises `Forbidden` below `role`."""
    people = members.Member
    member = people.by_email.one(email=email.strip().lower()) if email else people.active_owners.one()
    if not member or member["status"] != people.ACTIVE:
        raise click.ClickException(f"no active member {email}" if email else NO_OWNER)
    members.permit(member, role)
    return member


def table(rows: list[database.Row], headings: str, paths: str) -> None:
    """Print the values at these paths, such as `owner.email`, of each row under these headings."""
    lines = [headings.split()]
    for row in rows:
        values = [reduce(lambda of, name: of and of[name], path.split("."), row) for path in paths.split()]
        lines.append(["-" if value is None else str(value) for value in values])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


as_option = click.option("--as", "email", metavar="EMAIL", help="Act as this member (default: first owner).")


@cli.command()
@with_appcontext
@as_click_errors(ApiError, database.BadDatabase, *database.DATABASE_ERRORS, LookupError)
def init() -> None:
    """Create the database and the first owner, and say how to sign in.

    The owner signs in with a link, and programs use an API key; both are printed once. The configuration
    can set name, address and key under [bootstrap]; such a key is never printed. If the database and an
    owner exist, nothing changes.
    """
    config = current_app.config
    check_user()
    configured = read_webhooks(config)
    key = settings.bootstrap_key(config)
    logging.basicConfig(format="%(message)s")
    store.log.setLevel(logging.INFO)  # an upgrade names its copy and its steps
    with closing(store.lock_database(may_be_new=True)):
        prepare_database(configured)
        owner, made = bootstrap(config, key) or (None, "")
        link = make_link(config, owner, owner)[0] if owner else ""
    click.echo(f"The database {database.db.database} is ready.")
    if owner is None:
        click.echo("The workspace already has an owner.")
        port = f"PORT={os.environ['PORT']} " if "PORT" in os.environ else ""
        email = fetch_actor(None)["email"]
        click.echo(f"To sign in, get a link:  {port}{settings.program} member link {email}")
        return
    click.echo(f"The first owner is {owner['full_name']} <{owner['email']}>.\n")
    click.echo(f"Sign in with this link, once, within a day:  {link}\n")
    if key:
        click.echo("The first owner has the API key from the configuration.")
    else:
        url = config["SERVER"]["base_url"]
        click.echo(f"API key for programs, shown only now:  {made}")
        click.echo(f'Try it:  curl -H "Authorization: Bearer {made}" {url}{schemas.API}/context')
    if not config["LIMITS"]["requests_per_minute"]:
        click.echo("\nBefore others can reach the service, set limits.requests_per_minute, such as to 600.")


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", metavar="[OPTION OF GUNICORN]...", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Serve the workspace.

    Further options, such as `-b :9000`, go to gunicorn.
    """
    sys.argv[1:] = ["-c", str(HOME / "gunicorn.conf.py"), *arguments]
    sys.path.append(gunicorn.util.getcwd())  # or gunicorn would put it before our own modules
    gunicorn.app.wsgiapp.run(prog=f"{settings.program} serve")


@cli.command()
def version() -> None:
    """Print the versions of the program, of SQLite and of Python."""
    click.echo(about())


def about() -> str:
    commit = ""
    if (HOME / ".git").exists():  # else git would look in the folders above
        words = ("git", "-c", f"safe.directory={HOME}", "-C", str(HOME), "rev-parse", "--short", "HEAD")
        with suppress(OSError, SubprocessError):
            commit = f" ({check_output(words, text=True, stderr=DEVNULL).strip()})"  # noqa: S603 - no shell
    last = max(store.MIGRATIONS.glob("*.py")).stem
    runs_on = f"SQLite {sqlite3.sqlite_version}, Python {platform.python_version()}"
    return f"Task service {settings.VERSION}{commit}, last migration {last}, {runs_on}"


def find_id(noun: str, column: str, name: str, rows: list[database.Row]) -> str:
    """Return the id of the row with this id, or this name in `column`. Raises `ClickException`."""
    ids = [row["id"] for row in rows if name in (row["id"], row[column])]
    if len(ids) != 1:
        problem = f"{len(ids) or 'no'} {noun}s have the id or {column} {name}"
        raise click.ClickException(f"{problem}; see: {settings.program} {noun} list")
    return ids[0]


def make_link(config: dict[str, Any], actor: database.Row, member: database.Row) -> tuple[str, str]:
    """Make a link for the member; return it, and when it expires."""
    days = config["WORKSPACE"]["invitation_days"]
    with models.write(actor) as transaction:
        _, token, expires_at = members.Invitation.renew(transaction, member["id"], days)
    return members.Invitation.link(config, token), expires_at


@as_click_errors(LookupError)
def configure_webhooks() -> None:
    """Set up this process to send to the webhooks and to have links mailed. Raises `ClickException`."""
    config = current_app.config
    webhooks.configure(read_webhooks(config), config["DELIVERY"])
    service: Any = current_app  # which has `starts`
    for start in service.starts:
        start(config, None)  # no secrets


def exit_on_sigterm() -> None:
    """Make SIGTERM raise `SystemExit`, so that `finally` blocks delete incomplete files."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
