"""Clients that just work while something else goes wrong, and what a server holds meanwhile."""

import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import requests
from harness import OWNER_KEY, PATIENCE


class Clients:
    """Threads that `work`, each in a session of its own, again and again inside a `with` statement."""

    def __init__(self, server: Any, many: int, pause: float):
        self.server, self.pause = server, pause
        self.broken: list[str] = []  # connections
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n,), daemon=True) for n in range(many)]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join(2 * PATIENCE)

    def run(self, number: int) -> None:
        with requests.Session() as session:
            session.trust_env = False
            session.headers["Authorization"] = f"Bearer {OWNER_KEY}"
            session.verify = getattr(self.server, "authority", True)  # that of nginx
            while not self.is_over.wait(self.pause):
                try:
                    self.work(session, number)
                except requests.RequestException as failure:
                    self.broken.append(repr(failure))

    def work(self, session: requests.Session, number: int) -> None:
        """Do something with the server, which may be another one each time."""
        raise NotImplementedError


class Bystanders(Clients):
    """Clients of which each creates a task in the project, lists, completes and reads it."""

    def __init__(self, server: Any, project: str, many: int, pause: float = 0.01):
        super().__init__(server, many, pause)
        self.project = project
        self.answers: list[tuple[str, int, float]] = []  # method, status, seconds
        self.created: list[str] = []  # the ids of tasks, once they are answered

    def work(self, session: requests.Session, number: int) -> None:
        made = self.ask(session, "POST", "/tasks", {"project_id": self.project, "title": "T"})
        self.ask(session, "GET", f"/tasks?project_id={self.project}&limit=5")
        if made.status_code == 201:
            id = made.json()["data"]["id"]
            self.created.append(id)
            self.ask(session, "PATCH", f"/tasks/{id}", {"status": "done"})
            self.ask(session, "GET", f"/tasks/{id}")

    def ask(self, session: requests.Session, method: str, path: str, body: Any = None) -> requests.Response:
        url = f"{self.server.base}/api/v1{path}"
        answer = session.request(method, url, json=body, timeout=PATIENCE)
        self.answers.append((method, answer.status_code, answer.elapsed.total_seconds()))
        return answer

    @property
    def failures(self) -> str:
        """What did not succeed, in words; empty if nothing."""
        refused = Counter(status for _, status, _ in self.answers if status >= 400)
        words = [f"{count} x {status}" for status, count in refused.items()]
        if self.broken:
            words.append(f"{len(self.broken)} broken connections ({self.broken[0]})")
        return ", ".join(words)

    def seconds(self, *methods: str) -> list[float]:
        """How long the answers took, or those to these methods."""
        return [took for method, _, took in self.answers if not methods or method in methods]

    def p99(self, *methods: str) -> float:
        """How many milliseconds 99 % of them took at most."""
        ordered = sorted(self.seconds(*methods)) or [0.0]
        return 1000 * ordered[int(0.99 * (len(ordered) - 1))]


def working(server: Any, many: int, seconds: float) -> Bystanders:
    """What so many clients do in so many seconds."""
    project = server.client().make_project()["id"]
    with Bystanders(server, project, many) as others:
        time.sleep(seconds)
    return others


def held(server: Any) -> tuple[int, int]:
    """How many threads the server's worker has, and how many open files besides those of the database.

    It keeps a connection to that for each thread that once read while the others did.
    """
    process, files = Path(f"/proc/{server.children()[0]}"), 0
    for file in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            files += not file.readlink().name.startswith(server.database.name)
    return len(list((process / "task").iterdir())), files
