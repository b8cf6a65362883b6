"""What PATCH /tasks/:id/details changes: the fields that the update of a task does not take."""

from functools import partial

import pytest
from harness import INSTANT, NOBODY, at_once, fault

DETAILS = {
    "description": "Two\nlines",
    "priority": "urgent",
    "start_date": "2026-12-01T08:00:00.000Z",
    "due_date": "2026-12-02T23:59:59.999Z",
}


def path(task):
    return f"/tasks/{task['id']}/details"


@pytest.fixture
def milestone(owner, project):
    return owner.data(owner.post(f"/projects/{project['id']}/milestones", {"title": "M"}), 201)


def test_every_detail_is_changed_and_nothing_else(owner, task, milestone):
    sent = DETAILS | {"milestone_id": milestone["id"], "due_date": "2026-12-02"}
    answer = owner.patch(path(task), sent)
    after = owner.data(answer)
    assert answer.headers["ETag"] == '"2"'
    assert INSTANT.fullmatch(after["updated_at"])
    stored = DETAILS | {"milestone_id": milestone["id"]}
    assert after == task | stored | {"version": 2, "updated_at": after["updated_at"]}
    shown = owner.data(owner.get(f"/tasks/{task['id']}"))
    assert {name: shown[name] for name in task} == after
    assert shown["milestone"]["id"] == milestone["id"]


@pytest.mark.parametrize("name", DETAILS)
def test_one_detail_leaves_the_others(owner, task, name):
    before = owner.data(owner.patch(path(task), DETAILS))
    value = {"description": "Other", "priority": "low"}.get(name, "2026-12-01T12:00:00.000Z")
    after = owner.data(owner.patch(path(task), {name: value}))
    assert after == before | {name: value, "version": 3, "updated_at": after["updated_at"]}


def test_null_clears(owner, task, milestone):
    owner.patch(path(task), DETAILS | {"milestone_id": milestone["id"]})
    names = [*DETAILS, "milestone_id"]
    cleared = owner.data(owner.patch(path(task), dict.fromkeys(names)))
    # Without a priority a task has the one that a task is created with.
    assert {name: cleared[name] for name in names} == dict.fromkeys(names) | {"priority": "medium"}


def test_what_changes_nothing_makes_no_version(owner, task):
    before = owner.data(owner.patch(path(task), DETAILS))
    for body in ({}, DETAILS, {"start_date": "2026-12-01T09:00:00+01:00"}, {"milestone_id": None}):
        assert owner.data(owner.patch(path(task), body)) == before


def test_the_fields_of_the_update_are_not_taken_and_it_says_where_they_are(owner, task):
    for name in ("title", "status", "assignee_id", "metadata"):
        error = fault(owner.patch(path(task), {name: task[name]}), 422, "validation_error", name)
        assert "accepted: " in error["message"]
        assert error["message"].endswith("; PATCH /tasks/:id takes it")
    error = fault(owner.patch(path(task), {"project_id": task["project_id"]}), 422, "validation_error")
    assert "takes it" not in error["message"]


def test_a_start_after_the_due_date_is_refused_also_against_the_stored_one(owner, task):
    late, early = "2027-01-01", "2026-01-01"
    fault(
        owner.patch(path(task), {"start_date": late, "due_date": early}),
        *(422, "validation_error", "start_date"),
    )
    before = owner.data(owner.patch(path(task), DETAILS))
    error = fault(owner.patch(path(task), {"start_date": late}), 422, "validation_error", "start_date")
    assert DETAILS["due_date"] in error["message"]
    error = fault(owner.patch(path(task), {"due_date": early}), 422, "validation_error", "due_date")
    assert DETAILS["start_date"] in error["message"]
    assert owner.data(owner.patch(path(task), {})) == before
    moved = owner.data(owner.patch(path(task), {"start_date": late, "due_date": late}))
    assert moved["start_date"] == "2027-01-01T00:00:00.000Z"
    assert moved["due_date"] == "2027-01-01T23:59:59.999Z"


def test_a_milestone_must_exist_in_the_tasks_project(owner, task):
    other = owner.make_project()
    elsewhere = owner.data(owner.post(f"/projects/{other['id']}/milestones", {"title": "M"}), 201)
    for id, message in ((NOBODY, "no such milestone"), (elsewhere["id"], "belongs to another project")):
        body = {"milestone_id": id, "priority": "high"}
        error = fault(owner.patch(path(task), body), 422, "validation_error", "milestone_id")
        assert message in error["message"]
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["priority"] == "medium"


@pytest.mark.parametrize(
    "wrong",
    [{"priority": "highest"}, {"due_date": "tomorrow"}, {"description": 5}, {"milestone_id": "M"}, {"x": 1}],
)
def test_a_wrong_value_is_named_and_nothing_written(owner, task, wrong):
    (name,) = wrong
    fault(owner.patch(path(task), {"description": "New"} | wrong), 422, "validation_error", name)
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["version"] == 1


def test_a_task_that_does_not_exist_is_not_found(owner, task):
    owner.delete(f"/tasks/{task['id']}")
    for id in (task["id"], NOBODY, "x"):
        fault(owner.patch(f"/tasks/{id}/details", {"priority": "low"}), 404, "not_found")


def test_an_expected_version_is_honoured(owner, task):
    expect = {"If-Match": '"2"'}
    fault(owner.patch(path(task), DETAILS, headers=expect), 412, "precondition_failed")
    owner.patch(f"/tasks/{task['id']}", {"title": "New"})
    assert owner.data(owner.patch(path(task), DETAILS, headers=expect))["version"] == 3


def test_of_simultaneous_conditional_changes_of_either_kind_one_is_applied(server, task):
    expect = {"If-Match": '"1"'}
    calls = [
        partial(server.client().patch, path(task), {"description": f"D{n}"}, headers=expect) for n in range(6)
    ]
    calls += [
        partial(server.client().patch, f"/tasks/{task['id']}", {"title": f"T{n}"}, headers=expect)
        for n in range(6)
    ]
    assert sorted(answer.status_code for answer in at_once(*calls)) == [200] + [412] * 11


def test_the_task_is_found_by_its_new_details_and_counted_there(owner, project, task, milestone):
    owner.patch(path(task), {"description": "Beyond the HORIZON", "milestone_id": milestone["id"]})
    owner.patch(path(task), {"priority": "urgent", "due_date": "2001-01-01"})
    for query in (
        {"q": "the horizon"},
        {"milestone_id": milestone["id"]},
        {"priority": "urgent"},
        {"due_before": "2001-01-02"},
    ):
        page = owner.data(owner.get("/tasks", project_id=project["id"], **query))
        assert ([found["id"] for found in page["tasks"]], page["pagination"]["total"]) == ([task["id"]], 1)
    assert owner.data(owner.get(f"/projects/{project['id']}"))["stats"]["overdue"] == 1
    owner.patch(path(task), {"due_date": None, "milestone_id": None})
    assert owner.data(owner.get(f"/projects/{project['id']}"))["stats"]["overdue"] == 0
    assert owner.data(owner.get("/tasks", milestone_id=milestone["id"]))["pagination"]["total"] == 0


def test_the_team_and_its_receivers_are_told(hooked, receiver):
    owner = hooked.client()
    task = owner.make_task(owner.make_project())
    receiver.all_here()
    answer = owner.patch(path(task), {"priority": "low", "due_date": "2026-12-24"})
    changes = {"priority": ["medium", "low"], "due_date": [None, "2026-12-24T23:59:59.999Z"]}
    (call,) = receiver.all_here()
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    assert (call.event["event"], call.event["data"]["changes"]) == ("task.updated", changes)
    assert call.event["data"]["task"] == owner.data(answer)
    newest = owner.data(owner.get(f"/tasks/{task['id']}/activity"))["activity"][0]
    assert (newest["action"], newest["changes"]) == ("updated", changes)
    owner.patch(path(task), {"priority": "low"})
    assert receiver.all_here() == []
