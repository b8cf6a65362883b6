"""Each error of the contract, the order in which a request is refused, and what is outside the API."""

import json
import resource
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import product

import pytest
import requests
from harness import NOBODY, OWNER_KEY, PATIENCE, add_copies, fault, hook, invoke, wait_until
from test_metrics import figures

import limits
import wire

NEEDS_SOCKET = False
JSON = {"Content-Type": "application/json"}


def test_a_request_is_refused_for_its_first_fault(server, owner, task):
    reader = server.client(invoke(server, "key", "create", "--scope", "read").stdout.strip())
    stranger, path = server.client(None), f"/tasks/{task['id']}"
    large, text = b" " * (1024 * 1024 + 1), {"Content-Type": "text/plain"}
    stale, unkeyed = JSON | {"If-Match": '"9"'}, JSON | {"Idempotency-Key": ""}
    for client, method, address, body, headers, status, code in (
        (stranger, "PATCH", "/nowhere", large, text, 401, "unauthorized"),
        (reader, "PATCH", "/nowhere", large, text, 404, "not_found"),
        (reader, "POST", path, large, text, 405, "method_not_allowed"),
        (reader, "PATCH", path, large, text, 403, "forbidden"),
        (owner, "PATCH", path, large, text, 415, "unsupported_media_type"),
        (owner, "PATCH", path, large, JSON, 413, "payload_too_large"),
        (owner, "PATCH", path, b'{"title": "x"}', stale, 412, "precondition_failed"),
    ):
        fault(client.request(method, address, data=body, headers=headers), status, code)
    for nothing, (method, rest, body, headers, status, code) in product(
        (f"/tasks/{NOBODY}", "/tasks/999999"),
        (
            ("PATCH", "", b"{}", text, 415, "unsupported_media_type"),
            ("PATCH", "", large, JSON, 413, "payload_too_large"),
            ("PATCH", "", b"{", stale, 400, "invalid_json"),
            ("PATCH", "", b'{"colour": 1}', stale, 422, "validation_error"),
            ("PATCH", "", b"{}", stale, 404, "not_found"),
            ("POST", "/attachments", b"{}", JSON, 415, "unsupported_media_type"),
            ("POST", "/comments", b"{", stale, 400, "invalid_json"),
            ("POST", "/comments", b'{"content": "x"}', stale, 422, "validation_error"),
            ("POST", "/comments", b'{"content": "x"}', unkeyed, 422, "validation_error"),
            ("POST", "/comments", b'{"content": "x"}', JSON, 404, "not_found"),
            ("GET", "/comments?colour=1", None, {}, 422, "validation_error"),
            ("GET", "/comments", None, {}, 404, "not_found"),
            ("DELETE", "?colour=1", None, {}, 422, "validation_error"),
            ("DELETE", "", None, {}, 404, "not_found"),
            ("DELETE", f"/comments/{NOBODY}", None, {}, 404, "not_found"),
        ),
    ):
        answer = owner.request(method, nothing + rest, data=body, headers=headers)
        fault(answer, status, code)


def test_outside_the_api_is_a_plain_404(server):
    paths = ("/static", "/favicon.ico", "/api", "/api/v2/tasks", "/api/v10", "/apiv1")
    for path in (*paths, "/plugins/x", "/enroll/x/y"):
        answer = server.call("GET", path)
        assert answer.status_code == 404, path
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "<" not in answer.text


def test_a_path_that_begins_with_more_slashes_is_the_apis_too(alone):
    owner, right, wrong = alone.client(), f"Bearer {OWNER_KEY}", "Bearer tms_wrong"
    place = f"/tasks/{owner.make_task(owner.make_project())['id']}"
    cases = [("GET", place, wrong, 401), ("DELETE", place, None, 401), ("GET", "/nowhere", None, 401)]
    cases += [("GET", "/health", wrong, 401), ("GET", place, right, 200), ("GET", "/nowhere", right, 404)]
    for slashes, (method, path, key, status) in product(("//", "///", "/%2F"), cases):
        url = f"{alone.base}{slashes}api/v1{path}"
        answer = requests.request(method, url, headers={"Authorization": key}, timeout=PATIENCE)
        assert (answer.status_code, "meta" in answer.json()) == (status, True), url


@pytest.fixture(scope="module")
def alone(launch_module):
    """A server without its sweeper, which writes too: it notes when keys were used, and prunes."""
    return launch_module(TASKS_DELIVERY__SWEEPER="false")


@pytest.fixture(scope="module")
def impatient(launch_module, shared_receiver):
    """A server that waits a second, instead of ten, for a database that another program has locked."""
    hooks = json.dumps([hook(shared_receiver)])
    settings = {"BOUND_LOCK_SECONDS": "1", "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "1"}
    return launch_module(TASKS_WEBHOOKS=hooks, **settings)


def another_program(server):
    """A connection to the server's database."""
    return closing(sqlite3.connect(server.database, isolation_level=None, check_same_thread=False))


def test_a_database_that_stays_locked_is_unavailable_for_writes_and_not_for_reads(impatient):
    owner = impatient.client()
    with another_program(impatient) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = owner.post("/projects", {"name": "x"})
        fault(answer, 503, "unavailable")
        assert answer.headers["Retry-After"] == "5"
        assert f"{answer.json()['meta']['request_id']}: 503: " in impatient.log.read_text()
        assert owner.get("/context").status_code == 200
        assert owner.get("/tasks", sort="updated_at").status_code == 200
    owner.make_project()


def test_a_delivery_whose_result_cannot_be_stored_is_made_again_and_is_no_bug(impatient, shared_receiver):
    """`Server.stop` finds what is logged as a bug."""
    owner, receiver = impatient.client(), shared_receiver
    project = owner.make_project()
    with another_program(impatient) as other:

        def lock(_):
            receiver.answer = lambda _: 200
            other.execute("BEGIN IMMEDIATE")
            return 200

        receiver.answer = lock
        answer = owner.post("/tasks", {"project_id": project["id"], "title": "x"})
        assert (answer.status_code, answer.headers["x-webhook-deliveries"]) == (201, "delivered=0; pending=1")
        assert "deliveries are left pending" in impatient.log.read_text()
    first, again = receiver.next(), receiver.next()
    assert (first.body, first.headers["webhook-id"]) == (again.body, again.headers["webhook-id"])


def test_a_result_that_cannot_be_stored_holds_its_caller_no_longer_than_the_budget(launch, receiver):
    settings = {"BOUND_LOCK_SECONDS": "600", "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "1"}
    server = launch(TASKS_WEBHOOKS=json.dumps([hook(receiver)]), **settings)
    project = server.client().make_project()
    with another_program(server) as other:
        receiver.answer = lambda _: other.execute("BEGIN IMMEDIATE") and 200
        answer = server.client().post("/tasks", {"project_id": project["id"], "title": "x"})
        assert answer.headers["x-webhook-deliveries"] == "delivered=0; pending=1"
        receiver.answer = lambda _: 200


def test_writers_that_wait_for_a_locked_database_leave_threads_to_readers(alone):
    """More writers than there are threads: eight wait, the others are refused, and reads go on."""
    answers = []

    def work():
        answers.append(alone.client().post("/projects", {"name": "x"}))

    with ThreadPoolExecutor(20) as pool, another_program(alone) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(20):
            pool.submit(work)
        wait_until(lambda: len(answers) == 12)
        assert alone.client().get("/context").status_code == 200
        assert alone.client(None).get("/health").status_code == 200
        assert len(answers) == 12
    assert [answer.status_code for answer in answers] == [503] * 12 + [201] * 8


def limit_files(server, size):
    """Let the server's files not become larger, as a quota would; None for no limit."""
    (worker,) = server.children()
    hard = resource.prlimit(worker, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def test_a_full_disk_is_unavailable_and_leaves_nothing_behind(alone):
    owner = alone.client()
    project = owner.make_project()
    body = {"project_id": project["id"], "title": "x", "metadata": {"a": "x" * 60_000}}
    limit_files(alone, alone.database.stat().st_size + 512 * 1024)
    answers = [owner.post("/tasks", body) for _ in range(20)]
    accepted = [answer.json()["data"]["id"] for answer in answers if answer.status_code == 201]
    assert 0 < len(accepted) < 20
    for answer in (answer for answer in answers if answer.status_code != 201):
        fault(answer, 503, "unavailable")
    listed = owner.read("/tasks", project_id=project["id"], limit=100)
    assert {task["id"] for task in listed["tasks"]} == set(accepted)
    assert listed["pagination"]["total"] == len(accepted)
    limit_files(alone, None)
    owner.make_task(project)


def test_a_log_that_has_filled_its_space_is_merged_so_that_writes_go_on(alone):
    owner = alone.client()
    task = owner.make_task(owner.make_project())
    alone.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    limit_files(alone, alone.database.stat().st_size + 512 * 1024)
    answers = [owner.patch(f"/tasks/{task['id']}", {"title": f"T{number}"}) for number in range(100)]
    limit_files(alone, None)
    refused = [answer for answer in answers if answer.status_code != 200]
    for answer in refused:
        fault(answer, 503, "unavailable")
    assert 0 < len(refused) < 10  # no more than one each time that the log is full


def test_health_says_since_when_writes_are_refused(alone):
    owner = alone.client()
    owner.make_project()

    def since():
        return owner.read("/health")["checks"]["writes_refused_since"]

    limit_files(alone, alone.database.with_name("tasks.db-wal").stat().st_size)
    refused = owner.post("/projects", {"name": "x"})
    fault(refused, 503, "unavailable")
    first = since()
    assert owner.post("/projects", {"name": " "}).status_code == 422
    assert owner.get("/tasks", sort="updated_at").status_code == 200  # which takes the turn to write
    limit_files(alone, 0)
    fault(owner.post("/projects", {"name": "x"}), 503, "unavailable")
    assert first == since() <= refused.json()["meta"]["timestamp"]
    limit_files(alone, None)
    owner.make_project()
    assert since() is None


def test_a_bug_is_an_internal_error_that_tells_nothing_but_where_to_look(launch):
    server = launch()
    server.allow_bugs = True
    server.rows("ALTER TABLE whiteboard RENAME TO elsewhere")
    answer = server.call("GET", "/api/v1/context", headers={"Authorization": f"Bearer {OWNER_KEY}"})
    error, log = fault(answer, 500, "internal_error"), server.log.read_text()
    assert figures(server)["unavailable_total",] == 0
    assert "whiteboard" not in answer.text
    assert "no such table: whiteboard" in log
    for said in (error["message"], log):
        assert answer.json()["meta"]["request_id"] in said


def test_a_condition_with_a_date_that_is_none_means_nothing(server):
    date = f"Wed, 21 Oct 2015 07:28:00 +{'9' * 20}"
    for path in ("/static/x/page.css", "/api/v1/docs/swagger-ui.css"):
        whole = server.call("GET", path).content
        for headers in ({"If-Modified-Since": date}, {"If-Range": date, "Range": "bytes=0-9"}):
            answer = server.call("GET", path, headers=headers)
            assert (answer.status_code, answer.content) == (200, whole)


def test_no_more_requests_wait_for_a_slot_than_there_are_slots():
    slots = limits.Slots(2, 2, PATIENCE)
    assert slots.acquire("a") and slots.acquire("b")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(slots.acquire, key) for key in "cd"]
        wait_until(lambda: slots._waiting == 2)
        assert not slots.acquire("e")  # at once: the others still wait
        assert not any(one.done() for one in waiting)
        slots.release("a")
        slots.release("b")
    assert all(one.result() for one in waiting)
    slots.release("c")
    slots.release("d")
    assert not slots._counts  # no key stays in memory


def test_a_read_that_takes_too_long_is_refused_and_says_what_helps(launch_here, monkeypatch):
    server = launch_here()
    owner, me = server.client(), server.client().member["id"]
    task = owner.make_task(owner.make_project())
    add_copies(server, task, 5_000)
    assert owner.get("/tasks", q="zzz").status_code == 200
    monkeypatch.setattr(limits, "SEARCH_SECONDS", 0.0)
    answer = owner.get("/tasks", q="zzz")
    assert "add filters" in fault(answer, 503, "unavailable")["message"]
    assert "Retry-After" not in answer.headers  # the same search would take as long again
    monkeypatch.setattr(wire.searches, "pause", 0.0)
    assert wire.searches.acquire("another") and wire.searches.acquire("another")
    assert not wire.searches.acquire("another")
    monkeypatch.setattr(limits, "SEARCH_SECONDS", 9.0)
    assert owner.get("/tasks", q="zzz").status_code == 200  # one of two places is left
    assert wire.searches.acquire(me) and wire.searches.acquire(me)
    for path in ("/tasks?q=zzz", "/activity?action=moved"):
        refused = owner.get(path)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, str(limits.WAIT_AGAIN))
    soon_found = "/tasks?limit=1", "/activity", f"/activity?action=moved&task={task['id']}"
    for path in soon_found:
        assert owner.get(path).status_code == 200
    for id in ("another", "another", me, me):
        wire.searches.release(id)
