"""Generated calls of the agents' tools, with projects and tasks that exist, and other messages to /mcp."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import requests
from answers import Tally
from findings import Run
from harness import PATIENCE
from hypothesis import strategies as st
from values import KNOWN, SCALARS, TEXTS, VALUES, WORDS, batches, mostly

from tools import METHODS


def argument_values(name: str, schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        right: Any = st.sampled_from(schema["enum"])
    elif name in ("project", "task_id"):
        right = st.just(KNOWN)
    elif name == "assignee":
        right = st.sampled_from(["me", ""])
    elif name.endswith(("_date", "_before", "_since")):
        right = st.dates().map(str) | st.just("")
    elif schema["type"] == "integer":
        right = st.integers(1, 20)
    elif schema["type"] == "object":
        right = st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=3)
    else:
        right = WORDS
    return mostly(right, VALUES)


def messages(tools: list[dict[str, Any]]) -> Any:
    """JSON-RPC messages: mostly calls of these tools."""
    calls = []
    for tool in tools:
        schema = tool["inputSchema"]
        values = {name: argument_values(name, described) for name, described in schema["properties"].items()}
        always = {name: values.pop(name) for name in schema.get("required", [])}
        arguments = st.fixed_dictionaries(always, optional=values)
        params = {"name": st.just(tool["name"]), "arguments": mostly(arguments, VALUES)}
        calls.append(message(st.just("tools/call"), st.fixed_dictionaries(params)))
    methods = [*METHODS, "notifications/initialized"]
    others = message(st.sampled_from(methods), st.dictionaries(TEXTS, VALUES, max_size=2) | VALUES)
    return mostly(st.one_of(calls), others | VALUES)


def message(method: Any, params: Any) -> Any:
    ids = mostly(st.integers(0, 99), SCALARS)
    always = {"jsonrpc": mostly(st.just("2.0"), SCALARS), "method": mostly(method, TEXTS), "params": params}
    return st.fixed_dictionaries(always | {"id": ids})


class Tools:
    """Calls of the agents' tools, with the projects and tasks that exist."""

    source = "tools"

    def __init__(self, run: Run, base: str, keys: Mapping[str, str], tally: Tally):
        self.run, self.url, self.keys, self.tally = run, f"{base}/mcp", keys, tally
        self.session = requests.Session()
        self.session.trust_env = False
        self.known: dict[str, list[str]] = {"project": [], "task_id": []}

    def post(self, body: Any, role: str) -> requests.Response:
        headers = {"Content-Type": "application/json"}
        if key := self.keys[role]:
            headers["Authorization"] = f"Bearer {key}"
        return self.session.post(self.url, data=json.dumps(body).encode(), headers=headers, timeout=PATIENCE)

    def go(self, seconds: float) -> None:
        """Each tool with what it needs, then generated calls until the time is over."""
        listed = self.post({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}, "owner").json()
        tools = listed["result"]["tools"]
        makers = [tool for tool in tools if tool["name"].startswith("create_")]
        for tool in 2 * makers + tools:  # a task is created in a project that exists
            needed = tool["inputSchema"].get("required", [])
            arguments = {name: KNOWN if name in self.known else "Something" for name in needed}
            if tool["name"] == "update_task":
                arguments["title"] = "Something else"
            params = {"name": tool["name"], "arguments": arguments}
            self.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, "owner")
        for bodies in batches(self.run, messages(tools), seconds):
            for body in bodies:
                self.send(body, self.run.random.choice(["owner"] * 5 + list(self.keys)))

    def send(self, body: Any, role: str) -> None:
        name = ""
        params = body.get("params") if isinstance(body, dict) else None
        if isinstance(params, dict) and isinstance(params.get("name"), str):
            name = f"tool {params['name']}"
            if isinstance(params.get("arguments"), dict):
                params["arguments"] = {key: self.value(key, v) for key, v in params["arguments"].items()}
        answer = self.post(body, role)
        is_error = b'"isError":true' in answer.content
        check = partial(self.check, body, role, answer)
        is_sound = self.tally.examine(self.source, name, answer, check, is_refusal=is_error)
        if is_sound and answer.ok and answer.content and not is_error:
            self.learn(answer.json().get("result", {}))

    def value(self, name: str, value: Any) -> Any:
        known = self.known.get(name) if value == KNOWN else None
        return self.run.random.choice(known[-20:]) if known else value

    def check(self, body: Any, role: str, answer: requests.Response) -> None:
        """The answer is one of JSON-RPC to this request, and no bug."""
        assert (answer.status_code == 401) == (role == "none"), f"status {answer.status_code} for {role}"
        if answer.status_code == 202:
            assert not answer.content, "an answer to a notification"
            return
        content = answer.json()
        assert content["jsonrpc"] == "2.0" and len(content.keys() & {"result", "error"}) == 1, "no JSON-RPC"
        if answer.status_code == 200 and isinstance(body, dict):
            assert content["id"] == body["id"], "the id of another request"
        said = content.get("error", {}).get("code", 0), str(content.get("result"))[:200]
        assert said[0] != -32603 and "internal_error" not in said[1], f"a bug: {said}"

    def learn(self, result: dict[str, Any]) -> None:
        """Keep the ids in what a tool has said."""
        said = json.loads(result["content"][0]["text"]) if "content" in result else {}
        if "id" in said and said.keys() & {"title", "name"}:
            self.known["task_id" if "title" in said else "project"].append(said["id"])
