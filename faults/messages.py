"""Generated messages to the gateway and to the agents' tools, by the schemas that the server shows."""

import json
from collections.abc import Callable
from typing import Any

import requests
from answers import Tally
from findings import Run
from harness import PATIENCE, Document, Server
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from machines import QUIET

from parts.openapi import resolved
from parts.tools import METHODS

Row = dict[str, Any]

GATEWAY = "/plugins/webhooks/{routeId}"
ODD = ["", " ", "\0", "\ud800", "\u202e", "é" * 300, "x" * 5000, "null", "../..", "' OR 1=1 --", "\r\nA: b"]
TEXTS = st.text(max_size=30) | st.sampled_from(ODD)
NUMBERS = st.integers(-3, 5) | st.sampled_from([2**53, -(2**63), 10**40, 0.5, 1e300, -0.0])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
) | st.integers(1, 40).map(lambda depth: json.loads("[" * depth + "]" * depth))
WORDS = st.text("aß漢 1", min_size=1, max_size=20).filter(str.strip)
# The values that fields refer to, by the fields' names.
FLOW = "SELECT id AS flowId, id AS token, revision AS expectedRevision FROM flow"
TASK = "SELECT id AS task_id, project_id AS project, version AS if_version FROM task"
TOGETHER = 8  # messages of one example, since Hypothesis takes a while for each


def mostly(usual: st.SearchStrategy, other: st.SearchStrategy = VALUES) -> st.SearchStrategy:
    """Return a strategy that draws from `usual` in 19 of 20 cases."""
    return st.integers(0, 19).flatmap(lambda number: usual if number else other)


def fitting(schema: Row) -> st.SearchStrategy:
    """Return values that fit a schema. Supports the few kinds of schemas that actions and tools use."""
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if "properties" in schema:
        values = {name: mostly(fitting(inner)) for name, inner in schema["properties"].items()}
        required = {name: values.pop(name) for name in schema.get("required", [])}
        return st.fixed_dictionaries(required, optional=values)
    kinds = {
        "integer": st.integers(schema.get("minimum", 0), schema.get("maximum", 50)),
        "boolean": st.booleans(),
        "object": st.dictionaries(TEXTS, NUMBERS, max_size=3),
        "": VALUES,
    }
    return kinds.get(str(schema.get("type", "")), WORDS)


def newest(run: Run, server: Server, select: str) -> Row:
    """Return one of the newest rows that a query finds, or an empty dict."""
    rows = server.rows(f"{select} ORDER BY rowid DESC LIMIT 30")
    return run.random.choice(rows) if rows else {}


class Messages:
    """Posts generated messages and counts the responses. Most messages refer to existing rows."""

    def __init__(self, run: Run, server: Server, tally: Tally):
        self.run, self.server, self.tally = run, server, tally
        self.session = requests.Session()
        self.session.trust_env = False

    def post(self, path: str, body: Any, headers: dict[str, str]) -> requests.Response:
        return self.session.post(self.server.base + path, json=body, headers=headers, timeout=PATIENCE)

    def each(self, messages: st.SearchStrategy, count: int, send: Callable[[Any], None]) -> None:
        """Send `count` generated messages, or fewer if the time is over."""

        @seed(self.run.random.getrandbits(32))
        @settings(QUIET, phases=[Phase.generate], max_examples=self.run.count(count // TOGETHER))
        @given(st.lists(messages, min_size=TOGETHER, max_size=TOGETHER))
        def send_some(some: list[Any]) -> None:
            for message in some if self.run.left else []:
                send(message)

        send_some()

    def leading(self, select: str, fields: Row) -> Row:
        """Return the fields. Most times, the fields that refer to a row get the values of an existing row."""
        row = newest(self.run, self.server, select) if self.run.random.random() < 0.9 else {}
        return fields | {name: value for name, value in row.items() if name in fields}

    def examine(self, source: str, name: str, answer: Any, ok: bool, check: Callable[[], None]) -> None:
        """Count a response, and keep its fault if it has one."""
        self.tally.count(source, name, ok=ok)
        try:
            assert answer.status_code < 500, f"status {answer.status_code}"
            check()
        except (AssertionError, ValueError, LookupError) as problem:  # such as a body that is not JSON
            what, sent = str(problem).split("\n")[0], f"{answer.request.url} {answer.request.body!r:.300}"
            example = f"{sent} -> {answer.status_code} {answer.text[:200]}: {what}"
            self.tally.fault(f"{source}: {name}: {what[:80]}", example)

    def call_actions(self, document: Document, route: str, secret: str, count: int) -> None:
        """Send actions of the gateway, as the document describes them."""
        (taken,) = document.spec["paths"][GATEWAY]["post"]["requestBody"]["content"].values()
        actions = resolved(document.spec, taken["schema"])["oneOf"]
        names = {action["properties"]["action"]["const"] for action in actions}
        self.tally.operations |= names

        def send(body: Any) -> None:
            body = self.leading(FLOW, body) if isinstance(body, dict) else body
            answer = self.post(GATEWAY.format(routeId=route), body, {"x-agent-webhook-secret": secret})
            name = str(body.get("action")) if isinstance(body, dict) else ""

            def check() -> None:
                document.validate(answer, GATEWAY, "post")
                assert answer.json()["ok"] == answer.ok, "ok differs from the status"

            self.examine("gateway", name if name in names else "", answer, answer.ok, check)

        self.each(mostly(st.one_of([fitting(action) for action in actions])), count, send)

    def call_tools(self, keys: dict[str, str], count: int) -> None:
        """Send messages to `/mcp` with any key. Most of them call tools as `tools/list` describes them."""
        headers = {role: {"Authorization": f"Bearer {key}"} if key else {} for role, key in keys.items()}
        first = {"jsonrpc": "2.0", "id": 0, "method": "tools/list"}
        tools = self.post("/mcp", first, headers["owner"]).json()["result"]["tools"]
        names = {tool["name"] for tool in tools}
        self.tally.operations |= {f"tool {name}" for name in names}

        def send(body: Any) -> None:
            role = self.run.random.choice(["owner"] * 5 + [*keys])
            params = body.get("params") if isinstance(body, dict) else None
            name = params.get("name") if isinstance(params, dict) else None
            if isinstance(params, dict) and isinstance(params.get("arguments"), dict):
                params["arguments"] = self.leading(TASK, params["arguments"])
            answer = self.post("/mcp", body, headers[role])
            ok = answer.ok and b'"isError":true' not in answer.content

            def check() -> None:
                assert (answer.status_code == 401) == (role == "none"), f"{role}: {answer.status_code}"
                check_rpc(body, answer)

            self.examine("tools", f"tool {name}" if name in names else "", answer, ok, check)

        calls = [
            {"name": st.just(tool["name"]), "arguments": mostly(fitting(tool["inputSchema"]))}
            for tool in tools
        ]
        call = rpc(st.just("tools/call"), st.one_of([st.fixed_dictionaries(params) for params in calls]))
        other = rpc(st.sampled_from([*METHODS, "notifications/initialized"]), VALUES)
        self.each(mostly(call, other | VALUES), count, send)


def rpc(method: st.SearchStrategy, params: st.SearchStrategy) -> st.SearchStrategy:
    """Return a strategy for requests of JSON-RPC."""
    fields = {"jsonrpc": st.just("2.0"), "id": st.integers(0, 99), "method": method, "params": params}
    return st.fixed_dictionaries({name: mostly(value) for name, value in fields.items()})


def check_rpc(body: Any, answer: requests.Response) -> None:
    """Assert that the response answers this request in JSON-RPC, and reports no bug."""
    if answer.status_code == 202:
        assert not answer.content, "an answer to a notification"
        return
    content = answer.json()
    assert content["jsonrpc"] == "2.0" and len(content.keys() & {"result", "error"}) == 1, "no JSON-RPC"
    if answer.status_code == 200 and isinstance(body, dict):
        assert content["id"] == body["id"], "the id of another request"
    assert content.get("error", {}).get("code") != -32603, "an internal error"
    assert "internal_error" not in str(content.get("result"))[:200], "an internal error of a tool"
