"""A request and its answer, between gunicorn and the views.

All that knows gunicorn is here, in `Call`, and in gunicorn.conf.py.
"""

import contextlib
import io
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote

from flask import Flask, Request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import MultiPartParser
from werkzeug.http import HTTP_STATUS_CODES
from werkzeug.sansio.utils import get_content_length
from werkzeug.wsgi import get_input_stream

import limits
import schemas
from database import Row, new_request_id, now
from models import KEY_PREFIX
from schemas import API

log = logging.getLogger("tasks")

# What no log may hold: the token of an enrollment link, and an API key after the prefix that is stored.
TOKEN = re.compile(r"(/enroll/)[^\s'\"]+")
KEY = re.compile(rf"({KEY_PREFIX}[\w-]{{8}})[\w-]+")


class Call:
    """A request, with what is known of it and of its answer."""

    def __init__(self, app: Flask, environ: dict, start_response: Callable):
        self.app, self.environ, self.start_response = app, environ, start_response
        self.method: str = environ["REQUEST_METHOD"]
        self.query: str = environ.get("QUERY_STRING", "")
        self.started = time.perf_counter()
        self.request_id: str = environ.get("tasks.request_id") or new_request_id()  # of an agent's call
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        self.path = "/" + path.lstrip("/")
        self.in_api = self.path.startswith(f"{API}/") or self.path == API
        self.caller: Any = None  # a member with the key's scope, where a key was sent
        self.status = 0  # the status that the view sets, or 0 for the declared one
        self.headers: dict[str, str] = {}  # that the view adds to a success
        self.always: list[tuple[str, str]] = []  # headers of every answer to this request, refusals too
        self.sending: limits.SocketDeadline | None = None  # the deadline of the answer
        self.unread = (
            environ.get("CONTENT_LENGTH", "0") not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ
        )

    @cached_property
    def request(self) -> Request:
        """The request as Flask reads it."""
        return Request(self.environ)

    @property
    def config(self) -> Mapping[str, Any]:
        """The application's settings."""
        return self.app.config

    def read(self, limit: int, seconds: float) -> bytes:
        """The body, of at most `limit` bytes, which arrives within so many seconds; read once.

        Raises `schemas.TooLarge`, `schemas.TooSlow`, and `schemas.BadBody` for one that breaks off.
        """
        length = get_content_length(self.environ.get("CONTENT_LENGTH"))
        if length is not None and length > limit:
            raise schemas.TooLarge(f"the body has {length} bytes; at most {limit} are accepted")
        deadline, failure, body = self._late_after(seconds), None, b""
        try:
            with deadline:
                body = get_input_stream(self.environ).read(limit + 1)
        except Exception as error:  # gunicorn's and the socket's own: a bad chunk, a reset
            failure = error
        self.unread = failure is None and not deadline.cut and len(body) > limit
        if deadline.cut:
            self.close()
            raise schemas.TooSlow(f"the body did not arrive within {seconds:.0f} s")
        if failure is not None:
            raise schemas.BadBody("the body broke off or is badly framed") from failure
        if self.unread:
            raise schemas.TooLarge(f"the body has more than {limit} bytes")
        if length is not None and len(body) < length:
            raise schemas.BadBody("the body is shorter than its Content-Length")
        return body

    def read_json(self) -> Row:
        """The body's JSON object; without a body an empty one.

        Raises as `read` and `schemas.load_json` do, and `schemas.Unsupported`.
        """
        if not self.unread:
            return {}
        self.check_json_type()
        return schemas.load_json(self.read(self.config["SERVER"]["max_body_bytes"], limits.READ_SECONDS))

    def check_json_type(self) -> None:
        """Raise `schemas.Unsupported` unless the body is announced as JSON in UTF-8."""
        kind, charset = self.environ.get("CONTENT_TYPE", ""), "utf-8"
        if kind != "application/json":  # which needs no parsing
            kind = self.request.mimetype
            charset = self.request.mimetype_params.get("charset", charset).lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise schemas.Unsupported("send the body as Content-Type: application/json")
        coding = self.request.headers.get("Content-Encoding", "identity")
        if charset not in ("utf-8", "utf8") or coding != "identity":
            raise schemas.Unsupported("send the body as plain UTF-8, not compressed")

    def read_upload(self) -> MultiDict:
        """The fields and files of a multipart form.

        Raises as `read` does, `schemas.BadBody` for one that is no form, and `schemas.Unsupported`.
        """
        if not self.unread:
            return MultiDict()
        if self.request.mimetype != "multipart/form-data":
            raise schemas.Unsupported("send the file as multipart/form-data, in a part that is called file")
        most = self.config["LIMITS"]["max_attachment_bytes"]
        body = self.read(most + limits.FORM_BYTES, limits.UPLOAD_SECONDS)
        sizes = {"max_form_memory_size": limits.FORM_BYTES, "buffer_size": limits.FORM_STEP}
        parser = MultiPartParser(lambda *_, **__: io.BytesIO(), max_form_parts=10, **sizes)  # type: ignore[arg-type]
        try:
            boundary = self.request.mimetype_params.get("boundary", "").encode()
            parts, files = parser.parse(io.BytesIO(body), boundary, len(body))
        except (ValueError, RequestEntityTooLarge) as error:
            raise schemas.BadBody("the body is not a form that can be read") from error
        if any(file.stream.getbuffer().nbytes > most for _, file in files.items(multi=True)):  # type: ignore[attr-defined]
            raise schemas.TooLarge(f"the file is too large; at most {most} bytes are accepted")
        return MultiDict([*parts.items(multi=True), *files.items(multi=True)])

    def start(self, status: str, headers: list[tuple[str, str]], *failure: Any) -> Any:
        """Begin the answer, with the headers that every answer carries."""
        if self.unread:
            self.discard(self.config["LIMITS"]["max_attachment_bytes"] + limits.DRAIN_BYTES)
        headers += [("X-Request-Id", self.request_id), ("X-Content-Type-Options", "nosniff"), *self.always]
        if not any(name == "Cache-Control" for name, _ in headers):
            headers.append(("Cache-Control", "no-store"))
        self.log(status[:3])
        if "gunicorn.socket" in self.environ and self.sending is None:
            size = int(dict(headers).get("Content-Length", 0))
            seconds = min(limits.SEND_SECONDS + size / limits.SEND_BYTES, limits.SEND_MOST)
            self.sending = self._late_after(seconds, socket.SHUT_RDWR)
            self.sending.__enter__()
        return self.start_response(status, headers, *failure)

    def discard(self, left: int) -> None:
        """Read more of a refused body: a client that is still sending would miss the answer."""
        self.unread, deadline = False, self._late_after(limits.DRAIN_SECONDS)
        stream = get_input_stream(self.environ)
        try:
            with deadline:
                while left > 0 and (chunk := stream.read(min(left, 65536))):
                    left -= len(chunk)
        except Exception:
            log.debug("%s: the refused body broke off", self.request_id)
            left = 0
        if deadline.cut or left <= 0:
            self.close()

    def close(self) -> None:
        """Close the connection after this answer; gunicorn ignores a `Connection: close` of ours."""
        response = getattr(self.start_response, "__self__", None)
        if response is not None:
            response.force_close()

    def end_deadline(self) -> None:
        """End the answer's deadline; gunicorn.conf.py calls it when the answer was sent or failed."""
        if self.sending is not None:
            self.sending.__exit__(None, None, None)
            if self.sending.cut:
                log.info("%s: the client did not read the answer in time", self.request_id)

    def _late_after(self, seconds: float, how: int = socket.SHUT_RD) -> limits.SocketDeadline:
        return limits.SocketDeadline(self.environ.get("gunicorn.socket"), seconds, how)

    def log(self, status: str) -> None:
        """Write one line to standard output; neither enrollment tokens nor API keys may be in its path."""
        path, link, _ = self.environ["PATH_INFO"].partition("/enroll/")
        path = KEY.sub(r"\1…", quote((path + link).encode("latin-1")))[:500]
        milliseconds = (time.perf_counter() - self.started) * 1000
        who = self.caller["id"] if self.caller else "-"
        line = f"{now()} {self.method} {path} {status} {milliseconds:.1f}ms"
        with contextlib.suppress(OSError):  # a full disk or a closed pipe must not stop the service
            os.write(1, f"{line} {self.request_id} {who}\n".encode())


answering = threading.local()


def call() -> Call:
    """The request that this thread answers."""
    return answering.call


STATUS_LINES = {status: f"{status} {phrase.upper()}" for status, phrase in HTTP_STATUS_CODES.items()}


class Answer:
    """A finished response; to make Flask's `Response` costs as much as to read a task."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str], content_type: str):
        self.body, self.status, self.headers, self.content_type = body, status, headers, content_type

    def __call__(self, environ: dict, start: Callable) -> list[bytes]:
        size = str(len(self.body))
        fixed = [("Content-Type", self.content_type), ("Content-Length", size)]
        start(STATUS_LINES[self.status], fixed + list(self.headers.items()))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [self.body]
