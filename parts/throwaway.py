"""A server to throw away, for the tests of other programs: its command, and its paths besides the API.

Each worker wraps the application in `Throwaway` only if `SERVED` names the database that is served, so
that nobody can reset a workspace that is used. docs/testing.md says how to use it.
"""

import errno
import hmac
import os
import re
import secrets
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext, suppress
from fnmatch import fnmatchcase
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, BinaryIO

import click
import orjson
from gunicorn.workers import gthread
from marshmallow import ValidationError, fields, validate, validates_schema

import database
import gateway
import members
import models
import schemas
import store
import strictjson
import times
import webhooks
from commands import HOME, as_click_errors, cli, fetch_actor, make_link
from database import EncodedJSON, Row, db
from errors import ApiError, Unauthorized, not_found
from limits import READ_SECONDS
from outbox import EVENTS, OPTIONAL_EVENTS, Event, Result, Webhook
from parts.demo import Demonstration, today_option
from settings import GIVEN, Number, SettingsError, bootstrap_key, read_settings
from startup import add_owner, prepare_database, read_webhooks
from wire import (
    STATUS_LINES,
    Request,
    Response,
    as_api_error,
    envelope,
    failure,
    load_arguments,
    success,
    thread_local,
)

# The command ----------------------------------------------------------------------------------

SERVED = "THROWAWAY"  # the variable with the path of the database that this command has made
INBOX_PATH = "/throwaway/webhooks"
GUNICORN_VARIABLES = ("PORT", "WEB_CONCURRENCY", "GUNICORN_CMD_ARGS")
STOPPING: set[int] = {signal.SIGINT, signal.SIGTERM}
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup sets it
    STOPPING.add(signal.SIGHUP)
# The signals that have arrived. A handler that raises could leave a program running that is being started.
stopped: list[int] = []


@cli.command(context_settings={"allow_interspersed_args": False})
@click.option("--seed", type=int, help="Fill the workspace as the command seed does.")
@today_option
@click.option("--log", type=click.File("ab"), help="Append the server's log here (default: standard error).")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@as_click_errors(SettingsError, LookupError, OSError, database.BadDatabase)
def throwaway(seed: int | None, today: int | None, log: BinaryIO | None, command: tuple[str, ...]) -> None:
    """Serve a new workspace until Ctrl-C, or while COMMAND runs.

    The workspace is in a temporary folder, which is deleted at the end. Settings come from the environment,
    not from config.toml. When the server is ready, its address and the keys of the owner and of the other
    roles are printed in one line, TASKS_URL=... TASKS_KEY=..., followed by a sign-in link. With a COMMAND,
    they replace all TASKS_ variables in its environment, and its exit code is returned. docs/testing.md
    describes what this server adds to the API: resets, faults, a clock, and more.
    """
    if today is not None and seed is None:
        raise click.UsageError("--today needs --seed")
    for number in STOPPING:
        signal.signal(number, lambda number, _: stopped.append(number))
    with TemporaryDirectory(prefix="tasks-") as folder:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            config = configure_throwaway(folder, f"http://127.0.0.1:{listener.getsockname()[1]}")
            if seed is not None:
                seed_throwaway(config, seed, today)
            server = start_throwaway(listener, log or sys.stderr.buffer)
        try:
            code = use_throwaway(server, config, command, seed is not None)
        finally:
            server.terminate()
            server.wait()
    sys.exit(code)


def configure_throwaway(folder: str, url: str) -> dict[str, Any]:
    """Set the environment of the server, this process and COMMAND; return the configuration.

    Raises `SettingsError` and `LookupError`.
    """
    os.environ |= {"TASKS_CONFIG": os.devnull, "TASKS_SERVER__DATABASE": f"{folder}/tasks.db"}
    os.environ["TASKS_SERVER__BASE_URL"] = url
    os.environ.setdefault("TASKS_BOOTSTRAP__API_KEY", members.KEY_PREFIX + secrets.token_urlsafe(32))
    read_settings({})  # raises if the webhooks are not a list
    every = EVENTS + OPTIONAL_EVENTS
    inbox = {"name": "inbox", "url": url + INBOX_PATH, "secret": "inbox", "events": every}
    others = orjson.loads(os.environ.get("TASKS_WEBHOOKS", "[]"))
    os.environ["TASKS_WEBHOOKS"] = orjson.dumps([*others, inbox]).decode()
    config = {section.upper(): values for section, values in read_settings({}).items()}
    key = str(bootstrap_key(config))
    keys = [members.KEY_PREFIX + database.digest(f"{name} {key}") for name in GIVEN[2:]]
    os.environ |= dict(zip(GIVEN, (url, key, *keys), strict=True))
    database.db.init(config["SERVER"]["database"], timeout=database.LOCK_SECONDS)
    return config


def seed_throwaway(config: dict[str, Any], seed: int, today: int | None) -> None:
    """Create the database with an owner and a demonstration, which are equal for the same seed and day."""
    prepare_database(read_webhooks(config))
    with models.write(request_id=f"req_{0:032x}") as transaction:
        demonstration = Demonstration(transaction, seed, 200, today)
        past = demonstration.past(-63, {})  # before everything else
        transaction.actor, _ = add_owner(past, config, bootstrap_key(config))
        demonstration.fill(lambda rows, **_: nullcontext(rows))
        add_keys(demonstration.past(0, transaction.actor))
    store.optimize()
    database.db.disconnect()


def add_keys(transaction: members.Transaction) -> None:
    """Make the keys in `GIVEN` for the oldest member of each role; add a member to a role without one."""
    newest_first = sorted(members.Member.everyone(), key=lambda member: member["id"], reverse=True)
    holders = {row["role"]: row for row in newest_first} | {"read": transaction.actor}
    for variable in GIVEN[2:]:
        name = variable.rpartition("_")[2].lower()
        fields = {"full_name": name.title(), "email": f"{name}@example.com", "role": name}
        holder = holders.get(name) or members.Member.add(transaction, status=members.Member.ACTIVE, **fields)
        more = {"name": name, "scope": "read" if name == "read" else "write"}
        members.ApiKey.issue(transaction, holder["id"], key=os.environ[variable], **more)


def start_throwaway(listener: socket.socket, log: BinaryIO) -> Popen:
    # gunicorn sets this on its own sockets; without it each response takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # `GUNICORN_VARIABLES` may be meant for the program that is tested.
    environment = {name: os.environ[name] for name in os.environ if name not in GUNICORN_VARIABLES}
    environment[SERVED] = database.db.database
    environment.setdefault("PIN_WORKERS", "0")  # it sends to itself, which is slower on one core
    # A terminal sends Ctrl-C to all processes of a group. COMMAND may still need the server then.
    options: Row = {"process_group": 0, "cwd": HOME, "env": environment, "pass_fds": [listener.fileno()]}
    words = (sys.executable, "-m", "gunicorn", "-b", f"fd://{listener.fileno()}")
    return Popen(words, **options, stdin=DEVNULL, stdout=log, stderr=log)  # noqa: S603 - no shell


def use_throwaway(server: Popen, config: dict[str, Any], command: tuple[str, ...], is_seeded: bool) -> int:
    """Serve until the command or, without one, the server ends; return the exit code."""
    address = os.environ["TASKS_URL"].removeprefix("http://")
    while not is_healthy(address) and not stopped:
        if server.poll() is not None:
            raise click.ClickException("the server did not start; its log says why")
    if stopped:
        return 128 + stopped[0]
    owner = fetch_actor(None)
    if not is_seeded:
        with models.write(owner) as transaction:
            add_keys(transaction)
    link = "" if command else make_link(config, owner, owner)[0]
    store.backup(start_of_throwaway())
    database.db.disconnect()
    if command:
        given = {k: v for k, v in os.environ.items() if not k.startswith("TASKS_") or k in GIVEN}
        # A terminal sends Ctrl-C to the command too, which handles it as it likes.
        return wait(Popen(command, env=given), STOPPING - {signal.SIGINT})  # noqa: S603 - what the user named
    click.echo(" ".join(f"{name}={os.environ[name]}" for name in GIVEN))
    click.echo(f"Sign in with this link, once, within a day:  {link}")
    if wait(server, STOPPING):
        raise click.ClickException("the server has ended; its log says why")
    return 0


def start_of_throwaway() -> Path:
    """Return the path of the copy to which a reset goes back: of the start, or of the last baseline."""
    return Path(f"{database.db.database}.start")


def wait(program: Popen, stopping: set[int]) -> int:
    """Wait for a program, which these signals terminate; return its exit code as a shell would."""
    for number in stopping:
        signal.signal(number, lambda *_: program.terminate())
    if stopping.intersection(stopped):
        program.terminate()
    code = program.wait()
    return code if code >= 0 else 128 - code


def is_healthy(address: str) -> bool:
    """Return whether the server answers within a second that it is healthy."""
    with closing(HTTPConnection(address, timeout=1)) as connection, suppress(OSError, HTTPException):
        connection.request("GET", f"{schemas.API}/health")
        return connection.getresponse().status == 200
    return False


# Its paths and faults -------------------------------------------------------------------------

PREFIX = "/throwaway/"
INBOX_MOST = 1000  # the newest deliveries, which are kept
INBOX_BYTES = 8 * 1024 * 1024
INBOX_SECONDS = 5  # that a response waits for pending deliveries
SHOWN_HEADERS = ("content-type", "x-service-", "webhook-")
JOURNAL_MOST = 500  # the newest requests, which are kept,
JOURNAL_BYTES = 32 * 1024  # with the beginnings of body and response
CLOCK_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
CLOCK_MOST = 36500 * 86400  # seconds that the clock can be ahead
PUT_OFF = {"late": None, "out_of_order": 409}  # the status of the receiver: no answer, or a refusal
# The tables that are compared, by the columns that name their rows, and the columns that are not shown.
COMPARED = {"task": "title", "member": "full_name", "comment": "content", "attachment": "filename"}
COMPARED |= {table.NOUN: table.TITLE for table in models.Resource.__subclasses__()}
UNSTABLE = [*models.HIDDEN, "id|key_id|version|mentions|claimed_until|(?!starts|ends).*_at"]

MATCH = 'a method and a path, such as "POST /api/v1/tasks", or a URL; * stands for any text'
ERRORS = validate.OneOf([code for code in STATUS_LINES if code >= 400], error="must be one of {choices}")
WHOLE = {**schemas.MESSAGES, "invalid": "must be the status of an error, such as 503"}


class FaultInput(schemas.Strict):
    """A fault of the next requests with this method and path, or of deliveries to a URL."""

    match = schemas.matching(r"([A-Z]+|\*) (/|\*|https?:)[^\s?\[\]]*", MATCH, required=True)
    times = schemas.JSONInteger(1, 1000, load_default=1)
    status = fields.Integer(strict=True, validate=ERRORS, error_messages=WHOLE)
    delay = Number(0, 60)  # seconds
    drop = schemas.Choice(("before", "after"))  # the commit
    webhook = schemas.Choice(("twice", "wrong_signature", *PUT_OFF))  # `match` is "POST URL" then

    @validates_schema
    def _is_one_fault(self, data: Row, **_: Any) -> None:
        given = [name for name in ("status", "delay", "drop", "webhook") if name in data]
        if len(given) != 1:
            raise ValidationError("give one of status, delay, drop and webhook", (given or ["status"])[-1])


FAULT = FaultInput()
LEAP = schemas.matching("[1-9][0-9]{0,4}[smhd]", '1 to 99999 with s, m, h or d, such as "3d"', required=True)
CLOCK = schemas.Strict.from_dict({"advance": LEAP})()


def as_sent(chunks: Iterable[bytes]) -> str | None:
    """Return the beginning of the bytes, as JSON or else as text, or None without any."""
    data = b"".join(chunks)[:JOURNAL_BYTES]
    with suppress(ValueError):
        orjson.loads(data)
        return EncodedJSON(data.decode())
    return data.decode(errors="replace") or None


def compared_rows(path: str | Path) -> dict[str, tuple[str, Row]]:
    """Return kind and columns of the rows to compare, by their ids, in their order."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = ((kind, connection.execute(f"SELECT * FROM {kind} ORDER BY id")) for kind in COMPARED)  # noqa: S608
        return {row["id"]: (kind, dict(row)) for kind, table in rows for row in table}


def wrap_application(worker: Any) -> None:
    """Let this worker serve as a throwaway server, if it serves the database that `throwaway` has made."""
    if os.environ.get(SERVED) == db.database:
        gthread.STOP_KEEPALIVE_LINGER = 0.0  # no client is about to send; a stop would take 2 s
        worker.wsgi.wsgi_app = Throwaway(worker)


def register(app: Any) -> None:
    app.workers.append(wrap_application)


class Throwaway:
    """The application with faults and with the paths of a throwaway server."""

    def __init__(self, worker: Any):
        self.worker, self.app, self.serve = worker, worker.wsgi, worker.wsgi.wsgi_app
        self.lock = threading.Lock()
        self.faults: list[Row] = []
        self.inbox: deque[Row] = deque(maxlen=INBOX_MOST)
        self.journal: deque[Row] = deque(maxlen=JOURNAL_MOST)
        self.start_ahead = 0  # `times.ahead` in the state to which a reset goes back
        self.send, webhooks.send = webhooks.send, self.send_or_fail

    def __call__(self, environ: Row, start_response: Callable) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith(PREFIX):
            return self.answer(environ, start_response)
        if "RAW_URI" not in environ:  # a tool of agents calls the API
            return self.answer_or_fail(environ, start_response)
        entry = dict(method=environ["REQUEST_METHOD"], path=environ["RAW_URI"], status=None, answer=None)
        read, parts = environ["wsgi.input"].read, list[bytes]()
        environ["wsgi.input"] = SimpleNamespace(read=lambda size: parts.append(read(size)) or parts[-1])  # type: ignore[func-returns-value]
        try:
            chunks = self.answer_or_fail(environ, start_response)
            entry["status"] = start_response.__self__.status_code  # type: ignore[attr-defined]  # gunicorn's
            if isinstance(chunks, list):  # not a file of the page, which can be read once
                entry["answer"] = as_sent(chunks)
        finally:
            self.journal.appendleft(entry | {"body": as_sent(parts)})
        return chunks

    def answer_or_fail(self, environ: Row, start_response: Callable) -> Iterable[bytes]:
        """Return the application's response, or do what a fault says."""
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

    def send_or_fail(self, delivery: Row, webhook: Row, seconds: float) -> Result:
        """Send a delivery, or do what a fault says; deliveries to the inbox have no faults."""
        is_inbox = webhook["name"] == "inbox"
        kind = None if is_inbox else self.next_fault(f"POST {webhook['url']}", True).get("webhook")
        if kind in PUT_OFF:
            return Result(PUT_OFF[kind], "a fault", 0.0, retry_after=1.0)
        if kind == "wrong_signature":
            webhook = webhook | {"secrets": ["another secret"]}
        if kind == "twice":
            self.send(delivery, webhook, seconds)
        return self.send(delivery, webhook, seconds)

    def next_fault(self, asked: str, of_webhook: bool = False) -> Row:
        """Use and return the oldest fault for this method and path, or webhook's URL, or else {}."""
        with self.lock:
            for fault in self.faults:
                if fnmatchcase(asked, fault["match"]) and ("webhook" in fault) == of_webhook:
                    fault["times"] -= 1
                    self.faults = [other for other in self.faults if other["times"]]
                    return fault
        return {}

    def begin(self, environ: Row, start_response: Callable) -> Request:
        environ["tasks.request"] = thread_local.request = current = Request(self.app, environ, start_response)
        current.in_api = True  # so that errors are JSON
        return current

    def refuse(self, status: int, environ: Row, start_response: Callable) -> Iterable[bytes]:
        """Answer with the API's error for this status."""
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
            ("POST", f"{PREFIX}baseline"): self.set_baseline,
            ("GET", f"{PREFIX}diff"): self.show_diff,
            ("GET", f"{PREFIX}requests"): lambda _: success({"requests": list(self.journal)}, 200),
            ("POST", f"{PREFIX}clock"): self.advance_clock,
            ("POST", f"{PREFIX}faults"): self.add_fault,
            ("GET", INBOX_PATH): self.show_inbox,
        }
        asked = current.method, current.path
        try:
            view: Callable = self.receive  # what its own webhook sends
            if asked != ("POST", INBOX_PATH):
                self.authenticate(current)
                view = views.get(asked) or not_found(f"path; there are {', '.join(map(' '.join, views))}")
            response = view(current)
        except Exception as error:
            response = failure(as_api_error(error))
        return response(environ, current.start)

    def authenticate(self, current: Request) -> None:
        """Raise `Unauthorized` without the key that the command printed, which works even when revoked.

        A session does not suffice: a page of another origin must not be able to reset a workspace.
        """
        expected = f"Bearer {os.environ[GIVEN[1]]}"
        if not hmac.compare_digest(current.environ.get("HTTP_AUTHORIZATION", "").encode(), expected.encode()):
            raise Unauthorized("send the header Authorization: Bearer $TASKS_KEY, with the key of throwaway")

    def reset(self, current: Request) -> Response:
        """Go back to the state of the start or of the baseline."""
        with closing(sqlite3.connect(start_of_throwaway())) as start, closing(db._connect()) as present:
            present.execute("PRAGMA synchronous = off")
            members.ApiKey.used.clear()  # or the sweeper would write it after the reset
            start.backup(present, sleep=0.005)  # in one transaction, like another process
        times.put_ahead(self.start_ahead)
        for limit in filter(None, (self.app.rate_limit, self.app.tool_limit, gateway.intake.rate_limit)):
            limit.clear()
        with self.lock:  # after the commit, so that `receive` finds no older event
            self.faults = []
            self.inbox.clear()
            self.journal.clear()
        return success({"reset": True}, 200)

    def set_baseline(self, current: Request) -> Response:
        """Let resets go back to the present state, after pending deliveries."""
        self.show_inbox(current)  # waits for them
        store.backup(start_of_throwaway())
        self.start_ahead = times.ahead
        return success({"baseline": True}, 200)

    def show_diff(self, current: Request) -> Response:
        """Return the rows created, changed and deleted since the start or baseline, with names for ids."""
        before, after = compared_rows(start_of_throwaway()), compared_rows(db.database)
        names: dict[Any, str] = {id: row[COMPARED[kind]] for id, (kind, row) in (before | after).items()}
        diff: dict[str, dict[str, list[Row]]] = {}
        for id, (kind, row) in (before | after).items():
            old, new = (rows[id][1] if id in rows else {} for rows in (before, after))
            fields = [f for f in row if old.get(f) != new.get(f) and not re.fullmatch("|".join(UNSTABLE), f)]
            changes = {f: [names.get(value, value) for value in (old.get(f), new.get(f))] for f in fields}
            action = "changed" if old and new else "deleted" if old else "created"
            if changes:
                entry = {f: row[f] for f in ("number", COMPARED[kind]) if f in row} | {"changes": changes}
                diff.setdefault(kind, {}).setdefault(action, []).append(entry)
        return success(diff, 200)

    def advance_clock(self, current: Request) -> Response:
        step = load_arguments(CLOCK, current.get_json())["advance"]
        times.put_ahead(min(times.ahead + int(step[:-1]) * CLOCK_UNITS[step[-1]], CLOCK_MOST))
        webhooks.sending.has_work.set()  # the sweeper looks at once
        return success({"now": times.now()}, 200)

    def add_fault(self, current: Request) -> Response:
        fault = load_arguments(FAULT, current.get_json())
        with self.lock:
            self.faults = [*self.faults, fault]
        return success(fault, 201)

    def show_inbox(self, current: Request) -> Response:
        """Return the deliveries, after waiting for those that are pending."""
        ends_at = time.monotonic() + INBOX_SECONDS
        while time.monotonic() < ends_at and self.worker.alive:
            if not any(row["pending"] for row in Webhook.backlog.all() if row["name"] == "inbox"):
                break
            time.sleep(0.01)
        return success({"deliveries": list(self.inbox)}, 200)

    def receive(self, current: Request) -> Response:
        """Store a delivery of the webhook `inbox`, unless its event is from before a reset."""
        body = current.read(INBOX_BYTES, READ_SECONDS)
        strictjson.parse_json(body)
        headers = {name.lower(): text for name, text in current.headers.items()}
        shown = {name: text for name, text in headers.items() if name.startswith(SHOWN_HEADERS)}
        with self.lock:
            if Event.seq_of.value(id=headers.get("webhook-id")) is not None:
                self.inbox.append({"headers": shown, "body": EncodedJSON(body.decode())})
        current.close_connection()  # the sender would keep it, and the end of the server wait for it
        return Response(b"", 204)
