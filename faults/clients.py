"""Clients that misbehave: they send slowly, read slowly, pipeline, or vanish."""

import json
import socket
import ssl
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any

from harness import OWNER_KEY, PATIENCE

JSON = "Content-Type: application/json"
CHUNKED = [JSON, "Transfer-Encoding: chunked"]
FORM = "Content-Type: multipart/form-data; boundary=B"
FILE = b'--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
# Small segments and a small buffer here keep the buffer at the other end small.
NARROW = {(socket.SOL_SOCKET, socket.SO_RCVBUF): 4096, (socket.IPPROTO_TCP, socket.TCP_MAXSEG): 536}


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


class Line:
    """A connection to a server, or to nginx, on which any bytes can be sent.

    `options` are set on its socket before it is connected.
    """

    def __init__(self, server: Any, options: dict[tuple[int, int], int] | None = None):
        host, port = server.base.rpartition("/")[2].split(":")
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        for (level, option), value in (options or {}).items():
            self.socket.setsockopt(level, option, value)
        self.socket.connect((host, int(port)))
        if server.base.startswith("https"):
            tls = ssl.create_default_context(cafile=server.authority)
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


@dataclass
class Target:
    """A server, or what stands before it, and what hostile clients need of it."""

    server: Any
    project: str
    files: str  # the path of a task's files
    file: str  # the path of a large one

    @property
    def task(self) -> bytes:
        """The body that creates a task."""
        return json.dumps({"project_id": self.project, "title": "Of a hostile client"}).encode()


def new_target(server: Any, size: int = 500_000) -> Target:
    owner = server.client()
    project = owner.make_project()
    files = f"/tasks/{owner.make_task(project)['id']}/attachments"
    file = owner.data(owner.request("POST", files, files={"file": ("f", b"x" * size)}), 201)
    return Target(server, project["id"], files, f"{files}/{file['id']}")


# Ways to misbehave ------------------------------------------------------------------------------

Misbehaviour = Callable[[Line, Target, Random], None]


def expect(line: Line, *statuses: int) -> None:
    """Read an answer for each of the statuses. Raises `AssertionError` for another one."""
    for status in statuses:
        said = line.answer()
        assert said[0] == status, f"{said[0]} instead of {status}: {said[1][:100]!r}"


def sends_its_head_slowly(line: Line, target: Target, random: Random) -> None:
    for byte in head("GET", "/api/v1/health", []):
        line.socket.sendall(bytes([byte]))
        time.sleep(0.01)
    expect(line, 200)


def sends_its_body_slowly(line: Line, target: Target, random: Random) -> None:
    line.send("POST", "/tasks", CHUNKED)
    for byte in target.task:
        line.socket.sendall(b"1\r\n%c\r\n" % byte)
        time.sleep(0.01)
    line.socket.sendall(b"0\r\n\r\n")
    expect(line, 201)


def vanishes_in_its_head(line: Line, target: Target, random: Random) -> None:
    line.socket.sendall(head("GET", "/api/v1/context", [])[: random.randrange(1, 60)])


def vanishes_in_its_body(line: Line, target: Target, random: Random) -> None:
    path = random.choice(["/api/v1/tasks", "/mcp"])
    line.socket.sendall(head("POST", path, [JSON, "Content-Length: 100"]) + b'{"title":')


def vanishes_in_an_upload(line: Line, target: Target, random: Random) -> None:
    line.send("POST", target.files, [FORM, "Content-Length: 1000000"], FILE + b"x" * 100_000)


def vanishes_in_its_answer(line: Line, target: Target, random: Random) -> None:
    line.send("GET", target.file, [])
    line.file.read(random.randrange(1, 100_000))


def reads_slowly(line: Line, target: Target, random: Random) -> None:
    line.send("GET", target.file, [])
    for _ in range(20):
        line.socket.recv(1500)
        time.sleep(0.05)


def pipelines(line: Line, target: Target, random: Random) -> None:
    write = head("POST", "/api/v1/tasks", [JSON, f"Content-Length: {len(target.task)}"]) + target.task
    line.socket.sendall((head("GET", "/api/v1/health", []) + write) * 10)
    expect(line, *[200, 201] * 10)


MISBEHAVIOURS: tuple[Misbehaviour, ...] = (
    sends_its_head_slowly,
    sends_its_body_slowly,
    vanishes_in_its_head,
    vanishes_in_its_body,
    vanishes_in_an_upload,
    vanishes_in_its_answer,
    reads_slowly,
    pipelines,
)


def misbehave(target: Target, kind: Misbehaviour, random: Random) -> str:
    """Do this on a connection of its own; returns what was answered that should not have been, or ''."""
    line = Line(target.server, NARROW if kind is reads_slowly else None)
    try:
        kind(line, target, random)
    except (OSError, AssertionError, IndexError, ValueError) as failure:
        return f"a client that {kind.__name__.replace('_', ' ')}: {failure!r}"
    finally:
        line.close(reset=random.random() < 0.5)
    return ""


def storm(target: Target, clients: int, seconds: float, random: Random) -> list[str]:
    """Have clients misbehave side by side, in each way again and again; returns what `misbehave` did."""
    ends_at, done = time.monotonic() + seconds, []
    kinds = cycle(random.sample(MISBEHAVIOURS, len(MISBEHAVIOURS)))

    def client(_: int) -> None:
        while time.monotonic() < ends_at:
            done.append(misbehave(target, next(kinds), random))

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    return done
