"""The same changes to several tasks, all or none: PATCH /tasks/batch."""

import pytest
from harness import NOBODY, add_copies, check_new_events, fault, last_event

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


def test_responses_and_events_show_the_tasks_as_they_are_after_the_whole_batch(server, owner, project):
    blocker = owner.make_task(project, title="Old")
    tasks = [owner.make_task(project, blocked_by=[blocker["number"]]) for _ in range(2)]
    numbers = [tasks[0]["number"], blocker["number"], tasks[1]["number"]]
    for changes, blocking in (
        ({"title": "New"}, ["New"]),
        ({"status": "done"}, []),
        ({"status": "todo", "title": "Newer"}, ["Newer"]),
    ):
        before = last_event(server)
        shown = owner.data(change(owner, numbers, changes))["tasks"]
        assert [[one["title"] for one in task["blocked_by"]] for task in shown] == [blocking, [], blocking]
        now = check_new_events(server, owner, [project], before)
        assert shown == [now[task["id"]] for task in shown]


def test_a_batch_that_completes_tasks_which_repeat_shows_the_ranks_that_it_leaves(server, owner, project):
    rule = {"due_date": "2030-01-01", "repeat": "FREQ=WEEKLY"}
    tasks = [owner.make_task(project, **rule) for _ in range(2)]
    # Between these ranks is none of 40 digits, so the tasks after the first one get shorter ranks.
    rank = tasks[0]["rank"] + "0" * 29 + "1"
    server.rows("UPDATE task SET rank = ? WHERE id = ?", rank, tasks[1]["id"])
    before = last_event(server)
    shown = owner.data(change(owner, [task["id"] for task in tasks[::-1]], {"status": "done"}))["tasks"]
    now = check_new_events(server, owner, [project], before)
    assert shown == [now[task["id"]] for task in shown]


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
