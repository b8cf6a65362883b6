"""The application: its factory, what every request goes through, and a view for each operation.

`Service` finds the view of a request, and `operation` runs it; `error_response` answers what either raises.
A view declares its request, response, callers and errors, and returns a row or a page of rows. This module
contains no SQL.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from flask import Blueprint, Flask
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import NotFound as UnknownPath
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import PathConverter, Rule, UnicodeConverter

import commands
import gateway
import limits
import schemas
from database import LOCK_SECONDS, SEARCH_STEPS, Row, check_in_place, db
from errors import ApiError, Conflict, Gone, PreconditionFailed, TooMany
from lists import COUNT_LIMIT, task_page
from members import PROFILE, Activity, ApiKey, Invitation, Member, Transaction
from metrics import metrics
from models import Comment, Meeting, Project, Task, Whiteboard
from outbox import Delivery, Webhook
from settings import VERSION, SettingsError, config_file, load_settings, read_settings
from sweeper import Errand
from times import now
from webhooks import announce, bodies, emit
from wire import (
    PathError,
    Request,
    Response,
    as_api_error,
    awaited,
    expected_versions,
    failure,
    operation,
    request,
    search,
    thread_local,
)

log = logging.getLogger("tasks")
STARTED = time.monotonic()
# The parts, in the order of import: modules of parts/ that add to the core. A part may import only the parts
# above it; "needs" names them. To leave a part out, delete its file and its line, and the parts that need it.
PARTS: tuple[str, ...] = (
    "sessions",  # of browsers: the cookie, signing in and out
    "openapi",  # the document of the API; needs sessions
    "page",  # the page for people, and the pages of links and of the document; needs sessions and openapi
    "resources",  # milestones, meetings and whiteboards: make and change them
    "attachments",  # the files of tasks
    "labels",  # the labels of all tasks
    "batches",  # many tasks at once, tasks of other programs, copies
    "order",  # the order of tasks by hand
    "blockers",  # tasks that block others
    "repeats",  # tasks that follow completed ones by a rule
    "agents",  # claims and questions
    "inbox",  # notifications and Today
    "brakes",  # on agents: three tries, and the stop of all
    "feeds",  # the history, changes and events; needs inbox
    "deleted",  # what was deleted: list, restore, delete it for good; needs blockers and order
    "undo",  # undo what a key or a member did; needs resources, attachments, blockers, deleted and feeds
    "calendar",  # for calendar programs
    "tools",  # the Model Context Protocol; needs sessions
    "oauth",  # keys for programs that know only the address of the tools; needs tools and page
    "deliveries",  # webhooks: show, test, enable, send again
    "chats",  # webhooks to Slack and Discord
    "listen",  # a command: events, posted to a program here
    "mail",  # sign-in links and digests; needs inbox
    "administration",  # commands: keys, members and projects
    "backups",  # commands: copy and restore the database
    "prometheus",  # the metrics; needs backups
    "doctor",  # a command: what is wrong; needs backups
    "files",  # commands: import and export; needs resources, attachments, blockers and repeats
    "demo",  # a command: a believable workspace; needs resources, attachments and inbox
    "throwaway",  # a command: a server for the tests of other programs; needs demo
)

# The settings that nothing but a part reads, and the part.
READ_BY = {
    "server.sign_in_header": "sessions",
    "server.sign_out_url": "page",
    "mail.url": "mail",
    "workspace.due_notice_hours": "inbox",
    "limits.tool_calls_per_minute": "tools",
    "oauth.enabled": "oauth",
}

# The routes of the core and of its parts: of the API, and of everything else.
api = Blueprint("api", __name__, url_prefix=schemas.API)
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
    if most := settings["limits"]["requests_per_minute"]:
        app.rate_limit = limits.RateLimit(most, 60)
    for part in parts():  # which adds its routes to `api` and `pages`
        if hasattr(part, "register"):
            part.register(app)
    app.register_blueprint(api)
    app.register_blueprint(pages)
    defaults = load_settings({})
    for section, name, part in ((*setting.split("."), part) for setting, part in READ_BY.items()):
        if part not in PARTS and settings[section][name] != defaults[section][name]:
            log.warning("%s.%s does nothing without the part %s (see PARTS in app.py)", section, name, part)
    if unsent := {webhook["format"] for webhook in settings["webhooks"]} - {"json", *bodies}:
        sys.exit(f"Error: webhooks.format: no part sends {', '.join(sorted(unsent))} (see PARTS in app.py)")
    for command in commands.cli.commands.values():
        app.cli.add_command(command)
    metrics.name_routes(route_labels(app))
    if problems := [*unused_hooks(app), *undeclared_views(app)]:
        sys.exit(f"Error: {'; '.join(problems)} (docs/internals.md: The life of a request)")
    if proxies := settings["server"]["trusted_proxies"]:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=proxies, x_proto=0)  # type: ignore[method-assign]
    return app


def parts() -> list[Any]:
    """Import the parts, which add their routes here and their commands to commands.py."""
    return [import_module(f"parts.{name}") for name in PARTS]


def unused_hooks(app: Flask) -> Iterator[str]:
    """Yield a message for each hook and error handler that needs Flask's request context."""
    for kind in ("before_request", "after_request", "teardown_request"):
        for hook in chain(*getattr(app, f"{kind}_funcs").values()):
            yield f"{kind} never calls {hook.__name__}"
    for handlers in chain(*(by_status.values() for by_status in app.error_handler_spec.values())):
        for handler in handlers.values():
            yield f"errorhandler never calls {handler.__name__}"


def undeclared_views(app: "Service") -> Iterator[str]:
    """Yield a message for each view that cannot answer, and each problem that a part has found."""
    for rule in app.url_map.iter_rules():
        view: Any = app.view_functions[rule.endpoint]
        if not hasattr(view, "declared"):
            yield f"{rule.endpoint} has no @operation"
        else:
            yield from chain(*(refuse(rule, view) for refuse in app.refusals))


def route_labels(app: "Service") -> dict[str, dict[str, str]]:
    """Return the labels of each endpoint's metrics: its method and its path."""
    names = ["gateway", *(name for name, _ in app.handlers.values())]
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


class MatchingRule(Rule):
    """A route that is only matched: werkzeug would compile two functions for each that build an address."""

    def _compile_builder(self, append_unknown: bool = True) -> Any:
        return lambda *_: None


class Service(Flask):
    """The WSGI application: it serves the gateway's routes, then the paths of parts and the views.

    Flask keeps the views, the configuration, the commands and the templates. A request does not use Flask's
    request context, with its sessions, signals and hooks: that costs more than most requests' queries.
    """

    url_rule_class = MatchingRule  # half of a start's time
    is_served_by_gunicorn = False  # server.py sets it in each worker
    rate_limit: limits.RateLimit | None = None  # requests per minute, by member

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        # Finds the key in a session's cookie; without the part `sessions`, only API keys sign in.
        self.session_key: Callable[[Request], str | None] = lambda current: None
        # The lists that `register` of a part adds to.
        self.handlers: dict[str, tuple[str, Callable[[Request], Response]]] = {}  # by path: a name, handle()
        self.error_pages: dict[str, Callable[[ApiError], Response]] = {}  # by a path's beginning: show(error)
        self.starts: list[Callable] = []  # start(config, secrets) at each load; secrets is None in a command
        self.workers: list[Callable] = []  # begin(worker), once in each worker process
        self.errands: list[Errand] = []  # (name, is_due, run); the sweeper asks every second
        self.notes: list[Callable[[], object]] = []  # store() what this worker's requests have noted
        self.chores: list[Callable[[], object]] = []  # chore(); the sweeper runs each every hour
        self.refusals: list[Callable] = []  # refuse(rule, view) yields why the application must not start
        self.problems: list[Callable] = []  # check(config) yields what `doctor` prints

    def wsgi_app(self, environ: dict, start_response: Any) -> Any:
        environ["tasks.request"] = current = thread_local.request = Request(self, environ, start_response)
        # Before the views, so that none answers there. The path of a route has no slash at its end.
        if route := gateway.intake.routes.get(environ["PATH_INFO"].removesuffix("/")):
            current.endpoint = "gateway"
            return gateway.handle(route, current)
        try:
            current.endpoint, handle = self.handlers.get(current.path, (current.endpoint, self.respond))
            response = handle(current)
        except Exception as error:
            response = error_response(error)
        return response(environ, current.start)

    @cached_property
    def match(self) -> Any:
        """A cached function that returns the endpoint of a path and method, and the ids in the path."""
        if not self.is_served_by_gunicorn:  # logged with the first request, as only then the server is known
            log.warning("Serve with gunicorn.conf.py: without it no claim ends, and no mail or retry is sent")
        return lru_cache(maxsize=256)(self.url_map.bind("").match)  # 8 MB of the longest paths

    def respond(self, current: Request) -> Any:
        """Authenticate the caller, before an error shows whether the path exists, then run the view."""
        view: Any = None
        ids: Mapping[str, str] = {}
        unknown: HTTPException | None = None
        try:
            current.environ["PATH_INFO"].encode("latin-1").decode()  # werkzeug would replace invalid UTF-8
            endpoint, ids = self.match(current.path, current.method)
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
    for path, show in request().app.error_pages.items():
        if current.path.startswith(path) and not isinstance(shown, PathError):
            return show(shown)
    if not current.in_api:
        return Response(f"{shown}\n".encode(), shown.status, shown.headers, "text/plain")
    return failure(shown)


# Context, health, enrollment ------------------------------------------------------------------


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


# Members --------------------------------------------------------------------------------------


@api.get("/me")
@operation(gives=schemas.MeShown)
def get_me() -> Row:
    """Show the caller and the key in use."""
    caller = request().caller
    return {"member": Member.shown(caller["id"]), "key": ApiKey.shown(caller["key_id"])}


@api.get("/members")
@operation(gives=schemas.MemberListShown)
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
    other_statuses={200: "The member had been invited before. The old link no longer works."},
)
def invite_member(transaction: Transaction, **fields: Any) -> Row:
    """Invite someone by e-mail address. The response contains the link to pass on."""
    member, token, expires_at, new = Invitation.invite(transaction, invitation_days(), **fields)
    if not new:
        request().success_status = 200
    announce(transaction, Task.unassign_unseen(transaction, member))
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
    with Task.notices.reassigning(transaction, id):
        member = Member.edit(transaction, id, fields)
    announce(transaction, Task.unassign_unseen(transaction, member))
    if member["email"] == earlier["email"] or member["status"] == Member.ACTIVE:
        return member
    # Changing the address has ended the old link.
    renewed = with_link(*Invitation.renew(transaction, id, invitation_days()))
    return renewed.pop("member") | renewed


@api.delete("/members/<id>")
@operation(gives=schemas.DeletedShown, role="admin", raises=(Conflict,))
def delete_member(transaction: Transaction, id: str) -> None:
    """Remove a member: revoke their keys and unassign their tasks. Their comments stay."""
    with Task.notices.reassigning(transaction, id):
        Member.remove(transaction, id)
    announce(transaction, Task.claims.given_up(transaction, id))
    announce(transaction, Task.clear_reference(transaction, Task.assignee, id))


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
@operation(gives=schemas.KeyListShown)
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


# Projects -------------------------------------------------------------------------------------


OF_A_NEW_ROW: Row = {"status": 201, "role": "member", "headers": ("Location",)}


@api.get("/projects")
@operation(schemas.LIST_PROJECTS, schemas.ProjectListShown)
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


# Meetings -------------------------------------------------------------------------------------


@api.get("/meetings")
@operation(gives=schemas.MeetingListShown)
def list_meetings() -> Row:
    """List your meetings: upcoming ones, the next first, then past ones, the newest first."""
    return {"meetings": Meeting.of(request().caller["id"])}


# Tasks ----------------------------------------------------------------------------------------


# Common declarations of operations: on tasks that agents may work on, and with versions.
OF_WORK: Row = {"role": "member", "scope": "agent"}
OF_VERSIONS: Row = {"raises": (PreconditionFailed,), "preconditions": ("If-Match",)}
OF_A_CHANGE: Row = OF_WORK | OF_VERSIONS | {"headers": ("ETag",)}
OF_A_NEW_TASK: Row = OF_WORK | {"status": 201, "headers": ("ETag", "Location"), "collection": "/tasks"}


@api.get("/tasks")
@operation(schemas.LIST_TASKS, schemas.TaskListShown, raises=(Gone,))
def list_tasks(wait: int, **filters: Any) -> Row:
    """List tasks, newest first by default. The filters combine; `wait` waits until there is one."""
    for name in ("assignee_id", "created_by"):
        if filters.get(name) == "me":
            filters[name] = request().caller["id"]
    if filters.get("assignee_id") == "none":
        filters["unassigned"] = filters.pop("assignee_id")
    if filters.get("status") == "open":
        filters["open"] = filters.pop("status")
    if "ready" in filters:
        filters |= ApiKey.brakes.filters(request().caller)

    def read() -> Row:
        counted = request().environ.get("tasks.counted", COUNT_LIMIT)
        return task_page(**filters, counted=counted, since=request().caller["projects_since"])

    if "q" in filters:
        read = partial(search, read, SEARCH_STEPS)
    return awaited(wait, read, lambda page: page["pagination"]["total"])


@api.post("/tasks")
@operation(schemas.CREATE_TASK, schemas.TaskShown, **OF_A_NEW_TASK)
def create_task(transaction: Transaction, **fields: Any) -> Row:
    """Create a task."""
    return Task.add(transaction, **fields)


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


def announce_edit(transaction: Transaction, task: Row, changes: Row) -> Row:
    """Store the events of a task's change, if it changed, and return the task."""
    announce(transaction, [(task, changes)])
    return task


@api.put("/tasks/<task:id>/complete", endpoint="complete_task_by_put")
@api.post("/tasks/<task:id>/complete")
@api.patch("/tasks/<task:id>/complete", endpoint="complete_task_by_patch")
@operation(gives=schemas.TaskShown, **OF_A_CHANGE)
def complete_task(transaction: Transaction, id: str) -> Row:
    """Set a task's status to done and notify the team."""
    task, changes = Task.edit(transaction, id, {"status": "done"}, expected_versions())
    if changes:  # this event alone; a change of the status to done is also a `task.updated`
        emit(transaction, "task.completed", {"task": task, "changes": changes})
    return task


@api.delete("/tasks/<task:id>")
@operation(gives=schemas.DeletedShown, role="member", **OF_VERSIONS)
def delete_task(transaction: Transaction, id: str) -> None:
    """Delete a task with its comments and attachments."""
    Task.remove(transaction, id, expected_versions())


@api.get("/tasks/<task:id>/comments")
@operation(schemas.LIST_COMMENTS, schemas.CommentListShown)
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
