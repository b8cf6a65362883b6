"""A request, from gunicorn to its view and back: its body and caller, its operation, its response.

Only `Request` and server.py know what gunicorn does to a request.
"""

import contextlib
import hashlib
import logging
import os
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache, partial, wraps
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import werkzeug
from marshmallow import Schema, ValidationError
from peewee import CompositeKey, ForeignKeyField, IntegerField, TextField
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException
from werkzeug.urls import iri_to_uri
from werkzeug.wsgi import get_input_stream

import database
import errors
import limits
import schemas
import strictjson
from database import DATABASE_ERRORS, Row, db, digest, is_outage, placeholder, statement, to_json
from members import KEY_PREFIX, OAUTH_PREFIX, SCOPES, ApiKey, Transaction, permit
from metrics import OTHER, metrics
from models import SEEN_IDS, Task, write
from schemas import API, API_VERSION
from times import new_request_id, now
from webhooks import deliver, emit

log = logging.getLogger("tasks")

# The secrets that no log may contain: the end of an enrollment or calendar link, and an API key after its
# stored prefix.
TOKEN = re.compile(r"(/(?:enroll|calendar)/)[^\s'\"]+")
KEY = re.compile(rf"((?:{KEY_PREFIX}|{OAUTH_PREFIX})[\w-]{{8}})[\w-]+")

searches = limits.Slots(limits.SEARCHES // 2, limits.SEARCHES, limits.SEARCH_PAUSE)
waits = limits.Slots(limits.WAITS_OF_MEMBER, limits.WAITS)
ending = threading.Event()  # set when this process is about to end: no request waits any longer


# The request ------------------------------------------------------------------------------------


class Request(werkzeug.Request):
    """werkzeug's request, with its caller, the limits of its body, and what its view adds to the response."""

    def __init__(self, app: Any, environ: dict, start_response: Callable):
        super().__init__(environ, populate_request=False)
        self.app, self.start_response = app, start_response  # the app is `app.Service`
        self.started = time.perf_counter()
        # An agent's tool call has one.
        self.request_id: str = environ.get("tasks.request_id") or new_request_id()
        self.endpoint: str = OTHER  # the view's, which the metrics count by
        self.in_api = self.path.startswith(f"{API}/") or self.path == API
        self.caller: Any = None  # the member whose key was sent, with the key's scope
        self.success_status: int | None = None  # replaces the declared status
        self.success_headers: dict[str, str] = {}
        self.every_header: list[tuple[str, str]] = []  # for successes and errors
        self.deadline: limits.SocketDeadline | None = None  # for sending the response
        self.waited = 0.0  # seconds in `awaited`
        has_length = environ.get("CONTENT_LENGTH", "0") not in ("", "0")
        self.unread = has_length or "HTTP_TRANSFER_ENCODING" in environ

    @property
    def config(self) -> Mapping[str, Any]:
        return self.app.config

    @property
    def viewer(self) -> str | None:
        """The caller's id, if it is a client who sees only some projects; else None."""
        is_limited = self.caller and self.caller["project_ids"] is not None
        return self.caller["id"] if is_limited else None

    @property
    def client_address(self) -> str:
        """The client's address; behind `server.trusted_proxies` the one that the proxies report."""
        return without_port(self.environ.get("REMOTE_ADDR", ""))

    def authenticate(self) -> Row:
        """Return the member whose key is in `Authorization`, or else in the cookie. Raises `Unauthorized`."""
        if "HTTP_AUTHORIZATION" not in self.environ and (key := self.app.session_key(self)):
            return self.identify(key, "session")
        scheme, _, key = self.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise errors.Unauthorized("send the header Authorization: Bearer <API key>")
        return self.identify(key.strip())

    def identify(self, key: str, kind: str = "key") -> Row:
        """Make the member with this key, which is of this kind, the caller. Raises `Unauthorized`."""
        self.caller = ApiKey.caller(key, kind, self.environ.get("tasks.audience", ""))
        if self.caller is None:
            invalid = "the API key does not exist, has expired or was revoked"
            raise errors.Unauthorized(invalid if kind == "key" else "the session has ended; sign in again")
        return self.caller

    def read(self, limit: int, seconds: float) -> bytes:
        """Read the body, once, within `seconds`. Raises `TooLarge`, `TooSlow` and `BadBody`."""
        length = self.content_length
        if length is not None and length > limit:
            raise errors.TooLarge(f"the body has {length} bytes; at most {limit} are accepted")
        deadline, failure, body = self._deadline(seconds), None, b""
        try:
            with deadline:
                body = get_input_stream(self.environ).read(limit + 1)
        except Exception as error:  # from gunicorn or the socket: a bad chunk, a reset
            failure = error
        self.unread = failure is None and not deadline.is_over and len(body) > limit
        if deadline.is_over:
            self.close_connection()
            raise errors.TooSlow(f"the body did not arrive within {seconds:.0f} s")
        if failure is not None:
            raise errors.BadBody("the body broke off, or its chunks are malformed") from failure
        if self.unread:
            raise errors.TooLarge(f"the body has more than {limit} bytes")
        if length is not None and len(body) < length:
            raise errors.BadBody("the body is shorter than its Content-Length")
        return body

    @property
    def is_json(self) -> bool:
        """Whether the Content-Type is JSON, or a type of JSON such as application/ld+json."""
        kind = self.mimetype
        return kind == "application/json" or ("/" in kind and kind.endswith("+json"))

    def get_json(self) -> Row:  # type: ignore[override]
        """Return the JSON object in the body, or an empty one, for `load_arguments`.

        Raises `Unsupported`, and as `parse_object`.
        """
        if not self.unread:
            return {}
        if "HTTP_TRANSFER_ENCODING" not in self.environ:
            self.check_json_type()
        raw = self.read(self.config["SERVER"]["max_body_bytes"], limits.READ_SECONDS)
        if not raw:  # some proxies send a request without a body as chunked
            return {}
        self.check_json_type()
        return strictjson.parse_object(raw)

    def check_json_type(self) -> None:
        """Raise `Unsupported` unless the headers say that the body is JSON in UTF-8."""
        if not self.is_json:
            raise errors.Unsupported("send the body as Content-Type: application/json")
        charset = self.mimetype_params.get("charset", "utf-8").lower()
        if charset not in ("utf-8", "utf8") or self.headers.get("Content-Encoding", "identity") != "identity":
            raise errors.Unsupported("send the body as plain UTF-8, not compressed")

    def start(self, status: str, headers: list[tuple[str, str]], *failure: Any) -> Any:
        """Begin the response like WSGI's `start_response`, adding the headers that every response has."""
        if self.unread:
            self.discard(self.config["LIMITS"]["max_attachment_bytes"] + limits.DRAIN_BYTES)
        headers += [("X-Request-Id", self.request_id), ("X-Content-Type-Options", "nosniff")]
        headers += self.every_header
        if not any(name == "Cache-Control" for name, _ in headers):
            headers.append(("Cache-Control", "no-store"))
        self.log(status[:3])
        if "gunicorn.socket" in self.environ and self.deadline is None:
            size = int(dict(headers).get("Content-Length", 0))
            seconds = min(limits.SEND_SECONDS + size / limits.SEND_BYTES, limits.SEND_MOST)
            self.deadline = self._deadline(seconds, socket.SHUT_RDWR)
            self.deadline.start()
        return self.start_response(status, headers, *failure)

    def discard(self, left: int) -> None:
        """Read up to `left` more bytes of a refused body; a client still sending would miss the response."""
        self.unread, deadline = False, self._deadline(limits.DRAIN_SECONDS)
        stream = get_input_stream(self.environ)
        try:
            with deadline:
                while left > 0 and (chunk := stream.read(min(left, 65536))):
                    left -= len(chunk)
        except Exception:
            log.debug("%s: the refused body broke off", self.request_id)
            left = 0
        if deadline.is_over or left <= 0:
            self.close_connection()

    def close_connection(self) -> None:
        """Close the connection after this response; gunicorn ignores a `Connection: close` of ours."""
        response = getattr(self.start_response, "__self__", None)
        if response is not None:
            response.force_close()

    def is_abandoned(self) -> bool:
        """Return whether the client has closed its side of the connection."""
        poll, sock = select.poll(), self.environ.get("gunicorn.socket")
        if sock is not None:
            poll.register(sock, getattr(select, "POLLRDHUP", 0))  # not every platform has it
        return bool(poll.poll(0))

    def end(self) -> None:
        """End the response's deadline; server.py calls it when the response was sent or has failed."""
        if self.deadline is not None:
            self.deadline.stop()
            if self.deadline.is_over:
                log.info("%s: the client did not read the answer in time", self.request_id)

    def _deadline(self, seconds: float, how: int = socket.SHUT_RD) -> limits.SocketDeadline:
        return limits.SocketDeadline(self.environ.get("gunicorn.socket"), seconds, how)

    def log(self, status: str) -> None:
        """Count the request, and write its line to standard output, without secrets in its path."""
        path = logged_path(self.environ["PATH_INFO"])
        seconds = time.perf_counter() - self.started
        metrics.answered(self.endpoint, int(status), seconds - self.waited)
        if (self.endpoint, status) == ("api.get_health", "200"):
            return  # a monitor asks every few seconds, and would fill the log
        who, key = ((self.caller or {}).get(name, "-") for name in ("id", "key_prefix"))
        line = f"{now()} {self.method} {path} {status} {seconds * 1000:.1f}ms"
        with contextlib.suppress(OSError):  # neither a full disk nor a closed pipe may stop the service
            os.write(1, f"{line} {self.request_id} {who} {key} {self.client_address or '-'}\n".encode())


@lru_cache(maxsize=1024)
def logged_path(path: str) -> str:
    """Return a path without secrets, for the log; cached, as clients repeat their paths."""
    return KEY.sub(r"\1…", TOKEN.sub(r"\1", quote(path.encode("latin-1"))))[:500]


@lru_cache(maxsize=1024)
def without_port(address: str) -> str:
    """Return the address as one word, without the port that some proxies add, which changes each time."""
    return re.sub(r"[^\w.:%[\]-]", "?", re.sub(r"(^[\d.]+|\]):\d+$", r"\1", address), flags=re.ASCII)[:64]


thread_local = threading.local()


def request() -> Request:
    """Return the request that this thread answers."""
    return thread_local.request


# The response -----------------------------------------------------------------------------------


STATUS_LINES = {int(status): f"{status.value} {status.phrase}" for status in HTTPStatus}


@dataclass
class Response:
    """A finished response. Making werkzeug's takes as long as reading a task."""

    data: bytes
    status_code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        headers = [("Content-Type", self.content_type), ("Content-Length", str(len(self.data)))]
        start_response(STATUS_LINES[self.status_code], [*headers, *self.headers.items()])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [self.data]


def envelope(request_id: str, content: Row) -> bytes:
    """Return the JSON of an API response: its content and its `meta`."""
    return to_json(content | {"meta": {"timestamp": now(), "version": API_VERSION, "request_id": request_id}})


class PathError(errors.ApiError):
    """The path does not exist, or does not accept the method."""

    CODES = {404: errors.NotFound.code, 405: "method_not_allowed"}

    def __init__(self, error: HTTPException):
        super().__init__(f"{error.name}: {request().method} {quote(request().path)[:200]}")
        self.status = error.code or 500
        self.code = self.CODES.get(self.status, "invalid_request")
        if allowed := getattr(error, "valid_methods", None):
            self.headers = {"Allow": ", ".join(sorted(allowed))}


def as_api_error(error: Exception) -> errors.ApiError:
    """Return the error to answer for an exception. The cause of a 5xx is logged."""
    shown = errors.ApiError(f"this is a bug in the service; its log has details under {request().request_id}")
    if isinstance(error, errors.ApiError):
        shown = error
    elif isinstance(error, ValidationError):
        shown = errors.Invalid(*schemas.problems_of(error))
    elif isinstance(error, HTTPException):
        shown = PathError(error)
    elif getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":  # by `Database.limit`
        problem = "the search took too long; add filters, or use rarer values"
        shown = errors.Unavailable(problem, retry_after=None)
    elif isinstance(error, DATABASE_ERRORS) and is_outage(error):
        shown = errors.Unavailable("the database is not available at the moment")
    if shown.status == 503:
        log.error("%s: 503: %s", request().request_id, error)
    elif shown.status == 500:
        log.error("%s: 500: a bug", request().request_id, exc_info=error)
    return shown


def root_path() -> str:
    """Return the path of `base_url`, under which a proxy serves the API; "" for none."""
    return iri_to_uri(urlsplit(request().config["SERVER"]["base_url"]).path)


def expected_versions() -> frozenset[str] | None:
    """Return the versions in If-Match, where "*" means any; None without that header.

    Proxies that compress make the ETag `"2"` a weak one, or add a suffix: `"2-gzip"`, `"2-zstd"`, `"2;gzip"`.
    """
    if "HTTP_IF_MATCH" not in request().environ:
        return None
    tags = request().if_match
    named = {re.split("[-;]+(?=[a-z])", str(tag))[0] for tag in tags.as_set(include_weak=True)} - {"*"}
    return frozenset(["*"] if tags.star_tag else named)


def success(data: Row, status: int) -> Response:
    """Return the API's response with this data."""
    content = envelope(request().request_id, {"success": True, "data": data})
    return Response(content, status, request().success_headers)


def failure(error: errors.ApiError) -> Response:
    """Return the API's response with this error."""
    content: Row = {"code": error.code, "message": str(error)}
    if details := error.details[: schemas.MAX_DETAILS]:
        content["details"] = [{"field": field, "message": message} for field, message in details]
    body = envelope(request().request_id, {"success": False, "error": content})
    return Response(body, error.status, error.headers)


# Operations -------------------------------------------------------------------------------------


# Views that return nothing have deleted or revoked a row, as the schema of their response says.
ENDED = {schemas.DeletedShown: "deleted", schemas.RevokedShown: "revoked"}
NO_ID = "unseen"  # no row has this id, so the view fails as for an id that does not exist


def authorize(caller: Row, role: str, scope: str) -> None:
    """Raise `Forbidden` unless the caller has at least this role, and a key of at least this scope."""
    permit(caller, role)
    if scope != "read":
        ApiKey.brakes.check(caller)
    if SCOPES.index(caller["scope"]) < SCOPES.index(scope):
        raise errors.Forbidden(f"your key has scope {caller['scope']}; this request needs scope {scope}")


@dataclass(frozen=True)
class operation:
    """The decorator of a view, which declares the requests, responses and callers of an operation.

    A view that writes runs in one transaction, its first argument. After the commit, the transaction's
    deliveries are sent. A view that deletes or revokes what its path names returns nothing.
    """

    takes: Schema = schemas.NOTHING  # loads the view's arguments from the query (GET, DELETE) or the body
    # The schema of the response's data, or the content type of a response that is not a JSON object. None for
    # a page's file, which the document does not list.
    gives: Any = None
    _: KW_ONLY
    # "json": the query or a JSON body; "nothing": ignores both, for pages, whose errors are pages too; a
    # function: returns the fields of another kind of body.
    reads: str | Callable[[], MultiDict] = "json"
    within: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext  # in which it writes
    status: int = 200  # of a success
    role: str | None = "client"  # the lowest role that may call it; with None no key is needed
    raises: tuple[type[errors.ApiError], ...] = ()  # besides the errors of every operation
    headers: tuple[str, ...] = ()  # of a success; `run` sets ETag, and Location for a new row
    collection: str = ""  # the path below which a new row is; "" for the path of the request
    other_statuses: dict[int, str] = field(default_factory=dict)  # of a success, with descriptions
    after_delivery: Callable[[Any], Row] | None = None  # makes the response's data of the view's result
    scope: str = "write"  # the lowest scope of a key that may write with it; "read": a session of any scope
    preconditions: tuple[str, ...] = ()  # which of If-Match and If-None-Match it accepts
    is_large: bool = False  # whether it may change very many rows, as every DELETE may

    @property
    def is_repeatable(self) -> bool:
        """Whether it accepts an `Idempotency-Key`: it creates, and its response may be stored."""
        return self.status == 201 and not getattr(self.gives, "secret", False)

    def __call__(self, view: Callable) -> Callable:
        @wraps(view)
        def answer(**ids: str) -> Any:
            current = request()
            is_read = current.method in ("GET", "HEAD")
            if self.role is not None:
                authorize(current.caller, self.role, "read" if is_read else self.scope)
            if is_read:
                with db.limit(limits.QUERY_SECONDS), db.viewed_by(current.viewer if self.role else None):
                    # Without a role, parameters are ignored: monitors add some.
                    query = read_query(self.takes, current.query_string if self.role else b"")
                    data = self.run(view, ids, query)
            else:
                with self.within():
                    data = self.perform(view, ids, self.read_arguments())
            if self.after_delivery:
                data = self.after_delivery(data)
            is_response = isinstance(data, (Response, werkzeug.Response))
            return data if is_response else success(data, current.success_status or self.status)

        answer.declared = self  # type: ignore[attr-defined]
        return answer

    def run(self, view: Callable, ids: Row, arguments: Row, *transaction: Transaction) -> Any:
        """Call the view, and put the version and the address of the row that it returns into the headers.

        An argument replaces the id of the same name in the path.
        """
        ids = with_task_id(ids)
        row, headers = view(*transaction, **ids | arguments), request().success_headers
        if row is None:  # the view has deleted or revoked what the last id of its path names
            if self.gives not in ENDED:
                raise TypeError(f"{view.__name__} returns nothing")
            return {"id": [*ids.values()][-1], ENDED[self.gives]: True}
        if "ETag" in self.headers:
            headers["ETag"] = f'"{row["version"]}"'
        if "Location" in self.headers and self.status == 201:
            collection = API + self.collection if self.collection else request().path.rstrip("/")
            headers["Location"] = f"{root_path()}{collection}/{row['id']}"
        return row

    def read_arguments(self) -> Row:
        """Return a writing request's arguments. Raises `Invalid` with all problems, and as `reads` does."""
        current, takes = request(), [schemas.NOTHING, self.takes]
        if self.reads == "nothing":
            return {}
        in_query, in_body = takes[::-1] if current.method == "DELETE" else takes
        body = self.reads() if callable(self.reads) else current.get_json()
        loads = [partial(read_query, in_query, current.query_string)]
        if body or in_body is not schemas.NOTHING:
            loads.append(partial(load_arguments, in_body, body))
        arguments: Row = {}
        problems = [*self.problems_of_headers(current.environ)]
        for load in loads:
            try:
                arguments |= load()
            except ValidationError as error:
                problems += schemas.problems_of(error)
        if problems:
            raise errors.Invalid(*problems)
        return arguments

    def problems_of_headers(self, environ: dict) -> Iterator[tuple[str, str]]:
        """Yield each header that a writing request must not have here, or not like this, and why."""
        for name, key in (("If-Match", "HTTP_IF_MATCH"), ("If-None-Match", "HTTP_IF_NONE_MATCH")):
            if key in environ and name not in self.preconditions:
                yield name, "is not accepted by this operation"
            elif name == "If-None-Match" and environ.get(key, "*") != "*":
                yield name, "must be *"
        sent = self.status == 201 and "HTTP_IDEMPOTENCY_KEY" in environ
        if sent and not self.is_repeatable:
            reason = "the response contains a secret, which is not stored"
            yield "Idempotency-Key", f"is not accepted by this operation: {reason}"
        elif sent and not re.fullmatch(schemas.IDEMPOTENCY_KEY, environ["HTTP_IDEMPOTENCY_KEY"]):
            yield "Idempotency-Key", "must be 1 to 255 visible ASCII characters"

    def perform(self, view: Callable, ids: Row, arguments: Row) -> Any:
        """Run a view in a transaction, and send the transaction's deliveries.

        A task's number is looked up by `run`, so that a stored response outlives the task.
        """
        current, role = request(), self.role
        idempotency = self.idempotency(ids | arguments)
        is_large = self.is_large or current.method == "DELETE"
        with write(current.caller, current.request_id, begins_group=is_large) as transaction:
            if role is not None:  # the key or the role may have changed while the body arrived
                transaction.actor = current.authenticate()
                authorize(transaction.actor, role, self.scope)
                if current.viewer:
                    with db.viewed_by(current.viewer):
                        ids = with_task_id(ids)
                        unseen = unseen_in(ids | arguments)
                    if unseen:  # no stored response either: it may show what the viewer no longer sees
                        arguments, idempotency = arguments | dict.fromkeys(unseen, NO_ID), None
            run = partial(self.run, view, ids, arguments, transaction)
            data = respond_once(transaction, *idempotency, self.status, run) if idempotency else run()
            for event, task in transaction.task_events:
                emit(transaction, event, {"task": task})
        if transaction.deliveries or transaction.for_sweeper:
            counts = deliver(transaction)
            current.success_headers["x-webhook-deliveries"] = "; ".join(f"{k}={n}" for k, n in counts.items())
        return data

    def idempotency(self, arguments: Row) -> tuple[str, str] | None:
        """Return the `Idempotency-Key` and a digest of a request that creates, or None."""
        key = request().environ.get("HTTP_IDEMPOTENCY_KEY") if self.is_repeatable else None
        return (key, digest(f"{request().path} {_ordered(arguments)!r}")) if key else None


@contextlib.contextmanager
def slot(slots: limits.Slots, refusal: type[errors.ApiError], *words: Any) -> Iterator[None]:
    """Run the body in one of the caller's slots. If none is free, raise `refusal`, made with these words."""
    member_id = request().caller["id"]
    if not slots.acquire(member_id):
        raise refusal(*words)
    try:
        yield
    finally:
        slots.release(member_id)


def search(read: Callable[[], Row], steps: int = database.PROGRESS_STEPS) -> Row:
    """Call `read`, which searches all texts or all activity, in a slot for searches. Raises `TooMany`.

    SQLite looks at the clock every `steps` instructions.
    """
    with slot(searches, errors.TooMany, limits.WAIT_AGAIN), db.limit(limits.SEARCH_SECONDS, steps):
        return read()


def awaited(
    wait: int, read: Callable[[], Row], fits: Callable, role: str = "client", every: float = limits.WAIT_READ
) -> Row:
    """Return what `read` returns as soon as that `fits`, at the latest after `wait` seconds.

    It looks for a commit of any process every `WAIT_STEP` seconds, and reads if there is one, or if `every`
    seconds have passed. Each time the caller must still have this role. Raises `TooMany`.
    """
    current, seen, begun_at = request(), wait and db.version(), time.monotonic()
    read_at, data = begun_at, read()
    if fits(data) or not wait:
        return data
    with slot(waits, errors.TooMany, limits.WAIT_AGAIN):
        while (left := begun_at + wait - time.monotonic()) > 0 and not current.is_abandoned():
            ending.wait(min(left, limits.WAIT_STEP))
            current.waited = time.monotonic() - begun_at
            db.renew_limit(limits.QUERY_SECONDS)  # otherwise the wait would count as reading
            version, at = db.version(), time.monotonic()
            if version == seen and at - read_at < every and not ending.is_set():
                continue
            seen, read_at = version, at
            authorize(current.authenticate(), role, "read")  # the key or the role may have changed
            with db.viewed_by(current.viewer):
                data = read()
            if ending.is_set() or fits(data):
                break
    return data


@lru_cache(maxsize=1024)
def read_query(takes: Schema, query: bytes) -> Row:
    """Return the arguments that a query string has for a view; cached, as clients repeat their queries."""
    return load_arguments(takes, request().args) if query or takes is not schemas.NOTHING else {}


def load_arguments(schema: Schema, fields: Row | MultiDict) -> Row:
    """Load the fields with the schema.

    Raises `ValidationError` for all that is wrong: also for fields that are repeated or cannot be stored.
    """
    if isinstance(fields, MultiDict):
        problems: Row = {name: ["is repeated"] for name, values in fields.lists() if len(values) > 1}
        fields = fields.to_dict()
    else:
        problems = strictjson.problems_in(fields)
        # No field accepts `...`, so a wrong value is not missing, and no rule about several fields sees it.
        fields = fields | dict.fromkeys(problems, ...)
    try:
        loaded = schema.load(fields)
    except ValidationError as error:
        problems = error.messages_dict | problems
    if problems:
        raise ValidationError(problems)
    return loaded


def with_task_id(ids: Row) -> Row:
    """Return the ids of a path, with a task's id in place of its number. Raises `NotFound`."""
    return ids | {"id": Task.id_of(ids["id"])} if isinstance(ids.get("id"), int) else ids


def unseen_in(arguments: Row) -> list[str]:
    """Return the names of the arguments with ids that the viewer does not see."""
    ids = {name: id for name, id in arguments.items() if id and f"_{name}".endswith("_id")}
    seen = {row["id"] for row in SEEN_IDS.all(ids=[*ids.values()])}
    return [name for name, id in ids.items() if id not in seen]


# Requests that are repeated ---------------------------------------------------------------------


class StoredResponse(database.Base):
    """The response to a POST with an `Idempotency-Key`, for requests that repeat it within a day."""

    api_key = ForeignKeyField(ApiKey, column_name="api_key_id", on_delete="CASCADE", index=False)
    idempotency_key = TextField()
    request = TextField()  # a digest of path and body
    status = IntegerField()
    headers = database.JSONField()
    data = database.EncodedJSONField()
    created_at = TextField(index=True)

    DAY = 86400.0  # seconds
    delete_old = statement(lambda cls: database.deletion_of_some(cls, cls.created_at < placeholder("before")))

    class Meta:
        table_name = "stored_answer"  # as the migrations call it
        primary_key = CompositeKey("api_key", "idempotency_key")

    @statement
    def by_key(cls: Any):
        is_this = cls.idempotency_key == placeholder("idempotency_key")
        is_kept = cls.created_at > placeholder("after")
        return cls.select().where(cls.api_key == placeholder("api_key_id"), is_this, is_kept)


def _ordered(value: Any) -> Any:
    """Return the value with its keys in a fixed order, and with digests for files."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, dict):
        return sorted((name, _ordered(inner)) for name, inner in value.items())
    return value


def respond_once(
    transaction: Transaction, key: str, fingerprint: str, status: int, run: Callable[[], Row]
) -> Row:
    """Run the view and store its response, or return the stored one's data. Raises `KeyReused`."""
    current, named = request(), {"api_key_id": transaction.actor["key_id"], "idempotency_key": key}
    if stored := StoredResponse.by_key.one(**named, after=now(-StoredResponse.DAY)):
        if stored["request"] != fingerprint:
            raise errors.KeyReused("this Idempotency-Key was used with another path or body; use a new key")
        current.success_status = stored["status"]
        current.success_headers = stored["headers"] | {"Idempotent-Replayed": "true"}
        return stored["data"]
    response: Row = {"data": run(), "status": status, "headers": current.success_headers}
    StoredResponse.replace_row.run(**named, **response, request=fingerprint, created_at=transaction.at)
    return response["data"]
