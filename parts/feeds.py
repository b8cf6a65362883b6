"""The history for people, and the changes and events for programs that follow them."""

import math
import re
from functools import lru_cache, partial, reduce
from operator import add
from typing import Any, NamedTuple

from peewee import SQL, Expression, Query, fn

import members
import schemas
from app import api
from database import PAGE_BYTES, Row, Statement, columns, db, placeholder, rowid, statement
from errors import Gone, Invalid
from lists import OTHER_PROJECTS
from members import HIDDEN_DAYS, Activity, ApiKey, Member
from models import Comment, Meeting, Milestone, Participant, Project, Task, Whiteboard, newest_of, values_of
from outbox import Event
from parts.inbox import InboxShown, Notice
from times import first_id, now
from wire import awaited, operation, request, search

# The columns that `/changes` shows: each table's own, except the content of a whiteboard, which may be large.
_participants = Participant.select(fn.JSON_GROUP_ARRAY(Participant.member))
_of_meeting = _participants.where(Participant.meeting == Meeting.id)
SHOWN: dict[Any, Query] = {
    Member: Member.select_shown(),
    **{table: table.select_stored() for table in (Project, Milestone, Task)},
    Comment: Comment.select(*columns(Comment, "search")),
    Meeting: Meeting.select().select_extend(fn.JSON(_of_meeting).alias("participant_ids")),
    Whiteboard: Whiteboard.select(*columns(Whiteboard, "content")),
}
OBJECTS = {table.NOUN: Statement(rows.where(table.id.in_(values_of("ids")))) for table, rows in SHOWN.items()}
# The id of the last row before an id, such as the first of a time.
BEFORE = {
    table: Statement(table.select(fn.MAX(table.id)).where(table.id < placeholder("id")))
    for table in (Activity, Member)
}


_keys = ApiKey.select(ApiKey.id).where(placeholder("key").in_((ApiKey.id, ApiKey.prefix)))
# The filters of the history.
ACTIVITY_FILTERS: dict[str, Expression] = {
    "before": Activity.id < placeholder("before"),
    "since": Activity.created_at >= placeholder("since"),
    "from_id": Activity.id >= placeholder("from_id"),  # so that no activity older than `since` is read
    "until": Activity.created_at <= placeholder("until"),
    "before_id": Activity.id < placeholder("before_id"),
    "actor_id": Activity.actor == placeholder("actor_id"),
    "key": Activity.key.in_(_keys),
    "action": Activity.action == placeholder("action"),
    "entity": Activity.entity == placeholder("entity"),
    "task_id": Activity.task_id == placeholder("task_id"),
    "of_tasks": Activity.task_id.is_null(False),
}


@lru_cache(maxsize=128)
def activities(filters: frozenset[str]) -> Statement:
    """Return the statement for the newest activities that pass these filters."""
    return Statement(Activity.select_newest(*(ACTIVITY_FILTERS[name] for name in sorted(filters))))


def history_page(*, limit: int, **filters: Any) -> Row:
    """Return a page of the history, newest first. The filters (`ACTIVITY_FILTERS`) combine."""
    if since := filters.get("since"):
        filters["from_id"] = first_id(since)
    if until := filters.get("until"):  # an id is made up to a minute after its transaction's time
        filters["before_id"] = first_id(until, 60)
    if isinstance(number := filters.get("task_id"), int):
        gone = Activity.deletion_of.one(number=number, most=1) or {"task_id": None}
        filters["task_id"] = Task.by_number.value(number=number) or gone["task_id"]
    rows = activities(frozenset(filters)).all(most=limit + 1, **filters)
    shown, pagination = newest_of(rows, limit)
    return {"activity": shown, "pagination": pagination}


def _made(*tables: Any) -> Statement:
    """Return the statement for all objects of these kinds, as the activities of their creation, in order."""
    rows = []
    for table in tables:
        named = [SQL(f"'{table.NOUN}'").alias("entity"), SQL("'created'").alias("action")]
        made = table.select(table.id, table.id.alias("entity_id"), *named)  # indexes hold no more
        rows.append(made.where(table.id > placeholder("after")))
    return Statement(reduce(add, rows).order_by(SQL("id")).limit(placeholder("most")))


MADE = {True: _made(Task, Comment), False: _made(*SHOWN)}  # by whether it is of tasks alone


class Changes:
    # The number of an activity in the order of commits.
    position = statement(lambda _: Activity.select(rowid(Activity)).where(Activity.id == placeholder("id")))

    # The ids of the comments on tasks.
    comments = statement(lambda _: Comment.select(Comment.id).where(Comment.task.in_(values_of("ids"))))

    @statement
    def following(cls: Any):
        """The activities after a position; with `:of_tasks` only of tasks and their comments."""
        changes = fn.JSON(Activity.changes).alias("changes")
        rows = Activity.select(*columns(Activity, "changes"), changes)
        is_later = fn.LIKELIHOOD(rowid(Activity) > placeholder("position"), 0.001)
        rows = rows.where(is_later, Activity.is_of_chosen_kind)
        return rows.order_by(rowid(Activity)).limit(placeholder("most"))

    @statement
    def events(cls: Any):
        """The events after `:seq`, oldest first."""
        rows = Event.select(Event.id, Event.body).where(Event.seq > placeholder("seq"), Event.name != "ping")
        return rows.order_by(Event.seq).limit(placeholder("most"))


class Position(NamedTuple):
    """How far a client has followed the changes; its cursor consists of these ids."""

    reported: str | None  # the last activity that was reported; None for none
    newest: str  # the newest activity when the cursor was made
    listed: str | None  # the last object that was listed, "0" for none yet; None unless objects are listed


def change_page(
    *, limit: int, of_tasks: bool, seen_since: str | None, since: str = "", after: tuple | None = None
) -> Row:
    """Return a page of the changes after a cursor or `since` a time, in the order of commits.

    Without either, list all objects. A cursor holds two ids: of the last activity that was reported, and of
    the newest when it was made. If one of them is missing now, a backup was restored or old activity deleted.
    Then the client has to begin again: `Gone` is raised, as for a cursor that is older than `seen_since`, the
    caller's `projects_since`. While all objects are being listed, a cursor also holds the id of the last one.
    """
    with db.viewed_by(None):  # cursors name activities that a viewer does not see
        newest = Activity.newest.value()
        first = first_id(max(since, seen_since or "")) if since else ""
        if after:
            begin = Position(*after)
        elif first:
            begin = Position(BEFORE[Activity].value(id=first), newest, None)
        else:
            begin = Position(newest, newest, "0")
        place = Changes.position.value(id=begin.reported)
        if begin.reported is None and BEFORE[Member].value(id=first) is None:  # the workspace is younger
            place = 0
        was_restored = place is None or Changes.position.value(id=begin.newest) is None
        until = first_id(now(-HIDDEN_DAYS * 86400))
        is_too_old = Activity.forgotten.value(after=begin.reported, until=until)
    if was_restored or is_too_old:
        raise Gone("a backup was restored, or later changes were deleted; begin again without after")
    if after and seen_since and after[0] < first_id(seen_since):
        raise Gone(OTHER_PROJECTS)
    if begin.listed:
        entries = MADE[of_tasks].all(after=begin.listed, most=limit + 1)
    else:
        entries = Changes.following.all(position=place, most=limit + 1, of_tasks=of_tasks)
    page, more = entries[:limit], len(entries) > limit
    changes, end = _changes_by(page), page[-1]["id"] if page else newest
    if changes is None:
        same: Row = {"of_tasks": of_tasks, "seen_since": seen_since, "since": since, "after": after}
        return change_page(limit=limit // 2, **same)
    with db.viewed_by(None):
        cursor = [begin.reported if begin.listed else end, Activity.newest.value()]
    cursor += [end] if begin.listed and more else []
    shown = {"next_after": "_".join(cursor), "has_more": more or bool(begin.listed)}
    return {"changes": changes, "pagination": shown}


def _changes_by(entries: list[Row]) -> list[Row] | None:
    """Return each object once that these activities changed, and the tasks that they block or release.

    Return None if there are several activities and their objects have over `PAGE_BYTES`.
    """
    changed, objects = dict[tuple[str, str], Row](), dict[tuple[str, str], Row]()
    new, blocking, released, come = set(), [], [], []
    for entry in entries:
        key, fields = (entry["entity"], entry["entity_id"]), entry.get("changes", {})
        changed.pop(key, None)
        changed[key] = entry
        for numbers in fields.get("blocks", ()):
            released += numbers
        if entry["action"] in ("created", "restored"):
            new.add(key)
        elif entry["entity"] == "task" and fields.keys() & {"status", "title"}:
            blocking.append(entry["number"])
        is_unseen = fields.get("project_id", [""])[0] is None  # the viewer did not see the task before
        if is_unseen or (entry["entity"], entry["action"]) == ("task", "restored"):
            come.append(entry["entity_id"])
    for row in Task.blockers.affected_by(blocking, released):
        changed.setdefault(("task", row["id"]), entries[-1] | {"action": "updated"})
    for row in Changes.comments.all(ids=come) if come else ():
        changed.setdefault(("comment", row["id"]), entries[-1] | {"action": "updated"})
    left = PAGE_BYTES if len(entries) > 1 else math.inf
    for kind, shown in OBJECTS.items():
        if ids := [id for name, id in changed if name == kind]:
            rows, left = shown.some(left, ids=ids)
            if left < 0:
                return None
            objects |= {(kind, row["id"]): row for row in rows}
    changes = []
    for (kind, id), entry in changed.items():
        if (row := objects.get((kind, id))) or entry["action"] == "deleted":
            number = {"number": (row or entry)["number"]} if kind == "task" else {}
            action = "deleted" if row is None else "created" if (kind, id) in new else "updated"
            at = {"action": action, "at": (row | entry if row else entry)["created_at"]}
            changes.append({"kind": kind, "id": id, **number, **at, "object": row})
    return changes


def event_page(*, limit: int, after: str | None = None, since: str = "") -> Row:
    """Return the events `after` one, or `since` a time, oldest first. Raises `Invalid` if it is gone."""
    seq = Event.last_before.value(before=since) if since else 0
    if after is not None and (seq := Event.seq_of.value(id=after)) is None:
        raise Invalid(("after", "this event does not exist any more; leave it out to get the oldest"))
    rows, left = Changes.events.some(seq=seq, most=limit + 1)
    next_after = rows[:limit][-1]["id"] if rows else after
    position = {"limit": limit, "has_more": left < 0 or len(rows) > limit, "next_after": next_after}
    return {"events": [row["body"] for row in rows[:limit]], "pagination": position}


class QueryTaskReference(schemas.TaskReference):
    """The number or the id of a task in a query, where the number is text."""

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> int | str:
        is_number = re.fullmatch(self.NUMBER, value)
        return super()._deserialize(int(value) if is_number else value, *arguments, **options)


class HistoryQuery(schemas.Strict):
    limit = schemas.QueryInteger(1, 100, load_default=20)
    before = schemas.Id()
    since = schemas.Instant()
    until = schemas.Instant(ends_day=True)
    actor_id = schemas.Id()
    key = schemas.Text(36, **schemas.doc("The id or the prefix of an API key."))
    action = schemas.Choice(members.HISTORY_ACTIONS)
    entity = schemas.Choice(members.ENTITIES)
    task = QueryTaskReference(attribute="task_id", **schemas.doc("A task, which may be deleted."))


EVENT_QUERY: dict[str, Any] = {"after": schemas.Text(64), "since": schemas.Instant(), "wait": schemas.WAIT}
LIST_EVENTS = schemas.Strict.from_dict(
    EVENT_QUERY | {"limit": schemas.QueryInteger(1, 100, load_default=20)}
)()
_id = schemas.Id.PATTERN.pattern
CHANGE_CURSOR = schemas.Cursor(f"({_id})_({_id})(?:_({_id}))?")
CHANGE_QUERY: dict[str, Any] = {"after": CHANGE_CURSOR, "since": schemas.Instant(), "wait": schemas.WAIT}
CHANGE_QUERY |= {
    "limit": schemas.QueryInteger(1, 100, load_default=100),
    "include": schemas.Choice(["inbox"]),
}
LIST_CHANGES = schemas.Strict.from_dict(CHANGE_QUERY)()
HistoryShown = schemas.response_schema(
    "History",
    base=schemas.ActivityShown,
    action=schemas.Choice(members.HISTORY_ACTIONS),
    task_id=(schemas.Id | None, "The task, or the comment's task. It may be deleted."),
    number=(int | None, "The task's number."),
)
EventPaginationShown = schemas.response_schema(
    "EventPagination", limit=int, has_more=bool, next_after=str | None
)
ChangeShown = schemas.response_schema(
    "Change",
    optional=("number",),
    kind=schemas.Choice(OBJECTS),
    id=schemas.Id,
    number=(int, "A task's number."),
    action=schemas.Choice(("created", "updated", "deleted")),
    at=schemas.Moment,
    object=(dict | None, "Its own columns as they are now; null if it was deleted."),
)
ChangePaginationShown = schemas.response_schema("ChangePagination", next_after=str, has_more=bool)
CHANGED_INBOX = (InboxShown, "Only with `include=inbox`, as `GET /inbox?limit=1` returns it.")
CHANGE_LIST: dict[str, Any] = {"changes": [ChangeShown], "pagination": ChangePaginationShown}
ChangeListShown = schemas.response_schema(
    "ChangeList", optional=("inbox",), **CHANGE_LIST, inbox=CHANGED_INBOX
)
ActivityListShown = schemas.response_schema(
    "ActivityList", activity=[HistoryShown], pagination=schemas.HistoryPaginationShown
)
EventListShown = schemas.response_schema(
    "EventList", events=[schemas.ListedEventShown], pagination=EventPaginationShown
)


@api.get("/tasks/<task:id>/activity")
@operation(HistoryQuery(exclude=["task"]), ActivityListShown)
def list_task_activity(id: str, **filters: Any) -> Row:
    """Show the history of a task and its comments, newest first."""
    Task.stored(id)
    return history_page(task_id=id, **filters)


@api.get("/activity")
@operation(HistoryQuery(), ActivityListShown)
def list_activity(**filters: Any) -> Row:
    """Show the workspace's history, newest first. Clients see only tasks and comments."""
    if request().caller["role"] == "client":
        filters["of_tasks"] = True
    read = partial(history_page, **filters)
    may_read_all = filters.keys() & {"actor_id", "key", "action", "entity"} and "task_id" not in filters
    return search(read) if may_read_all else read()


@api.get("/changes")
@operation(LIST_CHANGES, ChangeListShown, raises=(Gone,))
def list_changes(wait: int, include: str = "", **query: Any) -> Row:
    """List the changes after a cursor or since a time, or all objects. `wait` waits for a change."""

    def read() -> Row:
        caller = request().caller
        return change_page(**query, of_tasks=caller["role"] == "client", seen_since=caller["projects_since"])

    # Only commits make changes, so nothing is read in between.
    page = awaited(wait, read, lambda page: page["changes"] or page["pagination"]["has_more"], every=wait)
    return page | ({"inbox": Notice.page(request().caller["id"], limit=1)} if include else {})


@api.get("/events")
@operation(LIST_EVENTS, EventListShown, role="admin")
def list_events(wait: int, **query: Any) -> Row:
    """List the events in order: all that are kept, or those `after` one or `since` a time; `wait` for one."""
    return awaited(wait, partial(event_page, **query), lambda page: page["events"], role="admin")
