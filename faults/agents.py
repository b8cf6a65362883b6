"""Two agents work through a backlog with their tools, and a person follows only her inbox.

Meanwhile workers and the whole server are killed. The agents ask questions, hang while they hold a task, and
lose responses. The person answers, rejects some of the work, and completes the rest.
"""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import requests
from connections import TWO_WORKERS
from findings import Run
from harness import PATIENCE, Client, Server, wait_until

JOBS, KILLS = 120, 12
PAUSE = 1.7  # seconds between two kills, on average
# The rest has to be done within this many seconds after the last kill.
REST = 40.0
# A claim that no agent knows of is ended after this many seconds.
LOST_AFTER = 3.0
LONG_AGO = "2026-01-01T00:00:00.000Z"


class Backlog:
    """A server, its tasks, the agents and the person who do them, and the problems that were seen."""

    def __init__(self, server: Server, jobs: int, random: Random):
        self.server, self.random = server, random
        add = partial(server.flask, "member", "add")
        self.ana = server.client(add("Ana").stdout.strip())
        bots = [server.client(add(name, "--agent").stdout.strip()) for name in ("Bo", "Cy")]
        project = self.ana.make_project()
        for _ in range(jobs):
            self.ana.make_task(project, title="Job")
        self.held: dict[str, Any] = {bot.key: None for bot in bots}  # the task that an agent works on
        # The agent that hung, and the number and version of the task that it held.
        self.hung: list[tuple[Client, int, int]] = []
        self.problems: list[str] = []
        self.is_over = threading.Event()
        steps = [
            (self.follow,),
            (self.end_lost,),
            *((self.work, bot, Random(random.random())) for bot in bots),
        ]
        self.threads = [threading.Thread(target=self.go_on, args=each) for each in steps]

    def go_on(self, step: Any, *arguments: Any) -> None:
        """Do a step again and again, also after a connection breaks."""
        while not self.is_over.is_set():
            with suppress(requests.RequestException):
                step(*arguments)

    def ask(self, client: Client, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request on a new connection, and return the status and the JSON.

        Connections end with the server, and its address changes with each start.
        """
        headers |= {"Authorization": f"Bearer {client.key}"}
        answer = requests.request(
            method, self.server.base + path, json=body, headers=headers, timeout=PATIENCE
        )
        if answer.status_code >= 500:
            self.problems.append(f"{method} {path} was answered {answer.status_code}: {answer.text[:300]}")
        return answer.status_code, answer.json()

    def use(self, bot: Client, name: str, **arguments: Any) -> Any:
        """Call a tool and return its result, or an empty dict if it refuses."""
        call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        call["params"] = {"name": name, "arguments": arguments}
        result = self.ask(bot, "POST", "/mcp", call)[1]["result"]
        return {} if result.get("isError") else json.loads(result["content"][0]["text"])

    def work(self, bot: Client, random: Random) -> None:
        """Claim a task, then ask a question, complete it, or hang. Wait if no task is ready."""
        task = self.held[bot.key] or self.use(bot, "claim_task", minutes=5)
        if not task:
            self.ask(bot, "GET", "/api/v1/tasks?ready=true&wait=2")
            return
        number = task["number"]
        # The agent holds the task even if the connection breaks now.
        self.held[bot.key] = task
        time.sleep(random.uniform(0, 0.25))
        if number % 5 == 0 and not task.get("comments"):
            self.use(bot, "add_comment", task_id=number, content="Which colour?", question=True)
            self.use(bot, "update_task", task_id=number, status="todo")
        elif random.random() < 0.1:
            self.hung.append((bot, number, task["version"]))
        else:
            self.use(bot, "complete_task", task_id=number, comment="Result")
        self.held[bot.key] = None

    def end_lost(self) -> None:
        """End the claims of agents that hang or that never received the response."""
        self.is_over.wait(0.3)
        held = {task["number"] for task in self.held.values() if task}
        before = time.strftime("%FT%T.999Z", time.gmtime(time.time() - LOST_AFTER))
        claimed = "SELECT number FROM task WHERE claimed_until > ? AND updated_at < ?"
        for row in self.server.rows(claimed, LONG_AGO, before):
            if row["number"] not in held:
                ending = "UPDATE task SET claimed_until = ? WHERE number = ? AND updated_at < ?"
                self.server.rows(ending, LONG_AGO, row["number"], before)

    def follow(self) -> None:
        """Act on each entry of the inbox, oldest first, and then mark it as read."""
        status, answer = self.ask(self.ana, "GET", "/api/v1/inbox?limit=100&wait=2")
        told = [one for one in answer["data"]["notices"] if not one["read_at"]] if status == 200 else []
        for notice in reversed(told):
            number, path = notice["task"]["number"], f"/api/v1/tasks/{notice['task']['id']}"
            once = {"Idempotency-Key": notice["id"]}
            if notice["reason"] == "question":
                self.ask(self.ana, "POST", f"{path}/comments", {"content": "Blue"}, **once)
            elif notice["reason"] == "review":
                task = self.ask(self.ana, "GET", path)[1]["data"]
                if number % 7 or task["version"] > 4:
                    self.ask(self.ana, "POST", f"{path}/complete")
                else:
                    same = {"If-Match": f'"{task["version"]}"'}
                    refused = {"status": "todo", "assignee_id": None}
                    self.ask(self.ana, "PATCH", f"{path}/details", refused, **same)
        if told:
            self.ask(self.ana, "POST", "/api/v1/inbox/read", {"until": told[0]["id"]})

    def rage(self, kills: int) -> None:
        """Kill a worker or everything `kills` times, and wait until all tasks are done."""
        for thread in self.threads:
            thread.start()
        try:
            for kill in range(kills):
                time.sleep(self.random.uniform(0.5, 1.5) * PAUSE)
                if kill % 4:
                    os.kill(self.random.choice(wait_until(self.server.children)), signal.SIGKILL)
                else:
                    self.server.kill()
                    self.server.start(*TWO_WORKERS)
            is_open = "SELECT 1 FROM task WHERE status != 'done' LIMIT 1"
            wait_until(lambda: not self.server.rows(is_open), REST)
        finally:
            self.is_over.set()
            for thread in self.threads:
                thread.join()

    def done_twice(self) -> Iterator[str]:
        """Yield a line for each activity that no order of these steps explains."""
        status: dict[str, str] = {}
        holder: dict[str, str] = {}
        counts: Counter[tuple[str, str]] = Counter()
        moves = "SELECT task_id AS task, actor_id AS actor, changes FROM activity WHERE action = 'moved'"
        for move in self.server.rows(f"{moves} ORDER BY id"):
            task, (old, new) = move["task"], json.loads(move["changes"])["status"]
            counts[task, new] += 1
            if old != status.get(task, "todo"):
                yield f"{task} was moved from {old}, and was {status.get(task)}"
            if old == "in_progress" and holder[task] != move["actor"]:
                yield f"{task} was moved to {new} by a member who did not hold it"
            status[task], holder[task] = new, move["actor"]
        said = "SELECT task_id AS task, content, count(*) AS many FROM comment GROUP BY 1, 2"
        for row in self.server.rows(said):
            task, limit = row["task"], {"Result": "review"}.get(row["content"])
            if row["many"] > (counts[row["task"], limit] if limit else 1):
                yield f"{task}: {row['content']!r} was written {row['many']} times"
        yield from (
            f"{task} was completed {n} times" for (task, new), n in counts.items() if new == "done" and n > 1
        )


def run(run: Run) -> None:
    jobs, kills = max(20, run.count(JOBS)), max(2, run.count(KILLS))
    with run.server("server", *TWO_WORKERS) as server:
        backlog, began = Backlog(server, jobs, run.random), time.monotonic()
        try:
            backlog.rage(kills)
        except AssertionError:
            left = server.rows("SELECT number, status, question_id FROM task WHERE status != 'done'")
            run.fault(f"not done: {left}")
        took = time.monotonic() - began
        problems = [*backlog.problems, *backlog.done_twice()]
        for bot, number, version in backlog.hung:
            late = {"If-Match": f'"{version}"'}
            status, _ = backlog.ask(bot, "PATCH", f"/api/v1/tasks/{number}", {"title": "Late"}, **late)
            problems += [f"a late write to #{number} was answered {status}"] if status != 412 else []
        for problem in problems[:20]:
            run.fault(problem)
        (done,) = server.rows("SELECT count(*) AS many FROM task WHERE status = 'done'")
        ends = server.rows("SELECT 1 FROM activity WHERE action = 'moved' AND key_id IS NULL")
        asked = server.rows("SELECT 1 FROM comment WHERE content LIKE 'Which%'")
    what = f"jobs of {jobs} that two agents and an inbox have done, in {kills} kills and {took:.0f} s"
    run.found("G20", what, done["many"], f"{jobs}", done["many"] == jobs)
    what = f"done twice, or by two, with {len(ends)} claims ended and {len(asked)} questions"
    run.found("G20", what, len(problems), "0", not problems)
