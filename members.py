"""The members of a workspace, their keys, links and sessions, and the activity: what each member did.

A row of a table has two forms (`Entity`):

    stored(id)  its columns            `stored_row`, of `select_stored()`
    shown(id)   as the API answers     `shown_row` and `shown_rows`, of `select_shown()`
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

from peewee import JOIN, SQL, Case, Expression, ForeignKeyField, IntegerField, Query, Select, TextField, fn

from database import (
    Base,
    ChoiceField,
    EncodedJSONField,
    Identified,
    JSONField,
    Row,
    columns,
    db,
    deletion_of_some,
    digest,
    fold,
    joined,
    placeholder,
    rowid,
    statement,
    to_json,
)
from errors import Conflict, Forbidden, Gone, Invalid, NotFound, either, not_found
from times import epoch_ms, new_id, now, wire_time

ROLES = ("owner", "admin", "member", "client")
ADMINS = ROLES[:2]
PROFILE = ("id", "full_name", "email", "role")  # the columns of a member in events and answers
SCOPES = ("read", "agent", "write")  # each may do what those before it may
CALENDAR = "calendar"  # the scope of the key in a calendar link, which counts nowhere else
MAIL = ("at_once", "daily", "never")  # when a member gets digests
ENTITIES = ("task", "project", "comment", "meeting", "whiteboard", "member")  # kinds that have activity
HISTORY_ACTIONS = ("created", "updated", "moved", "deleted", "restored")

MAX_CHANGE = 1024  # bytes, as JSON, of an old or new value in an activity
KEY_PREFIX = "tms_"
OAUTH_PREFIX = "tmc_"  # of keys that programs get by OAuth (parts/oauth.py)
SESSION_DAYS = 30.0
HIDDEN_DAYS = 30.0  # for which hidden activity is kept, for `/changes` and the undo of changes of milestones
SIGN_IN_DAYS = 1.0  # for which a sign-in link is valid
FRESH_SECONDS = 900.0  # after signing in, for which a session makes keys and links


def permit(member: Row, role: str) -> None:
    """Raise `Forbidden` unless the member has at least this role."""
    allowed = ROLES[: ROLES.index(role) + 1]
    if member["role"] not in allowed:
        raise Forbidden(f"your role is {member['role']}; this requires the role {either(*allowed[::-1])}")


class Transaction:
    """A write: who makes it, when, in which request, and which deliveries have to be sent after it."""

    notifies = True  # whether members get notices of the changes
    undoes = False  # whether it undoes earlier changes

    def __init__(self, actor: Row, request_id: str):
        self.at = wire_time(epoch_ms())
        self.actor = actor
        self.request_id = request_id
        self.deliveries: list[str] = []  # leased, to be sent by the request after the commit
        self.for_sweeper = 0  # deliveries that the sweeper sends
        self.cache: dict[str, Any] = {}  # of parts, for the rest of the transaction
        # A change may add or delete further tasks (a repeating one). So `Task.add` and `Task.remove` note
        # their events here, and `operation` emits them after the view's own.
        self.task_events: list[tuple[str, Row]] = []  # `task.created` and `task.deleted` with their tasks

    def new_id(self) -> str:
        return new_id()

    @property
    def has_key(self) -> bool:
        """Whether a key makes this change. The sweeper and commands act in a member's name without one."""
        return "key_id" in self.actor

    @property
    def makers(self) -> str:
        """The ids of the makers of a new key or link: the actor, and the makers of the key in use."""
        id, others = self.actor["id"], self.actor.get("key_makers") or ""
        return others if id in others else f"{others} {id}".strip()


def only_owner(transaction: Transaction, what: str) -> None:
    """Raise `Forbidden` unless the actor is an owner."""
    if transaction.actor["role"] != "owner":
        raise Forbidden(f"only an owner may {what}")


# Tables ---------------------------------------------------------------------------------------


def profile(table: Any, key: str) -> list:
    """Return the columns of a joined member's profile, as one object under `key`."""
    return joined(table, key, *PROFILE)


def via() -> Any:
    """Return the column with a joined key's name; null for a session, which stands for the person."""
    return Case(None, [(ApiKey.is_session.is_null(), ApiKey.name)]).alias("via")


def sorted_by(rows: list[Row], name: str) -> list[Row]:
    """Return the rows in the order of a column, without regard to case and accents."""
    return sorted(rows, key=lambda row: (fold(row[name]), row["id"]))


def differences(stored: Row, fields: Row) -> Row:
    """Return the fields whose new value differs from the stored one: `{field: [old, new]}`."""
    return {name: [stored[name], new] for name, new in fields.items() if stored[name] != new}


def refuse(sent: Iterable[str], *names: str) -> Row:
    """Raise `Invalid` if a field is sent that only a part accepts; return no changes."""
    if refused := {*names}.intersection(sent):
        raise Invalid(*((name, "is not accepted") for name in refused))
    return {}


class NoPart:
    """Replaces each part that is left out, as in `Task.rules`, by methods of the same names."""

    # Notices (parts/inbox.py).
    notify = staticmethod(lambda transaction, task, reason, *members, **quoted: None)
    changed = settle = staticmethod(lambda transaction, task, changes: None)
    mention = staticmethod(lambda transaction, task, old, new, comment=None: None)
    acted = staticmethod(lambda transaction, task_id: None)
    archived = staticmethod(lambda transaction, project_id: None)
    limited = staticmethod(lambda member_id: None)
    reassigning = staticmethod(lambda transaction, member_id="", task_id="": nullcontext())
    mentioned = staticmethod(lambda text, project_id: list[str]())
    responsible = staticmethod(lambda transaction, task: list[str]())
    witness = staticmethod(lambda transaction: None)
    # Claims and questions (parts/agents.py).
    given_up = staticmethod(lambda transaction, member_id: list[Any]())

    @staticmethod
    def commented(transaction: Transaction, task: Row, comment: Row, question: bool) -> tuple:
        return task, refuse({"question"} if question else (), "question"), set(), set()

    # Brakes (parts/brakes.py).
    check = staticmethod(lambda caller: None)
    filters = staticmethod(lambda caller: Row())
    counted = staticmethod(lambda transaction, stored, changes: Row())
    is_stuck = staticmethod(lambda task: False)
    notify_stuck = staticmethod(lambda transaction, stored, task: None)
    # The order (parts/order.py) and blockers (parts/blockers.py).
    move = staticmethod(lambda transaction, task, fields: refuse(fields, "after", "before"))
    directly_after = staticmethod(lambda transaction, number: Row())
    changes = staticmethod(lambda transaction, task, fields: refuse(fields, "blocked_by"))
    shown = staticmethod(lambda number, is_open=True, reverse=False: fn.JSON(SQL("'[]'")))
    shortened = staticmethod(lambda task: task)
    blocks = staticmethod(lambda task: list[int]())
    affected_by = staticmethod(lambda blocking, released: list[Row]())
    notify_free = staticmethod(lambda transaction, task, numbers: None)

    @staticmethod
    def of_new(number: int, references: list[int | str] | None) -> list[Row]:
        refuse({"blocked_by"} if references else (), "blocked_by")
        return []

    # Rules (parts/repeats.py) and labels (parts/labels.py).
    problem = staticmethod(lambda rule: "is not accepted")
    accepted = staticmethod(lambda transaction, task, fields: fields)
    rule_changes = staticmethod(lambda transaction, stored, fields, old, status: Row())
    completed = staticmethod(lambda transaction, task, rule: task)
    spelled = staticmethod(lambda transaction, labels: [*dict.fromkeys(labels or [])])
    # Deleted objects (parts/deleted.py).
    keep_rows = staticmethod(lambda transaction, table, rows, part_of=None: False)
    keep_values = staticmethod(lambda activity_id, changes, shortened: None)


class Entity(Identified):
    """A table whose rows the API shows."""

    NOUN: ClassVar[str]
    TITLE: ClassVar[str] = "title"  # the column whose value the activity shows
    PRIVATE: ClassVar[tuple[str, ...]] = ()  # columns whose values the activity does not show
    keeper: ClassVar[Any] = NoPart  # a part replaces it
    shown_rows = statement(lambda cls: cls.select_shown())
    shown_row = statement(lambda cls: cls.select_shown().where(cls.id == placeholder("id")))

    @classmethod
    def select_shown(cls) -> Query:
        return cls.select_stored()

    @classmethod
    def stored(cls, id: str) -> Row:
        """Return the columns of the row. Raises `NotFound`."""
        return cls.stored_row.one(id=id) or not_found(cls.NOUN)

    @classmethod
    def shown(cls, id: str) -> Row:
        """Return the row as the API shows it. Raises `NotFound`."""
        return cls.shown_row.one(id=id) or not_found(cls.NOUN)

    @classmethod
    def record(cls, transaction: Transaction, action: str, row: Row, changes: Row | None = None) -> None:
        """Record in the activity what the actor did; `changes` are `{field: [old, new]}`.

        With `is_hidden` in the row, only `/changes` reports it, and the history does not show it.
        """
        id, task_id = row["id"], row["id"] if cls.NOUN == "task" else row.get("task_id")
        described = {"entity": cls.NOUN, "entity_id": id, "task_id": task_id, "title": row[cls.TITLE]}
        described |= {name: row.get(name) for name in ("number", "is_hidden")}
        described["project_id"] = task_id and row.get("project_id")
        Activity.add(transaction, changes or {}, cls.PRIVATE, action=action, **described)


def check_references(
    model: Any, fields: Row, check: Callable[[Row], Iterable[tuple[str, str]]] = lambda rows: ()
) -> None:
    """Raise `Invalid` with every field that refers to a row that does not exist.

    `check` receives the rows that the model's foreign keys refer to, by field, and returns further problems.
    A row that does not exist is None.
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


# Members, keys and links ----------------------------------------------------------------------


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
    mail_error = TextField(null=True)  # when the last mail was refused, and why; null if it was accepted
    project_ids = JSONField(null=True)  # the only projects that a client sees; null for all
    projects_since = TextField(null=True)  # when `project_ids` changed last

    NOUN, TITLE = "member", "full_name"
    notices: ClassVar[Any] = NoPart  # the part of notices replaces it
    ACTIVE = "active"
    # Other clients look like removed members: what they wrote shows their name, and no address.
    IS_SHOWN: ClassVar[str] = "CASE WHEN role != 'client' OR id = viewer() THEN"
    SEEN = "1"
    SEEN_AS: ClassVar[Row] = {
        "status": f"{IS_SHOWN} status ELSE 'removed' END",
        "email": f"{IS_SHOWN} email ELSE '' END",
        "phone_number": f"{IS_SHOWN} phone_number END",
    }
    by_email = statement(lambda cls: cls.select_shown().where(cls.email == placeholder("email")))

    @classmethod
    def select_stored(cls) -> Any:
        """Return a SELECT of the members without removed ones, which stay for rows that refer to them."""
        return cls.select().where(cls.status != "removed")

    @classmethod
    def select_shown(cls) -> Query:
        kind = Case(cls.role, [("client", "client")], "team").alias("kind")
        hidden = ("mail_at", "mailed_until", "mail_error", "projects_since")
        return cls.select_stored().select(*columns(cls, *hidden), kind)

    @staticmethod
    def sees(member: Row, project_id: str) -> bool:
        """Return whether the member sees this project and what is in it."""
        return member["project_ids"] is None or project_id in member["project_ids"]

    @classmethod
    def with_projects(cls, role: str, fields: Row) -> Row:
        """Return the fields of a member with this role: only a client has `project_ids`. Raises `Invalid`."""
        ids = fields.get("project_ids")
        if role != "client" and ids is not None:
            raise Invalid(("project_ids", f"must be null: a member with the role {role} sees all projects"))
        existing = {row[0] for row in db.read("SELECT id FROM project", {})} if ids else ()
        if wrong := [index for index, id in enumerate(ids or []) if id not in existing]:
            raise Invalid(*((f"project_ids.{index}", "no such project") for index in wrong))
        return fields if role == "client" else fields | {"project_ids": None}

    @classmethod
    def forget_project(cls, transaction: Transaction, id: str) -> None:
        """Remove a deleted project from the `project_ids` of clients, whose list may become empty."""
        for row in cls.everyone():
            if id in (row["project_ids"] or ()):
                left = [other for other in row["project_ids"] if other != id]
                cls.change(transaction, row, {"project_ids": [row["project_ids"], left]})

    @statement
    def active_owners(cls: Any):
        return cls.select_shown().where(cls.status == cls.ACTIVE, cls.role == "owner").order_by(cls.id)

    @statement
    def unreached(cls: Any):
        """The members whose last mail was refused after `:since`."""
        return cls.select_stored().where(cls.mail_error > placeholder("since")).order_by(cls.id)

    @classmethod
    def everyone(cls) -> list[Row]:
        """Return all members by name, including clients and members who are only invited."""
        return sorted_by(cls.shown_rows.all(), "full_name")

    @classmethod
    def team(cls) -> list[Row]:
        """Return the active members by name, without clients."""
        return [row for row in cls.everyone() if row["status"] == cls.ACTIVE and row["kind"] == "team"]

    @classmethod
    def active(cls, id: str) -> Row:
        """Return the member. Raises `Invalid` unless the id is an active member's."""
        member = cls.stored_row.one(id=id)
        if member is None or member["status"] != cls.ACTIVE:
            raise Invalid(("member_id", "no such active member"))
        return member

    @classmethod
    def add(cls, transaction: Transaction, *, email: str, status: str, **fields: Any) -> Row:
        """Add a member and return it. Raises `Invalid` if another member has the address."""
        cls.check_free(email)
        id, at = transaction.new_id(), transaction.at
        joined_at = at if status == cls.ACTIVE else None
        row = {"mail": MAIL[0], "mail_at": "", "mailed_until": id, **fields, "id": id, "email": email}
        cls.insert_row.run(**row, status=status, joined_at=joined_at, created_at=at)
        return cls.shown(id)

    @classmethod
    def bootstrap(cls, transaction: Transaction, *, full_name: str, email: str) -> Row:
        """Add the workspace's first owner, who becomes the transaction's actor."""
        owner = cls.add(transaction, full_name=full_name, email=email, role="owner", status=cls.ACTIVE)
        transaction.actor = owner
        cls.record(transaction, "created", owner)
        return owner

    @classmethod
    def edit(cls, transaction: Transaction, id: str, fields: Row) -> Row:
        """Change a member: admins may change everybody, others themselves, except the role and projects.

        A member who is not an admin must confirm a new address: a link is mailed to it, and the address
        changes when the link is used. Raises `NotFound`, `Invalid` for another member's address, `Forbidden`,
        `Conflict` for the last owner or after too many mailed links, and as `check_fresh` does.
        """
        stored, actor = cls.stored(id), transaction.actor
        changes = differences(stored, fields)
        old_role, new_role = changes.get("role", (None, None))
        is_for_admins = changes.keys() & {"role", "project_ids"} or id != actor["id"]
        if actor["role"] not in ADMINS and is_for_admins:
            raise Forbidden("you may change your name and phone number; an owner or admin changes the rest")
        changes = differences(stored, cls.with_projects(new_role or stored["role"], fields))
        if "owner" in (old_role, new_role):
            only_owner(transaction, "make or unmake an owner")
            cls._keep_an_owner(stored)
        if new_role in ADMINS and ApiKey.limit_of(actor):
            raise Forbidden("the key in use expires, and the new role would outlive it; use another key")
        if "email" in changes:  # sign-in links are mailed to the new address
            ApiKey.check_fresh(actor)
            if stored["role"] == "owner":
                only_owner(transaction, "change an owner's address")
            if ApiKey.limit_of(actor):
                raise Forbidden("the key in use expires, and a new address would outlive it; use another key")
            if actor.get("project_ids") is None:  # a client must not learn whose address it is
                cls.check_free(fields["email"])
            if actor["role"] not in ADMINS:
                if not Invitation.is_mailed:
                    raise Forbidden("this server sends no mail; an owner or admin changes your address")
                Invitation.mail_to(transaction, id, new_email=changes.pop("email")[1])
        cls.change(transaction, stored, changes)
        if new_role:
            Credential.follow_role(transaction, id, old_role, new_role)
        return cls.shown(id)

    @classmethod
    def check_free(cls, email: str) -> None:
        """Raise `Invalid` if a member has this address."""
        if cls.by_email.one(email=email):
            raise Invalid(("email", "is already a member's"))

    @classmethod
    def change(
        cls, transaction: Transaction, stored: Row, changes: Row, related_changes: Row | None = None
    ) -> None:
        """Store and record these changes; also record `related_changes`, of the member's links.

        A new address ends the member's links, and the old address gets a mail.
        """
        new = {name: value for name, (_, value) in changes.items()}
        if "email" in new:
            Invitation.revoke_open.run(member_id=stored["id"], now=transaction.at)
            if Invitation.is_mailed and stored["status"] == cls.ACTIVE:
                mail = {"mail_at": transaction.at, "expires_at": now(86400), "old_email": stored["email"]}
                token_hash = digest(secrets.token_urlsafe())  # nobody has this token
                Invitation.store(transaction, member_id=stored["id"], token_hash=token_hash, **mail)
        if new:
            reset = {"mail_at": "", "mail_error": None} if new.keys() & {"email", "mail"} else {}
            reset |= {"projects_since": transaction.at} if "project_ids" in new else {}
            cls.set_columns(stored["id"], **new | reset)
        if new.get("project_ids") is not None:
            cls.notices.limited(stored["id"])
        if recorded := changes | (related_changes or {}):
            cls.record(transaction, "updated", stored | new, recorded)

    @classmethod
    def remove(cls, transaction: Transaction, id: str) -> None:
        """Hide the member, and revoke the member's keys and links. Raises as `edit` does."""
        stored = cls.stored(id)
        if stored["role"] == "owner":
            only_owner(transaction, "remove an owner")
            cls._keep_an_owner(stored)
        cls.set_columns(id, status="removed")
        Credential.follow_role(transaction, id, stored["role"], None)
        cls.record(transaction, "deleted", stored)

    @classmethod
    def _keep_an_owner(cls, stored: Row) -> None:
        """Raise `Conflict` if this is the only active owner."""
        if [owner["id"] for owner in cls.active_owners.all()] == [stored["id"]]:
            raise Conflict("the workspace needs an owner; make another member an owner first")


# The address of a removed member can be used again.
Member.indexed("member_email", "email", unique=True, where=(Member.status != "removed"))


class Credential(Entity):
    """A table of keys, or of links to join or to sign in: each lets one member in."""

    member = ForeignKeyField(Member)
    makers = TextField(null=True)  # the ids in `Transaction.makers`; null if unknown
    made_with = TextField(null=True)  # the id of the key in use; after a link, of the key that made the link
    revoked_at = TextField(null=True)

    @classmethod
    def revoke_where(cls, *conditions: Any) -> Query:
        """Return an UPDATE that revokes the unrevoked rows for which the conditions hold."""
        return cls.update({cls.revoked_at: placeholder("now")}).where(cls.revoked_at.is_null(), *conditions)

    @statement
    def unrevoked(cls: Any):
        """The rows of a member, and the rows that the member made."""
        is_made = fn.INSTR(cls.makers, placeholder("member_id")) > 0
        is_theirs = is_made | (cls.member == placeholder("member_id"))
        return cls.select().where(cls.revoked_at.is_null(), is_theirs)

    @staticmethod
    def follow_role(transaction: Transaction, id: str, old: str, new: str | None) -> None:
        """Revoke keys and links when a member's role changes; `new` is None for a removed member.

        If a member becomes an owner, a key that an admin made for them would be an owner's key in the admin's
        hands. If a member loses rights, a key that they made for somebody else would give them back.
        """
        trusted = {id, transaction.actor["id"]}
        loses_rights = new is None or ROLES.index(new) > ROLES.index(old)
        for table in (ApiKey, Invitation):
            for row in table.unrevoked.all(member_id=id):
                is_distrusted = not trusted.issuperset((row["makers"] or "unknown").split())
                if row["member_id"] == id:
                    ends = new is None or (new == "owner" and is_distrusted)
                else:  # the member made it for somebody else
                    ends = loses_rights
                if ends:
                    table.set_columns(row["id"], revoked_at=transaction.at)

    @classmethod
    def check_manager(cls, transaction: Transaction, holder: Row) -> None:
        """Raise `Forbidden` unless the actor may make and revoke keys or links of this member."""
        if holder["id"] != transaction.actor["id"]:
            allowed = ("owner",) if holder["role"] == "owner" else ADMINS
            if transaction.actor["role"] not in allowed:
                managers = " or ".join(allowed)
                raise Forbidden(f"only an {managers} manages the {cls.NOUN}s of this {holder['role']}")

    @statement
    def revoke_made(cls: Any):
        """Revoke everything that was made with a key, or with a key that was made with it, and so on."""
        root, other = ApiKey.select(ApiKey.id).where(ApiKey.id == placeholder("id")), ApiKey.alias()
        keys = root.cte("made", recursive=True, columns=("id",))
        keys = keys.union(other.select(other.id).join(keys, on=(other.made_with == keys.c.id)))
        return cls.revoke_where(cls.made_with.in_(keys.select_from(keys.c.id)))

    @classmethod
    def store(cls, transaction: Transaction, **fields: Any) -> str:
        """Store a key or link that the actor makes; return its id."""
        id, actor = transaction.new_id(), transaction.actor
        made = {"created_at": transaction.at, "created_by": actor["id"], "makers": transaction.makers}
        made["made_with"] = actor.get("key_id") or actor.get("made_with")
        cls.insert_row.run(**fields, **made, id=id)
        return id


class Invitation(Credential):
    """A link with which an invited member joins, or an active member signs in."""

    token_hash = TextField(unique=True)
    created_by = ForeignKeyField(Member, column_name="created_by", index=False)
    created_at = TextField()
    expires_at = TextField()
    used_at = TextField(null=True)
    mail_at = TextField(null=True)  # when to mail it, or to try again; null if it is not to be mailed
    mail_hash = TextField(null=True)  # the hash of the token in the mail, which is made when that is sent
    new_email = TextField(null=True)  # the address that the member gets with the link
    old_email = TextField(null=True)  # if set, the mail goes here, has no link, and says that this changed

    NOUN = "invitation"
    is_mailed: ClassVar[bool] = False  # whether links are mailed; the part that mails them sets both
    mail_to: ClassVar[Any] = None  # mail_to(transaction, member_id, new_email=None), called if `is_mailed`

    @classmethod
    def is_open(cls) -> Expression:
        """Return the condition that the link can be used."""
        return cls.revoked_at.is_null() & cls.used_at.is_null() & (cls.expires_at > placeholder("now"))

    @classmethod
    def invite(
        cls, transaction: Transaction, days: float, *, email: str, **fields
    ) -> tuple[Row, str, str, bool]:
        """Invite somebody with a link that is valid for `days`; revoke an earlier link.

        Returns the member, the link's token and expiry, and whether the member is new. Raises `Conflict` for
        the address of an active member. Raises `Forbidden` unless the actor is an owner, if an owner is
        invited, and if the key in use expires, for an owner or admin.
        """
        stored = Member.by_email.one(email=email)
        if stored and stored["status"] == Member.ACTIVE:
            raise Conflict(f"{email} is already a member")
        if "owner" in (fields["role"], stored and stored["role"]):
            only_owner(transaction, "invite an owner")
        fields = Member.with_projects(fields["role"], fields)
        if stored:
            changes = differences(stored, {"phone_number": None, **fields})
            Member.change(transaction, stored, changes, {"invitation": [None, "renewed"]})
            member = Member.shown(stored["id"])
        else:
            member = Member.add(transaction, email=email, status="invited", **fields)
            Member.record(transaction, "created", member)
        return member, *cls._issue(transaction, member, days), stored is None

    @classmethod
    def renew(cls, transaction: Transaction, member_id: str, days: float) -> tuple[Row, str, str]:
        """Replace the link of a member: to join within `days`, or if the member is active, to sign in.

        Returns the member, the link's token and expiry. Raises `NotFound`, and `Forbidden` as `invite`,
        `check_manager` and `check_fresh` do.
        """
        member, made = Member.shown(member_id), "renewed"
        cls.check_manager(transaction, member)
        if member["status"] == Member.ACTIVE:
            ApiKey.check_fresh(transaction.actor)
            days, made = SIGN_IN_DAYS, "sign-in link"
        Member.record(transaction, "updated", member, {"invitation": [None, made]})
        return member, *cls._issue(transaction, member, days)

    @classmethod
    def revoke(cls, transaction: Transaction, member_id: str) -> None:
        """Revoke the open link of a member. Raises `NotFound` without such a link, and `Forbidden`."""
        member = Member.shown(member_id)
        cls.check_manager(transaction, member)
        if not cls.revoke_open.run(member_id=member_id, now=transaction.at):
            raise NotFound("open invitation")
        Member.record(transaction, "updated", member, {"invitation": [None, "revoked"]})

    @classmethod
    def _issue(cls, transaction: Transaction, member: Row, days: float) -> tuple[str, str]:
        """Replace the member's link; return the token and expiry."""
        limit = ApiKey.limit_of(transaction.actor)
        if limit and (member["status"] == Member.ACTIVE or member["role"] in ADMINS):
            raise Forbidden("the key in use expires, and what this link gives would outlive it; use another")
        token, expires_at = secrets.token_urlsafe(32), min(now(days * 86400), limit or "9999")
        cls.revoke_open.run(member_id=member["id"], now=transaction.at)
        mail_at = transaction.at if cls.is_mailed else None
        fields = {"token_hash": digest(token), "expires_at": expires_at, "mail_at": mail_at}
        cls.store(transaction, member_id=member["id"], **fields)
        return token, expires_at

    @staticmethod
    def link(config: Mapping[str, Any], token: str) -> str:
        """Return the address of the page that uses the token."""
        return f"{config['SERVER']['base_url']}/enroll/{token}"

    @statement
    def revoke_open(cls: Any):
        is_theirs = cls.member == placeholder("member_id")
        return cls.revoke_where(is_theirs, cls.used_at.is_null(), cls.old_email.is_null())

    @statement
    def by_token(cls: Any):
        shown = columns(cls, "token_hash", "mail_hash", "mail_at", "member_id")
        shown.append((Member.status == Member.ACTIVE).alias("signs_in"))
        shown += profile(Member, "member")
        invitations = cls.select(*shown).join(Member, on=(cls.member == Member.id))
        has_token = cls.token_hash == placeholder("hash")
        has_mailed_token = cls.mail_hash == placeholder("hash")
        return invitations.where(has_token | has_mailed_token)

    @classmethod
    def open(cls, token: str) -> Row:
        """Return the invitation of a link that can still be used. Raises `NotFound` or `Gone`."""
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
        """Use the link: its member becomes the actor. Return whether the member joins with it.

        Keys that are made after a sign-in link have the link's makers, who could have used it themselves.
        After a link to join they have not: nobody can join unnoticed for somebody else. Raises as `open`.
        """
        invitation = cls.open(token)
        cls.set_columns(invitation["id"], used_at=transaction.at)
        member_id = invitation["member"]["id"]
        if invitation["signs_in"]:
            transaction.actor = Member.shown(member_id) | {"key_makers": invitation["makers"]}
            transaction.actor["made_with"] = invitation["made_with"]
            if email := invitation["new_email"]:
                Member.check_free(email)
                new = differences(transaction.actor, {"email": email})
                Member.change(transaction, transaction.actor, new)
            return False
        Member.set_columns(member_id, joined_at=transaction.at, status=Member.ACTIVE)
        transaction.actor = Member.shown(member_id)
        Member.record(transaction, "updated", transaction.actor, {"status": ["invited", "active"]})
        return True


_has_mail_hash = Invitation.mail_hash.is_null(False)
Invitation.indexed("invitation_mail_hash", "mail_hash", unique=True, where=_has_mail_hash)
Invitation.indexed("invitation_mail_at", "mail_at", where=Invitation.mail_at.is_null(False))


class ApiKey(Credential):
    brakes: ClassVar[Any] = NoPart  # a part replaces it
    name = TextField()
    scope = ChoiceField((*SCOPES, CALENDAR))
    prefix = TextField()  # "" until a program has exchanged its code for the key
    hash = TextField(unique=True)  # after the audience, if the key is not for the API
    created_at = TextField()
    expires_at = TextField(null=True)
    last_used_at = TextField(null=True)
    created_by = TextField(null=True)  # a member's id
    is_session = IntegerField(null=True)  # 1 for a session whose keys may outlive it (`limit_of`)
    started_with = TextField(null=True)  # of a session: the id of the key that started and ends it
    signed_in_at = TextField(null=True)  # of a session: when a proxy last signed its member in again

    NOUN = "key"
    SEEN = "1"  # answers show the names of keys; `visible` and `revoke` decide who may list and revoke them
    is_started: ClassVar[Any] = is_session.is_null(False) | started_with.is_null(False)  # as a session
    # Where a key is accepted: in the header, in the cookie, or in the path of a calendar.
    kind: ClassVar[Any] = Case(None, [(scope == CALENDAR, CALENDAR), (is_started, "session")], "key")

    # Reads never write: `caller` notes here when a key was used, once a minute. The next transaction stores
    # it (`write`); without one, the sweeper does (`store_last_used`).
    used: ClassVar[dict[str, str]] = {}  # by the key's id

    @classmethod
    def select_shown(cls) -> Query:
        creator = Member.alias("creator")
        hidden = "hash member_id makers created_by is_session started_with signed_in_at"
        shown = columns(cls, *hidden.split())
        is_session = fn.JSON(Case(None, [(cls.is_session == 1, "true")], "false")).alias("is_session")
        keys = cls.select(*shown, is_session, *profile(Member, "member"), *profile(creator, "creator"))
        keys = keys.join(Member, on=(cls.member == Member.id)).switch(cls)
        return keys.join(creator, JOIN.LEFT_OUTER, on=(cls.created_by == creator.id)).order_by(cls.id)

    @classmethod
    def issue(
        cls, transaction: Transaction, member_id: str, *, key: str | None = None, **fields: Any
    ) -> tuple[Row, str]:
        """Make a key of the member; return its row and the key itself, which is not stored."""
        key = key or KEY_PREFIX + secrets.token_urlsafe(32)
        fields = {"scope": "write", "prefix": key[:12], "hash": digest(key), **fields}
        return cls.shown(cls.store(transaction, member_id=member_id, **fields)), key

    @staticmethod
    def limit_of(actor: Row) -> str | None:
        """Return the latest expiry of any key or link that the actor may make, or None for no limit.

        A key that expires must not make one that lives longer. A session expires too, but it stands for a
        person, who can sign in again; a command uses no key.
        """
        return None if actor.get("key_is_session") else actor.get("key_expires_at")

    @staticmethod
    def check_fresh(actor: Row) -> None:
        """Raise `Forbidden` in a session whose member signed in more than `FRESH_SECONDS` ago."""
        if (signed_in_at := actor.get("key_signed_in_at")) and signed_in_at < now(-FRESH_SECONDS):
            raise Forbidden(
                "you signed in more than 15 minutes ago; to make a key or link or change an address, sign in "
                "again: with a sign-in link or an API key, or if a proxy signs you in, by loading the page"
            )

    @statement
    def listed(cls: Any):
        """The keys of `:member_id`, or everybody's if that is null, without codes and ended sessions."""
        is_theirs = placeholder("member_id").is_null() | (cls.member == placeholder("member_id"))
        is_open = cls.revoked_at.is_null() & (cls.expires_at > placeholder("now"))
        return cls.select_shown().where(is_theirs, ~cls.is_started | is_open, cls.prefix != "")

    @classmethod
    def visible(cls, caller: Row) -> list[Row]:
        """Return the caller's keys and open sessions; for an owner or admin, everybody's."""
        return cls.listed.all(member_id=None if caller["role"] in ADMINS else caller["id"], now=now())

    @classmethod
    def grant(
        cls, transaction: Transaction, *, member_id: str | None = None, **fields: Any
    ) -> tuple[Row, str]:
        """Make a key for the actor, or, as an owner or admin, for another active member.

        Returns its row and the key itself. Raises `Forbidden`, and `Invalid` if it expires in the past, or
        after the key in use (`limit_of`).
        """
        cls.check_fresh(transaction.actor)
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
    def revoke(cls, transaction: Transaction, id: str, made: bool = False) -> None:
        """Revoke a key as `end` does. Raises `Forbidden`, and `NotFound` if the actor may not see the key."""
        key, actor = cls.shown(id), transaction.actor
        if actor["role"] not in ADMINS and key["member"]["id"] != actor["id"]:
            raise NotFound("key")
        cls.check_manager(transaction, key["member"])
        cls.end(transaction, id, made)
        if key["revoked_at"] is None:
            Member.record(transaction, "updated", key["member"], {"api_key": [id, None]})

    @statement
    def revoke_with_sessions(cls: Any):
        """Revoke a key, and the sessions that were started with it."""
        return cls.revoke_where((cls.id == placeholder("id")) | (cls.started_with == placeholder("id")))

    @classmethod
    def end(cls, transaction: Transaction, id: str, made: bool) -> None:
        """Revoke a key and the sessions that it started; with `made`, everything that was made with them."""
        for table in (cls, Invitation) if made else ():
            table.revoke_made.run(id=id, now=transaction.at)
        cls.revoke_with_sessions.run(id=id, now=transaction.at)

    @statement
    def delete_ended(cls: Any):
        ended = fn.COALESCE(cls.revoked_at, cls.expires_at)
        is_unused = (cls.prefix == "") & (cls.created_at < placeholder("before"))
        return deletion_of_some(cls, cls.is_started & (ended < placeholder("before")) | is_unused)

    @statement
    def by_hash(cls: Any):
        of_member = [getattr(Member, name) for name in (*PROFILE, "project_ids", "projects_since")]
        fields = [cls.id, cls.prefix, cls.expires_at, cls.last_used_at]
        fields += [cls.makers, cls.is_session]
        of_key = [field.alias(f"key_{field.name}") for field in fields]
        signed_in_at = Case(None, [(cls.is_started, fn.COALESCE(cls.signed_in_at, cls.created_at))])
        callers = cls.select(*of_member, cls.scope, *of_key, signed_in_at.alias("key_signed_in_at"))
        return callers.join(Member, on=(cls.member == Member.id)).where(
            cls.hash == placeholder("hash"),
            cls.kind == placeholder("kind"),
            cls.revoked_at.is_null(),
            cls.expires_at.is_null() | (cls.expires_at > placeholder("now")),
            Member.status == Member.ACTIVE,
        )

    @classmethod
    def caller(cls, key: str, kind: str = "key", audience: str = "") -> Row | None:
        """Return the member of this key, with columns of the key; None unless it is a valid `kind`.

        A key with an `audience` counts only there, since its hash begins with it.
        """
        at = now()
        caller = cls.by_hash.one(hash=audience + digest(key), now=at, kind=kind)
        if caller and (caller["key_last_used_at"] or "")[:16] != at[:16]:  # another minute
            cls.used[caller["key_id"]] = at
        return caller

    @classmethod
    def write_last_used(cls) -> None:
        """Store the times at which keys were last used; every transaction does."""
        while cls.used:
            id, at = cls.used.popitem()
            cls.set_columns(id, last_used_at=at)


ApiKey.indexed("api_key_made_with", "made_with", where=ApiKey.made_with.is_null(False))
ApiKey.indexed("api_key_open", "member id", where=ApiKey.revoked_at.is_null())


# The activity ---------------------------------------------------------------------------------


def _seen(field: str) -> str:
    """Return the SQL of both lists of numbers in a change, without tasks that the viewer does not see."""
    one = "JSON((SELECT JSON_GROUP_ARRAY(number) FROM main.task WHERE +project_id IN seen_project AND "
    one += "number IN (SELECT value FROM JSON_EACH(changes, '$.{}[{}]'))))"
    return f"'$.{field}', JSON_ARRAY({one.format(field, 0)}, {one.format(field, 1)})"


# The `changes` that a viewer sees: only that a task came from elsewhere, or all, with seen tasks' numbers.
_SEEN_CHANGES = f"""CASE WHEN JSON_EXTRACT(changes, '$.project_id[0]') NOT IN seen_project
    THEN JSON_OBJECT('project_id', JSON_ARRAY(NULL, project_id))
    ELSE JSON_REPLACE(changes, {_seen("blocked_by")}, {_seen("blocks")}) END"""


class Activity(Identified):
    """A row for each change, stored in the transaction of the change."""

    actor = ForeignKeyField(Member, index=False)
    action = TextField()  # one of `HISTORY_ACTIONS`; only tasks are moved: to another status or project
    entity = ChoiceField(ENTITIES)
    entity_id = TextField()
    task_id = TextField(null=True)  # the task, or the comment's task; it may be deleted by now
    title = TextField()
    changes = EncodedJSONField()
    request_id = TextField()
    created_at = TextField()
    key = ForeignKeyField(ApiKey, null=True, on_delete="SET NULL", index=False)
    number = IntegerField(null=True)  # of that task
    is_hidden = IntegerField(null=True)  # 1 for a change that the history does not show
    project_id = TextField(null=True)  # of the task, at that time

    # A viewer does not see a task's activity from before it came to the viewer's projects, or after it left.
    _IS_THERE = "EXISTS (SELECT 1 FROM task WHERE task.id = task_id)"
    SEEN = f"{Base.OF_PROJECT} AND (action = 'deleted' AND entity = 'task' OR {_IS_THERE})"
    SEEN_AS: ClassVar[Row] = {"changes": _SEEN_CHANGES}
    is_deletion_of_task: ClassVar[Any] = (action == "deleted") & (entity == "task")
    is_of_chosen_kind: ClassVar[Any] = (placeholder("of_tasks") == 0) | task_id.is_null(False)
    # The id of the activity that was stored last; the next transaction gets a later time.
    newest = statement(lambda cls: cls.select(cls.id).order_by(rowid(cls).desc()).limit(1))

    @classmethod
    def select_newest(cls, *conditions: Any, without: tuple[str, ...] = ()) -> Query:
        """Return a SELECT of the newest `:most` activities that meet the conditions, with their actors.

        A subquery selects them, so that actors are read only for these rows.
        """
        rowids = cls.select(rowid(cls)).where(cls.is_hidden.is_null(), *conditions)
        chosen = rowids.order_by(cls.id.desc()).limit(placeholder("most")).alias("chosen")
        without = ("actor_id", "key_id", "request_id", "is_hidden", "project_id", *without)
        selected = [*columns(cls, *without), via(), *profile(Member, "actor")]
        rows = Select([chosen], selected).join(cls, JOIN.CROSS, on=(rowid(cls) == chosen.c.rowid))
        rows = rows.join(Member, JOIN.LEFT_OUTER, on=(cls.actor == Member.id))
        return rows.join(ApiKey, JOIN.LEFT_OUTER, on=(cls.key == ApiKey.id))

    @statement
    def recent(cls: Any):
        """The newest changes and creations; with `:of_tasks` only of tasks and comments."""
        is_work = cls.action.not_in(("deleted", "restored"))
        return cls.select_newest(is_work, cls.is_of_chosen_kind, without=("task_id", "number"))

    @statement
    def deletion_of(cls: Any):
        """The deletion of the task with this number."""
        return cls.select_newest(cls.is_deletion_of_task, cls.number == placeholder("number"))

    @statement
    def last_change(cls: Any):
        """The last changes of a task that include the field at `:path`, and the key that made them."""
        rows = cls.select(cls.changes, cls.key, ApiKey.scope, via())
        rows = rows.join(ApiKey, JOIN.LEFT_OUTER, on=(cls.key == ApiKey.id))
        is_change = (cls.task_id == placeholder("task_id")) & (cls.entity == "task") & cls.is_hidden.is_null()
        is_change &= fn.JSON_EXTRACT(cls.changes, placeholder("path")).is_null(False)
        return rows.where(is_change).order_by(cls.id.desc()).limit(1)

    @classmethod
    def add(cls, transaction: Transaction, changes: Row, private: Any, **described: str | None) -> None:
        """Store an activity of the actor, without the values of the `private` fields."""
        shortened = {
            name: pair if name == "blocks" else [*map(cls._shortened, pair)] for name, pair in changes.items()
        } | {name: [None, None] for name in private if name in changes}
        made = {"id": transaction.new_id(), "actor_id": transaction.actor["id"], "created_at": transaction.at}
        made |= {"request_id": transaction.request_id, "key_id": transaction.actor.get("key_id")}
        cls.insert_row.run(**described, **made, changes=shortened)
        if shortened != changes:
            Entity.keeper.keep_values(made["id"], changes, shortened)

    @staticmethod
    def _shortened(value: Any) -> Any:
        """Return the value, or only its length as JSON if that is more than `MAX_CHANGE` bytes."""
        length = len(to_json(value))
        return value if length <= MAX_CHANGE else {"omitted_bytes": length}

    @statement
    def forgotten(cls: Any):
        """The last hidden activity after `:after` and before `:until`."""
        is_old = (cls.id > placeholder("after")) & (cls.id < placeholder("until"))
        return cls.select(fn.MAX(cls.id)).where(cls.is_hidden.is_null(False), is_old)

    @statement
    def delete_old(cls: Any):
        """Delete activity before `:before`, and hidden activity before `:until`.

        `change_page` needs the newest and the last hidden one, so these stay.
        """
        is_newest = cls.id == cls.select(fn.MAX(cls.id))
        is_forgotten = cls.is_hidden.is_null(False) & (cls.id < cls.forgotten.query)
        return deletion_of_some(cls, is_forgotten | ((cls.id < placeholder("before")) & ~is_newest))


_is_in_history = Activity.is_hidden.is_null()
Activity.indexed("activity_shown", "id action", where=_is_in_history)
Activity.indexed("activity_project", "project_id id", where=Activity.project_id.is_null(False))
Activity.indexed("activity_task", "task_id id", where=Activity.task_id.is_null(False) & _is_in_history)
Activity.indexed("activity_object", "entity_id id", where=Activity.task_id.is_null())
Activity.indexed("activity_hidden", "id", where=Activity.is_hidden.is_null(False))
Activity.indexed("activity_gone", "number", where=Activity.is_deletion_of_task)
