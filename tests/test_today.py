"""GET /today: what waits for a member, in its order, and what puts it off."""

from datetime import UTC, datetime, timedelta

import pytest
from harness import NOBODY, fault
from test_inbox import change, comment
from test_keys import make_key

NEEDS_SOCKET = False

KINDS = ["questions", "reviews", "mentions", "due", "meetings", "working"]
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")


@pytest.fixture(scope="module")
def ada(join):
    """Somebody for whom things wait."""
    return join(full_name="Ada Today")


@pytest.fixture(scope="module")
def bo(join):
    return join(full_name="Bo Today")


@pytest.fixture(scope="module")
def agent(server, bo):
    return server.client(make_key(bo, name="builder", scope="agent")["api_key"])


def today(client):
    found = client.read("/today")
    assert sorted(found) == sorted(KINDS)
    return found


def titles(client, kind):
    return [entry["task"]["title"] for entry in today(client)[kind]]


def said(entry):
    return entry["comment"]["excerpt"], entry["comment"]["author_id"]


def snooze(client, task, until):
    return client.data(client.post("/inbox/snooze", {"task_id": task["id"], "until": until}))


def test_a_question_waits_for_whom_it_asks_until_it_is_answered(ada, bo, project):
    first, second = (bo.make_task(project, title=title) for title in ("First", "Second"))
    for task in (first, second):
        comment(bo, task, "Blue, @Ada Today?", question=True)
    assert (titles(ada, "questions"), titles(bo, "questions")) == (["First", "Second"], [])
    assert said(today(ada)["questions"][0]) == ("Blue, @Ada Today?", bo.member["id"])
    ada.data(ada.post("/inbox/read", {"task_id": first["id"]}))  # looking at it answers nothing
    assert titles(ada, "questions") == ["First", "Second"]
    comment(ada, first, "Green")
    assert titles(ada, "questions") == ["Second"]
    comment(bo, first, "Sure, @Owner of the tests?")
    change(bo, second, status="done")
    assert titles(ada, "questions") == []


def test_a_review_waits_with_the_last_comment_until_the_task_moves_on(ada, agent, project):
    tasks = [ada.make_task(project, title=title) for title in ("One", "Two")]
    for task in tasks:
        agent.data(agent.post(f"/tasks/{task['id']}/claim", {}))
        comment(agent, task, f"Built {task['title']}")
        change(agent, task, status="review")
    ada.data(ada.post("/inbox/read", {"task_id": tasks[0]["id"]}))
    shown = [(entry["task"]["title"], said(entry)[0]) for entry in today(ada)["reviews"]]
    assert shown == [("One", "Built One"), ("Two", "Built Two")]
    change(ada, tasks[0], status="todo")
    change(ada, tasks[1], status="done")
    assert today(ada)["reviews"] == []


def test_today_lists_the_assignee_s_tasks_due_today(ada, bo, project):
    now = datetime.now(UTC)
    mine = {"assignee_id": ada.member["id"]}
    days = {"Late": now - timedelta(days=400), "Today": now, "Later": now + timedelta(days=2)}
    tasks = {}
    for title, day in reversed(days.items()):
        tasks[title] = ada.make_task(project, title=title, due_date=f"{day:%Y-%m-%d}", **mine)
    assert titles(ada, "due") == ["Late", "Today"]
    change(ada, tasks["Today"], status="review")  # where it waits for somebody else
    change(ada, tasks["Late"], assignee_id=bo.member["id"])
    assert titles(ada, "due") == []
    assert titles(bo, "due") == ["Late"]
    bo.data(bo.patch(f"/projects/{project['id']}", {"status": "archived"}))
    assert titles(bo, "due") == []


def test_the_meetings_that_have_not_ended_today_are_listed(ada, bo):
    now = datetime.now(UTC)

    def meet(title, starts_at, ends_at=None):
        times = {"starts_at": starts_at.isoformat(), "ends_at": ends_at and ends_at.isoformat()}
        bo.make("/meetings", {"title": title, "participant_ids": [ada.member["id"]]} | times)

    meet("Over", now - timedelta(days=2), now - timedelta(days=1))
    meet("Under way", now - timedelta(hours=1), now + timedelta(hours=1))
    meet("In two days", now + timedelta(days=2))
    meetings = today(ada)["meetings"]
    assert [(one["title"], one["organizer"]["full_name"]) for one in meetings] == [("Under way", "Bo Today")]


def test_today_shows_the_claims_of_agents_to_everybody(ada, bo, agent, join, project):
    claimed, own = (bo.make_task(project, title=title) for title in ("Claimed", "By hand"))
    agent.data(agent.post(f"/tasks/{claimed['id']}/claim", {"minutes": 30}))
    change(bo, own, status="in_progress", assignee_id=bo.member["id"])
    comment(agent, claimed, "Half done")
    (entry,) = [one for one in today(join("client"))["working"] if one["task"]["id"] == claimed["id"]]
    assert said(entry)[0] == "Half done"
    assert entry["task"]["claimed_until"]
    change(bo, claimed, status="todo")
    assert not {one["task"]["id"] for one in today(ada)["working"]} & {claimed["id"], own["id"]}


@pytest.mark.parametrize("kind", ["questions", "reviews", "mentions", "due"])
def test_a_snoozed_task_is_left_out_until_the_time_or_the_undo(ada, bo, project, kind):
    task = (ada if kind == "reviews" else bo).make_task(project, title=kind)
    if kind == "due":
        task = change(ada, task, assignee_id=ada.member["id"], due_date="2026-01-01")
    elif kind == "reviews":
        change(bo, task, status="review")
    else:
        comment(bo, task, "Well, @Ada Today?", question=kind == "questions")
    before = ada.read("/inbox")["unread"]
    assert kind in titles(ada, kind)
    snoozed = snooze(ada, task, TOMORROW)
    assert snoozed["task_id"] == task["id"]
    assert kind not in titles(ada, kind)
    inbox = ada.read("/inbox")
    assert inbox["unread"] == before - (kind != "due")
    (notice,) = [one for one in inbox["notices"] if one["task"]["id"] == task["id"]]
    assert notice["snoozed_until"] == snoozed["snoozed_until"]
    ada.data(ada.post("/inbox/read", {"until": notice["id"]}))  # what is put off stays unread
    assert snooze(ada, task, None) == {"task_id": task["id"], "snoozed_until": None}
    assert kind in titles(ada, kind)
    assert ada.read("/inbox")["unread"] == (kind != "due")
    change(ada, task, status="todo" if kind == "reviews" else "done")


def test_a_mention_waits_until_it_is_read_and_a_new_one_waits_though_the_task_is_put_off(ada, bo, project):
    task = bo.make_task(project, title="Again")
    comment(bo, task, "Once, @Ada Today")
    (entry,) = today(ada)["mentions"]
    assert said(entry) == ("Once, @Ada Today", bo.member["id"])
    assert (entry["task"]["id"], entry["task"]["version"]) == (task["id"], 1)
    snooze(ada, task, TOMORROW)
    assert titles(ada, "mentions") == []
    comment(bo, task, "Twice, @Ada Today")
    assert titles(ada, "mentions") == ["Again"]
    ada.data(ada.post("/inbox/read", {"task_id": task["id"]}))
    assert today(ada)["mentions"] == []


def test_a_mention_in_a_description_is_shown_with_its_author_and_the_beginning(ada, bo, owner, project):
    task = ada.make_task(project, title="Described")
    change(bo, task, description="For @Ada Today" + "." * 1000)
    comment(owner, task, "Not what mentions her")
    (entry,) = today(ada)["mentions"]
    assert said(entry) == ("For @Ada Today" + "." * 986, bo.member["id"])
    assert entry["comment"]["id"] is None
    ada.data(ada.post("/inbox/read", {"task_id": task["id"]}))


def test_an_archived_project_waits_for_nobody_and_its_mentions_stay(ada, bo, project):
    asked, described = bo.make_task(project), bo.make_task(project, description="See @Ada Today")
    reviewed = ada.make_task(project)
    comment(bo, asked, "Blue, @Ada Today?", question=True)
    change(bo, reviewed, status="review")
    for status in ("active", "archived", "active"):
        bo.data(bo.patch(f"/projects/{project['id']}", {"status": status}))
        lists = today(ada)
        shown = [entry["task"]["id"] for kind in KINDS[:3] for entry in lists[kind]]
        waiting = [asked["id"], reviewed["id"]] if status == "active" else []
        assert shown == [*waiting, described["id"]]
    change(bo, asked, status="done")
    change(bo, reviewed, status="done")
    ada.data(ada.post("/inbox/read", {"task_id": described["id"]}))


def test_one_puts_off_what_exists_until_a_time_to_come(ada, task):
    fault(ada.post("/inbox/snooze", {"task_id": task["id"]}), 422, "validation_error", "until")
    for task_id in (NOBODY, 10**9):
        body = {"task_id": task_id, "until": TOMORROW}
        fault(ada.post("/inbox/snooze", body), 422, "validation_error", "task_id")
    snoozed = ada.data(ada.post("/inbox/snooze", {"task_id": task["number"], "until": None}))
    assert snoozed == {"task_id": task["id"], "snoozed_until": None}
    assert task["id"] not in ada.get("/inbox").text
