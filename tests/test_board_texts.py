"""Texts on the page: ticked checkboxes, links to tasks, and the task's own pictures."""

import re
from base64 import b64decode

import board as ui
import pytest
from harness import wait_until
from playwright.sync_api import expect
from test_attachments import attach
from test_board_task import PICTURE

PIXEL = b64decode(PICTURE)
TWO = "Two:\n\n- [ ] mine\n  1. [ ] hers\n\n```\n- [ ] code\n```\n"


@pytest.mark.long
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


@pytest.mark.long
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
