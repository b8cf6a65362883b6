"""The gateway's flows, compared with a model of them (`flows.py`); and its callers (`callers.py`)."""

import json
import time
from typing import Any

from callers import ROUTES, UNLIMITED, check_races, check_rotation, check_window, configure
from connections import TWO_WORKERS, Connection
from findings import Run
from flows import FILLED, Flows, Row
from harness import Server
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from machines import Machine, explore

ROUTE = st.sampled_from([*[0] * 6, 1, 1, 2, 2])
NUMBER = st.sampled_from([*[0] * 6, *[1] * 4, 2, 9])  # of a flow; see `FlowsMachine.flow_id`
LATER = st.sampled_from([*[0] * 30, -1, -2, 1])  # than the flow's revision is the one that is expected

ANY_TEXT = st.text('aB1 \n"\\\x7féЖ\u2028\ufeff😀', max_size=8)
TEXT = ANY_TEXT.filter(str.strip)
SCALAR = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e300, 1e300) | ANY_TEXT
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner), max_leaves=5
)
TIME = st.integers(0, 2**53 - 1)
NAME = st.sampled_from(["a", " b"])  # few, so that they repeat
POLICY = st.sampled_from(["done_only", "state_changes", "silent"])
STATUS = st.sampled_from(["queued", "running"])


def fields(needed: dict[str, st.SearchStrategy], **optional: st.SearchStrategy) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries(needed, optional=optional)


STATE = {"stateJson": JSON}
STEP = {"currentStep": st.none() | TEXT, **STATE}
BLOCKED = {"blockedTaskId": st.none() | TEXT, "blockedSummary": st.none() | TEXT}
FIRST = STATUS | st.sampled_from(["waiting", "blocked"])
NEW_FLOW = fields({"goal": TEXT}, status=FIRST, controllerId=TEXT, notifyPolicy=POLICY, waitJson=JSON, **STEP)
CHILD = st.sampled_from(["agent:main:a", " AGENT:main:b", "agent:main", "agent:mainx:a", "agent:other:a"])
RUN = fields({"runtime": st.sampled_from(["subagent", "acp"]), "runId": st.just("run")}) | fields(
    {"runtime": st.just("acp")}, runId=st.just("run"), childSessionKey=CHILD
)
KNOWN = {"notifyPolicy": POLICY, "preferMetadata": st.booleans(), **dict.fromkeys(FILLED, NAME)}
PROGRESS = {"startedAt": TIME, "lastEventAt": TIME, "progressSummary": st.none() | TEXT}
STARTED = fields({}, status=STATUS) | fields({"status": STATUS}, **PROGRESS)
REPORTS = st.lists(fields({"task": NAME}, **KNOWN), min_size=1, max_size=3)  # of one run
ACTIONS = {
    "create_flow": NEW_FLOW,
    "run_task": fields({"run": RUN, "started": STARTED, "reports": REPORTS}),
    "set_waiting": fields({}, waitJson=JSON, **STEP, **BLOCKED),
    "resume_flow": fields({}, status=STATUS, **STEP),
    "finish_flow": fields({}, **STATE),
    "fail_flow": fields({}, **STATE, **BLOCKED),
    "request_cancel": fields({}),
    "cancel_flow": fields({}),
    "read": fields({}),
}
# One rule does all of them, since hypothesis leaves rules out; the number of tickets is an action's share.
TICKETS = ["run_task"] * 9 + ["set_waiting", "resume_flow"] * 4 + ["finish_flow", "fail_flow"] * 2
TICKETS += ["create_flow", "read"] * 2 + ["request_cancel", "cancel_flow"]
ACT = st.sampled_from(TICKETS).flatmap(lambda name: st.tuples(st.just(name), ACTIONS[name]))


class FlowsMachine(Machine):
    """Actions on the flows of three routes, each of which must be answered as the model says."""

    def __init__(self, server: Server):
        super().__init__()
        server.rows("DELETE FROM flow_task")
        server.rows("DELETE FROM flow")
        self.flows = Flows()
        self.connections = [Connection(server) for _ in ROUTES]

    def teardown(self) -> None:
        super().teardown()
        for connection in self.connections:
            connection.close()

    def flow_id(self, number: int) -> str:
        """The id of a flow, the newest being 0, or an id that there is not."""
        ids = list(self.flows.flows)
        return ids[-1 - number] if number < len(ids) else "nothing"

    def do(self, number: int, action: str, **fields: Any) -> None:
        """Send an action to the route of this number, which must answer as the model does."""
        route = ROUTES[number]
        began = time.time_ns() // 1_000_000
        sent = {"action": action, **fields}
        came = self.connections[number].ask("POST", route.path, route.secret, sent)
        ended = time.time_ns() // 1_000_000
        made = came[1]["result"].get("task") or came[1]["result"].get("flow") or {}
        at = made.get("createdAt" if "taskId" in made else "updatedAt", 0)
        id = made.get("taskId") or made.get("flowId", "")
        # A time that lies elsewhere differs from the one that the model is given.
        expected = self.flows.answer(route, action, fields, min(max(at, began), ended), id)
        if fields:  # else it only reads
            self.tell(f"{route.id} {action} {json.dumps(fields)} -> {came[0]}")
        assert came == expected, f"came {came}, not {expected}"

    @invariant()
    def lists_are_equal(self) -> None:
        for route in (0, 2):
            self.do(route, "list_flows")

    @initialize()
    def create_one_in_each_session(self) -> None:
        for route in (2, 0):
            self.do(route, "create_flow", goal="a")

    @rule(route=ROUTE, number=NUMBER, later=LATER, act=ACT)
    def act(self, route: int, number: int, later: int, act: tuple[str, Row]) -> None:
        (action, fields), id = act, self.flow_id(number)
        if action == "create_flow":
            self.do(route, action, **fields)
        elif action == "read":
            self.read(route, id)
        elif action == "run_task":
            self.run_task(route, id, **fields)
        elif action == "cancel_flow":
            self.do(route, action, flowId=id)
        else:
            revision = self.flows.flows.get(id, {"revision": 0})["revision"]
            self.do(route, action, flowId=id, expectedRevision=max(0, revision + later), **fields)

    def run_task(self, route: int, id: str, run: Row, started: Row, reports: list[Row]) -> None:
        for known in reports:
            self.do(route, "run_task", flowId=id, **run, **started, **known)
        self.do(route, "get_task_summary", flowId=id)

    def read(self, route: int, id: str) -> None:
        self.do(route, "get_flow", flowId=f" {id}")
        self.do(route, "find_latest_flow")
        for token in (id, ROUTES[route].session, ROUTES[route - 1].session):
            self.do(route, "resolve_flow", token=token)


def run(run: Run) -> None:
    folder = run.folder / "routes"
    with run.server("one-worker", TASKS_CONFIG=configure(folder, limits="")) as server:
        check_window(run, server)
        check_rotation(run, server, folder)
    with run.server("two-workers", *TWO_WORKERS, TASKS_CONFIG=configure(folder, UNLIMITED)) as server:
        check_races(run, server)
        explored = explore(run, lambda: FlowsMachine(server), most_steps=40)
    counts = f"{explored.examples} examples, {explored.steps} steps"
    run.found("", "flows, tasks and answers as in the model", counts, "always", not explored.failure)
