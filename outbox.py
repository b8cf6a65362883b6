"""The outbox: the events that happened, the webhooks that get them, and the result of each delivery.

Nothing is sent from here. These are the states of a delivery; the first three are `pending`:

    state      columns                      begins with                         ends with
    leased     leased_until is set          `add` with a lease, `lease_due`,    `store_result`, `release`, or
                                            `redeliver`                         `lease_due` after leased_until
    free       leased_until is null,        a refusal (3xx, other 4xx)          `lease_due` after next_at
               blocks_later = 0
    blocking   leased_until is null,        `add` without a lease, `release`,   `lease_due` after next_at
               blocks_later = 1             no answer, 407, 429, 5xx,
                                            `Webhook.enable`
    refused    status = "refused"           a refusal that `Result.is_last`     `redeliver`, deletion
    waiting    status = "waiting"           `Webhook.disable`, or `add` for     `Webhook.enable`,
                                            a disabled webhook                  `drop_waiting`
    delivered  status = "delivered"         2xx                                 `redeliver`, deletion

After no answer, 407, 429 or 5xx the webhook's circuit is open: nothing is leased before `open_until`,
unless a ping or a redelivery gets an answer (`Webhook.attempted`). `redeliver` is in parts/deliveries.py.
"""

import random
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter, or_
from typing import Any, ClassVar

from peewee import SQL, Expression, ForeignKeyField, IntegerField, Query, Select, TextField, fn

from database import (
    ChoiceField,
    EncodedJSONField,
    Identified,
    JSONField,
    Row,
    Sequenced,
    columns,
    deletion_of_some,
    placeholder,
    statement,
)
from members import Entity, Transaction, differences, sorted_by
from times import now

EVENTS = ("task.updated", "task.completed", "comment.added", "member.joined")
OPTIONAL_EVENTS = ("task.created", "task.deleted", "task.due", "member.invited")  # if a webhook lists them
ALL_EVENTS = (*EVENTS, *OPTIONAL_EVENTS, "ping")
WEBHOOK_STATES = ("active", "disabled")
DELIVERY_STATUSES = ("pending", "delivered", "refused", "waiting")
MOST_WAITING = 10_000  # events that wait for a disabled webhook; the oldest beyond them are deleted
REFUSALS = 8  # of an event that its receiver finds wrong
FINDS_WRONG = (400, 413, 415, 422)  # other refusals are due to the address, which may be repaired
RETRY_AFTER_MOST = 6 * 3600  # seconds
JITTER = 0.2  # of a wait, added or subtracted at random
DISABLE_AFTER = 5 * 86400  # seconds of failures only
DISABLE_MISSES = 12  # consecutive failures that are also needed: the machine may have slept for days


@dataclass
class Result:
    """The result of an attempt to send a delivery. `status` is None if there was no answer."""

    status: int | None
    error: str | None
    seconds: float
    retry_after: float | None = None  # seconds, if the receiver asks for a wait

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def receiver_failed(self) -> bool:
        """Whether the receiver (no answer, 429 or 5xx) or the proxy (407) failed, and did not just refuse."""
        return self.status is None or self.status in (407, 429) or self.status >= 500

    def refusals(self, stored: Row) -> int:
        """Return how many refusals of this kind the delivery has had in a row, with this one.

        A wrong event and a wrong address are two kinds. Attempts in which the receiver failed do not count.
        """
        is_of_other_kind = (stored["last_status"] in FINDS_WRONG) != (self.status in FINDS_WRONG)
        return 1 if is_of_other_kind and not stored["blocks_later"] else stored["refusals"] + 1

    def is_last(self, refusals: int, created_at: str) -> bool:
        """Return whether a refused event is given up. A wrong address gets as long as a failing receiver."""
        if self.status in FINDS_WRONG:
            return refusals >= REFUSALS
        return refusals >= DISABLE_MISSES and created_at < now(-DISABLE_AFTER)

    @property
    def kind(self) -> str:
        return "delivered" if self.delivered else "failed" if self.receiver_failed else "refused"

    def wait(self, failures: int, schedule: list[float]) -> str:
        """Return the time of the next attempt, after this number of earlier failures."""
        wait = schedule[min(failures, len(schedule) - 1)] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        return now(self.retry_after or wait)


def longest_wait(schedule: list[float]) -> float:
    """Return the longest possible wait, in seconds. A longer one means that the clock was set back."""
    return max(*schedule, RETRY_AFTER_MOST) * (1 + JITTER)


def is_due(time: Any, latest_plausible: str) -> Expression:
    """Return a condition: the time has passed, or is so far ahead that the clock must have been set back."""
    return (time <= placeholder("now")) | (time > placeholder(latest_plausible))


class Webhook(Entity):
    """A webhook of the configuration, with its receiver's recent failures."""

    name = TextField(unique=True)
    url = TextField()
    events = JSONField()
    state = ChoiceField(WEBHOOK_STATES)
    reason = TextField(null=True)  # why it is disabled
    failures = IntegerField()  # consecutive attempts that did not reach the receiver
    first_failure_at = TextField(null=True)  # since its last success
    open_until = TextField(null=True)  # nothing is sent before
    created_at = TextField()
    updated_at = TextField()
    misses = IntegerField(constraints=[SQL("DEFAULT 0")])  # consecutive attempts that were not accepted
    last_error = TextField(null=True)
    header_name = TextField(null=True)  # of its own header; the value is a secret

    NOUN = "webhook"
    UNCONFIGURED = "no longer in the configuration"
    HEALTHY: ClassVar[Row] = {"failures": 0, "misses": 0}
    HEALTHY |= dict.fromkeys(("first_failure_at", "open_until", "last_error"))
    is_unconfigured: ClassVar[Any] = fn.COALESCE(reason, "") == UNCONFIGURED

    @classmethod
    def select_shown(cls) -> Query:
        pending = Delivery.select(fn.COUNT(SQL("*"))).where(Delivery.is_pending, Delivery.webhook == cls.id)
        return cls.select(*columns(cls, "misses"), pending.alias("pending"))

    @classmethod
    def listing(cls) -> list[Row]:
        """Return all webhooks by name, each with the number of its pending deliveries."""
        return sorted_by(cls.shown_rows.all(), "name")

    @statement
    def backlog(cls: Any):
        """The numbers of each webhook's undelivered deliveries, and the time of the oldest pending one."""
        of_webhook = Delivery.webhook == cls.id
        counts = [
            Delivery.select(fn.COUNT(SQL("*"))).where(of_webhook, condition).alias(name)
            for name, condition in Delivery.UNDELIVERED.items()
        ]
        pending = Delivery.select(Delivery.created_at).where(of_webhook, Delivery.is_pending)
        oldest = pending.order_by(Delivery.event).limit(1).alias("oldest")
        return cls.select(cls.name, *counts, oldest).order_by(cls.name)

    @classmethod
    def _has(cls, condition: Expression) -> Any:
        return fn.EXISTS(Delivery.select(SQL("1")).where(Delivery.webhook == cls.id, condition))

    @statement
    def configured(cls: Any):
        """The webhooks that get events, with these events; a request sends to those that are `healthy`."""
        has_backlog = cls._has(Delivery.is_blocking) | cls._has(Delivery.is_abandoned)
        healthy = ((cls.failures == 0) & ~has_backlog).alias("healthy")
        return cls.select(cls.id, cls.events, cls.state, healthy).where(~cls.is_unconfigured)

    @statement
    def due(cls: Any):
        """The webhooks with a delivery that can be sent now."""
        is_closed = cls.open_until.is_null() | is_due(cls.open_until, "latest_due")
        has_due = reduce(or_, (cls._has(Delivery.is_unleased & due) for due in Delivery.DUE))
        return cls.select(cls.id).where(cls.state == "active", is_closed, has_due)

    @statement
    def failing(cls: Any):
        """The number of webhooks that fail or are disabled; unconfigured ones count while events wait."""
        is_failing = cls.first_failure_at.is_null(False) | (cls.state == "disabled")
        has_waiting = cls._has(Delivery.is_waiting)
        return cls.select(fn.COUNT(SQL("*"))).where(is_failing, ~cls.is_unconfigured | has_waiting)

    @staticmethod
    def configured_columns(webhook: Row) -> Row:
        """Return the columns that a webhook of the configuration sets."""
        header_name = next(iter(webhook["headers"]), None)
        return {"url": webhook["shown_url"], "events": webhook["events"], "header_name": header_name}

    @classmethod
    def is_mirrored(cls, configured: list[Row]) -> bool:
        """Return whether these webhooks are stored, and no others are, so that `mirror` changes nothing."""
        stored = {row["name"]: row for row in cls.listing() if row["reason"] != cls.UNCONFIGURED}
        new = {webhook["name"]: cls.configured_columns(webhook) for webhook in configured}
        return stored.keys() == new.keys() and not any(differences(stored[name], new[name]) for name in new)

    @classmethod
    def mirror(cls, transaction: Transaction, configured: list[Row]) -> list[str]:
        """Store the configured webhooks and disable all others; return the names of those disabled now."""
        others = {row["name"]: row for row in cls.listing()}
        for webhook in configured:
            fields = cls.configured_columns(webhook)
            row = others.pop(webhook["name"], None)
            if row is None:
                fields |= {"id": transaction.new_id(), "name": webhook["name"], "state": "active"}
                times = {"created_at": transaction.at, "updated_at": transaction.at}
                cls.insert_row.run(failures=0, misses=0, **fields, **times)
                continue
            if differences(row, fields):
                cls.set_columns(row["id"], **fields, updated_at=transaction.at)
            has_moved = row["url"] != fields["url"] and row["state"] == "active"
            if has_moved:  # what the old address refused or did not accept is sent to the new one, in order
                cls.suspend.run(webhook_id=row["id"])
            if has_moved or row["reason"] == cls.UNCONFIGURED:
                cls.enable(transaction, row["id"])
        removed = [row for row in others.values() if row["reason"] != cls.UNCONFIGURED]
        for row in removed:
            cls.disable(transaction, row["id"], cls.UNCONFIGURED)
        return [row["name"] for row in removed]

    @statement
    def suspend(cls: Any):
        waiting = {Delivery.status: "waiting", Delivery.leased_until: None}
        return Delivery.update(waiting).where(Delivery.is_pending, Delivery.of_webhook)

    @statement
    def resume(cls: Any):
        pending = {Delivery.status: "pending", Delivery.blocks_later: 1, Delivery.refusals: 0}
        return Delivery.update(pending).where(Delivery.is_waiting, Delivery.of_webhook)

    @statement
    def make_due(cls: Any):
        """Make the deliveries due now that later ones wait for."""
        due = Delivery.update({Delivery.next_at: placeholder("now")})
        return due.where(Delivery.of_webhook, Delivery.is_blocking)

    @classmethod
    def disable(cls, transaction: Transaction, id: str, reason: str) -> None:
        """Stop sending to the webhook; its pending deliveries wait until it is enabled."""
        cls.set_columns(id, state="disabled", reason=reason, updated_at=transaction.at)
        cls.suspend.run(webhook_id=id)

    @classmethod
    def enable(cls, transaction: Transaction, id: str) -> Row:
        """Send to the webhook again, beginning with what has waited for it. Raises `NotFound`."""
        cls.shown(id)
        cls.set_columns(id, state="active", reason=None, updated_at=transaction.at, **cls.HEALTHY)
        cls.resume.run(webhook_id=id)
        cls.make_due.run(webhook_id=id, now=now())
        return cls.shown(id)

    @classmethod
    def attempted(cls, transaction: Transaction, id: str, result: Result, schedule: list[float]) -> str:
        """Store how an attempt changes the webhook; return until when its circuit is open after a failure."""
        stored = cls.stored(id)
        until, latest_due = result.wait(stored["failures"], schedule), now(longest_wait(schedule))
        fields = dict(cls.HEALTHY)
        if not result.delivered:
            since, misses = stored["first_failure_at"], stored["misses"]
            if not since or stored["updated_at"] < now(-longest_wait(schedule)):
                since, misses = transaction.at, 0  # nothing was sent for days, and so nothing failed
            fields |= {"first_failure_at": since, "misses": misses + 1, "last_error": result.error}
        if result.receiver_failed:
            if stored["open_until"] and now() < stored["open_until"] <= latest_due:
                return stored["open_until"]  # it stays, unless the clock was set back
            fields |= {"failures": stored["failures"] + 1, "open_until": until}
        elif stored["failures"]:  # deliveries behind the failure need not wait any longer
            cls.make_due.run(webhook_id=id, now=now())
        if differences(stored, fields):
            cls.set_columns(id, **fields, updated_at=transaction.at)
        return until

    @classmethod
    def disable_if_lost(cls, transaction: Transaction, id: str, status: int | None) -> str | None:
        """Disable the webhook after 410, or after days of failures only; return the reason, or None."""
        stored, reason = cls.stored(id), None
        # Refusals before an outage do not count, as they may concern single events.
        count = stored["failures"] or stored["misses"]
        if status == 410:
            reason = "it answered 410 Gone"
        elif count >= DISABLE_MISSES and stored["first_failure_at"] < now(-DISABLE_AFTER):
            reason = f"nothing but failures since {stored['first_failure_at']}"
        if not reason or stored["state"] == "disabled":  # by an earlier result of the same batch
            return None
        cls.disable(transaction, id, reason)
        return reason


class Event(Sequenced):
    """An event, as the bytes that are signed and sent. `seq` rises with the commits and is never reused."""

    name = TextField()
    body = EncodedJSONField()
    created_at = TextField()

    seq_of = statement(lambda cls: cls.select(cls.seq).where(cls.id == placeholder("id")))

    @statement
    def last_before(cls: Any):
        """The `seq` of the last event before a time, or 0; the search begins with the newest."""
        old = cls.select(cls.seq).where(cls.created_at < placeholder("before"))
        return Select((), [fn.COALESCE(old.order_by(cls.seq.desc()).limit(1), 0)])

    @statement
    def delete_unused(cls: Any):
        """Delete old events without deliveries, except the last event: SQLite would reuse its number.

        `:last` is the result of `last_before`: events have no index on their time.
        """
        is_old = (cls.seq <= placeholder("last")) & (cls.created_at < placeholder("before"))
        is_used = fn.EXISTS(Delivery.select(SQL("1")).where(Delivery.event == cls.seq))
        is_last = cls.seq == cls.select(fn.MAX(cls.seq))
        return deletion_of_some(cls, is_old & ~is_used & ~is_last, cls.seq)


class Delivery(Identified):
    """An event that is to be sent to a webhook. A row is leased while a thread sends it."""

    event = ForeignKeyField(Event, column_name="event_seq", object_id_name="event_seq")
    webhook = ForeignKeyField(Webhook, index=False)
    status = ChoiceField(DELIVERY_STATUSES)
    attempts = IntegerField()  # the number of leases, which is also the current lease's token (`_update`)
    blocks_later = IntegerField()  # 1 if later events of its webhook wait while it is pending
    next_at = TextField()
    leased_until = TextField(null=True)
    last_status = IntegerField(null=True)
    last_error = TextField(null=True)
    duration_ms = IntegerField(null=True)
    delivered_at = TextField(null=True)
    created_at = TextField()
    refusals = IntegerField(constraints=[SQL("DEFAULT 0")])  # since the kind of refusal changed

    is_pending: ClassVar[Any] = status == "pending"
    is_waiting: ClassVar[Any] = status == "waiting"
    is_refused: ClassVar[Any] = status == "refused"
    UNDELIVERED: ClassVar[Row] = {"pending": is_pending, "waiting": is_waiting, "refused": is_refused}
    of_webhook: ClassVar[Any] = webhook == placeholder("webhook_id")
    is_blocking: ClassVar[Any] = is_pending & (blocks_later == 1)  # later events wait behind it
    is_free: ClassVar[Any] = is_pending & (blocks_later == 0)  # leased or not
    is_unleased: ClassVar[Any] = leased_until.is_null() | is_due(leased_until, "latest_lease")
    # A receiver that refuses each event may leave 100,000 that are free, and rarely due. So these have an
    # index by time, and each condition is a subquery of its own: an OR of them would not read it.
    DUE: ClassVar[tuple[Expression, ...]] = (
        is_blocking & is_due(next_at, "latest_due"),
        is_free & (next_at <= placeholder("now")),
        is_free & (next_at > placeholder("latest_due")),
    )
    # Later events wait behind it, too. It was leased a while ago and has no result: its process has ended.
    is_abandoned: ClassVar[Any] = is_free & duration_ms.is_null()
    is_abandoned &= next_at < placeholder("abandoned_before")  # it is due since then, for the index
    is_abandoned &= created_at < placeholder("abandoned_before")
    was_refused: ClassVar[Any] = (blocks_later == 0) & duration_ms.is_null(False)  # and will be tried again
    pending = statement(lambda cls: cls.select(fn.COUNT(SQL("*"))).where(cls.is_pending))

    @classmethod
    def add(
        cls, transaction: Transaction, seq: int, webhook_id: str, lease: str | None, status: str = "pending"
    ) -> str:
        """Store a delivery and return its id. With a `lease` this request sends it, else the sweeper."""
        id = transaction.new_id()
        cls.insert_row.run(
            id=id,
            event_seq=seq,
            webhook_id=webhook_id,
            status=status,
            attempts=1 if lease else 0,
            refusals=0,
            blocks_later=0 if lease else 1,
            next_at=now(),  # unlike `transaction.at`, this follows a clock that is set back
            leased_until=lease,
            created_at=transaction.at,
        )
        return id

    @statement
    def sendable(cls: Any):
        """A delivery for `webhooks.send`: with the `event_id`, the `event`'s name, and the `body` as JSON.

        It is written only while it has this number of `attempts`.
        """
        of_event = [Event.id.alias("event_id"), Event.name.alias("event"), Event.body]
        deliveries = cls.select(cls.id, cls.webhook, cls.attempts, *of_event)
        return deliveries.join(Event, on=(cls.event == Event.seq)).where(cls.id == placeholder("id"))

    @classmethod
    def to_send(cls, ids: list[str]) -> list[Row]:
        """Return these deliveries for `webhooks.send`, without those that were deleted meanwhile."""
        return [row for id in ids if (row := cls.sendable.one(id=id))]

    @classmethod
    def select_due(cls, condition: Expression) -> Select:
        rows = cls.select(cls.id, cls.event, cls.was_refused.alias("was_refused"))
        return rows.where(cls.of_webhook, cls.is_unleased, condition)

    @statement
    def due(cls: Any):
        """The oldest due deliveries that block later ones."""
        return cls.select_due(cls.DUE[0]).order_by(cls.event).limit(placeholder("most"))

    @statement
    def free(cls: Any):
        """Some due deliveries that do not block later ones."""
        past, too_far_ahead = map(cls.select_due, cls.DUE[1:])
        return past.union_all(too_far_ahead).limit(placeholder("most"))

    @statement
    def in_progress(cls: Any):
        """The events that other threads are sending, without those that the receiver has refused before.

        Events after `:last` may be left out.
        """
        events = cls.select(cls.event).where(cls.of_webhook, ~cls.is_unleased)
        blocking = events.where(cls.is_blocking, cls.event < placeholder("last"))
        free = (events.where(cls.duration_ms.is_null(), due) for due in cls.DUE[1:])
        return reduce(Select.union_all, free, blocking)

    @classmethod
    def lease_due(cls, webhook_id: str, most: int, times: Row) -> list[Row]:
        """Lease up to `most` due deliveries of the webhook in the order of their events, and return them.

        Deliveries behind one that another thread is sending are left out, except those that the receiver
        has refused before.
        """
        parameters: Row = {"webhook_id": webhook_id, "most": most, **times}
        rows = cls.due.all(**parameters) + cls.free.all(**parameters)
        due = sorted(rows, key=itemgetter("event_seq"))[:most]
        barrier = None
        if not all(row["was_refused"] for row in due):
            last = due[-1]["event_seq"]
            in_progress = cls.in_progress.all(webhook_id=webhook_id, last=last, **times)
            barrier = min((row["event_seq"] for row in in_progress), default=None)
        free = [row["id"] for row in due if row["was_refused"] or not barrier or row["event_seq"] < barrier]
        return [row for row in cls.to_send(free) if cls.lease(row, times["latest_lease"])]

    @classmethod
    def lease(cls, row: Row, until: str) -> bool:
        """Lease the delivery; return False if another thread has leased it meanwhile."""
        count = cls._update(row, status="pending", attempts=row["attempts"] + 1, leased_until=until)
        row["attempts"] += 1
        return count == 1

    @classmethod
    def release(cls, row: Row) -> None:
        """End a lease without an attempt; later events wait for the delivery."""
        cls._update(row, leased_until=None, attempts=row["attempts"] - 1, blocks_later=1)

    @classmethod
    def store_result(
        cls, transaction: Transaction, row: Row, result: Result, schedule: list[float]
    ) -> list[str]:
        """Store the result of an attempt, the state of the webhook, and the time of the next attempt.

        If the lease has expired and another thread has tried since, the delivery is left to that one. Return
        what is logged about the webhook.
        """
        webhook_id = row["webhook_id"]
        written: Row = {"leased_until": None, "last_status": result.status, "last_error": result.error}
        written["duration_ms"] = round(result.seconds * 1000)
        if result.delivered:
            cls._update(row, status="delivered", delivered_at=transaction.at, **written)
            Webhook.attempted(transaction, webhook_id, result, schedule)
            return []
        if not (stored := cls.stored_row.one(id=row["id"])):
            return []  # it was deleted meanwhile: its webhook has not failed
        if result.receiver_failed:
            until = Webhook.attempted(transaction, webhook_id, result, schedule)
            cls._update(row, blocks_later=1, next_at=until, **written)
        else:
            written["refusals"] = refusals = result.refusals(stored)
            status = "refused" if result.is_last(refusals, stored["created_at"]) else "pending"
            until = result.wait(refusals - 1, schedule)
            cls._update(row, status=status, blocks_later=0, next_at=until, **written)
            Webhook.attempted(transaction, webhook_id, result, schedule)
        messages = [f": delivery {row['id']}: {result.error}"]
        if reason := Webhook.disable_if_lost(transaction, webhook_id, result.status):
            messages.append(f" is disabled: {reason}")
        return messages

    @classmethod
    def _update(cls, row: Row, **fields: Any) -> int:
        """Write these columns if the delivery is pending and has the row's number of attempts."""
        read = {"id": row["id"], "attempts": row["attempts"], "status": "pending"}
        return cls.update_where(read, **fields)

    @statement
    def blocking(cls: Any):
        """One row if a delivery holds up the later events of the webhook."""
        return cls.select(SQL("1")).where(cls.of_webhook, cls.is_blocking).limit(1)

    @statement
    def release_all(cls: Any):
        """End all leases after the processes that held them have ended; later events wait for them."""
        released = {cls.leased_until: None, cls.blocks_later: 1}
        return cls.update(released).where(cls.is_pending, cls.leased_until.is_null(False))

    @statement
    def drop_waiting(cls: Any):
        """Delete up to `:most` deliveries that wait for a disabled webhook, the oldest first.

        Those created before `:before` are deleted, and all but the newest `MOST_WAITING`.
        """
        is_waiting = cls.of_webhook & cls.is_waiting
        newest = cls.select(cls.event).where(is_waiting).order_by(cls.event.desc()).limit(1)
        is_too_old = (cls.created_at < placeholder("before")) | (cls.event <= newest.offset(MOST_WAITING))
        return deletion_of_some(cls, is_waiting & is_too_old, cls.event)

    @statement
    def delete_finished(cls: Any):
        is_finished = cls.status.in_(("delivered", "refused"))
        return deletion_of_some(cls, (cls.created_at < placeholder("before")) & is_finished)


# The outbox is read by webhook in the order of events; delivered ones must not slow that down.
Delivery.indexed("delivery_pending", "webhook event", where=Delivery.is_pending)
Delivery.indexed("delivery_blocking", "webhook event", where=Delivery.is_blocking)
Delivery.indexed("delivery_free", "webhook next_at", where=Delivery.is_free)
Delivery.indexed("delivery_waiting", "webhook event", where=Delivery.is_waiting)
Delivery.indexed("delivery_refused", "webhook", where=Delivery.is_refused)
Delivery.indexed("delivery_created", "created_at")
