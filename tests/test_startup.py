"""The start: one server for a database, several starts at once, and a port that is taken."""

import json
import os
import runpy
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
import requests
from forks import running
from harness import PATIENCE, ROOT, Server, at_once, invoke, wait_until
from older import older_database, versions
from test_database import refusal, refused

from database import db
from store import lock_database


def begin(server, port):
    """Start gunicorn on the server's database and this port, without a webhook."""
    return running(["gunicorn"], ROOT, server.environment | {"PORT": str(port), "TASKS_WEBHOOKS": "[]"})


def test_a_server_that_is_refused_as_the_second_one_or_for_its_port_changes_no_webhook(launch):
    server = launch(hooks=[{"name": "one", "url": "http://127.0.0.1:1/", "secret": "s"}])
    with begin(server, server.base.rpartition(":")[2]) as second:  # or it would say that the port is taken
        said = second.stderr.read()
        assert second.wait(PATIENCE) == 1
    assert said.splitlines()[-1].endswith("tasks.db: another server uses this database; stop it first")
    assert "Traceback" not in said
    server.stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with begin(server, port) as process:
            said = next(line for line in process.stderr if "in use" in line)
            process.kill()  # gunicorn tries for five seconds
    assert str(port) in said
    assert server.rows("SELECT name, state FROM webhook") == [{"name": "one", "state": "active"}]


def test_a_port_that_is_taken_is_said_before_anything_is_made(tmp_path):
    server = Server(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["make", "--silent", "-o", "install", "run", f"VENV={sys.prefix}"]
        options = {"cwd": ROOT, "env": server.environment | {"PORT": str(port), "MAKEFLAGS": ""}}
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, **options)
    said = f"port {port} is taken by another program; choose another one: PORT={port + 1} make run"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"Error: {said}"
    assert not server.database.exists()


def test_a_worker_that_outlives_its_master_keeps_its_database(launch):
    server = launch()
    copy = server.folder / "copy.db"
    assert invoke(server, "backup", copy).exit_code == 0
    (worker,) = server.children()
    os.kill(worker, signal.SIGSTOP)  # or it would notice, and end
    server.process.kill()
    server.process.wait()
    assert "another server uses this database" in refusal(server)
    assert "a server or a command uses it" in invoke(server, "restore", copy).stderr
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: invoke(server, "restore", copy).exit_code == 0)
    db.init(str(server.database))
    with closing(lock_database()):  # as every command does, without being a server
        assert server.start().client().get("/context").status_code == 200


@contextmanager
def locked(server):
    """Stop the server, and let another program hold the lock of its database for writing."""
    server.stop()
    server.log.write_text("")
    with closing(sqlite3.connect(server.database)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.long  # each command waits five seconds for the lock
def test_a_start_on_a_locked_database_serves_it_or_ends_with_one_line_if_it_has_to_write(launch):
    webhook = {"name": "one", "url": "http://127.0.0.1:1/", "secret": "s"}
    server = launch(BOUND_LOCK_SECONDS="1", hooks=[webhook])
    with locked(server):
        assert server.start().client().get("/context").status_code == 200
    changed = ([webhook, webhook | {"name": "two"}], [webhook | {"events": ["task.due"]}])
    before = server.environment["TASKS_WEBHOOKS"]
    for hooks in (*map(json.dumps, changed), before):
        if hooks == before:
            server.rows("UPDATE member SET role = 'admin'")
        server.environment["TASKS_WEBHOOKS"] = hooks
        with locked(server):
            *lines, said = refused(server)
            assert said == f"Error: {server.database} cannot be used: database is locked"
            assert all("[INFO]" in line for line in lines)
    with locked(server):
        assert server.flask("init").stderr == f"Error: {server.database}: database is locked\n"


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "older"])
def test_servers_and_commands_that_start_at_once_make_or_upgrade_one_database(tmp_path, is_new):
    database = tmp_path / "data" / "tasks.db"
    if not is_new:
        older_database(database, versions()[0])
    names = ("one", "two", "three")
    servers = [Server(tmp_path / name, TASKS_SERVER__DATABASE=str(database)) for name in names]
    for server in servers:
        server.folder.mkdir()
    *_, done, other = at_once(*[server.start for server in servers], *[lambda: servers[0].flask("init")] * 2)
    assert (done.returncode, other.returncode) == (0, 0), done.stderr + other.stderr
    wait_until(lambda: [server.process.poll() for server in servers].count(None) == 1)
    (serving,) = (server for server in servers if server.process.poll() is None)
    servers.remove(serving)
    for server in servers:
        assert server.process.wait(PATIENCE) == 1
        (said,) = [line for line in server.log.read_text().splitlines() if "Error" in line]
        assert said.endswith("tasks.db: another server uses this database; stop it first")
    assert serving.stop() == 0
    copies = [path.name for path in database.parent.glob("tasks.db.before-*")]
    owners = invoke(servers[0], "member", "list").stdout.count("owner@example.com")
    assert (len(copies), owners) == ((0, 1) if is_new else (1, 0))


def test_a_start_warns_when_links_name_another_port(launch):
    behind_proxies = ("https://127.0.0.1:8443", "http://tasks.example.com")
    for base_url, warns in {"http://127.0.0.1:8000": True, **dict.fromkeys(behind_proxies, False)}.items():
        server = launch("-b", "127.0.0.1:0", TASKS_SERVER__BASE_URL=base_url)
        warning = f"[WARNING] Links will begin with {base_url}: set server.base_url to the server's address"
        assert (warning in server.log.read_text()) == warns


UNUSED = """
import app
app.api.before_request(lambda: None)
app.api.after_app_request(print)
app.api.app_errorhandler(404)(repr)
app.api.get("/plain")(str)
app.api.get("/other")(app.operation(gives=app.schemas.MemberShown())(len))
app.create_app()
"""


def execute(code, folder):
    options = {"cwd": ROOT, "env": Server(folder).environment, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, "-c", code], **options)


def test_a_wrong_declaration_ends_the_start_with_one_line(tmp_path):
    done = execute(UNUSED, tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(
        "Error: before_request never calls <lambda>; after_request never calls print; errorhandler never"
        " calls repr; api.str has no @operation; api.len needs a docstring, and its path /api/v1/other"
        " an entry in TAGS or TAG_OF of openapi.py (docs/recipes.md) (docs/internals.md"
    )


def test_another_gunicorn_than_the_tested_one_ends_the_start(monkeypatch):
    monkeypatch.setattr("gunicorn.__version__", "26.1")
    monkeypatch.delitem(sys.modules, "server", raising=False)
    with pytest.raises(SystemExit, match="Error: .*26.1"):
        runpy.run_path(ROOT / "gunicorn.conf.py")


FORGETFUL = """
import app, io, sys, wire

@app.api.get("/members/<id>/name")
@app.operation(gives=app.schemas.MemberShown, role=None)
def get_name(id):
    "Return nothing."

environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/api/v1/members/x/name", "wsgi.input": io.BytesIO()}
environ |= {"wsgi.url_scheme": "http", "SERVER_NAME": "x", "SERVER_PORT": "80"}
b"".join(app.create_app()(environ, lambda status, headers: print(status)))
"""


def test_a_view_that_forgets_what_it_returns_is_a_bug(tmp_path):
    done = execute(FORGETFUL, tmp_path)
    assert "500 Internal Server Error" in done.stdout, done.stderr
    assert "get_name returns nothing" in done.stderr


def test_another_server_than_gunicorn_logs_that_errands_do_not_run(tmp_path):
    words = ["flask", "--app", "app", "run", "--port", "0"]
    with running(words, ROOT, Server(tmp_path).environment) as other:
        base = next(line for line in other.stderr if "Running on" in line).split()[-1]
        assert requests.get(f"{base}/api/v1/health", timeout=PATIENCE).status_code in (200, 503)
        other.terminate()
        assert "Serve with gunicorn.conf.py: without it no claim ends" in other.stderr.read()
