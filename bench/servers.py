"""The servers that are measured: the service with its database, the bare application, the receivers."""

import argparse
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

import load
from load import Result

ROOT = Path(__file__).parents[1]
BENCH = Path(__file__).parent
BIN = Path(sys.executable).parent
KEY = "tms_the-key-of-the-benchmark-0123456789abcdefghi"
SECRET = "the-secret-of-the-benchmark"
ROUTE = "/plugins/webhooks/bench"
SESSION = "agent:bench"
# The defaults, and a route. With the default of 120 requests a minute a run would end after a moment; and
# requests of the last run may still be under way when the next one begins.
CONFIGURATION = f"""
[plugins.entries.webhooks.config.limits]
requests = 1000000
inFlight = 32
[plugins.entries.webhooks.config.routes.bench]
sessionKey = "{SESSION}"
secret = "{SECRET}"
"""
OVERDUE = 1000  # tasks, at most, where the targets of the context hold
# Tasks that would be overdue within a day get a date 41 days later: the seeded ones span 40 days.
POSTPONE = """
    UPDATE task SET due_date = strftime('%Y-%m-%dT%H:%M:%fZ', due_date, '+41 days')
    WHERE status != 'done' AND due_date < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 day')
    AND id NOT IN (
        SELECT id FROM task WHERE status != 'done' AND due_date < strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
        ORDER BY id LIMIT ?)
"""


def cores() -> tuple[int, int]:
    """The core of the servers and the core of the load, which are the same where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def environment(database: Path) -> dict[str, str]:
    """The environment of the service: its defaults, with this database and our route and key."""
    names = ("WEB_CONCURRENCY", "PIN_WORKERS", "PORT", "GUNICORN_CMD_ARGS")
    inherited = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("TASKS_", "FLASK_")) and name not in names
    }
    config = database.with_suffix(".toml")
    config.touch(0o600)
    config.write_text(CONFIGURATION)
    ours = {"TASKS_SERVER__DATABASE": str(database), "TASKS_CONFIG": str(config)}
    return inherited | ours | {"TASKS_BOOTSTRAP__API_KEY": KEY}


def flask(database: Path, *words: object) -> None:
    """Run a command of the service's command line."""
    subprocess.run(
        [BIN / "flask", "--app", "app", *map(str, words)],
        cwd=ROOT,
        env=environment(database),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def seed(database: Path, tasks: int) -> None:
    """Make a database with so many tasks, of which about one in nine is overdue."""
    flask(database, "init")
    flask(database, "seed", "--tasks", tasks)


def limit_overdue(database: Path) -> None:
    """Leave `OVERDUE` overdue tasks."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(POSTPONE, (OVERDUE,))


def copy(source: Path, target: Path) -> Path:
    """Copy a database that no process has open."""
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(source, target)
    target.chmod(0o600)
    with target.open("rb+") as file:
        os.fsync(file.fileno())  # else the system writes it while something is measured
    return target


class Server:
    """A gunicorn with one worker on a core and a port of its own."""

    def __init__(self, core: int, log: Path, words: tuple, env: dict[str, str], path: str, cwd: Path):
        """Start it, and wait for its first answer; `start_seconds` is the time that this took."""
        with socket.create_server(("127.0.0.1", 0)) as listener, log.open("ab") as output:
            # gunicorn sets this on sockets of its own; without it each answer takes 40 ms.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.port = listener.getsockname()[1]
            started = time.perf_counter()
            self.process = subprocess.Popen(
                ["taskset", "-c", str(core), *map(str, words), "-b", f"fd://{listener.fileno()}"],
                cwd=cwd,
                env=env,
                pass_fds=[listener.fileno()],
                stdout=subprocess.DEVNULL,  # a line for each request
                stderr=output,
                start_new_session=True,
            )
        try:
            load.fetch(self.port, "GET", path)
            self.start_seconds = time.perf_counter() - started
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            self.worker = int(children.split()[0])
        except BaseException:
            self.stop()
            print(log.read_text()[-2000:], file=sys.stderr)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it; after ten seconds by force, the worker first."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)  # its own session, of which no other process is a part
            self.process.wait()

    def cpu_seconds(self) -> float:
        """The processor time that the worker has used."""
        fields = Path(f"/proc/{self.worker}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime

    def run(self, requests: list[bytes], connections: int, options: argparse.Namespace) -> Result:
        """Send the requests for `options.seconds`; the result has the worker's processor time too."""
        before = self.cpu_seconds()
        result = load.run(self.port, requests, connections, options.seconds, options.generator)
        return replace(result, cpu=self.cpu_seconds() - before)

    def memory_mb(self) -> float:
        """The memory of the worker (VmRSS), in MB."""
        status = Path(f"/proc/{self.worker}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


class Service(Server):
    """The service in its default configuration on this database."""

    def __init__(self, database: Path, core: int, settings: dict[str, str]):
        self.database = database
        words = (BIN / "gunicorn",)
        env = environment(database) | settings
        super().__init__(core, database.with_suffix(".log"), words, env, "/api/v1/health", ROOT)

    def rows(self, sql: str, *values: object) -> list[tuple]:
        """What a query finds in the database."""
        with closing(sqlite3.connect(self.database, timeout=30)) as connection:
            return connection.execute(sql, values).fetchall()


class Bare(Server):
    """The bare Flask application."""

    def __init__(self, folder: Path, core: int):
        words = (BIN / "gunicorn", "-c", BENCH / "bare.conf.py")
        super().__init__(core, folder / "bare.log", words, environment(folder / "bare"), "/100", BENCH)


@contextmanager
def receivers(events: Path = Path(os.devnull)) -> Iterator[int]:
    """Run the receivers of webhooks, which write the ids of events to this file; yields their port."""
    words = [sys.executable, str(BENCH / "receiver.py"), str(events)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield int(process.stdout.readline())  # type: ignore[union-attr]
        finally:
            process.kill()


def webhook_setting(port: int, *paths: str) -> dict[str, str]:
    """The setting of a service that sends created tasks to these receivers."""
    webhooks = [
        {"name": path, "url": f"http://127.0.0.1:{port}/{path}", "secret": SECRET, "events": ["task.created"]}
        for path in paths
    ]
    return {"TASKS_WEBHOOKS": json.dumps(webhooks)} if webhooks else {}
