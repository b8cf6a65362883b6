"""A clock that is set back while the service runs and before it starts again."""

import os
import runpy
import signal
from functools import partial

import pytest
from harness import fault, hook, invoke, settable_clock
from test_session import browser, cookie_of, sign_in


@pytest.fixture(scope="module")
def clock(launch_module, tmp_path_factory, shared_receiver):
    set_clock, environment = settable_clock(tmp_path_factory.mktemp("clock"))
    first = partial(runpy.run_path, f"{environment['PYTHONPATH']}/sitecustomize.py")
    server = launch_module(first=first, hooks=[hook(shared_receiver)], TASKS_DELIVERY__RETRY_SCHEDULE="[0.5]")
    server.set_clock = set_clock
    return server


def test_times_and_ids_rise_and_events_keep_their_order_though_the_clock_falls(clock, shared_receiver):
    owner = clock.client()
    project = owner.make_project()
    tasks = [owner.make_task(project)]
    clock.set_clock(-3600)
    tasks.append(owner.make_task(project))
    owner.patch(f"/tasks/{tasks[0]['id']}", {"title": "Changed"})
    with clock.replacing():
        os.kill(*clock.children(), signal.SIGTERM)
    tasks.append(owner.make_task(project))
    clock.set_clock(-7200)
    clock.stop()
    owner = clock.start().client()
    tasks.append(owner.make_task(project))
    assert [task["id"] for task in tasks] == sorted(task["id"] for task in tasks)
    assert [task["created_at"] for task in tasks] == sorted(task["created_at"] for task in tasks)
    changed = owner.read("/tasks", updated_since=tasks[1]["updated_at"])["tasks"]
    assert {task["id"] for task in changed} == {task["id"] for task in tasks}
    names = [shared_receiver.next().event["event"] for _ in range(5)]
    assert names == ["task.created", "task.created", "task.updated", "task.created", "task.created"]


def test_a_follower_misses_no_change_when_the_clock_is_set_back(clock, shared_receiver):
    clock.set_clock(0)
    owner = clock.client()
    first, last = (owner.make_task(owner.make_project()) for _ in range(2))
    clock.set_clock(-3600)
    follow = partial(owner.get, "/tasks", sort="updated_at", limit=1)
    after = f"{last['updated_at']}_{last['id']}"
    for title in ("A", "B", "C"):
        empty = owner.data(follow(after=after))
        assert (empty["tasks"], empty["pagination"]["next_after"]) == ([], after)
        changed = owner.data(owner.patch(f"/tasks/{first['id']}", {"title": title}))
        page = owner.data(follow(after=after))
        assert page["tasks"] == [changed]
        after = page["pagination"]["next_after"]
    for _ in range(5):
        shared_receiver.next()


def test_a_clock_that_is_set_back_delays_no_delivery(clock, shared_receiver):
    clock.set_clock(0)
    owner = clock.client()
    task = owner.make_task(owner.make_project())
    shared_receiver.next()
    clock.set_clock(-3600)
    shared_receiver.answers = [503]
    owner.patch(f"/tasks/{task['id']}", {"title": "Changed"})
    owner.delete(f"/tasks/{task['id']}")
    names = [shared_receiver.next().event["event"] for _ in range(3)]
    assert names == ["task.updated", "task.updated", "task.deleted"]


def test_a_time_that_was_wrong_by_more_than_a_day_is_not_followed(clock):
    clock.set_clock(86_400 * 365)
    owner = clock.client()
    wrong = owner.make_task(owner.make_project())
    clock.set_clock(0)
    clock.stop()
    owner = clock.start().client()
    for seconds in (0, 86_400 * 365 - 43_200):  # also when it is less than a day ahead at last
        clock.set_clock(seconds)
        assert owner.make_project()["created_at"] < wrong["created_at"]


def test_a_follower_misses_no_change_after_a_clock_that_was_ahead(clock):
    clock.set_clock(0)
    owner = clock.client()
    first, last = (owner.make_task(owner.make_project()) for _ in range(2))
    follow = partial(owner.get, "/tasks", sort="updated_at", limit=100)
    before = f"{last['updated_at']}_{last['id']}"
    clock.set_clock(86_400 * 365)
    ahead = owner.data(owner.patch(f"/tasks/{first['id']}", {"title": "Ahead"}))
    page = owner.data(follow(after=before))
    assert page["tasks"] == [ahead]
    clock.set_clock(0)
    changed = owner.data(owner.patch(f"/tasks/{last['id']}", {"title": "Changed"}))
    redated = ahead | {"updated_at": changed["updated_at"]}
    assert owner.data(follow(after=before))["tasks"] == [redated, changed]
    page = owner.data(follow(after=page["pagination"]["next_after"]))  # which is a year ahead
    assert page["tasks"][-2:] == [redated, changed]
    again = owner.data(owner.patch(f"/tasks/{first['id']}", {"title": "Again"}))
    assert owner.data(follow(after=page["pagination"]["next_after"]))["tasks"] == [again]
    clock.set_clock(-86_400 * 365)  # a clock that is behind redates nothing
    owner.make_project()
    assert owner.read(f"/tasks/{again['id']}")["updated_at"] == again["updated_at"]
    clock.set_clock(0)


def test_no_client_nor_session_depends_on_a_time_that_was_wrong(clock):
    clock.set_clock(0)
    owner = clock.client()
    projects = [owner.make_project()["id"] for _ in range(2)]
    words = "member add Cleo --email c@example.com --role client"
    client = clock.client(invoke(clock, *words.split()).stdout.strip())
    clock.set_clock(86_400 * 365)
    owner.data(owner.patch(f"/members/{client.read('/me')['member']['id']}", {"project_ids": projects}))
    session = browser(clock, cookie_of(sign_in(clock)))
    clock.set_clock(0)
    owner.make_project()
    cursor = client.read("/changes", since="2026-01-01")["pagination"]["next_after"]
    client.read("/changes", after=cursor)
    clock.set_clock(3600)
    fault(session("POST", "/keys", json={"name": "Late"}), 403, "forbidden")
    clock.set_clock(0)
