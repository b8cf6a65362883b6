"""What a team is told, claims that end, questions, and keys of agents, compared with a model (`team.py`).

After every step the inbox of every member, all tasks, and those that are ready are compared.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from connections import TWO_WORKERS
from findings import Run
from harness import PATIENCE, Server, wait_until
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from machines import Machine, explore
from task_lists import STATUSES
from team import Key, Row, Task, Team

NAMES = {"Ana": "write", "Ben": "write", "Bot": "agent"}  # members beside the owner, and their keys' scopes
# One rule does all of them, since hypothesis leaves rules out; the number of tickets is an action's share.
TICKETS = ["create"] * 4 + ["change"] * 12 + ["complete"] * 4 + ["claim"] * 8 + ["comment"] * 14
TICKETS += ["reword"] * 3 + ["take_back"] * 3 + ["block"] * 5 + ["delete"] * 2 + ["read"] * 3
TICKETS += ["end_claim"] * 3 + ["wait"] * 2 + ["kill"]
FAR_AWAY = "2026-01-01T00:00:00.000Z"  # when claims end that are to end now
SOON = 2.0  # seconds after which what has ended is given back, and who waits is told


def team_of(server: Server) -> list[Key]:
    """Two keys each of the owner and of three more members, of whom one is an agent."""
    owner = server.client()
    me = owner.data(owner.get("/me"))["member"]
    keys = [Key("bootstrap", me["id"], owner)]
    for name, scope in NAMES.items():
        client = server.client(server.flask("member", "add", name, "--scope", scope).stdout.strip())
        member = owner.data(client.get("/me"))["member"]["id"]
        keys.append(Key(name, member, client, scope))
    for key in keys[:]:
        made = {"name": f"{key.name} 2", "scope": key.scope, "member_id": key.holder}
        text = owner.data(owner.post("/keys", made), 201)["api_key"]
        keys.append(Key(made["name"], key.holder, server.client(text), key.scope))
    return keys


class TeamMachine(Machine):
    """Four members with two keys each, who work on the tasks of one project, in one of two workers."""

    latest = {"a claim's end": 0.0, "a wait's": 0.0}  # seconds
    numbers = count(1)  # so that texts differ

    def __init__(self, server: Server, keys: list[Key]):
        super().__init__()
        self.server, self.keys, self.owner = server, keys, keys[0]
        self.names = dict(zip(dict.fromkeys(key.holder for key in keys), ["Olga Owner", *NAMES], strict=True))
        self.team = Team(self.owner.holder)
        for project in self.send(self.owner, "GET", "/projects")["projects"]:  # of the last example
            self.send(self.owner, "DELETE", f"/projects/{project['id']}?force=true")
        self.project = self.send(self.owner, "POST", "/projects", {"name": "P"}, status=201)["id"]
        self.lines.clear()

    def send(
        self, key: Key, method: str, path: str, body: Row | None = None, status: int = 200, **headers: str
    ) -> Row:
        """The data of the answer, which must have this status."""
        headers |= {"Authorization": f"Bearer {key.client.key}"}
        url = key.client.base.removesuffix("/api/v1" * path.startswith("/mcp")) + path
        answer = key.client.session.request(method, url, json=body, headers=headers, timeout=PATIENCE)
        if method != "GET":
            self.tell(f"{key.name}: {method} {path} {body or ''} -> {answer.status_code}")
        assert answer.status_code == status, f"came {answer.status_code} {answer.text[:300]}, not {status}"
        return answer.json().get("data", answer.json())

    @initialize()
    def have_tasks(self) -> None:
        for number in (1, 4, 9):
            self.create(self.keys[number % 4], None, number)

    @rule(
        act=st.sampled_from(TICKETS), key=st.integers(0, 7), task=st.integers(0, 7), number=st.integers(0, 39)
    )
    def act(self, act: str, key: int, task: int, number: int) -> None:
        """Do something with a key and a task; the number chooses what is left to choose."""
        self.team.step += 1
        tasks = self.team.tasks
        chosen = tasks[-1 - task % len(tasks)] if tasks else None
        if chosen or act in ("create", "kill", "read", "wait"):
            getattr(self, act)(self.keys[key], chosen, number)

    def member(self, number: int) -> str | None:
        """One of the members, or nobody."""
        return [None, *self.names][number % 5]

    # Tasks

    def create(self, key: Key, _: object, number: int) -> None:
        """Create a task by one of three routes, of which one takes a status."""
        external_id, assignee = f"x{next(self.numbers)}", self.member(number)
        body = {"project_id": self.project, "title": "T", "assignee_id": assignee}
        status, refused = "todo", False
        if number % 3 == 0:
            made = self.send(key, "POST", "/tasks", body | {"external_id": external_id}, 201)
        elif number % 3 == 1:
            many = {"tasks": [body | {"external_id": external_id}]}
            (made,) = self.send(key, "POST", "/tasks/batch", many, 201)["tasks"]
        else:
            status = STATUSES[number % 4]
            refused = key.is_agent and status == "done"
            path = f"/tasks/by-external-id/{external_id}"
            made = self.send(key, "PUT", path, body | {"status": status}, 403 if refused else 201)
        if not refused:
            task = Task(made["id"], made["number"], key.holder, assignee, status, external_id=external_id)
            self.team.add(key, task)

    def change(self, key: Key, task: Task, number: int) -> None:
        """Change status, assignee or both, by one of five routes."""
        fields: Row = {"status": STATUSES[number % 4], "assignee_id": self.member(number)}
        if number // 5 % 3:
            del fields[[*fields][number % 2]]
        status, path = self.team.edit(key, task, fields), f"/tasks/{task.id}"
        match number % 7:
            case 0 | 1:
                self.send(key, "PATCH", path, fields, status)
            case 2:
                self.send(key, "PUT", path, fields, status)
            case 3 | 4:
                self.send(key, "PATCH", f"{path}/details", fields, status)
            case 5:
                body = {"project_id": self.project, "title": "T"} | fields
                self.send(key, "PUT", f"/tasks/by-external-id/{task.external_id}", body, status)
            case 6:
                given = {"task_id": task.number} | fields
                if "assignee_id" in fields:
                    given["assignee"] = self.names.get(given.pop("assignee_id"), "")
                call = {"name": "update_task", "arguments": given}
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
                answer = self.send(key, "POST", "/mcp", message)["result"]
                assert answer.get("isError", False) == (status != 200), f"came {answer}, not {status}"

    def complete(self, key: Key, task: Task, number: int) -> None:
        status = self.team.edit(key, task, {"status": "done"})
        self.send(key, ("POST", "PUT", "PATCH")[number % 3], f"/tasks/{task.id}/complete", None, status)

    def claim(self, key: Key, task: Task, number: int) -> None:
        body = {"minutes": number + 1} if number % 4 else None
        self.send(key, "POST", f"/tasks/{task.id}/claim", body, self.team.claim(key, task, body is not None))

    def end_claim(self, key: Key, task: Task, number: int) -> None:
        """Let a claim end now: it is given back soon, and a late write is refused."""
        claimed = [task for task in self.team.tasks if task.ends]
        if not claimed:
            return
        task = claimed[number % len(claimed)]
        held, began = task.version, time.monotonic()
        self.server.rows("UPDATE task SET claimed_until = ? WHERE id = ?", FAR_AWAY, task.id)
        self.tell(f"the claim of {task.number} ends")
        self.team.end_claim(task)
        found = "SELECT 1 FROM task WHERE id = ? AND claimed_until IS NULL"
        wait_until(lambda: self.server.rows(found, task.id))
        self.is_done_after("a claim's end", began)
        self.send(key, "PATCH", f"/tasks/{task.id}", {"title": "Late"}, 412, **{"If-Match": f'"{held}"'})

    def is_done_after(self, what: str, began: float) -> None:
        self.latest[what] = max(self.latest[what], time.monotonic() - began)

    def block(self, key: Key, task: Task, number: int) -> None:
        """Let an earlier task block this one, or none."""
        earlier = [other for other in self.team.tasks if other.number < task.number]
        blockers = {earlier[number % len(earlier)]} if earlier and number % 5 else set()
        body = {"blocked_by": [other.number for other in blockers]}
        self.send(key, "PATCH", f"/tasks/{task.id}/details", body, self.team.block(key, task, blockers))

    def delete(self, key: Key, task: Task, number: int) -> None:
        self.send(key, "DELETE", f"/tasks/{task.id}", status=self.team.delete(key, task))

    # Comments

    def words(self, number: int) -> tuple[set[str], str]:
        """Whom a text names, and the text."""
        named = {member for member in (self.member(number), self.member(number // 5)) if member}
        return named, " ".join([f"{next(self.numbers)}", *(f"@{self.names[one]}" for one in sorted(named))])

    def comment(self, key: Key, task: Task, number: int) -> None:
        named, text = self.words(number)
        body = {"content": text, "question": number % 3 == 0}
        status = self.team.comment(key, task, named, text, body["question"])
        made = self.send(key, "POST", f"/tasks/{task.id}/comments", body, status)
        if status == 201:
            task.comments[-1].id = made["id"]
            assert {*made["mentions"]} == named, f"{made['mentions']} are mentioned, not {named}"

    def reword(self, key: Key, task: Task, number: int) -> None:
        if task.comments:
            comment, (named, text) = task.comments[number % len(task.comments)], self.words(number)
            status = self.team.reword(key, task, comment, named, text)
            self.send(key, "PATCH", f"/tasks/{task.id}/comments/{comment.id}", {"content": text}, status)

    def take_back(self, key: Key, task: Task, number: int) -> None:
        if task.comments:
            comment = task.comments[number % len(task.comments)]
            status = self.team.take_back(key, task, comment)
            self.send(key, "DELETE", f"/tasks/{task.id}/comments/{comment.id}", status=status)

    # Inboxes

    def read(self, key: Key, _: object, number: int) -> None:
        """Mark one notice and all older ones as read."""
        notices = self.send(key, "GET", "/inbox?limit=100")["notices"]
        if notices:
            until = notices[number % len(notices)]["id"]
            self.send(key, "POST", "/inbox/read", {"until": until})
            for notice in notices:
                if notice["id"] <= until and notice["read_at"] is None:
                    del self.team.unread[key.holder, notice["task"]["id"], notice["reason"]]

    def wait(self, key: Key, _: object, number: int) -> None:
        """Let somebody wait who has read everything, and assign a task to them."""
        teller = next(other for other in self.keys if other.holder != key.holder)
        self.read(key, None, 0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self.send, key, "GET", "/inbox?wait=25")
            time.sleep(0.05)  # else the notice may be there first
            self.team.step += 1
            self.create(teller, None, 6 * (1 + [*self.names].index(key.holder)))
            began = time.monotonic()
            told = waiting.result(PATIENCE)
            assert told["unread"] == 1, f"who waits is told {told}"
        self.is_done_after("a wait's", began)

    def kill(self, *_: object) -> None:
        """Kill a worker, in whose place another one comes."""
        worker = self.server.children()[0]
        os.kill(worker, signal.SIGKILL)
        self.tell("kill -9")
        wait_until(lambda: worker not in self.server.children())

    @invariant()
    def inboxes_and_tasks_are_equal(self) -> None:
        for key in self.keys[:4]:
            page = self.send(key, "GET", "/inbox?limit=100")
            told = [one for one in page["notices"] if one["read_at"] is None]
            came = [
                ((key.holder, one["task"]["id"], one["reason"]), (one["actor"]["id"], one["excerpt"]))
                for one in told
            ]
            mine = {told: row for told, row in self.team.unread.items() if told[0] == key.holder}
            expected = {told: (row["actor"], row["excerpt"]) for told, row in mine.items()}
            assert (len(came), dict(came)) == (len(expected), expected), f"{key.name}: {came}, not {expected}"
            assert page["unread"] == len(came)
            steps = [mine[told]["step"] for told, _ in came]
            assert steps == sorted(steps, reverse=True), f"{key.name}: the newest is not on top: {steps}"
        query = f"/tasks?project_id={self.project}&sort=created_at&limit=100"
        rows = self.send(self.owner, "GET", query)["tasks"]
        ends = [{"ends": row["claimed_until"] is not None} for row in rows]
        expected = [task.shown for task in self.team.tasks]
        came = [
            {name: (row | end)[name] for name in expected[0]} for row, end in zip(rows, ends, strict=True)
        ]
        assert came == expected, f"the tasks are {came}, not {expected}"
        ready = [row["id"] for row in self.send(self.owner, "GET", f"{query}&ready=true")["tasks"]]
        expected = [task.id for task in self.team.tasks if task.is_ready]
        assert ready == expected, f"ready are {ready}, not {expected}"


def run(run: Run) -> None:
    with run.server("server", *TWO_WORKERS) as server:
        keys = team_of(server)
        explored = explore(run, lambda: TeamMachine(server, keys), most_steps=40)
        by_agents = server.rows(
            "SELECT 1 FROM activity JOIN api_key ON api_key.id = key_id"
            " WHERE scope = 'agent' AND json_extract(changes, '$.status') LIKE '%done%'"
        )
    figure = f"{explored.examples} examples, {explored.steps} steps"
    what = "notices, claims, questions, and what agents may do: as in the model"
    run.found("G20", what, figure, "always", not explored.failure)
    run.found(
        "G20", "moved to done, or out of it, with a key of scope agent", len(by_agents), "0", not by_agents
    )
    seconds = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in TeamMachine.latest.items())
    is_soon = max(TeamMachine.latest.values()) < SOON
    run.found(
        "G20", "given back, and told, at the latest after", seconds, f"{SOON:.0f} s", is_soon, is_speed=True
    )
