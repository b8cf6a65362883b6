"""The OpenAPI document, made of what views, schemas and actions declare."""

import re
from typing import Any, NamedTuple

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from marshmallow import Schema

from gateway import ACTION_EXAMPLE, ACTION_SCHEMAS, FlowResultShown
from schemas import EVENT_DATA, MAX_DETAILS, EventShown, Shown, Upload

DESCRIPTION = """\
The task management service of a small team: projects, tasks, comments, meetings, members and whiteboards.

Every call carries `Authorization: Bearer <API key>`, but for `/health`, enrollment and this document.
Answers are `{"success": true, "data": {…}, "meta": {…}}`, errors `{"success": false, "error": {…},
"meta": {…}}`. Times are UTC. The POSTs that create take an `Idempotency-Key`, whose repetitions are
answered as the first call was.
"""
ERRORS = {
    400: ("BadRequest", "The body is not the JSON object, or the form, that it should be."),
    401: ("Unauthorized", "There is no API key, or not a valid one."),
    403: ("Forbidden", "The role or the key's scope does not allow it; the message says which would."),
    404: ("NotFound", "There is no such path or object."),
    408: ("RequestTimeout", "The body did not arrive in time."),
    409: ("Conflict", "The state does not allow it."),
    410: ("Gone", "The enrollment link was used, replaced or revoked, or has expired."),
    412: ("PreconditionFailed", "`If-Match` names another version."),
    413: ("PayloadTooLarge", "The body is over the limit."),
    415: ("UnsupportedMediaType", "The body is of another type than the documented one."),
    422: ("ValidationError", "`error.details` lists every field, parameter or header that is wrong."),
    429: ("RateLimited", "More requests than a member may make a minute; see `Retry-After`."),
    500: ("InternalError", "A bug; the log has it under the request's id."),
    503: ("Unavailable", "The database is locked, full, read-only or not in its place; see `Retry-After`."),
}
CONDITIONAL = ("update_task", "complete_task", "delete_task")
VERSIONED = ("create_task", "get_task", "update_task", "complete_task")
CONFLICTING = {
    *("invite_member", "renew_invitation", "revoke_invitation", "update_member", "delete_member"),
    *("delete_project", "test_webhook", "enable_webhook", "redeliver_delivery"),
}
FAULT = {
    "type": "object",
    "required": ["code", "message"],
    "additionalProperties": False,
    "properties": {
        "code": {"type": "string", "examples": ["validation_error"]},
        "message": {"type": "string", "examples": ["title: must not be blank"]},
        "details": {
            "type": "array",
            "maxItems": MAX_DETAILS,
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "additionalProperties": False,
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
META = {
    "type": "object",
    "required": ["timestamp", "version", "request_id"],
    "additionalProperties": False,
    "properties": {
        "timestamp": {"type": "string", "format": "date-time"},
        "version": {"const": "1.1"},
        "request_id": {"type": "string", "pattern": "^req_[0-9a-f]{32}$"},
    },
}


class Operation(NamedTuple):
    """A method of a path, as its view declares it."""

    method: str
    rule: str  # as Flask writes it
    name: str
    summary: str
    takes: Schema
    gives: Schema | str
    status: int
    role: str | None

    @property
    def path(self) -> str:
        return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", self.rule)

    @property
    def repeatable(self) -> bool:
        """Whether it takes an `Idempotency-Key`: it creates, and its answer may be stored."""
        return self.status == 201 and not getattr(self.gives, "secret", False)


def document(base_url: str, operations: list[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these operations, the events, and the gateway's actions."""
    plugin = MarshmallowPlugin(
        schema_name_resolver=lambda schema: (
            type(schema).__name__.removesuffix("Shown") if _named(schema) else ""
        )
    )
    info = {"description": DESCRIPTION}
    spec = APISpec("Task service", "1.1", "3.1.0", [plugin], info=info, servers=[{"url": base_url}])
    converter: Any = plugin.converter
    converter.add_attribute_function(lambda self, field, **_: getattr(field, "described", {}))
    spec.components.security_scheme("key", {"type": "http", "scheme": "bearer"})
    spec.components.security_scheme("route", {"type": "http", "scheme": "bearer"})
    header = {"type": "apiKey", "in": "header", "name": "x-agent-webhook-secret"}
    spec.components.security_scheme("routeHeader", header)
    spec.components.schema("Meta", META)
    spec.components.schema("Fault", FAULT)
    for status, (name, said) in ERRORS.items():
        body = _envelope({"success": {"const": False}, "error": _ref("Fault")})
        spec.components.response(name, {"description": said, "content": _json(body)}, status=status)
    paths: dict[str, dict[str, Any]] = {}
    for operation in sorted(operations, key=lambda operation: operation.path):
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(converter, operation)
    for path, methods in paths.items():
        spec.path(path, operations=methods)
    spec.path("/plugins/webhooks/{routeId}", operations={"post": _intake(converter)})
    return spec.to_dict() | {"webhooks": {name: {"post": _event(converter, name)} for name in EVENT_DATA}}


def _named(schema: Any) -> bool:
    return isinstance(schema, Shown) or (isinstance(schema, type) and issubclass(schema, Shown))


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: Any, kind: str = "application/json") -> dict[str, Any]:
    return {kind: {"schema": schema}}


def _envelope(inner: dict[str, Any]) -> dict[str, Any]:
    properties = inner | {"meta": _ref("Meta")}
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


def _operation(converter: Any, operation: Operation) -> dict[str, Any]:
    method, path, takes = operation.method, operation.path, operation.takes
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    in_query = method in ("GET", "DELETE")
    if in_query:
        parameters += [
            {"name": name, "in": "query", "schema": converter.field2property(field)}
            for name, field in takes.fields.items()
        ]
    if operation.name in CONDITIONAL:
        tags = {"type": "string", "pattern": r'^(\*|(W/)?"[^"]*"(, *(W/)?"[^"]*")*)$', "examples": ['"3"']}
        parameters.append({"name": "If-Match", "in": "header", "schema": tags})
    if operation.repeatable:
        key = {"type": "string", "pattern": "^[!-~]{1,255}$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    # Of a view that several methods reach, each has a name of its own.
    other = method == "PUT" or (method == "PATCH" and path.endswith("/complete"))
    described: dict[str, Any] = {
        "operationId": operation.name + f"_by_{method.lower()}" * other,
        "summary": operation.summary,
        "tags": [path.removeprefix("/api/v1").split("/")[1]],
        "parameters": parameters,
        "responses": _answers(converter, operation),
        "security": [{"key": []}] if operation.role else [{}, {"key": []}],
    }
    if not in_query and takes.fields:
        kind = "multipart/form-data" if isinstance(takes, Upload) else "application/json"
        body: dict[str, Any] = {"schema": converter.schema2jsonschema(takes)}
        if example := {
            name: value for name, value in getattr(takes, "EXAMPLE", {}).items() if name in takes.fields
        }:
            body["example"] = example
        needed = not takes.partial and any(field.required for field in takes.load_fields.values())
        described["requestBody"] = {"required": needed, "content": {kind: body}}
    return described


def _answers(converter: Any, operation: Operation) -> dict[str, Any]:
    gives = operation.gives
    if isinstance(gives, str):
        content: dict[str, Any] = {gives: {}}
    else:
        data = converter.resolve_nested_schema(gives)
        content = _json(_envelope({"success": {"const": True}, "data": data}))
    statuses = {401, 422, 429, 500, 503}
    if operation.role:
        statuses.add(403)
    if operation.method != "GET":
        statuses |= {400, 408, 413, 415}
    if "{" in operation.path:
        statuses.add(404)
    if operation.name in CONFLICTING:
        statuses.add(409)
    if "{token}" in operation.path:
        statuses.add(410)
    if operation.name in CONDITIONAL:
        statuses.add(412)
    success = {"description": operation.summary, "content": content}
    if headers := _headers(operation):
        success["headers"] = headers
    answers: dict[str, Any] = {str(operation.status): success}
    if not operation.path.startswith("/api/"):  # a page, and so are its refusals
        return answers | {
            str(status): {"description": ERRORS[status][1], "content": content}
            for status in (404, 410, 500, 503)
        }
    if operation.name == "invite_member":
        answers["200"] = {
            "description": "They had been invited before; the old link is dead.",
            "content": content,
        }
    return answers | {str(status): ERRORS[status][0] for status in sorted(statuses)}


def _headers(operation: Operation) -> dict[str, Any]:
    """The headers of a success that say more than its body."""
    text, headers = {"type": "string"}, {}
    if operation.name in VERSIONED:
        headers["ETag"] = {"description": "The task's version.", "required": True, "schema": text}
    if operation.repeatable and operation.name != "add_comment":
        headers["Location"] = {"description": "Where it is.", "required": True, "schema": text}
    if operation.repeatable:
        told = "Where this is the answer of the first call with the same Idempotency-Key."
        headers["Idempotent-Replayed"] = {"description": told, "schema": {"const": "true"}}
    return headers


def _event(converter: Any, name: str) -> dict[str, Any]:
    summary, data = EVENT_DATA[name]
    properties = {
        key: {"type": "object"} if schema is None else converter.resolve_nested_schema(schema)
        for key, schema in data.items()
    }
    inner = {
        "type": "object",
        "required": list(data),
        "additionalProperties": False,
        "properties": properties,
    }
    event = converter.resolve_nested_schema(EventShown)
    body = {"allOf": [event, {"properties": {"event": {"const": name}, "data": inner}}]}
    headers = ["x-service-signature", "x-service-event", "x-service-delivery"]
    headers += ["webhook-id", "webhook-timestamp", "webhook-signature"]
    return {
        "operationId": name.replace(".", "_"),
        "summary": summary,
        "parameters": [{"name": header, "in": "header", "schema": {"type": "string"}} for header in headers],
        "requestBody": {"required": True, "content": _json(body)},
        "responses": {"2XX": {"description": "Accepted; anything else is tried again later."}},
    }


def _intake(converter: Any) -> dict[str, Any]:
    bodies, examples = [], {}
    for name, action in ACTION_SCHEMAS.items():
        body = converter.schema2jsonschema(action)
        body["properties"] = {"action": {"const": name}} | body.get("properties", {})
        body["required"] = ["action", *body.get("required", [])]
        bodies.append(body | {"title": name})
        given = {key: value for key, value in ACTION_EXAMPLE.items() if key in body["properties"]}
        examples[name] = {"value": {"action": name, **given}}
    answer = {
        "type": "object",
        "required": ["ok", "routeId", "result"],
        "properties": {
            "ok": {"type": "boolean"},
            "routeId": {"type": "string"},
            "code": {"type": "string"},
            "error": {"type": "string"},
            "result": converter.resolve_nested_schema(FlowResultShown),
        },
    }
    answers = {
        str(status): {
            "description": "Done." if status == 200 else "Refused; see code.",
            "content": _json(answer),
        }
        for status in (200, 400, 401, 404, 405, 408, 409, 413, 415, 429, 500, 503)
    }
    return {
        "operationId": "drive_flow",
        "summary": "Drive managed flows, on a route of the agent gateway.",
        "tags": ["gateway"],
        "parameters": [{"name": "routeId", "in": "path", "required": True, "schema": {"type": "string"}}],
        "security": [{"route": []}, {"routeHeader": []}],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"oneOf": bodies}, "examples": examples}},
        },
        "responses": answers,
    }
