"""What a team is told, claims that end, questions, and keys of agents, compared with a model (`team.py`).

After every step the inbox of every member, all tasks, and those that are ready are compared.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from typing import Any

from connections import TWO_WORKERS
from findings import Run
from harness import PATIENCE, Server, wait_until
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from machines import Machine, explore
from task_lists import STATUSES
from team import Comment, Key, Members, Row, Task, Team

NAMES = {"Olga Owner": "write", "Ana": "write", "Ben": "write", "Bot": "agent"}  # and their keys' scopes
# One rule does all of them, since hypothesis leaves rules out; the number of tickets is an action's share.
TICKETS = ["create"] * 4 + ["change"] * 12 + ["complete"] * 4 + ["claim"] * 12 + ["comment"] * 14
TICKETS += ["reword"] * 6 + ["take_back"] * 3 + ["block"] * 5 + ["delete"] * 2 + ["read"] * 3
TICKETS += ["end_claim"] * 5 + ["wait"] * 2 + ["kill"]
NEED_NO_TASK = ("create", "read", "wait", "kill")
COMPARED = ("id", "assignee_id", "status", "version", "question_id")
LONG_AGO = "2026-01-01T00:00:00.000Z"  # when claims have ended that are to end now


def keys_of(server: Server) -> list[Key]:
    """Two keys each of the owner and of three more members."""
    owner, keys = server.client(), list[Key]()
    holders = [owner.data(owner.get("/me"))["member"]["id"]]
    for name in [*NAMES][1:]:
        body = {"email": f"{name}@example.com", "full_name": name, "role": "member"}
        link = owner.data(owner.post("/members/invite", body), 201)["enrollment_link"]
        joined = server.client(None).post(f"/enroll/{link.rpartition('/')[2]}")
        holders.append(owner.data(joined, 201)["member"]["id"])
    for number, (holder, (name, scope)) in product((1, 2), zip(holders, NAMES.items(), strict=True)):
        made = {"name": f"{name} {number}", "scope": scope, "member_id": holder}
        text = owner.data(owner.post("/keys", made), 201)["api_key"]
        keys.append(Key(made["name"], holder, server.client(text), scope == "agent"))
    return keys


class TeamMachine(Machine):
    """Four members with two keys each work on the tasks of one project, in either of two workers."""

    ends, waits = [0.0], [0.0]  # seconds until a claim was given back, and until who waits was told
    numbers = count(1)  # so that texts differ

    def __init__(self, server: Server, keys: list[Key]):
        super().__init__()
        self.server, self.keys, self.owner = server, keys, keys[0]
        self.names = {key.holder: name for key, name in zip(keys, NAMES, strict=False)}
        self.team = Team(self.owner.holder)
        for project in self.send(self.owner, "GET", "/projects")["projects"]:  # of the last example
            self.send(self.owner, "DELETE", f"/projects/{project['id']}?force=true")
        self.project = self.send(self.owner, "POST", "/projects", {"name": "P"}, 201)["id"]
        self.lines.clear()

    def send(
        self, key: Key, method: str, path: str, body: Any = None, status: int = 200, **headers: str
    ) -> Row:
        """The data of the answer, which must have this status."""
        headers |= {"Authorization": f"Bearer {key.client.key}"}
        url, session = key.client.base + path, key.client.session
        answer = session.request(method, url, json=body, headers=headers, timeout=PATIENCE)
        if method != "GET":
            self.tell(f"{key.name}: {method} {path} {body or ''} -> {answer.status_code}")
        assert answer.status_code == status, f"came {answer.status_code} {answer.text[:300]}, not {status}"
        return answer.json().get("data", {})

    @initialize()
    def have_tasks(self) -> None:
        for number in (1, 3, 9):
            self.create(self.keys[number % 4], None, number)

    @rule(
        act=st.sampled_from(TICKETS), key=st.integers(0, 7), task=st.integers(0, 7), number=st.integers(0, 79)
    )
    def act(self, act: str, key: int, task: int, number: int) -> None:
        """Do something with a key and a task; the number chooses what is left to choose."""
        self.team.step += 1
        chosen = self.team.tasks[-1 - task % len(self.team.tasks)] if self.team.tasks else None
        if chosen or act in NEED_NO_TASK:
            getattr(self, act)(self.keys[key], chosen, number)

    def member(self, number: int) -> str | None:
        """One of the members, or nobody."""
        return [None, *self.names][number % 5]

    def create(self, key: Key, _: object, number: int) -> None:
        external_id, assignee = f"x{next(self.numbers)}", self.member(number)
        body = {"title": "T", "external_id": external_id, "assignee_id": assignee}
        made = self.send(key, "POST", "/tasks", body | {"project_id": self.project}, 201)
        self.team.add(key, Task(made["id"], made["number"], external_id, key.holder, assignee))

    def change(self, key: Key, task: Task, number: int) -> None:
        """Change status, assignee or both, by one of four routes."""
        fields: Row = {"status": STATUSES[number // 5 % 4], "assignee_id": self.member(number)}
        if number % 3:
            del fields[[*fields][number % 2]]
        status, path = self.team.edit(key, task, fields), f"/tasks/{task.id}"
        match number % 7:
            case 0 | 1:
                path, fields = f"/tasks/by-external-id/{task.external_id}", {"title": "T"} | fields
                self.send(key, "PUT", path, fields | {"project_id": self.project}, status)
            case 2 | 3 | 4:
                self.send(key, "PATCH", f"{path}/details", fields, status)
            case _:
                self.send(key, ("PATCH", "PUT")[number % 2], path, fields, status)

    def complete(self, key: Key, task: Task, number: int) -> None:
        status = self.team.edit(key, task, {"status": "done"})
        self.send(key, ("POST", "PUT", "PATCH")[number % 3], f"/tasks/{task.id}/complete", None, status)

    def claim(self, key: Key, task: Task, number: int) -> None:
        body = {"minutes": number + 1} if number % 4 else None
        self.send(key, "POST", f"/tasks/{task.id}/claim", body, self.team.claim(key, task, body is not None))

    def end_claim(self, key: Key, task: Task, number: int) -> None:
        """Let a claim end now: it is given back soon, and a late write is refused."""
        self.claim(key, task, 1)
        if claimed := [task for task in self.team.tasks if task.ends]:
            task = claimed[number % len(claimed)]
            late, began = {"If-Match": f'"{task.version}"'}, time.monotonic()
            self.server.rows("UPDATE task SET claimed_until = ? WHERE id = ?", LONG_AGO, task.id)
            self.tell(f"the claim of {task.number} ends")
            self.team.end_claim(task)
            is_over = "SELECT 1 FROM task WHERE id = ? AND claimed_until IS NULL"
            wait_until(lambda: self.server.rows(is_over, task.id))
            self.ends.append(time.monotonic() - began)
            self.send(key, "PATCH", f"/tasks/{task.id}", {"title": "Late"}, 412, **late)

    def block(self, key: Key, task: Task, number: int) -> None:
        """Let an earlier task block this one, or none."""
        earlier = [other for other in self.team.tasks if other.number < task.number]
        blockers = {earlier[number % len(earlier)]} if earlier and number % 5 else set[Task]()
        body = {"blocked_by": [other.number for other in blockers]}
        self.send(key, "PATCH", f"/tasks/{task.id}/details", body, self.team.block(key, task, blockers))

    def delete(self, key: Key, task: Task, _: int) -> None:
        self.send(key, "DELETE", f"/tasks/{task.id}", status=self.team.delete(key, task))

    def words(self, number: int) -> tuple[Members, str]:
        """Whom a text names, and the text."""
        named = {member for member in (self.member(number), self.member(number // 5)) if member}
        return named, " ".join([f"{next(self.numbers)}", *(f"@{self.names[one]}" for one in sorted(named))])

    def comment(self, key: Key, task: Task, number: int) -> None:
        named, text = self.words(number)
        asks = number % 3 == 0
        status = self.team.comment(key, task, named, text, asks)
        made = self.send(
            key, "POST", f"/tasks/{task.id}/comments", {"content": text, "question": asks}, status
        )
        if status == 201:
            task.comments[-1].id = made["id"]

    def said(self, key: Key, task: Task, number: int) -> Comment:
        """One of the task's comments, if possible one of the same member."""
        own = [one for one in task.comments if one.key.holder == key.holder] or task.comments
        return own[-1 - number % len(own)]

    def reword(self, key: Key, task: Task, number: int) -> None:
        if task.comments:
            comment, (named, text) = self.said(key, task, number), self.words(number)
            status = self.team.reword(key, task, comment, named, text)
            self.send(key, "PATCH", f"/tasks/{task.id}/comments/{comment.id}", {"content": text}, status)

    def take_back(self, key: Key, task: Task, number: int) -> None:
        if task.comments:
            comment = self.said(key, task, number)
            status = self.team.take_back(key, task, comment)
            self.send(key, "DELETE", f"/tasks/{task.id}/comments/{comment.id}", status=status)

    def read(self, key: Key, _: object, number: int) -> None:
        """Mark one notice and all older ones as read."""
        if notices := self.send(key, "GET", "/inbox?limit=100")["notices"]:
            until = notices[number % len(notices)]["id"]
            self.send(key, "POST", "/inbox/read", {"until": until})
            for one in notices:
                if one["id"] <= until and one["read_at"] is None:
                    del self.team.unread[key.holder, one["task"]["id"], one["reason"]]

    def wait(self, key: Key, _: object, number: int) -> None:
        """Let somebody wait who has read everything, and assign a task to that member."""
        self.read(key, None, 0)
        teller, place = self.keys[self.keys[0].holder == key.holder], [None, *self.names].index(key.holder)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self.send, key, "GET", "/inbox?wait=25")
            time.sleep(0.05)  # else the notice may be there first
            self.create(teller, None, place)
            began = time.monotonic()
            told = waiting.result(PATIENCE)
        assert told["unread"] == 1, f"who waits is told {told}"
        self.waits.append(time.monotonic() - began)

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
            came = [
                (one["task"]["id"], one["reason"], one["actor"]["id"], one["excerpt"])
                for one in page["notices"]
                if one["read_at"] is None
            ]
            mine = [(*told[1:], *row) for told, row in self.team.unread.items() if told[0] == key.holder]
            told = {row[:-1]: row[-1] for row in mine}
            assert sorted(came) == sorted(told), f"{self.names[key.holder]} is told {came}, not {[*told]}"
            steps = [told[row] for row in came]
            assert steps == sorted(steps, reverse=True), f"the newest is not on top: {came}"
            assert page["unread"] == len(came)
        query = f"/tasks?project_id={self.project}&sort=created_at&limit=100"
        shown = [
            [*(row[name] for name in COMPARED), row["claimed_until"] is not None]
            for row in self.send(self.owner, "GET", query)["tasks"]
        ]
        expected = [task.shown for task in self.team.tasks]
        assert shown == expected, f"the tasks are {shown}, not {expected}"
        ready = [row["id"] for row in self.send(self.owner, "GET", f"{query}&ready=true")["tasks"]]
        assert ready == [task.id for task in self.team.tasks if task.is_ready], f"ready are {ready}"


def run(run: Run) -> None:
    with run.server("server", *TWO_WORKERS) as server:
        keys = keys_of(server)
        explored = explore(run, lambda: TeamMachine(server, keys), most_steps=40)
        with_agents_keys = "FROM activity JOIN api_key ON api_key.id = key_id WHERE scope = 'agent'"
        moved = server.rows(
            f"SELECT 1 {with_agents_keys} AND json_extract(changes, '$.status') LIKE '%done%'"
        )
    figure = f"{explored.examples} examples, {explored.steps} steps"
    what = "notices, claims, questions, and what agents may do: as in the model"
    run.found("G20", what, figure, "always", not explored.failure)
    run.found("G20", "moved to or out of done with an agent's key", len(moved), "0", not moved)
    ends, waits = max(TeamMachine.ends), max(TeamMachine.waits)
    what = (
        f"the latest of {len(TeamMachine.ends) - 1} ends of claims, and of {len(TeamMachine.waits) - 1} waits"
    )
    run.found("G20", what, f"{ends:.2f} s, {waits:.2f} s", "2 s, 2 s", max(ends, waits) < 2, is_speed=True)
