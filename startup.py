"""What a server does at its start and at a reload: it locks the database, and applies its configuration."""

import logging
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

import gateway
import mail
import webhooks
from database import DATABASE_ERRORS, Row, db, is_missing, lock_database, prepare
from errors import Unavailable
from members import ApiKey, Member, Transaction
from models import write
from outbox import Delivery, Webhook
from schemas import Instant
from settings import bootstrap_key, mail_password, resolve_webhooks, without_paths

log = logging.getLogger("tasks")


@dataclass
class Running:
    """What the server holds since its start or its last reload."""

    webhooks: list[Row]  # with their secrets
    mail_password: str | None
    path: str  # of the database
    locks: ExitStack  # of the database, which the workers inherit: it is free when all of them have ended


running = Running([], None, "", ExitStack())


def prepare_server(config: dict[str, Any]) -> Running:
    """Resolve the secrets, and lock and upgrade a database. Raises `BadDatabase` and `LookupError`."""
    configured, key, password = check_webhooks(config), bootstrap_key(config), mail_password(config)
    if running.path == db.database:
        return replace(running, webhooks=configured, mail_password=password)
    with ExitStack() as locks:
        # Without `bootstrap.api_key` a missing file is a wrong path, and no wish for a new workspace.
        locks.enter_context(lock_database(may_be_new=key is not None))
        if is_missing():
            log.warning("There was no database at %s; a new one is made", db.database)
        create_database(configured, locks)
        log.info("The database is %s", db.database)
        if key and (made := bootstrap(config, key)):
            log.info("The first owner is %s, with the API key from the configuration", made[0]["email"])
        with suppress(Unavailable, *DATABASE_ERRORS), write():  # else the leases expire
            Delivery.release_of_all.run()
        return Running(configured, password, db.database, locks.pop_all())


def take_over(config: dict[str, Any], new: Running, threads: int) -> None:
    """Store the webhooks, and set webhooks and routes with their secrets for the workers to inherit."""
    global running
    try:
        for name in store_webhooks(new.webhooks):
            message = "webhook %s is no longer configured; its events wait until it is back"
            log.warning(message, without_paths(name))
    except (Unavailable, *DATABASE_ERRORS) as error:  # the configuration is right, but the database is busy
        log.error("the webhooks are as they were until the next reload: %s", error)
    webhooks.configure(new.webhooks, config["DELIVERY"], threads)
    mail.configure_mail(config, new.mail_password)
    gateway.open_routes(config)
    Instant.zone = ZoneInfo(config["WORKSPACE"]["timezone"])
    db.disconnect()  # before the fork
    if running.locks is not new.locks:
        running.locks.close()
    running = new


def create_database(configured: list[Row], locks: ExitStack | None = None) -> None:
    """Create or upgrade the database; a new one has these webhooks. Raises `BadDatabase`."""
    is_new = is_missing()
    applied = prepare(locks)
    if is_new:
        store_webhooks(configured)
        return
    for name in applied:
        log.info("The database is upgraded by %s", name)


def bootstrap(config: dict[str, Any], key: str | None) -> tuple[Row, str] | None:
    """Add the first owner with this key, or a new one; returns both, or None where there is an owner."""
    with write() as transaction:
        return None if Member.active_owners.one() else add_owner(transaction, config, key)


def add_owner(transaction: Transaction, config: dict[str, Any], key: str | None) -> tuple[Row, str]:
    """Add the configuration's owner, who becomes the actor, with this key or a new one; returns both."""
    settings = config["BOOTSTRAP"]
    owner = Member.bootstrap(transaction, full_name=settings["owner_name"], email=settings["owner_email"])
    return owner, ApiKey.issue(transaction, owner["id"], name="bootstrap", key=key)[1]


def check_webhooks(config: dict[str, Any]) -> list[Row]:
    """The configured webhooks with their secrets. Raises `LookupError` for what cannot be read."""
    webhooks.tls_context(config["DELIVERY"]["ca_file"])
    return resolve_webhooks(config)


def store_webhooks(configured: list[Row]) -> list[str]:
    """Update the table of webhooks from those of `check_webhooks`; returns the names of those that left it.

    Only `init` and the server do this: the environment of a command may contain another configuration.
    """
    with write() as transaction:
        return Webhook.mirror(transaction, configured)
