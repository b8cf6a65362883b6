"""The command that serves a workspace to throw away: alone, beside a program, and however it is ended."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager

import pytest
import requests
from harness import BIN, OWNER_KEY, PATIENCE, ROOT, Client, wait_until

FLASK = [BIN / "flask", "--app", ROOT / "app", "throwaway"]
# Under nohup the tests' programs ignore it, as they should.
HANGUP = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
# A handler would not run for a signal that comes just before a system call that waits.
AWAIT = """
import signal, sys
awaited = [signal.Signals[sys.argv[1]]]
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
print("ready", flush=True)
signal.sigwait(awaited)
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
def run(environment, tmp_path):
    """Run the command to its end; its folder must be gone then."""

    def run(*words, **settings):
        done = subprocess.run(
            [*FLASK, *words],
            cwd=tmp_path,
            env=environment | settings,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert left_over(environment) == []
        return done

    return run


@pytest.fixture
def begin(environment, tmp_path):
    """Start the command; whatever the test does, it is ended."""

    @contextmanager
    def begin(*words, **settings):
        log = (tmp_path / "log.txt").open("a")
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        options |= {"cwd": tmp_path, "env": environment | settings, "process_group": 0}
        with log, subprocess.Popen([*FLASK, *words], **options) as process:
            try:
                yield process
            finally:
                process.terminate()

    return begin


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, *HANGUP])
def test_it_serves_until_a_signal_and_leaves_nothing(begin, environment, number):
    with begin() as process:
        line = process.stdout.readline()
        assert client(line).make_project()["name"] == "A project"
        (folder,) = left_over(environment)
        assert "tasks.db" in os.listdir(f"{environment['TMPDIR']}/{folder}")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == ""
    assert left_over(environment) == []
    assert is_refused(told(line)[0])


def test_two_at_the_same_time_are_two_workspaces(begin):
    with begin() as one, begin() as other:
        first, second = client(one.stdout.readline()), client(other.stdout.readline())
        first.make_project()
        assert second.data(second.get("/projects"))["projects"] == []
        assert (
            second.request("GET", "/me", headers={"Authorization": f"Bearer {first.key}"}).status_code == 401
        )


def test_the_end_of_one_leaves_the_other(begin, environment):
    with begin() as one, begin() as other:
        one.stdout.readline()
        second = client(other.stdout.readline())
        one.terminate()
        assert one.wait(PATIENCE) == 0
        second.make_project()
        assert len(left_over(environment)) == 1


def test_a_key_that_is_given_is_used_and_the_seed_fills_the_workspace(begin):
    with begin("--seed", "7", TASKS_BOOTSTRAP__API_KEY="$MY_KEY", MY_KEY=OWNER_KEY) as process:
        owner = client(process.stdout.readline())
        assert owner.key == OWNER_KEY
        assert owner.data(owner.get("/tasks"))["pagination"]["total"] == 200


def test_settings_of_the_environment_apply_and_those_of_a_file_do_not(begin, tmp_path):
    (tmp_path / "config.toml").write_text('[workspace]\nname = "Of the file"\n')
    settings = {
        "TASKS_CONFIG": str(tmp_path / "config.toml"),
        "TASKS_SERVER__DATABASE": str(tmp_path / "own.db"),
    }
    with begin(**settings, TASKS_LIMITS__REQUESTS_PER_MINUTE="2") as process:
        owner = client(process.stdout.readline())
        assert owner.data(owner.get("/context"))["system"]["workspace_name"] == "Workspace"
        assert [owner.get("/me").status_code for _ in range(2)] == [200, 429]
    assert not (tmp_path / "own.db").exists()


def test_a_program_gets_the_address_and_the_key_and_gives_the_exit_code(run, tmp_path):
    code = "print(ask('/me')); sys.exit(7)"
    done = run("--log", "server.log", "--", BIN / "python", "-c", ASK + code)
    assert (done.returncode, done.stderr) == (7, "")
    assert json.loads(done.stdout)["data"]["member"]["role"] == "owner"
    assert "GET /api/v1/me 200" in (tmp_path / "server.log").read_text()


def test_a_program_finds_its_own_variables_and_may_use_the_command_line(run):
    script = (
        f'echo "$PORT $WEB_CONCURRENCY"; "{BIN}/flask" --app "{ROOT}/app" project create Shop; kill -9 $$'
    )
    done = run("sh", "-c", script, PORT="1", WEB_CONCURRENCY="2")
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert done.stdout.startswith("1 2\n")


def test_a_program_is_told_of_sigterm_and_ends_in_its_own_way(begin, environment):
    with begin("--", BIN / "python", "-c", AWAIT + "sys.exit(9)", "SIGTERM") as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(PATIENCE) == 9
    assert left_over(environment) == []


def test_ctrl_c_leaves_the_server_to_a_program_that_cleans_up(begin, environment):
    """A terminal sends it to all processes of the group."""
    code = AWAIT + ASK + "print(ask('/health')); sys.exit(2)"
    with begin("--", BIN / "python", "-c", code, "SIGINT") as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert json.loads(process.stdout.readline())["data"]["status"] == "ok"
        assert process.wait(PATIENCE) == 2
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
    done = run("--log", os.devnull, *words, **settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
