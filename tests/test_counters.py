"""The totals of lists and the statistics of projects agree with the tasks."""

import random
import sqlite3
from contextlib import closing

import pytest
from harness import at_once
from upgrades import older_database, upgrade

from models import PRIORITIES, STATUSES


@pytest.fixture
def workspace(launch):
    """A server of our own, with projects, milestones and members to choose from."""
    server = launch()
    owner = server.client()
    owner.server = server
    owner.projects = [owner.make_project(name=f"Project {number}") for number in range(2)]
    owner.milestones = {
        project["id"]: [
            owner.data(owner.post(f"/projects/{project['id']}/milestones", {"title": title}), 201)
            for title in ("First", "Second")
        ]
        for project in owner.projects
    }
    body = {"role": "member", "full_name": "M"}
    invitations = [owner.post("/members/invite", body | {"email": f"{n}@example.com"}) for n in range(3)]
    owner.members = [owner.data(answer, 201)["member"]["id"] for answer in invitations]
    return owner


def work(owner, choose, number):
    """Make, change and delete some tasks at random."""
    mine = []
    for step in range(number):
        project = choose.choice(owner.projects)
        task = owner.make_task(
            project,
            title=f"Task {step}",
            milestone_id=choose.choice([None, *(m["id"] for m in owner.milestones[project["id"]])]),
            assignee_id=choose.choice([None, *owner.members]),
            priority=choose.choice(PRIORITIES),
            due_date=choose.choice([None, "2020-01-05", "2020-02-05T10:00:00Z", "2999-01-01"]),
        )
        mine.append(task["id"])
        path = f"/tasks/{choose.choice(mine)}"
        how = choose.randrange(5)
        if how == 0:
            body = {"status": choose.choice(STATUSES), "assignee_id": choose.choice([None, *owner.members])}
            owner.data(owner.patch(path, body))
        elif how == 1:
            owner.data(owner.post(f"{path}/complete"))
        elif how == 2 and len(mine) > 1:
            owner.data(owner.delete(f"/tasks/{mine.pop()}"))
        elif how == 3:
            due_date = choose.choice([None, "2020-01-05", "2020-01-05T10:00:00Z", "2999-01-02"])
            owner.data(owner.patch(f"{path}/details", {"due_date": due_date}))


def assert_counted(owner):
    """`doctor` finds nothing wrong, and lists and projects tell the numbers of tasks that there are."""
    found = owner.server.flask("doctor")
    assert found.returncode == 0, found.stdout + found.stderr
    tasks = owner.server.rows("SELECT * FROM task")
    for name in ("project_id", "milestone_id", "assignee_id", "priority", "status"):
        for value in {task[name] for task in tasks} - {None}:
            some = [task for task in tasks if task[name] == value]
            page = owner.data(owner.get("/tasks", limit=1, **{name: value}))["pagination"]
            assert page["total"] == len(some), (name, value)
            done = [task for task in some if task["status"] == "done"]
            if name != "status":
                query = {name: value, "status": "done", "limit": 1}
                assert owner.data(owner.get("/tasks", **query))["pagination"]["total"] == len(done)
    open_tasks = "FROM task WHERE status != 'done' AND due_date IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
    counted = owner.server.rows(
        f"SELECT project_id, SUBSTR(due_date, 1, 10) AS day, COUNT(*) AS open {open_tasks}"
    )
    assert owner.server.rows("SELECT * FROM due_count ORDER BY 1, 2") == counted
    for project in owner.data(owner.get("/projects"))["projects"]:
        of_project = [task for task in tasks if task["project_id"] == project["id"]]
        late = [
            task for task in of_project if task["status"] != "done" and (task["due_date"] or "9") < "2026"
        ]
        counts = {name: sum(task["status"] == name for task in of_project) for name in STATUSES}
        expected = counts | {"total": len(of_project), "overdue": len(late)}
        assert {name: project["stats"][name] for name in expected} == expected


def test_whatever_happens_to_tasks_the_counters_follow(workspace):
    work(workspace, random.Random(3), 60)
    assert_counted(workspace)


def test_the_counters_follow_changes_that_are_made_at_the_same_time(workspace):
    clients = [workspace.server.client() for _ in range(6)]
    for client in clients:
        client.projects, client.milestones = workspace.projects, workspace.milestones
        client.members = workspace.members
    at_once(*[lambda c=c, n=n: work(c, random.Random(n), 15) for n, c in enumerate(clients)])
    assert_counted(workspace)


def test_what_is_deleted_is_not_counted_any_more(workspace):
    work(workspace, random.Random(5), 60)
    project, other = workspace.projects
    workspace.data(workspace.delete(f"/members/{workspace.members[0]}"))
    workspace.data(workspace.delete(f"/milestones/{workspace.milestones[other['id']][0]['id']}"))
    workspace.data(workspace.delete(f"/projects/{project['id']}?force=true"))
    assert_counted(workspace)


def test_a_project_without_tasks_has_zeros(workspace):
    stats = workspace.make_project()["stats"]
    assert stats == {**dict.fromkeys(("total", *STATUSES, "overdue"), 0), "completion_rate": 0.0}


def test_tasks_that_are_due_today_are_overdue_from_their_time_on(workspace):
    project = workspace.projects[0]
    now = workspace.data(workspace.get("/context"))["system"]["current_time"]
    for due in (now, f"{now[:10]}T23:59:59.999Z"):
        workspace.make_task(project, due_date=due)
    stats = workspace.data(workspace.get(f"/projects/{project['id']}"))["stats"]
    later = workspace.data(workspace.get("/context"))["system"]["current_time"]
    assert later[:10] == now[:10], "it was midnight"
    assert stats["overdue"] == 1


def test_an_upgrade_counts_the_tasks_that_there_are(tmp_path):
    path = tmp_path / "older" / "tasks.db"
    older_database(path, "0009_makers")
    upgrade(path)
    with closing(sqlite3.connect(path)) as database:
        tasks = "SELECT project_id, status, COUNT(*) FROM task GROUP BY 1, 2"
        counted = {(project, status): count for project, status, count in database.execute(tasks)}
        rows = database.execute("SELECT project_id, todo, in_progress, review, done FROM task_count")
        stored = {(project, name): n for project, *row in rows for name, n in zip(STATUSES, row, strict=True)}
        assert counted == {place: count for place, count in stored.items() if count}
        due = "SELECT SUM(status != 'done' AND due_date IS NOT NULL) FROM task"
        both = database.execute(f"{due} UNION ALL SELECT SUM(open) FROM due_count").fetchall()
        assert both[0] == both[1]
