"""Let clients, receivers and a proxy misbehave, and check that other clients are still served."""

import resource
import shutil
import time
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import outgoing
import proxy
from clients import JSON, Line
from findings import Run
from harness import Server, at_once, wait_until
from unruly import MISBEHAVIOURS, Target, new_target, storm
from writers import Writers, working

THREADS = 40  # of gunicorn.conf.py
# The others are the main thread, the sweeper and the thread of the deadlines.
MOST_THREADS = THREADS + 3
# The clients that misbehave side by side. Some threads are left for others.
CLIENTS = THREADS // 2


def run(run: Run) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # for a thousand connections
    stages = [partial(hostile_clients, run)]
    if shutil.which("openssl"):
        stages += [partial(outgoing.run, run), partial(proxy.run, run)]
    else:
        run.found("G8", "receivers, and nginx", "not done: openssl, which makes certificates, is missing")
    if run.is_short:
        at_once(*stages)
    else:
        for stage in stages:
            stage()


def hostile_clients(run: Run) -> None:
    stalled_bodies(run, 0.5 if run.is_short else 6)
    with run.server("clients") as server:
        target = new_target(server)
        files = held(server)[1]
        beside_a_storm(run, target, 1 if run.is_short else run.seconds / 8)
        idle_connections(run, target, 100 if run.is_short else 1000)
        nothing_is_held(run, server, target, files)


def beside_a_storm(run: Run, target: Target, seconds: float) -> None:
    """Let clients misbehave in every way while others work."""
    with Writers(target.server, target.project, 2) as others:
        done = storm(target, CLIENTS, seconds, run.random)
    wrong = sorted({problem for problem in done if problem})
    for problem in wrong:
        run.fault(problem)
    what = f"{len(done)} clients that misbehave in {len(MISBEHAVIOURS)} ways"
    figure = f"{len(others.answers)} requests of others: {others.failures or 'all served'}"
    run.found("O1", what, figure, "all served", not others.failures and not wrong)


def idle_connections(run: Run, target: Target, many: int) -> None:
    """Open many connections, use half of them, and check that others are served meanwhile."""
    with ExitStack() as ends:

        def ask() -> float:
            began, line = time.monotonic(), ends.enter_context(closing(Line(target.server)))
            line.send("GET", "/context", [])
            if (status := line.answer()[0]) != 200:
                run.fault(f"beside idle connections a request was answered {status}")
            return time.monotonic() - began

        for _ in range(many // 2):
            ends.enter_context(closing(Line(target.server)))
            ask()
        slowest = max(ask() for _ in range(20))
    what, figure = f"a new client beside {many} idle connections", f"{slowest * 1000:.0f} ms at most"
    run.found("O14", what, f"served in {figure}", "1 s", slowest < 1, is_speed=True)


def stall(server: Server, many: int) -> list[Line]:
    """Begin `many` requests, and stop in the middle of their bodies."""
    lines = [Line(server) for _ in range(many)]
    for line in lines:
        line.send("POST", "/tasks", [JSON, "Content-Length: 100"], b'{"title": ')
    return lines


def stalled_bodies(run: Run, seconds: float) -> None:
    """Stall bodies in all threads but one, and then stall more bodies than there are threads."""
    with run.server("stalled", BOUND_READ_SECONDS=str(seconds)) as server:
        quiet = working(server, 1, seconds / 2)
        lines = stall(server, THREADS - 1)
        busy = working(server, 1, seconds / 2)
        if busy.failures or not busy.answers:
            run.fault(f"beside {THREADS - 1} bodies that stall others got {busy.failures or 'nothing'}")
        if (statuses := {line.answer()[0] for line in lines}) != {408}:
            run.fault(f"bodies that stall were answered {statuses}, not 408")
        lines += stall(server, 2 * THREADS)
        began = time.monotonic()
        status, took = server.client().get("/health").status_code, time.monotonic() - began
        for line in lines:
            line.close()
    if status != 200:
        run.fault(f"after bodies that stalled in all threads a request got {status}")
    what, figure = f"p99 of others beside {THREADS - 1} stalled bodies", f"{busy.p99():.1f} ms"
    is_quick = busy.p99() <= 1.5 * quiet.p99() + 2
    run.found("G10", what, f"{figure}; without {quiet.p99():.1f} ms", "1.5 x", is_quick, is_speed=True)
    what = f"a request while bodies stall in all {THREADS} threads, for {seconds:g} s at most"
    most = 2 * seconds + 1  # twice as many bodies as threads
    run.found("G10", what, f"served after {took:.1f} s", f"{most:g} s", took <= most, is_speed=True)


def held(server: Server) -> tuple[int, int]:
    """Return how many threads the server's worker has, and how many open files besides the database's files.

    The database's files do not count: each thread that once read beside others keeps a connection open.
    """
    process, files = Path(f"/proc/{server.children()[0]}"), 0
    for file in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            files += not file.readlink().name.startswith(server.database.name)
    return len(list((process / "task").iterdir())), files


def nothing_is_held(run: Run, server: Server, target: Target, files: int) -> None:
    """Check that no upload slot, thread or file is in use for clients that have gone."""
    owner = server.client()
    status = owner.request("POST", target.files, files={"file": ("f", b"x")}).status_code
    if status != 201:
        run.fault(f"an upload after many that broke off was answered {status}: their slots are lost")
    for client in server.clients:
        client.session.close()
    wait_until(lambda: held(server) <= (MOST_THREADS, files) and held(server)[1] <= files)
    what = "threads of the worker, and its files beside the database's, after all that"
    threads, now = held(server)
    run.found("O1", what, f"{threads} and {now}", f"{MOST_THREADS} and {files}", True)
