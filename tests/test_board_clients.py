"""On the page: the projects of a client, who sees nothing else."""

import re

import board as ui
from harness import OWNER_KEY
from playwright.sync_api import expect


def choose_project(page, form, name):
    """Choose by typing; the picker of several stays open."""
    ui.choice(form, "Sees").click()
    page.get_by_role("option", name=name).click()
    page.keyboard.press("Escape")


def test_an_owner_says_which_projects_a_client_sees(sign_in, owner):
    seen, other = owner.make_project(name="Zeppelin"), owner.make_project(name="Yonder")
    page = sign_in(OWNER_KEY, "#view=people")
    page.get_by_role("button", name="Invite").first.click()
    form = page.locator("dialog, [role=dialog]").first
    form.get_by_label("Name", exact=True).fill("Carla Client")
    form.get_by_label("E-mail", exact=True).fill("carla@example.com")
    expect(ui.choice(form, "Sees")).to_have_count(0)
    ui.pick(form, "Role", "Client")
    choose_project(page, form, "Zeppelin")
    expect(ui.choice(form, "Sees")).to_have_text("Zeppelin")
    expect(form).to_contain_text("This client sees the chosen projects")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog", name="Invitation")).to_be_visible()
    members = owner.read("/members")["members"]
    (carla,) = [member for member in members if member["full_name"] == "Carla Client"]
    assert carla["project_ids"] == [seen["id"]]
    page.keyboard.press("Escape")
    row = page.get_by_role("listitem").filter(has_text="Carla Client")
    expect(row).to_contain_text("Zeppelin")
    row.get_by_role("button", name="Edit").click()
    choose_project(page, form, "All projects")
    expect(ui.choice(form, "Sees")).to_have_text("All projects")
    expect(form).to_contain_text("reads everything")
    form.get_by_role("button", name="Save changes").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert owner.read(f"/members/{carla['id']}")["project_ids"] is None
    assert other["id"] not in str(carla)


def test_the_choice_of_a_project_says_which_clients_will_read_the_task(sign_in, owner, join):
    seen, other = owner.make_project(name="Atrium"), owner.make_project(name="Internal")
    join("client", full_name="Rhea Reader", project_ids=[seen["id"]])
    task = owner.make_task(other, title="Kept inside")
    page = sign_in(OWNER_KEY, f"#task={task['number']}")
    ui.choice(page.get_by_role("dialog"), "Project").click()
    expect(page.get_by_role("option", name="Internal", exact=True)).to_be_visible()
    warning = "Atrium (Rhea Reader can read its tasks, comments and files)"
    page.get_by_role("option", name=warning, exact=True).click()
    expect(ui.choice(page.get_by_role("dialog"), "Project")).to_have_text(warning)


def test_the_page_of_such_a_client_has_its_projects_alone(sign_in, owner, join):
    seen, other = owner.make_project(name="Nearby"), owner.make_project(name="Elsewhere")
    client = join("client", full_name="Nora Near", project_ids=[seen["id"]])
    owner.make_task(other, title="A task elsewhere", priority="urgent")
    task, blocker = owner.make_task(seen, title="A task nearby"), owner.make_task(other, title="A blocker")
    owner.data(owner.patch(f"/tasks/{task['id']}/details", {"blocked_by": [blocker["number"]]}))
    page = sign_in(client.key, "#view=all")
    expect(page.get_by_text("A task nearby")).to_be_visible()
    for text in ("A task elsewhere", "Elsewhere"):
        expect(page.get_by_text(text)).to_have_count(0)
    page = sign_in(client.key, f"#task={task['number']}")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Title", exact=True)).to_have_value("A task nearby")
    dialog.get_by_text("History").click()
    expect(dialog.locator(".entry")).to_have_text([re.compile("created")])
    ui.check_page(page)


def test_the_page_begins_again_when_its_client_sees_other_projects(sign_in, owner, join):
    kept, lost = owner.make_project(name="Kept"), owner.make_project(name="Lost")
    client = join("client", full_name="Lea Less", project_ids=[kept["id"], lost["id"]])
    for project in (kept, lost):
        owner.make_task(project, title=f"A task of {project['name']}")
    page = sign_in(client.key, "#view=all")
    expect(page.get_by_text("A task of Lost")).to_be_visible()
    with page.expect_navigation():
        owner.data(owner.patch(f"/members/{client.member['id']}", {"project_ids": [kept["id"]]}))
    expect(page.get_by_text("A task of Kept")).to_be_visible()
    expect(page.get_by_text("A task of Lost")).to_have_count(0)


def test_a_client_begins_with_the_board_unless_something_waits(sign_in, owner, join):
    shown = owner.make_project(name="Shown")
    task = owner.make_task(shown, title="Walk")
    client = join("client", project_ids=[shown["id"]])
    page = sign_in(client.key)
    expect(ui.card(page, "Walk")).to_be_visible()
    expect(page.get_by_role("navigation", name="Views").get_by_role("link", name="My tasks")).to_have_count(0)
    owner.make(f"/tasks/{task['id']}/comments", {"content": f"See @{client.member['full_name']}"})
    expect(sign_in(client.key).get_by_role("heading", name="Mentions")).to_be_visible()
