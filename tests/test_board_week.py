"""A week of a team that does all of it on the page, each member in a browser's profile of their own."""

import re
from urllib.parse import urlsplit

import board as ui
import pytest
from harness import Server, invoke
from playwright.sync_api import expect

PHONE = {"viewport": {"width": 375, "height": 812}, "has_touch": True}


@pytest.fixture
def prepared(launch, tmp_path):
    """A server whose workspace `init` has made, and the link that it printed."""
    folder = tmp_path / "week"
    link = re.search(r"\S+/enroll/\S+", invoke(Server(folder), "init").stdout)[0]
    return launch(folder=folder), link


@pytest.fixture
def enter(prepared, browse):
    """Open a link in a new profile, and press its button."""

    def open_page(link, words, **options):
        page = browse(own=True, refusals=True, **options)
        page.goto(prepared[0].base + urlsplit(link).path)
        with page.expect_response("**/changes?*"):
            page.get_by_role("button", name=re.compile(f"^{words}")).click()
        title = page.get_by_role("heading", level=1)
        expect(title).to_have_text(re.compile("Today|All projects"))
        ui.view(page, "Board")
        expect(title).to_have_text("All projects")
        return page

    return open_page


def invite(page, name, role):
    ui.press(page, "Invite")
    form = page.get_by_role("dialog", name="Invite")
    if role == "client":
        ui.pick(form, "Role", "Client")
        ui.choice(form, "Sees").click()
        page.get_by_role("option", name="Launch").click()
        page.keyboard.press("Escape")
    ui.fill_in(form, {"E-mail": f"{role}@example.com", "Name": name, "Role": role.capitalize()})
    link = ui.secret(page, f"Invitation for {name}")
    expect(page.get_by_role("heading", name="Invited")).to_be_visible()
    return link


def test_a_team_works_from_its_first_link_to_its_last_day_on_the_page_alone(prepared, enter):
    page = enter(prepared[1], "Sign in to")
    # The project and its milestone
    ui.press(page, "Create the first project")
    ui.fill_in(page.get_by_role("dialog", name="New project"), {"Name": "Launch"}, "Create project")
    expect(page.get_by_role("heading", level=1)).to_have_text("Launch")
    page.get_by_role("link", name="Milestones and settings").click()
    ui.press(page, "New milestone")
    fields = {"Title": "Beta", "Due date": "2099-12-01"}
    ui.fill_in(page.get_by_role("dialog", name="New milestone"), fields)
    expect(ui.row(page, "Beta")).to_contain_text("1 Dec 2099")
    # The people
    ui.view(page, "People")
    links = [invite(page, name, role) for name, role in [("Mia Meier", "member"), ("Carl Cole", "client")]]
    mia, carl = [enter(link, "Join") for link in links]
    # The tasks
    ui.refresh(page)
    expect(page.get_by_role("heading", name="Clients")).to_be_visible()
    ui.view(page, "Board")
    fields = {"Title": "Write the manual", "Assignee": "Mia Meier", "Milestone": "Beta"}
    ui.fill_in(ui.new_task(page), fields, "Create task")
    expect(ui.card(page, "Write the manual", "To do").get_by_role("img", name="Mia Meier")).to_be_visible()
    page.get_by_label("New task in Review").fill("Check the prices")
    page.keyboard.press("Enter")
    expect(ui.card(page, "Check the prices", "Review")).to_be_visible()
    dialog = ui.opened(page, "Check the prices")
    ui.pick(dialog, "Assignee", "Olga Owner")
    ui.pick(dialog, "Milestone", "Beta")
    ui.save(dialog, {"Description": "All **twelve**"})
    expect(dialog.get_by_text("Saved.", exact=True)).to_be_visible()
    ui.press(dialog, "Close")
    ui.refresh(mia, "Write the manual")
    ui.choose(mia, "Write the manual", "In progress")
    expect(ui.card(mia, "Write the manual", "In progress")).to_be_visible()
    ui.comment(ui.opened(mia, "Write the manual"), "Half of it is done")
    # The client
    dialog = ui.opened(carl, "Write the manual")
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text("Half of it is done")
    ui.comment(dialog, "Looking *good*")
    expect(dialog.get_by_role("list", name="Comments").get_by_role("listitem")).to_have_count(2)
    expect(dialog.get_by_label("Assignee")).to_be_disabled()
    ui.press(dialog, "Close")
    expect(carl.get_by_role("button", name=re.compile("New task|New project|^Move"))).to_have_count(0)
    ui.refresh(mia)
    expect(mia.get_by_role("dialog").get_by_role("list", name="Comments")).to_contain_text("Carl Cole")
    ui.press(mia.get_by_role("dialog"), "Close")
    # A meeting
    ui.view(page, "Meetings")
    ui.press(page, "New meeting")
    dialog = page.get_by_role("dialog", name="New meeting")
    ui.choice(dialog, "Participants").click()
    page.get_by_role("option", name="Mia Meier").click()
    page.keyboard.press("Escape")
    expect(ui.choice(dialog, "Participants")).to_contain_text("Mia Meier")
    fields = {"Title": "Retro", "Starts": "2099-11-30T10:00", "Place or link": "https://meet.example/retro"}
    ui.fill_in(dialog, fields)
    ui.view(mia, "Meetings")
    expect(ui.row(mia, "Retro").get_by_role("img", name="Olga Owner")).to_be_visible()
    place = ui.row(mia, "Retro").get_by_role("link", name="Join at meet.example")
    expect(place).to_have_attribute("href", "https://meet.example/retro")
    # The end
    ui.view(mia, "Board")
    ui.choose(mia, "Write the manual", "Done")
    expect(ui.card(mia, "Write the manual", "Done")).to_be_visible()
    ui.view(page, "Board")
    ui.refresh(page)
    page.get_by_role("link", name="Milestones and settings").click()
    expect(ui.row(page, "Beta").get_by_role("link", name="1 of 2 tasks done")).to_be_visible()
    ui.view(mia, "Activity")
    done = mia.locator("li.entry")
    expect(done.filter(has_text=re.compile(r"Carl Cole commented on #\d+ Write the manual"))).to_have_count(1)
    moved = done.filter(has_text=re.compile(r"Mia Meier changed #\d+ Write the manual.*moved to Done"))
    expect(moved).to_have_count(1)
    ui.press(page, "Archive")
    expect(ui.notice(page)).to_contain_text("Launch is archived.")
    ui.press(ui.notice(page), "Undo")
    ui.press(page, "Archive")
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    ui.view(page, "Board")
    ui.press(page.locator("main"), "Unarchive")
    expect(page.get_by_role("button", name="New task")).to_be_visible()
    # A phone
    ui.press(mia, "You: Mia Meier")
    mia.get_by_role("link", name="Your account").click()
    ui.press(mia, "Make a sign-in link")
    phone = enter(mia.get_by_label("Sign-in link").input_value(), "Sign in to", **PHONE)
    ui.link(phone, "Check the prices").tap()
    expect(phone.get_by_role("dialog", name="Check the prices").locator("strong")).to_have_text("twelve")
    # Somebody leaves
    ui.view(page, "People")
    ui.drop(page, "Remove: Carl Cole")
    expect(ui.row(page, "Carl Cole")).to_have_count(0)
    ui.refresh(carl)
    expect(carl.locator(".fault")).to_contain_text("You are signed out")
    expect(ui.column(carl, "To do")).to_have_count(0)
