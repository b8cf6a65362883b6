"""The core alone: without the folder of parts, a service has every operation of the specification."""

import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from harness import OWNER_KEY, ROOT, Server

from app import PARTS

ROUTES = """
[plugins.entries.webhooks]
enabled = true
[plugins.entries.webhooks.config.routes.flows]
path = "/hooks/flows"
sessionKey = "core"
secret = "route-secret"
"""


class Core(Server):
    """A service that was made of the modules at the root alone."""

    forks = False

    def run_gunicorn(self, listener, arguments):
        words = [sys.executable, "-m", "gunicorn", "-b", f"fd://{listener.fileno()}"]
        with self.log.open("w") as log:
            options = {"env": self.environment, "pass_fds": [listener.fileno()], "stderr": log}
            return subprocess.Popen(words, cwd=self.folder, **options)


@pytest.fixture(scope="module")
def core(tmp_path_factory, shared_receiver):
    folder = tmp_path_factory.mktemp("core")
    for file in ROOT.glob("*.py"):
        shutil.copy(file, folder)
    shutil.copytree(ROOT / "migrations", folder / "migrations", ignore=shutil.ignore_patterns("__*"))
    app = (folder / "app.py").read_text()
    (folder / "app.py").write_text(re.sub(r"(?ms)^PARTS: .*?^\)$", "PARTS = ()", app))
    (folder / "config.toml").write_text(ROUTES)
    webhooks = json.dumps([{"name": "receiver", "url": shared_receiver.url, "secret": "hush"}])
    core = Core(folder, TASKS_CONFIG=str(folder / "config.toml"), TASKS_WEBHOOKS=webhooks).start()
    yield core
    assert core.stop() == 0


def send(core, method, path, body=None, key=OWNER_KEY):
    return core.call(method, path, json=body, headers={"Authorization": f"Bearer {key}"})


def api(core, method, path, body=None, status=200):
    response = send(core, method, f"/api/v1{path}", body)
    assert response.status_code == status, (response.text, core.log.read_text())
    answer = response.json()
    assert answer["success"] and answer["meta"]["version"] == "1.1"
    return answer["data"]


@pytest.fixture(scope="module")
def project(core):
    return api(core, "POST", "/projects", {"name": "Core"}, 201)


@pytest.fixture
def task(core, project):
    return api(core, "POST", "/tasks", {"project_id": project["id"], "title": "Try it"}, 201)


def test_serves_the_context_and_the_lists_of_the_specification(core, task):
    assert api(core, "GET", "/health")["status"] == "ok"
    context = api(core, "GET", "/context")
    assert {*context} >= {"projects", "members", "urgent_tasks", "recent_activity", "whiteboards", "system"}
    assert api(core, "GET", "/meetings") == {"meetings": []}
    assert [one["role"] for one in api(core, "GET", "/members")["members"]] == ["owner"]
    listed = api(core, "GET", f"/tasks?project_id={task['project_id']}&status=todo&limit=1")
    assert listed["tasks"][0]["id"] == task["id"]


def test_changes_completes_and_deletes_tasks_and_sends_signed_webhooks(core, task, shared_receiver):
    path = f"/tasks/{task['id']}"
    shared_receiver.all_here()
    assert api(core, "PATCH", path, {"title": "Tried", "status": "in_progress"})["status"] == "in_progress"
    assert api(core, "POST", f"{path}/comments", {"content": "Done"}, 201)["content"] == "Done"
    assert api(core, "POST", f"{path}/complete")["status"] == "done"
    calls = [shared_receiver.next() for _ in range(3)]
    assert [call.event["event"] for call in calls] == ["task.updated", "comment.added", "task.completed"]
    for call in calls:
        signature = hmac.new(b"hush", call.body, hashlib.sha256).hexdigest()
        assert call.headers["x-service-signature"] == signature
    assert [one["content"] for one in api(core, "GET", f"{path}/comments")["comments"]] == ["Done"]
    assert api(core, "GET", path)["project"]["name"] == "Core"
    assert api(core, "DELETE", path)["deleted"]
    assert send(core, "GET", f"/api/v1{path}").status_code == 404


def test_invites_a_member_who_enrolls(core):
    person = {"email": "ana@example.com", "full_name": "Ana", "role": "member"}
    link = api(core, "POST", "/members/invite", person, 201)["enrollment_link"]
    enrolled = api(core, "POST", f"/enroll/{link.rpartition('/')[2]}", None, 201)
    assert enrolled["member"]["full_name"] == "Ana" and enrolled["api_key"].startswith("tms_")


def test_refuses_what_is_wrong(core, project):
    for path, body, status in (
        ("/tasks", {"project_id": project["id"]}, 422),
        ("/tasks", {"title": "x", "project_id": "0" * 8 + "-0000-4000-8000-" + "0" * 12}, 422),
        ("/inbox/read", {}, 404),
    ):
        assert send(core, "POST", f"/api/v1{path}", body).status_code == status
    assert send(core, "GET", "/api/v1/tasks", key="x").status_code == 401


def test_serves_the_routes_of_the_gateway(core):
    create = {"action": "create_flow", "goal": "Try it"}
    made = send(core, "POST", "/hooks/flows", create, key="route-secret").json()
    assert made["ok"] and made["routeId"] == "flows"
    assert send(core, "POST", "/hooks/flows", {"action": "list_flows"}).status_code == 401


@pytest.mark.long
def test_any_part_can_be_left_out(tmp_path):
    """Without a part, and those that need it, the rest starts, and no request is a 500."""
    script = [sys.executable, ROOT / "tests" / "left_out.py", tmp_path]
    environment = os.environ | {"TASKS_CONFIG": os.devnull}
    run = subprocess.run(script, env=environment, capture_output=True, text=True)
    wrong = [line for line in run.stdout.splitlines() if line.startswith("without")]
    assert (wrong, run.returncode) == ([], 0), run.stdout + run.stderr
    assert run.stdout.count("POST /api/v1/projects 201") == len(PARTS)


def test_the_line_of_a_part_names_the_parts_that_it_imports():
    app = (ROOT / "app.py").read_text()
    lines = re.findall(r'^    "(\w+)",  # [^;\n]*(?:; needs (.*))?$', app, re.MULTILINE)
    named = {part: {*re.findall(r"(?!and\b)\b\w+", needs)} for part, needs in lines}
    assert tuple(named) == PARTS
    files = {file.stem: file.read_text() for file in (ROOT / "parts").glob("*.py")}

    def imported(part):
        names = re.findall(r"^from parts(?:\.(\w+)| import ([\w, ]+))", files[part], re.MULTILINE)
        direct = {one for name, several in names for one in re.split(", ", name or several)}
        # Modules without a line, such as formats.py, belong to the part that imports them.
        return (direct & {*PARTS}).union(*(imported(one) for one in direct - {*PARTS}))

    assert named == {part: imported(part) for part in PARTS}


def test_no_module_of_the_core_imports_a_part():
    for file in ROOT.glob("*.py"):
        assert not re.search(r"^\s*(from|import) parts\b", file.read_text(), re.M), file.name


def test_no_two_modules_define_the_same_name():
    files = [file for file in (*ROOT.glob("*.py"), *ROOT.glob("parts/*.py")) if "." not in file.stem]
    defined = re.compile(r"(?m)^(?:def |class )?([A-Za-z]\w*)\b(?=[(:]| [=:])")
    names = [name for file in files for name in {*defined.findall(file.read_text())}]
    assert {name for name in names if names.count(name) > 1} == {"log", "register"}
