"""GET /metrics: what Prometheus reads, of all workers together."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest
from clients import JSON, Line
from harness import OWNER_KEY, ROOT, hook, invoke, wait_until
from prometheus_client.parser import text_string_to_metric_families

PAGE = (ROOT / "deploy" / "README.md").read_text()
TOLD = {*re.findall(r"\w+", " ".join(re.findall(r"^\| (`tasks_[^|]*) \|", PAGE, re.MULTILINE)))}
NAME = 'a "name"\\n\\'


def scrape(server, key=OWNER_KEY):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return server.call("GET", "/metrics", headers=headers)


def figures(server):
    """The value of each sample, by its name and labels."""
    answer = scrape(server)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.text))
    assert {line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")} == TOLD
    assert all(family.documentation and family.type != "unknown" for family in families)
    return {
        (sample.name.removeprefix("tasks_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def server(launch_module, make_receiver):
    """Two workers with a receiver that is up and one that refuses."""
    names = {NAME: make_receiver().up(), "strict": make_receiver().up()}
    names["strict"].answer = lambda call: 400
    hooks = [hook(receiver, name=name) for name, receiver in names.items()]
    settings = {"WEB_CONCURRENCY": "2", "TASKS_LIMITS__REQUESTS_PER_MINUTE": "1000"}
    return launch_module("--timeout", "600", hooks=hooks, **settings)


def test_requests_of_all_workers_are_counted_by_route_and_status(server):
    wait_until(lambda: len(server.children()) == 2)
    before, routes = figures(server), ("GET", "/api/v1/projects/:id")
    owner = server.client()
    project = owner.make_project()
    for _ in range(20):
        owner.connect()  # so that both workers answer some
        owner.get(f"/projects/{project['id']}")
        owner.get("/projects/nothing")
    owner.get("/nowhere/1")
    owner.get("/nowhere/2")
    after = figures(server)
    said = {name: value - before.get(name, 0) for name, value in after.items()}
    assert said["requests_total", *routes, "2xx"] == said["requests_total", *routes, "4xx"] == 20
    assert said["request_seconds_bucket", *routes, "+Inf"] == said["request_seconds_count", *routes] == 40
    assert said["request_seconds_sum", *routes] > 0
    counts = [value for name, value in after.items() if name[:3] == ("request_seconds_bucket", *routes)]
    assert counts == sorted(counts)
    assert said["requests_total", "", "other", "4xx"] == 2
    assert said["requests_total", "GET", "/metrics", "2xx"] == 1
    assert not any("nowhere" in label or "nothing" in label for name in after for label in name)
    assert after["unavailable_total",] == 0
    wait_until(lambda: figures(server)["database_bytes",] == server.database.stat().st_size)
    assert after["log_bytes",] > 0
    assert after["info", owner.get("/health").json()["data"]["version"]] == 1
    with server.replacing():
        for worker in server.children():
            os.kill(worker, signal.SIGKILL)
    assert figures(server)["requests_total", *routes, "2xx"] == after["requests_total", *routes, "2xx"]


def test_threads_are_busy_until_the_request_is_answered_and_each_worker_counts_its_own(server):
    """If two workers shared a part, the busy threads of one would hide the other's."""
    first, second = wait_until(lambda: len(found := server.children()) == 2 and found)
    os.kill(first, signal.SIGSTOP)  # so that the second accepts what comes
    with contextlib.closing(Line(server)) as held:
        try:
            held.send("POST", "/tasks", [JSON, "Content-Length: 9"])
            wait_until(lambda: figures(server)["busy_threads",] >= 2)  # with the one that tells it
            os.kill(first, signal.SIGCONT)
            os.kill(second, signal.SIGSTOP)
            wait_until(lambda: figures(server)["busy_threads",] >= 2)
        finally:
            os.kill(first, signal.SIGCONT)
            os.kill(second, signal.SIGCONT)
    wait_until(lambda: figures(server)["busy_threads",] == 1)  # the one that tells it


def test_deliveries_and_attempts_are_counted_by_webhook(server):
    owner = server.client()
    owner.make_task(owner.make_project())
    said = wait_until(lambda: (found := figures(server)).get(("deliveries", "strict", "pending")) and found)
    assert said["deliveries", "strict", "pending"] == 1
    assert said["oldest_pending_seconds",] > 0
    assert said["delivery_attempts_total", NAME, "delivered"] == 1
    assert said["delivery_attempts_total", "strict", "refused"] >= 1
    server.rows("UPDATE delivery SET status = 'refused' WHERE status = 'pending'")
    said = figures(server)
    assert (said["deliveries", "strict", "pending"], said["deliveries", "strict", "refused"]) == (0, 1)
    assert said["oldest_pending_seconds",] == 0


def test_metrics_need_a_key_of_the_team(server):
    owner = server.client()
    assert scrape(server, None).status_code == scrape(server, "tms_wrong").status_code == 401
    reading = owner.make("/keys", {"name": "prometheus", "scope": "read"})["api_key"]
    assert scrape(server, reading).status_code == 200
    assert "RateLimit" not in scrape(server, reading).headers
    assert scrape(server, server.join("client").key).status_code == 403


def test_the_age_of_the_newest_backup_is_told_there_and_by_doctor(server):
    folder = Path(server.database).with_name("backups")
    assert figures(server)["backup_age_seconds",] < 3600  # of the database
    assert figures(server)["disk_free_bytes",] > 2**20
    assert "backup" not in invoke(server, "doctor").output
    made = "UPDATE schema_migration SET applied = strftime('%Y-%m-%d %H:%M:%f', applied, ?)"
    server.rows(made, "-40 hours")
    assert 40 * 3600 <= figures(server)["backup_age_seconds",] < 41 * 3600
    assert f"problem: no backup yet; create {folder}, and run " in invoke(server, "doctor").output
    server.rows(made, "40 hours")
    folder.mkdir()
    assert f"problem: no backup (*.db) can be seen in {folder}" in invoke(server, "doctor").output
    for name, hours in (("old.db", 100), ("new.db", 40)):
        assert invoke(server, "backup", folder / name).exit_code == 0
        os.utime(folder / name, (time.time() - hours * 3600,) * 2)
    assert 40 * 3600 <= figures(server)["backup_age_seconds",] < 41 * 3600
    assert f"problem: the newest backup in {folder} is 40 hours old" in invoke(server, "doctor").output
    os.utime(folder / "new.db")
    assert f"note: the newest backup in {folder} is 0 hours old" in invoke(server, "doctor").output
    folder.rename(folder.with_name("other disk"))
    folder.symlink_to("not mounted")
    assert f"problem: no backup (*.db) can be seen in {folder}" in invoke(server, "doctor").output
    assert figures(server)["backup_age_seconds",] < 3600
