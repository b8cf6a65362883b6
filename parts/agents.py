"""Claims of tasks, and questions whose answers tasks wait for."""

from collections.abc import Iterator
from typing import Any

import schemas
from app import OF_A_CHANGE, announce_edit, api
from database import Row, placeholder, statement
from errors import Conflict, Invalid, PreconditionFailed
from members import Activity, ApiKey, Member, Transaction, permit
from models import Changed, Comment, Task, write
from times import now
from webhooks import announce, deliver
from wire import expected_versions, operation


def register(app: Any) -> None:
    app.errands.append(("claims", Claims.ended, end_claims))


class Claims:
    MAX = 1440  # minutes

    @classmethod
    def claim(
        cls, transaction: Transaction, id: str, versions: frozenset[str] | None, minutes: int | None = None
    ) -> Changed:
        """Assign a task in `todo` to the actor, in progress. Returns and raises as `Task.edit` does.

        With `minutes` the claim ends after that time (`end_claims`). Claiming again with the same key only
        moves that end, which does not count as a change of the task. Raises `Conflict` if another member or
        key has the task.
        """
        task, me = Task.stored(id), transaction.actor["id"]
        until = {"claimed_until": now(minutes * 60)} if minutes else {}
        if task["question_id"]:
            raise Conflict(f"#{task['number']} waits for the answer to a question")
        if task["status"] == "todo" and task["assignee_id"] in (None, me):
            claimed = {"claimed_until": None, "status": "in_progress", "assignee_id": me} | until
            return Task.edit(transaction, id, claimed, versions)
        move = Activity.last_change.one(task_id=id, path="$.status") or {"key_id": None, "via": None}
        is_mine = task["status"] == "in_progress" and task["assignee_id"] == me
        if is_mine and move["key_id"] == transaction.actor["key_id"]:
            if until:
                Task.set_columns(id, **until)
                Task.record(transaction, "updated", task | {"is_hidden": 1})
            return task | until, {}
        holder = task["assignee_id"] and Task.shown(id)["assignee"]["full_name"]
        via = f" (via {move['via']})" if is_mine and move["via"] else ""
        state, end = task["status"].replace("_", " "), task["claimed_until"]
        end = f" until {end}" if end else "" if holder else "; it can be claimed once its status is todo"
        raise Conflict(f"#{task['number']} is {state}, and {holder or 'nobody'} has it{via}{end}")

    @statement
    def over(cls: Any):
        """Claims that have ended, and claims that end so late that the clock must have been set back."""
        until = Task.claimed_until
        is_over = (until <= placeholder("now")) | (until > placeholder("latest"))
        return Task.select(Task.id, Task.assignee).where(is_over, until.is_null(False)).limit(100)

    @classmethod
    def ended(cls) -> list[Row]:
        """Return the ids and assignees of up to 100 tasks whose claims have ended."""
        return cls.over.all(now=now(), latest=now(cls.MAX * 60 + 1))

    @statement
    def held(cls: Any):
        is_held = (Task.assignee == placeholder("id")) & (Task.status == "in_progress")
        return Task.select(Task.id, Task.assignee).where(is_held)

    @classmethod
    def end(cls, transaction: Transaction, member_id: str, rows: list[Row]) -> Iterator[Changed]:
        """Unassign the tasks that the member still has, set them to `todo`, and yield each."""
        for row in rows:
            if row["assignee_id"] == member_id:
                free = {"status": "todo", "assignee_id": None, "claimed_until": None}
                task, changes = Task.edit(transaction, row["id"], free, None)
                if not ApiKey.brakes.is_stuck(task):  # that is another notice
                    members = Task.notices.responsible(transaction, task)
                    Task.notices.notify(transaction, task, "claim_ended", *members)
                yield task, changes

    @classmethod
    def given_up(cls, transaction: Transaction, member_id: str) -> Iterator[Changed]:
        """End the claims of a member who was removed, and yield each task."""
        return cls.end(transaction, member_id, cls.held.all(id=member_id))


def end_claims() -> None:
    """Give back the tasks whose claims have ended, in the name of the member who had the claim.

    A claim that nobody has any more ends in the name of an owner.
    """
    for member_id in {row["assignee_id"] for row in Claims.ended()}:
        with write(Member.stored_row.one(id=member_id) or Member.active_owners.one()) as transaction:
            announce(transaction, Claims.end(transaction, member_id, Claims.ended()))
        deliver(transaction)


class Questions:
    @staticmethod
    def commented(
        transaction: Transaction, task: Row, comment: Row, question: bool
    ) -> tuple[Row, Row, set[str], set[str]]:
        """Let a new comment end the task's question, unless its author asked it, and perhaps ask another.

        The task waits for the next comment by somebody else. The question goes to the active members that it
        mentions, or else to `Task.notices.responsible`. Returns the task, its changes, the members that are
        asked and the ones that are answered. Raises for a question `Forbidden` if a client asks, `Conflict`
        if the task is done, and `Invalid` if nobody would be notified.
        """
        asked = set[str]()
        if question:
            permit(transaction.actor, "member")  # a client must not hold up a task
            if task["status"] == "done":
                raise Conflict(f"#{task['number']} is done and waits for no answer; leave out question")
            able = {row["id"] for row in Member.shown_rows.all() if row["status"] == Member.ACTIVE}
            mentioned = {*comment["mentions"]} & able - {Task.notices.witness(transaction)}
            asked = mentioned or {*Task.notices.responsible(transaction, task)}
            if not asked:
                raise Invalid(("question", "nobody would be notified; mention a member, as @Full Name"))
        earlier = Comment.shown(task["question_id"]) if task["question_id"] else comment
        is_answer = any(earlier[name] != comment[name] for name in ("author_id", "via"))
        answered = {earlier["author_id"]} if is_answer else set()
        changes: Row = {}
        if question or is_answer:
            asking = {"question_id": comment["id"] if question else None}
            task, changes = Task.edit(transaction, task["id"], asking, None)
        return task, changes, asked, answered


Task.claims, Task.questions = Claims, Questions


class ClaimInput(schemas.Strict):
    END = "After this time the task is given back, unless you claim it again before."
    minutes = schemas.JSONInteger(1, Claims.MAX, allow_none=True, **schemas.doc(END))

    EXAMPLE = {"minutes": 30}


@api.post("/tasks/<task:id>/claim")
@operation(ClaimInput(), schemas.TaskShown, **OF_A_CHANGE | {"raises": (Conflict, PreconditionFailed)})
def claim_task(transaction: Transaction, id: str, minutes: int | None = None) -> Row:
    """Claim an unassigned task in `todo`: it becomes yours and in progress, with `minutes` for that time."""
    return announce_edit(transaction, *Claims.claim(transaction, id, expected_versions(), minutes))
