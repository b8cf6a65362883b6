"""The operations of our OpenAPI document, and what an answer of one of them holds for another: its links.

The document has no links itself; `add_links` makes them of what the views declare.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import requests
from marshmallow import Schema

import schemas
from app import create_app
from gateway import ACTIONS
from models import PreconditionFailed
from openapi import ACTION_EXAMPLE
from openapi import Operation as Declared
from openapi import _singular as singular

INTAKE = "/plugins/webhooks/{routeId}"
# Fields that take the id of a member.
MEMBER_FIELDS = ("member_id", "assignee_id", "owner_id", "actor_id")
# Where an answer of the gateway holds what other actions take.
IN_FLOW = {
    "flowId": "$response.body#/result/flow/flowId",
    "expectedRevision": "$response.body#/result/flow/revision",
}


class Operation(NamedTuple):
    """A method of a path in the document."""

    method: str
    path: str
    described: dict[str, Any]

    @property
    def name(self) -> str:
        return self.described["operationId"]

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        return {parameter["name"]: parameter for parameter in self.described.get("parameters", [])}

    @property
    def is_public(self) -> bool:
        """Whether it needs no key."""
        return {} in self.described["security"]

    def links(self, status: int) -> list[dict[str, Any]]:
        """What the document says can be called after an answer with this status."""
        return list(self.described["responses"].get(str(status), {}).get("links", {}).values())

    def path_with(self, parameters: dict[str, str]) -> str:
        """The path with these parameters in it."""
        return re.sub("{([^}]*)}", lambda match: parameters[match[1]], self.path)


class Found(NamedTuple):
    """What a link has found: parameters and fields of the body of the operation that it leads to."""

    parameters: dict[str, Any]
    body: dict[str, Any]

    def has(self, value: Any) -> bool:
        return value in (*self.parameters.values(), *self.body.values())


def operations(spec: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in spec["paths"].items():
        for method, described in methods.items():
            yield Operation(method.upper(), path, described)


def find(link: dict[str, Any], answer: requests.Response, ids: dict[str, str]) -> Found | None:
    """What the link finds in an answer to a request whose path held these ids; None if it is not there."""
    if "description" in link:  # OpenAPI has no expression for a part of a text
        return Found({"token": answer.json()["data"]["enrollment_link"].rpartition("/")[2]}, {})
    expressions = {**link.get("parameters", {}), **link.get("requestBody", {})}
    values = {name: _value(expression, answer, ids) for name, expression in expressions.items()}
    if None in values.values():
        return None
    parameters = {name: values[name] for name in link.get("parameters", {})}
    return Found(parameters, {name: values[name] for name in link.get("requestBody", {})})


def _value(expression: Any, answer: requests.Response, ids: dict[str, str]) -> Any:
    place, _, pointer = str(expression).partition("#")
    if place.startswith("$request.path."):
        return ids[place.removeprefix("$request.path.")]
    if place.startswith("$response.header."):
        return answer.headers[place.removeprefix("$response.header.")]
    if place != "$response.body":
        return expression
    found = answer.json()
    for key in pointer.split("/")[1:]:
        if isinstance(found, list):
            found = found[int(key)] if int(key) < len(found) else None
        else:
            found = found.get(key) if found else None
    return found


def add_links(spec: dict[str, Any]) -> dict[str, Any]:
    """Add the links to the document; returns it."""
    app = create_app()
    declared = []
    for rule in app.url_map.iter_rules():
        view: Any = app.view_functions[rule.endpoint]
        (method,) = (rule.methods or set()) - {"HEAD"}
        name = rule.endpoint.rpartition(".")[2]
        if view.declaration.gives is not None:
            declared.append(Declared(method, rule.rule, name, "", view.declaration))
    for source in declared:
        responses = spec["paths"][source.path][source.method.lower()]["responses"]
        if links := _links(source, declared):
            for status in (source.declaration.status, *source.declaration.also):
                responses[str(status)]["links"] = links
    spec["paths"][INTAKE]["post"]["responses"]["200"]["links"] = dict(_links_of_actions())
    return spec


def _links_of_actions() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, action in ACTIONS.items():
        keys = {field.data_key or key for key, field in action.schema.fields.items()}
        if found := {key: pointer for key, pointer in IN_FLOW.items() if key in keys}:
            fields = {key: value for key, value in ACTION_EXAMPLE.items() if key in keys}
            link = {"operationId": "drive_flow", "parameters": {"routeId": "$request.path.routeId"}}
            yield name, link | {"requestBody": {"action": name} | fields | found}


def _links(source: Declared, operations: list[Declared]) -> dict[str, Any]:
    """The operations that can be called with an id in an answer of this one, or for its next page."""
    held = _ids_in(source, operations)
    links = {target.name: _link(source, target, held) for target in operations}
    if isinstance(source.declaration.gives, schemas.InvitationShown):
        token = {"description": "The last part of `enrollment_link` is the token."}
        links |= {target.name: token for target in operations if "{token}" in target.path}
    return {name: {"operationId": name} | link for name, link in links.items() if link}


def _link(source: Declared, target: Declared, held: dict[str, str]) -> dict[str, Any]:
    """How the target is called with the ids that an answer of the source holds; empty if it is not."""
    same = {name: f"$request.path.{name}" for part, name in target.ids if part in dict(source.ids)}
    new = {name: held[part] for part, name in target.ids if part in held}
    if len(same) + len(new) < len(target.ids):
        return {}
    declaration = target.declaration
    if new and "ETag" in source.declaration.headers and PreconditionFailed in declaration.raises:
        new["If-Match"] = "$response.header.ETag"
    known = {f"{singular(part)}_id": pointer for part, pointer in held.items() if part != "members"}
    # The list of members has also those who have not joined.
    if source.reads_query and "members" in held and not source.path.endswith("/members"):
        known |= dict.fromkeys(MEMBER_FIELDS, held["members"])
    named = {name: known[name] for name in declaration.takes.fields if name in known}
    if target.reads_query:
        new |= named
        named = {}
    if source is target:
        new |= _next_page(source)
    link: dict[str, Any] = {"parameters": same | new} if same | new else {}
    if named and declaration.status == 201 and _required_ids(declaration.takes) <= named.keys():
        return link | {"requestBody": _required_example(declaration.takes) | named}
    return link if new else {}


def _required_ids(takes: Schema) -> set[str]:
    return {name for name, field in takes.fields.items() if isinstance(field, schemas.Id) and field.required}


def _ids_in(source: Declared, operations: list[Declared]) -> dict[str, str]:
    """Where an answer holds an id (of a list, the first), by the part of paths which such an id follows."""
    declaration = source.declaration
    # Who needs no key yet cannot call others with an id.
    if declaration.role is None or not isinstance(declaration.gives, Schema):
        return {}
    fields = declaration.gives.fields
    if "id" in fields:
        is_new = declaration.status == 201
        return {source.path.rpartition("/")[2]: "$response.body#/data/id"} if is_new else {}
    parts = {part for operation in operations for part, _ in operation.ids} - set(dict(source.ids))
    lists = {part: f"$response.body#/data/{part}/0/id" for part in parts if part in fields}
    ones = {part: singular(part) for part in parts if singular(part) in fields}
    return lists | {part: f"$response.body#/data/{name}/id" for part, name in ones.items()}


def _next_page(source: Declared) -> dict[str, str]:
    """The parameter of the next page of a list, and where the answer says what it is."""
    pagination = getattr(source.declaration.gives, "fields", {}).get("pagination")
    names = pagination.schema.fields if pagination else {}
    return {
        name: f"$response.body#/data/pagination/next_{name}"
        for name in source.declaration.takes.fields
        if f"next_{name}" in names
    }


def _required_example(takes: Schema) -> dict[str, Any]:
    """The example of a body, with the fields alone that are required."""
    example = getattr(takes, "EXAMPLE", {})
    return {name: example[name] for name in example if name in takes.fields and takes.fields[name].required}
