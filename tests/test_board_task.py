"""The page at / as people use it: the opened task, its texts, with others, and without a network."""

import re
import time
from base64 import b64decode

import board as ui
from harness import ROOT, add_old_comments, wait_until
from playwright.sync_api import expect
from test_attachments import attach
from test_page import GIVE, history_of

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PIXEL = b64decode(PICTURE)

# The opened task


def test_a_long_history_is_shown_in_steps_and_all_comments_at_once(board, server, owner, project):
    task = owner.make_task(project, title="Step 0")
    for step in range(1, 30):
        owner.data(owner.patch(f"/tasks/{task['id']}", {"title": f"Step {step}"}))
    add_old_comments(server, task, 501, "No. ")
    dialog = ui.opened(board, "Step 29")
    history, comments = history_of(dialog), dialog.get_by_role("list", name="Comments")
    expect(history.get_by_role("listitem")).to_have_count(20)
    ui.press(dialog, "Show earlier")
    expect(history.get_by_role("listitem")).to_have_count(30)
    expect(history.get_by_role("listitem").last).to_contain_text("created")
    expect(dialog.get_by_role("button", name="Show earlier")).to_be_hidden()
    expect(comments.get_by_role("listitem")).to_have_count(501)
    expect(comments.get_by_role("listitem").first).to_contain_text("No. 0")
    expect(comments.get_by_role("listitem").last).to_contain_text("No. 500")


def test_a_wrong_field_is_named_and_stays_until_it_is_discarded(board, owner, project):
    task = owner.make_task(project, title="Doubtful", description="Before", due_date="2098-01-01")
    dialog = ui.opened(board, "Doubtful")
    ui.save(dialog, {"Start date": "2099-01-01", "Description": "A mistake"})
    expect(ui.message(dialog)).to_have_text("Start date must not be after the due date.")
    expect(ui.choice(dialog, "Start date")).to_have_text("1 Jan 2099")
    owner.data(owner.patch(f"/tasks/{task['id']}", {"title": "Doubtless"}))
    ui.refresh(board)
    dialog = board.get_by_role("dialog", name="Doubtless")
    expect(dialog.get_by_label("Title")).to_have_value("Doubtless")
    expect(dialog.get_by_label("Description")).to_have_value("A mistake")
    ui.press(dialog, "Discard")
    expect(dialog.locator(".text")).to_have_text("Before")
    assert board.evaluate("Object.keys(sessionStorage)") == ["reader"]
    ui.save(dialog, {"Start date": "2097-01-01"})
    expect(ui.message(dialog)).to_have_text("Saved.")
    ui.save(dialog, {"Due date": "2096-01-01"})
    expect(ui.message(dialog)).to_have_text("Due date must not be before the start date.")
    ui.save(dialog, {"Title": " "})
    expect(ui.message(dialog)).to_have_text("Title is required.")
    ui.comment(dialog, " ")
    expect(ui.message(dialog).last).to_have_text("Write a comment first.")


def test_in_an_opened_task_only_what_was_done_there_is_undone(board, owner, project):
    moved, talk = (owner.make_task(project, title=title) for title in ("Moved", "Talk"))
    owner.make(f"/tasks/{talk['id']}/comments", {"content": "Kept"})
    ui.refresh(board, "Moved")
    with ui.held(board, f"**/tasks/{moved['id']}/details"):
        ui.choose(board, "Moved", "Review")
        dialog = ui.opened(board, "Talk")
    expect(ui.notice(board)).to_contain_text("Moved “Moved” to Review.")
    ui.press(dialog.get_by_role("list", name="Comments"), "Delete")
    expect(dialog).not_to_contain_text("Kept")
    for _ in range(2):
        board.keyboard.press("Control+z")
        expect(dialog).to_contain_text("Kept")
    board.keyboard.press("Escape")
    expect(ui.card(board, "Moved", "Review")).to_be_visible()
    board.keyboard.press("Control+z")
    expect(ui.card(board, "Moved", "To do")).to_be_visible()


def test_a_comment_that_is_sent_before_the_last_one_is_shown_waits_for_it(board, owner, project):
    task = owner.make_task(project, title="Talk")
    dialog = ui.opened(board, "Talk")
    with ui.held(board, f"**/tasks/{task['id']}/comments"):
        ui.comment(dialog, "First")
        dialog.get_by_label("New comment").fill("Second")
        ui.press(dialog, "Saving…")
    expect(dialog.get_by_role("list", name="Comments").get_by_role("listitem")).to_have_count(2)
    expect(dialog.get_by_label("New comment")).to_have_value("")
    sent = owner.read(f"/tasks/{task['id']}/comments")["comments"]
    assert [comment["content"] for comment in sent] == ["First", "Second"]


def test_markdown_that_is_too_deep_or_too_much_is_shown_as_typed(board, owner, project):
    hard = [
        ">" * 1200,
        "- " * 800 + "a",
        "\n".join(">" * level + "a" for level in range(29, 0, -1)),  # read twice at each level
        "|a" * 5000 + "|\n" + "|-" * 5000 + "|\n" + "b\n" * 14_000,  # 70 million cells
    ]
    task = owner.make_task(project, title="Hard", description=("*a* " * 400 + "\n\n") * 4 + "*b*")
    for text in hard:
        owner.make(f"/tasks/{task['id']}/comments", {"content": text})
    dialog = ui.opened(board, "Hard")
    paragraphs = dialog.locator(".text > *")  # of the description alone
    expect(paragraphs).to_have_count(5)
    expect(paragraphs.locator("em")).to_have_text(["a"] * 1200 + ["b"])
    expect(paragraphs.nth(3)).to_have_text("*a* " * 400)  # too many marks together
    expect(dialog.locator(".comment .text")).to_have_text(hard)


def test_long_documents_and_paragraphs_are_drawn_and_each_text_is_read_once(sign_in, owner, project):
    board = sign_in(address=f"#project={project['id']}", own=True)  # which counts
    document = (ROOT / "README.md").read_text() + "\n"
    prose = "**Prose**, and so on. " * 90
    task = owner.make_task(project, title="Long", description=document * (48_000 // len(document)) + prose)
    owner.make(f"/tasks/{task['id']}/comments", {"content": "*One*"})
    board.evaluate("""async () => {
        const { Lexer } = await import(new URL("marked.js", document.scripts[0].src));
        const lex = Lexer.prototype.blockTokens;
        window.read = [];
        Lexer.prototype.blockTokens = function (...given) {
            if (this.state.top) window.read.push(given[0].slice(0, 5));
            return lex.apply(this, given);
        };
    }""")
    dialog = ui.opened(board, "Long")
    expect(dialog.locator(".text > p").nth(-2).locator("strong")).to_have_count(90)
    board.evaluate("window.read = []")
    for text in ("*Two*", "*Three*"):
        owner.make(f"/tasks/{task['id']}/comments", {"content": text})
        ui.refresh(board)
    expect(dialog.locator(".text em", has_text="Three")).to_be_visible()
    assert board.evaluate("window.read") == ["*Two*", "*Thre"]


def test_a_picture_that_is_dropped_or_pasted_is_attached_and_previewed(board, owner, project):
    owner.make_task(project, title="Gallery")
    dialog = ui.opened(board, "Gallery")
    for kind in ("drop", "paste"):
        dialog.get_by_label("New comment").evaluate(GIVE, [kind, f"{kind}.png", PICTURE])
        picture = dialog.get_by_role("img", name=f"{kind}.png")
        expect(picture).to_have_attribute("src", re.compile("^blob:"))
        expect(picture).to_have_js_property("naturalWidth", 1)  # it could be read
    pasted = dialog.get_by_role("img", name=re.compile(r"^image-20[\d-]+\.png$"))
    for count in (1, 2):
        dialog.get_by_label("New comment").evaluate(GIVE, ["paste", "image.png", PICTURE])
        expect(pasted).to_have_count(count)
    names = pasted.evaluate_all("all => all.map((one) => one.alt)")
    assert len(set(names)) == 2
    typed = ["drop.png", "paste.png", *sorted(names)]
    expect(dialog.get_by_label("New comment")).to_have_value("".join(f"![]({name})\n" for name in typed))
    ui.press(dialog, "Send")
    expect(dialog.locator(".comment[aria-busy=false] img")).to_have_count(4)
    expect(dialog.locator(".file").get_by_role("link")).to_have_count(4)  # each opens the picture


def test_what_an_office_program_copied_is_pasted_as_text(board, owner, project):
    task = owner.make_task(project, title="Costs")
    dialog = ui.opened(board, "Costs")
    is_pasted = dialog.get_by_label("New comment").evaluate("""(place) => {
        const data = new DataTransfer();
        data.setData("text/plain", "Posters 120");
        data.setData("text/html", "<b>Posters</b> 120");
        data.items.add(new File([""], "image.png", { type: "image/png" }));
        const options = { bubbles: true, cancelable: true, clipboardData: data };
        return place.dispatchEvent(new ClipboardEvent("paste", options));
    }""")
    assert is_pasted  # by the browser itself, as the page did not prevent it
    ui.comment(dialog, "Said")
    expect(dialog.locator(".comment[aria-busy=false]")).to_have_count(1)
    assert owner.read(f"/tasks/{task['id']}")["attachments"] == []


def test_the_editor_of_a_description_is_left_without_the_task(board, owner, project):
    task = owner.make_task(project, title="Draft", description="Before")
    dialog = ui.opened(board, "Draft")
    for leave in (lambda: ui.press(dialog, "Cancel"), lambda: board.keyboard.press("Escape")):
        ui.press(dialog, "Edit description")
        expect(dialog.get_by_label("Description")).to_be_focused()
        leave()
        expect(dialog.get_by_role("button", name="Edit description")).to_be_focused()
    ui.press(dialog, "Edit description")
    dialog.get_by_label("Description").fill("Half a thought")
    board.keyboard.press("Escape")
    expect(dialog.locator(".text")).to_have_text("Half a thought")
    expect(ui.message(dialog)).to_have_text("Not saved yet.")
    ui.press(dialog, "Save changes")
    expect(ui.message(dialog)).to_have_text("Saved.")
    assert ui.stored(owner, task)["description"] == "Half a thought"
    card = board.locator(".card", has_text="Not saved")
    pressed = "(button) => (button.click(), Promise.resolve().then(() => document.activeElement.tagName))"
    assert dialog.get_by_role("button", name="Edit description").evaluate(pressed) == "TEXTAREA"  # at once
    board.keyboard.type(" @Olga O")
    board.keyboard.press("Enter")
    expect(dialog.get_by_label("Description")).to_have_value("Half a thought @Olga Owner ")
    expect(card).to_have_count(1)
    ui.press(dialog, "Discard")
    expect(card).to_have_count(0)


def test_the_keys_of_a_card_act_on_the_opened_task(board, owner, project):
    task = owner.make_task(project, title="Keyed")
    expect(ui.opened(board, "Keyed")).to_be_focused()
    for key, words in {"s": "In progress", "p": "High"}.items():
        board.keyboard.press(key)
        ui.find(board, words)
        expect(board.get_by_role("combobox", name="Find")).to_have_count(0)
    wait_until(lambda: ui.stored(owner, task)["priority"] == "high")
    assert ui.stored(owner, task)["status"] == "in_progress"
    board.keyboard.press("i")
    wait_until(lambda: ui.stored(owner, task)["assignee_id"] == ui.me(board)["member"]["id"])
    board.keyboard.press("c")
    board.keyboard.type("is for comment")
    expect(board.get_by_label("New comment")).to_have_value("is for comment")


def test_what_is_in_review_is_accepted_or_sent_back_with_a_reason(board, owner, project):
    good, bad = (owner.make_task(project, title=title) for title in ("Good", "Bad"))
    for task in (good, bad):
        owner.data(owner.patch(f"/tasks/{task['id']}", {"status": "review"}))
    dialog = ui.opened(board, "Good")
    ui.check_page(board)
    ui.press(dialog, "Accept")
    expect(ui.choice(dialog, "Status")).to_have_text("Done")
    expect(dialog.get_by_role("group", name="Review")).to_have_count(0)
    ui.press(dialog, "Close")
    dialog = ui.opened(board, "Bad")
    ui.press(dialog, "Send back…")
    expect(dialog.get_by_label("New comment")).to_be_focused()
    ui.press(dialog, "Cancel")
    expect(dialog.get_by_role("button", name="Accept")).to_be_visible()
    ui.press(dialog, "Send back…")
    dialog.get_by_label("New comment").fill("The door is open.")
    ui.press(dialog, "Send back")
    expect(ui.choice(dialog, "Status")).to_have_text("To do")
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text("The door is open.")
    expect(dialog.get_by_role("button", name="Send", exact=True)).to_be_visible()


def test_of_an_opened_task_nothing_else_is_printed(board, owner, project):
    owner.make_task(project, title="On paper")
    owner.make_task(project, title="Not on paper")
    ui.refresh(board, "Not on paper")
    ui.link(board, "Not on paper").press("Shift")
    board.emulate_media(media="print")
    expect(ui.link(board, "Not on paper")).to_have_css("outline-style", "none")
    board.emulate_media(media="screen")
    dialog = ui.opened(board, "On paper")
    board.emulate_media(media="print")
    expect(dialog).to_be_visible()
    expect(board.locator("main")).to_be_hidden()


def test_a_task_is_deleted_with_what_was_typed_into_it(sign_in, owner, project):
    board = sign_in(address=f"#project={project['id']}", own=True)  # whose clock stays
    task = owner.make_task(project, title="Superfluous")
    dialog = ui.opened(board, "Superfluous")
    dialog.get_by_label("New comment").fill("Never mind")
    ui.press(dialog, "More")
    ui.press(dialog, "Delete task")
    expect(ui.card(board, "Superfluous")).to_have_count(0)
    expect(ui.column(board, "To do")).to_have_accessible_name("To do 0")
    ui.press(ui.notice(board), "Undo")
    expect(ui.card(board, "Superfluous")).to_contain_text("Not saved")
    ui.opened(board, "Superfluous")
    board.clock.install()
    board.clock.pause_at(time.time() + 60)
    ui.press(dialog, "More")
    ui.press(dialog, "Delete task")
    expect(ui.notice(board).locator(".notice")).to_have_text(re.compile("^Deleted “Superfluous”."))
    board.clock.run_for(5000)
    assert owner.get(f"/tasks/{task['id']}").status_code == 200
    with board.expect_response(f"**/tasks/{task['id']}"):
        board.clock.run_for(2000)
    assert owner.get(f"/tasks/{task['id']}").status_code == 404
    expect(ui.card(board, "Superfluous")).to_have_count(0)
    assert board.evaluate("Object.keys(sessionStorage)") == ["reader"]


def test_a_deletion_is_sent_when_the_page_is_left_and_taken_back_if_refused(board, owner, project):
    task, other = (owner.make_task(project, title=title) for title in ("Going", "Staying"))
    for title in ("Going", "Staying"):
        dialog = ui.opened(board, title)
        ui.press(dialog, "More")
        ui.press(dialog, "Delete task")
    board.route(f"**/tasks/{other['id']}", lambda route: route.fulfill(status=503))
    ui.press(ui.notice(board).locator(".notice", has_text="Staying"), "Dismiss")
    expect(ui.fault(board)).to_contain_text("Not deleted: “Staying”.")
    expect(ui.card(board, "Staying")).to_be_visible()
    board.goto("about:blank")
    wait_until(lambda: owner.get(f"/tasks/{task['id']}").status_code == 404)


def test_of_one_task_nothing_is_shown_in_another_when_answers_are_late_or_missing(board, owner, project):
    late, quick = (owner.make_task(project, title=title) for title in ("Late", "Quick"))
    owner.data(owner.patch(f"/tasks/{late['id']}", {"status": "review"}))
    for task in (late, quick):
        owner.make(f"/tasks/{task['id']}/comments", {"content": f"On {task['title']}"})
    with ui.held(board, f"**/tasks/{late['id']}/comments"):
        with board.expect_request(f"**/tasks/{late['id']}/comments"):
            ui.show(board, f"project={project['id']}&task={late['id']}")
        ui.show(board, f"project={project['id']}&task={quick['id']}")
        dialog = board.get_by_role("dialog", name="Quick")
        expect(dialog.get_by_role("list", name="Comments")).to_contain_text("On Quick")
    board.evaluate("() => fetch('/api/v1/health').then(() => 0)")  # after which it has taken that answer over
    expect(dialog.get_by_role("list", name="Comments")).not_to_contain_text("On Late")
    ui.comment(dialog, "To the quick one")
    expect(dialog.locator(".comment[aria-busy=false]").last).to_contain_text("To the quick one")
    assert len(owner.read(f"/tasks/{quick['id']}/comments")["comments"]) == 2
    ui.refresh(board)  # which the next one would meet otherwise
    board.route(f"**/tasks/{late['id']}/**", lambda route: route.abort())
    board.go_back()
    expect(board.get_by_role("dialog")).to_have_count(0)
    expect(ui.fault(board)).to_contain_text("The server cannot be reached")
    board.unroute(f"**/tasks/{late['id']}/**")
    ui.press(ui.fault(board), "Try again")
    expect(ui.choice(board.get_by_role("dialog", name="Late"), "Status")).to_have_text("Review")
    assert ui.stored(owner, quick)["status"] == "todo"


def test_a_task_has_a_number_and_says_what_blocks_it(board, owner, project):
    blocker, task = owner.make_task(project, title="Blocker"), owner.make_task(project, title="Blocked")
    ui.refresh(board, "Blocked")
    expect(ui.card(board, "Blocked")).to_contain_text(f"#{task['number']}")
    dialog = ui.opened(board, "Blocked")
    assert board.url.endswith(f"&task={task['number']}")
    ui.save(dialog, {"Blocked by": "the first"})
    expect(ui.message(dialog)).to_contain_text("Blocked by takes the numbers of tasks")
    ui.save(dialog, {"Blocked by": f"#{blocker['number']} #99999"})
    expect(ui.message(dialog)).to_have_text("There is no task #99999.")
    ui.save(dialog, {"Blocked by": f"#{blocker['number']}"})
    link = dialog.get_by_role("link", name=f"#{blocker['number']} Blocker")
    link.click()
    dialog = board.get_by_role("dialog", name="Blocker")
    ui.save(dialog, {"Blocked by": str(task["number"])})
    expect(ui.message(dialog)).to_contain_text(f"#{task['number']} waits for #{blocker['number']} itself")
    ui.press(dialog, "Close")
    expect(ui.card(board, "Blocked").get_by_text("Blocked", exact=True)).to_have_count(2)


def test_a_number_and_a_yes_or_no_are_fields_of_a_form(sign_in, owner, project, server):
    task = owner.make_task(project, title="Sized")
    owner.make(f"/tasks/{task['id']}/comments", {"content": "Large"})

    def widen(route):
        """As if the API took two fields more."""
        more = '"size": {"type": ["integer", "null"]}, "is_sure": {"type": "boolean"}, '
        answer = route.fetch()
        html, count = re.subn(r'("update_comment": ?{.*?"properties": ?{)', rf"\1{more}", answer.text())
        assert count == 1
        route.fulfill(response=answer, body=html)

    page = sign_in(address=f"#project={project['id']}", own=True)
    page.route(f"{server.base}/", widen)
    page.reload()
    dialog = ui.opened(page, "Sized")
    ui.press(dialog, "Edit")
    size, is_sure = (dialog.get_by_label(label, exact=True) for label in ("Size", "Is sure"))
    size.fill("3")
    is_sure.check()
    with page.expect_request(lambda request: request.method == "PATCH") as asked:
        ui.press(dialog, "Save comment")
    assert asked.value.post_data_json == {"size": 3, "is_sure": True}
    expect(ui.message(dialog)).to_contain_text("Size")  # which the server does not know
    size.fill("")
    is_sure.uncheck()
    expect(dialog.get_by_role("button", name="Save comment")).to_be_hidden()  # nothing differs


# With others


def test_what_someone_else_does_is_shown_and_what_is_typed_stays(sign_in, owner, project):
    board = sign_in(address=f"#project={project['id']}", own=True)  # whose clock stays
    task, other = (owner.make_task(project, title=title) for title in ("Shared", "Doomed"))
    dialog = ui.opened(board, "Shared")
    text = dialog.get_by_label("New comment")
    text.fill("I am typing")
    owner.make(f"/tasks/{task['id']}/comments", {"content": "Meanwhile"})
    ui.refresh(board)
    expect(dialog.get_by_role("list", name="Comments")).to_contain_text("Meanwhile")
    expect(text).to_have_value("I am typing")
    expect(text).to_be_focused()
    owner.data(owner.patch(f"/tasks/{task['id']}", {"title": "Shared by two", "status": "review"}))
    ui.refresh(board)
    expect(dialog.get_by_label("Title")).to_have_value("Shared by two")
    expect(text).to_be_focused()
    board.keyboard.press("Escape")
    expect(ui.card(board, "Shared by two", "Review").get_by_role("img", name="1 comment")).to_be_visible()
    dialog = ui.opened(board, "Doomed")
    ui.press(dialog, "Add a description")
    dialog.get_by_label("Description").fill("An hour's work")
    owner.data(owner.delete(f"/tasks/{other['id']}"))
    ui.refresh(board)
    expect(dialog.get_by_role("alert").first).to_contain_text("was deleted meanwhile")
    expect(dialog.get_by_label("Description")).to_have_value("An hour's work")
    board.keyboard.press("Escape")
    expect(ui.card(board, "Doomed")).to_have_count(0)
    board.clock.install()
    ui.refresh(board)
    owner.make_task(project, title="Brand new")
    board.clock.fast_forward(6000)  # milliseconds, after which the page looks by itself
    expect(ui.card(board, "Brand new", "To do")).to_be_visible()
    expect(board.locator("#projects [aria-current=page]")).to_have_attribute("title", "0 of 2 done")


def test_a_change_by_someone_else_is_not_overwritten_by_the_form(board, owner, ana, project):
    task = owner.make_task(project, title="Ours", description="Old")
    dialog = ui.opened(board, "Ours")
    for is_seen, priority in ((False, "urgent"), (True, "low")):
        mine, theirs = f"Mine, while hers is {priority}", f"Hers, and {priority}"
        ui.press(dialog, "Edit description")
        dialog.get_by_label("Description").fill(mine)
        if not is_seen:
            ui.unseen(board)
        ana.data(ana.patch(f"/tasks/{task['id']}/details", {"description": theirs, "priority": priority}))
        if is_seen:
            ui.seen(board)
            expect(ui.message(dialog)).to_contain_text("Someone has changed this task")
        ui.press(dialog, "Save changes")
        expect(ui.message(dialog)).to_contain_text("Ana Lima has changed this task meanwhile")
        expect(ui.message(dialog)).to_contain_text(f"Description, theirs: {theirs}")
        expect(dialog.get_by_label("Description")).to_have_value(mine)
        expect(ui.choice(dialog, "Priority")).to_contain_text(priority.capitalize())
        assert ui.stored(owner, task)["description"] == theirs
        ui.press(dialog, "Save changes")
        expect(ui.message(dialog)).to_have_text("Saved.")
        saved = ui.stored(owner, task)
        assert (saved["description"], saved["priority"]) == (mine, priority)


def test_a_page_that_nobody_sees_asks_for_nothing_and_moves_no_card_changed_meanwhile(board, owner, project):
    task, other = (owner.make_task(project, title=title) for title in ("Contested", "Renamed"))
    ui.refresh(board, "Contested")
    ui.unseen(board)
    asked = []
    board.on("request", lambda request: asked.append(request.url.partition("?")[0].rpartition("/")[2]))
    owner.data(owner.patch(f"/tasks/{task['id']}", {"status": "review"}))
    owner.data(owner.patch(f"/tasks/{other['id']}/details", {"priority": "high"}))
    ui.refresh(board)
    board.evaluate("() => fetch('/api/v1/health').then((answer) => answer.status)")
    assert "health" in asked
    assert "changes" not in asked
    ui.choose(board, "Contested", "Done")
    expect(ui.notice(board)).to_contain_text("was not moved. Someone has moved it meanwhile")
    assert ui.stored(owner, task)["status"] == "review"
    ui.choose(board, "Renamed", "Done")
    expect(ui.notice(board)).to_contain_text("Moved “Renamed” to Done.")
    moved = ui.stored(owner, other)
    assert (moved["status"], moved["priority"]) == ("done", "high")
    ui.seen(board)
    expect(ui.card(board, "Contested", "Review")).to_be_visible()
    assert "changes" in asked


# Without a network


def test_a_comment_that_was_not_sent_or_whose_answer_was_lost_is_sent_once(board, owner, project):
    task = owner.make_task(project, title="Tunnel")
    dialog = ui.opened(board, "Tunnel")
    text, comments = dialog.get_by_label("New comment"), dialog.get_by_role("list", name="Comments")
    board.context.set_offline(True)
    ui.comment(dialog, "From the train")
    alert = ui.message(dialog)
    expect(alert).to_contain_text("Your changes are kept here")
    expect(text).to_have_value("From the train")
    board.context.set_offline(False)
    ui.press(alert, "Try again")
    expect(comments).to_contain_text("From the train")
    expect(text).to_have_value("")
    lost = []

    def lose(route):
        if route.request.method == "POST" and not lost:
            lost.append(route.fetch())
            return route.abort()
        return route.continue_()

    board.route("**/comments", lose)
    ui.comment(dialog, "Only once")
    ui.press(alert, "Try again")
    expect(text).to_have_value("")
    assert [answer.status for answer in lost] == [201]
    assert len(owner.read(f"/tasks/{task['id']}/comments")["comments"]) == 2


def test_a_notice_does_not_cover_the_buttons_of_a_form_on_a_phone(board, owner, project):
    owner.make_task(project, title="On the way")
    board.set_viewport_size({"width": 375, "height": 812})
    ui.refresh(board, "On the way")
    board.context.set_offline(True)
    ui.choose(board, "On the way", "Done")
    not_moved = ui.fault(board).locator(".notice").filter(has_text="“On the way” was not moved.")
    expect(not_moved).to_be_visible()
    board.context.set_offline(False)
    ui.opened(board, "On the way").get_by_label("Title").fill("On its way")
    ui.press(board, "Save changes")  # which waits until nothing covers it
    expect(ui.card(board, "On its way")).to_be_attached()
    expect(not_moved).to_be_visible()


def test_moves_edits_and_new_tasks_wait_for_the_network(board, owner, project):
    task = owner.make_task(project, title="Slow line")
    dialog = ui.opened(board, "Slow line")
    board.context.set_offline(True)
    ui.save(dialog, {"Description": "Typed on the way"})
    expect(ui.message(dialog)).to_contain_text("cannot be reached")
    board.keyboard.press("Escape")
    expect(ui.notice(board)).to_contain_text("typed into “Slow line” is not saved; it is kept in this tab.")
    expect(ui.card(board, "Slow line")).to_contain_text("Not saved")
    ui.choose(board, "Slow line", "Done")
    not_moved = ui.fault(board).locator(".notice").filter(has_text="“Slow line” was not moved.")
    expect(not_moved).to_contain_text("The server cannot be reached.")
    ui.refresh(board)
    expect(not_moved).to_contain_text("What you see is from ")
    expect(ui.fault(board).locator(".notice")).to_have_count(1)
    expect(ui.card(board, "Slow line", "To do")).to_be_visible()
    board.context.set_offline(False)
    ui.press(not_moved, "Try again")
    expect(ui.card(board, "Slow line", "Done")).to_be_visible()
    new = ui.new_task(board)
    new.get_by_label("Title").fill("Written offline")
    board.context.set_offline(True)
    ui.press(new, "Create task")
    expect(ui.message(new)).to_contain_text("cannot be reached")
    board.context.set_offline(False)
    ui.press(ui.message(new), "Try again")
    expect(ui.card(board, "Written offline", "To do")).to_be_visible()
    dialog = ui.opened(board, "Slow line")
    expect(dialog.locator(".text")).to_have_text("Typed on the way")
    ui.press(dialog, "Save changes")  # it was moved since, which overlaps nothing
    expect(ui.message(dialog)).to_have_text("Saved.")
    saved = ui.stored(owner, task)
    assert (saved["description"], saved["status"]) == ("Typed on the way", "done")
    board.keyboard.press("Escape")
    expect(ui.card(board, "Slow line")).not_to_contain_text("Not saved")


IN_WORDS = """async (rules) => {
    const { ruleInWords } = await import(new URL("repeat.js", document.scripts[0].src));
    return rules.map((rule) => ruleInWords(rule, "2031-01-07"));
}"""


def test_a_rule_is_chosen_in_words_and_what_follows_is_linked(board, owner, project):
    dialog = ui.new_task(board)
    expect(ui.choice(dialog, "Repeats")).to_have_count(0)  # without a due date
    dialog.get_by_label("Title").fill("Water the plants")
    ui.pick(dialog, "Due date", "2031-01-07")
    ui.pick(dialog, "Repeats", "Every second Tuesday")
    ui.press(dialog, "Create task")
    card = ui.card(board, "Water the plants")
    expect(card.get_by_role("img", name="Repeats")).to_have_attribute("title", "Every second Tuesday")
    dialog = ui.opened(board, "Water the plants")
    task = owner.read("/tasks", project_id=project["id"])["tasks"][0]
    assert (task["repeat"], task["due_date"][:10]) == ("FREQ=WEEKLY;INTERVAL=2", "2031-01-07")
    ui.pick(dialog, "Counts from", "The day when it is done")
    expect(ui.message(dialog)).to_have_text("Saved.")
    ui.press(dialog, "More")
    ui.press(board, "Skip this one")
    expect(ui.choice(dialog, "Due date")).to_have_text("21 Jan 2031")
    ui.press(ui.notice(board), "Undo")
    expect(ui.choice(dialog, "Due date")).to_have_text("7 Jan 2031")
    in_words = {
        "FREQ=DAILY;INTERVAL=3": "Every 3 days",
        "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR": "Every weekday",
        "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH": "Every second week on Monday and Thursday",
        "FREQ=MONTHLY": "Every month on the 7th",
        "FREQ=MONTHLY;INTERVAL=6;BYMONTHDAY=-1": "Every 6 months on the last day",
        "FREQ=YEARLY;UNTIL=20400101": "Every year on 7 January until 2040-01-01",
    }
    rules = [*in_words]
    assert board.evaluate(IN_WORDS, rules) == [*in_words.values()]
    owner.data(owner.patch(f"/tasks/{task['id']}/details", {"repeat": rules[-1]}))
    ui.refresh(board)
    expect(ui.choice(dialog, "Repeats")).to_have_text(in_words[rules[-1]])
    ui.pick(dialog, "Status", "Done")
    next_number = wait_until(lambda: ui.stored(owner, task)["next_number"])
    expect(dialog.get_by_role("link", name=f"#{next_number}")).to_be_visible()
    expect(history_of(dialog)).to_contain_text("Repeats: Every year until 2040-01-01 → none")


# Texts


TWO = "Two:\n\n- [ ] mine\n  1. [ ] hers\n\n```\n- [ ] code\n```\n"


def test_two_tick_at_once_and_neither_loses_it(board, owner, project):
    task = owner.make_task(project, title="Written", description=TWO)
    dialog = ui.opened(board, "Written")
    expect(dialog.get_by_role("checkbox", name="mine")).to_be_enabled()
    ui.check_page(board)
    with ui.held(board, f"**/tasks/{task['id']}/details"):
        dialog.get_by_role("checkbox", name="mine").click()
        theirs = task["description"].replace("[ ] hers", "[x] hers")
        owner.data(owner.patch(f"/tasks/{task['id']}/details", {"description": theirs}))
    wait_until(lambda: ui.stored(owner, task)["checks"] == {"done": 2, "total": 2} or board.evaluate("0"))
    expect(dialog.get_by_role("checkbox", name="hers")).to_be_checked()
    expect(dialog.get_by_role("checkbox", name="mine")).to_be_checked()
    dialog.get_by_role("checkbox", name="hers").click()
    board.keyboard.press("Escape")
    expect(ui.card(board, "Written")).to_contain_text("1/2")


def test_a_tick_that_is_refused_is_taken_back(board, owner, project):
    task = owner.make_task(project, title="Written", description="- [ ] this\n- [ ] that")
    dialog = ui.opened(board, "Written")
    this = dialog.get_by_role("checkbox", name="this")
    board.route("**/details", lambda route: route.abort())
    this.click()
    expect(ui.fault(board)).to_contain_text("cannot be reached")
    expect(this).not_to_be_checked()
    board.unroute("**/details")
    with ui.held(board, f"**/tasks/{task['id']}/details"):
        this.click()
        owner.data(owner.patch(f"/tasks/{task['id']}/details", {"description": "- [ ] another"}))
    expect(ui.notice(board)).to_contain_text("Someone has changed this line")
    expect(dialog.get_by_role("checkbox", name="another")).not_to_be_checked()
    assert ui.stored(owner, task)["description"] == "- [ ] another"


def test_who_wrote_a_comment_ticks_its_boxes(board, sign_in, owner, project, join):
    task = owner.make_task(project, title="Said", description="- [ ] no client's")
    dialog = ui.opened(board, "Said")
    ui.comment(dialog, "- [ ] one\n- [ ] two")
    for name in ("one", "two"):
        dialog.get_by_role("checkbox", name=name, exact=True).click()
        expect(dialog.get_by_role("checkbox", name=name, exact=True)).to_be_checked()
    done = "- [x] one\n- [x] two"
    path = f"/tasks/{task['id']}/comments"
    wait_until(lambda: owner.read(path)["comments"][0]["content"] == done or board.evaluate("0"))
    page = sign_in(join("client").key, f"#task={task['number']}")
    for name in ("one", "no client's"):
        expect(page.get_by_role("checkbox", name=name, exact=True)).to_be_disabled()


def test_a_text_shows_the_pictures_of_its_task_alone_and_links_tasks(board, owner, project):
    other = owner.make_task(project, title="The other")
    task = owner.make_task(project, title="Pictured")
    owner.data(attach(owner, task, "a plan.png", PIXEL, "image/png"), 201)
    text = (
        "![Plan](<a plan.png>) ![](missing.png) ![x](https://evil.example/x.png) ![y](javascript:go())\n\n"
        f"See #{other['number']}, not a#1, [#9002](https://example.com/#3) or `#4`\n\n"
        "<img src=x onerror=alert(1)> - [ ] <b>no</b>"
    )
    changes = {"description": text, "blocked_by": [other["number"]]}
    owner.data(owner.patch(f"/tasks/{task['id']}/details", changes))
    dialog = ui.opened(board, "Pictured")
    written = dialog.locator(".written")
    expect(written.get_by_role("img", name="Plan")).to_have_js_property("naturalWidth", 1)
    expect(written.locator("img")).to_have_count(1)
    for raw in ("![](missing.png)", "![x](https://evil.example/x.png)", "![y](javascript:", "<img src=x"):
        expect(written).to_contain_text(raw)
    ui.check_page(board)
    expect(written.get_by_role("link")).to_have_text(["", f"#{other['number']}", "#9002"])
    link = written.get_by_role("link", name=f"#{other['number']}")
    link.hover()
    expect(link).to_have_attribute("title", "The other")
    link.click()
    dialog = board.get_by_role("dialog", name="The other")
    expect(dialog.get_by_text("Blocks", exact=True)).to_be_visible()
    expect(dialog.get_by_role("link", name=re.compile("Pictured"))).to_be_visible()
    ui.refresh(board)


SIDES = """all => all.map((one) => {
  const words = document.createRange();
  words.selectNodeContents(one);
  const [text, box] = [words, one].map((it) => it.getBoundingClientRect());
  return [text.left - box.left < 2, box.right - text.right < 2];
})"""


def test_right_to_left_paragraphs_have_their_side_and_comments_the_whole_width(board, owner, project):
    owner.make_task(project, title="Both ways", description="Hello\n\nשלום")
    dialog = ui.opened(board, "Both ways")
    paragraphs = dialog.locator(".text p")
    expect(paragraphs).to_have_text(["Hello", "שלום"])
    assert paragraphs.evaluate_all(SIDES) == [[True, False], [False, True]]
    area = dialog.get_by_label("New comment")
    assert area.evaluate("area => area.offsetWidth > 0.9 * area.closest('form').offsetWidth")
