"""Projects with their statistics."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from harness import INSTANT, NOBODY, UUID, fault

EMPTY = {"total": 0, "todo": 0, "in_progress": 0, "review": 0, "done": 0, "overdue": 0, "completion_rate": 0}


def test_a_new_project_is_the_callers_and_active(owner):
    answer = owner.post("/projects", {"name": " Website ", "description": "All of it"})
    project = owner.data(answer, 201)
    assert answer.headers["Location"] == f"/api/v1/projects/{project['id']}"
    assert UUID.fullmatch(project["id"])
    assert INSTANT.fullmatch(project["created_at"])
    assert project.pop("updated_at") == project.pop("created_at")
    assert project.pop("owner")["full_name"] == "Olga Owner"
    id = project.pop("id")
    assert project == {"name": "Website", "description": "All of it", "status": "active", "stats": EMPTY}
    assert owner.data(owner.get(f"/projects/{id}"))["name"] == "Website"


def test_a_project_may_be_somebody_elses(owner, join):
    member = join().member
    project = owner.make_project(owner_id=member["id"])
    assert project["owner"] == {name: member[name] for name in ("id", "full_name", "email", "role")}
    fault(owner.post("/projects", {"name": "x", "owner_id": NOBODY}), 422, "validation_error", "owner_id")


def test_statistics_follow_every_change(owner, project):
    now = datetime.now(UTC)
    past, soon = (now - timedelta(hours=1)).isoformat(), (now + timedelta(hours=1)).isoformat()
    tasks = [owner.make_task(project, due_date=date) for date in (past, past, soon, None)]

    def stats():
        return owner.data(owner.get(f"/projects/{project['id']}"))["stats"]

    assert stats() == {**EMPTY, "total": 4, "todo": 4, "overdue": 2}
    owner.patch(f"/tasks/{tasks[0]['id']}", {"status": "in_progress"})
    owner.post(f"/tasks/{tasks[1]['id']}/complete")
    owner.patch(f"/tasks/{tasks[2]['id']}", {"status": "review"})
    expected = {"total": 4, "todo": 1, "in_progress": 1, "review": 1, "done": 1, "overdue": 1}
    assert stats() == {**expected, "completion_rate": 0.25}
    owner.delete(f"/tasks/{tasks[3]['id']}")
    assert stats() == {**expected, "total": 3, "todo": 0, "completion_rate": 0.3333}


def test_projects_are_listed_by_name_and_by_status(owner):
    names = ["zebra 9", "Écho 9", "alpha 9", "Beta 9"]
    made = {name: owner.make_project(name=name) for name in names}
    owner.patch(f"/projects/{made['Beta 9']['id']}", {"status": "archived"})

    def listed(**query):
        projects = owner.data(owner.get("/projects", **query))["projects"]
        ids = {project["id"] for project in made.values()}
        return [project["name"] for project in projects if project["id"] in ids]

    assert listed() == ["alpha 9", "Beta 9", "zebra 9", "Écho 9"]
    assert listed(status="active") == ["alpha 9", "zebra 9", "Écho 9"]
    assert listed(status="archived") == ["Beta 9"]
    fault(owner.get("/projects", status="done"), 422, "validation_error", "status")


def test_an_update_changes_what_was_sent(owner, project, join):
    member = join().member
    body = {"name": "New", "description": "Words", "status": "archived", "owner_id": member["id"]}
    after = owner.data(owner.patch(f"/projects/{project['id']}", body))
    assert (after["name"], after["description"], after["status"]) == ("New", "Words", "archived")
    assert after["owner"]["id"] == member["id"]
    assert owner.data(owner.patch(f"/projects/{project['id']}", {})) == after
    cleared = owner.data(owner.patch(f"/projects/{project['id']}", {"description": None}))
    assert cleared["description"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": None}, "name"),
        ({"name": " "}, "name"),
        ({"status": "done"}, "status"),
        ({"owner_id": NOBODY}, "owner_id"),
        ({"owner_id": None}, "owner_id"),
        ({"stats": {}}, "stats"),
    ],
)
def test_a_wrong_update_is_refused_whole(owner, project, body, field):
    fault(owner.patch(f"/projects/{project['id']}", {"name": "New"} | body), 422, "validation_error", field)
    assert owner.data(owner.get(f"/projects/{project['id']}")) == project


def test_status_is_not_accepted_on_create(owner):
    fault(owner.post("/projects", {"name": "x", "status": "active"}), 422, "validation_error", "status")


def test_a_project_with_tasks_is_deleted_by_force_alone(owner, project):
    tasks = [owner.make_task(project) for _ in range(3)]
    error = fault(owner.delete(f"/projects/{project['id']}"), 409, "conflict")
    assert error["message"].startswith("the project has 3 tasks")
    fault(owner.delete(f"/projects/{project['id']}?force=yes"), 422, "validation_error", "force")
    answer = owner.delete(f"/projects/{project['id']}?force=true")
    assert owner.data(answer) == {"id": project["id"], "deleted": True}
    fault(owner.get(f"/tasks/{tasks[0]['id']}"), 404, "not_found")
    fault(owner.delete(f"/projects/{project['id']}"), 404, "not_found")


def test_a_project_with_tasks_is_not_deleted_where_its_counter_says_that_it_has_none(launch):
    server = launch()
    owner = server.client()
    project = owner.make_project()
    task = owner.make_task(project)
    server.rows("DELETE FROM task_count")
    fault(owner.delete(f"/projects/{project['id']}"), 409, "conflict")
    assert owner.get(f"/tasks/{task['id']}").status_code == 200


def test_a_project_is_deleted_with_its_many_tasks_in_one_transaction(launch):
    server = launch()
    owner = server.client()
    server.flask("seed", "--tasks", "3000")
    sql = "SELECT project_id, COUNT(*) FROM task GROUP BY project_id ORDER BY 2 DESC LIMIT 1"
    ((id, count),) = (row.values() for row in server.rows(sql))
    assert count > 500  # which are deleted at a time
    ids = {row["id"] for row in server.rows("SELECT id FROM task WHERE project_id = ?", id)}
    assert owner.data(owner.delete(f"/projects/{id}?force=true")) == {"id": id, "deleted": True}
    assert server.rows("SELECT COUNT(*) AS n FROM task") == [{"n": 3000 - count}]
    events = server.rows("SELECT body, created_at FROM event WHERE name = 'task.deleted'")
    assert {json.loads(event["body"])["data"]["task"]["id"] for event in events} == ids
    activities = server.rows("SELECT entity_id, created_at FROM activity WHERE action = 'deleted'")
    assert {activity["entity_id"] for activity in activities} == ids | {id}
    assert len({row["created_at"] for row in events + activities}) == 1  # that of the transaction
    assert server.flask("doctor").returncode == 0


def test_a_project_whose_deletion_breaks_off_keeps_all_of_its_tasks(launch):
    server = launch()
    owner = server.client()
    server.flask("seed", "--tasks", "3000")
    sql = "SELECT project_id AS id FROM task GROUP BY project_id ORDER BY COUNT(*) DESC LIMIT 1"
    ((id,),) = (row.values() for row in server.rows(sql))
    before = owner.data(owner.get("/tasks", project_id=id))["pagination"]
    # The project itself goes last.
    server.rows("CREATE TRIGGER refuse BEFORE DELETE ON project BEGIN SELECT RAISE(ABORT, 'not now'); END")
    server.allow_bugs = True
    headers = {"Authorization": f"Bearer {owner.key}"}
    assert owner.session.delete(f"{owner.base}/projects/{id}?force=true", headers=headers).status_code == 500
    assert owner.data(owner.get("/tasks", project_id=id))["pagination"] == before
    assert server.rows("SELECT 1 FROM event WHERE name = 'task.deleted'") == []


@pytest.mark.parametrize("id", [NOBODY, "x"])
def test_a_project_that_does_not_exist_is_not_found(owner, id):
    fault(owner.get(f"/projects/{id}"), 404, "not_found")
    fault(owner.patch(f"/projects/{id}", {"name": "x"}), 404, "not_found")
    fault(owner.delete(f"/projects/{id}"), 404, "not_found")


def test_null_as_owner_means_the_caller_and_later_nobody(owner):
    made = owner.make_project(owner_id=None)
    assert made["owner"] == owner.make_project()["owner"]
    fault(owner.patch(f"/projects/{made['id']}", {"owner_id": None}), 422, "validation_error", "owner_id")


def test_lists_show_the_beginning_of_a_long_description_and_the_project_all_of_it(owner):
    made = [owner.make_project(description=text) for text in ("é" * 1000, "é" * 1001, None)]
    for path in ("/projects", "/projects?status=active", "/context"):
        listed = {project["id"]: project for project in owner.data(owner.get(path))["projects"]}
        shown = [
            (listed[project["id"]]["description"], listed[project["id"]]["description_cut"])
            for project in made
        ]
        assert shown == [("é" * 1000, False), ("é" * 1000, True), (None, False)]
    assert owner.data(owner.get(f"/projects/{made[1]['id']}"))["description"] == "é" * 1001
