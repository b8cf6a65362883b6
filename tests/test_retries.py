"""Deliveries that fail are sent again from the database, by themselves, until they have arrived."""

import os
import signal
import threading
import time
from collections import Counter
from functools import partial

import pytest
from harness import PATIENCE, PATIENT, fault, hook, invoke, leave_waiting, wait_until
from standardwebhooks.webhooks import Webhook

from times import now

# A receiver of a test answers within the timeout, however slow the machine is, unless a test wants it not to.
FAST = {"TASKS_DELIVERY__RETRY_SCHEDULE": "[0.1, 0.2]", "TASKS_DELIVERY__TIMEOUT_SECONDS": "60"}


def serve(launch, *hooks, **settings):
    return launch(hooks=hooks, **FAST | settings)


@pytest.fixture(scope="module")
def shared(launch_module, shared_receiver):
    """A server for tests after which nothing is left to send."""
    return serve(launch_module, hook(shared_receiver))


@pytest.fixture
def retried(shared, shared_receiver):
    """The shared server, its owner's client, and its receiver."""
    shared_receiver.all_here()
    yield shared, shared.client(), shared_receiver
    shared_receiver.answer = lambda call: shared_receiver.answers.pop(0) if shared_receiver.answers else 200
    wait_until(lambda: not shared.rows("SELECT 1 FROM delivery WHERE status IN ('pending', 'waiting')"))


def deliveries(client, **query):
    return client.read("/deliveries", **query)["deliveries"]


def webhooks(client):
    return {webhook["name"]: webhook for webhook in client.read("/webhooks")["webhooks"]}


def all_delivered(server):
    return not server.rows("SELECT 1 FROM delivery WHERE status != 'delivered'")


def titles(calls):
    return [call.event["data"]["task"]["title"] for call in calls]


def test_missed_events_arrive_in_order_when_a_receiver_is_back(launch, new_receiver):
    receiver = new_receiver()
    server = serve(launch, hook(receiver))
    owner = server.client()
    task = owner.make_task(owner.make_project())
    for number in range(59):  # more than one batch
        answer = owner.patch(f"/tasks/{task['id']}", {"title": f"Title {number}"})
        assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
    stored = server.rows("SELECT e.id, e.body FROM event e ORDER BY seq")
    assert len(stored) == 60
    # These failures disable a webhook after five days, and not before.
    wait_until(lambda: server.rows("SELECT 1 FROM webhook WHERE misses > 12"))
    receiver.up()
    calls = [receiver.next() for _ in stored]
    assert [call.body.decode() for call in calls] == [row["body"] for row in stored]
    assert [call.headers["webhook-id"] for call in calls] == [row["id"] for row in stored]
    Webhook(b"a-secret").verify(calls[-1].body, calls[-1].headers)
    wait_until(lambda: all_delivered(server))
    answer = owner.patch(f"/tasks/{task['id']}", {"title": "Back to normal"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    assert receiver.next().event["data"]["task"]["title"] == "Back to normal"
    assert receiver.all_here() == []


def test_an_answer_that_blames_the_webhook_is_retried_with_the_same_id_and_body_before_others(retried):
    server, owner, receiver = retried
    project = owner.make_project()
    tasks = [owner.make_task(project) for _ in range(2)]
    receiver.all_here()
    receiver.answers = [500, 503, 429]
    owner.delete(f"/projects/{project['id']}?force=true")
    first, *others, second = [receiver.next() for _ in range(5)]
    assert [call.event["data"]["task"]["id"] for call in (first, second)] == [task["id"] for task in tasks]
    for other in others:
        assert other.body == first.body
        for name in ("x-service-delivery", "x-service-signature"):
            assert other.headers[name] == first.headers[name]
    wait_until(lambda: deliveries(owner, limit=1)[0]["status"] == "delivered")
    later, delivery = deliveries(owner, limit=2)
    assert (later["attempts"], delivery["attempts"]) == (1, 4)
    assert (delivery["last_status"], delivery["last_error"]) == (200, None)


def test_an_event_that_is_refused_does_not_hold_up_others_and_is_given_up_in_the_end(retried):
    server, owner, receiver = retried
    project = owner.make_project()
    receiver.answer = lambda call: 422 if call.event["data"]["task"]["title"] == "Bad" else 200
    owner.make_task(project, title="Bad")
    answer = owner.post("/tasks", {"project_id": project["id"], "title": "Good"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    refused = wait_until(lambda: deliveries(owner, status="refused"))[0]
    assert (refused["attempts"], refused["last_status"], refused["last_error"]) == (8, 422, "answered 422")
    assert Counter(titles(receiver.all_here())) == {"Bad": 8, "Good": 1}


def test_neither_an_outage_nor_a_wrong_address_takes_from_the_attempts_of_an_event_that_is_refused(retried):
    server, owner, receiver = retried
    receiver.answers = [503] * 4 + [404] * 4 + [422] * 8
    owner.make_task(owner.make_project(), title="Late")
    wait_until(lambda: deliveries(owner, limit=1)[0]["status"] != "pending")
    (refused,) = deliveries(owner, limit=1)
    assert (refused["status"], refused["last_status"], refused["attempts"]) == ("refused", 422, 16)


def test_an_address_that_is_unknown_for_long_gets_what_it_refused_while_others_arrive(retried):
    """As n8n's, of a workflow that is not active; it has as long as a receiver that is down."""
    server, owner, receiver = retried
    project, known = owner.make_project(), set()
    names = {"First", "Lost"}
    receiver.answer = lambda call: 404 if call.event["data"]["task"]["title"] in names - known else 200
    for title in names:
        owner.make_task(project, title=title)
    answer = owner.post("/tasks", {"project_id": project["id"], "title": "Good"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    tried = "SELECT count(*) AS n FROM delivery WHERE status = 'pending' AND attempts > 12"
    wait_until(lambda: server.rows(tried) == [{"n": 2}])
    known.add("First")
    wait_until(lambda: len(deliveries(owner, status="pending")) == 1)
    server.rows("UPDATE delivery SET created_at = '2020-01-01T00:00:00.000Z' WHERE status = 'pending'")
    refusals = partial(deliveries, owner, status="refused")
    wait_until(lambda: [one for one in refusals() if one["last_status"] == 404])
    (lost,) = [one for one in refusals() if one["last_status"] == 404]
    assert owner.read(f"/deliveries/{lost['id']}")["payload"]["data"]["task"]["title"] == "Lost"
    names.add("Late")  # as after days in which the webhook was disabled
    owner.make_task(project, title="Late")
    server.rows("UPDATE delivery SET created_at = '2020-01-01T00:00:00.000Z' WHERE status = 'pending'")
    wait_until(lambda: refusals()[0]["id"] > lost["id"])
    assert refusals()[0]["attempts"] >= 12


def test_gone_disables_the_webhook_and_enabling_it_sends_what_has_waited(retried):
    server, owner, receiver = retried
    project = owner.make_project()
    receiver.answers = [410]
    body = {"tasks": [{"project_id": project["id"], "title": "One of two"}] * 2}
    task, _ = owner.make("/tasks/batch", body)["tasks"]
    assert len(receiver.all_here()) == 1  # the other event waits
    webhook = webhooks(owner)["receiver"]
    assert (webhook["state"], webhook["reason"]) == ("disabled", "it answered 410 Gone")
    assert len(deliveries(owner, status="waiting")) == 2
    assert owner.read("/health")["checks"]["webhooks"]["failing_endpoints"] == 1
    fault(owner.post(f"/webhooks/{webhook['id']}/test"), 409, "conflict")
    (waiting, *_) = deliveries(owner, status="waiting")
    fault(owner.post(f"/deliveries/{waiting['id']}/redeliver"), 409, "conflict")
    assert "x-webhook-deliveries" not in owner.patch(f"/tasks/{task['id']}", {"title": "Unheard"}).headers
    assert len(deliveries(owner, status="waiting")) == 3
    assert receiver.all_here() == []
    enabled = owner.data(owner.post(f"/webhooks/{webhook['id']}/enable"))
    assert (enabled["state"], enabled["reason"]) == ("active", None)
    assert [receiver.next().event["event"] for _ in range(3)] == ["task.created"] * 2 + ["task.updated"]


def test_the_schedule_or_retry_after_is_waited_for_unless_the_receiver_is_back_before(launch, new_receiver):
    """Then what waited longest goes first."""
    receiver, other = new_receiver().up(), new_receiver().up()
    hooks = [hook(receiver), hook(other, name="other")]
    server = serve(launch, *hooks, TASKS_DELIVERY__RETRY_SCHEDULE="[600, 7200]")
    receiver.answers, other.answers = [(503, {"Retry-After": "3600"})], [503]
    owner = server.client()
    project = owner.make_project()
    for title in "AB":
        owner.make_task(project, title=title)
    assert titles([receiver.next()]) == ["A"]
    waits = "SELECT 86400 * (julianday(next_at) - julianday(created_at)) AS seconds FROM delivery"
    told, scheduled = [row["seconds"] for row in server.rows(f"{waits} WHERE attempts = 1 ORDER BY 1 DESC")]
    assert 3590 < told < 3620
    assert 470 < scheduled < 780
    owner.post(f"/webhooks/{webhooks(owner)['receiver']['id']}/test")
    assert receiver.next().event["event"] == "ping"
    assert titles(receiver.next() for _ in "AB") == ["A", "B"]


def test_five_days_and_twelve_attempts_of_nothing_but_failures_disable_a_webhook(launch, new_receiver):
    failing, refusing, down = new_receiver().up(), new_receiver().up(), new_receiver()
    failing.answer, refusing.answer = lambda call: 503, lambda call: 422
    named = {"503": failing, "422": refusing, "down": down}
    server = serve(launch, *[hook(receiver, name=name) for name, receiver in named.items()])
    owner = server.client()
    # From its first failure on, so that the twelfth is what disables it.
    server.rows("""
        CREATE TRIGGER long_ago AFTER UPDATE OF first_failure_at ON webhook BEGIN
            UPDATE webhook SET first_failure_at = '2020-01-01T00:00:00.000Z' WHERE id = new.id;
        END
    """)
    project = owner.make_project()
    owner.make_task(project)
    wait_until(lambda: deliveries(owner, status="refused"))  # of two side by side one would be the thirteenth
    owner.make_task(project)
    wait_until(lambda: {webhook["state"] for webhook in webhooks(owner).values()} == {"disabled"})
    reasons = {webhook["reason"] for webhook in webhooks(owner).values()}
    assert reasons == {"nothing but failures since 2020-01-01T00:00:00.000Z"}
    assert {row["misses"] for row in server.rows("SELECT misses FROM webhook")} == {12}
    statuses = Counter((delivery["webhook"], delivery["status"]) for delivery in deliveries(owner))
    waiting = {("503", "waiting"): 2, ("down", "waiting"): 2, ("422", "waiting"): 1}
    assert statuses == waiting | {("422", "refused"): 1}


def test_what_failed_before_an_outage_does_not_let_it_disable_a_webhook(launch_here, receiver):
    """Neither failures before days without an event, or of sleep, nor refusals of single events."""
    server = launch_here(hooks=[hook(receiver)], **PATIENT)
    owner = server.client()
    receiver.answers = [422, 503, 503]
    owner.make_task(owner.make_project())
    long_ago = "2020-01-01T00:00:00.000Z"
    failed = "UPDATE webhook SET misses = 11, failures = 0, open_until = NULL, first_failure_at = ?"
    id = webhooks(owner)["receiver"]["id"]
    for updated_at, misses in ((now(), 12), (long_ago, 1)):
        server.rows(f"{failed}, updated_at = ?", long_ago, updated_at)
        owner.post(f"/webhooks/{id}/test")
        webhook = webhooks(owner)["receiver"]
        assert (webhook["state"], webhook["last_error"]) == ("active", "answered 503")
        assert server.rows("SELECT misses, failures FROM webhook") == [{"misses": misses, "failures": 1}]
    assert webhook["first_failure_at"] > long_ago


def test_a_lease_and_a_date_of_a_clock_that_was_set_back_do_not_delay(retried):
    server, owner, receiver = retried
    task = owner.make_task(owner.make_project())
    receiver.next()
    server.rows("""
        UPDATE delivery SET status = 'pending', leased_until = '2999-01-01T00:00:00.000Z',
            next_at = '2999-01-01T00:00:00.000Z' WHERE id = (SELECT max(id) FROM delivery)
    """)
    assert receiver.next().event["data"]["task"] == task


def test_a_start_ends_the_leases_of_a_server_that_was_killed_and_later_events_wait(launch, new_receiver):
    server = serve(launch, hook(new_receiver()), TASKS_DELIVERY__SWEEPER="false")
    server.client().make_task(server.client().make_project())
    server.kill()
    server.rows("UPDATE delivery SET leased_until = ?, blocks_later = 0", now(50))
    server.start()
    (delivery,) = server.rows("SELECT leased_until, blocks_later FROM delivery")
    assert delivery == {"leased_until": None, "blocks_later": 1}


def test_a_webhook_that_left_the_configuration_gets_its_backlog_when_it_is_back(launch, new_receiver):
    """Also one that was disabled before, and cannot be enabled meanwhile."""
    down, gone = new_receiver(), new_receiver().up()
    gone.answers = [410]
    hooks = [hook(down, name="down"), hook(gone, name="gone")]
    server = serve(launch, *hooks)
    server.client().make_task(server.client().make_project())
    gone.next()
    server.stop()
    without = launch(folder=server.folder)
    owner = without.client()
    for webhook in webhooks(owner).values():
        assert (webhook["state"], webhook["reason"]) == ("disabled", "no longer in the configuration")
        refused = fault(owner.post(f"/webhooks/{webhook['id']}/enable"), 409, "conflict")
        assert "put it back there first" in refused["message"]
    assert owner.read("/health")["checks"]["webhooks"] == {"pending": 0, "failing_endpoints": 2}
    doctor = invoke(without, "doctor")
    assert doctor.exit_code == 0, doctor.stdout
    assert "note: deliveries to down that are waiting: 1" in doctor.stdout
    without.stop()
    assert "webhook down is no longer configured" in without.log.read_text()
    down.up()
    serve(launch, *hooks, folder=server.folder)
    assert {receiver.next().event["event"] for receiver in (down, gone)} == {"task.created"}


def test_a_new_url_gets_at_once_what_the_old_one_has_failed_to_accept(launch, new_receiver):
    old, new = new_receiver().up(), new_receiver().up()
    server = launch(hooks=[hook(old)], **PATIENT)
    project = server.client().make_project()
    old.answers = [404, 503]
    for title in "ABC":
        server.client().make_task(project, title=title)
    assert titles(old.all_here()) == ["A", "B"]
    server.stop()
    launch(hooks=[hook(new)], folder=server.folder, **PATIENT)
    assert titles(new.next() for _ in "ABC") == ["A", "B", "C"]


def test_another_worker_takes_over_the_sweeper_of_a_killed_one(launch, new_receiver):
    receiver = new_receiver()
    # A lease that the kill leaves is as short as the timeout. The graceful timeout is short too: gunicorn's
    # SIGTERM is lost on a worker that is just starting, while the other one may have sent the event already.
    settings = FAST | {"TASKS_DELIVERY__TIMEOUT_SECONDS": "2", "WEB_CONCURRENCY": "2"}
    server = launch("--graceful-timeout", "2", hooks=[hook(receiver)], **settings)
    owner = server.client()
    owner.make_task(owner.make_project())
    for child in server.children():
        os.kill(child, signal.SIGKILL)
    receiver.up()
    assert receiver.next().event["event"] == "task.created"
    server.allow_bugs = True  # gunicorn notes the kill


def test_sigterm_leaves_what_it_cannot_finish_pending(launch, receiver):
    short = {"TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "1", "TASKS_DELIVERY__TIMEOUT_SECONDS": "2"}
    server, let_go, made = serve(launch, hook(receiver), **short), threading.Event(), []
    receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
    owner = server.client()
    writer = threading.Thread(target=lambda: made.append(owner.make_task(owner.make_project())))
    writer.start()
    receiver.next()
    assert server.stop() == 0
    writer.join()
    let_go.set()
    (task,) = made
    server.start()
    assert receiver.next().event["data"]["task"]["id"] == task["id"]
    wait_until(lambda: all_delivered(server))


def test_old_deliveries_are_dropped(launch, receiver):
    """But not the last event, whose place would be given again."""
    server = serve(launch, hook(receiver))
    project = server.client().make_project()
    for _ in range(3):
        server.client().make_task(project)
    _, refused, last = [row["seq"] for row in server.rows("SELECT seq FROM event ORDER BY seq")]
    server.rows("UPDATE delivery SET status = 'refused' WHERE event_seq = ?", refused)

    def restart_with_old(seq):
        server.stop()
        for table, column in {"delivery": "event_seq", "event": "seq"}.items():
            old = f"UPDATE {table} SET created_at = '2020-01-01T00:00:00.000Z' WHERE {column} <= ?"
            server.rows(old, seq)
        server.start()

    restart_with_old(refused)
    wait_until(lambda: server.rows("SELECT seq FROM event") == [{"seq": last}])
    assert server.rows("SELECT event_seq FROM delivery") == [{"event_seq": last}]
    restart_with_old(last)
    wait_until(lambda: not server.rows("SELECT 1 FROM delivery"))
    assert server.rows("SELECT seq FROM event") == [{"seq": last}]
    assert "are deleted" not in server.log.read_text()  # which is said of what has waited


def test_the_backlog_of_a_disabled_webhook_is_bounded(launch, receiver):
    server = serve(launch, hook(receiver), TASKS_DELIVERY__SWEEPER="false")
    receiver.answers = [410]
    task = server.client().make_task(server.client().make_project())
    server.client().patch(f"/tasks/{task['id']}", {"title": "Waits"})
    server.rows("UPDATE delivery SET created_at = '2020-01-01T00:00:00.000Z' WHERE attempts = 1")
    leave_waiting(server, 10_004)
    server.stop()
    server.environment["TASKS_DELIVERY__SWEEPER"] = "true"
    server.start()
    wait_until(lambda: server.rows("SELECT count(*) AS n FROM delivery") == [{"n": 10_000}])
    said = "receiver: the oldest 6 events that waited for it are deleted"
    wait_until(lambda: said in server.log.read_text())
    leave_waiting(server, 7)
    newest = server.rows("SELECT max(event_seq) AS seq FROM delivery")
    receiver.answer = lambda call: 503
    assert invoke(server, "webhook", "enable", "receiver").exit_code == 0
    assert server.rows("SELECT count(*) AS n, status FROM delivery") == [{"n": 10_000, "status": "pending"}]
    assert server.rows("SELECT max(event_seq) AS seq FROM delivery") == newest


def test_a_short_rest_of_the_budget_is_no_failure(launch, receiver):
    server = serve(
        launch, hook(receiver, events=["task.deleted"]), TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="2"
    )
    owner = server.client()
    project = owner.make_project()
    tasks = [owner.make_task(project) for _ in range(3)]
    # The first answer leaves less than a second of the budget, which would not be enough for the second one.
    slow = iter([1.0, 1.2])
    receiver.answer = lambda call: time.sleep(next(slow, 0)) or 200
    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    calls = [receiver.next() for _ in tasks]
    assert [call.event["data"]["task"]["id"] for call in calls] == [task["id"] for task in tasks]
    wait_until(lambda: all_delivered(server))
    assert webhooks(owner)["receiver"]["failures"] == 0
    assert receiver.all_here() == []


def test_an_event_does_not_overtake_what_a_request_had_no_time_to_send(launch, receiver):
    budget = {"TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "1", "TASKS_DELIVERY__SWEEPER": "false"}
    owner = serve(launch, hook(receiver, events=["task.deleted"]), **budget).client()
    project, task = owner.make_project(), owner.make_task(owner.make_project())
    for _ in range(2):
        owner.make_task(project)
    receiver.answer = lambda call: time.sleep(0.6) or 200  # so half of the budget is not left for the second
    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    assert owner.delete(f"/tasks/{task['id']}").headers["x-webhook-deliveries"] == "delivered=0; pending=1"
