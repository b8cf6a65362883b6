"""Deleted objects come back as they were, or are deleted for good."""

from functools import partial

from harness import NOBODY, at_once, check_new_events, fault, invoke, last_event, wait_until
from test_changes import Mirror, assert_equal
from test_inbox import unread

NEEDS_SOCKET = False


def listed(client, **query):
    return client.read("/deleted", **query)["deleted"]


def restore(client, row):
    """Restore what was deleted, in as many calls as that takes; return the last answer."""
    while not (answer := client.data(client.post(f"/deleted/{row['id']}/restore")))["restored"]:
        continue
    return answer


def attach(client, task, data=b"text", name="plan.txt"):
    files = {"file": (name, data, "text/plain")}
    return client.data(client.request("POST", f"/tasks/{task['id']}/attachments", files=files), 201)


def whole(client, task):
    """A task with all that belongs to it, but for its version and the time of its last change."""
    path = f"/tasks/{task['id']}"
    shown = client.read(path) | {"updated_at": None, "version": None}
    files = [
        client.request("GET", f"{path}/attachments/{one['id']}", envelope=False).content
        for one in shown["attachments"]
    ]
    return shown, client.read(f"{path}/comments")["comments"], files


def test_a_task_comes_back_with_all_that_belongs_to_it(server, owner, join, project, milestone):
    member = join()
    first, last = owner.make_task(project), owner.make_task(project)
    fields = {"title": "Łódź", "description": "- [x] one\n- [ ] two", "labels": ["Design"]}
    fields |= {"metadata": {"a": 1.50}, "repeat": "FREQ=WEEKLY", "external_id": f"ext-{project['id']}"}
    fields |= {"milestone_id": milestone["id"], "assignee_id": member.member["id"], "due_date": "2030-12-01"}
    task = member.make_task(project, **fields)
    owner.patch(f"/tasks/{task['id']}/details", {"blocked_by": [first["number"]]})
    owner.patch(f"/tasks/{last['id']}/details", {"blocked_by": [task["number"]]})
    member.make(f"/tasks/{task['id']}/comments", {"content": "Is it so, @Olga?", "question": True})
    attach(member, task, b"\x00\xff" * 5000)
    before, version = whole(owner, task), owner.read(f"/tasks/{task['id']}")["version"]
    assert owner.delete(f"/tasks/{task['id']}").status_code == 200
    row = listed(owner)[0]
    named = {"kind": "task", "project_id": project["id"]}
    assert row | named | {name: task[name] for name in ("id", "title", "number")} == row
    assert (row["deleted_by"]["id"], row["via"]) == (owner.member["id"], "bootstrap")
    assert restore(member, row) == {"id": task["id"], "kind": "task", "restored": True}
    assert whole(owner, task) == before
    assert owner.read(f"/tasks/{task['id']}")["version"] == version + 1
    assert [one["number"] for one in owner.read(f"/tasks/{last['id']}")["blocked_by"]] == [task["number"]]
    assert owner.read("/tasks", q="lodz two", label="design")["tasks"][0]["id"] == task["id"]
    history = owner.read(f"/tasks/{task['id']}/activity")["activity"]
    assert [one["action"] for one in history[:2]] == ["restored", "deleted"]
    assert row not in listed(owner)
    fault(owner.post(f"/deleted/{task['id']}/restore"), 404, "not_found")
    fault(owner.post(f"/deleted/{NOBODY}/restore"), 404, "not_found")


def test_what_belongs_to_a_task_comes_back_alone_and_only_to_its_task(owner, join, project):
    member, other = join(), join()
    task = owner.make_task(project)
    comment = member.make(f"/tasks/{task['id']}/comments", {"content": "Yes."})
    file = attach(owner, task)
    before = whole(owner, task)
    owner.delete(f"/tasks/{task['id']}/comments/{comment['id']}")
    member.delete(f"/tasks/{task['id']}/attachments/{file['id']}")
    shown = [(row["kind"], row["title"]) for row in listed(owner)[:2]]
    assert shown == [("attachment", "plan.txt"), ("comment", task["title"])]
    fault(other.post(f"/deleted/{comment['id']}/restore"), 403, "forbidden")
    owner.delete(f"/tasks/{task['id']}")
    message = fault(owner.post(f"/deleted/{comment['id']}/restore"), 409, "conflict")["message"]
    assert message == "its task is deleted; restore that first, if it is still kept"
    restore(owner, task)
    assert whole(owner, task)[1:] == ([], [])
    restore(member, comment)
    restore(other, file)
    assert whole(owner, task) == before
    assert owner.read("/tasks", q="yes", project_id=project["id"])["pagination"]["total"] == 1


def test_a_project_comes_back_with_its_tasks_and_milestones(server, owner, project, join, milestone):
    client = join("client", project_ids=[project["id"]])
    tasks = [owner.make_task(project, milestone_id=milestone["id"], title=f"No. {n}") for n in range(3)]
    owner.patch(f"/tasks/{tasks[0]['id']}/details", {"blocked_by": [tasks[2]["id"]]})
    owner.make(f"/tasks/{tasks[1]['id']}/comments", {"content": "Yes."})
    attach(owner, tasks[1])
    earlier = owner.make_task(project, title="Deleted before")
    meeting = owner.make("/meetings", {"title": "A", "starts_at": "2030-01-01", "project_id": project["id"]})
    note = owner.make("/whiteboards", {"title": "Plan", "project_id": project["id"]})
    owner.delete(f"/tasks/{earlier['id']}")
    before, shown = [whole(owner, task) for task in tasks], owner.read(f"/projects/{project['id']}")
    assert owner.delete(f"/projects/{project['id']}?force=true").status_code == 200
    owner.patch(f"/whiteboards/{note['id']}", {"project_id": owner.make_project()["id"]})
    message = fault(owner.post(f"/deleted/{earlier['id']}/restore"), 409, "conflict")["message"]
    assert message.startswith("its project is deleted")
    fault(owner.post(f"/deleted/{tasks[0]['id']}/restore"), 404, "not_found")  # it comes with its project
    restore(owner, project)
    assert [whole(owner, task) for task in tasks] == before
    assert owner.read(f"/projects/{project['id']}") == shown
    assert owner.read(f"/milestones/{milestone['id']}")["stats"] == {"total": 3, "done": 0}
    assert owner.read(f"/meetings/{meeting['id']}")["project_id"] == project["id"]
    assert owner.read(f"/whiteboards/{note['id']}")["project_id"] != project["id"]  # somebody has moved it
    restore(owner, earlier)
    assert owner.read(f"/projects/{project['id']}")["stats"]["total"] == 4
    # An admin decides again which clients see the project.
    assert client.read("/projects")["projects"] == []


def test_a_milestone_comes_back_to_the_tasks_that_have_no_other_one(owner, project):
    path = f"/projects/{project['id']}/milestones"
    milestone, other = owner.make(path, {"title": "Launch"}), owner.make(path, {"title": "Later"})
    tasks = [owner.make_task(project, milestone_id=milestone["id"]) for _ in range(3)]
    elsewhere = owner.make_project()
    owner.delete(f"/milestones/{milestone['id']}")
    owner.patch(f"/tasks/{tasks[1]['id']}/details", {"milestone_id": other["id"]})
    owner.patch(f"/tasks/{tasks[2]['id']}/details", {"project_id": elsewhere["id"]})
    restore(owner, milestone)
    found = [owner.read(f"/tasks/{task['id']}")["milestone"] for task in tasks]
    assert [one and one["title"] for one in found] == ["Launch", "Later", None]


def test_a_meeting_and_a_note_come_back(owner, join):
    member, deleter = join(), join("admin")
    fields = {"title": "Monday", "starts_at": "2030-01-01", "participant_ids": [member.member["id"]]}
    meeting = owner.make("/meetings", fields)
    note = owner.make("/whiteboards", {"title": "Plan", "content": {"text": "x", "n": 1.0}})
    rows = [("meetings", meeting), ("whiteboards", note)]
    before = [owner.read(f"/{kind}/{row['id']}") for kind, row in rows]
    for kind, row in rows:
        deleter.delete(f"/{kind}/{row['id']}")
    owner.data(owner.patch(f"/members/{deleter.member['id']}", {"role": "member"}))
    fault(member.post(f"/deleted/{meeting['id']}/restore"), 403, "forbidden")
    restore(member, note)
    restore(deleter, meeting)
    assert [owner.read(f"/{kind}/{row['id']}") for kind, row in rows] == before


def test_what_is_gone_or_has_changed_since_does_not_come_back_with_a_task(owner, join, project, milestone):
    leaver, client = join(), join("client", project_ids=[project["id"]])
    blocker, waiting = owner.make_task(project), owner.make_task(project)
    fields = {"milestone_id": milestone["id"], "blocked_by": [blocker["number"]], "labels": ["Alpha beta"]}
    tasks = [owner.make_task(project, assignee_id=one.member["id"], **fields) for one in (leaver, client)]
    owner.patch(f"/tasks/{waiting['id']}/details", {"blocked_by": [tasks[0]["number"]]})
    leaver.make(f"/tasks/{tasks[0]['id']}/comments", {"content": "Mine."})
    for task in tasks:
        owner.delete(f"/tasks/{task['id']}")
    owner.delete(f"/milestones/{milestone['id']}")
    owner.delete(f"/members/{leaver.member['id']}")
    owner.patch(f"/members/{client.member['id']}", {"project_ids": []})
    circle = {"blocked_by": [waiting["number"]]}  # if both came back
    owner.patch(f"/tasks/{blocker['id']}/details", circle)
    owner.make_task(project, labels=["ALPHA BETA"])
    for task in tasks:
        restore(owner, task)
        shown = owner.read(f"/tasks/{task['id']}")
        assert (shown["assignee_id"], shown["milestone_id"], shown["labels"]) == (None, None, ["ALPHA BETA"])
    (comment,) = owner.read(f"/tasks/{tasks[0]['id']}/comments")["comments"]
    assert comment["author"]["full_name"] == leaver.member["full_name"]
    # It waits again for what does not wait for it.
    waits = [len(owner.read(f"/tasks/{task['id']}")["blocked_by"]) for task in (*tasks, waiting)]
    assert waits[1] == 1
    assert waits[0] + waits[2] == 1


def test_a_task_that_waits_for_twenty_others_does_not_wait_for_a_restored_one(owner, project):
    fields = [{"title": "T", "project_id": project["id"]}] * 21
    numbers = [row["number"] for row in owner.make("/tasks/batch", {"tasks": fields})["tasks"]]
    task = owner.make_task(project, blocked_by=numbers[:20])
    gone = owner.read(f"/tasks/{numbers[0]}")
    owner.delete(f"/tasks/{gone['id']}")
    owner.data(owner.patch(f"/tasks/{task['id']}/details", {"blocked_by": numbers[1:]}))
    restore(owner, gone)
    blockers = owner.read(f"/tasks/{task['id']}")["blocked_by"]
    assert [one["number"] for one in blockers] == numbers[1:]


def test_a_place_that_is_taken_is_a_conflict(owner, project):
    task = owner.make_task(project, external_id=f"x-{project['id']}")
    owner.delete(f"/tasks/{task['id']}")
    other = owner.make_task(project, external_id=f"x-{project['id']}")
    message = fault(owner.post(f"/deleted/{task['id']}/restore"), 409, "conflict")["message"]
    assert message.startswith("another task has its id, number or external_id now")
    owner.patch(f"/tasks/{other['id']}/details", {"external_id": None})
    restore(owner, task)


SECRET = "hunter2 " * 200  # longer than what the activity shows
KEPT = "SELECT 1 FROM deleted WHERE rows LIKE '%hunter2%'"
KEPT += " UNION ALL SELECT 1 FROM earlier WHERE value LIKE '%hunter2%'"


def test_who_deleted_it_or_an_admin_deletes_it_for_good(server, owner, join, project):
    member, other, admin = join(), join(), join("admin")
    for deleter, purger in ((owner, admin), (member, member)):
        task = owner.make_task(project, description=SECRET)
        owner.patch(f"/tasks/{task['id']}/details", {"description": "short"})
        comment = owner.make(f"/tasks/{task['id']}/comments", {"content": SECRET})
        owner.patch(f"/tasks/{task['id']}/comments/{comment['id']}", {"content": "short"})
        file = attach(owner, task, b"secret" * 1000)
        deleter.delete(f"/tasks/{task['id']}")
        fault(other.delete(f"/deleted/{task['id']}"), 403, "forbidden")
        assert purger.data(purger.delete(f"/deleted/{task['id']}")) == {"id": task["id"], "deleted": True}
        assert server.rows("SELECT 1 FROM deleted WHERE number = ?", task["number"]) == []
        assert server.rows("SELECT 1 FROM attachment_content WHERE attachment_id = ?", file["id"]) == []
        assert server.rows(KEPT) == []
        fault(owner.post(f"/deleted/{task['id']}/restore"), 404, "not_found")
        fault(purger.delete(f"/deleted/{task['id']}"), 404, "not_found")


def test_to_delete_a_part_for_good_spares_the_texts_of_the_rest(server, owner, project):
    task = owner.make_task(project, description=SECRET)
    owner.patch(f"/tasks/{task['id']}/details", {"description": "short"})
    comment = owner.make(f"/tasks/{task['id']}/comments", {"content": "Yes."})
    file = attach(owner, task)
    for kind, part in (("comments", comment), ("attachments", file)):
        owner.delete(f"/tasks/{task['id']}/{kind}/{part['id']}")
        owner.data(owner.delete(f"/deleted/{part['id']}"))
    assert len(server.rows(KEPT)) == 1
    owner.data(owner.delete(f"/deleted/{task['id']}"))  # the task exists, so this is about its earlier texts
    assert server.rows(KEPT) == []
    fault(owner.delete(f"/deleted/{task['id']}"), 404, "not_found")
    assert owner.read(f"/tasks/{task['id']}")["description"] == "short"


def test_what_is_deleted_for_good_leaves_no_earlier_text(server, owner):
    """Of a project, nor of what was in it."""
    project = owner.make_project(description=SECRET)
    inside, secret = f"/projects/{project['id']}/milestones", {"title": "A", "description": SECRET}
    ids = [project["id"], *(owner.make(inside, secret)["id"] for _ in range(2))]
    ids.append(owner.make("/meetings", secret | {"starts_at": "2030-01-01"})["id"])
    ids.append(owner.make("/whiteboards", {"title": "A", "content": {"a": SECRET}})["id"])
    kinds = ("projects", "milestones", "milestones", "meetings", "whiteboards")
    paths = [f"/{kind}/{id}" for kind, id in zip(kinds, ids, strict=True)]
    task = owner.make_task(project, description=SECRET)
    for path in (*paths[:4], f"/tasks/{task['id']}/details"):
        owner.data(owner.patch(path, {"description": None}))
    owner.data(owner.patch(paths[4], {"content": {}}))
    for place, left in ((2, 5), (3, 4), (4, 3), (0, 0)):
        owner.data(owner.delete(paths[place] + "?force=true" * (place == 0)))
        owner.data(owner.delete(f"/deleted/{ids[place]}"))
        assert len(server.rows(KEPT)) == left, paths[place]


def test_a_member_deletes_the_earlier_texts_that_the_member_has_replaced(server, owner, join, project):
    member, other = join(), join()
    task = owner.make_task(project, description="Before. " * 200)
    member.patch(f"/tasks/{task['id']}/details", {"description": SECRET})
    other.patch(f"/tasks/{task['id']}/details", {"description": "By another. " * 200})
    member.patch(f"/tasks/{task['id']}/details", {"description": None})
    fault(join("client").delete(f"/deleted/{task['id']}"), 403, "forbidden")
    member.data(member.delete(f"/deleted/{task['id']}"))
    assert len(server.rows(KEPT)) == 1  # the other member has replaced this one
    other.data(other.delete(f"/deleted/{task['id']}"))
    assert server.rows(KEPT) == []
    fault(other.delete(f"/deleted/{task['id']}"), 404, "not_found")


def test_an_earlier_text_is_stored_once_and_its_change_is_nothing_to_restore(server, owner, project):
    task = owner.make_task(project, description="first " * 200)
    for text in ("second " * 200, "third " * 200):
        owner.patch(f"/tasks/{task['id']}/details", {"description": text})
    rows = server.rows(
        "SELECT value FROM earlier JOIN activity ON activity.id = activity_id WHERE entity_id = ?", task["id"]
    )
    assert [row["value"] for row in rows] == [f'"{text * 200}"' for text in ("first ", "second ")]
    entry = owner.read(f"/tasks/{task['id']}/activity")["activity"][0]
    for id in (entry["id"], task["id"], "nothing"):
        fault(owner.post(f"/deleted/{id}/restore"), 404, "not_found")


def test_a_restored_task_gets_a_place_of_its_own(owner, project):
    first, gone, last = (owner.make_task(project) for _ in range(3))
    owner.delete(f"/tasks/{gone['id']}")
    between = owner.make_task(project)
    owner.patch(f"/tasks/{between['id']}/details", {"after": first["id"]})  # where the other one was
    restore(owner, gone)
    owner.patch(f"/tasks/{first['id']}/details", {"after": between["id"]})
    by_hand = [row["id"] for row in owner.read("/tasks", project_id=project["id"], sort="rank")["tasks"]]
    assert by_hand.index(first["id"]) == by_hand.index(between["id"]) + 1
    assert by_hand.index(between["id"]) < by_hand.index(gone["id"]) < by_hand.index(last["id"])


def test_a_restored_task_of_a_series_is_shown_in_events_without_its_rule(server, owner, project):
    task = owner.make_task(project, due_date="2030-01-01", repeat="FREQ=WEEKLY")
    owner.data(owner.post(f"/tasks/{task['id']}/complete"))
    number = owner.read(f"/tasks/{task['id']}")["next_number"]
    following = owner.read(f"/tasks/{number}")
    owner.data(owner.delete(f"/tasks/{following['id']}"))
    assert owner.data(owner.patch(f"/tasks/{task['id']}", {"status": "todo"}))["repeat"] == "FREQ=WEEKLY"
    before = last_event(server)
    restore(owner, following)
    assert check_new_events(server, owner, [project], before)[following["id"]]["repeat"] is None


def test_a_large_project_and_a_milestone_come_back_in_steps_that_are_whole(server, owner):
    project = owner.make_project()
    milestone = owner.make(f"/projects/{project['id']}/milestones", {"title": "Launch"})
    fields = {"title": "T", "project_id": project["id"], "milestone_id": milestone["id"]}
    batches = [owner.make("/tasks/batch", {"tasks": [fields] * 100})["tasks"] for _ in range(6)]
    tasks = batches[0]  # which are restored last
    first = owner.make_task(project)
    owner.patch(f"/tasks/{first['id']}/details", {"blocked_by": [tasks[0]["id"], tasks[99]["id"]]})
    owner.patch(f"/tasks/{tasks[1]['id']}/details", {"blocked_by": [first["id"]]})
    of_milestone = "SELECT count(*) AS n FROM task WHERE milestone_id = ?"
    owner.data(owner.delete(f"/milestones/{milestone['id']}"))
    path = f"/deleted/{milestone['id']}/restore"
    assert [owner.data(owner.post(path))["restored"] for _ in range(3)] == [False, False, True]
    assert server.rows(of_milestone, milestone["id"]) == [{"n": 600}]
    blockers = server.rows(every := "SELECT * FROM blocker ORDER BY task_number, blocker_number")

    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    answer = owner.data(owner.post(f"/deleted/{project['id']}/restore"))
    assert answer == {"id": project["id"], "kind": "project", "restored": False}
    assert owner.read(f"/projects/{project['id']}")["stats"]["total"] == 250
    assert listed(owner, limit=1)[0]["id"] == project["id"]  # the rest can be restored, also after this:
    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    restore(owner, project)
    assert owner.read(f"/projects/{project['id']}")["stats"]["total"] == 601
    assert server.rows(every) == blockers
    assert server.rows(of_milestone, milestone["id"]) == [{"n": 600}]
    assert project["id"] not in [row["id"] for row in listed(owner)]


def test_what_was_deleted_is_listed_page_by_page(owner, project):
    tasks = [owner.make_task(project) for _ in range(3)]
    for task in tasks:
        owner.delete(f"/tasks/{task['id']}")
    page = owner.read("/deleted", limit=2)
    assert [row["id"] for row in page["deleted"]] == [tasks[2]["id"], tasks[1]["id"]]
    page = owner.read("/deleted", limit=1, before=page["pagination"]["next_before"])
    assert [row["id"] for row in page["deleted"]] == [tasks[0]["id"]]


def test_after_thirty_days_it_is_deleted_for_good(launch):
    server = launch()
    owner = server.client()
    project = owner.make_project()
    tasks = [owner.make_task(project) for _ in range(2)]
    files = [attach(owner, task) for task in tasks]
    for text in (SECRET, None):
        owner.patch(f"/projects/{project['id']}", {"description": text})
    for task in tasks:
        owner.delete(f"/tasks/{task['id']}")
    server.rows("UPDATE earlier SET activity_id = '00' || substr(activity_id, 3)")
    server.rows("UPDATE deleted SET deleted_at = '2026-01-01T00:00:00.000Z' WHERE id = ?", tasks[0]["id"])
    assert [row["id"] for row in listed(owner)] == [tasks[1]["id"]]
    fault(owner.post(f"/deleted/{tasks[0]['id']}/restore"), 404, "not_found")
    server.stop()
    server.start()
    wait_until(lambda: len(server.rows("SELECT 1 FROM deleted")) == 1)
    wait_until(lambda: server.rows("SELECT 1 FROM earlier") == [])
    assert server.rows("SELECT attachment_id AS id FROM attachment_content") == [{"id": files[1]["id"]}]


def test_receivers_and_followers_have_the_workspace_again(launch_here):
    server = launch_here()
    owner = server.client()
    mirror = Mirror(server, owner.key)
    project = owner.make_project()
    milestone = owner.make(f"/projects/{project['id']}/milestones", {"title": "Launch"})
    tasks = [owner.make_task(project, milestone_id=milestone["id"]) for _ in range(3)]
    owner.patch(f"/tasks/{tasks[1]['id']}/details", {"blocked_by": [tasks[0]["id"]]})
    comment = owner.make(f"/tasks/{tasks[0]['id']}/comments", {"content": "Yes."})
    meeting = owner.make("/meetings", {"title": "A", "starts_at": "2030-01-01", "project_id": project["id"]})
    note = owner.make("/whiteboards", {"title": "B", "project_id": project["id"]})
    paths = {comment["id"]: f"/tasks/{tasks[0]['id']}/comments/{comment['id']}"}
    paths |= {tasks[0]["id"]: f"/tasks/{tasks[0]['id']}", milestone["id"]: f"/milestones/{milestone['id']}"}
    paths |= {meeting["id"]: f"/meetings/{meeting['id']}", note["id"]: f"/whiteboards/{note['id']}"}
    paths[project["id"]] = f"/projects/{project['id']}?force=true"
    for id, path in paths.items():
        assert owner.delete(path).status_code == 200
        assert_equal(mirror.follow(), server, owner)
        restore(owner, {"id": id})
        assert_equal(mirror.follow(), server, owner)


def test_only_one_of_many_restores_it(server, owner, project):
    task = owner.make_task(project)
    owner.delete(f"/tasks/{task['id']}")
    calls = [partial(server.client().post, f"/deleted/{task['id']}/restore") for _ in range(8)]
    assert sorted(answer.status_code for answer in at_once(*calls)) == [200] + 7 * [404]


def fails_midway(server, client, trigger, path, body=None, method="POST"):
    """Make a request while the database refuses one of its changes, as if it were a bug of ours."""
    server.allow_bugs = True
    server.rows(f"CREATE TRIGGER refuse BEFORE {trigger} BEGIN SELECT RAISE(ABORT, 'not now'); END")
    headers = {"Authorization": f"Bearer {client.key}"}
    answer = client.session.request(method, client.base + path, headers=headers, json=body)
    assert answer.status_code == 500
    server.rows("DROP TRIGGER refuse")
    assert server.rows("PRAGMA foreign_key_check") == []


def test_a_step_of_a_restore_that_fails_brings_back_nothing(launch_here):
    server = launch_here()
    owner = server.client()
    project = owner.make_project()
    for many in (1, 100, 100, 100):
        owner.make("/tasks/batch", {"tasks": [{"title": "T", "project_id": project["id"]}] * many})
    owner.data(owner.delete(f"/projects/{project['id']}?force=true"))
    counts = "SELECT count(*) AS n FROM task UNION ALL SELECT count(*) FROM deleted"
    path = f"/deleted/{project['id']}/restore"
    for last, there, left in (("task", 0, 302), ("project", 250, 52)):
        fails_midway(server, owner, f"DELETE ON deleted WHEN OLD.kind = '{last}'", path)
        assert [row["n"] for row in server.rows(counts)] == [there, left]
        owner.data(owner.post(path))
    assert owner.read(f"/projects/{project['id']}")["stats"]["total"] == 301


def test_a_client_of_the_project_sees_it_again_and_lists_nothing_that_is_deleted(server, owner, project):
    client = server.join("client", project_ids=[project["id"]])
    task = owner.make_task(project, title="Seen", assignee_id=client.member["id"])
    owner.make(f"/tasks/{task['id']}/comments", {"content": "Yes."})
    assert unread(client) == ["commented", "assigned"]
    mirror = Mirror(server, client.key)
    mirror.follow()
    owner.delete(f"/tasks/{task['id']}")
    assert ("task", task["id"]) not in mirror.follow()
    for call in (client.get("/deleted"), client.post(f"/deleted/{task['id']}/restore")):
        fault(call, 403, "forbidden")
    restore(owner, task)
    assert mirror.follow()["task", task["id"]]["title"] == "Seen"
    assert [row["content"] for (kind, _), row in mirror.follow().items() if kind == "comment"] == ["Yes."]
    assert unread(client) == []  # a restored task is no news


def test_an_import_finds_what_was_restored_and_may_bring_back_what_was_not(launch_here):
    server = launch_here()
    owner = server.client()
    task = owner.make_task(owner.make_project(), labels=["a"], metadata={"n": 1})
    comment = owner.make(f"/tasks/{task['id']}/comments", {"content": "Yes."})
    attach(owner, task)
    files = server.folder / "files"
    files.mkdir()

    def export():
        return invoke(server, "export", "--format", "jsonl", "--files", str(files)).stdout

    def restored_by_import():
        (server.folder / "all.jsonl").write_text(exported)
        words = ["import", str(server.folder / "all.jsonl"), "--files", str(files), "--apply"]
        return invoke(server, *words).stdout.splitlines()[-1]

    exported, before = export(), whole(owner, task)
    owner.delete(f"/tasks/{task['id']}")
    restore(owner, task)
    assert restored_by_import() == "0 new, 0 changed, 1 unchanged"
    assert whole(owner, task) == before
    owner.delete(f"/tasks/{task['id']}")
    assert restored_by_import() == "1 new, 0 changed, 0 unchanged"
    fault(owner.post(f"/deleted/{task['id']}/restore"), 409, "conflict")
    owner.delete(f"/deleted/{task['id']}")  # the imported task keeps its file
    assert whole(owner, task)[2] == before[2]
    owner.delete(f"/tasks/{task['id']}")
    restore(owner, task)
    assert [row["id"] for row in whole(owner, task)[1]] == [comment["id"]]
    assert whole(owner, task)[2] == before[2]
