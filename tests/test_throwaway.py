"""The command that serves a workspace to throw away: alone, beside a program, and however it is ended."""

import json
import os
import re
import signal
import sqlite3
import time
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import requests
from forks import alone, running
from harness import BIN, OWNER_KEY, PATIENCE, ROOT, Client, at_once, check_answer, fault, wait_until
from older import content as whole_content
from standardwebhooks import Webhook, WebhookVerificationError
from test_tools import text_of

from times import now

# Under nohup the tests' programs ignore it, as they should.
HANGUP = signal.SIGHUP if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else signal.SIGTERM
ASK = """
import os, signal, sys
from urllib.request import ProxyHandler, Request, build_opener

def ask(path):
    headers = {"Authorization": f"Bearer {os.environ['TASKS_KEY']}"}
    request = Request(f"{os.environ['TASKS_URL']}/api/v1{path}", headers=headers)
    return build_opener(ProxyHandler({})).open(request).read().decode()

def wait(number):  # a handler would not run for a signal that comes just before a system call that waits
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    print("ready", flush=True)
    signal.sigwait([number])

"""


def content(database):
    """The content without hidden activity and old notices, which are pruned some time after the start."""
    with closing(sqlite3.connect(database)) as connection:
        shown = connection.execute("SELECT * FROM activity WHERE is_hidden IS NULL").fetchall()
    return whole_content(database) | {"activity": shown, "notice": []}


@contextmanager
def begun(folder, *words, first=alone, **settings):
    """Start the command, in a process group and a temporary folder of its own; it is ended in any case."""
    (folder / "temporary").mkdir(exist_ok=True)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TASKS_")}
    environment |= {"TMPDIR": str(folder / "temporary"), "TASKS_CONFIG": os.devnull, **settings}
    words = ["flask", "--app", ROOT / "app", "throwaway", "--log", os.devnull, *words]
    with running(words, folder, environment, first) as process:
        yield process


@pytest.fixture
def begin(tmp_path):
    yield partial(begun, tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.fixture
def run(begin):
    def run(*words, **settings):
        with begin(*words, **settings) as process:
            stdout, stderr = process.stdout.read(), process.stderr.read()
            return process.wait(PATIENCE), stdout, stderr

    return run


def client(line):
    """The owner's client, by the line that the command prints, with the other keys in it."""
    values = dict(word.split("=", 1) for word in line.split())
    holders = ("ADMIN", "MEMBER", "CLIENT", "READ")
    assert list(values) == ["TASKS_URL", "TASKS_KEY", *(f"TASKS_KEY_{holder}" for holder in holders)]
    url, *keys = values.values()
    owner, *others = (Client(f"{url}/api/v1", key) for key in keys)
    owner.others = others
    return owner


def test_two_are_two_workspaces_with_settings_of_the_environment_and_end(begin, tmp_path):
    (tmp_path / "config.toml").write_text('[workspace]\nname = "Of the file"\n')
    settings = {"TASKS_LIMITS__REQUESTS_PER_MINUTE": "2", "TASKS_BOOTSTRAP__API_KEY": "$MY_KEY"}
    settings["TASKS_CONFIG"] = str(tmp_path / "config.toml")
    settings["TASKS_SERVER__DATABASE"] = str(tmp_path / "own.db")
    with begin("--seed", "7", **settings, MY_KEY=OWNER_KEY) as one, begin() as other:
        first, second = (client(process.stdout.readline()) for process in (one, other))
        assert first.key == OWNER_KEY
        assert first.read("/context")["system"]["workspace_name"] == "Workspace"
        assert first.read("/tasks")["pagination"]["total"] == 200
        assert first.get("/me").status_code == 429
        assert second.read("/tasks")["tasks"] == []
        assert Client(second.base, first.key).get("/me").status_code == 401
        link = re.fullmatch(r"Sign in with this link, .*:  (http://\S+)\n", one.stdout.readline())[1]
        assert requests.get(link, timeout=PATIENCE).status_code == 200
        first.session.close()  # gunicorn waits a little for connections that are kept alive
        one.send_signal(signal.SIGINT)
        assert one.wait(PATIENCE) == 0
        assert one.stdout.read() == ""
        with pytest.raises(requests.ConnectionError):
            first.get("/health")
        second.make_project()
        assert list(tmp_path.glob("temporary/*/tasks.db"))
        second.session.close()
        other.send_signal(HANGUP)
        assert other.wait(PATIENCE) == 0
    assert not (tmp_path / "own.db").exists()


def test_a_program_gets_address_and_key_and_no_settings(run, tmp_path):
    names = "env | sed -n 's/^\\(TASKS_[^=]*\\)=.*/\\1/p' | sort | xargs"
    script = f'echo "$PORT $WEB_CONCURRENCY"; {names}; "{BIN}/python" -c "$ASK"; kill -9 $$'
    variables = {"PORT": "1", "WEB_CONCURRENCY": "2", "ASK": ASK + "print(ask('/projects'))"}
    variables |= {"TASKS_LIMITS__REQUESTS_PER_MINUTE": "100"}
    code, stdout, stderr = run("--log", "server.log", "--", "sh", "-c", script, **variables)
    assert code == 128 + signal.SIGKILL, stderr
    ports, given, projects = stdout.splitlines()
    assert ports == "1 2"
    assert given == "TASKS_KEY TASKS_KEY_ADMIN TASKS_KEY_CLIENT TASKS_KEY_MEMBER TASKS_KEY_READ TASKS_URL"
    assert json.loads(projects)["data"]["projects"] == []
    assert "GET /api/v1/projects 200" in (tmp_path / "server.log").read_text()


def test_a_program_decides_what_it_does_at_ctrl_c_and_sigterm_and_has_its_server_then(begin):
    """A terminal sends SIGINT to all processes of the group."""
    code = ASK + "wait(signal.SIGINT)\nprint(ask('/health'))\nwait(signal.SIGTERM)\nsys.exit(9)"
    with begin("--", BIN / "python", "-c", code) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert json.loads(process.stdout.readline())["data"]["status"] == "ok"
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(PATIENCE) == 9


def test_signals_while_the_server_starts_end_it_and_the_command_waits_for_that(begin):
    with begin(first=None) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (server,) = map(int, wait_until(children.read_text).split())
        # Until then the command waits for it.
        wait_until(lambda: b"-m\0gunicorn" in Path(f"/proc/{server}/cmdline").read_bytes())
        os.kill(server, signal.SIGSTOP)  # as one that takes long to end
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "ShdPnd:\t0000000000004000" in Path(f"/proc/{server}/status").read_text())
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "ShdPnd:\t0000000000000000" in Path(f"/proc/{process.pid}/status").read_text())
        os.kill(server, signal.SIGCONT)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM  # of the first
        assert not Path(f"/proc/{server}").exists()


def test_a_failed_start_is_one_line(run):
    for words, settings, said in (
        ("", {"TASKS_BOOTSTRAP__API_KEY": "short"}, "bootstrap.api_key: must be 32 to 255 visible ASCII"),
        ("", {"TASKS_DELIVERY__CA_FILE": "/nowhere.pem"}, "the server did not start; its log says why"),
        ("no-such-program", {}, "No such file or directory: 'no-such-program'"),
        ("--seed 7 --today 2999-01-01", {}, "Invalid value for '--today': must not be in the future"),
        ("--today 2026-01-05", {}, "--today needs --seed"),
        ("--seed 7 --today soon", {}, "'soon' does not match the format '%Y-%m-%d'"),
    ):
        code, stdout, stderr = run(*words.split(), **settings)
        *usage, line = stderr.splitlines()
        assert (code, stdout, bool(usage)) == ((2, "", True) if "--today" in words else (1, "", False))
        assert line.startswith("Error: ")
        assert said in line


@pytest.fixture(scope="module")
def begun_once(tmp_path_factory):
    """A seeded workspace that the tests below share: its database's folder, and its owner."""
    folder = tmp_path_factory.mktemp("throwaway")
    settings = {"TASKS_LIMITS__REQUESTS_PER_MINUTE": "300", "TASKS_LIMITS__TOOL_CALLS_PER_MINUTE": "1"}
    settings["TASKS_BOOTSTRAP__API_KEY"] = OWNER_KEY
    words = ("--seed", "7", "--today", "2026-01-05", "--log", str(folder / "server.log"))
    with begun(folder, *words, **settings) as process:
        owner = client(process.stdout.readline())
        yield next((folder / "temporary").iterdir()) / "tasks.db", owner
        owner.session.close()
    log = (folder / "server.log").read_text()
    assert "Traceback" not in log
    assert "a bug" not in log


@pytest.fixture
def owner(begun_once):
    """The owner of that workspace, which is as at its start."""
    _, owner = begun_once
    assert ask(owner, "POST", "reset").json()["data"] == {"reset": True}
    return owner


def ask(owner, method, path, **body):
    """Return the server's answer at a path beside the API."""
    url = f"{owner.base.removesuffix('/api/v1')}/throwaway/{path}"
    headers = {"Authorization": f"Bearer {owner.key}"}
    answer = requests.request(method, url, headers=headers, json=body or None, timeout=PATIENCE)
    check_answer(answer)
    return answer


def seen(owner, path):
    return ask(owner, "GET", path).json()["data"]


def inbox(owner):
    return seen(owner, "webhooks")["deliveries"]


def cause(owner, **fields):
    answer = ask(owner, "POST", "faults", **fields)
    assert answer.status_code == 201, answer.text


def test_a_reset_takes_everything_back_and_ids_and_times_go_on(begun_once, owner):
    database, _ = begun_once
    start = content(database)
    before = owner.get("/projects").content
    project = owner.make_project()
    headers = {"Idempotency-Key": "one"}
    body = {"project_id": project["id"], "title": "T"}
    task = owner.make("/tasks", body, headers=headers)
    for listed in owner.read("/projects")["projects"]:
        owner.delete(f"/projects/{listed['id']}", params={"force": "true"})
    owner.patch(f"/members/{task['created_by']}", {"email": "moved@example.com"})
    assert [text_of(owner, "list_meetings", {})[1] for _ in range(2)] == [False, True]  # one call a minute
    owner.post("/members/invite", {"email": "owner@example.com", "full_name": "New", "role": "owner"})
    cookie = owner.post("/session", {"api_key": owner.key}).headers["Set-Cookie"]
    cause(owner, match="* *", status=500)
    assert ask(owner, "POST", "reset").status_code == 200
    assert content(database) == start
    assert inbox(owner) == []
    again = owner.get("/projects")  # which is the first that counts
    assert "r=299;" in again.headers["RateLimit"]
    assert not text_of(owner, "list_meetings", {})[1]
    assert json.loads(again.content)["data"] == json.loads(before)["data"]
    signed_in = {"Cookie": cookie, "X-Requested-With": "x"}
    assert requests.get(f"{owner.base}/me", headers=signed_in, timeout=PATIENCE).status_code == 401
    body["project_id"] = owner.make_project()["id"]
    assert body["project_id"] > task["id"]
    other = owner.post("/tasks", body, headers=headers)
    assert "Idempotent-Replayed" not in other.headers
    assert owner.data(other, 201)["created_at"] > task["created_at"]


def test_resets_and_requests_at_the_same_time_disturb_neither(begun_once, owner):
    database, _ = begun_once
    start = content(database)

    def work():
        own = Client(owner.base, owner.key)
        for _ in range(10):
            project = own.post("/projects", {"name": "P"})
            assert project.status_code == 201
            body = {"project_id": own.data(project, 201)["id"], "title": "T"}
            assert own.post("/tasks", body).status_code in (201, 422)  # its project may be gone
            assert own.get("/tasks").status_code == 200

    at_once(*[work] * 4, *[lambda: [ask(owner, "POST", "reset") for _ in range(10)]] * 2)
    assert ask(owner, "POST", "reset").status_code == 200
    assert content(database) == start


def test_a_fault_replaces_or_delays_the_answers_that_it_names(owner):
    project = owner.make_project()
    body = {"project_id": project["id"], "title": "T"}
    cause(owner, match="POST /api/v1/tasks", times=2, status=503)
    cause(owner, match="PATCH /api/v1/tasks/*", status=429)
    for _ in range(2):
        refused = owner.post("/tasks", body)
        fault(refused, 503, "unavailable")
        assert refused.headers["Retry-After"] == "1"
    task = owner.make_task(project)
    fault(owner.patch(f"/tasks/{task['id']}", {"title": "U"}), 429, "rate_limited")
    assert owner.patch(f"/tasks/{task['id']}", {"title": "U"}).status_code == 200
    cause(owner, match="GET /api/v1/tasks", status=418)
    answer = requests.get(f"{owner.base}/tasks", timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (418, "invalid_request")
    cause(owner, match="GET /api/v1/tasks", times=9, status=500)
    assert ask(owner, "POST", "reset").status_code == 200
    assert owner.get("/tasks").status_code == 200
    # A delay holds a request up.
    cause(owner, match="GET /api/v1/me", delay=0.3)
    began = time.monotonic()
    assert owner.get("/me").status_code == 200
    assert time.monotonic() - began >= 0.3
    cause(owner, match="POST /api/v1/projects", delay=60)
    with pytest.raises(requests.ReadTimeout):
        owner.post("/projects", {"name": "Late"}, timeout=0.1)


@pytest.mark.parametrize(("drop", "made"), [("before", 0), ("after", 1)])
def test_a_connection_is_dropped_before_or_after_the_commit(owner, drop, made):
    project = owner.make_project()
    body = {"project_id": project["id"], "title": "Once"}
    headers = {"Idempotency-Key": "the-key"}
    cause(owner, match="POST /api/v1/tasks", drop=drop)
    with pytest.raises(requests.ConnectionError):
        owner.post("/tasks", body, headers=headers)
    assert owner.read(f"/projects/{project['id']}")["stats"]["total"] == made
    assert len(inbox(owner)) == made
    again = owner.post("/tasks", body, headers=headers)
    assert again.headers.get("Idempotent-Replayed") == ("true" if made else None)
    assert owner.read(f"/projects/{project['id']}")["stats"]["total"] == 1


def test_a_wrong_fault_is_refused_with_its_fields(owner):
    good = {"match": "GET /x", "status": 503}
    for fields, *named in (
        ({}, "match"),
        *((good | {"match": match}, "match") for match in ("/api/v1/tasks", 5)),
        *(({"match": "GET /x"} | status, "status") for status in ({}, {"status": 200}, {"status": "503"})),
        *(({"match": "GET /x", "delay": delay}, "delay") for delay in (-1, 61)),
        *(({"match": "GET /x", "drop": "never"}, "drop"), (good | {"drop": "after"}, "drop")),
        *((good | {"times": 0}, "times"), (good | {"after": 1}, "after")),
        ({"match": "POST *", "webhook": "never"}, "webhook"),
        ({"match": "POST *", "webhook": "late", "delay": 1}, "webhook"),
    ):
        error = fault(ask(owner, "POST", "faults", **fields), 422, "validation_error")
        assert [detail["field"] for detail in error["details"]] == named, fields


def test_the_inbox_has_what_a_receiver_gets_the_oldest_first(owner):
    """Sixteen threads answer; those that send wait for one that receives."""
    project = owner.make_project()
    answer = owner.post("/tasks", {"project_id": project["id"], "title": "Ünï"})
    assert answer.headers["x-webhook-deliveries"] == "delivered=1; pending=0"
    task = owner.data(answer, 201)
    owner.post(f"/tasks/{task['id']}/comments", {"content": "Hm"})
    first, second = inbox(owner)
    assert [first["body"], second["body"]] == owner.read("/events")["events"]
    assert first["body"]["data"]["task"] == task
    assert first["headers"]["webhook-id"] == first["body"]["id"]
    assert {"x-service-signature", "webhook-signature", "webhook-timestamp"} < set(first["headers"])
    assert second["headers"]["x-service-event"] == "comment.added"
    clients = [Client(owner.base, owner.key) for _ in range(20)]
    at_once(*[partial(one.make_task, project) for one in clients])
    wait_until(lambda: len(inbox(owner)) == 22)  # the sweeper sends what requests had to leave
    batch = [{"project_id": project["id"], "title": str(number)} for number in range(30)]
    assert owner.post("/tasks/batch", {"tasks": batch}).headers["x-webhook-deliveries"].endswith("pending=10")
    assert len(inbox(owner)) == 52


def test_there_are_keys_of_each_role_and_only_the_first_one_opens_these_paths(owner, launch_here):
    whose = [one.read("/me")["member"]["role"] for one in owner.others]
    assert whose == ["admin", "member", "client", "owner"]
    answers = [one.post("/projects", {"name": "Of a test"}).status_code for one in owner.others]
    assert answers == [201, 201, 403, 403]  # the last one's key only reads
    url = f"{owner.base.removesuffix('/api/v1')}/throwaway/reset"
    cookie = owner.post("/session", {"api_key": owner.key}).headers["Set-Cookie"]
    for headers in ({}, {"Authorization": "Bearer x"}, {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}):
        fault(requests.post(url, headers=headers, timeout=PATIENCE), 401, "unauthorized")
    said = fault(ask(owner, "GET", "nothing"), 404, "not_found")["message"]
    page = (ROOT / "docs" / "testing.md").read_text()
    documented = re.findall(r"^\| `(\w+ /throwaway/.*?)`", page, re.MULTILINE)
    assert said == f"no such path; there are {', '.join(documented)}"
    for key in owner.read("/keys")["keys"]:
        owner.delete(f"/keys/{key['id']}")
    assert owner.get("/me").status_code == 401
    assert ask(owner, "POST", "reset").status_code == 200
    assert owner.get("/me").status_code == 200
    headers, for_people = {"Authorization": f"Bearer {OWNER_KEY}"}, launch_here()
    for method, path in (("POST", "reset"), ("POST", "faults"), ("GET", "webhooks")):
        assert for_people.call(method, f"/throwaway/{path}", headers=headers).status_code == 404


def test_a_seed_repeats_a_workspace_and_a_reset_its_baseline(begun_once, owner, begin, tmp_path):
    database, _ = begun_once
    own, settings = content(database), {"TASKS_BOOTSTRAP__API_KEY": OWNER_KEY}
    with begin("--seed", "7", "--today", "2026-01-05", **settings) as process:
        second = client(process.stdout.readline())
        assert second.key == OWNER_KEY
        (database,) = tmp_path.glob("temporary/*/tasks.db")
        other = content(database)
        ask(second, "POST", "clock", advance="2h")
        second.make_task(second.make_project())
        assert set(seen(second, "diff")) == {"project", "task"}
        assert ask(second, "POST", "baseline").json()["data"] == {"baseline": True}
        assert seen(second, "diff") == {}
        start = content(database)
        ask(second, "POST", "clock", advance="3h")
        later = second.make_project()
        ask(second, "POST", "reset")
        assert content(database) == start
        assert later["created_at"] > second.make_project()["created_at"] > now(7000)
        second.session.close()
    for rows in own, other:
        for name in ("webhook", "invitation"):  # of the present time
            del rows[name]
        rows["activity"].pop()  # the link to sign in
        # Hidden entries, here of milestones, are pruned: they are many months old.
        rows["activity"] = [row for row in rows["activity"] if "milestone" not in row]
    assert own == other
    dates = [task["due_date"][:7] for task in owner.read("/tasks")["tasks"] if task["due_date"]]
    assert set(dates) <= {"2025-12", "2026-01", "2026-02"}


def test_the_diff_names_changes_without_times_and_ids(owner):
    told = []
    for _ in range(2):
        ask(owner, "POST", "reset")
        assert seen(owner, "diff") == {}
        project = owner.make_project(name="Of mine")
        task = owner.make_task(project, title="Ship", due_date="2026-12-01T12:00:00Z")
        owner.post(f"/tasks/{task['id']}/comments", {"content": "Hm"})
        owner.patch("/tasks/3", {"title": "Other"})
        owner.delete("/tasks/4")
        told.append(seen(owner, "diff"))
    assert told[0] == told[1]
    kinds = [f"{kind} {' '.join(actions)}" for kind, actions in told[0].items()]
    assert sorted(kinds) == ["comment created", "project created", "task changed deleted created"]
    (changed,), (deleted,), (created,) = told[0]["task"].values()
    assert (changed["number"], [*changed["changes"]], changed["title"]) == (3, ["title"], "Other")
    assert deleted["changes"]["number"] == [4, None]
    new = {name: new for name, (_, new) in created["changes"].items()}
    assert [new["number"], new["project_id"], new["created_by"]] == [201, "Of mine", "Owner"]
    assert not new.keys() & {"id", "search", "label_keys", "version", "created_at", "updated_at"}
    (comment,) = told[0]["comment"]["created"]
    assert comment["changes"]["task_id"] == [None, "Ship"]


def test_the_journal_has_the_requests_with_their_answers_the_newest_first_until_a_reset(owner):
    project = owner.make_project(name="Noted")
    cause(owner, match="POST /api/v1/tasks", status=503)
    body = {"project_id": project["id"], "title": "T"}
    owner.post("/tasks", body)
    cause(owner, match="POST /api/v1/tasks", drop="after")
    with pytest.raises(requests.ConnectionError):
        owner.post("/tasks", body)
    owner.post("/tasks", body | {"description": "x" * 40_000})
    listed = owner.get("/projects", status="active")
    requests.post(f"{owner.base}/tasks", b"no JSON", headers={"Authorization": "Bearer x"}, timeout=PATIENCE)
    font = requests.get(owner.base.replace("/api/v1", "/static/any/inter.woff2"), timeout=PATIENCE)
    assert font.content == (ROOT / "static" / "inter.woff2").read_bytes()
    answer = ask(owner, "GET", "requests")
    assert owner.key not in answer.text
    file, last, got, long, dropped, failed, *_, first = answer.json()["data"]["requests"]
    assert (first["method"], first["path"], first["status"]) == ("POST", "/api/v1/projects", 201)
    assert (first["body"], first["answer"]["data"]) == ({"name": "Noted"}, project)
    assert (failed["status"], failed["body"]) == (503, body)
    assert (dropped["status"], dropped["body"], dropped["answer"]) == (None, body, None)
    assert len(long["body"]) == 32 * 1024
    assert (got["path"], got["answer"]) == ("/api/v1/projects?status=active", listed.json())
    assert (last["status"], last["body"]) == (401, "no JSON")
    assert (file["status"], file["answer"]) == (200, None)
    ask(owner, "POST", "reset")
    assert seen(owner, "requests") == {"requests": []}
    with requests.Session() as session:
        assert all(session.get(f"{owner.base}/health", timeout=PATIENCE).ok for _ in range(501))
    assert len(seen(owner, "requests")["requests"]) == 500


def test_expiry_and_due_dates_follow_the_clock_and_a_reset_sets_it_back(owner):
    project = owner.make_project()
    owner.make_task(project, due_date=now(86400))
    claimed = owner.make_task(project)
    owner.post(f"/tasks/{claimed['id']}/claim", {"minutes": 60})
    made = owner.make("/keys", {"name": "short", "expires_at": now(3600)})
    short = Client(owner.base, made["api_key"])
    cookie = owner.post("/session", {"api_key": owner.key}).headers["Set-Cookie"]

    def seen_now():
        """How many are late, and whether the key and the session are valid."""
        signed_in = {"Cookie": cookie, "X-Requested-With": "x"}
        session = requests.get(f"{owner.base}/me", headers=signed_in, timeout=PATIENCE)
        late = owner.read(f"/projects/{project['id']}")["stats"]["overdue"]
        return late, short.get("/me").status_code, session.status_code

    assert seen_now() == (0, 200, 200)
    told = ask(owner, "POST", "clock", advance="3d").json()["data"]["now"]
    assert now(3 * 86400 - 60) < told <= now(3 * 86400)
    assert seen_now() == (1, 401, 200)
    wait_until(lambda: owner.read(f"/tasks/{claimed['id']}")["status"] == "todo")
    assert owner.make_task(project)["created_at"] >= told
    ask(owner, "POST", "clock", advance="30d")
    assert seen_now() == (1, 401, 401)
    ask(owner, "POST", "reset")
    assert owner.make_project()["created_at"] <= now()
    for wrong in ("3", "0d", "-1d", "3 d", "1000000d", 3):
        error = fault(ask(owner, "POST", "clock", advance=wrong), 422, "validation_error", "advance")
        assert wrong == 3 or "must be 1 to 99999 with s, m, h or d" in error["message"]
    for _ in range(3):
        assert ask(owner, "POST", "clock", advance="99999d").json()["data"]["now"] < "2127"


def test_deliveries_come_twice_late_unordered_and_badly_signed_and_a_reset_forgets_them(begin, receiver):
    hook = {"name": "mine", "url": receiver.url, "secret": "the secret", "events": ["task.created"]}
    settings = {"TASKS_WEBHOOKS": json.dumps([hook]), "TASKS_DELIVERY__RETRY_SCHEDULE": "[3600]"}
    with begin(**settings) as process:
        owner = client(process.stdout.readline())
        project = owner.make_project()

        def arrived(*made, count=2):
            """The titles as they come, of tasks of one request: it sends all before one comes again."""
            tasks = [{"project_id": project["id"], "title": title} for title in made]
            owner.make("/tasks/batch", {"tasks": tasks})
            return [receiver.next().event["data"]["task"]["title"] for _ in range(count)]

        cause(owner, match="POST *", webhook="twice")
        assert arrived("one", "two", count=3) == ["one", "one", "two"]
        cause(owner, match=f"POST {receiver.url}", webhook="out_of_order")
        assert arrived("first", "second") == ["second", "first"]
        cause(owner, match="POST *", webhook="late")
        assert arrived("third", "fourth") == ["third", "fourth"]
        cause(owner, match="POST *", webhook="wrong_signature")
        owner.make_task(project)
        call = receiver.next()
        with pytest.raises(WebhookVerificationError):
            Webhook(b"the secret").verify(call.body, call.headers)
        receiver.answers = [503]
        owner.make_task(project)
        again = receiver.next()
        ask(owner, "POST", "clock", advance="2h")
        assert receiver.next().body == again.body
        Webhook(b"the secret").verify(again.body, again.headers)  # whose time is the real one
        wait_until(lambda: not owner.read("/deliveries", status="pending")["deliveries"])
        assert len(inbox(owner)) == 8

        def reset_and_fail(_):
            ask(owner, "POST", "reset")
            return 503

        receiver.answer = reset_and_fail
        owner.make_task(project)
        names = {one["name"]: one["failures"] for one in owner.read("/webhooks")["webhooks"]}
        assert names == {"inbox": 0, "mine": 0}
        assert owner.read("/deliveries")["deliveries"] == []
        owner.session.close()
