"""Listing, inviting, changing and removing members, and joining with an enrollment link."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from harness import INSTANT, at_once, fault

NEEDS_SOCKET = False


def invite(client, email, status=201, **fields):
    body = {"email": email, "full_name": "Ana Lima", "role": "member"} | fields
    return client.data(client.post("/members/invite", body), status)


def token_of(invitation):
    return invitation["enrollment_link"].rpartition("/")[2]


def join_with(server, token):
    return server.client(None).post(f"/enroll/{token}")


def with_key(server, maker, client=None):
    """A client with a key that the maker made, for this client's member or for themselves."""
    member = {"member_id": client.member["id"]} if client else {}
    return server.client(maker.make("/keys", {"name": "k"} | member)["api_key"])


def removed(owner, member):
    return owner.delete(f"/members/{member['id']}")


def demoted(owner, member):
    return owner.patch(f"/members/{member['id']}", {"role": "member"})


def test_members_are_listed_by_name_with_kind_and_contact(owner, join, server):
    join("client", full_name="aaron Client", phone_number="+49 30 1234")
    invite(owner, "invited-one@example.com", full_name="Élodie Invited")
    listed = owner.read("/members")["members"]
    names = [member["full_name"].casefold().replace("é", "e") for member in listed]
    assert names == sorted(names)
    by_name = {member["full_name"]: member for member in listed}
    client = by_name["aaron Client"]
    assert (client["kind"], client["status"], client["phone_number"]) == ("client", "active", "+49 30 1234")
    invited = by_name["Élodie Invited"]
    assert (invited["kind"], invited["status"], invited["joined_at"]) == ("team", "invited", None)


def test_an_invitation_makes_an_invited_member_and_a_link(owner):
    invitation = invite(owner, "  New.Person@Example.COM ", phone_number="+1 555", role="admin")
    member = invitation["member"]
    shown = ("new.person@example.com", "admin", "invited")
    assert (member["email"], member["role"], member["status"]) == shown
    assert invitation["enrollment_link"].startswith("http://127.0.0.1:8000/enroll/")
    assert len(token_of(invitation)) == 43
    days = datetime.fromisoformat(invitation["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=6.99) < days < timedelta(days=7.01)


def test_inviting_anew_replaces_the_invitation_and_kills_the_old_link(owner, server):
    first = invite(owner, "again@example.com", full_name="Old Name", phone_number="1")
    second = invite(owner, "AGAIN@example.com", 200, full_name="New Name", role="client")
    assert second["member"]["id"] == first["member"]["id"]
    new = second["member"]
    assert (new["full_name"], new["role"], new["phone_number"]) == ("New Name", "client", None)
    fault(join_with(server, token_of(first)), 410, "gone")
    same = invite(owner, "again@example.com", 200, full_name="New Name", role="client")
    assert join_with(server, token_of(same)).status_code == 201
    history = [entry for entry in owner.read("/activity")["activity"] if entry["entity_id"] == new["id"]]
    renewed = {"invitation": [None, "renewed"]}
    changed = {"full_name": ["Old Name", "New Name"], "role": ["member", "client"]}
    changed["phone_number"] = ["1", None]
    joined = ("updated", {"status": ["invited", "active"]})
    shown = [(entry["action"], entry["changes"]) for entry in history]
    assert shown == [joined, ("updated", renewed), ("updated", changed | renewed), ("created", {})]


def test_an_address_of_a_closed_network_is_invited_and_that_of_an_active_member_is_not(owner, join):
    for domain in ("corp.local", "nas.home.arpa", "localhost", "intranet", "example.test"):
        assert invite(owner, f"ana@{domain}")["member"]["email"] == f"ana@{domain}"
    email = join().member["email"]
    body = {"email": email.upper(), "full_name": "X", "role": "member"}
    assert email in fault(owner.post("/members/invite", body), 409, "conflict")["message"]


def test_only_an_owner_invites_an_owner_and_manages_the_invitation(server, owner, join):
    admin = join("admin")
    body = {"email": "boss@example.com", "full_name": "Boss", "role": "owner"}
    fault(admin.post("/members/invite", body), 403, "forbidden")
    invitation = invite(owner, "boss@example.com", role="owner")
    assert invitation["member"]["role"] == "owner"
    path = f"/members/{invitation['member']['id']}/invitation"
    # Nor may an admin take over the pending invitation.
    invited_as_admin = admin.post("/members/invite", body | {"role": "admin"})
    for answer in (invited_as_admin, admin.post(path), admin.delete(path)):
        fault(answer, 403, "forbidden")
    assert join_with(server, token_of(invitation)).status_code == 201


def test_one_address_invited_by_many_at_once_is_one_member(owner, server):
    body = {"email": "popular@example.com", "full_name": "X", "role": "member"}
    answers = at_once(*[lambda: server.client().post("/members/invite", body)] * 8)
    assert sorted(a.status_code for a in answers) == [200] * 7 + [201]
    assert len([a for a in answers if join_with(server, token_of(a.json()["data"])).status_code == 201]) == 1


def test_a_link_shows_whom_it_invites_and_gives_a_key_once_without_any_field(owner, server):
    invitation = invite(owner, "joins@example.com", role="client")
    stranger, path = server.client(None), f"/enroll/{token_of(invitation)}"
    shown = {name: invitation["member"][name] for name in ("full_name", "email", "role")}
    shown |= {"workspace_name": "Workspace", "expires_at": invitation["expires_at"]}
    for _ in range(2):
        assert stranger.read(path) == shown
        fault(stranger.post(path, {"role": "owner"}), 422, "validation_error", "role")
    data = stranger.make(path, {})
    joined = {"status": "active", "joined_at": data["member"]["joined_at"]}
    assert data["member"] == invitation["member"] | joined
    assert INSTANT.fullmatch(data["member"]["joined_at"])
    assert re.fullmatch(r"tms_[\w-]{43}", data["api_key"])
    assert server.client(data["api_key"]).get("/context").status_code == 200
    for again in (stranger.get, stranger.post):
        assert "already been used" in fault(again(path), 410, "gone")["message"]


def test_a_member_is_changed_by_itself_or_an_admin_and_an_owner_by_an_owner_alone(server, join):
    """A member's role is no matter of its own, and a change that changes nothing is never refused."""
    people = {name: join(name) for name in ("owner", "admin", "member", "client")}
    people |= {f"other {name}": join(name) for name in ("owner", "member")}
    foreign = with_key(server, people["other owner"], people["client"])
    for who, whom, fields, may in (
        ("client", "client", {"full_name": " New Name ", "phone_number": "+1"}, True),
        ("client", "client", {"phone_number": None}, True),
        ("client", "client", {"role": "admin"}, False),
        ("client", "client", {"role": "client"}, True),
        ("member", "other member", {"full_name": "x"}, False),
        ("admin", "other member", {"full_name": "By Admin"}, True),
        ("admin", "other member", {"role": "client"}, True),
        ("owner", "other member", {"role": "admin"}, True),
        ("admin", "admin", {"role": "owner"}, False),
        ("admin", "other owner", {"role": "client"}, False),
        ("owner", "other owner", {"role": "admin"}, True),
        ("owner", "other owner", {"role": "owner"}, True),
    ):
        path, before = f"/members/{people[whom].member['id'].upper()}", people[whom].read("/me")["member"]
        answer = people[who].patch(path, fields)
        if not may:
            fault(answer, 403, "forbidden")
            continue
        stripped = {name: text and text.strip() for name, text in fields.items()}
        kind = {"kind": "client" if fields.get("role", before["role"]) == "client" else "team"}
        assert people[who].data(answer) == people[who].read(path) == before | stripped | kind
    fault(foreign.get("/me"), 401, "unauthorized")  # no key that an owner made for others is left behind
    path = f"/members/{people['other owner'].member['id']}"
    fault(people["admin"].delete(path), 403, "forbidden")
    assert people["other owner"].data(people["other owner"].delete(path))["deleted"] is True


def test_making_a_link_or_key_for_a_future_owner_gives_no_access(server, owner, join):
    admin, member = join("admin"), join()
    invitation = invite(admin, "promoted-later@example.com")
    foreign, own = with_key(server, admin, member), with_key(server, member)
    hidden, owners = with_key(server, foreign), with_key(server, owner, member)
    owners_own = invite(owner, "promoted-at-once@example.com")
    for one in (invitation["member"], owners_own["member"], member.member):
        assert owner.data(owner.patch(f"/members/{one['id']}", {"role": "owner"}))["role"] == "owner"
    fault(join_with(server, token_of(invitation)), 410, "gone")
    for client in (foreign, hidden):
        fault(client.get("/me"), 401, "unauthorized")
    for client in (member, own, owners):  # what they made themselves, or the owner for them, stays
        assert client.read("/me")["member"]["role"] == "owner"
    renewed = owner.make(f"/members/{invitation['member']['id']}/invitation")
    for link in (renewed, owners_own):
        assert join_with(server, token_of(link)).status_code == 201


@pytest.mark.parametrize("leave", [removed, demoted])
def test_an_admin_who_leaves_or_is_demoted_does_not_come_back_by_what_they_made(server, owner, join, leave):
    maker, member, other = join("admin"), join("admin"), join()
    # The admin's own key was made by the owner, so that the keys that it makes have two makers.
    admin = with_key(server, owner, maker)
    foreign = with_key(server, admin, member)
    hidden, kept = with_key(server, foreign, other), with_key(server, owner, member)
    link = invite(admin, f"by-{leave.__name__}@example.com", role="admin")
    later = invite(foreign, f"later-by-{leave.__name__}@example.com")
    kept_link = invite(owner, f"kept-by-{leave.__name__}@example.com")
    used = join_with(server, token_of(invite(admin, f"joined-by-{leave.__name__}@example.com")))
    assert leave(owner, maker.member).status_code == 200
    for client in (foreign, hidden):
        fault(client.get("/me"), 401, "unauthorized")
    for dead in (link, later):
        fault(join_with(server, token_of(dead)), 410, "gone")
    for client in (kept, member, other, server.client(used.json()["data"]["api_key"])):
        assert client.get("/me").status_code == 200
    assert join_with(server, token_of(kept_link)).status_code == 201
    assert admin.get("/me").status_code == (401 if leave is removed else 200)


def test_one_owner_stays_also_when_two_remove_each_other_at_once(launch_here):
    server = launch_here()
    first = server.client()
    me = first.read("/me")["member"]
    # One who is only invited cannot lead the workspace.
    invitation = invite(first, "second@example.com", role="owner")
    for answer in (demoted(first, me), removed(first, me)):
        assert "needs an owner" in fault(answer, 409, "conflict")["message"]
    assert first.read("/me")["member"] == me
    enrolled = first.data(join_with(server, token_of(invitation)), 201)
    second = server.client(enrolled["api_key"])
    answers = at_once(partial(removed, first, enrolled["member"]), partial(removed, second, me))
    one, other = sorted(answer.status_code for answer in answers)
    assert one == 200
    assert other in (401, 409)
    assert len(server.rows("SELECT 1 FROM member WHERE role = 'owner' AND status = 'active'")) == 1


def test_a_removed_member_is_gone_but_what_they_did_stays(server, owner, join, project):
    leaver = join()
    member = leaver.member
    task = leaver.make_task(project, assignee_id=member["id"])
    comment = leaver.make(f"/tasks/{task['id']}/comments", {"content": "x"})
    path = f"/members/{member['id']}"
    assert owner.data(owner.delete(path)) == {"id": member["id"], "deleted": True}
    for answer in (owner.get(path), owner.patch(path, {"full_name": "x"}), owner.delete(path)):
        fault(answer, 404, "not_found")
    assert member["id"] not in owner.get("/members").text
    fault(leaver.get("/context"), 401, "unauthorized")
    server.rows("UPDATE api_key SET revoked_at = NULL WHERE member_id = ?", member["id"])
    fault(leaver.get("/context"), 401, "unauthorized")  # nor does a key count that was not revoked
    left = owner.read(f"/tasks/{task['id']}")
    assert (left["assignee_id"], left["assignee"], left["version"]) == (None, None, 2)
    assert left["creator"]["full_name"] == member["full_name"]
    assert owner.read(f"/tasks/{task['id']}/comments")["comments"] == [comment]
    body = {"project_id": project["id"], "title": "x", "assignee_id": member["id"]}
    fault(owner.post("/tasks", body), 422, "validation_error", "assignee_id")
    entry = owner.read("/activity", entity="member")["activity"][0]
    shown = (entry["action"], entry["entity_id"], entry["title"])
    assert shown == ("deleted", member["id"], member["full_name"])
    again = invite(owner, member["email"])  # the address is free
    assert again["member"]["id"] != member["id"]
    assert join_with(server, token_of(again)).status_code == 201


def test_an_unknown_link_or_that_of_a_removed_member_is_refused_and_a_revoked_one_replaced(owner, server):
    stranger = server.client(None)
    for token in ("x", "x" * 43, "a" * 3000, "%00", "é", "..%2f", "' OR 1=1"):
        for call in (stranger.get, stranger.post):
            fault(call(f"/enroll/{token}"), 404, "not_found")
    gone, invitation = (invite(owner, f"{who}@example.com") for who in ("never-mind", "revoked"))
    owner.data(removed(owner, gone["member"]))
    fault(join_with(server, token_of(gone)), 410, "gone")
    path = f"/members/{invitation['member']['id']}/invitation"
    assert owner.data(owner.delete(path)) == {"id": invitation["member"]["id"], "revoked": True}
    fault(owner.delete(path), 404, "not_found")
    assert join_with(server, token_of(owner.make(path))).status_code == 201
