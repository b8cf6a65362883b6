"""What a database holds at one moment, and whether it is whole: each change with all that belongs to it."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

from harness import PATIENCE, Server

from database import Row
from models import STATUSES


def key_of(event: Row) -> str:
    """The key of the write that made this event."""
    data, kind = event["data"], event["event"]
    if kind in ("task.completed", "task.deleted"):
        return f"{kind} {data['task']['id']}"
    if kind == "comment.added":
        return data["comment"]["content"]
    return next(iter(data["changes"].values()))[1] if kind == "task.updated" else data["task"]["title"]


class Snapshot:
    """What the database holds at one moment, while a server serves it."""

    def __init__(self, server: Server):
        with closing(sqlite3.connect(server.database, timeout=PATIENCE)) as database:
            database.row_factory = sqlite3.Row

            def rows(sql: str) -> list[Row]:
                return [dict(row) for row in database.execute(sql)]

            database.execute("BEGIN")
            self.integrity = [*rows("PRAGMA integrity_check")[0].values()] + rows("PRAGMA foreign_key_check")
            events = rows("SELECT id, body FROM event ORDER BY seq")
            self.activities = rows("SELECT * FROM activity WHERE entity IN ('task', 'comment')")
            self.tasks = {row["id"]: row for row in rows("SELECT * FROM task")}
            self.comments = {row["id"]: row["content"] for row in rows("SELECT * FROM comment")}
            self.counters = rows("SELECT * FROM task_count")
            self.deliveries: dict[str, list[str]] = defaultdict(list)
            for row in rows("SELECT e.id AS event, d.id FROM delivery d JOIN event e ON e.seq = event_seq"):
                self.deliveries[row["event"]].append(row["id"])
        self.bodies = {row["id"]: row["body"].encode() for row in events}
        self.events: dict[str, Row] = {id: json.loads(body) for id, body in self.bodies.items()}
        self.keys = Counter(map(key_of, self.events.values()))

    def seconds_between(self, first: str, second: str) -> float:
        moments = [datetime.fromisoformat(self.events[id]["timestamp"]) for id in (first, second)]
        return (moments[1] - moments[0]).total_seconds()

    def problems(self, webhooks: int) -> Iterator[str]:
        """What is damaged or half done, with so many webhooks."""
        if self.integrity != ["ok"]:
            yield f"integrity_check and foreign_key_check say {self.integrity}"
        noted = Counter(row["request_id"] for row in self.activities)
        announced = Counter(event["request_id"] for event in self.events.values())
        for request in noted.keys() | announced.keys():
            if (noted[request], announced[request]) != (1, 1):
                yield f"{request} has {noted[request]} activities and {announced[request]} events"
        for id in self.events:
            if len(self.deliveries[id]) != webhooks:
                yield f"{id} has {len(self.deliveries[id])} deliveries to {webhooks} webhooks"
        yield from self._problems_of_rows()
        yield from self._problems_of_counters()

    def _problems_of_rows(self) -> Iterator[str]:
        """Where the tasks and comments are not what the events make of them."""
        tasks: dict[str, Row] = {}
        comments: dict[str, tuple[str, str]] = {}
        for event in self.events.values():
            task = event["data"]["task"]
            if event["event"] in ("task.created", "task.updated", "task.completed"):
                if task["version"] != tasks.get(task["id"], {"version": 0})["version"] + 1:
                    yield f"{event['id']}: a change is missing before version {task['version']}"
                tasks[task["id"]] = task
            elif event["event"] == "task.deleted":
                tasks.pop(task["id"], None)
            else:
                comment = event["data"]["comment"]
                comments[comment["id"]] = comment["content"], task["id"]
        names = ("title", "description", "status", "version", "completed_at", "updated_at", "milestone_id")
        for id in tasks.keys() | self.tasks.keys():
            told, stored = ([rows.get(id, {}).get(name) for name in names] for rows in (tasks, self.tasks))
            if told != stored:
                yield f"the task {id} is {stored}, and its last event tells {told}"
        if {id: text for id, (text, task) in comments.items() if task in tasks} != self.comments:
            yield "the comments are not those of the events"

    def _problems_of_counters(self) -> Iterator[str]:
        counted = Counter((task["project_id"], task["status"]) for task in self.tasks.values())
        stored = {(row["project_id"], name): row[name] for row in self.counters for name in STATUSES}
        for place in counted.keys() | stored.keys():
            if counted[place] != stored.get(place, 0):
                yield f"the counter {place} is {stored.get(place, 0)}; there are {counted[place]}"
