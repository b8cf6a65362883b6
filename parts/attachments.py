"""The files of tasks: attach, list, download and delete them."""

import io
import re
from functools import partial
from typing import Any
from urllib.parse import quote

from marshmallow import ValidationError, fields
from peewee import BlobField, ForeignKeyField
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import MultiPartParser

import limits
import schemas
from app import OF_A_NEW_ROW, api
from database import Base, Row, placeholder, statement
from errors import BadBody, TooLarge, Unavailable, Unsupported, not_found
from members import Transaction
from models import Attachment, Task
from wire import Response, operation, request, slot


class AttachmentContent(Base):
    attachment = ForeignKeyField(Attachment, primary_key=True, on_delete="CASCADE")
    data = BlobField()

    SEEN = "EXISTS (SELECT 1 FROM attachment WHERE attachment.id = attachment_id)"
    of_attachment = statement(lambda cls: cls.select(cls.data).where(cls.attachment == placeholder("id")))


class UploadedFile(fields.Field):
    """A file in a form, loaded as `filename`, `content_type` and `data`."""

    default_error_messages = {**schemas.MESSAGES, "invalid": "must be a file"}
    described = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> dict[str, Any]:
        if isinstance(value, str):
            raise self.make_error("invalid")
        # Old browsers send whole paths; only the last part is the file's name.
        filename = re.split(r"[/\\]", value.filename or "")[-1]
        try:
            filename = schemas.Name(255).deserialize(filename)
        except ValidationError as error:
            raise ValidationError(f"its name {error.messages[0]}") from error
        kind = value.mimetype if re.fullmatch("[!-~]{1,200}", value.mimetype) else "application/octet-stream"
        # Unlike read(), getvalue() makes no copy of a file that may be large.
        return {"filename": filename, "content_type": kind, "data": value.stream.getvalue()}


FORM_STEP = 16 * 1024  # bytes of a form that are parsed in one step; werkzeug refuses over `FORM_BYTES`
uploads = limits.Slots(limits.UPLOADS, limits.UPLOADS)
UPLOADS_BUSY = f"{limits.UPLOADS} files are being uploaded at the moment; try again"


def read_upload() -> MultiDict:
    """Return the fields and files of a form. Raises `Unsupported`, `BadBody`, and as `read` does."""
    current = request()
    if not current.unread:
        return MultiDict()
    if current.mimetype != "multipart/form-data":
        raise Unsupported("send the file as multipart/form-data, in the part named file")
    most = current.config["LIMITS"]["max_attachment_bytes"]
    body = current.read(most + limits.FORM_BYTES, limits.UPLOAD_SECONDS)
    sizes = {"max_form_memory_size": limits.FORM_BYTES, "buffer_size": FORM_STEP}
    parser = MultiPartParser(lambda *_, **__: io.BytesIO(), max_form_parts=10, **sizes)  # type: ignore[arg-type]
    try:
        boundary = current.mimetype_params.get("boundary", "").encode()
        parts, files = parser.parse(io.BytesIO(body), boundary, len(body))
    except (ValueError, RequestEntityTooLarge) as error:
        raise BadBody("the body is not a valid form") from error
    if any(file.stream.getbuffer().nbytes > most for _, file in files.items(multi=True)):  # type: ignore[attr-defined]
        raise TooLarge(f"the file is too large; at most {most} bytes are accepted")
    return MultiDict([*parts.items(multi=True), *files.items(multi=True)])


UPLOAD = schemas.Strict.from_dict({"file": UploadedFile(required=True)})()
OF_A_FORM: Row = {"reads": read_upload, "within": partial(slot, uploads, Unavailable, UPLOADS_BUSY)}
AttachmentListShown = schemas.response_schema("AttachmentList", attachments=[schemas.AttachmentShown])


def attach(transaction: Transaction, task_id: str, *, data: bytes, **described: str) -> Row:
    """Attach a file to a task; `described` are its `filename` and `content_type`. Raises `NotFound`.

    An import also passes `id`, `created_by` and `created_at`.
    """
    task = Task.stored(task_id)
    row: Row = {"id": transaction.new_id(), "task_id": task_id, "size": len(data)}
    row |= {"created_by": transaction.actor["id"], "created_at": transaction.at} | described
    Attachment.replace_row.run(**row)  # an import may bring back a file that is kept
    AttachmentContent.insert_row.run(attachment_id=row["id"], data=data)
    attached = {"attachment": [None, row["filename"]], "attachment_id": [None, row["id"]]}
    Task.record(transaction, "updated", task, attached)
    Task.notices.acted(transaction, task_id)
    return row


def detach(transaction: Transaction, task_id: str, id: str) -> None:
    """Delete an attachment. Raises `NotFound`."""
    row = Attachment.of_task(task_id, id)
    if not Attachment.keeper.keep_rows(transaction, Attachment, [row]):
        Attachment.delete_row.run(id=id)
    removed = {"attachment": [row["filename"], None], "attachment_id": [id, None]}
    Task.record(transaction, "updated", Task.stored(task_id), removed)


@api.get("/tasks/<task:id>/attachments")
@operation(gives=AttachmentListShown)
def list_attachments(id: str) -> Row:
    """List the attachments of a task, oldest first."""
    Task.stored(id)
    return {"attachments": Attachment.all_of_task.all(task_id=id)}


@api.post("/tasks/<task:id>/attachments")
@operation(UPLOAD, schemas.AttachmentShown, **OF_A_FORM, **OF_A_NEW_ROW, scope="agent")
def add_attachment(transaction: Transaction, id: str, file: Row) -> Row:
    """Attach a file to a task, sent as the part `file` of a form."""
    return attach(transaction, id, **file)


@api.get("/tasks/<task:id>/attachments/<attachment_id>")
@operation(gives="application/octet-stream")
def download_attachment(id: str, attachment_id: str) -> Response:
    """Download an attachment, which browsers always save as a file."""
    name = Attachment.of_task(id, attachment_id)["filename"]
    data = AttachmentContent.of_attachment.value(id=attachment_id)
    if data is None:  # it was deleted between the two reads
        not_found("attachment")
    plain = re.sub(r'[^ -~]|["\\\\%]', "_", name)
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
    return Response(data, 200, {"Content-Disposition": disposition}, "application/octet-stream")


@api.delete("/tasks/<task:id>/attachments/<attachment_id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_attachment(transaction: Transaction, id: str, attachment_id: str) -> None:
    """Delete an attachment."""
    detach(transaction, id, attachment_id)
