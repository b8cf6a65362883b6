"""What lists of tasks and the statistics of projects must show, given the tasks that there are.

Written from the specification; it shares nothing with the service.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any
from unicodedata import normalize

Row = dict[str, Any]

STATUSES = ("todo", "in_progress", "review", "done")
PRIORITIES = ("low", "medium", "high", "urgent")
SORTED_BY = ("created_at", "updated_at", "due_date", "priority")
SORTS = ["rank", *(f"{sign}{name}" for name in SORTED_BY for sign in ("", "-"))]


def passes(task: Row, name: str, value: str, *, archived: Collection[str], me: str) -> bool:
    """Whether a task passes a filter; `archived` are the ids of projects, `me` is who asks."""
    match name:
        case "due_before":
            return task["due_date"] is not None and task["due_date"] < value
        case "updated_since":
            return task["updated_at"] >= value
        case "label":
            return value.casefold() in map(str.casefold, task["labels"])
        case "completed_since":
            return (task["completed_at"] or "") >= value
        case "status" if value == "open":
            return task["status"] != "done"
        case "ready":
            return task["status"] == "todo"
        case "q":
            texts = [plain(text) for text in (task["title"], task["description"] or "")]
            parts = plain(value).split('"')
            words = [word for part in parts[::2] for word in part.split()] + parts[1::2]
            return all(any(word in text for text in texts) for word in words if word.strip())
        case "archived":
            return task["project_id"] not in archived
        case "assignee_id":
            return task[name] == {"me": me, "none": None}.get(value, value)
        case _:
            return task[name] == value


def plain(text: str) -> str:
    """The text without accents of Latin letters, in lower case."""
    return "".join(normalize("NFD", letter)[0] for letter in text).casefold()


def spelled(labels: Iterable[str] | None, tasks: Iterable[Row]) -> list[str]:
    """The labels, each once, and as it is spelled in the tasks that have it already."""
    known = {label.casefold(): label for task in tasks for label in task["labels"]}
    return [known.get(key, label) for key, label in {text.casefold(): text for text in labels or ()}.items()]


def in_order(tasks: Iterable[Row], sort: str, by_hand: list[str]) -> list[Row]:
    """The tasks in this order: ties by id in the same direction, those without a date last.

    `by_hand` are the ids of all tasks, as they were placed.
    """
    if sort == "rank":
        return sorted(tasks, key=lambda task: by_hand.index(task["id"]))
    name, is_falling = sort.removeprefix("-"), sort.startswith("-")
    by_id = sorted(tasks, key=lambda task: task["id"], reverse=is_falling)
    if name == "created_at":  # as the ids rise
        return by_id
    if name == "priority":
        return sorted(by_id, key=lambda task: PRIORITIES.index(task[name]), reverse=is_falling)
    dated = [task for task in by_id if task[name] is not None]
    undated = [task for task in by_id if task[name] is None]
    return sorted(dated, key=lambda task: task[name], reverse=is_falling) + undated


def page(tasks: list[Row], sort: str, limit: int, offset: int) -> Row:
    """One page of the tasks of a list, with its pagination."""
    end = offset + limit
    has_more = end < len(tasks)
    last = tasks[min(end, len(tasks)) - 1] if tasks and sort == "updated_at" and not offset else None
    pagination = {
        "total": len(tasks),
        "total_exact": True,
        "limit": limit,
        "offset": offset,
        "has_more": has_more,
        "next_offset": end if has_more else None,
        "next_after": last and f"{last['updated_at']}_{last['id']}",
    }
    return {"tasks": tasks[offset:end], "pagination": pagination}


def statistics(tasks: Collection[Row], at: str) -> Row:
    """The statistics of a project with these tasks, at this time."""
    counts = Counter(task["status"] for task in tasks)
    overdue = [task for task in tasks if task["status"] != "done" and (task["due_date"] or "~") < at]
    return {
        "total": len(tasks),
        **{status: counts[status] for status in STATUSES},
        "overdue": len(overdue),
        "completion_rate": round(counts["done"] / len(tasks), 4) if tasks else 0.0,
    }
