"""Creating, reading, updating, completing and deleting one task."""

import pytest
from harness import INSTANT, NOBODY, UUID, fault
from test_attachments import attach

NEEDS_SOCKET = False

PROFILE = ("id", "full_name", "email", "role")


def test_a_new_task_has_defaults_and_every_key(owner, project):
    answer = owner.post("/tasks", {"project_id": project["id"], "title": "  Draft  "})
    task = owner.data(answer, 201)
    assert UUID.fullmatch(task["id"])
    assert INSTANT.fullmatch(task["created_at"])
    unset = ("milestone_id", "description", "assignee_id", "start_date", "due_date", "completed_at")
    unset += ("external_id", "claimed_until", "question_id", "checks", "repeat", "repeats")
    default = dict.fromkeys(unset) | {"status": "todo", "priority": "medium", "version": 1}
    default |= {"repeat_from": "due_date", "labels": [], "rank": str(5_000_000_000 + task["number"])}
    default |= {"blocked_by": [], "tries": 0, "metadata": {}, "created_by": project["owner"]["id"]}
    made = {name: task[name] for name in ("id", "number", "created_at")} | {"updated_at": task["created_at"]}
    assert task == default | made | {"project_id": project["id"], "title": "Draft"}
    assert answer.headers["Location"] == f"/api/v1/tasks/{task['id']}"
    assert answer.headers["ETag"] == '"1"'
    shown = owner.read(f"/tasks/{task['id']}")
    assert (shown["milestone"], shown["assignee"], shown["attachments"]) == (None, None, [])


def test_everything_that_was_sent_comes_back(owner, project, milestone, join):
    sent = {"project_id": project["id"], "milestone_id": milestone["id"], "assignee_id": join().member["id"]}
    sent |= {"title": "Écrire la page", "description": "Two\nlines\tand 🎉", "priority": "urgent"}
    sent |= {"start_date": "2026-12-01T08:00:00.000Z", "due_date": "2026-12-24T18:30:00.500Z"}
    sent["metadata"] = {"estimate": 3, "nested": {"list": [1, 2.5, None, True, "é"]}}
    task = owner.make("/tasks", sent)
    assert task | sent == task
    shown = owner.read(f"/tasks/{task['id']}")
    assert shown | task == shown
    capitals = owner.make_task({"id": project["id"].upper()})  # ids in capitals are the same ids
    assert capitals["project_id"] == project["id"]
    assert owner.get(f"/tasks/{task['id'].upper()}").status_code == 200


def test_every_reference_that_does_not_exist_is_named(owner):
    body = {"project_id": NOBODY, "milestone_id": NOBODY, "assignee_id": NOBODY, "title": "A task"}
    error = fault(owner.post("/tasks", body), 422, "validation_error")
    assert [d["field"] for d in error["details"]] == ["project_id", "milestone_id", "assignee_id"]


def test_a_task_is_shown_with_its_context(owner, project, milestone, join):
    assignee = join("client").member
    made = owner.make_task(project, milestone_id=milestone["id"], assignee_id=assignee["id"])
    for text in ("One", "Two"):
        owner.make(f"/tasks/{made['id']}/comments", {"content": text})
    attachment = owner.data(attach(owner, made), 201)
    answer = owner.get(f"/tasks/{made['id']}")
    of = {name: project[name] for name in ("id", "name", "status")} | {"owner_id": project["owner"]["id"]}
    shown = {"project": of, "creator": project["owner"], "comment_count": 2, "attachments": [attachment]}
    shown["milestone"] = {"id": milestone["id"], "title": "M", "due_date": None}
    shown["assignee"] = {name: assignee[name] for name in PROFILE}
    assert owner.data(answer) == made | shown | {"next_number": None, "done_blockers": [], "blocks": []}
    assert answer.headers["ETag"] == '"1"'


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_an_update_changes_what_was_sent_and_nothing_else(owner, project, join, method):
    assignee = join().member
    before = owner.make_task(project, description="Stays", metadata={"a": 1}, due_date="2026-12-24")
    body = {"title": "New", "status": "review", "assignee_id": assignee["id"], "metadata": {"b": [2]}}
    answer = owner.request(method, f"/tasks/{before['id']}", json=body)
    after = owner.data(answer)
    assert answer.headers["ETag"] == '"2"'
    assert after["updated_at"] >= before["updated_at"]
    assert after == {**before, **body, "version": 2, "updated_at": after["updated_at"]}


def test_an_update_takes_four_fields_and_says_so(owner, task):
    for name in task.keys() - {"title", "status", "assignee_id", "metadata"}:
        error = fault(owner.patch(f"/tasks/{task['id']}", {name: task[name]}), 422, "validation_error", name)
        others = "; PATCH /tasks/:id/details accepts more fields"
        assert error["message"].endswith(f"accepted: title, status, assignee_id, metadata{others}")


def test_any_status_may_follow_any_and_completion_is_noted(owner, task):
    for status in ("done", "todo", "review", "done", "in_progress"):
        after = owner.data(owner.patch(f"/tasks/{task['id']}", {"status": status}))
        assert after["status"] == status
        assert after["completed_at"] == (after["updated_at"] if status == "done" else None)


def test_an_expected_version_is_honoured_and_another_one_refused(owner, task):
    compressed = ('W/"4"', '"5-gzip"', '"6-zstd"', '"7--gzip"', '"8;gzip"')
    for version, tag in enumerate(('"1"', "*", '"7", "3"', *compressed), 2):
        answer = owner.patch(f"/tasks/{task['id']}", {"title": f"T{version}"}, headers={"If-Match": tag})
        assert owner.data(answer)["version"] == version
    for method, path, body in (
        *(("PATCH", "", {"title": "New"}), ("PATCH", "/details", {"priority": "low"})),
        *(("DELETE", "", None), ("PUT", "", {"title": "New"})),
        *((method, "/complete", None) for method in ("POST", "PATCH", "PUT")),
    ):
        for tag in ('"2"', 'W/"2"', '"x"', '""', '"2", "3"'):  # of version 9
            answer = owner.request(method, f"/tasks/{task['id']}{path}", json=body, headers={"If-Match": tag})
            fault(answer, 412, "precondition_failed")
    assert owner.read(f"/tasks/{task['id']}")["version"] == 9


def test_a_precondition_that_would_be_ignored_is_refused(owner, task):
    path, nothing = f"/tasks/{task['id']}", f"/tasks/{NOBODY}"
    for method, place, name, body in (
        ("PATCH", "/tasks/batch", "If-Match", {"tasks": [task["id"]], "changes": {"title": "x"}}),
        ("POST", f"{path}/copy", "If-Match", {}),
        ("POST", f"{path}/comments", "If-Match", {"content": "x"}),
        ("PATCH", f"/projects/{task['project_id']}", "If-Match", {"name": "x"}),
        *(("PATCH", nothing, "If-None-Match", {}), ("DELETE", nothing, "If-None-Match", None)),
    ):
        fault(owner.request(method, place, json=body, headers={name: '"1"'}), 422, "validation_error", name)
    assert owner.read(path)["version"] == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT"])
def test_completing_sets_done_once(owner, task, method):
    path = f"/tasks/{task['id']}/complete"
    after = owner.data(owner.request(method, path))
    assert (after["status"], after["version"]) == ("done", 2)
    assert after["completed_at"] == after["updated_at"]
    assert owner.data(owner.request(method, path, json={})) == after
