"""Copies of a database under load, put back; and logs that are torn or large when a server starts."""

import os
import shutil
import sqlite3
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from findings import Run
from harness import Server, wait_until

from database import backup, db, prepare

WRITERS = 4


class Copies(NamedTuple):
    """What came of copies under load."""

    last: Path
    before_last: set[str]  # the ids of the tasks that were answered before it was begun
    missing: int  # tasks that were answered before a copy was begun and are not in it
    made: int
    written: int


def copy_under_load(
    server: Server, make: Callable[[Path, int], object], rounds: Iterable[int], rate: float = 0
) -> Copies:
    """Make copies while tasks are created, so many a second (0: as many as possible).

    Asserts that each copy is sound, one file, and private.
    """
    project = server.client().make_project()
    answered: list[str] = []
    stop, missing, number = threading.Event(), 0, 0

    def write() -> None:
        client, due = server.client(), time.monotonic()
        while not stop.is_set():
            answered.append(client.make_task(project)["id"])
            due += WRITERS / rate if rate else 0
            stop.wait(max(due - time.monotonic(), 0))

    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(write) for _ in range(WRITERS)]
        try:
            for number in rounds:
                least = len(answered) + WRITERS
                wait_until(lambda: len(answered) >= least)  # noqa: B023 - it is called at once
                before, path = set(answered), server.folder / f"backup-{number}.db"
                make(path, number)
                missing += len(before - task_ids(path))
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    return Copies(path, before, missing, number + 1, len(answered))


def task_ids(copy: Path) -> set[str]:
    """The ids of the tasks in a copy, which is sound, one file, and private."""
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        return {id for (id,) in database.execute("SELECT id FROM task")}


def copies(run: Run) -> None:
    """Make 50 copies under 50 writes a second, one in ten by the command, and restore the last one."""
    with run.server("copies") as server:
        db.init(str(server.database), timeout=10)

        def make(path: Path, number: int) -> None:
            if number % 10 == 0:
                done = server.flask("backup", str(path))
                assert done.returncode == 0, done.stderr
            else:
                backup(path)

        started = time.monotonic()
        made = copy_under_load(server, make, run.rounds(50), rate=50)
        rate = made.written / (time.monotonic() - started)
        db.disconnect()
        server.stop()
        done = server.flask("restore", str(made.last))
        assert done.returncode == 0, done.stderr
        client = server.start().client()
        for id in made.before_last:
            if client.get(f"/tasks/{id}").status_code != 200:
                run.fault(f"a task that was answered before the copy is not in the restored database: {id}")
                break
    what = f"{made.made} copies under {rate:.0f} writes/s: writes missing that were answered before"
    run.found("G15", what, made.missing, "0", not made.missing)


# Logs -----------------------------------------------------------------------------------------


def torn_log(run: Run) -> None:
    """Damage the end of a killed server's log: each write before the damage is there, and none after it."""
    with run.server("torn", TASKS_DELIVERY__SWEEPER="false") as server:
        client = server.client()
        project = client.make_project()
        server.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        log = server.database.with_name("tasks.db-wal")
        ids, sizes = [], []
        for _ in range(50):
            ids.append(client.make_task(project)["id"])
            sizes.append(log.stat().st_size)
        server.kill()
        whole = log.read_bytes()
        shutil.copy(server.database, run.folder / "torn.db")
    wrong = number = 0
    for number in run.rounds(100):
        path = run.folder / f"torn-{number}" / "tasks.db"
        path.parent.mkdir()
        shutil.copy(run.folder / "torn.db", path)
        start = run.random.randrange(len(whole) + 1)
        tails = b"", bytes(len(whole) - start), run.random.randbytes(len(whole) - start)
        path.with_name("tasks.db-wal").write_bytes(whole[:start] + run.random.choice(tails))
        db.init(str(path), timeout=10)
        prepare()
        found = [id for (id,) in db.execute_sql("SELECT id FROM task ORDER BY rowid").fetchall()]
        db.disconnect()
        least = bisect_right(sizes, start)
        if found != ids[: len(found)] or len(found) < least:
            wrong += 1
            run.fault(f"a log damaged from byte {start} on: {len(found)} tasks, at least {least} were whole")
        shutil.rmtree(path.parent)
    what = f"{number + 1} damaged ends of a log: started with other than the writes before the damage"
    run.found("G1", what, wrong, "0", not wrong)


def let_log_grow(server: Server, files: int) -> tuple[Path, str]:
    """Store files of 10 MB while another connection reads; returns the log, and the path of the files."""
    client = server.client()
    path = f"/tasks/{client.make_task(client.make_project())['id']}/attachments"
    with closing(sqlite3.connect(server.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM task").fetchone()
        for number in range(files):
            file = {"file": (f"{number}.bin", os.urandom(10_000_000))}
            client.data(client.request("POST", path, files=file), 201)
    return Path(f"{server.database}-wal"), path


def large_log(run: Run) -> None:
    """Kill a server whose log has 200 MB, a fifth of what the goal says, and time the next start."""
    with run.server("large-log", TASKS_DELIVERY__SWEEPER="false") as server:
        log, path = let_log_grow(server, 20)
        size = log.stat().st_size
        server.kill()
        started = time.monotonic()
        server.start()  # until it answers
        took = time.monotonic() - started
        client = server.client()
        kept = client.data(client.get(path))["attachments"]
        assert len(kept) == 20, f"{len(kept)} of 20 files are there"
        client.make_project()
        left = log.stat().st_size
    what = (
        f"start with a log of {size / 1e6:.0f} MB (a fifth of the goal's), which is then {left / 1e6:.0f} MB"
    )
    run.found("G19", what, f"{took:.1f} s", "< 2 s", took < 2, is_speed=True)


def run(run: Run) -> None:
    torn_log(run)
    if not run.is_short:
        large_log(run)
    copies(run)
