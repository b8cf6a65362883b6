"""A clock that steps back and forward under load."""

import json
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bystanders import Bystanders
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


def what_lasts(server: Server, set_clock: Callable[[int], None]) -> None:
    """Assert that keys, links and stored answers follow the clock, and that nothing is used twice."""
    set_clock(0)
    owner = server.client()
    in_two_hours = instant(datetime.now(UTC) + timedelta(hours=2))
    made = owner.data(owner.post("/keys", {"name": "short", "expires_at": in_two_hours}), 201)
    expiring = server.client(made["api_key"])
    person = {"email": "late@example.com", "full_name": "Late", "role": "member"}
    invited = owner.data(owner.post("/members/invite", person), 201)["enrollment_link"]
    link = f"/enroll/{invited.rpartition('/')[2]}"

    def repeat() -> str:
        answer = owner.post("/projects", {"name": "Once"}, headers={"Idempotency-Key": "k"})
        return owner.data(answer, 201)["id"]

    once = repeat()
    for seconds, status in ((-HOUR, 200), (DAY - HOUR, 401), (HOUR, 200)):
        set_clock(seconds)
        assert expiring.get("/me").status_code == status, f"a key of two hours at {seconds} s"
        assert repeat() == once, f"an idempotency key was forgotten at {seconds} s"
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
        }
        with run.server("clock", **settings) as server:
            with Bystanders(server, server.client().make_project()["id"], 4, pause=0) as load:
                for number in run.rounds(20 * len(STEPS)):
                    least = len(load.created) + 20
                    wait_until(lambda: len(load.created) >= least)  # noqa: B023 - it is called at once
                    set_clock(STEPS[number % len(STEPS)])
                    receiver.answers = [503]
            if load.failures:
                run.fault(f"while the clock was set clients got {load.failures}")
            set_clock(0)  # what was queued before the clock was set back waits until it is right again
            wait_until(lambda: not server.rows("SELECT 1 FROM delivery WHERE status = 'pending'"))
            stored = [row["id"] for row in server.rows("SELECT id FROM task ORDER BY rowid")]
            what_lasts(server, set_clock)
            arrived = {call.event["data"]["task"]["id"] for call in receiver.all_here()}
    unordered = sum(first > second for first, second in zip(stored, stored[1:], strict=False))
    what = f"{number + 1} steps of the clock by hours and days, {len(stored)} tasks created meanwhile: "
    run.found("", f"{what}ids out of order", unordered, "0", not unordered)
    lost = len(set(load.created) - set(stored)) + len(set(load.created) - arrived)
    run.found("", "tasks and events lost meanwhile", lost, "0", not lost)
