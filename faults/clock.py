"""A clock that steps back and forward under load."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from findings import Run
from harness import Server, hook, receivers, wait_until

from database import instant

HOUR, DAY = 3600, 86_400
# From the true time. A process does not follow ids of another one that are more than a day ahead.
STEPS = (-HOUR, DAY - HOUR, 0)


def settable_clock(folder: Path) -> tuple[Callable[[int], None], dict[str, str]]:
    """A function that sets by how many seconds a server's clock is wrong, and the server's environment."""
    offset, new = folder / "offset", folder / "new-offset"

    def set_clock(seconds: int) -> None:
        new.write_text(str(seconds))
        new.replace(offset)  # at once: the server reads the file whenever it looks at its clock

    set_clock(0)
    (folder / "sitecustomize.py").write_text(
        "import time\n"
        "real = time.time_ns\n"
        f"def time_ns():\n    with open({str(offset)!r}) as file:\n"
        "        return real() + int(file.read()) * 1_000_000_000\n"
        "time.time_ns = time_ns\n"
        "time.time = lambda: time_ns() / 1e9\n"
    )
    return set_clock, {"PYTHONPATH": str(folder)}


class Load:
    """Threads that create tasks, and what the server said to them."""

    def __init__(self, server: Server, threads: int):
        self.server, self.stop = server, threading.Event()
        self.project = server.client().make_project()
        self.ids: list[str] = []
        self.pool = ThreadPoolExecutor(threads)
        self.writers = [self.pool.submit(self.write) for _ in range(threads)]

    def write(self) -> None:
        client = self.server.client()
        while not self.stop.is_set():
            self.ids.append(client.make_task(self.project)["id"])

    def more(self, count: int) -> None:
        """Wait until so many tasks more were created."""
        least = len(self.ids) + count
        wait_until(lambda: len(self.ids) >= least or any(writer.done() for writer in self.writers))

    def end(self) -> None:
        self.stop.set()
        for writer in self.writers:
            writer.result()
        self.pool.shutdown()


def what_lasts(server: Server, set_clock: Callable[[int], None]) -> None:
    """Assert that keys, links, stored answers and limits follow the clock, and that nothing is used twice."""
    set_clock(0)
    owner = server.client()
    in_two_hours = instant(datetime.now(UTC) + timedelta(hours=2))
    made = owner.data(owner.post("/keys", {"name": "short", "expires_at": in_two_hours}), 201)
    expiring = server.client(made["api_key"])
    person = {"email": "late@example.com", "full_name": "Late", "role": "member"}
    invited = owner.data(owner.post("/members/invite", person), 201)["enrollment_link"]
    link = f"/enroll/{invited.rpartition('/')[2]}"

    def repeat() -> str:
        return owner.data(owner.post("/projects", {"name": "Once"}, headers={"Idempotency-Key": "k"}), 201)[
            "id"
        ]

    once = repeat()
    for seconds, status in ((-HOUR, 200), (DAY - HOUR, 401), (HOUR, 200)):
        set_clock(seconds)
        assert expiring.get("/me").status_code == status, f"a key of two hours at {seconds} s"
        assert repeat() == once, f"an idempotency key was forgotten at {seconds} s"
        left = int(owner.get("/me").headers["RateLimit"].rpartition("t=")[2])
        assert 0 <= left <= 60, f"a minute of the limit ends in {left} s"
        assert owner.get(link).status_code == 200
    set_clock(DAY)
    owner.data(server.client(None).post(link), 201)
    for seconds in (0, -HOUR):
        set_clock(seconds)
        assert server.client(None).post(link).status_code == 410, "a link was used twice"


def run(run: Run) -> None:
    set_clock, environment = settable_clock(run.folder)
    with contextmanager(receivers)() as make_receiver:
        receiver = make_receiver().up()
        settings = environment | {
            "TASKS_WEBHOOKS": json.dumps([hook(receiver, events=["task.created"])]),
            "TASKS_DELIVERY__RETRY_SCHEDULE": "[0.5]",
            "TASKS_LIMITS__REQUESTS_PER_MINUTE": "1000000",
        }
        with run.server("clock", **settings) as server:
            load = Load(server, 4)
            try:
                steps = 0
                for number in run.rounds(20 * len(STEPS)):
                    load.more(20)
                    set_clock(STEPS[number % len(STEPS)])
                    receiver.answers = [503]
                    steps += 1
                load.more(20)
            finally:
                load.end()
            set_clock(0)  # what was queued before the clock was set back waits until it is right again
            wait_until(lambda: not server.rows("SELECT 1 FROM delivery WHERE status = 'pending'"))
            stored = [row["id"] for row in server.rows("SELECT id FROM task ORDER BY rowid")]
            what_lasts(server, set_clock)
            arrived = {call.event["data"]["task"]["id"] for call in receiver.all_here()}
    unordered = sum(first > second for first, second in zip(stored, stored[1:], strict=False))
    what = f"{steps} steps of the clock by hours and days, {len(stored)} tasks created meanwhile: "
    run.found("", f"{what}ids out of order", unordered, "0", not unordered)
    lost = len(set(load.ids) - set(stored)) + len(set(load.ids) - arrived)
    run.found("", "tasks and events lost meanwhile", lost, "0", not lost)
