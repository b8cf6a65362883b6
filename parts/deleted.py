"""Deleted objects are kept for 30 days: list them, restore them, delete them for good."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import orjson
from peewee import JOIN, SQL, CompositeKey, ForeignKeyField, IntegerField, TextField, Tuple, fn

import database
import schemas
from app import api
from database import Identified, Row, Statement, columns, digest, placeholder, rowid, statement
from errors import Conflict, Forbidden, not_found
from members import ADMINS, Activity, ApiKey, Entity, Member, Transaction, profile, via
from models import (
    MAX_BLOCKERS,
    Attachment,
    Comment,
    Meeting,
    Milestone,
    Participant,
    Project,
    Task,
    Whiteboard,
    newest_of,
    values_of,
)
from outbox import Event
from parts.blockers import Blocker
from parts.order import Rank
from sweeper import in_steps
from times import first_id, now
from webhooks import announce, emit
from wire import operation


def register(app: Any) -> None:
    Entity.keeper = Deleted
    app.chores.append(lambda: in_steps(Deleted.delete_old.run, most=100, before=now(-DAYS)))
    app.chores.append(lambda: in_steps(Earlier.delete_old.run, most=200, before=first_id(now(), -DAYS)))


DAYS = 30 * 86400.0  # seconds
STEP = 250  # tasks that one call restores, in about 0.2 s
KINDS = ("project", "milestone", "meeting", "whiteboard", "task", "comment", "attachment")
# The tables of objects that come back, each after the tables that it refers to.
_TABLES: Any = Project, Milestone, Meeting, Participant, Whiteboard, Task, Comment, Attachment, Blocker
TABLES = {table._meta.table_name: table for table in _TABLES}


class Deleted(Identified):
    """A deleted object. Each task of a project has a row of its own, a part of the project's.

    `rows` has, as JSON, the object's row under its kind, and under `table.column` the rows that were deleted
    with it, or the ids of rows that only referred to it. A file stays where it is, without its task; triggers
    (migration 0038) delete it with the row that names it here.
    """

    kind = database.ChoiceField(KINDS)
    title = TextField()
    number = IntegerField(null=True)  # of the task
    project_id = TextField(null=True)
    deleted_by = ForeignKeyField(Member, column_name="deleted_by", object_id_name="deleter_id", index=False)
    key_id = TextField(null=True)  # the key may be deleted by now
    deleted_at = TextField()
    # Deferred: the tasks of a project are deleted before the project.
    part_of = ForeignKeyField(
        "self", null=True, on_delete="CASCADE", deferrable="INITIALLY DEFERRED", index=False
    )
    rows = database.JSONField()

    NOUN = "deleted object"
    delete_rows = statement(lambda cls: cls.delete().where(cls.id.in_(values_of("ids"))))

    @classmethod
    def keep_rows(cls, transaction: Transaction, table: Any, rows: list[Row], part_of: Any = None) -> bool:
        """Keep rows that are about to be deleted; return whether they stay where they are, as files do."""
        actor, ids = transaction.actor, [row["id"] for row in rows]
        by = {"deleted_by": actor["id"], "key_id": actor.get("key_id"), "deleted_at": transaction.at}
        cls._keeping(table).run(ids=ids, part_of_id=part_of, **by)
        if table in (Task, Attachment):
            cls.detach.run(ids=ids)
        return table is Attachment

    @statement
    def detach(cls: Any):
        """Take files, or all files of tasks, from their tasks."""
        is_among = Attachment.task.in_(values_of("ids")) | Attachment.id.in_(values_of("ids"))
        return Attachment.update(task=None).where(is_among)

    @staticmethod
    def keep_values(activity_id: str, changes: Row, shortened: Row) -> None:
        """Keep the replaced values that an activity does not show: it has `shortened`, not `changes`."""
        for name, pair in changes.items():
            if shortened[name] != pair:
                old, new = (database.to_json(value).decode() for value in pair)
                row = {"activity_id": activity_id, "field": name}
                Earlier.insert_row.run(**row, value=old, replaced_by=digest(new))

    @classmethod
    @lru_cache
    def _keeping(cls, table: Any) -> Statement:
        """Return the INSERT that keeps rows of a table, in place of what an earlier deletion has kept."""
        rows: Row = {table.NOUN: fn.JSON_ARRAY(_whole(table))}
        for field, other in table._meta.backrefs.items():
            if field.on_delete and other in _TABLES:
                array = fn.JSON_GROUP_ARRAY(_whole(other) if field.on_delete == "CASCADE" else other.id)
                found = other.select(array).where(field == field.rel_field)
                rows[f"{other._meta.table_name}.{field.column_name}"] = fn.JSON(found)
        of = Task if "task" in table._meta.fields else table  # what the list names
        shown = {"id": table.id, "kind": SQL(f"'{table.NOUN}'"), "rows": database.json_object(rows)}
        shown["title"] = getattr(table if table.TITLE in table._meta.fields else of, table.TITLE)
        shown |= {name: of._meta.columns.get(name, SQL("NULL")) for name in ("number", "project_id")}
        values = [shown.get(field.column_name, placeholder(field.column_name)) for field in columns(cls)]
        query = table.select(*values).where(table.id.in_(values_of("ids")))
        query = query if of is table else query.join(Task, on=(table.task == Task.id))
        again = {"conflict_target": [cls.id], "preserve": columns(cls, "id")}
        return Statement(cls.insert_from(query, columns(cls)).on_conflict(**again))

    @statement
    def latest(cls: Any):
        """The objects that can be restored, newest first, without parts of others."""
        selected = [*columns(cls, "deleted_by", "key_id", "part_of_id", "rows"), via()]
        rows = cls.select(*selected, *profile(Member, "deleted_by"))
        rows = rows.join(Member, on=(cls.deleted_by == Member.id)).switch(cls)
        rows = rows.join(ApiKey, JOIN.LEFT_OUTER, on=(cls.key_id == ApiKey.id))
        newer = cls.select(cls.deleted_at, cls.id).where(cls.id == placeholder("before"))
        is_before = placeholder("before").is_null() | (Tuple(cls.deleted_at, cls.id) < newer)
        rows = rows.where(cls.part_of.is_null(), cls.deleted_at > placeholder("since"), is_before)
        return rows.order_by(cls.deleted_at.desc(), cls.id.desc()).limit(placeholder("most"))

    @classmethod
    def kept(cls, id: str) -> Row | None:
        """Return what is kept of an object that was not deleted with another one."""
        found = cls.stored_row.one(id=id)
        is_listed = found and not found["part_of_id"] and found["deleted_at"] > now(-DAYS)
        return found if is_listed else None

    @statement
    def parts(cls: Any):
        """The last deleted parts of an object; so a task comes back after a task that it waits for."""
        parts = cls.select(cls.id, cls.rows).where(cls.part_of == placeholder("id"))
        return parts.order_by(rowid(cls).desc()).limit(placeholder("most"))

    @statement
    def size(cls: Any):
        """The bytes of what is kept of an object and its parts."""
        is_of = (cls.id == placeholder("id")) | (cls.part_of == placeholder("id"))
        return cls.select(fn.SUM(fn.LENGTH(cls.rows.cast("BLOB")))).where(is_of)

    @classmethod
    def restore(cls, transaction: Transaction, id: str) -> bool:
        """Bring an object back, with up to `STEP` of its tasks; return whether everything is back.

        Notices do not come back, nor references to what is gone. Raises `NotFound`, `Forbidden` for a comment
        or meeting of others, and `Conflict` if it belongs to what is gone, or another one has its place.
        """
        found, actor = cls.kept(id) or not_found(cls.NOUN), transaction.actor
        kind, rows = found["kind"], found["rows"]
        own = rows.get(kind, [])  # empty after the first call
        people = {row.get("author_id") or row.get("organizer_id") for row in own} | {found["deleted_by"]}
        if kind in ("comment", "meeting") and actor["role"] not in ADMINS and actor["id"] not in people:
            raise Forbidden(f"only its author, who deleted it, an owner or an admin may restore a {kind}")
        parts, _ = cls.parts.some(id=id, most=STEP)
        groups = [group for one in (found, *parts) for group in one["rows"].items()]
        try:
            for name, table in TABLES.items():
                for row in (row for key, some in groups if key.partition(".")[0] == name for row in some):
                    if isinstance(row, dict):  # and not an id
                        _insert(transaction, table, row)
        except sqlite3.IntegrityError as error:
            if "FOREIGNKEY" in error.sqlite_errorname:
                parent = "task" if "task_id" in own[0] else "project"
                raise Conflict(f"its {parent} is deleted; restore that first, if it is still kept") from error
            raise Conflict(f"another {kind} has its id, number or external_id now") from error
        cls.delete_rows.run(ids=[part["id"] for part in parts])
        for row in own:
            _record(transaction, TABLES[kind], row, rows.get("milestone.project_id", ()))
        for one in (one for one in (found, *parts) if "task" in one["rows"]):
            task = Task.stored(one["id"])
            blocked = Blocker.blocks(task)
            Task.record(transaction, "restored", task, {"blocks": [[], blocked]} if blocked else {})
            emit(transaction, "task.created", {"task": task})
        ids = {key: some for key, some in rows.items() if some and isinstance(some[0], str)}
        for key, some in ids.items():
            _refer_again(transaction, key, some[:STEP], found)
        rest = {key: some[STEP:] for key, some in ids.items()}
        if any(rest.values()) or cls.parts.value(id=id, most=1):
            cls.set_columns(id, rows=rest)
            return False
        cls.delete_row.run(id=id)
        return True

    @classmethod
    def purge(cls, transaction: Transaction, id: str) -> None:
        """Delete for good a deleted object with its earlier texts, or the earlier texts of another object.

        A member may do so with what the member has deleted or replaced. Raises `NotFound` and `Forbidden`.
        """
        found, actor = cls.kept(id), transaction.actor
        is_admin = actor["role"] in ADMINS
        if found and not is_admin and actor["id"] != found["deleted_by"]:
            raise Forbidden("only who deleted it, an owner or an admin may delete it for good")
        ids = [id, *(row["id"] for row in (found["rows"] if found else {}).get("milestone.project_id", ()))]
        by = None if found or is_admin else actor["id"]
        count = Earlier.forget.run(id=id, ids=ids, actor_id=by)
        count += cls.delete_rows.run(ids=[id] if found else [])
        if not count:
            not_found(cls.NOUN)

    @statement
    def delete_old(cls: Any):
        return database.deletion_of_some(cls, cls.deleted_at < placeholder("before"), rowid(cls))


class Earlier(database.Base):
    """A value that a change replaced and that the activity does not show: a long one, or a comment's text."""

    activity = ForeignKeyField(Activity, on_delete="CASCADE", index=False)
    field = TextField()
    value = TextField()  # JSON
    replaced_by = TextField()  # the digest of the JSON of the new value

    class Meta:
        primary_key = CompositeKey("activity", "field")

    @statement
    def of_activity(cls: Any):
        is_field = cls.field == placeholder("field")
        return cls.select().where(cls.activity == placeholder("activity_id"), is_field)

    @statement
    def forget(cls: Any):
        """Delete the texts of `:ids` and of the parts of `:id`, or only those that an actor replaced."""
        parts = Deleted.select(Deleted.id).where(Deleted.part_of == placeholder("id"))
        is_of = Activity.entity_id.in_(values_of("ids")) | Activity.task_id.in_(values_of("ids"))
        is_theirs = placeholder("actor_id").is_null() | (Activity.actor == placeholder("actor_id"))
        change = Activity.select().where(is_of | Activity.task_id.in_(parts), is_theirs)
        return cls.delete().where(fn.EXISTS(change.where(Activity.id == cls.activity)))

    @statement
    def delete_old(cls: Any):
        return database.deletion_of_some(cls, cls.activity < placeholder("before"), rowid(cls))


Deleted.indexed("deleted_listed", "part_of deleted_at id")


def _whole(table: Any) -> Any:
    """Return the expression for a whole row as JSON, but for columns that are made again."""
    return database.json_object({one.column_name: one for one in columns(table, "search", "label_keys")})


def _insert(transaction: Transaction, table: Any, row: Row) -> None:
    """Insert a row again, without references to what is gone. A column that is newer gets its default."""
    if table is Attachment:
        return Attachment.set_columns(row["id"], task_id=row["task_id"])
    if table is Blocker:  # unless a task is gone, the blocker waits for the task by now, or many block it
        task, blocker = row["task_number"], row["blocker_number"]
        above = {one["number"] for one in Blocker.above.all(numbers=[blocker])}
        ids = [Task.by_number.value(number=number) for number in (task, blocker)]
        if task not in above and all(ids) and len(Task.stored(ids[0])["blocked_by"]) < MAX_BLOCKERS:
            Blocker.replace_row.run(**row)
        return None
    for field, other in table._meta.refs.items():
        found = field.null and other.stored_row.one(id=row[field.column_name])
        is_assignee = found and table is Task and other is Member
        if field.null and (not found or is_assignee and not Member.sees(found, row["project_id"])):
            row[field.column_name] = None
    if table is Comment:
        row["search"] = database.fold(row["content"])
    if table is Task:
        if row["claimed_until"] and not row["assignee_id"]:  # that claim ended with its member
            row |= {"status": "todo", "claimed_until": None}
        row["labels"] = Task.all_labels.spelled(transaction, orjson.loads(row["labels"]))
        row |= Task.derived(row, ["title", "labels"])
        rank = row["rank"]
        row |= {"version": row["version"] + 1, "updated_at": transaction.at}
        if Rank.rank_before.value(rank=f"{rank}0", id="") == rank:  # another task has its place by now
            high = Rank.rank_after.value(rank=rank, id="")
            row["rank"] = Rank.between(rank, high or Rank.whole(int(rank[: Rank.DIGITS]) + 1))
    _insertion(table, tuple(name for name in row if name in table._meta.columns)).run(**row)
    return None


@lru_cache(maxsize=64)
def _insertion(table: Any, names: tuple[str, ...]) -> Statement:
    return Statement(table.insert({table._meta.columns[name]: placeholder(name) for name in names}))


def _record(transaction: Transaction, table: Any, row: Row, milestones: list[Row]) -> None:
    """Record that an object is back, with a project its milestones; each task is recorded by itself."""
    if table is Attachment:
        attached = {"attachment": [None, row["filename"]], "attachment_id": [None, row["id"]]}
        Task.record(transaction, "updated", Task.stored(row["task_id"]), attached)
    elif table is not Task:
        table.record(transaction, "restored", row)
    for milestone in milestones:
        super(Milestone, Milestone).record(transaction, "restored", milestone | {"is_hidden": 1})


def _refer_again(transaction: Transaction, key: str, ids: list[str], found: Row) -> None:
    """Let these rows refer to the object again, if they have no other; a task also must be in its project."""
    kind, _, column = key.partition(".")
    table, new = TABLES[kind], {column: found["id"]}
    for row in filter(None, (table.stored_row.one(id=id) for id in ids)):
        if row[column] is None and table is not Task:
            table.set_columns(row["id"], **new)
            table.record(transaction, "updated", row | new, {column: [None, found["id"]]})
        elif row[column] is None and row["project_id"] == found["project_id"]:
            announce(transaction, [Task.edit(transaction, row["id"], new, None)])


_task: Any = fn.JSON_EXTRACT(Event.body, "$.data.task")
_task_id: Any = fn.JSON_EXTRACT(Event.body, "$.data.task.id")
_later = Event.select(Event.seq, _task_id.alias("task_id")).where(Event.seq > placeholder("after"))
_show = Event.update({Event.body: fn.JSON_SET(Event.body, "$.data.task", fn.JSON(placeholder("task")))})
NEWEST_EVENT = Statement(Event.select(fn.COALESCE(fn.MAX(Event.seq), 0)))
# The events after another one that show a task as a change left it.
EVENTS_OF_TASKS = Statement(_later.where(_task_id.is_null(False), Event.name != "task.deleted"))
# Show this task in an event, if the event shows it otherwise. SQLite copies the rest as it is.
SHOW_TASK = Statement(_show.where((Event.seq == placeholder("seq")) & (_task != placeholder("task"))))


@contextmanager
def events_of_steps() -> Iterator[None]:
    """After the block, let its events show the tasks as they are then: a later step may have changed them.

    For a block that cannot keep its events until its end, because there may be too many. The event of a task
    that is gone stays.
    """
    after = NEWEST_EVENT.value()
    yield
    for event in EVENTS_OF_TASKS.all(after=after):
        if task := Task.stored_row.one(id=event["task_id"]):
            SHOW_TASK.run(seq=event["seq"], task=Task.blockers.shortened(task))


DeletedObjectShown = schemas.shown(
    Deleted,
    "id kind title number project_id deleted_by deleted_at via",
    "DeletedObject",
    number=(int | None, "The task's number, or the number of the comment's or file's task."),
    deleted_by=schemas.ProfileShown,
    via=(str | None, "The name of the API key with which it was deleted; null for the page."),
)
PAGE: dict[str, Any] = {"deleted": [DeletedObjectShown], "pagination": schemas.HistoryPaginationShown}
DeletedObjectListShown = schemas.response_schema("DeletedObjectList", **PAGE)
AGAIN = (bool, "Whether everything is back. If not, repeat the call: tasks come back 250 at a time.")
RESTORED: dict[str, Any] = {"id": schemas.Id, "kind": schemas.Choice(KINDS), "restored": AGAIN}
PAGED: dict[str, Any] = {"limit": schemas.QueryInteger(1, 500, load_default=50), "before": schemas.Id()}


@api.get("/deleted")
@operation(schemas.Strict.from_dict(PAGED)(), DeletedObjectListShown, role="member")
def list_deleted(limit: int, before: str | None = None) -> Row:
    """List what was deleted in the last 30 days, newest first."""
    rows = Deleted.latest.all(before=before, most=limit + 1, since=now(-DAYS))
    shown, pagination = newest_of(rows, limit)
    return {"deleted": shown, "pagination": pagination}


@api.post("/deleted/<id>/restore")
@operation(
    gives=schemas.response_schema("Restored", **RESTORED), role="member", raises=(Conflict,), is_large=True
)
def restore_deleted(transaction: Transaction, id: str) -> Row:
    """Restore what was deleted, with what was deleted with it. Repeat the call until `restored` is true."""
    kind = (Deleted.kept(id) or not_found(Deleted.NOUN))["kind"]
    with events_of_steps() if kind == "task" else nullcontext():
        result = {"id": id, "kind": kind, "restored": Deleted.restore(transaction, id)}
        if kind == "task":
            keep_one_rule(transaction, id)
    return result


def keep_one_rule(transaction: Transaction, id: str) -> None:
    """Take the rule from a restored task if the task before it has a rule or is followed by another task."""
    task = Task.stored(id)
    earlier = task["repeat"] and Task.by_number.value(number=task["repeats"])
    before = earlier and Task.shown(earlier)
    if before and (before["repeat"] or before["next_number"] != task["number"]):
        announce(transaction, [Task.edit(transaction, id, {"repeat": None}, None)])


@api.delete("/deleted/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_for_good(transaction: Transaction, id: str) -> None:
    """Delete for good what you deleted, or earlier texts that you replaced; owners and admins: anything."""
    Deleted.purge(transaction, id)
