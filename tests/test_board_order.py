"""The page at / as people use it: the order by hand, labels, another project, and several cards at once."""

import re

import board as ui
from harness import wait_until
from playwright.sync_api import expect
from test_page import announced, titles


def drag(page, title, onto, half):
    """Drag a card over the upper or lower half of another one."""
    ui.card(page, title).hover()
    page.mouse.down()
    box = ui.card(page, onto).bounding_box()  # not before it has been scrolled to
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] * (0.25 if half == "upper" else 0.75)
    page.mouse.move(x, y - 3)
    page.mouse.move(x, y)
    expect(page.locator(".drop")).to_be_visible()
    page.mouse.up()


# The order by hand


def test_cards_are_put_in_an_order_by_dragging_and_by_keys(board, owner, project):
    _, _, c, d = (owner.make_task(project, title=title) for title in ("Ada", "Bob", "Cyd", "Dot"))
    owner.data(owner.patch(f"/tasks/{d['id']}", {"status": "review"}))
    ui.refresh(board, "Dot")
    expect(ui.choice(board, "Order")).to_have_text("Manual order")
    expect(titles(board)).to_have_text(["Ada", "Bob", "Cyd"])
    with ui.held(board, f"**/tasks/{c['id']}/details"):
        drag(board, "Cyd", "Ada", "upper")
        expect(titles(board)).to_have_text(["Cyd", "Ada", "Bob"])  # before the server has answered
    drag(board, "Ada", "Bob", "lower")
    expect(titles(board)).to_have_text(["Cyd", "Bob", "Ada"])
    drag(board, "Dot", "Cyd", "lower")
    expect(titles(board)).to_have_text(["Cyd", "Dot", "Bob", "Ada"])
    expect(ui.notice(board)).to_contain_text("Moved “Dot” to To do.")
    ui.link(board, "Ada").focus()
    for place in (3, 2):
        board.keyboard.press("Alt+ArrowUp")
        expect(announced(board)).to_have_text(f"“Ada” is number {place} of 4")
        expect(ui.link(board, "Ada")).to_be_focused()
    expect(titles(board)).to_have_text(["Cyd", "Ada", "Dot", "Bob"])
    ui.link(board, "Bob").press("Alt+ArrowUp")
    expect(ui.notice(board)).to_contain_text("Moved “Bob”.")
    expect(titles(board)).to_have_text(["Cyd", "Ada", "Bob", "Dot"])
    board.keyboard.press("Control+z")
    expect(titles(board)).to_have_text(["Cyd", "Ada", "Dot", "Bob"])
    order = ["Cyd", "Ada", "Dot", "Bob"]

    def listed():
        tasks = owner.read("/tasks", project_id=project["id"], sort="rank")["tasks"]
        return [task["title"] for task in tasks]

    wait_until(lambda: listed() == order)
    ui.pick(board, "Order", "Last changed")
    ui.link(board, "Cyd").press("Alt+ArrowUp")
    expect(ui.notice(board)).to_contain_text("Manual order")
    assert listed() == order


def test_a_place_that_is_refused_is_taken_back(board, owner, project):
    _, b, _ = (owner.make_task(project, title=title) for title in ("Ada", "Bob", "Cyd"))
    ui.refresh(board, "Cyd")
    ui.unseen(board)
    owner.data(owner.delete(f"/tasks/{b['id']}"))
    drag(board, "Ada", "Bob", "lower")
    refused = "“Ada” was not moved. The task above does not exist any longer."
    expect(ui.fault(board)).to_contain_text(refused)
    expect(titles(board)).to_have_text(["Ada", "Bob", "Cyd"])


def test_a_card_stays_where_it_was_moved_when_a_load_ends_that_has_not_seen_that(board, owner, project):
    task = owner.make_task(project, title="Ada")
    ui.refresh(board, "Ada")
    with ui.held(board, f"**/tasks/{task['id']}/details"):
        with ui.held(board, re.compile(r"/tasks\?project_id=.*&status=")):
            owner.data(owner.patch(f"/projects/{project['id']}", {"description": "So all is loaded again"}))
            ui.choose(board, "Ada", "Review")
            expect(titles(board, "Review")).to_have_text(["Ada"])
        ui.refresh(board)
        expect(titles(board, "Review")).to_have_text(["Ada"])
        expect(titles(board)).to_have_count(0)
    wait_until(lambda: ui.stored(owner, task)["status"] == "review")


# Labels, another project, copies


def test_a_task_goes_to_another_project_without_its_milestone_and_is_copied(board, owner, project, milestone):
    other = owner.make_project(name="Abroad")
    task = owner.make_task(project, title="Nomad", milestone_id=milestone["id"], labels=["bug"])
    dialog = ui.opened(board, "Nomad")
    ui.pick(dialog, "Project", "Abroad")
    expect(ui.message(dialog)).to_have_text("Saved.")
    expect(ui.choice(dialog, "Milestone")).to_have_text("None")
    moved = ui.stored(owner, task)
    assert (moved["project_id"], moved["milestone_id"]) == (other["id"], None)
    ui.press(dialog, "More")
    ui.press(dialog, "Duplicate")
    expect(ui.notice(board)).to_contain_text(f"a copy of #{task['number']}.")
    expect(dialog.locator(".head")).not_to_contain_text(f"#{task['number']}")
    expect(ui.choice(dialog, "Project")).to_contain_text("Abroad")
    expect(dialog.get_by_label("Title")).to_have_value("Nomad")
    expect(ui.choice(dialog, "Labels")).to_have_text("bug")
    ui.press(dialog, "Close")
    expect(titles(board)).to_have_count(0)


# Several at once


def test_the_details_of_a_card_are_planned_by_keys(board, owner, project, milestone):
    task = owner.make_task(project, title="Plan me")
    ui.refresh(board, "Plan me")
    ui.link(board, "Plan me").focus()
    for key, words in {"s": "In progress", "a": "Olga", "p": "High", "m": "M"}.items():
        board.keyboard.press(key)
        ui.find(board, words)
        expect(ui.link(board, "Plan me")).to_be_focused()
    expect(ui.card(board, "Plan me").get_by_title("Milestone")).to_have_text("◇ M")
    for typed, shown in {"tom": "tomorrow", "2098-12-04": "4 Dec 2098"}.items():
        board.keyboard.press("d")
        ui.find(board, typed)
        expect(ui.card(board, "Plan me", "In progress")).to_contain_text(shown)
        expect(ui.link(board, "Plan me")).to_be_focused()
    board.keyboard.press("d")
    expect(board.get_by_role("option", name="Tomorrow")).to_be_visible()
    ui.check_page(board)
    board.get_by_label("Due date").get_by_role("textbox", name="Due date").fill("2098-12-03")
    board.keyboard.press("Enter")
    expect(ui.card(board, "Plan me", "In progress")).to_contain_text("3 Dec 2098")
    expect(ui.link(board, "Plan me")).to_be_focused()
    wait_until(lambda: (ui.stored(owner, task)["due_date"] or "").startswith("2098-12-03"))
    planned = ui.stored(owner, task)
    chosen = [planned[name] for name in ("status", "priority", "milestone_id")]
    assert chosen == ["in_progress", "high", milestone["id"]]
    ui.press(ui.card(board, "Plan me"), "More for “Plan me”")
    expect(board.get_by_role("button", name="Open", exact=True)).to_be_focused()
    ui.press(board, "Status")
    ui.find(board, "Done")
    expect(ui.card(board, "Plan me", "Done")).to_be_visible()
    ui.link(board, "Plan me").press("e")
    expect(board.get_by_role("dialog", name="Plan me")).to_be_visible()


def test_a_day_is_typed_in_many_ways_and_what_is_no_day_is_none(board):
    meant = {
        "12": "2026-12-12",
        "30": "2026-11-30",
        "26 nov": "2026-11-26",  # today
        "25 nov": "2027-11-25",
        "dec 12": "2026-12-12",
        "12. December": "2026-12-12",
        "3.1.": "2027-01-03",
        "5 days": "2026-12-01",
        "3w": "2026-12-17",
        "2028-02-29": "2028-02-29",
        **dict.fromkeys(["12 foo", "12.13.", "12.0.", "31 feb", "99", "2026-02-30", "2026-13-01", "x"], ""),
    }
    found = board.evaluate(
        """async (typed) => {
          const { dayMeant } = await import(new URL("words.js", document.scripts[0].src));
          return Object.fromEntries(typed.map((one) => [one, dayMeant(one, "2026-11-26")]));
        }""",
        [*meant],
    )
    assert found == meant


def test_enter_alone_keeps_the_day_that_is_set_however_far_away_it_is(board, owner, project):
    task = owner.make_task(project, title="Far", due_date="2098-01-02")
    ui.refresh(board, "Far")
    ui.link(board, "Far").press("d")
    expect(board.get_by_role("option", selected=True)).to_contain_text("2 Jan")
    board.keyboard.press("Enter")
    expect(ui.link(board, "Far")).to_be_focused()
    expect(ui.card(board, "Far")).to_contain_text("2 Jan 2098")
    assert ui.stored(owner, task)["version"] == task["version"]


def test_several_cards_are_selected_and_changed_together_and_that_is_undone_at_once(board, owner, project):
    made = [owner.make_task(project, title=title) for title in ("Ada", "Bob", "Cyd", "Dot", "Eve")]
    owner.data(owner.patch(f"/tasks/{made[1]['id']}/details", {"priority": "high", "labels": ["old"]}))
    ui.refresh(board, "Eve")
    ui.link(board, "Ada").press("x")
    ui.link(board, "Cyd").click(modifiers=["Shift"])
    ui.link(board, "Eve").click(modifiers=["ControlOrMeta"])
    expect(announced(board)).to_have_text("4 selected")
    expect(board.get_by_role("img", name="Selected")).to_have_count(4)
    bar = board.get_by_role("toolbar", name="Selected tasks")
    expect(bar).to_contain_text("4 selected")
    ui.check_page(board)
    with board.expect_request("**/tasks/batch") as asked:
        ui.press(bar, "Priority")
        ui.find(board, "Urgent")
    expect(board.get_by_role("img", name="Urgent priority")).to_have_count(4)
    assert set(asked.value.post_data_json["versions"]) == {str(made[n]["number"]) for n in (0, 1, 2, 4)}
    ui.link(board, "Bob").press("l")
    ui.find(board, "new")
    board.keyboard.press("Escape")
    expect(ui.card(board, "Bob").locator(".label")).to_have_text(["new", "old"])
    expect(board.locator(".label")).to_have_count(5)
    wait_until(lambda: ui.stored(owner, made[4])["labels"] == ["new"])
    expect(ui.notice(board)).to_contain_text("Changed 4 tasks. Labels: new.")
    ui.press(ui.notice(board).locator(".notice", has_text="Priority: Urgent"), "Undo")
    before = ["medium", "high", "medium"]
    wait_until(lambda: [ui.stored(owner, task)["priority"] for task in made[:3]] == before)
    expect(board.get_by_role("img", name="Urgent priority")).to_have_count(0)
    expect(ui.notice(board)).to_contain_text("Undone: 4 tasks.")
    ui.press(bar, "Delete")
    expect(titles(board)).to_have_text(["Dot"])
    expect(bar).to_have_count(0)
    ui.press(ui.notice(board).locator(".notice", has_text="Deleted 4 tasks."), "Undo")
    expect(titles(board)).to_have_text(["Ada", "Bob", "Cyd", "Dot", "Eve"])
    ui.link(board, "Ada").press("x")
    ui.link(board, "Dot").press("x")
    ui.link(board, "Dot").press("Delete")
    expect(titles(board)).to_have_text(["Bob", "Cyd", "Eve"])
    expect(ui.link(board, "Eve")).to_be_focused()
    ui.press(ui.notice(board).locator(".notice", has_text="Deleted 2 tasks."), "Dismiss")
    wait_until(lambda: owner.get(f"/tasks/{made[3]['id']}").status_code == 404)
    assert owner.get(f"/tasks/{made[0]['id']}").status_code == 404
    ui.link(board, "Bob").press("x")
    board.evaluate("document.activeElement.blur()")
    board.keyboard.press("Escape")
    expect(bar).to_have_count(0)
    expect(board.get_by_role("img", name="Selected")).to_have_count(0)


def test_several_selected_cards_are_dragged_to_a_place_and_go_back_to_theirs(board, owner, project):
    made = [owner.make_task(project, title=title) for title in ("Ada", "Bob", "Cyd", "Dot", "Eve", "Fay")]
    for task in made[4:]:
        owner.data(owner.patch(f"/tasks/{task['id']}", {"status": "review"}))
    ui.refresh(board, "Fay")
    for title in ("Cyd", "Ada"):
        ui.link(board, title).press("x")
    drag(board, "Ada", "Dot", "lower")
    expect(titles(board)).to_have_text(["Bob", "Dot", "Ada", "Cyd"])
    drag(board, "Cyd", "Fay", "upper")
    review = ui.column(board, "Review").locator(".title")
    expect(review).to_have_text(["Eve", "Ada", "Cyd", "Fay"])
    ui.refresh(board)
    expect(review).to_have_text(["Eve", "Ada", "Cyd", "Fay"])
    ui.press(ui.notice(board).locator(".notice", has_text="Moved 2 tasks to Review."), "Undo")
    expect(ui.notice(board)).to_contain_text("Undone: 2 tasks.")
    expect(titles(board)).to_have_text(["Bob", "Dot", "Ada", "Cyd"])
    board.keyboard.press("Escape")
    for pair, (onto, status) in {
        ("Bob", "Dot"): ("Eve", "Review"),  # the first two: neither can be put beside the other
        ("Bob", "Ada"): ("", "In progress"),  # into an empty column, where there is no place to name
        ("Bob", "Eve"): ("Cyd", "To do"),  # the first is there already
    }.items():
        for title in pair:
            ui.link(board, title).press("x")
        if onto:
            drag(board, pair[0], onto, "upper")
        else:
            ui.card(board, pair[0]).drag_to(ui.column(board, status))
        moved = ui.column(board, status)
        for title in pair:
            expect(moved.get_by_role("link", name=title, exact=True)).to_be_visible()
        ui.press(ui.notice(board).locator(".notice", has_text=f"Moved 2 tasks to {status}.").last, "Undo")
        expect(ui.notice(board)).to_contain_text("Undone: 2 tasks.")
        ui.link(board, pair[0]).press("Escape")
        expect(titles(board)).to_have_text(["Bob", "Dot", "Ada", "Cyd"])
        expect(review).to_have_text(["Eve", "Fay"])
        ui.refresh(board)
        expect(titles(board)).to_have_text(["Bob", "Dot", "Ada", "Cyd"])


def test_without_a_keyboard_a_card_is_put_elsewhere_by_its_menu(board, owner, project):
    for title in ("Ada", "Bob", "Cyd"):
        owner.make_task(project, title=title)
    ui.refresh(board, "Cyd")
    for title, words, order in (
        ("Cyd", "Move to the top", ["Cyd", "Ada", "Bob"]),
        ("Cyd", "Move down", ["Ada", "Cyd", "Bob"]),
        ("Bob", "Move up", ["Ada", "Bob", "Cyd"]),
    ):
        ui.press(ui.card(board, title), f"More for “{title}”")
        ui.press(board, words)
        expect(titles(board)).to_have_text(order)


def test_of_several_none_is_changed_if_somebody_has_changed_one(board, owner, project, milestone):
    ada, bob = (owner.make_task(project, title=title) for title in ("Ada", "Bob"))
    ui.refresh(board, "Bob")
    ui.unseen(board)
    owner.data(owner.patch(f"/tasks/{bob['id']}", {"title": "Rob"}))
    for title in ("Ada", "Bob"):
        ui.link(board, title).press("x")
    ui.link(board, "Ada").press("s")
    ui.find(board, "Done")
    refused = f"2 tasks were not moved. Someone has moved #{bob['number']} meanwhile"
    expect(ui.notice(board)).to_contain_text(refused)
    expect(titles(board)).to_have_text(["Ada", "Bob"])
    assert ui.stored(owner, ada)["status"] == "todo"
    ui.seen(board)
    expect(titles(board)).to_have_text(["Ada", "Rob"])
    ui.link(board, "Ada").press("m")
    expect(board.get_by_role("option", name="M", exact=True)).to_be_visible()
    with ui.held(board, "**/tasks/batch"):
        ui.find(board, "M")
        owner.data(owner.delete(f"/milestones/{milestone['id']}"))
    refused = f"2 tasks were not changed. #{ada['number']}: Milestone does not exist any longer."
    expect(ui.fault(board)).to_contain_text(refused)


def test_more_cards_than_one_request_may_change_are_changed_and_put_back_together(board, owner, project):
    for number in range(101):
        owner.make_task(project, title=f"Task {number}")
    board.reload()
    expect(titles(board).nth(19)).to_be_attached()
    for shown in (70, 101):
        ui.column(board, "To do").evaluate("(column) => column.scrollTo(0, column.scrollHeight)")
        expect(titles(board)).to_have_count(shown)
    titles(board).first.press("Control+a")
    expect(board.get_by_role("toolbar")).to_contain_text("101 selected")
    titles(board).first.press("s")
    ui.find(board, "Review")
    expect(ui.notice(board)).to_contain_text("Moved 101 tasks to Review.")
    board.keyboard.press("Control+z")
    expect(ui.notice(board)).to_contain_text("Undone: 101 tasks.")
    expect(ui.column(board, "To do")).to_have_accessible_name("To do 101")
