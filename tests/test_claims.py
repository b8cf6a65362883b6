"""Claiming a task, and telling apart who did something with which key."""

import json
from datetime import datetime
from functools import partial

import pytest
from harness import at_once, fault, invoke, last_event, wait_until
from test_inbox import change, comment, emptied, of, unread
from test_keys import make_key
from test_session import browser, cookie_of
from test_session import sign_in as start_session

from members import Member
from models import Project, Task, write
from parts.agents import Claims
from times import new_id

NEEDS_SOCKET = False


def test_one_of_many_simultaneous_claims_succeeds(server, owner, task):
    clients = [server.client(make_key(owner, name=f"agent {number}")["api_key"]) for number in range(16)]
    answers = at_once(*[partial(client.post, f"/tasks/{task['id']}/claim") for client in clients])
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    (winner,) = [n for n, answer in enumerate(answers) if answer.status_code == 200]
    claimed = owner.read(f"/tasks/{task['id']}")
    assert (claimed["status"], claimed["assignee"]["full_name"]) == ("in_progress", "Olga Owner")
    assert claimed["version"] == claim(clients[winner], task)["version"] == 2
    error = fault(clients[winner - 1].post(f"/tasks/{task['id']}/claim"), 409, "conflict")
    assert f"#{task['number']} is in progress, and Olga Owner has it (via agent {winner})" in error["message"]


def test_a_task_is_claimed_that_is_to_do_and_nobody_s_or_one_s_own(owner, project, join):
    ana, ben = join(full_name="Ana of the claims"), join()
    free, own = owner.make_task(project), owner.make_task(project, assignee_id=ben.member["id"])
    theirs = owner.make_task(project, assignee_id=ana.member["id"])
    for task in (free, own):
        path = f"/tasks/{task['id']}/claim"
        fault(ben.post(path, headers={"If-Match": '"2"'}), 412, "precondition_failed")
        for _ in range(2):  # the second one is a repetition
            claimed = ben.data(ben.post(path, headers={"If-Match": '"1"'}))
            shown = [claimed[name] for name in ("assignee_id", "status", "version")]
            assert shown == [of(ben), "in_progress", 2]
    error = fault(ben.post(f"/tasks/{theirs['id']}/claim"), 409, "conflict")
    assert "is todo, and Ana of the claims has it" in error["message"]
    owner.data(owner.post(f"/tasks/{free['id']}/complete"))
    assert "is done" in fault(ben.post(f"/tasks/{free['id']}/claim"), 409, "conflict")["message"]
    change(owner, theirs, status="in_progress", assignee_id=None)
    error = fault(ben.post(f"/tasks/{theirs['id']}/claim"), 409, "conflict")
    assert error["message"].endswith("nobody has it; it can be claimed once its status is todo")
    change(owner, theirs, status="todo")
    assert claim(ben, theirs)["status"] == "in_progress"


def test_activity_and_comments_tell_the_key_but_not_a_session_s(server, owner, task):
    agent = server.client(make_key(owner, name="triage")["api_key"])
    path = f"/tasks/{task['id']}/comments"
    assert agent.make(path, {"content": "Found"})["via"] == "triage"
    of_a_page = browser(server, cookie_of(start_session(server)))
    assert owner.data(of_a_page("POST", path, json={"content": "Mine"}), 201)["via"] is None
    assert [comment["via"] for comment in owner.read(path)["comments"]] == ["triage", None]
    done = owner.read(f"/tasks/{task['id']}/activity")["activity"]
    assert [entry["via"] for entry in done] == [None, "triage", "bootstrap"]


def test_an_agent_is_added_as_a_member_with_a_key_in_one_step(server):
    added = invoke(server, "member", "add", "Triage agent")
    key = added.stdout.strip()
    assert "Triage agent <owner+triage-agent@example.com> is a member" in added.stderr
    me = server.client(key).read("/me")["member"]
    assert (me["full_name"], me["role"], me["status"]) == ("Triage agent", "member", "active")
    again = invoke(server, "member", "add", "Triage agent")
    assert (again.exit_code, "email: is already a member's" in again.stderr) == (1, True)
    assert "give one with --email" in invoke(server, "member", "add", "助手").stderr
    reader = invoke(server, "member", "add", "Reader", "--scope", "read", "--email", "r@example.com")
    assert server.client(reader.stdout.strip()).post("/projects", {"name": "x"}).status_code == 403


def claim(client, task, minutes=None, status=200):
    body = None if minutes is None else {"minutes": minutes}
    return client.data(client.post(f"/tasks/{task['id']}/claim", body), status)


def let_end(server, *tasks, until="2026-01-01T00:00:00.000Z"):
    """Let the claims end now, for which a test cannot wait."""
    for task in tasks:
        server.rows("UPDATE task SET claimed_until = ? WHERE id = ?", until, task["id"])
    server.sweep()


def is_free(owner, task):
    shown = owner.read(f"/tasks/{task['id']}")
    return (shown["status"], shown["assignee_id"], shown["claimed_until"]) == ("todo", None, None) and shown


def test_a_claim_for_some_minutes_is_renewed_by_the_same_key_without_a_change(server, owner, task, join):
    ana = join(full_name="Ana until then")
    first = claim(ana, task, 5)
    error = fault(owner.post(f"/tasks/{task['id']}/claim", {"minutes": 5}), 409, "conflict")
    has = f"is in progress, and Ana until then has it until {first['claimed_until']}"
    assert error["message"].endswith(has)
    left = datetime.fromisoformat(first["claimed_until"]) - datetime.fromisoformat(first["updated_at"])
    assert left.total_seconds() == pytest.approx(300, abs=1)
    (before,) = server.rows("SELECT MAX(seq) AS last FROM event")
    renewed = claim(ana, task, 1440)
    assert renewed["claimed_until"] > first["claimed_until"]
    assert renewed == first | {"claimed_until": renewed["claimed_until"]}
    assert claim(ana, task) == renewed  # without minutes it renews nothing
    assert claim(ana, task, 1)["claimed_until"] < renewed["claimed_until"]
    assert server.rows("SELECT MAX(seq) AS last FROM event") == [before]
    history = owner.read(f"/tasks/{task['id']}/activity")["activity"]
    assert [entry["action"] for entry in history] == ["moved", "created"]
    (event,) = server.rows("SELECT body FROM event WHERE seq = ?", before["last"])
    assert json.loads(event["body"])["data"]["changes"]["claimed_until"] == [None, first["claimed_until"]]


def test_a_change_of_status_or_assignee_ends_a_claim_and_another_change_does_not(owner, project, join):
    ana, given_back = join(), {"status": "todo", "assignee_id": None}
    for fields in ({"status": "review"}, {"assignee_id": None}, given_back):
        path = f"/tasks/{claim(ana, task := owner.make_task(project), 5)['id']}"
        assert ana.data(ana.patch(path, {"title": "Further"}))["claimed_until"]
        assert ana.data(ana.patch(path, fields))["claimed_until"] is None
    assert claim(owner, task)["assignee_id"] != ana.member["id"]


def test_an_ended_claim_is_given_back_and_its_creator_notified(server, owner, join):
    ana, bot = join(full_name="Ana who waits"), join(full_name="Bot that hangs")
    task = ana.make_task(ana.make_project())
    held = claim(bot, task, 5)
    comment(ana, task, "Are you there?")
    let_end(server, task)
    assert is_free(owner, task)["version"] == held["version"] + 1
    (entry, *_) = owner.read(f"/tasks/{task['id']}/activity")["activity"]
    assert (entry["action"], entry["actor"]["full_name"], entry["via"]) == ("moved", "Bot that hangs", None)
    assert entry["changes"]["assignee_id"] == [bot.member["id"], None]
    event = last_event(server)
    assert (event["event"], event["data"]["changes"]["status"]) == ("task.updated", ["in_progress", "todo"])
    ((reason, actor),) = unread(ana, "actor")
    assert (reason, actor["full_name"]) == ("claim_ended", "Bot that hangs")
    assert unread(bot) == ["commented"]  # it has not read that
    late = bot.patch(f"/tasks/{task['id']}", {"title": "Late"}, headers={"If-Match": f'"{held["version"]}"'})
    fault(late, 412, "precondition_failed")
    assert claim(owner, task, 5)["status"] == "in_progress"
    # An end that no clock could have set has come too, as after the clock was set back.
    let_end(server, task, until="2099-01-01T00:00:00.000Z")
    assert is_free(owner, task)


def test_the_claims_of_a_removed_member_end_at_once(owner, join, project):
    ana, ben = join(), emptied(join())
    limited, unlimited, given = (ben.make_task(project) for _ in range(3))
    claim(ana, limited, 1440)
    claim(ana, unlimited)
    change(owner, given, assignee_id=of(ana), status="review")
    owner.data(owner.delete(f"/members/{ana.member['id']}"))
    assert is_free(owner, limited)
    assert is_free(owner, unlimited)
    left = owner.read(f"/tasks/{given['id']}")
    assert (left["status"], left["assignee_id"]) == ("review", None)
    assert unread(ben) == ["claim_ended", "claim_ended", "review"]
    claim(owner, limited)
    assert unread(ben) == ["claim_ended", "review"]


def test_a_claim_without_a_member_ends_once_and_the_others_end_too(server, owner, join, project):
    ana, tasks = join(), [owner.make_task(project) for _ in range(3)]
    for task in tasks:
        claim(ana, task, 5)
    for task, status in zip(tasks, ("in_progress", "todo"), strict=False):
        server.rows("UPDATE task SET status = ?, assignee_id = NULL WHERE id = ?", status, task["id"])
    let_end(server, *tasks)
    ended = [is_free(owner, task) for task in tasks]
    assert [task["version"] for task in ended] == [3] * 3
    server.sweep()
    assert [is_free(owner, task) for task in tasks] == ended


def test_claims_end_in_steps_of_100(database):
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        task = Task.add(transaction, project_id=Project.add(transaction, name="P")["id"], title="T")
        task |= {"search": "t", "label_keys": "", "number": None, "claimed_until": "2026-01-01"}
        task |= {"assignee_id": owner["id"], "status": "in_progress"}
        Task.insert_row.run_many(task | {"id": new_id()} for _ in range(150))
        other = Member.add(transaction, full_name="B", email="b@example.com", role="member", status="active")
        theirs = {"id": new_id(), "assignee_id": other["id"], "claimed_until": "2026-01-02"}
        Task.insert_row.run(**task | theirs)  # which ends in the name of that member
    ended = []
    for _ in range(3):
        with write(owner) as transaction:
            ended.append(len([*Claims.end(transaction, owner["id"], Claims.ended())]))
    assert ended == [100, 50, 0]


def test_renewals_and_the_end_at_the_same_time_leave_one_of_both(server, owner, join, project):
    ana, tasks = join(), [owner.make_task(project) for _ in range(8)]
    for task in tasks:
        claim(ana, task, 5)
    server.rows("UPDATE task SET claimed_until = '2026-01-01T00:00:00.000Z' WHERE claimed_until > ''")
    renewals = [partial(ana.post, f"/tasks/{task['id']}/claim", {"minutes": 5}) for task in tasks]
    _, *answers = at_once(server.sweep, *renewals)
    assert {answer.status_code for answer in answers} == {200}
    assert not server.rows("SELECT id FROM task WHERE claimed_until < '2026-02-01'")
    for task in tasks:
        shown = owner.read(f"/tasks/{task['id']}")
        held = (shown["status"], shown["assignee_id"], bool(shown["claimed_until"]))
        # Renewed, or given back and claimed again by the same request.
        assert held == ("in_progress", ana.member["id"], True)
        assert shown["version"] in (2, 4)


def test_a_claim_that_ends_during_a_crash_is_given_back_once(launch):
    server = launch("--workers", "2")
    owner = server.client()
    tasks = [owner.make_task(owner.make_project()) for _ in range(5)]
    for task in tasks:
        claim(owner, task, 60)
    server.kill()
    let_end(server, *tasks[:3])
    server.start("--workers", "2")
    owner = server.client()
    for task in tasks[:3]:
        assert wait_until(lambda task=task: is_free(owner, task))["version"] == 3
    assert [owner.read(f"/tasks/{task['id']}")["version"] for task in tasks[3:]] == [2, 2]
    assert server.rows("SELECT COUNT(*) AS count FROM activity WHERE action = 'moved'") == [{"count": 5 + 3}]


def test_without_a_sweeper_no_claim_ends_and_doctor_says_so(launch):
    server = launch(TASKS_DELIVERY__SWEEPER="false")
    assert "delivery.sweeper is false: claims never end" in invoke(server, "doctor").stdout
    owner = server.client()
    ended = owner.make_task(owner.make_project())
    claim(owner, ended, 1)
    let_end(server, ended)
    assert not is_free(owner, ended)
    assert not server.database.with_name("tasks.db.sender").exists()  # which a sweeper locks at its start
    assert claim(owner, ended, 5)["version"] == 2  # it can be renewed still
