"""Deliveries that fail are sent again from the database, by themselves, until they have arrived."""

import json
import os
import re
import signal
import threading
import time

import pytest
from harness import PATIENCE, Call, fault, hook, wait_until
from outages import leave_waiting
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

# A receiver of a test answers within the timeout, however slow the machine is, unless it is told not to.
FAST = {"TASKS_DELIVERY__RETRY_SCHEDULE": "[0.1, 0.2]", "TASKS_DELIVERY__TIMEOUT_SECONDS": "60"}


def serve(launch, *hooks, **settings):
    return launch(TASKS_WEBHOOKS=json.dumps(hooks), **(FAST | settings))


def deliveries(client, **query):
    return client.data(client.get("/deliveries", **query))["deliveries"]


def all_delivered(server):
    return not server.rows("SELECT 1 FROM delivery WHERE status != 'delivered'")


def test_what_a_receiver_misses_while_it_is_down_arrives_in_order_when_it_is_back(launch, new_receiver):
    receiver = new_receiver()
    server = serve(launch, hook(receiver))
    owner = server.client()
    task = owner.make_task(owner.make_project())
    for number in range(199):
        answer = owner.patch(f"/tasks/{task['id']}", {"title": f"Title {number}"})
        assert answer.status_code == 200
        assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
    stored = server.rows("SELECT e.id, e.body FROM event e ORDER BY seq")
    assert len(stored) == 200
    receiver.up()
    calls = [receiver.next() for _ in stored]
    assert [call.body.decode() for call in calls] == [row["body"] for row in stored]
    assert [call.headers["webhook-id"] for call in calls] == [row["id"] for row in stored]
    for call in calls[::40]:
        Webhook(b"a-secret").verify(call.body, call.headers)
    wait_until(lambda: all_delivered(server))
    answer = owner.patch(f"/tasks/{task['id']}", {"title": "Back to normal"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    assert receiver.next().event["data"]["task"]["title"] == "Back to normal"
    assert receiver.all_here() == []


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_answer_that_blames_the_webhook_is_retried_with_the_same_id_and_body(launch, receiver, status):
    server = serve(launch, hook(receiver))
    receiver.answers = [status, status]
    owner = server.client()
    owner.make_task(owner.make_project())
    first, second, third = (receiver.next() for _ in range(3))
    assert first.body == second.body == third.body
    assert first.headers["x-service-delivery"] == third.headers["x-service-delivery"]
    assert first.headers["x-service-signature"] == third.headers["x-service-signature"]
    wait_until(lambda: all_delivered(server))
    (delivery,) = deliveries(owner)
    assert (delivery["status"], delivery["attempts"], delivery["last_status"]) == ("delivered", 3, 200)
    assert delivery["last_error"] is None


def test_an_event_that_is_refused_does_not_hold_up_others_and_is_given_up_in_the_end(launch, receiver):
    server = serve(launch, hook(receiver))
    owner = server.client()
    project = owner.make_project()
    receiver.answer = lambda call: 422 if call.event["data"]["task"]["title"] == "Bad" else 200
    owner.make_task(project, title="Bad")
    answer = owner.post("/tasks", {"project_id": project["id"], "title": "Good"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    wait_until(lambda: deliveries(owner, status="refused"))
    (refused,) = deliveries(owner, status="refused")
    assert (refused["attempts"], refused["last_status"], refused["last_error"]) == (8, 422, "answered 422")
    assert len([call for call in receiver.all_here() if call.event["data"]["task"]["title"] == "Bad"]) == 8


def test_gone_disables_the_webhook_and_enabling_it_sends_what_has_waited(launch, receiver):
    server = serve(launch, hook(receiver))
    owner = server.client()
    project = owner.make_project()
    receiver.answers = [410]
    task = owner.make_task(project)
    (webhook,) = owner.data(owner.get("/webhooks"))["webhooks"]
    assert (webhook["state"], webhook["reason"]) == ("disabled", "it answered 410 Gone")
    assert [delivery["status"] for delivery in deliveries(owner)] == ["waiting"]
    assert owner.data(owner.get("/health"))["checks"]["webhooks"]["failing_endpoints"] == 1
    fault(owner.post(f"/webhooks/{webhook['id']}/test"), 409, "conflict")
    assert "x-webhook-deliveries" not in owner.patch(f"/tasks/{task['id']}", {"title": "Unheard"}).headers
    assert [delivery["status"] for delivery in deliveries(owner)] == ["waiting"] * 2
    receiver.all_here()
    enabled = owner.data(owner.post(f"/webhooks/{webhook['id']}/enable"))
    assert (enabled["state"], enabled["reason"]) == ("active", None)
    assert [receiver.next().event["event"] for _ in range(2)] == ["task.created", "task.updated"]
    wait_until(lambda: all_delivered(server))


def test_retry_after_is_waited_for(launch, receiver):
    server = serve(launch, hook(receiver))
    receiver.answers = [(503, {"Retry-After": "3600"})]
    owner = server.client()
    owner.make_task(owner.make_project())
    (delivery,) = deliveries(owner)
    assert delivery["next_at"] > delivery["created_at"][:11]
    (waited,) = server.rows("SELECT julianday(next_at) - julianday(created_at) AS days FROM delivery")
    assert 3590 < waited["days"] * 86400 < 3620


@pytest.mark.parametrize("status", [None, 503, 422])
def test_five_days_and_twelve_attempts_of_nothing_but_failures_disable_the_webhook(
    launch, new_receiver, status
):
    receiver = new_receiver()
    server = serve(launch, hook(receiver))
    owner = server.client()
    # From its first failure on, so that the twelfth is what disables it.
    server.rows("""
        CREATE TRIGGER long_ago AFTER UPDATE OF first_failure_at ON webhook BEGIN
            UPDATE webhook SET first_failure_at = '2020-01-01T00:00:00.000Z' WHERE id = new.id;
        END
    """)
    if status:
        receiver.up().answer = lambda call: status
    project = owner.make_project()
    for _ in range(2):
        owner.make_task(project)
        if status == 422:  # of two that are tried side by side the other one would be the thirteenth
            wait_until(lambda: deliveries(owner, status="refused"))
    (webhook,) = wait_until(
        lambda: [w for w in owner.data(owner.get("/webhooks"))["webhooks"] if w["state"] == "disabled"]
    )
    assert webhook["reason"] == "nothing but failures since 2020-01-01T00:00:00.000Z"
    statuses = {delivery["status"] for delivery in deliveries(owner)}
    assert statuses == ({"refused", "waiting"} if status == 422 else {"waiting"})
    assert server.rows("SELECT misses FROM webhook") == [{"misses": 12}]


def test_a_lease_and_a_date_of_a_clock_that_was_set_back_do_not_delay(launch, receiver):
    server = serve(launch, hook(receiver))
    owner = server.client()
    owner.make_task(owner.make_project())
    receiver.next()
    later = "2999-01-01T00:00:00.000Z"
    server.rows("UPDATE delivery SET status = 'pending', leased_until = ?, next_at = ?", later, later)
    assert receiver.next().event["event"] == "task.created"


def test_a_webhook_that_left_the_configuration_gets_its_backlog_when_it_is_back(launch, new_receiver):
    receiver = new_receiver()
    server = serve(launch, hook(receiver))
    owner = server.client()
    owner.make_task(owner.make_project())
    server.stop()
    without = launch(folder=server.folder)
    (webhook,) = without.client().data(without.client().get("/webhooks"))["webhooks"]
    assert (webhook["state"], webhook["reason"]) == ("disabled", "no longer in the configuration")
    refused = fault(without.client().post(f"/webhooks/{webhook['id']}/enable"), 409, "conflict")
    assert "put it back there first" in refused["message"]
    health = without.client().data(without.client().get("/health"))
    assert health["checks"]["webhooks"] == {"pending": 0, "failing_endpoints": 1}
    doctor = without.flask("doctor")
    assert doctor.returncode == 0, doctor.stdout
    assert "note: deliveries to receiver that are waiting: 1" in doctor.stdout
    without.stop()
    assert "webhook receiver is no longer configured" in without.log.read_text()
    receiver.up()
    serve(launch, hook(receiver), folder=server.folder)
    assert receiver.next().event["event"] == "task.created"


def test_a_webhook_that_was_disabled_and_left_cannot_be_enabled_until_it_is_back(launch, new_receiver):
    receiver = new_receiver().up()
    receiver.answers = [410]
    server = serve(launch, hook(receiver))
    server.client().make_task(server.client().make_project())
    server.stop()
    without = launch(folder=server.folder)
    (webhook,) = without.client().data(without.client().get("/webhooks"))["webhooks"]
    assert webhook["reason"] == "no longer in the configuration"
    fault(without.client().post(f"/webhooks/{webhook['id']}/enable"), 409, "conflict")
    without.stop()
    serve(launch, hook(receiver), folder=server.folder)
    receiver.next()
    assert receiver.next().event["event"] == "task.created"


def test_a_receiver_that_hangs_costs_one_budget_and_holds_up_nobody_else(launch, new_receiver):
    hanging, healthy = new_receiver().up(), new_receiver().up()
    let_go = threading.Event()
    hanging.answer = lambda call: let_go.wait(PATIENCE) and 200
    hooks = [hook(hanging, name="hanging"), hook(healthy, name="healthy")]
    # The healthy one has the budget, too: it must be enough on a busy machine.
    server = serve(
        launch, *hooks, TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="3", TASKS_DELIVERY__RETRY_SCHEDULE="[3600]"
    )
    owner = server.client()
    project = owner.make_project()
    answer = owner.post("/tasks", {"project_id": project["id"], "title": "First"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=1"
    assert healthy.next().event["data"]["task"]["title"] == "First"
    hanging.all_here()
    for number in range(10):
        answer = owner.post("/tasks", {"project_id": project["id"], "title": str(number)})
        assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=1"
    assert [call.event["data"]["task"]["title"] for call in healthy.all_here()] == list("0123456789")
    assert hanging.all_here() == []  # its circuit is open
    (failed,) = server.rows("SELECT last_error FROM delivery WHERE last_error IS NOT NULL")
    (seconds,) = re.fullmatch(r"timed out after (\d\.\d) s", failed["last_error"]).groups()
    assert float(seconds) <= 3  # the budget, or what was left of it
    let_go.set()


def test_two_workers_send_nothing_twice_and_forget_nothing(launch, new_receiver):
    receiver = new_receiver()
    server = serve(launch, hook(receiver), WEB_CONCURRENCY="2")
    owner = server.client()
    project = owner.make_project()

    def work(client):
        for _ in range(20):
            client.make_task(project)

    writers = [threading.Thread(target=work, args=(server.client(),)) for _ in range(6)]
    for number, writer in enumerate(writers):
        writer.start()
        if number == 3:
            receiver.up()
    for writer in writers:
        writer.join()
    wait_until(lambda: all_delivered(server))
    ids = [call.headers["webhook-id"] for call in receiver.all_here()]
    assert len(ids) == 120
    assert len(set(ids)) == 120


def test_another_worker_sweeps_when_the_one_that_did_is_killed(launch, new_receiver):
    receiver = new_receiver()
    # With a short timeout a lease that the kill leaves is short, too.
    server = serve(launch, hook(receiver), WEB_CONCURRENCY="2", TASKS_DELIVERY__TIMEOUT_SECONDS="2")
    owner = server.client()
    owner.make_task(owner.make_project())
    for child in server.children():
        os.kill(child, signal.SIGKILL)
    receiver.up()
    assert receiver.next().event["event"] == "task.created"
    server.allow_bugs = True  # gunicorn notes the kill


def test_sigterm_leaves_what_it_cannot_finish_pending(launch, new_receiver):
    receiver = new_receiver().up()
    server = serve(
        launch,
        hook(receiver),
        TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="1",
        TASKS_DELIVERY__TIMEOUT_SECONDS="2",
    )
    let_go = threading.Event()
    receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
    owner, made = server.client(), []
    project = owner.make_project()
    writer = threading.Thread(target=lambda: made.append(owner.make_task(project)))
    writer.start()
    receiver.next()
    assert server.stop() == 0
    writer.join()
    let_go.set()
    (task,) = made
    server.start()
    assert receiver.next().event["data"]["task"]["id"] == task["id"]
    wait_until(lambda: all_delivered(server))


def test_what_was_delivered_long_ago_is_dropped(launch, receiver):
    server = serve(launch, hook(receiver))
    owner = server.client()
    owner.make_task(owner.make_project())
    old = "2020-01-01T00:00:00.000Z"
    server.rows("UPDATE delivery SET created_at = ?", old)
    server.rows("UPDATE event SET created_at = ?", old)
    owner.make_task(owner.make_project())
    server.stop()
    server.start()
    wait_until(lambda: server.rows("SELECT COUNT(*) AS n FROM event")[0]["n"] == 1)
    assert server.rows("SELECT COUNT(*) AS n FROM delivery") == [{"n": 1}]


def test_what_waits_for_a_disabled_receiver_is_bounded_and_what_is_dropped_is_counted(launch, receiver):
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
    wait_until(
        lambda: "receiver: the oldest 6 events that waited for it are dropped" in server.log.read_text()
    )
    leave_waiting(server, 7)
    newest = server.rows("SELECT max(event_seq) AS seq FROM delivery")
    receiver.answer = lambda call: 503
    assert server.flask("webhook", "enable", "receiver").returncode == 0
    assert server.rows("SELECT count(*) AS n, status FROM delivery") == [{"n": 10_000, "status": "pending"}]
    assert server.rows("SELECT max(event_seq) AS seq FROM delivery") == newest


def test_what_a_receiver_refused_is_not_kept_for_it(launch, receiver):
    server = serve(launch, hook(receiver))
    owner = server.client()
    receiver.answer = lambda call: 422 if call.event["event"] == "task.created" else 410
    task = owner.make_task(owner.make_project())
    wait_until(lambda: deliveries(owner, status="refused"))
    owner.patch(f"/tasks/{task['id']}", {"title": "Waits"})
    server.rows("UPDATE delivery SET created_at = '2020-01-01T00:00:00.000Z' WHERE status = 'refused'")
    server.stop()
    server.start()
    wait_until(lambda: server.rows("SELECT count(*) AS n FROM delivery") == [{"n": 1}])
    assert server.rows("SELECT status FROM delivery") == [{"status": "waiting"}]
    assert "are dropped" not in server.log.read_text()


def test_a_stale_signature_is_refused_by_the_verifier(hooked, receiver):
    owner = hooked.client()
    owner.make_task(owner.make_project())
    call: Call = receiver.next()
    stale = call.headers | {"webhook-timestamp": str(int(time.time()) - 360)}
    with pytest.raises(WebhookVerificationError):
        Webhook(b"a-secret").verify(call.body, stale)


def test_when_a_receiver_is_back_what_waited_longest_goes_first(launch, receiver):
    receiver.answers = [503]
    server = serve(launch, hook(receiver), TASKS_DELIVERY__RETRY_SCHEDULE="[600]")
    owner = server.client()
    project = owner.make_project()
    for title in "AB":
        owner.make_task(project, title=title)
    assert receiver.next().event["data"]["task"]["title"] == "A"
    (webhook,) = owner.data(owner.get("/webhooks"))["webhooks"]
    owner.post(f"/webhooks/{webhook['id']}/test")
    assert receiver.next().event["event"] == "ping"
    assert [receiver.next().event["data"]["task"]["title"] for _ in "AB"] == ["A", "B"]


def test_what_is_left_of_a_budget_is_not_held_against_a_receiver(launch, receiver):
    server = serve(launch, hook(receiver), TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="2")
    owner = server.client()
    project = owner.make_project()
    tasks = [owner.make_task(project) for _ in range(5)]
    wait_until(lambda: all_delivered(server))
    receiver.all_here()
    # The first answer leaves less than a second of the budget, which would not be enough for the second one.
    slow = iter([1.0, 1.2])
    receiver.answer = lambda call: time.sleep(next(slow, 0)) or 200
    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    calls = [receiver.next() for _ in tasks]
    assert [call.event["data"]["task"]["id"] for call in calls] == [task["id"] for task in tasks]
    wait_until(lambda: all_delivered(server))
    (webhook,) = owner.data(owner.get("/webhooks"))["webhooks"]
    assert webhook["failures"] == 0
    assert receiver.all_here() == []


def test_a_circuit_that_a_clock_opened_for_ages_is_opened_anew(launch, receiver):
    server = serve(launch, hook(receiver), TASKS_DELIVERY__RETRY_SCHEDULE="[600]")
    owner = server.client()
    receiver.answers = [503, 503]
    project = owner.make_project()
    owner.make_task(project)
    receiver.next()
    server.rows("UPDATE webhook SET open_until = '2999-01-01T00:00:00.000Z'")
    server.rows("UPDATE delivery SET next_at = '2999-01-01T00:00:00.000Z'")
    receiver.next()
    wait_until(lambda: server.rows("SELECT failures FROM webhook") == [{"failures": 2}])
    (row,) = server.rows("SELECT open_until FROM webhook")
    assert row["open_until"] < "2999"
