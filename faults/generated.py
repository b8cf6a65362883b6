"""Generated input: requests of schemathesis and hypothesis to the API, the gateway and the tools.

Each with a key of each role, one that may only read, and none.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import schemathesis
from actions import Gateway
from agents import Tools
from answers import Tally
from findings import Run
from harness import NOBODY, OWNER_KEY, Client, Server, hook, receivers
from heads import odd_heads
from schemathesis.engine import events, from_schema
from walk import Walk

ROUTE, SECRET = "generated", "the-secret-of-the-campaign"
SESSION = "agent:generated"
CONFIGURATION = f"""
[plugins.entries.webhooks.config.limits]
requests = 1000000
inFlight = 64
[plugins.entries.webhooks.config.routes.{ROUTE}]
sessionKey = "{SESSION}"
secret = "{SECRET}"
"""
STATELESS = ["examples", "coverage", "fuzzing"]  # the phases of schemathesis but for the stateful one
CHECKS = [
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "use_after_free"),
    *("response_schema_conformance", "response_headers_conformance", "ignored_auth", "unsupported_method"),
    "negative_data_rejection",
]


@contextmanager
def prepared(run: Run) -> Iterator[Server]:
    """A server with a gateway route, without its limits, and with a webhook."""
    config = run.folder / "config.toml"
    config.touch(0o600)
    config.write_text(CONFIGURATION)
    with contextmanager(receivers)() as make:
        webhooks = json.dumps([hook(make().up(), events=["member.invited"])])
        with run.server(TASKS_CONFIG=str(config), TASKS_WEBHOOKS=webhooks) as server:
            yield server


def join(owner: Client, role: str) -> str:
    """A new member's key."""
    body = {"full_name": "Rosa Role", "role": role, "email": f"the-{role}@example.com"}
    link = owner.data(owner.post("/members/invite", body), 201)["enrollment_link"]
    token = link.rpartition("/")[2]
    return owner.data(owner.post(f"/enroll/{token}"), 201)["api_key"]


def make_keys(server: Server) -> dict[str, str]:
    """A key of each role, one that may only read, and none."""
    owner = server.client()
    keys = {role: join(owner, role) for role in ("owner", "admin", "member", "client")}
    body = {"name": "reads", "scope": "read"}
    return keys | {"read": owner.data(owner.post("/keys", body), 201)["api_key"], "none": ""}


def protected_ids(server: Server, keys: Mapping[str, str]) -> set[str]:
    """The ids of the members and keys that we call with, which must not be changed."""
    clients = [server.client(key) for key in (OWNER_KEY, *keys.values()) if key]
    mine = [client.data(client.get("/me")) for client in clients]
    return {me[kind]["id"] for me in mine for kind in ("member", "key")}


def for_schemathesis(spec: dict[str, Any]) -> dict[str, Any]:
    """The document with what only schemathesis understands: a token is the end of a link."""
    copied = json.loads(json.dumps(spec))
    for methods in copied["paths"].values():
        for operation in methods.values():
            for response in operation["responses"].values():
                for link in response.get("links", {}).values():
                    if "description" in link:
                        place = "$response.body#/data/enrollment_link#regex:([^/]+)$"
                        link["parameters"] = {"token": place}
                    if "action" in link.get("requestBody", {}):
                        link["x-schemathesis"] = {"merge_body": False}
    (route,) = copied["paths"]["/plugins/webhooks/{routeId}"]["post"]["parameters"]
    route["schema"] = {"const": ROUTE}
    return copied


def explore(run: Run, base: str, key: str, phases: list[str], seconds: float, tally: Tally) -> None:
    """These phases of schemathesis' own engine, with this key."""
    schema = schemathesis.openapi.from_dict(for_schemathesis(tally.document.spec))
    config = schema.config
    config.base_url, config.seed, config.max_time = base, run.random.getrandbits(32), max(1, round(seconds))
    config.headers = {"x-agent-webhook-secret": SECRET, "Authorization": f"Bearer {key}"}
    config.continue_on_failure = True
    config.checks.update(included_check_names=CHECKS)
    config.checks.negative_data_rejection.expected_statuses = ["4xx"]  # 412 too, which is none by default
    for name in (*STATELESS, "stateful"):
        config.phases.get_by_name(name=name).enabled = name in phases
    for phase in (config.phases.fuzzing, config.phases.stateful):
        phase.generation.max_examples = run.count(200)
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            record(event.recorder, "schemathesis", tally)
        elif isinstance(event, events.NonFatalError | events.FatalError):
            tally.fault("schemathesis", f"{event}")


def record(recorder: Any, source: str, tally: Tally) -> None:
    """Count what a scenario of schemathesis has sent, and keep what its checks have found."""
    for id, interaction in recorder.interactions.items():
        operation = recorder.cases[id].value.operation
        name = operation.definition.raw["operationId"]
        if interaction.response is None:
            tally.fault(f"{source}: {name}: no answer", f"no answer to {operation.label}")
        else:
            is_gateway = name == "drive_flow"  # whose actions are counted one by one elsewhere
            tally.count(source, "" if is_gateway else name, interaction.response.status_code)
    for id, checks in recorder.checks.items():
        for check in [check for check in checks if check.failure_info]:
            case, failure = recorder.cases[id].value, check.failure_info.failure
            if check.name == "negative_data_rejection" and is_right_nevertheless(case, failure):
                continue
            sent = f"{case.method} {case.formatted_path} {case.query} {case.body!r:.200}"
            answer = recorder.interactions[id].response
            what = f"{sent} -> {answer.status_code} {answer.text[:200]}: {failure}"
            tally.fault(f"{source}: {check.name}: {case.operation.label}", what)


def is_right_nevertheless(case: Any, failure: Any) -> bool:
    """Whether an input may be taken though it does not fit its schema.

    In a form everything is text, and a text is trimmed before its length is checked.
    """
    return case.media_type == "multipart/form-data" or "larger than maxLength" in str(failure)


def protect(protected: set[str]) -> None:
    """Keep schemathesis from changing the members and keys that we use."""

    @schemathesis.hook
    def before_call(context, case, kwargs) -> None:
        if case.method != "GET" and case.path_parameters.get("id") in protected:
            case.path_parameters["id"] = NOBODY


def run(run: Run) -> None:
    """Generate requests until the time is over."""
    with prepared(run) as server:
        keys = make_keys(server)
        protected = protected_ids(server, keys)
        tally = Tally(server.base)
        protect(protected)
        try:
            explore(run, server.base, keys["owner"], STATELESS, run.left / 6, tally)
            explore(run, server.base, keys["owner"], ["stateful"], run.left / 10, tally)
            odd_heads(run, server.base, keys["owner"], tally, run.count(8000))
            Gateway(run, server.base, ROUTE, SECRET, tally).go(run.left / 5)
            Tools(run, server.base, keys, tally).go(run.left / 4)
            Walk(run, server.base, keys, protected, tally).go(run.left)
        finally:  # before the server ends, which fails if there is a bug in its log
            tally.report(run)
