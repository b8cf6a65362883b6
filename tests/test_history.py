"""The history of a task and of the workspace, GET /tasks/:id/activity and GET /activity."""

import itertools

import pytest
from harness import NOBODY, fault

NEEDS_SOCKET = False


def history(client, path="/activity", **query):
    return client.read(path, **query)["activity"]


def of(task):
    return f"/tasks/{task['id']}/activity"


@pytest.fixture
def busy(owner, task):
    """A task with a history of six entries, the last two of a comment."""
    path = f"/tasks/{task['id']}"
    owner.patch(path, {"title": "New"})
    owner.patch(path, {"status": "review"})
    owner.patch(f"{path}/details", {"priority": "low"})
    comment = owner.make(f"{path}/comments", {"content": "A"})
    owner.delete(f"{path}/comments/{comment['id']}")
    return task


def test_the_history_of_a_task_has_every_change_newest_first(owner, join, busy):
    other = join()
    other.post(f"/tasks/{busy['id']}/complete")
    entries = history(owner, of(busy))
    told = ["task moved", "comment deleted", "comment created", "task updated"]
    told += ["task moved", "task updated", "task created"]
    assert [f"{entry['entity']} {entry['action']}" for entry in entries] == told
    assert {entry["task_id"] for entry in entries} == {busy["id"]}
    assert entries[0]["actor"]["id"] == other.member["id"]
    assert entries[0]["changes"] == {"status": ["review", "done"]}
    assert [entry["title"] for entry in entries[-2:]] == ["New", "A task"]
    assert [entry["id"] for entry in entries] == sorted((entry["id"] for entry in entries), reverse=True)


@pytest.mark.parametrize("limit", [1, 5, 6, 100])
def test_pages_follow_each_other_without_a_gap_while_more_is_done(owner, busy, limit):
    every, seen, before = history(owner, of(busy)), [], {}
    while True:
        page = owner.read(of(busy), limit=limit, **before)
        seen += page["activity"]
        owner.patch(f"/tasks/{busy['id']}", {"title": f"Title {len(seen)}"})
        assert page["pagination"]["limit"] == limit
        assert page["pagination"]["has_more"] == (page["pagination"]["next_before"] is not None)
        if not page["pagination"]["has_more"]:
            break
        before = {"before": page["pagination"]["next_before"]}
    assert seen == every


def test_filters_combine(owner, join, busy):
    other = join()
    other.patch(f"/tasks/{busy['id']}", {"title": "Newer"})
    every = history(owner, of(busy))
    today = every[0]["created_at"][:10]
    for query, passes in (
        ({"actor_id": other.member["id"]}, lambda entry: entry["actor"]["id"] == other.member["id"]),
        ({"entity": "comment"}, lambda entry: entry["entity"] == "comment"),
        ({"since": every[2]["created_at"]}, lambda entry: entry["created_at"] >= every[2]["created_at"]),
        ({"before": every[3]["id"], "entity": "task"}, lambda entry: entry in every[4:]),
        ({"since": every[4]["created_at"], "before": every[1]["id"]}, lambda entry: entry in every[2:5]),
        ({"actor_id": NOBODY}, lambda entry: False),
        ({"action": "moved"}, lambda entry: entry["action"] == "moved"),
        ({"until": every[3]["created_at"]}, lambda entry: entry in every[3:]),
        ({"until": today, "action": "created"}, lambda entry: entry["action"] == "created"),
        ({"until": "2020-01-01"}, lambda entry: False),
        ({"key": other.get("/me").json()["data"]["key"]["id"]}, lambda entry: entry in every[:1]),
        ({"key": other.key[:12], "action": "updated"}, lambda entry: entry in every[:1]),
        ({"key": "tms_unknown"}, lambda entry: False),
    ):
        found = history(owner, of(busy), **query)
        assert found == [entry for entry in every if passes(entry)]
        whole = [entry for entry in history(owner, limit=100, **query) if entry["task_id"] == busy["id"]]
        assert whole == found


def test_the_history_of_the_workspace_has_every_kind_of_thing(owner, project, busy):
    owner.make("/meetings", {"title": "Planning", "starts_at": "2026-12-01"})
    board = owner.make("/whiteboards", {"title": "Ideas"})
    owner.delete(f"/whiteboards/{board['id']}")
    entries = history(owner, limit=100)
    shown = [f"{entry['entity']} {entry['title']} {entry['action']}" for entry in entries[:3]]
    assert shown == ["whiteboard Ideas deleted", "whiteboard Ideas created", "meeting Planning created"]
    assert (entries[0]["entity_id"], entries[0]["task_id"]) == (board["id"], None)
    assert {"task", "comment", "project"} <= {entry["entity"] for entry in entries}
    made = history(owner, entity="project", limit=100)[0]
    assert (made["entity_id"], made["title"], made["action"]) == (project["id"], project["name"], "created")


def test_a_deleted_task_stays_in_the_history_where_who_deleted_it_is_found_by_its_number(owner, join, busy):
    """In the history, by any path that has the number, and for whoever may see tasks."""
    ana, number = join(full_name="Ana Lima"), busy["number"]
    every = history(owner, of(busy))
    assert {entry["number"] for entry in every} == {number}
    ana.delete(f"/tasks/{number}")
    entries = [entry for entry in history(owner, limit=100) if entry["task_id"] == busy["id"]]
    assert [entry["action"] for entry in entries[:2]] == ["deleted", "deleted"]
    assert len(entries) == 7
    # The context's recent activity is without deletions, as its specification says.
    recent = owner.read("/context")["recent_activity"]
    assert {entry["action"] for entry in recent} <= {"created", "updated", "moved"}
    assert not [entry for entry in recent if "task_id" in entry]
    for task in (number, busy["id"]):
        (deletion,) = history(owner, task=task, action="deleted", entity="task")
        assert (deletion["title"], deletion["number"], deletion["via"]) == ("New", number, "enrollment")
        assert (deletion["actor"]["full_name"], deletion["task_id"]) == ("Ana Lima", busy["id"])
        assert history(owner, task=task) == [deletion, *every]
    assert history(owner, task=2**53 - 1) == history(owner, task=NOBODY) == []
    said = f"was deleted by Ana Lima at {deletion['created_at'][:16]}Z"
    paths = ("", "/comments", "/activity", "/attachments")
    for caller, ask in itertools.product((owner, join("client")), paths):
        assert said in fault(caller.get(f"/tasks/{number}{ask}"), 404, "not_found")["message"]
    assert said in fault(owner.patch(f"/tasks/{number}", {"title": "X"}), 404, "not_found")["message"]
    assert fault(owner.get(f"/tasks/{2**53 - 1}"), 404, "not_found")["message"] == "no such task"
    fault(owner.get(f"/tasks/{busy['id']}/activity", task=number), 422, "validation_error", "task")


def test_a_client_sees_the_history_of_tasks_alone(owner, join, busy):
    client = join("client")
    assert history(client, of(busy)) == history(owner, of(busy))
    assert {entry["entity"] for entry in history(client, limit=100)} == {"task", "comment"}
    assert history(client, entity="member") == history(client, entity="project") == []
    assert history(owner, entity="member")
