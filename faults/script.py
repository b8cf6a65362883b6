"""Changes of random kinds to one project, and a model of what the server has to know after them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from harness import Client


class Script:
    """Changes of random kinds to one project, and what the server has to know after them."""

    def __init__(self, client: Client, choose: Any):
        self.client, self.choose = client, choose
        self.project = client.make_project()
        self.tasks: dict[str, dict] = {}  # by id: title, status, version
        self.comments: Counter[str] = Counter()  # by task
        self.expected: Counter[tuple[str, str]] = Counter()  # events by name and task

    def next_change(self) -> tuple[Callable[[], Any], Callable[[dict], None]]:
        """A call that changes something, and what to note of its answer's data if it succeeds."""
        kinds = ["create"] if len(self.tasks) < 3 else ["create", "patch", "complete", "comment", "delete"]
        kind = self.choose.choice(kinds)
        if kind == "create":
            fields = {"project_id": self.project["id"], "title": f"T{len(self.tasks)}"}
            fields["metadata"] = {"a": "x" * self.choose.choice([0, 3_000, 20_000])}
            return lambda: self.client.post("/tasks", fields), lambda task: self.note(task, "created")
        id = self.choose.choice(list(self.tasks))
        path = f"/tasks/{id}"
        if kind == "delete":
            return lambda: self.client.delete(path), lambda _: self.forget(id)
        if kind == "comment":
            content = {"content": "x" * self.choose.choice([10, 9_000])}
            return lambda: self.client.post(f"{path}/comments", content), lambda _: self.note_comment(id)
        if kind == "complete":
            return lambda: self.client.post(f"{path}/complete"), lambda task: self.note(task, "completed")
        title = f"changed {self.choose.random()}"
        change = {"title": title, "status": self.choose.choice(["todo", "review"])}
        return lambda: self.client.patch(path, change), lambda task: self.note(task, "updated")

    def note(self, task: dict, event: str) -> None:
        before = self.tasks.get(task["id"])
        self.tasks[task["id"]] = {name: task[name] for name in ("title", "status", "version")}
        if before is None or before["version"] != task["version"]:  # else nothing has changed
            self.expected[f"task.{event}", task["id"]] += 1

    def note_comment(self, id: str) -> None:
        self.comments[id] += 1
        self.expected["comment.added", id] += 1

    def forget(self, id: str) -> None:
        del self.tasks[id], self.comments[id]
        self.expected["task.deleted", id] += 1

    def differences(self) -> list[str]:
        """In what the server differs from the model."""
        rows: list[dict] = []
        path = f"/tasks?project_id={self.project['id']}&limit=100&offset="
        while page := self.client.data(self.client.get(f"{path}{len(rows)}"))["tasks"]:
            rows += page
        stored = {row["id"]: {name: row[name] for name in ("title", "status", "version")} for row in rows}
        found = [f"task {id}: {stored.get(id)}" for id, task in self.tasks.items() if stored.get(id) != task]
        found += [f"task {id} should not be there" for id in stored.keys() - self.tasks.keys()]
        for id in self.tasks:
            count = len(self.client.data(self.client.get(f"/tasks/{id}/comments"))["comments"])
            if count != self.comments[id]:
                found.append(f"{count} comments of {id}, not {self.comments[id]}")
        stats = self.client.data(self.client.get(f"/projects/{self.project['id']}"))["stats"]
        if stats["total"] != len(self.tasks):
            found.append(f"the project counts {stats['total']} tasks of {len(self.tasks)}")
        return found
