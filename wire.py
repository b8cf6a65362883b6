"""A request, from gunicorn to its view and back: its body and caller, its operation, its response.

What gunicorn does to a request is known here, in `Request`, and in gunicorn.conf.py.
"""

import contextlib
import hashlib
import io
import logging
import os
import re
import select
import socket
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache, partial, wraps
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

import werkzeug
from marshmallow import Schema, ValidationError
from peewee import CompositeKey, ForeignKeyField, IntegerField, TextField
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.formparser import MultiPartParser
from werkzeug.wsgi import get_input_stream

import limits
import schemas
from database import (
    DATABASE_ERRORS,
    Base,
    EncodedJSONField,
    JSONField,
    Row,
    Viewer,
    db,
    deletion_of_some,
    digest,
    is_outage,
    placeholder,
    statement,
    to_json,
)
from errors import (
    ApiError,
    BadBody,
    Forbidden,
    Invalid,
    KeyReused,
    NotFound,
    TooLarge,
    TooMany,
    TooSlow,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from lists import NAMED
from members import FEW_TASKS, KEY_PREFIX, SCOPES, ApiKey, Transaction, permit
from metrics import OTHER, figures
from models import Task, write
from schemas import API, API_VERSION
from settings import port_of
from times import new_request_id, now
from webhooks import deliver, emit

log = logging.getLogger("tasks")

# What no log may hold: what an enrollment or calendar link ends with, and an API key after the stored prefix.
TOKEN = re.compile(r"(/(?:enroll|calendar)/)[^\s'\"]+")
KEY = re.compile(rf"({KEY_PREFIX}[\w-]{{8}})[\w-]+")

uploads = limits.Slots(limits.UPLOADS, limits.UPLOADS)
searches = limits.Slots(limits.SEARCHES // 2, limits.SEARCHES, limits.SEARCH_PAUSE)
waits = limits.Slots(limits.WAITS // 2, limits.WAITS)
ending = threading.Event()  # this process is to end, and no request waits any more
BUSY = f"{limits.UPLOADS} files are being uploaded at the moment; try again"


# The request ------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def session_cookie(base_url: str) -> str:
    """The name of the session's cookie, which has the port, since browsers send it to all ports of a host."""
    return f"tasks_session_{port_of(base_url)}"


class Request(werkzeug.Request):
    """werkzeug's request, with who calls, with limits for its body, and with what its view sets."""

    def __init__(self, app: Any, environ: dict, start_response: Callable):
        super().__init__(environ, populate_request=False)
        self.app, self.start_response = app, start_response  # the app is `app.Service`
        self.started = time.perf_counter()
        self.request_id: str = environ.get("tasks.request_id") or new_request_id()  # of an agent's call
        self.endpoint: str = OTHER  # of the view, as the figures name it
        self.in_api = self.path.startswith(f"{API}/") or self.path == API
        self.caller: Any = None  # a member with the key's scope, where a key was sent
        self.success_status: int | None = None  # of the view, in place of the declared one
        self.success_headers: dict[str, str] = {}
        self.every_header: list[tuple[str, str]] = []  # of a success and of an error
        self.deadline: limits.SocketDeadline | None = None  # of the response
        self.waited = 0.0  # seconds, for something to answer
        self.unread = (
            environ.get("CONTENT_LENGTH", "0") not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ
        )

    @property
    def config(self) -> Mapping[str, Any]:
        return self.app.config

    @property
    def viewer(self) -> Viewer | None:
        """The caller, if that is a client who sees only some projects."""
        ids = self.caller and self.caller["project_ids"]
        return None if ids is None else Viewer(self.caller["id"], self.caller["tasks_seen"] <= FEW_TASKS)

    @property
    def client_address(self) -> str:
        """The address of the client, which behind `server.trusted_proxies` is what the proxies say."""
        return without_port(self.environ.get("REMOTE_ADDR", ""))

    @property
    def proxy_user(self) -> str:
        """The address of who signs in by the proxy, as `server.sign_in_header` has it; "" for nobody.

        It counts from `server.sign_in_networks`, whatever X-Forwarded-For says, and from a unix socket.
        """
        server, sock = self.config["SERVER"], self.environ.get("gunicorn.socket")
        said = self.headers.get(server["sign_in_header"] or "", "")
        with contextlib.suppress(UnicodeError):  # proxies write UTF-8, which WSGI gives as latin-1
            text = said.encode("latin-1").decode()
            # Another address than that of which NFC makes it: the Kelvin sign is no K.
            said = text if unicodedata.is_normalized("NFC", text) else said
        if not said or sock is None or sock.family == socket.AF_UNIX:
            return said if sock else ""
        before = self.environ.get("werkzeug.proxy_fix.orig", self.environ)  # ProxyFix changes REMOTE_ADDR
        address = ip_address(before["REMOTE_ADDR"])
        address = getattr(address, "ipv4_mapped", None) or address
        return said if any(address in each.network for each in server["sign_in_networks"]) else ""

    def authenticate(self) -> Row:
        """The member whose key the header `Authorization` holds, or without one the cookie of a session.

        Raises `Unauthorized`.
        """
        if "HTTP_AUTHORIZATION" not in self.environ and (key := self.session_key()):
            return self.identify(key, "session")
        scheme, _, key = self.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized("send the header Authorization: Bearer <API key>")
        return self.identify(key.strip())

    def identify(self, key: str, kind: str = "key") -> Row:
        """The member of this key of a kind, who is the caller from now on. Raises `Unauthorized`."""
        self.caller = ApiKey.caller(key, kind)
        if self.caller is None:
            unknown = "the API key is unknown, or expired, or was revoked"
            raise Unauthorized(unknown if kind == "key" else "the session has ended; sign in again")
        return self.caller

    def session_key(self) -> str | None:
        """The key in the session's cookie; None unless the request comes from one of our own pages.

        Browsers also send the cookie with requests from pages on other ports of the same host.
        """
        if not self.in_api or "HTTP_COOKIE" not in self.environ:
            return None
        site, mode = self.headers.get("Sec-Fetch-Site"), self.headers.get("Sec-Fetch-Mode")
        if site is not None:
            is_typed = site == "none" and mode == "navigate" and self.method == "GET"
            is_ours = site == "same-origin" or is_typed
        elif self.origin is not None:
            is_ours = self.has_own_origin()
        else:  # no page of another origin can send this header, since no preflight of ours allows it
            is_ours = "X-Requested-With" in self.headers
        return self.cookies.get(session_cookie(self.config["SERVER"]["base_url"])) if is_ours else None

    @property
    def base_origin(self) -> str:
        """The origin of `base_url`, as browsers write it."""
        url = urlsplit(self.config["SERVER"]["base_url"].lower())
        default = {"http": ":80", "https": ":443"}[url.scheme]
        return f"{url.scheme}://{url.netloc.removesuffix(default)}"

    def has_own_origin(self) -> bool:
        """Whether a page under `base_url`, or at the address in use, has sent this."""
        return self.origin in (self.base_origin, f"{self.scheme}://{self.headers.get('Host', '').lower()}")

    def is_foreign_form(self) -> bool:
        """Whether a page of another origin has sent this form."""
        if site := self.headers.get("Sec-Fetch-Site"):
            return site in ("cross-site", "same-site")
        return self.origin is not None and not self.has_own_origin()

    def read(self, limit: int, seconds: float) -> bytes:
        """The body, of at most `limit` bytes, which arrives within so many seconds; read once.

        Raises `TooLarge`, `TooSlow`, and `BadBody` for one that breaks off.
        """
        length = self.content_length
        if length is not None and length > limit:
            raise TooLarge(f"the body has {length} bytes; at most {limit} are accepted")
        deadline, failure, body = self._deadline(seconds), None, b""
        try:
            with deadline:
                body = get_input_stream(self.environ).read(limit + 1)
        except Exception as error:  # gunicorn's and the socket's own: a bad chunk, a reset
            failure = error
        self.unread = failure is None and not deadline.is_over and len(body) > limit
        if deadline.is_over:
            self.close_connection()
            raise TooSlow(f"the body did not arrive within {seconds:.0f} s")
        if failure is not None:
            raise BadBody("the body broke off or is badly framed") from failure
        if self.unread:
            raise TooLarge(f"the body has more than {limit} bytes")
        if length is not None and len(body) < length:
            raise BadBody("the body is shorter than its Content-Length")
        return body

    @property
    def is_json(self) -> bool:
        """Whether the body is announced as JSON, also as one of its types such as application/ld+json."""
        kind = self.environ.get("CONTENT_TYPE", "")
        if kind != "application/json":  # which needs no parsing
            kind = self.mimetype
        return kind == "application/json" or ("/" in kind and kind.endswith("+json"))

    def get_json(self) -> Row:  # type: ignore[override]
        """The body's JSON object; without a body an empty one.

        Raises as `read` and `schemas.load_json` do, and `Unsupported`.
        """
        if not self.unread:
            return {}
        if "HTTP_TRANSFER_ENCODING" not in self.environ:
            self.check_json_type()
        raw = self.read(self.config["SERVER"]["max_body_bytes"], limits.READ_SECONDS)
        if not raw:  # some proxies send a request without a body as chunked
            return {}
        self.check_json_type()
        return schemas.load_json(raw)

    def check_json_type(self) -> None:
        """Raise `Unsupported` unless the body is announced as JSON in UTF-8."""
        if not self.is_json:
            raise Unsupported("send the body as Content-Type: application/json")
        charset = self.mimetype_params.get("charset", "utf-8").lower()
        if charset not in ("utf-8", "utf8") or self.headers.get("Content-Encoding", "identity") != "identity":
            raise Unsupported("send the body as plain UTF-8, not compressed")

    def get_upload(self) -> MultiDict:
        """The fields and files of a multipart form.

        Raises as `read` does, `BadBody` for one that is no form, and `Unsupported`.
        """
        if not self.unread:
            return MultiDict()
        if self.mimetype != "multipart/form-data":
            raise Unsupported("send the file as multipart/form-data, in a part that is called file")
        most = self.config["LIMITS"]["max_attachment_bytes"]
        body = self.read(most + limits.FORM_BYTES, limits.UPLOAD_SECONDS)
        sizes = {"max_form_memory_size": limits.FORM_BYTES, "buffer_size": limits.FORM_STEP}
        parser = MultiPartParser(lambda *_, **__: io.BytesIO(), max_form_parts=10, **sizes)  # type: ignore[arg-type]
        try:
            boundary = self.mimetype_params.get("boundary", "").encode()
            parts, files = parser.parse(io.BytesIO(body), boundary, len(body))
        except (ValueError, RequestEntityTooLarge) as error:
            raise BadBody("the body is not a form that can be read") from error
        if any(file.stream.getbuffer().nbytes > most for _, file in files.items(multi=True)):  # type: ignore[attr-defined]
            raise TooLarge(f"the file is too large; at most {most} bytes are accepted")
        return MultiDict([*parts.items(multi=True), *files.items(multi=True)])

    def start(self, status: str, headers: list[tuple[str, str]], *failure: Any) -> Any:
        """Begin the response, as WSGI's `start_response`, with the headers that every response carries."""
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
        """Read more of a refused body: a client that is still sending would miss the response."""
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
        """Whether the client has closed its side."""
        poll, sock = select.poll(), self.environ.get("gunicorn.socket")
        if sock is not None:
            poll.register(sock, getattr(select, "POLLRDHUP", 0))  # which not every platform has
        return bool(poll.poll(0))

    def end(self) -> None:
        """End the response's deadline; gunicorn.conf.py calls it when the response was sent or failed."""
        if self.deadline is not None:
            self.deadline.stop()
            if self.deadline.is_over:
                log.info("%s: the client did not read the answer in time", self.request_id)

    def _deadline(self, seconds: float, how: int = socket.SHUT_RD) -> limits.SocketDeadline:
        return limits.SocketDeadline(self.environ.get("gunicorn.socket"), seconds, how)

    def log(self, status: str) -> None:
        """Count it, and write a line to standard output, with no token of a link or API key in its path."""
        path = logged_path(self.environ["PATH_INFO"])
        seconds = time.perf_counter() - self.started
        figures.answered(self.endpoint, int(status), seconds - self.waited)
        who, key = ((self.caller or {}).get(name, "-") for name in ("id", "key_prefix"))
        line = f"{now()} {self.method} {path} {status} {seconds * 1000:.1f}ms"
        with contextlib.suppress(OSError):  # a full disk or a closed pipe must not stop the service
            os.write(1, f"{line} {self.request_id} {who} {key} {self.client_address or '-'}\n".encode())


@lru_cache(maxsize=4096)
def logged_path(path: str) -> str:
    """What the log may hold of a path; clients repeat theirs."""
    path = re.sub(r"(/(?:enroll|calendar)/).*", r"\1", path, flags=re.DOTALL)
    return KEY.sub(r"\1…", quote(path.encode("latin-1")))[:500]


@lru_cache(maxsize=1024)
def without_port(address: str) -> str:
    """The address in one word, without the port, which some proxies write too, another one each time."""
    return re.sub(r"[^\w.:%[\]-]", "?", re.sub(r"(^[\d.]+|\]):\d+$", r"\1", address), flags=re.ASCII)[:64]


thread = threading.local()


def request() -> Request:
    """The request that this thread answers."""
    return thread.request


# The response -----------------------------------------------------------------------------------


STATUS_LINES = {int(status): f"{status.value} {status.phrase}" for status in HTTPStatus}


class Response:
    """A finished response; to make werkzeug's costs as much as to read a task."""

    def __init__(
        self,
        data: bytes,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ):
        self.data, self.status_code, self.content_type = data, status, content_type
        self.headers = dict(headers or {})

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        fixed = [("Content-Type", self.content_type), ("Content-Length", str(len(self.data)))]
        start_response(STATUS_LINES[self.status_code], fixed + list(self.headers.items()))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [self.data]


def envelope(request_id: str, content: Row) -> bytes:
    """The JSON of a response of the API: its content and its `meta`."""
    return to_json(content | {"meta": {"timestamp": now(), "version": API_VERSION, "request_id": request_id}})


class PathError(ApiError):
    """What the routing raises: there is no such path, or the path does not take the method."""

    CODES = {404: NotFound.code, 405: "method_not_allowed"}

    def __init__(self, error: HTTPException):
        super().__init__(f"{error.name}: {request().method} {quote(request().path)[:200]}")
        self.status = error.code or 500
        self.code = self.CODES.get(self.status, "invalid_request")
        if allowed := getattr(error, "valid_methods", None):
            self.headers = {"Allow": ", ".join(sorted(allowed))}


def as_api_error(error: Exception) -> ApiError:
    """What a request is answered that raised this exception; the log says why where it is a 5xx."""
    shown = ApiError(f"a bug on our side, in the log under {request().request_id}")
    if isinstance(error, ApiError):
        shown = error
    elif isinstance(error, ValidationError):
        shown = Invalid(*schemas.problems_of(error))
    elif isinstance(error, HTTPException):
        shown = PathError(error)
    elif getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":  # by `Database.limit`
        shown = Unavailable("the search took too long; filter by more, or by rarer values", retry_after=None)
    elif isinstance(error, DATABASE_ERRORS) and is_outage(error):
        shown = Unavailable("the database cannot be used at the moment")
    if shown.status == 503:
        log.error("%s: 503: %s", request().request_id, error)
    elif shown.status == 500:
        log.error("%s: 500: a bug", request().request_id, exc_info=error)
    return shown


def success(data: Row, status: int) -> Response:
    content = envelope(request().request_id, {"success": True, "data": data})
    return Response(content, status, request().success_headers)


def failure(error: ApiError) -> Response:
    """The API's response to a request that raised this error."""
    content: Row = {"code": error.code, "message": str(error)}
    if first := error.details[: schemas.MAX_DETAILS]:
        content["details"] = [{"field": field, "message": message} for field, message in first]
    content = {"success": False, "error": content}
    return Response(envelope(request().request_id, content), error.status, error.headers)


# Operations -------------------------------------------------------------------------------------


def authorize(caller: Row, role: str, scope: str) -> None:
    """Raise `Forbidden` unless the caller has at least this role, and a key of at least this scope."""
    permit(caller, role)
    if SCOPES.index(caller["scope"]) < SCOPES.index(scope):
        raise Forbidden(f"your key's scope is {caller['scope']}; this takes a key of scope {scope}")


@dataclass(frozen=True)
class operation:
    """What a view declares: what it takes and answers, and what the document says about it.

    A view that writes runs in one transaction, which is its first argument; the deliveries that the
    transaction leaves are sent after the commit.
    """

    takes: Schema = schemas.NOTHING  # of the query for GET and DELETE, else of the body: the view's arguments
    # The schema of the answer's data, or the content type of an answer that is no JSON object; None for a
    # file of a page, which the document does not list.
    gives: Any = None
    _: KW_ONLY
    # "json" (or the query); "file" for a form with a file; "nothing" for a page: any query or form is
    # ignored, and errors are pages.
    reads: str = "json"
    status: int = 200  # of a success
    role: str | None = "client"  # the least role that may call it; None: no key is needed
    raises: tuple[type[ApiError], ...] = ()  # beside the errors that every operation may answer
    headers: tuple[str, ...] = ()  # of a success
    also: dict[int, str] = field(default_factory=dict)  # other statuses of a success, with descriptions
    after_delivery: Callable[[Any], Row] | None = None  # makes the answer's data of what the view returns
    scope: str = "write"  # the least scope of a key with which it writes
    preconditions: tuple[str, ...] = ()  # of the headers If-Match and If-None-Match; others are refused
    of_session: bool = False  # a key of any scope will do: the cookie of a session

    @property
    def is_repeatable(self) -> bool:
        """Whether it takes an `Idempotency-Key`: it creates, and its answer may be stored."""
        return self.status == 201 and not getattr(self.gives, "secret", False)

    def __call__(self, view: Callable) -> Callable:
        @wraps(view)
        def answer(**ids: str) -> Any:
            current = request()
            is_read = current.method in ("GET", "HEAD")
            if self.role is not None:
                authorize(current.caller, self.role, "read" if is_read or self.of_session else self.scope)
            with db.limit(limits.QUERY_SECONDS), db.viewed_by(current.viewer if self.role else None):
                ids = {name: Task.id_of(id) if isinstance(id, int) else id for name, id in ids.items()}
                if is_read:
                    # Where no key is needed, parameters are ignored, as those of monitors.
                    query = read_query(self.takes, current.query_string if self.role else b"")
                    data = view(**ids, **query)
            if not is_read:
                with slot(uploads, Unavailable, BUSY) if self.reads == "file" else contextlib.nullcontext():
                    data = self.perform(view, ids | self.read_arguments())
            if self.after_delivery:
                data = self.after_delivery(data)
            return data if callable(data) else success(data, current.success_status or self.status)

        answer.declared = self  # type: ignore[attr-defined]
        return answer

    def read_arguments(self) -> Row:
        """What a request that writes holds for its view, checked.

        Raises as `Request`'s readers do, and `ValidationError`.
        """
        current, takes = request(), self.takes
        if self.reads == "nothing":
            return {}
        for name, key in (("If-Match", "HTTP_IF_MATCH"), ("If-None-Match", "HTTP_IF_NONE_MATCH")):
            if key in current.environ and name not in self.preconditions:
                raise Invalid((name, "is not accepted here"))
        body = current.get_upload() if self.reads == "file" else current.get_json()
        if current.method == "DELETE":
            if body:
                check(schemas.NOTHING, body)
            return read_query(takes, current.query_string)
        if current.query_string:
            read_query(schemas.NOTHING, current.query_string)
        return check(takes, body) if body or takes is not schemas.NOTHING else {}

    def perform(self, view: Callable, arguments: Row) -> Any:
        """Run a view that writes in its transaction, and send the deliveries that the transaction leaves."""
        current, role = request(), self.role
        repeatable = self.idempotency(arguments)
        is_deletion = current.method == "DELETE"  # perhaps of very many rows
        with write(current.caller, current.request_id, begins_group=is_deletion) as transaction:
            if role is not None:  # the key or the role may have changed while the body arrived
                transaction.actor = current.authenticate()
                authorize(transaction.actor, role, "read" if self.of_session else self.scope)
                if current.viewer and (unseen := unseen_by(current.viewer, arguments)):
                    arguments, repeatable = arguments | dict.fromkeys(unseen, "unseen"), None
            run = partial(view, transaction, **arguments)
            data = run_once(transaction, *repeatable, self.status, run) if repeatable else run()
            for event, task in transaction.also:
                emit(transaction, event, {"task": task})
        if transaction.deliveries or transaction.left_to_sweeper:
            counts = deliver(transaction)
            current.success_headers["x-webhook-deliveries"] = "; ".join(f"{k}={n}" for k, n in counts.items())
        return data

    def idempotency(self, arguments: Row) -> tuple[str, str] | None:
        """The `Idempotency-Key` of a request that creates, with a digest of the request; None without one.

        Raises `Invalid` where the answer may not be stored.
        """
        key = request().environ.get("HTTP_IDEMPOTENCY_KEY")
        if key is None or self.status != 201:
            return None
        if not self.is_repeatable:
            raise Invalid(
                ("Idempotency-Key", "is not accepted here: the answer holds a secret, which is not stored")
            )
        if not re.fullmatch(schemas.IDEMPOTENCY_KEY, key):
            raise Invalid(("Idempotency-Key", "must be 1 to 255 visible ASCII characters"))
        return key, digest(f"{request().path} {_ordered(arguments)!r}")


@contextlib.contextmanager
def slot(slots: limits.Slots, refusal: type[ApiError], *words: Any) -> Iterator[None]:
    """Run the body in a slot of the caller's. Raises the refusal, made with these words, if none is free."""
    member_id = request().caller["id"]
    if not slots.acquire(member_id):
        raise refusal(*words)
    try:
        yield
    finally:
        slots.release(member_id)


def search(read: Callable[[], Row]) -> Row:
    """Return what `read` returns, which looks through all texts or all activity. Raises `TooMany`."""
    with slot(searches, TooMany, limits.WAIT_AGAIN), db.limit(limits.SEARCH_SECONDS):
        return read()


def awaited(
    seconds: int, read: Callable[[], Row], has_some: Callable[[Row], Any], role: str = "client"
) -> Row:
    """What `read` returns as soon as there is some, or after so many seconds. Raises `TooMany`.

    It reads again every `WAIT_STEP` seconds, since other processes write too and a time may come: each time
    as the caller, who must still have this role.
    """
    current, begun_at = request(), time.monotonic()
    data = read()
    if has_some(data) or not seconds:
        return data
    with slot(waits, TooMany, limits.WAIT_AGAIN):
        while (left := begun_at + seconds - time.monotonic()) > 0 and not current.is_abandoned():
            ending.wait(min(left, limits.WAIT_STEP))
            current.waited = time.monotonic() - begun_at
            authorize(current.authenticate(), role, "read")  # the key or the role may have changed
            with db.limit(limits.QUERY_SECONDS), db.viewed_by(current.viewer):
                data = read()
            if ending.is_set() or has_some(data):
                break
    return data


@lru_cache(maxsize=1024)
def read_query(takes: Schema, query: bytes) -> Row:
    """What a query string holds for a view, checked; read once, since clients repeat their queries."""
    return check(takes, request().args) if query or takes is not schemas.NOTHING else {}


def check(schema: Schema, fields: Row | MultiDict) -> Row:
    """What the schema loads from the fields. Raises `ValidationError`, also for a repeated field."""
    if not isinstance(fields, MultiDict):
        return schema.load(fields)
    problems: Row = {name: ["is repeated"] for name, values in fields.lists() if len(values) > 1}
    try:
        loaded = schema.load(fields.to_dict())
    except ValidationError as error:
        raise ValidationError(error.messages_dict | problems) from error
    if problems:
        raise ValidationError(problems)
    return loaded


def unseen_by(viewer: Viewer, arguments: Row) -> list[str]:
    """Return which arguments are ids of what the viewer does not see; the view must not find it either."""
    ids = {name: arguments.get(name) for name in ("id", "comment_id", "member_id") if arguments.get(name)}
    with db.viewed_by(viewer):
        seen = {row["id"] for row in NAMED.all(ids=[*ids.values()])}
    return [name for name, id in ids.items() if id not in seen]


def _ordered(value: Any) -> Any:
    """The value in a fixed order, with digests in place of files."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, dict):
        return sorted((name, _ordered(inner)) for name, inner in value.items())
    return value


def run_once(
    transaction: Transaction, key: str, fingerprint: str, status: int, run: Callable[[], Row]
) -> Row:
    """Run the view and store its answer; or, where an answer is stored, return that. Raises `KeyReused`."""
    current = request()
    if stored := StoredAnswer.find(transaction, key, fingerprint):
        current.success_status = stored["status"]
        current.success_headers = stored["headers"] | {"Idempotent-Replayed": "true"}
        return stored["data"]
    data = run()
    StoredAnswer.keep(transaction, key, fingerprint, status, current.success_headers, data)
    return data


class StoredAnswer(Base):
    """The answer to a POST with an `Idempotency-Key`, for requests that repeat it within a day."""

    api_key = ForeignKeyField(ApiKey, column_name="api_key_id", on_delete="CASCADE", index=False)
    idempotency_key = TextField()
    request = TextField()  # a digest of path and body
    status = IntegerField()
    headers = JSONField()
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
    def replace_old(cls: Any):
        """Inserts an answer in place of one of more than a day ago."""
        return cls.insert_row.query.on_conflict_replace()

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
        cls.replace_old.run(**row, headers=headers, data=data, status=status, created_at=transaction.at)

    @statement
    def delete_old(cls: Any):
        return deletion_of_some(cls, cls.created_at < placeholder("before"))

    @classmethod
    def prune(cls, most: int = 500) -> int:
        """Delete some answers that are no longer replayed; returns how many."""
        return cls.delete_old.run(before=now(-cls.DAY), most=most)
