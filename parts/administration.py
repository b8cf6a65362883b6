"""The commands `key`, `member` and `project`, for whoever runs the service."""

import math
import re

import click
from flask import current_app

import commands
import database
import members
import models
import schemas
import times
import webhooks

key_commands = click.Group("key", help="Create, list and revoke API keys.")
commands.cli.add_command(key_commands)


@key_commands.command("create")
@click.option("--member", "holder_email", metavar="EMAIL", help="The key's member (default: first owner).")
@click.option("--name", default="command line", show_default=True, help="What the key is for.")
@click.option("--scope", type=click.Choice(members.SCOPES), default="write", show_default=True)
@click.option("--days", type=click.FloatRange(0.0001, 36500), help="Days until it expires (default: never).")
@commands.as_option
@commands.in_database
def key_create(holder_email: str | None, days: float | None, email: str | None, **fields: str) -> None:
    """Create an API key, and print it once."""
    fields = commands.load_fields(schemas.CREATE_KEY, **fields)
    holder, actor = commands.fetch_actor(holder_email), commands.fetch_actor(email)
    if not holder_email and actor["role"] != "owner":
        raise click.UsageError("give the key's member with --member (without it, the first owner)")
    if days is not None and math.isnan(days):
        raise click.UsageError("--days must be a number")
    expires_at = times.now(days * 86400) if days else None
    with models.write(actor) as transaction:
        _, key = members.ApiKey.grant(transaction, member_id=holder["id"], expires_at=expires_at, **fields)
    click.echo(key)


@key_commands.command("list")
@commands.in_database
def key_list() -> None:
    """List all keys by their prefixes. Whole keys are not stored."""
    commands.table(
        members.ApiKey.shown_rows.all(),
        "PREFIX MEMBER NAME SCOPE CREATED CREATOR LAST-USED EXPIRES REVOKED ID",
        "prefix member.email name scope created_at creator.email last_used_at expires_at revoked_at id",
    )


@key_commands.command("revoke")
@click.argument("id_or_prefix")
@commands.as_option
@commands.in_database
def key_revoke(id_or_prefix: str, email: str | None) -> None:
    """Revoke the key with this id or prefix, which `key list` prints."""
    # A whole key is accepted too; only its prefix may be printed.
    name = id_or_prefix if schemas.Id.PATTERN.fullmatch(id_or_prefix) else id_or_prefix[:12]
    key = members.ApiKey.shown(commands.find_id("key", "prefix", name, members.ApiKey.shown_rows.all()))
    with models.write(commands.fetch_actor(email)) as transaction:
        members.ApiKey.revoke(transaction, key["id"])
    click.echo(f"Revoked {key['prefix']}… of {key['member']['email']}.")


member_commands = click.Group("member", help="List and invite members, and let them sign in.")
commands.cli.add_command(member_commands)


@member_commands.command("list")
@commands.in_database
def member_list() -> None:
    """List the team, the clients and all invited people."""
    everyone = members.Member.everyone()
    commands.table(everyone, "NAME EMAIL ROLE STATUS JOINED ID", "full_name email role status joined_at id")


@member_commands.command("invite")
@click.argument("address", metavar="EMAIL")
@click.argument("full_name")
@click.option("--role", type=click.Choice(members.ROLES), default="member", show_default=True)
@click.option("--phone", "phone_number", help="The person's phone number.")
@click.option(
    "--project", "projects", multiple=True, help="Show a client only this project; may be repeated."
)
@commands.as_option
@commands.in_database
def member_invite(address: str, email: str | None, projects: tuple[str, ...], **fields: str | None) -> None:
    """Invite a person, and print the link with which they join."""
    listing = models.Project.listing()
    ids = [commands.find_id("project", "name", name, listing) for name in projects] or None
    invitation = commands.load_fields(schemas.INVITE_MEMBER, email=address, project_ids=ids, **fields)
    config = current_app.config
    commands.configure_webhooks()
    with models.write(commands.fetch_actor(email, "admin")) as transaction:
        days = config["WORKSPACE"]["invitation_days"]
        member, token, expires_at, _ = members.Invitation.invite(transaction, days, **invitation)
        webhooks.announce(transaction, models.Task.unassign_unseen(transaction, member))
        webhooks.emit(transaction, "member.invited", {"member": member})
    print_link(members.Invitation.link(config, token), expires_at)
    webhooks.deliver(transaction)


@member_commands.command("link")
@click.argument("address", metavar="EMAIL")
@commands.as_option
@commands.in_database
def member_link(address: str, email: str | None) -> None:
    """Print a link with which a member signs in or joins."""
    member = members.Member.by_email.one(email=address.strip().lower())
    if not member:
        raise click.ClickException(f"no member {address}")
    commands.configure_webhooks()
    print_link(*commands.make_link(current_app.config, commands.fetch_actor(email), member))


@member_commands.command("add")
@click.argument("full_name", metavar="NAME")
@click.option("--role", type=click.Choice(members.ROLES[1:]), default="member", show_default=True)
@click.option("--email", "address", help="Default: the owner's address with +NAME.")
@click.option("--scope", type=click.Choice(members.SCOPES), default="write", show_default=True)
@click.option("--agent", is_flag=True, help="An AI agent: the same as --scope agent.")
@commands.as_option
@commands.in_database
def member_add(address: str | None, scope: str, agent: bool, email: str | None, **fields: str) -> None:
    """Add an active member, such as an AI agent, and print its API key."""
    scope = "agent" if agent else scope
    actor = commands.fetch_actor(email, "admin")
    user, _, domain = actor["email"].partition("@")
    name = re.sub("[^a-z0-9]+", "-", database.fold(fields["full_name"])).strip("-")
    if not (address or name):
        raise click.UsageError("no address can be made of this name; give one with --email")
    address = address or f"{user.partition('+')[0]}+{name}@{domain}"
    loaded = commands.load_fields(schemas.INVITE_MEMBER, email=address, **fields)
    commands.configure_webhooks()
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
commands.cli.add_command(project_commands)


@project_commands.command("create")
@click.argument("name")
@click.option("--description", help="What the project is about.")
@commands.as_option
@commands.in_database
def project_create(email: str | None, **fields: str | None) -> None:
    """Create a project, and print its id."""
    fields = commands.load_fields(schemas.CREATE_PROJECT, **fields)
    with models.write(commands.fetch_actor(email, "member")) as transaction:
        click.echo(models.Project.add(transaction, **fields)["id"])


@project_commands.command("list")
@commands.in_database
def project_list() -> None:
    """List the projects with the numbers of their tasks."""
    commands.table(
        models.Project.listing(),
        "NAME STATUS TASKS DONE OVERDUE OWNER ID",
        "name status stats.total stats.done stats.overdue owner.email id",
    )
