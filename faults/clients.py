"""Clients that misbehave: they send slowly, read slowly, vanish, stay, or send garbage."""

import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable
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
