"""The sweeper's deliveries and their order when receivers are slow, hang, or are many."""

import os
import signal
import threading
from functools import partial

import pytest
from harness import PATIENCE, at_once, hook, invoke, old_ids, resolved, wait_until
from test_retries import titles

import webhooks
from errors import Unavailable
from models import write
from outbox import Webhook
from sweeper import Sweeper

ACTOR = {"id": "1", "full_name": "A", "email": "a@example.com", "role": "owner"}
# Only the sweeper sends; or a request waits for its receivers longer than the test lasts.
SWEEPER_ONLY = {"TASKS_DELIVERY__TIMEOUT_SECONDS": "60", "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "0"}
LONG = {"TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "60", "TASKS_DELIVERY__RETRY_SCHEDULE": "[0.1]"}


@pytest.fixture
def let_go():
    """Hold up receivers until the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def held(new_receiver, let_go):
    """Make receivers that answer at the end of the test."""

    def make():
        receiver = new_receiver().up()
        receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
        return receiver

    return make


def make_tasks(server, many):
    """Make a project with `many` tasks. Return the path that deletes it, and their titles in order."""
    owner = server.client()
    project = owner.make_project()
    made = [owner.make_task(project, title=str(number))["title"] for number in range(many)]
    return f"/projects/{project['id']}?force=true", made


def write_meanwhile(server, receiver):
    """Make a project, and in another thread a task in it, whose event the receiver gets.

    The request gets no answer.
    """
    owner = server.client()
    project = owner.make_project()

    def write_and_fail():
        with pytest.raises(OSError):
            owner.make_task(project, title="Before")

    writer = threading.Thread(target=write_and_fail)
    writer.start()
    assert titles([receiver.next()]) == ["Before"]
    return project, writer


def test_receivers_that_hang_do_not_hold_up_one_that_answers(launch, new_receiver, held):
    hanging, well = [held() for _ in range(8)], new_receiver().up()
    hooks = [hook(receiver, name=f"hanging {number}") for number, receiver in enumerate(hanging)]
    _, made = make_tasks(launch(hooks=[*hooks, hook(well, name="well")], **SWEEPER_ONLY), 10)
    assert titles(well.next() for _ in made) == made
    for receiver in hanging:
        receiver.next()  # which it still holds
        assert receiver.all_here() == []


def test_a_request_with_many_receivers_does_not_hold_up_events_of_another(launch, new_receiver, held):
    well = new_receiver().up()
    hooks = [hook(held(), name=f"hanging {number}") for number in range(webhooks.MOST_AT_ONCE - 1)]
    server = launch(hooks=[*hooks, hook(well, name="well")], **LONG)
    _, writer = write_meanwhile(server, well)
    # Otherwise what follows would wait behind it.
    wait_until(lambda: server.rows("SELECT 1 FROM delivery WHERE status = 'delivered'"))
    assert writer.is_alive()
    server.kill()
    writer.join()


def test_the_sweeper_does_not_overtake_the_request(launch, receiver):
    server = launch(hooks=[hook(receiver, events=["task.deleted"])], TASKS_DELIVERY__RETRY_SCHEDULE="[0.1]")
    path, made = make_tasks(server, webhooks.MOST_AT_ONCE + 5)
    overtaken, numbers = threading.Event(), iter(range(100))

    def answer(call):
        if next(numbers) == 2:
            overtaken.wait(1)  # ten beats of the sweeper
        elif int(call.event["data"]["task"]["title"]) >= webhooks.MOST_AT_ONCE:
            overtaken.set()
        return 200

    receiver.answer = answer
    server.client().delete(path)
    assert titles(receiver.next() for _ in made) == made


def test_a_second_sender_does_not_overtake_what_the_first_is_sending(launch, held, let_go):
    receiver = held()
    server = launch(hooks=[hook(receiver, events=["task.deleted"])], **SWEEPER_ONLY)
    path, made = make_tasks(server, webhooks.BATCH + 10)
    server.client().delete(path)
    first = receiver.next()
    assert invoke(server, "deliver").stdout.startswith("Accepted: 0.")
    assert receiver.all_here() == []
    let_go.set()
    assert titles([first, *(receiver.next() for _ in made[1:])]) == made


def test_an_event_does_not_overtake_one_that_was_under_way_when_the_server_was_killed(launch, held, let_go):
    receiver = held()
    # It is still waiting when the server is killed.
    server = launch(hooks=[hook(receiver)], **LONG | {"TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "20"})
    project, writer = write_meanwhile(server, receiver)
    server.kill()
    writer.join()
    let_go.set()
    server.start()
    server.client().make_task(project, title="After")
    assert titles(receiver.next() for _ in range(2)) == ["Before", "After"]


def test_two_failures_at_once_are_one(launch, receiver):
    """Or a receiver that is down for a moment would get nothing for as long as after many failures."""
    both = threading.Barrier(2)
    receiver.answer = lambda call: both.wait(PATIENCE) < 2 and 500
    server = launch(hooks=[hook(receiver)], **LONG | {"TASKS_DELIVERY__RETRY_SCHEDULE": "[600]"})
    project = server.client().make_project()
    at_once(*[partial(server.client().make_task, project) for _ in range(2)])
    assert server.rows("SELECT failures FROM webhook") == [{"failures": 1}]


def test_a_result_is_left_out_if_another_process_has_leased_the_delivery_since(launch, held, let_go):
    receiver = held()
    server = launch(hooks=[hook(receiver)], **LONG, TASKS_DELIVERY__SWEEPER="false")
    owner, project = server.client(), server.client().make_project()
    writer = threading.Thread(target=owner.make_task, args=[project])
    writer.start()
    receiver.next()
    server.rows("UPDATE delivery SET attempts = 2")
    let_go.set()
    writer.join()
    assert server.rows("SELECT status, attempts FROM delivery") == [{"status": "pending", "attempts": 2}]


def test_no_event_overtakes_one_that_a_killed_worker_sent_and_a_command_sends_both(launch, held, let_go):
    receiver = held()
    server = launch(hooks=[hook(receiver)], **LONG, TASKS_DELIVERY__SWEEPER="false")
    project, writer = write_meanwhile(server, receiver)
    (killed,) = server.children()
    os.kill(killed, signal.SIGKILL)
    writer.join()
    let_go.set()
    wait_until(lambda: set(server.children()) - {killed})
    answer = server.client().post("/tasks", {"project_id": project["id"], "title": "After"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
    assert receiver.all_here() == []
    server.kill()  # or its lease would hold up the command
    assert invoke(server, "deliver").stdout.startswith("Accepted: 2.")
    assert titles(receiver.all_here()) == ["Before", "After"]


def test_simultaneous_writes_are_all_delivered_at_once(hooked, receiver):
    project = hooked.client().make_project()

    def work(client):
        return [client.post("/tasks", {"project_id": project["id"], "title": "A task"}) for _ in range(10)]

    answers = sum(at_once(*[partial(work, hooked.client()) for _ in range(3)]), [])
    assert {answer.status_code for answer in answers} <= {201, 503}  # where the disk is busy
    said = {answer.headers["x-webhook-deliveries"] for answer in answers if answer.ok}
    assert said == {"delivered=1; pending=0"}


def test_a_slow_or_failing_chore_holds_up_no_event(database, tmp_path, monkeypatch, receiver, let_go, caplog):
    monkeypatch.setattr(webhooks, "sending", webhooks.Sending())
    entry = resolved(receiver)
    with write() as transaction:
        Webhook.mirror(transaction, [entry])
    settings = {"request_budget_seconds": 0, "timeout_seconds": 30, "retry_schedule": [5], "ca_file": None}
    webhooks.configure([entry], settings)
    begun = threading.Event()

    def fail():
        raise Unavailable("the database is busy")

    chores = [fail, lambda: begun.set() or let_go.wait(PATIENCE)]
    sweeper = Sweeper(tmp_path / "sender", chores, [])
    sweeper.start()
    try:
        assert begun.wait(PATIENCE)
        assert "a chore is left for the next hour: the database is busy" in caplog.messages
        assert "Traceback" not in caplog.text
        with write(ACTOR) as transaction:
            for number in range(3):
                webhooks.emit(transaction, "task.created", {"number": number})
        assert [receiver.next().event["data"]["number"] for _ in range(3)] == [0, 1, 2]
    finally:
        let_go.set()
        sweeper.stop()
        sweeper._lock.close()


def test_activity_is_dropped_after_the_days_that_a_setting_gives_and_notices_after_90(launch):
    server = launch()
    owner, bot = server.client(), server.join()
    (old,) = old_ids(owner.make_task(owner.make_project(), assignee_id=bot.member["id"]), 1)
    kept, notices = (server.rows(f"SELECT id FROM {table}") for table in ("activity", "notice"))
    server.stop()
    columns = "member_id, task_id, actor_id, excerpt, created_at, read_at"
    copied = f"SELECT ?, 'commented', {columns} FROM notice"
    server.rows(f"INSERT INTO notice (id, reason, {columns}) {copied}", old)
    server.rows("""
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1200)
        INSERT INTO activity SELECT '01700000-0000-7000-8000-' || printf('%012x', n), actor_id, action,
        entity, entity_id, title, changes, request_id, created_at, task_id, key_id, number, is_hidden,
        project_id
        FROM (SELECT * FROM activity LIMIT 1), number
    """)
    launch(folder=server.folder, TASKS_WORKSPACE__ACTIVITY_DAYS="30")
    for table, rows in {"activity": kept, "notice": notices}.items():
        wait_until(lambda table=table, rows=rows: server.rows(f"SELECT id FROM {table}") == rows)
