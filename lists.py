"""Lists of tasks: their filters and orders, the indexes for these, and which index a list is read from.

SQLite plans a statement before it knows the filters' values, so it cannot tell a rare value from a
common one. Here the counters tell (`_index`), and the statement is written so that SQLite has no other
choice (`places`, `unindexed`).
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from peewee import SQL, Case, Expression, ModelIndex, NodeList, Query, Select, fn

from database import Row, Statement, fold, placeholder, rowid
from models import COUNT_LIMIT, HAS_DATE, NO_DATE, PRIORITIES, Project, Task, TaskCount, pagination

# Filters and orders ---------------------------------------------------------------------------


def _rank(priority: Any) -> Case:
    return Case(priority, [(name, rank) for rank, name in enumerate(PRIORITIES)])


PRIORITY_RANK: Any = _rank(Task.priority)
# The orders of a list of tasks; ties are ordered by id in the same direction, tasks without a date last.
# Ids rise with the time of creation.
SORTS: dict[str | None, list] = {
    None: [Task.id.desc()],
    "created_at": [Task.id],
    "-created_at": [Task.id.desc()],
    "updated_at": [Task.updated_at, Task.id],
    "-updated_at": [Task.updated_at.desc(), Task.id.desc()],
    "due_date": [NO_DATE, Task.due_date, Task.id],
    "-due_date": [Task.due_date.desc(), Task.id.desc()],
    "priority": [PRIORITY_RANK, Task.id],
    "-priority": [PRIORITY_RANK.desc(), Task.id.desc()],
}
BY_ID = (None, "created_at", "-created_at")
ANY = "any"  # in place of a sort, for a count, to which the order does not matter
# The orders of those tasks that have a due date, which are in an index of their own.
DUE_SORTS: dict[str | None, list] = {
    "due_date": [Task.due_date, Task.id],
    "-due_date": [Task.due_date.desc(), Task.id.desc()],
}


class Filter(NamedTuple):
    """A filter of a list of tasks."""

    column: Any
    condition: Callable[[Any], Expression]  # of the column, or of an expression with its value
    orders: tuple[str | None, ...] = ()  # for which the filter's index gives the order; () without an index
    covered: frozenset[str] = frozenset()  # other filters that the index answers without reading the task
    convert: Callable[[str], str] = str


_EQUALITIES = frozenset(["project_id", "milestone_id", "assignee_id", "status", "priority"])


def _equals(name: str) -> Callable[[Any], Expression]:
    return lambda column: column == placeholder(name)


FILTERS: dict[str, Filter] = {
    "project_id": Filter(
        Task.project, _equals("project_id"), BY_ID, frozenset(["assignee_id", "status", "priority"])
    ),
    "milestone_id": Filter(Task.milestone, _equals("milestone_id"), BY_ID, _EQUALITIES | {"due_before"}),
    "assignee_id": Filter(
        Task.assignee, _equals("assignee_id"), BY_ID, frozenset(["project_id", "status", "priority"])
    ),
    "status": Filter(Task.status, _equals("status"), BY_ID, frozenset(["priority"])),
    "priority": Filter(Task.priority, _equals("priority"), BY_ID),
    "due_before": Filter(
        Task.due_date, lambda date: date < placeholder("due_before"), ("due_date", "-due_date"), _EQUALITIES
    ),
    "updated_since": Filter(
        Task.updated_at,
        lambda time: time >= placeholder("updated_since"),
        ("updated_at", "-updated_at"),
        _EQUALITIES | {"due_before"},
    ),
    "unassigned": Filter(Task.assignee, lambda assignee: assignee.is_null()),
    "archived": Filter(Task.project, lambda project: project.not_in(Project.select_archived())),
    "q": Filter(Task.search, lambda text: fn.INSTR(text, placeholder("q")) > 0, convert=fold),
}
LOOK_UP = 10  # a task that is read costs as much as so many entries of an index

# Each filter and each order is read from one index that ends in the id, followed by the columns of other
# filters, so that few tasks are read which do not pass these.
for _name, _columns in {
    "task_project": (Task.project, Task.id, Task.assignee, Task.priority),
    "task_project_status": (Task.project, Task.status, Task.id),
    "task_status": (Task.status, Task.id, Task.priority),
    "task_priority": (PRIORITY_RANK, Task.id),
    "task_updated": (
        *(Task.updated_at, Task.id),
        *(Task.project, Task.milestone, Task.assignee, Task.status, Task.priority, Task.due_date),
    ),
}.items():
    Task.add_index(ModelIndex(Task, _columns, name=_name))
Task.add_index(
    *(Task.milestone, Task.id, Task.project, Task.assignee, Task.status, Task.priority, Task.due_date),
    where=Task.milestone.is_null(False),
    name="task_milestone",
)
Task.add_index(
    *(Task.assignee, Task.id, Task.project, Task.status, Task.priority),
    where=Task.assignee.is_null(False),
    name="task_assignee",
)
# Each task is in one of these two.
Task.add_index(
    *(Task.due_date, Task.id),
    *(Task.project, Task.milestone, Task.assignee, Task.status, Task.priority),
    where=HAS_DATE,
    name="task_due",
)
Task.add_index(Task.id, where=NO_DATE, name="task_undated")


# A page ---------------------------------------------------------------------------------------


def task_page(*, limit: int, offset: int, sort: str | None = None, include: str = "", **filters: Any) -> Row:
    """One page of the tasks that pass every filter, with its pagination.

    With `include="comment_count"` each task has its number of comments.
    """
    names, end = frozenset(filters), offset + limit
    if "priority" in names:  # all have the same
        sort = {"priority": "created_at", "-priority": "-created_at"}.get(sort or "", sort)
    values = {name: FILTERS[name].convert(text) for name, text in filters.items()}
    sizes = _sizes(names, filters, sort)
    known = _count(names, sizes, values) if sizes and "q" not in names else None
    shape = names, sort, _index(names, sizes, end, sort, known)
    tasks, count, total = _page(*shape, include).json(limit=limit, offset=offset, **values)
    if total is None:
        total = known
    if total is None:
        is_last = count < limit and (count or not offset)
        total = offset + count if is_last else _count(names, sizes, values)
    more = end < total
    if not more and total > COUNT_LIMIT:  # it is not exact, and this page may be beyond it
        more = _place(*shape).value(limit=1, offset=end, **values) is not None
    return {"tasks": tasks, "pagination": pagination(total, limit, offset, more)}


def is_counted(names: frozenset[str]) -> bool:
    """Whether counters tell how many tasks pass these filters."""
    return names <= TaskCount.FILTERS


def _sizes(names: frozenset[str], filters: Row, sort: str | None) -> dict[str | None, int]:
    """How many tasks there are, under None, and how many pass each filter that has an index.

    It is exact where there are counters, and up to `COUNT_LIMIT`; else it is estimated. Empty where nothing
    has to be weighed, because one index serves both the filters and the order, or no filter has one.
    """
    indexed = {name: text for name, text in filters.items() if FILTERS[name].orders}
    if not indexed or (is_counted(names) and sort in BY_ID):
        return {}
    every = max(TaskCount.total(), 1)
    sizes: dict[str | None, int] = {}
    for name, text in indexed.items():
        if is_counted(frozenset({name})):
            sizes[name] = TaskCount.total(**{name: text})
        else:
            few = counting(frozenset({name}), name).value(**{name: text})
            sizes[name] = few if few <= COUNT_LIMIT else max(few, every // 4)
    return sizes | {None: every}


def _count(names: frozenset[str], sizes: dict[str | None, int], values: Row) -> int:
    """How many tasks pass, up to one more than `COUNT_LIMIT`."""
    if is_counted(names):
        return TaskCount.total(**values)
    if len(names) == 1 and names <= sizes.keys():
        return min(sizes[next(iter(names))], COUNT_LIMIT + 1)
    return counting(names, _index(names, sizes, COUNT_LIMIT, ANY)).value(**values)


def _index(
    names: frozenset[str], sizes: dict[str | None, int], end: int, sort: str | None, total: int | None = None
) -> str | None:
    """The filter whose index SQLite shall use, or None for the index of the order.

    It is the one of which the fewest entries are read until `end` tasks are found, if those that pass
    are spread evenly. When it plans, SQLite knows neither the filters' values nor `end`. `total` is
    how many tasks pass; where that is not known, or more than is counted, the filters are taken as
    independent of each other.
    """
    if not sizes:
        indexed = [name for name in names if FILTERS[name].orders and name != "status"]
        return next(iter(indexed), "status" if "status" in names else None)
    every = sizes[None]
    if total is None or total > COUNT_LIMIT:
        total = int(math.prod(size / every for size in sizes.values()) * every)

    def cost(index: str | None) -> float:
        size: float = sizes[index]
        if sort == ANY or _is_in_order(index, sort):
            size *= min(end / max(total, 1), 1)
        covered = FILTERS[index].covered if index else frozenset()
        return size * (1 if covered >= sizes.keys() - {index, None} else LOOK_UP)

    return min([index for index in sizes if index or sort != ANY], key=cost)


def _is_in_order(index: str | None, sort: str | None) -> bool:
    """Whether this filter's index, or with None the index of the order, gives the order."""
    return index is None or sort in FILTERS[index].orders


@lru_cache(maxsize=1024)
def _page(filters: frozenset[str], sort: str | None, index: str | None, include: str) -> Statement:
    """A page's tasks; a subquery selects them, so that only these rows are read."""
    total = TaskCount.select_total(filters) if is_counted(filters) else None
    selected = [*Task.shown_columns(), *([Task.comment_count()] if include else [])]
    return Statement(Task.in_order(places(filters, sort, index), selected), total)


@lru_cache(maxsize=1024)
def _place(filters: frozenset[str], sort: str | None, index: str | None) -> Statement:
    return Statement(places(filters, sort, index))


def places(filters: frozenset[str], sort: str | None, index: str | None) -> Query:
    """Where a page's tasks are, found by the index of this filter or of the order."""
    query: Any = Task.select(rowid(Task))
    if filters:
        query = query.where(*_conditions(filters, index))
    is_in_order = _is_in_order(index, sort)
    if is_in_order and sort in DUE_SORTS:  # tasks without a date last, which are in another index
        end = placeholder("limit") + placeholder("offset")
        dated = query.where(HAS_DATE).order_by(*DUE_SORTS[sort]).limit(end)
        undated = query.where(NO_DATE).order_by(SORTS[sort][-1]).limit(end)
        query = Select([dated.alias("dated")], [SQL("*")])
        if "due_before" not in filters:
            query += Select([undated.alias("undated")], [SQL("*")])
    else:
        first, *others = SORTS[sort]
        query = query.order_by(first if is_in_order else unindexed(first), *others)
    return query.limit(placeholder("limit")).offset(placeholder("offset"))


def _conditions(filters: frozenset[str], index: str | None) -> list[Expression]:
    """The filters' conditions, of which SQLite may look up only this one in an index.

    With a project it may look up the status too, since these two have an index of their own.
    """
    conditions = []
    for name in sorted(filters):
        column, condition = FILTERS[name].column, FILTERS[name].condition
        if name == index == "priority":
            conditions.append(_rank(placeholder("priority")) == PRIORITY_RANK)
        elif name == index or (name == "status" and index == "project_id"):
            conditions.append(condition(column))
        else:
            conditions.append(condition(unindexed(column)))
    return conditions


@lru_cache(maxsize=1024)
def counting(filters: frozenset[str], index: str | None) -> Statement:
    """How many tasks pass, up to one more than `COUNT_LIMIT`."""
    some = Task.select(SQL("1")).where(*_conditions(filters, index)).limit(COUNT_LIMIT + 1)
    return Statement(Task.select(fn.COUNT(SQL("*"))).from_(some))


def unindexed(column: Any) -> NodeList:
    """The column's value; because of the sign, SQLite looks it up in no index."""
    return NodeList((SQL("+"), column))
