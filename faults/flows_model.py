"""The gateway's flows against a model of them, also after kills; and its callers (`callers.py`)."""

import json
import time
from typing import Any

from callers import (
    ROUTES,
    UNLIMITED,
    WORKERS,
    Line,
    check_races,
    check_rotation,
    check_window,
    configure,
    first_secret,
    path_of,
)
from findings import Run
from flows import LARGEST, Flows, Row
from harness import Server
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from machines import Machine, explore

ROUTE = st.integers(0, len(ROUTES) - 1)
NUMBER = st.integers(0, 5)  # of a flow; see `FlowsMachine.flow_id`
TEXT = st.sampled_from(["a", " b ", "Ж\n😀", "x" * 300]) | st.text("aB 1é", min_size=1).filter(str.strip)
KEY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
SCALAR = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e300, 1e300) | KEY
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3), max_leaves=5
)
TEXT_OR_NULL = st.none() | TEXT
POLICY = st.sampled_from(["done_only", "state_changes", "silent"])
TIME = st.integers(0, LARGEST)
# Most often the flow's own revision, from which the first kind of number is counted.
REVISION = st.tuples(st.just(True), st.sampled_from([0, 0, 0, 0, 0, 0, -1, -2, 1, 0.0])) | st.tuples(
    st.just(False), st.sampled_from([-1, 0, LARGEST, LARGEST + 1, 2**64, 0.5, 1e300, True, "0", None])
)


def optional(**strategies: st.SearchStrategy) -> st.SearchStrategy[Row]:
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=strategies)


STATE = {"stateJson": JSON}
STEP = {"currentStep": TEXT_OR_NULL, **STATE}
BLOCKED = {"blockedTaskId": TEXT_OR_NULL, "blockedSummary": TEXT_OR_NULL}
NEW_FLOW = optional(
    controllerId=TEXT,
    status=st.sampled_from(["queued", "running", "waiting", "blocked"]),
    notifyPolicy=POLICY,
    waitJson=JSON,
    **STEP,
)
MUTATION: st.SearchStrategy[tuple[str, Row]] = st.one_of(
    st.tuples(st.just("set_waiting"), optional(waitJson=JSON, **STEP, **BLOCKED)),
    st.tuples(st.just("resume_flow"), optional(status=st.sampled_from(["queued", "running"]), **STEP)),
    st.tuples(st.just("finish_flow"), optional(**STATE)),
    st.tuples(st.just("fail_flow"), optional(**STATE, **BLOCKED)),
    st.tuples(st.just("request_cancel"), st.just({})),
)
CHILD = st.sampled_from(["agent:main:a", " AGENT:main:b", "agent:main", "agent:mainx:a", "agent:other:a"])
NAME = st.sampled_from(["a", " b "])  # few, so that they repeat
TASK = st.fixed_dictionaries(
    {"runtime": st.sampled_from(["subagent", "acp"]), "task": NAME},
    optional={
        **dict.fromkeys(["sourceId", "parentTaskId", "agentId", "label"], NAME),
        **{"runId": st.sampled_from(["run"]), "childSessionKey": CHILD, "preferMetadata": st.booleans()},
        **{"notifyPolicy": POLICY, "status": st.sampled_from(["queued", "running", "running", "running"])},
        **{"startedAt": TIME, "lastEventAt": TIME, "progressSummary": TEXT_OR_NULL},
    },
)
WRONG = st.sampled_from(
    [
        ("list_flows", {"surplus": 1}, 'Unrecognized key: "surplus"'),
        ("create_flow", {"goal": " "}, "goal: "),
        ("create_flow", {"goal": "a", "status": "succeeded"}, "status: "),
        ("create_flow", {"goal": "a", "stateJson": "\0"}, "stateJson: "),
        ("run_task", {"flowId": "a", "runtime": "cli", "task": "a"}, "runtime: "),
        ("cancel_flow", {"flowId": None}, "flowId: "),
        ("delete_flow", {"flowId": "a"}, "action: "),
    ]
)


class FlowsMachine(Machine):
    """Actions on the flows of three routes, each of which must be answered as the model says."""

    requests = kills = 0

    def __init__(self, server: Server):
        super().__init__()
        server.rows("DELETE FROM flow_task")
        server.rows("DELETE FROM flow")
        self.server, self.flows = server, Flows()
        self.callers = [Line(server, path_of(route), first_secret(route)) for route in ROUTES]

    def teardown(self) -> None:
        super().teardown()
        for caller in self.callers:
            caller.close()

    def flow_id(self, number: int) -> str:
        """The id of a flow by the order of creation, or one that there is not."""
        return [*self.flows.flows, "nothing"][number % (len(self.flows.flows) + 1)]

    def do(self, route: int, action: str, fields: Row, *, is_told=True) -> None:
        """Send an action, which must be answered as the model answers it."""
        began = time.time_ns() // 1_000_000
        status, body = self.callers[route].call(action, **fields)
        ended = time.time_ns() // 1_000_000
        FlowsMachine.requests += 1
        if is_told:
            self.tell_action(route, action, fields, f"{status} {body.get('code', '')}")
        made = body["result"].get("task") or body["result"].get("flow") or {}
        at = made.get("createdAt" if "taskId" in made else "updatedAt", 0)
        id = made.get("taskId") or made.get("flowId", "")
        # A time that lies elsewhere differs from the one that the model is given.
        expected = self.flows.answer(ROUTES[route], action, fields, min(max(at, began), ended), id)
        if body.get("code") == expected[1].get("code") == "invalid_request":
            assert body["error"].startswith(expected[1]["error"]), f"came {body}, not {expected[1]['error']}"
            body["error"] = expected[1]["error"]
        assert (status, body) == expected, f"came {status} {body}, not {expected}"

    def tell_action(self, route: int, action: str, fields: Row, came: str) -> None:
        text = json.dumps(fields, ensure_ascii=False)
        for number, id in enumerate(self.flows.flows):
            text = text.replace(id, f"flow {number}")
        self.tell(f"{ROUTES[route].route} {action} {text} -> {came.strip()}")

    @invariant()
    def lists_are_equal(self) -> None:
        for route in (0, 2):
            self.do(route, "list_flows", {}, is_told=False)

    @rule(route=ROUTE, goal=TEXT, fields=NEW_FLOW)
    def create(self, route: int, goal: str, fields: Row) -> None:
        self.do(route, "create_flow", {"goal": goal, **fields})

    @rule(route=ROUTE, number=NUMBER, mutation=MUTATION, revision=REVISION)
    def mutate(self, route: int, number: int, mutation: tuple[str, Row], revision: tuple[bool, Any]) -> None:
        id, (is_counted, value) = self.flow_id(number), revision
        stored = self.flows.flows.get(id, {}).get("revision", 0)
        value = stored + value if is_counted else value
        self.do(route, mutation[0], {"flowId": id, "expectedRevision": value, **mutation[1]})

    @rule(route=ROUTE, number=NUMBER)
    def cancel(self, route: int, number: int) -> None:
        self.do(route, "cancel_flow", {"flowId": self.flow_id(number)})

    @rule(route=ROUTE, number=NUMBER, fields=TASK)
    def run_task(self, route: int, number: int, fields: Row) -> None:
        self.do(route, "run_task", {"flowId": self.flow_id(number), **fields})
        self.do(route, "get_task_summary", {"flowId": self.flow_id(number)}, is_told=False)

    @rule(route=ROUTE, number=NUMBER)
    def read(self, route: int, number: int) -> None:
        id = self.flow_id(number)
        self.do(route, "get_flow", {"flowId": f" {id}"})
        self.do(route, "get_task_summary", {"flowId": id})
        self.do(route, "find_latest_flow", {})
        for token in (id, ROUTES[route].key, ROUTES[route - 1].key):
            self.do(route, "resolve_flow", {"token": token})

    @rule(route=ROUTE, wrong=WRONG)
    def send_wrong_fields(self, route: int, wrong: tuple[str, Row, str]) -> None:
        status, body = self.callers[route].call(wrong[0], **wrong[1])
        self.tell_action(route, wrong[0], wrong[1], str(status))
        assert (status, body["code"], body["result"]) == (400, "invalid_request", {}), body
        assert body["error"].startswith(wrong[2]), f"came {body}, not {wrong[2]}"

    @rule(route=ROUTE, number=NUMBER)
    def send_secret_of_another_route(self, route: int, number: int) -> None:
        caller = self.callers[route]
        caller.secret = first_secret(ROUTES[route - 1])
        fields = {"flowId": self.flow_id(number)}
        status, body = caller.call("cancel_flow", **fields)
        caller.secret = first_secret(ROUTES[route])
        self.tell_action(route, "cancel_flow with the secret of another route", fields, str(status))
        assert (status, body["code"], body["result"]) == (401, "unauthorized", {}), body

    @rule(route=ROUTE, number=NUMBER, chance=st.integers(0, 15))
    def kill(self, route: int, number: int, chance: int) -> None:
        """Kill the server while a write is under way, of which either nothing or all must be left."""
        if chance != 11:  # a start takes as long as a hundred requests
            return
        id, caller = self.flow_id(number), self.callers[route]
        stored = self.flows.owned(ROUTES[route], id) or {"revision": 0}
        fields = {"flowId": id, "expectedRevision": stored["revision"], "stateJson": "before the kill"}
        caller.send("fail_flow", fields)
        self.tell_action(route, "fail_flow", fields, "killed meanwhile")
        self.server.kill()
        FlowsMachine.kills += 1
        self.server.start(*WORKERS)
        for caller in self.callers:
            caller.close()
        found = self.callers[route].call("get_flow", flowId=id)[1]["result"]["flow"]
        if found and found["revision"] != stored["revision"]:
            self.flows.answer(ROUTES[route], "fail_flow", fields, found["updatedAt"], "")


def run(run: Run) -> None:
    folder, until = run.folder / "routes", run.ends_at - run.seconds / 2
    with run.server("one-worker", TASKS_CONFIG=configure(folder, limits="")) as server:
        check_window(run, server)
        check_rotation(run, server, folder)
    with run.server("two-workers", *WORKERS, TASKS_CONFIG=configure(folder, UNLIMITED)) as server:
        check_races(run, server, until)
        explored = explore(run, lambda: FlowsMachine(server))
    counts = f"{explored.examples} examples, {explored.steps} steps, {FlowsMachine.requests} requests, "
    counts += f"{FlowsMachine.kills} kills"
    run.found("", "flows, tasks and answers as in the model", counts, "always", not explored.failure)
