"""The page in Chromium: what a first load, a change by another person and an idle tab cost the server."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import servers
from figures import at_most, markdown
from harness import CHROMIUM, OWNER_KEY, Client
from operations import Workspace

LOADS = 5  # of each view, each with an empty cache
CHANGES = 20  # in each view
PACE = 0.6  # seconds from one change to the next
IDLE = 60  # seconds
FIRST_LOAD = {"requests": None, "KiB": 250, "CPU ms": 100}
CHANGE = {"requests": 3, "KiB": None, "CPU ms": 6}
IDLE_MINUTE = {"requests": None, "KiB": None, "CPU ms": 60}
MISSING = "" if CHROMIUM else "Chromium is not installed"


class Tab:
    """A tab of a browser with an empty cache. It counts its requests and the bytes of their responses."""

    def __init__(self, browser: Any, base: str, address: str):
        self.page = browser.new_page(locale="en-GB")
        self.page.request.post(f"{base}/api/v1/session", data={"api_key": OWNER_KEY})
        self.requests, self.bytes = 0, 0
        network = self.page.context.new_cdp_session(self.page)
        network.on("Network.requestWillBeSent", self._send)
        network.on("Network.loadingFinished", self._receive)
        network.send("Network.enable")
        # The page sends this when it has loaded everything.
        with self.page.expect_request("**/changes?*wait=*"):
            self.page.goto(f"{base}/{address}")

    def _send(self, event: dict) -> None:
        self.requests += event["request"]["url"].startswith("http")

    def _receive(self, event: dict) -> None:
        self.bytes += event["encodedDataLength"]

    def pass_time(self, seconds: float) -> None:
        """Let this time pass, and handle what the browser reports."""
        self.page.wait_for_timeout(max(seconds, 0) * 1000)


class Meter:
    """The requests, bytes and processor time of the worker for what is done inside `measuring`."""

    def __init__(self, worker: int):
        self.worker, self.requests, self.bytes, self.cpu = worker, 0, 0, 0.0

    @contextmanager
    def measuring(self, tab: Tab | None = None) -> Iterator[None]:
        before = servers.cpu_seconds(self.worker)
        requests, received = (tab.requests, tab.bytes) if tab else (0, 0)
        yield
        self.cpu += servers.cpu_seconds(self.worker) - before
        if tab:
            self.requests += tab.requests - requests
            self.bytes += tab.bytes - received

    def row(self, name: str, count: float, targets: dict, cpu_without: float = 0) -> list[str]:
        """Return the cells of a table: the figures for one of `count`, without the time `cpu_without`."""
        figures = (self.requests, self.bytes / 1024, (self.cpu - cpu_without) * 1000)
        cells = [
            at_most(figure / count, target) for figure, target in zip(figures, targets.values(), strict=True)
        ]
        return [name, *cells]


def table(bench: Any) -> None:
    """Measure the page of an owner, while another member makes the changes."""
    if MISSING:
        bench.write(f"\nThe page: not measured, {MISSING}.")
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only this table needs it

    workspace = bench.service(bench.options.tasks)
    other = workspace.server.join()
    projects = other.data(other.get("/projects?status=active"))["projects"]
    project = max(projects, key=lambda one: one["stats"]["total"])["id"]
    views = {
        "Today": "",
        "My tasks": "#view=mine",
        "a project’s board": f"#project={project}",
        "the board of all": "#",
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        rows = first_loads(workspace, browser, views)
        rows += changes(workspace, browser, views, other, project)
        rows.append(idle(workspace, browser))
        browser.close()
    bench.write(markdown(f"The page, {bench.options.tasks} tasks", ["what", *FIRST_LOAD], rows))


def first_loads(workspace: Workspace, browser: Any, views: dict[str, str]) -> list[list[str]]:
    rows, server = [], workspace.server
    Tab(browser, server.base, "").page.context.close()  # the server prepares its files and statements
    for name, address in views.items():
        meter = Meter(server.worker)
        for _ in range(LOADS):
            with meter.measuring():
                tab = Tab(browser, server.base, address)
            tab.pass_time(PACE)
            meter.requests += tab.requests
            meter.bytes += tab.bytes
            tab.page.context.close()
        rows.append(meter.row(f"first load: {name}", LOADS, FIRST_LOAD))
    return rows


def changes(
    workspace: Workspace, browser: Any, views: dict[str, str], other: Client, project: str
) -> list[list[str]]:
    """Let the other member move tasks: one that each view shows, and one that none has loaded."""
    server, owner = workspace.server, workspace.server.client()
    waiting = {"project_id": project, "status": "todo", "sort": "rank"}
    first = other.data(other.get("/tasks", **waiting, limit=1))
    last = other.data(other.get("/tasks", **waiting, limit=1, offset=first["pagination"]["total"] - 1))
    me = owner.data(owner.get("/me"))["member"]["id"]
    due = {"assignee_id": me, "due_date": "2020-01-01", "before": first["tasks"][0]["number"]}
    near = other.data(other.patch(f"/tasks/{first['tasks'][0]['id']}/details", due))
    rows = []
    for what, task in (("a shown task", near), ("a task further down", last["tasks"][0])):
        move = mover(other, task["id"])
        alone = Meter(server.worker)
        repeat(move, alone)
        for name, address in views.items():
            tab, meter = Tab(browser, server.base, address), Meter(server.worker)
            tab.pass_time(PACE)
            repeat(move, meter, tab)
            rows.append(meter.row(f"{name}: {what} moves", CHANGES, CHANGE, alone.cpu))
            tab.page.context.close()
    return rows


def mover(client: Client, task: str) -> Callable[[], Any]:
    """Return a function that moves a task to In progress, then back, and so on."""
    statuses = itertools.cycle(("in_progress", "todo"))
    return lambda: client.data(client.patch(f"/tasks/{task}", {"status": next(statuses)}))


def repeat(change: Callable[[], Any], meter: Meter, tab: Tab | None = None) -> None:
    """Make changes at an even pace, so that measurements with and without a tab take the same time."""
    with meter.measuring(tab):
        for _ in range(CHANGES):
            ends_at = time.monotonic() + PACE
            change()
            if tab:
                tab.pass_time(ends_at - time.monotonic())
            else:
                time.sleep(max(ends_at - time.monotonic(), 0))


def idle(workspace: Workspace, browser: Any) -> list[str]:
    server = workspace.server
    servers.wait_until_idle(server.worker)
    alone, meter = Meter(server.worker), Meter(server.worker)
    with alone.measuring():
        time.sleep(IDLE)
    tab = Tab(browser, server.base, "")
    tab.pass_time(PACE)
    with meter.measuring(tab):
        tab.pass_time(IDLE)
    return meter.row("an idle tab, a minute", IDLE / 60, IDLE_MINUTE, alone.cpu)
