"""The wheel: what it holds and needs, and the program that it installs."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import requests
from harness import PATIENCE, ROOT, ending
from harness import output_of as run

import settings

pytest.importorskip("hatch_requirements_txt", reason="what builds the wheel is not installed")
pytestmark = pytest.mark.long
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
FILES = ("*.py", "parts/*.*", "migrations/*.py", "static/*", "templates/*", "config.example.toml")
ASK = "import os, requests; print(requests.get(os.environ['TASKS_URL'] + '/api/v1/health').text)"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, ROOT)
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def tasks(wheel):
    """The program, in an environment of its own that has the packages of this one besides."""
    home = wheel.parent / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", home)
    own = sysconfig.get_path("purelib", vars={"base": home})
    Path(own, "shared.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    run(*PIP, "--python", home / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    return home / "bin" / "tasks"


@pytest.fixture
def here(tmp_path):
    """A folder that somebody else's modules are in, and no settings."""
    for name in ("app", "models", "settings", "throwaway"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    variables = {name: text for name, text in os.environ.items() if not name.startswith("TASKS_")}
    return {"cwd": tmp_path, "env": variables}


def test_the_wheel_has_the_service_in_one_folder_and_needs_what_serves(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = f"task_service-{settings.VERSION}.dist-info"
        needed = re.findall("^Requires-Dist: (.*)$", archive.read(f"{info}/METADATA").decode(), re.MULTILINE)
    assert {name.partition("/")[0] for name in names} == {"task_service", info}
    ours = {f"task_service/{file.relative_to(ROOT)}" for glob in FILES for file in ROOT.glob(glob)}
    assert {name for name in names if info not in name} == ours
    serving = (ROOT / "requirements.txt").read_text().lower().replace("_", "-")
    assert sorted(needed) == sorted(re.findall("^.*==.*$", serving, re.MULTILINE))


def test_what_is_installed_serves_a_workspace_in_the_working_directory(tasks, here, tmp_path):
    assert f"Task service {settings.VERSION}, last migration 00" in run(tasks, "version", **here)
    assert "/enroll/" in run(tasks, "init", **here)
    command = [tasks, "serve", "-b", "127.0.0.1:0", "--threads", "4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **here) as server, ending(server):
        log = ""
        while "Listening at" not in log and (line := server.stderr.readline()):
            log += line
        address = re.search(r"Listening at: (http://[\d.:]+)", log)[1]
        assert requests.get(f"{address}/api/v1/health", timeout=PATIENCE).ok
        server.terminate()
        server.stderr.read()
    assert f"The database is {tmp_path / 'tasks.db'}" in log and server.returncode == 0


def test_what_is_installed_serves_a_workspace_for_tests_in_the_folder_of_another_program(tasks, here):
    (here["cwd"] / "config.toml").write_text('title = "of another program"')
    assert '"status":"ok"' in run(tasks, "throwaway", "--", sys.executable, "-c", ASK, **here)


def test_the_changelog_begins_with_this_version_and_a_job_of_ci_checks_it_out():
    headings = re.findall("(?m)^## (.+)", (ROOT / "CHANGELOG.md").read_text())
    released = [heading for heading in headings if heading != "Unreleased"]
    assert released[0].split()[0] == settings.VERSION
    assert all(re.fullmatch(r"[\d.]+ \(\d{4}-\d\d-\d\d\)", heading) for heading in released)
    assert f"ref: v{settings.VERSION}}}" in (ROOT / "docs" / "testing.md").read_text()
