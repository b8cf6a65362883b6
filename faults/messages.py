"""Generated messages to the gateway and to the agents' tools, by the schemas that the server shows."""

import json
from collections.abc import Callable
from typing import Any

import requests
from answers import Tally
from findings import Run
from harness import PATIENCE, Document, Server
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tools import METHODS

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
# What names of fields refer to.
FLOW = "SELECT id AS flowId, id AS token, revision AS expectedRevision FROM flow WHERE ended_at IS NULL"
TASK = "SELECT id AS task_id, project_id AS project, version AS if_version FROM task"
TOGETHER = 8  # messages of one example, since Hypothesis takes a while for each


def mostly(usual: st.SearchStrategy, other: st.SearchStrategy = VALUES) -> st.SearchStrategy:
    """The usual in nine of ten cases."""
    return st.integers(0, 9).flatmap(lambda number: usual if number else other)


def fitting(schema: Row) -> st.SearchStrategy:
    """Values that fit a schema of the few kinds that actions and tools have."""
    kind = schema.get("type")
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if "properties" in schema:
        values = {name: mostly(fitting(inner)) for name, inner in schema["properties"].items()}
        required = {name: values.pop(name) for name in schema.get("required", [])}
        return st.fixed_dictionaries(required, optional=values)
    if kind == "integer":
        return st.integers(schema.get("minimum", 0), schema.get("maximum", 50))
    if kind == "boolean":
        return st.booleans()
    if kind == "object":
        return st.dictionaries(TEXTS, NUMBERS, max_size=3)
    return st.text("aß漢 1", min_size=1, max_size=20).filter(str.strip) if kind else VALUES


class Messages:
    """Posts generated messages, most of which refer to what exists, and counts the answers."""

    def __init__(self, run: Run, server: Server, tally: Tally):
        self.run, self.server, self.tally = run, server, tally
        self.session = requests.Session()
        self.session.trust_env = False

    def post(self, path: str, body: Any, headers: dict[str, str]) -> requests.Response:
        headers = headers | {"Content-Type": "application/json"}
        url, data = self.server.base + path, json.dumps(body).encode()
        return self.session.post(url, data=data, headers=headers, timeout=PATIENCE)

    def each(self, messages: st.SearchStrategy, count: int, send: Callable[[Any], None]) -> None:
        """Send so many generated messages, or as many as the time is enough for."""

        @seed(self.run.random.getrandbits(32))
        @settings(
            max_examples=self.run.count(count // TOGETHER),
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(messages, min_size=TOGETHER, max_size=TOGETHER))
        def send_some(some: list[Any]) -> None:
            for message in some if self.run.left else []:
                send(message)

        send_some()

    def leading(self, select: str, fields: Row) -> Row:
        """The fields, mostly with what a newer row has in place of those that refer to it."""
        rows = self.server.rows(f"{select} ORDER BY 1 DESC LIMIT 20")
        row = self.run.random.choice(rows) if rows and self.run.random.random() < 0.9 else {}
        return fields | {name: value for name, value in row.items() if name in fields}

    def examine(
        self, source: str, name: str, answer: requests.Response, ok: bool, check: Callable[[], None]
    ) -> None:
        """Count an answer, and keep what is wrong with it."""
        self.tally.count(source, name, ok=ok)
        try:
            assert answer.status_code < 500, f"status {answer.status_code}"
            check()
        except (AssertionError, ValueError, LookupError) as problem:  # such as what is no JSON
            what = str(problem).split("\n")[0]
            sent = f"{answer.request.url} {answer.request.body!r:.300}"
            told = f"{sent} -> {answer.status_code} {answer.text[:200]}: {what}"
            self.tally.fault(f"{source}: {name}: {what[:80]}", told)

    # The gateway

    def call_actions(self, document: Document, route: str, secret: str, count: int) -> None:
        """Send actions of the gateway, as the document describes them."""
        (taken,) = document.spec["paths"][GATEWAY]["post"]["requestBody"]["content"].values()
        names = [action["title"] for action in taken["schema"]["oneOf"]]

        def send(body: Any) -> None:
            body = self.leading(FLOW, body) if isinstance(body, dict) else body
            sent = secret if self.run.random.random() < 0.98 else "wrong"
            answer = self.post(GATEWAY.format(routeId=route), body, {"x-agent-webhook-secret": sent})
            name = str(body.get("action")) if isinstance(body, dict) else ""

            def check() -> None:
                document.validate(answer, GATEWAY, "post")
                assert answer.json()["ok"] == answer.ok, "ok is not what the status says"
                assert sent == secret or answer.status_code == 401, "a wrong secret is accepted"

            self.examine("gateway", name if name in names else "", answer, answer.ok, check)

        self.each(mostly(st.one_of([fitting(action) for action in taken["schema"]["oneOf"]])), count, send)

    # The agents' tools

    def call_tools(self, keys: dict[str, str], count: int) -> None:
        """Send messages to `/mcp`, most of which call tools as these are listed, with any key."""
        headers = {role: {"Authorization": f"Bearer {key}"} if key else {} for role, key in keys.items()}
        first = {"jsonrpc": "2.0", "id": 0, "method": "tools/list"}
        tools = self.post("/mcp", first, headers["owner"]).json()["result"]["tools"]
        names = [tool["name"] for tool in tools]

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
            rpc(
                st.just("tools/call"),
                {"name": st.just(tool["name"]), "arguments": mostly(fitting(tool["inputSchema"]))},
            )
            for tool in tools
        ]
        others = rpc(st.sampled_from([*METHODS, "notifications/initialized"]), {"a": VALUES})
        self.each(mostly(st.one_of(calls), others | VALUES), count, send)


def rpc(method: st.SearchStrategy, params: dict[str, st.SearchStrategy]) -> st.SearchStrategy:
    """Requests of JSON-RPC."""
    fields = {"jsonrpc": st.just("2.0"), "id": st.integers(0, 99), "method": method}
    values = {name: mostly(value) for name, value in fields.items()}
    return st.fixed_dictionaries(values | {"params": mostly(st.fixed_dictionaries(params))})


def check_rpc(body: Any, answer: requests.Response) -> None:
    """The answer is one of JSON-RPC to this request, and no bug."""
    if answer.status_code == 202:
        assert not answer.content, "an answer to a notification"
        return
    content = answer.json()
    assert content["jsonrpc"] == "2.0" and len(content.keys() & {"result", "error"}) == 1, "no JSON-RPC"
    if answer.status_code == 200 and isinstance(body, dict):
        assert content["id"] == body["id"], "the id of another request"
    said = content.get("error", {}).get("code", 0), str(content.get("result"))[:200]
    assert said[0] != -32603 and "internal_error" not in said[1], f"a bug: {said}"
