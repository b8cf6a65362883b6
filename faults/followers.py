"""Programs that keep a copy of the workspace by `GET /changes`, beside writers, kills, stops and restores.

They are the program of docs/api.md: one waits for each change, another comes now and then. When the writers
rest, each has what the API lists.
"""

import os
import signal
import threading
import time
from collections import Counter

import requests
from connections import TWO_WORKERS
from findings import Run
from harness import Server
from test_changes import Mirror, Writer, differences, listed

WRITERS = 6
WAYS = {"a worker": 4, "everything": 2, "SIGTERM": 1, "a restore": 2}  # what happens, and how often


class Following:
    """A server, and two programs that follow it."""

    def __init__(self, server: Server, run: Run):
        self.server, self.run, self.count = server, run, Counter[str]()
        server.port = int(server.base.rpartition(":")[2])  # also when it is started again
        self.mirrors = [Mirror(server, server.client().key) for _ in range(2)]
        self.is_over = threading.Event()
        self.problems: list[str] = []

    def write(self) -> None:
        """Write until the round is over; where a request fails, begin again with a project of one's own."""
        while not self.is_over.is_set():
            try:
                client = self.server.client()
                members = [row["id"] for row in client.data(client.get("/members"))["members"]]
                writer = Writer(client, self.run.random.random(), members)
                while not self.is_over.is_set():
                    writer.step()
                    self.count["steps"] += 1
            except requests.RequestException:  # what a kill or restore took away must not be named any more
                self.is_over.wait(0.05)
            except AssertionError as wrong:
                self.problems.append(f"a writer was answered otherwise than it must be: {wrong!r:.500}")

    def wait(self) -> None:
        while not self.is_over.is_set():
            self.mirrors[0].follow(wait=1)

    def round(self) -> None:
        """Let something happen amid the writes, and then compare both mirrors with what the API lists."""
        self.is_over.clear()
        jobs = [threading.Thread(target=job) for job in (self.wait, *[self.write] * WRITERS)]
        for job in jobs:
            job.start()
        try:
            self.happen(self.run.random.choices([*WAYS], [*WAYS.values()])[0])
            time.sleep(self.run.random.uniform(0.1, 0.5))
        finally:
            self.is_over.set()
            for job in jobs:
                job.join()
        owner = self.server.client()
        rows = listed(self.server, owner)
        for mirror in self.mirrors:
            self.problems += differences(mirror.follow(), rows)
        self.count.update(rounds=1, rows=len(rows))
        for project in owner.data(owner.get("/projects"))["projects"]:
            owner.data(owner.delete(f"/projects/{project['id']}?force=true"))

    def happen(self, way: str) -> None:
        backup = self.server.folder / f"{self.count['rounds']}.db"
        time.sleep(self.run.random.uniform(0.1, 0.5))
        assert self.server.flask("backup", str(backup)).returncode == 0
        self.mirrors[1].follow()
        self.count[way] += 1
        if way == "a worker":
            os.kill(self.run.random.choice(self.server.children()), signal.SIGKILL)
            return
        if way == "everything":
            self.server.kill()
        else:
            assert self.server.stop() == 0
        if way == "a restore":
            assert self.server.flask("restore", str(backup)).returncode == 0
        self.server.start(*TWO_WORKERS)


def run(run: Run) -> None:
    with run.server("server", *TWO_WORKERS) as server:
        following = Following(server, run)
        for _ in run.rounds(100):
            following.round()
    count, problems = following.count, following.problems
    for problem in problems[:20]:
        run.fault(problem)
    ways = ", ".join(f"{way} {count[way]}" for way in WAYS)
    what = f"two mirrors that follow /changes, after {count['rounds']} rounds ({ways}): as the API lists it"
    run.found("G21", what, f"{count['rows']} rows, {count['steps']} steps", "always", not problems)
