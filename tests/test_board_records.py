"""The page's lists of people, agents, meetings, notes, milestones and webhooks, and their forms."""

import re

import board as ui
from playwright.sync_api import expect
from test_brakes import give_back
from test_page import open_form
from test_tools import use


def test_who_is_no_admin_changes_oneself_alone(sign_in, join):
    ben = join(full_name="Ben Bay")
    page = sign_in(ben.key, "#view=people")
    expect(ui.row(page, "Ben Bay")).to_be_visible()
    buttons = page.get_by_role("button", name=re.compile("^(Invite|Edit|Remove|New link|Sign-in link)"))
    expect(buttons).to_have_count(2)
    labels = buttons.evaluate_all("all => all.map((one) => one.ariaLabel)")
    assert labels == ["Sign-in link: Ben Bay", "Edit: Ben Bay"]
    ui.press(page, "Edit: Ben Bay")
    expect(page.get_by_role("dialog").get_by_label("Role")).to_have_count(0)


def test_a_client_opens_a_note_and_changes_nothing(sign_in, owner, join):
    owner.make("/whiteboards", {"title": "Map", "content": {"text": "*Here*"}})
    page = sign_in(join("client").key, "#view=whiteboards")
    dialog = open_form(page, "Open: Map", "Map")
    expect(dialog.locator("em")).to_have_text("Here")
    ui.press(dialog, "Close")
    expect(page.get_by_role("button", name=re.compile("New note|Edit|Delete"))).to_have_count(0)


# Agents: what each one does, how they are stopped and connected, and what is stuck


def test_members_see_the_stop_of_agents_and_only_their_own_agents_and_clients_none(
    sign_in, server, owner, join
):
    server.agent("Bot of another")
    hers = sign_in(join().key, "#view=people")
    expect(hers.locator("summary", has_text="Connect an agent")).to_be_visible()
    expect(hers.locator("#agents").get_by_role("listitem")).to_have_count(0)
    expect(hers.locator("summary", has_text="Stop all agents")).to_have_count(0)
    band = hers.get_by_role("status").filter(has_text="stopped all agents")
    for path, count in {"/agents/stop": 1, "/agents/start": 0}.items():
        owner.data(owner.post(path, {"reason": "The keys leaked"} if count else None))
        ui.refresh(hers)
        expect(band).to_have_count(count)
        expect(hers.get_by_role("button", name="Let agents go on")).to_have_count(0)
    client = sign_in(join("client").key, "#view=people")
    expect(client.get_by_role("heading", name="Team")).to_be_visible()
    expect(client.locator("#agents")).to_have_count(0)


def test_each_agent_is_listed_with_what_it_holds_and_did_last_and_is_revoked(sign_in, server, owner, project):
    bot = server.agent("Bot of the list")
    task = owner.make_task(project, title="Build it")
    give_back(bot, task)
    use(bot, "claim_task", task_id=task["number"])
    page = sign_in(address="#view=people")
    row = page.locator("#agents").get_by_role("listitem").filter(has_text="Bot of the list")
    expect(row.get_by_role("link")).to_have_text(f"#{task['number']} Build it, tried 1 time before")
    expect(row).to_contain_text("moved Build it")
    ui.check_page(page)
    use(bot, "complete_task", task_id=task["number"])
    ui.refresh(page)
    expect(row.get_by_role("link")).to_have_count(0)
    ui.drop(page, "Revoke: Bot of the list")
    expect(row).to_have_count(0)
    assert bot.get("/me").status_code == 401


def test_the_lines_that_connect_an_agent_are_ready_to_copy(sign_in, server):
    page = sign_in(address="#view=people")
    page.locator("summary", has_text="Connect an agent").click()
    for name in ("Claude Code", "Cursor, in mcp.json", "VS Code, in .vscode/mcp.json", "Codex", "Gemini CLI"):
        expect(page.get_by_label(name, exact=True)).to_have_value(re.compile(re.escape(f"{server.base}/mcp")))
    ui.check_page(page)


def test_the_lines_that_connect_an_agent_name_the_configured_address(sign_in, launch):
    base = "http://localhost:8000"  # not the address by which the test reaches it
    other = launch(TASKS_OAUTH__ENABLED="true", TASKS_SERVER__BASE_URL=base)
    page = sign_in(address="#view=people", base=other.base)
    page.locator("summary", has_text="Connect an agent").click()
    expect(page.get_by_label("claude.ai and ChatGPT, as a connector")).to_have_value(f"{base}/mcp")
    command = f"claude mcp add --scope user --transport http tasks {base}/mcp"
    expect(page.get_by_label("Claude Code")).to_have_value(command)


def test_a_card_shows_that_agents_get_no_further(sign_in, owner, server, project):
    bot, task = server.agent("Bot of the card"), owner.make_task(project, title="Too hard")
    for _ in range(3):
        give_back(bot, task)
    page = sign_in(address=f"#project={project['id']}")
    expect(ui.card(page, "Too hard")).to_contain_text("Stuck")
    dialog = ui.opened(page, "Too hard")
    expect(dialog).to_contain_text("Agents tried this 3 times without a result.")
    owner.data(owner.patch(f"/tasks/{task['id']}", {"title": "Easier"}))
    ui.refresh(page)
    expect(ui.card(page, "Easier")).not_to_contain_text("Stuck")


# The projects of a client, who sees nothing else


def choose_project(page, form, name):
    """Choose by typing; the picker of several stays open."""
    ui.choice(form, "Sees").click()
    page.get_by_role("option", name=name).click()
    page.keyboard.press("Escape")


def test_an_owner_says_which_projects_a_client_sees(sign_in, owner):
    seen, other = owner.make_project(name="Zeppelin"), owner.make_project(name="Yonder")
    page = sign_in(address="#view=people")
    form = open_form(page, "Invite")
    expect(ui.choice(form, "Sees")).to_have_count(0)
    ui.pick(form, "Role", "Client")
    choose_project(page, form, "Zeppelin")
    expect(ui.choice(form, "Sees")).to_have_text("Zeppelin")
    expect(form).to_contain_text("This client sees the chosen projects")
    ui.fill_in(form, {"Name": "Carla Client", "E-mail": "carla@example.com"})
    ui.secret(page, "Invitation for Carla Client")
    members = owner.read("/members")["members"]
    (carla,) = [member for member in members if member["full_name"] == "Carla Client"]
    assert carla["project_ids"] == [seen["id"]]
    expect(ui.row(page, "Carla Client")).to_contain_text("Zeppelin")
    form = open_form(page, "Edit: Carla Client", "Carla Client")
    choose_project(page, form, "All projects")
    expect(ui.choice(form, "Sees")).to_have_text("All projects")
    expect(form).to_contain_text("reads everything")
    ui.press(form, "Save changes")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert owner.read(f"/members/{carla['id']}")["project_ids"] is None
    assert other["id"] not in str(carla)


def test_the_choice_of_a_project_says_which_clients_will_read_the_task(sign_in, owner, join):
    seen, other = owner.make_project(name="Atrium"), owner.make_project(name="Internal")
    join("client", full_name="Rhea Reader", project_ids=[seen["id"]])
    task = owner.make_task(other, title="Kept inside")
    page = sign_in(address=f"#task={task['number']}")
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
    ui.show(page, f"#task={task['number']}")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Title", exact=True)).to_have_value("A task nearby")
    dialog.get_by_text("History").click()
    expect(dialog.locator(".entry")).to_have_text([re.compile("created")])


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
    client = join("client", full_name="Wanda Waits", project_ids=[shown["id"]])
    page = sign_in(client.key)
    expect(ui.card(page, "Walk")).to_be_visible()
    expect(page.get_by_role("navigation", name="Views").get_by_role("link", name="My tasks")).to_have_count(0)
    owner.make(f"/tasks/{task['id']}/comments", {"content": f"See @{client.member['full_name']}"})
    expect(sign_in(client.key).get_by_role("heading", name="Mentions")).to_be_visible()
