"""Tasks that repeat: the dates of rules, and the task that follows one that is done."""

import json
from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

import pytest
from harness import at_once, fault, invoke
from test_deleted import fails_midway
from test_inbox import change, comment, unread
from test_tools import stored, use

import times
from parts import repeats

NEEDS_SOCKET = False

BERLIN = ZoneInfo("Europe/Berlin")
WEEKLY = "FREQ=WEEKLY;BYDAY=MO"


def made(owner, project, **fields):
    return owner.make_task(project, **{"due_date": "2031-01-06", "repeat": WEEKLY} | fields)


def following(owner, task):
    """The tasks that followed this one, the newest first."""
    tasks = owner.read("/tasks", project_id=task["project_id"], limit=100)["tasks"]
    return [one for one in tasks if one["repeats"] == task["number"]]


def complete(owner, task):
    return owner.data(owner.post(f"/tasks/{task['id']}/complete"))


def day_ends(day, zone=BERLIN):
    """The end of a day as a due date."""
    end = datetime.combine(day, time(23, 59, 59, 999_000), zone)
    return end.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_a_rule_has_these_days(monkeypatch):
    monkeypatch.setattr(times, "zone", BERLIN)
    for rule, due, days in (
        ("FREQ=DAILY", "2027-03-27", "2027-03-28 2027-03-29 2027-03-30"),
        ("FREQ=DAILY;INTERVAL=99", "2027-01-01", "2027-04-10 2027-07-18"),
        ("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "2027-10-28", "2027-10-29 2027-11-01 2027-11-02"),
        ("FREQ=WEEKLY", "2027-10-28", "2027-11-04 2027-11-11"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,TU", "2027-01-05", "2027-01-10 2027-01-19 2027-01-24"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO", "2027-01-06", "2027-01-18 2027-02-01"),
        ("FREQ=MONTHLY", "2027-01-15", "2027-02-15 2027-03-15"),
        ("FREQ=MONTHLY", "2027-12-31", "2028-01-31 2028-02-29 2028-03-31 2028-04-30 2028-05-31"),
        ("FREQ=MONTHLY;INTERVAL=2", "2026-12-31", "2027-02-28 2027-04-30 2027-06-30 2027-08-31"),
        ("FREQ=MONTHLY;BYMONTHDAY=31", "2027-01-10", "2027-01-31 2027-02-28 2027-03-31"),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "2028-01-31", "2028-02-29 2028-03-31 2028-04-30"),
        ("FREQ=MONTHLY;BYMONTHDAY=1;INTERVAL=3", "2027-01-01", "2027-04-01 2027-07-01"),
        ("FREQ=YEARLY", "2027-02-28", "2028-02-28 2029-02-28"),
        ("FREQ=YEARLY", "2028-02-29", "2029-02-28 2030-02-28 2031-02-28 2032-02-29 2033-02-28"),
        ("FREQ=YEARLY;INTERVAL=4", "2028-02-29", "2032-02-29 2036-02-29"),
        ("FREQ=DAILY;UNTIL=20270328", "2027-03-27", "2027-03-28 "),
        ("FREQ=DAILY;UNTIL=20270328T215959Z", "2027-03-27", "2027-03-28 "),
        ("FREQ=DAILY;UNTIL=20270328T215958Z", "2027-03-27", ""),
        ("FREQ=YEARLY", "9998-12-30", "9999-12-30 "),
    ):
        task = {"due_date": day_ends(date.fromisoformat(due)), "start_date": None, "repeat": rule}
        for day in days.split(" "):
            task = repeats.next_dates(task, "2026-11-25T12:00:00.000Z")
            assert (task and task["due_date"]) == (day_ends(date.fromisoformat(day)) if day else None), rule
    monkeypatch.setattr(times, "zone", ZoneInfo("Asia/Beirut"))  # whose clocks are set back at midnight
    task = {"due_date": "2027-10-29T20:59:59.999Z", "start_date": None, "repeat": "FREQ=DAILY"}
    assert repeats.next_dates(task, task["due_date"])["due_date"] == "2027-10-30T21:59:59.999Z"


def test_missed_dates_are_skipped_and_local_clocks_count(monkeypatch):
    monkeypatch.setattr(times, "zone", BERLIN)
    for rule, due, at, found in (
        ("FREQ=DAILY", "2026-11-01T11:00:00.000Z", "2026-11-25T10:59:00.000Z", "2026-11-25T11"),
        ("FREQ=DAILY", "2026-11-01T11:00:00.000Z", "2026-11-25T11:00:00.000Z", "2026-11-26T11"),
        (WEEKLY, "2026-11-02T22:59:59.999Z", "2026-11-25T13:00:00.000Z", "2026-11-30T22"),
        # From the day of completion:
        ("FREQ=DAILY;INTERVAL=3!", "2026-11-01T11:00:00.000Z", "2026-11-25T23:30:00.000Z", "2026-11-29T11"),
        ("FREQ=MONTHLY!", "2026-11-05T11:00:00.000Z", "2027-01-31T13:00:00.000Z", "2027-02-28T11"),
        ("FREQ=DAILY;UNTIL=20261124", "2026-11-01T11:00:00.000Z", "2026-11-25T10:00:00.000Z", None),
        ("FREQ=DAILY", "2027-03-27T08:00:00.000Z", "2027-03-01T10:00:00.000Z", "2027-03-28T07"),
        ("FREQ=DAILY", "9999-12-31T21:00:00.000Z", "2027-03-01T10:00:00.000Z", None),
        ("FREQ=DAILY", "9999-12-31T23:59:59.999Z", "2027-03-01T10:00:00.000Z", None),
    ):
        repeat_from, rule = "completed_at" if rule.endswith("!") else "due_date", rule.rstrip("!")
        task = repeats.next_dates({"due_date": due, "start_date": None, "repeat": rule}, at, repeat_from)
        assert (task and task["due_date"][:13]) == found, (rule, at)
        assert task is None or task["repeat"] == rule


def test_a_start_at_midnight_stays_there_after_a_day_that_begins_at_one(monkeypatch):
    monkeypatch.setattr(times, "zone", ZoneInfo("Africa/Cairo"))  # clocks go forward on 2027-04-30
    task = {"start_date": "2027-04-28T22:00:00.000Z", "due_date": "2027-04-29T21:59:59.999Z"}
    task["repeat"] = "FREQ=DAILY"
    for start in ("2027-04-29T22:00:00.000Z", "2027-04-30T21:00:00.000Z", "2027-05-01T21:00:00.000Z"):
        task = repeats.next_dates(task, "2027-04-01T12:00:00.000Z")
        assert task["start_date"] == start


@pytest.mark.parametrize("rule", ["FREQ=DAILY", "FREQ=WEEKLY;BYDAY=MO,FR", "FREQ=MONTHLY", "FREQ=YEARLY"])
def test_of_many_missed_dates_only_the_last_are_looked_at(monkeypatch, rule):
    looked, days_of = [], repeats._days
    monkeypatch.setattr(repeats, "_days", lambda *period: looked.append(period) or days_of(*period))
    task = {"due_date": "1970-01-02T23:59:59.999Z", "start_date": None, "repeat": rule}
    assert repeats.next_dates(task, "2026-11-28T12:00:00.000Z")["due_date"] > "2026-11-28"
    assert len(looked) < 20


def test_a_start_date_keeps_its_days_before_the_due_date(monkeypatch):
    monkeypatch.setattr(times, "zone", BERLIN)
    task = {"start_date": "2027-03-24T23:00:00.000Z", "due_date": "2027-03-26T22:59:59.999Z"}
    task["repeat"] = "FREQ=WEEKLY"
    dates = repeats.next_dates(task, "2027-03-01T00:00:00.000Z")
    assert dates == task | {"start_date": "2027-03-31T22:00:00.000Z", "due_date": "2027-04-02T21:59:59.999Z"}
    early = {"start_date": "2027-03-21T01:30:00.000Z", "due_date": "2027-03-21T02:00:00.000Z"}
    dates = repeats.next_dates(task | early, "2027-03-01T00:00:00.000Z")  # a day without 02:30
    assert dates["start_date"] == dates["due_date"] == "2027-03-28T01:00:00.000Z"
    far = {"start_date": "1970-01-01T00:00:00.000Z", "due_date": "9000-01-01T00:00:00.000Z"}
    assert repeats.next_dates(task | far, "2027-03-01T00:00:00.000Z", "completed_at") is None


REFUSED = """
weekly FREQ=HOURLY FREQ=DAILY;COUNT=3 FREQ=WEEKLY;INTERVAL=0 FREQ=WEEKLY;INTERVAL=100 FREQ=WEEKLY;INTERVAL=01
FREQ=WEEKLY;BYDAY=XX FREQ=WEEKLY;BYDAY=1MO FREQ=WEEKLY;BYDAY= FREQ=WEEKLY;BYDAY=MO, FREQ=DAILY;BYDAY=MO
FREQ=MONTHLY;BYDAY=MO FREQ=MONTHLY;BYMONTHDAY=0 FREQ=MONTHLY;BYMONTHDAY=32 FREQ=MONTHLY;BYMONTHDAY=-2
FREQ=MONTHLY;BYMONTHDAY=1,15 FREQ=WEEKLY;BYMONTHDAY=1 FREQ=YEARLY;BYMONTH=3 FREQ=DAILY;UNTIL=20261399
FREQ=DAILY;UNTIL=20261231T225959 FREQ=DAILY;UNTIL=2026 INTERVAL=2 FREQ=DAILY; FREQ=DAILY;FREQ=DAILY
FREQ=DAILY;WKST=SU RRULE:FREQ=DAILY FREQ==DAILY DAILY ; =
"""


def test_other_rules_are_refused_with_what_is_accepted(owner, project):
    for rule in REFUSED.split():
        body = {"project_id": project["id"], "title": "T", "due_date": "2031-01-06", "repeat": rule}
        (detail,) = fault(owner.post("/tasks", body), 422, "validation_error", "repeat")["details"]
        assert detail["message"] == repeats.ACCEPTED_RULE, rule


def test_a_rule_needs_a_due_date_and_the_details(owner, project):
    undated = {"project_id": project["id"], "title": "T", "repeat": WEEKLY}
    fault(owner.post("/tasks", undated), 422, "validation_error", "repeat")
    task = made(owner, project, repeat=WEEKLY.lower(), repeat_from="completed_at")
    assert (task["repeat"], task["repeat_from"], task["repeats"]) == (WEEKLY, "completed_at", None)
    path = f"/tasks/{task['id']}"
    for body in ({"due_date": None}, {"due_date": None, "status": "done"}):
        fault(owner.patch(f"{path}/details", body), 422, "validation_error", "repeat")
    fault(owner.patch(path, {"repeat": None}), 422, "validation_error", "repeat")
    fault(owner.patch(f"{path}/details", {"repeat_from": "today"}), 422, "validation_error", "repeat_from")
    changed = change(owner, task, repeat=None, repeat_from=None, due_date=None)
    assert (changed["repeat"], changed["repeat_from"]) == (None, "due_date")
    fault(owner.patch(f"{path}/details", {"repeat": WEEKLY}), 422, "validation_error", "repeat")


def accepted(owner, task):
    owner.patch(f"/tasks/{task['id']}", {"status": "review"})
    return owner.patch(f"/tasks/{task['id']}/details", {"status": "done"})


DONE = {"status": "done"}
WAYS = {
    "POST complete": lambda owner, task: owner.post(f"/tasks/{task['id']}/complete"),
    "PATCH status": lambda owner, task: owner.patch(f"/tasks/{task['id']}", DONE),
    "in a batch": lambda owner, task: owner.patch("/tasks/batch", {"tasks": [task["id"]], "changes": DONE}),
    "by external id": lambda owner, task: owner.put(
        f"/tasks/by-external-id/{task['external_id']}",
        DONE | {"project_id": task["project_id"], "title": "A task"},
    ),
    "out of review": accepted,
    "by four people at once": lambda owner, task: (
        at_once(*[lambda: complete(owner, task)] * 4) and WAYS["in a batch"](owner, task)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_is_done_is_followed_by_one(owner, join, milestone, way):
    project, ana = {"id": milestone["project_id"]}, join(full_name=f"Ana {way}")
    boxes = "\n1. [X] one\n2) [x] two\n- [ ] three\n[x] no box\n```\n- [x] code"
    fields = {"description": f"Ask @Ana {way}{boxes}", "labels": ["Home"]}
    fields |= {"priority": "high", "assignee_id": ana.member["id"], "milestone_id": milestone["id"]}
    fields |= {"start_date": "2031-01-03T09:00:00Z", "external_id": project["id"], "metadata": {"a": 1}}
    other = owner.make_task(project)
    task = made(owner, project, **fields)
    owner.make_task(project)
    change(owner, task, before=other["number"])
    for _ in range(2):
        owner.data(WAYS[way](owner, task)) if way != "out of review" or not following(owner, task) else None
    (new,) = following(owner, task)
    kept = ["title", "labels", "metadata", "priority", "assignee_id", "milestone_id", "repeat", "created_by"]
    assert {name: new[name] for name in kept} == {name: task[name] for name in kept}
    boxes = "\n1. [ ] one\n2) [ ] two\n- [ ] three\n[x] no box\n```\n- [x] code"
    assert new["description"] == f"Ask @Ana {way}{boxes}"
    assert (new["checks"], new["status"], new["version"]) == ({"done": 0, "total": 3}, "todo", 1)
    assert (new["start_date"], new["due_date"]) == ("2031-01-10T09:00:00.000Z", "2031-01-13T23:59:59.999Z")
    done = stored(owner, task["id"])
    assert (done["status"], done["repeat"], done["next_number"]) == ("done", None, new["number"])
    in_order = owner.read("/tasks", project_id=project["id"], sort="rank")["tasks"]
    assert [one["id"] for one in in_order[:3]] == [task["id"], new["id"], other["id"]]
    told = [(reason, row["number"]) for reason, row in unread(ana, "task")]
    assert told == [("assigned", new["number"]), ("mentioned", task["number"])]  # whom it names knows it
    (entry,) = owner.read(f"/tasks/{new['id']}/activity")["activity"]
    assert entry["action"] == "created"


def test_the_events_come_in_order_and_a_repeated_call_sends_none(server, owner, project):
    task, events = made(owner, project), "SELECT name FROM event ORDER BY seq DESC LIMIT ?"
    complete(owner, task)
    complete(owner, task)
    change(owner, task, status="todo")
    names = [event["name"] for event in server.rows(events, 5)][::-1]
    assert names == ["task.created", "task.completed", "task.created", "task.updated", "task.deleted"]
    tasks = [task["number"], made(owner, project)["number"]]
    owner.data(owner.patch("/tasks/batch", {"tasks": tasks, "changes": {"status": "done"}}))
    names = [event["name"] for event in server.rows(events, 7)][::-1]
    assert names == ["task.created", *["task.updated", "task.completed"] * 2, *["task.created"] * 2]


def test_after_130_completions_each_task_is_still_beside_the_one_before(server, owner, project):
    """Each completion answers with the version that is stored, though ranks are spread meanwhile."""
    numbers, other = [made(owner, project, repeat="FREQ=DAILY")["number"]], owner.make_task(project)
    for _ in range(130):
        done = complete(owner, {"id": numbers[-1]})
        shown = stored(owner, done["id"])
        assert shown["version"] == done["version"]
        numbers.append(shown["next_number"])
    in_order = server.rows("SELECT number FROM task WHERE project_id = ? ORDER BY rank", project["id"])
    assert [row["number"] for row in in_order] == [*numbers, other["number"]]


def test_a_closed_milestone_an_archived_project_and_the_end_of_a_rule_take_no_next_task(owner, milestone):
    """The rule comes back if the last task is reopened."""
    project = {"id": milestone["project_id"]}
    first, last = (made(owner, project, milestone_id=milestone["id"]) for _ in range(2))
    owner.data(owner.patch(f"/milestones/{milestone['id']}", {"closed": True}))
    complete(owner, first)
    assert [new["milestone_id"] for new in following(owner, first)] == [None]
    task = made(owner, project, repeat=f"{WEEKLY};UNTIL=20310112")
    assert complete(owner, task)["repeat"] is None
    assert following(owner, task) == []
    assert change(owner, task, status="todo")["repeat"] == task["repeat"]
    owner.data(owner.patch(f"/projects/{project['id']}", {"status": "archived"}))
    assert complete(owner, last)["repeat"] is None
    assert following(owner, last) == []


TOUCHES = {
    "a change": lambda owner, new: change(owner, new, title="Touched"),
    "a comment": lambda owner, new: comment(owner, new, "Touched"),
    "a blocked task": lambda owner, new: owner.make_task({"id": new["project_id"]}, blocked_by=[new["id"]]),
    "a claim": lambda owner, new: owner.data(owner.post(f"/tasks/{new['id']}/claim")),
}


@pytest.mark.parametrize("touch", [None, *TOUCHES])
def test_a_reopened_task_takes_back_what_followed_it_unless_somebody_has_touched_that(owner, project, touch):
    task = made(owner, project, repeat="FREQ=MONTHLY", due_date="2031-01-31")
    complete(owner, task)
    (new,) = following(owner, task)
    assert (new["due_date"][:10], new["repeat"]) == ("2031-02-28", "FREQ=MONTHLY;INTERVAL=1;BYMONTHDAY=31")
    if touch:
        TOUCHES[touch](owner, new)
    assert change(owner, task, status="in_progress")["repeat"] == (None if touch else task["repeat"])
    assert [one["id"] for one in following(owner, task)] == ([new["id"]] if touch else [])
    if not touch:  # the series goes on once
        owner.data(owner.post(f"/deleted/{new['id']}/restore"))
        assert owner.read(f"/tasks/{new['id']}")["repeat"] is None
        owner.delete(f"/tasks/{new['id']}")
    complete(owner, task)
    assert len(following(owner, task)) == 1


def test_a_task_comes_back_without_the_rule_if_another_one_follows_by_now(owner, project):
    task = made(owner, project)
    complete(owner, task)
    (gone,) = following(owner, task)
    change(owner, task, status="todo")
    complete(owner, task)
    (new,) = following(owner, task)
    owner.data(owner.post(f"/deleted/{gone['id']}/restore"))
    assert [stored(owner, one["id"])["repeat"] for one in (task, gone, new)] == [None, None, WEEKLY]


def test_the_tasks_of_a_removed_member_repeat(owner, join, project):
    creator = join()
    task = made(creator, project)
    owner.data(owner.delete(f"/members/{creator.member['id']}"))
    complete(owner, task)
    assert [new["created_by"] for new in following(owner, task)] == [creator.member["id"]]


def test_a_rule_that_was_removed_or_replaced_or_has_no_date_any_more_does_not_come_back(owner, project):
    removed, undated, replaced, given_up = (made(owner, project) for _ in range(4))
    change(owner, removed, repeat=None)
    for task in (removed, undated, replaced, given_up):
        complete(owner, task)
    change(owner, undated, due_date=None)
    rules = [(removed, {}), (undated, {}), (replaced, {"repeat": "FREQ=DAILY"}), (given_up, {"repeat": None})]
    for task, fields in rules:
        assert change(owner, task, status="todo", **fields)["repeat"] == fields.get("repeat")
        assert following(owner, task) == []


def test_several_are_completed_and_reopened_in_one_batch(owner, project):
    tasks = [made(owner, project) for _ in range(3)]

    def change_all(status):
        body = {"tasks": [task["id"] for task in tasks], "changes": {"status": status}}
        return owner.data(owner.patch("/tasks/batch", body))["tasks"]

    change_all("done")
    assert [len(following(owner, task)) for task in tasks] == [1, 1, 1]
    change(owner, following(owner, tasks[0])[0], priority="low")
    assert [task["repeat"] for task in change_all("todo")] == [None, WEEKLY, WEEKLY]
    assert [len(following(owner, task)) for task in tasks] == [1, 0, 0]


@pytest.mark.parametrize("names", [lambda a, b: [a, b], lambda a, b: [b, a]])
def test_a_batch_that_reopens_a_task_leaves_out_the_one_that_followed_it(owner, project, names):
    task = made(owner, project)
    complete(owner, task)
    (new,) = following(owner, task)
    body = {"tasks": names(task["id"], new["id"]), "changes": {"status": "todo"}}
    changed = owner.data(owner.patch("/tasks/batch", body))["tasks"]
    assert [(one["id"], one["repeat"]) for one in changed] == [(task["id"], WEEKLY)]
    fault(owner.get(f"/tasks/{new['id']}"), 404, "not_found")


def test_a_sync_that_sends_the_rule_of_a_done_task_again_makes_no_further_task(owner, project):
    path, body = "/tasks/by-external-id/sync", {"title": "Sync", "due_date": "2031-01-06", "repeat": WEEKLY}
    body["project_id"] = project["id"]
    task = owner.data(owner.put(path, body), 201)
    for status in ("done", "done", "todo", "done", "done", "done"):
        synced = owner.data(owner.put(path, body | {"status": status}))
        assert synced["repeat"] == (None if status == "done" else WEEKLY)
        assert len(following(owner, task)) == (status == "done")
    assert owner.data(owner.put(path, body | {"status": "done"}))["version"] == synced["version"]
    fault(owner.patch(f"/tasks/{task['id']}/details", {"repeat": WEEKLY}), 422, "validation_error", "repeat")


def test_the_task_that_follows_an_agent_s_is_nobody_s(server, owner, project):
    bot = server.agent("Bot that repeats")
    fields = {"title": "Check links", "due_date": "2031-01-06", "repeat": WEEKLY.lower()}
    task = stored(owner, use(bot, "create_task", project=project["id"], **fields)["number"])
    assert use(bot, "claim_task", task_id=task["number"], minutes=30)["repeat"] == WEEKLY
    use(bot, "complete_task", task_id=task["number"])
    assert following(owner, task) == []
    complete(owner, task)
    (new,) = following(owner, task)
    assert (new["assignee_id"], new["status"], new["claimed_until"]) == (None, "todo", None)
    assert new["created_by"] == task["created_by"]
    assert use(bot, "claim_task", project=project["id"])["number"] == new["number"]
    use(bot, "update_task", task_id=new["number"], repeat="")
    assert stored(owner, new["id"])["repeat"] is None
    given = made(owner, project, assignee_id=owner.member["id"])
    change(owner, given, assignee_id=bot.member["id"], status="in_progress")
    complete(owner, given)
    assert following(owner, given)[0]["assignee_id"] == bot.member["id"]  # it was not claimed


def test_a_date_is_skipped_without_completing_the_task(owner, project, task):
    first = made(owner, project, repeat="FREQ=MONTHLY", due_date="2031-01-31", start_date="2031-01-30")
    for dates in (["2031-02-27", "2031-02-28"], ["2031-03-30", "2031-03-31"]):
        moved = owner.data(owner.post(f"/tasks/{first['id']}/skip"))
        assert [moved["start_date"][:10], moved["due_date"][:10], moved["status"]] == [*dates, "todo"]
    last = made(owner, project, repeat=f"{WEEKLY};UNTIL=20310106")
    for row, why in ((task, "is null: it does not repeat"), (last, "has no later date")):
        error = fault(owner.post(f"/tasks/{row['id']}/skip"), 422, "validation_error", "repeat")
        assert error["message"] == f"repeat: {why}"
    assert owner.post(f"/tasks/{first['id']}/skip", headers={"If-Match": '"1"'}).status_code == 412


def test_a_task_whose_next_one_cannot_be_stored_stays_open(launch_here):
    server = launch_here()
    owner = server.client()
    task = made(owner, owner.make_project())
    fails_midway(server, owner, "INSERT ON task", f"/tasks/{task['id']}/complete")
    assert (stored(owner, task["id"])["status"], following(owner, task)) == ("todo", [])
    complete(owner, task)
    assert len(following(owner, task)) == 1


def test_an_import_takes_rules_and_makes_no_next_task(launch_here, tmp_path):
    server, other = launch_here(), launch_here()
    owner = server.client()
    first = complete(owner, made(owner, owner.make_project(name="Chores"), repeat_from="completed_at"))
    for name, options in (("all.jsonl", ["--format", "jsonl"]), ("all.csv", [])):
        exported = tmp_path / name
        assert invoke(server, "export", *options, exported).exit_code == 0
        invoke(other, "import", exported, "--apply")
        tasks = other.client().read("/tasks", sort="created_at")["tasks"]
        names = ("number", "status", "repeat", "repeat_from", "repeats")
        rules = [tuple(one[name] for name in names) for one in tasks]
        assert rules == [(1, "done", None, "completed_at", None), (2, "todo", WEEKLY, "completed_at", 1)]
    done, place = tmp_path / "done.jsonl", {"title": "A task", "project": "Chores"}
    done.write_text(json.dumps(place | {"id": first["id"], "status": "todo"}))
    invoke(server, "import", done, "--apply")
    assert len(following(owner, first)) == 1  # it takes none back
    owner = other.client()
    done.write_text(json.dumps(place | DONE | {"id": tasks[1]["id"]}))
    invoke(other, "import", done, "--apply")
    assert following(owner, tasks[1]) == []
    assert stored(owner, tasks[1]["id"])["repeat"] == WEEKLY
    change(owner, tasks[1], status="todo")
    complete(owner, tasks[1])
    assert len(following(owner, tasks[1])) == 1
