"""The page at / as people use it: in a browser, by mouse and by keyboard, together with others."""

import re

import pytest
import requests
from axe_playwright_python.sync_playwright import Axe
from conftest import OWNER_KEY, PATIENCE, ROOT, wait_until
from playwright.sync_api import expect

expect.set_options(timeout=PATIENCE * 1000)
STATUSES = ("To do", "In progress", "Review", "Done")


@pytest.fixture
def sign_in(browse, server):
    """Open the page at an address of its own, and sign in with a key."""

    def open_page(key=OWNER_KEY, address="", base=server.base, **options):
        page = browse(refusals=True, **options)
        page.goto(f"{base}/{address}")
        enter(page, key)
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        return page

    return open_page


@pytest.fixture
def board(sign_in, project):
    """The board of a new project, as its owner sees it."""
    return sign_in(address=f"#project={project['id']}")


def enter(page, key):
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def column(page, title):
    return page.get_by_role("region", name=re.compile(f"^{title}"))


def card(page, title, within=None):
    place = column(page, within) if within else page
    return place.get_by_role("listitem").filter(has=page.get_by_role("link", name=title, exact=True))


def opened(page, title):
    """Open a task from its card."""
    page.get_by_role("link", name=title, exact=True).click()
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog).to_be_visible()
    return dialog


def notice(page):
    return page.locator("#notices").get_by_role("status")


def choose(page, title, status):
    """Move a card with its menu, by keyboard alone."""
    page.get_by_label(f"Move “{title}”").focus()
    page.keyboard.press("Enter")
    while page.evaluate("document.activeElement.textContent") != status:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")


# Signing in


def test_a_wrong_key_is_refused_in_words_and_a_good_one_is_nowhere_but_in_a_header(browse, server, project):
    page, addresses = browse(refusals=True), []
    page.on("request", lambda request: addresses.append(request.url))
    page.goto(f"{server.base}/#project={project['id']}")
    enter(page, "tms_no-such-key")
    expect(page.locator("#sign-in")).to_contain_text("API key is unknown, or expired, or was revoked")
    enter(page, "ключ")
    expect(page.locator("#sign-in")).to_contain_text("API key is unknown, or expired, or was revoked")
    enter(page, OWNER_KEY)
    expect(page.get_by_role("heading", level=1)).to_have_text(project["name"])
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text(project["name"])
    assert page.evaluate("Object.values(sessionStorage)") == [OWNER_KEY]
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert not any(OWNER_KEY in address for address in [*addresses, page.url])
    assert OWNER_KEY not in server.log.read_text()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_is_revoked_leads_back_and_what_was_typed_is_kept(sign_in, owner, project):
    owner.make_task(project, title="Draft")
    body = {"name": "a browser's"}
    made = owner.data(owner.post("/keys", body), 201)
    page = sign_in(made["api_key"], f"#project={project['id']}")
    dialog = opened(page, "Draft")
    dialog.get_by_label("Description").fill("Half a thou")
    dialog.get_by_label("New comment").fill("Half a sentence")
    owner.data(owner.delete(f"/keys/{made['key']['id']}"))
    dialog.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert").filter(has_text="You are signed out")).to_be_visible()
    expect(dialog).to_be_hidden()
    enter(page, OWNER_KEY)
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("New comment")).to_have_value("Half a sentence")
    expect(dialog.get_by_label("Description")).to_have_value("Half a thou")
    expect(dialog.get_by_role("alert").filter(has_text="not saved yet")).to_be_visible()


# Working


def test_a_task_is_created_with_all_its_fields(board, owner, project):
    board.get_by_role("button", name="New task").click()
    dialog = board.get_by_role("dialog", name="New task")
    expect(dialog.get_by_label("Title")).to_be_focused()
    dialog.get_by_label("Title").fill("Paint the fence")
    dialog.get_by_label("Priority").select_option("High")
    dialog.get_by_label("Assignee").select_option("Olga Owner")
    dialog.get_by_label("Due date").fill("2099-12-01")
    dialog.get_by_label("Description").fill("Green.\nTwice.")
    dialog.get_by_label("Title").press("Enter")
    expect(dialog).to_be_hidden()
    expect(card(board, "Paint the fence", "To do")).to_contain_text("HighDue 2099-12-01Olga Owner")
    expect(board.get_by_role("link", name="Paint the fence")).to_be_focused()
    expect(notice(board)).to_contain_text("Created “Paint the fence”.")
    (task,) = owner.data(owner.get("/tasks", project_id=project["id"]))["tasks"]
    assert (task["description"], task["priority"]) == ("Green.\nTwice.", "high")
    assert task["due_date"] == "2099-12-01T23:59:59.000Z"
    expect(board.get_by_role("link", name=re.compile(project["name"])).first).to_contain_text("of")


def test_the_first_project_is_made_on_the_page_too(sign_in, launch):
    server = launch()
    page = sign_in(base=server.base)
    page.get_by_role("button", name="New task").click()
    expect(notice(page)).to_contain_text("Create a project first: a task belongs to one.")
    page.get_by_text("New project").click()
    page.get_by_label("Name").fill("Garden")
    page.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Garden")
    page.get_by_role("button", name="New task").click()
    expect(page.get_by_role("combobox", name="Project")).to_have_value(re.compile("-7"))


def test_a_card_is_moved_by_keyboard_and_the_focus_goes_with_it(board, owner, project):
    task = owner.make_task(project, title="Walk")
    expect(card(board, "Walk", "To do")).to_be_visible()
    choose(board, "Walk", "Review")
    expect(card(board, "Walk", "Review")).to_be_visible()
    expect(board.get_by_role("link", name="Walk", exact=True)).to_be_focused()
    expect(notice(board)).to_contain_text("Moved “Walk” to Review.")
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["status"] == "review"
    notice(board).get_by_role("button", name="Dismiss").click()
    expect(notice(board)).to_be_empty()


def test_a_card_is_moved_by_dragging(board, owner, project):
    task = owner.make_task(project, title="Drag")
    card(board, "Drag", "To do").drag_to(column(board, "Done"))
    expect(card(board, "Drag", "Done")).to_be_visible()
    expect(card(board, "Drag", "To do")).to_have_count(0)
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["status"] == "done"
    expect(board.locator("#projects [aria-current]")).to_contain_text("1 of 1 done")


def test_every_field_of_an_opened_task_is_changed_and_its_history_tells(board, owner, project):
    milestone = owner.data(owner.post(f"/projects/{project['id']}/milestones", {"title": "Launch"}), 201)
    task = owner.make_task(project, title="Before", description="Old")
    dialog = opened(board, "Before")
    for label, text in {"Title": "After", "Description": "New", "Start date": "2098-01-02"}.items():
        dialog.get_by_label(label).fill(text)
    dialog.get_by_label("Due date").fill("2098-01-02")
    chosen = {"Status": "Review", "Priority": "Urgent", "Assignee": "Olga Owner", "Milestone": "Launch"}
    for label, text in chosen.items():
        dialog.get_by_label(label).select_option(text)
    dialog.get_by_role("button", name="Save changes").click()
    dialog = board.get_by_role("dialog", name="After")
    expect(dialog.get_by_role("alert").filter(has_text="Saved.")).to_be_visible()
    saved = owner.data(owner.get(f"/tasks/{task['id']}"))
    assert (saved["title"], saved["description"], saved["status"]) == ("After", "New", "review")
    assert (saved["priority"], saved["milestone_id"]) == ("urgent", milestone["id"])
    assert saved["start_date"][:10] == saved["due_date"][:10] == "2098-01-02"
    history = dialog.get_by_role("list", name="History")
    for text in ("Status: To do → Review", "Priority: Medium → Urgent", "Title: Before → After"):
        expect(history.get_by_text(text)).to_be_visible()
    expect(history).to_contain_text("created the task")
    dialog.get_by_label("Due date").fill("")
    dialog.get_by_label("Assignee").select_option("Nobody")
    dialog.get_by_role("button", name="Save changes").click()
    expect(history).to_contain_text("Assignee: Olga Owner → Nobody")
    saved = owner.data(owner.get(f"/tasks/{task['id']}"))
    assert (saved["due_date"], saved["assignee_id"], saved["title"]) == (None, None, "After")
    expect(history.get_by_role("listitem")).to_have_count(5)
    expect(dialog.get_by_role("button", name="Show earlier")).to_be_hidden()
    board.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(board.get_by_role("link", name="After", exact=True)).to_be_focused()
    assert "task=" not in board.url


def test_a_long_history_is_shown_in_steps(board, owner, project):
    task = owner.make_task(project, title="Step 0")
    for step in range(1, 30):
        owner.data(owner.patch(f"/tasks/{task['id']}", {"title": f"Step {step}"}))
    dialog = opened(board, "Step 29")
    history = dialog.get_by_role("list", name="History")
    expect(history.get_by_role("listitem")).to_have_count(20)
    dialog.get_by_role("button", name="Show earlier").click()
    expect(history.get_by_role("listitem")).to_have_count(30)
    expect(history).to_contain_text("created the task")
    expect(dialog.get_by_role("button", name="Show earlier")).to_be_hidden()


def test_a_wrong_field_is_named_and_stays(board, owner, project):
    owner.make_task(project, title="Dates", due_date="2098-01-01")
    dialog = opened(board, "Dates")
    dialog.get_by_label("Start date").fill("2099-01-01")
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog.get_by_role("alert").filter(has_text="Start_date: must not be after")).to_be_visible()
    expect(dialog.get_by_label("Start date")).to_have_value("2099-01-01")


def test_comments_are_added_changed_and_deleted(board, owner, join, project):
    task = owner.make_task(project, title="Talk")
    ana = join(full_name="Ana Lima")
    ana.data(ana.post(f"/tasks/{task['id']}/comments", {"content": "Mine, not yours"}), 201)
    dialog = opened(board, "Talk")
    comments = dialog.get_by_role("list", name="Comments").get_by_role("listitem")
    expect(comments).to_have_count(1)
    expect(comments.get_by_role("button")).to_have_count(0)
    dialog.get_by_label("New comment").fill("First\nline <b>two</b>")
    dialog.get_by_role("button", name="Send").click()
    expect(comments).to_have_count(2)
    expect(comments.last).to_contain_text("line <b>two</b>")
    expect(dialog.get_by_label("New comment")).to_have_value("")
    dialog.get_by_label("New comment").fill("a draft")
    comments.last.get_by_role("button", name="Edit").click()
    changed = dialog.get_by_label("Your comment, changed")
    expect(changed).to_be_focused()
    changed.fill("Second thoughts")
    dialog.get_by_role("button", name="Send").click()
    expect(comments.last).to_contain_text("Second thoughts")
    expect(comments.last).to_contain_text("(edited)")
    expect(dialog.get_by_label("New comment")).to_have_value("a draft")
    board.once("dialog", lambda question: question.accept())
    comments.last.get_by_role("button", name="Delete").click()
    expect(comments).to_have_count(1)
    left = owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"]
    assert [comment["content"] for comment in left] == ["Mine, not yours"]
    expect(dialog.get_by_role("list", name="History")).to_contain_text("deleted a comment")


def test_a_file_is_attached_and_fetched(board, owner, project):
    owner.make_task(project, title="File")
    dialog = opened(board, "File")
    name, content = "Grüße <1>.txt", bytes(range(256)) * 10
    files = [{"name": name, "mimeType": "text/plain", "buffer": content}]
    dialog.get_by_label("File to attach").set_input_files(files)
    dialog.get_by_role("button", name="Attach", exact=True).click()
    with board.expect_download() as download:
        dialog.get_by_role("button", name=name).click()
    assert download.value.path().read_bytes() == content
    assert download.value.suggested_filename.startswith("Grüße")
    expect(dialog.get_by_label("File to attach")).to_have_value("")
    expect(dialog.get_by_role("list", name="History")).to_contain_text(f"attached {name}")


def test_a_title_that_looks_like_code_is_text(board, owner, project):
    title = "<script>document.title = 'taken'</script><img src=x onerror=alert(1)>"
    task = owner.make_task(project, title=title, description=title)
    owner.data(owner.post(f"/tasks/{task['id']}/comments", {"content": title}), 201)
    dialog = opened(board, title)
    expect(dialog.get_by_label("Description")).to_have_value(title)
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text(title)
    assert board.locator("#workspace img, #workspace script, dialog img, dialog script").count() == 0
    assert board.title().startswith(project["name"])


# With others


def test_what_someone_else_does_is_shown_and_an_open_form_stays(board, owner, project):
    task, other = (owner.make_task(project, title=title) for title in ("Shared", "Gone soon"))
    dialog = opened(board, "Shared")
    text = dialog.get_by_label("New comment")
    text.fill("I am typing")
    owner.data(owner.post(f"/tasks/{task['id']}/comments", {"content": "Meanwhile"}), 201)
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text("Meanwhile")
    expect(text).to_have_value("I am typing")
    expect(text).to_be_focused()
    owner.data(owner.patch(f"/tasks/{task['id']}", {"title": "Shared by two", "status": "review"}))
    expect(dialog.get_by_label("Title")).to_have_value("Shared by two")
    expect(text).to_be_focused()
    board.keyboard.press("Escape")
    expect(card(board, "Shared by two", "Review")).to_contain_text("1 comment")
    owner.data(owner.delete(f"/tasks/{other['id']}"))
    expect(card(board, "Gone soon")).to_have_count(0)
    owner.make_task(project, title="Brand new")
    expect(card(board, "Brand new", "To do")).to_be_visible()
    expect(board.locator("#projects [aria-current]")).to_contain_text("0 of 2 done")


def test_a_deleted_task_does_not_take_what_was_typed_with_it(board, owner, project):
    task = owner.make_task(project, title="Doomed")
    dialog = opened(board, "Doomed")
    dialog.get_by_label("Description").fill("An hour's work")
    owner.data(owner.delete(f"/tasks/{task['id']}"))
    expect(dialog.get_by_role("alert").filter(has_text="was deleted meanwhile")).to_be_visible()
    expect(dialog.get_by_label("Description")).to_have_value("An hour's work")


def unseen(page):
    """Let the page believe that nobody sees it, so that it does not refresh itself."""
    page.evaluate("""() => {
        Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
        document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }""")


def seen(page):
    page.evaluate("""() => {
        delete document.visibilityState;
        document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }""")


def test_a_change_by_someone_else_is_not_overwritten_by_the_form(board, owner, join, project):
    task = owner.make_task(project, title="Ours", description="Old")
    ana = join(full_name="Ana <Lima>")
    dialog = opened(board, "Ours")
    dialog.get_by_label("Description").fill("Mine")
    unseen(board)
    ana.data(ana.patch(f"/tasks/{task['id']}/details", {"description": "Hers", "priority": "urgent"}))
    dialog.get_by_role("button", name="Save changes").click()
    message = dialog.get_by_role("alert").filter(has_text="Ana <Lima> has changed this task meanwhile")
    expect(message).to_contain_text("Description, theirs: Hers")
    expect(dialog.get_by_label("Description")).to_have_value("Mine")
    expect(dialog.get_by_label("Priority")).to_have_value("urgent")
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["description"] == "Hers"
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog.get_by_role("alert").filter(has_text="Saved.")).to_be_visible()
    saved = owner.data(owner.get(f"/tasks/{task['id']}"))
    assert (saved["description"], saved["priority"]) == ("Mine", "urgent")


def test_a_change_that_the_page_has_seen_is_not_overwritten_either(board, owner, project):
    task = owner.make_task(project, title="Seen", description="Old")
    dialog = opened(board, "Seen")
    dialog.get_by_label("Description").fill("Mine")
    owner.data(owner.patch(f"/tasks/{task['id']}/details", {"description": "Hers"}))
    expect(dialog.get_by_role("alert").filter(has_text="Someone has changed this task")).to_be_visible()
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog.get_by_role("alert").filter(has_text="Description, theirs: Hers")).to_be_visible()
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["description"] == "Hers"


def test_a_card_that_someone_else_has_changed_is_not_moved(board, owner, project):
    task = owner.make_task(project, title="Contested")
    expect(card(board, "Contested", "To do")).to_be_visible()
    unseen(board)
    owner.data(owner.patch(f"/tasks/{task['id']}", {"status": "review"}))
    choose(board, "Contested", "Done")
    expect(notice(board)).to_contain_text("was not moved. Someone has changed it meanwhile")
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["status"] == "review"
    seen(board)
    expect(card(board, "Contested", "Review")).to_be_visible()


def test_a_page_that_nobody_sees_asks_for_nothing(board, owner, project):
    unseen(board)
    asked = []
    board.on("request", lambda request: asked.append(request.url.partition("?")[0].rpartition("/")[2]))
    owner.make_task(project, title="Behind the curtain")
    board.evaluate("() => { dispatchEvent(new Event('online')); }")  # which makes it look at once
    board.evaluate("() => fetch('/api/v1/health').then((answer) => answer.status)")
    assert "health" in asked
    assert "activity" not in asked
    seen(board)
    expect(card(board, "Behind the curtain", "To do")).to_be_visible()
    assert "activity" in asked


# Without a network


def test_a_comment_that_could_not_be_sent_stays_and_is_sent_once(board, owner, project):
    task = owner.make_task(project, title="Tunnel")
    dialog = opened(board, "Tunnel")
    dialog.get_by_label("New comment").fill("From the train")
    board.context.set_offline(True)
    dialog.get_by_role("button", name="Send").click()
    alert = dialog.get_by_role("alert").filter(has_text="The server cannot be reached")
    expect(alert).to_contain_text("What was not saved stays here")
    expect(dialog.get_by_label("New comment")).to_have_value("From the train")
    expect(board.locator("#connection")).to_contain_text("The server cannot be reached")
    board.context.set_offline(False)
    alert.get_by_role("button", name="Try again").click()
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text("From the train")
    expect(board.locator("#connection")).to_be_empty()
    assert len(owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"]) == 1


def test_a_comment_whose_answer_was_lost_is_not_doubled(board, owner, project):
    task = owner.make_task(project, title="Lost")
    dialog = opened(board, "Lost")
    lost = []

    def lose(route):
        if route.request.method == "POST" and not lost:
            lost.append(route.fetch())
            return route.abort()
        return route.continue_()

    board.route("**/comments", lose)
    dialog.get_by_label("New comment").fill("Only once")
    dialog.get_by_role("button", name="Send").click()
    dialog.get_by_role("button", name="Try again").click()
    expect(dialog.get_by_label("New comment")).to_have_value("")
    assert [answer.status for answer in lost] == [201]
    assert len(owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"]) == 1


def test_moves_edits_and_new_tasks_wait_for_the_network(board, owner, project):
    task = owner.make_task(project, title="Slow line")
    dialog = opened(board, "Slow line")
    board.context.set_offline(True)
    dialog.get_by_label("Description").fill("Typed on the way")
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog.get_by_role("alert").filter(has_text="cannot be reached")).to_be_visible()
    board.keyboard.press("Escape")
    expect(notice(board)).to_contain_text("are not saved; they are kept in this tab")
    choose(board, "Slow line", "Done")
    expect(notice(board)).to_contain_text("“Slow line” was not moved. The server cannot be reached.")
    expect(card(board, "Slow line", "To do")).to_be_visible()
    board.context.set_offline(False)
    notice(board).get_by_role("button", name="Try again").click()
    expect(card(board, "Slow line", "Done")).to_be_visible()
    board.get_by_role("button", name="New task").click()
    new = board.get_by_role("dialog", name="New task")
    new.get_by_label("Title").fill("Written offline")
    board.context.set_offline(True)
    new.get_by_role("button", name="Create task").click()
    expect(new.get_by_role("alert")).to_contain_text("cannot be reached")
    board.context.set_offline(False)
    new.get_by_role("button", name="Try again").click()
    expect(card(board, "Written offline", "To do")).to_be_visible()
    dialog = opened(board, "Slow line")
    expect(dialog.get_by_label("Description")).to_have_value("Typed on the way")
    dialog.get_by_role("button", name="Save changes").click()  # it was moved since, which Save shows
    expect(dialog.get_by_role("alert").filter(has_text="has changed this task meanwhile")).to_be_visible()
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog.get_by_role("alert").filter(has_text="Saved.")).to_be_visible()
    saved = owner.data(owner.get(f"/tasks/{task['id']}"))
    assert (saved["description"], saved["status"]) == ("Typed on the way", "done")


def test_too_many_requests_are_said_with_the_time_to_wait(sign_in, launch):
    server = launch(TASKS_LIMITS__REQUESTS_PER_MINUTE="30")
    page = sign_in(base=server.base)
    client = server.client()
    wait_until(lambda: client.get("/me").status_code == 429)
    page.get_by_label("Priority").first.select_option("High")
    expect(notice(page)).to_contain_text(re.compile(r"Too many requests.* Wait \d+ s\."))
    expect(notice(page).get_by_role("button", name="Try again")).to_be_visible()


# What is shown


def test_filters_stand_in_the_address_and_survive_a_reload(board, owner, project):
    me = owner.data(owner.get("/me"))["member"]
    owner.make_task(project, title="Fix the roof", priority="urgent", assignee_id=me["id"])
    owner.make_task(project, title="Fix the door", due_date="2020-01-02")
    expect(card(board, "Fix the door")).to_contain_text("Overdue: 2020-01-02")
    board.get_by_label("Search").fill("ROOF")
    expect(card(board, "Fix the door")).to_have_count(0)
    board.get_by_role("checkbox", name="Mine").check()
    board.get_by_label("Priority").first.select_option("Urgent")
    expect(board).to_have_url(re.compile("q=ROOF&mine=1&priority=urgent"))
    board.reload()
    expect(card(board, "Fix the roof")).to_be_visible()
    expect(card(board, "Fix the door")).to_have_count(0)
    expect(board.get_by_label("Search")).to_have_value("ROOF")
    expect(board.get_by_role("checkbox", name="Mine")).to_be_checked()
    expect(column(board, "To do")).to_have_accessible_name("To do 1")
    board.go_back()
    expect(board.get_by_label("Priority").first).to_have_value("")
    board.get_by_role("button", name="Clear filters").click()
    board.get_by_label("Due").first.select_option("Before now")
    expect(card(board, "Fix the roof")).to_have_count(0)
    expect(card(board, "Fix the door")).to_be_visible()


def test_the_address_of_an_opened_task_opens_it(sign_in, owner, project):
    task = owner.make_task(project, title="Linked")
    page = sign_in(address=f"#project={project['id']}&task={task['id']}")
    expect(page.get_by_role("dialog", name="Linked")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(card(page, "Linked")).to_be_visible()
    opened(page, "Linked")
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_more_is_fetched_on_demand_and_counted(board, owner, project):
    for number in range(45):
        owner.make_task(project, title=f"Number {number}")
    todo = column(board, "To do")
    expect(todo).to_have_accessible_name("To do 20 of 45")
    more = board.get_by_role("button", name="Show 20 more: To do")
    more.click()
    expect(todo).to_have_accessible_name("To do 40 of 45")
    owner.make_task(project, title="On top")  # a refresh keeps what is shown
    expect(card(board, "On top")).to_be_visible()
    expect(todo).to_have_accessible_name("To do 40 of 46")
    more.click()
    expect(todo).to_have_accessible_name("To do 46")
    expect(more).to_be_hidden()
    expect(todo.get_by_role("listitem")).to_have_count(46)


def test_meetings_and_whiteboards_are_plain_lists(sign_in, owner, project):
    meeting = {"title": "Kick-off", "starts_at": "2099-01-02T09:00:00Z", "location": "Room 2"}
    owner.data(owner.post("/meetings", meeting | {"project_id": project["id"]}), 201)
    owner.data(owner.post("/whiteboards", {"title": "Sketches"}), 201)
    page = sign_in()
    page.get_by_role("link", name="Meetings").click()
    row = page.get_by_role("listitem").filter(has_text="Kick-off")
    expect(row).to_contain_text(f"2099-01-02 09:00 UTC · upcoming · Room 2 · {project['name']} · Olga Owner")
    page.get_by_role("link", name="Whiteboards").click()
    expect(page.get_by_role("listitem").filter(has_text="Sketches")).to_contain_text("Olga Owner")
    page.get_by_role("link", name="Board", exact=True).click()
    expect(column(page, "To do")).to_be_visible()


@pytest.mark.parametrize("role", ["client", "a key that may only read"])
def test_what_the_api_would_refuse_is_not_offered(sign_in, owner, join, project, role):
    task = owner.make_task(project, title="Look at me")
    if role == "client":
        key = join("client").key
    else:
        body = {"name": "reader", "scope": "read"}
        key = owner.data(owner.post("/keys", body), 201)["api_key"]
    page = sign_in(key, f"#project={project['id']}")
    expect(card(page, "Look at me")).to_have_attribute("draggable", "false")
    for name in ("New task", "New project", "Move “Look at me”"):
        assert not page.get_by_role("button", name=name).or_(page.get_by_label(name)).is_visible()
    dialog = opened(page, "Look at me")
    for label in ("Title", "Status", "Due date", "Description"):
        expect(dialog.get_by_label(label)).to_be_disabled()
    expect(dialog.get_by_role("button", name="Save changes")).to_be_hidden()
    expect(dialog.get_by_role("button", name="Attach", exact=True)).to_be_hidden()
    if role == "client":
        dialog.get_by_label("New comment").fill("I may say this")
        dialog.get_by_role("button", name="Send").click()
        expect(dialog.get_by_role("list", name="Comments")).to_contain_text("I may say this")
        assert len(owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"]) == 1
    else:
        expect(dialog.get_by_label("New comment")).to_be_hidden()


def check_page(page, scheme):
    """Nothing sticks out, the colours are the scheme's, and axe-core finds no fault."""
    assert page.locator("html").evaluate("element => element.scrollWidth <= element.clientWidth")
    red = page.eval_on_selector("body", "e => Number(getComputedStyle(e).backgroundColor.match(/\\d+/)[0])")
    assert red > 200 if scheme == "light" else red < 50
    assert [(found["id"], found["nodes"]) for found in Axe().run(page).response["violations"]] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_is_fit_for_every_screen_and_reader(browse, server, owner, project, scheme, width):
    owner.make_task(project, title="W" * 200, priority="urgent", due_date="2020-01-02")
    task = owner.make_task(project, title="Talk", priority="high", due_date="2099-01-02")
    owner.data(owner.post(f"/tasks/{task['id']}/comments", {"content": "x" * 300}), 201)
    page = browse(color_scheme=scheme, viewport={"width": width, "height": 740})
    page.goto(f"{server.base}/#project={project['id']}")
    expect(page.get_by_label("API key")).to_be_focused()
    check_page(page, scheme)
    enter(page, OWNER_KEY)
    expect(card(page, "Talk")).to_be_visible()
    page.get_by_label("Move “Talk”").click()
    check_page(page, scheme)
    dialog = opened(page, "Talk")
    check_page(page, scheme)
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="New task").click()
    check_page(page, scheme)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Meetings").click()
    expect(page.get_by_role("heading", level=1, name="Meetings")).to_be_visible()
    check_page(page, scheme)


# How it is served


def test_what_is_no_browser_gets_the_addresses_in_a_few_lines(server):
    answer = requests.get(f"{server.base}/", timeout=PATIENCE)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Vary"] == "Accept"
    for address in ("/", "/api/v1/docs", "/api/v1/health"):
        assert re.search(f" http://127.0.0.1:8000{address}$", answer.text, re.MULTILINE)
    assert answer.text.count("\n") < 7


def test_a_browser_gets_a_page_that_loads_nothing_from_elsewhere_and_no_inline_code(server):
    headers = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = requests.get(f"{server.base}/", headers=headers, timeout=PATIENCE)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Vary"] == "Accept"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert not re.search(r"<style|<script>| style=| on\w+=", answer.text)
    assert not re.search(r'(?:src|href)="(?!/|data:|#)', answer.text)
    assert requests.head(f"{server.base}/", headers=headers, timeout=PATIENCE).status_code == 200
    refused = requests.post(f"{server.base}/", timeout=PATIENCE)
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD")


def test_its_files_are_asked_for_each_time_and_sent_when_they_have_changed(server):
    for file in (ROOT / "static").iterdir():
        answer = requests.get(f"{server.base}/static/{file.name}", timeout=PATIENCE)
        assert answer.content == file.read_bytes()
        assert answer.headers["Cache-Control"] == "no-cache"
        headers = {"If-None-Match": answer.headers["ETag"]}
        again = requests.get(answer.url, headers=headers, timeout=PATIENCE)
        assert (again.status_code, again.content) == (304, b"")
    for name in ("", "nothing.js", "..%2Fapp.py", "%2Fetc%2Fpasswd", "x/y.js"):
        assert requests.get(f"{server.base}/static/{name}", timeout=PATIENCE).status_code == 404


def test_it_works_below_a_path_of_a_proxy(browse, launch):
    server = launch(TASKS_SERVER__BASE_URL="https://example.com/our/tasks")
    page = browse()
    prefix = f"{server.base}/our/tasks"
    page.route(f"{prefix}/**", lambda route: route.continue_(url=route.request.url.replace("/our/tasks", "")))
    page.goto(f"{prefix}/")
    enter(page, OWNER_KEY)
    expect(column(page, "To do")).to_be_visible()


def test_it_stays_small_and_readable():
    files = [ROOT / "templates" / "board.html", *(ROOT / "static").iterdir()]
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert len(lines) <= 900
    assert max(map(len, lines)) <= 120


def test_of_ten_thousand_tasks_a_page_of_each_column_is_fetched(browse, launch):
    server = launch()
    assert server.flask("seed", "--tasks", "10000").returncode == 0
    page, lists = browse(), []
    page.on("response", lambda answer: lists.append(answer) if "/tasks?status=" in answer.url else None)
    page.goto(f"{server.base}/")
    enter(page, OWNER_KEY)
    for title in STATUSES:
        expect(column(page, title).get_by_role("listitem")).to_have_count(20)
        expect(column(page, title)).to_have_accessible_name(re.compile(f"{title} 20 of [0-9\\s]{{3,}}$"))
    page.get_by_role("searchbox").fill("floor plan")
    expect(page).to_have_url(re.compile("q=floor"))
    expect(card(page, "Draft the floor plan", "Done").first).to_be_visible()
    fetched = [len(answer.json()["data"]["tasks"]) for answer in lists]
    assert max(fetched) == 20
    assert len(fetched) <= 12  # four columns, for the board and for the search, and once more if just seeded


# A day


def test_a_newcomer_enrolls_and_works_through_a_day_with_a_browser_alone(browse, server, owner, project):
    task = owner.make_task(project, title="Welcome the newcomer")
    body = {"email": "nina@example.com", "full_name": "Nina Newcomer", "role": "member"}
    link = owner.data(owner.post("/members/invite", body), 201)["enrollment_link"]
    page = browse()
    page.goto(link.replace("http://127.0.0.1:8000", server.base))
    page.get_by_role("button", name="Join").click()
    page.get_by_role("link", name="Open the board").click()
    expect(page.locator("#caller")).to_have_text("Nina Newcomer (member)")
    assert page.url == f"{server.base}/"
    page.get_by_role("link", name=project["name"]).first.click()
    page.goto(f"{server.base}/#project={project['id']}")
    dialog = opened(page, "Welcome the newcomer")
    dialog.get_by_label("Assignee").select_option("Nina Newcomer")
    dialog.get_by_label("Status").select_option("In progress")
    dialog.get_by_role("button", name="Save changes").click()
    dialog.get_by_label("New comment").fill("Hello everybody!")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text("Hello everybody!")
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="New task").click()
    new = page.get_by_role("dialog", name="New task")
    new.get_by_label("Title").fill("Find the coffee")
    new.get_by_label("Assignee").select_option("Nina Newcomer")
    new.get_by_role("button", name="Create task").click()
    page.get_by_role("checkbox", name="Mine").check()
    choose(page, "Find the coffee", "Done")
    choose(page, "Welcome the newcomer", "Done")
    expect(column(page, "Done")).to_have_accessible_name("Done 2")
    done = owner.data(owner.get("/tasks", project_id=project["id"], status="done"))["tasks"]
    assert {one["title"] for one in done} == {"Welcome the newcomer", "Find the coffee"}
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["comment_count"] == 1
