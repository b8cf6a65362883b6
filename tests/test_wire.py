"""HTTP below what a client library lets through: lengths, chunks, stalls, and refusals before the body."""

import json
import re
import socket
from contextlib import closing

import pytest
import requests
from clients import CHUNKED, JSON, Line
from harness import NOBODY, OWNER_KEY, PATIENCE, fault, wait_until

from app import create_app
from schemas import API

MIB = 1024 * 1024


@pytest.fixture
def line(server):
    with closing(Line(server)) as line:
        yield line


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_body_of_1_mib_is_read_and_one_byte_more_is_not(owner, task, in_chunks):
    path, headers = f"/tasks/{task['id']}", {"Content-Type": "application/json"}
    for length, title in ((MIB + 1, task["title"]), (MIB, "x")):
        body = b'{"title": "x"}'.ljust(length)
        parts = iter([body[: length // 2], body[length // 2 :]]) if in_chunks else body
        answer = owner.request("PATCH", path, data=parts, headers=headers)
        assert answer.ok if title == "x" else fault(answer, 413, "payload_too_large")
        assert owner.read(path)["title"] == title


@pytest.mark.parametrize("headers", [CHUNKED, CHUNKED[1:]])
def test_no_body_may_come_in_chunks(line, task, headers):
    """As Cloudflare's tunnel and others send a POST without a body."""
    path, end = f"/tasks/{task['id']}", b"0\r\n\r\n"
    for method, below, status in (("POST", "/complete", 200), ("POST", "", 405), ("DELETE", "", 200)):
        assert line.send(method, path + below, headers, end).answer()[0] == status
    for rule in create_app().url_map.iter_rules():
        methods = (rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}
        if not rule.rule.startswith(API) or rule.endpoint == "api.add_attachment":  # a file is a body
            continue
        path = re.sub("<[^>]*>", NOBODY, rule.rule).removeprefix(API)
        for method in methods:
            status, _ = line.send(method, path, []).answer()
            assert line.send(method, path, headers, end).answer()[0] == status, (method, path)
    line.send("POST", "/tasks", CHUNKED[1:], b"2\r\n{}\r\n" + end)
    assert line.code() == (415, "unsupported_media_type")


def test_a_client_that_is_refused_early_gets_the_answer_and_can_go_on(line):
    for path, headers, key, status in (
        ("/tasks", [JSON], None, 401),
        ("/tasks", ["Content-Type: text/plain"], OWNER_KEY, 415),
        ("/tasks", [JSON], OWNER_KEY, 413),
        ("/nowhere", [JSON], OWNER_KEY, 404),
        ("/context", [JSON], OWNER_KEY, 405),
    ):
        for size in (max(100_000, (MIB + 1) * (status == 413)), 12 * MIB):  # a proxy sends as much at once
            line.send("POST", path, [*headers, f"Content-Length: {size}"], b"x" * size, key)
            assert line.answer()[0] == status
            assert line.send("GET", "/health", [], key=None).answer()[0] == 200


def test_a_huge_body_is_refused_by_its_declared_length_and_ends_the_connection(line, server):
    with closing(Line(server)) as other:
        other.send("POST", "/tasks", [JSON, f"Content-Length: {10**12}"])
        other.socket.shutdown(socket.SHUT_WR)
        assert other.code() == (413, "payload_too_large")
    line.send("POST", "/tasks", [JSON, f"Content-Length: {64 * MIB}"])
    part = b"x" * 65536
    try:
        for _ in range(64 * MIB // len(part)):
            line.socket.sendall(part)
    except OSError:
        return  # closed while it was being sent, which is as good
    assert line.answer()[0] == 413


def test_a_body_that_is_badly_framed_or_breaks_off_is_a_bad_request(server, owner, task):
    for headers, body in (
        *((CHUNKED, body) for body in (b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n", b'11\r\n{"title": "Half"}')),
        ([JSON, "Content-Length: 100"], b'{"title": "Half"}'),
    ):
        with closing(Line(server)) as line:
            line.send("PATCH", f"/tasks/{task['id']}", headers, body)
            line.socket.shutdown(socket.SHUT_WR)
            assert line.code() == (400, "invalid_json")
            assert line.ended()
    assert owner.read(f"/tasks/{task['id']}")["title"] == task["title"]


def test_a_head_that_is_not_http_is_refused_and_nothing_done(server, task):
    for headers in (
        *(["Content-Length: 2", other] for other in ("Transfer-Encoding: chunked", "Content-Length: 3")),
        *(["Content-Length: " + length] for length in ("-5", "+2", "five", "2, 3")),
        *([line] for line in ("Transfer-Encoding: nonsense", "Bad Header: x", "X: a\x00b")),
    ):
        with closing(Line(server)) as line:
            status, _ = line.send("DELETE", f"/tasks/{task['id']}", [JSON, *headers], b"{}").answer()
        assert 400 <= status < 500 or status == 501, headers
        assert server.rows("SELECT 1 FROM task WHERE id = ?", task["id"]), headers


SECRET = "tms_neither-a-log-nor-an-answer-holds-0123456789"
HEAD = "GET /api/v1/me HTTP/1.1\r\n"


def test_what_a_malformed_head_holds_is_neither_logged_nor_answered(server):
    for sent, said in (
        (f"{HEAD}Authorization Bearer {SECRET}", "Invalid HTTP Header: 'Authorization ...'"),
        (f"{HEAD}x-agent-webhook-secret {SECRET}", "Invalid HTTP Header: 'x-agent-webhook-secret ...'"),
        (f"{HEAD}Cookie tasks_session={SECRET}", "Invalid HTTP Header: 'Cookie ...'"),
        (f"{HEAD}A: b\r\n{SECRET}", "Invalid HTTP Header: '...'"),
        (f"{HEAD}Authorization: Bearer\r\n {SECRET}", "Obsolete"),
        (f"{HEAD}Authorization Bearer {SECRET}: x", "Invalid HTTP header name: 'Authorization ...'"),
        (f"{HEAD}Transfer-Encoding: {SECRET}", "Unsupported transfer coding: '...'"),
        (f"{HEAD}Expect: {SECRET}", "Unable to comply with expectation: '...'"),
        (f"GET /api/v1/me?key={SECRET}\xff HTTP/1.1", "request line: 'GET /api/v1/me ...'"),
        (f"GET /enroll/{SECRET}\xff HTTP/1.1", "request line: 'GET /enroll/"),
        (f"GET /api/v1/enroll/{SECRET}\xff HTTP/1.1", "request line: 'GET /api/v1/enroll/"),
        (f"GET /api/v1/me?key=a {SECRET} HTTP/1.1", "Invalid HTTP Version: '...'"),
        (f"GET http://u:{SECRET}@a/\xff HTTP/1.1", "Invalid HTTP request line: 'GET ...'"),
        (SECRET, "Invalid HTTP request line: '...'"),  # as the rest of a body that is longer than it said
    ):
        before = len(server.log.read_text())
        with closing(Line(server)) as line:
            line.socket.sendall(f"{sent}\r\n\r\n".encode("latin-1"))
            line.socket.shutdown(socket.SHUT_WR)
            answer = line.file.read().decode("latin-1")
        assert answer.startswith(("HTTP/1.1 4", "HTTP/1.1 501"))
        log = wait_until(lambda before=before: server.log.read_text()[before:])
        assert said in log
        assert SECRET[12:] not in log + answer


def test_neither_a_key_in_a_path_nor_a_query_is_logged_and_no_path_forges_a_line(launch):
    # With what an operator may switch on to find a fault.
    server = launch("--log-level", "debug", "--access-logfile", "-")
    headers = {"Referer": f"https://a.example/?key={SECRET}"}
    for path in (f"/keys/{SECRET}", f"/tasks?api_key={SECRET}", "/x%0a2026-01-01%20forged%1b[31m"):
        requests.get(f"{server.base}/api/v1{path}", auth=(SECRET, ""), headers=headers, timeout=PATIENCE)
    with closing(Line(server)) as line:
        line.socket.sendall(f"GET http://u:{SECRET[12:]}@a/mcp HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert line.answer()[0] == 405
    server.stop()
    log = server.log.read_text()
    assert log.count("/api/v1/keys/tms_neither-…") == 3  # in gunicorn's log, ours, and the access log
    assert '"GET /api/v1/tasks HTTP/1.1" 401' in log
    assert '"GET /api/v1/x%0A2026-01-01 forged%1B[31m HTTP/1.1" 401' in log
    assert not re.search("^2026-01-01 forged", log, re.M)
    assert SECRET[12:] not in log


def test_a_head_that_cannot_be_read_is_answered_in_json(server):
    """gunicorn answers it before any view, and would do so with a page."""
    for head, status in (
        (b"GET /api/v1/tasks?q=" + b"x" * 5000 + b" HTTP/1.1\r\nHost: test", 414),
        (b"GET /api/v1/tasks HTTP/1.1\r\nHost: test" + b"\r\nA: b" * 200, 431),
        (b"GET /api/v1/tasks HTTP/1.1\r\nHost: test\r\nA: " + b"b" * 17_000, 431),
        (b"GET /api/v1/tasks HTTP/7.1\r\nHost: test", 400),
        (b"get /api/v1/tasks HTTP/1.1\r\nHost: test", 400),
        (b"GET /api/v1/t\xc3\xa4sks HTTP/1.1\r\nHost: test", 400),
        (b"POST /api/v1/tasks HTTP/1.1\r\nHost: test\r\nExpect: miracles", 417),
        (b"POST /api/v1/tasks HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: rot13", 501),
        (b"\x00\xff<script>", 400),
    ):
        with closing(Line(server)) as line:
            line.socket.sendall(head + b"\r\n\r\n")
            answered, body = line.answer()
            assert line.ended()
        assert answered == status, head[:60]
        shown = [line.headers[name] for name in ("content-type", "x-content-type-options", "cache-control")]
        assert shown == ["application/json", "nosniff", "no-store"]
        content = json.loads(body)
        assert content.keys() == {"success", "error", "meta"}
        assert content["error"]["code"] == "invalid_request"
        assert 0 < len(content["error"]["message"]) <= 200
        assert content["meta"]["request_id"] == line.headers["x-request-id"]


def test_control_characters_of_a_path_cannot_forge_a_line_of_the_log(server, line):
    assert line.send("GET", "/x%0a2026-01-01%20forged%1b[31m", []).code() == (404, "not_found")
    said = server.log.read_text()
    assert "%0A2026-01-01%20forged%1B" in said
    assert not re.search("^2026-01-01 forged", said, re.M)
