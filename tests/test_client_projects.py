"""Clients who see only some projects: no answer has a trace of any other.

An open view of a table fails these tests, unless a second layer hides its rows. `due_count`,
`attachment_content`, `blocker`, `participant` and `notice` are only read with their project, attachment,
task, meeting or recipient. A calendar lists only the client's own tasks and meetings, and no task
elsewhere can be assigned to a client. A member who is shown as removed, with a phone number, is in no
list.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import product

import pytest
from harness import NOBODY, fault, tables
from mailboxes import Mailbox
from test_roles import ALL, API, MAY
from test_tools import text_of
from test_waiting import Wait, until_all_wait

from app import create_app
from database import db
from members import Member
from models import Project, Task, write
from schemas import Id, TaskReference

NEEDS_SOCKET = False

WORD = "canary7f3a"  # in every text that the client must not see
FIRST_NUMBER = 770_000  # of a task, so that each number can be found in a text
# Such a client sees no row of these tables.
UNSEEN_TABLES = {"agent_stop", "webhook", "event", "delivery", "invitation", "stored_answer", "flow"}
UNSEEN_TABLES |= {"flow_task", "deleted", "earlier"}
MAIL = {"TASKS_MAIL__FROM": "tasks@example.org", "TASKS_MAIL__URL": "smtp://127.0.0.1:1"}
MAIL["TASKS_LIMITS__TOOL_CALLS_PER_MINUTE"] = "0"
VOLATILE = "timestamp|request_id|next_after|last_used_at|uptime_seconds|current_time|now"
VOLATILE = rf'"({VOLATILE})":("[^"]*"|\d+|null)'
QUERIES = [f"?q={WORD}", "?limit=100&sort=rank", "?limit=1&offset=1", "?ready=true", "?archived=false"]
QUERIES += ["?limit=100&include=comment_count&sort=updated_at", "?status=open", f"?label={WORD}"]
QUERIES += [f"?external_id=x%20{WORD}", "?limit=100", "?entity=project", "?action=deleted"]
NAMES = "(_id|_by|^key|^task)$"  # of fields and parameters that hold an id
MORE = {"/keys": {"name": "x"}, "/inbox/snooze": {"until": "2031-01-01"}}  # what their bodies need


@pytest.fixture(scope="module")
def server(launch_here_module):
    server = launch_here_module(**MAIL)
    server.rows("DELETE FROM sqlite_sequence WHERE name = 'task'")
    server.rows("INSERT INTO sqlite_sequence VALUES ('task', ?)", FIRST_NUMBER)
    return server


@pytest.fixture(scope="module")
def join(server):
    return partial(server.join, "client")


def limit(owner, client, *projects):
    ids = [project["id"] for project in projects]
    return owner.data(owner.patch(f"/members/{client.member['id']}", {"project_ids": ids}))


def move(owner, task, project, **fields):
    return owner.data(owner.patch(f"/tasks/{task['id']}/details", {"project_id": project["id"], **fields}))


def fill(owner, project, word, *named):
    """Make one of everything in a project; return the ids."""

    def made(*request):
        return owner.make(*request)["id"]

    milestone = made(f"/projects/{project['id']}/milestones", {"title": f"M {word}"})
    about = {"description": f"{word}\n- [ ] {word}", "labels": [word], "metadata": {word: word}}
    about |= {"external_id": f"x {word}", "priority": "urgent", "due_date": "2020-01-01"}
    task = owner.make_task(project, title=f"T {word}", milestone_id=milestone, **about)
    path = f"/tasks/{task['id']}"
    file = owner.request("POST", f"{path}/attachments", files={"file": (f"{word}.txt", word.encode())})
    comment = made(f"{path}/comments", {"content": " ".join([f"C {word}", *(f"@{name}" for name in named)])})
    board = made("/whiteboards", {"title": word, "project_id": project["id"]})
    ids = {"project": project["id"], "milestone": milestone, "task": task["id"], "number": task["number"]}
    return ids | {"comment": comment, "attachment": owner.data(file, 201)["id"], "whiteboard": board}


def read_all(server, client):
    """Everything that the client reads without an id: paths, tools, calendar; without changing values."""
    read = {}
    for operation in sorted(name for name, roles in MAY.items() if roles == ALL and name.startswith("GET")):
        path = operation.split()[1]
        for asked in [path, *(path + query for query in QUERIES)] if "<" not in path else []:
            read[asked] = client.request("GET", asked, envelope=False).text
    read["/health"] = client.request("GET", "/health").text
    for name, given in [("get_context", {}), ("find_tasks", {}), ("list_meetings", {})]:
        read[name] = text_of(client, name, given)[0]
    read["calendar"] = server.call("GET", client.calendar).text
    return {name: re.sub(VOLATILE, r'"\1":0', text.replace("\\", "")) for name, text in read.items()}


@pytest.fixture(scope="module")
def place(server, owner, join):
    """A client of one project, what is in that, what is elsewhere, and what the client read meanwhile."""
    seen, other = owner.make_project(), owner.make_project(name=f"P {WORD}", description=WORD)
    client = join(full_name="Clara One", project_ids=[seen["id"]])
    inside = fill(owner, seen, "inside", "Clara One") | {"member": client.member["id"]}
    path, mine = f"/tasks/{inside['task']}", client.member["id"]
    owner.data(owner.patch(path, {"assignee_id": mine}))
    owner.make("/meetings", {"title": "Both", "starts_at": "2031-01-01", "participant_ids": [mine]})
    client.calendar = "/calendar/" + client.make("/calendar")["url"].rpartition("/")[2]
    before = read_all(server, client)
    stranger = join(full_name=f"Stranger {WORD}", phone_number=WORD, project_ids=[other["id"]])
    key = stranger.make("/keys", {"name": WORD})["key"]
    outside = fill(owner, other, WORD, "Clara One", f"Stranger {WORD}")
    starts = {"title": f"Meeting {WORD}", "starts_at": "2031-01-01", "project_id": seen["id"]}
    starts["participant_ids"] = [stranger.member["id"]]
    outside["meeting"] = owner.make("/meetings", starts)["id"]
    loose = owner.post("/whiteboards", {"title": WORD, "content": {WORD: WORD}})
    outside |= {"loose": owner.data(loose, 201)["id"], "member": stranger.member["id"], "key": key["id"]}
    dead = owner.make_task(other, title=WORD)
    owner.data(owner.delete(f"/tasks/{dead['id']}"))
    outside |= {"dead": dead["id"], "dead_number": dead["number"]}
    after = read_all(server, client)
    # Links between both: blockers, repeated tasks, a task that has come, and one that has gone.
    repeated = {"due_date": "2031-01-01", "repeat": "FREQ=DAILY"}
    for name, here, there in (("followed", other, seen), ("following", seen, other)):
        first = owner.make_task(here, title=WORD if here is other else "again", **repeated)
        owner.data(owner.post(f"/tasks/{first['id']}/complete"))
        second = owner.read(f"/tasks/{first['id']}")["next_number"]
        move(owner, {"id": second}, there, title=WORD if there is other else "again")
        outside[name] = first["number"] if here is other else second
        inside[name] = second if here is other else first["id"]
    blocking, free = owner.make_task(other, title=WORD), owner.make_task(seen, title="free")
    for blockers in ([outside["number"], blocking["number"]], [blocking["number"]]):
        owner.data(owner.patch(f"{path}/details", {"blocked_by": blockers}))
    owner.data(owner.post(f"/tasks/{blocking['id']}/complete"))
    owner.data(owner.patch(f"{path}/details", {"blocked_by": [outside["number"], free["number"]]}))
    owner.data(owner.patch(f"/tasks/{outside['task']}/details", {"blocked_by": [free["number"]]}))
    owner.data(owner.delete(f"/tasks/{free['id']}"))
    outside |= {"blocking": blocking["id"], "blocking_number": blocking["number"]}
    planned = {"milestone_id": outside["milestone"], "assignee_id": stranger.member["id"]}
    came = owner.make_task(other, title=WORD, **planned)
    owner.data(owner.patch(f"/tasks/{came['id']}/details", {"description": WORD}))
    move(owner, came, seen, title="came", description="", assignee_id=None)
    gone = owner.make_task(seen, title="gone")
    move(owner, gone, other, title=WORD)
    inside["came"], outside["gone"], outside["gone_number"] = came["id"], gone["id"], gone["number"]
    return {"client": client, "stranger": stranger, "in": inside, "out": outside, "was": before, "is": after}


def leaks(place, text):
    """The traces of other projects in a text."""
    secrets = [WORD, "Stranger", *map(str, place["out"].values())]
    return [secret for secret in secrets if re.search(rf"(?<![0-9a-f]){re.escape(secret)}", text)]


def test_work_in_other_projects_changes_no_answer(place):
    assert place["was"] == place["is"]


def test_no_answer_has_anything_of_another_project(server, place):
    client, inside, outside = place["client"], place["in"], place["out"]
    asked = dict(read_all(server, client))
    answered = 0
    for operation, roles in MAY.items():
        path, found = operation.split()[1], re.findall("<[^>]*>", operation)
        if not operation.startswith("GET") or roles != ALL or not found:
            continue
        pairs = [(a["task"], b["attachment"]) for a, b in product((inside, outside), repeat=2)]
        single = [(str(id),) for id in (*inside.values(), *outside.values())]
        for ids in single if len(found) == 1 else pairs:
            filled = path
            for parameter, id in zip(found, ids, strict=True):
                filled = filled.replace(parameter, id, 1)
            answer = client.request("GET", filled, envelope=False)
            is_elsewhere = any(id in map(str, outside.values()) for id in ids)
            assert answer.status_code in ((404,) if is_elsewhere else (200, 404)), filled
            asked[filled] = answer.text
            answered += answer.status_code == 200
    for name in ("task", "number", "dead", "dead_number", "gone", "gone_number"):
        asked["history", name] = client.get("/activity", task=outside[name]).text
    for name, given in [
        *(("get_task", {"task_id": ids[kind]}) for ids in (inside, outside) for kind in ("task", "number")),
        *(("get_project", {"project": ids["project"]}) for ids in (inside, outside)),
        ("get_project", {"project": f"P {WORD}"}),
        ("find_tasks", {"project": WORD}),
        ("find_tasks", {"assignee": "Stranger"}),
        ("add_comment", {"task_id": outside["number"], "content": "x"}),
    ]:
        text = text_of(client, name, given)[0]
        for sent in map(str, given.values()):
            text = text.replace(sent, "")
        asked[name, str(given)] = text
    for name, text in asked.items():
        assert not leaks(place, text), (name, leaks(place, text), text)
    assert answered > 15
    assert [one["label"] for one in client.read("/labels")["labels"]] == ["inside"]
    assert client.read("/inbox")["unread"] == 2  # mentioned and assigned, not unblocked


def named(is_asked):
    """The operations for clients whose body, or query, names something by its id, each with such a field."""
    app = create_app()
    for rule in app.url_map.iter_rules():
        for operation in (f"{method} {rule.rule.removeprefix(API)}" for method in rule.methods):
            for name, field in app.view_functions[rule.endpoint].declared.takes.fields.items():
                if MAY.get(operation) == ALL and is_asked(operation.split()[0]) and re.search(NAMES, name):
                    # `unseen_by` would replace the text of an `external_id`.
                    assert isinstance(field, Id | TaskReference) or operation.startswith("GET"), (
                        operation,
                        name,
                    )
                    yield operation, name


def unseen(place):
    """The ids of what is elsewhere, and its numbers, both after one of nothing."""
    ids = place["out"].values()
    texts, numbers = ([str(id) for id in ids if isinstance(id, kind)] for kind in (str, int))
    return [NOBODY, *texts], ["999999999", *numbers]


def test_other_projects_look_as_if_they_did_not_exist(place):
    client = place["client"]

    def said(method, path, body):
        answer = client.request(method, path, json=body, envelope=False)
        return answer.status_code, answer.json().get("error") or answer.json()["data"]

    for operation in sorted(name for name, roles in MAY.items() if roles == ALL and "<" in name):
        method, path = operation.split()
        body = {"content": "x"} if "comments" in path else {"full_name": "X"} if "members" in path else None
        body = None if method in ("GET", "DELETE") else body
        paths = [path, re.sub("<[^>]*>", place["in"]["task"], path, count=1)][: path.count("<")]
        for path, ids in product(paths, unseen(place)):
            answers = [said(method, re.sub("<[^>]*>", id, path), body) for id in ids]
            assert answers == answers[:1] * len(ids), (operation, path, ids, answers)
    for operation, name in named(lambda method: method != "GET"):
        method, path = operation.split()
        ids, numbers = unseen(place)
        for sent in (ids, map(int, numbers)):
            answers = [said(method, path, {name: id, **MORE.get(path, {})}) for id in sent]
            assert answers == answers[:1] * len(answers), (operation, name, answers)
    own = f"/members/{client.member['id']}"
    for ids in ([place["out"]["project"]], [NOBODY], [place["in"]["project"], place["out"]["project"]]):
        assert said("PATCH", own, {"project_ids": ids})[0] == 403
    emails = [place["stranger"].member["email"], "free@example.com"]
    assert [said("PATCH", own, {"email": email})[0] for email in emails] == [200, 200]


def test_a_filter_by_an_id_elsewhere_answers_as_one_by_no_id(place):
    def said(path, name, id):
        answer = place["client"].get(path, **{name: id})
        return answer.status_code, re.sub(VOLATILE, "", answer.text).replace(id, "")

    for operation, name in named(lambda method: method == "GET"):
        path = re.sub("<[^>]*>", place["in"]["task"], operation.split()[1])
        for ids in (*unseen(place), [NOBODY[:8], place["out"]["project"][:8]]):
            answers = [said(path, name, id) for id in ids]
            assert answers == answers[:1] * len(ids), (operation, name, answers)


def test_each_table_declares_its_rows_for_clients_of_some_projects():
    assert {table._meta.table_name for table in tables() if table.SEEN == "0"} == UNSEEN_TABLES


def mirrored(client, after=None):
    """The state of a client that follows the changes: the ids of objects, and the cursor."""
    kept, gone = set(), set()
    while True:
        page = client.read("/changes", limit=20, **({"after": after} if after else {}))
        for change in page["changes"]:
            (gone if change["action"] == "deleted" else kept).add(change["id"])
        after = page["pagination"]["next_after"]
        if not page["pagination"]["has_more"]:
            return kept, gone, after


def test_followers_learn_what_comes_and_what_goes(owner, join):
    seen, other = owner.make_project(), owner.make_project()
    client = join(project_ids=[seen["id"]])
    leaving, dying, coming = (owner.make_task(one) for one in (seen, seen, other))
    comment = owner.make(f"/tasks/{coming['id']}/comments", {"content": "x"})

    def comment_once(name):
        path, once = f"/tasks/{leaving[name]}/comments", {"headers": {"Idempotency-Key": name}}
        return client.post(path, {"content": "x"}, **once)

    said = {client.data(comment_once(name), 201)["id"] for name in ("id", "number") * 2}
    (kept, _, cursor), everything = mirrored(client), mirrored(owner)[2]
    assert len(said) == 2
    assert kept == {leaving["id"], dying["id"], *said}
    move(owner, leaving, other)
    # A repeated request says nothing of a task that has gone.
    for name in ("id", "number"):
        fault(comment_once(name), 404, "not_found")
    move(owner, coming, seen)
    owner.data(owner.delete(f"/tasks/{dying['id']}"))
    owner.data(owner.patch(f"/tasks/{leaving['id']}", {"title": "later"}))
    kept, gone, _ = mirrored(client, cursor)
    assert (kept, gone) == ({coming["id"], comment["id"]}, {leaving["id"], dying["id"]})
    assert mirrored(owner, everything)[:2] == ({leaving["id"], coming["id"]}, {dying["id"]})
    moved, *_ = owner.read(f"/tasks/{coming['id']}/activity")["activity"]
    assert (moved["action"], moved["changes"]) == ("moved", {"project_id": [other["id"], seen["id"]]})
    (came,) = client.read(f"/tasks/{coming['id']}/activity")["activity"]
    assert (came["action"], came["changes"]) == ("moved", {"project_id": [None, seen["id"]]})


def test_both_feeds_begin_again_when_the_projects_change(owner, join):
    one, two = owner.make_project(), owner.make_project()
    client = join(project_ids=[one["id"]])
    owner.make_task(one)
    owner.make_task(two)
    first = {"sort": "updated_at", "limit": 1}

    def cursor_of_tasks(**after):
        return client.read("/tasks", **first, **after)["pagination"]["next_after"]

    path = f"/members/{client.member['id']}"
    both = {"project_ids": [one["id"], two["id"]]}
    for changed in (both, {"project_ids": [two["id"]]}, {"role": "member"}):
        changes, tasks = mirrored(client)[2], cursor_of_tasks()
        assert cursor_of_tasks(after=tasks)
        owner.data(owner.patch(path, changed))
        for answer in (client.get("/changes", after=changes), client.get("/tasks", after=tasks, **first)):
            assert "begin again" in fault(answer, 410, "gone")["message"]
        assert mirrored(client, mirrored(client)[2])
        assert cursor_of_tasks(after=cursor_of_tasks())


def test_clients_of_one_project_see_each_others_names_and_no_addresses(owner, join):
    project = owner.make_project()
    one, two = (join(full_name=f"{name} Client", project_ids=[project["id"]]) for name in ("Una", "Duo"))
    path = f"/tasks/{owner.make_task(project)['id']}/comments"
    one.make(path, {"content": "@Duo Client"})
    (comment,) = two.read(path)["comments"]
    assert (comment["author"]["full_name"], comment["author"]["email"]) == ("Una Client", "")
    assert comment["mentions"] == [two.member["id"]]
    assert one.member["id"] not in two.get("/members").text
    starts = {"title": "M", "starts_at": "2031-01-01", "project_id": owner.make_project()["id"]}
    starts["participant_ids"] = [one.member["id"], two.member["id"]]
    meeting = owner.make("/meetings", starts)
    shown = two.read(f"/meetings/{meeting['id']}")
    names = [(person["full_name"], person["email"] == "") for person in shown["participants"]]
    assert (shown["project_id"], names) == (None, [("Duo Client", False), ("Una Client", True)])


def test_a_client_outside_a_project_gets_no_mention_question_or_task_there(owner, join):
    seen, other = owner.make_project(), owner.make_project()
    client = join(full_name="Uma Limited", project_ids=[seen["id"]])
    task, mine = owner.make_task(other), owner.make_task(seen, assignee_id=client.member["id"])
    path = f"/tasks/{task['id']}"
    asked = {"content": "@Uma Limited?", "question": True}
    fault(owner.post(f"{path}/comments", asked), 422, "validation_error", "question")
    comment = owner.make(f"{path}/comments", {"content": "Nobody"})
    edited = owner.patch(f"{path}/comments/{comment['id']}", {"content": "@Uma Limited"})
    assert owner.data(edited)["mentions"] == []
    given = {"assignee_id": client.member["id"]}
    new = given | {"project_id": other["id"], "title": "T"}
    for answer, field in (
        (owner.post("/tasks", new), "assignee_id"),
        (owner.post("/tasks/batch", {"tasks": [new]}), "tasks[0].assignee_id"),
        (owner.patch(path, given), "assignee_id"),
        (owner.patch("/tasks/batch", {"tasks": [task["id"]], "changes": given}), "tasks[0].assignee_id"),
        (owner.patch(f"/tasks/{mine['id']}/details", {"project_id": other["id"]}), "assignee_id"),
    ):
        fault(answer, 422, "validation_error", field)
    assert client.read("/inbox")["unread"] == 1
    move(owner, mine, other, assignee_id=None)
    assert client.read("/inbox")["notices"] == []
    move(owner, mine, seen)
    assert client.read("/inbox")["notices"] == [], "what was deleted does not come back"


def test_mail_tells_nothing_of_a_project_that_was_taken_away(launch):
    with closing(Mailbox()) as box:
        server = launch(**MAIL | {"TASKS_MAIL__URL": box.url}, BOUND_QUIET_SECONDS="0")
        owner = server.client()
        seen, other = owner.make_project(), owner.make_project()
        client = server.join("client", full_name="Mona Mailed", project_ids=[seen["id"], other["id"]])
        member = client.member["id"]
        owner.data(owner.patch(f"/members/{member}", {"mail": "never"}))
        hidden = owner.make_task(other, title=WORD)
        owner.make_task(other, title=WORD, description="@Mona Mailed")
        client.make(f"/tasks/{hidden['id']}/comments", {"content": "Whose author hears of others"})
        owner.make_task(seen, title="Still told", assignee_id=member)
        limit(owner, client, seen)
        owner.make(f"/tasks/{hidden['id']}/comments", {"content": WORD})
        owner.data(owner.patch(f"/members/{member}", {"mail": "at_once"}))
        while "invites" in (mail := box.next(client.member["email"]))["Subject"]:
            continue
    assert "Still told" in mail["Subject"]
    assert WORD not in str(mail)


def test_a_client_keeps_no_title_of_a_task_elsewhere_that_has_blocked(owner, join):
    seen, other = owner.make_project(), owner.make_project()
    client = join()
    blocking = owner.make_task(other, title=WORD)
    owner.make_task(seen, blocked_by=[blocking["id"]], assignee_id=client.member["id"])
    owner.data(owner.post(f"/tasks/{blocking['id']}/complete"))
    assert WORD in client.get("/inbox").text
    limit(owner, client, seen)
    assert [notice["reason"] for notice in client.read("/inbox")["notices"]] == ["assigned"]


def test_a_client_who_is_invited_again_keeps_no_title_of_a_task_elsewhere(server, owner):
    seen, other = owner.make_project(), owner.make_project()
    body = {"email": "anew@example.com", "full_name": "R", "role": "client"}
    invited = owner.make("/members/invite", body)["member"]["id"]
    for title in ("Seen", WORD):
        blocking = owner.make_task(seen if title == "Seen" else other, title=title)
        owner.make_task(seen, blocked_by=[blocking["id"]], assignee_id=invited)
        owner.data(owner.post(f"/tasks/{blocking['id']}/complete"))
    again = owner.data(owner.post("/members/invite", body | {"project_ids": [seen["id"]]}))
    token = again["enrollment_link"].rpartition("/")[2]
    client = server.client(owner.data(server.client(None).post(f"/enroll/{token}"), 201)["api_key"])
    assert [notice["reason"] for notice in client.read("/inbox")["notices"]] == ["assigned"] * 2


def test_a_client_keeps_no_title_of_a_task_in_a_deleted_project(owner, join):
    seen, deleted = owner.make_project(), owner.make_project()
    client = join(project_ids=[seen["id"], deleted["id"]])
    blocking = owner.make_task(deleted, title=WORD)
    owner.make_task(seen, blocked_by=[blocking["id"]], assignee_id=client.member["id"])
    owner.data(owner.post(f"/tasks/{blocking['id']}/complete"))
    assert WORD in client.get("/inbox").text
    owner.data(owner.delete(f"/projects/{deleted['id']}?force=true"))
    assert WORD not in client.get("/inbox").text


def test_a_member_limited_to_some_projects_loses_tasks_elsewhere(server, owner, join):
    seen, other = owner.make_project(), owner.make_project()
    member = server.join()
    agent = member.make("/keys", {"name": "Agent", "scope": "agent"})["api_key"]
    tasks = [owner.make_task(one, assignee_id=member.member["id"]) for one in (seen, other)]
    for project in (seen, other):
        tasks.append(owner.make_task(project))
        member.data(member.post(f"/tasks/{tasks[-1]['id']}/claim", {"minutes": 60}))
    path, became = f"/members/{member.member['id']}", {"role": "client", "project_ids": [seen["id"]]}
    assert owner.data(owner.patch(path, became))["project_ids"] == [seen["id"]]
    left = [owner.read(f"/tasks/{task['id']}") for task in tasks]
    shown = [(task["assignee_id"] is None, task["status"], bool(task["claimed_until"])) for task in left]
    mine, nobody_s = [(False, "todo", False), (False, "in_progress", True)], (True, "todo", False)
    assert shown == [mine[0], nobody_s, mine[1], nobody_s]
    fault(server.client(agent).get(f"/tasks/{tasks[1]['id']}"), 404, "not_found")
    fault(owner.patch(path, {"role": "member", "project_ids": []}), 422, "validation_error", "project_ids")
    assert owner.data(owner.patch(path, {"role": "member"}))["project_ids"] is None
    assert server.client(agent).get(f"/tasks/{tasks[1]['id']}").status_code == 200
    fault(owner.patch(path, {"project_ids": []}), 422, "validation_error", "project_ids")


def test_an_invitation_keeps_its_projects_until_another_one_says_others(owner):
    project, other = owner.make_project(), owner.make_project()
    body = {"email": "again@example.com", "full_name": "R", "role": "client"}
    invited = owner.make("/members/invite", body | {"project_ids": [project["id"]]})["member"]
    task = owner.make_task(project, assignee_id=invited["id"])
    for more, ids in (
        ({}, [project["id"]]),
        ({"project_ids": [other["id"]]}, [other["id"]]),
        ({"role": "member"}, None),
    ):
        again = owner.data(owner.post("/members/invite", body | more))["member"]
        assert again["project_ids"] == ids
    assert owner.read(f"/tasks/{task['id']}")["assignee_id"] is None


def test_projects_that_cannot_be_listed_are_refused(owner):
    known = owner.make_project()["id"]
    for role, ids, field in (
        *(("client", [id], "project_ids.0") for id in (NOBODY, "not an id")),
        *(("client", ids, "project_ids") for ids in ([known] * 2, [NOBODY] * 101, known)),
        ("member", [known], "project_ids"),
    ):
        body = {"email": "refused@example.com", "full_name": "R", "role": role, "project_ids": ids}
        fault(owner.post("/members/invite", body), 422, "validation_error", field)


def test_a_wait_shows_only_what_the_client_may_see_at_its_end(launch):
    server = launch()
    owner, client = server.client(), server.join("client")
    seen, other = owner.make_project(), owner.make_project()
    waits = ("/changes", {"after": mirrored(client)[2]}), ("/tasks", {"ready": "true", "label": "awaited"})
    with ThreadPoolExecutor() as pool:
        changes, tasks = (Wait(pool, server, path, client.key, **query) for path, query in waits)
        until_all_wait(server, seen, client.key)
        limit(owner, client, seen)
        owner.make_task(other, title=WORD, labels=["awaited"])
        mine = owner.make_task(seen, labels=["awaited"])
        assert [task["id"] for task in client.data(tasks.future.result())["tasks"]] == [mine["id"]]
        assert WORD not in changes.future.result().text


def test_a_deleted_project_leaves_the_lists(owner, join):
    one, two = owner.make_project(), owner.make_project()
    client = join(project_ids=[one["id"], two["id"]])
    cursor = mirrored(client)[2]
    for project, left in ((one, [two["id"]]), (two, [])):
        owner.data(owner.delete(f"/projects/{project['id']}"))
        assert client.read("/me")["member"]["project_ids"] == left
    fault(client.get("/changes", after=cursor), 410, "gone")
    assert mirrored(client)[0] == set()
    for path in ("/context", "/activity", "/inbox", "/labels", "/whiteboards"):
        client.read(path)


def test_the_tasks_of_a_client_who_is_limited_are_unassigned_by_few_statements(database):
    """Each statement holds up every other writer."""
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        made = {"email": "c@example.com", "status": "active", "role": "client", "full_name": "C"}
        client = Member.add(transaction, **made)
        seen, other = (Project.add(transaction, name=name)["id"] for name in "AB")
        for project_id in (seen, *[other] * 600):
            Task.add(transaction, title="T", project_id=project_id, assignee_id=client["id"])
    executed = []
    with write(owner) as transaction:
        db.connection().set_trace_callback(executed.append)
        changed = [*Task.unassign_unseen(transaction, client | {"project_ids": [seen]})]
        db.connection().set_trace_callback(None)
    assert [task["project_id"] for task, _ in changed] == [other] * 600
    assert len([sql for sql in executed if sql.startswith('UPDATE "task"')]) == 2
    assert len(executed) < 2.1 * 600  # with what the history records
