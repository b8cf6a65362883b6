"""JSON as strict as RFC 8259 and I-JSON: how it is read, checked, and written as JavaScript writes it."""

import contextlib
import json
import math
import re
import unicodedata
from typing import Any

import rfc8785
from marshmallow import ValidationError

from database import to_json
from errors import BadBody

MAX_DEPTH = 32  # levels of free-form JSON
MAX_NESTING = 2 * MAX_DEPTH  # levels of a body, whose own lists and objects may be around free-form JSON
TOO_DEEP = f"must not be nested deeper than {MAX_DEPTH} levels"
MAX_MEMBERS = 100  # members of a body's object; no schema has nearly as many fields
# The characters that JavaScript's `trim` removes: tabs, the ends of lines, Unicode's spaces (Zs) and the BOM.
BLANKS = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
BLANKS += "\u2028\u2029\u202f\u205f\u3000\ufeff"
MAX_SAFE_INTEGER = 2**53 - 1  # a double, and so JavaScript, can hold every integer up to here


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise BadBody("the body repeats a key within one object")
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadBody(f"{text[:30]} is out of the range of a number")
    return number


def _no_constant(name: str) -> None:
    raise BadBody(f"{name} is not JSON")


def parse_json(raw: bytes) -> Any:
    """Return the JSON value, read as strictly as RFC 8259 and I-JSON allow. Raises `BadBody`."""
    try:
        return json.loads(
            raw.decode(), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        raise BadBody("the body is not UTF-8") from error
    except RecursionError as error:
        raise BadBody("the body is nested too deeply") from error
    except ValueError as error:
        raise BadBody(f"the body is not JSON: {error}") from error


def load_json(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in the body. Raises as `parse_object`, and `ValidationError` for problems."""
    body = parse_object(raw)
    if problems := problems_in(body):
        raise ValidationError(problems)
    return body


def parse_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in the body, before its members are checked.

    Raises `BadBody` if it is not an object or as `parse_json` does, and `ValidationError` for more than
    `MAX_MEMBERS` members.
    """
    body = parse_json(raw)
    if not isinstance(body, dict):
        raise BadBody("the body must be a JSON object")
    if len(body) > MAX_MEMBERS:  # the response would name each of them
        raise ValidationError(f"has {len(body)} members; at most {MAX_MEMBERS} are accepted")
    return body


def problems_in(body: dict[str, Any]) -> dict[str, list[str]]:
    """Return by name why members cannot be stored: for their text, or nesting deeper than `MAX_NESTING`."""
    found = {name: text_problem(name) or value_problem(value, MAX_NESTING) for name, value in body.items()}
    return {name: [problem] for name, problem in found.items() if problem}


def load_lenient_json(raw: bytes) -> Any:
    """Return the JSON value in the body, as the gateway reads it; an action's schema checks it.

    The last value of a repeated key counts, bytes that are not UTF-8 are replaced, and `BLANKS` around the
    value are dropped. Raises `BadBody`, and `ValidationError` for nesting that Python cannot read.
    """
    try:
        text = raw.decode("utf-8", "replace").strip(BLANKS)
        return json.loads(text, parse_constant=_no_constant, parse_int=_javascript_integer)
    except RecursionError as error:
        raise ValidationError({"body": [TOO_DEEP]}) from error
    except ValueError as error:
        raise BadBody(f"the body is not JSON: {error}") from error


def _javascript_integer(digits: str) -> int | float:
    """Return the integer as JavaScript reads it: one that a double cannot hold is rounded, or infinite."""
    number = float(digits)
    return int(digits) if abs(number) <= MAX_SAFE_INTEGER else number


def text_problem(text: str) -> str | None:
    """Return why the text cannot be stored, sent as JSON or searched; None if it can."""
    if "\0" in text:
        return "must not contain the character NUL"
    if text.isascii():
        return None
    if re.search("[\ud800-\udfff]", text):
        return "must not contain half a surrogate pair"
    # Unicode's Stream-Safe Text Format (UAX 15, section 13): `fold` takes n² steps for n marks in a row.
    # Three vowel signs and two half-width marks are not marks themselves, but are decomposed into marks.
    marks = map(unicodedata.combining, re.sub("[\u0f73\u0f75\u0f81\uff9e\uff9f]", "\u0f71", text))
    if re.search(rb"[^\0]{31}", bytes(marks)):
        return "must not contain more than 30 combining marks in a row"
    return None


def value_problem(value: Any, levels: int) -> str | None:
    """Return why this JSON value cannot be stored, or None. It may be nested `levels` deep."""
    if isinstance(value, str):
        return text_problem(value)
    if not isinstance(value, (dict, list)):
        return None
    if levels == 0:
        return TOO_DEEP
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    # Numbers need no check, and there may be half a million of them.
    texts_and_containers = (item for item in inner if isinstance(item, (str, dict, list)))
    return next(filter(None, (value_problem(item, levels - 1) for item in texts_and_containers)), None)


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether this JSON value is nested deeper than this number of levels."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inner)


def canonical(value: Any) -> str:
    """Return the JSON text that JavaScript's `JSON.stringify(JSON.parse(text))` returns, byte for byte.

    Numbers and strings are written as in ECMAScript (by `rfc8785`, strings by `to_json`). Keys are ordered
    as in a JavaScript object: array indices first, ascending, then the others as they came. Raises
    `ValidationError` for an integer that a double cannot hold, unless JavaScript writes these digits for one.
    """
    if isinstance(value, dict):
        keys = sorted(value, key=_array_index)
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        return to_json(value).decode()
    if type(value) is int and abs(value) <= MAX_SAFE_INTEGER:
        return str(value)
    if type(value) is int:
        with contextlib.suppress(OverflowError):
            double = float(value)
            # JavaScript writes 42032169374222670 for a double nearby; a client may send it back.
            if double == value or rfc8785.dumps(double).decode() == str(value):
                return canonical(double)
        raise ValidationError("contains an integer that a double cannot hold exactly; send it as a string")
    return rfc8785.dumps(value).decode()


def _array_index(key: str) -> float:
    if len(key) > 10 or not (key.isascii() and key.isdigit()) or (key[0] == "0" and key != "0"):
        return math.inf
    return int(key) if int(key) < 2**32 - 1 else math.inf
