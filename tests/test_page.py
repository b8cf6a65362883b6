"""The page at / as people use it, each view, dialog and form once: what `make test` does in a browser."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import board as ui
import pytest
import requests
from harness import OWNER_KEY, PATIENCE, wait_until
from playwright.sync_api import expect
from test_board_today import Desk, answer, dismiss_all, rows
from test_keys import make_key
from test_tools import refused, use

MARKDOWN = "- one\n- **two**\n\n`code` [safe](https://example.com/) [unsafe](javascript:alert(1)) <b>raw</b>"

# Drop or paste a file with these bytes, or with as many.
GIVE = """(place, [kind, filename, content]) => {
    const [data, Kind] = [new DataTransfer(), kind === "drop" ? DragEvent : ClipboardEvent];
    const decoded = () => Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    const bytes = content > 0 ? new Uint8Array(content) : decoded();
    data.items.add(new File([bytes], filename, { type: "image/png" }));
    place.dispatchEvent(new Kind(kind, { bubbles: true, dataTransfer: data, clipboardData: data }));
}"""

# From outside of the browser, a busy machine may take longer for a letter than the page waits for the next.
TYPE = """async (input, words) => {
    for (const letter of words) {
        input.value += letter;
        input.dispatchEvent(new Event("input", { bubbles: true }));
        await new Promise((next) => setTimeout(next));  // a frame is later on a busy machine
    }
}"""


def check_page(page):
    """Look at it on light screens alone; a long test looks at each view and dialog on dark ones, too."""
    ui.check_page(page, [ui.NARROW, ("light", 1280)])


def announced(page):
    return page.locator("p.skip[role=status]")


def titles(page, status="To do"):
    return ui.column(page, status).locator(".card .title")


def own(page):
    return page.locator("main .title")


def day(page, date):
    return page.locator(f"[data-day='{date}']")


def in_days(days):
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def history_of(dialog):
    dialog.get_by_text("History", exact=True).click()
    return dialog.get_by_role("list", name="History")


def open_form(page, button, name=None):
    ui.press(page, button)
    dialog = page.get_by_role("dialog", name=name or button, exact=True)
    expect(dialog).to_be_visible()
    return dialog


# Signing in


def test_a_wrong_key_is_refused_and_a_good_one_is_kept_from_scripts(browse, server, project):
    page, addresses = browse(refusals=True), []
    page.on("request", lambda request: addresses.append(request.url))
    page.goto(f"{server.base}/#project={project['id']}")
    for key in ("tms_no-such-key", "ключ"):
        ui.enter(page, key)
        expect(page.locator(".entrance").get_by_role("alert")).to_contain_text("API key does not exist")
    ui.enter(page, OWNER_KEY)
    heading = page.get_by_role("heading", level=1, name=project["name"])
    expect(heading).to_be_focused()
    page.reload()
    expect(heading).to_be_visible()
    assert page.evaluate("Object.entries(sessionStorage)") == [["reader", ui.me(page)["member"]["id"]]]
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["value"] == OWNER_KEY) == (True, False)
    assert not any(OWNER_KEY in address for address in [*addresses, page.url])
    assert OWNER_KEY not in server.log.read_text()
    ui.press(ui.user_menu(page), "Sign out")
    expect(page.get_by_text("Sign in with an API key")).to_be_visible()
    assert (page.evaluate("sessionStorage.length"), page.context.cookies()) == (0, [])


@pytest.mark.parametrize("ends", [True, pytest.param(False, marks=pytest.mark.long)])
def test_who_signs_out_is_asked_whether_what_was_made_in_the_session_ends_too(sign_in, join, server, ends):
    page, asked = sign_in(join().key), []

    def answer(dialog):
        asked.append(dialog.message)
        dialog.accept() if ends else dialog.dismiss()

    page.once("dialog", answer)
    headers = {"X-Requested-With": "page"}
    made = page.request.post(f"{server.base}/api/v1/keys", data={"name": "Script"}, headers=headers)
    ui.press(ui.user_menu(page), "Sign out")
    expect(page.get_by_text("Sign in with an API key")).to_be_visible()
    assert asked == ["Also end what you made in this session: Script?"]
    assert server.client(made.json()["data"]["api_key"]).get("/me").status_code == (401 if ends else 200)


def test_a_revoked_session_leads_back_and_drafts_wait_for_their_owner_alone(sign_in, owner, ana, project):
    task = owner.make_task(project, title="Draft")
    page = sign_in(address=f"#project={project['id']}&task={task['id']}")
    dialog = page.get_by_role("dialog", name="Draft")
    ui.press(dialog, "Close")
    new = ui.new_task(page)
    new.get_by_label("Title").fill("My plans")
    ui.press(new, "Close")
    ui.opened(page, "Draft")
    page.go_back()
    expect(dialog).to_be_hidden()
    page.go_forward()
    ui.press(dialog, "Add a description")
    dialog.get_by_label("Description").fill("Half a thought")
    dialog.get_by_label("New comment").fill("Half a sentence")
    owner.data(owner.delete(f"/keys/{ui.me(page)['key']['id']}"))  # the next request of the page is refused
    expect(page.get_by_role("alert").filter(has_text="You are signed out")).to_be_visible()
    expect(dialog).to_be_hidden()
    assert page.title() == "Workspace"
    expect(page.get_by_text(re.compile("Draft|Olga"))).to_have_count(0)
    ui.enter(page, OWNER_KEY)
    expect(dialog.get_by_label("New comment")).to_have_value("Half a sentence")
    expect(ui.message(dialog)).to_contain_text("Not saved yet.")
    ui.press(dialog, "Edit description")
    expect(dialog.get_by_label("Description")).to_have_value("Half a thought")
    ui.press(dialog, "Close")
    expect(ui.card(page, "Draft")).to_contain_text("Not saved")
    ui.new_task(page)
    expect(new.get_by_label("Title")).to_have_value("My plans")
    owner.data(owner.delete(f"/keys/{ui.me(page)['key']['id']}"))
    ui.press(new, "Create task")
    ui.enter(page, ana.key)
    expect(page.get_by_role("heading", level=1)).to_have_text(project["name"])
    expect(ui.notice(page)).to_be_empty()
    expect(ui.user_menu(page)).to_contain_text("Ana Lima, Member")
    assert page.evaluate("Object.keys(sessionStorage)") == ["reader"]
    ui.show(page, f"project={project['id']}&task={task['id']}")
    expect(dialog.get_by_label("New comment")).to_have_value("")
    expect(ui.message(dialog)).to_have_count(0)


def test_quick_titles_and_the_account_are_kept_as_drafts(board):
    board.get_by_label("New task in To do").fill("Half a ti")
    ui.show(board, "#view=account")
    board.get_by_label("Phone").fill("+1")
    board.reload()
    expect(board.get_by_label("Phone")).to_have_value("+1")
    board.go_back()
    expect(board.get_by_label("New task in To do")).to_have_value("Half a ti")


def test_a_text_that_is_too_long_is_not_cut(board):
    field = board.get_by_label("New task in To do")
    field.fill("x" * 501)
    field.press("Enter")
    expect(ui.fault(board)).to_contain_text("x”. Title must be at most 500 characters long.")
    expect(field).to_have_value("x" * 501)


# The board


def test_a_card_is_moved_by_keyboard_with_the_focus_and_by_dragging(board, owner, project):
    task = owner.make_task(project, title="Walk")
    ui.refresh(board, "Walk")
    title = ui.link(board, "Walk")
    with ui.held(board, f"**/tasks/{task['id']}/details"):
        ui.choose(board, "Walk", "Review")
        expect(ui.card(board, "Walk", "Review")).to_be_visible()  # before the server has answered
        assert title.count() == 1  # it is never in two columns
    expect(ui.card(board, "Walk", "Review")).to_be_visible()
    expect(title).to_be_focused()
    expect(ui.notice(board)).to_contain_text("Moved “Walk” to Review.")
    assert ui.stored(owner, task)["status"] == "review"
    ui.press(ui.notice(board), "Dismiss")
    expect(ui.notice(board)).to_be_empty()
    ui.card(board, "Walk", "Review").drag_to(ui.column(board, "Done"))
    expect(ui.card(board, "Walk", "Done")).to_be_visible()
    expect(ui.card(board, "Walk", "Review")).to_have_count(0)
    expect(board.locator("#projects [aria-current]")).to_have_attribute("title", "1 of 1 done")
    ui.press(ui.notice(board), "Undo")
    expect(ui.card(board, "Walk", "Review")).to_be_visible()
    expect(ui.notice(board).get_by_role("button", name="Undo")).to_have_count(0)


def test_a_task_is_created_with_all_its_fields_and_what_is_wrong_said_in_their_words(board, owner, project):
    dialog = ui.new_task(board)
    title = dialog.get_by_label("Title")
    expect(title).to_be_focused()
    title.fill("x" * 501)
    ui.pick(dialog, "Due date", "1969-01-01")
    ui.press(dialog, "Create task")
    expect(ui.message(dialog)).to_contain_text("Title must be at most 500 characters long.")
    expect(ui.message(dialog)).to_contain_text("Due date must be between the years 1970 and 9999.")
    title.fill("Paint the fence")
    ui.pick(dialog, "Due date", "2099-12-01")
    ui.pick(dialog, "Priority", "High")
    ui.pick(dialog, "Assignee", "Olga Owner")
    dialog.get_by_label("Description").fill("Green.\nTwice.")
    title.press("Enter")
    expect(dialog).to_be_hidden()
    expect(ui.card(board, "Paint the fence", "To do")).to_contain_text("1 Dec 2099")
    for name in ("High priority", "Olga Owner"):
        expect(ui.card(board, "Paint the fence").get_by_role("img", name=name)).to_be_visible()
    expect(ui.link(board, "Paint the fence")).to_be_focused()
    expect(ui.notice(board)).to_contain_text("Created “Paint the fence”.")
    (task,) = owner.read("/tasks", project_id=project["id"])["tasks"]
    assert (task["description"], task["priority"]) == ("Green.\nTwice.", "high")
    assert task["due_date"] == "2099-12-01T23:59:59.999Z"
    expect(board.locator("#projects [aria-current]")).to_have_attribute("title", "0 of 1 done")
    quick = ui.column(board, "Review").get_by_label("New task in Review")
    quick.fill("Admire it")
    quick.press("Enter")
    expect(ui.card(board, "Admire it", "Review")).to_be_visible()
    expect(quick.and_(board.locator(":focus"))).to_have_value("")


def test_projects_are_made_and_unarchived_on_the_page(sign_in, launch):
    server = launch()
    owner = server.client()
    page = sign_in(base=server.base)
    for step, there in {"Say who you are": "Your account", "Invite your team": "People"}.items():
        ui.show(page, "view=")
        expect(page.get_by_text("No tasks yet.")).to_be_visible()
        ui.link(page, step).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(there)
    ui.show(page, "view=")
    expect(ui.link(page, "Let an agent work along")).to_have_attribute("href", "#view=account")
    check_page(page)
    ui.press(page, "Create the first project")
    page.keyboard.press("Escape")
    ui.press(page, "New task")  # which belongs to a project
    page.get_by_role("dialog", name="New project").get_by_label("Name").fill("Attic")
    ui.press(page, "Create project")
    expect(page.get_by_role("heading", level=1)).to_have_text("Attic")
    expect(page.get_by_text("Archived", exact=True)).to_be_hidden()
    (archived,) = owner.read("/projects")["projects"]
    owner.make_project(name="Zoo")
    task = owner.make_task(archived, title="Dusty")
    owner.data(owner.patch(f"/projects/{archived['id']}", {"status": "archived"}))
    ui.refresh(page)
    says = page.get_by_text("This project is archived")
    expect(says).to_be_visible()
    expect(page.get_by_role("button", name="New task")).to_have_count(0)
    page.keyboard.press("n")
    new = page.get_by_role("dialog", name="New task")
    expect(ui.choice(new, "Project")).to_contain_text("Zoo")
    ui.press(new, "Close")
    page.get_by_role("link", name=re.compile("^Zoo")).click()
    expect(says).to_be_hidden()
    page.get_by_text("Archived", exact=True).click()
    page.get_by_role("link", name=re.compile("^Attic")).click()
    expect(ui.card(page, "Dusty")).to_be_visible()
    ui.press(page, "Unarchive")
    expect(says).to_be_hidden()
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.get_by_text("Archived", exact=True)).to_be_hidden()
    expect(page.locator("#projects [aria-current]")).to_contain_text("Attic")
    assert ui.stored(owner, task)["project_id"] == archived["id"]


def test_labels_are_chosen_made_shown_and_filtered(board, owner, project):
    owner.make_task(project, title="Known", labels=["bug"])
    task = owner.make_task(project, title="Labelled", labels=["old"])
    dialog = ui.opened(board, "Labelled")
    ui.choice(dialog, "Labels").click()
    expect(board.get_by_role("option", name="bug")).to_be_visible()
    for typed in ("OLD", "BUG", "needs thought"):
        ui.find(board, typed)
    board.keyboard.press("Escape")
    expect(ui.choice(dialog, "Labels")).to_have_text("bugneeds thought")
    wait_until(lambda: ui.stored(owner, task)["labels"] == ["bug", "needs thought"])
    ui.press(dialog, "Close")
    expect(ui.card(board, "Labelled").locator(".label")).to_have_text(["bug", "needs thought"])
    ui.pick(board, "Label", "needs thought")
    expect(ui.card(board, "Known")).to_have_count(0)
    assert "label=needs" in board.url
    quick = ui.column(board, "To do").get_by_label("New task in To do")
    quick.fill("Quick")
    quick.press("Enter")
    expect(ui.card(board, "Quick").locator(".label")).to_have_text(["needs thought"])
    dialog = ui.new_task(board)
    expect(ui.choice(dialog, "Labels")).to_have_text("needs thought")
    ui.fill_in(dialog, {"Title": "Careful"}, "Create task")
    expect(ui.card(board, "Careful").locator(".label")).to_have_text(["needs thought"])
    check_page(board)
    ui.show(board, f"project={project['id']}&label=BUG")  # as somebody may write it
    expect(titles(board)).to_have_text(["Known", "Labelled"])


def test_the_keyboard_opens_searches_helps_and_goes_from_card_to_card(board, owner, project):
    aside, *_ = (owner.make_task(project, title=title) for title in ("Aside", "Above", "Below"))
    owner.data(owner.patch(f"/tasks/{aside['id']}", {"status": "review"}))
    ui.refresh(board, "Aside")
    press_key = board.keyboard.press
    press_key("ArrowDown")
    expect(ui.link(board, "Above")).to_be_focused()
    for key, title in {"Down": "Below", "Right": "Aside", "Left": "Above", "Up": "Above"}.items():
        press_key(f"Arrow{key}")
        expect(ui.link(board, title)).to_be_focused()
    for key, name in (("n", "New task"), ("?", "Keyboard shortcuts")):
        press_key(key)
        expect(board.get_by_role("dialog", name=name)).to_be_visible()
        press_key("Escape")
        expect(board.get_by_role("dialog")).to_have_count(0)
    press_key("/")
    board.keyboard.type("n?/")
    expect(board).to_have_url(re.compile("q=n%3F%2F"))
    expect(board.get_by_text("Nothing matches these filters.")).to_be_visible()
    expect(board.get_by_role("button", name="Clear filters")).to_have_count(1)
    press_key("Escape")
    expect(board.get_by_label("Search")).not_to_be_focused()
    board.get_by_role("link", name="Skip to the content").press("Enter")
    expect(board.get_by_role("heading", level=1)).to_be_focused()


def test_find_lists_tasks_comments_projects_people_views_and_commands(board, owner, project):
    task = owner.make_task(project, title="Choose a Zephyr", description="By *wind*")
    owner.make(f"/tasks/{task['id']}/comments", {"content": "Ask the quartermaster"})
    done = owner.make_task(project, title="Last year's Zephyr")  # is found after what is open
    owner.data(owner.post(f"/tasks/{done['id']}/complete"))
    asked = []
    board.on("request", lambda request: asked.append(request.url) if "q=" in request.url else None)
    find = board.get_by_role("combobox", name="Find")
    options = board.get_by_role("option")
    for words, about in {
        f"#{task['number']}": project["name"],
        "zeph": "",
        "wind": "…By *wind*…",
        "quartermaster": "in a comment",
    }.items():
        board.keyboard.press("Control+k")
        expect(find).to_be_focused()
        find.evaluate(TYPE, words)
        expect(options.filter(has_text="Choose a Zephyr")).to_have_class(re.compile("current"))
        expect(options.filter(has_text="Choose a Zephyr")).to_contain_text(about)
        board.keyboard.press("Enter")
        expect(board.get_by_role("dialog", name="Choose a Zephyr")).to_be_visible()
        board.keyboard.press("Escape")
    assert len(asked) < 19  # of 56 for 28 letters, and 8 if none comes late
    ui.press(board, "Find")
    expect(options.first).to_contain_text("Choose a Zephyr")  # opened before
    check_page(board)
    board.keyboard.type("olga")
    expect(options.first).to_have_text(re.compile("Olga Owner\\s*Person"))
    board.keyboard.press("Enter")
    expect(ui.choice(board, "Assignee")).to_contain_text("Olga Owner")
    board.keyboard.press("Control+k")
    board.keyboard.type("invi")
    board.keyboard.press("Enter")
    expect(board.get_by_role("dialog", name="Invite")).to_be_visible()
    ui.pick(board.get_by_role("dialog"), "Role", "Client")
    expect(board.get_by_role("dialog")).to_contain_text("This client sees the chosen projects")
    board.keyboard.press("Escape")
    board.keyboard.press("Control+k")
    board.keyboard.type("meet")
    board.keyboard.press("ArrowDown")
    board.keyboard.press("ArrowUp")
    board.keyboard.press("Enter")
    expect(board.get_by_role("heading", level=1)).to_have_text("Meetings")
    expect(board.get_by_role("heading", level=1)).to_be_focused()


# A task


def test_every_field_of_an_opened_task_is_changed_and_its_history_tells(board, owner, project, milestone):
    task = owner.make_task(project, title="Before", description="Old")
    dialog = ui.opened(board, "Before")
    chosen = {"Status": "Review", "Priority": "Urgent", "Assignee": "Olga Owner", "Milestone": "M"}
    for label, text in chosen.items():  # which need no button
        ui.pick(dialog, label, text)
    for label in ("Start date", "Due date"):
        ui.pick(dialog, label, "2098-01-02")
    wait_until(lambda: ui.stored(owner, task)["due_date"])
    expect(ui.message(dialog)).to_have_text("Saved.")
    version = ui.stored(owner, task)["version"]
    ui.press(dialog, "Edit description")
    for label, text in (("Title", " and after"), ("Description", "\nand new")):
        dialog.get_by_label(label).press("Control+End")
        dialog.get_by_label(label).press_sequentially(text)
    ui.save(dialog, {})
    dialog = board.get_by_role("dialog", name="Before and after")
    expect(ui.message(dialog)).to_have_text("Saved.")
    expect(dialog.locator(".text")).to_contain_text("and new")  # and is no longer edited
    saved = ui.stored(owner, task)
    assert (saved["title"], saved["description"]) == ("Before and after", "Old\nand new")
    chosen = [saved[name] for name in ("status", "priority", "milestone_id")]
    assert chosen == ["review", "urgent", milestone["id"]]
    assert saved["start_date"][:10] == saved["due_date"][:10] == "2098-01-02"
    assert saved["version"] == version + 1
    history = history_of(dialog)
    for text in ("moved to Review", "Priority: Medium → Urgent", "Title: Before → Before and after"):
        expect(history.get_by_text(text)).to_be_visible()
    expect(history).to_contain_text("created")
    ui.pick(dialog, "Assignee", "Nobody")
    ui.pick(dialog, "Due date", "None")
    for text in ("Assignee: Olga Owner → none", "Due date: 2 Jan 2098 → none"):
        expect(history).to_contain_text(text)
    saved = ui.stored(owner, task)
    assert (saved["due_date"], saved["assignee_id"], saved["title"]) == (None, None, "Before and after")
    expect(history.get_by_role("listitem").last).to_contain_text("created")
    expect(dialog.get_by_role("button", name="Show earlier")).to_be_hidden()
    board.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(ui.link(board, "Before and after")).to_be_focused()
    assert "task=" not in board.url


def test_comments_are_added_changed_and_deleted(board, owner, ana, project):
    task = owner.make_task(project, title="Talk")
    ana.make(f"/tasks/{task['id']}/comments", {"content": "Mine, not yours"})
    dialog = ui.opened(board, "Talk")
    comments = dialog.get_by_role("list", name="Comments").get_by_role("listitem")
    expect(comments).to_have_count(1)
    expect(comments.get_by_role("button")).to_have_text(["Delete"])
    ui.comment(dialog, "First\nline <b>two</b>")
    expect(comments).to_have_count(2)
    expect(comments.last).to_contain_text("line <b>two</b>")
    expect(dialog.get_by_label("New comment")).to_have_value("")
    dialog.get_by_label("New comment").fill("a draft")
    comments.last.get_by_role("button", name="Edit").focus()
    ana.make(f"/tasks/{task['id']}/comments", {"content": "Another"})
    ui.refresh(board)
    expect(comments).to_have_count(3)
    expect(comments.nth(1).get_by_role("button", name="Edit")).to_be_focused()
    ui.press(comments.nth(1), "Edit")
    changed = dialog.get_by_label("Your comment, changed")
    expect(changed).to_be_focused()
    changed.fill(" ")
    ui.press(dialog, "Save comment")
    expect(ui.message(dialog)).to_have_text("Write a comment first.")
    changed.fill("Second thoughts")
    ui.press(dialog, "Save comment")
    expect(comments.nth(1)).to_contain_text("Second thoughts")
    expect(comments.nth(1)).to_contain_text("(edited)")
    expect(dialog.get_by_label("New comment")).to_have_value("a draft")
    ui.press(comments.nth(1), "Delete")
    expect(comments).to_have_count(2)
    expect(dialog.get_by_role("heading", name="Comments")).to_be_focused()
    ui.press(ui.notice(board), "Undo")
    expect(comments).to_have_count(3)
    ui.drop(board, "Delete", comments.nth(1))
    left = owner.read(f"/tasks/{task['id']}/comments")["comments"]
    assert [comment["content"] for comment in left] == ["Mine, not yours", "Another"]
    expect(history_of(dialog)).to_contain_text("deleted a comment")


def test_what_looks_like_code_is_text_and_a_file_is_fetched_as_it_was_attached(board, owner, project):
    title = "<script>document.title = 'taken'</script><img src=x onerror=alert(1)>"
    task = owner.make_task(project, title=title, description=title)
    owner.make(f"/tasks/{task['id']}/comments", {"content": title})
    dialog = ui.opened(board, title)
    expect(dialog.get_by_label("Title")).to_have_value(title)
    expect(dialog.locator(".text").first).to_have_text(title)
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text(title)
    assert board.locator("#workspace img, #workspace script").count() == 0
    assert board.title().endswith(f"#{task['number']} {title} – {project['name']}")
    name, content = "Grüße <1>.txt", bytes(range(256)) * 10
    files = [{"name": each, "mimeType": "text/plain", "buffer": content} for each in (name, "other.txt")]
    dialog.get_by_label("Attach files").set_input_files(files)
    expect(dialog.get_by_role("list", name="Attachments").get_by_role("listitem")).to_have_count(2)
    with board.expect_download() as download:
        ui.press(dialog, name)
    assert download.value.path().read_bytes() == content
    assert download.value.suggested_filename.startswith("Grüße")
    expect(dialog.get_by_label("Attach files")).to_have_value("")
    dialog.get_by_label("New comment").evaluate(GIVE, ["drop", "film.mov", 11_000_000])
    expect(ui.fault(board)).to_contain_text("film.mov was not attached. It is too large, with 11.0 MB.")
    ui.drop(board, "Remove other.txt")
    expect(dialog.get_by_role("list", name="Attachments").get_by_role("listitem")).to_have_count(1)
    history = history_of(dialog)
    expect(history).to_contain_text(f"attached {name}")
    expect(history).to_contain_text("removed other.txt")


def test_markdown_is_shown_and_only_safe_links_are_links(board, owner, project):
    task = owner.make_task(project, title="Written", description=MARKDOWN)
    owner.make(f"/tasks/{task['id']}/comments", {"content": MARKDOWN})
    dialog = ui.opened(board, "Written")
    expect(dialog.locator(".text")).to_have_count(2)
    for text in dialog.locator(".text").all():
        shown = {"listitem": ["one", "two"], "strong": "two", "code": "code", "link": "safe"}
        for role, words in shown.items():
            expect(text.get_by_role(role)).to_have_text(words)
        expect(text.get_by_role("link")).to_have_attribute("rel", "noopener noreferrer")
        expect(text.get_by_role("link")).to_have_attribute("target", "_blank")
        expect(text).to_contain_text("unsafe <b>raw</b>")


# The other views


def test_all_that_waits_is_worked_off_by_keys_alone(server, owner, join, sign_in):
    desk = Desk(server, owner, join)
    questions = [desk.ask(f"Question {number}") for number in range(2)]
    reviews = [desk.submit(f"Review {number}") for number in range(2)]
    desk.mention("Mention 0")
    due = desk.due("Due 0")
    held = desk.colleague.make_task(desk.project, title="Under way")
    desk.agent.data(desk.agent.post(f"/tasks/{held['id']}/claim", {"minutes": 30}))
    page = sign_in(desk.member.key)
    expect(page.get_by_role("heading", level=1)).to_have_text("Today")
    expect(rows(page)).to_have_count(6)
    expect(ui.link(page, "Question 0")).to_be_focused()
    titles = page.locator("main .title").all_inner_texts()
    assert titles == desk.waiting()
    check_page(page)
    for title in titles:
        expect(ui.link(page, title)).to_be_focused()
        kind = title.split()[0]
        if kind == "Question":
            answer(page, "r", "The blue one")
        elif title == "Review 1":
            answer(page, "r", "A test is missing")
        else:
            page.keyboard.press({"Review": "a", "Mention": "d", "Due": "d"}[kind])
        expect(ui.link(page, title)).to_have_count(0)
    expect(page.get_by_text("Done for now.")).to_be_visible()
    expect(page.locator("#today-end")).to_be_focused()
    expect(page.get_by_role("list", name="Agents are working on")).to_contain_text("Under way claimed until")
    dismiss_all(page)
    wait_until(lambda: not desk.waiting())
    assert desk.said(questions[1])[-1] == "The blue one"
    assert desk.said(reviews[1])[-1] == "A test is missing"
    statuses = [ui.stored(desk.owner, task)["status"] for task in (*reviews, due)]
    assert statuses == ["done", "todo", "done"]


def test_a_member_is_told_on_the_page_what_concerns_them_and_marks_it_as_read(sign_in, owner, project, join):
    mia = join(full_name="Mia Meier")
    page = sign_in(mia.key, f"#project={project['id']}")
    expect(page.get_by_role("link", name="Inbox", exact=True)).to_be_visible()
    task = owner.make_task(project, title="Check the prices", assignee_id=mia.member["id"])
    ui.refresh(page)
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    assert page.locator("link[rel=icon]").get_attribute("href").endswith("icon-unread.svg")
    expect(ui.card(page, "Check the prices").get_by_role("img", name="New for you")).to_be_visible()
    owner.make(f"/tasks/{task['id']}/comments", {"content": "\n\nToday, @Mia Meier?"})
    ui.refresh(page)
    page.get_by_role("link", name="Inbox 2 unread").click()
    check_page(page)
    told = page.get_by_role("list", name="Inbox").get_by_role("listitem")
    expect(told).to_contain_text([re.compile("assigned you and mentioned you in.*Today, @Mia Meier")])
    told.first.get_by_role("link").click()
    expect(page.get_by_role("dialog", name="Check the prices")).to_be_visible()
    expect(page).to_have_title(re.compile(rf"^#{task['number']} Check the prices"))  # who opens it has read
    ui.press(page.get_by_role("dialog"), "Close")
    expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
    for key, shown in {"ArrowDown": 0, "e": 1}.items():  # by keys as every list
        page.keyboard.press(key)
        expect(page.get_by_role("dialog", name="Check the prices")).to_have_count(shown)
    ui.press(page.get_by_role("dialog"), "Close")
    owner.make(f"/tasks/{task['id']}/comments", {"content": "Tomorrow?"})
    ui.refresh(page)
    expect(page.get_by_role("link", name="Inbox 1 unread")).to_be_visible()
    ui.press(page, "Mark all as read")
    expect(page.get_by_role("link", name="Inbox", exact=True)).to_be_visible()
    expect(page).to_have_title(re.compile("^Inbox"))
    ui.view(page, "Board")
    expect(ui.card(page, "Check the prices").get_by_role("img", name="New for you")).to_have_count(0)


def test_ones_own_tasks_are_ordered_and_completed(sign_in, ana, owner, project):
    mine = {"assignee_id": ana.member["id"]}
    late = owner.make_task(project, title="Late", due_date="2020-01-01", **mine)
    far = owner.make_task(project, title="Far", due_date="2099-01-01", **mine)
    for title in ("First", "Second", "Third"):
        owner.make_task(project, title=title, **mine)
    page = sign_in(ana.key, "#view=mine")
    expect(page.get_by_role("heading", level=1)).to_have_text("My tasks")
    expect(page.get_by_role("heading", level=2)).to_have_text(["Overdue 1", "Later 1", "No date 3"])
    check_page(page)
    third = ui.link(page, "Third")
    with page.expect_response("**/tasks?*"), ui.held(page, "**/details"):
        third.press("Alt+ArrowUp")
        expect(own(page)).to_have_text(["Late", "Far", "First", "Third", "Second"])
        expect(third).to_be_focused()
        third.press("ArrowUp")
        expect(ui.link(page, "First")).to_be_focused()
        page.locator(".own").filter(has_text="Second").hover()
        page.mouse.down()
        page.locator(".own").filter(has_text="First").hover()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")  # it is drawn
    page.locator(".own").filter(has_text="First").hover()
    page.mouse.up()  # the list was loaded again meanwhile
    expect(own(page)).to_have_text(["Late", "Far", "Second", "First", "Third"])

    def ranked():
        tasks = owner.read(f"/tasks?sort=rank&project_id={project['id']}")["tasks"]
        return [task["title"] for task in tasks]

    wait_until(lambda: page.evaluate("0") or ranked() == ["Late", "Far", "Second", "First", "Third"])
    page.get_by_role("checkbox", name="Done: Late").click()  # and it is gone
    expect(own(page)).to_have_text(["Far", "Second", "First", "Third"])
    expect(ui.notice(page)).to_contain_text("Done")  # the server has answered
    assert ui.stored(owner, late)["status"] == "done"
    page.keyboard.press("Control+z")
    expect(own(page)).to_have_count(5)
    ui.choice(page, "Status of “Far”").click()
    page.get_by_role("option", name="Review").click()
    expect(ui.choice(page, "Status of “Far”")).to_have_text("Review")
    ui.link(page, "Far").press("p")
    ui.find(page, "Urgent")
    wait_until(lambda: page.evaluate("0") or ui.stored(owner, far)["priority"] == "urgent")
    ui.link(page, "Third").press("Delete")
    expect(own(page)).to_have_text(["Late", "Far", "Second", "First"])
    ui.press(page, "More for “First”")
    ui.press(page, "Delete")
    expect(own(page)).to_have_text(["Late", "Far", "Second"])
    ui.link(page, "Second").click()
    expect(page.get_by_role("dialog", name="Second")).to_be_visible()


def test_a_month_shows_your_tasks_completed_ones_last_and_your_meetings(sign_in, ana, owner):
    mine, project = {"assignee_id": ana.member["id"]}, owner.make_project(name="Of one month")
    title = "A title that is much longer than a day of a month is wide on the page"
    owner.make_task(project, title=title, due_date="2031-01-01", **mine)
    owner.make_task(project, title="Before", due_date="2030-12-29", **mine)
    owner.make_task(project, title="After", due_date="2031-02-03", **mine)
    owner.make_task(project, title="Not mine", due_date="2031-01-02")
    done = owner.make_task(project, title="Bought", due_date="2031-01-01T08:00:00Z", **mine)
    owner.patch(f"/tasks/{done['id']}", {"status": "done"})
    meeting = {"title": "Plan", "starts_at": "2031-01-15T12:00:00Z", "participant_ids": [ana.member["id"]]}
    owner.make("/meetings", meeting)
    page = sign_in(ana.key, "#view=month&day=2031-01-15")
    expect(page.get_by_role("heading", level=2)).to_have_text("January 2031")
    expect(page.locator("[data-day]")).to_have_count(35)  # from 30 December until 2 February
    expect(day(page, "2031-01-01").locator("[data-task]")).to_have_text([title, re.compile("Done: .*Bought")])
    expect(ui.link(page, "Bought")).to_have_css("text-decoration-line", "line-through")
    expect(day(page, "2031-01-15")).to_contain_text("Plan")
    expect(page.locator(".days .title")).to_have_count(3)
    check_page(page)
    ui.pick(page, "Project", project["name"])
    expect(day(page, "2031-01-02")).to_contain_text("Not mine")
    ui.press(page, "Later")
    expect(page.get_by_role("heading", level=2)).to_have_text("February 2031")
    expect(day(page, "2031-02-03")).to_contain_text("After")
    ui.press(page, "Today")
    expect(day(page, in_days(0)).locator("[aria-current=date]")).to_have_text("Today")


def test_a_week_is_reported_by_person_and_copied_as_markdown(sign_in, ana, owner, server, project):
    titles = {"Now *done*": "done", "Before": "done", "Under way": "in_progress"}
    for title, status in titles.items():
        task = owner.make_task(project, title=title, assignee_id=ana.member["id"], due_date="2020-01-01")
        owner.data(owner.patch(f"/tasks/{task['id']}", {"status": status}))
    before = (datetime.now(UTC) - timedelta(days=7)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    server.rows("UPDATE task SET created_at = ?, completed_at = ? WHERE title = 'Before'", before, before)
    path = f"/projects/{project['id']}/milestones"
    owner.make(path, {"title": "Beta", "due_date": "2099-12-01"})
    page = sign_in(address=f"#view=week&project={project['id']}")
    report = page.locator("main .text")
    expect(report).to_contain_text("1 done, 2 new, 1 late")
    expect(report).to_contain_text(re.compile(r"Ana Lima: 1\s*#\d+ Now \*done\*\s*In progress"))
    expect(report).to_contain_text("Beta: 0 of 0 tasks done, due 1 Dec 2099")
    check_page(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ui.press(page, "Copy as Markdown")
    expect(ui.notice(page)).to_contain_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert re.search(r"## Done\n\n\* \*\*Ana Lima\*\*: 1\n  \* #\d+ Now \\\*done\\\*\n", copied)
    ui.pick(page, "Week", "Last week")
    expect(report).to_contain_text("1 done, 1 new")
    report.get_by_role("link").first.click()
    expect(page.get_by_role("dialog", name="Before")).to_be_visible()


def test_a_run_is_undone_after_a_preview_from_activity_and_from_its_key(
    sign_in, join, owner, project, server
):
    ben = join(full_name="Ben Undone")
    task = owner.make_task(project, title="As it was")
    robot = server.client(make_key(ben, name="Robot")["api_key"])
    robot.patch(f"/tasks/{task['id']}/details", {"title": "As it is", "priority": "low"})
    first, second = (robot.make_task(project, title=title) for title in ("Superfluous", "Kept"))
    owner.patch(f"/tasks/{second['id']}", {"title": "Olga's"})
    page = sign_in(address="#view=activity")
    expect(page.get_by_role("button", name="Undo what")).to_have_count(0)
    ui.pick(page, "Person", "Ben Undone")
    undo = page.get_by_role("button", name="Undo what Ben Undone did…", exact=True)
    expect(undo).to_be_visible()
    check_page(page)
    undo.click()
    dialog = page.get_by_role("dialog", name="Undo what Ben Undone did")
    expect(dialog.get_by_text("1 new task is deleted")).to_be_visible()
    ui.press(dialog, "Cancel")

    ui.show(page, "#view=people")
    page.get_by_text("Other people’s keys and sessions").click()
    ui.press(page, "Undo what it did…: Robot")
    dialog = page.get_by_role("dialog", name="Undo what Robot did")
    words = "1 task goes back to what it was, 1 new task is deleted. 1 is left: changed since by Olga Owner."
    expect(dialog.get_by_text(words, exact=True)).to_be_visible()
    dialog.get_by_text("Show each").click()
    expect(dialog.get_by_text(f"Deleted: #{first['number']} Superfluous")).to_be_visible()
    check_page(page)
    ui.press(dialog, "Undo")
    expect(ui.notice(page)).to_contain_text("Done: 1 task goes back")
    assert ui.stored(owner, task)["title"] == "As it was"
    ui.show(page, "#view=activity")
    expect(page.get_by_text("undid changes of")).to_be_visible()


def test_a_deleted_task_is_restored_where_it_is_missed(sign_in, owner, project):
    title = f"Gone in {project['id']}"
    task = owner.make_task(project, title=title)
    page = sign_in(address=f"#project={project['id']}")
    ui.link(page, title).press("Delete")
    ui.notice(page).get_by_role("link", name="Recently deleted").click()  # so the deletion is sent
    gone = ui.row(page, title)
    expect(gone).to_contain_text(re.compile(f"#{task['number']} .*by Olga Owner"))
    check_page(page)
    ui.press(page, "You: Olga Owner")
    expect(page.get_by_role("link", name="Recently deleted")).to_be_visible()
    page.keyboard.press("Escape")
    ui.show(page, f"#task={task['number']}")
    page.locator("#notices").get_by_role("alert").get_by_role("link", name="Recently deleted").click()
    gone.get_by_role("button", name=re.compile("^Restore")).click()
    expect(gone).to_have_count(0)
    ui.show(page, f"#project={project['id']}")
    expect(ui.card(page, title)).to_be_visible()


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
    check_page(page)
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
    for role, status in (("client", 201), ("member", 200)):
        body = {"email": "uma@example.com", "full_name": "Uma Unt", "role": role}
        owner.data(owner.post("/members/invite", body), status)
    ui.view(page, "Activity")
    renewed = re.compile("made a link for *Uma Unt *Role: Client → Member")
    expect(page.locator("main")).to_contain_text(renewed)


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
    ui.press(page, "Make a sign-in link")
    token = page.get_by_label("Sign-in link").input_value().rpartition("/")[2]
    assert server.client(None).post(f"/enroll/{token}").status_code == 201
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
    ui.choice(dialog, "Participants").click()
    page.get_by_role("option", name="Olga Owner").click()
    page.keyboard.press("Escape")
    ui.fill_in(dialog, fields | {"Place or link": "Room 7"})
    expect(ui.message(dialog)).to_contain_text("Ends")
    ui.fill_in(dialog, {"Ends": "2098-12-31T23:30"})
    heading = page.get_by_role("heading", name="31 de dez. de 2098")  # as the browser writes dates
    section = page.locator("section").filter(has=heading)
    expect(heading).to_have_count(1)
    expect(section.locator("time")).to_have_text(re.compile(r"22:30\s*–23:30"))
    expect(ui.row(page, "Call")).to_contain_text("Room 7")
    expect(ui.row(page, "Call").get_by_role("img", name="Olga Owner")).to_be_visible()
    (meeting,) = eva.read("/meetings")["meetings"]
    assert meeting["starts_at"] == "2099-01-01T01:30:00.000Z"
    assert meeting["ends_at"] == "2099-01-01T02:30:00.000Z"
    fields = {"Starts": "2098-12-30T08:00", "Place or link": "https://meet.example/retro"}
    ui.fill_in(open_form(page, "Edit: Call", "Call"), fields, "Save changes")
    expect(page.get_by_role("heading", name=re.compile("30 de dez"))).to_have_count(1)
    place = ui.row(page, "Call").get_by_role("link", name="Join at meet.example")
    expect(place).to_have_attribute("href", "https://meet.example/retro")
    long_ago = (datetime.now(UTC) - timedelta(days=30)).isoformat()
    past = {"title": "Kick-off", "starts_at": long_ago, "description": "Bring *tea*."}
    eva.make("/meetings", past)
    ui.refresh(page)
    expect(page.get_by_role("heading", name="Past")).to_be_visible()
    check_page(page)
    ui.press(page, "Kick-off")  # which is read before it is changed
    dialog = page.get_by_role("dialog", name="Kick-off")
    expect(dialog.locator(".text em")).to_have_text("tea")
    expect(dialog.get_by_label("Title")).to_have_count(0)
    ui.press(dialog, "Edit")
    expect(dialog.get_by_label("Title")).to_have_value("Kick-off")
    ui.press(dialog, "Close")
    ui.drop(page, "Delete: Call")
    expect(ui.row(page, "Call")).to_have_count(0)


def test_a_note_keeps_what_a_program_has_put_beside_its_text(sign_in, owner):
    content = {"text": "old", "shapes": [1]}
    made = owner.make("/whiteboards", {"title": "Both", "content": content})
    owner.make("/whiteboards", {"title": "Drawing", "content": {"shapes": [2]}})
    page = sign_in(address="#view=whiteboards")
    expect(ui.row(page, "Drawing")).to_be_visible()
    check_page(page)
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
    expect(ui.row(page, "Beta")).to_contain_text("1 Dec 2099")
    expect(ui.row(page, "Beta")).to_contain_text("0 of 0 tasks done")
    (milestone,) = owner.read(f"/projects/{project['id']}/milestones")["milestones"]
    task = owner.make_task(project, title="Of it", milestone_id=milestone["id"])
    owner.data(owner.post(f"/tasks/{task['id']}/complete"))
    owner.make_task(project, title="Another")
    ui.refresh(page)
    check_page(page)
    ui.row(page, "Beta").get_by_role("link", name="1 of 1 task done").click()
    expect(page.locator(".card")).to_have_count(1)
    expect(ui.card(page, "Of it")).to_be_visible()
    expect(ui.choice(page, "Milestone")).to_have_text("Beta")
    page.go_back()
    ui.fill_in(open_form(page, "Edit: Beta", "Beta"), {"Title": "Gamma"}, "Save changes")
    ui.drop(page, "Delete: Gamma")
    expect(page.get_by_text("No milestones yet.")).to_be_visible()
    ui.press(page, "Archive")
    expect(ui.notice(page)).to_contain_text(f"{project['name']} is archived.")
    ui.press(ui.notice(page), "Undo")
    ui.press(page, "Archive")
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()


def test_an_admin_sends_again_what_a_receiver_has_refused(sign_in, hooked, receiver):
    receiver.answers = [500]
    owner = hooked.client()
    owner.make_task(owner.make_project())
    receiver.next()
    page = sign_in(base=hooked.base)
    ui.press(page, "You: Olga Owner")
    page.get_by_role("link", name="Webhooks").click()
    expect(ui.row(page, "task.created to receiver")).to_contain_text("1 attempt")
    check_page(page)
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


def test_admins_stop_all_agents_and_the_page_says_why(sign_in, server):
    bot, page = server.agent("Bot of the stop"), sign_in(address="#view=people")
    page.locator("summary", has_text="Stop all agents").click()
    page.get_by_label("Reason").fill("The keys leaked")
    ui.press(page, "Stop all agents")
    band = page.get_by_role("status").filter(has_text="Olga Owner stopped all agents")
    expect(band).to_contain_text("The keys leaked")
    page.set_viewport_size({"width": 320, "height": 740})
    expect(band).to_be_in_viewport(ratio=1)
    check_page(page)
    assert "Olga Owner has stopped all agents: The keys leaked" in refused(bot, "get_context")
    ui.view(page, "Activity")
    expect(page.locator("main")).to_contain_text(re.compile("stopped all agents *The keys leaked"))
    page.reload()
    ui.press(page, "Let agents go on")
    expect(page.locator("main")).to_contain_text("Olga Owner ended the stop of all agents")
    expect(band).to_have_count(0)
    assert use(bot, "get_context")["you"].startswith("Bot of the stop")
