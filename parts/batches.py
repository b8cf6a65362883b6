"""Several tasks at once, tasks of other programs, copies, and the labels in use."""

from typing import Any

from flask import Blueprint

import schemas
from app import OF_A_NEW_TASK, OF_A_PUT, OF_WORK, announce_edit
from database import Row
from errors import PreconditionFailed
from members import Transaction
from models import Task
from schemas import API
from webhooks import announce
from wire import expected_versions, operation, request

api = Blueprint("batches", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


@api.get("/labels")
@operation(gives=schemas.LABELS)
def list_labels() -> Row:
    """List the labels that tasks have, each with its number of tasks."""
    return {"labels": Task.label_counts()}


@api.post("/tasks/batch")
@operation(schemas.TaskBatch(), schemas.CREATED_TASKS, status=201, **OF_WORK)
def create_tasks(transaction: Transaction, tasks: list[Row]) -> Row:
    """Create up to 100 tasks, all or none."""
    return {"tasks": Task.add_all(transaction, tasks)}


@api.patch("/tasks/batch")
@operation(schemas.TaskChanges(), schemas.CHANGED_TASKS, **OF_WORK, raises=(PreconditionFailed,))
def update_tasks(transaction: Transaction, **fields: Any) -> Row:
    """Change up to 100 tasks alike, all or none."""
    changed = Task.edit_all(transaction, **fields)
    announce(transaction, changed)
    return {"tasks": [task for task, _ in changed]}


@api.put("/tasks/by-external-id/<path:external_id>", strict_slashes=True)
@operation(schemas.PUT_TASK, schemas.TaskShown, also={201: "It is new."}, **OF_A_PUT)
def put_task(transaction: Transaction, external_id: str, **fields: Any) -> Row:
    """Create or change the task with this id in another program. Fields not sent stay as they are."""
    named = schemas.EXTERNAL_ID.load({"external_id": external_id})
    task, changes = Task.put(transaction, **named, versions=expected_versions(), **fields)
    if changes is None:
        request().success_status = 201
        return task
    if request().if_none_match:  # the caller wants to create a task only
        raise PreconditionFailed("a task with this external_id already exists")
    return announce_edit(transaction, task, changes)


@api.post("/tasks/<task:id>/copy")
@operation(schemas.COPY_TASK, schemas.TaskShown, **OF_A_NEW_TASK)
def copy_task(transaction: Transaction, id: str, **titled: Any) -> Row:
    """Create a task with the plan of this one, under another title if one is sent."""
    return Task.copy(transaction, id, **titled)
