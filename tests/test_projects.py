"""Projects with their statistics."""

import json
from datetime import UTC, datetime, timedelta

from harness import INSTANT, UUID, add_copies, fault, invoke
from test_deleted import fails_midway

NEEDS_SOCKET = False

EMPTY = {"total": 0, "todo": 0, "in_progress": 0, "review": 0, "done": 0, "overdue": 0, "completion_rate": 0}


def test_a_new_project_is_active_and_the_callers_unless_it_is_given_to_somebody_else(owner, join):
    answer = owner.post("/projects", {"name": " Website ", "description": "All of it"})
    project = owner.data(answer, 201)
    assert answer.headers["Location"] == f"/api/v1/projects/{project['id']}"
    assert UUID.fullmatch(project["id"])
    assert INSTANT.fullmatch(project["created_at"])
    assert project["owner"]["full_name"] == "Olga Owner"
    made = {"name": "Website", "description": "All of it", "status": "active", "stats": EMPTY}
    made |= {name: project[name] for name in ("id", "owner", "created_at")}
    assert project == made | {"updated_at": project["created_at"]}
    assert owner.read(f"/projects/{project['id']}") == project
    member = join().member
    project = owner.make_project(owner_id=member["id"])
    assert project["owner"] == {name: member[name] for name in ("id", "full_name", "email", "role")}
    assert owner.make_project(owner_id=None)["owner"]["full_name"] == "Olga Owner"


def test_statistics_follow_every_change(owner, project):
    now = datetime.now(UTC)
    past, soon = (now - timedelta(hours=1)).isoformat(), (now + timedelta(hours=1)).isoformat()
    tasks = [owner.make_task(project, due_date=date) for date in (past, past, soon, None)]

    def stats():
        return owner.read(f"/projects/{project['id']}")["stats"]

    assert stats() == {**EMPTY, "total": 4, "todo": 4, "overdue": 2}
    owner.patch(f"/tasks/{tasks[0]['id']}", {"status": "in_progress"})
    owner.post(f"/tasks/{tasks[1]['id']}/complete")
    owner.patch(f"/tasks/{tasks[2]['id']}", {"status": "review"})
    expected = {"total": 4, "todo": 1, "in_progress": 1, "review": 1, "done": 1, "overdue": 1}
    assert stats() == {**expected, "completion_rate": 0.25}
    owner.delete(f"/tasks/{tasks[3]['id']}")
    assert stats() == {**expected, "total": 3, "todo": 0, "completion_rate": 0.3333}


def test_projects_are_listed_by_name_and_by_status(owner):
    made = {name: owner.make_project(name=name) for name in ["zebra 9", "Écho 9", "alpha 9", "Beta 9"]}
    owner.patch(f"/projects/{made['Beta 9']['id']}", {"status": "archived"})

    def listed(**query):
        projects = owner.read("/projects", **query)["projects"]
        ids = {project["id"] for project in made.values()}
        return [project["name"] for project in projects if project["id"] in ids]

    assert listed() == ["alpha 9", "Beta 9", "Écho 9", "zebra 9"]
    assert listed(status="active") == ["alpha 9", "Écho 9", "zebra 9"]
    assert listed(status="archived") == ["Beta 9"]


def test_an_update_changes_what_was_sent(owner, project, join):
    member = join().member
    body = {"name": "New", "description": "Words", "status": "archived", "owner_id": member["id"]}
    path = f"/projects/{project['id']}"
    after = owner.data(owner.patch(path, body))
    assert after | {name: body[name] for name in ("name", "description", "status")} == after
    assert after["owner"]["id"] == member["id"]
    assert owner.data(owner.patch(path, {})) == after
    assert owner.data(owner.patch(path, {"description": None}))["description"] is None


def test_a_project_with_tasks_is_deleted_by_force_alone(owner, project):
    tasks = [owner.make_task(project) for _ in range(3)]
    error = fault(owner.delete(f"/projects/{project['id']}"), 409, "conflict")
    assert error["message"].startswith("the project has 3 tasks")
    fault(owner.delete(f"/projects/{project['id']}?force=yes"), 422, "validation_error", "force")
    answer = owner.delete(f"/projects/{project['id']}?force=true")
    assert owner.data(answer) == {"id": project["id"], "deleted": True}
    fault(owner.get(f"/tasks/{tasks[0]['id']}"), 404, "not_found")
    fault(owner.delete(f"/projects/{project['id']}"), 404, "not_found")


def test_a_project_is_deleted_with_its_many_tasks_in_one_transaction_or_keeps_them_all(launch_here):
    """Of its tasks 500 are deleted at a time."""
    server = launch_here()
    owner = server.client()
    task = owner.make_task(owner.make_project())
    ids, path = {*add_copies(server, task, 1100), task["id"]}, f"/projects/{task['project_id']}"
    before = owner.read("/tasks")
    fails_midway(server, owner, "DELETE ON project", f"{path}?force=true", method="DELETE")  # it goes last
    assert owner.read("/tasks") == before
    assert server.rows("SELECT 1 FROM event WHERE name = 'task.deleted'") == []
    bugs = server.log.read_text().count("Traceback")
    assert owner.data(owner.delete(f"{path}?force=true"))["deleted"] is True
    assert server.rows("SELECT 1 FROM task") == []
    events = server.rows("SELECT body, created_at FROM event WHERE name = 'task.deleted'")
    told = [json.loads(event["body"])["data"]["task"] for event in events]
    assert {row["id"] for row in told} == ids
    assert task in told
    activities = server.rows("SELECT entity_id, created_at FROM activity WHERE action = 'deleted'")
    assert {activity["entity_id"] for activity in activities} == {*ids, task["project_id"]}
    assert len({row["created_at"] for row in events + activities}) == 1  # the transaction's time
    assert invoke(server, "doctor").exit_code == 0
    assert server.log.read_text().count("Traceback") == bugs


def test_lists_show_the_beginning_of_a_long_description_and_the_project_all_of_it(owner):
    made = [owner.make_project(description=text) for text in ("é" * 1000, "é" * 1001, None)]
    beginnings = [("é" * 1000, False), ("é" * 1000, True), (None, False)]
    for path in ("/projects", "/projects?status=active", "/context"):
        listed = {project["id"]: project for project in owner.read(path)["projects"]}
        found = [listed[project["id"]] for project in made]
        assert [(project["description"], project["description_cut"]) for project in found] == beginnings
    assert owner.read(f"/projects/{made[1]['id']}")["description"] == "é" * 1001
