"""Other ways to build the same service, measured on the same work and with the same tasks.

They need packages that the service does not need. These are installed beside this file.
"""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import requests
import servers
from figures import alternate, at_least, markdown
from harness import wait_until
from operations import OPERATIONS, Request, Workspace
from servers import BENCH

from models import HIDDEN

VENV, NPM = BENCH / ".venv", BENCH / ".npm"
POCKETBASE_TOKEN = VENV / "pocketbase-token"
JSON_SERVER = "0.17.4"
MEASURED = {"get": "get", "list 20": "list project_id", "create": "create"}  # names in OPERATIONS
# The service should be this many times as fast as FastAPI.
TARGETS = {"get": 3.0, "list 20": 4.0, "create": 3.0}


def install_packages() -> None:
    """Install the packages of `requirements.txt` if they are not installed yet."""
    wanted, installed = (BENCH / "requirements.txt").read_text(), VENV / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        venv.create(VENV, clear=True, with_pip=True)
        pip = [str(VENV / "bin" / "pip"), "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(BENCH / "requirements.txt")], stdout=sys.stderr, check=True)
        installed.write_text(wanted)


# Each function installs a peer if needed, fills its file with the service's tasks, and returns its command
# line.


def fastapi(ours: Path, data: Path, port: str) -> list[str]:
    install_packages()
    program = "import peer_fastapi; peer_fastapi.Base.metadata.create_all(peer_fastapi.engine)"
    words = [str(VENV / "bin" / "python"), "-c", program]
    subprocess.run(words, cwd=BENCH, env={"DATABASE": str(data)}, check=True)
    with closing(sqlite3.connect(data)) as connection, connection:
        connection.execute("ATTACH ? AS ours", (str(ours),))
        for table in ("member", "api_key", "project", "milestone", "task", "blocker"):
            names = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM ours.{table}")  # noqa: S608
        connection.execute("ANALYZE main")
    uvicorn = [str(VENV / "bin" / "uvicorn"), "peer_fastapi:app", "--port", port, "--workers", "1"]
    return [*uvicorn, "--no-access-log", "--log-level", "warning"]


def json_server(ours: Path, data: Path, port: str) -> list[str]:
    program = NPM / "node_modules" / "json-server" / "lib" / "cli" / "bin.js"
    if not program.exists():
        npm = ["npm", "install", "--silent", "--prefix", str(NPM), f"json-server@{JSON_SERVER}"]
        subprocess.run(npm, stdout=sys.stderr, check=True)
    with closing(sqlite3.connect(ours)) as connection:
        connection.row_factory = sqlite3.Row
        # json-server keeps the order of its file: newest first.
        tasks = [dict(row) for row in connection.execute("SELECT * FROM task ORDER BY id DESC")]
    for task in tasks:
        for name in HIDDEN:
            del task[name]
        task |= {name: json.loads(task[name] or "null") for name in ("metadata", "labels", "checks")}
        task["blocked_by"] = []  # the seed blocks no task
    data.write_text(json.dumps({"tasks": tasks}, indent=2))
    return ["node", str(program), str(data), "--host", "127.0.0.1", "--port", port, "--quiet"]


def json_server_path(request: Request) -> Request:
    path = request.path.removeprefix("/api/v1")
    return request._replace(path=f"{path}&_limit=20" if "?" in path else path)


def pocketbase(ours: Path, data: Path, port: str) -> list[str]:
    install_packages()
    folder = data.with_suffix("")
    program = [str(VENV / "bin" / "pocketbase"), f"--dir={folder}"]
    words = [*program, f"--migrationsDir={BENCH / 'peer_pocketbase'}", "migrate", "up"]
    subprocess.run(words, env={"TOKEN_FILE": str(POCKETBASE_TOKEN)}, stdout=sys.stderr, check=True)
    with closing(sqlite3.connect(folder / "data.db")) as connection, connection:
        connection.execute("ATTACH ? AS ours", (str(ours),))
        names = [row[1] for row in connection.execute("PRAGMA main.table_info(task)")]
        values = ", ".join(f"COALESCE({name}, '')" for name in names)  # it has no null
        connection.execute(f"INSERT INTO main.task ({', '.join(names)}) SELECT {values} FROM ours.task")  # noqa: S608
        connection.execute("ANALYZE main")
    return [*program, "serve", f"--http=127.0.0.1:{port}"]


def pocketbase_request(request: Request) -> Request:
    path = request.path.replace("/api/v1/tasks", "/api/collections/task/records")
    path, is_list, project = path.partition("?project_id=")
    if is_list:
        query = {"perPage": 20, "sort": "-id", "filter": f"project_id='{project}'"}
        path = f"{path}?{urlencode(query)}"
    body = request.body and request.body | {"status": "todo", "version": 1}  # it has no defaults
    return request._replace(path=path, body=body, token=POCKETBASE_TOKEN.read_text())


PEERS: dict[str, tuple[Callable, Callable[[Request], Request]]] = {
    "FastAPI": (fastapi, lambda request: request),
    "PocketBase": (pocketbase, pocketbase_request),
    f"json-server {JSON_SERVER}": (json_server, json_server_path),
}


@contextmanager
def running(prepare: Callable, ours: Path, data: Path, core: int) -> Iterator[SimpleNamespace]:
    """Start a peer on the servers' core, and yield it once it answers. Some peers cannot inherit a socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words, log = ["taskset", "-c", str(core), *prepare(ours, data, str(port))], data.with_suffix(".log")
    with log.open("wb") as output:
        environment = os.environ | {"DATABASE": str(data)}
        process = subprocess.Popen(words, cwd=BENCH, env=environment, stdout=output, stderr=output)
    server = SimpleNamespace(base=f"http://127.0.0.1:{port}", worker=process.pid)
    try:
        wait_until(lambda: answers(server.base) or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"{words} ended: {log.read_text()[-2000:]}")
        yield server
    finally:
        process.kill()
        process.wait()


def answers(base: str) -> bool:
    try:
        return requests.get(base, timeout=30).status_code > 0
    except requests.ConnectionError:
        return False


def check(name: str, base: str, adapted: Callable[[Request], Request], workspace: Workspace) -> None:
    """Compare a response to each operation with the service's. Raise `RuntimeError` for a difference."""
    some = [next(OPERATIONS[operation].make(workspace)) for operation in MEASURED.values()]
    task, page, created = (adapted(request).send(base).json() for request in some)
    our_task, our_page = (request.send(workspace.server.base).json()["data"] for request in some[:2])
    tasks = page.get("tasks") or page["items"] if isinstance(page, dict) else page
    is_same = plain(task).items() <= plain(our_task).items()
    is_same = is_same and [*map(plain, tasks)] == [*map(plain, our_page["tasks"])]
    if not is_same or not plain(some[2].body).items() <= plain(created).items():  # type: ignore[arg-type]
        raise RuntimeError(
            f"{name} answers otherwise than we do: {task}, {str(created):.500}, {str(page):.500}"
        )


def plain(task: dict) -> dict:
    """Return the fields that have a value. PocketBase names the collection, and writes times with a space."""
    fields = {name: value for name, value in task.items() if value and not name.startswith("collection")}
    return {name: re.sub(r"(?<=\d)T(?=\d)", " ", str(value)) for name, value in fields.items()}


def table(bench: Any) -> None:
    """Measure each operation on each system in turn."""
    workspace = bench.service(bench.options.tasks)
    systems: dict[str, tuple[Any, Callable]] = {"ours": (workspace.server, lambda request: request)}
    for name, (prepare, adapted) in PEERS.items():
        data = bench.folder / f"{prepare.__name__}.json"  # as json-server wants its file's name
        try:
            server = bench.stack.enter_context(running(prepare, workspace.server.database, data, bench.core))
        except (OSError, subprocess.CalledProcessError) as error:
            bench.write(f"\n{name} is left out, since it cannot be installed: {error}.")
            continue
        check(name, server.base, adapted, workspace)
        systems[name] = server, adapted
    rows = []
    for what, operation in MEASURED.items():
        sent = list(islice(OPERATIONS[operation].make(workspace), bench.number))
        runs = [
            partial(bench.load, f"{name}, {what}", server, [adapted(request).encoded() for request in sent])
            for name, (server, adapted) in systems.items()
        ]
        summaries = alternate(runs, bench.options.rounds)
        for (name, (server, _)), summary in zip(systems.items(), summaries, strict=True):
            ratio = at_least(summaries[0].over(summary), TARGETS[what] if name == "FastAPI" else None)
            figures = [f"{summary.p50:.1f}", f"{summary.p99:.1f}", f"{summary.cpu:.0f}"]
            memory = f"{servers.memory_mb(server.worker):.0f}"
            rows.append([what, name, *summary.rates(), ratio, *figures, memory])
    headings = [
        "operation",
        "system",
        "requests/s",
        "min–max",
        "ours : it",
        "p50 ms",
        "p99 ms",
        "CPU µs",
        "MB",
    ]
    bench.write(markdown(f"Peers, {bench.options.tasks} tasks, 8 connections", headings, rows))
