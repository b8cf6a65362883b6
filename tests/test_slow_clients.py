"""Clients that stay connected, send nothing, or do not read their answers: others are served meanwhile."""

import contextlib
import resource
import select
import threading
import time
from functools import partial

import pytest
import requests
from clients import JSON, NARROW, Line
from harness import PATIENCE, wait_until

from limits import SocketDeadline

HEALTH = b"GET /api/v1/health HTTP/1.1\r\nHost: test\r\n"
CLOSE = HEALTH + b"Connection: close\r\n\r\n"
ENDED = [CLOSE, b"GET /api/v1/health HTTP/1.0\r\n\r\n"]
ENDED.append(b"GET /api/v1/health\r\n\r\n")  # a malformed head
THREADS = 16


@pytest.fixture
def connect():
    """Open connections that stay open until the test is over."""
    with contextlib.ExitStack() as lines:
        yield lambda server, options=None: lines.enter_context(contextlib.closing(Line(server, options)))


@pytest.fixture(scope="module")
def strict(launch_module):
    """A server that gives its clients a second where it would give them 15 or 30."""
    return launch_module(BOUND_HEAD_SECONDS="1", BOUND_READ_SECONDS="1", BOUND_SEND_SECONDS="1")


def is_served(server):
    """Whether a request is answered at once.

    That takes milliseconds. The mistakes that these tests rule out would take over 40 seconds, so
    that the bound leaves a busy machine a thousand times what it needs.
    """
    started = time.monotonic()
    assert requests.get(f"{server.base}/api/v1/health", timeout=2 * PATIENCE).status_code == 200
    return time.monotonic() - started < 20


def test_clients_that_stay_after_their_answer_hold_up_nobody(server, connect):
    before = server.children()
    lines = []
    for head in 20 * ENDED:  # closing one kind of them in the main loop would take 40 seconds
        lines.append(connect(server))
        lines[-1].socket.sendall(head)
    assert is_served(server)
    for line in lines:
        assert line.file.read().startswith(b"HTTP/1.")
    assert server.children() == before


def test_a_request_need_not_wait_for_connections_that_send_nothing(server, connect):
    for _ in range(160):  # in each of the 40 threads they would take 20 seconds
        connect(server)
    assert is_served(server)


def test_a_stop_waits_for_a_client_that_is_still_sending_but_not_for_ever(launch, connect):
    # A wait without end, or until a connection times out, would be too long for this test.
    server = launch("--graceful-timeout", "600", "--keep-alive", "600")
    stays, sends, _ = connect(server), connect(server), connect(server)
    stays.socket.sendall(CLOSE)
    assert stays.file.read()
    sends.socket.sendall(b"nonsense\r\n\r\n" + b"x" * 500_000)
    assert server.stop() == 0
    assert sends.file.read().startswith(b"HTTP/1.1 400")


def test_clients_that_do_not_read_their_answers_do_not_hold_threads_for_ever(strict, connect):
    owner = strict.client()
    path = f"/tasks/{owner.make_task(owner.make_project())['id']}/attachments"
    file = owner.data(owner.request("POST", path, files={"file": ("f", b"x" * 200_000)}), 201)
    lines = [connect(strict, NARROW) for _ in range(THREADS)]
    for line in lines:
        line.send("GET", f"{path}/{file['id']}", [])
        assert line.socket.recv(8).startswith(b"HTTP")
    done = threading.Event()

    def dribble():
        """Read so slowly that the file would take a minute."""
        while not done.wait(0.5):
            for line in lines[:8]:
                with contextlib.suppress(ConnectionResetError):
                    line.socket.recv(1500)

    reader = threading.Thread(target=dribble)
    reader.start()
    try:
        assert owner.get("/health").status_code == 200
        wait_until(lambda: strict.log.read_text().count("did not read the answer in time") == THREADS)
    finally:
        done.set()
        reader.join()


def test_heads_that_stop_coming_do_not_hold_threads_for_ever(strict, connect):
    lines = [connect(strict) for _ in range(THREADS)]
    for number, line in enumerate(lines):
        if number % 2:  # the head that stops follows a request
            assert line.send("GET", "/health", []).answer()[0] == 200
        line.socket.sendall(HEALTH)
    assert strict.client().get("/health").status_code == 200
    for line in lines:
        assert line.ended()


def test_bodies_that_stop_coming_are_timed_out(strict, connect):
    lines = [connect(strict) for _ in range(THREADS)]
    for line in lines:
        line.send("POST", "/tasks", [JSON, "Content-Length: 100000"], b'{"title": ')

    def dribble():
        """A byte now and then does not win time."""
        lines[0].socket.sendall(b" ")
        return says_something(lines[0])

    wait_until(dribble)
    for line in lines:
        assert line.code() == (408, "request_timeout")
        assert line.ended()


def test_more_idle_connections_than_files_may_be_opened_end_no_worker(launch, connect):
    hard = 36
    server = launch(first=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (24, hard)))
    before = server.children()
    for process in (server.process.pid, *before):  # the soft limit was raised to the hard one
        assert resource.prlimit(process, resource.RLIMIT_NOFILE) == (hard, hard)
    for number in range(2 * hard):
        line = connect(server)
        if number % 2:  # half of them are kept alive after a request
            assert line.send("GET", "/health", [], key=None).answer()[0] in (200, 503)  # for want of a file
    wait_until(lambda: server.client().get("/health").status_code == 200)
    assert server.children() == before
    assert server.stop() == 0


def says_something(line):
    """Also its end."""
    return select.select([line.socket], [], [], 0)[0]


@pytest.mark.parametrize("order", ["kept alive, silent", "silent, kept alive"])
def test_the_connection_that_was_idle_longest_makes_room_for_a_new_one(launch, connect, order):
    server = launch("--worker-connections", "4", "--threads", "1")
    lines = []
    for kind in order.split(", "):
        lines.append(connect(server))
        if kind == "kept alive":
            assert lines[-1].send("GET", "/health", [], key=None).answer()[0] == 200
            assert is_served(server)  # by the one thread, which has put the connection among the idle ones
    first, second = lines
    while not says_something(first):
        assert not says_something(second)
        new = connect(server)
        assert new.send("GET", "/health", [], key=None).answer()[0] == 200  # room was made before that
    assert not says_something(second)


def test_stopping_a_deadline_waits_for_one_that_is_expiring():
    """Otherwise it would end the next request of a connection that is kept alive."""
    begun, stopped, late = threading.Event(), threading.Event(), []

    class Expiring(SocketDeadline):
        def expire(self):
            begun.set()
            late.append(stopped.wait(0.3))

    deadline = Expiring(None, 0)
    deadline.start()
    assert begun.wait(PATIENCE)
    deadline.stop()
    stopped.set()
    assert late == [False]
