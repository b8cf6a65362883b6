"""A key of scope agent: it does the work, and a person completes it."""

from functools import partial

import pytest
from harness import fault
from test_inbox import comment, emptied, unread
from test_tools import refused, stored, use

NEEDS_SOCKET = False

REFUSAL = "a key of scope agent moves nothing to done, and nothing out of it"


@pytest.fixture(scope="module")
def agent(server):
    return server.agent("Agent of the gate")


@pytest.fixture
def external(owner, project):
    """A task with an id of another program, and the path under which that changes it."""
    return owner.make_task(project, external_id=project["id"]), f"/tasks/by-external-id/{project['id']}"


def ways(client, task, external_path, status):
    """Each call that would give the task this status."""
    path, moved = f"/tasks/{task['id']}", {"status": status}
    body = {"project_id": task["project_id"], "title": task["title"], **moved}
    return {
        "patch": partial(client.patch, path, {**moved, "title": "Not stored"}),
        "put": partial(client.put, path, moved),
        "details": partial(client.patch, f"{path}/details", moved),
        "external id": partial(client.put, external_path, body),
        "batch": partial(client.patch, "/tasks/batch", {"tasks": [task["id"]], "changes": moved}),
    }


def test_no_route_lets_an_agent_key_complete_a_task(agent, owner, external):
    task, path = external
    for way, call in ways(agent, task, path, "done").items():
        assert REFUSAL in fault(call(), 403, "forbidden")["message"], way
    for method in ("PUT", "POST", "PATCH"):
        answer = agent.request(method, f"/tasks/{task['id']}/complete")
        assert REFUSAL in fault(answer, 403, "forbidden")["message"]
    new = {"project_id": task["project_id"], "title": "New", "status": "done"}
    assert REFUSAL in fault(agent.put(f"{path}-new", new), 403, "forbidden")["message"]
    assert owner.read("/tasks", external_id=f"{task['external_id']}-new")["tasks"] == []
    assert stored(owner, task["id"])["version"] == 1


def test_no_route_lets_an_agent_key_reopen_a_task(agent, owner, external):
    task, path = external
    owner.data(owner.post(f"/tasks/{task['id']}/complete"))
    for status in ("todo", "in_progress", "review"):
        for way, call in ways(agent, task, path, status).items():
            assert REFUSAL in fault(call(), 403, "forbidden")["message"], (way, status)
    agent.data(agent.post(f"/tasks/{task['id']}/complete"))  # a repetition, which changes nothing
    assert stored(owner, task["id"])["version"] == 2
    agent.data(agent.patch(f"/tasks/{task['id']}", {"metadata": {"commit": "4fa1"}}))


def test_an_agent_key_changes_only_its_own_comments(server, owner, task):
    bot = server.client(owner.make("/keys", {"name": "bot", "scope": "agent"})["api_key"])
    path = f"/tasks/{task['id']}/comments"
    said, reported = comment(owner, task, "I do not approve"), comment(bot, task, "Done")
    error = fault(bot.patch(f"{path}/{said['id']}", {"content": "I approve"}), 403, "forbidden")
    assert error["message"] == "a key of scope agent changes only comments that were made with it"
    assert bot.data(bot.patch(f"{path}/{reported['id']}", {"content": "Done, tested"}))["edited_at"]
    assert owner.data(owner.patch(f"{path}/{reported['id']}", {"content": "Not done"}))["edited_at"]


def test_complete_task_with_an_agent_key_moves_to_review(agent, join, owner):
    ana = emptied(join(full_name="Ana who reviews"))
    task = ana.make_task(owner.make_project())
    done = use(agent, "complete_task", task_id=task["number"], comment="Ready to look at")
    assert (done["status"], done["note"]) == ("review", "a person completes it")
    assert unread(ana) == ["commented", "review"]
    version = stored(owner, task["id"])["version"]
    assert use(agent, "complete_task", task_id=task["number"]) == done
    assert stored(owner, task["id"])["version"] == version
    completed = use(ana, "complete_task", task_id=task["number"])
    assert use(agent, "complete_task", task_id=task["number"]) == completed
    assert REFUSAL in refused(agent, "update_task", task_id=task["number"], status="todo")
