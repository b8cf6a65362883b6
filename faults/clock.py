"""A clock that steps back and forward under load."""

from contextlib import contextmanager

from findings import Run
from harness import receivers, settable_clock, wait_until
from outages import Recorder
from outages import environment as sending_to
from snapshot import Snapshot
from writers import Writers

HOUR, DAY = 3600, 86_400
# Seconds from the true time. A process ignores ids of another process that are more than a day ahead.
STEPS = (-HOUR, DAY - HOUR, 0)


def run(run: Run) -> None:
    set_clock, environment = settable_clock(run.folder)
    with contextmanager(receivers)() as make_receiver:
        recorder = Recorder(make_receiver(), "the receiver")
        with run.server("clock", **environment, **sending_to([recorder])) as server:
            with Writers(server, server.client().make_project()["id"], 4, pause=0) as writers:
                for number in run.rounds(20 * len(STEPS)):
                    writers.go_on(40)
                    set_clock(STEPS[number % len(STEPS)])
                    recorder.change("fails" if number % 2 else "up")
            recorder.change("up")
            # Entries that were queued before the clock stepped back wait until it is right again.
            set_clock(0)
            wait_until(lambda: not server.rows("SELECT 1 FROM delivery WHERE status = 'pending'"))
            stored = [row["id"] for row in server.rows("SELECT id FROM activity ORDER BY rowid")]
            snapshot = Snapshot(server.database)
    unordered = sum(first > second for first, second in zip(stored, stored[1:], strict=False))
    what = f"{number + 1} steps of the clock by hours and days, {len(stored)} changes meanwhile: "
    run.found("", f"{what}ids out of order", unordered, "0", not unordered)
    lost = [
        *writers.wrong,
        *writers.broken,
        *(writers.answered - snapshot.keys.keys()),
        *recorder.problems(snapshot),
    ]
    run.found("", "changes and events lost meanwhile, and wrong answers", len(lost), "0", not lost)
