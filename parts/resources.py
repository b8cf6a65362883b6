"""Milestones, meetings and whiteboards, which the specification only lists: make, change and delete them."""

from typing import Any

from flask import Blueprint

import schemas
from app import OF_A_NEW_ROW
from database import Row
from meetings import Meeting, Whiteboard
from members import Transaction
from models import Milestone, Project
from schemas import API
from webhooks import announce
from wire import operation

api = Blueprint("resources", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


@api.get("/projects/<id>/milestones")
@operation(gives=schemas.MILESTONES)
def list_milestones(id: str) -> Row:
    """List the milestones of a project by date."""
    return {"milestones": Milestone.of(id)}


@api.post("/projects/<id>/milestones")
@operation(schemas.CREATE_MILESTONE, schemas.MilestoneShown, **OF_A_NEW_ROW, collection="/milestones")
def create_milestone(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Create a milestone of a project."""
    Project.stored(id)
    return Milestone.add(transaction, project_id=id, **fields)


@api.get("/milestones/<id>")
@operation(gives=schemas.MilestoneShown)
def get_milestone(id: str) -> Row:
    """Show a milestone."""
    return Milestone.shown(id)


@api.patch("/milestones/<id>")
@operation(schemas.MilestoneInput(partial=True), schemas.MilestoneShown, role="member")
def update_milestone(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a milestone. Fields that are not sent stay as they are."""
    return Milestone.edit(transaction, id, fields)


@api.delete("/milestones/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_milestone(transaction: Transaction, id: str) -> None:
    """Delete a milestone. Its tasks stay (20 000 take about 3 s)."""
    announce(transaction, Milestone.remove_from_tasks(transaction, id))


@api.post("/meetings")
@operation(schemas.MeetingInput(), schemas.MeetingShown, **OF_A_NEW_ROW)
def create_meeting(transaction: Transaction, **fields: Any) -> Row:
    """Create a meeting. You are its organizer."""
    return Meeting.add(transaction, **fields)


@api.get("/meetings/<id>")
@operation(gives=schemas.MeetingShown)
def get_meeting(id: str) -> Row:
    """Show a meeting."""
    return Meeting.shown(id)


@api.patch("/meetings/<id>")
@operation(schemas.MeetingInput(partial=True), schemas.MeetingShown, role="member")
def update_meeting(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a meeting, as its organizer, owner or admin. Fields that are not sent stay as they are."""
    return Meeting.edit(transaction, id, fields)


@api.delete("/meetings/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_meeting(transaction: Transaction, id: str) -> None:
    """Delete a meeting, as its organizer, owner or admin."""
    Meeting.remove(transaction, id)


@api.get("/whiteboards")
@operation(gives=schemas.WHITEBOARDS)
def list_whiteboards() -> Row:
    """List all whiteboards without their content, the latest updated first."""
    return {"whiteboards": Whiteboard.latest.all(most=-1)}


@api.post("/whiteboards")
@operation(schemas.WhiteboardInput(), schemas.WhiteboardShown, **OF_A_NEW_ROW)
def create_whiteboard(transaction: Transaction, **fields: Any) -> Row:
    """Create a whiteboard."""
    return Whiteboard.add(transaction, **fields)


@api.get("/whiteboards/<id>")
@operation(gives=schemas.WhiteboardShown)
def get_whiteboard(id: str) -> Row:
    """Show a whiteboard."""
    return Whiteboard.shown(id)


@api.patch("/whiteboards/<id>")
@operation(schemas.WhiteboardInput(partial=True), schemas.WhiteboardShown, role="member")
def update_whiteboard(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a whiteboard. Fields that are not sent stay as they are."""
    return Whiteboard.edit(transaction, id, fields)


@api.delete("/whiteboards/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_whiteboard(transaction: Transaction, id: str) -> None:
    """Delete a whiteboard."""
    Whiteboard.remove(transaction, id)
