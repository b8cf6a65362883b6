"""API keys: which are taken, what is kept of them, and who may make and revoke which."""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial

from clients import JSON, Line
from harness import OWNER_KEY, fault, wait_until

NEEDS_SOCKET = False


def test_a_key_that_is_none_is_refused_before_anything_else(server):
    stranger = server.client(None)
    for header in (
        *(None, "", "Bearer", "Bearer ", f"Basic {OWNER_KEY}", OWNER_KEY, f"Bearer: {OWNER_KEY}"),
        *(f"Bearer {OWNER_KEY[:12]}", f"Bearer {OWNER_KEY}x", f"Bearer {OWNER_KEY[:-1]}", "Bearer %"),
        *(f"Bearer {OWNER_KEY.swapcase()}", "Bearer ' OR '1'='1", 'Bearer {"a": 1}', "Bearer " + "_" * 47),
        *("Bearer é\xff", "Bearer " + "x" * 3000),
    ):
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        for call in ("GET /tasks?limit=x", "POST /tasks", "GET /nowhere", "PUT /context"):
            answer = stranger.request(*call.split(), headers=headers, data=b"{")
            fault(answer, 401, "unauthorized")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    fault(server.client("tms_wrong").get("/health"), 401, "unauthorized")  # which needs none


def test_a_key_counts_in_the_header_alone_whatever_the_case_of_its_scheme(server):
    stranger = server.client(None)
    for answer in (
        stranger.request("GET", f"/context?api_key={OWNER_KEY}&Authorization=Bearer {OWNER_KEY}"),
        stranger.request("GET", "/context", headers={"Cookie": f"Authorization=Bearer {OWNER_KEY}"}),
        stranger.post("/tasks", {"api_key": OWNER_KEY}),
        stranger.request("GET", "/context", headers={"X-Api-Key": OWNER_KEY}),
    ):
        fault(answer, 401, "unauthorized")
    for scheme in ("bearer", "BEARER", "Bearer "):
        headers = {"Authorization": f"{scheme} {OWNER_KEY}"}
        assert stranger.request("GET", "/context", headers=headers).status_code == 200


def test_a_read_never_writes_and_the_next_write_notes_when_keys_were_used(server, owner):
    made = make_key(owner, scope="read")
    used = "SELECT last_used_at FROM api_key WHERE id = ?"
    for _ in range(5):
        server.client(made["api_key"]).get("/context")
    assert server.rows(used, made["key"]["id"]) == [{"last_used_at": None}]
    owner.make_project()
    assert server.rows(used, made["key"]["id"]) != [{"last_used_at": None}]


def make_key(client, **fields):
    return client.make("/keys", {"name": "laptop"} | fields)


def test_a_key_is_shown_when_it_is_made_and_never_again(server, owner, join):
    client = join("client")
    shown = client.read("/me")
    assert (shown["member"], shown["key"]["name"]) == (client.member, "enrollment")
    assert client.key.startswith(shown["key"]["prefix"])
    assert client.key not in str(shown)
    made = make_key(owner, scope="read")
    key = made["key"]
    assert (key["name"], key["scope"], key["expires_at"]) == ("laptop", "read", None)
    assert (key["last_used_at"], key["revoked_at"]) == (None, None)
    reader = server.client(made["api_key"])
    assert reader.read("/me")["key"]["id"] == key["id"]
    assert reader.request("HEAD", "/me").status_code == 200
    listed = owner.get("/keys")
    assert made["api_key"] not in listed.text
    assert key["id"] in listed.text


def days(number):
    return (datetime.now(UTC) + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def test_a_key_that_ends_makes_no_key_or_link_that_lives_longer_and_no_owner_or_admin(server, owner, join):
    brief = server.client(make_key(owner, expires_at=days(2))["api_key"])
    for body in ({}, {"expires_at": None}, {"expires_at": days(3)}, {"member_id": join().member["id"]}):
        error = fault(brief.post("/keys", {"name": "x"} | body), 422, "validation_error", "expires_at")
        assert "when the key in use expires" in error["message"]
    assert make_key(brief, expires_at=days(1))["key"]["expires_at"]
    invited = {"email": "brief@example.com", "full_name": "B", "role": "member"}
    link = brief.make("/members/invite", invited)
    assert link["expires_at"] < days(2.01)
    path = f"/members/{link['member']['id']}/invitation"
    assert brief.make(path)["expires_at"] < days(2.01)
    for role in ("owner", "admin"):
        error = fault(brief.post("/members/invite", invited | {"role": role}), 403, "forbidden")
        assert "the key in use expires" in error["message"]
    owner.data(owner.post("/members/invite", invited | {"role": "admin"}))
    fault(brief.post(path), 403, "forbidden")
    member = f"/members/{join().member['id']}"
    for role in ("owner", "admin"):
        error = fault(brief.patch(member, {"role": role}), 403, "forbidden")
        assert "the key in use expires" in error["message"]
    assert brief.data(brief.patch(member, {"role": "client"}))["role"] == "client"


def test_everybody_manages_their_own_keys_alone(server, owner, join):
    member, other = join(), join("client")
    made = make_key(member)
    keys = member.read("/keys")["keys"]
    assert [key["member"]["id"] for key in keys] == [member.member["id"]] * 2
    # A key that the caller may not see does not exist.
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
    assert script.read("/me")["member"]["id"] == member.member["id"]
    (listed,) = [key for key in admin.read("/keys")["keys"] if key["id"] == made["key"]["id"]]
    assert (listed["creator"]["id"], listed["member"]["id"]) == (admin.member["id"], member.member["id"])
    mine = owner.read("/me")
    fault(admin.post("/keys", {"name": "x", "member_id": mine["member"]["id"]}), 403, "forbidden")
    fault(admin.delete(f"/keys/{mine['key']['id']}"), 403, "forbidden")
    assert admin.data(admin.delete(f"/keys/{made['key']['id']}"))["revoked"] is True
    fault(script.get("/me"), 401, "unauthorized")
    assert owner.get("/me").status_code == 200


def test_a_key_is_for_an_active_member_and_null_is_as_good_as_nothing(owner):
    body = {"email": "not-yet@example.com", "full_name": "X", "role": "member"}
    invited = owner.make("/members/invite", body)["member"]
    answer = owner.post("/keys", {"name": "x", "member_id": invited["id"]})
    fault(answer, 422, "validation_error", "member_id")
    key = make_key(owner, scope=None, member_id=None, expires_at=None)["key"]
    assert (key["scope"], key["expires_at"]) == ("write", None)
    assert key["member"] == owner.read("/me")["key"]["member"]


def answered_late(server, made, path, body, change):
    """The answer to a POST with a key that was made, before whose last byte something is changed."""
    text, used = json.dumps(body).encode(), "SELECT 1 FROM api_key WHERE id = ? AND last_used_at IS NOT NULL"
    with closing(Line(server)) as line:
        line.send("POST", path, [JSON, f"Content-Length: {len(text)}"], text[:-1], made["api_key"])
        # That the server has seen the key is noted with the next write.
        wait_until(lambda: server.client().make_project() and server.rows(used, made["key"]["id"]))
        server.client().data(change())
        line.socket.sendall(text[-1:])
        return line.answer()


def test_a_key_or_role_that_is_lost_while_the_body_comes_does_nothing_more(launch):
    server = launch()
    owner, admin = server.client(), server.join("admin")
    made, body = make_key(owner), {"name": "minted in time"}
    revoke = partial(owner.delete, f"/keys/{made['key']['id']}")
    assert answered_late(server, made, "/keys", body, revoke)[0] == 401
    assert server.rows("SELECT 1 FROM api_key WHERE name = 'minted in time'") == []
    body = {"email": "backdoor@example.com", "full_name": "Backdoor", "role": "admin"}
    demote = partial(owner.patch, f"/members/{admin.member['id']}", {"role": "client"})
    status, said = answered_late(server, make_key(admin), "/members/invite", body, demote)
    assert (status, b"your role is client" in said) == (403, True)
    assert "backdoor@example.com" not in owner.get("/members").text
