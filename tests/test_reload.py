"""SIGHUP and dying workers: what serves is always the last configuration that was in order."""

import json
import os
import re
import signal

import pytest
from harness import Server, hook, wait_until


@pytest.fixture
def place(tmp_path):
    """Start a server that reads this configuration."""

    def make(text, **environment):
        path = tmp_path / "config.toml"
        path.write_text(text)
        server = Server(tmp_path, TASKS_CONFIG=str(path), **environment)
        server.config = path
        servers.append(server)
        return server.start()

    servers = []
    yield make
    for server in servers:
        server.stop()


def reload(server, text):
    """Let it read this configuration, and wait until its workers are new ones."""
    before = server.children()
    server.config.write_text(text)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.children() and not set(before) & set(server.children()))


def workspace(server):
    client = server.client()
    return client.data(client.get("/context"))["system"]["workspace_name"]


GOOD = '[workspace]\nname = "One"\n'
NEW = '[workspace]\nname = "Two"\n'
HOOK = '[[webhooks]]\nurl = "http://127.0.0.1:1/"\nname = "r"\n'
BAD = {
    "TOML": ("[workspace", "Expected ']'"),
    "a key": (NEW + "nonsense = 1", "nonsense is not accepted"),
    "a secret": (NEW + HOOK + 'secret = "$NOT_SET"', "NOT_SET: the environment variable is not set"),
    "certificates": (NEW + '[delivery]\nca_file = "missing.pem"', "delivery.ca_file"),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_a_reload_of_a_bad_configuration_is_one_line_and_changes_nothing(place, text, words):
    server = place(GOOD)
    reload(server, text)
    (line,) = [line for line in server.log.read_text().splitlines() if "Nothing is reloaded" in line]
    assert "[ERROR] Nothing is reloaded. Error: " in line
    assert words in line
    assert workspace(server) == "One"
    reload(server, NEW)
    assert workspace(server) == "Two"


def test_a_reload_with_a_database_that_cannot_be_used_goes_on_with_the_old_one(place, tmp_path):
    server = place(GOOD)
    del server.environment["TASKS_SERVER__DATABASE"]
    server.stop()
    server.config.write_text(GOOD + '[server]\ndatabase = "one.db"\n')
    server.start()
    project = server.client().make_project()
    (tmp_path / "two.db").write_text("This is no database. " * 1000)
    reload(server, NEW + '[server]\ndatabase = "two.db"\n')
    (line,) = [line for line in server.log.read_text().splitlines() if "Nothing is reloaded" in line]
    assert "two.db" in line
    client = server.client()
    assert client.get(f"/projects/{project['id']}").status_code == 200
    assert workspace(server) == "One"
    client.make_project()
    server.environment["TASKS_SERVER__DATABASE"] = str(tmp_path / "one.db")
    restored = server.flask("restore", str(tmp_path / "one.db"))
    assert "a server or a command uses it" in restored.stderr


def test_a_reload_makes_no_database_unless_the_first_owners_key_is_configured(place, tmp_path):
    server = place(GOOD)
    server.stop()
    del server.environment["TASKS_BOOTSTRAP__API_KEY"], server.environment["TASKS_SERVER__DATABASE"]
    server.config.write_text(GOOD + f'[server]\ndatabase = "{server.database}"\n')
    server.start()
    reload(server, NEW + '[server]\ndatabase = "two.db"\n')
    (line,) = [line for line in server.log.read_text().splitlines() if "Nothing is reloaded" in line]
    assert f"Error: there is no database at {tmp_path / 'two.db'}; `init` makes one" in line
    assert not (tmp_path / "two.db").exists()
    assert workspace(server) == "One"


def test_webhooks_are_sent_after_a_bad_reload_as_before(place, receiver):
    server = place(GOOD, TASKS_WEBHOOKS=json.dumps([hook(receiver, events=["task.created"])]))
    reload(server, "[")
    client = server.client()
    client.make_task(client.make_project())
    assert receiver.next().event["event"] == "task.created"


def test_a_worker_that_dies_beside_a_bad_configuration_is_replaced_by_one_that_serves(place):
    server = place(GOOD)
    server.config.write_text("[workspace")
    for _ in range(2):
        before = server.children()
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda before=before: server.children() not in ([], before))
        assert workspace(server) == "One"
    assert len(re.findall("Booting worker", server.log.read_text())) == 3
