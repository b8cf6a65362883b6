"""The servers that are measured: the tests' server on a core of its own, and the receivers."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import BIN, ROOT, Server

BENCH = Path(__file__).parent
NO_SLOW_DISK = "" if shutil.which("cc") else "there is no C compiler (cc), for what makes a disk slow"
SECRET = "the-secret-of-the-benchmark"
ROUTE = "/plugins/webhooks/bench"
# The defaults, and a route. With the default of 120 requests a minute a run would end after a moment.
# Requests of the last run may still be under way when the next run begins.
CONFIGURATION = f"""
[plugins.entries.webhooks.config.limits]
requests = 1000000
inFlight = 32
[plugins.entries.webhooks.config.routes.bench]
sessionKey = "agent:bench"
secret = "{SECRET}"
"""


def configure(folder: Path) -> str:
    """Write the configuration of a gateway that does not limit the load. Return the file's path."""
    config = folder / "config.toml"
    config.touch(0o600)
    config.write_text(CONFIGURATION)
    return str(config)


@contextmanager
def serving(folder: Path, core: int, *arguments: str, **settings: str) -> Iterator[Server]:
    """Start a server with one worker on one core. `arguments` are gunicorn's."""
    folder.mkdir(exist_ok=True)
    server = Server(folder, TASKS_CONFIG=configure(folder), **settings)
    # Each request logs a line. Writing it to a file would take 7 % of a get's throughput.
    server.under = ["sh", "-c", f'exec taskset -c {core} "$@" > /dev/null', "sh"]
    started = time.perf_counter()
    try:
        server.start(*arguments)
        server.start_seconds = time.perf_counter() - started  # until its first answer
        (server.worker,) = server.children()
        yield server
    finally:
        server.stop()


def seed(folder: Path, tasks: int) -> None:
    """Make a server's database with `tasks` tasks. About one task in nine is overdue."""
    folder.mkdir()
    environment = Server(folder).environment
    for words in (["init"], ["seed", "--tasks", str(tasks)]):
        flask = [BIN / "flask", "--app", "app", *words]
        subprocess.run(flask, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


def slow_disk(folder: Path, milliseconds: int) -> dict[str, str]:
    """Return the settings of a server whose syncs take `milliseconds` longer. Build a library in `folder`."""
    library = folder / "slow_disk.so"
    if not library.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, BENCH / "slow_disk.c"], check=True)
    return {"LD_PRELOAD": str(library), "SYNC_MS": str(milliseconds)}


def cpu_seconds(process: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def wait_until_idle(process: int) -> None:
    """Wait until the process uses hardly any processor time, for two minutes at most."""
    for _ in range(240):
        before = cpu_seconds(process)
        time.sleep(0.5)
        if cpu_seconds(process) - before <= 0.02:
            return
    raise RuntimeError(f"the process {process} goes on")


def memory_mb(process: int) -> float:
    """Return the memory of a process (VmRSS), in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


@contextmanager
def receivers(events: Path = Path(os.devnull)) -> Iterator[int]:
    """Run the receivers of webhooks, and yield their port. They write the ids of events to `events`."""
    words = [sys.executable, str(BENCH / "receiver.py"), str(events)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield int(process.stdout.readline())  # type: ignore[union-attr]
        finally:
            process.kill()


def webhook_setting(port: int, events: list[str], *paths: str) -> dict[str, str]:
    """Return the setting of a server that sends these events to receivers."""
    webhooks = [
        {"name": path, "url": f"http://127.0.0.1:{port}/{path}", "secret": SECRET, "events": events}
        for path in paths
    ]
    return {"TASKS_WEBHOOKS": json.dumps(webhooks)}
