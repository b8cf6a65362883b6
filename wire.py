"""A request and its response, between gunicorn and the views, and the error that an exception becomes.

What gunicorn does to a request is known here, in `Request`, and in gunicorn.conf.py.
"""

import contextlib
import io
import logging
import os
import re
import select
import socket
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

import werkzeug
from marshmallow import ValidationError
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.formparser import MultiPartParser
from werkzeug.wsgi import get_input_stream

import limits
import schemas
from database import DATABASE_ERRORS, Row, Viewer, is_outage, to_json
from errors import (
    ApiError,
    BadBody,
    Invalid,
    NotFound,
    TooLarge,
    TooSlow,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from members import FEW_TASKS, KEY_PREFIX, ApiKey
from metrics import OTHER, figures
from schemas import API, API_VERSION
from settings import port_of
from times import new_request_id, now

log = logging.getLogger("tasks")

# What no log may hold: what an enrollment or calendar link ends with, and an API key after the stored prefix.
TOKEN = re.compile(r"(/(?:enroll|calendar)/)[^\s'\"]+")
KEY = re.compile(rf"({KEY_PREFIX}[\w-]{{8}})[\w-]+")


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
