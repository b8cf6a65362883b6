"""Reads the exports of other programs as lines of an import; `exports.toml` says where each keeps what."""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import schemas
import strictjson
from database import Row, caseless, digest
from errors import BadBody
from models import MAX_LABELS
from parts import transfer
from parts.repeats import next_dates
from parts.transfer import Dates, Line, Report, Words
from times import local, now

PROGRAMS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("exports.toml").read_text())
SPECIAL = {"status", "labels", "external_id", "id", "number"}  # fields with rules of their own
FIELDS = [name for name in transfer.IMPORTED if name not in SPECIAL]
# The fields that a later export clears, if its program has them and a task has none.
CLEARED = ("description", "priority", "milestone", "assignee", "start_date", "due_date")
LIMITS = {"description": schemas.MAX_TEXT, "content": schemas.MAX_TEXT, "title": schemas.MAX_TITLE}
LIMITS |= {"milestone": schemas.MAX_TITLE, "project": 200, "name": 200, "label": 50}
SINGLE_LINE = {*LIMITS} - {"description", "content"}
ENGLISH = "switch the program to English and export again"


class Export:
    """A file of another program: its tasks, projects and milestones, and a report of what is left out."""

    def __init__(self, program: str, text: str, words: Words, order: str | None, names: Any, project: Any):
        """Read the file. `words`, `order` and `names` are as in `transfer.read`. Raises `ValueError`."""
        self.program, self.project, self.report, self.line = program, project, Report(), ""
        self.paths = defaultdict(lambda: "?", PROGRAMS[program])
        self.words = {name: self.paths.get("words", {}) | words[name] for name in words}
        self.dates = Dates(order or self.paths.get("dates"), self.date_texts)
        self.indexes: dict[tuple[str, str], dict[str, list[Any]]] = {}
        self.names: dict[str, str] = {}  # of people, by the ids and logins that the file explains
        self.former: dict[str, str] = {}  # the external ids that version 1.2 gave, by the present ones
        self.columns: list[str] = []  # of CSV
        self.unread, self.unread_dates = set[str](), list[str]()  # columns, and dates of the present task
        if transfer.is_json(text):
            try:
                self.file = strictjson.parse_json(text.encode())
            except BadBody as error:
                raise ValueError(str(error).replace("the body", "the file")) from error
            if isinstance(self.file, list) and all(isinstance(page, list) for page in self.file):
                self.file = [*chain(*self.file)]  # as `gh api --slurp` writes pages
            if isinstance(self.file, dict) and isinstance(self.file.get("included"), dict):
                self.file |= self.file["included"]
        else:
            cells, parts = transfer.cells_of(text), self.paths.get("dropped", {}).values()
            texts = [path for path in chain(self.paths.values(), parts) if isinstance(path, str)]
            paths = {*"|".join(texts).split("|"), *self.paths.get("silent", ())}
            accepted = sorted(path for path in paths if path[:1].isupper())
            self.columns = transfer.columns_of(next(cells, (1, []))[1], names, accepted)
            self.unread = {*self.columns}.difference(paths)
            rows = rows_of(cells, self.columns, self.paths)
            self.file = {"rows": [*(self.of_todoist(rows) if program == "todoist" else rows)]}

    def drop(self, what: str, noun: str = "task", example: str = "") -> None:
        self.report.drop(what, self.line, noun, example)

    def tasks(self) -> list[tuple[str, Row]]:
        """Return the tasks in the order of the program's lists, each with its name in a report."""
        tasks = [task for task in self.find(self.file, self.paths["tasks"]) if isinstance(task, dict)]
        named = [
            (f"line {task.get('line')}" if self.columns else f"task {number} (id {self.id_of(task)})", task)
            for number, task in enumerate(tasks, 1)
        ]
        if path := self.paths.get("list"):
            named.sort(key=lambda one: (position_of(*self.find(one[1], path)[:1]), position_of(one[1])))
        return named

    def lines(self) -> list[Line]:
        """Return the lines of an import. Raises `ValueError` if there are no tasks."""
        named = self.tasks()
        tasks = [task for _, task in named]
        if not any(self.find(task, self.paths["title"]) for task in tasks):
            marks = " or ".join(map(", ".join, self.paths["marks"]))
            objects = (one for one in self.find(self.file, "") if isinstance(one, dict))
            keys = self.columns or [str(key) for key in next(objects, ())]
            raise ValueError(
                f"it has no tasks as {self.program} exports them; see docs/moving.md (looked for {marks};"
                f" found {', '.join(keys[:9])[:200] or 'nothing'}; if it is not in English, {ENGLISH})"
            )
        for task, path in ((task, path) for task in tasks for path in self.paths.get("people", ())):
            people = [one for one in self.find(task, path) if isinstance(one, dict)]
            pairs = [(one.get("login"), one.get("name")) for one in people]
            if self.columns:
                pairs += zip(task.get(f"{path} Id", ()), task.get(path, ()), strict=False)
            self.names |= {str(id): str(name) for id, name in pairs if id and name}
        lines = [*self.places("project", self.file), *self.places("milestone", tasks)]
        firsts: dict[str, Row] = {}
        for self.line, task in named:
            if what := self.skipped(task, firsts.setdefault(self.id_of(task) or self.line, task)):
                self.drop(what)
            else:
                lines.append((self.line, self.task(task)))
        return lines

    def skipped(self, task: Row, first: Row) -> str:
        """Return why a task is left out, or an empty text. `first` is the first task with its id."""
        if first is not task and ("copies" in self.paths or first | {"line": 0} == task | {"line": 0}):
            return "copy of a task"
        rules = ((what, value, self.find(task, path)) for what, path, value in self.paths.get("skipped", ()))
        return next((what for what, value, found in rules if value in found or (value is True and found)), "")

    # Paths

    def every(self, item: Any, paths: str) -> Iterator[list[Any]]:
        """Yield the values at each path that leads to any."""
        for steps in steps_of(paths):
            values = item if isinstance(item, list) else [item]
            for step in steps:
                values = [found for value in values for found in self.follow(value, step)]
            if values:
                yield values

    def find(self, item: Any, paths: str) -> list[Any]:
        """Return the values at the first path that leads to any."""
        return next(self.every(item, paths), [])

    def find_text(self, item: Any, paths: str) -> str:
        """Return the first of these values as a text, or an empty text."""
        return str(next(iter(self.find(item, paths)), ""))

    def follow(self, value: Any, step: str) -> list[Any]:
        """Return the values to which one step of a path leads."""
        found: Any = None
        if isinstance(value, dict) and step in value:
            found = value[step]
        elif step == "^":
            found = self.file
        elif step.startswith("@"):
            found = self.rows(step[1:], "id").get(str(value))
        elif isinstance(value, dict) and "=" in step:
            table, _, key = step.partition("=")
            found = self.rows(table, key.replace("/", ".")).get(str(value.get("id")))
        elif isinstance(value, dict):
            found = next((value[key] for key in step.split(",") if value.get(key)), None)
        return [one for one in (found if isinstance(found, list) else [found]) if one and one != "false"]

    def rows(self, table: str, key: str) -> dict[str, list[Any]]:
        """Return the rows of a list in the file, by their values at the path `key`."""
        if (table, key) not in self.indexes:
            index = self.indexes[table, key] = {}
            for row in sorted(self.find(self.file, table), key=position_of):
                for value in self.find(row, key):
                    index.setdefault(str(value), []).append(row)
        return self.indexes[table, key]

    def has(self, item: Row, paths: str) -> bool:
        """Return whether the program writes this field, which may be empty."""
        names = [name for (step, *_) in steps_of(paths) for name in step.partition("=")[0].split(",")]
        tables = self.file if "=" in paths else ()
        return any(name in item or name in self.columns or name in tables for name in names)

    # Fields

    def places(self, kind: str, items: Any) -> Iterator[Line]:
        """Yield a line for each project or milestone that the file describes."""
        names, seen = dict(self.paths.get("places", {}).get(kind, ())), set[str]()
        rows = self.find(items, names.pop("rows", "?"))
        for row in (one for one in rows if isinstance(one, dict)):
            self.line, place = f"{kind} {len(seen) + 1}", Row()
            for name, path in names.items():
                if text := self.find_text(row, path):
                    # GitHub adds an hour of its own to a due date, which is a day.
                    special = {"status": "archived", "due_date": text[:10]}
                    place[name] = special.get(name) or self.value(name, text)
                elif kind == "milestone" and self.has(row, path):
                    place[name] = None
            key = caseless(place.get("name") or place.get("title") or "")
            if key in seen and kind == "project":
                self.drop("project with the name of another one, which gets its tasks", kind)
            elif key and key not in seen and len(place) > 1:
                yield self.line, {"kind": kind} | place
            seen.add(key)

    def id_of(self, item: Row) -> str:
        """Return what identifies a task in its program; without an id, the project and the number."""
        id, number = (self.find_text(item, self.paths[name]) for name in ("external_id", "number"))
        if not id and number:
            id = f"{self.project}#{number}"
            self.former[f"{self.program}:{id}"] = f"{self.program}:{number}"
        return id

    def task(self, item: Row) -> Row:
        """Return the fields of a task as an import accepts them."""
        item = item | repetition_of_vikunja(item) if self.program == "vikunja" else item
        task, (status, other), self.unread_dates = Row(), self.choice(item, "status"), []
        status = "done" if self.find(item, self.paths["done"]) else status
        for name in FIELDS:
            if paths := self.paths.get(name):
                if name == "priority":
                    value, unknown = self.choice(item, name)
                    if unknown:
                        self.drop(f'priority "{unknown}"')
                        continue
                else:
                    value = (self.time if name.endswith(transfer.TIMES) else self.text)(item, name)
                if value or (value is None and name in CLEARED and self.has(item, paths)):
                    task[name] = value
        if id := self.id_of(item):
            task["external_id"] = f"{self.program}:{id}"
            if "recipe" in self.paths:
                self.former[task["external_id"]] = id
        if (number := self.find_text(item, self.paths["number"])).isdecimal():
            task["number"] = int(number)
        if not status and task.get("completed_at"):
            status = "done"
        elif status != "done":
            task.pop("completed_at", None)
        elif not task.get("completed_at") and (time := self.time(item, "last_change")):
            task["completed_at"] = time
        task["status"] = status
        labels = self.texts(item, "labels")
        if other:
            self.drop(f'status "{other}", kept as a label')
            labels = [other, *labels]
        if labels or self.has(item, self.paths["labels"]):
            task["labels"] = [self.value("label", label) for label in labels[:MAX_LABELS]]
        if labels[MAX_LABELS:]:
            self.drop(f"labels, more than {MAX_LABELS}")
        links = "\n".join(self.links(item))
        texts = [*self.unread_dates, task.get("description"), *self.checklists(item), links]
        if text := "\n\n".join(filter(None, texts)):
            task["description"] = self.cut("description", text)
        task["comments"] = [*filter(None, map(self.comment, self.find(item, self.paths["comments"])))]
        count = self.find_text(item, self.paths["comment_count"])
        if count.isdecimal() and int(count) > len(task["comments"]):
            self.drop("comments that the file does not have")
        for what, path in self.paths.get("dropped", {}).items():
            if self.find(item, path):
                self.drop(what)
        for column in filter(self.unread.__contains__, item):
            self.drop(f"column {column}")
        return task

    def choice(self, item: Row, name: str) -> tuple[str | None, str]:
        """Return the status or priority, or None, and the first word that has no meaning."""
        found = [str(text) for text, *_ in self.every(item, self.paths[name])]
        words = [self.words.get(name, {}).get(word := transfer.word_of(text), word) for text in found]
        meanings = [word for word in words if word in transfer.CHOICES[name]]
        unknown = (text for text, word in zip(found, words, strict=True) if word and word not in meanings)
        return next(iter(meanings), None), next(unknown, "")

    def time(self, item: Row, name: str) -> str | None:
        """Return the first time that can be read, an empty text if none can, or None if there is no text."""
        zone, values = self.find_text(item, self.paths["zone"]), self.every(item, self.paths[name])
        zone = zone or self.paths.get("timezone", "")
        texts = [str(text).removesuffix(self.paths.get("midnight", "")) for text, *_ in values]
        texts = [text for text in texts if not text.startswith("0001")]  # Vikunja's "never"
        times = [*filter(None, (self.moment(name, text, zone) for text in texts))]
        if len({*times}) > 1 and name == "due_date":
            self.drop("due_date, more than one")
        return times[0] if times else "" if texts else None

    def moment(self, name: str, text: str, zone: str = "") -> str | None:
        """Return the time as an import accepts it; report a text that is none and return None."""
        moment = self.dates.read(text, f"{self.line}: {name}", zone)
        if not moment:
            is_kept = name in ("start_date", "due_date")
            self.drop(f"{name} that cannot be read{', kept in the description' * is_kept}", example=text)
            if is_kept:
                self.unread_dates.append(f"{name.replace('_', ' ').capitalize()}: {plain(text[:200])}")
        return moment

    def text(self, item: Row, name: str) -> str | None:
        """Return the first text of a field, with a person's name for an id, or None."""
        texts = self.texts(item, name)
        if len(texts) > 1:
            self.drop(f"{name}, more than one")
        return self.value(name, self.names.get(texts[0], texts[0])) if texts else None

    def texts(self, item: Row, name: str) -> list[str]:
        """Return the texts of a field; a cell of CSV may contain several labels or people."""
        texts = [str(value) for value in self.find(item, self.paths[name])]
        if self.columns and "separator" in self.paths and name in ("labels", "assignee"):
            texts = [part for text in texts for part in re.split(self.paths["separator"], text)]
        return [text for text in texts if text.strip()]

    def value(self, name: str, text: str) -> str:
        """Return the text as Markdown, cut to the length that an import accepts."""
        if name in SINGLE_LINE:
            text = " ".join(schemas.CONTROL.sub(" ", text).split())
            if name == "title" and schemas.is_blank(text):
                self.drop("title without a visible character")
                return "(no title)"
        elif name in LIMITS and self.program in CONVERT:
            text = CONVERT[self.program](text, self.names)
        return self.cut(name, text)

    def cut(self, name: str, text: str) -> str:
        if len(text) > LIMITS.get(name, len(text)):
            self.drop(f"the end of a long {name}")
        return text[: LIMITS.get(name)]

    def links(self, item: Row) -> Iterator[str]:
        """Yield a line for each link that is attached; a file needs a sign-in there, and is left out."""
        for link in self.find(item, self.paths["links"]):
            name, url = (" ".join(self.find_text(link, path).split()) for path in ("name,title,url", "url"))
            if self.find(link, "isUpload") or not re.match(r"https?://[^\s<>]+$", url):
                self.drop("files")
            else:
                escaped = re.sub(r"([][\\])", r"\\\1", name)
                yield f"- [{escaped}]({url.replace('(', '%28').replace(')', '%29')})"

    def checklists(self, item: Row) -> Iterator[str]:
        """Yield each checklist as Markdown, with its name."""
        for checklist in self.find(item, self.paths["checklists"]) or [item]:
            checks = []
            for row in sorted(self.find(checklist, self.paths["items"]), key=position_of):
                row = {"name": row} if isinstance(row, str) else row
                if isinstance(row, dict):
                    is_done = row.get("state") == "complete" or row.get("isCompleted") is True
                    name = " ".join(self.find_text(row, "name").split())
                    checks.append(f"- [{'x' if is_done else ' '}] {name}")
            if checks and checklist is not item and checklist.get("name"):
                yield f"**{' '.join(str(checklist['name']).split())}**"
            if checks:
                yield "\n".join(checks)

    def comment(self, item: Any) -> Row | None:
        """Return the comment as an import accepts it, or None if it has no text."""
        time, author, content = "", "", str(item)
        if (paths := self.paths.get("comment")) and not isinstance(item, str):
            names = ("created_at", "author", "content")
            time, author, content = (self.find_text(item, paths[name]) for name in names)
        elif re.match(r"\d+[^\s\w][^;]*;[^;]*;", content):  # as Jira writes it in a cell
            time, author, content = content.split(";", 2)
        text = self.value("content", content)
        if not text.strip():
            return None
        if not author:
            self.drop("the author of a comment, whom the file does not name")
        comment = {"author": self.names.get(author, author) or None, "content": text}
        if time and (moment := self.moment("time of a comment", time)):
            comment["created_at"] = moment
        return comment

    def date_texts(self) -> Iterator[str]:
        """Yield the texts of all dates in the file."""
        for _, item in self.tasks():
            for name in (*filter(lambda name: name.endswith(transfer.TIMES), FIELDS), "last_change"):
                for values in self.every(item, self.paths[name]):
                    yield from map(str, values)
            yield from (str(one).partition(";")[0] for one in self.find(item, self.paths["comments"]))

    def of_todoist(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the tasks of Todoist's rows, each with its section, its notes and an id made of its title."""
        section, task, times = [""], Row(), Counter[str]()
        for row in rows:
            (kind, *_), (content, *_) = row.get("TYPE", [""]), row.get("CONTENT", [""])
            for column in row.keys() & {"AUTHOR", "RESPONSIBLE"}:
                row[column] = [re.sub(r" \(\d+\)$", "", row[column][0])]
            if kind == "section":
                section = [content]
            elif kind == "note" and task:
                row["CONTENT"] = [re.sub(r"\[\[file (\{.*?\})\]\]", link_of_todoist, content)]
                task["notes"].append(row)
            elif kind == "task":
                times[content] += 1
                if row.get("INDENT", ["1"])[0] not in ("", "1"):
                    self.report.drop("place below another task", f"line {row['line']}")
                words = f"{content} {times[content]}"
                id = digest(f"{caseless(self.project or '')}\n{words}")[:16]
                self.former[f"todoist:{id}"] = f"todoist:{digest(words)[:16]}"
                task = row | repetition_of_todoist(row) | {"id": [id], "section": section, "notes": []}
                task["labels"] = re.findall(r"(?<!\S)@(\S+)", content)
                task["CONTENT"] = [re.sub(r"\s*(?<!\S)@\S+", "", content).strip() or content]
                yield task
            elif kind:
                self.report.drop(f"row of type {kind}", f"line {row['line']}", "row")


def link_of_todoist(match: re.Match[str]) -> str:
    """Return a link to a file, which Todoist writes as JSON into a comment."""
    file: Any = {}
    with suppress(BadBody):
        file = strictjson.parse_json(match[1].encode())
    name, url = (str(file.get(key, "")) for key in ("file_name", "file_url"))
    return f"[{name}]({url})" if name and url.startswith("https://") else match[0]


def repetition_of_todoist(row: Row) -> Row:
    """Return the rule that "every Monday" means in Todoist, and the next such day if there is no deadline."""
    words = " ".join(row.get("DATE", [""])[0].lower().split())
    match = re.fullmatch(r"every(!?) (?:(day)|(weekday|workday)|((?:mo|tu|we|th|fr|sa|su)[a-z]*))", words)
    if not match:
        return {}
    days = match[4][:2].upper() if match[4] else "MO,TU,WE,TH,FR"
    rule = "FREQ=DAILY" if match[2] else f"FREQ=WEEKLY;BYDAY={days}"
    yesterday = now(-86400)
    dates = next_dates({"repeat": rule, "due_date": yesterday, "start_date": None}, yesterday) or {}
    day = local(dates["due_date"]).date().isoformat()
    repetition = {"repeat": [rule], "DATE": [] if row.get("DEADLINE") else [day]}
    return repetition | ({"repeat_from": ["completed_at"]} if match[1] else {})


def repetition_of_vikunja(task: Row) -> Row:
    """Return the rule of Vikunja's task, which repeats after seconds (0), monthly (1) or once completed (2).

    `repetition` is set for one that no rule expresses.
    """
    seconds, mode = task.get("repeat_after") or 0, task.get("repeat_mode")
    if not seconds and mode != 1:
        return {}
    days, rest = divmod(seconds, 86400) if isinstance(seconds, int) else (0, 1)
    unit, number = ("DAILY", days) if days % 7 else ("WEEKLY", days // 7)
    is_dated = str(task.get("due_date") or "0001") > "0002" and not task.get("done")
    if not is_dated or (mode != 1 and (rest or not 0 < number < 100)):
        return {"repetition": True}
    rule = "FREQ=MONTHLY" if mode == 1 else f"FREQ={unit};INTERVAL={number}"
    return {"repeat": rule} | ({"repeat_from": "completed_at"} if mode == 2 else {})


def plain(text: str) -> str:
    """Return the text without characters that could control a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


@lru_cache(maxsize=1000)
def steps_of(paths: str) -> list[list[str]]:
    return [[step for step in path.split(".") if step] for path in paths.split("|")]


def rows_of(lines: Iterator[tuple[int, list[str]]], columns: list[str], paths: Row) -> Iterator[Row]:
    """Yield the cells of each row by their columns; several may have one name. Raises `ValueError`."""
    empty, json = {"", *paths.get("empty", ())}, paths.get("json", ())
    for line, cells in lines:
        row: Row = {}
        if any(map(str.strip, cells[len(columns) :])):  # then no cell can be trusted to be in its column
            raise ValueError(f"line {line}: has more cells than line 1")
        for name, cell in zip(columns, cells, strict=False):
            if (text := transfer.unquoted(cell.strip())) not in empty or (text and name == paths["title"]):
                row.setdefault(name, []).extend(objects_of(text) if name in json else [text])
        if row:
            yield row | {"line": line}


def objects_of(cell: str) -> list[Any]:
    """Return the objects in a cell of JSON; in {"Steps": ["Pack"]}, each has a name."""
    value = transfer.json_of(cell)
    if isinstance(value, dict):
        return [{"name": name, "items": items} for name, items in value.items()]
    return value if isinstance(value, list) else [cell]


def position_of(row: Any = None) -> float:
    """Return the position of a card, list or item among others, as Trello and Planka write it."""
    position = row.get("pos", row.get("position")) if isinstance(row, dict) else 0
    return position if isinstance(position, (int, float)) else 0


def suggestion(text: str, program: str | None) -> str:
    """Return a hint if the text looks like an export of another program than `program`, or an empty text."""
    text = text if transfer.is_json(text) else text.partition("\n")[0]
    words = {word.strip() for word in re.findall(r'[^",;:\t\r\n{}\[\]]+', text)}
    for other, paths in PROGRAMS.items():
        is_right = other != program and ("rows" in paths["tasks"] or transfer.is_json(text))
        if is_right and any(words.issuperset(marks) for marks in paths["marks"]):
            return f"; it looks like an export of {other}: add --from {other}"
    return ""


# Texts

MARKUP = [(mark, re.compile(rule, re.MULTILINE), new) for mark, rule, new in PROGRAMS["jira"]["markup"]]
CODE = re.compile(r"\{(?:code|noformat)(?::(\w+)(?![\w=]))?[^{}\n]{0,200}\}")
# {*}bold{*}, {color:red}
BRACES = re.compile(r"\{(?:([*_+^~-])|(?:color|panel|anchor)(?::[^{}\n]{0,200})?)\}")
LIST_ITEM = re.compile(r"^([*#-]{0,2})([*#-]) +(?=\S)", re.MULTILINE)  # its outer levels, and its own
LANGUAGE = re.compile(r'^<pre><code class="[^">]*\blanguage-([^\s">]+)')  # of code in HTML
# The beginning of an item in a to-do list of Vikunja's HTML.
HTML_CHECKBOX = re.compile(r'<li[^<>]*data-checked="(\w+)"[^<>]*>(?:<label>.*?</label>)?(?:<div>)?(?:<p>)?')


def markdown_of_jira(text: str, names: dict[str, str]) -> str:
    """Return Jira's markup as Markdown, with people's names for their ids; code stays as it is."""
    parts = CODE.split(text.replace("\r\n", "\n"))
    parts[::4] = [_lines_of_jira(part, names) for part in parts[::4]]
    for at in range(2, len(parts), 4):
        parts[at] = f"\n```{parts[at - 1] or ''}\n{parts[at].strip(chr(10))}\n```\n"
    return "".join(parts[::2]).strip("\n")


def _lines_of_jira(text: str, names: dict[str, str]) -> str:
    if "[~" in text:
        person = r"\[~(?:accountid:)?([^\[\]\n]{1,200})\]"
        text = re.sub(person, lambda who: f"@{names.get(who[1], who[1])}", text)
    text = BRACES.sub(r"\1", text)
    text = LIST_ITEM.sub(lambda item: f"{'   ' * len(item[1])}{'1.' if item[2] == '#' else '-'} ", text)
    for mark, rule, new in MARKUP:
        text = rule.sub(new, text) if mark in text else text
    if "||" in text:
        text = re.sub(r"^\|\|(.+?)\|\|[ \t]*$", _head_of_table, text, flags=re.MULTILINE)
    quotes = text.split("{quote}")
    quotes[1:-1:2] = [re.sub("(?m)^", "> ", quote.strip("\n")) for quote in quotes[1:-1:2]]
    return "".join(quotes)


def _head_of_table(row: re.Match[str]) -> str:
    cells = row[1].split("||")
    return f"| {' | '.join(map(str.strip, cells))} |\n|{' --- |' * len(cells)}"


def markdown_of_html(text: str, _: Any = None) -> str:
    """Return simple HTML as Markdown; other text, as older versions of Vikunja export it, stays as it is."""
    if not re.match(r"\s*<[a-zA-Z]", text):
        return text
    from markdownify import markdownify  # only here: importing it takes a third of a second

    text = HTML_CHECKBOX.sub(lambda item: f"<li>[{'x' if item[1] == 'true' else ' '}] ", text)
    options: Row = {"heading_style": "atx", "bullets": "-"}
    options["code_language_callback"] = lambda pre: next(iter(LANGUAGE.findall(str(pre))), "")
    try:
        return markdownify(text, **options).strip()
    except RecursionError:  # thousands of nested elements
        return text


CONVERT: dict[str, Callable[..., str]] = {"jira": markdown_of_jira, "vikunja": markdown_of_html}
CONVERT["clickup"] = lambda text, _: text.replace("\\n", "\n")
