"""The gateway's flows against a model of them, also after kills; and its callers (`callers.py`)."""

import json
import time
from typing import Any

from callers import (
    ROUTES,
    UNLIMITED,
    Caller,
    check_races,
    check_rotation,
    check_window,
    configure,
    first_secret,
    path_of,
)
from connections import LARGEST, TWO_WORKERS, Connection
from findings import Run
from flows import Flows, Row
from harness import Server
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from machines import Machine, explore

ROUTE = st.sampled_from([*[0] * 6, 1, 1, 2, 2])
NUMBER = st.sampled_from([*[0] * 6, *[1] * 6, 2, 2, 9])  # of a flow; see `FlowsMachine.flow_id`
TEXT = st.sampled_from(["a", " b ", "Ж\n😀", "x" * 300]) | st.text("aB 1é", min_size=1).filter(str.strip)
KEY = st.text('a_1 \n\x1f\x7f"\\éЖ\u2028\ufeff\uffff😀', max_size=8)
SCALAR = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e300, 1e300) | KEY
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3), max_leaves=5
)
TEXT_OR_NULL = st.none() | TEXT
POLICY = st.sampled_from(["done_only", "state_changes", "silent"])
TIME = st.integers(0, LARGEST)
# Whether it is counted from the flow's own revision, and a number.
REVISION = st.sampled_from(
    [*[(True, 0)] * 30, (True, 0.0), (True, -1), (True, -2), (True, 1), (False, -1), (False, LARGEST)]
    + [(False, value) for value in (LARGEST + 1, 2**64, 0.5, 1e300, True, "0", None)]
)
SPARED = 5  # times as long as a kill and a start take, the server is not killed again


def optional(**strategies: st.SearchStrategy) -> st.SearchStrategy[Row]:
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=strategies)


STATE = {"stateJson": JSON}
STEP = {"currentStep": TEXT_OR_NULL, **STATE}
BLOCKED = {"blockedTaskId": TEXT_OR_NULL, "blockedSummary": TEXT_OR_NULL}
STATUS = st.sampled_from(["queued", "running"])
CHILD = st.sampled_from(
    ["agent:main:a", "agent:main:a", " AGENT:main:b", "agent:main", "agent:mainx:a", "agent:other:a"]
)
NAME = st.sampled_from(["a", " b "])  # few, so that they repeat
REPORTED = {"startedAt": TIME, "lastEventAt": TIME, "progressSummary": TEXT_OR_NULL}  # of a running task
NEW_FLOW = optional(
    status=STATUS | st.sampled_from(["waiting", "blocked"]),
    **{"controllerId": TEXT, "notifyPolicy": POLICY, "waitJson": JSON, **STEP},
)
FILLED = ("sourceId", "parentTaskId", "agentId", "label")  # of a task, by the next report of its run
# Whether the last task is run again, with such fields and another one of these.
AGAIN = st.sampled_from(
    ["", "", "", "preferMetadata", "preferMetadata", "task", "runtime", "childSessionKey"]
)
NEW_TASK = st.tuples(
    st.fixed_dictionaries({"runtime": st.sampled_from(["subagent", "acp"]), "task": NAME, "again": AGAIN}),
    optional(runId=st.just("run"), childSessionKey=CHILD, preferMetadata=st.booleans(), notifyPolicy=POLICY),
    optional(**dict.fromkeys(FILLED, NAME)),
    optional(status=STATUS)
    | st.fixed_dictionaries({"status": st.just("running")}, optional=REPORTED)
    | optional(status=STATUS, **REPORTED),
).map(lambda parts: parts[0] | parts[1] | parts[2] | parts[3])
WRONG = [
    ("list_flows", {"surplus": 1}, 'Unrecognized key: "surplus"'),
    ("create_flow", {"goal": " "}, "goal: "),
    ("create_flow", {"goal": "a", "status": "succeeded"}, "status: "),
    ("create_flow", {"goal": "a", "stateJson": "\0"}, "stateJson: "),
    ("run_task", {"flowId": "a", "runtime": "cli", "task": "a"}, "runtime: "),
    ("cancel_flow", {"flowId": None}, "flowId: "),
    ("delete_flow", {"flowId": "a"}, "action: "),
]
FIELDS: dict[str, st.SearchStrategy[Row]] = {
    "create_flow": st.tuples(NEW_FLOW, TEXT).map(lambda parts: parts[0] | {"goal": parts[1]}),
    "run_task": NEW_TASK,
    "set_waiting": optional(waitJson=JSON, **STEP, **BLOCKED),
    "resume_flow": optional(status=STATUS, **STEP),
    "finish_flow": optional(**STATE),
    "fail_flow": optional(**STATE, **BLOCKED),
    "request_cancel": optional(),
    "wrong fields": st.sampled_from(WRONG).map(lambda wrong: {"wrong": wrong}),
}
# One rule does all of them, since hypothesis leaves rules out; these shares are kept.
SHARES = {"run_task": 9, "set_waiting": 4, "resume_flow": 4, "finish_flow": 3, "fail_flow": 3}
SHARES |= {"create_flow": 3, "cancel_flow": 2, "read": 2}
SHARES |= {"request_cancel": 1, "wrong fields": 1, "wrong secret": 1, "kill": 1}
ACT = st.sampled_from([name for name, share in SHARES.items() for _ in range(share)]).flatmap(
    lambda name: st.tuples(st.just(name), FIELDS.get(name, st.just({})))
)


class FlowsMachine(Machine):
    """Actions on the flows of three routes, each of which must be answered as the model says."""

    requests = kills = 0
    next_kill_at = 0.0

    def __init__(self, server: Server):
        super().__init__()
        server.rows("DELETE FROM flow_task")
        server.rows("DELETE FROM flow")
        self.server, self.flows = server, Flows()
        self.connections = [Connection(server) for _ in ROUTES]
        self.callers = [
            Caller(connection, path_of(route), first_secret(route))
            for connection, route in zip(self.connections, ROUTES, strict=True)
        ]
        self.last_task: tuple[int, Row] | None = None

    def teardown(self) -> None:
        super().teardown()
        self.close()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def flow_id(self, number: int) -> str:
        """The id of a flow, the newest being 0, or an id that there is not."""
        ids = list(self.flows.flows)
        return ids[-1 - number] if number < len(ids) else "nothing"

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

    @initialize()
    def create_one_in_each_session(self) -> None:
        for route in (2, 0):
            self.do(route, "create_flow", {"goal": "a"})

    @rule(route=ROUTE, number=NUMBER, revision=REVISION, act=ACT)
    def act(self, route: int, number: int, revision: tuple[bool, Any], act: tuple[str, Row]) -> None:
        (name, fields), id = act, self.flow_id(number)
        match name:
            case "create_flow":
                self.do(route, name, fields)
            case "run_task":
                self.run_task(route, {"flowId": id, **fields})
            case "cancel_flow":
                self.do(route, name, {"flowId": id})
            case "read":
                self.read(route, id)
            case "wrong fields":
                self.send_wrong_fields(route, *fields["wrong"])
            case "wrong secret":
                self.send_secret_of_another_route(route, id)
            case "kill":
                self.kill(route, id)
            case _:
                is_counted, value = revision
                expected = self.flows.revision(id) + value if is_counted else value
                self.do(route, name, {"flowId": id, "expectedRevision": expected, **fields})

    def run_task(self, route: int, fields: Row) -> None:
        again = fields.pop("again")
        if again and self.last_task:
            route, last = self.last_task
            fields = last | {name: fields[name] for name in (*FILLED, again) if name in fields}
        self.last_task = route, {"runId": "run", **fields}
        self.do(route, "run_task", fields)
        self.do(route, "get_task_summary", {"flowId": fields["flowId"]}, is_told=False)

    def read(self, route: int, id: str) -> None:
        self.do(route, "get_flow", {"flowId": f" {id}"})
        self.do(route, "find_latest_flow", {})
        for token in (id, ROUTES[route].key, ROUTES[route - 1].key):
            self.do(route, "resolve_flow", {"token": token})

    def send_wrong_fields(self, route: int, name: str, fields: Row, error: str) -> None:
        status, body = self.callers[route].call(name, **fields)
        self.tell_action(route, name, fields, str(status))
        assert (status, body["code"], body["result"]) == (400, "invalid_request", {}), body
        assert body["error"].startswith(error), f"came {body}, not {error}"

    def send_secret_of_another_route(self, route: int, id: str) -> None:
        caller = self.callers[route]
        caller.secret = first_secret(ROUTES[route - 1])
        status, body = caller.call("cancel_flow", flowId=id)
        caller.secret = first_secret(ROUTES[route])
        self.tell_action(route, "cancel_flow with the secret of another route", {"flowId": id}, str(status))
        assert (status, body["code"], body["result"]) == (401, "unauthorized", {}), body

    def kill(self, route: int, id: str) -> None:
        """Kill the server while a write is under way, of which either nothing or all must be left."""
        if time.monotonic() < FlowsMachine.next_kill_at or self.exploration.failure:
            return  # so that steps to a failure are repeated quickly
        began, caller, revision = time.monotonic(), self.callers[route], self.flows.revision(id)
        fields = {"flowId": id, "expectedRevision": revision, "stateJson": "before the kill"}
        caller.send("fail_flow", fields)
        self.tell_action(route, "fail_flow", fields, "killed meanwhile")
        self.server.kill()
        self.close()
        self.server.start(*TWO_WORKERS)
        ended = time.monotonic()
        FlowsMachine.kills += 1
        FlowsMachine.next_kill_at = ended + SPARED * (ended - began)
        found = caller.call("get_flow", flowId=id)[1]["result"]["flow"]
        if found and found["revision"] != revision:
            self.flows.answer(ROUTES[route], "fail_flow", fields, found["updatedAt"], "")


def run(run: Run) -> None:
    folder, until = run.folder / "routes", run.ends_at - 0.4 * run.seconds
    with run.server("one-worker", TASKS_CONFIG=configure(folder, limits="")) as server:
        check_window(run, server)
        check_rotation(run, server, folder)
    with run.server("two-workers", *TWO_WORKERS, TASKS_CONFIG=configure(folder, UNLIMITED)) as server:
        check_races(run, server, until)
        explored = explore(run, lambda: FlowsMachine(server), most_steps=40)
    counts = f"{explored.examples} examples, {explored.steps} steps, {FlowsMachine.requests} requests, "
    counts += f"{FlowsMachine.kills} kills"
    run.found("", "flows, tasks and answers as in the model", counts, "always", not explored.failure)
