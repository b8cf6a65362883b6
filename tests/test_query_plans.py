"""The common queries are read from indexes: no scan of all tasks, no sorting, before and after ANALYZE."""

import sqlite3
from contextlib import closing

import pytest

import models
from models import SORTS

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


OUTBOX = {"webhook_id", "last", "far", "lease_far", "left_before", "before"}


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
    steps = plan(models.Statement(models.task_ids(filters, sort)))
    assert len(steps) == 1, steps
    assert " INDEX " in steps[0], steps
    if filters:
        assert steps[0].startswith("SEARCH"), steps


@pytest.mark.parametrize("name", ["OVERDUE_TASKS", "URGENT_TASKS", "PROJECTS", "PROJECT", "TASK_DETAIL"])
def test_the_context_scans_no_table_of_tasks(plan, name):
    steps = plan(getattr(models, name))
    assert not [step for step in steps if step.startswith("SCAN task") and "INDEX" not in step], steps


@pytest.mark.parametrize("name", ["OVERDUE_TASKS", "URGENT_TASKS"])
def test_urgent_tasks_come_from_the_indexes_made_for_them(plan, name):
    index = {"OVERDUE_TASKS": "task_overdue", "URGENT_TASKS": "task_urgent"}[name]
    assert any(index in step for step in plan(getattr(models, name)))


@pytest.mark.parametrize("name", ["CONFIGURED_WEBHOOKS", "DUE_DELIVERIES", "FIRST_IN_PROGRESS", "QUEUED"])
def test_the_outbox_is_read_in_order_from_the_index_of_what_is_pending(plan, name):
    steps = plan(getattr(models, name))
    assert any("INDEX delivery_pending" in step for step in steps), steps
    assert not [step for step in steps if "TEMP B-TREE" in step or step.startswith("SCAN delivery")], steps


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("PRUNE_FLOWS", "flow_ended"),
        ("PRUNE_IDLE_FLOWS", "flow_idle"),
        ("PRUNE_ACTIVITY", "sqlite_autoindex_activity_1 (id<?)"),
    ],
)
def test_what_is_to_be_dropped_is_found_by_an_index(plan, name, index):
    steps = plan(getattr(models, name))
    assert any(index in step for step in steps), steps


@pytest.mark.parametrize("name", ["TOO_MANY", "DROP_WAITING", "RESUME_PARKED"])
def test_what_waits_for_a_disabled_webhook_is_found_by_its_own_index(plan, name):
    assert any("INDEX delivery_waiting" in step for step in plan(getattr(models, name)))
