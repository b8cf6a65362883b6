"""The page at / as its tests use it."""

import re
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from harness import PATIENCE, wait_until
from playwright.sync_api import expect

expect.set_options(timeout=PATIENCE * 1000)
AXE = Axe()


def column(page, title):
    return page.get_by_role("region", name=re.compile(f"^{title}"))


def card(page, title, within=None):
    place = column(page, within) if within else page.locator("main")
    return place.get_by_role("listitem").filter(has=page.get_by_role("link", name=title, exact=True))


def opened(page, title):
    """Open a task from its card, and wait until all of it is loaded."""
    refresh(page)
    link(page, title).click()
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog.locator(".task-body")).to_have_attribute("aria-busy", "false")
    return dialog


def refresh(page, title=None):
    """Let the page look now what has changed, not only when its timer is due, and wait until it has."""
    page.evaluate("""async () => {
        const { refresh } = await import(new URL("refresh.js", document.scripts[0].src));
        await refresh();
    }""")
    if title:
        expect(card(page, title)).to_be_visible()


def show(page, address):
    """Go to another address of the page, as the steps of the browser's history do."""
    page.evaluate("address => { location.hash = address; }", address)


def press(place, name):
    place.get_by_role("button", name=name, exact=True).click()


def stored(owner, task):
    return owner.read(f"/tasks/{task['id']}")


def new_task(page):
    """Open the form for a new task."""
    press(page, "New task")
    return page.get_by_role("dialog", name="New task")


def save(dialog, fields):
    """Type into the fields of an opened task, and save it."""
    if "Description" in fields and not dialog.get_by_label("Description", exact=True).count():
        dialog.get_by_role("button", name=re.compile("Edit description|Add a description")).click()
    for label, text in fields.items():
        if choice(dialog, label).count():  # which is saved at once
            pick(dialog, label, text)
        else:
            dialog.get_by_label(label, exact=True).fill(text)
    if not fields or not choice(dialog, label).count():
        press(dialog, "Save changes")


def choice(place, label):
    """The button that shows what is chosen."""
    return place.get_by_role("combobox", name=label, exact=True)


def pick(place, label, words):
    """Choose by typing, with the keyboard alone; a day as 2026-12-01, which is listed in words."""
    choice(place, label).press("ArrowDown")
    expect(place.get_by_role("combobox", name="Find")).to_be_focused()
    place.get_by_role("combobox", name="Find").fill(words)
    shown = re.compile(words[:4] if re.match(r"\d{4}-", words) else rf"^{re.escape(words)}$")
    expect(place.get_by_role("option", name=shown)).to_have_class(re.compile("current"))
    place.get_by_role("combobox", name="Find").press("Enter")
    expect(choice(place, label)).to_be_focused()


def fill_in(dialog, fields, button="Create"):
    """Fill in the fields of a form, whose choices are named by their words, and send it."""
    for label, text in fields.items():
        is_choice = choice(dialog, label).count()
        field = dialog.get_by_label(re.compile(f"^{re.escape(label)}"))
        pick(dialog, label, text) if is_choice else field.fill(text)
    press(dialog, button)


def view(page, name):
    """Go to a view of the page by the links at its top."""
    page.get_by_role("navigation", name="Views").get_by_role("link", name=name, exact=True).click()
    expect(page.locator("nav [aria-current=page]")).to_have_text(name)


def secret(page, title):
    """Close the dialog that shows a link or key once, and return it."""
    dialog = page.get_by_role("dialog", name=title)
    text = dialog.get_by_label(title).input_value()
    press(dialog, "Close")
    expect(dialog).not_to_be_visible()
    return text


def row(page, name):
    """The row of a list with this name."""
    return page.locator("li.row").filter(has=page.locator("b").get_by_text(name, exact=True))


def comment(dialog, text):
    dialog.get_by_label("New comment").fill(text)
    press(dialog, "Send")


def message(place):
    """The message of a form."""
    return place.locator(".message:not(:empty)")


@contextmanager
def held(page, address):
    """Hold back the answers to an address until the block ends."""
    routes, is_over = [], []
    page.route(address, lambda route: route.continue_() if is_over else routes.append(route))
    yield
    wait_until(lambda: page.evaluate("0") or routes)
    is_over.append(True)
    with page.expect_response(routes[-1].request.url):
        for route in routes:
            route.continue_()


def notice(page):
    return page.locator("#notices").get_by_role("status")


def drop(page, button, place=None):
    """Delete something by its button, and have that sent at once."""
    press(place or page, button)
    with page.expect_response(lambda answer: answer.request.method == "DELETE"):
        press(notice(page).locator(".notice").last, "Dismiss")


def fault(page):
    """The failure at the edge of the page."""
    return page.locator("#notices").get_by_role("alert")


def link(page, title):
    """The link in a view or dialog: the sidebar's projects may have the same names."""
    return page.locator("main, dialog").get_by_role("link", name=title, exact=True)


def find(page, words):
    """Choose in the list that a key or a button has opened, with the keyboard alone."""
    expect(page.get_by_role("combobox", name="Find")).to_be_focused()
    page.keyboard.type(words)
    page.keyboard.press("Enter")


def choose(page, title, status):
    """Move a card by its key."""
    link(page, title).press("s")
    find(page, status)


def unseen(page):
    """Let the page believe that nobody sees it, so that it does not refresh itself any longer."""
    page.evaluate("""() => {
        Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
        document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }""")
    refresh(page)


def seen(page):
    page.evaluate("""() => {
        delete document.visibilityState;
        document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }""")


# Drop the input of a test, and tell whether a tab is as the next test expects it.
FORGET = """async (reader) => {
    if (sessionStorage.getItem("reader") !== reader) return false;
    for (const notice of document.querySelectorAll("#notices [aria-label=Dismiss]")) notice.click();
    for (const name of Object.keys(sessionStorage)) if (name !== "reader") sessionStorage.removeItem(name);
    localStorage.clear();
    await new Promise((drawn) => setTimeout(drawn));
    const left = document.querySelector("dialog[open], :popover-open, .notice, .entrance");
    return !left && String(performance.now).includes("[native code]");
}"""


def reader(tab):
    """The id of the member who has signed in."""
    return tab.evaluate("sessionStorage.getItem('reader')")


def leave(tab, member):
    """Leave nothing of a test in its tab, and return whether that can be. Its event handlers stay."""
    if tab.is_closed():
        return False
    for other in tab.context.pages:
        if other != tab:
            other.close()
    tab.unroute_all()
    tab.context.set_offline(False)
    tab.context.clear_permissions()
    tab.mouse.up()
    tab.mouse.move(0, 0)
    for _ in range(3):  # as a picker in a dialog
        if tab.locator("dialog[open], :popover-open").count():
            tab.keyboard.press("Escape")
    tab.emulate_media(media="null", color_scheme="null", reduced_motion="reduce")
    tab.set_viewport_size({"width": 1280, "height": 720})
    is_left = tab.evaluate(FORGET, member)
    unseen(tab)
    return is_left


def come_back(tab, address):
    """Show this address in a tab that a test has left, as if it were the first one."""
    devtools = tab.context.new_cdp_session(tab)
    devtools.send("Page.resetNavigationHistory")
    devtools.detach()
    show(tab, address or "#view=today")
    seen(tab)
    refresh(tab)
    expect(tab.locator("main [aria-busy=true]")).to_have_count(0)


def enter(page, key):
    """Sign in on the page at / with this key, when the last attempt was answered."""
    expect(page.locator(".entrance details form")).not_to_have_attribute("aria-busy", "true")
    page.locator(".entrance details").evaluate("details => { details.open = true; }")
    page.get_by_label("API key").fill(key)
    press(page, "Sign in")


def me(page):
    """The caller of the page's own calls."""
    return page.evaluate("fetch('api/v1/me').then((answer) => answer.json())")["data"]


def user_menu(page):
    page.locator("#user").click()
    return page.get_by_role("group", name="You")


# It takes for skip links all that begin with # and are scrolled out of sight.
AUDIT = """async (chosen) => {
    const place = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document;
    const rules = { "skip-link": { enabled: false } };
    const options = { rules, resultTypes: ["violations"], preload: false, ...chosen };
    return (await axe.run(place, options)).violations.map(({ id, nodes }) => [id, nodes]);
}"""
PRESSED = "button, .button, [role=option], summary, textarea, nav a, aside a, .menu a, .quiet"
SMALL = f"""[...document.querySelectorAll("{PRESSED}")]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().height < 36)
    .map((one) => one.outerHTML)"""
CONTRAST = {"runOnly": ["color-contrast"]}
RED = "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"


NARROW, DARK, WIDE = ("light", 320), ("dark", 320), ("dark", 1280)


def check_page(page, screens=(NARROW, DARK, WIDE)):
    """On a narrow screen axe-core finds no fault, and no text that is hard to read if that is dark.

    Each button and field is at least 36 pixels high there, and nothing sticks out, nor on a wide one. If a
    dialog is open, axe-core sees the dialog alone: what is behind it has a check of its own.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.axe_script)
    for scheme, width in screens:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no colour is on its way
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate(RED) > 200 if scheme == "light" else page.evaluate(RED) < 50
        assert page.locator("html").evaluate("element => element.scrollWidth <= element.clientWidth")
        if width == 320:
            assert page.evaluate(AUDIT, CONTRAST if scheme == "dark" else {}) == []
            assert page.evaluate(SMALL) == []
