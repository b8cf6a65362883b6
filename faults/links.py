"""The operations of our OpenAPI document, and what its links find in the answer of one for another."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import requests


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
