"""The inbox: whom a change tells, why, and what marks it as read."""

import pytest
from harness import INSTANT, fault, invoke

NEEDS_SOCKET = False


@pytest.fixture(scope="module")
def team(join):
    """A member who acts, and two who are notified."""
    return [join(full_name=f"{name} Inbox") for name in ("Ana", "Ben", "Cleo")]


def of_the_team(place):
    """A fixture: one of them, to whom nothing is unread."""
    return pytest.fixture(lambda team: emptied(team[place]))


ana, ben, cleo = map(of_the_team, range(3))


def inbox(client, **query):
    return client.read("/inbox", **query)


def emptied(client):
    """The client, to whom nothing is unread."""
    notices = inbox(client)["notices"]
    if notices:
        client.data(client.post("/inbox/read", {"until": notices[0]["id"]}))
    return client


def unread(client, *fields):
    """Return the unread notices, the newest first: reasons, and these fields."""
    page = inbox(client)
    told = [notice for notice in page["notices"] if notice["read_at"] is None]
    assert page["unread"] == len(told)
    shown = [tuple(notice[name] for name in ("reason", *fields)) for notice in told]
    return shown if fields else [reason for (reason,) in shown]


def comment(client, task, content, **fields):
    return client.make(f"/tasks/{task['id']}/comments", {"content": content} | fields)


def change(client, task, **fields):
    return client.data(client.patch(f"/tasks/{task['id']}/details", fields))


def of(client):
    return client.member["id"]


def test_the_assignee_is_notified_with_task_and_actor(ana, ben, project):
    task = ana.make_task(project, title="Design", assignee_id=of(ben))
    (notice,) = inbox(ben, limit=1)["notices"]
    assert INSTANT.fullmatch(notice.pop("created_at"))
    assert notice.pop("id") > task["id"]
    assert notice == {
        "reason": "assigned",
        "task": {"id": task["id"], "number": task["number"], "title": "Design", "status": "todo"},
        "actor": {name: ana.member[name] for name in ("id", "full_name", "email", "role")},
        "excerpt": "",
        "read_at": None,
        "snoozed_until": None,
    }


def batch(client, project, *assignees):
    tasks = [{"project_id": project["id"], "title": "x", "assignee_id": id} for id in assignees]
    return client.make("/tasks/batch", {"tasks": tasks})["tasks"]


ASSIGNED = {
    "a creation": lambda client, project, id: client.make_task(project, assignee_id=id),
    "a batch": lambda client, project, id: batch(client, project, id, None),
    "a change": lambda client, project, id: change(client, client.make_task(project), assignee_id=id),
    "an external id": lambda client, project, id: client.put(
        f"/tasks/by-external-id/{project['id']}",
        {"project_id": project["id"], "title": "x", "assignee_id": id},
    ),
}


@pytest.mark.parametrize("way", ASSIGNED)
def test_every_way_to_assign_a_task_tells_the_member_and_never_the_actor(ana, ben, project, way):
    ASSIGNED[way](ana, project, of(ben))
    assert unread(ben) == ["assigned"]
    ASSIGNED[way](ana, ana.make_project(), of(ana))
    assert unread(ana) == []
    if way == "a batch":
        for _ in range(2):
            batch(ana, project, *[of(ben)] * 60)
        assert inbox(ben)["unread"] == 100  # up to which they are counted


def test_a_comment_tells_assignee_creator_and_who_has_commented_each_once(owner, ana, ben, cleo, project):
    task = ana.make_task(project, assignee_id=of(ben))
    emptied(ben)
    comment(cleo, task, "x" * 500)
    assert unread(ana, "excerpt") == unread(ben, "excerpt") == [("commented", "x" * 200)]
    assert unread(cleo) == []
    comment(owner, task, "And @cleo, see @Ben Inbox")
    assert unread(ana, "excerpt") == [("commented", "And @cleo, see @Ben Inbox")]
    assert unread(ben) == ["mentioned", "commented"]
    assert unread(cleo) == ["mentioned"]


def test_one_is_unread_for_a_task_and_reason_the_newest_on_top(ana, ben, project):
    first, second = (ana.make_task(project, title=title, assignee_id=of(ben)) for title in ("1", "2"))
    for task, text in ((first, "a"), (second, "b"), (first, "c"), (first, "d")):
        comment(ana, task, text)
    assert unread(ben, "excerpt") == [("commented", "d"), ("commented", "b"), *[("assigned", "")] * 2]
    comment(ben, first, "Read")
    comment(ana, first, "e")
    assert unread(ben, "excerpt") == [("commented", "e"), ("commented", "b"), ("assigned", "")]


def test_an_inbox_comes_in_pages_is_one_s_own_and_what_is_read_stays(ana, ben, cleo, project):
    for title in "123":
        ana.make_task(project, title=title, assignee_id=of(ben))
    page = inbox(ben, limit=2)
    third, second = page["notices"]
    before = page["pagination"].pop("next_before")
    assert page["pagination"] == {"limit": 2, "has_more": True}
    (first,) = inbox(ben, limit=1, before=before)["notices"]
    assert [notice["task"]["title"] for notice in (third, second, first)] == ["3", "2", "1"]
    assert unread(cleo) == []
    for which in ({"until": third["id"]}, {"task_id": third["task"]["id"]}):
        assert cleo.data(cleo.post("/inbox/read", which)) == {"read": 0}
    assert len(unread(ben)) == 3
    for read in (2, 0):
        assert ben.data(ben.post("/inbox/read", {"until": second["id"]})) == {"read": read}
    after = inbox(ben, limit=3)
    assert [notice["id"] for notice in after["notices"]] == [third["id"], second["id"], first["id"]]
    assert [bool(notice["read_at"]) for notice in after["notices"]] == [False, True, True]
    assert after["unread"] == 1
    for number in (10**9, third["task"]["number"]):
        read = ben.data(ben.post("/inbox/read", {"task_id": number}))["read"]
        assert read == (number < 10**9)
    assert unread(ben) == []
    for wrong in ({}, {"until": third["id"], "task_id": third["task"]["id"]}):
        error = fault(ben.post("/inbox/read", wrong), 422, "validation_error", "until")
        assert error["message"] == "until: send either until or task_id"


ACTS = {
    "a change": lambda client, task: change(client, task, title="Changed"),
    "a comment": lambda client, task: comment(client, task, "Yes"),
    "a claim": lambda client, task: client.data(client.post(f"/tasks/{task['id']}/claim")),
    "completion": lambda client, task: client.data(client.post(f"/tasks/{task['id']}/complete")),
    "a file": lambda client, task: client.data(
        client.request("POST", f"/tasks/{task['id']}/attachments", files={"file": ("a.txt", b"a")}), 201
    ),
}


@pytest.mark.parametrize("act", ACTS)
def test_changing_a_task_or_answering_reads_its_notices_and_looking_at_it_does_not(ana, ben, project, act):
    task, other = (ana.make_task(project, title=title, assignee_id=of(ben)) for title in ("This", "Other"))
    comment(ana, task, "Please")
    for path in ("/inbox", f"/tasks/{task['id']}", "/context"):
        ben.read(path)
    change(ben, task, title=task["title"])  # which it has already: this marks nothing, nor does looking at it
    assert unread(ben) == ["commented", "assigned", "assigned"]
    ACTS[act](ben, task)
    assert [task["id"] for _, task in unread(ben, "task")] == [other["id"]]


def test_the_creator_or_else_the_project_s_owner_is_told_of_a_review(join, owner, ana, ben, project):
    """The owner, if the creator is who asks, or is gone."""
    change(ben, ana.make_task(project, assignee_id=of(ben)), status="review")
    assert unread(ana) == ["review"]
    new = {"project_id": ana.make_project()["id"], "title": "Made in review", "status": "review"}
    ben.data(ben.put(f"/tasks/by-external-id/{new['project_id']}", new), 201)
    assert unread(ana, "task")[0][1]["title"] == "Made in review"
    emptied(ana)
    project = ana.make_project()
    change(ben, ben.make_task(project), status="review")
    assert unread(ana) == ["review"]
    gone = join()
    task = gone.make_task(project)
    owner.data(owner.delete(f"/members/{of(gone)}"))
    change(ben, task, status="review")
    assert unread(ana) == ["review", "review"]
    change(ana, ana.make_task(project), status="review")  # nobody is left to notify
    assert unread(ana) == ["review", "review"]


def test_a_person_is_told_of_a_review_or_question_about_a_task_that_an_agent_created(server, ana):
    planner, worker = server.agent("Planner"), server.agent("Worker")
    project = ana.make_project()
    change(worker, planner.make_task(project), status="review")
    comment(worker, planner.make_task(project), "Blue?", question=True)
    assert unread(ana) == ["question", "review"]
    assert unread(planner) == ["commented"]


def test_nobody_asks_a_member_whose_keys_only_read(server, owner):
    reader = server.client(invoke(server, "member", "add", "Dashboard", "--scope", "read").stdout.strip())
    project = owner.make_project(owner_id=of(reader))
    task = owner.make_task(project)
    worker = server.agent("Night worker")
    emptied(owner)
    change(worker, worker.make_task(project), status="review")
    comment(worker, task, "Blue?", question=True)
    assert unread(owner) == ["question", "review"]
    assert unread(reader) == []


def test_the_mentions_of_a_copy_notify_nobody_again(owner, ana, project):
    task = owner.make_task(project, description=f"@{ana.member['full_name']} look")
    assert unread(ana) == ["mentioned"]
    owner.make(f"/tasks/{task['id']}/copy")
    assert unread(ana) == ["mentioned"]


def unblock(client, *blockers):
    for task in blockers:
        client.data(client.post(f"/tasks/{task['id']}/complete"))


def delete(client, *blockers):
    for task in blockers:
        client.data(client.delete(f"/tasks/{task['id']}"))


def delete_project(client, first, *_):
    client.data(client.delete(f"/projects/{first['project_id']}", params={"force": "true"}))


@pytest.mark.parametrize("end", [unblock, delete, delete_project])
def test_the_end_of_the_last_open_blocker_tells_the_assignee(ana, ben, project, end):
    elsewhere = ana.make_project()
    first, last = (ana.make_task(elsewhere, title=title) for title in ("First", "Last"))
    task = ana.make_task(project, assignee_id=of(ben), blocked_by=[first["number"], last["number"]])
    emptied(ben)
    if end is not delete_project:
        end(ana, first)
        assert unread(ben) == []
    end(ana, *((last,) if end is not delete_project else (first, last)))
    ((reason, excerpt, told),) = unread(ben, "excerpt", "task")
    assert (reason, excerpt, told["id"]) == ("unblocked", f"#{last['number']} Last", task["id"])


def test_the_end_of_what_blocks_nothing_any_more_tells_nobody_nor_does_what_is_open_again(ana, ben, project):
    first = ana.make_task(project)
    ana.make_task(project, assignee_id=of(ben), blocked_by=[first["id"]])
    unblock(ana, first)
    assert unread(ben) == ["unblocked", "assigned"]
    change(ana, first, status="todo")
    assert unread(ben) == ["assigned"]
    done, open_one, last = (ana.make_task(project) for _ in range(3))
    numbers = [task["number"] for task in (done, open_one)]
    ana.make_task(project, assignee_id=of(ben), blocked_by=numbers)
    unblock(ana, ana.make_task(project, assignee_id=of(ben), blocked_by=[last["number"]]), done, first)
    emptied(ben)
    unblock(ana, last)  # for which nothing waits that is open
    delete(ana, done, first)  # which were done before
    assert unread(ben) == []


def test_notices_follow_their_comment_or_task(server, ana, ben, cleo, project):
    gone = ana.make_task(project, assignee_id=of(ben))
    ana.data(ana.delete(f"/tasks/{gone['id']}"))
    assert server.rows("SELECT id FROM notice WHERE task_id = ?", gone["id"]) == []
    assert unread(ben) == []
    task = ana.make_task(project)
    said = comment(ana, task, "The password is hunter2, @Ben Inbox")
    comment(cleo, task, "@Ben Inbox, see above")
    path = f"/tasks/{task['id']}/comments/{said['id']}"
    ana.data(ana.patch(path, {"content": "The password is in the safe, @Ben Inbox @Cleo Inbox"}))
    assert "hunter2" not in ben.get("/inbox").text + cleo.get("/inbox").text
    assert [reason for reason, excerpt in unread(cleo, "excerpt") if "safe" in excerpt] == ["mentioned"]
    ana.data(ana.delete(path))
    assert "safe" not in ben.get("/inbox").text + cleo.get("/inbox").text
    assert unread(ben, "excerpt") == [("mentioned", "@Ben Inbox, see above")]


def test_a_notice_goes_with_its_own_comment_and_not_with_one_of_the_same_words(ana, ben, cleo, project):
    task = ana.make_task(project)
    first, _ = (comment(ana, task, f"+1 @{name} Inbox") for name in ("Ben", "Cleo"))
    second = comment(ana, task, "+1 @Ben Inbox")
    path = f"/tasks/{task['id']}/comments"
    ana.data(ana.delete(f"{path}/{first['id']}"))
    assert unread(ben, "excerpt") == [("mentioned", "+1 @Ben Inbox")]
    ana.data(ana.patch(f"{path}/{second['id']}", {"content": "+1 @Cleo Inbox"}))
    assert unread(ben) == []  # whom it names no more
    assert unread(cleo) == ["mentioned"]


def test_a_description_tells_whom_it_newly_names(ana, ben, cleo, project):
    task = ana.make_task(project, description="Ask @Ben Inbox, not `@Cleo Inbox`", assignee_id=of(cleo))
    assert unread(ben, "excerpt") == [("mentioned", task["description"])]
    assert unread(cleo) == ["assigned"]
    emptied(ben)
    change(ana, task, description="Ask @Ben Inbox or @Cleo Inbox, @Ana Inbox")
    assert unread(ben) == unread(ana) == []
    mentioned = ("mentioned", "Ask @Ben Inbox or @Cleo Inbox, @Ana Inbox")
    assert unread(cleo, "excerpt") == [mentioned, ("assigned", "")]
    change(ana, task, description="Ask nobody")
    assert unread(cleo) == ["assigned"]


def test_outdated_notices_are_marked_as_read(owner, ana, ben, cleo, project):
    done, given = [ana.make_task(project, assignee_id=of(ben)) for _ in range(2)]
    owner.data(owner.post(f"/tasks/{done['id']}/complete"))
    change(owner, given, assignee_id=of(cleo))
    assert unread(ben) == []
    asked = ben.make_task(project)
    comment(ana, asked, "Which one, @Ben Inbox?", question=True)
    comment(owner, asked, "The red one")
    assert unread(ben) == ["commented"]
    looked_at = cleo.make_task(project)
    change(ana, looked_at, status="review")
    owner.data(owner.post(f"/tasks/{looked_at['id']}/complete"))
    assert unread(cleo) == ["assigned"]
    first, second = [owner.make_task(project) for _ in range(2)]
    freed = ana.make_task(project, blocked_by=[first["id"]])
    change(owner, freed, assignee_id=of(ben))
    owner.data(owner.post(f"/tasks/{first['id']}/complete"))
    assert unread(ben) == ["unblocked", "assigned", "commented"]
    change(owner, freed, blocked_by=[second["id"]])
    assert unread(ben) == ["assigned", "commented"]
    # Nobody is reminded of what an archived project has.
    task = ana.make_task(project, assignee_id=of(ben))
    comment(ana, task, "See @Ben Inbox")
    comment(ana, task, "Which one, @Ben Inbox?", question=True)
    owner.data(owner.patch(f"/projects/{project['id']}", {"status": "archived"}))
    assert unread(ben) == ["mentioned", "commented"]


def test_another_assignee_ends_what_the_first_was_told(owner, ana, ben, cleo, project):
    blocker = ana.make_task(project)
    task = ana.make_task(project, assignee_id=of(ben), blocked_by=[blocker["id"]])
    unblock(owner, blocker)
    change(ana, task, status="review")
    change(owner, task, status="todo")
    assert unread(ben) == ["sent_back", "unblocked", "assigned"]
    change(owner, task, assignee_id=of(cleo))
    assert unread(ben) == []


def test_a_demonstration_shows_the_owner_an_agents_work(launch_here):
    server = launch_here()
    assert invoke(server, "seed").exit_code == 0
    assert sorted(unread(server.client())) == ["question", "review"]
