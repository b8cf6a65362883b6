"""Each error of the contract, the order in which a request is refused, and what is outside the API."""

import json
import resource
import sqlite3
import threading
from contextlib import closing
from functools import partial

import pytest
import requests
from harness import NOBODY, OWNER_KEY, PATIENCE, fault, hook, wait_until
from peewee import DatabaseError
from werkzeug.test import Client

import limits
from app import create_app
from database import ApiError, db, is_outage, new_id, prepare
from models import ApiKey, Member, Project, Task, write
from wire import PathError

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def reader(server):
    return server.client(server.flask("key", "create", "--scope", "read").stdout.strip())


def test_a_request_is_refused_for_its_first_fault(server, owner, task, reader):
    stranger, path = server.client(None), f"/tasks/{task['id']}"
    large, text, broken = b" " * (1024 * 1024 + 1), {"Content-Type": "text/plain"}, b"{"
    wrong = b'{"colour": 1}'
    nothing = f"/tasks/{NOBODY}"
    stale = {"If-Match": '"9"'}
    steps = [
        (stranger, "PATCH", "/nowhere", large, text, 401, "unauthorized"),
        (reader, "PATCH", "/nowhere", large, text, 404, "not_found"),
        (reader, "POST", path, large, text, 405, "method_not_allowed"),
        (reader, "PATCH", path, large, text, 403, "forbidden"),
        (owner, "PATCH", path, large, text, 415, "unsupported_media_type"),
        (owner, "PATCH", path, large, JSON, 413, "payload_too_large"),
        (owner, "PATCH", nothing, broken, JSON | stale, 400, "invalid_json"),
        (owner, "PATCH", nothing, wrong, JSON | stale, 422, "validation_error"),
        (owner, "PATCH", nothing, b"{}", JSON | stale, 404, "not_found"),
        (owner, "PATCH", path, b'{"title": "x"}', JSON | stale, 412, "precondition_failed"),
    ]
    for client, method, address, body, headers, status, code in steps:
        fault(client.request(method, address, data=body, headers=headers), status, code)


def test_forbidden_says_which_role_would_do(join):
    error = fault(join("client").post("/projects", {"name": "x"}), 403, "forbidden")
    assert error["message"] == "your role is client; this takes owner or admin or member"


def test_every_code_is_one_of_the_documented(server):
    documented = {
        *("invalid_json", "unauthorized", "forbidden", "not_found", "method_not_allowed", "conflict", "gone"),
        *("precondition_failed", "payload_too_large", "unsupported_media_type", "validation_error"),
        *("request_timeout", "unavailable", "rate_limited", "idempotency_key_reused", "internal_error"),
    }
    assert {error.code for error in ApiError.__subclasses__()} | set(PathError.CODES.values()) <= documented


@pytest.mark.parametrize(
    "path", ["/static", "/favicon.ico", "/api", "/api/v2/tasks", "/api/v10", "/apiv1", "/plugins/x"]
)
def test_outside_the_api_is_a_plain_404(server, path):
    answer = requests.get(server.base + path, timeout=PATIENCE)
    assert answer.status_code == 404
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "<" not in answer.text


@pytest.mark.parametrize("slashes", ["//", "///", "/%2F"])
def test_a_path_that_begins_with_more_slashes_is_the_apis_too(server, task, slashes):
    def ask(method, path, key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{server.base}{slashes}api/v1{path}"
        answer = requests.request(method, url, headers=headers, timeout=PATIENCE)
        assert answer.json()["meta"]["request_id"]
        return answer.status_code

    assert ask("GET", "/tasks") == 401
    assert ask("GET", f"/tasks/{task['id']}", "tms_wrong") == 401
    assert ask("DELETE", f"/tasks/{task['id']}") == 401
    assert ask("GET", "/nowhere") == 401
    assert ask("GET", "/health", "tms_wrong") == 401
    assert ask("GET", f"/tasks/{task['id']}", OWNER_KEY) == 200
    assert ask("GET", "/nowhere", OWNER_KEY) == 404


# A server without its sweeper, which writes too: it notes when keys were used, and prunes after the start.
ALONE = {"TASKS_DELIVERY__SWEEPER": "false"}


def test_a_database_that_stays_locked_is_unavailable_for_writes_and_not_for_reads(launch):
    server = launch(**ALONE)
    owner = server.client()
    with closing(sqlite3.connect(server.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = owner.post("/projects", {"name": "x"})
        fault(answer, 503, "unavailable")
        assert answer.headers["Retry-After"] == "5"
        assert f"{answer.json()['meta']['request_id']}: 503: database is locked" in server.log.read_text()
        assert owner.get("/context").status_code == 200
        other.execute("ROLLBACK")
    owner.make_project()


def test_a_delivery_whose_result_cannot_be_stored_is_made_again_and_is_no_bug(launch, receiver):
    server = launch(TASKS_WEBHOOKS=json.dumps([hook(receiver)]))
    owner = server.client()
    project = owner.make_project()
    connect = partial(sqlite3.connect, server.database, isolation_level=None, check_same_thread=False)
    with closing(connect()) as other:

        def lock(_):
            receiver.answer = lambda _: 200
            other.execute("BEGIN IMMEDIATE")
            return 200

        receiver.answer = lock
        answer = owner.post("/tasks", {"project_id": project["id"], "title": "x"})
        assert answer.status_code == 201
        assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
        other.execute("ROLLBACK")
    first, again = receiver.next(), receiver.next()
    assert (first.body, first.headers["webhook-id"]) == (again.body, again.headers["webhook-id"])
    assert "Traceback" not in server.log.read_text()


def test_writers_that_wait_for_a_locked_database_leave_threads_to_readers(launch):
    """More writers than there are threads: eight wait, the others are refused, and reads go on."""
    server = launch(**ALONE)
    project = server.client().make_project()
    answers, threads = [], []

    def work():
        answers.append(server.client().post("/tasks", {"project_id": project["id"], "title": "x"}))

    with closing(sqlite3.connect(server.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(20):
            threads.append(threading.Thread(target=work))
            threads[-1].start()
        wait_until(lambda: len(answers) == 12)
        assert server.client().get("/context").status_code == 200
        assert server.client(None).get("/health").status_code == 200
        assert len(answers) == 12
        other.execute("ROLLBACK")
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [503] * 12 + [201] * 8


def test_a_full_disk_is_unavailable_and_leaves_nothing_behind(launch):
    """The limit on pages stands in for a disk, at each point at which a change may need another page."""
    server = launch(**ALONE)
    owner = server.client()
    project = owner.make_project()
    accepted = [owner.make_task(project, metadata={"a": "x" * 60_000})]
    server.stop()
    pages = server.rows("PRAGMA page_count")[0]["page_count"]
    server.environment["PYTHONPATH"] = str(server.folder)
    # Each connection of the server is limited as it is opened.
    (server.folder / "sitecustomize.py").write_text(
        "import sqlite3\nreal = sqlite3.connect\n"
        "def connect(*arguments, **options):\n"
        "    connection = real(*arguments, **options)\n"
        f"    connection.execute('PRAGMA max_page_count = {pages + 40}')\n"
        "    return connection\n"
        "sqlite3.connect = connect\n"
    )
    server.start()
    owner = server.client()
    body = {"project_id": project["id"], "title": "x", "metadata": {"a": "x" * 30_000}}
    answers = [owner.post("/tasks", body) for _ in range(20)]
    accepted += [answer.json()["data"] for answer in answers if answer.status_code == 201]
    refused = [answer for answer in answers if answer.status_code != 201]
    assert len(accepted) > 1
    assert refused
    for answer in refused:
        fault(answer, 503, "unavailable")
    listed = owner.data(owner.get("/tasks", limit=100))
    assert {task["id"] for task in listed["tasks"]} == {task["id"] for task in accepted}
    assert listed["pagination"]["total"] == len(accepted)
    server.stop()
    (server.folder / "sitecustomize.py").unlink()
    server.start()
    server.client().make_task(project)


def limit_files(server, size):
    """Let the server's files not become larger, as a quota would; None for no limit."""
    (worker,) = server.children()
    hard = resource.prlimit(worker, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def test_a_log_that_has_filled_its_space_is_merged_so_that_writes_go_on(launch):
    server = launch(**ALONE)
    owner = server.client()
    task = owner.make_task(owner.make_project())
    log = server.database.with_name("tasks.db-wal")
    limit_files(server, log.stat().st_size + 1024 * 1024)
    answers = [owner.patch(f"/tasks/{task['id']}", {"title": f"T{number}"}) for number in range(200)]
    refused = [answer for answer in answers if answer.status_code != 200]
    for answer in refused:
        fault(answer, 503, "unavailable")
    assert 0 < len(refused) < 10  # no more than one each time that the log is full


def test_health_says_since_when_writes_are_refused(launch):
    server = launch(**ALONE)
    owner = server.client()
    owner.make_project()

    def since():
        return owner.data(owner.get("/health"))["checks"]["writes_refused_since"]

    limit_files(server, server.database.with_name("tasks.db-wal").stat().st_size)
    refused = owner.post("/projects", {"name": "x"})
    fault(refused, 503, "unavailable")
    first = since()
    assert owner.post("/projects", {"name": " "}).status_code == 422
    limit_files(server, 0)
    fault(owner.post("/projects", {"name": "x"}), 503, "unavailable")
    assert first == since() <= refused.json()["meta"]["timestamp"]
    limit_files(server, None)
    owner.make_project()
    assert since() is None


def test_a_result_of_a_delivery_that_cannot_be_stored_is_no_bug(hooked, receiver):
    """`Server.stop` finds what is logged as a bug."""
    owner = hooked.client()
    project = owner.make_project()
    log = hooked.database.with_name("tasks.db-wal")

    def answer(call):
        limit_files(hooked, log.stat().st_size)
        return 200

    receiver.answer = answer
    created = owner.post("/tasks", {"project_id": project["id"], "title": "T"})
    limit_files(hooked, None)
    owner.data(created, 201)
    assert created.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
    assert "deliveries are left pending" in hooked.log.read_text()


def test_a_bug_is_an_internal_error_that_tells_nothing_but_where_to_look(launch):
    server = launch()
    server.allow_bugs = True
    server.rows("ALTER TABLE whiteboard RENAME TO elsewhere")
    answer = requests.get(
        f"{server.base}/api/v1/context", headers={"Authorization": f"Bearer {OWNER_KEY}"}, timeout=PATIENCE
    )
    error = fault(answer, 500, "internal_error")
    assert "whiteboard" not in answer.text
    assert answer.json()["meta"]["request_id"] in error["message"]
    log = server.log.read_text()
    assert "no such table: whiteboard" in log
    assert answer.json()["meta"]["request_id"] in log


@pytest.mark.parametrize("path", ["/static/board.css", "/api/v1/docs/swagger-ui.css"])
def test_a_condition_with_a_date_that_is_none_means_nothing(server, path):
    date = f"Wed, 21 Oct 2015 07:28:00 +{'9' * 20}"
    whole = requests.get(server.base + path, timeout=PATIENCE).content
    for headers in ({"If-Modified-Since": date}, {"If-Range": date, "Range": "bytes=0-9"}):
        answer = requests.get(server.base + path, headers=headers, timeout=PATIENCE)
        assert (answer.status_code, answer.content) == (200, whole)


def test_a_read_that_takes_too_long_is_refused_and_says_what_helps(tmp_path, monkeypatch):
    app = create_app(server={"database": str(tmp_path / "tasks.db")})
    prepare()
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        ApiKey.issue(transaction, owner["id"], name="k", key=OWNER_KEY)
        project = Project.add(transaction, name="P")
        task = Task.add(transaction, project_id=project["id"], title="T", folded={"title": "t"}) | {
            "search": "t"
        }
        Task.insertion.run_many(task | {"id": new_id()} for _ in range(20_000))
    client = Client(app)
    headers = {"Authorization": f"Bearer {OWNER_KEY}"}
    assert client.get("/api/v1/tasks?q=zzz", headers=headers).status_code == 200
    monkeypatch.setattr(limits, "QUERY_SECONDS", 0.0)
    db.disconnect()
    answer = client.get("/api/v1/tasks?q=zzz", headers=headers)
    db.close()
    assert answer.status_code == 503
    assert "Retry-After" not in answer.headers  # the same search would take as long again
    assert "filter by more" in answer.json["error"]["message"]
    assert client.get("/api/v1/tasks?limit=1", headers=headers).status_code == 200  # which is soon found


def test_a_file_that_is_no_database_any_more_is_an_outage(tmp_path):
    path = tmp_path / "tasks.db"
    path.write_bytes(b"no database " * 1000)
    db.init(str(path))
    with pytest.raises(DatabaseError) as raised:
        db.execute_sql("SELECT 1")
    assert is_outage(raised.value)
