"""The Model Context Protocol at /mcp, as it is on the wire."""

import base64
import json
from contextlib import closing
from itertools import product

import pytest
from clients import JSON, Line, head
from harness import OWNER_KEY

from parts import tools

NEEDS_SOCKET = False
META = "io.modelcontextprotocol/"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
SUPPORTED = [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
CALL = "tools/call"


def exchange(server, body=None, *, method="POST", key=OWNER_KEY, path="/mcp", **headers):
    """Send a request, and check what holds for every answer."""
    given = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    given |= {name.replace("_", "-"): text for name, text in headers.items()}
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    answer = server.call(method, path, data=raw, headers=given)
    assert answer.status_code < 500, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    assert not [name for name in answer.headers if name.startswith(("Access-Control", "Mcp-Session"))]
    if answer.content:
        assert answer.headers["Content-Type"] == "application/json"
        message = answer.json()
        assert message["jsonrpc"] == "2.0"
        assert set(message) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    return answer


def message(method="ping", **params):
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def modern(method, *, version=MODERN, **params):
    """The body of a modern request, and its headers."""
    meta = {f"{META}protocolVersion": version, f"{META}clientCapabilities": {}}
    meta[f"{META}clientInfo"] = {"name": "tests", "version": "1"}
    headers = {"MCP_Protocol_Version": version, "Mcp_Method": method}
    if "name" in params:
        headers["Mcp_Name"] = params["name"]
    return message(method, **params, _meta=meta), headers


def exchange_modern(server, method, **params):
    body, headers = modern(method, **params)
    return exchange(server, body, **headers)


def error_of(answer):
    return answer.status_code, answer.json()["error"]["code"], answer.json()["id"]


def result_of(answer):
    assert answer.status_code == 200
    assert answer.json()["id"] == 7
    return answer.json()["result"]


def test_only_local_pages_and_our_own_may_call(configured):
    ours = ["http://localhost", "http://localhost:5173", "http://127.0.0.1:8000", "http://[::1]:3000"]
    for origin in (*ours, "https://tasks.example.com"):
        assert exchange(configured, message(), Origin=origin).status_code == 200, origin
    for origin in (
        *("https://tasks.example.com:8443", "http://tasks.example.com", "https://evil.example"),
        *("https://tasks.example.com.evil.example", "http://localhost:80@evil.example", "null", ""),
        *("http://127.0.0.10", "vscode-webview://localhost"),
    ):
        assert error_of(exchange(configured, message(), Origin=origin)) == (403, -32600, None), origin


@pytest.fixture(scope="module")
def configured(launch_here_module):
    """A server whose origin has a default port and a path."""
    return launch_here_module(
        TASKS_SERVER__BASE_URL="https://Tasks.example.com:443/team",
        TASKS_SERVER__TRUSTED_PROXIES="1",
        TASKS_WORKSPACE__AI_INSTRUCTIONS="Ask Olga first. " + "ü" * 5000,
    )


def test_only_post_of_json_is_taken_whatever_other_headers_say(server):
    for method, key in product(("GET", "HEAD", "DELETE", "OPTIONS", "PUT", "PATCH"), (OWNER_KEY, None)):
        answer = exchange(server, method=method, key=key)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    for kind in ("", "text/plain", "text/json", "application/json; charset=latin1"):
        assert error_of(exchange(server, message(), Content_Type=kind)) == (415, -32600, None)
    json_too = {"Content_Type": "Application/JSON; charset=utf-8"}
    for other in (json_too, {"Accept": "text/x"}, {"path": "/mcp/"}):
        assert result_of(exchange(server, message(), **other)) == {}


def test_the_body_is_as_limited_as_the_api_s(launch):
    server = launch(TASKS_SERVER__MAX_BODY_BYTES="2048", BOUND_READ_SECONDS="2")
    assert error_of(exchange(server, message(text="x" * 3000))) == (413, -32600, None)
    chunks = iter([b'{"jsonrpc": "2.0", "id": 7', b" " * 4000, b"}"])
    headers = {"Authorization": f"Bearer {OWNER_KEY}", "Content-Type": "application/json"}
    answer = server.call("POST", "/mcp", data=chunks, headers=headers)
    assert error_of(answer) == (413, -32600, None)
    assert result_of(exchange(server, message(text="x" * 1000))) == {}
    with closing(Line(server)) as line:  # one that stops coming
        line.socket.sendall(head("POST", "/mcp", [JSON, "Content-Length: 99"]) + b'{"id"')
        assert line.code() == (408, -32600)


NO_JSON_TEXT = [b"", b"{", b"\xff\xfe", b'{"id": NaN}', b'{"id": 1, "id": 2}', b"[" * 3000]
WRONG_MEMBERS = [
    *[{"jsonrpc": version} for version in ("1.0", 2.0)],
    *[{"method": method} for method in (1, None)],
    *[{"id": id} for id in (None, True, 1.5, [1], 10**30, "\ud800")],
    *[{"params": params} for params in ([1], "", 0)],
]
NO_MESSAGE = [[], [message()], "ping", {}, {"jsonrpc": "2.0", "id": 7, "result": {}}]
NO_MESSAGE += [message() | wrong for wrong in WRONG_MEMBERS]


def test_malformed_messages_are_refused(server):
    for code, bodies in ((-32700, NO_JSON_TEXT), (-32600, NO_MESSAGE)):
        for body in bodies:
            assert error_of(exchange(server, body)) == (400, code, None), body


def test_an_answer_has_the_request_s_id(server):
    for id in ("", "a", "ünï", 0, -1, 2**53 - 1):
        ping = {"jsonrpc": "2.0", "id": id, "method": "ping"}  # params may be absent, or null or PHP's {}
        for given in (ping, ping | {"params": None}, ping | {"params": []}):
            assert exchange(server, given).json() == {"jsonrpc": "2.0", "id": id, "result": {}}
        assert exchange(server, message("nothing") | {"id": id}).json()["id"] == id


def test_a_notification_is_accepted_and_nothing_is_done(server, owner):
    before = len(owner.read("/projects")["projects"])
    call = message(CALL, name="create_project", arguments={"name": "Not made"})
    body, headers = modern(CALL, name="create_project", arguments={"name": "Not made"})
    del call["id"], body["id"]
    others = [{"jsonrpc": "2.0", "method": method} for method in ("notifications/initialized", "no/such")]
    for sent, given in ((call, {}), (body, headers), *[(other, {}) for other in others]):
        answer = exchange(server, sent, **given)
        assert (answer.status_code, answer.content) == (202, b"")
    assert len(owner.read("/projects")["projects"]) == before


def test_initialize_agrees_on_a_version_and_returns_short_instructions(configured):
    """Any version in the header of a client that begins so is accepted."""
    for asked in (*tools.LEGACY_VERSIONS, MODERN, "soon", None, []):
        answered = asked if asked in tools.LEGACY_VERSIONS else LEGACY
        body = message("initialize", protocolVersion=asked, capabilities={})
        for headers in ({}, *({"MCP_Protocol_Version": one} for one in (MODERN, "2099-01-01", LEGACY))):
            result = result_of(exchange(configured, body, **headers))
            assert (result["protocolVersion"], result["capabilities"]) == (answered, {"tools": {}}), headers
            assert set(result["serverInfo"]) == {"name", "version"}
            assert set(result) == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
            assert tools.INSTRUCTIONS + "Ask Olga first." in result["instructions"]
            assert len(result["instructions"]) <= 2048


def test_results_say_in_the_stateless_era_alone_that_they_are_complete(server):
    """And an older request needs no initialize."""
    assert set(result_of(exchange(server, message("tools/list")))) == {"tools"}
    assert set(result_of(exchange(server, message(CALL, name="list_meetings")))) == {"content"}
    found, listed = (result_of(exchange_modern(server, name)) for name in ("server/discover", "tools/list"))
    called = result_of(exchange_modern(server, CALL, name="list_meetings", arguments={}))
    said = [(result["resultType"], result.get("cacheScope")) for result in (found, listed, called)]
    assert said == [("complete", "private")] * 2 + [("complete", None)]
    for result in (found, called):
        assert set(result["_meta"][f"{META}serverInfo"]) == {"name", "version"}
    assert found["supportedVersions"] == SUPPORTED
    assert (found["capabilities"], found["ttlMs"] > 0) == ({"tools": {}}, True)


def test_prompts_and_resources_are_empty_lists(server):
    """Some clients ask for them, although they are not announced, and drop a server that fails."""
    for method, name in (
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ):
        for version in (*tools.LEGACY_VERSIONS, None):
            headers = {"MCP_Protocol_Version": version} if version else {}
            assert result_of(exchange(server, message(method), **headers)) == {name: []}
        result = result_of(exchange_modern(server, method))
        assert (result[name], result["resultType"], result["ttlMs"] > 0) == ([], "complete", True)


def test_an_error_has_a_status_in_the_stateless_era_alone(server):
    """Clients of the older era take any other than 200 for the end of the connection."""
    for method, params, status, code in (
        *((method, {}, 404, -32601) for method in ("no/such", "resources/read")),
        *((CALL, params, 400, -32602) for params in ({"name": "no_such_tool"}, {})),
        *((CALL, {"name": "list_meetings", "arguments": wrong}, 400, -32602) for wrong in ([1], "x")),
    ):
        assert error_of(exchange_modern(server, method, **params)) == (status, code, 7)
        for older in (message(method, **params), message(method, **params, _meta={"progressToken": 1})):
            assert error_of(exchange(server, older)) == (200, code, 7)


def test_arguments_may_be_json_in_a_text_or_the_nothing_of_other_languages(server):
    for arguments in (None, [], "", "null", "{}", '{"limit": "1"}'):
        answer = exchange(server, message(CALL, name="find_tasks", arguments=arguments))
        assert "isError" not in result_of(answer)
    for arguments in ([1], 5, "5", "x", True):
        answer = exchange(server, message(CALL, name="find_tasks", arguments=arguments))
        assert error_of(answer) == (200, -32602, 7)


def test_methods_and_members_of_one_era_are_not_those_of_the_other(server):
    for method in ("initialize", "ping"):
        assert error_of(exchange_modern(server, method)) == (404, -32601, 7)
    assert error_of(exchange(server, message("server/discover"))) == (200, -32601, 7)
    for name in ("clientCapabilities", "protocolVersion"):
        body, headers = modern("tools/list")
        body["params"]["_meta"][META + name] = 5
        assert error_of(exchange(server, body, **headers)) == (400, -32602, 7)


def test_modern_headers_say_what_the_body_says(server):
    """A header may be wrapped, and a client need not say its name."""
    body, headers = modern(CALL, name="list_meetings")
    wrong = (None, "", "other", "=?base64?!?=", "=?base64?é?=", "=?base64?/w==?=")
    for name, text in product(("MCP_Protocol_Version", "Mcp_Method", "Mcp_Name"), wrong):
        others = {other: said for other, said in headers.items() if other != name}
        answer = exchange(server, body, **others | ({} if text is None else {name: text}))
        assert error_of(answer) == (400, -32020, 7), (name, text)
        assert name.replace("_", "-") in answer.json()["error"]["message"]
    del body["params"]["_meta"][f"{META}clientInfo"]
    wrapped = base64.b64encode(b"list_meetings").decode()
    assert result_of(exchange(server, body, **headers | {"Mcp_Name": f"=?base64?{wrapped}?="}))["content"]


def unknown(answer, version):
    """The refusal of this version, which names the known ones."""
    assert error_of(answer) == (400, -32022, 7)
    assert answer.json()["error"]["data"] == {"supported": SUPPORTED, "requested": version}


@pytest.mark.parametrize("method", ["ping", "tools/list", CALL])
def test_an_unknown_version_is_refused_and_without_meta_the_stateless_one_too(server, method):
    for version in (LEGACY, "2099-01-01", "x"):
        unknown(exchange_modern(server, method, version=version), version)
    body = message(method, name="list_meetings")
    for given in (body, message(method, _meta=5), message(method, _meta={"progressToken": 1})):
        assert error_of(exchange(server, given, MCP_Protocol_Version=MODERN)) == (400, -32602, 7)
        for version in ("2099-01-01", "2024-10-07", "x", ""):
            unknown(exchange(server, given, MCP_Protocol_Version=version), version)
    for version in tools.LEGACY_VERSIONS:
        assert result_of(exchange(server, body, MCP_Protocol_Version=version)) is not None


def test_a_bug_is_an_internal_error_with_the_request_s_id(launch_here):
    server = launch_here()
    server.allow_bugs = True
    server.rows("ALTER TABLE whiteboard RENAME TO elsewhere")
    older = exchange(server, message(CALL, name="get_context"))
    for answer in (older, exchange_modern(server, CALL, name="get_context")):
        assert error_of(answer) == (200, -32603, 7)
        assert answer.headers["X-Request-Id"] in answer.json()["error"]["message"]
        assert answer.headers["X-Request-Id"] in server.log.read_text()
        assert "whiteboard" not in answer.text


def test_the_log_has_the_request_and_the_calls_that_it_made_under_one_id(server, capfd):
    def lines(answer):
        id = answer.headers["X-Request-Id"]
        return [line.split()[1:4] for line in capfd.readouterr().out.splitlines() if id in line]

    answer = exchange(server, message(CALL, name="list_meetings"))
    calls = [["GET", f"/api/v1/{kind}", "200"] for kind in ("meetings", "projects")]
    assert lines(answer) == [*calls, ["POST", "/mcp", "200"]]
    refused = exchange(server, message(), key=OWNER_KEY + "x")
    assert lines(refused) == [["POST", "/mcp", "401"]]
