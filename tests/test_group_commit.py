"""Writers that wait for their turn share one commit: who waits for it, and what a failure undoes."""

import os
import resource
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from harness import OWNER_KEY, PATIENCE, at_once, resolved, wait_until
from werkzeug.test import Client

import webhooks
from app import create_app
from database import FairLock, db, is_outage, write_turn
from errors import NotFound, Unavailable
from members import ApiKey, Member
from models import Project, write
from outbox import Webhook

HEADERS = {"Authorization": f"Bearer {OWNER_KEY}", "Idempotency-Key": "a"}
FRAME = 24 + 4096  # bytes of a page in the log, with its header


@pytest.fixture
def owner(database):
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        ApiKey.issue(transaction, owner["id"], name="k", key=OWNER_KEY)
    return owner


@pytest.fixture
def pool():
    with ThreadPoolExecutor(16) as pool:
        yield pool


def group(pool, *writers):
    """Have threads call these writers, in this order and in one group, unless it is too large."""
    futures = []
    with suppress(NotFound), write():  # until all wait; who fails first is in no group
        for call in writers:
            futures.append(pool.submit(call))
            wait_until(lambda: len(write_turn._turns) == 1 + len(futures))
        raise NotFound("writer")
    return futures


def add(name, error=None):
    """Make a writer that adds a project and an event, and then may fail."""

    def add_it():
        with write(Member.active_owners.one()) as transaction:
            project = Project.add(transaction, name=name)
            webhooks.emit(transaction, "task.created", {"project": project})
            if error:
                raise error
        return project["name"]

    return add_it


def overflow():
    """Write more than the page cache and the disk hold, so that SQLite ends the transaction."""
    with write(Member.active_owners.one()) as transaction, full_disk():
        webhooks.emit(transaction, "task.created", {"text": "x" * 20_000_000})


class Pause:
    """A writer that waits until it is let go."""

    def __init__(self):
        self.has_begun, self.is_over = threading.Event(), threading.Event()

    def __call__(self):
        with write():
            self.has_begun.set()
            assert self.is_over.wait(PATIENCE)


def stored():
    """The names of the projects that another process sees, in the order in which they were stored."""
    with closing(sqlite3.connect(db.database)) as other:
        return [name for (name,) in other.execute("SELECT name FROM project ORDER BY rowid")]


def count_commits():
    """How many commits are in the log: frames whose header has the size of the database."""
    log = Path(f"{db.database}-wal").read_bytes()
    headers = [log[at : at + 24] for at in range(32, len(log), FRAME)]
    return sum(header[4:8] != bytes(4) for header in headers if header[8:16] == log[16:24])


@contextmanager
def full_disk():
    """Let this process's files not become larger than the log."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(f"{db.database}-wal").st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_writers_that_wait_share_one_commit_before_which_nobody_leaves(owner, pool):
    commits, last = count_commits(), Pause()
    futures = group(pool, add("0"), add("1"), add("undone", NotFound("task")), add("2"), last)
    assert last.has_begun.wait(PATIENCE)
    assert stored() == []
    assert not any(future.done() for future in futures)
    last.is_over.set()
    assert isinstance(futures.pop(2).exception(), NotFound)
    assert [future.result() for future in futures[:3]] == ["0", "1", "2"] == stored()
    assert count_commits() == commits + 1


def test_a_group_is_no_larger_than_half_of_the_threads(owner, pool, monkeypatch):
    monkeypatch.setattr(write_turn, "most", 3)
    monkeypatch.setattr(FairLock, "STALL_SECONDS", PATIENCE)  # or a slow machine would refuse the fourth
    commits = count_commits()
    futures = group(pool, *[add(f"{number}") for number in range(7)])
    assert [future.result() for future in futures] == stored()
    assert count_commits() == commits + 3


def test_a_deletion_begins_a_group_which_others_join(client, pool):
    with write(Member.active_owners.one()) as transaction:
        id = Project.add(transaction, name="deleted")["id"]
    commits = count_commits()
    delete = partial(client.delete, f"/api/v1/projects/{id}?force=true", headers=HEADERS)
    futures = group(pool, add("0"), add("1"), delete, add("2"))
    assert [future.result() for future in (*futures[:2], futures[3])] == ["0", "1", "2"] == stored()
    assert futures[2].result().status_code == 200
    assert count_commits() == commits + 2


def test_ids_times_and_events_rise_in_the_order_of_commits(owner):
    def work():
        for _ in range(20):
            add("P")()
        db.close()

    at_once(*[work] * 8)
    for columns in ("id FROM project ORDER BY rowid", "created_at FROM project ORDER BY rowid"):
        found = [row[0] for row in db.execute_sql(f"SELECT {columns}")]
        assert (len(found), found) == (160, sorted(found))
    events = [row[0] for row in db.execute_sql("SELECT id FROM event ORDER BY seq")]
    assert events == sorted(events)


@pytest.mark.parametrize("error", [NotFound("task"), SystemExit(1)], ids=["a refusal", "not an Exception"])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "in between", "last"])
def test_only_the_failed_writer_is_undone(owner, pool, place, error):
    writers = [add("0"), add("1")]
    writers.insert(place, add("undone", error))
    futures = group(pool, *writers)
    assert futures.pop(place).exception() is error
    assert [future.result() for future in futures] == ["0", "1"] == stored()


def test_a_commit_that_fails_or_a_transaction_that_sqlite_ends_fails_for_all_of_the_group(owner, pool):
    with full_disk():
        futures = group(pool, add("0"), add("undone", NotFound("task")), add("1"))
        errors = [future.exception() for future in futures]
    assert [type(error) for error in errors[:2]] == [Unavailable, Unavailable]
    assert is_outage(errors[2])
    assert db.refused_since
    add("2")()
    assert stored() == ["2"]
    assert db.refused_since is None
    futures = group(pool, add("0"), overflow, add("1"))
    assert isinstance(futures[0].exception(), Unavailable)
    assert is_outage(futures[1].exception())
    assert futures[2].result() == "1"
    assert stored() == ["2", "1"]


@pytest.mark.parametrize("operation", ["BEGIN", "ROLLBACK"])
def test_nothing_of_the_group_is_stored_where_a_savepoint_fails(owner, pool, operation):
    def authorize(action, argument, *_):
        return sqlite3.SQLITE_DENY if (action, argument) == (sqlite3.SQLITE_SAVEPOINT, operation) else 0

    connection = db._writer.connection()
    connection.set_authorizer(authorize)
    futures = group(pool, add("0"), add("undone", NotFound("task")))
    assert [type(future.exception()) for future in futures] == [Unavailable, sqlite3.DatabaseError]
    connection.set_authorizer(None)
    add("1")()
    assert stored() == ["1"]


def test_writers_that_wait_for_a_commit_count_against_the_limit_of_threads(pool, monkeypatch):
    monkeypatch.setattr(FairLock, "STALL_SECONDS", 0.1)
    lock = FairLock(most=3)
    assert lock.acquire(1)
    second = pool.submit(lock.acquire, PATIENCE)
    wait_until(lambda: len(lock._turns) == 2)
    assert lock.pass_turn()
    assert second.result()
    third = pool.submit(lock.acquire, PATIENCE)
    wait_until(lambda: len(lock._turns) == 2)
    assert not pool.submit(lock.acquire, PATIENCE).result(PATIENCE / 2)  # refused before its time is over
    lock.release()
    assert third.result()


@pytest.fixture
def client(owner, receiver, monkeypatch):
    """A client of the application in this process, with a receiver of every event."""
    monkeypatch.setattr(webhooks, "sending", webhooks.Sending())
    app = create_app(server={"database": db.database})
    entry = resolved(receiver)
    with write() as transaction:
        Webhook.mirror(transaction, [entry])
    webhooks.configure([entry], {"request_budget_seconds": 60, "timeout_seconds": 30, "ca_file": None})
    return Client(app)


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
def test_answers_replays_and_deliveries_wait_for_the_commit(client, pool, receiver, is_stored):
    with write(Member.active_owners.one()) as transaction:
        body = {"project_id": Project.add(transaction, name="P")["id"], "title": "T"}
    create, pause = partial(client.post, "/api/v1/tasks", json=body, headers=HEADERS), Pause()
    futures = group(pool, create, create, pause, add("Q") if is_stored else overflow)
    assert pause.has_begun.wait(PATIENCE)
    assert not any(future.done() for future in futures)
    assert receiver.all_here() == []
    pause.is_over.set()
    answers = [future.result() for future in futures[:2]]
    if not is_stored:
        assert [answer.status_code for answer in answers] == [503, 503]
        answers = [create(), create()]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert [answer.headers.get("Idempotent-Replayed") for answer in answers] == [None, "true"]
    assert answers[0].json["data"] == answers[1].json["data"] == receiver.next().event["data"]["task"]
    assert receiver.all_here() == []


def test_the_sweeper_is_woken_after_the_commit(client, pool):
    with write() as transaction:
        (webhook,) = Webhook.listing()
        Webhook.disable(transaction, webhook["id"], "for a test")
    path, pause = f"/api/v1/webhooks/{webhook['id']}/enable", Pause()
    enabled, _ = group(pool, partial(client.post, path, headers=HEADERS), pause)
    assert pause.has_begun.wait(PATIENCE)
    assert not webhooks.sending.has_work.is_set()
    pause.is_over.set()
    assert enabled.result().json["data"]["state"] == "active"
    assert webhooks.sending.has_work.is_set()
