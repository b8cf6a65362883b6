"""Receivers of webhooks that do as they please."""

import base64
import re
import select
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from harness import PATIENCE

OK = b"HTTP/1.1 200 OK\r\n"
ACCEPTED = OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n"

Behaviour = Callable[[socket.socket, threading.Event], object]


def read_request(line: socket.socket) -> bytes:
    """Return a client's request, up to the end of its body, or to where it breaks off."""
    sent = b""
    # Of TLS, the first message is whole: its sender waits for an answer.
    while not sent.startswith(b"\x16") and not is_whole(sent) and (part := line.recv(65536)):
        sent += part
    return sent


def is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


class Hostile:
    """A receiver that does as it pleases with each connection that it gets; with a context it speaks TLS.

    It keeps what it was sent, and when each connection began, and ended.
    """

    def __init__(self, behave: Behaviour, context: ssl.SSLContext | None = None):
        self.behave, self.context = behave, context
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.listener.getsockname()[1]}/hook"
        self.requests: list[bytes] = []
        self.connections: list[list[float]] = []
        self.stopped = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        times = [time.monotonic()]
        self.connections.append(times)
        with suppress(OSError), line:
            line.settimeout(2 * PATIENCE)
            with self.context.wrap_socket(line, server_side=True) if self.context else line as spoken:
                self.requests.append(read_request(spoken))
                self.behave(spoken, self.stopped)
                spoken.shutdown(socket.SHUT_RDWR)
        times.append(time.monotonic())

    def close(self) -> None:
        self.stopped.set()
        self.listener.close()


class Proxy(Hostile):
    """A proxy that asks for this login, if any, and forwards requests, or tunnels with CONNECT."""

    def __init__(self, login: str | None = None):
        super().__init__(self._forward)
        self.login = login and b"Basic " + base64.b64encode(login.encode())
        self.url = self.url.removesuffix("/hook")

    def _forward(self, line: socket.socket, stopped: threading.Event) -> None:
        request = self.requests[-1]
        if self.login and b"\r\nProxy-Authorization: " + self.login + b"\r\n" not in request:
            refusal = b"HTTP/1.1 407 Not so, %b\r\nContent-Length: 0\r\n\r\n"
            line.sendall(refusal % re.findall(rb"Authorization: (.*)", request)[0].strip())
            return
        host, port = re.findall(rb"^\w+ (?:http://)?([^ :/]+):(\d+)", request)[0]
        with socket.create_connection((host.decode(), int(port)), 2 * PATIENCE) as other:
            if request.startswith(b"CONNECT "):
                line.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                other.sendall(request)
            ways = {line: other, other: line}
            while parts := [(way, way.recv(65536)) for way in select.select([*ways], [], [])[0]]:
                for way, part in parts:
                    ways[way].sendall(part)
                if not all(part for _, part in parts):
                    break


def stop_after(content: bytes) -> Behaviour:
    """Send this, and then nothing until the sender ends the connection."""

    def behave(line: socket.socket, stopped: threading.Event) -> None:
        line.sendall(content)
        while line.recv(65536):
            pass

    return behave


stay_silent = stop_after(b"")


def send(content: bytes) -> Behaviour:
    return lambda line, stopped: line.sendall(content)


def dribble(first: bytes, part: bytes, seconds: float = 0.05) -> Behaviour:
    """Send something, and then without end a part after another."""

    def behave(line: socket.socket, stopped: threading.Event) -> None:
        line.sendall(first)
        while not stopped.wait(seconds):
            line.sendall(part)

    return behave


def certificates(folder: Path) -> tuple[Path, dict[str, ssl.SSLContext]]:
    """An authority's certificate, and servers' contexts: a right one, and one for another address."""
    folder.mkdir(exist_ok=True)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")

    def certificate(name: str, *words: str) -> None:
        request = ["openssl", "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        request += ["-subj", f"/CN={name}", *words]
        subprocess.run(request, cwd=folder, check=True, capture_output=True)

    def context(name: str, address: str) -> ssl.SSLContext:
        names = ("-addext", f"subjectAltName=IP:{address}", "-addext", "basicConstraints=CA:FALSE")
        certificate(name, "-CA", "ca.pem", "-CAkey", "ca.key", *names)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        return made

    # With what Python 3.13 and later demand of an authority.
    certificate("ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    return folder / "ca.pem", {"right": context("right", "127.0.0.1"), "wrong": context("wrong", "127.0.0.9")}
