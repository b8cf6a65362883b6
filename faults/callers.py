"""Callers of the gateway: many at once on one flow, over the limit, and after a secret's rotation (G13)."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connections import Connection, connected
from findings import Run
from flows import Row, Session
from harness import Server

# Two routes share a session; that of the third differs from it in the case of a letter.
ROUTES = (
    Session("first", "agent:main", "webhooks/first"),
    Session("again", "agent:main", "zapier"),
    Session("other", "agent:Main", "webhooks/other"),
)
UNLIMITED = "[plugins.entries.webhooks.config.limits]\nrequests = 1000000\ninFlight = 1000\n"
WRITERS = 200  # at once, of one revision
RELOAD_SECONDS = 40.0  # within which a worker serves that knows a new secret
WINDOW = 120  # requests a minute are allowed by default


class Caller:
    """Calls a route with its secret over a connection."""

    def __init__(self, connection: Connection, path: str, secret: str):
        self.connection, self.path, self.secret = connection, path, secret

    def send(self, action: str, fields: Row) -> None:
        """Send an action without waiting for its answer."""
        self.connection.send("POST", self.path, self.secret, {"action": action, **fields})

    def answer(self) -> tuple[int, Row]:
        """Wait for the answer; returns its status and body."""
        return self.connection.receive()

    def call(self, action: str, **fields: Any) -> tuple[int, Row]:
        self.send(action, fields)
        return self.answer()


@contextmanager
def calling(server: Server, path: str, secret: str, count: int) -> Iterator[list[Caller]]:
    """So many callers of one route."""
    with connected(server, count) as connections:
        yield [Caller(connection, path, secret) for connection in connections]


# Servers --------------------------------------------------------------------------------------


def secret_file(folder: Path, route: Session) -> Path:
    return folder / f"{route.route}.secret"


def first_secret(route: Session) -> str:
    return f"the first secret of {route.route}"


def path_of(route: Session) -> str:
    return f"/plugins/webhooks/{route.route}"


def configure(folder: Path, limits: str) -> str:
    """Write a configuration with the routes, whose secrets are in files; returns its path."""
    folder.mkdir(exist_ok=True)
    text = limits
    for route in ROUTES:
        file = secret_file(folder, route)
        file.touch(0o600)
        file.write_text(first_secret(route))
        text += f"""
[secrets.providers.{route.route}]
source = "file"
path = "{file}"
mode = "singleValue"
[plugins.entries.webhooks.config.routes.{route.route}]
sessionKey = "{route.key}"
controllerId = "{route.controller}"
secret = {{source = "file", provider = "{route.route}", id = "value"}}
"""
    config = folder / "config.toml"
    config.write_text(text)
    return str(config)


# Checks ---------------------------------------------------------------------------------------


def write_at_once(callers: list[Caller], flow_id: str, revision: int) -> str:
    """Let all callers write the flow's next revision at once; returns what went wrong, if anything."""
    for number, caller in enumerate(callers):
        step = {"currentStep": f"of caller {number}"}
        caller.send("set_waiting", {"flowId": flow_id, "expectedRevision": revision, **step})
    answers = [caller.answer() for caller in callers]
    applied = [body["result"]["flow"] for status, body in answers if status == 200]
    refused = [body for status, body in answers if status == 409 and body["code"] == "revision_conflict"]
    if len(applied) != 1 or len(refused) != len(callers) - 1:
        return f"{len(applied)} applied, {len(refused)} refused for their revision"
    stored = callers[0].call("get_flow", flowId=flow_id)[1]["result"]["flow"]
    if stored["revision"] != revision + 1:
        return f"the revision is {stored['revision']} now"
    others = [flow for flow in (*applied, *(body["result"]["current"] for body in refused)) if flow != stored]
    return f"one was told {others[0]}, but what is stored is {stored}" if others else ""


def check_races(run: Run, server: Server, until: float) -> None:
    """Let many callers write one flow's next revision, in one round after the other."""
    rounds, problem, started = 0, "", time.monotonic()
    with calling(server, path_of(ROUTES[0]), first_secret(ROUTES[0]), WRITERS) as callers:
        flow = callers[0].call("create_flow", goal="to be written at once")[1]["result"]["flow"]
        while not problem and rounds < run.count(1000) and (not rounds or time.monotonic() < until):
            problem = write_at_once(callers, flow["flowId"], rounds)
            rounds += 1
    if problem:
        run.fault(f"{WRITERS} callers sent set_waiting with one revision at once: {problem}")
    what = f"{WRITERS} callers with one revision at once, in one of two workers: exactly one is applied"
    run.found("G13", what, f"{rounds} rounds in {time.monotonic() - started:.0f} s", "all", not problem)


def check_window(run: Run, server: Server) -> None:
    """Send more requests than a window allows, side by side, half of them with a wrong secret."""
    started, allowed, sent = time.monotonic(), [], 0
    for route in ROUTES:
        codes = []
        with calling(server, path_of(route), first_secret(route), 20) as callers:
            for caller in callers[::2]:
                caller.secret = "wrong"
            for _ in range(WINDOW // 10):
                for caller in callers:
                    caller.send("list_flows", {})
                codes += [caller.answer()[1].get("code", "") for caller in callers]
        allowed.append(sum(code != "rate_limited" for code in codes))
        sent += len(codes)
    what = f"{sent} requests on {len(ROUTES)} routes, half with a wrong secret: not rate_limited are"
    if time.monotonic() - started > 50:
        run.found("G13", what, "not judged: a window ended meanwhile")
        return
    is_kept = set(allowed) == {WINDOW}
    run.found("G13", what, ", ".join(map(str, allowed)), f"{WINDOW} each", is_kept)


def check_rotation(run: Run, server: Server, folder: Path) -> None:
    """Change a secret's file and reload: once the new secret was accepted, the old one must not be."""
    route, rounds, late, requests = ROUTES[1], run.count(3), 0, 0
    configure(folder, UNLIMITED)
    for number in range(rounds):
        file, before = secret_file(folder, route), set(server.children())
        old, new = file.read_text(), f"the secret after rotation {number}"
        file.write_text(new)
        server.process.send_signal(signal.SIGHUP)
        is_new, after, ends_at = False, 0, time.monotonic() + RELOAD_SECONDS
        while after < 100 and (not is_new or before & set(server.children())):
            if time.monotonic() > ends_at:
                run.fault(f"{RELOAD_SECONDS:.0f} s after a rotation by SIGHUP the new secret is refused")
                return
            time.sleep(0 if is_new else 0.02)  # the new worker starts beside this
            for secret in (new, old):
                with calling(server, path_of(route), secret, 1) as (caller,):
                    is_accepted = caller.call("list_flows")[0] == 200
                requests += 1
                after += is_new
                late += is_new and secret == old and is_accepted
                is_new |= secret == new and is_accepted
    what = f"a secret's rotation by file and SIGHUP, {rounds} times under {requests} requests:"
    what += " the old one was accepted after the new one"
    run.found("G13", what, f"{late} times", "at most 1 after each", late <= rounds)
