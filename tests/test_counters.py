"""The totals of lists and the statistics of projects agree with the tasks."""

import random
from functools import partial

import pytest
from harness import Server, at_once
from upgrades import older_database, upgrade

from models import PRIORITIES, STATUSES


@pytest.fixture(scope="module")
def server(launch_module):
    return launch_module()


@pytest.fixture(scope="module")
def members(server):
    """The ids of some members."""
    owner, body = server.client(), {"role": "member", "full_name": "M"}
    invitations = [owner.post("/members/invite", body | {"email": f"{n}@example.com"}) for n in range(3)]
    return [owner.data(answer, 201)["member"]["id"] for answer in invitations]


@pytest.fixture
def places(server):
    """Two projects with two milestones each."""
    owner = server.client()
    projects = [owner.make_project()["id"] for _ in range(2)]
    return {
        project: [
            owner.data(owner.post(f"/projects/{project}/milestones", {"title": title}), 201)["id"]
            for title in ("First", "Second")
        ]
        for project in projects
    }


def work(owner, places, members, choose, number):
    """Make, change and delete some tasks at random."""
    mine = []
    for step in range(number):
        project = choose.choice([*places])
        task = owner.make_task(
            {"id": project},
            title=f"Task {step}",
            milestone_id=choose.choice([None, *places[project]]),
            assignee_id=choose.choice([None, *members]),
            priority=choose.choice(PRIORITIES),
            due_date=choose.choice([None, "2020-01-05", "2020-02-05T10:00:00Z", "2999-01-01"]),
        )
        mine.append(task["id"])
        path = f"/tasks/{choose.choice(mine)}"
        how = choose.randrange(5)
        if how == 0:
            body = {"status": choose.choice(STATUSES), "assignee_id": choose.choice([None, *members])}
            owner.data(owner.patch(path, body))
        elif how == 1:
            owner.data(owner.post(f"{path}/complete"))
        elif how == 2 and len(mine) > 1:
            owner.data(owner.delete(f"/tasks/{mine.pop()}"))
        elif how == 3:
            due_date = choose.choice([None, "2020-01-05", "2020-01-05T10:00:00Z", "2999-01-02"])
            owner.data(owner.patch(f"{path}/details", {"due_date": due_date}))


def assert_stored(server):
    """The counters hold the numbers of tasks that there are, by project and status, and by day."""
    sums = ", ".join(f"SUM(status = '{status}') AS {status}" for status in STATUSES)
    tasks = server.rows(f"SELECT project_id, {sums} FROM task GROUP BY 1 ORDER BY 1")
    columns, filled = ", ".join(STATUSES), " + ".join(STATUSES)
    assert server.rows(f"SELECT project_id, {columns} FROM task_count WHERE {filled} ORDER BY 1") == tasks
    days = "SELECT project_id, SUBSTR(due_date, 1, 10) AS day, COUNT(*) AS open FROM task"
    open_tasks = "WHERE status != 'done' AND due_date IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
    assert server.rows("SELECT * FROM due_count ORDER BY 1, 2") == server.rows(f"{days} {open_tasks}")


def assert_counted(server):
    """The counters are right, and lists and projects tell the numbers of tasks that there are."""
    assert_stored(server)
    owner, tasks = server.client(), server.rows("SELECT * FROM task")
    for name in ("project_id", "milestone_id", "assignee_id", "priority"):
        for value in {task[name] for task in tasks} - {None}:
            for status in (None, "done"):
                some = [task for task in tasks if task[name] == value and status in (None, task["status"])]
                answer = owner.get("/tasks", limit=1, **{name: value, "status": status})
                assert owner.data(answer)["pagination"]["total"] == len(some), (name, value, status)
    for project in owner.data(owner.get("/projects"))["projects"]:
        of_project = [task for task in tasks if task["project_id"] == project["id"]]
        late = [
            task for task in of_project if task["status"] != "done" and (task["due_date"] or "9") < "2026"
        ]
        counts = {name: sum(task["status"] == name for task in of_project) for name in STATUSES}
        expected = counts | {"total": len(of_project), "overdue": len(late)}
        assert project["stats"] | expected == project["stats"]


def test_the_counters_follow_changes_that_are_made_at_the_same_time(server, places, members):
    calls = [partial(work, server.client(), places, members, random.Random(n), 15) for n in range(6)]
    at_once(*calls)
    assert_counted(server)


def test_what_is_deleted_is_not_counted_any_more(server, places, members):
    owner = server.client()
    work(owner, places, members, random.Random(5), 60)
    project, other = places
    owner.data(owner.delete(f"/members/{members.pop()}"))
    owner.data(owner.delete(f"/milestones/{places[other][0]}"))
    owner.data(owner.delete(f"/projects/{project}?force=true"))
    assert_counted(server)


def test_an_upgrade_counts_the_tasks_that_there_are(tmp_path):
    upgraded = Server(tmp_path)
    older_database(upgraded.database, "0009_makers")
    upgrade(upgraded.database)
    assert upgraded.rows("SELECT 1 FROM due_count")
    assert_stored(upgraded)
