"""The page behind an enrollment link, as a browser gets it and as a person sees it."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import requests
from board import check_page, me
from harness import PATIENCE
from test_members import invite, token_of

NAME = 'Ana "<b>Lima</b>" & Co'


@pytest.fixture(scope="module")
def server(launch_module):
    return launch_module(TASKS_WORKSPACE__NAME="Rocket & Söhne", TASKS_WORKSPACE__TIMEZONE="Asia/Tokyo")


@pytest.fixture
def invitation(owner):
    """A fresh one; inviting again kills the link of the test before."""
    known = owner.get("/members").text.count("@page.example")
    return invite(owner, f"ana-{known}@page.example", full_name=NAME)


@pytest.fixture
def link(server, invitation):
    return f"{server.base}/enroll/{token_of(invitation)}"


def check_headers(answer, referrer="no-referrer"):
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", referrer)
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert (policy["default-src"], policy["frame-ancestors"]) == ("'none'", "'none'")
    assert "unsafe" not in str(policy)
    nonce = re.search("'nonce-([^']+)'", policy["script-src"])[1]
    for tag in re.findall(r"<(?:script|style)[^>]*>", answer.text):
        assert f'nonce="{nonce}"' in tag
    assert not re.search(r'(?:src|href)="(?!/|data:)', answer.text)  # nothing from elsewhere


def test_the_page_names_workspace_invitee_and_role_and_uses_nothing_up(link, owner, invitation):
    for _ in range(3):
        answer = requests.get(link, timeout=PATIENCE)
        assert answer.status_code == 200
        check_headers(answer, "same-origin")  # so that the form has its origin
    assert "Rocket &amp; Söhne" in answer.text
    assert "Ana &#34;&lt;b&gt;Lima&lt;/b&gt;&#34; &amp; Co" in answer.text
    assert "<b>" not in answer.text
    assert "<dd>Member</dd>" in answer.text
    ends = datetime.fromisoformat(invitation["expires_at"]).astimezone(ZoneInfo("Asia/Tokyo"))
    assert f">{ends:%Y-%m-%d %H:%M} (Asia/Tokyo)</time>".replace(" 23:59 (Asia/Tokyo)", "") in answer.text
    assert requests.head(link, timeout=PATIENCE).status_code == 200
    assert owner.read(f"/members/{invitation['member']['id']}")["status"] == "invited"


def test_a_link_that_is_no_good_says_why(server, owner):
    invited = [invite(owner, f"{why}@page.example") for why in ("used", "revoked", "expired", "mistyped")]
    used, revoked, expired, mistyped = (f"{server.base}/enroll/{token_of(one)}" for one in invited)
    requests.post(used, data={"a": "b"}, timeout=PATIENCE, allow_redirects=False)
    owner.delete(f"/members/{invited[1]['member']['id']}/invitation")
    expire = "UPDATE invitation SET expires_at = created_at WHERE member_id = ?"
    server.rows(expire, invited[2]["member"]["id"])
    for link, status, said in (
        (used, 410, "This link has already been used."),
        (revoked, 410, "This link has been revoked."),
        (expired, 410, "This link has expired."),
        (mistyped[:-1] + ("a" if mistyped[-1] != "a" else "b"), 404, "No such invitation."),
    ):
        for method in ("GET", "POST"):
            answer = requests.request(method, link, timeout=PATIENCE)
            assert (answer.status_code, said in answer.text) == (status, True), said
            check_headers(answer)
            assert not re.search("<button|tms_", answer.text)


# In a browser


def test_joining_with_the_keyboard_and_without_javascript(browse, link, server, owner, invitation):
    page = browse(java_script_enabled=False)
    page.goto(f"{link}?utm_source=mail&x=1")  # as some programs of mail do
    assert page.title() == "Join – Rocket & Söhne"
    assert page.get_by_role("heading", level=1).inner_text() == "Rocket & Söhne invites you"
    assert page.get_by_text(NAME, exact=True).is_visible()
    button = page.get_by_role("button", name="Join Rocket & Söhne")
    page.keyboard.press("Tab")
    assert button.evaluate("element => element === document.activeElement")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{server.base}/*")
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("tasks_session_8000", True, "Strict")
    assert owner.read(f"/members/{invitation['member']['id']}")["status"] == "active"
    page.goto(link)
    assert "has already been used" in page.get_by_role("alert").inner_text()


def test_the_pages_are_accessible_and_a_session_may_call_the_api(browse, link, server, owner, invitation):
    page = browse(own=True, refusals=True)
    page.goto(link)
    check_page(page)
    page.get_by_role("button").click()
    page.wait_for_url(f"{server.base}/*")
    again = owner.make(f"/members/{invitation['member']['id']}/invitation")
    page.goto(f"{server.base}/enroll/{token_of(again)}")
    check_page(page)
    assert page.title() == "Sign in – Rocket & Söhne"
    page.get_by_role("button", name="Sign in to Rocket & Söhne").click()
    page.wait_for_url(f"{server.base}/*")
    caller = me(page)
    assert (caller["member"]["full_name"], caller["key"]["is_session"]) == (NAME, True)
    page.goto(link)
    check_page(page)
