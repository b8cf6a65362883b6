"""The page on which the API can be tried, in a browser that reaches nothing but this server."""

import requests
from harness import OWNER_KEY, PATIENCE


def test_all_is_on_the_page_in_the_documents_order_and_can_be_tried(browse, server, owner):
    spec = requests.get(f"{server.base}/api/v1/openapi.json", timeout=PATIENCE).json()
    page, elsewhere = browse(), []
    page.route(
        lambda url: not url.startswith((server.base, "data:")),
        lambda route: (elsewhere.append(route.request.url), route.abort()),
    )
    page.goto(f"{server.base}/api/v1/docs/")
    page.locator(".opblock").first.wait_for()
    operations = sum(len(methods) for methods in spec["paths"].values())
    assert page.locator(".opblock").count() == operations + len(spec["webhooks"])
    shown = page.locator(".opblock-tag-section > .opblock-tag").all_inner_texts()
    assert [text.split()[0] for text in shown][: len(spec["tags"])] == [tag["name"] for tag in spec["tags"]]
    assert spec["tags"][0]["description"] in shown[0]

    page.locator(".scheme-container").get_by_role("button", name="Authorize").first.click()
    dialog = page.locator(".dialog-ux")  # a search of the whole page takes half a second
    dialog.get_by_label("auth-bearer-value").first.fill(OWNER_KEY)
    dialog.get_by_role("button", name="Apply credentials").first.click()
    dialog.get_by_role("button", name="Close").first.click()
    block = page.locator("#operations-members-get_me")
    block.get_by_role("button").first.click()
    block.get_by_role("button", name="Try it out").click()
    block.get_by_role("button", name="Execute").click()
    answer = block.locator(".live-responses-table .highlight-code").first
    answer.wait_for()
    assert owner.read("/me")["member"]["email"] in answer.inner_text()
    assert elsewhere == []


def test_the_pages_files_are_served_from_here_and_no_others_and_nobody_may_frame_it(server):
    for name, kind in (("swagger-ui.css", "text/css"), ("swagger-ui-bundle.js", "javascript")):
        answer = requests.get(f"{server.base}/api/v1/docs/{name}", timeout=PATIENCE)
        assert answer.status_code == 200
        assert kind in answer.headers["Content-Type"]
        assert "max-age" in answer.headers["Cache-Control"]
    for name in ("index.html", "..%2Fapp.py", "../app.py", "%2Fetc%2Fpasswd", "swagger-ui.css.map"):
        assert requests.get(f"{server.base}/api/v1/docs/{name}", timeout=PATIENCE).status_code in (401, 404)
    headers = requests.get(f"{server.base}/api/v1/docs", timeout=PATIENCE).headers
    assert headers["X-Frame-Options"] == "DENY"
    for policy in ("frame-ancestors 'none'", "script-src 'self' 'nonce-"):
        assert policy in headers["Content-Security-Policy"]
