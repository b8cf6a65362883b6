"""The start and the reload of a server: it locks the database and applies its configuration."""

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import gateway
import times
import webhooks
from database import DATABASE_ERRORS, BadDatabase, Row, db
from errors import Unavailable
from members import HIDDEN_DAYS, SESSION_DAYS, Activity, ApiKey, Member, Transaction
from models import write
from outbox import Delivery, Webhook
from settings import bootstrap_key, mail_password, resolve_webhooks, without_paths
from store import as_bad_database, is_missing, lock_database, prepare
from sweeper import Sweeper, in_steps, prune_deliveries
from wire import StoredResponse

log = logging.getLogger("tasks")
locks = ExitStack()  # of the database; the workers inherit them, so it is locked until all have ended


class Secrets(NamedTuple):
    """The secrets of a configuration, read at the start and at each reload."""

    webhooks: list[Row]  # with their secrets
    mail_password: str | None
    owner_key: str | None  # of the first owner


def read_secrets(config: dict[str, Any]) -> Secrets:
    """Read the secrets of a configuration. Raises `LookupError` for one that cannot be read."""
    return Secrets(read_webhooks(config), mail_password(config), bootstrap_key(config))


def open_database(config: dict[str, Any], secrets: Secrets) -> None:
    """Lock the database, and create or upgrade it. Raises `BadDatabase`."""
    # Without `bootstrap.api_key`, a missing file means a wrong path, not a new workspace.
    locks.enter_context(lock_database(may_be_new=secrets.owner_key is not None))
    if is_missing():
        log.warning("No database at %s: creating a new one", db.database)
    with as_bad_database(Path(db.database)):
        prepare_database(secrets.webhooks, locks)
        log.info("The database is %s", db.database)
        if secrets.owner_key and (made := bootstrap(config, secrets.owner_key)):
            log.info("The first owner is %s, with the API key from the configuration", made[0]["email"])
    with suppress(Unavailable, *DATABASE_ERRORS), write():  # else the leases expire
        Delivery.release_all.run()


def apply_configuration(app: Any, secrets: Secrets, threads: int, *, is_reload: bool = False) -> None:
    """Store the webhooks, and apply the configuration to this process, which the workers inherit.

    Raises `BadDatabase` if the webhooks cannot be stored: a new one would get no events. A reload continues
    with the stored ones.
    """
    config = app.config
    try:
        with as_bad_database(Path(db.database)):
            for name in store_webhooks(secrets.webhooks):
                message = "webhook %s is no longer configured; its events wait until it is configured again"
                log.warning(message, without_paths(name))
    except BadDatabase as error:
        if not is_reload:
            raise
        log.error("the webhooks stay as they were until the next reload: %s", error)
    webhooks.configure(secrets.webhooks, config["DELIVERY"], threads)
    gateway.open_routes(config)
    for start in app.starts:
        start(config, secrets)
    times.zone = ZoneInfo(config["WORKSPACE"]["timezone"])
    db.disconnect()  # before the fork


def start_sweeper(app: Any) -> Sweeper:
    """Start the worker's threads for deliveries, hourly chores, and errands."""
    days = app.config["WORKSPACE"]["activity_days"]
    chores: list[Callable[[], object]] = [
        prune_deliveries,
        gateway.prune_flows,
        lambda: in_steps(StoredResponse.delete_old.run, before=times.now(-StoredResponse.DAY)),
        # For each session, SQLite scans all activity and comments for references.
        lambda: in_steps(ApiKey.delete_ended.run, most=1, before=times.now(-SESSION_DAYS * 86400)),
        lambda: in_steps(
            Activity.delete_old.run,
            before=times.first_id(times.now(), -days * 86400) if days else "",  # 0: it is kept forever
            after="",
            until=times.first_id(times.now(), -HIDDEN_DAYS * 86400),
        ),
        *app.chores,
    ]
    sweeper = Sweeper(Path(f"{db.database}.sender"), chores, app.errands, app.notes)
    sweeper.start()
    return sweeper


def prepare_database(configured: list[Row], locks: ExitStack | None = None) -> None:
    """Create or upgrade the database; a new one gets these webhooks. Raises `BadDatabase`."""
    is_new = is_missing()
    applied = prepare(locks)
    if is_new:
        store_webhooks(configured)
        return
    for name in applied:
        log.info("The database is upgraded by %s", name)


def bootstrap(config: dict[str, Any], key: str | None) -> tuple[Row, str] | None:
    """Add the first owner with this key, or a new one; return both, or None if there is an owner."""
    if Member.active_owners.one():  # a database that another program has locked can still be served
        return None
    with write() as transaction:  # another process may have added an owner meanwhile
        return None if Member.active_owners.one() else add_owner(transaction, config, key)


def add_owner(transaction: Transaction, config: dict[str, Any], key: str | None) -> tuple[Row, str]:
    """Add the configuration's owner, who becomes the actor, with this key or a new one; return both."""
    settings = config["BOOTSTRAP"]
    owner = Member.bootstrap(transaction, full_name=settings["owner_name"], email=settings["owner_email"])
    return owner, ApiKey.issue(transaction, owner["id"], name="bootstrap", key=key)[1]


def read_webhooks(config: dict[str, Any]) -> list[Row]:
    """Return the configured webhooks with their secrets. Raises `LookupError` for one that cannot be read."""
    if ca_file := config["DELIVERY"]["ca_file"]:
        webhooks.tls_context(ca_file)
    return resolve_webhooks(config)


def store_webhooks(configured: list[Row]) -> list[str]:
    """Store the webhooks of `read_webhooks`; return the names of those that are no longer configured.

    Only `init` and the server do this: the environment of a command may contain another configuration.
    """
    if Webhook.is_mirrored(configured):  # as in `bootstrap`: the database may be locked
        return []
    with write() as transaction:
        return Webhook.mirror(transaction, configured)
