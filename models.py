"""The tables of a workspace, each with its rules and its queries. Nothing here knows HTTP.

A query stands in the class that runs it, as a `statement`. Every change runs in `write()`; a
method that needs the actor or the time takes its `Transaction` first. A row has two forms:

    stored(id)  its columns            `stored_row`, of `select_stored()`
    shown(id)   as the API answers     `shown_row` and `shown_rows`, of `select_shown()`
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import accumulate, islice
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
    Base,
    ChoiceField,
    EncodedJSON,
    EncodedJSONField,
    Identified,
    Insertion,
    Joined,
    Row,
    Statement,
    caseless,
    columns,
    db,
    deletion_of_some,
    digest,
    fold,
    json_object,
    placeholder,
    rowid,
    statement,
    to_json,
)
from errors import Conflict, Forbidden, Gone, Invalid, KeyReused, NotFound, PreconditionFailed, not_found
from times import epoch_ms, first_id, follow_clock, new_id, new_request_id, now, wire_time

STATUSES = ("todo", "in_progress", "review", "done")
PRIORITIES = ("low", "medium", "high", "urgent")
MAX_LABELS = 10  # of a task
DEFAULT_PRIORITY = "medium"
SEARCHED = ("title", "description")  # a task's texts
# What a copy of a task has too, with the labels.
PLANNED = ["project_id", "milestone_id", "title", "description", "priority", "assignee_id"]
PLANNED += ["start_date", "due_date", "metadata"]
HIDDEN = ("search", "label_keys", "due_told")  # a task's columns that no answer shows
ROLES = ("owner", "admin", "member", "client")
ADMINS = ROLES[:2]
PROFILE = ("id", "full_name", "email", "role")  # what events and answers show of a member
SCOPES = ("read", "agent", "write")  # each may do what those before it may
CALENDAR = "calendar"  # the scope of the key in a calendar link, which counts nowhere else
PROJECT_STATUSES = ("active", "archived")
REASONS: tuple[str, ...] = ("assigned", "mentioned", "commented", "question", "answered", "review")
REASONS += ("unblocked", "claim_ended", "due")
MAIL = ("at_once", "daily", "never")  # when a member gets digests
ENTITIES = ("task", "project", "comment", "meeting", "whiteboard", "member")  # that have activity
ACTIONS = ("created", "updated", "moved", "deleted")

Changed = tuple[Row, Row]  # a task, and what has changed: `{field: [old, new]}`

COUNT_LIMIT = 10_000  # a list's total is exact up to here
MAX_CLAIM = 1440  # minutes
MAX_CHANGE = 1024  # bytes, as JSON, of an old or new value in an activity
MAX_BLOCKERS = 20  # tasks that block one
MAX_BLOCKING = 100  # characters of their titles in an event
MAX_MENTIONS = 50  # signs @ of a comment that are looked at
MAX_LISTED = 1000  # characters of a project's description in a list, and of a meeting's in a calendar
MAX_LISTED_COMMENTS = 4 * 1024 * 1024  # characters of the comments in a list, except for a single one
KEY_PREFIX = "tms_"
SESSION_DAYS = 30.0
SIGN_IN_DAYS = 1.0  # for which a sign-in link is valid
MAILED_SECONDS = 900.0  # for which one is valid that is only mailed
MAX_MAILED = 3  # of these, while a member has not got as many links in an hour


def permit(member: Row, role: str) -> None:
    """Raise `Forbidden` unless the member has at least this role."""
    allowed = ROLES[: ROLES.index(role) + 1]
    if member["role"] not in allowed:
        raise Forbidden(f"your role is {member['role']}; this takes {' or '.join(allowed)}")


# Writing --------------------------------------------------------------------------------------


class Transaction:
    """A write: who makes it, when, in which request, and which deliveries it leaves to be sent."""

    tells = True  # members, of what is done

    def __init__(self, actor: Row, request_id: str):
        self.at = wire_time(epoch_ms())
        self.actor = actor
        self.request_id = request_id
        self.deliveries: list[str] = []  # leased, to be sent by the request after the commit
        self.left_to_sweeper = 0  # deliveries

    def new_id(self) -> str:
        return new_id()

    @property
    def actor_profile(self) -> Row | None:
        """The actor as events and answers show members; None for what time has brought."""
        return {name: self.actor[name] for name in PROFILE} if self.actor else None

    @property
    def makers(self) -> str:
        """The ids of those who make a new key or link: the actor, and the makers of the key in use."""
        id, others = self.actor["id"], self.actor.get("key_makers") or ""
        return others if id in others else f"{others} {id}".strip()


@contextmanager
def write(actor: Row | None = None, request_id: str = "", *, first: bool = False) -> Iterator[Transaction]:
    """Run the body in a write transaction; of all processes, only one body runs at a time.

    Nothing may be sent over a network inside. `first` and what is raised are as in `Database.writing`.
    """
    with db.writing(first=first):
        if newest := Activity.newest.value():
            follow_clock(newest)
        transaction = Transaction(actor or {}, request_id or new_request_id())
        if newest and transaction.new_id() < newest:  # the clock was more than a day ahead
            Task.redating.run(now=transaction.at)
        yield transaction
        ApiKey.write_last_used()


def only_owner(transaction: Transaction, what: str) -> None:
    """Raise `Forbidden` unless the actor is an owner."""
    if transaction.actor["role"] != "owner":
        raise Forbidden(f"only an owner may {what}")


# Helpers of several tables --------------------------------------------------------------------


def profile(table: Any, key: str) -> Joined:
    """The profile of a joined member, as one object under `key`."""
    return Joined(table, key, *PROFILE)


def each(name: str) -> Query:
    """SELECT of the values in a parameter that is a JSON array."""
    return Select([fn.JSON_EACH(placeholder(name))], [SQL("value")])


def via() -> Any:
    """The name of a joined key; null for a session, which stands for the person."""
    return Case(None, [(ApiKey.is_session.is_null(), ApiKey.name)]).alias("via")


def with_member(field: Any, *hidden: str, key: Any = None) -> Any:
    """SELECT of the field's table without the hidden columns, with the profile of the member it refers to.

    With the column of a `key`, each row says `via` which one it was made.
    """
    table, selected = field.model, columns(field.model, *hidden, "key_id")
    if key:
        selected.append(via())
    rows = table.select(*selected, profile(Member, field.name)).join(Member, on=(field == Member.id))
    return rows.switch(table).join(ApiKey, JOIN.LEFT_OUTER, on=(key == ApiKey.id)) if key else rows


def sorted_by(rows: list[Row], name: str) -> list[Row]:
    """The rows in the order of a name, without regard to case and accents."""
    return sorted(rows, key=lambda row: (fold(row[name]), row["id"]))


def differences(stored: Row, fields: Row) -> Row:
    """The fields whose new value differs from the stored one: `{field: [old, new]}`."""
    return {
        name: [stored[name], EncodedJSON(new) if isinstance(stored[name], EncodedJSON) else new]
        for name, new in fields.items()
        if stored[name] != new
    }


def checkboxes(text: str | None) -> EncodedJSON | None:
    """The `done` and `total` number of the Markdown list items with a checkbox; null without any."""
    if not text or "[" not in text:
        return None
    marks = re.findall(r"(?m)^[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[([ xX])\][ \t]", text)
    counts = {"done": len(marks) - marks.count(" "), "total": len(marks)}
    return EncodedJSON(to_json(counts).decode()) if marks else None


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


class Entity(Identified):
    """A table whose rows the API shows."""

    NOUN: ClassVar[str]
    TITLE: ClassVar[str] = "title"  # the column whose value the activity shows

    @classmethod
    def select_shown(cls) -> Query:
        return cls.select_stored()

    @statement
    def shown_rows(cls: Any):
        return cls.select_shown()

    @statement
    def shown_row(cls: Any):
        return cls.select_shown().where(cls.id == placeholder("id"))

    @classmethod
    def stored(cls, id: str) -> Row:
        """The columns of the row. Raises `NotFound`."""
        return cls.stored_row.one(id=id) or not_found(cls.NOUN)

    @classmethod
    def shown(cls, id: str) -> Row:
        """The row as the API shows it. Raises `NotFound`."""
        return cls.shown_row.one(id=id) or not_found(cls.NOUN)

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """Note in the activity what the actor did; `changes` are `{field: [old, new]}`.

        With `is_hidden` in the row it is told by `/changes`, and not by the history.
        """
        id, task_id = row["id"], row["id"] if cls is Task else row.get("task_id")
        described = {"entity": cls.NOUN, "entity_id": id, "task_id": task_id, "title": row[cls.TITLE]}
        described |= {name: row.get(name) for name in ("number", "is_hidden")}
        Activity.add(transaction, changes or {}, action=action, **described)


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
        cls.insertion.run(**row)
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
        cls.deletion.run(id=id)
        cls.record(transaction, "deleted", row)


# People ---------------------------------------------------------------------------------------


class Member(Entity):
    full_name = TextField()
    email = TextField()
    role = ChoiceField(ROLES)
    phone_number = TextField(null=True)
    status = TextField()  # active, invited, removed
    joined_at = TextField(null=True)
    created_at = TextField()
    mail = ChoiceField(MAIL, constraints=[SQL("DEFAULT 'at_once'")])
    mail_at = TextField(constraints=[SQL("DEFAULT ''")])  # no digest is sent before
    mailed_until = TextField(constraints=[SQL("DEFAULT ''")])  # the newest notice that was in a digest
    mail_error = TextField(null=True)  # of the last mail: when, and why it was not taken

    NOUN, TITLE = "member", "full_name"
    ACTIVE = "active"

    @classmethod
    def select_stored(cls) -> Any:
        """Members who are not removed; those who are stay stored for the rows that refer to them."""
        return cls.select().where(cls.status != "removed")

    @classmethod
    def select_shown(cls) -> Query:
        kind = Case(cls.role, [("client", "client")], "team").alias("kind")
        return cls.select_stored().select(*columns(cls, "mail_at", "mailed_until", "mail_error"), kind)

    @statement
    def by_email(cls: Any):
        return cls.select_shown().where(cls.email == placeholder("email"))

    @statement
    def active_owners(cls: Any):
        return cls.select_shown().where(cls.status == cls.ACTIVE, cls.role == "owner").order_by(cls.id)

    @statement
    def to_tell(cls: Any):
        """A member to send a digest: of notices, made by `:until`, neither read nor seen on the page."""
        seen = ApiKey.select(fn.COALESCE(fn.MAX(ApiKey.last_used_at), ""))
        seen = seen.where(ApiKey.member == cls.id, ApiKey.is_started)
        is_new = Notice.read_at.is_null() & (Notice.id > cls.mailed_until) & (Notice.created_at > seen)
        is_new &= (Notice.member == cls.id) & (Notice.created_at <= placeholder("until"))
        may_be_told = (cls.status == cls.ACTIVE) & (cls.mail != "never") & (cls.mail_at <= placeholder("now"))
        news = fn.EXISTS(Notice.select(SQL("1")).where(is_new))
        return cls.select().select_extend(seen.alias("seen_at")).where(may_be_told, news).limit(SQL("1"))

    @statement
    def unreached(cls: Any):
        """The members whose last mail was not taken, since this time."""
        return cls.select_stored().where(cls.mail_error > placeholder("since")).order_by(cls.id)

    @classmethod
    def everyone(cls) -> list[Row]:
        """All members by name, including clients and members who are only invited."""
        return sorted_by(cls.shown_rows.all(), "full_name")

    @classmethod
    def team(cls) -> list[Row]:
        """The active members by name, without clients."""
        return [row for row in cls.everyone() if row["status"] == cls.ACTIVE and row["kind"] == "team"]

    @classmethod
    def mentioned(cls, text: str) -> list[str]:
        """The ids of the members whom a text names, by @ and the full name, or a team member's first name.

        A name that several members have names none of them.
        """
        text = caseless(text)
        places = [sign.end() for sign in islice(re.finditer(r"(?<![\w@])@(?=\w)", text), MAX_MENTIONS)]
        names: dict[str, list[str]] = {}
        firsts: dict[str, list[str]] = {}
        for row in cls.shown_rows.all() if places else ():
            name = caseless(row["full_name"])
            names.setdefault(name, []).append(row["id"])
            if row["kind"] == "team":
                firsts.setdefault(name.split()[0], []).append(row["id"])
        names, named = firsts | names, list[str]()
        for place in places:
            rest = text[place : place + 400]  # longer than any name
            ends = [end.end() for end in re.finditer(r"\S(?!\w)", rest)][::-1]
            ids = next((names[rest[:end]] for end in ends if rest[:end] in names), ())
            named += ids if len(ids) == 1 else ()
        return list(dict.fromkeys(named))

    @classmethod
    def active(cls, id: str) -> Row:
        """The member. Raises `Invalid` for an id that is not an active member's."""
        member = cls.stored_row.one(id=id)
        if member is None or member["status"] != cls.ACTIVE:
            raise Invalid(("member_id", "no such active member"))
        return member

    @classmethod
    def add(cls, transaction: Transaction, *, email: str, status: str, **fields: Any) -> Row:
        """Make a new member. Raises `Invalid` when another member has the address."""
        cls.check_free(email)
        id, at = transaction.new_id(), transaction.at
        joined_at = at if status == cls.ACTIVE else None
        row = {"mail": MAIL[0], "mail_at": "", "mailed_until": id, **fields, "id": id, "email": email}
        cls.insertion.run(**row, status=status, joined_at=joined_at, created_at=at)
        return cls.shown(id)

    @classmethod
    def bootstrap(cls, transaction: Transaction, *, full_name: str, email: str) -> Row:
        """Make the workspace's first owner, who becomes the transaction's actor."""
        owner = cls.add(transaction, full_name=full_name, email=email, role="owner", status=cls.ACTIVE)
        transaction.actor = owner
        cls.record(transaction, "created", owner)
        return owner

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row) -> Row:
        """Change a member. Members may change themselves, except the role; admins everybody.

        The address of a member who is no admin changes by a link, which is mailed to the new one. Raises
        `NotFound`; `Invalid` for another's address; `Forbidden`, also where another than an owner would
        give or take the role of owner; and `Conflict` where no owner would be left, or as `mail_to` does.
        """
        stored = cls.stored(id)
        changes = differences(stored, fields)
        old_role, new_role = changes.get("role", (None, None))
        if transaction.actor["role"] not in ADMINS and (new_role or id != transaction.actor["id"]):
            raise Forbidden("your own name and phone number you may change; the rest takes owner or admin")
        if "owner" in (old_role, new_role):
            only_owner(transaction, "make or unmake an owner")
            cls._keep_an_owner(stored)
        if "email" in changes:
            if stored["role"] == "owner":
                only_owner(transaction, "change an owner's address")
            if ApiKey.limit_of(transaction.actor):
                raise Forbidden("the key in use expires; who signs in by a new address would outlive it")
            cls.check_free(fields["email"])
            if transaction.actor["role"] not in ADMINS:
                Invitation.mail_to(transaction, id, new_email=changes.pop("email")[1])
        cls.change(transaction, stored, changes)
        if new_role:
            Credential.follow_role(transaction, id, old_role, new_role)
        return cls.shown(id)

    @classmethod
    def check_free(cls, email: str) -> None:
        """Raise `Invalid` for the address of a member."""
        if cls.by_email.one(email=email):
            raise Invalid(("email", "is already a member's"))

    @classmethod
    def change(cls, transaction: Transaction, stored: Row, changes: Row) -> None:
        """Store the changes; with a new address the links end that the old one got."""
        new = {name: value for name, (_, value) in changes.items()}
        if "email" in new:
            Invitation.revocation.run(member_id=stored["id"], now=transaction.at)
        if new:
            reset = {"mail_at": "", "mail_error": None} if new.keys() & {"email", "mail"} else {}
            cls.set_columns(stored["id"], **new | reset)
            cls.record(transaction, "updated", stored | new, changes)

    @classmethod
    def remove(cls, transaction: Transaction, id: str) -> Iterator[Changed]:
        """Hide the member, and revoke the keys and invitations; yields the tasks, which are nobody's then.

        Raises as `edit` does.
        """
        stored = cls.stored(id)
        if stored["role"] == "owner":
            only_owner(transaction, "remove an owner")
            cls._keep_an_owner(stored)
        cls.set_columns(id, status="removed")
        Credential.follow_role(transaction, id, stored["role"], None)
        cls.record(transaction, "deleted", stored)
        yield from Task.end_claims(transaction, id, "9999")
        yield from Task.clear(transaction, Task.assignee, id)

    @classmethod
    def _keep_an_owner(cls, stored: Row) -> None:
        """Raise `Conflict` when this is the last active owner."""
        if [owner["id"] for owner in cls.active_owners.all()] == [stored["id"]]:
            raise Conflict("the last owner cannot go; make another one first")


# The address of a removed member can be used again.
Member.add_index(Member.email, unique=True, where=(Member.status != "removed"), name="member_email")


class Credential(Entity):
    """A table of what lets a member in: keys, and links to join or to sign in."""

    member = ForeignKeyField(Member)
    makers = TextField(null=True)  # the ids in `Transaction.makers`; null where they are not known
    revoked_at = TextField(null=True)

    @statement
    def unrevoked(cls: Any):
        return cls.select().where(cls.revoked_at.is_null())

    @staticmethod
    def follow_role(transaction: Transaction, id: str, old: str, new: str | None) -> None:
        """Revoke keys and links after a change of a member's role; `new` is None for a removed member.

        A key that an admin made for a new owner would be an owner's key in the admin's hands. With a key
        that was made for somebody else, a member who lost rights would get them back.
        """
        trusted = {id, transaction.actor["id"]}
        loses_rights = new is None or ROLES.index(new) > ROLES.index(old)
        for table in (ApiKey, Invitation):
            for row in table.unrevoked.all():
                makers = set((row["makers"] or "unknown").split())
                if row["member_id"] == id:
                    is_dangerous = new is None or (new == "owner" and not makers <= trusted)
                else:
                    is_dangerous = loses_rights and id in makers
                if is_dangerous:
                    table.set_columns(row["id"], revoked_at=transaction.at)

    @classmethod
    def check_manager(cls, transaction: Transaction, holder: Row) -> None:
        """Raise `Forbidden` unless the actor may make and revoke those of this member."""
        if holder["id"] != transaction.actor["id"]:
            allowed = ("owner",) if holder["role"] == "owner" else ADMINS
            if transaction.actor["role"] not in allowed:
                managers = " or ".join(allowed)
                raise Forbidden(f"only an {managers} manages the {cls.NOUN}s of this {holder['role']}")

    @classmethod
    def store(cls, transaction: Transaction, **fields: Any) -> str:
        """Store a new one, made by the actor; returns its id."""
        id, makers = transaction.new_id(), transaction.makers
        made = {"created_at": transaction.at, "created_by": transaction.actor["id"], "makers": makers}
        cls.insertion.run(**fields, **made, id=id)
        return id


class Invitation(Credential):
    """Links: a member who is invited joins with one, and a member who has joined signs in."""

    token_hash = TextField(unique=True)
    created_by = ForeignKeyField(Member, column_name="created_by", index=False)
    created_at = TextField()
    expires_at = TextField()
    used_at = TextField(null=True)
    mail_at = TextField(null=True)  # when it is mailed, the next time; null if not
    mail_hash = TextField(null=True)  # of the token in the mail, which is made as that is sent
    new_email = TextField(null=True)  # which the link makes the member's

    NOUN = "invitation"

    is_mailed: ClassVar[bool] = False  # whether links are mailed, as `mail.configure_mail` sets it
    # Addresses for which somebody asks for a link: who asks must not see how long it takes to find a member.
    asked: ClassVar[set[str]] = set()

    @classmethod
    def invite(
        cls, transaction: Transaction, days: float, *, email: str, **fields
    ) -> tuple[Row, str, str, bool]:
        """Invite somebody, for so many days; an earlier link is revoked.

        Returns the member, the new link's token and expiry, and whether the member is new. Raises `Conflict`
        for an address of an active member, and `Forbidden` for an owner whom another member invites, and for
        an owner or admin with a key that expires.
        """
        stored = Member.by_email.one(email=email)
        if stored and stored["status"] == Member.ACTIVE:
            raise Conflict(f"{email} is already a member")
        if "owner" in (fields["role"], stored and stored["role"]):
            only_owner(transaction, "invite an owner")
        if stored:
            Member.set_columns(stored["id"], **{"phone_number": None, **fields})
            member = Member.shown(stored["id"])
        else:
            member = Member.add(transaction, email=email, status="invited", **fields)
        token, expires_at = cls._issue(transaction, member, days)
        Member.record(transaction, "updated" if stored else "created", member)
        return member, token, expires_at, stored is None

    @classmethod
    def renew(cls, transaction: Transaction, member_id: str, days: float) -> tuple[Row, str, str]:
        """Make a new link of a member, in place of an open one: for so many days, or to sign in.

        Returns the member, the link's token and expiry. Raises `NotFound`, and `Forbidden` also as `invite`.
        """
        member, made = Member.shown(member_id), "renewed"
        cls.check_manager(transaction, member)
        if member["status"] == Member.ACTIVE:
            days, made = SIGN_IN_DAYS, "sign-in link"
        Member.record(transaction, "updated", member, {"invitation": [None, made]})
        return member, *cls._issue(transaction, member, days)

    @classmethod
    def revoke(cls, transaction: Transaction, member_id: str) -> None:
        """Revoke the open link of a member. Raises `NotFound` where there is none, and `Forbidden`."""
        member = Member.shown(member_id)
        cls.check_manager(transaction, member)
        if not cls.revocation.run(member_id=member_id, now=transaction.at):
            raise NotFound("open invitation")
        Member.record(transaction, "updated", member, {"invitation": [None, "revoked"]})

    @classmethod
    def _issue(cls, transaction: Transaction, member: Row, days: float) -> tuple[str, str]:
        limit = ApiKey.limit_of(transaction.actor)
        if limit and (member["status"] == Member.ACTIVE or member["role"] in ADMINS):
            raise Forbidden("the key in use expires; what this link gives would outlive it")
        token, expires_at = secrets.token_urlsafe(32), min(now(days * 86400), limit or "9999")
        cls.revocation.run(member_id=member["id"], now=transaction.at)
        mail_at = transaction.at if cls.is_mailed else None
        fields = {"token_hash": digest(token), "expires_at": expires_at, "mail_at": mail_at}
        cls.store(transaction, member_id=member["id"], **fields)
        return token, expires_at

    @classmethod
    def mail_to(cls, transaction: Transaction, member_id: str, new_email: str | None = None) -> None:
        """Have a link mailed that signs in, which is shown to nobody.

        Raises `Forbidden` where nothing is mailed, and `Conflict` after many links within an hour.
        """
        if not cls.is_mailed:
            raise Forbidden("this server sends no mail; an owner or admin changes your address")
        if cls.count_of_new.value(member_id=member_id, since=first_id(now(-3600))) >= MAX_MAILED:
            raise Conflict("many links were made within an hour; try again later")
        fields = {"mail_at": transaction.at, "new_email": new_email, "expires_at": now(MAILED_SECONDS)}
        cls.store(transaction, member_id=member_id, token_hash=digest(secrets.token_urlsafe()), **fields)

    @classmethod
    def answer_asked(cls) -> None:
        """Have links mailed to those active members whose addresses were given."""
        while cls.asked:
            member = Member.by_email.one(email=cls.asked.pop())
            if member and member["status"] == Member.ACTIVE:
                with suppress(Conflict), write(member) as transaction:
                    cls.mail_to(transaction, member["id"])

    @statement
    def count_of_new(cls: Any):
        """How many links a member made, or asked for, since then; an admin's must not lock the member out."""
        is_new = (cls.member == placeholder("member_id")) & (cls.id > placeholder("since"))
        return cls.select(fn.COUNT(cls.id)).where(is_new, cls.created_by == cls.member)

    @statement
    def to_mail(cls: Any):
        """An open link that is to be mailed now."""
        creator = Member.alias("creator")
        rows = cls.select(*columns(cls), profile(creator, "creator"))
        rows = rows.join(creator, on=(cls.created_by == creator.id))
        is_open = cls.revoked_at.is_null() & cls.used_at.is_null() & (cls.expires_at > placeholder("now"))
        return rows.where(cls.mail_at <= placeholder("now"), is_open).limit(SQL("1"))

    @staticmethod
    def link(config: Mapping[str, Any], token: str) -> str:
        """The address of the page on which the token is used."""
        return f"{config['SERVER']['base_url']}/enroll/{token}"

    @statement
    def revocation(cls: Any):
        is_open = cls.revoked_at.is_null() & cls.used_at.is_null()
        revoking = cls.update({cls.revoked_at: placeholder("now")})
        return revoking.where(cls.member == placeholder("member_id"), is_open)

    @statement
    def by_token(cls: Any):
        shown = columns(cls, "token_hash", "mail_hash", "mail_at", "member_id")
        shown.append((Member.status == Member.ACTIVE).alias("signs_in"))
        invitations = cls.select(*shown, profile(Member, "member")).join(Member, on=(cls.member == Member.id))
        is_shown, is_in_mail = cls.token_hash == placeholder("hash"), cls.mail_hash == placeholder("hash")
        return invitations.where(is_shown | is_in_mail)

    @classmethod
    def open(cls, token: str) -> Row:
        """The invitation of a link that can still be used. Raises `NotFound` or `Gone`."""
        invitation = cls.by_token.one(hash=digest(token)) or not_found("invitation")
        if invitation["used_at"]:
            raise Gone("this link has already been used")
        if invitation["revoked_at"]:
            raise Gone("this link has been revoked")
        if invitation["expires_at"] <= now():
            raise Gone("this link has expired")
        return invitation

    @classmethod
    def accept(cls, transaction: Transaction, token: str) -> bool:
        """Use the link: its member becomes the actor. Returns whether the member joins by it.

        Raises as `open` does. What is made after a sign-in link has the makers of the link, who could have
        used it themselves; they cannot join for somebody unnoticed.
        """
        invitation = cls.open(token)
        cls.set_columns(invitation["id"], used_at=transaction.at)
        member_id = invitation["member"]["id"]
        if invitation["signs_in"]:
            transaction.actor = Member.shown(member_id) | {"key_makers": invitation["makers"]}
            if email := invitation["new_email"]:
                Member.check_free(email)
                new = differences(transaction.actor, {"email": email})
                Member.change(transaction, transaction.actor, new)
            return False
        Member.set_columns(member_id, joined_at=transaction.at, status=Member.ACTIVE)
        transaction.actor = Member.shown(member_id)
        Member.record(transaction, "updated", transaction.actor, {"status": ["invited", "active"]})
        return True


_is_in_mail = Invitation.mail_hash.is_null(False)
Invitation.add_index(Invitation.mail_hash, unique=True, where=_is_in_mail, name="invitation_mail_hash")
_is_to_mail = Invitation.mail_at.is_null(False)
Invitation.add_index(Invitation.mail_at, where=_is_to_mail, name="invitation_mail_at")


class ApiKey(Credential):
    name = TextField()
    scope = ChoiceField((*SCOPES, CALENDAR))
    prefix = TextField()
    hash = TextField(unique=True)
    created_at = TextField()
    expires_at = TextField(null=True)
    last_used_at = TextField(null=True)
    created_by = TextField(null=True)  # a member's id
    is_session = IntegerField(null=True)  # 1 where what it makes may live longer; see `limit_of`
    started_with = TextField(null=True)  # of a session: the id of the first key, with which it ends

    NOUN = "key"
    is_started: ClassVar[Any] = (is_session == 1) | started_with.is_null(False)  # by a browser, as a session

    # Reads never write: `caller` notes here when a key was used, once a minute. The next transaction stores
    # it (`write`); if there is none, the sweeper makes one (`flush_last_used`).
    _used: ClassVar[dict[str, str]] = {}  # by the key's id

    @classmethod
    def select_shown(cls) -> Query:
        creator = Member.alias("creator")
        shown = columns(cls, "hash", "member_id", "makers", "created_by", "is_session", "started_with")
        is_session = fn.JSON(Case(None, [(cls.is_session == 1, "true")], "false")).alias("is_session")
        keys = cls.select(*shown, is_session, profile(Member, "member"), profile(creator, "creator"))
        keys = keys.join(Member, on=(cls.member == Member.id)).switch(cls)
        return keys.join(creator, JOIN.LEFT_OUTER, on=(cls.created_by == creator.id)).order_by(cls.id)

    @classmethod
    def issue(
        cls, transaction: Transaction, member_id: str, *, key: str | None = None, **fields: Any
    ) -> tuple[Row, str]:
        """Make a new key of the member; returns its row and the key itself, which is not stored."""
        key = key or KEY_PREFIX + secrets.token_urlsafe(32)
        fields = {"scope": "write", "prefix": key[:12], "hash": digest(key), **fields}
        return cls.shown(cls.store(transaction, member_id=member_id, **fields)), key

    @staticmethod
    def limit_of(actor: Row) -> str | None:
        """When all has to expire that the actor makes: a key that expires makes none that lives longer.

        A session expires too, but it stands for a person, who signs in again; a command uses no key.
        """
        return None if actor.get("key_is_session") else actor.get("key_expires_at")

    @classmethod
    def start_session(cls, transaction: Transaction, name: str) -> tuple[Row, str]:
        """Make the key of a session of the actor, with the scope of the key in use, with which it ends."""
        actor, expires_at = transaction.actor, now(SESSION_DAYS * 86400)
        fields = {"name": name, "scope": actor.get("scope", "write")}
        fields |= {"started_with": actor.get("key_started_with") or actor.get("key_id")}
        fields |= {"expires_at": min(actor.get("key_expires_at") or expires_at, expires_at)}
        return cls.issue(transaction, actor["id"], **fields, is_session=None if cls.limit_of(actor) else 1)

    @classmethod
    def visible(cls, caller: Row) -> list[Row]:
        """The caller's keys; for an owner or admin everybody's."""
        return [key for key in cls.shown_rows.all() if cls._is_visible(key, caller)]

    @classmethod
    def _is_visible(cls, key: Row, caller: Row) -> bool:
        return caller["role"] in ADMINS or key["member"]["id"] == caller["id"]

    @classmethod
    def grant(
        cls, transaction: Transaction, *, member_id: str | None = None, **fields: Any
    ) -> tuple[Row, str]:
        """Make a key for the actor, or, as an owner or admin, for another active member.

        Returns its row and the key itself. Raises `Forbidden`, and `Invalid` for a time in the past, or
        after the key in use expires: a key that expires must not make one that lives longer.
        """
        holder = Member.active(member_id or transaction.actor["id"])
        cls.check_manager(transaction, holder)
        fields = {name: value for name, value in fields.items() if value is not None}
        expires_at = fields.get("expires_at", "9999")
        if expires_at < now():
            raise Invalid(("expires_at", "must be in the future"))
        limit = cls.limit_of(transaction.actor)
        if limit and expires_at > limit:
            raise Invalid(("expires_at", f"must be at most {limit}, when the key in use expires"))
        row, key = cls.issue(transaction, holder["id"], **fields)
        Member.record(transaction, "updated", holder, {"api_key": [None, row["id"]]})
        return row, key

    @classmethod
    def revoke(cls, transaction: Transaction, id: str) -> None:
        """Revoke a key. Raises `NotFound`, also for one that the actor may not see, and `Forbidden`."""
        key = cls.shown(id)
        if not cls._is_visible(key, transaction.actor):
            raise NotFound("key")
        cls.check_manager(transaction, key["member"])
        if key["revoked_at"] is None:
            cls.ending.run(id=id, now=transaction.at)
            Member.record(transaction, "updated", key["member"], {"api_key": [id, None]})

    @statement
    def unlinking(cls: Any):
        """Revokes the key in a member's calendar link."""
        is_linked = (cls.scope == CALENDAR) & cls.revoked_at.is_null()
        revoking = cls.update({cls.revoked_at: placeholder("now")})
        return revoking.where(cls.member == placeholder("member_id"), is_linked)

    @classmethod
    def link_calendar(cls, transaction: Transaction) -> str:
        """Make the key in the actor's calendar link, in place of an earlier one; the key in use limits it."""
        cls.unlinking.run(member_id=transaction.actor["id"], now=transaction.at)
        expires_at = cls.limit_of(transaction.actor)
        return cls.grant(transaction, name="Calendar link", scope=CALENDAR, expires_at=expires_at)[1]

    @statement
    def ending(cls: Any):
        """Revokes a key, and the sessions that were started with it."""
        is_this = (cls.id == placeholder("id")) | (cls.started_with == placeholder("id"))
        return cls.update({cls.revoked_at: placeholder("now")}).where(is_this, cls.revoked_at.is_null())

    @statement
    def pruning(cls: Any):
        ended = fn.COALESCE(cls.revoked_at, cls.expires_at)
        return deletion_of_some(cls, cls.is_started & (ended < placeholder("before")))

    @classmethod
    def prune_sessions(cls) -> int:
        """Delete a session that ended more than `SESSION_DAYS` ago; returns how many, which is one or none.

        More would take long: SQLite looks through all activity and comments for each.
        """
        return cls.pruning.run(before=now(-SESSION_DAYS * 86400), most=1)

    @statement
    def by_hash(cls: Any):
        of_member = [getattr(Member, name) for name in PROFILE]
        fields = [cls.id, cls.prefix, cls.expires_at, cls.last_used_at]
        fields += [cls.makers, cls.is_session, cls.started_with]
        of_key = [field.alias(f"key_{field.name}") for field in fields]
        callers = cls.select(*of_member, cls.scope, *of_key)
        return callers.join(Member, on=(cls.member == Member.id)).where(
            cls.hash == placeholder("hash"),
            (cls.scope == CALENDAR) == placeholder("of_calendar"),
            cls.revoked_at.is_null(),
            cls.expires_at.is_null() | (cls.expires_at > placeholder("now")),
            Member.status == Member.ACTIVE,
        )

    @classmethod
    def caller(cls, key: str, *, of_calendar: bool = False) -> Row | None:
        """The member of this valid key, or of one in a calendar link, with its columns; else None."""
        at = now()
        caller = cls.by_hash.one(hash=digest(key), now=at, of_calendar=of_calendar)
        if caller and (caller["key_last_used_at"] or "")[:16] != at[:16]:  # the times up to their minutes
            cls._used[caller["key_id"]] = at
        return caller

    @classmethod
    def flush_last_used(cls) -> None:
        """Write the times at which keys were last used, if any, in a separate transaction."""
        if cls._used:
            with write():
                pass

    @classmethod
    def write_last_used(cls) -> None:
        """Write the times at which keys were last used; part of every transaction."""
        while cls._used:
            id, at = cls._used.popitem()
            cls.set_columns(id, last_used_at=at)


class StoredAnswer(Base):
    """The answer to a POST with an `Idempotency-Key`, for requests that repeat it within a day."""

    api_key = ForeignKeyField(ApiKey, column_name="api_key_id", on_delete="CASCADE", index=False)
    idempotency_key = TextField()
    request = TextField()  # a digest of path and body
    status = IntegerField()
    headers = TextField()  # a JSON object
    data = EncodedJSONField()
    created_at = TextField(index=True)

    DAY = 86400.0  # seconds

    class Meta:
        primary_key = CompositeKey("api_key", "idempotency_key")

    @statement
    def by_key(cls: Any):
        is_this = cls.idempotency_key == placeholder("idempotency_key")
        is_kept = cls.created_at > placeholder("after")
        return cls.select().where(cls.api_key == placeholder("api_key_id"), is_this, is_kept)

    @statement
    def replacement(cls: Any):
        """Inserts an answer in place of one of more than a day ago."""
        return cls.insertion.query.on_conflict_replace()

    @classmethod
    def find(cls, transaction: Transaction, key: str, request: str) -> Row | None:
        """The stored answer to this request, or None. Raises `KeyReused` where another used the key."""
        key_id = transaction.actor["key_id"]
        stored = cls.by_key.one(after=now(-cls.DAY), api_key_id=key_id, idempotency_key=key)
        if stored and stored["request"] != request:
            raise KeyReused("this Idempotency-Key came with another path or body before; take a new one")
        return stored

    @classmethod
    def keep(
        cls, transaction: Transaction, key: str, request: str, status: int, headers: Row, data: Row
    ) -> None:
        """Store the answer in the same transaction as the change."""
        row = {"api_key_id": transaction.actor["key_id"], "idempotency_key": key, "request": request}
        row |= {"headers": to_json(headers).decode(), "data": to_json(data).decode()}
        cls.replacement.run(**row, status=status, created_at=transaction.at)

    @statement
    def pruning(cls: Any):
        return deletion_of_some(cls, cls.created_at < placeholder("before"))

    @classmethod
    def prune(cls, most: int = 500) -> int:
        """Delete some answers that are no longer replayed; returns how many."""
        return cls.pruning.run(before=now(-cls.DAY), most=most)


# Work -----------------------------------------------------------------------------------------


class Project(Resource):
    name = TextField()
    description = TextField(null=True)
    status = ChoiceField(PROJECT_STATUSES)
    owner = ForeignKeyField(Member)
    created_at = TextField()
    updated_at = TextField()

    NOUN, TITLE = "project", "name"

    @classmethod
    def _select(cls, *description: Any) -> Query:
        counters = [getattr(TaskCount, status) for status in STATUSES]
        selected = [*columns(cls, "owner_id", "description"), *description, *counters]
        selected.append(DueCount.overdue(cls.id).alias("overdue"))
        return (
            cls.select(*selected, profile(Member, "owner"))
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
    """How many open tasks of each project are due on each day; triggers keep it as they keep `TaskCount`.

    A thousand overdue tasks of earlier days need not be counted for each context.
    """

    project = ForeignKeyField(Project, on_delete="CASCADE", index=False)
    day = TextField()
    open = IntegerField()

    class Meta:
        primary_key = CompositeKey("project", "day")
        without_rowid = True

    @classmethod
    def overdue(cls, project_id: Any) -> Any:
        """SELECT of the number of overdue tasks: those due on earlier days, and earlier on this day."""
        day = fn.SUBSTR(placeholder("now"), 1, 10)
        earlier = cls.select(fn.SUM(cls.open)).where(cls.project == project_id, cls.day < day)
        is_today = Task.is_overdue & (Task.due_date >= day)
        today = Task.select(fn.COUNT(SQL("*"))).where(Task.project == project_id, is_today)
        return fn.COALESCE(earlier, 0) + today


class Milestone(Resource):
    project = ForeignKeyField(Project, on_delete="CASCADE")
    title = TextField()
    description = TextField(null=True)
    due_date = TextField(null=True)
    closed_at = TextField(null=True)
    created_at = TextField()
    updated_at = TextField()

    NOUN = "milestone"

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
    labels = EncodedJSONField(constraints=[SQL("DEFAULT '[]'")])
    # The labels without regard to case, each between unit separators.
    label_keys = TextField(constraints=[SQL("DEFAULT ''")])
    metadata = EncodedJSONField()
    external_id = TextField(null=True)  # in the program that the task comes from
    claimed_until = TextField(null=True)  # the end of a claim for some minutes
    due_told = TextField(null=True)  # the due date that was told last, when it came near
    question_id = TextField(null=True)  # the comment that waits for an answer
    checks = EncodedJSONField(null=True)  # how many checkboxes the description has, and how many are ticked
    rank = TextField(constraints=[SQL("DEFAULT ''")])  # digits, as the places of a decimal number; see `Rank`
    version = IntegerField()
    created_at = TextField()
    updated_at = TextField()
    search = TextField()  # title and description, folded: SQLite itself folds ASCII only

    NOUN = "task"
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

    @statement
    def insertion(cls: Any):
        """Inserts a task, whose rank is that of its number, and so the last one, unless both are given."""
        number = "IFNULL(:number, 1 + IFNULL((SELECT seq FROM sqlite_sequence WHERE name = 'task'), 0))"
        return Insertion(cls, rank=SQL(f"IFNULL(:rank, PRINTF('%010d', {Rank.FIRST} + {number}))"))

    @statement
    def of_calendar(cls: Any):
        """The open tasks of a member that are due in some period, without those of archived projects."""
        is_due = cls.is_open & cls.due_date.between(placeholder("since"), placeholder("until"))
        is_theirs = (cls.assignee == placeholder("member_id")) & cls.project.not_in(Project.select_archived())
        shown = (cls.id, cls.number, cls.title, cls.due_date, cls.updated_at)
        return cls.select(*shown).where(is_due, is_theirs).order_by(cls.due_date, cls.id)

    @statement
    def by_number(cls: Any):
        return cls.select(cls.id).where(cls.number == placeholder("number"))

    @classmethod
    def id_of(cls, number: int) -> str:
        """The id of the task with this number. Raises `NotFound`, which says who deleted it."""
        if id := cls.by_number.value(number=number):
            return id
        gone = Activity.deletion_of.one(number=number, most=1)
        by = f": it was deleted by {gone['actor']['full_name']} on {gone['created_at'][:10]}" if gone else ""
        raise NotFound(cls.NOUN + by)

    @statement
    def first_labelled(cls: Any):
        """A task with a label; SQLite looks through all that have labels only for a new one."""
        has_label = fn.INSTR(cls.label_keys, placeholder("label")) > 0
        return cls.select(cls.labels).where(cls.is_labelled, has_label).limit(SQL("1"))

    @statement
    def references(cls: Any):
        """The number and id of each task that is among the references, which are numbers and ids as JSON."""
        is_referred = cls.number.in_(each("references")) | cls.id.in_(each("references"))
        return cls.select(cls.number, cls.id).where(is_referred)

    @classmethod
    def referred(cls, references: list[int | str], field: str) -> list[Row]:
        """The number and id of each of these tasks, which are given by number or id.

        Raises `Invalid` with `field`, in which {} is the place of the one that does not exist.
        """
        rows = cls.references.all(references=to_json(references).decode())
        found = {given: row for row in rows for given in row.values()}
        missing = [(field.format(n), "no such task") for n, id in enumerate(references) if id not in found]
        if missing:
            raise Invalid(*missing)
        return [found[one] for one in references]

    @classmethod
    def label_columns(cls, labels: list[str] | None) -> Row:
        """The columns of these labels, each once, and spelled as it is in the tasks that have it already."""
        if not labels:
            return {"labels": EncodedJSON("[]"), "label_keys": ""}
        spelled = {caseless(label): label for label in labels}
        for key in spelled:
            if row := cls.first_labelled.one(label=f"\x1f{key}\x1f"):
                labels = orjson.loads(row["labels"].encode())
                spelled[key] = next(label for label in labels if caseless(label) == key)
        keys = "\x1f".join(["", *spelled, ""])
        return {"labels": EncodedJSON(to_json([*spelled.values()]).decode()), "label_keys": keys}

    @statement
    def labelled(cls: Any):
        counts = cls.select(cls.labels, fn.COUNT(SQL("*")).alias("count"))
        return counts.where(cls.is_labelled).group_by(cls.labels)

    @classmethod
    def label_counts(cls) -> list[Row]:
        """Each label with the number of its tasks, by name."""
        counts = Counter[str]()
        for row in cls.labelled.all():
            counts.update(dict.fromkeys(orjson.loads(row["labels"].encode()), row["count"]))
        return [{"label": label, "count": counts[label]} for label in sorted(counts, key=fold)]

    @statement
    def rank_after(cls: Any):
        follows = (cls.rank > placeholder("rank")) & (cls.id != placeholder("id"))
        return cls.select(cls.rank).where(follows).order_by(cls.rank).limit(SQL("1"))

    @statement
    def rank_before(cls: Any):
        precedes = (cls.rank < placeholder("rank")) & (cls.id != placeholder("id"))
        return cls.select(cls.rank).where(precedes).order_by(cls.rank.desc()).limit(SQL("1"))

    @statement
    def ranked_between(cls: Any):
        is_between = (cls.rank > placeholder("low")) & (cls.rank < placeholder("high"))
        rows = cls.select(cls.id, cls.number, cls.title, cls.version)
        return rows.where(is_between, cls.id != placeholder("id")).order_by(cls.rank)

    @statement
    def by_external_id(cls: Any):
        return cls.select(cls.id).where(cls.external_id == placeholder("external_id"))

    @statement
    def redating(cls: Any):
        """Dates the changes of a clock that was ahead, so that who follows the changes gets what comes after.

        A clock that is behind the first member's beginning is wrong itself, and redates nothing.
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
    def first_with(cls, field: Any, id: str) -> list[Row]:
        """Some of the tasks with this reference, the oldest; few, so that not all need be in memory."""
        tasks = cls.select_stored().where(field == placeholder("id")).order_by(cls.id)
        return Statement(tasks.limit(SQL("500"))).all(id=id)

    @classmethod
    def clear(cls, transaction: Transaction, field: Any, id: str) -> Iterator[Changed]:
        """Clear this reference in the tasks that have it; yields each of these tasks."""
        name, at = field.column_name, transaction.at
        values = {field: None, cls.version: cls.version + 1, cls.updated_at: placeholder("now")}
        is_first = (field == placeholder("id")) & (cls.id <= placeholder("last"))
        clearing = Statement(cls.update(values).where(is_first))
        while before := cls.first_with(field, id):
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
        assignee, creator = Member.alias("assignee"), Member.alias("creator")
        attachments = Attachment.select(Attachment.id).where(Attachment.task == cls.id)
        return (
            cls.select(
                *cls.shown_columns(),
                Blocker.shown(cls.number, is_open=False).alias("done_blockers"),
                Blocker.shown(cls.number, reverse=True).alias("blocks"),
                cls.comment_count(),
                fn.EXISTS(attachments).alias("attachments"),
                Joined(Project, "project", "id", "name", "status", "owner_id"),
                Joined(Milestone, "milestone", "id", "title", "due_date"),
                profile(assignee, "assignee"),
                profile(creator, "creator"),
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
        folded: Row,
        status: str = "todo",
        blocked_by: list[int | str] | None = None,
        **fields: Any,
    ) -> Row:
        """Make a new task; `folded` has title and description folded by the schema.

        An import also gives what else the service itself makes, such as `id`, `number` and `created_at`.
        Raises `Invalid` for what does not exist or belong together.
        """
        cls._check_done(transaction, status)
        references = {"project_id": project_id, **fields}
        check_references(cls, references, partial(cls._misplaced, project_id))
        cls._check_external_id(fields)
        row = cls.insertion.nulls | {
            "id": transaction.new_id(),
            "completed_at": transaction.at if status == "done" else None,
            "created_by": transaction.actor["id"],
            "created_at": transaction.at,
        }
        row |= fields | cls.label_columns(fields.get("labels"))
        row |= {"project_id": project_id, "title": title, "status": status}
        row |= {
            "checks": checkboxes(fields.get("description")),
            "priority": fields.get("priority") or DEFAULT_PRIORITY,
            "metadata": EncodedJSON(fields.get("metadata", "{}")),
            "version": 1,
            "updated_at": transaction.at,
            "due_told": None if transaction.tells else fields.get("due_date"),
            "search": cls.searchable(**folded),
        }
        row["number"] = cls.insertion.run(**row)
        row["rank"] = row["rank"] or Rank.whole(Rank.FIRST + row["number"])
        row["blocked_by"] = EncodedJSON("[]")
        if blocked_by:
            row["blocked_by"] = Blocker.replace_all(row["number"], Blocker.numbers(blocked_by))
        cls.record(transaction, "created", row)
        Notice.tell(transaction, row, "assigned", row["assignee_id"])
        if status == "review":
            Notice.tell(transaction, row, "review", *cls.responsible(transaction, row))
        del row["search"], row["label_keys"], row["due_told"]
        return row

    @classmethod
    def copy(cls, transaction: Transaction, id: str, **titled: Any) -> Row:
        """Make a new task of what was planned of this one (`PLANNED`). Raises as `add` does."""
        task = cls.stored(id)
        planned = {name: task[name] for name in PLANNED} | {"labels": orjson.loads(task["labels"].encode())}
        texts = dict(zip(SEARCHED, cls.searched.value(id=id).split("\x1f", 1), strict=True))
        folded = texts | titled.pop("folded", {})
        return cls.add(transaction, **planned | titled, folded=folded)

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
        """Yield why a task of this project cannot be new in the project or the milestone of these rows."""
        project, milestone = rows.get("project_id"), rows.get("milestone_id")
        if project and project["status"] == "archived":
            yield "project_id", "the project is archived and takes no new tasks"
        if milestone and milestone["project_id"] != project_id:
            yield "milestone_id", "belongs to another project"

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
        """Raise `Invalid` where a new date makes the task start after it is due."""
        start, due = [(stored | new)[name] for name in ("start_date", "due_date")]
        if start and due and start > due:
            if "start_date" in new:
                raise Invalid(("start_date", f"must not be after due_date, which is {due}"))
            if "due_date" in new:
                raise Invalid(("due_date", f"must not be before start_date, which is {start}"))

    @staticmethod
    def searchable(title: str, description: str = "") -> str:
        """The column `search` of these folded texts; the unit separator keeps a match from spanning both."""
        return f"{title}\x1f{description}"

    @statement
    def searched(cls: Any):
        return cls.select(cls.search).where(cls.id == placeholder("id"))

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row, versions: frozenset[str] | None) -> Changed:
        """Change the fields that were sent; returns the task, and what has changed.

        With a title or a description, `fields` has these `folded` too. A field that has the value already is
        no change. Without a priority a task has the default one. A new place, `after` or `before` a task,
        is a new version and no change. Raises `NotFound`, `Invalid` for what does not exist or go
        together, and `PreconditionFailed` when its version is none of `versions`.
        """
        stored, folded = cls._expected(id, versions), fields.pop("folded", {})
        placed = {side: fields.pop(side) for side in ("after", "before") if side in fields}
        place = Rank.place(transaction, stored, **placed) if placed else {}
        blocked = Blocker.changes(stored, fields.pop("blocked_by")) if "blocked_by" in fields else {}
        if "priority" in fields:
            fields = fields | {"priority": fields["priority"] or DEFAULT_PRIORITY}
        if "labels" in fields:
            labels = cls.label_columns(fields["labels"])
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
        if changes.keys() & {"status", "assignee_id"}:  # a claim ends, and what is done waits for nothing
            ended = {"claimed_until"} | ({"question_id"} if is_completed else set())
            changes |= differences(stored, dict.fromkeys(ended - fields.keys()))
        new = {name: changes[name][1] for name in changes.keys() - blocked}
        placing = new | ({"milestone_id": fields["milestone_id"]} if is_elsewhere else {})
        check_references(cls, placing, partial(cls._misplaced, project_id))
        cls._check_dates(stored, new)
        cls._check_external_id(new)
        new |= place | {"version": stored["version"] + 1, "updated_at": transaction.at}
        if folded:
            parts = cls.searched.value(id=id).split("\x1f", 1)
            new["search"] = cls.searchable(*map(folded.get, SEARCHED, parts))
        if "labels" in changes:
            new |= labels
        if "description" in changes:
            new["checks"] = checkboxes(fields["description"])
        if "status" in changes:
            new = {"completed_at": transaction.at if fields["status"] == "done" else None} | new
        cls.set_columns(id, **new)
        task = stored | new
        task["metadata"] = EncodedJSON(task["metadata"])
        for hidden in HIDDEN:
            task.pop(hidden, None)
        if blocked:
            task["blocked_by"] = Blocker.replace_all(task["number"], blocked["blocked_by"][1])
        if not changes:  # but the rank, of which the history tells nothing
            cls.record(transaction, "updated", task | {"is_hidden": 1})
            return task, {}
        action = "moved" if changes.keys() & {"status", "project_id"} else "updated"
        cls.record(transaction, action, task, changes)
        Notice.acted(transaction, id)
        if "assignee_id" in changes:
            Notice.tell(transaction, task, "assigned", task["assignee_id"])
        if "status" in changes and task["status"] == "review":
            Notice.tell(transaction, task, "review", *cls.responsible(transaction, task))
        if is_completed:
            Blocker.tell_free(transaction, task, Blocker.blocked_by(stored))
        return task, changes

    @staticmethod
    def responsible(transaction: Transaction, task: Row) -> list[str]:
        """Whom a task needs when it needs a person: its creator, else its project's owner.

        It must be an active member other than the actor; it may be nobody.
        """
        ids = (task["created_by"], Project.stored(task["project_id"])["owner_id"])
        me = transaction.actor.get("id")
        rows = filter(None, (Member.stored_row.one(id=id) for id in ids if id != me))
        return [row["id"] for row in rows if row["status"] == Member.ACTIVE][:1]

    @classmethod
    def claim(
        cls, transaction: Transaction, id: str, versions: frozenset[str] | None, minutes: int | None = None
    ) -> Changed:
        """Give a task that is to do and nobody's to the actor, in progress; returns and raises as `edit`.

        With `minutes` the claim ends then (`end_claims`). A repetition with the same key changes only that
        end, which is no change of the task. Raises `Conflict`, with who has it, too.
        """
        task, me = cls.stored(id), transaction.actor["id"]
        until = now(minutes * 60) if minutes else None
        if task["question_id"]:
            raise Conflict(f"#{task['number']} waits for the answer to a question")
        if task["status"] == "todo" and task["assignee_id"] in (None, me):
            claimed = {"status": "in_progress", "assignee_id": me, "claimed_until": until}
            return cls.edit(transaction, id, claimed, versions)
        move = Activity.last_move.one(task_id=id) or {"key_id": None, "via": None}
        is_mine = task["status"] == "in_progress" and task["assignee_id"] == me
        if is_mine and move["key_id"] == transaction.actor["key_id"]:
            if until:
                cls.set_columns(id, claimed_until=until)
                cls.record(transaction, "updated", task | {"is_hidden": 1})
            return task | ({"claimed_until": until} if until else {}), {}
        holder = task["assignee_id"] and cls.shown(id)["assignee"]["full_name"]
        via = f" (via {move['via']})" if is_mine and move["via"] else ""
        state, end = task["status"].replace("_", " "), task["claimed_until"]
        end = f" until {end}" if end else ""
        raise Conflict(f"#{task['number']} is {state}, and {holder or 'nobody'} has it{via}{end}")

    @statement
    def claims_over(cls: Any):
        """Claims that have ended, and those that end so late that the clock must have been set back."""
        is_over = (cls.claimed_until <= placeholder("now")) | (cls.claimed_until > placeholder("latest"))
        return cls.select(cls.id, cls.assignee).where(is_over, cls.claimed_until.is_null(False))

    @classmethod
    def ended_claims(cls, at: str | None = None) -> list[Row]:
        """The ids and assignees of the tasks whose claims have ended."""
        return cls.claims_over.all(now=at or now(), latest=now(MAX_CLAIM * 60 + 1))

    @classmethod
    def end_claims(cls, transaction: Transaction, member_id: str, at: str | None = None) -> Iterator[Changed]:
        """Give back the tasks of a member whose claims have ended: to do, and nobody's; yields each."""
        for row in cls.ended_claims(at):
            if row["assignee_id"] == member_id:
                free = {"status": "todo", "assignee_id": None}
                task, changes = cls.edit(transaction, row["id"], free, None)
                Notice.tell(transaction, task, "claim_ended", *cls.responsible(transaction, task))
                yield task, changes

    @statement
    def due_soon(cls: Any):
        """Some open tasks that are due by `:until`, and since `:since`, where this due date was not told."""
        is_near = (cls.due_date > placeholder("since")) & (cls.due_date <= placeholder("until"))
        is_active = cls.project.not_in(Project.select_archived())
        is_untold = Expression(cls.due_told, OP.IS_NOT, cls.due_date)
        return cls.select(cls.id).where(cls.is_open, is_near, is_untold, is_active).limit(SQL("100"))

    @classmethod
    def coming_due(cls, hours: float) -> list[Row]:
        """The ids of some tasks that are due within so many hours, of which nobody was told yet."""
        return cls.due_soon.all(since=now(-cls.LATE_DAYS * 86400), until=now(hours * 3600)) if hours else []

    @classmethod
    def tell_due(cls, transaction: Transaction, hours: float) -> Iterator[Row]:
        """Tell whom these tasks concern, once for each due date; yields each task."""
        for row in cls.coming_due(hours):
            task = cls.stored(row["id"])
            cls.set_columns(task["id"], due_told=task["due_date"])
            told = [task["assignee_id"]] if task["assignee_id"] else cls.responsible(transaction, task)
            Notice.tell(transaction, task, "due", *told)
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
            raise Invalid(("project_id", "must be that of the task; PATCH /tasks/:id/details moves it"))
        return cls.edit(transaction, id, fields, versions)

    @classmethod
    def remove(cls, transaction: Transaction, id: str, versions: frozenset[str] | None = None) -> Row:
        """Delete the task with its comments and attachments; returns it as it was. Raises as `edit` does."""
        task = cls._expected(id, versions)
        blocked = Blocker.blocked_by(task)
        cls.deletion.run(id=task["id"])
        cls._removed(transaction, task, blocked)
        return task

    @classmethod
    def remove_all(cls, transaction: Transaction, project_id: str) -> Iterator[Row]:
        """Delete the tasks of a project; yields each as it was."""
        is_first = (cls.project == placeholder("id")) & (cls.id <= placeholder("last"))
        deletion = Statement(cls.delete().where(is_first))
        while tasks := cls.first_with(cls.project, project_id):
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
            Blocker.tell_free(transaction, task, blocked)

    @classmethod
    def _expected(cls, id: str, versions: frozenset[str] | None) -> Row:
        task = cls.stored(id)
        if versions is not None and versions.isdisjoint(["*", str(task["version"])]):
            raise PreconditionFailed(f"the task's version is {task['version']} (#{task['number']})")
        return task

    @classmethod
    def _first(cls, condition: Expression, overdue: str, *order: Any) -> Query:
        first = cls.select(rowid(cls), SQL(overdue).alias("overdue")).where(condition).order_by(*order)
        return Select([first.limit(placeholder("most")).alias("first")], [SQL("*")])

    @statement
    def urgent(cls: Any):
        """Open tasks of active projects: overdue ones by date, then urgent ones, without a date last."""
        is_active = cls.project.not_in(Project.select_archived())
        is_rest = cls.is_urgent & is_active & (cls.is_undated | (cls.due_date >= placeholder("now")))
        urgent = cls._first(is_rest, "'false'", cls.is_undated, cls.due_date, cls.id)
        places = cls._first(cls.is_overdue & is_active, "'true'", cls.due_date, cls.id) + urgent
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
# They hold status and project too, else SQLite would take `task_due`, with those that are done.
_overdue = [Task.due_date, Task.id, Task.status, Task.project]
Task.add_index(*_overdue, where=Task.is_open_with_date, name="task_overdue")
_overdue = [Task.project, Task.due_date, Task.status]
Task.add_index(*_overdue, where=Task.is_open_with_date, name="task_project_overdue")
_urgent = [Task.is_undated, Task.due_date, Task.id, Task.project]
Task.add_index(*_urgent, where=Task.is_urgent, name="task_urgent")
_has_external_id = Task.external_id.is_null(False)
Task.add_index(Task.external_id, unique=True, where=_has_external_id, name="task_external_id")
Task.add_index(Task.claimed_until, where=Task.claimed_until.is_null(False), name="task_claimed")
Task.add_index(Task.rank, name="task_rank")


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
            beside = Task.stored(Task.referred([reference], side)[0]["id"])["rank"]
        low = beside if side == "after" else Task.rank_before.value(rank=beside or "~", id=id)
        high = beside if side == "before" else Task.rank_after.value(rank=beside or "", id=id)
        if (low or "") <= task["rank"] <= (high or "~"):
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
    def deletion(cls: Any):
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
    def tell_free(cls, transaction: Transaction, task: Row, numbers: list[int]) -> None:
        """Tell the assignees of those that this task has blocked, and that nothing blocks any more."""
        for free in cls.free.all(numbers=to_json(numbers).decode()) if numbers else ():
            text = f"#{task['number']} {task['title']}"
            Notice.tell(transaction, free, "unblocked", free["assignee_id"], text=text)

    @statement
    def affected(cls: Any):
        """The tasks that those with the numbers `:blocking` block, and those with the numbers `:released`."""
        blocked = cls.select(cls.task).where(cls.blocker.in_(each("blocking")))
        return Task.select(Task.id).where(Task.number.in_(blocked) | Task.number.in_(each("released")))

    @statement
    def dependants(cls: Any):
        """The tasks that the task with this number blocks, and those that they block, and so on."""
        waiting = cls.blocked.query.cte("waiting", recursive=True, columns=("number",))
        waiting = waiting.union(cls.select(cls.task).join(waiting, on=(cls.blocker == waiting.c.number)))
        return Select([waiting], [waiting.c.number.alias("number")]).with_cte(waiting)

    @classmethod
    def numbers(cls, references: list[int | str]) -> list[int]:
        """The numbers of tasks, which are given by number or id. Raises `Invalid`."""
        return sorted({row["number"] for row in Task.referred(references, "blocked_by.{}")})

    @staticmethod
    def shortened(task: Row) -> Row:
        """The task as events show it, with the beginnings of the titles of what blocks it."""
        blocking = orjson.loads(task["blocked_by"].encode())
        return task | {"blocked_by": [row | {"title": row["title"][:MAX_BLOCKING]} for row in blocking]}

    @classmethod
    def changes(cls, task: Row, references: list[int | str] | None) -> Row:
        """What changes if these tasks block the task: the numbers of the open ones before, and of these.

        Nothing does if these are the ones that are shown, or all that are stored. Raises `Invalid`, also for
        a task that waits for the blocked one.
        """
        old = [blocker["number"] for blocker in orjson.loads(task["blocked_by"].encode())]
        new = cls.numbers(references or [])
        stored = sorted(row["number"] for row in cls.stored_numbers.all(number=task["number"]))
        if added := set(new).difference(stored):
            waiting = {task["number"]} | {row["number"] for row in cls.dependants.all(number=task["number"])}
            if cycle := sorted(waiting & added):
                raise Invalid(("blocked_by", f"#{cycle[0]} waits for #{task['number']} itself"))
        return {"blocked_by": [old, new]} if new not in (old, stored) else {}

    @classmethod
    def replace_all(cls, number: int, blockers: list[int]) -> EncodedJSON:
        """Let these tasks block the task; returns the open ones as `blocked_by` shows them."""
        cls.deletion.run(number=number)
        cls.insertion.run_many({"task_number": number, "blocker_number": blocker} for blocker in blockers)
        return EncodedJSON(cls.of_task.value(number=number))


def pagination(total: int, limit: int, offset: int, more: bool) -> Row:
    """A page's pagination; `more` tells whether rows follow it."""
    return {
        "total": min(total, COUNT_LIMIT),
        "total_exact": total <= COUNT_LIMIT,
        "limit": limit,
        "offset": offset,
        "has_more": more,
        "next_offset": offset + limit if more else None,
    }


def newest_of(rows: list[Row], limit: int) -> tuple[list[Row], Row]:
    """The first of the rows, which begin with the newest, and the pagination that leads to older ones."""
    shown, more = rows[:limit], len(rows) > limit
    return shown, {"limit": limit, "has_more": more, "next_before": shown[-1]["id"] if more else None}


class PartOfTask(Entity):
    """A table of what belongs to a task, whose id the API takes too."""

    task = ForeignKeyField(Task, field="id", on_delete="CASCADE", index=False)

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
    mentions = EncodedJSONField(constraints=[SQL("DEFAULT '[]'")])  # ids of members
    search = TextField(constraints=[SQL("DEFAULT ''")])  # the content, folded

    NOUN = "comment"

    @classmethod
    def select_shown(cls) -> Query:
        return with_member(cls.author, "search", key=cls.key)

    @statement
    def latest(cls: Any):
        is_before = (cls.task == placeholder("task_id")) & (cls.id < placeholder("before"))
        return cls.select_shown().where(is_before).order_by(cls.id.desc()).limit(placeholder("most"))

    @statement
    def sizes(cls: Any):
        return cls.latest.query.select(fn.LENGTH(cls.content).alias("size"))

    @classmethod
    def page(cls, task_id: str, *, limit: int, before: str = "~") -> Row:
        """The task's latest comments before the one with this id, oldest first. Raises `NotFound`."""
        Task.stored(task_id)
        sizes = accumulate(row["size"] for row in cls.sizes.all(task_id=task_id, before=before, most=limit))
        count = sum(size <= MAX_LISTED_COMMENTS for size in sizes) or 1
        latest, pagination = newest_of(cls.latest.all(task_id=task_id, before=before, most=count + 1), count)
        return {"comments": latest[::-1], "pagination": pagination | {"limit": limit}}

    @statement
    def author_rows(cls: Any):
        return cls.select(cls.author).where(cls.task == placeholder("task_id")).distinct()

    @classmethod
    def store(cls, transaction: Transaction, task: Row, content: str, folded: str, **made: str | None) -> Row:
        """Store a comment; what is not `made` elsewhere is the actor's and of this moment."""
        row = {"id": transaction.new_id(), "author_id": transaction.actor["id"], "created_at": transaction.at}
        row |= {"key_id": transaction.actor.get("key_id"), **made, "task_id": task["id"], "content": content}
        row["search"] = folded
        cls.insertion.run(**row, mentions=to_json(Member.mentioned(content)).decode())
        comment = cls.shown(row["id"])
        super().record(transaction, "created", comment | {"title": task["title"], "number": task["number"]})
        return comment

    @classmethod
    def add(
        cls, transaction: Transaction, task_id: str, *, content: str, folded: str, question: bool = False
    ) -> tuple[Row, Row, Row]:
        """Comment on a task, which waits for the answer if that is a question: somebody else's next comment.

        `folded` is the content, folded by the schema. Returns the comment, the task, and what has changed of
        it. Raises `NotFound`, and for a question `Forbidden`, and `Invalid` where nobody would be told.
        """
        task, me = Task.stored(task_id), transaction.actor["id"]
        comment = cls.store(transaction, task, content, folded)
        named = orjson.loads(comment["mentions"].encode())
        asked: list[str] = []
        if question:
            permit(transaction.actor, "member")  # a client holds up no task
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
            Notice.tell(transaction, task, reason, *members, text=content)
        return comment, task, changes

    @classmethod
    def edit(cls, transaction: Transaction, task_id: str, id: str, fields: Row) -> Row:
        """Change a comment of the actor's. Raises `NotFound` and `Forbidden`."""
        comment, folded = cls.of_task(task_id, id), fields.pop("folded", "")
        if comment["author_id"] != transaction.actor["id"]:
            raise Forbidden("only its author may change a comment")
        if differences(comment, fields):
            task, named = Task.stored(task_id), Member.mentioned(fields["content"])
            new = fields | {"edited_at": transaction.at, "mentions": EncodedJSON(to_json(named).decode())}
            cls.set_columns(id, **new, search=folded)
            newly_named = [member for member in named if member not in comment["mentions"]]
            reason = "question" if task["question_id"] == id else "mentioned"
            Notice.tell(transaction, task, reason, *newly_named, text=fields["content"])
            comment |= new
            cls.record(transaction, "updated", comment, {"content": [None, None]})
        return comment

    @classmethod
    def remove(cls, transaction: Transaction, task_id: str, id: str) -> Changed:
        """Delete a comment; returns the task, and what has changed. Raises `NotFound` and `Forbidden`."""
        comment, task = cls.of_task(task_id, id), Task.stored(task_id)
        if transaction.actor["role"] not in ADMINS and transaction.actor["id"] != comment["author_id"]:
            raise Forbidden("only its author, an owner or an admin may delete a comment")
        is_open = task["question_id"] == id
        changed = Task.edit(transaction, task_id, {"question_id": None}, None) if is_open else (task, {})
        cls.deletion.run(id=id)
        cls.record(transaction, "deleted", comment)
        return changed

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """Note it under the task's title; the activity does not keep what the author took back."""
        task = Task.stored(row["task_id"])
        titled = row | {"title": task["title"], "number": task["number"]}
        super().record(transaction, action, titled, changes)


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
        cls.insertion.run(**row)
        AttachmentContent.add(row["id"], data)
        Task.record(transaction, "updated", task, {"attachment": [None, row["filename"]]})
        Notice.acted(transaction, task_id)
        return row

    @classmethod
    def remove(cls, transaction: Transaction, task_id: str, id: str) -> None:
        """Delete it. Raises `NotFound`."""
        row = cls.of_task(task_id, id)
        cls.deletion.run(id=id)
        Task.record(transaction, "updated", Task.stored(task_id), {"attachment": [row["filename"], None]})


Attachment.add_index(Attachment.task, Attachment.id, name="attachment_task")


class AttachmentContent(Base):
    attachment = ForeignKeyField(Attachment, primary_key=True, on_delete="CASCADE")
    data = BlobField()

    @statement
    def of_attachment(cls: Any):
        return cls.select(cls.data).where(cls.attachment == placeholder("id"))

    @statement
    def insertion(cls: Any):
        return Insertion(cls, data=fn.ZEROBLOB(placeholder("size")))

    @classmethod
    def add(cls, attachment_id: str, data: bytes) -> None:
        """Store the bytes by blob I/O: SQLite would keep a bound parameter with the cached statement."""
        rowid = cls.insertion.run(attachment_id=attachment_id, size=len(data))
        with db.connection().blobopen(cls._meta.table_name, "data", rowid) as blob:
            blob.write(data)


class Notice(Identified):
    """What a member is told of a task; of what is unread, one for each task and reason, the newest."""

    member = ForeignKeyField(Member, index=False)
    task = ForeignKeyField(Task, field="id", on_delete="CASCADE", index=False)
    actor = ForeignKeyField(Member, null=True, index=False)
    reason = ChoiceField(REASONS)
    excerpt = TextField()
    created_at = TextField()
    read_at = TextField(null=True)

    is_unread: ClassVar[Any] = (member == placeholder("member_id")) & read_at.is_null()
    DAYS = 90.0  # for which it is kept
    MAX_EXCERPT = 200  # characters

    @statement
    def replacement(cls: Any):
        """Inserts a notice in place of the unread one of the same task and reason."""
        return cls.insertion.query.on_conflict_replace()

    @classmethod
    def tell(
        cls, transaction: Transaction, task: Row, reason: str, *members: str | None, text: str = ""
    ) -> None:
        """Tell these members, except the actor."""
        actor = transaction.actor.get("id")
        if transaction.tells and (told := {*members} - {None, actor}):
            row = {"task_id": task["id"], "actor_id": actor, "reason": reason, "read_at": None}
            row |= {"excerpt": text[: cls.MAX_EXCERPT], "created_at": transaction.at}
            for member in told:
                cls.replacement.run(**row, id=transaction.new_id(), member_id=member)

    @classmethod
    def select_newest(cls, *more: Any) -> Query:
        """Notices of a member with actor and task, newest first, at most `:most`."""
        shown = [*columns(cls, "member_id", "task_id", "actor_id"), *more]
        task = Joined(Task, "task", "id", "number", "title", "status")
        rows = cls.select(*shown, profile(Member, "actor"), task).join(Task, on=(cls.task == Task.id))
        rows = rows.switch(cls).join(Member, JOIN.LEFT_OUTER, on=(cls.actor == Member.id))
        rows = rows.where(cls.member == placeholder("member_id"))
        return rows.order_by(cls.id.desc()).limit(placeholder("most"))

    @statement
    def latest(cls: Any):
        return cls.select_newest().where(cls.id < placeholder("before"))

    @statement
    def news(cls: Any):
        """What is unread, after a notice, and after the member has seen the page."""
        is_new = (cls.id > placeholder("after")) & (cls.created_at > placeholder("seen_at"))
        return cls.select_newest(Task.due_date).where(cls.read_at.is_null(), is_new)

    @statement
    def unread(cls: Any):
        return cls.select(fn.COUNT(SQL("*"))).where(cls.is_unread)

    @classmethod
    def page(cls, member_id: str, *, limit: int, before: str = "~") -> Row:
        """The member's latest notices before the one with this id, newest first, and how many are unread."""
        rows = cls.latest.all(member_id=member_id, before=before, most=limit + 1)
        shown, pagination = newest_of(rows, limit)
        return {"notices": shown, "unread": cls.unread.value(member_id=member_id), "pagination": pagination}

    @statement
    def reading(cls: Any):
        read = cls.update({cls.read_at: placeholder("now")})
        return read.where(cls.is_unread, cls.id <= placeholder("until"))

    @statement
    def reading_of_task(cls: Any):
        read = cls.update({cls.read_at: placeholder("now")})
        return read.where(cls.is_unread, cls.task == placeholder("task_id"))

    @classmethod
    def acted(cls, transaction: Transaction, task_id: str) -> None:
        """Mark as read what the actor was told of a task, which the actor has changed or answered.

        Who has no key has done nothing: the sweeper ends claims in that member's name.
        """
        if "key_id" in transaction.actor:
            cls.reading_of_task.run(member_id=transaction.actor["id"], task_id=task_id, now=transaction.at)

    @statement
    def pruning(cls: Any):
        return deletion_of_some(cls, cls.id < placeholder("before"))

    @classmethod
    def prune(cls, most: int = 500) -> int:
        """Delete some notices that are older than `DAYS`; returns how many."""
        return cls.pruning.run(before=first_id(now(-cls.DAYS * 86400)), most=most)


Notice.add_index(Notice.member, Notice.id, name="notice_member")
Notice.add_index(Notice.task, name="notice_task")
_of_unread = [Notice.member, Notice.task, Notice.reason]
Notice.add_index(*_of_unread, unique=True, where=Notice.read_at.is_null(), name="notice_unread")


class Activity(Identified):
    """What was done: a row for each change, written in the change's transaction."""

    actor = ForeignKeyField(Member, index=False)
    action = TextField()  # of `ACTIONS`; what is moved is a task, to another status or project
    entity = ChoiceField(ENTITIES)
    entity_id = TextField()
    task_id = TextField(null=True)  # the task, also of a comment's activity; it may be deleted by now
    title = TextField()
    changes = EncodedJSONField()
    request_id = TextField()
    created_at = TextField()
    key = ForeignKeyField(ApiKey, null=True, on_delete="SET NULL", index=False)
    number = IntegerField(null=True)  # of that task
    is_hidden = IntegerField(null=True)  # 1 for a change that the history does not tell

    is_deletion_of_task: ClassVar[Any] = (action == "deleted") & (entity == "task")
    is_shown: ClassVar[Any] = (placeholder("of_tasks") == 0) | task_id.is_null(False)

    @statement
    def newest(cls: Any):
        """The id of the activity that was stored last, after whose time the next transaction is."""
        return cls.select(cls.id).order_by(rowid(cls).desc()).limit(SQL("1"))

    @statement
    def following(cls: Any):
        """What was done after an activity, with `:of_tasks` only to tasks and their comments."""
        other = cls.alias()
        place = other.select(rowid(other)).where(other.id == placeholder("after"))
        rows = cls.select().where(rowid(cls) > place, cls.is_shown)
        return rows.order_by(rowid(cls)).limit(placeholder("most"))

    @classmethod
    def select_newest(cls, *hidden: str) -> Query:
        """Activities with their actors, newest first, at most `:most`."""
        activities = with_member(cls.actor, "actor_id", "request_id", "is_hidden", *hidden, key=cls.key)
        shown = activities.where(cls.is_hidden.is_null())
        return shown.order_by(cls.id.desc()).limit(placeholder("most"))

    @statement
    def recent(cls: Any):
        """What was done, without deletions; with `:of_tasks` only to tasks and their comments."""
        return cls.select_newest("task_id", "number").where(cls.action != "deleted", cls.is_shown)

    @statement
    def deletion_of(cls: Any):
        """The deletion of the task with this number."""
        return cls.select_newest().where(cls.is_deletion_of_task, cls.number == placeholder("number"))

    @statement
    def last_move(cls: Any):
        """The key with which a task was given its status, and its name unless it is a session's."""
        moves = cls.select(cls.key, via()).join(ApiKey, JOIN.LEFT_OUTER, on=(cls.key == ApiKey.id))
        is_move = (cls.task_id == placeholder("task_id")) & (cls.action == "moved")
        is_move &= fn.JSON_EXTRACT(cls.changes, "$.status").is_null(False)
        return moves.where(is_move).order_by(cls.id.desc()).limit(SQL("1"))

    @classmethod
    def page(cls, *, limit: int, **filters: Any) -> Row:
        """One page of what was done, newest first; the filters (`ACTIVITY_FILTERS`) combine."""
        if since := filters.get("since"):
            filters["first"] = first_id(since)
        if until := filters.get("until"):  # ids are made after their transaction has begun
            filters["before_id"] = first_id(until, 60)
        if isinstance(number := filters.get("task_id"), int):
            gone = cls.deletion_of.one(number=number, most=1) or {"task_id": None}
            filters["task_id"] = Task.by_number.value(number=number) or gone["task_id"]
        rows = activities(frozenset(filters)).all(most=limit + 1, **filters)
        shown, pagination = newest_of(rows, limit)
        return {"activity": shown, "pagination": pagination}

    @classmethod
    def add(cls, transaction: Transaction, changes: Row, **described: str | None) -> None:
        """Store what the actor did."""
        shortened = {
            name: pair if name == "blocks" else [*map(cls._shortened, pair)] for name, pair in changes.items()
        }
        made = {"id": transaction.new_id(), "actor_id": transaction.actor["id"], "created_at": transaction.at}
        made |= {"request_id": transaction.request_id, "key_id": transaction.actor.get("key_id")}
        made |= {"changes": to_json(shortened).decode()}
        cls.insertion.run(**described, **made)

    @staticmethod
    def _shortened(value: Any) -> Any:
        """The value; of one that is longer than `MAX_CHANGE`, only its length."""
        text = to_json(value)
        return EncodedJSON(text.decode()) if len(text) <= MAX_CHANGE else {"omitted_bytes": len(text)}

    @statement
    def pruning(cls: Any):
        """Deletes old activity, but not the newest, which cursors of `change_page` name."""
        is_newest = cls.id == cls.select(fn.MAX(cls.id))
        return deletion_of_some(cls, (cls.id < placeholder("before")) & ~is_newest)

    @classmethod
    def prune(cls, days: float, most: int = 500) -> int:
        """Delete some activity that is older than so many days; returns how many rows."""
        return cls.pruning.run(before=first_id(now(-days * 86400)), most=most)


Activity.add_index(Activity.id, where=(Activity.action != "deleted"), name="activity_shown")
Activity.add_index(Activity.number, where=Activity.is_deletion_of_task, name="activity_gone")
Activity.add_index(Activity.task_id, Activity.id, where=Activity.task_id.is_null(False), name="activity_task")


# The conditions by which a history is filtered.
ACTIVITY_FILTERS: dict[str, Expression] = {
    "before": Activity.id < placeholder("before"),
    "since": Activity.created_at >= placeholder("since"),
    "first": Activity.id >= placeholder("first"),  # so that what is older than `since` is not even read
    "until": Activity.created_at <= placeholder("until"),
    "before_id": Activity.id < placeholder("before_id"),
    "actor_id": Activity.actor == placeholder("actor_id"),
    "key": Activity.key.in_(
        ApiKey.select(ApiKey.id).where(placeholder("key").in_((ApiKey.id, ApiKey.prefix)))
    ),
    "action": Activity.action == placeholder("action"),
    "entity": Activity.entity == placeholder("entity"),
    "task_id": Activity.task_id == placeholder("task_id"),
    "of_tasks": Activity.task_id.is_null(False),
}


@lru_cache(maxsize=128)
def activities(filters: frozenset[str]) -> Statement:
    """The newest activities that pass these filters."""
    query = Activity.select_newest()
    conditions = [ACTIVITY_FILTERS[name] for name in sorted(filters)]
    return Statement(query.where(*conditions) if conditions else query)
