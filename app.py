"""The JSON API under /api/v1: settings, the factory, authentication, errors, and a view per operation.

A view declares what it takes and who may call it, and returns a row; `endpoint` does the rest.
There is no SQL here, no validation rule, and nothing is sent from here.
"""

import contextlib
import logging
import os
import socket
import sqlite3
import time
import tomllib
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import orjson
from flask import Blueprint, Flask, Response, current_app, request
from marshmallow import Schema, ValidationError
from peewee import DatabaseError
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.sansio.utils import get_content_length
from werkzeug.wsgi import get_input_stream

import commands
import gateway
import schemas
from models import (
    LOCK_SECONDS,
    ROLES,
    Activity,
    ApiKey,
    Change,
    Comment,
    Conflict,
    Delivery,
    Endpoint,
    Event,
    Forbidden,
    Gone,
    Invalid,
    Invitation,
    Meeting,
    Member,
    NotFound,
    PreconditionFailed,
    Problem,
    Project,
    Row,
    Task,
    Unavailable,
    Whiteboard,
    db,
    new_request_id,
    now,
    to_json,
    write,
)
from webhooks import deadlines, deliver, emit, enable, ping, redeliver

API = "/api/v1"
VERSION = "1.1"
READ_SECONDS = 15.0  # the longest that a request's body may take to arrive
DRAIN_BYTES = 4 * 1024 * 1024  # of a refused body are read, so that the client gets to the answer
EVERY_ANSWER = [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]
STARTED = time.monotonic()

log = logging.getLogger("tasks")
api = Blueprint("api", __name__, url_prefix=API)


# Settings -------------------------------------------------------------------------------------


def read_settings(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`config.toml`, under the environment, under the overrides, checked.

    Raises `schemas.SettingsError`. Paths in the file are relative to it, others to where we are.
    """
    home = Path(__file__).parent
    named = os.environ.get("TASKS_CONFIG")
    path = Path(named or home / "config.toml").absolute()
    here = f"http://127.0.0.1:{os.environ.get('PORT', '8000')}"
    settings: dict[str, Any] = {"server": {"base_url": here, "database": str(path.parent / "tasks.db")}}
    if named or path.exists():
        _merge(settings, _with_paths(_read_toml(path), path.parent))
    _merge(settings, _with_paths(_read_environment(), Path.cwd()))
    _merge(settings, overrides)
    return schemas.load_settings(settings)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise schemas.SettingsError(f"{path}: {error}") from error


def _read_environment() -> dict[str, Any]:
    """`TASKS_<SECTION>__<KEY>` for the sections, and `TASKS_WEBHOOKS` as a JSON array."""
    settings: dict[str, Any] = {}
    for name, text in os.environ.items():
        if name == "TASKS_WEBHOOKS":
            try:
                settings["webhooks"] = orjson.loads(text)
            except ValueError as error:
                raise schemas.SettingsError(f"{name}: must be a JSON array: {error}") from error
        elif name.startswith("TASKS_") and name != "TASKS_CONFIG":
            section, _, key = name.removeprefix("TASKS_").lower().partition("__")
            settings.setdefault(section, {})[key] = text
    return settings


def _with_paths(settings: dict[str, Any], base: Path) -> dict[str, Any]:
    for section, key in (("server", "database"), ("delivery", "ca_file")):
        inner = settings.get(section)
        if isinstance(inner, dict) and isinstance(inner.get(key), str):
            inner[key] = str(base / inner[key])
    return settings


def _merge(settings: dict[str, Any], over: Mapping[str, Any]) -> None:
    for section, value in over.items():
        if isinstance(value, Mapping) and isinstance(settings.get(section), dict):
            settings[section] |= value
        else:
            settings[section] = value


# The application ------------------------------------------------------------------------------


class Late:
    """Ends the reading from a client when the time is up; `cut` says whether it had to."""

    def __init__(self, line: socket.socket | None, seconds: float):
        self.line, self.cut = line, False
        self.guard = deadlines.within(seconds, self._cut)

    def _cut(self) -> None:
        self.cut = True
        if self.line is not None:
            with contextlib.suppress(OSError):  # the client has gone
                self.line.shutdown(socket.SHUT_RD)

    def __enter__(self) -> None:
        self.guard.__enter__()

    def __exit__(self, *failure: Any) -> None:
        self.guard.__exit__(*failure)


class Call:
    """What is known of the request that is being answered."""

    def __init__(self, environ: dict, start_response: Callable):
        self.environ, self.start_response = environ, start_response
        self.started = time.perf_counter()
        self.request_id = new_request_id()
        self.path: str = environ["PATH_INFO"]
        self.in_api = self.path.startswith(f"{API}/") or self.path == API
        self.caller: Any = None  # a member with the key's scope, where a key was needed
        self.status = 0  # the view's own, where it is not the declared one
        self.headers: dict[str, str] = {}  # of a success, that the view adds
        self.unread = (
            environ.get("CONTENT_LENGTH", "0") not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ
        )

    def start(self, status: str, headers: list[tuple[str, str]], *failure: Any) -> Any:
        """Begin the answer, with what every answer carries."""
        if self.unread:
            self.discard(DRAIN_BYTES)
        headers += [("X-Request-Id", self.request_id), *EVERY_ANSWER]
        self.log(status[:3])
        return self.start_response(status, headers, *failure)

    def read(self, limit: int, seconds: float) -> bytes:
        """The body, of at most so many bytes, which arrives in time; read once.

        Raises `schemas.TooLarge`, `schemas.TooSlow`, and `schemas.BadJSON` for one that breaks off.
        All that knows how gunicorn reads is here and in the two methods below.
        """
        declared = get_content_length(self.environ.get("CONTENT_LENGTH"))
        if declared is not None and declared > limit:
            raise schemas.TooLarge(f"the body has {declared} bytes; at most {limit} are accepted")
        late, failure, body = self._late_after(seconds), None, b""
        try:
            with late:
                body = get_input_stream(self.environ).read(limit + 1)
        except Exception as error:  # gunicorn's and the socket's own: a bad chunk, a reset
            failure = error
        self.unread = failure is None and not late.cut and len(body) > limit
        if late.cut:
            raise schemas.TooSlow(f"the body did not arrive within {seconds:.0f} s")
        if failure is not None:
            raise schemas.BadJSON("the body broke off or is badly framed") from failure
        if self.unread:
            raise schemas.TooLarge(f"the body has more than {limit} bytes")
        if declared is not None and len(body) < declared:
            raise schemas.BadJSON("the body is shorter than its Content-Length")
        return body

    def discard(self, left: int) -> None:
        """Read on a little after a refusal: a client that is still sending would miss the answer."""
        self.unread, late = False, self._late_after(READ_SECONDS)
        stream = get_input_stream(self.environ)
        try:
            with late:
                while left > 0 and (chunk := stream.read(min(left, 65536))):
                    left -= len(chunk)
        except Exception:
            log.debug("%s: the refused body broke off", self.request_id)
            left = 0
        if late.cut or left <= 0:
            self.close()

    def close(self) -> None:
        """Close the connection after this answer; gunicorn ignores a `Connection: close` of ours."""
        response = getattr(self.start_response, "__self__", None)
        if response is not None:
            response.force_close()

    def _late_after(self, seconds: float) -> "Late":
        return Late(self.environ.get("gunicorn.socket"), seconds)

    def log(self, status: str) -> None:
        """One line to standard output; an enrollment link's token, a credential, is not in it."""
        path, link, _ = self.path.partition("/enroll/")
        shown = quote((path + link).encode("latin-1"))[:500]
        milliseconds = (time.perf_counter() - self.started) * 1000
        who = self.caller["id"] if self.caller else "-"
        said = f"{self.environ['REQUEST_METHOD']} {shown} {status} {milliseconds:.1f}ms"
        with contextlib.suppress(OSError):  # a full disk or a closed pipe must not stop the service
            os.write(1, f"{now()} {said} {self.request_id} {who}\n".encode())


def call() -> Call:
    return request.environ["tasks.call"]


class Service(Flask):
    def wsgi_app(self, environ: dict, start_response: Any) -> Any:
        environ["tasks.call"] = started = Call(environ, start_response)
        if route := gateway.find_route(environ):  # Flask must not answer there by itself
            return gateway.answer(route, started)
        return super().wsgi_app(environ, started.start)

    def dispatch_request(self) -> Any:
        """Find out who calls before anything is said about what is called."""
        this = call()
        if this.in_api:
            public = getattr(self.view_functions.get(request.endpoint or ""), "public", False)
            this.caller = authenticate(this.environ.get("HTTP_AUTHORIZATION"), public=public)
        return super().dispatch_request()

    def ensure_sync(self, func: Callable) -> Callable:
        return func  # nothing here is a coroutine, and looking each time costs more than a query


def create_app(**overrides: Mapping[str, Any]) -> Service:
    """The application with its settings; touches no database, resolves no secret, starts nothing."""
    try:
        settings = read_settings(overrides)
    except schemas.SettingsError as error:
        raise click.ClickException(str(error)) from error
    app = Service("tasks", static_folder=None)
    app.config.update({section.upper(): value for section, value in settings.items()})
    app.config["PROPAGATE_EXCEPTIONS"] = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    db.init(settings["server"]["database"], timeout=LOCK_SECONDS)
    app.register_error_handler(Exception, refuse)
    app.register_blueprint(api)
    commands.register(app)
    if proxies := settings["server"]["trusted_proxies"]:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=proxies, x_proto=0)  # type: ignore[method-assign]
    return app


# Errors ---------------------------------------------------------------------------------------


class Unauthorized(Problem):
    """There is no key, or not a valid one."""


class Unsupported(Problem):
    """The body is of a type that is not read here."""


FAULTS: dict[type[Exception], tuple[int, str]] = {
    schemas.BadJSON: (400, "invalid_json"),
    Unauthorized: (401, "unauthorized"),
    Forbidden: (403, "forbidden"),
    NotFound: (404, "not_found"),
    schemas.TooSlow: (408, "request_timeout"),
    Conflict: (409, "conflict"),
    Gone: (410, "gone"),
    PreconditionFailed: (412, "precondition_failed"),
    schemas.TooLarge: (413, "payload_too_large"),
    Unsupported: (415, "unsupported_media_type"),
    Invalid: (422, "validation_error"),
    Unavailable: (503, "unavailable"),
}
HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
# What SQLite says when it is busy, full, read-only or without its disk; anything else is our bug.
OUTAGES = tuple(
    f"SQLITE_{what}" for what in ("BUSY", "LOCKED", "FULL", "READONLY", "IOERR", "CANTOPEN", "CORRUPT")
)


def refuse(error: Exception) -> Response:
    """The one place where errors become answers."""
    status, code = FAULTS.get(type(error), (500, "internal_error"))
    message, details, headers = str(error), [], {}
    if isinstance(error, HTTPException):
        status = error.code or 500
        code = HTTP_CODES.get(status, "invalid_request")
        message = f"{error.name}: {request.method} {quote(request.path)[:200]}"
        if allowed := getattr(error, "valid_methods", None):
            headers["Allow"] = ", ".join(sorted(allowed))
    elif isinstance(error, ValidationError):
        status, code = FAULTS[Invalid]
        details = schemas.problems_of(error)
    elif isinstance(error, Invalid):
        details = list(error.problems)
    elif isinstance(error, DatabaseError) and _is_outage(error):
        log.error("%s: the database: %s", call().request_id, error)
        status, code = FAULTS[Unavailable]
        message = "the database cannot be written to at the moment"
    elif status == 500:
        log.error("%s: a bug", call().request_id, exc_info=error)
        message = f"a bug on our side, in the log under {call().request_id}"
    if details:
        message = "; ".join(f"{field}: {said}" for field, said in details)[:1000]
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = "5"
    if not call().in_api:
        return Response(f"{message}\n", status, headers, content_type="text/plain")
    fault: Row = {"code": code, "message": message}
    if details:
        named = details[: schemas.MAX_DETAILS]
        fault["details"] = [{"field": field, "message": said} for field, said in named]
    return envelope({"success": False, "error": fault}, status, headers)


def _is_outage(error: BaseException | None) -> bool:
    """Whether SQLite could not, rather than would not; peewee's rollback may hide the reason."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            name = getattr(error, "sqlite_errorname", "") or ""
            if name.startswith(OUTAGES):
                return True
        error = error.__cause__ or error.__context__
    return False


def envelope(content: Row, status: int, headers: Mapping[str, str]) -> Response:
    content["meta"] = {"timestamp": now(), "version": VERSION, "request_id": call().request_id}
    return Response(to_json(content), status, headers, content_type="application/json")


# Who calls ------------------------------------------------------------------------------------


def authenticate(header: str | None, *, public: bool) -> Row | None:
    """Whose key it is. Raises `Unauthorized`, also for a wrong key where none is needed."""
    if header is None and public:
        return None
    scheme, _, key = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthorized("send the header Authorization: Bearer <API key>")
    caller = ApiKey.caller(key.strip())
    if caller is None:
        raise Unauthorized("the API key is unknown, or expired, or was revoked")
    return caller


def authorize(caller: Row, role: str, *, writes: bool) -> None:
    """Raises `Forbidden` unless the caller has at least this role, and a key that may do it."""
    allowed = ROLES[: ROLES.index(role) + 1]
    if caller["role"] not in allowed:
        raise Forbidden(f"your role is {caller['role']}; this takes {' or '.join(allowed)}")
    if writes and caller["scope"] != "write":
        raise Forbidden("your key's scope is read; this takes a key of scope write")


# What comes in --------------------------------------------------------------------------------


def read_json() -> Row:
    """The body's JSON object; none at all is an empty one. Raises `Unsupported` and `BadJSON`."""
    if not call().unread:
        return {}
    kind = request.mimetype
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Unsupported("send the body as Content-Type: application/json")
    if charset not in ("utf-8", "utf8") or request.headers.get("Content-Encoding", "identity") != "identity":
        raise Unsupported("send the body as plain UTF-8, not compressed")
    return schemas.load_json(call().read(current_app.config["SERVER"]["max_body_bytes"], READ_SECONDS))


def read_query() -> Row:
    """The query's parameters. Raises `ValidationError` for one that is repeated."""
    if not request.query_string:
        return {}
    repeated = {name: ["is repeated"] for name, values in request.args.lists() if len(values) > 1}
    if repeated:
        raise ValidationError(repeated)
    return request.args.to_dict()


def endpoint(
    schema: Schema = schemas.NOTHING, *, status: int = 200, role: str | None = "client"
) -> Callable[[Callable], Callable]:
    """Declare a view: what it takes, the status of its success, and the least role that may call it.

    The schema is that of the query for GET and DELETE, else of the body; what it loads are the
    view's keyword arguments. A view that writes runs in one transaction, whose `Change` is its
    first argument; what the change left to be sent is sent when the transaction has been committed.
    With `role=None` no key is needed.
    """

    def decorate(view: Callable) -> Callable:
        nothing = schema is schemas.NOTHING

        @wraps(view)
        def answer(**ids: str) -> Response:
            this = call()
            reads = request.method in ("GET", "HEAD")
            if role is not None:
                authorize(this.caller, role, writes=not reads)
            body = {} if reads else read_json()
            query = read_query()
            fields, other = (query, body) if reads or request.method == "DELETE" else (body, query)
            if other:
                schemas.NOTHING.load(other)
            if fields or not nothing:
                fields = schema.load(fields)
            if reads:
                data = view(**ids, **fields)
            else:
                with write(this.caller, this.request_id) as change:
                    data = view(change, **ids, **fields)
                if change.deliveries or change.queued:
                    counts = deliver(change)
                    this.headers["x-webhook-deliveries"] = "; ".join(f"{k}={n}" for k, n in counts.items())
            if callable(data):  # what only the deliveries decide
                data = data()
            return envelope({"success": True, "data": data}, this.status or status, this.headers)

        answer.public = role is None  # type: ignore[attr-defined]
        return answer

    return decorate


# Context, health, enrollment ------------------------------------------------------------------


@api.get("/context")
@endpoint()
def get_context() -> Row:
    """Summarise the workspace for an AI agent."""
    at = now()
    workspace = current_app.config["WORKSPACE"]
    return {
        "projects": Project.listing("active"),
        "members": Member.team(),
        "urgent_tasks": Task.urgent(at),
        "recent_activity": Activity.recent(),
        "whiteboards": Whiteboard.latest(),
        "system": {
            "current_time": at,
            "ai_instructions": workspace["ai_instructions"],
            "workspace_name": workspace["name"],
            "caller": {name: call().caller[name] for name in ("id", "full_name", "email", "role", "scope")},
        },
    }


@api.get("/health")
@endpoint(role=None)
def get_health() -> Row:
    """Say whether the service can answer; in detail to whoever has a key."""
    pending = Delivery.waiting()
    if call().caller is None:
        return {"status": "ok"}
    return {
        "status": "ok",
        "version": VERSION,
        "uptime_seconds": int(time.monotonic() - STARTED),
        "checks": {"database": "ok", "webhooks": pending},
    }


@api.get("/enroll/<token>")
@endpoint(role=None)
def get_enrollment(token: str) -> Row:
    """Show whom an enrollment link invites; it can still be used afterwards."""
    invitation = Invitation.open(token)
    member = invitation["member"]
    return {
        "workspace_name": current_app.config["WORKSPACE"]["name"],
        **{name: member[name] for name in ("full_name", "email", "role")},
        "expires_at": invitation["expires_at"],
    }


@api.post("/enroll/<token>")
@endpoint(status=201, role=None)
def enroll(change: Change, token: str) -> Row:
    """Use an enrollment link: join, and get a first API key, which is shown only here."""
    member, _, key = Invitation.accept(change, token)
    emit(change, "member.joined", {"member": member})
    return {"member": member, "api_key": key}


# Members --------------------------------------------------------------------------------------


@api.get("/members")
@endpoint()
def list_members() -> Row:
    """List the team, the clients, and who is invited."""
    return {"members": Member.everyone()}


@api.post("/members/invite")
@endpoint(schemas.INVITE_MEMBER, status=201, role="admin")
def invite_member(change: Change, **fields: Any) -> Row:
    """Invite someone by e-mail address; the answer holds the link to pass on."""
    days = current_app.config["WORKSPACE"]["invitation_days"]
    member, token, expires_at, new = Invitation.invite(change, days, **fields)
    if not new:
        call().status = 200
    emit(change, "member.invited", {"member": member})
    base_url = current_app.config["SERVER"]["base_url"].rstrip("/")
    return {"member": member, "enrollment_link": f"{base_url}/enroll/{token}", "expires_at": expires_at}


# Projects -------------------------------------------------------------------------------------


@api.get("/projects")
@endpoint(schemas.LIST_PROJECTS)
def list_projects(status: str | None = None) -> Row:
    """List the projects with their statistics, by name."""
    return {"projects": Project.listing(status)}


@api.post("/projects")
@endpoint(schemas.CREATE_PROJECT, status=201, role="member")
def create_project(change: Change, **fields: Any) -> Row:
    """Create a project."""
    return located(Project.add(change, **fields))


@api.get("/projects/<id>")
@endpoint()
def get_project(id: str) -> Row:
    """Show a project with its statistics."""
    return Project.fetch(id.lower())


@api.route("/projects/<id>", methods=["PATCH", "PUT"])
@endpoint(schemas.UPDATE_PROJECT, role="member")
def update_project(change: Change, id: str, **fields: Any) -> Row:
    """Change a project; what is not sent stays."""
    return Project.edit(change, id.lower(), fields)


@api.delete("/projects/<id>")
@endpoint(schemas.DELETE_PROJECT, role="member")
def delete_project(change: Change, id: str, force: str = "false") -> Row:
    """Delete a project that has no tasks, or with force=true one with all its tasks."""
    id = id.lower()
    for task in Project.remove(change, id, force=force == "true"):
        emit(change, "task.deleted", {"task": task})
    return {"id": id, "deleted": True}


# Tasks ----------------------------------------------------------------------------------------


def located(row: Row) -> Row:
    """The new row, whose address the answer's Location gives."""
    call().headers["Location"] = f"{request.path.rstrip('/')}/{row['id']}"
    return row


def tagged(task: Row) -> Row:
    """The task, whose version the answer's ETag gives."""
    call().headers["ETag"] = f'"{task["version"]}"'
    return task


def expected_versions() -> frozenset[str] | None:
    """The versions that If-Match lists; None where any will do."""
    tags = request.if_match
    return None if "If-Match" not in request.headers or tags.star_tag else frozenset(tags)


@api.get("/tasks")
@endpoint(schemas.LIST_TASKS)
def list_tasks(**filters: Any) -> Row:
    """List tasks, newest first unless sorted otherwise; the filters combine."""
    if filters.get("assignee_id") == "me":
        filters["assignee_id"] = call().caller["id"]
    return Task.page(**filters)


@api.post("/tasks")
@endpoint(schemas.CREATE_TASK, status=201, role="member")
def create_task(change: Change, **fields: Any) -> Row:
    """Create a task."""
    task = Task.add(change, **fields)
    emit(change, "task.created", {"task": task})
    return located(tagged(task))


@api.get("/tasks/<id>")
@endpoint()
def get_task(id: str) -> Row:
    """Show a task with its project, milestone, profiles and attachments."""
    return tagged(Task.fetch(id.lower()))


@api.route("/tasks/<id>", methods=["PATCH", "PUT"])
@endpoint(schemas.UPDATE_TASK, role="member")
def update_task(change: Change, id: str, **fields: Any) -> Row:
    """Change a task; what is not sent stays."""
    task, changes = Task.edit(change, id.lower(), fields, expected_versions())
    if changes:
        emit(change, "task.updated", {"task": task, "changes": changes})
    if "status" in changes and task["status"] == "done":
        emit(change, "task.completed", {"task": task, "changes": changes})
    return tagged(task)


@api.route("/tasks/<id>/complete", methods=["POST", "PATCH", "PUT"])
@endpoint(role="member")
def complete_task(change: Change, id: str) -> Row:
    """Set a task's status to done and notify the team."""
    task, changes = Task.edit(change, id.lower(), {"status": "done"}, expected_versions())
    if changes:
        emit(change, "task.completed", {"task": task, "changes": changes})
    return tagged(task)


@api.delete("/tasks/<id>")
@endpoint(role="member")
def delete_task(change: Change, id: str) -> Row:
    """Delete a task with its comments and attachments, for good."""
    task = Task.remove(change, id.lower(), expected_versions())
    emit(change, "task.deleted", {"task": task})
    return {"id": task["id"], "deleted": True}


@api.get("/tasks/<id>/comments")
@endpoint()
def list_comments(id: str) -> Row:
    """List all comments of a task, oldest first."""
    return {"comments": Comment.of(id.lower())}


@api.post("/tasks/<id>/comments")
@endpoint(schemas.ADD_COMMENT, status=201)
def add_comment(change: Change, id: str, content: str) -> Row:
    """Comment on a task."""
    comment, task = Comment.add(change, id.lower(), content=content)
    emit(change, "comment.added", {"comment": comment, "task": task})
    return comment


# Meetings -------------------------------------------------------------------------------------


@api.get("/meetings")
@endpoint()
def list_meetings() -> Row:
    """List the caller's meetings: the next upcoming first, then the past ones, newest first."""
    return {"meetings": Meeting.of(call().caller["id"])}


# Webhooks -------------------------------------------------------------------------------------


@api.get("/webhooks")
@endpoint(role="admin")
def list_webhooks() -> Row:
    """List the configured webhooks and how they are; their secrets are shown nowhere."""
    return {"webhooks": Endpoint.listing()}


@api.post("/webhooks/<id>/test")
@endpoint(role="admin")
def test_webhook(change: Change, id: str) -> Callable[[], Row]:
    """Send a ping to a webhook, and show what came of it."""
    delivery_id = ping(change, id.lower())
    return lambda: Delivery.fetch(delivery_id)


@api.post("/webhooks/<id>/enable")
@endpoint(role="admin")
def enable_webhook(change: Change, id: str) -> Row:
    """Send to a webhook again, beginning with what was parked when it was disabled."""
    return enable(change, id.lower())


@api.get("/deliveries")
@endpoint(schemas.LIST_DELIVERIES, role="admin")
def list_deliveries(**filters: Any) -> Row:
    """List the deliveries, newest first; the filters combine."""
    return Delivery.page(**filters)


@api.get("/deliveries/<id>")
@endpoint(role="admin")
def get_delivery(id: str) -> Row:
    """Show a delivery with the event that it carries."""
    return Delivery.fetch(id.lower())


@api.post("/deliveries/<id>/redeliver")
@endpoint(role="admin")
def redeliver_delivery(change: Change, id: str) -> Callable[[], Row]:
    """Send a delivery again, with the same id and body, and show what came of it."""
    redeliver(change, id.lower())
    return lambda: Delivery.fetch(id.lower())


@api.get("/events")
@endpoint(schemas.LIST_EVENTS, role="admin")
def list_events(limit: int, after: str | None = None) -> Row:
    """List the events in their order, from the first that is kept or after the one named."""
    rows, more = Event.after(after, limit)
    next_after = rows[-1]["id"] if rows else after
    return {
        "events": [row["body"] for row in rows],
        "pagination": {"limit": limit, "has_more": more, "next_after": next_after},
    }
