"""README.md and docs/ are true: sessions run, receivers receive, tables are complete."""

import ast
import json
import os
import re
import socket
import subprocess
from contextlib import contextmanager
from importlib.metadata import metadata
from itertools import pairwise

import pytest
import requests
from harness import BIN, OWNER_KEY, PATIENCE, ROOT, ending, needs_curl, needs_node, output_of, wait_until
from packaging.specifiers import SpecifierSet

import app
import gateway
import schemas
from errors import ApiError
from outbox import EVENTS, OPTIONAL_EVENTS
from parts import tools
from settings import load_settings
from wire import PathError

README = (ROOT / "README.md").read_text()
AGENTS = (ROOT / "docs" / "agents.md").read_text()
TOOLS = (ROOT / "docs" / "tools.md").read_text()
API = (ROOT / "docs" / "api.md").read_text()
INTERNALS = (ROOT / "docs" / "internals.md").read_text()
GATEWAY = (ROOT / "docs" / "gateway.md").read_text()
WEBHOOKS = (ROOT / "docs" / "webhooks.md").read_text()
TIME = r"\d{4}-\d\d-\d\dT.*Z$"


def block(language, containing, page=README):
    """The page's fenced block in this language that contains this text."""
    blocks = re.findall(f"```{language}\n(.*?)```", page, re.DOTALL)
    (found,) = [code for code in blocks if containing in code]
    return found


def run(session, folder):
    """Return the lines that a session prints, each a JSON value."""
    return [json.loads(line) for line in output_of("bash", "-eu", "-c", session, cwd=folder).splitlines()]


def resembles(shown, actual):
    """Whether a response is the one that a page shows: shortened, with other ids and times of today."""
    if isinstance(shown, dict) and isinstance(actual, dict):
        return all(name in actual and resembles(value, actual[name]) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(actual, list):
        return len(shown) == len(actual) and all(map(resembles, shown, actual))
    if isinstance(shown, str) and isinstance(actual, str) and "…" in shown:
        return actual.startswith(re.sub("[0-9a-f-]*….*", "", shown, flags=re.DOTALL))
    if re.match(TIME, str(shown)) and re.match(TIME, str(actual)):
        return shown == actual or shown < "2027"  # a date of an example is in the future
    return shown == actual


@needs_curl
@pytest.mark.parametrize("page", [README, API, TOOLS, WEBHOOKS], ids=["README", "api", "tools", "webhooks"])
def test_each_request_gets_the_response_that_is_shown(launch, tmp_path, page):
    server = launch()
    blocks = [*re.findall("```(\\w+)\n(.*?)```", page, re.DOTALL), ("", "")]
    sessions = [(code, *after) for (language, code), after in pairwise(blocks) if language == "sh"]
    script = "".join(f"{code}echo '\"next\"'\n" for code, *_ in sessions)
    script = script.replace("KEY=tms_…", f"KEY={OWNER_KEY}").replace("http://127.0.0.1:8000", server.base)
    printed = run(script, tmp_path)
    compared = 0
    for code, language, shown in sessions:
        end = printed.index("next")
        answers, printed = printed[:end], printed[end + 1 :]
        if language == "json":
            assert resembles(json.loads(shown), answers[-1]), f"{code}\n{json.dumps(answers[-1], indent=1)}"
            compared += 1
    assert compared == page.count("```json") - page.count("mcpServers")


@needs_curl
def test_the_session_with_the_gateway_can_be_pasted(launch, tmp_path):
    server = launch(config=block("toml", "routes.zapier", GATEWAY), ZAPIER_SECRET="s3cret")
    session = block("sh", "create_flow", GATEWAY).replace("http://127.0.0.1:8000", server.base)
    task, waiting, refused, resumed, finished, summary = run(session, tmp_path)
    assert task["result"]["task"]["task"] == "Check the stock"
    assert waiting["result"]["flow"]["status"] == "waiting"
    assert (refused["code"], refused["result"]["current"]["revision"]) == ("revision_conflict", 1)
    flow = finished["result"]["flow"]
    assert (resumed["ok"], flow["status"], flow["stateJson"]) == (True, "succeeded", {"sent": True})
    assert resembles(json.loads(block("json", "summary", GATEWAY)), summary)


@contextmanager
def python_receiver(folder):
    (folder / "receiver.py").write_text(block("python", '"/webhook"', WEBHOOKS))
    with socket.create_server(("127.0.0.1", 0)) as listener, (folder / "out.txt").open("w") as out:
        command = [BIN / "gunicorn", "-b", f"fd://{listener.fileno()}", "receiver:app"]
        options = {"pass_fds": [listener.fileno()], "env": os.environ | {"PYTHONUNBUFFERED": "1"}}
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, **options)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/webhook"
    with process, ending(process):
        assert requests.get(url, timeout=PATIENCE).status_code == 405  # it is there, and takes a POST alone
        yield url, folder / "out.txt"


@contextmanager
def node_receiver(folder):
    code = block("js", ".listen(9000)", WEBHOOKS)
    code = code.replace("(9000)", "(0, function () { console.log(`port ${this.address().port}`); })")
    with (folder / "out.txt").open("w") as out:
        process = subprocess.Popen(["node", "-e", code], cwd=folder, stdout=out, stderr=out)
    with process, ending(process):
        port = wait_until(lambda: re.search(r"port (\d+)\n", (folder / "out.txt").read_text()))[1]
        yield f"http://127.0.0.1:{port}/", folder / "out.txt"


@pytest.mark.parametrize("receiver", [python_receiver, pytest.param(node_receiver, marks=needs_node)])
def test_a_receiver_takes_what_is_signed_and_nothing_else(launch, tmp_path, receiver):
    with receiver(tmp_path) as (url, out):
        secrets = {"good": "the secret", "bad": "another secret"}
        hooks = [{"name": name, "url": url, "secret": secret} for name, secret in secrets.items()]
        owner = launch(hooks=hooks).client()
        task = owner.make_task(owner.make_project())
        owner.patch(f"/tasks/{task['id']}", {"title": "Ünïcödé ✓ \u2028", "metadata": {"b": 1.0, "1": -0.0}})
        deliveries = owner.read("/deliveries")["deliveries"]
        statuses = {delivery["webhook"]: delivery["last_status"] for delivery in deliveries}
        assert statuses == {"good": 204, "bad": 401}
        wait_until(lambda: out.read_text().count("task.updated") == 1)
        (good,) = [delivery["id"] for delivery in deliveries if delivery["webhook"] == "good"]
        again = owner.data(owner.post(f"/deliveries/{good}/redeliver"))
        assert (again["last_status"], again["attempts"]) == (204, 2)
        assert out.read_text().count("task.updated") == 1  # it was there before


def test_the_api_page_has_every_path_with_its_part_and_none_besides():
    documented = set()
    for paths, part in re.findall(r"^\| (`/[^|]*) \|(?: (\w+) \|)? [^|]+ \|$", API, re.MULTILINE):
        documented |= {(path, f"parts.{part}" if part else "app") for path in re.findall("`([^`]*)`", paths)}
    parameter = "<(?:string:|task:|path:)?(?:attachment_|comment_)?(id|token|external_id)>"
    service, routed = app.create_app(oauth={"enabled": True}), set()
    for rule in service.url_map.iter_rules():
        if rule.rule.startswith(("/api/v1", "/metrics")):
            path = re.sub(parameter, r":\1", rule.rule).removeprefix("/api/v1")
            routed.add((path, service.view_functions[rule.endpoint].__module__))
    assert documented == routed - {("/docs/<string:name>", "parts.page")}


def test_the_pages_name_every_error_event_action_filter_and_tool():
    section = API.partition("## Errors")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", section, re.MULTILINE)
    answered = {(str(error.status), error.code) for error in [ApiError, *ApiError.__subclasses__()]}
    answered |= {(str(status), code) for status, code in PathError.CODES.items()}
    assert sorted(listed) == sorted(answered)
    named = {WEBHOOKS: EVENTS + OPTIONAL_EVENTS, GATEWAY: gateway.ACTIONS, TOOLS: tools.TOOLS}
    named[API] = schemas.LIST_TASKS.fields
    for page, names in named.items():
        assert [name for name in names if not re.search(f"`{name}[`=]", page)] == []


def test_the_configurations_of_agents_and_the_retry_schedule_are_right():
    cursor = json.loads(block("json", "mcpServers", AGENTS))["mcpServers"]["tasks"]
    (codex,) = re.findall(r"codex mcp add tasks --url (\S+) --bearer", AGENTS)
    assert cursor["url"] == codex == "http://127.0.0.1:8000" + tools.PATHS[0]
    assert cursor["headers"]["Authorization"].startswith("Bearer tms_")
    schedule = load_settings({})["delivery"]["retry_schedule"]
    assert ", ".join(f"{seconds:.0f}" for seconds in schedule[:6]) + " seconds" in WEBHOOKS
    assert f"for {sum(schedule) / 3600:.0f} hours" in WEBHOOKS


def test_the_internals_have_every_module_in_order_without_a_cycle_and_every_file_of_the_page():
    modules = INTERNALS.partition("## The modules")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `([\w./]+\.py)` \| (?:\d+ \| )?([^|]*) \|", modules, re.MULTILINE))
    for name, lines in re.findall(r"^\| `([\w.]+\.py)` \| (\d+) \|", modules, re.MULTILINE):
        assert len((ROOT / name).read_text().splitlines()) == pytest.approx(int(lines), rel=0.1), name
    for name, calls in re.findall(r"^\| `(parts/\w+\.py)` \| [^|]* \| (.*) \|$", modules, re.MULTILINE):
        for called in re.findall(r"`\w+\.(\w+)`", calls):
            extended = rf"(?:\.|\b){called}(?: =|, |\.append|\.update|\[| \|=)"
            assert re.search(extended, (ROOT / name).read_text()), (name, called)
    imports = {}
    for name, text in told.items():
        code = (ROOT / name).read_text()
        assert text.startswith(re.split(r"\.\s|\.?$", ast.get_docstring(ast.parse(code)))[0])
        imported = re.findall(r"^(?:from|import) (?!parts)(\w+)", code, re.MULTILINE)
        of_parts = re.findall(r"^from parts(?:\.| import )(\w+)", code, re.MULTILINE)
        imported += [f"parts/{one}" for one in of_parts]
        imports[name.removesuffix(".py")] = {*imported}
    files = [*ROOT.glob("*.py"), *(ROOT / "parts").glob("[!_]*.py")]
    assert told.keys() == {str(file.relative_to(ROOT)) for file in files}
    names = [*imports]
    assert [(one, late) for at, one in enumerate(names) for late in imports[one] & {*names[at:]}] == []
    texts = ("LICENSE", "VENDORED")
    files = [file.name for file in (ROOT / "static").iterdir() if not file.name.startswith(texts)]
    assert [name for name in files if f"`{name}`" not in INTERNALS] == []


def test_the_ideas_of_our_own_are_where_the_internals_say():
    ideas = INTERNALS.partition("## Ideas of our own")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]*`[^|]*) \| ([^|]+) \|", ideas, re.MULTILINE)
    assert f" {len(rows)} ideas" in ideas
    assert len(rows) <= 30
    core = re.findall(r"^\| [^|]*`", ideas.partition("**Parts**")[0], re.MULTILINE)
    assert len(core) <= 15
    for names, files in rows:
        places = [ROOT / file if "/" in file else ROOT / f"{file}.py" for file in files.split(", ")]
        code = "".join(place.read_text() for place in places)
        for name in re.findall(r"`@?([\w.]+)", names):
            assert re.search(rf"\b{name.rpartition('.')[2]}\b", code), name


def test_the_internals_say_what_each_dependency_is_for():
    files = [(ROOT / f"requirements{part}.txt").read_text() for part in ("", "-dev")]
    ours = "".join(text.partition("# Their dependencies.")[0] for text in files)
    for name in re.findall(r"^([A-Za-z][\w-]*)==", ours, re.MULTILINE):
        assert f"[{name.lower()}]" in INTERNALS.lower(), name


def test_every_package_runs_on_the_oldest_python_that_is_named():
    (oldest,) = re.findall(r"Python (3\.\d+) or newer", README)
    names = re.findall(r"^([\w-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    needs = {name: SpecifierSet(metadata(name).get("Requires-Python", "")) for name in names}
    assert [name for name, versions in needs.items() if f"{oldest}.0" not in versions] == []


def test_every_override_of_gunicorn_names_its_test():
    text = (ROOT / "server.py").read_text()
    rows = re.findall(r"^(\w+) .* (\w+): (\w+)$", text.split('"""')[1], re.MULTILINE)
    worker = text.partition("class Worker")[2].partition("\n\n\n")[0]
    methods = re.findall(r"^    def (\w+)", worker, re.MULTILINE)
    assert {name for name, *_ in rows} == {*methods, "write_error"} - {"make_room"}  # which is ours
    for name, file, test in rows:
        assert re.search(f"def test_.*{test}", (ROOT / "tests" / f"test_{file}.py").read_text()), name
    pinned = re.search("gunicorn==(.*)", (ROOT / "requirements.txt").read_text())[1]
    assert re.search('GUNICORN = "(.*)"', text)[1] == pinned


def test_the_files_that_are_linked_exist_and_no_table_joins_the_one_above():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("d*/*.md")]:
        assert not re.search(r"^\|.*\n\|.*\n\|[-:| ]+\|$", page.read_text(), re.MULTILINE), page
        for target in re.findall(r"\]\((?!http)([^)]*)\)", page.read_text()):
            file, _, heading = target.partition("#")
            assert (page.parent / file).exists(), target
            if heading:
                text = (page.parent / file if file else page).read_text().lower()
                headings = re.findall("^##+ (.*)", text, re.MULTILINE)
                assert heading in [re.sub(r"[^\w -]", "", one).replace(" ", "-") for one in headings]
