"""The gateway's actions on flows and child tasks: fields, results, rejections, states, isolation."""

import json
import re
import time
from functools import partial

import pytest
from harness import at_once, document, wait_until

from gateway import prune_flows

NEEDS_SOCKET = False

CONFIG = """
[plugins.entries.webhooks.config.routes.zapier]
sessionKey = "agent:main:main"
secret = "s3cret"

[plugins.entries.webhooks.config.routes.again]
sessionKey = "agent:other"
secret = "s3cret"
path = "/hooks/again/"
controllerId = "my-controller"

[plugins.entries.webhooks.config.routes.other]
sessionKey = "agent:other"
secret = "s3cret"

[plugins.entries.webhooks.config.limits]
requests = 100000
inFlight = 64
"""
PATHS = {"zapier": "/plugins/webhooks/zapier", "again": "/hooks/again", "other": "/plugins/webhooks/other"}
BUILD = {"runtime": "acp", "task": "Build"}  # what a child task needs
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
DAY = 86_400_000  # milliseconds


class Caller:
    """Calls one route with its secret, and checks the envelope of every answer."""

    def __init__(self, server, route="zapier"):
        self.url, self.route = server.base + PATHS[route], route
        self.document = document(server.client())
        self.session = server.session()
        server.clients.append(self)

    def __call__(self, action, /, **fields):
        return self.send(json.dumps({"action": action, **fields}))

    def send(self, body):
        headers = {"Authorization": "Bearer s3cret", "Content-Type": "application/json"}
        answer = self.session.request("POST", self.url, data=body, headers=headers)
        self.check(answer)
        return answer

    def check(self, answer):
        self.document.validate(answer, "/plugins/webhooks/{routeId}", "post")
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        body = answer.json()
        assert body["routeId"] == self.route
        # `childSessionKey` is the one session key that may be shown: the caller sent it.
        assert "agent:" not in re.sub('"childSessionKey": ?"[^"]*"', "", answer.text)
        assert set(body) == {"ok", "routeId", "result"} | (set() if answer.ok else {"code", "error"})
        assert body["ok"] is answer.ok

    def result(self, action, /, **fields):
        answer = self(action, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def flow(self, **fields):
        return self.result("create_flow", **{"goal": "Ship it", **fields})["flow"]

    def mutate(self, flow, action, **fields):
        """The flow after an action that expects its revision."""
        expected = {"flowId": flow["flowId"], "expectedRevision": flow["revision"]}
        return self.result(action, **expected, **fields)["flow"]

    def run(self, flow, **fields):
        """The child task that is recorded, with defaults for its fields."""
        return self.result("run_task", flowId=flow["flowId"], **BUILD | fields)["task"]

    def rejected(self, status, code, action, /, **fields):
        answer = self(action, **fields)
        body = answer.json()
        assert (answer.status_code, body["code"]) == (status, code), answer.text
        return body


@pytest.fixture(scope="module")
def server(launch_here_module):
    return launch_here_module(config=CONFIG)


@pytest.fixture(scope="module")
def call(server):
    return Caller(server)


@pytest.fixture(scope="module")
def stranger(server):
    """A caller of another session, in which one test alone makes flows."""
    return Caller(server, "other")


# Flows


def test_a_flow_has_what_it_was_given_and_defaults(call):
    """Null is a value of JSON, and the absence of a text."""
    flow = call.flow(currentStep=None, stateJson=None)
    assert UUID4.fullmatch(flow.pop("flowId"))
    assert flow.pop("createdAt") == flow.pop("updatedAt")
    default = {"syncMode": "managed", "controllerId": "webhooks/zapier", "notifyPolicy": "done_only"}
    assert flow == default | {"revision": 0, "status": "queued", "goal": "Ship it", "stateJson": None}
    sent = {"goal": "  Ship it  ", "controllerId": "n8n", "status": "blocked", "notifyPolicy": "silent"}
    sent |= {"currentStep": "build", "stateJson": {"b": 1, "a": [1.5, None, "é"]}, "waitJson": None}
    flow = call.flow(**sent)
    assert {name: flow[name] for name in sent} == {**sent, "goal": "Ship it"}
    assert call.result("get_flow", flowId=flow["flowId"])["flow"] == flow
    # Numbers come back as JavaScript holds them.
    flow = call.flow(stateJson={"2": 1.0, "1": 1e21, "big": 2**63, "neg": -0.0})
    text = call("get_flow", flowId=flow["flowId"]).text
    assert '"stateJson":{"1":1e+21,"2":1,"big":9223372036854776000,"neg":0}' in text


def test_reads_answer_null_for_what_does_not_exist_or_is_not_ours(call, stranger):
    flow = call.flow()
    for id in ("nothing", flow["flowId"]):
        assert stranger.result("get_flow", flowId=id) == {"flow": None}
        assert stranger.result("resolve_flow", token=id) == {"flow": None}
        assert stranger.result("get_task_summary", flowId=id) == {"summary": None}
    assert flow["flowId"] not in stranger("list_flows").text


def test_routes_of_one_session_share_its_flows_the_newest_first(server, stranger):
    """Of flows of one millisecond the first one made counts as the newest."""
    call, again = stranger, Caller(server, "again")
    assert (call.result("list_flows"), call.result("find_latest_flow")) == ({"flows": []}, {"flow": None})
    made = [caller.flow() for caller in (again, again, call)]
    assert [flow["controllerId"] for flow in made[1:]] == ["my-controller", "webhooks/other"]
    oldest, first, second = [flow["flowId"] for flow in made]
    server.rows("UPDATE flow SET created_at = 1000 WHERE owner = 'agent:other'")
    server.rows("UPDATE flow SET created_at = 999 WHERE id = ?", oldest)

    def resolved(token):
        return call.result("resolve_flow", token=token)["flow"]["flowId"]

    assert [flow["flowId"] for flow in call.result("list_flows")["flows"]] == [first, second, oldest]
    assert resolved("agent:other") == first
    call.result("finish_flow", flowId=first, expectedRevision=0)
    assert call.result("find_latest_flow")["flow"]["flowId"] == first
    assert resolved("agent:other") == second  # the newest that has not ended
    call.result("fail_flow", flowId=second, expectedRevision=0)
    assert resolved("agent:other") == oldest
    call.result("cancel_flow", flowId=oldest)
    assert resolved("agent:other") == first
    assert resolved(second) == second
    assert call.result("resolve_flow", token="agent:main:main")["flow"] is None


# Mutations

MUTATIONS = ["set_waiting", "resume_flow", "finish_flow", "fail_flow", "request_cancel"]


def test_a_mutation_applies_to_a_flow_of_ours_at_the_expected_revision_alone(call, stranger):
    for action in MUTATIONS:
        flow = call.flow()
        for caller, id in ((call, "nothing"), (stranger, flow["flowId"])):
            body = caller.rejected(404, "not_found", action, flowId=id, expectedRevision=0)
            assert body["error"] == "TaskFlow not found."
            assert body["result"] == {"applied": False, "code": "not_found"}
        body = call.rejected(409, "revision_conflict", action, flowId=flow["flowId"], expectedRevision=1)
        assert body["error"] == "TaskFlow changed since the caller's expected revision."
        assert body["result"] == {"applied": False, "code": "revision_conflict", "current": flow}
        result = call.result(action, flowId=flow["flowId"], expectedRevision=0.0)
        assert (result["applied"], result["flow"]["revision"]) == (True, 1)
        assert result["flow"]["updatedAt"] >= flow["updatedAt"]


def test_waiting_keeps_what_was_not_sent_and_resuming_clears_it_and_both_reopen_what_ended(call):
    flow = call.mutate(call.flow(currentStep="one", stateJson=1), "fail_flow")
    flow = call.mutate(flow, "set_waiting", waitJson={"for": "a person"}, blockedSummary="No answer")
    assert (flow["status"], flow["currentStep"], flow["stateJson"]) == ("blocked", "one", 1)
    assert "endedAt" not in flow
    flow = call.mutate(flow, "set_waiting", currentStep=None, stateJson=None)
    assert (flow["status"], flow["stateJson"], flow["waitJson"]) == ("waiting", None, {"for": "a person"})
    assert "currentStep" not in flow
    assert flow["blockedSummary"] == "No answer"  # kept, but this call does not block
    flow = call.mutate(flow, "set_waiting", blockedTaskId="task-1")
    assert flow["status"] == "blocked"
    flow = call.mutate(call.mutate(flow, "fail_flow"), "resume_flow", currentStep="two")
    assert (flow["status"], flow["waitJson"], flow["currentStep"]) == ("queued", None, "two")
    assert not {"endedAt", "blockedTaskId", "blockedSummary"} & set(flow)
    assert call.mutate(flow, "resume_flow", status="running")["status"] == "running"


def test_finishing_clears_and_failing_keeps_what_blocked(call):
    blocked = {"blockedTaskId": "task-1", "blockedSummary": "No answer", "waitJson": 1}
    for action, status in (("finish_flow", "succeeded"), ("fail_flow", "failed")):
        ended = call.mutate(call.mutate(call.flow(), "set_waiting", **blocked), action, stateJson="end")
        assert (ended["status"], ended["waitJson"], ended["stateJson"]) == (status, None, "end")
        assert ended["endedAt"] == ended["updatedAt"]
        kept = {"blockedTaskId", "blockedSummary"} & set(ended)
        assert len(kept) == (2 if action == "fail_flow" else 0)


def test_requesting_cancellation_changes_nothing_else_and_flows_of_other_surfaces_are_refused(call, server):
    flow = call.flow(status="running")
    asked = call.mutate(flow, "request_cancel")
    at = asked["updatedAt"]
    assert asked == {**flow, "revision": 1, "updatedAt": at, "cancelRequestedAt": at}
    cancelled = call.result("cancel_flow", flowId=flow["flowId"])["flow"]
    assert (cancelled["revision"], cancelled["cancelRequestedAt"]) == (2, at)
    flow = call.flow()
    server.rows("UPDATE flow SET sync_mode = 'mirrored' WHERE id = ?", flow["flowId"])
    body = call.rejected(409, "not_managed", "finish_flow", flowId=flow["flowId"], expectedRevision=0)
    assert body["error"] == "TaskFlow is not managed by this webhook surface."
    assert body["result"]["current"]["flowId"] == flow["flowId"]
    body = call.rejected(409, "not_managed", "run_task", flowId=flow["flowId"], **BUILD)
    assert body["error"] == body["result"]["reason"] == "Flow does not accept managed child tasks."


# Child tasks


def test_a_task_has_what_it_was_given_and_defaults(call):
    flow = call.flow()
    result = call.result("run_task", flowId=flow["flowId"], **BUILD)
    task = result["task"]
    assert UUID4.fullmatch(task.pop("taskId"))
    assert task.pop("createdAt") == task.pop("lastEventAt")
    default = {"scopeKind": "session", "status": "queued", "notifyPolicy": "done_only"}
    assert task == {**BUILD, **default, "deliveryStatus": "pending", "parentFlowId": flow["flowId"]}
    assert result["flow"] == flow  # not touched
    assert call.run(flow, status="running", startedAt=1000)["lastEventAt"] == 1000
    sent = {"runtime": "subagent", "task": "Build", "label": "Builder", "notifyPolicy": "silent"}
    sent |= {"sourceId": "zap-1", "parentTaskId": "task-0", "agentId": "agent-1", "runId": "run-1"}
    sent |= {"childSessionKey": "Agent:Main:MAIN:child", "progressSummary": " half \n way "}
    sent |= {"status": "running", "startedAt": 1000, "lastEventAt": 2000}
    task = call.run(call.flow(), **sent)
    assert {name: task[name] for name in sent} == {**sent, "progressSummary": "half way"}


def test_a_task_that_cannot_be_made_says_why(call):
    reason = "childSessionKey must be a descendant of the route's session tree"
    for key in ("agent:main:mainx", "agent:main:main", "agent:other:x"):
        task = {"flowId": call.flow()["flowId"], "childSessionKey": key}
        body = call.rejected(409, "task_not_created", "run_task", **BUILD, **task)
        assert body["error"] == reason
        assert body["result"] == {"found": True, "created": False, "reason": reason}


def test_which_reports_are_of_the_same_run_and_add_what_its_task_lacks(call):
    """Reports with one run, runtime and child session; for subagents also with one label and text."""
    flow = call.flow()
    first = call.run(flow, runId="r", label="One")
    assert call.run(flow, runId="r", label="Two", task="Other", status="running") == first
    more = {"sourceId": "s", "agentId": "a", "task": "Better"}
    assert call.run(flow, runId="r", preferMetadata=True, **more) == first | more
    flow, child, sub = call.flow(), {"childSessionKey": "agent:main:main:a"}, {"runtime": "subagent"}
    different = [{"runId": "r"} | fields for fields in ({}, child, {"runId": "R"})]
    different += [{"runId": "r", **sub} | fields for fields in ({}, {"label": "A"}, {"task": "Test"}, child)]
    ids = [call.run(flow, **fields)["taskId"] for fields in different]
    assert len(set(ids)) == len(different)
    assert [call.run(flow, **fields)["taskId"] for fields in different] == ids
    assert call.run(call.flow(), runId="r")["taskId"] not in ids
    assert call.run(flow)["taskId"] != call.run(flow)["taskId"]  # reports without a run are all different


def test_of_many_mutations_of_a_revision_one_is_applied_and_a_run_of_many_is_one_task(server, call):
    flow = call.flow()
    sent = {"flowId": flow["flowId"], "expectedRevision": flow["revision"]}
    callers = [Caller(server) for _ in range(12)]
    calls = [partial(one, "set_waiting", **sent, currentStep=f"{n}") for n, one in enumerate(callers)]
    answers = at_once(*calls)
    assert {answer.status_code for answer in answers} <= {200, 409, 503}
    (applied,) = (answer.json()["result"]["flow"] for answer in answers if answer.ok)
    told = [answer.json()["result"]["current"] for answer in answers if answer.status_code == 409]
    assert applied == call.result("get_flow", flowId=flow["flowId"])["flow"]
    assert [one for one in told if one != applied] == []
    report = {"flowId": call.flow()["flowId"], "runId": "r", **BUILD}
    answers = at_once(*[partial(Caller(server), "run_task", **report) for _ in range(12)])
    assert {answer.status_code for answer in answers} <= {200, 503}  # where the disk is busy
    tasks = [answer.json()["result"]["task"] for answer in answers if answer.ok]
    assert len({task["taskId"] for task in tasks}) == 1


def test_tasks_are_refused_by_flows_that_end(call, stranger):
    flow = call.flow()
    task = {"flowId": flow["flowId"], **BUILD}
    body = stranger.rejected(404, "not_found", "run_task", **task)
    assert body["error"] == "TaskFlow not found."
    assert body["result"] == {"found": False, "created": False, "reason": "Flow not found."}
    asked = call.mutate(flow, "request_cancel")
    body = call.rejected(409, "cancel_requested", "run_task", **task)
    assert body["result"]["flow"] == asked
    done = call.mutate(call.flow(), "finish_flow")
    body = call.rejected(409, "terminal", "run_task", **{**task, "flowId": done["flowId"]})
    reason = "Flow is already succeeded."
    assert body["error"] == reason
    assert body["result"] == {"found": True, "created": False, "reason": reason, "flow": done}


def test_a_summary_counts_tasks_by_status_and_runtime(call):
    flow = call.flow()
    call.run(flow)
    call.run(flow, runtime="subagent", status="running")
    none = dict.fromkeys(["succeeded", "failed", "timed_out", "cancelled", "lost"], 0)
    counts = {"total": 2, "active": 2, "terminal": 0, "failures": 0}
    assert call.result("get_task_summary", flowId=flow["flowId"])["summary"] == counts | {
        "byStatus": none | {"queued": 1, "running": 1},
        "byRuntime": {"subagent": 1, "acp": 1, "cli": 0, "cron": 0},
    }


def test_cancelling_cancels_the_open_tasks_in_one_go(call, stranger):
    flow = call.mutate(call.flow(), "set_waiting", waitJson=1, blockedSummary="No answer")
    call.run(flow)
    call.run(flow, status="running")
    body = stranger.rejected(404, "not_found", "cancel_flow", flowId=flow["flowId"])
    assert body["result"] == {"found": False, "cancelled": False, "reason": "Flow not found."}
    result = call.result("cancel_flow", flowId=flow["flowId"])
    assert (result["found"], result["cancelled"]) == (True, True)
    cancelled = result["flow"]
    assert (cancelled["status"], cancelled["waitJson"]) == ("cancelled", None)
    assert cancelled["revision"] == flow["revision"] + 2
    assert cancelled["cancelRequestedAt"] == cancelled["endedAt"] == cancelled["updatedAt"]
    assert "blockedSummary" not in cancelled
    assert len(result["tasks"]) == 2
    for task in result["tasks"]:
        assert (task["status"], task["error"]) == ("cancelled", "Cancelled by operator.")
        assert task["endedAt"] == task["lastEventAt"] == task["cleanupAfter"] - 7 * DAY
    body = call.rejected(409, "terminal", "cancel_flow", flowId=flow["flowId"])
    assert (body["error"], body["result"]["tasks"]) == ("Flow is already cancelled.", result["tasks"])


# Fields

VALID = {
    "create_flow": {"goal": "g"},
    **dict.fromkeys(["get_flow", "get_task_summary", "cancel_flow"], {"flowId": "f"}),
    **dict.fromkeys(["list_flows", "find_latest_flow"], {}),
    "resolve_flow": {"token": "t"},
    "run_task": {"flowId": "f", "runtime": "acp", "task": "t"},
    **dict.fromkeys(MUTATIONS, {"flowId": "f", "expectedRevision": 0}),
}
PROGRESS = ["startedAt", "lastEventAt", "progressSummary"]
CHILD = ["task", "sourceId", "childSessionKey", "parentTaskId", "agentId", "runId", "label"]
STRINGS = [("create_flow", "goal"), ("create_flow", "controllerId"), ("resolve_flow", "token")]
STRINGS += [(action, "flowId") for action in VALID if "flowId" in VALID[action]]
STRINGS += [("run_task", name) for name in CHILD]
WRONG = [
    *[(action, field, " ") for action, field in STRINGS],
    *[("create_flow", "goal", value) for value in ("", None, 5, [], "a\0b")],
    *[(action, "expectedRevision", "0") for action in MUTATIONS],
    *[("finish_flow", "expectedRevision", value) for value in (-1, 1.5, True, None, 2**53, 1e300, [])],
    *[("create_flow", "status", value) for value in ("succeeded", None)],
    *[("create_flow", "notifyPolicy", "always"), ("create_flow", "currentStep", " ")],
    *[("resume_flow", "status", "waiting"), ("set_waiting", "blockedTaskId", "")],
    *[("run_task", "runtime", "cli"), ("run_task", "status", "waiting"), ("run_task", "startedAt", -1)],
    *[("run_task", "preferMetadata", "yes"), ("run_task", "preferMetadata", 1)],
    *[("run_task", "progressSummary", ""), ("run_task", "startedAt", None)],
]


def test_an_unknown_key_is_refused_and_a_missing_field_or_wrong_value_named(call):
    for action, valid in VALID.items():
        body = call.rejected(400, "invalid_request", action, **valid, foo=1)
        assert (body["error"], body["result"]) == ('Unrecognized key: "foo"', {})
        for field in valid:
            fields = {name: value for name, value in valid.items() if name != field}
            assert call.rejected(400, "invalid_request", action, **fields)["error"] == f"{field}: is required"
    for action, field, value in WRONG:
        more = {"status": "running"} if field in PROGRESS else {}  # or that is the first problem
        body = call.rejected(400, "invalid_request", action, **VALID[action] | more | {field: value})
        assert body["error"].startswith(f"{field}: "), (action, field, value)
    for action in (None, 5, "", "CREATE_FLOW", "create_flow ", [], "delete_flow"):
        body = call.rejected(400, "invalid_request", action)
        assert body["error"].startswith("action: must be one of create_flow, ")


CHANGE = ["flowId", "expectedRevision"]
BLOCKED = ["blockedTaskId", "blockedSummary"]
IN_ORDER = {  # as in the contract
    "create_flow": ["goal", "controllerId", "status", "notifyPolicy", "currentStep", "stateJson", "waitJson"],
    **dict.fromkeys(["get_flow", "get_task_summary", "cancel_flow"], ["flowId"]),
    **dict.fromkeys(["list_flows", "find_latest_flow"], []),
    "resolve_flow": ["token"],
    "set_waiting": [*CHANGE, "currentStep", "stateJson", "waitJson", *BLOCKED],
    "resume_flow": [*CHANGE, "status", "currentStep", "stateJson"],
    "finish_flow": [*CHANGE, "stateJson"],
    "fail_flow": [*CHANGE, "stateJson", *BLOCKED],
    "request_cancel": CHANGE,
    "run_task": ["flowId", "runtime", *CHILD, "preferMetadata", "notifyPolicy", "status", *PROGRESS],
}


def test_the_first_problem_is_reported_in_the_order_of_the_contract_and_unknown_keys_last(call):
    for action, names in IN_ORDER.items():
        unknown = ["zoo", "foo", "bar"]
        fields = dict.fromkeys(unknown + names[::-1], "\0")
        for name in names:
            error = call.rejected(400, "invalid_request", action, **fields)["error"]
            assert error.startswith(f"{name}: "), (action, error)
            right = VALID[action] | {"status": "running"}
            fields |= {name: right[name]} if name in right else {}
            if name not in right:
                del fields[name]
        for name in unknown:
            error = call.rejected(400, "invalid_request", action, **fields)["error"]
            assert error == f'Unrecognized key: "{name}"'
            del fields[name]


RUNS = "status: status must be running when startedAt, lastEventAt, or progressSummary is provided"


def test_progress_of_a_task_that_does_not_run_is_refused_even_as_null_or_beside_other_problems(call):
    for name in PROGRESS:
        for value in (None, -1, 5, "text"):
            for more in ({}, {"status": "queued"}, {"status": None}, {"foo": 1}):
                fields = VALID["run_task"] | {name: value} | more
                error = call.rejected(400, "invalid_request", "run_task", **fields)["error"]
                assert error == ("status: must not be null" if more == {"status": None} else RUNS)


def nested(levels):
    return json.loads("[" * levels + "]" * levels)


STATE = '{"action":"create_flow","goal":"g","stateJson":%s}'


NO_ACTIONS = {
    **dict.fromkeys([STATE % text for text in ('"\\ud800"', '{"\\ud800":1}', '"\\u0000"')], "stateJson: "),
    STATE % json.dumps(nested(33)): "stateJson: ",
    STATE % '{"a":1e999}': "stateJson: must not hold a number that is out of range",
    STATE % ("9" * 5000): "stateJson: must not hold a number that is out of range",
    '{"action":"finish_flow","flowId":"x","expectedRevision":' + "9" * 5000 + "}": "expectedRevision: ",
    "[" * 100_000 + "]" * 100_000: "body: must not be nested deeper than 32 levels",
    '{"action":"list_flows","_schema":1}': 'Unrecognized key: "_schema"',
    '{"action":"list_flows","":1}': 'Unrecognized key: ""',
    **dict.fromkeys(["[]", '"x"', "5", "null", "{}"], ""),
}


def test_json_that_is_no_action_or_cannot_be_kept_is_refused_and_any_other_is_kept(call):
    for body, said in NO_ACTIONS.items():
        answer = call.send(body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), body[:80]
        assert answer.json()["error"].startswith(said)
    for state in (nested(32), {"1" * 5000: 1}):
        assert call.flow(stateJson=state)["stateJson"] == state


# Retention


def test_flows_that_ended_or_were_idle_for_long_are_deleted(launch_here, launch):
    """Idle flows, without news, are deleted only if a setting says so."""
    server = launch_here(config=CONFIG)
    call = Caller(server)
    ended = [call.mutate(call.flow(), "finish_flow")["flowId"] for _ in range(2)]
    idle, heard_of, young = [call.flow() for _ in range(3)]
    call.run(idle)
    call.run(heard_of)
    week, month = [int(time.time() * 1000) - days * DAY - 1000 for days in (7, 31)]
    server.rows("UPDATE flow SET ended_at = ? WHERE id = ?", week, ended[0])
    for flow in (idle, heard_of):
        server.rows("UPDATE flow SET updated_at = ? WHERE id = ?", month, flow["flowId"])
    of_idle = "flow_seq = (SELECT seq FROM flow WHERE id = ?)"
    server.rows(f"UPDATE flow_task SET last_event_at = ? WHERE {of_idle}", month, idle["flowId"])

    def ids():
        return {row["id"] for row in server.rows("SELECT id FROM flow")}

    prune_flows()
    kept = {heard_of["flowId"], young["flowId"], ended[1]}
    assert ids() == kept | {idle["flowId"]}
    launch(folder=server.folder, config=CONFIG + "idleDays = 30")
    wait_until(lambda: idle["flowId"] not in ids())
    assert ids() == kept
    assert server.rows("SELECT count(*) AS n FROM flow_task") == [{"n": 1}]
