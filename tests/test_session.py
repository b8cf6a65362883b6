"""Sessions of browsers: their cookie, the calls in which it counts, and the links that start them."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from harness import OWNER_KEY, at_once, fault, last_event
from test_keys import days, make_key
from test_members import demoted, invite, join_with, removed, token_of, with_key

from members import SESSION_DAYS, ApiKey, Member
from models import write
from parts.sessions import Sessions, browser_name
from times import now

NEEDS_SOCKET = False

LINUX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
OURS = {"Sec-Fetch-Site": "same-origin"}  # as a browser says of a page's call to its own address
ROUTE = '[plugins.entries.webhooks.config.routes.r]\nsessionKey = "agent:main"\nsecret = "s3cret"\n'


def sign_in(server, key=OWNER_KEY, **headers):
    return server.client(None).post("/session", {"api_key": key}, headers={"User-Agent": LINUX} | headers)


def cookie_of(answer):
    return answer.headers["Set-Cookie"].partition(";")[0]


def browser(server, cookie, headers=OURS):
    """A function that makes calls as a page would, in a browser that keeps the cookie."""
    return partial(server.client(None).request, headers={"Cookie": cookie} | headers)


def link_of(maker, member):
    return maker.make(f"/members/{member['id']}/invitation")


def submit(server, token, **headers):
    """Press the button of the link's page."""
    headers = {"User-Agent": LINUX, "Origin": server.base, **headers}
    return server.call("POST", f"/enroll/{token}", headers=headers)


@pytest.fixture(scope="module")
def secure(launch_here_module):
    """A server behind a proxy that speaks TLS, with a route of the gateway."""
    return launch_here_module(config=ROUTE, TASKS_SERVER__BASE_URL="https://tasks.example.com/team")


def test_a_session_is_a_listed_key_of_its_own_until_it_is_ended(server, join):
    member = join()
    answer = sign_in(server, member.key)
    shown = member.data(answer, 201)
    key, cookie = shown["key"], cookie_of(answer)
    assert shown["member"] == member.member
    assert (key["name"], key["scope"], key["is_session"]) == ("Firefox on Linux", "write", True)
    assert not re.search(r"tms_[\w-]{30}", answer.text)
    left = datetime.fromisoformat(key["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29.99) < left < timedelta(days=30.01)
    ask = browser(server, cookie)
    assert member.data(ask("GET", "/me"))["key"] | {"last_used_at": None} == key
    assert key["id"] in member.get("/keys").text
    ended = ask("DELETE", "/session")
    assert member.data(ended) == {"id": key["id"], "revoked": True}
    assert ended.headers["Set-Cookie"].startswith("tasks_session_8000=; Max-Age=0; ")
    for call in ("GET /me", "DELETE /session"):
        assert "sign in again" in fault(ask(*call.split()), 401, "unauthorized")["message"]
    assert member.get("/me").status_code == 200
    # One that is revoked like a key ends too, and so does each with the key that started it.
    made = make_key(member)
    revoked, started, other = (sign_in(server, key) for key in (member.key, made["api_key"], member.key))
    for id in (member.data(revoked, 201)["key"]["id"], made["key"]["id"]):
        member.data(member.delete(f"/keys/{id}"))
    cookies = [cookie_of(one) for one in (revoked, started, other)]
    assert [browser(server, cookie)("GET", "/me").status_code for cookie in cookies] == [401, 401, 200]


def test_the_cookie_is_named_after_the_port_and_kept_from_scripts_sites_and_plain_http(server, secure):
    for place, port, more, path in ((server, 8000, "", "/"), (secure, 443, " Secure;", "/team")):
        pattern = rf"tasks_session_{port}=tms_[\w-]{{43}}; Max-Age=2592000;{more} HttpOnly; Path={path}; "
        pattern += "SameSite=Strict"
        assert re.fullmatch(pattern, sign_in(place).headers["Set-Cookie"])


def test_a_wrong_key_starts_no_session_no_answer_is_stored_and_a_session_is_named_after_its_browser(server):
    for agent, name in {
        "(Macintosh; Intel Mac OS X 10_15_7) Chrome/140.0 Safari/537.36 Edg/140.0": "Edge on macOS",
        "(Linux; Android 15) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36": "Chrome on Android",
        "(iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Safari/604.1": "Safari on iPhone",
        "(iPad; CPU OS 18_0 like Mac OS X) FxiOS/140.0 Safari/604.1": "Firefox on iPad",
        "curl/8.5.0": "Browser",
    }.items():
        assert browser_name(agent) == name
    for key in ("tms_wrong", "x" * 255, "é"):
        answer = sign_in(server, key)
        fault(answer, 401, "unauthorized")
        assert "Set-Cookie" not in answer.headers
    fault(sign_in(server, **{"Idempotency-Key": "1"}), 422, "validation_error", "Idempotency-Key")


AJAX = {"X-Requested-With": "x"}
OTHERS = ["null", "http://127.0.0.1", "http://127.0.0.1:1", "https://127.0.0.1:8000", "http://evil.example"]


def test_the_cookie_counts_for_calls_of_our_own_pages_alone(server, session):
    for method, headers, counts in (
        ("POST", OURS, True),
        ("GET", OURS | {"Sec-Fetch-Mode": "navigate"}, True),
        ("GET", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, True),
        ("POST", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, False),
        ("GET", {"Sec-Fetch-Site": "none"}, False),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False),
        ("POST", {"Sec-Fetch-Site": "same-site", "Origin": "{base}"} | AJAX, False),
        ("POST", {"Sec-Fetch-Site": "", "Origin": "{base}"} | AJAX, False),
        ("POST", {"Origin": "{base}"}, True),
        ("POST", {"Origin": "http://127.0.0.1:8000"}, True),  # the origin of base_url
        ("GET", AJAX, True),
        ("GET", {}, False),
        ("POST", {}, False),
        *(("POST", {"Origin": origin} | AJAX, False) for origin in OTHERS),
        ("POST", {"Origin": "http://evil.example", "X-Forwarded-Host": "evil.example"} | AJAX, False),
    ):
        headers = {name: text.format(base=server.base) for name, text in headers.items()}
        body = {"name": "x"} if method == "POST" else None
        answer = browser(server, session, headers)(method, "/keys", json=body)
        assert answer.ok if counts else fault(answer, 401, "unauthorized"), headers


@pytest.fixture(scope="module")
def session(server):
    return cookie_of(sign_in(server))


def test_a_key_in_the_header_goes_before_the_cookie(server, session, join):
    member = join()
    good, wrong = ({"Authorization": f"Bearer {key}"} | OURS for key in (member.key, "tms_wrong"))
    fault(browser(server, session, wrong)("GET", "/me"), 401, "unauthorized")
    fault(browser(server, session, wrong)("DELETE", "/session"), 401, "unauthorized")
    for cookie in (session, "tasks_session_8000=tms_wrong"):
        ask = browser(server, cookie, good)
        assert member.data(ask("GET", "/me"))["member"] == member.member
        fault(ask("DELETE", "/session"), 409, "conflict")
    assert browser(server, session)("GET", "/me").status_code == 200


def test_the_cookie_counts_neither_for_what_is_public_nor_for_agents_and_automation(server, session, secure):
    headers = {"Cookie": cookie_of(sign_in(secure))} | OURS
    for path, body in (("/mcp", {"method": "ping"}), ("/plugins/webhooks/r", {})):
        refused = secure.call("POST", path, json=body, headers=headers)
        assert refused.status_code == 401
    for cookie in (session, "tasks_session_8000=tms_wrong", "tasks_session_8000", 'tasks_session_8000="\xff'):
        ask = browser(server, cookie)
        assert ask("GET", "/health").json()["data"] == {"status": "ok"}
        for path in ("/openapi.json", "/docs"):
            assert ask("GET", path, envelope=False).status_code == 200
        fault(ask("GET", "/enroll/x"), 404, "not_found")


def test_a_session_may_do_what_its_key_may_and_lives_no_longer(server, owner):
    brief = make_key(owner, expires_at=days(2))
    answer = sign_in(server, brief["api_key"])
    key, ask = owner.data(answer, 201)["key"], browser(server, cookie_of(answer))
    assert (key["expires_at"], key["is_session"]) == (brief["key"]["expires_at"], False)
    fault(ask("POST", "/keys", json={"name": "x"}), 422, "validation_error", "expires_at")
    ask = browser(server, cookie_of(sign_in(server)))
    assert owner.data(ask("POST", "/keys", json={"name": "x"}), 201)["key"]["expires_at"] is None
    for scope in ("agent", "read"):
        ask = browser(server, cookie_of(sign_in(server, make_key(owner, scope=scope)["api_key"])))
        assert owner.data(ask("GET", "/me"))["key"]["scope"] == scope
        assert "scope" in fault(ask("POST", "/keys", json={"name": "x"}), 403, "forbidden")["message"]
        assert ask("DELETE", "/session").status_code == 200


def test_a_key_of_one_kind_counts_nowhere_else(server, session):
    """A session's in its cookie alone, a program's in the header, and a calendar's in its path."""
    value, ask = session.partition("=")[2], browser(server, session)
    calendar = ask("POST", "/calendar").json()["data"]["url"].rpartition("/")[2].removesuffix(".ics")
    for stolen in (value, calendar):
        client = server.client(stolen)
        for answer in (client.get("/me"), client.get("/health"), client.post("/keys", {"name": "x"})):
            fault(answer, 401, "unauthorized")
        fault(sign_in(server, stolen), 401, "unauthorized")
        headers = {"Authorization": f"Bearer {stolen}"}
        for method, path in (("GET", "/metrics"), ("POST", "/mcp")):
            answer = server.call(method, path, json={}, headers=headers)
            assert answer.status_code == 401
    for key in (value, OWNER_KEY):
        assert server.call("GET", f"/calendar/{key}.ics").status_code == 404
    for key in (OWNER_KEY, calendar):
        fault(browser(server, f"tasks_session_8000={key}")("GET", "/me"), 401, "unauthorized")


def grown_old(server, cookie):
    """Let the cookie's session have begun more than 15 minutes ago; returns its id."""
    id = browser(server, cookie)("GET", "/me").json()["data"]["key"]["id"]
    server.rows("UPDATE api_key SET created_at = ?, signed_in_at = NULL WHERE id = ?", days(-901 / 86400), id)
    return id


def test_an_old_session_makes_no_key_and_no_link_that_signs_in(server, owner, join):
    admin, member = join("admin"), join()
    cookie = cookie_of(sign_in(server, admin.key))
    ask, others = browser(server, cookie), f"/members/{member.member['id']}/invitation"
    calls = [("/keys", {"name": "x"}), ("/keys", {"name": "x", "member_id": member.member["id"]})]
    calls += [("/calendar", None), (f"/members/{admin.member['id']}/invitation", None), (others, None)]
    addresses = [f"/members/{one.member['id']}" for one in (admin, member)]
    assert [ask("POST", path, json=body).status_code for path, body in calls] == [201] * 5
    linked = server.rows("SELECT id FROM api_key WHERE scope = 'calendar' AND revoked_at IS NULL")
    grown_old(server, cookie)
    for path, body in calls:
        said = fault(ask("POST", path, json=body), 403, "forbidden")["message"]
        assert said.startswith("you signed in more than 15 minutes ago; to make a key or link or change")
    for path in addresses:
        fault(ask("PATCH", path, json={"email": "thief@example.com"}), 403, "forbidden")
        assert ask("PATCH", path, json={"phone_number": "1"}).status_code == 200
    assert server.rows("SELECT id FROM api_key WHERE scope = 'calendar' AND revoked_at IS NULL") == linked
    guest = {"email": "guest-of-old@example.com", "full_name": "G", "role": "member"}
    invited = admin.data(ask("POST", "/members/invite", json=guest), 201)["member"]
    assert ask("POST", f"/members/{invited['id']}/invitation").status_code == 201
    assert admin.post(*calls[0]).status_code == 201  # a program's key is as good as on its first day
    assert browser(server, cookie_of(sign_in(server, admin.key)))("POST", "/calendar").status_code == 201
    # A role or a member that is gone goes first.
    assert demoted(owner, admin.member).status_code == 200
    assert "your role" not in fault(ask("POST", *calls[0][:1], json=calls[0][1]), 403, "forbidden")["message"]
    fault(ask("POST", others), 403, "forbidden")
    assert removed(owner, admin.member).status_code == 200
    fault(ask("POST", "/calendar"), 401, "unauthorized")


def things_made(server, join):
    """An admin, a session of theirs, its id, and what says of each thing that was made in it if it works.

    Made are a key, by that another one, by this a session; a link to sign in, which is used, and in that
    session a key; a calendar and an invitation.
    """
    admin, member = join("admin"), join()
    cookie = cookie_of(sign_in(server, admin.key))
    ask = browser(server, cookie)
    keys = [admin.data(ask("POST", "/keys", json={"name": "made"}), 201)["api_key"]]
    keys.append(make_key(server.client(keys[0]))["api_key"])
    link = admin.data(ask("POST", f"/members/{member.member['id']}/invitation"), 201)
    cookies = [cookie_of(sign_in(server, keys[1])), cookie_of(submit(server, token_of(link)))]
    by_link = browser(server, cookies[1])("POST", "/keys", json={"name": "by a link"})
    keys.append(member.data(by_link, 201)["api_key"])
    calendar = admin.data(ask("POST", "/calendar"), 201)["url"].rpartition("/")[2]
    guest = {"email": f"guest-{admin.member['id']}@example.com", "full_name": "G", "role": "member"}
    invitation = token_of(admin.data(ask("POST", "/members/invite", json=guest), 201))

    def works():
        answers = [server.client(key).get("/me") for key in keys]
        answers += [browser(server, one)("GET", "/me") for one in cookies]
        pages = (f"calendar/{calendar}", f"enroll/{invitation}")
        answers += [server.call("GET", f"/{page}") for page in pages]
        return [answer.status_code == 200 for answer in answers]

    return admin, cookie, admin.data(ask("GET", "/me"))["key"]["id"], works


@pytest.mark.parametrize("query", ["", "?made=false", "?made=true"])
def test_keys_made_in_a_session_end_with_it_only_on_request(server, join, query):
    admin, cookie, id, works = things_made(server, join)
    other = cookie_of(sign_in(server, admin.key))
    names = [key["name"] for key in admin.read("/keys")["keys"] if key["made_with"] == id]
    assert names == ["made", "Firefox on Linux", "Calendar link"]
    admin.data(browser(server, cookie)("DELETE", f"/session{query}"))
    fault(browser(server, cookie)("GET", "/me"), 401, "unauthorized")
    assert works() == [query != "?made=true"] * 7
    assert (admin.get("/me").status_code, browser(server, other)("GET", "/me").status_code) == (200, 200)


def test_keys_made_in_a_session_can_be_ended_later(server, owner, join):
    admin, cookie, id, works = things_made(server, join)
    fault(join().delete(f"/keys/{id}?made=true"), 404, "not_found")
    fault(owner.delete(f"/keys/{id}?made=1"), 422, "validation_error", "made")
    server.rows("UPDATE api_key SET expires_at = created_at WHERE id = ?", id)
    fault(browser(server, cookie)("GET", "/me"), 401, "unauthorized")
    assert owner.data(owner.delete(f"/keys/{id}")) == {"id": id, "revoked": True}
    assert all(works())
    for _ in range(2):
        assert owner.data(owner.delete(f"/keys/{id}?made=true")) == {"id": id, "revoked": True}
    assert not any(works())


def test_a_member_has_100_sessions_of_each_key_of_which_a_new_one_ends_the_oldest(database):
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        other = Member.add(transaction, full_name="P", email="p@example.com", status="active", role="owner")
        key = ApiKey.issue(transaction, owner["id"], name="key")[0]
        first, second, *_ = [Sessions.start(transaction, str(n))[0] for n in range(101)]
        transaction.actor = other
        Sessions.start(transaction, "another's")
        assert [row["member_id"] for row in ApiKey.unrevoked.all(member_id=other["id"])] == [other["id"]]
    listed = ApiKey.visible({"id": owner["id"], "role": "member"})
    assert [row["id"] for row in listed][:2] == [key["id"], second["id"]]  # those that ended are not listed
    assert (len(listed), len(ApiKey.visible(owner))) == (101, 102)
    assert ApiKey.stored(first["id"])["revoked_at"]
    # Those that were started with another key count by themselves.
    with write(owner) as transaction:
        key, _ = ApiKey.issue(transaction, owner["id"], name="reads", scope="read")
        transaction.actor = owner | {"scope": "read", "key_id": key["id"]}
        first, *_ = [Sessions.start(transaction, str(n))[0] for n in range(101)]
    assert [bool(ApiKey.stored(one["id"])["revoked_at"]) for one in (second, first)] == [False, True]


def test_sessions_are_deleted_30_days_after_their_end_and_keys_stay(database):
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        kept = [ApiKey.issue(transaction, owner["id"], name="key", revoked_at=at)[0] for at in (None, "2026")]
        kept.append(Sessions.start(transaction, "open")[0])
        for ended in ({"revoked_at": "2026-01-01"}, {"expires_at": "2026-01-01"}):
            ApiKey.set_columns(Sessions.start(transaction, "ended")[0]["id"], **ended)
        kept.append(Sessions.start(transaction, "ended today")[0])
        ApiKey.set_columns(kept[-1]["id"], revoked_at=transaction.at)
        before = now(-SESSION_DAYS * 86400)
        assert [ApiKey.delete_ended.run(before=before, most=1) for _ in range(3)] == [1, 1, 0]
    assert [row["id"] for row in ApiKey.shown_rows.all()] == [row["id"] for row in kept]


def test_a_sign_in_link_is_made_and_revoked_for_oneself_or_by_whom_manages_the_keys(join):
    for maker, holder, may in (
        *((role, "itself", True) for role in ("owner", "admin", "member", "client")),
        *(("owner", role, True) for role in ("owner", "admin", "client")),
        *(("admin", role, role != "owner") for role in ("owner", "admin", "member")),
        *((role, other, False) for role in ("member", "client") for other in ("member", "client")),
    ):
        maker = join(maker)
        member = maker.member if holder == "itself" else join(holder).member
        path = f"/members/{member['id']}/invitation"
        if may:
            link = link_of(maker, member)
            assert link["member"] == member
            assert days(0.99) < link["expires_at"] < days(1.01)
            assert maker.data(maker.delete(path)) == {"id": member["id"], "revoked": True}
            fault(maker.delete(path), 404, "not_found")
        else:
            for answer in (maker.post(path), maker.delete(path)):
                fault(answer, 403, "forbidden")


def test_a_sign_in_link_starts_one_session_and_joins_nobody(server, owner, join):
    member = join("client")
    before, old, token = last_event(server), *(token_of(link_of(owner, member.member)) for _ in range(2))
    page = server.call("GET", f"/enroll/{token}")
    assert "Sign in to Workspace</button>" in page.text
    assert submit(server, old).status_code == 410
    answers = at_once(*[partial(submit, server, token)] * 4)
    assert sorted(answer.status_code for answer in answers) == [303, 410, 410, 410]
    (answer,) = [answer for answer in answers if answer.status_code == 303]
    assert answer.headers["Location"] == "/"
    shown = member.data(browser(server, cookie_of(answer))("GET", "/me"))
    assert shown["member"] == member.member
    assert (shown["key"]["name"], shown["key"]["is_session"]) == ("Firefox on Linux", True)
    assert last_event(server) == before
    # A program that uses one gets a key.
    used = member.data(join_with(server, token_of(link_of(member, member.member))), 201)
    client = server.client(used["api_key"])
    assert used["member"] == client.member == member.member
    assert client.read("/me")["key"]["name"] == "sign-in link"
    fault(member.delete(f"/members/{member.member['id']}/invitation"), 404, "not_found")


def test_the_maker_of_a_sign_in_link_gains_no_later_access(server, owner, join):
    """The maker could have used it: what came of it ends with the maker's rights, or its member's rise."""
    for change in (removed, demoted):
        admin, member = join("admin"), join("admin")
        used = sign_in_by_link(server, owner, admin, member)
        made = with_key(server, used)
        assert change(owner, admin.member).status_code == 200
        for client in (used, made):
            fault(client.get("/me"), 401, "unauthorized")
        assert member.get("/me").status_code == 200
    admin, member = join("admin"), join()
    used, token = sign_in_by_link(server, owner, admin, member), token_of(link_of(admin, member.member))
    assert owner.patch(f"/members/{member.member['id']}", {"role": "owner"}).status_code == 200
    fault(used.get("/me"), 401, "unauthorized")
    fault(join_with(server, token), 410, "gone")


def sign_in_by_link(server, owner, maker, member):
    """A client with a key of a link that the maker made for this member."""
    used = join_with(server, token_of(link_of(maker, member.member)))
    return server.client(owner.data(used, 201)["api_key"])


def test_joining_starts_a_session_and_makes_no_key_for_programs(secure):
    owner = secure.client()
    invitation = invite(owner, "joins@example.com")
    answer = submit(secure, token_of(invitation), **OURS)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/team/")
    assert "; Secure; HttpOnly; Path=/team; SameSite=Strict" in answer.headers["Set-Cookie"]
    shown = owner.data(browser(secure, cookie_of(answer))("GET", "/me"))
    assert (shown["member"]["id"], shown["member"]["status"]) == (invitation["member"]["id"], "active")
    keys = owner.read("/keys")["keys"]
    assert [key["is_session"] for key in keys if key["member"]["id"] == shown["member"]["id"]] == [True]
    assert last_event(secure)["event"] == "member.joined"


def test_a_form_on_another_site_cannot_sign_somebody_in(server, owner):
    token = token_of(invite(owner, "lured@example.com"))
    sites = [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")]
    for headers in (*sites, *({"Origin": origin} for origin in OTHERS)):
        answer = submit(server, token, **headers)
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (403, False)
        assert "another site" in answer.text
    assert submit(server, token).status_code == 303
