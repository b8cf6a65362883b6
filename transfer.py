"""Tasks from other programs as CSV, and tasks for other programs as CSV or JSON lines."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, Any

import orjson
from marshmallow import ValidationError
from peewee import JOIN

import schemas
from database import Row, Statement, caseless, placeholder, to_json
from errors import Invalid
from models import Blocker, Member, Milestone, Project, Task, Transaction

# The columns that an import knows; an export has others too.
IMPORTED = [
    *["title", "description", "status", "priority", "project", "milestone", "assignee"],
    *["start_date", "due_date", "labels", "external_id"],
]
NAMES = ("project", "milestone", "assignee")  # which are found when the rows are stored
EXPORTED = [
    *["number", *IMPORTED, "creator", "blocked_by", "metadata", "version"],
    *["created_at", "updated_at", "completed_at", "id"],
]
PAGE = 500  # tasks that an export reads at a time
# A cell that a spreadsheet would take for a formula, behind the apostrophes of earlier exports.
FORMULA = re.compile(r"'*[=+\-@\t\r]")


@dataclass
class Report:
    """What an import has done."""

    done: Counter[str] = field(default_factory=Counter)  # tasks that are new, changed or as they were
    made: list[str] = field(default_factory=list)  # projects and milestones
    dropped: Counter[str] = field(default_factory=Counter)  # what was left out, with the number of its tasks
    problems: list[str] = field(default_factory=list)  # of lines that cannot be taken

    def lines(self) -> Iterator[str]:
        yield from self.problems
        yield from (f"new: {what}" for what in self.made)
        yield from (f"dropped: {what} ({count} tasks)" for what, count in self.dropped.items())
        yield ", ".join(f"{self.done[name]} {name}" for name in ("new", "changed", "unchanged"))


def read_csv(file: IO[bytes]) -> list[tuple[int, Row]]:
    """The number of each row's first line, and its cells that hold something, by column.

    Raises `ValueError` with a line for each thing that is wrong.
    """
    reader = csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""), strict=True)
    rows, problems, line = [], [], 1
    try:
        columns = [name.strip().lower().replace(" ", "_") for name in next(reader, [])]
        if "title" not in columns:
            problems.append(f"line 1: there is no column title; known columns: {', '.join(IMPORTED)}")
        problems += [f"line 1: several columns {name}" for name in IMPORTED if columns.count(name) > 1]
        line = reader.line_num + 1
        for texts in reader:
            if any(map(str.strip, texts[len(columns) :])):
                problems.append(f"line {line}: has more cells than line 1")
            cells = {
                name: unquoted(text if name == "description" else text.strip())
                for name, text in zip(columns, texts, strict=False)
                if name and text.strip()
            }
            if cells:
                rows.append((line, cells))
            line = reader.line_num + 1
    except UnicodeDecodeError:
        problems.append("the file is not in UTF-8; save it as such")
    except csv.Error as error:
        problems.append(f"line {line}: {error}")
    if problems:
        raise ValueError("\n".join(problems))
    return rows


def unquoted(cell: str) -> str:
    """The cell without the apostrophe that `quoted` puts before formulas."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def quoted(value: Any) -> Any:
    """The value of a cell, with an apostrophe before what a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


class Import:
    """Stores rows as tasks, and finds projects, milestones and people by their names."""

    def __init__(self, rows: list[tuple[int, Row]], project: str | None = None):
        """Check the rows, before others must wait for it; what names no project goes into this one."""
        self.project, self.report = project, Report()
        self.rows: list[tuple[int, Row, Row]] = []  # the line, names by column, and what is checked already
        for line, cells in rows:
            self.report.dropped.update(f"column {name}" for name in cells if name not in IMPORTED)
            for choice in cells.keys() & {"status", "priority"}:
                cells[choice] = cells[choice].lower().replace(" ", "_")
            with self.problems_noted(line):
                checked = {name: cells[name] for name in IMPORTED if name in cells and name not in NAMES}
                if "labels" in checked:
                    checked["labels"] = [*filter(None, map(str.strip, checked["labels"].split(",")))]
                self.rows.append((line, cells, schemas.IMPORT_TASK.load(checked)))

    @contextmanager
    def problems_noted(self, line: int) -> Iterator[None]:
        """Note why a row cannot be taken."""
        try:
            yield
        except (Invalid, ValidationError) as error:
            problems = error.details if isinstance(error, Invalid) else schemas.problems_of(error)
            text = "; ".join(f"{name}: {problem}" for name, problem in problems)
            self.report.problems.append(f"line {line}: {text}")

    def store(self, transaction: Transaction) -> Report:
        """Store each row as a task, or note why not.

        A row with an external id changes the task that has it; an empty cell changes nothing.
        """
        self.transaction, projects = transaction, Project.listing()
        transaction.tells = False
        active = [row for row in projects if row["status"] != "archived"]
        self.projects = by_name(projects, "name") | by_name(active, "name")
        self.milestones: dict[str, dict[str, list[str]]] = {}  # of each project
        self.members = {member["email"]: member["id"] for member in Member.everyone()}
        for line, names, fields in self.rows:
            with self.problems_noted(line):
                self.store_row(names, fields)
        return self.report

    def store_row(self, names: Row, fields: Row) -> None:
        """Raises `ValidationError` and `Invalid`."""
        project = names.get("project", self.project)
        fields["project_id"] = self.project_id(project)
        if title := names.get("milestone"):
            fields["milestone_id"] = self.milestone_id(fields["project_id"], title, project)
        if email := names.get("assignee"):
            if member_id := self.members.get(email.lower()):
                fields["assignee_id"] = member_id
            else:
                self.report.dropped[f"assignee {email}, who is no member"] += 1
        if external_id := fields.pop("external_id", None):
            _, changes = Task.put(self.transaction, external_id, **fields)
        else:
            _, changes = Task.add(self.transaction, **fields), None
        self.report.done["new" if changes is None else "changed" if changes else "unchanged"] += 1

    def project_id(self, name: str | None) -> str:
        """The id of the project with this name, which is made if it is missing."""
        if not name:
            raise Invalid(("project", "is required"))
        found = self.projects.setdefault(caseless(name), [])
        if not found:
            project = Project.add(self.transaction, **schemas.CREATE_PROJECT.load({"name": name}))
            found.append(project["id"])
            self.report.made.append(f"project {name}")
        return only("project", found)

    def milestone_id(self, project_id: str, title: str, project: str | None) -> str:
        """The id of the milestone with this title in this project, which is made if it is missing."""
        if project_id not in self.milestones:
            self.milestones[project_id] = by_name(Milestone.of(project_id), "title")
        found = self.milestones[project_id].setdefault(caseless(title), [])
        if not found:
            fields = schemas.CREATE_MILESTONE.load({"title": title})
            found.append(Milestone.add(self.transaction, project_id=project_id, **fields)["id"])
            self.report.made.append(f"milestone {title} of {project}")
        return only("milestone", found)


def by_name(rows: list[Row], field: str) -> dict[str, list[str]]:
    """The ids of the rows by their names, which several may share."""
    ids: dict[str, list[str]] = {}
    for row in rows:
        ids.setdefault(caseless(row[field]), []).append(row["id"])
    return ids


def only(what: str, ids: list[str]) -> str:
    if len(ids) > 1:
        raise Invalid((what, f"is the name of {len(ids)}; rename all but one of them"))
    return ids[0]


def export_rows() -> Iterator[Row]:
    """All tasks in the order of their numbers, with names in place of ids."""
    last = 0
    while tasks := _exported().all(last=last, most=PAGE):
        last = tasks[-1]["number"]
        for task in tasks:
            yield {name: task[name] for name in EXPORTED} | {"blocked_by": Blocker.shown_numbers(task)}


@lru_cache(maxsize=1)
def _exported() -> Statement:
    assignee, creator = Member.alias("assignee"), Member.alias("creator")
    names: list[Any] = [Project.name.alias("project"), Milestone.title.alias("milestone")]
    names += [assignee.email.alias("assignee"), creator.email.alias("creator")]
    tasks = Task.select(*Task.shown_columns(), *names).join(Project, on=(Task.project == Project.id))
    tasks = tasks.join(Milestone, JOIN.LEFT_OUTER, on=(Task.milestone == Milestone.id))
    tasks = tasks.join(assignee, JOIN.LEFT_OUTER, on=(Task.assignee == assignee.id))
    tasks = tasks.join(creator, JOIN.LEFT_OUTER, on=(Task.created_by == creator.id))
    tasks = tasks.where(Task.number > placeholder("last")).order_by(Task.number)
    return Statement(tasks.limit(placeholder("most")))


def write_csv(file: IO[str]) -> None:
    """Write all tasks as CSV, which an import takes."""
    writer = csv.DictWriter(file, EXPORTED)
    writer.writeheader()
    for row in export_rows():
        texts = {"blocked_by": " ".join(map(str, row["blocked_by"]))}
        texts["labels"] = ", ".join(orjson.loads(row["labels"].encode()))
        writer.writerow({name: quoted(value) for name, value in (row | texts).items()})


def write_json_lines(file: IO[str]) -> None:
    """Write each task as a JSON object on a line of its own."""
    for row in export_rows():
        file.write(f"{to_json(row).decode()}\n")
