"""A workspace's tasks as files: CSV for spreadsheets, JSON lines with everything that belongs to them."""

import csv
import errno
import io
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

from marshmallow import ValidationError
from peewee import JOIN, fn

import schemas
from database import Row, Statement, caseless, columns, digest, json_object, placeholder, to_json
from errors import ApiError, Invalid
from members import Member, Transaction, differences
from models import HIDDEN, Attachment, AttachmentContent, Blocker, Comment, Milestone, Project, Task
from times import first_id

# The columns that an import knows.
IMPORTED = [
    *["title", "description", "status", "priority", "project", "milestone", "assignee"],
    *["start_date", "due_date", "labels", "external_id", "creator", "blocked_by", "metadata"],
    *["created_at", "completed_at", "id", "number"],
]
OWN = ["version", "updated_at"]  # columns of an export, of which each workspace has its own
ONLY_NEW = ("id", "number", "rank", "created_at", "created_by")  # which only a new task takes
EXPORTED = ["number", *IMPORTED[:-1], *OWN]
PAGE = 500  # tasks that an export reads at a time
# A cell that a spreadsheet would take for a formula, behind the apostrophes of earlier exports.
FORMULA = re.compile(r"'*[=+\-@\t\r]")

Line = tuple[str, Row]  # its name, such as "line 2", and its fields


@dataclass
class Report:
    done: dict[str, int] = field(default_factory=dict)  # tasks that are new, changed or as they were
    made: list[str] = field(default_factory=list)  # projects and milestones
    dropped: Counter[str] = field(default_factory=Counter)  # what was left out, and how often
    problems: list[str] = field(default_factory=list)  # of lines that cannot be taken

    def lines(self) -> Iterator[str]:
        yield from self.problems
        yield from self.made
        yield from (f"dropped: {what} (count: {count})" for what, count in self.dropped.items() if count)
        yield ", ".join(f"{count} {name}" for name, count in self.done.items())


# Reading --------------------------------------------------------------------------------------


def read(text: str, statuses: dict[str, str]) -> list[Line]:
    """The lines of a file of JSON lines, or of CSV, in which statuses may have other names."""
    return list(read_json_lines(text)) if text.lstrip()[:1] in ("{", "[") else read_csv(text, statuses)


def decoded(data: bytes) -> str:
    """The text of a file in UTF-8, in UTF-16 with its mark, or in Windows' Latin-1. Raises `ValueError`."""
    for encoding in ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252"):
        with suppress(UnicodeDecodeError):
            return data.decode(encoding)
    raise ValueError("the file is not in UTF-8; save it as such")


def read_json_lines(text: str) -> Iterator[Line]:
    """Yield each line that is not blank. Raises `ValueError`."""
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                yield f"line {number}", schemas.load_json(line.encode())
        except (ApiError, ValidationError) as error:
            problem = f"line {number}: this is JSON, but no object in one line ({error})"
            raise ValueError(f"{problem}; what another program has exported takes --from") from error


def cells_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each row's first line, and its cells. Raises `ValueError`."""
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader, line = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"line {line}: {error}") from error


def read_csv(text: str, statuses: dict[str, str]) -> list[Line]:
    """The rows, each with its cells that hold something. Raises `ValueError` with a line for each problem."""
    rows = cells_of(text)
    columns = [name.strip().lower().replace(" ", "_") for name in next(rows, (1, []))[1]]
    lines, problems = [], []
    if "title" not in columns:
        problems.append(f"line 1: there is no column title; known columns: {', '.join(IMPORTED)}")
    problems += [f"line 1: several columns {name}" for name in EXPORTED if columns.count(name) > 1]
    try:
        for line, texts in rows:
            if any(map(str.strip, texts[len(columns) :])):
                problems.append(f"line {line}: has more cells than line 1")
            cells = {
                name: CELLS.get(name, str)(unquoted(text if name == "description" else text.strip()))
                for name, text in zip(columns, texts, strict=False)
                if name and text.strip()
            }
            if cells.get("status") in statuses:
                cells["status"] = statuses[cells["status"]]
            if cells:
                lines.append((f"line {line}", cells))
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return lines


def unquoted(cell: str) -> str:
    """The cell without the apostrophe that `quoted` puts before formulas."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def quoted(value: Any) -> Any:
    """The value of a cell, with an apostrophe before what a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def word_of(cell: str) -> str:
    """The word of the API that a cell means, such as `in_progress` for "In Progress"."""
    word = re.sub(r"[\s-]+", "_", cell.strip().lower())
    return "todo" if word == "to_do" else word


def json_of(cell: str) -> Any:
    """The JSON value in a cell, or the cell where it is none."""
    with suppress(ApiError):
        return schemas.parse_json(cell.encode())
    return cell


# How cells are read that hold no text.
CELLS: dict[str, Callable[[str], Any]] = {
    **{"status": word_of, "priority": word_of, "number": json_of, "metadata": json_of},
    "labels": lambda cell: json_of(cell) if cell.startswith("[") else re.findall(r"[^,\s][^,]*", cell),
    "blocked_by": lambda cell: json_of(f"[{','.join(cell.split())}]"),
}


# Storing --------------------------------------------------------------------------------------


class Import:
    """Stores lines as projects, milestones and tasks, and finds by id or name what they refer to."""

    def __init__(
        self, lines: list[Line], dropped: Counter[str], project: str | None = None, files: Path | None = None
    ):
        """Check the lines, before others must wait for it; what names no project goes into this one."""
        self.project, self.files, self.report = project, files, Report(dropped=dropped)
        self.lines: list[tuple[str, str, Row]] = []  # the name of each, its kind, and what is checked
        for line, fields in lines:
            kind = fields.pop("kind", "task")
            with self.problems_noted(line):
                if kind not in [*schemas.IMPORTS]:
                    raise Invalid(("kind", f"must be one of {', '.join(schemas.IMPORTS)}"))
                schema = schemas.IMPORTS[kind]
                known = {name: value for name, value in fields.items() if name in schema.fields}
                self.report.dropped.update(f"column {name}" for name in fields if name not in [*known, *OWN])
                self.lines.append((line, kind, schema.load(known)))

    @contextmanager
    def problems_noted(self, line: str) -> Iterator[None]:
        """Note why a line cannot be taken."""
        try:
            yield
        except (Invalid, ValidationError) as error:
            problems = error.details if isinstance(error, Invalid) else schemas.problems_of(error)
            text = "; ".join(f"{name}: {problem}" for name, problem in problems)
            self.report.problems.append(f"{line}: {text}")

    def store(self, transaction: Transaction) -> Report:
        """Store each line, or note why not; what a line does not have stays as it is.

        It changes the task with its id, external id or number, the project or milestone with its id or name.
        """
        self.transaction, people = transaction, Member.everyone()
        transaction.tells = False
        self.members = by_name(people, "full_name") | by_name(people, "email")
        self.places: dict[tuple[str | None, str], list[str]] = {}  # projects and milestones (`name_of`)
        for row in chain(_exported()["project"].all(), _exported()["milestone"].all()):
            self.places.setdefault(name_of(row), []).append(row["id"])
        self.numbers: dict[Any, int] = {}  # of tasks by those in their lines
        self.tasks, self.new, self.changed = set[str](), set[str](), set[str]()  # their ids
        self.later: list[tuple[str, Callable[[], Any]]] = []  # what needs all tasks, with its line
        for line, kind, fields in self.lines:
            with self.problems_noted(line):
                if kind == "task":
                    self.store_task(line, fields)
                else:
                    self.store_place(line, Project if kind == "project" else Milestone, fields)
        for line, finish in self.later:
            with self.problems_noted(line):
                finish()
        changed = self.changed - self.new
        unchanged = self.tasks - self.new - changed
        self.report.done = {"new": len(self.new), "changed": len(changed), "unchanged": len(unchanged)}
        return self.report

    def store_place(self, line: str, table: Any, fields: Row) -> None:
        """Make the project or milestone of a line, or change the one with its id, or without one its name."""
        of = {"project_id": self.place(Project, fields)} if table is Milestone else {}
        self.find_member(fields, "owner", "owner_id")
        is_archived = fields.get("status") == "archived" and fields.pop("status")
        id = fields.get("id") or self.place(table, {table.NOUN: fields[table.TITLE]}, **of)
        if row := table.stored_row.one(id=id):
            fields = {name: value for name, value in fields.items() if name not in ONLY_NEW}
            if differences(row, fields):
                table.edit(self.transaction, id, fields)
                self.report.made.append(f"changed: {table.NOUN} {fields[table.TITLE]}")
        else:
            self.add(table, fields | of)
        if is_archived:  # then it takes no new tasks
            archived = {"status": "archived"}
            self.later.append((line, lambda: Project.edit(self.transaction, id, archived)))

    def add(self, table: Any, fields: Row) -> str:
        row = table.add(self.transaction, **fields)
        of = f" of {Project.stored(row['project_id'])['name']}" if table is Milestone else ""
        self.report.made.append(f"new: {table.NOUN} {row[table.TITLE]}{of}")
        self.places.setdefault(name_of(row), []).append(row["id"])
        return row["id"]

    def place(self, table: Any, fields: Row, own: str | None = None, **of: str) -> Any:
        """The id of the project or milestone that a line names, or its own; a missing one is made."""
        id, name = (fields.pop(key, None) for key in (f"{table.NOUN}_id", table.NOUN))
        if id and table.stored_row.one(id=id):
            return id
        if table is Project and not own:
            name = name or self.project
            if not name:
                raise Invalid(("project", "is required"))
        if not name:
            return own if table is Project else None
        if own and caseless(table.stored(own)[table.TITLE]) == caseless(name):
            return own
        new = schemas.IMPORTS[table.NOUN].load({table.TITLE: name}) | of
        ids = self.places.get(name_of(new)) or [self.add(table, new)]
        if len(ids) > 1:
            ids = [id for id in ids if table.stored(id).get("status") != "archived"] or ids
        if len(ids) > 1:
            raise Invalid((table.NOUN, f"is the name of {len(ids)}; rename all but one of them"))
        return ids[0]

    def find_member(self, fields: Row, role: str, column: str) -> None:
        """Put a member's id in place of the address or whole name; that nobody has it is noted."""
        if role in fields:
            who = fields.pop(role)
            ids = self.members.get(caseless(who), []) if who else [None]
            if len(ids) == 1:
                fields[column] = ids[0]
            else:
                self.report.dropped[f"{role} {who}, who is no member"] += 1

    def stored_task(self, *, id: str = "", external_id: str = "", number: int = 0, **_: Any) -> Any:
        """The task with this id, else external id; a number counts where a line has neither."""
        if task := Task.stored_row.one(id=id):
            return task
        by_number = None if id or external_id else Task.by_number.value(number=number)
        return Task.stored_row.one(id=Task.by_external_id.value(external_id=external_id) or by_number)

    def store_task(self, line: str, fields: Row) -> None:
        """Raises `ValidationError` and `Invalid`."""
        task, number = self.stored_task(**fields), fields.get("number")
        own: Row = task or {}
        self.find_member(fields, "assignee", "assignee_id")
        self.find_member(fields, "creator", "created_by")
        project_id = self.place(Project, fields, own.get("project_id"))
        if fields.keys() & {"milestone", "milestone_id"}:
            own_id = own.get("milestone_id")
            fields["milestone_id"] = self.place(Milestone, fields, own_id, project_id=project_id)
        if fields.get("status") != "done" or not fields.get("completed_at"):
            fields.pop("completed_at", None)
        fields["project_id"] = project_id
        made = {name: fields.pop(name) for name in ONLY_NEW if name in fields}
        blockers, *parts = (fields.pop(name, None) for name in ("blocked_by", "comments", "attachments"))
        if task:
            task, changes = Task.edit(self.transaction, task["id"], fields, None)
            if changes:
                self.changed.add(task["id"])
        else:
            if number and Task.by_number.value(number=number):
                self.report.dropped["number, which another task has"] += 1
                del made["number"]
            if "number" not in made:  # a rank that goes with a number may be that of another task here
                made.pop("rank", None)
            task = Task.add(self.transaction, **fields, **made)
            self.new.add(task["id"])
        self.tasks.add(task["id"])
        if number:
            self.numbers[number] = task["number"]
        if blockers or (blockers is not None and own):
            self.later.append((line, lambda: self.block(task["id"], blockers)))
        places = Counter[Any]()  # of comments among those of the same time, or of none
        for part in parts[0] or ():
            time = part.get("created_at")
            self.add_comment(task, part, places[time])
            places[time] += 1
        for part in parts[1] or ():
            self.add_file(task, part)

    def block(self, id: str, blockers: list[int | str]) -> None:
        """Let these tasks block this one; a number is that in the file, if a task has it there."""
        fields = {"blocked_by": [self.numbers.get(one, one) for one in blockers]}
        if Task.edit(self.transaction, id, fields, None)[1]:
            self.changed.add(id)

    def add_comment(self, task: Row, comment: Row, place: int) -> None:
        """Add a comment that the task does not have; without an id it gets the same one each time."""
        content, author = comment.pop("content"), comment.get("author")
        if "id" not in comment:
            first = first_id(comment.get("created_at") or task["created_at"])
            last = digest(task["id"] + content)[:12]
            comment["id"] = f"{first[:15]}{place & 0xFFF:03x}{first[18:24]}{last}"
        if not Comment.stored_row.one(id=comment["id"]):
            self.find_member(comment, "author", "author_id")
            if author and "author_id" not in comment:
                content = f"{author} wrote:\n\n{content}"
            comment = {"created_at": task["created_at"], **comment}
            Comment.store(self.transaction, task, content, **comment)
            self.changed.add(task["id"])

    def add_file(self, task: Row, described: Row) -> None:
        """Add an attachment that the task does not have. Raises `Invalid` where its file cannot be read."""
        if Attachment.stored_row.one(id=described["id"]):
            return
        if self.files is None:
            self.report.dropped["attachment, which --files takes"] += 1
            return
        try:
            data = read_file(self.files / described["id"])
        except OSError as error:
            raise Invalid(("attachments", f"{error.filename}: {error.strerror}")) from error
        self.find_member(described, "creator", "created_by")
        Attachment.add(self.transaction, task["id"], data=data, **described)
        self.changed.add(task["id"])


def read_file(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises `OSError` for others, such as a link to a file elsewhere."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a pipe would hold up all writers
            raise OSError(errno.EINVAL, "is not a file", str(path))
        return file.read()


def by_name(rows: list[Row], field: str) -> dict[str, list[str]]:
    """The ids of the rows by their names, which several may share."""
    ids: dict[str, list[str]] = {}
    for row in rows:
        ids.setdefault(caseless(row[field]), []).append(row["id"])
    return ids


def name_of(row: Row) -> tuple[str | None, str]:
    """The name by which a project, or a milestone of one, is found."""
    return row.get("project_id"), caseless(row.get("name") or row["title"])


# Writing --------------------------------------------------------------------------------------


def exported_tasks() -> Iterator[Row]:
    """Yield all tasks in the order of their numbers, with names beside ids, and what belongs to them."""
    last = 0
    while tasks := _exported()["task"].all(last=last, most=PAGE):
        last = tasks[-1]["number"]
        yield from tasks


@lru_cache(maxsize=1)
def _exported() -> dict[str, Statement]:
    """The queries of an export by the kinds of its lines."""
    assignee, creator = Member.alias("assignee"), Member.alias("creator")
    projects = Project.select(*columns(Project, "owner_id", "updated_at"), Member.email.alias("owner"))
    milestones = Milestone.select(*columns(Milestone, "updated_at"), Project.name.alias("project"))
    blockers = Blocker.select(fn.JSON_GROUP_ARRAY(Blocker.blocker)).where(Blocker.task == Task.number)
    names: list[Any] = [Project.name.alias("project"), Milestone.title.alias("milestone")]
    names += [assignee.email.alias("assignee"), creator.email.alias("creator")]
    names += [fn.JSON(blockers).alias("blocked_by")]
    names += [_listed(Comment, Comment.author, "author", "id content created_at edited_at")]
    names += [_listed(Attachment, Attachment.created_by, "creator", "id filename content_type created_at")]
    hidden = ("claimed_until", "question_id", "checks", "assignee_id", "created_by")
    tasks = Task.select(*columns(Task, *HIDDEN, *hidden), *names)
    tasks = tasks.join(Project, on=(Task.project == Project.id))
    for key, table in ((Task.milestone, Milestone), (Task.assignee, assignee), (Task.created_by, creator)):
        tasks = tasks.join(table, JOIN.LEFT_OUTER, on=(key == table.id))
    tasks = tasks.where(Task.number > placeholder("last")).order_by(Task.number).limit(placeholder("most"))
    return {
        "project": Statement(projects.join(Member, on=(Project.owner == Member.id)).order_by(Project.id)),
        "milestone": Statement(milestones.join(Project).order_by(Milestone.id)),
        "task": Statement(tasks),
    }


def _listed(table: Any, member: Any, role: str, names: str) -> Any:
    """The column with what a task has of a table, with the address of a member in this role, as JSON."""
    shown = {name: getattr(table, name) for name in names.split()} | {role: Member.email}
    rows = table.select(fn.JSON_GROUP_ARRAY(json_object(shown))).where(table.task == Task.id)
    return fn.JSON(rows.join(Member, JOIN.LEFT_OUTER, on=(member == Member.id))).alias(f"{table.NOUN}s")


def write_csv(file: IO[str]) -> None:
    writer = csv.DictWriter(file, EXPORTED, extrasaction="ignore")
    writer.writeheader()
    for row in exported_tasks():
        labels, texts = row["labels"], {"blocked_by": " ".join(map(str, row["blocked_by"]))}
        texts["labels"] = to_json(labels).decode() if "," in "".join(labels) else ", ".join(labels)
        writer.writerow({name: quoted(value) for name, value in (row | texts).items()})


def write_json_lines(file: IO[str], files: Path | None = None) -> None:
    """Write all projects, milestones and tasks, each as a line with an object, and attachments as files."""
    places = ((kind, row) for kind in ("project", "milestone") for row in _exported()[kind].all())
    for kind, row in chain(places, (("task", task) for task in exported_tasks())):
        file.write(f"{to_json({'kind': kind} | row).decode()}\n")
        for attachment in row.get("attachments", ()) if files else ():
            (files / attachment["id"]).write_bytes(AttachmentContent.of_attachment.value(id=attachment["id"]))
