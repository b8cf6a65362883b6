"""Many clients at once: what each of them does, what was acknowledged, and how long the answers took.

The requests are sent by one thread. A client is a generator that yields a request, and is given the answer.
"""

import gc
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from socket import socket
from typing import Any, Literal, NamedTuple, Self

import load
import orjson
from harness import NOBODY, UUID, Server
from servers import ROUTE, SECRET

Kind = Literal["read", "write", "refused"]
API = "/api/v1"


class Request(NamedTuple):
    kind: Kind
    data: bytes
    status: int  # of the right answer


Client = Iterator[Request]


class Refused(Exception):
    """Raised in a client whose request was not answered as it should be."""


@dataclass
class Ledger:
    """What the service has acknowledged, and so has to keep."""

    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)  # title and status by id
    comments: dict[str, str] = field(default_factory=dict)  # their tasks' ids by id
    flows: dict[str, int] = field(default_factory=dict)  # revisions by id
    runs: set[str] = field(default_factory=set)  # the child tasks of flows
    events: Counter[str] = field(default_factory=Counter)  # how many by name
    problems: Counter[str] = field(default_factory=Counter)  # what was read, and is not what was written

    @classmethod
    def of(cls, server: Server) -> Self:
        """What is in a server's database before."""
        tasks = {row["id"]: (row["title"], row["status"]) for row in server.rows("SELECT * FROM task")}
        comments = {row["id"]: row["task_id"] for row in server.rows("SELECT * FROM comment")}
        return cls(tasks, comments)

    def __len__(self) -> int:
        return len(self.tasks) + len(self.comments) + len(self.flows) + len(self.runs)

    def delete(self, task: str) -> None:
        del self.tasks[task]
        for comment in [id for id, of in self.comments.items() if of == task]:
            del self.comments[comment]


class Someone:
    """A client with tasks of its own, in a project that it shares with all others."""

    def __init__(self, name: str, key: str, project: str, ledger: Ledger, random: Random):
        self.name, self.key, self.project, self.ledger, self.random = name, key, project, ledger, random
        self.tasks: list[str] = []
        self.number = 0

    def act(self, weights: dict[Callable[["Someone"], Iterator[Request]], int]) -> Client:
        """Do these things at random, as often as their weights say."""
        things, shares = list(weights), list(weights.values())
        while True:
            (thing,) = self.random.choices(things, shares)
            try:
                yield from thing(self)
            except Refused:
                continue  # it is counted where the answer arrived

    def call(self, kind: Kind, method: str, path: str, body: Any = None, status: int = 200, **headers: str):
        """Send a request to the API or to /mcp, and return the answer's JSON."""
        headers = {"Authorization": f"Bearer {self.key}"} | headers
        answer = yield Request(kind, load.encode(method, path, body, **headers), status)
        return orjson.loads(answer)

    def act_on_flow(self, kind: Kind, action: str, status: int = 200, **fields: Any):
        headers = {"x-agent-webhook-secret": SECRET}
        request = load.encode("POST", ROUTE, {"action": action, **fields}, **headers)
        answer = orjson.loads((yield Request(kind, request, status)))
        return answer["result"]

    def use_tool(self, kind: Kind, tool: str, **arguments: Any):
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = yield from self.call(kind, "POST", "/mcp", message)
        text = answer["result"]["content"][0]["text"]
        if answer["result"].get("isError"):
            self.ledger.problems[f"{tool}: {text}"] += 1
            raise Refused
        return orjson.loads(text)

    def new_text(self) -> str:
        self.number += 1
        return f"{self.name}-{self.number}"

    def has_created(self, task: str, title: str) -> None:
        self.tasks.append(task)
        self.ledger.tasks[task] = title, "todo"
        self.ledger.events["task.created"] += 1

    def own_task(self):
        """A task of its own that is not deleted, which is created if there is none."""
        if not self.tasks:
            yield from create(self)
        return self.random.choice(self.tasks)


# What a client does: each of these is a generator of one or a few requests.


def read_task(someone: Someone):
    task = yield from someone.own_task()
    answer = yield from someone.call("read", "GET", f"{API}/tasks/{task}")
    found = answer["data"]["title"], answer["data"]["status"]
    if found != someone.ledger.tasks[task]:
        someone.ledger.problems[f"a task is read as {found}, but is {someone.ledger.tasks[task]}"] += 1


def read_list(someone: Someone):
    filters = ("", f"&project_id={someone.project}", "&status=todo&sort=-priority", "&q=-7")
    yield from someone.call("read", "GET", f"{API}/tasks?limit=20{someone.random.choice(filters)}")


def read_context(someone: Someone):
    yield from someone.call("read", "GET", f"{API}/context")


def read_activity(someone: Someone):
    yield from someone.call("read", "GET", f"{API}/activity?limit=20")


def create(someone: Someone):
    body = {"project_id": someone.project, "title": someone.new_text(), "priority": "high"}
    headers = {"Idempotency-Key": body["title"]} if someone.random.random() < 0.1 else {}
    answer = yield from someone.call("write", "POST", f"{API}/tasks", body, 201, **headers)
    someone.has_created(answer["data"]["id"], body["title"])
    if headers:  # repeated, it is answered by what was stored
        yield from someone.call("write", "POST", f"{API}/tasks", body, 201, **headers)


def update(someone: Someone):
    id = yield from someone.own_task()
    body = {"title": someone.new_text(), "status": someone.random.choice(("todo", "in_progress", "review"))}
    yield from someone.call("write", "PATCH", f"{API}/tasks/{id}", body)
    someone.ledger.tasks[id] = body["title"], body["status"]
    someone.ledger.events["task.updated"] += 1


def complete(someone: Someone):
    id = yield from someone.own_task()
    title, status = someone.ledger.tasks[id]
    yield from someone.call("write", "POST", f"{API}/tasks/{id}/complete")
    someone.ledger.tasks[id] = title, "done"
    someone.ledger.events["task.completed"] += status != "done"


def comment(someone: Someone):
    task = yield from someone.own_task()
    body = {"content": someone.new_text()}
    answer = yield from someone.call("write", "POST", f"{API}/tasks/{task}/comments", body, 201)
    someone.ledger.comments[answer["data"]["id"]] = task
    someone.ledger.events["comment.added"] += 1


def delete(someone: Someone):
    task = yield from someone.own_task()
    yield from someone.call("write", "DELETE", f"{API}/tasks/{task}")
    someone.tasks.remove(task)
    someone.ledger.delete(task)
    someone.ledger.events["task.deleted"] += 1


def ask_wrongly(someone: Someone):
    tasks, right = f"{API}/tasks", {"project_id": someone.project, "title": "A task"}
    requests: list[tuple[str, str, Any, int]] = [
        ("POST", tasks, {"title": ""}, 422),
        ("POST", tasks, right | {"unknown": 1}, 422),
        ("POST", tasks, right | {"project_id": NOBODY}, 422),
        ("POST", tasks, ["a list"], 400),
        ("GET", f"{tasks}?limit=-1", None, 422),
        ("GET", f"{tasks}/{NOBODY}", None, 404),
        ("DELETE", f"{API}/context", None, 405),
        ("POST", "/mcp", {"jsonrpc": "1.0"}, 400),
    ]
    method, path, body, status = someone.random.choice(requests)
    yield from someone.call("refused", method, path, body, status)


def ask_without_right(someone: Someone):
    yield from someone.call("refused", "GET", f"{API}/tasks", None, 401, Authorization="Bearer tms_wrong")


def run_flow(someone: Someone):
    """A flow from its beginning to its end."""
    flow = (yield from someone.act_on_flow("write", "create_flow", goal=someone.new_text()))["flow"]
    id, flows = flow["flowId"], someone.ledger.flows
    flows[id] = flow["revision"]
    fields = {"flowId": id, "runtime": "subagent", "task": someone.new_text()}
    run = yield from someone.act_on_flow("write", "run_task", **fields)
    someone.ledger.runs.add(run["task"]["taskId"])
    for action, more in (("set_waiting", {"waitJson": {"for": 1}}), ("resume_flow", {}), ("finish_flow", {})):
        fields = {"flowId": id, "expectedRevision": flows[id]} | more
        flows[id] = (yield from someone.act_on_flow("write", action, **fields))["flow"]["revision"]
    yield from someone.act_on_flow("read", "get_flow", flowId=id)
    yield from someone.act_on_flow("refused", "finish_flow", 409, flowId=id, expectedRevision=0)


def use_tools(someone: Someone):
    """What an agent does with a task."""
    project = {"project": someone.project, "title": someone.new_text()}
    task = yield from someone.use_tool("write", "create_task", **project)
    someone.has_created(task["id"], project["title"])
    yield from someone.use_tool("read", "find_tasks", limit=5)
    yield from someone.use_tool("read", "get_task", task_id=task["id"])


MIXED = {read_task: 20, read_list: 12, read_context: 4, read_activity: 2, create: 12, update: 8, complete: 4}
MIXED |= {comment: 6, delete: 4, ask_wrongly: 6, ask_without_right: 1, run_flow: 2, use_tools: 2}
WRITES = {create: 10, update: 10, complete: 4, comment: 5, delete: 2}


# Sending --------------------------------------------------------------------------------------


@dataclass
class Measured:
    """What was answered, in seconds from the moment that the request was sent, or was to be sent."""

    seconds: float = 0.0
    latencies: dict[str, list[float]] = field(
        default_factory=lambda: {"read": [], "write": [], "refused": []}
    )
    wrong: Counter[str] = field(default_factory=Counter)  # answers that are not right, in words
    busy: int = 0  # refusals because the database could not be written

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.count / self.seconds

    @property
    def count(self) -> int:
        return sum(map(len, self.latencies.values()))

    def ms(self, kind: Kind, *parts: float) -> list[float]:
        """Percentiles in milliseconds; the part 1 is the slowest."""
        ordered = sorted(self.latencies[kind]) or [0.0]
        return [load.percentile(ordered, part) * 1000 for part in parts]

    def shown(self, kind: Kind) -> str:
        return " / ".join(f"{ms:.1f}" for ms in self.ms(kind, 0.5, 0.99, 1)) + " ms"


class Traffic:
    """Connections that are kept open, with a client at each."""

    def __init__(self, lines: load.Connections, clients: list[Client]):
        self.lines = lines
        self.clients = {lines.open(): client for client in clients}
        self.following = {sock: next(client) for sock, client in self.clients.items()}
        self.waiting: dict[
            socket, tuple[Request, float]
        ] = {}  # the request, and since when its latency counts
        self.answered = 0

    def closed_loop(self, seconds: float) -> Measured:
        """Each client sends its next request as soon as it has an answer."""
        measured, started = Measured(), time.perf_counter()
        with uncollected():
            for sock in list(self.clients):
                self._send(sock, time.perf_counter())
            while self.waiting and not self.lines.late():
                for sock in self._receive(measured, 1):
                    if (at := time.perf_counter()) < started + seconds:
                        self._send(sock, at)
        return self._ended(measured, started)

    def open_loop(self, seconds: float, rate: float) -> Measured:
        """Requests come at regular moments, whether the earlier ones were answered or not.

        A request for which no connection is free waits, and its latency counts from its moment.
        """
        measured, started = Measured(), time.perf_counter()
        moments = deque(started + number / rate for number in range(round(seconds * rate)))
        idle = deque(self.clients)
        with uncollected():
            while ((moments and self.clients) or self.waiting) and not self.lines.late():
                left = moments[0] - time.perf_counter() if moments and idle else 1.0
                if left > 0:
                    idle.extend(self._receive(measured, left))
                elif (sock := idle.popleft()) in self.clients:
                    self._send(sock, moments.popleft())
        return self._ended(measured, started)

    def _send(self, sock: socket, since: float) -> None:
        request = self.following[sock]
        self.waiting[sock] = request, since
        self.lines.send(sock, request.data)

    def _receive(self, measured: Measured, seconds: float) -> Iterator[socket]:
        """Give the answers that arrive to the clients, and yield the connections that are free again."""
        for sock, answer in self.lines.answers(seconds):
            self.lines.since.pop(sock, None)
            if answer is None or sock not in self.waiting:
                measured.wrong["a connection was closed"] += 1
                self.waiting.pop(sock, None)
                self.clients.pop(sock, None)
                continue
            request, since = self.waiting.pop(sock)
            measured.latencies[request.kind].append(time.perf_counter() - since)
            self.answered += 1
            self.following[sock] = self._next(sock, request, bytes(answer), measured)
            yield sock

    def _next(self, sock: socket, request: Request, answer: bytes, measured: Measured) -> Request:
        head, _, body = answer.partition(b"\r\n\r\n")
        status, client = int(head[9:12]), self.clients[sock]
        if status == request.status:
            return client.send(body)  # type: ignore[attr-defined]
        if status == 503:
            measured.busy += 1
        else:
            line = UUID.sub(":id", request.data.partition(b"\r\n")[0].decode())
            measured.wrong[f"{status} instead of {request.status} to {line}"] += 1
        return client.throw(Refused())  # type: ignore[attr-defined]

    def _ended(self, measured: Measured, started: float) -> Measured:
        if self.waiting:
            measured.wrong[f"no answer within {load.TIMEOUT} s"] += len(self.waiting)
        measured.seconds = time.perf_counter() - started
        return measured


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python's garbage collector not interrupt what is timed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
