"""Today, the page's first view, and the inbox: what waits is dealt with by one key or button."""

import itertools
import re

import board as ui
import pytest
from harness import wait_until
from playwright.sync_api import expect
from test_keys import make_key

names = map("Mia Walker {}".format, itertools.count(1))


class Desk:
    """A member for whom things wait, an agent that asks and submits, and the page of the member."""

    def __init__(self, server, owner, join, role="member"):
        self.owner, self.name = owner, next(names)
        self.member = join(role, full_name=self.name)
        self.colleague = join(full_name=f"Colleague of {self.name}")
        self.agent = server.client(make_key(self.colleague, name="builder", scope="agent")["api_key"])
        self.project = owner.make_project(name=f"Of {self.name}")

    def say(self, client, task, content, **fields):
        return client.make(f"/tasks/{task['id']}/comments", {"content": content} | fields)

    def ask(self, title):
        task = self.colleague.make_task(self.project, title=title)
        self.say(self.agent, task, f"Which one, @{self.name}?", question=True)
        return task

    def submit(self, title):
        task = self.member.make_task(self.project, title=title)
        self.agent.data(self.agent.post(f"/tasks/{task['id']}/claim", {}))
        self.say(self.agent, task, "It is on the branch.")
        self.agent.data(self.agent.patch(f"/tasks/{task['id']}", {"status": "review"}))
        return task

    def mention(self, title):
        task = self.colleague.make_task(self.project, title=title)
        self.say(self.colleague, task, f"@{self.name}, it is online.")
        return task

    def due(self, title):
        fields = {"assignee_id": self.member.member["id"], "due_date": "2026-01-15", "priority": "urgent"}
        return self.owner.make_task(self.project, title=title, **fields)

    def waiting(self):
        lists = self.member.read("/today")
        kinds = ("questions", "reviews", "mentions", "due")
        return [entry["task"]["title"] for kind in kinds for entry in lists[kind]]

    def unread(self):
        notices = self.member.read("/inbox")["notices"]
        return {notice["task"]["title"] for notice in notices if not notice["read_at"]}

    def said(self, task):
        comments = self.owner.read(f"/tasks/{task['id']}/comments")["comments"]
        return [comment["content"] for comment in comments]


@pytest.fixture
def desk(server, owner, join):
    return Desk(server, owner, join)


def rows(page):
    return page.locator("main li.own")


def dismiss_all(page):
    """Let what was done be sent at once."""
    while (notices := ui.notice(page).locator(".notice")).count():
        ui.press(notices.first, "Dismiss")


def answer(page, key, text):
    page.keyboard.press(key)
    expect(page.locator("main textarea")).to_be_focused()
    page.keyboard.type(text)
    page.keyboard.press("Control+Enter")


def test_a_page_that_begins_with_today_loads_it_once(desk, sign_in):
    page, asked = sign_in(desk.member.key), []
    start = page.url.partition("#")[0]
    page.goto("about:blank")
    page.on("request", lambda request: asked.append(request.url.partition("?")[0].rpartition("/")[2]))
    with page.expect_request("**/changes?*wait=*"):
        page.goto(start)
    assert asked[: asked.index("changes")].count("today") == 1


def test_each_has_buttons_and_nothing_is_faulty(desk, sign_in):
    for make in (desk.ask, desk.submit, desk.mention, desk.due):
        make(f"To {make.__name__}")
    page = sign_in(desk.member.key, "#view=today")
    offered = [row.get_by_role("button").all_inner_texts() for row in rows(page).all()]
    assert offered == [
        ["Reply… r", "Later h"],
        ["Accept a", "Send back… r", "Later h"],
        ["Reply… r", "Done d", "Later h"],
        ["Done d", "Later h"],
    ]
    expect(rows(page).last.get_by_role("img", name="Urgent priority")).to_be_visible()
    expect(rows(page).last).to_contain_text(re.compile("15 Jan.* overdue"))
    ui.press(page, "Reply: To ask")
    ui.check_page(page)
    page.keyboard.press("Escape")
    expect(ui.link(page, "To ask")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(ui.link(page, "To submit")).to_be_focused()
    page.keyboard.press("e")
    wait_until(lambda: "To submit" not in desk.unread())
    ui.press(page.get_by_role("dialog", name="To submit"), "Close")
    expect(ui.link(page, "To submit")).to_be_focused()
    ui.view(page, "Today")
    page.keyboard.press("ArrowDown")
    expect(ui.link(page, "To ask")).to_be_focused()
    ui.press(page, "Later: To ask")
    ui.press(page, "Later: To due")
    dismiss_all(page)
    wait_until(lambda: desk.waiting() == ["To submit", "To mention"])
    expect(page.get_by_role("link", name="Inbox 1 unread")).to_be_visible()  # one was opened


def test_what_is_undone_was_never_sent_and_a_reply_can_be_changed(desk, sign_in):
    task = desk.ask("Colour")
    desk.due("Paint")
    page = sign_in(desk.member.key, "#view=today")
    expect(ui.link(page, "Colour")).to_be_focused()
    answer(page, "r", "Grene")
    expect(ui.link(page, "Paint")).to_be_focused()
    page.keyboard.press("d")
    expect(rows(page)).to_have_count(0)
    for title in ("Paint", "Colour"):
        ui.press(ui.notice(page).locator(".notice", has_text=title), "Undo")
        expect(ui.link(page, title)).to_be_focused()
    assert desk.waiting() == ["Colour", "Paint"]
    page.keyboard.press("r")
    expect(page.locator("main textarea")).to_have_value("Grene")
    page.locator("main textarea").fill("Green")
    page.keyboard.press("Control+Enter")
    dismiss_all(page)
    wait_until(lambda: desk.said(task)[1:] == ["Green"])
    assert desk.waiting() == ["Paint"]


def test_what_is_done_offline_is_kept_and_sent_once(desk, sign_in):
    question, review = desk.ask("Tunnel"), desk.submit("Bridge")
    page = sign_in(desk.member.key, "#view=today")
    expect(ui.link(page, "Tunnel")).to_be_focused()
    page.context.set_offline(True)
    answer(page, "r", "Under the river")
    page.keyboard.press("a")
    dismiss_all(page)
    expect(page.get_by_text("2 changes will be sent when you are online again.")).to_be_visible()
    assert desk.waiting() == ["Tunnel", "Bridge"]
    page.context.set_offline(False)
    page.reload()
    wait_until(lambda: not desk.waiting())
    expect(page.get_by_text("Done for now.")).to_be_visible()
    assert desk.said(question)[1:] == ["Under the river"]
    assert ui.stored(desk.owner, review)["status"] == "done"


def test_what_somebody_else_has_changed_meanwhile_is_left_as_it_is(desk, sign_in):
    task = desk.submit("Late")
    page = sign_in(desk.member.key, "#view=today")
    expect(ui.link(page, "Late")).to_be_focused()
    page.keyboard.press("a")
    desk.owner.data(desk.owner.patch(f"/tasks/{task['id']}", {"status": "in_progress"}))
    dismiss_all(page)
    expect(ui.fault(page)).to_contain_text("“Late” stays as it is.")
    assert ui.stored(desk.owner, task)["status"] == "in_progress"


def test_a_client_is_offered_what_a_client_may_do(server, owner, join, sign_in):
    desk = Desk(server, owner, join, "client")
    described = {"title": "For clients", "description": f"It is online, @{desk.name}."}
    task = desk.colleague.make_task(desk.project, **described)
    page = sign_in(desk.member.key)
    expect(rows(page)).to_contain_text(re.compile(f"Colleague of {desk.name}.*It is online, @", re.DOTALL))
    expect(rows(page).get_by_role("button")).to_have_text(["Reply… r", "Done d", "Later h"])
    page.keyboard.press("a")
    answer(page, "r", "Thank you")
    dismiss_all(page)
    wait_until(lambda: desk.said(task) == ["Thank you"])


# The inbox, names after an @, and questions


def test_a_hidden_page_notifies_a_member_who_asked_for_it(sign_in, owner, project, join):
    mia = join()
    page = sign_in(mia.key, f"#project={project['id']}")
    expect(page.get_by_role("link", name="Inbox", exact=True)).to_be_visible()
    page.evaluate("""() => {
        window.told = [];
        window.Notification = function (title) { told.push(title); };
        Notification.permission = "granted";
        document.hasFocus = () => false;
    }""")
    ui.unseen(page)
    task = owner.make_task(project, title="Shown", assignee_id=mia.member["id"])
    page.evaluate("void dispatchEvent(new Event('online'))")  # which looks for changes at once
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    assert page.evaluate("told") == [f"Olga Owner assigned you #{task['number']} Shown"]
    page.evaluate("""() => {
        window.Notification = function () { throw told.push("Refused"); };  // as in Chrome for Android
        Notification.permission = "granted";
    }""")
    owner.make_task(project, title="Silent", assignee_id=mia.member["id"])
    page.evaluate("void dispatchEvent(new Event('online'))")
    expect(page).to_have_title(re.compile(r"^\(2\) "))
    assert page.evaluate("told")[1:] == ["Refused"]
    expect(ui.fault(page)).to_be_empty()


def test_names_are_completed_after_an_at_sign_by_keyboard_and_pointer(board, owner, project, join):
    nia, max_ = join(full_name="Nia Noor"), join(full_name="Nax Noor")
    task = owner.make_task(project, title="Who")
    dialog = ui.opened(board, "Who")
    area, names = dialog.get_by_label("New comment"), dialog.get_by_role("listbox", name="Members")
    area.press_sequentially("Ask @noo")
    expect(names.get_by_role("option")).to_have_text(["Nax Noor", "Nia Noor"])
    ui.check_page(board)
    area.press("ArrowDown")
    area.press("Enter")
    expect(area).to_have_value("Ask @Nia Noor ")
    area.press_sequentially("or @na")
    names.get_by_text("Nax Noor").click()
    expect(area).to_have_value("Ask @Nia Noor or @Nax Noor ")
    area.press_sequentially("@n")
    area.press("Escape")
    expect(names).to_have_count(0)
    expect(dialog).to_be_visible()  # Escape has closed the list alone
    area.press("Backspace")
    area.press("Backspace")
    area.press_sequentially("a@nia")  # an address
    expect(names).to_have_count(0)
    ui.press(dialog, "Send")
    expect(dialog.locator(".comment[aria-busy=false]")).to_contain_text("Ask @Nia Noor or @Nax Noor")
    (sent,) = owner.read(f"/tasks/{task['id']}/comments")["comments"]
    assert set(sent["mentions"]) == {nia.member["id"], max_.member["id"]}


def test_a_question_is_asked_shown_and_answered_on_the_page(sign_in, board, owner, project, join):
    olli = join(full_name="Olli Orr")
    owner.make_task(project, title="Which colour")
    dialog = ui.opened(board, "Which colour")
    dialog.get_by_label("Ask a question").check()
    dialog.get_by_label("New comment").fill("Blue, @Olli Orr?")
    ui.press(dialog, "Send")
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text("Question")
    expect(dialog.get_by_label("Ask a question")).not_to_be_checked()
    ui.press(dialog, "Close")
    expect(ui.card(board, "Which colour")).to_contain_text("Question")
    page = sign_in(olli.key, "#view=inbox")
    page.get_by_role("listitem").filter(has_text="asked you about").get_by_role("link").click()
    dialog = page.get_by_role("dialog", name="Which colour")
    ui.press(dialog, "Answer")
    expect(dialog.get_by_label("New comment")).to_be_focused()
    ui.comment(dialog, "Green")
    expect(dialog.get_by_text("Question", exact=True)).to_have_count(0)
    expect(page.get_by_role("link", name="Inbox", exact=True)).to_be_visible()  # who answers has read it
    ui.refresh(board)
    expect(ui.card(board, "Which colour")).not_to_contain_text("Question")
    board.get_by_role("link", name=re.compile(r"Inbox \d+ unread")).click()
    expect(board.get_by_role("list", name="Inbox")).to_contain_text("answered your question on")
