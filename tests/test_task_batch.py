"""The same changes to several tasks, all or none: PATCH /tasks/batch."""

import pytest
from harness import NOBODY, add_copies, fault

NEEDS_SOCKET = False


@pytest.fixture
def tasks(owner, project):
    return [owner.make_task(project, title=title) for title in "abc"]


def change(client, tasks, changes, **more):
    return client.patch("/tasks/batch", {"tasks": tasks, "changes": changes, **more})


def test_several_tasks_are_changed_alike_each_with_its_own_events(server, owner, project, tasks):
    a, b, c = tasks
    owner.data(owner.post(f"/tasks/{c['id']}/complete"))
    before = server.rows("SELECT max(seq) AS seq FROM event")[0]["seq"]
    changes = {"status": "done", "labels": ["batch"], "title": "Ü"}
    versions = {str(a["number"]): 1, b["id"]: 1}
    changed = owner.data(change(owner, [a["number"], b["id"], c["id"]], changes, versions=versions))["tasks"]
    numbers = [(task["number"], task["version"]) for task in changed]
    assert numbers == [(a["number"], 2), (b["number"], 2), (c["number"], 3)]
    assert {(task["status"], task["title"], *task["labels"]) for task in changed} == {("done", "Ü", "batch")}
    found = owner.read("/tasks", q="ü", project_id=project["id"])["tasks"]
    assert sorted(found, key=lambda task: task["number"]) == changed
    events = server.rows("SELECT name FROM event WHERE seq > ? ORDER BY seq", before)
    assert [event["name"] for event in events] == ["task.updated", "task.completed"] * 2 + ["task.updated"]


def test_none_is_changed_where_one_cannot_be(owner, project, tasks, milestone):
    numbers = [task["number"] for task in tasks]
    answer = change(owner, numbers, {"priority": "low"}, versions={str(numbers[1]): 7})
    error = fault(answer, 412, "precondition_failed")
    assert f"version is 1 (#{numbers[1]})" in error["message"]
    other = owner.make_project()
    moved = owner.data(owner.patch(f"/tasks/{tasks[2]['id']}/details", {"project_id": other["id"]}))
    answer = change(owner, numbers, {"milestone_id": milestone["id"]})
    fault(answer, 422, "validation_error", "tasks[2].milestone_id")
    for task in (*tasks[:2], moved):
        assert owner.read(f"/tasks/{task['id']}")["version"] == task["version"]


def test_tasks_of_over_4_mib_are_not_changed_together(server, owner, project):
    ids = add_copies(server, owner.make_task(project, description="\U0001f600" * 50_000), 21)
    assert len(owner.data(change(owner, ids[:20], {"priority": "low"}))["tasks"]) == 20
    error = fault(change(owner, ids, {"priority": "high"}), 422, "validation_error", "tasks")
    assert "4 MiB" in error["message"]


def test_a_batch_without_tasks_or_changes_is_refused(owner, tasks):
    numbers = [task["number"] for task in tasks]
    for body, field in (
        ({"tasks": [], "changes": {}}, "tasks"),
        ({"tasks": [numbers[0]] * 101, "changes": {}}, "tasks"),
        ({"tasks": [numbers[0], tasks[0]["id"]], "changes": {}}, "tasks"),
        ({"tasks": [numbers[0], NOBODY], "changes": {}}, "tasks.1"),
        ({"tasks": ["x"], "changes": {}}, "tasks.0"),
        ({"tasks": numbers}, "changes"),
        ({"tasks": numbers, "changes": {"after": None}}, "changes.after"),
        ({"tasks": numbers, "changes": {}, "versions": {"7000000": 1}}, "versions"),
        ({"tasks": numbers, "changes": {}, "versions": [1]}, "versions"),
        ({"tasks": numbers, "changes": {}, "versions": {"1": "x"}}, "versions.1.value"),
    ):
        fault(owner.patch("/tasks/batch", body), 422, "validation_error", field)
