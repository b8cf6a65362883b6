"""The benchmark: the service beside a bare Flask application, in tables on standard output.

README.md beside this file says what is measured and how to read it.
"""

import argparse
import os
import platform
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import load
import page
import peers
import requests
import servers
from figures import Summary, alternate, at_least, at_most, markdown
from harness import ROOT, at_once
from load import Result
from operations import FILTERS, OPERATIONS, PAIRS, SORTS, TWO_LETTERS, Make, Workspace, lists

from limits import SEARCHES

PREPARED = 3000  # requests for a second
CONNECTIONS = 8
OTHER_CONNECTIONS = (1, 64)  # for the operations in SEVERAL
SEVERAL = ("get", "list", "context", "create", "health")
SHORT = ("get", "list", "list project_id + status", "context", "create", "update", "get_flow")
# The number of tasks does not matter for these operations.
CONSTANT = ("complete", "comment", "health", "get_flow", "run_task", "set_waiting")
CONTEXT_TARGETS = {10_000: 0.40, 100_000: 0.40, 1_000_000: 0.38}
# The part of the throughput with the fewest tasks: for get, create, and lists that have a target.
GROWTH_TARGET = 0.85
LISTS_MS, CONTEXT_MS, SEARCH_MS = {100_000: 50}, {1_000_000: 8}, {1_000_000: 1000}  # the slowest, by tasks
# By the milliseconds of a sync: how many times as many tasks eight clients create as one client does.
SLOW_DISK = {2: 2.2, 5: None, 10: 3.4}
BESIDE_MS = 150  # the p99 of a get beside costly reads
# These runs are five times as long, since eight of the costliest reads take seconds.
BESIDE_TIMES = 5
# Requests of each kind. Each is timed three times, and its best time counts. The slowest request is shown.
PROBES = 3
RECEIVERS: dict[str, tuple[str, ...]] = {  # by the paths of receiver.py
    "none": (),
    "at once": ("at-once",),
    "100 ms": ("slow",),
    "hangs": ("hang",),
    "at once, and one that hangs": ("at-once", "hang"),
}
COSTLY: dict[str, Make] = {
    "searches for two letters": lists(q=TWO_LETTERS),
    "lists by three filters": lists("status", "priority", "due_before", sort="updated_at"),
    "contexts": OPERATIONS["context"].make,
}


class Bench:
    """The state that all tables share: options, cores, databases, the output, and the counted errors."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        # The number of requests that are prepared for a run.
        self.number = int(PREPARED * options.seconds) + 200
        usable = sorted(os.sched_getaffinity(0))
        self.core = usable[0]
        os.sched_setaffinity(0, {usable[-1]})  # all programs but the servers inherit it
        self.stack = ExitStack()  # ends the servers of a table
        self.problems: list[str] = []
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)

    def database(self, tasks: int) -> Path:
        """Return the folder of a new server whose database contains `tasks` tasks."""
        seeded = self.folder / f"seeded-{tasks}"
        if not seeded.exists():
            progress(f"seeding {tasks} tasks")
            servers.seed(seeded, tasks)
        folder = Path(mkdtemp(dir=self.folder))
        shutil.copytree(seeded / "data", folder / "data")
        # Otherwise the system would write the database during a measurement.
        os.sync()
        return folder

    def service(self, tasks: int, **settings: str) -> Workspace:
        """Start the service with `tasks` tasks."""
        server = servers.serving(self.database(tasks), self.core, **settings)
        return Workspace(self.stack.enter_context(server))

    def bare(self) -> Any:
        """Start the bare application."""
        arguments = ("-c", str(servers.BENCH / "bare.conf.py"))
        return self.stack.enter_context(servers.serving(self.folder / "bare", self.core, *arguments))

    def load(
        self, what: str, server: Any, sent: list[bytes], connections: int = CONNECTIONS, times: int = 1
    ) -> Result:
        """Do one run and count its errors. The result includes the worker's processor time."""
        before = servers.cpu_seconds(server.worker)
        result = load.run(server.base, sent, connections, times * self.options.seconds)
        result.cpu = servers.cpu_seconds(server.worker) - before
        # The service may refuse a read that would take too long.
        refused = 0 if what in COSTLY else result.refused
        if refused or result.timeouts or result.broken:
            self.problems.append(f"{what}: {result}")
        return result

    def operate(
        self, what: str, make: Make, workspace: Workspace, connections: int = CONNECTIONS, times: int = 1
    ) -> Result:
        """Do one run of an operation."""
        sent = [request.encoded() for request in islice(make(workspace), self.number)]
        return self.load(what, workspace.server, sent, connections, times)

    def compare(self, name: str, bare: Any, workspaces: list[Workspace], connections: int) -> list[Summary]:
        """Run the bare application and each workspace in turn.

        The bare application returns as many bytes as the service. It is sent the same headers, since gunicorn
        parses each header.
        """
        progress(f"{name}, {connections} connections")
        for workspace in workspaces:
            # Searches of the operation before may still run, and a member may run few at a time.
            servers.wait_until_idle(workspace.server.worker)
        make = OPERATIONS[name].make
        probes = [(workspace, request) for workspace in workspaces for request in islice(make(workspace), 5)]
        size = mean(len(request.send(workspace.server.base).content) for workspace, request in probes)
        same_size = load.encode("GET", f"/{size:.0f}", None, probes[0][1].headers())
        runs = [partial(self.load, "bare Flask", bare, [same_size], connections)]
        runs += [partial(self.operate, name, make, workspace, connections) for workspace in workspaces]
        return alternate(runs, self.options.rounds)


def progress(text: str) -> None:
    """Report on standard error what is being measured."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def connections_for(name: str) -> int:
    """Return the number of connections: for searches, as many as one member may run at a time."""
    return SEARCHES // 2 if " q " in name else CONNECTIONS


# The tables -----------------------------------------------------------------------------------


def requests_table(bench: Bench) -> None:
    """Measure each operation beside the bare application, with the fewest tasks."""
    cases = [(name, connections_for(name)) for name in bench.options.only]
    if not bench.options.short:
        several = [name for name in SEVERAL if name in bench.options.only]
        cases += [(name, connections) for name in several for connections in OTHER_CONNECTIONS]
    bare, workspace = bench.bare(), bench.service(bench.options.tasks)
    memory, rows, answered = servers.memory_mb(workspace.server.worker), [], 0
    for name, connections in cases:
        base, ours = bench.compare(name, bare, [workspace], connections)
        answered += ours.requests
        target = OPERATIONS[name].target if connections == connections_for(name) else None
        times = [f"{ours.p50:.2f}", f"{ours.p99:.2f}", f"{ours.max:.0f}", f"{ours.cpu:.0f}"]
        ratio = at_least(ours.over(base), target)
        rows.append([name, str(connections), *ours.rates(), *base.rates(), ratio, *times])
    headings = ["operation", "connections", "requests/s", "min–max", "bare Flask/s", "min–max", "ratio"]
    headings += ["p50 ms", "p99 ms", "max ms", "CPU µs"]
    bench.write(markdown(f"Requests, {bench.options.tasks} tasks", headings, rows))
    after = servers.memory_mb(workspace.server.worker)
    bench.write(f"\nWorker memory: {memory:.0f} MB at first, {after:.0f} MB after {answered} requests.")


def growth_table(bench: Bench) -> None:
    """Measure the same operations with more and more tasks."""
    sizes = bench.options.sizes
    bare, workspaces = bench.bare(), [bench.service(size) for size in sizes]
    rows = []
    for name in bench.options.only:
        if name not in CONSTANT:
            base, *ours = bench.compare(name, bare, workspaces, connections_for(name))
            rows.append(growth_row(name, sizes, base, ours))
    headings = [heading for size in sizes for heading in (f"{size} tasks/s", "min–max", "ratio")]
    headings += [f"{size} : {sizes[0]}" for size in sizes[1:]]
    bench.write(markdown("Growth", ["operation", *headings], rows))


def growth_row(name: str, sizes: list[int], base: Summary, ours: list[Summary]) -> list[str]:
    target = OPERATIONS[name].target
    targets = CONTEXT_TARGETS if name == "context" else dict.fromkeys(sizes, target)
    left = GROWTH_TARGET if target and name not in ("context", "update") else None
    row = [name]
    for size, summary in zip(sizes, ours, strict=True):
        row += [*summary.rates(), at_least(summary.over(base), targets.get(size))]
    return row + [at_least(summary.over(ours[0]), left) for summary in ours[1:]]


def slowest_table(bench: Bench) -> None:
    """Measure the slowest request that one client can send: lists in the slowest order."""
    workspaces = {size: bench.service(size) for size in bench.options.sizes}
    kinds = {"context": ({"": OPERATIONS["context"].make}, CONTEXT_MS)}
    kinds |= {name: ({"": OPERATIONS[name].make}, SEARCH_MS) for name in ("list q rare", "list q common")}
    for filters in [*[(name,) for name in FILTERS], *PAIRS]:
        makes = {sort: lists(*filters, sort=sort) for sort in SORTS}
        kinds[f"list {' + '.join(filters)}"] = makes, LISTS_MS
    rows = []
    for kind, (makes, targets) in kinds.items():
        progress(f"the slowest {kind}")
        row = [kind]
        for size, workspace in workspaces.items():
            slowest, sort = max((slowest_ms(workspace, make), sort) for sort, make in makes.items())
            row += [at_most(slowest, targets.get(size)), sort]
        rows.append(row)
    headings = [heading for size in workspaces for heading in (f"{size} tasks, ms", "order")]
    bench.write(markdown("The slowest requests of one client", ["request", *headings], rows))


def slowest_ms(workspace: Workspace, make: Make) -> float:
    """Return the milliseconds that the slowest of some requests takes."""
    distinct = list(dict.fromkeys(make(workspace)))
    probes, base = workspace.random.sample(distinct, min(PROBES, len(distinct))), workspace.server.base
    with requests.Session() as session:
        times = [min(request.send(base, session).elapsed for _ in range(3)) for request in probes]
    return max(times).total_seconds() * 1000


def beside_table(bench: Bench) -> None:
    """Measure a get over one connection beside the costliest reads over eight."""
    workspace, rows = bench.service(bench.options.sizes[-1]), []
    own = partial(
        bench.operate, "get beside costly reads", OPERATIONS["get"].make, workspace, 1, BESIDE_TIMES
    )
    for name, make in COSTLY.items():
        progress(f"a get beside {name}")
        other = partial(bench.operate, name, make, workspace, times=BESIDE_TIMES)
        pairs = []
        for _ in range(bench.options.rounds):
            # The worker finishes reads that wrk has given up.
            servers.wait_until_idle(workspace.server.worker)
            pairs.append(at_once(own, other))
        gets, others = [Summary(results) for results in zip(*pairs, strict=True)]
        times = [f"{gets.p50:.2f}", at_most(gets.p99, BESIDE_MS), f"{gets.max:.0f}"]
        rows.append([name, *times, *[f"{figure:.0f}" for figure in (gets.rate, others.rate, others.refused)]])
    headings = ["beside", "p50 ms of a get", "p99 ms", "max ms", "gets/s", "costly reads/s", "refused"]
    bench.write(markdown(f"A get beside eight connections, {bench.options.sizes[-1]} tasks", headings, rows))


def start_table(bench: Bench) -> None:
    """Measure the time from the start of the program to the first response."""
    rows = []
    for size in bench.options.sizes:
        folder, seconds = bench.database(size), []
        for _ in range(3):
            with servers.serving(folder, bench.core) as server:
                seconds.append(server.start_seconds)
        rows.append([str(size), at_most(median(seconds), 1), f"{min(seconds):.2f}–{max(seconds):.2f}"])
    bench.write(markdown("Start to first answer, database in memory", ["tasks", "seconds", "min–max"], rows))


def receivers_table(bench: Bench) -> None:
    """Measure the creation of tasks while their events are sent, and a get beside it."""
    create, get = OPERATIONS["create"].make, OPERATIONS["get"].make
    runs = {}
    with servers.receivers() as port:
        for kind in RECEIVERS:
            progress(f"receivers: {kind}")
            setting = servers.webhook_setting(port, ["task.created"], *RECEIVERS[kind])
            workspace = bench.service(bench.options.tasks, **setting)
            # The first requests wait for a receiver that hangs until their deadline; later ones do not.
            first = islice(create(workspace), CONNECTIONS)
            at_once(*[partial(request.send, workspace.server.base) for request in first])
            creates = partial(bench.operate, f"create, receiver: {kind}", create, workspace)
            gets = partial(bench.operate, f"get, receiver: {kind}", get, workspace, 1)
            runs[kind] = partial(at_once, creates, gets)
        rounds = [[run() for run in runs.values()] for _ in range(bench.options.rounds)]
    of_kinds = [
        [Summary(results) for results in zip(*pairs, strict=True)] for pairs in zip(*rounds, strict=True)
    ]
    rows = []
    for kind, (created, got) in zip(runs, of_kinds, strict=True):
        ratio = at_least(created.over(of_kinds[0][0]), 0.45 if kind == "at once" else None)
        times = [f"{number:.2f}" for number in (created.p50, created.p99, got.p50, got.p99)]
        rows.append([kind, *created.rates(), ratio, *times])
    headings = ["receiver", "creates/s", "min–max", ": none", "p50 ms", "p99 ms", "get: p50 ms", "p99 ms"]
    bench.write(markdown("Receivers: eight connections create, one gets", headings, rows))


def slow_disk_table(bench: Bench) -> None:
    """Measure the creation of tasks on a disk with slow syncs. Writers share a sync."""
    if servers.NO_SLOW_DISK:
        bench.write(f"\nSlow disk: not measured, {servers.NO_SLOW_DISK}.")
        return
    rows, clients = [], (1, CONNECTIONS, 64)
    for milliseconds, target in [*SLOW_DISK.items()][: 1 if bench.options.short else None]:
        progress(f"slow disk, {milliseconds} ms")
        slow = servers.slow_disk(bench.folder, milliseconds)
        workspace, create = bench.service(bench.options.tasks, **slow), OPERATIONS["create"].make
        runs = [partial(bench.operate, "create, slow disk", create, workspace, many) for many in clients]
        one, *more = alternate(runs, bench.options.rounds)
        row = [f"{milliseconds} ms", *one.rates(), f"{one.p99:.0f}"]
        for summary, wanted in zip(more, (target, None), strict=True):
            row += [*summary.rates(), at_least(summary.over(one), wanted), f"{summary.p99:.0f}"]
        rows.append(row)
    headings = ["a sync", "1 client: creates/s", "min–max", "p99 ms"]
    for many in clients[1:]:
        headings += [f"{many} clients", "min–max", ": 1", "p99 ms"]
    bench.write(markdown("Slow disk", headings, rows))


TABLES = {
    "requests": requests_table,
    "growth": growth_table,
    "slow-disk": slow_disk_table,
    "receivers": receivers_table,
    "start": start_table,
    "slowest": slowest_table,
    "beside": beside_table,
    "page": page.table,
    "peers": peers.table,
}
SHORT_TABLES = ("requests", "growth", "slow-disk", "receivers", "start")


# The program ----------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--short", action="store_true", help="a part of it, in about two minutes")
    add("--tables", default="", help="some of " + ",".join(TABLES) + " (all but peers)")
    add("--only", default="", help="some operations of the tables requests and growth, separated by commas")
    add("--rounds", type=int, help="runs of each (5)")
    add("--seconds", type=float, help="that each run takes (1)")
    add("--tasks", type=int, default=10_000, help="in the smallest database (%(default)d)")
    add("--output", type=Path, metavar="FILE", help="write the tables to this file too")
    options = parser.parse_args()
    tables = SHORT_TABLES if options.short else [name for name in TABLES if name != "peers"]
    options.tables = options.tables.split(",") if options.tables else tables
    options.only = options.only.split(",") if options.only else (SHORT if options.short else OPERATIONS)
    options.rounds = options.rounds or (3 if options.short else 5)
    options.seconds = options.seconds or (0.5 if options.short else 1.0)
    options.sizes = [options.tasks * number for number in ((1, 10) if options.short else (1, 10, 100))]
    if unknown := {*options.tables} - {*TABLES} | {*options.only} - {*OPERATIONS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if load.MISSING:
        parser.error(load.MISSING)
    return options


def heading(bench: Bench) -> str:
    """Return the machine, the versions, the date and the commit."""
    model = re.search("model name.*: (.*)", Path("/proc/cpuinfo").read_text())
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
    return (
        f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores. "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}. "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit or 'unknown'}. "
        f"Medians of {bench.options.rounds} rounds of {bench.options.seconds:g} s."
    )


def main() -> int:
    """Write the requested tables. Return the exit code: 1 if a request failed."""
    options = arguments()
    # An exception, so that every process is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with TemporaryDirectory(prefix="bench-") as folder:
        bench = Bench(options, Path(folder))
        bench.write(heading(bench))
        for name in options.tables:
            try:
                with ExitStack() as bench.stack:
                    TABLES[name](bench)
            except (RuntimeError, OSError, AssertionError) as error:  # a wrong answer, or none
                bench.problems.append(f"the table {name} is not complete: {error}")
    for problem in bench.problems:
        bench.write(f"\nError: {problem}")
    bench.write(f"\nErrors: {len(bench.problems) or 'none'}.")
    if options.output:
        options.output.write_text("\n".join(bench.lines) + "\n")
    return 1 if bench.problems else 0


if __name__ == "__main__":
    sys.exit(main())
