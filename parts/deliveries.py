"""Webhooks and their deliveries: show, test and enable them, and send what is due, or again."""

from contextlib import closing, suppress
from functools import lru_cache
from typing import Any

import click
from peewee import SQL, Case, Query, fn

import members
import models
import outbox
import schemas
import webhooks
from app import api, mail_state
from commands import as_option, cli, configure_webhooks, fetch_actor, find_id, in_database, table
from database import BadDatabase, Row, Statement, columns, placeholder
from errors import Conflict, not_found
from lists import COUNT_LIMIT, pagination
from members import Transaction
from outbox import Delivery, Event, Webhook
from store import lock_server
from times import now
from webhooks import LEASE_GRACE, emit, log_deleted
from wire import operation

WebhookShown = schemas.shown(
    outbox.Webhook,
    "id name url header_name events state reason failures first_failure_at last_error open_until pending"
    " created_at updated_at",
    events=[str],
    pending=int,
)
DeliveryShown = schemas.shown(
    outbox.Delivery,
    "id webhook_id webhook event_id event status attempts next_at leased_until last_status last_error"
    " duration_ms delivered_at created_at waits_for",
    webhook=str,
    event_id=str,
    event=str,
    waits_for=(schemas.Id | None, "The delivery that has to be sent before."),
)
DeliveryDetailShown = schemas.response_schema("DeliveryDetail", base=DeliveryShown, payload=dict)
WebhookListShown = schemas.response_schema("WebhookList", webhooks=[WebhookShown], mail=schemas.MailShown)
DeliveryListShown = schemas.response_schema(
    "DeliveryList", deliveries=[DeliveryShown], pagination=schemas.PaginationShown
)


def select_listed(*more: Any) -> Query:
    """Return a SELECT of deliveries with their webhook and event, and `more` columns of the event."""
    of_webhook = [Delivery.webhook.alias("webhook_id"), Webhook.name.alias("webhook")]
    of_event = [Event.id.alias("event_id"), Event.name.alias("event"), *more]
    other = Delivery.alias()
    is_before = (other.webhook == Delivery.webhook) & (other.event < Delivery.event)
    is_before &= other.blocks_later == 1
    before = other.select(other.id).where(other.status == "pending", is_before).order_by(other.event)
    waits_for = Case(None, [(Delivery.is_pending & ~Delivery.was_refused, before.limit(SQL("1")))])
    of_event.append(waits_for.alias("waits_for"))
    shown = columns(Delivery, "event_seq", "webhook_id", "blocks_later", "refusals")
    deliveries = Delivery.select(*shown, *of_webhook, *of_event).join(Event, on=(Delivery.event == Event.seq))
    return deliveries.join(Webhook, on=(Delivery.webhook == Webhook.id))


SHOWN_DELIVERY = Statement(select_listed(Event.body.alias("payload")).where(Delivery.id == placeholder("id")))


def shown_delivery(id: str) -> Row:
    """Return the delivery with its event. Raises `NotFound`."""
    return SHOWN_DELIVERY.one(id=id) or not_found("delivery")


@lru_cache(maxsize=16)
def page_and_total(filters: frozenset[str]) -> tuple[Statement, Statement]:
    """Return the queries of a page and of the number of deliveries that pass these filters."""
    filtered = {"status": Delivery.status, "webhook_id": Delivery.webhook, "event": Event.name}
    passes: list[Any] = [filtered[name] == placeholder(name) for name in sorted(filters)] or [SQL("1")]
    page = select_listed().where(*passes).order_by(Delivery.id.desc())
    some = Delivery.select(SQL("1")).join(Event, on=(Delivery.event == Event.seq)).where(*passes)
    total = Delivery.select(fn.COUNT(SQL("*"))).from_(some.limit(COUNT_LIMIT + 1))
    return Statement(page.limit(placeholder("limit")).offset(placeholder("offset"))), Statement(total)


def configured(id: str) -> Row:
    """Return the webhook. Raises `NotFound`, and `Conflict` if it has left the configuration."""
    webhook = Webhook.shown(id)
    if webhook["reason"] == Webhook.UNCONFIGURED:
        raise Conflict(f"the webhook {webhook['name']} is {Webhook.UNCONFIGURED}; put it back there first")
    return webhook


def enabled(id: str) -> Row:
    """Return the webhook. Raises as `configured` does, and `Conflict` if it is disabled."""
    webhook = configured(id)
    if webhook["state"] == "disabled":
        raise Conflict(f"the webhook {webhook['name']} is disabled ({webhook['reason']}); enable it first")
    return webhook


def ping(transaction: Transaction, webhook_id: str) -> str:
    """Store a `ping` for this webhook. Raises `NotFound`, and `Conflict` if it is disabled."""
    name = enabled(webhook_id)["name"]
    if webhook_id not in webhooks.sending.webhooks:  # only another process has it in its configuration
        raise Conflict(f"the webhook {name} is not in the configuration in use here")
    return emit(transaction, "ping", {"webhook": {"id": webhook_id, "name": name}}, only=webhook_id)[0]


def enable(transaction: Transaction, webhook_id: str) -> Row:
    """Send to the webhook again. Raises `NotFound`, and `Conflict` if it has left the configuration."""
    webhook = configured(webhook_id)
    log_deleted(webhook, Delivery.drop_waiting.run(webhook_id=webhook_id, before="", most=-1))
    return Webhook.enable(transaction, webhook_id)


def resume(webhook: Row) -> Row:
    """Have the sweeper send what waited for a webhook, after the commit of `enable`; return the webhook."""
    webhooks.sending.has_work.set()
    return webhook


def redeliver(transaction: Transaction, delivery_id: str) -> None:
    """Lease a delivery for another attempt, whatever the last result. Raises `NotFound` and `Conflict`."""
    delivery, settings = shown_delivery(delivery_id), webhooks.sending.delivery
    enabled(delivery["webhook_id"])
    if delivery["leased_until"] and delivery["leased_until"] > now():
        raise Conflict("the delivery is being sent")
    if delivery["status"] != "pending":  # one that is pending keeps `blocks_later`
        Delivery.set_columns(delivery_id, status="pending", blocks_later=0, delivered_at=None)
    (attempt,) = Delivery.to_send([delivery_id])
    seconds = max(settings["request_budget_seconds"], settings["timeout_seconds"])
    Delivery.lease(attempt, now(seconds + LEASE_GRACE))
    transaction.deliveries.append(delivery_id)


webhook_commands = click.Group("webhook", help="List, test and enable webhooks.")
cli.add_command(webhook_commands)


def webhook_id(name: str) -> str:
    return find_id("webhook", "name", name, Webhook.listing())


def send_and_report(transaction: members.Transaction, delivery_id: str) -> None:
    """Send the delivery and print the result. Raises `ClickException` if it is not accepted."""
    webhooks.deliver(transaction)
    delivery = shown_delivery(delivery_id)
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
        delivery_id = ping(transaction, webhook_id(name))
    send_and_report(transaction, delivery_id)


@webhook_commands.command("enable")
@click.argument("name")
@in_database
def webhook_enable(name: str) -> None:
    """Enable a disabled webhook; events that waited are sent first."""
    with models.write() as transaction:
        enable(transaction, webhook_id(name))
    click.echo(f"{name} is active.")


@cli.command()
@click.argument("delivery_id")
@in_database
def redeliver_command(delivery_id: str) -> None:
    """Send a delivery again, with the same id and body."""
    configure_webhooks()
    with models.write() as transaction:
        redeliver(transaction, delivery_id)
    send_and_report(transaction, delivery_id)


@cli.command()
@in_database
def deliver_command() -> None:
    """Send all deliveries that are due, once.

    The server sends them too, unless delivery.sweeper is false.
    """
    configure_webhooks()
    with suppress(BadDatabase), closing(lock_server()), models.write():
        Delivery.release_all.run()  # no server runs: the deliveries that it was sending are due now
    accepted = sum(map(webhooks.drain, webhooks.due_ids()))
    pending = Delivery.pending.value()
    click.echo(f"Accepted: {accepted}. Waiting for their next try (see webhook list): {pending}.")


@api.get("/webhooks")
@operation(gives=WebhookListShown, role="admin")
def list_webhooks() -> Row:
    """List the configured webhooks with their state, without secrets, and the state of mail."""
    return {"webhooks": Webhook.listing(), "mail": mail_state()}


@api.post("/webhooks/<id>/test")
@operation(gives=DeliveryDetailShown, role="admin", raises=(Conflict,), after_delivery=shown_delivery)
def test_webhook(transaction: Transaction, id: str) -> str:
    """Send a ping to a webhook, and show the result."""
    return ping(transaction, id)


@api.post("/webhooks/<id>/enable")
@operation(gives=WebhookShown, role="admin", raises=(Conflict,), after_delivery=resume)
def enable_webhook(transaction: Transaction, id: str) -> Row:
    """Enable a disabled webhook. The deliveries that wait are sent first."""
    return enable(transaction, id)


@api.get("/deliveries")
@operation(schemas.DeliveryQuery(), DeliveryListShown, role="admin")
def list_deliveries(limit: int, offset: int, **filters: str) -> Row:
    """List the deliveries, newest first. The filters combine."""
    page, total = page_and_total(frozenset(filters))
    rows, count = page.all(limit=limit + 1, offset=offset, **filters), total.value(**filters)
    return {"deliveries": rows[:limit], "pagination": pagination(count, limit, offset, len(rows) > limit)}


@api.get("/deliveries/<id>")
@operation(gives=DeliveryDetailShown, role="admin")
def get_delivery(id: str) -> Row:
    """Show a delivery with its event."""
    return shown_delivery(id)


@api.post("/deliveries/<id>/redeliver")
@operation(gives=DeliveryDetailShown, role="admin", raises=(Conflict,), after_delivery=shown_delivery)
def redeliver_delivery(transaction: Transaction, id: str) -> str:
    """Send a delivery again, with the same id and body, and show the result."""
    redeliver(transaction, id)
    return id
