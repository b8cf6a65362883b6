"""Programs that know only the address of /mcp: they register, a member allows them, and they get a key."""

import asyncio
import base64
import json
import queue
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests
from board import check_page
from harness import OWNER_KEY, PATIENCE, Server, at_once, ending, needs_node, npm_packages
from mailboxes import Mailbox, token_in
from test_enrollment_page import check_headers
from test_tools import NAMES
from test_tools_clients import use
from werkzeug.test import Client

import times
from app import create_app
from members import ApiKey, Member
from models import Project, Task, write
from parts import oauth
from parts.inbox import Notice
from wire import logged_path

BASE = "https://tasks.example.com"
VERIFIER = "v" * 50
CHALLENGE = base64.urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
HERE, CLAUDE = "http://localhost/callback", "https://claude.ai/api/mcp/auth_callback"
EVIL = "https://evil.example/cb"
DOCUMENTS = ("oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server")
DOCUMENTS = [f"/.well-known/{name}" for name in (*DOCUMENTS, "openid-configuration")]
CALLS = [f"/oauth/{name}" for name in ("register", "token", "revoke")]


def asking(client_id, base_url):
    """The parameters with which a program opens the page."""
    asked = {"response_type": "code", "client_id": client_id, "redirect_uri": HERE, "state": "a b&c"}
    asked |= {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}
    return asked | {"resource": f"{base_url}/mcp", "scope": "agent"}


def form_of(query, code):
    """The form with which the program gets its key."""
    form = {name: query[name] for name in ("client_id", "redirect_uri", "resource")}
    return form | {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER}


class Caller(Client):
    """Calls the application in this process."""

    base_url = BASE

    def api(self, method, path, body=None, key=OWNER_KEY, status=None, **headers):
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        answer = self.open(f"/api/v1{path}", method=method, json=body, headers=headers)
        if status is None:
            assert answer.status_code < 300, answer.text
            return answer.json["data"]
        assert answer.status_code == status, (path, answer.text)
        return answer.json["error"]

    def program(self, path, **options):
        """POST to a path of OAuth, and check what holds for all answers."""
        answer = self.post(path, **options)
        assert answer.headers["Cache-Control"] == "no-store", "RFC 6749, 5.1"
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.status_code < 300 or {"error", "error_description"} == answer.json.keys()
        return answer

    def register(self, *uris, **fields):
        """Register these addresses, and return the parameters with which the program opens the page."""
        made = self.program("/oauth/register", json={"redirect_uris": uris or [HERE, CLAUDE], **fields})
        return asking(made.json["client_id"], self.base_url)

    def allow(self, query, key=OWNER_KEY, **fields):
        """Allow it as the page does; return the address with the answer, and the form that gets the key."""
        body = {"query": urlencode(query), "scope": "agent", **fields}
        place, _, said = self.api("POST", "/connections", body, key)["location"].partition("?")
        said = {name: values[0] for name, values in parse_qs(said).items()}
        assert said.keys() == {"code", "state", "iss"}
        assert (said["iss"], said["state"], place) == (self.base_url, "a b&c", query["redirect_uri"])
        return form_of(query, said["code"])

    def connect(self, query, key=OWNER_KEY, **fields):
        """Return a new key for a program."""
        answer = self.program("/oauth/token", data=self.allow(query, key, **fields))
        assert answer.status_code == 200
        return answer.json["access_token"]

    def call(self, key, name=None, **arguments):
        """Call a tool, or list the tools; return the response, and the tool's text."""
        params = {"name": name, "arguments": arguments} if name else {}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call" if name else "tools/list"}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = self.post("/mcp", json=message | {"params": params}, headers=headers)
        return answer, answer.json["result"]["content"][0]["text"] if name else None

    def works(self, key):
        return self.call(key)[0].status_code == 200

    def member(self, role="member", **fields):
        """Return the key of a new member."""
        body = {"email": f"{role}-{times.new_id()}@example.com", "full_name": f"A {role}", "role": role}
        link = self.api("POST", "/members/invite", body | fields)["enrollment_link"]
        return self.api("POST", f"/enroll/{link.rpartition('/')[2]}", key=None)["api_key"]


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


def refused(answer, error, status=400):
    assert (answer.status_code, answer.json["error"]) == (status, error), answer.text


# The documents, and what is seen while it is off ------------------------------------------------


@pytest.mark.parametrize("base_url", [BASE, f"{BASE}:8443/team", "https://Bücher.example/büro"])
def test_a_401_leads_to_the_documents_which_name_every_address_below_base_url(serve, base_url):
    caller = serve(base_url)
    base_url = caller.base_url = base_url.replace("Bücher", "xn--bcher-kva").replace("ü", "%C3%BC")
    found = f'resource_metadata="{base_url}{DOCUMENTS[1]}", scope="agent"'
    for key in (None, "tmc_wrong", "tms_wrong", OWNER_KEY + "x"):
        answer, wrong = caller.call(key)[0], 'error="invalid_token", ' if key else ""
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == f"Bearer {wrong}{found}"
    resource, same, metadata, also = (caller.get(path).json for path in DOCUMENTS)
    assert (resource, metadata) == (same, also)
    assert resource["resource"] == f"{base_url}/mcp"
    assert resource["authorization_servers"] == [base_url] == [metadata["issuer"]]
    assert metadata["code_challenge_methods_supported"] == ["S256"]
    endpoints = [metadata[name] for name in metadata if name.endswith("_endpoint")]
    assert endpoints == [f"{base_url}/oauth/{name}" for name in ("authorize", "token", "register", "revoke")]
    for path in DOCUMENTS:
        assert caller.head(path).status_code == 200
        refused(caller.post(path), "method_not_allowed", 405)
    for path in CALLS:
        refused(caller.get(path), "method_not_allowed", 405)
    assert caller.post("/oauth/authorize").status_code == 405


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
        assert off.call(header)[0].headers["WWW-Authenticate"] == "Bearer"
    assert off.works(OWNER_KEY)
    seen, hidden = (one.get("/api/v1/openapi.json").json for one in (on, off))
    assert seen["paths"].keys() - hidden["paths"].keys() == {"/api/v1/connections"}
    added = seen["components"]["schemas"].keys() - hidden["components"]["schemas"].keys()
    assert added == {"ConnectBody", "Connection", "ConnectionAnswer"}


# Registration -----------------------------------------------------------------------------------


def test_a_registration_is_stored_nowhere_and_keeps_only_addresses_that_may_get_a_code(caller):
    keys = ApiKey.select().count()
    uris = [EVIL, "cursor://anysphere.cursor-mcp/oauth/callback", HERE, "http://[evil", "javascript:alert(1)"]
    body = {"redirect_uris": uris, "client_secret": "x", "jwks": {}, "application_type": "native"}
    answer = caller.program("/oauth/register", json=body)
    assert answer.status_code == 201
    assert answer.json["redirect_uris"] == uris[1:3]
    assert answer.json["token_endpoint_auth_method"] == "none"
    assert answer.json["client_name"] == "A program"
    assert "client_secret" not in answer.json
    assert caller.program("/oauth/register", json=body | {"client_name": None}).json == answer.json
    assert ApiKey.select().count() == keys


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("  Claude\u200b \u00adCode\u2060 ", "Claude Code"),
        ("n" * 100, "n" * 40),
        ("Claude” to Acme? It is safe, press Allow. “", "Claude” to Acme? It is safe, press Allow"),
        ("\u3164\u200b.", "\u3164."),
    ],
)
def test_the_name_that_a_program_gives_itself_is_short_and_visible_even_if_it_writes_its_id_itself(
    caller, name, shown
):
    query = caller.register(client_name=name)
    forged = base64.urlsafe_b64encode(json.dumps([name, [HERE]]).encode()).decode()
    for id in (query["client_id"], forged):
        page = caller.get("/oauth/authorize", query_string=query | {"client_id": id})
        assert page.headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert f"<dd><b>{shown}</b></dd>" in page.text


REGISTRATIONS = [
    ("invalid_redirect_uri", {"redirect_uris": [EVIL]}),
    ("invalid_redirect_uri", {"redirect_uris": ["http://localhost.evil.example/"]}),
    ("invalid_redirect_uri", {"redirect_uris": ["http://localhost/?a=b"]}),
    ("invalid_redirect_uri", {"redirect_uris": [f"http://localhost/{n}{'x' * 290}" for n in range(10)]}),
    ("invalid_client_metadata", {}),
    ("invalid_client_metadata", {"redirect_uris": []}),
    ("invalid_client_metadata", {"redirect_uris": [1]}),
    ("invalid_client_metadata", {"redirect_uris": HERE}),
    ("invalid_client_metadata", {"redirect_uris": [HERE] * 21}),
    ("invalid_client_metadata", {"redirect_uris": [HERE], "client_name": "x\u202ey"}),
    ("invalid_client_metadata", {"redirect_uris": [HERE], "client_name": "n" * 101}),
    ("invalid_client_metadata", {"redirect_uris": [HERE], "client_name": 5}),
    ("invalid_client_metadata", b"{"),
    ("invalid_client_metadata", b'{"a": 1, "a": 2}'),
    ("payload_too_large", b"x" * 1_100_000),
]


@pytest.mark.parametrize(("error", "body"), REGISTRATIONS)
def test_a_registration_is_refused(caller, error, body):
    sent = {"data": body, "content_type": "application/json"} if isinstance(body, bytes) else {"json": body}
    refused(caller.program("/oauth/register", **sent), error, 413 if error == "payload_too_large" else 400)


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
        page = caller.get(f"/oauth/authorize?{asked}")
        assert page.status_code == 400, (name, value)
        assert "Location" not in page.headers
        check_headers(page)
        assert "cannot be connected" in page.text
        assert "<form" not in page.text
        said = caller.api("POST", "/connections", {"query": asked, "scope": "read"}, status=422)
        assert said["details"][0]["field"] == "query"
        assert words in said["message"], (name, value, said)
    assert ApiKey.select().count() == keys


def test_a_repeated_parameter_is_refused_since_the_page_could_show_the_other_one(caller):
    query = urlencode(caller.register())
    many = "&".join("abcdefghij" * 9)
    for more in (f"redirect_uri={CLAUDE}", f"redirect%5Furi={CLAUDE}", "scope=agent", many):
        assert caller.get(f"/oauth/authorize?{query}&{more}").status_code == 400
        caller.api("POST", "/connections", {"query": f"{query}&{more}", "scope": "read"}, status=422)
    shown = caller.get(f"/oauth/authorize?{query}&name=Bank&place=bank.example&only_reads=&base_url=x").text
    assert "bank" not in shown.lower().replace("blank", "")
    assert "this computer" in shown


@pytest.mark.parametrize(
    "change",
    [
        {"redirect_uri": "http://localhost:50123/callback"},
        {"redirect_uri": CLAUDE},
        {"resource": ""},
        {"resource": BASE},
        {"resource": "https://Tasks.example.com/mcp/"},
        {"scope": ""},
        {"scope": "read agent write"},
    ],
)  # fmt: skip
def test_ports_of_this_computer_are_free_and_the_resource_may_be_left_out(caller, change):
    query = caller.register() | change
    form = caller.allow(query)
    answer = caller.program("/oauth/token", data=form)
    assert (answer.json["scope"], answer.json["token_type"]) == ("agent", "Bearer")
    assert 179 < answer.json["expires_in"] / 86400 <= 180


def test_a_program_that_asks_to_read_is_offered_no_more(caller):
    query = caller.register() | {"scope": "read"}
    page = caller.get("/oauth/authorize", query_string=query).text
    assert 'value="read" checked' in page
    assert 'value="agent"' not in page
    said = caller.api("POST", "/connections", {"query": urlencode(query), "scope": "agent"}, status=422)
    assert said["details"][0]["field"] == "scope"
    assert caller.program("/oauth/token", data=caller.allow(query, scope="read")).json["scope"] == "read"


def test_more_addresses_can_be_allowed_and_the_days_be_set(serve):
    caller = serve(callbacks=["https://chat.example/cb"], days=1)
    query = caller.register(CLAUDE, "https://chat.example/cb") | {"redirect_uri": "https://chat.example/cb"}
    assert "<b>chat.example</b>" in caller.get("/oauth/authorize", query_string=query).text
    expires_in = caller.program("/oauth/token", data=caller.allow(query)).json["expires_in"]
    assert 86300 < expires_in <= 86400
    assert caller.get("/oauth/authorize", query_string=query | {"redirect_uri": CLAUDE}).status_code == 400


# The members who allow ---------------------------------------------------------------------------


def test_a_key_allows_no_more_than_it_may_itself(caller):
    query = caller.register()
    body = {"query": urlencode(query), "scope": "read"}
    for scope in ("read", "agent"):
        key = caller.api("POST", "/keys", {"name": scope, "scope": scope})["api_key"]
        caller.api("POST", "/connections", body, key, status=403)
    caller.api("POST", "/connections", body, key=None, status=401)
    for scope in ("write", "calendar", "admin", None, ""):
        caller.api("POST", "/connections", body | {"scope": scope}, status=422)
    owner, member = caller.api("GET", "/me")["member"]["id"], caller.member()
    caller.api("POST", "/connections", body | {"member_id": owner}, member, status=403)
    soon = caller.api("POST", "/keys", {"name": "Soon", "expires_at": times.now(3600)})["api_key"]
    assert caller.program("/oauth/token", data=caller.allow(query, soon)).json["expires_in"] <= 3600
    caller.api("POST", "/connections", body, Idempotency_Key="x", status=422)  # the code is not stored


def test_only_our_own_page_allows_with_a_session_that_is_not_old(caller):
    body = {"query": urlencode(caller.register()), "scope": "agent"}
    caller.api("POST", "/session", {"api_key": OWNER_KEY}, key=None)
    ours, keys = {"X-Requested-With": "page"}, ApiKey.select().count()
    for site in (
        {},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", **ours},
    ):
        caller.api("POST", "/connections", body, key=None, status=401, **site)
    ApiKey.update({ApiKey.created_at: times.now(-1000)}).where(ApiKey.is_session == 1).execute()
    said = caller.api("POST", "/connections", body, key=None, status=403, **ours)
    assert "more than 15 minutes ago" in said["message"]
    assert ApiKey.select().count() == keys
    caller.api("POST", "/session", {"api_key": OWNER_KEY}, key=None)
    assert caller.api("POST", "/connections", body, key=None, **ours)["location"].startswith(f"{HERE}?code=")


def test_an_admin_connects_a_program_for_an_agent_and_a_client_sees_only_its_projects(caller):
    query, agent = caller.register(), caller.member(full_name="Build agent")
    id = caller.api("GET", "/me", key=agent)["member"]["id"]
    _, context = caller.call(caller.connect(query, member_id=id), "get_context")
    assert json.loads(context)["you"] == "Build agent (member, key of scope agent)"
    with write(Member.active_owners.one()) as transaction:
        theirs, other = (Project.add(transaction, name=name) for name in ("Theirs", "Other"))
        seen, hidden = (Task.add(transaction, project_id=one["id"], title="T") for one in (theirs, other))
    key = caller.connect(query, caller.member("client", project_ids=[theirs["id"]]))
    assert caller.call(key, "get_task", task_id=str(seen["number"]))[1].startswith("{")
    assert caller.call(key, "get_task", task_id=str(hidden["number"]))[1].startswith("not_found")


def test_a_person_who_has_only_a_program_is_asked_and_an_agent_is_not(caller):
    key = caller.member()
    id = caller.api("GET", "/me", key=key)["member"]["id"]
    caller.connect(caller.register(), key)
    ApiKey.delete().where(ApiKey.member == id, ApiKey.scope == "write").execute()
    assert not Notice.is_program(id)
    with write(Member.active_owners.one()) as transaction:
        ApiKey.issue(transaction, id, name="Agent", scope="agent")
    assert Notice.is_program(id)


# Codes and keys ---------------------------------------------------------------------------------

TOKENS = [
    ("invalid_grant", {"code_verifier": "w" * 50}),
    ("invalid_grant", {"code_verifier": ""}),
    ("invalid_grant", {"code_verifier": CHALLENGE}),
    ("invalid_grant", {"code_verifier": VERIFIER + " "}),
    ("invalid_grant", {"redirect_uri": "http://localhost:1/callback"}),
    ("invalid_grant", {"redirect_uri": CLAUDE}),
    ("invalid_grant", {"client_id": ""}),
    ("invalid_grant", {"code": ""}),
    ("invalid_grant", {"code": "é\x00"}),
    ("invalid_target", {"resource": "https://evil.example/mcp"}),
    ("invalid_request", {"grant_type": ""}),
    ("unsupported_grant_type", {"grant_type": "refresh_token"}),
    ("unsupported_grant_type", {"grant_type": "client_credentials"}),
]


def test_a_code_gets_one_key_once_and_only_for_the_program_that_asked(caller):
    form = caller.allow(caller.register())
    other = caller.register(client_name="Other")["client_id"]
    for error, change in (*TOKENS, ("invalid_grant", {"client_id": other})):
        refused(caller.program("/oauth/token", data=form | change), error)
    address, _, digest = form["code"].partition(".")
    for code in (address, f"{address}.", f"{address}.{digest[::-1]}", f"{form['code']}.{digest}"):
        sent = form | {"code": code, "redirect_uri": ""}
        refused(caller.program("/oauth/token", data=sent), "invalid_grant")
    refused(caller.program("/oauth/token", data=urlencode(form) + "&code=x"), "invalid_request")
    refused(caller.program("/oauth/token", json=form), "invalid_request")
    refused(caller.program(f"/oauth/token?{urlencode(form)}"), "invalid_request")
    del form["redirect_uri"]  # as OAuth 2.1
    key = caller.program("/oauth/token", data=form).json["access_token"]
    refused(caller.program("/oauth/token", data=form), "invalid_grant")
    assert caller.works(key)


def test_a_short_verifier_is_refused_even_if_its_challenge_fits(caller):
    challenge = oauth.base64url(sha256(b"short").digest())
    form = caller.allow(caller.register() | {"code_challenge": challenge})
    refused(caller.program("/oauth/token", data=form | {"code_verifier": "short"}), "invalid_grant")


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
        assert caller.program("/oauth/token", data=forms[0]).status_code == 200
        times.put_ahead(61)
        refused(caller.program("/oauth/token", data=forms[1]), "invalid_grant")
    finally:
        times.put_ahead(0)
    assert [ApiKey.delete_ended.run(before=times.now(seconds), most=9) for seconds in (-60, 60)] == [0, 2]


def test_the_key_works_at_the_tools_alone_and_does_what_its_scope_allows(caller):
    query = caller.register(client_name="A <b>program</b>")
    with write(Member.active_owners.one()) as transaction:
        task = Task.add(transaction, project_id=Project.add(transaction, name="P")["id"], title="A task")
    number = str(task["number"])
    reader, agent = (caller.connect(query, scope=scope) for scope in ("read", "agent"))
    for key in (reader, agent):
        assert json.loads(caller.call(key, "get_task", task_id=number)[1])["title"] == "A task"
        for path in ("/me", "/keys", "/tasks", "/context", "/health", "/nothing"):
            caller.api("GET", path, key=key, status=401)
        for path in ("/keys", "/connections", f"/tasks/{number}/claim"):
            caller.api("POST", path, {}, key, status=401)
        caller.api("POST", "/session", {"api_key": key}, key=None, status=401)
        for path in ("/metrics", f"/calendar/{key}.ics", "/mcp/../api/v1/me"):
            answer = caller.get(path, headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code in (401, 404), path
        assert key[12:] not in logged_path(f"/calendar/{key}")
        assert key[12:] not in logged_path(f"/x/{key}")
    caller.call(agent, "add_comment", task_id=number, content="By the program")
    assert caller.api("GET", f"/tasks/{number}/comments")["comments"][-1]["via"] == "A <b>program</b>"
    assert caller.call(reader, "add_comment", task_id=number, content="x")[1].startswith("forbidden")
    keys = [key for key in caller.api("GET", "/keys")["keys"] if key["prefix"].startswith("tmc_")]
    assert [key["scope"] for key in keys] == ["read", "agent"]
    assert {key["name"] for key in keys} == {"A <b>program</b>"}
    assert all(key["last_used_at"] and key["expires_at"] for key in keys)


def test_the_key_ends_with_its_maker_with_its_member_and_when_it_is_given_back(caller):
    query, member = caller.register(), caller.member()
    by_hand, given_back, last = (caller.connect(query, member) for _ in range(3))
    keys = [key for key in caller.api("GET", "/keys", key=member)["keys"] if key["prefix"][:4] == "tmc_"]
    caller.api("DELETE", f"/keys/{keys[0]['id']}", key=member)
    assert [caller.works(key) for key in (by_hand, given_back, last)] == [False, True, True]
    for token in (given_back, given_back, "unknown", member):  # RFC 7009: always a success
        assert caller.program("/oauth/revoke", data={"token": token}).status_code == 200
    assert [caller.works(key) for key in (given_back, last, member)] == [False, True, True]
    maker = caller.api("POST", "/keys", {"name": "Maker"}, member)["api_key"]
    made, waiting = caller.connect(query, maker), caller.allow(query, maker)
    id = caller.api("GET", "/me", key=maker)["key"]["id"]
    caller.api("DELETE", f"/keys/{id}?made=true", key=member)
    form = caller.allow(query, member)
    assert not caller.works(made)
    caller.api("DELETE", f"/members/{caller.api('GET', '/me', key=member)['member']['id']}")
    assert not caller.works(last)
    for one in (waiting, form):
        refused(caller.program("/oauth/token", data=one), "invalid_grant")


# A real server, real programs and a real browser -------------------------------------------------


class Here(Server):
    """A server whose base_url is its address."""

    def run_gunicorn(self, listener, arguments):
        self.environment["TASKS_SERVER__BASE_URL"] = self.base
        return super().run_gunicorn(listener, arguments)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = {"TASKS_OAUTH__ENABLED": "true", "TASKS_SERVER__SIGN_IN_HEADER": "Remote-Email"}
    settings["TASKS_SERVER__SIGN_IN_NETWORKS"] = '["127.0.0.1/32"]'
    server = Here(tmp_path_factory.mktemp("server"), **settings).start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def query(server):
    body = {"client_name": "A <b>program</b>", "redirect_uris": [HERE]}
    made = requests.post(f"{server.base}/oauth/register", json=body, timeout=PATIENCE).json()
    return asking(made["client_id"], server.base)


@pytest.fixture
def elsewhere():
    """A site that is not ours: a page in `html`, and a place where a program waits for its code in `said`."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self):
            path, _, query = self.path.partition("?")
            if path == "/callback":
                site.said.put({name: values[0] for name, values in parse_qs(query).items()})
            body = f"<!doctype html><title>Elsewhere</title>{site.html if path == '/' else ''}".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        site.html, site.said = "", queue.Queue()
        site.base = f"http://localhost:{site.server_address[1]}"
        yield site
        site.shutdown()


def open_from(elsewhere, page, server, query):
    """Come to the page by a link of another site, where browsers send no cookie that is for ours alone."""
    asked = query | {"redirect_uri": f"{elsewhere.base}/callback"}
    address = f"{server.base}/oauth/authorize?{urlencode(asked)}".replace("&", "&amp;")
    elsewhere.html = f'<a href="{address}">go</a>'
    page.goto(elsewhere.base)
    page.get_by_role("link").click()
    return page


def enter(page):
    """Sign in on the page as the owner."""
    page.get_by_label("API key").fill(OWNER_KEY)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("API key").wait_for(state="hidden")


def provider(server, elsewhere, opened):
    """The official client's own OAuth, as a program on this computer uses it."""
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    class Storage:
        tokens = info = None

        async def get_tokens(self):
            return self.tokens

        async def set_tokens(self, tokens):
            self.tokens = tokens

        async def get_client_info(self):
            return self.info

        async def set_client_info(self, info):
            self.info = info

    async def open_browser(url):
        opened.put(url)

    async def wait_for_answer():
        return AuthorizationCodeResult(**await asyncio.to_thread(elsewhere.said.get, True, PATIENCE))

    uris, kind = [f"{elsewhere.base}/callback"], {"token_endpoint_auth_method": "none"}
    about = OAuthClientMetadata(client_name="Official", redirect_uris=uris, **kind)
    return OAuthClientProvider(f"{server.base}/mcp", about, Storage(), open_browser, wait_for_answer)


def test_the_official_client_connects_with_nothing_but_the_address(server, owner, browse, elsewhere):
    opened = queue.Queue()

    async def work():
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        auth = provider(server, elsewhere, opened)
        async with (
            httpx2.AsyncClient(auth=auth, timeout=PATIENCE, trust_env=False) as http,
            Client(streamable_http_client(f"{server.base}/mcp", http_client=http)) as client,
        ):
            names = [tool.name for tool in (await client.list_tools()).tools]
            return names, await use(client, "get_context")

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(asyncio.run, work())
        page = browse(own=True, refusals=True)
        page.goto(opened.get(timeout=PATIENCE))
        page.get_by_text("Sign in first").wait_for()
        assert page.get_by_role("button", name="Allow").count() == 0
        check_page(page)
        enter(page)
        check_page(page)
        assert page.locator("dd").all_inner_texts() == ["Official", "this computer"]
        page.get_by_role("button", name="Allow").click()
        names, context = working.result(PATIENCE)
    assert names == [name for name in NAMES if name != "create_project"]  # as for every key of scope agent
    assert context["you"] == "Olga Owner (owner, key of scope agent)"
    key = next(key for key in owner.read("/keys")["keys"] if key["name"] == "Official")
    assert (key["scope"], key["member"]["full_name"]) == ("agent", "Olga Owner")


TYPESCRIPT = """
import { createServer } from "node:http";
import { auth } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const kept = {};
const codes = Promise.withResolvers();
const waiting = createServer(({ url }, response) => {
  codes.resolve(new URL(url, "http://localhost").searchParams.get("code"));
  response.setHeader("Content-Type", "text/html");
  response.end("<!doctype html><title>Connected</title>");
});
await new Promise((listening) => waiting.listen(0, "127.0.0.1", listening));
const redirectUrl = `http://127.0.0.1:${waiting.address().port}/callback`;
const provider = {
  redirectUrl,
  clientMetadata: { client_name: "TypeScript", redirect_uris: [redirectUrl] },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  redirectToAuthorization: (url) => console.log(url.href),
};
const serverUrl = new URL(process.argv[2]);
const results = [await auth(provider, { serverUrl })];
results.push(await auth(provider, { serverUrl, authorizationCode: await codes.promise }));
const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(serverUrl, { authProvider: provider }));
const { tools } = await client.listTools();
console.log(JSON.stringify({ results, scope: kept.tokens.scope, tools: tools.map(({ name }) => name) }));
process.exit();
"""


@needs_node
def test_the_client_in_typescript_connects_too(server, browse, tmp_path):
    (tmp_path / "node_modules").symlink_to(npm_packages("@modelcontextprotocol/sdk@1.32.2"))
    script = TYPESCRIPT.replace(
        "Promise.withResolvers()", "{}; codes.promise = new Promise((resolve) => (codes.resolve = resolve))"
    )
    (tmp_path / "connect.mjs").write_text(script)
    words = ["node", "connect.mjs", f"{server.base}/mcp"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as program, ending(program):
        page = browse(own=True, refusals=True)
        page.goto(program.stdout.readline())
        enter(page)
        page.get_by_label("Read only").check()
        page.get_by_role("button", name="Allow").click()
        said = json.loads(program.stdout.readline())
    assert said["results"] == ["REDIRECT", "AUTHORIZED"]
    assert said["scope"] == "read"
    assert "get_task" in said["tools"]
    assert "create_task" not in said["tools"]


def test_an_old_session_signs_in_again_and_a_refusal_reaches_the_program(server, browse, query, elsewhere):
    page = browse(own=True, refusals=True)
    page.request.post(f"{server.base}/api/v1/session", data={"api_key": OWNER_KEY})
    open_from(elsewhere, page, server, query)
    page.get_by_role("button", name="Allow").wait_for()
    server.rows("UPDATE api_key SET created_at = '2026-01-01T00:00:00.000Z' WHERE is_session = 1")
    page.get_by_role("button", name="Allow").click()
    page.get_by_text("more than 15 minutes ago").wait_for()
    enter(page)
    page.get_by_role("link", name="Do not allow").click()
    said = elsewhere.said.get(timeout=PATIENCE)
    assert said == {"error": "access_denied", "state": "a b&c", "iss": server.base}


def test_a_mailed_link_signs_the_page_in_that_waits_in_another_tab(tmp_path, browse, elsewhere):
    box = Mailbox()
    server = Here(
        tmp_path, TASKS_OAUTH__ENABLED="true", TASKS_MAIL__URL=box.url, TASKS_MAIL__FROM="t@example.com"
    )
    server.start()
    body = {"redirect_uris": [f"{elsewhere.base}/callback"]}
    made = requests.post(f"{server.base}/oauth/register", json=body, timeout=PATIENCE).json()
    page = open_from(
        elsewhere, browse(own=True, refusals=True), server, asking(made["client_id"], server.base)
    )
    page.get_by_label("E-mail").fill("owner@example.com")
    page.get_by_role("button", name="Email me a sign-in link").click()
    page.get_by_text("a link is on its way").wait_for()
    assert page.request.post(f"{server.base}/enroll/{token_in(box.next())}").ok
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # as coming back to the tab does
    page.get_by_role("button", name="Allow").click()
    form = form_of(asking(made["client_id"], server.base), elsewhere.said.get(timeout=PATIENCE)["code"])
    del form["redirect_uri"]
    assert requests.post(f"{server.base}/oauth/token", data=form, timeout=PATIENCE).json()["scope"] == "agent"
    page.close()
    box.close()
    assert server.stop() == 0


def test_a_person_whom_a_proxy_signs_in_only_has_to_allow(server, browse, query, elsewhere, owner):
    proxy = {"Remote-Email": owner.member["email"]}
    page = open_from(elsewhere, browse(own=True, extra_http_headers=proxy, refusals=True), server, query)
    page.get_by_role("button", name="Allow").wait_for()
    assert page.get_by_label("It works in the name of").locator("option:checked").inner_text() == "Olga Owner"
    page.get_by_role("button", name="Allow").click()
    assert elsewhere.said.get(timeout=PATIENCE)["code"]


def test_no_page_of_another_site_can_allow_read_or_click_the_page(server, browse, query, elsewhere):
    page, opened = browse(own=True, refusals=True), f"{server.base}/oauth/authorize?{urlencode(query)}"
    page.request.post(f"{server.base}/api/v1/session", data={"api_key": OWNER_KEY})
    before = server.rows("SELECT count(*) AS n FROM api_key")
    page.goto(elsewhere.base)
    post = "([url, body]) => fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include', body})"
    body = json.dumps({"query": urlencode(query), "scope": "agent"})
    page.evaluate(f"{post}.then(() => 1)", [f"{server.base}/api/v1/connections", body])
    with page.expect_popup() as popup:
        page.evaluate("url => void (window.victim = window.open(url))", opened)
    popup.value.get_by_role("button", name="Allow").wait_for()
    read = "reads => { try { return eval(`victim.${reads}`); } catch ({ name }) { return name; } }"
    assert {page.evaluate(read, one) for one in ("document", "allow", "eval")} == {"SecurityError"}
    button = popup.value.get_by_role("button", name="Allow")
    popup.value.evaluate("window.dispatchEvent(new Event('focus'))")  # as if another window had just closed
    assert button.is_disabled()
    button.click(trial=True)  # it waits until that is possible
    popup.value.close()
    assert server.rows("SELECT count(*) AS n FROM api_key") == [{"n": before[0]["n"]}]


def test_strangers_keep_nobody_from_writing(server, owner):
    for path in CALLS:
        with socket.create_connection(("127.0.0.1", int(server.base.rpartition(":")[2]))) as stranger:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99"
            stranger.sendall(f"{head}\r\n\r\n{{".encode())
            assert owner.make_project()["name"]  # it would be a 503 after 10 s


def test_of_calls_at_the_same_time_one_gets_the_key(server, query):
    bearer = {"Authorization": f"Bearer {OWNER_KEY}"}
    for _ in range(3):
        body = {"query": urlencode(query), "scope": "agent"}
        path, sent = f"{server.base}/api/v1/connections", {"json": body, "headers": bearer}
        location = requests.post(path, timeout=PATIENCE, **sent).json()["data"]["location"]
        form = form_of(query, parse_qs(urlsplit(location).query)["code"][0])
        send = partial(requests.post, f"{server.base}/oauth/token", data=form, timeout=PATIENCE)
        answers = at_once(*[send] * 8)
        assert sorted(answer.status_code for answer in answers) == [200, *[400] * 7]
