"""Clients that stay connected, send nothing, or do not read their answers: others are served meanwhile."""

import contextlib
import resource
import socket
import threading
import time

import pytest
import requests
from clients import NARROW, Line
from harness import OWNER_KEY, PATIENCE, Server, wait_until

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

    def open_line(server, **options):
        host, port = server.base.removeprefix("http://").split(":")
        line = socket.socket()
        made.append(line)
        line.settimeout(PATIENCE)
        for (level, option), value in options.pop("set", {}).items():
            line.setsockopt(level, option, value)
        line.connect((host, int(port)))
        return line

    yield open_line
    for line in made:
        line.close()


@pytest.fixture
def limited(tmp_path):
    """Start a server that may open so many files, and perhaps more if it asks."""

    def start(soft, hard):
        server = Server(tmp_path)
        server.under = ["sh", "-c", f'ulimit -S -n {soft} && ulimit -H -n {hard} && exec "$@"', "sh"]
        servers.append(server.start())
        return server

    servers = []
    yield start
    for server in servers:
        server.stop()


def until_end(line):
    """All that arrives until the server says that nothing more comes."""
    said = b""
    while part := line.recv(65536):
        said += part
    return said


def is_served(server):
    """Whether a request is answered at once.

    That takes milliseconds. What the tests below rule out would hold it up for 40 seconds and more, so
    that the bound leaves a busy machine a thousand times what it needs.
    """
    started = time.monotonic()
    assert requests.get(f"{server.base}/api/v1/health", timeout=2 * PATIENCE).status_code == 200
    return time.monotonic() - started < 20


@pytest.mark.parametrize("head", ENDED.values(), ids=ENDED)
def test_clients_that_stay_after_their_answer_hold_up_nobody(server, connect, head):
    for _ in range(40):  # closing them in the main loop takes two seconds each
        connect(server).sendall(head)
    assert is_served(server)


def test_many_clients_that_stay_after_their_answer_leave_the_worker_alive(server, connect):
    before = server.children()
    for _ in range(140):
        line = connect(server)
        line.sendall(ENDED["Connection: close"])
        assert until_end(line).startswith(b"HTTP/1.1 200")
    assert is_served(server)
    assert server.children() == before


def test_a_stop_waits_for_a_client_that_is_still_sending_but_not_for_ever(launch, connect):
    server = launch("--graceful-timeout", "600")  # the end of what waits for ever, too late for this test
    stays, sends, _ = connect(server), connect(server), connect(server)
    stays.sendall(ENDED["Connection: close"])
    assert until_end(stays)
    sends.sendall(b"nonsense\r\n\r\n" + b"x" * 100_000)
    assert server.stop() == 0
    assert until_end(sends).startswith(b"HTTP/1.1 400")


def test_a_client_that_is_still_sending_gets_the_answer_to_a_head_that_is_malformed(server, connect):
    line = connect(server)
    line.sendall(b"POST /api/v1/tasks HTTP/1.1\r\nBad Header: x\r\n\r\n" + b"x" * 500_000)
    assert until_end(line).startswith(b"HTTP/1.1 400")


def test_clients_that_do_not_read_their_answers_hold_all_threads_for_half_a_minute_at_most(launch, connect):
    # The bounds are the service's own: 30 seconds, and a second more for each 64 KiB of the answer.
    server = launch()
    owner = server.client()
    path = f"/tasks/{owner.make_task(owner.make_project())['id']}/attachments"
    file = owner.data(owner.request("POST", path, files={"file": ("f", b"x" * 500_000)}), 201)
    head = (
        f"GET /api/v1{path}/{file['id']} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {OWNER_KEY}\r\n\r\n"
    )
    lines = [connect(server, set=NARROW) for _ in range(16)]
    started = time.monotonic()
    for line in lines:
        line.sendall(head.encode())
    for line in lines:
        assert line.recv(8).startswith(b"HTTP")
    done = threading.Event()

    def dribble():
        while not done.wait(0.5):
            for line in lines[8:]:
                with contextlib.suppress(ConnectionResetError):
                    line.recv(1500)

    reader = threading.Thread(target=dribble)
    reader.start()
    try:
        assert requests.get(f"{server.base}/api/v1/health", timeout=2 * PATIENCE).status_code == 200
        # All threads were held until then. Who dribbles needs three minutes for the file.
        assert 20 < time.monotonic() - started < 120
        wait_until(lambda: server.log.read_text().count("did not read the answer in time") >= 8)
    finally:
        done.set()
        reader.join()


def test_heads_that_stop_coming_do_not_hold_threads_for_ever(launch):
    # The bound is the service's own: 15 seconds for a head.
    server = launch()
    lines = [Line(server) for _ in range(16)]
    for number, line in enumerate(lines):
        if number % 2:  # the head that stops follows a request
            line.send("GET", "/health", [])
            assert line.answer()[0] == 200
        line.socket.sendall(HEALTH)
    assert requests.get(f"{server.base}/api/v1/health", timeout=2 * PATIENCE).status_code == 200
    for line in lines:
        assert line.ended()
        line.close()


@pytest.mark.parametrize("files", [36, 128])
def test_more_idle_connections_than_files_may_be_opened_end_no_worker(limited, connect, files):
    server = limited(files, files)
    before = server.children()
    for number in range(2 * files):
        line = connect(server)
        if number % 2:  # half of them are kept alive after a request
            line.sendall(HEALTH + b"\r\n")
            assert line.recv(65536).startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))  # for want of a file
    wait_until(lambda: server.client().get("/health").status_code == 200)
    assert server.children() == before


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(limited):
    server = limited(128, 512)
    for process in (server.process.pid, *server.children()):
        assert resource.prlimit(process, resource.RLIMIT_NOFILE) == (512, 512)


def test_a_request_need_not_wait_for_connections_that_send_nothing(server, connect):
    for _ in range(160):  # in each of the 16 threads they would take 50 seconds
        connect(server)
    assert is_served(server)
