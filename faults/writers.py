"""Changes of random kinds to tasks, and clients that make them while their server may die at any moment."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import requests
from harness import OWNER_KEY, PATIENCE, Server

KINDS = {"create": 8, "title": 6, "complete": 3, "comment": 3, "delete": 1}  # and how often


@dataclass
class Change:
    """A request that changes something. Its `key` is found again in the event that it makes."""

    key: str
    method: str
    path: str
    body: dict[str, Any] | None = None
    status: int = 200
    data: Any = None  # of its answer; without one nobody knows whether it was done
    had_no_answer: bool = False  # at least once

    @property
    def options(self) -> dict[str, Any]:
        """The rest of the request; a creation can be repeated."""
        return {"json": self.body, "headers": {"Idempotency-Key": self.key} if self.path == "/tasks" else {}}


class Script:
    """Changes of random kinds to the tasks of one project, each made after the one before."""

    def __init__(self, name: str, project: str, random: Random, sizes: tuple[int, ...] = (0,)):
        self.name, self.project, self.random, self.sizes = name, project, random, sizes
        self.changes: list[Change] = []
        self.tasks: list[str] = []  # that it created, and has not deleted
        self.open: set[str] = set()  # those of them that it has not completed
        self.last_creation: Change | None = None

    def next(self) -> Change:
        text = f"{self.name}-{len(self.changes)}"
        kind = self.random.choices([*KINDS], [*KINDS.values()])[0]
        task = self.random.choice(self.tasks) if self.tasks else None
        self.changes.append(self.change(kind, text, task) if task else self.creation(text))
        return self.changes[-1]

    def change(self, kind: str, text: str, task: str) -> Change:
        path = f"/tasks/{task}"
        if kind == "title":
            return Change(text, "PATCH", path, {"title": text})
        if kind == "comment":
            return Change(text, "POST", f"{path}/comments", {"content": text}, 201)
        if kind == "complete" and task in self.open:
            self.open.remove(task)
            return Change(f"task.completed {task}", "POST", f"{path}/complete")
        if kind == "delete":
            self.tasks.remove(task)
            return Change(f"task.deleted {task}", "DELETE", path)
        return self.creation(text)

    def creation(self, text: str) -> Change:
        metadata = {"a": "x" * self.random.choice(self.sizes)}
        body = {"title": text, "project_id": self.project, "metadata": metadata}
        self.last_creation = Change(text, "POST", "/tasks", body, 201)
        return self.last_creation

    def note(self, change: Change, data: Any) -> None:
        """Note the data of the change's answer."""
        if change.path == "/tasks" and change.data is None:
            self.tasks.append(data["id"])
            self.open.add(data["id"])
        change.data = data


class Writer(threading.Thread):
    """A client that makes one change after the other, also on the next server when this one has gone.

    Then it repeats its last creation, which is done once, and answered as before. It reports what is wrong
    to `problem`.
    """

    def __init__(self, server: Server, script: Script, problem: Callable[[str], None]):
        super().__init__(daemon=True)
        self.server, self.script, self.problem = server, script, problem
        self.answers = self.repeated = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        again: Change | None = None
        with requests.Session() as session:
            session.trust_env = False
            session.headers["Authorization"] = f"Bearer {OWNER_KEY}"
            while not self.is_over.is_set():
                try:
                    self.ask(session, again or self.script.next())
                    self.repeated += again is not None
                    again = None
                except requests.RequestException:  # the server has gone; the outcome is unknown
                    again = self.script.last_creation
                    self.is_over.wait(0.02)  # the next one's address is not known at once

    def ask(self, session: requests.Session, change: Change) -> None:
        """Send the change, and note the answer. Raises `RequestException` where there is none."""
        url = f"{self.server.base}/api/v1{change.path}"
        try:
            answer = session.request(change.method, url, timeout=PATIENCE, **change.options)
        except requests.RequestException:
            change.had_no_answer = True
            raise
        if answer.status_code != change.status:
            self.problem(f"{change} was answered {answer.status_code}: {answer.text[:300]}")
            raise requests.RequestException("the outcome is unknown")
        data = answer.json()["data"]
        if change.data not in (None, data):
            self.problem(f"{change} was answered again, with {data}")
        self.script.note(change, data)
        self.answers += 1
