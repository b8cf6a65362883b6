"""The examples in docs/ work: the set-ups for tests of other programs run, with their own tests."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib

import pytest
from harness import BIN, PATIENCE, ROOT, invoke, needs_curl, needs_node, npm_packages, wait_until
from test_readme import WEBHOOKS, block

from settings import load_settings

TOOLS = (ROOT / "docs" / "tools.md").read_text()
MOVING = (ROOT / "docs" / "moving.md").read_text()
TESTING = (ROOT / "docs" / "testing.md").read_text()
NEEDS_SOCKET = False
PYTEST = [BIN / "pytest", "-q", "-p", "no:cacheprovider"]


def run(words, folder):
    """The program's exit code, and what it printed."""
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # ours take a second to import
    done = subprocess.run(words, cwd=folder, timeout=PATIENCE, env=environment, **output)
    return done.returncode, done.stdout


def as_neighbour(code):
    """The code of a project beside ours, with the paths of this one."""
    return code.replace("../tasks/.venv/bin", str(BIN)).replace("../tasks/app", str(ROOT / "app"))


@pytest.mark.long
@needs_curl
def test_a_program_can_be_run_beside_a_server_to_throw_away(tmp_path):
    code, said = run(["bash", "-eu", "-c", as_neighbour(block("sh", "throwaway", TESTING))], tmp_path)
    assert code == 0, said
    assert json.loads(said[said.index("{") :])["data"]["projects"][0]["stats"]["total"] > 0
    assert "GET /api/v1/context 200" in (tmp_path / "tasks.log").read_text()


@pytest.mark.long
def test_the_set_up_for_pytest_runs_in_parallel_however_tests_are_imported_and_under_throwaway(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "__init__.py").touch()
    (tests / "conftest.py").write_text(as_neighbour(block("python", "def throwaway", TESTING)))
    (tests / "test_tasks.py").write_text(block("python", "def test_", TESTING))
    words = ["-p", "xdist", "-n", "2", "--import-mode=importlib", "tests"]
    around = [BIN / "flask", "--app", ROOT / "app", "throwaway", "--log", "tasks.log", "--"]
    code, said = run([*around, *PYTEST, *words], tmp_path)
    assert code == 0, said
    assert re.search(r"(\d+) passed", said)[1] == "3", said


@pytest.mark.long
def test_the_set_up_for_pytest_says_that_the_service_did_not_start(tmp_path):
    (tmp_path / "conftest.py").write_text(as_neighbour(block("python", "def throwaway", TESTING)))
    code = "def test_one(throwaway):\n    with throwaway(TASKS_SERVER__COLOUR='blue'):\n        pass\n"
    (tmp_path / "test_tasks.py").write_text(code)
    code, said = run(PYTEST, tmp_path)
    assert code == 1
    assert "the service did not start: see standard error, and tasks.log" in said
    assert "ValueError" not in said


@pytest.mark.long
@needs_node
def test_the_set_up_for_vitest_runs(tmp_path):
    (tmp_path / "node_modules").symlink_to(npm_packages("vitest@3.2.4"))
    (tmp_path / "vitest.config.mjs").write_text(block("js", "defineConfig", TESTING))
    (tmp_path / "vitest.setup.mjs").write_text(as_neighbour(block("js", "spawn(", TESTING)))
    for name in ("one", "two", "three"):  # more than there are workers
        (tmp_path / f"{name}.test.mjs").write_text(block("js", "beforeEach", TESTING))
    code, said = run(["node", "node_modules/vitest/vitest.mjs", "run", "--no-color"], tmp_path)
    assert code == 0, said
    assert "Tests  6 passed" in said, said


def test_the_settings_for_tests_send_an_event_again_soon(launch, receiver):
    shown = block("sh", "TASKS_WEBHOOKS", TESTING).replace("http://127.0.0.1:9000/webhook", receiver.url)
    settings = dict(re.findall("^export (.*)='(.*)'$", shown, re.MULTILINE))
    receiver.answers = [503, 503, 200]
    owner = launch(**settings).client()
    owner.post(f"/tasks/{owner.make_task(owner.make_project())['id']}/complete")
    first, *again = [receiver.next() for _ in range(3)]
    assert [call.body for call in again] == [first.body] * 2
    assert first.event["event"] == "task.completed"


def test_the_import_prints_what_is_shown(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, _, command = block("sh", "tasks import", MOVING).partition("END\ntasks ")
    (tmp_path / "fair.csv").write_text(file.partition("<<END\n")[2])
    assert invoke(server, *shlex.split(command)).output == block("text", "new:", MOVING)


@pytest.mark.long
@needs_node
def test_the_library_for_node_verifies_a_call_and_no_other(launch, receiver, tmp_path):
    owner = launch(hooks=[{"name": "mine", "url": receiver.url, "secret": "the secret"}]).client()
    owner.post(f"/tasks/{owner.make_task(owner.make_project())['id']}/complete")
    call = receiver.next()
    (tmp_path / "node_modules").symlink_to(npm_packages("standardwebhooks@1.1.1"))
    code = block("js", 'from "standardwebhooks"', WEBHOOKS)
    for body, verdict in ((call.body, "task.completed\n"), (call.body + b" ", "No matching signature found")):
        given = f"const [body, headers] = {json.dumps([body.decode(), call.headers])};"
        (tmp_path / "verify.mjs").write_text(f"{given}\n{code}\nconsole.log(event.event);\n")
        assert verdict in run(["node", "verify.mjs"], tmp_path)[1]


def test_the_webhooks_that_are_shown_are_accepted():
    for name, form in (("mine", "json"), ("team", "slack")):
        shown = tomllib.loads(block("toml", f'name = "{name}"', WEBHOOKS))
        assert [webhook["format"] for webhook in load_settings(shown)["webhooks"]] == [form]


REPORT = "Done as described."
AGENT = """
import json, os, sys

import requests


def use(tool, **arguments):
    params = {"name": tool, "arguments": arguments}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Authorization": f"Bearer {os.environ['TASKS_KEY']}"}
    result = requests.post(f"{os.environ['TASKS_URL']}/mcp", json=call, headers=headers).json()["result"]
    return None if result.get("isError") else json.loads(result["content"][0]["text"])


assert "claim_task" in sys.argv[1]
if task := use("claim_task", minutes=30):  # or the other one was faster
    id = task["number"]
    if task["title"] == "Unclear" and not task.get("comments"):
        use("add_comment", task_id=id, content="What is meant?", question=True)
        use("update_task", task_id=id, status="todo")
    else:
        use("complete_task", task_id=id, comment="Done as described.")
"""


@pytest.mark.long
@needs_curl
def test_two_runners_and_a_person_with_her_inbox_work_through_what_there_is(launch, tmp_path):
    """Each runner starts a program that calls tools, as it would start an agent."""
    server = launch()
    owner = server.client()
    project = owner.make_project()
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "runner.sh").write_text(block("bash", "wait=25", TOOLS))
    runners = []
    for name in ("One", "Two"):
        environment = {"TASKS_URL": server.base, "TASKS_KEY": server.agent(name).key}
        environment |= {"AGENT": f"{sys.executable} {tmp_path / 'agent.py'}"}
        words = ["bash", "-u", tmp_path / "runner.sh"]
        runners.append(subprocess.Popen(words, env=os.environ | environment, start_new_session=True))
    try:
        made = [owner.make_task(project, title=title) for title in ("Unclear", "One", "Sent back")]

        def comments(task):
            return [comment["content"] for comment in owner.read(f"/tasks/{task['id']}/comments")["comments"]]

        def person():
            """Look at the inbox alone; tell whether all is done."""
            for notice in owner.read("/inbox", wait=1)["notices"]:
                path, said = f"/tasks/{notice['task']['id']}", comments(notice["task"])
                if not notice["read_at"] and notice["reason"] == "question":
                    owner.make(f"{path}/comments", {"content": "The second one."})
                # The report comes after the status.
                elif not notice["read_at"] and notice["reason"] == "review" and said[-1:] == [REPORT]:
                    if notice["task"]["title"] == "Sent back" and len(said) == 1:
                        owner.make(f"{path}/comments", {"content": "Once more."})
                        owner.data(owner.patch(path, {"status": "todo"}))
                    else:
                        owner.data(owner.post(f"{path}/complete"))
            tasks = owner.read("/tasks", project_id=project["id"])["tasks"]
            return {task["status"] for task in tasks} == {"done"}

        wait_until(person)
    finally:
        for runner in runners:
            os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()
    before = (["What is meant?", "The second one."], [], [REPORT, "Once more."])
    assert [comments(task) for task in made] == [[*said, REPORT] for said in before]
