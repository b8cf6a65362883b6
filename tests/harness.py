"""A real gunicorn on a port that the system chose, a client that checks every answer, and a receiver."""

import contextlib
import io
import itertools
import json
import logging
import os
import queue
import re
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, lru_cache, partialmethod
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

import pytest
import requests
from forks import Forked
from jsonschema_rs import Draft202012Validator, Registry
from peewee import SqliteDatabase
from playhouse.migrations import Runner
from requests.utils import get_encoding_from_headers

import startup
from app import create_app, parts
from database import LOCK_SECONDS, PRAGMAS, Base, db
from models import Task
from settings import config_file, load_settings, resolve_webhooks
from store import MIGRATIONS, prepare
from strictjson import canonical

parts()  # they declare tables, and servers are forks of this process

# Tests start a few hundred programs. Each would compile our modules again, as the tests would theirs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# It hides what is not flushed, and operators do not set it.
os.environ.pop("PYTHONUNBUFFERED", None)

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
OWNER_KEY = "tms_owner-key-of-the-tests-0123456789abcdefghij"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
PLAIN = re.compile(r"http://127\.0\.0\.1:\d+[\w/-]*", re.ASCII)  # addresses that need no quoting
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
EVERY_EVENT = ["task.updated", "task.completed", "comment.added", "member.joined"]
EVERY_EVENT += ["task.created", "task.deleted", "member.invited"]
NOBODY = "01900000-0000-7000-8000-000000000000"  # a well-formed id that names nothing
PATIENCE = 90  # seconds for what an idle machine does in one or two; no test passes by waiting so long
# A receiver that answers has the time for it on a busy machine; what it does not accept is not sent again.
PATIENT = {"TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "60", "TASKS_DELIVERY__RETRY_SCHEDULE": "[3600]"}

EMPTY = {"type": "object", "maxProperties": 0}
# The first of these that is installed; the shell has no windows, and takes half the processor time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)

needs_node = pytest.mark.skipif(not shutil.which("node"), reason="Node is not installed")
needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


def npm_packages(*packages):
    """The `node_modules` of these packages, kept from run to run; a test is skipped where npm cannot be used.

    Each set of packages has a folder of its own, since two processes may install at the same time.
    """
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    folder = ROOT / "tests" / ".npm" / re.sub("[^a-z0-9.]+", "-", packages[0])
    installed = folder / "installed.txt"
    if not installed.exists() or installed.read_text() != str(packages):
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-audit", "--no-fund", "--fetch-retries=1", "--loglevel=error", "--prefix", folder]
        words = ["npm", "install", *options, *packages]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240)
        if done.returncode:
            pytest.skip(f"npm cannot install {' and '.join(packages)}: {done.stderr[:100]}")
        installed.write_text(str(packages))
    return folder / "node_modules"


def output_of(*words, **options):
    """Run a program, which has to succeed, and return what it prints."""
    options = {"capture_output": True, "text": True, "timeout": PATIENCE} | options
    done = subprocess.run(words, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tables(model=Base):
    """The models of all tables of the database: `Base` and its subclasses that have none themselves."""
    models = model.__subclasses__()
    return [table for inner in models for table in tables(inner)] if models else [model]


class Session:
    """Sends what `requests` has prepared: its own way to send takes three quarters of the time of a call.

    A connection is used again unless the server has closed it. Threads use one each.
    """

    def __init__(self):
        self.free = []

    def request(self, method, url, *, timeout=PATIENCE, params=None, headers=None, **body):
        asked = requests.PreparedRequest()
        asked.method, asked.url = method, url
        if params or not PLAIN.fullmatch(url):
            asked.prepare_url(url, params)
        asked.prepare_headers(headers)
        asked.prepare_body(**{"data": None, "files": None} | body)
        status, reason, headers, content = self.send(asked, timeout)
        answer = requests.Response()
        answer.status_code, answer.reason, answer._content = status, reason, content
        for name, value in headers:
            answer.headers[name] = f"{answer.headers[name]}, {value}" if name in answer.headers else value
        answer.encoding = get_encoding_from_headers(answer.headers)
        answer.url, answer.request = asked.url, asked
        return answer

    def send(self, asked, timeout):
        """Return status, reason, headers and body of the answer."""
        line = self.free.pop() if self.free else HTTPConnection(urlsplit(asked.url).netloc)
        if line.sock and select.select([line.sock], [], [], 0)[0]:
            line.close()
        line.timeout = timeout
        if line.sock:
            line.sock.settimeout(timeout)
        body = asked.body.encode() if isinstance(asked.body, str) else asked.body
        chunked = "Transfer-Encoding" in asked.headers
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read
                line.request(asked.method, asked.path_url, body, asked.headers, encode_chunked=chunked)
            received = line.getresponse()
            content = received.read()
        except (OSError, HTTPException) as error:
            line.close()
            kind = requests.ReadTimeout if isinstance(error, TimeoutError) else requests.ConnectionError
            raise kind(error, request=asked) from error
        self.free.append(line)
        return received.status, received.reason, received.getheaders(), content

    def close(self):
        while self.free:
            self.free.pop().close()

    __del__ = close


class Client:
    """Calls the API with one key, and checks of every answer what holds for all of them."""

    def __init__(self, base, key, session=Session):
        self.base, self.key, self.new_session = base, key, session
        self.connect()

    def connect(self):
        self.session, self.used_at = self.new_session(), time.monotonic()

    def request(self, method, path, *, envelope=True, **options):
        if time.monotonic() - self.used_at > 10:  # the server closes what is idle for 15 s, which may be now
            self.connect()
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers |= options.pop("headers", {})
        answer = self.session.request(method, self.base + path, headers=headers, **options)
        self.used_at = time.monotonic()
        if envelope or answer.status_code >= 400:
            check_answer(answer)
        document(self).check(answer)
        return answer

    def get(self, path, **query):
        return self.request("GET", path, params=query)

    def send(self, method, path, body=None, **options):
        return self.request(method, path, json=body, **options)

    post = partialmethod(send, "POST")
    patch = partialmethod(send, "PATCH")
    put = partialmethod(send, "PUT")
    delete = partialmethod(send, "DELETE")

    def data(self, answer, status=200):
        """Return the answer's data; the status must be `status`."""
        assert answer.status_code == status, answer.text
        return answer.json()["data"]

    @cached_property
    def member(self):
        """The member with this key, as it was when a test first asked for it."""
        return self.read("/me")["member"]

    def read(self, path, **query):
        """Return the data of a `GET` that succeeds."""
        return self.data(self.get(path, **query))

    def make(self, path, body=None, **options):
        """Return the data of a `POST` that makes something."""
        return self.data(self.post(path, body, **options), 201)

    def make_project(self, **fields):
        return self.make("/projects", {"name": "A project"} | fields)

    def make_task(self, project, **fields):
        return self.make("/tasks", {"project_id": project["id"], "title": "A task"} | fields)


def close(schema):
    """Let each object of the schema have no members but those that it declares."""
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        close(inner)
    if isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)


class Document:
    """The server's OpenAPI document, by which every answer under /api/v1 is checked.

    In the document answers are open, since later versions may add members; here they are closed.
    """

    first = None
    described, seen = set(), set()  # an operation's own answers, as "get /tasks 200"
    # Tables of tests have these.
    COMMON = ("400", "401", "403", "408", "413", "415", "422", "429", "500", "503")

    def __init__(self, client):
        self.spec = client.session.request("GET", f"{client.base}/openapi.json").json()
        close(self.spec["components"])
        self.registry = self.registered()
        close([method["responses"] for path in self.spec["paths"].values() for method in path.values()])
        for path, methods in self.spec["paths"].items():
            for method, operation in methods.items() if path.startswith("/api/v1/") else ():
                own = operation["responses"].keys() - self.COMMON
                self.described.update(f"{method} {path} {status}" for status in own)
        # Fixed parts of a path go before parameters, as they do in routing.
        self.paths = sorted(self.spec["paths"], key=lambda path: (path.count("{"), path))
        self.patterns = [(re.compile(re.sub("{[^}]*}", "[^/]+", path) + "/?"), path) for path in self.paths]
        self.validators = {}

    def registered(self):
        return Registry([("urn:document", {"components": self.spec["components"]})])

    def check(self, answer):
        """Assert that the document has this answer; unknown paths and methods are not its matter."""
        path = urlsplit(answer.url).path
        method = answer.request.method.lower().replace("head", "get")
        for pattern, template in self.patterns:
            if pattern.fullmatch(path) and method in self.spec["paths"][template]:
                self.validate(answer, template, method)
                break
        else:
            assert answer.status_code in (401, 404, 405), (method, path, answer.status_code)

    def validate(self, answer, template, method):
        """The answer is as documented, and so is the JSON of a request that was not refused."""
        where, status = (template, method), str(answer.status_code)
        operation = self.spec["paths"][template][method]
        assert status in operation["responses"], f"{where} does not document {status}: {answer.text}"
        self.seen.add(f"{method} {template} {status}")
        for name, header in operation["responses"][status].get("headers", {}).items():
            assert name in answer.headers or not header.get("required"), f"{where} has no {name}"
        for name in {"ETag", "Location", "Idempotent-Replayed", "Set-Cookie"} & set(answer.headers):
            documented = operation["responses"][status].get("headers", {})
            assert name in documented, f"{where} does not document {name}"
        response = self.resolved(operation["responses"][status])
        assert answer.headers["Content-Type"].partition(";")[0] in response["content"], (where, status)
        body, kind = answer.request.body, answer.request.headers.get("Content-Type", "")
        if answer.ok and method != "get" and isinstance(body, bytes) and body.strip() and "json" in kind:
            taken = operation.get("requestBody", {"content": {"application/json": {"schema": EMPTY}}})
            sent = json.loads(body).items()  # the service trims texts before it checks them
            trimmed = {name: value.strip() if isinstance(value, str) else value for name, value in sent}
            self.conforms(trimmed, (*where, "request"), taken)
        if answer.request.method != "HEAD" and "json" in answer.headers["Content-Type"]:
            self.conforms(answer.json(), (*where, status), response)

    def resolved(self, response):
        name = response.get("$ref", "").rpartition("/")[2]
        return self.spec["components"]["responses"][name] if name else response

    def conforms(self, value, where, described):
        if where not in self.validators:
            text = json.dumps(described["content"]["application/json"].get("schema", {}))
            # It is compiled alone, and finds the others in the registry.
            schema = json.loads(text.replace('"#/components/', '"urn:document#/components/'))
            options = {"validate_formats": True, "registry": self.registry}
            self.validators[where] = Draft202012Validator(schema, **options)
        problem = next(self.validators[where].iter_errors(value), None)
        assert problem is None, f"{where}: {problem}"


def document(client):
    """The document of the first server that is asked for it: all servers are of the same code."""
    Document.first = Document.first or Document(client)
    return Document.first


def check_answer(answer):
    """The envelope and the headers of contract section 2."""
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    if answer.request.method == "HEAD":
        return
    body = json.loads(answer.content, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    meta = body["meta"]
    assert meta == {"version": "1.1", "timestamp": meta["timestamp"], "request_id": meta["request_id"]}
    assert INSTANT.fullmatch(meta["timestamp"])
    assert re.fullmatch("req_[0-9a-f]{32}", meta["request_id"])
    assert answer.headers["X-Request-Id"] == meta["request_id"]
    assert body["success"] is (answer.status_code < 400)
    assert set(body) == {"success", "data" if body["success"] else "error", "meta"}
    if body["success"]:
        assert isinstance(body["data"], dict)
    else:
        assert set(body["error"]) <= {"code", "message", "details"}
        assert len(answer.content) < 20_000


def fault(answer, status, code, *named):
    """Assert that the answer is this error; every name must be among the fields that it names."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    fields = [detail["field"] for detail in error.get("details", [])]
    assert set(named) <= set(fields), fields
    return error


def read_at_start(environment):
    """The variables that have no effect in a fork: the linker, the C library and Python read them once."""
    prefixes = ("GLIBC_", "LD_", "MALLOC_", "PYTHON")
    return {name: text for name, text in environment.items() if name.startswith(prefixes)}


@cache
def new_database():
    """The bytes of a database without rows; it takes a second to migrate one."""
    with TemporaryDirectory() as folder:
        with SqliteDatabase(f"{folder}/tasks.db", pragmas=PRAGMAS) as database:
            Runner(database, str(MIGRATIONS)).up()
        return Path(folder, "tasks.db").read_bytes()


class Server:
    """A gunicorn of our own: its database and settings in a folder, its log in a file."""

    started, numbers = [], itertools.count()
    forks = False  # whether programs are forked, which the tests that need many of them do
    port = 0  # any, unless it shall start again where it was

    def __init__(self, folder, *, first=None, hooks=None, **settings):
        if hooks:
            settings["TASKS_WEBHOOKS"] = json.dumps(hooks)
        self.folder, self.log = Path(folder), Path(folder) / "log.txt"
        self.database = self.folder / "data" / "tasks.db"
        ours = {name: text for name, text in os.environ.items() if not name.startswith(("TASKS_", "PYTEST_"))}
        ours |= {"TASKS_SERVER__DATABASE": str(self.database), "TASKS_BOOTSTRAP__API_KEY": OWNER_KEY}
        self.environment = ours | {"TASKS_BOOTSTRAP__OWNER_NAME": "Olga Owner", **settings}
        self.under = ()  # the words of a command that runs gunicorn, in the benchmark
        self.first = first  # what a fork calls before it becomes a program
        self.process = None
        self.clients = []
        self.allow_bugs = False

    def start(self, *arguments):
        self.started.append(self)
        may_copy = self.forks and "TASKS_BOOTSTRAP__API_KEY" in self.environment
        if may_copy and not self.database.parent.exists():
            self.make_database(self.database)
        with socket.create_server(("127.0.0.1", self.port)) as listener:
            # gunicorn sets this on sockets of its own; without it each answer takes 40 ms.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.base = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self.process = self.run_gunicorn(listener, arguments)
        with contextlib.suppress(requests.ConnectionError):  # it may be meant to end at once
            requests.get(f"{self.base}/api/v1/health", timeout=PATIENCE)
        return self

    @staticmethod
    def make_database(path):
        """Store a database without rows in a new folder, and return its path."""
        path.parent.mkdir(mode=0o700)
        path.touch(0o600)
        path.write_bytes(new_database())
        return path

    def run_gunicorn(self, listener, arguments):
        if self.can_fork(self.environment):
            words = ["gunicorn", *arguments]
            return Forked(words, ROOT, self.environment, self.log, self.log, listener, self.first)
        with self.log.open("ab") as log:
            words = [*self.under, BIN / "gunicorn", "-b", f"fd://{listener.fileno()}", *arguments]
            options = {"env": self.environment, "pass_fds": [listener.fileno()], "stdout": log, "stderr": log}
            return subprocess.Popen(words, cwd=ROOT, **options)

    def can_fork(self, environment):
        """Whether a fork does what a program of its own would, which another command may have to run."""
        return self.forks and not self.under and read_at_start(environment) == read_at_start(os.environ)

    def stop(self, how=signal.SIGTERM):
        """End it, and return its exit code; bugs in the log fail the test."""
        if self.process is None:
            return None
        self.hang_up()
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self.process = None
        self.check_log()
        return code

    def check_log(self):
        text = self.log.read_text()
        assert self.allow_bugs or ("Traceback" not in text and "a bug" not in text), text
        assert not re.search(r"tm[sc]_[\w-]{30}|/enroll/[\w-]{30}", text), "a credential is in the log"

    def hang_up(self):
        """Close what is kept alive, for which gunicorn waits a little before a worker ends."""
        for client in self.clients:
            client.session.close()

    @contextlib.contextmanager
    def replacing(self):
        """Wait for the workers that take the place of the present ones, after what is done to them inside."""
        before = set(self.children())
        self.hang_up()
        yield
        wait_until(lambda: self.children() and not before & set(self.children()))

    session = Session

    def call(self, method, path, **options):
        """Send a request of any path and headers, and return the answer, which nothing checks."""
        return self.session().request(method, self.base + path, **options)

    def client(self, key=OWNER_KEY):
        self.clients.append(Client(f"{self.base}/api/v1", key, self.session))
        return self.clients[-1]

    def join(self, role="member", **fields):
        """Invite somebody, let them enroll, and return their client."""
        owner, email = self.client(), f"{role}-{next(self.numbers)}@example.com"
        body = {"email": email, "full_name": f"{role.title()} of the tests", "role": role} | fields
        link = owner.make("/members/invite", body)["enrollment_link"]
        joined = owner.data(self.client(None).post(f"/enroll/{link.rpartition('/')[2]}"), 201)
        client = self.client(joined["api_key"])
        client.member = joined["member"]
        return client

    def agent(self, name):
        """Add an agent by the command line, and return its client."""
        return self.client(invoke(self, "member", "add", name, "--agent").stdout.strip())

    def sweep(self):
        """Do now what is due, such as the end of claims; a server's own thread does it."""

    def children(self):
        """The process ids of the workers."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(child) for child in listed.split()]

    def kill(self):
        """End it as a crash would: workers first, while the master cannot start new ones."""
        self.process.send_signal(signal.SIGSTOP)
        ends = [os.pidfd_open(child) for child in self.children()]  # whoever adopts them may reap them late
        for end in ends:
            signal.pidfd_send_signal(end, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.process = None
        for end in ends:
            assert select.select([end], [], [], PATIENCE)[0]
            os.close(end)

    def rows(self, sql, *parameters):
        """Return the rows of a query to the database file, as dicts."""
        with closing(sqlite3.connect(self.database, timeout=PATIENCE)) as database:
            database.row_factory = sqlite3.Row
            with database:
                return [dict(row) for row in database.execute(sql, parameters)]

    def flask(self, *arguments, **options):
        """Run a command of the command line on this server's database."""
        words, environment = ["flask", "--app", "app", *arguments], self.environment | options
        if not self.can_fork(environment):
            command = [BIN / words[0], *words[1:]]
            output = {"capture_output": True, "text": True, "timeout": 300}
            return subprocess.run(command, cwd=ROOT, env=environment, **output)
        with TemporaryDirectory() as folder:
            stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
            code = Forked(words, ROOT, environment, stdout, stderr, first=self.first).wait(300)
            return subprocess.CompletedProcess(words, code, stdout.read_text(), stderr.read_text())


class InProcess(Session):
    """Answers by calling the application, as gunicorn would."""

    def __init__(self, server):
        super().__init__()
        self.server = server

    def send(self, asked, timeout):
        self.server.select()
        path, _, query = asked.path_url.partition("?")
        body = asked.body or b""
        body = body.encode() if isinstance(body, str) else body
        environ = {"REQUEST_METHOD": asked.method, "PATH_INFO": unquote(path, "latin-1"), "SCRIPT_NAME": ""}
        environ |= {"SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1", "wsgi.input": io.BytesIO(body)}
        environ |= {"HTTP_HOST": urlsplit(asked.url).netloc, "wsgi.url_scheme": "http", "QUERY_STRING": query}
        for name, value in asked.headers.items():
            name, is_own = name.upper().replace("-", "_"), name.lower() in ("content-type", "content-length")
            text = value if isinstance(value, str) else value.decode("latin-1")
            environ[name if is_own else f"HTTP_{name}"] = text
        answered = []
        parts = self.server.app(environ, lambda *line: answered.append(line[:2]))
        (status, headers), content = answered[0], b"".join(parts)
        getattr(parts, "close", lambda: None)()
        environ.pop("tasks.request").end()
        return int(status[:3]), status[4:], headers, content


class Local(Server):
    """The application in this process, with a database of its own: for tests that need no socket."""

    base, selected = "http://127.0.0.1:8000", None

    def start(self):
        self.make_database(self.database)
        self.handler = logging.FileHandler(self.log)
        with patch.dict(os.environ, self.environment, clear=True):
            self.app = create_app()
            self.secrets = startup.read_secrets(self.app.config)
        prepare()
        startup.bootstrap(self.app.config, self.secrets.owner_key)
        return self

    def select(self):
        """Let the process use this server's database and settings, after another one's or a command's."""
        if db.database != str(self.database):
            db.disconnect()
            db.init(str(self.database), timeout=5)
        if Local.selected is not self:
            Local.selected = self
            logging.getLogger("tasks").handlers = [self.handler]
            startup.apply_configuration(self.app, self.secrets, 8)

    def session(self):
        return InProcess(self)

    def sweep(self):
        self.select()
        for _, is_due, run in self.app.errands:
            if is_due():
                run()

    def stop(self):
        db.disconnect()
        Local.selected, logging.getLogger("tasks").handlers = None, []
        self.handler.close()
        self.check_log()
        return 0


@lru_cache(maxsize=8)
def application(environment, settings):
    """The application in this environment, with a configuration file of this content, for any database."""
    return create_app()


def invoke(server, *words, **environment):
    """Run a command on this server's database in this process, which takes a tenth of a program's time."""
    with patch.dict(os.environ, given := server.environment | environment, clear=True):
        file, path = config_file(), given.pop("TASKS_SERVER__DATABASE", "")
        app = application(frozenset(given.items()), file.read_bytes() if file.is_file() else None)
        db.init(os.path.realpath(path or app.config["SERVER"]["database"]), timeout=LOCK_SECONDS)
        result = app.test_cli_runner().invoke(args=[str(word) for word in words])
    db.disconnect()  # as the end of a program does
    Local.selected = None  # a command may have set the time zone
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def old_ids(task, count):
    """Rising ids, smaller than any that the server makes, and different for each task."""
    end = task["id"][-8:]
    return [f"0190{end[:4]}-{end[4:]}-7000-8000-{n:012x}" for n in range(count)]


def add_old_comments(server, task, count, content="Old"):
    """Store comments on a task that are older than all others; returns their ids, the oldest first."""
    ids = old_ids(task, count)
    columns = "id, task_id, author_id, content, created_at"
    values = "value, task.id, task.created_by, ? || key, task.created_at"
    sql = f"INSERT INTO comment ({columns}) SELECT {values} FROM json_each(?), task WHERE task.id = ?"
    server.rows(sql, content, json.dumps(ids), task["id"])
    return ids


def add_copies(server, task, count):
    """Store copies of a task, which are listed after it; returns their ids."""
    ids, columns = old_ids(task, count), ", ".join(Task._meta.columns.keys() - {"id", "number"})
    selected = f"SELECT value, {columns} FROM json_each(?), task WHERE task.id = ?"
    server.rows(f"INSERT INTO task (id, {columns}) {selected}", json.dumps(ids), task["id"])
    return ids


def leave_waiting(server, many):
    """Add `many` events that wait for the one webhook: copies of the last one."""
    (last,) = server.rows("SELECT max(seq) AS seq FROM event")
    number = f"WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {many})"
    server.rows(f"""
        {number} INSERT INTO event
        SELECT seq + n, 'evt_' || hex(randomblob(16)), name, body, created_at
        FROM event, number WHERE seq = {last["seq"]}
    """)
    server.rows(f"""
        {number} INSERT INTO delivery
        SELECT hex(randomblob(16)), event_seq + n, webhook_id, status, attempts, blocks_later, next_at,
            NULL, NULL, NULL, NULL, NULL, created_at, refusals
        FROM delivery, number WHERE event_seq = {last["seq"]}
    """)


def last_event(server):
    """The event that was stored last, as a receiver would get it."""
    (row,) = server.rows("SELECT body FROM event ORDER BY seq DESC LIMIT 1")
    return json.loads(row["body"])


def check_new_events(server, client, projects, before):
    """Check that the events after the event `before` show the projects' tasks as they are; return the tasks.

    The bytes are compared, as a receiver that reads them with JavaScript would.
    """
    tasks = {}
    for project in projects:
        rows = client.read("/tasks", project_id=project["id"], limit=100)["tasks"]
        tasks |= {task["id"]: task for task in rows}
    seq = "(SELECT seq FROM event WHERE id = ?)"
    events = server.rows(f"SELECT name, body FROM event WHERE seq > {seq} ORDER BY seq", before["id"])
    for event in (event for event in events if event["name"] != "task.deleted"):
        body = json.loads(event["body"])
        assert body["data"]["task"] == tasks[body["data"]["task"]["id"]], event["name"]
        assert canonical(body) == event["body"]
    assert events
    return tasks


def settable_clock(folder):
    """A function that sets by how many seconds a server's clock is wrong, and the server's environment."""
    offset, new = folder / "offset", folder / "new-offset"

    def set_clock(seconds):
        new.write_text(str(seconds))
        new.replace(offset)  # at once: the server reads the file whenever it looks at its clock

    set_clock(0)
    (folder / "sitecustomize.py").write_text(
        "import sys, time\n"
        "real = time.time_ns\n"
        f"def time_ns():\n    with open({str(offset)!r}) as file:\n"
        "        return real() + int(file.read()) * 1_000_000_000\n"
        "time.time_ns = time_ns\n"
        "time.time = lambda: time_ns() / 1e9\n"
        "if 'times' in sys.modules:  # a fork runs this\n    sys.modules['times'].time_ns = time_ns\n"
    )
    return set_clock, {"PYTHONPATH": str(folder)}


def launcher(folder, kind=Server):
    """Start servers with settings of their own, as environment variables, `hooks` or `config`; end them."""
    numbers, root = itertools.count(), folder
    with contextlib.ExitStack() as ends:  # each runs, even if another one fails

        def start(*arguments, folder=folder, config=None, **settings):
            home = folder / f"server-{next(numbers)}" if folder is root else folder
            home.mkdir(exist_ok=True)
            if config is not None:
                settings["TASKS_CONFIG"] = str(home / "config.toml")
                Path(settings["TASKS_CONFIG"]).write_text(config)
            server = kind(home, **settings)
            ends.callback(server.stop)
            return server.start(*arguments)

        yield start


@contextlib.contextmanager
def ending(process):
    """Terminate the process at the end, else `with process` would wait for it."""
    try:
        yield
    finally:
        process.terminate()


def wait_until(found, seconds=PATIENCE):
    """Poll a condition that nothing announces."""
    ends_at = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < ends_at, "it has not come to pass"
        time.sleep(0.02)
    return value


def wait_past(time):
    """Let the clock move on from a time that the server told, which it tells in milliseconds."""
    wait_until(lambda: datetime.now(UTC) >= datetime.fromisoformat(time) + timedelta(milliseconds=1))


def at_once(*calls):
    """Make these calls from threads that start together; returns their results in order."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@dataclass
class Call:
    """A webhook call as it arrived."""

    path: str
    headers: dict
    body: bytes

    @property
    def event(self):
        return json.loads(self.body)


class Receiver:
    """A webhook receiver that keeps what it gets, and answers as told (200 unless told).

    While it is down, connections to its port are refused; `answer` may hold a request up, or return None for
    no answer at all.
    """

    def __init__(self):
        self.answers, self.calls = [], queue.Queue()
        self.answer = lambda call: self.answers.pop(0) if self.answers else 200
        self.line = self.new_line(0)  # the port is ours from now on, listening or not
        self.url = f"http://127.0.0.1:{self.line.getsockname()[1]}/hook"
        self.httpd = None

    def new_line(self, port):
        """A socket that holds the port, which another one may hold too."""
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        line.bind(("127.0.0.1", port))
        return line

    def up(self):
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                length = int(self.headers["Content-Length"])
                call, status = Call(self.path, dict(self.headers), self.rfile.read(length)), None
                # Unless the sender was killed meanwhile, or the receiver went down.
                if len(call.body) == length and receiver.httpd is self.server:
                    receiver.calls.put(call)
                    status = receiver.answer(call)
                if status is None:
                    self.close_connection = True
                    return
                status, headers = status if isinstance(status, tuple) else (status, {})
                self.send_response(status)
                for name, text in ({"Content-Length": "0"} | headers).items():
                    self.send_header(name, text)
                self.end_headers()

            def log_message(self, *_):
                """Not on the test's own output."""

        self.httpd = ThreadingHTTPServer(self.line.getsockname(), Handler, bind_and_activate=False)
        self.httpd.socket.close()
        self.httpd.socket = self.line
        self.httpd.server_name, self.httpd.server_port = self.line.getsockname()
        self.httpd.daemon_threads = True
        self.httpd.block_on_close = False
        self.httpd.server_activate()
        threading.Thread(target=self.httpd.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def down(self):
        """Refuse connections until it is `up` again; those that are kept alive end with their next call."""
        line = self.new_line(self.line.getsockname()[1])
        self.close()
        self.line, self.httpd = line, None

    def close(self):
        if self.httpd:
            self.httpd.shutdown()
        self.line.close()

    def next(self, seconds=PATIENCE):
        return self.calls.get(timeout=seconds)

    def all_here(self):
        """Return the calls that have arrived, without waiting."""
        return [self.calls.get_nowait() for _ in range(self.calls.qsize())]


def receivers():
    with contextlib.ExitStack() as made:
        yield lambda: made.enter_context(closing(Receiver()))


def hook(receiver, **fields):
    """A webhook of the configuration that sends this receiver everything."""
    return {"url": receiver.url, "secret": "a-secret", "events": EVERY_EVENT, "name": "receiver"} | fields


def resolved(receiver):
    """That webhook as the server has it, for tests in this process."""
    settings = load_settings({"webhooks": [hook(receiver)]})
    (webhook,) = resolve_webhooks({name.upper(): section for name, section in settings.items()})
    return webhook
