"""The page in Chromium: what first loads, changes by others and idle tabs cost the server and the browser."""

import itertools
import re
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
CARDS = 828  # in one column
HOUR = 600  # changes by others
FIRST_LOAD = {"requests": 40, "KiB": 200, "CPU ms": 100}
CHANGE = {"requests": 3, "KiB": None, "CPU ms": 6}
LONGEST_MS, HEAP_MB = 100, 1  # a task of the browser; what an hour adds
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
        work = long_column(workspace, browser, project) + [hour(workspace, browser, other, project)]
        browser.close()
    bench.write(markdown(f"The page, {bench.options.tasks} tasks", ["what", *FIRST_LOAD], rows))
    bench.write(markdown("The browser", ["what", "longest task, ms", "seconds", "cards", "heap, MB"], work))


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


WATCH = """new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest ?? 0, duration);
}).observe({ type: "longtask" })"""


def long_column(workspace: Workspace, browser: Any, project: str) -> list[list[str]]:
    """Do with a column of many cards what people do, and return the longest task of the browser for each."""
    page = Tab(browser, workspace.server.base, f"#project={project}").page
    page.evaluate(WATCH)
    cards, toolbar = page.locator("[data-status=todo] .card"), page.get_by_role("toolbar")

    def scroll() -> None:
        while (shown := cards.count()) < CARDS and page.locator("[data-status=todo] .more").count():
            page.locator("[data-status=todo]").evaluate("(one) => one.scrollTo(0, one.scrollHeight)")
            cards.nth(shown).wait_for(state="attached")

    def select() -> None:
        cards.nth(5).locator(".title").press("x")
        toolbar.wait_for()

    def move() -> None:
        cards.nth(7).locator(".title").press("s")
        page.keyboard.type("review")
        page.keyboard.press("Enter")
        page.locator("[data-status=review] :focus").wait_for()

    def open_task() -> None:
        cards.nth(9).locator(".title").click()
        page.locator(".task-body[aria-busy=false]").wait_for()
        page.keyboard.press("Escape")
        page.locator("dialog").wait_for(state="detached")

    def select_all() -> None:
        cards.first.locator(".title").press("Control+a")
        toolbar.get_by_text(re.compile("[0-9]{3} selected")).wait_for()
        page.keyboard.press("Escape")

    rows = []
    for name, act in {
        "scroll a column to its end": scroll,
        "select a card by a key": select,
        "move a card by keys": move,
        "open and close a task": open_task,
        "select the column": select_all,
    }.items():
        page.evaluate("window.longest = 0")
        begun = time.monotonic()
        act()
        page.wait_for_timeout(PACE * 1000)  # for what follows
        longest = page.evaluate("window.longest")
        seconds = f"{time.monotonic() - begun - PACE:.1f}"
        rows.append([name, at_most(longest, LONGEST_MS), seconds, str(cards.count()), ""])
    page.context.close()
    return rows


def hour(workspace: Workspace, browser: Any, other: Client, project: str) -> list[str]:
    """Return how much the heap of a tab grows by as many changes as others make in an hour."""
    tab = Tab(browser, workspace.server.base, f"#project={project}")
    network = tab.page.context.new_cdp_session(tab.page)
    first = other.data(other.get("/tasks", project_id=project, status="todo", sort="rank", limit=1))
    move = mover(other, first["tasks"][0]["id"])

    def heap() -> float:
        tab.pass_time(2 * PACE)
        network.send("HeapProfiler.collectGarbage")
        return network.send("Runtime.getHeapUsage")["usedSize"] / 1e6

    sizes = []
    for _ in range(2):  # the first half fills what is kept
        for _ in range(HOUR // 2):
            move()
            tab.pass_time(0.05)
        sizes.append(heap())
    tab.page.context.close()
    return [f"{HOUR} changes by others", "", "", "", at_most(sizes[1] - sizes[0], HEAP_MB)]
