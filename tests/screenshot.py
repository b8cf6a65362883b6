"""Write the images of README.md, the page with a demonstration; `make screenshot` runs it beside a server."""

import os

from harness import CHROMIUM, ROOT
from playwright.sync_api import sync_playwright

SIZE = {"width": 1280, "height": 720}

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM)
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.request.post(f"{os.environ['TASKS_URL']}/api/v1/session", data={"api_key": os.environ["TASKS_KEY"]})
    (ROOT / "images").mkdir(exist_ok=True)
    for name, path, last in (("today", "/", ".entry >> nth=6"), ("board", "/#", ".card >> nth=12")):
        page.goto(f"{os.environ['TASKS_URL']}{path}")
        page.locator(last).wait_for()
        page.mouse.move(0, 0)
        page.screenshot(path=ROOT / "images" / f"{name}.png")
    browser.close()
