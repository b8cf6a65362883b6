"""The command that serves a workspace to throw away: alone, beside a program, and however it is ended."""

import json
import os
import re
import signal
import subprocess
from contextlib import contextmanager

import pytest
import requests
from harness import BIN, OWNER_KEY, PATIENCE, ROOT, Client, wait_until

FLASK = [BIN / "flask", "--app", ROOT / "app", "throwaway"]
# Under nohup the tests' programs ignore it, as they should.
HANGUP = signal.SIGHUP if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else signal.SIGTERM
# A handler would not run for a signal that comes just before a system call that waits.
AWAIT = """
import signal

def wait(number):
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    print("ready", flush=True)
    signal.sigwait([number])

"""
ASK = """
import os, sys
from urllib.request import ProxyHandler, Request, build_opener

def ask(path):
    headers = {"Authorization": f"Bearer {os.environ['TASKS_KEY']}"}
    request = Request(f"{os.environ['TASKS_URL']}/api/v1{path}", headers=headers)
    return build_opener(ProxyHandler({})).open(request).read().decode()

"""


@pytest.fixture
def environment(tmp_path):
    """An environment without settings, in which temporary folders are made in one of the test's."""
    (tmp_path / "temporary").mkdir()
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TASKS_")}
    return kept | {"TMPDIR": str(tmp_path / "temporary"), "TASKS_CONFIG": os.devnull}


@pytest.fixture
def begin(environment, tmp_path):
    """Start the command; whatever the test does, it is ended."""

    @contextmanager
    def begin(*words, **settings):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        options = {"cwd": tmp_path, "env": environment | settings, "process_group": 0, "text": True}
        log = [] if "--log" in words else ["--log", os.devnull]
        with subprocess.Popen([*FLASK, *log, *words], **pipes, **options) as process:
            try:
                yield process
            finally:
                process.terminate()

    return begin


@pytest.fixture
def run(begin, environment):
    """Run the command to its end; its folder must be gone then."""

    def run(*words, **settings):
        with begin(*words, **settings) as process:
            stdout, stderr = process.communicate(timeout=PATIENCE)
        assert left_over(environment) == []
        return process.returncode, stdout, stderr

    return run


def left_over(environment):
    return os.listdir(environment["TMPDIR"])


def told(line):
    """The address and the key in the line that the command prints."""
    values = dict(word.split("=", 1) for word in line.split())
    assert list(values) == ["TASKS_URL", "TASKS_KEY"]
    return values["TASKS_URL"], values["TASKS_KEY"]


def client(line):
    url, key = told(line)
    return Client(f"{url}/api/v1", key)


def is_refused(url):
    """Whether nobody listens there any more."""
    try:
        requests.get(url, timeout=PATIENCE)
    except requests.ConnectionError:
        return True
    return False


def test_two_are_two_workspaces_with_the_environments_settings_and_leave_nothing_after_a_signal(
    begin, environment, tmp_path
):
    (tmp_path / "config.toml").write_text('[workspace]\nname = "Of the file"\n')
    settings = {
        "TASKS_CONFIG": str(tmp_path / "config.toml"),
        "TASKS_SERVER__DATABASE": str(tmp_path / "own.db"),
        "TASKS_LIMITS__REQUESTS_PER_MINUTE": "2",
        "TASKS_BOOTSTRAP__API_KEY": "$MY_KEY",
    }
    with begin("--seed", "7", **settings, MY_KEY=OWNER_KEY) as one, begin() as other:
        lines = [process.stdout.readline() for process in (one, other)]
        first, second = map(client, lines)
        assert first.key == OWNER_KEY
        assert first.data(first.get("/context"))["system"]["workspace_name"] == "Workspace"
        assert first.data(first.get("/tasks"))["pagination"]["total"] == 200
        assert first.get("/me").status_code == 429
        assert second.data(second.get("/tasks"))["tasks"] == []
        assert Client(second.base, first.key).get("/me").status_code == 401
        link = re.fullmatch(r"Sign in with this link, .*:  (http://\S+)\n", one.stdout.readline())[1]
        assert requests.get(link, timeout=PATIENCE).status_code == 200
        first.session.close()  # gunicorn waits a little for connections that are kept alive
        one.send_signal(signal.SIGINT)
        assert one.wait(PATIENCE) == 0
        assert one.stdout.read() == ""
        assert is_refused(told(lines[0])[0])
        second.make_project()
        (folder,) = left_over(environment)
        assert "tasks.db" in os.listdir(f"{environment['TMPDIR']}/{folder}")
        second.session.close()
        other.send_signal(HANGUP)
        assert other.wait(PATIENCE) == 0
    assert left_over(environment) == []
    assert not (tmp_path / "own.db").exists()


def test_a_program_gets_address_and_key_and_may_use_the_command_line(run, tmp_path):
    create = f'"{BIN}/flask" --app "{ROOT}/app" project create Shop >&2'
    script = f'echo "$PORT $WEB_CONCURRENCY"; {create}; "{BIN}/python" -c "$ASK"; kill -9 $$'
    variables = {"PORT": "1", "WEB_CONCURRENCY": "2", "ASK": ASK + "print(ask('/projects'))"}
    code, stdout, stderr = run("--log", "server.log", "--", "sh", "-c", script, **variables)
    assert code == 128 + signal.SIGKILL, stderr
    ports, projects = stdout.splitlines()
    assert ports == "1 2"
    assert [project["name"] for project in json.loads(projects)["data"]["projects"]] == ["Shop"]
    assert "GET /api/v1/projects 200" in (tmp_path / "server.log").read_text()


def test_a_program_decides_what_it_does_at_ctrl_c_and_sigterm_and_has_its_server_then(begin, environment):
    """A terminal sends SIGINT to all processes of the group."""
    code = AWAIT + ASK + "wait(signal.SIGINT)\nprint(ask('/health'))\nwait(signal.SIGTERM)\nsys.exit(9)"
    with begin("--", BIN / "python", "-c", code) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert json.loads(process.stdout.readline())["data"]["status"] == "ok"
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(PATIENCE) == 9
    assert left_over(environment) == []


def test_a_signal_before_the_server_answers_ends_it_too(begin, environment):
    with begin() as process:
        wait_until(lambda: left_over(environment))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) in (0, 128 + signal.SIGTERM)  # 0 where it came later after all
    assert left_over(environment) == []


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        ([], {"TASKS_BOOTSTRAP__API_KEY": "short"}, "bootstrap.api_key: must be 32 to 255 visible ASCII"),
        ([], {"TASKS_DELIVERY__CA_FILE": "/nowhere.pem"}, "the server did not start; its log says why"),
        (["no-such-program"], {}, "No such file or directory: 'no-such-program'"),
    ],
)
def test_what_cannot_be_started_is_said_in_a_line(run, words, settings, said):
    code, stdout, stderr = run(*words, **settings)
    assert (code, stdout) == (1, "")
    assert stderr.startswith("Error: ")
    assert said in stderr
    assert stderr.count("\n") == 1
