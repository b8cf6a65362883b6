"""Copies of a database under load, and logs that are torn or large when a server starts."""

import os
import shutil
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from findings import Run
from harness import Server
from snapshot import Snapshot
from writers import Writers

from database import db
from store import backup, prepare


def copy_under_load(
    server: Server, make: Callable[[Path, int], object], rounds: Iterable[int]
) -> tuple[int, int]:
    """Make copies while four clients write, and assert that each is sound, one file, and private.

    Return how many writes were answered, and how many of them are missing in a copy that began later.
    """
    missing = 0
    with Writers(server, server.client().make_project()["id"], 4, pause=0.05) as writers:
        for number in rounds:
            writers.go_on(8)
            answered, path = writers.answered, server.folder / f"backup-{number}.db"
            make(path, number)
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.read_bytes()[18:20] == b"\1\1"  # SQLite's mark of a database without a log beside it
            copy = Snapshot(path)
            assert not (problems := list(copy.problems(webhooks=0))), problems
            missing += len(answered - copy.keys.keys())
    assert not writers.failures, writers.failures
    return len(writers.answered), missing


def copies(run: Run) -> None:
    """Make 50 copies under load, one in ten by the command."""
    with run.server("copies") as server:
        db.init(str(server.database), timeout=10)

        def make(path: Path, number: int) -> None:
            if number % 10 == 0:
                done = server.flask("backup", str(path))
                assert done.returncode == 0, done.stderr
            else:
                backup(path)

        written, missing = copy_under_load(server, make, run.rounds(50))
        db.disconnect()
        made = len(list(server.folder.glob("backup-*.db")))
    what = f"{made} copies during {written} writes: missing of those that were answered before"
    run.found("G15", what, missing, "0", not missing)


# Logs -----------------------------------------------------------------------------------------


def torn_log(run: Run) -> None:
    """Damage the end of a killed server's log. Only the writes before the damage may be kept, and all are."""
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
    whole, wrong, number = log.read_bytes(), 0, 0
    for number in run.rounds(100):
        path = run.folder / f"torn-{number}" / "tasks.db"
        path.parent.mkdir()
        shutil.copy(server.database, path)
        start = run.random.randrange(len(whole) + 1)
        tails = b"", bytes(len(whole) - start), run.random.randbytes(len(whole) - start)
        path.with_name("tasks.db-wal").write_bytes(whole[:start] + run.random.choice(tails))
        db.init(str(path), timeout=10)
        prepare()
        found = [id for (id,) in db.execute_sql("SELECT id FROM task ORDER BY rowid").fetchall()]
        db.disconnect()
        least = bisect_right(sizes, start)
        wrong += found != ids[: len(found)] or len(found) < least
        shutil.rmtree(path.parent)
    what = f"{number + 1} damaged ends of a log: started with other than the writes before the damage"
    run.found("G1", what, wrong, "0", not wrong)


def large_log(run: Run) -> None:
    """Kill a server whose log has 200 MB, a fifth of the goal's size, and time the next start."""
    with run.server("large-log", TASKS_DELIVERY__SWEEPER="false") as server:
        client = server.client()
        path = f"/tasks/{client.make_task(client.make_project())['id']}/attachments"
        with closing(sqlite3.connect(server.database, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            # SQLite merges nothing into the database until this reader ends.
            reader.execute("SELECT count(*) FROM task").fetchone()
            for number in range(20):
                file = {"file": (f"{number}.bin", os.urandom(10_000_000))}
                client.data(client.request("POST", path, files=file), 201)
        size = Path(f"{server.database}-wal").stat().st_size
        server.kill()
        began = time.monotonic()
        server.start()  # until it answers
        took = time.monotonic() - began
        client = server.client()
        kept = len(client.data(client.get(path))["attachments"])
        assert kept == 20, f"{kept} of 20 files are there"
    what = f"start with a log of {size / 1e6:.0f} MB (a fifth of the goal's)"
    run.found("G19", what, f"{took:.1f} s", "< 2 s", took < 2, is_speed=True)


def run(run: Run) -> None:
    torn_log(run)
    if not run.is_short:
        large_log(run)
    copies(run)
