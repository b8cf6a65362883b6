"""Following the changes of tasks by a cursor: none is missed, and none told twice."""

import time

from harness import fault

from lists import task_page
from members import Member
from models import Project, Task, write

NEEDS_SOCKET = False


def test_a_cursor_takes_the_order_of_changes_and_no_offset(owner, task):
    after = owner.read("/tasks", sort="updated_at", limit=1)["pagination"]["next_after"]
    for query in ({}, {"sort": "-updated_at"}, {"sort": "updated_at", "offset": 1}):
        fault(owner.get("/tasks", after=after, **query), 422, "validation_error", "after")
    for wrong in ("", "x", after[:-1], after.replace("T", " "), f"2026-13-41{after[10:]}"):
        assert owner.get("/tasks", after=wrong, sort="updated_at").status_code in (200, 422), wrong
    assert owner.read("/tasks")["pagination"]["next_after"] is None


def test_changes_of_one_millisecond_are_all_told(database, monkeypatch):
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        fields = {"project_id": Project.add(transaction, name="P")["id"], "title": "T"}
        older, newer = (Task.add(transaction, **fields) for _ in range(2))
    frozen, after = time.time_ns(), None
    monkeypatch.setattr("times.time_ns", lambda: frozen)
    for task in (newer, older):  # its id is smaller than the cursor's
        with write(owner) as transaction:
            changed, _ = Task.edit(transaction, task["id"], {"title": "Changed"}, None)
        page = task_page(limit=100, offset=0, sort="updated_at", **({"after": after} if after else {}))
        assert page["tasks"][-1] == changed
        after = (*page["pagination"]["next_after"].split("_"), None)
