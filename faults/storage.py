"""Storage that fails under a running server: full, read-only, locked, moved away, read for long."""

import itertools
import json
import shutil
import sqlite3
import subprocess
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from copies import let_log_grow
from disks import Disk, own_mounts
from findings import Run
from harness import Client, Receiver, Server, fault, hook, receivers, wait_until
from script import Script

from database import LOCK_SECONDS

FAST = {"TASKS_DELIVERY__RETRY_SCHEDULE": "[0.2]", "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "2"}


def is_refused(answer: Any, retry_after: str | None = "5") -> bool:
    """Whether the answer is our 503. Any other than that and 2xx is an error."""
    if answer.ok:
        return False
    fault(answer, 503, "unavailable")
    assert answer.headers.get("Retry-After") == retry_after, answer.headers
    return True


def reads_on(client: Client, path: str = "/context") -> None:
    """Assert that reads are answered."""
    assert client.get(path).status_code == 200
    assert client.get("/health").status_code == 200


def is_sound(server: Server) -> None:
    """Assert that pages, references and deliveries are in order."""
    done = server.flask("doctor")
    assert done.returncode == 0, done.stdout + done.stderr


# A full disk ----------------------------------------------------------------------------------


def full_at_every_commit(run: Run, disk: Disk) -> None:
    """Run a script in which each change meets a disk with room for one page more, until it succeeds."""
    with contextmanager(receivers)() as make_receiver:
        receiver = make_receiver().up()
        settings = FAST | {"TASKS_WEBHOOKS": json.dumps([hook(receiver)])}
        with run.server("full", TASKS_SERVER__DATABASE=str(disk.folder / "tasks.db"), **settings) as server:
            server.database = disk.folder / "tasks.db"
            script = Script(server.client(), run.random)
            steps, refused, differences = 0, 0, []
            for number in run.rounds(200):
                refused += insist(script, disk, run.random)
                steps += 1
                if number % 50 == 49:  # what was refused must not come back from the log
                    restart_when_full(server, disk)
                    script.client = server.client()
                if number % 20 == 19:
                    differences += script.differences()
            disk.clear()
            call, note = script.next_change()
            note(call().json()["data"])  # at once, without a restart
            differences += script.differences()
            lost, phantom = undelivered(server, receiver, script.expected)
            is_sound(server)
    run.found("G11", f"disk full at every write of {steps} changes: refused with 503", refused)
    run.found("G11", "differences from the model", len(differences), "0", not differences)
    run.found("G11", "events lost / of refused changes", f"{lost} / {phantom}", "0 / 0", not lost + phantom)
    for difference in differences[:3]:
        run.fault(f"after a full disk: {difference}")


def insist(script: Script, disk: Disk, choose: Any) -> int:
    """Repeat a change until the disk has room for it; return how often it was refused."""
    call, note = script.next_change()
    for refused in range(400):
        disk.leave(choose.choice([0, 1, 2, 4]))
        if not is_refused(answer := call()):
            note(answer.json()["data"])
            return refused
        reads_on(script.client, "/tasks?limit=1")
    raise AssertionError("a change does not succeed though the disk gets room for it page by page")


def restart_when_full(server: Server, disk: Disk) -> None:
    """Kill the server and start it on the full disk: it serves, or says in a line why not."""
    server.kill()
    server.start()
    with suppress(subprocess.TimeoutExpired):
        server.process.wait(0.2)
    if server.process.poll() is None:
        return
    said = server.log.read_text().splitlines()[-1]
    assert said.startswith("Error: ") and str(server.database) in said, said
    disk.leave(disk.pages // 2)
    server.start()


def undelivered(server: Server, receiver: Receiver, expected: Counter) -> tuple[int, int]:
    """Wait until nothing is pending; return how many events are missing, and how many should not exist."""
    wait_until(lambda: not server.rows("SELECT 1 FROM delivery WHERE status = 'pending' LIMIT 1"))
    events = {call.headers["webhook-id"]: call.event for call in receiver.all_here()}
    came = Counter((event["event"], event["data"]["task"]["id"]) for event in events.values())
    return sum((expected - came).values()), sum((came - expected).values())


def full_by_its_own_log(run: Run, disk: Disk) -> None:
    """Let the log fill the disk under a long reader; after it, little space is enough to go on."""
    with run.server("own-log", TASKS_SERVER__DATABASE=str(disk.folder / "log.db")) as server:
        server.database = disk.folder / "log.db"
        client = server.client()
        path = f"/tasks/{client.make_task(client.make_project())['id']}"
        server.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        disk.leave(600)
        with closing(sqlite3.connect(server.database, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM task").fetchone()
            titles = (f"before {number}" for number in itertools.count())
            while not is_refused(client.patch(path, {"title": next(titles)})):
                reads_on(client)
        disk.leave(100)
        answers = [client.patch(path, {"title": f"after {number}"}) for number in range(50)]
        refused = sum(map(is_refused, answers))
        is_sound(server)
    what = "of 50 writes refused after 400 kB were freed on a disk that the log had filled"
    run.found("G11", what, refused, "0", not refused)


# Read-only, locked, moved away, read for long -------------------------------------------------


def read_only(run: Run) -> None:
    """Make the files of a running server immutable: reads go on, and so do writes afterwards."""
    with run.server("read-only", TASKS_DELIVERY__SWEEPER="false") as server:
        client = server.client()
        project = client.make_project()
        files = [server.database, server.database.with_name("tasks.db-wal")]
        done = subprocess.run(["chattr", "+i", *files], capture_output=True, text=True)
        if done.returncode:
            run.found("", "files that become read-only", f"not done: {done.stderr.splitlines()[0]}")
            return
        try:
            body = {"project_id": project["id"], "title": "T"}
            answers = [server.client().post("/tasks", body) for _ in range(20)]
            assert all(map(is_refused, answers)), Counter(answer.status_code for answer in answers)
            for _ in range(20):
                reads_on(server.client())
        finally:
            subprocess.run(["chattr", "-i", *files], check=True)
        client.make_task(project)
        is_sound(server)
    run.found("", "files become read-only: writes are 503, reads go on", "kept", kept=True)


def locked(run: Run) -> None:
    """Let another process hold the write lock for longer than a write waits."""
    with run.server("locked", TASKS_DELIVERY__SWEEPER="false") as server:
        project = server.client().make_project()
        took: list[float] = []

        def work(number: int) -> None:
            started = time.monotonic()
            body = {"project_id": project["id"], "title": f"refused {number}"}
            assert is_refused(server.client().post("/tasks", body))
            took.append(time.monotonic() - started)

        with (
            closing(sqlite3.connect(server.database, isolation_level=None)) as other,
            ThreadPoolExecutor(30) as pool,
        ):
            other.execute("BEGIN IMMEDIATE")
            writes = [pool.submit(work, number) for number in range(30)]
            reads = 0
            while not all(write.done() for write in writes):
                reads_on(server.client())
                reads += 1
            other.execute("ROLLBACK")
            for write in writes:
                write.result()
        server.client().make_task(project)
        later = server.rows("SELECT count(*) AS n FROM task WHERE title LIKE 'refused%'")[0]["n"]
        assert not later, f"{later} refused tasks were written later"
    slowest = max(took)
    what = f"30 writes to a locked database, each 503, {reads} reads meanwhile; slowest refusal"
    run.found(
        "", what, f"{slowest:.1f} s", f"<= {LOCK_SECONDS + 2} s", slowest <= LOCK_SECONDS + 2, is_speed=True
    )


def moved(run: Run) -> None:
    """Move, delete or replace the database under load and put it back; nothing may be made in its place."""
    with run.server("moved") as server:
        project = server.client().make_project()
        path, aside = server.database, server.database.with_name("aside.db")
        made: list[str] = []
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                with closing(server.client().session):  # a connection, and so in time every thread
                    answer = server.client().post("/tasks", {"project_id": project["id"], "title": "T"})
                if not is_refused(answer, None):  # waiting does not help
                    made.append(answer.json()["data"]["id"])

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write) for _ in range(4)]
            try:
                for number in run.rounds(20):
                    count = len(made)
                    wait_until(lambda: len(made) >= count + 5)  # noqa: B023 - it is called at once
                    displace(path, aside, ("moved", "deleted", "replaced")[number % 3])
                    wait_until(lambda: server.client().get("/health").status_code == 503)
                    assert number % 3 == 2 or not path.exists(), "a new database was made"
                    aside.replace(path)
            finally:
                stop.set()
            for writer in writers:
                writer.result()
        stored = {row["id"] for row in server.rows("SELECT id FROM task")}
        lost = len(set(made) - stored)
        is_sound(server)
    what = f"database moved, deleted or replaced {number + 1} times under load: writes lost of {len(made)}"
    run.found("", what, lost, "0", not lost)


def displace(path: Path, aside: Path, how: str) -> None:
    """Take the database from its place; `aside` is then the file itself."""
    if how == "deleted":
        aside.hardlink_to(path)
        path.unlink()
    else:
        path.rename(aside)
    if how == "replaced":
        shutil.copy(aside, path)


def long_reader(run: Run) -> None:
    """Read during 150 MB of writes; after it, the log is as small as without it."""
    with run.server("long-reader", TASKS_DELIVERY__SWEEPER="false") as server:
        log, _ = let_log_grow(server, 15)
        grown = log.stat().st_size
        for number in range(3):  # the first merges the log, the second begins it again, and cuts it
            server.client().make_project(name=f"P{number}")
        size = log.stat().st_size
        is_sound(server)
    most = 64 * 1024 * 1024  # PRAGMA journal_size_limit
    what = f"log of {grown / 1e6:.0f} MB after a long reader has ended"
    run.found("", what, f"{size / 1e6:.0f} MB", f"<= {most / 1e6:.0f} MB", size <= most < grown)


# The part -------------------------------------------------------------------------------------


def attempt(run: Run, scene: Callable, *arguments: Any) -> None:
    """Play a scene, if there is time; whatever is not as it has to be is a fault."""
    if not run.left:
        run.found("", scene.__name__.replace("_", " "), "not done: the time was over")
        return
    started = time.monotonic()
    try:
        scene(run, *arguments)
        print(f"{scene.__name__}: {time.monotonic() - started:.1f} s", flush=True)
    except Exception as last:
        traceback.print_exc()
        error: BaseException = last  # or what was wrong before the server was stopped, if that failed too
        while isinstance(error.__context__, AssertionError):
            error = error.__context__
        run.fault(f"{scene.__name__}: {type(error).__name__}: {' '.join(str(error).split())[-300:]}")


def run(run: Run) -> None:
    reason = own_mounts()  # before there are threads
    attempt(run, moved)
    if reason:
        run.found("G11", "disk full at every commit", f"not done: {reason}")
    else:
        disk = Disk(run.folder / "disk", 8_000)
        attempt(run, full_at_every_commit, disk)
        if not run.is_short:
            attempt(run, full_by_its_own_log, disk)
    if not run.is_short:  # they take seconds, however little is done
        attempt(run, read_only)
        attempt(run, locked)
        attempt(run, long_reader)
