"""Webhooks: how the deliveries of the outbox are signed, sent, and tried again.

`emit` stores an event and its deliveries in the transaction of the change. After the commit, `deliver`
sends them (`_send`: a `Batch` for each webhook, which calls `post`) and stores the results. The
sweeper leases and sends the deliveries that are left in the same way (`drain`). A delivery stays
pending until its receiver has accepted it, so each event arrives at least once.
"""

import base64
import hashlib
import hmac
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import certifi
import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_auth_from_url, requote_uri
from urllib3 import Retry
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from database import LOCK_SECONDS, Row, is_outage
from errors import Unavailable
from limits import SocketDeadline
from members import PROFILE, Transaction
from metrics import metrics
from models import Changed, Task, write
from outbox import RETRY_AFTER_MOST, Delivery, Event, Result, Webhook, longest_wait
from settings import VERSION, signing_key, without_paths
from times import epoch_ms, now, wire_time

log = logging.getLogger("tasks.webhooks")

USER_AGENT = f"task-service/{VERSION}"
ANSWER_BYTES = 4096  # the most that is read of a response's body, to keep the connection,
ANSWER_SECONDS = 0.1  # and for how long: each event to a receiver whose bodies do not end costs this time
LEASE_GRACE = 1.0  # seconds that a lease lasts longer than its attempt may take
BATCH = 50  # deliveries that are leased at once; with 20, draining is slower than eight clients writing
BATCH_SECONDS = 5.0  # after them a batch tries no further delivery, so that leases stay short
ABANDONED = 2.0  # seconds for which a delivery that a request has leased counts as being sent
SENDER_WAIT = 0.02  # seconds that a request waits for its turn to send: enough with healthy receivers
MOST_AT_ONCE = 20  # deliveries that a request sends itself
RESULTS_SECONDS = 0.25  # between two times at which a request that waits for others stores its results


# One POST -------------------------------------------------------------------------------------


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a TLS context with certifi's authorities and the file's. Raises `LookupError` for a bad file."""
    context = ssl.create_default_context(cafile=certifi.where())
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # or its subclass `ssl.SSLError`
            raise LookupError(f"delivery.ca_file = {ca_file!r}: {error.strerror or error}") from error
    return context


class Answer(HTTPResponse):
    """A response after any interim ones, such as 103; http.client itself skips only 100."""

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        return version, 100 if 101 < status < 200 else status, reason


# The thread's POST: `ends_at`, whether its connection `is_kept` from an earlier one, and its `deadline`.
attempt = threading.local()


def cuttable(pool: Any) -> Any:
    """Return the pool with connections that are shut down at the end of the thread's POST."""

    class Connection(pool.ConnectionCls):
        response_class = Answer

        def _new_conn(self) -> socket.socket:
            attempt.is_new = True
            sock = super()._new_conn()
            sock.settimeout(max(attempt.ends_at - time.monotonic(), 0.01))  # for TLS
            return sock

        def _tunnel(self) -> None:  # to the receiver, through a proxy that may answer byte by byte
            left = max(attempt.ends_at - time.monotonic(), 0.01)
            with SocketDeadline(self.sock, left, socket.SHUT_RDWR):
                super()._tunnel()
            self.sock.settimeout(max(attempt.ends_at - time.monotonic(), 0.01))

        def putrequest(self, *arguments: Any, **options: Any) -> None:
            if self.sock is None:  # with TLS or a proxy it exists already
                self.connect()
            attempt.is_kept = not attempt.is_new
            if (left := attempt.ends_at - time.monotonic()) <= 0:  # after a name server or dead addresses
                raise TimeoutError("timed out")
            self.sock.settimeout(left)
            attempt.deadline = SocketDeadline(self.sock, left, socket.SHUT_RDWR)
            attempt.deadline.start()
            super().putrequest(*arguments, **options)

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


POOLS = {"http": cuttable(HTTPConnectionPool), "https": cuttable(HTTPSConnectionPool)}


class Adapter(HTTPAdapter):
    """The connections of all threads, which are kept. A session would add cookies, redirects and more."""

    def __init__(self, tls: ssl.SSLContext | None, receivers: int, connections: int):
        self.tls = tls
        super().__init__(receivers, connections)

    def init_poolmanager(self, *sizes: Any, **options: Any) -> None:
        super().init_poolmanager(*sizes, **options, ssl_context=self.tls)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options, ssl_context=self.tls)
        manager.pool_classes_by_scheme = POOLS
        return manager


def timed_out(seconds: float) -> Result:
    return Result(None, f"timed out after {seconds:.1f} s", seconds)


def post(
    url: str, body: bytes, headers: dict[str, str], seconds: float, proxy: str | None = None, hidden: str = ""
) -> Result:
    """POST the body, through the proxy if there is one. A status after `seconds` counts as no answer.

    The result contains no word of `hidden`. If a kept connection fails, the body is sent again at once: the
    receiver may have just closed it. Connecting to an address takes at most a third of the time, so a dead
    one leaves time for the next. Only a name server can hold the thread for longer than `seconds`.
    """
    started_at = time.monotonic()
    status, error, retry_after = None, None, None
    attempt.ends_at, attempt.is_new, attempt.is_kept = started_at + seconds, False, False
    attempt.deadline = None
    try:
        request = requests.Request("POST", url, headers, data=body).prepare()
        more: Any = {"timeout": (seconds / 3, seconds), "proxies": {"all": proxy} if proxy else None}
        with sending.adapter.send(request, stream=True, **more) as response:
            if (left := attempt.ends_at - time.monotonic()) <= 0:  # the head may have been cut off
                return timed_out(seconds)
            status = response.status_code
            retry_after = _retry_after(response.headers.get("Retry-After", ""))
            attempt.deadline.stop()
            most = min(left / 2, ANSWER_SECONDS)
            attempt.deadline = SocketDeadline(attempt.deadline.sock, most, socket.SHUT_RDWR)
            attempt.deadline.start()
            with suppress(HTTPError, OSError):  # the status decides, even if the body breaks off
                response.raw.read(ANSWER_BYTES, decode_content=False)
    except requests.Timeout:
        return timed_out(min(time.monotonic() - started_at, seconds))
    except Exception as failure:  # whatever a receiver does must not disturb other deliveries
        error = _in_words(failure, url, hidden)
    finally:
        if attempt.deadline:
            attempt.deadline.stop()
    took = time.monotonic() - started_at
    if status is None and took >= seconds:
        return timed_out(seconds)
    if status is None and attempt.is_kept:
        return post(url, body, headers, seconds - took, proxy, hidden)
    if status is not None and not 200 <= status < 300:
        error = f"answered {status}"
    return Result(status, error, took, retry_after)


def _retry_after(text: str) -> float | None:
    """Return the seconds of a `Retry-After` (seconds or a date), at most `RETRY_AFTER_MOST`, or None."""
    with suppress(HTTPError, OverflowError, ValueError):
        return Retry(retry_after_max=RETRY_AFTER_MOST).parse_retry_after(text) or None
    return None


def _in_words(failure: BaseException, url: str, hidden: str) -> str:
    """Return the message of the innermost cause, with characters escaped that a terminal would interpret.

    A receiver may repeat what it gets. The URL's path and query, long parts of them and the words of `hidden`
    may be secret, and are removed.
    """
    while inner := failure.__cause__ or failure.__context__:
        failure = inner
    text = str(failure) or type(failure).__name__
    for sent in (requote_uri(url), url):
        parts = urlsplit(sent)
        for part in (f"{parts.path}?{parts.query}", parts.path, parts.query):
            if len(part) > 3:  # or words of the message would be replaced
                text = text.replace(part, "/…")
        words = [word for word in hidden.split() if len(word) > 3]
        words += re.findall(r"[\w-]{8,}", f"{parts.path}?{parts.query} {hidden}")
        for part in sorted(words, key=len, reverse=True):
            text = re.sub(re.escape(part), "…", text, flags=re.IGNORECASE)
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:300])[:300]


def sign_standard(id: str, timestamp: int, body: bytes, secrets: list[str]) -> str:
    """Return the header `webhook-signature` of Standard Webhooks, with a signature for each secret."""
    content = f"{id}.{timestamp}.".encode() + body
    macs = [hmac.new(signing_key(secret), content, hashlib.sha256).digest() for secret in secrets]
    return " ".join("v1," + base64.b64encode(mac).decode() for mac in macs)


# The configuration ----------------------------------------------------------------------------


@dataclass
class Sending:
    """The state of this process for sending: the configuration (`configure`), and signals to threads."""

    webhooks: dict[str, Row] = field(default_factory=dict)  # with their `secrets`, by id
    delivery: Row = field(default_factory=dict)  # the section of the configuration
    adapter: HTTPAdapter = field(default_factory=HTTPAdapter)  # replaced by `configure`
    turns: threading.BoundedSemaphore = field(default_factory=threading.BoundedSemaphore)  # of requests
    has_work: threading.Event = field(default_factory=threading.Event)  # wakes the sweeper
    stopping: threading.Event = field(default_factory=threading.Event)  # ends further attempts
    began_at: str = ""  # the time of this process's first event

    @property
    def times(self) -> Row:
        """The parameters of statements: now, and the latest plausible due time and lease end."""
        delivery = self.delivery
        longest = max(delivery["request_budget_seconds"], delivery["timeout_seconds"] + BATCH_SECONDS)
        return {
            "now": now(),
            "latest_due": now(longest_wait(delivery["retry_schedule"])),
            "latest_lease": now(longest + LEASE_GRACE),
        }


sending = Sending()


def configure(webhooks: list[Row], delivery: Row, threads: int = 16) -> None:
    """Set the webhooks, with their secrets, that this process sends to; the server must have stored them."""
    ids = {webhook["name"]: webhook["id"] for webhook in Webhook.listing()}
    sending.webhooks = {ids[webhook["name"]]: webhook for webhook in webhooks if webhook["name"] in ids}
    metrics.name_webhooks(webhook["name"] for webhook in webhooks)
    turns = max(threads // 4, 1)  # so most threads remain for other requests
    sending.turns = threading.BoundedSemaphore(turns)
    sending.delivery = delivery
    # `turns` requests and the sweeper may send to a webhook at once, and all receivers may have one address.
    receivers = max(len(webhooks), 1)
    tls = tls_context(delivery["ca_file"]) if webhooks else None  # which takes 60 ms to make
    sending.adapter = Adapter(tls, receivers, (turns + 1) * receivers)


# Delivering -----------------------------------------------------------------------------------


def emit(transaction: Transaction, name: str, data: Row, *, only: str | None = None) -> list[str]:
    """Store the event, and a delivery for each webhook that asks for it; return the deliveries' ids.

    With `only`, the event is for the webhook with this id alone. The body is serialised here and never again:
    these bytes are signed and sent in every attempt. They are the same as from JavaScript's `JSON.stringify`.
    """
    id, actor = "evt_" + transaction.new_id().replace("-", ""), transaction.actor
    if "task" in data:
        data = data | {"task": Task.blockers.shortened(data["task"])}
    event = {
        "id": id,
        "event": name,
        "timestamp": transaction.at,
        "data": data,
        "actor": {name: actor[name] for name in PROFILE} if actor else None,  # nobody's, as for a due date
        "request_id": transaction.request_id,
    }
    seq = Event.insert_row.run(id=id, name=name, body=event, created_at=transaction.at)
    ids = []
    for webhook in _recipients(transaction):
        webhook_id = webhook["id"]
        if name not in webhook["events"] and webhook_id != only:
            continue
        at_once = webhook_id in sending.webhooks and sending.delivery["request_budget_seconds"] > 0
        healthy = (webhook["healthy"] and webhook["state"] == "active") or webhook_id == only
        if at_once and healthy and len(transaction.deliveries) < MOST_AT_ONCE:
            lease = now(sending.delivery["request_budget_seconds"] + LEASE_GRACE)
            ids.append(Delivery.add(transaction, seq, webhook_id, lease))
            transaction.deliveries.append(ids[-1])
        else:
            status = "waiting" if webhook["state"] == "disabled" else "pending"
            ids.append(Delivery.add(transaction, seq, webhook_id, None, status))
            transaction.for_sweeper += status == "pending"
    return ids


def announce(transaction: Transaction, changed: Iterable[Changed]) -> None:
    """Store `task.updated` for each changed task, and `task.completed` for each that has become done."""
    for task, changes in changed:
        if changes:
            emit(transaction, "task.updated", {"task": task, "changes": changes})
        if "status" in changes and task["status"] == "done":
            emit(transaction, "task.completed", {"task": task, "changes": changes})


@lru_cache(maxsize=1)  # for all events of a transaction; only one writes at a time
def _recipients(transaction: Transaction) -> list[Row]:
    """Return the stored webhooks; a command's configuration may contain fewer.

    A delivery without a result that was leased `ABANDONED` seconds ago, or before this process began, counts
    as abandoned by a process that died.
    """
    sending.began_at = sending.began_at or transaction.at
    abandoned_at = wire_time(epoch_ms() - round(ABANDONED * 1000))
    return Webhook.configured.all(abandoned_before=max(sending.began_at, abandoned_at))


def deliver(transaction: Transaction) -> dict[str, int]:
    """Send the committed transaction's deliveries; return how many were accepted and how many are pending."""
    count, delivered = len(transaction.deliveries) + transaction.for_sweeper, 0
    # The transaction is on disk and its deliveries are pending: at worst they are sent twice.
    with failures_logged(f"request {transaction.request_id}: deliveries are left pending"):
        if transaction.deliveries:
            delivered = _deliver(Delivery.to_send(transaction.deliveries))
    if delivered < count:
        sending.has_work.set()
    return {"delivered": delivered, "pending": count - delivered}


def _deliver(rows: list[Row]) -> int:
    if not sending.turns.acquire(timeout=SENDER_WAIT):
        store_results([], rows, LEASE_GRACE)
        return 0
    try:
        results = _send(rows, time.monotonic() + sending.delivery["request_budget_seconds"])
    finally:
        sending.turns.release()
    # Other deliveries may wait behind these.
    if any(Delivery.blocking.value(webhook_id=id) for id in {row["webhook_id"] for row in rows}):
        sending.has_work.set()
    return sum(result.delivered for result in results)


def _send(rows: list[Row], ends_at: float, attempt_seconds: float | None = None) -> list[Result]:
    """Send each webhook's deliveries as a `Batch`, and store and return the results.

    No receiver waits for another one that hangs: the results of each webhook are stored as they come.
    """
    by_webhook: dict[str, list[Row]] = {}
    for row in rows:
        by_webhook.setdefault(row["webhook_id"], []).append(row)
    batches, results = [Batch(group, ends_at, attempt_seconds) for group in by_webhook.values()], []
    while batches:
        store_at = time.monotonic() + RESULTS_SECONDS
        done = [batch for batch in batches if batch.is_done_by(store_at)]
        batches = [batch for batch in batches if batch not in done]
        tried = [pair for batch in done for pair in batch.results]
        seconds = LOCK_SECONDS if attempt_seconds else max(ends_at - time.monotonic(), 0) + LEASE_GRACE
        untried = [row for batch in done for row in batch.rows[len(batch.results) :]]
        store_results(tried, untried, seconds)
        results += [result for _, result in tried]
    return results


class Batch(threading.Thread):
    """Sends deliveries to one webhook in order, until `ends_at` or until it cannot be reached.

    Nothing can interrupt a name server's look-up, so the caller does not wait for the thread: once an attempt
    is past its deadline, the results so far count. `attempt_seconds` limits an attempt; None means the time
    left.
    """

    def __init__(self, rows: list[Row], ends_at: float, attempt_seconds: float | None):
        super().__init__(name="batch", daemon=True)
        self.rows, self.ends_at, self.attempt_seconds = rows, ends_at, attempt_seconds
        self.deadline = ends_at  # of the current attempt
        self.is_abandoned = False  # the caller has gone on: no further attempt begins
        self.results: list[tuple[Row, Result]] = []  # that count, once the batch is done
        self._results: list[tuple[Row, Result]] = []  # of the thread, even after it was abandoned
        self.start()

    def run(self) -> None:
        for row in self.rows:
            webhook, left = sending.webhooks.get(row["webhook_id"]), self.ends_at - time.monotonic()
            # Earlier attempts may have left too little time for a healthy receiver.
            budget = sending.delivery["request_budget_seconds"]
            least = 0 if self.attempt_seconds or not self._results else min(1.0, budget / 2)
            is_over = left <= least or self.is_abandoned or sending.stopping.is_set()
            if webhook is None or is_over:
                return
            seconds = self.attempt_seconds or left
            self.deadline = time.monotonic() + seconds
            self._results.append((row, timed_out(seconds)))  # until there is another result
            result = send(row, webhook, seconds)
            self._results[-1] = row, result
            if result.receiver_failed or result.status == 410:
                return

    def is_done_by(self, at: float) -> bool:
        """Wait until this time at most; return whether `results` are final, even if the thread goes on."""
        self.join(max(min(at, self.deadline) - time.monotonic(), 0))
        if self.is_alive():
            if time.monotonic() < self.deadline:
                return False
            self.is_abandoned = True
        self.results = self._results.copy()
        return True


# How a webhook's body is made of the JSON, by its format; a part adds formats.
bodies: dict[str, Callable[[str, str, str], str]] = {}


def send(delivery: Row, webhook: Row, seconds: float) -> Result:
    """Try once to send a delivery (`Delivery.sendable`), as `post` does."""
    text, timestamp, secrets = delivery["body"], int(time.time()), webhook["secrets"]
    own, proxy = webhook.get("headers", {}), webhook.get("proxy")  # `listen` has neither
    if webhook["format"] != "json":
        text = bodies[webhook["format"]](webhook["format"], text, webhook["base_url"])
    body = text.encode()
    headers = {
        "User-Agent": USER_AGENT,
        "Accept-Encoding": "identity",
        "Accept": "*/*",
        "Connection": "keep-alive",
        "Content-Type": "application/json",
        "x-service-event": delivery["event"],
        "x-service-delivery": delivery["id"],
        "webhook-id": delivery["event_id"],
        "webhook-timestamp": str(timestamp),
    }
    if secrets:
        headers["x-service-signature"] = hmac.new(secrets[0].encode(), body, hashlib.sha256).hexdigest()
        headers["webhook-signature"] = sign_standard(delivery["event_id"], timestamp, body, secrets)
    login = sending.adapter.proxy_headers(proxy) if proxy else {}
    hidden = " ".join([*own.values(), *login.values(), *get_auth_from_url(proxy or "")])
    return post(webhook["url"], body, headers | own, seconds, proxy, hidden)


def store_results(results: list[tuple[Row, Result]], unsent: list[Row], seconds: float) -> None:
    """Store the results, and release the leases of `unsent`. Raises `Unavailable` after `seconds`."""
    for row, result in results:
        if webhook := sending.webhooks.get(row["webhook_id"]):
            metrics.attempted(webhook["name"], result.kind)
    if not results and not unsent:
        return
    schedule = sending.delivery["retry_schedule"]
    with write(seconds=seconds) as transaction:
        for row in unsent:
            Delivery.release(row)
        for row, result in results:
            for message in Delivery.store_result(transaction, row, result, schedule):
                name = sending.webhooks[row["webhook_id"]]["name"]
                log.warning("webhook %s%s", without_paths(name), message)


# Deliveries that are left ---------------------------------------------------------------------


def drain(webhook_id: str) -> int:
    """Send the webhook's due deliveries in order, until one fails; return how many were accepted."""
    count = 0
    while not sending.stopping.is_set():
        # After a failure, one delivery shows whether the receiver can be reached again.
        most = 1 if Webhook.stored(webhook_id)["failures"] else BATCH
        with write():
            rows = Delivery.lease_due(webhook_id, most, sending.times)
        results = _send(rows, time.monotonic() + BATCH_SECONDS, sending.delivery["timeout_seconds"])
        count += sum(result.delivered for result in results)
        if not results or results[-1].receiver_failed:
            break
    return count


def due_ids() -> list[str]:
    """Return the ids of the webhooks to which this process can send something now."""
    return [row["id"] for row in Webhook.due.all(**sending.times) if row["id"] in sending.webhooks]


@contextmanager
def failures_logged(consequence: str) -> Iterator[None]:
    """Log a failure of the body, with a traceback unless the database is busy or full."""
    try:
        yield
    except Exception as error:
        expected = isinstance(error, Unavailable) or is_outage(error)
        log.error("%s: %s", consequence, error, exc_info=not expected)


def log_deleted(webhook: Row, count: int) -> None:
    if count:
        message = "webhook %s: the oldest %d events that waited for it are deleted"
        log.warning(message, without_paths(webhook["name"]), count)
