"""Webhooks and their deliveries: show, test and enable them, and send a delivery again."""

from typing import Any

from flask import Blueprint

import outbox
import schemas
from app import mail_state
from database import Row
from errors import Conflict
from members import Transaction
from outbox import Delivery, Webhook
from schemas import API, Id, MailShown, PaginationShown, answer_with, shown
from webhooks import enable, ping, redeliver, resume
from wire import operation

api = Blueprint("deliveries", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


WebhookShown = shown(
    outbox.Webhook,
    "id name url header_name events state reason failures first_failure_at last_error open_until pending"
    " created_at updated_at",
    events=[str],
    pending=int,
)
DeliveryShown = shown(
    outbox.Delivery,
    "id webhook_id webhook event_id event status attempts next_at leased_until last_status last_error"
    " duration_ms delivered_at created_at waits_for",
    webhook=str,
    event_id=str,
    event=str,
    waits_for=(Id | None, "The delivery that has to be sent before."),
)
DeliveryDetailShown = answer_with("DeliveryDetail", base=DeliveryShown, payload=dict)
WEBHOOKS = answer_with("WebhookList", webhooks=[WebhookShown], mail=MailShown)
DELIVERIES = answer_with("DeliveryList", deliveries=[DeliveryShown], pagination=PaginationShown)


@api.get("/webhooks")
@operation(gives=WEBHOOKS, role="admin")
def list_webhooks() -> Row:
    """List the configured webhooks with their state, without secrets, and the state of mail."""
    return {"webhooks": Webhook.listing(), "mail": mail_state()}


@api.post("/webhooks/<id>/test")
@operation(gives=DeliveryDetailShown, role="admin", raises=(Conflict,), after_delivery=Delivery.shown)
def test_webhook(transaction: Transaction, id: str) -> str:
    """Send a ping to a webhook, and show the result."""
    return ping(transaction, id)


@api.post("/webhooks/<id>/enable")
@operation(gives=WebhookShown, role="admin", raises=(Conflict,), after_delivery=resume)
def enable_webhook(transaction: Transaction, id: str) -> Row:
    """Enable a disabled webhook. The deliveries that wait are sent first."""
    return enable(transaction, id)


@api.get("/deliveries")
@operation(schemas.DeliveryQuery(), DELIVERIES, role="admin")
def list_deliveries(**filters: Any) -> Row:
    """List the deliveries, newest first. The filters combine."""
    return Delivery.page(**filters)


@api.get("/deliveries/<id>")
@operation(gives=DeliveryDetailShown, role="admin")
def get_delivery(id: str) -> Row:
    """Show a delivery with its event."""
    return Delivery.shown(id)


@api.post("/deliveries/<id>/redeliver")
@operation(gives=DeliveryDetailShown, role="admin", raises=(Conflict,), after_delivery=Delivery.shown)
def redeliver_delivery(transaction: Transaction, id: str) -> str:
    """Send a delivery again, with the same id and body, and show the result."""
    redeliver(transaction, id)
    return id
