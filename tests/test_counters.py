"""The counters behind the totals of lists and the statistics of projects agree with the tasks."""

from itertools import product

from harness import Server
from older import older_database, upgrade

from members import Member
from models import STATUSES, Project, Task, write

NEEDS_SOCKET = False


def assert_stored(server):
    """The counters hold the numbers of tasks that there are, by project and status, and by due date."""
    sums = ", ".join(f"SUM(status = '{status}') AS {status}" for status in STATUSES)
    tasks = server.rows(f"SELECT project_id, {sums} FROM task GROUP BY 1 ORDER BY 1")
    columns, filled = ", ".join(STATUSES), " + ".join(STATUSES)
    assert server.rows(f"SELECT project_id, {columns} FROM task_count WHERE {filled} ORDER BY 1") == tasks
    dates = "SELECT project_id, due_date, COUNT(*) AS open FROM task"
    open_tasks = "WHERE status != 'done' AND due_date IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
    assert server.rows("SELECT * FROM due_count ORDER BY 1, 2") == server.rows(f"{dates} {open_tasks}")


def test_the_counters_follow_changes_of_status_due_date_and_project_and_deletions(database, tmp_path):
    server = Server(tmp_path)
    server.database = database.database
    states = [*product(STATUSES, [None, "2020-01-05", "2020-01-06"])]
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        projects = [Project.add(transaction, name="P")["id"] for _ in range(2)]
        only = Task.add(transaction, project_id=projects[1], title="T", due_date="2021-01-01")["id"]
        Task.edit(transaction, only, {"due_date": None}, None)  # a date without a task
        for number, ((status, due), (later, other)) in enumerate(product(states, states)):
            task = Task.add(transaction, project_id=projects[number % 2], title="T", due_date=due)["id"]
            Task.edit(transaction, task, {"status": status}, None)
            moved = {"project_id": projects[number // 2 % 2]}
            Task.edit(transaction, task, {"status": later, "due_date": other} | moved, None)
            if number % 5 == 0:
                Task.remove(transaction, task)
    assert_stored(server)
    with write(owner) as transaction:
        assert len([*Project.remove_with_tasks(transaction, projects[0], force=True)]) > 40
    assert_stored(server)


def test_an_upgrade_counts_the_tasks_that_there_are(tmp_path):
    upgraded = Server(tmp_path)
    older_database(upgraded.database, "0009_makers")
    upgrade(upgraded.database)
    assert upgraded.rows("SELECT 1 FROM due_count")
    assert_stored(upgraded)
