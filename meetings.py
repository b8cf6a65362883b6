"""The team's meetings and whiteboards. The part `resources` changes them; nothing here knows HTTP."""

from typing import Any, ClassVar

from peewee import SQL, CompositeKey, ForeignKeyField, Query, Select, TextField, fn

from database import Base, EncodedJSONField, Row, columns, json_object, placeholder, statement
from errors import Invalid
from members import PROFILE, Member, Transaction, profile
from models import Project, Resource
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
    def select_shown(cls) -> Query:
        person = Member.alias("person")
        people = Participant.select(*(getattr(person, name) for name in PROFILE))
        people = people.join(person, on=(Participant.member == person.id))
        people = people.where(Participant.meeting == cls.id).order_by(person.full_name, person.id)
        shown = json_object({name: SQL(f'"{name}"') for name in PROFILE})
        participants = fn.JSON(Select([people], [fn.JSON_GROUP_ARRAY(shown)])).alias("participants")
        selected = [*columns(cls, "organizer_id"), participants, *profile(Member, "organizer")]
        return cls.select(*selected).join(Member, on=(cls.organizer == Member.id))

    @statement
    def of_member(cls: Any):
        """The meetings that a member organizes or takes part in."""
        joined = Participant.select(Participant.meeting).where(Participant.member == placeholder("member_id"))
        attends = (cls.organizer == placeholder("member_id")) | cls.id.in_(joined)
        return cls.select_shown().where(attends).order_by(cls.starts_at, cls.id)

    @statement
    def soon(cls: Any):
        """The meetings of a member that are not over `:now` and have started by `:until`."""
        is_over = fn.COALESCE(cls.ends_at, cls.starts_at) <= placeholder("now")
        return cls.of_member.query.where(~is_over, cls.starts_at <= placeholder("until"))

    @classmethod
    def of(cls, member_id: str) -> list[Row]:
        """Return the member's meetings: upcoming ones, the next first, then past ones, the newest first."""
        meetings = list(map(cls._with_when, cls.of_member.all(member_id=member_id)))
        upcoming = [meeting for meeting in meetings if meeting["when"] == "upcoming"]
        return upcoming + [meeting for meeting in meetings[::-1] if meeting["when"] == "past"]

    @classmethod
    def shown(cls, id: str) -> Row:
        """Return the meeting with its organizer and participants. Raises `NotFound`."""
        return cls._with_when(super().shown(id))

    @staticmethod
    def _with_when(meeting: Row) -> Row:
        """Return the meeting with `when`: whether it is upcoming or past."""
        is_past = (meeting["ends_at"] or meeting["starts_at"]) <= now()
        return meeting | {"when": "past" if is_past else "upcoming"}

    @classmethod
    def check(cls, row: Row) -> None:
        if row.get("ends_at") and row["ends_at"] < row["starts_at"]:
            raise Invalid(("ends_at", "must not be before starts_at"))


class Participant(Base):
    meeting = ForeignKeyField(Meeting, on_delete="CASCADE", index=False)
    member = ForeignKeyField(Member)

    SEEN = "EXISTS (SELECT 1 FROM meeting WHERE meeting.id = meeting_id)"

    class Meta:
        primary_key = CompositeKey("meeting", "member")


class Whiteboard(Resource):
    title = TextField()
    project = ForeignKeyField(Project, null=True, on_delete="SET NULL")
    content = EncodedJSONField()
    updated_by = ForeignKeyField(Member, column_name="updated_by", object_id_name="editor_id", index=False)
    created_at = TextField()
    updated_at = TextField()

    NOUN, PRIVATE = "whiteboard", ("content",)
    SEEN = Base.OF_PROJECT

    @statement
    def latest(cls: Any):
        """Up to `:most` whiteboards without their contents, the last updated first; -1 means all."""
        whiteboards = cls.select(cls.id, cls.title, cls.project, cls.updated_at, cls.updated_by)
        return whiteboards.order_by(cls.updated_at.desc(), cls.id.desc()).limit(placeholder("most"))

    @classmethod
    def stamp(cls, transaction: Transaction) -> Row:
        return super().stamp(transaction) | {"updated_by": transaction.actor["id"]}


Whiteboard.indexed("whiteboard_updated", "updated_at id")
