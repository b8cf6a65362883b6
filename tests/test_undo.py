"""The run of a key or a member is undone as a whole, except for changes by others since."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from harness import check_new_events, fault, hook, last_event, wait_past
from test_changes import Mirror, assert_equal
from test_deleted import attach, fails_midway, listed, restore, whole
from test_keys import make_key

import times
from members import HIDDEN_DAYS, Activity
from models import write

NEEDS_SOCKET = False


def begun(client):
    """A time after all that was done before, and before all that is done from now on."""
    for _ in range(2):
        wait_past(time := client.get("/me").json()["meta"]["timestamp"])
    return time


def undo(client, since, **fields):
    """Undo what the key of `by`, or else the caller, has done since."""
    if by := fields.pop("by", None):
        fields["key"] = by.read("/me")["key"]["id"]
    else:
        fields["actor_id"] = client.member["id"]
    return client.data(client.post("/activity/undo", {"since": since} | fields))


def done(result):
    return sorted((one["entity"], one["action"], *one["fields"]) for one in result["undone"])


def reasons(result):
    return sorted((one["entity"], *one["fields"], one["reason"]) for one in result["left"])


def everything(owner, projects):
    """All that these tests change, as the API shows it, but for versions and times of changes."""
    tasks = [
        task for one in projects for task in owner.read("/tasks", project_id=one["id"], limit=100)["tasks"]
    ]
    shown = {f"task {task['id']}": whole(owner, task) for task in tasks}
    for one in projects:
        row = owner.read(f"/projects/{one['id']}")
        shown[f"project {one['id']}"] = row | {"updated_at": None}
        for milestone in owner.read(f"/projects/{one['id']}/milestones")["milestones"]:
            shown[milestone["id"]] = milestone | {"updated_at": None}
    shown |= {row["id"]: row | {"updated_at": None} for row in owner.read("/meetings")["meetings"]}
    for row in owner.read("/whiteboards")["whiteboards"]:
        shown[row["id"]] = owner.read(f"/whiteboards/{row['id']}") | {"updated_at": None}
    shown["projects"] = sorted(row["name"] for row in owner.read("/projects")["projects"])
    return shown


def test_a_run_is_undone_and_the_undo_is_undone(server, owner, project, join, milestone):
    key = server.client(make_key(owner, name="Robot")["api_key"])
    other, member = owner.make_project(), join()
    fields = {"due_date": "2030-01-01", "assignee_id": member.member["id"], "labels": ["one"]}
    fields |= {"metadata": {"n": 1.50, "long": "x" * 2000}, "priority": "high"}
    edited = owner.make_task(project, **fields, description="An old text. " * 200)
    moved, removed, parted = (owner.make_task(project) for _ in range(3))
    owner.patch(f"/tasks/{edited['id']}/details", {"blocked_by": [removed["id"]]})
    owner.make(f"/tasks/{removed['id']}/comments", {"content": "Old."})  # it comes and goes with its task
    second = owner.make(f"/tasks/{parted['id']}/comments", {"content": "Mine."})
    file = attach(owner, parted, b"old" * 1000)
    owner.patch(f"/tasks/{parted['id']}/details", {"milestone_id": milestone["id"]})
    note = owner.make("/whiteboards", {"title": "Plan"})
    meeting = owner.make("/meetings", {"title": "A", "starts_at": "2030-01-01"})
    before, since = everything(owner, [project, other]), begun(owner)

    new = key.make_task(project, title="New")
    key.make(f"/tasks/{new['id']}/comments", {"content": "A remark."})
    owner.patch(f"/tasks/{new['id']}/details", {"after": None})  # to move it by hand is no change
    key.patch(f"/tasks/{new['id']}/details", {"blocked_by": [moved["id"]]})
    made = key.make(f"/projects/{project['id']}/milestones", {"title": "Robot's"})
    changes = {"title": "Newer", "description": "Short.", "labels": [], "metadata": {}, "priority": "low"}
    changes |= {"due_date": None, "milestone_id": made["id"], "assignee_id": None}
    key.patch(f"/tasks/{edited['id']}/details", changes)
    key.patch(f"/tasks/{edited['id']}", {"status": "in_progress"})
    key.patch(f"/tasks/{edited['id']}", {"status": "review", "title": "Newest"})
    key.make(f"/tasks/{edited['id']}/comments", {"content": "Is it?"})
    attach(key, edited, b"new" * 1000, "new.txt")
    key.patch(f"/tasks/{edited['id']}/details", {"blocked_by": []})
    key.patch(f"/tasks/{moved['id']}/details", {"project_id": other["id"]})
    key.delete(f"/tasks/{removed['id']}")
    key.delete(f"/tasks/{parted['id']}/attachments/{file['id']}")
    key.delete(f"/tasks/{parted['id']}/comments/{second['id']}")
    key.delete(f"/milestones/{milestone['id']}")
    key.delete(f"/whiteboards/{note['id']}")
    key.patch(f"/meetings/{meeting['id']}", {"title": "B", "participant_ids": [member.member["id"]]})
    key.make("/whiteboards", {"title": "Robot's"})
    key.patch(f"/projects/{other['id']}", {"name": "Renamed"})
    inner = key.make_project(name="Inner")
    key.make_task(inner, title="In it")
    key.delete(f"/tasks/{key.make_task(project, title='Short-lived')['id']}")
    after = everything(owner, [project, other, inner])
    assert after != before

    tried = undo(owner, since, by=key, dry_run=True)
    assert everything(owner, [project, other, inner]) == after
    counts = "SELECT (SELECT count(*) FROM activity) AS a, (SELECT count(*) FROM event) AS b"
    stored = server.rows(counts)
    assert undo(owner, since, by=key, dry_run=True) == tried
    assert server.rows(counts) == stored
    again = begun(owner)
    result = undo(owner, since, by=key)
    assert result == tried
    assert result["left"] == []
    entry = owner.read(f"/tasks/{edited['id']}/activity")["activity"][0]
    assert entry["changes"]["undoes"] == [None, key.read("/me")["key"]["id"]]
    for _ in range(2):
        assert everything(owner, [project, other]) == before
        assert undo(owner, again)["left"] == []
        assert everything(owner, [project, other, inner]) == after
        again = begun(owner)
        undo(owner, since, by=key)


def test_what_others_have_changed_since_is_left_with_the_reason(server, owner, project, join):
    key, member = server.client(make_key(owner)["api_key"]), join()
    tasks = [owner.make_task(project, title=f"Old {number}") for number in range(4)]
    paths = [f"/tasks/{task['id']}" for task in tasks]
    since = begun(owner)
    for path in paths[:3]:
        key.patch(f"{path}/details", {"title": "Robot", "priority": "low"})
    key.delete(paths[3])
    commented, changed, alone = (key.make_task(project) for _ in range(3))
    comment = key.make(f"{paths[0]}/comments", {"content": "One."})
    key.patch(f"{paths[0]}/comments/{comment['id']}", {"content": "Two."})
    note = key.make("/whiteboards", {"title": "Robot"})
    member.patch(paths[0], {"title": "Ada's"})
    member.delete(paths[1])
    restore(member, tasks[3])
    member.delete(paths[3])
    member.make(f"/tasks/{commented['id']}/comments", {"content": "Good."})
    member.patch(f"/tasks/{changed['id']}/details", {"priority": "high"})
    member.patch(f"/whiteboards/{note['id']}", {"title": "Better"})
    result = undo(owner, since, by=key)
    name = member.member["full_name"]
    assert reasons(result) == [
        *[("task", f"changed since by {name}")] * 2,
        ("task", f"deleted again since by {name}"),
        ("task", f"deleted since by {name}"),
        ("task", "title", f"changed since by {name}"),
        ("whiteboard", f"changed since by {name}"),
    ]
    expected = [("comment", "deleted"), ("task", "deleted"), ("task", "updated", "priority")]
    assert done(result) == [*expected, ("task", "updated", "priority", "title")]
    first, third = owner.read(paths[0]), owner.read(paths[2])
    assert [first[name] for name in ("title", "priority", "comment_count")] == ["Ada's", "medium", 0]
    assert [third[name] for name in ("title", "priority")] == ["Old 2", "medium"]
    fault(owner.get(f"/tasks/{alone['id']}"), 404, "not_found")


def test_what_others_changed_between_two_changes_stays(owner, robot, join, project):
    task, ada = owner.make_task(project, title="Z"), join()
    since = begun(owner)
    for client, title in ((robot, "C"), (ada, "A"), (robot, "B"), (ada, "C"), (robot, "D")):
        client.patch(f"/tasks/{task['id']}", {"title": title})
    assert done(undo(owner, since, by=robot)) == [("task", "updated", "title")]
    assert owner.read(f"/tasks/{task['id']}")["title"] == "C"


def test_the_work_of_an_agent_is_undone(server, owner, project):
    agent = server.client(make_key(owner, scope="agent")["api_key"])
    task, answered, held = (owner.make_task(project) for _ in range(3))
    until = agent.data(agent.post(f"/tasks/{held['id']}/claim", {"minutes": 30}))["claimed_until"]
    since = begun(owner)
    agent.patch(f"/tasks/{held['id']}", {"status": "todo"})
    server.rows("UPDATE activity SET changes = replace(changes, ?, '2026-01-01T00:00:00.000Z')", until)
    for minutes in (30, 60):  # the history does not show that a claim is extended
        agent.post(f"/tasks/{task['id']}/claim", {"minutes": minutes})
    agent.patch(f"/tasks/{task['id']}", {"status": "review"})
    fault(agent.post("/activity/undo", {"since": since, "actor_id": owner.member["id"]}), 403, "forbidden")
    result = undo(owner, since, by=agent)
    held = owner.read(f"/tasks/{held['id']}")
    assert (held["status"], held["claimed_until"]) == ("in_progress", None)  # that claim would be over
    changed = [("task", "updated", name, "status") for name in ("assignee_id", "claimed_until")]
    assert done(result) == changed
    shown = owner.read(f"/tasks/{task['id']}")
    assert [shown[name] for name in ("status", "assignee_id", "claimed_until")] == ["todo", None, None]
    assert answered["version"] == owner.read(f"/tasks/{answered['id']}")["version"]


def test_agents_may_try_again_after_their_tries_are_undone(server, owner, project):
    agent = server.client(make_key(owner, scope="agent")["api_key"])
    task, given = owner.make_task(project), owner.make_task(project, assignee_id=owner.member["id"])
    paths, since = [f"/tasks/{one['id']}" for one in (task, given)], begun(owner)
    for _ in range(3):
        agent.data(agent.post(f"{paths[0]}/claim"))
        agent.data(agent.patch(paths[0], {"status": "todo", "assignee_id": None}))
    assert owner.read(paths[0])["tries"] == 3
    assert done(undo(owner, since, by=agent)) == [("task", "updated", "tries")]
    assert done(undo(owner, since, by=agent)) == []
    for _ in range(2):  # to take a submission back is no try
        since = begun(owner)
        agent.data(agent.post(f"{paths[1]}/claim"))
        agent.data(agent.patch(paths[1], {"status": "review"}))
        assert done(undo(owner, since, by=agent)) == [("task", "updated", "status")]
        assert owner.read(paths[1])["tries"] == 0
    for path in paths:
        agent.data(agent.post(f"{path}/claim"))


def test_a_claim_whose_member_was_removed_meanwhile_does_not_come_back(owner, robot, join, project):
    ana, (deleted, undone, again) = join(), (owner.make_task(project) for _ in range(3))
    for task in (deleted, undone):
        ana.data(ana.post(f"/tasks/{task['id']}/claim", {"minutes": 30}))
    owner.delete(f"/tasks/{deleted['id']}")
    since = begun(owner)
    free = {"status": "todo", "assignee_id": None}
    robot.patch(f"/tasks/{undone['id']}", free)
    for minutes in (None, 30):  # the history does not show that the claim got an end
        robot.data(robot.post(f"/tasks/{again['id']}/claim", {"minutes": minutes}))
    robot.patch(f"/tasks/{again['id']}", free)
    owner.data(owner.delete(f"/members/{ana.member['id']}"))
    restore(owner, deleted)
    undo(owner, since, by=robot)
    shown = [owner.read(f"/tasks/{task['id']}") for task in (deleted, undone, again)]
    claims = [(one["status"], one["assignee_id"], one["claimed_until"]) for one in shown]
    assert claims == [("todo", None, None), ("in_progress", None, None), ("todo", None, None)]


@pytest.mark.parametrize("end", ["deletion", "completion", "both"])
def test_a_question_that_is_deleted_or_over_does_not_come_back(owner, robot, join, project, end):
    ada = join()
    task = ada.make_task(project)
    path = f"/tasks/{task['id']}"
    asked = ada.make(f"{path}/comments", {"content": "Which colour?", "question": True})
    since = begun(owner)
    if end == "both":
        robot.post(f"{path}/complete")
    else:
        robot.make(f"{path}/comments", {"content": "Blue."})
    if end == "completion":
        ada.post(f"{path}/complete")
    else:
        ada.delete(f"{path}/comments/{asked['id']}")
    left = ("task", "question_id", "the question was deleted, or the task is done")
    assert reasons(undo(owner, since, by=robot)) == [left]
    shown = owner.read(path)
    assert (shown["status"], shown["question_id"]) == ("done" if end == "completion" else "todo", None)
    ada.make(f"{path}/comments", {"content": "Hello?"})


def test_a_question_comes_back_with_the_task_that_was_completed(owner, robot, join, project):
    task = join().make_task(project)
    asked = owner.make(f"/tasks/{task['id']}/comments", {"content": "Which colour?", "question": True})
    since = begun(owner)
    robot.post(f"/tasks/{task['id']}/complete")
    assert reasons(undo(owner, since, by=robot)) == []
    assert owner.read(f"/tasks/{task['id']}")["question_id"] == asked["id"]


def test_everybody_undoes_their_own_changes_and_admins_those_of_others(owner, join, project):
    member, other, admin = join(), join(), join("admin")
    task = owner.make_task(project)
    since = begun(owner)
    member.patch(f"/tasks/{task['id']}", {"title": "Changed"})
    body = {"since": since, "actor_id": member.member["id"]}
    message = fault(other.post("/activity/undo", body), 403, "forbidden")["message"]
    assert message == "you may undo what you did; an owner or admin undoes the rest"
    assert len(member.data(member.post("/activity/undo", body | {"dry_run": True}))["undone"]) == 1
    assert len(admin.data(admin.post("/activity/undo", body))["undone"]) == 1
    assert undo(other, begun(other))["changes"] == 0
    fault(owner.post("/activity/undo", {"since": since}), 422, "validation_error", "key")
    fault(owner.post("/activity/undo", {"key": owner.key[:12]}), 422, "validation_error", "since")


def test_a_run_may_be_cut_by_its_end_and_has_at_most_a_thousand_changes(launch_here, receiver):
    server = launch_here(TASKS_WEBHOOKS=json.dumps([hook(receiver, events=["task.updated"])]))
    owner = server.client()
    project = owner.make_project()
    task = owner.make_task(project)
    since = begun(owner)
    owner.patch(f"/tasks/{task['id']}", {"title": "Second"})
    until = begun(owner)
    owner.patch(f"/tasks/{task['id']}", {"status": "review"})
    body = {"since": since, "actor_id": owner.member["id"]}
    assert "x-webhook-deliveries" not in owner.post("/activity/undo", body | {"dry_run": True}).headers
    assert done(undo(owner, since, until=until)) == [("task", "updated", "title")]
    most = begun(owner)
    owner.patch(f"/tasks/{task['id']}", {"title": "Third"})
    (last,) = server.rows("SELECT * FROM activity ORDER BY id DESC LIMIT 1")
    columns = ", ".join(last.keys() - {"id"})
    copy_numbers = "(SELECT key AS copy FROM json_each(?))"
    copies = f"SELECT id || copy, {columns} FROM activity, {copy_numbers} WHERE id = ?"
    server.rows(f"INSERT INTO activity (id, {columns}) {copies}", json.dumps([0] * 999), last["id"])
    assert undo(owner, most, dry_run=True)["changes"] == 1000
    owner.patch(f"/tasks/{task['id']}", {"title": "Fourth"})
    answer = owner.post("/activity/undo", body | {"since": most})
    message = fault(answer, 422, "validation_error", "since")["message"]
    assert message == "since: must be later: the period has over 1000 changes"


def test_blockers_that_were_done_come_back_and_a_deletion_is_redone(owner, robot, join, project):
    ada, blocker, other, waiting = join(), *(owner.make_task(project) for _ in range(3))
    owner.patch(f"/tasks/{waiting['id']}/details", {"blocked_by": [blocker["id"], other["id"]]})
    since = begun(owner)
    robot.post(f"/tasks/{blocker['id']}/complete")
    robot.patch(f"/tasks/{waiting['id']}/details", {"blocked_by": []})
    robot.delete(f"/tasks/{other['id']}")
    again = begun(owner)
    assert undo(owner, since, by=robot)["left"] == []
    shown = owner.read(f"/tasks/{waiting['id']}")["blocked_by"]
    assert [one["id"] for one in shown] == [blocker["id"], other["id"]]
    ada.patch(f"/tasks/{waiting['id']}", {"title": "Still waits"})
    assert undo(owner, again)["left"] == []
    fault(owner.get(f"/tasks/{other['id']}"), 404, "not_found")
    assert owner.read(f"/tasks/{waiting['id']}")["blocked_by"] == []


@pytest.fixture
def robot(server, owner):
    return server.client(make_key(owner, name="Robot")["api_key"])


def test_a_task_waits_again_for_one_that_waits_for_it_no_more(owner, robot, project):
    first, second, third = (owner.make_task(project) for _ in range(3))
    for task in (first, third):
        owner.patch(f"/tasks/{task['id']}/details", {"blocked_by": [second["id"]]})
    since = begun(owner)
    for task, others in ((first, []), (second, [first["id"]]), (third, [])):
        robot.patch(f"/tasks/{task['id']}/details", {"blocked_by": others})
    assert undo(owner, since, by=robot)["left"] == []
    for task in (first, third):
        assert [one["id"] for one in owner.read(f"/tasks/{task['id']}")["blocked_by"]] == [second["id"]]


def test_a_task_waits_no_more_for_one_that_was_completed_before_or_beside_a_deleted_one(
    owner, robot, project
):
    task, other, blocker, last = (owner.make_task(project) for _ in range(4))
    paths, since = [f"/tasks/{one['id']}" for one in (task, other)], begun(owner)
    robot.post(f"/tasks/{blocker['id']}/complete")
    robot.patch(f"{paths[0]}/details", {"blocked_by": [blocker["number"]]})
    new = robot.make_task(project)
    robot.patch(f"{paths[1]}/details", {"blocked_by": [last["number"], new["number"]]})
    robot.delete(f"/tasks/{new['id']}")
    robot.patch(f"{paths[1]}/details", {"blocked_by": [task["number"]]})
    assert reasons(undo(owner, since, by=robot)) == []
    assert [owner.read(path)["blocked_by"] for path in paths] == [[], []]


def test_an_archived_project_becomes_active_before_its_tasks_come_back_and_archived_after(
    owner, robot, project
):
    task, other = owner.make_task(project), owner.make_project()
    since = begun(owner)
    robot.patch(f"/projects/{project['id']}", {"status": "archived"})
    robot.patch(f"/tasks/{task['id']}/details", {"project_id": other["id"]})
    again = begun(owner)
    assert reasons(undo(owner, since, by=robot)) == []
    assert owner.read(f"/projects/{project['id']}")["status"] == "active"
    assert owner.read(f"/tasks/{task['id']}")["project_id"] == project["id"]
    assert reasons(undo(owner, again)) == []
    assert owner.read(f"/projects/{project['id']}")["status"] == "archived"
    assert owner.read(f"/tasks/{task['id']}")["project_id"] == other["id"]
    since = begun(owner)
    robot.patch(f"/projects/{project['id']}", {"status": "active"})
    robot.patch(f"/tasks/{task['id']}/details", {"project_id": project["id"]})
    robot.patch(f"/projects/{project['id']}", {"name": "Newest"})
    again = begun(owner)
    assert reasons(undo(owner, since, by=robot)) == []
    assert owner.read(f"/projects/{project['id']}")["status"] == "archived"
    assert reasons(undo(owner, again)) == []
    assert owner.read(f"/tasks/{task['id']}")["project_id"] == project["id"]


def test_a_second_undo_says_that_it_is_undone(owner, robot, project):
    old, gone = owner.make_task(project, description="Old. " * 300), owner.make_task(project)
    since = begun(owner)
    for title in ("One", "Two", "Three"):
        robot.patch(f"/tasks/{old['id']}/details", {"title": title, "description": f"{title}. " * 300})
    new = robot.make_task(project)
    robot.delete(f"/tasks/{gone['id']}")
    assert undo(owner, since, by=robot)["left"] == []
    for result in (undo(owner, since, by=robot, dry_run=True), undo(owner, since, by=robot)):
        assert done(result) == []
        assert {one["reason"] for one in result["left"]} == {"already undone"}
        left = sorted((one["entity_id"], *one["fields"]) for one in result["left"])
        expected = [(old["id"], "description"), (old["id"], "title"), (gone["id"],), (new["id"],)]
        assert left == sorted(expected)


def test_a_next_task_that_an_undo_deletes_again_is_not_left(owner, robot, project):
    task = owner.make_task(project, due_date="2030-01-01", repeat="FREQ=DAILY")
    since = begun(owner)
    robot.post(f"/tasks/{task['id']}/complete")
    for _ in range(2):
        again = begun(owner)
        result = undo(owner, since, by=robot)
        assert done(result) == [("task", "deleted"), ("task", "updated", "status")]
        assert reasons(result) == []
        undo(owner, again)


def test_an_undo_and_its_run_in_one_period_change_nothing(owner, project):
    task = owner.make_task(project, title="Old", due_date="2030-01-01", repeat="FREQ=DAILY")
    since = begun(owner)
    owner.post(f"/tasks/{task['id']}/complete")
    owner.patch(f"/tasks/{task['id']}", {"title": "New"})
    assert done(undo(owner, since)) == [("task", "deleted"), ("task", "updated", "status", "title")]
    before = whole(owner, task)
    result = undo(owner, since)
    assert done(result) == []
    assert {one["reason"] for one in result["left"]} == {"already undone"}
    assert whole(owner, task) == before


def test_a_field_that_cannot_be_set_back_is_left_alone(owner, robot, join, project, milestone):
    leaver = join()
    fields = {"assignee_id": leaver.member["id"], "milestone_id": milestone["id"]}
    task = owner.make_task(project, title="Old", description="Old", **fields)
    dated = owner.make_task(project, title="Old", due_date="2030-01-01", start_date="2029-12-01")
    purged = owner.make_task(project, title="Old", description="Old. " * 300)
    since = begun(owner)
    changes = {"title": "New", "description": "New", "priority": "low"} | dict.fromkeys(fields)
    robot.patch(f"/tasks/{purged['id']}/details", {"title": "New", "description": "New."})
    owner.data(owner.delete(f"/deleted/{purged['id']}"))  # its earlier text, for good
    robot.patch(f"/tasks/{task['id']}/details", changes)
    robot.patch(f"/tasks/{dated['id']}/details", {"title": "New", "due_date": None})
    owner.patch(f"/tasks/{dated['id']}/details", {"start_date": "2031-01-01"})
    owner.delete(f"/members/{leaver.member['id']}")
    owner.delete(f"/milestones/{milestone['id']}")
    result = undo(owner, since, by=robot)
    only_title = ("task", "updated", "title")
    assert done(result) == [("task", "updated", "description", "priority", "title"), only_title, only_title]
    assert reasons(result) == [
        ("task", "assignee_id", "no such member"),
        ("task", "description", "the earlier value is not kept"),
        ("task", "due_date", "must not be before start_date, which is 2031-01-01T00:00:00.000Z"),
        ("task", "milestone_id", "no such milestone"),
    ]
    shown = owner.read(f"/tasks/{task['id']}")
    assert [shown[name] for name in ("title", "description", "priority")] == ["Old", "Old", "medium"]
    assert {owner.read(f"/tasks/{task['id']}")["title"] for task in (dated, purged)} == {"Old"}


@pytest.mark.parametrize("is_touched", [False, True])
def test_a_reopened_task_has_its_rule_unless_others_have_changed_the_next_one(
    owner, robot, join, project, is_touched
):
    task, ada = owner.make_task(project, due_date="2030-01-01", repeat="FREQ=WEEKLY"), join()
    since = begun(owner)
    robot.patch(f"/tasks/{task['id']}/details", {"repeat": "FREQ=DAILY"})
    robot.post(f"/tasks/{task['id']}/complete")
    number = owner.read(f"/tasks/{task['id']}")["next_number"]
    robot.patch(f"/tasks/{number}", {"title": "Changed"})
    if is_touched:
        ada.make(f"/tasks/{number}/comments", {"content": "I look into it."})
    left = [("task", f"changed since by {ada.member['full_name']}")] if is_touched else []
    assert reasons(undo(owner, since, by=robot)) == left
    found = owner.read("/tasks", project_id=project["id"], sort="created_at")["tasks"]
    rules = [("todo", None), ("todo", "FREQ=DAILY")] if is_touched else [("todo", "FREQ=WEEKLY")]
    assert [(one["status"], one["repeat"]) for one in found] == rules


def test_a_completed_task_has_its_earlier_time_again(owner, robot, join, project):
    ada, kept, twice, by_others, open_before = join(), *(owner.make_task(project) for _ in range(4))
    paths = [f"/tasks/{task['id']}" for task in (kept, twice, by_others)]
    for path in paths:
        owner.post(f"{path}/complete")
    completed = [owner.read(path)["completed_at"] for path in paths]
    since = begun(owner)
    for path in paths:
        robot.patch(path, {"status": "todo"})
    for path in (paths[1], f"/tasks/{open_before['id']}"):
        robot.post(f"{path}/complete")
    ada.post(f"{paths[2]}/complete")
    later = ada.read(paths[2])["completed_at"]
    robot.patch(paths[2], {"status": "review"})
    again = begun(owner)
    before = [owner.read(path)["completed_at"] for path in paths]
    assert undo(owner, since, by=robot)["left"] == []
    assert [owner.read(path)["completed_at"] for path in paths] == [*completed[:2], later]
    assert owner.read(f"/tasks/{open_before['id']}")["completed_at"] is None
    assert undo(owner, again)["left"] == []
    assert [owner.read(path)["completed_at"] for path in paths] == before
    undo(owner, since, by=robot)
    assert [owner.read(path)["completed_at"] for path in paths] == [*completed[:2], later]


def complete_all(client, task, many):
    """Complete a task and the ones that follow it; return the path of the last."""
    path = f"/tasks/{task['id']}"
    for _ in range(many):
        client.data(client.post(f"{path}/complete"))
        path = f"/tasks/{client.read(path)['next_number']}"
    return path


def complete_and_lower(robot, ada, task):
    robot.patch(f"/tasks/{task['id']}/details", {"priority": "low"})
    waiting = [int(complete_all(robot, task, 1).rpartition("/")[2])]
    ada.make_task(ada.make_project(), blocked_by=waiting)


def complete_and_reopen(robot, ada, task):
    ada.make(f"{complete_all(robot, task, 1)}/comments", {"content": "Mine."})
    robot.patch(f"/tasks/{task['id']}", {"status": "todo"})


def delete_next_of_reopened(robot, ada, task):
    following = complete_all(ada, task, 1)
    since = begun(ada)
    robot.delete(following)
    ada.patch(f"/tasks/{task['id']}", {"status": "todo"})
    return since


def complete_after_an_older_series(robot, ada, task):
    ada.patch(complete_all(ada, task, 1), {"title": "Mine"})
    ada.patch(f"/tasks/{task['id']}", {"status": "todo"})
    ada.patch(f"/tasks/{task['id']}/details", {"repeat": "FREQ=DAILY"})
    since = begun(ada)
    complete_all(robot, task, 1)
    return since


def complete_again(robot, ada, task):
    complete_all(robot, task, 1)
    ada.patch(f"/tasks/{task['id']}", {"status": "todo"})
    ada.patch(complete_all(ada, task, 1), {"title": "Mine"})


def complete_chain(robot, ada, task):
    complete_all(robot, task, 3)


def complete_chain_to_mine(robot, ada, task):
    ada.patch(complete_all(robot, task, 2), {"title": "Mine"})


def remove_rule_and_complete(robot, ada, task):
    robot.patch(f"/tasks/{task['id']}/details", {"repeat": None})
    robot.post(f"/tasks/{task['id']}/complete")


RUNS = {  # the rules of the series after the undo of what the robot did
    complete_chain: ["WEEKLY"],
    complete_chain_to_mine: [None, "WEEKLY"],
    complete_and_lower: [None, "WEEKLY"],
    complete_and_reopen: [None, "WEEKLY"],
    delete_next_of_reopened: ["WEEKLY", None],
    remove_rule_and_complete: ["WEEKLY"],
    complete_after_an_older_series: ["DAILY", "WEEKLY"],
    complete_again: [None, "WEEKLY"],
}


@pytest.mark.parametrize("run", RUNS)
def test_a_series_has_its_rule_once_after_an_undo(owner, robot, join, project, run):
    task, ada = owner.make_task(project, due_date="2030-01-01", repeat="FREQ=WEEKLY"), join()
    since = begun(owner)
    undo(owner, run(robot, ada, task) or since, by=robot)
    found = owner.read("/tasks", project_id=project["id"], sort="created_at")["tasks"]
    rules = [("todo", rule and f"FREQ={rule}") for rule in RUNS[run]]
    assert [(one["status"], one["repeat"]) for one in found] == rules
    assert found[0]["priority"] == "medium"


def test_keys_and_members_that_the_run_made_stay_and_are_named_first(owner, robot, join, project):
    member = join()
    owner.make_task(project)
    since = begun(owner)
    made = make_key(robot, name="Back door")["key"]
    robot.data(robot.patch(f"/members/{member.member['id']}", {"role": "admin"}))
    invited = {"email": f"eve@{project['id']}.example", "full_name": "Eve", "role": "admin"}
    robot.data(robot.post("/members/invite", invited), 201)
    task = robot.make_task(project)
    owner.patch(f"/tasks/{task['id']}", {"title": "Mine"})
    result = undo(owner, since, by=robot)
    stay = "members, roles, addresses, keys and links stay"
    revoke = f"made the key Back door ({made['prefix']}…): revoke it, if nobody needs it"
    assert [(one["entity"], one["title"], one["fields"], one["reason"]) for one in result["left"]] == [
        ("member", "Eve", [], stay),
        ("member", member.member["full_name"], ["role"], stay),
        ("member", owner.member["full_name"], ["api_key"], revoke),
        ("task", "A task", [], f"changed since by {owner.member['full_name']}"),
    ]
    assert result["note"] == "Notifications, mail and events that were sent are not taken back."
    owner.delete(f"/keys/{made['id']}")
    assert [one["reason"] for one in undo(owner, since, by=robot)["left"]][:3] == [stay] * 3


def test_what_others_need_is_left(owner, robot, join, project):
    ada = join()
    theirs = ada.make_task(project, title="Ada's")
    since = begun(owner)
    milestone = robot.make(f"/projects/{project['id']}/milestones", {"title": "Robot's"})
    first, second = (robot.make_task(project, title=title) for title in ("First", "Second"))
    robot.patch(f"/tasks/{second['id']}/details", {"blocked_by": [first["id"]]})
    robot.patch(f"/tasks/{first['id']}", {"title": "The very first"})  # so it is deleted before the second
    needed = robot.make_task(project)
    new = robot.make_project(name="New")
    robot.make_task(new)
    needs = {"milestone_id": milestone["id"], "blocked_by": [needed["id"]]}
    ada.patch(f"/tasks/{theirs['id']}/details", needs)
    ada.make_task(new, title="In it")
    before = owner.read(f"/tasks/{theirs['id']}")
    result = undo(owner, since, by=robot)
    assert reasons(result) == [
        ("milestone", "the task “Ada's” belongs to it"),
        ("project", "the task “In it” belongs to it"),
        ("task", f"#{theirs['number']} waits for it"),
    ]
    assert owner.read(f"/tasks/{theirs['id']}") == before
    assert done(result) == [("task", "deleted")] * 3


def test_comments_and_notes_get_their_earlier_text(owner, robot, join, project):
    task, note = owner.make_task(project), owner.make("/whiteboards", {"title": "A", "content": {"n": 1e30}})
    comment = robot.make(f"/tasks/{task['id']}/comments", {"content": "One."})
    milestone = owner.make(f"/projects/{project['id']}/milestones", {"title": "A", "description": "x" * 2000})
    since = begun(owner)
    for text in ("Two.", "Three."):
        robot.patch(f"/tasks/{task['id']}/comments/{comment['id']}", {"content": text})
        robot.patch(f"/whiteboards/{note['id']}", {"content": {"text": text}})
        robot.patch(f"/milestones/{milestone['id']}", {"title": text, "description": text, "closed": True})
    admin = join("admin")
    assert done(undo(admin, since, by=robot)) == [
        ("comment", "updated", "content"),
        ("milestone", "updated", "closed_at", "description", "title"),
        ("whiteboard", "updated", "content"),
    ]
    (shown,) = owner.read(f"/tasks/{task['id']}/comments")["comments"]
    assert (shown["content"], shown["author_id"]) == ("One.", owner.member["id"])
    assert [found["id"] for found in owner.read("/tasks", q='"One."')["tasks"]] == [task["id"]]
    assert owner.read(f"/whiteboards/{note['id']}")["content"] == {"n": 1e30}
    shown = owner.read(f"/milestones/{milestone['id']}")
    assert [shown[name] for name in ("title", "description", "closed_at")] == ["A", "x" * 2000, None]


def test_changes_of_milestones_are_undone_for_thirty_days(server, owner, robot, milestone):
    """Their activity is hidden, so an hourly chore deletes it."""
    for fields in ({"title": "Robot's"}, {"description": "Robot's"}):  # the last one is kept
        robot.patch(f"/milestones/{milestone['id']}", fields)
    past = times.first_id(times.now(), -29 * 86400)[:8]
    server.rows("UPDATE activity SET id = ? || substr(id, 9) WHERE entity_id = ?", past, milestone["id"])
    server.select()
    with write() as transaction:
        until = times.first_id(transaction.at, -HIDDEN_DAYS * 86400)
        Activity.delete_old.run(before="", after="", until=until, most=500)
    since = times.now(-29 * 86400 - 120)
    assert done(undo(owner, since, by=robot)) == [("milestone", "updated", "description", "title")]
    assert owner.read(f"/milestones/{milestone['id']}")["title"] == milestone["title"]


def test_receivers_and_followers_agree_after_an_undo(launch_here):
    server = launch_here()
    owner = server.client()
    mirror = Mirror(server, owner.key)
    robot = server.client(make_key(owner)["api_key"])
    project = owner.make_project()
    old, gone = owner.make_task(project, assignee_id=owner.member["id"]), owner.make_task(project)
    comment = owner.make(f"/tasks/{gone['id']}/comments", {"content": "Yes."})
    since = begun(owner)
    robot.make_task(project)
    robot.post(f"/tasks/{old['id']}/complete")
    robot.patch(f"/tasks/{old['id']}/details", {"due_date": "2030-01-01", "assignee_id": None})
    robot.delete(f"/tasks/{gone['id']}")
    assert_equal(mirror.follow(), server, owner)
    seen = owner.read("/events", limit=100)["events"]
    undo(owner, since, by=robot, dry_run=True)
    assert owner.read("/events", limit=100)["events"] == seen
    undo(owner, since, by=robot)
    assert_equal(mirror.follow(), server, owner)
    assert ("comment", comment["id"]) in mirror.follow()
    new = [event["event"] for event in owner.read("/events", limit=100)["events"][len(seen) :]]
    assert sorted(new) == ["task.created", "task.deleted", "task.updated"]


def test_events_show_the_tasks_as_they_are_after_the_whole_undo(server, owner, robot, project, monkeypatch):
    monkeypatch.setattr("parts.deleted.STEP", 2)
    pairs = [owner.make_task(project, title="Old", metadata={'ü"\n': 1e21, "7": -0.0}) for _ in range(8)]
    for blocked, blocker in (pairs[:2], pairs[3:1:-1], pairs[5:3:-1]):
        owner.patch(f"/tasks/{blocked['id']}/details", {"blocked_by": [blocker["id"]]})
    other = owner.make_project()
    parted = [owner.make_task(other, title="Part") for _ in range(5)]
    owner.patch(f"/tasks/{parted[4]['id']}/details", {"blocked_by": [parted[0]["id"]]})
    rule = {"due_date": "2030-01-01", "repeat": "FREQ=WEEKLY"}
    series = owner.make_task(project, **rule)
    since = begun(owner)
    for task in pairs[:4]:
        robot.patch(f"/tasks/{task['id']}", {"status": "done", "title": "New", "metadata": {}})
    for task in pairs[4:6]:
        robot.delete(f"/tasks/{task['id']}")
    robot.post(f"/tasks/{series['id']}/complete")
    robot.delete(f"/projects/{other['id']}?force=true")
    before = last_event(server)
    undo(owner, since, by=robot, dry_run=True)
    assert last_event(server) == before
    assert undo(owner, since, by=robot)["left"] == []
    now = check_new_events(server, owner, [project, other], before)
    assert [len(now[task["id"]]["blocked_by"]) for task in pairs] == [1, 0, 0, 1, 0, 1, 0, 0]
    assert [len(now[task["id"]]["blocked_by"]) for task in parted] == [0, 0, 0, 0, 1]


@pytest.mark.long
def test_a_run_with_long_texts_takes_little_memory(launch):
    server = launch()
    owner = server.client()
    robot = server.client(make_key(owner)["api_key"])
    texts = [emoji * 49_000 for emoji in "🙂🙃"]
    project = owner.make_project()
    tasks = [owner.make_task(project, description=texts[0]) for _ in range(60)]
    since = begun(owner)
    for task in tasks:
        robot.patch(f"/tasks/{task['id']}/details", {"description": texts[1]})
    owner.patch(f"/tasks/{tasks[0]['id']}/details", {"title": "Changed by another one"})
    (activity,) = server.rows("SELECT * FROM activity ORDER BY id DESC LIMIT 1")
    changes = json.dumps({"title": ["a" * 900, "b" * 900]})
    many = [activity | {"id": f"{activity['id']}{number:06}", "changes": changes} for number in range(40_000)]
    with closing(sqlite3.connect(server.database)) as database, database:
        places = ", ".join(f":{name}" for name in activity)
        database.executemany(f"INSERT INTO activity ({', '.join(activity)}) VALUES ({places})", many)
    (worker,) = server.children()

    def peak():
        return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{worker}/status").read_text())[1]) / 1024

    before = peak()
    for _ in range(2):
        assert len(undo(owner, since, by=robot, dry_run=True)["undone"]) == 60
    assert len(undo(owner, since, by=robot)["undone"]) == 60
    assert peak() - before < 60  # MiB
    assert owner.read(f"/tasks/{tasks[0]['id']}")["description"] == texts[0]


def test_an_undo_of_more_than_24_mib_of_texts_is_refused(server, owner, project, monkeypatch):
    monkeypatch.setattr("parts.undo.MOST_BYTES", 24 * 1024)

    def refused(since, path):
        for dry_run in (True, False):
            body = {"since": since, "actor_id": owner.member["id"], "dry_run": dry_run}
            message = fault(owner.post("/activity/undo", body), 422, "validation_error", "since")["message"]
            assert message == "since: must be later: the period has over 0 MiB of texts"
            fault(owner.get(path), 404, "not_found")

    texts = ["x" * 2000, "y" * 2000]
    tasks = [owner.make_task(project, description=texts[0]) for _ in range(10)]
    since = begun(owner)
    for _ in range(3):
        owner.make_task(project, description=texts[0])
    owner.delete(f"/tasks/{tasks[0]['id']}")
    for task in tasks[1:]:
        owner.patch(f"/tasks/{task['id']}/details", {"description": texts[1]})
    refused(since, f"/tasks/{tasks[0]['id']}")
    since = begun(owner)
    for _ in range(5):
        owner.make_task(project, description=texts[0])
    assert len(undo(owner, since)["undone"]) == 5
    since = begun(owner)
    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    refused(since, f"/projects/{project['id']}")


def test_an_undo_that_fails_midway_changes_nothing(launch_here):
    server = launch_here()
    owner = server.client()
    project, since = owner.make_project(), begun(owner)
    for title in ("First", "Second", "Third"):
        owner.make_task(project, title=title)
    body = {"actor_id": owner.member["id"], "since": since}
    fails_midway(server, owner, "DELETE ON task WHEN OLD.title = 'Second'", "/activity/undo", body)
    assert owner.read(f"/projects/{project['id']}")["stats"]["total"] == 3
    assert listed(owner) == []
    owner.data(owner.post("/activity/undo", body))
    assert owner.read(f"/projects/{project['id']}")["stats"]["total"] == 0
    assert len(listed(owner)) == 3
