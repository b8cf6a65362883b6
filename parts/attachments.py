"""The files of tasks: attach, list, download and delete them."""

import re
from typing import Any
from urllib.parse import quote

from flask import Blueprint
from marshmallow import ValidationError, fields

import schemas
from app import OF_A_NEW_ROW
from database import Row
from members import Transaction
from models import Attachment
from schemas import API, MESSAGES, AttachmentShown, Name, Strict, answer_with
from wire import Response, operation

api = Blueprint("attachments", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


class UploadedFile(fields.Field):
    """A file in a form, loaded as `filename`, `content_type` and `data`."""

    default_error_messages = {**MESSAGES, "invalid": "must be a file"}
    described = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> dict[str, Any]:
        if isinstance(value, str):
            raise self.make_error("invalid")
        # Old browsers send whole paths; only the last part is the file's name.
        filename = re.split(r"[/\\]", value.filename or "")[-1]
        try:
            filename = Name(255).deserialize(filename)
        except ValidationError as error:
            raise ValidationError(f"its name {error.messages[0]}") from error
        kind = value.mimetype if re.fullmatch("[!-~]{1,200}", value.mimetype) else "application/octet-stream"
        # Unlike read(), getvalue() makes no copy of a file that may be large.
        return {"filename": filename, "content_type": kind, "data": value.stream.getvalue()}


UPLOAD = Strict.from_dict({"file": UploadedFile(required=True)})()
ATTACHMENTS = answer_with("AttachmentList", attachments=[AttachmentShown])


@api.get("/tasks/<task:id>/attachments")
@operation(gives=ATTACHMENTS)
def list_attachments(id: str) -> Row:
    """List the attachments of a task, oldest first."""
    return {"attachments": Attachment.of(id)}


@api.post("/tasks/<task:id>/attachments")
@operation(UPLOAD, schemas.AttachmentShown, reads="file", **OF_A_NEW_ROW, scope="agent")
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
