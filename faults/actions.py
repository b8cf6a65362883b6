"""Generated calls of the agent gateway's actions, on the flows that its answers hold."""

import json
from typing import Any

import requests
from answers import Tally
from findings import Run
from harness import NOBODY, PATIENCE
from hypothesis import strategies as st
from marshmallow import fields
from marshmallow.validate import OneOf
from values import DEEP, KNOWN, ODD, RIGHT, TEXTS, VALUES, WORDS, batches, mostly

from gateway import ACTIONS, AnyJSON, TrueOrFalse
from schemas import Choice, JSONInteger


def field_values(name: str, field: fields.Field) -> Any:
    """Values that the field takes, and some that it does not."""
    right: Any = WORDS
    if name in ("flowId", "token"):
        right = st.just(KNOWN)
    elif isinstance(field, Choice) and isinstance(field.validators[0], OneOf):
        right = st.sampled_from(list(field.validators[0].choices))
    elif isinstance(field, AnyJSON):
        right = VALUES | DEEP
    elif name == "expectedRevision":
        right = st.just(RIGHT)
    elif isinstance(field, JSONInteger):
        right = st.integers(0, 10**13)
    elif isinstance(field, TrueOrFalse):
        right = st.booleans()
    return mostly(right, VALUES)


def action_bodies() -> Any:
    """Bodies of every action: mostly with what it takes."""
    strategies = []
    for name, action in ACTIONS.items():
        values = {f.data_key: field_values(str(f.data_key), f) for f in action.schema.load_fields.values()}
        required = {f.data_key for f in action.schema.load_fields.values() if f.required}
        always = {key: value for key, value in values.items() if key in required}
        rest = {key: value for key, value in values.items() if key not in required}
        always["action"] = st.just(name)
        strategies += [st.fixed_dictionaries(always), st.fixed_dictionaries(always, optional=rest)]
    wrong = st.fixed_dictionaries({"action": TEXTS}) | st.dictionaries(TEXTS, VALUES, max_size=3) | VALUES
    return mostly(st.one_of(strategies), wrong)


class Gateway:
    """Actions one after the other, with the flows that the answers before held."""

    source = "gateway"

    def __init__(self, run: Run, base: str, route: str, secret: str, tally: Tally):
        self.run, self.tally = run, tally
        self.url = f"{base}/plugins/webhooks/{route}"
        self.secret = secret
        self.session = requests.Session()
        self.session.trust_env = False
        self.flows: dict[str, int] = {}

    def go(self, seconds: float) -> None:
        """Each action once as the document shows it, then generated ones until the time is over."""
        intake = self.tally.document.spec["paths"]["/plugins/webhooks/{routeId}"]["post"]
        examples = intake["requestBody"]["content"]["application/json"]["examples"].values()
        given = {"flowId": KNOWN, "token": KNOWN, "expectedRevision": RIGHT}
        for body in [example["value"] for example in examples]:
            self.flows.clear()
            self.send(body | {name: value for name, value in given.items() if name in body})
        for bodies in batches(self.run, action_bodies(), seconds):
            for body in bodies:
                self.send(body)

    def send(self, body: Any) -> None:
        random = self.run.random
        name = body.get("action") if isinstance(body, dict) else None
        if isinstance(body, dict):
            if not self.flows and KNOWN in map(str, body.values()):
                self.send({"action": "create_flow", "goal": "Something to do"})
            flow = random.choice(list(self.flows)) if self.flows else NOBODY
            values = {KNOWN: flow, RIGHT: self.flows.get(flow, 0)}
            body = {key: values.get(v, v) if isinstance(v, str) else v for key, v in body.items()}
        secret = self.secret if random.random() < 0.98 else random.choice(ODD[:2] + ["wrong"])
        headers = {"x-agent-webhook-secret": secret.strip(), "Content-Type": "application/json"}
        answer = self.session.post(
            self.url, data=json.dumps(body).encode(), headers=headers, timeout=PATIENCE
        )
        is_sound = self.tally.examine(
            self.source,
            f"gateway's {name}" if isinstance(name, str) and name in ACTIONS else "",
            answer,
            lambda: self.tally.document.validate(answer, "/plugins/webhooks/{routeId}", "post"),
            lambda: self.check(answer, secret == self.secret),
        )
        if is_sound:
            self.learn(answer.json()["result"])

    def check(self, answer: requests.Response, has_secret: bool) -> None:
        content = answer.json()
        assert content["ok"] == answer.ok, "ok is not what the status says"
        assert has_secret or answer.status_code == 401, "a wrong secret is accepted"

    def learn(self, result: dict[str, Any]) -> None:
        """Keep the revisions of a few flows that have not ended."""
        if flow := result.get("flow") or result.get("current"):
            self.flows[flow["flowId"]] = flow["revision"]
            if flow["status"] in ("succeeded", "failed", "cancelled"):
                del self.flows[flow["flowId"]]
            elif len(self.flows) > 10:
                del self.flows[next(iter(self.flows))]
