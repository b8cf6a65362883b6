"""Claiming a task, and telling apart who did something with which key."""

from functools import partial

from harness import at_once, fault
from test_session import browser, cookie_of
from test_session import sign_in as start_session


def make_key(client, name):
    made = client.data(client.post("/keys", {"name": name}), 201)
    return made["api_key"]


def test_of_many_callers_one_gets_the_task(server, owner, task):
    clients = [server.client(make_key(owner, f"agent {number}")) for number in range(16)]
    answers = at_once(*[partial(client.post, f"/tasks/{task['id']}/claim") for client in clients])
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    (winner,) = [n for n, answer in enumerate(answers) if answer.status_code == 200]
    claimed = owner.data(owner.get(f"/tasks/{task['id']}"))
    assert (claimed["status"], claimed["assignee"]["full_name"]) == ("in_progress", "Olga Owner")
    assert claimed["version"] == 2
    again = clients[winner].post(f"/tasks/{task['number']}/claim")
    assert clients[winner].data(again)["version"] == 2
    error = fault(clients[winner - 1].post(f"/tasks/{task['id']}/claim"), 409, "conflict")
    assert f"#{task['number']} is in progress, and Olga Owner has it (via agent {winner})" in error["message"]


def test_a_task_is_claimed_that_is_to_do_and_nobody_s_or_one_s_own(owner, project, join):
    ana, ben = join(full_name="Ana of the claims"), join()
    free, own = owner.make_task(project), owner.make_task(project, assignee_id=ben.member["id"])
    theirs = owner.make_task(project, assignee_id=ana.member["id"])
    for task in (free, own):
        claimed = ben.data(ben.post(f"/tasks/{task['id']}/claim"))
        assert (claimed["assignee_id"], claimed["status"]) == (ben.member["id"], "in_progress")
    error = fault(ben.post(f"/tasks/{theirs['id']}/claim"), 409, "conflict")
    assert "is todo, and Ana of the claims has it" in error["message"]
    owner.data(owner.post(f"/tasks/{free['id']}/complete"))
    assert "is done" in fault(ben.post(f"/tasks/{free['id']}/claim"), 409, "conflict")["message"]
    fault(join("client").post(f"/tasks/{theirs['id']}/claim"), 403, "forbidden")


def test_a_claim_of_another_version_is_refused(owner, task):
    path = f"/tasks/{task['id']}/claim"
    fault(owner.post(path, headers={"If-Match": '"2"'}), 412, "precondition_failed")
    for _ in range(2):  # the second one is a repetition
        assert owner.data(owner.post(path, headers={"If-Match": '"1"'}))["version"] == 2


def test_activity_and_comments_tell_the_key_but_not_a_session_s(server, owner, task):
    agent = server.client(make_key(owner, "triage"))
    path = f"/tasks/{task['id']}/comments"
    assert agent.data(agent.post(path, {"content": "Found"}), 201)["via"] == "triage"
    of_a_page = browser(server, cookie_of(start_session(server)))
    assert owner.data(of_a_page("POST", path, json={"content": "Mine"}), 201)["via"] is None
    listed = owner.data(owner.get(path))["comments"]
    assert [comment["via"] for comment in listed] == ["triage", None]
    done = owner.data(owner.get(f"/tasks/{task['id']}/activity"))["activity"]
    assert [entry["via"] for entry in done] == [None, "triage", "bootstrap"]


def test_an_agent_is_added_as_a_member_with_a_key_in_one_step(server):
    added = server.flask("member", "add", "Triage agent")
    key = added.stdout.strip()
    assert "Triage agent <owner+triage-agent@example.com> is a member" in added.stderr
    agent = server.client(key)
    me = agent.data(agent.get("/me"))["member"]
    assert (me["full_name"], me["role"], me["status"]) == ("Triage agent", "member", "active")
    again = server.flask("member", "add", "Triage agent")
    assert again.returncode == 1
    assert "email: is already a member's" in again.stderr
    assert "give one with --email" in server.flask("member", "add", "助手").stderr
    reader = server.flask("member", "add", "Reader", "--scope", "read", "--email", "r@example.com")
    assert server.client(reader.stdout.strip()).post("/projects", {"name": "x"}).status_code == 403
