"""Programs that know only the address of /mcp: they register, a member allows them, and they get a key."""

import asyncio
import base64
import json
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from hashlib import sha256
from html import escape
from types import SimpleNamespace
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from board import check_page
from clients import JSON, Line, head
from harness import OWNER_KEY, PATIENCE, Server, at_once, ending, needs_node, npm_packages
from mailboxes import Mailbox, token_in
from test_enrollment_page import check_headers
from test_tools import NAMES
from test_tools_clients import connected, use
from werkzeug.test import Client

import times
from app import create_app
from members import ApiKey, Member
from models import Project, Task, write
from parts import oauth
from parts.inbox import Notice
from wire import logged_path

NEEDS_SOCKET = False

BASE = "https://tasks.example.com"
VERIFIER = "v" * 50
CHALLENGE = base64.urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
HERE, HERE_TOO = "http://localhost/callback", "http://[::1]/callback"
CLAUDE, EVIL = "https://claude.ai/api/mcp/auth_callback", "https://evil.example/cb"
DOCUMENTS = ("oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server")
DOCUMENTS = [f"/.well-known/{name}" for name in (*DOCUMENTS, "openid-configuration")]
CALLS = [f"/oauth/{name}" for name in ("register", "token", "revoke")]
OURS = {"X-Requested-With": "page"}  # the header of our own pages


def asking(client_id, base_url):
    """The parameters with which a program opens the page."""
    asked = {"response_type": "code", "client_id": client_id, "redirect_uri": HERE, "state": "a b&c"}
    asked |= {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}
    return asked | {"resource": f"{base_url}/mcp", "scope": "agent"}


class Caller(Client):
    """Calls the application in this process."""

    base_url = BASE

    def api(self, method, path, body=None, key=OWNER_KEY, status=None, **headers):
        """Return the data, or the error with this status."""
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        answer = self.open(f"/api/v1{path}", method=method, json=body, headers=headers)
        assert answer.status_code == status if status else answer.status_code < 300, (path, answer.text)
        return answer.json["error" if status else "data"]

    def program(self, path, **options):
        """POST to a path of OAuth, and check what holds for all answers."""
        answer = self.post(path, **options)
        assert answer.headers["Cache-Control"] == "no-store", "RFC 6749, 5.1"
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.status_code < 300 or {"error", "error_description"} == answer.json.keys()
        return answer

    def refused(self, error, path, status=400, **options):
        answer = self.program(path, **options)
        assert (answer.status_code, answer.json["error"]) == (status, error), (options, answer.text)

    def token(self, form):
        return self.program("/oauth/token", data=form).json

    def register(self, *uris, **fields):
        """Register these addresses, and return the parameters with which the program opens the page."""
        body = {"redirect_uris": uris or [HERE, CLAUDE, HERE_TOO], **fields}
        return asking(self.program("/oauth/register", json=body).json["client_id"], self.base_url)

    def page(self, query, **options):
        answer = self.get("/oauth/authorize", query_string=query, **options)
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert "Location" not in answer.headers
        return answer

    def allow(self, query, key=OWNER_KEY, **fields):
        """Allow it as the page does; return the form that gets the key."""
        body = {"query": urlencode(query), "scope": "agent", **fields}
        place, _, said = self.api("POST", "/connections", body, key)["location"].partition("?")
        said = {name: values[0] for name, values in parse_qs(said).items()}
        assert said == {"code": said["code"], "state": "a b&c", "iss": self.base_url}
        assert place == query["redirect_uri"]
        form = {name: query[name] for name in ("client_id", "redirect_uri", "resource")}
        return form | {"grant_type": "authorization_code", "code": said["code"], "code_verifier": VERIFIER}

    def connect(self, query, key=OWNER_KEY, **fields):
        return self.token(self.allow(query, key, **fields))["access_token"]

    def call(self, key, name=None, **arguments):
        """Call a tool and return its text, or list the tools and return the response."""
        params = {"name": name, "arguments": arguments} if name else {}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call" if name else "tools/list"}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = self.post("/mcp", json=message | {"params": params}, headers=headers)
        return answer.json["result"]["content"][0]["text"] if name else answer

    def works(self, key):
        return self.call(key).status_code == 200

    def member(self, role="member", **fields):
        body = {"email": f"{role}-{times.new_id()}@example.com", "full_name": f"A {role}", "role": role}
        link = self.api("POST", "/members/invite", body | fields)["enrollment_link"]
        made = self.api("POST", f"/enroll/{link.rpartition('/')[2]}", key=None)
        return made["api_key"], made["member"]["id"]


@pytest.fixture
def serve(database):
    """Make the application, with OAuth or with these settings."""
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="Olga Owner", email="o@example.com")
        ApiKey.issue(transaction, owner["id"], name="Owner's", key=OWNER_KEY)

    def make(base_url=BASE, **settings):
        oauth.calls.clear()
        server = {"database": database.database, "base_url": base_url}
        caller = Caller(create_app(server=server, oauth={"enabled": True} | settings))
        caller.base_url = base_url
        return caller

    return make


@pytest.fixture
def caller(serve):
    return serve()


@pytest.fixture
def task(serve):
    with write(Member.active_owners.one()) as transaction:
        project = Project.add(transaction, name="Theirs")
        return Task.add(transaction, project_id=project["id"], title="A task")


# The documents, and what is seen while it is off ------------------------------------------------


@pytest.mark.parametrize("base_url", [BASE, f"{BASE}:8443/team", "https://Bücher.example/büro"])
def test_a_401_leads_to_the_documents_which_name_every_address_below_base_url(serve, base_url):
    caller = serve(base_url)
    base_url = caller.base_url = base_url.replace("Bücher", "xn--bcher-kva").replace("ü", "%C3%BC")
    found = f'resource_metadata="{base_url}{DOCUMENTS[1]}", scope="agent"'
    for key in (None, "tmc_wrong", "tms_wrong", OWNER_KEY + "x"):
        answer, wrong = caller.call(key), 'error="invalid_token", ' if key else ""
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == f"Bearer {wrong}{found}"
    elsewhere = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"}
    resource, same, metadata, also = (caller.get(path, headers=elsewhere).json for path in DOCUMENTS)
    assert (resource, metadata) == (same, also)
    assert resource["resource"] == f"{base_url}/mcp"
    assert resource["authorization_servers"] == [base_url] == [metadata["issuer"]]
    assert metadata["code_challenge_methods_supported"] == ["S256"]
    endpoints = [metadata[name] for name in metadata if name.endswith("_endpoint")]
    assert endpoints == [f"{base_url}/oauth/{name}" for name in ("authorize", "token", "register", "revoke")]
    for path in DOCUMENTS:
        assert caller.head(path).status_code == 200
        caller.refused("method_not_allowed", path, 405)
    assert {caller.get(path).status_code for path in CALLS} == {405}
    assert caller.post("/oauth/authorize").status_code == 405
    assert caller.works(caller.connect(caller.register()))


def test_while_it_is_off_nothing_of_it_can_be_seen(serve):
    on, off = serve(), serve("https://off.example.com", enabled=False)
    key = on.connect(query := on.register())
    for path in (*DOCUMENTS, *CALLS, "/oauth/authorize", f"/oauth/authorize?{urlencode(query)}"):
        for method in ("GET", "POST"):
            answer, unknown = (off.open(one, method=method) for one in (path, "/nothing"))
            assert (answer.status_code, answer.content_type) == (404, unknown.content_type), path
    for body in ({}, {"query": "a=b", "scope": "read"}):
        off.api("POST", "/connections", body, status=404)
    for header in (None, OWNER_KEY + "x", key):
        assert off.call(header).headers["WWW-Authenticate"] == "Bearer"
    seen, hidden = (one.get("/api/v1/openapi.json").json for one in (on, off))
    assert seen["paths"].keys() - hidden["paths"].keys() == {"/api/v1/connections"}
    added = seen["components"]["schemas"].keys() - hidden["components"]["schemas"].keys()
    assert added == {"ConnectBody", "Connection", "ConnectionAnswer"}


def test_no_other_request_runs_any_code_of_it(serve):
    def files(call):
        seen = set()
        sys.setprofile(lambda frame, *_: seen.add(frame.f_code.co_filename))
        try:
            call()
        finally:
            sys.setprofile(None)
        return seen

    on, off = serve(), serve(enabled=False)
    for one in (on, off):
        assert oauth.__file__ not in files(partial(one.api, "GET", "/me"))
    assert oauth.__file__ not in files(partial(off.works, OWNER_KEY))
    assert oauth.__file__ in files(partial(on.works, OWNER_KEY))


# Registration -----------------------------------------------------------------------------------


def test_a_registration_is_stored_nowhere_and_keeps_only_addresses_that_may_get_a_code(caller):
    keys = ApiKey.select().count()
    uris = [EVIL, "cursor://anysphere.cursor-mcp/oauth/callback", HERE, "http://[evil", "javascript:alert(1)"]
    body = {"redirect_uris": uris, "client_secret": "x", "jwks": {}, "logo_uri": EVIL, "policy_uri": EVIL}
    answer = caller.program("/oauth/register", json=body)
    assert answer.status_code == 201
    assert answer.json["redirect_uris"] == uris[1:3]
    assert answer.json["token_endpoint_auth_method"] == "none"
    assert answer.json["client_name"] == "A program"
    assert not {"client_secret", "logo_uri"} & answer.json.keys()
    assert "evil" not in caller.page(asking(answer.json["client_id"], BASE)).text
    assert caller.program("/oauth/register", json=body | {"client_name": None}).json == answer.json
    assert ApiKey.select().count() == keys


def test_the_name_that_a_program_gives_itself_is_short_and_visible_even_if_it_writes_its_id_itself(caller):
    for name, shown in (
        ("  Claude\u200b \u00adCode\u2060 ", "Claude Code"),
        ("n" * 100, "n" * 40),
        ("Claude” to Acme? It is safe, press Allow. “", "Claude” to Acme? It is safe, press Allow"),
        ("\u3164\u200b.", "\u3164."),
        ("<b>{{7*7}}", "&lt;b&gt;{{7*7}}"),
    ):
        query = caller.register(client_name=name)
        forged = base64.urlsafe_b64encode(json.dumps([name, [HERE]]).encode()).decode()
        for id in (query["client_id"], forged):
            assert f"<dd><b>{shown}</b></dd>" in caller.page(query | {"client_id": id}).text


REGISTRATIONS = {
    "invalid_redirect_uri": [
        *({"redirect_uris": [uri]} for uri in (EVIL, "http://localhost.evil.example/", f"{HERE}?a=b")),
        {"redirect_uris": [f"http://localhost/{n}{'x' * 290}" for n in range(10)]},
    ],
    "invalid_client_metadata": [
        *({"redirect_uris": uris} for uris in ([], [1], HERE, [HERE] * 21)),
        *({"redirect_uris": [HERE], "client_name": name} for name in ("x\u202ey", "n" * 101, 5)),
        *({}, b"{", b'{"a": 1, "a": 2}'),
    ],
    "payload_too_large": [b"x" * 1_100_000],
}


def test_a_registration_is_refused(caller):
    for error, body in ((error, body) for error, bodies in REGISTRATIONS.items() for body in bodies):
        is_raw = isinstance(body, bytes)
        sent = {"data": body, "content_type": "application/json"} if is_raw else {"json": body}
        caller.refused(error, "/oauth/register", 413 if error == "payload_too_large" else 400, **sent)


def test_an_address_may_make_60_calls_a_minute(caller):
    statuses = [caller.program(CALLS[n % 3]).status_code for n in range(61)]
    assert 429 not in statuses[:60]
    assert statuses[60] == 429
    address = {"REMOTE_ADDR": "10.0.0.1"}
    assert caller.program("/oauth/revoke", data={"token": "x"}, environ_base=address).status_code == 200


# The requests of programs -----------------------------------------------------------------------
NOT_LOCAL = """
    127.0.0.2 127.1 0x7f000001 [::ffff:127.0.0.1] LOCALHOST localhost. ｌocalhost localhost:８０ localhost:
    localhost.evil.example 127.0.0.1.evil.example user@localhost localhost@evil.example
    localhost:80@evil.example evil.example#@localhost evil.example/#http://localhost evil.example?localhost
"""
NOT_ALLOWED = """
    https://evil.example/cb javascript:alert(1) data:text/html,x //evil.example/ /callback localhost
    http:localhost/callback https://localhost/callback HTTP://localhost/callback view-source:http://localhost
    http://[evil https://evil℀.com/x https://evil.com／@claude.ai/ http://claude.ai/api/mcp/auth_callback
    https://claude.ai:443/api/mcp/auth_callback https://CLAUDE.ai/api/mcp/auth_callback
    https://claude.ai@evil.example/api/mcp/auth_callback https://evil.example#claude.ai/api/mcp/auth_callback
"""
NOT_OURS = "https://evil.example/mcp http://tasks.example.com/mcp https://tasks.example.com@evil.example/mcp"
NO_CLIENTS = [b"[" * 3000, json.dumps(["\u202e", [HERE]]).encode(), b'["a", []]', b"[[], []]", b"[]", b"nope"]
ASKED = {  # by the words of the refusal, the parameters and values that are refused
    "has not registered here": {
        "client_id": ["", "é", "=", "x" * 5000, *map(base64.urlsafe_b64encode, NO_CLIENTS)]
    },
    "the code may not go to": {
        "redirect_uri": [
            *("", *NOT_ALLOWED.split(), *(f"http://{host}/callback" for host in NOT_LOCAL.split())),
            *(HERE + tail for tail in ("#x", "?x=y", "\\@evil.example", "\n", " ", "%00\r")),
            *(CLAUDE + tail for tail in ("/", "?a=b", "#", "/../x", ":443", "%2f")),
            *(head + HERE for head in (" ", "\t", f"{EVIL} ")),
        ]
    },
    "has not registered the address": {
        "redirect_uri": [
            *(HERE + tail for tail in ("/more", "2", "/../callback", "/")),
            *("http://127.0.0.1/callback", "http://localhost/", "https://claude.com/api/mcp/auth_callback"),
        ]
    },
    "must ask for a code": {
        "response_type": ["", "token", "code token", "Code"],
        "code_challenge_method": ["", "plain", "s256"],
    },
    "no valid code_challenge": {"code_challenge": ["", VERIFIER, "x" * 42, "x" * 44, "é" * 43]},
    "for no other address": {
        "resource": [
            *NOT_OURS.split(),
            *(BASE + tail for tail in (".evil.example", "/mcp/more", "/other", ":444/mcp", "/mcp?a")),
        ]
    },
}


@pytest.mark.parametrize("words", ASKED)
def test_the_page_and_the_api_refuse_and_send_nothing_on(caller, words):
    query, keys = caller.register(), ApiKey.select().count()
    for name, value in ((name, value) for name, values in ASKED[words].items() for value in values):
        asked = urlencode(query | {name: value})
        page = caller.page(asked)
        assert page.status_code == 400, (name, value)
        check_headers(page)
        assert "cannot be connected" in page.text
        assert "<form" not in page.text
        said = caller.api("POST", "/connections", {"query": asked, "scope": "read"}, status=422)
        assert said["details"][0]["field"] == "query"
        assert words in said["message"], (name, value, said)
    assert ApiKey.select().count() == keys


def test_a_repeated_parameter_is_refused_since_the_page_could_show_the_other_one(caller):
    query = urlencode(caller.register())
    for more in (f"redirect_uri={CLAUDE}", f"redirect%5Furi={CLAUDE}", "scope=agent", "a&a"):
        assert caller.page(f"{query}&{more}").status_code == 400
        caller.api("POST", "/connections", {"query": f"{query}&{more}", "scope": "read"}, status=422)
    shown = caller.page(f"{query}&name=Bank&place=bank.example&only_reads=&base_url=x").text
    assert "bank" not in shown.lower().replace("blank", "")
    assert "this computer" in shown
    refusal = f"{HERE}?{urlencode({'error': 'access_denied', 'state': 'a b&c', 'iss': BASE})}"
    assert f'<a href="{refusal.replace("&", "&amp;")}">Do not allow</a>' in shown


def test_ports_of_this_computer_are_free_and_the_resource_may_be_left_out(caller):
    for name, value in (
        *(("redirect_uri", f"http://{host}:50123/callback") for host in ("localhost", "[::1]")),
        ("redirect_uri", CLAUDE),
        *(("resource", value) for value in ("", BASE, "https://Tasks.example.com/mcp/")),
        *(("scope", value) for value in ("", "read agent write")),
    ):
        said = caller.token(caller.allow(caller.register() | {name: value}))
        assert (said["scope"], said["token_type"]) == ("agent", "Bearer")
        assert 179 < said["expires_in"] / 86400 <= 180


def test_a_program_that_asks_to_read_is_offered_no_more(caller):
    query = caller.register() | {"scope": "read"}
    page = caller.page(query).text
    assert 'value="read" checked' in page
    assert 'value="agent"' not in page
    said = caller.api("POST", "/connections", {"query": urlencode(query), "scope": "agent"}, status=422)
    assert said["details"][0]["field"] == "scope"
    assert caller.token(caller.allow(query, scope="read"))["scope"] == "read"


def test_more_addresses_can_be_allowed_and_the_days_be_set(serve):
    caller = serve(callbacks=["https://chat.example/cb"], days=1)
    query = caller.register(CLAUDE, "https://chat.example/cb") | {"redirect_uri": "https://chat.example/cb"}
    assert "<b>chat.example</b>" in caller.page(query).text
    assert 86300 < caller.token(caller.allow(query))["expires_in"] <= 86400
    assert caller.page(query | {"redirect_uri": CLAUDE}).status_code == 400


# The members who allow ---------------------------------------------------------------------------


def test_a_key_allows_no_more_than_it_may_itself(caller):
    query = caller.register()
    body, refuse = {"query": urlencode(query), "scope": "read"}, partial(caller.api, "POST", "/connections")
    for scope in ("read", "agent"):
        key = caller.api("POST", "/keys", {"name": scope, "scope": scope})["api_key"]
        refuse(body, key, status=403)
    refuse(body, key=None, status=401)
    for scope in ("write", "calendar", "admin", None, ""):
        refuse(body | {"scope": scope}, status=422)
    owner, (member, _) = caller.api("GET", "/me")["member"]["id"], caller.member()
    refuse(body | {"member_id": owner}, member, status=403)
    soon = caller.api("POST", "/keys", {"name": "Soon", "expires_at": times.now(3600)})["api_key"]
    assert caller.token(caller.allow(query, soon))["expires_in"] <= 3600
    refuse(body, Idempotency_Key="x", status=422)  # the code is not stored


def test_only_our_own_page_allows_with_a_session_that_is_not_old(caller):
    body = {"query": urlencode(caller.register()), "scope": "agent"}
    allow = partial(caller.api, "POST", "/connections", body, None)
    caller.api("POST", "/session", {"api_key": OWNER_KEY}, key=None)
    keys = ApiKey.select().count()
    for site in (
        {},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", **OURS},
    ):
        allow(status=401, **site)
    ApiKey.update({ApiKey.created_at: times.now(-1000)}).where(ApiKey.is_session == 1).execute()
    assert "more than 15 minutes ago" in allow(status=403, **OURS)["message"]
    assert ApiKey.select().count() == keys
    caller.api("POST", "/session", {"api_key": OWNER_KEY}, key=None)
    assert allow(**OURS)["location"].startswith(f"{HERE}?code=")


def test_an_admin_connects_a_program_for_an_agent_and_a_client_sees_only_its_projects(caller, task):
    query, (_, id) = caller.register(), caller.member(full_name="Build agent")
    context = caller.call(caller.connect(query, member_id=id), "get_context")
    assert json.loads(context)["you"] == "Build agent (member, key of scope agent)"
    with write(Member.active_owners.one()) as transaction:
        other = Project.add(transaction, name="Other")
        hidden = Task.add(transaction, project_id=other["id"], title="T")
    client, _ = caller.member("client", project_ids=[task["project_id"]])
    key = caller.connect(query, client)
    for one, said in ((task, "{"), (hidden, "not_found")):
        assert caller.call(key, "get_task", task_id=str(one["number"])).startswith(said)


def test_a_person_who_has_only_a_program_is_asked_and_an_agent_is_not(caller):
    key, id = caller.member()
    caller.connect(caller.register(), key)
    ApiKey.delete().where(ApiKey.member == id, ApiKey.scope == "write").execute()
    assert not Notice.is_program(id)
    with write(Member.active_owners.one()) as transaction:
        ApiKey.issue(transaction, id, name="Agent", scope="agent")
    assert Notice.is_program(id)


# Codes and keys ---------------------------------------------------------------------------------

TOKENS = [  # a parameter, values that are refused, and the error
    ("code_verifier", ["w" * 50, "", CHALLENGE, VERIFIER + " "], "invalid_grant"),
    ("redirect_uri", ["http://localhost:1/callback", CLAUDE], "invalid_grant"),
    ("client_id", [""], "invalid_grant"),
    ("code", ["", "é\x00"], "invalid_grant"),
    ("resource", [EVIL], "invalid_target"),
    ("grant_type", [""], "invalid_request"),
    ("grant_type", ["refresh_token", "client_credentials", "password"], "unsupported_grant_type"),
]


def test_a_code_gets_one_key_once_and_only_for_the_program_that_asked(caller):
    form, refused = caller.allow(caller.register()), partial(caller.refused, path="/oauth/token")
    other = caller.register(client_name="Other")["client_id"]
    for name, values, error in TOKENS:
        for value in values:
            refused(error, data=form | {name: value})
    for id in (other, form["client_id"] + "="):
        refused("invalid_grant", data=form | {"client_id": id})
    address, _, digest = form["code"].partition(".")
    for code in (address, f"{address}.", f"{address}.{digest[::-1]}", f"{form['code']}.{digest}"):
        refused("invalid_grant", data=form | {"code": code, "redirect_uri": ""})
    for repeated in ("code=x", f"resource={EVIL}"):
        refused("invalid_request", data=f"{urlencode(form)}&{repeated}")
    refused("invalid_request", json=form)
    refused("invalid_request", query_string=form)
    del form["redirect_uri"]  # as OAuth 2.1
    key = caller.token(form)["access_token"]
    refused("invalid_grant", data=form)
    assert caller.works(key)
    short = caller.allow(caller.register() | {"code_challenge": oauth.base64url(sha256(b"short").digest())})
    refused("invalid_grant", data=short | {"code_verifier": "short"})


def test_of_calls_at_the_same_time_one_gets_the_key(caller):
    for _ in range(3):
        send = partial(caller.program, "/oauth/token", data=caller.allow(caller.register()))
        assert sorted(answer.status_code for answer in at_once(*[send] * 8)) == [200, *[400] * 7]


def test_a_code_is_no_key_is_not_listed_and_ends_after_a_minute(caller):
    query, listed = caller.register(), len(caller.api("GET", "/keys")["keys"])
    forms = [caller.allow(query) for _ in range(3)]
    (*_, row) = ApiKey.select().order_by(ApiKey.id).dicts()
    for secret in (forms[2]["code"], CHALLENGE, VERIFIER):
        assert secret not in str(row)
    proof = oauth.proof(forms[0]["code"], CHALLENGE, query["client_id"])
    for bearer in (forms[0]["code"], proof, row["hash"]):
        assert not caller.works(bearer)
        caller.api("GET", "/me", key=bearer, status=401)
    assert len(caller.api("GET", "/keys")["keys"]) == listed
    try:
        times.put_ahead(58)
        assert caller.token(forms[0])["access_token"]
        times.put_ahead(61)
        caller.refused("invalid_grant", "/oauth/token", data=forms[1])
    finally:
        times.put_ahead(0)
    assert [ApiKey.delete_ended.run(before=times.now(seconds), most=9) for seconds in (-60, 60)] == [0, 2]


def test_the_key_works_at_the_tools_alone_and_does_what_its_scope_allows(caller, task):
    query, number = caller.register(client_name="A <b>program</b>"), str(task["number"])
    reader, agent = (caller.connect(query, scope=scope) for scope in ("read", "agent"))
    for key in (reader, agent):
        assert json.loads(caller.call(key, "get_task", task_id=number))["title"] == "A task"
        for path in ("/me", "/keys", "/tasks", "/context", "/health", "/nothing"):
            caller.api("GET", path, key=key, status=401)
        for path in ("/keys", "/connections", f"/tasks/{number}/claim"):
            caller.api("POST", path, {}, key, status=401)
        caller.api("POST", "/session", {"api_key": key}, key=None, status=401)
        for path in ("/metrics", f"/calendar/{key}.ics", "/mcp/../api/v1/me"):
            answer = caller.get(path, headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code in (401, 404), path
        assert key[12:] not in logged_path(f"/calendar/{key}") + logged_path(f"/x/{key}")
    caller.call(agent, "add_comment", task_id=number, content="By the program")
    assert caller.api("GET", f"/tasks/{number}/comments")["comments"][-1]["via"] == "A <b>program</b>"
    assert caller.call(reader, "add_comment", task_id=number, content="x").startswith("forbidden")
    caller.api("POST", "/agents/stop", {"reason": "Titles"})
    assert caller.call(agent, "get_task", task_id=number).startswith("stopped")
    assert caller.call(reader, "get_task", task_id=number).startswith("{")
    keys = [key for key in caller.api("GET", "/keys")["keys"] if key["prefix"].startswith("tmc_")]
    named = [(scope, "A <b>program</b>") for scope in ("read", "agent")]
    assert [(key["scope"], key["name"]) for key in keys] == named
    assert all(key["last_used_at"] and key["expires_at"] for key in keys)


def test_the_key_ends_with_its_maker_with_its_member_and_when_it_is_given_back(caller):
    query, (member, id) = caller.register(), caller.member()
    by_hand, given_back, last = (caller.connect(query, member) for _ in range(3))
    keys = [key for key in caller.api("GET", "/keys", key=member)["keys"] if key["prefix"][:4] == "tmc_"]
    caller.api("DELETE", f"/keys/{keys[0]['id']}", key=member)
    assert [caller.works(key) for key in (by_hand, given_back, last)] == [False, True, True]
    for token in (given_back, given_back, "unknown", member):  # RFC 7009: always a success
        assert caller.program("/oauth/revoke", data={"token": token}).status_code == 200
    assert [caller.works(key) for key in (given_back, last, member)] == [False, True, True]
    maker = caller.api("POST", "/keys", {"name": "Maker"}, member)["api_key"]
    made, waiting = caller.connect(query, maker), caller.allow(query, maker)
    caller.api("DELETE", f"/keys/{caller.api('GET', '/me', key=maker)['key']['id']}?made=true", key=member)
    form = caller.allow(query, member)
    assert not caller.works(made)
    caller.api("DELETE", f"/members/{id}")
    assert not caller.works(last)
    for one in (waiting, form):
        caller.refused("invalid_grant", "/oauth/token", data=one)


def test_a_demoted_admin_keeps_a_weaker_key_and_loses_the_keys_made_for_others(caller):
    query, (admin, id), (_, other) = caller.register(), caller.member("admin"), caller.member()
    own, for_other = caller.connect(query, admin), caller.connect(query, admin, member_id=other)
    caller.api("PATCH", f"/members/{id}", {"role": "member"})
    assert "(member, key of scope agent)" in caller.call(own, "get_context")
    assert not caller.works(for_other)


# A real server, real programs and a real browser -------------------------------------------------


class Here(Server):
    """A server whose base_url is its address."""

    def run_gunicorn(self, listener, arguments):
        self.environment["TASKS_SERVER__BASE_URL"] = self.base
        return super().run_gunicorn(listener, arguments)


@pytest.fixture(scope="module")
def mailbox():
    with closing(Mailbox()) as box:
        yield box


@pytest.fixture(scope="module")
def server(tmp_path_factory, mailbox):
    settings = {"TASKS_OAUTH__ENABLED": "true", "TASKS_MAIL__FROM": "t@example.com"}
    server = Here(tmp_path_factory.mktemp("server"), TASKS_MAIL__URL=mailbox.url, **settings).start()
    yield server
    assert server.stop() == 0


def provider(server, opened, answered):
    """The official client's own OAuth, as a program on this computer uses it."""
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    kept = {}

    async def get(name):
        return kept.get(name)

    async def keep(name, value):
        kept[name] = value

    async def open_browser(url):
        opened.put(url)

    async def wait_for_answer():
        said = parse_qs(urlsplit(await asyncio.to_thread(answered.get, True, PATIENCE)).query)
        return AuthorizationCodeResult(**{name: values[0] for name, values in said.items()})

    storage = {f"get_{name}": partial(get, name) for name in ("tokens", "client_info")}
    storage |= {f"set_{name}": partial(keep, name) for name in ("tokens", "client_info")}
    kind = {"redirect_uris": [HERE], "token_endpoint_auth_method": "none"}
    about, storage = OAuthClientMetadata(client_name="Official", **kind), SimpleNamespace(**storage)
    return OAuthClientProvider(f"{server.base}/mcp", about, storage, open_browser, wait_for_answer)


SHOWN_AGAIN = """(name) => new Promise((end) => {
    dispatchEvent(new Event(name));
    setTimeout(() => dispatchEvent(new Event(name)), 300);
    setTimeout(() => end(document.querySelector('#allow button').disabled), 600);
})"""


def test_the_official_client_connects_with_nothing_but_the_address(server, owner, browse, mailbox):
    """Its person comes by a link of another site, with which browsers send no cookie that is ours alone."""
    opened, answered = queue.Queue(), queue.Queue()

    async def work():
        async with connected(server, auth=provider(server, opened, answered)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            return names, await use(client, "get_context")

    def show(address, body):
        page.route(address, lambda route: route.fulfill(content_type="text/html", body=body))

    def sign_in():
        """Get a link by mail, use it in another tab of this browser, and come back."""
        page.get_by_label("E-mail").fill("owner@example.com")
        page.get_by_role("button", name="Email me a sign-in link").click()
        page.get_by_text("a link is on its way").wait_for()
        assert page.request.post(f"{server.base}/enroll/{token_in(mailbox.next())}").ok
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.get_by_label("E-mail").wait_for(state="hidden")

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(asyncio.run, work())
        page = browse(own=True, refusals=True)
        allow = page.get_by_role("button", name="Allow", exact=True)
        show("http://elsewhere.example/", f'<a href="{escape(opened.get(timeout=PATIENCE))}">go</a>')
        show(f"{HERE}?*", "<title>Connected</title><p>Connected")
        page.goto("http://elsewhere.example/")
        page.get_by_role("link").click()
        page.get_by_text("Sign in first").wait_for()
        assert allow.count() == 0
        check_page(page)
        sign_in()
        check_page(page)
        assert page.locator("dd").all_inner_texts() == ["Official", "this computer"]
        for event in ("focus", "pageshow"):  # as if a window over it had closed at a double click
            allow.click(trial=True)  # it waits until that is possible
            assert page.evaluate(SHOWN_AGAIN, event)
        server.rows("UPDATE api_key SET created_at = '2026-01-01T00:00:00.000Z' WHERE is_session = 1")
        allow.click()
        page.get_by_text("more than 15 minutes ago").wait_for()
        sign_in()
        allow.click()
        page.get_by_text("Connected").wait_for()
        answered.put(page.url)
        names, context = working.result(PATIENCE)
    assert names == [name for name in NAMES if name != "create_project"]  # as for every key of scope agent
    assert context["you"] == "Olga Owner (owner, key of scope agent)"
    key = next(key for key in owner.read("/keys")["keys"] if key["name"] == "Official")
    assert (key["scope"], key["member"]["full_name"]) == ("agent", "Olga Owner")


TYPESCRIPT = """
import { createInterface } from "node:readline/promises";
import { auth } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const kept = {};
const redirectUrl = "http://127.0.0.1:1/callback";
const provider = {
  redirectUrl,
  clientMetadata: { client_name: "TypeScript", redirect_uris: [redirectUrl] },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  redirectToAuthorization: (url) => console.log(url.search.slice(1)),
};
const serverUrl = new URL(process.argv[2]);
const results = [await auth(provider, { serverUrl })];
const authorizationCode = await createInterface({ input: process.stdin }).question("");
results.push(await auth(provider, { serverUrl, authorizationCode }));
const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(serverUrl, { authProvider: provider }));
const { tools } = await client.listTools();
console.log(JSON.stringify({ results, scope: kept.tokens.scope, tools: tools.map(({ name }) => name) }));
process.exit();
"""


@pytest.mark.long
@needs_node
def test_the_client_in_typescript_connects_too(server, tmp_path):
    (tmp_path / "node_modules").symlink_to(npm_packages("@modelcontextprotocol/sdk@1.32.2"))
    (tmp_path / "connect.mjs").write_text(TYPESCRIPT)
    words, pipes = ["node", "connect.mjs", f"{server.base}/mcp"], {"stdin": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, **pipes) as program, ending(program):
        asked = {"query": program.stdout.readline().strip(), "scope": "read"}
        headers = {"Authorization": f"Bearer {OWNER_KEY}"}
        made = server.call("POST", "/api/v1/connections", json=asked, headers=headers).json()
        (code,) = parse_qs(urlsplit(made["data"]["location"]).query)["code"]
        program.stdin.write(f"{code}\n")
        program.stdin.flush()
        said = json.loads(program.stdout.readline())
    assert said["results"] == ["REDIRECT", "AUTHORIZED"]
    assert said["scope"] == "read"
    assert "get_task" in said["tools"]
    assert "create_task" not in said["tools"]


def test_strangers_keep_nobody_from_writing(server, owner):
    for path in CALLS:
        with closing(Line(server)) as stranger:
            stranger.socket.sendall(head("POST", path, [JSON, "Content-Length: 99"], None) + b"{")
            assert owner.make_project()["name"]  # it would be a 503 after 10 s
