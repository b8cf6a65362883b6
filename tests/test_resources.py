"""Milestones, meetings and whiteboards: what is made, shown, changed and deleted alike."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from harness import INSTANT, NOBODY, UUID, fault, last_event, wait_past

NEEDS_SOCKET = False

MILESTONE = {"title": "Launch", "description": "Everything\nis out", "due_date": "2026-12-15T00:00:00.000Z"}
MEETING = {"title": "Planning", "description": None, "location": "Room 2"}
MEETING |= {"starts_at": "2099-12-01T09:00:00.000Z", "ends_at": "2099-12-01T10:00:00.000Z"}
WHITEBOARD = {"title": "Ideas", "content": {"shapes": [{"x": 1.5, "é": "🎉"}], "2": 1, "10": 2}}
BODIES = {"milestone": MILESTONE, "meeting": MEETING, "whiteboard": WHITEBOARD}
PROFILE = ("id", "full_name", "email", "role")
KINDS = pytest.mark.parametrize("kind", list(BODIES))


def collection(kind, project):
    return f"/projects/{project['id']}/milestones" if kind == "milestone" else f"/{kind}s"


@pytest.fixture
def make(owner, project):
    """Create one of a kind."""

    def make(kind, client=owner, **fields):
        return client.make(collection(kind, project), BODIES[kind] | fields)

    return make


def latest_activity(client):
    return client.read("/context")["recent_activity"][0]


@KINDS
def test_a_resource_is_created_and_found_at_its_location(owner, project, kind):
    answer = owner.post(collection(kind, project), BODIES[kind])
    made = owner.data(answer, 201)
    assert UUID.fullmatch(made["id"])
    assert INSTANT.fullmatch(made["created_at"])
    assert made | BODIES[kind] == made
    assert answer.headers["Location"] == f"/api/v1/{kind}s/{made['id']}"
    assert owner.read(answer.headers["Location"].removeprefix("/api/v1")) == made


@KINDS
def test_an_update_changes_what_was_sent_and_nothing_else_and_a_deleted_one_is_gone(owner, make, kind):
    made = make(kind)
    path = f"/{kind}s/{made['id']}"
    wait_past(made["updated_at"])
    after = owner.data(owner.patch(path, {"title": "New"}))
    assert after == made | {"title": "New", "updated_at": after["updated_at"]}
    assert after["updated_at"] > made["updated_at"]
    for same in ({}, {"title": "New"}):
        assert owner.data(owner.patch(path, same)) == owner.read(path) == after
    assert owner.data(owner.delete(path)) == {"id": made["id"], "deleted": True}
    for answer in (owner.get(path), owner.patch(path, {"title": "x"}), owner.delete(path)):
        fault(answer, 404, "not_found")


def test_links_begin_with_the_configured_address_whatever_host_was_asked(launch_here):
    owner = launch_here(TASKS_SERVER__BASE_URL="https://example.com/team/tasks/").client()
    evil = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher"}
    answer = owner.post("/projects", {"name": "x"}, headers=evil)
    assert answer.headers["Location"] == f"/team/tasks/api/v1/projects/{owner.data(answer, 201)['id']}"
    body = {"email": "x@example.com", "full_name": "X", "role": "client"}
    link = owner.make("/members/invite", body, headers=evil)["enrollment_link"]
    assert link.startswith("https://example.com/team/tasks/enroll/")
    spec = owner.request("GET", "/openapi.json", headers=evil, envelope=False).json()
    assert spec["servers"] == [{"url": "https://example.com/team/tasks"}]


def test_meetings_and_whiteboards_outlive_their_project_and_milestones_go_with_it(owner, project, make):
    milestone = f"/milestones/{make('milestone')['id']}"
    others = [f"/{kind}s/{make(kind, project_id=project['id'])['id']}" for kind in ("meeting", "whiteboard")]
    for path in others:
        for id in (project["id"], None, project["id"]):
            assert owner.data(owner.patch(path, {"project_id": id}))["project_id"] == id
    owner.data(owner.delete(f"/projects/{project['id']}"))
    fault(owner.get(milestone), 404, "not_found")
    assert [owner.read(path)["project_id"] for path in others] == [None, None]


@KINDS
def test_each_change_is_an_activity(owner, project, make, kind):
    made = make(kind, title="First")
    seen = [latest_activity(owner)]
    owner.patch(f"/{kind}s/{made['id']}", {"title": "Second"})
    seen.append(latest_activity(owner))
    said = [[entry[name] for name in ("entity", "action", "entity_id", "title")] for entry in seen]
    changes = {"title": ["First", "Second"]}
    if kind == "milestone":  # it is a part of its project
        assert said == [["project", "updated", project["id"], project["name"]]] * 2
        changes = {"milestone": ["Second", changes]}
    else:
        assert said[0] == [kind, "created", made["id"], "First"]
        assert said[1] == [kind, "updated", made["id"], "Second"]
    assert seen[1]["changes"] == changes


def test_the_milestones_of_a_project_are_listed_by_date_with_their_progress(owner, project, make):
    dates = {"c": None, "b": "2027-02-01", "a": "2027-01-01"}
    made = {title: make("milestone", title=title, due_date=due) for title, due in dates.items()}
    assert [milestone.pop("stats") for milestone in made.values()] == [{"total": 0, "done": 0}] * 3
    tasks = [owner.make_task(project, milestone_id=made[title]["id"]) for title in "aab"]
    owner.post(f"/tasks/{tasks[0]['id']}/complete")
    listed = owner.read(f"/projects/{project['id']}/milestones")["milestones"]
    counts = {"a": {"total": 2, "done": 1}, "b": {"total": 1, "done": 0}, "c": {"total": 0, "done": 0}}
    assert listed == [made[title] | {"stats": stats} for title, stats in counts.items()]
    path = f"/milestones/{listed[0]['id']}"
    assert owner.read(path) == owner.data(owner.patch(path, {})) == listed[0]


def is_recorded(server, owner, task, name):
    """Assert that the last event and the task's last activity are that it has lost this reference."""
    after, changes = owner.read(f"/tasks/{task['id']}"), {name: [task[name], None]}
    entry = owner.read(f"/tasks/{task['id']}/activity")["activity"][0]
    assert (entry["action"], entry["changes"]) == ("updated", changes)
    event = last_event(server)
    assert event["event"] == "task.updated"
    assert event["data"] == {"task": {key: after[key] for key in task}, "changes": changes}


def test_tasks_outlive_their_milestone_or_assignee_as_a_new_version(server, owner, join, project, make):
    milestone = make("milestone")
    task = owner.make_task(project, milestone_id=milestone["id"])
    other = owner.make_task(project)
    shown = owner.read(f"/tasks/{task['id']}")
    wait_past(task["updated_at"])
    assert shown["milestone"] == {name: milestone[name] for name in ("id", "title", "due_date")}
    assert owner.read("/tasks", milestone_id=milestone["id"])["pagination"]["total"] == 1
    owner.delete(f"/milestones/{milestone['id']}")
    after = owner.read(f"/tasks/{task['id']}")
    assert (after["milestone"], after["milestone_id"], after["version"]) == (None, None, 2)
    is_recorded(server, owner, task, "milestone_id")
    assert after["updated_at"] > task["updated_at"]
    assert owner.read(f"/tasks/{other['id']}")["version"] == 1
    leaver = join().member
    task = owner.make_task(project, assignee_id=leaver["id"])
    owner.data(owner.delete(f"/members/{leaver['id']}"))
    is_recorded(server, owner, task, "assignee_id")


def test_your_meetings_are_listed_next_first_then_past_ones(join, make):
    me, other, client = join(), join(), join("client")
    mine, its = me.member["id"], other.member["id"]

    def at(hours):
        return hours and (datetime.now(UTC) + timedelta(hours=hours)).isoformat()

    def listed(caller):
        meetings = caller.read("/meetings")["meetings"]
        return [(m["title"], m["when"], [person["id"] for person in m["participants"]]) for m in meetings]

    for title, organizer, participants, starts, ends in (
        *(("M1", me, [], -48, None), ("M2", other, [mine, its], 5, 6), ("M3", me, [], 2, None)),
        *(("M4", other, [mine], -2, -1), ("M6", other, [], 1, None)),
        ("M5", me, [], -1, 1),  # it goes on
    ):
        dates = {"starts_at": at(starts), "ends_at": at(ends)}
        made = make("meeting", organizer, title=title, participant_ids=participants, **dates)
        assert made["organizer"] == {name: organizer.member[name] for name in PROFILE}
    upcoming = [("M5", "upcoming", []), ("M3", "upcoming", []), ("M2", "upcoming", sorted([mine, its]))]
    assert listed(me) == [*upcoming, ("M4", "past", [mine]), ("M1", "past", [])]
    assert [title for title, *_ in listed(other)] == ["M6", "M2", "M4"]
    assert listed(client) == []


def test_participants_are_replaced_as_a_whole(owner, join, make):
    first, second = join().member, join().member
    made = make("meeting", participant_ids=[first["id"], first["id"].upper()])
    assert len(made["participants"]) == 1
    path = f"/meetings/{made['id']}"
    after = owner.data(owner.patch(path, {"title": "New", "participant_ids": [second["id"]]}))
    assert [p["id"] for p in after["participants"]] == [second["id"]]
    changed, created, *_ = owner.read("/context")["recent_activity"]
    participants = [[first["id"]], [second["id"]]]
    assert changed["changes"] == {"title": ["Planning", "New"], "participant_ids": participants}
    assert (created["entity_id"], created["action"]) == (made["id"], "created")
    assert owner.data(owner.patch(path, {"title": "Newer"}))["participants"] == after["participants"]
    for nobody in ([], None):
        assert owner.data(owner.patch(path, {"participant_ids": nobody}))["participants"] == []
        owner.patch(path, {"participant_ids": [first["id"]]})
    assert make("meeting", participant_ids=None)["participants"] == []
    # One who has left the workspace may stay in the list.
    ids = [first["id"], second["id"]]
    path = f"/meetings/{make('meeting', participant_ids=ids[:1])['id']}"
    owner.data(owner.delete(f"/members/{first['id']}"))
    both = owner.data(owner.patch(path, {"participant_ids": ids}))["participants"]
    assert {participant["id"] for participant in both} == {*ids}
    owner.data(owner.patch(path, {"participant_ids": ids[1:]}))
    answer = owner.patch(path, {"participant_ids": ids[:1]})
    fault(answer, 422, "validation_error", "participant_ids.0")


def test_a_meeting_has_members_and_does_not_end_before_it_starts(server, owner, make):
    made, before = make("meeting"), server.rows("SELECT * FROM meeting")
    early = ({"ends_at": "2099-11-30"}, "ends_at")
    others = [({"participant_ids": [id]}, "participant_ids.0") for id in (NOBODY, "x", None)]
    for wrong, field in (early, *others):
        changed = owner.patch(f"/meetings/{made['id']}", wrong)
        for answer in (owner.post("/meetings", MEETING | wrong), changed):
            fault(answer, 422, "validation_error", field)
    assert server.rows("SELECT * FROM meeting") == before
    moved = {"starts_at": "2098-01-01", "ends_at": "2098-01-02"}
    after = owner.data(owner.patch(f"/meetings/{made['id']}", moved))
    assert after["starts_at"] == "2098-01-01T00:00:00.000Z"


def test_a_meeting_is_its_organizers_or_an_admins_to_change(join, make):
    organizer, stranger, admin = join(), join(), join("admin")
    path = f"/meetings/{make('meeting', organizer)['id']}"
    for answer in (stranger.patch(path, {"title": "x"}), stranger.delete(path)):
        fault(answer, 403, "forbidden")
    assert stranger.get(path).status_code == 200
    assert organizer.patch(path, {"title": "Mine"}).status_code == 200
    assert admin.delete(path).status_code == 200


def test_whiteboards_are_listed_the_last_updated_first_and_without_content(owner, join, make):
    first, second, editor = make("whiteboard"), make("whiteboard", content=None), join()
    assert (list(first["content"]), second["content"]) == (["2", "10", "shapes"], {})
    wait_past(second["updated_at"])
    editor.patch(f"/whiteboards/{first['id']}", {"content": {"a": 1}})
    assert latest_activity(owner)["changes"] == {"content": [None, None]}
    listed = owner.read("/whiteboards")["whiteboards"]
    assert [w["id"] for w in listed[:2]] == [first["id"], second["id"]]
    assert listed[0]["updated_by"] == editor.member["id"]
    assert "content" not in listed[0]
    # The content may be 512 KiB and no byte more.
    largest = {"a": "x" * (512 * 1024 - 8)}
    assert len(json.dumps(largest, separators=(",", ":"))) == 512 * 1024
    made = owner.make("/whiteboards", {"title": "x", "content": largest})
    assert owner.read(f"/whiteboards/{made['id']}")["content"] == largest
    body = {"title": "x", "content": {"a": largest["a"] + "x"}}
    fault(owner.post("/whiteboards", body), 422, "validation_error", "content")


def test_a_milestone_is_closed_and_opened_again(owner, project, make):
    milestone = make("milestone")
    path = f"/milestones/{milestone['id']}"
    closed = owner.data(owner.patch(path, {"closed": True, "title": "Over"}))
    assert (closed["closed_at"], closed["title"]) == (closed["updated_at"], "Over")
    assert owner.data(owner.patch(path, {"closed": True})) == closed
    owner.make_task(project, milestone_id=milestone["id"])
    assert owner.data(owner.patch(path, {"closed": False}))["closed_at"] is None
    fault(owner.patch(path, {"closed": None}), 422, "validation_error", "closed")
    body = {"title": "x", "closed": True}
    fault(owner.post(f"/projects/{project['id']}/milestones", body), 422, "validation_error", "closed")
