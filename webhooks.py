"""Webhooks: an event is stored with the change, and sent, signed, once the change is on disk.

Knows nothing of HTTP requests that come in, nor of tasks. The promise is at least once: a delivery
is pending in the database until a receiver has accepted it.
"""

import base64
import hashlib
import hmac
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import certifi
import requests
from orjson import dumps
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from models import Change, Delivery, Endpoint, Event, Row, new_id, now, write

log = logging.getLogger("tasks.webhooks")

USER_AGENT = "task-service/1.1"
ANSWER_BYTES = 4096  # of a receiver's answer, and no more, are read
LEASE_GRACE = 1.0  # seconds that a lease outlives the longest that its sender may take


# Deadlines ------------------------------------------------------------------------------------


class Deadlines:
    """Cuts off whatever is still going on when its time is up; one thread watches over all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wake_at = float("inf")
        self._watcher: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, cut: Callable[[], None]) -> Iterator[None]:
        """Call `cut` (which must not wait) if the body takes longer than so many seconds."""
        entry, at = object(), time.monotonic() + seconds
        with self._changed:
            self._due[entry] = (at, cut)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._watcher.start()
            if at < self._wake_at:
                self._changed.notify()
        try:
            yield
        finally:
            # Taking the lock waits for a cut under way, so none hits the socket's next user.
            with self._changed:
                self._due.pop(entry, None)

    def _watch(self) -> None:
        with self._changed:
            while True:
                at = time.monotonic()
                for entry in [entry for entry, (due, _) in self._due.items() if due <= at]:
                    self._due.pop(entry)[1]()
                self._wake_at = min((due for due, _ in self._due.values()), default=float("inf"))
                idle = self._wake_at == float("inf")
                self._changed.wait(None if idle else self._wake_at - at)


deadlines = Deadlines()


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


class _Cuttable:
    """A connection that the deadline of this thread's exchange can shut down at any point."""

    line: socket.socket | None = None

    def _new_conn(self: Any) -> socket.socket:
        failure: Exception = OSError("no address")
        try:
            for *_, address in _resolve(self._dns_host, self.port):
                try:
                    sock = socket.create_connection(address[:2], exchange.left)
                except OSError as error:
                    failure = error
                    continue
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # TLS takes over the socket; a duplicate goes on meaning the same connection.
                self.line = sock.dup()
                exchange.holds(self.line)
                return sock
        except OSError as error:
            failure = error
        raise HTTPError(str(failure)) from failure

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


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        context = ssl.create_default_context(cafile=certifi.where())
        if settings.ca_file:
            context.load_verify_locations(settings.ca_file)
        super().init_poolmanager(*arguments, ssl_context=context, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}


_sessions = threading.local()


def _session() -> requests.Session:
    """This thread's session: no proxies or passwords from the environment, connections kept."""
    if not hasattr(_sessions, "session"):
        session = requests.Session()
        session.trust_env = False
        session.mount("http://", _Adapter())
        session.mount("https://", _Adapter())
        _sessions.session = session
    return _sessions.session


@dataclass
class Outcome:
    """What came of one POST. `status` is None where there was no answer."""

    status: int | None
    error: str | None
    seconds: float

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def post(url: str, body: bytes, headers: dict[str, str], seconds: float) -> Outcome:
    """POST the body; connecting, sending and reading end together after so many seconds."""
    started = time.monotonic()
    status, error = None, None
    try:
        with deadlines.within(seconds, exchange.begin(seconds)):
            response = _session().post(
                url, data=body, headers=headers, timeout=seconds, stream=True, allow_redirects=False
            )
            with response:
                response.raw.read(ANSWER_BYTES, decode_content=False)
            status = response.status_code
    except (requests.RequestException, HTTPError, OSError, ValueError) as failure:
        error = _in_words(failure)
    if exchange.cut or time.monotonic() - started >= seconds:
        status, error = None, f"timed out after {seconds:.1f} s"
    elif status is not None and not 200 <= status < 300:
        error = f"answered {status}"
    return Outcome(status, error, time.monotonic() - started)


def _in_words(failure: BaseException) -> str:
    """The innermost cause, which is what an operator can act on."""
    while inner := failure.__cause__ or failure.__context__:
        failure = inner
    return (str(failure) or type(failure).__name__)[:300]


# Signing --------------------------------------------------------------------------------------


def sign(body: bytes, secret: str) -> str:
    """`x-service-signature`: lower-case hex HMAC-SHA256 of the body (service specification)."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def sign_standard(id: str, timestamp: int, body: bytes, secrets: list[str]) -> str:
    """`webhook-signature` of the Standard Webhooks specification, one signature a secret."""
    content = f"{id}.{timestamp}.".encode() + body
    macs = [hmac.new(standard_key(secret), content, hashlib.sha256).digest() for secret in secrets]
    return " ".join("v1," + base64.b64encode(mac).decode() for mac in macs)


def standard_key(secret: str) -> bytes:
    """The key's bytes: decoded for a `whsec_…` secret. Raises `ValueError` when it is not base64."""
    if secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()


# Delivering -----------------------------------------------------------------------------------


@dataclass
class Receiver:
    """An endpoint of the configuration, with its secrets, which are in no table."""

    id: str
    name: str
    url: str
    events: list[str]
    secrets: list[str]  # the current one first


@dataclass
class Settings:
    """What this process knows of the configuration, since `configure`."""

    receivers: dict[str, Receiver]
    budget: float = 5.0
    ca_file: str | None = None


settings = Settings({})


def resolve_secret(reference: Row | None) -> str | None:
    """The secret itself. Raises `LookupError` with what is missing, never with a value."""
    if reference is None:
        return None
    if "value" in reference:
        return reference["value"]
    secret = os.environ.get(reference["id"], "")
    if not secret:
        raise LookupError(f"the environment variable {reference['id']} is not set")
    return secret


def read_hooks(hooks: list[Row]) -> list[Row]:
    """The configured webhooks with their secrets resolved. Raises `LookupError`, naming the entry."""
    resolved = []
    for hook in hooks:
        try:
            current, previous = map(resolve_secret, (hook["secret"], hook["previous_secret"]))
            secrets = [secret for secret in (current, previous) if secret]
            for secret in secrets:
                standard_key(secret)
        except LookupError as error:
            raise LookupError(f"webhooks: {hook['name']}: secret: {error}") from error
        except ValueError as error:
            raise LookupError(f"webhooks: {hook['name']}: secret: whsec_ must precede base64") from error
        resolved.append({**hook, "secrets": secrets})
    return resolved


def configure(hooks: list[Row], *, budget: float, ca_file: str | None) -> None:
    """Make this process know the receivers, whose rows `Endpoint.mirror` has written before."""
    settings.budget, settings.ca_file = budget, ca_file
    ids = Endpoint.ids()
    settings.receivers = {
        ids[hook["name"]]: Receiver(
            ids[hook["name"]], hook["name"], hook["url"], hook["events"], hook["secrets"]
        )
        for hook in read_hooks(hooks)
    }


def emit(change: Change, name: str, data: Row) -> None:
    """Store the event and a delivery for each endpoint that wants it, as part of the change.

    The body is serialised here and never again: these bytes are signed and sent on every attempt.
    Metadata is stored in the canonical form already, and of the rest orjson writes the very bytes
    that JavaScript's `JSON.stringify` does.
    """
    id = "evt_" + new_id().replace("-", "")
    event = {
        "id": id,
        "event": name,
        "timestamp": change.at,
        "data": data,
        "actor": change.profile,
        "request_id": change.request_id,
    }
    seq = Event.add(change, id, name, dumps(event).decode())
    for endpoint in Endpoint.active():
        if name in endpoint["events"].split():
            lease = now(settings.budget + LEASE_GRACE)
            delivery_id = Delivery.add(change, seq, endpoint["id"], lease)
            change.deliveries.append(delivery_id)


def deliver(change: Change) -> dict[str, int]:
    """Send what the committed change left, within the request's budget; never raises.

    Returns how many deliveries were accepted, and how many are left pending.
    """
    sent: list[tuple[Row, Outcome]] = []
    ends_at = time.monotonic() + settings.budget
    try:
        for delivery in Delivery.leased(change.deliveries):
            left = ends_at - time.monotonic()
            receiver = settings.receivers.get(delivery["endpoint_id"])
            if receiver and left > 0:
                sent.append((delivery, send(delivery, receiver, left)))
        settle(sent)
    except Exception:
        # The change is on disk and its deliveries are pending there: at worst they are sent twice.
        log.exception("request %s: deliveries are left pending", change.request_id)
        return {"delivered": 0, "pending": len(change.deliveries)}
    delivered = sum(outcome.delivered for _, outcome in sent)
    return {"delivered": delivered, "pending": len(change.deliveries) - delivered}


def send(delivery: Row, receiver: Receiver, seconds: float) -> Outcome:
    """One attempt at one delivery."""
    body, timestamp = delivery["body"].encode(), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "x-service-signature": sign(body, receiver.secrets[0]),
        "x-service-event": delivery["name"],
        "x-service-delivery": delivery["id"],
        "webhook-id": delivery["event_id"],
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign_standard(delivery["event_id"], timestamp, body, receiver.secrets),
    }
    outcome = post(receiver.url, body, headers, seconds)
    if not outcome.delivered:
        log.warning("webhook %s: %s: %s", receiver.name, delivery["id"], outcome.error)
    return outcome


def settle(sent: list[tuple[Row, Outcome]]) -> None:
    """Write down what came of the attempts."""
    if not sent:
        return
    with write() as change:
        for delivery, outcome in sent:
            Delivery.settle(
                change,
                delivery,
                delivered=outcome.delivered,
                status=outcome.status,
                error=outcome.error,
                seconds=outcome.seconds,
            )
