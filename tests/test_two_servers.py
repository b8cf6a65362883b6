"""Several starts on one database: at once, with other webhooks, on a port that is taken, after a crash."""

import json
import signal
import subprocess
import threading

import pytest
from harness import BIN, PATIENCE, ROOT, Server, at_once, hook, wait_until
from upgrades import older_database, versions


def hooks(*receivers):
    return json.dumps([hook(receiver, name=name) for name, receiver in receivers])


def states(server):
    listed = server.client().data(server.client().get("/webhooks"))["webhooks"]
    return {webhook["name"]: webhook["state"] for webhook in listed}


def health(server):
    return server.client().data(server.client().get("/health"))["checks"]["webhooks"]


def test_a_start_on_a_port_that_is_taken_changes_no_webhook(launch, receiver):
    server = launch(TASKS_WEBHOOKS=hooks(("one", receiver)))
    port = server.base.rpartition(":")[2]
    environment = {**server.environment, "TASKS_WEBHOOKS": "[]", "PORT": port}
    second = subprocess.run(
        [BIN / "gunicorn"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert second.returncode == 1
    assert "Address already in use" in second.stderr
    assert states(server) == {"one": "active"}
    server.client().make_project()
    server.client().make_task(server.client().make_project())
    assert receiver.next().event["event"] == "task.created"


def test_a_second_server_with_other_webhooks_leaves_those_of_the_first_alone(launch, new_receiver):
    one, other = new_receiver().up(), new_receiver().up()
    first = launch(TASKS_WEBHOOKS=hooks(("one", one)))
    second = launch(folder=first.folder, TASKS_WEBHOOKS=hooks(("other", other)))
    assert states(first) == {"one": "active", "other": "active"}
    project = first.client().make_project()
    made = [server.client().make_task(project)["id"] for server in (first, second, first, second)]
    for receiver in (one, other):  # whichever server made the event, the receiver's own one sends it
        assert sorted(receiver.next().event["data"]["task"]["id"] for _ in made) == sorted(made)
    second.stop()
    first.process.send_signal(signal.SIGHUP)  # alone again, it disables what it does not know
    wait_until(lambda: states(first) == {"one": "active", "other": "disabled"})


def test_a_start_does_not_take_a_command_for_another_server(launch, receiver):
    settings = {"TASKS_WEBHOOKS": hooks(("one", receiver))}
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


def test_a_receiver_that_nobody_here_knows_fails_in_health_while_something_waits_for_it(launch, new_receiver):
    first = launch(TASKS_WEBHOOKS=hooks(("one", new_receiver())))
    second = launch(folder=first.folder)
    assert health(second)["failing_endpoints"] == 0
    first.stop()
    second.client().make_task(second.client().make_project())
    assert health(second) == {"pending": 1, "failing_endpoints": 1}


def test_servers_and_commands_that_start_at_once_make_one_database(tmp_path):
    made = [Server(tmp_path / name) for name in ("one", "two", "three")]
    for server in made:
        server.folder.mkdir()
        server.environment["TASKS_SERVER__DATABASE"] = str(tmp_path / "new" / "tasks.db")
    inits = [lambda: made[0].flask("init").returncode] * 5
    _, _, _, *codes = at_once(*[server.start for server in made], *inits)
    try:
        assert codes == [0] * 5
        for server in made:
            client = server.client()
            assert len(client.data(client.get("/members"))["members"]) == 1
    finally:
        assert [server.stop() for server in made] == [0, 0, 0]


def test_servers_that_start_at_once_upgrade_an_older_database_once(tmp_path):
    made = [Server(tmp_path / name) for name in ("one", "two", "three")]
    path = tmp_path / "older" / "tasks.db"
    older_database(path, versions()[0])
    for server in made:
        server.folder.mkdir()
        server.environment["TASKS_SERVER__DATABASE"] = str(path)
    at_once(*[server.start for server in made])
    assert [server.stop() for server in made] == [0, 0, 0]
    assert len(list(path.parent.glob("tasks.db.before-*"))) == 1


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
