"""What hostile receivers cost: the time of exchanges, of requests that wait for them, of others' events."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from bystanders import Work, look_at_log, working
from findings import Run
from harness import Receiver, hook
from receivers import (
    ACCEPTED,
    BAD,
    LATE,
    Bad,
    Hostile,
    blackhole,
    certificates,
    closed_port,
    resolver,
    send,
    stay_silent,
)

GONE = "answers 410"
TASKS = 6
HANGING = 11
BUDGET = 5.0  # seconds, the default of `delivery.request_budget_seconds`


def run(run: Run) -> None:
    hostile_receivers(run, 0.5 if run.is_short else 1.5)
    if not run.is_short:
        beside_hanging_receivers(run)


# Every way to misbehave ------------------------------------------------------------------------


@contextmanager
def bad_receivers(folder: Path) -> Iterator[tuple[dict[str, Hostile], dict[str, str], Any]]:
    """A receiver for each of `BAD`, the settings of a server that sends to them, and a right context."""
    authority, contexts = certificates(folder / "certificates")
    with ExitStack() as ends:
        made, hooks = {}, []
        ports: dict[str, list[int]] = {"hangs.test": []}
        for name, bad in BAD.items():
            context = contexts[bad.certificate] if bad.certificate else None
            made[name] = receiver = Hostile(bad.behave, context, bad.scheme)
            ends.callback(receiver.close)
            hooks.append(hook(receiver, name=name, url=receiver.url.replace("127.0.0.1", bad.host)))
            if bad.host == "refuses.test":
                ports[bad.host] = [ends.enter_context(closed_port()), receiver.port]
            elif bad.host == "silent.test":
                ports[bad.host] = [ends.enter_context(blackhole())[1], receiver.port]
        settings = resolver(folder / "resolver", ports)
        settings |= {"TASKS_WEBHOOKS": json.dumps(hooks), "TASKS_DELIVERY__CA_FILE": str(authority)}
        yield made, settings, contexts["right"]


class Attempts:
    """The results of attempts, read from the database again and again, since each replaces the one before."""

    def __init__(self, server: Any):
        self.server = server
        self.seen: dict[tuple[str, int], dict] = {}  # by delivery and attempt

    def look(self) -> None:
        rows = self.server.rows("""
            SELECT delivery.id, name, status, attempts, last_status, last_error, duration_ms
            FROM delivery JOIN webhook ON webhook.id = webhook_id
            WHERE duration_ms IS NOT NULL AND leased_until IS NULL
        """)
        self.seen |= {(row["id"], row["attempts"]): row for row in rows}

    def are_repeated(self) -> bool:
        """Whether each webhook was tried twice; one that answered 410 is not tried again."""
        found = self.by_name()
        return all(len(found[name]) > (name != GONE) for name in BAD)

    def by_name(self) -> dict[str, list[dict]]:
        found = defaultdict(list)
        for row in self.seen.values():
            found[row["name"]].append(row)
        return found


def hostile_receivers(run: Run, deadline: float) -> None:
    """Send to every kind, see how long each exchange took, and that all events arrive once they are well."""
    settings = {
        "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": str(deadline),
        "TASKS_DELIVERY__TIMEOUT_SECONDS": str(deadline),
        "TASKS_DELIVERY__RETRY_SCHEDULE": f"[{deadline}]",
    }
    with (
        bad_receivers(run.folder) as (receivers, more, right),
        run.server("hostile", **settings | more) as server,
    ):
        owner = server.client()
        project = owner.make_project()
        before, took, attempts = memory(server), [], Attempts(server)
        for number in range(TASKS):
            at = time.monotonic()
            owner.make_task(project, title=str(number))
            took.append(time.monotonic() - at)
            attempts.look()
        ends_at = time.monotonic() + 4 * deadline + 3
        while time.monotonic() < ends_at and not attempts.are_repeated():
            time.sleep(0.1)
            attempts.look()
        judge_exchanges(run, attempts, receivers, deadline)
        slow = sum(seconds > 0.9 * deadline for seconds in took)
        figure = f"{slow} of {len(took)}, {max(took):.2f} s at most"
        what = f"one client's writes that wait for {len(BAD)} hostile receivers"
        run.found(
            "G7",
            what,
            figure,
            f"1, {deadline + 0.5:g} s",
            slow <= 1 and max(took) <= deadline + 0.5,
            is_speed=True,
        )
        if (grown := memory(server) - before) > 100:
            run.fault(f"the server grew by {grown} MB while it sent to receivers that answer too much")
        heal(run, server, receivers, right)
        look_at_log(run, server)


def memory(server: Any) -> int:
    """The resident memory of the worker in MB."""
    text = Path(f"/proc/{server.children()[0]}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


def judge_exchanges(run: Run, attempts: Attempts, receivers: dict[str, Hostile], deadline: float) -> None:
    """Each exchange ended in time, with the result that it had to have."""
    found, longest = attempts.by_name(), 0.0
    for name, bad in BAD.items():
        rows = found.get(name, [])
        errors = {row["last_error"] for row in rows}
        if not are_expected(bad, errors):
            said = ", ".join(map(str, errors)) or "never tried"
            run.fault(f"a receiver that {name}: {said}; expected: {bad.error or 'delivered'}")
        seconds = [row["duration_ms"] / 1000 for row in rows] + receivers[name].lasted[:]
        longest = max(longest, *seconds, 0.0)
    if longest > deadline + 5:
        run.fault(f"an exchange took {longest:.1f} s, with a deadline of {deadline} s")
    run.found(
        "G8",
        f"the longest of {len(attempts.seen)} exchanges with {len(BAD)} hostile receivers",
        f"{longest:.2f} s",
        f"{deadline + 0.2:.1f} s",
        longest <= deadline + 0.2,
        is_speed=True,
    )


def are_expected(bad: Bad, errors: set[str | None]) -> bool:
    """Whether the attempts may have these errors; on a busy machine all of them may come too late."""
    in_time = {error for error in errors if error is None or not error.startswith(LATE)}
    if bad.error == LATE or not in_time:
        return bool(errors) and not in_time
    if bad.error is None:
        return in_time == {None}
    return all(error and bad.error in error for error in in_time)


def heal(run: Run, server: Any, receivers: dict[str, Hostile], right: Any) -> None:
    """Have all receivers accept, and see that each gets every event, those of one client in order."""
    for receiver in receivers.values():
        receiver.context = right if receiver.url.startswith("https") else None
        receiver.behave = send(ACCEPTED)
    owner = server.client()
    for webhook in owner.data(owner.get("/webhooks"))["webhooks"]:
        if webhook["state"] == "disabled":
            owner.data(owner.post(f"/webhooks/{webhook['id']}/enable"))
    for delivery in server.rows("SELECT id FROM delivery WHERE status = 'refused'"):
        owner.data(owner.post(f"/deliveries/{delivery['id']}/redeliver"))
    well = [name for name, bad in BAD.items() if bad.host != "hangs.test"]
    ends_at = time.monotonic() + 30
    while {status for name in well for status in states(server)[name]} != {"delivered"}:
        if time.monotonic() > ends_at:
            break
        time.sleep(0.1)
    events = [row["id"] for row in server.rows("SELECT id FROM event ORDER BY seq")]
    found, delivered = states(server), 0
    for name in BAD:
        if len(found[name]) != len(events):
            run.fault(f"a receiver that {name}: {len(found[name])} of {len(events)} events are accounted for")
    for name in well:
        arrived = list(dict.fromkeys(json.loads(body)["id"] for body in receivers[name].bodies))
        if "redirects" in name:  # refuses each event by itself, so that others go first
            arrived.sort(key=events.index)
        if arrived != events:
            run.fault(f"a receiver that {name} is well again, and got {len(arrived)} events in a wrong order")
        delivered += sum(status == "delivered" for status in found[name])
    total = len(events) * len(well)
    what = f"events of {len(well)} receivers that are well again"
    run.found("G2", what, f"{delivered} of {total} delivered", "all", delivered == total)


def states(server: Any) -> dict[str, list[str]]:
    """The states of each webhook's deliveries."""
    found = defaultdict(list)
    query = "SELECT name, status FROM delivery JOIN webhook ON webhook.id = webhook_id"
    for row in server.rows(query):
        found[row["name"]].append(row["status"])
    return found


# Those that hang, and one that does not ----------------------------------------------------------


def beside_hanging_receivers(run: Run) -> None:
    """Write with eight clients, to eleven receivers that hang and one that is well, and without webhooks."""
    with run.server("quiet") as server:
        without = work(server, 4)
    arrived: list[float] = []
    well = Receiver().up()

    def answer(call: Any) -> int:
        arrived.append(time.time() - datetime.fromisoformat(call.event["timestamp"]).timestamp())
        return 200

    well.answer = answer
    with ExitStack() as ends:
        ends.callback(well.close)
        hooks = []
        for number in range(HANGING):
            hanging = Hostile(stay_silent)
            ends.callback(hanging.close)
            hooks.append(hook(hanging, name=f"hanging {number}"))
        hooks.append(hook(well, name="well"))
        server = ends.enter_context(run.server("hanging", TASKS_WEBHOOKS=json.dumps(hooks)))
        beside = work(server, BUDGET + 3)
        if without.failures or beside.failures:
            run.fault(f"beside receivers that hang: {beside.failures}; without webhooks: {without.failures}")
        (events,) = server.rows("SELECT count(*) AS count FROM event")
        ends_at = time.monotonic() + 20
        while len(arrived) < events["count"] and time.monotonic() < ends_at:
            time.sleep(0.1)
        look_at_log(run, server)
    writes = beside.seconds("POST", "PATCH")
    slow, reads = sum(seconds > 1 for seconds in writes), beside.p99("GET")
    what = f"writes of 8 clients that wait for {HANGING} hanging receivers"
    run.found(
        "G7",
        what,
        f"{slow} of {len(writes)}, {max(writes):.2f} s at most",
        f"4, {BUDGET + 0.5:g} s",
        slow <= 4 and max(writes) <= BUDGET + 0.5,
        is_speed=True,
    )
    run.found(
        "G7",
        "p99 of reads beside them",
        f"{reads:.1f} ms; without webhooks {without.p99('GET'):.1f} ms",
        "1.5 x",
        reads <= 1.5 * without.p99("GET"),
        is_speed=True,
    )
    if len(arrived) < events["count"]:
        run.fault(f"beside receivers that hang a healthy one got {len(arrived)} of {events['count']} events")
    late = max(arrived, default=0.0)
    run.found(
        "D23",
        f"the latest of {len(arrived)} events of a healthy receiver beside them",
        f"{late:.2f} s",
        "2 s",
        late <= 2,
        is_speed=True,
    )


def work(server: Any, seconds: float) -> Work:
    """What eight clients do in so many seconds."""
    project = server.client().make_project()["id"]
    with working(server, project, 8, pause=0.05) as others:
        time.sleep(seconds)
    return Work(others)
