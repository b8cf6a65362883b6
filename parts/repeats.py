"""How tasks repeat: rules (a small part of RFC 5545's RRULE), the next dates, and the tasks that follow."""

import re
from calendar import monthrange
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import chain, count

import orjson

import schemas
import times
from app import OF_A_CHANGE, announce_edit, api
from database import Row
from errors import Invalid
from members import Activity, Transaction
from models import CHECKBOX, CODE_BLOCK, PLANNED, Milestone, Project, Task
from times import instant, local
from wire import expected_versions, operation

WEEKDAYS = "MO,TU,WE,TH,FR,SA,SU"
RULE_PARTS = {
    "FREQ": "DAILY|WEEKLY|MONTHLY|YEARLY",
    "INTERVAL": "[1-9][0-9]?",
    "BYDAY": f"(?:(?:{WEEKDAYS.replace(',', '|')})(?:,(?!$)|$)){{1,7}}",
    "BYMONTHDAY": "[1-9]|[12][0-9]|3[01]|-1",
    "UNTIL": "[0-9]{8}(?:T[0-9]{6}Z)?",
}
PERIODS = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 31, "YEARLY": 366}  # days, at most
ONLY_WITH = {"BYDAY": "WEEKLY", "BYMONTHDAY": "MONTHLY"}
ACCEPTED_RULE = "must be FREQ=DAILY, WEEKLY, MONTHLY or YEARLY, and after semicolons have INTERVAL=1 to 99, "
ACCEPTED_RULE += f"BYDAY={WEEKDAYS} (with WEEKLY), BYMONTHDAY=1 to 31 or -1 (with MONTHLY), "
ACCEPTED_RULE += "UNTIL=20261231 or 20261231T225959Z"


def parse_rule(rule: str) -> dict[str, str]:
    """Return the parts of a rule by their names. Raises `ValueError` unless it is an `ACCEPTED_RULE`."""
    parts = dict(part.split("=") for part in rule.split(";"))
    for name, value in parts.items():
        is_fit = ONLY_WITH.get(name, parts.get("FREQ")) == parts.get("FREQ")
        if not (is_fit and re.fullmatch(RULE_PARTS.get(name, "(?!)"), value)):
            raise ValueError(name)
    if "FREQ" not in parts or len(parts) <= rule.count(";"):
        raise ValueError(rule)
    datetime.fromisoformat(parts.get("UNTIL", "20261231"))
    return parts


def _days(parts: dict[str, str], first: date, number: int) -> list[date]:
    """Return the days of the rule in the period that is `number` periods after the period of `first`."""
    step, frequency = number * int(parts.get("INTERVAL", 1)), parts["FREQ"]
    if frequency == "DAILY":
        return [first + timedelta(step)]
    if frequency == "WEEKLY":
        monday, names = first + timedelta(7 * step - first.weekday()), WEEKDAYS.split(",")
        chosen = parts.get("BYDAY", names[first.weekday()])
        return [monday + timedelta(index) for index, name in enumerate(names) if name in chosen]
    months = first.year * 12 + first.month - 1 + step * (12 if frequency == "YEARLY" else 1)
    year, month, day = months // 12, months % 12 + 1, int(parts.get("BYMONTHDAY", first.day))
    last = monthrange(year, month)[1]
    return [date(year, month, min(day, last) if day > 0 else last)]


def _at(day: date, clock: datetime) -> datetime:
    """Return the moment in UTC at which local clocks show the time of `clock` on this day."""
    is_end = f"{clock:%H%M%S}" == "235959"  # if clocks go back at midnight, this hour comes twice
    return datetime.combine(day, clock.time().replace(fold=is_end), times.zone).astimezone(UTC)


def next_dates(task: Row, at: str, repeat_from: str = "due_date") -> Row | None:
    """Return `due_date`, `start_date` and `repeat` of the task that follows; None if the rule has ended.

    Dates before the time `at` are skipped. The local time of day stays, and so does the number of days
    between both dates. If a month is too short for the day (the 31st, 29 February), the rule gets that day.
    """
    parts, start = parse_rule(task["repeat"]), task["start_date"]
    try:
        present, due = local(at), local(task["due_date"])
        first = (due if repeat_from == "due_date" else present).date()
        longest = PERIODS[parts["FREQ"]] * int(parts.get("INTERVAL", 1))
        passed = max((present.date() - first).days // longest - 1, 0)  # periods, which may be thousands
        days = chain.from_iterable(_days(parts, first, number) for number in count(passed))
        coming = (day for day in days if day > first and day >= present.date())
        day = next(day for day in coming if _at(day, due) > present)
        moment = _at(day, due)
        if start:
            begun = local(start)
            is_midnight = _at(begun.date(), datetime.min) == begun  # on some days at 1 o'clock
            clock = datetime.min if is_midnight else begun
            start = instant(min(_at(day - (due.date() - begun.date()), clock), moment))
    except (OverflowError, ValueError):  # after the year 9999, or a start before the year 1
        return None
    until = parts.get("UNTIL", "99999999")
    if (f"{day:%Y%m%d}" if len(until) == 8 else f"{moment:%Y%m%dT%H%M%SZ}") > until:
        return None
    is_by_date = parts["FREQ"] in ("MONTHLY", "YEARLY") and "BYMONTHDAY" not in parts
    is_shortened = is_by_date and day.day < first.day and repeat_from == "due_date"
    months = int(parts.get("INTERVAL", 1)) * (12 if parts["FREQ"] == "YEARLY" else 1)
    if is_shortened and months <= 99:  # an interval has two digits
        parts |= {"FREQ": "MONTHLY", "INTERVAL": str(months), "BYMONTHDAY": str(first.day)}
    return {
        "due_date": instant(moment),
        "start_date": start,
        "repeat": ";".join(map("=".join, parts.items())),
    }


def last_change_of(task_id: str, field: str) -> Row:
    """Return the last changes of a task that include this field; empty if it never changed."""
    return orjson.loads(Activity.last_change.value(task_id=task_id, path=f"$.{field}") or "{}")


class Rules:
    @staticmethod
    def problem(rule: str) -> str | None:
        """Return what a rule must be, or None for an accepted one."""
        with suppress(ValueError):
            parse_rule(rule)
            return None
        return ACCEPTED_RULE

    @staticmethod
    def accepted(transaction: Transaction, task: Row, fields: Row) -> Row:
        """Return the fields without a rule for a task that stays done, since it has handed its rule on.

        A sync sends the rule with the status again and again. Raises `Invalid` if it is sent alone.
        """
        is_done = task["status"] == "done" == fields.get("status", "done")
        if not (is_done and transaction.notifies and fields.get("repeat") not in (None, task["repeat"])):
            return fields
        if "status" not in fields:
            raise Invalid(("repeat", "needs a task that is not done: reopen it"))
        return {name: value for name, value in fields.items() if name != "repeat"}

    @classmethod
    def rule_changes(
        cls, transaction: Transaction, stored: Row, fields: Row, old: str | None, status: str | None
    ) -> Row:
        """Return the change of the rule: a completed task hands it on, and a reopened one takes it back."""
        task = stored | fields
        if transaction.notifies and status == "done" and task["repeat"]:
            return {"repeat": [task["repeat"], None]}
        further = cls.take_back_next(transaction, task) if transaction.notifies and old == "done" else {}
        return {} if "repeat" in fields else further

    @classmethod
    def completed(cls, transaction: Transaction, task: Row, rule: str | None) -> Row:
        """Add the task that follows a completed one, if it had a rule; return the completed task."""
        if not rule or not transaction.notifies:
            return task
        cls.add_next(transaction, task, rule)
        return Task.stored(task["id"])  # ranking the next task may have changed this one's rank

    @staticmethod
    def add_next(transaction: Transaction, task: Row, rule: str) -> None:
        """Add the task that follows this one, unless the rule has ended or the project is archived."""
        dates = next_dates(task | {"repeat": rule}, transaction.at, task["repeat_from"])
        if not dates or Project.stored(task["project_id"])["status"] == "archived":
            return
        fields = {name: task[name] for name in PLANNED} | dates
        fields |= {"created_by": task["created_by"], "repeats": task["number"]}
        if task["milestone_id"] and Milestone.stored(task["milestone_id"])["closed_at"]:
            fields["milestone_id"] = None
        given = last_change_of(task["id"], "assignee_id")
        if given.get("status") == ["todo", "in_progress"] and given["assignee_id"][0] is None:
            fields["assignee_id"] = None  # this task was claimed, not assigned
        text = task["description"] or ""
        code = [block.span() for block in CODE_BLOCK.finditer(text)]
        for box in CHECKBOX.finditer(text):
            if not any(start <= box.start() < end for start, end in code):
                text = f"{text[: box.start(2)]} {text[box.end(2) :]}"
        fields["description"] = text or None
        fields |= Task.order.directly_after(transaction, task["number"])
        Task.add(transaction, **fields)

    @staticmethod
    def take_back_next(transaction: Transaction, task: Row) -> Row:
        """Delete the task that followed this one, which is being reopened, and return its rule as a change.

        If somebody has changed the following task, it stays, and the reopened task gets no rule.
        """
        completed = last_change_of(task["id"], "repeat")
        if completed.get("status", [""])[-1] != "done":
            return {}
        if number := Task.shown(task["id"])["next_number"]:
            following = Task.shown(Task.id_of(number))
            parts = ("comment_count", "attachments", "blocks")
            if following["version"] > 1 or any(map(following.get, parts)):
                return {}
            Task.remove(transaction, following["id"])
        return {} if not task["due_date"] else {"repeat": [None, completed["repeat"][0]]}


Task.rules = Rules


@api.post("/tasks/<task:id>/skip")
@operation(gives=schemas.TaskShown, **OF_A_CHANGE)
def skip_task(transaction: Transaction, id: str) -> Row:
    """Move a task that repeats to the next date of its rule, without completing it."""
    task = Task.stored(id)
    dates = task["repeat"] and next_dates(task, transaction.at)
    if not dates:
        raise Invalid(("repeat", "has no later date" if task["repeat"] else "is null: it does not repeat"))
    return announce_edit(transaction, *Task.edit(transaction, id, dates, expected_versions()))
