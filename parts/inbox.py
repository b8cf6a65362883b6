"""Notifications of members, and what waits for a member today."""

from functools import partial
from typing import Any

from flask import Blueprint

import schemas
from database import Row
from lists import today
from members import Transaction
from models import Notice
from schemas import API
from times import local, now
from wire import awaited, operation, request

api = Blueprint("inbox", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


@api.get("/inbox")
@operation(schemas.LIST_INBOX, schemas.INBOX)
def list_inbox(wait: int, **page: Any) -> Row:
    """List your notifications, newest first, and how many are unread. `wait` waits for an unread one."""
    read = partial(Notice.page, request().caller["id"], **page)
    return awaited(wait, read, lambda inbox: inbox["unread"])


@api.post("/inbox/read")
@operation(schemas.InboxReadInput(), schemas.INBOX_READ, scope="agent")
def read_inbox(transaction: Transaction, **which: str) -> Row:
    """Mark your notifications as read: up to one of them, or all of one task."""
    reading = Notice.mark_read_of_task if "task_id" in which else Notice.mark_read
    return {"read": reading.run(**which, member_id=transaction.actor["id"], now=transaction.at)}


@api.post("/inbox/snooze")
@operation(schemas.SnoozeInput(), schemas.SNOOZED, scope="agent")
def snooze_inbox(transaction: Transaction, task_id: str, until: str | None) -> Row:
    """Put a task off until a time, in your inbox and in `/today`. Null brings it back."""
    return Notice.snooze(transaction, task_id, until)


@api.get("/today")
@operation(gives=schemas.TODAY_SHOWN)
def get_today() -> Row:
    """Show what waits for you, today's meetings, and the tasks that agents are working on."""
    day = local(now()).date().isoformat()
    return today(request().caller["id"], schemas.Instant(ends_day=True).deserialize(day))
