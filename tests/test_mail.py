"""Mail: links that join, sign in and confirm an address, and digests, by a real SMTP server."""

import itertools
import os
import re
import signal
import sqlite3
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.header import decode_header, make_header
from functools import partial

import pytest
import requests
from board import pick
from harness import OWNER_KEY, PATIENCE, ROOT, at_once, fault, hook, invoke, wait_until
from mailboxes import Mailbox, token_in
from playwright.sync_api import expect
from receivers import certificates
from test_inbox import comment, of
from test_members import invite, join_with, removed, token_of
from test_metrics import figures
from test_session import browser, cookie_of, sign_in, submit

from database import db
from members import ApiKey, Member
from models import Project, Task, write
from parts.inbox import REASONS, Notice
from parts.mail import SAYINGS
from parts.sessions import Sessions
from times import first_id, now

QUICK = {"BOUND_QUIET_SECONDS": "0", "BOUND_AGAIN_SECONDS": "0.1", "TASKS_SERVER__TRUSTED_PROXIES": "1"}
QUICK |= {"TASKS_MAIL__FROM": "tasks@example.org", "TASKS_WORKSPACE__NAME": "Tea"}
QUICK |= {"TASKS_DELIVERY__RETRY_SCHEDULE": "[0.05]"}  # and so a beat of the sweeper
numbers = itertools.count(1)


@pytest.fixture
def mailbox():
    """Make mailboxes. A test names this before `launch`: what is made first is closed last."""
    with ExitStack() as boxes:
        yield lambda **options: boxes.enter_context(closing(Mailbox(**options)))


@pytest.fixture(scope="module")
def shared_box():
    with closing(Mailbox(enable_SMTPUTF8=True)) as box:
        yield box


@pytest.fixture(scope="module")
def mailing(shared_box, launch_module):
    return launch_module(**QUICK, TASKS_MAIL__URL=shared_box.url)


@pytest.fixture
def box(shared_box):
    """The mailbox, in which nothing is left of an earlier test."""
    while not shared_box.mails.empty():
        shared_box.mails.get()
    return shared_box


@pytest.fixture
def olga(mailing):
    return mailing.client()


def member_of(server, box, role="member", full_name="Ana Lima"):
    """A member with a key, who joined by the mailed link."""
    email = f"ana-{next(numbers)}@example.com"
    invite(server.client(), email, role=role, full_name=full_name)
    return server.client(join_with(server, token_in(box.next(email))).json()["data"]["api_key"])


@pytest.fixture
def ana(mailing, box):
    return member_of(mailing, box)


def ask(server, email, client=None):
    client = client or f"10.0.0.{next(numbers)}"
    return server.client(None).post("/session/link", {"email": email}, headers={"X-Forwarded-For": client})


def row(server, client):
    return server.rows("SELECT * FROM member WHERE id = ?", of(client))[0]


def test_an_invitation_is_shown_and_mailed_and_both_links_are_one(mailing, box, olga):
    invitation = invite(olga, "ben@example.com", full_name="Ben Lee")
    mail = box.next("ben@example.com")
    assert mail["From"].addresses[0].addr_spec == "tasks@example.org"
    assert mail["To"].addresses[0] == mail["To"].addresses[0].__class__("Ben Lee", "ben", "example.com")
    assert (mail["Subject"], mail.get_content_type()) == ("Olga Owner invites you to Tea", "text/plain")
    assert token_in(mail) != token_of(invitation)
    assert join_with(mailing, token_in(mail)).status_code == 201
    for token in (token_of(invitation), token_in(mail)):
        fault(join_with(mailing, token), 410, "gone")
    assert not [row for row in mailing.rows("SELECT * FROM invitation") if token_in(mail) in str(row)]


def test_correcting_an_invited_address_mails_a_new_link(mailing, box, olga):
    invited = invite(olga, "bem@example.com", full_name="Ben Lee")["member"]
    wrong = token_in(box.next("bem@example.com"))
    changed = olga.data(olga.patch(f"/members/{invited['id']}", {"email": "ben-corrected@example.com"}))
    corrected = token_in(box.next("ben-corrected@example.com"))
    fault(join_with(mailing, wrong), 410, "gone")
    olga.data(olga.patch(f"/members/{invited['id']}", {"full_name": "Ben B. Lee"}))  # ends no link
    assert join_with(mailing, corrected).status_code == 201
    fault(join_with(mailing, token_of(changed)), 410, "gone")
    assert box.count("bem@example.com") == 1  # the invitation: the address is a stranger's


def test_links_of_an_admin_are_mailed_end_the_one_before_and_are_not_limited(mailing, box, olga, ana):
    tokens = []
    for _ in range(3):
        olga.make(f"/members/{of(ana)}/invitation")
        tokens.append(token_in(box.next(ana.member["email"])))
    fault(join_with(mailing, tokens[0]), 410, "gone")
    for _ in range(3):  # beside the link of the admin
        ask(mailing, ana.member["email"])
        tokens.append(token_in(box.next(ana.member["email"])))
    assert [submit(mailing, token).status_code for token in (tokens[2], tokens[-1])] == [303, 303]


def test_a_mailed_sign_in_link_works_once_by_its_button_and_for_15_minutes(mailing, box, ana):
    assert ask(mailing, f" {ana.member['email'].upper()} ").status_code == 202
    mail = box.next(ana.member["email"])
    token, page = token_in(mail), f"{mailing.base}/enroll/{token_in(mail)}"
    assert mail["Subject"] == "Sign in to Tea"
    for look in (requests.get, requests.head, requests.get, requests.options):  # as scanners of mail do
        look(page, timeout=PATIENCE)
    answer = submit(mailing, token)
    assert answer.status_code == 303
    assert ana.data(browser(mailing, cookie_of(answer))("GET", "/me"))["member"]["id"] == of(ana)
    used = submit(mailing, token)
    assert (used.status_code, '<a href="/">' in used.text) == (410, True)
    ask(mailing, ana.member["email"])
    late = token_in(box.next(ana.member["email"]))
    (link,) = mailing.rows("SELECT expires_at FROM invitation ORDER BY id DESC LIMIT 1")
    left = datetime.fromisoformat(link["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=14) < left <= timedelta(minutes=15)
    mailing.rows("UPDATE invitation SET expires_at = created_at")
    assert submit(mailing, late).status_code == 410


def test_asking_for_a_link_reveals_no_membership(mailing, box, olga, ana):
    gone, invited = member_of(mailing, box), "only-invited@example.com"
    invite(olga, invited)
    box.next(invited)
    olga.data(removed(olga, gone.member))
    others = [ask(mailing, email) for email in ("stranger@example.com", invited, gone.member["email"])]
    known = ask(mailing, ana.member["email"])
    for other in others:
        assert other.status_code == known.status_code == 202
        assert other.json()["data"].keys() == known.json()["data"].keys() == {"email"}
        assert other.headers.keys() == known.headers.keys()
    box.next(ana.member["email"])
    assert [box.count(email) for email in ("stranger@example.com", invited)] == [0, 1]
    assert box.count(gone.member["email"]) == 1  # the invitation
    wait_until(lambda: not mailing.rows("SELECT * FROM invitation WHERE mail_at IS NOT NULL"))


def test_a_member_gets_three_links_an_hour_and_a_client_asks_for_twenty(mailing, box, ana):
    bea = member_of(mailing, box)
    at_once(*[partial(ask, mailing, ana.member["email"])] * 6)
    links = "SELECT 1 FROM invitation WHERE member_id = ? AND created_by = member_id"
    for _ in range(4):  # each is asked after the last one
        ask(mailing, ana.member["email"])
    ask(mailing, bea.member["email"])
    wait_until(lambda: all(mailing.rows(links, of(one)) for one in (ana, bea)))
    assert len(mailing.rows(links, of(ana))) <= 3
    assert [ask(mailing, "x@example.com", "10.9.9.9").status_code for _ in range(20)] == [202] * 20
    error = ask(mailing, "x@example.com", "10.9.9.9")
    assert int(error.headers["Retry-After"]) > 3000
    fault(error, 429, "rate_limited")


def test_a_stranger_who_asks_for_links_leaves_a_member_one_and_the_change_of_address(mailing, box, ana):
    mails = []
    for _ in range(3):
        ask(mailing, ana.member["email"])
        mails.append(box.next(ana.member["email"]))
    assert join_with(mailing, token_in(mails[0])).status_code == 201
    ask(mailing, ana.member["email"])
    assert token_in(box.next(ana.member["email"])) not in map(token_in, mails)
    new = f"other-{ana.member['email']}"
    ana.data(ana.patch(f"/members/{of(ana)}", {"email": new}))
    assert token_in(box.next(new))


def test_names_and_titles_add_no_header_and_no_recipient(mailing, box, olga):
    evil = "Eve\u2028Bcc: victim@example.com\x85, <victim@example.com> =?utf-8?q?=0ABcc?="
    body = {"email": "e@example.com", "full_name": evil, "role": "member"}
    fault(olga.post("/members/invite", body), 422, "validation_error", "full_name")
    evil = evil.replace("\x85", "\u2029")
    eve = member_of(mailing, box, full_name=evil)
    olga.make_task(olga.make_project(), title=evil, assignee_id=of(eve))
    told = box.next(eve.member["email"])
    for mail in [mail for mail in box.seen if mail.recipients == [eve.member["email"]]]:
        assert mail["Bcc"] is None
        assert [address.addr_spec for address in mail["To"].addresses] == [eve.member["email"]]
    assert "Bcc: victim@example.com" in told["Subject"]
    odd = "=?utf-8?q?=0abcc=3a_victim=40example.com?=@example.com"
    invite(olga, odd)
    assert f"\r\nTo: Ana Lima <{odd}>\r\n".encode() in box.next().raw  # as it is; aiosmtpd decodes it
    assert box.count("victim@example.com") == 0


def test_a_digest_has_what_is_unread_and_no_token(mailing, box, olga, ana):
    task = olga.make_task(olga.make_project(), title="Café", assignee_id=of(ana))
    mail = box.next(ana.member["email"])
    assert mail["Subject"] == f"Olga Owner assigned you #{task['number']} Café"
    assert mail["List-Unsubscribe"] == "<http://127.0.0.1:8000/#view=account>"
    assert mail["Auto-Submitted"] == "auto-generated"
    text = mail.get_content().replace("\r\n", "\n")
    assert f"http://127.0.0.1:8000/#task={task['number']}\n" in text
    assert "enroll" not in text
    assert "Nobody reads replies" in text
    # The next one is 15 minutes later.
    comment(olga, task, "Read\nthis")
    comment(olga, task, "and this")
    wait_until(lambda: row(mailing, ana)["mailed_until"] > task["id"])
    first = row(mailing, ana)["mailed_until"]
    next_at = datetime.fromisoformat(row(mailing, ana)["mail_at"]) - datetime.now(UTC)
    assert timedelta(minutes=14) < next_at <= timedelta(minutes=15)
    read = olga.make_task(olga.make_project(), title="Read", assignee_id=of(ana))
    ana.data(ana.patch(f"/tasks/{read['id']}", {"status": "review"}))
    olga.make_task(olga.make_project(), title="More", assignee_id=of(ana))
    mailing.rows("UPDATE member SET mail_at = ''")
    second = box.next(ana.member["email"])
    assert second["Subject"] == "2 notifications from Tea"
    assert f"Olga Owner commented on #{task['number']} Café" in second.get_content()
    assert "and this" in second.get_content()
    assert second["Message-ID"] != mail["Message-ID"]
    wait_until(lambda: row(mailing, ana)["mailed_until"] > first)
    mailing.rows("UPDATE member SET mail_at = ''")
    ask(mailing, ana.member["email"])
    assert box.next(ana.member["email"])["Subject"] == "Sign in to Tea"  # and nothing before


LONG = 'Größe prüfen für Müller und Söhne über die Straße, a"b; ' * 3  # several encoded words


def decoded(mail, name):
    """A header as RFC 2047 reads it: what is between encoded words is no blank."""
    return str(make_header(decode_header(message_from_bytes(mail.raw)[name])))


def test_a_mail_is_one_that_a_mail_server_of_1995_takes(mailbox, launch):
    box, name = mailbox(is_old=True), LONG.strip()
    settings = QUICK | {"TASKS_MAIL__FROM": "tasks@grüße.example", "TASKS_WORKSPACE__NAME": name}
    server = launch(**settings, TASKS_MAIL__URL=box.url, TASKS_WORKSPACE__TIMEZONE="Europe/Berlin")
    olga, to = server.client(), "ana@xn--bcher-kva.example"
    invitation = invite(olga, to, full_name=name)
    assert invitation["member"]["email"] == "ana@bücher.example"
    mail = box.next(to)
    assert mail["From"].addresses[0].addr_spec == "tasks@xn--gre-6ka8l.example"
    assert decoded(mail, "From") == f"{name} <tasks@xn--gre-6ka8l.example>"
    assert decoded(mail, "To") == f"{name} <{to}>"
    assert decoded(mail, "Subject") == mail["Subject"] == f"Olga Owner invites you to {name}"
    assert mail["X-Auto-Response-Suppress"] == "All"
    assert {session.session.host_name for session in box.sessions} == {"xn--gre-6ka8l.example"}
    assert re.search(r"until 20..-..-.. ..:.. \(Europe/Berlin\)\.", mail.get_content())
    join_with(server, token_in(mail))
    for title in (LONG.strip(), "x" * 400):  # a word without blanks is encoded by no one
        task = olga.make_task(olga.make_project(), title=title, assignee_id=invitation["member"]["id"])
        mail = box.next(to)
        assert decoded(mail, "Subject") == f"Olga Owner assigned you #{task['number']} {title}"
        wait_until(lambda: server.rows("SELECT 1 FROM member WHERE mailed_until > ?", task["id"]))  # noqa: B023
        server.rows("UPDATE member SET mail_at = ''")
    assert mail["Content-Transfer-Encoding"] in ("7bit", "quoted-printable", "base64")


def test_an_international_name_before_the_at_needs_a_server_that_takes_it(mailbox, launch):
    box, able = mailbox(is_old=True), mailbox(enable_SMTPUTF8=True)
    server = launch(**QUICK, TASKS_MAIL__URL=box.url)
    olga, address = server.client(), "jörg@bücher.example"
    invited = invite(olga, address, full_name=LONG.strip())["member"]
    wait_until(lambda: server.rows("SELECT 1 FROM member WHERE mail_error IS NOT NULL"))
    (link,) = server.rows("SELECT * FROM invitation")
    assert link["mail_at"] is None  # it is not tried again
    olga.make_task(olga.make_project(), assignee_id=of(member_of(server, box)))
    assert server.log.read_text().count("SMTPUTF8") == 1
    result = invoke(server, "doctor")
    assert f"mail to {address}: " in result.output
    assert "it accepts only ASCII before the @" in result.output
    # An address of the same kind, from which mail comes, is found before the first mail.
    assert "only ASCII before the @" in invoke(server, "doctor", TASKS_MAIL__FROM="jö@example.com").output
    again = launch(folder=server.folder, **QUICK, TASKS_MAIL__URL=able.url) if not server.stop() else None
    again.client().make(f"/members/{invited['id']}/invitation")
    mail = able.next("jörg@xn--bcher-kva.example")
    assert decoded(mail, "Subject") == "Olga Owner invites you to Tea"
    assert "<jörg@xn--bcher-kva.example>\r\n".encode() in mail.raw


def test_active_readers_removed_members_and_mail_never_get_no_digest(mailing, box, olga):
    here, never, daily, gone = (member_of(mailing, box) for _ in range(4))
    for client, wish in ((never, "never"), (daily, "daily")):
        client.data(client.patch(f"/members/{of(client)}", {"mail": wish}))
    cookie = cookie_of(sign_in(mailing, here.key))
    mailing.rows("UPDATE member SET mail_at = '9'")  # as if all had just got one
    tasks = [olga.make_task(olga.make_project(), assignee_id=of(one)) for one in (here, never, daily, gone)]
    browser(mailing, cookie)("GET", "/inbox")
    olga.data(removed(olga, gone.member))
    used = "SELECT 1 FROM api_key WHERE is_session AND last_used_at > ?"
    wait_until(lambda: mailing.rows(used, tasks[-1]["created_at"]))
    mailing.rows("UPDATE member SET mail_at = ''")
    box.next(daily.member["email"])
    wait_until(lambda: row(mailing, daily)["mailed_until"] > tasks[2]["id"])
    next_at = datetime.fromisoformat(row(mailing, daily)["mail_at"]) - datetime.now(UTC)
    assert timedelta(hours=23) < next_at < timedelta(hours=25)
    assert [box.count(one.member["email"]) for one in (here, never, gone)] == [1] * 3  # the invitations


def test_an_admin_changes_an_address_at_once_and_the_old_one_s_links_end(mailing, box, olga, ana):
    path, email = f"/members/{of(ana)}", f"new-{next(numbers)}@example.com"
    admin = member_of(mailing, box, "admin")
    ask(mailing, ana.member["email"])
    old = token_in(box.next(ana.member["email"]))
    assert admin.data(admin.patch(path, {"email": email.upper()}))["email"] == email
    assert box.next(ana.member["email"])["Subject"] == "Your address in Tea"
    assert submit(mailing, old).status_code == 410
    fault(admin.patch(path, {"email": admin.member["email"]}), 422, "validation_error", "email")
    fault(admin.patch(path, {"email": "no address"}), 422, "validation_error", "email")
    fault(admin.patch(f"/members/{of(olga)}", {"email": email}), 403, "forbidden")
    fault(member_of(mailing, box).patch(path, {"email": "x@example.com"}), 403, "forbidden")
    expiring = {"name": "k", "expires_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    key = admin.make("/keys", expiring)["api_key"]
    fault(mailing.client(key).patch(path, {"email": "x@example.com"}), 403, "forbidden")


def test_your_own_address_changes_by_a_link_to_the_new_one(mailing, box, olga, ana):
    path, email = f"/members/{of(ana)}", f"new-{next(numbers)}@example.com"
    assert ana.data(ana.patch(path, {"email": email}))["email"] == ana.member["email"]
    mail = box.next(email)
    assert mail["Subject"] == "Your address in Tea"
    assert email in requests.get(f"{mailing.base}/enroll/{token_in(mail)}", timeout=PATIENCE).text
    assert ana.read(path)["email"] == ana.member["email"]  # looking changes nothing
    assert submit(mailing, token_in(mail)).status_code == 303
    assert ana.read(path)["email"] == email
    told = box.next(ana.member["email"])  # the old address
    assert told["Subject"] == "Your address in Tea"
    assert f"Ana Lima changed your address in Tea to {email}.\r\n" in told.get_content()
    assert "enroll" not in told.get_content()
    other = f"taken-{next(numbers)}@example.com"
    ana.data(ana.patch(path, {"email": other}))
    token = token_in(box.next(other))
    invite(olga, other)
    assert submit(mailing, token).status_code == 422
    assert ana.read(path)["email"] == email
    mailing.rows("UPDATE invitation SET used_at = NULL")
    for number in range(3):
        last = ana.patch(path, {"email": f"flood-{number}@example.com"})
    fault(last, 409, "conflict")


def test_an_owner_s_own_change_of_address_counts_at_once_and_is_mailed_to_the_old_one(box, olga):
    own = f"new-{next(numbers)}@example.com"
    for email in (own, "owner@example.com"):
        olga.data(olga.patch(f"/members/{of(olga)}", {"email": email}))
    for old in ("owner@example.com", own):
        assert box.next(old)["Subject"] == "Your address in Tea"


def test_a_command_s_invitation_is_mailed_and_an_agent_gets_no_mail_and_each_reason_has_words(mailing, box):
    page = (ROOT / "static" / "inbox.js").read_text()
    assert SAYINGS.keys() == set(REASONS)
    assert [reason for reason in REASONS if f"  {reason}: " not in page] == []
    invoke(mailing, "member", "invite", "cli@example.com", "Cli")
    assert join_with(mailing, token_in(box.next("cli@example.com"))).status_code == 201
    assert invoke(mailing, "member", "add", "Bot", "--agent", "--email", "bot@example.com").exit_code == 0
    assert mailing.rows("SELECT mail FROM member WHERE email = 'bot@example.com'") == [{"mail": "never"}]


def test_without_mail_nothing_is_asked_for(server, join):
    member = join()
    fault(server.client(None).post("/session/link", {"email": "a@example.com"}), 409, "conflict")
    fault(member.patch(f"/members/{of(member)}", {"email": "b@example.com"}), 403, "forbidden")
    assert server.rows("SELECT * FROM invitation WHERE mail_at IS NOT NULL") == []


def test_a_server_that_refuses_is_tried_again_and_told(mailbox, launch):
    box = mailbox()
    server = launch(**QUICK, TASKS_MAIL__URL=box.url)
    olga = server.client()
    refusal = "550 no http://x/enroll/abcdef here"
    box.answers[:] = ["451 later", refusal]
    invitation = invite(olga, "ben@example.com")
    wait_until(lambda: len(box.seen) == 2)
    told = lambda: olga.read("/health")["checks"]["mail"]  # noqa: E731
    assert join_with(server, token_in(box.next())).status_code == 201
    for refused in box.seen[:2]:  # what a refused mail had is worth nothing
        fault(join_with(server, token_in(refused)), 404, "not_found")
    wait_until(lambda: told() == {"is_sent": True, "unreached": 0})
    box.answers[:] = [refusal] * 1000
    invite(olga, "carl@example.com")
    wait_until(lambda: told()["unreached"] == 1)
    result = invoke(server, "doctor")
    assert result.exit_code == 1
    assert "mail to carl@example.com: " in result.output
    assert "answered 550 no http://x/enroll/… here" in result.output
    said = figures(server)
    assert said["members_unreached",] == said["mail_attempts_total", "sent"] == 1
    assert "/enroll/abc" not in server.log.read_text()
    assert invitation["member"]["email"] not in server.log.read_text()


def test_a_server_that_hangs_holds_up_nothing(mailbox, launch, receiver, new_receiver):
    line = new_receiver().line  # which accepts connections, and says nothing
    line.listen()
    url = f"smtp://127.0.0.1:{line.getsockname()[1]}"
    settings = {"TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "0", "TASKS_DELIVERY__TIMEOUT_SECONDS": "2"}
    server = launch(**QUICK, **settings, TASKS_MAIL__URL=url, hooks=[hook(receiver)])
    olga = server.client()
    invite(olga, "ben@example.com")
    connection, _ = line.accept()  # the sweeper waits there
    task = olga.make_task(olga.make_project())
    olga.data(olga.post(f"/tasks/{task['id']}/claim", {"minutes": 1}))
    server.rows("UPDATE task SET claimed_until = '2026'")
    events = []
    while not events or events[-1] != ("task.updated", "todo"):
        event = receiver.next().event
        events.append((event["event"], event["data"].get("task", {}).get("status")))
    wait_until(lambda: olga.read("/health")["checks"]["mail"]["unreached"] == 1)
    (told,) = server.rows("SELECT mail_error FROM member WHERE status = 'invited'")
    assert "timed out" in told["mail_error"]
    connection.close()


def test_a_digest_that_a_crash_interrupts_is_sent_once_more_and_no_oftener(mailbox, launch):
    box = mailbox()
    server = launch(**QUICK, TASKS_MAIL__URL=box.url)
    olga, ana = server.client(), member_of(server, box)
    held = Mailbox.handle_DATA

    async def crash(self, *arguments):
        os.kill(*server.children(), signal.SIGSTOP)  # before it can store that the mail was taken
        return await held(self, *arguments)

    box.handle_DATA = crash.__get__(box)
    olga.make_task(olga.make_project(), assignee_id=of(ana))
    first = box.next()
    server.kill()
    del box.handle_DATA
    again = launch(folder=server.folder, **QUICK, TASKS_MAIL__URL=box.url)
    assert box.next()["Message-ID"] == first["Message-ID"]
    wait_until(lambda: row(again, ana)["mailed_until"] > of(ana))
    ask(again, ana.member["email"])
    assert box.next()["Subject"].startswith("Sign in")  # and no third one


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_the_connection_is_private_the_certificate_checked_no_password_in_clear(mailbox, launch, tls, scheme):
    authority, contexts = tls
    context = contexts["right"]
    options = {"tls_context": context, "require_starttls": True, "auth_required": True}
    if scheme == "smtps":
        options = {"at_once_tls": context, "auth_require_tls": False}
    box = mailbox(**options)
    settings = QUICK | {"TASKS_MAIL__URL": box.url, "TASKS_MAIL__USER": "tea", "TASKS_MAIL__PASSWORD": "$TEA"}
    server = launch(**settings, TEA="s3cret", TASKS_DELIVERY__CA_FILE=str(authority))
    invite(server.client(), "ben@example.com")
    assert box.next().recipients == ["ben@example.com"]
    assert box.credentials == [(b"tea", b"s3cret")]
    result = invoke(server, "doctor")
    assert result.exit_code == 0, result.output
    wrong = invoke(server, "doctor", TEA="wr0ng")
    assert "answered 535" in wrong.output
    assert "wr0ng" not in wrong.output
    del server.environment["TASKS_DELIVERY__CA_FILE"]
    assert "certificate verify failed" in invoke(server, "doctor").output
    plain = mailbox(auth_require_tls=False)
    assert "it offers no TLS" in invoke(server, "doctor", TASKS_MAIL__URL=plain.url, TEA="s3cret").output
    assert plain.credentials == []


def test_the_page_shows_the_new_link_of_an_invited_person_whose_address_is_corrected(sign_in, server):
    owner, wrong, right = server.client(), "wrong-one@example.com", "right-one@example.com"
    invitation = invite(owner, wrong, full_name="Zoe Wrong")
    page = sign_in(address="#view=people")
    page.get_by_role("button", name="Edit: Zoe Wrong").click()
    page.get_by_role("dialog").get_by_label("E-mail").fill(right)
    page.get_by_role("button", name="Save changes").click()
    dialog = page.get_by_role("dialog", name="Invitation for Zoe Wrong")
    shown = dialog.get_by_label("Invitation for Zoe Wrong").input_value()
    fault(join_with(server, token_of(invitation)), 410, "gone")
    assert join_with(server, shown.rpartition("/")[2]).status_code == 201
    member = owner.patch(f"/members/{invitation['member']['id']}", {"email": wrong})
    assert "enrollment_link" not in owner.data(member)  # who has joined keeps their keys


def test_notices_that_were_seen_are_not_read_again_by_the_sweeper(database):
    made = [now(index - 400) for index in range(300)]
    with write() as transaction:
        owner = transaction.actor = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        project = Project.add(transaction, name="P")["id"]
        _, key = Sessions.start(transaction, "a browser")
        Member.set_columns(owner["id"], mailed_until="")
        row = {"member_id": owner["id"], "reason": "due", "excerpt": ""}
        for at in made:
            task = Task.add(transaction, project_id=project, title="T")["id"]
            Notice.insert_row.run(id=first_id(at), task_id=task, created_at=at, **row)

    def notified(seen_at):
        with write():
            ApiKey.update(last_used_at=seen_at).execute()
        steps = []
        connection = sqlite3.connect(db.database)
        with closing(connection):
            connection.execute("SELECT id FROM notice LIMIT 1").fetchall()  # the schema takes steps, too
            connection.set_progress_handler(lambda: steps.append(1), 100)
            found = connection.execute(Notice.to_notify.sql, {"now": now(), "until": now()})
            return bool(found.fetchall()), len(steps)

    assert ApiKey.caller(key, "session")
    assert notified(made[-1])[0] is False
    is_new, steps = notified(made[-2])
    assert is_new
    assert steps < 10
    assert notified("")[0]  # who never used a browser has seen nothing


def test_the_page_mails_invitations_and_links_and_one_s_account_says_when_mail_comes(browse, mailing, box):
    page = browse(refusals=True, own=True)
    page.request.post(f"{mailing.base}/api/v1/session", data={"api_key": OWNER_KEY})
    page.goto(f"{mailing.base}/#view=people")
    page.get_by_role("button", name="Invite").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Ben Lee")
    page.get_by_role("dialog").get_by_label("E-mail").fill("by-page@example.com")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("It is mailed to by-page@example.com")).to_be_visible()
    box.next("by-page@example.com")
    ana = member_of(mailing, box)
    page.context.clear_cookies()
    page.goto(f"{mailing.base}/")
    page.get_by_label("E-mail").fill(ana.member["email"])
    page.get_by_role("button", name="Email me a sign-in link").click()
    expect(page.locator(".entrance").get_by_role("status")).to_contain_text("is on its way")
    page.goto(f"{mailing.base}/enroll/{token_in(box.next(ana.member['email']))}")
    page.get_by_role("button", name="Sign in to Tea").click()
    expect(page.locator("#title")).to_be_visible()
    page.goto(f"{mailing.base}/#view=account")
    pick(page, "E-mail digest", "Once a day")
    page.get_by_role("textbox", name="E-mail").fill("new-ana@example.com")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("Open the link that was mailed to new-ana@example.com.")).to_be_visible()
    assert row(mailing, ana)["mail"] == "daily"
    page.goto(f"{mailing.base}/enroll/{token_in(box.next('new-ana@example.com'))}")
    page.get_by_role("button", name="Use this address").click()
    expect(page.locator("#title")).to_be_visible()
    assert row(mailing, ana)["email"] == "new-ana@example.com"
