"""The counters behind the totals of lists and the statistics of projects agree with the tasks."""

from itertools import product

from harness import Server
from older import older_database, upgrade

from members import TASKS_SEEN
from models import STATUSES


def assert_stored(server):
    """The counters hold the numbers of tasks that there are, by project and status, and by due date."""
    sums = ", ".join(f"SUM(status = '{status}') AS {status}" for status in STATUSES)
    tasks = server.rows(f"SELECT project_id, {sums} FROM task GROUP BY 1 ORDER BY 1")
    columns, filled = ", ".join(STATUSES), " + ".join(STATUSES)
    assert filled in TASKS_SEEN.sql, "members.py must add up the counters of all statuses"
    assert server.rows(f"SELECT project_id, {columns} FROM task_count WHERE {filled} ORDER BY 1") == tasks
    dates = "SELECT project_id, due_date, COUNT(*) AS open FROM task"
    open_tasks = "WHERE status != 'done' AND due_date IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
    assert server.rows("SELECT * FROM due_count ORDER BY 1, 2") == server.rows(f"{dates} {open_tasks}")


def test_the_counters_follow_every_change_of_status_due_date_and_project_and_every_deletion(launch):
    server = launch()
    owner = server.client()
    projects = [owner.make_project() for _ in range(2)]
    only = owner.make_task(projects[1], due_date="2021-01-01")
    owner.data(owner.patch(f"/tasks/{only['id']}/details", {"due_date": None}))  # a date without a task
    states = [*product(STATUSES, [None, "2020-01-05", "2020-01-06"])]
    for number, ((status, due), (later, other)) in enumerate(product(states, states)):
        path = f"/tasks/{owner.make_task(projects[number % 2], due_date=due)['id']}/details"
        owner.data(owner.patch(path, {"status": status}))
        moved = {"project_id": projects[number // 2 % 2]["id"]}
        owner.data(owner.patch(path, {"status": later, "due_date": other} | moved))
        if number % 5 == 0:
            owner.data(owner.delete(path.removesuffix("/details")))
    assert_stored(server)
    owner.data(owner.delete(f"/projects/{projects[0]['id']}?force=true"))
    assert_stored(server)


def test_an_upgrade_counts_the_tasks_that_there_are(tmp_path):
    upgraded = Server(tmp_path)
    older_database(upgraded.database, "0009_makers")
    upgrade(upgraded.database)
    assert upgraded.rows("SELECT 1 FROM due_count")
    assert_stored(upgraded)
