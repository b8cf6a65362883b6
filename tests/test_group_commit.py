"""Writers that wait for their turn share one commit: who waits for it, and what a failure undoes."""

import os
import resource
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from harness import OWNER_KEY, PATIENCE, at_once, hook, wait_until
from werkzeug.test import Client

import webhooks
from app import create_app
from database import FairLock, Unavailable, db, is_outage, prepare, write_turn
from models import ApiKey, Member, NotFound, Project, write
from outbox import Webhook

FRAME = 24 + 4096  # bytes of a page in the log, with its header


@pytest.fixture
def owner(tmp_path):
    """The owner of this process's own database."""
    db.init(str(tmp_path / "unit" / "tasks.db"), timeout=5)
    prepare()
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        ApiKey.issue(transaction, owner["id"], name="k", key=OWNER_KEY)
    yield owner
    db.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(16) as pool:
        yield pool


def in_order(pool, calls):
    """Have threads make these calls, of which each begins a write; the first waits until all others wait."""
    futures = []
    for number, call in enumerate(calls):
        wait_until(lambda number=number: len(write_turn._turns) == number)
        futures.append(pool.submit(call))
    return futures


def write_with(owner, body, others=0):
    """Run the body in a write of the owner, once so many others wait for their turn."""
    with write(owner) as transaction:
        wait_until(lambda: len(write_turn._turns) > others)
        return body(transaction)


def group(pool, owner, *bodies):
    """Write these bodies in this order, in one group unless it is too large."""
    first, *others = bodies
    calls = [partial(write_with, owner, first, len(others)), *[partial(write_with, owner, b) for b in others]]
    return in_order(pool, calls)


def add(name):
    """A body that adds a project, and an event."""

    def body(transaction):
        project = Project.add(transaction, name=name)
        webhooks.emit(transaction, "task.created", {"task": project})
        return project

    return body


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


def overflow(transaction):
    """A body that writes more than the page cache and the disk hold, so that SQLite ends the transaction."""
    with full_disk():
        webhooks.emit(transaction, "task.created", {"task": "x" * 20_000_000})


def test_writers_that_wait_share_one_commit_before_which_nobody_leaves(owner, pool):
    commits, let_go, is_last = count_commits(), threading.Event(), threading.Event()

    def last(transaction):
        is_last.set()
        let_go.wait(PATIENCE)
        return add("last")(transaction)

    futures = group(pool, owner, *[add(f"{number}") for number in range(5)], last)
    assert is_last.wait(PATIENCE)
    assert stored() == []
    assert not any(future.done() for future in futures)
    let_go.set()
    assert [future.result()["name"] for future in futures] == ["0", "1", "2", "3", "4", "last"] == stored()
    assert count_commits() == commits + 1


def test_who_writes_alone_commits_alone(owner):
    commits = count_commits()
    for number in range(3):
        write_with(owner, add(f"{number}"))
        assert count_commits() == commits + 1 + number


def test_a_group_is_no_larger_than_half_of_the_threads(owner, pool, monkeypatch):
    monkeypatch.setattr(write_turn, "most", 3)
    monkeypatch.setattr(FairLock, "STALL_SECONDS", PATIENCE)  # or a slow machine would refuse the fourth
    commits = count_commits()
    futures = group(pool, owner, *[add(f"{number}") for number in range(7)])
    assert [future.result()["name"] for future in futures] == stored()
    assert count_commits() == commits + 3


def test_ids_times_and_events_rise_in_the_order_of_commits(owner):
    def work():
        for _ in range(20):
            write_with(owner, add("P"))
        db.close()

    at_once(*[work] * 8)
    for query in (
        "SELECT id FROM project ORDER BY rowid",
        "SELECT created_at FROM project ORDER BY rowid",
        "SELECT id FROM event ORDER BY seq",
        "SELECT seq FROM event ORDER BY id",
    ):
        found = [row[0] for row in db.execute_sql(query)]
        assert len(found) == 160
        assert found == sorted(found)


@pytest.mark.parametrize("error", [NotFound("task"), SystemExit(1)], ids=["a refusal", "not an Exception"])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "in between", "last"])
def test_who_fails_is_undone_alone(owner, pool, place, error):
    def fail(transaction):
        add("undone")(transaction)
        raise error

    bodies = [add("0"), add("1"), add("2")]
    bodies[place] = fail
    futures = group(pool, owner, *bodies)
    with pytest.raises(type(error)):
        futures[place].result()
    del futures[place]
    assert [future.result()["name"] for future in futures] == stored()
    assert "undone" not in stored()


def test_who_fails_leaves_after_the_commit_too(owner, pool):
    let_go, is_last = threading.Event(), threading.Event()

    def fail(transaction):
        assert [project["name"] for project in Project.listing()] == ["first"]  # of the group
        raise NotFound("task")

    def last(transaction):
        is_last.set()
        let_go.wait(PATIENCE)

    futures = group(pool, owner, add("first"), fail, last)
    assert is_last.wait(PATIENCE)
    assert not futures[1].done()
    let_go.set()
    assert isinstance(futures[1].exception(), NotFound)
    assert stored() == ["first"]


def test_a_commit_that_fails_fails_for_all_of_the_group(owner, pool):
    def fail(transaction):
        raise NotFound("task")

    with full_disk():
        errors = [future.exception() for future in group(pool, owner, add("0"), fail, add("1"))]
    assert [type(error) for error in errors[:2]] == [Unavailable, Unavailable]
    assert is_outage(errors[2])
    assert db.refused_since
    write_with(owner, add("2"))
    assert stored() == ["2"]
    assert db.refused_since is None


def test_all_of_the_group_fail_whose_transaction_sqlite_has_ended(owner, pool):
    futures = group(pool, owner, add("0"), overflow, add("1"))
    assert isinstance(futures[0].exception(), Unavailable)
    assert is_outage(futures[1].exception())
    assert futures[2].result()["name"] == "1"
    assert stored() == ["1"]


def test_those_who_wait_for_a_commit_count_where_threads_are_kept_for_reads(monkeypatch):
    monkeypatch.setattr(FairLock, "STALL_SECONDS", 0.1)
    lock = FairLock(most=3)
    assert lock.acquire(1)
    with ThreadPoolExecutor(3) as pool:
        second = pool.submit(lock.acquire, PATIENCE)
        wait_until(lambda: len(lock._turns) == 2)
        assert lock.hand_on()
        assert second.result()
        third = pool.submit(lock.acquire, PATIENCE)
        wait_until(lambda: len(lock._turns) == 2)
        assert not pool.submit(lock.acquire, PATIENCE).result(PATIENCE / 2)  # refused before its time is over
        lock.release()
        assert third.result()
    lock.release()


@pytest.fixture
def client(owner, receiver, monkeypatch):
    """A client of the application in this process, with a receiver of every event."""
    monkeypatch.setattr(webhooks, "sending", webhooks.Sending())
    app = create_app(server={"database": db.database})
    entry = hook(receiver) | {"secrets": ["s"]}
    with write() as transaction:
        Webhook.mirror(transaction, [entry])
    webhooks.configure([entry], {"request_budget_seconds": 60, "timeout_seconds": 30, "ca_file": None})
    return Client(app)


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
def test_answers_replays_and_deliveries_wait_for_the_commit(owner, client, pool, receiver, is_stored):
    project = write_with(owner, add("P"))
    let_go, is_last = threading.Event(), threading.Event()

    def create(key):
        body = {"project_id": project["id"], "title": "T"}
        headers = {"Authorization": f"Bearer {OWNER_KEY}", "Idempotency-Key": key}
        return client.post("/api/v1/tasks", json=body, headers=headers)

    def last(transaction):
        is_last.set()
        let_go.wait(PATIENCE)
        if not is_stored:
            overflow(transaction)

    first = partial(write_with, owner, lambda transaction: None, 3)
    calls = [first, partial(create, "a"), partial(create, "a"), partial(write_with, owner, last)]
    futures = in_order(pool, calls)
    assert is_last.wait(PATIENCE)
    assert not any(future.done() for future in futures)
    assert receiver.all_here() == []
    let_go.set()
    answers = [future.result() for future in futures[1:3]]
    replayed = Counter(answer.headers.get("Idempotent-Replayed") for answer in answers)
    if is_stored:
        assert [answer.status_code for answer in answers] == [201, 201]
        assert answers[0].json["data"] == answers[1].json["data"] == receiver.next().event["data"]["task"]
        assert replayed == {None: 1, "true": 1}
    else:
        assert [answer.status_code for answer in answers] == [503, 503]
        assert receiver.all_here() == []
        assert create("a").status_code == 201
        assert receiver.next().event["event"] == "task.created"
    assert receiver.all_here() == []


def test_the_sweeper_is_woken_after_the_commit(owner, client, pool):
    let_go, is_last = threading.Event(), threading.Event()

    def disable(transaction):
        (webhook,) = Webhook.listing()
        Webhook.disable(transaction, webhook["id"], "for a test")
        return webhook["id"]

    def enable():
        headers = {"Authorization": f"Bearer {OWNER_KEY}"}
        return client.post(f"/api/v1/webhooks/{id}/enable", headers=headers)

    def last(transaction):
        is_last.set()
        let_go.wait(PATIENCE)

    id = write_with(owner, disable)
    first = partial(write_with, owner, lambda transaction: None, 2)
    futures = in_order(pool, [first, enable, partial(write_with, owner, last)])
    assert is_last.wait(PATIENCE)
    assert not webhooks.sending.left_something.is_set()
    let_go.set()
    assert futures[1].result().json["data"]["state"] == "active"
    assert webhooks.sending.left_something.is_set()
