"""Clients that generators make of the document: without a warning, right by their types, and in use.

The commands and the programs come from docs/clients.md.
"""

import os
import re
import subprocess

import pytest
from harness import BIN, OWNER_KEY, ROOT, npm_packages
from test_readme import block

pytestmark = pytest.mark.long
PAGE = (ROOT / "docs" / "clients.md").read_text()
SECONDS = 240  # for a program: compilers are slow on a machine that does other things too

FILES = """
import os
import sys
from io import BytesIO
from uuid import UUID

from task_service_client import AuthenticatedClient, models
from task_service_client.api.attachments import add_attachment, download_attachment
from task_service_client.types import File

api = AuthenticatedClient(os.environ["TASKS_URL"], os.environ["TASKS_KEY"])
task = UUID(sys.argv[1])
file = File(BytesIO(b"a\\0b"), "a.bin", "application/x-a")
added = add_attachment.sync(task, client=api, body=models.AddAttachmentBody(file))
assert isinstance(added, models.AttachmentAnswer), added
loaded = download_attachment.sync(task, added.data.id, client=api)
assert isinstance(loaded, File), loaded
print(added.data.filename, added.data.content_type, loaded.payload.read())
"""


@pytest.fixture
def run(server):
    """Run a command in a folder, and return all that it prints."""
    path = os.pathsep.join(["node_modules/.bin", str(BIN), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "TASKS_URL": server.base, "TASKS_KEY": OWNER_KEY}

    def command(line, folder):
        words = ["bash", "-euc", line.replace("npx ", "")]  # which npm takes half a second to find
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(words, cwd=folder, env=environment, timeout=SECONDS, **both)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return command


def test_a_client_in_python(run, task, tmp_path):
    install, generate, _ = block("sh", "openapi-python-client", PAGE).splitlines()
    assert install.split()[-1] in (ROOT / "requirements-dev.txt").read_text().splitlines()
    assert run(f"{generate} --fail-on-warning", tmp_path) == f"Generating {tmp_path}/task-service-client\n"
    folder = tmp_path / "task-service-client"  # where the package can be imported, installed or not
    (folder / "program.py").write_text(block("python", "create_task", PAGE))
    (folder / "files.py").write_text(FILES)
    # The package too, which a user's mypy reads anyway; it takes nine seconds once, and then has a cache.
    mypy = f"mypy --strict --cache-dir {ROOT}/.mypy_cache/clients"
    checked = run(f"{mypy} program.py files.py task_service_client", folder)
    assert checked.startswith("Success: no issues found"), checked
    # It was 855, of inline schemas. Each operation adds one or two, as do its body and its lists.
    assert len(list(folder.glob("task_service_client/models/*.py"))) < 300
    listed, changed, refused, done, deleted = run("python program.py", folder).splitlines()
    assert listed.startswith("TaskListAnswer(") and listed.count("title='Draft'") == 1
    assert changed.startswith("TaskAnswer(") and "'review'" in changed
    assert refused.startswith("ErrorAnswer(") and "'precondition_failed'" in refused
    assert done.startswith("TaskAnswer(") and "'done'" in done
    assert deleted.startswith("DeletedAnswer(") and "deleted=True" in deleted
    assert run(f"python files.py {task['id']}", folder) == "a.bin application/x-a b'a\\x00b'\n"


def test_a_client_in_typescript(run, tmp_path):
    npm, generate, compile_and_run = block("sh", "npm install", PAGE).splitlines()
    (tmp_path / "node_modules").symlink_to(npm_packages(*npm.removeprefix("npm install ").split()))
    (tmp_path / "program.mts").write_text(block("ts", "createClient", PAGE))
    assert re.fullmatch(r"✨ openapi-typescript [\d.]+\n🚀 .* → tasks.ts \[.*\]\n", run(generate, tmp_path))
    printed = run(compile_and_run, tmp_path)  # an error of the compiler would be printed first
    assert printed.split() == ["1", "review", "precondition_failed", "done", "true"]
