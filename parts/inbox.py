"""Notifications of members, and what waits for a member today."""

from functools import partial
from typing import Any

from flask import Blueprint
from marshmallow import ValidationError, validates_schema
from peewee import OP, SQL, Case, Expression, Query, fn

import models
import schemas
from database import Row, Statement, json_object, placeholder, rowid
from lists import FILTERS
from meetings import Meeting
from members import Activity, ApiKey, Transaction
from models import MAX_LISTED, ON_TODAY, Comment, Notice, Task
from schemas import (
    API,
    WAIT,
    HistoryPaginationShown,
    Id,
    Instant,
    MeetingShown,
    ProfileShown,
    QueryInteger,
    Strict,
    answer_with,
    doc,
    shown,
)
from times import local, now
from wire import awaited, operation, request

api = Blueprint("inbox", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


# The lists of `/today`.
TODAY = "id number title status priority project_id assignee_id due_date claimed_until version"
MOST_TODAY = 50  # entries of a kind
_last = Comment.select(fn.MAX(Comment.id)).where(Comment.task == Task.id)
_task = Task.select(rowid(Task), SQL("NULL").alias("said"))
_mine = Notice.select().where(Notice.member == placeholder("member_id"))


def _quote(table: Any, author: Any, text: Any, id: Any, quoted: Any) -> Query:
    """Return a SELECT of the author and the beginning of a text of the row with the id `quoted`."""
    said = {"author_id": author, "created_at": table.created_at}
    said |= {"id": id, "excerpt": fn.SUBSTR(text, 1, MAX_LISTED)}
    return table.select(json_object(said)).where(table.id == quoted)


def _today(chosen: Any, *order: Any) -> Statement:
    """Return the statement for the top tasks of a subquery, each with what was `said` or a last comment."""
    said = SQL('"chosen"."said"')
    comment = _quote(Comment, Comment.author, Comment.content, Comment.id, fn.COALESCE(said, _last))
    description = _quote(Notice, Notice.actor, Task.description, Notice.comment, said)
    task = json_object({name: Task._meta.columns[name] for name in TODAY.split()})
    shown = [fn.JSON(task).alias("task"), fn.JSON(fn.COALESCE(comment, description)).alias("comment")]
    return Statement(Task.in_order(chosen.order_by(*order).limit(MOST_TODAY), shown))


# The id of the comment that was said, or of the notice about a description.
_said = Case(None, [(Notice.reason != "review", fn.COALESCE(Notice.comment, Notice.id))]).alias("said")
_noticed = _mine.select(rowid(Task), _said).join(Task, on=(Notice.task == Task.id)).group_by(Notice.task)
_noticed = _noticed.where(Notice.is_awake, (Notice.reason == "mentioned") | FILTERS["archived"])
NOTICED = {kind: _today(_noticed.where(waits), fn.MIN(Notice.id)) for kind, waits in ON_TODAY.items()}
_due = Task.is_open_with_date & (Task.due_date <= placeholder("until")) & FILTERS["archived"]
_due &= (Task.status != "review") & FILTERS["assignee_id"]
_due &= ~fn.EXISTS(_mine.where(Notice.task == Task.id, ~Notice.is_awake))
DUE = _today(_task.where(_due), Task.due_date, Task.id)
# Tasks that agents have moved, among the latest tasks in progress of members with keys for agents.
_keys = ApiKey.select(ApiKey.id).where(ApiKey.scope == "agent", ApiKey.revoked_at.is_null())
_is_move = (Activity.task_id == Task.id) & (Activity.action == "moved") & Activity.is_hidden.is_null()
_moved_by = Activity.select(Activity.key).where(_is_move).order_by(Activity.id.desc()).limit(1)
_held = (Task.status == "in_progress") & Task.assignee.in_(_keys.select(ApiKey.member))
_recent = _task.where(_held).order_by(SQL("+updated_at DESC"))  # "+": not by the index of all changes
_work = Task.in_order(_recent.limit(2 * MOST_TODAY), [rowid(Task), SQL("said")])
_work = _work.where(Expression(_moved_by, OP.IN, _keys), FILTERS["archived"])
WORK = _today(_work, Task.claimed_until.is_null(), Task.claimed_until, Task.id)


def today(member_id: str, until: str) -> Row:
    """Return what waits for a member until this time, by kind, and what agents are working on."""
    mine = {"member_id": member_id, "assignee_id": member_id, "now": now(), "until": until}
    lists: Row = {kind: tasks.all(**mine) for kind, tasks in NOTICED.items()}
    soon = [one for one in Meeting.of(member_id) if one["when"] == "upcoming" and one["starts_at"] <= until]
    return lists | {"meetings": soon, "due": DUE.all(**mine), "working": WORK.all()}


class InboxReadInput(Strict):
    until = Id(**doc("This notification and all older ones."))
    task_id = Id(**doc("All notifications about this task."))

    @validates_schema
    def _one_of_both(self, data: dict, **_: Any) -> None:
        if len(data) != 1:
            raise ValidationError("send either until or task_id", "until")

    EXAMPLE = {"until": "019abf3e-5d7b-7c1e-9f1a-3d2b8f0c6a55"}


class SnoozeInput(Strict):
    task_id = Id(required=True)
    until = Instant(required=True, allow_none=True, **doc("Null brings the task back."))

    EXAMPLE = {"task_id": "019abf3e-5d7b-7c1e-9f1a-3d2b8f0c6a55", "until": "2026-12-02"}


INBOX_QUERY: dict[str, Any] = {"limit": QueryInteger(1, 100, load_default=50), "before": Id(), "wait": WAIT}
LIST_INBOX = Strict.from_dict(INBOX_QUERY)()
NoticeTaskShown = shown(models.Task, "id number title status", "NoticeTask")
NoticeShown = shown(
    models.Notice,
    "id reason excerpt created_at read_at snoozed_until actor task",
    actor=ProfileShown | None,
    task=NoticeTaskShown,
)
INBOX = answer_with("Inbox", notices=[NoticeShown], unread=int, pagination=HistoryPaginationShown)
INBOX_READ = answer_with("InboxRead", read=int)
SNOOZED = shown(models.Notice, "task_id snoozed_until", "Snoozed", task_id=Id)
TodayTaskShown = shown(models.Task, TODAY, "TodayTask")
SaidShown = shown(models.Comment, "id author_id created_at excerpt", "Said", id=Id | None, excerpt=str)
TodayEntryShown = answer_with("TodayEntry", task=TodayTaskShown, comment=SaidShown | None)
TODAY_LISTS = dict.fromkeys(("questions", "reviews", "mentions", "due", "working"), [TodayEntryShown])
TODAY_SHOWN = answer_with("Today", **TODAY_LISTS, meetings=[MeetingShown])


@api.get("/inbox")
@operation(LIST_INBOX, INBOX)
def list_inbox(wait: int, **page: Any) -> Row:
    """List your notifications, newest first, and how many are unread. `wait` waits for an unread one."""
    read = partial(Notice.page, request().caller["id"], **page)
    return awaited(wait, read, lambda inbox: inbox["unread"])


@api.post("/inbox/read")
@operation(InboxReadInput(), INBOX_READ, scope="agent")
def read_inbox(transaction: Transaction, **which: str) -> Row:
    """Mark your notifications as read: up to one of them, or all of one task."""
    reading = Notice.mark_read_of_task if "task_id" in which else Notice.mark_read
    return {"read": reading.run(**which, member_id=transaction.actor["id"], now=transaction.at)}


@api.post("/inbox/snooze")
@operation(SnoozeInput(), SNOOZED, scope="agent")
def snooze_inbox(transaction: Transaction, task_id: str, until: str | None) -> Row:
    """Put a task off until a time, in your inbox and in `/today`. Null brings it back."""
    return Notice.snooze(transaction, task_id, until)


@api.get("/today")
@operation(gives=TODAY_SHOWN)
def get_today() -> Row:
    """Show what waits for you, today's meetings, and the tasks that agents are working on."""
    day = local(now()).date().isoformat()
    return today(request().caller["id"], schemas.Instant(ends_day=True).deserialize(day))
