"""The command line, `flask --app app …` or `tasks …`: thin commands over the other modules."""

import math
import os
import platform
import re
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
import times
import webhooks
from errors import ApiError
from outbox import Delivery
from settings import bootstrap_key
from startup import bootstrap, check_webhooks, create_database

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


folder = click.Path(file_okay=False, path_type=Path)
as_option = click.option("--as", "email", metavar="EMAIL", help="Act as this member (default: first owner).")


@cli.command()
@with_appcontext
@as_click_errors(ApiError, database.BadDatabase, LookupError)
def init() -> None:
    """Create the database and the first owner, and say how to sign in.

    The owner signs in with a link, and programs use an API key; both are printed once. The configuration
    can set name, address and key under [bootstrap]; such a key is never printed. If the database and an
    owner exist, nothing changes.
    """
    config = current_app.config
    check_user()
    configured = check_webhooks(config)
    key = bootstrap_key(config)
    with closing(store.lock_database(may_be_new=True)):
        create_database(configured)
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


key_commands = click.Group("key", help="Create, list and revoke API keys.")
cli.add_command(key_commands)


@key_commands.command("create")
@click.option("--member", "holder_email", metavar="EMAIL", help="The key's member (default: first owner).")
@click.option("--name", default="command line", show_default=True, help="What the key is for.")
@click.option("--scope", type=click.Choice(members.SCOPES), default="write", show_default=True)
@click.option("--days", type=click.FloatRange(0.0001, 36500), help="Days until it expires (default: never).")
@as_option
@in_database
def key_create(holder_email: str | None, days: float | None, email: str | None, **fields: str) -> None:
    """Create an API key, and print it once."""
    fields = load_fields(schemas.CREATE_KEY, **fields)
    holder, actor = fetch_actor(holder_email), fetch_actor(email)
    if not holder_email and actor["role"] != "owner":
        raise click.UsageError("give the key's member with --member (without it, the first owner)")
    if days is not None and math.isnan(days):
        raise click.UsageError("--days must be a number")
    expires_at = times.now(days * 86400) if days else None
    with models.write(actor) as transaction:
        _, key = members.ApiKey.grant(transaction, member_id=holder["id"], expires_at=expires_at, **fields)
    click.echo(key)


@key_commands.command("list")
@in_database
def key_list() -> None:
    """List all keys by their prefixes. Whole keys are not stored."""
    table(
        members.ApiKey.shown_rows.all(),
        "PREFIX MEMBER NAME SCOPE CREATED CREATOR LAST-USED EXPIRES REVOKED ID",
        "prefix member.email name scope created_at creator.email last_used_at expires_at revoked_at id",
    )


@key_commands.command("revoke")
@click.argument("id_or_prefix")
@as_option
@in_database
def key_revoke(id_or_prefix: str, email: str | None) -> None:
    """Revoke the key with this id or prefix, which `key list` prints."""
    # A whole key is accepted too; only its prefix may be printed.
    name = id_or_prefix if schemas.Id.PATTERN.fullmatch(id_or_prefix) else id_or_prefix[:12]
    key = members.ApiKey.shown(find_id("key", "prefix", name, members.ApiKey.shown_rows.all()))
    with models.write(fetch_actor(email)) as transaction:
        members.ApiKey.revoke(transaction, key["id"])
    click.echo(f"Revoked {key['prefix']}… of {key['member']['email']}.")


member_commands = click.Group("member", help="List and invite members, and let them sign in.")
cli.add_command(member_commands)


@member_commands.command("list")
@in_database
def member_list() -> None:
    """List the team, the clients and all invited people."""
    everyone = members.Member.everyone()
    table(everyone, "NAME EMAIL ROLE STATUS JOINED ID", "full_name email role status joined_at id")


@member_commands.command("invite")
@click.argument("address", metavar="EMAIL")
@click.argument("full_name")
@click.option("--role", type=click.Choice(members.ROLES), default="member", show_default=True)
@click.option("--phone", "phone_number", help="The person's phone number.")
@click.option(
    "--project", "projects", multiple=True, help="Show a client only this project; may be repeated."
)
@as_option
@in_database
def member_invite(address: str, email: str | None, projects: tuple[str, ...], **fields: str | None) -> None:
    """Invite a person, and print the link with which they join."""
    listing = models.Project.listing()
    ids = [find_id("project", "name", name, listing) for name in projects] or None
    invitation = load_fields(schemas.INVITE_MEMBER, email=address, project_ids=ids, **fields)
    config = current_app.config
    configure_webhooks()
    with models.write(fetch_actor(email, "admin")) as transaction:
        days = config["WORKSPACE"]["invitation_days"]
        member, token, expires_at, _ = members.Invitation.invite(transaction, days, **invitation)
        webhooks.announce(transaction, models.Task.take_unseen(transaction, member))
        webhooks.emit(transaction, "member.invited", {"member": member})
    print_link(members.Invitation.link(config, token), expires_at)
    webhooks.deliver(transaction)


def find_id(noun: str, column: str, name: str, rows: list[database.Row]) -> str:
    """Return the id of the row with this id, or this name in `column`. Raises `ClickException`."""
    ids = [row["id"] for row in rows if name in (row["id"], row[column])]
    if len(ids) != 1:
        problem = f"{len(ids) or 'no'} {noun}s have the id or {column} {name}"
        raise click.ClickException(f"{problem}; see: {settings.program} {noun} list")
    return ids[0]


@member_commands.command("link")
@click.argument("address", metavar="EMAIL")
@as_option
@in_database
def member_link(address: str, email: str | None) -> None:
    """Print a link with which a member signs in or joins."""
    member = members.Member.by_email.one(email=address.strip().lower())
    if not member:
        raise click.ClickException(f"no member {address}")
    configure_webhooks()
    print_link(*make_link(current_app.config, fetch_actor(email), member))


def make_link(config: dict[str, Any], actor: database.Row, member: database.Row) -> tuple[str, str]:
    """Make a link for the member; return it, and when it expires."""
    days = config["WORKSPACE"]["invitation_days"]
    with models.write(actor) as transaction:
        _, token, expires_at = members.Invitation.renew(transaction, member["id"], days)
    return members.Invitation.link(config, token), expires_at


@member_commands.command("add")
@click.argument("full_name", metavar="NAME")
@click.option("--role", type=click.Choice(members.ROLES[1:]), default="member", show_default=True)
@click.option("--email", "address", help="Default: the owner's address with +NAME.")
@click.option("--scope", type=click.Choice(members.SCOPES), default="write", show_default=True)
@click.option("--agent", is_flag=True, help="An AI agent: the same as --scope agent.")
@as_option
@in_database
def member_add(address: str | None, scope: str, agent: bool, email: str | None, **fields: str) -> None:
    """Add an active member, such as an AI agent, and print its API key."""
    scope = "agent" if agent else scope
    actor = fetch_actor(email, "admin")
    user, _, domain = actor["email"].partition("@")
    name = re.sub("[^a-z0-9]+", "-", database.fold(fields["full_name"])).strip("-")
    if not (address or name):
        raise click.UsageError("no address can be made of this name; give one with --email")
    address = address or f"{user.partition('+')[0]}+{name}@{domain}"
    loaded = load_fields(schemas.INVITE_MEMBER, email=address, **fields)
    configure_webhooks()
    with models.write(actor) as transaction:
        loaded |= {"mail": "never"} if scope == "agent" else {}
        member = members.Member.add(transaction, status=members.Member.ACTIVE, **loaded)
        members.Member.record(transaction, "created", member)
        _, key = members.ApiKey.issue(transaction, member["id"], name=member["full_name"], scope=scope)
        webhooks.emit(transaction, "member.joined", {"member": member})
    click.echo(key)
    click.echo(f"{member['full_name']} <{member['email']}> is a member; this is its API key.", err=True)
    webhooks.deliver(transaction)


def print_link(link: str, expires_at: str) -> None:
    click.echo(link)
    click.echo(f"The link works once, until {expires_at}.", err=True)


project_commands = click.Group("project", help="Create and list projects.")
cli.add_command(project_commands)


@project_commands.command("create")
@click.argument("name")
@click.option("--description", help="What the project is about.")
@as_option
@in_database
def project_create(email: str | None, **fields: str | None) -> None:
    """Create a project, and print its id."""
    fields = load_fields(schemas.CREATE_PROJECT, **fields)
    with models.write(fetch_actor(email, "member")) as transaction:
        click.echo(models.Project.add(transaction, **fields)["id"])


@project_commands.command("list")
@in_database
def project_list() -> None:
    """List the projects with the numbers of their tasks."""
    table(
        models.Project.listing(),
        "NAME STATUS TASKS DONE OVERDUE OWNER ID",
        "name status stats.total stats.done stats.overdue owner.email id",
    )


@as_click_errors(LookupError)
def configure_webhooks() -> None:
    """Set up this process to send to the webhooks and to have links mailed. Raises `ClickException`."""
    config = current_app.config
    webhooks.configure(check_webhooks(config), config["DELIVERY"])
    service: Any = current_app  # which has `starts`
    for start in service.starts:
        start(config, None)


@cli.command()
@in_database
def deliver_command() -> None:
    """Send all deliveries that are due, once.

    The server sends them too, unless delivery.sweeper is false.
    """
    configure_webhooks()
    with suppress(database.BadDatabase), closing(store.lock_server()), models.write():
        Delivery.release_all.run()  # no server runs: the deliveries that it was sending are due now
    accepted = sum(map(webhooks.drain, webhooks.due_ids()))
    pending = Delivery.pending.value()
    click.echo(f"Accepted: {accepted}. Waiting for their next try (see webhook list): {pending}.")


def exit_on_sigterm() -> None:
    """Make SIGTERM raise `SystemExit`, so that `finally` blocks delete incomplete files."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
