"""Tasks from other programs as CSV, and tasks for other programs as CSV or JSON lines."""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, Any

from marshmallow import ValidationError
from peewee import JOIN

import schemas
from database import Row, Statement, caseless, placeholder, to_json
from models import Blocker, Invalid, Member, Milestone, Project, Task, Transaction

# The columns that an import knows; an export has others too.
IMPORTED = [
    *["title", "description", "status", "priority", "project", "milestone", "assignee"],
    *["start_date", "due_date", "external_id"],
]
EXPORTED = [
    *["number", *IMPORTED, "creator", "blocked_by", "metadata", "version"],
    *["created_at", "updated_at", "completed_at", "id"],
]
PAGE = 500  # tasks that an export reads at a time


@dataclass
class Report:
    """What an import has done, or would do."""

    done: Counter[str] = field(default_factory=Counter)  # tasks that are new, changed or as they were
    made: list[str] = field(default_factory=list)  # projects and milestones
    dropped: Counter[str] = field(default_factory=Counter)  # what was left out, with the number of its tasks
    problems: list[str] = field(default_factory=list)  # of lines that cannot be taken

    def lines(self) -> Iterator[str]:
        yield from self.problems
        yield from (f"new: {what}" for what in self.made)
        yield from (f"dropped: {what} ({count} tasks)" for what, count in self.dropped.items())
        yield ", ".join(f"{self.done[name]} {name}" for name in ("new", "changed", "unchanged"))


def import_tasks(transaction: Transaction, file: IO[str], project: str | None = None) -> Report:
    """Store each row of a CSV file as a task; `project` is that of rows that name none.

    Columns are found by name, projects and milestones by name or made, people by e-mail. A row with an
    external id changes the task that has it; an empty cell changes nothing.
    """
    report, reader = Report(), csv.DictReader(file)
    projects = {caseless(row["name"]): row["id"] for row in Project.listing()}
    columns = {column: column.strip().lower().replace(" ", "_") for column in reader.fieldnames or []}
    if "title" not in columns.values():
        report.problems.append(f"line 1: there is no column title; known columns: {', '.join(IMPORTED)}")
    for row in reader:
        cells = {columns[name]: text.strip() for name, text in row.items() if name and text and text.strip()}
        for name in cells.keys() - IMPORTED:
            report.dropped[f"column {name}"] += 1
        known = {name: cells[name] for name in IMPORTED if name in cells}
        try:
            _import_row(transaction, {"project": project, **known}, projects, report)
        except (Invalid, ValidationError) as error:
            problems = error.details if isinstance(error, Invalid) else schemas.problems_of(error)
            text = "; ".join(f"{name}: {problem}" for name, problem in problems)
            report.problems.append(f"line {reader.line_num}: {text}")
    return report


def _import_row(transaction: Transaction, cells: Row, projects: dict[str, str], report: Report) -> None:
    """Store a row. Raises `ValidationError` and `Invalid`."""
    if not (name := cells.pop("project")):
        raise Invalid(("project", "is required"))
    if not (project_id := projects.get(caseless(name))):
        project_id = Project.add(transaction, **schemas.CREATE_PROJECT.load({"name": name}))["id"]
        projects[caseless(name)] = project_id
        report.made.append(f"project {name}")
    if title := cells.pop("milestone", None):
        titled = [row for row in Milestone.of(project_id) if caseless(row["title"]) == caseless(title)]
        cells["milestone_id"] = titled[0]["id"] if titled else None
        if not titled:
            fields = schemas.CREATE_MILESTONE.load({"title": title})
            cells["milestone_id"] = Milestone.add(transaction, project_id=project_id, **fields)["id"]
            report.made.append(f"milestone {title} of {name}")
    if email := cells.pop("assignee", None):
        member = Member.by_email.one(email=email.lower())
        if member:
            cells["assignee_id"] = member["id"]
        else:
            report.dropped[f"assignee {email}, who is no member"] += 1
    for choice in cells.keys() & {"status", "priority"}:
        cells[choice] = cells[choice].lower().replace(" ", "_")
    fields = schemas.IMPORT_TASK.load({"project_id": project_id, **cells})
    if external_id := fields.pop("external_id", None):
        _, changes = Task.put(transaction, external_id, **fields)
    else:
        _, changes = Task.add(transaction, **fields), None
    report.done["new" if changes is None else "changed" if changes else "unchanged"] += 1


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
    """Write all tasks as CSV, which `import_tasks` reads."""
    writer = csv.DictWriter(file, EXPORTED)
    writer.writeheader()
    for row in export_rows():
        numbers = " ".join(map(str, row["blocked_by"]))
        writer.writerow(row | {"blocked_by": numbers})


def write_json_lines(file: IO[str]) -> None:
    """Write each task as a JSON object on a line of its own."""
    for row in export_rows():
        file.write(f"{to_json(row).decode()}\n")
