"""Hypothesis works with tasks, and compares what the server shows with a model of them (`task_lists.py`).

After every step all tasks and the statistics of all projects are compared; lists with filters, orders and
pages are steps of their own.
"""

from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import uuid4

from findings import Run
from harness import NOBODY, OWNER_KEY, PATIENCE, Server
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from machines import Machine, explore
from task_lists import PRIORITIES, SORTS, STATUSES, Row, in_order, page, passes, spelled, statistics


def wire(moment: datetime) -> str:
    """A time as the API shows it."""
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


NOW = datetime.now(UTC)
TODAY = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
# Around now and the ends of today, since overdue tasks are counted by day.
AWAY = [timedelta(seconds=seconds) for seconds in (-4e7, -90_000, -1, 20, 90_000)]
TIMES = [wire(TODAY), wire(TODAY + timedelta(days=1, milliseconds=-1)), *(wire(NOW + away) for away in AWAY)]

NUMBERS = st.integers(0, 11)  # choose among the rows that there are
VISIBLE = "aAbBéÉ%_σΣ"  # few, so that searches find them
TEXTS = st.builds("{}{}".format, st.sampled_from(VISIBLE), st.text(VISIBLE + " ", max_size=4)).map(str.strip)
PRIORITY = st.sampled_from(PRIORITIES)
# Descriptions with checkboxes, and how many of these are done.
CHECKED = {"- [ ] a": (0, 1), "* [x] a\n  2) [X] É\n- [ ]\n+ [ ] a": (2, 3), "a - [ ] a\n- [x]a": None}
LABELS = st.sampled_from(["x", "X", "É", "é", "ß x", "SS x"])
PLANNED = {
    "description": st.none() | TEXTS | st.sampled_from([*CHECKED]),
    "priority": PRIORITY,
    "labels": st.none() | st.lists(LABELS, max_size=3),
    "due_date": st.sampled_from([*TIMES, None, None]),
}
DETAILS = PLANNED | {"milestone_id": NUMBERS}
COPIED = ("project_id", "milestone_id", "title", "assignee_id", *PLANNED)
UPDATES = {"title": TEXTS, "status": st.sampled_from(STATUSES), "assignee_id": NUMBERS}
NEW_TASK = st.fixed_dictionaries({"title": TEXTS}, optional=DETAILS | {"assignee_id": NUMBERS})
# Values of filters; a number stands for the value that one of the tasks has.
FILTERS: dict[str, st.SearchStrategy] = {
    "project_id": NUMBERS,
    "milestone_id": NUMBERS,
    "assignee_id": NUMBERS | st.sampled_from(["me", "none"]),
    "status": st.sampled_from([*STATUSES, "open"]),
    "completed_since": NUMBERS,
    "ready": st.just("true"),
    "priority": PRIORITY,
    "due_before": NUMBERS | st.sampled_from(TIMES),
    "updated_since": NUMBERS,
    "label": LABELS,
    "q": st.text(VISIBLE + ' "', min_size=1, max_size=5).filter(str.strip),
    "archived": st.just("false"),
}
COLUMNS = {
    "due_before": "due_date",
    "updated_since": "updated_at",
    "completed_since": "completed_at",
}  # that a filter of another name compares
QUERIES = st.lists(st.sampled_from(sorted(FILTERS)), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FILTERS[name] for name in names})
)
# A header If-Match, given the task's version and the one before, and whether the change is made.
PRECONDITIONS: dict[str, tuple[str, bool]] = {
    "none": ("", True),
    "same": ('"{0}"', True),
    "any": ("*", True),
    "listed": ('"0", "{0}"', True),
    "older": ('"{1}"', False),
    "weak": ('W/"{0}"', False),
}
EXPECTED = st.sampled_from(["none", *PRECONDITIONS])  # twice as often without
MOVE = st.tuples(NUMBERS, st.sampled_from(["after", "before"]), st.none() | NUMBERS)
SOMETIMES_MANY = st.sampled_from([3] * 9 + [150])


class Edit(NamedTuple):
    """A change of one of the tasks, whose version is expected as `PRECONDITIONS` say."""

    task: int
    body: Row
    expected: str


def edits_of(fields: dict[str, st.SearchStrategy]) -> st.SearchStrategy[list[Edit]]:
    """Some changes, each of some of these fields."""
    body = st.fixed_dictionaries({}, optional=fields)
    return st.lists(st.builds(Edit, NUMBERS, body, EXPECTED), min_size=1, max_size=4)


class Created(NamedTuple):
    """A creation of tasks with an Idempotency-Key, which can be repeated."""

    path: str
    body: Row
    headers: dict[str, str]
    data: Row


class TasksMachine(Machine):
    """Projects with milestones and tasks, which one owner changes."""

    comparisons = restarts = 0

    def __init__(self, server: Server, members: list[str]):
        super().__init__()
        self.server, self.members = server, members
        self.projects: dict[str, str] = {}  # id: status
        self.milestones: dict[str, str] = {}  # id: its project's
        self.closed: dict[str, str | None] = {}  # milestones: when
        self.tasks: dict[str, Row] = {}
        self.order: list[str] = []  # all tasks, as they are placed by hand
        self.created: list[Created] = []
        self.last_number = 0
        self.has_restarted = False
        self.connect()
        for project in self.data(self.send("GET", "/projects"))["projects"]:  # of the last example
            self.data(self.send("DELETE", f"/projects/{project['id']}?force=true"))
        self.lines.clear()

    def connect(self) -> None:
        self.client = self.server.client()
        self.client.session.headers["Authorization"] = f"Bearer {OWNER_KEY}"

    def send(self, method: str, path: str, body: Row | None = None, headers: Row | None = None) -> Any:
        """The answer, which the client does not check: by the document that takes longer than the request."""
        url = self.client.base + path
        answer = self.client.session.request(method, url, json=body, headers=headers, timeout=PATIENCE)
        if method != "GET":
            self.tell(f"{method} {path} {body or ''} {headers or ''} -> {answer.status_code}")
        return answer

    def data(self, answer: Any, status: int = 200) -> Row:
        """The answer's data, or nothing of a refusal; it must have this status."""
        assert answer.status_code == status, f"came {answer.status_code} {answer.text[:300]}, not {status}"
        return answer.json().get("data", {})

    def compare(self, what: str, shown: Any, *expected: Any) -> None:
        """What is shown must be one of these."""
        TasksMachine.comparisons += 1
        assert shown in expected, f"{what}: came {shown}, not {expected[-1]}"

    def compare_list(self, filters: Row, sort: str, limit: int, offset: int) -> Row:
        """Compare a page of a list of tasks; returns its pagination."""
        archived = [id for id, status in self.projects.items() if status == "archived"]
        every = ({"assignee_id": "none"} if "ready" in filters else {}) | filters
        found = [
            task
            for task in self.tasks.values()
            if all(passes(task, *pair, archived=archived, me=self.members[0]) for pair in every.items())
        ]
        query = filters | {"sort": sort, "limit": limit, "offset": offset}
        expected = page(in_order(found, sort, self.order), sort, limit, offset)
        self.compare(
            f"GET /tasks {query}", self.data(self.send("GET", f"/tasks?{urlencode(query)}")), expected
        )
        return expected["pagination"]

    # What numbers stand for

    def chosen(self, ids: Collection[str], number: int) -> str:
        """One of the ids; a number past the end begins again with the first."""
        return sorted(ids)[number % len(ids)]

    def resolved(self, body: Row, project_id: str) -> Row:
        """The body of a task of this project, with ids in place of numbers."""
        if "project_id" in body:
            project_id = self.chosen(self.active or [project_id], body["project_id"])
            body = body | {"project_id": project_id}
        milestones = [id for id, project in self.milestones.items() if project == project_id]
        choices = {"milestone_id": [None, *sorted(milestones)], "assignee_id": [None, *self.members]}
        ids = {name: choices[name][body[name] % len(choices[name])] for name in choices if name in body}
        return body | ids

    @property
    def active(self) -> list[str]:
        return [id for id, status in self.projects.items() if status == "active"]

    def outcome(self, body: Row, task: Row | None = None) -> Row:
        """The fields with which a body leaves a task, or a new one."""
        fields = dict(body)
        if task and body.get("project_id", task["project_id"]) != task["project_id"]:
            fields = {"milestone_id": None} | fields
        if "labels" in body:
            fields["labels"] = spelled(body["labels"], self.tasks.values())
        if "description" in body:
            checks = CHECKED.get(body["description"])
            fields["checks"] = checks and {"done": checks[0], "total": checks[1]}
        return fields

    def resolved_filters(self, filters: Row) -> Row:
        """The filters with values that tasks have in place of numbers."""
        resolved = {}
        for name, value in filters.items():
            if isinstance(value, int):
                values = {task[COLUMNS.get(name, name)] for task in self.tasks.values()} - {None}
                value = self.chosen(values or {NOBODY if name.endswith("_id") else TIMES[0]}, value)
            resolved[name] = value
        return resolved

    # Projects and milestones

    @initialize(tasks=st.lists(NEW_TASK, min_size=4, max_size=8))
    def begin(self, tasks: list[Row]) -> None:
        self.create_project()
        self.create_tasks(0, tasks)

    @rule()
    def create_project(self) -> None:
        """Create a project with a milestone."""
        project = self.data(self.send("POST", "/projects", {"name": "P"}), 201)["id"]
        milestone = self.data(self.send("POST", f"/projects/{project}/milestones", {"title": "M"}), 201)
        self.projects[project] = "active"
        self.milestones[milestone["id"]] = project

    @precondition(lambda self: self.projects)
    @rule(project=NUMBERS, status=st.sampled_from(["active", "archived"]))
    def archive_project(self, project: int, status: str) -> None:
        id = self.chosen(self.projects, project)
        self.data(self.send("PATCH", f"/projects/{id}", {"status": status}))
        self.projects[id] = status

    @precondition(lambda self: self.projects)
    @rule(project=NUMBERS, force=st.booleans())
    def delete_project(self, project: int, force: bool) -> None:
        """Delete a project, with its tasks only where that is forced."""
        id = self.chosen(self.projects, project)
        tasks = [task["id"] for task in self.tasks.values() if task["project_id"] == id]
        refused = bool(tasks) and not force
        self.data(self.send("DELETE", f"/projects/{id}{'?force=true' * force}"), 409 if refused else 200)
        if not refused:
            del self.projects[id]
            self.milestones = {id: of for id, of in self.milestones.items() if of in self.projects}
            self.tasks = {id: task for id, task in self.tasks.items() if id not in tasks}
            self.order = [id for id in self.order if id not in tasks]

    @precondition(lambda self: self.milestones)
    @rule(milestone=NUMBERS)
    def delete_milestone(self, milestone: int) -> None:
        """Delete a milestone; its tasks have none then, which is a change of each."""
        id = self.chosen(self.milestones, milestone)
        self.data(self.send("DELETE", f"/milestones/{id}"))
        del self.milestones[id]
        for task in [task for task in self.tasks.values() if task["milestone_id"] == id]:
            shown = self.data(self.send("GET", f"/tasks/{task['id']}"))
            self.replace(task, {"milestone_id": None}, {name: shown[name] for name in task})

    @precondition(lambda self: self.milestones)
    @rule(milestone=NUMBERS, closed=st.booleans())
    def close_milestone(self, milestone: int, closed: bool) -> None:
        """Close a milestone, or open it again; its tasks do not change."""
        id = self.chosen(self.milestones, milestone)
        changed = self.data(self.send("PATCH", f"/milestones/{id}", {"closed": closed}))
        self.closed[id] = (self.closed.get(id) or changed["updated_at"]) if closed else None
        self.compare("closed_at", changed["closed_at"], self.closed[id])

    # Tasks

    @precondition(lambda self: self.active)
    @rule(project=NUMBERS, tasks=st.lists(NEW_TASK, min_size=2, max_size=5), together=st.booleans())
    def create_tasks(self, project: int, tasks: list[Row], together: bool = False) -> None:
        id = self.chosen(self.active, project)
        bodies = [self.resolved(body, id) | {"project_id": id} for body in tasks]
        for body in [{"tasks": bodies}] if together else bodies:
            path, headers = f"/tasks{'/batch' * together}", {"Idempotency-Key": str(uuid4())}
            data = self.data(self.send("POST", path, body, headers), 201)
            self.created.append(Created(path, body, headers, data))
            for task, planned in zip(data["tasks"], bodies, strict=True) if together else [(data, body)]:
                self.add(task, planned)

    def add(self, task: Row, planned: Row) -> None:
        """Compare a new task with what was planned, and keep it."""
        started = {"status": "todo", "priority": "medium", "version": 1, "metadata": {}, "blocked_by": []}
        expected = dict.fromkeys(task) | started | {"labels": [], "created_by": self.members[0]}
        expected |= self.outcome(planned)
        expected |= {name: task[name] for name in ("id", "number", "rank", "created_at", "updated_at")}
        self.compare("the new task", task, expected)
        assert task["number"] > self.last_number, "a number came again, or fell"
        self.last_number = task["number"]
        self.tasks[task["id"]] = task
        self.order.append(task["id"])

    @precondition(lambda self: self.tasks)
    @rule(number=NUMBERS, titled=st.fixed_dictionaries({}, optional={"title": TEXTS}))
    def copy_task(self, number: int, titled: Row) -> None:
        task = self.tasks[self.chosen(self.tasks, number)]
        status = 201 if task["project_id"] in self.active else 422
        if copy := self.data(self.send("POST", f"/tasks/{task['id']}/copy", titled), status):
            self.add(copy, {name: task[name] for name in COPIED} | titled)

    @precondition(lambda self: self.tasks)
    @rule(edits=edits_of(UPDATES))
    def update_tasks(self, edits: list[Edit]) -> None:
        for edit in edits:
            self.edit_task("PATCH", "", edit)

    @precondition(lambda self: self.tasks)
    @rule(edits=edits_of(UPDATES | DETAILS | {"project_id": NUMBERS}))
    def update_details(self, edits: list[Edit]) -> None:
        for edit in edits:
            self.edit_task("PATCH", "/details", edit)

    @precondition(lambda self: self.tasks)
    @rule(edits=edits_of({}))
    def complete_tasks(self, edits: list[Edit]) -> None:
        for edit in edits:
            self.edit_task("POST", "/complete", edit)

    def edit_task(self, method: str, path: str, edit: Edit) -> None:
        """Change a task, where its version is the expected one."""
        task = self.tasks[self.chosen(self.tasks, edit.task)]
        body = self.resolved(edit.body, task["project_id"])
        headers, status = self.if_match(task, edit.expected)
        name = task["number"] if edit.task % 2 else task["id"]
        answer = self.send(method, f"/tasks/{name}{path}", body, headers)
        if shown := self.data(answer, status):
            self.compare("ETag", answer.headers["ETag"], f'"{shown["version"]}"')
            fields = {"status": "done"} if path == "/complete" else self.outcome(body, task)
            self.replace(task, fields, shown)

    @precondition(lambda self: self.tasks and self.active)
    @rule(
        numbers=st.sets(NUMBERS, min_size=1, max_size=4),
        body=st.fixed_dictionaries({}, optional=UPDATES | PLANNED | {"project_id": NUMBERS}),
        ahead=st.sampled_from([None, 0, 0, 1]),
    )
    def change_together(self, numbers: set[int], body: Row, ahead: int | None) -> None:
        """Change several tasks alike, or none, where the version of one is not the expected one."""
        tasks = [self.tasks[id] for id in {self.chosen(self.tasks, number): 0 for number in numbers}]
        changes = self.resolved(body, tasks[0]["project_id"])
        names = [task["number"] if number % 2 else task["id"] for number, task in enumerate(tasks)]
        sent = {"tasks": names, "changes": changes}
        if ahead is not None:
            sent["versions"] = {str(names[-1]): tasks[-1]["version"] + ahead}
        data = self.data(self.send("PATCH", "/tasks/batch", sent), 412 if ahead else 200)
        for task, shown in zip(tasks, data["tasks"], strict=True) if data else ():
            self.replace(task, self.outcome(changes, task), shown)

    @precondition(lambda self: self.tasks)
    @rule(moves=st.lists(MOVE, min_size=1, max_size=6))
    def place_tasks(self, moves: list[tuple[int, str, int | None]]) -> None:
        for number, side, beside in moves:
            chosen = beside if beside is None else self.chosen(self.tasks, beside)
            self.place(self.chosen(self.tasks, number), side, chosen)

    @precondition(lambda self: len(self.tasks) > 3)
    @rule(numbers=st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True), many=SOMETIMES_MANY)
    def crowd(self, numbers: list[int], many: int) -> None:
        """Put two tasks into the same gap in turn, until others there get shorter ranks."""
        first, *others = self.order[:4]
        for number in range(many):
            self.place(others[numbers[number % 2] % 3], "after", first)

    def place(self, id: str, side: str, beside: str | None) -> None:
        """Put a task beside another one, or first or last, which may give others another rank."""
        order, was = self.order, self.tasks[id]
        if beside != id:
            order = [other for other in order if other != id]
            first = 0 if side == "after" else len(order)
            order.insert(first if beside is None else order.index(beside) + (side == "after"), id)
        shown = self.data(self.send("PATCH", f"/tasks/{id}/details", {side: beside}))
        self.replace(was, {"rank": shown["rank"]} if order != self.order else {}, shown)
        self.order = order
        for row in self.data(self.send("GET", "/tasks?sort=rank&limit=100"))["tasks"]:
            if (task := self.tasks[row["id"]]) != row:
                spread = task | {"rank": row["rank"], "updated_at": row["updated_at"]}
                self.compare("another task", row, spread | {"version": task["version"] + 1})
                self.tasks[row["id"]] = row

    @precondition(lambda self: self.tasks)
    @rule(number=NUMBERS, expected=EXPECTED)
    def delete_task(self, number: int, expected: str) -> None:
        task = self.tasks[self.chosen(self.tasks, number)]
        headers, status = self.if_match(task, expected)
        if self.data(self.send("DELETE", f"/tasks/{task['id']}", headers=headers), status):
            del self.tasks[task["id"]]
            self.order.remove(task["id"])

    def if_match(self, task: Row, expected: str) -> tuple[Row, int]:
        """The headers of a change of a task, and the status with which it must be answered."""
        header, fits = PRECONDITIONS[expected]
        version = task["version"]
        headers = {"If-Match": header.format(version, version - 1)} if header else {}
        return headers, 200 if fits else 412

    def replace(self, task: Row, fields: Row, shown: Row) -> None:
        """Compare a changed task with what must have become of it, and keep it."""
        expected = task | fields
        if expected != task:
            at = shown["updated_at"]
            assert at >= task["updated_at"], f"updated_at went back from {task['updated_at']} to {at}"
            expected |= {"version": task["version"] + 1, "updated_at": at}
            if expected["status"] != task["status"]:
                expected["completed_at"] = at if expected["status"] == "done" else None
        self.compare(f"task {task['id']}", shown, expected)
        self.tasks[task["id"]] = shown

    @precondition(lambda self: self.created)
    @rule(number=NUMBERS)
    def repeat(self, number: int) -> None:
        """Repeat a creation with its key, also after what it made was changed or deleted."""
        path, body, headers, data = self.created[number % len(self.created)]
        self.data(self.send("POST", path, body | {"title": "Another"}, headers), 422)
        again = self.send("POST", path, body, headers)
        self.compare("the repetition's answer", self.data(again, 201), data)
        self.compare("Idempotent-Replayed", again.headers.get("Idempotent-Replayed"), "true")

    # Reading

    @rule(filters=QUERIES, sort=st.sampled_from(SORTS), limit=st.sampled_from([1, 2, 3, 5]))
    def read_pages(self, filters: Row, sort: str, limit: int) -> None:
        """Follow the pages of a list to their end."""
        filters, offset = self.resolved_filters(filters), 0
        while offset is not None:
            offset = self.compare_list(filters, sort, limit, offset)["next_offset"]

    @precondition(lambda self: self.tasks)
    @rule(number=NUMBERS, sort=st.sampled_from(SORTS), offset=st.integers(0, 3))
    def read_lists_around_a_task(self, number: int, sort: str, offset: int) -> None:
        """Compare lists with each one and two filters whose value is that of one task."""
        task = self.tasks[self.chosen(self.tasks, number)]
        names = FILTERS.keys() - {"q", "label", "archived", "ready"}
        values = {name: task[COLUMNS.get(name, name)] for name in sorted(names)}
        values["label"] = next(iter(task["labels"]), None)
        values |= {"q": task["title"][-2:].strip(), "archived": "false", "ready": "true"}
        pairs = [pair for pair in values.items() if pair[1] is not None]
        for some in (*combinations(pairs, 1), *combinations(pairs, 2)):
            self.compare_list(dict(some), sort, 3, offset)

    @invariant()
    def tasks_and_statistics_are_equal(self) -> None:
        for sort in ("created_at", "rank"):
            self.compare_list({}, sort, 100, 0)
        labels = {row["label"]: row["count"] for row in self.data(self.send("GET", "/labels"))["labels"]}
        self.compare("labels", labels, Counter(sum((task["labels"] for task in self.tasks.values()), [])))
        sent = wire(datetime.now(UTC))
        answer = self.send("GET", "/projects")
        shown = {project["id"]: project["stats"] for project in self.data(answer)["projects"]}
        tasks = {
            id: [task for task in self.tasks.values() if task["project_id"] == id] for id in self.projects
        }
        expected = [
            {id: statistics(tasks[id], at) for id in tasks}
            for at in (sent, answer.json()["meta"]["timestamp"])
        ]
        self.compare("statistics", shown, *expected)

    @rule(how=st.sampled_from(["SIGTERM", "kill -9", *["no"] * 18]))
    def restart(self, how: str) -> None:
        """End the server and start it again, at most once in an example: it takes as long as many steps."""
        if how == "no" or self.has_restarted or self.exploration.failure:
            return
        self.tell(how)
        if how == "SIGTERM":
            assert self.server.stop() == 0
        else:
            self.server.kill()
        self.server.start()
        self.has_restarted = True
        self.connect()
        TasksMachine.restarts += 1
        for sort in SORTS:
            self.compare_list({}, sort, 100, 0)


def run(run: Run) -> None:
    with run.server() as server:
        owner = server.client()
        members = [owner.data(owner.get("/me"))["member"]["id"]]
        for number in range(2):
            body = {"email": f"{number}@example.com", "full_name": "M", "role": "member"}
            members.append(owner.data(owner.post("/members/invite", body), 201)["member"]["id"])
        explored = explore(run, lambda: TasksMachine(server, members))
        doctor = server.flask("doctor")
        assert doctor.returncode == 0, f"after the examples, doctor says: {doctor.stdout[-500:]}"
    figure = f"{explored.examples} examples, {explored.steps} steps, {TasksMachine.restarts} restarts, "
    figure += f"{TasksMachine.comparisons} comparisons"
    what = "tasks, their lists, order, labels, counters, versions and repeated creations: as in the model"
    run.found("G4", what, figure, "always", not explored.failure)
