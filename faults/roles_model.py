"""Who may do what after any promotions, removals and revocations, compared with a model (`people.py`)."""

import json
import re
from typing import Any

from connections import TWO_WORKERS, Connection
from findings import Run
from harness import OWNER_KEY, Server
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from machines import Machine, explore
from member_races import API, check_enrollment, check_pairs
from people import ADMINS, ROLES, Credential, Person, Workspace

KEY = st.sampled_from([*[0] * 4, *range(1, 8)])  # the first owner's is 0; see `RolesMachine.key`
PERSON = st.integers(0, 5)  # the newest is 0
ADDRESS = st.sampled_from([f"p{number}@example.com" for number in range(3)])
ROLE = st.sampled_from(ROLES)


class RolesMachine(Machine):
    """Members invite, join, change and remove each other, and make and revoke keys."""

    def __init__(self, server: Server):
        super().__init__()
        self.server, self.connection = server, Connection(server)
        self.workspace = Workspace(self.reset())

    def reset(self) -> Credential:
        """Leave the first owner with the first key, as in a new workspace."""
        (first,) = self.server.rows("SELECT min(id) AS id, email FROM member")
        (key,) = self.server.rows("SELECT min(id) AS id FROM api_key")
        statuses = "UPDATE member SET status = iif(id = ?, 'active', 'removed'), role = 'owner'"
        self.server.rows(statuses, first["id"])
        self.server.rows("UPDATE api_key SET revoked_at = iif(id = ?, NULL, created_at)", key["id"])
        owner = Person(first["id"], first["email"], "owner", has_joined=True)
        return Credential(OWNER_KEY, owner, frozenset([owner]), key["id"])

    def teardown(self) -> None:
        super().teardown()
        self.connection.close()

    def key(self, number: int) -> Credential:
        """The key with this number; those that do not work go last."""
        keys = sorted(self.workspace.keys, key=lambda key: not key.works)
        return keys[number % len(keys)]

    def person(self, number: int) -> Person:
        return self.workspace.people[-1 - number % len(self.workspace.people)]

    def do(self, key: Credential, request: str, body: Any, allowed: set[int], roles=ROLES) -> Any:
        """Send a request, which these roles may; the data of a success."""
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

    def link_made(self, key: Credential, person: Person, data: Any) -> None:
        self.workspace.link_is_made(key, person, data["enrollment_link"].rpartition("/")[2])

    @initialize()
    def have_an_admin_and_a_member(self) -> None:
        for role in ("admin", "member"):
            self.invite(0, f"first-{role}@example.com", role)
            self.join(0, by_page=False)

    @rule(number=KEY, email=ADDRESS, role=ROLE)
    def invite(self, number: int, email: str, role: str) -> None:
        key, body = self.key(number), {"email": email, "full_name": "A", "role": role}
        allowed = self.workspace.invite(key, email, role)
        if data := self.do(key, "POST /members/invite", body, allowed, ADMINS):
            person = self.workspace.has_address(email)
            if person is None:
                person = Person(data["member"]["id"], email, role)
                self.workspace.people.append(person)
            person.role = role
            self.link_made(key, person, data)

    @rule(number=PERSON, by_page=st.booleans())
    def join(self, number: int, by_page: bool) -> None:
        """Look at a link, and use it."""
        if not self.workspace.links:
            return
        link = self.workspace.links[-1 - number % len(self.workspace.links)]
        for method, good in (("GET", 200), ("POST", 200 if by_page else 201)):
            status, answer = self.connection.ask(method, f"{'' if by_page else API}/enroll/{link.text}")
            self.tell(f"{method} link of {link.holder.email}, by_page={by_page} -> {status}")
            assert status == (good if link.works else 410), answer
        if link.works:
            text = re.findall(r"tms_[\w-]{43}", json.dumps(answer))[0]
            (row,) = self.server.rows("SELECT id FROM api_key WHERE prefix = ?", text[:12])
            self.workspace.is_joined(link, row["id"], text)

    @rule(number=KEY, person=PERSON, role=ROLE)
    def change_role(self, number: int, person: int, role: str) -> None:
        key, member = self.key(number), self.person(person)
        allowed = self.workspace.change_role(key, member, role)
        if self.do(key, f"PATCH /members/{member.id}", {"role": role}, allowed):
            self.workspace.role_is_changed(key, member, role)

    @rule(number=KEY, person=PERSON)
    def remove(self, number: int, person: int) -> None:
        key, member = self.key(number), self.person(person)
        allowed = self.workspace.remove(key, member)
        if self.do(key, f"DELETE /members/{member.id}", None, allowed, ADMINS):
            self.workspace.is_removed(member)

    @rule(number=KEY, person=PERSON, renews=st.booleans())
    def change_link(self, number: int, person: int, renews: bool) -> None:
        key, member, method = self.key(number), self.person(person), "POST" if renews else "DELETE"
        allowed = self.workspace.change_link(key, member, renews=renews)
        if data := self.do(key, f"{method} /members/{member.id}/invitation", None, allowed, ADMINS):
            if renews:
                self.link_made(key, member, data)
            else:
                self.workspace.end_access(member)

    @rule(number=KEY, person=st.none() | PERSON | PERSON, scope=st.sampled_from(["write", "write", "read"]))
    def make_key(self, number: int, person: int | None, scope: str) -> None:
        """Make a key for oneself, or for anybody."""
        key = self.key(number)
        holder = key.holder if person is None else self.person(person)
        body = {"name": "a", "scope": scope, "member_id": holder.id}
        allowed = self.workspace.make_key(key, holder)
        if data := self.do(key, "POST /keys", body, allowed):
            made = Credential(data["api_key"], holder, key.chain, data["key"]["id"], scope)
            self.workspace.keys.append(made)

    @rule(number=KEY, other=st.integers(1, 9))
    def revoke_key(self, number: int, other: int) -> None:
        """Revoke any key that works but the first one."""
        key, working = self.key(number), [key for key in self.workspace.keys[1:] if key.works]
        if working:
            revoked = working[other % len(working)]
            allowed = self.workspace.revoke_key(key, revoked)
            if self.do(key, f"DELETE /keys/{revoked.id}", None, allowed):
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
