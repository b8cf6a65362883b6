"""What the server of the command `throwaway` answers besides the API, for the tests of other programs.

gunicorn reads this module in place of gunicorn.conf.py, whose settings it takes over. No other server loads
it, so that nobody can reset a workspace that is used. docs/testing.md says how to use it.
"""

import errno
import hmac
import os
import runpy
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from fnmatch import fnmatchcase
from typing import Any

from gunicorn.config import make_settings
from marshmallow import ValidationError, fields, validate, validates_schema

import gateway
import schemas
from app import error_response
from commands import HOME, INBOX, start_of_throwaway
from database import EncodedJSON, Row, db
from errors import ApiError, Unauthorized, not_found
from limits import READ_SECONDS
from models import ApiKey
from operation import success
from outbox import Event, Webhook
from settings import GIVEN, Number
from wire import STATUS_LINES, Request, Response, envelope, thread

CONF = runpy.run_path(str(HOME / "gunicorn.conf.py"))
globals().update((name, CONF[name]) for name in make_settings() & CONF.keys())

PREFIX = "/throwaway/"
INBOX_MOST = 1000  # deliveries are kept, the newest ones
INBOX_BYTES = 8 * 1024 * 1024
INBOX_SECONDS = 5  # that an answer waits for what is still to be delivered
SHOWN_HEADERS = ("content-type", "x-service-", "webhook-")


def post_worker_init(worker: Any) -> None:
    CONF["post_worker_init"](worker)
    worker.wsgi.wsgi_app = Throwaway(worker)


MATCH = validate.Regexp(
    r"([A-Z]+|\*) [/*][^\s?\[\]]*\Z",
    error='must be a method and a path, as "POST /api/v1/tasks"; * stands for any text',
)
ERRORS = validate.OneOf(
    [status for status in STATUS_LINES if status >= 400], error="must be one of {choices}"
)
WHOLE = {**schemas.MESSAGES, "invalid": "must be the number of an error's status, as 503"}


class FaultInput(schemas.Strict):
    """What shall happen to the next requests of some method and path."""

    match = fields.String(required=True, validate=MATCH, error_messages=schemas.MESSAGES)
    times = schemas.JSONInteger(1, 1000, load_default=1)
    status = fields.Integer(strict=True, validate=ERRORS, error_messages=WHOLE)
    delay = Number(0, 60)  # seconds
    drop = schemas.Choice(("before", "after"))  # the commit

    @validates_schema
    def _is_one_fault(self, data: Row, **_: Any) -> None:
        given = [name for name in ("status", "delay", "drop") if name in data]
        if len(given) != 1:
            raise ValidationError("give one of status, delay and drop", given[-1] if given else "status")


FAULT = FaultInput()


class Throwaway:
    """The application with faults, and with the paths that only this server has."""

    def __init__(self, worker: Any):
        self.worker, self.app, self.serve = worker, worker.wsgi, worker.wsgi.wsgi_app
        self.lock = threading.Lock()
        self.faults: list[Row] = []
        self.inbox: deque[Row] = deque(maxlen=INBOX_MOST)

    def __call__(self, environ: Row, start_response: Callable) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith(PREFIX):
            return self.answer(environ, start_response)
        fault = self.next_fault(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}") if self.faults else {}
        ends_at = time.monotonic() + fault.get("delay", 0)
        while (left := ends_at - time.monotonic()) > 0 and self.worker.alive:  # else a stop would wait
            time.sleep(min(left, 0.05))
        if "status" in fault:
            return self.refuse(fault["status"], environ, start_response)
        if "drop" in fault:
            if fault["drop"] == "after":
                self.serve(environ, lambda *_: None)
            raise ConnectionResetError(errno.ECONNRESET, "a fault")  # gunicorn then closes the connection
        return self.serve(environ, start_response)

    def next_fault(self, asked: str) -> Row:
        """The oldest fault for this method and path, which is then used once, or {}."""
        with self.lock:
            for fault in self.faults:
                if fnmatchcase(asked, fault["match"]):
                    fault["times"] -= 1
                    self.faults = [other for other in self.faults if other["times"]]
                    return fault
        return {}

    def begin(self, environ: Row, start_response: Callable) -> Request:
        environ["tasks.request"] = thread.request = current = Request(self.app, environ, start_response)
        current.in_api = True  # so that errors are JSON
        return current

    def refuse(self, status: int, environ: Row, start_response: Callable) -> Iterable[bytes]:
        """The answer that the API has for this status."""
        current = self.begin(environ, start_response)
        codes = {error.status: error.code for error in reversed(ApiError.__subclasses__())}
        code = codes.get(status, "invalid_request" if status < 500 else ApiError.code)
        content = {"success": False, "error": {"code": code, "message": "a fault that the test asked for"}}
        headers = {"Retry-After": "1"} if status in (429, 503) else {}
        return Response(envelope(current.request_id, content), status, headers)(environ, current.start)

    def answer(self, environ: Row, start_response: Callable) -> Iterable[bytes]:
        current = self.begin(environ, start_response)
        views: dict[tuple[str, str], Callable[[Request], Response]] = {
            ("POST", f"{PREFIX}reset"): self.reset,
            ("POST", f"{PREFIX}faults"): self.add_fault,
            ("GET", INBOX): self.show_inbox,
            ("POST", INBOX): self.receive,
        }
        asked = current.method, current.path
        try:
            if asked != ("POST", INBOX):
                self.authenticate(current)
            view = views.get(asked) or not_found(f"path; there are {', '.join(map(' '.join, views))}")
            response = view(current)
        except Exception as error:
            response = error_response(error)
        return response(environ, current.start)

    def authenticate(self, current: Request) -> None:
        """Raise `Unauthorized` without the key that the command printed, even if a test has revoked it.

        A session does not do: a page of another origin must not be able to reset a workspace.
        """
        expected = f"Bearer {os.environ[GIVEN[1]]}"
        if not hmac.compare_digest(current.environ.get("HTTP_AUTHORIZATION", "").encode(), expected.encode()):
            raise Unauthorized("send the header Authorization: Bearer $TASKS_KEY, with the key of throwaway")

    def reset(self, current: Request) -> Response:
        """Go back to the state after the start; no id and no time of since is given again."""
        with closing(sqlite3.connect(start_of_throwaway())) as start, closing(db._connect()) as present:
            present.execute("PRAGMA synchronous = off")
            ApiKey._used.clear()  # or the sweeper would write it after the reset
            start.backup(present, sleep=0.005)  # in one transaction, as another process would write
        for limit in filter(None, (self.app.rate_limit, self.app.tool_limit, gateway.intake.rate_limit)):
            limit.clear()
        with self.lock:  # after the commit, so that `receive` knows no older event any more
            self.faults = []
            self.inbox.clear()
        return success({"reset": True}, 200)

    def add_fault(self, current: Request) -> Response:
        fault = FAULT.load(current.get_json())
        with self.lock:
            self.faults = [*self.faults, fault]
        return success(fault, 201)

    def show_inbox(self, current: Request) -> Response:
        """The deliveries, after those that requests have left to the sweeper."""
        ends_at = time.monotonic() + INBOX_SECONDS
        while time.monotonic() < ends_at and self.worker.alive:
            if not any(row["pending"] for row in Webhook.backlog.all() if row["name"] == "inbox"):
                break
            time.sleep(0.01)
        return success({"deliveries": list(self.inbox)}, 200)

    def receive(self, current: Request) -> Response:
        """Take a delivery of the webhook `inbox`, unless it is of before a reset."""
        body = current.read(INBOX_BYTES, READ_SECONDS)
        schemas.parse_json(body)
        headers = {name.lower(): text for name, text in current.headers.items()}
        shown = {name: text for name, text in headers.items() if name.startswith(SHOWN_HEADERS)}
        with self.lock:
            if Event.seq_of.value(id=headers.get("webhook-id")) is not None:
                self.inbox.append({"headers": shown, "body": EncodedJSON(body.decode())})
        current.close_connection()  # which the sender would keep, and the end of the server wait for
        return Response(b"", 204)
