"""What a workspace must show: rows, lists, the context, as the specification and the contract say.

This shares nothing with the service. `workspace_model.Workspace` is what changes it.
"""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

Row = dict[str, Any]

STATUSES = ("todo", "in_progress", "review", "done")
PRIORITIES = ("low", "medium", "high", "urgent")
KINDS = ("project", "milestone", "task", "comment", "attachment", "whiteboard", "meeting")


def wire(text: str, *, ends_day: bool = False) -> str:
    """A date or time as it is shown: in UTC, cut off after the millisecond; a date may stand for its end."""
    moment = datetime.fromisoformat(f"{text}T23:59:59.999" if ends_day and len(text) == 10 else text)
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def as_text(value: Any) -> str:
    """JSON text that is equal for equal values; True and 1 differ."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


class ShownWorkspace:
    """What there is, what was done (`history`) and what was told (`events`), both oldest first."""

    def __init__(self, members: Iterable[Row], recent: dict[str, list[Row]]):
        self.members = {member["id"]: member for member in members}
        self.rows: dict[str, dict[str, Row]] = {kind: {} for kind in KINDS}
        self.gone: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self.files: dict[str, bytes] = {}
        self.recent = recent  # what was done before, as the context shows it to each actor
        self.history: list[Row] = []
        self.events: list[Row] = []

    def ids_of(self, kind: str, **values: str) -> list[str]:
        return [id for id, row in self.rows[kind].items() if values.items() <= row.items()]

    def profile(self, id: str | None) -> Row | None:
        if id is None:
            return None
        return {name: self.members[id][name] for name in ("id", "full_name", "email", "role")}

    def _by_full_name(self, ids: Iterable[str]) -> list[Row]:
        profiles = [self.members[id] for id in set(ids)]
        return [
            self.profile(m["id"]) or {} for m in sorted(profiles, key=lambda m: (m["full_name"], m["id"]))
        ]

    def shown(self, kind: str, id: str, at: str = "") -> Row:
        """A row as the answer about it shows it, at this time."""
        row = dict(self.rows[kind][id])
        if kind == "project":
            row |= {"owner": self.profile(row.pop("owner_id")), "stats": self.statistics(id, at)}
        if kind == "comment":
            row["author"] = self.profile(row["author_id"])
        if kind == "meeting":
            row["organizer"] = self.profile(row.pop("organizer_id"))
            row["participants"] = self._by_full_name(row.pop("participant_ids"))
            row["when"] = "past" if (row["ends_at"] or row["starts_at"]) <= at else "upcoming"
        return row

    def task_detail(self, id: str) -> Row:
        task = self.rows["task"][id]
        milestone = self.rows["milestone"].get(task["milestone_id"])
        project = self.rows["project"][task["project_id"]]
        return task | {
            "project": {name: project[name] for name in ("id", "name", "status", "owner_id")},
            "milestone": milestone and {name: milestone[name] for name in ("id", "title", "due_date")},
            "assignee": self.profile(task["assignee_id"]),
            "creator": self.profile(task["created_by"]),
            "attachments": self.listed("attachment", task_id=id),
            "comment_count": len(self.ids_of("comment", task_id=id)),
        }

    def statistics(self, project_id: str, at: str) -> Row:
        tasks = [task for task in self.rows["task"].values() if task["project_id"] == project_id]
        counts = Counter(task["status"] for task in tasks)
        rate = round(counts["done"] / len(tasks), 4) if tasks else 0.0
        overdue = sum(self._is_overdue(task, at) for task in tasks)
        by_status = {status: counts[status] for status in STATUSES}
        return {"total": len(tasks), **by_status, "overdue": overdue, "completion_rate": rate}

    @staticmethod
    def _is_overdue(task: Row, at: str) -> bool:
        return task["status"] != "done" and (task["due_date"] or "~") < at

    def listed(self, kind: str, at: str = "", **values: str) -> list[Row]:
        """The rows of a kind with these values as a list shows them, the oldest first."""
        return [self.shown(kind, id, at) for id in sorted(self.ids_of(kind, **values))]

    def projects(self, at: str, **values: str) -> list[Row]:
        rows = self.listed("project", at, **values)
        for row in rows:
            text = row["description"] or ""
            row |= {"description": text[:1000] if len(text) > 1000 else row["description"]}
            row["description_cut"] = len(text) > 1000
        return sorted(rows, key=lambda row: (row["name"].casefold(), row["id"]))

    def milestones(self, project_id: str) -> list[Row]:
        milestones = self.listed("milestone", project_id=project_id)
        return sorted(milestones, key=lambda row: (row["due_date"] or "~", row["id"]))

    def meetings(self, member_id: str, at: str) -> list[Row]:
        mine = [
            id
            for id, row in self.rows["meeting"].items()
            if member_id in (row["organizer_id"], *row["participant_ids"])
        ]
        shown = [self.shown("meeting", id, at) for id in mine]
        shown.sort(key=lambda row: (row["starts_at"], row["id"]))
        upcoming = [row for row in shown if row["when"] == "upcoming"]
        return upcoming + [row for row in reversed(shown) if row["when"] == "past"]

    def whiteboards(self) -> list[Row]:
        rows = sorted(self.rows["whiteboard"].values(), key=lambda row: (row["updated_at"], row["id"]))
        names = ("id", "title", "project_id", "updated_at", "updated_by")
        return [{name: row[name] for name in names} for row in reversed(rows)]

    def everyone(self) -> list[Row]:
        members = [member for member in self.members.values() if member["status"] != "removed"]
        return sorted(members, key=lambda member: (member["full_name"].casefold(), member["id"]))

    def context(self, at: str, actor: str) -> Row:
        """The context of this actor, except its part `system`."""
        recent = [entry for entry in reversed(self.history) if entry["action"] != "deleted"]
        recent = [entry for entry in recent if actor != "client" or entry["task_id"]][:5]
        recent = [{name: entry[name] for name in entry if name != "task_id"} for entry in recent]
        members = [m for m in self.everyone() if (m["kind"], m["status"]) == ("team", "active")]
        return {
            "projects": self.projects(at, status="active"),
            "members": members,
            "urgent_tasks": self.urgent_tasks(at)[:10],
            "recent_activity": (recent + self.recent[actor])[:5],
            "whiteboards": self.whiteboards()[:10],
        }

    def urgent_tasks(self, at: str) -> list[Row]:
        shown = []
        for task in self.rows["task"].values():
            overdue, project = self._is_overdue(task, at), self.rows["project"][task["project_id"]]
            is_urgent = overdue or (task["priority"] == "urgent" and task["status"] != "done")
            if is_urgent and project["status"] == "active":
                assignee = self.profile(task["assignee_id"])
                names = {"project_name": project["name"], "assignee_name": assignee and assignee["full_name"]}
                shown.append(task | names | {"overdue": overdue})
        return sorted(shown, key=lambda task: (not task["overdue"], task["due_date"] or "~", task["id"]))

    # Lists of tasks

    def task_list(self, caller: str, query: Row) -> Row:
        """What `GET /tasks` answers to this query."""
        query = dict(query)
        limit, offset = query.pop("limit", 20), query.pop("offset", 0)
        sort, include = query.pop("sort", "-created_at"), query.pop("include", None)
        found = [task for task in self.rows["task"].values() if self._passes(task, caller, query)]
        found = self._sorted(found, sort.lstrip("-"), falls=sort.startswith("-"))
        page, end = found[offset : offset + limit], offset + limit
        if include:
            page = [
                task | {"comment_count": len(self.ids_of("comment", task_id=task["id"]))} for task in page
            ]
        pagination = {
            "total": len(found),
            "total_exact": True,
            "limit": limit,
            "offset": offset,
            "has_more": end < len(found),
            "next_offset": end if end < len(found) else None,
        }
        return {"tasks": page, "pagination": pagination}

    def _passes(self, task: Row, caller: str, query: Row) -> bool:
        for name, value in query.items():
            if name == "due_before":
                passes = task["due_date"] is not None and task["due_date"] < wire(value)
            elif name == "updated_since":
                passes = task["updated_at"] >= wire(value)
            elif name == "q":
                words = value.strip().casefold()
                texts = (task["title"], task["description"] or "")
                passes = any(words in text.casefold() for text in texts)
            elif name == "archived":
                passes = self.rows["project"][task["project_id"]]["status"] == "active"
            else:
                passes = task[name] == {"me": caller, "none": None}.get(value, value)
            if not passes:
                return False
        return True

    @staticmethod
    def _sorted(tasks: list[Row], name: str, *, falls: bool) -> list[Row]:
        """In this order; those without a value last, ties by id in the same direction."""
        by_id = sorted(tasks, key=lambda task: task["id"], reverse=falls)
        with_value = [task for task in by_id if task[name] is not None]
        if name == "created_at":
            return by_id
        with_value.sort(
            key=lambda task: PRIORITIES.index(task[name]) if name == "priority" else task[name], reverse=falls
        )
        return with_value + [task for task in by_id if task[name] is None]
