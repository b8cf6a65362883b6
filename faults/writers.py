"""Clients that write to a server which may die at any moment, and know what it has acknowledged."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from random import Random

from harness import OWNER_KEY, PATIENCE, Server

from database import Row

KINDS = {"create": 6, "keyed": 2, "title": 4, "details": 2, "complete": 3, "comment": 3, "delete": 1}


class Write:
    """A request that changes something. Its `key` is found again in the event that it makes."""

    def __init__(self, key: str):
        self.key = key
        self.is_answered = False  # otherwise nobody knows whether it was done
        self.had_no_answer = False  # at least once


class Writers:
    """Clients that write side by side in one project, and report problems to `note`."""

    def __init__(self, server: Server, random: Random, number: int, note: Callable[[str], None]):
        self.server, self.note, self.replays = server, note, 0
        owner = server.client()
        self.project = owner.make_project()["id"]
        path, titles = f"/projects/{self.project}/milestones", ("First", "Second")
        self.milestones = [owner.data(owner.post(path, {"title": title}), 201)["id"] for title in titles]
        owner.session.close()
        self.answers = threading.Semaphore(0)
        self.is_over = threading.Event()
        self.all = [Writer(self, number, random.random()) for number in range(number)]

    @property
    def writes(self) -> list[Write]:
        return [write for writer in self.all for write in writer.writes]

    def start(self) -> None:
        for writer in self.all:
            writer.thread.start()

    def end(self) -> None:
        """Wait until each client has its last answer."""
        self.is_over.set()
        for writer in self.all:
            writer.thread.join(2 * PATIENCE)

    def go_on(self, number: int) -> None:
        """Wait until so many more writes were answered, at most for a second; but at least for one."""
        while self.answers.acquire(blocking=False):
            """What was answered before does not count."""
        if not self.answers.acquire(timeout=PATIENCE):
            self.note(f"no write was answered for {PATIENCE} s")
        ends_at = time.monotonic() + 1
        for _ in range(number - 1):
            if not self.answers.acquire(timeout=max(ends_at - time.monotonic(), 0)):
                break


class Writer:
    """A client that writes one thing after the other, also to the next server when this one has gone."""

    def __init__(self, shared: Writers, number: int, seed: float):
        self.shared, self.number, self.random = shared, number, Random(seed)
        self.writes: list[Write] = []
        self.tasks: list[str] = []  # that it made, and has not deleted
        self.open: set[str] = set()  # those of them that it has not completed
        # What it made last with an Idempotency-Key, the body, and the answer's data.
        self.keyed: tuple[Write, Row, Row | None] | None = None
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        try:
            while not self.shared.is_over.is_set():
                address = self.shared.server.base.removeprefix("http://")
                with closing(HTTPConnection(address, timeout=PATIENCE)) as connection:
                    self.write_until_it_breaks(connection)
                self.shared.is_over.wait(0.02)  # the next server's address is not known at once
        except Exception as error:
            self.shared.note(f"a client of the campaign failed: {error!r}")
            raise

    def write_until_it_breaks(self, connection: HTTPConnection) -> None:
        try:
            if self.keyed:
                self.create_again(connection, *self.keyed)
            while not self.shared.is_over.is_set():
                self.write(connection)
        except (OSError, HTTPException):  # the server has gone; what was under way has an unknown outcome
            return

    def write(self, connection: HTTPConnection) -> None:
        """Write something. Raises `OSError` or `HTTPException` where there is no answer."""
        task = self.random.choice(self.tasks) if self.tasks else ""
        kind = self.random.choices([*KINDS], [*KINDS.values()])[0]
        text, path = f"write {self.number}-{len(self.writes)}", f"/tasks/{task}"
        if kind == "title" and task:
            self.ask(connection, self.begin(text), "PATCH", path, {"title": text})
        elif kind == "details" and task:
            self.ask(connection, self.begin(text), "PATCH", f"{path}/details", {"description": text})
        elif kind == "comment" and task:
            self.ask(connection, self.begin(text), "POST", f"{path}/comments", {"content": text}, 201)
        elif kind == "complete" and task in self.open:
            self.open.remove(task)
            self.ask(connection, self.begin(f"task.completed {task}"), "POST", f"{path}/complete")
        elif kind == "delete" and task:
            self.tasks.remove(task)
            self.ask(connection, self.begin(f"task.deleted {task}"), "DELETE", path)
        else:
            self.create(connection, text, is_keyed=kind == "keyed")

    def begin(self, key: str) -> Write:
        self.writes.append(Write(key))
        return self.writes[-1]

    def create(self, connection: HTTPConnection, text: str, *, is_keyed: bool) -> None:
        write, body = self.begin(text), {"title": text, "project_id": self.shared.project}
        if milestone := self.random.choice((None, *self.shared.milestones)):
            body["milestone_id"] = milestone
        if is_keyed:
            self.keyed = write, body, None
        made = self.ask(connection, write, "POST", "/tasks", body, 201, is_keyed=is_keyed)
        self.tasks.append(made["id"])
        self.open.add(made["id"])
        if is_keyed:
            self.keyed = write, body, made

    def create_again(self, connection: HTTPConnection, write: Write, body: Row, made: Row | None) -> None:
        """Repeat a creation with its key: it is done once, and the answer is what it was."""
        again = self.ask(connection, write, "POST", "/tasks", body, 201, is_keyed=True)
        self.shared.replays += 1
        if made is None:
            self.keyed = write, body, again
        elif again != made:
            self.shared.note(f"{write.key} was answered with {made}, and again with {again}")

    def ask(
        self,
        connection: HTTPConnection,
        write: Write,
        method: str,
        path: str,
        body: Row | None = None,
        status: int = 200,
        *,
        is_keyed=False,
    ) -> Row:
        """Send the write, and return the answer's data; any other status is a problem."""
        headers = {"Authorization": f"Bearer {OWNER_KEY}", "Content-Type": "application/json"}
        if is_keyed:
            headers["Idempotency-Key"] = write.key.replace(" ", "-")
        try:
            connection.request(method, f"/api/v1{path}", json.dumps(body or {}).encode(), headers)
            with connection.getresponse() as answer:
                text = answer.read()
        except (OSError, HTTPException):
            write.had_no_answer = True
            raise
        if answer.status != status:
            self.shared.note(f"{method} {path} {body} was answered {answer.status}: {text[:300]!r}")
            raise OSError("the outcome is unknown")
        write.is_answered = True
        self.shared.answers.release()
        return json.loads(text)["data"]
