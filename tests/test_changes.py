"""GET /changes: who follows it has the workspace, whatever is done, and begins again after a restore."""

import itertools
import random
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest
from harness import NOBODY, ROOT, Local, fault, invoke, wait_until
from test_claims import claim
from test_readme import block
from test_throwaway import ask, begun, client

from store import prepare

NEEDS_SOCKET = False

DOCS = (ROOT / "docs" / "api.md").read_text()


class Mirror:
    """The program of the documentation, for this server."""

    def __init__(self, server, key):
        self.program = {}
        exec(block("python", "def follow", DOCS).replace("tms_…", key), self.program)  # noqa: S102 - ours
        self.turn_to(f"{server.base}/api/v1")
        if isinstance(server, Local):
            session = server.session()
            session.get = partial(session.request, "GET", headers={"Authorization": f"Bearer {key}"})
            self.program["session"] = session
        # A restart takes less than the second that the program waits.
        self.program["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.05)))

    def turn_to(self, address):
        """A server that is started again has the same address, but in these tests."""
        self.program["API"] = address

    def follow(self, **options):
        self.program["follow"](**options)
        return self.program["mirror"]


def pages(client, after=None, limit=100):
    """Each page from the cursor to the end."""
    more = True
    while more:
        page = client.read("/changes", limit=limit, **({"after": after} if after else {}))
        after, more = page["pagination"]["next_after"], page["pagination"]["has_more"]
        yield page


def changes(client, after=None, **options):
    return [change for page in pages(client, after, **options) for change in page["changes"]]


def end(client):
    """The cursor after all that has happened."""
    return [*pages(client)][-1]["pagination"]["next_after"]


def told(client, after):
    return [(change["kind"], change["action"]) for change in changes(client, after)]


def listed(server, client):
    """Return the workspace's objects, by kind and id, as the API lists them."""
    rows = {("member", row["id"]): row for row in client.read("/members")["members"]}
    for project in client.read("/projects")["projects"]:
        rows["project", project["id"]] = project | {"owner_id": project["owner"]["id"]}
        milestones = client.read(f"/projects/{project['id']}/milestones")["milestones"]
        rows |= {("milestone", row["id"]): row for row in milestones}
    for offset in itertools.count(0, 100):
        tasks = client.read("/tasks", limit=100, offset=offset)["tasks"]
        for task in tasks:
            rows["task", task["id"]] = task
            comments = client.read(f"/tasks/{task['id']}/comments")["comments"]
            rows |= {("comment", row["id"]): row for row in comments}
        if not tasks:
            break
    for row in server.rows("SELECT id FROM meeting"):
        meeting = client.read(f"/meetings/{row['id']}")
        meeting |= {"organizer_id": meeting["organizer"]["id"]}
        meeting["participant_ids"] = sorted(member["id"] for member in meeting["participants"])
        rows["meeting", row["id"]] = meeting
    for row in server.rows("SELECT id FROM whiteboard"):
        rows["whiteboard", row["id"]] = client.read(f"/whiteboards/{row['id']}")
    return rows


def differences(mirror, rows):
    """Yield the differences of the mirror from the listed rows."""
    for key in mirror.keys() ^ rows.keys():
        yield f"{key} is only {'listed' if key in rows else 'in the mirror'}"
    for key in mirror.keys() & rows.keys():
        if key[0] == "meeting":
            mirror[key]["participant_ids"].sort()
        for name in mirror[key].keys() - {"key_id"}:
            if (value := mirror[key][name]) != (shown := rows[key].get(name, "missing")):
                yield f"{key}: {name} is {value} in the mirror, and {shown} in the list"


def assert_equal(mirror, server, client):
    """The mirror has the rows that are listed, with nothing in them that differs, and lacks no own column."""
    assert [*differences(mirror, listed(server, client))] == []
    fresh = {(change["kind"], change["id"]): change["object"] for change in changes(client)}
    for (kind, _), row in fresh.items():
        if kind == "meeting":
            row["participant_ids"].sort()
    assert mirror == fresh


class Writer:
    """A member who does all kinds of things, by chance."""

    def __init__(self, client, seed, members):
        self.client, self.chance, self.members = client, random.Random(seed), members  # noqa: S311
        self.project = client.make_project(name=f"Of {seed}")
        self.tasks = []

    def made(self, path, **body):
        answer = self.client.post(path, body)
        return self.client.data(answer, 201) if answer.ok else {"id": None}

    def step(self):
        client, project, chance = self.client, self.project["id"], self.chance
        person = chance.choice(self.members)
        blockers = [task["number"] for task in chance.sample(self.tasks, min(len(self.tasks), 2))]
        self.tasks.append(client.make_task(self.project, assignee_id=person, blocked_by=blockers))
        chosen = chance.choice(self.tasks)
        task = f"/tasks/{chosen['id']}"
        milestone = self.made(f"/projects/{project}/milestones", title="M")["id"]
        planned = {"milestone_id": milestone}
        comment = self.made(f"{task}/comments", content="C")["id"]
        meeting = self.made("/meetings", title="A", starts_at="2027-01-01", project_id=project)["id"]
        board = self.made("/whiteboards", title="B", project_id=project)["id"]
        acts = [
            lambda: client.patch(f"{task}/details", {"title": f"T {chance.random()}"} | planned),
            lambda: client.post(f"{task}/complete"),
            lambda: client.patch(task, {"status": "todo"}),
            lambda: (self.tasks.remove(chosen), client.delete(task)),
            lambda: client.patch(f"{task}/details", {"blocked_by": []}),
            lambda: client.post(f"{task}/claim", {"minutes": chance.randint(30, 99)}),
            lambda: client.patch(f"{task}/details", {"before": None}),
            lambda: client.delete(f"/milestones/{milestone}"),
            lambda: client.patch(f"/milestones/{milestone}", {"due_date": "2027-01-01"}),
            lambda: client.patch(f"{task}/comments/{comment}", {"content": "Again"}),
            lambda: client.delete(f"{task}/comments/{comment}"),
            lambda: client.patch(f"/meetings/{meeting}", {"participant_ids": [person]}),
            lambda: client.delete(f"/whiteboards/{board}"),
            lambda: client.patch(f"/projects/{project}", {"name": f"P {chance.random()}"}),
            lambda: client.patch(f"/members/{person}", {"full_name": f"N {chance.randint(0, 99)}"}),
        ]
        for act in chance.sample(acts, 5):
            act()

    def new_project(self):
        self.client.delete(f"/projects/{self.project['id']}?force=true")
        self.project, self.tasks = self.client.make_project(), []


@pytest.mark.long
def test_the_mirror_of_the_documentation_is_the_workspace_through_kills_and_a_restore(launch):
    server = launch("--workers", "2")
    owner = server.client()
    backup = server.folder / "backup.db"

    def join(number):
        body = {"email": f"{number}@example.com", "full_name": f"M {number}", "role": "admin"}
        return owner.make("/members/invite", body)["member"]["id"]

    members = [join(number) for number in range(6)]
    mirror, seen = Mirror(server, owner.key), []

    def work(seed, steps):
        writer = Writer(server.client(), seed, members)
        for step in range(steps):
            writer.step()
            if step == 3:
                writer.new_project()

    def write_and_follow(steps):
        after = end(owner)
        writers = [threading.Thread(target=work, args=(seed, steps)) for seed in range(8)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            mirror.follow()
            new = [*pages(owner, after, limit=37)]
            seen.extend(change for page in new for change in page["changes"])
            after = new[-1]["pagination"]["next_after"]
        seen.extend(changes(owner, after))

    write_and_follow(5)
    owner.delete(f"/members/{members[0]}")
    assert_equal(mirror.follow(), server, owner)
    for action in ("created", "deleted"):  # once each
        ids = [change["id"] for change in seen if change["action"] == action]
        assert len(ids) == len(set(ids)) > 40
    assert invoke(server, "backup", backup).exit_code == 0
    members.pop(0)
    write_and_follow(2)
    waiting = threading.Thread(target=mirror.follow, kwargs={"wait": 25})
    waiting.start()
    server.kill()
    server.start("--workers", "2")
    mirror.turn_to(f"{server.base}/api/v1")
    owner = server.client()
    owner.make_project(name="After the kill")
    waiting.join()
    assert_equal(mirror.follow(), server, owner)
    server.stop()
    assert invoke(server, "restore", backup).exit_code == 0
    server.start()
    mirror.turn_to(f"{server.base}/api/v1")
    owner = server.client()
    owner.make_project(name="After the restore")
    assert_equal(mirror.follow(), server, owner)


def test_the_mirror_of_the_documentation_goes_on_after_429_and_503(tmp_path):
    with begun(tmp_path, "--seed", "7") as process:
        owner = client(process.stdout.readline())
        mirror = Mirror(SimpleNamespace(base=owner.base.removesuffix("/api/v1")), owner.key)
        for status in (429, 503):
            assert ask(owner, "POST", "faults", match="GET *", status=status).status_code == 201
        rows = mirror.follow().values()
        assert len([row for row in rows if "question_id" in row]) == 200  # most without activity
        mirror.follow(wait=1)
        owner.make_project()
        assert len(mirror.follow()) > 200
        assert ask(owner, "POST", "reset").status_code == 200
        assert "A project" not in {row.get("name") for row in mirror.follow().values()}


def test_changes_come_in_the_order_of_commits_and_of_one_object_on_a_page_the_last(owner, project):
    after = end(owner)
    one, two = owner.make_task(project, title="One"), owner.make_task(project)
    comment = owner.make(f"/tasks/{two['id']}/comments", {"content": "C"})
    one = owner.data(owner.patch(f"/tasks/{one['id']}", {"title": "Again"}))
    seen = changes(owner, after)
    assert [change["id"] for change in seen] == [two["id"], comment["id"], one["id"]]
    assert [change["at"] for change in seen] == sorted(change["at"] for change in seen)
    at = {"kind": "task", "id": one["id"], "number": one["number"], "at": one["updated_at"]}
    assert seen[-1] == at | {"action": "created", "object": one}
    owner.delete(f"/tasks/{two['id']}")
    gone = {"kind": "task", "id": two["id"], "number": two["number"], "action": "deleted", "object": None}
    for limit in (1, 2, 3, 100):
        seen = changes(owner, after, limit=limit)
        deleted = [change for change in seen if change["id"] in (two["id"], comment["id"])]
        assert [change | gone for change in deleted] == deleted
        assert {change["id"] for change in seen} == {one["id"], two["id"]}
    assert changes(owner, end(owner)) == []


def test_a_change_of_a_blocker_is_a_change_of_the_blocked_task(owner, project):
    other = owner.make_project()
    blocker, last = owner.make_task(project), owner.make_task(other)
    blocked = owner.make_task(project, blocked_by=[blocker["number"]])
    path = f"/tasks/{blocker['id']}"
    for act, is_blocked in (
        (lambda: owner.patch(path, {"title": "Other"}), True),
        (lambda: owner.post(f"{path}/complete"), False),
        (lambda: owner.patch(path, {"status": "todo"}), True),
        (lambda: owner.delete(path), False),
    ):
        after = end(owner)
        act()
        assert [change["id"] for change in changes(owner, after)] == [blocker["id"], blocked["id"]]
        row = changes(owner, after)[-1]["object"]
        assert row == owner.read("/tasks", limit=1)["tasks"][0]
        assert bool(row["blocked_by"]) is is_blocked
    after = end(owner)
    owner.patch(f"/tasks/{blocked['id']}/details", {"blocked_by": [last["number"]]})
    assert told(owner, after) == [("task", "updated")]
    after = end(owner)
    owner.delete(f"/projects/{other['id']}?force=true")
    seen = {change["id"]: change["object"] for change in changes(owner, after)}
    assert (seen[last["id"]], seen[blocked["id"]]["blocked_by"]) == (None, [])


def test_changes_include_what_the_history_hides(owner, project, task, milestone):
    meeting = owner.make("/meetings", {"title": "A", "starts_at": "2027-01-01", "project_id": project["id"]})
    owner.make_task(project)
    claim(owner, task, 1)
    after, history = end(owner), owner.read("/activity")["activity"]
    renewed = claim(owner, task, 5)
    (change,) = changes(owner, after)
    assert (change["action"], change["object"]["claimed_until"]) == ("updated", renewed["claimed_until"])
    after = end(owner)
    placed = owner.data(owner.patch(f"/tasks/{task['id']}/details", {"before": None}))
    assert [change["object"] for change in changes(owner, after)] == [placed]
    assert owner.read("/activity")["activity"] == history
    for row in owner.read("/tasks", project_id=project["id"])["tasks"]:
        owner.delete(f"/tasks/{row['id']}")
    after = end(owner)
    owner.patch(f"/milestones/{milestone['id']}", {"title": "N"})
    assert told(owner, after) == [("project", "updated"), ("milestone", "updated")]
    after = end(owner)
    owner.delete(f"/projects/{project['id']}")
    seen = {change["kind"]: change for change in changes(owner, after)}
    assert seen["project"]["object"] is None
    assert seen["meeting"]["object"]["project_id"] is None
    assert seen["meeting"]["id"] == meeting["id"]


def test_a_restore_makes_a_cursor_gone_whose_page_has_shown_what_the_restore_undoes(launch_here):
    server = launch_here()
    owner = server.client()
    task = owner.make_task(owner.make_project())
    before = end(owner)
    owner.patch(f"/tasks/{task['id']}", {"title": "Kept"})
    kept = end(owner)
    invoke(server, "backup", server.folder / "backup.db")
    owner.patch(f"/tasks/{task['id']}", {"title": "Undone"})
    page = next(pages(owner, before, limit=1))
    assert page["changes"][0]["object"]["title"] == "Undone"
    assert invoke(server, "restore", server.folder / "backup.db").exit_code == 0
    prepare()  # as the start of a server does
    fault(owner.get("/changes", after=page["pagination"]["next_after"]), 410, "gone")
    assert changes(owner, kept) == []  # its history comes from the backup


def long_afterwards(server):
    """Start the server again as if all that was done was long ago; return its owner's client."""
    server.stop()
    server.rows("UPDATE activity SET id = '00' || substr(id, 3), key_id = NULL")
    return server.start().client()


def old(cursor):
    """This cursor, had it been given then."""
    return f"00{cursor[2:37]}00{cursor[39:]}"


def test_a_cursor_that_holds_no_longer_is_gone(launch):
    server = launch(TASKS_WORKSPACE__ACTIVITY_DAYS="30")
    owner = server.client()
    project, early = owner.make_project(), end(owner)
    for wrong in ("", "x", f"{NOBODY}", early[:-1], f"{early}_x"):
        fault(owner.get("/changes", after=wrong), 422, "validation_error", "after")
    assert "begin again" in fault(owner.get("/changes", after=f"{NOBODY}_{NOBODY}"), 410, "gone")["message"]
    owner.make_task(project)
    late = end(owner)
    owner = long_afterwards(server)
    wait_until(lambda: server.rows("SELECT COUNT(*) AS rows FROM activity") == [{"rows": 1}])
    for after in (early, late):
        fault(owner.get("/changes", after=after), 410, "gone")
    assert changes(owner, old(late)) == []  # the last activity is kept
    owner.make_task(project)
    fault(owner.get("/changes", after=old(early)), 410, "gone")
    assert told(owner, old(late)) == [("task", "created")]
    since = owner.make_project()["created_at"]
    owner.make_task(project)
    server.rows("DELETE FROM activity WHERE id < (SELECT MAX(id) FROM activity)")
    fault(owner.get("/changes", since=since), 410, "gone")


def test_a_program_begins_with_a_time_and_goes_on_with_a_cursor(owner, join):
    project = owner.make_project()
    client = join("client", project_ids=[project["id"]])
    early = owner.make_task(project)
    late = owner.make_task(project)
    for caller, since in ((owner, late["created_at"]), (client, late["created_at"])):
        page = caller.read("/changes", since=since)
        assert [change["id"] for change in page["changes"]] == [late["id"]]
        assert changes(caller, page["pagination"]["next_after"]) == []
    page = owner.read("/changes", since="9999-01-01")
    assert page == {"changes": [], "pagination": {"next_after": end(owner), "has_more": False}}
    # A client whose projects changed loads everything anew.
    owner.data(owner.patch(f"/members/{client.member['id']}", {"project_ids": None}))
    page = client.read("/changes", since=early["created_at"])
    assert page["changes"] == []
    assert changes(client, page["pagination"]["next_after"]) == []
    page = owner.read("/changes", since="1970-01-01", limit=1)  # when there was no workspace
    assert page["pagination"]["has_more"]
    fault(owner.get("/changes", since="yesterday"), 422, "validation_error", "since")


def test_changes_come_with_the_beginning_of_the_inbox(owner, join, project):
    reader = join()
    for title in ("Older", "Newer"):
        owner.make_task(project, title=title, assignee_id=reader.member["id"])
    page = reader.read("/changes", after=end(reader), include="inbox")
    assert page["inbox"] == reader.read("/inbox", limit=1)
    assert page["inbox"]["unread"] == 2
    assert "inbox" not in reader.read("/changes", limit=1)


def test_hidden_activity_is_kept_for_thirty_days(launch):
    server = launch()
    owner = server.client()
    tasks = [owner.make_task(owner.make_project()) for _ in range(2)]
    early, path = end(owner), f"/tasks/{tasks[0]['id']}/details"
    for place in ({"after": tasks[1]["number"]}, {"before": tasks[1]["number"]}, {"title": "New"}):
        owner.data(owner.patch(path, place))
    late, shown = end(owner), owner.read("/activity")["activity"]
    owner = long_afterwards(server)
    hidden = "SELECT COUNT(*) AS rows FROM activity WHERE is_hidden"
    wait_until(lambda: server.rows(hidden) == [{"rows": 1}])  # the last of it is kept
    fault(owner.get("/changes", after=old(early)), 410, "gone")
    assert changes(owner, old(late)) == []
    assert len(owner.read("/activity")["activity"]) == len(shown)
