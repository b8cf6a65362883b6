"""Webhooks, deliveries and events as owners and admins see them, in the API and on the command line."""

import runpy
import sqlite3
from contextlib import closing
from functools import partial

import pytest
from harness import INSTANT, NOBODY, PATIENT, ROOT, Server, hook, invoke, wait_until
from standardwebhooks.webhooks import Webhook
from test_retries import deliveries as listed


@pytest.fixture
def receiver(shared_receiver):
    shared_receiver.all_here()
    return shared_receiver


@pytest.fixture(scope="module")
def server(launch_module, shared_receiver):
    return launch_module(hooks=[hook(shared_receiver)], **PATIENT)


@pytest.fixture
def webhook(owner):
    return owner.read("/webhooks")["webhooks"][0]


def test_webhooks_are_listed_without_their_secrets(owner, webhook, receiver):
    assert INSTANT.fullmatch(webhook.pop("created_at"))
    assert INSTANT.fullmatch(webhook.pop("updated_at"))
    del webhook["id"]
    assert webhook.pop("events")[:2] == ["task.updated", "task.completed"]
    nothing = dict.fromkeys(("reason", "first_failure_at", "last_error", "open_until", "header_name"))
    nothing |= {"failures": 0, "pending": 0}
    assert webhook == nothing | {"name": "receiver", "url": receiver.url, "state": "active"}
    assert "a-secret" not in owner.get("/webhooks").text


def test_a_ping_says_why_it_failed_and_is_sent_again_with_the_same_id_and_body(owner, webhook, receiver):
    receiver.answers = [404]
    data = owner.data(owner.post(f"/webhooks/{webhook['id']}/test"))
    assert (data["status"], data["last_status"], data["last_error"]) == ("pending", 404, "answered 404")
    data = owner.data(owner.post(f"/deliveries/{data['id']}/redeliver"))
    shown = [data[name] for name in ("event", "status", "attempts", "last_status")]
    assert shown == ["ping", "delivered", 2, 200]
    first, second = receiver.all_here()
    assert second.body == first.body
    for name in ("x-service-delivery", "webhook-id", "x-service-signature"):
        assert second.headers[name] == first.headers[name]
    Webhook(b"a-secret").verify(second.body, second.headers)
    assert (second.headers["x-service-delivery"], second.event) == (data["id"], data["payload"])
    assert second.event["data"] == {"webhook": {"id": webhook["id"], "name": "receiver"}}


def test_a_webhook_says_what_its_last_error_was_and_a_delivery_behind_which_one_it_waits(launch, receiver):
    server = launch(hooks=[hook(receiver)], **PATIENT)
    owner = server.client()
    receiver.answers = [503]
    for _ in range(2):
        owner.make_task(owner.make_project())
    second, first = listed(owner)
    assert (first["last_error"], first["waits_for"]) == ("answered 503", None)
    assert (second["last_error"], second["waits_for"]) == (None, first["id"])
    assert owner.read(f"/deliveries/{second['id']}")["waits_for"] == first["id"]
    (webhook,) = owner.read("/webhooks")["webhooks"]
    since = webhook["first_failure_at"]
    assert (webhook["last_error"], INSTANT.fullmatch(since) is None) == ("answered 503", False)
    heading, line = invoke(server, "webhook", "list").stdout.splitlines()
    assert ("FAILING-SINCE" in heading, f"{since}  answered 503" in line) == (True, True)
    assert f"the webhook receiver has failed since {since}: answered 503" in invoke(server, "doctor").stdout
    owner.post(f"/deliveries/{first['id']}/redeliver")
    wait_until(lambda: {delivery["status"] for delivery in listed(owner)} == {"delivered"})
    (webhook,) = owner.read("/webhooks")["webhooks"]
    assert (webhook["last_error"], webhook["first_failure_at"]) == (None, None)
    assert {delivery["waits_for"] for delivery in listed(owner)} == {None}


def test_deliveries_are_listed_newest_first_and_filtered(owner, webhook, receiver):
    project, before = owner.make_project(), owner.read("/deliveries")["pagination"]["total"]
    receiver.answers = [200, 404]
    good, bad = owner.make_task(project), owner.make_task(project)
    owner.patch(f"/tasks/{good['id']}", {"title": "Changed"})
    page = owner.read("/deliveries", limit=3)
    assert [d["event"] for d in page["deliveries"]] == ["task.updated", "task.created", "task.created"]
    assert page["pagination"]["total"] == before + 3
    _, failed, created = page["deliveries"]
    assert " ".join(sorted(failed)) == (
        "attempts created_at delivered_at duration_ms event event_id id last_error last_status leased_until"
        " next_at status waits_for webhook webhook_id"
    )
    assert listed(owner, status="pending") == [failed]
    assert listed(owner, status="pending", event="task.updated") == []
    filters = {"event": "task.created", "webhook_id": webhook["id"], "status": "delivered"}
    assert (listed(owner, **filters)[0], listed(owner, webhook_id=NOBODY)) == (created, [])
    assert listed(owner, limit=1, offset=1) == [failed]
    assert owner.read(f"/deliveries/{failed['id']}")["payload"]["data"]["task"]["id"] == bad["id"]
    owner.post(f"/deliveries/{failed['id']}/redeliver")


def test_events_are_read_in_order_from_where_a_client_left_off(owner, webhook, receiver):
    task = owner.make_task(owner.make_project())
    for number in range(4):
        owner.patch(f"/tasks/{task['id']}", {"title": f"Title {number}"})
    owner.post(f"/webhooks/{webhook['id']}/test")  # whose event is not among them
    start, *sent = [receiver.next().event for _ in range(5)]
    for after, found, more in ((start, sent[:2], True), (sent[1], sent[2:], False), (sent[3], [], False)):
        page = {"limit": 2, "has_more": more, "next_after": (found or [after])[-1]["id"]}
        assert owner.read("/events", after=after["id"], limit=2) == {"events": found, "pagination": page}
    assert owner.read("/events", since=sent[1]["timestamp"])["events"] == sent[1:]
    assert owner.read("/events", since=start["timestamp"], after=sent[2]["id"])["events"] == sent[3:]
    everything = owner.read("/events", limit=100)["events"]
    assert everything[-5:] == [start, *sent]
    assert "ping" not in {event["event"] for event in everything}


def test_the_command_line_lists_tests_and_enables_webhooks(server, receiver):
    run = partial(invoke, server, "webhook")
    said = run("list").stdout
    assert ("receiver" in said, "a-secret" in said) == (True, False)
    assert run("test", "receiver").stdout.startswith("receiver answered 200 after")
    assert receiver.next().event["actor"]["full_name"] == "Olga Owner"
    receiver.answers = [410]
    refused = run("test", "receiver")
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[-1] == "Error: not delivered (answered 410); it is waiting"
    assert "disabled" in run("list").stdout
    assert run("enable", "receiver").stdout == "receiver is active.\n"
    assert [receiver.next().event["event"] for _ in range(2)] == ["ping", "ping"]  # refused, and sent again
    unknown = run("enable", "other")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "no webhooks have the id or name other" in unknown.stderr


def test_the_command_line_delivers_what_is_due_and_redelivers(launch_here, new_receiver):
    receiver = new_receiver()
    server = launch_here(hooks=[hook(receiver)], TASKS_DELIVERY__RETRY_SCHEDULE="[0.01]")
    project = server.client().make_project()
    for _ in range(3):
        server.client().make_task(project)
    receiver.up()
    said = invoke(server, "deliver").stdout
    assert said == "Accepted: 3. Waiting for their next try (see webhook list): 0.\n"
    ids = [receiver.next().headers["x-service-delivery"] for _ in range(3)]
    assert invoke(server, "redeliver", ids[1]).stdout.startswith("receiver answered 200 after")
    assert receiver.next().headers["x-service-delivery"] == ids[1]
    assert invoke(server, "redeliver", NOBODY).stderr == "Error: no such delivery\n"


def test_a_command_that_lacks_the_servers_configuration_or_ca_file_harms_no_webhook(server, owner, receiver):
    without = {"TASKS_WEBHOOKS": "[]"}
    for words in (["init"], ["member", "invite", "ana@example.com", "Ana"]):
        assert invoke(server, *words, **without).exit_code == 0
    # It knows no secret: the server sends what the command has left.
    assert receiver.next().event["event"] == "member.invited"
    (webhook,) = owner.read("/webhooks")["webhooks"]
    assert webhook["state"] == "active"
    tested = invoke(server, "webhook", "test", "receiver", **without)
    assert "is not in the configuration in use here" in tested.stderr
    said = "Error: delivery.ca_file = '/nowhere/ca.pem': No such file or directory\n"
    for words in ("webhook test receiver", "deliver", "member invite a@example.com A"):
        done = invoke(server, *words.split(), TASKS_DELIVERY__CA_FILE="/nowhere/ca.pem")
        assert (done.exit_code, done.stderr) == (1, said)


def test_events_before_the_first_start_are_delivered_then(tmp_path, new_receiver):
    receiver = new_receiver()
    server = Server(tmp_path, hooks=[hook(receiver)], TASKS_DELIVERY__RETRY_SCHEDULE="[0.1]")
    for words in (["init"], ["member", "invite", "ana@example.com", "Ana"]):
        assert invoke(server, *words).exit_code == 0
    receiver.up()
    server.start()
    assert receiver.next().event["event"] == "member.invited"
    server.stop()


def test_parked_deliveries_of_an_older_version_become_refused_or_waiting():
    with closing(sqlite3.connect(":memory:")) as older:
        older.execute("CREATE TABLE delivery (webhook_id, event_seq, status, queued)")
        older.execute("CREATE INDEX delivery_waiting ON delivery (event_seq) WHERE queued = 1")
        before = [("parked", 1), ("parked", 0), ("pending", 1), ("delivered", 1)]
        older.executemany("INSERT INTO delivery (status, queued) VALUES (?, ?)", before)
        for statement in runpy.run_path(str(ROOT / "migrations/0012_delivery_statuses.py"))["STATEMENTS"]:
            older.execute(statement)
        after = older.execute("SELECT status, blocks_later FROM delivery").fetchall()
    assert after == [("waiting", 1), ("refused", 0), ("pending", 1), ("delivered", 1)]
