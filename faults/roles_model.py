"""Compare rights after any promotions, removals and revocations with a model (`people.py`)."""

import json
import re
from typing import Any, TypeVar

from connections import TWO_WORKERS, Connection
from findings import Run
from harness import OWNER_KEY, Server
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from machines import Machine, explore
from member_races import API, check_enrollment, check_pairs
from people import ADMINS, ROLES, Credential, Person, Workspace

T = TypeVar("T")
# One rule does all actions, since hypothesis leaves rules out. The number of tickets is an action's share.
TICKETS = ["invite"] * 4 + ["join"] * 5 + ["change_role"] * 9 + ["make_key"] * 6 + ["make_link"] * 4
TICKETS += ["end"] * 3


def chosen(items: list[T], number: int) -> T:
    """Return the item with this number. The newest item has number 0."""
    return items[-1 - number % len(items)]


class RolesMachine(Machine):
    """Members invite, join, change and remove each other, and make and revoke keys."""

    def __init__(self, server: Server):
        super().__init__()
        self.server, self.connection = server, Connection(server)
        self.workspace = Workspace(self.reset())

    def reset(self) -> Credential:
        """Leave only the first owner with the first key, as in a new workspace."""
        (first,) = self.server.rows("SELECT min(id) AS id, email FROM member")
        (key,) = self.server.rows("SELECT min(id) AS id FROM api_key")
        statuses = "UPDATE member SET status = iif(id = ?, 'active', 'removed'), role = 'owner'"
        self.server.rows(statuses, first["id"])
        self.server.rows("UPDATE api_key SET revoked_at = iif(id = ?, NULL, created_at)", key["id"])
        self.server.rows("UPDATE invitation SET revoked_at = created_at")
        owner = Person(first["id"], first["email"], "owner", has_joined=True)
        return Credential(OWNER_KEY, owner, frozenset([owner]), key["id"])

    def teardown(self) -> None:
        super().teardown()
        self.connection.close()

    def key(self, number: int) -> Credential:
        """Return the key with this number. Keys that do not work come last."""
        keys = sorted(self.workspace.keys, key=lambda key: not key.works)
        return keys[number % len(keys)]

    def do(self, key: Credential, request: str, body: Any, allowed: set[int], roles=ROLES) -> Any:
        """Send a request that `roles` may do, and return the data of a success."""
        method, path = request.split()
        status, answer = self.connection.ask(method, API + path, key.text, body)
        told = f"{self.name(key)}: {request} {json.dumps(body)} -> {status}"
        for person in self.workspace.people:
            told = told.replace(person.id, person.email)
        self.tell(told)
        expected = self.workspace.refusal(key, roles) or allowed
        assert status in expected, f"came {status} {answer}, not {expected}"
        return answer["data"] if status < 400 else None

    def name(self, key: Credential) -> str:
        return f"key {self.workspace.keys.index(key)} of {key.holder.email} ({key.holder.role}, {key.scope})"

    @initialize()
    def have_an_admin_and_a_member(self) -> None:
        for number, role in enumerate(("admin", "member")):
            self.invite(0, number, role)
            self.join(0, 0, role)

    @rule(
        act=st.sampled_from(TICKETS),
        key=st.integers(0, 7),
        number=st.integers(0, 9),
        role=st.sampled_from(ROLES),
    )
    def act(self, act: str, key: int, number: int, role: str) -> None:
        """Do one action with a key, to the member, link or key with this number. Some use the role."""
        getattr(self, act)(key, number, role)

    def invite(self, key_number: int, number: int, role: str) -> None:
        key, email = self.key(key_number), f"p{number % 4}@example.com"
        allowed = self.workspace.invite(key, email, role)
        body = {"email": email, "full_name": "A", "role": role}
        if data := self.do(key, "POST /members/invite", body, allowed, ADMINS):
            person = self.workspace.has_address(email)
            if person is None:
                person = Person(data["member"]["id"], email, role)
                self.workspace.people.append(person)
            person.role = role
            self.workspace.link_is_made(key, person, data["enrollment_link"].rpartition("/")[2])

    def join(self, _: int, number: int, role: str) -> None:
        """Look at a link, and use it to join or to sign in, by the page or the API."""
        link, is_page = chosen(self.workspace.links, number // 2), role == "client"
        for method, good in (("GET", 200), ("POST", 303 if is_page else 201)):
            status, answer = self.connection.ask(method, f"{'' if is_page else API}/enroll/{link.text}")
            self.tell(f"{method} link of {link.holder.email} by {'page' if is_page else 'API'} -> {status}")
            assert status == (good if link.works else 410), answer
        if link.works:
            text = re.findall(r"tms_[\w-]{43}", json.dumps(answer) + self.connection.cookie)[0]
            (row,) = self.server.rows("SELECT id FROM api_key WHERE prefix = ?", text[:12])
            self.workspace.is_joined(link, row["id"], text)

    def change_role(self, key_number: int, number: int, role: str) -> None:
        key, member = self.key(key_number // 3), chosen(self.workspace.involved(), number)
        if role != member.role:
            allowed = self.workspace.change_role(key, member, role)
            if self.do(key, f"PATCH /members/{member.id}", {"role": role}, allowed):
                self.workspace.role_is_changed(key, member, role)

    def make_key(self, key_number: int, number: int, role: str) -> None:
        """Make a key for a member who has joined."""
        key, scope = self.key(key_number), "read" if role == "client" else "write"
        holder = chosen([one for one in self.workspace.people if one.has_joined], number)
        body = {"name": "a", "scope": scope, "member_id": holder.id}
        if data := self.do(key, "POST /keys", body, self.workspace.make_key(key, holder)):
            made = Credential(data["api_key"], holder, key.chain, data["key"]["id"], scope)
            self.workspace.keys.append(made)

    def make_link(self, key_number: int, number: int, role: str) -> None:
        """Make a new link for any member, to join or to sign in."""
        key, member = self.key(key_number), chosen(self.workspace.people, number)
        allowed = self.workspace.make_link(key, member)
        if data := self.do(key, f"POST /members/{member.id}/invitation", None, allowed):
            self.workspace.link_is_made(key, member, data["enrollment_link"].rpartition("/")[2])

    def end(self, key_number: int, number: int, role: str) -> None:
        """Remove a member, or revoke a link or any key but the first one."""
        key, member = self.key(key_number), chosen(self.workspace.people, number)
        if role == "owner":
            allowed = self.workspace.remove(key, member)
            if self.do(key, f"DELETE /members/{member.id}", None, allowed, ADMINS):
                self.workspace.is_removed(member)
        elif role == "admin":
            allowed = self.workspace.revoke_link(key, member)
            if self.do(key, f"DELETE /members/{member.id}/invitation", None, allowed):
                self.workspace.end_link(member)
        elif working := [key for key in self.workspace.keys[1:] if key.works]:
            revoked = chosen(working, number)
            if self.do(key, f"DELETE /keys/{revoked.id}", None, self.workspace.revoke_key(key, revoked)):
                revoked.works = False

    @invariant()
    def keys_and_members_are_equal(self) -> None:
        for key in self.workspace.keys:
            status, answer = self.connection.ask("GET", f"{API}/me", key.text)
            came = f"{self.name(key)} is answered {status} {answer}"
            assert status == (200 if key.works else 401), came
            if key.works:
                member, used = answer["data"]["member"], answer["data"]["key"]
                found = member["id"], member["role"], used["id"], used["scope"]
                assert found == (key.holder.id, key.holder.role, key.id, key.scope), came
        rows = self.server.rows("SELECT id, role, status FROM member WHERE status != 'removed'")
        expected = {(one.id, one.role, one.has_joined) for one in self.workspace.people}
        assert {(row["id"], row["role"], row["status"] == "active") for row in rows} == expected, rows


def run(run: Run) -> None:
    with run.server("server", *TWO_WORKERS) as server:
        check_enrollment(run, server)
        check_pairs(run, server)
        explored = explore(run, lambda: RolesMachine(server), most_steps=40)
    counts = f"{explored.examples} examples, {explored.steps} steps"
    run.found("", "members, keys and links as in the model", counts, "always", not explored.failure)
