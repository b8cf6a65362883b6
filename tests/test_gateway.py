"""The gateway's actions on flows and child tasks: fields, results, rejections, states, isolation."""

import json
import re
import threading
import time

import pytest
import requests
from callers import write_at_once
from connections import connected
from harness import PATIENCE, Server, document, wait_until

CONFIG = """
[plugins.entries.webhooks.config.routes.zapier]
sessionKey = "agent:main:main"
secret = "s3cret"

[plugins.entries.webhooks.config.routes.again]
sessionKey = "agent:main:main"
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
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Caller:
    """Calls one route with its secret, and checks the envelope of every answer."""

    def __init__(self, server, route="zapier"):
        self.url, self.route = server.base + PATHS[route], route
        self.document = document(f"{server.base}/api/v1")
        self.session = requests.Session()
        self.session.trust_env = False
        server.clients.append(self)

    def __call__(self, action, /, **fields):
        return self.post({"action": action, **fields})

    def post(self, body, **options):
        headers = {"Authorization": "Bearer s3cret"} | options.pop("headers", {})
        answer = self.session.post(self.url, json=body, headers=headers, timeout=PATIENCE, **options)
        self.check(answer)
        return answer

    def check(self, answer):
        self.document.validate(answer, "/plugins/webhooks/{routeId}", "post")
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        body = answer.json()
        assert body["routeId"] == self.route
        assert "agent:" not in json.dumps({**body, "result": _without_child_keys(body["result"])})
        if answer.status_code < 400:
            assert set(body) == {"ok", "routeId", "result"}
            assert body["ok"] is True
        else:
            assert set(body) == {"ok", "routeId", "code", "error", "result"}
            assert body["ok"] is False

    def result(self, action, /, **fields):
        answer = self(action, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def flow(self, **fields):
        return self.result("create_flow", **{"goal": "Ship it", **fields})["flow"]

    def rejected(self, status, code, action, /, **fields):
        answer = self(action, **fields)
        body = answer.json()
        assert (answer.status_code, body["code"]) == (status, code), answer.text
        return body


def _without_child_keys(value):
    """`childSessionKey` is the one session key that may be shown: the caller sent it."""
    if isinstance(value, dict):
        return {k: _without_child_keys(v) for k, v in value.items() if k != "childSessionKey"}
    return [_without_child_keys(v) for v in value] if isinstance(value, list) else value


def start(folder, config=CONFIG, **settings):
    (folder / "config.toml").write_text(config)
    return Server(folder, TASKS_CONFIG=str(folder / "config.toml"), **settings).start()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = start(tmp_path_factory.mktemp("gateway"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def call(server):
    return Caller(server)


@pytest.fixture(scope="module")
def stranger(server):
    return Caller(server, "other")


# Flows


def test_a_flow_has_what_it_was_given_and_defaults(call):
    flow = call.flow()
    assert UUID4.fullmatch(flow.pop("flowId"))
    assert flow.pop("createdAt") == flow.pop("updatedAt")
    assert flow == {
        "syncMode": "managed",
        "controllerId": "webhooks/zapier",
        "revision": 0,
        "status": "queued",
        "notifyPolicy": "done_only",
        "goal": "Ship it",
    }


def test_a_flow_shows_everything_that_was_sent(call):
    sent = {
        "goal": "  Ship it  ",
        "controllerId": "n8n",
        "status": "blocked",
        "notifyPolicy": "silent",
        "currentStep": "build",
        "stateJson": {"b": 1, "a": [1.5, None, "é"]},
        "waitJson": None,
    }
    flow = call.flow(**sent)
    shown = {name: flow[name] for name in sent}
    assert shown == {**sent, "goal": "Ship it"}
    assert call.result("get_flow", flowId=flow["flowId"])["flow"] == flow


def test_a_routes_own_controller_is_the_default(server):
    assert Caller(server, "again").flow()["controllerId"] == "my-controller"


def test_null_and_absent_differ_for_json_and_not_for_text(call):
    flow = call.flow(currentStep=None, stateJson=None)
    assert "currentStep" not in flow
    assert flow["stateJson"] is None
    assert "waitJson" not in flow


def test_numbers_come_back_as_javascript_holds_them(call):
    flow = call.flow(stateJson={"2": 1.0, "1": 1e21, "big": 2**63, "neg": -0.0})
    text = call("get_flow", flowId=flow["flowId"]).text
    assert '"stateJson":{"1":1e+21,"2":1,"big":9223372036854776000,"neg":0}' in text


def test_reads_answer_null_for_what_does_not_exist(call):
    assert call.result("get_flow", flowId="nothing") == {"flow": None}
    assert call.result("get_task_summary", flowId="nothing") == {"summary": None}
    assert call.result("resolve_flow", token="nothing") == {"flow": None}


def test_flows_are_listed_newest_first_and_shared_by_routes_of_one_session(tmp_path):
    server = start(tmp_path)
    call, again = Caller(server), Caller(server, "again")
    assert call.result("list_flows") == {"flows": []}
    assert call.result("find_latest_flow") == {"flow": None}
    first = call.flow()
    time_of_first = first["createdAt"]
    second = again.flow()
    while second["createdAt"] == time_of_first:
        second = again.flow()
    assert call.result("find_latest_flow")["flow"] == second
    listed = again.result("list_flows")["flows"]
    assert listed[0] == second
    assert listed[-1] == first or listed[-1]["createdAt"] == time_of_first
    ended = call.result("finish_flow", flowId=second["flowId"], expectedRevision=0)["flow"]
    assert call.result("find_latest_flow")["flow"] == ended
    newest_open = call.result("resolve_flow", token="agent:main:main")["flow"]
    assert newest_open["status"] == "queued"
    assert call.result("resolve_flow", token=first["flowId"])["flow"] == first
    for flow in call.result("list_flows")["flows"]:
        if flow["status"] == "queued":
            call.result("finish_flow", flowId=flow["flowId"], expectedRevision=0)
    assert call.result("resolve_flow", token="agent:main:main")["flow"]["flowId"] == second["flowId"]
    assert call.result("resolve_flow", token="agent:other")["flow"] is None
    server.stop()


def test_of_flows_of_one_millisecond_the_first_one_made_is_the_newest(tmp_path):
    server = start(tmp_path)
    call = Caller(server)
    older, first, second, third = [call.flow(goal=goal)["flowId"] for goal in ("older", "1", "2", "3")]
    server.rows("UPDATE flow SET created_at = 1000")
    server.rows("UPDATE flow SET created_at = 999 WHERE id = ?", older)

    def newest():
        flow = call.result("resolve_flow", token="agent:main:main")["flow"]
        return flow["flowId"]

    assert [flow["flowId"] for flow in call.result("list_flows")["flows"]] == [first, second, third, older]
    assert call.result("find_latest_flow")["flow"]["flowId"] == first
    assert newest() == first
    call.result("finish_flow", flowId=first, expectedRevision=0)
    assert call.result("find_latest_flow")["flow"]["flowId"] == first
    assert newest() == second
    call.result("fail_flow", flowId=second, expectedRevision=0)
    call.result("cancel_flow", flowId=third)
    assert newest() == older
    call.result("finish_flow", flowId=older, expectedRevision=0)
    assert newest() == first
    call.result("resume_flow", flowId=third, expectedRevision=2)
    assert newest() == third
    server.stop()


# Mutations

MUTATIONS = ["set_waiting", "resume_flow", "finish_flow", "fail_flow", "request_cancel"]


@pytest.mark.parametrize("action", MUTATIONS)
def test_a_mutation_applies_at_the_expected_revision_alone(call, action):
    flow = call.flow()
    body = call.rejected(409, "revision_conflict", action, flowId=flow["flowId"], expectedRevision=1)
    assert body["error"] == "TaskFlow changed since the caller's expected revision."
    assert body["result"] == {"applied": False, "code": "revision_conflict", "current": flow}
    result = call.result(action, flowId=flow["flowId"], expectedRevision=0.0)
    assert result["applied"] is True
    assert result["flow"]["revision"] == 1
    assert result["flow"]["updatedAt"] >= flow["updatedAt"]


@pytest.mark.parametrize("action", MUTATIONS)
def test_a_mutation_of_what_does_not_exist_or_is_not_ours_is_not_found(call, stranger, action):
    flow = call.flow()
    for caller, id in ((call, "nothing"), (stranger, flow["flowId"])):
        body = caller.rejected(404, "not_found", action, flowId=id, expectedRevision=0)
        assert body["error"] == "TaskFlow not found."
        assert body["result"] == {"applied": False, "code": "not_found"}
    assert call.result("get_flow", flowId=flow["flowId"])["flow"] == flow


def test_what_is_not_managed_here_is_refused(server, call):
    flow = call.flow()
    server.rows("UPDATE flow SET sync_mode = 'mirrored' WHERE id = ?", flow["flowId"])
    body = call.rejected(409, "not_managed", "finish_flow", flowId=flow["flowId"], expectedRevision=0)
    assert body["error"] == "TaskFlow is not managed by this webhook surface."
    assert body["result"]["current"]["flowId"] == flow["flowId"]
    task = {"flowId": flow["flowId"], "runtime": "acp", "task": "Build"}
    body = call.rejected(409, "not_managed", "run_task", **task)
    assert body["error"] == body["result"]["reason"] == "Flow does not accept managed child tasks."


def mutate(call, flow, action, **fields):
    return call.result(action, flowId=flow["flowId"], expectedRevision=flow["revision"], **fields)["flow"]


def test_waiting_keeps_what_was_not_sent(call):
    flow = call.flow(currentStep="one", stateJson=1)
    flow = mutate(call, flow, "set_waiting", waitJson={"for": "a person"}, blockedSummary="No answer")
    assert (flow["status"], flow["currentStep"], flow["stateJson"]) == ("blocked", "one", 1)
    flow = mutate(call, flow, "set_waiting", currentStep=None, stateJson=None)
    assert (flow["status"], flow["stateJson"], flow["waitJson"]) == ("waiting", None, {"for": "a person"})
    assert "currentStep" not in flow
    assert flow["blockedSummary"] == "No answer"  # kept, but this call does not block
    flow = mutate(call, flow, "set_waiting", blockedTaskId="task-1", blockedSummary=None)
    assert (flow["status"], flow["blockedTaskId"]) == ("blocked", "task-1")
    assert "blockedSummary" not in flow


def test_resuming_clears_what_was_waited_for_and_reopens_what_ended(call):
    flow = mutate(call, call.flow(), "set_waiting", waitJson=1, blockedTaskId="task-1")
    flow = mutate(call, flow, "request_cancel")
    flow = mutate(call, flow, "finish_flow", stateJson="done")
    assert flow["endedAt"] == flow["updatedAt"]
    flow = mutate(call, flow, "resume_flow")
    assert (flow["status"], flow["waitJson"], flow["stateJson"]) == ("queued", None, "done")
    assert not {"endedAt", "blockedTaskId", "blockedSummary"} & set(flow)
    assert "cancelRequestedAt" in flow
    assert mutate(call, flow, "resume_flow", status="running", currentStep="two")["status"] == "running"


def test_finishing_clears_and_failing_keeps_what_blocked(call):
    blocked = {"blockedTaskId": "task-1", "blockedSummary": "No answer", "currentStep": "one"}
    finished = mutate(call, mutate(call, call.flow(), "set_waiting", **blocked), "finish_flow")
    assert (finished["status"], finished["waitJson"], finished["currentStep"]) == ("succeeded", None, "one")
    assert not {"blockedTaskId", "blockedSummary"} & set(finished)
    failed = mutate(
        call, mutate(call, call.flow(), "set_waiting", **blocked), "fail_flow", blockedSummary="X"
    )
    assert (failed["status"], failed["blockedTaskId"], failed["blockedSummary"]) == ("failed", "task-1", "X")
    assert failed["endedAt"] == failed["updatedAt"]


def test_requesting_cancellation_changes_nothing_else(call):
    flow = call.flow(status="running")
    asked = mutate(call, flow, "request_cancel")
    assert asked.pop("cancelRequestedAt") == asked["updatedAt"]
    assert asked == {**flow, "revision": 1, "updatedAt": asked["updatedAt"]}


def test_of_twenty_writers_with_one_revision_one_is_applied(server):
    with connected(server, 20) as connections:
        assert write_at_once(connections, PATHS["zapier"], "s3cret") == ""


def test_after_a_kill_the_revision_is_the_number_of_applied_answers(tmp_path):
    server = start(tmp_path)
    call = Caller(server)
    flow, applied = call.flow(), 0
    for _ in range(3):
        done = threading.Event()

        def work(call=call, done=done):
            nonlocal flow, applied
            try:
                while True:
                    flow = mutate(call, flow, "set_waiting")
                    applied += 1
                    if applied % 25 == 0:
                        done.set()
            except OSError:
                return

        writer = threading.Thread(target=work)
        writer.start()
        assert done.wait(PATIENCE)
        server.kill()
        writer.join()
        server.start()
        call = Caller(server)
        flow = call.result("get_flow", flowId=flow["flowId"])["flow"]
        assert flow["revision"] - applied in (0, 1)
        applied = flow["revision"]
    server.stop()


# Child tasks


def run(call, flow, **fields):
    return call.result("run_task", flowId=flow["flowId"], **{"runtime": "acp", "task": "Build"} | fields)


def test_a_task_has_what_it_was_given_and_defaults(call):
    flow = call.flow()
    result = run(call, flow)
    task = result["task"]
    assert UUID4.fullmatch(task.pop("taskId"))
    assert task.pop("createdAt") == task.pop("lastEventAt")
    assert task == {
        "runtime": "acp",
        "scopeKind": "session",
        "task": "Build",
        "status": "queued",
        "deliveryStatus": "pending",
        "notifyPolicy": "done_only",
        "parentFlowId": flow["flowId"],
    }
    assert result["flow"] == flow  # not touched


def test_a_task_shows_everything_that_was_sent(call):
    sent = {
        "runtime": "subagent",
        "task": "Build",
        "sourceId": "zap-1",
        "childSessionKey": "Agent:Main:MAIN:child",
        "parentTaskId": "task-0",
        "agentId": "agent-1",
        "runId": "run-1",
        "label": "Builder",
        "notifyPolicy": "silent",
        "status": "running",
        "startedAt": 1000,
        "lastEventAt": 2000,
        "progressSummary": " half \n way ",
    }
    task = run(call, call.flow(), **sent)["task"]
    assert {name: task[name] for name in sent} == {**sent, "progressSummary": "half way"}


@pytest.mark.parametrize("field", ["startedAt", "lastEventAt", "progressSummary"])
def test_progress_is_for_running_tasks(call, field):
    flow = call.flow()
    value = "half way" if field == "progressSummary" else 5
    task = {"flowId": flow["flowId"], "runtime": "acp", "task": "Build", field: value}
    body = call.rejected(400, "invalid_request", "run_task", **task)
    assert body["error"] == (
        "status: status must be running when startedAt, lastEventAt, or progressSummary is provided"
    )


def test_a_tasks_last_event_is_its_start_where_no_later_one_is_given(call):
    assert run(call, call.flow(), status="running", startedAt=1000)["task"]["lastEventAt"] == 1000


@pytest.mark.parametrize("key", ["agent:main:mainx", "agent:main:main", "agent:other:x"])
def test_a_child_session_must_be_below_the_routes(call, key):
    task = {"flowId": call.flow()["flowId"], "runtime": "acp", "task": "Build", "childSessionKey": key}
    body = call("run_task", **task).json()
    reason = "childSessionKey must be a descendant of the route's session tree"
    assert (body["code"], body["error"]) == ("task_not_created", reason)
    assert body["result"] == {"found": True, "created": False, "reason": reason}


def test_one_run_is_one_task(call):
    flow = call.flow()
    first = run(call, flow, runId="r", label="One")["task"]
    assert run(call, flow, runId="r", label="Two", task="Other")["task"] == first  # acp
    merged = run(call, flow, runId="r", sourceId="s", agentId="a", preferMetadata=True, task="Better")["task"]
    assert merged == {**first, "sourceId": "s", "agentId": "a", "task": "Better"}
    sub = run(call, flow, runId="r", runtime="subagent")["task"]
    assert sub["taskId"] != first["taskId"]
    assert run(call, flow, runId="r", runtime="subagent")["task"] == sub
    assert run(call, flow, runId="r", runtime="subagent", task="Other")["task"]["taskId"] != sub["taskId"]
    assert run(call, flow)["task"]["taskId"] != run(call, flow)["task"]["taskId"]


def test_tasks_of_one_run_differ_by_child_and_those_of_subagents_by_label_and_text(server, call):
    flow = call.flow()

    def id_of(**fields):
        return run(call, flow, **{"runId": "r"} | fields)["task"]["taskId"]

    child = {"childSessionKey": "agent:main:main:a"}
    different = [
        *[{}, child, {"childSessionKey": "agent:main:main:b"}],
        *[
            {"runtime": "subagent"} | fields
            for fields in ({}, {"label": "A"}, {"label": "B"}, {"task": "Test"}, child)
        ],
        {"runId": "R"},
    ]
    ids = [id_of(**fields) for fields in different]
    assert len(set(ids)) == len(different)
    assert [id_of(**fields) for fields in different] == ids
    # No label is not an empty one, which an update of the database could make, and so with the child.
    server.rows("UPDATE flow_task SET label = '' WHERE id = ?", ids[3])
    server.rows("UPDATE flow_task SET child_session_key = '' WHERE id = ?", ids[0])
    assert id_of(runtime="subagent") not in ids
    assert id_of() not in ids
    # Another flow's run with the same name is another one.
    assert run(call, call.flow(), runId="r", **child)["task"]["taskId"] not in ids


def test_of_two_records_of_one_run_the_first_is_completed(server, call):
    flow = call.flow()
    first = run(call, flow, runId="r", label="A")["task"]
    second = run(call, flow, runId="other", label="B")["task"]
    server.rows("UPDATE flow_task SET run_id = 'r' WHERE id = ?", second["taskId"])
    assert run(call, flow, runId="r", label="B", task="Other")["task"] == first


def test_one_run_reported_by_many_at_once_is_one_task(server, call):
    flow = call.flow()
    ids = []

    def work(caller):
        ids.append(run(caller, flow, runId="r")["task"]["taskId"])

    threads = [threading.Thread(target=work, args=(Caller(server),)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 12
    assert len(set(ids)) == 1


def test_tasks_are_refused_by_flows_that_end(call, stranger):
    flow = call.flow()
    task = {"flowId": flow["flowId"], "runtime": "acp", "task": "Build"}
    body = stranger.rejected(404, "not_found", "run_task", **task)
    assert body["error"] == "TaskFlow not found."
    assert body["result"] == {"found": False, "created": False, "reason": "Flow not found."}
    asked = mutate(call, flow, "request_cancel")
    body = call.rejected(409, "cancel_requested", "run_task", **task)
    assert body["result"]["flow"] == asked
    done = mutate(call, call.flow(), "finish_flow")
    body = call.rejected(409, "terminal", "run_task", **{**task, "flowId": done["flowId"]})
    reason = "Flow is already succeeded."
    assert body["error"] == reason
    assert body["result"] == {"found": True, "created": False, "reason": reason, "flow": done}


def test_a_summary_counts_tasks_by_status_and_runtime(call):
    flow = call.flow()
    run(call, flow)
    run(call, flow, runtime="subagent", status="running")
    assert call.result("get_task_summary", flowId=flow["flowId"])["summary"] == {
        "total": 2,
        "active": 2,
        "terminal": 0,
        "failures": 0,
        "byStatus": {
            **dict.fromkeys(["succeeded", "failed", "timed_out", "cancelled", "lost"], 0),
            **{"queued": 1, "running": 1},
        },
        "byRuntime": {"subagent": 1, "acp": 1, "cli": 0, "cron": 0},
    }


def test_cancelling_cancels_the_open_tasks_in_one_go(call, stranger):
    flow = mutate(call, call.flow(), "set_waiting", waitJson=1, blockedSummary="No answer")
    run(call, flow)
    body = stranger.rejected(404, "not_found", "cancel_flow", flowId=flow["flowId"])
    assert body["result"] == {"found": False, "cancelled": False, "reason": "Flow not found."}
    result = call.result("cancel_flow", flowId=flow["flowId"])
    assert (result["found"], result["cancelled"]) == (True, True)
    cancelled = result["flow"]
    assert (cancelled["status"], cancelled["waitJson"]) == ("cancelled", None)
    assert cancelled["revision"] == flow["revision"] + 2
    assert cancelled["cancelRequestedAt"] == cancelled["endedAt"] == cancelled["updatedAt"]
    assert "blockedSummary" not in cancelled
    (task,) = result["tasks"]
    assert (task["status"], task["error"]) == ("cancelled", "Cancelled by operator.")
    assert task["endedAt"] == task["lastEventAt"] == task["cleanupAfter"] - 7 * 86_400_000
    body = call.rejected(409, "terminal", "cancel_flow", flowId=flow["flowId"])
    assert body["error"] == "Flow is already cancelled."
    assert body["result"]["tasks"] == [task]
    asked = mutate(call, call.flow(), "request_cancel")
    again = call.result("cancel_flow", flowId=asked["flowId"])["flow"]
    assert again["revision"] == asked["revision"] + 1
    assert again["cancelRequestedAt"] == asked["cancelRequestedAt"]


# Fields

STRINGS = {
    "create_flow": ["goal", "controllerId"],
    "get_flow": ["flowId"],
    "resolve_flow": ["token"],
    "get_task_summary": ["flowId"],
    "cancel_flow": ["flowId"],
    "run_task": [
        "flowId",
        "task",
        "sourceId",
        "childSessionKey",
        "parentTaskId",
        "agentId",
        "runId",
        "label",
    ],
    **{action: ["flowId"] for action in MUTATIONS},
}
VALID = {
    "create_flow": {"goal": "g"},
    "get_flow": {"flowId": "f"},
    "list_flows": {},
    "find_latest_flow": {},
    "resolve_flow": {"token": "t"},
    "get_task_summary": {"flowId": "f"},
    "cancel_flow": {"flowId": "f"},
    "run_task": {"flowId": "f", "runtime": "acp", "task": "t"},
    **{action: {"flowId": "f", "expectedRevision": 0} for action in MUTATIONS},
}


@pytest.mark.parametrize("action", VALID)
def test_an_unknown_key_is_refused(call, action):
    body = call.rejected(400, "invalid_request", action, **VALID[action], foo=1)
    assert body["error"] == 'Unrecognized key: "foo"'
    assert body["result"] == {}


@pytest.mark.parametrize(("action", "field"), [(a, f) for a, names in STRINGS.items() for f in names])
@pytest.mark.parametrize("value", ["", "  ", None, 5, [], "a\0b"])
def test_a_string_must_be_one_and_not_empty(call, action, field, value):
    body = call.rejected(400, "invalid_request", action, **{**VALID[action], field: value})
    assert body["error"].startswith(f"{field}: ")


@pytest.mark.parametrize(("action", "field"), [(a, f) for a, fields in VALID.items() for f in fields])
def test_a_required_field_is_named_when_it_is_missing(call, action, field):
    fields = {name: value for name, value in VALID[action].items() if name != field}
    assert call.rejected(400, "invalid_request", action, **fields)["error"] == f"{field}: is required"


@pytest.mark.parametrize("value", [-1, 1.5, True, "0", None, 2**53, 1e300, []])
@pytest.mark.parametrize("action", MUTATIONS)
def test_a_revision_is_a_whole_number(call, action, value):
    body = call.rejected(400, "invalid_request", action, flowId="f", expectedRevision=value)
    assert body["error"].startswith("expectedRevision: ")


@pytest.mark.parametrize(
    ("action", "field", "value"),
    [
        ("create_flow", "status", "succeeded"),
        ("create_flow", "status", None),
        ("create_flow", "notifyPolicy", "always"),
        ("create_flow", "currentStep", " "),
        ("resume_flow", "status", "waiting"),
        ("set_waiting", "blockedTaskId", ""),
        ("run_task", "runtime", "cli"),
        ("run_task", "status", "waiting"),
        ("run_task", "preferMetadata", "yes"),
        ("run_task", "preferMetadata", 1),
        ("run_task", "startedAt", -1),
        ("run_task", "progressSummary", ""),
    ],
)
def test_other_fields_are_as_strict(call, action, field, value):
    body = call.rejected(400, "invalid_request", action, **{**VALID[action], field: value})
    assert body["error"].startswith(f"{field}: ")


def nested(levels):
    return json.loads("[" * levels + "]" * levels)


@pytest.mark.parametrize(
    "text", ['{"a":1e999}', '"\\ud800"', '{"\\ud800":1}', '"\\u0000"', json.dumps(nested(33))]
)
def test_json_that_cannot_be_kept_is_refused(call, text):
    raw = '{"action":"create_flow","goal":"g","stateJson":' + text + "}"
    answer = call.session.post(
        call.url, raw, headers={"Authorization": "Bearer s3cret", "Content-Type": "application/json"}
    )
    call.check(answer)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_request"
    assert answer.json()["error"].startswith("stateJson: ")


def test_json_of_32_levels_is_kept(call):
    assert call.flow(stateJson=nested(32))["stateJson"] == nested(32)


@pytest.mark.parametrize("action", [None, 5, "", "CREATE_FLOW", "create_flow ", [], "delete_flow"])
def test_an_action_that_does_not_exist_is_refused(call, action):
    body = call.rejected(400, "invalid_request", action)
    assert body["error"].startswith("action: must be one of create_flow, ")


@pytest.mark.parametrize("body", [[], "x", 5, None, {}])
def test_a_body_that_is_no_action_is_refused(call, body):
    answer = call.session.post(
        call.url,
        json.dumps(body),
        headers={"Authorization": "Bearer s3cret", "Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_request"


def test_a_stranger_sees_none_of_it(call, stranger):
    flow = call.flow()
    assert stranger.result("get_flow", flowId=flow["flowId"]) == {"flow": None}
    assert stranger.result("resolve_flow", token=flow["flowId"]) == {"flow": None}
    assert stranger.result("get_task_summary", flowId=flow["flowId"]) == {"summary": None}
    assert flow["flowId"] not in stranger("list_flows").text


def test_a_locked_database_is_said_and_nothing_is_written(tmp_path):
    server = start(tmp_path)
    call = Caller(server)
    flow = call.flow()
    server.rows("CREATE TRIGGER no BEFORE UPDATE ON flow BEGIN SELECT RAISE(FAIL, 'full'); END")
    body = call.rejected(503, "persist_failed", "finish_flow", flowId=flow["flowId"], expectedRevision=0)
    assert body["error"] == "TaskFlow persistence failed."
    assert body["result"] == {}
    assert call.result("get_flow", flowId=flow["flowId"])["flow"] == flow
    server.allow_bugs = True  # the log says what the database did
    server.stop()


def test_flows_of_which_nothing_was_heard_for_long_are_dropped_where_a_setting_says_so(tmp_path):
    server = start(tmp_path, CONFIG + "idleDays = 30")
    call = Caller(server)
    idle, with_task, young = call.flow(), call.flow(), call.flow()
    for flow in (idle, with_task):
        run(call, flow)
    long_ago = int(time.time() * 1000) - 31 * 86_400_000
    for flow in (idle, with_task):
        server.rows("UPDATE flow SET updated_at = ? WHERE id = ?", long_ago, flow["flowId"])
    (row,) = server.rows("SELECT seq FROM flow WHERE id = ?", idle["flowId"])
    server.rows("UPDATE flow_task SET last_event_at = ? WHERE flow_seq = ?", long_ago, row["seq"])
    server.stop()
    server.start()
    wait_until(lambda: len(server.rows("SELECT id FROM flow")) == 2)
    ids = {flow["flowId"] for flow in Caller(server).result("list_flows")["flows"]}
    assert ids == {with_task["flowId"], young["flowId"]}
    assert server.rows("SELECT COUNT(*) AS n FROM flow_task") == [{"n": 1}]
    server.stop()


def test_flows_that_ended_long_ago_are_dropped(tmp_path):
    server = start(tmp_path)
    call = Caller(server)
    old, young, running = call.flow(), call.flow(), call.flow()
    run(call, old)
    for flow in (old, young):
        mutate(call, flow, "finish_flow")
    week = int(time.time() * 1000) - 7 * 86_400_000 - 1000
    server.rows("UPDATE flow SET ended_at = ? WHERE id = ?", week, old["flowId"])
    server.stop()
    server.start()
    wait_until(lambda: not server.rows("SELECT 1 FROM flow WHERE id = ?", old["flowId"]))
    ids = {flow["flowId"] for flow in Caller(server).result("list_flows")["flows"]}
    assert ids == {young["flowId"], running["flowId"]}
    assert server.rows("SELECT COUNT(*) AS n FROM flow_task") == [{"n": 0}]
    server.stop()
