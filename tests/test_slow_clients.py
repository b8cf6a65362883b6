"""Clients that stay connected, send nothing, or do not read their answers: others are served meanwhile."""

import socket
import time

import pytest
import requests

HEALTH = b"GET /api/v1/health HTTP/1.1\r\nHost: test\r\n"
ENDED = {
    "Connection: close": HEALTH + b"Connection: close\r\n\r\n",
    "HTTP/1.0": b"GET /api/v1/health HTTP/1.0\r\n\r\n",
    "a malformed head": b"GET /api/v1/health\r\n\r\n",
}


@pytest.fixture
def connect():
    """Open connections that stay open until the test is over."""
    made = []

    def open_line(server):
        host, port = server.base.removeprefix("http://").split(":")
        made.append(socket.create_connection((host, int(port)), 30))
        return made[-1]

    yield open_line
    for line in made:
        line.close()


def until_end(line):
    """All that arrives until the server says that nothing more comes."""
    said = b""
    while part := line.recv(65536):
        said += part
    return said


def asked(server, beside=lambda: None, rounds=3):
    """How many seconds a request takes beside what is done before it; the least of some rounds."""
    seconds = []
    for _ in range(rounds):
        beside()
        started = time.monotonic()
        assert requests.get(f"{server.base}/api/v1/health", timeout=60).status_code == 200
        seconds.append(time.monotonic() - started)
    return min(seconds)


@pytest.mark.parametrize("head", ENDED.values(), ids=ENDED)
def test_clients_that_stay_after_their_answer_hold_up_nobody(server, connect, head):
    def five():
        for _ in range(5):
            connect(server).sendall(head)

    assert asked(server, five) < 0.5


def test_many_clients_that_stay_after_their_answer_leave_the_worker_alive(server, connect):
    before = server.children()
    for _ in range(140):
        line = connect(server)
        line.sendall(ENDED["Connection: close"])
        assert until_end(line).startswith(b"HTTP/1.1 200")
    assert asked(server) < 0.5
    assert server.children() == before


def test_a_stop_waits_for_a_client_that_is_still_sending_but_not_for_ever(launch, connect):
    server = launch()
    stays, sends = connect(server), connect(server)
    stays.sendall(ENDED["Connection: close"])
    assert until_end(stays)
    sends.sendall(b"nonsense\r\n\r\n" + b"x" * 100_000)
    started = time.monotonic()
    assert server.stop() == 0
    assert until_end(sends).startswith(b"HTTP/1.1 400")
    assert time.monotonic() - started < 15


def test_a_client_that_is_still_sending_gets_the_answer_to_a_head_that_is_malformed(server, connect):
    line = connect(server)
    line.sendall(b"POST /api/v1/tasks HTTP/1.1\r\nBad Header: x\r\n\r\n" + b"x" * 500_000)
    assert until_end(line).startswith(b"HTTP/1.1 400")
