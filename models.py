"""The database: its connection, write lock, tables, queries and invariants. Nothing here knows HTTP.

Rows are stored in the form in which they are sent (ids and instants as text), so that reading is
copying: a statement's columns become a dict's keys, and a column named `owner.id` becomes
`{"owner": {"id": …}}`.
"""

import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, ClassVar

from peewee import (
    JOIN,
    SQL,
    AutoField,
    BlobField,
    Case,
    CompositeKey,
    Expression,
    ForeignKeyField,
    IntegerField,
    ModelIndex,
    Query,
    TextField,
    fn,
)

from database import (
    JSON,
    TICKS,
    Base,
    Identified,
    Insertion,
    JSONText,
    Row,
    Statement,
    columns,
    db,
    deletion,
    deletion_of_some,
    digest,
    epoch_ms,
    fold,
    follow_clock,
    group,
    insertion,
    new_id,
    new_request_id,
    now,
    placeholder,
    row_of,
    tick,
    to_json,
    update_of,
    uuid7,
    wire_time,
    write_transaction,
)

STATUSES = ("todo", "in_progress", "review", "done")
PRIORITIES = ("low", "medium", "high", "urgent")
ROLES = ("owner", "admin", "member", "client")
ADMINS = ROLES[:2]
SCOPES = ("read", "write")
PROJECT_STATUSES = ("active", "archived")

COUNT_LIMIT = 10_000  # a list's total is exact up to here
MAX_CHANGE = 1024  # bytes as JSON of an old or new value that an activity keeps
KEY_PREFIX = "tms_"

# Errors ---------------------------------------------------------------------------------------


class Problem(Exception):
    """What the domain refuses; `app.FAULTS` gives each subclass its status and code."""


class NotFound(Problem):
    """The object does not exist."""

    def __init__(self, noun: str):
        super().__init__(f"no such {noun}")


class Invalid(Problem):
    """Fields whose value the stored state does not allow."""

    def __init__(self, *problems: tuple[str, str]):
        super().__init__("; ".join(f"{field}: {message}" for field, message in problems))
        self.problems = problems


class Forbidden(Problem):
    """The caller's role or the key's scope does not allow it."""


class Conflict(Problem):
    """The object's state does not allow it."""


class Gone(Problem):
    """An enrollment link that was used or revoked, or has expired."""


class KeyReused(Problem):
    """An `Idempotency-Key` that came with another request before."""


class PreconditionFailed(Problem):
    """The object's version is none of those that the caller expects."""


def permit(member: Row, role: str) -> None:
    """Raises `Forbidden` unless the member has at least this role."""
    allowed = ROLES[: ROLES.index(role) + 1]
    if member["role"] not in allowed:
        raise Forbidden(f"your role is {member['role']}; this takes {' or '.join(allowed)}")


# Writing --------------------------------------------------------------------------------------


class Transaction:
    """One write: who makes it, when, in which request, and which deliveries it leaves to be sent."""

    def __init__(self, actor: Row, request_id: str):
        self.at = wire_time(tick() // TICKS)
        self.actor = actor
        self.request_id = request_id
        self.deliveries: list[str] = []  # leased, for this request to send
        self.queued = 0  # deliveries that are left to the sweeper
        self.webhooks: list[Row] | None = None  # `webhooks` keeps here what it has looked up

    @property
    def profile(self) -> Row:
        return {name: self.actor[name] for name in ("id", "full_name", "email", "role")}

    @property
    def maker_id(self) -> str:
        """Who made the key in use, and so holds what is made with it; the actor for a command."""
        return self.actor.get("key_created_by") or self.actor["id"]


@contextmanager
def write(actor: Row | None = None, request_id: str = "") -> Iterator[Transaction]:
    """The one way to write: a turn, then BEGIN IMMEDIATE … COMMIT around the body.

    Nothing may be sent over a network inside. Raises `Unavailable` when the turn does not come
    within `LOCK_SECONDS`, and when the database file is not where it was; SQLite's own errors pass.
    """
    with write_transaction():
        follow_clock(NEWEST_ACTIVITY.value())
        transaction = Transaction(actor or {}, request_id or new_request_id())
        yield transaction
        ApiKey.flush_used()


def only_owner(transaction: Transaction, what: str) -> None:
    """Raises `Forbidden` unless an owner makes the change."""
    if transaction.actor["role"] != "owner":
        raise Forbidden(f"only an owner may {what}")


# Tables ---------------------------------------------------------------------------------------


def profile(alias: Any, key: str) -> list:
    return group(alias, key, "id", "full_name", "email", "role")


class Resource(Identified):
    """What is made, changed and deleted alike; a subclass is its columns, its noun and its own rules."""

    NOUN: ClassVar[str]
    TITLE: ClassVar[str] = "title"  # the column by which the activity names it

    @classmethod
    def stored(cls, id: str) -> Row:
        return row_of(cls).one(id=id) or not_found(cls.NOUN)

    @classmethod
    def fetch(cls, id: str) -> Row:
        """It as it is shown."""
        return cls.stored(id)

    @classmethod
    def check(cls, row: Row) -> None:
        """Raises `Invalid` for columns that do not go together."""

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        Activity.record(transaction, action, cls.NOUN, row["id"], row[cls.TITLE], changes)

    @classmethod
    def insert_row(cls, transaction: Transaction, **fields: Any) -> Row:
        _check_references(fields)
        cls.check(fields)
        row = {**fields, "id": new_id(), "created_at": transaction.at, "updated_at": transaction.at}
        insertion(cls).run(**row)
        cls.record(transaction, "created", row)
        return row

    @classmethod
    def add(cls, transaction: Transaction, **fields: Any) -> Row:
        """A new one. Raises `Invalid` for what does not exist or does not go together."""
        return cls.fetch(cls.insert_row(transaction, **fields)["id"])

    @classmethod
    def edit(
        cls, transaction: Transaction, id: str, fields: Row, also: Row | None = None, **written: Any
    ) -> Row:
        """Change what was sent; with a change, `written` is written too.

        `also` are changes in other tables that belong to this one.
        """
        stored = cls.stored(id)
        if changes := differences(stored, fields) | (also or {}):
            changed = {name: fields[name] for name in changes if name in fields}
            _check_references(changed)
            cls.check(stored | fields)
            update_row(cls, transaction, id, changed | written, changed.keys() | written)
            cls.record(transaction, "updated", stored | fields, changes)
        return cls.fetch(id)

    @classmethod
    def remove(cls, transaction: Transaction, id: str) -> Row:
        """Delete it; returns it as it was stored."""
        row = cls.stored(id)
        deletion(cls).run(id=id)
        cls.record(transaction, "deleted", row)
        return row


class Member(Identified):
    full_name = TextField()
    email = TextField()
    role = TextField()
    phone_number = TextField(null=True)
    status = TextField()  # active, invited, removed
    joined_at = TextField(null=True)
    created_at = TextField()

    ACTIVE = "active"

    @classmethod
    def everyone(cls) -> list[Row]:
        """All members by name, invited ones and clients too; removed ones never."""
        return sorted_by(MEMBERS.all(), "full_name")

    @classmethod
    def team(cls) -> list[Row]:
        """The active members by name, without clients."""
        return sorted_by(TEAM.all(), "full_name")

    @classmethod
    def fetch(cls, id: str) -> Row:
        return MEMBER.one(id=id) or not_found("member")

    @classmethod
    def active(cls, id: str) -> Row:
        """Raises `Invalid` for one who is not, or not yet, a member."""
        member = MEMBER.one(id=id)
        if member is None or member["status"] != cls.ACTIVE:
            raise Invalid(("member_id", "no such active member"))
        return member

    @classmethod
    def by_email(cls, email: str) -> Row | None:
        return MEMBER_BY_EMAIL.one(email=email)

    @classmethod
    def first_owner(cls) -> Row | None:
        return FIRST_OWNER.one()

    @classmethod
    def add(cls, transaction: Transaction, *, full_name, email, role, phone_number=None, status) -> Row:
        """A new member. Raises `Invalid` when the address is taken."""
        if cls.by_email(email):
            raise Invalid(("email", "is already a member's"))
        id = new_id()
        insertion(Member).run(
            id=id,
            full_name=full_name,
            email=email,
            role=role,
            phone_number=phone_number,
            status=status,
            joined_at=transaction.at if status == cls.ACTIVE else None,
            created_at=transaction.at,
        )
        return cls.fetch(id)

    @classmethod
    def bootstrap(cls, transaction: Transaction, *, full_name: str, email: str) -> Row:
        """The workspace's first owner, who is then the change's actor."""
        owner = cls.add(transaction, full_name=full_name, email=email, role="owner", status=cls.ACTIVE)
        transaction.actor = owner
        Activity.record(transaction, "created", "member", owner["id"], full_name)
        return owner

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row) -> Row:
        """Change a member: oneself, but for the role, or anybody as an owner or admin.

        Whoever becomes an owner loses the keys and open invitations that somebody else made,
        unless the owner who makes this change did.
        Raises `NotFound`; `Forbidden`, also where somebody else than an owner would make or unmake
        one; and `Conflict` where no owner would be left.
        """
        stored = cls.fetch(id)
        changes = differences(stored, fields)
        role = changes.get("role", ())
        if transaction.actor["role"] not in ADMINS and (role or id != transaction.actor["id"]):
            raise Forbidden("your own name and phone number you may change; the rest takes owner or admin")
        if "owner" in role:
            only_owner(transaction, "make or unmake an owner")
            cls._keep_an_owner(stored)
        if changes:
            update_of(cls, tuple(sorted(changes))).run(id=id, **{name: fields[name] for name in changes})
            cls.record(transaction, stored | fields, changes)
        if role and fields["role"] == "owner":
            # Whoever made these was not necessarily an owner, and must not become one through them.
            for statement in (REVOKE_KEYS_OF_OTHERS, REVOKE_INVITATIONS_OF_OTHERS):
                statement.run(member_id=id, actor_id=transaction.actor["id"], now=transaction.at)
        return cls.fetch(id)

    @classmethod
    def record(cls, transaction: Transaction, member: Row, changes: Row) -> None:
        Activity.record(transaction, "updated", "member", member["id"], member["full_name"], changes)

    @classmethod
    def remove(cls, transaction: Transaction, id: str) -> Row:
        """Hide the member, end their keys and invitations, and take their tasks from them.

        Raises as `edit` does.
        """
        stored = cls.fetch(id)
        if stored["role"] == "owner":
            only_owner(transaction, "remove an owner")
            cls._keep_an_owner(stored)
        update_of(cls, ("status",)).run(id=id, status="removed")
        for statement in (REVOKE_KEYS, REVOKE_INVITATIONS, UNASSIGN_TASKS):
            statement.run(member_id=id, now=transaction.at)
        Activity.record(transaction, "deleted", "member", id, stored["full_name"])
        return stored

    @classmethod
    def _keep_an_owner(cls, stored: Row) -> None:
        """Raises `Conflict` when this is the last active owner."""
        if stored["role"] == "owner" and stored["status"] == cls.ACTIVE and OWNERS.value() == 1:
            raise Conflict("the last owner cannot go; make another one first")


# Someone who was removed gives the address free.
Member.add_index(Member.email, unique=True, where=(Member.status != "removed"), name="member_email")


class Invitation(Identified):
    member = ForeignKeyField(Member)
    token_hash = TextField(unique=True)
    created_by = ForeignKeyField(Member, column_name="created_by", index=False)
    created_at = TextField()
    expires_at = TextField()
    used_at = TextField(null=True)
    revoked_at = TextField(null=True)

    @classmethod
    def invite(
        cls, transaction: Transaction, days: float, *, email: str, **fields
    ) -> tuple[Row, str, str, bool]:
        """Invite someone, or invite them anew, whereby the old link dies.

        Returns the member, the link's token, when it expires, and whether the member is new.
        Raises `Forbidden` when someone else than an owner invites an owner, and `Conflict` when
        the address is that of an active member.
        """
        known = Member.by_email(email)
        if known and known["status"] == Member.ACTIVE:
            raise Conflict(f"{email} is already a member")
        if "owner" in (fields["role"], known and known["role"]):
            only_owner(transaction, "invite an owner")
        if known:
            fields = {"phone_number": None, **fields}
            update_of(Member, tuple(sorted(fields))).run(id=known["id"], **fields)
            member = Member.fetch(known["id"])
        else:
            member = Member.add(transaction, email=email, status="invited", **fields)
        token, expires_at = cls._issue(transaction, member["id"], days)
        Activity.record(
            transaction, "updated" if known else "created", "member", member["id"], member["full_name"]
        )
        return member, token, expires_at, known is None

    @classmethod
    def renew(cls, transaction: Transaction, member_id: str, days: float) -> tuple[Row, str, str]:
        """A new link for someone who is invited; the old one dies.

        Returns the member, the link's token, and when it expires.
        """
        member = cls._invited(transaction, member_id)
        Member.record(transaction, member, {"invitation": [None, "renewed"]})
        return member, *cls._issue(transaction, member_id, days)

    @classmethod
    def revoke(cls, transaction: Transaction, member_id: str) -> None:
        """Make the open link of someone who is invited useless. Raises `NotFound` where there is none."""
        member = cls._invited(transaction, member_id)
        if not REVOKE_INVITATIONS.run(member_id=member_id, now=transaction.at):
            raise NotFound("open invitation")
        Member.record(transaction, member, {"invitation": [None, "revoked"]})

    @classmethod
    def _invited(cls, transaction: Transaction, member_id: str) -> Row:
        member = Member.fetch(member_id)
        if member["status"] == Member.ACTIVE:
            raise Conflict(f"{member['full_name']} has joined already")
        if member["role"] == "owner":
            only_owner(transaction, "invite an owner")
        return member

    @classmethod
    def _issue(cls, transaction: Transaction, member_id: str, days: float) -> tuple[str, str]:
        token, expires_at = secrets.token_urlsafe(32), now(days * 86400)
        REVOKE_INVITATIONS.run(member_id=member_id, now=transaction.at)
        insertion(Invitation).run(
            id=new_id(),
            member_id=member_id,
            token_hash=digest(token),
            created_by=transaction.maker_id,
            created_at=transaction.at,
            expires_at=expires_at,
        )
        return token, expires_at

    @classmethod
    def open(cls, token: str) -> Row:
        """The invitation of a link that can still be used. Raises `NotFound` or `Gone`."""
        invitation = INVITATION.one(token_hash=digest(token)) or not_found("invitation")
        if invitation["used_at"]:
            raise Gone("this enrollment link has already been used")
        if invitation["revoked_at"]:
            raise Gone("this enrollment link has been revoked")
        if invitation["expires_at"] <= now():
            raise Gone("this enrollment link has expired")
        return invitation

    @classmethod
    def accept(cls, transaction: Transaction, token: str) -> tuple[Row, Row, str]:
        """Use the link: the member becomes active and gets a first key.

        Returns the member, the key's row and the key. Raises as `open` does; of several at once
        one wins, since they come here one after the other.
        """
        invitation = cls.open(token)
        update_of(cls, ("used_at",)).run(id=invitation["id"], used_at=transaction.at)
        member_id = invitation["member"]["id"]
        update_of(Member, ("joined_at", "status")).run(
            id=member_id, joined_at=transaction.at, status=Member.ACTIVE
        )
        transaction.actor = member = Member.fetch(member_id)
        Member.record(transaction, member, {"status": ["invited", "active"]})
        row, key = ApiKey.issue(transaction, member_id, name="enrollment")
        return member, row, key


class ApiKey(Identified):
    member = ForeignKeyField(Member)
    name = TextField()
    scope = TextField()
    prefix = TextField()
    hash = TextField(unique=True)
    created_at = TextField()
    expires_at = TextField(null=True)
    last_used_at = TextField(null=True)
    revoked_at = TextField(null=True)
    created_by = TextField(null=True)  # the id of the member who made it, or made the key that made it

    # Reads never write: uses wait here for the next write, each key at most once a minute.
    _used: ClassVar[dict[str, str]] = {}
    _flushed: ClassVar[dict[str, float]] = {}

    @classmethod
    def issue(
        cls,
        transaction: Transaction,
        member_id: str,
        *,
        name: str,
        scope: str = "write",
        expires_at: str | None = None,
        key: str | None = None,
    ) -> tuple[Row, str]:
        """A new key of the member; returns its row and the key itself, which is not stored."""
        key = key or KEY_PREFIX + secrets.token_urlsafe(32)
        id = new_id()
        insertion(ApiKey).run(
            id=id,
            member_id=member_id,
            name=name,
            scope=scope,
            prefix=key[:12],
            hash=digest(key),
            created_at=transaction.at,
            expires_at=expires_at,
            created_by=transaction.maker_id,
        )
        return cls.fetch(id), key

    @classmethod
    def fetch(cls, id: str) -> Row:
        return KEY.one(id=id) or not_found("key")

    @classmethod
    def everyones(cls) -> list[Row]:
        return KEYS.all()

    @classmethod
    def visible(cls, caller: Row) -> list[Row]:
        """The caller's keys; for an owner or admin everybody's."""
        return [key for key in cls.everyones() if cls._seen(key, caller)]

    @classmethod
    def _seen(cls, key: Row, caller: Row) -> bool:
        return caller["role"] in ADMINS or key["member"]["id"] == caller["id"]

    @classmethod
    def grant(
        cls, transaction: Transaction, *, member_id: str | None = None, **fields: Any
    ) -> tuple[Row, str]:
        """A key for the caller, or, by an owner or admin, for another active member.

        Returns its row and the key itself. Raises `Forbidden`, and `Invalid` for a time that is over,
        or later than the end of the key in use: a key that ends must not live on in another.
        """
        holder = Member.active(member_id or transaction.actor["id"])
        cls._managed(transaction, holder)
        fields = {name: value for name, value in fields.items() if value is not None}
        expires_at = fields.get("expires_at", "9999")
        if expires_at < now():
            raise Invalid(("expires_at", "must be in the future"))
        key_expires_at = transaction.actor.get("key_expires_at")  # a command is run with no key
        if key_expires_at and expires_at > key_expires_at:
            raise Invalid(("expires_at", f"must be at most {key_expires_at}, when the key in use expires"))
        key = cls.issue(transaction, holder["id"], **fields)
        Member.record(transaction, holder, {"api_key": [None, key[0]["id"]]})
        return key

    @classmethod
    def revoke(cls, transaction: Transaction, id: str) -> None:
        """Revoke a key as `grant` may make it; one that the caller may not see does not exist."""
        key = cls.fetch(id)
        if not cls._seen(key, transaction.actor):
            raise NotFound("key")
        cls._managed(transaction, key["member"])
        if key["revoked_at"] is None:
            update_of(cls, ("revoked_at",)).run(id=id, revoked_at=transaction.at)
            Member.record(transaction, key["member"], {"api_key": [id, None]})

    @classmethod
    def _managed(cls, transaction: Transaction, holder: Row) -> None:
        if holder["id"] != transaction.actor["id"]:
            allowed = ("owner",) if holder["role"] == "owner" else ADMINS
            if transaction.actor["role"] not in allowed:
                raise Forbidden(f"only an {' or '.join(allowed)} manages the keys of this {holder['role']}")

    @classmethod
    def caller(cls, key: str) -> Row | None:
        """The member whose valid key this is, with what is known of the key; else None."""
        at = now()
        caller = CALLER.one(hash=digest(key), now=at)
        if caller and time.monotonic() - cls._flushed.get(caller["key_id"], float("-inf")) > 60:
            cls._used[caller["key_id"]] = at
        return caller

    @classmethod
    def write_used(cls) -> None:
        """Write down when keys were last used, where no other write comes along."""
        if cls._used:
            with write():
                pass

    @classmethod
    def flush_used(cls) -> None:
        """Write down when keys were last used; part of every write."""
        while cls._used:
            id, at = cls._used.popitem()
            update_of(cls, ("last_used_at",)).run(id=id, last_used_at=at)
            cls._flushed[id] = time.monotonic()


class StoredAnswer(Base):
    """What a POST with an `Idempotency-Key` was answered, for its repetitions within a day."""

    api_key = ForeignKeyField(ApiKey, column_name="api_key_id", on_delete="CASCADE", index=False)
    idempotency_key = TextField()
    request = TextField()  # a digest of path and body
    status = IntegerField()
    headers = TextField()  # a JSON object
    data = JSONText()
    created_at = TextField(index=True)

    DAY = 86400.0

    class Meta:
        primary_key = CompositeKey("api_key", "idempotency_key")

    @classmethod
    def find(cls, transaction: Transaction, idempotency_key: str, request: str) -> Row | None:
        """The answer to this request, if it came before. Raises `KeyReused` where another one did."""
        stored = STORED_ANSWER.one(after=now(-cls.DAY), **cls._place(transaction, idempotency_key))
        if stored and stored["request"] != request:
            raise KeyReused("this Idempotency-Key came with another path or body before; take a new one")
        return stored

    @classmethod
    def keep(
        cls,
        transaction: Transaction,
        idempotency_key: str,
        request: str,
        status: int,
        headers: Row,
        data: Row,
    ) -> None:
        """Part of the change, so that there is no answer without it, nor it without an answer."""
        place = cls._place(transaction, idempotency_key)
        FORGET_ANSWER.run(**place)  # one of more than a day ago
        texts = {"headers": to_json(headers).decode(), "data": to_json(data).decode()}
        insertion(cls).run(**place, **texts, request=request, status=status, created_at=transaction.at)

    @classmethod
    def _place(cls, transaction: Transaction, idempotency_key: str) -> Row:
        return {"api_key_id": transaction.actor["key_id"], "idempotency_key": idempotency_key}

    @classmethod
    def prune(cls) -> None:
        """Drop what is not replayed any more."""
        with write():
            PRUNE_ANSWERS.run(before=now(-cls.DAY))


class Project(Resource):
    name = TextField()
    description = TextField(null=True)
    status = TextField()
    owner = ForeignKeyField(Member)
    created_at = TextField()
    updated_at = TextField()

    NOUN, TITLE = "project", "name"

    @classmethod
    def fetch(cls, id: str) -> Row:
        return _with_stats(PROJECT.one(id=id, now=now()) or not_found("project"))

    @classmethod
    def listing(cls, status: str | None = None) -> list[Row]:
        """Projects by name, with their statistics."""
        statement = PROJECTS if status is None else PROJECTS_BY_STATUS
        rows = statement.all(now=now(), status=status)
        return [_with_stats(row) for row in sorted_by(rows, "name")]

    @classmethod
    def add(cls, transaction: Transaction, *, owner_id: str | None = None, **fields: Any) -> Row:
        """A new active project, the caller's unless another owner is named."""
        row = cls.insert_row(
            transaction, status="active", owner_id=owner_id or transaction.actor["id"], **fields
        )
        insertion(ProjectStats).run(project_id=row["id"], todo=0, in_progress=0, review=0, done=0)
        return cls.fetch(row["id"])

    @classmethod
    def remove_all(cls, transaction: Transaction, id: str, *, force: bool) -> list[Row]:
        """Delete the project; returns the tasks that went with it.

        Raises `Conflict` while it has tasks, unless forced.
        """
        cls.stored(id)
        ids = [row["id"] for row in PROJECT_TASK_IDS.all(id=id)]
        if ids and not force:
            raise Conflict(
                f"the project has {len(ids)} task{'s' * (len(ids) != 1)}; "
                "delete them first, or the project with force=true"
            )
        tasks = [Task.remove(transaction, task_id) for task_id in ids]
        cls.remove(transaction, id)
        return tasks


class ProjectStats(Base):
    """How many tasks a project has in each status, kept in the transaction of every change."""

    project = ForeignKeyField(Project, primary_key=True, on_delete="CASCADE")
    todo = IntegerField()
    in_progress = IntegerField()
    review = IntegerField()
    done = IntegerField()

    @classmethod
    def shift(cls, project_id: str, *, old: str | None = None, new: str | None = None) -> None:
        """Count a task out of its old status and into its new one."""
        SHIFT_STATS.run(project_id=project_id, **{s: (s == new) - (s == old) for s in STATUSES})

    @classmethod
    def wrong(cls) -> list[Row]:
        """The projects whose counters differ from a count of their tasks, as they should be."""
        counted = {row.pop("project_id"): row for row in COUNTED_STATS.all()}
        kept = {row.pop("project_id"): row for row in KEPT_STATS.all()}
        return [{"project_id": id, **counted[id]} for id in counted if kept.get(id) != counted[id]]

    @classmethod
    def repair(cls, transaction: Transaction) -> int:
        """Make every counter what a count of the tasks says; returns how many were not."""
        wrong = cls.wrong()
        for row in wrong:
            cls.delete_by_id(row["project_id"])
            insertion(ProjectStats).run(**row)
        return len(wrong)


class Milestone(Resource):
    project = ForeignKeyField(Project, on_delete="CASCADE")
    title = TextField()
    description = TextField(null=True)
    due_date = TextField(null=True)
    created_at = TextField()
    updated_at = TextField()

    NOUN = "milestone"

    @classmethod
    def of(cls, project_id: str) -> list[Row]:
        """The project's milestones by date, those without one last."""
        Project.stored(project_id)
        return MILESTONES.all(project_id=project_id)

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """A milestone is part of its project, whose activity this is."""
        project, title = Project.stored(row["project_id"]), row["title"]
        ends = {"created": [None, title], "deleted": [title, None]}
        Project.record(transaction, "updated", project, {"milestone": ends.get(action) or [title, changes]})

    @classmethod
    def remove(cls, transaction: Transaction, id: str) -> Row:
        """Delete it; its tasks stay, without milestone."""
        LEAVE_MILESTONE.run(milestone_id=id, now=transaction.at)
        return super().remove(transaction, id)


class Task(Identified):
    project = ForeignKeyField(Project, index=False)
    milestone = ForeignKeyField(Milestone, null=True, on_delete="SET NULL", index=False)
    title = TextField()
    description = TextField(null=True)
    status = TextField()
    priority = TextField()
    assignee = ForeignKeyField(Member, null=True, index=False)
    created_by = ForeignKeyField(Member, column_name="created_by", object_id_name="creator_id", index=False)
    start_date = TextField(null=True)
    due_date = TextField(null=True)
    completed_at = TextField(null=True)
    metadata = JSONText()
    version = IntegerField()
    created_at = TextField()
    updated_at = TextField()
    # Title and description, folded: SQLite itself folds ASCII only. Last, since only a search reads it.
    search = TextField()

    @classmethod
    def fetch(cls, id: str) -> Row:
        """The task with its project, milestone, profiles, attachments and number of comments."""
        task = TASK_DETAIL.one(id=id) or not_found("task")
        task["attachments"] = TASK_ATTACHMENTS.all(id=id) if task["attachments"] else []
        return task

    @classmethod
    def stored(cls, id: str) -> Row:
        """The task alone."""
        return TASK.one(id=id) or not_found("task")

    @classmethod
    def page(cls, *, limit: int, offset: int, sort: str | None = None, **filters: Any) -> Row:
        """One page of the tasks that pass every filter, with its pagination."""
        names = frozenset(filters)
        values = {name: FILTERS[name][1](value) for name, value in filters.items()}
        rows = task_page(names, sort).all(limit=limit + 1, offset=offset, **values)
        total = task_total(names).value(**values) or 0
        return {"tasks": rows[:limit], "pagination": pagination(total, limit, offset, len(rows))}

    @classmethod
    def add(cls, transaction: Transaction, *, project_id: str, title: str, **fields: Any) -> Row:
        """A new task. Raises `Invalid` for what does not exist or does not belong together."""
        _check_references({"project_id": project_id, **fields}, partial(cls._unfit, project_id))
        row = fields | {
            "id": new_id(),
            "project_id": project_id,
            "title": title,
            "status": "todo",
            "priority": fields.get("priority") or "medium",
            "created_by": transaction.actor["id"],
            "metadata": fields.get("metadata", "{}"),
            "version": 1,
            "created_at": transaction.at,
            "updated_at": transaction.at,
            "search": searchable(title, fields.get("description")),
        }
        insertion(Task).run(**row)
        Activity.record(transaction, "created", "task", row["id"], title)
        ProjectStats.shift(project_id, new="todo")
        return TASK.existing(id=row["id"])

    @classmethod
    def _unfit(cls, project_id: str, found: Row) -> Iterator[tuple[str, str]]:
        """Why a new task cannot be in this project or milestone, where these were found."""
        project, milestone = found["project_id"], found.get("milestone_id")
        if project and project["status"] == "archived":
            yield "project_id", "the project is archived and takes no new tasks"
        if milestone and milestone["project_id"] != project_id:
            yield "milestone_id", "belongs to another project"

    @classmethod
    def edit(
        cls, transaction: Transaction, id: str, fields: Row, versions: frozenset[str] | None
    ) -> tuple[Row, Row]:
        """Change what was sent and nothing else; returns the task, and `{field: [old, new]}`.

        Values that the task has already are no change. Raises `NotFound`, and
        `PreconditionFailed` when its version is none of `versions`.
        """
        stored = cls._expected(id, versions)
        changes = differences(stored, fields)
        if not changes:
            return stored, {}
        _check_references({name: fields[name] for name in changes})
        more: Row = {"version": stored["version"] + 1}
        if "title" in changes:
            more["search"] = searchable(fields["title"], stored["description"])
        if "status" in changes:
            more["completed_at"] = transaction.at if fields["status"] == "done" else None
            ProjectStats.shift(stored["project_id"], old=stored["status"], new=fields["status"])
        update_row(cls, transaction, id, fields | more, changes.keys() | more)
        task = TASK.existing(id=id)
        action = "moved" if "status" in changes else "updated"
        Activity.record(transaction, action, "task", id, task["title"], changes)
        return task, changes

    @classmethod
    def remove(cls, transaction: Transaction, id: str, versions: frozenset[str] | None = None) -> Row:
        """Delete the task with its comments and attachments; returns it as it was."""
        task = cls._expected(id, versions)
        deletion(cls).run(id=task["id"])
        Activity.record(transaction, "deleted", "task", id, task["title"])
        ProjectStats.shift(task["project_id"], old=task["status"])
        return task

    @classmethod
    def _expected(cls, id: str, versions: frozenset[str] | None) -> Row:
        task = cls.stored(id)
        if versions is not None and str(task["version"]) not in versions:
            raise PreconditionFailed(f"the task's version is {task['version']}")
        return task

    @classmethod
    def urgent(cls, at: str, most: int = 10) -> list[Row]:
        """Open tasks that are overdue, longest first, then urgent ones, those without a date last."""
        overdue = OVERDUE_TASKS.all(now=at, most=most)
        # Fewer than `most` are overdue here, so the second statement skips only those.
        left = most - len(overdue)
        urgent = URGENT_TASKS.all(now=at, most=left) if left else []
        return [task | {"overdue": True} for task in overdue] + [task | {"overdue": False} for task in urgent]


PRIORITY_RANK = Case(Task.priority, [(name, rank) for rank, name in enumerate(PRIORITIES)])
OPEN = Task.status != "done"
NO_DATE = Task.due_date.is_null()
OPEN_WITH_DATE = OPEN & Task.due_date.is_null(False)

# Each common filter and order is read from one index that ends in the id: no sorting, no scanning.
for _name, _columns in {
    "task_project": (Task.project, Task.id),
    "task_status": (Task.status, Task.id),
    "task_assignee": (Task.assignee, Task.id),
    "task_milestone": (Task.milestone, Task.id),
    "task_project_status": (Task.project, Task.status, Task.id),
    "task_assignee_status": (Task.assignee, Task.status, Task.id),
    "task_priority": (PRIORITY_RANK, Task.id),
    "task_due_last": (Task.due_date, Task.id),
    "task_due_first": (NO_DATE, Task.due_date, Task.id),
    "task_created": (Task.created_at, Task.id),
    "task_updated": (Task.updated_at, Task.id),
}.items():
    Task.add_index(ModelIndex(Task, _columns, name=_name))
# The context's urgent tasks, and each project's overdue ones, among millions that are done.
Task.add_index(Task.due_date, Task.id, where=OPEN_WITH_DATE, name="task_overdue")
Task.add_index(Task.project, Task.due_date, where=OPEN_WITH_DATE, name="task_project_overdue")
Task.add_index(NO_DATE, Task.due_date, Task.id, where=OPEN & (Task.priority == "urgent"), name="task_urgent")


def pagination(total: int, limit: int, offset: int, found: int) -> Row:
    """What a page says of the whole list, where one row more than the page holds was looked for."""
    more = found > limit
    return {
        "total": min(total, COUNT_LIMIT),
        "total_exact": total <= COUNT_LIMIT,
        "limit": limit,
        "offset": offset,
        "has_more": more,
        "next_offset": offset + limit if more else None,
    }


def searchable(title: str, description: str | None) -> str:
    """What a search looks in; the unit separator keeps a match from spanning both texts."""
    return fold(title) + "\x1f" + fold(description or "")


class Comment(Identified):
    task = ForeignKeyField(Task, on_delete="CASCADE", index=False)
    author = ForeignKeyField(Member, index=False)
    content = TextField()
    created_at = TextField()

    @classmethod
    def of(cls, task_id: str) -> list[Row]:
        """All comments of the task, oldest first."""
        Task.stored(task_id)
        return COMMENTS.all(task_id=task_id)

    @classmethod
    def add(cls, transaction: Transaction, task_id: str, *, content: str) -> tuple[Row, Row]:
        """Comment on a task; returns the comment and the task."""
        task = Task.stored(task_id)
        id = new_id()
        insertion(Comment).run(
            id=id,
            task_id=task["id"],
            author_id=transaction.actor["id"],
            content=content,
            created_at=transaction.at,
        )
        Activity.record(transaction, "created", "comment", id, task["title"])
        return COMMENT.existing(id=id), task


Comment.add_index(Comment.task, Comment.id, name="comment_task")


class Attachment(Identified):
    task = ForeignKeyField(Task, on_delete="CASCADE", index=False)
    filename = TextField()
    content_type = TextField()
    size = IntegerField()
    created_by = ForeignKeyField(Member, column_name="created_by", object_id_name="creator_id", index=False)
    created_at = TextField()

    @classmethod
    def of(cls, task_id: str) -> list[Row]:
        """The descriptions of the task's attachments, oldest first."""
        Task.stored(task_id)
        return TASK_ATTACHMENTS.all(id=task_id)

    @classmethod
    def fetch(cls, task_id: str, id: str) -> Row:
        """The description of an attachment of this task, and of no other."""
        row = row_of(cls).one(id=id)
        return row if row and row["task_id"] == task_id else not_found("attachment")

    @classmethod
    def content(cls, task_id: str, id: str) -> tuple[Row, bytes]:
        row, data = cls.fetch(task_id, id), ATTACHMENT_DATA.value(id=id)
        return row, not_found("attachment") if data is None else data  # it may go between the two

    @classmethod
    def add(
        cls, transaction: Transaction, task_id: str, *, filename: str, content_type: str, data: bytes
    ) -> Row:
        task = Task.stored(task_id)
        described = {"filename": filename, "content_type": content_type, "size": len(data)}
        row: Row = {"id": new_id(), "task_id": task_id, **described}
        row |= {"created_by": transaction.actor["id"], "created_at": transaction.at}
        insertion(cls).run(**row)
        AttachmentContent.add(row["id"], data)
        cls._record(transaction, task, [None, filename])
        return row

    @classmethod
    def remove(cls, transaction: Transaction, task_id: str, id: str) -> None:
        row = cls.fetch(task_id, id)
        deletion(cls).run(id=id)
        cls._record(transaction, Task.stored(task_id), [row["filename"], None])

    @classmethod
    def _record(cls, transaction: Transaction, task: Row, names: list[str | None]) -> None:
        Activity.record(transaction, "updated", "task", task["id"], task["title"], {"attachment": names})


Attachment.add_index(Attachment.task, Attachment.id, name="attachment_task")


class AttachmentContent(Base):
    """The bytes, apart from their description, so that a list never reads them."""

    attachment = ForeignKeyField(Attachment, primary_key=True, on_delete="CASCADE")
    data = BlobField()

    @classmethod
    def add(cls, attachment_id: str, data: bytes) -> None:
        """Store the bytes without binding them: a statement kept for reuse keeps its parameters too."""
        rowid = EMPTY_CONTENT.run(attachment_id=attachment_id, size=len(data))
        with db.connection().blobopen("attachment_content", "data", rowid) as blob:
            blob.write(data)


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

    @classmethod
    def of(cls, member_id: str) -> list[Row]:
        """The member's meetings: the next upcoming first, then the past ones, newest first."""
        rows, participants = MEETINGS.all(member_id=member_id), MEETING_PARTICIPANTS.all(member_id=member_id)
        meetings = _complete_meetings(rows, participants)
        coming = [m for m in meetings if m["when"] == "upcoming"]
        past = [m for m in meetings if m["when"] == "past"]
        return coming + past[::-1]

    @classmethod
    def fetch(cls, id: str) -> Row:
        row = MEETING.one(id=id) or not_found(cls.NOUN)
        return _complete_meetings([row], PARTICIPANTS.all(id=id))[0]

    @classmethod
    def check(cls, row: Row) -> None:
        if row.get("ends_at") and row["ends_at"] < row["starts_at"]:
            raise Invalid(("ends_at", "must not be before starts_at"))

    @classmethod
    def add(cls, transaction: Transaction, *, participant_ids: list[str] | None = None, **fields: Any) -> Row:
        """A new meeting, which the caller organizes."""
        row = cls.insert_row(transaction, organizer_id=transaction.actor["id"], **fields)
        Participant.replace_all(row["id"], [], participant_ids or [])
        return cls.fetch(row["id"])

    @classmethod
    def edit(
        cls, transaction: Transaction, id: str, fields: Row, also: Row | None = None, **written: Any
    ) -> Row:
        """Change what was sent; participants are replaced as a whole. Raises `Forbidden`."""
        cls._by_organizer(transaction, cls.stored(id))
        if "participant_ids" in fields:
            held = [row["member"]["id"] for row in PARTICIPANTS.all(id=id)]
            wanted = fields.pop("participant_ids") or []
            if set(wanted) != set(held):
                Participant.replace_all(id, held, wanted)
                also = {"participant_ids": [held, wanted]}
        return super().edit(transaction, id, fields, also)

    @classmethod
    def remove(cls, transaction: Transaction, id: str) -> Row:
        cls._by_organizer(transaction, cls.stored(id))
        return super().remove(transaction, id)

    @classmethod
    def _by_organizer(cls, transaction: Transaction, row: Row) -> None:
        if transaction.actor["role"] not in ADMINS and transaction.actor["id"] != row["organizer_id"]:
            raise Forbidden("only its organizer, an owner or an admin may change or delete a meeting")


def _complete_meetings(rows: list[Row], participants: list[Row]) -> list[Row]:
    at = now()
    meetings = {row["id"]: row for row in rows}
    for meeting in rows:
        over = (meeting["ends_at"] or meeting["starts_at"]) <= at
        meeting |= {"participants": [], "when": "past" if over else "upcoming"}
    for row in participants:
        if row["meeting_id"] in meetings:  # or else it was made since the meetings were read
            meetings[row["meeting_id"]]["participants"].append(row["member"])
    return rows


class Participant(Base):
    meeting = ForeignKeyField(Meeting, on_delete="CASCADE", index=False)
    member = ForeignKeyField(Member)

    class Meta:
        primary_key = CompositeKey("meeting", "member")

    @classmethod
    def replace_all(cls, meeting_id: str, held: list[str], wanted: list[str]) -> None:
        """Make the wanted members the meeting's participants, and no longer those held.

        Raises `Invalid` for who is no member, but for those held, who may have left since.
        """
        ids = list(dict.fromkeys(wanted))
        problems = [
            (f"participant_ids.{n}", "no such member")
            for n, id in enumerate(wanted)
            if id not in held and not MEMBER.one(id=id)
        ]
        if problems:
            raise Invalid(*problems)
        FORGET_PARTICIPANTS.run(meeting_id=meeting_id)
        insertion(cls).run_many({"meeting_id": meeting_id, "member_id": id} for id in ids)


class Whiteboard(Resource):
    title = TextField()
    project = ForeignKeyField(Project, null=True, on_delete="SET NULL")
    content = JSONText()
    updated_by = ForeignKeyField(Member, column_name="updated_by", object_id_name="editor_id", index=False)
    created_at = TextField()
    updated_at = TextField()

    NOUN = "whiteboard"

    @classmethod
    def latest(cls, most: int = 10) -> list[Row]:
        """The whiteboards updated last, without their content; -1 for all of them."""
        return LATEST_WHITEBOARDS.all(most=most)

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """The activity does not keep contents, which may be large."""
        told = {name: [None, None] if name == "content" else pair for name, pair in (changes or {}).items()}
        super().record(transaction, action, row, told)

    @classmethod
    def add(cls, transaction: Transaction, **fields: Any) -> Row:
        return super().add(transaction, **{"content": "{}", **fields, "updated_by": transaction.actor["id"]})

    @classmethod
    def edit(
        cls, transaction: Transaction, id: str, fields: Row, also: Row | None = None, **written: Any
    ) -> Row:
        return super().edit(transaction, id, fields, updated_by=transaction.actor["id"])


Whiteboard.add_index(Whiteboard.updated_at, Whiteboard.id, name="whiteboard_updated")


class Activity(Identified):
    """What was done: a row per change, written in the change's transaction."""

    actor = ForeignKeyField(Member, index=False)
    action = TextField()  # created, updated, moved (a task's status), deleted
    entity = TextField()  # task, project, comment, meeting, whiteboard, member
    entity_id = TextField()
    title = TextField()
    changes = JSONText()
    request_id = TextField()
    created_at = TextField()

    @classmethod
    def record(
        cls,
        transaction: Transaction,
        action: str,
        entity: str,
        entity_id: str,
        title: str,
        changes: Row | None = None,
    ) -> None:
        insertion(Activity).run(
            id=new_id(),
            actor_id=transaction.actor["id"],
            action=action,
            entity=entity,
            entity_id=entity_id,
            title=title,
            changes=to_json({name: [*map(_brief, pair)] for name, pair in (changes or {}).items()}).decode(),
            request_id=transaction.request_id,
            created_at=transaction.at,
        )

    @classmethod
    def recent(cls, most: int = 5) -> list[Row]:
        return RECENT_ACTIVITY.all(most=most)

    @classmethod
    def prune(cls, days: float, most: int = 500) -> int:
        """Drop some activity that is older than so many days; returns how much."""
        before = uuid7((epoch_ms() - round(days * 86_400_000)) * TICKS, 0)  # ids hold their time
        return PRUNE_ACTIVITY.run(before=before, most=most)


def _brief(value: Any) -> Any:
    """The value as the activity keeps it: of one that is long, how long it is."""
    text = to_json(value)
    return JSON(text.decode()) if len(text) <= MAX_CHANGE else {"omitted_bytes": len(text)}


SHOWN = Activity.action != "deleted"
Activity.add_index(Activity.id, where=SHOWN, name="activity_shown")


class Flow(Base):
    """A managed flow of the agent gateway; its times are epoch milliseconds, as they are sent."""

    seq = AutoField()
    id = TextField(unique=True)
    owner = TextField()  # the session key of the routes that may see it
    sync_mode = TextField()
    controller_id = TextField()
    goal = TextField()
    status = TextField()
    notify_policy = TextField()
    revision = IntegerField()
    current_step = TextField(null=True)
    state_json = JSONText(null=True)  # null was never set; JSON's null is the text "null"
    wait_json = JSONText(null=True)
    blocked_task_id = TextField(null=True)
    blocked_summary = TextField(null=True)
    cancel_requested_at = IntegerField(null=True)
    ended_at = IntegerField(null=True)
    created_at = IntegerField()
    updated_at = IntegerField()

    TERMINAL = ("succeeded", "failed", "cancelled", "lost")

    @classmethod
    def find(cls, owner: str, id: str) -> Row | None:
        """The owner's flow; another's is as one that does not exist."""
        return FLOW.one(owner=owner, id=id)

    @classmethod
    def of(cls, owner: str) -> list[Row]:
        """The owner's flows, newest first, of one moment in the order in which they were made."""
        return FLOWS.all(owner=owner)

    @classmethod
    def add(cls, owner: str, **fields: Any) -> Row:
        id = str(uuid.uuid4())
        at = epoch_ms()
        row = {"status": "queued", "notify_policy": "done_only", **fields}
        insertion(Flow).run(
            id=id, owner=owner, sync_mode="managed", revision=0, created_at=at, updated_at=at, **row
        )
        return FLOW.existing(owner=owner, id=id)

    @classmethod
    def swap(cls, flow: Row, at: int, **fields: Any) -> Row:
        """Write these columns as the flow's next revision: compare-and-swap in one statement."""
        fields |= {"revision": flow["revision"] + 1, "updated_at": at}
        held = {"id": flow["id"], "held_owner": flow["owner"], "held_revision": flow["revision"]}
        if flow_update(tuple(sorted(fields))).run(**fields, **held) != 1:
            raise Conflict("the flow has changed since it was read")
        return FLOW.existing(owner=flow["owner"], id=flow["id"])

    @classmethod
    def prune(cls, days: float, most: int = 100) -> int:
        """Drop some flows, with their tasks, that ended so many days ago; returns how many."""
        return PRUNE_FLOWS.run(before=epoch_ms() - round(days * 86_400_000), most=most)

    @classmethod
    def prune_idle(cls, days: float, most: int = 100) -> int:
        """Drop some flows, with their tasks, that have not ended and were not heard of for so many days."""
        return PRUNE_IDLE_FLOWS.run(before=epoch_ms() - round(days * 86_400_000), most=most)


Flow.add_index(Flow.owner, Flow.created_at, name="flow_owner")
Flow.add_index(Flow.ended_at, where=Flow.ended_at.is_null(False), name="flow_ended")
Flow.add_index(Flow.updated_at, where=Flow.ended_at.is_null(), name="flow_idle")


class FlowTask(Base):
    """A child task of a managed flow, as its caller reports it; nothing here runs it."""

    seq = AutoField()
    id = TextField(unique=True)
    flow = ForeignKeyField(Flow, column_name="flow_seq", object_id_name="flow_seq", on_delete="CASCADE")
    runtime = TextField()
    source_id = TextField(null=True)
    child_session_key = TextField(null=True)
    parent_task_id = TextField(null=True)
    agent_id = TextField(null=True)
    run_id = TextField(null=True)
    label = TextField(null=True)
    task = TextField()
    status = TextField()
    notify_policy = TextField()
    progress_summary = TextField(null=True)
    error = TextField(null=True)
    terminal_summary = TextField(null=True)
    terminal_outcome = TextField(null=True)
    created_at = IntegerField()
    started_at = IntegerField(null=True)
    last_event_at = IntegerField()
    ended_at = IntegerField(null=True)
    cleanup_after = IntegerField(null=True)

    @classmethod
    def of(cls, flow: Row) -> list[Row]:
        """The flow's tasks in the order in which they were made."""
        return FLOW_TASKS.all(flow_seq=flow["seq"])

    @classmethod
    def add(cls, flow: Row, **fields: Any) -> Row:
        id = str(uuid.uuid4())
        insertion(FlowTask).run(id=id, flow_seq=flow["seq"], **fields)
        return row_of(cls).existing(id=id)

    @classmethod
    def fill(cls, row: Row, **fields: Any) -> Row:
        """Write these columns of the task."""
        if fields:
            update_of(cls, tuple(sorted(fields))).run(id=row["id"], **fields)
        return row_of(cls).existing(id=row["id"])

    @classmethod
    def cancel_open(cls, flow: Row, at: int, keep_until: int) -> None:
        """Cancel what is queued or running of the flow's tasks."""
        CANCEL_FLOW_TASKS.run(flow_seq=flow["seq"], at=at, keep_until=keep_until)


TABLES = [
    Member,
    Invitation,
    ApiKey,
    StoredAnswer,
    Project,
    ProjectStats,
    Milestone,
    Task,
    Comment,
    Attachment,
    AttachmentContent,
    Meeting,
    Participant,
    Whiteboard,
    Activity,
    Flow,
    FlowTask,
]


# Statements, each built once ------------------------------------------------------------------


def not_found(noun: str) -> Any:
    raise NotFound(noun)


def sorted_by(rows: list[Row], name: str) -> list[Row]:
    return sorted(rows, key=lambda row: (fold(row[name]), row["id"]))


def differences(stored: Row, fields: Row) -> Row:
    """The fields whose new value differs from the stored one: `{field: [old, new]}`."""
    changes: Row = {}
    for name, new in fields.items():
        old = stored[name]
        if old != new:
            changes[name] = [old, JSON(new) if isinstance(old, JSON) else new]
    return changes


def update_row(
    model: type[Identified], transaction: Transaction, id: str, values: Row, names: Iterable[str]
) -> None:
    """Write these columns and `updated_at`, and no other."""
    written = {name: values[name] for name in names} | {"updated_at": transaction.at}
    update_of(model, tuple(sorted(written))).run(id=id, **written)


def _check_references(
    fields: Row, unfit: Callable[[Row], Iterable[tuple[str, str]]] = lambda found: ()
) -> None:
    """Raises `Invalid` for every field that refers to what does not exist, and for what is unfit.

    `unfit` gets the rows that the fields refer to, None for one that there is not.
    """
    found = {
        name: statement.one(id=fields[name])
        for name, (_, statement) in REFERENCES.items()
        if fields.get(name) is not None
    }
    problems = [(name, f"no such {REFERENCES[name][0]}") for name, row in found.items() if row is None]
    problems += unfit(found)
    if problems:
        raise Invalid(*problems)


def _with_stats(project: Row) -> Row:
    counts = {status: project.pop(status) for status in STATUSES}
    total = sum(counts.values())
    rate = round(counts["done"] / total, 4) if total else 0.0
    overdue = project.pop("overdue")
    project["stats"] = {"total": total, **counts, "overdue": overdue, "completion_rate": rate}
    return project


KIND = Case(Member.role, [("client", "client")], "team").alias("kind")
MEMBER_COLUMNS = [*columns(Member), KIND]
LISTED = Member.status != "removed"
MEMBER = Statement(Member.select(*MEMBER_COLUMNS).where(LISTED, Member.id == placeholder("id")))
MEMBER_BY_EMAIL = Statement(
    Member.select(*MEMBER_COLUMNS).where(LISTED, Member.email == placeholder("email"))
)
MEMBERS = Statement(Member.select(*MEMBER_COLUMNS).where(LISTED))
TEAM = Statement(
    Member.select(*MEMBER_COLUMNS).where(Member.status == Member.ACTIVE, Member.role != "client")
)
FIRST_OWNER = Statement(
    Member.select(*MEMBER_COLUMNS)
    .where(Member.status == Member.ACTIVE, Member.role == "owner")
    .order_by(Member.id)
    .limit(1)
)

OWNERS = Statement(
    Member.select(fn.COUNT(SQL("*"))).where(Member.status == Member.ACTIVE, Member.role == "owner")
)

INVITATION = Statement(
    Invitation.select(*columns(Invitation, "token_hash", "member_id"), *profile(Member, "member"))
    .join(Member, on=(Invitation.member == Member.id))
    .where(Invitation.token_hash == placeholder("token_hash"))
)
OPEN_INVITATION = (
    (Invitation.member == placeholder("member_id"))
    & Invitation.used_at.is_null()
    & Invitation.revoked_at.is_null()
)
REVOKE_INVITATIONS = Statement(
    Invitation.update({Invitation.revoked_at: placeholder("now")}).where(OPEN_INVITATION)
)
REVOKE_INVITATIONS_OF_OTHERS = Statement(
    Invitation.update({Invitation.revoked_at: placeholder("now")}).where(
        OPEN_INVITATION, Invitation.created_by != placeholder("actor_id")
    )
)

ALL_KEYS = (
    ApiKey.select(*columns(ApiKey, "hash", "member_id", "created_by"), *profile(Member, "member"))
    .join(Member, on=(ApiKey.member == Member.id))
    .order_by(ApiKey.id)
)
KEYS = Statement(ALL_KEYS)
KEY = Statement(ALL_KEYS.where(ApiKey.id == placeholder("id")))
REVOKE_KEYS = Statement(
    ApiKey.update({ApiKey.revoked_at: placeholder("now")}).where(
        ApiKey.member == placeholder("member_id"), ApiKey.revoked_at.is_null()
    )
)
REVOKE_KEYS_OF_OTHERS = Statement(
    ApiKey.update({ApiKey.revoked_at: placeholder("now")}).where(
        ApiKey.member == placeholder("member_id"),
        ApiKey.revoked_at.is_null(),
        ApiKey.created_by.is_null()
        | ApiKey.created_by.not_in([placeholder("member_id"), placeholder("actor_id")]),
    )
)
CALLER = Statement(
    ApiKey.select(
        Member.id,
        Member.full_name,
        Member.email,
        Member.role,
        ApiKey.scope,
        ApiKey.id.alias("key_id"),
        ApiKey.expires_at.alias("key_expires_at"),
        ApiKey.created_by.alias("key_created_by"),
    )
    .join(Member, on=(ApiKey.member == Member.id))
    .where(
        ApiKey.hash == placeholder("hash"),
        ApiKey.revoked_at.is_null(),
        ApiKey.expires_at.is_null() | (ApiKey.expires_at > placeholder("now")),
        Member.status == Member.ACTIVE,
    )
)

SAME_KEY = (StoredAnswer.api_key == placeholder("api_key_id")) & (
    StoredAnswer.idempotency_key == placeholder("idempotency_key")
)
STORED_ANSWER = Statement(
    StoredAnswer.select(*columns(StoredAnswer)).where(
        SAME_KEY, StoredAnswer.created_at > placeholder("after")
    )
)
FORGET_ANSWER = Statement(StoredAnswer.delete().where(SAME_KEY))
PRUNE_ANSWERS = Statement(StoredAnswer.delete().where(StoredAnswer.created_at < placeholder("before")))

OVERDUE = OPEN & (Task.due_date < placeholder("now"))
ALL_PROJECTS = (
    Project.select(
        *columns(Project, "owner_id"),
        ProjectStats.todo,
        ProjectStats.in_progress,
        ProjectStats.review,
        ProjectStats.done,
        Task.select(fn.COUNT(SQL("*"))).where(Task.project == Project.id, OVERDUE).alias("overdue"),
        *profile(Member, "owner"),
    )
    .join(ProjectStats, on=(ProjectStats.project == Project.id))
    .join(Member, on=(Project.owner == Member.id))
)
PROJECT = Statement(ALL_PROJECTS.where(Project.id == placeholder("id")))
PROJECTS = Statement(ALL_PROJECTS)
PROJECTS_BY_STATUS = Statement(ALL_PROJECTS.where(Project.status == placeholder("status")))
PROJECT_TASK_IDS = Statement(Task.select(Task.id).where(Task.project == placeholder("id")).order_by(Task.id))

SHIFT_STATS = Statement(
    ProjectStats.update(
        {field: field + placeholder(field.name) for field in map(ProjectStats._meta.fields.get, STATUSES)}
    ).where(ProjectStats.project == placeholder("project_id"))
)
KEPT_STATS = Statement(ProjectStats.select())
COUNTED_STATS = Statement(
    Project.select(
        Project.id.alias("project_id"),
        *[
            fn.COALESCE(fn.SUM(Case(None, [(Task.status == status, 1)], 0)), 0).alias(status)
            for status in STATUSES
        ],
    )
    .join(Task, JOIN.LEFT_OUTER, on=(Task.project == Project.id))
    .group_by(Project.id)
)

MILESTONES = Statement(
    Milestone.select(*columns(Milestone))
    .where(Milestone.project == placeholder("project_id"))
    .order_by(Milestone.due_date.is_null(), Milestone.due_date, Milestone.id)
)

Assignee, Creator = Member.alias("assignee"), Member.alias("creator")
TASK_COLUMNS = columns(Task, "search")
TASK = Statement(Task.select(*TASK_COLUMNS).where(Task.id == placeholder("id")))
TASK_DETAIL = Statement(
    Task.select(
        *TASK_COLUMNS,
        Comment.select(fn.COUNT(SQL("*"))).where(Comment.task == Task.id).alias("comment_count"),
        fn.EXISTS(Attachment.select(Attachment.id).where(Attachment.task == Task.id)).alias("attachments"),
        *group(Project, "project", "id", "name", "status", "owner_id"),
        *group(Milestone, "milestone", "id", "title", "due_date"),
        *profile(Assignee, "assignee"),
        *profile(Creator, "creator"),
    )
    .join(Project, on=(Task.project == Project.id))
    .join(Milestone, JOIN.LEFT_OUTER, on=(Task.milestone == Milestone.id))
    .join(Assignee, JOIN.LEFT_OUTER, on=(Task.assignee == Assignee.id))
    .join(Creator, JOIN.LEFT_OUTER, on=(Task.created_by == Creator.id))
    .where(Task.id == placeholder("id"))
)
TASK_ATTACHMENTS = Statement(
    Attachment.select(*columns(Attachment))
    .where(Attachment.task == placeholder("id"))
    .order_by(Attachment.id)
)
EMPTY_CONTENT = Insertion(AttachmentContent, data=fn.ZEROBLOB(placeholder("size")))
ATTACHMENT_DATA = Statement(
    AttachmentContent.select(AttachmentContent.data).where(AttachmentContent.attachment == placeholder("id"))
)


def _leaving(field: Any, name: str) -> Statement:
    """UPDATE of the tasks that refer to what goes: each is a new version without it."""
    changed = {field: None, Task.version: Task.version + 1, Task.updated_at: placeholder("now")}
    return Statement(Task.update(changed).where(field == placeholder(name)))


LEAVE_MILESTONE = _leaving(Task.milestone, "milestone_id")
UNASSIGN_TASKS = _leaving(Task.assignee, "member_id")

# What a field that refers to something must name.
REFERENCES = {
    "project_id": ("project", row_of(Project)),
    "milestone_id": ("milestone", row_of(Milestone)),
    "assignee_id": ("member", MEMBER),
    "owner_id": ("member", MEMBER),
}

# What a list of tasks can be filtered by: the condition, and what becomes of the value.
FILTERS: dict[str, tuple[Expression, Any]] = {
    "project_id": (Task.project == placeholder("project_id"), str),
    "milestone_id": (Task.milestone == placeholder("milestone_id"), str),
    "status": (Task.status == placeholder("status"), str),
    "assignee_id": (Task.assignee == placeholder("assignee_id"), str),
    "priority": (placeholder("priority") == PRIORITY_RANK, PRIORITIES.index),
    "due_before": (Task.due_date < placeholder("due_before"), str),
    "updated_since": (Task.updated_at >= placeholder("updated_since"), str),
    "q": (fn.INSTR(Task.search, placeholder("q")) > 0, fold),
}

# The orders of a list of tasks; ties go by id in the same direction, tasks without a date last.
SORTS: dict[str | None, list] = {
    None: [Task.id.desc()],
    "created_at": [Task.created_at, Task.id],
    "-created_at": [Task.created_at.desc(), Task.id.desc()],
    "updated_at": [Task.updated_at, Task.id],
    "-updated_at": [Task.updated_at.desc(), Task.id.desc()],
    "due_date": [NO_DATE, Task.due_date, Task.id],
    "-due_date": [Task.due_date.desc(), Task.id.desc()],
    "priority": [PRIORITY_RANK, Task.id],
    "-priority": [PRIORITY_RANK.desc(), Task.id.desc()],
}


def task_ids(filters: frozenset[str], sort: str | None) -> Query:
    """The ids of one page, which an index alone gives for the common filters and every order."""
    query = Task.select(Task.id).order_by(*SORTS[sort])
    if filters:
        query = query.where(*[FILTERS[name][0] for name in sorted(filters)])
    return query.limit(placeholder("limit")).offset(placeholder("offset"))


@lru_cache(maxsize=256)
def task_page(filters: frozenset[str], sort: str | None) -> Statement:
    """A page's tasks: its ids first, so that rows are read for these alone."""
    ids = task_ids(filters, sort)
    return Statement(Task.select(*TASK_COLUMNS).where(Task.id.in_(ids)).order_by(*SORTS[sort]))


@lru_cache(maxsize=256)
def task_total(filters: frozenset[str]) -> Statement:
    """How many tasks pass: from the counters where these know, else counted no further than needed."""
    if filters <= {"project_id", "status"}:
        kept = [(status, getattr(ProjectStats, status)) for status in STATUSES]
        every = ProjectStats.todo + ProjectStats.in_progress + ProjectStats.review + ProjectStats.done
        counter = Case(placeholder("status"), kept) if "status" in filters else every
        query = ProjectStats.select(fn.SUM(counter))
        if "project_id" in filters:
            query = query.where(ProjectStats.project == placeholder("project_id"))
        return Statement(query)
    conditions = [FILTERS[name][0] for name in sorted(filters)]
    some = Task.select(SQL("1")).where(*conditions).limit(COUNT_LIMIT + 1)
    return Statement(Task.select(fn.COUNT(SQL("*"))).from_(some))


def _urgent_tasks(condition: Expression, *order: Any) -> Statement:
    ids = Task.select(Task.id).where(condition).order_by(*order).limit(placeholder("most"))
    return Statement(
        Task.select(
            *TASK_COLUMNS, Project.name.alias("project_name"), Assignee.full_name.alias("assignee_name")
        )
        .join(Project, on=(Task.project == Project.id))
        .join(Assignee, JOIN.LEFT_OUTER, on=(Task.assignee == Assignee.id))
        .where(Task.id.in_(ids))
        .order_by(*order)
    )


OVERDUE_TASKS = _urgent_tasks(OVERDUE, Task.due_date, Task.id)
URGENT_TASKS = _urgent_tasks(
    OPEN & (Task.priority == "urgent") & (NO_DATE | (Task.due_date >= placeholder("now"))),
    NO_DATE,
    Task.due_date,
    Task.id,
)

ALL_COMMENTS = (
    Comment.select(*columns(Comment), *profile(Member, "author"))
    .join(Member, on=(Comment.author == Member.id))
    .order_by(Comment.id)
)
COMMENTS = Statement(ALL_COMMENTS.where(Comment.task == placeholder("task_id")))
COMMENT = Statement(ALL_COMMENTS.where(Comment.id == placeholder("id")))

ATTENDED = (Meeting.organizer == placeholder("member_id")) | Meeting.id.in_(
    Participant.select(Participant.meeting).where(Participant.member == placeholder("member_id"))
)
ALL_MEETINGS = Meeting.select(*columns(Meeting, "organizer_id"), *profile(Member, "organizer")).join(
    Member, on=(Meeting.organizer == Member.id)
)
MEETING = Statement(ALL_MEETINGS.where(Meeting.id == placeholder("id")))
MEETINGS = Statement(ALL_MEETINGS.where(ATTENDED).order_by(Meeting.starts_at, Meeting.id))
ALL_PARTICIPANTS = (
    Participant.select(Participant.meeting, *profile(Member, "member"))
    .join(Member, on=(Participant.member == Member.id))
    .order_by(Participant.meeting, Member.full_name, Member.id)
)
PARTICIPANTS = Statement(ALL_PARTICIPANTS.where(Participant.meeting == placeholder("id")))
MEETING_PARTICIPANTS = Statement(
    ALL_PARTICIPANTS.where(Participant.meeting.in_(Meeting.select(Meeting.id).where(ATTENDED)))
)
FORGET_PARTICIPANTS = Statement(Participant.delete().where(Participant.meeting == placeholder("meeting_id")))

LATEST_WHITEBOARDS = Statement(
    Whiteboard.select(
        Whiteboard.id, Whiteboard.title, Whiteboard.project, Whiteboard.updated_at, Whiteboard.updated_by
    )
    .order_by(Whiteboard.updated_at.desc(), Whiteboard.id.desc())
    .limit(placeholder("most"))
)


NEWEST_ACTIVITY = Statement(Activity.select(fn.MAX(Activity.id)))  # which each change ends with
RECENT_ACTIVITY = Statement(
    Activity.select(*columns(Activity, "actor_id", "request_id"), *profile(Member, "actor"))
    .join(Member, on=(Activity.actor == Member.id))
    .where(SHOWN)
    .order_by(Activity.id.desc())
    .limit(placeholder("most"))
)


PRUNE_ACTIVITY = deletion_of_some(Activity.id, Activity.id < placeholder("before"))

OWNED = Flow.owner == placeholder("owner")
FLOW = Statement(Flow.select(*columns(Flow)).where(OWNED, Flow.id == placeholder("id")))
FLOWS = Statement(Flow.select(*columns(Flow)).where(OWNED).order_by(Flow.created_at.desc(), Flow.seq))
ENDED_BEFORE = (Flow.ended_at < placeholder("before")) & Flow.status.in_(list(Flow.TERMINAL))
HEARD_SINCE = FlowTask.select(SQL("1")).where(
    FlowTask.flow == Flow.seq, FlowTask.last_event_at >= placeholder("before")
)
IDLE_SINCE = Flow.ended_at.is_null() & (Flow.updated_at < placeholder("before")) & ~fn.EXISTS(HEARD_SINCE)


PRUNE_FLOWS = deletion_of_some(Flow.seq, ENDED_BEFORE)
PRUNE_IDLE_FLOWS = deletion_of_some(Flow.seq, IDLE_SINCE)
FLOW_TASKS = Statement(
    FlowTask.select().where(FlowTask.flow == placeholder("flow_seq")).order_by(FlowTask.seq)
)
CANCEL_FLOW_TASKS = Statement(
    FlowTask.update(
        {
            FlowTask.status: "cancelled",
            FlowTask.error: "Cancelled by operator.",
            FlowTask.ended_at: placeholder("at"),
            FlowTask.last_event_at: placeholder("at"),
            FlowTask.cleanup_after: placeholder("keep_until"),
        }
    ).where(FlowTask.flow == placeholder("flow_seq"), FlowTask.status.in_(["queued", "running"]))
)


@lru_cache(maxsize=64)
def flow_update(names: tuple[str, ...]) -> Statement:
    """UPDATE of these columns of a flow whose owner and revision are still those held."""
    fields = Flow._meta.columns
    return Statement(
        Flow.update({fields[name]: placeholder(name) for name in names}).where(
            Flow.id == placeholder("id"),
            Flow.owner == placeholder("held_owner"),
            Flow.revision == placeholder("held_revision"),
        )
    )
