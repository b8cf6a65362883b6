"""A workspace's tasks as files: CSV for spreadsheets, JSON lines with everything that belongs to them."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import IO, Any
from zoneinfo import ZoneInfo

from marshmallow import Schema, ValidationError
from marshmallow.fields import Nested
from peewee import JOIN, fn

import models
import schemas
import strictjson
import times
from database import Row, Statement, caseless, columns, digest, json_object, placeholder, statement, to_json
from errors import ApiError, Invalid
from members import Member, Transaction, differences
from models import HIDDEN, Attachment, Comment, Milestone, Project, Task
from parts.attachments import AttachmentContent, attach
from parts.blockers import Blocker
from parts.resources import MilestoneInput
from settings import read_file

# The columns that an import reads.
IMPORTED = [
    *["title", "description", "status", "priority", "project", "milestone", "assignee"],
    *["start_date", "due_date", "labels", "external_id", "creator", "blocked_by", "metadata"],
    *["repeat", "repeat_from", "repeats", "created_at", "completed_at", "id", "number"],
]
OWN = ["version", "updated_at"]  # exported, and ignored by an import: each workspace has its own
CHOICES: dict[str, tuple[str, ...]] = {"status": models.STATUSES, "priority": models.PRIORITIES}
ONLY_NEW = ("id", "number", "rank", "repeats", "created_at", "created_by")  # set for a new task only
EXPORTED = ["number", *IMPORTED[:-1], *OWN]
TIMES = ("_at", "_date")  # ends of the names of fields that contain a time
EXPORT_PAGE = 500  # tasks that an export reads at a time
# A task's number in a text, where the page makes it a link (`NUMBER` in markdown.js); in code it makes none.
REFERENCE = re.compile(r"```.*?```|`[^`\n]*`|(?<![^\W_])(?<![#&/\\])#(\d{1,9})(?![^\W_])", re.DOTALL)
# A cell that a spreadsheet would run as a formula, also after the apostrophes of earlier exports.
FORMULA = re.compile(r"'*[=+\-@\t\r]")

csv.field_size_limit(2**31 - 1)  # a long text is cut and reported, as in JSON, or refused by its field
Words = dict[str, dict[str, str]]  # by field, the meaning of other words for statuses and priorities
Line = tuple[str, Row]  # its name, such as "line 2", and its fields


@dataclass
class Report:
    done: dict[str, int] = field(default_factory=dict)  # tasks that are new, changed or as they were
    made: list[str] = field(default_factory=list)  # projects and milestones
    # All that was left out, by its name and kind of line: how many lines, the last of them, and an example.
    dropped: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # of lines that cannot be imported

    def drop(self, what: str, line: str, noun: str = "task", example: str = "") -> None:
        """Report that `what` of this line is left out; a line counts once."""
        dropped = self.dropped.setdefault((what, noun), [0, "", example[:100]])
        if dropped[1] != line:
            dropped[:2] = dropped[0] + 1, line

    def lines(self) -> Iterator[str]:
        yield from self.problems
        yield from self.made
        for (what, noun), (count, _, example) in self.dropped.items():
            such = f', such as "{example}"' if example else ""
            yield f"dropped: {what}{such} ({count} {noun}{'s' * (count > 1)})"
        yield ", ".join(f"{count} {name}" for name, count in self.done.items())


# The first letters of months, in the languages in which programs and spreadsheets write them.
_MONTHS = "jan ene gen sty jän|feb fév fev lut|mar mär mrt|apr abr avr kwi|may mai mag mei maj|jun juin giu"
_MONTHS += " cze|jul juil lug lip|aug ago aoû sie|sep set wrz|oct okt ott out paź|nov lis|dec dez dic déc gru"
MONTHS = {word: month for month, words in enumerate(_MONTHS.split("|"), 1) for word in words.split()}


class Dates:
    """Reads dates as people and programs write them: 31.12.2026, 12/Mar/26 9:41 AM, Oct 5 2026 at 10:00.

    `order` is "dmy", "mdy" or None. Without one, `texts` yields all dates of the file, which may show it.
    """

    PART, GAP = r"(\d+|[^\W\d_]+)", r"(?:\.? |, |[./-])"  # of a date; a weekday before it is skipped
    OFFSET = r"(?: ?(?=[A-Z+-])(Z|GMT|UTC|[ECMP][SD]T)?(?:([+-]\d\d?)(?::?(\d\d))?)?(?: \(.*\))?)?"
    DATE = re.compile(rf"(?:[^\W\d_]+\.?,? (?=(?:\d+\.? )?[^\W\d_]))?{PART}{GAP}{PART}{GAP}(\d+)")
    CLOCK = re.compile(rf"(?:,? (?:at )?|T)(\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?: ?([AaPp])[Mm])?{OFFSET}|")
    SLASHED = re.compile(r"(\d\d?)[/-](\d\d?)[/-]\d")

    def __init__(self, order: str | None, texts: Callable[[], Iterator[str]]):
        self.given, self.texts = order, texts

    @cached_property
    def order(self) -> str | None:
        """The order of day and month in dates with slashes, or None if that is unclear."""
        found = [(int(date[1]), int(date[2])) for date in map(self.SLASHED.match, self.texts()) if date]
        dates = [date for date in found if min(date) < 13]  # others are not dates
        orders = [order for at, order in enumerate(("mdy", "dmy")) if all(date[at] < 13 for date in dates)]
        is_clear = len(orders) == 1 or all(a == b for a, b in dates)
        return self.given or (orders[0] if orders and is_clear else None)

    def read(self, text: str, where: str, zone: str = "") -> str | None:
        """Return the date or time as the API accepts it, or None. Raises `ValueError` if it is ambiguous."""
        text = " ".join(text.split())  # there may be a narrow no-break space before PM
        iso = schemas.Instant.PATTERN.fullmatch(text)
        if iso and (iso[5] or not iso[2] or text < "1970"):  # the API would read a time without a zone as UTC
            return text if text > "1970" else None
        if len(text) == 24 and re.fullmatch("[0-9a-f]{24}", text):  # a Trello id begins with its time
            return datetime.fromtimestamp(int(text[:8], 16), UTC).isoformat()
        if re.fullmatch(r"\d{12,13}", text):  # in ClickUp, four o'clock stands for the whole day
            moment = times.local(text := times.wire_time(int(text)))
            return moment.date().isoformat() if f"{moment:%H%M%S%f}" == "040000000000" else text
        date = self.DATE.match(text)
        clock = self.CLOCK.fullmatch(text, date.end()) if date else None
        if not date or not clock:
            return None
        order = "mdy" if date[1].isalpha() else "ymd" if len(date[1]) == 4 else "dmy"
        if self.SLASHED.match(text) and not (order := self.order or ""):
            choice = "add --dates dmy or --dates mdy"
            raise ValueError(f'{where}: "{text}" may begin with the day or the month; {choice}')
        part = dict(zip(order, date.groups(), strict=True))
        month, (hour, minute, second) = part["m"].lower(), (int(clock[at] or 0) for at in (1, 2, 3))
        if clock[4]:
            hour = hour % 12 + 12 * (clock[4] in "pP")
        tz = times.zone
        with suppress(ValueError, KeyError, OSError):
            tz = ZoneInfo(zone) if zone else tz
        with suppress(ValueError, KeyError, OverflowError):
            number = MONTHS.get(month[:4]) or MONTHS.get(month[:3]) or int(month)
            year = int(part["y"]) + {2: 2000, 4: 0}[len(part["y"])]
            moment = datetime(year, number, int(part["d"]), hour, minute, second, tzinfo=tz)
            if clock[5] or clock[6]:
                hours, minutes = int(clock[6] or 0), int(f"{(clock[6] or '+')[0]}{clock[7] or 0}")
                if clock[5] and clock[5][1:] in ("ST", "DT"):  # of the United States
                    hours = (clock[5][1] == "D") - 5 - "ECMP".index(clock[5][0])
                offset = timezone(timedelta(hours=hours, minutes=minutes))
                moment = moment.replace(tzinfo=offset).astimezone(times.zone)
            text = (moment if moment.hour or moment.minute else moment.date()).isoformat()
            return text if text > "1970" else None
        return None


# Reading --------------------------------------------------------------------------------------


def read(text: str, words: Words, order: str | None, names: dict[str, str]) -> list[Line]:
    """Return the lines of JSON lines, or of CSV: `order` is as of `Dates`, `names` as of `columns_of`."""
    lines = list(read_json_lines(text)) if is_json(text) else read_csv(text, order, names)
    for name, values in words.items():
        for _, fields in lines if values else ():
            if isinstance(word := fields.get(name), str):
                fields[name] = values.get(word_of(word), word)
    return lines


def is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def decoded(data: bytes) -> str:
    """Return the text of a file in UTF-8, UTF-16 with a byte order mark, or cp1252. Raises `ValueError`."""
    for encoding in ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252"):
        with suppress(UnicodeDecodeError):
            return data.decode(encoding)
    raise ValueError("the file is not in UTF-8; save it as such")


def read_json_lines(text: str) -> Iterator[Line]:
    """Yield each line that is not blank. Raises `ValueError`."""
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                yield f"line {number}", strictjson.load_json(line.encode())
        except (ApiError, ValidationError) as error:
            problem = f"line {number}: must be one JSON object in one line ({error})"
            raise ValueError(f"{problem}; for another program's export add --from") from error


def cells_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each row's first line, and its cells. Raises `ValueError`."""
    head, _, rest = text.partition("\n")
    delimiter, line = max(",;\t", key=head.count), 1
    if named := re.fullmatch("sep=(.)\r?", head):  # Excel's own line, before the columns
        delimiter, text, line = named[1], rest, 2
    form: dict[str, Any] = {"delimiter": delimiter, "skipinitialspace": f"{delimiter} " in head}
    reader, offset = csv.reader(io.StringIO(text, newline=""), strict=True, **form), line
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + offset
    except csv.Error as error:
        raise ValueError(f"line {line}: {error}") from error


def columns_of(cells: list[str], names: dict[str, str], accepted: Iterable[str]) -> list[str]:
    """Return the names of columns as `accepted` spells them; one without a name gets one for the report.

    `names` are those to give to columns, by what the file calls them. Raises `ValueError`.
    """
    known = {column_of(name): name for name in accepted}
    renamed = {column_of(name): known.get(column_of(new), "") for name, new in names.items()}
    found = [name.strip() or f"{number}, which has no name" for number, name in enumerate(cells, 1)]
    for name, new in names.items():
        if column_of(new) not in known:
            raise ValueError(f'--column: "{new}" is not one of the columns {", ".join(known.values())}')
        if column_of(name) not in map(column_of, found):
            raise ValueError(f'--column: the file has no "{name}"; found: {", ".join(found)[:300]}')
    plain = {name: f'"{new}"' if new in renamed.values() else new for name, new in known.items()}
    return [{**plain, **renamed}.get(column_of(name), name) for name in found]


def column_of(name: str) -> str:
    return caseless(name.strip()).replace(" ", "_")


def read_csv(text: str, order: str | None, names: dict[str, str]) -> list[Line]:
    """Return the rows without their empty cells. Raises `ValueError` with a line for each problem."""
    rows = cells_of(text)
    columns = columns_of([*map(column_of, next(rows, (1, []))[1])], names, IMPORTED)
    columns = [f'"{name}"' if name in ONLY_JSON else name for name in columns]  # reported as left out
    lines, problems = list[Line](), list[str]()
    if "title" not in columns:
        accepted, found = ", ".join(IMPORTED), ", ".join(columns[:20])[:300] or "none"
        how = f'--column "Their name=title" says which column it is; accepted columns: {accepted}'
        problems.append(f"line 1: column title is missing; {how}; found: {found}")
    problems += [f"line 1: several columns {name}" for name in EXPORTED if columns.count(name) > 1]
    timed = [name for name in IMPORTED if name in columns and name.endswith(TIMES)]
    dates = Dates(order, lambda: (cells[name] for _, cells in lines for name in timed if name in cells))
    try:
        for line, texts in rows:
            if any(map(str.strip, texts[len(columns) :])):
                problems.append(f"line {line}: has more cells than line 1")
            cells = {
                name: CELLS.get(name, str)(unquoted(text if name == "description" else text.strip()))
                for name, text in zip(columns, texts, strict=False)
                if text.strip()
            }
            if cells:
                lines.append((f"line {line}", cells))
        for line_name, cells in lines:
            for name in filter(cells.__contains__, timed):
                cells[name] = dates.read(cells[name], f"{line_name}: {name}") or cells[name]
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return lines


def unquoted(cell: str) -> str:
    """Return the cell without the apostrophe that `quoted` puts before formulas."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def quoted(value: Any) -> Any:
    """Return the value of a cell, with an apostrophe before what a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def word_of(cell: str) -> str:
    """Return the API's word for a cell, such as `in_progress` for "In Progress!"."""
    word = re.sub(r"[\W_]+", "_", cell.lower()).strip("_") or cell.strip()
    return "todo" if word == "to_do" else word


def json_of(cell: str) -> Any:
    """Return the JSON value in a cell, or the cell if it is not JSON."""
    with suppress(ApiError):
        return strictjson.parse_json(cell.encode())
    return cell


# How to read cells that contain something other than text.
CELLS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("status", "priority", "repeat_from"), word_of),
    **dict.fromkeys(("number", "metadata", "repeats"), json_of),
    "labels": lambda cell: json_of(cell) if cell.startswith("[") else re.findall(r"[^,;\s][^,;]*", cell),
    "blocked_by": lambda cell: json_of(f"[{','.join(cell.split())}]"),
}


# Storing --------------------------------------------------------------------------------------


class Import:
    """Stores lines as projects, milestones and tasks, and finds by id or name what they refer to."""

    def __init__(self, lines: list[Line], report: Report, former: dict[str, str] | None, **options: Any):
        """Check the lines; this takes long, and needs no write lock.

        `former` contains the external ids that version 1.2 gave to tasks of another program, by the present
        ones. It is None for a file of this service. The options are the `project` of lines that name none,
        the folder `files` with the attachments, and the `most` bytes that an attachment may have.
        """
        self.report, self.former = report, former
        self.project, self.files, self.most = options["project"], options["files"], options["most"]
        self.lines: list[tuple[str, str, Row]] = []  # the name, the kind and the checked fields of each
        for line, fields in lines:
            kind = fields.pop("kind", "task")
            with self.problems_noted(line):
                if kind not in [*IMPORTS]:
                    raise Invalid(("kind", f"must be one of {', '.join(IMPORTS)}"))
                schema = IMPORTS[kind]
                for name in [name for name in fields if name not in schema.fields]:
                    del fields[name]
                    if name not in OWN:
                        self.report.drop(f"column {name}", line, kind)
                if fields.get("completed_at") and "status" not in fields and kind == "task":
                    fields["status"] = "done"
                self.lines.append((line, kind, schema.load(fields)))

    @contextmanager
    def problems_noted(self, line: str) -> Iterator[None]:
        """Report why a line cannot be imported."""
        try:
            yield
        except (Invalid, ValidationError) as error:
            problems = error.details if isinstance(error, Invalid) else schemas.problems_of(error)
            text = "; ".join(f"{name}: {problem}" for name, problem in problems)
            self.report.problems.append(f"{line}: {text}")

    def store(self, transaction: Transaction) -> Report:
        """Store each line or report why it cannot be stored, and return the report.

        A line changes the task with its id, external id or number, or the project or milestone with its id or
        name. Fields that the line does not contain stay as they are.
        """
        self.transaction, people = transaction, Member.everyone()
        transaction.notifies = False
        self.members = grouped((caseless(row["full_name"]), row["id"]) for row in people)
        self.members |= grouped((caseless(row["email"]), row["id"]) for row in people)
        places = chain(_exported()["project"].all(), _exported()["milestone"].all())
        self.places = grouped((name_of(row), row["id"]) for row in places)
        self.numbers: dict[Any, int] = {}  # of tasks here, by their numbers in the file
        self.tasks: dict[str, str] = {}  # the lines of tasks, by their ids
        self.new, self.changed = set[str](), set[str]()  # ids of tasks
        self.later: list[tuple[str, Callable[[], Any]]] = []  # steps that need all tasks, with their lines
        if self.former is not None:
            self.settle_numbers()
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
        unchanged = self.tasks.keys() - self.new - changed
        self.report.done = {"new": len(self.new), "changed": len(changed), "unchanged": len(unchanged)}
        return self.report

    def store_place(self, line: str, table: Any, fields: Row) -> None:
        """Add the project or milestone of a line, or change the one with its id or else its name."""
        of = {"project_id": self.place(Project, fields)} if table is Milestone else {}
        self.find_member(line, fields, "owner", "owner_id", "project")
        is_archived = fields.get("status") == "archived" and fields.pop("status")
        id: Any = fields.get("id")
        if not id and name_of(fields | of) in self.places:
            id = self.place(table, {table.NOUN: fields[table.TITLE]}, **of)
        if row := table.stored_row.one(id=id):
            fields = {name: value for name, value in fields.items() if name not in ONLY_NEW}
            if differences(row, fields):
                table.edit(self.transaction, id, fields)
                self.report.made.append(f"changed: {table.NOUN} {fields[table.TITLE]}")
        else:
            id = self.add(table, fields | of)
        if is_archived:  # then it takes no new tasks
            self.later.append((line, lambda: Project.edit(self.transaction, id, {"status": "archived"})))

    def add(self, table: Any, fields: Row) -> str:
        row = table.add(self.transaction, **fields)
        of = f" of {Project.stored(row['project_id'])['name']}" if table is Milestone else ""
        self.report.made.append(f"new: {table.NOUN} {row[table.TITLE]}{of}")
        self.places.setdefault(name_of(row), []).append(row["id"])
        return row["id"]

    def place(self, table: Any, fields: Row, own: str | None = None, **of: str) -> Any:
        """Return the id of the project or milestone that a line names, which is added if it is missing.

        `own` is the one that the task has; it stays if the line names no project, or repeats its name.
        """
        id, name = (fields.pop(key, None) for key in (f"{table.NOUN}_id", table.NOUN))
        if id and table.stored_row.one(id=id):
            return id
        if table is Project and not own and not (name := name or self.project):
            raise Invalid(("project", "is required"))
        if not name:
            return own if table is Project else None
        if own and caseless(table.stored(own)[table.TITLE]) == caseless(name):
            return own
        new = IMPORTS[table.NOUN].load({table.TITLE: name}) | of
        ids = self.places.get(name_of(new)) or [self.add(table, new)]
        if len(ids) > 1:
            ids = [id for id in ids if table.stored(id).get("status") != "archived"] or ids
        if len(ids) > 1:
            raise Invalid((table.NOUN, f"is the name of {len(ids)}; rename all but one of them"))
        return ids[0]

    def find_member(self, line: str, fields: Row, role: str, column: str, noun: str = "task") -> None:
        """Replace an e-mail address or full name by the member's id, or report that no member has it."""
        if role in fields:
            who = fields.pop(role)
            ids = self.members.get(caseless(who), []) if who else [None]
            if len(ids) == 1:
                fields[column] = ids[0]
            else:
                self.report.drop(f"{role} {who}, who is not a member", line, noun)

    def stored_task(self, *, id: str = "", external_id: str = "", number: int = 0, **_: Any) -> Any:
        """Return the task with this id or else external id; the number counts if a line has neither."""
        if task := Task.stored_row.one(id=id):
            return task
        by_number = None if id or external_id else Task.by_number.value(number=number)
        return Task.stored_row.one(id=Task.by_external_id.value(external_id=external_id) or by_number)

    def settle_numbers(self) -> None:
        """Let `#12` in another program's texts lead to the task that has this number there, or be plain text.

        Tasks whose numbers are taken are stored last, so that they take no other task's number.
        """
        counts = Counter(fields["number"] for _, _, fields in self.lines if "number" in fields)
        taken = {number for number, count in counts.items() if count > 1}
        for _, _, fields in self.lines:
            if number := fields.get("number"):
                task = self.stored_task(external_id=fields["external_id"])
                if task["number"] != number if task else Task.by_number.value(number=number):
                    taken.add(number)
        self.lines.sort(key=lambda line: line[2].get("number") in taken)
        right = counts.keys() - taken
        for _, _, fields in self.lines:
            texts = [(fields, "description"), *((one, "content") for one in fields.get("comments", ()))]
            for row, name in texts:
                if "#" in (row.get(name) or ""):
                    row[name] = REFERENCE.sub(
                        lambda ref: ref[0] if not ref[1] or int(ref[1]) in right else f"\\{ref[0]}", row[name]
                    )

    def store_task(self, line: str, fields: Row) -> None:
        """Add or change the task of a line. Raises `ValidationError` and `Invalid`."""
        task, number = self.stored_task(**fields), fields.get("number")
        if task and task["id"] in self.tasks:
            name = next(name for name in ("id", "external_id", "number") if fields.get(name))
            raise Invalid((name, f"is the same as in {self.tasks[task['id']]}"))
        own: Row = task or {}
        self.find_member(line, fields, "assignee", "assignee_id")
        self.find_member(line, fields, "creator", "created_by")
        project_id = self.place(Project, fields, own.get("project_id"))
        assignee = Member.stored_row.one(id=fields.get("assignee_id") or "")
        if assignee and not Member.sees(assignee, project_id):
            self.report.drop(f"assignee {assignee['email']}, a client who does not see the project", line)
            del fields["assignee_id"]
        if not task and self.former:
            former = self.stored_task(external_id=self.former.get(fields.get("external_id", ""), ""))
            if former and former["project_id"] == project_id:
                task = own = former
        if fields.keys() & {"milestone", "milestone_id"}:
            own_id = own.get("milestone_id")
            fields["milestone_id"] = self.place(Milestone, fields, own_id, project_id=project_id)
        if fields.get("status", "") is None:  # it is open; the file does not say which status
            fields["status"] = "todo" if own.get("status", "done") == "done" else own["status"]
        stays = fields.get("status") == "done" and fields.get("completed_at")
        if not stays and fields.pop("completed_at", None):
            self.report.drop("completed_at of a task that is not done", line)
        start, due, rule = ((own | fields).get(name) for name in ("start_date", "due_date", "repeat"))
        misfits = {"start_date": start and due and start > due, "repeat": rule and not due}
        for name in filter(misfits.get, misfits if self.former is not None else ()):
            self.report.drop(f"{name} that does not fit the due date", line)
            fields[name] = None
        fields["project_id"] = project_id
        made = {name: fields.pop(name) for name in ONLY_NEW if name in fields}
        blockers, *parts = (fields.pop(name, None) for name in ("blocked_by", "comments", "attachments"))
        if task:
            task, changes = Task.edit(self.transaction, task["id"], fields, None)
            if changes:
                self.changed.add(task["id"])
        else:
            if number and Task.by_number.value(number=number):
                self.report.drop("number, which another task has", line)
                del made["number"]
            if "repeats" in made:  # the number of a task in an earlier line
                made["repeats"] = self.numbers.get(made["repeats"])
            if "number" not in made:  # another task here may have the rank that goes with it
                made.pop("rank", None)
            task = Task.add(self.transaction, **fields, **made)
            self.new.add(task["id"])
        self.tasks[task["id"]] = line
        if number:
            self.numbers[number] = task["number"]
        if blockers or (blockers is not None and own):
            self.later.append((line, lambda: self.block(task["id"], blockers)))
        if parts[0]:
            self.store_comments(line, task, parts[0])
        for part in parts[1] or ():
            self.add_file(line, task, part)

    def block(self, id: str, blockers: list[int | str]) -> None:
        """Let these tasks block this one; their numbers are those in the file, or else those here."""
        fields = {"blocked_by": [self.numbers.get(one, one) for one in blockers]}
        if Task.edit(self.transaction, id, fields, None)[1]:
            self.changed.add(id)

    @statement
    def stored_comments(_: Any):
        rows = Comment.select(Comment.id, Comment.content, Comment.created_at)
        return rows.where(Comment.task == placeholder("task_id")).order_by(Comment.id)

    def store_comments(self, line: str, task: Row, comments: list[Row]) -> None:
        """Add the comments that the task does not have, and change those that were edited.

        A comment without an id is the stored one of the same time and content. In another program's file,
        which contains all comments, it may also be an edited one of the same time. The id of a new comment is
        the same in each import.
        """
        stored = [] if task["id"] in self.new else self.stored_comments.all(task_id=task["id"])
        left = {row["id"]: row for row in stored}
        counts = Counter[Any]()  # of comments by their times
        for comment in comments:
            content, author = comment.pop("content"), comment.pop("author", "")
            at: Any = comment.setdefault("created_at", task["created_at"])
            if author:
                comment["author"] = author
                self.find_member(line, comment, "author", "author_id")
            is_named = "author_id" in comment or author == ""
            text = content if is_named else f"{author or 'Somebody'} wrote:\n\n{content}"
            if text[schemas.MAX_TEXT :]:
                self.report.drop("the end of a long comment", line)
                text = text[: schemas.MAX_TEXT]
            row = left.get(comment.get("id", ""))
            if "id" not in comment:
                same = [one for one in left.values() if one["created_at"] == at]
                equal = [one for one in same if one["content"] in (content, text)]
                row = next(iter(equal or (same if self.former is not None else ())), None)
                start, end = times.first_id(at), digest(task["id"] + content)[:12]
                comment["id"] = f"{start[:15]}{counts[at] & 0xFFF:03x}{start[18:24]}{end}"
                counts[at] += 1
            elif not row and Comment.stored_row.one(id=comment["id"]):
                self.report.drop("comment with the id of another one", line)
                continue
            if row and left.pop(row["id"])["content"] in (content, text):
                continue
            if row:
                changed = {name: comment[name] for name in ("author_id", "edited_at") if name in comment}
                row = Comment.of_task(task["id"], row["id"])
                Comment.rewrite(self.transaction, row, content=text, **changed)
            else:
                Comment.store(self.transaction, task, text, **comment)
            self.changed.add(task["id"])

    def add_file(self, line: str, task: Row, described: Row) -> None:
        """Add an attachment that the task does not have. Raises `Invalid` if its file cannot be read."""
        if (row := Attachment.stored_row.one(id=described["id"])) and row["task_id"]:
            return
        if self.files is None:
            self.report.drop("attachment, which needs --files", line)
            return
        try:
            data, _ = read_file(self.files / described["id"], self.most)
        except OSError as error:
            raise Invalid(("attachments", f"{error.filename}: {error.strerror}")) from error
        self.find_member(line, described, "creator", "created_by")
        attach(self.transaction, task["id"], data=data, **described)
        self.changed.add(task["id"])


def grouped(named: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    """Return the ids by their names, which several ids may share."""
    ids: dict[Any, list[str]] = {}
    for name, id in named:
        ids.setdefault(name, []).append(id)
    return ids


def name_of(row: Row) -> tuple[str | None, str]:
    """Return the key by which a project, or a milestone of one, is found."""
    return row.get("project_id"), caseless(row.get("name") or row["title"])


# Writing --------------------------------------------------------------------------------------


def exported_tasks() -> Iterator[Row]:
    """Yield all tasks in the order of their numbers, with names, blockers, comments and attachments."""
    last = 0
    while tasks := _exported()["task"].all(last=last, most=EXPORT_PAGE):
        last = tasks[-1]["number"]
        yield from tasks


@lru_cache(maxsize=1)
def _exported() -> dict[str, Statement]:
    """Return the queries of an export by the kinds of its lines."""
    assignee, creator = Member.alias("assignee"), Member.alias("creator")
    projects = Project.select(*columns(Project, "owner_id", "updated_at"), Member.email.alias("owner"))
    milestones = Milestone.select(*columns(Milestone, "updated_at"), Project.name.alias("project"))
    blockers = Blocker.select(fn.JSON_GROUP_ARRAY(Blocker.blocker)).where(Blocker.task == Task.number)
    names: list[Any] = [Project.name.alias("project"), Milestone.title.alias("milestone")]
    names += [assignee.email.alias("assignee"), creator.email.alias("creator")]
    names += [fn.JSON(blockers).alias("blocked_by")]
    names += [_listed(Comment, Comment.author, "author", "id content created_at edited_at")]
    names += [_listed(Attachment, Attachment.created_by, "creator", "id filename content_type created_at")]
    hidden = ("claimed_until", "question_id", "checks", "tries", "assignee_id", "created_by")
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
    """Return a column with the task's rows of a table as JSON; the address of `member` is named `role`."""
    shown = {name: getattr(table, name) for name in names.split()} | {role: Member.email}
    rows = table.select(fn.JSON_GROUP_ARRAY(json_object(shown))).where(table.task == Task.id)
    return fn.JSON(rows.join(Member, JOIN.LEFT_OUTER, on=(member == Member.id))).alias(f"{table.NOUN}s")


def spreadsheet_time(time: str | None, ends_day: bool) -> str | None:
    """Return a time as spreadsheets recognise it, in the workspace's time zone, if an import reads the same.

    It is a date if the day begins then or, with `ends_day`, ends then; otherwise a time in minutes.
    """
    if not time or not "1971" < time < "9999":
        return time
    moment = times.local(time)
    text = moment.isoformat(" ", "milliseconds")[:23]
    if text[11:] == ("23:59:59.999" if ends_day else "00:00:00.000"):
        # If clocks are set back at midnight, this time comes twice.
        return text[:10] if moment.utcoffset() == moment.replace(fold=ends_day).utcoffset() else time
    is_whole = text[16:] == ":00.000" and text[11:16] != "00:00" and not moment.fold
    return text[:16] if is_whole else time


def write_csv(file: IO[str]) -> None:
    file.write("\ufeff")  # without it, Excel reads the file in the code page of its computer
    writer, date = csv.writer(file), lru_cache(maxsize=1000)(spreadsheet_time)
    writer.writerow(EXPORTED)
    for row in exported_tasks():
        labels = row["labels"]
        row["blocked_by"] = " ".join(map(str, row["blocked_by"]))
        row["labels"] = to_json(labels).decode() if {*",;"} & {*"".join(labels)} else ", ".join(labels)
        row["start_date"], row["due_date"] = date(row["start_date"], False), date(row["due_date"], True)
        writer.writerow([quoted(row[name]) for name in EXPORTED])


def write_json_lines(file: IO[str], files: Path | None = None) -> None:
    """Write projects, milestones and tasks, each as a line, and attachments to the folder `files`."""
    rows = ((kind, row) for kind in ("project", "milestone") for row in _exported()[kind].all())
    for kind, row in chain(rows, (("task", task) for task in exported_tasks())):
        file.write(f"{to_json({'kind': kind} | row).decode()}\n")
        for attachment in row.get("attachments", ()) if files else ():
            (files / attachment["id"]).write_bytes(AttachmentContent.of_attachment.value(id=attachment["id"]))


def _check_past(time: str) -> None:
    # The filters `created_since` and `completed_since` rely on it: a last change is not before these times.
    if time > times.now():
        raise ValidationError("must not be in the future; check its time zone")


# Lines of an import also contain fields that the service makes itself, and names instead of ids.
_made: dict[str, Any] = {"id": schemas.Id(), "created_at": schemas.Instant(validate=_check_past)}
_time = schemas.Instant(allow_none=True, validate=_check_past)
_person = schemas.Text(schemas.MAX_TITLE)  # an address, or a whole name
_name = schemas.Text(schemas.MAX_TITLE, allow_none=True)
_named: dict[str, Any] = {"project": _name, "project_id": schemas.Id()}
_comment = _made | {"author": _name, "edited_at": _time}
_comment |= {"content": schemas.Text(schemas.MAX_TEXT, lines=True, required=True)}
_file = _made | {"id": schemas.Id(required=True), "filename": schemas.Name(255, required=True)}
_file |= {"content_type": schemas.matching("[!-~]{1,200}", "a media type", required=True), "creator": _person}
_task = _made | _named | {"creator": _person, "milestone": _name, "assignee": _name, "completed_at": _time}
for _field, _words in CHOICES.items():  # null is an open status, and the default priority
    _hint = f'; --{_field} "Their word={_words[1]}" says what another word means'
    _task[_field] = schemas.Choice(_words, _hint, allow_none=True)
_task |= {
    "number": schemas.JSONInteger(1, 999_999_999),
    "repeats": schemas.JSONInteger(1, 999_999_999, allow_none=True),
    "rank": schemas.matching("[1-8][0-9]{9,39}", "digits as an export has them"),
    "attachments": schemas.ListOf(Nested(schemas.Strict.from_dict(_file)), "files"),
    "comments": schemas.ListOf(Nested(schemas.Strict.from_dict(_comment)), "comments"),
}
IMPORTS: dict[str, Schema] = {
    "project": schemas.ProjectInput.from_dict({**_made, "owner": _person})(exclude=["owner_id"]),
    "milestone": MilestoneInput.from_dict(_made | _named | {"closed_at": _time})(exclude=["closed"]),
    "task": schemas.TaskInput.from_dict(_task)(exclude=["assignee_id"]),
}
ONLY_JSON = {"kind", *IMPORTS["task"].fields} - {*EXPORTED}  # read from JSON lines, not from CSV
