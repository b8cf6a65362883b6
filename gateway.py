"""The agent gateway's webhook intake: routes by which trusted automation drives managed flows.

It keeps its own contract (camelCase, its own envelope and errors), and knows neither API keys nor
the API's envelope. It records flows and child tasks; it runs nothing.
"""

import hmac
import json
import logging
import math
import os
import select
import stat
import subprocess
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

from marshmallow import ValidationError
from peewee import SQL, DatabaseError, Expression, ForeignKeyField, IntegerField, TextField, fn

import schemas
from database import (
    JSONText,
    Row,
    Sequenced,
    Statement,
    Unavailable,
    columns,
    compiled,
    deletion_of_some,
    epoch_ms,
    placeholder,
    to_json,
)
from models import Conflict, write
from schemas import TASK_RUNTIMES, TASK_STATUSES
from webhooks import check_secrets, in_steps

log = logging.getLogger("tasks.gateway")

EXEC_SECONDS = 5.0
SECRET_BYTES = 1024 * 1024  # the most that a file or a program may hold or say
KEPT_AFTER_CANCEL = 7 * 86_400_000  # milliseconds
REFUSED_BYTES = 64 * 1024  # are read of a body that is too large, before the connection is closed


# Secrets --------------------------------------------------------------------------------------


class Unresolved(LookupError):
    """A secret that cannot be had; the message says why, and never holds a value."""


def resolve(references: list[Row], providers: dict[str, Row]) -> list[str | Unresolved]:
    """The secrets of these references, in their order, or why there is none.

    Each provider is asked once, all of them side by side.
    """
    asked: dict[tuple[str, str], list[str]] = {}
    for reference in references:
        if "value" not in reference:
            asked.setdefault((reference["source"], reference["provider"]), []).append(reference["id"])

    def ask(place: tuple[str, str]) -> dict[str, str | Unresolved]:
        (source, alias), ids = place, list(dict.fromkeys(asked[place]))
        try:
            return SECRET_SOURCES[source](alias, _provider(source, alias, providers), ids)
        except Unresolved as error:
            return dict.fromkeys(ids, error)
        except OSError as error:
            return dict.fromkeys(ids, Unresolved(error.strerror or "it cannot be read"))
        except UnicodeDecodeError:
            return dict.fromkeys(ids, Unresolved("it is not UTF-8"))
        except (ValueError, RuntimeError) as error:  # no such home, too deep, a NUL in an argument
            return dict.fromkeys(ids, Unresolved(f"it cannot be read ({type(error).__name__})"))

    with ThreadPoolExecutor(max(len(asked), 1)) as pool:
        answers = dict(zip(asked, pool.map(ask, asked), strict=True))
    return [_checked(reference, answers) for reference in references]


def _checked(reference: Row, answers: dict[tuple[str, str], dict[str, Any]]) -> str | Unresolved:
    if "value" in reference:
        return reference["value"]
    place = reference["source"], reference["provider"]
    secret = answers[place].get(reference["id"], Unresolved("there is no such secret"))
    if isinstance(secret, Unresolved):
        return Unresolved(f"{place[0]}:{place[1]}:{reference['id']}: {secret}")
    if not isinstance(secret, str) or not secret.strip() or schemas.text_problem(secret):
        return Unresolved(f"{place[0]}:{place[1]}:{reference['id']}: is not a text that is not blank")
    return secret


def _provider(source: str, alias: str, providers: dict[str, Row]) -> Row:
    if alias not in providers and (source, alias) == ("env", "default"):
        return {"source": "env"}
    provider = providers.get(alias)
    if provider is None or provider["source"] != source:
        raise Unresolved(f"there is no provider {alias} of source {source}")
    return provider


def _from_environment(alias: str, provider: Row, ids: list[str]) -> dict[str, Any]:
    allowed = provider.get("allowlist")
    secrets: dict[str, Any] = {}
    for id in ids:
        if allowed is not None and id not in allowed:
            secrets[id] = Unresolved("is not on the provider's allowlist")
        else:
            secrets[id] = os.environ.get(id) or Unresolved("the environment variable is not set")
    return secrets


def _from_file(alias: str, provider: Row, ids: list[str]) -> dict[str, Any]:
    path = Path(provider["path"]).expanduser()
    text = _read_private(path)
    if provider.get("mode", "json") == "singleValue":
        return {"value": text.removesuffix("\n").removesuffix("\r")}
    try:
        document = json.loads(text)
    except ValueError as error:
        raise Unresolved(f"{path} is not JSON") from error
    return {id: document if id == "value" else _point(document, id) for id in ids}


def _read_private(path: Path) -> str:
    """The text of a file that is ours alone. Raises `Unresolved`."""
    if not path.is_absolute():
        raise Unresolved(f"{path} is not an absolute path")
    # Neither a link nor a pipe that nobody writes to may hold up the start.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Unresolved(f"{path} is not a regular file")
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise Unresolved(f"{path} must belong to us, with no access for others (chmod 600)")
        content = opened.read(SECRET_BYTES + 1)
    if len(content) > SECRET_BYTES:
        raise Unresolved(f"{path} is larger than 1 MiB")
    return content.decode("utf-8-sig")


def _point(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) points at."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and step.isascii() and step.isdigit() and int(step) < len(document):
            document = document[int(step)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            return Unresolved("there is nothing at this place of the file")
    return document


def _from_program(alias: str, provider: Row, ids: list[str]) -> dict[str, Any]:
    command = Path(provider["command"])
    _check_program(command)
    environment = {name: os.environ[name] for name in provider.get("pass_env", []) if name in os.environ}
    question = {"protocolVersion": 1, "provider": alias, "ids": ids}
    said = _run(
        [str(command), *provider.get("args", [])],
        environment | provider.get("env", {}),
        json.dumps(question).encode(),
    )
    try:
        answer = json.loads(said)
        protocol = isinstance(answer, dict) and "protocolVersion" in answer
    except ValueError:
        protocol = False
    if not protocol:
        if provider.get("json_only", True) or len(ids) != 1:
            raise Unresolved("the program did not answer in the protocol")
        return {ids[0]: said.decode().removesuffix("\n").removesuffix("\r")}
    if answer["protocolVersion"] != 1 or not isinstance(answer.get("values"), dict):
        raise Unresolved("the program answers with another version of the protocol")
    return {id: answer["values"].get(id, Unresolved("the program has no such secret")) for id in ids}


def _check_program(command: Path) -> None:
    if not command.is_absolute():
        raise Unresolved(f"{command} is not an absolute path")
    found = command.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise Unresolved(f"{command} is not a regular file")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unresolved(f"{command} must belong to us or root, and be writable by nobody else")


def _run(command: list[str], environment: dict[str, str], question: bytes) -> bytes:
    """What a program prints. Raises `Unresolved` when it fails, takes too long, or says too much."""
    with subprocess.Popen(  # noqa: S603 - no shell, and a program that only we or root can change
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as program:
        ends_at = time.monotonic() + EXEC_SECONDS
        timer = threading.Timer(EXEC_SECONDS, _kill, (program,))
        timer.start()  # for one that does not even take the question
        try:
            assert program.stdin and program.stdout  # noqa: S101 - they are pipes
            with suppress(BrokenPipeError):  # a program need not listen
                program.stdin.write(question)
                program.stdin.close()
            said = _read_until(program.stdout.fileno(), ends_at)
            code = program.wait(max(ends_at - time.monotonic(), 0))
        except (TimeoutError, subprocess.TimeoutExpired):
            code = None
        finally:
            timer.cancel()
            _kill(program)
    if code is None or time.monotonic() >= ends_at:
        raise Unresolved(f"the program took longer than {EXEC_SECONDS:.0f} s")
    if code != 0:
        raise Unresolved(f"the program ended with code {code}")
    return said


def _read_until(pipe: int, ends_at: float) -> bytes:
    """All that comes, until its last writer closes it: some child of the program may outlive that.

    Raises `TimeoutError`, and `Unresolved` for too much.
    """
    said = b""
    while select.select([pipe], [], [], max(ends_at - time.monotonic(), 0))[0]:
        part = os.read(pipe, 65536)
        said += part
        if len(said) > SECRET_BYTES:
            raise Unresolved("the program said more than 1 MiB")
        if not part:
            return said
    raise TimeoutError


def _kill(program: subprocess.Popen) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, 9)


SECRET_SOURCES: dict[str, Callable[[str, Row, list[str]], dict[str, Any]]] = {
    "env": _from_environment,
    "file": _from_file,
    "exec": _from_program,
}


def resolve_all(references: dict[str, Row | None], config: Row) -> dict[str, str | None]:
    """The secrets by the names of their settings. Raises `Unresolved`, naming the first that fails."""
    given = {name: reference for name, reference in references.items() if reference is not None}
    secrets = dict(zip(given, resolve(list(given.values()), config["SECRETS"]["providers"]), strict=True))
    for name, secret in secrets.items():
        if isinstance(secret, Unresolved):
            raise Unresolved(f"{name}: {secret}")
    return {name: secrets.get(name) for name in references}  # type: ignore[misc]


def resolve_hooks(config: Row) -> list[Row]:
    """The configured webhooks with their `secrets`. Raises `LookupError`, naming what fails."""
    keys = ("secret", "previous_secret")
    references = {
        f"webhooks: {hook['name']}: {key}": hook[key] for hook in config["WEBHOOKS"] for key in keys
    }
    found = resolve_all(references, config)
    hooks = []
    for hook in config["WEBHOOKS"]:
        secrets = [found[f"webhooks: {hook['name']}: {key}"] for key in keys]
        hooks.append({**hook, "secrets": [secret for secret in secrets if secret]})
        check_secrets(hook["name"], hooks[-1]["secrets"])
    return hooks


# Limits ---------------------------------------------------------------------------------------


class FixedWindow:
    """How often each key may come within a window that begins with its first coming.

    At most `keys` are known at a time; the oldest is forgotten for a new one.
    """

    def __init__(self, most: int, seconds: float, keys: int = 4096):
        self.most, self.seconds, self.keys = most, seconds, keys
        self._lock = threading.Lock()
        self._windows: OrderedDict[Any, tuple[float, int]] = OrderedDict()

    def take(self, key: Any) -> tuple[int, int]:
        """Count a coming; returns how many more may follow, or -1 for one too many, and the seconds left.

        The seconds are whole ones, rounded up: after them the window is over.
        """
        with self._lock:
            at = time.monotonic()
            ends_at, count = self._windows.get(key, (0.0, 0))
            if ends_at <= at:
                self._windows.pop(key, None)
                ends_at, count = at + self.seconds, 0
                if len(self._windows) >= self.keys:
                    self._windows.popitem(last=False)
            if count >= self.most:
                return -1, math.ceil(ends_at - at)
            self._windows[key] = ends_at, count + 1
            return self.most - count - 1, math.ceil(ends_at - at)


class Slots:
    """How many requests of each key are being answered."""

    def __init__(self, most: int):
        self.most = most
        self._lock = threading.Lock()
        self._taken: dict[Any, int] = {}

    def take(self, key: Any) -> bool:
        with self._lock:
            if self._taken.get(key, 0) >= self.most:
                return False
            self._taken[key] = self._taken.get(key, 0) + 1
            return True

    def free(self, key: Any) -> None:
        with self._lock:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


# Routes ---------------------------------------------------------------------------------------


@dataclass
class Route:
    """A configured route with its secret. Its session owns the flows that it works on."""

    id: str
    path: str
    session: str
    secret: bytes
    controller_id: str


@dataclass
class Intake:
    """The routes that this process serves, by path, and their limits, since `open_routes`."""

    routes: dict[str, Route] = field(default_factory=dict)
    limits: Row = field(default_factory=dict)
    window: FixedWindow = field(default_factory=lambda: FixedWindow(120, 60))
    slots: Slots = field(default_factory=lambda: Slots(8))


intake = Intake()


def configured_routes(config: Row) -> dict[str, Row]:
    """The enabled routes of the configuration, by id."""
    plugin = config["PLUGINS"]["entries"]["webhooks"]
    routes = plugin["config"]["routes"] if plugin["enabled"] else {}
    return {id: route for id, route in routes.items() if route["enabled"]}


def open_routes(config: Row) -> None:
    """Resolve the routes' secrets and serve those that have one; others are skipped with a warning."""
    routes, limits = configured_routes(config), config["PLUGINS"]["entries"]["webhooks"]["config"]["limits"]
    secrets = resolve([route["secret"] for route in routes.values()], config["SECRETS"]["providers"])
    served = {}
    for (id, route), secret in zip(routes.items(), secrets, strict=True):
        if isinstance(secret, Unresolved):
            log.warning("gateway route %s is not served: its secret: %s", id, secret)
            continue
        session = route["session_key"]
        controller_id = route.get("controller_id", f"webhooks/{id}")
        known = secret.strip(" \t\r\n").encode()
        served[route["path"]] = Route(id, route["path"], session, known, controller_id)
    intake.routes, intake.limits = served, limits
    intake.window = FixedWindow(limits["requests"], limits["window_seconds"])
    intake.slots = Slots(limits["in_flight"])


def prune_flows() -> None:
    """Drop flows that ended long ago, and those that never do, where the limits say when."""
    if days := intake.limits.get("retention_days"):
        in_steps(partial(Flow.prune, days))
    if days := intake.limits.get("idle_days"):
        in_steps(partial(Flow.prune_idle, days))


# The request ladder ---------------------------------------------------------------------------


class Request(Protocol):
    """What the application hands over of a request that it has not touched."""

    environ: dict
    unread: bool

    def read(self, limit: int, seconds: float) -> bytes: ...
    def discard(self, left: int) -> None: ...
    def close(self) -> None: ...
    def start(self, status: str, headers: list[tuple[str, str]]) -> Any: ...


@dataclass
class Outcome:
    """What an action came to: `status` with a `code` and an `error` from 400 on."""

    result: Row
    status: int = 200
    code: str = ""
    error: str = ""


class Refused(Exception):
    """The ladder ends here."""

    def __init__(self, status: int, code: str, error: str, **headers: str):
        self.outcome, self.headers = Outcome({}, status, code, error), headers


REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Payload Too Large",
    415: "Unsupported Media Type",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def find_route(environ: dict) -> Route | None:
    """The route whose path this is, with or without one slash at its end."""
    path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
    return intake.routes.get(path) or (intake.routes.get(path[:-1]) if path.endswith("/") else None)


def answer(route: Route, request: Request) -> Iterable[bytes]:
    """Answer a request on a route. Each step of the ladder may end it, in this order."""
    key = route.path, request.environ.get("REMOTE_ADDR", "")
    try:
        _admit(route, request, key)
    except Refused as refused:
        return _respond(route, request, refused.outcome, refused.headers)
    free = _Once(lambda: intake.slots.free(key))
    headers: dict[str, str] = {}
    try:
        outcome = _act(route, request)
    except Refused as refused:
        outcome, headers = refused.outcome, refused.headers
    except Exception:
        log.exception("gateway route %s: a bug", route.id)
        outcome = Outcome({}, 500, "internal_error", "Internal Server Error")
    try:
        return _Released(_respond(route, request, outcome, headers), free)
    except BaseException:
        free()
        raise


class _Once:
    """A function that is called once, however often it is asked."""

    def __init__(self, function: Callable[[], None]):
        self._left = [function]

    def __call__(self) -> None:
        with suppress(IndexError):
            self._left.pop()()


class _Released:
    """An answer that gives its slot back when it has gone out, or could not."""

    def __init__(self, body: Iterable[bytes], close: _Once):
        self._body, self.close = body, close

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)


def _admit(route: Route, request: Request, key: Any) -> None:
    """Steps 2 to 5, which look at the head alone."""
    environ = request.environ
    if environ["REQUEST_METHOD"] != "POST":
        raise Refused(405, "method_not_allowed", "Method Not Allowed", Allow="POST")
    left, seconds = intake.window.take(key)
    if left < 0:
        raise Refused(429, "rate_limited", "Too Many Requests", **{"Retry-After": str(seconds)})
    kind = environ.get("CONTENT_TYPE", "").split(";")[0].strip().lower()
    if kind != "application/json" and not (kind.endswith("+json") and "/" in kind):
        raise Refused(415, "unsupported_media_type", "Unsupported Media Type")
    if not intake.slots.take(key):
        raise Refused(429, "too_many_in_flight", "Too Many Requests", **{"Retry-After": "1"})


def _act(route: Route, request: Request) -> Outcome:
    """Steps 6 to 10: the secret, the body, the action."""
    if not _knows_secret(route, request.environ):
        raise Refused(401, "unauthorized", "unauthorized")
    try:
        raw = request.read(intake.limits["body_bytes"], intake.limits["body_seconds"])
        name, fields = schemas.load_action(schemas.load_lenient_json(raw))
    except schemas.TooLarge as error:
        request.discard(REFUSED_BYTES)
        request.close()
        raise Refused(413, "payload_too_large", "Payload too large") from error
    except schemas.TooSlow as error:
        raise Refused(408, "request_timeout", "Request body timeout") from error
    except schemas.BadJSON as error:
        raise Refused(400, "invalid_json", "invalid request body") from error
    except ValidationError as error:
        raise Refused(400, "invalid_request", schemas.first_problem(error)) from error
    function, writes = ACTIONS[name]
    if not writes:
        return function(route, **fields)
    try:
        with write():
            return function(route, **fields)
    except (Unavailable, Conflict, DatabaseError):
        log.exception("gateway route %s: %s was not written", route.id, name)
        return Outcome({}, 503, "persist_failed", "TaskFlow persistence failed.")


def _knows_secret(route: Route, environ: dict) -> bool:
    """Whether the caller's secret is the route's; `Authorization` wins, even where it is wrong."""
    # Headers are bytes as latin-1, where half a character of UTF-8 can look like a blank.
    scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").strip(" \t").partition(" ")
    if scheme.lower() != "bearer":
        given = environ.get("HTTP_X_AGENT_WEBHOOK_SECRET", "")
    presented = given.strip(" \t").encode("latin-1", "replace")
    return bool(presented) and hmac.compare_digest(presented, route.secret)


def _respond(route: Route, request: Request, outcome: Outcome, headers: dict[str, str]) -> list[bytes]:
    body: Row = {"ok": outcome.status < 400, "routeId": route.id}
    if outcome.status >= 400:
        body |= {"code": outcome.code, "error": outcome.error}
    content = to_json(body | {"result": outcome.result})
    sent = [("Content-Type", "application/json; charset=utf-8"), ("Content-Length", str(len(content)))]
    request.start(f"{outcome.status} {REASONS[outcome.status]}", sent + list(headers.items()))
    return [] if request.environ["REQUEST_METHOD"] == "HEAD" else [content]


# Tables --------------------------------------------------------------------------------------


class Flow(Sequenced):
    """A managed flow of the agent gateway; its times are epoch milliseconds, as they are sent."""

    owner = TextField()  # the session key of the routes that may see it
    sync_mode = TextField()
    controller_id = TextField()
    goal = TextField()
    status = TextField()
    notify_policy = TextField()
    revision = IntegerField()
    current_step = TextField(null=True)
    state_json = JSONText(null=True)  # null was never set; JSON's null is the text "null"
    wait_json = JSONText(null=True)
    blocked_task_id = TextField(null=True)
    blocked_summary = TextField(null=True)
    cancel_requested_at = IntegerField(null=True)
    ended_at = IntegerField(null=True)
    created_at = IntegerField()
    updated_at = IntegerField()

    TERMINAL = ("succeeded", "failed", "cancelled", "lost")

    # A flow of another owner is treated as one that does not exist.
    owned = compiled(
        lambda cls: cls.select(*columns(cls)).where(
            cls.owner == placeholder("owner"), cls.id == placeholder("id")
        )
    )
    # The newest first; flows of the same millisecond in the order in which they were made.
    of_owner = compiled(
        lambda cls: (
            cls.select(*columns(cls))
            .where(cls.owner == placeholder("owner"))
            .order_by(cls.created_at.desc(), cls.seq)
        )
    )

    @classmethod
    def add(cls, owner: str, **fields: Any) -> Row:
        """Make a new flow."""
        id, at = str(uuid.uuid4()), epoch_ms()
        row = {"status": "queued", "notify_policy": "done_only", **fields}
        cls.insertion.run(
            id=id, owner=owner, sync_mode="managed", revision=0, created_at=at, updated_at=at, **row
        )
        return cls.owned.existing(owner=owner, id=id)

    @classmethod
    def swap(cls, flow: Row, at: int, **fields: Any) -> Row:
        """Write these columns as the flow's next revision: compare-and-swap in one statement.

        Raises `Conflict` where the flow has changed since it was read.
        """
        fields |= {"revision": flow["revision"] + 1, "updated_at": at}
        read = {"id": flow["id"], "read_owner": flow["owner"], "read_revision": flow["revision"]}
        if cls._swap_of(tuple(sorted(fields))).run(**fields, **read) != 1:
            raise Conflict("the flow has changed since it was read")
        return cls.owned.existing(owner=flow["owner"], id=flow["id"])

    @classmethod
    @lru_cache(maxsize=64)
    def _swap_of(cls, names: tuple[str, ...]) -> Statement:
        """UPDATE of these columns of a flow whose owner and revision are still those that were read."""
        return cls.update_statement(
            names,
            cls.id == placeholder("id"),
            cls.owner == placeholder("read_owner"),
            cls.revision == placeholder("read_revision"),
        )

    pruning = compiled(
        lambda cls: deletion_of_some(
            cls, (cls.ended_at < placeholder("before")) & cls.status.in_(list(cls.TERMINAL))
        )
    )
    pruning_of_idle = compiled(lambda cls: deletion_of_some(cls, cls._is_idle()))

    @classmethod
    def _is_idle(cls) -> Expression:
        reported = FlowTask.select(SQL("1")).where(
            FlowTask.flow == cls.seq, FlowTask.last_event_at >= placeholder("before")
        )
        return cls.ended_at.is_null() & (cls.updated_at < placeholder("before")) & ~fn.EXISTS(reported)

    @classmethod
    def prune(cls, days: float, most: int = 100) -> int:
        """Delete some flows that ended more than so many days ago, with their tasks; returns how many."""
        return cls.pruning.run(before=epoch_ms() - round(days * 86_400_000), most=most)

    @classmethod
    def prune_idle(cls, days: float, most: int = 100) -> int:
        """Delete some flows that have not ended, and of which nothing was reported for so many days."""
        return cls.pruning_of_idle.run(before=epoch_ms() - round(days * 86_400_000), most=most)


Flow.add_index(Flow.owner, Flow.created_at, name="flow_owner")
Flow.add_index(Flow.ended_at, where=Flow.ended_at.is_null(False), name="flow_ended")
Flow.add_index(Flow.updated_at, where=Flow.ended_at.is_null(), name="flow_idle")


class FlowTask(Sequenced):
    """A child task of a managed flow, as its caller reports it; this service does not run it."""

    flow = ForeignKeyField(Flow, column_name="flow_seq", object_id_name="flow_seq", on_delete="CASCADE")
    runtime = TextField()
    source_id = TextField(null=True)
    child_session_key = TextField(null=True)
    parent_task_id = TextField(null=True)
    agent_id = TextField(null=True)
    run_id = TextField(null=True)
    label = TextField(null=True)
    task = TextField()
    status = TextField()
    notify_policy = TextField()
    progress_summary = TextField(null=True)
    error = TextField(null=True)
    terminal_summary = TextField(null=True)
    terminal_outcome = TextField(null=True)
    created_at = IntegerField()
    started_at = IntegerField(null=True)
    last_event_at = IntegerField()
    ended_at = IntegerField(null=True)
    cleanup_after = IntegerField(null=True)

    of_flow = compiled(lambda cls: cls.select().where(cls.flow == placeholder("flow_seq")).order_by(cls.seq))

    @classmethod
    def add(cls, flow: Row, **fields: Any) -> Row:
        """Make a new task of the flow."""
        id = str(uuid.uuid4())
        cls.insertion.run(id=id, flow_seq=flow["seq"], **fields)
        return cls.row.existing(id=id)

    @classmethod
    def fill(cls, row: Row, **fields: Any) -> Row:
        """Write these columns of the task."""
        if fields:
            cls.set_columns(row["id"], **fields)
        return cls.row.existing(id=row["id"])

    # Cancels what is queued or running of the flow's tasks.
    cancellation = compiled(
        lambda cls: cls.update(
            {
                cls.status: "cancelled",
                cls.error: "Cancelled by operator.",
                cls.ended_at: placeholder("at"),
                cls.last_event_at: placeholder("at"),
                cls.cleanup_after: placeholder("keep_until"),
            }
        ).where(cls.flow == placeholder("flow_seq"), cls.status.in_(["queued", "running"]))
    )


# Views ----------------------------------------------------------------------------------------

# A key, its column, and whether it is left out where it was never set.
FLOW_VIEW = (
    ("flowId", "id", False),
    ("syncMode", "sync_mode", False),
    ("controllerId", "controller_id", True),
    ("revision", "revision", False),
    ("status", "status", False),
    ("notifyPolicy", "notify_policy", False),
    ("goal", "goal", False),
    ("currentStep", "current_step", True),
    ("blockedTaskId", "blocked_task_id", True),
    ("blockedSummary", "blocked_summary", True),
    ("stateJson", "state_json", True),
    ("waitJson", "wait_json", True),
    ("cancelRequestedAt", "cancel_requested_at", True),
    ("createdAt", "created_at", False),
    ("updatedAt", "updated_at", False),
    ("endedAt", "ended_at", True),
)
TASK_VIEW = (
    ("taskId", "id", False),
    ("runtime", "runtime", False),
    ("sourceId", "source_id", True),
    ("childSessionKey", "child_session_key", True),
    ("parentTaskId", "parent_task_id", True),
    ("agentId", "agent_id", True),
    ("runId", "run_id", True),
    ("label", "label", True),
    ("task", "task", False),
    ("status", "status", False),
    ("notifyPolicy", "notify_policy", False),
    ("createdAt", "created_at", False),
    ("startedAt", "started_at", True),
    ("endedAt", "ended_at", True),
    ("lastEventAt", "last_event_at", False),
    ("cleanupAfter", "cleanup_after", True),
    ("error", "error", True),
    ("progressSummary", "progress_summary", True),
    ("terminalSummary", "terminal_summary", True),
    ("terminalOutcome", "terminal_outcome", True),
)


def _view(row: Row, table: tuple[tuple[str, str, bool], ...]) -> Row:
    return {key: row[column] for key, column, left_out in table if not left_out or row[column] is not None}


def view_flow(flow: Row) -> Row:
    """The flow as it is shown: without its owner."""
    return _view(flow, FLOW_VIEW)


def view_task(task: Row, flow: Row) -> Row:
    always = {"scopeKind": "session", "deliveryStatus": "pending", "parentFlowId": flow["id"]}
    return _view(task, TASK_VIEW) | always


# Actions --------------------------------------------------------------------------------------


def create_flow(route: Route, **fields: Any) -> Outcome:
    fields.setdefault("controller_id", route.controller_id)
    return Outcome({"created": True, "flow": view_flow(Flow.add(route.session, **fields))})


def get_flow(route: Route, flow_id: str) -> Outcome:
    return _shown(Flow.owned.one(owner=route.session, id=flow_id))


def list_flows(route: Route) -> Outcome:
    return Outcome({"flows": [view_flow(flow) for flow in Flow.of_owner.all(owner=route.session)]})


def find_latest_flow(route: Route) -> Outcome:
    return _shown(next(iter(Flow.of_owner.all(owner=route.session)), None))


def resolve_flow(route: Route, token: str) -> Outcome:
    flow = Flow.owned.one(owner=route.session, id=token)
    if flow is None and token == route.session:
        flows = Flow.of_owner.all(owner=route.session)
        flow = next((flow for flow in flows if not _ended(flow)), flows[0] if flows else None)
    return _shown(flow)


def _shown(flow: Row | None) -> Outcome:
    return Outcome({"flow": view_flow(flow) if flow else None})


def _ended(flow: Row) -> bool:
    return flow["status"] in Flow.TERMINAL


def get_task_summary(route: Route, flow_id: str) -> Outcome:
    flow = Flow.owned.one(owner=route.session, id=flow_id)
    if flow is None:
        return Outcome({"summary": None})
    tasks = FlowTask.of_flow.all(flow_seq=flow["seq"])
    by_status = {status: sum(task["status"] == status for task in tasks) for status in TASK_STATUSES}
    by_runtime = {runtime: sum(task["runtime"] == runtime for task in tasks) for runtime in TASK_RUNTIMES}
    active = by_status["queued"] + by_status["running"]
    summary = {
        "total": len(tasks),
        "active": active,
        "terminal": len(tasks) - active,
        "failures": by_status["failed"] + by_status["timed_out"] + by_status["lost"],
        "byStatus": by_status,
        "byRuntime": by_runtime,
    }
    return Outcome({"summary": summary})


NOTHING_BLOCKS = {"blocked_task_id": None, "blocked_summary": None}


def set_waiting(at: int, **sent: Any) -> Row:
    blocked = sent.get("blocked_task_id") is not None or sent.get("blocked_summary") is not None
    return sent | {"status": "blocked" if blocked else "waiting", "ended_at": None}


def resume_flow(at: int, **sent: Any) -> Row:
    return {"status": "queued", **sent, "wait_json": "null", **NOTHING_BLOCKS, "ended_at": None}


def finish_flow(at: int, **sent: Any) -> Row:
    return sent | {"status": "succeeded", "wait_json": "null", **NOTHING_BLOCKS, "ended_at": at}


def fail_flow(at: int, **sent: Any) -> Row:
    return sent | {"status": "failed", "wait_json": "null", "ended_at": at}


def request_cancel(at: int) -> Row:
    return {"cancel_requested_at": at}


def mutation(step: Callable[..., Row]) -> Callable[..., Outcome]:
    """An action that writes a flow's next revision, if it is still at the one that the caller expects.

    `step` gets the time and the fields that were sent, and returns the columns to write.
    """

    def mutate(route: Route, flow_id: str, expected_revision: int, **sent: Any) -> Outcome:
        flow = Flow.owned.one(owner=route.session, id=flow_id)
        if flow is None:
            return _not_applied(404, "not_found", "TaskFlow not found.")
        if flow["sync_mode"] != "managed":
            return _not_applied(
                409,
                "not_managed",
                "TaskFlow is not managed by this webhook surface.",
                current=view_flow(flow),
            )
        if flow["revision"] != expected_revision:
            return _not_applied(
                409,
                "revision_conflict",
                "TaskFlow changed since the caller's expected revision.",
                current=view_flow(flow),
            )
        at = epoch_ms()
        return Outcome({"applied": True, "flow": view_flow(Flow.swap(flow, at, **step(at, **sent)))})

    return mutate


def _not_applied(status: int, code: str, error: str, **more: Any) -> Outcome:
    return Outcome({"applied": False, "code": code, **more}, status, code, error)


def cancel_flow(route: Route, flow_id: str) -> Outcome:
    flow = Flow.owned.one(owner=route.session, id=flow_id)
    if flow is None:
        result = {"found": False, "cancelled": False, "reason": "Flow not found."}
        return Outcome(result, 404, "not_found", "TaskFlow not found.")
    if _ended(flow):
        reason = f"Flow is already {flow['status']}."
        result = {"found": True, "cancelled": False, "reason": reason, **_with_tasks(flow)}
        return Outcome(result, 409, "terminal", reason)
    at = epoch_ms()
    if flow["cancel_requested_at"] is None:
        flow = Flow.swap(flow, at, cancel_requested_at=at)
    FlowTask.cancellation.run(flow_seq=flow["seq"], at=at, keep_until=at + KEPT_AFTER_CANCEL)
    flow = Flow.swap(flow, at, status="cancelled", wait_json="null", ended_at=at, **NOTHING_BLOCKS)
    return Outcome({"found": True, "cancelled": True, **_with_tasks(flow)})


def _with_tasks(flow: Row) -> Row:
    return {
        "flow": view_flow(flow),
        "tasks": [view_task(task, flow) for task in FlowTask.of_flow.all(flow_seq=flow["seq"])],
    }


def run_task(route: Route, flow_id: str, prefer_metadata: bool = False, **sent: Any) -> Outcome:
    flow = Flow.owned.one(owner=route.session, id=flow_id)
    if flow is None:
        result = {"found": False, "created": False, "reason": "Flow not found."}
        return Outcome(result, 404, "not_found", "TaskFlow not found.")
    if refusal := _refuses_tasks(flow):
        code, reason = refusal
        result = {"found": True, "created": False, "reason": reason, "flow": view_flow(flow)}
        return Outcome(result, 409, code, reason)
    child = sent.get("child_session_key")
    if child and not child.lower().startswith(route.session.lower() + ":"):
        reason = "childSessionKey must be a descendant of the route's session tree"
        return Outcome({"found": True, "created": False, "reason": reason}, 409, "task_not_created", reason)
    task = _same_run(flow, sent)
    task = _merge(task, sent, prefer_metadata) if task else _add_task(flow, sent)
    return Outcome({"created": True, "flow": view_flow(flow), "task": view_task(task, flow)})


def _refuses_tasks(flow: Row) -> tuple[str, str] | None:
    if flow["sync_mode"] != "managed":
        return "not_managed", "Flow does not accept managed child tasks."
    if flow["cancel_requested_at"] is not None:
        return "cancel_requested", "Flow cancellation has already been requested."
    if _ended(flow):
        return "terminal", f"Flow is already {flow['status']}."
    return None


def _same_run(flow: Row, sent: Row) -> Row | None:
    """The task that reports the same run; a subagent's with another text is another."""
    if "run_id" not in sent:
        return None
    same = ["runtime", "child_session_key", "run_id"]
    if sent["runtime"] == "subagent":
        same += ["label", "task"]
    for task in FlowTask.of_flow.all(flow_seq=flow["seq"]):
        if all(task[name] == sent.get(name) for name in same):
            return task
    return None


def _merge(task: Row, sent: Row, prefer_metadata: bool) -> Row:
    """Fill what the task does not say yet; its status and times stay."""
    names = ("source_id", "parent_task_id", "agent_id", "label")
    filled = {name: sent[name] for name in names if name in sent and task[name] is None}
    if prefer_metadata:
        filled |= {name: sent[name] for name in ("label", "task") if name in sent}
    return FlowTask.fill(task, **filled)


def _add_task(flow: Row, sent: Row) -> Row:
    at = epoch_ms()
    if sent.get("progress_summary"):
        sent["progress_summary"] = " ".join(sent["progress_summary"].split())
    defaults = {
        "status": "queued",
        "notify_policy": "done_only",
        "created_at": at,
        "last_event_at": sent.get("started_at", at),
    }
    return FlowTask.add(flow, **defaults | sent)


# Each action of `schemas.ACTIONS`, and whether it writes.
ACTIONS: dict[str, tuple[Callable[..., Outcome], bool]] = {
    "create_flow": (create_flow, True),
    "get_flow": (get_flow, False),
    "list_flows": (list_flows, False),
    "find_latest_flow": (find_latest_flow, False),
    "resolve_flow": (resolve_flow, False),
    "get_task_summary": (get_task_summary, False),
    "set_waiting": (mutation(set_waiting), True),
    "resume_flow": (mutation(resume_flow), True),
    "finish_flow": (mutation(finish_flow), True),
    "fail_flow": (mutation(fail_flow), True),
    "request_cancel": (mutation(request_cancel), True),
    "cancel_flow": (cancel_flow, True),
    "run_task": (run_task, True),
}
