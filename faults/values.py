"""Values that hypothesis generates for the gateway's actions and the agents' tools."""

import json
import string
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from findings import Run
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from walk import QUIET

ODD = ["", " ", "\0", "\ud800", "\u202e", "é" * 300, "x" * 5000, "null", "../..", "' OR 1=1 --", "\r\nA: b"]
TEXTS = st.text(max_size=30) | st.sampled_from(ODD)
NUMBERS = st.integers(-3, 5) | st.sampled_from([2**53, -(2**63), 10**40, 0.5, 1e300, -0.0])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
WORDS = st.text(string.ascii_letters + string.digits + "éß漢", min_size=1, max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DEEP = st.integers(1, 40).map(lambda depth: json.loads("[" * depth + "]" * depth))
# In place of a value that only an answer of the server can give.
KNOWN, RIGHT = "the id of something that exists", "the revision that it has"


def batches(run: Run, strategy: Any, seconds: float, size: int = 8) -> Iterator[list[Any]]:
    """Lists of examples until so many seconds are over; at least one."""
    ends_at, numbers = time.monotonic() + min(seconds, run.left), count()
    while next(numbers) == 0 or time.monotonic() < ends_at:
        drawn: list[Any] = []

        @seed(run.random.getrandbits(32))
        @settings(QUIET, max_examples=50)
        @given(st.lists(strategy, min_size=size, max_size=size))
        def collect(examples: list[Any]) -> None:
            drawn.append(examples)  # noqa: B023 - it is called below, in the same round

        collect()
        for examples in drawn:
            yield examples
            if time.monotonic() >= ends_at:
                return


def mostly(usual: Any, other: Any) -> Any:
    """The usual in nine of ten cases."""
    return st.integers(0, 9).flatmap(lambda number: usual if number else other)
