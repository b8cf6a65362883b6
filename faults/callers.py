"""Callers of the gateway: many at once on one flow, over the limit, and after a secret's rotation (G13)."""

import signal
import time
from pathlib import Path

from connections import Connection, connected
from findings import Run
from flows import Route
from harness import Server, wait_until

# Two routes share a session; that of the third differs from it in the case of a letter.
ROUTES = (
    Route("first", "agent:main", "webhooks/first", "the secret of first"),
    Route("again", "agent:main", "zapier", "the secret of again"),
    Route("other", "agent:Main", "webhooks/other", "the secret of other"),
)
UNLIMITED = "[plugins.entries.webhooks.config.limits]\nrequests = 1000000\ninFlight = 1000\n"
LIST = {"action": "list_flows"}
WRITERS = 200  # at once, of one revision
WINDOW = 120  # requests a minute are allowed by default


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


def write_at_once(connections: list[Connection], path: str, secret: str) -> str:
    """Let all callers write the next revision of a new flow at once; returns what went wrong, if anything."""
    creation = {"action": "create_flow", "goal": "to be written at once"}
    flow_id = connections[0].ask("POST", path, secret, creation)[1]["result"]["flow"]["flowId"]
    for number, connection in enumerate(connections):
        action = {"action": "set_waiting", "flowId": flow_id, "expectedRevision": 0}
        connection.send("POST", path, secret, action | {"currentStep": f"of caller {number}"})
    answers = [connection.receive() for connection in connections]
    applied = [body["result"]["flow"] for status, body in answers if status == 200]
    told = [body["result"]["current"] for _, body in answers if body.get("code") == "revision_conflict"]
    if (len(applied), len(told)) != (1, len(connections) - 1):
        return f"{len(applied)} applied, {len(told)} refused for their revision"
    reading = {"action": "get_flow", "flowId": flow_id}
    stored = connections[0].ask("POST", path, secret, reading)[1]["result"]["flow"]
    is_right = stored["revision"] == 1 and all(flow == stored for flow in applied + told)
    return "" if is_right else f"{stored} is stored, {applied + told} were told"


def check_races(run: Run, server: Server) -> None:
    """Let many callers write one flow's next revision, in one round after the other."""
    rounds, route = run.count(60), ROUTES[0]
    with connected(server, WRITERS) as connections:
        problems = [write_at_once(connections, route.path, route.secret) for _ in range(rounds)]
    for problem in filter(None, problems):
        run.fault(f"{WRITERS} callers sent set_waiting with one revision at once: {problem}")
    what = f"{WRITERS} callers with one revision at once, in one of two workers: exactly one is applied"
    run.found("G13", what, f"in {problems.count('')} of {rounds} rounds", "all", not any(problems))


def check_window(run: Run, server: Server) -> None:
    """Send twice as many requests as a window allows, side by side, half of them with a wrong secret."""
    started, codes = time.monotonic(), []
    with connected(server, 20) as connections:
        for _ in range(2 * WINDOW // len(connections)):
            for number, connection in enumerate(connections):
                secret = ROUTES[0].secret if number % 2 else "wrong"
                connection.send("POST", ROUTES[0].path, secret, LIST)
            codes += [connection.receive()[1].get("code") for connection in connections]
    allowed = sum(code != "rate_limited" for code in codes)
    is_kept = allowed == WINDOW if time.monotonic() - started < 50 else None  # else the window has ended
    what = f"{len(codes)} requests on a route, half with a wrong secret: not rate_limited are"
    run.found("G13", what, allowed, f"{WINDOW}", is_kept)


def is_accepted(server: Server, secret: str) -> bool:
    """Whether the second route accepts this secret, over a new connection."""
    with connected(server, 1) as (connection,):
        return connection.ask("POST", ROUTES[1].path, secret, LIST)[0] == 200


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
    """Rotate a secret: once the new one was accepted, the old one must not be, except for one last answer."""
    rounds = run.count(3)
    configure(folder, UNLIMITED)  # for the workers after the first reload
    late = [rotate(server, folder / ROUTES[1].id, f"the secret after rotation {n}") for n in range(rounds)]
    what = f"a secret's rotation by file and SIGHUP, {rounds} times: the old one accepted after the new one"
    run.found("G13", what, f"{sum(late)} times", "at most 1 after each", max(late) <= 1)
