"""The operations that are measured, and their requests."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlencode

import load
import requests
from harness import OWNER_KEY, Server
from servers import ROUTE, SECRET

SAMPLE = 500  # tasks that are read and changed
# The number of active projects for which the targets of the context are set.
PROJECTS = 10
# The flows of a run: several times the number of requests under way.
FLOWS = 64
DEEP = 9980  # the offset of a deep page
RARE, TWO_LETTERS, COMMON = "quokka", "qu", "launch"  # texts that tasks are searched for
# Days from today. Few, some and most tasks pass the filter.
DAYS = {"due_before": (-4, 20, 60), "updated_since": (-50, -20, -2)}
EQUALITIES = ("project_id", "milestone_id", "status", "assignee_id", "priority")
FILTERS = (*EQUALITIES, *DAYS)
PAIRS = list(itertools.combinations(FILTERS, 2))
SORTS = [sign + name for name in ("created_at", "updated_at", "due_date", "priority") for sign in ("-", "")]


class Request(NamedTuple):
    method: str
    path: str
    body: dict | None = None
    token: str = OWNER_KEY

    def headers(self) -> dict[str, str]:
        if self.path == ROUTE:
            return {"x-agent-webhook-secret": SECRET}
        return {} if self.path.endswith("/health") else {"Authorization": f"Bearer {self.token}"}

    def encoded(self) -> bytes:
        return load.encode(self.method, self.path, self.body, self.headers())

    def send(self, base: str, session: Any = requests) -> Any:
        """Send the request once. Raise `RuntimeError` if it is refused or finds nothing."""
        options = {"json": self.body, "headers": self.headers(), "timeout": 4 * load.TIMEOUT}
        answer = session.request(self.method, base + self.path, **options)
        if not answer.ok or b'"tasks":[]' in answer.content:
            raise RuntimeError(f"{self.method} {self.path}: {answer.status_code} {answer.text[:1000]}")
        return answer


def api(method: str, path: str, **body: Any) -> Request:
    return Request(method, f"/api/v1{path}", body or None)


def act(action: str, **fields: Any) -> Request:
    """Return a request to the gateway."""
    return Request("POST", ROUTE, {"action": action, **fields})


class Workspace:
    """The rows of the service's database that requests are made from. Adds some projects and tasks."""

    def __init__(self, server: Server):
        self.server, self.random = server, Random(1)  # the same requests in each run
        self.numbers = itertools.count(1)
        self.times = {name: [instant(number) for number in days] for name, days in DAYS.items()}
        for number in range(PROJECTS - len(self.ids("project WHERE status = 'active'"))):
            api("POST", "/projects", name=f"Project {number} of the benchmark").send(server.base)
        self.projects = self.ids("project WHERE status = 'active'")
        self.members = self.ids("member WHERE status = 'active' AND role != 'client'")
        for _ in range(3):
            api("POST", "/tasks", project_id=self.projects[0], title=RARE).send(server.base)
        (count,) = server.rows("SELECT COUNT(*) AS tasks FROM task")
        step = max(count["tasks"] // SAMPLE, 1)
        self.tasks = server.rows("SELECT * FROM task WHERE rowid % ? = 0 LIMIT ?", step, SAMPLE)

    def ids(self, where: str) -> list[str]:
        return [row["id"] for row in self.server.rows(f"SELECT id FROM {where}")]  # noqa: S608

    def new_title(self) -> str:
        return f"Measure how fast this is, number {next(self.numbers)}"

    def new_flows(self) -> list[str]:
        """Create flows and return their ids. Their revision is 0."""
        request = act("create_flow", goal="Answer an order", status="running")
        answers = [request.send(self.server.base).json() for _ in range(FLOWS)]
        return [answer["result"]["flow"]["flowId"] for answer in answers]


def instant(days: int) -> str:
    """Return the time `days` from now."""
    return f"{datetime.now(UTC) + timedelta(days):%Y-%m-%dT12:00:00.000Z}"


Make = Callable[[Workspace], Iterator[Request]]


# Reads: requests that are sent again and again.


def get(workspace: Workspace) -> Iterator[Request]:
    for task in workspace.tasks:
        yield api("GET", f"/tasks/{task['id']}")


def lists(*filters: str, **fixed: object) -> Make:
    """Make requests that list tasks by these filters, with values of the sampled tasks."""

    def make(workspace: Workspace) -> Iterator[Request]:
        for task in workspace.tasks:
            values = task | {name: workspace.random.choice(times) for name, times in workspace.times.items()}
            query = {name: values[name] for name in filters} | fixed
            if None not in query.values():
                yield api("GET", f"/tasks?{urlencode(query)}" if query else "/tasks")

    return make


def context(workspace: Workspace) -> Iterator[Request]:
    yield api("GET", "/context")


def health(workspace: Workspace) -> Iterator[Request]:
    yield api("GET", "/health")


def get_flow(workspace: Workspace) -> Iterator[Request]:
    for id in workspace.new_flows():
        yield act("get_flow", flowId=id)


# Writes: a request changes something only if it is sent once in a run.


def create(workspace: Workspace) -> Iterator[Request]:
    fields = {"description": "A task with the fields that most tasks have.", "priority": "medium"}
    fields |= {"due_date": instant(30)}
    while True:
        fields["project_id"] = workspace.random.choice(workspace.projects)
        fields["assignee_id"] = workspace.random.choice(workspace.members)
        yield api("POST", "/tasks", title=workspace.new_title(), **fields)


def update(workspace: Workspace) -> Iterator[Request]:
    for task in itertools.cycle(workspace.tasks):
        yield api("PATCH", f"/tasks/{task['id']}", title=workspace.new_title())


def complete(workspace: Workspace) -> Iterator[Request]:
    for id in workspace.ids("task WHERE status != 'done'"):
        yield api("POST", f"/tasks/{id}/complete")


def comment(workspace: Workspace) -> Iterator[Request]:
    for task in itertools.cycle(workspace.tasks):
        yield api("POST", f"/tasks/{task['id']}/comments", content="About the price: it is too high.")


def run_task(workspace: Workspace) -> Iterator[Request]:
    for id in itertools.cycle(workspace.new_flows()):
        yield act("run_task", flowId=id, runtime="subagent", task=workspace.new_title())


def set_waiting(workspace: Workspace) -> Iterator[Request]:
    flows = workspace.new_flows()
    for revision in itertools.count():
        for id in flows:
            yield act("set_waiting", flowId=id, expectedRevision=revision, waitJson={"for": "approval"})


class Operation(NamedTuple):
    """An operation to measure: how to make its requests, and its lowest accepted ratio to bare Flask."""

    make: Make
    target: float | None = None


OPERATIONS: dict[str, Operation] = {
    "get": Operation(get, 0.76),
    "list": Operation(lists(), 0.64),
    **{f"list {name}": Operation(lists(name), 0.57) for name in EQUALITIES},
    "list due_before": Operation(lists("due_before")),
    "list updated_since": Operation(lists("updated_since")),
    "list changes": Operation(lists("updated_since", sort="updated_at"), 0.57),
    "list assignee_id + open": Operation(lists("assignee_id", status="open"), 0.57),
    "list project_id + status": Operation(lists("project_id", "status"), 0.57),
    "list status + assignee_id": Operation(lists("status", "assignee_id"), 0.57),
    "list q rare": Operation(lists(q=RARE)),
    "list q common": Operation(lists(q=COMMON)),
    "list offset": Operation(lists(offset=DEEP), 0.35),
    "context": Operation(context, 0.40),
    "create": Operation(create, 0.25),
    "update": Operation(update, 0.28),
    "complete": Operation(complete, 0.28),
    "comment": Operation(comment, 0.25),
    "health": Operation(health, 0.85),
    "get_flow": Operation(get_flow, 0.70),
    "run_task": Operation(run_task),
    "set_waiting": Operation(set_waiting, 0.25),
}
