"""Write images/board.png, the page with a demonstration; `make screenshot` runs it beside a server."""

import os

from board import enter
from harness import CHROMIUM, ROOT
from playwright.sync_api import sync_playwright

SIZE = {"width": 1240, "height": 560}

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM)
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(f"{os.environ['TASKS_URL']}/")
    enter(page, os.environ["TASKS_KEY"])
    page.locator(".card").nth(12).wait_for()
    page.mouse.move(0, 0)
    (ROOT / "images").mkdir(exist_ok=True)
    page.screenshot(path=ROOT / "images" / "board.png")
    browser.close()
