"""The tables of work and meetings, with their rules and queries; `write()`, in which every change runs.

Each query is a `statement` of the class that runs it. A method that needs the actor or the time takes its
`Transaction` first. Nothing here knows HTTP.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any, ClassVar

from peewee import (
    JOIN,
    SQL,
    Case,
    CompositeKey,
    Expression,
    ForeignKeyField,
    IntegerField,
    Query,
    Select,
    Table,
    TextField,
    fn,
)
from playhouse.sqlite_ext import AutoIncrementField

from database import (
    LOCK_SECONDS,
    Base,
    ChoiceField,
    EncodedJSONField,
    JSONField,
    Row,
    Statement,
    caseless,
    columns,
    db,
    fold,
    joined,
    json_object,
    placeholder,
    rowid,
    statement,
)
from errors import Conflict, Forbidden, Invalid, NotFound, PreconditionFailed, not_found
from members import (
    ADMINS,
    PROFILE,
    Activity,
    ApiKey,
    Entity,
    Invitation,
    Member,
    NoPart,
    Transaction,
    check_references,
    differences,
    profile,
    sorted_by,
    via,
)
from times import follow_clock, new_request_id, now

STATUSES = ("todo", "in_progress", "review", "done")
PRIORITIES = ("low", "medium", "high", "urgent")
REPEAT_FROM = ("due_date", "completed_at")  # from which the next due date is counted
MAX_LABELS = 10  # of a task
DEFAULTS = {"priority": "medium", "repeat_from": REPEAT_FROM[0]}  # of a task, where null is sent
# The fields that a copy of a task takes over.
PLANNED = (
    *("project_id", "milestone_id", "title", "description", "priority", "assignee_id", "labels"),
    *("start_date", "due_date", "metadata", "repeat", "repeat_from"),
)
HIDDEN = ("search", "label_keys", "due_told")  # a task's columns that no answer shows
PROJECT_STATUSES = ("active", "archived")

Changed = tuple[Row, Row]  # a task and its changes: `{field: [old, new]}`

MAX_BLOCKERS = 20  # tasks that block one task
FIRST_RANK = 5_000_000_000  # with as much room before it as after it
MAX_LISTED = 1000  # characters of a project's description in a list, and of a meeting's in a calendar

CHECKBOX = re.compile(r"(?m)^([ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[)([ xX])(\][ \t])")
CODE_BLOCK = re.compile(r"(?ms)^ {0,3}(?:(```|~~~).*?(?:^ {0,3}\1|\Z)|<!--.*?(?:-->|\Z))")  # or a comment


# Writing --------------------------------------------------------------------------------------


@contextmanager
def write(
    actor: Row | None = None, request_id: str = "", begins_group: bool = False, seconds: float = LOCK_SECONDS
) -> Iterator[Transaction]:
    """Run the body in a write transaction. Only one body runs at a time, in whichever process.

    The body must not send anything over a network. `begins_group`, `seconds` and the exceptions are as in
    `Database.writing`.
    """
    with db.writing(begins_group=begins_group, seconds=seconds):
        if newest := Activity.newest.value():
            follow_clock(newest)
        transaction = Transaction(actor or {}, request_id or new_request_id())
        if newest and transaction.new_id() < newest:  # the clock was more than a day ahead
            for redate in redating():
                redate.run(now=transaction.at)
        yield transaction
        ApiKey.write_last_used()


@lru_cache(maxsize=1)
def redating() -> list[Statement]:
    """Return statements that set times which are in the future to now, after the clock was ahead.

    Otherwise a client that reads changes in the order of `updated_at` would miss those that follow, a limited
    client could not follow changes until then, mail would wait, and a session would stay fresh. If the clock
    is before the creation of the first member, the clock itself is wrong: nothing changes.
    """
    is_right = Member.select(fn.MIN(Member.created_at)) < placeholder("now")
    past: list[Any] = [Task.updated_at, Member.projects_since, Member.mail_at, Invitation.mail_at]
    past += [ApiKey.signed_in_at, ApiKey.created_at]
    updates = [(column, column.model.update({column: placeholder("now")})) for column in past]
    return [Statement(update.where(column > placeholder("now"), is_right)) for column, update in updates]


def values_of(name: str) -> Any:
    """Return a SELECT of the values in the parameter `name`, a JSON array."""
    return Select([fn.JSON_EACH(placeholder(name))], [SQL("value")])


class Resource(Entity):
    """A table whose rows are added, edited and removed by the same methods; tasks and members have others."""

    @classmethod
    def check(cls, row: Row) -> None:
        """Raise `Invalid` for columns that contradict each other."""

    @classmethod
    def stamp(cls, transaction: Transaction) -> Row:
        """Return the columns that every change writes."""
        return {"updated_at": transaction.at}

    @classmethod
    def add(cls, transaction: Transaction, **fields: Any) -> Row:
        """Add a row and return it; an import also passes `id` and `created_at`. Raises `Invalid`."""
        check_references(cls, fields)
        cls.check(fields)
        row = {"id": transaction.new_id(), "created_at": transaction.at} | fields | cls.stamp(transaction)
        cls.insert_row.run(**row)
        cls.record(transaction, "created", row)
        return cls.shown(row["id"])

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, related_changes: Row | None = None) -> Row:
        """Change these fields; also record `related_changes`, of other rows. Raises as `add` does."""
        stored = cls.stored(id)
        if changes := differences(stored, fields) | (related_changes or {}):
            new = {name: fields[name] for name in changes if name in fields}
            check_references(cls, new)
            cls.check(stored | fields)
            cls.set_columns(id, **new | cls.stamp(transaction))
            cls.record(transaction, "updated", stored | fields, changes)
        return cls.shown(id)

    @classmethod
    def remove(cls, transaction: Transaction, id: str) -> None:
        """Delete it. Raises `NotFound`."""
        row = cls.stored(id)
        cls.keeper.keep_rows(transaction, cls, [row])
        cls.delete_row.run(id=id)
        cls.record(transaction, "deleted", row)


# Work -----------------------------------------------------------------------------------------


class Project(Resource):
    name = TextField()
    description = TextField(null=True)
    status = ChoiceField(PROJECT_STATUSES)
    owner = ForeignKeyField(Member)
    created_at = TextField()
    updated_at = TextField()

    NOUN, TITLE = "project", "name"
    SEEN = Base.OF_PROJECT.replace("project_id", "id")

    @classmethod
    def select_shown(cls, *described: Any) -> Query:
        """Return a SELECT of projects, with the columns `described` in place of the description if given."""
        counters = [getattr(TaskCount, status) for status in STATUSES]
        selected = [*columns(cls, "owner_id", "description"), *(described or [cls.description]), *counters]
        selected += [DueCount.overdue(cls.id).alias("overdue"), *profile(Member, "owner")]
        projects = cls.select(*selected).join(Member, on=(cls.owner == Member.id))
        return projects.join(TaskCount, JOIN.LEFT_OUTER, on=(TaskCount.project == cls.id))

    @statement
    def listed(cls: Any):
        """The projects with this status, or all, with the beginnings of their descriptions."""
        beginning = fn.SUBSTR(cls.description, 1, MAX_LISTED).alias("description")
        is_cut = Case(None, [(fn.LENGTH(cls.description) > MAX_LISTED, "true")], "false")
        has_status = placeholder("status").is_null() | (cls.status == placeholder("status"))
        return cls.select_shown(beginning, fn.JSON(is_cut).alias("description_cut")).where(has_status)

    @classmethod
    def select_archived(cls) -> Query:
        """Return a SELECT of the ids of the archived projects."""
        return cls.select(cls.id).where(cls.status == "archived")

    @classmethod
    def shown(cls, id: str) -> Row:
        """Return the project with its owner and statistics. Raises `NotFound`."""
        return cls._with_stats(cls.shown_row.one(id=id, now=now()) or not_found("project"))

    @classmethod
    def listing(cls, status: str | None = None) -> list[Row]:
        """Return the projects with this status, or all, by name, with their owners and statistics."""
        return [cls._with_stats(row) for row in sorted_by(cls.listed.all(status=status, now=now()), "name")]

    @staticmethod
    def _with_stats(project: Row) -> Row:
        """Return the project with its counters as one object, `stats`."""
        counts = {status: project.pop(status) or 0 for status in STATUSES}
        total = sum(counts.values())
        rate = round(counts["done"] / total, 4) if total else 0.0
        overdue = project.pop("overdue")
        project["stats"] = {"total": total, **counts, "overdue": overdue, "completion_rate": rate}
        return project

    @classmethod
    def add(cls, transaction: Transaction, *, owner_id: str | None = None, **fields: Any) -> Row:
        """Add a project, which is active and the actor's unless the fields say otherwise."""
        owner_id = owner_id or transaction.actor["id"]
        return super().add(transaction, **{"status": "active", **fields}, owner_id=owner_id)

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, related_changes: Row | None = None) -> Row:
        """Change the project. Archiving it settles the notices of its tasks."""
        if fields.get("status") == "archived":
            Task.notices.archived(transaction, id)
        return super().edit(transaction, id, fields, related_changes)

    @classmethod
    def remove_with_tasks(cls, transaction: Transaction, id: str, *, force: bool) -> Iterator[Row]:
        """Delete the project with its tasks, and yield each. Raises `Conflict` for tasks unless `force`."""
        cls.stored(id)
        if not force and (count := Task.count_in_project.value(id=id)):
            raise Conflict(
                f"the project has {count} task{'s' * (count != 1)}; "
                "delete them first, or the project with force=true"
            )
        yield from Task.remove_all(transaction, id)
        for field, table in cls._meta.backrefs.items():
            if field.on_delete == "SET NULL":
                for row in Statement(table.select().where(field == placeholder("id"))).all(id=id):
                    table.record(transaction, "updated", row, {field.column_name: [id, None]})
        Member.forget_project(transaction, id)
        cls.remove(transaction, id)


class TaskCount(Base):
    """The number of tasks of each project by status; triggers on `task` (migration 0010) keep the counters.

    Statistics of projects and totals of lists that are filtered by `FILTERS` are read from here: counting a
    hundred thousand tasks takes milliseconds. A project that never had a task has no row.
    """

    project = ForeignKeyField(Project, primary_key=True, on_delete="CASCADE")  # and a counter for each status

    SEEN = Base.OF_PROJECT
    FILTERS = frozenset({"project_id", "status", "archived"})

    @classmethod
    def select_total(cls, filters: frozenset[str]) -> Query:
        """Return a SELECT of the number of tasks that pass these filters, all of them in `FILTERS`."""
        counters = [getattr(cls, status) for status in STATUSES]
        by_status = Case(placeholder("status"), [*zip(STATUSES, counters, strict=True)])
        count = by_status if "status" in filters else sum(counters)
        total = cls.select(fn.COALESCE(fn.SUM(count), 0))
        if "project_id" in filters:
            total = total.where(cls.project == placeholder("project_id"))
        if "archived" in filters:
            total = total.where(cls.project.not_in(Project.select_archived()))
        return total


for _status in STATUSES:
    TaskCount._meta.add_field(_status, IntegerField())


class DueCount(Base):
    """The number of open tasks of each project with each due date; triggers keep it as they keep `TaskCount`.

    Most tasks are due at the end of a day, so this has far fewer rows than there are overdue tasks.
    """

    project = ForeignKeyField(Project, on_delete="CASCADE", index=False)
    due_date = TextField()
    open = IntegerField()

    SEEN = Base.OF_PROJECT

    class Meta:
        primary_key = CompositeKey("project", "due_date")
        without_rowid = True

    @classmethod
    def overdue(cls, project_id: Any) -> Any:
        """Return the expression for a project's number of overdue tasks."""
        is_overdue = (cls.project == project_id) & (cls.due_date < placeholder("now"))
        return fn.COALESCE(cls.select(fn.SUM(cls.open)).where(is_overdue), 0)


class Milestone(Resource):
    project = ForeignKeyField(Project, on_delete="CASCADE")
    title = TextField()
    description = TextField(null=True)
    due_date = TextField(null=True)
    closed_at = TextField(null=True)
    created_at = TextField()
    updated_at = TextField()

    NOUN = "milestone"
    SEEN = Base.OF_PROJECT

    @classmethod
    def select_shown(cls) -> Query:
        every = fn.COUNT(SQL("*"))
        counts = json_object({"total": every, "done": every.filter(~Task.is_open)})
        stats = Task.select(counts).where(Task.milestone == cls.id)
        return cls.select().select_extend(fn.JSON(stats).alias("stats"))

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """Record the change in the history of the milestone's project, and hide the milestone's own entry."""
        project, title = Project.stored(row["project_id"]), row["title"]
        ends = {"created": [None, title], "deleted": [title, None], "restored": [None, title]}
        Project.record(transaction, "updated", project, {"milestone": ends.get(action) or [title, changes]})
        super().record(transaction, action, row | {"is_hidden": 1}, changes)


class Task(Entity):
    id = TextField(unique=True)
    number = AutoIncrementField()  # never used twice
    project = ForeignKeyField(Project, index=False)
    milestone = ForeignKeyField(Milestone, null=True, on_delete="SET NULL", index=False)
    title = TextField()
    description = TextField(null=True)
    status = ChoiceField(STATUSES)
    priority = ChoiceField(PRIORITIES)
    assignee = ForeignKeyField(Member, null=True, index=False)
    created_by = ForeignKeyField(Member, column_name="created_by", object_id_name="creator_id", index=False)
    start_date = TextField(null=True)
    due_date = TextField(null=True)
    completed_at = TextField(null=True)
    labels = JSONField(constraints=[SQL("DEFAULT '[]'")])
    label_keys = TextField(constraints=[SQL("DEFAULT ''")])  # caseless labels between unit separators
    metadata = EncodedJSONField()
    external_id = TextField(null=True)  # the id in the program that the task comes from
    claimed_until = TextField(null=True)  # the end of a claim for some minutes
    due_told = TextField(null=True)  # the due date for which the last notice of reason `due` was sent
    question_id = TextField(null=True)  # the comment that waits for an answer
    checks = JSONField(null=True)  # how many checkboxes the description has, and how many are ticked
    repeat = TextField(null=True)  # the rule for the task that follows when this one is done
    repeat_from = ChoiceField(REPEAT_FROM, constraints=[SQL("DEFAULT 'due_date'")])
    repeats = IntegerField(null=True)  # the number of the task that this one followed
    tries = IntegerField(constraints=[SQL("DEFAULT 0")])  # of agents, without a result; see parts/brakes.py
    rank = TextField(constraints=[SQL("DEFAULT ''")])  # digits of a decimal number; see parts/order.py
    version = IntegerField()
    created_at = TextField()
    updated_at = TextField()
    search = TextField()  # title and description, folded: SQLite itself folds ASCII only

    NOUN = "task"
    SEEN = Base.OF_PROJECT
    _OTHER = "main.task other WHERE other.number = task.repeats AND +other.project_id IN seen_project"
    SEEN_AS: ClassVar[Row] = {"repeats": f"(SELECT number FROM {_OTHER})"}  # noqa: S608
    # A part replaces its own when it is imported: parts below it build statements from these at once.
    notices: ClassVar[Any] = NoPart
    claims: ClassVar[Any] = NoPart
    questions: ClassVar[Any] = NoPart
    order: ClassVar[Any] = NoPart
    blockers: ClassVar[Any] = NoPart
    rules: ClassVar[Any] = NoPart
    all_labels: ClassVar[Any] = NoPart
    is_undated: ClassVar[Any] = due_date.is_null()
    is_labelled: ClassVar[Any] = labels != "[]"
    is_open: ClassVar[Any] = status != "done"
    is_open_with_date: ClassVar[Any] = is_open & due_date.is_null(False)
    is_submitted: ClassVar[Any] = status.concat("") == "review"  # an expression: see `lists._is_waiting`
    is_urgent: ClassVar[Any] = is_open & (priority == "urgent")
    is_overdue: ClassVar[Any] = is_open & (due_date < placeholder("now"))
    by_number = statement(lambda cls: cls.select(cls.id).where(cls.number == placeholder("number")))

    @classmethod
    def shown_columns(cls) -> list:
        """Return the columns of a task in answers and events; the last are the open tasks that block it."""
        return [*columns(cls, *HIDDEN), cls.blockers.shown(cls.number).alias("blocked_by")]

    @classmethod
    def next_number(cls) -> int:
        """Return the number of the next task: one more than the highest that any task ever had."""
        rows = db.read("SELECT seq FROM sqlite_sequence WHERE name = 'task'", {})
        return rows[0][0] + 1 if rows else 1

    @staticmethod
    def last_rank(number: int) -> str:
        """Return the rank of a new task with this number, which is the last task."""
        return f"{FIRST_RANK + number:010d}"

    @classmethod
    def id_of(cls, number: int) -> str:
        """Return the id of the task with this number. Raises `NotFound`, which says who deleted it."""
        if id := cls.by_number.value(number=number):
            return id
        gone = Activity.deletion_of.one(number=number, most=1)
        by = f": it was deleted by {gone['actor']['full_name']} at {gone['created_at'][:16]}Z" if gone else ""
        raise NotFound(cls.NOUN + by)

    @statement
    def references(cls: Any):
        """The number, id and size in bytes of each of these tasks, given as JSON: numbers and ids."""
        is_referred = cls.number.in_(values_of("references")) | cls.id.in_(values_of("references"))
        size = fn.LENGTH(fn.COALESCE(cls.description, "").concat(cls.metadata).cast("BLOB"))
        return cls.select(cls.number, cls.id, size.alias("size")).where(is_referred)

    @classmethod
    def referred(cls, references: list[int | str], field: str) -> list[Row]:
        """Return the number, id and size of each of these tasks, given by number or id.

        Raises `Invalid` for tasks that do not exist; the index in `references` replaces {} in `field`.
        """
        rows = cls.references.all(references=references)
        found = {row[name]: row for row in rows for name in ("number", "id")}
        if missing := [index for index, one in enumerate(references) if one not in found]:
            raise Invalid(*((field.format(index), "no such task") for index in missing))
        return [found[one] for one in references]

    @statement
    def stored_rows(cls: Any):
        return cls.select_stored().where(cls.id.in_(values_of("ids")))

    @statement
    def by_external_id(cls: Any):
        return cls.select(cls.id).where(cls.external_id == placeholder("external_id"))

    @classmethod
    def comment_count(cls) -> Query:
        """Return the column with a task's number of comments."""
        return Comment.select(fn.COUNT(SQL("*"))).where(Comment.task == cls.id).alias("comment_count")

    @statement
    def count_in_project(cls: Any):
        """The number of tasks of a project. It decides on a deletion, so it counts and trusts no counter."""
        return cls.select(fn.COUNT(SQL("*"))).where(cls.project == placeholder("id"))

    @classmethod
    def oldest_with(cls, field: Any, id: str, *among: Any, **values: Any) -> list[Row]:
        """Return a batch of the oldest tasks with this reference that meet `among`; empty if none is left."""
        tasks = cls.select_stored().where(field == placeholder("id"), *among).order_by(cls.id)
        return Statement(tasks.limit(500)).some(id=id, **values)[0]

    @classmethod
    def clear_reference(
        cls, transaction: Transaction, field: Any, id: str, *among: Any, **named: Any
    ) -> Iterator[Changed]:
        """Clear this reference in the tasks that have it and meet the conditions `among`; yield each."""
        changes, at = {field.column_name: [id, None]}, transaction.at
        values = {field: None, cls.version: cls.version + 1, cls.updated_at: placeholder("now")}
        is_among = (field == placeholder("id")) & (cls.id <= placeholder("last"))
        update = Statement(cls.update(values).where(is_among, *among))
        while tasks := cls.oldest_with(field, id, *among, **named):
            update.run(id=id, last=tasks[-1]["id"], now=at, **named)
            for task in tasks:
                task |= {field.column_name: None, "version": task["version"] + 1, "updated_at": at}
                cls.record(transaction, "updated", task, changes)
                yield task, changes

    @classmethod
    def select_stored(cls) -> Query:
        return cls.select(*cls.shown_columns())

    @classmethod
    def shown(cls, id: str) -> Row:
        """Return the task with its project, milestone, profiles, attachments and number of comments."""
        task = super().shown(id)
        task["attachments"] = Attachment.all_of_task.all(task_id=id) if task["attachments"] else []
        return task

    @classmethod
    def select_shown(cls) -> Query:
        assignee, creator, followers = Member.alias("assignee"), Member.alias("creator"), cls.alias()
        attachments = Attachment.select(Attachment.id).where(Attachment.task == cls.id)
        every = Table("task", schema="main")  # whose index of `repeats` no view has
        next_number = every.select(fn.MAX(followers.number)).where(every.c.repeats == cls.number)
        next_number = next_number.join(followers, on=(followers.number == every.c.number))
        return (
            cls.select(
                *cls.shown_columns(),
                cls.blockers.shown(cls.number, is_open=False).alias("done_blockers"),
                cls.blockers.shown(cls.number, reverse=True).alias("blocks"),
                cls.comment_count(),
                next_number.alias("next_number"),
                fn.EXISTS(attachments).alias("attachments"),
                *joined(Project, "project", "id", "name", "status", "owner_id"),
                *joined(Milestone, "milestone", "id", "title", "due_date"),
                *profile(assignee, "assignee"),
                *profile(creator, "creator"),
            )
            .join(Project, on=(cls.project == Project.id))
            .join(Milestone, JOIN.LEFT_OUTER, on=(cls.milestone == Milestone.id))
            .join(assignee, JOIN.LEFT_OUTER, on=(cls.assignee == assignee.id))
            .join(creator, JOIN.LEFT_OUTER, on=(cls.created_by == creator.id))
        )

    @classmethod
    def add(
        cls,
        transaction: Transaction,
        *,
        blocked_by: list[int | str] | None = None,
        is_copy: bool = False,
        **fields: Any,
    ) -> Row:
        """Add a task and return it; an import also passes `id`, `number`, `created_at` and the like.

        Mentions in the description of a task that `is_copy`, or that follows another one, notify nobody.

        Raises `Invalid` for references that do not exist and for fields that contradict each other.
        """
        cls._check_done(transaction, fields.get("status", "todo"))
        given = fields | {"created_by": None}  # a task that repeats keeps a creator who was removed
        check_references(cls, given, partial(cls._misplaced, fields["project_id"]))
        cls._check_external_id(fields)
        row = cls.new_row(transaction, **fields)
        cls._check_dates({}, row)
        cls.insert_row.run(**row)
        row["blocked_by"] = cls.blockers.of_new(row["number"], blocked_by)
        cls.record(transaction, "created", row)
        noticed = ["assignee_id", "status"]
        if not row["repeats"] and not is_copy:
            noticed.append("description")
        Task.notices.changed(transaction, row, {name: [None, row[name]] for name in noticed})
        for name in HIDDEN:
            del row[name]
        if transaction.notifies:
            transaction.task_events.append(("task.created", row))
        return row

    @classmethod
    def _check_external_id(cls, fields: Row) -> None:
        """Raise `Invalid` if another task has this external id."""
        external_id = fields.get("external_id")
        if external_id and cls.by_external_id.value(external_id=external_id):
            raise Invalid(("external_id", "is already a task's"))

    @staticmethod
    def _misplaced(project_id: str, rows: Row) -> Iterator[tuple[str, str]]:
        """Yield why a task of this project cannot have the new project, milestone or assignee in `rows`."""
        project, milestone, assignee = map(rows.get, ("project_id", "milestone_id", "assignee_id"))
        if project and project["status"] == "archived":
            yield "project_id", "the project is archived and takes no new tasks"
        if milestone and milestone["project_id"] != project_id:
            yield "milestone_id", "belongs to another project"
        if assignee and not Member.sees(assignee, project_id):
            yield "assignee_id", "is a client who does not see the project"

    @staticmethod
    def _check_done(transaction: Transaction, *statuses: str) -> None:
        """Raise `Forbidden` if a key of scope `agent` completes or reopens a task."""
        if "done" in statuses and transaction.actor.get("scope") == "agent":
            raise Forbidden(
                "a key of scope agent moves nothing to done, and nothing out of it: "
                "set the status review, and a person completes the task"
            )

    @staticmethod
    def _check_dates(stored: Row, new: Row) -> None:
        """Raise `Invalid` for a start date after the due date, and for a rule without a due date."""
        start, due, rule = [(stored | new)[name] for name in ("start_date", "due_date", "repeat")]
        if rule and not due:
            raise Invalid(("repeat", "needs a due_date"))
        if start and due and start > due:
            if "start_date" in new:
                raise Invalid(("start_date", f"must not be after due_date, which is {due}"))
            if "due_date" in new:
                raise Invalid(("due_date", f"must not be before start_date, which is {start}"))

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, versions: frozenset[str] | None) -> Changed:
        """Change these fields; return the task and its changes.

        `sent` are the fields as they are stored, `changes` those that differ, `written` the columns to write.
        Null means the default of a field in `DEFAULTS`. A new rank, `after` or `before` a task, makes a new
        version but is no change. Raises `NotFound`, `Invalid` as `add` does, `Forbidden` as `_check_done`
        does, and `PreconditionFailed` if the task's version is none of `versions`.
        """
        stored = cls._expected(id, versions)
        sent = dict(cls.rules.accepted(transaction, stored, fields))
        written = cls.order.move(transaction, stored, sent)  # takes `after` and `before` out of `sent`
        changes = cls.blockers.changes(transaction, stored, sent)  # takes `blocked_by` out of it
        sent |= {name: sent[name] or DEFAULTS[name] for name in DEFAULTS.keys() & sent}
        if "labels" in sent:
            sent["labels"] = cls.all_labels.spelled(transaction, sent["labels"])
        is_moved = sent.get("project_id", stored["project_id"]) != stored["project_id"]
        if is_moved:
            sent = {"milestone_id": None, "assignee_id": stored["assignee_id"]} | sent
        planned: Row = stored | sent
        changes = differences(stored, sent) | changes
        if not changes and not written:
            return stored, {}
        old, status = changes.get("status", (None, None))
        if changes.keys() & {"status", "assignee_id"}:
            # A completed task hands its rule on, and a reopened one takes it back. A claim ends with either
            # change, a question with the completion.
            cls._check_done(transaction, old, status)
            changes |= cls.rules.rule_changes(transaction, stored, sent, old, status)
            ended = ("claimed_until", "question_id") if status == "done" else ("claimed_until",)
            changes |= differences(stored, {name: None for name in ended if name not in sent})
        written |= {name: new for name, (_, new) in changes.items() if name != "blocked_by"}
        check_references(cls, sent if is_moved else written, partial(cls._misplaced, planned["project_id"]))
        cls._check_dates(stored, written | {"repeat": planned["repeat"]})
        cls._check_external_id(written)
        written |= cls.derived(planned, changes.keys())
        written |= ApiKey.brakes.counted(transaction, stored, changes)
        written |= {"version": stored["version"] + 1, "updated_at": transaction.at}
        if "status" in changes:
            written.setdefault("completed_at", transaction.at if status == "done" else None)
        with Task.notices.reassigning(transaction, task_id=id) if is_moved else nullcontext():
            cls.set_columns(id, **written)
        task = stored | {name: value for name, value in written.items() if name not in HIDDEN}
        if "blocked_by" in changes:
            task["blocked_by"] = cls.blockers.replace_all(task["number"], changes["blocked_by"][1])
        if not changes:  # the history does not show ranks
            cls.record(transaction, "updated", task | {"is_hidden": 1})
            return task, {}
        if is_moved:  # for followers who see only the project that it leaves
            cls.record(transaction, "deleted", stored | {"is_hidden": 1})
        action = "moved" if changes.keys() & {"status", "project_id"} else "updated"
        cls.record(transaction, action, task, changes)
        Task.notices.acted(transaction, id)
        Task.notices.settle(transaction, task, changes)
        Task.notices.changed(transaction, task, changes)
        ApiKey.brakes.notify_stuck(transaction, stored, task)
        if status == "done":
            cls.blockers.notify_free(transaction, task, cls.blockers.blocks(stored))
            task = cls.rules.completed(transaction, task, planned["repeat"])
        return task, changes

    @classmethod
    def new_row(cls, transaction: Transaction, *, status: str = "todo", **fields: Any) -> Row:
        """Return the row of a new task with these fields, and with defaults for all others."""
        row = cls.insert_row.nulls | {
            "id": transaction.new_id(),
            "status": status,
            "completed_at": transaction.at if status == "done" else None,
            "created_by": transaction.actor["id"],
            "created_at": transaction.at,
            "updated_at": transaction.at,
            "metadata": {},
            "tries": 0,
            "version": 1,
        }
        row |= fields | {"labels": cls.all_labels.spelled(transaction, fields.get("labels"))}
        row |= {name: row[name] or default for name, default in DEFAULTS.items()}
        row["due_told"] = None if transaction.notifies else row["due_date"]
        row["number"] = row["number"] or cls.next_number()
        row["rank"] = row["rank"] or cls.last_rank(row["number"])
        return row | cls.derived(row, row.keys())

    @classmethod
    def derived(cls, task: Row, changed: Collection[str]) -> Row:
        """Return the columns of a task that are computed from the fields that have `changed`."""
        derived: Row = {}
        if "title" in changed or "description" in changed:
            # The unit separator keeps a match from spanning both texts.
            derived["search"] = f"{fold(task['title'])}\x1f{fold(task['description'] or '')}"
        if "description" in changed:
            derived["checks"] = checkboxes(task["description"])
        if "labels" in changed:
            keys = map(caseless, task["labels"])
            derived["label_keys"] = "\x1f".join(["", *keys, ""]) if task["labels"] else ""
        return derived

    @classmethod
    def unassign_unseen(cls, transaction: Transaction, member: Row) -> Iterator[Changed]:
        """Unassign a client from the tasks in projects that the client does not see; yield each."""
        if (ids := member["project_ids"]) is not None:
            unseen = cls.project.not_in(values_of("project_ids"))
            claimed = cls.claimed_until.is_null(False)
            while tasks := cls.oldest_with(cls.assignee, member["id"], unseen, claimed, project_ids=ids):
                for task in tasks:
                    yield cls.edit(transaction, task["id"], {"assignee_id": None, "status": "todo"}, None)
            yield from cls.clear_reference(transaction, cls.assignee, member["id"], unseen, project_ids=ids)

    @classmethod
    def remove(cls, transaction: Transaction, id: str, versions: frozenset[str] | None = None) -> Row:
        """Delete the task with its comments and attachments; return it as it was. Raises as `edit` does."""
        task = cls._expected(id, versions)
        blocked = cls.blockers.blocks(task)
        cls.keeper.keep_rows(transaction, cls, [task])
        cls.delete_row.run(id=id)
        cls._removed(transaction, task, blocked)
        transaction.task_events.append(("task.deleted", task))
        return task

    @classmethod
    def remove_all(cls, transaction: Transaction, project_id: str) -> Iterator[Row]:
        """Delete the tasks of a project, and yield each as it was."""
        is_among = (cls.project == placeholder("id")) & (cls.id <= placeholder("last"))
        delete = Statement(cls.delete().where(is_among))
        while tasks := cls.oldest_with(cls.project, project_id):
            blocked = [cls.blockers.blocks(task) for task in tasks]
            cls.keeper.keep_rows(transaction, cls, tasks, part_of=project_id)
            delete.run(id=project_id, last=tasks[-1]["id"])
            for task, numbers in zip(tasks, blocked, strict=True):
                cls._removed(transaction, task, numbers)
                yield task

    @classmethod
    def _removed(cls, transaction: Transaction, task: Row, blocked: list[int]) -> None:
        """Record a task's deletion. If it was open, notify the assignees of tasks that only it blocked."""
        cls.record(transaction, "deleted", task, {"blocks": [blocked, []]} if blocked else {})
        if task["status"] != "done":
            cls.blockers.notify_free(transaction, task, blocked)

    @classmethod
    def _expected(cls, id: str, versions: frozenset[str] | None) -> Row:
        task = cls.stored(id)
        if versions is not None and versions.isdisjoint(["*", str(task["version"])]):
            raise PreconditionFailed(f"the task's version is {task['version']} (#{task['number']})")
        return task

    @classmethod
    def _top(cls, condition: Expression, overdue: str, *order: Any) -> Query:
        first = cls.select(rowid(cls), SQL(overdue).alias("overdue")).where(condition).order_by(*order)
        return Select([first.limit(placeholder("most")).alias("first")], [SQL("*")])

    @statement
    def urgent(cls: Any):
        """Open tasks of active projects: overdue ones by date, then urgent ones, undated ones last."""
        is_active = cls.project.not_in(Project.select_archived())
        is_rest = cls.is_urgent & is_active & (cls.is_undated | (cls.due_date >= placeholder("now")))
        urgent = cls._top(is_rest, "'false'", cls.is_undated, cls.due_date, cls.id)
        rowids = cls._top(cls.is_overdue & is_active, "'true'", cls.due_date, cls.id) + urgent
        assignee = Member.alias("assignee")
        selected = [
            *cls.shown_columns(),
            Project.name.alias("project_name"),
            assignee.full_name.alias("assignee_name"),
            fn.JSON(SQL('"chosen"."overdue"')).alias("overdue"),
        ]
        # Left joins, which SQLite does not reorder.
        return (
            cls.in_order(rowids.limit(placeholder("most")), selected)
            .join(Project, JOIN.LEFT_OUTER, on=(cls.project == Project.id))
            .join(assignee, JOIN.LEFT_OUTER, on=(cls.assignee == assignee.id))
        )

    @classmethod
    def in_order(cls, rowids: Any, selected: list) -> Query:
        """Return a SELECT of the tasks whose `rowid` the query `rowids` selects, in its order."""
        chosen = rowids.alias("chosen")
        return Select([chosen], selected).join(cls, JOIN.CROSS, on=(rowid(cls) == chosen.c.rowid))


# The urgent tasks of the context, and the overdue ones of each project, among millions that are done. Without
# status and project SQLite would choose `task_due`, which includes done tasks. Without `due_told` the sweeper
# would read every task that is due within a week, every second.
Task.indexed("task_overdue", "due_date id status project due_told", where=Task.is_open_with_date)
Task.indexed("task_project_overdue", "project due_date status", where=Task.is_open_with_date)
Task.indexed("task_urgent", "is_undated due_date id project", where=Task.is_urgent)
Task.indexed("task_assignee_due", "assignee due_date id status project", where=Task.is_open_with_date)
Task.indexed("task_external_id", "external_id", unique=True, where=Task.external_id.is_null(False))
Task.indexed("task_claimed", "claimed_until", where=Task.claimed_until.is_null(False))
_asks = Task.question_id.is_null(False) | Task.is_submitted
Task.indexed("task_asks", "id question_id status project", where=_asks)
Task.indexed("task_rank", "rank")
Task.indexed("task_repeats", "repeats", where=Task.repeats.is_null(False))


def checkboxes(text: str | None) -> dict | None:
    """Return how many Markdown checkboxes are `done`, and the `total`, outside of code and comments."""
    shown = CODE_BLOCK.sub("", text) if text and "[" in text else ""
    marks = [mark[2] for mark in CHECKBOX.finditer(shown)]
    return {"done": len(marks) - marks.count(" "), "total": len(marks)} if marks else None


def newest_of(rows: list[Row], limit: int, *, more: bool = False) -> tuple[list[Row], Row]:
    """Return up to `limit` of these rows, newest first, and the pagination that leads to older rows."""
    shown, more = rows[:limit], more or len(rows) > limit
    return shown, {"limit": limit, "has_more": more, "next_before": shown[-1]["id"] if more else None}


class PartOfTask(Entity):
    """A table whose rows belong to a task, and are named by the task's id and their own."""

    task = ForeignKeyField(Task, field="id", on_delete="CASCADE", index=False)

    SEEN = "EXISTS (SELECT 1 FROM task WHERE task.id = task_id)"

    @classmethod
    def of_task(cls, task_id: str, id: str) -> Row:
        """Return the row as the API shows it. Raises `NotFound`, including for a row of another task."""
        row = cls.shown(id)
        return row if row["task_id"] == task_id else not_found(cls.NOUN)


class Comment(PartOfTask):
    author = ForeignKeyField(Member, index=False)
    content = TextField()
    created_at = TextField()
    edited_at = TextField(null=True)
    key = ForeignKeyField(ApiKey, null=True, on_delete="SET NULL", index=False)
    mentions = JSONField(constraints=[SQL("DEFAULT '[]'")])  # ids of members
    search = TextField(constraints=[SQL("DEFAULT ''")])  # the content, folded

    NOUN, PRIVATE = "comment", ("content",)  # which may be taken back

    @classmethod
    def select_shown(cls) -> Query:
        selected = [*columns(cls, "search", "key_id"), via(), *profile(Member, "author")]
        comments = cls.select(*selected).join(Member, on=(cls.author == Member.id)).switch(cls)
        return comments.join(ApiKey, JOIN.LEFT_OUTER, on=(cls.key == ApiKey.id))

    @statement
    def latest(cls: Any):
        is_before = (cls.task == placeholder("task_id")) & (cls.id < placeholder("before"))
        return cls.select_shown().where(is_before).order_by(cls.id.desc()).limit(placeholder("most"))

    @classmethod
    def page(cls, task_id: str, *, limit: int, before: str = "~") -> Row:
        """Return the task's latest comments before the one with this id, oldest first. Raises `NotFound`."""
        Task.stored(task_id)
        rows, left = cls.latest.some(task_id=task_id, before=before, most=limit + 1)
        latest, pagination = newest_of(rows, limit, more=left < 0)
        return {"comments": latest[::-1], "pagination": pagination}

    @statement
    def authors(cls: Any):
        return cls.select(cls.author).where(cls.task == placeholder("task_id")).distinct()

    @classmethod
    def store(cls, transaction: Transaction, task: Row, content: str, **made: str | None) -> Row:
        """Store a comment and return it; an import passes columns that were `made` elsewhere."""
        row = {"id": transaction.new_id(), "author_id": transaction.actor["id"], "created_at": transaction.at}
        row |= {"key_id": transaction.actor.get("key_id"), **made, "task_id": task["id"], "content": content}
        mentions = Task.notices.mentioned(content, task["project_id"])
        cls.insert_row.run(**row, mentions=mentions, search=fold(content))
        comment = cls.shown(row["id"])
        cls.record(transaction, "created", comment)
        return comment

    @classmethod
    def add(
        cls, transaction: Transaction, task_id: str, *, content: str, question: bool = False
    ) -> tuple[Row, Row, Row]:
        """Comment on a task; return the comment, the task and its changes. Raises as `commented` does."""
        task = Task.stored(task_id)
        comment = cls.store(transaction, task, content)
        task, changes, asked, answered = Task.questions.commented(transaction, task, comment, question)
        mentioned = {*comment["mentions"]}
        involved = {row["author_id"] for row in cls.authors.all(task_id=task_id)}
        involved |= {task["assignee_id"], task["created_by"]}
        Task.notices.acted(transaction, task_id)
        for reason, members in (
            ("answered", answered),
            ("question", asked),
            ("mentioned", mentioned - asked - answered),
            ("commented", involved - mentioned - asked - answered),
        ):
            Task.notices.notify(transaction, task, reason, *members, comment_id=comment["id"])
        return comment, task, changes

    @classmethod
    def edit(cls, transaction: Transaction, task_id: str, id: str, fields: Row) -> Row:
        """Change a comment of the actor. Raises `NotFound`, and `Forbidden` for one of somebody else."""
        comment, actor = cls.of_task(task_id, id), transaction.actor
        if comment["author_id"] != actor["id"]:
            raise Forbidden("only its author may change a comment")
        if actor.get("scope") == "agent" and cls.stored(id)["key_id"] != actor["key_id"]:
            raise Forbidden("a key of scope agent changes only comments that were made with it")
        return cls.rewrite(transaction, comment, **fields) if differences(comment, fields) else comment

    @classmethod
    def rewrite(cls, transaction: Transaction, comment: Row, *, content: str, **made: str | None) -> Row:
        """Change a comment, and columns that were `made` elsewhere; notify members whom it newly mentions."""
        task = Task.stored(comment["task_id"])
        new: Row = {"edited_at": transaction.at, **made, "content": content}
        new["mentions"] = Task.notices.mentioned(content, task["project_id"])
        cls.set_columns(comment["id"], **new, search=fold(content))
        Task.notices.mention(transaction, task, comment["content"], content, comment["id"])
        cls.record(transaction, "updated", comment | new, {"content": [comment["content"], content]})
        return comment | new

    @classmethod
    def remove(cls, transaction: Transaction, task_id: str, id: str) -> Changed:
        """Delete a comment; return the task and its changes. Raises `NotFound` and `Forbidden`."""
        comment, task = cls.of_task(task_id, id), Task.stored(task_id)
        if transaction.actor["role"] not in ADMINS and transaction.actor["id"] != comment["author_id"]:
            raise Forbidden("only its author, an owner or an admin may delete a comment")
        is_open = task["question_id"] == id
        changed = Task.edit(transaction, task_id, {"question_id": None}, None) if is_open else (task, {})
        cls.keeper.keep_rows(transaction, cls, [comment])
        cls.delete_row.run(id=id)
        cls.record(transaction, "deleted", comment)
        return changed

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """Record the action under the task's title."""
        task = Task.stored(row["task_id"])
        named = {name: task[name] for name in ("title", "number", "project_id")}
        super().record(transaction, action, row | named, changes)


Comment.indexed("comment_task", "task id")


class Attachment(PartOfTask):
    """The description of a file; its bytes are in another table, so that a list never reads them."""

    # Null for a file that is kept after the deletion of its task, or its own.
    task: Any = ForeignKeyField(Task, field="id", null=True, on_delete="CASCADE", index=False)
    filename = TextField()
    content_type = TextField()
    size = IntegerField()
    created_by = ForeignKeyField(Member, column_name="created_by", object_id_name="creator_id", index=False)
    created_at = TextField()

    NOUN, TITLE = "attachment", "filename"

    @statement
    def all_of_task(cls: Any):
        return cls.select().where(cls.task == placeholder("task_id")).order_by(cls.id)


Attachment.indexed("attachment_task", "task id")


# Meetings and whiteboards ---------------------------------------------------------------------


class Meeting(Resource):
    title = TextField()
    description = TextField(null=True)
    location = TextField(null=True)
    project = ForeignKeyField(Project, null=True, on_delete="SET NULL")
    starts_at = TextField()
    ends_at = TextField(null=True)
    organizer = ForeignKeyField(Member)
    created_at = TextField()
    updated_at = TextField()

    NOUN = "meeting"
    _ATTENDED = "SELECT meeting_id FROM main.participant WHERE member_id = viewer()"
    SEEN = f"organizer_id = viewer() OR id IN ({_ATTENDED})"  # noqa: S608
    SEEN_AS: ClassVar[Row] = {"project_id": "(SELECT id FROM project WHERE id = project_id)"}

    @classmethod
    def select_shown(cls) -> Query:
        person = Member.alias("person")
        people = Participant.select(*(getattr(person, name) for name in PROFILE))
        people = people.join(person, on=(Participant.member == person.id))
        people = people.where(Participant.meeting == cls.id).order_by(person.full_name, person.id)
        shown = json_object({name: SQL(f'"{name}"') for name in PROFILE})
        participants = fn.JSON(Select([people], [fn.JSON_GROUP_ARRAY(shown)])).alias("participants")
        selected = [*columns(cls, "organizer_id"), participants, *profile(Member, "organizer")]
        return cls.select(*selected).join(Member, on=(cls.organizer == Member.id))

    @statement
    def of_member(cls: Any):
        """The meetings that a member organizes or takes part in."""
        joined = Participant.select(Participant.meeting).where(Participant.member == placeholder("member_id"))
        attends = (cls.organizer == placeholder("member_id")) | cls.id.in_(joined)
        return cls.select_shown().where(attends).order_by(cls.starts_at, cls.id)

    @classmethod
    def of(cls, member_id: str) -> list[Row]:
        """Return the member's meetings: upcoming ones, the next first, then past ones, the newest first."""
        meetings = list(map(cls._with_when, cls.of_member.all(member_id=member_id)))
        upcoming = [meeting for meeting in meetings if meeting["when"] == "upcoming"]
        return upcoming + [meeting for meeting in meetings[::-1] if meeting["when"] == "past"]

    @classmethod
    def shown(cls, id: str) -> Row:
        """Return the meeting with its organizer and participants. Raises `NotFound`."""
        return cls._with_when(super().shown(id))

    @staticmethod
    def _with_when(meeting: Row) -> Row:
        """Return the meeting with `when`: whether it is upcoming or past."""
        is_past = (meeting["ends_at"] or meeting["starts_at"]) <= now()
        return meeting | {"when": "past" if is_past else "upcoming"}

    @classmethod
    def check(cls, row: Row) -> None:
        if row.get("ends_at") and row["ends_at"] < row["starts_at"]:
            raise Invalid(("ends_at", "must not be before starts_at"))


class Participant(Base):
    meeting = ForeignKeyField(Meeting, on_delete="CASCADE", index=False)
    member = ForeignKeyField(Member)

    SEEN = "EXISTS (SELECT 1 FROM meeting WHERE meeting.id = meeting_id)"

    class Meta:
        primary_key = CompositeKey("meeting", "member")


class Whiteboard(Resource):
    title = TextField()
    project = ForeignKeyField(Project, null=True, on_delete="SET NULL")
    content = EncodedJSONField()
    updated_by = ForeignKeyField(Member, column_name="updated_by", object_id_name="editor_id", index=False)
    created_at = TextField()
    updated_at = TextField()

    NOUN, PRIVATE = "whiteboard", ("content",)
    SEEN = Base.OF_PROJECT

    @statement
    def latest(cls: Any):
        """Up to `:most` whiteboards without their contents, the last updated first; -1 means all."""
        whiteboards = cls.select(cls.id, cls.title, cls.project, cls.updated_at, cls.updated_by)
        return whiteboards.order_by(cls.updated_at.desc(), cls.id.desc()).limit(placeholder("most"))

    @classmethod
    def stamp(cls, transaction: Transaction) -> Row:
        return super().stamp(transaction) | {"updated_by": transaction.actor["id"]}


Whiteboard.indexed("whiteboard_updated", "updated_at id")


def _ids_in(table: Any) -> Any:
    return table.select_stored().select(table.id).where(table.id.in_(values_of("ids")))


# Which of `:ids` a viewer sees, in the tables whose rows a request may name.
SEEN_IDS = Statement(_ids_in(Task) + _ids_in(Comment) + _ids_in(Member) + _ids_in(ApiKey))
