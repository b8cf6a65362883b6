"""The load: prepared requests, sent by wrk, or by a generator of our own where wrk is not installed."""

import json
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Self

TIMEOUT = 30  # seconds after which a request without an answer is an error
GENERATOR = "wrk" if shutil.which("wrk") else "python"


@dataclass
class Result:
    """What a run measured: latencies in milliseconds, and the processor time of the worker in seconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    max: float
    refused: int  # answers with a status of 400 and above
    timeouts: int
    broken: int  # connections that failed
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def errors(self) -> int:
        return self.refused + self.timeouts + self.broken


def encode(method: str, path: str, body: object = None, **headers: str) -> bytes:
    """Return the bytes of a request with this JSON body."""
    content = b"" if body is None else json.dumps(body).encode()
    if content:
        headers |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def fetch(port: int, method: str, path: str, body: object = None, **headers: str) -> bytes:
    """Send one request, and return the body of its answer. Raises `RuntimeError` for a refusal."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=4 * TIMEOUT)) as connection:
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {content[:1000]!r}")
    return content


def run(port: int, requests: list[bytes], connections: int, seconds: float, generator: str) -> Result:
    """Send the requests in order, again and again, for so many seconds, from a process of its own."""
    with NamedTemporaryFile() as file:
        for request in requests:
            file.write(b"%d\n%b" % (len(request), request))
        file.flush()
        words = [sys.executable, __file__, port, connections, seconds, file.name]
        if generator == "wrk":
            # wrk takes whole seconds; on SIGINT it stops and prints what it measured until then.
            words = ["wrk", "-t1", f"-c{connections}", "-d3600s", f"--timeout={TIMEOUT}s"]
            words += ["-s", Path(__file__).with_name("load.lua"), f"http://127.0.0.1:{port}", "--", file.name]
        process = subprocess.Popen(
            list(map(str, words)), stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            if generator == "wrk":
                time.sleep(seconds + 0.1)  # it starts, and looks every 0.1 s whether it was stopped
                process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=seconds + 2 * TIMEOUT)
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        raise RuntimeError(f"the load generator ended with {process.returncode}")
    return Result(**json.loads(output.splitlines()[-1]))


def send(port: int, requests: list[bytes], connections: int = 8) -> None:
    """Send each request once. Raises `RuntimeError` unless all succeed."""
    result = generate(port, iter(requests), connections, 600)
    if result.errors or result.requests < len(requests):
        raise RuntimeError(f"preparing requests failed: {result}")


class Connections:
    """Connections to a server, of which each has at most one request under way."""

    def __init__(self, port: int):
        self.port = port
        self.since: dict[socket.socket, float] = {}  # when those that wait for an answer sent their request
        self._received: dict[socket.socket, bytearray] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def open(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(sock, selectors.EVENT_READ)
        self._received[sock] = bytearray()
        return sock

    def send(self, sock: socket.socket, request: bytes) -> None:
        self.since[sock], self._received[sock] = time.perf_counter(), bytearray()
        sock.sendall(request)

    def answers(self, seconds: float) -> Iterator[tuple[socket.socket, bytearray | None]]:
        """The answers that have arrived, after waiting at most so long for the first.

        Instead of an answer there is None for a connection that failed, which is closed.
        """
        for key, _ in self._selector.select(seconds):
            sock: socket.socket = key.fileobj  # type: ignore[assignment]
            try:
                chunk = sock.recv(1 << 20)
            except OSError:
                chunk = b""
            if not chunk:
                self._selector.unregister(sock)
                sock.close()
                yield sock, None
                continue
            received = self._received[sock]
            received += chunk
            if is_complete(received):
                yield sock, received

    def late(self) -> int:
        """How many wait longer than `TIMEOUT`."""
        at = time.perf_counter()
        return sum(at - since > TIMEOUT for since in self.since.values())


def generate(port: int, requests: Iterator[bytes], connections: int, seconds: float) -> Result:
    """Send requests over so many connections, until there is none left or the time is over."""
    result = Result(0, 0, 0, 0, 0, 0, 0, 0)
    latencies: list[float] = []
    with Connections(port) as lines:

        def send_next(sock: socket.socket) -> None:
            if (request := next(requests, None)) is not None:
                lines.send(sock, request)

        started = at = time.perf_counter()
        ends_at = started + seconds
        for _ in range(connections):
            send_next(lines.open())
        while lines.since and at < ends_at and not result.timeouts:
            for sock, answer in lines.answers(ends_at - at):
                since = lines.since.pop(sock, None)
                if answer is None:
                    result.broken += since is not None
                    send_next(lines.open())
                elif since is not None:
                    latencies.append(time.perf_counter() - since)
                    result.refused += answer[9:12] >= b"400"  # after "HTTP/1.1 "
                    send_next(sock)
            at, result.timeouts = time.perf_counter(), lines.late()
    result.requests, result.seconds = len(latencies), at - started
    if latencies:
        ordered = sorted(corrected(latencies, result.seconds / max(len(latencies) // connections, 1)))
        result.p50, result.p99 = (percentile(ordered, part) * 1000 for part in (0.5, 0.99))
        result.max = ordered[-1] * 1000
    return result


def percentile(ordered: Sequence[float], part: float) -> float:
    """The number below which this part of them lies."""
    return ordered[int((len(ordered) - 1) * part)]


def is_complete(answer: bytearray) -> bool:
    """Whether an answer with a Content-Length has arrived as a whole."""
    head, found, body = answer.partition(b"\r\n\r\n")
    _, _, length = head.lower().partition(b"\r\ncontent-length:")
    return bool(found) and len(body) >= int(length.partition(b"\r\n")[0])


def corrected(latencies: list[float], interval: float) -> list[float]:
    """Add the requests that a connection would have sent while it waited, as wrk does.

    `interval` is the mean time between two requests of a connection.
    """
    more: deque[float] = deque()
    for latency in latencies:
        while latency >= 2 * interval:
            latency -= interval
            more.append(latency)
    return [*latencies, *more]


def main(port: str, connections: str, seconds: str, file: str) -> None:
    """Print the result of sending a file's requests as one line of JSON."""
    requests = []
    with Path(file).open("rb") as lines:
        while length := lines.readline():
            requests.append(lines.read(int(length)))
    result = generate(int(port), cycle(requests), int(connections), float(seconds))
    print(json.dumps({name: value for name, value in vars(result).items() if name != "cpu"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
