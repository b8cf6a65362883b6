"""The common queries are read from indexes: no scan of all tasks, no sorting, before and after ANALYZE."""

import re
import sqlite3
from contextlib import closing
from itertools import combinations, product
from random import Random

import pytest
from harness import tables

from database import Statement, statement
from gateway import Flow, FlowTask
from lists import BY_ID, FILTERS, SORTS, counting, is_counted, places
from models import ACTIVITY_FILTERS, PRIORITIES, Activity, Project, StoredAnswer, Task, activities
from outbox import Delivery, Webhook

FILTERED = [name for name, filter in FILTERS.items() if filter.orders]  # those that have an index
PAIRS = [frozenset(names) for count in (0, 1, 2) for names in combinations(FILTERED, count)]
OF_FILTER = {
    "project_id": "task_project",
    "milestone_id": "task_milestone",
    "assignee_id": "task_assignee",
    "status": "task_status",
    "priority": "task_priority",
    "due_before": "task_due",
    "updated_since": "task_updated",
}
OF_ORDER = {
    **dict.fromkeys(BY_ID, {"sqlite_autoindex_task_1"}),
    **dict.fromkeys(("updated_at", "-updated_at"), {"task_updated"}),
    **dict.fromkeys(("due_date", "-due_date"), {"task_due", "task_undated"}),
    **dict.fromkeys(("priority", "-priority"), {"task_priority"}),
}


def named(names):
    return "+".join(sorted(names)) or "all"


OUTBOX = {"webhook_id", "last", "latest_due", "latest_lease", "abandoned_before", "before"}
GATEWAY = {"owner", "flow_seq", "run_id", "runtime", "child_session_key", "label", "task"}


@pytest.fixture(scope="module")
def seeded(launch_module):
    server = launch_module()
    server.flask("seed", "--tasks", "3000")
    return server


def add_flows(database):
    """Flows of one session, most of which have ended, and tasks, each second one with a run."""
    flow = (
        "INSERT INTO flow (id, owner, sync_mode, controller_id, goal, status, notify_policy, revision,"
        " created_at, updated_at, ended_at)"
        " VALUES (?, 'agent:main', 'managed', 'c', 'g', ?, 'silent', 0, ?, ?, ?)"
    )
    task = (
        "INSERT INTO flow_task (id, flow_seq, runtime, run_id, task, status, notify_policy, created_at,"
        " last_event_at) VALUES (?, ?, 'acp', ?, 't', 'queued', 'silent', 1, 1)"
    )
    database.execute(flow, ("f0", "running", 0, 0, None))
    database.executemany(flow, [(f"f{n}", "succeeded", n, n, n) for n in range(1, 2000)])
    database.executemany(task, [(f"t{n}", 1 + n % 100, f"r{n}" if n % 2 else None) for n in range(2000)])


@pytest.fixture(scope="module", params=["before ANALYZE", "after ANALYZE"])
def plan(request, seeded):
    copy = seeded.folder / f"{request.param}.db"
    with closing(sqlite3.connect(seeded.database)) as original, closing(sqlite3.connect(copy)) as database:
        original.backup(database)
        add_flows(database)
        database.execute("DROP TABLE IF EXISTS sqlite_stat1")
        database.commit()
        if request.param == "after ANALYZE":
            database.execute("ANALYZE")
    with closing(sqlite3.connect(copy)) as database:

        def steps(statement):
            names = {"limit", "offset", "most", "now", "project_id", "status", "assignee_id", "id"}
            names |= (
                {"milestone_id", "priority", "day"} | set(FILTERS) | set(ACTIVITY_FILTERS) | OUTBOX | GATEWAY
            )
            parameters = dict.fromkeys(names, 1)
            return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement.sql}", parameters)]

        yield steps


def indexes(steps):
    """The names of the indexes of tasks that the plan uses; no step reads the table in its own order."""
    subqueries = {step.split()[-1] for step in steps if step.startswith("CO-ROUTINE")}
    scanned = {step.split()[1] for step in steps if step.startswith("SCAN") and " INDEX " not in step}
    assert scanned <= subqueries, steps
    return {step.split(" INDEX ")[1].split()[0] for step in steps if re.search(r" t\d USING ", step)}


@pytest.mark.parametrize("filters", PAIRS, ids=named)
def test_every_pair_of_filters_is_read_in_every_order_from_the_index_that_was_chosen(plan, filters):
    for sort, index in product(SORTS, [*sorted(filters), None]):
        if "priority" in filters and sort in ("priority", "-priority"):
            continue  # never asked for: all have the same priority
        steps = plan(Statement(places(filters, sort, index)))
        expected = {OF_FILTER[index]} if index else OF_ORDER[sort]
        if index == "project_id" and "status" in filters:
            expected = {"task_project_status"}
        if index is None and "due_before" in filters:  # a task without a date passes no date
            expected = expected - {"task_undated"}
        if index == "status" and steps[0].startswith("SCAN t1 USING COVERING INDEX"):
            continue  # of all that is needed, which SQLite estimates to be faster than to read the tasks
        assert indexes(steps) == expected, (sort, index, steps)
        sorts = any("TEMP B-TREE" in step for step in steps)
        assert sorts == bool(index and sort not in FILTERS[index].orders), (sort, index, steps)


@pytest.fixture(scope="module")
def tasks(seeded):
    return seeded.rows("SELECT rowid, * FROM task")


@pytest.fixture(scope="module")
def reader(seeded):
    with closing(sqlite3.connect(seeded.database)) as database:
        yield database


def passes(task, filters):
    """Whether the task passes filters with these values."""
    bounds = {"due_before": "due_date", "updated_since": "updated_at"}
    for name, value in filters.items():
        held = task[bounds.get(name, name)]
        if held is None or (name not in bounds and held != value):
            return False
        if (name == "due_before" and held >= value) or (name == "updated_since" and held < value):
            return False
    return True


def in_order(tasks, sort):
    """The tasks in an order that the API offers."""
    ranks = {name: rank for rank, name in enumerate(PRIORITIES)}
    keys = {"updated_at": lambda task: task["updated_at"], "priority": lambda task: ranks[task["priority"]]}
    keys |= {"due_date": lambda task: task["due_date"] or ""}
    name = (sort or "-created_at").lstrip("-")
    reverse = not sort or sort.startswith("-")
    rows = sorted(
        tasks, key=lambda task: (keys.get(name, lambda task: "")(task), task["id"]), reverse=reverse
    )
    return sorted(rows, key=lambda task: task["due_date"] is None) if name == "due_date" else rows


@pytest.mark.parametrize("filters", PAIRS, ids=named)
def test_every_index_finds_the_same_tasks_in_the_same_order(reader, tasks, filters):
    choose = Random(named(filters))
    for example in choose.sample([task for task in tasks if task["due_date"]], 2):
        example |= {"due_before": example["due_date"], "updated_since": example["updated_at"]}
        values = {name: example[name] for name in filters}
        some = [task for task in tasks if passes(task, values)]
        for sort, index in product(SORTS, [*sorted(filters), None]):
            if "priority" in filters and sort in ("priority", "-priority"):
                continue
            sql = Statement(places(filters, sort, index)).sql
            for limit, offset in ((20, 0), (-1, 0), (30, 7)):
                rows = reader.execute(sql, values | {"limit": limit, "offset": offset}).fetchall()
                expected = [(task["rowid"],) for task in in_order(some, sort)][offset:]
                assert rows == (expected[:limit] if limit > 0 else expected), (values, sort, index)


@pytest.mark.parametrize("filters", [names for names in PAIRS if not is_counted(names)], ids=named)
def test_the_tasks_of_every_pair_of_filters_are_counted_in_the_index_that_was_chosen(plan, filters):
    for index in filters:
        steps = plan(counting(filters, index))
        assert indexes(steps) == {OF_FILTER[index]}, (index, steps)
        covers = FILTERS[index].covered >= filters - {index}
        assert any("COVERING" in step for step in steps) or not covers, (index, steps)


@pytest.mark.parametrize(
    ("table", "name"),
    [(Task, "urgent"), (Project, "shown_rows"), (Project, "shown_row"), (Task, "shown_row")],
)
def test_the_context_scans_no_table_of_tasks(plan, table, name):
    steps = plan(getattr(table, name))
    assert not [step for step in steps if step.startswith("SCAN task") and "INDEX" not in step], steps


@pytest.mark.parametrize(
    ("table", "name", "index"),
    [
        (Task, "urgent", "task_overdue"),
        (Task, "urgent", "task_urgent"),
        (Project, "shown_rows", "task_project_overdue"),
    ],
)
def test_overdue_and_urgent_tasks_come_from_the_indexes_made_for_them(plan, table, name, index):
    assert any(f"INDEX {index}" in step for step in plan(getattr(table, name)))


@pytest.mark.parametrize(
    ("table", "name"),
    [(Webhook, "configured"), (Delivery, "due"), (Delivery, "first_in_progress"), (Delivery, "is_left_for")],
)
def test_the_outbox_is_read_in_order_from_the_index_of_what_is_pending(plan, table, name):
    steps = plan(getattr(table, name))
    assert any("INDEX delivery_pending" in step for step in steps), steps
    assert not [step for step in steps if "TEMP B-TREE" in step or step.startswith("SCAN delivery")], steps


@pytest.mark.parametrize(
    ("table", "name", "index"),
    [
        (Flow, "pruning", "flow_ended"),
        (Flow, "pruning_of_idle", "flow_idle"),
        (Activity, "pruning", "sqlite_autoindex_activity_1 (id<?)"),
        (StoredAnswer, "pruning", "stored_answer_created_at"),
    ],
)
def test_what_is_to_be_deleted_is_found_by_an_index(plan, table, name, index):
    steps = plan(getattr(table, name))
    assert any(index in step for step in steps), steps


@pytest.mark.parametrize(
    ("table", "name"),
    [(Delivery, "newest_too_many"), (Delivery, "deletion_of_superfluous"), (Webhook, "resumption")],
)
def test_what_waits_for_a_disabled_webhook_is_found_by_its_own_index(plan, table, name):
    assert any("INDEX delivery_waiting" in step for step in plan(getattr(table, name)))


@pytest.mark.parametrize(
    ("table", "name", "index", "columns"),
    [
        (Flow, "of_owner", "flow_owner", "owner=?"),
        (Flow, "open_of_owner", "flow_open", "owner=?"),
        (FlowTask, "of_flow", "flow_task_flow_seq", "flow_seq=?"),
        (
            FlowTask,
            "same_run",
            "flow_task_run",
            "flow_seq=? AND run_id=? AND runtime=? AND child_session_key=?",
        ),
    ],
)
def test_flows_and_the_tasks_of_a_run_are_read_in_order_from_one_index(plan, table, name, index, columns):
    steps = plan(getattr(table, name))
    assert steps == [f"SEARCH t1 USING INDEX {index} ({columns})"]


def test_a_summary_reads_the_tasks_of_one_flow(plan):
    assert plan(FlowTask.counts)[0] == "SEARCH t1 USING INDEX flow_task_flow_seq (flow_seq=?)"


@pytest.mark.parametrize(
    "filters",
    [
        frozenset(names)
        for count in (0, 1, 2, 3)
        for names in combinations(ACTIVITY_FILTERS, count)
        if ("since" in names) == ("first" in names)
    ],
    ids=named,
)
def test_a_history_is_read_in_order_and_that_of_a_task_from_its_index(plan, filters):
    steps = plan(activities(filters))
    index = "activity_task (task_id=?" if "task_id" in filters else "sqlite_autoindex_activity_1"
    assert any(f"INDEX {index}" in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
    if filters & {"before", "since"}:
        assert not any(step.startswith("SCAN t1") for step in steps), steps


def statements(table):
    """The names of a table's statements, its own and those that every table has."""
    declared = {name: value for cls in reversed(table.__mro__) for name, value in vars(cls).items()}
    return [name for name, value in declared.items() if isinstance(value, (statement, Statement))]


@pytest.mark.parametrize("table", tables())
def test_every_statement_of_every_table_can_be_prepared(seeded, table):
    """A statement is built on first use, so a wrong one would be found by its first user."""
    names = statements(table)
    assert "insertion" in names
    with closing(sqlite3.connect(seeded.database)) as database:
        for name in names:
            sql = getattr(table, name).sql
            database.execute(f"EXPLAIN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql), 1))
