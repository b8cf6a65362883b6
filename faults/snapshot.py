"""Read a database at one moment, and check that each change is stored with everything that belongs to it."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from harness import PATIENCE

from database import Row
from models import STATUSES

COMPARED = ("title", "status", "version", "completed_at", "updated_at")


def key_of(event: Row) -> str:
    """Return the key of the change that made this event."""
    data, kind = event["data"], event["event"]
    if kind in ("task.completed", "task.deleted"):
        return f"{kind} {data['task']['id']}"
    return data["comment"]["content"] if kind == "comment.added" else data["task"]["title"]


class Snapshot:
    """The rows of the database at one moment. A server may run meanwhile."""

    def __init__(self, path: Path):
        with closing(sqlite3.connect(path, timeout=PATIENCE)) as database:
            database.row_factory = sqlite3.Row

            def rows(sql: str) -> list[Row]:
                return [dict(row) for row in database.execute(sql)]

            database.execute("BEGIN")
            self.damage = [*rows("PRAGMA integrity_check")[0].values()] + rows("PRAGMA foreign_key_check")
            events = rows("SELECT id, body FROM event ORDER BY seq")
            self.activities = rows("SELECT request_id FROM activity WHERE entity IN ('task', 'comment')")
            self.tasks = {row["id"]: row for row in rows("SELECT * FROM task")}
            self.comments = {row["id"] for row in rows("SELECT id FROM comment")}
            self.counters = rows("SELECT * FROM task_count")
            deliveries = rows("SELECT event.id FROM delivery JOIN event ON seq = event_seq")
            self.deliveries = Counter(row["id"] for row in deliveries)
        self.bodies = {row["id"]: row["body"].encode() for row in events}
        self.events: dict[str, Row] = {id: json.loads(body) for id, body in self.bodies.items()}
        self.keys = Counter(map(key_of, self.events.values()))

    def problems(self, webhooks: int) -> Iterator[str]:
        """Yield each damage and each change stored in part. Each event has `webhooks` deliveries."""
        if self.damage != ["ok"]:
            yield f"integrity_check and foreign_key_check say {self.damage}"
        noted = Counter(row["request_id"] for row in self.activities)
        announced = Counter(event["request_id"] for event in self.events.values())
        for request in noted.keys() | announced.keys():
            if (noted[request], announced[request]) != (1, 1):
                yield f"{request} has {noted[request]} activities and {announced[request]} events"
        for id in self.events:
            if self.deliveries[id] != webhooks:
                yield f"{id} has {self.deliveries[id]} deliveries to {webhooks} webhooks"
        yield from self._problems_of_rows()
        counted = Counter((task["project_id"], task["status"]) for task in self.tasks.values())
        stored = Counter({(row["project_id"], name): row[name] for row in self.counters for name in STATUSES})
        if counted != stored:
            yield f"the counters are {stored}; there are {counted}"

    def _problems_of_rows(self) -> Iterator[str]:
        """Yield each task or comment that differs from its events."""
        tasks: dict[str, Row] = {}
        comments: dict[str, str] = {}  # their tasks
        for event in self.events.values():
            task = event["data"]["task"]
            if event["event"] == "task.deleted":
                tasks.pop(task["id"], None)
            elif event["event"] == "comment.added":
                comments[event["data"]["comment"]["id"]] = task["id"]
            else:
                tasks[task["id"]] = task
        for id in tasks.keys() | self.tasks.keys():
            told, stored = ([rows.get(id, {}).get(name) for name in COMPARED] for rows in (tasks, self.tasks))
            if told != stored:
                yield f"the task {id} is {stored}, and its last event says {told}"
        if {id for id, task in comments.items() if task in tasks} != self.comments:
            yield "the comments differ from the events"
