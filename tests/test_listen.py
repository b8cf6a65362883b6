"""The command that posts the events of a service to a program on a laptop."""

import os
import shlex
import signal
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from forks import running
from harness import OWNER_KEY, PATIENCE, ROOT
from standardwebhooks import Webhook
from test_readme import WEBHOOKS, block
from test_throwaway import begun, cause, client


@pytest.fixture
def listen(receiver, tmp_path):
    """Run the command, without a database or a configuration, until its secret is printed."""

    @contextmanager
    def run(url, *words, key=OWNER_KEY):
        words = ["flask", "--app", ROOT / "app", "listen", "--forward-to", receiver.url, *words]
        given = {"TASKS_URL": url, "TASKS_KEY": key, "TASKS_SERVER__DATABASE": str(tmp_path / "no.db")}
        given["NETRC"] = str(tmp_path / "netrc")  # which has no say in the key
        (tmp_path / "netrc").write_text("default login ftp password guest\n")
        environment = {name: text for name, text in os.environ.items() if not name.startswith("TASKS_")}
        with running(words, tmp_path, environment | given) as process:
            process.secret = process.stdout.readline().removeprefix("Secret: ").strip()
            yield process
        assert list(tmp_path.glob("no.db*")) == []

    return run


def end(process):
    """Press Ctrl-C; returns what was printed since."""
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.stdout.read(), process.stderr.read()
    assert (process.wait(PATIENCE), stderr) == (0, "")
    return stdout.splitlines()


def title(call):
    return call.event["data"]["task"]["title"]


def test_events_arrive_as_a_webhook_gets_them_and_answers_are_shown_until_ctrl_c(launch, listen, receiver):
    server = launch()
    owner = server.client()
    project = owner.make_project()
    owner.make_task(project, title="Before")
    shown = shlex.split(block("console", "listen", WEBHOOKS).replace("10:00", "00:00"))
    words = shown[shown.index("http://localhost:9000/webhook") + 1 :]
    with listen(server.base, *words) as process:
        assert title(receiver.next()) == "Before"
        assert process.stdout.readline().endswith(": answered 200\n")
        receiver.answers = [500]
        task = owner.make_task(project, title="Ünï")
        call = receiver.next()
        body = owner.read("/events", limit=100)["events"][-1]
        assert call.event == body == Webhook(process.secret.encode()).verify(call.body, call.headers)
        assert call.headers["x-service-event"] == "task.created"
        assert process.stdout.readline().split()[1:] == ["task.created", f"{body['id']}:", "answered", "500"]
        owner.post(f"/tasks/{task['id']}/comments", {"content": "Hm"})
        receiver.down()
        owner.delete(f"/tasks/{task['id']}")
        last = process.stdout.readline()
        assert "task.deleted" in last and "refused" in last
        assert end(process) == []
    with listen(server.base) as again:
        assert again.secret == process.secret
        assert end(again) == []


def test_events_around_a_restart_arrive(launch, listen, receiver):
    server = launch()
    project = server.client().make_project()
    with listen(url := server.base):
        server.stop()
        server.start()  # elsewhere
        server.client().make_task(project, title="Meanwhile")
        server.stop()
        server.port = urlsplit(url).port
        server.start()
        server.client().make_task(project, title="Afterwards")
        assert [title(receiver.next()) for _ in range(2)] == ["Meanwhile", "Afterwards"]


def test_a_service_that_is_busy_or_breaks_off_is_asked_again(tmp_path, listen, receiver):
    with begun(tmp_path) as service:
        owner = client(service.stdout.readline())
        project = owner.make_project()
        with listen(owner.base.removesuffix("/api/v1"), key=owner.key):
            for fault in ({"status": 503}, {"status": 429}, {"drop": "before"}):
                cause(owner, match="GET /api/v1/events", **fault)
            for name in ("One", "Two"):
                owner.make_task(project, title=name)
                assert title(receiver.next()) == name


def test_listening_starts_with_new_events_by_default(server, owner, project, listen, receiver):
    owner.make_task(project, title="Before")
    for since in ((), ("--since", "2999-01-01")):
        with listen(server.base, *since):
            owner.make_task(project, title="After")
            assert title(receiver.next()) == "After"


def test_a_wrong_address_or_key_is_one_line_of_listen(server, listen):
    for path, key, said in (
        ("", "wrong", "Error: the API key does not exist"),
        ("/board", OWNER_KEY, "/board is not the address of a task service"),
        (":1", OWNER_KEY, "Error: Failed to parse"),
    ):
        with listen(server.base + path, key=key) as process:
            stdout, stderr = process.stdout.read(), process.stderr.read()
        assert (process.wait(PATIENCE), stdout, stderr.count("\n")) == (1, "", 1)
        assert said in stderr
