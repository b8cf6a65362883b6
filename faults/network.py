"""The network: what clients, receivers and a proxy may do to a server, and what the others notice of it."""

import resource
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any

import outgoing
import proxy
from bystanders import Work, held, look_at_log, working
from clients import FILE, FORM, JSON, MISBEHAVIOURS, Line, Misbehaviour, Target, head, misbehave
from findings import Run
from harness import PATIENCE, at_once

THREADS = 16  # of gunicorn.conf.py
CLIENTS = THREADS // 2  # misbehave side by side, so that some threads are left for others
CONNECTIONS = 1000
SECRET = "the-secret-of-a-route"
ROUTE = "/plugins/webhooks/zapier"
LIST = b'{"action": "list_flows"}'
HALF = len(LIST) // 2
CONFIG = """
[plugins.entries.webhooks.config.routes.zapier]
sessionKey = "agent:main"
secret = "{secret}"

[plugins.entries.webhooks.config.limits]
requests = {requests}
inFlight = {in_flight}
bodySeconds = {body_seconds}
"""


def run(run: Run) -> None:
    stages = [partial(stage, run) for stage in (hostile_clients, outgoing.run, behind_proxy)]
    if not shutil.which("openssl"):
        run.found(
            "G8", "receivers, and nginx", "not done: openssl, which makes certificates, is not installed"
        )
        del stages[1:]
    if run.is_short:
        at_once(*stages)
    else:
        for stage in stages:
            stage()


def hostile_clients(run: Run) -> None:
    stalled = 0.5 if run.is_short else 6
    config = configuration(run, "clients", requests=100_000, in_flight=THREADS, body_seconds=stalled)
    with run.server("clients", TASKS_CONFIG=config) as server:
        target = Target(server, ROUTE, SECRET)
        before = settled(server, target)
        storm(run, target, run.seconds / 8)
        idle_connections(run, target, 100 if run.is_short else CONNECTIONS)
        stalled_bodies(run, target, stalled)
        after_all(run, target, before)
        look_at_log(run, server)


def behind_proxy(run: Run) -> None:
    config = configuration(run, "proxied", requests=20, in_flight=8, body_seconds=15)
    with run.server("proxied", TASKS_CONFIG=config, TASKS_SERVER__TRUSTED_PROXIES="1") as server:
        proxy.run(run, server, SECRET, ROUTE)
        look_at_log(run, server)


def configuration(run: Run, name: str, **limits: float) -> str:
    """A configuration file with a route of the gateway; returns its path."""
    path = run.folder / f"{name}.toml"
    path.write_text(CONFIG.format(secret=SECRET, **limits))
    return str(path)


def comes_true(found: Callable[[], object], seconds: float = PATIENCE) -> bool:
    ends_at = time.monotonic() + seconds
    while not found():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.05)
    return True


# Clients -----------------------------------------------------------------------------------------


def settled(server: Any, target: Target) -> tuple[int, int]:
    """The threads and files of the server when it has used all its threads, and has no connection."""
    uploads(target, 6)
    lines = stall(target, THREADS)
    comes_true(lambda: held(server)[0] >= THREADS + 3, 10)  # the main one, the sweeper and the deadlines' too
    for line in lines:
        line.socket.sendall(LIST[HALF:])
        line.answer()
        line.close()
    for client in server.clients:
        client.session.close()
    time.sleep(0.5)
    return held(server)


def stall(target: Target, many: int) -> list[Line]:
    """Begin so many requests of the route, and stop in the middle of their bodies."""
    headers = [JSON, f"Content-Length: {len(LIST)}", f"x-agent-webhook-secret: {target.secret}"]
    lines = [Line(target.server) for _ in range(many)]
    for line in lines:
        line.socket.sendall(head("POST", target.route, headers, None) + LIST[:HALF])
    return lines


def uploads(target: Target, many: int) -> list[int]:
    """Send so many files at the same time; returns the statuses."""
    form = FILE % (b"x" * 1000)
    lines = [Line(target.server) for _ in range(many)]
    for line in lines:
        line.send("POST", target.files, [FORM, f"Content-Length: {len(form)}"], form[:500])
    for line in lines:
        line.socket.sendall(form[500:])
    statuses = [line.answer()[0] for line in lines]
    for line in lines:
        line.close()
    return statuses


def storm(run: Run, target: Target, seconds: float) -> None:
    """Have clients misbehave in every way, side by side, while others work."""
    ends_at = time.monotonic() + (PATIENCE if run.is_short else seconds)
    rounds, every = (1 if run.is_short else 100), len(MISBEHAVIOURS)
    kinds = [kind for _ in range(rounds) for kind in run.random.sample(MISBEHAVIOURS, every)]

    def some(share: list[Misbehaviour], seed: float) -> list[str]:
        random, wrong = Random(seed), []
        while share and time.monotonic() < ends_at:
            wrong += misbehave(target, [share.pop()], random)
        return wrong

    shares = [kinds[number::CLIENTS] for number in range(CLIENTS)]
    seeds = [run.random.random() for _ in shares]
    with working(target.server, target.project["id"], 2) as others, ThreadPoolExecutor(CLIENTS) as pool:
        wrong = {problem for problems in pool.map(some, shares, seeds) for problem in problems}
    work = Work(others)
    for problem in sorted(wrong):
        run.fault(problem)
    if work.failures:
        run.fault(f"beside clients that misbehave, others got {work.failures}")
    what = f"{len(kinds) - sum(map(len, shares))} clients that misbehave in {every} ways"
    figure = f"{len(work.answers)} requests of others: {work.failures or 'all served'}"
    run.found("O1", what, figure, "all served", not work.failures and not wrong)


def idle_connections(run: Run, target: Target, many: int) -> None:
    """Open many connections, half of which have been used, and see that others are served meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    free = hard - 200 if hard > 0 else many
    many, slowest = min(many, free), 0.0
    with ExitStack() as ends:
        ends.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for number in range(many):
            line = Line(target.server)
            ends.callback(line.close)
            if number % 2:
                line.send("GET", "/health", [])
                if line.answer()[0] != 200:
                    run.fault(f"beside {number} idle connections a request was refused")
        for _ in range(20):
            at, line = time.monotonic(), Line(target.server)
            line.send("GET", "/context", [])
            if line.answer()[0] != 200:
                run.fault(f"beside {many} idle connections a request was refused")
            line.close()
            slowest = max(slowest, time.monotonic() - at)
    run.found(
        "O14",
        f"a new client beside {many} idle connections",
        f"served in {slowest * 1000:.0f} ms at most",
        "1 s",
        slowest < 1,
        is_speed=True,
    )


def stalled_bodies(run: Run, target: Target, seconds: float) -> None:
    """Stop in the middle of as many bodies as there are threads, but one, and then of more than these."""
    measured = min(seconds * 0.6, 3)

    def work() -> Work:
        with working(target.server, target.project["id"], 1, pause=0.005) as others:
            time.sleep(measured)
        return Work(others)

    quiet = work()
    lines = stall(target, THREADS - 1)
    busy = work()
    if busy.failures or not busy.answers:
        run.fault(f"beside {THREADS - 1} bodies that stall others got {busy.failures or 'nothing'}")
    statuses = {line.answer()[0] for line in lines}
    if statuses != {408}:
        run.fault(f"bodies that stall were answered {statuses}, not 408: slots of the route are lost")
    run.found(
        "G10",
        f"p99 of others beside {THREADS - 1} stalled bodies",
        f"{busy.p99():.1f} ms; without {quiet.p99():.1f} ms",
        "1.5 x",
        busy.p99() <= 1.5 * quiet.p99() + 2,
        is_speed=True,
    )
    lines += stall(target, 2 * THREADS)
    at, other = time.monotonic(), Line(target.server)
    other.send("GET", "/health", [])
    status, took = other.answer()[0], time.monotonic() - at
    if status != 200:
        run.fault(f"after bodies that stalled in all threads a request got {status}")
    run.found(
        "G10",
        f"a request while bodies stall in all {THREADS} threads, for {seconds:g} s at most",
        f"served after {took:.1f} s",
        f"{2 * seconds + 1:g} s",  # twice as many bodies as threads
        took <= 2 * seconds + 1,
        is_speed=True,
    )
    for line in (*lines, other):
        line.close()


def after_all(run: Run, target: Target, before: tuple[int, int]) -> None:
    """Compare what the server holds with what it held before, and see that nothing of it is in use."""
    server = target.server
    statuses = uploads(target, 6)
    if set(statuses) != {201}:
        run.fault(f"6 uploads at the same time got {statuses}: slots of uploads are lost")
    for client in server.clients:
        client.session.close()
    is_free = comes_true(lambda: held(server)[0] <= before[0] and held(server)[1] <= before[1], 30)
    after = held(server)
    if not is_free:
        run.fault(f"the worker had {before} threads and files, and has {after} after clients that misbehaved")
    run.found(
        "O1",
        "threads and files of the worker (not the database's), before and after",
        f"{before[0]} and {before[1]}, {after[0]} and {after[1]}",
        "no more",
        is_free,
    )
