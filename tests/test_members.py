"""Listing and inviting members, and joining with an enrollment link."""

from datetime import UTC, datetime, timedelta

import pytest
from conftest import INSTANT, UUID, at_once, fault

FIELDS = {"id", "full_name", "email", "role", "phone_number", "kind", "status", "joined_at", "created_at"}


def invite(client, email, status=201, **fields):
    body = {"email": email, "full_name": "Ana Lima", "role": "member"} | fields
    return client.data(client.post("/members/invite", body), status)


def token_of(invitation):
    return invitation["enrollment_link"].rpartition("/")[2]


def join_with(server, token):
    return server.client(None).post(f"/enroll/{token}")


# Listing


def test_members_are_listed_by_name_with_kind_and_contact(owner, join, server):
    join("client", full_name="aaron Client", phone_number="+49 30 1234")
    invite(owner, "invited-one@example.com", full_name="Élodie Invited")
    listed = owner.data(owner.get("/members"))["members"]
    assert all(set(member) == FIELDS for member in listed)
    names = [member["full_name"].casefold() for member in listed]
    assert names == sorted(names)
    by_name = {member["full_name"]: member for member in listed}
    client = by_name["aaron Client"]
    assert (client["kind"], client["status"], client["phone_number"]) == ("client", "active", "+49 30 1234")
    assert INSTANT.fullmatch(client["joined_at"])
    invited = by_name["Élodie Invited"]
    assert (invited["kind"], invited["status"], invited["joined_at"]) == ("team", "invited", None)


# Inviting


def test_an_invitation_makes_an_invited_member_and_a_link(owner, server):
    invitation = invite(owner, "  New.Person@Example.COM ", phone_number="+1 555", role="admin")
    member = invitation["member"]
    assert set(invitation) == {"member", "enrollment_link", "expires_at"}
    assert set(member) == FIELDS
    assert UUID.fullmatch(member["id"])
    assert (member["email"], member["role"], member["status"]) == (
        "new.person@example.com",
        "admin",
        "invited",
    )
    assert invitation["enrollment_link"].startswith("http://127.0.0.1:8000/enroll/")
    assert len(token_of(invitation)) == 43
    days = datetime.fromisoformat(invitation["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=6.99) < days < timedelta(days=7.01)


def test_the_link_begins_with_the_configured_address_whatever_host_was_asked(launch):
    server = launch(TASKS_SERVER__BASE_URL="https://tasks.example.com/team/")
    client = server.client()
    body = {"email": "x@example.com", "full_name": "X", "role": "client"}
    evil = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher"}
    invitation = client.data(client.post("/members/invite", body, headers=evil), 201)
    assert invitation["enrollment_link"].startswith("https://tasks.example.com/team/enroll/")


def test_inviting_anew_replaces_the_invitation_and_kills_the_old_link(owner, server):
    first = invite(owner, "again@example.com", full_name="Old Name", phone_number="1")
    second = invite(owner, "AGAIN@example.com", 200, full_name="New Name", role="client")
    assert second["member"]["id"] == first["member"]["id"]
    new = second["member"]
    assert (new["full_name"], new["role"], new["phone_number"]) == ("New Name", "client", None)
    fault(join_with(server, token_of(first)), 410, "gone")
    assert join_with(server, token_of(second)).status_code == 201


def test_an_active_member_cannot_be_invited(owner, join):
    email = join().member["email"]
    body = {"email": email.upper(), "full_name": "X", "role": "member"}
    error = fault(owner.post("/members/invite", body), 409, "conflict")
    assert email in error["message"]


def test_only_an_owner_invites_an_owner(owner, join):
    admin = join("admin")
    body = {"email": "boss@example.com", "full_name": "Boss", "role": "owner"}
    fault(admin.post("/members/invite", body), 403, "forbidden")
    assert invite(owner, "boss@example.com", role="owner")["member"]["role"] == "owner"
    # Nor may an admin take over an owner's pending invitation.
    fault(admin.post("/members/invite", body | {"role": "admin"}), 403, "forbidden")


@pytest.mark.parametrize(
    "email",
    [
        *("", " ", "nobody", "a@@example.com", "a@b@example.com", "@example.com", "a@", "<a@example.com>"),
        *("a@example.com\r\nBcc: b@example.com", "a b@example.com", "x" * 250 + "@example.com", 5, None, []),
        *("a@example.com\u0000", {"a": 1}, True),
    ],
)
def test_an_address_that_is_none_is_refused(owner, email):
    body = {"email": email, "full_name": "X", "role": "member"}
    fault(owner.post("/members/invite", body), 422, "validation_error", "email")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("full_name", value) for value in (None, "", " ", "x" * 201, 5, "a\nb", "\u202e" * 201)),
        *(("role", value) for value in (None, "", "boss", "Owner", 1, ["admin"])),
        *(("phone_number", value) for value in (5, "1" * 51, "", "1\n2")),
        *((name, 1) for name in ("id", "status", "is_admin", "joined_at")),
    ],
)
def test_a_wrong_field_of_an_invitation_is_named(owner, field, value):
    body = {"email": "wrong@example.com", "full_name": "X", "role": "member", field: value}
    fault(owner.post("/members/invite", body), 422, "validation_error", field)
    assert "wrong@example.com" not in owner.get("/members").text


def test_one_address_invited_by_many_at_once_is_one_member(owner, server):
    body = {"email": "popular@example.com", "full_name": "X", "role": "member"}
    answers = at_once(*[lambda: server.client().post("/members/invite", body)] * 8)
    assert sorted(a.status_code for a in answers) == [200] * 7 + [201]
    works = [a for a in answers if join_with(server, token_of(a.json()["data"])).status_code == 201]
    assert len(works) == 1


# Joining


def test_a_link_shows_whom_it_invites_as_often_as_it_is_looked_at(owner, server):
    invitation = invite(owner, "looked-at@example.com", role="client")
    stranger = server.client(None)
    for _ in range(3):
        shown = stranger.data(stranger.get(f"/enroll/{token_of(invitation)}"))
    assert shown == {
        "workspace_name": "Workspace",
        "full_name": "Ana Lima",
        "email": "looked-at@example.com",
        "role": "client",
        "expires_at": invitation["expires_at"],
    }
    assert join_with(server, token_of(invitation)).status_code == 201


def test_joining_activates_the_member_and_gives_a_key_once(owner, server):
    invitation = invite(owner, "joins@example.com")
    data = owner.data(join_with(server, token_of(invitation)), 201)
    assert data["member"]["id"] == invitation["member"]["id"]
    assert data["member"]["status"] == "active"
    assert INSTANT.fullmatch(data["member"]["joined_at"])
    key = data["api_key"]
    assert len(key) == 47
    assert key.startswith("tms_")
    assert server.client(key).get("/context").status_code == 200
    for again in (server.client(None).get, server.client(None).post):
        error = fault(again(f"/enroll/{token_of(invitation)}"), 410, "gone")
        assert "already been used" in error["message"]


def test_of_many_who_join_at_once_with_one_link_one_wins(owner, server):
    invitation = invite(owner, "race@example.com")
    answers = at_once(*[lambda: join_with(server, token_of(invitation))] * 12)
    assert sorted(a.status_code for a in answers) == [201] + [410] * 11
    keys = server.rows("SELECT * FROM api_key WHERE member_id = ?", invitation["member"]["id"])
    assert len(keys) == 1


def test_an_expired_link_is_gone(owner, server):
    invitation = invite(owner, "late@example.com")
    server.rows(
        "UPDATE invitation SET expires_at = '2026-01-01T00:00:00.000Z' WHERE member_id = ?",
        invitation["member"]["id"],
    )
    error = fault(join_with(server, token_of(invitation)), 410, "gone")
    assert "expired" in error["message"]


@pytest.mark.parametrize("token", ["x", "x" * 43, "a" * 5000, "%00", "é", "..%2f", "' OR 1=1"])
def test_an_unknown_link_is_not_found(server, token):
    stranger = server.client(None)
    for call in (stranger.get, stranger.post):
        if len(token) < 4000:
            fault(call(f"/enroll/{token}"), 404, "not_found")


def test_joining_takes_no_fields(owner, server):
    invitation = invite(owner, "fields@example.com")
    path = f"/enroll/{token_of(invitation)}"
    stranger = server.client(None)
    fault(stranger.post(path, {"role": "owner"}), 422, "validation_error", "role")
    assert stranger.data(stranger.post(path, {}), 201)["member"]["role"] == "member"


def test_neither_keys_nor_tokens_are_stored_or_logged(owner, server):
    invitation = invite(owner, "secret@example.com")
    token = token_of(invitation)
    server.client(None).get(f"/enroll/{token}")
    key = owner.data(join_with(server, token), 201)["api_key"]
    server.client(key).get("/context")
    server.client("tms_wrong-key-that-nobody-has").get("/context")
    kept = server.log.read_bytes() + server.database.read_bytes()
    kept += server.database.with_name("tasks.db-wal").read_bytes()
    for secret in (token, key, "tms_wrong-key-that-nobody-has"):
        assert secret.encode() not in kept
