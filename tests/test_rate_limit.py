"""The optional limit of requests per minute and member."""

import itertools
import re

import pytest
from harness import at_once, fault, invoke

NEEDS_SOCKET = False


@pytest.fixture(scope="module")
def limited(launch_here_module):
    return launch_here_module(TASKS_LIMITS__REQUESTS_PER_MINUTE="5")


@pytest.fixture(scope="module")
def join(limited):
    """Add a member; returns the key, which has made no request yet."""
    numbers = itertools.count()
    return lambda: invoke(limited, "member", "add", f"Member {next(numbers)}").stdout.strip()


def headers_of(answer):
    """Return the requests that are left, and for how many seconds, by the RateLimit headers."""
    assert answer.headers["RateLimit-Policy"] == '"member";q=5;w=60'
    left, seconds = re.fullmatch(r'"member";r=(\d+);t=(\d+)', answer.headers["RateLimit"]).groups()
    assert 0 < int(seconds) <= 60
    return int(left), int(seconds)


def test_the_sixth_request_of_a_minute_is_refused(limited, join):
    client = limited.client(join())
    paths = ("/me", "/tasks", "/nowhere", "/tasks?limit=x", "/health")  # whatever comes of them
    answers = [client.get(path) for path in paths]
    assert [headers_of(answer)[0] for answer in answers] == [4, 3, 2, 1, 0]
    refused = client.get("/me")
    fault(refused, 429, "rate_limited")
    left, seconds = headers_of(refused)
    assert left == 0
    assert refused.headers["Retry-After"] == str(seconds)
    again = client.post("/projects", {"name": "x"})
    fault(again, 429, "rate_limited")
    assert headers_of(again)[0] == 0
    assert limited.rows("SELECT 1 FROM project") == []
    # To start a session counts too.
    key, stranger = join(), limited.client(None)
    answers = [stranger.post("/session", {"api_key": key}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [201] * 5 + [429]


def test_the_keys_of_a_member_count_together_and_each_member_alone(limited, join):
    first, other = limited.client(join()), limited.client(join())
    email = first.read("/me")["member"]["email"]
    second = limited.client(invoke(limited, "key", "create", "--member", email).stdout.strip())
    for client in (second, first, second, first):
        assert client.get("/me").status_code == 200
    for client in (first, second):
        fault(client.get("/me"), 429, "rate_limited")
    assert other.get("/me").status_code == 200


def test_only_calls_with_a_key_are_counted_and_only_with_a_limit(limited, owner):
    stranger, wrong = limited.client(None), limited.client("tms_wrong")
    for _ in range(6):
        fault(wrong.get("/me"), 401, "unauthorized")
        for answer in (stranger.get("/health"), owner.get("/me")):
            assert answer.status_code == 200
            assert "RateLimit" not in answer.headers


def test_the_limit_holds_for_simultaneous_requests(limited, join):
    key = join()
    answers = at_once(*[lambda: limited.client(key).get("/me")] * 20)
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [429] * 15
