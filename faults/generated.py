"""Generated input: schemathesis' requests to the API, the gateway and the agents' tools, and odd heads."""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

import schemathesis
from answers import Tally
from findings import Run
from harness import NOBODY, Client, Document, Server, hook, receivers
from heads import odd_heads
from mailboxes import Mailbox
from messages import GATEWAY, Messages, Row, newest
from schemathesis.config import HealthCheck
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.engine import events, from_schema

from schemas import Id

ROUTE, SECRET = "generated", "the-secret-of-the-campaign"
CONFIGURATION = f"""
[plugins.entries.webhooks.config.limits]
requests = 1000000
inFlight = 64
[plugins.entries.webhooks.config.routes.{ROUTE}]
sessionKey = "agent:generated"
secret = "{SECRET}"
"""
CHECKS = [
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "negative_data_rejection"),
    *("response_schema_conformance", "response_headers_conformance"),
]
LONG_WAITS = {str(seconds) for seconds in range(2, 26)}
# For each operation. The service must refuse half of them.
EXAMPLES = 20


@contextmanager
def prepared(run: Run) -> Iterator[Server]:
    """Start a server with a workspace full of data, a gateway route without limits, a webhook, and mail."""
    config = run.folder / "config.toml"
    config.touch(0o600)
    config.write_text(CONFIGURATION)
    with closing(Mailbox()) as box, contextmanager(receivers)() as make:
        mail = {"TASKS_MAIL__URL": box.url, "TASKS_MAIL__FROM": "tasks@example.com"}
        webhooks = json.dumps([hook(make().up(), events=["member.invited"])])
        with run.server(TASKS_CONFIG=str(config), TASKS_WEBHOOKS=webhooks, **mail) as server:
            assert server.flask("seed").returncode == 0
            yield server


def invite(owner: Client, role: str) -> str:
    """Invite a member, and return the token of the invitation link."""
    body = {"full_name": "Inés Invited", "role": role, "email": f"{uuid4()}@example.com"}
    invited = owner.data(owner.post("/members/invite", body), 201)
    return invited["enrollment_link"].rpartition("/")[2]


def make_keys(owner: Client) -> dict[str, str]:
    """Return a key of each role, a key that may only read, and an empty key."""
    roles = ("owner", "admin", "member", "client")
    joined = {role: owner.data(owner.post(f"/enroll/{invite(owner, role)}"), 201) for role in roles}
    reading = owner.data(owner.post("/keys", {"name": "reads", "scope": "read"}), 201)
    return {role: data["api_key"] for role, data in joined.items()} | {"read": reading["api_key"], "none": ""}


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Return whether a failure counts.

    An accepted text that is too long does not count: a text is trimmed before its length is checked. An
    accepted wrong type in a form does not: in a form everything is text. 414 does not: a line of over 4094
    bytes is refused for every path (README.md), and no operation documents that.
    """
    is_right = "maxLength" in str(failure) or case.media_type == "multipart/form-data"
    return not (is_right and isinstance(failure, AcceptedNegativeData)) and response.status_code != 414


class Cases:
    """Generated cases. Most reach existing rows, and none change the members and keys in use here."""

    def __init__(self, run: Run, server: Server, owner: Client, keys: dict[str, str]):
        self.run, self.server, self.owner, self.keys = run, server, owner, keys
        clients = [owner, *(server.client(key) for key in keys.values() if key)]
        mine = [client.data(client.get("/me")) for client in clients]
        self.protected = {me[kind]["id"] for me in mine for kind in ("member", "key")}
        schemathesis.hook("before_call")(lambda context, case, kwargs: self.prepare(case))

    def prepare(self, case: Any) -> None:
        """Make most cases reach existing rows, and half of them use the key of an owner."""
        if key := self.keys[self.run.random.choice(["owner"] * len(self.keys) + [*self.keys])]:
            case.headers["Authorization"] = f"Bearer {key}"
        if str((case.query or {}).get("wait")) in LONG_WAITS:
            case.query["wait"] = 1
        if self.run.random.random() < 0.8:
            self.lead_to_what_exists(case)
        if case.method != "GET" and str(case.path_parameters.get("id")) in self.protected:
            case.path_parameters["id"] = NOBODY

    def lead_to_what_exists(self, case: Any) -> None:
        """Replace a request's ids, token, session or version with existing ones."""
        self.lead_to_a_project(case.body)
        if case.path == "/api/v1/session" and case.method == "DELETE":
            case.headers.pop("Authorization", None)
            case.headers.update({"Cookie": self.sign_in(), "X-Requested-With": "campaign"})
        if "token" in case.path_parameters:
            case.path_parameters["token"] = invite(self.owner, "member")
        elif "id" in case.path_parameters:
            case.path_parameters.update(newest(self.run, self.server, select_ids(case.operation.path)))
        if case.headers.pop("If-Match", None) and "id" in case.path_parameters:
            case.headers["If-Match"] = "*"

    def sign_in(self) -> str:
        """Return a cookie with a new session of the owner."""
        answer = self.owner.post("/session", {"api_key": self.keys["owner"]})
        return answer.headers["Set-Cookie"].partition(";")[0]

    def lead_to_a_project(self, body: Any) -> None:
        """Give the body, and each task of its list, the id of an existing project."""
        if isinstance(body, list):
            for number, item in enumerate(body):
                self.lead_to_a_project(item)
                if isinstance(item, str | int):  # in a change of several tasks
                    body[number] = newest(self.run, self.server, "SELECT id FROM task")["id"]
        elif isinstance(body, dict):
            self.lead_to_a_project(body.get("tasks"))
            if Id.PATTERN.fullmatch(str(body.get("project_id"))):
                body["project_id"] = newest(self.run, self.server, select_ids("/api/v1/projects"))["id"]


def select_ids(path: str) -> str:
    """Return the SELECT of the ids that exist for a path of the document."""
    if part := re.search(r"{(\w+)_id}", path):
        return f"SELECT task_id AS id, id AS {part[1]}_id FROM {part[1]}"
    name, tables = path.split("/")[3], {"keys": "api_key", "deliveries": "delivery"}
    return f"SELECT id FROM {tables.get(name, name.removesuffix('s'))}"


def explore(run: Run, base: str, spec: Row, tally: Tally) -> None:
    """Count the requests that schemathesis makes from the document, and keep the findings of its checks."""
    schema = schemathesis.openapi.from_dict(spec)
    config = schema.config
    config.base_url, config.seed, config.max_time = base, run.random.getrandbits(32), int(run.left) + 1
    config.continue_on_failure, config.suppress_health_check = True, [HealthCheck.all]
    config.generation.with_security_parameters = False
    config.checks.update(included_check_names=CHECKS)
    config.checks.negative_data_rejection.expected_statuses = ["4xx"]  # includes 412
    config.phases.coverage.enabled = not run.is_short
    config.phases.fuzzing.generation.max_examples = run.count(EXAMPLES)
    config.phases.stateful.enabled = False  # slow, and mostly reads empty lists
    tally.operations |= {o["operationId"] for methods in spec["paths"].values() for o in methods.values()}
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            record(event.recorder, tally)
        elif isinstance(event, events.NonFatalError | events.FatalError):
            tally.fault("API", str(event))


def record(recorder: Any, tally: Tally) -> None:
    """Count the requests of a scenario of schemathesis, and keep the failures of its checks."""
    for id, interaction in recorder.interactions.items():
        case, response = recorder.cases[id].value, interaction.response
        if response is None:
            tally.fault("no answer", f"{case.operation.label} got no answer")
            continue
        tally.count("API", case.operation.definition.raw["operationId"], ok=response.status_code < 400)
        for check in recorder.checks.get(id, []):
            if check.failure_info:
                sent = f"{case.method} {case.formatted_path} {case.query} {case.body!r:.200}"
                what = f"{sent} -> {response.status_code} {response.text[:200]}: {check.failure_info.failure}"
                tally.fault(f"{check.name}: {case.operation.label}", what)


def run(run: Run) -> None:
    """Generate requests until the time is over."""
    with prepared(run) as server:
        owner = server.client()
        keys = make_keys(owner)
        Cases(run, server, owner, keys)
        tally, document = Tally(), Document(owner)
        messages = Messages(run, server, tally)
        try:
            odd_heads(run, server.base, keys["owner"], tally, run.count(8000))
            messages.call_actions(document, ROUTE, SECRET, 4000)
            messages.call_tools(keys, 4000)
            del document.spec["paths"][GATEWAY]
            explore(run, server.base, document.spec, tally)
        # Before the server ends: its end fails if its log contains a bug.
        finally:
            tally.report(run)
