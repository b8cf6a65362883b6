"""The fixtures: servers, clients, receivers and pages, which are ended after the tests that use them."""

import gc
import os

import pytest

pytest.register_assert_rewrite("harness", "board")  # before they are imported, so that failures show values

from board import come_back, leave, reader  # noqa: E402
from harness import CHROMIUM, OWNER_KEY, PATIENCE, PATIENT, Document, Local, Server, hook, launcher, receivers  # noqa: E402
from playwright.sync_api import Error, sync_playwright  # noqa: E402
from watch import run_watched  # noqa: E402

from database import db  # noqa: E402
from store import prepare  # noqa: E402

# The files that take longest, which go first, so that at the end no process waits for another one.
LONGEST = ["clients", "page", "board_task", "board_page", "board_screens", "board_order"]
LONGEST += ["board_views", "board_records", "board_today", "board_week", "docs_page", "mail"]
LONGEST += ["retries", "throwaway"]
LONGEST += ["waiting", "oauth", "slow_clients", "database", "board_phone", "commands", "deleted"]
LONGEST += ["undo", "secrets", "listen", "deploy", "client_projects", "sweeper", "readme", "startup"]
LONGEST += ["transfer", "serving", "formats", "changes", "bad_input", "config", "deliveries"]
LONGEST += ["tools_clients", "docs", "backup", "repeat", "core", "tools_brief", "query_plans", "openapi"]

# A notice that stays for 6 s stays for a minute: a busy machine may take long to come to its button.
SLOWED = """(({ setTimeout }) => {
    window.setTimeout = (call, ms, ...rest) => setTimeout(call, ms > 5000 ? 10 * ms : ms, ...rest);
})(window);"""


def pytest_configure(config):
    Server.forks = True
    gc.freeze()  # what is imported stays, and need not be looked at again
    if hasattr(config.option, "loadscopereorder"):  # xdist would begin with the files that hold most tests
        config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    if not hasattr(config, "workerinput"):  # not in the processes of xdist
        run_watched()


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help="leave out pages, servers, other programs, and what is long"
    )


def is_quick(item):
    """Whether a test needs neither another program nor a socket of the service."""
    sockets = {"server", "launch", "launch_module", "browser"} & {*item.fixturenames}
    if not getattr(item.module, "NEEDS_SOCKET", True):
        sockets -= {"server"}
    return not sockets and not item.get_closest_marker("skipif")


def pytest_itemcollected(item):
    """Only one file of `make test` needs a browser; CONTRIBUTING.md says why."""
    if "browser" in item.fixturenames and item.path.stem != "test_page":
        item.add_marker("long")


def pytest_collection_modifyitems(config, items):
    places = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    if config.getoption("quick"):
        items[:] = [item for item in items if is_quick(item) and item.path.stem not in places]
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def is_whole(config):
    """Whether all tests run but the long ones."""
    chosen = config.args_source != pytest.Config.ArgsSource.TESTPATHS or config.option.keyword
    return not chosen and not config.getoption("quick") and config.option.markexpr == "not long"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    described, seen = getattr(node, "workeroutput", {}).get("answers", ((), ()))
    Document.described.update(described)
    Document.seen.update(seen)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """A run of all tests fails if the document describes an answer that none has had."""
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["answers"] = [*Document.described], [*Document.seen]
    elif is_whole(session.config) and Document.described - Document.seen:
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if is_whole(config):
        for answer in sorted(Document.described - Document.seen):
            terminalreporter.write_line(f"No test has had the answer {answer}", red=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where everything can be installed, a skipped test is a failure."""
    report = yield
    item.has_failed = report.failed  # for `sign_in`
    if report.skipped and os.environ.get("SKIPS_FAIL") and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def no_server_stays():
    """End the servers that a failed test has left running."""
    yield
    for server in Server.started:
        if server.process and server.process.poll() is None:
            server.kill()


@pytest.fixture
def launch(tmp_path):
    """Start servers of this test's own."""
    yield from launcher(tmp_path)


@pytest.fixture(scope="module")
def launch_module(tmp_path_factory):
    """Start servers that a file's tests share."""
    yield from launcher(tmp_path_factory.mktemp("servers"))


@pytest.fixture
def launch_here(tmp_path):
    """Have applications in this process, with settings of this test's own."""
    yield from launcher(tmp_path, Local)


@pytest.fixture(scope="module")
def launch_here_module(tmp_path_factory):
    """Have applications in this process that a file's tests share."""
    yield from launcher(tmp_path_factory.mktemp("servers"), Local)


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    """The server that a file's tests share, each with a project of its own; no other file writes to it.

    A file with `NEEDS_SOCKET = False` has the application in this process.
    """
    make = Server if getattr(request.module, "NEEDS_SOCKET", True) else Local
    server = make(tmp_path_factory.mktemp("server"), TASKS_LIMITS__TOOL_CALLS_PER_MINUTE="0").start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def owner(server):
    return server.client()


@pytest.fixture(scope="module")
def join(server):
    """Make members of that server; `Server.join` says how."""
    return server.join


@pytest.fixture(scope="module")
def bot(server):
    """An agent of that server."""
    return server.agent("Bot")


@pytest.fixture
def ana(join):
    return join(full_name="Ana Lima")


@pytest.fixture(scope="session")
def browser():
    """A real Chromium without a window."""
    if not CHROMIUM:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, timeout=PATIENCE * 1000)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def profile(browser, server):
    """The browser's profile that a file's tests share; it ends before the server, which waits for it.

    Its empty tab stays open, since Chromium ends processes with the last one, which take a second to start.
    """
    profile = browser.new_context(locale="en-GB")
    profile.new_page()
    yield profile
    profile.close()


@pytest.fixture(scope="module")
def faults():
    """The failures in the tabs of a test."""
    return []


@pytest.fixture
def browse(request, browser, faults, launch):
    """Open tabs, in which nothing may fail; they are closed before the servers that the test has launched."""
    pages = []

    def judge(said, page, refusals):
        # That the page itself is a refusal is not a fault of what is on it.
        refusal = said.text.startswith("Failed to load") and (refusals or said.location["url"] == page.url)
        if said.type in ("error", "warning") and not refusal:
            faults.append(f"{said.location['url']}: {said.text}")

    def open_page(*, refusals=False, own=False, stays=False, **options):
        """With `refusals`, calls that the page makes may be refused, or not reach the server.

        The tab is in the shared profile, or `own` or with options in a new one, which a server that the test
        launched needs: it waits for connections, which Chromium keeps as long as a profile. The caller
        closes a tab that `stays`.
        """
        own = own or stays or options
        shared = None if own else request.getfixturevalue("profile")
        page = shared.new_page() if shared else browser.new_page(**{"locale": "en-GB", **options})
        if not stays:
            pages.append(page)
        page.set_default_timeout(PATIENCE * 1000)
        page.add_init_script(SLOWED)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: judge(said, page, refusals))
        return page

    yield open_page
    for page in pages:
        page.close()
    seen, faults[:] = [*faults], []
    assert seen == []


@pytest.fixture
def project(owner):
    return owner.make_project()


@pytest.fixture
def milestone(owner, project):
    return owner.make(f"/projects/{project['id']}/milestones", {"title": "M"})


@pytest.fixture
def task(owner, project):
    return owner.make_task(project)


@pytest.fixture(scope="module")
def tabs(browser, server):
    """The tabs that a file's tests have left, each in a profile of its own, with its key."""
    tabs = []
    yield tabs
    for tab, _ in tabs:
        tab.close()


@pytest.fixture
def sign_in(request, browse, server, tabs):
    """Open the page in a profile of its own, signed in with a key, and wait until all is shown.

    It may be a tab that an earlier test has left: one with this key, or else one of another member, which is
    loaded again. A test needs its `own` if it replaces what scripts find, such as the clock.
    """
    used = {}

    def take(key):
        """Take such a tab from `tabs`, or open one. Return whether the key is signed in there."""
        same = [one for one in tabs if one[1] == key]
        members = [one for one in tabs if OWNER_KEY not in (key, one[1])]
        for found in [*same, *members][:1]:
            tabs.remove(found)
            return found[0], bool(same)
        return browse(refusals=True, stays=True, reduced_motion="reduce"), False

    def open_page(key=OWNER_KEY, address="", base=server.base, *, own=False, **options):
        is_own = own or options or base != server.base
        tab, is_signed_in = (browse(refusals=True, own=True, **options), False) if is_own else take(key)
        if not is_own:
            used[tab] = key, ""
        if is_signed_in:
            come_back(tab, address)
        else:
            start(tab, key, base, address)
        if not is_own:
            used[tab] = key, reader(tab)
        return tab

    def start(tab, key, base, address):
        tab.context.clear_cookies()
        answer = tab.request.post(f"{base}/api/v1/session", data={"api_key": key})  # which sets the cookie
        assert answer.status == 201
        tab.goto("about:blank")  # where nothing asks any longer for what the next page waits for
        with tab.expect_response("**/changes?*"):  # as soon as all is shown it asks what has changed since
            tab.goto(f"{base}/{address}")

    yield open_page
    for tab, (key, member) in used.items():
        try:
            is_left = not request.node.has_failed and leave(tab, member)
        except Error:  # it shows no page of ours
            is_left = False
        tabs.append((tab, key)) if is_left else tab.close()


@pytest.fixture
def board(sign_in, project):
    """The board of a new project, as its owner sees it."""
    return sign_in(address=f"#project={project['id']}")


@pytest.fixture
def database(tmp_path):
    """This process's own database, apart from any server's."""
    db.init(str(Server.make_database(tmp_path / "unit" / "tasks.db")), timeout=5)
    prepare()
    yield db
    db.close()


@pytest.fixture
def new_receiver():
    """Make receivers, which are down until told."""
    yield from receivers()


@pytest.fixture(scope="module")
def make_receiver():
    """Make receivers that a file's tests share."""
    yield from receivers()


@pytest.fixture(scope="module")
def shared_receiver(make_receiver):
    """A receiver that is up, for all tests of a file."""
    return make_receiver().up()


@pytest.fixture
def receiver(new_receiver):
    """A receiver that is up."""
    return new_receiver().up()


@pytest.fixture
def hooked(launch, receiver):
    """A server that sends every event to the receiver, with the secret `a-secret`, on a slow machine too.

    A refused delivery is not tried again while a test looks at it.
    """
    return launch(hooks=[hook(receiver)], **PATIENT)
