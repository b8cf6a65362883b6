"""Notifications of members, and what waits for a member today."""

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from marshmallow import ValidationError, validates_schema
from peewee import JOIN, OP, SQL, Case, Expression, ForeignKeyField, Query, TextField, fn

import models
import schemas
from app import api
from database import (
    ChoiceField,
    Identified,
    Row,
    Statement,
    caseless,
    columns,
    deletion_of_some,
    joined,
    json_object,
    placeholder,
    rowid,
    statement,
)
from lists import FILTERS
from members import CALENDAR, Activity, ApiKey, Member, Transaction, profile
from models import MAX_LISTED, Comment, Meeting, Project, Task, newest_of, values_of, write
from sweeper import in_steps
from times import first_id, local, now
from webhooks import deliver, emit
from wire import awaited, operation, request


def register(app: Any) -> None:
    hours = app.config["WORKSPACE"]["due_notice_hours"]
    app.errands.append(("due dates", partial(Notice.coming_due, hours), partial(notify_due, hours)))
    app.chores.append(lambda: in_steps(Notice.delete_old.run, before=first_id(now(), -Notice.DAYS * 86400)))


def notify_due(hours: float) -> None:
    with write() as transaction:
        for task in Notice.notify_due(transaction, hours):
            emit(transaction, "task.due", {"task": task})
    deliver(transaction)


# The reasons of notices that describe the state of a task: completing the task settles them.
OF_STATE = ("assigned", "question", "review", "unblocked", "claim_ended", "due", "sent_back", "stuck")
# The reasons that a change of a field settles.
OVER = {"assignee_id": ["assigned", "unblocked", "claim_ended", "due", "sent_back"], "due_date": ["due"]}
OVER |= {
    "question_id": ["question"],
    "status": ["review", "sent_back"],
    "blocked_by": ["unblocked"],
    "tries": ["stuck"],
}
REASONS: tuple[str, ...] = ("assigned", "mentioned", "commented", "question", "answered", "review")
REASONS += ("unblocked", "claim_ended", "due", "sent_back", "stuck")
FOR_PEOPLE = ("question", "review", "stuck")
MAX_UNREAD = 100  # notices that are counted


MAX_MENTIONS = 50  # signs @ of a text that are looked at
# The parts of a Markdown text that mention nobody. Each is bounded or possessive, so no text takes long.
UNSAID = re.compile(
    r"(?m)\\[!-/:-@\[-`{-~]"  # an escaped sign; quotes and fences
    r"|^[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(?:>.*|(```++|~~~++)[^`\n]*$(?:\n.*)*?(?:\n[ \t]*\1|\Z))"
    r"|(?<![^\n]\n)^(?:(?: {4}|\t).*\n?)+|(?<!`)(`+)(?!`)[^\n]{1,500}?(?<!`)\2(?!`)"  # code
    r"|<!--(?s:.*?)(?:-->|\Z)|(?:\[[^\[\]\n]*)?\]\([^()\n]*\)|(?:\w{1,20}://|www\.)[^\s<>]*"  # comment, links
)


class Notice(Identified):
    """A notification of a member about a task. Of unread ones, each task and reason has only the newest."""

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
    SEEN = "member_id = viewer() AND EXISTS (SELECT 1 FROM task WHERE task.id = task_id)"
    is_unread: ClassVar[Any] = (member == placeholder("member_id")) & read_at.is_null()
    is_awake: ClassVar[Any] = snoozed_until.is_null() | (snoozed_until <= placeholder("now"))
    is_new: ClassVar[Any] = read_at.is_null() & is_awake
    LATE_DAYS = 7.0  # nobody is notified of a due date that is further in the past
    DAYS = 90.0  # for which a notice is kept
    MAX_EXCERPT = 200  # characters
    latest = statement(lambda cls: cls.select_newest().where(cls.id < placeholder("before")))
    # Acting on a task marks its notices as read, except questions, which `settle` marks.
    mark_read_by_act = statement(lambda cls: cls.mark_read_of_task.query.where(cls.reason != "question"))
    delete_old = statement(lambda cls: deletion_of_some(cls, cls.id < placeholder("before")))

    @classmethod
    def notify(
        cls, transaction: Transaction, task: Row, reason: str, *members: str | None, **quoted: str | None
    ) -> None:
        """Notify these members, except for None and the actor; `quoted` is a `comment_id` or an `excerpt`.

        An agent that acts in a person's name notifies this person too, of what waits for a person.
        """
        actor = transaction.actor.get("id")
        knows = cls.witness(transaction) if reason in FOR_PEOPLE else actor
        if transaction.notifies and (notified := {*members} - {None, knows}):
            row = {"task_id": task["id"], "actor_id": actor, "reason": reason, "read_at": None}
            row |= {"created_at": transaction.at, "comment_id": None, "excerpt": "", **quoted}
            for member in notified:
                cls.replace_row.run(**row, snoozed_until=None, id=transaction.new_id(), member_id=member)

    @classmethod
    def changed(cls, transaction: Transaction, task: Row, changes: Row) -> None:
        """Notify the members whom these changes of the task, or its creation, concern."""
        old, status = changes.get("status", (None, None))
        if "description" in changes:
            cls.mention(transaction, task, *changes["description"])
        if "assignee_id" in changes:
            cls.notify(transaction, task, "assigned", task["assignee_id"])
        elif old == "review" and status in ("todo", "in_progress"):
            cls.notify(transaction, task, "sent_back", task["assignee_id"])
        if status == "review":
            cls.notify(transaction, task, "review", *cls.responsible(transaction, task))

    @statement
    def scopes_of(cls: Any):
        """The scopes that the keys and sessions of a member have or had, without calendar links.

        A key by OAuth does not count either: a person has allowed it.
        """
        is_theirs = (ApiKey.member == placeholder("member_id")) & ~ApiKey.hash.contains(":")
        return ApiKey.select(ApiKey.scope).distinct().where(is_theirs, ApiKey.scope != CALENDAR)

    @classmethod
    def is_program(cls, member_id: str) -> bool:
        """Return whether this is a program's member: it has keys, and none of them completes tasks."""
        scopes = {row["scope"] for row in cls.scopes_of.all(member_id=member_id)}
        return bool(scopes) and "write" not in scopes

    @classmethod
    def witness(cls, transaction: Transaction) -> str | None:
        """Return who knows of the change: the actor, unless an agent acts in a person's name."""
        id, scope = transaction.actor.get("id"), transaction.actor.get("scope")
        return None if scope == "agent" and not cls.is_program(id or "") else id

    @classmethod
    def responsible(cls, transaction: Transaction, task: Row) -> list[str]:
        """Return the id of the member to ask about a task: its creator, or else its project's owner.

        If the project's owner cannot answer, it is an owner of the workspace. Inactive members, clients and
        agents cannot answer. The `witness` is skipped. If nobody is left, the list is empty.
        """

        def answers(id: str) -> bool:
            member = Member.stored_row.one(id=id)
            is_able = member and member["status"] == Member.ACTIVE and member["role"] != "client"
            return bool(is_able) and not cls.is_program(id)

        owner = Project.stored(task["project_id"])["owner_id"]
        owners = [owner] if answers(owner) else [row["id"] for row in Member.active_owners.all()]
        others = (id for id in (task["created_by"], *owners) if id != cls.witness(transaction))
        return [*islice(filter(answers, others), 1)]

    @statement
    def delete_mentions(cls: Any):
        is_of_text = (cls.task == placeholder("task_id")) & cls.reason.in_(["mentioned", "question"])
        is_of_text &= Expression(cls.comment, OP.IS, placeholder("comment_id"))
        return cls.delete().where(is_of_text, cls.member.in_(values_of("members")))

    @staticmethod
    def mentioned(text: str, project_id: str) -> list[str]:
        """Return the ids of the members that a text mentions: by @ and a full name, or a team's first name.

        A name that several members share mentions none of them; if a client shares it with a team member, it
        mentions the team member. Members who do not see the project are not mentioned. Code, quotes, links,
        HTML comments and `\\@` mention nobody.
        """
        if "@" not in text:
            return []
        text = caseless(UNSAID.sub(" ", text))
        offsets = [sign.end() for sign in islice(re.finditer(r"(?<![\w@])@(?=\w)", text), MAX_MENTIONS)]
        clients, firsts, team = (defaultdict[str, list[str]](list) for _ in range(3))
        for row in Member.shown_rows.all() if offsets else ():
            if Member.sees(row, project_id):
                name, is_client = caseless(row["full_name"]), row["kind"] == "client"
                (clients if is_client else team)[name].append(row["id"])
                if not is_client:
                    firsts[name.split()[0]].append(row["id"])
        names, mentioned = {**clients, **firsts, **team}, list[str]()
        for offset in offsets:
            rest = text[offset : offset + 400]  # longer than any name
            ends = [end.end() for end in re.finditer(r"\S(?!\w)", rest)][::-1]
            ids = next((names[rest[:end]] for end in ends if rest[:end] in names), ())
            mentioned += ids if len(ids) == 1 else ()
        return list(dict.fromkeys(mentioned))

    @classmethod
    def mention(
        cls, transaction: Transaction, task: Row, old: str | None, new: str | None, comment: str | None = None
    ) -> None:
        """Notify the members whom a text newly mentions; delete the notices of those it no longer mentions.

        `comment` is the id of the comment whose text changed; None for the task's description. The
        members whom an open question has asked keep its notices, unless it now asks others.
        """
        before, after = ({*cls.mentioned(text or "", task["project_id"])} for text in (old, new))
        is_open = comment and comment == task["question_id"]
        added, gone = after - before, [*before - after]
        cls.notify(transaction, task, "question" if is_open else "mentioned", *added, comment_id=comment)
        if gone and (not is_open or (transaction.notifies and after - {transaction.actor["id"]})):
            cls.delete_mentions.run(task_id=task["id"], comment_id=comment, members=gone)

    @classmethod
    def select_newest(cls, *more: Any) -> Query:
        """Return a SELECT of up to `:most` notices of a member with actor and task, newest first."""
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
    def news(cls: Any):
        """The unread notices after the notice `:after`, made since the member last saw the page."""
        is_new = (cls.id > placeholder("after")) & (cls.created_at > placeholder("seen_at"))
        return cls.select_newest(Task.due_date).where(cls.is_new, is_new)

    @statement
    def to_notify(cls: Any):
        """A member to mail: one with notices made by `:until` that are neither read nor seen on the page."""
        seen = ApiKey.select(fn.COALESCE(fn.MAX(ApiKey.last_used_at), ""))
        seen = seen.where(ApiKey.member == Member.id, ApiKey.is_started)
        # An id begins with its time, so what was seen before that second is not read again each second.
        at = fn.STRFTIME("%s", seen) * 1000
        first = fn.PRINTF("%08x-%04x", at / 65536, at.bin_and(65535))
        is_new = cls.is_new & (cls.id > fn.MAX(Member.mailed_until, first)) & (cls.created_at > seen)
        is_new &= (cls.member == Member.id) & (cls.created_at <= placeholder("until"))
        gets_mail = (Member.status == Member.ACTIVE) & (Member.mail != "never")
        gets_mail &= Member.mail_at <= placeholder("now")
        rows = Member.select().select_extend(seen.alias("seen_at"))
        return rows.where(gets_mail, fn.EXISTS(cls.select(SQL("1")).where(is_new))).limit(1)

    @statement
    def unread(cls: Any):
        some = cls.select(SQL("1")).where(cls.is_unread, cls.is_awake).limit(MAX_UNREAD)
        return cls.select(fn.COUNT(SQL("*"))).from_(some)

    @classmethod
    def page(cls, member_id: str, *, limit: int, before: str = "~") -> Row:
        """Return the member's latest notices before this id, and how many are unread, up to `MAX_UNREAD`."""
        rows = cls.latest.all(member_id=member_id, before=before, most=limit + 1)
        shown, pagination = newest_of(rows, limit)
        unread = cls.unread.value(member_id=member_id, now=now())
        return {"notices": shown, "unread": unread, "pagination": pagination}

    @classmethod
    def snooze(cls, transaction: Transaction, task_id: str, until: str | None) -> Row:
        """Snooze the actor's notices of a task until this time; None ends the snooze.

        Without notices, a read one of reason `due` is stored, so that a due task can be snoozed too.
        """
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
    def mark_untrue(cls: Any):
        of_project = Task.select(Task.id).where(Task.project == placeholder("project_id"))
        is_over = cls.task.in_(values_of("tasks") + of_project) & cls.reason.in_(values_of("over"))
        return cls.update({cls.read_at: placeholder("now")}).where(is_over, cls.read_at.is_null())

    @classmethod
    def settle(cls, transaction: Transaction, task: Row, changes: Row) -> None:
        """Mark the notices of all members as read that a change of the task has made untrue."""
        old, status = changes.get("status", (None, None))
        over = [reason for name, reasons in OVER.items() if name in changes for reason in reasons]
        run = partial(cls.mark_untrue.run, now=transaction.at, project_id=None)
        if over:
            run(tasks=[task["id"]], over=[*OF_STATE] if status == "done" else over)
        if old == "done":
            blocked = Task.blockers.affected_by([task["number"]], [])
            run(tasks=[row["id"] for row in blocked], over=["unblocked"])

    @classmethod
    def archived(cls, transaction: Transaction, project_id: str) -> None:
        """Mark the notices of a project's tasks as read that describe a state."""
        cls.mark_untrue.run(tasks=[], project_id=project_id, over=[*OF_STATE], now=transaction.at)

    @classmethod
    def acted(cls, transaction: Transaction, task_id: str) -> None:
        """Mark the actor's notices of a task as read, since the actor has changed or answered it.

        The sweeper, which ends claims in a member's name without a key, reads nothing. Nor does an agent that
        acts in a person's name.
        """
        if transaction.has_key and cls.witness(transaction):
            cls.mark_read_by_act.run(member_id=transaction.actor["id"], task_id=task_id, now=transaction.at)

    @statement
    def due_soon(cls: Any):
        """Open tasks that are due between `:since` and `:until`, without a notice of that due date."""
        is_near = (Task.due_date > placeholder("since")) & (Task.due_date <= placeholder("until"))
        is_active = Task.project.not_in(Project.select_archived())
        is_untold = Expression(Task.due_told, OP.IS_NOT, Task.due_date)
        return Task.select(Task.id).where(Task.is_open, is_near, is_untold, is_active).limit(100)

    @classmethod
    def coming_due(cls, hours: float) -> list[Row]:
        """Return the ids of up to 100 tasks that are due within `hours` (0: none) without a notice of it."""
        return cls.due_soon.all(since=now(-cls.LATE_DAYS * 86400), until=now(hours * 3600)) if hours else []

    @classmethod
    def notify_due(cls, transaction: Transaction, hours: float) -> Iterator[Row]:
        """Notify the assignees of the tasks `coming_due`, or else their `responsible`; yield each task."""
        for row in cls.coming_due(hours):
            task = Task.stored(row["id"])
            Task.set_columns(task["id"], due_told=task["due_date"])
            members = [task["assignee_id"]] if task["assignee_id"] else cls.responsible(transaction, task)
            cls.notify(transaction, task, "due", *members)
            yield task

    @statement
    def unanswered(cls: Any):
        """The notices of a member, or about a task, that wait for an answer or a review."""
        is_open = ON_TODAY["questions"] | ON_TODAY["reviews"]
        theirs = (cls.member == placeholder("member_id")) | (cls.task == placeholder("task_id"))
        rows = cls.select(cls.task, cls.reason, cls.comment, cls.actor).join(Task, on=(cls.task == Task.id))
        return rows.where(theirs, is_open)

    @statement
    def readers(cls: Any):
        rows = cls.select(cls.id).join(Member, on=(cls.member == Member.id))
        is_same = (cls.task == placeholder("task_id")) & (cls.reason == placeholder("reason"))
        is_same &= Expression(cls.comment, OP.IS, placeholder("comment_id"))
        is_able = (cls.reason == "question") | (Member.role != "client")  # clients answer, and review nothing
        return rows.where(is_same, is_able, Member.status == Member.ACTIVE).limit(1)

    @classmethod
    @contextmanager
    def reassigning(cls, transaction: Transaction, member_id: str = "", task_id: str = "") -> Iterator[None]:
        """Notify `responsible` of questions and reviews that nobody can answer any more after the block.

        In it a member is removed or sees fewer projects, or a task is moved.
        """
        before = cls.unanswered.all(member_id=member_id, task_id=task_id)
        yield
        for row in before:
            asker = Transaction({"id": row.pop("actor_id")}, transaction.request_id)
            if not cls.readers.all(**row):
                task = Task.stored(row.pop("task_id"))
                cls.notify(asker, task, row.pop("reason"), *cls.responsible(asker, task), **row)

    @statement
    def delete_unblocked(cls: Any):
        return cls.delete().where(cls.member == placeholder("member_id"), cls.reason == "unblocked")

    @classmethod
    def limited(cls, member_id: str) -> None:
        """Delete a member's notices with titles of other tasks, which the member may no longer see."""
        cls.delete_unblocked.run(member_id=member_id)


Task.notices = Member.notices = Notice
# The conditions of the lists of `/today`: three, since SQLite uses no index for a CASE of all.
ON_TODAY = {
    "questions": (Notice.reason == "question") & (Notice.comment == Task.question_id),
    "reviews": (Notice.reason == "review") & Task.is_submitted,
    "mentions": (Notice.reason == "mentioned") & Notice.read_at.is_null(),
}
_waits = (Notice.reason == "question") | (Notice.reason == "review") | (Notice.reason == "mentioned")
Notice.indexed("notice_member", "member id")
Notice.indexed("notice_task", "task")
Notice.indexed("notice_comment", "comment", where=Notice.comment.is_null(False))
Notice.indexed("notice_reason", "member reason task id comment read_at snoozed_until", where=_waits)
Notice.indexed("notice_unread", "member task reason", unique=True, where=Notice.read_at.is_null())


# The lists of `/today`.
TODAY = "id number title status priority project_id assignee_id due_date claimed_until tries version"
MOST_TODAY = 50  # entries of a kind
_last = Comment.select(fn.MAX(Comment.id)).where(Comment.task == Task.id)
_task = Task.select(rowid(Task), SQL("NULL").alias("said"))
_mine = Notice.select().where(Notice.member == placeholder("member_id"))


def _quote(table: Any, author: Any, text: Any, id: Any, quoted: Any) -> Query:
    """Return a SELECT of the author and the beginning of a text of the row with the id `quoted`."""
    said = {"author_id": author, "created_at": table.created_at}
    said |= {"id": id, "excerpt": fn.SUBSTR(text, 1, MAX_LISTED)}
    return table.select(json_object(said)).where(table.id == quoted)


def _today(chosen: Any, *order: Any) -> Statement:
    """Return the statement for the top tasks of a subquery, each with what was `said` or a last comment."""
    said = SQL('"chosen"."said"')
    comment = _quote(Comment, Comment.author, Comment.content, Comment.id, fn.COALESCE(said, _last))
    description = _quote(Notice, Notice.actor, Task.description, Notice.comment, said)
    task = json_object({name: Task._meta.columns[name] for name in TODAY.split()})
    shown = [fn.JSON(task).alias("task"), fn.JSON(fn.COALESCE(comment, description)).alias("comment")]
    return Statement(Task.in_order(chosen.order_by(*order).limit(MOST_TODAY), shown))


# The id of the comment that was said, or of the notice about a description.
_said = Case(None, [(Notice.reason != "review", fn.COALESCE(Notice.comment, Notice.id))]).alias("said")
_noticed = _mine.select(rowid(Task), _said).join(Task, on=(Notice.task == Task.id)).group_by(Notice.task)
_noticed = _noticed.where(Notice.is_awake, (Notice.reason == "mentioned") | FILTERS["archived"])
NOTICED = {kind: _today(_noticed.where(waits), fn.MIN(Notice.id)) for kind, waits in ON_TODAY.items()}
_due = Task.is_open_with_date & (Task.due_date <= placeholder("until")) & FILTERS["archived"]
_due &= (Task.status != "review") & FILTERS["assignee_id"]
_due &= ~fn.EXISTS(_mine.where(Notice.task == Task.id, ~Notice.is_awake))
DUE = _today(_task.where(_due), Task.due_date, Task.id)
# The meetings of a member that are not over `:now` and have started by `:until`.
_is_over = fn.COALESCE(Meeting.ends_at, Meeting.starts_at) <= placeholder("now")
SOON = Statement(Meeting.of_member.query.where(~_is_over, Meeting.starts_at <= placeholder("until")))
# Tasks that agents have moved, among the latest tasks in progress of members with keys for agents.
_keys = ApiKey.select(ApiKey.id).where(ApiKey.scope == "agent", ApiKey.revoked_at.is_null())
_is_move = (Activity.task_id == Task.id) & (Activity.action == "moved") & Activity.is_hidden.is_null()
_moved_by = Activity.select(Activity.key).where(_is_move).order_by(Activity.id.desc()).limit(1)
_held = (Task.status == "in_progress") & Task.assignee.in_(_keys.select(ApiKey.member))
_recent = _task.where(_held).order_by(SQL("+updated_at DESC"))  # "+": not by the index of all changes
_work = Task.in_order(_recent.limit(2 * MOST_TODAY), [rowid(Task), SQL("said")])
_work = _work.where(Expression(_moved_by, OP.IN, _keys), FILTERS["archived"])
WORK = _today(_work, Task.claimed_until.is_null(), Task.claimed_until, Task.id)


def today(member_id: str, until: str) -> Row:
    """Return what waits for a member until this time, by kind, and what agents are working on."""
    mine = {"member_id": member_id, "assignee_id": member_id, "now": now(), "until": until}
    lists: Row = {kind: tasks.all(**mine) for kind, tasks in NOTICED.items()}
    soon = [meeting | {"when": "upcoming"} for meeting in SOON.all(**mine)]
    return lists | {"meetings": soon, "due": DUE.all(**mine), "working": WORK.all()}


class InboxReadInput(schemas.Strict):
    until = schemas.Id(**schemas.doc("This notification and all older ones."))
    task_id = schemas.TaskReference(**schemas.doc("All notifications about this task."))

    @validates_schema
    def _one_of_both(self, data: dict, **_: Any) -> None:
        if len(data) != 1:
            raise ValidationError("send either until or task_id", "until")

    EXAMPLE = {"until": "019abf3e-5d7b-7c1e-9f1a-3d2b8f0c6a55"}


class SnoozeInput(schemas.Strict):
    task_id = schemas.TaskReference(required=True)
    until = schemas.Instant(required=True, allow_none=True, **schemas.doc("Null brings the task back."))

    EXAMPLE = {"task_id": "019abf3e-5d7b-7c1e-9f1a-3d2b8f0c6a55", "until": "2026-12-02"}


INBOX_QUERY: dict[str, Any] = {
    "limit": schemas.QueryInteger(1, 100, load_default=50),
    "before": schemas.Id(),
    "wait": schemas.WAIT,
}
LIST_INBOX = schemas.Strict.from_dict(INBOX_QUERY)()
NoticeTaskShown = schemas.shown(models.Task, "id number title status", "NoticeTask")
NoticeShown = schemas.shown(
    Notice,
    "id reason excerpt created_at read_at snoozed_until actor task",
    actor=schemas.ProfileShown | None,
    task=NoticeTaskShown,
)
InboxShown = schemas.response_schema(
    "Inbox", notices=[NoticeShown], unread=int, pagination=schemas.HistoryPaginationShown
)
InboxReadShown = schemas.response_schema("InboxRead", read=int)
SnoozedShown = schemas.shown(Notice, "task_id snoozed_until", "Snoozed", task_id=schemas.Id)
TodayTaskShown = schemas.shown(models.Task, TODAY, "TodayTask")
SaidShown = schemas.shown(
    models.Comment, "id author_id created_at excerpt", "Said", id=schemas.Id | None, excerpt=str
)
TodayEntryShown = schemas.response_schema("TodayEntry", task=TodayTaskShown, comment=SaidShown | None)
TODAY_LISTS = dict.fromkeys(("questions", "reviews", "mentions", "due", "working"), [TodayEntryShown])
TodayShown = schemas.response_schema("Today", **TODAY_LISTS, meetings=[schemas.MeetingShown])


@api.get("/inbox")
@operation(LIST_INBOX, InboxShown)
def list_inbox(wait: int, **page: Any) -> Row:
    """List your notifications, newest first, and how many are unread. `wait` waits for an unread one."""
    read = partial(Notice.page, request().caller["id"], **page)
    return awaited(wait, read, lambda inbox: inbox["unread"])


@api.post("/inbox/read")
@operation(InboxReadInput(), InboxReadShown, scope="agent")
def read_inbox(transaction: Transaction, **which: Any) -> Row:
    """Mark your notifications as read: up to one of them, or all of one task."""
    reading = Notice.mark_read_of_task if "task_id" in which else Notice.mark_read
    if "task_id" in which:
        which["task_id"] = (Task.references.one(references=[which["task_id"]]) or {}).get("id")
    return {"read": reading.run(**which, member_id=transaction.actor["id"], now=transaction.at)}


@api.post("/inbox/snooze")
@operation(SnoozeInput(), SnoozedShown, scope="agent")
def snooze_inbox(transaction: Transaction, task_id: int | str, until: str | None) -> Row:
    """Put a task off until a time, in your inbox and in `/today`. Null brings it back."""
    (task,) = Task.referred([task_id], "task_id")
    return Notice.snooze(transaction, task["id"], until)


@api.get("/today")
@operation(gives=TodayShown)
def get_today() -> Row:
    """Show what waits for you, today's meetings, and the tasks that agents are working on."""
    day = local(now()).date().isoformat()
    return today(request().caller["id"], schemas.Instant(ends_day=True).deserialize(day))
