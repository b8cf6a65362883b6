"""How tasks repeat: rules (a small part of RFC 5545's RRULE), the next dates, and checkboxes."""

import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from itertools import chain, count

import times
from times import instant, local

REPEAT_FROM = ("due_date", "completed_at")  # from which the next due date is counted
WEEKDAYS = "MO,TU,WE,TH,FR,SA,SU"
PARTS = {
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
CHECKBOX = re.compile(r"(?m)^([ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[)([ xX])(\][ \t])")
CODE_BLOCK = re.compile(r"(?ms)^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)")


def parse_rule(rule: str) -> dict[str, str]:
    """Return the parts of a rule by their names. Raises `ValueError` unless it is an `ACCEPTED_RULE`."""
    parts = dict(part.split("=") for part in rule.split(";"))
    for name, value in parts.items():
        is_fit = ONLY_WITH.get(name, parts.get("FREQ")) == parts.get("FREQ")
        if not (is_fit and re.fullmatch(PARTS.get(name, "(?!)"), value)):
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


def next_dates(task: dict, at: str, repeat_from: str = "due_date") -> dict | None:
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
    months = int(parts.get("INTERVAL", 1)) * (12 if parts["FREQ"] == "YEARLY" else 1)
    if is_by_date and day.day < first.day and repeat_from == "due_date" and months <= 99:  # as PARTS accepts
        parts |= {"FREQ": "MONTHLY", "INTERVAL": str(months), "BYMONTHDAY": str(first.day)}
    return {
        "due_date": instant(moment),
        "start_date": start,
        "repeat": ";".join(map("=".join, parts.items())),
    }


def checkboxes(text: str | None) -> dict | None:
    """Return how many Markdown checkboxes are `done`, and their `total`; None if the text has none.

    Those in code blocks do not count, since nobody can tick them.
    """
    shown = CODE_BLOCK.sub("", text) if text and "[" in text else ""
    marks = [mark[2] for mark in CHECKBOX.finditer(shown)]
    return {"done": len(marks) - marks.count(" "), "total": len(marks)} if marks else None
