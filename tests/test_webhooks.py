"""Calls of webhooks: their events, signatures, and the responses of receivers."""

import hashlib
import hmac
import re
import socket
import threading
import time

import pytest
from harness import OWNER_KEY, PATIENCE, PATIENT, hook, invoke, wait_until
from receivers import ACCEPTED, OK, Hostile, Proxy, certificates, dribble, send, stay_silent, stop_after
from standardwebhooks.webhooks import Webhook
from test_metrics import scrape

import settings
import webhooks

PROFILE = {"id", "full_name", "email", "role"}
SECRET, OLD_SECRET = "whsec_bmV3IG5ldyBuZXcgbmV3IG5ldw==", "a-secret"


def serve(launch, *hooks, **settings):
    return launch(hooks=hooks, **PATIENT | settings)


@pytest.fixture(scope="module")
def server(launch_module, shared_receiver, tmp_path_factory):
    """A server whose environment has a proxy and a password, which are not for webhooks."""
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login x password y")
    proxy = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:1")
    entry = hook(shared_receiver, secret=SECRET, previous_secret=OLD_SECRET)
    return serve(launch_module, entry, NETRC=str(netrc), **proxy)


@pytest.fixture
def receiver(shared_receiver):
    """The receiver, emptied: a test that names it after `task` does not see that created."""
    shared_receiver.all_here()
    return shared_receiver


def names(receiver):
    """The events that have arrived, which are all of them once the client has its answer."""
    return [call.event["event"] for call in receiver.all_here()]


def test_an_update_tells_the_task_its_changes_and_who_made_them(owner, task, receiver):
    answer = owner.patch(f"/tasks/{task['id']}", {"status": "review", "metadata": {"é": [1.0, "🎉"]}})
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    event, task = receiver.next().event, answer.json()["data"]
    assert re.fullmatch("evt_[0-9a-f]{32}", event.pop("id"))
    assert set(event.pop("actor")) == PROFILE
    changes = {"status": ["todo", "review"], "metadata": [{}, {"é": [1, "🎉"]}]}
    sent = {"data": {"task": task, "changes": changes}, "timestamp": task["updated_at"]}
    assert event == sent | {"event": "task.updated", "request_id": answer.json()["meta"]["request_id"]}


def test_each_change_emits_its_events_once(owner, receiver, project):
    task = owner.make_task(project)
    path = f"/tasks/{task['id']}"
    assert names(receiver) == ["task.created"]
    for method, below, body, expected in (
        *(("PATCH", "", {"title": "B"}, events) for events in (["task.updated"], [])),
        ("PATCH", "", {}, []),
        *(("PATCH", "", {"status": "done"}, events) for events in (["task.updated", "task.completed"], [])),
        ("POST", "/complete", None, []),
        ("PATCH", "", {"status": "todo"}, ["task.updated"]),
        *(("POST", "/complete", None, events) for events in (["task.completed"], [])),
        ("POST", "/comments", {"content": "c"}, ["comment.added"]),
        *(("PATCH", "", {"title": title}, []) for title in ("", "Stale")),
        *(("DELETE", "", None, events) for events in (["task.deleted"], [])),
    ):
        condition = {"If-Match": '"1"'} if body == {"title": "Stale"} else {}
        owner.send(method, path + below, body, headers=condition)
        assert names(receiver) == expected


def test_invitation_and_joining_tell_the_member(owner, server, receiver):
    body = {"email": "joins@example.com", "full_name": "J", "role": "client"}
    invitation = owner.make("/members/invite", body)
    event = receiver.next().event
    assert (event["event"], event["data"]) == ("member.invited", {"member": invitation["member"]})
    assert event["actor"]["role"] == "owner"
    token = invitation["enrollment_link"].rpartition("/")[2]
    joined = owner.data(server.client(None).post(f"/enroll/{token}"), 201)
    (call,) = receiver.all_here()
    assert (call.event["event"], call.event["data"]) == ("member.joined", {"member": joined["member"]})
    assert call.event["actor"] == {name: joined["member"][name] for name in PROFILE}
    for secret in (token, joined["api_key"]):
        assert secret.encode() not in call.body


def test_without_a_choice_a_webhook_gets_the_four_events(launch_here, new_receiver):
    assert "x-webhook-deliveries" not in launch_here().client().post("/projects", {"name": "x"}).headers
    few, one = new_receiver().up(), new_receiver().up()
    unchosen = {"url": few.url, "secret": "a-secret"}
    server = serve(launch_here, unchosen, hook(one, events=["task.deleted"]))
    owner = server.client()
    task = owner.make_task(owner.make_project())
    owner.patch(f"/tasks/{task['id']}", {"status": "done"})
    owner.post(f"/tasks/{task['id']}/comments", {"content": "x"})
    owner.delete(f"/tasks/{task['id']}")
    server.join()
    assert names(few) == ["task.updated", "task.completed", "comment.added", "member.joined"]
    assert names(one) == ["task.deleted"]


def test_a_call_has_these_headers_and_signatures(server, owner, task, receiver):
    """During a rotation both secrets verify; proxies and passwords of the environment are ignored.

    Cookies of a receiver are not sent back to it.
    """
    receiver.answers = [(200, {"Set-Cookie": "session=abc; Path=/"})]
    for title in ("Cookie", "Ünï 🎉"):
        owner.patch(f"/tasks/{task['id']}", {"title": title})
    _, call = receiver.all_here()
    headers = {name.lower(): text for name, text in call.headers.items()}
    signature = hmac.new(SECRET.encode(), call.body, hashlib.sha256).hexdigest()
    sent = {"x-service-signature": signature, "x-service-event": "task.updated"}
    sent |= {"content-type": "application/json", "user-agent": f"task-service/{settings.VERSION}"}
    assert headers | sent | {"webhook-id": call.event["id"]} == headers
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
    assert re.fullmatch("[0-9a-f-]{36}", headers["x-service-delivery"])
    assert OWNER_KEY not in str(headers)
    assert "Ünï 🎉".encode() in call.body  # no escapes that a re-serialisation would lose
    assert not {"authorization", "cookie"} & headers.keys()
    for secret in (SECRET, OLD_SECRET.encode()):
        Webhook(secret).verify(call.body, call.headers)
    assert OLD_SECRET not in server.log.read_text()


@pytest.fixture(scope="module")
def hostile():
    """Make receivers that do as they please; returns the entries of such webhooks."""
    made = []

    def make(name, behave, path="", context=None):
        made.append(Hostile(behave, context))
        url = made[-1].url + path
        return made[-1], {"name": name or url, "url": url, "secret": "s", "events": ["task.created"]}

    yield make
    for one in made:
        one.close()


LATE = {
    "never answers": stay_silent,
    "dribbles its head": dribble(OK, b"X: y\r\n"),
    "dribbles its status": dribble(b"HTTP/1.1 ", b"2"),
    "continues": dribble(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


def test_receivers_that_hang_cost_one_budget_together_and_are_noted(launch_here, hostile):
    entries = [hostile(name, behave)[1] for name, behave in LATE.items()]
    owner = serve(launch_here, *entries, TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="0.5").client()
    body = {"project_id": owner.make_project()["id"], "title": "x"}
    answer = owner.post("/tasks", body, timeout=40)  # they would hold it for three minutes, or forever
    assert answer.status_code == 201
    assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=4"
    failed = owner.read("/deliveries")["deliveries"]
    assert {delivery["webhook"] for delivery in failed} == set(LATE)
    for delivery in failed:
        assert delivery["last_error"].startswith("timed out after 0."), delivery
        assert delivery["attempts"] == 1
    assert owner.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=0; pending=4"
    waits = owner.read("/deliveries", limit=4)["deliveries"]
    assert {(delivery["attempts"], delivery["last_error"]) for delivery in waits} == {(0, None)}


def test_a_kept_connection_that_the_receiver_has_closed_is_no_failure(server, receiver):
    owner = server.client()
    body = {"project_id": owner.make_project()["id"], "title": "x"}
    owner.make("/tasks", body)
    receiver.answers = [None, 200]  # to the second call over the connection
    assert owner.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    _, lost, again = receiver.all_here()
    assert (lost.body, lost.headers["webhook-id"]) == (again.body, again.headers["webhook-id"])
    receiver.answers = [None, None]  # to that over a new one too
    assert owner.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=0; pending=1"


UNFINISHED = OK + b"Content-Length: 1000\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def redirect(location):
    return f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")


# A receiver's response, and the status and error that are stored; without a status, or with 429, it fails.
ANSWERS = {
    "dribbles its body": (dribble(UNFINISHED, b"x"), 200, None),
    "never sends its body": (stop_after(UNFINISHED), 200, None),
    "201": (b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 201, None),
    "202 chunked": (b"HTTP/1.1 202 Accepted\r\n" + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", 202, None),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, None),
    "102, 103": (b"HTTP/1.1 102 \r\n\r\nHTTP/1.1 103 \r\nLink: x\r\n\r\n" + ACCEPTED, 200, None),
    "101": (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, "answered 101"),
    "4 GB": (OK + b"Content-Length: 4000000000\r\n\r\n" + b"x" * 100_000, 200, None),
    "gzip": (OK + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\n\x1f\x8b" + b"\0" * 7, 200, None),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nbye", 200, None),
    "breaks off": (OK + CHUNKED + b"5\r\nhe", 200, None),
    "bad chunk": (OK + CHUNKED + b"nonsense\r\n", 200, None),
    "bad date": (OK + b"Retry-After: Fri, 31 Dec 2027 23:59:59 +99999999999999999999\r\n\r\n", 200, None),
    "redirects": (redirect("http://127.0.0.1:1/"), 302, "answered 302"),
    "redirects nowhere": (redirect("http://[x"), 302, "answered 302"),
    "redirects in Latin": (redirect("\u00e9\u0080"), 302, "answered 302"),
    "in ages": (b"HTTP/1.1 404 So\r\nRetry-After: " + b"9" * 400 + b"\r\n\r\n", 404, "answered 404"),
    "is busy": (b"HTTP/1.1 429 So\r\nContent-Length: 0\r\n\r\n", 429, "answered 429"),
    "closes": (b"", None, "Remote end closed connection without response"),
    # Control sequences of terminals are escaped.
    "garbage": ("\x1b[2J\x07\x9b0m Gone\r\n\r\n".encode("latin-1"), None, r"\x1b[2J\x07\x9b0m Gone\r\n"),
}


def test_the_status_decides_whatever_else_an_answer_holds(launch_here, hostile):
    sent = {name: send(said) if isinstance(said, bytes) else said for name, (said, *_) in ANSWERS.items()}
    server = serve(launch_here, *[hostile(name, behave)[1] for name, behave in sent.items()])
    owner = server.client()
    for _ in range(2):
        owner.make_task(owner.make_project())
    log = server.log.read_text()
    for webhook in owner.read("/webhooks")["webhooks"]:
        _, status, error = ANSWERS[webhook["name"]]
        second, first = owner.read("/deliveries", webhook_id=webhook["id"])["deliveries"]
        stored = (first["last_status"], first["last_error"], first["status"])
        assert stored == (status, error, "pending" if error else "delivered"), webhook["name"]
        # A refusal concerns only that event; behind one for which the receiver failed, others wait.
        waits = (second["attempts"], webhook["failures"])
        assert waits == ((0, 1) if status in (None, 429) else (1, 0)), webhook["name"]
    assert ANSWERS["garbage"][2] in log
    assert all(letter.isprintable() for letter in log.replace("\n", ""))  # nothing that a terminal would obey


def test_a_body_that_does_not_end_leaves_the_budget_to_the_next_events(launch_here, hostile):
    endless = [stop_after(UNFINISHED), stop_after(OK + b"\r\n"), dribble(UNFINISHED, b"x")]
    entries = [hostile(f"endless {number}", behave)[1] for number, behave in enumerate(endless)]
    owner = serve(launch_here, *entries, TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="5").client()
    tasks = [{"project_id": owner.make_project()["id"], "title": "x"}] * 6
    answer = owner.post("/tasks/batch", {"tasks": tasks})
    assert answer.headers["x-webhook-deliveries"] == "delivered=18; pending=0"  # with a second each, 12


def redirect_at_length(line, stopped):
    """A redirect with a body of 100 MB; `stopped.sent` tells how much of it was taken."""
    stopped.sent = 0
    line.sendall(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 100000000\r\n\r\n")
    while not stopped.is_set():
        stopped.sent += line.send(b"x" * 65536)


def test_an_error_holds_neither_what_may_be_secret_nor_all_that_was_sent(launch_here, hostile):
    """Receivers may know their callers by a token in the URL, which is the name of a webhook without one."""
    echo, echoing = hostile("", lambda line, _: line.sendall(echo.requests[-1]), "/S3CRET-Ä?token=S3CRET")
    told = send(b"no token s3cret-token-1, nor S3CRET-TOKEN-2\r\n\r\n")
    _, telling = hostile("", told, "/bot1:S3CRET-TOKEN-1/x?token=S3CRET-TOKEN-2")
    long, lengthy = hostile("", redirect_at_length)
    server = serve(launch_here, echoing, telling, lengthy)
    owner = server.client()
    owner.make_task(owner.make_project())
    deliveries = {one["webhook"]: one for one in owner.read("/deliveries")["deliveries"]}
    told = {echoing["name"]: "POST /… HTTP/1.1\\r\\n", telling["name"]: "no token …, nor …\\r\\n"}
    told[lengthy["name"]] = "answered 302"
    assert {name: delivery["last_error"] for name, delivery in deliveries.items()} == told
    log, id = server.log.read_text(), deliveries[echoing["name"]]["id"]
    assert f"webhook {echo.url.removesuffix('/hook')}/…: delivery {id}: POST /… HTTP/1.1" in log
    assert "S3CRET" not in log.upper()
    long.close()
    assert long.stopped.sent < 20_000_000  # what buffers hold


def test_a_certificate_must_be_known_and_ca_file_makes_it_known(launch_here, hostile, tmp_path):
    authority, contexts = certificates(tmp_path / "tls")
    target, entry = hostile("tls", send(ACCEPTED), context=contexts["right"])
    strict = serve(launch_here, entry).client()
    strict.make_task(strict.make_project())
    (delivery,) = strict.read("/deliveries")["deliveries"]
    assert "certificate verify failed" in delivery["last_error"]
    assert target.requests == []
    closing, other = hostile("closes", send(b""), context=contexts["right"])
    trusting = serve(launch_here, entry, other, TASKS_DELIVERY__CA_FILE=str(authority)).client()
    body = {"project_id": trusting.make_project()["id"], "title": "x"}
    assert trusting.post("/tasks", body).headers["x-webhook-deliveries"] == "delivered=1; pending=1"
    assert len(closing.requests) == 1  # it is none that it had kept


@pytest.fixture
def proxied(launch, hostile, tmp_path):
    """Start a server with a proxy of this URL, and a receiver with TLS and one without.

    Returns the server, two deliveries, and the receivers.
    """
    authority, contexts = certificates(tmp_path / "tls")
    settings = {"TASKS_DELIVERY__CA_FILE": str(authority), "PROXY": "http://127.0.0.1:1"}

    def start(url, **more):
        made = [hostile(name, send(ACCEPTED), context=contexts.get(name)) for name in ("right", "plain")]
        (tls, _), (plain, _) = made
        hooks = [entry for _, entry in made]
        server = serve(launch, *hooks, TASKS_DELIVERY__PROXY="$PROXY", **settings | {"PROXY": url} | more)
        owner = server.client()
        owner.make_task(owner.make_project())
        return server, owner.read("/deliveries")["deliveries"], tls, plain

    return start


def test_a_proxy_of_the_configuration_is_used_also_for_tls_and_knows_our_login_alone(proxied):
    proxy = Proxy("ana:p@ss w%rd")
    _, deliveries, tls, plain = proxied(proxy.url.replace("://", "://ana:p%40ss%20w%25rd@"))
    assert [(one["status"], one["attempts"]) for one in deliveries] == [("delivered", 1)] * 2
    firsts = {request.split(b"\r\n")[0] for request in proxy.requests}
    connect, post = b"CONNECT %b HTTP/1." % tls.url.split("/")[2].encode(), plain.url.encode()
    assert {first[:-1] for first in firsts} == {connect, b"POST %b HTTP/1." % post}
    (request,) = tls.requests
    assert b"authorization" not in request.lower()
    proxy.close()


def test_a_delivery_that_a_proxy_refuses_waits_and_hides_the_password(proxied):
    proxy = Proxy("ana:another")
    server, deliveries, tls, plain = proxied(proxy.url.replace("://", "://ana:p%40ssword-1@"))
    assert {(one["status"], one["attempts"]) for one in deliveries} == {("pending", 1)}
    errors = {one["last_error"] for one in deliveries}
    assert errors == {"Tunnel connection failed: 407 Not so, … …", "answered 407"}
    assert {one["failures"] for one in server.client().read("/webhooks")["webhooks"]} == {1}
    said = server.log.read_text() + invoke(server, "doctor").output + invoke(server, "webhook", "list").output
    assert not re.search("p@ss|p%40ss|YW5hOnBAc3N3b3JkLTE", said)
    assert tls.requests == plain.requests == []
    proxy.close()


def test_a_proxy_that_hangs_costs_no_more_than_the_budget(proxied):
    slow = Hostile(dribble(b"HTTP/1.1 200 OK\r\nX: ", b"y"))
    short = {"TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "0.5"}
    _, deliveries, *_ = proxied(slow.url.removesuffix("/hook"), **short)
    assert [one["last_error"][:17] for one in deliveries] == ["timed out after 0"] * 2
    wait_until(lambda: [len(times) for times in slow.connections] == [2, 2])  # both have ended
    slow.close()


def test_a_webhook_has_a_header_of_its_own_whose_value_is_shown_to_its_receiver_alone(launch_here, hostile):
    line = "Authorization: Bearer S3CRET-token/+= of 1"
    echo, echoing = hostile("", lambda line, _: line.sendall(b"no " + echo.requests[-1].split(b"\r\n")[-3]))
    kinds = {kind: hostile(kind, send(ACCEPTED)) for kind in ("json", "slack", "discord")}
    hooks = [entry | {"format": kind, "header": "$HEADER"} for kind, (_, entry) in kinds.items()]
    bare, without = hostile("without", send(ACCEPTED))
    server = serve(launch_here, *hooks, without, echoing | {"header": "X_Key:S3CRET-2"}, HEADER=line)
    owner = server.client()
    owner.make_task(owner.make_project())
    for target, _ in kinds.values():
        assert f"\r\n{line}\r\n".encode() in target.requests[0]
    assert b"S3CRET" not in bare.requests[0]
    assert b"X_Key: S3CRET-2" in echo.requests[0]
    names = {one["name"]: one["header_name"] for one in owner.read("/webhooks")["webhooks"]}
    assert names == {**dict.fromkeys(kinds, "Authorization"), "without": None, echoing["name"]: "X_Key"}
    said = [owner.get(f"/{path}").text for path in ("webhooks", "deliveries", "events")]
    said += [scrape(server).text]
    said += [invoke(server, *words.split()).output for words in ("webhook list", "doctor")]
    assert "Authorization" in said[-2]
    server.stop()
    said += [server.log.read_text(), server.database.read_bytes().decode("latin-1")]
    assert not [text for text in said if "S3CRET" in text.upper()]


def test_nothing_is_sent_when_a_name_was_found_after_the_deadline(new_receiver, monkeypatch):
    receiver = new_receiver().up()
    found = threading.Event()

    def look_up(*_):
        assert found.wait(PATIENCE)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", receiver.line.getsockname())]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(webhooks.sending, "adapter", webhooks.Adapter(webhooks.tls_context(None), 1, 1))
    threading.Timer(0.2, found.set).start()
    result = webhooks.post("http://late.test/", b"1", {}, 0.1)
    assert (result.delivered, result.error) == (False, "timed out after 0.1 s")
    assert webhooks.post("http://late.test/", b"2", {}, 5).delivered
    assert [call.body for call in receiver.all_here()] == [b"2"]
