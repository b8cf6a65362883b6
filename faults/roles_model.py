"""Who may do what after any promotions, removals and revocations, by a model (`people.py`)."""

import json
import re
from typing import Any

from connections import TWO_WORKERS, Connection, connected
from enrollment import API, check_enrollment
from findings import Run
from harness import NOBODY, OWNER_KEY, Server
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from machines import Machine, explore
from pairs import check_pairs
from people import ROLES, Key, Link, Person, Workspace

# What the document says for whom an operation is, and the least role that this means.
LEAST = {
    "For everybody in the workspace.": "client",
    "For the team: owners, admins and members.": "member",
    "For owners and admins.": "admin",
}
# Tools with their least role, whether they write, and arguments.
TOOLS: dict[str, tuple[str, bool, dict[str, str]]] = {
    "get_context": ("client", False, {}),
    "list_meetings": ("client", False, {}),
    "add_comment": ("client", True, {"content": "a"}),
    "create_project": ("member", True, {"name": "a"}),
    "update_task": ("member", True, {"title": "a"}),
}
SHARES = {"invite": 5, "join": 6, "change_role": 9, "remove": 2, "change_link": 2}
SHARES |= {"make_key": 7, "revoke_key": 1, "expire_key": 1}


def make_task(server: Server) -> str:
    """Make a task, on which tools are tried; returns its id."""
    owner = server.client()
    return owner.make_task(owner.make_project())["id"]


def operations(server: Server) -> list[tuple[str, str, str]]:
    """Method, path of something that does not exist, and least role of each operation that needs a key."""
    with connected(server, 1) as (connection,):
        document = connection.ask("GET", f"{API}/openapi.json")[1]
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/plugins/") or {} in operation.get("security", [{}]):
                continue
            of_nothing = path if path.startswith(API) else API + path
            least = LEAST[operation["description"].split("\n")[0]]
            found.append((method.upper(), re.sub("{[^}]*}", NOBODY, of_nothing), least))
    return found


class RolesMachine(Machine):
    """Members invite, join, change, remove, and make and revoke keys; then any key tries anything."""

    requests = 0

    def __init__(self, server: Server, operations: list[tuple[str, str, str]], task_id: str):
        super().__init__()
        self.server, self.operations, self.task_id = server, operations, task_id
        self.connection = Connection(server)
        self.workspace = Workspace(self.reset())

    def reset(self) -> Key:
        """Leave the first owner with the first key, as in a new workspace."""
        first = self.server.rows("SELECT * FROM member ORDER BY id LIMIT 1")[0]
        key = self.server.rows("SELECT id FROM api_key ORDER BY id LIMIT 1")[0]["id"]
        for statement in (
            f"UPDATE member SET status = 'removed' WHERE id != '{first['id']}'",
            f"UPDATE member SET status = 'active', role = 'owner' WHERE id = '{first['id']}'",
            f"UPDATE api_key SET revoked_at = 'a' WHERE id != '{key}'",
            f"UPDATE api_key SET revoked_at = NULL, expires_at = NULL WHERE id = '{key}'",
        ):
            self.server.rows(statement)
        owner = Person(first["id"], first["email"], "owner", "active")
        return Key(key, OWNER_KEY, owner, frozenset([owner]))

    def teardown(self) -> None:
        super().teardown()
        self.connection.close()

    # Choices, by number

    def key(self, number: int) -> Key:
        """The key with this number: those that may most go first, those that do not work last."""

        def strength(key: Key) -> tuple:
            return not key.works, ROLES.index(key.holder.role), key.scope == "read"

        return sorted(self.workspace.keys, key=strength)[number % len(self.workspace.keys)]

    def person(self, number: int) -> Person:
        """The newest first, those who were removed last."""
        people = sorted(reversed(self.workspace.people), key=lambda one: one.status == "removed")
        return people[number % len(people)]

    # Requests

    def name(self, key: Key) -> str:
        number, holder = self.workspace.keys.index(key), key.holder
        return f"{holder.email.partition('@')[0]} ({holder.role}, key {number}, {key.scope})"

    def ask(self, key: Key | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        RolesMachine.requests += 1
        return self.connection.ask(method, path, key.text if key else None, body)

    def do(self, key: Key, method: str, path: str, body: Any, allowed: set[int]) -> Any:
        """Send a request that must be answered by one of these statuses; the data of a success."""
        who = self.name(key)
        status, answer = self.ask(key, method, API + path, body)
        shown = f"{method} {path} {json.dumps(body) if body else ''}".strip()
        for person in self.workspace.people:
            shown = shown.replace(person.id, person.email.partition("@")[0])
        self.tell(f"{who}: {shown} -> {status}")
        assert status in allowed, f"came {status} {answer}, not {allowed}"
        return answer["data"] if status < 400 else None

    def link_made(self, key: Key, person: Person, data: Any) -> None:
        self.workspace.link_is_made(key, person, data["enrollment_link"].rpartition("/")[2])

    # Steps: each with a key, about the member, link or key of a number; not all need the role and the flag

    def invite(self, key: Key, number: int, role: str, flag: bool) -> None:
        email = f"p{number % 5}@example.com"
        body = {"email": email, "full_name": "A", "role": role}
        allowed = self.workspace.refusal(key, "admin") or self.workspace.invite(key, email, role)
        if data := self.do(key, "POST", "/members/invite", body, allowed):
            person = self.workspace.has_address(email)
            if person is None:
                person = Person(data["member"]["id"], email, role)
                self.workspace.people.append(person)
            person.role = role
            self.link_made(key, person, data)

    def join(self, key: Key, number: int, role: str, flag: bool) -> None:
        """Look at a link, and use it: most often the newest one, by the API or the page."""
        if not self.workspace.links:
            return
        link = self.workspace.links[-1 - number % len(self.workspace.links)]
        for method, good in (("GET", 200), ("POST", 200 if flag else 201)):
            status, answer = self.ask(None, method, f"{'' if flag else API}/enroll/{link.token}")
            place = "page" if flag else "API"
            self.tell(f"{method} link of {link.invited.email} by the {place} -> {status}")
            assert status == (good if link.is_open else 410), answer
        if link.is_open:
            self.joined(link, re.findall(r"tms_[\w-]{43}", json.dumps(answer))[0])

    def joined(self, link: Link, text: str) -> None:
        (row,) = self.server.rows("SELECT id FROM api_key WHERE prefix = ?", text[:12])
        self.workspace.is_joined(link, row["id"], text)

    def change_role(self, key: Key, number: int, role: str, flag: bool) -> None:
        """Change anybody's role, or, if there is somebody for whom others made keys or links, theirs."""
        exposed = self.workspace.exposed() if flag else []
        person = exposed[number % len(exposed)] if exposed else self.person(number)
        allowed = self.workspace.refusal(key) or self.workspace.change_role(key, person, role)
        if self.do(key, "PATCH", f"/members/{person.id}", {"role": role}, allowed):
            self.workspace.role_is_changed(key, person, role)

    def remove(self, key: Key, number: int, role: str, flag: bool) -> None:
        person = self.person(number)
        allowed = self.workspace.refusal(key, "admin") or self.workspace.remove(key, person)
        if self.do(key, "DELETE", f"/members/{person.id}", None, allowed):
            self.workspace.is_removed(person)

    def change_link(self, key: Key, number: int, role: str, flag: bool) -> None:
        person = self.person(number)
        allowed = self.workspace.refusal(key, "admin") or self.workspace.change_link(key, person, renews=flag)
        if data := self.do(
            key, "POST" if flag else "DELETE", f"/members/{person.id}/invitation", None, allowed
        ):
            if flag:
                self.link_made(key, person, data)
            else:
                self.workspace.end_access(person)

    def make_key(self, key: Key, number: int, role: str, flag: bool) -> None:
        """Make a key for anybody, or, with an even number, for oneself."""
        holder = self.person(number // 2) if number % 2 else key.holder
        scope, ends = "read" if role == "client" else "write", flag or role == "admin"
        body = {"name": "a", "scope": scope} | ({"member_id": holder.id} if number % 2 else {})
        body |= {"expires_at": "2100-01-01"} if ends else {}
        allowed = self.workspace.refusal(key) or self.workspace.make_key(key, holder, ends=ends)
        if data := self.do(key, "POST", "/keys", body, allowed):
            made = Key(data["key"]["id"], data["api_key"], holder, key.chain, scope, ends)
            self.workspace.keys.append(made)

    def revoke_key(self, key: Key, number: int, role: str, flag: bool) -> None:
        other = self.workspace.keys[number % len(self.workspace.keys)]
        if not self.workspace.is_lifeline(other):
            allowed = self.workspace.refusal(key) or self.workspace.revoke_key(key, other)
            if self.do(key, "DELETE", f"/keys/{other.id}", None, allowed):
                other.is_revoked = True

    def expire_key(self, key: Key, number: int, role: str, flag: bool) -> None:
        other = self.workspace.keys[number % len(self.workspace.keys)]
        if not self.workspace.is_lifeline(other):
            self.server.rows("UPDATE api_key SET expires_at = created_at WHERE id = ?", other.id)
            self.tell(f"key {self.workspace.keys.index(other)} expires")
            other.is_revoked = True

    # Checks

    def try_operation(self, key: Key, number: int) -> None:
        """Try an operation on something that does not exist, with a body that is always wrong."""
        method, path, least = self.operations[number % len(self.operations)]
        body = None if method in ("GET", "DELETE") else {"surely not a field": 1}
        status, answer = self.ask(key, method, path, body)
        allowed = self.workspace.refusal(key, least, writes=method != "GET") or {200, 404, 415, 422}
        if status not in allowed:
            self.tell(f"{self.name(key)}: {method} {path} -> {status}")
        assert status in allowed, f"came {status} {answer}, not {allowed}"

    def try_tool(self, key: Key, number: int) -> None:
        name = list(TOOLS)[number % len(TOOLS)]
        least, writes, arguments = TOOLS[name]
        refused = self.workspace.refusal(key, least, writes=writes)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        status, listed = self.ask(key, "POST", "/mcp", body)
        if name in ("add_comment", "update_task"):
            arguments = arguments | {"task_id": self.task_id}
        body |= {"method": "tools/call", "params": {"name": name, "arguments": arguments}}
        called = self.ask(key, "POST", "/mcp", body)
        came = f"{self.name(key)}: tool {name} came {called}, listed {status}"
        if not key.works:
            assert (status, called[0]) == (401, 401), came
            return
        assert (status, called[0]) == (200, 200), came
        assert (name in {tool["name"] for tool in listed["result"]["tools"]}) == (not refused), came
        text, is_error = called[1]["result"]["content"][0]["text"], called[1]["result"].get("isError", False)
        assert (is_error, text.startswith("forbidden: ")) == (bool(refused), bool(refused)), came

    def try_what_is_public(self, key: Key) -> None:
        for path in ("/", "/static/board.js"):
            assert self.ask(key, "GET", path)[0] == 200, path
        assert self.ask(None, "GET", f"{API}/health")[0] == 200
        assert self.ask(key, "GET", f"{API}/health")[0] == (200 if key.works else 401)

    @invariant()
    def every_key_does_what_it_may(self) -> None:
        for key in self.workspace.keys:
            status, answer = self.ask(key, "GET", f"{API}/me")
            came = f"{self.name(key)} is answered {status} {answer}"
            assert status == (200 if key.works else 401), came
            if key.works:
                member, used = answer["data"]["member"], answer["data"]["key"]
                found = member["id"], member["role"], used["id"], used["scope"]
                assert found == (key.holder.id, key.holder.role, key.id, key.scope), came
        rows = self.server.rows("SELECT id, role, status FROM member WHERE status != 'removed'")
        expected = {
            (one.id, one.role, one.status) for one in self.workspace.people if one.status != "removed"
        }
        assert {(row["id"], row["role"], row["status"]) for row in rows} == expected, rows

    @initialize()
    def have_an_admin_and_a_member(self) -> None:
        for number, role in enumerate(("admin", "member")):
            self.invite(self.key(0), number, role, flag=False)
            self.join(self.key(0), 0, role, flag=False)

    @rule(
        act=st.sampled_from([name for name, share in SHARES.items() for _ in range(share)]),
        key=st.sampled_from([*[0] * 5, *[1] * 4, *[2] * 2, *range(3, 9)]),
        number=st.integers(0, 9),
        role=st.sampled_from(["owner", *ROLES]),
        flag=st.booleans(),
        tries=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 99)), min_size=1, max_size=5),
    )
    def step(
        self, act: str, key: int, number: int, role: str, flag: bool, tries: list[tuple[int, int]]
    ) -> None:
        getattr(self, act)(self.key(key), number, role, flag)
        for key_number, operation in tries:
            self.try_operation(self.key(key_number), operation)
        self.try_tool(self.key(tries[0][0]), tries[0][1])
        if number == 9:
            self.try_what_is_public(self.key(tries[-1][0]))


def run(run: Run) -> None:
    with run.server("server", *TWO_WORKERS) as server:
        check_enrollment(run, server, until=run.ends_at - 0.7 * run.seconds)
        check_pairs(run, server, until=run.ends_at - 0.5 * run.seconds)
        tried, task_id = operations(server), make_task(server)
        explored = explore(run, lambda: RolesMachine(server, tried, task_id), most_steps=40)
    what = f"{len(tried)} operations and the tools, tried with any key"
    counts = f"{explored.examples} examples, {explored.steps} steps, {RolesMachine.requests} requests"
    run.found("", what, counts, "as in the model", not explored.failure)
