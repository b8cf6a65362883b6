"""The outbox: the events that happened, the webhooks that are to be told, and what came of each delivery.

Nothing is sent from here.
"""

from collections.abc import Container
from functools import lru_cache
from typing import Any, ClassVar

from peewee import SQL, AutoField, Expression, ForeignKeyField, IntegerField, Query, TextField, fn

from database import (
    Base,
    Identified,
    JSONText,
    Row,
    Statement,
    columns,
    deletion_of_some,
    insertion,
    new_id,
    now,
    placeholder,
    row_of,
    to_json,
)
from models import (
    COUNT_LIMIT,
    Conflict,
    Invalid,
    Transaction,
    differences,
    not_found,
    pagination,
    sorted_by,
    update_row,
    write,
)

MOST_WAITING = 10_000  # events that wait for a disabled webhook, beyond which the oldest are dropped


class Webhook(Identified):
    """A webhook receiver of the configuration, with what is known of its health."""

    name = TextField(unique=True)
    url = TextField()
    events = JSONText()
    state = TextField()  # active, disabled
    reason = TextField(null=True)  # why it is disabled
    failures = IntegerField()  # in a row, that say that it cannot be reached
    first_failure_at = TextField(null=True)  # since when nothing but failures
    open_until = TextField(null=True)  # while its circuit is open, nothing is sent
    created_at = TextField()
    updated_at = TextField()
    misses = IntegerField(constraints=[SQL("DEFAULT 0")])  # attempts in a row that it did not accept

    LEFT = "no longer in the configuration"
    WELL: ClassVar[Row] = {"failures": 0, "first_failure_at": None, "open_until": None, "misses": 0}

    @classmethod
    def listing(cls) -> list[Row]:
        """Every webhook by name, with how many deliveries wait for it."""
        return sorted_by(WEBHOOKS.all(), "name")

    @classmethod
    def fetch(cls, id: str) -> Row:
        return WEBHOOK.one(id=id) or not_found("webhook")

    @classmethod
    def present(cls, id: str) -> Row:
        """Raises `NotFound`, and `Conflict` where it left the configuration."""
        webhook = cls.fetch(id)
        if webhook["reason"] == cls.LEFT:
            raise Conflict(f"the webhook {webhook['name']} is {cls.LEFT}; put it back there first")
        return webhook

    @classmethod
    def able(cls, id: str) -> Row:
        """One that can be sent to. Raises as `present` does, and `Conflict` where it is disabled."""
        webhook = cls.present(id)
        if webhook["state"] == "disabled":
            raise Conflict(
                f"the webhook {webhook['name']} is disabled ({webhook['reason']}); enable it first"
            )
        return webhook

    @classmethod
    def condition(cls, id: str) -> Row:
        """What is known of its health, without counting what waits for it."""
        return row_of(cls).existing(id=id)

    @classmethod
    def configured(cls, left_before: str) -> list[Row]:
        """The webhooks that events are stored for, and which; `healthy` ones can be sent to at once.

        Later events wait behind those that are queued, and behind those that were leased before
        `left_before` and have no result yet: the process that leased them may have died.
        """
        return CONFIGURED_WEBHOOKS.all(left_before=left_before)

    @classmethod
    def due(cls, window: Row) -> list[str]:
        """The ids of the webhooks that something can be sent to now."""
        return [row["id"] for row in DUE_WEBHOOKS.all(**window)]

    @classmethod
    def mirror(cls, transaction: Transaction, hooks: list[Row], *, alone: bool) -> list[str]:
        """Make the table say what the configuration does; what left the configuration is disabled.

        Only a server that is alone disables: another server may have the webhook in its configuration.
        Returns the names of those that have left since the last time.
        """
        known = {row["name"]: row for row in cls.listing()}
        for hook in hooks:
            fields = {"url": hook["url"], "events": to_json(hook["events"]).decode()}
            row = known.pop(hook["name"], None)
            if row is None:
                times = {"created_at": transaction.at, "updated_at": transaction.at}
                insertion(Webhook).run(
                    id=new_id(), name=hook["name"], state="active", failures=0, misses=0, **fields, **times
                )
                continue
            if changes := differences(row, fields):
                update_row(cls, transaction, row["id"], fields, changes)
            if row["reason"] == cls.LEFT:
                cls.enable(transaction, row["id"])
        left = [row for row in known.values() if alone and row["reason"] != cls.LEFT]
        for row in left:
            cls.disable(transaction, row["id"], cls.LEFT)
        return [row["name"] for row in left]

    @classmethod
    def stranded(cls, known: Container[str]) -> int:
        """How many webhooks have deliveries waiting that this server does not send.

        They left the configuration, or are not in `known`.
        """
        return sum(row["left"] or row["id"] not in known for row in STRANDED_WEBHOOKS.all())

    @classmethod
    def disable(cls, transaction: Transaction, id: str, reason: str) -> None:
        """Send it nothing more; what waits is parked."""
        fields = {"state": "disabled", "reason": reason}
        update_row(cls, transaction, id, fields, fields)
        PARK_WAITING.run(webhook_id=id)

    @classmethod
    def enable(cls, transaction: Transaction, id: str) -> Row:
        """Send to it again, and first what was parked when it was disabled."""
        cls.fetch(id)
        fields = {"state": "active", "reason": None} | cls.WELL
        update_row(cls, transaction, id, fields, fields)
        RESUME_PARKED.run(webhook_id=id, now=now())
        HURRY.run(webhook_id=id, now=now())
        return cls.fetch(id)

    @classmethod
    def answered(cls, transaction: Transaction, id: str, *, well: bool) -> None:
        """Note that it can be reached; whether it accepted tells if it works."""
        stored = cls.condition(id)
        fields = cls.WELL if well else cls.WELL | cls._missed(transaction, stored)
        if stored["failures"]:  # what waits behind the failure need not wait any longer
            HURRY.run(webhook_id=id, now=now())
        if changes := differences(stored, fields):
            update_row(cls, transaction, id, fields, changes)

    @classmethod
    def failed(cls, transaction: Transaction, id: str, until: str, far: str) -> str:
        """Open its circuit; returns until when, which may be as somebody else has found before.

        What lies beyond `far` was found before the clock was set back.
        """
        stored = cls.condition(id)
        if stored["open_until"] and now() < stored["open_until"] <= far:
            return stored["open_until"]
        fields = {"failures": stored["failures"] + 1, "open_until": until} | cls._missed(transaction, stored)
        update_row(cls, transaction, id, fields, fields)
        return until

    @classmethod
    def _missed(cls, transaction: Transaction, stored: Row) -> Row:
        return {
            "first_failure_at": stored["first_failure_at"] or transaction.at,
            "misses": stored["misses"] + 1,
        }


class Event(Base):
    """What happened, as the bytes that are signed and sent. `seq` rises in commit order, never reused."""

    seq = AutoField()
    id = TextField(unique=True)
    name = TextField()
    body = JSONText()
    created_at = TextField()

    @classmethod
    def add(cls, transaction: Transaction, id: str, name: str, body: str) -> int:
        """Store the event; returns its place in the sequence."""
        return insertion(Event).run(id=id, name=name, body=body, created_at=transaction.at)

    @classmethod
    def after(cls, id: str | None, most: int) -> tuple[list[Row], bool]:
        """The events that follow this one (else the first), in order, and whether there are more.

        Raises `Invalid` for an event that does not exist, or not any more.
        """
        seq = 0
        if id is not None:
            seq = EVENT_SEQ.value(id=id)
            if seq is None:
                raise Invalid(
                    ("after", "no such event, or not any more; without it, the first kept is the first")
                )
        rows = EVENTS_AFTER.all(seq=seq, most=most + 1)
        return rows[:most], len(rows) > most


class Delivery(Identified):
    """An event on its way to a webhook: the outbox. A row is leased while someone sends it."""

    event = ForeignKeyField(Event, column_name="event_seq", object_id_name="event_seq")
    webhook = ForeignKeyField(Webhook, index=False)
    status = TextField()  # pending, delivered, parked
    attempts = IntegerField()  # counted when leased, so that it also names the lease
    queued = IntegerField()  # 1: later events of its webhook wait behind it
    next_at = TextField()
    leased_until = TextField(null=True)
    last_status = IntegerField(null=True)
    last_error = TextField(null=True)
    duration_ms = IntegerField(null=True)
    delivered_at = TextField(null=True)
    created_at = TextField()

    @classmethod
    def add(
        cls,
        transaction: Transaction,
        event_seq: int,
        webhook_id: str,
        lease: str | None,
        *,
        parked: bool = False,
    ) -> str:
        """A delivery born leased, which saves a transaction to claim it, or else queued.

        With `parked`, it waits until its webhook is enabled.
        """
        id = new_id()
        insertion(Delivery).run(
            id=id,
            event_seq=event_seq,
            webhook_id=webhook_id,
            status="parked" if parked else "pending",
            attempts=1 if lease else 0,
            queued=0 if lease else 1,
            next_at=now(),  # unlike change.at, it follows a clock that is set back
            leased_until=lease,
            created_at=transaction.at,
        )
        return id

    @classmethod
    def page(cls, *, limit: int, offset: int, **filters: str) -> Row:
        """Deliveries that pass every filter, newest first, with their pagination."""
        rows = delivery_page(frozenset(filters)).all(limit=limit + 1, offset=offset, **filters)
        total = delivery_total(frozenset(filters)).value(**filters)
        return {"deliveries": rows[:limit], "pagination": pagination(total, limit, offset, len(rows))}

    @classmethod
    def fetch(cls, id: str) -> Row:
        """The delivery with its event's body."""
        return DELIVERY.one(id=id) or not_found("delivery")

    @classmethod
    def waiting(cls) -> Row:
        """How many deliveries are pending, and how many webhooks fail."""
        return {"pending": PENDING.value(), "failing_endpoints": FAILING.value()}

    @classmethod
    def parked(cls) -> list[tuple[str, int]]:
        """How many deliveries are parked, by the webhook's name."""
        return [(row["name"], row["parked"]) for row in PARKED.all()]

    @classmethod
    def to_send(cls, ids: list[str]) -> list[Row]:
        return [DELIVERY_TO_SEND.existing(id=id) for id in ids]

    @classmethod
    def claim(
        cls, transaction: Transaction, webhook_id: str, most: int, lease: str, window: Row
    ) -> list[Row]:
        """Lease the webhook's due deliveries in the order of their events; returns them.

        Nothing is claimed that comes after a delivery which somebody else is sending, except what the
        webhook has refused before.
        """
        due = DUE_DELIVERIES.all(webhook_id=webhook_id, most=most, **window)
        if not due:
            return []
        barrier = FIRST_IN_PROGRESS.value(webhook_id=webhook_id, last=due[-1]["event_seq"], **window)
        free = [row["id"] for row in due if row["refused"] or not barrier or row["event_seq"] < barrier]
        return [row for row in cls.to_send(free) if cls.lease(row, lease)]

    @classmethod
    def queued_for(cls, webhook_id: str) -> bool:
        """Whether something waits for the webhook that the sweeper has to send."""
        return QUEUED.value(webhook_id=webhook_id) is not None

    @classmethod
    def lease(cls, row: Row, lease: str) -> bool:
        """Take the delivery for sending, unless somebody has since it was read."""
        fields = {"status": "pending", "attempts": row["attempts"] + 1, "leased_until": lease}
        taken = leased_update(tuple(fields)).run(id=row["id"], held=row["attempts"], **fields)
        row["attempts"] += 1
        return taken == 1

    @classmethod
    def release(cls, row: Row) -> None:
        """Give up a lease without having tried."""
        fields = {"leased_until": None, "attempts": row["attempts"] - 1, "queued": 1}
        leased_update(tuple(fields)).run(id=row["id"], held=row["attempts"], **fields)

    @classmethod
    def release_all(cls) -> None:
        """End all leases, whose holders have died; later events wait for what was leased."""
        with write():
            RELEASE_LEASES.run()

    @classmethod
    def settle(cls, row: Row, **fields: Any) -> None:
        """Note what came of it, unless the lease ran out and somebody else has tried since."""
        fields["leased_until"] = None
        leased_update(tuple(fields)).run(id=row["id"], held=row["attempts"], **fields)

    @classmethod
    def again(cls, transaction: Transaction, id: str, lease: str) -> Row:
        """Lease a delivery for another attempt, whatever came of it.

        Raises `Conflict` while it is being sent, and where its webhook is disabled.
        """
        row = cls.fetch(id)
        Webhook.able(row["webhook_id"])
        if row["leased_until"] and row["leased_until"] > now():
            raise Conflict("the delivery is being sent")
        REOPEN_DELIVERY.run(id=id)
        cls.lease(row, lease)
        return row

    @classmethod
    def drop_waiting(cls, webhook_id: str, before: str = "", most: int = 500) -> int:
        """Drop some of what waits for a disabled webhook, the oldest first; returns how many.

        Drops what is older than `before`, and all except the newest `MOST_WAITING`.
        """
        last = TOO_MANY.value(webhook_id=webhook_id) or 0
        return DROP_WAITING.run(webhook_id=webhook_id, before=before, last=last, most=most)

    @classmethod
    def prune(cls, before: str, most: int = 500) -> int:
        """Drop some finished deliveries, and events that none refers to, of before that time."""
        return PRUNE_DELIVERIES.run(before=before, most=most) + PRUNE_EVENTS.run(before=before, most=most)


WAITING = Delivery.status == "pending"
# What waits for a disabled webhook; what a webhook refused is parked too, but not queued.
PARKED_QUEUE = (Delivery.status == "parked") & (Delivery.queued == 1)
# The outbox is read by webhook in the order of events; what is delivered must not slow it down.
Delivery.add_index(Delivery.webhook, Delivery.event, where=WAITING, name="delivery_pending")
Delivery.add_index(Delivery.webhook, Delivery.event, where=PARKED_QUEUE, name="delivery_waiting")
Delivery.add_index(Delivery.created_at, name="delivery_created")
Event.add_index(Event.created_at, name="event_created")


# Statements ------------------------------------------------------------------------------------

OF_WEBHOOK = Delivery.webhook == Webhook.id
LEFT_WEBHOOK = fn.COALESCE(Webhook.reason, "") == Webhook.LEFT
LEFT_BEHIND = Delivery.duration_ms.is_null() & (Delivery.created_at < placeholder("left_before"))
BACKLOG = Delivery.select(SQL("1")).where(WAITING, OF_WEBHOOK, (Delivery.queued == 1) | LEFT_BEHIND)
ALL_WEBHOOKS = Webhook.select(
    *columns(Webhook, "misses"),
    Delivery.select(fn.COUNT(SQL("*"))).where(WAITING, OF_WEBHOOK).alias("pending"),
)
WEBHOOKS = Statement(ALL_WEBHOOKS)
WEBHOOK = Statement(ALL_WEBHOOKS.where(Webhook.id == placeholder("id")))
CONFIGURED_WEBHOOKS = Statement(
    Webhook.select(
        Webhook.id,
        Webhook.events,
        Webhook.state,
        ((Webhook.failures == 0) & ~fn.EXISTS(BACKLOG)).alias("healthy"),
    ).where(~LEFT_WEBHOOK)
)
FAILING = Statement(
    Webhook.select(fn.COUNT(SQL("*"))).where(
        Webhook.first_failure_at.is_null(False) | (Webhook.state == "disabled"), ~LEFT_WEBHOOK
    )
)

# Those that fail are counted already. What waited for one that left is parked.
HAS_PENDING = fn.EXISTS(Delivery.select(SQL("1")).where(WAITING, OF_WEBHOOK))
HAS_PARKED = fn.EXISTS(Delivery.select(SQL("1")).where(PARKED_QUEUE, OF_WEBHOOK))
STRANDED_WEBHOOKS = Statement(
    Webhook.select(Webhook.id, LEFT_WEBHOOK.alias("left")).where(
        ((Webhook.state == "active") & Webhook.first_failure_at.is_null() & HAS_PENDING)
        | (LEFT_WEBHOOK & HAS_PARKED)
    )
)

EVENT_SEQ = Statement(Event.select(Event.seq).where(Event.id == placeholder("id")))
EVENTS_AFTER = Statement(
    Event.select(Event.id, Event.body.alias("body:json"))
    .where(Event.seq > placeholder("seq"), Event.name != "ping")
    .order_by(Event.seq)
    .limit(placeholder("most"))
)

DELIVERY_COLUMNS = [
    *columns(Delivery, "event_seq", "webhook_id", "queued"),
    Delivery.webhook.alias("webhook_id"),
    Webhook.name.alias("webhook"),
    Event.id.alias("event_id"),
    Event.name.alias("event"),
]


def _deliveries(*more: Any) -> Query:
    return (
        Delivery.select(*DELIVERY_COLUMNS, *more)
        .join(Event, on=(Delivery.event == Event.seq))
        .join(Webhook, on=(Delivery.webhook == Webhook.id))
    )


DELIVERY = Statement(_deliveries(Event.body.alias("payload:json")).where(Delivery.id == placeholder("id")))
DELIVERY_FILTERS = {
    "status": Delivery.status == placeholder("status"),
    "webhook_id": Delivery.webhook == placeholder("webhook_id"),
    "event": Event.name == placeholder("event"),
}


def _filtered(query: Query, filters: frozenset[str]) -> Query:
    conditions = [DELIVERY_FILTERS[name] for name in sorted(filters)]
    return query.where(*conditions) if conditions else query


@lru_cache(maxsize=16)
def delivery_page(filters: frozenset[str]) -> Statement:
    page = _filtered(_deliveries(), filters).order_by(Delivery.id.desc())
    return Statement(page.limit(placeholder("limit")).offset(placeholder("offset")))


@lru_cache(maxsize=16)
def delivery_total(filters: frozenset[str]) -> Statement:
    some = Delivery.select(SQL("1")).join(Event, on=(Delivery.event == Event.seq))
    return Statement(
        Delivery.select(fn.COUNT(SQL("*"))).from_(_filtered(some, filters).limit(COUNT_LIMIT + 1))
    )


DELIVERY_TO_SEND = Statement(
    Delivery.select(
        Delivery.id,
        Delivery.webhook,
        Delivery.attempts,
        Event.id.alias("event_id"),
        Event.name.alias("event"),
        Event.body,
    )
    .join(Event, on=(Delivery.event == Event.seq))
    .where(Delivery.id == placeholder("id"))
)
PENDING = Statement(Delivery.select(fn.COUNT(SQL("*"))).where(WAITING))
PARKED = Statement(
    Delivery.select(Webhook.name, fn.COUNT(SQL("*")).alias("parked"))
    .join(Webhook, on=OF_WEBHOOK)
    .where(Delivery.status == "parked")
    .group_by(Webhook.name)
)


def _come(field: Any, limit: str) -> Expression:
    """Whether that time has come, or is so far off that the clock must have been set back since."""
    return (field <= placeholder("now")) | (field > placeholder(limit))


CAN_BE_SENT = (
    WAITING
    & _come(Delivery.next_at, "far")
    & (Delivery.leased_until.is_null() | _come(Delivery.leased_until, "lease_far"))
)
DUE_WEBHOOKS = Statement(
    Webhook.select(Webhook.id).where(
        Webhook.state == "active",
        Webhook.open_until.is_null() | _come(Webhook.open_until, "far"),
        fn.EXISTS(Delivery.select(SQL("1")).where(OF_WEBHOOK, CAN_BE_SENT)),
    )
)
REFUSED = (Delivery.queued == 0) & Delivery.duration_ms.is_null(False)
DUE_DELIVERIES = Statement(
    Delivery.select(Delivery.id, Delivery.event, REFUSED.alias("refused"))
    .where(Delivery.webhook == placeholder("webhook_id"), CAN_BE_SENT)
    .order_by(Delivery.event)
    .limit(placeholder("most"))
)
OF_THIS = Delivery.webhook == placeholder("webhook_id")
LEASED = Delivery.leased_until.is_null(False) & ~_come(Delivery.leased_until, "lease_far")
FIRST_IN_PROGRESS = Statement(
    Delivery.select(Delivery.event)
    .where(WAITING, OF_THIS, LEASED, ~REFUSED, Delivery.event < placeholder("last"))
    .order_by(Delivery.event)
    .limit(1)
)
QUEUED = Statement(Delivery.select(SQL("1")).where(WAITING, OF_THIS, Delivery.queued == 1).limit(1))
# What is parked with its webhook stays queued, and is resumed with it; what was refused is not.
PARK_WAITING = Statement(
    Delivery.update({Delivery.status: "parked", Delivery.leased_until: None, Delivery.queued: 1}).where(
        WAITING, OF_THIS
    )
)
RESUME_PARKED = Statement(
    Delivery.update({Delivery.status: "pending", Delivery.next_at: placeholder("now")}).where(
        OF_THIS, PARKED_QUEUE
    )
)
HURRY = Statement(
    Delivery.update({Delivery.next_at: placeholder("now")}).where(WAITING, OF_THIS, Delivery.queued == 1)
)
RELEASE_LEASES = Statement(
    Delivery.update({Delivery.leased_until: None, Delivery.queued: 1}).where(
        WAITING, Delivery.leased_until.is_null(False)
    )
)
REOPEN_DELIVERY = Statement(
    Delivery.update({Delivery.status: "pending", Delivery.queued: 0, Delivery.delivered_at: None}).where(
        Delivery.id == placeholder("id"),
        ~WAITING,  # what is pending keeps its place in the order
    )
)
TOO_MANY = Statement(  # the newest that is not among the `MOST_WAITING` newest
    Delivery.select(Delivery.event)
    .where(OF_THIS, PARKED_QUEUE)
    .order_by(Delivery.event.desc())
    .limit(1)
    .offset(MOST_WAITING)
)
DROP_WAITING = Statement(
    Delivery.delete().where(
        Delivery.id.in_(
            Delivery.select(Delivery.id)
            .where(
                OF_THIS,
                PARKED_QUEUE,
                (Delivery.created_at < placeholder("before")) | (Delivery.event <= placeholder("last")),
            )
            .order_by(Delivery.event)
            .limit(placeholder("most"))
        )
    )
)
FINISHED_BEFORE = (Delivery.created_at < placeholder("before")) & ~WAITING & ~PARKED_QUEUE
PRUNE_DELIVERIES = deletion_of_some(Delivery.id, FINISHED_BEFORE)
LAST_EVENT = Event.select(fn.MAX(Event.seq))  # which is kept, or else its place would be given again
UNREFERRED = ~fn.EXISTS(Delivery.select(SQL("1")).where(Delivery.event == Event.seq))
PRUNE_EVENTS = deletion_of_some(
    Event.seq, (Event.created_at < placeholder("before")) & UNREFERRED & (Event.seq < LAST_EVENT)
)


@lru_cache(maxsize=16)
def leased_update(names: tuple[str, ...]) -> Statement:
    """UPDATE of these columns of a pending delivery whose lease is still the one held."""
    fields = Delivery._meta.columns
    return Statement(
        Delivery.update({fields[name]: placeholder(name) for name in names}).where(
            Delivery.id == placeholder("id"), Delivery.attempts == placeholder("held"), WAITING
        )
    )
