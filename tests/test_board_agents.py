"""The page's view of agents: what each one does, how they are stopped and connected, and what is stuck."""

import re

import board as ui
from playwright.sync_api import expect
from test_brakes import give_back
from test_tools import refused, use


def test_admins_stop_all_agents_and_everybody_sees_why(sign_in, server, join):
    bot, ana = server.agent("Bot of the stop"), join()
    hers, page = sign_in(ana.key, "#view=people"), sign_in(address="#view=people")
    page.locator("summary", has_text="Stop all agents").click()
    page.get_by_label("Reason").fill("The keys leaked")
    ui.press(page, "Stop all agents")
    said = "Olga Owner stopped all agents"
    for one in (page, hers):
        ui.refresh(one)
        band = one.get_by_role("status").filter(has_text=said)
        expect(band).to_contain_text("The keys leaked")
        one.set_viewport_size({"width": 320, "height": 740})
        expect(band).to_be_in_viewport(ratio=1)
    ui.check_page(page)
    expect(hers.get_by_role("button", name="Let agents go on")).to_have_count(0)
    expect(hers.locator("summary", has_text="Stop all agents")).to_have_count(0)
    assert "Olga Owner has stopped all agents: The keys leaked" in refused(bot, "get_context")
    ui.view(page, "Activity")
    expect(page.locator("main")).to_contain_text(re.compile("stopped all agents *The keys leaked"))
    page.reload()
    ui.press(page, "Let agents go on")
    expect(page.locator("main")).to_contain_text("Olga Owner ended the stop of all agents")
    for one in (page, hers):
        ui.refresh(one)
        expect(one.get_by_role("status").filter(has_text=said)).to_have_count(0)
    assert use(bot, "get_context")["you"].startswith("Bot of the stop")


def test_each_agent_is_listed_with_what_it_holds_and_did_last_and_is_revoked(
    sign_in, server, owner, project, join
):
    bot, ana = server.agent("Bot of the list"), join(full_name="Ana of the list")
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
    hers = sign_in(ana.key, "#view=people")  # who sees her own alone
    expect(hers.locator("summary", has_text="Connect an agent")).to_be_visible()
    expect(hers.locator("#agents").get_by_role("listitem")).to_have_count(0)
    ui.drop(page, "Revoke: Bot of the list")
    expect(row).to_have_count(0)
    assert bot.get("/me").status_code == 401


def test_the_lines_that_connect_an_agent_are_ready_to_copy(sign_in, server, launch, join):
    page = sign_in(address="#view=people")
    page.locator("summary", has_text="Connect an agent").click()
    for name in ("Claude Code", "Cursor, in mcp.json", "VS Code, in .vscode/mcp.json", "Codex", "Gemini CLI"):
        expect(page.get_by_label(name, exact=True)).to_have_value(re.compile(re.escape(f"{server.base}/mcp")))
    ui.check_page(page)
    base = "http://localhost:8000"  # not the address by which the test reaches it
    other = launch(TASKS_OAUTH__ENABLED="true", TASKS_SERVER__BASE_URL=base)
    page = sign_in(address="#view=people", base=other.base)
    page.locator("summary", has_text="Connect an agent").click()
    expect(page.get_by_label("claude.ai and ChatGPT, as a connector")).to_have_value(f"{base}/mcp")
    command = f"claude mcp add --scope user --transport http tasks {base}/mcp"
    expect(page.get_by_label("Claude Code")).to_have_value(command)
    client = sign_in(join("client").key, "#view=people")
    expect(client.get_by_role("heading", name="Team")).to_be_visible()
    expect(client.locator("#agents")).to_have_count(0)


def test_a_card_shows_that_agents_get_no_further(sign_in, owner, server, project):
    bot, task = server.agent("Bot of the card"), owner.make_task(project, title="Too hard")
    for _ in range(3):
        give_back(bot, task)
    page = sign_in(address=f"#project={project['id']}")
    expect(ui.card(page, "Too hard")).to_contain_text("Stuck")
    dialog = ui.opened(page, "Too hard")
    expect(dialog).to_contain_text("Agents tried this 3 times without a result.")
    ui.check_page(page)
    owner.data(owner.patch(f"/tasks/{task['id']}", {"title": "Easier"}))
    ui.refresh(page)
    expect(ui.card(page, "Easier")).not_to_contain_text("Stuck")
