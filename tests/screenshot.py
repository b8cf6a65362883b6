"""Write images/board.png, the page with a demonstration; `make screenshot` runs it beside a server."""

import os

from harness import CHROMIUM, ROOT
from playwright.sync_api import sync_playwright

SIZE = {"width": 1280, "height": 720}

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM)
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.request.post(f"{os.environ['TASKS_URL']}/api/v1/session", data={"api_key": os.environ["TASKS_KEY"]})
    page.goto(f"{os.environ['TASKS_URL']}/#")  # the board, where a member would begin with their own tasks
    page.locator(".card").nth(12).wait_for()
    page.mouse.move(0, 0)
    (ROOT / "images").mkdir(exist_ok=True)
    page.screenshot(path=ROOT / "images" / "board.png")
    browser.close()
