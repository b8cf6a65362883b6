"""Changes of random kinds to tasks, and clients that make them while their server may die at any moment."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import requests
from bystanders import Clients
from harness import PATIENCE, Server

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
    unanswered: int = 0  # how often it was sent without an answer

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
        self.again: Change | None = None  # what is repeated, since an answer is missing

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


class Writers(Clients):
    """Clients that make one change after the other, also on the next server when this one has gone.

    Then each repeats its last creation, which is done once, and answered as before. They report what is wrong
    to `problem`.
    """

    def __init__(self, server: Server, random: Random, many: int, problem: Callable[[str], None]):
        super().__init__(server, many, pause=0.005)
        self.problem, self.answers, self.repeated = problem, 0, 0
        project = server.client().make_project()["id"]
        self.scripts = [Script(f"{number}", project, Random(random.random())) for number in range(many)]

    @property
    def changes(self) -> list[Change]:
        return [change for script in self.scripts for change in script.changes]

    def work(self, session: requests.Session, number: int) -> None:
        """Send a change, and note the answer. Raises `RequestException` where there is none."""
        script = self.scripts[number]
        change = script.again or script.next()
        self.repeated += script.again is not None
        script.again = script.last_creation  # unless there is an answer
        change.unanswered += 1
        url = f"{self.server.base}/api/v1{change.path}"
        answer = session.request(change.method, url, timeout=PATIENCE, **change.options)
        if answer.status_code != change.status:
            self.problem(f"{change} was answered {answer.status_code}: {answer.text[:300]}")
            return
        data = answer.json()["data"]
        if change.data not in (None, data):
            self.problem(f"{change} was answered again, with {data}")
        script.note(change, data)
        script.again = None
        change.unanswered -= 1
        self.answers += 1
