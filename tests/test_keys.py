"""API keys: which are taken, what is kept of them, and who may make and revoke which."""

import json
import socket
from datetime import UTC, datetime, timedelta

import pytest
from harness import NOBODY, OWNER_KEY, PATIENCE, fault, wait_until


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


def make_key(client, **fields):
    return client.data(client.post("/keys", {"name": "laptop"} | fields), 201)


def test_me_shows_the_caller_and_the_key_in_use(server, owner, join):
    client = join("client")
    shown = client.data(client.get("/me"))
    assert shown["member"] == client.member
    assert shown["key"]["name"] == "enrollment"
    assert client.key.startswith(shown["key"]["prefix"])
    assert client.key not in str(shown)


def test_a_key_is_shown_when_it_is_made_and_never_again(server, owner):
    made = make_key(owner, scope="read")
    key = made["key"]
    assert set(made) == {"key", "api_key"}
    assert (key["name"], key["scope"], key["expires_at"]) == ("laptop", "read", None)
    assert (key["last_used_at"], key["revoked_at"]) == (None, None)
    reader = server.client(made["api_key"])
    assert reader.data(reader.get("/me"))["key"]["id"] == key["id"]
    fault(reader.post("/projects", {"name": "x"}), 403, "forbidden")
    listed = owner.get("/keys")
    assert made["api_key"] not in listed.text
    assert key["id"] in listed.text


def test_a_key_ends_when_it_was_made_to(server, owner):
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = make_key(owner, expires_at=tomorrow)
    assert made["key"]["expires_at"] == tomorrow.replace("Z", ".000Z")
    assert server.client(made["api_key"]).get("/me").status_code == 200
    body = {"name": "x", "expires_at": "2020-01-01"}
    fault(owner.post("/keys", body), 422, "validation_error", "expires_at")


def test_a_key_that_ends_makes_none_that_lives_longer(server, owner, join):
    def days(number):
        return (datetime.now(UTC) + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%SZ")

    brief = server.client(make_key(owner, expires_at=days(2))["api_key"])
    for body in ({}, {"expires_at": None}, {"expires_at": days(3)}, {"member_id": join().member["id"]}):
        error = fault(brief.post("/keys", {"name": "x"} | body), 422, "validation_error", "expires_at")
        assert "when the key in use expires" in error["message"]
    assert make_key(brief, expires_at=days(1))["key"]["expires_at"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", value) for value in (None, "", " ", "x" * 201, 5)),
        *(("scope", value) for value in ("", "admin", "READ")),
        *(("expires_at", value) for value in ("soon", 5)),
        *(("member_id", value) for value in ("x", NOBODY, 5)),
        *((name, "x") for name in ("key", "id", "hash", "prefix")),
    ],
)
def test_a_wrong_field_of_a_key_is_named(server, owner, field, value):
    count = server.rows("SELECT count(*) AS n FROM api_key")
    fault(owner.post("/keys", {"name": "x", field: value}), 422, "validation_error", field)
    assert server.rows("SELECT count(*) AS n FROM api_key") == count


def test_everybody_manages_their_own_keys_alone(server, owner, join):
    member, other = join(), join("client")
    made = make_key(member)
    assert {key["member"]["id"] for key in member.data(member.get("/keys"))["keys"]} == {member.member["id"]}
    assert len(member.data(member.get("/keys"))["keys"]) == 2
    # What one may not see does not exist.
    fault(other.delete(f"/keys/{made['key']['id']}"), 404, "not_found")
    fault(other.post("/keys", {"name": "x", "member_id": member.member["id"]}), 403, "forbidden")
    answer = member.data(member.delete(f"/keys/{made['key']['id']}"))
    assert answer == {"id": made["key"]["id"], "revoked": True}
    fault(server.client(made["api_key"]).get("/me"), 401, "unauthorized")
    assert member.data(member.delete(f"/keys/{made['key']['id']}")) == answer


def test_an_admin_manages_the_keys_of_all_but_owners(server, owner, join):
    admin, member = join("admin"), join()
    made = make_key(admin, member_id=member.member["id"], name="for the script")
    script = server.client(made["api_key"])
    assert script.data(script.get("/me"))["member"]["id"] == member.member["id"]
    (listed,) = [key for key in admin.data(admin.get("/keys"))["keys"] if key["id"] == made["key"]["id"]]
    assert (listed["creator"]["id"], listed["member"]["id"]) == (admin.member["id"], member.member["id"])
    mine = owner.data(owner.get("/me"))
    fault(admin.post("/keys", {"name": "x", "member_id": mine["member"]["id"]}), 403, "forbidden")
    fault(admin.delete(f"/keys/{mine['key']['id']}"), 403, "forbidden")
    assert admin.data(admin.delete(f"/keys/{made['key']['id']}"))["revoked"] is True
    fault(script.get("/me"), 401, "unauthorized")
    assert owner.get("/me").status_code == 200


def test_a_key_for_someone_who_is_only_invited_is_refused(owner):
    body = {"email": "not-yet@example.com", "full_name": "X", "role": "member"}
    invited = owner.data(owner.post("/members/invite", body), 201)["member"]
    fault(
        owner.post("/keys", {"name": "x", "member_id": invited["id"]}), 422, "validation_error", "member_id"
    )


def test_revoking_a_key_that_is_none_is_not_found(owner):
    for id in (NOBODY, "x"):
        fault(owner.delete(f"/keys/{id}"), 404, "not_found")


def test_null_is_as_good_as_nothing(owner):
    key = make_key(owner, scope=None, member_id=None, expires_at=None)["key"]
    assert (key["scope"], key["expires_at"]) == ("write", None)
    assert key["member"] == owner.data(owner.get("/me"))["key"]["member"]


class Upload:
    """A POST whose body is held back until `finish`, when its caller has been authenticated already."""

    def __init__(self, server, key, path, body):
        self.body = json.dumps(body).encode()
        self.line = socket.create_connection(("127.0.0.1", int(server.base.rpartition(":")[2])), PATIENCE)
        head = f"POST /api/v1{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        head += (
            f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        )
        self.line.sendall(head.encode() + self.body[:1])

    def finish(self):
        self.line.sendall(self.body[1:])
        with self.line:
            return b"".join(iter(lambda: self.line.recv(65536), b"")).decode()


def used(server, key):
    """Whether the server has seen the key: that is noted with the next write, which this is."""
    server.client().make_project()
    return server.rows("SELECT 1 FROM api_key WHERE prefix = ? AND last_used_at IS NOT NULL", key["prefix"])


def test_a_key_that_is_revoked_while_the_body_comes_does_nothing(server, owner):
    made = make_key(owner)
    upload = Upload(server, made["api_key"], "/keys", {"name": "minted in time"})
    wait_until(lambda: used(server, made["key"]))
    owner.data(owner.delete(f"/keys/{made['key']['id']}"))
    answer = upload.finish()
    assert answer.startswith("HTTP/1.1 401 ")
    assert server.rows("SELECT 1 FROM api_key WHERE name = 'minted in time'") == []


def test_a_role_that_is_lost_while_the_body_comes_does_nothing_more(server, owner, join):
    admin = join("admin")
    made = make_key(admin)
    body = {"email": "backdoor@example.com", "full_name": "Backdoor", "role": "admin"}
    upload = Upload(server, made["api_key"], "/members/invite", body)
    wait_until(lambda: used(server, made["key"]))
    owner.data(owner.patch(f"/members/{admin.member['id']}", {"role": "client"}))
    answer = upload.finish()
    assert answer.startswith("HTTP/1.1 403 ")
    assert "your role is client" in answer
    assert "backdoor@example.com" not in owner.get("/members").text
