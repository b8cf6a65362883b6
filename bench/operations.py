"""The operations that are measured: their requests, and what each answer must hold."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import islice
from operator import getitem
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlencode

import load
from servers import KEY, ROUTE, SECRET, Service

PAGE = 20  # tasks of a list, unless asked otherwise
SAMPLE = 500  # tasks that are read and changed
PROJECTS = 10  # that are active, where the targets of the context hold
FLOWS = 128  # of a round: several times as many as the requests that are under way
DEEP = 9980  # the offset of a deep page
RARE, TWO_LETTERS, COMMON = "quokka", "qu", "launch"  # texts that tasks are searched for
WITH_KEY = {"Authorization": f"Bearer {KEY}"}
WITH_SECRET = {"x-agent-webhook-secret": SECRET}


class Request(NamedTuple):
    """A request, and whether what it was answered with is right."""

    method: str
    path: str
    body: dict | None
    is_right: Callable[[Any], bool]

    def headers(self) -> dict[str, str]:
        if self.path.startswith(ROUTE):
            return WITH_SECRET
        return {} if self.path.endswith("/health") else WITH_KEY

    def encoded(self) -> bytes:
        return load.encode(self.method, self.path, self.body, **self.headers())

    def check(self, port: int) -> int:
        """Send it, check the answer's content, and return the size of the answer's body in bytes.

        Raises `RuntimeError` if it is refused, or the content is wrong.
        """
        content = load.fetch(port, self.method, self.path, self.body, **self.headers())
        answered = json.loads(content)
        if not self.is_right(answered["result" if self.path.startswith(ROUTE) else "data"]):
            raise RuntimeError(f"{self.method} {self.path}: the answer is wrong: {content[:1000]!r}")
        return len(content)


def api(method: str, path: str, is_right: Callable[[Any], bool], body: dict | None = None) -> Request:
    return Request(method, f"/api/v1{path}", body, is_right)


def act(action: str, is_right: Callable[[Any], bool], **fields: Any) -> Request:
    """A request to the gateway."""
    return Request("POST", ROUTE, {"action": action, **fields}, is_right)


def has(*path: str, **fields: Any) -> Callable[[Any], bool]:
    """Whether the object at this path of an answer has these fields."""

    def is_right(data: Any) -> bool:
        return fields.items() <= reduce(getitem, path, data).items()

    return is_right


class Workspace:
    """What the service's database holds, of which requests are made."""

    numbers = itertools.count(1)  # of titles, so that each is another one

    def __init__(self, service: Service):
        self.service, self.random = service, Random(1)  # the same requests in each run
        today = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
        self.next_month = instant(today + timedelta(days=30))
        self.milestones = dict(service.rows("SELECT id, project_id FROM milestone"))
        active = "SELECT id FROM project WHERE status = 'active' AND id IN (SELECT project_id FROM milestone)"
        self.projects = self.column(active)
        self.members = self.column("SELECT id FROM member WHERE status = 'active' AND role != 'client'")
        # The values of each filter; those of the times let few, some and most tasks pass.
        self.values: dict[str, list[str]] = {
            "project_id": self.projects,
            "milestone_id": list(self.milestones),
            "status": ["todo", "in_progress", "review", "done"],
            "assignee_id": self.column("SELECT DISTINCT assignee_id FROM task WHERE assignee_id IS NOT NULL"),
            "priority": ["low", "medium", "high", "urgent"],
            "due_before": [instant(today + timedelta(days=days)) for days in (-4, 20, 60)],
            "updated_since": [instant(today + timedelta(days=days)) for days in (-50, -20, -2)],
        }
        for number in range(PROJECTS - len(self.column("SELECT id FROM project WHERE status = 'active'"))):
            name = f"Project {number + 1} of the benchmark"
            api("POST", "/projects", has(name=name), {"name": name}).check(service.port)
        ids = self.column("SELECT id FROM task")
        self.tasks = self.random.sample(ids, min(SAMPLE, len(ids)))
        for _ in range(3 - len(self.column("SELECT id FROM task WHERE title LIKE ?", f"%{RARE}%"))):
            next(create(self, RARE)).check(service.port)

    def column(self, sql: str, *values: object) -> list[str]:
        return [value for (value,) in self.service.rows(sql, *values)]

    def new_title(self) -> str:
        return f"Measure how fast this is, number {next(self.numbers)}"

    def new_flows(self) -> list[str]:
        """Ids of new flows, whose revision is 0."""
        request = act("create_flow", bool, goal="Answer an order", status="running")
        load.send(self.service.port, [request.encoded()] * FLOWS)
        return self.column("SELECT id FROM flow WHERE revision = 0 ORDER BY seq DESC LIMIT ?", FLOWS)

    def open_tasks(self, number: int) -> list[str]:
        """Ids of so many open tasks; tasks are added if there are not as many."""
        sql = "SELECT id FROM task WHERE status != 'done' LIMIT ?"
        missing = number - len(self.column(sql, number))
        load.send(self.service.port, [request.encoded() for request in islice(create(self), missing)])
        return self.column(sql, number)


def instant(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z")


# Reads: requests that are sent again and again.


def get(workspace: Workspace) -> Iterator[Request]:
    for id in workspace.tasks:
        yield api("GET", f"/tasks/{id}", has(id=id))


def lists(*filters: str, **fixed: Any) -> Callable[[Workspace], Iterator[Request]]:
    """Lists of tasks with these filters in all combinations of their values."""

    def make(workspace: Workspace) -> Iterator[Request]:
        for values in itertools.product(*[workspace.values[name] for name in filters]):
            query = dict(zip(filters, values, strict=True)) | fixed
            if "milestone_id" in query and "project_id" in query:
                query["project_id"] = workspace.milestones[query["milestone_id"]]
            yield list_request(query)

    return make


def list_request(query: dict[str, Any]) -> Request:
    filters = {name: value for name, value in query.items() if name not in ("offset", "sort")}

    def is_right(data: Any) -> bool:
        tasks, total = data["tasks"], data["pagination"]["total"]
        expected = min(PAGE, max(total - query.get("offset", 0), 0))
        is_full = total > 0 or len(filters) > 1  # every value of a filter has tasks, but not every pair
        return is_full and len(tasks) == expected and all(passes(task, filters) for task in tasks)

    return api("GET", f"/tasks?{urlencode(query)}" if query else "/tasks", is_right)


def passes(task: dict[str, Any], filters: dict[str, Any]) -> bool:
    """Whether the task passes every filter."""
    rules: dict[str, Callable[[Any], bool]] = {
        "q": lambda text: text in f"{task['title']} {task['description']}".lower(),
        "due_before": lambda time: (task["due_date"] or "~") < time,
        "updated_since": lambda time: task["updated_at"] >= time,
    }
    return all(
        rules[name](value) if name in rules else task[name] == value for name, value in filters.items()
    )


def context(workspace: Workspace) -> Iterator[Request]:
    def is_right(data: Any) -> bool:
        return len(data["projects"]) == PROJECTS and len(data["urgent_tasks"]) == 10

    yield api("GET", "/context", is_right)


def health(workspace: Workspace) -> Iterator[Request]:
    yield api("GET", "/health", lambda data: data == {"status": "ok"})


def get_flow(workspace: Workspace) -> Iterator[Request]:
    for id in workspace.new_flows():
        yield act("get_flow", has("flow", flowId=id), flowId=id)


# Writes: requests of which each is sent once.


def create(workspace: Workspace, title: str = "") -> Iterator[Request]:
    while True:
        body = {
            "project_id": workspace.random.choice(workspace.projects),
            "title": title.title() or workspace.new_title(),
            "description": "A task with the fields that most tasks have.",
            "priority": "medium",
            "assignee_id": workspace.random.choice(workspace.members),
            "due_date": workspace.next_month,
        }
        yield api("POST", "/tasks", has(**body), body)


def update(workspace: Workspace) -> Iterator[Request]:
    for id in itertools.cycle(workspace.tasks):
        body = {"title": workspace.new_title()}
        yield api("PATCH", f"/tasks/{id}", has(**body), body)


def complete(workspace: Workspace, number: int) -> Iterator[Request]:
    for id in workspace.open_tasks(number):
        yield api("POST", f"/tasks/{id}/complete", has(id=id, status="done"))


def comment(workspace: Workspace) -> Iterator[Request]:
    for id in itertools.cycle(workspace.tasks):
        body = {"content": f"About the price: {workspace.new_title()}"}
        yield api("POST", f"/tasks/{id}/comments", has(**body), body)


def run_task(workspace: Workspace) -> Iterator[Request]:
    for id in itertools.cycle(workspace.new_flows()):
        text = workspace.new_title()
        yield act("run_task", has("task", task=text), flowId=id, runtime="subagent", task=text)


def set_waiting(workspace: Workspace) -> Iterator[Request]:
    flows = workspace.new_flows()
    for revision in itertools.count():
        for id in flows:
            is_next = has("flow", flowId=id, revision=revision + 1)
            fields = {"expectedRevision": revision, "waitJson": {"for": "approval"}}
            yield act("set_waiting", is_next, flowId=id, **fields)


@dataclass(frozen=True)
class Operation:
    """What is measured: how its requests are made, and the least ratio to bare Flask that is wanted."""

    make: Callable[..., Iterator[Request]]
    target: float | None = None
    is_write: bool = False

    def requests(self, workspace: Workspace, number: int) -> list[Request]:
        """At most so many requests for one run."""
        arguments = (workspace, number) if self.make is complete else (workspace,)
        return list(islice(self.make(*arguments), number))


FILTERS = ("project_id", "milestone_id", "status", "assignee_id", "priority", "due_before", "updated_since")
EQUALITIES = FILTERS[:5]
PAIRS = list(itertools.combinations(FILTERS, 2))
FAST_PAIRS = [("project_id", "status"), ("status", "assignee_id")]
SORTS = [sign + name for name in ("created_at", "updated_at", "due_date", "priority") for sign in ("", "-")]

OPERATIONS: dict[str, Operation] = {
    "get": Operation(get, 0.75),
    "list": Operation(lists(), 0.70),
    **{f"list {name}": Operation(lists(name), 0.70 if name in EQUALITIES else None) for name in FILTERS},
    **{
        f"list {first} + {second}": Operation(
            lists(first, second), 0.70 if (first, second) in FAST_PAIRS else None
        )
        for first, second in PAIRS
    },
    "list q rare": Operation(lists(q=RARE)),
    "list q common": Operation(lists(q=COMMON)),
    f"list offset {DEEP}": Operation(lists(offset=DEEP)),
    "context": Operation(context, 0.50),
    "create": Operation(create, 0.25, is_write=True),
    "update": Operation(update, 0.25, is_write=True),
    "complete": Operation(complete, 0.25, is_write=True),
    "comment": Operation(comment, 0.25, is_write=True),
    "health": Operation(health, 0.85),
    "get_flow": Operation(get_flow, 0.70),
    "run_task": Operation(run_task, is_write=True),
    "set_waiting": Operation(set_waiting, 0.25, is_write=True),
}
