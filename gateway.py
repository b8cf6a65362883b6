"""The agent gateway: its routes, its flows and child tasks, its actions with their schemas, its responses.

Trusted automation drives managed flows through these routes. They have a contract of their own: names in
camelCase, another envelope, other errors, no API keys. Flows and child tasks are only recorded, not run.
"""

import hmac
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from marshmallow import RAISE, Schema, ValidationError, fields, missing, validate, validates_schema
from peewee import SQL, ForeignKeyField, IntegerField, TextField, fn
from werkzeug.wsgi import ClosingIterator

import schemas
import strictjson
from database import (
    DATABASE_ERRORS,
    ChoiceField,
    EncodedJSONField,
    Row,
    Sequenced,
    deletion_of_some,
    is_outage,
    placeholder,
    statement,
    to_json,
)
from errors import BadBody, Conflict, TooLarge, TooSlow, Unavailable
from limits import RateLimit, Slots
from models import write
from schemas import Choice, Id, NonEmpty, Shown, response_schema, shown
from settings import Unresolved, resolve
from sweeper import in_steps
from times import epoch_ms
from wire import Request, Response

log = logging.getLogger("tasks.gateway")

FLOW_STATUSES = ("queued", "running", "waiting", "blocked")  # of open flows
TASK_STATUSES = ("queued", "running", "succeeded", "failed", "timed_out", "cancelled", "lost")
NOTIFY_POLICIES = ("done_only", "state_changes", "silent")
NEW: Row = {"status": "queued", "notify_policy": "done_only"}  # the defaults of flows and child tasks
RUNTIMES = ("subagent", "acp")
OPEN_STATUSES = ("queued", "running")  # of open child tasks and of resumed flows
TASK_RUNTIMES = (*RUNTIMES, "cli", "cron")
KEPT_AFTER_CANCEL = 7 * 86_400_000  # milliseconds from a task's cancellation to its `cleanup_after`


# Routes ---------------------------------------------------------------------------------------


@dataclass
class Route:
    """A configured route with its secret; its session owns the route's flows."""

    id: str
    path: str
    session: str
    secret: bytes
    controller_id: str


class Intake(NamedTuple):
    """The routes of a process, by `PATH_INFO`, and their limits."""

    routes: dict[str, Route]
    limits: Row
    rate_limit: RateLimit
    slots: Slots


intake = Intake({}, {}, RateLimit(0, 0), Slots(0))  # until `open_routes`; without a route, no limit is used


def resolved_routes(config: Row) -> list[tuple[str, Row, str | Unresolved]]:
    """Return id, settings and secret (or why it is not resolved) of the configuration's enabled routes."""
    plugin = config["PLUGINS"]["entries"]["webhooks"]
    routes = plugin["config"]["routes"] if plugin["enabled"] else {}
    enabled = [(id, route) for id, route in routes.items() if route["enabled"]]
    secrets = resolve([route["secret"] for _, route in enabled], config["SECRETS"]["providers"])
    return [(id, route, secret) for (id, route), secret in zip(enabled, secrets, strict=True)]


def open_routes(config: Row) -> None:
    """Serve the routes whose secrets are resolved, and log the others."""
    global intake
    by_path, limits = {}, config["PLUGINS"]["entries"]["webhooks"]["config"]["limits"]
    for id, route, secret in resolved_routes(config):
        if isinstance(secret, Unresolved):
            log.warning("gateway route %s is not served: its secret: %s", id, secret)
            continue
        controller_id = route.get("controller_id", f"webhooks/{id}")
        trimmed = secret.strip(" \t\r\n").encode()
        path_info = route["path"].encode().decode("latin-1")  # as WSGI has it
        by_path[path_info] = Route(id, route["path"], route["session_key"], trimmed, controller_id)
    rate_limit = RateLimit(limits["requests"], limits["window_seconds"])
    intake = Intake(by_path, limits, rate_limit, Slots(limits["in_flight"]))


def prune_flows() -> None:
    """Delete the flows that ended, or have been idle, for longer than the limits allow."""
    for limit, deletion in (("retention_days", Flow.delete_ended), ("idle_days", Flow.delete_idle)):
        if days := intake.limits.get(limit):
            before = epoch_ms() - round(days * 86_400_000)
            in_steps(deletion.run, most=100, before=before)


# A request, step by step ----------------------------------------------------------------------


@dataclass
class Outcome:
    """The result of an action; for an error also `status`, `code`, `error` and `headers`."""

    result: Row
    status: int = 200
    code: str = ""
    error: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class GatewayError(Exception):
    """An error of a step before the action."""

    def __init__(self, status: int, code: str, error: str, **headers: str):
        self.outcome = Outcome({}, status, code, error, headers)


def handle(route: Route, request: Request) -> Iterable[bytes]:
    """Respond to a request on a route."""
    key = route.path, request.client_address
    try:
        _admit(request, key)
    except GatewayError as error:
        return _respond(route, request, error.outcome)
    try:
        outcome = _act(route, request)
    except GatewayError as error:
        outcome = error.outcome
    except Exception:
        log.exception("gateway route %s: 500: a bug", route.id)
        outcome = Outcome({}, 500, "internal_error", "Internal Server Error")
    try:
        # The slot is released when the response has been sent or has failed.
        return ClosingIterator(_respond(route, request, outcome), partial(intake.slots.release, key))
    except BaseException:
        intake.slots.release(key)
        raise


def _admit(request: Request, key: Any) -> None:
    """Check method, rate, type and concurrency by the head, and take a slot. Raises `GatewayError`."""
    if request.method != "POST":
        raise GatewayError(405, "method_not_allowed", "Method Not Allowed", Allow="POST")
    verdict = intake.rate_limit.hit(key)
    if not verdict.allowed:
        raise GatewayError(429, "rate_limited", "Too Many Requests", **{"Retry-After": str(verdict.seconds)})
    if not request.is_json:
        raise GatewayError(415, "unsupported_media_type", "Unsupported Media Type")
    if not intake.slots.acquire(key):
        raise GatewayError(429, "too_many_in_flight", "Too Many Requests", **{"Retry-After": "1"})


def _act(route: Route, request: Request) -> Outcome:
    """Check the secret, read the body, and run the action. Raises `GatewayError`."""
    if not _knows_secret(route, request.environ):
        raise GatewayError(401, "unauthorized", "unauthorized")
    try:
        raw = request.read(intake.limits["body_bytes"], intake.limits["body_seconds"])
        name, fields = load_action(strictjson.load_lenient_json(raw))
    except TooLarge as error:
        raise GatewayError(413, "payload_too_large", "Payload too large") from error
    except TooSlow as error:
        raise GatewayError(408, "request_timeout", "Request body timeout") from error
    except BadBody as error:
        raise GatewayError(400, "invalid_json", "invalid request body") from error
    except ValidationError as error:
        raise GatewayError(400, "invalid_request", first_problem(error)) from error
    action = ACTIONS[name]
    try:
        with write() if action.writes else nullcontext():
            return action.function(route, **fields)
    except (Unavailable, Conflict, *DATABASE_ERRORS) as error:
        is_expected = isinstance(error, Unavailable) or is_outage(error)
        if not is_expected and not action.writes:  # after a write, even a bug says that nothing is stored
            raise
        log.error("gateway route %s: 503: %s: %s", route.id, name, error, exc_info=not is_expected)
        # As in the API: it is missing if waiting does not help.
        headers = (error if isinstance(error, Unavailable) else Unavailable(str(error))).headers
        return Outcome({}, 503, "persist_failed", "TaskFlow persistence failed.", headers)


def _knows_secret(route: Route, environ: dict) -> bool:
    """Return whether the caller sends the route's secret; `Authorization` comes before the other header."""
    # Only ASCII blanks are stripped: half a UTF-8 character can look like a blank in latin-1.
    scheme, _, credential = environ.get("HTTP_AUTHORIZATION", "").strip(" \t").partition(" ")
    if scheme.lower() != "bearer":
        credential = environ.get("HTTP_X_AGENT_WEBHOOK_SECRET", "")
    secret = credential.strip(" \t").encode("latin-1", "replace")
    return bool(secret) and hmac.compare_digest(secret, route.secret)


def _respond(route: Route, request: Request, outcome: Outcome) -> Iterable[bytes]:
    if request.unread:
        request.discard(0)  # this closes the connection: a body that stalls must not keep the slot
    body: Row = {"ok": outcome.status < 400, "routeId": route.id}
    if outcome.status >= 400:
        body |= {"code": outcome.code, "error": outcome.error}
    content = to_json(body | {"result": outcome.result})
    response = Response(content, outcome.status, outcome.headers, "application/json; charset=utf-8")
    return response(request.environ, request.start)


# Tables ---------------------------------------------------------------------------------------


class Flow(Sequenced):
    """A managed flow of the agent gateway. Its times are epoch milliseconds, as in the responses."""

    TERMINAL = ("succeeded", "failed", "cancelled", "lost")

    owner = TextField()  # the session key of the routes that may see it
    sync_mode = TextField()
    controller_id = TextField()
    goal = TextField()
    status = ChoiceField((*FLOW_STATUSES, *TERMINAL))
    notify_policy = ChoiceField(NOTIFY_POLICIES)
    revision = IntegerField()
    current_step = TextField(null=True)
    state_json = EncodedJSONField(null=True)  # NULL if it was never set; JSON's null is the text "null"
    wait_json = EncodedJSONField(null=True)
    blocked_task_id = TextField(null=True)
    blocked_summary = TextField(null=True)
    cancel_requested_at = IntegerField(null=True)
    ended_at = IntegerField(null=True)
    created_at = IntegerField()
    updated_at = IntegerField()

    open_of_owner = statement(lambda cls: cls.of_owner.query.where(cls.status.not_in(cls.TERMINAL)))

    @statement
    def owned(cls: Any):
        """The flow with this id, if the owner is right."""
        return cls.select().where(cls.owner == placeholder("owner"), cls.id == placeholder("id"))

    @statement
    def of_owner(cls: Any):
        """The owner's flows, the newest first; within a millisecond the one created first."""
        flows = cls.select().where(cls.owner == placeholder("owner"))
        return flows.order_by(cls.created_at.desc(), cls.seq).limit(placeholder("most"))

    @classmethod
    def add(cls, owner: str, **fields: Any) -> Row:
        id, at = str(uuid.uuid4()), epoch_ms()
        row = NEW | {"sync_mode": "managed", "revision": 0, "created_at": at, "updated_at": at}
        cls.insert_row.run(id=id, owner=owner, **row | fields)
        return cls.owned.one(owner=owner, id=id)

    @classmethod
    def swap(cls, flow: Row, at: int, **fields: Any) -> Row:
        """Write the flow's next revision. Raises `Conflict` if it has changed since it was read."""
        read = {name: flow[name] for name in ("id", "owner", "revision")}
        if cls.update_where(read, **fields, revision=flow["revision"] + 1, updated_at=at) != 1:
            raise Conflict("the flow has changed since it was read")
        return cls.owned.one(owner=flow["owner"], id=flow["id"])

    @statement
    def delete_ended(cls: Any):
        has_ended = cls.status.in_(list(cls.TERMINAL))
        return deletion_of_some(cls, (cls.ended_at < placeholder("before")) & has_ended)

    @statement
    def delete_idle(cls: Any):
        is_recent = FlowTask.last_event_at >= placeholder("before")
        has_recent_task = fn.EXISTS(FlowTask.select(SQL("1")).where(FlowTask.flow == cls.seq, is_recent))
        is_idle = cls.ended_at.is_null() & (cls.updated_at < placeholder("before")) & ~has_recent_task
        return deletion_of_some(cls, is_idle)


# Both are read backwards, in the order of `of_owner`, so a new flow is added at their end and splits no page.
# The second index finds an open flow behind any number of ended ones.
_of_owner = (Flow.owner, Flow.created_at, Flow.seq.desc())  # `indexed` has no descending columns
Flow.add_index(*_of_owner, name="flow_owner")
Flow.add_index(*_of_owner, where=Flow.status.not_in(Flow.TERMINAL), name="flow_open")
Flow.indexed("flow_ended", "ended_at", where=Flow.ended_at.is_null(False))
Flow.indexed("flow_idle", "updated_at", where=Flow.ended_at.is_null())


class FlowTask(Sequenced):
    """A child task of a managed flow, as the caller reports it; this service does not run it."""

    flow = ForeignKeyField(Flow, column_name="flow_seq", object_id_name="flow_seq", on_delete="CASCADE")
    runtime = ChoiceField(TASK_RUNTIMES)
    source_id = TextField(null=True)
    child_session_key = TextField(null=True)
    parent_task_id = TextField(null=True)
    agent_id = TextField(null=True)
    run_id = TextField(null=True)
    label = TextField(null=True)
    task = TextField()
    status = ChoiceField(TASK_STATUSES)
    notify_policy = ChoiceField(NOTIFY_POLICIES)
    progress_summary = TextField(null=True)
    error = TextField(null=True)
    terminal_summary = TextField(null=True)
    terminal_outcome = TextField(null=True)
    created_at = IntegerField()
    started_at = IntegerField(null=True)
    last_event_at = IntegerField()
    ended_at = IntegerField(null=True)
    cleanup_after = IntegerField(null=True)

    of_flow = statement(lambda cls: cls.select().where(cls.flow == placeholder("flow_seq")).order_by(cls.seq))

    @statement
    def same_run(cls: Any):
        """The flow's oldest task of the same run; for a subagent, label and text must be equal too."""
        # Label and text may be long. They are not in the index, and are compared row by row.
        is_same = (cls.label >> placeholder("label")) & (cls.task == placeholder("task"))
        run = cls.of_flow.query.where(
            cls.run_id == placeholder("run_id"),
            cls.runtime == placeholder("runtime"),
            cls.child_session_key >> placeholder("child_session_key"),  # IS: both may be NULL
            (cls.runtime != "subagent") | is_same,
        )
        return run.limit(1)

    @statement
    def counts(cls: Any):
        """The number of the flow's tasks of each status and runtime."""
        counted = cls.select(cls.status, cls.runtime, fn.COUNT(SQL("*")).alias("count"))
        return counted.where(cls.flow == placeholder("flow_seq")).group_by(cls.status, cls.runtime)

    @classmethod
    def add(cls, flow: Row, fields: Row) -> Row:
        id, at = str(uuid.uuid4()), epoch_ms()
        if fields.get("progress_summary"):
            fields["progress_summary"] = " ".join(fields["progress_summary"].split())
        row = NEW | {"created_at": at, "last_event_at": fields.get("started_at", at)}
        cls.insert_row.run(id=id, flow_seq=flow["seq"], **row | fields)
        return cls.stored_row.one(id=id)

    @classmethod
    def complete(cls, task: Row, fields: Row, prefer_metadata: bool) -> Row:
        """Write the fields that the task lacks; its status and times stay."""
        names = ("source_id", "parent_task_id", "agent_id", "label")
        filled = {name: fields[name] for name in names if name in fields and task[name] is None}
        if prefer_metadata:
            filled |= {name: fields[name] for name in ("label", "task") if name in fields}
        if filled:
            cls.set_columns(task["id"], **filled)
        return cls.stored_row.one(id=task["id"])

    @statement
    def cancel_open(cls: Any):
        cancelled = {cls.status: "cancelled", cls.error: "Cancelled by operator."}
        times = {cls.ended_at: placeholder("at"), cls.last_event_at: placeholder("at")}
        update = cls.update(cancelled | times | {cls.cleanup_after: placeholder("keep_until")})
        return update.where(cls.flow == placeholder("flow_seq"), cls.status.in_(list(OPEN_STATUSES)))


FlowTask.indexed(
    "flow_task_run", "flow run_id runtime child_session_key", where=FlowTask.run_id.is_null(False)
)


# The fields of actions --------------------------------------------------------------------------


class AnyJSON(fields.Raw):
    """Any JSON value, even null, loaded as its canonical text, with numbers as in JavaScript."""

    def deserialize(self, value: Any, *arguments: Any, **options: Any) -> Any:
        if value is missing:
            return missing
        if problem := strictjson.value_problem(value, strictjson.MAX_DEPTH):
            raise ValidationError(problem)
        try:
            return strictjson.canonical(value)
        except ValueError as error:  # infinity
            raise ValidationError("must not hold a number that is out of range") from error


class CamelCase(Schema):
    """A schema whose names are camelCase in JSON and snake_case in Python."""

    def on_bind_field(self, field_name: str, field_obj: fields.Field) -> None:
        if field_obj.data_key is None:
            start, *rest = field_name.split("_")
            field_obj.data_key = start + "".join(word.title() for word in rest)


class ActionFields(CamelCase):
    """The fields of an action; others are refused."""

    class Meta:
        unknown = RAISE

    error_messages = {"unknown": "Unrecognized key"}

    def handle_error(self, error: ValidationError, data: Any, **_: Any) -> None:
        """Order the problems by field, then unknown keys as in the body; marshmallow has a set of these."""
        names = dict.fromkeys([*(field.data_key for field in self.fields.values()), *data])
        error.messages = {name: error.messages_dict[name] for name in names if name in error.messages_dict}


class RunTask(ActionFields):
    flow_id = NonEmpty(required=True)
    runtime = Choice(RUNTIMES, required=True)
    task = NonEmpty(required=True)
    source_id = NonEmpty()
    child_session_key = NonEmpty()
    parent_task_id = NonEmpty()
    agent_id = NonEmpty()
    run_id = NonEmpty()
    label = NonEmpty()
    prefer_metadata = schemas.JSONBoolean()
    notify_policy = Choice(NOTIFY_POLICIES)
    status = Choice(OPEN_STATUSES)
    started_at = schemas.JSONInteger(0, strictjson.MAX_SAFE_INTEGER)
    last_event_at = schemas.JSONInteger(0, strictjson.MAX_SAFE_INTEGER)
    progress_summary = NonEmpty(allow_none=True)

    @validates_schema(skip_on_field_errors=False, pass_original=True)
    def _progress_means_running(self, data: Row, body: Row, **_: Any) -> None:
        progress = {"startedAt", "lastEventAt", "progressSummary"} & body.keys()  # even null
        if progress and body.get("status") != "running":
            problem = "status must be running when startedAt, lastEventAt, or progressSummary is provided"
            raise ValidationError(problem, "status")


def load_action(body: Any) -> tuple[str, dict[str, Any]]:
    """Return the action's name and fields. Raises `ValidationError`, whose first message is shown."""
    if not isinstance(body, dict):
        raise ValidationError({"body": ["must be an object"]})
    name = body.get("action")
    if not isinstance(name, str) or name not in ACTIONS:
        raise ValidationError({"action": [f"must be one of {', '.join(ACTIONS)}"]})
    return name, ACTIONS[name].schema.load({key: value for key, value in body.items() if key != "action"})


def first_problem(error: ValidationError) -> str:
    """Return the first problem of an action, as `<field>: <message>`, or the unknown key."""
    unknown = ActionFields.error_messages["unknown"]
    name, messages = next(iter(error.messages_dict.items()))
    if messages == [unknown]:  # even the key "_schema" may be unknown
        return f'{unknown}: "{schemas.printable(name)}"'
    field, message = schemas.problems_of(error)[0]
    return f"{field}: {message}"


# The responses of actions ----------------------------------------------------------------------


class NonNull(CamelCase, Shown):
    """The schema of a response that shows the columns of a row that are not null."""

    def on_bind_field(self, field_name: str, field_obj: fields.Field) -> None:
        super().on_bind_field(field_name, field_obj)
        # The key of a column that may be null may be missing.
        field_obj.required, field_obj.allow_none = not field_obj.allow_none, False

    def of(self, row: Row) -> Row:
        return {str(f.data_key): row[name] for name, f in self.fields.items() if row[name] is not None}


FlowShown = shown(
    Flow,
    "id sync_mode controller_id revision status notify_policy goal current_step blocked_task_id"
    " blocked_summary state_json wait_json cancel_requested_at created_at updated_at ended_at",
    base=NonNull,
    id=Id(data_key="flowId"),
    controller_id=str | None,
    state_json=fields.Raw(allow_none=True),
    wait_json=fields.Raw(allow_none=True),
)
ChildTaskShown = shown(
    FlowTask,
    "id runtime scope_kind task status delivery_status notify_policy parent_flow_id created_at last_event_at"
    " started_at ended_at cleanup_after source_id child_session_key parent_task_id agent_id run_id label"
    " error progress_summary terminal_summary terminal_outcome",
    "ChildTask",
    base=NonNull,
    id=Id(data_key="taskId"),
    scope_kind=fields.String(validate=validate.Equal("session")),
    delivery_status=fields.String(validate=validate.Equal("pending")),
    parent_flow_id=Id(),
)
show_flow = FlowShown().of


def show_task(task: Row, flow: Row) -> Row:
    constant = {"scope_kind": "session", "delivery_status": "pending", "parent_flow_id": flow["id"]}
    return ChildTaskShown().of(task | constant)


CountsByStatusShown = response_schema("CountsByStatus", **dict.fromkeys(TASK_STATUSES, int))
CountsByRuntimeShown = response_schema("CountsByRuntime", **dict.fromkeys(TASK_RUNTIMES, int))
FlowSummaryShown = response_schema(
    "FlowSummary",
    **dict.fromkeys(("total", "active", "terminal", "failures"), int),
    byStatus=CountsByStatusShown,
    byRuntime=CountsByRuntimeShown,
)
# The results of all actions and refusals; each contains some of these keys.
RESULT_FIELDS: Row = dict.fromkeys(("created", "applied", "found", "cancelled"), bool) | {
    **{"code": str, "reason": str, "flow": FlowShown | None, "flows": [FlowShown], "current": FlowShown},
    **{"task": ChildTaskShown, "tasks": [ChildTaskShown], "summary": FlowSummaryShown | None},
}
FlowResultShown = response_schema("FlowResult", optional=tuple(RESULT_FIELDS), **RESULT_FIELDS)


# Actions --------------------------------------------------------------------------------------


def create_flow(route: Route, **fields: Any) -> Outcome:
    fields.setdefault("controller_id", route.controller_id)
    return Outcome({"created": True, "flow": show_flow(Flow.add(route.session, **fields))})


def get_flow(route: Route, flow_id: str) -> Outcome:
    return _flow_or_null(Flow.owned.one(owner=route.session, id=flow_id))


def list_flows(route: Route) -> Outcome:
    return Outcome({"flows": [show_flow(flow) for flow in Flow.of_owner.all(owner=route.session, most=-1)]})


def find_latest_flow(route: Route) -> Outcome:
    return _flow_or_null(Flow.of_owner.one(owner=route.session, most=1))


def resolve_flow(route: Route, token: str) -> Outcome:
    """Return the flow of this id; for the session key its newest open flow, or else its newest."""
    flow = Flow.owned.one(owner=route.session, id=token)
    if flow is None and token == route.session:
        newest = {"owner": route.session, "most": 1}
        flow = Flow.open_of_owner.one(**newest) or Flow.of_owner.one(**newest)
    return _flow_or_null(flow)


def _flow_or_null(flow: Row | None) -> Outcome:
    return Outcome({"flow": show_flow(flow) if flow else None})


def get_task_summary(route: Route, flow_id: str) -> Outcome:
    """Count the flow's child tasks by status and runtime; return null if the flow does not exist."""
    flow = Flow.owned.one(owner=route.session, id=flow_id)
    if flow is None:
        return Outcome({"summary": None})
    by_status, by_runtime = dict.fromkeys(TASK_STATUSES, 0), dict.fromkeys(TASK_RUNTIMES, 0)
    for row in FlowTask.counts.all(flow_seq=flow["seq"]):
        by_status[row["status"]] += row["count"]
        by_runtime[row["runtime"]] += row["count"]
    total = sum(by_status.values())
    active = sum(by_status[status] for status in OPEN_STATUSES)
    summary = {
        "total": total,
        "active": active,
        "terminal": total - active,
        "failures": by_status["failed"] + by_status["timed_out"] + by_status["lost"],
        "byStatus": by_status,
        "byRuntime": by_runtime,
    }
    return Outcome({"summary": summary})


NOT_WAITING: Row = {"wait_json": "null", "blocked_task_id": None, "blocked_summary": None}
NOT_APPLIED = {
    "not_found": (404, "TaskFlow not found."),
    "not_managed": (409, "TaskFlow is not managed by this webhook surface."),
    "revision_conflict": (409, "TaskFlow changed since the caller's expected revision."),
}


def waiting_columns(**fields: Any) -> Row:
    blocked = fields.get("blocked_task_id") is not None or fields.get("blocked_summary") is not None
    return fields | {"status": "blocked" if blocked else "waiting", "ended_at": None}


def resumed_columns(**fields: Any) -> Row:
    """Return the columns of a flow that continues; the body may name its status."""
    return NOT_WAITING | {"status": "queued", "ended_at": None} | fields


def finished_columns(**fields: Any) -> Row:
    return NOT_WAITING | {"status": "succeeded"} | fields


def failed_columns(**fields: Any) -> Row:
    """Return the columns of a flow that failed; it keeps what blocked it, unless the body changes that."""
    return {"status": "failed", "wait_json": "null"} | fields


def _not_applied(code: str, **more: Any) -> Outcome:
    status, error = NOT_APPLIED[code]
    return Outcome({"applied": False, "code": code, **more}, status, code, error)


def cancel_flow(route: Route, flow_id: str) -> Outcome:
    """End a flow and its open child tasks."""
    flow = Flow.owned.one(owner=route.session, id=flow_id)
    if flow is None:
        result = {"found": False, "cancelled": False, "reason": "Flow not found."}
        return Outcome(result, 404, "not_found", "TaskFlow not found.")
    if flow["status"] in Flow.TERMINAL:
        reason = f"Flow is already {flow['status']}."
        result = {"found": True, "cancelled": False, "reason": reason, **_with_tasks(flow)}
        return Outcome(result, 409, "terminal", reason)
    at = epoch_ms()
    if flow["cancel_requested_at"] is None:
        flow = Flow.swap(flow, at, cancel_requested_at=at)
    FlowTask.cancel_open.run(flow_seq=flow["seq"], at=at, keep_until=at + KEPT_AFTER_CANCEL)
    flow = Flow.swap(flow, at, status="cancelled", ended_at=at, **NOT_WAITING)
    return Outcome({"found": True, "cancelled": True, **_with_tasks(flow)})


def _with_tasks(flow: Row) -> Row:
    tasks = [show_task(task, flow) for task in FlowTask.of_flow.all(flow_seq=flow["seq"])]
    return {"flow": show_flow(flow), "tasks": tasks}


def run_task(route: Route, flow_id: str, prefer_metadata: bool = False, **fields: Any) -> Outcome:
    """Record a child task of a flow, or complete the record of the same run."""
    flow = Flow.owned.one(owner=route.session, id=flow_id)
    if flow is None:
        result = {"found": False, "created": False, "reason": "Flow not found."}
        return Outcome(result, 404, "not_found", "TaskFlow not found.")
    code = reason = ""
    if flow["sync_mode"] != "managed":
        code, reason = "not_managed", "Flow does not accept managed child tasks."
    elif flow["cancel_requested_at"] is not None:
        code, reason = "cancel_requested", "Flow cancellation has already been requested."
    elif flow["status"] in Flow.TERMINAL:
        code, reason = "terminal", f"Flow is already {flow['status']}."
    if code:
        result = {"found": True, "created": False, "reason": reason, "flow": show_flow(flow)}
        return Outcome(result, 409, code, reason)
    child = fields.get("child_session_key")
    if child and not child.lower().startswith(route.session.lower() + ":"):
        reason = "childSessionKey must be a descendant of the route's session tree"
        return Outcome({"found": True, "created": False, "reason": reason}, 409, "task_not_created", reason)
    compared = ("run_id", "runtime", "child_session_key", "label", "task")
    run = {name: fields.get(name) for name in compared}
    task = FlowTask.same_run.one(flow_seq=flow["seq"], **run) if "run_id" in fields else None
    task = FlowTask.complete(task, fields, prefer_metadata) if task else FlowTask.add(flow, fields)
    return Outcome({"created": True, "flow": show_flow(flow), "task": show_task(task, flow)})


class Action(NamedTuple):
    """An action: its fields, its function, and whether it writes."""

    schema: ActionFields
    function: Callable[..., Outcome]
    writes: bool


def _action(function: Callable[..., Outcome], *, writes: bool, **fields: Any) -> Action:
    return Action(ActionFields.from_dict(fields)(), function, writes)  # type: ignore[arg-type]


def _revision_action(step: Callable[..., Row], *timed: str, **fields: Any) -> Action:
    """Return an action that writes a flow's next revision if the present one is what the caller expects.

    `step` converts the fields of the body to columns; the columns in `timed` get the current time.
    """

    def mutate(route: Route, flow_id: str, expected_revision: int, **fields: Any) -> Outcome:
        flow = Flow.owned.one(owner=route.session, id=flow_id)
        if flow is None:
            return _not_applied("not_found")
        if flow["sync_mode"] != "managed":
            return _not_applied("not_managed", current=show_flow(flow))
        if flow["revision"] != expected_revision:
            return _not_applied("revision_conflict", current=show_flow(flow))
        at = epoch_ms()
        flow = Flow.swap(flow, at, **step(**fields), **dict.fromkeys(timed, at))
        return Outcome({"applied": True, "flow": show_flow(flow)})

    revision = schemas.JSONInteger(0, strictjson.MAX_SAFE_INTEGER, required=True)
    return _action(mutate, writes=True, flow_id=NonEmpty(required=True), expected_revision=revision, **fields)


STEP_FIELDS: Row = {"current_step": NonEmpty(allow_none=True), "state_json": AnyJSON()}
BLOCKED: Row = {"blocked_task_id": NonEmpty(allow_none=True), "blocked_summary": NonEmpty(allow_none=True)}
ACTIONS: dict[str, Action] = {
    "create_flow": _action(
        create_flow,
        writes=True,
        goal=NonEmpty(required=True),
        controller_id=NonEmpty(),
        status=Choice(FLOW_STATUSES),
        notify_policy=Choice(NOTIFY_POLICIES),
        **STEP_FIELDS,
        wait_json=AnyJSON(),
    ),
    "get_flow": _action(get_flow, writes=False, flow_id=NonEmpty(required=True)),
    "list_flows": _action(list_flows, writes=False),
    "find_latest_flow": _action(find_latest_flow, writes=False),
    "resolve_flow": _action(resolve_flow, writes=False, token=NonEmpty(required=True)),
    "get_task_summary": _action(get_task_summary, writes=False, flow_id=NonEmpty(required=True)),
    "set_waiting": _revision_action(waiting_columns, **STEP_FIELDS, wait_json=AnyJSON(), **BLOCKED),
    "resume_flow": _revision_action(resumed_columns, status=Choice(OPEN_STATUSES), **STEP_FIELDS),
    "finish_flow": _revision_action(finished_columns, "ended_at", state_json=AnyJSON()),
    "fail_flow": _revision_action(failed_columns, "ended_at", state_json=AnyJSON(), **BLOCKED),
    "request_cancel": _revision_action(dict, "cancel_requested_at"),
    "cancel_flow": _action(cancel_flow, writes=True, flow_id=NonEmpty(required=True)),
    "run_task": Action(RunTask(), run_task, writes=True),
}
