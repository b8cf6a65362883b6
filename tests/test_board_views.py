"""The page's views: your own tasks, Find, the week's report, history, plans, and the calendar."""

import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle

import board as ui
import pytest
from harness import add_copies, wait_until
from playwright.sync_api import expect
from test_keys import make_key


@pytest.fixture
def ana(join):
    return join(full_name="Ana Anders")


def own(page):
    return page.locator("main .title")


def test_ones_own_tasks_are_ordered_and_completed(sign_in, ana, owner, project):
    mine = {"assignee_id": ana.member["id"]}
    late = owner.make_task(project, title="Late", due_date="2020-01-01", **mine)
    far = owner.make_task(project, title="Far", due_date="2099-01-01", **mine)
    for title in ("First", "Second", "Third"):
        owner.make_task(project, title=title, **mine)
    page = sign_in(ana.key, "#view=mine")
    expect(page.get_by_role("heading", level=1)).to_have_text("My tasks")
    expect(page.get_by_role("heading", level=2)).to_have_text(["Overdue 1", "Later 1", "No date 3"])
    ui.check_page(page)
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


# From outside of the browser, a busy machine may take longer for a letter than the page waits for the next.
TYPE = """async (input, words) => {
    for (const letter of words) {
        input.value += letter;
        input.dispatchEvent(new Event("input", { bubbles: true }));
        await new Promise((next) => setTimeout(next));  // a frame is later on a busy machine
    }
}"""


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
    ui.check_page(board)
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
    expect(report).to_contain_text(re.compile(r"Ana Anders: 1\s*#\d+ Now \*done\*\s*In progress"))
    expect(report).to_contain_text("Beta: 0 of 0 tasks done, due 1 Dec 2099")
    ui.check_page(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ui.press(page, "Copy as Markdown")
    expect(ui.notice(page)).to_contain_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert re.search(r"## Done\n\n\* \*\*Ana Anders\*\*: 1\n  \* #\d+ Now \\\*done\\\*\n", copied)
    ui.pick(page, "Week", "Last week")
    expect(report).to_contain_text("1 done, 1 new")
    report.get_by_role("link").first.click()
    expect(page.get_by_role("dialog", name="Before")).to_be_visible()


@pytest.mark.long
def test_a_late_answer_to_an_earlier_question_replaces_no_report_and_no_activity(
    sign_in, ana, owner, project
):
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
    with ui.held(page, re.compile(f"actor_id={ana.member['id']}")):
        ui.pick(page, "Person", "Ana Anders")
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


def test_a_deleted_task_is_restored_where_it_is_missed(sign_in, owner, project):
    title = f"Gone in {project['id']}"
    task = owner.make_task(project, title=title)
    page = sign_in(address=f"#project={project['id']}")
    ui.link(page, title).press("Delete")
    ui.notice(page).get_by_role("link", name="Recently deleted").click()  # so the deletion is sent
    gone = ui.row(page, title)
    expect(gone).to_contain_text(re.compile(f"#{task['number']} .*by Olga Owner"))
    ui.check_page(page)
    ui.press(page, "You: Olga Owner")
    expect(page.get_by_role("link", name="Recently deleted")).to_be_visible()
    page.keyboard.press("Escape")
    ui.show(page, f"#task={task['number']}")
    page.locator("#notices").get_by_role("alert").get_by_role("link", name="Recently deleted").click()
    gone.get_by_role("button", name=re.compile("^Restore")).click()
    expect(gone).to_have_count(0)
    ui.show(page, f"#project={project['id']}")
    expect(ui.card(page, title)).to_be_visible()


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
    ui.check_page(page)
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
    ui.check_page(page)
    ui.press(dialog, "Undo")
    expect(ui.notice(page)).to_contain_text("Done: 1 task goes back")
    assert ui.stored(owner, task)["title"] == "As it was"
    ui.show(page, "#view=activity")
    expect(page.get_by_text("undid changes of")).to_be_visible()


# The calendar


def in_days(days):
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def day(page, date):
    return page.locator(f"[data-day='{date}']")


@pytest.fixture
def week(sign_in, ana):
    """The week of a Wednesday that is the 15th, so that the days around it are in the same month."""
    return lambda: sign_in(ana.key, "#view=month&by=week&day=2031-01-15")


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


@pytest.mark.long
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
