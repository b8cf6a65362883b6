"""A model of a workspace in plain dicts: what its API must show after each change.

It is written from the specification and the contract, and shares nothing with the service. The times and
ids, which the service chooses, are given to it.
"""

import json
from copy import deepcopy
from typing import Any, NamedTuple

from workspace_shown import Row, ShownWorkspace, as_text, wire

KIND_OF = {
    "project_id": "project",
    "milestone_id": "milestone",
    "assignee_id": "member",
    "owner_id": "member",
}
NEW: dict[str, Row] = {  # the fields that a body may leave out
    "project": {"description": None, "status": "active"},
    "milestone": {"description": None, "due_date": None},
    "whiteboard": {"project_id": None, "content": {}},
    "meeting": {
        "description": None,
        "location": None,
        "project_id": None,
        "ends_at": None,
        "participant_ids": [],
    },
    "task": {
        "milestone_id": None,
        "description": None,
        "status": "todo",
        "priority": "medium",
        "assignee_id": None,
        "start_date": None,
        "due_date": None,
        "completed_at": None,
        "metadata": {},
        "version": 1,
    },
    "comment": {"edited_at": None},
    "attachment": {},
}
NULLS = {"priority": "medium", "metadata": {}, "content": {}, "participant_ids": []}  # what null means there


class Change(NamedTuple):
    """Who changes something, when, and in which request."""

    actor: str
    at: str
    request_id: str


def read_body(body: Row) -> Row:
    """The fields of a body in the form in which they are shown."""
    read = {}
    for name, value in body.items():
        if value is None:
            value = deepcopy(NULLS.get(name))
        elif name in ("title", "name", "location"):
            value = value.strip()
        elif name.endswith(("_date", "_at")):
            value = wire(value, ends_day=name == "due_date")
        read[name] = value
    return read


def shortened(value: Any) -> Any:
    """A value in the changes of an activity."""
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    return {"omitted_bytes": size} if size > 1024 else deepcopy(value)


class Workspace(ShownWorkspace):
    """A workspace, and what requests do to it or are refused for."""

    # What is refused

    def is_there(self, kind: str, id: str) -> bool:
        if kind == "member":
            return id in self.members and self.members[id]["status"] != "removed"
        return id in self.rows[kind]

    def refusals(self, kind: str, fields: Row, row: Row | None = None) -> set[int]:
        """The statuses with which these fields of a new row, or new ones of this row, may be refused."""
        new = {name: value for name, value in fields.items() if row is None or row[name] != value}
        after = NEW[kind] | (row or {}) | fields
        known = (row or {}).get("participant_ids", [])
        wrong = any(
            value is not None and not self.is_there(KIND_OF[name], value)
            for name, value in new.items()
            if name in KIND_OF
        )
        wrong |= not all(self.is_there("member", id) or id in known for id in new.get("participant_ids", []))
        if kind == "task":
            project = self.rows["project"].get(after["project_id"])
            milestone = self.rows["milestone"].get(after["milestone_id"] or "")
            wrong |= row is None and project is not None and project["status"] == "archived"
            wrong |= milestone is not None and milestone["project_id"] != after["project_id"]
            wrong |= bool(new) and (after["start_date"] or "") > (after["due_date"] or "~")
        if kind == "meeting":
            wrong |= bool(new) and (after["ends_at"] or "~") < after["starts_at"]
        return {422} if wrong else set()

    # Changes of every kind

    def note(
        self,
        change: Change,
        action: str,
        entity: str,
        id: str,
        title: str,
        changes: Row | None = None,
        task_id: str | None = None,
    ) -> None:
        self.history.append(
            {
                "action": action,
                "entity": entity,
                "entity_id": id,
                "title": title,
                "actor": self.profile(change.actor),
                "changes": {name: [*map(shortened, pair)] for name, pair in (changes or {}).items()},
                "created_at": change.at,
                "task_id": id if entity == "task" else task_id,
            }
        )

    def tell(self, change: Change, event: str, **data: Any) -> None:
        self.events.append(
            {
                "event": event,
                "timestamp": change.at,
                "data": deepcopy(data),
                "actor": self.profile(change.actor),
                "request_id": change.request_id,
            }
        )

    def _note(self, change: Change, action: str, kind: str, row: Row, changes: Row | None = None) -> None:
        """Note what was done to a row, as what it counts in the history."""
        title = row.get("name") or row.get("title", "")
        if kind == "milestone":
            pair = {"created": [None, title], "deleted": [title, None], "updated": [title, changes]}[action]
            project = self.rows["project"][row["project_id"]]
            self.note(change, "updated", "project", row["project_id"], project["name"], {"milestone": pair})
        elif kind == "comment":
            task = self.rows["task"][row["task_id"]]
            self.note(change, action, kind, row["id"], task["title"], changes, row["task_id"])
        elif kind == "attachment":
            task, name = self.rows["task"][row["task_id"]], row["filename"]
            pair = [None, name] if action == "created" else [name, None]
            self.note(change, "updated", "task", task["id"], task["title"], {"attachment": pair})
        else:
            self.note(change, action, kind, row["id"], title, changes)

    def create(self, change: Change, kind: str, id: str, fields: Row) -> Row:
        made = {
            "project": {"owner_id": change.actor, "updated_at": change.at},
            "milestone": {"updated_at": change.at},
            "whiteboard": {"updated_by": change.actor, "updated_at": change.at},
            "meeting": {"organizer_id": change.actor, "updated_at": change.at},
            "task": {"created_by": change.actor, "updated_at": change.at},
            "comment": {"author_id": change.actor},
            "attachment": {"created_by": change.actor},
        }[kind]
        given = {name: value for name, value in fields.items() if (name, value) != ("owner_id", None)}
        row = deepcopy(NEW[kind]) | made | given | {"id": id, "created_at": change.at}
        self.rows[kind][id] = row
        self._note(change, "created", kind, row)
        if kind == "task":
            self.tell(change, "task.created", task=row)
        if kind == "comment":
            self.tell(
                change, "comment.added", comment=self.shown(kind, id), task=self.rows["task"][row["task_id"]]
            )
        return row

    def edit(self, change: Change, kind: str, id: str, fields: Row) -> Row:
        """Change a row's fields; returns `{field: [old, new]}`."""
        row = self.rows[kind][id]
        changes = {
            name: [row[name], value] for name, value in fields.items() if as_text(row[name]) != as_text(value)
        }
        if "participant_ids" in changes:
            old, new = changes["participant_ids"]
            changes["participant_ids"] = [[profile["id"] for profile in self._by_full_name(old)], new]
            if set(old) == set(new):
                del changes["participant_ids"]
        if not changes:
            return {}
        row |= {name: fields[name] for name in changes}
        if kind == "comment":
            row["edited_at"] = change.at
        else:
            row["updated_at"] = change.at
        if kind == "whiteboard":
            row["updated_by"] = change.actor
        if kind != "task":
            hidden = {"content": [None, None]} if "content" in changes else {}
            self._note(change, "updated", kind, row, changes | hidden)
        return changes

    def remove(self, change: Change, kind: str, id: str) -> None:
        row = self._drop(kind, id)
        if kind == "project":
            for task_id in sorted(self.ids_of("task", project_id=id)):
                self.remove(change, "task", task_id)
            for milestone_id in self.ids_of("milestone", project_id=id):
                self._drop("milestone", milestone_id)
            for other in (*self.rows["meeting"].values(), *self.rows["whiteboard"].values()):
                if other["project_id"] == id:
                    other["project_id"] = None
        if kind == "milestone":
            self._clear(change, "milestone_id", id)
        if kind == "task":
            for part in ("comment", "attachment"):
                for part_id in self.ids_of(part, task_id=id):
                    self._drop(part, part_id)
        self._note(change, "deleted", kind, row)
        if kind == "task":
            self.tell(change, "task.deleted", task=row)

    def _drop(self, kind: str, id: str) -> Row:
        self.gone[kind].append(id)
        return self.rows[kind].pop(id)

    def _clear(self, change: Change, name: str, id: str) -> None:
        """Clear a reference to what is deleted in the tasks that have it."""
        for task_id in sorted(self.ids_of("task", **{name: id})):
            task, changes = self.rows["task"][task_id], {name: [id, None]}
            task |= {name: None, "version": task["version"] + 1, "updated_at": change.at}
            self.note(change, "updated", "task", task_id, task["title"], changes)
            self.tell(change, "task.updated", task=task, changes=changes)

    # Changes of tasks and members

    def edit_task(self, change: Change, id: str, fields: Row, *, completes: bool = False) -> None:
        changes = self.edit(change, "task", id, fields)
        if not changes:
            return
        task = self.rows["task"][id]
        task["version"] += 1
        if "status" in changes:
            task["completed_at"] = change.at if task["status"] == "done" else None
        action = "moved" if "status" in changes else "updated"
        self.note(change, action, "task", id, task["title"], changes)
        if not completes:
            self.tell(change, "task.updated", task=task, changes=changes)
        if "status" in changes and task["status"] == "done":
            self.tell(change, "task.completed", task=task, changes=changes)

    def invite(self, change: Change, id: str, fields: Row) -> Row:
        member: Row = {"phone_number": None, "joined_at": None, "status": "invited", "created_at": change.at}
        member |= fields | {"id": id, "kind": "client" if fields["role"] == "client" else "team"}
        self.members[id] = member
        self.note(change, "created", "member", id, member["full_name"])
        self.tell(change, "member.invited", member=member)
        return member

    def remove_member(self, change: Change, id: str) -> None:
        self.members[id]["status"] = "removed"
        self.note(change, "deleted", "member", id, self.members[id]["full_name"])
        self._clear(change, "assignee_id", id)
