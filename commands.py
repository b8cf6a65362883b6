"""The command line, `flask --app app …` or `tasks …`: thin commands over the other modules."""

import math
import os
import platform
import re
import shutil
import signal
import sqlite3
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from fnmatch import fnmatchcase
from functools import reduce, wraps
from pathlib import Path
from subprocess import DEVNULL, SubprocessError, check_output
from typing import Any

import click
import gunicorn.app.wsgiapp
import requests
from flask import current_app
from flask.cli import with_appcontext
from marshmallow import Schema, ValidationError
from requests.adapters import HTTPAdapter
from urllib3 import Retry

import database
import gateway
import limits
import members
import models
import schemas
import settings
import store
import times
import webhooks
from errors import ApiError
from outbox import Delivery, Webhook
from settings import Unset, bootstrap_key, exposed_secrets
from startup import bootstrap, check_webhooks, create_database

NO_OWNER = f"there is no owner yet; run: {settings.program} init"
HOME = Path(__file__).parent  # where gunicorn and flask find their files
BACKUP_AGE = 36 * 3600  # seconds; the newest of nightly backups is never older
LEAST_FREE = 64 * 2**20  # bytes on the disk; a change needs few, a long log or a copy many
SAFE_SQLITE = (3, 51, 3)  # older versions can, very rarely, corrupt a WAL database that has several writers
EVENTS_SINCE = click.DateTime(["%H:%M", "%Y-%m-%d", "%Y-%m-%dT%H:%M"])
# While a service is unreachable or overloaded.
AWAY = Retry(None, status_forcelist=(429, 502, 503, 504), backoff_factor=0.1, backoff_max=10)

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
    return f"Task service {schemas.VERSION}{commit}, last migration {last}, {runs_on}"


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


webhook_commands = click.Group("webhook", help="List, test and enable webhooks.")
cli.add_command(webhook_commands)


@as_click_errors(LookupError)
def configure_webhooks() -> None:
    """Set up this process to send to the webhooks and to have links mailed. Raises `ClickException`."""
    config = current_app.config
    webhooks.configure(check_webhooks(config), config["DELIVERY"])
    for start in current_app.starts:
        start(config, None)


def webhook_id(name: str) -> str:
    return find_id("webhook", "name", name, Webhook.listing())


def send_and_report(transaction: members.Transaction, delivery_id: str) -> None:
    """Send the delivery and print the result. Raises `ClickException` if it is not accepted."""
    webhooks.deliver(transaction)
    delivery = Delivery.shown(delivery_id)
    if delivery["status"] != "delivered":
        outcome = "it is tried again" if delivery["status"] == "pending" else f"it is {delivery['status']}"
        raise click.ClickException(f"not delivered ({delivery['last_error'] or 'not sent yet'}); {outcome}")
    status, milliseconds = delivery["last_status"], delivery["duration_ms"]
    click.echo(f"{delivery['webhook']} answered {status} after {milliseconds} ms.")


@webhook_commands.command("list")
@in_database
def webhook_list() -> None:
    """List the webhooks, as of the server's start or last reload."""
    table(
        Webhook.listing(),
        "NAME STATE PENDING FAILURES FAILING-SINCE LAST-ERROR NEXT-TRY REASON HEADER URL",
        "name state pending failures first_failure_at last_error open_until reason header_name url",
    )


@webhook_commands.command("test")
@click.argument("name")
@as_option
@in_database
def webhook_test(name: str, email: str | None) -> None:
    """Send a ping to the webhook NAME, and print its answer."""
    configure_webhooks()
    with models.write(fetch_actor(email, "admin")) as transaction:
        delivery_id = webhooks.ping(transaction, webhook_id(name))
    send_and_report(transaction, delivery_id)


@webhook_commands.command("enable")
@click.argument("name")
@in_database
def webhook_enable(name: str) -> None:
    """Enable a disabled webhook; events that waited are sent first."""
    with models.write() as transaction:
        webhooks.enable(transaction, webhook_id(name))
    click.echo(f"{name} is active.")


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


@cli.command()
@click.argument("delivery_id")
@in_database
def redeliver_command(delivery_id: str) -> None:
    """Send a delivery again, with the same id and body."""
    configure_webhooks()
    with models.write() as transaction:
        webhooks.redeliver(transaction, delivery_id)
    send_and_report(transaction, delivery_id)


@cli.command()
@click.option("--forward-to", "target", required=True, metavar="URL", help="The program that gets the calls.")
@click.option("--events", "names", multiple=True, default=["*"], metavar="NAME", help="Such as task.* only.")
@click.option("--since", type=EVENTS_SINCE, help="Begin with the events of that time, up to 30 days ago.")
@click.option("--url", envvar="TASKS_URL", required=True, help="The service (default: TASKS_URL).")
@click.option("--key", envvar="TASKS_KEY", required=True, help="An admin's API key (default: TASKS_KEY).")
@as_click_errors(requests.RequestException)
def listen(target: str, names: tuple[str, ...], since: datetime | None, url: str, key: str) -> None:
    """Post a service's events to a program here, until Ctrl-C.

    This needs no database or configuration here, and changes nothing on the service. The calls are like a
    webhook's. They are signed with a secret that is printed first; the same key has the same secret. Each
    event is sent once, and the response is printed. While the service is unreachable, it is tried again.
    """
    signal.signal(signal.SIGINT, lambda *_: sys.exit())
    if since and since.year == 1900:  # a time of today
        since = datetime.combine(datetime.now(), since.time())
    webhook = {"url": target, "format": "json", "secrets": [database.digest(f"listen {key}")]}
    webhooks.sending.adapter = webhooks.Adapter(webhooks.tls_context(None), 1, 1)
    query: dict[str, Any] = {"limit": 1}
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {key}"
        while True:
            response = session.get(f"{url.rstrip('/')}{schemas.API}/events", params=query, timeout=60)
            if response.headers.get("Content-Type") != "application/json":
                raise click.ClickException(f"{url} is not the address of a task service")
            answer = response.json()
            if not response.ok:
                raise click.ClickException(answer["error"]["message"])
            if "wait" not in query:  # the address is right; from now on the service is waited for
                click.echo(f"Secret: {webhook['secrets'][0]}")
                session.mount(url, HTTPAdapter(max_retries=AWAY))
                begin = min(times.instant(since) if since else "9999", answer["meta"]["timestamp"])
                query = {"limit": 100, "wait": limits.WAIT_SECONDS, "since": begin}
                continue
            for event in answer["data"]["events"]:
                if any(fnmatchcase(event["event"], name) for name in names):
                    forward(event, webhook)
            query["after"] = answer["data"]["pagination"]["next_after"]


def forward(event: database.Row, webhook: database.Row) -> None:
    """Post the event once, and print the response."""
    id, name, body = event["id"], event["event"], database.to_json(event).decode()
    result = webhooks.send({"id": id, "event_id": id, "event": name, "body": body}, webhook, 15.0)
    click.echo(f"{event['timestamp']} {name} {id}: {result.error or f'answered {result.status}'}")


def exit_on_sigterm() -> None:
    """Make SIGTERM raise `SystemExit`, so that `finally` blocks delete incomplete files."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


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
    store.backup(file)
    click.echo(f"{file}: {file.stat().st_size:,} bytes, in order.")


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@with_appcontext
@as_click_errors(database.BadDatabase)
def restore_command(file: Path) -> None:
    """Replace the database with the backup FILE.

    Stop the server before. The replaced database is kept beside the new one. A backup of an older
    version is upgraded when the server starts.
    """
    check_user()
    exit_on_sigterm()
    if old := store.restore(file):
        click.echo(f"The replaced database is now {old}.")
    click.echo(f"{database.db.database} is restored; start the server.")


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
    problems += exposed_secrets(config) + gateway_problems(config)
    for check in current_app.problems:
        try:
            problems += check(config)
        except Unset as error:
            click.echo(f"note: {error} here; the service may have it")
        except LookupError as error:
            problems.append(str(error))
    for part in ([], *([webhook] for webhook in config["WEBHOOKS"])):  # one by one: no note hides a problem
        try:
            check_webhooks(config | {"WEBHOOKS": part})
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


def database_problems() -> list[str]:
    """Print notes on the database, and return its problems."""
    problems: list[str] = []
    try:
        problems += store.integrity_problems()
        if count := models.Attachment.incomplete.value():
            problems.append(f"attachments without all of their content: {count}; restore a backup")
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
    folder, age = store.backups(), store.backup_age()
    if age is None and os.path.lexists(folder):
        return [f"no backup (*.db) can be seen in {folder}"]
    if age is None:
        text = f"no backup yet; create {folder}, and run {settings.program} backup {folder}/FILE.db"
        return [text] if store.database_age() >= BACKUP_AGE else []
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
        if webhook["state"] == "disabled" and reason != Webhook.LEFT:
            problems.append(f"the webhook {name} is disabled ({reason}); run: webhook enable {name}")
    return problems


def gateway_problems(config: dict[str, Any]) -> list[str]:
    """Print the gateway's routes and the providers of secrets, and return why routes are skipped."""
    problems = []
    for id, route, secret in gateway.resolved_routes(config):
        state = "served" if isinstance(secret, str) else "unknown" if isinstance(secret, Unset) else "skipped"
        click.echo(f"route {id}: {route['path']} for {route['session_key']}: {state}")
        if state == "unknown":
            click.echo(f"note: route {id}: its secret: {secret} here; the service may have it")
        if state == "skipped":
            problems.append(f"route {id} is skipped: its secret: {secret}")
    for alias, provider in config["SECRETS"]["providers"].items():
        if file := provider.get("path") or provider.get("command"):
            path = Path(file).expanduser()
            mode = stat.filemode(path.lstat().st_mode) if path.exists() else "does not exist"
            click.echo(f"provider {alias}: {path}: {mode}")
    return problems
