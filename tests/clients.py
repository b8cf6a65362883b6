"""Connections on which any bytes can be sent."""

import json
import socket
import ssl
import struct
from typing import Any

from harness import OWNER_KEY, PATIENCE

JSON = "Content-Type: application/json"
CHUNKED = [JSON, "Transfer-Encoding: chunked"]
# Small segments and a small buffer here keep the buffer at the other end small.
NARROW = {(socket.SOL_SOCKET, socket.SO_RCVBUF): 4096, (socket.IPPROTO_TCP, socket.TCP_MAXSEG): 536}


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
        """Send a request, and return the connection, whose `answer` may come next."""
        self.socket.sendall(head(method, f"/api/v1{path}", headers, key) + body)
        return self

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
