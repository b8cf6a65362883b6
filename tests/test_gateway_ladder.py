"""The gateway's request ladder: each refusal in its order, and the edges of the limits."""

import contextlib
import json
import select
from contextlib import closing

import pytest
from clients import JSON, Line, head
from damage import write_text
from harness import PATIENCE, wait_until

from database import db
from limits import RateLimit

ROUTES = "\n".join(
    f"""[plugins.entries.webhooks.config.routes.{name}]
{more}
sessionKey = "agent:main"
secret = "{secret}"
"""
    for name, secret, more in (
        *(("zapier", "heslo-č", ""), ("grave", "heslo-à", ""), ("off", "s3cret", "enabled = false")),
        ("odd", "s3cret", 'path = "hooks/Ödd/"'),
    )
)
LIMITS = "[plugins.entries.webhooks.config.limits]\nrequests = 100000\nbodySeconds = 120\n"
PATH = "/plugins/webhooks/zapier"
SECRET = "heslo-č".encode()
LIST = b'{"action":"list_flows"}'
# As for JavaScript's `trim`, which takes U+0085, the control characters and U+200B for text.
BLANKS = [
    text.encode() for text in ("\ufeff \n", "\n\ufeff", "\ufeff\ufeff", *"\t\v\f\r \u00a0\u2003\u2028\u3000")
]
NO_BLANKS = [text.encode() for text in "\u0085\u001c\u200b\0"]


@pytest.fixture(scope="module")
def server(launch_module):
    return launch_module(config=ROUTES + LIMITS)


def send(server, method="POST", path=PATH, body=LIST, secret=SECRET, **headers):
    sent = {"Content-Type": "application/json"} | headers
    if secret is not None:
        sent.setdefault("Authorization", b"Bearer " + secret)
    return server.call(method, path, data=body, headers=sent)


def refused(answer, status, code, error):
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    if answer.request.method != "HEAD":
        assert answer.json() == {"ok": False, "routeId": "zapier", "code": code, "error": error, "result": {}}


def test_a_call_is_answered_in_each_way_to_write_it(server):
    answer = send(server)
    assert answer.status_code == 200
    assert answer.json() == {"ok": True, "routeId": "zapier", "result": {"flows": []}}
    assert answer.headers["X-Request-Id"].startswith("req_")
    for sent in (
        *({"path": PATH + "/"}, {"path": PATH + "?a=1"}),
        *({"path": path, "secret": b"s3cret"} for path in ("/hooks/%C3%96dd", "/hooks/%C3%96dd/")),
        *({"Content-Type": f"application/json; charset={name}"} for name in ("utf-8", "utf-16")),
        *({"Content-Type": "APPLICATION/JSON"}, {"Content-Type": "application/x+json"}),
        {"Authorization": b"bearer   heslo-\xc4\x8d "},
        {"secret": None, "x-agent-webhook-secret": b"heslo-\xc4\x8d "},
        {"Authorization": "Basic x", "x-agent-webhook-secret": SECRET},
        # Its secret ends in the byte A0, which latin-1 takes for a blank.
        {"path": "/plugins/webhooks/grave", "secret": "heslo-à".encode()},
        *({"body": start + LIST + end} for start in BLANKS for end in (b"", start, *BLANKS[:2])),
    ):
        assert send(server, **sent).status_code == 200, sent
    repeated = b'{"action":"x","action":"create_flow","goal":"\xff"}'  # twice one member, and no UTF-8
    assert send(server, body=repeated).json()["result"]["flow"]["goal"] == "\N{REPLACEMENT CHARACTER}"


def test_only_post_of_json_is_taken_and_any_other_path_is_the_applications_plain_404(server):
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"):
        answer = send(server, method)
        refused(answer, 405, "method_not_allowed", "Method Not Allowed")
        assert answer.headers["Allow"] == "POST"
    for kind in ("text/plain", "", "application/x-www-form-urlencoded", "application/jsonx"):
        answer = send(server, **{"Content-Type": kind})
        refused(answer, 415, "unsupported_media_type", "Unsupported Media Type")
    for body in (
        b"",
        b" ",
        b"{",
        b"{} {}",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":NaN}',
        b"//\n{}",
        *[text + LIST for text in NO_BLANKS],
    ):
        refused(send(server, body=body), 400, "invalid_json", "invalid request body")
    others = ("/plugins/webhooks", "/plugins/webhooks/Zapier", "/plugins/webhooks/off", "/hooks/%C3%B6dd")
    for path in (PATH + "//", PATH + "/x", "/" + PATH, *others):
        answer = send(server, path=path)
        assert answer.status_code == 404, path
        assert answer.headers["Content-Type"].startswith("text/plain")


def test_a_wrong_or_missing_secret_is_refused_before_anything_of_the_body(server):
    for sent in (
        *({}, {"Authorization": "Bearer "}, {"Authorization": b"Basic heslo-\xc4\x8d"}),
        {"Authorization": "Bearer wrong", "x-agent-webhook-secret": SECRET},
        *({"x-agent-webhook-secret": secret} for secret in ("", "heslo-", b"\xff\xfe", SECRET.upper())),
        {"path": PATH + "?secret=heslo-č"},
        {"body": json.dumps({"action": "list_flows", "secret": "heslo-č"})},
        *({"Authorization": "Bearer wrong", "body": body} for body in (LIST, b"{", b"", b"x" * 300_000)),
    ):
        refused(send(server, secret=None, **sent), 401, "unauthorized", "unauthorized")


def test_a_refusal_by_the_head_reads_no_body_and_keeps_no_slot(server):
    right, text = SECRET.decode("latin-1"), "Content-Type: text/plain"
    for status, method, kind, secret in (
        *((405, "PUT", JSON, right), (415, "POST", text, right)),
        *((401, "POST", JSON, "wrong"), (413, "POST", JSON, right)),
    ):
        asked = head(method, PATH, [kind, "Content-Length: 20000000"], secret)
        with contextlib.ExitStack() as stack:
            lines = [
                stack.enter_context(closing(Line(server))) for _ in range(9)
            ]  # more than there are slots
            for line in lines:
                line.socket.sendall(asked)
            for line in lines:
                assert (line.answer()[0], line.headers["connection"]) == (status, "close")
        with closing(Line(server)) as line:
            line.socket.sendall(asked)
            sent = 0
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while sent < 20_000_000:
                    sent += line.socket.send(b"x" * 65536)
            assert sent < 10_000_000  # the kernel takes some of it


def padded(size):
    start, end = b'{"action":"create_flow","goal":"', b'"}'
    return start + b"g" * (size - len(start) - len(end)) + end


def test_a_body_of_256_kib_is_accepted_and_one_byte_more_is_not(server):
    whole, more = padded(262_144), padded(262_145)
    for sent in (whole, iter([whole])):  # with a length, and in chunks
        assert send(server, body=sent).status_code == 200
    for sent in (more, iter([more])):
        answer = send(server, body=sent)
        refused(answer, 413, "payload_too_large", "Payload too large")
        assert answer.headers["Connection"] == "close"


def begin(server, declared, body=b""):
    """Send a head that declares a length, and this much of a body."""
    line = Line(server)
    secret = SECRET.decode("latin-1")  # in which a head is encoded
    line.socket.sendall(head("POST", PATH, [JSON, f"Content-Length: {declared}"], secret) + body)
    return line


def test_a_body_that_stalls_is_timed_out(launch):
    # No other test has so short a limit: a client on a busy machine may stall for half a second, too.
    server = launch(config=ROUTES + LIMITS.replace("120", "0.5"))
    with closing(begin(server, 100, b'{"action"')) as line:
        status, answer = line.answer()
        assert (status, line.headers["connection"], line.ended()) == (408, "close", True)
    assert b'"code":"request_timeout","error":"Request body timeout"' in answer


def test_a_ninth_request_in_flight_is_refused_and_the_slots_come_back(server):
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(closing(begin(server, len(LIST)))) for _ in range(9)]
        sockets = {line.socket: line for line in lines}
        ((ninth,), _, _) = select.select(sockets, [], [], PATIENCE)  # which came last; the others wait
        ninth = sockets[ninth]
        status, answer = ninth.answer()
        assert (status, ninth.headers["retry-after"]) == (429, "1")
        assert b'"code":"too_many_in_flight","error":"Too Many Requests"' in answer
        lines.remove(ninth)
        refused(send(server), 429, "too_many_in_flight", "Too Many Requests")
        lines[0].close()  # one goes away, the others are answered
        wait_until(lambda: send(server).status_code == 200)
        for line in lines[1:]:
            line.socket.sendall(LIST)
            assert line.answer()[0] == 200
        assert send(server).status_code == 200


def test_requests_over_the_limit_of_a_window_are_refused_until_it_ends(launch_here):
    server = launch_here(config=ROUTES + LIMITS.replace("100000", "3") + "windowSeconds = 3\n")
    # All of them well within the window, on a slow machine too.
    first = [send(server, "GET"), send(server, secret=b"wrong")]  # a GET is not counted
    last = [send(server, **{"Content-Type": "text/plain"}), send(server), send(server)]
    assert [answer.status_code for answer in first + last] == [405, 401, 415, 200, 429]
    refused(last[-1], 429, "rate_limited", "Too Many Requests")
    assert 0 < int(last[-1].headers["Retry-After"]) <= 3
    odd = send(server, path="/hooks/%C3%96dd", secret=b"s3cret")
    assert odd.status_code == 200  # each path has a window of its own
    wait_until(lambda: send(server).status_code == 200)  # what is over the limit does not extend it


def test_a_database_failure_or_bug_comes_after_other_refusals(launch_here):
    broken = launch_here(config=ROUTES + LIMITS)
    broken.allow_bugs = True
    create = b'{"action":"create_flow","goal":"x"}'
    flow = send(broken, body=create).json()["result"]["flow"]
    broken.rows("CREATE TRIGGER no BEFORE INSERT ON flow BEGIN SELECT RAISE(FAIL, 'full'); END")
    refused(send(broken, body=create), 503, "persist_failed", "TaskFlow persistence failed.")
    assert send(broken).json()["result"]["flows"] == [flow]
    broken.rows("ALTER TABLE flow RENAME TO hidden")
    refused(send(broken), 500, "internal_error", "Internal Server Error")
    refused(send(broken, secret=b"wrong"), 401, "unauthorized", "unauthorized")
    refused(send(broken, body=b"{"), 400, "invalid_json", "invalid request body")
    assert send(broken, body=b'{"action":"x"}').json()["code"] == "invalid_request"


def test_an_outage_refuses_reads_as_it_refuses_writes(launch_here):
    server, create = launch_here(config=ROUTES + LIMITS), b'{"action":"create_flow","goal":"x"}'
    flow = send(server, body=create).json()["result"]["flow"]
    get = b'{"action":"get_flow","flowId":"%s"}' % flow["flowId"].encode()
    db.disconnect()  # of the file, which the next call opens
    aside = server.database.rename(server.database.with_name("aside.db"))
    for body in (create, LIST, get):
        refused(answer := send(server, body=body), 503, "persist_failed", "TaskFlow persistence failed.")
        assert "Retry-After" not in answer.headers  # waiting does not help
    aside.rename(server.database)
    assert send(server).json()["result"]["flows"] == [flow]
    db.disconnect()
    write_text(server.database)
    for body in (create, LIST, get):
        refused(answer := send(server, body=body), 503, "persist_failed", "TaskFlow persistence failed.")
        assert answer.headers["Retry-After"] == "5"


def test_the_windows_of_strangers_are_forgotten():
    rate_limit = RateLimit(1, 60, keys=3)
    assert all(rate_limit.hit(key).allowed for key in "abc")
    assert not rate_limit.hit("a").allowed
    assert rate_limit.hit("d").allowed  # in the place of the oldest, a
    assert rate_limit.hit("a").allowed
    assert len(rate_limit._windows) == 3


def test_a_window_has_at_most_its_seconds_left_however_the_clock_rounds(monkeypatch):
    rate_limit, begun_at = RateLimit(2, 60), 32738.462833529888
    assert begun_at + 60 - begun_at > 60
    for passed, left in ((0, 60), (0.5, 60), (59.5, 1), (60, 60)):
        monkeypatch.setattr("time.monotonic", lambda passed=passed: begun_at + passed)
        assert rate_limit.hit("a").seconds == left
