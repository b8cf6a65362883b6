"""The application: its factory, what every request goes through, and a view for each operation.

`Service` finds the view of a request, and `operation` runs it; `error_response` answers what either raises.
A view declares its request, response, callers and errors, and returns a row or a page of rows. This module
contains no SQL.
"""

import gzip
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property, lru_cache, partial
from hashlib import sha256
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import flask_swagger_ui
import orjson
import werkzeug
from flask import Blueprint, Flask, render_template
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import NotFound as UnknownPath
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import PathConverter, UnicodeConverter
from werkzeug.utils import send_from_directory

import commands
import gateway
import limits
import schemas
from database import LOCK_SECONDS, Row, check_in_place, db, to_json
from errors import Conflict, Forbidden, Gone, Invalid, NotFound, PreconditionFailed, TooMany, not_found
from lists import change_page, history_page, task_page, today
from meetings import Meeting, Whiteboard, calendar
from members import CALENDAR, FRESH_SECONDS, PROFILE, Activity, ApiKey, Invitation, Member, Transaction
from metrics import exposition, figures
from models import Attachment, Comment, Milestone, Notice, Project, Task, remove_member, write
from outbox import Delivery, Event, Webhook
from parts.openapi import Endpoint, body_schemas, document
from repeat import next_dates
from schemas import API, VERSION
from settings import SettingsError, config_file, read_settings
from times import local, now
from webhooks import Errand, announce, emit, enable, local_time, ping, redeliver, resume
from wire import (
    PathError,
    Request,
    Response,
    as_api_error,
    authorize,
    awaited,
    expected_versions,
    failure,
    operation,
    request,
    root_path,
    search,
    session_cookie,
    set_session_cookie,
    thread,
)

SWAGGER_UI = Path(flask_swagger_ui.__file__).with_name("dist")
log = logging.getLogger("tasks")
STATIC = Path(__file__).with_name("static")
MODULES = sorted(file.name for file in STATIC.glob("*.js") if file.name not in ("markdown.js", "marked.js"))
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
PACKED = {file.name: TYPES[file.suffix] for file in STATIC.iterdir() if file.suffix in TYPES}
CALENDAR_TYPE = "text/calendar; charset=utf-8"
STARTED = time.monotonic()
# What was added to the core: modules of parts/, in the order in which they are registered. The core imports
# none of them, and works without any.
PARTS = ("demo", "files", "tools", "mail", "throwaway")
CACHED_PATH = 128  # the longest path, in characters, whose endpoint is cached; paths with ids are shorter

api = Blueprint("api", __name__, url_prefix=API)
pages = Blueprint("pages", __name__)


# The application ------------------------------------------------------------------------------


def create_app(**overrides: Mapping[str, Any]) -> "Service":
    """Make the application with its settings. Open no database, resolve no secret, start no thread.

    Invalid settings end the program with a message of one line.
    """
    if sys.flags.optimize > 1:
        sys.exit("Error: -OO (PYTHONOPTIMIZE=2) removes the texts of --help and /openapi.json; use -O")
    try:
        settings = read_settings(overrides)
    except SettingsError as error:
        sys.exit(f"Error: {error}")  # with any other exception `flask --help` prints a traceback
    app = Service("tasks", static_folder=None, root_path=str(Path(__file__).parent))
    app.config.update({section.upper(): value for section, value in settings.items()})
    app.config.update(CONFIG_FILE=config_file(), PROVIDE_AUTOMATIC_OPTIONS=False)
    app.url_map.converters |= {"default": Identifier, "task": TaskIdentifier, "path": AnyText}
    app.url_map.strict_slashes = app.url_map.merge_slashes = False
    # SQLite's log and the locks are beside the file, not beside a link to it.
    path = os.path.realpath(settings["server"]["database"])
    db.init(path, timeout=LOCK_SECONDS)
    app.register_blueprint(api)
    app.register_blueprint(pages)
    if most := settings["limits"]["requests_per_minute"]:
        app.rate_limit = limits.RateLimit(most, 60)
    for part in parts():
        if hasattr(part, "register"):
            part.register(app)
    for command in commands.cli.commands.values():
        app.cli.add_command(command)
    figures.name_routes(route_labels(app))
    if problems := [*unused_hooks(app), *undeclared_views(app)]:
        sys.exit(f"Error: {'; '.join(problems)} (docs/internals.md: The life of a request)")
    if proxies := settings["server"]["trusted_proxies"]:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=proxies, x_proto=0)  # type: ignore[method-assign]
    return app


def parts() -> list[Any]:
    """Import the parts, which adds their commands to those of commands.py."""
    return [import_module(f"parts.{name}") for name in PARTS]


def unused_hooks(app: Flask) -> Iterator[str]:
    """Yield a message for each hook and error handler that needs Flask's request context."""
    for kind in ("before_request", "after_request", "teardown_request"):
        for hook in chain(*getattr(app, f"{kind}_funcs").values()):
            yield f"{kind} never calls {hook.__name__}"
    for handlers in chain(*(by_status.values() for by_status in app.error_handler_spec.values())):
        for handler in handlers.values():
            yield f"errorhandler never calls {handler.__name__}"


def undeclared_views(app: Flask) -> Iterator[str]:
    """Yield a message for each view that cannot answer, or that the document cannot describe."""
    for rule in app.url_map.iter_rules():
        view: Any = app.view_functions[rule.endpoint]
        if not hasattr(view, "declared"):
            yield f"{rule.endpoint} has no @operation"
        elif view.declared.gives is not None and not (view.__doc__ and Endpoint.of(rule, view).tag):
            yield f"{rule.endpoint} needs a docstring, and TAGS of openapi.py a part of its path {rule.rule}"


def route_labels(app: "Service") -> dict[str, dict[str, str]]:
    """Return the labels of each endpoint's metrics: its method and its path."""
    names = ["gateway", *(name for name, _ in app.answers.values())]
    labels = {name: {"method": "", "route": name} for name in names}
    for rule in app.url_map.iter_rules():
        (method,) = (rule.methods or set()) - {"HEAD"}
        labels[rule.endpoint] = {"method": method, "route": re.sub(r"<(?:\w+:)?(\w+)>", r":\1", rule.rule)}
    return labels


class Identifier(UnicodeConverter):
    """An id in a path, converted to lower case."""

    def to_python(self, value: str) -> str:
        return value.lower()


class TaskIdentifier(Identifier):
    """The id of a task, or its number, converted to an integer."""

    def to_python(self, value: str) -> Any:
        is_number = re.fullmatch(schemas.TaskReference.NUMBER, value)
        return int(value) if is_number else super().to_python(value)


class AnyText(PathConverter):
    """A text that may contain slashes, even as its first character."""

    regex = ".+"
    part_isolating = False


class Service(Flask):
    """The WSGI application: it serves the gateway's routes, then the paths of parts and the views.

    Flask keeps the views, the configuration, the commands and the templates. A request does not use Flask's
    request context, with its sessions, signals and hooks: that costs more than most requests' queries.
    """

    has_errands = False  # gunicorn.conf.py sets it where a sweeper runs
    rate_limit: limits.RateLimit | None = None  # requests per minute, by member
    link_limit = limits.RateLimit(20, 3600)  # sign-in links by mail, by client address

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        # What `register` of a part adds to, besides blueprints.
        self.answers: dict[str, tuple[str, Callable[[Request], Response]]] = {}  # by path: a name, a function
        self.starts: list[Callable] = []  # called with the configuration and its `Secrets`, at each (re)load
        self.workers: list[Callable] = []  # called with gunicorn's worker, in each one
        self.errands: list[Errand] = []  # of the sweeper
        self.chores: list[Callable[[], object]] = []  # of the sweeper, once an hour
        self.problems: list[Callable] = []  # for `doctor`: called with the configuration, yield what is wrong

    def wsgi_app(self, environ: dict, start_response: Any) -> Any:
        environ["tasks.request"] = current = thread.request = Request(self, environ, start_response)
        if route := gateway.find_route(environ["PATH_INFO"]):  # before the views, so that none answers there
            current.endpoint = "gateway"
            return gateway.answer(route, current)
        try:
            current.endpoint, answer = self.answers.get(current.path, (current.endpoint, self.respond))
            response = answer(current)
        except Exception as error:
            response = error_response(error)
        return response(environ, current.start)

    @cached_property
    def match(self) -> Any:
        """A cached function that returns the endpoint of a path and method, and the ids in the path."""
        if not self.has_errands:  # logged with the first request, as only then the server is known
            log.warning("Serve with gunicorn.conf.py: without it no claim ends, and no mail or retry is sent")
        return lru_cache(maxsize=4096)(self.url_map.bind("").match)

    def respond(self, current: Request) -> Any:
        """Authenticate the caller, before an error shows whether the path exists, then run the view."""
        view: Any = None
        ids: Mapping[str, str] = {}
        unknown: HTTPException | None = None
        try:
            current.environ["PATH_INFO"].encode("latin-1").decode()  # werkzeug would replace invalid UTF-8
            # Only short paths are cached: a caller without a key could fill the memory with any path.
            match = self.match if len(current.path) <= CACHED_PATH else self.match.__wrapped__
            endpoint, ids = match(current.path, current.method)
            view = self.view_functions[endpoint]
            current.endpoint = endpoint
        except (HTTPException, UnicodeDecodeError) as error:
            unknown = error if isinstance(error, HTTPException) else UnknownPath()
        if current.in_api:
            public = view is not None and view.declared.role is None
            # A wrong key is refused even where none is needed.
            if not public or "HTTP_AUTHORIZATION" in current.environ:
                current.authenticate()
            self.count(current)
        if unknown is not None:
            raise unknown
        return view(**ids)

    def count(self, current: Request) -> None:
        """Count the caller's request and add the RateLimit headers, if requests are limited.

        A member's keys count together, since a member can make any number of them. Raises `TooMany`.
        """
        if not self.rate_limit or not current.caller:
            return
        verdict = self.rate_limit.hit(current.caller["id"])
        current.every_header = [
            ("RateLimit-Policy", f'"member";q={self.rate_limit.most};w={self.rate_limit.seconds:.0f}'),
            ("RateLimit", f'"member";r={verdict.left};t={verdict.seconds}'),
        ]
        if not verdict.allowed:
            raise TooMany(verdict.seconds)


def error_response(error: Exception) -> Response:
    """Return the response for an error: a page, plain text, or the API's JSON."""
    shown, current = as_api_error(error), request()
    if current.path.startswith("/enroll/") and not isinstance(shown, PathError):
        return page("enroll.html", shown.status, shown.headers, refused=str(shown))
    if not current.in_api:
        return Response(f"{shown}\n".encode(), shown.status, shown.headers, "text/plain")
    return failure(shown)


# Context, health, enrollment ------------------------------------------------------------------


def page(template: str, status: int = 200, more: Mapping[str, str] | None = None, **values: Any) -> Response:
    """Return an HTML page, which may load only its own scripts and styles."""
    nonce = secrets.token_urlsafe(16)
    workspace, server = request().config["WORKSPACE"], request().config["SERVER"]
    values |= {"workspace_name": workspace["name"], "timezone": workspace["timezone"]}
    values |= {"base_url": server["base_url"], "sign_out": server["sign_out_url"], "root": root_path()}
    values |= {"static": f"{root_path()}/static/{static_version()}", "is_mailed": Invitation.is_mailed}
    with request().app.app_context():
        html = render_template(template, nonce=nonce, api=API, **values)
    styles = values.get("styles", f"'nonce-{nonce}'")
    policy = (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; connect-src 'self'; "
        f"img-src 'self' data: blob:; font-src 'self'; manifest-src 'self'; style-src 'self' {styles}; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
    return Response(html.encode(), status, {**headers, **(more or {})}, "text/html; charset=utf-8")


@api.get("/context")
@operation(gives=schemas.ContextShown)
def get_context() -> Row:
    """Summarise the workspace for an AI agent."""
    at = now()
    workspace = request().config["WORKSPACE"]
    return {
        "projects": Project.listing("active"),
        "members": Member.team(),
        "urgent_tasks": Task.urgent.json(now=at, most=10)[0],
        "recent_activity": Activity.recent.json(most=5, of_tasks=request().caller["role"] == "client")[0],
        "whiteboards": Whiteboard.latest.json(most=10)[0],
        "system": {
            "current_time": at,
            "ai_instructions": workspace["ai_instructions"],
            "workspace_name": workspace["name"],
            "caller": {name: request().caller[name] for name in (*PROFILE, "scope")},
        },
    }


@api.get("/health")
@operation(gives=schemas.HealthShown, role=None)
def get_health() -> Row:
    """Check whether the service can answer; callers with a key get details."""
    check_in_place()
    checks: Row = {"database": "ok", "writes_refused_since": db.refused_since}
    with db.viewed_by(request().viewer):
        waiting = {"pending": Delivery.pending.value(), "failing_endpoints": Webhook.failing.value()}
        checks |= {"webhooks": waiting, "mail": mail_state()}
    if request().caller is None:
        return {"status": "ok"}
    uptime = int(time.monotonic() - STARTED)
    return {"status": "ok", "version": VERSION, "uptime_seconds": uptime, "checks": checks}


def mail_state() -> Row:
    """Return whether mail is sent, and how many members the last mail did not reach within a day."""
    return {"is_sent": Invitation.is_mailed, "unreached": len(Member.unreached.all(since=now(-86400)))}


@pages.get("/metrics")
@operation(reads="nothing", role=None)
def get_metrics() -> Response:
    """Show an owner or admin the metrics of the service, in the format of Prometheus."""
    authorize(request().authenticate(), "admin", "read")
    return Response(exposition().encode(), content_type="text/plain; version=0.0.4; charset=utf-8")


@api.get("/enroll/<string:token>")
@operation(gives=schemas.InviteeShown, role=None, raises=(Gone,))
def get_enrollment(token: str) -> Row:
    """Show the member whom an enrollment link invites. This does not use the link."""
    invitation = Invitation.open(token)
    member = invitation["member"]
    return {
        "workspace_name": request().config["WORKSPACE"]["name"],
        **{name: member[name] for name in ("full_name", "role")},
        "email": invitation["new_email"] or member["email"],
        "expires_at": invitation["expires_at"],
    }


@api.post("/enroll/<string:token>")
@operation(gives=schemas.EnrolledShown, status=201, role=None, raises=(Gone,))
def enroll(transaction: Transaction, token: str) -> Row:
    """Use an enrollment or sign-in link. The response contains an API key, which is shown only here."""
    name = "enrollment" if accept_invitation(transaction, token) else "sign-in link"
    key, secret = ApiKey.issue(transaction, transaction.actor["id"], name=name)
    return {"member": Member.shown(key["member"]["id"]), "api_key": secret}


def accept_invitation(transaction: Transaction, token: str) -> bool:
    """Use the link: its member becomes the actor. Return whether the member joins by it."""
    joins = Invitation.accept(transaction, token)
    if joins:
        emit(transaction, "member.joined", {"member": transaction.actor})
    return joins


OF_A_LINK: Row = {"gives": "text/html", "reads": "nothing", "role": None}


@pages.get("/enroll/<string:token>")
@operation(**OF_A_LINK, raises=(Gone,))
def show_enrollment(token: str) -> Response:
    """Show the page of a link, with a button to join or to sign in."""
    # With no-referrer, browsers send the form's origin as null, as they may do for pages of other sites.
    referrer = {"Referrer-Policy": "same-origin"}
    invitation = Invitation.open(token)
    return page(
        "enroll.html", more=referrer, invitation=invitation, until=local_time(invitation["expires_at"])
    )


@pages.post("/enroll/<string:token>")
@operation(**OF_A_LINK, status=303, raises=(Forbidden, Gone), headers=("Location", "Set-Cookie"))
def join(transaction: Transaction, token: str) -> Response:
    """Use an enrollment or sign-in link: start a session, and redirect to the board."""
    if request().is_foreign_form():  # login CSRF: the victim would work as another member
        raise Forbidden("a page of another site has sent this form; open the link itself")
    accept_invitation(transaction, token)
    start_session_of(transaction)
    headers = request().success_headers | {"Location": f"{root_path()}/"}
    return Response(b"", 303, headers, "text/html; charset=utf-8")


@pages.get("/")
@operation(reads="nothing", role=None)
def show_board() -> Response:
    """Show the board in a browser, and the addresses of this service to other programs."""
    base_url = request().config["SERVER"]["base_url"]
    if dict(request().accept_mimetypes).get("text/html"):
        values: Row = {"modules": MODULES, "schemas": form_schemas(base_url), "now": now()}
        shown = sign_in_by_proxy() or page("board.html", more=request().success_headers, **values)
    else:
        name = request().config["WORKSPACE"]["name"]
        text = f"{name}\n\nThe page for people, in a browser: {base_url}/\nThe API: {base_url}{API}/docs\n"
        text += f"Health: {base_url}{API}/health\n"
        shown = Response(text.encode(), content_type="text/plain; charset=utf-8")
    shown.headers["Vary"] = "Accept"
    return shown


def send_file(folder: Path, name: str, **options: Any) -> Any:
    """Return the response with a page's file."""
    environ = request().environ
    try:
        return send_from_directory(folder, name, environ, **options)
    except OverflowError:  # from werkzeug, for an invalid date, which has to be ignored (RFC 9110, 13.1.3)
        environ |= {"HTTP_IF_MODIFIED_SINCE": "", "HTTP_IF_RANGE": "", "HTTP_RANGE": ""}
        return send_from_directory(folder, name, environ, **options)


@cache
def static_version() -> str:
    """Return a digest of the board's files, which is a part of their addresses."""
    contents = [file.name.encode() + file.read_bytes() for file in sorted(STATIC.iterdir())]
    return sha256(b"".join(contents)).hexdigest()[:16]


@cache
def packed(name: str) -> bytes:
    """Return a file of the board as gzip; compressed once."""
    return gzip.compress((STATIC / name).read_bytes(), mtime=0)


@pages.get("/static/<string:version>/<string:name>")
@operation(reads="nothing", role=None)
def show_static_file(version: str, name: str) -> Any:
    """Serve a file of the board, which browsers cache: after an upgrade its address is another."""
    if version != static_version():  # the page was loaded before an upgrade
        return send_file(STATIC, name)
    kept = {"Cache-Control": f"public, max-age={365 * 86400}, immutable", "Vary": "Accept-Encoding"}
    if name in PACKED and request().accept_encodings.quality("gzip"):
        return Response(packed(name), 200, kept | {"Content-Encoding": "gzip"}, PACKED[name])
    sent = send_file(STATIC, name)
    sent.headers.update(kept)
    return sent


@api.get("/openapi.json")
@operation(gives="application/json", role=None)
def get_openapi() -> Response:
    """Describe this API as an OpenAPI 3.1 document."""
    return Response(openapi_json(request().config["SERVER"]["base_url"]))


@cache
def openapi_json(base_url: str) -> bytes:
    """Return the OpenAPI document as JSON; made once."""
    app = request().app
    routed = [(rule, app.view_functions[rule.endpoint]) for rule in app.url_map.iter_rules()]
    endpoints = [Endpoint.of(rule, view) for rule, view in routed if view.declared.gives is not None]
    return to_json(document(base_url, endpoints))


@cache
def form_schemas(base_url: str) -> Row:
    """Return the schemas of JSON bodies by operation, from which the page makes its forms."""
    return body_schemas(orjson.loads(openapi_json(base_url)))


@api.get("/docs")
@operation(gives="text/html", role=None)
def get_docs() -> Response:
    """Show this document as a page on which you can try requests."""
    return page("docs.html", styles="'unsafe-inline'")


@api.get("/docs/<string:name>")
@operation(role=None)
def get_docs_file(name: str) -> Any:
    """Serve a file of the documentation's page."""
    if name not in ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"):
        raise NotFound("file")
    return send_file(SWAGGER_UI, name, max_age=86400)


# Sessions -------------------------------------------------------------------------------------


# Signs in a browser's User-Agent, and the names that people know; the first sign found counts.
BROWSERS = {"Edg": "Edge", "OPR": "Opera", "SamsungBrowser": "Samsung Internet", "Firefox": "Firefox"}
BROWSERS |= {"FxiOS": "Firefox", "CriOS": "Chrome", "Chrome": "Chrome", "Safari": "Safari"}
SYSTEMS = {"iPhone": "iPhone", "iPad": "iPad", "Android": "Android", "CrOS": "ChromeOS"}
SYSTEMS |= {"Windows": "Windows", "Mac OS X": "macOS", "Linux": "Linux"}


@api.post("/session")
@operation(schemas.SessionInput(), schemas.SessionShown, status=201, role=None, headers=("Set-Cookie",))
def start_session(transaction: Transaction, api_key: str) -> Row:
    """Sign in a browser with an API key. The session gets its own key for 30 days, in a cookie."""
    transaction.actor = request().identify(api_key)
    request().app.count(request())
    return start_session_of(transaction)


def start_session_of(transaction: Transaction) -> Row:
    """Start a session for the actor. Its key is in the cookie and nowhere else."""
    key, secret = ApiKey.start_session(transaction, browser_name(request().user_agent.string))
    set_session_cookie(secret, key["expires_at"])
    return {"member": Member.shown(key["member"]["id"]), "key": key}


def sign_in_by_proxy() -> Response | None:
    """Start or renew the session of the proxy's user; return a page to show instead of the board, if any."""
    current, email = request(), request().proxy_user
    if not email or current.method == "HEAD":
        return None
    with suppress(ValidationError):
        email = schemas.Email().deserialize(email)
    member = Member.by_email.one(email=email) or {}
    if member.get("status") != Member.ACTIVE:
        return page("enroll.html", 403, stranger=email, owners=Member.active_owners.all())
    key = current.cookies.get(session_cookie(current.config["SERVER"]["base_url"]), "")
    session = ApiKey.caller(key, "session") or {}
    is_theirs = session.get("id") == member["id"]
    if is_theirs and session["key_signed_in_at"] > now(-FRESH_SECONDS / 2):
        return None
    if current.headers.get("Sec-Fetch-Site") == "cross-site":  # browsers do not send the cookie then
        return page("again.html")
    with write(request_id=current.request_id) as transaction:  # no other GET writes
        transaction.actor = current.caller = Member.active(member["id"])
        if is_theirs:
            ApiKey.set_columns(session["key_id"], signed_in_at=transaction.at)
        else:
            start_session_of(transaction)
    return None


def browser_name(agent: str) -> str:
    """Return a short name for a browser, such as "Firefox on Linux"."""
    browser = next((name for sign, name in BROWSERS.items() if f"{sign}/" in agent), "Browser")
    system = next((name for sign, name in SYSTEMS.items() if sign in agent), None)
    return f"{browser} on {system}" if system else browser


@api.post("/session/link")
@operation(schemas.MAIL_LINK, schemas.ASKED, status=202, role=None, raises=(Conflict, TooMany))
def mail_sign_in_link(transaction: Transaction, email: str) -> Row:
    """Email a sign-in link that works once within 15 minutes. The response is the same for any address."""
    if not Invitation.is_mailed:
        raise Conflict("this server sends no mail; ask an owner or admin for a link")
    if not (verdict := request().app.link_limit.hit(request().client_address)).allowed:
        raise TooMany(verdict.seconds)
    Invitation.asked.add(email)
    return {"email": email}


@api.delete("/session")
@operation(schemas.REVOKE, schemas.RevokedShown, raises=(Conflict,), headers=("Set-Cookie",), scope="read")
def end_session(transaction: Transaction, made: str = "false") -> Row:
    """Sign out: end the cookie's session; made=true also revokes what was made in it. A key gets a 409."""
    if "HTTP_AUTHORIZATION" in request().environ:
        raise Conflict("the key in the Authorization header is not a session; revoke it by DELETE /keys/:id")
    id = transaction.actor["key_id"]
    ApiKey.end(transaction, id, made == "true")
    set_session_cookie("", transaction.at)
    return {"id": id, "revoked": True}


# Members --------------------------------------------------------------------------------------


@api.get("/me")
@operation(gives=schemas.MeShown)
def get_me() -> Row:
    """Show the caller and the key in use."""
    caller = request().caller
    return {"member": Member.shown(caller["id"]), "key": ApiKey.shown(caller["key_id"])}


@api.get("/members")
@operation(gives=schemas.MEMBERS)
def list_members() -> Row:
    """List the team, the clients and the invited members."""
    return {"members": Member.everyone()}


@api.post("/members/invite")
@operation(
    schemas.INVITE_MEMBER,
    schemas.InvitationShown,
    status=201,
    role="admin",
    raises=(Conflict,),
    also={200: "The member had been invited before. The old link no longer works."},
)
def invite_member(transaction: Transaction, **fields: Any) -> Row:
    """Invite someone by e-mail address. The response contains the link to pass on."""
    member, token, expires_at, new = Invitation.invite(transaction, invitation_days(), **fields)
    if not new:
        request().success_status = 200
    announce(transaction, Task.take_unseen(transaction, member))
    emit(transaction, "member.invited", {"member": member})
    return with_link(member, token, expires_at)


def invitation_days() -> float:
    return request().config["WORKSPACE"]["invitation_days"]


def with_link(member: Row, token: str, expires_at: str) -> Row:
    link = Invitation.link(request().config, token)
    return {"member": member, "enrollment_link": link, "expires_at": expires_at}


@api.get("/members/<id>")
@operation(gives=schemas.MemberShown)
def get_member(id: str) -> Row:
    """Show a member."""
    return Member.shown(id)


@api.patch("/members/<id>")
@operation(schemas.MemberInput(partial=True), schemas.ChangedMemberShown, raises=(Conflict,))
def update_member(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change yourself, or as owner or admin anyone. A mailed link confirms a new address of your own."""
    earlier = Member.stored(id)
    with Notice.handing_on(transaction, id):
        member = Member.edit(transaction, id, fields)
    announce(transaction, Task.take_unseen(transaction, member))
    if member["email"] == earlier["email"] or member["status"] == Member.ACTIVE:
        return member
    # Changing the address has ended the old link.
    renewed = with_link(*Invitation.renew(transaction, id, invitation_days()))
    return renewed.pop("member") | renewed


@api.delete("/members/<id>")
@operation(gives=schemas.DeletedShown, role="admin", raises=(Conflict,))
def delete_member(transaction: Transaction, id: str) -> None:
    """Remove a member: revoke their keys and unassign their tasks. Their comments stay."""
    announce(transaction, remove_member(transaction, id))


@api.post("/members/<id>/invitation")
@operation(gives=schemas.InvitationShown, status=201)
def renew_invitation(transaction: Transaction, id: str) -> Row:
    """Make a new enrollment link, or a sign-in link if the member has joined. It replaces the old link."""
    return with_link(*Invitation.renew(transaction, id, invitation_days()))


@api.delete("/members/<id>/invitation")
@operation(gives=schemas.RevokedShown)
def revoke_invitation(transaction: Transaction, id: str) -> None:
    """Revoke your open link, or as owner or admin anyone's."""
    Invitation.revoke(transaction, id)


@api.get("/keys")
@operation(gives=schemas.KEYS)
def list_keys() -> Row:
    """List your API keys and sessions, or as owner or admin everyone's, without their secrets."""
    return {"keys": ApiKey.visible(request().caller)}


@api.post("/keys")
@operation(schemas.CREATE_KEY, schemas.NewKeyShown, status=201)
def create_key(transaction: Transaction, **fields: Any) -> Row:
    """Make an API key, which is shown only here. It cannot expire later than the key that makes it."""
    key, secret = ApiKey.grant(transaction, **fields)
    return {"key": key, "api_key": secret}


@api.delete("/keys/<id>")
@operation(schemas.REVOKE, schemas.RevokedShown)
def revoke_key(transaction: Transaction, id: str, made: str = "false") -> None:
    """Revoke your key, or as owner or admin anyone's; with made=true also what was made with it."""
    ApiKey.revoke(transaction, id, made == "true")


# Projects and milestones ----------------------------------------------------------------------


OF_A_NEW_ROW: Row = {"status": 201, "role": "member", "headers": ("Location",)}


@api.get("/projects")
@operation(schemas.LIST_PROJECTS, schemas.PROJECTS)
def list_projects(status: str | None = None) -> Row:
    """List the projects by name, with their statistics."""
    return {"projects": Project.listing(status)}


@api.post("/projects")
@operation(schemas.CREATE_PROJECT, schemas.ProjectShown, **OF_A_NEW_ROW)
def create_project(transaction: Transaction, **fields: Any) -> Row:
    """Create a project."""
    return Project.add(transaction, **fields)


@api.get("/projects/<id>")
@operation(gives=schemas.ProjectShown)
def get_project(id: str) -> Row:
    """Show a project."""
    return Project.shown(id)


@api.patch("/projects/<id>")
@operation(schemas.ProjectUpdate(partial=True), schemas.ProjectShown, role="member")
def update_project(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a project. Fields that are not sent stay as they are."""
    return Project.edit(transaction, id, fields)


@api.delete("/projects/<id>")
@operation(schemas.DELETE_PROJECT, schemas.DeletedShown, role="member", raises=(Conflict,))
def delete_project(transaction: Transaction, id: str, force: str = "false") -> None:
    """Delete a project without tasks, or with force=true with its tasks (20 000 take about 3 s)."""
    for task in Project.remove_with_tasks(transaction, id, force=force == "true"):
        emit(transaction, "task.deleted", {"task": task})


@api.get("/projects/<id>/milestones")
@operation(gives=schemas.MILESTONES)
def list_milestones(id: str) -> Row:
    """List the milestones of a project by date."""
    return {"milestones": Milestone.of(id)}


@api.post("/projects/<id>/milestones")
@operation(schemas.CREATE_MILESTONE, schemas.MilestoneShown, **OF_A_NEW_ROW, collection="/milestones")
def create_milestone(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Create a milestone of a project."""
    Project.stored(id)
    return Milestone.add(transaction, project_id=id, **fields)


@api.get("/milestones/<id>")
@operation(gives=schemas.MilestoneShown)
def get_milestone(id: str) -> Row:
    """Show a milestone."""
    return Milestone.shown(id)


@api.patch("/milestones/<id>")
@operation(schemas.MilestoneInput(partial=True), schemas.MilestoneShown, role="member")
def update_milestone(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a milestone. Fields that are not sent stay as they are."""
    return Milestone.edit(transaction, id, fields)


@api.delete("/milestones/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_milestone(transaction: Transaction, id: str) -> None:
    """Delete a milestone. Its tasks stay (20 000 take about 3 s)."""
    announce(transaction, Milestone.remove_from_tasks(transaction, id))


# Meetings, calendars and whiteboards ----------------------------------------------------------


@api.get("/meetings")
@operation(gives=schemas.MEETINGS)
def list_meetings() -> Row:
    """List your meetings: upcoming ones, the next first, then past ones, the newest first."""
    return {"meetings": Meeting.of(request().caller["id"])}


@api.post("/meetings")
@operation(schemas.MeetingInput(), schemas.MeetingShown, **OF_A_NEW_ROW)
def create_meeting(transaction: Transaction, **fields: Any) -> Row:
    """Create a meeting. You are its organizer."""
    return Meeting.add(transaction, **fields)


@api.get("/meetings/<id>")
@operation(gives=schemas.MeetingShown)
def get_meeting(id: str) -> Row:
    """Show a meeting."""
    return Meeting.shown(id)


@api.patch("/meetings/<id>")
@operation(schemas.MeetingInput(partial=True), schemas.MeetingShown, role="member")
def update_meeting(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a meeting, as its organizer, owner or admin. Fields that are not sent stay as they are."""
    return Meeting.edit(transaction, id, fields)


@api.delete("/meetings/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_meeting(transaction: Transaction, id: str) -> None:
    """Delete a meeting, as its organizer, owner or admin."""
    Meeting.remove(transaction, id)


@api.post("/calendar")
@operation(gives=schemas.CalendarShown, status=201)
def link_calendar(transaction: Transaction) -> Row:
    """Make the link of your calendar, which is shown only here. It replaces the old link."""
    key, base_url = ApiKey.link_calendar(transaction), request().config["SERVER"]["base_url"]
    return {"url": f"{base_url}/calendar/{key}.ics"}


@api.delete("/calendar")
@operation(gives=schemas.CalendarRevokedShown)
def unlink_calendar(transaction: Transaction) -> Row:
    """Revoke the link of your calendar, if there is one."""
    return {"revoked": ApiKey.revoke_calendar.run(member_id=transaction.actor["id"], now=transaction.at) > 0}


@pages.get("/calendar/<string:key>.ics")
@operation(reads="nothing", role=None)
def show_calendar(key: str) -> Any:
    """Show calendar programs the due tasks and the meetings of the link's member."""
    current = request()
    current.caller = ApiKey.caller(key, CALENDAR) or not_found("calendar")
    current.app.count(current)
    with db.limit(limits.QUERY_SECONDS), db.viewed_by(current.viewer):
        data = calendar(current.caller["id"], current.config)
    answer = werkzeug.Response(data, 200, {"Cache-Control": "private, no-cache"}, content_type=CALENDAR_TYPE)
    answer.add_etag()
    return answer.make_conditional(current.environ)


@api.get("/whiteboards")
@operation(gives=schemas.WHITEBOARDS)
def list_whiteboards() -> Row:
    """List all whiteboards without their content, the latest updated first."""
    return {"whiteboards": Whiteboard.latest.all(most=-1)}


@api.post("/whiteboards")
@operation(schemas.WhiteboardInput(), schemas.WhiteboardShown, **OF_A_NEW_ROW)
def create_whiteboard(transaction: Transaction, **fields: Any) -> Row:
    """Create a whiteboard."""
    return Whiteboard.add(transaction, **fields)


@api.get("/whiteboards/<id>")
@operation(gives=schemas.WhiteboardShown)
def get_whiteboard(id: str) -> Row:
    """Show a whiteboard."""
    return Whiteboard.shown(id)


@api.patch("/whiteboards/<id>")
@operation(schemas.WhiteboardInput(partial=True), schemas.WhiteboardShown, role="member")
def update_whiteboard(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a whiteboard. Fields that are not sent stay as they are."""
    return Whiteboard.edit(transaction, id, fields)


@api.delete("/whiteboards/<id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_whiteboard(transaction: Transaction, id: str) -> None:
    """Delete a whiteboard."""
    Whiteboard.remove(transaction, id)


# Tasks ----------------------------------------------------------------------------------------


# Common declarations of operations: on tasks that agents may work on, and with versions.
OF_WORK: Row = {"role": "member", "scope": "agent"}
OF_VERSIONS: Row = {"raises": (PreconditionFailed,), "preconditions": ("If-Match",)}
OF_A_CHANGE: Row = OF_WORK | OF_VERSIONS | {"headers": ("ETag",)}
OF_A_NEW_TASK: Row = OF_WORK | {"status": 201, "headers": ("ETag", "Location"), "collection": "/tasks"}
OF_A_PUT: Row = OF_A_CHANGE | {"preconditions": ("If-Match", "If-None-Match")}


@api.get("/tasks")
@operation(schemas.LIST_TASKS, schemas.TASKS, raises=(Gone,))
def list_tasks(wait: int, **filters: Any) -> Row:
    """List tasks, newest first by default. The filters combine; `wait` waits until there is one."""
    for name in ("assignee_id", "created_by"):
        if filters.get(name) == "me":
            filters[name] = request().caller["id"]
    if filters.get("assignee_id") == "none":
        filters["unassigned"] = filters.pop("assignee_id")
    if filters.get("status") == "open":
        filters["open"] = filters.pop("status")

    def read() -> Row:
        counted, since = request().environ.get("tasks.counted"), request().caller["projects_since"]
        return task_page(**filters, counted=counted, since=since)

    if "q" in filters:
        read = partial(search, read)
    return awaited(wait, read, lambda page: page["pagination"]["total"])


@api.get("/labels")
@operation(gives=schemas.LABELS)
def list_labels() -> Row:
    """List the labels that tasks have, each with its number of tasks."""
    return {"labels": Task.label_counts()}


@api.post("/tasks")
@operation(schemas.CREATE_TASK, schemas.TaskShown, **OF_A_NEW_TASK)
def create_task(transaction: Transaction, **fields: Any) -> Row:
    """Create a task."""
    return Task.add(transaction, **fields)


@api.post("/tasks/batch")
@operation(schemas.TaskBatch(), schemas.CREATED_TASKS, status=201, **OF_WORK)
def create_tasks(transaction: Transaction, tasks: list[Row]) -> Row:
    """Create up to 100 tasks, all or none."""
    return {"tasks": Task.add_all(transaction, tasks)}


@api.patch("/tasks/batch")
@operation(schemas.TaskChanges(), schemas.CHANGED_TASKS, **OF_WORK, raises=(PreconditionFailed,))
def update_tasks(transaction: Transaction, **fields: Any) -> Row:
    """Change up to 100 tasks alike, all or none."""
    changed = Task.edit_all(transaction, **fields)
    announce(transaction, changed)
    return {"tasks": [task for task, _ in changed]}


@api.put("/tasks/by-external-id/<path:external_id>", strict_slashes=True)
@operation(schemas.PUT_TASK, schemas.TaskShown, also={201: "It is new."}, **OF_A_PUT)
def put_task(transaction: Transaction, external_id: str, **fields: Any) -> Row:
    """Create or change the task with this id in another program. Fields not sent stay as they are."""
    named = schemas.EXTERNAL_ID.load({"external_id": external_id})
    task, changes = Task.put(transaction, **named, versions=expected_versions(), **fields)
    if changes is None:
        request().success_status = 201
        return task
    if request().if_none_match:  # the caller wants to create a task only
        raise PreconditionFailed("a task with this external_id already exists")
    return announce_edit(transaction, task, changes)


@api.get("/tasks/<task:id>")
@operation(gives=schemas.TaskDetailShown, headers=("ETag",))
def get_task(id: str) -> Row:
    """Show a task with its project, milestone, profiles and attachments."""
    return Task.shown(id)


@api.put("/tasks/<task:id>", endpoint="update_task_by_put")
@api.patch("/tasks/<task:id>")
@operation(schemas.UPDATE_TASK, schemas.TaskShown, **OF_A_CHANGE)
def update_task(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change a task's title, status, assignee or metadata. Fields that are not sent stay as they are."""
    return announce_edit(transaction, *Task.edit(transaction, id, fields, expected_versions()))


@api.patch("/tasks/<task:id>/details")
@operation(schemas.UPDATE_TASK_DETAILS, schemas.TaskShown, **OF_A_CHANGE)
def update_task_details(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Change any fields of a task, or its place in the order, as one change; null clears a field."""
    return announce_edit(transaction, *Task.edit(transaction, id, fields, expected_versions()))


@api.post("/tasks/<task:id>/copy")
@operation(schemas.COPY_TASK, schemas.TaskShown, **OF_A_NEW_TASK)
def copy_task(transaction: Transaction, id: str, **titled: Any) -> Row:
    """Create a task with the plan of this one, under another title if one is sent."""
    return Task.copy(transaction, id, **titled)


@api.post("/tasks/<task:id>/skip")
@operation(gives=schemas.TaskShown, **OF_A_CHANGE)
def skip_task(transaction: Transaction, id: str) -> Row:
    """Move a task that repeats to the next date of its rule, without completing it."""
    task = Task.stored(id)
    dates = task["repeat"] and next_dates(task, transaction.at)
    if not dates:
        raise Invalid(("repeat", "has no later date" if task["repeat"] else "is null: it does not repeat"))
    return announce_edit(transaction, *Task.edit(transaction, id, dates, expected_versions()))


def announce_edit(transaction: Transaction, task: Row, changes: Row) -> Row:
    """Store the events of a task's change, if it changed, and return the task."""
    announce(transaction, [(task, changes)])
    return task


@api.post("/tasks/<task:id>/claim")
@operation(
    schemas.ClaimInput(), schemas.TaskShown, **OF_A_CHANGE | {"raises": (Conflict, PreconditionFailed)}
)
def claim_task(transaction: Transaction, id: str, minutes: int | None = None) -> Row:
    """Claim an unassigned task in `todo`: it becomes yours and in progress, with `minutes` for that time."""
    return announce_edit(transaction, *Task.claim(transaction, id, expected_versions(), minutes))


@api.put("/tasks/<task:id>/complete", endpoint="complete_task_by_put")
@api.post("/tasks/<task:id>/complete")
@api.patch("/tasks/<task:id>/complete", endpoint="complete_task_by_patch")
@operation(gives=schemas.TaskShown, **OF_A_CHANGE)
def complete_task(transaction: Transaction, id: str) -> Row:
    """Set a task's status to done and notify the team."""
    task, changes = Task.edit(transaction, id, {"status": "done"}, expected_versions())
    if changes:
        emit(transaction, "task.completed", {"task": task, "changes": changes})
    return task


@api.delete("/tasks/<task:id>")
@operation(gives=schemas.DeletedShown, role="member", **OF_VERSIONS)
def delete_task(transaction: Transaction, id: str) -> None:
    """Delete a task with its comments and attachments, permanently."""
    Task.remove(transaction, id, expected_versions())


@api.get("/tasks/<task:id>/comments")
@operation(schemas.LIST_COMMENTS, schemas.COMMENTS)
def list_comments(id: str, **page: Any) -> Row:
    """List a task's latest comments, oldest first: up to 500 or 4 MiB. `before` lists earlier ones."""
    return Comment.page(id, **page)


@api.post("/tasks/<task:id>/comments")
@operation(schemas.CommentInput(), schemas.CommentShown, status=201, scope="agent", raises=(Conflict,))
def add_comment(transaction: Transaction, id: str, **fields: Any) -> Row:
    """Comment on a task. With `question` the task waits until someone else comments."""
    comment, task, changes = Comment.add(transaction, id, **fields)
    emit(transaction, "comment.added", {"comment": comment, "task": task})
    announce(transaction, [(task, changes)])
    return comment


@api.patch("/tasks/<task:id>/comments/<comment_id>")
@operation(schemas.CommentInput(only=["content"], partial=True), schemas.CommentShown, scope="agent")
def update_comment(transaction: Transaction, id: str, comment_id: str, **fields: Any) -> Row:
    """Change a comment of your own."""
    return Comment.edit(transaction, id, comment_id, fields)


@api.delete("/tasks/<task:id>/comments/<comment_id>")
@operation(gives=schemas.DeletedShown)
def delete_comment(transaction: Transaction, id: str, comment_id: str) -> None:
    """Delete a comment of your own, or as owner or admin anyone's."""
    announce(transaction, [Comment.remove(transaction, id, comment_id)])


@api.get("/tasks/<task:id>/activity")
@operation(schemas.ActivityQuery(exclude=["task"]), schemas.HISTORY)
def list_task_activity(id: str, **filters: Any) -> Row:
    """Show the history of a task and its comments, newest first."""
    Task.stored(id)
    return history_page(task_id=id, **filters)


@api.get("/tasks/<task:id>/attachments")
@operation(gives=schemas.ATTACHMENTS)
def list_attachments(id: str) -> Row:
    """List the attachments of a task, oldest first."""
    return {"attachments": Attachment.of(id)}


@api.post("/tasks/<task:id>/attachments")
@operation(schemas.UPLOAD, schemas.AttachmentShown, reads="file", **OF_A_NEW_ROW, scope="agent")
def add_attachment(transaction: Transaction, id: str, file: Row) -> Row:
    """Attach a file to a task, sent as the part `file` of a form."""
    return Attachment.add(transaction, id, **file)


@api.get("/tasks/<task:id>/attachments/<attachment_id>")
@operation(gives="application/octet-stream")
def download_attachment(id: str, attachment_id: str) -> Response:
    """Download an attachment, which browsers always save as a file."""
    row, data = Attachment.content(id, attachment_id)
    name = row["filename"]
    plain = re.sub(r'[^ -~]|["\\\\%]', "_", name)
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
    return Response(data, 200, {"Content-Disposition": disposition}, "application/octet-stream")


@api.delete("/tasks/<task:id>/attachments/<attachment_id>")
@operation(gives=schemas.DeletedShown, role="member")
def delete_attachment(transaction: Transaction, id: str, attachment_id: str) -> None:
    """Delete an attachment."""
    Attachment.remove(transaction, id, attachment_id)


# History --------------------------------------------------------------------------------------


@api.get("/activity")
@operation(schemas.ActivityQuery(), schemas.HISTORY)
def list_activity(**filters: Any) -> Row:
    """Show the workspace's history, newest first. Clients see only tasks and comments."""
    if request().caller["role"] == "client":
        filters["of_tasks"] = True
    read = partial(history_page, **filters)
    may_read_all = filters.keys() & {"actor_id", "key", "action", "entity"} and "task_id" not in filters
    return search(read) if may_read_all else read()


@api.get("/changes")
@operation(schemas.LIST_CHANGES, schemas.CHANGED, raises=(Gone,))
def list_changes(wait: int, include: str = "", **query: Any) -> Row:
    """List the changes after a cursor or since a time, or all objects. `wait` waits for a change."""

    def read() -> Row:
        caller = request().caller
        return change_page(**query, of_tasks=caller["role"] == "client", seen_since=caller["projects_since"])

    # Only commits make changes, so nothing is read in between.
    page = awaited(wait, read, lambda page: page["changes"] or page["pagination"]["has_more"], every=wait)
    return page | ({"inbox": Notice.page(request().caller["id"], limit=1)} if include else {})


@api.get("/inbox")
@operation(schemas.LIST_INBOX, schemas.INBOX)
def list_inbox(wait: int, **page: Any) -> Row:
    """List your notifications, newest first, and how many are unread. `wait` waits for an unread one."""
    read = partial(Notice.page, request().caller["id"], **page)
    return awaited(wait, read, lambda inbox: inbox["unread"])


@api.post("/inbox/read")
@operation(schemas.InboxReadInput(), schemas.INBOX_READ, scope="agent")
def read_inbox(transaction: Transaction, **which: str) -> Row:
    """Mark your notifications as read: up to one of them, or all of one task."""
    reading = Notice.mark_read_of_task if "task_id" in which else Notice.mark_read
    return {"read": reading.run(**which, member_id=transaction.actor["id"], now=transaction.at)}


@api.post("/inbox/snooze")
@operation(schemas.SnoozeInput(), schemas.SNOOZED, scope="agent")
def snooze_inbox(transaction: Transaction, task_id: str, until: str | None) -> Row:
    """Put a task off until a time, in your inbox and in `/today`. Null brings it back."""
    return Notice.snooze(transaction, task_id, until)


@api.get("/today")
@operation(gives=schemas.TODAY_SHOWN)
def get_today() -> Row:
    """Show what waits for you, today's meetings, and the tasks that agents are working on."""
    day = local(now()).date().isoformat()
    return today(request().caller["id"], schemas.Instant(ends_day=True).deserialize(day))


# Webhooks -------------------------------------------------------------------------------------


@api.get("/webhooks")
@operation(gives=schemas.WEBHOOKS, role="admin")
def list_webhooks() -> Row:
    """List the configured webhooks with their state, without secrets, and the state of mail."""
    return {"webhooks": Webhook.listing(), "mail": mail_state()}


@api.post("/webhooks/<id>/test")
@operation(gives=schemas.DeliveryDetailShown, role="admin", raises=(Conflict,), after_delivery=Delivery.shown)
def test_webhook(transaction: Transaction, id: str) -> str:
    """Send a ping to a webhook, and show the result."""
    return ping(transaction, id)


@api.post("/webhooks/<id>/enable")
@operation(gives=schemas.WebhookShown, role="admin", raises=(Conflict,), after_delivery=resume)
def enable_webhook(transaction: Transaction, id: str) -> Row:
    """Enable a disabled webhook. The deliveries that wait are sent first."""
    return enable(transaction, id)


@api.get("/deliveries")
@operation(schemas.DeliveryQuery(), schemas.DELIVERIES, role="admin")
def list_deliveries(**filters: Any) -> Row:
    """List the deliveries, newest first. The filters combine."""
    return Delivery.page(**filters)


@api.get("/deliveries/<id>")
@operation(gives=schemas.DeliveryDetailShown, role="admin")
def get_delivery(id: str) -> Row:
    """Show a delivery with its event."""
    return Delivery.shown(id)


@api.post("/deliveries/<id>/redeliver")
@operation(gives=schemas.DeliveryDetailShown, role="admin", raises=(Conflict,), after_delivery=Delivery.shown)
def redeliver_delivery(transaction: Transaction, id: str) -> str:
    """Send a delivery again, with the same id and body, and show the result."""
    redeliver(transaction, id)
    return id


@api.get("/events")
@operation(schemas.LIST_EVENTS, schemas.LISTED_EVENTS, role="admin")
def list_events(wait: int, **query: Any) -> Row:
    """List the events in order: all that are kept, or those `after` one or `since` a time; `wait` for one."""
    return awaited(wait, partial(Event.page, **query), lambda page: page["events"], role="admin")
