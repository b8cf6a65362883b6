"""The page at / on phones and tablets: the bar of views, the sheet, and dragging by touch."""

import re

import board as ui
import pytest
from harness import wait_until
from playwright.sync_api import expect


@pytest.fixture
def phone(sign_in, owner, project):
    """Open the board of a project with a few tasks on a phone, or a screen of another size."""

    def open_page(width=375, height=812):
        for title in ("Walk", "Swim"):
            owner.make_task(project, title=title)
        size = {"width": width, "height": height}
        return sign_in(address=f"#project={project['id']}", viewport=size, has_touch=True)

    return open_page


class Finger:
    """A finger on the screen of a page."""

    def __init__(self, page):
        self.page, self.network = page, page.context.new_cdp_session(page)

    def send(self, kind, *point):
        points = [{"x": point[0], "y": point[1]}] if point else []
        self.network.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def press(self, place):
        """Hold the finger on an element until it can be dragged."""
        box = place.bounding_box()
        self.send("touchStart", box["x"] + 40, box["y"] + 12)
        expect(self.page.locator(".ghost")).to_be_visible()


def middle(place):
    box = place.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_views_are_in_a_bar_that_covers_nothing_and_all_else_is_in_a_sheet(phone):
    page = phone(320, 640)
    bar, add = page.get_by_role("navigation", name="Views"), page.get_by_role("button", name="New task")
    sheet = page.get_by_role("complementary", name="Projects")
    for width in (320, 375, 768):
        page.set_viewport_size({"width": width, "height": 640})
        assert ui.card(page, "Walk").bounding_box()["y"] < 180
        top = bar.bounding_box()["y"]
        view = page.locator("main").bounding_box()
        assert 560 < view["y"] + view["height"] <= top
        for name in ("Today", "My tasks", "Board", "Inbox"):
            expect(bar.get_by_role("link", name=re.compile(f"^{name}"))).to_be_in_viewport(ratio=0.99)
        expect(add).to_be_in_viewport(ratio=0.99)
        assert add.bounding_box()["y"] > top
        expect(sheet).not_to_be_visible()
        ui.press(bar, "More")
        expect(sheet.get_by_role("link", name="Calendar")).to_be_in_viewport(ratio=0.99)
        page.keyboard.press("Escape")
    ui.press(bar, "More")
    ui.check_page(page)
    page.set_viewport_size({"width": 375, "height": 640})
    sheet.get_by_role("link", name=re.compile("^All projects")).click()
    expect(sheet).not_to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("All projects")
    ui.press(page, "Projects")
    sheet.get_by_role("button", name="Find").click()
    ui.find(page, "Calendar")
    expect(page.get_by_role("heading", level=1)).to_have_text("Calendar")
    expect(bar.get_by_role("button", name="More")).to_have_attribute("aria-current", "true")


def test_a_card_is_dragged_by_a_long_press_and_opened_by_a_short_one(phone, owner):
    page = phone(768, 1024)
    finger = Finger(page)
    finger.press(ui.card(page, "Walk"))
    finger.send("touchMove", *middle(ui.column(page, "Review")))
    expect(ui.column(page, "Review")).to_have_class(re.compile("over"))
    finger.send("touchEnd")
    expect(ui.card(page, "Walk", "Review")).to_be_visible()
    expect(page.locator(".ghost")).to_have_count(0)
    expect(ui.notice(page)).to_contain_text("Moved “Walk” to Review.")
    expect(page.get_by_role("dialog")).to_have_count(0)
    ui.card(page, "Walk", "Review").tap()
    expect(page.get_by_role("dialog", name="Walk")).to_be_visible()


def test_on_a_phone_the_board_scrolls_at_its_edge_while_a_card_is_dragged(phone):
    page = phone()
    finger = Finger(page)
    finger.press(ui.card(page, "Walk"))
    finger.send("touchMove", 370, 300)
    left = "(board) => board.scrollWidth - board.clientWidth - board.scrollLeft"
    wait_until(lambda: page.locator("#board").evaluate(left) < 1)  # where it goes no further
    finger.send("touchMove", 187, 300)
    expect(ui.column(page, "Done")).to_have_class(re.compile("over"))
    finger.send("touchEnd")
    expect(ui.card(page, "Walk", "Done")).to_be_attached()


def test_a_finger_that_moves_at_once_scrolls_and_a_second_one_ends_a_drag(phone):
    page = phone(768, 1024)
    finger = Finger(page)
    x, y = middle(ui.card(page, "Walk"))
    finger.send("touchStart", x, y)
    finger.send("touchMove", x, y + 40)
    finger.send("touchEnd")
    finger.press(ui.card(page, "Walk"))
    finger.send("touchMove", *middle(ui.column(page, "Review")))
    finger.send("touchCancel")
    expect(page.locator(".ghost")).to_have_count(0)
    expect(ui.card(page, "Walk", "To do")).to_be_visible()
    expect(page.locator(".over")).to_have_count(0)


def test_a_month_on_a_tablet_has_room_for_two_lines_of_a_title(phone, owner, project):
    owner.make_task(project, title="Write the press release for the launch", due_date="2031-11-26")
    page = phone(768, 1024)
    ui.show(page, f"view=month&project={project['id']}&day=2031-11-26")
    task = page.locator(".day [data-task]")
    expect(task).to_be_visible()
    heights = page.locator(".day > .line").evaluate_all("lines => lines.map((line) => line.offsetHeight)")
    assert len(heights) == 35
    assert max(heights) == min(heights) < 48  # what adds a task is beside each date
    assert 36 <= task.bounding_box()["height"] < 42
