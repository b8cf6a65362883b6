"""Lists of tasks: their filters and orders, an index for each screen, a page.

SQLite chooses the index. If no index serves both the filters and the order, it reads a covering index as a
whole, which is cheap; `bench/` measures every pair of filters in every order.
"""

import re
import sqlite3
from functools import lru_cache
from typing import Any

from peewee import SQL, Case, Query, Select, fn

from database import PAGE_BYTES, Row, Statement, caseless, fold, placeholder, rowid
from errors import Gone
from models import PRIORITIES, Comment, Project, Task, TaskCount
from times import now

COUNT_LIMIT = 10_000  # a list's total is exact up to here
OTHER_PROJECTS = "the projects that you see have changed; begin again without after"
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
MANY = 1000  # if at least this many tasks pass, reading by id reaches the first page sooner than by time
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
    "due_since": Task.due_date >= placeholder("due_since"),
    "created_since": fn.UNLIKELY(Task.created_at >= placeholder("created_since")),
    # Programs that poll ask for the latest changes, which SQLite cannot see from a placeholder.
    "updated_since": fn.UNLIKELY(Task.updated_at >= placeholder("updated_since")),
    "completed_since": fn.UNLIKELY(Task.completed_at >= placeholder("completed_since")),
    # Creations and completions are changes, so SQLite can read by the index of changes.
    "touched_since": fn.UNLIKELY(Task.updated_at >= placeholder("touched_since")),
    "ready": _is_waiting  # a part may add conditions
    & (Task.status == "todo")  # lets SQLite choose an index by status too
    & (Task.start_date.is_null() | (Task.start_date <= placeholder("now"))),
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
    """Return a page's pagination. Its total is at most `counted`; `end` is the next page's offset."""
    return {
        "total": min(total, counted),
        "total_exact": total <= counted,
        "limit": limit,
        "offset": offset,
        "has_more": more,
        "next_offset": (end or offset + limit) if more else None,
    }


def task_page(
    *,
    limit: int,
    offset: int,
    sort: str | None = None,
    include: str = "",
    after: tuple | None = None,
    since: str | None = None,
    counted: int = COUNT_LIMIT,
    **filters: Any,
) -> Row:
    """Return a page of the tasks that pass every filter, with its pagination.

    With `ready`, only unassigned tasks are listed unless `assignee_id` is given. With
    `include="comment_count"` each task has its number of comments. `since` is the caller's `projects_since`.
    Counts up to `counted` tasks. Raises `Gone` if `since` is later than `after`.
    """
    number = re.fullmatch(r"#?([0-9]{1,15})", filters.get("q", "").strip())
    values: Row = {"now": now(), "number": int(number[1]) if number else None}  # of placeholders, not filters
    filters = _rewritten(filters)
    if sort == "updated_at" and not offset:
        return _changes(limit, include, filters, values, after, since)
    if "due_before" in filters and filters.get("status", "done") != "done":
        filters["open"] = True  # as the indexes of what is overdue say
    names, values = frozenset(filters), filters | values
    if names & {"priority", "urgent"}:  # all tasks have the same, so only ties are left to order
        sort = {"priority": "created_at", "-priority": "-created_at"}.get(sort or "", sort)
    is_by_id = "q" not in names and sort in (None, "created_at", "-created_at")
    found = _total(names).value(most=MANY, **values) if names & SINCE and is_by_id else 0
    page = _page(names, sort, include, found == MANY)
    (tasks, count, total), most = _fitting(page, limit, offset=offset, **values)
    if total is None and count < most and (count > 0 or not offset):  # this page is the last one
        total = offset + count
    if total is None:
        total = _total(names).value(most=counted + 1, **values)
    else:
        counted = COUNT_LIMIT
    end = offset + (count or limit)
    more = end < total
    if not more and total > counted:  # the total is not exact, and this page may be beyond it
        more = page.json(limit=1, offset=end, **values)[1] > 0
    shown = pagination(total, limit, offset, more, end, counted) | {"next_after": None}
    return {"tasks": tasks, "pagination": shown}


def _fitting(page: Statement, limit: int, **parameters: Any) -> tuple[tuple, int]:
    """Return a page's rows as JSON, and its limit, which is halved until they fit into `PAGE_BYTES`."""
    try:
        return page.json(PAGE_BYTES, limit=limit, **parameters), limit
    except sqlite3.DataError:
        return _fitting(page, limit // 2, **parameters)


def _changes(
    limit: int, include: str, filters: Row, values: Row, after: tuple | None, since: str | None
) -> Row:
    """Return a page of tasks in the order of their changes, which is the order of commits (`follow_clock`).

    If the caller's projects have changed, the cursor also holds `since`, as most tasks are older than that.
    """
    if after and since and after[2] != since and after[0] < since:
        raise Gone(OTHER_PROJECTS)
    if after and after[0] > now(86400):  # the clock was wrong when the cursor was made: begin again
        after = None
    if after:
        filters["after"], values["after_id"], _ = after
    names, values = frozenset(filters), filters | values
    tasks, left = _page(names, "updated_at", include).some(limit=limit, offset=0, **values)
    is_last = left >= 0 and len(tasks) < limit
    total = len(tasks) if is_last else _total(names).value(most=COUNT_LIMIT + 1, **values)
    last = (tasks[-1]["updated_at"], tasks[-1]["id"]) if tasks else after and after[:2]
    cursor = "_".join([*last, *([since] if since else [])]) if last else None
    shown = pagination(total, limit, 0, total > len(tasks), len(tasks))
    shown |= {"next_after": cursor} | ({"next_offset": None} if after else {})
    return {"tasks": tasks, "pagination": shown}


def _rewritten(filters: Row) -> Row:
    """Return the filters that pass the same tasks and for which there are indexes."""
    if "q" in filters:
        filters |= _searched(filters.pop("q"))
    if "label" in filters:
        filters["label"] = f"\x1f{caseless(filters['label'])}\x1f"
    if since := filters.get("completed_since") or filters.get("created_since"):
        filters["touched_since"] = since
    if "ready" in filters:
        filters |= {} if "assignee_id" in filters else {"unassigned": True}
    elif filters.get("priority") == "urgent":
        filters["urgent"] = filters.pop("priority")
    return filters


def _searched(text: str) -> Row:
    """Return the filters for a text: its longest word or phrase, which most tasks lack, and the others."""
    parts = re.findall(r'"([^"]*)"?|([^"\s]+)', fold(text))
    words = sorted({phrase or word for phrase, word in parts if (phrase or word).strip()}, key=len)
    filters: Row = {"q": words.pop()} if words else {}
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
