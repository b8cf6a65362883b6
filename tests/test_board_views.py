"""The page's views: your own tasks, Find, the week's report, history, plans, and the calendar."""

import re
from contextlib import ExitStack
from functools import partial
from itertools import cycle

import board as ui
import pytest
from harness import add_copies, wait_until
from playwright.sync_api import expect
from test_page import day, own


def test_of_many_own_tasks_those_due_first_are_loaded_and_others_on_request(
    sign_in, ana, server, owner, project
):
    mine = {"assignee_id": ana.member["id"]}
    add_copies(server, owner.make_task(project, title="Undated", **mine), 99)
    owner.make_task(project, title="Due first", due_date="2020-01-01", **mine)
    page = sign_in(ana.key, "#view=mine")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_response("**/changes?*"):
        page.reload()
    expect(own(page)).to_have_count(20)
    expect(own(page).first).to_have_text("Due first")
    assert not [url for url in asked if "status=todo" in url]  # the board is loaded when it is shown
    ui.press(page, "Show more")
    expect(own(page)).to_have_count(101)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    ui.view(page, "Board")
    expect(ui.card(page, "Due first")).to_be_visible()


MONTH = "#view=month&day=2020-01-15"


def test_another_person_s_change_costs_at_most_three_requests(sign_in, ana, server, owner, project):
    mine = {"assignee_id": ana.member["id"], "due_date": "2020-01-01"}
    first = owner.make_task(project, title="On top", **mine)
    # Copies count as no changes: the page waits for a change only if the last ten seconds had few.
    add_copies(server, owner.make_task(project, title="Further down"), 48)
    *_, below, last = owner.read("/tasks", project_id=project["id"], sort="rank", limit=50)["tasks"]
    of_project, title = f"#project={project['id']}", first["title"]
    priorities, statuses = cycle(["high", "low"]), cycle(["review", "todo"])
    page, asked = sign_in(ana.key), []
    with page.expect_request("**/changes?*wait=*"):
        page.reload()
    page.on("request", lambda request: asked.append(request.url))
    for address in ("#view=today", "#view=mine", MONTH, "#view=board", of_project):
        ui.show(page, address)
        expect(ui.link(page, title)).to_be_visible()
        expect(page.locator("main [aria-busy=true]")).to_have_count(0)
        title = f"Renamed in {address}"
        new = {"priority": next(priorities)}, {"status": next(statuses)}, {"title": title}
        for task, fields in zip((below, last, first), new, strict=True):
            asked.clear()
            owner.data(owner.patch(f"/tasks/{task['id']}/details", fields))
            wait_until(lambda: page.evaluate("0") or (asked and "wait=" in asked[-1]))  # for the next change
            is_hidden = task == below and address != "#view=board"  # it lists the latest change first
            assert len(asked) <= (2 if is_hidden else 3)
            lists = [url for url in asked if "/tasks?" in url]
            assert len(lists) == (task == first and address in ("#view=mine", MONTH))
        expect(ui.link(page, title)).to_be_visible()
    expect(ui.column(page, "To do")).to_have_accessible_name("To do 49")
    expect(ui.column(page, "Review")).to_have_accessible_name("Review 1")


def test_what_somebody_elses_change_does_not_concern_is_not_loaded_again(sign_in, ana, owner, project, task):
    path, of_project = f"/tasks/{task['id']}", f"/projects/{project['id']}"
    page, asked = sign_in(ana.key), []
    page.on("request", lambda request: asked.append(request.url.partition("?")[0]))
    for address, end, change, again in (
        (f"#task={task['number']}", "/comments", partial(owner.patch, path, {"status": "review"}), 0),
        (
            f"#view=project&project={project['id']}",
            of_project,
            partial(owner.patch, path, {"status": "todo"}),
            1,
        ),
        ("#view=week", "/tasks", partial(owner.post, f"{path}/comments", {"content": "x"}), 0),
    ):
        with page.expect_response(lambda answer, end=end: answer.url.partition("?")[0].endswith(end)):
            ui.show(page, address)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        asked.clear()
        assert change().ok
        ui.refresh(page)
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
        assert [url.endswith(end) for url in asked].count(True) == again, address


def test_a_late_answer_to_an_earlier_question_replaces_no_report_and_no_activity(
    sign_in, join, owner, project
):
    lea = join(full_name="Lea Late")
    other = owner.make_project(name="Other")
    page = sign_in(address="#view=week")
    with ui.held(page, re.compile(project["id"])):
        for shown in (project, other):
            ui.show(page, f"#view=week&project={shown['id']}")
        expect(page.get_by_role("heading", name=re.compile("^Other, week of "))).to_be_visible()
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(page.get_by_role("heading", name=re.compile("^Other, week of "))).to_be_visible()
    ui.show(page, "#view=activity")
    made = page.get_by_role("listitem").filter(has_text="created Other")
    expect(made).to_be_visible()
    with ui.held(page, re.compile(f"actor_id={lea.member['id']}")):
        ui.pick(page, "Person", "Lea Late")
        ui.pick(page, "Person", "Everybody")
        expect(made).to_be_visible()
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(made).to_be_visible()


def test_what_was_done_long_ago_is_shown_on_demand(board, owner, server, project):
    for title in ("Long ago", "Lately"):
        task = owner.make_task(project, title=title)
        owner.data(owner.post(f"/tasks/{task['id']}/complete"))
    server.rows("UPDATE task SET completed_at = '2020-01-01T00:00:00.000Z' WHERE title = 'Long ago'")
    board.reload()
    expect(ui.column(board, "Done")).to_have_accessible_name("Done 1")
    ui.press(ui.column(board, "Done"), "Show earlier")
    expect(ui.card(board, "Long ago")).to_be_visible()
    expect(ui.column(board, "Done").get_by_role("button", name="Show earlier")).to_have_count(0)


def test_a_milestone_is_closed_and_what_is_open_moves_to_another_one(sign_in, owner, project):
    path = f"/projects/{project['id']}/milestones"
    due = {"due_date": "2020-01-01"}
    alpha, beta = (owner.make(path, due | {"title": title}) for title in ("Alpha", "Beta"))
    task = owner.make_task(project, title="Open", milestone_id=alpha["id"])
    page = sign_in(address="#view=project")  # of no project: an error, and no empty page
    expect(page.locator("#title")).to_be_visible()
    ui.show(page, f"#view=project&project={project['id']}")
    ui.press(page, "Close: Alpha")
    expect(page.get_by_role("heading", name="Closed")).to_be_visible()
    expect(ui.row(page, "Beta").locator(".late")).to_have_count(1)
    expect(ui.row(page, "Alpha").locator(".late")).to_have_count(0)
    ui.choice(page, "Move what is open").click()
    page.get_by_role("option", name="Beta").click()
    expect(ui.row(page, "Beta")).to_contain_text("0 of 1 task done")
    assert ui.stored(owner, task)["milestone_id"] == beta["id"]
    expect(ui.choice(page, "Move what is open")).to_have_count(0)
    ui.view(page, "Board")
    ui.choice(page, "Milestone").click()
    expect(page.get_by_role("option")).to_have_text(["Any milestone", "Beta"])
    page.keyboard.press("Escape")
    ui.show(page, f"view=project&project={project['id']}")
    ui.press(page, "Open again: Alpha")
    expect(page.get_by_role("heading", name="Closed")).to_have_count(0)


def test_the_activity_says_what_comments_say_also_one_that_comes_meanwhile(sign_in, ana, owner, project):
    task = owner.make_task(project, title="Commented")
    path = f"/tasks/{task['id']}/comments"
    gone = owner.make(path, {"content": "A slip"})
    owner.data(owner.delete(f"{path}/{gone['id']}"))
    first = owner.make(path, {"content": "Ask the printer"})
    page = sign_in(ana.key, "#view=activity")
    entries = page.get_by_role("listitem").filter(has_text="Commented")
    expect(entries).to_contain_text(["Ask the printer", "deleted a comment on", "commented on", "created"])
    owner.data(owner.patch(f"{path}/{first['id']}", {"content": "Ask the *other* printer"}))
    ui.refresh(page)
    expect(entries.first).to_contain_text("Ask the *other* printer")
    expect(entries.nth(2)).not_to_contain_text("slip")


# The calendar


@pytest.fixture
def week(sign_in, ana):
    """The week of a Wednesday that is the 15th, so that the days around it are in the same month."""
    return lambda: sign_in(ana.key, "#view=month&by=week&day=2031-01-15")


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
    with ui.held(page, re.compile("due_since=2031-01-13")):  # this week, which is loaded after the change
        page.keyboard.press("Shift+ArrowDown")  # to the next week, which is not shown
        expect(ui.link(page, "Walk")).to_have_count(0)
        wait_until(lambda: page.evaluate("0") or ui.stored(owner, task)["due_date"].startswith("2031-01-23"))
        day(page, "2031-01-19").locator(".quiet").focus()
        page.keyboard.press("ArrowRight")
        expect(day(page, "2031-01-20").locator(".quiet")).to_be_focused()
        expect(ui.link(page, "Walk")).to_be_visible()
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(ui.link(page, "Walk")).to_be_visible()
    page.keyboard.press("PageUp")
    expect(day(page, "2031-01-13").locator(".quiet")).to_be_focused()
    page.keyboard.press("PageDown")
    expect(day(page, "2031-01-20").locator(".quiet")).to_be_focused()
    ui.link(page, "Walk").press("Enter")
    expect(page.get_by_role("dialog", name="Walk")).to_be_visible()


def test_a_second_move_stays_when_the_list_after_the_first_comes_late(week, ana, owner, project):
    mine = {"assignee_id": ana.member["id"]}
    task = owner.make_task(project, title="Walk", due_date="2031-01-15", **mine)
    page = week()
    ui.link(page, "Walk").focus()
    with ExitStack() as lists:
        lists.enter_context(ui.held(page, re.compile("due_since=2031-01-13")))
        page.keyboard.press("Shift+ArrowRight")
        expect(ui.notice(page)).to_contain_text("Due date")
        with ui.held(page, "**/details"):
            page.keyboard.press("Shift+ArrowRight")
            expect(day(page, "2031-01-17")).to_contain_text("Walk")
            lists.close()
            page.evaluate("new Promise(requestAnimationFrame)")
            expect(day(page, "2031-01-17")).to_contain_text("Walk")
    wait_until(lambda: page.evaluate("0") or ui.stored(owner, task)["due_date"].startswith("2031-01-17"))


def test_an_arrow_leads_into_the_calendar_and_home_to_today_even_from_today(sign_in, ana):
    page = sign_in(ana.key, "#view=mine")
    ui.view(page, "Calendar")
    expect(page.locator("[data-day] .quiet").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-day] .quiet").first).to_be_focused()
    for _ in range(2):
        page.keyboard.press("Home")
        expect(page.locator("[data-day] [aria-current=date]")).to_be_focused()


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
