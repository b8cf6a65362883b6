"""What is sent to a webhook's receiver for which change, how it is signed, and what receivers may do."""

import contextlib
import hashlib
import hmac
import json
import re
import socket
import threading
import time

import pytest
from harness import INSTANT, OWNER_KEY, PATIENCE, hook
from receivers import ACCEPTED, OK, Hostile, certificates, dribble, send, stay_silent
from standardwebhooks.webhooks import Webhook

import webhooks

PROFILE = {"id", "full_name", "email", "role"}
# What a receiver does not accept is not tried again while a test looks at it.
ONCE = {"TASKS_DELIVERY__RETRY_SCHEDULE": "[3600]"}


def serve(launch, *hooks, **settings):
    return launch(TASKS_WEBHOOKS=json.dumps(hooks), **settings)


@pytest.fixture(scope="module")
def hooked(launch_module, module_receiver):
    return serve(launch_module, hook(module_receiver))


@pytest.fixture(scope="module")
def module_receiver(make_receiver):
    return make_receiver().up()


@pytest.fixture
def receiver(module_receiver):
    module_receiver.all_here()
    return module_receiver


@pytest.fixture(scope="module")
def owner(hooked):
    return hooked.client()


def events(receiver):
    """What has arrived, which is all of it once the client has its answer."""
    return [call.event for call in receiver.all_here()]


def names(receiver):
    return [event["event"] for event in events(receiver)]


# Which change emits which events


def test_an_event_arrives_before_the_client_has_its_answer(owner, receiver, task):
    receiver.all_here()
    for number in range(20):
        answer = owner.patch(f"/tasks/{task['id']}", {"title": f"T{number}"})
        assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
        (event,) = events(receiver)
        assert event["data"]["task"] == answer.json()["data"]


def test_an_update_tells_the_task_its_changes_and_who_made_them(owner, receiver, task):
    receiver.all_here()
    answer = owner.patch(f"/tasks/{task['id']}", {"status": "review", "metadata": {"é": [1.0, "🎉"]}})
    (event,) = events(receiver)
    assert set(event) == {"id", "event", "timestamp", "data", "actor", "request_id"}
    assert re.fullmatch("evt_[0-9a-f]{32}", event["id"])
    assert event["event"] == "task.updated"
    assert INSTANT.fullmatch(event["timestamp"])
    assert event["timestamp"] == answer.json()["data"]["updated_at"]
    assert event["request_id"] == answer.json()["meta"]["request_id"]
    assert set(event["actor"]) == PROFILE
    assert event["data"] == {
        "task": answer.json()["data"],
        "changes": {"status": ["todo", "review"], "metadata": [{}, {"é": [1, "🎉"]}]},
    }


def test_each_change_emits_its_events_once(owner, receiver, project):
    receiver.all_here()
    task = owner.make_task(project)
    path = f"/tasks/{task['id']}"
    assert names(receiver) == ["task.created"]
    steps = [
        (lambda: owner.patch(path, {"title": "B"}), ["task.updated"]),
        (lambda: owner.patch(path, {"title": "B"}), []),
        (lambda: owner.patch(path, {}), []),
        (lambda: owner.patch(path, {"status": "done"}), ["task.updated", "task.completed"]),
        (lambda: owner.patch(path, {"status": "done"}), []),
        (lambda: owner.post(f"{path}/complete"), []),
        (lambda: owner.patch(path, {"status": "todo"}), ["task.updated"]),
        (lambda: owner.post(f"{path}/complete"), ["task.completed"]),
        (lambda: owner.post(f"{path}/complete"), []),
        (lambda: owner.post(f"{path}/comments", {"content": "c"}), ["comment.added"]),
        (lambda: owner.patch(path, {"title": ""}), []),
        (lambda: owner.patch(path, {"title": "C"}, headers={"If-Match": '"1"'}), []),
        (lambda: owner.delete(path), ["task.deleted"]),
        (lambda: owner.delete(path), []),
    ]
    for change, expected in steps:
        change()
        assert names(receiver) == expected


def test_a_comment_tells_itself_and_its_task(owner, receiver, task):
    receiver.all_here()
    comment = owner.data(owner.post(f"/tasks/{task['id']}/comments", {"content": "Hm"}), 201)
    (event,) = events(receiver)
    assert event["data"] == {"comment": comment, "task": task}


def test_a_project_that_is_deleted_tells_of_each_task(owner, receiver):
    project = owner.make_project()
    tasks = [owner.make_task(project) for _ in range(3)]
    receiver.all_here()
    owner.delete(f"/projects/{project['id']}?force=true")
    assert [(e["event"], e["data"]["task"]) for e in events(receiver)] == [
        ("task.deleted", task) for task in tasks
    ]


def test_invitation_and_joining_tell_the_member(owner, hooked, receiver):
    body = {"email": "joins@example.com", "full_name": "J", "role": "client"}
    invitation = owner.data(owner.post("/members/invite", body), 201)
    (event,) = events(receiver)
    assert (event["event"], event["data"]) == ("member.invited", {"member": invitation["member"]})
    assert event["actor"]["role"] == "owner"
    token = invitation["enrollment_link"].rpartition("/")[2]
    joined = owner.data(hooked.client(None).post(f"/enroll/{token}"), 201)
    (call,) = receiver.all_here()
    assert (call.event["event"], call.event["data"]) == ("member.joined", {"member": joined["member"]})
    assert call.event["actor"] == {name: joined["member"][name] for name in PROFILE}
    for secret in (token, joined["api_key"]):
        assert secret.encode() not in call.body


def test_without_a_choice_a_webhook_gets_the_four_events(launch, new_receiver):
    few, one = new_receiver().up(), new_receiver().up()
    unchosen = hook(few)
    del unchosen["events"], unchosen["name"]
    server = serve(launch, unchosen, hook(one, events=["task.deleted"], name="one"))
    owner = server.client()
    task = owner.make_task(owner.make_project())
    owner.patch(f"/tasks/{task['id']}", {"status": "done"})
    owner.post(f"/tasks/{task['id']}/comments", {"content": "x"})
    owner.delete(f"/tasks/{task['id']}")
    assert names(few) == ["task.updated", "task.completed", "comment.added"]
    assert names(one) == ["task.deleted"]


def test_without_webhooks_nothing_is_said_of_deliveries(server):
    assert "x-webhook-deliveries" not in server.client().post("/projects", {"name": "x"}).headers


# How a call is signed


def test_a_call_has_these_headers_and_signatures(owner, receiver, task):
    receiver.all_here()
    owner.patch(f"/tasks/{task['id']}", {"title": "Ünï 🎉"})
    call = receiver.next()
    headers = {name.lower(): text for name, text in call.headers.items()}
    expected = hmac.new(b"a-secret", call.body, hashlib.sha256).hexdigest()
    assert headers["x-service-signature"] == expected
    assert headers["x-service-event"] == "task.updated"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("task-service/")
    assert headers["webhook-id"] == call.event["id"]
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
    assert re.fullmatch("[0-9a-f-]{36}", headers["x-service-delivery"])
    assert OWNER_KEY not in str(headers)
    Webhook(b"a-secret").verify(call.body, call.headers)
    assert "é".encode() not in call.body
    assert "Ünï 🎉".encode() in call.body  # no escapes that a re-serialisation would lose


def test_during_a_rotation_both_secrets_verify(launch, new_receiver):
    receiver = new_receiver().up()
    old, new = "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZA==", "whsec_bmV3IG5ldyBuZXcgbmV3IG5ldw=="
    server = serve(launch, hook(receiver, secret=new, previous_secret=old))
    owner = server.client()
    owner.make_task(owner.make_project())
    call = receiver.next()
    for secret in (old, new):
        Webhook(secret).verify(call.body, call.headers)
    expected = hmac.new(new.encode(), call.body, hashlib.sha256).hexdigest()
    assert call.headers["x-service-signature"] == expected
    assert old not in server.log.read_text()


# Receivers that are not well


def redirect_at_length(line, stopped):
    """A redirect with a body of 100 MB; `stopped.sent` tells how much of it was taken."""
    stopped.sent = 0
    line.sendall(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 100000000\r\n\r\n")
    while not stopped.is_set():
        stopped.sent += line.send(b"x" * 65536)


def test_the_body_of_a_redirect_is_not_read(launch):
    hostile = Hostile(redirect_at_length)
    owner = serve(launch, hook(hostile), **ONCE).client()
    owner.make_task(owner.make_project())
    (delivery,) = owner.data(owner.get("/deliveries"))["deliveries"]
    assert (delivery["last_status"], delivery["last_error"]) == (302, "answered 302")
    hostile.close()
    assert hostile.stopped.sent < 20_000_000  # what buffers hold


@pytest.fixture(scope="module")
def once(launch_module, make_receiver):
    """The owner of a workspace, and the receiver of its webhook."""
    receiver = make_receiver().up()
    return serve(launch_module, hook(receiver), **ONCE).client(), receiver


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {"Retry-After": "Fri, 31 Dec 2027 23:59:59 +99999999999999999999"}),
        (302, {"Location": "http://[x"}),
        (302, {"Location": "\u00e9\u0080"}),
        (404, {"Retry-After": "9" * 400}),
    ],
)
def test_a_header_that_makes_no_sense_changes_nothing(once, status, headers):
    owner, receiver = once
    receiver.answers = [(status, headers)]
    owner.make_task(owner.make_project())
    delivery, *_ = owner.data(owner.get("/deliveries"))["deliveries"]
    assert delivery["last_status"] == status
    assert delivery["status"] == ("delivered" if status == 200 else "pending")
    (webhook,) = owner.data(owner.get("/webhooks"))["webhooks"]
    assert webhook["failures"] == 0


@pytest.fixture
def hostile():
    made = []

    def make(behave, context=None):
        made.append(Hostile(behave, context))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("behave", "error"),
    [
        (stay_silent, "timed out after"),
        (dribble(OK, b"X: y\r\n"), "timed out after"),
        (dribble(b"HTTP/1.1 ", b"2"), "timed out after"),
        (dribble(OK + b"Content-Length: 1000\r\n\r\n", b"x"), "timed out after"),
        (dribble(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "timed out after"),
        (send(b""), "Remote end closed connection"),
        (send(b"garbage\r\n\r\n"), "garbage"),
        (send(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"), "302"),
    ],
    ids=[
        "never",
        "head dribbles",
        "status dribbles",
        "body dribbles",
        "continues",
        "closes",
        "garbage",
        "redirects",
    ],
)
def test_a_hostile_receiver_costs_one_budget_and_is_noted(launch, hostile, behave, error):
    target = hostile(behave)
    slow = error.startswith("timed out")  # or else it has its time also on a busy machine
    server = serve(
        launch,
        {"url": target.url, "secret": "s", "events": ["task.created"]},
        TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="0.5" if slow else "60",
        TASKS_DELIVERY__SWEEPER="false",
    )
    owner = server.client()
    project = owner.make_project()
    body = {"project_id": project["id"], "title": "x"}
    answer = owner.post("/tasks", body, timeout=40)  # they would hold it for three minutes, or for ever
    assert answer.status_code == 201
    assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
    (delivery,) = owner.data(owner.get("/deliveries"))["deliveries"]
    assert error in delivery["last_error"]
    assert delivery["attempts"] == 1
    assert b"POST /hook HTTP/1.1" in b"".join(target.requests) or behave is stay_silent
    if error != "302":  # a redirect concerns that event alone
        assert owner.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=0; pending=1"
        waits, _ = owner.data(owner.get("/deliveries"))["deliveries"]
        assert (waits["attempts"], waits["last_error"]) == (0, None)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        OK + b"Content-Length: 4000000000\r\n\r\n" + b"x" * 100_000,
        OK + b"Content-Encoding: gzip\r\nContent-Length: 100000\r\n\r\n" + b"\x1f\x8b" + b"\0" * 99_998,
        b"HTTP/1.0 200 OK\r\n\r\nbye",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe",
        OK + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    ],
    ids=["201", "202 chunked", "204", "4 GB", "gzip", "HTTP/1.0", "breaks off", "bad chunk"],
)
def test_any_2xx_is_success_whatever_follows_it(launch, hostile, answer):
    target = hostile(send(answer))
    server = serve(launch, {"url": target.url, "secret": "s", "events": ["task.created"]})
    owner = server.client()
    body = {"project_id": owner.make_project()["id"], "title": "x"}
    assert owner.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    assert owner.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=1; pending=0"


def test_a_certificate_must_be_known_and_ca_file_makes_it_known(launch, hostile, tmp_path):
    authority, contexts = certificates(tmp_path / "tls")
    target = hostile(send(ACCEPTED), contexts["right"])
    entry = {"url": target.url, "secret": "s", "events": ["task.created"]}
    strict = serve(launch, entry).client()
    body = {"project_id": strict.make_project()["id"], "title": "x"}
    assert strict.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=0; pending=1"
    (delivery,) = strict.data(strict.get("/deliveries"))["deliveries"]
    assert "certificate verify failed" in delivery["last_error"]
    assert target.requests == []
    trusting = serve(launch, entry, TASKS_DELIVERY__CA_FILE=str(authority)).client()
    body = {"project_id": trusting.make_project()["id"], "title": "x"}
    assert trusting.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=1; pending=0"


def test_what_a_terminal_would_obey_is_escaped_in_the_log_and_in_the_answer(launch, hostile):
    target = hostile(send("\x1b[2J\x07\x9b0m Gone\r\n\r\n".encode("latin-1")))
    server = serve(launch, {"url": target.url, "secret": "s", "events": ["task.created"], "name": "odd"})
    owner = server.client()
    owner.make_task(owner.make_project())
    (delivery,) = owner.data(owner.get("/deliveries"))["deliveries"]
    assert r"\x1b[2J\x07\x9b0m Gone" in delivery["last_error"]
    said = server.log.read_text()
    assert delivery["last_error"] in said
    assert all(c.isprintable() for c in said.replace("\n", ""))


def test_the_path_of_a_url_which_may_be_secret_is_neither_logged_nor_in_an_error(launch, hostile):
    # Receivers may know their callers by a token in the URL, which is the name of a webhook without one.
    target = hostile(lambda line, stopped: line.sendall(target.requests[-1]))  # which sends back what it gets
    url = f"{target.url}/S3CRET-Ä?token=S3CRET"
    server = serve(launch, {"url": url, "secret": "s", "events": ["task.created"]})
    owner = server.client()
    owner.make_task(owner.make_project())
    (delivery,) = owner.data(owner.get("/deliveries"))["deliveries"]
    assert delivery["last_error"] == "POST /… HTTP/1.1\\r\\n"
    assert delivery["webhook"] == url
    log = server.log.read_text()
    assert f"webhook {target.url.removesuffix('/hook')}/…: delivery {delivery['id']}: POST /… HTTP/1.1" in log
    assert "S3CRET" not in log


def test_a_long_part_of_the_path_which_may_be_secret_is_not_in_an_error(launch, hostile):
    target = hostile(
        lambda line, stopped: line.sendall(b"no token s3cret-token-1, nor S3CRET-TOKEN-2\r\n\r\n")
    )
    url = f"{target.url}/bot1:S3CRET-TOKEN-1/x?token=S3CRET-TOKEN-2"
    server = serve(launch, {"url": url, "secret": "s", "events": ["task.created"]})
    owner = server.client()
    owner.make_task(owner.make_project())
    (delivery,) = owner.data(owner.get("/deliveries"))["deliveries"]
    assert delivery["last_error"] == "no token …, nor …\\r\\n"
    assert "S3CRET" not in server.log.read_text().upper()


def test_a_receivers_cookies_are_not_sent_back(owner, receiver, task):
    receiver.all_here()
    receiver.answers = [(200, {"Set-Cookie": "session=abc; Path=/"})] * 30
    for number in range(30):
        owner.patch(f"/tasks/{task['id']}", {"title": f"Cookie {number}"})
    calls = receiver.all_here()
    assert len(calls) == 30
    assert not [call for call in calls if "Cookie" in call.headers]


@contextlib.contextmanager
def blackhole():
    """The address of a listener whose queue is full, so that Linux drops what would connect to it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as filling:
        with contextlib.suppress(TimeoutError):
            while True:
                filling.enter_context(socket.create_connection(listener.getsockname(), 0.2))
        yield listener.getsockname()


def test_an_address_that_does_not_answer_leaves_time_for_the_next(new_receiver, monkeypatch):
    receiver = new_receiver().up()
    with blackhole() as silent:
        ports = [silent, receiver.line.getsockname()]
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", port) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses)
        result = webhooks.post("http://two.test/", b"1", {}, 6)
    assert result.delivered
    assert receiver.next().body == b"1"


def test_nothing_is_sent_when_a_name_was_found_after_the_deadline(new_receiver, monkeypatch):
    receiver = new_receiver().up()
    found = threading.Event()

    def look_up(*_):
        assert found.wait(PATIENCE)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", receiver.line.getsockname())]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(webhooks.sending, "adapter", webhooks.new_adapter(webhooks.tls_context(None), 1, 1))
    threading.Timer(0.2, found.set).start()
    result = webhooks.post("http://late.test/", b"1", {}, 0.1)
    assert (result.delivered, result.error) == (False, "timed out after 0.1 s")
    assert webhooks.post("http://late.test/", b"2", {}, 5).delivered
    assert [call.body for call in receiver.all_here()] == [b"2"]


def test_proxies_and_passwords_of_the_environment_are_ignored(launch, new_receiver):
    receiver = new_receiver().up()
    proxy = "http://127.0.0.1:1"
    folder_home = {"HTTP_PROXY": proxy, "http_proxy": proxy, "ALL_PROXY": proxy, "NETRC": "/nowhere"}
    server = serve(launch, hook(receiver), **folder_home)
    owner = server.client()
    owner.make_task(owner.make_project())
    assert "Authorization" not in receiver.next().headers
