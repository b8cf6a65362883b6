"""A comment that is a question parks its task until somebody else answers."""

import json

import pytest
from harness import fault, last_event
from test_inbox import change, comment, emptied, inbox, unread
from test_keys import make_key
from test_members import invite
from test_session import browser, cookie_of
from test_session import sign_in as start_session
from test_tools import refused, stored, use

NEEDS_SOCKET = False


@pytest.fixture(scope="module")
def ana(join):
    return join(full_name="Ana of the questions")


@pytest.fixture
def task(ana, owner, bot):
    """A task of Ana's in a project of the owner's; to all three nothing is unread."""
    for client in (ana, owner, bot):
        emptied(client)
    return ana.make_task(owner.make_project())


def ready(client, task):
    listed = client.read("/tasks", ready="true", project_id=task["project_id"])["tasks"]
    return [row["id"] for row in listed] == [task["id"]]


def question_of(client, task):
    return stored(client, task["id"])["question_id"]


def test_a_question_parks_the_task_until_it_is_answered(server, owner, ana, bot, task):
    assert ready(owner, task)
    asked = comment(bot, task, "Which colour?", question=True)
    event = last_event(server)
    assert event["event"] == "task.updated"
    assert event["data"]["changes"] == {"question_id": [None, asked["id"]]}
    assert event["data"]["task"]["version"] == 2
    assert question_of(owner, task) == asked["id"]
    assert not ready(owner, task)
    for client in (owner, ana, bot):
        error = fault(client.post(f"/tasks/{task['id']}/claim"), 409, "conflict")
        assert error["message"] == f"#{task['number']} waits for the answer to a question"
    assert unread(ana, "excerpt") == [("question", "Which colour?")]
    assert unread(owner) == []
    assert use(bot, "get_task", task_id=task["number"])["waits_for_answer"] is True
    assert "waits for the answer" in refused(bot, "claim_task", task_id=task["number"])
    change(owner, task, title="Renamed", status="review")
    change(owner, task, status="todo")
    comment(bot, task, "I mean the button", question=False)  # who has asked goes on
    assert question_of(owner, task) == asked["id"]
    comment(ana, task, "Blue")
    assert question_of(owner, task) is None
    assert last_event(server)["data"]["changes"] == {"question_id": [asked["id"], None]}
    assert unread(bot, "excerpt") == [("answered", "Blue")]
    assert unread(ana) == []
    assert ready(owner, task)


def test_asked_is_who_is_mentioned_else_the_creator_else_the_project_s_owner(owner, ana, bot, join, task):
    ben = join(full_name="Ben of the questions")
    comment(bot, task, "@Ben of the questions or @Bot?", question=True)
    assert unread(ben) == ["question"]
    assert unread(ana) == ["commented"]
    comment(ana, task, "And now?", question=True)  # by the creator herself: the owner is asked
    assert unread(owner) == ["question"]
    assert unread(bot) == ["answered"]
    comment(bot, task, "@Bot again", question=True)  # a mention of the author asks nobody
    assert unread(ana) == ["question", "answered"]
    invite(owner, "ida@questions.example.com", full_name="Ida of the questions")  # who has not joined
    comment(emptied(ana), task, "@Bot, wait")
    comment(bot, task, "@Ida of the questions?", question=True)
    assert unread(ana) == ["question"]


def test_a_question_to_nobody_is_refused(owner, task):
    own = owner.make_task(owner.make_project())
    path = f"/tasks/{own['id']}/comments"
    for content in ("Why?", "@Olga Owner, why?"):
        asking = {"content": content, "question": True}
        error = fault(owner.post(path, asking), 422, "validation_error", "question")
        assert error["details"][0]["message"] == "nobody would be notified; mention a member, as @Full Name"
        said = refused(owner, "add_comment", task_id=own["number"], **asking)
        assert "question: nobody would be notified" in said
    assert owner.read(path)["comments"] == []


def test_a_client_asks_nothing_and_may_answer(owner, bot, join, task):
    client = join("client")
    path = f"/tasks/{task['id']}/comments"
    fault(client.post(path, {"content": "When?", "question": True}), 403, "forbidden")
    assert owner.read(path)["comments"] == []
    comment(bot, task, "When?", question=True)
    comment(client, task, "Tomorrow")
    assert question_of(owner, task) is None


def test_another_kind_of_key_of_the_same_member_answers_and_another_browser_does_not(server, owner, task):
    agent = server.client(make_key(owner, name="agent of Olga")["api_key"])
    pages = [browser(server, cookie_of(start_session(server))) for _ in range(2)]

    def write(page, content, **fields):
        path = f"/tasks/{task['id']}/comments"
        return owner.data(page("POST", path, json={"content": content} | fields), 201)

    comment(agent, task, "May I?", question=True)
    write(pages[0], "Yes")
    assert question_of(owner, task) is None
    asked = write(pages[0], "When, @Ana of the questions?", question=True)
    write(pages[1], "It is urgent")
    assert question_of(owner, task) == asked["id"]


@pytest.mark.parametrize("is_done", [True, False])
def test_done_or_deletion_of_the_comment_ends_the_question(server, owner, bot, task, is_done):
    asked, path = comment(bot, task, "Still?", question=True), f"/tasks/{task['id']}"
    owner.data(owner.post(f"{path}/complete") if is_done else owner.delete(f"{path}/comments/{asked['id']}"))
    assert question_of(owner, task) is None
    rows = server.rows("SELECT body FROM event ORDER BY seq DESC LIMIT 2")
    changes = [json.loads(row["body"])["data"].get("changes", {}) for row in rows]
    assert [asked["id"], None] in [change.get("question_id") for change in changes]
    other = comment(owner, task, "No longer asked")
    owner.data(owner.delete(f"{path}/comments/{other['id']}"))  # ends nothing
    assert stored(owner, task["id"])["version"] == 3
    if is_done:
        fault(bot.post(f"{path}/comments", {"content": "Why so?", "question": True}), 409, "conflict")
        comment(bot, task, "Why so?")
        change(owner, task, status="todo")
        assert question_of(owner, task) is None


def test_a_question_may_answer_another_one_and_the_last_of_one_s_own_counts(owner, ana, bot, task):
    first = comment(bot, task, "This?", question=True)
    second = comment(bot, task, "Or that?", question=True)
    assert question_of(owner, task) == second["id"] != first["id"]
    assert unread(ana, "excerpt") == [("question", "Or that?")]
    back = comment(ana, task, "@Bot, which is cheaper?", question=True)
    assert question_of(owner, task) == back["id"]
    assert unread(bot) == ["question", "answered"]
    comment(bot, task, "That one")
    assert question_of(owner, task) is None
    assert unread(ana) == ["answered"]


def test_a_question_stays_unread_whatever_else_is_changed_until_it_is_answered(server, owner, ana, bot, task):
    comment(bot, task, "Which colour?", question=True)
    for client in (server.client(make_key(ana, scope="agent")["api_key"]), ana):
        change(client, task, priority="high")
        assert unread(ana) == ["question"]
    comment(ana, task, "Blue")
    assert unread(ana) == []


def test_an_edited_question_asks_whom_it_newly_names_and_no_longer_whom_it_named(bot, join, task):
    bea, cal = (join(full_name=f"{name} of the questions") for name in ("Bea", "Cal"))
    asked = comment(bot, task, "Who knows?", question=True)
    path = f"/tasks/{task['id']}/comments/{asked['id']}"
    bot.data(bot.patch(path, {"content": "Who knows, @Bea of the questions?"}))
    assert unread(bea) == ["question"]
    for content in ("Who knows, @Cal?", "Does anybody know?"):  # which names nobody else
        bot.data(bot.patch(path, {"content": content}))
        assert (unread(bea), unread(cal, "excerpt")) == ([], [("question", content)])
    fault(bot.patch(path, {"question": False}), 422, "validation_error", "question")


@pytest.mark.parametrize("door", ["removed", "limited", "moved"])
def test_what_waits_for_somebody_who_leaves_passes_to_the_creator_or_owner(owner, ana, bot, join, task, door):
    client = join("client", full_name=f"Kim {door}", project_ids=[task["project_id"]])
    leo, member = join(full_name=f"Leo {door}"), f"/members/{client.member['id']}"
    shared, own = (bot.make(f"/tasks/{task['id']}/copy") for _ in range(2))
    for row, names in ((task, "Kim"), (shared, f"Kim {door} or @Leo"), (own, "Kim")):
        comment(bot, row, f"Which colour, @{names} {door}?", question=True)
    emptied(owner)
    if door == "moved":
        places = [row["id"] for row in (task, shared, own)]
        body = {"tasks": places, "changes": {"project_id": owner.make_project()["id"]}}
        owner.data(owner.patch("/tasks/batch", body))
    elif door == "limited":
        owner.data(owner.patch(member, {"project_ids": []}))
    else:
        owner.data(owner.delete(member))
    assert (unread(leo), unread(ana)[0]) == (["question"], "question")
    (notice,) = [row for row in inbox(owner)["notices"] if row["reason"] == "question" and not row["read_at"]]
    said = (notice["task"]["number"], notice["actor"]["full_name"], notice["excerpt"])
    assert said == (own["number"], "Bot", f"Which colour, @Kim {door}?")


@pytest.mark.parametrize("door", ["removed", "a client"])
def test_what_waits_for_a_former_creator_or_owner_of_a_project_passes_to_an_owner(owner, bot, join, door):
    """To the project's, or else to the workspace's."""
    mia = join(full_name=f"Mia {door}")
    project = mia.make_project()
    asking, *works = (bot.make_task(project) for _ in range(3))
    created = [mia.make_task(owner.make_project(), assignee_id=None) for _ in range(2)]
    comment(bot, asking, f"May I, @Mia {door}?", question=True)
    before, after = zip(works, created, strict=True)
    for work in before:
        change(bot, work, status="review")
    assert unread(mia) == ["review", "review", "question"]
    emptied(owner)
    path = f"/members/{mia.member['id']}"
    owner.data(owner.delete(path) if door == "removed" else owner.patch(path, {"role": "client"}))
    for work in after:
        change(bot, work, status="review")
    listed = [row["task"]["number"] for row in owner.read("/today")["reviews"]]
    assert listed[-4:] == [work["number"] for work in (*before, *after)]
    assert ("question" in unread(owner)) == (door == "removed")  # a client can still answer
