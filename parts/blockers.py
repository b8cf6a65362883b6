"""Tasks that block others: a blocked task is not ready, and its assignee is notified when it is."""

from typing import Any

from peewee import SQL, Case, CompositeKey, ForeignKeyField, Query, Select, fn

from database import Base, Row, json_object, placeholder, statement
from errors import Invalid
from lists import FILTERS
from members import Member, Transaction
from models import Task, values_of


class Blocker(Base):
    """A task and another one that blocks it, as long as the other is open."""

    task = ForeignKeyField(Task, column_name="task_number", on_delete="CASCADE", index=False)
    blocker = ForeignKeyField(Task, column_name="blocker_number", on_delete="CASCADE")

    MAX_TITLE = 100  # characters of a title in an event
    SEEN = "(SELECT COUNT(*) FROM task WHERE number IN (task_number, blocker_number)) = 2"
    delete_rows = statement(lambda cls: cls.delete().where(cls.task == placeholder("number")))

    class Meta:
        primary_key = CompositeKey("task", "blocker")
        without_rowid = True

    @classmethod
    def of(cls, number: Any, *selected: Any, is_open: bool = True, reverse: bool = False) -> Query:
        """Return a SELECT of the open, or the done, tasks that block this task number, as a JSON array.

        With `reverse` it selects the tasks that this one blocks. `selected` replaces the array.
        """
        task, other = (cls.blocker, cls.task) if reverse else (cls.task, cls.blocker)
        blocking = Task.alias("blocking")
        shown = {name: getattr(blocking, name) for name in ("id", "number", "title")}
        array = fn.JSON_GROUP_ARRAY(json_object(shown))
        rows = cls.select(*selected or [array]).join(blocking, on=(other == blocking.number))
        has_status = (blocking.status != "done") if is_open else (blocking.status == "done")
        return rows.where(task == number, has_status)

    @classmethod
    def shown(cls, number: Any, *, is_open: bool = True, reverse: bool = False) -> Any:
        """Return the column of these tasks, which are looked up only for a task that has any: few have."""
        has_some = fn.EXISTS(cls.select(SQL("1")).where((cls.blocker if reverse else cls.task) == number))
        if reverse:  # a done task blocks nothing
            has_some &= Task.is_open
        return fn.JSON(Case(None, [(has_some, cls.of(number, is_open=is_open, reverse=reverse))], "[]"))

    @statement
    def stored_numbers(cls: Any):
        return cls.select(cls.blocker.alias("number")).where(cls.task == placeholder("number"))

    @statement
    def blocked(cls: Any):
        return cls.select(cls.task.alias("number")).where(cls.blocker == placeholder("number"))

    @classmethod
    def blocks(cls, task: Row) -> list[int]:
        """Return the numbers of the tasks that this task blocks; if it is done, those it blocked before."""
        return [row["number"] for row in cls.blocked.all(number=task["number"])]

    @statement
    def free(cls: Any):
        """The open ones among the tasks with these numbers that no open task blocks."""
        given, is_free = Task.number.in_(values_of("numbers")), ~fn.EXISTS(cls.of(Task.number, SQL("1")))
        return Task.select(Task.id, Task.assignee).where(given, Task.is_open, is_free)

    @classmethod
    def notify_free(cls, transaction: Transaction, task: Row, numbers: list[int]) -> None:
        """Notify the assignees of the tasks that this one has blocked and that no task blocks any more."""
        for free in cls.free.all(numbers=numbers) if numbers else ():
            text = f"#{task['number']} {task['title']}"
            if free["assignee_id"] and Member.sees(Member.stored(free["assignee_id"]), task["project_id"]):
                Task.notices.notify(transaction, free, "unblocked", free["assignee_id"], excerpt=text)

    @statement
    def affected(cls: Any):
        """The tasks with the numbers `:released`, and the tasks that the ones numbered `:blocking` block."""
        blocked = cls.select(cls.task).where(cls.blocker.in_(values_of("blocking")))
        return Task.select(Task.id).where(Task.number.in_(blocked) | Task.number.in_(values_of("released")))

    @classmethod
    def affected_by(cls, blocking: list[int], released: list[int]) -> list[Row]:
        """Return the ids of the tasks `affected`."""
        return cls.affected.all(blocking=blocking, released=released) if blocking or released else []

    @statement
    def above(cls: Any):
        """The tasks with these numbers, the tasks that block them, and so on."""
        above = values_of("numbers").cte("above", recursive=True, columns=("number",))
        above = above.union(cls.select(cls.blocker).join(above, on=(cls.task == above.c.number)))
        return Select([above], [above.c.number.alias("number")]).with_cte(above)

    @staticmethod
    def numbers(references: list[int | str]) -> list[int]:
        """Return the numbers of tasks that are given by number or id. Raises `Invalid`."""
        return sorted({row["number"] for row in Task.referred(references, "blocked_by.{}")})

    @classmethod
    def shortened(cls, task: Row) -> Row:
        """Return the task as events show it, with shortened titles of the tasks that block it."""
        shortened = [row | {"title": row["title"][: cls.MAX_TITLE]} for row in task["blocked_by"]]
        return task | {"blocked_by": shortened}

    @classmethod
    def of_new(cls, number: int, references: list[int | str] | None) -> list[Row]:
        """Let these tasks block a new task; return its column `blocked_by`. Raises `Invalid`."""
        return cls.replace_all(number, cls.numbers(references)) if references else []

    @classmethod
    def changes(cls, transaction: Transaction, task: Row, fields: Row) -> Row:
        """Take `blocked_by` out of the fields, and return the change: the stored numbers and the new ones.

        The result is empty without the field, and if it names exactly the blockers that are shown, or all
        that are stored; in an undo, only for the latter. Raises `Invalid` for references that do not exist,
        and for a task that waits for this one itself.
        """
        if "blocked_by" not in fields:
            return {}
        old = [blocker["number"] for blocker in task["blocked_by"]]
        new = cls.numbers(fields.pop("blocked_by") or [])
        stored = sorted(row["number"] for row in cls.stored_numbers.all(number=task["number"]))
        above: dict[tuple[int, ...], set[int]] = transaction.cache.setdefault("above", {})  # for a batch

        def is_awaited(*numbers: int) -> bool:
            if numbers not in above:
                above[numbers] = {row["number"] for row in cls.above.all(numbers=list(numbers))}
            return task["number"] in above[numbers]

        if set(new).difference(stored) and is_awaited(*new):
            waiting = next(filter(is_awaited, new))
            raise Invalid(("blocked_by", f"#{waiting} waits for #{task['number']} itself"))
        same = [stored] if transaction.undoes else [old, stored]
        return {"blocked_by": [stored, new]} if new not in same else {}

    @classmethod
    def replace_all(cls, number: int, blockers: list[int]) -> list[Row]:
        """Let these tasks block the task with this number; return its column `blocked_by`."""
        cls.delete_rows.run(number=number)
        cls.insert_row.run_many({"task_number": number, "blocker_number": blocker} for blocker in blockers)
        return Task.stored(Task.id_of(number))["blocked_by"]


Task.blockers = Blocker
FILTERS["ready"] &= ~fn.EXISTS(Blocker.of(Task.number, SQL("1")))
