"""The start: one server for a database, several starts at once, a port that is taken, after a crash."""

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from harness import BIN, PATIENCE, ROOT, Server, at_once, hook, wait_until
from upgrades import older_database, versions


def states(server):
    listed = server.client().data(server.client().get("/webhooks"))["webhooks"]
    return {webhook["name"]: webhook["state"] for webhook in listed}


def start_in_vain(server, port, **settings):
    """Start gunicorn on this port; returns what it says before it ends."""
    environment = server.environment | settings | {"PORT": str(port)}
    command = [BIN / "gunicorn"]  # which tries for five seconds to get the port
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    return done.stderr


def start_together(folder, database, *calls):
    """Start three servers on one database beside these calls; returns the servers and the calls' results."""
    made = [Server(folder / name) for name in ("one", "two", "three")]
    for server in made:
        server.folder.mkdir()
        server.environment["TASKS_SERVER__DATABASE"] = str(database)
    return at_once(*[server.start for server in made], *calls)


def the_one_that_serves(servers):
    """Of servers that started at once, one serves, and each other one ends with one line."""
    (serving,) = (server for server in servers if server.process.poll() is None)
    for server in servers:
        if server is not serving:
            assert server.process.wait(PATIENCE) == 1
            (said,) = [line for line in server.log.read_text().splitlines() if "Error" in line]
            assert said.endswith("tasks.db: another server uses this database; stop it first")
    return serving


def test_a_second_server_is_refused_before_it_binds_a_port(launch, receiver):
    server = launch(TASKS_WEBHOOKS=json.dumps([hook(receiver, name="one")]))
    port = server.base.rpartition(":")[2]
    said = start_in_vain(server, port, TASKS_WEBHOOKS="[]")  # else it would say that the port is taken
    assert said.splitlines()[-1].endswith("tasks.db: another server uses this database; stop it first")
    assert "Traceback" not in said
    assert states(server) == {"one": "active"}
    client = server.client()
    client.make_task(client.make_project())
    assert receiver.next().event["event"] == "task.created"


def test_a_start_on_a_port_that_is_taken_changes_no_webhook(launch, receiver):
    server = launch(TASKS_WEBHOOKS=json.dumps([hook(receiver, name="one")]))
    server.stop()
    port = launch().base.rpartition(":")[2]
    assert "Address already in use" in start_in_vain(server, port, TASKS_WEBHOOKS="[]")
    assert server.rows("SELECT name, state FROM webhook") == [{"name": "one", "state": "active"}]


def test_a_start_does_not_take_a_command_for_another_server(launch, receiver):
    settings = {"TASKS_WEBHOOKS": json.dumps([hook(receiver, name="one")])}
    server = launch(**settings)
    server.stop()
    let_go = threading.Event()
    receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
    command = threading.Thread(target=server.flask, args=("webhook", "test", "one"), kwargs=settings)
    command.start()
    receiver.next()
    try:
        assert states(launch(folder=server.folder)) == {"one": "disabled"}
    finally:
        let_go.set()
        command.join()


def test_a_worker_that_outlives_its_master_keeps_other_servers_away(launch):
    server = launch()
    (worker,) = server.children()
    os.kill(worker, signal.SIGSTOP)  # or else it would notice, and end
    server.process.kill()
    server.process.wait()
    server.start()
    assert server.process.wait(PATIENCE) == 1
    server.process = None
    assert "another server uses this database" in server.log.read_text().splitlines()[-1]
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{worker}").exists())
    assert server.start().client().get("/context").status_code == 200


def test_servers_and_commands_that_start_at_once_make_one_database(tmp_path):
    database = tmp_path / "new" / "tasks.db"
    init = Server(tmp_path, TASKS_SERVER__DATABASE=str(database))
    *servers, code, other_code = start_together(
        tmp_path, database, *[lambda: init.flask("init").returncode] * 2
    )
    serving = the_one_that_serves(servers)
    assert (code, other_code) == (0, 0)
    client = serving.client()
    assert len(client.data(client.get("/members"))["members"]) == 1
    assert serving.stop() == 0


def test_servers_and_commands_that_start_at_once_upgrade_an_older_database_once(tmp_path):
    database = tmp_path / "older" / "tasks.db"
    older_database(database, versions()[0])
    init = Server(tmp_path, TASKS_SERVER__DATABASE=str(database))
    *servers, done = start_together(tmp_path, database, lambda: init.flask("init"))
    assert the_one_that_serves(servers).stop() == 0
    assert done.returncode == 0, done.stderr
    assert len(list(database.parent.glob("tasks.db.before-*"))) == 1


def test_what_was_being_sent_at_a_crash_is_sent_at_the_start_before_what_comes_later(launch, new_receiver):
    receiver = new_receiver().up()
    let_go = threading.Event()
    receiver.answer = lambda call: let_go.wait(PATIENCE) and 200
    environment = {
        "TASKS_WEBHOOKS": json.dumps([hook(receiver, events=["task.created"])]),
        "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "60",
    }
    server = launch(**environment)
    project = server.client().make_project()

    def make():
        with pytest.raises(OSError):
            server.client().make_task(project, title="earlier")

    making = threading.Thread(target=make)
    making.start()
    assert receiver.next().event["data"]["task"]["title"] == "earlier"
    server.kill()
    making.join()
    receiver.answer = lambda call: 200
    let_go.set()
    server.start()
    server.client().make_task(project, title="later")
    sent = [receiver.next().event["data"]["task"]["title"] for _ in range(2)]
    assert sent == ["earlier", "later"]
