"""A week of a team that does all of it on the page, each member in a browser's profile of their own."""

import re
from urllib.parse import urlsplit

import pytest
from board import (
    card,
    choice,
    choose,
    column,
    comment,
    drop,
    fill_in,
    new_task,
    notice,
    opened,
    pick,
    press,
    refresh,
    row,
    save,
    secret,
    view,
)
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
        with page.expect_response("**/activity?*"):
            page.get_by_role("button", name=re.compile(f"^{words}")).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("All projects")
        return page

    return open_page


def invite(page, name, role):
    press(page, "Invite")
    fields = {"E-mail": f"{role}@example.com", "Name": name, "Role": role.capitalize()}
    fill_in(page.get_by_role("dialog", name="Invite"), fields)
    link = secret(page, f"Invitation for {name}")
    expect(page.get_by_role("heading", name="Invited")).to_be_visible()
    return link


def test_a_team_works_from_its_first_link_to_its_last_day_on_the_page_alone(prepared, enter):
    page = enter(prepared[1], "Sign in to")
    # The project and its milestone
    press(page, "Create the first project")
    fill_in(page.get_by_role("dialog", name="New project"), {"Name": "Launch"}, "Create project")
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text("Launch")
    page.get_by_role("link", name="Milestones and settings").click()
    press(page, "New milestone")
    fields = {"Title": "Beta", "Due date": "2099-12-01"}
    fill_in(page.get_by_role("dialog", name="New milestone"), fields)
    expect(row(page, "Beta")).to_contain_text("1 Dec 2099")
    # The people
    view(page, "People")
    links = [invite(page, name, role) for name, role in [("Mia Meier", "member"), ("Carl Cole", "client")]]
    mia, carl = [enter(link, "Join") for link in links]
    # The tasks
    refresh(page)
    expect(page.get_by_role("heading", name="Clients")).to_be_visible()
    view(page, "Board")
    fields = {"Title": "Write the manual", "Assignee": "Mia Meier", "Milestone": "Beta"}
    fill_in(new_task(page), fields, "Create task")
    expect(card(page, "Write the manual", "To do").get_by_role("img", name="Mia Meier")).to_be_visible()
    page.get_by_label("New task in Review").fill("Check the prices")
    page.keyboard.press("Enter")
    expect(card(page, "Check the prices", "Review")).to_be_visible()
    dialog = opened(page, "Check the prices")
    pick(dialog, "Assignee", "Olga Owner")
    pick(dialog, "Milestone", "Beta")
    save(dialog, {"Description": "All **twelve**"})
    expect(dialog.get_by_text("Saved.", exact=True)).to_be_visible()
    press(dialog, "Close")
    refresh(mia, "Write the manual")
    choose(mia, "Write the manual", "In progress")
    expect(card(mia, "Write the manual", "In progress")).to_be_visible()
    comment(opened(mia, "Write the manual"), "Half of it is done")
    # The client
    dialog = opened(carl, "Write the manual")
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text("Half of it is done")
    comment(dialog, "Looking *good*")
    expect(dialog.get_by_role("list", name="Comments").get_by_role("listitem")).to_have_count(2)
    expect(dialog.get_by_label("Assignee")).to_be_disabled()
    press(dialog, "Close")
    expect(carl.get_by_role("button", name=re.compile("New task|New project|^Move"))).to_have_count(0)
    refresh(mia)
    expect(mia.get_by_role("dialog").get_by_role("list", name="Comments")).to_contain_text("Carl Cole")
    press(mia.get_by_role("dialog"), "Close")
    # A meeting
    view(page, "Meetings")
    press(page, "New meeting")
    dialog = page.get_by_role("dialog", name="New meeting")
    choice(dialog, "Participants").click()
    page.get_by_role("option", name="Mia Meier").click()
    page.keyboard.press("Escape")
    expect(choice(dialog, "Participants")).to_contain_text("Mia Meier")
    fields = {"Title": "Retro", "Starts": "2099-11-30T10:00", "Place or link": "https://meet.example/retro"}
    fill_in(dialog, fields)
    view(mia, "Meetings")
    expect(row(mia, "Retro").get_by_role("img", name="Olga Owner")).to_be_visible()
    place = row(mia, "Retro").get_by_role("link", name="Join at meet.example")
    expect(place).to_have_attribute("href", "https://meet.example/retro")
    # A note
    view(page, "Notes")
    press(page, "New note")
    dialog = page.get_by_role("dialog", name="New note")
    press(dialog, "Add a text")
    fill_in(dialog, {"Title": "Ideas", "Text": "- a film"})
    press(row(page, "Ideas"), "Edit: Ideas")
    dialog = page.get_by_role("dialog", name="Ideas")
    expect(dialog.get_by_role("listitem")).to_have_text("a film")
    press(dialog, "Edit text")
    fill_in(dialog, {"Text": "- a song"}, "Save changes")
    expect(dialog).not_to_be_visible()
    # The end
    view(mia, "Board")
    choose(mia, "Write the manual", "Done")
    expect(card(mia, "Write the manual", "Done")).to_be_visible()
    view(page, "Board")
    refresh(page)
    page.get_by_role("link", name="Milestones and settings").click()
    expect(row(page, "Beta").get_by_role("link", name="1 of 2 tasks done")).to_be_visible()
    view(mia, "Activity")
    done = mia.locator("li.entry")
    expect(done.filter(has_text="Carl Cole commented on Write the manual")).to_have_count(1)
    moved = done.filter(has_text=re.compile("Mia Meier changed Write the manual.*moved to Done"))
    expect(moved).to_have_count(1)
    press(page, "Archive")
    expect(notice(page)).to_contain_text("Launch is archived.")
    press(notice(page), "Undo")
    press(page, "Archive")
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    view(page, "Board")
    press(page.locator("main"), "Unarchive")
    expect(page.get_by_role("button", name="New task")).to_be_visible()
    # A phone
    press(mia, "You: Mia Meier")
    mia.get_by_role("link", name="Your account").click()
    press(mia, "Make a sign-in link")
    phone = enter(mia.get_by_label("Sign-in link").input_value(), "Sign in to", **PHONE)
    phone.get_by_role("link", name="Check the prices").tap()
    expect(phone.get_by_role("dialog", name="Check the prices").locator("strong")).to_have_text("twelve")
    # Somebody leaves
    view(page, "People")
    drop(page, "Remove: Carl Cole")
    expect(row(page, "Carl Cole")).to_have_count(0)
    refresh(carl)
    expect(carl.locator(".fault")).to_contain_text("You are signed out")
    expect(column(carl, "To do")).to_have_count(0)
