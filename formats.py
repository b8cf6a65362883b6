"""Exports of other programs: where in each of them the fields of a task are."""

import html
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import schemas
from database import Row, digest
from errors import BadBody
from models import MAX_LABELS, PRIORITIES, STATUSES
from transfer import IMPORTED, Line, cells_of, word_of

# The fields of a task, and the paths to them. In a path `a.b` is the member b of each a; `@lists` the row of
# that list with this id; `actions=data/card/id` its rows that have the task's id there; `^` the whole file.
# Of several paths (|) the first that leads to something counts. Of a comment: author, content and time.
PROGRAMS = {
    "trello": r"""
        tasks: cards|rows   external_id: id|Card ID
        title: name|Card Name   description: desc|Card Description
        status: closed|dueComplete|Archived|Due Complete|idList.@lists.name|List Name
        start_date: start|Start Date   due_date: due|Due Date   project: ^.name|Board Name
        created_at: id|Card ID   completed_at: dateCompleted|dateLastActivity|Last Activity Date
        labels: labels.name|Labels   assignee: idMembers.@members.fullName|Members
        separator: (?: ?\(\w+\))?(?:, ?|$)   checks: checklists=idCard.checkItems
        comments: actions=data/card/id memberCreator.fullName data.text date
        dropped: attachments customFieldItems stickers   words: true=done
    """,
    "todoist": r"""
        tasks: rows   external_id: id   title: CONTENT   description: DESCRIPTION   status: section
        priority: PRIORITY   words: 1=urgent 2=high 3=medium 4=low   due_date: DATE   labels: labels
        assignee: RESPONSIBLE   creator: AUTHOR   separator:  \(\d+\)$   comments: notes
    """,
    "jira": """
        tasks: rows   external_id: Issue key   title: Summary   description: Description   status: Status
        priority: Priority   labels: Labels   due_date: Due date|Due Date   created_at: Created
        completed_at: Resolved   assignee: Assignee   creator: Reporter   project: Project name
        comments: Comment   words: highest=urgent blocker=urgent critical=urgent major=high minor=low
            lowest=low open=todo backlog=todo in_review=review closed=done resolved=done
    """,
    "vikunja": """
        tasks: tasks   external_id: id   title: title   description: description   project: project_id.@.title
        status: done|task_buckets=task_id.bucket_id.@buckets.title|bucket_id.@buckets.title
        priority: priority   words: true=done 1=low 2=medium 3=high 4=urgent 5=urgent   labels: labels.title
        start_date: start_date   due_date: due_date   created_at: created   completed_at: done_at
        assignee: assignees.email|assignees.name|assignees.username
        creator: created_by.email|created_by.name|created_by.username
        comments: comments author.name|author.username comment created
        dropped: attachments related_tasks reminders repeat_after
    """,
    "github": """
        tasks:    external_id: url|number   title: title   description: body   status: state
        words: open=todo closed=done
        labels: labels.name   created_at: createdAt   completed_at: closedAt   milestone: milestone.title
        assignee: assignees.name|assignees.login   creator: author.name|author.login
        comments: comments author.name|author.login body createdAt   dropped: projectItems reactionGroups
    """,
    "planka": """
        tasks: cards   external_id: id   title: name   description: description   project: ^.item.name
        status: isClosed|isDueCompleted|isDueDateCompleted|listId.@lists.name
        labels: cardLabels=cardId.labelId.@labels.name   due_date: dueDate   created_at: createdAt
        assignee: cardMemberships=cardId.userId.@users.email|cardMemberships=cardId.userId.@users.name
        creator: creatorUserId.@users.email|creatorUserId.@users.name
        completed_at: listChangedAt|updatedAt
        checks: taskLists=cardId.tasks=taskListId|tasks=cardId
        comments: comments=cardId userId.@users.name text createdAt
        dropped: attachments=cardId customFieldValues=cardId stopwatch   words: true=done
    """,
}
FIELD = re.compile(r"(\w+): (.*?)(?=   \w+: |\n +\w+: |\s*$)", re.DOTALL)
CHOICES = {"status": STATUSES, "priority": PRIORITIES}
EMPTY = (None, "", False, "false")
CHECKS = {"true": "- [x] ", "false": "- [ ] "}
TIMES = ("%d/%b/%y %I:%M %p", "%d/%b/%y", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y")
LIMITS = {"title": schemas.MAX_TITLE, "description": schemas.MAX_TEXT, "content": schemas.MAX_TEXT}


class Export:
    def __init__(self, program: str, text: str, statuses: dict[str, str]):
        """`statuses` are words for statuses, too. Raises `ValueError` for a file that cannot be read."""
        self.program, self.dropped = program, Counter[str]()  # what is left out, with the number of its tasks
        self.paths = dict(FIELD.findall(PROGRAMS[program]))
        self.words = dict(pair.split("=") for pair in self.paths.get("words", "").split()) | statuses
        self.indexes: dict[tuple[str, str], dict[str, list[Any]]] = {}
        if text.lstrip()[:1] in ("{", "["):
            try:
                self.file = schemas.parse_json(text.encode())
            except BadBody as error:
                raise ValueError(str(error).replace("the body", "the file")) from error
            if isinstance(self.file, dict) and isinstance(self.file.get("included"), dict):
                self.file |= self.file["included"]
        else:
            self.file = {"rows": of_todoist(rows_of(text)) if program == "todoist" else list(rows_of(text))}

    def tasks(self) -> tuple[list[Line], Counter[str]]:
        """The tasks as lines of an import, and what is left out. Raises `ValueError` where there are none."""
        tasks = self.find(self.file, self.paths["tasks"])
        if not any(self.find(task, self.paths["title"]) for task in tasks):
            raise ValueError(f"it has no tasks as {self.program} exports them; see docs/moving.md")
        lines = [
            (f"line {task['line']}" if "line" in task else f"task {number}", self.task(task))
            for number, task in enumerate(tasks, 1)
            if isinstance(task, dict)
        ]
        return lines, self.dropped

    def find(self, item: Any, paths: str) -> list[Any]:
        """The values at the first of these paths that leads to some."""
        for path in paths.split("|"):
            values = item if isinstance(item, list) else [item]
            for step in filter(None, path.split(".")):
                values = [found for value in values for found in self.follow(value, step)]
            if values:
                return values
        return []

    def follow(self, value: Any, step: str) -> list[Any]:
        """What one step of a path leads to."""
        table, is_search, key = step.partition("=")
        found = self.file if step == "^" else value.get(step) if isinstance(value, dict) else None
        if step.startswith("@"):
            found = self.rows(step[1:], "id").get(str(value), [])
        elif is_search and isinstance(value, dict):
            found = self.rows(table, key.replace("/", ".")).get(str(value.get("id")), [])
        return [one for one in (found if isinstance(found, list) else [found]) if one not in EMPTY]

    def rows(self, table: str, key: str) -> dict[str, list[Any]]:
        """The rows of a list in the file by the values that they have there."""
        if (table, key) not in self.indexes:
            index = self.indexes[table, key] = {}
            for row in self.find(self.file, table):
                for value in self.find(row, key):
                    index.setdefault(str(value), []).append(row)
        return self.indexes[table, key]

    def task(self, item: Row) -> Row:
        """The fields of a task, as an import takes them."""
        labels = self.texts(item, "labels")
        task: Row = {"labels": [label[:50] for label in labels[:MAX_LABELS]]}
        self.dropped["labels, more than 10"] += len(labels) > MAX_LABELS
        for name in IMPORTED:
            if name != "labels" and (texts := self.texts(item, name)):
                self.dropped[f"{name}, more than one"] += len(texts) > 1
                task[name] = self.value(name, texts[0])
        checks = [*map(check_of, self.find(item, self.paths.get("checks", "?")))]
        task["description"] = "\n".join(filter(None, [task.get("description"), *checks]))
        path, *parts = self.paths["comments"].split()
        task["comments"] = [*filter(None, (self.comment(one, parts) for one in self.find(item, path)))]
        for path in self.paths.get("dropped", "").split():
            self.dropped[path.partition("=")[0]] += bool(self.find(item, path))
        if "line" in item:  # of CSV
            known = ("line|" + "|".join(self.paths.values())).split("|")
            self.dropped.update(f"column {column}" for column in item if column not in known)
        return {name: value for name, value in task.items() if value}

    def texts(self, item: Row, name: str) -> list[str]:
        """The texts of a field; several labels and people may stand in one cell."""
        is_several = "line" in item and name in ("labels", "assignee", "creator")
        between = self.paths.get("separator") if is_several else None
        values = [str(value) for value in self.find(item, self.paths.get(name, "?"))]
        texts = chain.from_iterable(re.split(between, value) if between else [value] for value in values)
        return [text.strip() for text in texts if text.strip()]

    def value(self, name: str, text: str) -> str | None:
        """The text as an import takes it, or None, where it is left out."""
        value: str | None = " ".join(text.split()) if name == "title" else text
        if choices := CHOICES.get(name):
            word = self.words.get(word_of(text), word_of(text))
            value = word if word in choices else None
        elif name.endswith(("_at", "_date")):
            value = time_of(text)
        elif name == "external_id":
            value = f"{self.program}:{text}"
        elif self.program == "vikunja" and name in LIMITS:
            value = text_of_html(text)
        if value is None:
            self.dropped[f'{name} "{text}"'] += not text.startswith("0001")  # which is no time in Vikunja
        elif value[LIMITS.get(name, len(value)) :]:
            self.dropped[f"the end of a long {name}"] += 1
        return value and value[: LIMITS.get(name)]

    def comment(self, item: Any, paths: list[str]) -> Row | None:
        """A comment as an import takes it; None for something else."""
        if paths:
            author, content, time = (str(next(iter(self.find(item, path)), "")) for path in paths)
        else:
            parts = str(item).split(";", 2)
            is_jira = len(parts) == 3 and time_of(parts[0])
            time, author, content = parts if is_jira else ("", "", str(item))
        comment = {"author": author, "content": self.value("content", content), "created_at": time_of(time)}
        return {name: value for name, value in comment.items() if value} if content.strip() else None


def rows_of(text: str) -> Iterator[Row]:
    """Rows of CSV: what is in each column, of which several may have one name. Raises `ValueError`."""
    lines = cells_of(text)
    columns = [name.strip() for name in next(lines, (1, []))[1]]
    for line, cells in lines:
        row: Row = {}
        if any(map(str.strip, cells[len(columns) :])):  # then its cells are not where their columns are
            raise ValueError(f"line {line}: has more cells than line 1")
        for name, cell in zip(columns, cells, strict=False):
            if name and cell.strip():
                row.setdefault(name, []).append(cell.strip())
        if row:
            yield row | {"line": line}


def of_todoist(rows: Iterator[Row]) -> list[Row]:
    """The tasks of Todoist's rows, each with its section, the notes below it, and an id made of its words."""
    section: list[str] = []
    tasks: list[Row] = []
    times = Counter[str]()
    for row in rows:
        (kind, *_), (content, *_) = row.get("TYPE", [""]), row.get("CONTENT", [""])
        if kind == "section":
            section = [content]
        elif kind == "note" and tasks:
            tasks[-1].setdefault("notes", []).append(content)
        elif kind == "task":
            times[content] += 1
            made = {"section": section, "id": [digest(f"{content} {times[content]}")[:16]]}
            made |= {"labels": re.findall(r"(?<!\S)@(\S+)", content)}
            made |= {"CONTENT": [re.sub(r"\s*(?<!\S)@\S+", "", content).strip() or content]}
            tasks.append(row | made)
    return tasks


def check_of(item: Any) -> str:
    """An item of a checklist as a line of Markdown."""
    item = item if isinstance(item, dict) else {}
    is_done = item.get("state") == "complete" or item.get("isCompleted") is True
    return CHECKS["true" if is_done else "false"] + " ".join(str(item.get("name")).split())


def time_of(text: str) -> str | None:
    """A time that an import takes, or None: of RFC 3339, of a spreadsheet, or in an id of Trello."""
    if schemas.Instant.PATTERN.fullmatch(text):
        return text if text > "1970" else None
    if re.fullmatch("[0-9a-f]{24}", text):
        return datetime.fromtimestamp(int(text[:8], 16), UTC).isoformat()
    for form in TIMES:
        with suppress(ValueError):
            moment = datetime.strptime(text, form).replace(tzinfo=schemas.Instant.zone)
            return (moment if moment.hour or moment.minute else moment.date()).isoformat()
    return None


def text_of_html(text: str) -> str:
    """The text of simple HTML as Markdown, with its lists of things to do."""
    text = re.sub(r'<li[^>]*data-checked="(true|false)"[^>]*>', lambda li: CHECKS[li[1]], text)
    text = re.sub("<li[^>]*>", "- ", text)
    return html.unescape(re.sub("<[^>]*>", "", re.sub("<br[^>]*>|</(?:p|li|h.)>", "\n", text))).strip()
