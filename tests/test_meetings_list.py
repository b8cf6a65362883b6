"""Listing the caller's meetings."""

from datetime import UTC, datetime, timedelta

from harness import INSTANT

FIELDS = {"id", "title", "description", "location", "project_id", "starts_at", "ends_at", "organizer"}
FIELDS |= {"participants", "when", "created_at", "updated_at"}


def insert(server, number, organizer, hours, ends=None, *participants):
    """A meeting so many hours from now, which no call needs to make."""
    now = datetime.now(UTC)

    def at(hours):
        moment = now + timedelta(hours=hours)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    id = f"01900000-0000-7000-8000-{number:012}"
    server.rows(
        "INSERT INTO meeting (id, title, starts_at, ends_at, organizer_id, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(id, f"M{number}", at(hours), None if ends is None else at(ends), organizer["id"], at(0), at(0)),
    )
    for member in participants:
        server.rows("INSERT INTO participant (meeting_id, member_id) VALUES (?, ?)", id, member["id"])


def test_the_next_first_then_the_past_newest_first_and_only_ones_own(server, join):
    me, other = join(), join()
    insert(server, 1, me.member, -48)
    insert(server, 2, other.member, 5, 6, me.member, other.member)
    insert(server, 3, me.member, 2)
    insert(server, 4, other.member, -2, -1, me.member)
    insert(server, 5, me.member, -1, 1)  # it goes on
    insert(server, 6, other.member, 1)  # somebody else's
    shown = me.data(me.get("/meetings"))["meetings"]
    assert [(m["title"], m["when"]) for m in shown] == [
        ("M5", "upcoming"),
        ("M3", "upcoming"),
        ("M2", "upcoming"),
        ("M4", "past"),
        ("M1", "past"),
    ]
    assert all(set(m) == FIELDS and INSTANT.fullmatch(m["starts_at"]) for m in shown)
    profile = {name: me.member[name] for name in ("id", "full_name", "email", "role")}
    assert shown[0]["organizer"] == profile
    assert shown[0]["participants"] == []
    assert shown[3]["participants"] == [profile]
    assert {p["id"] for p in shown[2]["participants"]} == {me.member["id"], other.member["id"]}
    assert [m["title"] for m in other.data(other.get("/meetings"))["meetings"]] == ["M6", "M2", "M4"]


def test_who_takes_part_in_nothing_has_none(join):
    client = join("client")
    assert client.data(client.get("/meetings")) == {"meetings": []}
