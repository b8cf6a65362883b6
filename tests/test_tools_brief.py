"""The tools' help for the work: news, the brief with a claim, and defaults."""

import json

import pytest
from harness import NOBODY
from test_inbox import change, comment, unread
from test_session import browser, cookie_of, sign_in
from test_tools import ask, outcome, refused, stored, titles, use
from test_tools_clients import tokens

NEEDS_SOCKET = False


def test_the_definitions_are_short(owner):
    definitions = ask(owner, "tools/list")["tools"]
    assert tokens(definitions) <= 1240
    # Annotations are for clients; models do not read them.
    read = [{name: value for name, value in one.items() if name != "annotations"} for one in definitions]
    assert tokens(read) <= 1000


def test_a_claim_answers_all_that_is_needed_to_begin(bot, owner):
    project = owner.make_project(name="Brief", description="Write in English. " * 200)
    done = owner.make_task(project, title="Design the schema")
    waiting = owner.make_task(project, title="Not done")
    fields = {"description": "All of it. " * 100, "metadata": {"branch": "api"}, "due_date": "2099-12-01"}
    blockers = [done["number"], waiting["number"]]
    task = owner.make_task(project, title="Build it", blocked_by=blockers, **fields)
    owner.data(owner.post(f"/tasks/{done['id']}/complete"))
    owner.request("POST", f"/tasks/{task['id']}/attachments", files={"file": ("plan.txt", b"x")})
    for number in range(5):
        comment(owner, task, f"Comment {number}")
    brief = use(bot, "claim_task", task_id=task["number"], minutes=30)
    assert brief["description"] == fields["description"]
    assert [said["text"] for said in brief["comments"]] == [f"Comment {number}" for number in (2, 3, 4)]
    assert brief.pop("about_project").startswith("Write in English. Write")
    shown = {name: brief[name] for name in ("metadata", "attachments", "done_blockers", "blocked_by", "due")}
    known = {"metadata": {"branch": "api"}, "attachments": ["plan.txt"], "due": "2099-12-01"}
    known["done_blockers"] = [f"#{done['number']} Design the schema"]
    assert shown == known | {"blocked_by": [waiting["number"]]}
    begun = [brief[name] for name in ("status", "assignee", "earlier_comments")]
    assert begun == ["in_progress", "Bot", 2]
    assert brief["claimed_until"] == stored(owner, task["id"])["claimed_until"][:16] + "Z"


def test_the_largest_brief_is_not_large_and_the_smallest_short(bot, owner):
    text = '"ünïcödé" ' * 1000
    project = owner.make_project(description=text)
    blockers = [owner.make_task(project, title="長" * 200)["number"] for _ in range(20)]
    more = {"description": text, "metadata": {"a": text}, "blocked_by": blockers}
    task = owner.make_task(project, title="長" * 500, **more)
    for number in blockers:
        owner.data(owner.post(f"/tasks/{number}/complete"))
    for number in range(12):
        owner.request("POST", f"/tasks/{task['id']}/attachments", files={"file": (f"{number}.txt", b"x")})
    for _ in range(4):
        comment(owner, task, text)
    brief = use(bot, "claim_task", task_id=task["number"])
    assert len(json.dumps(brief, ensure_ascii=False).encode()) < 16_000
    assert brief["done_blockers"][-1] == "and 15 more"
    assert len(brief["about_project"].encode()) < 1510
    empty = owner.make_task(owner.make_project())
    names = {"number", "title", "status", "priority", "assignee", "project", "version"}
    assert set(use(bot, "claim_task", task_id=empty["number"])) == names


def test_the_context_has_five_lines_of_news_which_doing_marks_as_read(owner, join):
    ana, project = join(full_name="Ana of the news"), owner.make_project()
    assert "for_you" not in use(ana, "get_context")
    tasks = [owner.make_task(project, title=f"New {n}", assignee_id=ana.member["id"]) for n in range(7)]
    comment(owner, tasks[3], "Please\nsoon. " + "x" * 300)
    context = use(ana, "get_context")
    assert context["for_you_total"] == 8
    line, *rest = context["for_you"]
    assert line.startswith(f"#{tasks[3]['number']} New 3: commented by owner Olga Owner: Please\nsoon. xxx")
    assert len(line) < 300
    assert rest[0] == f"#{tasks[6]['number']} New 6: assigned by owner Olga Owner"
    assert len(rest) == 4
    assert use(ana, "get_context")["for_you_total"] == 8  # reading marks nothing
    use(ana, "add_comment", task_id=tasks[3]["number"], content="Yes")
    assert use(ana, "get_context")["for_you_total"] == 6
    for one in tasks[1:]:
        use(ana, "update_task", task_id=one["number"], priority="high")
    last = f"#{tasks[0]['number']} New 0: assigned by owner Olga Owner"
    assert use(ana, "get_context")["for_you"] == [last]


def test_an_agent_is_not_told_what_it_did_itself(server, owner, task):
    bot = server.agent("Bot of the recent")
    comment(owner, task, "Go on")
    use(bot, "claim_task", task_id=task["number"])
    recent = use(bot, "get_context")["recent"]
    assert recent[0].endswith("owner Olga Owner (via bootstrap) created comment A task")
    assert "Bot of the recent" in use(owner, "get_context")["recent"][0]
    for priority in ("low", "high", "urgent", "medium", "low"):
        use(bot, "update_task", task_id=task["number"], priority=priority)
    assert "recent" not in use(bot, "get_context")
    # With a key of scope agent in a person's own name, what the person does in the browser is news.
    page = browser(server, cookie_of(sign_in(server, bot.key)))
    for _ in range(2):
        owner.data(page("PATCH", f"/tasks/{task['id']}/details", json={"title": "By the person"}))
    (line,) = use(bot, "get_context")["recent"]
    assert line.endswith("member Bot of the recent updated task By the person")


@pytest.mark.parametrize("status", ["todo", "in_progress"])
def test_a_task_sent_back_is_news_until_it_moves_on(bot, owner, task, status):
    use(bot, "claim_task", task_id=task["number"])
    use(bot, "complete_task", task_id=task["number"])
    change(owner, task, status=status)
    assert unread(bot)[0] == "sent_back"
    assert use(bot, "get_context")["for_you"][0] == f"#{task['number']} A task: sent_back by owner Olga Owner"
    change(owner, task, status="in_progress" if status == "todo" else "review")
    assert "sent_back" not in unread(bot)


MEANT = {
    "a priority": ({"priority": "High"}, {"priority": "high"}),
    "a status": ({"status": "To Do"}, {"status": "todo"}),
    "a status with a hyphen": ({"status": " In-Progress "}, {"status": "in_progress"}),
    "nobody": ({"assignee": "Nobody"}, {"assignee_id": None}),
    "unassigned": ({"assignee": "unassigned"}, {"assignee_id": None}),
}


def test_a_word_that_is_close_to_one_that_fits_is_taken_for_that(owner, project):
    for name, (given, changed) in MEANT.items():
        task = owner.make_task(project, assignee_id=owner.member["id"])
        use(owner, "update_task", task_id=f"#{task['number']}", **given)
        shown = stored(owner, task["id"])
        assert {field: shown[field] for field in changed} == changed, name


def test_lists_and_booleans_are_taken_as_json_too(owner, project):
    first, second = both = [owner.make_task(project)["number"] for _ in range(2)]
    changed = use(owner, "update_task", task_id=f'[{first}, "#{second}"]', priority="low")
    assert changed == {"done": both}
    assert use(owner, "update_task", task_id=f"{first}, #{second}", priority="low") == changed
    more = ['{"title": "d", "project": null, "labels": null, "blocked_by": "[-1]", "toolCallId": "1"}']
    first, second = use(owner, "create_task", project=project["id"], title="c", more=more)["done"]
    assert [row["number"] for row in stored(owner, second)["blocked_by"]] == [first]
    for wrong in ("[1", "{}", "[NaN]", "\ud800["):
        assert "labels: " in refused(owner, "update_task", task_id=first, labels=wrong)


def test_an_order_is_taken_as_it_is_meant_and_a_word_that_fits_nowhere_refused(owner, project):
    for priority in ("low", "urgent", "high"):
        owner.make_task(project, title=priority, priority=priority)
    assert titles(owner, project=project["id"], sort="priority") == ["urgent", "high", "low"]
    for wrong in ({"sort": "-due_date"}, {"limit": "five"}, {"priority": "asap"}, {"status": "to-day"}):
        assert f"{[*wrong][0]}: must be" in refused(owner, "find_tasks", **wrong)


def test_a_task_with_an_external_id_is_made_once(owner, project):
    given = {"project": project["id"], "external_id": f"mail-{project['id']}"}
    made = use(owner, "create_task", title="By mail", **given)
    use(owner, "update_task", task_id=made["number"], title="Another title")
    again = use(owner, "create_task", title="By mail again", **given)
    assert again == outcome(made, already_made=True, now=f"#{made['number']} Another title: todo")
    owner.data(owner.delete(f"/tasks/{made['number']}"))
    new = use(owner, "create_task", title="By mail", **given)
    assert new["number"] > made["number"]
    assert "already_made" not in new


def test_archived_projects_are_not_offered_and_refused_by_the_tool_s_name(owner):
    archived = owner.make_project(name="Quarry of the brief")
    owner.data(owner.patch(f"/projects/{archived['id']}", {"status": "archived"}))
    assert "Quarry" not in refused(owner, "create_task", project="No such project", title="x")
    assert '"Quarry" does not exist' in refused(owner, "create_task", project="Quarry", title="x")
    by_name = {"project": "Quarry of the brief"}
    assert use(owner, "get_project", **by_name)["status"] == "archived"
    assert refused(owner, "create_task", **by_name, title="x").startswith("validation_error: project: ")


def test_a_claim_s_end_is_renewed_by_the_same_agent_alone(bot, owner, task):
    first = use(bot, "claim_task", task_id=task["number"], minutes=5)
    again = use(bot, "claim_task", task_id=task["number"], minutes="30")
    assert again["claimed_until"] > first["claimed_until"]
    assert "Bot has it until 20" in refused(owner, "claim_task", task_id=task["number"])
    assert "minutes: must be" in refused(bot, "claim_task", minutes=0)
    assert "not_found" in refused(bot, "claim_task", task_id=NOBODY)


def test_several_tasks_are_created_by_one_call_with_blockers_among_them(bot, owner):
    project = owner.make_project(name="Several")
    more = [{"title": "Second", "blocked_by": [-1]}, {"title": "First", "assignee": "no such person"}]
    more.append({"title": "Fourth", "blocked_by": [-3]})
    more.append({"title": "First", "blocked_by": [-2], "labels": ["x"], "priority": "High"})
    arguments = {"project": "Several", "title": "First", "more": [*more, {"name": "x"}]}
    said = use(bot, "create_task", **arguments)
    first, second, third = said["done"]
    made = [stored(owner, number) for number in said["done"]]
    assert [task["title"] for task in made] == ["First", "Second", "First"]
    blocking = [[row["number"] for row in task["blocked_by"]] for task in made]
    assert blocking == [[], [first], [second]]
    assert [refusal.partition(": ")[0] for refusal in said["refused"]] == ["-3", "-4", "-6"]
    assert "blocked_by: -3 was not created before" in said["refused"][1]
    assert use(bot, "create_task", **arguments) == said | {"already_made": [first, second, third]}
    assert len(owner.read("/tasks", project_id=project["id"])["tasks"]) == 3
    deep: list = []
    for _ in range(30):
        deep = [deep]
    more = [{"title": "Deep", "metadata": {"a": deep}}, {"title": "Deeper", "metadata": {"a": [deep]}}]
    (refusal,) = use(bot, "create_task", project="Several", title="Third", more=more)["refused"]
    assert refusal.startswith("-3: ")
    assert "metadata: must not be nested deeper than 32 levels" in refusal
    assert "at most 20" in refused(bot, "create_task", **arguments | {"more": [{"title": "x"}] * 20})
    assert "each must be an object" in refused(bot, "create_task", **arguments | {"more": ["x"]})


def test_several_tasks_are_changed_by_one_call(bot, owner, project):
    tasks = [owner.make_task(project, metadata={"n": n}) for n in range(2)]
    both = [task["number"] for task in tasks]
    change = {"metadata": {"seen": True}, "labels": ["batch"]}
    said = use(bot, "update_task", task_id=[*both, NOBODY, "x"], **change)
    assert said["done"] == both
    now = [stored(owner, number) for number in both]
    assert [(task["metadata"]["n"], task["labels"]) for task in now] == [(0, ["batch"]), (1, ["batch"])]
    assert [refusal.partition(":")[0] for refusal in said["refused"]] == [NOBODY, "x"]
    assert "if_version" in refused(bot, "update_task", task_id=both, if_version=1, **change)
    assert "at most 20" in refused(bot, "update_task", task_id=both * 11, **change)
