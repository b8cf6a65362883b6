"""The benchmark: the service beside a bare Flask application, in tables on standard output.

README.md beside this file says what is measured and how to read it.
"""

import argparse
import http.client
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import load
import servers
from figures import Summary, alternate, markdown
from load import Result
from operations import (
    DEEP,
    FILTERS,
    OPERATIONS,
    PAIRS,
    SORTS,
    TWO_LETTERS,
    Operation,
    Request,
    Workspace,
    get,
    lists,
)
from servers import Bare, Server, Service

TABLES = ("requests", "growth", "receivers", "sizes", "peers")
WRITES_PER_SECOND = 3000  # for which requests are prepared; more are an error
CONNECTIONS = 8
OTHER_CONNECTIONS = (1, 64)  # for the operations in SEVERAL
SEVERAL = ("get", "list", "context", "create", "health")
DEEP_LIST = f"list offset {DEEP}"
GROWING: tuple[str, ...] = ("get", "list", *[f"list {name}" for name in FILTERS], "list project_id + status")
GROWING += ("list status + assignee_id", DEEP_LIST, "list q rare", "list q common")
GROWING += ("context", "create", "update")
SHORT = ("get", "list", "list project_id + status", "context", "create", "complete", "get_flow")
CONTEXT_TARGETS = {10_000: 0.50, 100_000: 0.45, 1_000_000: 0.35}
GROWTH_TARGET = 0.85  # of the throughput with the fewest tasks: get, create, and lists by one filter
MODES: dict[str, tuple[str, ...]] = {  # the webhooks of the third table, by the path of their receiver
    "none": (),
    "at once": ("at-once",),
    "100 ms": ("slow",),
    "hangs": ("hang",),
    "at once, and one that hangs": ("at-once", "hang"),
}
BESIDE: dict[str, Operation] = {  # the costliest reads, beside which the latency of a get is measured
    "list q two letters": Operation(lists(q=TWO_LETTERS)),
    "list by three filters": Operation(lists("status", "priority", "due_before", sort="updated_at")),
    "context": OPERATIONS["context"],
}
PROBES = 6  # requests of a pair of filters, each of which is sent three times
PROBE_SECONDS = 1.0  # after which no further one is sent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--short", action="store_true", help="a part of it, in under two minutes")
    add("--tables", default="", help="some of " + ",".join(TABLES) + " (all but peers)")
    add("--only", default="", help="some operations of the tables requests and growth, separated by commas")
    add("--rounds", type=int, help="runs of each (5)")
    add("--seconds", type=float, help="that each run takes (1)")
    add("--tasks", type=int, default=10_000, help="in the smallest database (10000)")
    add("--sizes", help="numbers of tasks in the second table (10000,100000,1000000)")
    add("--generator", choices=("wrk", "python"), default=load.GENERATOR, help="of the load")
    add(
        "--keep-databases",
        type=Path,
        metavar="DIR",
        help="keep the seeded databases here for other runs, until their schema changes",
    )
    add("--output", type=Path, metavar="FILE", help="write the tables to this file too")
    options = parser.parse_args()
    options.tables = options.tables.split(",") if options.tables else list(TABLES[:-1])
    options.only = options.only.split(",") if options.only else list(SHORT if options.short else OPERATIONS)
    options.rounds = options.rounds or (3 if options.short else 5)
    options.seconds = options.seconds or (0.5 if options.short else 1.0)
    multiples = (1, 10) if options.short else (1, 10, 100)
    sizes = options.sizes.split(",") if options.sizes else [options.tasks * number for number in multiples]
    options.sizes = [int(size) for size in sizes]
    if unknown := set(options.tables) - set(TABLES) or set(options.only) - set(OPERATIONS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


class Bench:
    """What all tables share: options, cores, databases, the output, and the errors that were counted."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        self.core, self.load_core = servers.cores()
        os.sched_setaffinity(0, {self.load_core})  # which all programs but the servers inherit
        self.problems: list[str] = []
        self.lines: list[str] = []

    def write(self, text: str = "") -> None:
        print(text, flush=True)
        self.lines.append(text)

    def table(self, title: str, headings: str, rows: Iterable[list[str]]) -> None:
        """Write a table. `headings` are separated by bars."""
        self.write(markdown(title, headings, rows))

    def database(self, tasks: int, *, overdue: bool = False) -> Path:
        """A copy of a database with so many tasks, of which few are overdue, or as many as were seeded."""
        kept = self.options.keep_databases or self.folder
        kept.mkdir(parents=True, exist_ok=True)
        seeded, limited = kept / f"seeded-{tasks}.db", kept / f"few-overdue-{tasks}.db"
        if not limited.exists():
            progress(f"seeding {tasks} tasks")
            new = self.folder / "new.db"
            servers.seed(new, tasks)
            servers.copy(new, seeded)
            servers.limit_overdue(new)
            servers.copy(new, limited)
            for file in self.folder.glob("new.db*"):
                file.unlink()
        folder = Path(mkdtemp(dir=self.folder))
        return servers.copy(seeded if overdue else limited, folder / "tasks.db")

    def run(self, what: str, server: Server, requests: list[bytes], connections: int = CONNECTIONS) -> Result:
        """One run, whose errors are counted."""
        result = server.run(requests, connections, self.options)
        if result.errors:
            self.problems.append(f"{what}: {result}")
        return result

    def write_run(self, what: str, operation: Operation, workspace: Workspace, connections: int) -> Result:
        """One run of an operation of which each request is sent once."""
        requests = encoded(operation.requests(workspace, self.number()))
        result = self.run(what, workspace.service, requests, connections)
        if result.requests + connections > len(requests):
            self.problems.append(f"{what}: {len(requests)} requests are too few; shorten the runs")
        return result

    def number(self) -> int:
        """How many requests are prepared for a run that writes."""
        return int(WRITES_PER_SECOND * self.options.seconds) + 200

    def compare(
        self, name: str, operation: Operation, bare: Bare, workspaces: list[Workspace], connections: int
    ) -> list[Summary]:
        """Runs of the bare application and of each workspace in turn, after their answers were checked."""
        progress(f"{name}, {connections} connections")
        checked: list[int] = []
        runs: list[Callable[[], Result]] = []
        for workspace in workspaces:
            requests = operation.requests(workspace, 1 if operation.is_write else self.number())
            probes = workspace.random.sample(requests, min(10, len(requests)))
            checked += [request.check(workspace.service.port) for request in probes]
            if operation.is_write:
                run = partial(self.write_run, name, operation, workspace, connections)
            else:
                run = partial(self.run, name, workspace.service, encoded(requests), connections)
            runs.append(run)
        # The same headers too: gunicorn parses each of them.
        same_size = [load.encode("GET", f"/{mean(checked):.0f}", **requests[0].headers())]
        runs.insert(0, partial(self.run, "bare Flask", bare, same_size, connections))
        return [Summary(results) for results in alternate(runs, self.options.rounds)]

    def service(
        self, stack: ExitStack, tasks: int, settings: dict[str, str] | None = None, *, overdue: bool = False
    ) -> Workspace:
        """Start the service on a database with so many tasks; it ends with the stack."""
        database = self.database(tasks, overdue=overdue)
        return Workspace(stack.enter_context(Service(database, self.core, settings or {})))


def encoded(requests: Iterable[Request]) -> list[bytes]:
    return [request.encoded() for request in requests]


def progress(text: str) -> None:
    """Say on standard error what is done now."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def judged(value: float, target: float | None, *, at_most: bool = False) -> str:
    """The cell of a value that may have a target: `0.78 ≥ 0.75`, or `0.46 < 0.75` where it is missed."""
    if target is None:
        return f"{value:.2f}"
    if at_most:
        return f"{value:.1f} {'≤' if value <= target else '>'} {target:g}"
    return f"{value:.2f} {'≥' if value >= target else '<'} {target:.2f}"


# The tables -----------------------------------------------------------------------------------


def requests_table(bench: Bench) -> None:
    """Each operation beside the bare application, with the fewest tasks."""
    cases = [(name, CONNECTIONS) for name in bench.options.only]
    if not bench.options.short:
        several = [name for name in SEVERAL if name in bench.options.only]
        cases += [(name, connections) for name in several for connections in OTHER_CONNECTIONS]
    rows, sent = [], 0
    rates: dict[str, float] = {}
    with ExitStack() as stack:
        bare = stack.enter_context(Bare(bench.folder, bench.core))
        workspace = bench.service(stack, bench.options.tasks)
        memory = workspace.service.memory_mb()
        for name, connections in cases:
            operation = OPERATIONS[name]
            base, ours = bench.compare(name, operation, bare, [workspace], connections)
            sent += ours.requests
            rates.setdefault(name, ours.rate)
            ratio = judged(ours.over(base), operation.target if connections == CONNECTIONS else None)
            times = [f"{ours.p50:.2f}", f"{ours.p99:.2f}", f"{ours.max:.0f}", f"{ours.cpu:.0f}"]
            rows.append([name, str(connections), *ours.rates(), *base.rates(), ratio, *times])
        memory_after = workspace.service.memory_mb()
    headings = "operation|connections|requests/s|min–max|bare Flask/s|min–max|ratio"
    headings += "|p50 ms|p99 ms|max ms|CPU µs"
    bench.table(f"Requests, {bench.options.tasks} tasks", headings, rows)
    bench.write(f"\nWorker memory: {memory:.0f} MB at first, {memory_after:.0f} MB after {sent} requests.")
    if rates.get("list") and DEEP_LIST in rates:
        bench.write(f"\n{DEEP_LIST} against list: {judged(rates[DEEP_LIST] / rates['list'], 0.5)}")


def growth_table(bench: Bench) -> None:
    """The same operations with more and more tasks."""
    sizes = bench.options.sizes
    names = [name for name in GROWING if name in bench.options.only]
    headings = ["operation", *[f"{size} tasks/s|min–max" for size in sizes]]
    headings += [f"{size} : {sizes[0]}" for size in sizes[1:]] + [f"ratio at {size}" for size in sizes]
    with ExitStack() as stack:
        bare = stack.enter_context(Bare(bench.folder, bench.core))
        workspaces = [bench.service(stack, size) for size in sizes]
        rows = [growth_row(bench, name, bare, workspaces) for name in names]
        bench.table("Growth", "|".join(headings), rows)
        if not bench.options.short:
            left_alone = [bench.service(stack, size, overdue=True) for size in sizes]
            slowest_table(bench, workspaces, left_alone)
            beside_table(bench, workspaces[-1])
    start_table(bench)


def growth_row(bench: Bench, name: str, bare: Bare, workspaces: list[Workspace]) -> list[str]:
    """The cells of an operation: the throughput with each number of tasks, what is left of it, the ratios."""
    operation, sizes = OPERATIONS[name], bench.options.sizes
    base, *ours = bench.compare(name, operation, bare, workspaces, CONNECTIONS)
    is_bounded = name in ("get", "create") or (name.startswith("list") and operation.target is not None)
    row = [name, *[cell for summary in ours for cell in summary.rates()]]
    row += [judged(summary.over(ours[0]), GROWTH_TARGET if is_bounded else None) for summary in ours[1:]]
    targets = CONTEXT_TARGETS if name == "context" else dict.fromkeys(sizes, operation.target)
    ratios = zip(sizes, ours, strict=True)
    return row + [judged(summary.over(base), targets.get(size)) for size, summary in ratios]


def slowest_table(bench: Bench, workspaces: list[Workspace], left_alone: list[Workspace]) -> None:
    """The slowest request of a kind; of lists also in the slowest order, with the most tasks."""

    def row(name: str, make: Callable, target: float, places: list[Workspace]) -> list[str]:
        progress(f"the slowest {name}")
        times = [slowest(workspace, make) for workspace in places]
        return [name, *[f"{ms:.1f}" for ms in times[:-1]], judged(times[-1], target, at_most=True)]

    context, searches = OPERATIONS["context"].make, ("list q rare", "list q common")
    rows = [row("context", context, 8, workspaces)]
    rows.append(row("context, one task in nine overdue", context, 8, left_alone))
    rows += [row(name, OPERATIONS[name].make, 25, workspaces) for name in searches]
    rows = [[*cells, "", ""] for cells in rows]
    for filters in [*[(name,) for name in FILTERS], *PAIRS]:
        cells = row(f"list {' + '.join(filters)}", lists(*filters), 15, workspaces)
        by_order = {sort: slowest(workspaces[-1], lists(*filters, sort=sort)) for sort in SORTS}
        sort = max(by_order, key=lambda name: by_order[name])
        rows.append([*cells, judged(by_order[sort], 15, at_most=True), sort])
    sizes = bench.options.sizes
    headings = ["request", *[f"{size} tasks, ms" for size in sizes], f"{sizes[-1]}, slowest order, ms|order"]
    bench.table("The slowest requests of one client", "|".join(headings), rows)


def slowest(workspace: Workspace, make: Callable[[Workspace], Iterable[Request]]) -> float:
    """The milliseconds of the slowest of some requests, each at its best of three times."""
    requests = list(make(workspace))
    requests = workspace.random.sample(requests, min(PROBES, len(requests)))
    ends_at, worst = time.perf_counter() + PROBE_SECONDS, 0.0
    with closing(http.client.HTTPConnection("127.0.0.1", workspace.service.port)) as connection:
        for request in requests:
            times = []
            for _ in range(3):
                started = time.perf_counter()
                connection.request(request.method, request.path, headers=request.headers())
                answer = connection.getresponse()
                answer.read()
                times.append(time.perf_counter() - started)
                if answer.status != 200:
                    raise RuntimeError(f"{request.path}: {answer.status}")
            worst = max(worst, min(times))
            if time.perf_counter() > ends_at:
                break
    return worst * 1000


def beside_table(bench: Bench, workspace: Workspace) -> None:
    """A get over one connection beside the costliest reads over eight."""
    progress("a get beside the costliest reads")
    port, generator = workspace.service.port, bench.options.generator
    seconds, gets = max(bench.options.seconds, 2.0), encoded(get(workspace))

    def run(operation: Operation | None) -> tuple[Result, Result | None]:
        with ThreadPoolExecutor(1) as pool:
            costly = None
            if operation:
                requests = encoded(operation.requests(workspace, bench.number()))
                costly = pool.submit(load.run, port, requests, CONNECTIONS, seconds + 0.5, generator)
                time.sleep(0.3)
            result = load.run(port, gets, 1, seconds, generator)
            if result.errors:
                bench.problems.append(f"get beside costly reads: {result}")
            return result, costly.result() if costly else None

    rows = []
    for name, operation in [("nothing", None), *BESIDE.items()]:
        pairs = [run(operation) for _ in range(bench.options.rounds)]
        own = Summary([result for result, _ in pairs])
        other = [result for _, result in pairs if result]
        p99 = judged(own.p99, 150 if operation else None, at_most=True)
        rows.append([name, f"{own.p50:.2f}", p99, f"{own.max:.0f}", f"{own.rate:.0f}"])
        # That a read which would take too long is refused is no error; one without an answer is.
        lost = [result for result in other if result.timeouts + result.broken]
        bench.problems += [f"{name}, beside a get: {result}" for result in lost]
        refused = sum(result.refused for result in other)
        rows[-1] += [f"{Summary(other).rate:.0f}", str(refused)] if other else ["", ""]
    title = f"A get beside eight connections of costly reads, {bench.options.sizes[-1]} tasks"
    bench.table(title, "beside|p50 ms of a get|p99 ms|max ms|gets/s|costly reads/s|of them refused", rows)


def start_table(bench: Bench) -> None:
    """The time from the start of the program to the first answer."""
    databases = [bench.database(size) for size in bench.options.sizes]
    seconds: list[list[float]] = [[] for _ in databases]
    for _ in range(min(bench.options.rounds, 3)):
        for database, times in zip(databases, seconds, strict=True):
            with Service(database, bench.core, {}) as service:
                times.append(service.start_seconds)
    rows = [
        [str(size), judged(median(times), 1, at_most=True), f"{min(times):.2f}–{max(times):.2f}"]
        for size, times in zip(bench.options.sizes, seconds, strict=True)
    ]
    bench.table("Start to first answer, database in memory", "tasks|seconds|min–max", rows)


def receivers_table(bench: Bench) -> None:
    """Tasks that are created while their events are sent, and a get beside them."""
    modes = ["none", "at once", "hangs"] if bench.options.short else list(MODES)
    with ExitStack() as stack, servers.receivers() as receiver:  # the receivers end first
        runs: list[Callable[[], Result]] = []
        besides: list[list[Result]] = []
        for mode in modes:
            setting = servers.webhook_setting(receiver, *MODES[mode])
            workspace = bench.service(stack, bench.options.tasks, setting)
            # The first requests wait for a receiver that hangs until their deadline; later ones do not.
            load.send(workspace.service.port, encoded(islice(OPERATIONS["create"].make(workspace), 8)))
            besides.append([])
            runs.append(partial(create_and_get, bench, mode, workspace, besides[-1]))
        progress("receivers")
        created = [Summary(results) for results in alternate(runs, bench.options.rounds)]
    rows = []
    for mode, creates, gets in zip(modes, created, map(Summary, besides), strict=True):
        ratio = judged(creates.over(created[0]), 0.45 if mode == "at once" else None)
        times = [f"{number:.2f}" for number in (creates.p50, creates.p99, gets.p50, gets.p99)]
        rows.append([mode, *creates.rates(), ratio, *times])
    headings = "receiver|creates/s|min–max|: none|p50 ms|p99 ms|get: p50 ms|p99 ms"
    bench.table("Receivers: eight connections create, one gets", headings, rows)


def create_and_get(bench: Bench, mode: str, workspace: Workspace, gets: list[Result]) -> Result:
    """Create over eight connections; meanwhile get over one, whose result is added to `gets`."""
    requests = encoded(get(workspace))
    port, options = workspace.service.port, bench.options
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(load.run, port, requests, 1, options.seconds, options.generator)
        result = bench.write_run(f"create, receiver: {mode}", OPERATIONS["create"], workspace, CONNECTIONS)
        gets.append(beside.result())
    if gets[-1].errors:
        bench.problems.append(f"get, receiver: {mode}: {gets[-1]}")
    return result


def sizes_table(bench: Bench) -> None:
    """Bytes on disk for each task, with the fewest and the most tasks, by table and index."""
    sizes = [bench.options.sizes[0], bench.options.sizes[-1]]
    found: list[dict[str, float]] = []
    how = "of the pages of each table and index, from SQLite's dbstat"
    for size in sizes:
        database = bench.database(size)
        parts = {"the file": database.stat().st_size / size}
        try:
            with closing(sqlite3.connect(database)) as connection:
                statement = "SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE ORDER BY pgsize DESC"
                parts |= {name: pages / size for name, pages in connection.execute(statement)}
        except sqlite3.OperationalError:
            how = "of the file only, since this SQLite has no dbstat"
        found.append(parts)
    names = [name for name, part in found[-1].items() if part >= 0.5]  # the others hold no tasks
    rows = [[name, *[f"{parts.get(name, 0):.0f}" for parts in found]] for name in names]
    bench.table(f"Bytes on disk per task: {how}", "|".join(["", *[f"{size} tasks" for size in sizes]]), rows)


def peers_table(bench: Bench) -> None:
    """Other systems on the same work."""
    peers: Any = import_module("peers")  # needs packages that the service does not
    bench.write(peers.table(bench.options))


# The program ----------------------------------------------------------------------------------


def heading(bench: Bench) -> str:
    """The machine, the versions, the date and the commit."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    system = subprocess.run(
        ["stat", "-f", "-c", "%T", bench.folder], capture_output=True, text=True, check=True
    ).stdout.strip()
    git = ["git", "-C", str(servers.ROOT)]
    describe = [*git, "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
    packages = ", ".join(f"{name} {version(name)}" for name in ("Flask", "peewee", "gunicorn"))
    shown = bench.options.generator
    if shown == "wrk":
        words = subprocess.run(["wrk", "-v"], capture_output=True, text=True).stdout.split()
        shown = f"wrk {words[1]}"
    return (
        f"{cpu}, {os.cpu_count()} cores: servers on core {bench.core}, load on core {bench.load_core}; "
        f"databases on {system}. Python {platform.python_version()}, {packages}, "
        f"SQLite {sqlite3.sqlite_version}, load by {shown}. {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, "
        f"commit {commit or 'unknown'}. "
        f"Medians of {bench.options.rounds} rounds of {bench.options.seconds:g} s."
    )


def main() -> int:
    """Write the tables that are asked for; the exit code is 1 if a request failed."""
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that everything is ended
    with TemporaryDirectory(prefix="bench-") as folder:
        bench = Bench(options, Path(folder))
        bench.write(heading(bench))
        for name in options.tables:
            try:
                globals()[f"{name}_table"](bench)
            except (RuntimeError, OSError) as error:  # a wrong answer, or none
                bench.problems.append(f"the table {name} is not complete: {error}")
    for problem in bench.problems:
        bench.write(f"\nError: {problem}")
    bench.write(f"\nErrors: {len(bench.problems) or 'none'}.")
    if options.output:
        options.output.write_text("\n".join(bench.lines) + "\n")
    return 1 if bench.problems else 0


if __name__ == "__main__":
    sys.exit(main())
