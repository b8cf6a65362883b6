"""Lists of tasks: their filters and orders, an index for each screen, a page; the history, the changes.

SQLite chooses the index. If no index serves both the filters and the order, it reads a covering index as a
whole, which is cheap; `bench/` measures every pair of filters in every order.
"""

import math
import re
import sqlite3
from functools import lru_cache, reduce
from operator import add
from typing import Any

from peewee import OP, SQL, Case, Expression, Query, Select, fn

from database import PAGE_BYTES, Row, Statement, caseless, columns, db, fold, json_object, placeholder, rowid
from errors import Gone
from meetings import Meeting, Participant, Whiteboard
from members import HIDDEN_DAYS, Activity, ApiKey, Member
from models import (
    MAX_LISTED,
    ON_TODAY,
    PRIORITIES,
    Blocker,
    Comment,
    Milestone,
    Notice,
    Project,
    Task,
    TaskCount,
    each,
    newest_of,
)
from times import first_id, now

COUNT_LIMIT = 10_000  # a list's total is exact up to here
OTHER_PROJECTS = "you see other projects than before; begin again without after"
_words = fn.JSON_EACH(placeholder("other_words"))


def _matches(*, other_words: bool) -> Any:
    """Return the condition that a task has `number`, or that one of its texts has `q` and `other_words`."""

    def has(text: Any) -> Any:
        # GLOB and LIKE take 40 times as long if a text repeats the beginning of the word.
        has_word = fn.INSTR(text, placeholder("q")) > 0
        missing = Select([_words], [SQL("1")]).where(fn.INSTR(text, SQL("value")) == 0)
        return has_word & ~fn.EXISTS(missing) if other_words else has_word

    commented = Comment.select(Comment.task).where(has(Comment.search))
    return has(Task.search) | Task.id.in_(commented) | (Task.number == placeholder("number"))


# An expression, so that the index below is not on `status = 'todo'`: with such an index SQLite prepares
# every statement that compares `status` with a placeholder again on each run.
_is_waiting = (Task.status.concat("") == "todo") & Task.question_id.is_null()
_is_urgent = Task.priority.concat("") == "urgent"
SINCE = {"created_since", "updated_since", "completed_since"}
MANY = 1000  # tasks that pass, from which SQLite finds the first of them sooner by id than by the time
PARAMETERS = {"now", "number", "after_id", "since"}  # values for the conditions of other filters
URGENCY = Case(Task.priority, [(name, index) for index, name in enumerate(PRIORITIES)])
FILTERS: dict[str, Any] = {
    "project_id": Task.project == placeholder("project_id"),
    "milestone_id": Task.milestone == placeholder("milestone_id"),
    "assignee_id": Task.assignee == placeholder("assignee_id"),
    "status": Task.status == placeholder("status"),
    "open": Task.is_open,
    "created_by": Task.created_by == placeholder("created_by"),
    "external_id": Task.external_id == placeholder("external_id"),
    "priority": Task.priority == placeholder("priority"),
    "urgent": _is_urgent,  # replaces `priority`
    "due_before": Task.due_date < placeholder("due_before"),
    "created_since": fn.UNLIKELY(Task.created_at >= placeholder("created_since")),
    # Programs that poll ask for the latest changes, which SQLite cannot see from a placeholder.
    "updated_since": fn.UNLIKELY(Task.updated_at >= placeholder("updated_since")),
    "completed_since": fn.UNLIKELY(Task.completed_at >= placeholder("completed_since")),
    # Creations and completions are changes, so SQLite can read by the index of changes.
    "touched_since": fn.UNLIKELY(Task.updated_at >= placeholder("touched_since")),
    "ready": _is_waiting
    & (Task.status == "todo")  # lets SQLite choose an index by status too
    & (Task.start_date.is_null() | (Task.start_date <= placeholder("now")))
    & ~fn.EXISTS(Blocker.of(Task.number, SQL("1"))),
    # The changes that follow a time and an id, in their order.
    "after": (Task.updated_at >= placeholder("after"))
    & ((Task.updated_at > placeholder("after")) | (Task.id > placeholder("after_id"))),
    "unassigned": Task.assignee.is_null(),
    "label": Task.is_labelled & fn.UNLIKELY(fn.INSTR(Task.label_keys, placeholder("label")) > 0),
    "archived": Task.project.not_in(Project.select_archived()),
    "q": _matches(other_words=False),
    "other_words": _matches(other_words=True),  # replaces `q`
}
# Ties are ordered by id in the same direction, and ids rise with the time of creation. Tasks without a date
# come last.
SORTS: dict[str | None, list] = {
    None: [Task.id.desc()],
    "created_at": [Task.id],
    "-created_at": [Task.id.desc()],
    "updated_at": [Task.updated_at, Task.id],
    "-updated_at": [Task.updated_at.desc(), Task.id.desc()],
    "due_date": [Task.due_date.asc(nulls="LAST"), Task.id],
    "-due_date": [Task.due_date.desc(), Task.id.desc()],
    "priority": [URGENCY, Task.id],
    "-priority": [URGENCY.desc(), Task.id.desc()],
    "rank": [Task.rank, Task.id],
}
# The board reads each of its columns by status, the latest change first. The columns after the id let SQLite
# apply other filters without reading the tasks.
_is_assigned, _has_milestone = Task.assignee.is_null(False), Task.milestone.is_null(False)
for _name, _where, _columns in (
    ("task_project", None, "project id"),
    ("task_status_id", None, "status id project assignee"),
    ("task_project_status", None, "project status updated_at id completed_at rank"),
    ("task_project_rank", None, "project status rank id assignee priority"),
    ("task_status", None, "status updated_at id project priority due_date completed_at"),
    ("task_due", None, "due_date id project assignee priority"),
    ("task_updated", None, "updated_at id project milestone assignee status priority due_date created_by"),
    ("task_milestone", _has_milestone, "milestone id status"),
    ("task_assignee", _is_assigned, "assignee status updated_at id project priority"),
    ("task_assignee_id", _is_assigned, "assignee id status project priority due_date rank"),
    ("task_ready", _is_waiting, "assignee priority due_date id start_date project"),
    ("task_completed", Task.completed_at.is_null(False), "completed_at id project updated_at"),
    ("task_urgent_status", _is_urgent, "status updated_at id project priority"),
    ("task_labels", Task.is_labelled, "id label_keys labels project status assignee"),
):
    Task.indexed(_name, _columns, where=_where)


def pagination(
    total: int, limit: int, offset: int, more: bool, end: int | None = None, counted: int = COUNT_LIMIT
) -> Row:
    """Return a page's pagination, whose total is at most `counted`.

    `end` is the next page's offset if that is not `offset + limit`.
    """
    return {
        "total": min(total, counted),
        "total_exact": total <= counted,
        "limit": limit,
        "offset": offset,
        "has_more": more,
        "next_offset": (end or offset + limit) if more else None,
    }


def task_page(*, limit: int, offset: int, sort: str | None = None, include: str = "", **filters: Any) -> Row:
    """Return a page of the tasks that pass every filter, with its pagination.

    With `ready`, only unassigned tasks are listed unless `assignee_id` is given. With
    `include="comment_count"` each task has its number of comments. `since` is the caller's `projects_since`.
    Counts up to `counted` tasks, by default `COUNT_LIMIT`. Raises `Gone` if `since` is later than `after`.
    """
    counted = filters.pop("counted", None) or COUNT_LIMIT
    if "q" in filters:
        filters |= _searched(filters.pop("q"))
    if "label" in filters:
        filters["label"] = f"\x1f{caseless(filters['label'])}\x1f"
    if since := filters.get("completed_since") or filters.get("created_since"):
        filters["touched_since"] = since
    if "ready" in filters:
        filters["now"] = now()
        filters |= {} if "assignee_id" in filters else {"unassigned": True}
    elif filters.get("priority") == "urgent":
        filters["urgent"] = filters.pop("priority")
    if sort == "updated_at" and not offset:
        return _changes(limit, include, **filters)
    if "due_before" in filters and filters.get("status", "done") != "done":
        filters["open"] = True  # as the indexes of what is overdue say
    names = frozenset(filters) - PARAMETERS
    if names & {"priority", "urgent"}:  # all tasks have the same, so only ties are left to order
        sort = {"priority": "created_at", "-priority": "-created_at"}.get(sort or "", sort)
    is_by_id = "q" not in names and sort in (None, "created_at", "-created_at")
    found = _total(names).value(most=MANY, **filters) if names & SINCE and is_by_id else 0
    page = _page(names, sort, include, found == MANY)
    (tasks, count, total), most = _fitting(page, limit, offset=offset, **filters)
    if total is None and (count == most or (offset and not count)):
        total = _total(names).value(most=counted + 1, **filters)
    else:
        total, counted = offset + count if total is None else total, COUNT_LIMIT
    end = offset + (count or limit)
    more = end < total
    if not more and total > counted:  # the total is not exact, and this page may be beyond it
        more = page.json(limit=1, offset=end, **filters)[1] > 0
    shown = pagination(total, limit, offset, more, end, counted) | {"next_after": None}
    return {"tasks": tasks, "pagination": shown}


def _fitting(page: Statement, limit: int, **parameters: Any) -> tuple[tuple, int]:
    """Return a page's rows as JSON, and its limit, which is halved until they fit into `PAGE_BYTES`."""
    try:
        return page.json(PAGE_BYTES, limit=limit, **parameters), limit
    except sqlite3.DataError:
        return _fitting(page, limit // 2, **parameters)


def _changes(limit: int, include: str, *, after: tuple | None = None, **filters: Any) -> Row:
    """Return a page of tasks in the order of their changes, which is the order of commits (`follow_clock`).

    If the caller's projects have changed, the cursor also holds `since`, as most tasks are older than that.
    """
    since = filters.get("since")
    if after and since and after[2] != since and after[0] < since:
        raise Gone(OTHER_PROJECTS)
    if after and after[0] > now(86400):  # the clock was wrong when the cursor was made: begin again
        after = None
    if after:
        filters["after"], filters["after_id"], _ = after
    names = frozenset(filters) - PARAMETERS
    tasks, left = _page(names, "updated_at", include).some(limit=limit, offset=0, **filters)
    is_last = left >= 0 and len(tasks) < limit
    total = len(tasks) if is_last else _total(names).value(most=COUNT_LIMIT + 1, **filters)
    last = (tasks[-1]["updated_at"], tasks[-1]["id"]) if tasks else after and after[:2]
    cursor = "_".join([*last, *([since] if since else [])]) if last else None
    shown = pagination(total, limit, 0, total > len(tasks), len(tasks))
    shown |= {"next_after": cursor} | ({"next_offset": None} if after else {})
    return {"tasks": tasks, "pagination": shown}


def _searched(text: str) -> Row:
    """Return the filters for a text: its longest word or phrase, the others, and a task's number.

    The longest comes first, as most tasks lack it.
    """
    parts = re.findall(r'"([^"]*)"?|([^"\s]+)', fold(text))
    words = sorted({phrase or word for phrase, word in parts if (phrase or word).strip()}, key=len)
    number = re.fullmatch(r"#?([0-9]{1,15})", text.strip())
    filters: Row = {"q": words.pop(), "number": int(number[1]) if number else None} if words else {}
    return filters | ({"other_words": words} if words else {})


@lru_cache(maxsize=1024)
def _page(filters: frozenset[str], sort: str | None, include: str, passes_many: bool = False) -> Statement:
    """Return the statement for a page's tasks; a subquery chooses them, so only their rows are read."""
    chosen = _filtered(Task.select(rowid(Task)), filters, passes_many).order_by(*SORTS[sort])
    chosen = chosen.limit(placeholder("limit")).offset(placeholder("offset"))
    total = TaskCount.select_total(filters) if filters <= TaskCount.FILTERS else None
    selected = [*Task.shown_columns(), *([Task.comment_count()] if include else [])]
    return Statement(Task.in_order(chosen, selected), total)


@lru_cache(maxsize=1024)
def _total(filters: frozenset[str]) -> Statement:
    """Return the statement for the number of tasks that pass, up to `:most`."""
    some = _filtered(Task.select(SQL("1")), filters).limit(placeholder("most"))
    return Statement(Task.select(fn.COUNT(SQL("*"))).from_(some))


def _filtered(tasks: Any, filters: frozenset[str], passes_many: bool = False) -> Query:
    names = sorted(filters - {"q"} if "other_words" in filters else filters, key=list(FILTERS).index)
    # Otherwise SQLite would read whole projects, not the index of labels, or of milestones.
    some = names if "label" in names or passes_many else ["project_id"] if "milestone_id" in names else []
    conditions = [fn.LIKELY(FILTERS[name]) if name in some else FILTERS[name] for name in names]
    return tasks.where(*conditions) if names else tasks


# The filters of the history.
ACTIVITY_FILTERS: dict[str, Expression] = {
    "before": Activity.id < placeholder("before"),
    "since": Activity.created_at >= placeholder("since"),
    "from_id": Activity.id >= placeholder("from_id"),  # so that no activity older than `since` is read
    "until": Activity.created_at <= placeholder("until"),
    "before_id": Activity.id < placeholder("before_id"),
    "actor_id": Activity.actor == placeholder("actor_id"),
    "key": Activity.key.in_(
        ApiKey.select(ApiKey.id).where(placeholder("key").in_((ApiKey.id, ApiKey.prefix)))
    ),
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
OBJECTS = {table.NOUN: Statement(shown.where(table.id.in_(each("ids")))) for table, shown in SHOWN.items()}


def _made(*tables: Any) -> Statement:
    """Return the statement for all objects of these kinds, as the activities of their creation, in order."""
    rows = []
    for table in tables:
        entry = {"entity": f"'{table.NOUN}'", "action": "'created'"}
        named = [SQL(value).alias(name) for name, value in entry.items()]
        made = table.select(table.id, table.id.alias("entity_id"), *named)  # indexes hold no more
        rows.append(made.where(table.id > placeholder("after")))
    return Statement(reduce(add, rows).order_by(SQL("id")).limit(placeholder("most")))


MADE = {True: _made(Task, Comment), False: _made(*SHOWN)}  # by whether it is of tasks alone

# Which of these ids a viewer may name in a request that writes.
_named: list[Any] = [table.select_stored() for table in (Task, Comment, Member, ApiKey)]
_named = [rows.select(rows.model.id).where(rows.model.id.in_(each("ids"))) for rows in _named]
NAMED = Statement(reduce(add, _named))


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
        reported, newest_then, listed = after or (newest, newest, "0")
        first = first_id(max(since, seen_since or "")) if since else ""
        if first and not after:
            reported, listed = Activity.before.value(id=first), None
        positions = [Activity.position.value(id=id) for id in (reported, newest_then)]
        if reported is None and Member.before.value(id=first) is None:  # the workspace is younger
            positions[0] = 0
        is_forgotten = Activity.forgotten.value(after=reported, until=first_id(now(-HIDDEN_DAYS * 86400)))
    if is_forgotten or None in positions:
        raise Gone("a backup was restored, or later changes were deleted; begin again without after")
    if after and seen_since and reported < first_id(seen_since):
        raise Gone(OTHER_PROJECTS)
    if listed:
        entries = MADE[of_tasks].all(after=listed, most=limit + 1)
    else:
        entries = Activity.following.all(position=positions[0], most=limit + 1, of_tasks=of_tasks)
    page, more = entries[:limit], len(entries) > limit
    changes, end = _changes_by(page), page[-1]["id"] if page else newest
    if changes is None:
        same: Row = {"of_tasks": of_tasks, "seen_since": seen_since, "since": since, "after": after}
        return change_page(limit=limit // 2, **same)
    with db.viewed_by(None):
        cursor = [reported if listed else end, Activity.newest.value(), *([end] if listed and more else [])]
    shown = {"next_after": "_".join(cursor), "has_more": more or bool(listed)}
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
        released += fields.get("blocks", [[]])[0]
        if entry["action"] == "created":
            new.add(key)
        elif entry["entity"] == "task" and fields.keys() & {"status", "title"}:
            blocking.append(entry["number"])
        if fields.get("project_id", [""])[0] is None:  # the viewer did not see the task before
            come.append(entry["entity_id"])
    affected = Blocker.affected.all(blocking=blocking, released=released) if blocking or released else ()
    for row in affected:
        changed.setdefault(("task", row["id"]), entries[-1] | {"action": "updated"})
    for row in Comment.of_tasks.all(ids=come) if come else ():
        changed.setdefault(("comment", row["id"]), entries[-1] | {"action": "updated"})
    left = PAGE_BYTES if len(entries) > 1 else math.inf
    for kind, statement in OBJECTS.items():
        if ids := [id for name, id in changed if name == kind]:
            rows, left = statement.some(left, ids=ids)
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
