"""A walk through the API along the links of its document, with inputs that schemathesis generates.

schemathesis' own state machine walks there too, but twenty times slower, and mostly in lists that are still
empty.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import requests
import schemathesis
from answers import STATEFUL, Tally
from findings import Run
from harness import NOBODY, PATIENCE
from hypothesis import HealthCheck, Phase, given, seed, settings
from links import Found, Operation, find, operations
from schemathesis import GenerationMode

from openapi import WHO

QUIET = settings(
    database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
RANKS = ("none", "client", "member", "admin", "owner")
LEAST = {text: role or "none" for role, text in WHO.items()}
WEIGHTS = {"DELETE": 1, "POST": 4}  # more is created than deleted
# To generate an input takes longer than to send it, so each is sent several times, with other ids and keys.
INPUT_USES = 8
MOST_FOUND = 30  # of what links have found, for each operation
PASSES = 10  # over the operations, until each has succeeded once
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
PAGES = ("get_docs", "get_openapi", "download_attachment")  # whose answers have no envelope


def draw(strategy: Any, count: int, number: int) -> list[Any]:
    """Up to so many examples of a strategy, the same ones for the same number."""
    drawn: list[Any] = []

    @seed(number)
    @settings(QUIET, max_examples=count)
    @given(strategy)
    def collect(example: Any) -> None:
        drawn.append(example)

    collect()
    return drawn


def is_source(operation: Operation) -> bool:
    """Whether its answers hold ids of what it has created or found."""
    has_links = any(operation.links(status) for status in (200, 201))
    return has_links and (operation.method == "POST" or "{" not in operation.path)


@dataclass
class Inputs:
    """Generated inputs of an operation that are left, and how many to generate next."""

    left: list[Any] = field(default_factory=list)
    count: int = 3


class Walk:
    """Operations one after the other, with any key, and with ids that the answers before held."""

    def __init__(self, run: Run, base: str, keys: Mapping[str, str], protected: set[str], tally: Tally):
        self.run, self.base, self.keys, self.tally = run, base, keys, tally
        self.protected = protected  # ids of the members and keys that we use, which must not change
        self.session = requests.Session()
        self.session.trust_env = False
        spec = tally.document.spec
        self.operations = [o for o in operations(spec) if not o.path.startswith("/plugins/")]
        self.schema = schemathesis.openapi.from_dict(spec)
        self.schema.config.generation.allow_x00 = False  # which is never accepted
        self.inputs: dict[tuple[str, GenerationMode], Inputs] = defaultdict(Inputs)
        # What links have found for each operation, with the role that got the answer.
        self.found: dict[str, deque[tuple[Found, str]]] = defaultdict(lambda: deque(maxlen=MOST_FOUND))
        self.number = 0

    def input_of(self, operation: Operation, mode: GenerationMode) -> Any:
        """One of the generated inputs, which are generated again when each was used a few times."""
        inputs = self.inputs[operation.name, mode]
        if not inputs.left:
            target = self.schema[operation.path][operation.method]
            strategy, number = target.as_strategy(generation_mode=mode), self.run.random.getrandbits(32)
            inputs.left = draw(strategy, inputs.count, number) * INPUT_USES
            inputs.count = min(2 * inputs.count, 50)
            self.run.random.shuffle(inputs.left)
        return inputs.left.pop()

    def go(self, seconds: float) -> None:
        """Step until so many seconds are over, after each operation has succeeded."""
        ends_at = time.monotonic() + min(seconds, self.run.left)
        self.reach_all()
        weights = [1 if o.is_public else WEIGHTS.get(o.method, 2) for o in self.operations]
        while time.monotonic() < ends_at:
            (operation,) = self.run.random.choices(self.operations, weights)
            if "{" not in operation.path or self.found[operation.name] or self.run.random.random() < 0.05:
                self.step(operation, self.role(operation))

    def reach_all(self) -> None:
        """Call the operations that have not succeeded yet, a few times at most.

        First those whose answers hold ids, which what comes then may use up; at last what deletes.
        """
        sources = [o for o in self.operations if is_source(o)]
        for _ in range(PASSES):
            missing = [o for o in self.operations if o.name not in self.tally.reached]
            if not missing:
                return
            for operation in sources + sorted(missing, key=lambda o: o.method == "DELETE"):
                self.step(operation, "owner", self.example(operation))

    def example(self, operation: Operation) -> Any:
        """The case that the document shows."""
        target = self.schema[operation.path][operation.method]
        ids = {name: NOBODY for name, place in operation.parameters.items() if place["in"] == "path"}
        content = operation.described.get("requestBody", {"content": {}})["content"]
        if "multipart/form-data" in content:
            form: Any = {"file": b"text"}
            return target.Case(path_parameters=ids, body=form, media_type="multipart/form-data")
        if content:
            example = content["application/json"]["example"]
            return target.Case(path_parameters=ids, body=example, media_type="application/json")
        return target.Case(path_parameters=ids)

    def role(self, operation: Operation) -> str:
        """Mostly the role of somebody who may call this operation."""
        random, least = self.run.random, RANKS.index(LEAST[operation.described["description"]])
        return random.choice(RANKS[max(1, least) :] if random.random() < 0.8 else list(self.keys))

    def step(self, operation: Operation, role: str, example: Any = None) -> None:
        """Call an operation with an input, generated unless given, and with what a link has found for it."""
        random, target = self.run.random, self.schema[operation.path][operation.method]
        # Without a query and a body there is nothing that would not fit.
        is_wrong = not example and (target.body or target.query) and random.random() < 0.1
        case = example or self.input_of(operation, NEGATIVE if is_wrong else POSITIVE)
        found = Found({}, {})
        if self.found[operation.name] and random.random() < 0.97:
            found, creator = random.choice(self.found[operation.name])
            if random.random() < 0.3 and self.may(creator, operation):
                role = creator
        request = self.request(operation, case, found, as_generated=bool(is_wrong))
        if key := self.keys[role]:
            request["headers"]["Authorization"] = f"Bearer {key}"
        answer = self.session.request(**request, timeout=PATIENCE, allow_redirects=False)
        is_page = operation.name in PAGES and answer.ok or not operation.path.startswith("/api/v1")
        is_sound = self.tally.examine(
            STATEFUL,
            operation.name,
            answer,
            lambda: self.tally.documented(answer, operation.path, operation.method, envelope=not is_page),
            lambda: self.check_role(operation, role, answer),
            lambda: self.check_effect(operation, answer),
        )
        if is_sound and answer.ok:
            self.learn(operation, answer, role)
        elif answer.status_code in (404, 409, 410, 412):
            self.drop(operation, found)

    def request(self, operation: Operation, case: Any, found: Found, *, as_generated: bool) -> dict[str, Any]:
        """The request of a case, with what a link has found in place of what was generated.

        References and versions that no link gives are left out of most, since they name nothing, and what
        must be new mostly is.
        """
        random = self.run.random
        kwargs = case.as_transport_kwargs(base_url=self.base)
        del kwargs["headers"]["User-Agent"]
        ids = {name: quote(str(value), safe="") for name, value in case.path_parameters.items()}
        places = {"path": ids, "header": kwargs["headers"], "query": dict(kwargs.get("params") or {})}
        if not as_generated and random.random() < 0.9:
            places["header"].pop("If-Match", None)
            if "Idempotency-Key" in places["header"]:
                self.number += 1
                places["header"]["Idempotency-Key"] += str(self.number)
        for name, value in found.parameters.items():
            places[operation.parameters[name]["in"]][name] = value
        if operation.method != "GET" and self.protected & set(ids.values()):
            ids = dict.fromkeys(ids, NOBODY)
        kwargs |= {"url": self.base + operation.path_with(ids), "params": places["query"]}
        if not as_generated and isinstance(case.body, dict) and "json" in kwargs:
            kwargs["json"] = self.body(case.body) | found.body
        kwargs.pop("cookies", None)
        return kwargs

    def body(self, generated: dict[str, Any]) -> dict[str, Any]:
        """A generated body without most references, and mostly with a new address."""
        if self.run.random.random() < 0.05:
            return generated
        body = {name: value for name, value in generated.items() if not name.endswith(("_id", "_ids"))}
        if "email" in body:
            self.number += 1
            body["email"] = f"person-{self.number}@example.com"
        return body

    def learn(self, operation: Operation, answer: requests.Response, role: str) -> None:
        """Keep what the links of an answer find in it."""
        path = answer.request.path_url.partition("?")[0].lower()
        parts = zip(operation.path.split("/"), path.split("/"), strict=False)
        ids = {name[1:-1]: part for name, part in parts if name.startswith("{")}
        for link in operation.links(answer.status_code):
            found = find(link, answer, ids)
            if found and not self.protected & set(map(str, found.parameters.values())):
                self.found[link["operationId"]].append((found, role))
        if version := answer.headers.get("ETag"):
            for found, _ in self.all_found():
                if "If-Match" in found.parameters and found.parameters["id"] == ids.get("id"):
                    found.parameters["If-Match"] = version
        if operation.method == "DELETE" and answer.json()["data"].get("deleted"):
            self.forget(path.rpartition("/")[2])
        elif "token" in ids and operation.method == "POST":
            self.forget(answer.request.path_url.rpartition("/")[2])

    def all_found(self) -> Iterator[tuple[Found, str]]:
        for known in self.found.values():
            yield from known

    def forget(self, id: str) -> None:
        """Call no operation again with what does not exist any more."""
        for name, known in self.found.items():
            left = [(found, role) for found, role in known if not found.has(id)]
            self.found[name] = deque(left, maxlen=MOST_FOUND)

    def drop(self, operation: Operation, found: Found) -> None:
        """Do not call this operation again with what is in another state."""
        left = [pair for pair in self.found[operation.name] if pair[0] is not found]
        self.found[operation.name] = deque(left, maxlen=MOST_FOUND)

    def may(self, role: str, operation: Operation) -> bool:
        """Whether the document lets this role call the operation."""
        least = LEAST[operation.described["description"]]
        return role in RANKS and RANKS.index(role) >= RANKS.index(least)

    def check_role(self, operation: Operation, role: str, answer: requests.Response) -> None:
        """Nobody does what the document does not let their role do."""
        least = LEAST[operation.described["description"]]
        if role == "none":
            assert (answer.status_code == 401) == (least != "none"), f"without a key, {least} may"
        elif role == "read":
            assert not answer.ok or operation.method == "GET" or least == "none", "a key that may only read"
        elif RANKS.index(role) < RANKS.index(least):
            assert not answer.ok, f"{role} may not, only {least}"

    def check_effect(self, operation: Operation, answer: requests.Response) -> None:
        """What a creation names in Location is there; what was deleted is not."""
        headers = {"Authorization": f"Bearer {self.keys['owner']}"}
        is_new = answer.status_code == 201 and "Idempotent-Replayed" not in answer.headers
        if is_new and (place := answer.headers.get("Location")):
            shown = self.session.get(self.base + place, headers=headers, timeout=PATIENCE)
            assert shown.ok, f"Location is answered {shown.status_code}"
        if operation.method == "DELETE" and answer.ok and answer.json()["data"].get("deleted"):
            again = self.session.delete(answer.url, headers=headers, timeout=PATIENCE)
            assert again.status_code == 404, f"what was deleted is answered {again.status_code}"
