"""The page at / as people use it: signing in, the board, filters, screens, and its files."""

import re
import threading
import time

import board as ui
import pytest
from harness import OWNER_KEY, add_copies, wait_until
from playwright.sync_api import expect
from werkzeug.exceptions import NotFound
from werkzeug.middleware.http_proxy import ProxyMiddleware
from werkzeug.serving import make_server

from times import now

# Signing in


# Working


def test_enter_that_ends_a_composition_sends_nothing(board, owner, project):
    """As input methods for Japanese, Chinese and Korean use it."""
    devtools = board.context.new_cdp_session(board)
    ui.new_task(board).get_by_label("Title").focus()
    devtools.send("Input.imeSetComposition", {"text": "にほn", "selectionStart": 3, "selectionEnd": 3})
    enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229}
    for kind in ("rawKeyDown", "keyUp"):
        devtools.send("Input.dispatchKeyEvent", enter | {"type": kind})
    devtools.send("Input.insertText", {"text": "にほん"})
    board.keyboard.press("Enter")
    expect(ui.card(board, "にほん")).to_be_visible()
    assert [task["title"] for task in owner.read("/tasks", project_id=project["id"])["tasks"]] == ["にほん"]


def test_keys_work_with_any_alphabet_and_caps_lock(board, owner, project):
    owner.make_task(project, title="Card")
    ui.refresh(board, "Card")
    devtools = board.context.new_cdp_session(board)
    for key, code, modifiers in (("ы", "S", 0), ("σ", "S", 0), ("S", "S", 0), ("л", "K", 2), ("K", "K", 2)):
        ui.link(board, "Card").focus()
        pressed = {
            "key": key,
            "code": f"Key{code}",
            "modifiers": modifiers,
            "windowsVirtualKeyCode": ord(code),
        }
        for kind in ("rawKeyDown", "keyUp"):
            devtools.send("Input.dispatchKeyEvent", pressed | {"type": kind})
        expect(board.get_by_role("combobox", name="Find")).to_be_focused()
        board.keyboard.press("Escape")
        expect(board.get_by_role("combobox", name="Find")).to_have_count(0)


def test_what_was_not_created_offline_is_tried_again(board):
    quick = ui.column(board, "Review").get_by_label("New task in Review")
    board.context.set_offline(True)
    for title in ("In a tunnel", "In another one"):
        quick.fill(title)
        quick.press("Enter")
        lost = ui.fault(board).locator(".notice", has_text=f"“{title}”")
        expect(lost).to_contain_text("Not created: “In a tunnel”")
    board.context.set_offline(False)
    ui.press(lost, "Try again")
    for title in ("In a tunnel", "In another one"):
        expect(ui.card(board, title, "Review")).to_be_visible()
    ui.show(board, "project=")  # of all projects it is not known which one is meant
    expect(quick).to_have_count(0)


def test_a_new_task_goes_into_the_project_that_is_shown_and_its_draft_can_be_dropped(board, owner):
    other = owner.make_project(name="The other one")
    ui.refresh(board)
    new = ui.new_task(board)
    new.get_by_label("Title").fill("Half a title")
    ui.press(new, "Close")
    ui.show(board, f"project={other['id']}")
    expect(board.get_by_role("heading", level=1)).to_have_text("The other one")
    ui.new_task(board)
    expect(new.get_by_label("Title")).to_have_value("Half a title")
    expect(ui.choice(new, "Project")).to_contain_text("The other one")
    owner.data(owner.patch(f"/projects/{other['id']}", {"status": "archived"}))
    ui.refresh(board)  # which does not choose another project under one's hands
    ui.press(new, "Create task")
    expect(ui.message(new)).to_have_text("Project is archived and takes no new tasks.")
    ui.press(new, "Cancel")
    expect(new).to_be_hidden()
    board.keyboard.press("n")  # for a project that takes tasks
    expect(new.get_by_label("Title")).to_have_value("")
    ui.press(new, "Close")
    latest = owner.make_project(name="Zulu")
    ui.refresh(board)
    ui.show(board, f"project={latest['id']}")
    ui.new_task(board)
    new.get_by_label("Title").fill("There")
    ui.press(new, "Create task")
    expect(new).to_be_hidden()
    ui.show(board, "project=")
    ui.new_task(board)
    expect(ui.choice(new, "Project")).to_contain_text("Zulu")


def test_a_new_task_takes_the_filters_and_its_milestone_the_chosen_project(board, owner, project, ana):
    other = owner.make_project(name="With others")
    made = {}
    for one, title in ((project, "Ours"), (other, "Theirs")):
        made[title] = owner.make(f"/projects/{one['id']}/milestones", {"title": title})["id"]
    ui.show(board, f"project={project['id']}&person={ana.member['id']}&milestone={made['Ours']}&priority=low")
    ui.refresh(board)
    dialog = ui.new_task(board)
    shown = {"Assignee": "Ana Lima", "Priority": "Low", "Milestone": "Ours"}
    for label, text in shown.items():
        expect(ui.choice(dialog, label)).to_contain_text(text)
    ui.pick(dialog, "Project", "With others")
    expect(ui.choice(dialog, "Milestone")).to_contain_text("None")
    ui.pick(dialog, "Milestone", "Theirs")
    ui.fill_in(dialog, {"Title": "Elsewhere"}, "Create task")
    expect(dialog).to_be_hidden()
    (task,) = owner.read("/tasks", project_id=other["id"])["tasks"]
    assert (task["milestone_id"], task["assignee_id"]) == (made["Theirs"], ana.member["id"])
    ui.show(board, "person=none")
    ui.refresh(board)
    dialog = ui.new_task(board)
    ui.pick(dialog, "Project", "With others")
    expect(ui.choice(dialog, "Milestone")).to_contain_text("None")


def test_a_picker_is_used_by_keyboard_pointer_and_screen_readers(board, owner, project, join):
    for name in ("Zoë Ångström", "Zak Zorn"):
        join(full_name=name)
    owner.make_task(project, title="Whose")
    dialog = ui.opened(board, "Whose")
    assignee, options = ui.choice(dialog, "Assignee"), board.get_by_role("option")
    assignee.focus()
    board.keyboard.type("zoe")  # the first letter opens it
    expect(options).to_contain_text(["Zoë Ångström"])
    ui.check_page(board)
    find = board.get_by_role("combobox", name="Find")
    assert find.get_attribute("aria-activedescendant") == options.get_attribute("id")
    find.fill("z")
    expect(options).to_contain_text(["Zak Zorn", "Zoë Ångström"])
    find.press("ArrowUp")  # round to the last
    find.press("Enter")
    expect(assignee).to_be_focused()
    expect(assignee).to_contain_text("Zoë Ångström")
    expect(ui.message(dialog)).to_have_text("Saved.")
    assignee.click()
    expect(board.get_by_role("option", selected=True)).to_contain_text("Zoë Ångström")
    find.fill("nothing like it")
    expect(board.get_by_role("status").filter(has_text="Nothing matches.")).to_be_visible()
    find.press("Escape")
    expect(find).to_have_count(0)
    expect(assignee).to_be_focused()  # and the dialog stays
    assignee.click()
    board.get_by_role("option", name="Nobody").click()
    expect(assignee).to_contain_text("Nobody")
    expect(find).to_have_count(0)
    assignee.press("ArrowDown")
    expect(find).to_be_focused()
    find.press("Tab")
    expect(ui.choice(dialog, "Priority")).to_be_focused()


def test_days_are_the_workspaces(sign_in, launch):
    server = launch(TASKS_WORKSPACE__TIMEZONE="Pacific/Auckland")
    owner = server.client()
    project = owner.make_project()
    task = owner.make_task(project, title="By the API", due_date="2098-01-02T17:00:00Z")
    address = f"#project={project['id']}"
    page = sign_in(address=address, base=server.base, timezone_id="America/Los_Angeles")
    new = ui.new_task(page)
    new.get_by_label("Title").fill("By the page")
    ui.pick(new, "Due date", "2098-07-02")
    ui.press(new, "Create task")
    expect(ui.card(page, "By the page")).to_contain_text("2 Jul 2098")
    (made,) = owner.read("/tasks", q="By the page")["tasks"]
    assert made["due_date"] == "2098-07-02T11:59:59.999Z"
    expect(ui.card(page, "By the API")).to_contain_text("3 Jan 2098")
    dialog = ui.opened(page, "By the API")
    expect(ui.choice(dialog, "Due date")).to_have_text("3 Jan 2098")
    expect(ui.choice(dialog, "Start date")).to_have_text("None")
    ui.save(dialog, {"Start date": "2098-01-01"})
    history = dialog.get_by_role("list", name="History")
    dialog.get_by_text("History", exact=True).click()
    expect(history).to_contain_text("Start date: none → 1 Jan 2098")
    expect(ui.choice(dialog, "Start date")).to_have_text("1 Jan 2098")
    saved = ui.stored(owner, task)
    assert saved["start_date"] == "2097-12-31T11:00:00.000Z"
    assert saved["due_date"] == "2098-01-02T17:00:00.000Z"  # a day that was not changed is not sent


def test_projects_that_are_made_one_after_another_have_colours_far_apart(sign_in, owner):
    names = [owner.make_project(name=f"Of a colour {number}")["name"] for number in range(3)]
    page = sign_in(owner.key)
    links = [page.get_by_role("link", name=re.compile(name)) for name in names]
    hue = "element => Number(getComputedStyle(element).getPropertyValue('--hue'))"
    first, second, third = (link.locator(".dot").evaluate(hue) for link in links)
    assert min(abs(one - other) for one, other in ((first, second), (second, third), (first, third))) > 80


def test_a_notice_stays_for_some_seconds_and_while_it_has_the_focus_or_the_pointer(sign_in, owner, project):
    board = sign_in(address=f"#project={project['id']}", own=True)  # whose clock stays
    owner.make_task(project, title="Walk")
    ui.refresh(board, "Walk")
    board.clock.install()
    board.clock.pause_at(time.time() + 60)  # the machine may take longer for a step than a notice stays
    ui.choose(board, "Walk", "Review")
    expect(ui.column(board, "Review").get_by_role("link", name="Walk")).to_be_focused()
    undo = ui.notice(board).get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    beside, cards = (board.locator(one).bounding_box() for one in ("#notices .notice", "#board"))
    assert beside["x"] + beside["width"] <= cards["x"]  # it covers no card
    for use, leave in ((undo.focus, undo.blur), (undo.hover, board.locator("h1").hover)):
        use()
        board.clock.run_for(9000)
        expect(undo).to_be_visible()
        leave()
    board.clock.run_for(2000)
    expect(ui.notice(board)).to_be_empty()
    ui.choose(board, "Walk", "Done")
    for seconds, said in ((0, "Moved"), (5, "Moved"), (2, "")):
        board.clock.run_for(seconds * 1000)
        expect(ui.notice(board)).to_contain_text(re.compile(said or "^$"))


# Display


def test_filters_survive_a_reload_and_find_no_task_of_an_archived_project_among_all(board, owner, project):
    mine = {"assignee_id": owner.read("/me")["member"]["id"]}
    milestone = owner.make(f"/projects/{project['id']}/milestones", {"title": "Roofed"})
    owner.make_task(project, title="Fix the roof", priority="urgent", milestone_id=milestone["id"], **mine)
    owner.make_task(project, title="Fix the door", due_date="2020-01-02")
    ui.refresh(board)
    expect(ui.card(board, "Fix the door")).to_contain_text("2 Jan 2020 overdue")
    board.get_by_label("Search").fill("ROOF")
    ui.pick(board, "Assignee", "Me")  # before the search has begun
    ui.pick(board, "Priority", "Urgent")
    expect(board).to_have_url(re.compile("(?=.*q=ROOF)(?=.*person=me)(?=.*priority=urgent)"))
    board.reload()
    expect(ui.card(board, "Fix the roof")).to_be_visible()
    expect(ui.card(board, "Fix the door")).to_have_count(0)
    expect(board.get_by_label("Search")).to_have_value("ROOF")
    expect(ui.choice(board, "Assignee")).to_contain_text("Me")
    expect(ui.column(board, "To do")).to_have_accessible_name("To do 1")
    board.go_back()
    expect(ui.choice(board, "Priority")).to_contain_text("Any priority")
    ui.press(board, "Clear filters")
    choices = {"Due": "Overdue", "Assignee": "Olga Owner", "Milestone": "Roofed"}
    for label, words in choices.items():
        ui.pick(board, label, words)
        found = "door" if label == "Due" else "roof"
        expect(board.locator(".card")).to_have_text([re.compile(f"Fix the {found}")])
        ui.press(board, "Clear filters")
        expect(board.locator(".card")).to_have_count(2)
    ui.show(board, "view=project")  # without naming a project
    ui.show(board, "view=constructor&mine=1")
    expect(board.get_by_role("heading", level=1)).to_have_text("All projects")
    expect(ui.card(board, "Fix the roof")).to_be_visible()
    expect(ui.choice(board, "Assignee")).to_contain_text("Me")
    owner.data(owner.patch(f"/projects/{project['id']}", {"status": "archived"}))
    ui.refresh(board)
    expect(ui.card(board, "Fix the roof")).to_have_count(0)
    total = owner.read("/tasks", limit=1, archived="false")["pagination"]["total"]
    expect(board.locator("#projects a").first).to_have_attribute("title", re.compile(f"of {total} done"))


def test_a_board_is_loaded_in_steps_and_shows_no_card_of_another_one(board, server, owner, project):
    owner.make_task(project, title="Of the first")
    second = owner.make_project(name="Second project")
    add_copies(server, owner.make_task(second, title="Older"), 178)
    server.rows("UPDATE task SET updated_at = '2020-01-01T00:00:00.000Z' WHERE title = 'Older'")
    owner.make_task(second, title="Of the second")
    ui.refresh(board, "Of the first")
    asked, todo = [], ui.column(board, "To do")
    board.on("request", lambda request: asked.append(request.url) if "&status=" in request.url else None)
    requests_of_a_column = re.compile(rf"/tasks\?project_id={second['id']}&status=todo")
    board.route(requests_of_a_column, lambda route: route.fulfill(status=503))
    ui.show(board, f"project={second['id']}&sort=-updated_at")
    expect(ui.fault(board)).to_contain_text("The server answered 503")
    expect(board.get_by_role("heading", level=1)).to_have_text("Second project")
    expect(ui.card(board, "Of the first")).to_have_count(0)
    expect(todo).to_have_attribute("aria-busy", "true")
    expect(todo).to_have_accessible_name("To do")
    board.unroute(requests_of_a_column)
    ui.refresh(board, "Of the second")
    expect(todo).to_have_attribute("aria-busy", "false")
    expect(ui.card(board, "Of the first")).to_have_count(0)
    expect(todo).to_have_accessible_name("To do 180")
    cards = todo.locator(".card")
    expect(cards).to_have_count(20)
    assert all("limit=20" in url for url in asked)
    assert 4 <= len(asked) <= 12  # four columns, and again since the tasks are new
    cards.last.scroll_into_view_if_needed()
    expect(cards).to_have_count(70)
    top = owner.make_task(second, title="On top")
    ui.refresh(board, "On top")  # which keeps what is shown
    expect(cards).to_have_count(71)
    more = todo.get_by_role("button", name="Show more")
    for shown in (121, 171, 181):
        more.dispatch_event("click")  # without scrolling there, which loads as well
        expect(cards).to_have_count(shown)
    expect(todo).to_have_accessible_name("To do 181")
    expect(more).to_be_hidden()
    cards.first.scroll_into_view_if_needed()
    owner.data(owner.patch(f"/tasks/{top['id']}/details", {"labels": ["a label among many"]}))
    server.rows("UPDATE task SET updated_at = ? WHERE title = 'Older'", now())
    ui.refresh(board)  # more than one answer holds
    expect(cards).to_have_count(181)
    ui.choice(board, "Label").click()
    expect(board.get_by_role("option", name="a label among many")).to_be_visible()


def test_a_board_that_fails_in_part_is_followed_and_searched_column_by_column(board, owner, project):
    owner.make_task(project, title="Late")
    events, place = [], board.url.partition("#")[2]
    for view, failing in (("view=today", re.compile("/today$")), (place, re.compile("status=todo"))):
        ui.show(board, view)
        board.route(failing, lambda route: route.fulfill(status=503))
        board.reload()
        expect(ui.fault(board)).to_contain_text("The server answered 503")
        with board.expect_response(lambda answer, at=failing: answer.ok and at.search(answer.url)):
            board.unroute(failing)
            ui.refresh(board)
    expect(ui.card(board, "Late")).to_be_visible()
    for name, sign in (("request", "+"), ("response", "-")):
        board.on(name, lambda seen, sign=sign: events.append(sign) if "q=late" in seen.url else None)
    board.get_by_label("Search").fill("late")
    wait_until(lambda: board.evaluate("0") or len(events) >= 8)
    assert "++" not in "".join(events)  # a member may run two at a time


@pytest.mark.parametrize("role", ["client", "a key that may only read"])
def test_what_the_api_would_refuse_is_not_offered(sign_in, owner, join, project, role):
    task = owner.make_task(project, title="Look at me")
    owner.data(owner.patch(f"/projects/{project['id']}", {"status": "archived"}))
    body = {"name": "reader", "scope": "read"}
    key = join("client").key if role == "client" else owner.make("/keys", body)["api_key"]
    page = sign_in(key, f"#project={project['id']}")
    expect(ui.card(page, "Look at me")).to_have_attribute("draggable", "false")
    expect(page.get_by_text("This project is archived")).to_be_visible()
    for name in ("New task", "New project", "More for “Look at me”", "Unarchive"):
        assert not page.get_by_role("button", name=name).or_(page.get_by_label(name)).is_visible()
    dialog = ui.opened(page, "Look at me")
    for label in ("Title", "Status", "Due date"):
        expect(dialog.get_by_label(label)).to_be_disabled()
    expect(dialog.get_by_role("button", name="Save changes")).to_be_hidden()
    expect(dialog.get_by_role("button", name=re.compile("description"))).to_have_count(0)
    expect(dialog.get_by_label("Attach files")).to_have_count(0)
    if role == "client":
        ui.comment(dialog, "I may say this")
        expect(dialog.locator(".comment[aria-busy=false]")).to_contain_text("I may say this")
        assert len(owner.read(f"/tasks/{task['id']}/comments")["comments"]) == 1
    else:
        expect(dialog.get_by_label("New comment")).to_be_hidden()
    ui.show(page, "view=webhooks")
    expect(page.get_by_role("heading", level=1)).to_have_text("All projects")
    ui.choice(page, "Assignee").click()
    expect(page.get_by_role("option").first).to_have_text("Anyone")
    expect(page.get_by_role("option", name="Me", exact=True)).to_have_count(0)


def test_where_there_is_no_room_one_button_opens_the_filters(board, owner, project):
    owner.make_task(project, title="Roof", priority="high")
    ui.refresh(board, "Roof")
    board.set_viewport_size({"width": 720, "height": 450})
    expect(ui.choice(board, "Priority")).to_have_count(0)
    ui.press(board, "Filter")
    ui.pick(board, "Priority", "High")
    ui.check_page(board)
    board.set_viewport_size({"width": 375, "height": 812})
    board.keyboard.press("Escape")
    expect(board.get_by_role("button", name="Filter (1)")).to_be_visible()
    assert board.locator(".card").bounding_box()["y"] < 190
    ui.link(board, "Roof").focus()
    board.evaluate("document.activeElement.blur()")
    board.keyboard.press("/")
    expect(board.get_by_role("searchbox")).to_be_focused()


def test_on_a_phone_the_filters_and_the_bar_of_selected_cards_are_within_reach(board, owner):
    project = owner.make_project(name="A name that is longer than a phone is wide")
    owner.make_task(project, title="Walk")
    board.set_viewport_size({"width": 375, "height": 812})
    ui.show(board, f"project={project['id']}")
    expect(board.get_by_role("button", name="Filter", exact=True)).to_be_in_viewport(ratio=0.99)
    ui.link(board, "Walk").press("x")
    for name in ("Clear", "Status", "Due date", "Delete"):
        button = board.get_by_role("toolbar").get_by_role("button", name=name, exact=True)
        button.scroll_into_view_if_needed()
        expect(button).to_be_in_viewport(ratio=0.99)


def test_a_link_to_a_project_that_is_seconds_old_shows_it(board, owner):
    ui.unseen(board)
    made = owner.make_project(name="Fresh")
    ui.show(board, f"project={made['id']}")
    expect(board.get_by_role("heading", level=1)).to_have_text("Fresh")
    ui.show(board, f"project={made['id']}0")
    expect(board.get_by_text("There is no such project.")).to_be_visible()


def test_a_column_is_folded_in_this_browser_until_it_is_unfolded(board, owner, project):
    owner.make_task(project, title="Walk")
    ui.refresh(board, "Walk")
    ui.press(board, "Fold Done")
    ui.choose(board, "Walk", "Done")
    expect(ui.column(board, "Done")).to_have_accessible_name("Done 1")
    expect(ui.card(board, "Walk")).to_be_hidden()
    ui.check_page(board)
    board.reload()
    expect(board.get_by_role("button", name="Unfold Done")).to_have_attribute("aria-expanded", "false")
    expect(ui.card(board, "Walk")).to_be_hidden()
    ui.press(board, "Unfold Done")
    expect(ui.card(board, "Walk", "Done")).to_be_visible()


def test_the_activity_tells_what_was_deleted_with_its_number(sign_in, owner, project, task):
    owner.delete(f"/tasks/{task['id']}")
    page = sign_in(address="#view=activity")
    entries = page.locator("li.entry")
    expect(entries.filter(has_text=f"created #{task['number']} {task['title']}")).to_have_count(1)
    page.get_by_label("Kind").click()
    page.get_by_role("option", name="Deleted").click()
    expect(entries.filter(has_text="created")).to_have_count(0)
    expect(entries.first).to_contain_text(f"deleted #{task['number']} {task['title']}")


# How it is served


def test_it_works_below_a_path_of_a_proxy_and_says_after_which_time_to_try_again(browse, launch, request):
    limit = {"TASKS_LIMITS__REQUESTS_PER_MINUTE": "30"}
    server = launch(TASKS_SERVER__BASE_URL="https://example.com/our/tasks", **limit)
    page, elsewhere = browse(refusals=True, own=True), []
    target = {"target": f"{server.base}/", "remove_prefix": True, "host": None}
    proxy = make_server("127.0.0.1", 0, ProxyMiddleware(NotFound(), {"/our/tasks/": target}), threaded=True)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    request.addfinalizer(proxy.shutdown)
    prefix = f"http://127.0.0.1:{proxy.port}/our/tasks"
    page.on("request", lambda asked: asked.url.startswith(prefix) or elsewhere.append(asked.url))
    page.goto(f"{prefix}/")
    with page.expect_response("**/changes?*"):
        ui.enter(page, OWNER_KEY)
    expect(page.get_by_text("No tasks yet.")).to_be_visible()
    assert elsewhere == []
    wait_until(lambda: page.evaluate("fetch('api/v1/me').then(({ status }) => status)") == 429)
    ui.pick(page, "Priority", "High")
    expect(ui.fault(page)).to_contain_text(re.compile(r"Too many requests; try again in \d+ s\.[A-Z]"))
    expect(ui.fault(page).get_by_role("button", name="Try again")).to_be_visible()


def test_the_reader_comes_back_to_where_they_were(sign_in, owner, project, server):
    task = owner.make_task(project, title="Price list")
    page = sign_in(address=f"#project={project['id']}&q=price")
    ui.view(page, "Activity")
    ui.link(page, f"#{task['number']} Price list").click()
    ui.press(page.get_by_role("dialog", name="Price list"), "Close")
    expect(page.get_by_role("heading", level=1)).to_have_text("Activity")
    page.keyboard.press("/")
    expect(page.get_by_label("Search", exact=True)).to_be_focused()
    expect(page.get_by_label("Search", exact=True)).to_have_value("price")  # as in the view before
    ui.show(page, f"#project={project['id']}&task={task['number']}")
    expect(page.get_by_role("dialog", name="Price list")).to_be_visible()
    for key in owner.read("/keys")["keys"]:
        if key["is_session"]:
            owner.data(owner.delete(f"/keys/{key['id']}"))
    ui.refresh(page)
    expect(page.get_by_text("Sign in with an API key")).to_be_visible()
    invitation = owner.make(f"/members/{owner.member['id']}/invitation")
    page.goto(server.base + invitation["enrollment_link"].removeprefix("http://127.0.0.1:8000"))
    ui.press(page, "Sign in to Workspace")
    expect(page.get_by_role("dialog", name="Price list")).to_be_visible()


def test_a_dialog_is_closed_by_a_press_beside_it_and_keeps_what_was_typed(board):
    for beside in ((5, 300), (1200, 300), (640, 5), (640, 715)):
        ui.press(board, "New project")
        dialog = board.get_by_role("dialog", name="New project")
        expect(dialog.get_by_label("Name")).to_be_focused()
        board.keyboard.type("x")
        board.mouse.click(*beside)
        expect(dialog).not_to_be_visible()
    ui.press(board, "New project")
    expect(board.get_by_role("dialog").get_by_label("Name")).to_have_value("xxxx")


def test_closing_a_task_goes_back_to_where_it_was_opened(board, owner, project):
    owner.make_task(project, title="Walk")
    ui.view(board, "My tasks")
    ui.view(board, "Board")
    ui.press(ui.opened(board, "Walk"), "Close")
    expect(board.get_by_role("dialog")).to_have_count(0)
    steps = board.evaluate("history.length")
    ui.press(ui.opened(board, "Walk"), "Close")
    expect(board.get_by_role("dialog")).to_have_count(0)
    assert board.evaluate("history.length") == steps
    board.go_back()
    expect(board.get_by_role("heading", level=1)).to_have_text("My tasks")


def test_the_board_is_where_it_was_scrolled_to_after_another_view(board, owner, project):
    for number in range(20):
        owner.make_task(project, title=f"Task {number}")
    ui.refresh(board, "Task 19")
    board.set_viewport_size({"width": 500, "height": 700})
    places = "[document.querySelector('.column').scrollTop, document.querySelector('#board').scrollLeft]"
    board.evaluate("document.querySelector('.column').scrollTo(0, 300)")
    board.evaluate("document.querySelectorAll('.column')[1].scrollIntoView({ inline: 'start' })")
    before = board.evaluate(places)
    assert min(before) > 0
    ui.view(board, "My tasks")
    ui.view(board, "Board")
    wait_until(lambda: board.evaluate(places) == before)


def test_keys_select_a_column_and_show_only_your_own_tasks(board, owner, project):
    for title in ("One", "Two"):
        owner.make_task(project, title=title)
    mine = owner.make_task(project, title="Mine", assignee_id=ui.me(board)["member"]["id"])
    owner.patch(f"/tasks/{mine['id']}", {"status": "in_progress"})
    ui.refresh(board, "Two")
    ui.link(board, "One").press("Control+a")
    expect(board.get_by_role("toolbar")).to_contain_text("2 selected")
    board.keyboard.press("Escape")
    board.keyboard.press("q")
    expect(board.locator(".card .title")).to_have_text(["Mine"])
    board.locator(".card .title").press("q")
    expect(board.locator(".card .title")).to_have_count(3)


def test_a_view_that_failed_to_load_is_loaded_again_soon(sign_in, owner, join, project):
    walker = join()
    due = owner.read("/context")["system"]["current_time"][:10]
    task = owner.make_task(project, title="Walk", assignee_id=walker.member["id"], due_date=due)
    page = sign_in(walker.key, "#view=people")
    for address, file, words in (
        (f"project={project['id']}", "tasks", "Walk"),
        ("view=mine", "tasks", "Walk"),
        ("view=month", "meetings", "Walk"),
        ("view=activity", "activity", f"#{task['number']} Walk"),
    ):
        page.route(re.compile(rf"/{file}(\?|$)"), lambda route: route.abort())
        ui.show(page, address)
        expect(ui.fault(page)).to_contain_text("The server cannot be reached.")
        page.unroute_all()
        # The page tries again after 5 s. A longer pause would take ten times as long (`SLOWED`).
        expect(ui.link(page, words).first).to_be_visible(timeout=30_000)
        expect(ui.fault(page).locator(".notice")).to_have_count(0)


def test_a_page_that_may_store_nothing_says_so(browser, server):
    page = browser.new_page()
    refuse = "{ get() { throw new DOMException('denied', 'SecurityError'); } }"
    page.add_init_script(f"Object.defineProperty(window, 'localStorage', {refuse})")
    page.goto(server.base)
    expect(page.get_by_text("Allow cookies and storage")).to_be_visible()
    page.close()


def test_a_file_that_is_dropped_beside_a_task_replaces_nothing(board):
    script = """(element) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(["x"], "x.txt"));
        const more = { bubbles: true, cancelable: true, dataTransfer };
        return element.dispatchEvent(new DragEvent("drop", more));
    }"""
    assert board.locator("#board").evaluate(script) is False  # the browser does not open it


def test_a_printed_column_that_goes_on_says_so(board, owner, project):
    for number in range(21):
        owner.make_task(project, title=f"Task {number}")
    board.route("**/tasks?*offset=20&*", lambda route: None)  # a printer does not wait for more
    board.reload()
    expect(ui.column(board, "To do").get_by_role("button", name="Show more")).to_be_attached()
    board.emulate_media(media="print")
    more = board.locator(".more")
    expect(more).to_be_visible()
    assert more.evaluate("(one) => getComputedStyle(one, '::after').content") == '": not printed"'
    expect(ui.column(board, "To do").get_by_role("button", name="Fold To do")).not_to_be_visible()
