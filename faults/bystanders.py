"""Clients that just work while others misbehave: what they got, how soon, and what the server holds."""

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from findings import Run
from harness import OWNER_KEY, PATIENCE


class Bystander(threading.Thread):
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

    def __init__(self, bystanders: list[Bystander], since: float = 0.0):
        self.answers = [answer for each in bystanders for answer in each.answers if answer[0] >= since]
        self.broken = [failure for each in bystanders for failure in each.broken]
        self.created = [id for each in bystanders for id in each.created]

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
) -> Iterator[list[Bystander]]:
    """Have so many clients work; all have ended afterwards."""
    bystanders = [Bystander(server, project, pause, tls) for _ in range(many)]
    for each in bystanders:
        each.start()
    try:
        yield bystanders
    finally:
        for each in bystanders:
            each.done.set()
        for each in bystanders:
            each.join(2 * PATIENCE)
            each.connection.close()


def held(server: Any) -> tuple[int, int]:
    """How many threads the server's worker has, and how many open files besides those of the database.

    It keeps a connection to that for each thread that once read while the others did.
    """
    process, files = Path(f"/proc/{server.children()[0]}"), 0
    for file in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            files += not file.readlink().name.startswith(server.database.name)
    return len(list((process / "task").iterdir())), files


def look_at_log(run: Run, server: Any) -> None:
    """A traceback in the log is a fault."""
    lines = server.log.read_text().splitlines()
    bugs = [line for line in lines if "Traceback" in line or "a bug" in line]
    if bugs:
        run.fault(f"the log of {server.folder.name} has {len(bugs)} tracebacks, the first: {bugs[0][:200]}")
        server.allow_bugs = True  # else ending it would hide what else was found
