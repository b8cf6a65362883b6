"""Callers of the gateway: many at once on one flow, over the limit, and after a secret's rotation (G13)."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connections import Connection, connected
from findings import Run
from flows import Route, Row
from harness import Server, wait_until

# Two routes share a session; that of the third differs from it in the case of a letter.
ROUTES = (
    Route("first", "agent:main", "webhooks/first"),
    Route("again", "agent:main", "zapier"),
    Route("other", "agent:Main", "webhooks/other"),
)
UNLIMITED = "[plugins.entries.webhooks.config.limits]\nrequests = 1000000\ninFlight = 1000\n"
WRITERS = 200  # at once, of one revision
WINDOW = 120  # requests a minute are allowed by default


class Caller:
    """Calls a route with its secret over a connection."""

    def __init__(self, connection: Connection, path: str, secret: str):
        self.connection, self.path, self.secret = connection, path, secret

    def send(self, action: str, **fields: Any) -> None:
        """Send an action without waiting for its answer."""
        self.connection.send("POST", self.path, self.secret, {"action": action, **fields})

    def call(self, action: str, **fields: Any) -> tuple[int, Row]:
        self.send(action, **fields)
        return self.connection.receive()


@contextmanager
def calling(server: Server, path: str, secret: str, count: int) -> Iterator[list[Caller]]:
    """So many callers of one route."""
    with connected(server, count) as connections:
        yield [Caller(connection, path, secret) for connection in connections]


def configure(folder: Path, limits: str) -> str:
    """Write a configuration with the routes, whose secrets are in files; returns its path."""
    folder.mkdir(exist_ok=True)
    text = limits
    for route in ROUTES:
        file = folder / route.id
        file.touch(0o600)
        file.write_text(route.secret)
        text += f"""
[secrets.providers.{route.id}]
source = "file"
path = "{file}"
mode = "singleValue"
[plugins.entries.webhooks.config.routes.{route.id}]
sessionKey = "{route.session}"
controllerId = "{route.controller}"
secret = {{source = "file", provider = "{route.id}", id = "value"}}
"""
    (folder / "config.toml").write_text(text)
    return str(folder / "config.toml")


def write_at_once(callers: list[Caller], flow_id: str, revision: int) -> str:
    """Let all callers write the flow's next revision at once; returns what went wrong, if anything."""
    for number, caller in enumerate(callers):
        step = f"of caller {number}"
        caller.send("set_waiting", flowId=flow_id, expectedRevision=revision, currentStep=step)
    answers = [caller.connection.receive() for caller in callers]
    applied = [body["result"]["flow"] for status, body in answers if status == 200]
    told = [body["result"]["current"] for _, body in answers if body.get("code") == "revision_conflict"]
    if (len(applied), len(told)) != (1, len(callers) - 1):
        return f"{len(applied)} applied, {len(told)} refused for their revision"
    stored = callers[0].call("get_flow", flowId=flow_id)[1]["result"]["flow"]
    if stored["revision"] != revision + 1 or any(flow != stored for flow in applied + told):
        return f"{stored} is stored, {applied + told} were told"
    return ""


def check_races(run: Run, server: Server, until: float) -> None:
    """Let many callers write one flow's next revision, in one round after the other."""
    rounds, problem, started = 0, "", time.monotonic()
    with calling(server, ROUTES[0].path, ROUTES[0].secret, WRITERS) as callers:
        flow = callers[0].call("create_flow", goal="to be written at once")[1]["result"]["flow"]
        while not problem and rounds < run.count(1000) and (not rounds or time.monotonic() < until):
            problem = write_at_once(callers, flow["flowId"], rounds)
            rounds += 1
    if problem:
        run.fault(f"{WRITERS} callers sent set_waiting with one revision at once: {problem}")
    what = f"{WRITERS} callers with one revision at once, in one of two workers: exactly one is applied"
    run.found("G13", what, f"{rounds} rounds in {time.monotonic() - started:.0f} s", "all", not problem)


def check_window(run: Run, server: Server) -> None:
    """Send twice as many requests as a window allows, side by side, half of them with a wrong secret."""
    started, codes = time.monotonic(), []
    with calling(server, ROUTES[0].path, ROUTES[0].secret, 20) as callers:
        for caller in callers[::2]:
            caller.secret = "wrong"
        for _ in range(2 * WINDOW // len(callers)):
            for caller in callers:
                caller.send("list_flows")
            codes += [caller.connection.receive()[1].get("code") for caller in callers]
    allowed = sum(code != "rate_limited" for code in codes)
    is_kept = allowed == WINDOW if time.monotonic() - started < 50 else None  # else the window has ended
    what = f"{len(codes)} requests on a route, half with a wrong secret: not rate_limited are"
    run.found("G13", what, allowed, f"{WINDOW}", is_kept)


def is_accepted(server: Server, secret: str) -> bool:
    """Whether the second route accepts this secret, over a new connection."""
    with calling(server, ROUTES[1].path, secret, 1) as (caller,):
        return caller.call("list_flows")[0] == 200


def rotate(server: Server, file: Path, new: str) -> int:
    """Change a secret's file and reload; returns how often the old one was accepted after the new one."""
    old, before, late = file.read_text(), set(server.children()), 0
    file.write_text(new)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: is_accepted(server, new))
    while before & set(server.children()):  # which gunicorn ends after a time of grace
        late += is_accepted(server, old)
    return late + sum(is_accepted(server, old) for _ in range(50))


def check_rotation(run: Run, server: Server, folder: Path) -> None:
    """Rotate a secret: once the new one was accepted, the old one must not be, but for one last answer."""
    rounds = run.count(3)
    configure(folder, UNLIMITED)  # for the workers after the first reload
    late = [rotate(server, folder / ROUTES[1].id, f"the secret after rotation {n}") for n in range(rounds)]
    what = f"a secret's rotation by file and SIGHUP, {rounds} times: the old one accepted after the new one"
    run.found("G13", what, f"{sum(late)} times", "at most 1 after each", max(late) <= 1)
