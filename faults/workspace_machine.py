"""A state machine of Hypothesis whose every request is compared with the model of the workspace."""

import json
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from workspace_choices import COLUMNS, Choices
from workspace_input import ANYBODY, LOCATED, queries
from workspace_model import Change, read_body
from workspace_shown import Row, as_text
from workspace_stage import Act, Mismatch, Stage, first_difference

SENT_AT_ONCE = 20  # webhook calls at most that are made before the answer


def moment() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


class Keyed(NamedTuple):
    """A POST with an Idempotency-Key, which can be repeated."""

    actor: str
    path: str
    options: Row
    kind: str
    answer: Any


def without_id(row: Row) -> Row:
    return {name: row[name] for name in row if name != "id"}


def request_in_words(actor: str, method: str, path: str, options: Row) -> str:
    """A request for a message, with long texts shortened."""
    words = [method, path]
    if body := options.get("json"):
        short = {n: f"{v[:30]}…" if isinstance(v, str) and len(v) > 60 else v for n, v in body.items()}
        words.append(json.dumps(short, ensure_ascii=False))
    words += [f"{name}: {value}" for name, value in (options.get("headers") or {}).items()]
    return " ".join([*words, "as", actor])


def step(needs: str = "", *, begins: bool = False, **drawn: st.SearchStrategy) -> Callable[[Callable], Any]:
    """Make a method a rule, after which the server is compared with the model.

    It can be chosen only if there are rows of the kind that it `needs`.
    """

    def decorate(act: Callable) -> Any:
        def run(self: "ComparedMachine", look: Row, reader: str, **values: Any) -> None:
            if needs and not self.model.rows[needs]:  # one of fewer acts, to make a failure smaller
                return
            self.acts.append((run, {"look": look, "reader": reader} | values))
            with self.noticing_failures():
                act(self, **values)
                self.compare_some(reader, look)
            self.stage.counts["steps"] += act.__name__ != "look"  # which does nothing

        run.__name__ = act.__name__
        make: Any = initialize if begins else rule
        made = make(look=queries(), reader=ANYBODY, **drawn)(run)
        return precondition(lambda self: bool(self.model.rows[needs]))(made) if needs else made

    return decorate


class ComparedMachine(RuleBasedStateMachine):
    """One example: a workspace without projects, and a model of it."""

    stage: ClassVar[Stage]

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[Act] = []
        self.steps: list[str] = []  # the acts in words
        self.names = {id: role for role, id in self.stage.ids.items()}  # of ids, for messages
        self.has_failed = False
        with self.noticing_failures():
            self.model = self.stage.begin()
        self.choose = Choices(self.model)
        self.keyed: list[Keyed] = []
        self.base_event = self.last_event = self.stage.last_event
        self.calls: list[Row] = []  # of the webhook
        page = self.stage.data("owner", "GET", "/activity", params={"limit": 1})
        self.base_activity = self.last_activity = page["activity"][0]["id"]
        self.touched: list[tuple[str, str]] = []  # kinds and ids of rows

    @contextmanager
    def noticing_failures(self) -> Any:
        try:
            yield
        except SystemExit as end:  # which Hypothesis would take for a failure, unlike this one
            self.has_failed = True
            raise KeyboardInterrupt from end
        except Exception as error:
            self.has_failed = True
            self.stage.failed(self.acts, self.steps, error)
            raise

    def compare(self, what: str, shown: Any, *expected: Any) -> None:
        """Raise `Mismatch` unless what is shown is one of these."""
        self.stage.counts["comparisons"] += 1
        text = as_text(shown)
        if all(text != as_text(value) for value in expected):
            difference = first_difference(shown, expected[-1])
            raise Mismatch(self.with_names(f"{what}: {difference}"))

    def with_names(self, text: str) -> str:
        for id, name in self.names.items():
            text = text.replace(id, name)
        return text

    def read(self, actor: str, path: str, expected: Any, *, key: str = "", **query: Any) -> Any:
        """Compare what is read with what is expected: a value, or a function that returns it for a time.

        Returns the answer.
        """
        sent = moment()
        answer = self.stage.clients[actor].request("GET", path, params=query)
        what = f"GET {path} {query or ''} as {actor}"
        if answer.status_code != 200:
            raise Mismatch(self.with_names(f"{what}: {answer.status_code} {answer.text[:300]}"))
        body = answer.json()
        shown = body["data"][key] if key else body["data"]
        if callable(expected):
            self.compare(what, shown, expected(sent), expected(body["meta"]["timestamp"]))
        else:
            self.compare(what, shown, expected)
        return answer

    # Writing

    def write(
        self,
        actor: str,
        method: str,
        path: str,
        refused: set[int],
        change: Callable[[Change, Row], Any],
        shown: Callable[[Row, str], Any],
        **options: Any,
    ) -> Any:
        """Send a request that changes something, and compare all that it leads to; returns the answer.

        It must be answered with one of the statuses in `refused`; if there are none, `change` is applied
        to the model, and the answer's data must be what `shown` returns for a time.
        """
        self.steps.append(self.with_names(request_in_words(actor, method, path, options)))
        sent = moment()
        answer = self.stage.clients[actor].request(method, path, **options)
        until, data = moment(), answer.json().get("data")
        self.steps[-1] += f": {answer.status_code}"
        self.stage.counts["requests"] += 1
        if refused or not answer.ok:
            if answer.status_code not in refused:
                meant = f"it must be {' or '.join(map(str, sorted(refused))) or 'a success'}"
                raise Mismatch(self.with_names(f"{answer.text[:300]}, but {meant}"))
            self.compare_history(self.news())
            self.compare_calls()
            return None
        news = self.news()
        at = news[-1]["created_at"] if news else ""
        if at and not sent[:-4] <= at[:-4] <= until[:-4]:
            raise Mismatch(f"the change was made at {at}, but sent at {sent} and answered at {until}")
        told = len(self.model.events)
        change(Change(self.stage.ids[actor], at, answer.json()["meta"]["request_id"]), data)
        if answer.status_code == 201 and "Idempotent-Replayed" not in answer.headers:
            kind, made = path.rpartition("/")[2].rstrip("s"), data.get("member", data)["id"]
            self.names[made] = f"{kind}-{len(self.names) + 1}"
            self.steps[-1] += f" {self.names[made]}"
        self.compare("the answer", data, shown(data, sent), shown(data, until))
        self.compare_history(news)
        self.compare_calls()
        self.compare_deliveries(answer, len(self.model.events) - told)
        return answer

    def news(self) -> list[Row]:
        """What the history has that is new, the oldest first."""
        news: list[Row] = []
        query: Row = {"limit": 3}
        while True:
            page = self.stage.data("owner", "GET", "/activity", params=query)["activity"]
            news += [entry for entry in page if entry["id"] > self.last_activity]
            if len(page) > 0 and page[-1]["id"] <= self.last_activity:
                return news[::-1]
            query = {"limit": 100, "before": page[-1]["id"]}

    def compare_history(self, news: list[Row]) -> None:
        unread = [entry for entry in self.model.history if "id" not in entry]
        self.compare("the history's new entries", [without_id(entry) for entry in news], unread)
        for entry, expected in zip(news, unread, strict=True):
            if entry["id"] <= self.last_activity:
                raise Mismatch("the ids of the history do not rise")
            expected["id"] = self.last_activity = entry["id"]

    def compare_calls(self) -> None:
        """Compare the calls of the webhook with the model's events."""
        expected = self.model.events[len(self.calls) :]
        new = self.stage.receiver.all_here()
        if len(new) < len(expected):  # a call is worth waiting for if its event is stored
            query = {"after": self.last_event, "limit": 100}
            stored = self.stage.data("owner", "GET", "/events", params=query)["events"]
            self.compare("GET /events", [without_id(event) for event in stored], expected[:100])
            new += [self.stage.receiver.next() for _ in expected[len(new) :]]
        bodies = [call.event for call in new]
        self.compare("the webhook's new calls", [without_id(body) for body in bodies], expected)
        self.calls += bodies
        if bodies:
            self.last_event = bodies[-1]["id"]

    def compare_deliveries(self, answer: Any, count: int) -> None:
        """The webhook was called before the answer, except where the calls are very many."""
        if count > SENT_AT_ONCE:
            self.stage.settle()
        else:
            expected = f"delivered={count}; pending=0" if count else None
            self.compare("x-webhook-deliveries", answer.headers.get("x-webhook-deliveries"), expected)

    def create(
        self,
        actor: str,
        kind: str,
        path: str,
        body: Row,
        more: Row | None = None,
        *,
        refused: set[int] | None = None,
        keyed: bool = False,
        **options: Any,
    ) -> str | None:
        """Create a row of a kind; returns its id. `more` are fields that the body does not have.

        With `keyed` it has an Idempotency-Key, and can be repeated.
        """
        if body:
            options["json"] = body
        if keyed:
            options["headers"] = {"Idempotency-Key": f"{self.stage.counts['examples']}-{len(self.keyed)}"}
        fields = read_body(body) | (more or {})
        newest = max((id for rows in self.model.rows.values() for id in rows), default="")
        answer = self.write(
            *(actor, "POST", path, self.model.refusals(kind, fields) | (refused or set())),
            lambda change, data: self.model.create(change, kind, data["id"], fields),
            lambda data, at: self.model.shown(kind, data["id"], at),
            **options,
        )
        if answer is None:
            return None
        id = answer.json()["data"]["id"]
        if id <= newest:
            raise Mismatch(f"the new id {id} is not greater than the earlier {newest}")
        place = f"/api/v1{'/milestones' if kind == 'milestone' else path}/{id}"
        self.compare("Location", answer.headers.get("Location"), place if kind != "comment" else None)
        self.compare("ETag", answer.headers.get("ETag"), '"1"' if kind == "task" else None)
        self.touched.append((kind, id))
        if "headers" in options:
            self.keyed.append(Keyed(actor, path, options, kind, answer))
        return id

    def change(
        self,
        actor: str,
        method: str,
        path: str,
        kind: str,
        id: str,
        refused: set[int],
        fields: Row,
        **options: Any,
    ) -> None:
        """Change a row of a kind."""
        if id not in self.model.rows[kind]:
            refused = refused | {404}
        self.write(
            *(actor, method, path, refused),
            lambda change, data: self.model.edit(change, kind, id, fields),
            lambda data, at: self.model.shown(kind, id, at),
            **options,
        )
        self.touched.append((kind, id))

    def delete(self, actor: str, kind: str, id: str, path: str, refused: set[int], **options: Any) -> None:
        """Delete a row of a kind."""
        if id not in self.model.rows[kind]:
            refused = refused | {404}
        self.write(
            *(actor, "DELETE", path, refused),
            lambda change, data: self.model.remove(change, kind, id),
            lambda data, at: {"id": id, "deleted": True},
            **options,
        )

    def refuse(self, actor: str, method: str, path: str, status: int, **options: Any) -> None:
        """Send a request that must be refused with this status, and change nothing."""
        self.write(actor, method, path, {status}, lambda change, data: None, lambda data, at: None, **options)

    def not_allowed(self, actor: str, kind: str, id: str) -> set[int]:
        """A meeting is its organizer's and an admin's."""
        row = self.model.rows[kind].get(id, {})
        is_anothers = row.get("organizer_id", self.stage.ids[actor]) != self.stage.ids[actor]
        return {403} if is_anothers and actor != "owner" else set()

    # Comparing

    def compare_row(self, kind: str, id: str) -> None:
        """Compare a row as it is shown at its own address."""
        if kind == "task":
            answer = self.read("client", f"/tasks/{id}", self.model.task_detail(id))
            self.compare("ETag", answer.headers.get("ETag"), f'"{self.model.rows["task"][id]["version"]}"')
        elif kind in LOCATED:
            self.read("client", f"/{kind}s/{id}", lambda at: self.model.shown(kind, id, at))

    def compare_some(self, reader: str, look: Row) -> None:
        """Compare the row that was changed, the context, and one list of tasks."""
        touched = [(kind, id) for kind, id in self.touched if id in self.model.rows[kind]]
        self.touched.clear()
        for kind, id in dict.fromkeys(touched):
            self.compare_row(kind, id)
        if touched and touched[-1][0] == "task":
            self.compare_filters(reader, self.model.rows["task"][touched[-1][1]])
        self.compare_context(reader)
        query = self.choose.resolved_query(look)
        expected = self.model.task_list(self.stage.ids[reader], query)
        self.read(reader, "/tasks", expected, **query)

    def compare_context(self, reader: str) -> None:
        context = self.stage.data(reader, "GET", "/context")
        until, system = moment(), context.pop("system")
        first, last = [self.model.context(at, reader) for at in (system["current_time"], until)]
        # A due date may pass between the time that is shown and the reading of the projects.
        self.compare("GET /context", context, last, first | {"projects": last["projects"]}, first)
        self.compare("the caller", system["caller"]["id"], self.stage.ids[reader])

    def compare_filters(self, reader: str, task: Row) -> None:
        """Compare how many tasks pass each filter that the task itself is at the edge of."""
        edges = [{name: task[column]} for name, column in COLUMNS.items() if task[column] is not None]
        for text in (task["title"], task["description"] or ""):
            edges += [{"q": max(words, key=len)} for words in [text[:200].split()] if words]
        for query in edges:
            expected = self.model.task_list(self.stage.ids[reader], query | {"limit": 1})
            self.read(reader, "/tasks", expected, **query, limit=1)
