"""The order of tasks by hand: a task is put directly after or before another one."""

from typing import Any

from database import Row, placeholder, statement
from members import Transaction
from models import Task


class Rank:
    """The place of each task in the one order by hand of all tasks; each list shows a part of that order.

    A rank is a text of digits: ten for a whole number, and any others for its decimals, so there is a rank
    between any two. The ranks of new tasks are whole, and rise with the tasks' numbers.
    """

    DIGITS = 10
    MAX = 40  # digits; before a rank gets more, `spread` shortens its neighbours

    @classmethod
    def whole(cls, value: int) -> str:
        return f"{value:0{cls.DIGITS}d}"

    @classmethod
    def between(cls, low: str, high: str) -> str:
        """Return a short rank between two others."""
        digits, least, most = cls.DIGITS, 0, 0
        while most - least < 2:
            least, most = (int(rank[:digits].ljust(digits, "0")) for rank in (low, high))
            digits += 1
        return f"{(least + most) // 2:0{digits - 1}d}".rstrip("0").ljust(cls.DIGITS, "0")

    @statement
    def rank_after(cls: Any):
        follows = (Task.rank > placeholder("rank")) & (Task.id != placeholder("id"))
        return Task.select(Task.rank).where(follows).order_by(Task.rank).limit(1)

    @statement
    def rank_before(cls: Any):
        precedes = (Task.rank < placeholder("rank")) & (Task.id != placeholder("id"))
        return Task.select(Task.rank).where(precedes).order_by(Task.rank.desc()).limit(1)

    @statement
    def ranked_between(cls: Any):
        is_between = (Task.rank > placeholder("low")) & (Task.rank < placeholder("high"))
        rows = Task.select(Task.id, Task.number, Task.title, Task.version, Task.project)
        return rows.where(is_between, Task.id != placeholder("id")).order_by(Task.rank)

    @classmethod
    def move(cls, transaction: Transaction, task: Row, fields: Row) -> Row:
        """Take `after` or `before` out of the fields; return the new `rank`, or nothing if the task is there.

        The task goes directly after or before the task that the field names: after null it is the first of
        all, before null the last. Raises `Invalid`.
        """
        side = "after" if "after" in fields else "before"
        if side not in fields:
            return {}
        reference = fields.pop(side)
        id, beside = task["id"], None
        if reference is not None:
            other = Task.stored(Task.referred([reference], side)[0]["id"])
            if other["id"] == id:
                return {}
            beside = other["rank"]
        low = beside if side == "after" else cls.rank_before.value(rank=beside or "~", id=id)
        high = beside if side == "before" else cls.rank_after.value(rank=beside or "", id=id)
        if (low or "") < task["rank"] < (high or "~"):  # it is there already
            return {}
        if not low:
            return {"rank": cls.whole(int(str(high)[: cls.DIGITS]) - 1)}
        rank = cls.between(low, high or cls.whole(int(low[: cls.DIGITS]) + 1))
        if len(rank) > cls.MAX:
            cls.spread(transaction, task, low[: cls.DIGITS])
            return cls.move(transaction, task | {"rank": ""}, {side: reference})  # it may be another's now
        return {"rank": rank}

    @classmethod
    def directly_after(cls, transaction: Transaction, number: int) -> Row:
        """Return the `rank` of a new task directly after the task with this number."""
        return cls.move(transaction, {"id": "", "rank": ""}, {"after": number})

    @classmethod
    def spread(cls, transaction: Transaction, task: Row, whole: str) -> None:
        """Give the other tasks between this whole rank and the next one short ranks, in their order."""
        rows = cls.ranked_between.all(low=whole, high=cls.whole(int(whole) + 1), id=task["id"])
        digits = len(str(len(rows))) + 2
        for index, row in enumerate(rows, 1):
            rank = whole + f"{index * 10**digits // (len(rows) + 1):0{digits}d}".rstrip("0")
            Task.set_columns(row["id"], rank=rank, version=row["version"] + 1, updated_at=transaction.at)
            Task.record(transaction, "updated", row | {"is_hidden": 1})


Task.order = Rank
