"""SIGHUP and dying workers: what serves is always the last configuration that was in order."""

import os
import re
import signal

import pytest
from harness import Server, hook, invoke

GOOD = '[server]\ndatabase = "one.db"\n[workspace]\nname = "One"\n'
NEW = GOOD.replace('"One"', '"Two"')
BAD = {
    "TOML": ("[workspace", "Expected ']'"),
    "a key": (NEW + "nonsense = 1", "nonsense is not accepted"),
    "a secret": (NEW + '[bootstrap]\napi_key = "$NOT_SET"', "NOT_SET: the environment variable is not set"),
    "certificates": (NEW + '[delivery]\nca_file = "missing.pem"', "delivery.ca_file"),
    "another database": (NEW.replace("one.db", "two.db"), "server.database: a reload cannot change it"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory, shared_receiver):
    """A server that reads a file for all but its webhook."""
    server = Server(tmp_path_factory.mktemp("reload"), hooks=[hook(shared_receiver)])
    server.config, server.database = server.folder / "config.toml", server.folder / "one.db"
    server.config.write_text(GOOD)
    server.environment["TASKS_CONFIG"] = str(server.config)
    del server.environment["TASKS_SERVER__DATABASE"]
    assert invoke(server, "init").exit_code == 0
    del server.environment["TASKS_BOOTSTRAP__API_KEY"]
    yield server.start()
    assert server.stop() == 0


def reload(server, text):
    """Let it read this configuration, and wait until its workers are new ones."""
    server.config.write_text(text)
    with server.replacing():
        server.process.send_signal(signal.SIGHUP)


def workspace(server):
    return server.client().read("/context")["system"]["workspace_name"]


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_a_reload_of_a_bad_configuration_is_one_line_and_no_change(server, shared_receiver, text, words):
    before = len(server.log.read_text())
    reload(server, text)
    (line,) = re.findall(r"\[ERROR\] Nothing is reloaded\. (.*)", server.log.read_text()[before:])
    assert line.startswith("Error: ")
    assert words in line
    assert workspace(server) == "One"
    project = server.client().make_project()
    server.client().make_task(project)
    assert shared_receiver.next().event["data"]["task"]["project_id"] == project["id"]
    server.config.write_text(GOOD)  # which the command reads, too
    restored = invoke(server, "restore", server.database, TASKS_SERVER__DATABASE=str(server.database))
    assert "a server or a command uses it" in restored.stderr
    assert not (server.folder / "two.db").exists()


def test_after_a_bad_reload_a_good_one_is_applied(server):
    reload(server, "[")
    before = len(server.log.read_text())
    reload(server, NEW)
    said = "[INFO] The configuration and its secrets have been read again.\n"
    assert server.log.read_text()[before:].count(said) == 1
    assert workspace(server) == "Two"
    reload(server, GOOD)
    assert workspace(server) == "One"


def test_a_worker_that_dies_beside_a_bad_configuration_is_replaced_by_one_that_serves(server):
    server.config.write_text("[workspace")
    for _ in range(2):
        with server.replacing():
            os.kill(*server.children(), signal.SIGKILL)
        assert workspace(server) == "One"
