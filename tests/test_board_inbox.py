"""The page's inbox, names after an @, and questions: notifications, and answers to them."""

import re

import board as ui
from playwright.sync_api import expect


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
    ui.check_page(page)
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
