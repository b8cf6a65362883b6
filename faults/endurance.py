"""Many clients for minutes: nothing is refused, lost, or left behind, and nothing grows.

What is measured first needs a server without webhooks: one client, then 64 that only write. A second server,
which has thousands of tasks and sends every event to a healthy receiver, has 64 mixed clients; then half as
many requests come at regular moments. Its worker is watched meanwhile.
"""

import csv
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean
from typing import NamedTuple, Self

import load
import servers
from findings import Run
from harness import EVERY_EVENT, OWNER_KEY, Server, wait_until
from traffic import MIXED, WRITES, Ledger, Measured, Someone, Traffic

from database import FairLock

CLIENTS = 64
# The parts of this part's time; the rest is for starting, and for the checks at the end.
ONE_CLIENT, WRITERS, LOOP = 0.02, 0.08, 0.4
WARM_UP = 0.5  # of the mixed clients' time, after which nothing may grow,
SETTLED = 15_000  # and requests, unless a slow machine has not had so many by then
# At first: more than the page cache of a connection (2 MB) holds, so that the caches are soon as large as
# they become.
TASKS = 5000
MEMORY_MB = 20.0  # may be more after 100 000 requests
ENOUGH = 20_000  # requests, from which the growth for 100 000 can be told
FILES = 2 * 16 + 4  # may be more: threads that had not read before open a connection, of two files each
THREADS = 16 + 4  # may be more: gunicorn starts its threads as they are needed
LOG_MB = 64.0  # of the database's log at most, after which `journal_size_limit` truncates it
KEPT = {f"tasks.db{suffix}" for suffix in ("", "-wal", "-shm", ".server", ".serving", ".sender")}


def run(run: Run) -> None:
    with servers.receivers(run.folder / "events.txt") as port:
        alone = without_webhooks(run)
        with_webhook(run, port, alone)


@contextmanager
def serving(run: Run, name: str, **settings: str) -> Iterator[Server]:
    """A server whose gateway does not limit the load, and with a folder for temporary files."""
    folder = run.folder / f"{name}-settings"
    (folder / "temporary").mkdir(parents=True)
    config = folder / "config.toml"
    config.touch(0o600)
    config.write_text(servers.CONFIGURATION)
    settings |= {"TASKS_CONFIG": str(config), "TMPDIR": str(folder / "temporary")}
    with run.server(name, **settings) as server:
        yield server
        server.stop()
        left = {file.name for file in server.database.parent.iterdir()} - KEPT
        left |= {file.name for file in (folder / "temporary").iterdir()}
        if left:
            run.fault(f"{name}: files are left: {sample(left)}")


@contextmanager
def clients(run: Run, server: Server, ledger: Ledger, number: int, weights: dict) -> Iterator[Traffic]:
    """So many clients, which share a project, and which send from another core than the worker's."""
    project = server.client().make_project()["id"]
    (worker,) = server.children()
    usable = os.sched_getaffinity(0)
    with load.Connections(int(server.base.rpartition(":")[2])) as lines:
        people = [
            Someone(f"{project[-4:]}-{place}", OWNER_KEY, project, ledger, run.random)
            for place in range(number)
        ]
        os.sched_setaffinity(0, usable - os.sched_getaffinity(worker) or usable)
        try:
            yield Traffic(lines, [someone.act(weights) for someone in people])
        finally:
            os.sched_setaffinity(0, usable)


def without_webhooks(run: Run) -> Measured:
    """One client, then many that only write; returns what was measured of the one."""
    with serving(run, "plain") as server:
        ledger = Ledger.of(server)
        with clients(run, server, ledger, 1, WRITES) as traffic:
            alone = traffic.closed_loop(ONE_CLIENT * run.seconds)
        p50, p99 = alone.ms("write", 0.5, 0.99)
        kept = p50 < 5 and p99 < 15
        figure, target = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms", "< 5, < 15 ms"
        run.found("G6", "a write of one client", figure, target, kept, is_speed=True)
        with clients(run, server, ledger, CLIENTS, WRITES) as traffic:
            writers = traffic.closed_loop(WRITERS * run.seconds)
        p99, most = writers.ms("write", 0.99, 1)
        figure = f"{writers.rate:.0f}/s, p99 {p99:.0f} ms, max {most:.0f} ms"
        kept, target = writers.rate >= 300 and p99 < 500 and most < 1000, "≥ 300/s, < 500, < 1000 ms"
        run.found("G5", f"{CLIENTS} clients that only write", figure, target, kept, is_speed=True)
        tell_wrong(run, server, ledger, alone, writers)
        compare(run, server, ledger)
    return alone


def with_webhook(run: Run, port: int, alone: Measured) -> None:
    """The same with a receiver: one client, the mix, and an open loop, while the worker is watched."""
    url = f"http://127.0.0.1:{port}/at-once"
    webhooks = [{"name": "receiver", "url": url, "secret": servers.SECRET, "events": EVERY_EVENT}]
    with serving(run, "hooked", TASKS_WEBHOOKS=json.dumps(webhooks)) as server:
        server.flask("seed", "--tasks", str(run.count(TASKS)))
        ledger = Ledger.of(server)
        with clients(run, server, ledger, 1, WRITES) as traffic:
            hooked = traffic.closed_loop(ONE_CLIENT * run.seconds)
        (p50, p99), (without,) = hooked.ms("write", 0.5, 0.99), alone.ms("write", 0.5)
        figure = f"p50 {p50:.1f} ms (+ {p50 - without:.1f}), p99 {p99:.1f} ms"
        kept = p50 - without <= 5
        run.found("G6", "the same with a healthy receiver", figure, "+ ≤ 5 ms", kept, is_speed=True)
        with (
            clients(run, server, ledger, CLIENTS, MIXED) as traffic,
            Watch(server, traffic, run.folder / "hooked-settings" / "temporary") as watch,
        ):
            mixed = traffic.closed_loop(LOOP * run.seconds)
            by_clock = traffic.open_loop(LOOP * run.seconds, mixed.rate / 2)
        tell_loop(run, f"{CLIENTS} mixed clients", mixed, mixed.rate)
        tell_loop(run, "half as many by the clock", by_clock, mixed.rate / 2)
        watch.tell(run, WARM_UP * mixed.seconds)
        tell_wrong(run, server, ledger, hooked, mixed, by_clock)
        compare_events(run, server, ledger, kept=compare(run, server, ledger))


def tell_loop(run: Run, what: str, measured: Measured, rate: float) -> None:
    bad = measured.wrong.total() + measured.busy
    times = f"reads {measured.shown('read')}, writes {measured.shown('write')}"
    figure = f"{measured.count} requests, {rate:.0f}/s, refused or wrong: {bad}; p50 / p99 / max: {times}"
    run.found("G5", what, figure, "none refused", bad == 0, is_speed=not measured.wrong)


def tell_wrong(run: Run, server: Server, ledger: Ledger, *runs: Measured) -> None:
    """Write the wrong answers as faults, the most frequent first.

    If the disk takes longer for a commit than writers are let wait behind, they are refused: that is slow.
    """
    wrong = sum((measured.wrong for measured in runs), ledger.problems)
    slowest = max(measured.ms("write", 1)[0] / 1000 for measured in runs)
    refused = sum(measured.busy for measured in runs)
    server.allow_bugs = refused > 0 and slowest > FairLock.STALL_SECONDS  # the log says what the database did
    if not server.allow_bugs:
        wrong["503 though no write took long"] = refused
    for what, count in (+wrong).most_common(5):
        run.fault(f"{name_of(server)}: {what} ({count} times)")


def name_of(server: Server) -> str:
    return server.folder.parent.name


def compare(run: Run, server: Server, ledger: Ledger) -> bool:
    """Whether what was acknowledged is in the database, and nothing else, and all counters are right."""
    tasks = {row["id"]: (row["title"], row["status"]) for row in server.rows("SELECT * FROM task")}
    stored: dict[str, tuple[Collection, Collection]] = {
        "tasks": (ledger.tasks.items(), tasks.items()),
        "comments": (ledger.comments.items(), pairs(server, "SELECT id, task_id FROM comment")),
        "flows": (ledger.flows.items(), pairs(server, "SELECT id, revision FROM flow")),
        "child tasks": (ledger.runs, {row["id"] for row in server.rows("SELECT id FROM flow_task")}),
        "events": (ledger.events.items(), pairs(server, "SELECT name, COUNT(*) FROM event GROUP BY name")),
    }
    problems = []
    for what, (acknowledged, found) in stored.items():
        lost, more = set(acknowledged) - set(found), set(found) - set(acknowledged)
        if lost or more:
            problems.append(f"{what}: not stored {sample(lost)}, not acknowledged {sample(more)}")
    with suppress(AssertionError):  # the doctor tells what is pending
        wait_until(lambda: not server.rows("SELECT 1 FROM delivery WHERE status = 'pending'"), 30)
    checked = server.flask("doctor")
    if checked.returncode or "pending" in checked.stdout:
        problems.append(f"doctor says: {' '.join(checked.stdout.split())[:300]}")
    log = "" if server.allow_bugs else server.log.read_text()
    problems += [f"the log says {word}" for word in ("Traceback", "locked") if word in log]
    for problem in problems:
        run.fault(f"{name_of(server)}: {problem}")
    return not problems


def pairs(server: Server, sql: str) -> set[tuple]:
    return {tuple(row.values()) for row in server.rows(sql)}


def sample(some: set) -> str:
    return f"{len(some)}, such as {min(some)}" if some else "none"


def compare_events(run: Run, server: Server, ledger: Ledger, *, kept: bool) -> None:
    """Every event has arrived; more than once only if the receiver's answer was lost."""
    arrived = Counter((run.folder / "events.txt").read_text().split())
    events = {row["id"] for row in server.rows("SELECT id FROM event")}
    figure = f"{len(ledger)} resources; {len(events & arrived.keys())} of {len(events)} events, "
    figure += f"{arrived.total() - len(arrived)} of them again"
    run.found("G2", "acknowledged, and there", figure, "all", kept and arrived.keys() == events)


# The worker -----------------------------------------------------------------------------------


class Sample(NamedTuple):
    """What a worker uses at a moment."""

    at: float
    requests: int  # answered until then
    memory: float  # MB
    files: int
    threads: int
    wal: float  # MB
    temporary: int


class Watch:
    """Looks at a server's worker once a second, from a thread."""

    def __init__(self, server: Server, traffic: Traffic, temporary: Path):
        self.server, self.traffic, self.temporary = server, traffic, temporary
        self.workers = server.children()
        self.samples = [self.sample()]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def watch(self) -> None:
        with suppress(FileNotFoundError):  # the worker has ended, which `tell` finds out
            while not self.ended.wait(1):
                self.samples.append(self.sample())

    def sample(self) -> Sample:
        process = Path(f"/proc/{self.workers[0]}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return Sample(
            time.monotonic(),
            self.traffic.answered,
            int(status["VmRSS"].split()[0]) * 1024 / 1e6,
            len(list((process / "fd").iterdir())),
            int(status["Threads"]),
            size_mb(Path(f"{self.server.database}-wal")),
            len(list(self.temporary.iterdir())),
        )

    def tell(self, run: Run, warm_up: float) -> None:
        """Write what was used at the start, at the end, and at most after so many seconds."""
        if self.server.children() != self.workers:
            run.fault("the worker has ended, and was replaced")
        with (run.folder / "worker.csv").open("w", newline="") as file:
            csv.writer(file).writerows([Sample._fields, *self.samples])
        first, last = self.samples[0], self.samples[-1]
        warm = [sample for sample in self.samples if sample.at >= first.at + warm_up] or [last]
        warm = [sample for sample in warm if sample.requests >= SETTLED] or warm
        requests = last.requests - warm[0].requests
        grown = mean(sample.memory for sample in warm[-5:]) - mean(sample.memory for sample in warm[:5])
        per = max(100_000 / requests, 1) if requests >= ENOUGH else 1
        figure = f"{first.memory:.0f}, {warm[0].memory:.0f}, {last.memory:.0f} MB: {grown * per:+.1f} MB"
        what = f"memory first, warm, last: growth in {requests * per:.0f} requests"
        run.found("G16", what, figure, f"< {MEMORY_MB:.0f} MB", grown * per < MEMORY_MB)
        files, threads, log, temporary = (max(sample[place] for sample in warm) for place in range(3, 7))
        kept = files - warm[0].files <= FILES and threads - warm[0].threads <= THREADS
        figure = f"{warm[0].files} and {files} files, {warm[0].threads} and {threads} threads, "
        figure += f"log {log:.0f} MB, temporary files {temporary}"
        kept = kept and log <= LOG_MB and not temporary
        target = f"no growth, ≤ {LOG_MB:.0f} MB, 0"
        run.found("G16", "warm, and at most", figure, target, kept)


def size_mb(file: Path) -> float:
    return file.stat().st_size / 1e6 if file.exists() else 0.0
