"""The team's meetings and whiteboards, and a member's calendar. Nothing here knows HTTP."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any, ClassVar

from peewee import CompositeKey, Expression, ForeignKeyField, Query, TextField

from database import Base, EncodedJSONField, Row, placeholder, statement
from errors import Forbidden, Invalid
from members import ADMINS, Member, Transaction, with_member
from models import MAX_LISTED, Project, Resource, Task
from times import now


class Meeting(Resource):
    title = TextField()
    description = TextField(null=True)
    location = TextField(null=True)
    project = ForeignKeyField(Project, null=True, on_delete="SET NULL")
    starts_at = TextField()
    ends_at = TextField(null=True)
    organizer = ForeignKeyField(Member)
    created_at = TextField()
    updated_at = TextField()

    NOUN = "meeting"
    _ATTENDED = "SELECT meeting_id FROM main.participant WHERE member_id = viewer()"
    SEEN = f"organizer_id = viewer() OR id IN ({_ATTENDED})"  # noqa: S608
    SEEN_AS: ClassVar[Row] = {"project_id": "(SELECT id FROM project WHERE id = project_id)"}

    @classmethod
    def attended(cls) -> Expression:
        """Whether the member organizes the meeting or takes part in it."""
        return (cls.organizer == placeholder("member_id")) | cls.id.in_(
            Participant.select(Participant.meeting).where(Participant.member == placeholder("member_id"))
        )

    @classmethod
    def select_shown(cls) -> Query:
        return with_member(cls.organizer, "organizer_id")

    @statement
    def of_member(cls: Any):
        return cls.select_shown().where(cls.attended()).order_by(cls.starts_at, cls.id)

    @classmethod
    def of(cls, member_id: str) -> list[Row]:
        """The member's meetings: the next upcoming first, then the past ones, newest first."""
        meetings = cls.of_member.all(member_id=member_id)
        cls._complete(meetings, Participant.of_member.all(member_id=member_id))
        upcoming = [meeting for meeting in meetings if meeting["when"] == "upcoming"]
        past = [meeting for meeting in meetings if meeting["when"] == "past"]
        return upcoming + past[::-1]

    @classmethod
    def shown(cls, id: str) -> Row:
        """The meeting with its organizer and participants. Raises `NotFound`."""
        meeting = super().shown(id)
        cls._complete([meeting], Participant.of_meeting.all(id=id))
        return meeting

    @classmethod
    def _complete(cls, meetings: list[Row], participants: list[Row]) -> None:
        """Add to each meeting its participants, and whether it is upcoming or past."""
        at = now()
        by_id = {meeting["id"]: meeting for meeting in meetings}
        for meeting in meetings:
            is_past = (meeting["ends_at"] or meeting["starts_at"]) <= at
            meeting |= {"participants": [], "when": "past" if is_past else "upcoming"}
        for row in participants:
            if row["meeting_id"] in by_id:  # else the meeting was made after the meetings were read
                by_id[row["meeting_id"]]["participants"].append(row["member"])

    @classmethod
    def check(cls, row: Row) -> None:
        if row.get("ends_at") and row["ends_at"] < row["starts_at"]:
            raise Invalid(("ends_at", "must not be before starts_at"))

    @classmethod
    def add(cls, transaction: Transaction, *, participant_ids: list[str] | None = None, **fields: Any) -> Row:
        """Make a new meeting, which the actor organizes."""
        meeting = super().add(transaction, organizer_id=transaction.actor["id"], **fields)
        Participant.replace_all(meeting["id"], [], participant_ids or [])
        return cls.shown(meeting["id"])

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, also: Row | None = None) -> Row:
        """Change the fields that were sent; participants are replaced as a whole. Raises `Forbidden` too."""
        cls._check_organizer(transaction, cls.stored(id))
        if "participant_ids" in fields:
            old = [row["member"]["id"] for row in Participant.of_meeting.all(id=id)]
            new = fields.pop("participant_ids") or []
            if set(new) != set(old):
                Participant.replace_all(id, old, new)
                also = {"participant_ids": [old, new]}
        return super().edit(transaction, id, fields, also)

    @classmethod
    def remove(cls, transaction: Transaction, id: str) -> None:
        """Delete it. Raises `NotFound` and `Forbidden`."""
        cls._check_organizer(transaction, cls.stored(id))
        super().remove(transaction, id)

    @classmethod
    def _check_organizer(cls, transaction: Transaction, row: Row) -> None:
        if transaction.actor["role"] not in ADMINS and transaction.actor["id"] != row["organizer_id"]:
            raise Forbidden("only its organizer, an owner or an admin may change or delete a meeting")


class Participant(Base):
    meeting = ForeignKeyField(Meeting, on_delete="CASCADE", index=False)
    member = ForeignKeyField(Member)

    SEEN = "EXISTS (SELECT 1 FROM meeting WHERE meeting.id = meeting_id)"

    class Meta:
        primary_key = CompositeKey("meeting", "member")

    @classmethod
    def _select(cls, condition: Expression) -> Query:
        participants = with_member(cls.member, "member_id").where(condition)
        return participants.order_by(cls.meeting, Member.full_name, Member.id)

    @statement
    def of_meeting(cls: Any):
        return cls._select(cls.meeting == placeholder("id"))

    @statement
    def of_member(cls: Any):
        """The participants of all meetings that the member attends."""
        return cls._select(cls.meeting.in_(Meeting.select(Meeting.id).where(Meeting.attended())))

    @statement
    def delete_rows(cls: Any):
        return cls.delete().where(cls.meeting == placeholder("meeting_id"))

    @classmethod
    def replace_all(cls, meeting_id: str, old: list[str], new: list[str]) -> None:
        """Replace the meeting's participants. Raises `Invalid` for new ones who are not members."""
        problems = [
            (f"participant_ids.{n}", "no such member")
            for n, id in enumerate(new)
            if id not in old and not Member.stored_row.one(id=id)
        ]
        if problems:
            raise Invalid(*problems)
        cls.delete_rows.run(meeting_id=meeting_id)
        cls.insert_row.run_many({"meeting_id": meeting_id, "member_id": id} for id in dict.fromkeys(new))


class Whiteboard(Resource):
    title = TextField()
    project = ForeignKeyField(Project, null=True, on_delete="SET NULL")
    content = EncodedJSONField()
    updated_by = ForeignKeyField(Member, column_name="updated_by", object_id_name="editor_id", index=False)
    created_at = TextField()
    updated_at = TextField()

    NOUN = "whiteboard"
    SEEN = "project_id IN seen_project"

    @statement
    def latest(cls: Any):
        """Whiteboards without contents, the last updated first; at most `:most`, all where that is -1."""
        whiteboards = cls.select(cls.id, cls.title, cls.project, cls.updated_at, cls.updated_by)
        return whiteboards.order_by(cls.updated_at.desc(), cls.id.desc()).limit(placeholder("most"))

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """Note it without contents, which may be large."""
        without = {"content": [None, None]} if changes and "content" in changes else {}
        super().record(transaction, action, row, (changes or {}) | without)

    @classmethod
    def add(cls, transaction: Transaction, **fields: Any) -> Row:
        """Make a new whiteboard, which is empty unless the fields have a content."""
        return super().add(transaction, **{"content": "{}", **fields})

    @classmethod
    def stamp(cls, transaction: Transaction) -> Row:
        return super().stamp(transaction) | {"updated_by": transaction.actor["id"]}


Whiteboard.add_index(Whiteboard.updated_at, Whiteboard.id, name="whiteboard_updated")


# A calendar without any component is not valid (RFC 5545, section 3.6).
UTC_ZONE = "BEGIN:VTIMEZONE TZID:UTC BEGIN:STANDARD DTSTART:19700101T000000 TZOFFSETFROM:+0000"
UTC_ZONE += " TZOFFSETTO:+0000 END:STANDARD END:VTIMEZONE"
CALENDAR_TIME = "%Y%m%dT%H%M%SZ"


def calendar(member_id: str, config: Mapping[str, Any], zone: tzinfo) -> bytes:
    """The member's due tasks, on the days of the time zone, and meetings, as an iCalendar file (RFC 5545)."""
    base_url, name = config["SERVER"]["base_url"], config["WORKSPACE"]["name"]
    since, until = now(-28 * 86400), now(365 * 86400)
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//tasks//EN", f"X-WR-CALNAME:{_escaped(name)}"]
    lines += ["REFRESH-INTERVAL;VALUE=DURATION:PT1H", "X-PUBLISHED-TTL:PT1H"]  # others look once a week
    lines += UTC_ZONE.split()
    for task in Task.of_calendar.all(member_id=member_id, since=since, until=until):
        day = datetime.fromisoformat(task["due_date"]).astimezone(zone).date()
        days = [f"DTSTART;VALUE=DATE:{day:%Y%m%d}", f"DTEND;VALUE=DATE:{day + timedelta(days=1):%Y%m%d}"]
        lines += _entry(task, f"{base_url}/#task={task['number']}", "", *days, "TRANSP:TRANSPARENT")
    for meeting in Meeting.of_member.all(member_id=member_id):
        if meeting["starts_at"] > until or (meeting["ends_at"] or meeting["starts_at"]) < since:
            continue
        names = ("starts_at", "ends_at" if meeting["ends_at"] else "starts_at")
        starts, ends = (_second(meeting[name]) for name in names)
        ends += timedelta(hours=ends == starts)  # calendars show no point of time
        times = [f"DTSTART:{starts:{CALENDAR_TIME}}", f"DTEND:{ends:{CALENDAR_TIME}}"]
        place, text = meeting["location"] or "", (meeting["description"] or "")[:MAX_LISTED]
        lines += _entry(meeting, f"{base_url}/#view=meetings", text, *times, f"LOCATION:{_escaped(place)}")
    # At most 75 bytes a line, in which no character is divided (section 3.1).
    folded = [b"\r\n ".join(re.findall(rb".{1,74}(?![\x80-\xbf])", line.encode())) for line in lines]
    return b"\r\n".join([*folded, b"END:VCALENDAR", b""])


def _entry(row: Row, link: str, text: str, *more: str) -> list[str]:
    """The lines of an entry. Some calendars show a link in the description alone."""
    made, changed = _second(row["created_at"]), _second(row["updated_at"])
    named = [f"UID:{row['id']}", f"SUMMARY:{_escaped(row['title'])}", f"URL:{link}"]
    named += [f"DTSTAMP:{changed:{CALENDAR_TIME}}", f"LAST-MODIFIED:{changed:{CALENDAR_TIME}}"]
    named.append(f"SEQUENCE:{(changed - made) // timedelta(seconds=1)}")
    described = _escaped(f"{text}\n\n{link}".lstrip())
    return ["BEGIN:VEVENT", *named, f"DESCRIPTION:{described}", *more, "END:VEVENT"]


def _second(time: str) -> datetime:
    return datetime.fromisoformat(time[:19])


def _escaped(text: str) -> str:
    """The text as a value of iCalendar, without the control characters that it may not have."""
    text = re.sub("\r\n?|[\n\x85\u2028\u2029]", r"\\n", re.sub(r"([\\;,])", r"\\\1", text))
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text)
