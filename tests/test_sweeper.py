"""What the sweeper sends to whom, and in which order, when receivers are slow, hang, or are many."""

import contextlib
import json
import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest
from harness import PATIENCE, at_once, hook, wait_until
from receivers import Hostile, stay_silent

import webhooks
from database import Unavailable, db, prepare
from models import write
from outbox import Webhook

ACTOR = {"id": "1", "full_name": "A", "email": "a@example.com", "role": "owner"}
SLOW = {"TASKS_DELIVERY__TIMEOUT_SECONDS": "60", "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "0"}


LONG = {"TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "60"}


@pytest.fixture
def hanging():
    """Make receivers that never answer."""
    with contextlib.ExitStack() as ends:

        def make():
            receiver = Hostile(stay_silent)
            ends.callback(receiver.close)
            return receiver

        yield make


@contextlib.contextmanager
def writing(server, project):
    """Have a request that waits for its receivers until the server is killed at the end."""
    failed = []

    def write_and_wait():
        try:
            server.client().make_task(project, title="First")
        except OSError as error:
            failed.append(error)

    writer = threading.Thread(target=write_and_wait)
    writer.start()
    try:
        yield
    finally:
        server.kill()
        writer.join()
    assert failed  # else it was answered meanwhile


@pytest.fixture
def let_go():
    """Hold up receivers until the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def sweeper(tmp_path, monkeypatch):
    """Start a sweeper in this process, with these webhooks and a database of its own."""
    monkeypatch.setattr(webhooks, "sending", webhooks.Sending())
    db.init(str(tmp_path / "unit" / "tasks.db"), timeout=5)
    prepare()
    made = []

    def start(*hooks, leave, chores=()):
        """Note the webhooks, leave so many events for each, and sweep."""
        settings = {"request_budget_seconds": 0, "timeout_seconds": 30, "retry_schedule": [5]}
        with write() as transaction:
            Webhook.mirror(transaction, [entry | {"secrets": ["s"]} for entry in hooks])
        webhooks.configure(
            [entry | {"secrets": ["s"]} for entry in hooks], settings | {"keep_days": 30, "ca_file": None}
        )
        with write(ACTOR) as transaction:
            for number in range(leave):
                webhooks.emit(transaction, "task.created", {"number": number})
        made.append(webhooks.Sweeper(Path(f"{db.database}.sender"), chores))
        made[0].start()
        return made[0]

    yield start
    made[0].stop()
    made[0]._lock.close()
    db.close()


def test_receivers_that_hang_do_not_hold_up_one_that_answers(launch, new_receiver, let_go):
    hanging, well = [new_receiver().up() for _ in range(8)], new_receiver().up()
    for receiver in hanging:
        receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
    hooks = [hook(receiver, name=f"hanging {number}") for number, receiver in enumerate(hanging)]
    server = launch(TASKS_WEBHOOKS=json.dumps([*hooks, hook(well, name="well")]), **SLOW)
    owner = server.client()
    project = owner.make_project()
    for number in range(30):
        owner.make_task(project, title=str(number))
    titles = [well.next().event["data"]["task"]["title"] for _ in range(30)]
    assert titles == [str(number) for number in range(30)]
    for receiver in hanging:
        receiver.next()  # which it still holds
        assert receiver.all_here() == []


def test_a_request_that_waits_for_one_receiver_does_not_hold_up_the_events_of_another(
    launch, new_receiver, hanging
):
    well = new_receiver().up()
    server = launch(
        TASKS_WEBHOOKS=json.dumps([hook(hanging(), name="hanging"), hook(well, name="well")]), **LONG
    )
    owner = server.client()
    project = owner.make_project()
    with writing(server, project):
        assert titles([well.next()]) == ["First"]
        # Otherwise what follows would wait behind it.
        wait_until(lambda: server.rows("SELECT 1 FROM delivery WHERE status = 'delivered'"))


def test_more_receivers_that_hang_than_usual_do_not_hold_up_one_that_answers(launch, new_receiver, hanging):
    well = new_receiver().up()
    hooks = [hook(hanging(), name=f"hanging {number}") for number in range(webhooks.MOST_AT_ONCE - 1)]
    server = launch(TASKS_WEBHOOKS=json.dumps([*hooks, hook(well, name="well")]), **LONG)
    owner = server.client()
    with writing(server, owner.make_project()):
        assert titles([well.next()]) == ["First"]


def titles(calls):
    return [call.event["data"]["task"]["title"] for call in calls]


def make_tasks(server, many):
    """A project with so many tasks, and their titles in order; nothing is sent of them."""
    owner = server.client()
    project = owner.make_project()
    made = [owner.make_task(project, title=str(number))["title"] for number in range(many)]
    return owner, project, made


def test_what_a_request_leaves_to_the_sweeper_does_not_overtake_what_the_request_sends(launch, receiver):
    entry = hook(receiver, events=["task.deleted"])
    server = launch(TASKS_WEBHOOKS=json.dumps([entry]), TASKS_DELIVERY__RETRY_SCHEDULE="[0.1]")
    owner, project, made = make_tasks(server, 30)
    overtaken, numbers = threading.Event(), iter(range(100))

    def answer(call):
        number = next(numbers)
        if number == 2:
            overtaken.wait(2)  # many beats of the sweeper
        elif int(call.event["data"]["task"]["title"]) >= 20:
            overtaken.set()
        return 200

    receiver.answer = answer
    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    assert titles(receiver.next() for _ in made) == made


def test_a_second_sender_does_not_overtake_what_the_first_is_sending(launch, receiver, let_go):
    entry = hook(receiver, events=["task.deleted"])
    server = launch(TASKS_WEBHOOKS=json.dumps([entry]), **SLOW)
    owner, project, made = make_tasks(server, webhooks.BATCH + 10)
    receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    first = receiver.next()
    assert server.flask("deliver").stdout.startswith("Accepted: 0.")
    assert receiver.all_here() == []
    let_go.set()
    assert titles([first, *(receiver.next() for _ in made[1:])]) == made


def test_an_event_does_not_overtake_one_that_was_under_way_when_the_server_was_killed(
    launch, receiver, let_go
):
    receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
    server = launch(
        TASKS_WEBHOOKS=json.dumps([hook(receiver)]),
        TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="20",  # it is still waiting when the server is killed
        TASKS_DELIVERY__RETRY_SCHEDULE="[0.1]",
    )
    project, writer = write_meanwhile(server)
    assert titles([receiver.next()]) == ["Before"]
    server.kill()
    writer.join()
    let_go.set()
    server.start()
    server.client().make_task(project, title="After")
    assert titles(receiver.next() for _ in range(2)) == ["Before", "After"]


def test_an_event_does_not_overtake_one_that_was_under_way_when_a_worker_was_killed(launch, receiver, let_go):
    receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
    server = launch(
        TASKS_WEBHOOKS=json.dumps([hook(receiver)]),
        TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="60",
        TASKS_DELIVERY__SWEEPER="false",
    )
    project, writer = write_meanwhile(server)
    assert titles([receiver.next()]) == ["Before"]
    (killed,) = server.children()
    os.kill(killed, signal.SIGKILL)
    writer.join()
    let_go.set()
    wait_until(lambda: set(server.children()) - {killed})
    answer = server.client().post("/tasks", {"project_id": project["id"], "title": "After"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
    assert receiver.all_here() == []


def write_meanwhile(server):
    """Make a project, and in another thread a task in it, whose request gets no answer."""
    owner = server.client()
    project = owner.make_project()

    def write_and_fail():
        with pytest.raises(OSError):
            owner.make_task(project, title="Before")

    writer = threading.Thread(target=write_and_fail)
    writer.start()
    return project, writer


def test_what_waited_for_a_request_is_sent_as_soon_as_that_is_done(sweeper, receiver):
    sweeper(hook(receiver), leave=0).stop()
    webhooks.sending.stopping.clear()
    webhooks.sending.delivery["request_budget_seconds"] = 60
    with write(ACTOR) as first:
        webhooks.emit(first, "task.created", {"number": 1})
    webhooks.sending.delivery["request_budget_seconds"] = 0
    with write(ACTOR) as second:
        webhooks.emit(second, "task.created", {"number": 2})
    webhooks.sending.delivery["request_budget_seconds"] = 60
    assert webhooks.sweep() == 0  # the first is under way
    webhooks.sending.left_something.clear()
    assert webhooks.deliver(first) == {"delivered": 1, "pending": 0}
    assert webhooks.sending.left_something.is_set()
    assert webhooks.sweep() == 1
    assert [receiver.next().event["data"]["number"] for _ in range(2)] == [1, 2]


def test_clients_that_write_at_the_same_time_are_all_sent_to_at_once(hooked, receiver):
    project = hooked.client().make_project()

    def work(client):
        body = {"project_id": project["id"], "title": "A task"}
        return [client.post("/tasks", body).headers["x-webhook-deliveries"] for _ in range(15)]

    said = at_once(*[partial(work, hooked.client()) for _ in range(3)])
    assert {text for texts in said for text in texts} == {"delivered=1; pending=0"}


def test_what_fails_after_the_commit_does_not_fail_the_request(hooked, receiver):
    hooked.allow_bugs = True
    owner = hooked.client()
    project = owner.make_project()
    # The result of an attempt cannot be stored.
    hooked.rows("CREATE TRIGGER broken BEFORE UPDATE ON delivery BEGIN SELECT RAISE(ABORT, 'broken'); END")
    answer = owner.post("/tasks", {"project_id": project["id"], "title": "T"})
    assert answer.status_code == 201, answer.text
    assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
    assert f"request {answer.headers['X-Request-Id']}: deliveries are left pending" in hooked.log.read_text()
    hooked.rows("DROP TRIGGER broken")
    hooked.rows("UPDATE delivery SET leased_until = created_at")  # so that it is due again
    assert receiver.next().body == receiver.next().body


def test_a_chore_that_takes_long_holds_up_no_event(sweeper, receiver, let_go):
    begun = threading.Event()
    sweeper(hook(receiver), leave=0, chores=(lambda: begun.set() or let_go.wait(PATIENCE),))
    assert begun.wait(PATIENCE)
    with write(ACTOR) as transaction:
        for number in range(3):
            webhooks.emit(transaction, "task.created", {"number": number})
    assert [receiver.next().event["data"]["number"] for _ in range(3)] == [0, 1, 2]
    let_go.set()


def test_activity_is_dropped_after_the_days_that_a_setting_gives(launch):
    server = launch()
    server.client().make_project()
    kept = server.rows("SELECT id FROM activity")
    server.stop()
    server.rows("""
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1200)
        INSERT INTO activity SELECT '01700000-0000-7000-8000-' || printf('%012x', n), actor_id, action,
        entity, entity_id, title, changes, request_id, created_at, task_id
        FROM (SELECT * FROM activity LIMIT 1), number
    """)
    launch(folder=server.folder, TASKS_WORKSPACE__ACTIVITY_DAYS="30")
    wait_until(lambda: server.rows("SELECT id FROM activity") == kept)


def test_a_database_that_is_busy_is_one_line_of_the_log(sweeper, receiver, caplog):
    def busy():
        raise Unavailable("the database is busy")

    sweeper(hook(receiver), leave=0, chores=(busy,))
    said = "a chore is left for the next hour: the database is busy"
    wait_until(lambda: said in caplog.messages)
    assert "Traceback" not in caplog.text
