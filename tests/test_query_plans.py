"""The common queries are read from indexes: no scan of all tasks, no sorting, before and after ANALYZE."""

import re
import sqlite3
from contextlib import closing

import pytest
from conftest import tables

from database import Statement, compiled
from gateway import Flow
from models import SORTS, Activity, Project, StoredAnswer, Task
from outbox import Delivery, Webhook

COMMON = [
    *[(frozenset(), sort) for sort in SORTS],
    *[
        (frozenset(names), None)
        for names in (
            {"project_id"},
            {"status"},
            {"assignee_id"},
            {"milestone_id"},
            {"priority"},
            {"project_id", "status"},
            {"assignee_id", "status"},
        )
    ],
]


OUTBOX = {"webhook_id", "last", "far", "lease_far", "abandoned_before", "before"}


@pytest.fixture(scope="module")
def seeded(launch_module):
    server = launch_module()
    server.flask("seed", "--tasks", "3000")
    return server


@pytest.fixture(scope="module", params=["before ANALYZE", "after ANALYZE"])
def plan(request, seeded):
    copy = seeded.folder / f"{request.param}.db"
    with closing(sqlite3.connect(seeded.database)) as original, closing(sqlite3.connect(copy)) as database:
        original.backup(database)
        database.execute("DROP TABLE IF EXISTS sqlite_stat1")
        database.commit()
        if request.param == "after ANALYZE":
            database.execute("ANALYZE")
    with closing(sqlite3.connect(copy)) as database:

        def steps(statement):
            names = {"limit", "offset", "most", "now", "project_id", "status", "assignee_id", "id"}
            names |= {"milestone_id", "priority"} | OUTBOX
            parameters = dict.fromkeys(names, 1)
            return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement.sql}", parameters)]

        yield steps


@pytest.mark.parametrize(
    ("filters", "sort"),
    COMMON,
    ids=lambda value: value if isinstance(value, str) else "+".join(sorted(value or ["all"])),
)
def test_a_page_is_read_from_one_index(plan, filters, sort):
    steps = plan(Statement(Task.places(filters, sort)))
    assert len(steps) == 1, steps
    assert " INDEX " in steps[0], steps
    if filters:
        assert steps[0].startswith("SEARCH"), steps


@pytest.mark.parametrize(
    ("table", "name"), [(Task, "urgent"), (Project, "every"), (Project, "by_id"), (Task, "detail")]
)
def test_the_context_scans_no_table_of_tasks(plan, table, name):
    steps = plan(getattr(table, name))
    assert not [step for step in steps if step.startswith("SCAN task") and "INDEX" not in step], steps


@pytest.mark.parametrize("index", ["task_overdue", "task_urgent"])
def test_urgent_tasks_come_from_the_indexes_made_for_them(plan, index):
    assert any(index in step for step in plan(Task.urgent))


@pytest.mark.parametrize(
    ("table", "name"),
    [(Webhook, "configured"), (Delivery, "due"), (Delivery, "first_in_progress"), (Delivery, "queued_for")],
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
        (StoredAnswer, "_pruning", "stored_answer_created_at"),
    ],
)
def test_what_is_to_be_deleted_is_found_by_an_index(plan, table, name, index):
    steps = plan(getattr(table, name))
    assert any(index in step for step in steps), steps


@pytest.mark.parametrize(
    ("table", "name"),
    [(Delivery, "newest_too_many"), (Delivery, "deletion_of_superfluous"), (Webhook, "_resumption")],
)
def test_what_waits_for_a_disabled_webhook_is_found_by_its_own_index(plan, table, name):
    assert any("INDEX delivery_waiting" in step for step in plan(getattr(table, name)))


def statements(table):
    """The names of a table's statements, its own and those that every table has."""
    declared = {name: value for cls in reversed(table.__mro__) for name, value in vars(cls).items()}
    return [name for name, value in declared.items() if isinstance(value, (compiled, Statement))]


@pytest.mark.parametrize("table", tables())
def test_every_statement_of_every_table_can_be_prepared(seeded, table):
    """A statement is built on first use, so a wrong one would be found by its first user."""
    names = statements(table)
    assert "insertion" in names
    with closing(sqlite3.connect(seeded.database)) as database:
        for name in names:
            sql = getattr(table, name).sql
            database.execute(f"EXPLAIN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql), 1))
