"""The tables of work, each with its rules and its queries; `write()`, in which every change runs.

A query stands in the class that runs it, as a `statement`. A method that needs the actor or the time takes
its `Transaction` first. Nothing here knows HTTP.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import orjson
from peewee import (
    JOIN,
    OP,
    SQL,
    BlobField,
    Case,
    CompositeKey,
    Expression,
    ForeignKeyField,
    IntegerField,
    Query,
    Select,
    TextField,
    fn,
)
from playhouse.sqlite_ext import AutoIncrementField

from database import (
    PAGE_BYTES,
    Base,
    ChoiceField,
    EncodedJSONField,
    Identified,
    JSONField,
    Row,
    Statement,
    caseless,
    columns,
    db,
    deletion_of_some,
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
    Activity,
    ApiKey,
    Entity,
    Invitation,
    Member,
    Transaction,
    differences,
    permit,
    profile,
    sorted_by,
    with_member,
)
from repeat import CHECKBOX, REPEAT_FROM, checkboxes, next_dates
from times import first_id, follow_clock, new_request_id, now

STATUSES = ("todo", "in_progress", "review", "done")
PRIORITIES = ("low", "medium", "high", "urgent")
MAX_LABELS = 10  # of a task
DEFAULTS = {"priority": "medium", "repeat_from": REPEAT_FROM[0]}  # of a task, where null is sent
# What a copy of a task has too, with the labels.
PLANNED = ["project_id", "milestone_id", "title", "description", "priority", "assignee_id"]
PLANNED += ["start_date", "due_date", "metadata", "repeat", "repeat_from"]
HIDDEN = ("search", "label_keys", "due_told")  # a task's columns that no answer shows
PROJECT_STATUSES = ("active", "archived")
# Reasons that tell of a task's state, which a completion ends, and those that other changes make untrue.
OF_STATE = ("assigned", "question", "review", "unblocked", "claim_ended", "due", "sent_back")
OVER = {"assignee_id": ["assigned", "unblocked", "claim_ended", "due", "sent_back"], "due_date": ["due"]}
OVER |= {"question_id": ["question"], "status": ["review", "sent_back"], "blocked_by": ["unblocked"]}
REASONS: tuple[str, ...] = ("assigned", "mentioned", "commented", "question", "answered", "review")
REASONS += ("unblocked", "claim_ended", "due", "sent_back")

Changed = tuple[Row, Row]  # a task, and what has changed: `{field: [old, new]}`

COUNT_LIMIT = 10_000  # a list's total is exact up to here
MAX_CLAIM = 1440  # minutes
MAX_BLOCKERS = 20  # tasks that block one
MAX_BLOCKING = 100  # characters of their titles in an event
MAX_UNREAD = 100  # notices that are counted
MAX_CALENDAR = 1000  # tasks in a calendar
MAX_LISTED = 1000  # characters of a project's description in a list, and of a meeting's in a calendar


# Writing --------------------------------------------------------------------------------------


@contextmanager
def write(actor: Row | None = None, request_id: str = "", **waiting: Any) -> Iterator[Transaction]:
    """Run the body in a write transaction; of all processes, only one body runs at a time.

    Nothing may be sent over a network inside. `begins_group`, `seconds` and what is raised are as in
    `Database.writing`.
    """
    with db.writing(**waiting):
        if newest := Activity.newest.value():
            follow_clock(newest)
        transaction = Transaction(actor or {}, request_id or new_request_id())
        if newest and transaction.new_id() < newest:  # the clock was more than a day ahead
            Task.redate.run(now=transaction.at)
        yield transaction
        ApiKey.write_last_used()


def flush_last_used() -> None:
    """Write the times at which keys were last used, if any, in a separate transaction."""
    if ApiKey.used:
        with write():
            pass


def answer_asked() -> None:
    """Have links mailed to those active members whose addresses were given."""
    while Invitation.asked:
        member = Member.by_email.one(email=Invitation.asked.pop())
        if member and member["status"] == Member.ACTIVE:
            with suppress(Conflict), write(member) as transaction:
                Invitation.mail_to(transaction, member["id"])


# Helpers of several tables --------------------------------------------------------------------


def each(name: str) -> Any:
    """SELECT of the values in a parameter that is a JSON array."""
    return Select([fn.JSON_EACH(placeholder(name))], [SQL("value")])


def check_references(
    model: Any, fields: Row, check: Callable[[Row], Iterable[tuple[str, str]]] = lambda rows: ()
) -> None:
    """Raise `Invalid` with every field that refers to a row that does not exist.

    The model's foreign keys tell which fields these are. `check` gets the rows that the fields refer
    to, by field (None for one that does not exist), and returns further problems.
    """
    rows, problems = {}, []
    for name, id in fields.items():
        foreign_key = model._meta.columns.get(name)
        if isinstance(foreign_key, ForeignKeyField) and id is not None:
            rows[name] = foreign_key.rel_model.stored_row.one(id=id)
            if rows[name] is None:
                problems.append((name, f"no such {foreign_key.rel_model.NOUN}"))
    problems += check(rows)
    if problems:
        raise Invalid(*problems)


class Resource(Entity):
    """A table whose rows are added, edited and removed by the same methods; tasks and members have others."""

    @classmethod
    def check(cls, row: Row) -> None:
        """Raise `Invalid` for columns that do not go together."""

    @classmethod
    def stamp(cls, transaction: Transaction) -> Row:
        """The columns that every change writes."""
        return {"updated_at": transaction.at}

    @classmethod
    def add(cls, transaction: Transaction, **fields: Any) -> Row:
        """Make a new one; an import gives `id` and `created_at` too.

        Raises `Invalid` for what does not exist or does not go together.
        """
        check_references(cls, fields)
        cls.check(fields)
        made = {"id": transaction.new_id(), "created_at": transaction.at}
        row = made | fields | cls.stamp(transaction)
        cls.insert_row.run(**row)
        cls.record(transaction, "created", row)
        return cls.shown(row["id"])

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, also: Row | None = None) -> Row:
        """Change the fields that were sent; `also` are changes of related rows. Raises as `add` does."""
        stored = cls.stored(id)
        if changes := differences(stored, fields) | (also or {}):
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
    SEEN = "id IN seen_project"

    @classmethod
    def _select(cls, *description: Any) -> Query:
        counters = [getattr(TaskCount, status) for status in STATUSES]
        selected = [*columns(cls, "owner_id", "description"), *description, *counters]
        selected.append(DueCount.overdue(cls.id).alias("overdue"))
        return (
            cls.select(*selected, *profile(Member, "owner"))
            .join(Member, on=(cls.owner == Member.id))
            .join(TaskCount, JOIN.LEFT_OUTER, on=(TaskCount.project == cls.id))
        )

    @classmethod
    def select_shown(cls) -> Query:
        return cls._select(cls.description)

    @statement
    def listed(cls: Any):
        """The projects with this status, or all, with the beginnings of their descriptions."""
        beginning = fn.SUBSTR(cls.description, 1, MAX_LISTED).alias("description")
        is_cut = Case(None, [(fn.LENGTH(cls.description) > MAX_LISTED, "true")], "false")
        has_status = placeholder("status").is_null() | (cls.status == placeholder("status"))
        return cls._select(beginning, fn.JSON(is_cut).alias("description_cut")).where(has_status)

    @classmethod
    def select_archived(cls) -> Query:
        """The ids of the archived projects."""
        return cls.select(cls.id).where(cls.status == "archived")

    @classmethod
    def shown(cls, id: str) -> Row:
        """The project with its owner and statistics. Raises `NotFound`."""
        return cls._with_stats(cls.shown_row.one(id=id, now=now()) or not_found("project"))

    @classmethod
    def listing(cls, status: str | None = None) -> list[Row]:
        """Projects by name, with their owners and statistics."""
        rows = cls.listed.all(status=status, now=now())
        return [cls._with_stats(row) for row in sorted_by(rows, "name")]

    @classmethod
    def _with_stats(cls, project: Row) -> Row:
        """The project, with its counters put together as `stats`."""
        counts = {status: project.pop(status) or 0 for status in STATUSES}
        total = sum(counts.values())
        rate = round(counts["done"] / total, 4) if total else 0.0
        overdue = project.pop("overdue")
        project["stats"] = {"total": total, **counts, "overdue": overdue, "completion_rate": rate}
        return project

    @classmethod
    def add(cls, transaction: Transaction, *, owner_id: str | None = None, **fields: Any) -> Row:
        """Make a new active project. Its owner is the actor, unless the fields name another member."""
        owner_id = owner_id or transaction.actor["id"]
        return super().add(transaction, **{"status": "active", **fields}, owner_id=owner_id)

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, also: Row | None = None) -> Row:
        """Change the project; when it is archived, nobody needs to look at its tasks any more."""
        if fields.get("status") == "archived":
            Notice.mark_untrue.run(tasks=[], project_id=id, over=[*OF_STATE], now=transaction.at)
        return super().edit(transaction, id, fields, also)

    @classmethod
    def remove_with_tasks(cls, transaction: Transaction, id: str, *, force: bool) -> Iterator[Row]:
        """Delete the project, and yield each of its tasks when it is deleted.

        Raises `NotFound`, and `Conflict` where it has tasks, unless forced.
        """
        cls.stored(id)
        if not force and (count := Task.of_project.value(id=id)):
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
    """How many tasks each project has, by status; triggers on `task` (migration 0010) keep the counters.

    From these come the statistics of projects and the totals of the lists with the filters in `FILTERS`;
    to count a hundred thousand tasks takes milliseconds. A project that never had a task has no row.
    """

    project = ForeignKeyField(Project, primary_key=True, on_delete="CASCADE")
    todo = IntegerField()
    in_progress = IntegerField()
    review = IntegerField()
    done = IntegerField()

    SEEN = "project_id IN seen_project"
    FILTERS = frozenset({"project_id", "status", "archived"})

    @classmethod
    def select_total(cls, filters: frozenset[str]) -> Query:
        """How many tasks pass these filters."""
        by_status = [(status, getattr(cls, status)) for status in STATUSES]
        every = cls.todo + cls.in_progress + cls.review + cls.done
        count = Case(placeholder("status"), by_status) if "status" in filters else every
        total = cls.select(fn.COALESCE(fn.SUM(count), 0))
        if "project_id" in filters:
            total = total.where(cls.project == placeholder("project_id"))
        if "archived" in filters:
            total = total.where(cls.project.not_in(Project.select_archived()))
        return total


class DueCount(Base):
    """The number of open tasks of each project with each due date; triggers keep it as they keep `TaskCount`.

    Most tasks are due at the end of a day, so this has far fewer rows than there are overdue tasks.
    """

    project = ForeignKeyField(Project, on_delete="CASCADE", index=False)
    due_date = TextField()
    open = IntegerField()

    SEEN = "project_id IN seen_project"

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
    SEEN = "project_id IN seen_project"

    @classmethod
    def select_shown(cls) -> Query:
        every = fn.COUNT(SQL("*"))
        counts = json_object({"total": every, "done": every.filter(~Task.is_open)})
        stats = Task.select(counts).where(Task.milestone == cls.id)
        return cls.select().select_extend(fn.JSON(stats).alias("stats"))

    @statement
    def of_project(cls: Any):
        milestones = cls.select_shown().where(cls.project == placeholder("project_id"))
        return milestones.order_by(cls.due_date.is_null(), cls.due_date, cls.id)

    @classmethod
    def of(cls, project_id: str) -> list[Row]:
        """The project's milestones by date, those without a date last. Raises `NotFound`."""
        Project.stored(project_id)
        return cls.of_project.all(project_id=project_id)

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """Note it as a change of the milestone's project; its own is hidden."""
        project, title = Project.stored(row["project_id"]), row["title"]
        ends = {"created": [None, title], "deleted": [title, None]}
        Project.record(transaction, "updated", project, {"milestone": ends.get(action) or [title, changes]})
        super().record(transaction, action, row | {"is_hidden": 1})

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, also: Row | None = None) -> Row:
        """Change it, and close it or open it again, where `closed` says so. Raises as `add` does."""
        if "closed" in fields:
            closed_at = cls.stored(id)["closed_at"] or transaction.at
            fields = fields | {"closed_at": closed_at if fields["closed"] else None}
            del fields["closed"]
        return super().edit(transaction, id, fields, also)

    @classmethod
    def remove_from_tasks(cls, transaction: Transaction, id: str) -> Iterator[Changed]:
        """Delete it; yields its tasks, which have no milestone then. Raises `NotFound`."""
        yield from Task.clear(transaction, Task.milestone, id)
        cls.remove(transaction, id)


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
    # The labels without regard to case, each between unit separators.
    label_keys = TextField(constraints=[SQL("DEFAULT ''")])
    metadata = EncodedJSONField()
    external_id = TextField(null=True)  # in the program that the task comes from
    claimed_until = TextField(null=True)  # the end of a claim for some minutes
    due_told = TextField(null=True)  # the due date that was told last, when it came near
    question_id = TextField(null=True)  # the comment that waits for an answer
    checks = JSONField(null=True)  # how many checkboxes the description has, and how many are ticked
    repeat = TextField(null=True)  # the rule (repeat.py) by which another task follows when this one is done
    repeat_from = ChoiceField(REPEAT_FROM, constraints=[SQL("DEFAULT 'due_date'")])
    repeats = IntegerField(null=True)  # the number of the task that this one followed
    rank = TextField(constraints=[SQL("DEFAULT ''")])  # digits, as the places of a decimal number; see `Rank`
    version = IntegerField()
    created_at = TextField()
    updated_at = TextField()
    search = TextField()  # title and description, folded: SQLite itself folds ASCII only

    NOUN = "task"
    SEEN = "project_id IN seen_project"
    LATE_DAYS = 7.0  # after its due date, a task is told no more that it is due
    is_undated: ClassVar[Any] = due_date.is_null()
    is_labelled: ClassVar[Any] = labels != "[]"
    is_open: ClassVar[Any] = status != "done"
    is_open_with_date: ClassVar[Any] = is_open & due_date.is_null(False)
    is_urgent: ClassVar[Any] = is_open & (priority == "urgent")
    is_overdue: ClassVar[Any] = is_open & (due_date < placeholder("now"))

    @classmethod
    def shown_columns(cls) -> list:
        """The columns of a task in answers and events, and the open tasks that block it."""
        return [*columns(cls, *HIDDEN), Blocker.shown(cls.number).alias("blocked_by")]

    @classmethod
    def next_number(cls) -> int:
        """The number of the next new task: one more than the highest that any task ever had."""
        rows = db.read("SELECT seq FROM sqlite_sequence WHERE name = 'task'", {})
        return rows[0][0] + 1 if rows else 1

    @statement
    def of_calendar(cls: Any):
        """The first open tasks of a member, in active projects, that are due in some period."""
        is_due = cls.is_open & cls.due_date.between(placeholder("since"), placeholder("until"))
        is_theirs = (cls.assignee == placeholder("member_id")) & cls.project.not_in(Project.select_archived())
        shown = (cls.id, cls.number, cls.title, cls.due_date, cls.created_at, cls.updated_at)
        places = cls.select(rowid(cls)).where(is_due, is_theirs).order_by(cls.due_date, cls.id)
        return cls.in_order(places.limit(MAX_CALENDAR), [*shown])

    @statement
    def by_number(cls: Any):
        return cls.select(cls.id).where(cls.number == placeholder("number"))

    @classmethod
    def id_of(cls, number: int) -> str:
        """The id of the task with this number. Raises `NotFound`, which says who deleted it."""
        if id := cls.by_number.value(number=number):
            return id
        gone = Activity.deletion_of.one(number=number, most=1)
        by = f": it was deleted by {gone['actor']['full_name']} at {gone['created_at'][:16]}Z" if gone else ""
        raise NotFound(cls.NOUN + by)

    @statement
    def with_label(cls: Any):
        """A task with a label; SQLite looks through all that have labels only for a new one."""
        has_label = fn.INSTR(cls.label_keys, placeholder("label")) > 0
        return cls.select(cls.labels).where(cls.is_labelled, has_label).limit(1)

    @statement
    def references(cls: Any):
        """Number, id and bytes of each task among the references, which are numbers and ids as JSON."""
        is_referred = cls.number.in_(each("references")) | cls.id.in_(each("references"))
        size = fn.LENGTH(fn.COALESCE(cls.description, "").concat(cls.metadata).cast("BLOB"))
        return cls.select(cls.number, cls.id, size.alias("size")).where(is_referred)

    @classmethod
    def referred(cls, references: list[int | str], field: str) -> list[Row]:
        """The number, id and size of each of these tasks, which are given by number or id.

        Raises `Invalid` with `field`, in which {} is the place of the one that does not exist.
        """
        rows = cls.references.all(references=references)
        found = {row[name]: row for row in rows for name in ("number", "id")}
        missing = [(field.format(n), "no such task") for n, id in enumerate(references) if id not in found]
        if missing:
            raise Invalid(*missing)
        return [found[one] for one in references]

    @classmethod
    def label_columns(cls, transaction: Transaction, labels: list[str] | None) -> Row:
        """Return the columns of these labels, each once and spelled as in the tasks that already have it.

        Looking for a new label takes as long as reading all labels. So a transaction that gives tasks more
        labels than one task can have reads all of them, once.
        """
        if not labels:
            return {"labels": [], "label_keys": ""}
        first = {caseless(label): label for label in reversed(labels)}  # of several spellings
        spelled, known = {key: first[key] for key in map(caseless, labels)}, transaction.spellings
        if len(known | spelled) <= MAX_LABELS:
            for key in spelled.keys() - known.keys():
                if row := cls.with_label.one(label=f"\x1f{key}\x1f"):
                    known[key] = next(label for label in row["labels"] if caseless(label) == key)
        elif len(known) <= MAX_LABELS:
            known |= {caseless(label): label for row in cls.labelled.all() for label in row["labels"]}
        labels = [known.setdefault(key, label) for key, label in spelled.items()]
        return {"labels": labels, "label_keys": "\x1f".join(["", *spelled, ""])}

    @statement
    def labelled(cls: Any):
        counts = cls.select(cls.labels, fn.COUNT(SQL("*")).alias("count"))
        return counts.where(cls.is_labelled).group_by(cls.labels)

    @classmethod
    def label_counts(cls) -> list[Row]:
        """Each label with the number of its tasks, by name."""
        counts = Counter[str]()
        for row in cls.labelled.all():
            counts.update(dict.fromkeys(row["labels"], row["count"]))
        return [{"label": label, "count": counts[label]} for label in sorted(counts, key=fold)]

    @statement
    def rank_after(cls: Any):
        follows = (cls.rank > placeholder("rank")) & (cls.id != placeholder("id"))
        return cls.select(cls.rank).where(follows).order_by(cls.rank).limit(1)

    @statement
    def rank_before(cls: Any):
        precedes = (cls.rank < placeholder("rank")) & (cls.id != placeholder("id"))
        return cls.select(cls.rank).where(precedes).order_by(cls.rank.desc()).limit(1)

    @statement
    def ranked_between(cls: Any):
        is_between = (cls.rank > placeholder("low")) & (cls.rank < placeholder("high"))
        rows = cls.select(cls.id, cls.number, cls.title, cls.version, cls.project)
        return rows.where(is_between, cls.id != placeholder("id")).order_by(cls.rank)

    @statement
    def by_external_id(cls: Any):
        return cls.select(cls.id).where(cls.external_id == placeholder("external_id"))

    @statement
    def redate(cls: Any):
        """Set `updated_at` of tasks from the future to now, after the clock was ahead.

        Otherwise a client that reads changes in the order of `updated_at` would miss those that follow. Does
        nothing while the clock is before the creation of the first member, as it is then wrong itself.
        """
        is_ahead = cls.updated_at > placeholder("now")
        is_right = Member.select(fn.MIN(Member.created_at)) < placeholder("now")
        return cls.update({cls.updated_at: placeholder("now")}).where(is_ahead, is_right)

    @classmethod
    def comment_count(cls) -> Query:
        """The column with a task's number of comments."""
        return Comment.select(fn.COUNT(SQL("*"))).where(Comment.task == cls.id).alias("comment_count")

    @statement
    def of_project(cls: Any):
        """The number of tasks of a project; it decides on a deletion, and so is not that of the counters."""
        return cls.select(fn.COUNT(SQL("*"))).where(cls.project == placeholder("id"))

    @classmethod
    def some_with(cls, field: Any, id: str) -> list[Row]:
        """Some of the tasks with this reference, the oldest; few, so that not all need be in memory."""
        tasks = cls.select_stored().where(field == placeholder("id")).order_by(cls.id)
        return Statement(tasks.limit(500)).some(id=id)[0]

    @classmethod
    def clear(cls, transaction: Transaction, field: Any, id: str) -> Iterator[Changed]:
        """Clear this reference in the tasks that have it; yields each of these tasks."""
        name, at = field.column_name, transaction.at
        values = {field: None, cls.version: cls.version + 1, cls.updated_at: placeholder("now")}
        is_first = (field == placeholder("id")) & (cls.id <= placeholder("last"))
        clearing = Statement(cls.update(values).where(is_first))
        while before := cls.some_with(field, id):
            clearing.run(id=id, last=before[-1]["id"], now=at)
            after = [task | {name: None, "version": task["version"] + 1, "updated_at": at} for task in before]
            for task in after:
                cls.record(transaction, "updated", task, {name: [id, None]})
                yield task, {name: [id, None]}

    @classmethod
    def select_stored(cls) -> Query:
        return cls.select(*cls.shown_columns())

    @classmethod
    def shown(cls, id: str) -> Row:
        """The task with its project, milestone, profiles, attachments and number of comments."""
        task = super().shown(id)
        task["attachments"] = Attachment.all_of_task.all(task_id=id) if task["attachments"] else []
        return task

    @classmethod
    def select_shown(cls) -> Query:
        assignee, creator, followers = Member.alias("assignee"), Member.alias("creator"), cls.alias()
        attachments = Attachment.select(Attachment.id).where(Attachment.task == cls.id)
        next_number = followers.select(fn.MAX(followers.number)).where(followers.repeats == cls.number)
        return (
            cls.select(
                *cls.shown_columns(),
                Blocker.shown(cls.number, is_open=False).alias("done_blockers"),
                Blocker.shown(cls.number, reverse=True).alias("blocks"),
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
        project_id: str,
        title: str,
        status: str = "todo",
        blocked_by: list[int | str] | None = None,
        **fields: Any,
    ) -> Row:
        """Make a new task; an import also gives `id`, `number`, `created_at` and the like.

        Raises `Invalid` for what does not exist or belong together.
        """
        cls._check_done(transaction, status)
        references = {"project_id": project_id, **fields}
        check_references(cls, references, partial(cls._misplaced, project_id))
        cls._check_external_id(fields)
        row = cls.insert_row.nulls | {
            "id": transaction.new_id(),
            "completed_at": transaction.at if status == "done" else None,
            "created_by": transaction.actor["id"],
            "created_at": transaction.at,
        }
        row |= fields | cls.label_columns(transaction, fields.get("labels"))
        row |= {"project_id": project_id, "title": title, "status": status}
        row |= {
            "checks": checkboxes(fields.get("description")),
            **{name: fields.get(name) or default for name, default in DEFAULTS.items()},
            "metadata": fields.get("metadata", {}),
            "version": 1,
            "updated_at": transaction.at,
            "due_told": None if transaction.notifies else fields.get("due_date"),
            "search": cls.searchable({"title": title, **fields}),
        }
        cls._check_dates({}, row)
        row["number"] = row["number"] or cls.next_number()
        row["rank"] = row["rank"] or Rank.whole(Rank.FIRST + row["number"])  # the last one
        cls.insert_row.run(**row)
        row["blocked_by"] = []
        if blocked_by:
            row["blocked_by"] = Blocker.replace_all(row["number"], Blocker.numbers(blocked_by))
        cls.record(transaction, "created", row)
        Notice.notify(transaction, row, "assigned", row["assignee_id"])
        Notice.mention(transaction, row, None, row["description"])
        if status == "review":
            Notice.notify(transaction, row, "review", *cls.responsible(transaction, row))
        del row["search"], row["label_keys"], row["due_told"]
        if transaction.notifies:
            transaction.also.append(("task.created", row))
        return row

    @classmethod
    def copy(cls, transaction: Transaction, id: str, **titled: Any) -> Row:
        """Make a new task of what was planned of this one (`PLANNED`). Raises as `add` does."""
        task = cls.stored(id)
        return cls.add(transaction, **{name: task[name] for name in (*PLANNED, "labels")} | titled)

    @classmethod
    def add_all(cls, transaction: Transaction, tasks: list[Row]) -> list[Row]:
        """Make new tasks. Raises as `add` does, with what is wrong in any of them."""
        return cls._each(tasks, lambda fields: cls.add(transaction, **fields))

    @classmethod
    def edit_all(
        cls, transaction: Transaction, tasks: list[int | str], changes: Row, versions: Row | None = None
    ) -> list[Changed]:
        """Change these tasks alike; `versions` are those of some, by what they are called in `tasks`.

        Returns and raises as `edit` does, with what is wrong in any of them.
        """
        versions = versions or {}
        rows = cls.referred(tasks, "tasks.{}")
        names = {row["id"]: str(task) for row, task in zip(rows, tasks, strict=True)}
        if len(names) < len(tasks):
            raise Invalid(("tasks", "must not name a task twice"))
        if sum(row["size"] for row in rows) > PAGE_BYTES:
            raise Invalid(("tasks", "hold over 4 MiB of text together; change fewer in one call"))
        if unknown := sorted(versions.keys() - names.values()):
            raise Invalid(("versions", f"{unknown[0][:100]} is not in tasks"))

        def edit(id: str) -> Changed:
            expected = frozenset([str(versions[names[id]])]) if names[id] in versions else None
            return cls.edit(transaction, id, {**changes}, expected)

        return cls._each(names, edit)

    @staticmethod
    def _each(tasks: Iterable[Any], do: Callable[[Any], Any]) -> list:
        """What is done for each of the tasks. Raises `Invalid` with what is wrong in any of them."""
        done, problems = [], []
        for place, task in enumerate(tasks):
            try:
                done.append(do(task))
            except Invalid as error:
                problems += [(f"tasks[{place}].{field}", message) for field, message in error.details]
        if problems:
            raise Invalid(*problems)
        return done

    @classmethod
    def _check_external_id(cls, fields: Row) -> None:
        """Raise `Invalid` for an external id that another task has."""
        external_id = fields.get("external_id")
        if external_id and cls.by_external_id.value(external_id=external_id):
            raise Invalid(("external_id", "is already a task's"))

    @classmethod
    def _misplaced(cls, project_id: str, rows: Row) -> Iterator[tuple[str, str]]:
        """Yield why a task of this project cannot have a new project, milestone or assignee in `rows`."""
        project, milestone, assignee = map(rows.get, ("project_id", "milestone_id", "assignee_id"))
        if project and project["status"] == "archived":
            yield "project_id", "the project is archived and takes no new tasks"
        if milestone and milestone["project_id"] != project_id:
            yield "milestone_id", "belongs to another project"
        if assignee and not Member.sees(assignee, project_id):
            yield "assignee_id", "is a client who does not see the project"

    @staticmethod
    def _check_done(transaction: Transaction, *statuses: str) -> None:
        """Raise `Forbidden` where a key of scope agent would complete a task, or take one out of done."""
        if "done" in statuses and transaction.actor.get("scope") == "agent":
            raise Forbidden(
                "a key of scope agent moves nothing to done, and nothing out of it: "
                "set the status review, and a person completes the task"
            )

    @staticmethod
    def _check_dates(stored: Row, new: Row) -> None:
        """Raise `Invalid` for a start after the due date, and for a rule without a due date."""
        start, due, rule = [(stored | new)[name] for name in ("start_date", "due_date", "repeat")]
        if rule and not due:
            raise Invalid(("repeat", "needs a due_date"))
        if start and due and start > due:
            if "start_date" in new:
                raise Invalid(("start_date", f"must not be after due_date, which is {due}"))
            if "due_date" in new:
                raise Invalid(("due_date", f"must not be before start_date, which is {start}"))

    @staticmethod
    def searchable(task: Row) -> str:
        """The column `search` of a task; the unit separator keeps a match from spanning both texts."""
        return f"{fold(task['title'])}\x1f{fold(task.get('description') or '')}"

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, versions: frozenset[str] | None) -> Changed:
        """Change the fields that were sent; returns the task, and what has changed.

        A field that has the value already is no change. Without a priority a task has the default one. A new
        place, `after` or `before` a task, is a new version and no change. Raises `NotFound`, `Invalid` for
        what does not exist or go together, and `PreconditionFailed` when its version is none of `versions`.
        """
        stored = cls._expected(id, versions)
        placed = {side: fields.pop(side) for side in ("after", "before") if side in fields}
        place = Rank.place(transaction, stored, **placed) if placed else {}
        blocked = Blocker.changes(transaction, stored, fields) if "blocked_by" in fields else {}
        fields = fields | {name: fields[name] or DEFAULTS[name] for name in DEFAULTS.keys() & fields}
        if "labels" in fields:
            labels = cls.label_columns(transaction, fields["labels"])
            fields = fields | {"labels": labels["labels"]}
        project_id: Any = fields.get("project_id", stored["project_id"])
        is_elsewhere = project_id != stored["project_id"]
        if is_elsewhere:
            fields = {"milestone_id": None} | fields
        changes = differences(stored, fields) | blocked
        if not changes and not place:
            return stored, {}
        if "status" in changes:
            cls._check_done(transaction, *changes["status"])
        is_completed = "status" in changes and fields["status"] == "done"
        planned = stored | fields
        if is_completed and planned["repeat"] and transaction.notifies:
            changes["repeat"] = [planned["repeat"], None]
        elif "status" in changes and stored["status"] == "done" and transaction.notifies:
            changes |= cls._take_back_next(transaction, planned)
        if changes.keys() & {"status", "assignee_id"}:  # a claim ends, and what is done waits for nothing
            ended = {"claimed_until"} | ({"question_id"} if is_completed else set())
            changes |= differences(stored, dict.fromkeys(ended - fields.keys()))
        new = {name: changes[name][1] for name in changes.keys() - blocked}
        kept = stored | fields if is_elsewhere else {}
        placing = {name: kept[name] for name in ("milestone_id", "assignee_id") if kept} | new
        check_references(cls, placing, partial(cls._misplaced, project_id))
        cls._check_dates(stored, new | {"repeat": planned["repeat"]})
        cls._check_external_id(new)
        new |= place | {"version": stored["version"] + 1, "updated_at": transaction.at}
        if changes.keys() & {"title", "description"}:
            new["search"] = cls.searchable(stored | new)
        if "labels" in changes:
            new |= labels
        if "description" in changes:
            new["checks"] = checkboxes(fields["description"])
        if "status" in changes:
            new = {"completed_at": transaction.at if fields["status"] == "done" else None} | new
        cls.set_columns(id, **new)
        task = stored | new
        for hidden in HIDDEN:
            task.pop(hidden, None)
        if blocked:
            task["blocked_by"] = Blocker.replace_all(task["number"], blocked["blocked_by"][1])
        if not changes:  # but the rank, of which the history tells nothing
            cls.record(transaction, "updated", task | {"is_hidden": 1})
            return task, {}
        if is_elsewhere:  # for followers who see only the project that it leaves
            cls.record(transaction, "deleted", stored | {"is_hidden": 1})
        action = "moved" if changes.keys() & {"status", "project_id"} else "updated"
        cls.record(transaction, action, task, changes)
        Notice.acted(transaction, id)
        Notice.settle(transaction, task, changes)
        if "description" in changes:
            Notice.mention(transaction, task, *changes["description"])
        if "assignee_id" in changes:
            Notice.notify(transaction, task, "assigned", task["assignee_id"])
        if "status" in changes and task["status"] == "review":
            Notice.notify(transaction, task, "review", *cls.responsible(transaction, task))
        is_sent_back = changes.get("status") in (["review", "todo"], ["review", "in_progress"])
        if is_sent_back and "assignee_id" not in changes:
            Notice.notify(transaction, task, "sent_back", task["assignee_id"])
        if is_completed:
            Blocker.notify_free(transaction, task, Blocker.blocked_by(stored))
            if planned["repeat"] and transaction.notifies:
                cls._add_next(transaction, task, planned["repeat"])
                task = cls.stored(id)  # to place the next one may have changed its rank
        return task, changes

    @classmethod
    def _add_next(cls, transaction: Transaction, task: Row, rule: str) -> None:
        """Make the task that follows this one, unless the rule has ended or the project is archived."""
        dates = next_dates(task | {"repeat": rule}, transaction.at, task["repeat_from"])
        if not dates or Project.stored(task["project_id"])["status"] == "archived":
            return
        fields = {name: task[name] for name in (*PLANNED, "labels")} | dates
        if task["milestone_id"] and Milestone.stored(task["milestone_id"])["closed_at"]:
            fields["milestone_id"] = None
        given = Activity.last_change_of(task["id"], "assignee_id")
        if given.get("status") == ["todo", "in_progress"] and given["assignee_id"][0] is None:
            fields["assignee_id"] = None  # whoever had it has claimed it
        fields["description"] = CHECKBOX.sub(r"\1 \3", task["description"] or "") or None
        place = Rank.place(transaction, {"id": "", "rank": ""}, after=task["number"])
        cls.add(transaction, **fields, **place, created_by=task["created_by"], repeats=task["number"])

    @classmethod
    def _take_back_next(cls, transaction: Transaction, task: Row) -> Row:
        """Delete what followed a task that is reopened, and return its rule as a change.

        A task that somebody has touched stays, and then the reopened one has no rule.
        """
        completed = Activity.last_change_of(task["id"], "repeat")
        if completed.get("status", [""])[-1] != "done":
            return {}
        if number := cls.shown(task["id"])["next_number"]:
            following = cls.shown(cls.id_of(number))
            parts = ("comment_count", "attachments", "blocks")
            if following["version"] > 1 or any(map(following.get, parts)):
                return {}
            cls.remove(transaction, following["id"])
        return {} if task["repeat"] or not task["due_date"] else {"repeat": [None, completed["repeat"][0]]}

    @staticmethod
    def responsible(transaction: Transaction, task: Row) -> list[str]:
        """Whom a task needs when it needs a person: its creator, else its project's owner.

        It must be an active member other than the actor; it may be nobody.
        """
        ids = (task["created_by"], Project.stored(task["project_id"])["owner_id"])
        me = transaction.actor.get("id")
        rows = filter(None, (Member.stored_row.one(id=id) for id in ids if id != me))
        seeing = (row for row in rows if Member.sees(row, task["project_id"]))
        return [row["id"] for row in seeing if row["status"] == Member.ACTIVE][:1]

    @classmethod
    def claim(
        cls, transaction: Transaction, id: str, versions: frozenset[str] | None, minutes: int | None = None
    ) -> Changed:
        """Give a task that is to do and nobody's to the actor, in progress; returns and raises as `edit`.

        With `minutes` the claim ends after that time (`end_claims`). Claiming again with the same key only
        moves that end, which does not count as a change of the task. Raises `Conflict` if another has it.
        """
        task, me = cls.stored(id), transaction.actor["id"]
        until = now(minutes * 60) if minutes else None
        if task["question_id"]:
            raise Conflict(f"#{task['number']} waits for the answer to a question")
        if task["status"] == "todo" and task["assignee_id"] in (None, me):
            claimed = {"status": "in_progress", "assignee_id": me, "claimed_until": until}
            return cls.edit(transaction, id, claimed, versions)
        move = Activity.last_change.one(task_id=id, path="$.status") or {"key_id": None, "via": None}
        is_mine = task["status"] == "in_progress" and task["assignee_id"] == me
        if is_mine and move["key_id"] == transaction.actor["key_id"]:
            if until:
                cls.set_columns(id, claimed_until=until)
                cls.record(transaction, "updated", task | {"is_hidden": 1})
            return task | ({"claimed_until": until} if until else {}), {}
        holder = task["assignee_id"] and cls.shown(id)["assignee"]["full_name"]
        via = f" (via {move['via']})" if is_mine and move["via"] else ""
        state, end = task["status"].replace("_", " "), task["claimed_until"]
        end = f" until {end}" if end else "" if holder else "; it can be claimed once its status is todo"
        raise Conflict(f"#{task['number']} is {state}, and {holder or 'nobody'} has it{via}{end}")

    @statement
    def claims_over(cls: Any):
        """Claims that have ended, and those that end so late that the clock must have been set back."""
        is_over = (cls.claimed_until <= placeholder("now")) | (cls.claimed_until > placeholder("latest"))
        ended = cls.select(cls.id, cls.assignee).where(is_over, cls.claimed_until.is_null(False))
        return ended.limit(100)

    @classmethod
    def ended_claims(cls) -> list[Row]:
        """The ids and assignees of some of the tasks whose claims have ended."""
        return cls.claims_over.all(now=now(), latest=now(MAX_CLAIM * 60 + 1))

    @statement
    def held(cls: Any):
        is_held = (cls.assignee == placeholder("id")) & (cls.status == "in_progress")
        return cls.select(cls.id, cls.assignee).where(is_held)

    @classmethod
    def end_claims(cls, transaction: Transaction, member_id: str, rows: list[Row]) -> Iterator[Changed]:
        """Give back those of these tasks that are the member's: to do, and nobody's; yields each."""
        for row in rows:
            if row["assignee_id"] == member_id:
                free = {"status": "todo", "assignee_id": None}
                task, changes = cls.edit(transaction, row["id"], free, None)
                Notice.notify(transaction, task, "claim_ended", *cls.responsible(transaction, task))
                yield task, changes

    @statement
    def out_of_sight(cls: Any):
        """The tasks of a member in other projects than these."""
        is_elsewhere = cls.project.not_in(each("project_ids"))
        return cls.select(cls.id, cls.claimed_until).where(
            cls.assignee == placeholder("member_id"), is_elsewhere
        )

    @classmethod
    def take_unseen(cls, transaction: Transaction, member: Row) -> Iterator[Changed]:
        """Unassign a client from the tasks in projects that the client does not see; yield each."""
        if (ids := member["project_ids"]) is not None:
            for row in cls.out_of_sight.all(member_id=member["id"], project_ids=ids):
                free = {"assignee_id": None} | ({"status": "todo"} if row["claimed_until"] else {})
                yield cls.edit(transaction, row["id"], free, None)

    @statement
    def due_soon(cls: Any):
        """Some open tasks that are due by `:until`, and since `:since`, where this due date was not told."""
        is_near = (cls.due_date > placeholder("since")) & (cls.due_date <= placeholder("until"))
        is_active = cls.project.not_in(Project.select_archived())
        is_untold = Expression(cls.due_told, OP.IS_NOT, cls.due_date)
        return cls.select(cls.id).where(cls.is_open, is_near, is_untold, is_active).limit(100)

    @classmethod
    def coming_due(cls, hours: float) -> list[Row]:
        """The ids of some tasks that are due within so many hours, of which nobody was told yet."""
        return cls.due_soon.all(since=now(-cls.LATE_DAYS * 86400), until=now(hours * 3600)) if hours else []

    @classmethod
    def notify_due(cls, transaction: Transaction, hours: float) -> Iterator[Row]:
        """Tell whom these tasks concern, once for each due date; yields each task."""
        for row in cls.coming_due(hours):
            task = cls.stored(row["id"])
            cls.set_columns(task["id"], due_told=task["due_date"])
            told = [task["assignee_id"]] if task["assignee_id"] else cls.responsible(transaction, task)
            Notice.notify(transaction, task, "due", *told)
            yield task

    @classmethod
    def put(
        cls, transaction: Transaction, external_id: str, versions: frozenset[str] | None = None, **fields: Any
    ) -> tuple[Row, Row | None]:
        """Make the task with this external id, or change it to these fields.

        Returns the task, and what has changed, which is None of a new task. Raises as `add` and `edit` do.
        """
        if not (id := cls.by_external_id.value(external_id=external_id)):
            if versions is not None:
                raise PreconditionFailed("no task has this external_id")
            return cls.add(transaction, external_id=external_id, **fields), None
        if fields.pop("project_id") != cls.stored(id)["project_id"]:
            fields.pop("milestone_id", None)  # somebody has moved it: it stays there, and a sync goes on
        return cls.edit(transaction, id, fields, versions)

    @classmethod
    def remove(cls, transaction: Transaction, id: str, versions: frozenset[str] | None = None) -> Row:
        """Delete the task with its comments and attachments; returns it as it was. Raises as `edit` does."""
        task = cls._expected(id, versions)
        blocked = Blocker.blocked_by(task)
        cls.delete_row.run(id=task["id"])
        cls._removed(transaction, task, blocked)
        transaction.also.append(("task.deleted", task))
        return task

    @classmethod
    def remove_all(cls, transaction: Transaction, project_id: str) -> Iterator[Row]:
        """Delete the tasks of a project; yields each as it was."""
        is_first = (cls.project == placeholder("id")) & (cls.id <= placeholder("last"))
        deletion = Statement(cls.delete().where(is_first))
        while tasks := cls.some_with(cls.project, project_id):
            blocked = [Blocker.blocked_by(task) for task in tasks]
            deletion.run(id=project_id, last=tasks[-1]["id"])
            for task, numbers in zip(tasks, blocked, strict=True):
                cls._removed(transaction, task, numbers)
                yield task

    @classmethod
    def _removed(cls, transaction: Transaction, task: Row, blocked: list[int]) -> None:
        """Record a deletion, with what the task blocks or, if it is done, has blocked."""
        cls.record(transaction, "deleted", task, {"blocks": [blocked, []]} if blocked else {})
        if task["status"] != "done":
            Blocker.notify_free(transaction, task, blocked)

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
        """Open tasks of active projects: overdue ones by date, then urgent ones, without a date last."""
        is_active = cls.project.not_in(Project.select_archived())
        is_rest = cls.is_urgent & is_active & (cls.is_undated | (cls.due_date >= placeholder("now")))
        urgent = cls._top(is_rest, "'false'", cls.is_undated, cls.due_date, cls.id)
        places = cls._top(cls.is_overdue & is_active, "'true'", cls.due_date, cls.id) + urgent
        assignee = Member.alias("assignee")
        selected = [
            *cls.shown_columns(),
            Project.name.alias("project_name"),
            assignee.full_name.alias("assignee_name"),
            fn.JSON(SQL('"chosen"."overdue"')).alias("overdue"),
        ]
        # Left joins, which SQLite does not reorder.
        return (
            cls.in_order(places.limit(placeholder("most")), selected)
            .join(Project, JOIN.LEFT_OUTER, on=(cls.project == Project.id))
            .join(assignee, JOIN.LEFT_OUTER, on=(cls.assignee == assignee.id))
        )

    @classmethod
    def in_order(cls, places: Any, selected: list) -> Query:
        """SELECT of the tasks that a subquery selects by their `rowid`, in its order."""
        chosen = places.alias("chosen")
        return Select([chosen], selected).join(cls, JOIN.CROSS, on=(rowid(cls) == chosen.c.rowid))


# The context's urgent tasks, and each project's overdue ones, among millions that are done.
# They contain status and project too, or SQLite would choose `task_due`, which includes done tasks. The first
# contains `due_told` too, or the sweeper would read every task that is due within a week, every second.
_overdue = [Task.due_date, Task.id, Task.status, Task.project, Task.due_told]
Task.add_index(*_overdue, where=Task.is_open_with_date, name="task_overdue")
_overdue = [Task.project, Task.due_date, Task.status]
Task.add_index(*_overdue, where=Task.is_open_with_date, name="task_project_overdue")
_urgent = [Task.is_undated, Task.due_date, Task.id, Task.project]
Task.add_index(*_urgent, where=Task.is_urgent, name="task_urgent")
_has_external_id = Task.external_id.is_null(False)
Task.add_index(Task.external_id, unique=True, where=_has_external_id, name="task_external_id")
Task.add_index(Task.claimed_until, where=Task.claimed_until.is_null(False), name="task_claimed")
Task.add_index(Task.rank, name="task_rank")
Task.add_index(Task.repeats, where=Task.repeats.is_null(False), name="task_repeats")
_due = [Task.assignee, Task.due_date, Task.id, Task.status, Task.project]
Task.add_index(*_due, where=Task.is_open_with_date, name="task_assignee_due")


def remove_member(transaction: Transaction, id: str) -> Iterator[Changed]:
    """Remove a member (`Member.remove`); yields the member's tasks, which are nobody's then."""
    Member.remove(transaction, id)
    yield from Task.end_claims(transaction, id, Task.held.all(id=id))
    yield from Task.clear(transaction, Task.assignee, id)


class Rank:
    """The places of all tasks in one order by hand, of which each list shows a part.

    A rank is a text of digits, of which the first ten are a whole number and any others its decimal places,
    so that there is a rank between any two. Those of new tasks are whole, and rise with their numbers.
    """

    FIRST = 5_000_000_000  # with as much room before it as after it
    DIGITS = 10
    MAX = 40  # digits; before there are more, `spread` takes them away

    @classmethod
    def whole(cls, value: int) -> str:
        return f"{value:0{cls.DIGITS}d}"

    @classmethod
    def between(cls, low: str, high: str) -> str:
        """A short one between two others."""
        digits, least, most = cls.DIGITS, 0, 0
        while most - least < 2:
            least, most = (int(rank[:digits].ljust(digits, "0")) for rank in (low, high))
            digits += 1
        return f"{(least + most) // 2:0{digits - 1}d}".rstrip("0").ljust(cls.DIGITS, "0")

    @classmethod
    def place(cls, transaction: Transaction, task: Row, **placed: int | str | None) -> Row:
        """The `rank` with which a task stands directly after or before another one, if that is a new one.

        After None it is the first of all, before None the last. Raises `Invalid`.
        """
        ((side, reference),) = placed.items()
        id, beside = task["id"], None
        if reference is not None:
            other = Task.stored(Task.referred([reference], side)[0]["id"])
            if other["id"] == id:
                return {}
            beside = other["rank"]
        low = beside if side == "after" else Task.rank_before.value(rank=beside or "~", id=id)
        high = beside if side == "before" else Task.rank_after.value(rank=beside or "", id=id)
        if (low or "") < task["rank"] < (high or "~"):  # beside a task of the same rank there is no place
            return {}
        if not low:
            return {"rank": cls.whole(int(str(high)[: cls.DIGITS]) - 1)}
        rank = cls.between(low, high or cls.whole(int(low[: cls.DIGITS]) + 1))
        if len(rank) > cls.MAX:
            cls.spread(transaction, task, low[: cls.DIGITS])
            return cls.place(transaction, task | {"rank": ""}, **placed)  # which others may have now
        return {"rank": rank}

    @classmethod
    def spread(cls, transaction: Transaction, task: Row, whole: str) -> None:
        """Give the others between this whole rank and the next one short ranks, in their order."""
        rows = Task.ranked_between.all(low=whole, high=cls.whole(int(whole) + 1), id=task["id"])
        digits = len(str(len(rows))) + 2
        for place, row in enumerate(rows, 1):
            rank = whole + f"{place * 10**digits // (len(rows) + 1):0{digits}d}".rstrip("0")
            Task.set_columns(row["id"], rank=rank, version=row["version"] + 1, updated_at=transaction.at)
            Task.record(transaction, "updated", row | {"is_hidden": 1})


class Blocker(Base):
    """That a task is blocked by another one, as long as that is open."""

    task = ForeignKeyField(Task, column_name="task_number", on_delete="CASCADE", index=False)
    blocker = ForeignKeyField(Task, column_name="blocker_number", on_delete="CASCADE")

    SEEN = "(SELECT COUNT(*) FROM task WHERE number IN (task_number, blocker_number)) = 2"

    class Meta:
        primary_key = CompositeKey("task", "blocker")
        without_rowid = True

    @classmethod
    def of(cls, number: Any, *selected: Any, is_open: bool = True, reverse: bool = False) -> Query:
        """SELECT of the open, or the done, tasks that block the task with this number, as a JSON array.

        In `reverse` it is of those that this one blocks.
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
        """The column of these tasks, which are looked up only for a task that has some: few have."""
        has_some = fn.EXISTS(cls.select(SQL("1")).where((cls.blocker if reverse else cls.task) == number))
        if reverse:  # what is done blocks nothing
            has_some &= Task.is_open
        return fn.JSON(Case(None, [(has_some, cls.of(number, is_open=is_open, reverse=reverse))], "[]"))

    @statement
    def of_task(cls: Any):
        return cls.of(placeholder("number"))

    @statement
    def stored_numbers(cls: Any):
        return cls.select(cls.blocker.alias("number")).where(cls.task == placeholder("number"))

    @statement
    def delete_rows(cls: Any):
        return cls.delete().where(cls.task == placeholder("number"))

    @statement
    def blocked(cls: Any):
        return cls.select(cls.task.alias("number")).where(cls.blocker == placeholder("number"))

    @classmethod
    def blocked_by(cls, task: Row) -> list[int]:
        """The numbers of the tasks that this one blocks, as long as it is open."""
        return [row["number"] for row in cls.blocked.all(number=task["number"])]

    @statement
    def free(cls: Any):
        """Those of the tasks with these numbers that are open, and that no open one blocks."""
        given, is_free = Task.number.in_(each("numbers")), ~fn.EXISTS(cls.of(Task.number, SQL("1")))
        return Task.select(Task.id, Task.assignee).where(given, Task.is_open, is_free)

    @classmethod
    def notify_free(cls, transaction: Transaction, task: Row, numbers: list[int]) -> None:
        """Tell the assignees of those that this task has blocked, and that nothing blocks any more."""
        for free in cls.free.all(numbers=numbers) if numbers else ():
            text = f"#{task['number']} {task['title']}"
            if free["assignee_id"] and Member.sees(Member.stored(free["assignee_id"]), task["project_id"]):
                Notice.notify(transaction, free, "unblocked", free["assignee_id"], excerpt=text)

    @statement
    def affected(cls: Any):
        """The tasks that those with the numbers `:blocking` block, and those with the numbers `:released`."""
        blocked = cls.select(cls.task).where(cls.blocker.in_(each("blocking")))
        return Task.select(Task.id).where(Task.number.in_(blocked) | Task.number.in_(each("released")))

    @statement
    def above(cls: Any):
        """The tasks with these numbers, those that block them, and so on."""
        above = each("numbers").cte("above", recursive=True, columns=("number",))
        above = above.union(cls.select(cls.blocker).join(above, on=(cls.task == above.c.number)))
        return Select([above], [above.c.number.alias("number")]).with_cte(above)

    @classmethod
    def numbers(cls, references: list[int | str]) -> list[int]:
        """The numbers of tasks, which are given by number or id. Raises `Invalid`."""
        return sorted({row["number"] for row in Task.referred(references, "blocked_by.{}")})

    @staticmethod
    def shortened(task: Row) -> Row:
        """The task as events show it, with the beginnings of the titles of what blocks it."""
        shortened = [row | {"title": row["title"][:MAX_BLOCKING]} for row in task["blocked_by"]]
        return task | {"blocked_by": shortened}

    @classmethod
    def changes(cls, transaction: Transaction, task: Row, fields: Row) -> Row:
        """Take `blocked_by` out of the fields, and return what changes: the open blockers before, and these.

        It is empty if they are those that are shown, or all that are stored. Raises `Invalid`, also for a
        task that is itself blocked by this one.
        """
        old = [blocker["number"] for blocker in task["blocked_by"]]
        new = cls.numbers(fields.pop("blocked_by") or [])
        stored = sorted(row["number"] for row in cls.stored_numbers.all(number=task["number"]))

        def is_awaited(*numbers: int) -> bool:
            if numbers not in transaction.above:
                transaction.above[numbers] = {row["number"] for row in cls.above.all(numbers=list(numbers))}
            return task["number"] in transaction.above[numbers]

        if set(new).difference(stored) and is_awaited(*new):
            waiting = next(filter(is_awaited, new))
            raise Invalid(("blocked_by", f"#{waiting} waits for #{task['number']} itself"))
        return {"blocked_by": [old, new]} if new not in (old, stored) else {}

    @classmethod
    def replace_all(cls, number: int, blockers: list[int]) -> list[Row]:
        """Let these tasks block the task; returns the open ones as `blocked_by` shows them."""
        cls.delete_rows.run(number=number)
        cls.insert_row.run_many({"task_number": number, "blocker_number": blocker} for blocker in blockers)
        return orjson.loads(cls.of_task.value(number=number))


def pagination(total: int, limit: int, offset: int, more: bool, end: int | None = None) -> Row:
    """A page's pagination; `more` tells whether rows follow it, from `end` on where that is not the limit."""
    return {
        "total": min(total, COUNT_LIMIT),
        "total_exact": total <= COUNT_LIMIT,
        "limit": limit,
        "offset": offset,
        "has_more": more,
        "next_offset": (end or offset + limit) if more else None,
    }


def newest_of(rows: list[Row], limit: int, *, more: bool = False) -> tuple[list[Row], Row]:
    """The first of the rows, which begin with the newest, and the pagination that leads to older ones."""
    shown, more = rows[:limit], more or len(rows) > limit
    return shown, {"limit": limit, "has_more": more, "next_before": shown[-1]["id"] if more else None}


class PartOfTask(Entity):
    """A table of what belongs to a task, whose id the API takes too."""

    task = ForeignKeyField(Task, field="id", on_delete="CASCADE", index=False)

    SEEN = "task_id IN seen_task"

    @classmethod
    def of_task(cls, task_id: str, id: str) -> Row:
        """The row as the API shows it. Raises `NotFound`, also for another task's."""
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

    NOUN = "comment"

    @classmethod
    def select_shown(cls) -> Query:
        return with_member(cls.author, "search", key=cls.key)

    @statement
    def latest(cls: Any):
        is_before = (cls.task == placeholder("task_id")) & (cls.id < placeholder("before"))
        return cls.select_shown().where(is_before).order_by(cls.id.desc()).limit(placeholder("most"))

    @classmethod
    def page(cls, task_id: str, *, limit: int, before: str = "~") -> Row:
        """The task's latest comments before the one with this id, oldest first. Raises `NotFound`."""
        Task.stored(task_id)
        rows, left = cls.latest.some(task_id=task_id, before=before, most=limit + 1)
        latest, pagination = newest_of(rows, limit, more=left < 0)
        return {"comments": latest[::-1], "pagination": pagination}

    @statement
    def made_with(cls: Any):
        return cls.select(cls.key).where(cls.id == placeholder("id"))

    @statement
    def written(cls: Any):
        columns = cls.select(cls.id, cls.content, cls.created_at)
        return columns.where(cls.task == placeholder("task_id")).order_by(cls.id)

    @statement
    def author_rows(cls: Any):
        return cls.select(cls.author).where(cls.task == placeholder("task_id")).distinct()

    @classmethod
    def store(cls, transaction: Transaction, task: Row, content: str, **made: str | None) -> Row:
        """Store a comment; what is not `made` elsewhere is the actor's and of this moment."""
        row = {"id": transaction.new_id(), "author_id": transaction.actor["id"], "created_at": transaction.at}
        row |= {"key_id": transaction.actor.get("key_id"), **made, "task_id": task["id"], "content": content}
        row["search"] = fold(content)
        cls.insert_row.run(**row, mentions=Member.mentioned(content, task["project_id"]))
        comment = cls.shown(row["id"])
        super().record(transaction, "created", comment | cls._titled(task))
        return comment

    @classmethod
    def add(
        cls, transaction: Transaction, task_id: str, *, content: str, question: bool = False
    ) -> tuple[Row, Row, Row]:
        """Comment on a task, which waits for the answer if that is a question: somebody else's next comment.

        Returns the comment, the task, and what has changed of it. Raises `NotFound`, and for a question
        `Forbidden`, `Conflict` of a task that is done, and `Invalid` where nobody would be told.
        """
        task, me = Task.stored(task_id), transaction.actor["id"]
        comment = cls.store(transaction, task, content)
        named = comment["mentions"]
        asked: list[str] = []
        if question:
            permit(transaction.actor, "member")  # a client holds up no task
            if task["status"] == "done":
                raise Conflict(f"#{task['number']} is done and waits for no answer; leave out question")
            asked = [member for member in named if member != me] or Task.responsible(transaction, task)
            if not asked:
                raise Invalid(("question", "nobody would be told; name a member, as @Full Name"))
        earlier = cls.shown(task["question_id"]) if task["question_id"] else comment
        is_answer = any(earlier[name] != comment[name] for name in ("author_id", "via"))
        answered = {earlier["author_id"]} if is_answer else set()
        authors = {row["author_id"] for row in cls.author_rows.all(task_id=task_id)}
        told = {"answered": answered, "question": {*asked}, "mentioned": {*named}.difference(asked, answered)}
        told["commented"] = authors.union(map(task.get, ("assignee_id", "created_by"))).difference(
            named, asked, answered
        )
        changes: Row = {}
        if question or is_answer:
            asking = {"question_id": comment["id"] if question else None}
            task, changes = Task.edit(transaction, task_id, asking, None)
        Notice.acted(transaction, task_id)
        for reason, members in told.items():
            Notice.notify(transaction, task, reason, *members, comment_id=comment["id"])
        return comment, task, changes

    @classmethod
    def edit(cls, transaction: Transaction, task_id: str, id: str, fields: Row) -> Row:
        """Change a comment of the actor's. Raises `NotFound` and `Forbidden`."""
        comment = cls.of_task(task_id, id)
        if comment["author_id"] != transaction.actor["id"]:
            raise Forbidden("only its author may change a comment")
        if (
            transaction.actor.get("scope") == "agent"
            and cls.made_with.value(id=id) != transaction.actor["key_id"]
        ):
            raise Forbidden("a key of scope agent changes only comments that were made with it")
        if differences(comment, fields):
            comment = cls.rewrite(transaction, comment, **fields)
        return comment

    @classmethod
    def rewrite(cls, transaction: Transaction, comment: Row, *, content: str, **made: str | None) -> Row:
        """Change a comment, and what is `made` elsewhere; notify those whom it newly mentions."""
        task = Task.stored(comment["task_id"])
        new: Row = {"edited_at": transaction.at, **made, "content": content}
        new["mentions"] = Member.mentioned(content, task["project_id"])
        cls.set_columns(comment["id"], **new, search=fold(content))
        Notice.mention(transaction, task, comment["content"], content, comment["id"])
        cls.record(transaction, "updated", comment | new, {"content": [None, None]})
        return comment | new

    @classmethod
    def remove(cls, transaction: Transaction, task_id: str, id: str) -> Changed:
        """Delete a comment; returns the task, and what has changed. Raises `NotFound` and `Forbidden`."""
        comment, task = cls.of_task(task_id, id), Task.stored(task_id)
        if transaction.actor["role"] not in ADMINS and transaction.actor["id"] != comment["author_id"]:
            raise Forbidden("only its author, an owner or an admin may delete a comment")
        is_open = task["question_id"] == id
        changed = Task.edit(transaction, task_id, {"question_id": None}, None) if is_open else (task, {})
        cls.delete_row.run(id=id)
        cls.record(transaction, "deleted", comment)
        return changed

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """Note it under the task's title; the activity does not keep what the author took back."""
        task = Task.stored(row["task_id"])
        super().record(transaction, action, row | cls._titled(task), changes)

    @staticmethod
    def _titled(task: Row) -> Row:
        """What the activity of a comment holds of its task."""
        return {name: task[name] for name in ("title", "number", "project_id")}

    @statement
    def of_tasks(cls: Any):
        """The ids of the comments on these tasks."""
        return cls.select(cls.id).where(cls.task.in_(each("ids")))


Comment.add_index(Comment.task, Comment.id, name="comment_task")


class Attachment(PartOfTask):
    """A file's description; its bytes are in `AttachmentContent`, so that a list never reads them."""

    filename = TextField()
    content_type = TextField()
    size = IntegerField()
    created_by = ForeignKeyField(Member, column_name="created_by", object_id_name="creator_id", index=False)
    created_at = TextField()

    NOUN = "attachment"

    @statement
    def all_of_task(cls: Any):
        return cls.select().where(cls.task == placeholder("task_id")).order_by(cls.id)

    @statement
    def incomplete(cls: Any):
        """How many have no content, or one of another size."""
        size: Any = fn.COALESCE(fn.LENGTH(AttachmentContent.data), -1)
        return cls.select(fn.COUNT(cls.id)).join(AttachmentContent, JOIN.LEFT_OUTER).where(size != cls.size)

    @classmethod
    def of(cls, task_id: str) -> list[Row]:
        """The descriptions of the task's attachments, oldest first. Raises `NotFound`."""
        Task.stored(task_id)
        return cls.all_of_task.all(task_id=task_id)

    @classmethod
    def content(cls, task_id: str, id: str) -> tuple[Row, bytes]:
        """The description and the bytes. Raises `NotFound`."""
        row, data = cls.of_task(task_id, id), AttachmentContent.of_attachment.value(id=id)
        return row, not_found("attachment") if data is None else data  # deleted between the two reads

    @classmethod
    def add(cls, transaction: Transaction, task_id: str, *, data: bytes, **described: str) -> Row:
        """Attach a file to a task; `described` are its `filename` and `content_type`. Raises `NotFound`.

        An import also describes when, by whom and with which id it was attached elsewhere.
        """
        task = Task.stored(task_id)
        row: Row = {"id": transaction.new_id(), "task_id": task_id, "size": len(data)}
        row |= {"created_by": transaction.actor["id"], "created_at": transaction.at} | described
        cls.insert_row.run(**row)
        AttachmentContent.insert_row.run(attachment_id=row["id"], data=data)
        Task.record(transaction, "updated", task, {"attachment": [None, row["filename"]]})
        Notice.acted(transaction, task_id)
        return row

    @classmethod
    def remove(cls, transaction: Transaction, task_id: str, id: str) -> None:
        """Delete it. Raises `NotFound`."""
        row = cls.of_task(task_id, id)
        cls.delete_row.run(id=id)
        Task.record(transaction, "updated", Task.stored(task_id), {"attachment": [row["filename"], None]})


Attachment.add_index(Attachment.task, Attachment.id, name="attachment_task")


class AttachmentContent(Base):
    attachment = ForeignKeyField(Attachment, primary_key=True, on_delete="CASCADE")
    data = BlobField()

    SEEN = "EXISTS (SELECT 1 FROM attachment WHERE attachment.id = attachment_id)"

    @statement
    def of_attachment(cls: Any):
        return cls.select(cls.data).where(cls.attachment == placeholder("id"))


class Notice(Identified):
    """What a member is told of a task; of what is unread, one for each task and reason, the newest."""

    member = ForeignKeyField(Member, index=False)
    task = ForeignKeyField(Task, field="id", on_delete="CASCADE", index=False)
    actor = ForeignKeyField(Member, null=True, index=False)
    comment = ForeignKeyField(Comment, null=True, on_delete="CASCADE", index=False)  # quoted as it is now
    reason = ChoiceField(REASONS)
    excerpt = TextField()
    created_at = TextField()
    read_at = TextField(null=True)
    snoozed_until = TextField(null=True)

    # Triggers keep out, and delete, the notices of tasks that their members do not see (migration 0032).
    SEEN = "member_id = viewer() AND task_id IN seen_task"
    is_unread: ClassVar[Any] = (member == placeholder("member_id")) & read_at.is_null()
    is_awake: ClassVar[Any] = snoozed_until.is_null() | (snoozed_until <= placeholder("now"))
    is_new: ClassVar[Any] = read_at.is_null() & is_awake
    DAYS = 90.0  # for which it is kept
    MAX_EXCERPT = 200  # characters

    @statement
    def replace_unread(cls: Any):
        """Inserts a notice in place of the unread one of the same task and reason."""
        return cls.insert_row.query.on_conflict_replace()

    @classmethod
    def notify(
        cls, transaction: Transaction, task: Row, reason: str, *members: str | None, **quoted: str | None
    ) -> None:
        """Tell these members, except the actor; `quoted` is a `comment_id` or an `excerpt`."""
        actor = transaction.actor.get("id")
        if transaction.notifies and (told := {*members} - {None, actor}):
            row = {"task_id": task["id"], "actor_id": actor, "reason": reason, "read_at": None}
            row |= {"created_at": transaction.at, "comment_id": None, "excerpt": "", **quoted}
            for member in told:
                cls.replace_unread.run(**row, snoozed_until=None, id=transaction.new_id(), member_id=member)

    @statement
    def delete_mentions(cls: Any):
        is_of_text = (cls.task == placeholder("task_id")) & (cls.reason == "mentioned")
        is_of_text &= Expression(cls.comment, OP.IS, placeholder("comment_id"))
        return cls.delete().where(is_of_text, cls.member.in_(each("members")))

    @classmethod
    def mention(
        cls, transaction: Transaction, task: Row, old: str | None, new: str | None, comment: str | None = None
    ) -> None:
        """Tell those whom an edited text newly names; what told the others that it named them is gone."""
        before, after = ({*Member.mentioned(text or "", task["project_id"])} for text in (old, new))
        reason = "question" if comment and comment == task["question_id"] else "mentioned"
        cls.notify(transaction, task, reason, *after - before, comment_id=comment)
        if gone := [*before - after]:
            cls.delete_mentions.run(task_id=task["id"], comment_id=comment, members=gone)

    @classmethod
    def select_newest(cls, *more: Any) -> Query:
        """Notices of a member with actor and task, newest first, at most `:most`."""
        described = Case(None, [(cls.reason == "mentioned", Task.description)])
        said = fn.COALESCE(Comment.content, fn.NULLIF(cls.excerpt, ""), described, "")
        more = (*more, fn.SUBSTR(said, 1, cls.MAX_EXCERPT).alias("excerpt"))
        shown = [*columns(cls, "member_id", "task_id", "actor_id", "comment_id", "excerpt"), *more]
        shown += [*profile(Member, "actor"), *joined(Task, "task", "id", "number", "title", "status")]
        rows = cls.select(*shown).join(Task, on=(cls.task == Task.id))
        rows = rows.switch(cls).join(Member, JOIN.LEFT_OUTER, on=(cls.actor == Member.id))
        rows = rows.switch(cls).join(Comment, JOIN.LEFT_OUTER, on=(cls.comment == Comment.id))
        rows = rows.where(cls.member == placeholder("member_id"))
        return rows.order_by(cls.id.desc()).limit(placeholder("most"))

    @statement
    def latest(cls: Any):
        return cls.select_newest().where(cls.id < placeholder("before"))

    @statement
    def news(cls: Any):
        """What is unread, after a notice, and after the member has seen the page."""
        is_new = (cls.id > placeholder("after")) & (cls.created_at > placeholder("seen_at"))
        return cls.select_newest(Task.due_date).where(cls.is_new, is_new)

    @statement
    def to_notify(cls: Any):
        """A member to send a digest: of notices, made by `:until`, neither read nor seen on the page."""
        seen = ApiKey.select(fn.COALESCE(fn.MAX(ApiKey.last_used_at), ""))
        seen = seen.where(ApiKey.member == Member.id, ApiKey.is_started)
        is_new = cls.is_new & (cls.id > Member.mailed_until) & (cls.created_at > seen)
        is_new &= (cls.member == Member.id) & (cls.created_at <= placeholder("until"))
        may_be_told = (Member.status == Member.ACTIVE) & (Member.mail != "never")
        may_be_told &= Member.mail_at <= placeholder("now")
        news = fn.EXISTS(cls.select(SQL("1")).where(is_new))
        rows = Member.select().select_extend(seen.alias("seen_at"))
        return rows.where(may_be_told, news).limit(1)

    @statement
    def unread(cls: Any):
        some = cls.select(SQL("1")).where(cls.is_unread, cls.is_awake).limit(MAX_UNREAD)
        return cls.select(fn.COUNT(SQL("*"))).from_(some)

    @classmethod
    def page(cls, member_id: str, *, limit: int, before: str = "~") -> Row:
        """The member's latest notices before this one, newest first, and how many are unread, up to 100."""
        rows = cls.latest.all(member_id=member_id, before=before, most=limit + 1)
        shown, pagination = newest_of(rows, limit)
        unread = cls.unread.value(member_id=member_id, now=now())
        return {"notices": shown, "unread": unread, "pagination": pagination}

    @classmethod
    def snooze(cls, transaction: Transaction, task_id: str, until: str | None) -> Row:
        """Put off the actor's notices of a task until this time; None ends that. Raises `Invalid`.

        If there are none, a read one of reason `due` is stored, so that a due task can be put off too.
        """
        check_references(cls, {"task_id": task_id})
        mine, snoozed = {"task_id": task_id, "member_id": transaction.actor["id"]}, {"snoozed_until": until}
        if not cls.update_where(mine, **snoozed) and until:
            made = {"id": transaction.new_id(), "created_at": transaction.at, "read_at": transaction.at}
            cls.insert_row.run(**mine, **made, **snoozed, reason="due", excerpt="")
        return {"task_id": task_id, **snoozed}

    @statement
    def mark_read(cls: Any):
        read = cls.update({cls.read_at: placeholder("now")})
        return read.where(cls.is_unread, cls.is_awake, cls.id <= placeholder("until"))

    @statement
    def mark_read_of_task(cls: Any):
        read = cls.update({cls.read_at: placeholder("now")})
        return read.where(cls.is_unread, cls.task == placeholder("task_id"))

    @statement
    def mark_read_by_act(cls: Any):
        """Marks the member's notices of a task as read, except for an open question of somebody else."""
        waits = Task.select(SQL("1")).join(Comment, on=(Task.question_id == Comment.id))
        waits = waits.where(Task.id == cls.task, Comment.author != placeholder("member_id"))
        return cls.mark_read_of_task.query.where((cls.reason != "question") | ~fn.EXISTS(waits))

    @statement
    def mark_untrue(cls: Any):
        of_project = Task.select(Task.id).where(Task.project == placeholder("project_id"))
        is_over = cls.task.in_(each("tasks") + of_project) & cls.reason.in_(each("over"))
        return cls.update({cls.read_at: placeholder("now")}).where(is_over, cls.read_at.is_null())

    @classmethod
    def settle(cls, transaction: Transaction, task: Row, changes: Row) -> None:
        """Mark everybody's notices as read that a change of the task has made untrue."""
        over = {reason for name, reasons in OVER.items() if name in changes for reason in reasons}
        was, is_now = changes.get("status", (None, None))
        run = partial(cls.mark_untrue.run, now=transaction.at, project_id=None)
        if over:
            run(tasks=[task["id"]], over=[*(OF_STATE if is_now == "done" else over)])
        if was == "done":
            blocked = Blocker.affected.all(blocking=[task["number"]], released=[])
            run(tasks=[row["id"] for row in blocked], over=["unblocked"])

    @classmethod
    def acted(cls, transaction: Transaction, task_id: str) -> None:
        """Mark the actor's notices of a task as read, since the actor has just changed or answered it.

        Not where the actor has no key: that is the sweeper, which ends claims in a member's name.
        """
        if "key_id" in transaction.actor:
            cls.mark_read_by_act.run(member_id=transaction.actor["id"], task_id=task_id, now=transaction.at)

    @statement
    def delete_old(cls: Any):
        return deletion_of_some(cls, cls.id < placeholder("before"))

    @classmethod
    def prune(cls, most: int = 500) -> int:
        """Delete some notices that are older than `DAYS`; returns how many."""
        return cls.delete_old.run(before=first_id(now(-cls.DAYS * 86400)), most=most)


Notice.add_index(Notice.member, Notice.id, name="notice_member")
Notice.add_index(Notice.task, name="notice_task")
Notice.add_index(Notice.comment, where=Notice.comment.is_null(False), name="notice_comment")
_waits = (Notice.reason == "question") | (Notice.reason == "review") | (Notice.reason == "mentioned")
Notice.add_index(Notice.member, Notice.reason, Notice.task, where=_waits, name="notice_reason")
_of_unread = [Notice.member, Notice.task, Notice.reason]
Notice.add_index(*_of_unread, unique=True, where=Notice.read_at.is_null(), name="notice_unread")
