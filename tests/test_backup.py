"""Copies of the database, made while it is in use, and put back when it is not."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from damage import delete, empty, make_another, make_newer, overwrite_the_middle, write_text
from forks import as_no_root, running
from harness import PATIENCE, ROOT, Server, invoke, wait_until
from test_database import refusal

from database import db
from store import lock_database


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory):
    """The folder of a server that has been stopped, with a backup."""
    server = Server(tmp_path_factory.mktemp("backed-up"))
    server.start().client().make_project(name="Kept")
    assert invoke(server, "backup", server.folder / "backup.db").exit_code == 0
    server.client().make_project(name="Later")
    server.stop()
    return server.folder


@pytest.fixture
def copy(server, backed_up):
    """A backup of a workspace with one project, whose server has been stopped."""
    shutil.copytree(backed_up, server.folder, dirs_exist_ok=True)
    return server.folder / "backup.db"


def names(path):
    with closing(sqlite3.connect(path)) as database:
        return {name for (name,) in database.execute("SELECT name FROM project")}


def restore(server, copy):
    done = invoke(server, "restore", copy)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refused(done, said):
    code = done.returncode if hasattr(done, "returncode") else done.exit_code
    assert (code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr


def test_a_backup_overwrites_nothing_and_says_in_a_line_where_it_cannot_be(server, copy):
    """As in a folder that may not be entered, which root may."""
    for path, said in (
        *((copy, "exists"), (server.database, "exists"), (server.folder / ("x" * 300), "File name too long")),
        (server.folder / "nowhere" / "copy", "No such file or directory"),
    ):
        refused(invoke(server, "backup", path), said)
    assert (names(copy), names(server.database)) == ({"Kept"}, {"Kept", "Later"})
    folder = server.folder / "locked"
    folder.mkdir(0o600)
    server.first = as_no_root
    refused(server.flask("backup", folder / "copy.db"), f"{folder / 'copy.db'}: Permission denied")


def test_a_database_that_is_gone_or_damaged_is_replaced_too_by_a_backup_of_any_name(server, copy):
    copy = copy.rename(server.database.with_name("tasks.db.restored"))
    for spoil in (delete, overwrite_the_middle):
        spoil(server.database)
        restore(server, copy)
        assert names(copy) == names(server.database) == {"Kept"}
        assert "in order" in invoke(server, "doctor").stdout


def test_a_backup_of_an_older_version_is_upgraded_at_the_next_start(server, copy):
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute("DROP TABLE stored_answer")
        database.execute("DELETE FROM schema_migration WHERE name LIKE '0002%'")
    restore(server, copy)
    server.start().client().make("/projects", {"name": "x"}, headers={"Idempotency-Key": "k"})
    assert server.database.with_name("tasks.db.before-0002_stored_answers").exists()


def test_an_unusable_backup_is_refused_and_none_is_made_of_a_damaged_database(server, copy):
    whole = copy.read_bytes()
    refusals = {overwrite_the_middle: "", write_text: "not a database", empty: "is empty"}
    refusals |= {make_another: "the database of another program", make_newer: "made by a newer version"}
    for spoil, said in refusals.items():
        copy.write_bytes(whole)
        spoil(copy)
        done = invoke(server, "restore", copy)
        refused(done, said)
        assert str(copy) in done.stderr and copy.exists()
        assert names(server.database) == {"Kept", "Later"}
        left = {file.name.removeprefix("tasks.db") for file in server.database.parent.iterdir()}
        assert left <= {"", "-wal", "-shm", ".server", ".serving", ".sender"}
    before = {*server.folder.iterdir()}
    overwrite_the_middle(server.database)
    refused(invoke(server, "backup", server.folder / "new.db"), str(server.database))
    assert {*server.folder.iterdir()} == before


def test_restore_puts_a_backup_where_a_link_leads_and_keeps_the_old_database(server, copy):
    real = server.folder / "elsewhere" / "tasks.db"
    shutil.move(server.database.parent, real.parent)
    server.database.parent.mkdir()
    server.database.symlink_to(real)
    said = restore(server, copy)
    (aside,) = real.parent.glob("tasks.db.before-restore-*")
    assert str(aside) in said
    assert (server.database.readlink(), real.stat().st_mode & 0o777) == (real, 0o600)
    client = server.start().client()  # with the key of before
    assert {project["name"] for project in client.read("/projects")["projects"]} == {"Kept"}
    client.make_project(name="After")
    assert names(aside) == {"Kept", "Later"}
    assert list(server.database.parent.iterdir()) == [server.database]


def test_restore_refuses_special_files_and_a_database_in_use(server, copy):
    pipe = server.folder / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/null"):
        refused(invoke(server, "restore", path), f"{path} is not a regular file")
    for path, said in ((server.folder, "is a directory"), (server.folder / "nowhere", "does not exist")):
        done = invoke(server, "restore", path)
        assert (done.exit_code, said in done.stderr) == (2, True)
    with closing(sqlite3.connect(server.database)) as database:
        database.execute("SELECT count(*) FROM project").fetchone()
        refused(invoke(server, "restore", copy), "is in use")
    db.init(str(server.database))
    with closing(lock_database()):  # as servers and commands lock it
        refused(invoke(server, "restore", copy), "a server or a command uses it; stop it first")
    assert names(server.database) == {"Kept", "Later"}


def test_no_server_starts_and_no_command_runs_while_a_backup_is_restored(server, copy):
    db.init(str(server.database))
    with closing(lock_database(alone=True)):
        refused(invoke(server, "member", "list"), "a backup is being restored")
        assert "a backup is being restored" in refusal(server)


def test_a_log_whose_database_is_gone_is_not_applied_to_the_backup(server, copy):
    server.start().client().make_project(name="Lost")
    server.kill()
    assert server.database.with_name("tasks.db-wal").stat().st_size > 0
    server.database.rename(server.folder / "broken.db")
    restore(server, copy)
    assert names(server.database) == {"Kept"}
    assert len(list(server.database.parent.glob("tasks.db.before-restore-*-wal"))) == 1


def test_a_backup_that_is_ended_leaves_nothing_behind(server):
    invoke(server, "init")
    server.rows("CREATE TABLE much AS SELECT zeroblob(20000000)")
    folder = server.folder / "backups"
    folder.mkdir()
    words = ["flask", "--app", "app", "backup", folder / "copy.db"]
    with running(words, ROOT, server.environment) as process:
        wait_until(lambda: any(folder.iterdir()) or process.poll() is not None)
        process.terminate()
        assert process.wait(PATIENCE) in (0, 143)  # it may have been done already
    assert {file.name for file in folder.iterdir()} <= {"copy.db"}
