"""PATCH /tasks/:id/details changes every field of a task."""

from functools import partial

from harness import NOBODY, at_once, fault

NEEDS_SOCKET = False

DETAILS = {"start_date": "2026-12-01T08:00:00.000Z", "due_date": "2026-12-02T23:59:59.999Z"}
DETAILS |= {"description": "Two\nlines", "priority": "urgent"}


def path(task):
    return f"/tasks/{task['id']}/details"


def test_every_field_is_changed_at_once_and_nothing_else(owner, join, task, milestone):
    stored = DETAILS | {"milestone_id": milestone["id"], "assignee_id": join().member["id"]}
    stored |= {"title": "New", "status": "review", "metadata": {"a": 1}}
    answer = owner.patch(path(task), stored | {"due_date": "2026-12-02"})
    after = owner.data(answer)
    assert answer.headers["ETag"] == '"2"'
    assert after == task | stored | {"version": 2, "updated_at": after["updated_at"]}
    shown = owner.read(f"/tasks/{task['id']}")
    assert shown | after == shown
    assert shown["milestone"]["id"] == milestone["id"]


def test_null_clears_and_leaves_empty(owner, join, project, task, milestone):
    more = {"milestone_id": milestone["id"], "assignee_id": join().member["id"], "metadata": {"a": 1}}
    owner.data(owner.patch(path(task), DETAILS | more))
    nothing = dict.fromkeys([*DETAILS, *more])
    # Without a priority a task has the one that a task is created with.
    empty = nothing | {"priority": "medium", "metadata": {}}
    for shown in (owner.data(owner.patch(path(task), nothing)), owner.make_task(project, **nothing)):
        assert shown | empty == shown


def test_an_update_without_a_change_makes_no_version(owner, task):
    before = owner.data(owner.patch(path(task), DETAILS | {"metadata": {"a": 1}}))
    same = {"title": task["title"], "status": "todo", "metadata": {"a": 1.0}, "assignee_id": None}
    for body in ({}, DETAILS, {"start_date": "2026-12-01T09:00:00+01:00"}, {"milestone_id": None}, same):
        assert owner.data(owner.patch(path(task), body)) == before


def test_a_start_after_the_due_date_is_refused_also_against_the_stored_one(owner, project, task):
    late, early = "2027-01-01", "2026-01-01"
    both = {"start_date": late, "due_date": early}
    new = {"project_id": project["id"], "title": "x"}
    for answer in (owner.patch(path(task), both), owner.post("/tasks", new | both)):
        said = fault(answer, 422, "validation_error", "start_date")["message"]
        assert "must not be after due_date, which is 2026-01-01T23:59:59.999Z" in said
    before = owner.data(owner.patch(path(task), DETAILS))
    error = fault(owner.patch(path(task), {"start_date": late}), 422, "validation_error", "start_date")
    assert DETAILS["due_date"] in error["message"]
    error = fault(owner.patch(path(task), {"due_date": early}), 422, "validation_error", "due_date")
    assert DETAILS["start_date"] in error["message"]
    assert owner.data(owner.patch(path(task), {})) == before
    moved = owner.data(owner.patch(path(task), {"start_date": late, "due_date": late}))
    assert moved["start_date"] == "2027-01-01T00:00:00.000Z"
    assert moved["due_date"] == "2027-01-01T23:59:59.999Z"
    owner.data(owner.patch(path(task), {"start_date": moved["due_date"]}))  # both may be equal


def test_a_milestone_must_be_of_the_tasks_project(owner, milestone):
    other = owner.make_project()
    task, body = owner.make_task(other), {"milestone_id": milestone["id"], "priority": "high"}
    new = {"project_id": other["id"], "title": "x"}
    for answer in (owner.patch(path(task), body), owner.post("/tasks", new | body)):
        error = fault(answer, 422, "validation_error", "milestone_id")
        assert error["message"] == "milestone_id: belongs to another project"
    assert owner.read(f"/tasks/{task['id']}")["priority"] == "medium"


def test_one_of_many_simultaneous_conditional_changes_is_applied(server, task):
    changes = [(path(task), {"description": f"D{n}"}) for n in range(6)]
    changes += [(f"/tasks/{task['id']}", {"title": f"T{n}"}) for n in range(6)]
    expect = {"If-Match": '"1"'}
    calls = [partial(server.client().patch, *change, headers=expect) for change in changes]
    assert sorted(answer.status_code for answer in at_once(*calls)) == [200] + [412] * 11


def test_a_task_moves_to_another_project_without_its_milestone(owner, project, task, milestone):
    other = owner.make_project()
    owner.data(owner.patch(path(task), {"milestone_id": milestone["id"], "due_date": "2020-01-01"}))
    both = {"project_id": other["id"], "milestone_id": milestone["id"]}
    fault(owner.patch(path(task), both), 422, "validation_error", "milestone_id")
    moved = owner.data(owner.patch(path(task), {"project_id": other["id"]}))
    assert (moved["project_id"], moved["milestone_id"], moved["rank"]) == (other["id"], None, task["rank"])
    (entry,) = owner.read(f"/tasks/{task['id']}/activity", limit=1)["activity"]
    changes = {"project_id": [project["id"], other["id"]], "milestone_id": [milestone["id"], None]}
    assert (entry["action"], entry["changes"]) == ("moved", changes)
    for id, count in ((project["id"], 0), (other["id"], 1)):
        stats = owner.read(f"/projects/{id}")["stats"]
        assert (stats["todo"], stats["overdue"]) == (count, count)
    back = both | {"project_id": project["id"]}
    assert owner.data(owner.patch(path(task), back))["milestone_id"] == milestone["id"]


def test_a_task_is_made_in_and_moves_to_a_project_that_is_there_and_active_alone(owner, join, task):
    agent = join()
    claimed = agent.data(agent.post(f"/tasks/{task['id']}/claim"))
    moved = owner.data(owner.patch(path(task), {"project_id": owner.make_project()["id"]}))
    assert agent.data(agent.post(f"/tasks/{task['id']}/claim")) == moved  # a repetition
    assert moved["assignee_id"] == claimed["assignee_id"]
    archived = owner.make_project()
    owner.data(owner.patch(f"/projects/{archived['id']}", {"status": "archived"}))
    for body in ({"project_id": id} for id in (NOBODY, archived["id"], None)):
        for answer in (owner.patch(path(task), body), owner.post("/tasks", body | {"title": "x"})):
            fault(answer, 422, "validation_error", "project_id")


def test_a_copy_has_what_was_planned_and_nothing_of_the_work(owner, join, project, task, milestone):
    planned = DETAILS | {"milestone_id": milestone["id"], "assignee_id": join().member["id"]}
    planned |= {"labels": ["copied"], "metadata": {"a": 1}}
    blocker, url = owner.make_task(project), f"/tasks/{task['id']}"
    work = {"status": "done", "external_id": "copied-1", "blocked_by": [blocker["number"]]}
    task = owner.data(owner.patch(f"{url}/details", planned | work))
    owner.make(f"{url}/comments", {"content": "x"})
    key = {"Idempotency-Key": "copy"}
    answer = owner.post(f"{url}/copy", {"title": "Zweitschrift"}, headers=key)
    copy = owner.data(answer, 201)
    assert answer.headers["Location"].endswith(f"/api/v1/tasks/{copy['id']}")
    assert owner.make(f"{url}/copy", {"title": "Zweitschrift"}, headers=key) == copy
    new = {"title": "Zweitschrift", "status": "todo", "completed_at": None, "external_id": None, "version": 1}
    new |= {name: copy[name] for name in ("id", "number", "rank", "created_at", "updated_at")}
    assert copy == task | planned | new | {"blocked_by": []}
    found = owner.read("/tasks", q="zweitschrift lines")["tasks"]
    assert [row["number"] for row in found] == [copy["number"]]
    assert owner.make(f"{url}/copy")["title"] == task["title"]
    fault(owner.post(f"{url}/copy", {"status": "todo"}), 422, "validation_error", "status")


def test_the_checkboxes_of_a_description_are_counted(owner, project):
    text = "- [ ] one\n  * [x] two\n1. [X] three\n-[x] no\n- [y] no\na - [x] no\n- [ ]"
    task = owner.make_task(project, description=text)
    assert task["checks"] == {"done": 2, "total": 3}
    after = owner.data(owner.patch(path(task), {"description": text.replace("[ ] one", "[x] one")}))
    assert after["checks"] == {"done": 3, "total": 3}
    (listed,) = owner.read("/tasks", project_id=project["id"])["tasks"]
    assert listed["checks"] == after["checks"]
    fences = "```\n- [ ] a\n```\n<!--\n- [ ] d -->\n- [x] b\n~~~\n- [ ] c"  # the last one has no end
    assert owner.data(owner.patch(path(task), {"description": fences}))["checks"] == {"done": 1, "total": 1}
    for text, checks in ((None, None), ("\n" * 49_990 + "- [ ] x", {"done": 0, "total": 1})):
        assert owner.data(owner.patch(path(task), {"description": text}))["checks"] == checks
