"""API keys: which are taken, and what is kept of them."""

import pytest
from conftest import OWNER_KEY, fault


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "Bearer", "Bearer ", f"Basic {OWNER_KEY}", OWNER_KEY, f"Bearer: {OWNER_KEY}"),
        *(f"Bearer {OWNER_KEY[:12]}", f"Bearer {OWNER_KEY}x", f"Bearer {OWNER_KEY[:-1]}", "Bearer %"),
        *(f"Bearer {OWNER_KEY.swapcase()}", "Bearer ' OR '1'='1", 'Bearer {"a": 1}', "Bearer " + "_" * 47),
        *("Bearer é\xff", "Bearer " + "x" * 3000),
    ],
)
def test_a_key_that_is_none_is_refused_before_anything_else(server, header):
    stranger = server.client(None)
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for method, path in (
        ("GET", "/tasks?limit=x"),
        ("POST", "/tasks"),
        ("GET", "/nowhere"),
        ("PUT", "/context"),
    ):
        answer = stranger.request(method, path, headers=headers, data=b"{")
        fault(answer, 401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_the_scheme_is_matched_without_regard_to_case(server):
    for scheme in ("bearer", "BEARER", "Bearer "):
        headers = {"Authorization": f"{scheme} {OWNER_KEY}"}
        assert server.client(None).request("GET", "/context", headers=headers).status_code == 200


def test_a_key_elsewhere_than_in_the_header_is_none(server):
    stranger = server.client(None)
    answers = [
        stranger.request("GET", f"/context?api_key={OWNER_KEY}&Authorization=Bearer {OWNER_KEY}"),
        stranger.request("GET", "/context", headers={"Cookie": f"Authorization=Bearer {OWNER_KEY}"}),
        stranger.post("/tasks", {"api_key": OWNER_KEY}),
        stranger.request("GET", "/context", headers={"X-Api-Key": OWNER_KEY}),
    ]
    for answer in answers:
        fault(answer, 401, "unauthorized")


def test_a_wrong_key_is_refused_even_where_none_is_needed(server):
    fault(server.client("tms_wrong").get("/health"), 401, "unauthorized")


def test_a_revoked_key_ends_at_once_and_an_expired_one_at_its_time(server):
    key = server.flask("key", "create", "--name", "to be revoked").stdout.strip()
    client = server.client(key)
    assert client.get("/context").status_code == 200
    server.flask("key", "revoke", key[:12])
    fault(client.get("/context"), 401, "unauthorized")
    key = server.flask("key", "create", "--days", "1").stdout.strip()
    client = server.client(key)
    assert client.get("/context").status_code == 200
    server.rows("UPDATE api_key SET expires_at = created_at WHERE prefix = ?", key[:12])
    fault(client.get("/context"), 401, "unauthorized")


def test_a_read_key_may_only_get(server, task):
    reader = server.client(server.flask("key", "create", "--scope", "read").stdout.strip())
    assert reader.get(f"/tasks/{task['id']}").status_code == 200
    assert reader.request("HEAD", f"/tasks/{task['id']}").status_code == 200
    for call in (
        lambda: reader.patch(f"/tasks/{task['id']}", {"title": "x"}),
        lambda: reader.delete(f"/tasks/{task['id']}"),
        lambda: reader.post(f"/tasks/{task['id']}/comments", {"content": "x"}),
        lambda: reader.post("/members/invite"),
    ):
        error = fault(call(), 403, "forbidden")
        assert "scope" in error["message"]


def test_only_a_hash_and_a_prefix_of_a_key_are_kept(server):
    key = server.flask("key", "create").stdout.strip()
    (row,) = server.rows("SELECT * FROM api_key WHERE prefix = ?", key[:12])
    assert key not in str(row)
    assert len(row["hash"]) == 64


def test_a_read_never_writes_and_the_next_write_notes_when_keys_were_used(launch):
    server = launch(TASKS_DELIVERY__SWEEPER="false")
    reader = server.client(server.flask("key", "create", "--scope", "read").stdout.strip())
    written = server.rows("SELECT count(*) AS n FROM api_key WHERE last_used_at IS NOT NULL")
    for _ in range(5):
        reader.get("/context")
    assert server.rows("SELECT count(*) AS n FROM api_key WHERE last_used_at IS NOT NULL") == written
    server.client().make_project()
    (row,) = server.rows("SELECT last_used_at FROM api_key WHERE scope = 'read'")
    assert row["last_used_at"]
