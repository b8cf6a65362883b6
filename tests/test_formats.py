"""Importing what other programs export; the files in `exports/` are as their documentation shows them."""

import json
import re

import pytest
from harness import ROOT, invoke

import formats
import schemas
import transfer

EXPORTS = ROOT / "tests" / "exports"
MENU = {"title": "Review the café menu", "status": "in_progress", "due_date": "2026-12-01T17:00:00.000Z"}
LIST = "- [x] Home\n- [ ] Prices"
OF_PROGRAMS = {
    "trello.json": (
        MENU | {"description": f"With **prices**.\n{LIST}", "created_at": "2024-09-23T17:06:08.000Z"},
        ["First remark", "Gone Guest wrote:\n\nSecond remark"],
        {"completed_at": "2026-10-02T08:30:00.000Z"},
        ['status "Ideas"', "attachments", "assignee, more than one", "assignee Gone Guest, who is no member"],
    ),
    "trello.csv": (
        MENU | {"description": "With **prices**."},
        [],
        {"completed_at": "2026-10-02T08:30:00.000Z"},
        ['status "Ideas"', "column Attachment Links", "column Vote Count"],
    ),
    "todoist.csv": (
        {"title": "Buy stamps", "priority": "urgent", "due_date": "2026-12-01T23:59:59.999Z"},
        ["At the corner; not online", "Paid in cash"],
        {"title": "Water the plants", "status": "in_progress", "priority": "low"},
        ['due_date "every Monday"', "column INDENT"],
    ),
    "jira.csv": (
        MENU
        | {
            "due_date": "2026-12-01T23:59:59.999Z",
            "priority": "urgent",
            "description": "Two pages,\nwith prices.",
        },
        ["557058:f58131cb wrote:\n\nFirst remark; with a semicolon", "Second remark"],
        {"created_at": "2026-03-10T08:00:00.000Z", "completed_at": "2026-03-11T08:00:00.000Z"},
        ['status "Blocked by legal"', "column Sprint"],
    ),
    "vikunja.json": (
        MENU | {"priority": "urgent", "description": "With prices.\n- [x] Home\n\n- [ ] Prices & more"},
        ["First remark", "gone wrote:\n\nSecond remark"],
        {"created_at": "2026-09-02T08:01:00.000Z", "completed_at": "2026-10-02T08:30:00.000Z"},
        ["attachments", "related_tasks"],
    ),
    "github.json": (
        MENU | {"status": "todo", "due_date": None, "description": f"With prices.\n\n{LIST}"},
        ["gone wrote:\n\nFirst remark"],
        {"created_at": "2026-09-02T08:01:00.000Z", "completed_at": "2026-10-02T08:30:00.000Z"},
        ["creator gone, who is no member", "author gone, who is no member"],
    ),
    "planka.json": (
        MENU | {"description": f"With prices.\n{LIST}"},
        ["First remark"],
        {"created_at": "2026-09-02T08:01:00.000Z", "completed_at": "2026-10-02T08:30:00.000Z"},
        ["attachments", "stopwatch"],
    ),
}


def import_from(server, program, file, *options):
    return invoke(server, "import", "--from", program, file, "--project", "Website", *options)


@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_an_export_of_another_program_is_imported_once(launch, name):
    first, comments, second, dropped = OF_PROGRAMS[name]
    server = launch()
    invoke(server, "member", "add", "Ana Lima", "--email", "ana@example.com")
    owner, program, file = server.client(), name.partition(".")[0], EXPORTS / name
    stored = import_from(server, program, file, "--status", "Doing=in_progress", "--apply")
    assert stored.exit_code == 0, stored.stderr
    said = stored.stdout.splitlines()
    assert said[0] == "new: project Website"
    left_out = {row.removeprefix("dropped: ").rpartition(" (")[0] for row in said}
    assert left_out >= set(dropped)
    assert 'status "To-Do"' not in left_out
    tasks = owner.data(owner.get("/tasks", sort="created_at"))["tasks"]
    count = int(said[-1].partition(" ")[0])
    found = [owner.data(owner.get(f"/tasks/{number + 1}")) for number in range(count)]
    assert [task["number"] for task in found] == sorted(task["number"] for task in tasks)
    assert found[0] | first == found[0]
    assert found[1] | second | {"assignee_id": None} == found[1]
    assert all(task["external_id"].startswith(f"{program}:") for task in found)
    people = [task[who] for task in found for who in ("assignee", "creator") if task[who]]
    assert "ana@example.com" in [person["email"] for person in people]
    written = owner.data(owner.get("/tasks/1/comments"))["comments"]
    assert [comment["content"] for comment in written] == comments
    again = import_from(server, program, file, "--status", "doing=in_progress", "--apply")
    assert again.stdout.splitlines()[-1] == f"0 new, 0 changed, {count} unchanged"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_encoding_and_delimiter_are_recognised(server, tmp_path, encoding, delimiter):
    text = "Title,Status,Priority\nCafé,TO DO,High\n".replace(",", delimiter)
    (tmp_path / "tasks.csv").write_bytes(text.encode(encoding))
    options = ("--project", "Website", "--status", "Doing=done")
    tried = invoke(server, "import", tmp_path / "tasks.csv", *options)
    assert tried.stdout.splitlines() == ["new: project Website", "1 new, 0 changed, 0 unchanged"]


@pytest.mark.parametrize(
    ("program", "text", "said"),
    [
        ("trello", "{", "the file is not JSON: Expecting property name"),
        ("trello", "[]", "it has no tasks as trello exports them; see docs/moving.md"),
        ("trello", '{"cards": [1, null, "x"]}', "it has no tasks as trello exports them"),
        ("jira", "Title,Key\nx,1\n", "it has no tasks as jira exports them"),
        ("jira", "Summary,Issue key\nA,K-1\nB,K-2,x\n", "line 3: has more cells than line 1"),
        ("todoist", 'TYPE,CONTENT\ntask,"x\n', "line 2: unexpected end of data"),
        ("github", b"\x81", "the file is not in UTF-8; save it as such"),
        ("planka", '{"cards": ' + "[" * 2000, "the file is nested too deeply"),
        ("planka", "", "it has no tasks as planka exports them"),
    ],
)
def test_a_file_that_is_no_such_export_is_refused_in_a_line(server, tmp_path, program, text, said):
    file = tmp_path / "export"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    failed = import_from(server, program, file)
    assert failed.stderr.startswith(f"Error: {said}")
    assert failed.stderr.count("\n") == 1
    assert failed.exit_code == 1


@pytest.mark.parametrize(
    ("options", "columns"), [([], "title,project"), (["--from", "jira"], "Summary,Issue key")]
)
def test_columns_that_are_left_out_are_named_in_their_order(server, tmp_path, options, columns):
    names = ["z", "one", "b", "two", "a", "three", "c"]
    (tmp_path / "x.csv").write_text(f"{columns},{','.join(names)}\nA,K-1{',x' * len(names)}\n")
    said = server.flask("import", str(tmp_path / "x.csv"), *options).stdout
    assert re.findall(r"dropped: column (\w+)", said) == names


def test_comments_of_one_minute_keep_their_order(launch, tmp_path):
    server, texts = launch(), ["Is it open?", "Yes", "Thanks", "Closed it", "Good", "Bye"]
    cells = ",".join(f"05/Mar/26 3:04 PM;x;{text}" for text in texts)
    (tmp_path / "issues.csv").write_text(f"Summary,Issue key{',Comment' * 6}\nGate,K-1,{cells}\n")
    for _ in range(2):
        import_from(server, "jira", tmp_path / "issues.csv", "--apply")
        comments = server.client().get("/tasks/1/comments").json()["data"]["comments"]
        assert [comment["content"].removeprefix("x wrote:\n\n") for comment in comments] == texts


def test_what_is_odd_in_an_export_is_left_out_or_named(server, tmp_path):
    odd = [{"id": []}, {"name": {"a": 1}}, {"idList": {"a": 1}}, {"labels": "x"}, {"idMembers": [[{}]]}]
    odd += [{"due": 5}, {"due": "2026-99-99"}, {"desc": ["\0"]}, {"name": "x" * 501}, {"name": "\0"}]
    odd.append({"due": "\ud800"})
    cards = [{"id": f"{number}", "name": "A card", "idList": "1"} | card for number, card in enumerate(odd)]
    board = {"name": "Website", "cards": cards, "lists": [5, {"id": "1"}], "actions": {}, "checklists": [{}]}
    (tmp_path / "board.json").write_text(json.dumps(board))
    failed = import_from(server, "trello", tmp_path / "board.json")
    lines = failed.stdout.splitlines()
    assert [line for line in lines if line.startswith("task")] == [
        "task 8: description: must not contain the character NUL",
        "task 10: title: must not contain control characters",
    ]
    left_out = {'due_date "5"', 'due_date "?"', 'due_date "2026-99-99"', "the end of a long title"}
    assert left_out <= {line.removeprefix("dropped: ").rpartition(" (")[0] for line in lines}
    assert failed.stderr == "Error: nothing is stored\n"


@pytest.mark.parametrize("pair", ["Doing", "=done", "Doing=started"])
def test_a_status_that_does_not_exist_is_refused(server, pair):
    failed = import_from(server, "trello", EXPORTS / "trello.json", "--status", pair)
    assert "is not NAME=STATUS with one of todo, in_progress, review, done" in failed.stderr


def test_every_field_and_program_is_told():
    told = (ROOT / "docs" / "moving.md").read_text()
    names = {name for schema in schemas.IMPORTS.values() for name in schema.fields} | set(transfer.EXPORTED)
    assert [name for name in sorted(names) if f"`{name}`" not in told] == []
    assert re.findall("### (.*)", told.lower()) == list(formats.PROGRAMS)
