"""Other ways to build the same service, measured on the same work and with the same tasks.

They need packages that the service does not, and that are installed beside this file when they are asked for.
"""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import load
import requests
import servers
from figures import Summary, alternate
from harness import wait_until
from operations import OPERATIONS, Request, Workspace
from servers import BENCH

VENV, NPM = BENCH / ".venv", BENCH / ".npm"
JSON_SERVER = "0.17.4"
JSON_SERVER_PROGRAM = NPM / "node_modules" / "json-server" / "lib" / "cli" / "bin.js"
MEASURED = {"get": "get", "list 20": "list project_id", "create": "create"}  # names in OPERATIONS
TARGETS = {"get": 3.0, "list 20": 4.0, "create": 3.0}  # how many times as fast as FastAPI ours should be


# Their programs -------------------------------------------------------------------------------


def install_fastapi() -> str:
    """Install the Python packages, unless that is done already; returns why they cannot be, or nothing."""
    wanted, installed = (BENCH / "requirements.txt").read_text(), VENV / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        venv.create(VENV, clear=True, with_pip=True)
        pip = [VENV / "bin" / "pip", "install", "-qq", "--disable-pip-version-check"]
        if subprocess.run([*pip, "-r", BENCH / "requirements.txt"], stdout=sys.stderr).returncode:
            return "pip could not install it"
        installed.write_text(wanted)
    return ""


def install_json_server() -> str:
    if missing := [name for name in ("node", "npm") if not shutil.which(name)]:
        return f"{' and '.join(missing)} not found"
    if not JSON_SERVER_PROGRAM.exists():
        npm = ["npm", "install", "--silent", "--prefix", NPM, f"json-server@{JSON_SERVER}"]
        if subprocess.run(npm, stdout=sys.stderr).returncode:
            return "npm could not install it"
    return ""


def fill_tables(source: Path, target: Path) -> None:
    """Make the FastAPI peer's tables, and fill those that it reads with the rows of ours."""
    program = "import peer_fastapi; peer_fastapi.Base.metadata.create_all(peer_fastapi.engine)"
    words = [str(VENV / "bin" / "python"), "-c", program]
    subprocess.run(words, cwd=BENCH, env={"DATABASE": str(target)}, check=True)
    with closing(sqlite3.connect(target)) as connection, connection:
        connection.execute("ATTACH ? AS ours", (str(source),))
        for table in ("member", "api_key", "project", "milestone", "task"):
            names = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM ours.{table}")  # noqa: S608
        connection.execute("ANALYZE main")


def fill_json(source: Path, target: Path) -> None:
    """Write our tasks as json-server reads them, newest first, since it keeps the order of its file."""
    with closing(sqlite3.connect(source)) as connection:
        connection.row_factory = sqlite3.Row
        tasks = [dict(row) for row in connection.execute("SELECT * FROM task ORDER BY id DESC")]
    for task in tasks:
        del task["search"]
        task["metadata"] = json.loads(task["metadata"])
    target.write_text(json.dumps({"tasks": tasks}, indent=2))


@dataclass(frozen=True)
class Peer:
    """A peer: how it is installed and started, how it gets our tasks, and how its requests differ."""

    name: str
    remark: str
    install: Callable[[], str]
    words: Callable[[int, Path], list[object]]  # its command line, for a port and the path of its data
    fill: Callable[[Path, Path], None]  # copies our database into its data
    path: Callable[[str], str] = field(default=str)  # its path for one of ours

    def request(self, request: Request) -> Request:
        return request._replace(path=self.path(request.path))


PEERS = [
    Peer(
        "FastAPI",
        "FastAPI, SQLAlchemy 2, pydantic; uvicorn with uvloop and httptools, one worker, no access log",
        install_fastapi,
        lambda port, data: [
            *(VENV / "bin" / "uvicorn", "peer_fastapi:app", "--port", port, "--workers", 1),
            *("--no-access-log", "--log-level", "warning"),
        ],
        fill_tables,
    ),
    Peer(
        f"json-server {JSON_SERVER}",
        "stores one JSON file, rewritten by each change; no authentication, related objects, activity or events",
        install_json_server,
        lambda port, data: [
            "node",
            JSON_SERVER_PROGRAM,
            data,
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--quiet",
        ],
        fill_json,
        lambda path: path.removeprefix("/api/v1") + ("&_limit=20" if "?" in path else ""),
    ),
]


@dataclass
class Running:
    """What the benchmark needs to know of a server."""

    base: str
    worker: int


@contextmanager
def running(peer: Peer, core: int, data: Path) -> Iterator[Running]:
    """A peer on the servers' core, once it answers. Not all peers could be given a socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = ["taskset", "-c", str(core), *map(str, peer.words(port, data))]
    environment = os.environ | {"DATABASE": str(data)}
    log = data.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=BENCH, env=environment, stdout=output, stderr=output)
    base = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(base) or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"{peer.name} did not start: {log.read_text()[-2000:]}")
        yield Running(base, process.pid)
    finally:
        process.kill()
        process.wait()


def answers(base: str) -> bool:
    try:
        return requests.get(base, timeout=load.TIMEOUT).status_code > 0
    except requests.ConnectionError:
        return False


# The table ------------------------------------------------------------------------------------


def table(bench: Any) -> None:
    """Each system in turn on each operation, and the memory of all."""
    workspace = bench.service(bench.options.tasks)
    systems: dict[str, tuple[Any, Callable[[Request], Request]]] = {
        "ours": (workspace.server, lambda ours: ours)
    }
    remarks = {"ours": "the default configuration; one worker, 16 threads, with a log line"}
    for number, peer in enumerate(PEERS):
        if reason := peer.install():
            bench.write(f"\n{peer.name} is left out: {reason}.")
            continue
        data = bench.folder / f"peer-{number}.json"  # json-server wants this suffix
        peer.fill(workspace.server.database, data)
        server = bench.start(running(peer, bench.core, data))
        check(peer, server.base, workspace)
        systems[peer.name], remarks[peer.name] = (server, peer.request), peer.remark
    memory = {name: [servers.memory_mb(server.worker)] for name, (server, _) in systems.items()}
    rows = [row for what in MEASURED for row in measure(bench, what, systems, workspace)]
    for name, (server, _) in systems.items():
        memory[name].append(servers.memory_mb(server.worker))
    headings = ["operation", "system", "requests/s", "min–max", "ours is", "CPU µs", "p50 ms", "p99 ms"]
    bench.table(f"Peers, {bench.options.tasks} tasks, 8 connections", headings, rows)
    rows = [[name, *[f"{mb:.0f}" for mb in memory[name]], remarks[name]] for name in systems]
    bench.table("The peers", ["system", "MB at first", "MB at last", "remarks"], rows)


def measure(bench: Any, what: str, systems: dict, workspace: Workspace) -> list[list[str]]:
    """Rows of one operation: each system in turn, round after round."""
    some = list(islice(OPERATIONS[MEASURED[what]].make(workspace), bench.number))
    runs = []
    for name, (server, adapted) in systems.items():
        sent = [adapted(request).encoded() for request in some]
        runs.append(partial(bench.load, f"{name}, {what}", server, sent))
    ours, *others = alternate(runs, bench.options.rounds)
    ratios = [""] + [f"{ours.over(other):.1f} times" for other in others]
    if "FastAPI" in systems:
        ratios[1] += f" {'≥' if ours.over(others[0]) >= TARGETS[what] else '<'} {TARGETS[what]}"
    return [
        [what, name, *summary.rates(), ratio, *times(summary)]
        for name, summary, ratio in zip(systems, [ours, *others], ratios, strict=True)
    ]


def times(summary: Summary) -> list[str]:
    return [f"{summary.cpu:.0f}", f"{summary.p50:.1f}", f"{summary.p99:.1f}"]


def check(peer: Peer, base: str, workspace: Workspace) -> None:
    """Compare an answer to each operation with ours. Raises `RuntimeError` for a difference."""
    get, page, create = (next(OPERATIONS[name].make(workspace)) for name in MEASURED.values())
    task, listed = (request.send(workspace.server.base).json()["data"] for request in (get, page))
    theirs, shown, created = (peer.request(request).send(base).json() for request in (get, page, create))
    some = shown["tasks"] if isinstance(shown, dict) else shown
    is_same = theirs.items() <= task.items() and some == listed["tasks"]
    if not is_same or not create.body.items() <= created.items():  # type: ignore[union-attr]
        raise RuntimeError(f"{peer.name} answers otherwise than we do: {theirs}, {shown}, {created}")
