"""Queries read indexes, before and after ANALYZE."""

import re
import sqlite3
from contextlib import closing
from functools import partial

import pytest
from harness import Server, invoke, tables

from app import parts
from database import Base, Statement, statement, views
from gateway import Flow, FlowTask
from lists import _page, _total
from members import Activity, Invitation
from models import Task
from outbox import Delivery, Webhook
from parts import resources
from parts.agents import Claims
from parts.blockers import Blocker
from parts.calendar import Calendar
from parts.feeds import MADE, OBJECTS, Changes, activities
from parts.inbox import DUE, NOTICED, WORK, Notice
from parts.labels import Labels
from parts.mail import Links
from parts.order import Rank
from parts.sessions import Sessions
from wire import StoredResponse

# The lists of tasks that the page and the agents' tools ask for: filters, order, and the index that is read.
DONE = "completed_since status touched_since"
OVERDUE = "task_(assignee|assignee_id|assignee_due|overdue)"
LISTS = {
    "a column of a project": ("project_id status", "-updated_at", "task_project_status"),
    "a column of all projects": ("archived status", "-updated_at", "task_status"),
    "a column of the caller's tasks": ("archived assignee_id status", "-updated_at", "task_assignee"),
    "a column of urgent tasks": ("archived status urgent", "-updated_at", "task_urgent_status"),
    "a column of overdue tasks": ("archived due_before open status", "-updated_at", "task_status"),
    "overdue by hand": ("due_before open project_id status", "rank", "task_project_(rank|overdue)"),
    "a column with a text": ("archived other_words q status", "-updated_at", "task_status"),
    "a column of a project by hand": ("project_id status", "rank", "task_project_rank"),
    "a column of what is done": (f"project_id {DONE}", "-updated_at", "task_project_status"),
    "your own open tasks": ("archived assignee_id open", "due_date", "task_(assignee_id|assignee_due|due)"),
    "what was done in a week": (DONE, "-updated_at", "task_status"),
    "what is late": ("archived due_before open", "due_date", "task_overdue"),
    "what is late in a project": ("due_before open project_id", "due_date", "task_(project_)?overdue"),
    "a month of your tasks": ("archived assignee_id due_before due_since open", "due_date", OVERDUE),
    "a month of a project": ("due_before due_since open project_id", "due_date", "task_(project_)?overdue"),
    "what has changed": ("updated_since", "-updated_at", "task_updated"),
    "get_context": ("archived assignee_id open", "-priority", "task_assignee(_id)?"),
    "get_context of what is in progress": ("archived assignee_id status", "-priority", "task_assignee(_id)?"),
    "get_context of what is overdue": ("archived assignee_id due_before open", "-priority", OVERDUE),
    "claim_task": ("archived priority ready unassigned", "due_date", "task_ready"),
    "claim_task of the caller's own": ("archived assignee_id priority ready", "due_date", "task_ready"),
    "claim_task of an agent": ("archived for_agents priority ready unassigned", "due_date", "task_ready"),
    "what has changed, with a cursor": ("after", "updated_at", "task_updated"),
    "what was completed": ("archived completed_since touched_since", None, "task_completed"),
    "what was done lately by hand": (f"project_id {DONE}", "rank", "task_project_status"),
    "what was created": ("archived created_since touched_since", None, "task_updated"),
    "find_tasks that are ready": ("archived ready unassigned", None, "task_status_id"),
    "find_tasks": ("archived", None, "task_id"),
    "find_tasks of a project": ("project_id", None, "task_project"),
    "find_tasks of a member": ("archived assignee_id", None, "task_assignee_id"),
    "tasks of a member": ("assignee_id", None, "task_assignee_id"),
    "tasks of a member in a project": ("assignee_id open project_id", None, "task_assignee_id"),
    "tasks of a project with a status": ("project_id status", None, "task_status_id"),
    "find_tasks of a status": ("status", None, "task_status_id"),
    "find_tasks of nobody": ("archived unassigned", None, "task_id"),
    "tasks with a label": ("label", None, "task_labels"),
    "tasks of a project with a label": ("label project_id", None, "task_labels"),
    "find_tasks that are due": ("archived due_before", "due_date", "task_due"),
}
# Their totals, where these read another index.
TOTALS = {
    "a column of urgent tasks": "task_urgent_status",
    "a column of overdue tasks": "task_overdue",
    "overdue by hand": "task_project_overdue",
    "what was completed": "task_completed",
}
# Statements of tables and parts, and the indexes that they read.
READS = [
    (Task, "urgent", "task_overdue"),
    (Task, "urgent", "task_urgent"),
    (Task, "shown_row", "task_id"),
    (resources, "MILESTONES_BY_DATE", "task_milestone (milestone_id=?)"),
    *((Webhook, name, "delivery_blocking") for name in ("configured", "due", "make_due")),
    *((Webhook, name, "delivery_free (webhook_id=? AND next_at<?)") for name in ("configured", "due")),
    *((Webhook, "backlog", f"delivery_{status}") for status in ("pending", "waiting", "refused")),
    *((Delivery, name, "delivery_blocking") for name in ("due", "in_progress", "blocking")),
    *((Delivery, name, "delivery_free (webhook_id=? AND next_at<?)") for name in ("free", "in_progress")),
    *((Delivery, name, "delivery_free (webhook_id=? AND next_at>?)") for name in ("free", "in_progress")),
    (Delivery, "drop_waiting", "delivery_waiting"),
    (Webhook, "resume", "delivery_waiting"),
    (Flow, "delete_ended", "flow_ended"),
    (Flow, "delete_idle", "flow_idle"),
    (Activity, "deletion_of", "activity_gone (number=?)"),
    (Blocker, "affected", "blocker_blocker_number (blocker_number=?)"),
    (Activity, "delete_old", "sqlite_autoindex_activity_1 (id<?)"),
    (Activity, "delete_old", "activity_hidden (id<?)"),
    (Activity, "forgotten", "activity_hidden (id>? AND id<?)"),
    (Activity, "recent", "activity_shown"),
    (Activity, "last_change", "activity_task (task_id=?)"),
    (StoredResponse, "delete_old", "stored_answer_created_at"),
    (Notice, "latest", "notice_member (member_id=? AND id<?)"),
    (Notice, "unread", "notice_unread (member_id=?)"),
    (Notice, "mark_read", "notice_member (member_id=? AND id<?)"),
    (Notice, "mark_read_of_task", "notice_unread (member_id=? AND task_id=?)"),
    (Notice, "delete_old", "sqlite_autoindex_notice_1 (id<?)"),
    (Claims, "over", "task_claimed"),
    *((Rank, name, "task_rank") for name in ("rank_after", "rank_before", "ranked_between")),
    (Calendar, "tasks", "task_assignee_due (assignee_id=?"),
    (Notice, "due_soon", "task_overdue"),
    (Sessions, "revoke_oldest", "api_key_open (member_id=?)"),
    (Links, "to_mail", "invitation_mail_at"),
    (Invitation, "by_token", "invitation_mail_hash (mail_hash=?)"),
    (Notice, "to_notify", "notice_member (member_id=? AND id>?)"),
    (Blocker, "blocked", "blocker_blocker_number"),
    (Flow, "of_owner", "flow_owner (owner=?)"),
    (Flow, "open_of_owner", "flow_open (owner=?)"),
    (FlowTask, "of_flow", "flow_task_flow_seq (flow_seq=?)"),
    (FlowTask, "counts", "flow_task_flow_seq (flow_seq=?)"),
    (FlowTask, "same_run", "flow_task_run (flow_seq=? AND run_id=? AND runtime=? AND child_session_key=?)"),
]
IN_ORDER = "latest rank_after rank_before configured due free in_progress blocking of_owner"
IN_ORDER += " open_of_owner of_flow recent last_change"


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    """A seeded workspace without a server, whose sweeper would prune hidden activity meanwhile."""
    workspace = Server(tmp_path_factory.mktemp("seeded"))
    for words in ("init", "seed --tasks 3000"):
        assert invoke(workspace, *words.split()).exit_code == 0
    return workspace


@pytest.fixture(scope="module", params=["before ANALYZE", "after ANALYZE"])
def copied(request, seeded):
    """A copy of the database, with statistics or without."""
    copy = seeded.folder / f"{request.param}.db"
    with closing(sqlite3.connect(seeded.database)) as original, closing(sqlite3.connect(copy)) as database:
        original.backup(database)
        last = "ANALYZE" if request.param == "after ANALYZE" else "DROP TABLE IF EXISTS sqlite_stat1"
        database.executescript(f"DELETE FROM notice; {last}")  # SQLite scans a table of two rows
    return copy


@pytest.fixture(scope="module")
def plan(copied):
    with closing(sqlite3.connect(copied)) as database:
        yield partial(planned, database)


def explained(database, how, query):
    return database.execute(f"{how} {query.sql}", dict.fromkeys(re.findall(r":(\w+)", query.sql), 1))


def planned(database, query):
    return [row[3] for row in explained(database, "EXPLAIN QUERY PLAN", query)]


def test_a_list_of_the_page_and_of_a_tool_reads_an_index_and_a_column_in_its_order(plan):
    for name, (filters, sort, index) in LISTS.items():
        steps = plan(_page(frozenset(filters.split()), sort, "comment_count"))
        found = [step for step in steps if re.search(rf" t\d USING (COVERING )?INDEX {index}\b", step)]
        assert found, (name, steps)
        if name.startswith(("a column", "tasks of")):
            assert not any("TEMP B-TREE" in step for step in steps), (name, steps)


@pytest.mark.parametrize("copied", ["after ANALYZE"], indirect=True)
def test_a_total_reads_no_more_than_its_filters_need(plan):
    for name, index in TOTALS.items():
        steps = plan(_total(frozenset(LISTS[name][0].split())))
        assert any(f"USING COVERING INDEX {index} " in step for step in steps), (name, steps)


def test_where_many_pass_the_first_are_found_in_their_order(plan):
    lists = [LISTS[name][0] for name in ("what was completed", "what was created")]
    for filters in (*lists, "archived updated_since"):
        steps = plan(_page(frozenset(filters.split()), None, "", passes_many=True))
        assert any("SCAN t1 USING INDEX task_id" in step for step in steps), (filters, steps)
        assert not any("TEMP B-TREE" in step for step in steps), (filters, steps)


def test_a_statement_reads_the_index_made_for_it_and_no_table_of_tasks(plan):
    for table, name, index in READS:
        query = getattr(table, name)
        steps = plan(query)
        assert any(f"INDEX {index}" in step for step in steps), (name, steps)
        scans = {f"SCAN {alias}" for alias in re.findall(r'"task" AS "(t\d)"', query.sql)}
        assert not scans & {*steps}, (name, steps)
        if name in IN_ORDER.split():
            assert not any("TEMP B-TREE" in step for step in steps), (name, steps)


def test_today_and_due_tasks_are_read_from_indexes(plan):
    indexes = dict.fromkeys(NOTICED.values(), "COVERING INDEX notice_reason (member_id=? AND reason=?")
    indexes |= {DUE: "task_assignee_due (assignee_id=?", WORK: "task_assignee (assignee_id=? AND status=?)"}
    for query, index in indexes.items():
        steps = plan(query)
        assert any(index in step for step in steps), steps
        assert not any(re.match(r"SCAN t\d$", step) for step in steps if "t1" in step), steps
    # The sweeper asks for this each second: with 100 000 tasks it took 12 ms to read them.
    assert any("USING COVERING INDEX task_overdue" in step for step in plan(Notice.due_soon))


@pytest.mark.parametrize("copied", ["after ANALYZE"], indirect=True)
def test_today_reads_no_task_of_a_question_or_review_that_was_dealt_with(plan):
    for kind in ("questions", "reviews"):
        steps = plan(NOTICED[kind])
        assert any("t1 USING COVERING INDEX task_asks" in step for step in steps), steps


def test_a_search_takes_no_longer_for_a_repetitive_text():
    """At each place GLOB and LIKE compare as much of the word as the text repeats; INSTR does not."""
    sql = _page(frozenset(["q", "other_words"]), None, "").sql
    assert "INSTR" in sql
    assert not re.search("GLOB|LIKE|REGEXP", sql)


HISTORIES = ["", "before", "since from_id", "actor_id", "entity before", "of_tasks since from_id before"]
HISTORIES += ["action key", "until before_id"]
HISTORIES += [f"task_id {names}" for names in HISTORIES if "of_tasks" not in names]


def test_a_history_is_read_in_order_and_that_of_a_task_from_its_index(plan):
    for filters in (frozenset(names.split()) for names in HISTORIES):
        steps = plan(activities(filters))
        index = "activity_task (task_id=?" if "task_id" in filters else "activity_shown"
        assert any(f"INDEX {index}" in step for step in steps), (filters, steps)
        assert not any("TEMP B-TREE" in step for step in steps), (filters, steps)
        if filters & {"before", "since"}:
            assert not any(step.startswith("SCAN t1") for step in steps), (filters, steps)


def test_a_page_of_changes_reads_its_rows_in_their_order_and_no_others(plan):
    assert "SEARCH t1 USING INTEGER PRIMARY KEY (rowid>?)" in plan(Changes.following)
    assert "SEARCH t1 USING INDEX task_id (id=?)" in plan(OBJECTS["task"])
    for made in MADE.values():
        assert not [step for step in plan(made) if "TEMP B-TREE" in step or step.startswith("SCAN")]


def test_the_newest_activity_is_found_at_once_also_in_a_table_that_was_small_at_the_start(launch_here):
    """Otherwise each write would read them all, until an hourly chore updates the statistics."""
    server = launch_here()
    assert "activity" not in [row["tbl"] for row in server.rows("SELECT tbl FROM sqlite_stat1")]
    with closing(sqlite3.connect(server.database)) as database:
        steps = planned(database, Activity.newest)
    assert not any("TEMP B-TREE" in step for step in steps), steps


def test_every_statement_of_every_table_can_be_prepared(seeded):
    """A statement is built on first use, so a wrong one would be found by its first user."""
    with closing(sqlite3.connect(seeded.database)) as database:
        classes = {one for part in parts() for one in vars(part).values() if isinstance(one, type)}
        others = {one for one in classes if not issubclass(one, Base)}  # of parts, without a table
        for owner in {*tables(), *others}:
            declared = {name: value for cls in reversed(owner.__mro__) for name, value in vars(cls).items()}
            names = [name for name, value in declared.items() if isinstance(value, (statement, Statement))]
            assert "insert_row" in names or owner in others
            for name in names:
                explained(database, "EXPLAIN", getattr(owner, name))


@pytest.fixture
def plan_of_client(copied):
    """The plan of a query of a client who sees some projects."""
    with closing(sqlite3.connect(copied)) as database:
        database.create_function("viewer", 0, lambda: "nobody")
        for sql in views(database):
            database.execute(sql)
        yield partial(planned, database)


def test_a_client_who_sees_some_projects_reads_an_index_of_each_table(plan_of_client):
    pages = [_page(frozenset(filters.split()), sort, "") for filters, sort, _ in LISTS.values()]
    histories = [activities(frozenset(filters.split())) for filters in HISTORIES]
    others = [MADE[True], Activity.recent, Task.urgent, Labels.labelled, Task.shown_row, Notice.latest]
    for query in (*pages, *histories, *others):
        steps = plan_of_client(query)
        # A search reads all comments, as for others. Two indexes contain labelled or urgent tasks alone.
        tables = "task|activity|notice|attachment" + ("" if "INSTR" in query.sql else "|comment")
        table = f"SCAN main.({tables})\\b(?!.* task_(labels|urgent)$)"
        assert not [step for step in steps if re.match(table, step)], (query.sql, steps)
    # A page asks for the changes after the newest: nothing earlier may be read.
    assert "SEARCH main.activity USING INTEGER PRIMARY KEY (rowid>?)" in plan_of_client(Changes.following)
