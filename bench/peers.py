"""Other ways to build the same service, measured on the same work and with the same tasks.

`table` starts the service and its peers on one core, compares their answers, and measures them in turn.
The peers need packages that the service does not; they are installed beside this file when it is asked for.
"""

import argparse
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import load
import servers
from figures import Summary, alternate, markdown
from operations import OPERATIONS, Request, Workspace
from servers import BENCH, Server, Service

VENV, NPM = BENCH / ".venv", BENCH / ".npm"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = BENCH / "requirements.txt"
JSON_SERVER = "0.17.4"  # the version that npm installs unless asked for another
CONNECTIONS = 8
WRITES_PER_SECOND = 4000  # for which requests are prepared
START_SECONDS = 60
MEASURED = {"get": "get", "list 20": "list project_id", "create": "create"}  # names in OPERATIONS
TARGETS = {"get": 3.0, "list 20": 4.0, "create": 3.0}  # how many times as fast as FastAPI ours should be


# Their programs -------------------------------------------------------------------------------


def install_packages() -> None:
    """Install the Python peers into an environment of their own, unless that is done already."""
    wanted, installed = REQUIREMENTS.read_text(), VENV / "installed.txt"
    if installed.exists() and installed.read_text() == wanted:
        return
    venv.create(VENV, clear=True, with_pip=True)
    pip = [PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-r", REQUIREMENTS]
    subprocess.run(list(map(str, pip)), check=True, stdout=sys.stderr)
    installed.write_text(wanted)


def install_json_server() -> str:
    """Install json-server, unless that is done already; returns why it cannot be, or nothing."""
    package = NPM / "node_modules" / "json-server" / "package.json"
    if missing := [name for name in ("node", "npm") if not shutil.which(name)]:
        return f"{' and '.join(missing)} not found"
    if not package.exists() or json.loads(package.read_text())["version"] != JSON_SERVER:
        words = ["npm", "install", "--silent", "--prefix", NPM, f"json-server@{JSON_SERVER}"]
        if subprocess.run(list(map(str, words)), stdout=sys.stderr).returncode:
            return "npm could not install it"
    return ""


@dataclass(frozen=True)
class Peer:
    """A peer: how it is started, how it gets our tasks, and how it answers."""

    name: str
    remark: str
    words: Callable[[int, Path], list[object]]  # its command line, for a port and the path of its data
    fill: Callable[[Path, Path], None]  # copies our database into its data
    tasks: Callable[[Any], list]  # the tasks in its answer to a list
    total: Callable[[Any], int] | None = None  # how many there are; None where it does not do all the work
    prefix: str = "/api/v1"
    query: str = ""  # that a list takes besides ours

    def request(self, request: Request) -> Request:
        """Our request as this peer takes it."""
        path = self.prefix + request.path.removeprefix("/api/v1")
        return request._replace(path=path + self.query if "?" in path else path)


def fill_tables(module: str) -> Callable[[Path, Path], None]:
    """How a module's tables are made and filled with the rows of ours."""

    def fill(source: Path, target: Path) -> None:
        program = f"import {module}; {module}.create_tables()"
        subprocess.run([str(PYTHON), "-c", program], cwd=BENCH, env=environment(target), check=True)
        with closing(sqlite3.connect(target, isolation_level=None)) as connection:
            connection.execute("ATTACH ? AS ours", (str(source),))
            connection.execute("BEGIN")
            tables = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            for (table,) in connection.execute(tables).fetchall():
                names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
                values = [stored_time(name) if name.endswith(("_at", "_date")) else name for name in names]
                insertion = f"INSERT INTO main.{table} ({', '.join(names)})"
                selection = f"SELECT {', '.join(values)} FROM ours.{table}"  # noqa: S608 - names of a schema
                connection.execute(f"{insertion} {selection}")
            connection.execute("COMMIT")
            connection.execute("ANALYZE main")
            if problems := connection.execute("PRAGMA main.foreign_key_check").fetchall():
                raise RuntimeError(f"{module}: rows refer to rows that do not exist: {problems[:5]}")

    return fill


def stored_time(column: str) -> str:
    """SQL of one of our times as SQLAlchemy and Django store it in SQLite."""
    return f"replace(replace({column}, 'T', ' '), 'Z', '000')"


def fill_json(source: Path, target: Path) -> None:
    """Write our tasks as json-server reads them, newest first, since it keeps the order of its file."""
    with closing(sqlite3.connect(source)) as connection:
        cursor = connection.execute("SELECT * FROM task ORDER BY id DESC")
        names = [column[0] for column in cursor.description]
        tasks = [dict(zip(names, row, strict=True)) for row in cursor]
    for task in tasks:
        del task["search"]
        task["metadata"] = json.loads(task["metadata"])
    target.write_text(json.dumps({"tasks": tasks}, indent=2))


FASTAPI = Peer(
    "FastAPI",
    "FastAPI, SQLAlchemy 2, pydantic; uvicorn with uvloop and httptools, one worker, no access log",
    lambda port, data: [
        *(VENV / "bin" / "uvicorn", "peer_fastapi:app", "--port", port, "--workers", 1),
        *("--no-access-log", "--log-level", "warning"),
    ],
    fill_tables("peer_fastapi"),
    lambda answer: answer["tasks"],
    lambda answer: answer["total"],
)
DJANGO = Peer(
    "Django",
    "Django, Django REST framework; gunicorn, one gthread worker, 16 threads, no access log",
    lambda port, data: [
        *(VENV / "bin" / "gunicorn", "peer_django", "--bind", f"127.0.0.1:{port}", "--workers", 1),
        *("--worker-class", "gthread", "--threads", 16, "--log-level", "warning", "--no-control-socket"),
    ],
    fill_tables("peer_django"),
    lambda answer: answer["results"],
    lambda answer: answer["count"],
)
JSON_SERVER_PEER = Peer(
    f"json-server {JSON_SERVER}",
    "stores one JSON file, rewritten by each change; no authentication, related objects, activity or events",
    lambda port, data: [
        *("node", NPM / "node_modules" / "json-server" / "lib" / "cli" / "bin.js", data),
        *("--host", "127.0.0.1", "--port", port, "--quiet"),
    ],
    fill_json,
    lambda answer: answer,
    prefix="",
    query="&_limit=20",
)


def environment(data: Path) -> dict[str, str]:
    return servers.environment(data) | {"DATABASE": str(data)}


class PeerServer(Server):
    """A peer on the servers' core and a port of its own."""

    def __init__(self, peer: Peer, core: int, data: Path):
        """Start it, and wait until it accepts connections. Not all peers could be given a socket."""
        self.log = data.with_suffix(".log")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        words = ["taskset", "-c", str(core), *map(str, peer.words(self.port, data))]
        started = time.perf_counter()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, cwd=BENCH, env=environment(data), stdout=log, stderr=log, start_new_session=True
            )
        try:
            while not self.answers():
                if self.process.poll() is not None or time.perf_counter() > started + START_SECONDS:
                    raise RuntimeError(f"{peer.name} did not start: {self.log.read_text()[-2000:]}")
                time.sleep(0.05)
            self.start_seconds = time.perf_counter() - started
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            self.worker = int(children.split()[0]) if children else self.process.pid  # gunicorn has a child
        except BaseException:
            self.stop()
            raise

    def answers(self) -> bool:
        """Whether it answers a request, with whatever status."""
        try:
            with closing(HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)) as connection:
                connection.request("GET", "/")
                return connection.getresponse().status > 0
        except OSError:
            return False


# Their answers --------------------------------------------------------------------------------


def ask(port: int, request: Request) -> Any:
    """The JSON of the answer. Raises `RuntimeError` unless it is a success."""
    headers = request.headers() | ({"Content-Type": "application/json"} if request.body else {})
    with closing(HTTPConnection("127.0.0.1", port, timeout=load.TIMEOUT)) as connection:
        connection.request(request.method, request.path, request.body and json.dumps(request.body), headers)
        answer = connection.getresponse()
        content = answer.read()
    if answer.status not in (200, 201):
        raise RuntimeError(f"{request.method} {request.path}: {answer.status} {content[:1000]!r}")
    return plain(json.loads(content))


def plain(value: Any) -> Any:
    """The value with its times as such, which servers write with different numbers of digits."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return datetime.fromisoformat(value)
    return value


def check(peer: Peer, port: int, data: Path, ours: int, requests: dict[str, Request]) -> None:
    """Compare an answer to each operation with ours. Raises `RuntimeError` for a difference."""
    theirs = {name: ask(port, peer.request(request)) for name, request in requests.items()}
    expected = {name: ask(ours, requests[name])["data"] for name in ("get", "list 20")}
    task, page, created = theirs["get"], expected["list 20"], theirs["create"]
    same = plain(requests["create"].body).items() <= created.items()
    if peer.total is None:
        same &= task.items() <= expected["get"].items() and peer.tasks(theirs["list 20"]) == page["tasks"]
    else:
        same &= task == expected["get"] and peer.tasks(theirs["list 20"]) == page["tasks"]
        same &= peer.total(theirs["list 20"]) == page["pagination"]["total"]
        with closing(sqlite3.connect(data)) as connection:
            activity = "SELECT action, entity FROM activity WHERE entity_id = ?"
            same &= connection.execute(activity, (created["id"],)).fetchall() == [("created", "task")]
            body = "SELECT body FROM event WHERE name = 'task.created' ORDER BY seq DESC"
            event = plain(json.loads(connection.execute(body).fetchone()[0]))
            same &= event["data"]["task"] == created
    if not same:
        raise RuntimeError(f"{peer.name} answers otherwise than we do: {theirs}; ours: {expected}")


# The table ------------------------------------------------------------------------------------


def table(options: argparse.Namespace) -> str:
    """Measure the service and its peers; returns two tables in Markdown.

    Raises `RuntimeError` for an answer that differs from ours, and for any error under load.
    """
    core, _ = servers.cores()
    install_packages()
    reason = install_json_server()
    peers = [FASTAPI, DJANGO] if reason else [FASTAPI, DJANGO, JSON_SERVER_PEER]
    with TemporaryDirectory(prefix="peers-") as name, ExitStack() as stack:
        folder = Path(name)
        servers.seed(folder / "ours.db", options.tasks)
        ours = stack.enter_context(Service(folder / "ours.db", core, {}))
        workspace = Workspace(ours)
        number = int(WRITES_PER_SECOND * options.seconds)
        requests = {
            name: OPERATIONS[operation].requests(workspace, number) for name, operation in MEASURED.items()
        }
        running: dict[str, Server] = {"ours": ours}
        for place, peer in enumerate(peers):
            data = folder / f"{place}.{'json' if peer is JSON_SERVER_PEER else 'db'}"
            peer.fill(ours.database, data)
            running[peer.name] = stack.enter_context(PeerServer(peer, core, data))
            first = {name: some[0] for name, some in requests.items()}
            check(peer, running[peer.name].port, data, ours.port, first)
        memory = {name: server.memory_mb() for name, server in running.items()}
        rows = []
        for name, some in requests.items():
            encoded = {"ours": [request.encoded() for request in some]}
            encoded |= {peer.name: [peer.request(request).encoded() for request in some] for peer in peers}
            rows += measure(name, running, encoded, options)
        memory_rows = [
            [name, f"{memory[name]:.0f}", f"{server.memory_mb():.0f}"] for name, server in running.items()
        ]
    remarks = {peer.name: peer.remark for peer in peers}
    for row in memory_rows:
        row.append(remarks.get(row[0], "the default configuration; one worker, 16 threads, with a log line"))
    if reason:
        memory_rows.append([JSON_SERVER_PEER.name, "", "", f"left out: {reason}"])
    headings = "operation|system|requests/s|min–max|ours is|target|CPU µs|p50 ms|p99 ms"
    speed = markdown(f"Peers, {options.tasks} tasks, {CONNECTIONS} connections", headings, rows)
    return speed + "\n" + markdown("The peers", "system|MB at first|MB at last|remarks", memory_rows)


def measure(
    name: str, running: dict[str, Server], requests: dict[str, list[bytes]], options: argparse.Namespace
) -> list[list[str]]:
    """Rows of one operation: each server in turn, round after round."""

    def run(system: str) -> load.Result:
        result = running[system].run(requests[system], CONNECTIONS, options)
        if result.errors or not result.requests:
            raise RuntimeError(f"{system}, {name}: {result}")
        return result

    results = alternate([partial(run, system) for system in running], options.rounds)
    summaries = dict(zip(running, map(Summary, results), strict=True))
    rows = []
    for system, summary in summaries.items():
        ratio = summaries["ours"].over(summary)
        target = TARGETS[name] if system == FASTAPI.name else None
        rows.append(
            [
                *(name, system, *summary.rates()),
                "" if system == "ours" else f"{ratio:.1f} times",
                "" if target is None else f"{target:.1f} {'met' if ratio >= target else 'missed'}",
                *(f"{summary.cpu:.0f}", f"{summary.p50:.1f}", f"{summary.p99:.1f}"),
            ]
        )
    return rows
