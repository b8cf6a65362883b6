"""The gateway's flows as its contract has them, in memory: what the part `flows_model` compares with."""

import json
from typing import Any, NamedTuple

Row = dict[str, Any]

TERMINAL = ("succeeded", "failed", "cancelled", "lost")
TASK_STATUSES = ("queued", "running", "succeeded", "failed", "timed_out", "cancelled", "lost")
RUNTIMES = ("subagent", "acp", "cli", "cron")
KEPT_MILLISECONDS = 7 * 86_400_000  # from a task's cancellation to its `cleanupAfter`
JSON_FIELDS = ("stateJson", "waitJson")
INTERNAL = ("session", "tasks")  # of a flow: the key of its session, and its child tasks
NOTHING_BLOCKS = {"blockedTaskId": None, "blockedSummary": None}
PROGRESS = ("startedAt", "lastEventAt", "progressSummary")  # of a task, which must be running
FILLED = ("sourceId", "parentTaskId", "agentId", "label")  # of a task, by the next report of its run


class Route(NamedTuple):
    """A route: the session that owns its flows, the controller of those that it makes, and its secret."""

    id: str
    session: str
    controller: str
    secret: str

    @property
    def path(self) -> str:
        return f"/plugins/webhooks/{self.id}"


def shown(row: Row) -> Row:
    """A flow or task without what is internal, and without empty values, of which JSON's null is none."""
    seen = {name: value for name, value in row.items() if name not in INTERNAL}
    return {name: value for name, value in seen.items() if value is not None or name in JSON_FIELDS}


def shown_with_tasks(flow: Row) -> Row:
    return {"flow": shown(flow), "tasks": [shown(task) for task in flow["tasks"]]}


def kept(name: str, value: Any) -> Any:
    """The value of a field as it is kept: JSON with numbers as JavaScript reads them, a text trimmed."""
    if name in JSON_FIELDS:
        return json.loads(json.dumps(value), parse_int=float)
    return value.strip() if isinstance(value, str) else value


class Refusal(Exception):
    """An action that is refused."""

    def __init__(self, status: int, code: str, error: str, /, **result: Any):
        super().__init__(error)
        self.status, self.code, self.result = status, code, result


def not_created(code: str, reason: str, **seen: Row) -> Refusal:
    """A refusal of `run_task`."""
    return Refusal(409, code, reason, found=True, created=False, reason=reason, **seen)


class Flows:
    """The flows of all sessions. Each action is a method, which returns its result."""

    def __init__(self) -> None:
        self.flows: dict[str, Row] = {}  # by id, in the order of creation
        self.at = 0  # the time of the action that is under way
        self.id = ""  # of what that action makes

    def answer(self, route: Route, action: str, sent: Row, at: int, id: str) -> tuple[int, Row]:
        """The status and the body that answer an action at this time; `id` is that of what it makes."""
        self.at, self.id = at, id
        fields = {name: kept(name, value) for name, value in sent.items()}
        try:
            if "expectedRevision" in fields:
                result = self.change(route, action, **fields)
            else:
                result = getattr(self, action)(route, **fields)
        except Refusal as refusal:
            body = {"ok": False, "code": refusal.code, "error": str(refusal), "result": refusal.result}
            return refusal.status, body | {"routeId": route.id}
        return 200, {"ok": True, "routeId": route.id, "result": result}

    def owned(self, route: Route, id: str) -> Row | None:
        flow = self.flows.get(id)
        return flow if flow and flow["session"] == route.session else None

    def existing(self, route: Route, id: str, **result: Any) -> Row:
        """The route's flow with this id; without one the action is refused with this result."""
        if flow := self.owned(route, id):
            return flow
        raise Refusal(404, "not_found", "TaskFlow not found.", **result)

    def listed(self, route: Route) -> list[Row]:
        """The session's flows, the newest first; those of one millisecond in the order of creation."""
        owned = [shown(flow) for flow in self.flows.values() if flow["session"] == route.session]
        return sorted(owned, key=lambda row: -row["createdAt"])

    # What reads

    def get_flow(self, route: Route, flowId: str) -> Row:
        flow = self.owned(route, flowId)
        return {"flow": flow and shown(flow)}

    def list_flows(self, route: Route) -> Row:
        return {"flows": self.listed(route)}

    def find_latest_flow(self, route: Route) -> Row:
        return {"flow": next(iter(self.listed(route)), None)}

    def resolve_flow(self, route: Route, token: str) -> Row:
        if token != route.session:
            return self.get_flow(route, token)
        not_ended = [row for row in self.listed(route) if row["status"] not in TERMINAL]
        return {"flow": next(iter(not_ended + self.listed(route)), None)}

    def get_task_summary(self, route: Route, flowId: str) -> Row:
        flow = self.owned(route, flowId)
        if flow is None:
            return {"summary": None}
        statuses = [task["status"] for task in flow["tasks"]]
        runtimes = [task["runtime"] for task in flow["tasks"]]
        active = statuses.count("queued") + statuses.count("running")
        summary = {"total": len(statuses), "active": active, "terminal": len(statuses) - active}
        summary["failures"] = 0  # no action lets a task fail
        by_status = {name: statuses.count(name) for name in TASK_STATUSES}
        by_runtime = {name: runtimes.count(name) for name in RUNTIMES}
        return {"summary": summary | {"byStatus": by_status, "byRuntime": by_runtime}}

    # What writes

    def create_flow(self, route: Route, **fields: Any) -> Row:
        flow: Row = {"flowId": self.id, "syncMode": "managed", "revision": 0, "status": "queued"}
        flow |= {"notifyPolicy": "done_only", "controllerId": route.controller}
        flow |= {"createdAt": self.at, "updatedAt": self.at, "session": route.session, "tasks": []}
        self.flows[self.id] = flow | fields
        return {"created": True, "flow": shown(flow | fields)}

    def change(self, route: Route, action: str, flowId: str, expectedRevision: int, **fields: Any) -> Row:
        """One of the five actions that expect a revision."""
        flow = self.existing(route, flowId, applied=False, code="not_found")
        if flow["revision"] != expectedRevision:
            error, code = "TaskFlow changed since the caller's expected revision.", "revision_conflict"
            raise Refusal(409, code, error, applied=False, code=code, current=shown(flow))
        is_blocked = any(fields.get(name) is not None for name in NOTHING_BLOCKS)
        waiting = {"status": "blocked" if is_blocked else "waiting", "endedAt": None}
        ended = {"waitJson": None, "endedAt": self.at}
        flow |= {
            "set_waiting": waiting | fields,
            "resume_flow": {"status": "queued", "waitJson": None, "endedAt": None} | NOTHING_BLOCKS | fields,
            "finish_flow": {"status": "succeeded"} | ended | NOTHING_BLOCKS | fields,
            "fail_flow": {"status": "failed"} | ended | fields,
            "request_cancel": {"cancelRequestedAt": self.at},
        }[action]
        flow |= {"revision": expectedRevision + 1, "updatedAt": self.at}
        return {"applied": True, "flow": shown(flow)}

    def cancel_flow(self, route: Route, flowId: str) -> Row:
        flow = self.existing(route, flowId, found=False, cancelled=False, reason="Flow not found.")
        if flow["status"] in TERMINAL:
            reason = f"Flow is already {flow['status']}."
            result = {"found": True, "cancelled": False, "reason": reason, **shown_with_tasks(flow)}
            raise Refusal(409, "terminal", reason, **result)
        writes = 1 if "cancelRequestedAt" in flow else 2
        flow.setdefault("cancelRequestedAt", self.at)
        flow |= {"status": "cancelled", "waitJson": None, **NOTHING_BLOCKS}
        flow |= {"endedAt": self.at, "updatedAt": self.at}
        flow["revision"] += writes
        for task in flow["tasks"]:
            if task["status"] in ("queued", "running"):
                task |= {"status": "cancelled", "error": "Cancelled by operator.", "endedAt": self.at}
                task |= {"lastEventAt": self.at, "cleanupAfter": self.at + KEPT_MILLISECONDS}
        return {"found": True, "cancelled": True, **shown_with_tasks(flow)}

    def run_task(self, route: Route, flowId: str, **fields: Any) -> Row:
        if fields.get("status") != "running" and any(name in fields for name in PROGRESS):
            rule = "status must be running when startedAt, lastEventAt, or progressSummary is provided"
            raise Refusal(400, "invalid_request", f"status: {rule}")
        flow = self.existing(route, flowId, found=False, created=False, reason="Flow not found.")
        if "cancelRequestedAt" in flow:
            reason = "Flow cancellation has already been requested."
            raise not_created("cancel_requested", reason, flow=shown(flow))
        if flow["status"] in TERMINAL:
            raise not_created("terminal", f"Flow is already {flow['status']}.", flow=shown(flow))
        child = fields.get("childSessionKey")
        if child and not child.lower().startswith(f"{route.session}:".lower()):
            reason = "childSessionKey must be a descendant of the route's session tree"
            raise not_created("task_not_created", reason)
        task = self.same_run(flow, fields) or self.new_task(flow, fields)
        return {"created": True, "flow": shown(flow), "task": shown(task)}

    def same_run(self, flow: Row, fields: Row) -> Row | None:
        """The task of the same run, with what it lacked."""
        compared = ["runId", "runtime", "childSessionKey"]
        compared += ["label", "task"] if fields["runtime"] == "subagent" else []
        for task in flow["tasks"] if "runId" in fields else []:
            if all(task.get(name) == fields.get(name) for name in compared):
                for name in FILLED:
                    task[name] = task.get(name) or fields.get(name)
                overwritten = ("label", "task") if fields.get("preferMetadata") else ()
                task |= {name: fields[name] for name in overwritten if name in fields}
                return task
        return None

    def new_task(self, flow: Row, fields: Row) -> Row:
        task: Row = {"taskId": self.id, "scopeKind": "session", "parentFlowId": flow["flowId"]}
        task |= {"status": "queued", "notifyPolicy": "done_only", "deliveryStatus": "pending"}
        task |= {"createdAt": self.at, "lastEventAt": fields.get("startedAt", self.at)}
        task |= {name: value for name, value in fields.items() if name != "preferMetadata"}
        if task.get("progressSummary"):
            task["progressSummary"] = " ".join(task["progressSummary"].split())
        flow["tasks"].append(task)
        return task
