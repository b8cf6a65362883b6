"""The database file: versions, upgrades, what is refused; and the write lock."""

import fcntl
import json
import os
import re
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import requests
from damage import cut_off, make_another, make_newer, write_text
from forks import as_no_root
from harness import OWNER_KEY, PATIENCE, Server, at_once, fault, invoke, tables, wait_until
from older import Upgrade, content, older_database, table_names, texts, upgrade, versions
from peewee import ForeignKeyField
from playhouse.migrations import Runner

import models
import schemas
from database import BadDatabase, FairLock, db, is_outage, write_turn
from errors import Unavailable
from members import Member
from models import Resource, Task
from outbox import Event
from parts import resources
from store import MIGRATIONS, optimize, prepare
from times import new_id


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.stop()


def refused(server):
    """The lines of the log of a server whose start is refused."""
    assert server.start().process.wait(PATIENCE) == 1
    server.process = None
    return server.log.read_text().splitlines()


def refusal(server):
    return refused(server)[-1]


def schema(connection):
    """The columns, foreign keys and indexes of all tables, each with the table's name.

    The order of columns does not count: ALTER TABLE appends a column, and a model declares it where it
    belongs. No statement depends on the order.
    """

    def rows(sql):
        return {tuple(row) for row in connection.execute(sql)}

    queries = {
        "column": "SELECT name, type, [notnull], dflt_value, pk, hidden FROM pragma_table_xinfo('{}')",
        "key": "SELECT [from], [table], [to], on_update, on_delete FROM pragma_foreign_key_list('{}')",
        "index": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = '{}'",
    }
    return {
        (table, kind, *row)
        for table in table_names(connection)
        for kind, sql in queries.items()
        for row in rows(sql.format(table))
    }


def test_the_migrations_make_what_the_models_declare_and_are_numbered_without_a_gap(database, tmp_path):
    names = [step.name for step in Runner(db, str(MIGRATIONS)).migrations()]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    migrated = schema(database.connection())
    database.close()
    declared = tmp_path / "declared.db"
    declared.touch()
    db.init(str(declared))
    db.create_tables(tables())
    assert schema(db.connection()) - migrated == set(), "declared in a model, but made by no migration"
    assert migrated - schema(db.connection()) == set(), "made by a migration, but declared in no model"


def test_a_reference_is_a_foreign_key_that_says_what_becomes_of_its_row():
    """So a reference to nothing is a 422 of a new resource too, and what is deleted leaves none behind."""
    # Code deletes or changes the rows of these before.
    handled = {("task", "project"), ("delivery", "event"), ("delivery", "webhook")}
    inputs = vars(schemas) | vars(resources)
    for table in tables():
        taken = issubclass(table, (Resource, Task)) and inputs[f"{table.__name__}Input"]().fields
        for name in taken or ():
            if name.endswith("_id") and name != "external_id":
                field = table._meta.columns[name]
                assert isinstance(field, ForeignKeyField) and field.rel_model.NOUN, field
        keys = [field for field in table._meta.sorted_fields if isinstance(field, ForeignKeyField)]
        for field in (field for field in keys if field.rel_model is not Member):  # members are only hidden
            names = (table._meta.table_name, field.name)
            assert field.on_delete in ("CASCADE", "SET NULL") or names in handled, names


@pytest.fixture
def migrations(database, tmp_path, monkeypatch):
    """The folder of the migrations: with one more, the database that we have now is an older one."""
    database.close()
    folder = shutil.copytree(MIGRATIONS, tmp_path / "migrations", ignore=shutil.ignore_patterns("__*"))
    monkeypatch.setattr("store.MIGRATIONS", folder)
    return folder


def test_an_older_database_is_copied_and_upgraded_at_the_start(migrations):
    (migrations / "9999_later.py").write_text(
        "def up(migrator, db):\n    db.execute_sql('CREATE TABLE later (id TEXT)')\n"
        "    numbers = 'WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n LIMIT 10000)'\n"
        "    db.execute_sql(f'{numbers} INSERT INTO later SELECT i FROM n')\n"
        "    db.execute_sql('CREATE INDEX later_id ON later (id)')\n"
    )
    assert prepare() == ["9999_later"]
    assert "later" in db.get_tables()
    assert ("later_id",) in db.execute_sql("SELECT idx FROM sqlite_stat1").fetchall()
    copy = Path(f"{db.database}.before-9999_later")
    assert oct(copy.stat().st_mode)[-3:] == "600"
    with closing(sqlite3.connect(copy)) as before:
        assert before.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert {"task", "later"} & {*table_names(before)} == {"task"}
    assert prepare() == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # what the fork uses is no other thread's
def test_an_upgrade_that_was_killed_is_completed_by_the_next_start(tmp_path):
    upgrade = Upgrade(tmp_path / "upgrade", versions()[0])
    assert "task title 0\x1ftask description 0" in texts(upgrade.after)  # what is searched, made again
    for statement in (1, upgrade.statements // 2, upgrade.statements):
        assert upgrade.interrupted(statement) == []


def test_an_upgrade_folds_the_searched_texts_again_and_gives_activity_the_project_of_its_time(tmp_path):
    """A client who sees the project to which a task was moved does not see what happened before."""
    path, before = tmp_path / "data" / "tasks.db", [name for name in versions() if name < "0027"][-1]
    older_database(path, before, rows=5)
    moves = [("created", {}), ("moved", {"project_id": ["B", "C"]}), ("moved", {"status": ["todo", "done"]})]
    moves += [("moved", {"project_id": ["C", "A"], "milestone_id": ["m", None]}), ("updated", {})]
    with closing(sqlite3.connect(path)) as connection, connection:
        (task,) = connection.execute("SELECT id FROM task LIMIT 1").fetchone()
        ids = [id for (id,) in connection.execute("SELECT id FROM activity ORDER BY id")]
        for id, (action, changes) in zip(ids, moves, strict=True):
            row = (action, task, json.dumps(changes), id)
            connection.execute("UPDATE activity SET action = ?, task_id = ?, changes = ? WHERE id = ?", row)
        connection.execute("UPDATE activity SET is_hidden = NULL")
        connection.execute("UPDATE task SET project_id = (SELECT id FROM project LIMIT 1)")
        connection.execute("UPDATE task SET title = 'Łódź', description = 'It’s', search = 'łodz\x1fit’s'")
        connection.execute("UPDATE comment SET content = 'Ørsted', search = 'ørsted'")
    assert upgrade(path) > 0
    with closing(sqlite3.connect(path)) as connection:
        found = [id for (id,) in connection.execute("SELECT project_id FROM activity ORDER BY id")]
        (now,) = connection.execute("SELECT project_id FROM task WHERE id = ?", [task]).fetchone()
        folded = connection.execute("SELECT DISTINCT search FROM task UNION SELECT search FROM comment")
        assert set(folded) == {("lodz\x1fit's",), ("orsted",)}
    assert found == ["B", "C", "C", now, now]


def test_each_copy_is_logged_when_it_is_made_and_the_next_start_deletes_incomplete_ones(migrations, caplog):
    (migrations / "9998_later.py").write_text("def up(migrator, db):\n    pass\n")
    (migrations / "9999_last.py").write_text("def up(migrator, db):\n    db.execute_sql('SELECT missing')\n")
    caplog.set_level("INFO", "tasks")
    path = Path(db.database)
    left = [path.with_name(f".{path.name}.before-9998_later.0a1b2c3d{end}") for end in ("", "-journal")]
    for name in ("9998_later", "9999_last"):
        left[0].touch(), left[1].touch()
        with pytest.raises(BadDatabase, match="no such column: missing"):
            prepare()
        assert caplog.messages[-1] == f"The database is copied to {path}.before-{name}"
        assert not any(file.exists() for file in left)
    assert len(caplog.messages) == 2


def test_a_database_that_an_older_server_uses_is_not_upgraded_beneath_it(server):
    older_database(server.database, versions()[0])
    before = content(server.database)
    said = f"Error: {server.database}: another server uses this database; stop it first"
    with server.database.with_name("tasks.db.serving").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as that server does
        assert refusal(server) == said
        assert (invoke(server, "init").stderr, content(server.database)) == (f"{said}\n", before)
    server.start()
    told = re.findall(r"\[INFO\] The database is (?:copied to|upgraded by) (\S+)", server.log.read_text())
    later = [step.name for step in Runner(db, str(MIGRATIONS)).migrations()][1:]
    assert told == [f"{server.database}.before-{later[0]}", *later]
    assert os.path.exists(told[0])
    assert invoke(server, "doctor").exit_code == 0


def test_a_server_makes_no_database_unless_the_first_owners_key_is_configured(server):
    (server.folder / "data").write_text("a file")  # in the way of the folder
    assert "Error: " in refusal(server)
    (server.folder / "data").unlink()
    key = server.environment.pop("TASKS_BOOTSTRAP__API_KEY")
    said = f"Error: there is no database at {server.database}; `init` makes one, `restore` puts a copy there"
    assert refusal(server) == said
    assert not server.database.parent.exists()
    server.database.parent.mkdir()
    server.database.touch()  # no workspace either: what was in it is lost
    assert refusal(server) == said
    assert server.database.stat().st_size == 0
    server.environment["TASKS_BOOTSTRAP__API_KEY"] = key
    server.start()
    assert f"[WARNING] No database at {server.database}: creating a new one" in server.log.read_text()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The folder of a server that has not run yet, with 500 tasks."""
    server = Server(tmp_path_factory.mktemp("template"))
    assert invoke(server, "init").exit_code == 0
    seeded = invoke(server, "seed", "--tasks", "500")
    assert seeded.exit_code == 0, seeded.output
    server.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    return server.folder


@pytest.fixture
def seeded(server, template):
    shutil.copytree(template, server.folder, dirs_exist_ok=True)
    return server


def lose_the_end(path):
    size = path.stat().st_size
    cut_off(path)
    os.truncate(path, size)


MALFORMED = "cannot be used: database disk image is malformed"
UNUSABLE = {cut_off: MALFORMED, lose_the_end: MALFORMED, write_text: "cannot be used: file is not a database"}
UNUSABLE |= {make_newer: "made by a newer version, which applied 9999_newer"}
UNUSABLE |= {make_another: "is the database of another program"}


@pytest.mark.parametrize(("spoil", "said"), UNUSABLE.items())
def test_a_file_that_cannot_be_used_is_refused_and_kept(seeded, spoil, said):
    spoil(seeded.database)
    before = seeded.database.read_bytes()
    done = invoke(seeded, "init")
    assert (done.exit_code, said in done.stderr) == (1, True)
    assert seeded.database.read_bytes() == before


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_file_that_may_only_be_read_is_refused_at_the_start_and_named_by_doctor(seeded, end):
    """As after a restore or copy as root; otherwise each change would get a 503."""
    with closing(sqlite3.connect(seeded.database)) as other:  # which keeps the log and its index
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE x (y)")
        other.execute("DROP TABLE x")
        file = Path(f"{seeded.database}{end}")
        file.chmod(0o444)
        seeded.first = as_no_root
        assert "Permission denied; see who owns it and its folder" in refusal(seeded)
        said = seeded.flask("doctor").stdout
        assert f"problem: {file}: the service may not write it; see who owns it\n" in said


def test_a_database_that_was_cut_off_is_refused_although_its_log_is_whole(seeded):
    """SQLite opens it, since the log says how large the database is; the statistics cannot be updated."""
    seeded.start().client().make_project()
    seeded.kill()
    cut_off(seeded.database)
    assert MALFORMED in refusal(seeded)


def test_damage_in_the_middle_is_found_by_doctor_and_by_who_reads_it(seeded):
    """The start does not read the whole file."""
    (task,) = seeded.rows("SELECT id, search FROM task ORDER BY id LIMIT 1")
    content = bytearray(seeded.database.read_bytes())
    pages = [slice(place, place + 4096) for place in range(0, len(content), 4096)]
    (page,) = (page for page in pages if all(text.encode() in content[page] for text in task.values()))
    content[page] = b"\xff" * 4096
    seeded.database.write_bytes(content)
    client = seeded.start().client()
    said = fault(client.get(f"/tasks/{task['id']}"), 503, "unavailable")
    assert said["message"] == "the database is not available at the moment"  # what failed is no write
    key = {"Authorization": f"Bearer {OWNER_KEY}"}
    figures = requests.get(f"{seeded.base}/metrics", headers=key, timeout=PATIENCE).text
    assert "tasks_unavailable_total{} 1\n" in figures
    client.make_task(client.make_project())
    said = invoke(seeded, "doctor").stdout
    assert re.search("problem: the database is damaged: .*; restore a backup", said)


@pytest.mark.parametrize("how", ["moved", "replaced"])
def test_a_server_whose_database_is_not_in_its_place_writes_nothing_more(server, how):
    project = server.start().client().make_project()
    aside = server.database.rename(server.database.with_name("aside.db"))
    if how == "replaced":
        shutil.copy(aside, server.database)
    for _ in range(20):  # each on a connection of its own, and so in time by every thread
        client = server.client()
        for answer in (client.post("/projects", {"name": "Lost"}), client.get("/health")):
            message = fault(answer, 503, "unavailable")["message"]
            assert message.startswith("the database file was moved, replaced or deleted")
            assert "Retry-After" not in answer.headers  # waiting does not help
        assert client.get("/projects").status_code in (200, 503)
    assert server.database.exists() == (how == "replaced")
    server.stop()
    aside.replace(server.database)  # beside its log
    assert [row["id"] for row in server.start().client().read("/projects")["projects"]] == [project["id"]]


def test_a_writer_that_joins_stores_nothing_in_a_moved_file(database):
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(Unavailable), models.write():
            joined = pool.submit(note, database)
            wait_until(lambda: len(write_turn._turns) == 2)
            Path(database.database).rename(f"{database.database}.aside")
        with pytest.raises(Unavailable, match="was moved"):
            joined.result()
    Path(f"{database.database}.aside").rename(database.database)
    assert database.execute_sql("SELECT * FROM event").fetchall() == []
    # Nor does the first write of a process make a file there.
    database.disconnect()
    Path(database.database).rename(f"{database.database}.aside")
    with pytest.raises(Unavailable), models.write():
        raise AssertionError
    assert not Path(database.database).exists()


def test_a_log_without_its_database_is_refused_and_kept(server):
    server.start().client().make_project()
    server.kill()
    log = server.database.with_name("tasks.db-wal")
    before = log.read_bytes()
    assert before
    server.database.rename(server.folder / "elsewhere.db")
    for how in ("missing", "empty"):
        said = refusal(server)
        assert f"tasks.db is {how}, but its log" in said
        assert "put the database back beside it" in said
        assert log.read_bytes() == before
        server.database.touch()  # as after a copy that found no room
    (server.folder / "elsewhere.db").rename(server.database)
    assert len(server.start().client().read("/projects")["projects"]) == 1


def test_the_pragmas_hold_on_every_connection(database):
    def pragmas():
        names = ("journal_mode", "synchronous", "foreign_keys")
        found = {name: db.execute_sql(f"PRAGMA {name}").fetchone()[0] for name in names}
        db.close()
        return found

    assert at_once(pragmas, pragmas) == [{"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}] * 2


def test_an_index_of_few_rows_of_a_large_table_keeps_its_statistics(database):
    """Otherwise SQLite reads all tasks of a project for those with a label, which few tasks have."""
    for name, rows in (("small", 20), ("large", 4000)):
        numbers = f"WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < {rows})"
        database.execute_sql(f"CREATE TABLE {name} AS {numbers} SELECT a FROM n")
        database.execute_sql(f"CREATE INDEX all_of_{name} ON {name} (a)")
        database.execute_sql(f"CREATE INDEX few_of_{name} ON {name} (a) WHERE a < 10")
    optimize()
    kept = database.execute_sql("SELECT idx FROM sqlite_stat1 ORDER BY 1").fetchall()
    assert kept == [("all_of_large",), ("few_of_large",)]


def test_an_event_of_a_wrong_clock_does_not_keep_later_events(database):
    with models.write():
        for month in (1, 60, 2, 3, 4):
            at = f"{2026 + month // 12}-{month % 12 + 1:02d}-01T00:00:00.000Z"
            Event.insert_row.run(id=new_id(), name="ping", body="{}", created_at=at)
        before = "2026-04-15T00:00:00.000Z"
        last = Event.last_before.value(before=before)
        assert Event.delete_unused.run(before=before, last=last, most=10) == 3
    left = db.execute_sql("SELECT created_at FROM event ORDER BY seq").fetchall()
    assert [row[0][:7] for row in left] == ["2031-01", "2026-05"]


def test_an_outage_that_a_failed_rollback_hides_is_seen():
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorname = "SQLITE_FULL"
    with pytest.raises(sqlite3.OperationalError) as raised:
        try:
            raise full
        finally:
            raise sqlite3.OperationalError("cannot rollback - no transaction is active")
    assert is_outage(raised.value)
    assert not is_outage(sqlite3.OperationalError("no such table: task"))


def note(database):
    """Write 20 kB; returns the size of the log after it."""
    with models.write():
        Event.insert_row.run(id=new_id(), name="ping", body="x" * 20_000, created_at="")
    return Path(f"{database.database}-wal").stat().st_size


def test_reads_that_overlap_do_not_let_the_log_grow_without_end(database, monkeypatch):
    monkeypatch.setattr("database.WAL_BYTES", 100_000)
    stop, reads = threading.Event(), []

    def read():
        """Begin each read before the last one ends."""
        readers = [sqlite3.connect(db.database, isolation_level=None) for _ in range(2)]
        while not stop.is_set():
            readers.reverse()
            readers[0].execute("BEGIN")
            readers[0].execute("SELECT count(*) FROM member").fetchone()
            if readers[1].in_transaction:
                readers[1].execute("COMMIT")
                reads.append(True)
        for reader in readers:
            reader.close()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            wait_until(lambda: reads)
            assert max(note(database) for _ in range(50)) < 200_000
        finally:
            stop.set()
    reading.result()


def test_a_read_that_does_not_end_holds_up_few_writes(database, monkeypatch):
    monkeypatch.setattr("database.WAL_BYTES", 100_000)
    monkeypatch.setattr(FairLock, "STALL_SECONDS", 0.4)
    note(database)
    assert note(database) < 100_000  # since the first write has emptied the log of the migrations
    with closing(sqlite3.connect(db.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM member").fetchone()
        waited = {note(database) and database._blocked_wal_bytes for _ in range(20)}
    assert 2 < len(waited) < 10  # at none, and then once for each 100 kB
    wait_until(lambda: note(database) and not database._blocked_wal_bytes)


def test_a_limit_of_reads_holds_again_after_one_within_it_unless_it_is_renewed(database):
    with db.limit(-1, steps=1):
        with db.limit(PATIENCE):
            assert Member.active_owners.one() is None
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            Member.active_owners.one()
        db.renew_limit(PATIENCE)
        assert Member.active_owners.one() is None
    assert Member.active_owners.one() is None


def test_the_lock_is_not_lost_by_who_gives_up():
    lock = FairLock()
    assert lock.acquire(1)
    assert not lock.acquire(0.01)
    lock.release()
    assert lock.acquire(0.01)
    lock.release()
    for _ in range(100):  # the turn and the end of the wait come at the same moment
        assert lock.acquire(1)
        results = at_once(lambda: lock.acquire(0.0005), lambda: time.sleep(0.0005) or lock.release())
        if results[0]:
            lock.release()
        assert lock.acquire(0)
        lock.release()
