"""Several tasks at once, tasks of other programs, and copies of tasks."""

from collections.abc import Callable, Iterable
from typing import Any

from marshmallow import ValidationError, fields, validate

import schemas
from app import OF_A_CHANGE, OF_A_NEW_TASK, OF_WORK, announce_edit, api
from database import PAGE_BYTES, Row
from errors import Invalid, PreconditionFailed
from members import Transaction
from models import PLANNED, Changed, Task
from strictjson import MAX_SAFE_INTEGER
from webhooks import announce
from wire import expected_versions, operation, request


def edit_all(
    transaction: Transaction, tasks: list[int | str], changes: Row, versions: Row | None = None
) -> list[Changed]:
    """Make the same changes to these tasks, if those in `versions` have these versions.

    `versions` has the tasks' names in `tasks` as keys. Returns and raises as `edit` does, with everything
    that is wrong in any of them.
    """
    rows, versions = Task.referred(tasks, "tasks.{}"), versions or {}
    names = {row["id"]: str(task) for row, task in zip(rows, tasks, strict=True)}
    if len(names) < len(tasks):
        raise Invalid(("tasks", "must not name a task twice"))
    if sum(row["size"] for row in rows) > PAGE_BYTES:
        raise Invalid(("tasks", "have over 4 MiB of text together; change fewer in one call"))
    if unknown := sorted(versions.keys() - names.values()):
        raise Invalid(("versions", f"{unknown[0][:100]} is not in tasks"))
    expected = {id: frozenset([str(versions[name])]) for id, name in names.items() if name in versions}

    def deleted() -> set[str]:  # tasks that followed others, which were reopened
        return {row["id"] for event, row in transaction.task_events if event == "task.deleted"}

    def edit(id: str) -> Changed | None:
        return None if id in deleted() else Task.edit(transaction, id, changes, expected.get(id))

    edited = [changed for changed in _each(names, edit) if changed]
    # An edit may have changed earlier tasks, too: what blocks them, or their ranks.
    created = [row for event, row in transaction.task_events if event == "task.created"]
    ids = [row["id"] for row in (*created, *(task for task, _ in edited))]
    present = {row["id"]: row for row in Task.stored_rows.all(ids=ids)}
    for row in created:
        row |= present[row["id"]]
    return [(present[task["id"]], changes) for task, changes in edited if task["id"] in present]


def _each(tasks: Iterable[Any], do: Callable[[Any], Any]) -> list:
    """Return what `do` returns for each task. Raises `Invalid` with everything that is wrong in any."""
    results, problems = [], []
    for index, task in enumerate(tasks):
        try:
            results.append(do(task))
        except Invalid as error:
            problems += [(f"tasks[{index}].{field}", message) for field, message in error.details]
    if problems:
        raise Invalid(*problems)
    return results


TASKS_AT_ONCE = validate.Length(1, 100, error="must be 1 to {max} tasks")


class TaskBatch(schemas.Strict):
    tasks = schemas.ListOf(fields.Nested(lambda: schemas.CREATE_TASK), "tasks", TASKS_AT_ONCE, required=True)

    EXAMPLE = {"tasks": [schemas.TaskInput.CREATED]}

    def handle_error(self, error: ValidationError, *_: Any, **__: Any) -> None:
        """Name each field by its task: `tasks[3].title`."""
        problems = error.messages_dict.get("tasks", [])
        if isinstance(problems, dict):
            del error.messages_dict["tasks"]
            error.messages_dict.update({f"tasks[{index}]": inner for index, inner in problems.items()})


class TaskChanges(schemas.Strict):
    tasks = schemas.ListOf(schemas.TaskReference(), "tasks' numbers or ids", TASKS_AT_ONCE, required=True)
    changes = fields.Nested(lambda: CHANGE_TASK, required=True)
    versions = fields.Dict(
        fields.String(),
        schemas.JSONInteger(1, MAX_SAFE_INTEGER),
        error_messages={**schemas.MESSAGES, "invalid": "must be an object of versions"},
        **schemas.doc("The versions that tasks must have, by number or id as in `tasks`."),
    )

    EXAMPLE = {"tasks": [7, 8], "changes": {"status": "done"}, "versions": {"7": 3}}


COPY_TASK = schemas.TaskInput(only=["title"], partial=True, when=" for a copy")
_changed = schemas.UPDATED_FIELDS + schemas.DETAIL_FIELDS
CHANGE_TASK: schemas.TaskInput = schemas.TaskInput(only=_changed, partial=True, when=" on update")
PUT_TASK = schemas.TaskInput(exclude=["external_id"])
EXTERNAL_ID = schemas.TaskInput(only=["external_id"])
OF_A_PUT: Row = OF_A_CHANGE | {"preconditions": ("If-Match", "If-None-Match")}
ChangedTaskListShown = schemas.response_schema("ChangedTaskList", tasks=[schemas.TaskShown])
CreatedTaskListShown = schemas.response_schema("CreatedTaskList", tasks=[schemas.TaskShown])


@api.post("/tasks/batch")
@operation(TaskBatch(), CreatedTaskListShown, status=201, **OF_WORK)
def create_tasks(transaction: Transaction, tasks: list[Row]) -> Row:
    """Create up to 100 tasks, all or none."""
    return {"tasks": _each(tasks, lambda fields: Task.add(transaction, **fields))}


@api.patch("/tasks/batch")
@operation(TaskChanges(), ChangedTaskListShown, **OF_WORK, raises=(PreconditionFailed,))
def update_tasks(transaction: Transaction, **fields: Any) -> Row:
    """Change up to 100 tasks alike, all or none."""
    changed = edit_all(transaction, **fields)
    announce(transaction, changed)
    return {"tasks": [task for task, _ in changed]}


@api.put("/tasks/by-external-id/<path:external_id>", strict_slashes=True)
@operation(PUT_TASK, schemas.TaskShown, other_statuses={201: "It is new."}, **OF_A_PUT)
def put_task(transaction: Transaction, external_id: str, **fields: Any) -> Row:
    """Create or change the task with this id in another program. Fields not sent stay as they are."""
    named, versions = EXTERNAL_ID.load({"external_id": external_id}), expected_versions()
    id = Task.by_external_id.value(**named)
    if not id and versions is not None:
        raise PreconditionFailed("no task has this external_id")
    if not id:
        request().success_status = 201
        return Task.add(transaction, **named, **fields)
    if request().if_none_match:  # the caller wants to create a task only
        raise PreconditionFailed("a task with this external_id already exists")
    if fields.pop("project_id") != Task.stored(id)["project_id"]:
        fields.pop("milestone_id", None)  # a member has moved the task: let it stay, and a sync continue
    return announce_edit(transaction, *Task.edit(transaction, id, fields, versions))


@api.post("/tasks/<task:id>/copy")
@operation(COPY_TASK, schemas.TaskShown, **OF_A_NEW_TASK)
def copy_task(transaction: Transaction, id: str, **titled: Any) -> Row:
    """Create a task with the plan of this one, under another title if one is sent."""
    task = Task.stored(id)
    planned = {name: task[name] for name in PLANNED}
    return Task.add(transaction, is_copy=True, **planned | titled)
