"""Signing in by what a proxy in front says of who opens the page, and who cannot say it."""

import socket

import pytest
from harness import PATIENCE, fault
from test_members import invite, removed
from test_session import browser, grown_old

SETTINGS = {"TASKS_SERVER__SIGN_IN_HEADER": "Remote-Email", "TASKS_SERVER__TRUSTED_PROXIES": "1"}
SETTINGS["TASKS_SERVER__SIGN_IN_NETWORKS"] = '["127.0.0.2/32"]'
SETTINGS["TASKS_SERVER__SIGN_OUT_URL"] = "https://auth.example.com/logout"
SAID = "Remote-Email: ana.lima@example.com"
FORWARDED = ("X-Forwarded-For", "X-Real-IP", "Client-IP", "True-Client-IP")


@pytest.fixture(scope="module")
def entered(launch_module):
    """A server whose proxy has the address 127.0.0.2."""
    return launch_module(**SETTINGS)


@pytest.fixture(scope="module")
def member(entered):
    entered.join(email="mark@example.com")
    return entered.join(email="Ana.Lima@example.com").member


def ask(server, *lines, source="127.0.0.2", method="GET", path="/", encoding="utf-8"):
    """The answer to a request with these lines in its head, from a connection with this address."""
    address = ("127.0.0.1", int(server.base.rpartition(":")[2]))
    with socket.create_connection(address, PATIENCE, (source, 0)) as connection:
        return exchange(connection, method, path, lines, encoding)


def exchange(connection, method, path, lines, encoding="utf-8"):
    accept = [] if "Accept: */*" in lines else ["Accept: text/html"]
    head = [f"{method} {path} HTTP/1.1", "Host: a", "Connection: close", *accept, *lines, "", ""]
    connection.sendall("\r\n".join(head).encode(encoding))
    return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def key_of(answer):
    """The session's key that an answer sets, or None."""
    _, _, rest = answer.partition("\r\nSet-Cookie: tasks_session_8000=")
    return rest.partition(";")[0] or None


def sessions(server, member):
    keys = server.client().read("/keys")["keys"]
    return [key for key in keys if key["member"]["id"] == member["id"] and key["is_session"]]


@pytest.mark.parametrize("said", ["ana.lima@example.com", "ANA.Lima@Example.COM", " ana.lima@example.com "])
def test_the_member_whom_the_proxy_names_gets_a_session(entered, member, said):
    answer = ask(entered, f"Remote-Email: {said}", "User-Agent: curl/8 Firefox/140.0")
    assert answer.startswith("HTTP/1.1 200")
    assert 'id="schemas"' in answer
    assert 'data-sign-out="https://auth.example.com/logout"' in answer
    assert "HttpOnly; Path=/; SameSite=Strict" in answer
    me = browser(entered, f"tasks_session_8000={key_of(answer)}")("GET", "/me").json()["data"]
    assert (me["member"]["id"], me["key"]["name"], me["key"]["scope"]) == (member["id"], "Firefox", "write")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_proxy_names_a_person_of_an_international_address(entered, member, encoding):
    email = f"jörg.{encoding}@bücher.example"
    entered.join(email=email)
    for said in (email, email.upper().replace("BÜCHER", "xn--bcher-kva")):
        answer = ask(entered, f"Remote-Email: {said}", encoding=encoding)
        me = browser(entered, f"tasks_session_8000={key_of(answer)}")("GET", "/me").json()["data"]
        assert me["member"]["email"] == email


def test_a_new_session_begins_only_without_a_valid_one_or_for_somebody_else(entered, member):
    before = len(sessions(entered, member))
    key = key_of(ask(entered, SAID))
    cookie = f"Cookie: tasks_session_8000={key}"
    for _ in range(3):
        answer = ask(entered, SAID, cookie)
        assert answer.startswith("HTTP/1.1 200")
        assert key_of(answer) is None
    assert len(sessions(entered, member)) == before + 1
    other = key_of(ask(entered, "Remote-Email: owner@example.com", cookie))
    me = browser(entered, f"tasks_session_8000={other}")("GET", "/me").json()["data"]
    assert (me["member"]["email"], me["member"]["role"]) == ("owner@example.com", "owner")
    assert browser(entered, f"tasks_session_8000={key}")("DELETE", "/session").status_code == 200
    for ended in (cookie, "Cookie: tasks_session_8000=tms_wrong", "Cookie: tasks_session_8000"):
        assert key_of(ask(entered, SAID, ended))


def test_loading_the_page_again_renews_the_sign_in(entered, member):
    before = len(sessions(entered, member))
    cookie = f"tasks_session_8000={key_of(ask(entered, SAID))}"
    page = browser(entered, cookie)
    grown_old(entered, cookie)
    for source in ("127.0.0.1", "127.0.0.2"):  # the proxy is the second
        fault(page("POST", "/calendar"), 403, "forbidden")
        answer = ask(entered, SAID, f"Cookie: {cookie}", source=source)
        assert answer.startswith("HTTP/1.1 200")
        assert key_of(answer) is None
    assert page("POST", "/calendar").status_code == 201
    assert len(sessions(entered, member)) == before + 1


def test_a_stranger_is_told_whom_to_ask(entered, member):
    owner = entered.client()
    invite(owner, "invited@example.com")
    owner.data(removed(owner, entered.join(email="gone@example.com").member))
    for said in (
        *("invited@example.com", "gone@example.com"),
        *("nobody@example.com", "ana.lima", "%", "ana.limä@example.com", "ana.lıma@example.com"),
        *(f"ana.lima@example.com{more}" for more in (",", ", ana.lima@example.com", ";")),
        *("Ana Lima <ana.lima@example.com>", "<script>alert(1)</script>", "a" * 3000 + "@example.com"),
        "mar\u212a@example.com",  # which is "mark" in lower case
        "ana.lima@example.com\r\nRemote-Email: ana.lima@example.com",
        "ana.lima@example.com\r\nremote-email: owner@example.com",
    ):
        answer = ask(entered, f"Remote-Email: {said}")
        assert answer.startswith("HTTP/1.1 403"), said
        assert "Ask Olga Owner to invite you" in answer
        assert '<a href="https://auth.example.com/logout">' in answer  # to come with another address
        assert "<script>alert" not in answer
        assert key_of(answer) is None


def test_a_header_from_elsewhere_or_of_another_name_is_not_there(entered, member):
    for source, lines in (
        *(("127.0.0.1", [SAID]), ("127.0.0.3", ["Remote-Email: nobody@example.com"])),
        *(("127.0.0.1", [SAID, f"{name}: 127.0.0.2"]) for name in FORWARDED),
        ("127.0.0.1", [SAID, "Forwarded: for=127.0.0.2"]),
        *(("127.0.0.2", [f"{name}: ana.lima@example.com"]) for name in ("Remote_Email", "X-Remote-Email")),
        ("127.0.0.2", ["Remote-Email : ana.lima@example.com"]),
        *(("127.0.0.2", [line]) for line in ("Remote-Email:", "Cookie: Remote-Email=ana.lima@example.com")),
    ):
        answer = ask(entered, *lines, source=source)
        assert key_of(answer) is None, (source, lines)
        assert answer.startswith("HTTP/1.1 200" if " :" not in lines[0] else "HTTP/1.1 400")


def test_the_connection_counts_behind_a_trusted_proxy_and_no_header_without_one(entered, member, server):
    assert key_of(ask(entered, SAID, "X-Forwarded-For: 203.0.113.7"))
    assert entered.log.read_text().splitlines()[-1].endswith(" 203.0.113.7")
    headers = {"Accept": "text/html", "Remote-Email": "owner@example.com"}
    answer = server.call("GET", "/", headers=headers)
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (200, False)
    assert 'data-sign-out=""' in answer.text


def test_only_opening_the_page_signs_in(entered, member):
    before = len(sessions(entered, member))
    for method, path, lines in (
        ("HEAD", "/", []),
        ("GET", "/", ["Accept: */*"]),
        ("POST", "/", ["Content-Length: 0"]),
        *(("GET", path, []) for path in ("/api/v1/me", "/api/v1/health", "/metrics", "/static/x/page.js")),
        ("POST", "/api/v1/session", ["Content-Length: 0"]),
        ("POST", "/mcp", ["Content-Length: 0"]),
    ):
        answer = ask(entered, *lines, SAID, method=method, path=path)
        assert key_of(answer) is None, (method, path)
        is_public = method != "POST" and path not in ("/api/v1/me", "/metrics")
        assert answer.startswith("HTTP/1.1 200" if is_public else "HTTP/1.1 4")
    assert len(sessions(entered, member)) == before


def test_links_of_another_site_lead_a_browser_to_where_they_say_and_to_one_session(launch, browse):
    server = launch(**SETTINGS | {"TASKS_SERVER__SIGN_IN_NETWORKS": '["127.0.0.1/32"]'})
    # After signing out, the request that waits for a change is refused.
    page = browse(refusals=True, own=True, extra_http_headers={"Remote-Email": "owner@example.com"})
    elsewhere = server.base.replace("127.0.0.1", "localhost")
    for _ in range(3):
        page.goto(f"{elsewhere}/static/x/icon.svg")
        page.evaluate(f"location.href = '{server.base}/#view=account'")
        page.get_by_role("heading", name="Keys and sessions").wait_for()
        assert page.url.startswith(f"{server.base}/?")
        assert page.url.endswith("#view=account")
    owner = server.client()
    assert len(sessions(server, owner.member)) == 1
    page.route("https://auth.example.com/logout", lambda route: route.fulfill(body="Signed out."))
    page.get_by_role("button", name="You: Olga Owner").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("https://auth.example.com/logout")
    assert sessions(server, owner.member) == []  # those that have ended are not listed


def test_a_unix_socket_counts(launch, tmp_path):
    path = tmp_path / "s"
    server = launch(**SETTINGS)
    server.stop()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        server.process = server.run_gunicorn(listener, ())
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(path))
            assert key_of(exchange(connection, "GET", "/", ["Remote-Email: owner@example.com"]))
