"""Measure hostile receivers' cost: the time of exchanges, of requests that wait, and of others' events."""

import gzip
import json
import socket
import struct
import threading
import time
from contextlib import ExitStack
from datetime import datetime
from typing import Any, NamedTuple

from findings import Run
from harness import Call, Receiver, hook, wait_until
from receivers import ACCEPTED, OK, Behaviour, Hostile, certificates, dribble, send, stay_silent, stop_after
from writers import working

TASKS = 6
HANGING = 11
BUDGET = 5.0  # seconds, the default of `delivery.request_budget_seconds`
TRIED = """
    SELECT webhook.name, attempts, delivery.last_error FROM delivery JOIN webhook ON webhook.id = webhook_id
    WHERE duration_ms IS NOT NULL
"""


# The beginning of a TLS server's first message.
TLS_HELLO = bytes.fromhex("160303007a0200007603")
BLOCK = b"0" * 65536
# 10 KB. Any number of these can follow each other.
BOMB = gzip.compress(bytes(10_000_000))


def reset(line: socket.socket, stopped: threading.Event) -> None:
    """Reset the connection when it is closed."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


class Bad(NamedTuple):
    """A way to misbehave, and words of the delivery's outcome: an error, or "delivered"."""

    behave: Behaviour
    outcome: str
    tls: str = ""  # which of `certificates` it presents, if any


LATE, DELIVERED = "timed out after", "delivered"
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"
FAILURE = b"HTTP/1.1 500 No\r\nSet-Cookie: crumb=1\r\nContent-Length: 0\r\n\r\n"
BAD: dict[str, Bad] = {
    "resets": Bad(reset, "reset"),
    "never answers": Bad(stay_silent, LATE),
    "stops in its headers": Bad(stop_after(OK + b"X: "), LATE),
    "dribbles its body": Bad(dribble(OK + b"Content-Length: 1000\r\n\r\n", b"x"), DELIVERED),
    "dribbles a TLS handshake": Bad(dribble(TLS_HELLO, b"\0"), LATE, tls="none"),
    "has another host's certificate": Bad(send(ACCEPTED), "mismatch", tls="wrong"),
    "sends 100 Continue without end": Bad(dribble(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), LATE),
    "answers 500 with a cookie": Bad(send(FAILURE), "answered 500"),
    "redirects with a body without end": Bad(dribble(REDIRECT, BLOCK, 0), "answered 302"),
    "sends a header without end": Bad(dribble(OK + b"X: ", BLOCK, 0), "more than"),
    "answers a gzip bomb": Bad(dribble(OK + b"Content-Encoding: gzip\r\n\r\n", BOMB, 0), DELIVERED),
    "ends before its length": Bad(send(OK + b"Content-Length: 1000\r\n\r\nhe"), DELIVERED),
}


def run(run: Run) -> None:
    hostile_receivers(run, 0.5 if run.is_short else 1.5)
    if not run.is_short:
        beside_hanging_receivers(run)


def hostile_receivers(run: Run, deadline: float) -> None:
    """Send to receivers of every kind, and check each outcome and the time of each exchange."""
    authority, contexts = certificates(run.folder / "certificates")
    with ExitStack() as ends:
        receivers = {name: Hostile(bad.behave, contexts.get(bad.tls)) for name, bad in BAD.items()}
        for receiver in receivers.values():
            ends.callback(receiver.close)
        hooks = [hook(receiver, name=name) for name, receiver in receivers.items()]
        for each in hooks:
            each["url"] = each["url"].replace("http:", "https:") if BAD[each["name"]].tls else each["url"]
        settings = {
            "TASKS_WEBHOOKS": json.dumps(hooks),
            "TASKS_DELIVERY__CA_FILE": str(authority),
            "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": str(deadline),
            "TASKS_DELIVERY__TIMEOUT_SECONDS": str(deadline),
            "TASKS_DELIVERY__RETRY_SCHEDULE": f"[{deadline}]",
        }
        server = ends.enter_context(run.server("hostile", **settings))
        owner = server.client()
        project = owner.make_project()
        for number in range(TASKS):
            owner.make_task(project, title=str(number))
        judge_exchanges(run, server, receivers, deadline)


def judge_exchanges(run: Run, server: Any, receivers: dict[str, Hostile], deadline: float) -> None:
    """Check that each has the expected outcome after two attempts. On a busy machine some may be too late."""
    expected: set[str] = set()  # the receivers with this outcome

    def have_all() -> bool:
        for row in server.rows(TRIED):
            name, outcome = row["name"], row["last_error"] or DELIVERED
            if BAD[name].outcome in outcome:
                if outcome == DELIVERED or row["attempts"] > 1:
                    expected.add(name)
            elif not outcome.startswith(LATE):
                run.fault(f"a receiver that {name}: {outcome}; expected: {BAD[name].outcome}")
                return True
        return len(expected) == len(BAD)

    wait_until(have_all)
    for name, receiver in receivers.items():
        if any(b"crumb" in request for request in receiver.requests):
            run.fault(f"a receiver that {name} got its cookie back")
    exchanges = [times for receiver in receivers.values() for times in receiver.connections]
    wait_until(lambda: all(len(times) == 2 for times in exchanges), deadline + 5)
    longest = max(ended - began for began, ended in exchanges)
    what = f"the longest of {len(exchanges)} exchanges with {len(BAD)} hostile receivers"
    most = deadline + 0.2
    run.found("G8", what, f"{longest:.2f} s", f"{most:.1f} s", longest <= most, is_speed=True)


# Receivers that hang, and one that works ---------------------------------------------------------


def beside_hanging_receivers(run: Run) -> None:
    """Work with eight clients: beside receivers that hang and one healthy receiver, and without webhooks."""
    with run.server("quiet") as server:
        without = working(server, 8, BUDGET)
    late: list[float] = []
    well = Receiver().up()

    def answer(call: Call) -> int:
        late.append(time.time() - datetime.fromisoformat(call.event["timestamp"]).timestamp())
        return 200

    well.answer = answer
    with ExitStack() as ends:
        receivers = [well, *[Hostile(stay_silent) for _ in range(HANGING)]]
        for receiver in receivers:
            ends.callback(receiver.close)
        hooks = [hook(receiver, name=f"{number}") for number, receiver in enumerate(receivers)]
        server = ends.enter_context(run.server("hanging", TASKS_WEBHOOKS=json.dumps(hooks)))
        beside = working(server, 8, BUDGET + 3)
        (events,) = server.rows("SELECT count(*) AS count FROM event")
        wait_until(lambda: len(late) >= events["count"])
    if without.failures or beside.failures:
        run.fault(f"beside receivers that hang: {beside.failures}; without webhooks: {without.failures}")
    writes, most = beside.seconds("POST", "PATCH", "DELETE"), BUDGET + 0.5
    slow, slowest = sum(seconds > 1 for seconds in writes), max(writes)
    what = f"writes of 8 clients that wait for {HANGING} hanging receivers"
    figure, is_kept = f"{slow} of {len(writes)}, {slowest:.2f} s at most", slow <= 4 and slowest <= most
    run.found("G7", what, figure, f"4, {most:g} s", is_kept, is_speed=True)
    reads, quiet = beside.p99("GET"), without.p99("GET")
    figure = f"{reads:.1f} ms; without webhooks {quiet:.1f} ms"
    run.found("G7", "p99 of reads beside them", figure, "1.5 x", reads <= 1.5 * quiet, is_speed=True)
    what = f"the latest of {len(late)} events of a healthy receiver beside them"
    run.found("D23", what, f"{max(late):.2f} s", "2 s", max(late) <= 2, is_speed=True)
