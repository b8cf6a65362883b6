"""Clients of the service: those that send slowly, vanish, stay or send garbage, and those that just work."""

import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from random import Random
from typing import Any

from harness import OWNER_KEY, PATIENCE
from receivers import TLS_HELLO

JSON = "Content-Type: application/json"
CHUNKED = [JSON, "Transfer-Encoding: chunked"]
FORM = "Content-Type: multipart/form-data; boundary=B"
FILE = b'--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n%b\r\n--B--\r\n'
# Small segments and a small buffer here keep the buffer at the other end small.
NARROW = {(socket.SOL_SOCKET, socket.SO_RCVBUF): 4096, (socket.IPPROTO_TCP, socket.TCP_MAXSEG): 536}


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


class Line:
    """A connection to a server, on which any bytes can be sent.

    `options` are set on its socket before it is connected.
    """

    def __init__(
        self,
        server: Any,
        options: dict[tuple[int, int], int] | None = None,
        tls: ssl.SSLContext | None = None,
    ):
        host, port = server.base.rpartition("/")[2].split(":")
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        for (level, option), value in (options or {}).items():
            self.socket.setsockopt(level, option, value)
        self.socket.connect((host, int(port)))
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.file = self.socket.makefile("rb")

    def send(self, method, path, headers, body=b"", key=OWNER_KEY):
        self.socket.sendall(head(method, f"/api/v1{path}", headers, key) + body)

    def answer(self):
        """The status and the body of the next answer."""
        status = int(self.file.readline().split()[1])
        self.headers = {}
        while line := self.file.readline().strip():
            name, _, text = line.decode("latin-1").partition(":")
            self.headers[name.lower()] = text.strip()
        return status, self.file.read(int(self.headers.get("content-length", 0)))

    def code(self):
        status, body = self.answer()
        return status, json.loads(body)["error"]["code"]

    def ended(self):
        return self.file.read(1) == b""

    def close(self, *, reset: bool = False) -> None:
        """Close the connection, or have the server see a reset, as of a client that crashed."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.file.close()
        self.socket.close()


def head(method: str, path: str, headers: list[str], key: str | None = OWNER_KEY) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: test", *headers]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


# Those that misbehave --------------------------------------------------------------------------


class Target:
    """A server, and what its hostile clients need: a task, a large file of it, and a route of the gateway."""

    def __init__(self, server: Any, route: str, secret: str, size: int = 500_000):
        self.server, self.route, self.secret = server, route, secret
        owner = server.client()
        self.project = owner.make_project()
        self.task = owner.make_task(self.project)
        self.files = f"/tasks/{self.task['id']}/attachments"
        file = owner.request("POST", self.files, files={"file": ("f", b"x" * size)})
        self.file = f"{self.files}/{owner.data(file, 201)['id']}"


Misbehaviour = Callable[[Line, Target, Random], None]


def drip(line: Line, content: bytes, seconds: float = 1.0) -> None:
    """Send this a few bytes at a time, over so many seconds."""
    step = max(1, len(content) // 50)
    for at in range(0, len(content), step):
        line.socket.sendall(content[at : at + step])
        time.sleep(seconds * step / len(content))


def body_of(target: Target) -> bytes:
    return json.dumps({"project_id": target.project["id"], "title": "Of a hostile client"}).encode()


def expect(line: Line, *statuses: int) -> None:
    """Read an answer for each of the statuses. Raises `AssertionError` for another one."""
    for status in statuses:
        said = line.answer()
        assert said[0] == status, f"{said[0]} instead of {status}: {said[1][:100]!r}"


def sends_its_head_slowly(line: Line, target: Target, random: Random) -> None:
    drip(line, head("GET", "/api/v1/health", []))
    expect(line, 200)


def sends_its_body_slowly(line: Line, target: Target, random: Random) -> None:
    body = body_of(target)
    line.send("POST", "/tasks", [JSON, f"Content-Length: {len(body)}"])
    drip(line, body)
    expect(line, 201)


def sends_chunks_byte_by_byte(line: Line, target: Target, random: Random) -> None:
    line.send("POST", "/tasks", CHUNKED)
    for byte in body_of(target):
        line.socket.sendall(b"1\r\n%c\r\n" % byte)
    line.socket.sendall(b"0\r\n\r\n")
    expect(line, 201)


def vanishes_in_its_head(line: Line, target: Target, random: Random) -> None:
    line.socket.sendall(head("GET", "/api/v1/context", [])[: random.randrange(1, 60)])


def vanishes_in_its_body(line: Line, target: Target, random: Random) -> None:
    line.send("POST", "/tasks", [JSON, "Content-Length: 100"], b'{"title":')


def vanishes_in_a_chunk(line: Line, target: Target, random: Random) -> None:
    line.send("POST", "/tasks", CHUNKED, b'20\r\n{"title":')


def vanishes_in_an_upload(line: Line, target: Target, random: Random) -> None:
    line.send("POST", target.files, [FORM, "Content-Length: 1000000"], FILE[:100] + b"x" * 100_000)


def vanishes_before_its_answer(line: Line, target: Target, random: Random) -> None:
    line.send("GET", "/context", [])


def vanishes_in_its_answer(line: Line, target: Target, random: Random) -> None:
    line.send("GET", target.file, [])
    line.file.read(random.randrange(1, 100_000))


def vanishes_in_a_request_of_a_route(line: Line, target: Target, random: Random) -> None:
    headers = [JSON, "Content-Length: 100", f"x-agent-webhook-secret: {target.secret}"]
    line.socket.sendall(head("POST", target.route, headers, None) + b'{"action":')


def vanishes_in_a_call_of_a_tool(line: Line, target: Target, random: Random) -> None:
    line.socket.sendall(head("POST", "/mcp", [JSON, "Content-Length: 100"]) + b'{"jsonrpc": "2.0",')


def reads_slowly(line: Line, target: Target, random: Random) -> None:
    line.send("GET", target.file, [])
    for _ in range(20):
        line.socket.recv(1500)
        time.sleep(0.05)


def pipelines(line: Line, target: Target, random: Random) -> None:
    body = body_of(target)
    write = head("POST", "/api/v1/tasks", [JSON, f"Content-Length: {len(body)}"]) + body
    line.socket.sendall((head("GET", "/api/v1/health", []) + write) * 10)
    expect(line, *[200, 201] * 10)


def ends_its_side(line: Line, target: Target, random: Random) -> None:
    line.send("GET", "/context", [])
    line.socket.shutdown(socket.SHUT_WR)
    expect(line, 200)


def ends_its_side_in_its_body(line: Line, target: Target, random: Random) -> None:
    line.send("POST", "/tasks", [JSON, "Content-Length: 100"], b'{"title":')
    line.socket.shutdown(socket.SHUT_WR)
    expect(line, 400)


def stays_after_its_answer(line: Line, target: Target, random: Random) -> None:
    line.send("GET", "/health", ["Connection: close"])
    expect(line, 200)
    time.sleep(1)


def waits_to_be_told_to_continue(line: Line, target: Target, random: Random) -> None:
    line.send("POST", "/tasks", [JSON, "Content-Length: 100", "Expect: 100-continue"])
    expect(line, 100)


def sends_garbage(line: Line, target: Target, random: Random) -> None:
    line.socket.sendall(random.randbytes(random.randrange(1, 5000)) + b"\r\n\r\n")
    expect(line, 400)


def sends_a_tls_hello(line: Line, target: Target, random: Random) -> None:
    line.socket.sendall(TLS_HELLO + random.randbytes(500).replace(b"\n", b"\r"))


def sends_an_endless_head(line: Line, target: Target, random: Random) -> None:
    line.socket.sendall(head("GET", "/api/v1/health", [])[:-2] + b"X: y\r\n" * 100_000)


MISBEHAVIOURS: tuple[Misbehaviour, ...] = (
    sends_its_head_slowly,
    sends_its_body_slowly,
    sends_chunks_byte_by_byte,
    vanishes_in_its_head,
    vanishes_in_its_body,
    vanishes_in_a_chunk,
    vanishes_in_an_upload,
    vanishes_before_its_answer,
    vanishes_in_its_answer,
    vanishes_in_a_request_of_a_route,
    vanishes_in_a_call_of_a_tool,
    reads_slowly,
    pipelines,
    ends_its_side,
    ends_its_side_in_its_body,
    stays_after_its_answer,
    waits_to_be_told_to_continue,
    sends_garbage,
    sends_a_tls_hello,
    sends_an_endless_head,
)
MAY_BE_CUT = (sends_an_endless_head, sends_garbage)  # whose connection may be reset before all is sent


def misbehave(
    target: Target, kinds: Iterable[Misbehaviour], random: Random, tls: ssl.SSLContext | None = None
) -> list[str]:
    """Do each of these on a connection of its own; returns what was answered that should not have been."""
    wrong = []
    for kind in kinds:
        options = NARROW if kind is reads_slowly else None
        line = Line(target.server, options, tls)
        try:
            kind(line, target, random)
        except (OSError, AssertionError, IndexError, ValueError) as failure:
            if kind not in MAY_BE_CUT or isinstance(failure, AssertionError):
                wrong.append(f"a client that {kind.__name__.replace('_', ' ')}: {failure!r}")
        finally:
            line.close(reset=kind.__name__.startswith("vanishes") or random.random() < 0.5)
    return wrong


# Those that work meanwhile ---------------------------------------------------------------------


class Worker(threading.Thread):
    """A client that reads and writes on a connection that it keeps, until it is stopped."""

    def __init__(self, server: Any, project: str, pause: float = 0.01, tls: ssl.SSLContext | None = None):
        super().__init__(daemon=True)
        host = server.base.rpartition("/")[2]
        self.connection = (
            HTTPSConnection(host, timeout=PATIENCE, context=tls)
            if tls
            else HTTPConnection(host, timeout=PATIENCE)
        )
        self.project, self.pause, self.done = project, pause, threading.Event()
        self.answers: list[tuple[float, str, int, float]] = []  # begun at, method, status, seconds
        self.broken: list[str] = []
        self.created: list[str] = []  # the ids of tasks

    def call(self, method: str, path: str, body: object = None) -> bytes:
        headers = {"Authorization": f"Bearer {OWNER_KEY}", "Content-Type": "application/json"}
        at = time.monotonic()
        self.connection.request(
            method, f"/api/v1{path}", json.dumps(body) if body is not None else None, headers
        )
        answer = self.connection.getresponse()
        content = answer.read()
        self.answers.append((at, method, answer.status, time.monotonic() - at))
        return content

    def run(self) -> None:
        while not self.done.wait(self.pause):
            try:
                body = {"project_id": self.project, "title": "Of a client that works"}
                id = json.loads(self.call("POST", "/tasks", body)).get("data", {}).get("id")
                self.call("GET", f"/tasks?project_id={self.project}&limit=5")
                if id:
                    self.created.append(id)
                    self.call("PATCH", f"/tasks/{id}", {"status": "done"})
                    self.call("GET", f"/tasks/{id}")
            except (OSError, HTTPException, ValueError) as failure:
                self.broken.append(repr(failure))
                self.connection.close()


class Work:
    """What clients have done that worked for a while."""

    def __init__(self, workers: list[Worker], since: float = 0.0):
        self.answers = [answer for each in workers for answer in each.answers if answer[0] >= since]
        self.broken = [failure for each in workers for failure in each.broken]
        self.created = [id for each in workers for id in each.created]

    @property
    def statuses(self) -> Counter:
        return Counter(status for _, _, status, _ in self.answers)

    @property
    def failures(self) -> str:
        """What did not succeed, in words; empty if nothing."""
        words = [f"{count} x {status}" for status, count in self.statuses.items() if status >= 400]
        if self.broken:
            words.append(f"{len(self.broken)} broken connections ({self.broken[0]})")
        return ", ".join(words)

    def seconds(self, *methods: str) -> list[float]:
        """How long each of the answers took, or each of those to these methods."""
        return [took for _, method, _, took in self.answers if not methods or method in methods]

    def p99(self, *methods: str) -> float:
        """In milliseconds."""
        return percentile(self.seconds(*methods), 0.99) * 1000


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


@contextmanager
def working(
    server: Any, project: str, many: int, pause: float = 0.01, tls: ssl.SSLContext | None = None
) -> Iterator[list[Worker]]:
    """Have so many clients work; all have ended afterwards."""
    workers = [Worker(server, project, pause, tls) for _ in range(many)]
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.done.set()
        for worker in workers:
            worker.join(2 * PATIENCE)
            worker.connection.close()


# What they leave -------------------------------------------------------------------------------


def held(server: Any) -> tuple[int, int]:
    """How many threads the server's worker has, and how many open files besides those of the database.

    It keeps a connection to that for each thread that once read while the others did.
    """
    process, files = Path(f"/proc/{server.children()[0]}"), 0
    for file in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            files += not file.readlink().name.startswith(server.database.name)
    return len(list((process / "task").iterdir())), files
