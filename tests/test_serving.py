"""gunicorn: the log, signals, several workers, proxies in front, and many clients at once."""

import contextlib
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import requests
from harness import OWNER_KEY, PATIENCE, ROOT, at_once, fault, invoke, wait_until

ROUTE = """
[server]
trusted_proxies = {proxies}

[plugins.entries.webhooks.config.routes.x]
sessionKey = "agent:main"
secret = "s3cret"

[plugins.entries.webhooks.config.limits]
requests = 1
"""


def test_the_log_has_one_line_per_request_with_the_prefix_of_the_key_alone(server, owner):
    id = owner.get("/tasks?q=secret-words").headers["X-Request-Id"]
    wrong = server.client("tms_wrong-key").get("/tasks").headers["X-Request-Id"]
    log = server.log.read_text()
    instant = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    (line,) = [line for line in log.splitlines() if id in line]
    who = f"{owner.member['id']} {OWNER_KEY[:12]}"
    assert re.fullmatch(rf"{instant} GET /api/v1/tasks 200 \d+\.\dms {id} {who} 127.0.0.1", line)
    (line,) = [line for line in log.splitlines() if wrong in line]
    assert re.fullmatch(rf"{instant} GET /api/v1/tasks 401 \d+\.\dms {wrong} - - 127.0.0.1", line)
    assert not [secret for secret in (OWNER_KEY, "tms_wrong-key", "secret-words") if secret in log]


def test_a_log_that_cannot_be_written_stops_nothing(launch):
    fill = "import os; full = os.open('/dev/full', os.O_WRONLY); os.dup2(full, 1); os.dup2(full, 2)"
    server = launch(first=partial(exec, fill, {}))
    owner = server.client()
    assert owner.make_task(owner.make_project())
    with server.replacing():
        server.process.send_signal(signal.SIGHUP)
    assert owner.get("/tasks").status_code == 200
    assert server.stop() == 0


def test_ctrl_c_ends_it_after_what_is_under_way(launch):
    server = launch()
    project = server.client().make_project()
    created = []

    def work():
        client = server.client()
        with contextlib.suppress(requests.ConnectionError):  # the server has gone
            while True:
                created.append(client.make_task(project)["id"])

    pool = ThreadPoolExecutor(4)
    workers = [pool.submit(work) for _ in range(4)]
    wait_until(lambda: len(created) >= 20)
    server.process.send_signal(signal.SIGINT)  # in another test it is SIGTERM
    assert server.process.wait(PATIENCE) == 0
    for worker in workers:
        worker.result()
    server.process = None
    assert set(created) <= {row["id"] for row in server.rows("SELECT id FROM task")}


def test_workers_leave_when_their_master_was_killed_also_if_clients_go_on(launch):
    server = launch("--graceful-timeout", "3600")
    (worker,) = wait_until(server.children)
    client = server.client()
    client.get("/me")
    server.process.kill()
    server.process.wait()
    server.process = None

    def has_gone():
        with contextlib.suppress(requests.ConnectionError):
            client.get("/me")
        return not Path(f"/proc/{worker}").exists()

    wait_until(has_gone)


@pytest.fixture(scope="module")
def two_workers(launch_module):
    return launch_module(WEB_CONCURRENCY="2")


def test_the_master_closes_the_database_before_it_forks(two_workers):
    # SQLite's locks belong to a process, and processes must not share connections.
    def opens(pid):
        links = set()
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links.add(os.path.realpath(file))
        return links

    database = os.path.realpath(two_workers.database)
    wait_until(lambda: any(database in opens(worker) for worker in two_workers.children()))
    assert database not in opens(two_workers.process.pid)


def test_two_workers_share_one_database(two_workers):
    server = two_workers
    wait_until(lambda: len(server.children()) == 2)
    project = server.client().make_project()

    def work():
        client = server.client()
        task = client.make_task(project)
        for status in ("review", "done", "todo", "done"):
            assert client.patch(f"/tasks/{task['id']}", {"status": status}).status_code == 200

    at_once(*[work] * 8)
    stats = server.client().read(f"/projects/{project['id']}")["stats"]
    assert (stats["total"], stats["done"]) == (8, 8)
    assert "in order" in invoke(server, "doctor").stdout


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@pytest.mark.skipif(CORES < 2, reason="this machine has one core, or does not tell how many")
def test_a_worker_that_replaces_another_takes_the_core_that_is_free(two_workers):
    def cores():
        """The cores of the workers, as soon as two of them are pinned."""
        pinned = [os.sched_getaffinity(worker) for worker in two_workers.children()]
        return len(pinned) == 2 and all(len(found) == 1 for found in pinned) and set.union(*pinned)

    for worker in (0, 1, 0):
        assert len(wait_until(cores)) == 2
        before = two_workers.children()
        os.kill(before[worker], signal.SIGKILL)
        wait_until(lambda before=before: len(set(two_workers.children()) - set(before)) == 1)
    assert len(wait_until(cores)) == 2


@pytest.mark.parametrize(("proxies", "second"), [(0, 429), (1, 200), (2, 429)])
def test_the_client_of_a_trusted_proxy_is_who_the_proxy_says(launch_here, capfd, proxies, second):
    """A window of one request for each address tells whose address is counted."""
    server = launch_here(config=ROUTE.format(proxies=proxies))

    def ask(forwarded):
        headers = dict.fromkeys(("X-Forwarded-For", "X-Real-IP"), forwarded)
        headers["Authorization"], action = "Bearer s3cret", {"action": "list_flows"}
        return server.call("POST", "/plugins/webhooks/x", json=action, headers=headers).status_code

    assert ask("192.0.2.1") == 200
    assert ask("192.0.2.2") == second
    told = {line.split()[-1] for line in capfd.readouterr().out.splitlines() if " POST " in line}
    assert told == ({"192.0.2.1", "192.0.2.2"} if proxies == 1 else {"127.0.0.1"})
    assert ask("192.0.2.1") == 429
    assert ask("192.0.2.1:49152") == 429  # of another connection
    # An address that the client adds counts for nothing.
    assert ask("203.0.113.9, 192.0.2.1") == (200 if proxies == 2 else 429)
    ask("203.0.113.9 -, \xe9 200")
    assert capfd.readouterr().out.split()[-1] == ("127.0.0.1", "??200", "203.0.113.9?-")[proxies]


def test_headers_do_not_change_what_is_asked(owner):
    others = dict.fromkeys(("X-Original-URL", "X-Rewrite-URL"), "/api/v1/health")
    for headers in (others | {"X-Forwarded-Prefix": "/x"}, {"SCRIPT_NAME": "/foo"}, {"SCRIPT_NAME": "/api"}):
        assert owner.request("GET", "/me", headers=headers).status_code == 200
        fault(owner.request("GET", "/nowhere", headers=headers), 404, "not_found")


PAUSE = """
import signal
from pathlib import Path

own = post_fork
graceful_timeout = 1000

def post_fork(server, worker):
    own(server, worker)
    if Path({pausing!r}).exists():
        Path({paused!r}).touch()
        signal.pause()
"""


def test_a_stop_also_ends_a_worker_that_has_no_handlers_yet(launch, tmp_path):
    """gunicorn tells a worker once, and ends one that has not noticed after `graceful_timeout`."""
    pausing, paused = tmp_path / "pausing", tmp_path / "paused"
    settings = tmp_path / "gunicorn.conf.py"
    pause = PAUSE.format(pausing=str(pausing), paused=str(paused))
    settings.write_text((ROOT / "gunicorn.conf.py").read_text() + pause)
    server = launch("-c", settings)
    pausing.touch()
    os.kill(server.children()[0], signal.SIGKILL)
    wait_until(paused.exists)
    assert server.stop() == 0
