"""Let many clients work for minutes: nothing is refused, lost, or left behind, and nothing grows.

The benchmark's requests come in rounds. Each is sent once, so the expected rows of the database are known.
A server without webhooks has one client, then 64 clients that only write. A second server has thousands of
tasks and sends every event to a healthy receiver. It has one client, then 64 mixed clients, then half as many
requests.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import load
import servers
from figures import Summary
from findings import Run
from harness import EVERY_EVENT, NOBODY, Server, wait_until
from operations import OPERATIONS, Request, Workspace, act, api

from database import FairLock

CLIENTS = 64
# The parts of this part's time; the rest is for starting, and for the checks at the end.
ONE_CLIENT, WRITERS, MIXED, HALVED = 0.02, 0.08, 0.5, 0.2
# At first. They exceed a connection's page cache (2 MB), which therefore soon reaches its limit.
TASKS = 5000
# Nothing may grow after this many requests. A slow machine that does fewer than twice as many starts at half.
SETTLED = 10_000
# The accepted growth in 100 000 requests.
MEMORY_MB = 20.0
# The possible growth: a thread that reads for the first time opens a connection with two files.
FILES = 2 * 40 + 4
# The possible growth: gunicorn starts its threads on demand.
THREADS = 40 + 4
# The limit of the database's log: `journal_size_limit` truncates it.
LOG_MB = 64.0
KEPT = {f"tasks.db{suffix}" for suffix in ("", "-wal", "-shm", ".server", ".serving", ".sender")}
# The number of requests of each kind in a hundred.
WRITES = {"create": 45, "update": 40, "comment": 15}
MIX = {"get": 20, "list status": 8, "list q common": 4, "context": 4, "find_tasks": 4, "create_task": 2}
MIX |= {"create": 18, "update": 18, "comment": 10, "create_flow": 4, "refused": 8}
# The names in `COUNTS` that a request of each kind adds to.
ADDS: dict[str, tuple[str, ...]] = {
    "create": ("tasks", "task.created"),
    "create_task": ("tasks", "task.created"),
    "update": ("versions", "task.updated"),
    "comment": ("comments", "comment.added"),
    "create_flow": ("flows",),
}
COUNTS = """
    SELECT 'tasks' AS what, COUNT(*) AS number FROM task
    UNION ALL SELECT 'versions', SUM(version - 1) FROM task
    UNION ALL SELECT 'comments', COUNT(*) FROM comment
    UNION ALL SELECT 'flows', COUNT(*) FROM flow
    UNION ALL SELECT name, COUNT(*) FROM event GROUP BY name
"""


def run(run: Run) -> None:
    if load.MISSING:
        run.found("G5", "many clients", f"not done: {load.MISSING}")
        return
    with servers.receivers(run.folder / "events.txt") as port:
        alone = without_webhooks(run)
        with_webhook(run, port, alone)


def use_tool(name: str, **arguments: str) -> Request:
    params = {"name": name, "arguments": arguments}
    return Request("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def requests(kind: str, workspace: Workspace) -> Iterator[Request]:
    """Yield requests of one kind. Each request that writes has a text of its own."""
    if kind in OPERATIONS:
        yield from OPERATIONS[kind].make(workspace)
    elif kind == "find_tasks":
        yield use_tool("find_tasks")
    elif kind == "create_task":
        while True:
            yield use_tool("create_task", project=workspace.projects[0], title=workspace.new_title())
    elif kind == "create_flow":
        yield act("create_flow", goal="Answer an order")
    else:
        yield api("POST", "/tasks", title="", project_id=NOBODY)
        yield api("GET", f"/tasks/{NOBODY}")
        yield api("DELETE", "/context")
        yield Request("POST", "/mcp", {"jsonrpc": "1.0"})


class Sample(NamedTuple):
    """The resources that a worker uses at a moment."""

    requests: int  # answered so far
    memory: float  # MB
    files: int
    threads: int
    log: float  # MB
    temporary: int


class Phase(NamedTuple):
    """The measurements of some rounds."""

    summary: Summary
    samples: list[Sample]
    wrong: int  # rounds


class Stage:
    """A server whose gateway does not limit the load, and the changes that it acknowledged."""

    def __init__(self, run: Run, server: Server, temporary: Path):
        self.run, self.server, self.temporary = run, server, temporary
        self.workspace = Workspace(server)
        (self.worker,) = server.children()
        self.expected, self.titles = self.counts(), set[str]()
        self.results: list[load.Result] = []
        self.wrong: list[str] = []

    def counts(self) -> Counter[str]:
        return Counter({row["what"]: row["number"] for row in self.server.rows(COUNTS)})

    def send(self, shares: dict[str, int], connections: int, pause_ms: float = 0) -> None:
        """Send a round of requests in a random order, each once."""
        times = self.run.count(10)
        sent = [
            (kind, request)
            for kind, share in shares.items()
            for request in islice(cycle(requests(kind, self.workspace)), share * times)
        ]
        self.run.random.shuffle(sent)
        base, encoded = self.server.base, [request.encoded() for _, request in sent]
        result = load.run(base, encoded, connections, pause_ms=pause_ms)
        refused = shares.get("refused", 0) * times
        searches = shares.get("list q common", 0) * times  # the service refuses one beside six others
        is_right = refused <= result.refused <= refused + searches
        if not is_right or (result.requests, result.timeouts, result.broken) != (len(sent), 0, 0):
            self.wrong.append(f"of {len(sent)} requests {refused} should be refused: {result}")
        for kind, request in sent:
            self.expected.update(ADDS.get(kind, ()))
            if kind == "create" and request.body:
                self.titles.add(request.body["title"])
        self.results.append(result)

    def rounds(self, part: float, shares: dict[str, int], connections: int, pause_ms: float = 0) -> Phase:
        """Send rounds of requests for a part of the time. Return the measurements."""
        ends_at = time.monotonic() + part * self.run.seconds
        before, wrong, samples = len(self.results), len(self.wrong), [self.sample()]
        while len(samples) == 1 or time.monotonic() < ends_at:
            self.send(shares, connections, pause_ms)
            samples.append(self.sample())
        return Phase(Summary(self.results[before:]), samples, len(self.wrong) - wrong)

    def connections(self) -> int:
        """Return how many connections of clients the server has not closed."""
        port = f":{int(self.server.base.rpartition(':')[2]):04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        # States 01 and 08 are ESTABLISHED and CLOSE_WAIT.
        return sum(row[1].endswith(port) and row[3] in ("01", "08") for row in rows)

    def sample(self) -> Sample:
        # The connections of the load end a moment after it.
        wait_until(lambda: not self.connections())
        log, process = Path(f"{self.server.database}-wal"), f"/proc/{self.worker}"
        return Sample(
            sum(result.requests for result in self.results),
            servers.memory_mb(self.worker),
            len(os.listdir(f"{process}/fd")),
            len(os.listdir(f"{process}/task")),
            log.stat().st_size / 1e6 if log.exists() else 0.0,
            len(os.listdir(self.temporary)),
        )

    @property
    def is_slow(self) -> bool:
        """Return whether a commit took so long that the service refuses the writers behind it."""
        return bool(self.wrong) and max(result.max for result in self.results) > FairLock.STALL_SECONDS * 1000

    def check(self) -> bool:
        """Return whether the database contains exactly the acknowledged changes, with right counters."""
        problems, found = list(self.wrong), self.counts()
        if found != self.expected:
            problems.append(
                f"not as acknowledged: {dict(found - self.expected)}, {dict(self.expected - found)}"
            )
        if lost := self.titles - {row["title"] for row in self.server.rows("SELECT title FROM task")}:
            problems.append(f"{len(lost)} tasks are lost, such as {min(lost)}")
        with suppress(AssertionError):  # the doctor reports pending deliveries
            wait_until(lambda: not self.server.rows("SELECT 1 FROM delivery WHERE status = 'pending'"), 30)
        doctor = self.server.flask("doctor")
        if doctor.returncode or "pending" in doctor.stdout:
            problems.append(f"doctor says: {' '.join(doctor.stdout.split())[:300]}")
        if self.server.children() != [self.worker]:
            problems.append("the worker has ended, and was replaced")
        for problem in problems[:5]:
            self.run.found("", "fault", problem, kept=False, is_speed=self.is_slow)
        return not problems


@contextmanager
def serving(run: Run, name: str, tasks: int, **settings: str) -> Iterator[Stage]:
    """Start a server with `tasks` tasks. When it ends, no file is left, and no bug is in its log."""
    folder = run.folder / f"{name}-settings"
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    settings |= {"TASKS_CONFIG": servers.configure(folder), "TMPDIR": str(temporary)}
    with run.server(name, **settings) as server:
        if tasks:
            server.flask("seed", "--tasks", str(tasks))
        stage = Stage(run, server, temporary)
        yield stage
        server.allow_bugs = stage.is_slow  # the log reports the database's delays
        server.stop()
        left = {file.name for file in [*server.database.parent.iterdir(), *temporary.iterdir()]} - KEPT
        if left:
            run.fault(f"files are left: {', '.join(left)}")


def without_webhooks(run: Run) -> float:
    """Measure one client, then many that only write. Return the single client's milliseconds a write."""
    with serving(run, "plain", 0) as stage:
        alone = stage.rounds(ONE_CLIENT, WRITES, 1).summary
        figure, kept = f"p50 {alone.p50:.1f} ms, p99 {alone.p99:.1f} ms", alone.p50 < 5 and alone.p99 < 15
        run.found("G6", "a write of one client", figure, "< 5, < 15 ms", kept, is_speed=True)
        many = stage.rounds(WRITERS, WRITES, CLIENTS).summary
        figure = f"{many.rate:.0f}/s, p99 {many.p99:.0f} ms, max {many.max:.0f} ms"
        kept, target = many.rate >= 300 and many.p99 < 500 and many.max < 1000, "≥ 300/s, < 500, < 1000 ms"
        run.found("G5", f"{CLIENTS} clients that only write", figure, target, kept, is_speed=True)
        stage.check()
    return alone.p50


def with_webhook(run: Run, port: int, without: float) -> None:
    """Measure the same with a receiver: one client, the mix, and half the rate at random moments."""
    setting = servers.webhook_setting(port, EVERY_EVENT, "at-once")
    with serving(run, "hooked", run.count(TASKS), **setting) as stage:
        alone = stage.rounds(ONE_CLIENT, WRITES, 1).summary
        more = alone.p50 - without
        figure = f"p50 {alone.p50:.1f} ms (+ {more:.1f}), p99 {alone.p99:.1f} ms"
        run.found("G6", "the same with a healthy receiver", figure, "+ ≤ 5 ms", more <= 5, is_speed=True)
        mixed = stage.rounds(MIXED, MIX, CLIENTS)
        tell_mixed(stage, f"{CLIENTS} mixed clients", mixed)
        halved = stage.rounds(HALVED, MIX, CLIENTS, 2000 * CLIENTS / mixed.summary.rate)
        tell_mixed(stage, "the same at half that rate, at random moments", halved)
        tell_growth(run, mixed.samples + halved.samples)
        kept, arrived = stage.check(), Counter((run.folder / "events.txt").read_text().split())
        events = {row["id"] for row in stage.server.rows("SELECT id FROM event")}
        resources = sum(stage.expected[what] for what in ("tasks", "comments", "flows"))
        figure = f"{resources} resources; {len(events & arrived.keys())} of {len(events)} events, "
        figure += f"{arrived.total() - len(arrived)} of them again"
        kept = kept and arrived.keys() == events
        run.found("G2", "acknowledged, and there", figure, "all", kept, is_speed=stage.is_slow)


def tell_mixed(stage: Stage, what: str, phase: Phase) -> None:
    summary, rounds = phase.summary, len(phase.samples) - 1
    figure = f"{summary.requests} requests, {summary.rate:.0f}/s; wrong or refused in {phase.wrong} of "
    figure += (
        f"{rounds} rounds; p50 / p99 / max: {summary.p50:.1f} / {summary.p99:.1f} / {summary.max:.1f} ms"
    )
    stage.run.found("G5", what, figure, "none refused", not phase.wrong, is_speed=stage.is_slow)


def tell_growth(run: Run, samples: list[Sample]) -> None:
    """Write the resources in use at first, at last, and at most since the worker was warm."""
    first, last = samples[0], samples[-1]
    warm = [sample for sample in samples if sample.requests >= min(SETTLED, last.requests // 2)]
    requests = last.requests - warm[0].requests
    grown = mean(sample.memory for sample in warm[-3:]) - mean(sample.memory for sample in warm[:3])
    per = max(100_000 / requests, 1) if requests >= SETTLED else 1
    figure = f"{first.memory:.0f}, {warm[0].memory:.0f}, {last.memory:.0f} MB: {grown * per:+.1f} MB"
    what = f"memory first, warm, last: growth in {requests * per:.0f} requests"
    run.found("G16", what, figure, f"< {MEMORY_MB:.0f} MB", grown * per < MEMORY_MB)
    most = Sample(*map(max, zip(*warm, strict=True)))
    figure = f"{warm[0].files} and {most.files} files, {warm[0].threads} and {most.threads} threads, "
    figure += f"log {most.log:.0f} MB, temporary files {most.temporary}"
    kept = most.files - warm[0].files <= FILES and most.threads - warm[0].threads <= THREADS
    kept = kept and most.log <= LOG_MB and not most.temporary
    run.found("G16", "warm, and at most", figure, f"no growth, ≤ {LOG_MB:.0f} MB, 0", kept)
