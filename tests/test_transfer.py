"""Many tasks at once, tasks of other programs, and their files."""

import csv
import io
import json
import os
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from forks import running
from harness import NOBODY, PATIENCE, ROOT, fault, invoke, wait_until

import times
from parts import transfer
from parts.transfer import IMPORTS
from times import now

NEEDS_SOCKET = False


def batch(project, *bodies):
    return {"tasks": [{"project_id": project["id"], **body} for body in bodies]}


def test_a_batch_makes_all_of_its_tasks(owner, project):
    body = batch(project, {"title": "One"}, {"title": "Two", "priority": "high", "due_date": "2026-12-01"})
    key = {"Idempotency-Key": "batch"}
    made = owner.make("/tasks/batch", body, headers=key)["tasks"]
    assert [task["title"] for task in made] == ["One", "Two"]
    assert made[1]["number"] == made[0]["number"] + 1
    assert owner.read(f"/tasks/{made[1]['id']}")["due_date"] == "2026-12-01T23:59:59.999Z"
    again = owner.post("/tasks/batch", body, headers=key)
    assert owner.data(again, 201)["tasks"] == made
    assert again.headers["Idempotent-Replayed"] == "true"


def test_a_batch_with_a_mistake_makes_none_and_names_every_mistake(owner, project):
    wrong = batch(project, {"title": "One"}, {"title": " "}, {"title": "Three", "status": "done"})
    fault(owner.post("/tasks/batch", wrong), 422, "validation_error", "tasks[1].title", "tasks[2].status")
    wrong = batch(project, {"title": "One"}, {"title": "Two", "assignee_id": NOBODY}, {"title": "Three"})
    wrong["tasks"][2]["project_id"] = NOBODY
    answer = owner.post("/tasks/batch", wrong)
    fault(answer, 422, "validation_error", "tasks[1].assignee_id", "tasks[2].project_id")
    for body in ({}, {"tasks": []}, {"tasks": {}}, {"tasks": None}, batch(project, *[{"title": "x"}] * 101)):
        fault(owner.post("/tasks/batch", body), 422, "validation_error", "tasks")
    fault(owner.post("/tasks/batch", {"tasks": [1]}), 422, "validation_error")
    assert owner.read("/tasks", project_id=project["id"])["tasks"] == []


def test_a_task_of_another_program_is_created_once_and_changed_afterwards(owner, project):
    path = "/tasks/by-external-id/owner%2Frepo%2317"
    body = {"project_id": project["id"], "title": "Imported", "status": "review"}
    made = owner.data(owner.put(path, body), 201)
    assert (made["external_id"], made["status"], made["version"]) == ("owner/repo#17", "review", 1)
    assert owner.data(owner.put(path, body)) == made
    done = owner.data(owner.put(path, body | {"status": "done", "title": "Renamed"}))
    assert (done["id"], done["version"], done["title"]) == (made["id"], 2, "Renamed")
    found = owner.read("/tasks", external_id="owner/repo#17")["tasks"]
    assert [task["id"] for task in found] == [made["id"]]
    fault(owner.put(path, {"title": "x"}), 422, "validation_error", "project_id")
    fault(owner.put("/tasks/by-external-id/" + "x" * 256, body), 422, "validation_error", "external_id")


def test_a_sync_goes_on_after_somebody_has_moved_the_task(owner, project, milestone):
    path, elsewhere = "/tasks/by-external-id/nightly", owner.make_project()
    body = {"project_id": project["id"], "milestone_id": milestone["id"], "title": "Synced"}
    made = owner.data(owner.put(path, body), 201)
    owner.data(owner.patch(f"/tasks/{made['id']}/details", {"project_id": elsewhere["id"]}))
    again = owner.data(owner.put(path, body | {"title": "Renamed"}))
    assert (again["title"], again["project_id"]) == ("Renamed", elsewhere["id"])
    owner.data(owner.delete(f"/projects/{project['id']}"))
    assert owner.data(owner.put(path, body | {"title": "Twice"}))["project_id"] == elsewhere["id"]


def test_every_external_id_is_that_of_one_task(owner, project):
    body = {"project_id": project["id"], "title": "Imported"}
    for external_id in ("/a", "//a", "a/", "a//b", "/", "x" * 255, "é\ufffd", "a b"):
        path = f"/tasks/by-external-id/{quote(external_id, safe='')}"
        made = owner.data(owner.put(path, body), 201)
        assert made["external_id"] == external_id
        assert owner.data(owner.put(path, body)) == made
    for no_utf8 in ("%ff", "%fe", "a%c3"):
        fault(owner.put(f"/tasks/by-external-id/{no_utf8}", body), 404, "not_found")
    first, second = owner.make_task(project, external_id="A-1"), owner.make_task(project)
    fault(owner.post("/tasks", body | {"external_id": "A-1"}), 422, "validation_error", "external_id")
    path = f"/tasks/{second['id']}/details"
    fault(owner.patch(path, {"external_id": "A-1"}), 422, "validation_error", "external_id")
    assert owner.data(owner.patch(f"/tasks/{first['id']}/details", {"external_id": None}))["version"] == 2
    assert owner.data(owner.patch(path, {"external_id": "A-1"}))["external_id"] == "A-1"


def test_if_match_and_if_none_match_decide_about_a_task_of_another_program_too(owner, project):
    path, body = "/tasks/by-external-id/if-match", {"project_id": project["id"], "title": "Once"}
    for versions in ("*", '"1"'):
        fault(owner.put(path, body, headers={"If-Match": versions}), 412, "precondition_failed")
    owner.data(owner.put(path, body), 201)
    fault(owner.put(path, body | {"title": "x"}, headers={"If-Match": '"2"'}), 412, "precondition_failed")
    for title, versions in (("Twice", '"1"'), ("Thrice", "*")):
        changed = owner.data(owner.put(path, body | {"title": title}, headers={"If-Match": versions}))
        assert changed["title"] == title
    path, new = "/tasks/by-external-id/if-none-match", {"If-None-Match": "*"}
    fault(owner.put(path, body, headers={"If-None-Match": '"2"'}), 422, "validation_error", "If-None-Match")
    made = owner.data(owner.put(path, body, headers=new), 201)
    fault(owner.put(path, body | {"title": "Twice"}, headers=new), 412, "precondition_failed")
    assert owner.read(f"/tasks/{made['id']}")["version"] == 1


CSV = """\ufeffTitle,Status,Priority,Project,Assignee,Milestone,Due date,External ID,Labels,Sprint
Draft,In progress,High,Imported,owner@example.com,Launch,2026-12-01,A-1,"red, big",7
"Café, menu",Done,,Imported,gone@example.com,,,A-2,,
Third,,,Imported,kim@example.com,launch,,,,
"""


def run_import(server, folder, text, *options):
    file = folder / "tasks.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return invoke(server, "import", file, *options)


def test_an_import_is_tried_first_then_stored_and_can_be_repeated(launch_here, tmp_path):
    server = launch_here()
    owner = server.client()
    kim = {"email": "kim@example.com", "full_name": "Kim", "role": "client", "project_ids": []}
    owner.make("/members/invite", kim)
    owner.make("/members/invite", {"email": "other@example.com", "full_name": "Kim", "role": "member"})
    tried = run_import(server, tmp_path, CSV)
    assert tried.stdout.splitlines() == [
        "new: project Imported",
        "new: milestone Launch of Imported",
        "dropped: column sprint (1 task)",
        "dropped: assignee gone@example.com, who is not a member (1 task)",
        "dropped: assignee kim@example.com, a client who does not see the project (1 task)",
        "3 new, 0 changed, 0 unchanged",
    ]
    assert "Nothing is stored" in tried.stderr
    assert owner.read("/projects")["projects"] == []
    assert run_import(server, tmp_path, CSV, "--apply").stdout == tried.stdout
    tasks = owner.read("/tasks", sort="created_at")["tasks"]
    assert [task["number"] for task in tasks] == [1, 2, 3]
    draft, menu, third = tasks
    shown = (draft["status"], draft["priority"], draft["due_date"][:10])
    assert shown == ("in_progress", "high", "2026-12-01")
    assert draft["labels"] == ["red", "big"]
    assert (menu["title"], menu["status"], menu["completed_at"]) == ("Café, menu", "done", menu["created_at"])
    assert draft["milestone_id"] == third["milestone_id"]
    again = run_import(server, tmp_path, CSV.replace("Draft", "Drafted"), "--apply")
    assert again.stdout.splitlines()[-1] == "1 new, 1 changed, 1 unchanged"
    assert owner.read("/tasks/1")["title"] == "Drafted"
    two = run_import(server, tmp_path, "title,project,assignee\nWhose,Imported,Kim\n").stdout
    assert two.startswith("dropped: assignee Kim, who is not a member (1 task)")
    (tmp_path / "named.jsonl").write_text('{"kind": "project", "name": "Imported", "description": "Known"}\n')
    assert "changed: project Imported" in invoke(server, "import", tmp_path / "named.jsonl", "--apply").stdout
    assert [project["description"] for project in owner.read("/projects")["projects"]] == ["Known"]


def test_a_trial_takes_no_turn_nor_does_an_import_with_mistakes_whose_lines_it_names(launch_here, tmp_path):
    server = launch_here()
    wrong = CSV.replace("High", "Highest").replace("2026-12-01", "soon")
    wrong = wrong.replace("Third,,,Imported", "Third,,,")
    with closing(sqlite3.connect(server.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        tried = run_import(server, tmp_path, CSV)
        failed = run_import(server, tmp_path, wrong, "--apply")
    assert tried.stdout.splitlines()[-1] == "3 new, 0 changed, 0 unchanged"
    assert failed.exit_code == 1
    lines = failed.stdout.splitlines()
    assert re.match("line 2: priority: must be one of low.*due_date: must be a date", lines[0])
    assert lines[1] == "line 4: project: is required"
    assert "nothing is stored" in failed.stderr
    assert server.rows("SELECT * FROM project") == []
    chosen = run_import(server, tmp_path, "title\nx\n", "--project", "Chosen")
    assert chosen.stdout.startswith("new: project Chosen")


def test_a_trial_that_is_ended_leaves_no_copy_behind(server, tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()
    (tmp_path / "tasks.csv").write_text("title,project\n" + "x,Many\n" * 5000)
    words = ["flask", "--app", "app", "import", tmp_path / "tasks.csv"]
    with running(words, ROOT, server.environment | {"TMPDIR": str(copies)}) as process:
        wait_until(lambda: any(copies.glob("*/*")) or process.poll() is not None)
    assert process.wait(PATIENCE) in (0, 143)  # it may have been done already
    assert list(copies.iterdir()) == []


def test_an_export_in_which_no_cell_is_a_formula_comes_back_as_it_was_and_elsewhere(launch_here, tmp_path):
    """A spreadsheet would run a cell that begins like a formula."""
    server = launch_here()
    owner = server.client()
    project = owner.make_project(name="=cmd")
    texts = ["=1+1", "+x", "-x", "@x", "'=x", "''-x", "'x", "x=1"]
    for text in texts:
        owner.make_task(project, title=text, description=f"\t{text}", external_id=text)
    exported = server.flask("export").stdout
    assert exported[0] == "\ufeff"
    (names, *rows) = csv.reader(io.StringIO(exported[1:]))
    assert not [cell for row in rows for cell in row if cell[:1] in tuple("=+-@\t\r")]
    assert "'=1+1" in rows[0]
    assert [row[names.index("number")] for row in rows] == [str(n + 1) for n in range(len(texts))]
    assert [line["title"] for line in export_lines(server) if line["kind"] == "task"] == texts
    for one, new in ((server, 0), (launch_here(folder=tmp_path / "other"), len(texts))):
        done = run_import(one, tmp_path, exported, "--apply").stdout.splitlines()[-1]
        assert done == f"{new} new, 0 changed, {len(texts) - new} unchanged"


def test_a_file_that_is_no_proper_csv_is_refused_in_a_line(server, tmp_path):
    named = '--column "Their name=title" says which column it is; accepted columns: title,'
    for text, said in (
        ("Name\nx\n", f"line 1: column title is missing; {named} description"),
        ("title,Due date,due_date\nx,,\n", "line 1: several columns due_date"),
        ("title,description\nx,y\n\nFix it,now, please\n", "line 4: has more cells than line 1"),
        ('title,status\n"a\nb",todo,x\n', "line 2: has more cells than line 1"),
        ('title\nx\n"y\n', "line 3: unexpected end of data"),
        (b"title\ncaf\x81\n", "the file is not in UTF-8; save it as such"),
        ('{"title": "x"\n', "line 1: must be one JSON object in one line (the body is not JSON"),
        ("[1]", "line 1: must be one JSON object in one line (the body must be a JSON object); for"),
        ("", "line 1: column title is missing"),
    ):
        failed = run_import(server, tmp_path, text, "--project", "Of nothing")
        assert failed.exit_code == 1
        assert failed.stderr.startswith(f"Error: {said}"), text[:60]


def test_dates_are_such_for_a_spreadsheet_and_come_back_from_it_as_do_texts(launch_here, tmp_path):
    server = launch_here(TASKS_WORKSPACE__TIMEZONE="Europe/Berlin")
    owner = server.client()
    dues = {"2027-03-01": "2027-03-01", "2027-03-01T13:00:00Z": "2027-03-01 14:00"}
    dues |= {time: time for time in ("2027-02-28T23:00:00.000Z", "2027-03-01T13:00:05.000Z")}
    project = owner.make_project()
    for due in dues:
        dates = {"due_date": due, "start_date": "2027-02-01"}
        owner.make_task(project, title="T", description=" x\r\n\r\ny\n", **dates)
    assert server.flask("export", str(tmp_path / "exported.csv")).returncode == 0
    raw = (tmp_path / "exported.csv").read_bytes()
    done = run_import(server, tmp_path, raw + b",,,,,\r\n", "--apply").stdout
    assert done == "0 new, 0 changed, 4 unchanged\n"
    exported = raw.decode()
    rows = [*csv.DictReader(io.StringIO(exported.removeprefix("\ufeff")))]
    assert [(row["start_date"], row["due_date"]) for row in rows] == [
        ("2027-02-01", due) for due in dues.values()
    ]
    german = re.sub(r"(\d{4})-(\d\d)-(\d\d)(?=[; ])", r"\3.\2.\1", exported.replace(",", ";"))
    assert "01.03.2027 14:00" in german
    done = run_import(server, tmp_path, german.encode("cp1252", "ignore"), "--apply").stdout
    assert done == "0 new, 0 changed, 4 unchanged\n"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Havana", "Asia/Beirut", "Africa/Cairo"])
def test_a_date_in_csv_means_the_same_time_whatever_the_clocks_do(monkeypatch, zone):
    monkeypatch.setattr(times, "zone", ZoneInfo(zone))
    days = (*range(70, 118), *range(298, 314))  # in which clocks change
    minutes = [datetime(2027, 1, 1, tzinfo=UTC) + timedelta(day, 1800 * n) for day in days for n in range(48)]
    for name, ends_day in (("start_date", False), ("due_date", True)):
        field, shown = IMPORTS["task"].fields[name], set()
        for moment in (*minutes, *(minute - timedelta(milliseconds=1) for minute in minutes)):
            time = times.instant(moment)
            text = transfer.spreadsheet_time(time, ends_day)
            assert field.deserialize(transfer.Dates(None, tuple).read(text, name)) == time
            shown.add(len(text))
        assert {10, 16} <= shown
    assert transfer.spreadsheet_time("9999-12-31T23:59:59.999Z", True) == "9999-12-31T23:59:59.999Z"
    assert transfer.spreadsheet_time("1970-01-01T00:00:00.000Z", False) == "1970-01-01T00:00:00.000Z"


def test_a_name_that_several_have_is_refused_unless_one_is_active(launch_here, tmp_path):
    server = launch_here()
    owner = server.client()
    old, new = (owner.make_project(name=name) for name in ("Website", "WEBSITE"))
    text = "title,project,milestone\nx,website,\n"
    assert "line 2: project: is the name of 2; rename" in run_import(server, tmp_path, text).stdout
    owner.data(owner.patch(f"/projects/{old['id']}", {"status": "archived"}))
    assert run_import(server, tmp_path, text, "--apply").exit_code == 0
    assert owner.read("/tasks")["tasks"][0]["project_id"] == new["id"]
    for _ in range(2):
        owner.make(f"/projects/{new['id']}/milestones", {"title": "Launch"})
    text = text.replace("website,", "website,launch")
    assert "line 2: milestone: is the name of 2; rename" in run_import(server, tmp_path, text).stdout


@pytest.fixture
def moved(launch_here, tmp_path):
    """A workspace with everything that an export has, another one of the same people, and the export."""
    server, other = launch_here(folder=tmp_path / "from"), launch_here(folder=tmp_path / "to")
    owner = server.client()
    for one in (other, server):
        key = invoke(one, "member", "add", "Ana Lima", "--email", "ana@example.com").stdout.strip()
    ana = server.client(key)
    project = owner.make_project(name="Website", description="All of it")
    milestone = {"title": "Launch", "due_date": "2026-12-15", "description": "Soon"}
    milestone = owner.make(f"/projects/{project['id']}/milestones", milestone)
    owner.make_task(project, title="Deleted")
    owner.data(owner.delete("/tasks/1"))
    owner.data(owner.patch(f"/milestones/{milestone['id']}", {"closed": True}))
    details = {"milestone_id": milestone["id"], "metadata": {"estimate": 3}, "labels": ["Red", "a, b"]}
    first = ana.make_task(project, title="First", description="=1+1", priority="high", **details)
    second = owner.make_task(project, title="Second", blocked_by=[first["id"]], external_id="A-1")
    owner.make(f"/tasks/{first['id']}/comments", {"content": "For @Ana Lima"})
    ana.make(f"/tasks/{first['id']}/comments", {"content": "Yes"})
    ana.data(ana.post(f"/tasks/{first['id']}/complete"))
    file = {"file": ("menu.pdf", b"\0bytes", "application/pdf")}
    ana.data(ana.request("POST", f"/tasks/{second['id']}/attachments", files=file), 201)
    old = owner.make_project(name="WEBSITE")
    owner.make_task(old, title="Third", blocked_by=[second["id"], first["id"]])
    owner.data(owner.patch("/tasks/4/details", {"before": 2}))
    owner.data(owner.patch(f"/projects/{old['id']}", {"status": "archived"}))
    return server, other, export_lines(server, tmp_path / "files")


def export_lines(server, *files):
    done = invoke(server, "export", "--format", "jsonl", *(["--files", *files] if files else []))
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [{name: line[name] for name in line.keys() - {"version", "updated_at"}} for line in lines]


def import_lines(server, folder, lines, *options):
    return run_import(server, folder, "".join(f"{json.dumps(line)}\n" for line in lines), *options)


def test_json_lines_make_the_same_workspace_elsewhere_once(moved, tmp_path):
    server, other, lines = moved
    files = ("--files", str(tmp_path / "files"))
    first = import_lines(other, tmp_path, lines, *files, "--apply")
    said = ["new: project Website", "new: project WEBSITE", "new: milestone Launch of Website"]
    assert first.stdout.splitlines() == [*said, "3 new, 0 changed, 0 unchanged"]
    assert export_lines(other, tmp_path / "again") == lines
    assert [line["number"] for line in lines if line["kind"] == "task"] == [2, 3, 4]
    assert lines[-1]["blocked_by"] == [2, 3]
    assert (lines[3]["project"], lines[3]["metadata"]) == ("Website", {"estimate": 3})
    (file,) = (tmp_path / "again").iterdir()
    assert file.read_bytes() == b"\0bytes"
    owner = other.client()
    assert owner.read("/inbox")["notices"] == []
    assert owner.make_task(owner.make_project())["number"] == 5
    for form in ("jsonl", "csv"):
        exported = server.flask("export", "--format", form).stdout
        for one in (server, other):
            assert run_import(one, tmp_path, exported, "--apply").stdout == "0 new, 0 changed, 3 unchanged\n"


def test_an_import_changes_only_what_differs_and_adds_what_is_missing(moved, tmp_path):
    server, _, lines = moved
    refused = import_lines(server, tmp_path, lines, "--as", "ana@example.com")
    assert "requires the role admin or owner" in refused.stderr
    owner = server.client()
    owner.data(owner.patch("/tasks/3/details", {"title": "Renamed", "blocked_by": []}))
    owner.data(owner.delete("/tasks/4"))
    (project, _, milestone, first, *_) = lines
    owner.data(owner.patch(f"/milestones/{milestone['id']}", {"due_date": None}))
    (comment, _) = owner.read("/tasks/2/comments")["comments"]
    owner.data(owner.delete(f"/tasks/{first['id']}/comments/{comment['id']}"))
    owner.data(owner.patch(f"/projects/{lines[1]['id']}", {"status": "active"}))
    project["description"] = None
    done = import_lines(server, tmp_path, lines, "--files", str(tmp_path / "files"), "--apply")
    said = ["changed: project Website", "changed: milestone Launch", "1 new, 2 changed, 0 unchanged"]
    assert done.stdout.splitlines() == said
    assert export_lines(server) == lines
    done = run_import(server, tmp_path, 'Number,Title,Labels\n2,First,\n3,Second,"red, new"\n', "--apply")
    assert done.stdout == "0 new, 1 changed, 1 unchanged\n", done.stdout


def test_an_import_reports_what_it_drops(moved, tmp_path):
    _, other, lines = moved
    owner = other.client()
    for number in (1, 2):
        owner.make_task(owner.make_project(name=f"Other {number}"))
    (ana,) = (row for row in owner.read("/members")["members"] if row["full_name"] == "Ana Lima")
    owner.data(owner.delete(f"/members/{ana['id']}"))
    done = import_lines(other, tmp_path, lines, "--apply")
    assert done.stdout.splitlines()[3:] == [
        "dropped: creator ana@example.com, who is not a member (1 task)",
        "dropped: number, which another task has (3 tasks)",
        "dropped: author ana@example.com, who is not a member (1 task)",
        "dropped: attachment, which needs --files (1 task)",
        "3 new, 0 changed, 0 unchanged",
    ]
    tasks = {task["title"]: task for task in owner.read("/tasks")["tasks"]}
    assert len({task["rank"] for task in tasks.values()}) == len(tasks)
    assert [tasks[title]["number"] for title in ("First", "Second", "Third")] == [3, 4, 5]
    assert [blocker["number"] for blocker in tasks["Third"]["blocked_by"]] == [4]
    (_, comment) = owner.read("/tasks/3/comments")["comments"]
    assert comment["content"] == "ana@example.com wrote:\n\nYes"
    done = import_lines(other, tmp_path, lines, "--files", str(tmp_path / "none"))
    assert done.stdout.splitlines()[0].startswith(f"line 5: attachments: {tmp_path}/none/")
    (file,) = (tmp_path / "files").iterdir()
    for replace in (lambda: file.symlink_to("/etc/hosts"), lambda: os.mkfifo(file)):
        file.unlink()
        replace()
        done = import_lines(other, tmp_path, lines, "--files", str(tmp_path / "files"), "--apply")
        assert done.stdout.splitlines()[0].startswith(f"line 5: attachments: {file}: ")


SOON = now(600)
LATE = {"content": "Soon", "edited_at": SOON}


def test_a_wrong_field_is_named_with_its_line(server, tmp_path):
    for line, said in (
        *(({"kind": kind}, "kind: must be one of project, milestone, task") for kind in ("member", ["task"])),
        ({"title": 1}, "title: must be a string"),
        ({"title": "x", "number": "1"}, "number: must be a whole number from 1"),
        ({"title": "x", "id": "1", "project": 5}, "id: must be a UUID; project: must be a string"),
        ({"title": "x", "rank": "9999999999"}, "rank: must be digits as an export has them"),
        ({"title": "x", "comments": {}}, "comments: must be a list of comments"),
        ({"title": "x", "comments": ["x"]}, "comments.0: must be an object"),
        ({"title": "x", "comments": [{"text": ""}]}, "comments.0.content: is required"),
        ({"title": "x", "attachments": [{"id": "../x"}]}, "attachments.0.id: must be a UUID"),
        ({"title": "x", "created_at": None}, "created_at: must not be null"),
        ({"title": "x", "completed_at": SOON}, "completed_at: must not be in the future"),
        ({"title": "x", "comments": [LATE]}, "comments.0.edited_at: must not be in the future"),
        ({"kind": "milestone", "title": "x", "closed_at": SOON}, "closed_at: must not be in the future"),
        ({"title": "x", "blocked_by": [99999]}, "blocked_by.0: no such task"),
        ({"title": "x", "blocked_by": ["x"]}, "blocked_by.0: must be a task's number or id"),
        ({"kind": "project", "title": "x"}, "name: is required"),
        ({"kind": "project", "name": "x", "status": "old", "owner": None}, "status: must be one of active"),
        ({"kind": "milestone", "title": "x", "project": None}, "project: is required"),
    ):
        named = {"title": "Right", "project": "Of nothing"}
        done = import_lines(server, tmp_path, [named, line if "kind" in line else named | line], "--apply")
        assert done.stderr == "Error: nothing is stored\n"
        (problem,) = (row for row in done.stdout.splitlines() if row.startswith("line"))
        assert problem.startswith(f"line 2: {said}")
        assert server.rows("SELECT * FROM project WHERE name = 'Of nothing'") == []
