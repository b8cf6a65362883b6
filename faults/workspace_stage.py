"""The server on which the model check of tasks plays its examples, and what is known of them."""

import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from findings import Run
from harness import OWNER_KEY, Client, Receiver, Server, check_answer, wait_until
from workspace_model import Workspace
from workspace_shown import Row, as_text

LEAST = 3  # examples that are always played; the first one is very simple


class Enough(BaseException):
    """The time is over. Hypothesis takes exceptions of this kind for no failure."""


class Mismatch(AssertionError):
    """The server and the model differ."""


Act = tuple[Callable, Row]  # a method of a machine, with what it was given


class Failure(NamedTuple):
    """What went wrong, after which acts, and these in words."""

    acts: list[Act]
    steps: list[str]
    what: str


class Caller(Client):
    """A client whose answers are compared with the model, which tells more of them than the document."""

    def request(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.key}"} | (options.pop("headers", None) or {})
        answer = self.session.request(method, self.base + path, headers=headers, timeout=90, **options)
        if answer.headers["Content-Type"] == "application/json" or answer.status_code >= 400:
            check_answer(answer)
        return answer


class Stage:
    """The server on which the examples are played one after the other, and the figures."""

    def __init__(self, run: Run, server: Server, receiver: Receiver):
        self.server, self.receiver = server, receiver
        self.counts: Counter[str] = Counter()
        self.failure: Failure | None = None
        self.turn = 0  # counts the examples until one fails, of which the smaller ones do as it did
        self.ends_at, self.is_over = run.ends_at, False
        self.keys = {"owner": OWNER_KEY}
        self.connect()
        for role in ("member", "client"):
            body = {"email": f"{role}@example.com", "full_name": f"{role.title()} of the model", "role": role}
            link = self.data("owner", "POST", "/members/invite", json=body)["enrollment_link"]
            joined = self.data("owner", "POST", f"/enroll/{link.rpartition('/')[2]}")
            self.keys[role] = joined["api_key"]
        self.connect()
        self.ids = {role: self.data(role, "GET", "/me")["member"]["id"] for role in self.keys}
        self.last_event: str | None = None

    def connect(self) -> None:
        base = f"{self.server.base}/api/v1"
        self.server.clients = [Caller(base, key) for key in self.keys.values()]
        self.clients = dict(zip(self.keys, self.server.clients, strict=True))

    def data(self, actor: str, method: str, path: str, **options: Any) -> Row:
        answer = self.clients[actor].request(method, path, **options)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        return answer.json()["data"]

    def restart(self, how: str) -> None:
        if how == "kill -9":
            self.server.kill()
        else:
            assert self.server.stop() == 0
        self.server.start()
        self.connect()
        self.counts["restarts"] += 1

    def begin(self) -> Workspace:
        """Delete what the last example left, and return a model of what there is."""
        if self.counts["examples"] >= LEAST and time.monotonic() > self.ends_at:
            self.is_over = True
            raise Enough
        self.counts["examples"] += 1
        self.turn += not self.failure
        for kind in ("project", "whiteboard"):
            for row in self.data("owner", "GET", f"/{kind}s")[f"{kind}s"]:
                self.data("owner", "DELETE", f"/{kind}s/{row['id']}{'?force=true' * (kind == 'project')}")
        for role in ("owner", "member"):
            for row in self.data(role, "GET", "/meetings")["meetings"]:
                self.data("owner", "DELETE", f"/meetings/{row['id']}")
        members = self.data("owner", "GET", "/members")["members"]
        for member in members:
            if member["id"] not in self.ids.values():
                self.data("owner", "DELETE", f"/members/{member['id']}")
        members = [member for member in members if member["id"] in self.ids.values()]
        more = True
        while more:
            after = {"after": self.last_event} if self.last_event else {}
            page = self.data("owner", "GET", "/events", params={"limit": 100} | after)["pagination"]
            self.last_event, more = page["next_after"], page["has_more"]
        self.settle()
        self.receiver.all_here()
        recent = {actor: self.data(actor, "GET", "/context")["recent_activity"] for actor in self.ids}
        return Workspace(members, recent)

    def settle(self) -> None:
        """Wait until all webhook calls have been made."""
        wait_until(lambda: not self.data("owner", "GET", "/deliveries?status=pending")["deliveries"])

    def failed(self, acts: list[Act], steps: list[str], error: Exception) -> None:
        """Keep the failure, unless a smaller one is known, or the example could not even begin."""
        if not acts and self.failure:
            return
        if not self.failure or (len(acts), len(steps)) < (len(self.failure.acts), len(self.failure.steps)):
            what = f"{type(error).__name__}: " * (not isinstance(error, Mismatch)) + str(error)
            self.failure = Failure(list(acts), list(steps), what)
            traceback.print_exception(error)


def make_smaller(stage: Stage, machine: Callable, seconds: float) -> None:
    """Leave out acts of the failure as long as it remains one, and the time is not over.

    Hypothesis would do this too, but tries far more, of which each takes as long as the example.
    """
    stage.ends_at = time.monotonic() + seconds

    def known() -> list[Act]:
        return stage.failure.acts if stage.failure else []

    with suppress(Enough):
        size = len(known()) // 2
        while size:
            start = 1  # the first act makes a project
            while start < len(known()):
                if not fails(machine, known()[:start] + known()[start + size :]):
                    start += size
            size //= 2
        for number, name, place in places_in_lists(known()):
            acts = known()
            act, values = acts[number] if number < len(acts) else (None, {})
            if act and place < len(values[name]):
                values = values | {name: values[name][:place] + values[name][place + 1 :]}
                fails(machine, [*acts[:number], (act, values), *acts[number + 1 :]])


def places_in_lists(acts: list[Act]) -> list[tuple[int, str, int]]:
    """Where acts were given lists of things to do: the act, the list's name and the place in it."""
    lists = [
        (number, name, len(value))
        for number, (_, values) in enumerate(acts)
        for name, value in values.items()
        if isinstance(value, list)
    ]
    return [(number, name, place) for number, name, length in lists for place in reversed(range(length))]


def fails(machine: Callable, acts: list[Act]) -> bool:
    """Whether these acts, in a new example, fail too; the stage keeps the failure."""
    example = None
    try:
        example = machine()
        for act, values in acts:
            act(example, **values)
        example.teardown()
    except Exception:
        return example is not None
    return False


def first_difference(shown: Any, expected: Any, path: str = "") -> str:
    """Where two JSON values differ, and how."""
    if isinstance(shown, dict) and isinstance(expected, dict):
        for name in sorted({*expected, *shown}, key=lambda name: (name != "id", name)):
            if name not in shown or name not in expected:
                return f"{path}.{name} is {'missing' if name in expected else 'not expected'}"
            if as_text(shown[name]) != as_text(expected[name]):
                return first_difference(shown[name], expected[name], f"{path}.{name}")
    if isinstance(shown, list) and isinstance(expected, list) and len(shown) == len(expected):
        for number, pair in enumerate(zip(shown, expected, strict=True)):
            if as_text(pair[0]) != as_text(pair[1]):
                return first_difference(*pair, f"{path}[{number}]")
    return f"{path or 'it'} is {as_text(shown)[:200]}, but must be {as_text(expected)[:200]}"
