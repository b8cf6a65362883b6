"""Kill processes or stop them, and let receivers fail, while clients write.

Every acknowledged change must be stored as a whole. Any other change is stored as a whole or not at all. The
events of all stored changes arrive, in the order of each client.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from random import Random

from findings import Run
from harness import Receiver, Server, hook, leave_waiting, receivers, wait_until
from outages import MODES, Recorder, environment
from servers import NO_SLOW_DISK, slow_disk
from snapshot import Snapshot, key_of
from writers import Writers

WAYS = {"a worker": 14, "everything": 3, "every worker": 2, "the master": 1}  # the share of each kill
KILLS_PER_STOP = 10  # the first after half of them
# With several workers, README.md lets events overtake each other for this long after a kill.
OVERTAKING = timedelta(seconds=2)
SYNC_MS = 5  # on the slow disk, where writers wait for each other
# The steps are a tenth of the default's first ones, so an outage of 3 s represents an outage of 30 s.
OUTAGE_SCHEDULE = [0.5, 1, 2, 3, 3, 6, 12]


class Storm:
    """Clients, the server that they write to, its receivers, and the problems that were found.

    The first receiver is healthy, the others have outages. `environment` makes the server send to them.
    """

    def __init__(self, server: Server, recorders: list[Recorder], random: Random, workers: int, writers: int):
        self.server, self.recorders, self.random, self.workers = server, recorders, random, workers
        self.problems: list[str] = []
        self.count: Counter[str] = Counter()
        self.slowest_stop = 0.0
        self.writers = Writers(server, server.client().make_project()["id"], writers, random=random)

    def note(self, kind: str, *problems: str) -> None:
        """Keep problems and count them by kind. A problem that is known already does not count again."""
        new = [problem for problem in problems if problem not in self.problems]
        self.count[kind] += len(new)
        self.problems += new

    def rage(self, cycles: Iterable[int]) -> None:
        """Kill something in each cycle, and check the database afterwards."""
        with self.writers:
            for cycle in cycles:
                self.kill(self.random.choices([*WAYS], [*WAYS.values()])[0])
                if cycle % KILLS_PER_STOP == KILLS_PER_STOP // 2 - 1:
                    self.stop()
                self.check()
            # Their leases must expire: no start follows that would end them.
            self.kill("every worker")
            self.let_write()
        self.calm_down()

    def let_write(self) -> None:
        """Wait until one more request is answered, and then for up to half a second."""
        self.writers.go_on(1)
        time.sleep(self.random.uniform(0, 0.5))

    def kill(self, what: str) -> None:
        """Kill a process of this kind amid the writes, and start it again if nothing else does.

        The receivers change just before and just after the kill. So a delivery to a receiver that hung is not
        overtaken when the receiver answers again.
        """
        self.let_write()
        self.change_receivers()
        time.sleep(self.random.uniform(0, 0.05))
        self.count.update(["kills", what])
        workers = wait_until(self.server.children)
        if what == "everything":
            self.server.kill()
        elif what == "the master":
            self.server.process.kill()
            self.server.process.wait()
            # The workers still hold the server's lock.
            wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
        else:
            for worker in workers if what == "every worker" else [self.random.choice(workers)]:
                with suppress(ProcessLookupError):  # an earlier kill ended it
                    os.kill(worker, signal.SIGKILL)
        if what in ("everything", "the master"):
            self.server.start()
        self.change_receivers()

    def change_receivers(self) -> None:
        for recorder in self.recorders[1:]:
            recorder.change(self.random.choice(MODES))

    def stop(self) -> None:
        """Stop the server with SIGTERM amid the writes, and start it again."""
        self.let_write()
        began = time.monotonic()
        assert self.server.stop() == 0
        self.slowest_stop = max(self.slowest_stop, time.monotonic() - began)
        self.count["stops"] += 1
        self.server.start()

    def check(self) -> Snapshot:
        """Find acknowledged changes that are lost, and changes that are stored in part."""
        answered, snapshot = self.writers.answered, Snapshot(self.server.database)
        begun = {change.key for change in self.writers.changes}
        self.note("lost", *[f"acknowledged, but not there: {key}" for key in answered - snapshot.keys.keys()])
        self.note("half", *[f"done {n} times: {key}" for key, n in snapshot.keys.items() if n > 1])
        self.note("half", *[f"nobody wrote {key}" for key in snapshot.keys.keys() - begun])
        self.note("half", *snapshot.problems(len(self.recorders)))
        return snapshot

    def calm_down(self) -> None:
        """Let every event arrive, stop the server, and check the events that arrived."""
        for recorder in self.recorders:
            recorder.change("up")
        wait_until(lambda: not self.server.rows("SELECT 1 FROM delivery WHERE status != 'delivered' LIMIT 1"))
        snapshot = self.check()
        assert self.server.stop() == 0
        self.note("answers", *self.writers.wrong)
        for recorder in self.recorders:
            self.note("arrivals", *recorder.problems(snapshot))
            self.note("order", *self.overtaken(recorder, snapshot))
            self.count["duplicates"] += len(recorder.accepted) - len(set(recorder.accepted))
        self.count["answered"] = len(self.writers.answered)
        self.count["repeated"] = self.writers.repeated
        self.count["events"] = len(snapshot.events)

    def overtaken(self, recorder: Recorder, snapshot: Snapshot) -> Iterator[str]:
        """Yield events that arrived after a later one of their client, unless README.md allows it."""
        place = {id: number for number, id in reversed([*enumerate(recorder.accepted)])}  # the first time
        ids = {key_of(event): id for id, event in snapshot.events.items()}
        times = {id: datetime.fromisoformat(event["timestamp"]) for id, event in snapshot.events.items()}
        for script in self.writers.scripts:
            arrived = [(change, ids[change.key]) for change in script.changes if ids.get(change.key) in place]
            for (change, id), (_, later) in combinations(arrived, 2):
                may = self.workers > 1 and change.unanswered and times[later] - times[id] <= OVERTAKING
                if place[later] < place[id] and not may:
                    yield f"{recorder.name} got {later} before {id} ({change.key})"


def storms(run: Run, make_receiver: Callable[[], Receiver]) -> None:
    """Have a storm with one worker, and one with three, and write what they found to the table.

    The single worker has a slow disk and many clients. So several writers share each commit that a kill
    prevents.
    """
    count: Counter[str] = Counter()
    slowest_stop = 0.0
    slow = {} if NO_SLOW_DISK else slow_disk(run.folder, SYNC_MS)
    # Workers, clients, settings, and the share of the time that is left when the storm ends.
    shares: list[tuple[int, int, dict[str, str], float]] = [(1, 32, slow, 0.55), (3, 6, {}, 0.12)]
    if NO_SLOW_DISK:
        run.found("G1", "kills on a slow disk", f"not done: {NO_SLOW_DISK}")
    for workers, writers, disk, left in shares:
        recorders = [Recorder(make_receiver(), name) for name in ("healthy", "fickle")]
        settings = environment(recorders) | disk | {"WEB_CONCURRENCY": str(workers)}
        with run.server(f"workers-{workers}", **settings) as server:
            storm = Storm(server, recorders, run.random, workers, writers)
            cycles = range(run.count(100))
            storm.rage(cycle for cycle in cycles if cycle == 0 or run.left > left * run.seconds)
        for problem in storm.problems[:20]:
            run.fault(f"{workers} workers: {problem}")
        count += storm.count
        slowest_stop = max(slowest_stop, storm.slowest_stop)
    kills = ", ".join(f"{way} {count[way]}" for way in WAYS)
    rows = {
        "lost": ("G1", f"writes lost of {count['answered']} that were answered"),
        "half": ("G1", f"half done, done twice or damaged, in {count['kills']} kills ({kills})"),
        "answers": ("G12", f"wrong answers, of {count['repeated']} repeated creations too"),
        "arrivals": ("G2", f"events lost, invented or changed of {count['events']}, at two receivers"),
        "order": ("G2", f"events that overtook one of their client; {count['duplicates']} came again"),
    }
    for kind, (goal, what) in rows.items():
        run.found(goal, what, count[kind], "0", count[kind] == 0)
    if count["stops"]:
        what, is_quick = f"slowest of {count['stops']} SIGTERMs amid writes", slowest_stop <= 10
        run.found("G12", what, f"{slowest_stop:.1f} s", "10 s", is_quick, is_speed=True)


def backlog(run: Run, receiver: Receiver) -> None:
    """Let events wait for a receiver that is down. They arrive soon after it is back, once each, in order."""
    down, events = (1 if run.is_short else 3), run.count(10_000)
    settings = {"TASKS_DELIVERY__RETRY_SCHEDULE": json.dumps(OUTAGE_SCHEDULE)}
    with run.server("outage", TASKS_WEBHOOKS=json.dumps([hook(receiver)]), **settings) as server:
        owner = server.client()
        owner.make_task(owner.make_project())
        leave_waiting(server, events - 1)
        time.sleep(down)
        moments, ids = [time.monotonic()], []
        receiver.up()
        for _ in range(events):
            ids.append(receiver.next().headers["webhook-id"])
            moments.append(time.monotonic())
        assert ids == [row["id"] for row in server.rows("SELECT id FROM event ORDER BY seq")]
    retry, soon = moments[1] - moments[0], 1.2 * down
    what = f"first retry after a receiver's outage of {down} s"
    run.found("G3", what, f"{retry:.1f} s", f"{soon:.1f} s", retry <= soon, is_speed=True)
    what, speed = (
        f"of {events} events that waited, sent a second, in order",
        events / (moments[-1] - moments[1]),
    )
    run.found("G3", what, f"{speed:.0f}", "100", speed >= 100, is_speed=True)


def run(run: Run) -> None:
    with contextmanager(receivers)() as make_receiver:
        storms(run, make_receiver)
        backlog(run, make_receiver())
