"""Undo all that a key or a member did in a period, except for changes by others since."""

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import orjson
from peewee import fn

import schemas
from app import api
from database import EncodedJSON, EncodedJSONField, Row, Statement, columns, db, digest, placeholder, to_json
from errors import ApiError, Conflict, Forbidden, Invalid
from members import ADMINS, Activity, ApiKey, Member, Transaction
from models import Attachment, Comment, Meeting, Milestone, Project, Task, values_of
from parts import attachments, resources
from parts.blockers import Blocker
from parts.deleted import TABLES, Deleted, Earlier, events_of_steps, keep_one_rule
from parts.feeds import ACTIVITY_FILTERS, HistoryQuery
from strictjson import canonical
from times import first_id, now
from webhooks import announce, emit
from wire import operation

MOST = 1000  # changes that one call undoes,
MOST_BYTES = 24 * 1024 * 1024  # and the size of what it handles, in about 2 s, in which others cannot write
UNDONE = "already undone"
# Fields without a column, with their present values: the tasks that block a task, also done ones.
SETS: dict[str, Callable[[Row], list]] = {
    "blocked_by": lambda row: [one["number"] for one in Blocker.stored_numbers.all(number=row["number"])],
    "participant_ids": lambda row: [one["id"] for one in Meeting.shown(row["id"])["participants"]],
}
SENT = "Notifications, mail and events that were sent are not taken back."
LAST = ("task", "comment", "meeting", "whiteboard", "milestone", "project")  # the order of deletions
REMOVERS = {Milestone: resources.remove_milestone, Meeting: resources.remove_meeting}
MARK: Any = fn.JSON_EXTRACT(Activity.changes, "$.undoes[1]")  # whose change an undo has undone
_completed: Any = fn.JSON_EXTRACT(Activity.changes, "$.completed_at[1]")  # an import or an undo sets it
_completes = (fn.JSON_EXTRACT(Activity.changes, "$.status[1]") == "done") | _completed.is_null(False)
_completes &= (Activity.task_id == placeholder("id")) & Activity.is_hidden.is_null()
_completions = Activity.select(fn.COALESCE(_completed, Activity.created_at)).order_by(Activity.id.desc())
# When a task was completed last before an entry.
COMPLETED = Statement(_completions.where(_completes, Activity.id < placeholder("before")).limit(1))


@lru_cache
def later(of_task: bool) -> Statement:
    """Return the statement for who has last changed a task, or another object, besides the changes in `:ids`.

    With an `:entity_id` only changes of a task itself count, with a `:path` only changes of that field, and
    never what an undo has changed. Others may have made any number of changes: none is loaded.
    """
    entity, path = placeholder("entity_id"), placeholder("path")
    is_of: Any = Activity.task_id.is_null() & (Activity.entity_id == entity)
    if of_task:
        is_of = (Activity.task_id == placeholder("task_id")) & Activity.is_hidden.is_null()
        is_of &= entity.is_null() | (Activity.entity_id == entity)
    is_of &= path.is_null() | fn.JSON_TYPE(Activity.changes, path).is_null(False)
    is_other = Activity.id.not_in(values_of("ids")) & MARK.is_null()
    rows = Activity.select(Member.full_name).join(Member, on=(Activity.actor == Member.id))
    rows = rows.where(is_of, is_other, Activity.id.between(placeholder("after"), placeholder("before")))
    return Statement(rows.order_by(Activity.id.desc()).limit(1))


class Undo:
    """Undoes entries of the activity: first what was deleted comes back, then fields, then new things go.

    Each step asks the models. If a model refuses it, the change is left, in the model's own words.
    """

    def __init__(self, transaction: Transaction, entries: list[Row], whom: str):
        transaction.undoes = True
        self.transaction, self.ids = transaction, [entry["id"] for entry in entries]
        self.begun = Activity.newest.value()
        self.bytes = 0
        self.done: list[Row] = []
        self.left: list[Row] = []
        self.entries: dict[str, list[Row]] = {}  # of each object, by its id, newest first
        for entry in entries:
            self.entries.setdefault(entry["entity_id"], []).append(entry)
        marked = Activity.select(Activity.id).where(Activity.id >= placeholder("first"), whom == MARK)
        self.was_undone = bool(Statement(marked.limit(1)).value(first=self.ids[-1]) if entries else None)

    def run(self) -> None:
        objects = [*self.entries.values()]
        last = sorted(objects, key=lambda entries: (*LAST, entries[0]["entity"]).index(entries[0]["entity"]))
        for entry in (entry for entries in objects for entry in entries if entry["entity"] == "member"):
            reason = "members, roles, addresses, keys and links stay"
            key = ApiKey.stored_row.one(id=entry["changes"].get("api_key", [None, None])[1])
            if key and not key["revoked_at"]:
                reason = f"made the key {key['name']} ({key['prefix']}…): revoke it, if nobody needs it"
            self.leave(entry, reason, entry["changes"])
        steps = (self.restore, objects), (self.set_back, sorted(objects, key=turn)), (self.remove, last)
        for step, groups in (*steps, (self.keep_one_rule, objects)):
            for entries in groups:
                table, id = TABLES.get(entries[0]["entity"]), entries[0]["entity_id"]
                if table and (error := self.attempt(partial(step, table, id, entries))):
                    self.leave(entries[0], str(error))

    def count(self, size: int) -> None:
        """Count the bytes of what comes, goes or is set back. Raises `Invalid`, which ends the whole undo."""
        self.bytes += size
        if self.bytes > MOST_BYTES:
            raise Invalid(("since", f"must be later: the period has over {MOST_BYTES >> 20} MiB of texts"))

    def attempt(self, step: Callable[[], None]) -> ApiError | None:
        """Run a step and store its events; roll it back if it raises an error, and return that."""
        transaction, result = self.transaction, None
        kept = [*self.done], [*self.left], [*transaction.deliveries], transaction.for_sweeper
        transaction.cache.pop("above", None)  # the last step may have changed what waits for what
        db.execute_sql("SAVEPOINT undo")
        try:
            step()
            for event, task in transaction.task_events:  # now: a thousand tasks may have long texts
                emit(transaction, event, {"task": task})
        except ApiError as error:
            if self.bytes > MOST_BYTES:
                raise
            db.execute_sql("ROLLBACK TO undo")
            self.done, self.left, transaction.deliveries, transaction.for_sweeper = kept
            result = error
        transaction.task_events.clear()
        db.execute_sql("RELEASE undo")
        return result

    def note(self, entry: Row, action: str, fields: Iterable[str] = ()) -> None:
        named = {name: entry[name] for name in ("entity", "entity_id", "number", "title")}
        self.done.append(named | {"action": action, "fields": sorted(fields)})

    def leave(self, entry: Row, reason: str, fields: Iterable[str] = ()) -> None:
        self.note(entry, "left", fields)
        self.left.append(self.done.pop() | {"reason": reason})

    def since(self, entry: Row, words: str, field: str = "", *, within: bool = False) -> str:
        """Return by whom else an object, or a field, was changed after this entry, or an empty text.

        With `within`, changes of what belongs to a task count too.
        """
        entity_id = None if within and entry["entity"] == "task" else entry["entity_id"]
        path = f"$.{field}" if field else None
        query = {"task_id": entry["task_id"], "entity_id": entity_id, "path": path}
        query |= {"after": entry["id"], "before": self.begun, "ids": self.ids}
        name = later(entry["task_id"] is not None).value(**query)
        return f"{words} since by {name}" if name else ""

    def restore(self, table: Any, id: str, entries: list[Row]) -> None:
        """Bring back what was there before, and is gone."""
        if entries[0]["action"] != "deleted" or is_made(entries):
            return
        if table.stored_row.one(id=id):
            if self.was_undone:
                self.leave(entries[0], UNDONE)
            return
        if not (found := Deleted.kept(id)):
            raise Conflict("it is not kept any more")
        is_later = found["deleted_at"] != entries[0]["created_at"]
        if is_later and (reason := self.since(entries[0], "deleted again")):
            raise Conflict(reason)
        self.count(Deleted.size.value(id=id))
        self.bring_back(id)
        self.note(entries[0], "restored")

    def bring_back(self, id: str) -> None:
        while not Deleted.restore(self.transaction, id):
            continue

    def set_back(self, table: Any, id: str, entries: list[Row]) -> None:
        """Set fields back that still have the values that they were given."""
        row = table.stored_row.one(id=id)
        if is_made(entries) or not row and entries[0]["action"] == "deleted":
            return
        if not row:
            raise Conflict(self.since(entries[0], "deleted") or "deleted since")
        fields = self.earlier(table, row, entries)
        rule = fields.pop("repeat", None) if table is Task and not row["repeat"] else None
        if rule and not self.remove_next(id, entries):
            rule = None
        self.edit(table, id, entries[0], fields)
        if rule and Task.stored(id)["repeat"] != rule:  # to reopen the task does not always give it back
            self.edit(table, id, entries[0], {"repeat": rule})
        for entry in (entry for entry in entries if "attachment_id" in entry["changes"]):
            if error := self.attempt(partial(self.set_file_back, entry, *entry["changes"]["attachment_id"])):
                self.leave(entry, str(error), ["attachments"])

    def earlier(self, table: Any, row: Row, entries: list[Row]) -> Row:
        """Return the earlier values of the fields that these changes have changed, unless they are left."""
        fields = Row()
        for name in dict.fromkeys(name for entry in entries for name in entry["changes"]):
            if name in table._meta.columns or name in SETS:
                changed = [entry for entry in entries if name in entry["changes"]]
                present = as_text(table, name, SETS[name](row) if name in SETS else row[name])
                value, reason = self.fold(table, name, present, changed)
                self.count(len(f"{present}{value}".encode()))
                if reason:
                    self.leave(changed[0], reason, [name])
                elif value != present:
                    is_encoded = isinstance(table._meta.columns.get(name), EncodedJSONField)
                    fields[name] = EncodedJSON(value) if is_encoded else orjson.loads(value)
                elif name == "status" and row.get("tries"):
                    fields["tries"] = 0  # as after any change by a person
        if table is Task and (row | fields)["status"] == "done" and (at := earlier_completion(row, entries)):
            fields["completed_at"] = at
        return fields

    def remove_next(self, id: str, entries: list[Row]) -> bool:
        """Remove the new tasks that follow a task in its series; return whether none of them is left.

        A task that is older than the change of the rule in `entries` followed an earlier completion.
        """
        new, following = list[str](), next_of(id)
        while following not in new and is_made(self.entries.get(following, [])):
            new.append(following)
            following = next_of(following)
        if any(self.attempt(partial(self.remove, Task, one, self.entries[one])) for one in reversed(new)):
            return False
        return next_of(id) < min(entry["id"] for entry in entries if "repeat" in entry["changes"])

    def keep_one_rule(self, table: Any, id: str, entries: list[Row]) -> None:
        """Take the rule from a task that was restored into a series that goes on elsewhere."""
        if table is Task and entries[0]["action"] == "deleted" and Task.stored_row.one(id=id):
            keep_one_rule(self.transaction, id)

    def fold(self, table: Any, name: str, present: str, entries: list[Row]) -> tuple[str, str]:
        """Return the value, as JSON, that a field gets if these changes are undone, or why it is left."""
        value, matches = present, False
        for entry in entries:
            pair, kept = entry["changes"][name], Earlier.of_activity.one(activity_id=entry["id"], field=name)
            if not kept and (pair == [None, None] or "omitted_bytes" in str(pair)):
                return present, "the earlier value is not kept"
            old, new = (as_text(table, name, one) for one in pair)
            is_same = value == new or name == "claimed_until"  # to extend a claim is no change
            is_same |= name == "blocked_by" and existing(value) == existing(new)
            if kept:
                old, is_same = kept["value"], digest(value) == kept["replaced_by"]
            if is_same or value == old:
                value, matches = old, True
            elif matches:
                break  # somebody else has changed it in between
        if value != present:
            return value, ""
        if matches:  # it is back already
            return value, UNDONE * self.was_undone
        return value, self.since(entries[0], "changed", name) or "changed since"

    def edit(self, table: Any, id: str, entry: Row, fields: Row) -> None:
        """Set these fields of an object back, but for those that the models refuse."""
        if not fields:
            return
        error = self.attempt(partial(self.store, table, id, fields))
        if not error:
            self.note(entry, "updated", fields)
            return
        if not isinstance(error, Invalid):
            raise error
        reasons = {re.split(r"\W", name)[0]: reason for name, reason in error.details}
        wrong = fields.keys() & reasons or ({*fields} if len(fields) == 1 else set())
        for name in wrong:
            self.leave(entry, reasons.get(name) or str(error), [name])
        rest = {name: value for name, value in fields.items() if name not in wrong}
        # If it names none of them, a field that stays as it is does not allow one of them.
        for some in [rest] if wrong else [{name: value} for name, value in fields.items()]:
            self.edit(table, id, entry, some)

    def store(self, table: Any, id: str, fields: Row) -> None:
        new = {**fields}
        if table is Task:
            task = Task.stored(id) | fields
            is_held = task["status"] == "in_progress" and task["assignee_id"]
            if fields.get("claimed_until") and not (is_held and task["claimed_until"] > now()):
                new["claimed_until"] = None
            asked = fields.get("question_id")
            if asked and (task["status"] == "done" or not Comment.stored_row.one(id=asked)):
                raise Invalid(("question_id", "the question was deleted, or the task is done"))
            announce(self.transaction, [Task.edit(self.transaction, id, new, None)])
        elif table is Comment:
            Comment.rewrite(self.transaction, Comment.shown(id), **new)
        elif table is Meeting:
            resources.edit_meeting(self.transaction, id, new)
        else:
            table.edit(self.transaction, id, new)

    def set_file_back(self, entry: Row, old: str | None, new: str | None) -> None:
        """Remove the file that was attached, or attach the one that was removed; `old` or `new` is its id."""
        row = Attachment.stored_row.one(id=old or new)
        is_there = row and row["task_id"]
        if new and is_there:
            attachments.detach(self.transaction, entry["task_id"], new)
            self.note(entry, "deleted", ["attachments"])
        elif old and not is_there:
            self.bring_back(old)
            self.note(entry, "restored", ["attachments"])

    def remove(self, table: Any, id: str, entries: list[Row]) -> None:
        """Delete what is new, unless somebody else has changed it or needs it."""
        if not is_made(entries):
            return
        transaction, row = self.transaction, table.stored_row.one(id=id)
        self.count(len(to_json(row)))
        if not row:
            is_now = any((one["entity_id"], one["action"]) == (id, "deleted") for one in self.done)
            reason = self.since(entries[0], "deleted") or UNDONE * (self.was_undone and not is_now)
            if entries[0]["action"] != "deleted" and reason:
                self.leave(entries[0], reason)
            return
        reason = self.since(entries[-1], "changed", within=True)
        if reason := reason or (entries[-1]["action"] == "created" and self.need_of(table, row)):
            raise Conflict(reason)
        if table is Comment:
            announce(transaction, [Comment.remove(transaction, row["task_id"], id)])
        elif table is Project:
            deque(Project.remove_with_tasks(transaction, id, force=False), 0)
        else:
            REMOVERS.get(table, table.remove)(transaction, id)
        self.note(entries[0], "deleted")

    def need_of(self, table: Any, row: Row) -> str:
        """Return which work of others needs a new object. The run's own work is deleted before or with it."""
        for number in Blocker.blocks(row) if table is Task else ():
            if not is_made(self.entries.get(Task.id_of(number), [])):
                return f"#{number} waits for it"
        for field, other in table._meta.backrefs.items() if table in (Milestone, Project) else ():
            if other in TABLES.values():
                user = Statement(other.select().where(field == placeholder("id")).limit(1)).one(id=row["id"])
                if user:
                    return f"the {other.NOUN} “{user[other.TITLE]}” belongs to it"
        return ""


def earlier_completion(task: Row, entries: list[Row]) -> str | None:
    """Return when a task was completed before these changes, if its present time is due to them."""
    value = task["completed_at"]
    for entry in (entry for entry in entries if "status" in entry["changes"]):
        old, new = entry["changes"]["status"]
        given = entry["changes"].get("completed_at", [None, entry["created_at"]])[1]
        if value == (given if new == "done" else None):
            value = COMPLETED.value(id=task["id"], before=entry["id"]) if old == "done" else None
    return value if value != task["completed_at"] else None


def turn(entries: list[Row]) -> int:
    """Return an object's turn: archived projects, which take no tasks, come first, active ones last."""
    project = entries[0]["entity"] == "project" and Project.stored_row.one(id=entries[0]["entity_id"])
    return 1 if not project else 0 if project["status"] == "archived" else 2


def next_of(id: str) -> str:
    """Return the id of the task that follows in a task's series; empty if none does."""
    return Task.by_number.value(number=Task.shown(id)["next_number"]) or ""


def existing(numbers: str) -> list[int]:
    """Return which of these task numbers (JSON) exist. The history does not show a deleted blocker."""
    return [number for number in orjson.loads(numbers) if Task.by_number.value(number=number)]


def is_made(entries: list[Row]) -> bool:
    """Return whether the object was not there before these entries."""
    return bool(entries) and entries[-1]["action"] in ("created", "restored")


def as_text(table: Any, name: str, value: Any) -> str:
    """Return the JSON of a field's value in the form in which two values are compared."""
    if isinstance(table._meta.columns.get(name), EncodedJSONField):
        return value if isinstance(value, EncodedJSON) else canonical(value)
    return to_json(sorted(value or ()) if name in SETS else value).decode()


class UndoInput(schemas.Strict):
    key = HistoryQuery._declared_fields["key"]
    actor_id = schemas.Id()
    since = schemas.Instant(required=True)
    until = schemas.Instant(ends_day=True)
    dry_run = schemas.JSONBoolean(**schemas.doc("Only show what would be undone."))

    EXAMPLE = {"key": "tms_Zk3vQ2xw", "since": "2026-12-01T09:00:00Z", "dry_run": True}


OBJECT: dict[str, Any] = {"entity": str, "entity_id": schemas.Id, "number": int | None, "title": str}
OBJECT |= {"action": schemas.Choice(("restored", "updated", "deleted", "left")), "fields": [str]}
UndoneShown = schemas.response_schema("Undone", **OBJECT)
LeftShown = schemas.response_schema("Left", **OBJECT, reason=str)
RESULT: dict[str, Any] = {"undone": [UndoneShown], "left": [LeftShown], "note": str}
RESULT = {"changes": (int, "The number of changes in the period.")} | RESULT


@api.post("/activity/undo")
@operation(UndoInput(), schemas.response_schema("UndoneList", **RESULT), role="member", is_large=True)
def undo_activity(transaction: Transaction, since: str, dry_run: bool = False, **filters: str) -> Row:
    """Undo what a key or member did in a period, up to 1000 changes, except for changes by others since."""
    if not filters.keys() & {"key", "actor_id"}:
        raise Invalid(("key", "is required, or actor_id"))
    filters |= {"since": since, "from_id": first_id(since)}
    if until := filters.get("until"):
        filters["before_id"] = first_id(until, 60)
    # Hidden activity counts only for milestones: the activity of their project does not contain their ids.
    counts = Activity.is_hidden.is_null() | (Activity.entity == "milestone")
    changed = [*columns(Activity, "changes"), fn.JSON(Activity.changes).alias("changes")]
    rows = Activity.select(*changed).where(counts, *(ACTIVITY_FILTERS[name] for name in filters))
    entries = Statement(rows.order_by(Activity.id.desc()).limit(MOST + 1)).all(**filters)
    actor = transaction.actor
    if actor["role"] not in ADMINS and any(entry["actor_id"] != actor["id"] for entry in entries):
        raise Forbidden("you may undo what you did; an owner or admin undoes the rest")
    if len(entries) > MOST:
        raise Invalid(("since", f"must be later: the period has over {MOST} changes"))
    whom = entries[0]["key_id" if "key" in filters else "actor_id"] if entries else ""
    undo = Undo(transaction, entries, whom)
    with events_of_steps():
        undo.run()
    result = {"changes": len(entries), "undone": undo.done, "left": undo.left, "note": SENT}
    if dry_run:
        # A savepoint would keep every page in memory. This writer is alone, because its operation is large.
        db.execute_sql("ROLLBACK")
        db.execute_sql("BEGIN IMMEDIATE")
        transaction.deliveries.clear()
        transaction.for_sweeper = 0
        return result
    undoes = fn.JSON_SET(Activity.changes, "$.undoes", fn.JSON_ARRAY(None, whom))
    is_own = (Activity.id > undo.begun) & (Activity.request_id == transaction.request_id)
    Statement(Activity.update(changes=undoes).where(is_own)).run()
    return result
