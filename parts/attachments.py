"""The files of tasks: attach, list, download and delete them."""

import re
from typing import Any
from urllib.parse import quote

from flask import Blueprint

import schemas
from app import OF_A_NEW_ROW
from database import Row
from members import Transaction
from models import Attachment
from schemas import API
from wire import Response, operation

api = Blueprint("attachments", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


@api.get("/tasks/<task:id>/attachments")
@operation(gives=schemas.ATTACHMENTS)
def list_attachments(id: str) -> Row:
    """List the attachments of a task, oldest first."""
    return {"attachments": Attachment.of(id)}


@api.post("/tasks/<task:id>/attachments")
@operation(schemas.UPLOAD, schemas.AttachmentShown, reads="file", **OF_A_NEW_ROW, scope="agent")
def add_attachment(transaction: Transaction, id: str, file: Row) -> Row:
    """Attach a file to a task, sent as the part `file` of a form."""
    return Attachment.add(transaction, id, **file)


@api.get("/tasks/<task:id>/attachments/<attachment_id>")
@operation(gives="application/octet-stream")
def download_attachment(id: str, attachment_id: str) -> Response:
    """Download an attachment, which browsers always save as a file."""
    row, data = Attachment.content(id, attachment_id)
    name = row["filename"]
    plain = re.sub(r'[^ -~]|["\\\\%]', "_", name)
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
    return Response(data, 200, {"Content-Disposition": disposition}, "application/octet-stream")


@api.delete("/tasks/<task:id>/attachments/<attachment_id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_attachment(transaction: Transaction, id: str, attachment_id: str) -> None:
    """Delete an attachment."""
    Attachment.remove(transaction, id, attachment_id)
