"""Tasks that are due soon: the event and the notice, once for each due date."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from harness import PATIENT, hook, invoke, last_event, wait_until
from test_inbox import change, emptied, inbox, of, unread


@pytest.fixture(scope="module")
def receivers(make_receiver):
    return {name: make_receiver().up() for name in ("json", "slack", "others")}


@pytest.fixture(scope="module")
def server(launch_module, receivers):
    """A server in Berlin that tells of due dates; one webhook names them not."""
    asked = {"events": ["task.due"]}
    others = {"json": asked, "slack": asked | {"format": "slack"}, "others": {"events": ["task.updated"]}}
    hooks = [hook(receivers[name], name=name, **fields) for name, fields in others.items()]
    return launch_module(hooks=hooks, TASKS_WORKSPACE__TIMEZONE="Europe/Berlin", **PATIENT)


@pytest.fixture(scope="module")
def ana(server):
    return server.join()


def soon(hours=1):
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


def test_a_task_that_is_due_is_told_once_for_each_due_date(server, receivers, owner, ana):
    project = owner.make_project()
    far = owner.make_task(project, title="Far", assignee_id=of(ana), due_date=soon(25))
    task = owner.make_task(project, title="Near", assignee_id=of(ana), due_date=soon(23))
    event = receivers["json"].next().event
    assert (event["event"], event["actor"]) == ("task.due", None)
    assert (event["data"]["task"]["id"], event["data"]["task"]["version"]) == (task["id"], 1)
    listed = owner.read("/events", limit=100)["events"]
    assert [one["event"] for one in listed if one["id"] == event["id"]] == ["task.due"]
    assert unread(ana) == ["due", "assigned", "assigned"]
    (notice,) = inbox(ana, limit=1)["notices"]
    assert (notice["actor"], notice["excerpt"], notice["task"]["id"]) == (None, "", task["id"])
    emptied(ana)
    change(owner, task, title="Nearer")
    change(owner, task, due_date=soon(2))  # a moved one is sent again
    assert receivers["json"].next().event["data"]["task"]["version"] == 3
    change(owner, far, due_date=soon(3))
    assert receivers["json"].next().event["data"]["task"]["id"] == far["id"]
    assert sorted(unread(ana)) == ["due", "due"]
    assert receivers["json"].all_here() == []
    assert [call.event["event"] for call in receivers["others"].all_here()] == ["task.updated"] * 3
    change(owner, task, due_date=soon(48))
    assert unread(ana) == ["due"]
    change(owner, far, assignee_id=None)
    assert unread(ana) == []


def test_a_chat_says_when_the_task_is_due(receivers, owner):
    receivers["slack"].all_here()
    day = datetime.now(ZoneInfo("Europe/Berlin")).date().isoformat()  # which ends within 24 hours
    for due in (day, f"{day}T21:59:00Z"):
        owner.make_task(owner.make_project(), title="Ship", due_date=due)
    calls = [receivers["slack"].next().event for _ in range(2)]
    texts = [call["text"].partition("|")[2] for call in calls]
    for call, text in zip(calls, texts, strict=True):
        link, rest = call["blocks"][0]["elements"][0]["elements"]  # which is what people see
        assert (link["type"], link["text"], rest["text"]) == ("link", "Ship", f" {text.partition('> ')[2]}")
    assert [text.partition("> ")[0] for text in texts] == ["Ship", "Ship"]
    times = ("", " 22:59 (Europe/Berlin)", " 23:59 (Europe/Berlin)")
    assert {text.partition("> ")[2] for text in texts} <= {f"is due {day}{time}" for time in times}


def test_done_archived_late_and_imported_tasks_cause_no_due_notice(server, receivers, owner, ana, tmp_path):
    wait_until(lambda: not server.rows("SELECT 1 FROM delivery WHERE status = 'pending'"))
    receivers["json"].all_here()
    archived, project = owner.make_project(), owner.make_project()
    tasks = [owner.make_task(archived), owner.make_task(project), owner.make_task(project)]
    owner.data(owner.patch(f"/projects/{archived['id']}", {"status": "archived"}))
    owner.data(owner.post(f"/tasks/{tasks[1]['id']}/complete"))
    for task, due in zip(tasks, (soon(), soon(), soon(-8 * 24)), strict=True):
        change(owner, task, due_date=due)
    (tmp_path / "tasks.csv").write_text(f"title,project,due_date\nImported,New,{soon()}\n")
    assert invoke(server, "import", tmp_path / "tasks.csv", "--apply").exit_code == 0
    emptied(ana)
    nobody_s = ana.make_task(project, due_date=soon(), title="Nobody's")
    assert receivers["json"].next().event["data"]["task"]["id"] == nobody_s["id"]
    assert receivers["json"].all_here() == []
    wait_until(lambda: unread(ana) == ["due"])  # who has created it
    server.agent("Bot that plans").make_task(ana.make_project(), due_date=soon())
    assert receivers["json"].next()
    wait_until(lambda: unread(ana) == ["due", "due"])  # whose project it is


def test_a_due_date_that_a_crash_interrupts_is_told_once(launch, receiver):
    hooks = [hook(receiver, events=["task.due"])]
    server = launch(hooks=hooks, TASKS_DELIVERY__SWEEPER="false")
    owner = server.client()
    owner.make_task(owner.make_project(), due_date=soon())
    server.kill()
    for _ in range(2):
        server = launch(folder=server.folder, hooks=hooks)
        wait_until(lambda: server.rows("SELECT 1 FROM delivery WHERE status = 'delivered'"))  # noqa: B023
        server.kill()
    assert last_event(server)["event"] == "task.due"
    assert len(server.rows("SELECT 1 FROM event WHERE name = 'task.due'")) == 1
    assert len(receiver.all_here()) == 1
