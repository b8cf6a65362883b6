"""Milestones, meetings and whiteboards, which the specification only lists: make, change and delete them."""

from typing import Any

from marshmallow import validate

import models
import schemas
from app import OF_A_NEW_ROW, api
from database import Row, Statement, placeholder
from errors import Forbidden, Invalid
from members import ADMINS, Member, Transaction
from models import Meeting, Milestone, Participant, Project, Task, Whiteboard
from webhooks import announce
from wire import operation

MAX_CONTENT = 512 * 1024  # bytes of a whiteboard, serialised


class MilestoneInput(schemas.Strict):
    title = schemas.Text(schemas.MAX_TITLE, required=True)
    description = schemas.Description()
    due_date = schemas.Instant(ends_day=True, allow_none=True)
    closed = schemas.JSONBoolean()

    EXAMPLE = {"title": "Launch", "due_date": "2026-12-15"}


class MeetingInput(schemas.Strict):
    title = schemas.Text(schemas.MAX_TITLE, required=True)
    description = schemas.Description()
    location = schemas.Text(schemas.MAX_TITLE, allow_none=True)
    project_id = schemas.Id(allow_none=True)
    starts_at = schemas.Instant(required=True)
    ends_at = schemas.Instant(allow_none=True)
    participant_ids = schemas.ListOf(
        schemas.Id(error_messages={"null": "must be a UUID"}),
        "ids",
        validate.Length(max=500, error="must be at most {max} members"),
        allow_none=True,
    )

    EXAMPLE = {"title": "Planning", "starts_at": "2026-12-01T09:00:00Z", "ends_at": "2026-12-01T10:00:00Z"}


class WhiteboardInput(schemas.Strict):
    title = schemas.Text(schemas.MAX_TITLE, required=True)
    project_id = schemas.Id(allow_none=True)
    content = schemas.JSONObject(MAX_CONTENT)

    EXAMPLE = {"title": "Ideas", "content": {"shapes": []}}


CREATE_MILESTONE = MilestoneInput(exclude=["closed"], when=" on create")
MilestoneShown = schemas.shown(
    models.Milestone,
    "id title due_date closed_at project_id description stats created_at updated_at",
    stats=schemas.ProgressShown,
)
WhiteboardShown = schemas.shown(
    models.Whiteboard, "id title project_id updated_at updated_by content created_at"
)
MilestoneListShown = schemas.response_schema("MilestoneList", milestones=[MilestoneShown])
WhiteboardListShown = schemas.response_schema("WhiteboardList", whiteboards=[schemas.WhiteboardSummaryShown])
# The milestones of a project, undated ones last.
MILESTONES_BY_DATE = Statement(
    Milestone.select_shown()
    .where(Milestone.project == placeholder("project_id"))
    .order_by(Milestone.due_date.is_null(), Milestone.due_date, Milestone.id)
)


def remove_milestone(transaction: Transaction, id: str) -> None:
    """Remove the milestone from its tasks, and delete it. Raises `NotFound`."""
    milestone = Milestone.stored(id)
    Milestone.keeper.keep_rows(transaction, Milestone, [milestone])  # while its tasks refer to it
    announce(transaction, Task.clear_reference(transaction, Task.milestone, id))
    Milestone.delete_row.run(id=id)
    Milestone.record(transaction, "deleted", milestone)


def add_meeting(transaction: Transaction, *, participant_ids: list[str] | None = None, **fields: Any) -> Row:
    """Add a meeting that the actor organizes."""
    meeting = Meeting.add(transaction, organizer_id=transaction.actor["id"], **fields)
    _replace_participants(meeting["id"], [], participant_ids or [])
    return Meeting.shown(meeting["id"])


def _replace_participants(meeting_id: str, old: list[str], new: list[str]) -> None:
    """Replace the meeting's participants. Raises `Invalid` for new participants who are not members."""
    added = [(index, id) for index, id in enumerate(new) if id not in old]
    if wrong := [index for index, id in added if not Member.stored_row.one(id=id)]:
        raise Invalid(*((f"participant_ids.{index}", "no such member") for index in wrong))
    old_ones = Participant.delete().where(Participant.meeting == placeholder("meeting_id"))
    Statement(old_ones).run(meeting_id=meeting_id)
    Participant.insert_row.run_many({"meeting_id": meeting_id, "member_id": id} for id in dict.fromkeys(new))


def edit_meeting(transaction: Transaction, id: str, fields: Row) -> Row:
    """Change these fields; participants are replaced as a whole. Raises as `edit`, and `Forbidden`."""
    _check_organizer(transaction, id)
    related_changes = {}
    if "participant_ids" in fields:
        old = [member["id"] for member in Meeting.shown(id)["participants"]]
        new = fields.pop("participant_ids") or []
        if set(new) != set(old):
            _replace_participants(id, old, new)
            related_changes = {"participant_ids": [old, new]}
    return Meeting.edit(transaction, id, fields, related_changes)


def remove_meeting(transaction: Transaction, id: str) -> None:
    """Delete the meeting. Raises `NotFound` and `Forbidden`."""
    _check_organizer(transaction, id)
    Meeting.remove(transaction, id)


def _check_organizer(transaction: Transaction, id: str) -> None:
    organizer, actor = Meeting.stored(id)["organizer_id"], transaction.actor
    if actor["role"] not in ADMINS and actor["id"] != organizer:
        raise Forbidden("only its organizer, an owner or an admin may change or delete a meeting")


@api.get("/projects/<id>/milestones")
@operation(gives=MilestoneListShown)
def list_milestones(id: str) -> Row:
    """List the milestones of a project by date."""
    Project.stored(id)
    return {"milestones": MILESTONES_BY_DATE.all(project_id=id)}


@api.post("/projects/<id>/milestones")
@operation(CREATE_MILESTONE, MilestoneShown, **OF_A_NEW_ROW, collection="/milestones")
def create_milestone(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Create a milestone of a project."""
    Project.stored(id)
    return Milestone.add(transaction, project_id=id, **fields)


@api.get("/milestones/<id>")
@operation(gives=MilestoneShown)
def get_milestone(id: str) -> Row:
    """Show a milestone."""
    return Milestone.shown(id)


@api.patch("/milestones/<id>")
@operation(MilestoneInput(partial=True), MilestoneShown, role="member")
def update_milestone(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a milestone. Fields that are not sent stay as they are."""
    if (closed := fields.pop("closed", None)) is not None:
        fields["closed_at"] = (Milestone.stored(id)["closed_at"] or transaction.at) if closed else None
    return Milestone.edit(transaction, id, fields)


@api.delete("/milestones/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_milestone(transaction: Transaction, id: str) -> None:
    """Delete a milestone. Its tasks stay (20 000 take about 3 s)."""
    remove_milestone(transaction, id)


@api.post("/meetings")
@operation(MeetingInput(), schemas.MeetingShown, **OF_A_NEW_ROW)
def create_meeting(transaction: Transaction, **fields: Any) -> Row:
    """Create a meeting. You are its organizer."""
    return add_meeting(transaction, **fields)


@api.get("/meetings/<id>")
@operation(gives=schemas.MeetingShown)
def get_meeting(id: str) -> Row:
    """Show a meeting."""
    return Meeting.shown(id)


@api.patch("/meetings/<id>")
@operation(MeetingInput(partial=True), schemas.MeetingShown, role="member")
def update_meeting(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a meeting, as its organizer, owner or admin. Fields that are not sent stay as they are."""
    return edit_meeting(transaction, id, fields)


@api.delete("/meetings/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_meeting(transaction: Transaction, id: str) -> None:
    """Delete a meeting, as its organizer, owner or admin."""
    remove_meeting(transaction, id)


@api.get("/whiteboards")
@operation(gives=WhiteboardListShown)
def list_whiteboards() -> Row:
    """List all whiteboards without their content, the latest updated first."""
    return {"whiteboards": Whiteboard.latest.all(most=-1)}


@api.post("/whiteboards")
@operation(WhiteboardInput(), WhiteboardShown, **OF_A_NEW_ROW)
def create_whiteboard(transaction: Transaction, **fields: Any) -> Row:
    """Create a whiteboard."""
    return Whiteboard.add(transaction, **{"content": "{}", **fields})


@api.get("/whiteboards/<id>")
@operation(gives=WhiteboardShown)
def get_whiteboard(id: str) -> Row:
    """Show a whiteboard."""
    return Whiteboard.shown(id)


@api.patch("/whiteboards/<id>")
@operation(WhiteboardInput(partial=True), WhiteboardShown, role="member")
def update_whiteboard(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a whiteboard. Fields that are not sent stay as they are."""
    return Whiteboard.edit(transaction, id, fields)


@api.delete("/whiteboards/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_whiteboard(transaction: Transaction, id: str) -> None:
    """Delete a whiteboard."""
    Whiteboard.remove(transaction, id)
