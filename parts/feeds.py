"""What happened: the history for people, and the changes and events for programs that follow them."""

from functools import partial
from typing import Any

from flask import Blueprint

import schemas
from database import Row
from errors import Gone
from lists import change_page, history_page
from models import Notice, Task
from outbox import Event
from schemas import API
from wire import awaited, operation, request, search

api = Blueprint("feeds", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


@api.get("/tasks/<task:id>/activity")
@operation(schemas.ActivityQuery(exclude=["task"]), schemas.HISTORY)
def list_task_activity(id: str, **filters: Any) -> Row:
    """Show the history of a task and its comments, newest first."""
    Task.stored(id)
    return history_page(task_id=id, **filters)


@api.get("/activity")
@operation(schemas.ActivityQuery(), schemas.HISTORY)
def list_activity(**filters: Any) -> Row:
    """Show the workspace's history, newest first. Clients see only tasks and comments."""
    if request().caller["role"] == "client":
        filters["of_tasks"] = True
    read = partial(history_page, **filters)
    may_read_all = filters.keys() & {"actor_id", "key", "action", "entity"} and "task_id" not in filters
    return search(read) if may_read_all else read()


@api.get("/changes")
@operation(schemas.LIST_CHANGES, schemas.CHANGED, raises=(Gone,))
def list_changes(wait: int, include: str = "", **query: Any) -> Row:
    """List the changes after a cursor or since a time, or all objects. `wait` waits for a change."""

    def read() -> Row:
        caller = request().caller
        return change_page(**query, of_tasks=caller["role"] == "client", seen_since=caller["projects_since"])

    # Only commits make changes, so nothing is read in between.
    page = awaited(wait, read, lambda page: page["changes"] or page["pagination"]["has_more"], every=wait)
    return page | ({"inbox": Notice.page(request().caller["id"], limit=1)} if include else {})


@api.get("/events")
@operation(schemas.LIST_EVENTS, schemas.LISTED_EVENTS, role="admin")
def list_events(wait: int, **query: Any) -> Row:
    """List the events in order: all that are kept, or those `after` one or `since` a time; `wait` for one."""
    return awaited(wait, partial(Event.page, **query), lambda page: page["events"], role="admin")
