"""The brakes on agents: a task on which they get no further, and the stop of all of them."""

import json
from time import monotonic

import pytest
from harness import at_once, fault, invoke, wait_until
from test_claims import claim, let_end
from test_inbox import change, comment, emptied, unread
from test_keys import make_key
from test_tools import refused, stored, titles, use

NEEDS_SOCKET = False
STUCK = "agents have tried #{} 3 times without a result; a person changes or reassigns it first"


def give_back(bot, task):
    use(bot, "claim_task", task_id=task["number"])
    use(bot, "update_task", task_id=task["number"], status="todo")


def tries(client, task):
    return stored(client, task["id"])["tries"]


def test_a_task_is_stuck_after_three_tries_whoever_of_the_agents_makes_them(server, bot, join):
    """Given back, expired and sent back; its creator is notified once."""
    ana = emptied(join(full_name="Ana of the brakes"))
    project = ana.make_project()
    task, other = ana.make_task(project, title="Stuck"), server.agent("Another bot")
    give_back(bot, task)
    claim(other, task, 5)
    let_end(server, task)
    assert stored(ana, task["id"])["status"] == "todo"
    assert unread(ana) == ["claim_ended"]
    use(bot, "claim_task", project=project["id"])
    use(bot, "complete_task", task_id=task["number"])
    assert (tries(ana, task), unread(ana)[0]) == (2, "review")  # a submission is a result
    change(server.client(), task, status="todo", assignee_id=None)
    assert tries(ana, task) == 0  # to reassign it is more than to send it back
    for _ in range(3):
        assert "stuck" not in unread(ana)
        use(bot, "claim_task", task_id=task["number"])
        use(bot, "complete_task", task_id=task["number"])
        change(ana, task, status="todo")
    assert tries(ana, task) == 3
    change(ana, task, assignee_id=None)
    for _ in range(3):
        claim(bot, task, 5)
        let_end(server, task)
        assert stored(ana, task["id"])["status"] == "todo"
    assert (tries(ana, task), unread(ana)[0], unread(ana).count("stuck")) == (3, "stuck", 1)
    for agent in (bot, other):
        assert STUCK.format(task["number"]) in refused(agent, "claim_task", task_id=task["number"])
        for status in ("in_progress", "review"):
            moved = agent.patch(f"/tasks/{task['id']}", {"status": status})
            assert fault(moved, 403, "forbidden")["message"] == STUCK.format(task["number"])
        assert "no task is ready" in refused(agent, "claim_task", project=project["id"])
        assert agent.read("/tasks", ready="true", project_id=project["id"])["tasks"] == []
    assert titles(ana, project=project["id"], ready=True) == ["Stuck"]  # people see it, and may take it
    change(server.client(), task, description="Clearer")  # by a person: it is stuck no more
    assert "stuck" not in unread(ana)


def test_an_agent_in_a_person_s_name_notifies_this_person_of_what_waits_for_a_person(server, join):
    ana = emptied(join(full_name="Ana in person"))
    bot, task = server.client(make_key(ana, scope="agent")["api_key"]), ana.make_task(ana.make_project())
    claim(bot, task, 5)
    comment(bot, task, "I begin")
    assert unread(ana) == []
    comment(bot, task, "Which colour?", question=True)
    use(bot, "update_task", task_id=task["number"], status="todo")
    assert unread(ana) == ["question"]
    assert [entry["task"]["id"] for entry in ana.read("/today")["questions"]] == [task["id"]]
    comment(ana, task, "Blue")
    assert unread(ana) == []
    use(bot, "claim_task", task_id=task["number"])
    use(bot, "complete_task", task_id=task["number"], comment="It is blue")
    assert unread(ana) == ["review"]
    change(ana, task, status="todo", assignee_id=None)
    assert unread(ana) == []
    give_back(bot, task)
    comment(bot, task, "Which blue, @Ana in person?", question=True)
    assert unread(ana) == ["question"]
    comment(ana, task, "Dark")  # which lets agents try again
    for _ in range(2):
        give_back(bot, task)
    claim(bot, task, 5)
    let_end(server, task)
    assert unread(ana) == ["stuck"]


@pytest.mark.parametrize("way", ["edit", "reassign", "answer", "claim", "complete"])
def test_a_person_lets_agents_try_again(server, bot, owner, task, way):
    for _ in range(3):
        give_back(bot, task)
    assert "stuck" in unread(owner)
    comment(owner, task, "Hm.")  # which changes nothing
    change(bot, task, priority="low")
    assert tries(owner, task) == 3
    if way == "answer":
        use(bot, "add_comment", task_id=task["number"], content="How?", question=True)
        comment(owner, task, "So.")
    elif way == "claim":
        claim(owner, task)
    else:
        fields = {"edit": {"title": "Clearer"}, "complete": {"status": "done"}}
        change(owner, task, **fields.get(way, {"assignee_id": bot.member["id"]}))
    assert (tries(owner, task), "stuck" in unread(owner)) == (0, False)
    if way in ("edit", "reassign", "answer"):
        assert use(bot, "claim_task", task_id=task["number"])["status"] == "in_progress"


def test_a_person_s_import_lets_agents_try_again_and_ends_no_try(server, bot, owner, tmp_path):
    stuck, held = (owner.make_task(owner.make_project(name=f"Import {name}")) for name in ("one", "two"))
    for _ in range(3):
        give_back(bot, stuck)
    use(bot, "claim_task", task_id=held["number"])
    changed = {"one": (stuck, {"description": "Clearer"}), "two": (held, {"status": "todo"})}
    lines = [
        json.dumps({"id": task["id"], "title": task["title"], "project": f"Import {name}"} | fields)
        for name, (task, fields) in changed.items()
    ]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    assert "2 changed" in invoke(server, "import", tmp_path / "tasks.jsonl", "--apply").stdout
    assert [tries(owner, task) for task in (stuck, held)] == [0, 0]


def test_a_task_sent_back_to_go_on_with_counts_as_another_try_until_it_is_accepted(bot, owner, task):
    for status in ("review", "todo"):  # which no agent submitted
        change(owner, task, status=status)
        assert tries(owner, task) == 0
    use(bot, "claim_task", task_id=task["number"])
    for status, count in (("in_progress", 1), ("done", 0), *[("in_progress", n) for n in (1, 2, 3)]):
        use(bot, "complete_task", task_id=task["number"])
        change(owner, task, status=status)
        assert tries(owner, task) == count
        if status == "done":
            change(owner, task, status="todo", assignee_id=None)
            use(bot, "claim_task", task_id=task["number"])
    assert "stuck" not in unread(owner)  # the agent is at it
    use(bot, "update_task", task_id=task["number"], status="todo")
    assert unread(owner)[0] == "stuck"
    emptied(owner)
    change(bot, task, priority="low")
    assert unread(owner) == []  # nobody is notified twice


def test_agents_are_stopped_with_a_reason_and_go_on(launch_here):
    server = launch_here()
    owner, bot, ana = server.client(), server.agent("Bot that is stopped"), server.join()
    task = owner.make_task(owner.make_project())
    assert owner.read("/agents/stop") == {"stop": None}
    fault(owner.post("/agents/stop", {}), 422, "validation_error")
    for reason in ("Too fast", "The keys leaked"):
        stop = owner.data(owner.post("/agents/stop", {"reason": reason}))["stop"]
        assert (stop["reason"], stop["by"]["full_name"]) == (reason, "Olga Owner")
    assert ana.read("/agents/stop")["stop"] == bot.read("/agents/stop")["stop"] == stop
    why = "Olga Owner has stopped all agents: The keys leaked"
    said = f"stopped: {why}. Next: end your work; a person lets agents go on."
    comment = {"task_id": task["number"]}
    for tool, given in (("get_context", {}), ("claim_task", {}), ("add_comment", comment)):
        assert refused(bot, tool, **given) == said
    for method, path, body in (
        ("POST", f"/tasks/{task['id']}/claim", {}),
        ("PATCH", f"/tasks/{task['id']}", {"title": "x"}),
        ("POST", f"/tasks/{task['id']}/comments", {"content": "x"}),
        ("POST", "/inbox/read", {"task_id": task["id"]}),
        ("POST", "/session", {"api_key": bot.key}),
    ):
        assert fault(bot.request(method, path, json=body), 403, "forbidden")["message"] == why
    assert bot.read(f"/tasks/{task['id']}")["title"] == "A task"
    assert bot.read("/tasks", ready="true")["tasks"] == []
    assert bot.read("/inbox")["unread"] == 0
    assert [len(one.read("/tasks", ready="true")["tasks"]) for one in (owner, ana)] == [1, 1]
    change(ana, task, priority="high")  # people, and programs with keys of scope write, go on
    (entry, *_) = owner.read("/activity", entity="member")["activity"]
    assert entry["changes"] == {"stop": ["Too fast", "The keys leaked"]}
    for _ in range(2):
        assert owner.data(owner.post("/agents/start")) == {"stop": None}
    (entry, *_) = owner.read("/activity", entity="member")["activity"]
    assert entry["changes"] == {"stop": ["The keys leaked", None]}  # the second one changes nothing
    assert use(bot, "claim_task")["number"] == task["number"]


def test_who_waits_for_work_gets_none_while_agents_are_stopped_and_the_rest_after(launch):
    server = launch("--workers", "2")
    owner, bot = server.client(), server.agent("Bot that waits")
    project = owner.make_project()
    owner.data(owner.post("/agents/stop", {"reason": "Lunch"}))

    def waited(wait=5):
        begun = monotonic()
        found = bot.read("/tasks", ready="true", wait=wait)["tasks"]
        return [task["title"] for task in found], monotonic() - begun

    def work():
        owner.make_task(project, title="Work")
        wait_until(lambda: owner.read("/tasks", ready="true")["tasks"])
        owner.data(owner.post("/agents/start"))

    owner.make_task(project, title="Before")
    shown, seconds = waited(1)
    assert (shown, seconds >= 1) == ([], True)
    (found, seconds), _ = at_once(waited, work)
    assert (sorted(found), seconds < 5) == (["Before", "Work"], True)


def test_agents_are_stopped_on_the_command_line(launch_here):
    server = launch_here()
    owner, bot = server.client(), server.agent("Bot of the console")
    as_member = ("--as", server.join().member["email"])
    assert invoke(server, "agents", "stop", "I may not", *as_member).exit_code == 1
    assert owner.read("/agents/stop") == {"stop": None}
    assert "All agents are stopped." in invoke(server, "agents", "stop", "Too many mistakes").stdout
    assert "Olga Owner has stopped all agents: Too many mistakes" in refused(bot, "get_context")
    assert invoke(server, "agents", "start").stdout == "Agents go on.\n"
    for words in (("stop",), ("start", "Too early"), ("pause",)):
        assert invoke(server, "agents", *words).exit_code == 2
    assert use(bot, "get_context")["you"].startswith("Bot of the console")
