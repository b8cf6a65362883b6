"""`wait`: an answer comes with the first change that gives it something."""

import itertools
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from harness import OWNER_KEY, PATIENCE, fault, wait_until
from test_changes import end
from test_inbox import change, comment, emptied, of
from test_metrics import figures

import limits

WAITS = limits.WAITS_OF_MEMBER
LONG = 25  # seconds; what ends sooner was ended by something else than the time
SOON = 15


class Wait:
    """A request that waits, in a thread and on a connection of its own."""

    def __init__(self, pool, server, path, key=None, wait=LONG, **query):
        self.client = server.client(key) if key else server.client()
        self.begun_at = time.monotonic()
        self.future = pool.submit(self.ask, path, wait=wait, **query)

    def ask(self, path, **query):
        """Ask until a place is free."""
        answers = (self.client.get(path, **query) for _ in itertools.count())
        return wait_until(lambda: [answer for answer in [next(answers)] if answer.status_code != 429])[0]

    def answer(self):
        """The response, which must not have taken as long as it might."""
        answer = self.future.result(PATIENCE)
        assert time.monotonic() - self.begun_at < SOON
        return answer

    def data(self):
        return self.client.data(self.answer())

    def ids(self):
        return [task["id"] for task in self.data()["tasks"]]


@pytest.fixture
def begin(server):
    with ThreadPoolExecutor(limits.WAITS) as pool:
        yield lambda path, server=server, **query: Wait(pool, server, path, **query)


@pytest.fixture(scope="module")
def bot(server):
    return server.agent("Bot")


def until_all_wait(server, project, key=OWNER_KEY):
    """Wait until no place is left, for which those who wait try again; this itself waits for a second."""
    query = {"ready": "true", "project_id": project["id"], "wait": 1}
    wait_until(lambda: server.client(key).get("/tasks", **query).status_code == 429)


def test_an_event_and_a_change_are_waited_for(owner, begin):
    project = owner.make_project()
    last = owner.read("/events", since=project["created_at"])["pagination"]["next_after"]
    events, changes = begin("/events", after=last), begin("/changes", after=end(owner))
    task = owner.make_task(project)
    (event,), (change,) = events.data()["events"], changes.data()["changes"]
    assert event["data"]["task"] == change["object"] == task


def test_a_list_of_what_is_ready_comes_as_soon_as_there_is_something(owner, bot, begin):
    begun, made, given_back, unblocked, answered = [owner.make_project() for _ in range(5)]
    claimed, blocker = owner.make_task(given_back), owner.make_task(owner.make_project())
    bot.data(bot.post(f"/tasks/{claimed['id']}/claim"))
    owner.make_task(unblocked, blocked_by=[blocker["number"]])
    comment(bot, asked := owner.make_task(answered), "How?", question=True)
    start = datetime.now(UTC) + timedelta(seconds=2)
    owner.make_task(begun, start_date=start.isoformat(timespec="milliseconds"))
    for project, act in (
        (begun, lambda: None),  # the time comes without a change
        (made, lambda: owner.make_task(made)),
        (given_back, lambda: change(bot, claimed, status="todo", assignee_id=None)),
        (unblocked, lambda: owner.data(owner.post(f"/tasks/{blocker['id']}/complete"))),
        (answered, lambda: comment(owner, asked, "So")),
    ):
        waiting = begin("/tasks", ready="true", project_id=project["id"])
        act()
        tasks = owner.read("/tasks", project_id=project["id"])["tasks"]
        assert waiting.ids() == [task["id"] for task in tasks]


def test_a_wait_for_changed_tasks_ends_with_the_next_change(owner, begin):
    project = owner.make_project()
    task = owner.make_task(project)
    page = owner.read("/tasks", sort="updated_at", limit=100, project_id=project["id"])
    following = {"sort": "updated_at", "after": page["pagination"]["next_after"], "project_id": project["id"]}
    waiting = begin("/tasks", **following)
    owner.make_task(owner.make_project())  # which is none of that project's
    change(owner, task, title="Changed")
    (changed,) = waiting.data()["tasks"]
    assert changed["title"] == "Changed"


def test_an_inbox_comes_as_soon_as_something_is_told(owner, bot, begin):
    emptied(bot)
    waiting = begin("/inbox", key=bot.key)
    owner.make_task(owner.make_project(), assignee_id=of(bot))
    told = waiting.data()
    assert (told["unread"], told["notices"][0]["reason"]) == (1, "assigned")
    assert begin("/inbox", key=bot.key).data()["unread"] == 1  # at once, as long as it is unread


def test_an_answer_that_finds_nothing_comes_when_the_time_is_over(owner, bot, begin):
    emptied(bot)
    project = owner.make_project()
    begun_at = time.monotonic()
    assert begin("/tasks", ready="true", project_id=project["id"], wait=1).ids() == []
    assert begin("/inbox", key=bot.key, wait=1).data()["unread"] == 0
    assert time.monotonic() - begun_at >= 2
    assert begin("/inbox", key=bot.key, wait=0).data()["unread"] == 0


def test_two_requests_of_a_member_wait_and_24_of_all_while_others_are_served(server, owner, bot, begin):
    *keys, last = [server.agent(f"Bot {number}").key for number in range(limits.WAITS // WAITS - 1)]
    project = owner.make_project()
    query = {"ready": "true", "project_id": project["id"]}
    waiting = [begin("/tasks", **query) for _ in range(WAITS)]
    until_all_wait(server, project)
    answer = owner.get("/inbox", wait=1)
    fault(answer, 429, "rate_limited")
    assert answer.headers["Retry-After"] == "5"
    waiting += [begin("/tasks", key=key, **query) for key in [bot.key, *keys] for _ in range(WAITS)]
    until_all_wait(server, project, last)
    assert owner.read("/tasks", **query)["tasks"] == []
    page = server.join("client", project_ids=[]).read("/changes", wait=LONG)
    assert (page["changes"], page["pagination"]["has_more"]) == ([], True)  # which needs no place
    task = owner.make_task(project)
    assert [wait.ids() for wait in waiting] == [[task["id"]]] * limits.WAITS
    assert owner.read("/tasks", **query, wait=LONG)["tasks"]  # what is there needs no place


def test_fewer_threads_let_fewer_requests_wait(launch, begin):
    server = launch("--threads", "4")
    project = server.client().make_project()
    *keys, last = [server.agent(f"Bot {number}").key for number in range(3)]
    waiting = [begin("/tasks", key=key, server=server, ready="true") for key in keys]
    until_all_wait(server, project, last)
    task = server.client().make_task(project)
    assert [wait.ids() for wait in waiting] == [[task["id"]]] * 2


def test_a_client_that_hangs_up_frees_its_place(server, owner, begin):
    project, address = owner.make_project(), urlsplit(owner.base)
    head = f"GET /api/v1/tasks?ready=true&project_id={project['id']}&wait={LONG} HTTP/1.1\r\nHost: x\r\n"
    head += f"Authorization: Bearer {owner.key}\r\n\r\n"
    lines = [socket.create_connection((address.hostname, address.port)) for _ in range(WAITS)]
    for line in lines:
        line.sendall(head.encode())
    wait_until(lambda: figures(server)["busy_threads",] > WAITS)  # they, and this one
    for line in lines:
        line.close()
    waiting = [begin("/tasks", ready="true", project_id=project["id"]) for _ in range(WAITS)]
    until_all_wait(server, project)
    task = owner.make_task(project)
    assert [wait.ids() for wait in waiting] == [[task["id"]]] * WAITS


def test_a_key_that_is_revoked_meanwhile_counts_no_more(server, owner, begin):
    key = owner.make("/keys", {"name": "short"})
    project = owner.make_project()
    query = {"key": key["api_key"], "ready": "true", "project_id": project["id"]}
    waiting = [begin("/tasks", **query) for _ in range(WAITS)]
    until_all_wait(server, project, key["api_key"])
    owner.data(owner.delete(f"/keys/{key['key']['id']}"))
    owner.make_task(project)
    for wait in waiting:
        fault(wait.answer(), 401, "unauthorized")
    # Nor does a role that is lost.
    ada = server.join("admin")
    key = ada.key
    project = owner.make_project()
    since = datetime.now(UTC).isoformat()
    events, changes = begin("/events", key=key, since=since), begin("/changes", key=key, after=end(ada))
    until_all_wait(server, project, key)
    owner.data(owner.patch(f"/members/{of(ada)}", {"role": "client"}))
    owner.make_task(project)
    fault(events.answer(), 403, "forbidden")
    assert [change["kind"] for change in changes.data()["changes"]] == ["task"]


def test_the_time_of_waiting_is_no_latency(server, owner, begin):
    project = owner.make_project()
    name = ("request_seconds_sum", "GET", "/api/v1/tasks")
    before = figures(server).get(name, 0)
    begin("/tasks", ready="true", project_id=project["id"], wait=3).data()
    assert 0 < figures(server)[name] - before < 3


def test_a_wait_ends_with_another_worker_s_commit(launch, begin):
    server = launch("--workers", "2")
    owner = server.client()
    project = owner.make_project()
    waiting = [begin("/tasks", server=server, ready="true", project_id=project["id"]) for _ in range(WAITS)]
    task = owner.make_task(project)
    assert [wait.ids() for wait in waiting] == [[task["id"]]] * WAITS


def test_the_end_of_a_server_ends_all_waits_with_an_answer(launch, begin):
    server = launch()
    project = server.client().make_project()
    query = {"ready": "true", "project_id": project["id"], "server": server}
    for how in (signal.SIGHUP, signal.SIGTERM):  # after a reload another worker lets others wait
        waiting = [begin("/tasks", **query) for _ in range(WAITS)]
        until_all_wait(server, project)
        if how == signal.SIGHUP:
            with server.replacing():
                os.kill(server.process.pid, signal.SIGHUP)
        else:
            assert server.stop() == 0
        assert [wait.ids() for wait in waiting] == [[]] * WAITS
