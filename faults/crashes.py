"""Processes that are killed or told to end, and receivers that fail, while clients write.

What was acknowledged must be there, and whole; what was not may be there, and whole, or not; and the events
of what is there arrive, in the order of each client.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from random import Random

from findings import Run
from harness import PATIENCE, Receiver, Server, hook, receivers, wait_until
from outages import Recorder, environment, outage, stop_while_it_hangs
from snapshot import Snapshot, key_of
from writers import Writers

WRITERS = 6
KILLS = 100  # with one worker, and as many with several
SEVERAL = 3
WAYS = {"a worker": 14, "everything": 3, "every worker": 2, "the master": 1}  # what is killed, and how often
BETWEEN_KILLS = 5, 40  # answers
KILLS_PER_STOP = 10  # the first after half of them
STOP_SECONDS, HUNG_STOP_SECONDS = 10, 35  # that a graceful stop may take; the latter with a hung receiver
BACKLOG, BACKLOG_SPEED = 10_000, 100  # events, and how many a second are to be sent
# With this schedule, a tenth of the default's first steps, an outage of 3 s stands for one of 30 s.
OUTAGE_SECONDS, OUTAGE_SCHEDULE = 3.0, [0.5, 1, 2, 3, 3, 6, 12]
OVERTAKING_SECONDS = 2.0  # after a kill, during which README.md lets events overtake, with several workers
SHOWN = 20  # problems of a storm, in the table


class Storm:
    """Clients, the server that they write to, its receivers, and what went wrong.

    The first receiver is healthy, the others have outages; the server sends to them (`environment`).
    """

    def __init__(self, server: Server, recorders: list[Recorder], random: Random, workers: int):
        self.server, self.recorders, self.random, self.workers = server, recorders, random, workers
        server.allow_bugs = True  # they are looked for at the end, and are one problem among others
        self.problems: list[str] = []
        self.count: Counter[str] = Counter()
        self.slowest_stop = 0.0
        self.writers = Writers(server, random, WRITERS, partial(self.note, "answers"))

    def note(self, kind: str, *problems: str) -> None:
        """Keep what went wrong, and count it by its kind; what is known already does not count again."""
        new = [problem for problem in problems if problem not in self.problems]
        self.count[kind] += len(new)
        self.problems += new

    def rage(self, cycles: Iterable[int]) -> None:
        """Kill something in each cycle, and find out what that has done."""
        self.writers.start()
        try:
            for cycle in cycles:
                self.kill(self.random.choices([*WAYS], [*WAYS.values()])[0])
                if cycle % KILLS_PER_STOP == KILLS_PER_STOP // 2 - 1:
                    self.stop()
                self.check()
            self.kill("every worker")  # their leases must expire: no start comes that would end them
            self.writers.go_on(1)
        finally:
            self.writers.end()
        self.calm_down()

    def change_receivers(self) -> None:
        for recorder in self.recorders[1:]:
            recorder.change_at_random(self.random)

    def kill(self, what: str) -> None:
        """Kill this amid the writes, and start it again where nothing else does.

        The receivers change just before and just after, so that what was under way to one that hung is not
        overtaken when it answers again.
        """
        self.writers.go_on(self.random.randint(*BETWEEN_KILLS))
        self.change_receivers()
        time.sleep(self.random.uniform(0, 0.05))
        self.count["kills"] += 1
        self.count[what] += 1
        self.do_kill(what)
        self.change_receivers()

    def do_kill(self, what: str) -> None:
        if what == "everything":
            self.server.kill()
            self.server.start()
            return
        children = wait_until(self.server.children)
        if what == "the master":
            self.server.process.kill()
            self.server.process.wait()
            self.wait_until_gone(children)  # who still hold the server's lock
            self.server.start()
            return
        for child in children if what == "every worker" else [self.random.choice(children)]:
            with suppress(ProcessLookupError):  # it has died of an earlier kill
                os.kill(child, signal.SIGKILL)

    def wait_until_gone(self, workers: list[int]) -> None:
        """Wait until these workers have ended, whose master was killed."""
        wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))

    def stop(self) -> None:
        """Stop the server with SIGTERM amid the writes, and start it again."""
        self.writers.go_on(self.random.randint(*BETWEEN_KILLS))
        started = time.monotonic()
        code = self.server.stop()
        self.slowest_stop = max(self.slowest_stop, time.monotonic() - started)
        self.count["stops"] += 1
        if code != 0:
            self.note("other", f"the exit code after SIGTERM is {code}")
        self.server.start()

    def check(self) -> Snapshot:
        """Find what was acknowledged and is not there, and what is half there."""
        answered = [write.key for write in self.writers.writes if write.is_answered]
        snapshot = Snapshot(self.server)
        begun = {write.key for write in self.writers.writes}
        self.note(
            "lost", *[f"acknowledged, but not there: {key}" for key in answered if key not in snapshot.keys]
        )
        self.note("half", *[f"done {n} times: {key}" for key, n in snapshot.keys.items() if n > 1])
        self.note("half", *[f"nobody wrote {key}" for key in snapshot.keys.keys() - begun])
        self.note("half", *snapshot.problems(len(self.recorders)))
        self.count["checks"] += 1
        return snapshot

    def calm_down(self) -> None:
        """Let every event arrive, stop the server, and look at what has arrived, and at the log."""
        for recorder in self.recorders:
            recorder.change("up")
        waiting = "SELECT count(*) AS n FROM delivery WHERE status != 'delivered'"
        ends_at = time.monotonic() + PATIENCE
        while (left := self.server.rows(waiting)[0]["n"]) and time.monotonic() < ends_at:
            time.sleep(0.05)
        if left:
            self.note("arrivals", f"{left} deliveries are not sent {PATIENCE} s after the last outage")
        snapshot = self.check()
        if code := self.server.stop():
            self.note("other", f"the exit code at the end is {code}")
        for recorder in self.recorders:
            self.note("arrivals", *recorder.problems(snapshot))
            self.note("order", *self.overtaken(recorder, snapshot))
            self.count["duplicates"] += len(recorder.accepted) - len(set(recorder.accepted))
        writes = self.writers.writes
        self.count["answered"] = sum(write.is_answered for write in writes)
        self.count["unknown"] = len(writes) - self.count["answered"]
        self.count["replays"] = self.writers.replays
        self.count["events"] = len(snapshot.events)
        log = self.server.log.read_text().splitlines()
        self.note("other", *[f"the log: {line}" for line in log if "Traceback" in line or "a bug" in line])

    def overtaken(self, recorder: Recorder, snapshot: Snapshot) -> Iterator[str]:
        """Events that arrived after a later one of the same client, where README.md does not allow that."""
        place: dict[str, int] = {}
        for number, id in enumerate(recorder.accepted):
            place.setdefault(id, number)
        ids = {key_of(event): id for id, event in snapshot.events.items()}
        for writer in self.writers.all:
            done = [(write, ids[write.key]) for write in writer.writes if ids.get(write.key) in place]
            for number, (write, id) in enumerate(done):
                for later in [later for _, later in done[number + 1 :] if place[later] < place[id]]:
                    seconds = snapshot.seconds_between(id, later)
                    if self.workers > 1 and write.had_no_answer and seconds <= OVERTAKING_SECONDS:
                        self.count["overtaken"] += 1
                    else:
                        what = f"{later} before {id} ({write.key}), {seconds:.3f} s younger"
                        yield f"{recorder.name} got {what}, of the same client"


def do_storms(run: Run, make_receiver: Callable[[], Receiver]) -> tuple[Counter[str], float]:
    """Storms with one worker and with several; returns what they counted, and the slowest stop."""
    count: Counter[str] = Counter()
    slowest_stop = 0.0
    for workers, left in ((1, 0.55), (SEVERAL, 0.12)):
        recorders = [Recorder(make_receiver(), name) for name in ("healthy", "fickle")]
        settings = environment(recorders, WEB_CONCURRENCY=str(workers))
        with run.server(f"workers-{workers}", **settings) as server:
            storm = Storm(server, recorders, run.random, workers)
            is_time = partial(time_is_left, run, left * run.seconds)
            try:
                storm.rage(takewhile(is_time, range(run.count(KILLS))))
            finally:
                for problem in storm.problems[:SHOWN]:
                    run.fault(f"{workers} workers: {problem}")
        count += storm.count
        slowest_stop = max(slowest_stop, storm.slowest_stop)
    return count, slowest_stop


def time_is_left(run: Run, seconds: float, cycle: int) -> bool:
    return cycle == 0 or run.left > seconds


def run(run: Run) -> None:
    """Do the storms, a stop while a receiver hangs, and an outage with a backlog."""
    with contextmanager(receivers)() as make_receiver:
        count, stop = do_storms(run, make_receiver)
        receiver = make_receiver().up()
        settings = {"TASKS_WEBHOOKS": json.dumps([hook(receiver)])}
        if run.is_short:
            settings["TASKS_DELIVERY__REQUEST_BUDGET_SECONDS"] = "1"
        with run.server("hung", **settings) as server:
            task, code, hung_stop = stop_while_it_hangs(server, receiver)
            if code != 0 or not server.rows("SELECT * FROM task WHERE id = ?", task["id"]):
                run.fault(f"SIGTERM with a hung receiver: exit code {code}, and the task {task} was answered")
        receiver, seconds = make_receiver(), 1.0 if run.is_short else OUTAGE_SECONDS
        settings = {"TASKS_DELIVERY__RETRY_SCHEDULE": json.dumps(OUTAGE_SCHEDULE)}
        settings["TASKS_WEBHOOKS"] = json.dumps([hook(receiver)])
        with run.server("outage", **settings) as server:
            retry, drained = outage(server, receiver, seconds, events := run.count(BACKLOG))
    tell_of_storms(run, count)
    if count["stops"]:
        what, is_quick = f"slowest of {count['stops']} SIGTERMs amid writes", stop <= STOP_SECONDS
        run.found("G12", what, f"{stop:.1f} s", f"{STOP_SECONDS} s", is_quick, is_speed=True)
    what, is_quick = "SIGTERM with a hung receiver", hung_stop <= HUNG_STOP_SECONDS
    run.found("G12", what, f"{hung_stop:.1f} s", f"{HUNG_STOP_SECONDS} s", is_quick, is_speed=True)
    what, soon = f"first retry after a receiver's outage of {seconds:.0f} s", 1.2 * seconds
    run.found("G3", what, f"{retry:.1f} s", f"{soon:.1f} s", retry <= soon, is_speed=True)
    what, speed = f"of {events} events that waited, sent a second, in order", events / drained
    run.found("G3", what, f"{speed:.0f}", f"{BACKLOG_SPEED}", speed >= BACKLOG_SPEED, is_speed=True)


def tell_of_storms(run: Run, count: Counter[str]) -> None:
    """Write what the storms found to the table."""
    kills = ", ".join(f"{way} {count[way]}" for way in WAYS)
    answered = f"{count['answered']}; {count['unknown']} were not answered"
    arrived = f"{count['events']}; {count['duplicates']} came again"
    rows = (
        ("G1", f"acknowledged writes lost in {count['kills']} kills ({kills})", "lost", f" of {answered}"),
        ("G1", f"half done, done twice or damaged, in {count['checks']} checks", "half", ""),
        ("G12", f"wrong answers, of {count['replays']} repeated creations too", "answers", ""),
        ("G2", "events lost, invented or changed, at two receivers", "arrivals", f" of {arrived}"),
        ("G2", "events that overtook one of their client", "order", f", and {count['overtaken']} that may"),
    )
    for goal, what, kind, more in rows:
        run.found(goal, what, f"{count[kind]}{more}", "0", count[kind] == 0)
