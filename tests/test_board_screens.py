"""Each view and dialog of the page on narrow and wide screens, which are light or dark."""

import re

import board as ui
from harness import ROOT
from playwright.sync_api import expect


def test_each_view_and_dialog_is_fit_for_every_screen_and_reader(sign_in, owner, project, milestone):
    owner.make_task(project, title="W" * 200, priority="urgent", due_date="2020-01-02")
    task = owner.make_task(project, title="Talk", priority="high", due_date="2099-01-02")
    owner.make(f"/tasks/{task['id']}/comments", {"content": "x" * 300})
    page = sign_in()
    script = (ROOT / "static" / "page.js").read_text()
    found = re.findall(r'^  "?(\w*)"?: { title: "(.+?)"', script, re.MULTILINE)
    views = dict(found) | {"": project["name"], "project": project["name"]}
    assert len(views) == len(found) >= 11
    for view, title in views.items():
        ui.show(page, f"view={view}&project={project['id']}")
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.locator(".page [aria-busy=true]")).to_have_count(0)
        ui.check_page(page)
        assert page.evaluate(ui.AUDIT, ui.CONTRAST) == []  # with what only wide screens have room for
        for form in (
            page.locator("main")
            .get_by_role("button", name=re.compile("^(Invite|New (key|meeting|mile|note))"))
            .all()
        ):
            form.click()
            ui.check_page(page)
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_have_count(0)
    ui.show(page, f"project={project['id']}")
    page.get_by_label("More for “Talk”").click()
    ui.check_page(page)
    page.keyboard.press("Escape")
    ui.user_menu(page)
    ui.check_page(page)
    page.keyboard.press("Escape")
    dialog = ui.opened(page, "Talk")
    ui.check_page(page)
    ui.press(dialog, "Close")
    for button in ("New task", "New project", "Find"):
        ui.press(page, button)
        ui.check_page(page)
        page.keyboard.press("Escape")
    ui.view(page, "Activity")
    ui.pick(page, "Person", "Olga Owner")
    page.get_by_role("button", name=re.compile("^Undo what")).click()
    ui.check_page(page)
    page.keyboard.press("Escape")
    ui.press(ui.user_menu(page), "Sign out")
    expect(page.get_by_text("Sign in with an API key")).to_be_visible()
    ui.check_page(page)


def test_what_shows_only_at_times_is_fit_for_dark_screens(sign_in, launch):
    server = launch()
    owner = server.client()
    page = sign_in(base=server.base)
    ui.show(page, "view=")
    expect(ui.link(page, "Invite your team")).to_be_visible()
    ui.check_page(page, [ui.DARK])
    owner.make("/whiteboards", {"title": "Plan", "content": {"text": "Look at `make`:\n\n> *Now*"}})
    ui.show(page, "view=whiteboards")
    ui.press(page, "Plan")
    expect(page.get_by_role("dialog", name="Plan")).to_be_visible()
    ui.check_page(page, [ui.DARK])
    page.keyboard.press("Escape")
    ui.show(page, "view=people")
    ui.press(page, "Invite")
    ui.fill_in(page.get_by_role("dialog"), {"E-mail": "tom@example.com", "Name": "Tom Toll"})
    expect(page.get_by_role("dialog", name="Invitation for Tom Toll")).to_be_visible()
    ui.check_page(page, [ui.DARK])
    ui.press(page.get_by_role("dialog"), "Close")
    owner.data(owner.post("/agents/stop", {"reason": "They loop."}))
    ui.refresh(page)
    expect(page.get_by_text("They loop.")).to_be_visible()
    ui.check_page(page, [ui.DARK])
