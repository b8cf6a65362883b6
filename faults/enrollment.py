"""One enrollment link that many use at once: one of them joins (G14)."""

import time

from connections import Connection, connected
from findings import Run
from harness import OWNER_KEY, Server

API = "/api/v1"
USES = 100  # of one link, at once


def join_at_once(connections: list[Connection], token: str) -> tuple[int, int]:
    """Use an enrollment link over all connections at once, by the page and by the API in turn.

    Returns how many joined, and how many were told that the link is gone.
    """
    for number, connection in enumerate(connections):
        connection.send("POST", f"{API if number % 2 else ''}/enroll/{token}")
    statuses = [connection.receive()[0] for connection in connections]
    return sum(status in (200, 201) for status in statuses), statuses.count(410)


def check_enrollment(run: Run, server: Server, until: float) -> None:
    """Invite somebody, and let many use the link at once, in one round after the other."""
    rounds, is_kept, started = 0, True, time.monotonic()
    with connected(server, USES) as connections:
        while is_kept and rounds < run.count(200) and (not rounds or time.monotonic() < until):
            body = {"email": f"once-{rounds}@example.com", "full_name": "One", "role": "member"}
            invited = connections[0].ask("POST", f"{API}/members/invite", OWNER_KEY, body)[1]["data"]
            joined, refused = join_at_once(connections, invited["enrollment_link"].rpartition("/")[2])
            id = invited["member"]["id"]
            (row,) = server.rows("SELECT count(*) AS keys FROM api_key WHERE member_id = ?", id)
            is_kept = (joined, refused, row["keys"]) == (1, USES - 1, 1)
            rounds += 1
    if not is_kept:
        keys = f"{row['keys']} keys were made"
        run.fault(f"{USES} uses of one link at once: {joined} joined, {refused} were refused, {keys}")
    what = f"{USES} uses of one enrollment link at once: one member and one key"
    run.found("G14", what, f"{rounds} rounds in {time.monotonic() - started:.0f} s", "all", is_kept)
