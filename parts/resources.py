"""Milestones, meetings and whiteboards, which the specification only lists: make, change and delete them."""

from typing import Any

from flask import Blueprint
from marshmallow import validate

import meetings
import models
import schemas
from app import OF_A_NEW_ROW
from database import Row
from meetings import Meeting, Whiteboard
from members import Transaction
from models import Milestone, Project
from webhooks import announce
from wire import operation

api = Blueprint("resources", __name__, url_prefix=schemas.API)


def register(app: Any) -> None:
    app.register_blueprint(api)


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
    meetings.Whiteboard, "id title project_id updated_at updated_by content created_at"
)
MILESTONES = schemas.answer_with("MilestoneList", milestones=[MilestoneShown])
WHITEBOARDS = schemas.answer_with("WhiteboardList", whiteboards=[schemas.WhiteboardSummaryShown])


@api.get("/projects/<id>/milestones")
@operation(gives=MILESTONES)
def list_milestones(id: str) -> Row:
    """List the milestones of a project by date."""
    return {"milestones": Milestone.of(id)}


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
    return Milestone.edit(transaction, id, fields)


@api.delete("/milestones/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_milestone(transaction: Transaction, id: str) -> None:
    """Delete a milestone. Its tasks stay (20 000 take about 3 s)."""
    announce(transaction, Milestone.remove_from_tasks(transaction, id))


@api.post("/meetings")
@operation(MeetingInput(), schemas.MeetingShown, **OF_A_NEW_ROW)
def create_meeting(transaction: Transaction, **fields: Any) -> Row:
    """Create a meeting. You are its organizer."""
    return Meeting.add(transaction, **fields)


@api.get("/meetings/<id>")
@operation(gives=schemas.MeetingShown)
def get_meeting(id: str) -> Row:
    """Show a meeting."""
    return Meeting.shown(id)


@api.patch("/meetings/<id>")
@operation(MeetingInput(partial=True), schemas.MeetingShown, role="member")
def update_meeting(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a meeting, as its organizer, owner or admin. Fields that are not sent stay as they are."""
    return Meeting.edit(transaction, id, fields)


@api.delete("/meetings/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_meeting(transaction: Transaction, id: str) -> None:
    """Delete a meeting, as its organizer, owner or admin."""
    Meeting.remove(transaction, id)


@api.get("/whiteboards")
@operation(gives=WHITEBOARDS)
def list_whiteboards() -> Row:
    """List all whiteboards without their content, the latest updated first."""
    return {"whiteboards": Whiteboard.latest.all(most=-1)}


@api.post("/whiteboards")
@operation(WhiteboardInput(), WhiteboardShown, **OF_A_NEW_ROW)
def create_whiteboard(transaction: Transaction, **fields: Any) -> Row:
    """Create a whiteboard."""
    return Whiteboard.add(transaction, **fields)


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
