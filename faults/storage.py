"""Let storage fail under a running server: a disk gets full, files become read-only."""

import itertools
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from random import Random
from typing import Any

from disks import Disk, own_mounts
from findings import Run
from harness import Client, Server, fault, receivers, wait_until
from outages import Recorder, environment
from snapshot import Snapshot
from writers import Change, Script


def is_refused(answer: Any) -> bool:
    """Return whether the response is the service's 503. Any status other than this and 2xx is an error."""
    if answer.ok:
        return False
    fault(answer, 503, "unavailable")
    assert answer.headers.get("Retry-After") == "5", answer.headers
    return True


def reads_on(client: Client) -> None:
    """Assert that reads succeed."""
    assert client.get("/tasks", limit=1).status_code == 200
    assert client.get("/health").status_code == 200


def is_sound(server: Server) -> None:
    """Assert that pages, references and deliveries are in order."""
    done = server.flask("doctor")
    assert done.returncode == 0, done.stdout + done.stderr


# A full disk ----------------------------------------------------------------------------------


@contextmanager
def server_on(run: Run, disk: Disk, name: str, **settings: str) -> Iterator[Server]:
    """Start a server whose database is on this disk."""
    path = disk.folder / f"{name}.db"
    with run.server(name, TASKS_SERVER__DATABASE=str(path), **settings) as server:
        server.database = path
        yield server


def full_at_every_commit(run: Run, disk: Disk) -> None:
    """Repeat each change until it succeeds. The disk gets more room, a page at a time."""
    with contextmanager(receivers)() as make_receiver:
        recorder = Recorder(make_receiver(), "the receiver")
        with server_on(run, disk, "full", **environment([recorder])) as server:
            project, refused = server.client().make_project()["id"], 0
            script = Script("full", project, run.random, sizes=(0, 3_000, 20_000))
            wrong: set[str] = set()
            for number in run.rounds(100):
                refused += insist(server.client(), script, disk, run.random)
                if number % 25 == 24:  # the log must not bring back refused changes
                    restart_when_full(server, disk)
                    wrong |= differences(Snapshot(server.database), script)
            disk.clear()
            assert not is_refused(
                change(server.client(), script, script.next())
            )  # at once, without a restart
            wait_until(lambda: not server.rows("SELECT 1 FROM delivery WHERE status = 'pending' LIMIT 1"))
            snapshot = Snapshot(server.database)
            wrong |= differences(snapshot, script)
            lost = list(recorder.problems(snapshot))
            is_sound(server)
    run.found("G11", f"disk full at every write of {number + 1} changes: refused with 503", refused)
    run.found("G11", "differences from what was answered", len(wrong), "0", not wrong)
    run.found("G11", "events lost, or of refused changes", len(lost), "0", not lost)
    for problem in [*sorted(wrong), *lost][:5]:
        run.fault(f"after a full disk: {problem}")


def insist(client: Client, script: Script, disk: Disk, random: Random) -> int:
    """Repeat a change until the disk has room for it. Return how often it was refused."""
    next_change = script.next()
    for refused in range(400):
        # The log keeps the space of a failed write for the next try, unless the sweeper gives it back.
        disk.leave(random.choice([0, 1, 2, 4]) + refused // 10)
        if not is_refused(change(client, script, next_change)):
            return refused
        reads_on(client)
    raise AssertionError("a change does not succeed though the disk gets room for it page by page")


def change(client: Client, script: Script, change: Change) -> Any:
    """Request the change, and note it if it succeeds. Return the response."""
    answer = client.request(change.method, change.path, **change.options)
    if answer.ok:
        script.note(change, client.data(answer, change.status))
    return answer


def differences(snapshot: Snapshot, script: Script) -> set[str]:
    """Return changes that are stored in part, refused but stored, or done but not stored."""
    keys = {change.key for change in script.changes}
    return {
        *snapshot.problems(webhooks=1),
        *(f"{key} is there or not" for key in keys ^ snapshot.keys.keys()),
    }


def restart_when_full(server: Server, disk: Disk) -> None:
    """Kill the server and start it on the full disk. It has to serve, or to log in a line why it cannot."""
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


def full_by_its_own_log(run: Run, disk: Disk) -> None:
    """Let the log fill the disk under a long reader. Afterwards, a little space must be enough for writes."""
    with server_on(run, disk, "own-log") as server:
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
        disk.clear()  # `doctor` wants more than a little
        is_sound(server)
    what = "of 50 writes refused after 400 kB were freed on a disk that the log had filled"
    run.found("G11", what, refused, "0", not refused)


# Files that become read-only ------------------------------------------------------------------


def read_only(run: Run) -> None:
    """Make the files of a running server immutable. Reads must still succeed, and writes again afterwards."""
    with run.server("read-only", TASKS_DELIVERY__SWEEPER="false") as server:
        client = server.client()
        project = client.make_project()
        files = [server.database, server.database.with_name("tasks.db-wal")]
        done = subprocess.run(["chattr", "+i", *files], capture_output=True, text=True)
        if done.returncode:
            run.found("G11", "files that become read-only", f"not done: {done.stderr.splitlines()[0]}")
            return
        try:
            body = {"project_id": project["id"], "title": "T"}
            answers = [server.client().post("/tasks", body) for _ in range(20)]
            is_kept = all(map(is_refused, answers))
            reads_on(client)
        finally:
            subprocess.run(["chattr", "-i", *files], check=True)
        client.make_task(project)
        is_sound(server)
    run.found(
        "G11",
        "files become read-only: writes are 503, reads go on",
        "kept" if is_kept else "not kept",
        "",
        is_kept,
    )


def run(run: Run) -> None:
    # The mounts have to be made before any thread starts.
    if reason := own_mounts():
        run.found("G11", "disk full at every commit", f"not done: {reason}")
    else:
        disk = Disk(run.folder / "disk", 24_000)  # more than `doctor` wants to be free
        full_at_every_commit(run, disk)
        if not run.is_short:
            full_by_its_own_log(run, disk)
    if not run.is_short:
        read_only(run)
