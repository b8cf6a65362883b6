"""Several tasks at once, tasks of other programs, copies, and the labels in use."""

from typing import Any

from flask import Blueprint
from marshmallow import ValidationError, fields, validate

import schemas
from app import OF_A_NEW_TASK, OF_A_PUT, OF_WORK, announce_edit
from database import Row
from errors import PreconditionFailed
from members import Transaction
from models import Task
from schemas import (
    API,
    CREATE_TASK,
    DETAILS,
    MESSAGES,
    UPDATED,
    JSONInteger,
    ListOf,
    Strict,
    TaskInput,
    TaskReference,
    TaskShown,
    answer_with,
    doc,
)
from strictjson import MAX_SAFE_INTEGER
from webhooks import announce
from wire import expected_versions, operation, request

api = Blueprint("batches", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


TASKS_AT_ONCE = validate.Length(1, 100, error="must be 1 to {max} tasks")


class TaskBatch(Strict):
    tasks = ListOf(fields.Nested(lambda: CREATE_TASK), "tasks", TASKS_AT_ONCE, required=True)

    EXAMPLE = {"tasks": [TaskInput.CREATED]}

    def handle_error(self, error: ValidationError, *_: Any, **__: Any) -> None:
        """Name each field by its task: `tasks[3].title`."""
        problems = error.messages_dict.get("tasks", [])
        if isinstance(problems, dict):
            del error.messages_dict["tasks"]
            error.messages_dict.update({f"tasks[{index}]": inner for index, inner in problems.items()})


class TaskChanges(Strict):
    tasks = ListOf(TaskReference(), "tasks' numbers or ids", TASKS_AT_ONCE, required=True)
    changes = fields.Nested(lambda: CHANGE_TASK, required=True)
    versions = fields.Dict(
        fields.String(),
        JSONInteger(1, MAX_SAFE_INTEGER),
        error_messages={**MESSAGES, "invalid": "must be an object of versions"},
        **doc("The versions that tasks must have, by number or id as in `tasks`."),
    )

    EXAMPLE = {"tasks": [7, 8], "changes": {"status": "done"}, "versions": {"7": 3}}


COPY_TASK = TaskInput(only=["title"], partial=True, when=" for a copy")
CHANGE_TASK: TaskInput = TaskInput(only=UPDATED + DETAILS, partial=True, when=" on update")
PUT_TASK = TaskInput(exclude=["external_id"])
EXTERNAL_ID = TaskInput(only=["external_id"])
LabelShown = answer_with("Label", label=str, count=int)
LABELS = answer_with("LabelList", labels=[LabelShown])
CHANGED_TASKS = answer_with("ChangedTaskList", tasks=[TaskShown])
CREATED_TASKS = answer_with("CreatedTaskList", tasks=[TaskShown])


@api.get("/labels")
@operation(gives=LABELS)
def list_labels() -> Row:
    """List the labels that tasks have, each with its number of tasks."""
    return {"labels": Task.label_counts()}


@api.post("/tasks/batch")
@operation(TaskBatch(), CREATED_TASKS, status=201, **OF_WORK)
def create_tasks(transaction: Transaction, tasks: list[Row]) -> Row:
    """Create up to 100 tasks, all or none."""
    return {"tasks": Task.add_all(transaction, tasks)}


@api.patch("/tasks/batch")
@operation(TaskChanges(), CHANGED_TASKS, **OF_WORK, raises=(PreconditionFailed,))
def update_tasks(transaction: Transaction, **fields: Any) -> Row:
    """Change up to 100 tasks alike, all or none."""
    changed = Task.edit_all(transaction, **fields)
    announce(transaction, changed)
    return {"tasks": [task for task, _ in changed]}


@api.put("/tasks/by-external-id/<path:external_id>", strict_slashes=True)
@operation(PUT_TASK, schemas.TaskShown, also={201: "It is new."}, **OF_A_PUT)
def put_task(transaction: Transaction, external_id: str, **fields: Any) -> Row:
    """Create or change the task with this id in another program. Fields not sent stay as they are."""
    named = EXTERNAL_ID.load({"external_id": external_id})
    task, changes = Task.put(transaction, **named, versions=expected_versions(), **fields)
    if changes is None:
        request().success_status = 201
        return task
    if request().if_none_match:  # the caller wants to create a task only
        raise PreconditionFailed("a task with this external_id already exists")
    return announce_edit(transaction, task, changes)


@api.post("/tasks/<task:id>/copy")
@operation(COPY_TASK, schemas.TaskShown, **OF_A_NEW_TASK)
def copy_task(transaction: Transaction, id: str, **titled: Any) -> Row:
    """Create a task with the plan of this one, under another title if one is sent."""
    return Task.copy(transaction, id, **titled)
