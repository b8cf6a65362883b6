"""A signed body stays the same in JavaScript: `JSON.stringify(JSON.parse(body))` gives the same bytes."""

import hashlib
import hmac
import json
import subprocess

import pytest
from harness import PATIENT, hook, needs_node
from hypothesis import given, settings
from hypothesis import strategies as st

from strictjson import canonical

NEEDS_SOCKET = False

REPARSE = """
let rest = "";
process.stdin.setEncoding("utf8").on("data", (part) => {
    const lines = (rest + part).split("\\n");
    rest = lines.pop();
    for (const line of lines) process.stdout.write(JSON.stringify(JSON.parse(line)) + "\\n");
});
"""


@pytest.fixture(scope="module")
def stringify():
    """Give a JSON text as Node writes it after having read it."""
    with subprocess.Popen(["node", "-e", REPARSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:

        def stringify(text):
            node.stdin.write(text.encode() + b"\n")
            node.stdin.flush()
            return node.stdout.readline().decode().removesuffix("\n")

        yield stringify
        node.stdin.close()
    assert node.returncode == 0


EXAMPLES = [
    {"accents": "Ünïcödé é ﬁ", "emoji": "🎉👩‍👩‍👧", "separators": "\u2028\u2029"},
    {"controls": '\u0001\u001f\t\n"\\/\x7f', "é": 1, "e\u0301": 2, "\ufffd": 3, "𝒳": 4, "z": 5},
    {"float": 1.0, "negative zero": -0.0, "small": 1e-7, "smaller": 5e-324, "large": 1e21, "larger": 1e300},
    {"edges": [1e20, 123456789012345680000, 0.1, 1 / 3, 2**53 - 1, -(2**53), 1e-6, 9.999999e20]},
    {"10": 1, "9": 2, "b": 3, "a": 4, "01": 5, "-1": 6, "4294967294": 7, "4294967295": 8, "1e3": 9, "0": 10},
    {"nested": {"2": {"1": [], "z": {}, "a": [{"3": None, "1": True}]}}, "": False, "__proto__": {"5": 1}},
    {"1" * 5000: 1, "0": 2},
]


@needs_node
def test_an_event_that_node_parses_and_writes_again_has_its_signature(launch_here, receiver, stringify):
    owner = launch_here(TASKS_WEBHOOKS=json.dumps([hook(receiver)]), **PATIENT).client()
    task = owner.make_task(owner.make_project(name="Ünï 🎉 \u2028"), title="L'été \u2029 🎉 <&>")
    owner.post(f"/tasks/{task['id']}/comments", {"content": 'tab\there \u2028 \x7f 👩‍👩‍👧\n"quoted\\"'})
    for example in EXAMPLES:
        owner.patch(f"/tasks/{task['id']}", {"metadata": example})
    calls = receiver.all_here()
    assert len(calls) == 2 + len(EXAMPLES)
    for call in calls:
        text = stringify(call.body.decode())
        assert text.encode() == call.body
        signature = hmac.new(b"a-secret", text.encode(), hashlib.sha256).hexdigest()
        assert signature == call.headers["x-service-signature"]


def test_metadata_is_shown_in_the_form_in_which_it_is_signed(owner, project):
    task = owner.make_task(project, metadata=EXAMPLES[4])
    assert list(task["metadata"]) == ["0", "9", "10", "4294967294", "b", "a", "01", "-1", "4294967295", "1e3"]


SAFE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NUMBER = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = SAFE | st.integers(0, 2**33).map(str)
DOCUMENT = st.recursive(
    st.none() | st.booleans() | NUMBER | SAFE,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=15,
)


@needs_node
@settings(max_examples=100, deadline=None)
@given(value=DOCUMENT)
def test_the_canonical_form_means_the_same_and_survives_node(stringify, value):
    text = canonical(value)
    assert json.loads(text, parse_int=float) == json.loads(json.dumps(value), parse_int=float)
    assert canonical(json.loads(text)) == text
    assert stringify(text) == text
