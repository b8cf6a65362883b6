"""Plain HTTP connections that are kept, on which many requests can be sent before any answer is read."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from harness import Server

TWO_WORKERS = ("--workers", "2")  # of which none knows what is in the memory of the other
SILENCE = 40.0  # seconds after which no answer is waited for; a write waits for 10 at most
LARGEST = 2**53 - 1  # of the numbers that are whole in JavaScript


class Connection:
    """A connection to a server, made when it is needed, on which one request at a time is sent."""

    def __init__(self, server: Server):
        self.server = server
        self.file: Any = None  # of the socket, once it is connected

    def send(self, method: str, path: str, key: str | None = None, body: Any = None) -> None:
        """Send a request without waiting for its answer; a body is sent as JSON."""
        if self.file is None:
            address = urlsplit(self.server.base)
            with socket.create_connection((address.hostname, address.port), SILENCE) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.file = connection.makefile("rwb")  # which keeps it open
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
        head += "Content-Type: application/json\r\n" if content else ""
        head += f"Authorization: Bearer {key}\r\n" if key else ""
        self.file.write(head.encode() + b"\r\n" + content)
        self.file.flush()

    def receive(self) -> tuple[int, Any]:
        """Wait for the answer; returns its status, and its text or JSON, with numbers as in JavaScript."""
        head = []
        while (line := self.file.readline()) not in (b"\r\n", b""):
            head.append(line.decode("latin-1").strip())
        if not head:
            raise ConnectionError("the connection ended without an answer")
        headers = dict(line.split(": ", 1) for line in head[1:])
        content = self.file.read(int(headers["Content-Length"])).decode()
        if headers["Connection"] == "close":
            self.close()
        if "json" in headers.get("Content-Type", ""):
            content = json.loads(content, parse_int=whole_number)
        return int(head[0].split()[1]), content

    def ask(self, method: str, path: str, key: str | None = None, body: Any = None) -> tuple[int, Any]:
        """Send a request, and wait for its answer."""
        self.send(method, path, key, body)
        return self.receive()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        self.file = None


def whole_number(digits: str) -> int | float:
    return int(digits) if abs(int(digits)) <= LARGEST else float(digits)


@contextmanager
def connected(server: Server, count: int) -> Iterator[list[Connection]]:
    """So many connections, which are closed at last."""
    made = [Connection(server) for _ in range(count)]
    try:
        yield made
    finally:
        for connection in made:
            connection.close()
