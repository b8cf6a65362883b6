"""The calendar of the page."""

import re
from datetime import UTC, datetime, timedelta

import board as ui
import pytest
from harness import wait_until
from playwright.sync_api import expect


def in_days(days):
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def day(page, date):
    return page.locator(f"[data-day='{date}']")


@pytest.fixture
def ana(join):
    return join(full_name="Ana Anders")


@pytest.fixture
def week(sign_in, ana):
    """The week of a Wednesday that is the 15th, so that the days around it are in the same month."""
    return lambda: sign_in(ana.key, "#view=month&by=week&day=2031-01-15")


def test_a_month_shows_your_tasks_completed_ones_last_and_your_meetings(sign_in, ana, owner, project):
    mine = {"assignee_id": ana.member["id"]}
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
    ui.check_page(page)
    ui.pick(page, "Project", project["name"])
    expect(day(page, "2031-01-02")).to_contain_text("Not mine")
    ui.press(page, "Later")
    expect(page.get_by_role("heading", level=2)).to_have_text("February 2031")
    expect(day(page, "2031-02-03")).to_contain_text("After")
    ui.press(page, "Today")
    expect(day(page, in_days(0)).locator("[aria-current=date]")).to_have_text("Today")


def test_keys_go_through_the_days_and_move_a_task_to_another(week, ana, owner, project):
    mine = {"assignee_id": ana.member["id"]}
    task = owner.make_task(project, title="Walk", due_date="2031-01-15", **mine)
    page = week()
    expect(day(page, "2031-01-15").locator(".quiet")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(ui.link(page, "Walk")).to_be_focused()
    page.keyboard.press("Shift+ArrowRight")
    expect(day(page, "2031-01-16")).to_contain_text("Walk")
    expect(ui.link(page, "Walk")).to_be_focused()
    expect(ui.notice(page)).to_contain_text("Due date")
    assert ui.stored(owner, task)["due_date"].startswith("2031-01-16")
    page.keyboard.press("Shift+ArrowDown")  # to the next week, which is not shown
    expect(ui.link(page, "Walk")).to_have_count(0)
    wait_until(lambda: page.evaluate("0") or ui.stored(owner, task)["due_date"].startswith("2031-01-23"))
    day(page, "2031-01-19").locator(".quiet").focus()
    page.keyboard.press("ArrowRight")
    expect(day(page, "2031-01-20").locator(".quiet")).to_be_focused()
    expect(ui.link(page, "Walk")).to_be_visible()
    page.keyboard.press("PageUp")
    expect(day(page, "2031-01-13").locator(".quiet")).to_be_focused()
    page.keyboard.press("PageDown")
    expect(day(page, "2031-01-20").locator(".quiet")).to_be_focused()
    ui.link(page, "Walk").press("Enter")
    expect(page.get_by_role("dialog", name="Walk")).to_be_visible()


def test_a_task_is_dragged_to_another_day_or_stays_if_the_server_refuses(week, ana, owner, project):
    mine = {"assignee_id": ana.member["id"], "start_date": "2031-01-14", "due_date": "2031-01-15"}
    task = owner.make_task(project, title="Walk", **mine)
    page = week()
    page.locator("[data-task]").drag_to(day(page, "2031-01-17"))
    expect(day(page, "2031-01-17")).to_contain_text("Walk")
    wait_until(lambda: page.evaluate("0") or ui.stored(owner, task)["due_date"].startswith("2031-01-17"))
    expect(ui.notice(page)).to_contain_text("Due date")
    page.keyboard.press("Control+z")
    expect(day(page, "2031-01-15")).to_contain_text("Walk")
    page.locator("[data-task]").drag_to(day(page, "2031-01-13"))
    expect(ui.fault(page)).to_contain_text("was not changed")
    expect(day(page, "2031-01-15")).to_contain_text("Walk")


def test_a_task_is_added_on_a_day(week, ana, owner, project):
    page = week()
    day(page, "2031-01-16").get_by_role("button", name=re.compile("^New task: ")).click()
    form = page.get_by_role("dialog", name="New task")
    form.get_by_label("Title").fill("Swim")
    ui.press(form, "Create task")
    expect(day(page, "2031-01-16")).to_contain_text("Swim")
