"""The gateway's flows as its contract has them, in memory: what the part `flows_model` compares with."""

import re
from typing import Any, NamedTuple

from connections import LARGEST

Row = dict[str, Any]

TERMINAL = ("succeeded", "failed", "cancelled", "lost")
TASK_STATUSES = ("queued", "running", "succeeded", "failed", "timed_out", "cancelled", "lost")
RUNTIMES = ("subagent", "acp", "cli", "cron")
KEPT_MILLISECONDS = 7 * 86_400_000  # from a task's cancellation to its `cleanupAfter`
NOTHING_BLOCKS = {"blockedTaskId": None, "blockedSummary": None}
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Session(NamedTuple):
    """A route, the session that owns its flows, and the controller of those that it makes."""

    route: str
    key: str
    controller: str


class Refusal(Exception):
    """An action that is refused."""

    def __init__(self, status: int, code: str, error: str, /, **result: Any):
        super().__init__(error)
        self.status, self.code, self.result = status, code, result


def as_double(value: Any) -> Any:
    """A JSON value with its numbers as JavaScript holds them."""
    if isinstance(value, dict):
        return {name: as_double(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_double(inner) for inner in value]
    return float(value) if type(value) is int and abs(value) > LARGEST else value


def kept(name: str, value: Any) -> Any:
    """The value of a field as it is kept: JSON with doubles, a text trimmed."""
    if name in ("stateJson", "waitJson"):
        return as_double(value)
    return value.strip() if isinstance(value, str) else value


def shown(row: Row) -> Row:
    """The keys of a row that are shown: JSON's null is, other empty values are not."""
    return {key: value for key, value in row.items() if value is not None or key in ("stateJson", "waitJson")}


class Flows:
    """The flows and child tasks of all sessions. Each action is a method, which returns its result."""

    def __init__(self) -> None:
        self.flows: dict[str, Row] = {}  # by id, in the order of creation, as are the next two
        self.owners: dict[str, str] = {}
        self.tasks: dict[str, list[Row]] = {}
        self.at = 0  # the time of the action that is under way
        self.id = ""  # of what that action makes
        self.ids: set[str] = set()  # of all flows and tasks

    def answer(self, caller: Session, action: str, sent: Row, at: int, id: str) -> tuple[int, Row]:
        """The status and the body that answer an action at this time; `id` is that of what it makes."""
        self.at, self.id = at, id
        fields = {name: kept(name, value) for name, value in sent.items()}
        body: Row = {"ok": True, "routeId": caller.route}
        try:
            if "expectedRevision" in fields:
                return 200, body | {"result": self.mutate(caller, action, **fields)}
            return 200, body | {"result": getattr(self, action)(caller, **fields)}
        except Refusal as refusal:
            said = {"ok": False, "code": refusal.code, "error": str(refusal), "result": refusal.result}
            return refusal.status, body | said

    def new_id(self) -> str:
        assert UUID4.fullmatch(self.id), f"{self.id!r} is not a UUID of version 4"
        assert self.id not in self.ids, f"{self.id} was the id of something else"
        self.ids.add(self.id)
        return self.id

    def owned(self, caller: Session, id: str) -> Row | None:
        return self.flows[id] if self.owners.get(id) == caller.key else None

    def revision(self, id: str) -> int:
        """The flow's revision, whosever it is; 0 where there is none."""
        return self.flows.get(id, {"revision": 0})["revision"]

    def listed(self, caller: Session) -> list[Row]:
        """The session's flows, the newest first; those of one millisecond in the order of creation."""
        owned = [shown(flow) for id, flow in self.flows.items() if self.owners[id] == caller.key]
        return sorted(owned, key=lambda flow: -flow["createdAt"])

    # What reads

    def get_flow(self, caller: Session, flowId: str) -> Row:
        flow = self.owned(caller, flowId)
        return {"flow": flow and shown(flow)}

    def list_flows(self, caller: Session) -> Row:
        return {"flows": self.listed(caller)}

    def find_latest_flow(self, caller: Session) -> Row:
        return {"flow": next(iter(self.listed(caller)), None)}

    def resolve_flow(self, caller: Session, token: str) -> Row:
        if token != caller.key:
            return self.get_flow(caller, token)
        not_ended = [flow for flow in self.listed(caller) if flow["status"] not in TERMINAL]
        return {"flow": next(iter(not_ended + self.listed(caller)), None)}

    def get_task_summary(self, caller: Session, flowId: str) -> Row:
        if self.owned(caller, flowId) is None:
            return {"summary": None}
        tasks = self.tasks[flowId]
        counts = {name: sum(task["status"] == name for task in tasks) for name in TASK_STATUSES}
        active = counts["queued"] + counts["running"]
        summary: Row = {"total": len(tasks), "active": active, "terminal": len(tasks) - active}
        summary["failures"] = counts["failed"] + counts["timed_out"] + counts["lost"]
        runtimes = {name: sum(task["runtime"] == name for task in tasks) for name in RUNTIMES}
        return {"summary": summary | {"byStatus": counts, "byRuntime": runtimes}}

    # What writes

    def create_flow(self, caller: Session, **fields: Any) -> Row:
        id = self.new_id()
        flow: Row = {"flowId": id, "syncMode": "managed", "revision": 0, "status": "queued"}
        flow |= {"notifyPolicy": "done_only", "controllerId": caller.controller}
        self.flows[id] = flow | {"createdAt": self.at, "updatedAt": self.at} | fields
        self.owners[id], self.tasks[id] = caller.key, []
        return {"created": True, "flow": shown(self.flows[id])}

    def mutate(self, caller: Session, action: str, flowId: str, expectedRevision: Any, **fields: Any) -> Row:
        """One of the five actions that expect a revision."""
        number = expectedRevision
        if type(number) not in (int, float) or not 0 <= number <= LARGEST or number != int(number):
            raise Refusal(400, "invalid_request", "expectedRevision: ")
        flow, code = self.owned(caller, flowId), "not_found"
        if flow is None:
            raise Refusal(404, code, "TaskFlow not found.", applied=False, code=code)
        if flow["revision"] != number:
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
        flow |= {"revision": flow["revision"] + 1, "updatedAt": self.at}
        return {"applied": True, "flow": shown(flow)}

    def cancel_flow(self, caller: Session, flowId: str) -> Row:
        flow = self.owned(caller, flowId)
        if flow is None:
            nothing = {"found": False, "cancelled": False, "reason": "Flow not found."}
            raise Refusal(404, "not_found", "TaskFlow not found.", **nothing)
        if flow["status"] in TERMINAL:
            reason = f"Flow is already {flow['status']}."
            both = self.with_tasks(flow)
            raise Refusal(409, "terminal", reason, found=True, cancelled=False, reason=reason, **both)
        writes = 1 if "cancelRequestedAt" in flow else 2
        flow.setdefault("cancelRequestedAt", self.at)
        flow |= {"status": "cancelled", "waitJson": None, **NOTHING_BLOCKS}
        flow |= {"endedAt": self.at, "updatedAt": self.at, "revision": flow["revision"] + writes}
        for task in self.tasks[flowId]:
            if task["status"] in ("queued", "running"):
                task |= {"status": "cancelled", "error": "Cancelled by operator.", "endedAt": self.at}
                task |= {"lastEventAt": self.at, "cleanupAfter": self.at + KEPT_MILLISECONDS}
        return {"found": True, "cancelled": True, **self.with_tasks(flow)}

    def with_tasks(self, flow: Row) -> Row:
        return {"flow": shown(flow), "tasks": [shown(task) for task in self.tasks[flow["flowId"]]]}

    def run_task(self, caller: Session, flowId: str, **fields: Any) -> Row:
        if fields.get("status") != "running" and {"startedAt", "lastEventAt", "progressSummary"} & set(
            fields
        ):
            raise Refusal(400, "invalid_request", "status: status must be running when ")
        flow, code = self.owned(caller, flowId), ""
        if flow is None:
            nothing = {"found": False, "created": False, "reason": "Flow not found."}
            raise Refusal(404, "not_found", "TaskFlow not found.", **nothing)
        if "cancelRequestedAt" in flow:
            code, reason = "cancel_requested", "Flow cancellation has already been requested."
        elif flow["status"] in TERMINAL:
            code, reason = "terminal", f"Flow is already {flow['status']}."
        if code:
            raise Refusal(409, code, reason, found=True, created=False, reason=reason, flow=shown(flow))
        child = fields.get("childSessionKey")
        if child and not child.lower().startswith(f"{caller.key}:".lower()):
            reason = "childSessionKey must be a descendant of the route's session tree"
            raise Refusal(409, "task_not_created", reason, found=True, created=False, reason=reason)
        task = self.same_run(flowId, fields) or self.new_task(flowId, fields)
        return {"created": True, "flow": shown(flow), "task": shown(task)}

    def same_run(self, flow_id: str, fields: Row) -> Row | None:
        """The record of the same run, with what it lacked."""
        compared = ["runId", "runtime", "childSessionKey"]
        compared += ["label", "task"] if fields["runtime"] == "subagent" else []
        for task in self.tasks[flow_id] if "runId" in fields else []:
            if all(task.get(name) == fields.get(name) for name in compared):
                for name in ("sourceId", "parentTaskId", "agentId", "label"):
                    task[name] = task.get(name) or fields.get(name)
                overwritten = ("label", "task") if fields.get("preferMetadata") else ()
                task |= {name: fields[name] for name in overwritten if name in fields}
                return task
        return None

    def new_task(self, flow_id: str, fields: Row) -> Row:
        task: Row = {"status": "queued", "notifyPolicy": "done_only", "createdAt": self.at}
        task |= {"lastEventAt": fields.get("startedAt", self.at), "deliveryStatus": "pending"}
        task |= {"taskId": self.new_id(), "scopeKind": "session", "parentFlowId": flow_id}
        task |= {name: value for name, value in fields.items() if name != "preferMetadata"}
        if task.get("progressSummary"):
            task["progressSummary"] = " ".join(task["progressSummary"].split())
        self.tasks[flow_id].append(task)
        return task
