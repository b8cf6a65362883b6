"""Claims of tasks by agents, and the next date of a task that repeats."""

from typing import Any

from flask import Blueprint

import models
import schemas
from app import OF_A_CHANGE, announce_edit
from database import Row
from errors import Conflict, Invalid, PreconditionFailed
from members import Transaction
from models import Task
from repeat import next_dates
from schemas import API, JSONInteger, Strict, doc
from wire import expected_versions, operation

api = Blueprint("agents", __name__, url_prefix=API)


def register(app: Any) -> None:
    app.register_blueprint(api)


class ClaimInput(Strict):
    END = "After this time the task is given back, unless you claim it again before."
    minutes = JSONInteger(1, models.MAX_CLAIM, allow_none=True, **doc(END))

    EXAMPLE = {"minutes": 30}


@api.post("/tasks/<task:id>/skip")
@operation(gives=schemas.TaskShown, **OF_A_CHANGE)
def skip_task(transaction: Transaction, id: str) -> Row:
    """Move a task that repeats to the next date of its rule, without completing it."""
    task = Task.stored(id)
    dates = task["repeat"] and next_dates(task, transaction.at)
    if not dates:
        raise Invalid(("repeat", "has no later date" if task["repeat"] else "is null: it does not repeat"))
    return announce_edit(transaction, *Task.edit(transaction, id, dates, expected_versions()))


@api.post("/tasks/<task:id>/claim")
@operation(ClaimInput(), schemas.TaskShown, **OF_A_CHANGE | {"raises": (Conflict, PreconditionFailed)})
def claim_task(transaction: Transaction, id: str, minutes: int | None = None) -> Row:
    """Claim an unassigned task in `todo`: it becomes yours and in progress, with `minutes` for that time."""
    return announce_edit(transaction, *Task.claim(transaction, id, expected_versions(), minutes))
