"""Importing what other programs export.

The files in `exports/` are as the programs write them, in words of our own. The expected result of each is in
`exports/right/`: the options of the import, what it says, and of the tasks the fields that are not empty.
"""

import json
import re
import shlex
import shutil
from datetime import UTC, datetime
from functools import partial
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from harness import ROOT, Server, invoke

import database
import schemas
from parts import formats, transfer
from parts.transfer import IMPORTS

EXPORTS = ROOT / "tests" / "exports"
KEPT = {"title", "description", "status", "priority", "project", "milestone", "assignee", "creator", "labels"}
KEPT |= {"start_date", "due_date", "completed_at", "number", "blocked_by"}
OFTEN = {"status": "todo", "priority": "medium", "creator": "owner@example.com", "project": "Home"}
HEAD = (
    "TYPE,CONTENT,DESCRIPTION,IS_COLLAPSED,PRIORITY,INDENT,AUTHOR,RESPONSIBLE,DATE,DATE_LANG,TIMEZONE,"
    "DURATION,DURATION_UNIT,DEADLINE,DEADLINE_LANG\n"
)
CARD = {"id": "a", "name": "A", "closed": False, "desc": "", "labels": [], "due": None, "idList": "1"}
NO_TASKS = "it has no tasks as trello exports them"
ISSUE = {"number": 1, "title": "One", "state": "OPEN"}
BOARD = {"name": "Home", "lists": [{"id": "1", "name": "To Do"}]}


class Workspace(Server):
    """A database with three members, which is only used by commands."""

    def take(self, export, *options, project="Home"):
        """Import an export, which is a file, its text or JSON; returns all that was said."""
        file = self.folder / "export"
        text = export.read_text() if hasattr(export, "read_text") else export
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        return invoke(self, "import", file, "--project", project, "--apply", *options).output.splitlines()

    def rows(self, kind="task"):
        lines = invoke(self, "export", "--format", "jsonl").stdout.splitlines()
        return [row for row in map(json.loads, lines) if row["kind"] == kind]

    def tasks(self):
        return {row["title"]: row for row in self.rows()}

    def comments(self, title="A"):
        ordered = sorted(self.tasks()[title]["comments"], key=lambda comment: comment["id"])
        return [comment["content"] for comment in ordered]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("template"))
    assert invoke(workspace, "init").exit_code == 0
    for name, email in (("Ana Lima", "ana@example.com"), ("Ben", "ben@example.com")):
        invoke(workspace, "member", "add", name, "--email", email)
    return workspace.folder


@pytest.fixture
def workspace(tmp_path, template):
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Workspace(tmp_path)


def shown(row):
    """The fields of a task that say something, in few words."""
    task = {name: value for name, value in row.items() if name in KEPT and value and OFTEN.get(name) != value}
    comments = sorted(row["comments"], key=lambda comment: comment["id"])
    texts = [[one["author"], one["content"]] for one in comments]
    times = [[one["created_at"]] * (one["created_at"] != row["created_at"]) for one in comments]
    return task | {"comments": [" | ".join(time + text) for time, text in zip(times, texts, strict=True)]}


def places(workspace):
    """The projects and milestones with what a file has said of them."""
    rows = [row for kind in ("project", "milestone") for row in workspace.rows(kind)]
    names = {"name", "title", "description", "due_date", "closed_at", "status"}
    return [{name: row[name] for name in row if name in names and row[name]} for row in rows]


@pytest.mark.parametrize("name", sorted(file.name for file in (EXPORTS / "right").iterdir()))
def test_a_file_as_the_program_writes_it_is_imported_once(workspace, name):
    right = json.loads((EXPORTS / "right" / name).read_text())
    file = EXPORTS / name.removesuffix(".right.json")
    words = ("--from", re.match(r"\w+", file.name)[0], *right["options"])
    assert invoke(workspace, "import", file, "--project", "Home", *words).stdout.splitlines() == right["said"]
    assert workspace.take(file, *words) == [*right["said"], "Stored."]
    assert [shown(row) for row in workspace.rows()] == right["tasks"]
    assert places(workspace) == right["places"]
    assert workspace.take(file, *words)[-2] == f"0 new, 0 changed, {len(right['tasks'])} unchanged"


def test_encoding_and_delimiter_are_recognised_and_left_out_columns_named_in_order(server, tmp_path):
    for encoding, delimiter in product(("utf-8-sig", "utf-16", "cp1252"), ";\t"):
        text = "Title,Status,Priority\nCafé,TO DO,High\n".replace(",", delimiter)
        (tmp_path / "tasks.csv").write_bytes(text.encode(encoding))
        options = ("--project", "Website", "--status", "Doing=done")
        said = invoke(server, "import", tmp_path / "tasks.csv", *options).stdout
        assert said == "new: project Website\n1 new, 0 changed, 0 unchanged\n", (encoding, delimiter)
    names = ["z", "one", "b", "two", "a", "three", "c"]
    for options, columns in (([], "title,project"), (["--from", "jira"], "Summary,Issue key")):
        (tmp_path / "x.csv").write_text(f"{columns},{','.join(names)}\nA,K-1{',x' * len(names)}\n")
        said = invoke(server, "import", tmp_path / "x.csv", *options).stdout
        assert re.findall(r"dropped: column (\w+)", said) == names


def test_a_file_that_is_no_export_and_a_status_that_does_not_exist_are_refused(server, tmp_path):
    for program, text, said in (
        ("trello", "{", "the file is not JSON: Expecting property name"),
        ("trello", "[]", f"{NO_TASKS}; see docs/moving.md (looked for cards, idList"),
        ("trello", '{"cards": [1, null, "x"]}', NO_TASKS),
        ("jira", "Title,Key\nx,1\n", "it has no tasks as jira exports them"),
        ("jira", "Summary,Issue key\nA,K-1\nB,K-2,x\n", "line 3: has more cells than line 1"),
        ("todoist", 'TYPE,CONTENT\ntask,"x\n', "line 2: unexpected end of data"),
        ("github", b"\x81", "the file is not in UTF-8; save it as such"),
        ("planka", '{"cards": ' + "[" * 2000, "the file is nested too deeply"),
        ("planka", "", "it has no tasks as planka exports them"),
        ("vikunja", "[1]", "it has no tasks as vikunja exports them"),
        ("github", "title,state\nA,open\n", "it has no tasks as github exports them"),
        ("github", '[{"number":1,"assignees":5,"milestone":5}]', "it has no tasks as github exports them"),
    ):
        file = tmp_path / "export"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        failed = invoke(server, "import", "--from", program, file)
        assert failed.stderr.startswith(f"Error: {said}")
        assert (failed.stderr.count("\n"), failed.exit_code) == (1, 1)
    options = {"priority": "low, medium, high, urgent", "status": "todo, in_progress, review, done"}
    words = ("import", "--from", "trello", EXPORTS / "trello.json")
    for pair, option in product(("Doing", "=done", "Doing=started"), options):
        said = invoke(server, *words, f"--{option}", pair).stderr
        assert f"must be NAME={option.upper()} with one of {options[option]}" in said


def test_todoist_tasks_are_the_same_by_their_words_and_project_or_the_id_that_version_1_2_gave(workspace):
    for project, priority in (("Home", 4), ("Office", 1)):
        text = f"{HEAD}task,Call the plumber,,,{priority},1,,,,,,,,,\n"
        assert workspace.take(text, "--from", "todoist", project=project)[-2].startswith("1 new, 0 changed")
    found = [(row["project"], row["priority"]) for row in workspace.rows()]
    assert found == [("Home", "low"), ("Office", "urgent")]
    old = {"title": "Call", "project": "Home", "external_id": f"todoist:{database.digest('Call 1')[:16]}"}
    workspace.take(json.dumps(old) + "\n")
    for project, said in (("Office", "1 new, 0 changed"), ("Home", "0 new, 1 changed")):
        text = HEAD + "task,Call,,,4,1,,,,,,,,,\n"
        assert workspace.take(text, "--from", "todoist", project=project)[-2].startswith(said)


def board(**card):
    return BOARD | {"cards": [CARD | card]}


def test_a_later_export_clears_what_is_empty_there_and_opens_what_is_open(workspace):
    due = "2026-12-01T10:00:00.000Z"
    full = {"due": due, "desc": "Old", "labels": [{"name": "Big"}], "closed": True, "start": due}
    workspace.take(board(**full), "--from", "trello")
    workspace.take('{"title": "A", "external_id": "trello:a", "priority": "high", "milestone": "M"}\n')
    again = board(desc="", labels=[], idList="?", start=None)
    assert workspace.take(again, "--from", "trello")[-2] == "0 new, 1 changed, 0 unchanged"
    (row,) = map(shown, workspace.rows())
    assert row == {"number": 1, "title": "A", "priority": "high", "milestone": "M", "comments": []}
    doing = ("--from", "trello", "--status", "To Do=in_progress")
    workspace.take(board(), *doing)
    del (kept := board(idList="?"))["cards"][0]["desc"]
    workspace.take('{"title": "A", "external_id": "trello:a", "description": "Mine"}\n')
    workspace.take(kept, *doing)
    assert (workspace.rows()[0]["status"], workspace.rows()[0]["description"]) == ("in_progress", "Mine")


def test_a_start_or_a_rule_of_here_does_not_stop_a_later_export(workspace):
    own = '{"title": "A", "external_id": "trello:a", "start_date": "2031-01-15", "repeat": "FREQ=DAILY"}\n'
    dues = ("2031-02-01T10:00:00.000Z", "2031-01-10T10:00:00.000Z", None)
    for due, name in zip(dues, ("", "start_date", "repeat"), strict=True):
        said = workspace.take(board(due=due), "--from", "trello")
        assert not name or f"dropped: {name} that does not fit the due date (1 task)" in said
        assert name or "0 new, 1 changed, 0 unchanged" in workspace.take(own)
    assert not {workspace.tasks()["A"][name] for name in ("start_date", "due_date", "repeat")} - {None}


def test_edited_comments_change_and_those_of_one_time_keep_their_order(workspace):
    def take(*texts):
        cells = ",".join(f"05/Mar/26 3:04 PM;Ana Lima;{text}" for text in texts)
        text = f"Summary,Issue key{',Comment' * len(texts)}\nA,K-1,{cells}\n"
        return workspace.take(text, "--from", "jira")

    for texts in (["Open?", "Yes", "Yes"], ["Open?", "Yes!", "Yes", "Bye"]):
        take(*texts)
        assert workspace.comments() == texts
    take(*texts[:3])  # what was deleted there stays here
    assert workspace.comments() == texts
    assert take(*texts)[-2] == "0 new, 0 changed, 1 unchanged"
    first = min(workspace.rows()[0]["comments"], key=lambda comment: comment["id"])
    row = {"title": "A", "number": 1, "comments": [first | {"content": "Shut?"}]}
    workspace.take(json.dumps(row) + "\n")
    assert workspace.comments()[0] == "Shut?"
    # A comment gets its author when the person has become a member.
    text = "Summary,Issue key,Comment\nB,K-2,05/Mar/26 3:04 PM;Cleo;Fine\n"
    workspace.take(text, "--from", "jira")
    assert workspace.comments("B") == ["Cleo wrote:\n\nFine"]
    invoke(workspace, "member", "add", "Cleo", "--email", "cleo@example.com")
    workspace.take(text, "--from", "jira")
    (comment,) = workspace.tasks()["B"]["comments"]
    assert (comment["author"], comment["content"]) == ("cleo@example.com", "Fine")


def test_numbers_in_texts_lead_to_the_same_tasks_or_nowhere(workspace):
    """The page makes `#1` a link to the task with this number; issues 1 and 2 get others here."""
    workspace.take("title\nFirst here\nSecond here\n")
    issue = ISSUE | {"body": "#1 #3 #9 \\#3 a#3 `#1`"}
    issues = [issue | {"number": n, "url": f"u/{n}", "title": f"Issue {n}"} for n in (1, 2, 3, 4)]
    for _ in range(2):
        said = workspace.take(issues, "--from", "github")
    assert said[-2] == "0 new, 0 changed, 4 unchanged"
    found = {row["title"]: row["number"] for row in workspace.rows()}
    assert (found["Issue 3"], found["Issue 4"]) == (3, 4)
    assert workspace.rows()[-1]["description"] == "\\#1 #3 \\#9 \\#3 a#3 `#1`"


def test_dates_are_read_as_people_and_programs_write_them():
    days = dict.fromkeys(("Oct 5 2026", "5 Oct 2026", "5. Okt. 2026"), "2026-10-05")
    days |= dict.fromkeys(("31.12.2026", "12/31/2026"), "2026-12-31")
    days |= dict.fromkeys(("2026-10-05 at 10:00", "2026-10-05T10:00:00.5"), "2026-10-05T10:00:00+00:00")
    days |= {"Oct 9 2026 10:00": "2026-10-09T10:00:00+00:00"}
    days |= {"2026-10-05T10:00-0700": "2026-10-05T10:00-0700"}
    days |= {"05/Mar/26 15:04": "2026-03-05T15:04:00+00:00", "6/21/2025 16:14": "2025-06-21T16:14:00+00:00"}
    days |= {"05/Mar/26 12:04\u202fAM": "2026-03-05T00:04:00+00:00"}
    zones = ("Thu Mar 05 2026 15:04:00 GMT+0100 (CET)", "Thu, 5 Mar 2026 15:04 +0100", "2026-03-05 14:04Z")
    days |= dict.fromkeys((*zones, "2026-03-05 14:04:00 UTC"), "2026-03-05T14:04:00+00:00")
    days |= {"Wed Mar 04 2026 23:00:00 GMT-0100 (GMT-01:00)": "2026-03-05"}
    days |= {"11/abr/26 8:56 AM": "2026-04-11T08:56:00+00:00"}
    days |= {"19/lip/23 11:43 AM": "2023-07-19T11:43:00+00:00"}
    no_days = ("1969-12-31T10:00", "17 Aug", "every Monday", "12.31.2026", "1/1/1", "99/99/99", "", "5")
    no_days += ("31.12.1969", "31.12.9999 23:00 -0200", "Mar 5 2026 10:00 +9900")
    for said, day in (days | dict.fromkeys(no_days)).items():
        assert transfer.Dates(None, partial(iter, [said])).read(said, "due_date") == day, said


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%S", "%d/%b/%y %H:%M"])
def test_a_time_without_a_zone_is_of_the_workspace_and_must_not_be_in_the_future(workspace, form):
    time = datetime.now(ZoneInfo("Asia/Tokyo"))
    text = f"title,external_id,created_at,completed_at\nA,1,{time:{form}},{time:{form}}\n"
    problem = "must not be in the future; check its time zone"
    refused = workspace.take(text)
    assert refused[0] == f"line 2: created_at: {problem}; completed_at: {problem}"
    assert workspace.rows() == []
    workspace.environment["TASKS_WORKSPACE__TIMEZONE"] = "Asia/Tokyo"
    for said in ("1 new, 0 changed, 0 unchanged", "0 new, 0 changed, 1 unchanged"):
        assert said in workspace.take(text)
    (row,) = workspace.rows()
    assert f"{time.astimezone(UTC):%Y-%m-%dT%H:%M}" == row["created_at"][:16] == row["completed_at"][:16]


def test_an_order_of_dates_is_that_of_the_whole_file_or_said(workspace):
    text = "title,due_date\nA,03/04/2026\n"
    said = 'Error: line 2: due_date: "03/04/2026" may begin with the day or the month; add'
    assert workspace.take(text)[0].startswith(said)
    for rows, options, due in (
        ("", ["--dates", "dmy"], "2026-04-03"),
        ("B,12/31/2026\n", [], "2026-03-04"),
        ("B,31/12/2026\n", [], "2026-04-03"),
    ):
        workspace.take(f"{text}{rows}", *options, project=due + rows[2:4])
        assert workspace.tasks()["A"]["due_date"].startswith(due)
    assert "may begin" in workspace.take(f"{text}B,31/12/2026\nC,12/31/2026\n")[0]
    (problem, *_) = workspace.take("title,due_date\nA,31/12/2026\n", "--dates", "mdy")
    assert problem.startswith("line 2: due_date: must be")


def test_a_file_that_is_not_understood_is_refused_and_says_what_to_do(workspace):
    tags, german = "Title,Task  Name,Tags\nNo,A,red;big\n", "Zusammenfassung;Schlüssel;Status\nB;K-1;Fertig\n"
    same = "external_id: is the same as in"
    looks_like_trello = "it looks like an export of trello: add --from trello"
    for options, text, said in (
        ("--from jira", "Resumen,Clave de incidencia\nA,K-1\n", "the program to English and export again"),
        ("--from jira", "Resumen,Clave\nA,K-1\n", "or Summary, Work item key; found Resumen, Clave;"),
        ("", "Summary,Issue key\nA,K-1\n", "found: summary, issue_key; it looks like an export of jira"),
        ("--from trello", "Summary,Work item key\nA,K-1\n", "add --from jira"),
        ("", "<" * 9999, "found: <<<"),
        ("--from github", [[[ISSUE | {"body": "x" * 9999}]]], "it has no tasks as github exports them"),
        ("", EXPORTS / "trello.json", looks_like_trello),
        ("", board(), looks_like_trello),
        ("", EXPORTS / "gitlab.csv", "left out; it looks like an export of gitlab: add --from gitlab"),
        ("", EXPORTS / "linear.csv", "left out; it looks like an export of linear: add --from linear"),
        ("", "title,status\nA,Later\n", '--status "Their word=in_progress" says what another word means'),
        ("", "title,priority\nA,P1\n", '--priority "Their word=medium" says what another word means'),
        # Two rows with one id:
        ("--from github", [ISSUE, ISSUE | {"body": "x"}], f"task 2 (id Home#1): {same} task 1 (id Home#1)"),
        ("--from jira", "Summary,Work item key\nA,K-1\nB,K-1\n", f"line 3: {same} line 2"),
        ("", "title,external id\nA,1\nB,1\n", f"line 3: {same} line 2"),
        # A column that is named wrongly:
        ("--column Tag=labels", tags, 'the file has no "Tag"; found: title, task__name, tags'),
        ("--column Tags=label", tags, '"label" is not one of the columns title, description,'),
        ("--column Status=todo", german, '"todo" is not one of the columns title'),
        *((f"--column {pair}", tags, f'"{pair}" must be NAME=COLUMN') for pair in ("Tags", "Tags=")),
        ("--column Tags=labels", '{"title": "x"}', "--column is for CSV"),
    ):
        told = workspace.take(text, *options.split())
        assert said in "\n".join(told)
        assert told[-1].startswith("Error: ")
        assert len("\n".join(told)) < 1000
    assert workspace.rows() == []


def test_a_spreadsheet_of_its_own_says_what_it_is_and_control_characters_are_escaped(workspace):
    said = workspace.take("sep=;\nTitle;;Status;Completed at\nA;a note;;2026-09-10\nB;;To do;2026-09-10\n")
    assert said[1:3] == [
        "dropped: column 2, which has no name (1 task)",
        "dropped: completed_at of a task that is not done (1 task)",
    ]
    tasks = workspace.tasks()
    assert (tasks["A"]["status"], tasks["A"]["completed_at"][:10]) == ("done", "2026-09-10")
    assert (tasks["B"]["status"], tasks["B"]["completed_at"]) == ("todo", None)
    evil = "\x1b]0;owned\x07"
    said = workspace.take(board() | {"lists": [{"id": "1", "name": evil}]}, "--from", "trello")
    assert 'dropped: status "\\x1b]0;owned\\x07", kept as a label (1 task)' in said
    assert workspace.tasks()["A"]["labels"] == ["]0;owned"]
    said = workspace.take(f"Summary{evil},Key\nA,1\n", "--from", "jira")
    assert evil not in "".join(said)
    assert "Summary\\x1b]0" in said[0]


def test_an_attachment_is_at_most_as_large_as_the_api_takes_it(workspace):
    file = {"id": "019abf3e-5d7b-7c1e-9f1a-3d2b8f0c6a55", "filename": "x", "content_type": "text/plain"}
    (workspace.folder / file["id"]).write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    text = json.dumps({"title": "A", "attachments": [file]}) + "\n"
    (problem, *_) = workspace.take(text, "--files", workspace.folder)
    assert problem.endswith("has 10485761 bytes; at most 10485760 are allowed")


def test_the_markup_of_jira_is_markdown():
    for markup, markdown in (
        ("# a\n## b\n* c\n** d\n- e", "1. a\n   1. b\n- c\n   - d\n- e"),
        ("*b* _i_ -s- +u+ {{m}} ??c?? {*}x{*}", "**b** _i_ ~~s~~ u `m` *c* **x**"),
        ("[t|http://x.org/a|smart-link]", "[t](http://x.org/a)"),
        ("[http://x.org/a|http://x.org/a|smart-link]", "[http://x.org/a](http://x.org/a)"),
        ("[http://x.org/a_b-c-d]", "<http://x.org/a_b-c-d>"),
        ("h1. A\nh6. B\nbq. c\n{quote}d\ne{quote}", "# A\n#### B\n> c\n> d\n> e"),
        ("||a||b||\n|1|2|", "| a | b |\n| --- | --- |\n|1|2|"),
        ("{noformat}*a* {x}{noformat}", "```\n*a* {x}\n```"),
        ("!a.png|thumbnail! [^b.pdf] {color:red}c{color} wow! no!", "(a.png) b.pdf c wow! no!"),
        ("[~accountid:712020:a] [~joe]", "@Ana Lima @joe"),
        ("2*3*4, a-b-c, -1 to -2, snake_case", "2*3*4, a-b-c, -1 to -2, snake_case"),
    ):
        assert formats.markdown_of_jira(markup, {"712020:a": "Ana Lima"}) == markdown


def test_a_start_date_of_jira_a_file_of_todoist_and_lists_of_github_s_pages_are_read(workspace):
    head = "Summary,Issue key,Status,Custom field (Start date)\n"
    workspace.take(f"{head}A,K-1,To Do,12/Mar/26\n", "--from", "jira")
    assert workspace.tasks()["A"]["start_date"][:10] == "2026-03-12"
    file = '{""file_name"":""a.png"",""file_url"":""https://example.com/a"",""tn_s"":[""x"",1]}'
    rows = f'task,B,,,,1\ntask,C,,,,2\nnote,"See [[file {file}]] and [[file {{}}]]",,,,\n'
    said = workspace.take(HEAD + rows, "--from", "todoist")
    assert workspace.comments("C")[0].endswith("See [a.png](https://example.com/a) and [[file {}]]")
    assert [line for line in said if "place" in line or "INDENT" in line] == [
        "dropped: place below another task (1 task)"
    ]
    pages = [[ISSUE], [ISSUE | {"number": 2, "title": "Two"}]]
    assert "2 new, 0 changed, 0 unchanged" in workspace.take(pages, "--from", "github")


def test_a_card_without_a_visible_name_and_signs_in_the_names_of_lists_stop_nothing(workspace):
    lists = [{"id": "1", "name": "DOING \u2699\ufe0f"}, {"id": "2", "name": "\U0001f64c"}]
    cards = [CARD | {"id": id, "name": name} for id, name in (("a", "\u200e"), ("b", "B\u0007b"))]
    cards.append(CARD | {"id": "c", "name": "C", "idList": "2"})
    said = workspace.take(BOARD | {"lists": lists, "cards": cards}, "--from", "trello")
    assert "dropped: title without a visible character (1 task)" in said
    found = {title: (row["status"], row["labels"]) for title, row in workspace.tasks().items()}
    doing = ("in_progress", [])
    assert found == {"(no title)": doing, "B b": doing, "C": ("todo", ["\U0001f64c"])}


def test_columns_that_only_json_lines_have_are_left_out_of_csv(workspace):
    said = workspace.take("Title,Comments,Kind,Rank,Project ID\nA,Call Ana first,Bug,2,7\n")
    columns = [f'dropped: column "{name}" (1 task)' for name in ("comments", "kind", "rank", "project_id")]
    assert {*columns, "1 new, 0 changed, 0 unchanged"} <= {*said}


PLANNER = """\ufeffTask ID;Task Name;Bucket Name;Progress;Priority;Assigned To;Created By;\
Created Date;Start date;Due date;Is Recurring;Completed Date;Labels;Description
x1;Book the hall;Stage;Completed;Important;Ben;Ana Lima;02.08.2026;;12.09.2026;false;10.09.2026;Hall;Now
x2;Print posters;;Not started;Medium;Ana Lima;Ben;02.08.2026;;01.12.2026 14:00;false;;"Red;Big";
"""


def test_columns_with_other_names_are_read_as_the_page_says(workspace):
    said = (ROOT / "docs" / "moving.md").read_text()
    (command,) = re.findall(r"    tasks (import planner.csv .*)\n", said)
    file = workspace.folder / "planner.csv"
    file.write_text(PLANNER)
    words = shlex.split(command.replace("planner.csv", str(file)))
    for said in ("2 new, 0 changed, 0 unchanged", "0 new, 0 changed, 2 unchanged"):
        assert invoke(workspace, *words).stdout.splitlines()[-1] == said
    names = ("status", "priority", "due_date", "assignee", "creator", "milestone", "labels", "external_id")
    rows = [[row[name] for name in names] for row in workspace.rows()]
    ana, ben = "ana@example.com", "ben@example.com"
    assert rows == [
        ["done", "high", "2026-09-12T23:59:59.999Z", ben, ana, "Stage", ["Hall"], "x1"],
        ["todo", "medium", "2026-12-01T14:00:00.000Z", ana, ben, None, ["Red", "Big"], "x2"],
    ]


def test_a_column_that_is_named_wins_and_words_of_another_language_are_given(workspace):
    words = ("--column", "TASK  NAME=Title", "--column", "Tags=labels")
    said = workspace.take("Title,Task  Name,Tags\nNo,A,red;big\n", *words)
    assert 'dropped: column "title" (1 task)' in said
    assert workspace.tasks()["A"]["labels"] == ["red", "big"]
    words = ["--column=Zusammenfassung=summary", "--column=schlüssel=Issue key", "--status=Fertig=done"]
    german = "Zusammenfassung;Schlüssel;Status\nB;K-1;Fertig\n"
    assert "1 new, 0 changed, 0 unchanged" in workspace.take(german, "--from", "jira", *words)
    assert workspace.tasks()["B"]["status"] == "done"
    words = ("--priority", "P1=urgent", "--status", "Later=review")
    workspace.take("title,priority,status\nC,P1,later\n", *words)
    assert (workspace.tasks()["C"]["priority"], workspace.tasks()["C"]["status"]) == ("urgent", "review")
    assert "1 new, 0 changed, 0 unchanged" in workspace.take("title,number,state\nD,7,open\n")


def test_tasks_that_a_recipe_imported_are_found_again(workspace):
    row = {"title": "Old", "project": "Fair", "external_id": "1201"}
    workspace.take(f"{json.dumps(row)}\n")
    assert workspace.take(EXPORTS / "asana.csv", "--from", "asana")[-2] == "1 new, 1 changed, 0 unchanged"
    assert workspace.tasks()["Book the hall"]["external_id"] == "asana:1201"


def test_separators_templates_and_equal_copies_of_a_task_are_left_out(workspace):
    odd = ({"cardRole": "separator", "name": "---"}, {"isTemplate": True}, {})
    cards = [CARD | {"id": f"66f1a000000000000000000{at}"} | card for at, card in enumerate(odd)]
    cards.append(dict(cards[-1]))
    said = workspace.take(BOARD | {"cards": cards}, "--from", "trello")
    dropped = [f"dropped: {what} (1 task)" for what in ("separators", "templates", "copy of a task")]
    assert said[1:-2] == dropped
    assert said[-2] == "1 new, 0 changed, 0 unchanged"


def test_a_day_that_is_written_as_midnight_is_the_same_day_everywhere(workspace):
    for zone in ("America/New_York", "Asia/Tokyo"):
        workspace.environment["TASKS_WORKSPACE__TIMEZONE"] = zone
        workspace.take(EXPORTS / "linear.csv", "--from", "linear")
        (due, *_) = [row["due_date"] for row in workspace.rows() if row["external_id"] == "linear:FAIR-1"]
        assert datetime.fromisoformat(due).astimezone(ZoneInfo(zone)).date().isoformat() == "2026-09-12"
        workspace.take(EXPORTS / "gitlab.csv", "--from", "gitlab")  # whose times are in UTC
        assert workspace.rows()[-1]["created_at"] == "2026-08-02T08:30:00.000Z"


def test_odd_values_of_an_export_are_dropped_or_reported(server, tmp_path):
    odd = [{"id": []}, {"name": {"a": 1}}, {"idList": {"a": 1}}, {"labels": "x"}, {"idMembers": [[{}]]}]
    odd += [{"due": 5}, {"due": "2026-99-99"}, {"desc": ["\0"]}, {"name": "x" * 501}, {"name": "\0"}]
    odd.append({"due": "\ud800"})
    cards = [{"id": f"{number}", "name": "A card", "idList": "1"} | card for number, card in enumerate(odd)]
    board = {"name": "Website", "cards": cards, "lists": [5, {"id": "1"}], "actions": {}, "checklists": [{}]}
    (tmp_path / "board.json").write_text(json.dumps(board))
    failed = invoke(server, "import", "--from", "trello", tmp_path / "board.json", "--project", "Website")
    lines = failed.stdout.splitlines()
    said = "task 8 (id 7): description: must not contain the character NUL"
    assert [line for line in lines if line.startswith("task")] == [said]
    left_out = {"the end of a long title", "title without a visible character"}
    left_out.add('due_date that cannot be read, kept in the description, such as "5"')
    assert left_out <= {line.removeprefix("dropped: ").rpartition(" (")[0] for line in lines}
    assert failed.stderr == "Error: nothing is stored\n"


def test_texts_that_are_too_long_are_cut_and_reported_and_the_result_can_be_moved_on(workspace):
    checklist = {"idCard": "a", "name": "Steps", "checkItems": [{"name": "x" * 900}, {"name": None}]}
    comment = {"type": "commentCard", "date": "2026-03-05T10:00:00Z", "memberCreator": {"fullName": "Zoe"}}
    comment |= {"data": {"card": {"id": "a"}, "text": "y" * schemas.MAX_TEXT}}
    file = board(desc="x" * (schemas.MAX_TEXT - 900)) | {"checklists": [checklist], "actions": [comment]}
    said = workspace.take(file, "--from", "trello")
    long = {f"dropped: the end of a long {name} (1 task)" for name in ("description", "comment")}
    assert long <= {*said}
    cell = f'Summary,Issue key,Description\nB,K-1,"{"z" * 200_000}"\n'
    assert workspace.take(cell, "--from", "jira")[0] == "dropped: the end of a long description (1 task)"
    unread = "\n".join(workspace.take(f"Summary,Issue key,Due date\nC,K-3,{'x' * 9999}\n", "--from", "jira"))
    assert 'description, such as "xxx' in unread and len(unread) < 1000
    lines = "".join(f"{json.dumps(row)}\n" for row in workspace.rows())
    assert "0 new, 0 changed, 3 unchanged" in workspace.take(lines)
    checklist["checkItems"][0]["name"] = "Sand"
    workspace.take(file | board(), "--from", "trello")
    assert workspace.tasks()["A"]["description"] == "**Steps**\n\n- [ ] Sand\n- [ ] "


def test_every_field_and_program_is_told_and_html_that_is_nested_too_deeply_stays_as_it_is():
    assert formats.markdown_of_html("<p>a" * 2000).startswith("<p>a")
    code = '<pre><code class="hljs language-py">x = 1</code></pre><pre>y</pre>'
    assert formats.markdown_of_html(code) == "```py\nx = 1\n```\n\n```\ny\n```"
    told = (ROOT / "docs" / "moving.md").read_text()
    names = {name for schema in IMPORTS.values() for name in schema.fields} | set(transfer.EXPORTED)
    assert [name for name in sorted(names) if f"`{name}`" not in told] == []
    assert re.findall("### (.*)", told.lower())[: len(formats.PROGRAMS)] == list(formats.PROGRAMS)


def test_tasks_of_todoist_and_vikunja_repeat_where_a_rule_says_the_same(workspace):
    todoist = {"every day": ("FREQ=DAILY", "due_date"), "Every Monday": ("FREQ=WEEKLY;BYDAY=MO", "due_date")}
    todoist["every! workday"] = ("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "completed_at")
    todoist["every 3 months"] = (None, "due_date")
    text = HEAD + "".join(f"task,{words},,,4,1,,,{words},en,UTC,,,,\n" for words in todoist)
    said = workspace.take(text, "--from", "todoist", project="Todoist")
    unread = 'due_date that cannot be read, kept in the description, such as "every 3 months"'
    assert f"dropped: {unread} (1 task)" in said
    assert workspace.tasks()["every 3 months"]["description"] == "Due date: every 3 months"
    assert "0 new, 0 changed, 4 unchanged" in workspace.take(text, "--from", "todoist", project="Todoist")
    found = {row["title"]: (row["repeat"], row["repeat_from"]) for row in workspace.rows()}
    assert found == todoist
    monday = next(row["due_date"] for row in workspace.rows() if row["title"] == "Every Monday")
    assert datetime.fromisoformat(monday).weekday() == 0
    vikunja = {(86400, 0): ("FREQ=DAILY;INTERVAL=1", "due_date"), (0, 1): ("FREQ=MONTHLY", "due_date")}
    vikunja |= {(1209600, 2): ("FREQ=WEEKLY;INTERVAL=2", "completed_at")}
    vikunja |= dict.fromkeys(((3600, 0), (86400 * 100, 0)), (None, "due_date"))
    task = {"done": False, "due_date": "2031-01-06T09:00:00Z"}
    tasks = [
        task | {"id": at, "title": str(key), "repeat_after": key[0], "repeat_mode": key[1]}
        for at, key in enumerate(vikunja, 1)
    ]
    file = [{"id": 1, "title": "Vikunja", "views": [], "buckets": [], "tasks": tasks}]
    file.append({"id": 2, "title": "VIKUNJA", "views": [], "buckets": [], "tasks": []})
    said = workspace.take(file, "--from", "vikunja", project="Vikunja")
    assert "dropped: repetition (2 tasks)" in said
    assert "dropped: project with the name of another one, which gets its tasks (1 project)" in said
    found = {row["title"]: (row["repeat"], row["repeat_from"]) for row in workspace.rows()}
    assert found == todoist | {str(key): rule for key, rule in vikunja.items()}
