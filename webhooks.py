"""Webhooks: an event is stored with the change, and sent, signed, once the change is on disk.

Knows nothing of HTTP requests that come in, nor of tasks. The promise is at least once: a delivery
is pending in the database until a receiver has accepted it.
"""

import base64
import fcntl
import hashlib
import hmac
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any

import certifi
import requests
from peewee import OperationalError
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError
from werkzeug.http import parse_date

from database import Row, Unavailable, db, epoch_ms, lock_file, now, optimize, to_json, wire_time
from limits import deadlines
from models import ApiKey, Conflict, Transaction, write
from outbox import Delivery, Event, Webhook
from settings import signing_key

log = logging.getLogger("tasks.webhooks")

USER_AGENT = "task-service/1.1"
ANSWER_BYTES = 4096  # of a receiver's answer, and no more, are read
LEASE_GRACE = 1.0  # seconds that a lease outlives the longest that its sender may take
BATCH = 50  # deliveries are claimed at a time; with 20, a drain is slower than eight clients that write
BATCH_SECONDS = 5.0  # after which no further delivery of a batch is tried, so that no lease is long
DRAINS = 32  # webhooks are sent to at a time, each by a thread of its own, so that none waits for another
ABANDONED = 2.0  # seconds for which what a request has leased is taken to be under way
SENDER_WAIT = 0.02  # seconds that a request waits for its turn to send: enough with receivers that are well
MOST_AT_ONCE = 20  # deliveries are sent by the request that left them
JITTER = 0.2
REFUSALS = 8  # tries after which an event that its webhook refuses is parked
RETRY_AFTER_MOST = 6 * 3600.0
DISABLE_AFTER = 5 * 86400  # seconds of nothing but failures
DISABLE_MISSES = 12  # failures in a row that it takes too, since the machine may have slept meanwhile


# One POST -------------------------------------------------------------------------------------


class Exchange(threading.local):
    """The POST that this thread is making: its deadline, and the sockets to shut down then."""

    ends_at = 0.0
    cut = False
    lines: tuple[socket.socket, ...] = ()

    def begin(self, seconds: float) -> "Callable[[], None]":
        self.ends_at, self.cut, self.lines = time.monotonic() + seconds, False, ()
        state = self.__dict__  # this thread's own; the watcher's would be another

        def cut() -> None:
            state["cut"] = True
            for line in state["lines"]:
                _shut(line)

        return cut

    def holds(self, line: socket.socket) -> None:
        self.lines += (line,)
        if self.cut:
            _shut(line)

    @property
    def left(self) -> float:
        """Seconds to the deadline; raises `TimeoutError` when there are none."""
        left = self.ends_at - time.monotonic()
        if self.cut or left <= 0:
            raise TimeoutError("timed out")
        return left


exchange = Exchange()


def _shut(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        log.debug("the connection was closed already")


def _resolve(host: str, port: int) -> list[tuple]:
    """The host's addresses. `getaddrinfo` has no time limit, so another thread waits for it."""
    answer: Future[list[tuple]] = Future()

    def look_up() -> None:
        try:
            answer.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.set_exception(OSError(f"cannot resolve {host}: {error}"))

    threading.Thread(target=look_up, name="resolve", daemon=True).start()
    return answer.result(exchange.left)


def _connect(addresses: list[tuple[str, int]]) -> socket.socket:
    """A connection to the first address that answers within its share of the time left.

    The shares are equal, so that one that drops what is sent to it leaves time for the next.
    """
    failure = OSError("no address")
    for tried, address in enumerate(addresses):
        try:
            return socket.create_connection(address, exchange.left / (len(addresses) - tried))
        except OSError as error:
            failure = error
    raise failure


class _Cuttable:
    """A connection that the deadline of this thread's exchange can shut down at any point."""

    line: socket.socket | None = None

    def _new_conn(self: Any) -> socket.socket:
        try:
            sock = _connect([address[:2] for *_, address in _resolve(self._dns_host, self.port)])
        except OSError as failure:
            raise HTTPError(str(failure)) from failure
        sock.settimeout(self.timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # TLS takes over the socket; a duplicate goes on meaning the same connection.
        self.line = sock.dup()
        exchange.holds(self.line)
        return sock

    def putrequest(self: Any, *arguments: Any, **options: Any) -> None:
        if self.line is not None:  # kept alive from an earlier exchange
            exchange.holds(self.line)
        super().putrequest(*arguments, **options)  # type: ignore[misc]

    def close(self: Any) -> None:
        super().close()  # type: ignore[misc]
        if self.line is not None:
            self.line.close()
            self.line = None


class _HTTPConnection(_Cuttable, HTTPConnection):
    pass


class _HTTPSConnection(_Cuttable, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _HTTPConnection


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _HTTPSConnection


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Whom receivers' certificates may come from. Raises `LookupError` for a file that holds none."""
    context = ssl.create_default_context(cafile=certifi.where())
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # which `ssl.SSLError` is too
            raise LookupError(f"delivery.ca_file = {ca_file!r}: {error.strerror or error}") from error
    return context


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, ssl_context=settings.tls, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> None:
        """None ever: even where it does not follow one, `requests` reads the whole body of a redirect."""


_sessions = threading.local()


def _session() -> requests.Session:
    """This thread's session: it keeps connections, no cookies, and takes nothing of the environment."""
    if not hasattr(_sessions, "session"):
        session = _Session()
        session.trust_env = False
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        session.mount("http://", _Adapter())
        session.mount("https://", _Adapter())
        _sessions.session = session
    return _sessions.session


@dataclass
class Attempt:
    """What came of one POST. `status` is None where there was no answer."""

    status: int | None
    error: str | None
    seconds: float
    retry_after: float | None = None  # seconds that the receiver asks for

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def unreachable(self) -> bool:
        """Whether it says something of the webhook, rather than of this event."""
        return self.status is None or self.status == 429 or self.status >= 500


def post(url: str, body: bytes, headers: dict[str, str], seconds: float) -> Attempt:
    """POST the body; connecting, sending and reading end together after so many seconds."""
    started = time.monotonic()
    status, error, retry_after = None, None, None
    try:
        with deadlines.within(seconds, exchange.begin(seconds)):
            response = _session().post(
                url, data=body, headers=headers, timeout=seconds, stream=True, allow_redirects=False
            )
            with response:
                response.raw.read(ANSWER_BYTES, decode_content=False)
            status = response.status_code
            retry_after = _retry_after(response.headers.get("Retry-After", ""))
    except Exception as failure:  # whatever a receiver does is its failure, and holds up no other
        error = _in_words(failure)
    if exchange.cut or time.monotonic() - started >= seconds:
        status, error = None, f"timed out after {seconds:.1f} s"
    elif status is not None and not 200 <= status < 300:
        error = f"answered {status}"
    return Attempt(status, error, time.monotonic() - started, retry_after)


def _retry_after(text: str) -> float | None:
    """Seconds, of a header that gives them or a date; at most `RETRY_AFTER_MOST`."""
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), RETRY_AFTER_MOST) or None
    try:
        date = parse_date(text)
        seconds = date.timestamp() - time.time() if date else 0
    except OverflowError:  # an offset of many digits
        return None
    return min(seconds, RETRY_AFTER_MOST) if seconds > 0 else None


def _in_words(failure: BaseException) -> str:
    """The innermost cause, which is what an operator can act on; what a terminal would obey is escaped."""
    while inner := failure.__cause__ or failure.__context__:
        failure = inner
    text = str(failure) or type(failure).__name__
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:300])[:300]


# Signing --------------------------------------------------------------------------------------


def sign(body: bytes, secret: str) -> str:
    """`x-service-signature`: lower-case hex HMAC-SHA256 of the body (service specification)."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def sign_standard(id: str, timestamp: int, body: bytes, secrets: list[str]) -> str:
    """`webhook-signature` of the Standard Webhooks specification, one signature a secret."""
    content = f"{id}.{timestamp}.".encode() + body
    macs = [hmac.new(signing_key(secret), content, hashlib.sha256).digest() for secret in secrets]
    return " ".join("v1," + base64.b64encode(mac).decode() for mac in macs)


# The configuration ----------------------------------------------------------------------------


@dataclass
class Receiver:
    """A webhook of the configuration, with its secrets, which are in no table."""

    name: str
    url: str
    secrets: list[str]  # the current one first


@dataclass
class Settings:
    """What this process knows of the configuration, since `configure`. Times are in seconds."""

    receivers: dict[str, Receiver]  # by the webhook's id
    request_budget: float = 5.0
    timeout: float = 15.0
    retry_schedule: tuple[float, ...] = (5.0,)
    keep_days: float = 30.0
    tls: ssl.SSLContext | None = None  # for all threads: to make one takes 30 ms and half a megabyte
    senders: threading.BoundedSemaphore = field(default_factory=threading.BoundedSemaphore)

    @property
    def window(self) -> Row:
        """Now, and the furthest that a delivery can be put off and be leased, for the statements.

        What lies beyond was written before the clock was set back.
        """
        furthest = max(*self.retry_schedule, RETRY_AFTER_MOST) * (1 + JITTER)
        lease = max(self.request_budget, self.timeout + BATCH_SECONDS) + LEASE_GRACE
        return {"now": now(), "far": now(furthest), "lease_far": now(lease)}


settings = Settings({})
left_something = threading.Event()  # wakes the sweeper


def configure(hooks: list[Row], delivery: Row, threads: int = 16) -> None:
    """Make this process know the receivers, whose secrets are resolved.

    Those that no server has noted in the database are left out. Of the threads that answer requests,
    a quarter may be sending at a time.
    """
    ids = {webhook["name"]: webhook["id"] for webhook in Webhook.listing()}
    settings.receivers = {
        ids[hook["name"]]: Receiver(hook["name"], hook["url"], hook["secrets"])
        for hook in hooks
        if hook["name"] in ids
    }
    settings.senders = threading.BoundedSemaphore(max(threads // 4, 1))
    settings.request_budget = delivery["request_budget_seconds"]
    settings.timeout = delivery["timeout_seconds"]
    settings.retry_schedule = tuple(delivery["retry_schedule"])
    settings.keep_days = delivery["keep_days"]
    settings.tls = tls_context(delivery["ca_file"])


# Delivering -----------------------------------------------------------------------------------


def emit(transaction: Transaction, name: str, data: Row, *, only: str | None = None) -> list[str]:
    """Store the event and a delivery for each webhook that wants it, as part of the change.

    The delivery to a webhook that is disabled is parked until the webhook is enabled.

    The body is serialised here and never again: these bytes are signed and sent on every attempt.
    Metadata is stored in the canonical form already, and of the rest orjson writes the very bytes
    that JavaScript's `JSON.stringify` does. With `only`, the event is for that webhook's id alone.
    Returns the deliveries' ids.
    """
    id = "evt_" + transaction.new_id().replace("-", "")
    event = {
        "id": id,
        "event": name,
        "timestamp": transaction.at,
        "data": data,
        "actor": transaction.profile,
        "request_id": transaction.request_id,
    }
    seq = Event.add(transaction, id, name, to_json(event).decode())
    ids = []
    if transaction.webhooks is None:  # asked once a change; the server's, of which a command may know fewer
        transaction.webhooks = _webhooks(transaction)
    for webhook in transaction.webhooks:
        webhook_id = webhook["id"]
        if f'"{name}"' not in webhook["events"] and webhook_id != only:
            continue
        at_once = webhook_id in settings.receivers and settings.request_budget > 0
        healthy = (webhook["healthy"] and webhook["state"] == "active") or webhook_id == only
        if at_once and healthy and len(transaction.deliveries) < MOST_AT_ONCE:
            lease = now(settings.request_budget + LEASE_GRACE)
            ids.append(Delivery.add(transaction, seq, webhook_id, lease))
            transaction.deliveries.append(ids[-1])
        else:
            parked = webhook["state"] == "disabled"
            ids.append(Delivery.add(transaction, seq, webhook_id, None, parked=parked))
            transaction.queued += not parked
    return ids


_first_change_at = ""  # in this process


def _webhooks(transaction: Transaction) -> list[Row]:
    """The webhooks as a change finds them; this process makes one change at a time.

    What was leased more than `ABANDONED` seconds ago, or before this process began, may have been leased
    by a process that died. Later events wait behind it.
    """
    global _first_change_at
    _first_change_at = _first_change_at or transaction.at
    return Webhook.configured.all(
        left_before=max(_first_change_at, wire_time(epoch_ms() - round(ABANDONED * 1000)))
    )


def ping(transaction: Transaction, webhook_id: str) -> str:
    """Leave a `ping` for that webhook alone; returns the delivery's id.

    Raises `NotFound`, and `Conflict` where it is disabled.
    """
    name = Webhook.enabled(webhook_id)["name"]
    if webhook_id not in settings.receivers:  # the server knows it, but not this process
        raise Conflict(f"the webhook {name} is not in the configuration in use here")
    named = {"webhook": {"id": webhook_id, "name": name}}
    return emit(transaction, "ping", named, only=webhook_id)[0]


def enable(transaction: Transaction, webhook_id: str) -> Row:
    """Send to the webhook again. Raises `NotFound`, and `Conflict` when it left the configuration."""
    webhook = Webhook.in_configuration(webhook_id)
    _tell_dropped(webhook, Delivery.drop_waiting(webhook_id, most=-1))
    left_something.set()
    return Webhook.enable(transaction, webhook_id)


def redeliver(transaction: Transaction, delivery_id: str) -> None:
    """Leave a delivery to be sent again. Raises as `Delivery.again` does."""
    lease = now(max(settings.request_budget, settings.timeout) + LEASE_GRACE)
    transaction.deliveries.append(Delivery.again(delivery_id, lease)["id"])


def deliver(transaction: Transaction) -> dict[str, int]:
    """Send what the committed change left, within the request's budget; never raises.

    Returns how many deliveries were accepted, and how many are left pending.
    """
    count, delivered = len(transaction.deliveries) + transaction.queued, 0
    try:
        if transaction.deliveries:
            delivered = _deliver(Delivery.to_send(transaction.deliveries))
    except Exception:
        # The change is on disk and its deliveries are pending there: at worst they are sent twice.
        log.exception("request %s: deliveries are left pending", transaction.request_id)
    if delivered < count:
        left_something.set()
    return {"delivered": delivered, "pending": count - delivered}


def _deliver(rows: list[Row]) -> int:
    if not settings.senders.acquire(timeout=SENDER_WAIT):
        settle([], rows)
        return 0
    try:
        ends_at = time.monotonic() + settings.request_budget
        lines: dict[str, list[Row]] = {}
        for row in rows:
            lines.setdefault(row["webhook_id"], []).append(row)
        # One webhook that hangs must not make another wait; each gets its events in order.
        first, *others = [partial(_send_line, line, ends_at) for line in lines.values()]
        waiting = [_senders.submit(other) for other in others]
        results = [first(), *(future.result() for future in waiting)]
    finally:
        settings.senders.release()
    sent = [pair for pairs, _ in results for pair in pairs]
    settle(sent, [row for _, unsent in results for row in unsent])
    if any(
        Delivery.queued_for.value(webhook_id=webhook_id) for webhook_id in lines
    ):  # it could not overtake these
        left_something.set()
    return sum(attempt.delivered for _, attempt in sent)


_senders = ThreadPoolExecutor(16, thread_name_prefix="sender")
Sent = list[tuple[Row, Attempt]]


def _send_line(rows: list[Row], ends_at: float, each: float | None = None) -> tuple[Sent, list[Row]]:
    """Send one webhook its deliveries in order; stops when time is up or it cannot be reached.

    Returns what was tried, and what was not. `each` limits a single attempt, else `ends_at` does.
    """
    sent: Sent = []
    for number, row in enumerate(rows):
        receiver, left = settings.receivers.get(row["webhook_id"]), ends_at - time.monotonic()
        # What the attempts before have left may be too little for a receiver that is well.
        least = 0 if each or not number else min(1.0, settings.request_budget / 2)
        if receiver is None or left <= least or stopping.is_set():
            return sent, rows[number:]
        attempt = send(row, receiver, each or left)
        sent.append((row, attempt))
        if attempt.unreachable or attempt.status == 410:
            return sent, rows[number + 1 :]
    return sent, []


def send(delivery: Row, receiver: Receiver, seconds: float) -> Attempt:
    """One attempt at one delivery."""
    body, timestamp = delivery["body"].encode(), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "x-service-signature": sign(body, receiver.secrets[0]),
        "x-service-event": delivery["event"],
        "x-service-delivery": delivery["id"],
        "webhook-id": delivery["event_id"],
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign_standard(delivery["event_id"], timestamp, body, receiver.secrets),
    }
    attempt = post(receiver.url, body, headers, seconds)
    if not attempt.delivered:
        log.warning("webhook %s: delivery %s: %s", receiver.name, delivery["id"], attempt.error)
    return attempt


def settle(sent: Sent, unsent: list[Row]) -> None:
    """Write down what came of the attempts, and give up the leases of what was not tried."""
    if not sent and not unsent:
        return
    with write() as transaction:
        for row in unsent:
            Delivery.release(row)
        for row, attempt in sent:
            _settle(transaction, row, attempt)


def _settle(transaction: Transaction, row: Row, attempt: Attempt) -> None:
    webhook_id = row["webhook_id"]
    noted = {
        "last_status": attempt.status,
        "last_error": attempt.error,
        "duration_ms": round(attempt.seconds * 1000),
    }
    if attempt.delivered:
        Delivery.settle(row, status="delivered", delivered_at=transaction.at, **noted)
        Webhook.reached(transaction, webhook_id, accepted=True)
        return
    if attempt.unreachable:
        wait = attempt.retry_after or _step(Webhook.row.existing(id=webhook_id)["failures"])
        until = Webhook.failed(transaction, webhook_id, now(wait), settings.window["far"])
        Delivery.settle(row, queued=1, next_at=until, **noted)
    else:
        parked = row["attempts"] >= REFUSALS
        wait = attempt.retry_after or _step(row["attempts"] - 1)
        status = "parked" if parked else "pending"
        Delivery.settle(row, status=status, queued=0, next_at=now(wait), **noted)
        Webhook.reached(transaction, webhook_id, accepted=False)
    condition = Webhook.row.existing(id=webhook_id)
    if condition["state"] != "active":  # since an earlier row of the same batch
        return
    if attempt.status == 410:
        _disable(transaction, webhook_id, "it answered 410 Gone")
    elif condition["misses"] >= DISABLE_MISSES and condition["first_failure_at"] < now(-DISABLE_AFTER):
        _disable(transaction, webhook_id, f"nothing but failures since {condition['first_failure_at']}")


def _step(failures: int) -> float:
    """Seconds until the next attempt, after so many failures before this one."""
    schedule = settings.retry_schedule
    return schedule[min(failures, len(schedule) - 1)] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311


def _disable(transaction: Transaction, webhook_id: str, reason: str) -> None:
    Webhook.disable(transaction, webhook_id, reason)
    log.warning("webhook %s is disabled: %s", settings.receivers[webhook_id].name, reason)


# Sweeping -------------------------------------------------------------------------------------

stopping = threading.Event()


def drain(webhook_id: str, others_wait: threading.Event | None = None) -> int:
    """Send a webhook what is due, in order, until nothing is left or it fails; returns how much.

    It ends after a batch while other webhooks wait for a place.
    """
    count = 0
    while not stopping.is_set():
        # After a failure one delivery finds out whether the webhook is back.
        most = 1 if Webhook.row.existing(id=webhook_id)["failures"] else BATCH
        window = settings.window
        with write():
            rows = Delivery.claim(webhook_id, most, window["lease_far"], window)
        if not rows:
            break
        sent, unsent = _send_line(rows, time.monotonic() + BATCH_SECONDS, settings.timeout)
        settle(sent, unsent)
        count += sum(attempt.delivered for _, attempt in sent)
        if not sent or sent[-1][1].unreachable or (others_wait and others_wait.is_set()):
            break
    return count


def sweep() -> int:
    """One pass over everything that is due, one webhook after the other; returns how much was sent."""
    return sum(drain(id) for id in Webhook.due(settings.window) if id in settings.receivers)


class Sweeper:
    """The thread that sends what requests have left; of several workers with the same receivers, one does."""

    def __init__(self, lock: Path, chores: tuple[Callable[[], object], ...] = ()):
        self._lock, self._leads = lock, False
        self._chores = chores  # done once an hour
        self._draining: dict[str, threading.Thread] = {}
        self._served_at: dict[str, float] = {}  # when a webhook got a place last
        self._others_wait = threading.Event()
        self._chores_at = 0.0
        self._doing_chores = threading.Thread(target=self._do_chores, name="chores", daemon=True)
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End it: what is under way is finished, within so many seconds, or stays pending."""
        stopping.set()
        left_something.set()
        ends_at = time.monotonic() + seconds
        threads = [self._thread, self._doing_chores, *list(self._draining.values())]
        for thread in filter(threading.Thread.is_alive, threads):
            thread.join(max(ends_at - time.monotonic(), 0))

    def _run(self) -> None:
        beat = min(1.0, *settings.retry_schedule, settings.timeout)
        while not stopping.is_set():
            try:
                self._beat()
            except Exception as error:
                _log_failure("the sweeper goes on", error)
            left_something.wait(beat)
            left_something.clear()

    def _beat(self) -> None:
        ApiKey.flush_last_used()
        if not self._leads:
            self._leads = self._take_lock()
        if not self._leads:
            return
        self._give_places()
        if time.monotonic() >= self._chores_at and not self._doing_chores.is_alive():
            self._chores_at = time.monotonic() + 3600
            # They may take long, and nobody's events must wait for them.
            self._doing_chores = threading.Thread(target=self._do_chores, name="chores", daemon=True)
            self._doing_chores.start()

    def _do_chores(self) -> None:
        for chore in self._chores:
            try:
                chore()
            except Exception as error:
                _log_failure("a chore is left for the next hour", error)
        db.close()  # this thread's connection

    def _give_places(self) -> None:
        """Start a drain for each webhook that is due; who was served longest ago comes first."""
        for id, thread in list(self._draining.items()):
            if not thread.is_alive():  # it could not be started
                self._draining.pop(id, None)
        due = [id for id in Webhook.due(settings.window) if id in settings.receivers]
        waiting = [id for id in due if id not in self._draining]
        waiting.sort(key=lambda id: self._served_at.get(id, 0.0))
        free = max(DRAINS - len(self._draining), 0)
        for id in waiting[:free]:
            self._served_at[id] = time.monotonic()
            self._draining[id] = threading.Thread(target=self._drain, args=(id,), name="drain", daemon=True)
            self._draining[id].start()
        if waiting[free:]:
            self._others_wait.set()
        else:
            self._others_wait.clear()

    def _take_lock(self) -> bool:
        """Lock the byte that stands for these receivers; the kernel frees it when this process ends.

        Servers with other receivers, which send to these alone, lock other bytes of the file.
        """
        self._file = lock_file(self._lock)
        receivers = hashlib.sha256("\n".join(sorted(settings.receivers)).encode()).digest()
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int.from_bytes(receivers[:7]))
        except (BlockingIOError, PermissionError):
            self._file.close()
            return False
        return True

    def _drain(self, webhook_id: str) -> None:
        count = 0
        try:
            count = drain(webhook_id, self._others_wait)
        except Exception as error:
            _log_failure("deliveries are left pending", error)
        finally:
            self._draining.pop(webhook_id, None)
            if count:  # others may wait for the place, and what was left meanwhile for the next drain
                left_something.set()
            db.close()  # this thread's connection


def _log_failure(then: str, error: Exception) -> None:
    """Log what failed, without a traceback where the database is busy or full, which is no bug."""
    log.error("%s: %s", then, error, exc_info=not isinstance(error, Unavailable | OperationalError))


def in_steps(step: Callable[[], int]) -> int:
    """Repeat a step that drops some rows until it drops none; returns how many there were.

    Each step is a write of its own, so that writers get their turns.
    """
    count, some = 0, 1
    while some and not stopping.is_set():
        with write():
            some = step()
        count += some
    return count


def prune_deliveries() -> None:
    """Drop what was finished `keep_days` ago, and what has waited so long for a disabled receiver."""
    before = now(-settings.keep_days * 86400)
    for webhook in Webhook.listing():
        if webhook["state"] == "disabled":
            _tell_dropped(webhook, in_steps(partial(Delivery.drop_waiting, webhook["id"], before)))
    in_steps(partial(Delivery.prune, before))
    optimize()


def _tell_dropped(webhook: Row, count: int) -> None:
    if count:
        log.warning("webhook %s: the oldest %d events that waited for it are dropped", webhook["name"], count)
