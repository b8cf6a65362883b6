"""Send requests about one member at once: many uses of one link (one joins, G14), and pairs of requests."""

from itertools import count
from typing import Any, NamedTuple

from connections import Connection, connected
from findings import Run
from harness import OWNER_KEY, Server

API = "/api/v1"
USES = 100  # of one link, at once


def invite(connection: Connection, email: str, role: str) -> dict[str, str]:
    """Invite somebody. Return the id, the address, and the token of the link."""
    body = {"email": email, "full_name": "A", "role": role}
    data = connection.ask("POST", f"{API}/members/invite", OWNER_KEY, body)[1]["data"]
    token = data["enrollment_link"].rpartition("/")[2]
    return {"id": data["member"]["id"], "email": email, "token": token}


def join_at_once(connections: list[Connection], token: str) -> tuple[int, int]:
    """Use an invitation link over all connections at once, by the page and by the API in turn.

    Return how many joined, and how many got the answer that the link is gone.
    """
    for number, connection in enumerate(connections):
        connection.send("POST", f"{API if number % 2 else ''}/enroll/{token}")
    statuses = [connection.receive()[0] for connection in connections]
    return sum(status in (201, 303) for status in statuses), statuses.count(410)


def check_enrollment(run: Run, server: Server) -> None:
    """Invite somebody, and let many use the link at once. Repeat that in rounds."""
    rounds, kept = run.count(40), 0
    with connected(server, USES) as connections:
        for number in range(rounds):
            invited = invite(connections[0], f"once-{number}@example.com", "member")
            joined, refused = join_at_once(connections, invited["token"])
            keys = len(server.rows("SELECT id FROM api_key WHERE member_id = ?", invited["id"]))
            if (joined, refused, keys) == (1, USES - 1, 1):
                kept += 1
            else:
                run.fault(f"{USES} uses of a link: {joined} joined, {refused} were refused, {keys} keys")
    what = f"{USES} uses of one invitation link at once, {rounds} times: one member and one key"
    run.found("G14", what, f"{kept} times", "each time", kept == rounds)


Request = tuple[str, str, str, dict[str, str] | None]  # the key's holder, method, path, body


class Pair(NamedTuple):
    """Two requests about a member, whether the member has joined, and the possible outcomes.

    An outcome consists of both statuses and the status that the new key or link gets afterwards. The last
    one is 0 if no key or link was made.
    """

    role: str
    has_joined: bool
    first: Request
    second: Request
    outcomes: set[tuple[int, int, int]]


FRIEND = {"email": "of-{email}", "full_name": "A", "role": "admin"}
ENROLL: Request = ("nobody", "POST", "/enroll/{token}", None)
RENEW_LINK: Request = ("owner", "POST", "/members/{id}/invitation", None)
REVOKE_LINK: Request = ("owner", "DELETE", "/members/{id}/invitation", None)
REMOVE: Request = ("owner", "DELETE", "/members/{id}", None)
PROMOTE: Request = ("owner", "PATCH", "/members/{id}", {"role": "owner"})
DEMOTE: Request = ("owner", "PATCH", "/members/{id}", {"role": "client"})
ADMIN_RENEWS_LINK: Request = ("admin", "POST", "/members/{id}/invitation", None)
ADMIN_MAKES_KEY: Request = ("admin", "POST", "/keys", {"name": "a", "member_id": "{id}"})
MAKE_OWN_KEY: Request = ("self", "POST", "/keys", {"name": "a"})
INVITE_FRIEND: Request = ("self", "POST", "/members/invite", FRIEND)
PAIRS = [
    Pair("member", False, ENROLL, REMOVE, {(201, 200, 401), (410, 200, 0)}),
    Pair("member", False, ENROLL, RENEW_LINK, {(201, 201, 200), (410, 201, 200)}),
    Pair("member", False, ENROLL, REVOKE_LINK, {(201, 404, 200), (410, 200, 0)}),
    # A promotion to owner ends the keys and links that an admin made for that member. Afterwards the admin
    # may not make any.
    Pair("member", False, PROMOTE, ADMIN_RENEWS_LINK, {(200, 201, 410), (200, 403, 0)}),
    Pair("member", True, PROMOTE, ADMIN_MAKES_KEY, {(200, 201, 401), (200, 403, 0)}),
    Pair("member", True, REMOVE, MAKE_OWN_KEY, {(200, 201, 401), (200, 401, 0)}),
    Pair("admin", True, DEMOTE, INVITE_FRIEND, {(200, 201, 410), (200, 403, 0)}),
]


class Members:
    """New members, each for one pair of requests."""

    def __init__(self, connections: list[Connection]):
        self.connections, self.numbers = connections, count()
        self.keys = {"owner": OWNER_KEY, "admin": self.make("admin", has_joined=True)["key"], "nobody": ""}

    def make(self, role: str, *, has_joined: bool) -> dict[str, str]:
        """Invite somebody, and join if `has_joined`. Return the id, the address, the token, and the key."""
        made = invite(self.connections[0], f"pair-{next(self.numbers)}@example.com", role)
        if has_joined:
            joined = self.connections[0].ask("POST", f"{API}/enroll/{made['token']}")[1]
            return made | {"key": joined["data"]["api_key"]}
        return made | {"key": ""}

    def outcome(self, pair: Pair, *, swapped: bool) -> tuple[int, int, int]:
        """Send both requests at once and return the outcome. `swapped` sends the second one first."""
        made = self.make(pair.role, has_joined=pair.has_joined)
        keys = self.keys | {"self": made["key"]}
        both = [(pair.first, self.connections[0]), (pair.second, self.connections[1])]
        for (who, method, path, body), connection in both[::-1] if swapped else both:
            filled = {name: text.format(**made) for name, text in body.items()} if body else None
            connection.send(method, API + path.format(**made), keys[who], filled)
        (first, one), (second, other) = (connection.receive() for _, connection in both)
        return first, second, self.worth(one.get("data", {}) | other.get("data", {}))

    def worth(self, data: dict[str, Any]) -> int:
        """Return the status that the key or the link in `data` gets."""
        if "api_key" in data:
            return self.connections[0].ask("GET", f"{API}/me", data["api_key"])[0]
        if "enrollment_link" in data:
            token = data["enrollment_link"].rpartition("/")[2]
            return self.connections[0].ask("GET", f"{API}/enroll/{token}")[0]
        return 0


def check_pairs(run: Run, server: Server) -> None:
    """Send each pair at once, again and again, in either order."""
    rounds, seen = max(2, run.count(30)), set[tuple[int, tuple[int, int, int]]]()
    with connected(server, 2) as connections:
        members = Members(connections)
        for number in range(rounds):
            seen |= {(n, members.outcome(pair, swapped=bool(number % 2))) for n, pair in enumerate(PAIRS)}
    possible = {(n, outcome) for n, pair in enumerate(PAIRS) for outcome in pair.outcomes}
    for n, outcome in sorted(seen - possible):
        run.fault(f"{PAIRS[n].first} and {PAIRS[n].second} at once: {outcome}")
    what = f"{len(PAIRS)} pairs of requests about one member at once: as one after the other"
    figure = f"{rounds} rounds, {len(seen & possible)} of {len(possible)} outcomes seen"
    run.found("", what, figure, "always", seen <= possible)
