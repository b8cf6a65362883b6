"""HTTP connections that stay open. Requests are sent on several of them before any response is read."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from harness import PATIENCE, Server

TWO_WORKERS = ("--workers", "2")  # neither knows what is in the memory of the other

# The cookies of all responses by their values. A session counts only in a cookie.
sessions: dict[str, str] = {}


class Connection:
    """A connection to a server, on which one request at a time is sent."""

    def __init__(self, server: Server):
        self.http = HTTPConnection(urlsplit(server.base).netloc, timeout=PATIENCE)
        self.cookie = ""  # of the last answer

    def send(self, method: str, path: str, key: str | None = None, body: Any = None) -> None:
        """Send a request without waiting for its response. A body is sent as JSON."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if key in sessions:
            headers = {"Cookie": sessions[key], "X-Requested-With": "campaign"}
        content = None
        if body is not None:
            headers["Content-Type"], content = "application/json", json.dumps(body)
        self.http.request(method, path, content, headers)

    def receive(self) -> tuple[int, Any]:
        """Wait for the response. Return its status, and its text or JSON with the numbers of JavaScript."""
        response = self.http.getresponse()
        content = response.read().decode()
        self.cookie = response.headers.get("Set-Cookie", "")
        cookie = self.cookie.partition(";")[0]
        sessions[cookie.partition("=")[2]] = cookie
        if response.headers.get_content_subtype() == "json":
            return response.status, json.loads(content, parse_int=float)
        return response.status, content

    def ask(self, method: str, path: str, key: str | None = None, body: Any = None) -> tuple[int, Any]:
        """Send a request, wait for its response, and return it like `receive`."""
        self.send(method, path, key, body)
        return self.receive()

    def close(self) -> None:
        self.http.close()


@contextmanager
def connected(server: Server, count: int) -> Iterator[list[Connection]]:
    """Yield `count` connections, and close them at the end."""
    with ExitStack() as ends:
        yield [ends.enter_context(closing(Connection(server))) for _ in range(count)]
