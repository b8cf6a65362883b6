"""Clients that change and read tasks, and record each response, even if a server dies meanwhile."""

import threading
import time
from dataclasses import dataclass
from random import Random
from typing import Any, Self

import requests
from harness import OWNER_KEY, PATIENCE, wait_until

KINDS = {"create": 8, "title": 6, "complete": 3, "comment": 3, "delete": 1}  # the share of each kind


@dataclass
class Change:
    """A request that changes something. The event that it makes contains its `key`."""

    key: str
    method: str
    path: str
    body: dict[str, Any] | None = None
    status: int = 200
    # The data of the response. Without it, nobody knows whether the change was made.
    data: Any = None
    unanswered: int = 0  # how often it was sent without an answer

    @property
    def options(self) -> dict[str, Any]:
        """Return the rest of the request. A creation can be repeated."""
        return {"json": self.body, "headers": {"Idempotency-Key": self.key} if self.path == "/tasks" else {}}


class Script:
    """Changes of random kinds to the tasks of one project, one after the other."""

    def __init__(self, name: str, project: str, random: Random, sizes: tuple[int, ...] = (0,)):
        self.name, self.project, self.random, self.sizes = name, project, random, sizes
        self.changes: list[Change] = []
        # Tasks that the script created and has not deleted.
        self.tasks: list[str] = []
        # The tasks among them that are not completed.
        self.open: set[str] = set()
        self.last_creation: Change | None = None
        # The change to repeat, because a connection broke.
        self.again: Change | None = None

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
        """Note the data of the response to the change."""
        if change.path == "/tasks" and change.data is None:
            self.tasks.append(data["id"])
            self.open.add(data["id"])
        change.data = data


class Writers:
    """Clients that change and read tasks side by side inside a `with` statement, each in its own session.

    If a connection breaks, a client continues with the server's next address. First it repeats its last
    creation: the server creates the task once, and returns the same response as before.
    """

    def __init__(
        self, server: Any, project: str, many: int, pause: float = 0.01, random: Random | None = None
    ):
        self.server, self.pause = server, pause
        choose = random or Random(0)
        # The names differ from the names in other projects.
        names = [f"{project[-12:]}-{number}" for number in range(many)]
        self.scripts = [Script(name, project, Random(choose.random())) for name in names]
        self.answers: list[tuple[str, float]] = []  # method and seconds
        self.wrong: list[str] = []  # answers
        self.broken: list[str] = []  # connections
        self.repeated = 0
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(each,)) for each in self.scripts]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def work(self, script: Script) -> None:
        with requests.Session() as session:
            session.trust_env = False
            session.headers["Authorization"] = f"Bearer {OWNER_KEY}"
            # nginx has a certificate authority of its own.
            session.verify = getattr(self.server, "authority", True)
            while not self.is_over.wait(self.pause):
                try:
                    self.change(session, script, script.again or script.next())
                    self.ask(session, "GET", f"/tasks?project_id={script.project}&limit=5")
                except requests.RequestException as failure:
                    self.broken.append(repr(failure))
                    script.again = script.last_creation

    def change(self, session: requests.Session, script: Script, change: Change) -> None:
        """Send the change, and note the response."""
        change.unanswered += 1
        data = self.ask(session, change.method, change.path, change.status, **change.options)
        if data is None:
            return
        if change.data not in (None, data):
            self.wrong.append(f"{change} was answered again, with {data}")
        change.unanswered -= 1
        self.repeated += script.again is not None
        script.again = None
        script.note(change, data)

    def ask(
        self, session: requests.Session, method: str, path: str, status: int = 200, **options: Any
    ) -> Any:
        """Return the data of the response, or None if the status is not `status`."""
        answer = session.request(method, f"{self.server.base}/api/v1{path}", timeout=PATIENCE, **options)
        self.answers.append((method, answer.elapsed.total_seconds()))
        if answer.status_code == status:
            return answer.json()["data"]
        self.wrong.append(f"{method} {path} was answered {answer.status_code}: {answer.text[:300]}")
        return None

    @property
    def changes(self) -> list[Change]:
        return [change for script in self.scripts for change in script.changes]

    @property
    def answered(self) -> set[str]:
        """Return the keys of the changes that were answered."""
        return {change.key for change in self.changes if change.data is not None}

    @property
    def failures(self) -> str:
        """Return a description of the failures, or an empty text."""
        problems = self.wrong + self.broken
        return f"{len(problems)} failures, the first: {problems[0]}" if problems else ""

    def go_on(self, number: int) -> None:
        """Wait until `number` more requests are answered."""
        least = len(self.answers) + number
        wait_until(lambda: len(self.answers) >= least)

    def seconds(self, *methods: str) -> list[float]:
        """Return the seconds of each response. `methods` limits them to these methods."""
        return [took for method, took in self.answers if not methods or method in methods]

    def p99(self, *methods: str) -> float:
        """Return the 99th percentile of the responses' times, in milliseconds."""
        ordered = sorted(self.seconds(*methods)) or [0.0]
        return 1000 * ordered[int(0.99 * (len(ordered) - 1))]


def working(server: Any, many: int, seconds: float) -> Writers:
    """Let `many` clients work for `seconds`, and return them."""
    with Writers(server, server.client().make_project()["id"], many) as writers:
        time.sleep(seconds)
    return writers
