"""A member's calendar: its link, and the due tasks and meetings for calendar programs."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import werkzeug

import limits
import schemas
from app import api, pages
from database import Row, db, placeholder, rowid, statement
from errors import not_found
from lists import FILTERS
from members import CALENDAR, ApiKey, Transaction
from models import MAX_LISTED, Meeting, Task
from times import local, now
from wire import operation, request

CALENDAR_TYPE = "text/calendar; charset=utf-8"


# In every calendar, since one without any component is not valid (RFC 5545, section 3.6).
UTC_ZONE = "BEGIN:VTIMEZONE TZID:UTC BEGIN:STANDARD DTSTART:19700101T000000 TZOFFSETFROM:+0000"
UTC_ZONE += " TZOFFSETTO:+0000 END:STANDARD END:VTIMEZONE"
CALENDAR_TIME = "%Y%m%dT%H%M%SZ"


class Calendar:
    MAX = 1000  # tasks

    @statement
    def tasks(cls: Any):
        """The first open tasks of a member, in active projects, that are due in some period."""
        is_due = Task.is_open & Task.due_date.between(placeholder("since"), placeholder("until"))
        is_theirs = (Task.assignee == placeholder("member_id")) & FILTERS["archived"]
        rowids = Task.select(rowid(Task)).where(is_due, is_theirs).order_by(Task.due_date, Task.id)
        shown = [Task.id, Task.number, Task.title, Task.due_date, Task.created_at, Task.updated_at]
        return Task.in_order(rowids.limit(cls.MAX), shown)

    @statement
    def revoke_link(cls: Any):
        return ApiKey.revoke_where(ApiKey.member == placeholder("member_id"), ApiKey.scope == CALENDAR)


def calendar(member_id: str, config: Mapping[str, Any]) -> bytes:
    """Return the member's due tasks and meetings as an iCalendar file (RFC 5545)."""
    base_url, name = config["SERVER"]["base_url"], config["WORKSPACE"]["name"]
    since, until = now(-28 * 86400), now(365 * 86400)
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//tasks//EN", f"X-WR-CALNAME:{_escaped(name)}"]
    lines += ["REFRESH-INTERVAL;VALUE=DURATION:PT1H", "X-PUBLISHED-TTL:PT1H"]  # or it is read once a week
    lines += UTC_ZONE.split()
    for task in Calendar.tasks.all(member_id=member_id, since=since, until=until):
        day = local(task["due_date"]).date()
        days = [f"DTSTART;VALUE=DATE:{day:%Y%m%d}", f"DTEND;VALUE=DATE:{day + timedelta(days=1):%Y%m%d}"]
        lines += _entry(task, f"{base_url}/#task={task['number']}", "", *days, "TRANSP:TRANSPARENT")
    for meeting in Meeting.of_member.all(member_id=member_id):
        if meeting["starts_at"] > until or (meeting["ends_at"] or meeting["starts_at"]) < since:
            continue
        names = ("starts_at", "ends_at" if meeting["ends_at"] else "starts_at")
        starts, ends = (_whole_second(meeting[name]) for name in names)
        ends += timedelta(hours=ends == starts)  # calendars show nothing that has no duration
        times = [f"DTSTART:{starts:{CALENDAR_TIME}}", f"DTEND:{ends:{CALENDAR_TIME}}"]
        times.append(f"LOCATION:{_escaped(meeting['location'] or '')}")
        text = (meeting["description"] or "")[:MAX_LISTED]
        lines += _entry(meeting, f"{base_url}/#view=meetings", text, *times)
    # A line has at most 75 bytes, and does not end within a character (section 3.1).
    folded = [b"\r\n ".join(re.findall(rb".{1,74}(?![\x80-\xbf])", line.encode())) for line in lines]
    return b"\r\n".join([*folded, b"END:VCALENDAR", b""])


def _entry(row: Row, link: str, text: str, *more: str) -> list[str]:
    """Return the lines of an entry. The description repeats the link, since some calendars show no other."""
    made, changed = _whole_second(row["created_at"]), _whole_second(row["updated_at"])
    named = [f"UID:{row['id']}", f"SUMMARY:{_escaped(row['title'])}", f"URL:{link}"]
    named += [f"DTSTAMP:{changed:{CALENDAR_TIME}}", f"LAST-MODIFIED:{changed:{CALENDAR_TIME}}"]
    named.append(f"SEQUENCE:{(changed - made) // timedelta(seconds=1)}")
    described = _escaped(f"{text}\n\n{link}".lstrip())
    return ["BEGIN:VEVENT", *named, f"DESCRIPTION:{described}", *more, "END:VEVENT"]


def _whole_second(time: str) -> datetime:
    return datetime.fromisoformat(time[:19])


def _escaped(text: str) -> str:
    """Return the text as a value of iCalendar, without the control characters that are not allowed."""
    text = re.sub("\r\n?|[\n\x85\u2028\u2029]", r"\\n", re.sub(r"([\\;,])", r"\\\1", text))
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text)


CalendarShown = schemas.response_schema("Calendar", secret=True, url=str)
CalendarRevokedShown = schemas.response_schema("CalendarRevoked", revoked=bool)


@api.post("/calendar")
@operation(gives=CalendarShown, status=201)
def link_calendar(transaction: Transaction) -> Row:
    """Make the link of your calendar, which is shown only here. It replaces the old link."""
    Calendar.revoke_link.run(member_id=transaction.actor["id"], now=transaction.at)
    expires_at = ApiKey.limit_of(transaction.actor)
    _, key = ApiKey.grant(transaction, name="Calendar link", scope=CALENDAR, expires_at=expires_at)
    return {"url": f"{request().config['SERVER']['base_url']}/calendar/{key}.ics"}


@api.delete("/calendar")
@operation(gives=CalendarRevokedShown)
def unlink_calendar(transaction: Transaction) -> Row:
    """Revoke the link of your calendar, if there is one."""
    return {"revoked": Calendar.revoke_link.run(member_id=transaction.actor["id"], now=transaction.at) > 0}


@pages.get("/calendar/<string:key>.ics")
@operation(reads="nothing", role=None)
def show_calendar(key: str) -> Any:
    """Show calendar programs the due tasks and the meetings of the link's member."""
    current = request()
    current.caller = ApiKey.caller(key, CALENDAR) or not_found("calendar")
    current.app.count(current)
    with db.limit(limits.QUERY_SECONDS), db.viewed_by(current.viewer):
        data = calendar(current.caller["id"], current.config)
    answer = werkzeug.Response(data, 200, {"Cache-Control": "private, no-cache"}, content_type=CALENDAR_TYPE)
    answer.add_etag()
    return answer.make_conditional(current.environ)
