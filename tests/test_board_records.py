"""The page's lists of people, agents, meetings, notes, milestones and webhooks, and their forms."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import board as ui
import pytest
import requests
from harness import OWNER_KEY, PATIENCE
from playwright.sync_api import expect
from test_brakes import give_back
from test_tools import refused, use


def open_form(page, button, name=None):
    ui.press(page, button)
    dialog = page.get_by_role("dialog", name=name or button, exact=True)
    expect(dialog).to_be_visible()
    return dialog


def test_people_are_invited_changed_and_removed_by_admins(sign_in, owner, server, join):
    ida = join(full_name="Ida Ilves")
    page = sign_in(address="#view=people")
    fields = {"E-mail": "tom@example.com", "Name": "Tom Toll", "Role": "Client"}
    ui.fill_in(open_form(page, "Invite"), fields)
    first = ui.secret(page, "Invitation for Tom Toll")
    again = open_form(page, "Invite")
    again.get_by_label("E-mail").fill("TOM@example.com")
    expect(again).to_contain_text("Already invited as Tom Toll, Client")
    ui.press(again, "Cancel")
    page.get_by_text("Other people’s keys and sessions").click()
    expect(page.get_by_role("heading", name="Ida Ilves")).to_be_visible()
    ui.press(page, "New link: Tom Toll")
    expect(page.get_by_role("dialog", name="Invitation for Tom Toll")).to_contain_text("It works once, until")
    ui.check_page(page)
    second = ui.secret(page, "Invitation for Tom Toll")
    nobody = server.client(None)
    codes = [nobody.post(f"/enroll/{link.rpartition('/')[2]}").status_code for link in (first, second)]
    assert codes == [410, 201]
    form = open_form(page, "Edit: Ida Ilves", "Ida Ilves")
    ui.fill_in(form, {"Role": "Admin", "Phone": "+351 1"}, "Save changes")
    expect(ui.row(page, "Ida Ilves")).to_contain_text("Admin")
    assert ida.read("/me")["member"]["phone_number"] == "+351 1"
    ui.press(page, "Sign-in link: Ida Ilves")
    assert "/enroll/" in ui.secret(page, "Sign-in link for Ida Ilves")
    ui.drop(page, "Remove: Tom Toll")
    expect(ui.row(page, "Tom Toll")).to_have_count(0)
    ui.drop(page, "Remove: Ida Ilves")
    expect(ui.row(page, "Ida Ilves")).to_have_count(0)
    assert ida.get("/me").status_code == 401


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


def test_one_renames_oneself_and_makes_and_revokes_keys_and_a_calendar_link(sign_in, join, server):
    eva = join(full_name="Eva Eng")
    page = sign_in(eva.key, "#view=account")
    ui.fill_in(page.locator("main"), {"Name": "Eva Engel"}, "Save changes")
    expect(page.get_by_role("button", name="You: Eva Engel")).to_be_visible()
    expect(page.get_by_text("This browser")).to_have_count(1)
    sessions = page.locator("section").filter(has=page.get_by_role("heading", name="Your sessions"))
    expect(sessions.get_by_text("This browser")).to_have_count(1)
    fields = {"Name": "CI", "Access": "read-only", "Expires": "2099-01-01"}
    ui.fill_in(open_form(page, "New key for a program"), fields)
    key = ui.secret(page, "The API key “CI”")
    expect(ui.row(page, "CI")).to_contain_text("read-only")
    expect(ui.row(page, "CI")).to_contain_text("until 1 Jan 2099")
    assert key not in page.content()
    program = server.client(key)
    assert program.read("/me")["key"]["scope"] == "read"
    ui.drop(page, "Revoke: CI")
    expect(ui.row(page, "CI")).to_have_count(0)
    assert program.get("/me").status_code == 401
    ui.press(page, "Make a calendar link")
    expect(ui.row(page, "Calendar link")).to_contain_text("shows a calendar")
    path = urlsplit(page.get_by_label("Link for a calendar").input_value()).path
    assert requests.get(server.base + path, timeout=PATIENCE).text.startswith("BEGIN:VCALENDAR")
    ui.drop(page, "Revoke: Calendar link")
    expect(ui.row(page, "Calendar link")).to_have_count(0)
    assert requests.get(server.base + path, timeout=PATIENCE).status_code == 404


def test_meetings_are_grouped_by_day_in_local_time(sign_in, join):
    eva = join(full_name="Eva Eng")
    page = sign_in(eva.key, "#view=meetings", locale="pt-BR", timezone_id="America/Sao_Paulo")
    expect(page.get_by_text("No meetings yet.")).to_be_visible()
    fields = {"Title": "Call", "Starts": "2098-12-31T22:30", "Ends": "2098-12-31T21:30"}
    dialog = open_form(page, "New meeting")
    ui.fill_in(dialog, fields | {"Place or link": "Room 7"})
    expect(ui.message(dialog)).to_contain_text("Ends")
    ui.fill_in(dialog, {"Ends": "2098-12-31T23:30"})
    heading = page.get_by_role("heading", name="31 de dez. de 2098")  # as the browser writes dates
    section = page.locator("section").filter(has=heading)
    expect(heading).to_have_count(1)
    expect(section.locator("time")).to_have_text(re.compile(r"22:30\s*–23:30"))
    expect(ui.row(page, "Call")).to_contain_text("Room 7")
    (meeting,) = eva.read("/meetings")["meetings"]
    assert meeting["starts_at"] == "2099-01-01T01:30:00.000Z"
    assert meeting["ends_at"] == "2099-01-01T02:30:00.000Z"
    ui.fill_in(open_form(page, "Edit: Call", "Call"), {"Starts": "2098-12-30T08:00"}, "Save changes")
    expect(page.get_by_role("heading", name=re.compile("30 de dez"))).to_have_count(1)
    long_ago = (datetime.now(UTC) - timedelta(days=30)).isoformat()
    past = {"title": "Kick-off", "starts_at": long_ago, "description": "Bring *tea*."}
    eva.make("/meetings", past)
    ui.refresh(page)
    expect(page.get_by_role("heading", name="Past")).to_be_visible()
    ui.check_page(page)
    ui.press(page, "Kick-off")  # which is read before it is changed
    dialog = page.get_by_role("dialog", name="Kick-off")
    expect(dialog.locator(".text em")).to_have_text("tea")
    expect(dialog.get_by_label("Title")).to_have_count(0)
    ui.press(dialog, "Edit")
    expect(dialog.get_by_label("Title")).to_have_value("Kick-off")
    ui.press(dialog, "Close")
    ui.drop(page, "Delete: Call")
    expect(ui.row(page, "Call")).to_have_count(0)


def test_a_client_opens_a_note_and_changes_nothing(sign_in, owner, join):
    owner.make("/whiteboards", {"title": "Map", "content": {"text": "*Here*"}})
    page = sign_in(join("client").key, "#view=whiteboards")
    dialog = open_form(page, "Open: Map", "Map")
    expect(dialog.locator("em")).to_have_text("Here")
    ui.press(dialog, "Close")
    expect(page.get_by_role("button", name=re.compile("New note|Edit|Delete"))).to_have_count(0)


def test_a_note_keeps_what_a_program_has_put_beside_its_text(sign_in, owner):
    content = {"text": "old", "shapes": [1]}
    made = owner.make("/whiteboards", {"title": "Both", "content": content})
    owner.make("/whiteboards", {"title": "Drawing", "content": {"shapes": [2]}})
    page = sign_in(address="#view=whiteboards")
    expect(ui.row(page, "Drawing")).to_be_visible()
    ui.check_page(page)
    ui.press(page, "Edit: Drawing")
    dialog = page.get_by_role("dialog", name="Drawing")
    expect(dialog.locator("pre")).to_contain_text('"shapes": ')
    expect(dialog.get_by_role("button", name=re.compile("text"))).to_have_count(0)
    ui.press(dialog, "Close")
    ui.drop(page, "Delete: Drawing")
    expect(ui.row(page, "Drawing")).to_have_count(0)
    ui.fill_in(open_form(page, "New note"), {"Title": "Ideas", "Text": "- a film"})
    ui.press(page, "Ideas")
    expect(page.get_by_role("dialog", name="Ideas").get_by_role("listitem")).to_have_text("a film")
    ui.press(page.get_by_role("dialog", name="Ideas"), "Close")
    ui.press(page, "Both")
    dialog = page.get_by_role("dialog", name="Both")
    expect(dialog.locator(".text")).to_have_text("old")
    ui.press(dialog, "Edit")
    dialog.get_by_label("Text").fill("# new")
    page.keyboard.press("Escape")
    ui.press(page, "Edit: Both")
    expect(dialog.get_by_label("Text")).to_have_value("# new")  # what was typed is kept
    ui.press(dialog, "Save changes")
    expect(dialog).not_to_be_visible()
    ui.press(page, "Both")
    expect(dialog.get_by_role("heading", name="new")).to_be_visible()
    saved = owner.read(f"/whiteboards/{made['id']}")
    assert saved["content"] == {"text": "# new", "shapes": [1]}


def test_a_milestone_leads_to_its_tasks(sign_in, owner, project):
    page = sign_in(address=f"#view=project&project={project['id']}")
    ui.fill_in(open_form(page, "New milestone"), {"Title": "Beta", "Due date": "2099-12-01"})
    expect(ui.row(page, "Beta")).to_contain_text("0 of 0 tasks done")
    (milestone,) = owner.read(f"/projects/{project['id']}/milestones")["milestones"]
    owner.make_task(project, title="Of it", milestone_id=milestone["id"])
    owner.make_task(project, title="Another")
    ui.refresh(page)
    ui.check_page(page)
    ui.row(page, "Beta").get_by_role("link", name="0 of 1 task done").click()
    expect(page.locator(".card")).to_have_count(1)
    expect(ui.card(page, "Of it")).to_be_visible()
    expect(ui.choice(page, "Milestone")).to_have_text("Beta")
    page.go_back()
    ui.fill_in(open_form(page, "Edit: Beta", "Beta"), {"Title": "Gamma"}, "Save changes")
    ui.drop(page, "Delete: Gamma")
    expect(page.get_by_text("No milestones yet.")).to_be_visible()


def test_an_admin_sends_again_what_a_receiver_has_refused(sign_in, hooked, receiver):
    receiver.answers = [500]
    owner = hooked.client()
    owner.make_task(owner.make_project())
    receiver.next()
    page = sign_in(base=hooked.base)
    ui.press(page, "You: Olga Owner")
    page.get_by_role("link", name="Webhooks").click()
    expect(ui.row(page, "task.created to receiver")).to_contain_text("1 attempt")
    ui.check_page(page)
    ui.press(page, "Send again: task.created to receiver")
    expect(ui.notice(page)).to_contain_text("Sent again: delivered.")
    expect(page.get_by_text("No failed deliveries.")).to_be_visible()
    ui.press(page, "Send a test: receiver")
    expect(ui.notice(page).get_by_text("Test: delivered.")).to_be_visible()
    ui.view(page, "People")
    page.context.set_offline(True)
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/webhooks")):
        ui.show(page, "view=webhooks")
    expect(ui.fault(page)).to_contain_text("The server cannot be reached.")


# Agents: what each one does, how they are stopped and connected, and what is stuck


def test_admins_stop_all_agents_and_the_page_says_why(sign_in, server):
    bot, page = server.agent("Bot of the stop"), sign_in(address="#view=people")
    page.locator("summary", has_text="Stop all agents").click()
    page.get_by_label("Reason").fill("The keys leaked")
    ui.press(page, "Stop all agents")
    band = page.get_by_role("status").filter(has_text="Olga Owner stopped all agents")
    expect(band).to_contain_text("The keys leaked")
    page.set_viewport_size({"width": 320, "height": 740})
    expect(band).to_be_in_viewport(ratio=1)
    ui.check_page(page)
    assert "Olga Owner has stopped all agents: The keys leaked" in refused(bot, "get_context")
    ui.view(page, "Activity")
    expect(page.locator("main")).to_contain_text(re.compile("stopped all agents *The keys leaked"))
    page.reload()
    ui.press(page, "Let agents go on")
    expect(page.locator("main")).to_contain_text("Olga Owner ended the stop of all agents")
    expect(band).to_have_count(0)
    assert use(bot, "get_context")["you"].startswith("Bot of the stop")


@pytest.mark.long
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


@pytest.mark.long
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
    ui.show(page, f"#task={task['number']}")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Title", exact=True)).to_have_value("A task nearby")
    dialog.get_by_text("History").click()
    expect(dialog.locator(".entry")).to_have_text([re.compile("created")])


@pytest.mark.long
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


@pytest.mark.long
def test_a_client_begins_with_the_board_unless_something_waits(sign_in, owner, join):
    shown = owner.make_project(name="Shown")
    task = owner.make_task(shown, title="Walk")
    client = join("client", full_name="Wanda Waits", project_ids=[shown["id"]])
    page = sign_in(client.key)
    expect(ui.card(page, "Walk")).to_be_visible()
    expect(page.get_by_role("navigation", name="Views").get_by_role("link", name="My tasks")).to_have_count(0)
    owner.make(f"/tasks/{task['id']}/comments", {"content": f"See @{client.member['full_name']}"})
    expect(sign_in(client.key).get_by_role("heading", name="Mentions")).to_be_visible()
