"""The OpenAPI document, made from the declarations of views, schemas and the gateway's actions."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import orjson
from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from werkzeug.routing import Rule

import gateway
import schemas
from app import api, parts
from database import Row, to_json
from errors import ApiError
from parts.sessions import session_cookie
from wire import Response, operation, request


def register(app: Any) -> None:
    app.refusals.append(undescribed)


def undescribed(rule: Rule, view: Any) -> Iterator[str]:
    """Yield a message for a view that the document cannot describe."""
    if view.declared.gives is not None and not (view.__doc__ and Endpoint.of(rule, view).tag):
        place = "an entry in TAGS or TAG_OF of openapi.py (docs/recipes.md)"
        yield f"{rule.endpoint} needs a docstring, and its path {rule.rule} {place}"


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these properties; a later version may add others."""
    return {"type": "object", "required": list(properties), "properties": properties}


DESCRIPTION = """\
The task management service of a small team: projects, tasks, comments, meetings, members and whiteboards.

Send `Authorization: Bearer <API key>` with every request, except to `/health`, enrollment and this document.
A browser may send the cookie of a session (`POST /api/v1/session`) instead. The cookie counts only in
requests from pages at this address: `Sec-Fetch-Site` must be `same-origin`, or `none` if an address was
typed. If a browser does not send that header, `Origin` must be this address, or `X-Requested-With` must be
present.
Responses are `{"success": true, "data": {…}, "meta": {…}}`, errors `{"success": false, "error": {…},
"meta": {…}}`; a later version may add members to them. Times are UTC. POSTs that create accept an
`Idempotency-Key`: if you repeat a request within a day, you get the first response again, with
`Idempotent-Replayed: true`. POSTs whose response contains a secret do not accept it.

Owners, admins and members are the team; clients read and comment. A key of scope `read` may only GET. A key
of scope `agent` may also create, change, claim and comment on tasks, attach files and mark its inbox as
read, but it neither completes nor reopens a task. When a member becomes an owner, the member's keys and links
are revoked, except those made by the member or by the owner who makes the change. When a member is removed,
or is no longer owner or admin, the links and the others' keys that this member made are revoked. Everything
made with a sign-in link also counts as made by the member who made the link. In activity, `changes` contains
the old and the new value of each field. A value over 1 KiB is replaced by `{"omitted_bytes": …}`, and the
content of comments and whiteboards by `null`.
"""
WHO = {
    None: "For anyone, without a key.",
    "client": "For everyone in the workspace.",
    "member": "For the team: owners, admins and members.",
    "admin": "For owners and admins.",
}
FLOWS = """\
A path without a route is a 404 in plain text. If a flow does not exist, `get_…` returns `null`, and a change
is a 404 `not_found`. If the revision is not the expected one, the response is a 409 `revision_conflict` with
the flow as `result.current`: to change it anyway, send the action again with `result.current.revision`. A
flow that has ended accepts no tasks and cannot be cancelled (409 `terminal`), but can be resumed. A child
task is a record: it keeps the status that was reported, until `cancel_flow` cancels it. Unknown fields and
revisions sent as text are refused.
"""
ERROR_SCHEMA = _object(
    {
        "code": {"type": "string", "examples": ["validation_error"]},
        "message": {"type": "string", "examples": ["title: must not be blank"]},
    }
)
ERROR_SCHEMA["properties"]["details"] = {
    "type": "array",
    "maxItems": schemas.MAX_DETAILS,
    "items": _object({"field": {"type": "string"}, "message": {"type": "string"}}),
}
META_SCHEMA = _object(
    {
        "timestamp": {"type": "string", "format": "date-time"},
        "version": {"type": "string", "examples": [schemas.API_VERSION]},
        "request_id": {"type": "string", "pattern": "^req_[0-9a-f]{32}$"},
    }
)
# The groups of operations, in the order in which a newcomer needs them.
TAGS = {
    "context": "An overview of the workspace in one response, for AI agents and for people who come back.",
    "tasks": "Create, find, change and complete tasks.",
    "comments": "Comments of people and agents on a task.",
    "attachments": "The files of a task.",
    "activity": "The history: each change, who made it and when; undo what a key or member did.",
    "deleted": "What was deleted in the last 30 days, and can be restored.",
    "inbox": "Your notifications.",
    "projects": "Projects, which contain the tasks, with statistics.",
    "milestones": "The dates that a project's tasks lead up to.",
    "meetings": "Your meetings, upcoming and past.",
    "calendar": "The link by which a calendar program shows your due tasks and meetings.",
    "whiteboards": "Free-form JSON documents that the team shares.",
    "members": "The people of the workspace: you, roles, invitations, enrollment, sessions.",
    "keys": "API keys, each shown once, when it is created.",
    "webhooks": "The configured webhooks and their state.",
    "deliveries": "Each delivery to a webhook, and its result.",
    "events": "All events in order, for programs that cannot receive webhooks or missed some.",
    "health": "Whether the service can answer.",
    "documentation": "This document, and the page that shows it.",
    "gateway": "The agent gateway: managed flows, with a route's secret instead of an API key.",
}
# Parts of paths whose group has another name.
TAG_OF = {"changes": "activity", "labels": "tasks", "today": "inbox"}
TAG_OF |= dict.fromkeys(("agents", "connections"), "keys")
TAG_OF |= dict.fromkeys(("docs", "openapi.json"), "documentation")
TAG_OF |= dict.fromkeys(("me", "enroll", "session"), "members")
LINK_END = "^[A-Za-z0-9_-]{43}$"
HEADERS = {"ETag": "The task's version.", "Location": "Its address."}
HEADERS |= {"Set-Cookie": "The session's key, which scripts cannot read; or an empty one, which ends it."}
ACTION_EXAMPLE = {
    "flowId": "0b6a3c1e-6f0e-4a64-9c9b-2c5d5a1f0e11",
    "expectedRevision": 0,
    "goal": "Review the inbox",
    "token": "0b6a3c1e-6f0e-4a64-9c9b-2c5d5a1f0e11",
    "runtime": "subagent",
    "task": "Summarise the new messages",
    "waitJson": {"for": "an answer"},
}


class Endpoint(NamedTuple):
    """A method of a path, with its view's name, summary and declaration."""

    method: str
    path: str  # as OpenAPI writes it
    name: str
    summary: str
    declared: operation

    @classmethod
    def of(cls, rule: Rule, view: Any) -> "Endpoint":
        """Return the entry for a route; the first line of the view's docstring is its summary."""
        (method,) = (rule.methods or set()) - {"HEAD"}
        name, summary = rule.endpoint.rpartition(".")[2], view.__doc__.splitlines()[0]
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        return cls(method, path, name, summary, view.declared)

    @property
    def tag(self) -> str:
        """The group: the last part of the path that names one, or "" if none does."""
        parts = [TAG_OF.get(part, part) for part in self.path.split("/")]
        return ["", *(part for part in parts if part in TAGS)][-1]

    @property
    def original(self) -> str:
        """The name without the suffix of an alias: `update_task` for `update_task_by_put`."""
        return self.name.removesuffix(f"_by_{self.method.lower()}")

    @property
    def reads_query(self) -> bool:
        """Whether its fields come from the query, not from a body."""
        return self.method in ("GET", "DELETE")


def resolved(document: dict[str, Any], schema: Any) -> Any:
    """Return the schema with its references replaced by the components."""
    if isinstance(schema, list):
        return [resolved(document, inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return resolved(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    return {key: resolved(document, inner) for key, inner in schema.items()}


def document(base_url: str, endpoints: list[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these endpoints, the errors, the events and the gateway."""
    plugin = MarshmallowPlugin(schema_name_resolver=_name_of_shown)
    options = {"info": {"description": DESCRIPTION}, "servers": [{"url": base_url}]}
    spec = APISpec("Task service", schemas.API_VERSION, "3.1.0", [plugin], **options)
    converter: Any = plugin.converter
    converter.add_attribute_function(lambda self, field, **_: getattr(field, "described", {}))
    converter.add_attribute_function(_refer_to_enumeration)
    for name, scheme in {
        "key": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": session_cookie(base_url)},
        "route": {"type": "http", "scheme": "bearer"},
        "routeHeader": {"type": "apiKey", "in": "header", "name": "x-agent-webhook-secret"},
    }.items():
        spec.components.security_scheme(name, scheme)
    spec.components.schema("Meta", META_SCHEMA)
    spec.components.schema("Fault", ERROR_SCHEMA)
    refusal = _envelope({"success": {"const": False}, "error": _ref("Fault")})
    spec.components.schema("ErrorAnswer", refusal)
    for values, name in enumerations().items():
        spec.components.schema(name, {"type": "string", "enum": list(values)})
    for error in errors_by_status().values():
        response = {"description": error.reason, "content": _json(_ref("ErrorAnswer"))}
        spec.components.response(_error_name(error), response)
    for endpoint in sorted(endpoints, key=lambda endpoint: ([*TAGS].index(endpoint.tag), endpoint.path)):
        spec.path(endpoint.path, operations={endpoint.method.lower(): _operation(converter, endpoint)})
    spec.path("/plugins/webhooks/{routeId}", operations={"post": _intake(converter)})
    events = {name: {"post": _event(converter, name)} for name in EVENT_DATA}
    tags = [{"name": name, "description": sentence} for name, sentence in TAGS.items()]
    return spec.to_dict() | {"tags": tags, "webhooks": events}


def errors_by_status() -> dict[int, type[ApiError]]:
    """Return an error for each status, in their order. Of several, the class that is defined first counts."""
    errors: list[type[ApiError]] = [ApiError, *ApiError.__subclasses__()]
    return {error.status: error for error in sorted(reversed(errors), key=lambda error: error.status)}


@cache
def enumerations() -> dict[tuple[str, ...], str]:
    """Return the name of each enumeration: of the first schema with it, and of the field, as `TaskStatus`.

    If another enumeration has that name, it is the schema's whole name: `TaskQueryStatus`, `KeyShownScope`.
    """
    names: dict[tuple[str, ...], str] = {}
    modules = (schemas, *(part for part in parts() if hasattr(part, "api")), gateway)
    for kind in chain(*(vars(module).values() for module in modules)):
        if isinstance(kind, type) and issubclass(kind, schemas.Strict | schemas.Shown):
            owner = re.sub("(Input|Query|Shown)$", "", kind.__name__)
            whole = f"{owner}Shown" if kind.__name__ == owner else kind.__name__
            for name, field in kind._declared_fields.items():
                if isinstance(field, schemas.Choice):
                    short = owner + _camel(name)
                    chosen = whole + _camel(name) if short in names.values() else short
                    names.setdefault(field.choices, chosen)
    return names


def _refer_to_enumeration(_: Any, field: Any, ret: dict[str, Any]) -> dict[str, Any]:
    """Replace the type and values of a field by a reference to its enumeration, if that has a name."""
    name = enumerations().get(getattr(field, "choices", ()))
    if not name:
        return {}
    del ret["type"], ret["enum"]
    return {"anyOf": [_ref(name), {"type": "null"}]} if field.allow_none else _ref(name)


def _error_name(error: type[ApiError]) -> str:
    return error.title or _camel(error.code)


def _camel(words: str) -> str:
    return re.sub("[_.]", "", words.title())


def _name_of_shown(schema: Any) -> str:
    """Return the name of a response schema's component; other schemas get none from apispec."""
    kind = schema if isinstance(schema, type) else type(schema)
    return kind.__name__.removesuffix("Shown") if issubclass(kind, schemas.Shown) else ""


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _component(converter: Any, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Add the schema as a component of this name, unless it is there, and return a reference to it."""
    if converter.spec.components.schemas.setdefault(name, schema) != schema:
        raise ValueError(f"{name} is the name of two schemas")
    return _ref(name)


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _envelope(properties: dict[str, Any]) -> dict[str, Any]:
    return _object(properties | {"meta": _ref("Meta")})


def _operation(converter: Any, endpoint: Endpoint) -> dict[str, Any]:
    takes = endpoint.declared.takes
    described: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": WHO[endpoint.declared.role],
        "tags": [endpoint.tag],
        "parameters": _parameters(converter, endpoint),
        "responses": _responses(converter, endpoint),
        "security": _security(endpoint.declared),
    }
    if endpoint.name != endpoint.original:
        described["deprecated"] = True
    if not endpoint.reads_query and takes.fields:
        kind = "multipart/form-data" if callable(endpoint.declared.reads) else "application/json"
        name, schema = _camel(endpoint.original) + "Body", converter.schema2jsonschema(takes)
        body: dict[str, Any] = {"schema": _component(converter, name, schema)}
        example = {key: value for key, value in getattr(takes, "EXAMPLE", {}).items() if key in takes.fields}
        if example:
            body["example"] = example
        required = not takes.partial and any(field.required for field in takes.load_fields.values())
        described["requestBody"] = {"required": required, "content": {kind: body}}
    return described


def _security(declared: operation) -> list[dict[str, Any]]:
    """Return the alternatives: a request needs one of them."""
    if declared.scope == "read":
        return [{"session": []}]
    return [{"key": []}, {"session": []}] if declared.role else [{}, {"key": []}]


def _parameters(converter: Any, endpoint: Endpoint) -> list[dict[str, Any]]:
    # The part before an id in the path names its kind.
    parameters = [_path_parameter(*part) for part in re.findall(r"/([^/]+)/{(\w+)}", endpoint.path)]
    if endpoint.reads_query:
        parameters += [
            {"name": name, "in": "query", "schema": converter.field2property(field)}
            for name, field in endpoint.declared.takes.fields.items()
        ]
    tags = {"type": "string", "pattern": r'^(\*|(W/)?"[^"]*"(, *(W/)?"[^"]*")*)$', "examples": ['"3"']}
    for name in endpoint.declared.preconditions:
        schema = tags if name == "If-Match" else {"type": "string", "enum": ["*"]}
        parameters.append({"name": name, "in": "header", "schema": schema})
    if endpoint.declared.is_repeatable:
        key = {"type": "string", "pattern": f"^{schemas.IDEMPOTENCY_KEY}$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    return parameters


def _path_parameter(part: str, name: str) -> dict[str, Any]:
    schema: Row = {"type": "string", "format": "uuid"}
    description = f"The {re.sub('ies$', 'y', part).removesuffix('s')}'s id."
    if part == "tasks":
        schema, description = schemas.TaskReference().described, "The task's number or id."
    if part == "by-external-id":
        schema, description = {"type": "string", "maxLength": 200}, "Its id in another program."
    if name == "token":
        schema, description = {"type": "string", "pattern": LINK_END}, "The end of an `enrollment_link`."
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _responses(converter: Any, endpoint: Endpoint) -> dict[str, Any]:
    declared, by_status = endpoint.declared, errors_by_status()
    if isinstance(declared.gives, str):
        is_file = declared.gives == "application/octet-stream"
        content = {declared.gives: {"schema": {"type": "string", "format": "binary"}} if is_file else {}}
    else:
        data = converter.resolve_nested_schema(declared.gives)
        answer = _envelope({"success": {"const": True}, "data": data})
        content = _json(_component(converter, _name_of_shown(declared.gives) + "Answer", answer))
    headers: Row = {
        name: {"description": HEADERS[name], "required": True, "schema": {"type": "string"}}
        for name in declared.headers
    }
    if declared.is_repeatable:
        description = "Present if this repeats the response to an earlier request with the Idempotency-Key."
        headers["Idempotent-Replayed"] = {"description": description, "schema": {"const": "true"}}
    success = {"description": endpoint.summary, "content": content}
    success |= {"headers": headers} if headers else {}
    responses: dict[str, Any] = {str(declared.status): success}
    if declared.reads == "nothing":  # a page, whose errors are pages too
        return responses | {
            str(status): {"description": by_status[status].reason, "content": content}
            for status in (404, *[error.status for error in declared.raises], 500, 503)
        }
    for status, description in declared.other_statuses.items():
        responses[str(status)] = success | {"description": description}
    statuses = {401, 422, 429, 500, 503} | {error.status for error in declared.raises}
    if declared.role:
        statuses.add(403)
    if endpoint.method != "GET":
        statuses |= {400, 408, 413, 415}
    if "{" in endpoint.path:
        statuses.add(404)
    return responses | {str(status): _error_name(by_status[status]) for status in sorted(statuses)}


EVENT_DATA: dict[str, tuple[str, dict[str, type[schemas.Shown] | None]]] = {
    "task.updated": ("A task was changed.", {"task": schemas.TaskShown, "changes": None}),
    "task.completed": ("A task has become done.", {"task": schemas.TaskShown, "changes": None}),
    "comment.added": (
        "Someone commented on a task.",
        {"comment": schemas.CommentShown, "task": schemas.TaskShown},
    ),
    "member.joined": ("Someone used an enrollment link.", {"member": schemas.MemberShown}),
    "task.created": ("A task was created.", {"task": schemas.TaskShown}),
    "task.deleted": ("A task was deleted; it is shown as it was.", {"task": schemas.TaskShown}),
    "task.due": ("An open task is due soon.", {"task": schemas.TaskShown}),
    "member.invited": ("Someone was invited.", {"member": schemas.MemberShown}),
    "ping": ("A webhook is tested.", {"webhook": None}),
}


def _event(converter: Any, name: str) -> dict[str, Any]:
    summary, data = EVENT_DATA[name]
    properties = {
        key: {"type": "object"} if schema is None else converter.resolve_nested_schema(schema)
        for key, schema in data.items()
    }
    body = converter.schema2jsonschema(schemas.ListedEventShown())
    body["properties"] |= {"event": {"const": name}, "data": _object(properties)}
    event = _component(converter, _camel(name) + "Event", body)
    headers = ["x-service-signature", "x-service-event", "x-service-delivery"]
    headers += ["webhook-id", "webhook-timestamp", "webhook-signature"]
    return {
        "operationId": name.replace(".", "_"),
        "summary": summary,
        "parameters": [{"name": header, "in": "header", "schema": {"type": "string"}} for header in headers],
        "requestBody": {"required": True, "content": _json(event)},
        "responses": {"2XX": {"description": "Accepted. After any other response, the delivery is retried."}},
    }


def _intake(converter: Any) -> dict[str, Any]:
    """Return the gateway's operation: one path for all actions."""
    bodies, examples = {}, {}
    for name, action in gateway.ACTIONS.items():
        body = converter.schema2jsonschema(action.schema)
        body["properties"] = {"action": {"const": name}} | body.get("properties", {})
        body["required"] = ["action", *body.get("required", [])]
        bodies[name] = _component(converter, _camel(name) + "Body", body)
        fields = {key: value for key, value in ACTION_EXAMPLE.items() if key in body["properties"]}
        examples[name] = {"value": {"action": name, **fields}}
    answer = {
        "type": "object",
        "required": ["ok", "routeId", "result"],
        "properties": {
            "ok": {"type": "boolean"},
            **dict.fromkeys(("routeId", "code", "error"), {"type": "string"}),
            "result": converter.resolve_nested_schema(gateway.FlowResultShown),
        },
    }
    answered = _component(converter, "FlowResultAnswer", answer)
    mapping = {name: body["$ref"] for name, body in bodies.items()}
    one_of = {"oneOf": [*bodies.values()], "discriminator": {"propertyName": "action", "mapping": mapping}}
    taken = _component(converter, "DriveFlowBody", one_of)
    responses: dict[str, dict[str, Any]] = {
        str(status): {"description": "Refused; see `code`.", "content": _json(answered)}
        for status in (200, 400, 401, 404, 405, 408, 409, 413, 415, 429, 500, 503)
    }
    responses["200"]["description"] = "Done."
    responses["404"]["content"]["text/plain"] = {}  # if the route does not exist
    content = {"application/json": {"schema": taken, "examples": examples}}
    route: Row = {"name": "routeId", "in": "path", "required": True}
    route |= {"description": "The id of a configured route.", "schema": {"type": "string"}}
    return {
        "operationId": "drive_flow",
        "summary": "Drive managed flows, on a route of the agent gateway.",
        "description": FLOWS,
        "tags": ["gateway"],
        "parameters": [route],
        "security": [{"route": []}, {"routeHeader": []}],
        "requestBody": {"required": True, "content": content},
        "responses": responses,
    }


@api.get("/openapi.json")
@operation(gives="application/json", role=None)
def get_openapi() -> Response:
    """Describe this API as an OpenAPI 3.1 document."""
    return Response(openapi_json(request().config["SERVER"]["base_url"]))


@cache
def openapi_json(base_url: str) -> bytes:
    """Return the OpenAPI document as JSON; made once."""
    app = request().app
    routed = [(rule, app.view_functions[rule.endpoint]) for rule in app.url_map.iter_rules()]
    endpoints = [Endpoint.of(rule, view) for rule, view in routed if view.declared.gives is not None]
    return to_json(document(base_url, endpoints))


@cache
def form_schemas(base_url: str) -> Row:
    """Return by operation, for each JSON body, the properties from which the page makes its form."""
    spec, forms = orjson.loads(openapi_json(base_url)), {}
    operations = (spec["paths"][path].values() for path in spec["paths"] if path.startswith(schemas.API))
    for described in chain(*operations):
        content = described.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            schema = resolved(spec, content["application/json"]["schema"])
            fields = {name: _form_field(field) for name, field in schema["properties"].items()}
            forms[described["operationId"]] = {"properties": fields, "required": schema.get("required", [])}
    return forms


def _form_field(field: Row) -> Row:
    if "anyOf" in field:  # an enumeration, or null
        field = field["anyOf"][0] | {"type": ["string", "null"]}
    return {key: field[key] for key in ("type", "format", "enum", "maxLength") if key in field}
