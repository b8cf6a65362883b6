"""The calendar link: what it shows, in which form, and when it ends."""

import re
import socket
from datetime import UTC, date, datetime, timedelta
from functools import partial

import icalendar
from harness import OWNER_KEY, at_once, fault
from test_keys import days, make_key
from test_members import removed

NEEDS_SOCKET = False

ODD = "Ship; it, \\now\\n: „Grüße“ 👩‍👩‍👧‍👦 " + "ÄÖÜ" * 40


def link_of(client, status=201):
    return client.data(client.post("/calendar"), status)["url"]


def fetch(server, url, method="GET", **headers):
    return server.call(method, url.removeprefix("http://127.0.0.1:8000"), headers=headers)


def entries(server, url):
    """The calendar's entries by their UIDs, as another program reads them."""
    answer = fetch(server, url)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/calendar; charset=utf-8")
    lines = answer.content.split(b"\r\n")
    assert lines.pop() == b""
    assert all(len(line) <= 75 and b"\r" not in line and b"\n" not in line for line in lines)
    calendar = icalendar.Calendar.from_ical(answer.content)
    assert calendar.errors == []
    assert [part.errors for part in calendar.walk() if part.errors] == []
    assert (calendar["VERSION"], calendar["X-WR-CALNAME"]) == ("2.0", "Workspace")
    assert (calendar["REFRESH-INTERVAL"].dt, calendar["X-PUBLISHED-TTL"]) == (timedelta(hours=1), "PT1H")
    return {str(event["UID"]): event for event in calendar.walk("VEVENT")}


def test_a_calendar_has_ones_due_open_tasks_of_a_year_as_days_that_link_to_them(server, owner, join):
    member, project = join("member"), owner.make_project()
    theirs = {"project_id": project["id"], "assignee_id": member.member["id"]}

    def make(**fields):
        return member.make_task(project, **theirs | fields)

    url, today = link_of(member), datetime.now(UTC).date()
    assert url.startswith("http://127.0.0.1:8000/calendar/tms_")
    assert entries(server, url) == {}
    shown = [make(due_date=str(today + timedelta(days=n)), title=f"in {n} days") for n in (-27, 0, 364)]
    archived = owner.make_project()
    for fields in ({"assignee_id": None}, {"project_id": archived["id"]}, {"due_date": None}):
        make(**{"due_date": days(1)} | fields)
    for far in (-29, 366):
        make(due_date=days(far))
    owner.data(owner.post(f"/tasks/{make(due_date=days(1))['id']}/complete"))
    owner.data(owner.patch(f"/projects/{archived['id']}", {"status": "archived"}))
    events = entries(server, url)
    assert list(events) == [task["id"] for task in shown]
    for task, event in zip(shown, events.values(), strict=True):
        day = date.fromisoformat(task["due_date"][:10])
        assert (event["DTSTART"].dt, event["DTEND"].dt) == (day, day + timedelta(days=1))
        assert (event["SUMMARY"], event["TRANSP"]) == (task["title"], "TRANSPARENT")
        assert event["DTSTAMP"].dt == datetime.fromisoformat(task["updated_at"]).replace(microsecond=0)
        assert event["URL"] == event["DESCRIPTION"] == f"http://127.0.0.1:8000/#task={task['number']}"


def test_a_calendar_has_ones_meetings_with_times_place_and_description(server, owner, join):
    client, member = join("client"), join("member")
    starts = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)

    def make(**fields):
        return owner.make("/meetings", {"title": "Talk"} | fields)

    body = {"participant_ids": [client.member["id"]], "location": "Room 1, left", "description": "A\nB"}
    whole = make(**body, starts_at=starts.isoformat(), ends_at=(starts + timedelta(hours=1)).isoformat())
    brief = make(**body | {"location": None}, starts_at=starts.isoformat(), ends_at=starts.isoformat())
    running = make(**body, starts_at=days(-40), ends_at=days(1))
    for fields in ({"starts_at": days(-30)}, {"starts_at": days(366)}):
        make(**body | fields)
    make(starts_at=days(1), participant_ids=[member.member["id"]])
    events = entries(server, link_of(client))
    assert list(events) == [running["id"], whole["id"], brief["id"]]
    event = events[whole["id"]]
    assert (event["DTSTART"].dt, event["DTEND"].dt) == (starts, starts + timedelta(hours=1))
    assert (event["LOCATION"], event["URL"]) == ("Room 1, left", "http://127.0.0.1:8000/#view=meetings")
    assert event["DESCRIPTION"] == "A\nB\n\nhttp://127.0.0.1:8000/#view=meetings"
    # A meeting without an end, or with the end at its start, lasts an hour: calendars show no point of time.
    for meeting in (brief, make(**body, starts_at=starts.isoformat())):
        assert entries(server, link_of(client))[meeting["id"]]["DTEND"].dt == starts + timedelta(hours=1)
    assert (event["SEQUENCE"], event["LAST-MODIFIED"].dt) == (0, event["DTSTAMP"].dt)
    server.rows("UPDATE meeting SET created_at = '2026-01-01T00:00:00.000Z' WHERE id = ?", whole["id"])
    event = entries(server, link_of(client))[whole["id"]]
    changed = datetime.fromisoformat(whole["updated_at"]).replace(microsecond=0)
    assert event["LAST-MODIFIED"].dt == changed
    assert event["SEQUENCE"] == (changed - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds()


def test_no_text_breaks_out_of_its_line(server, owner, join):
    member = join("member")
    mine = {"due_date": days(1), "assignee_id": member.member["id"]}
    task = member.make_task(owner.make_project(), title=ODD, **mine)
    lines = f"{ODD}\r\nBEGIN:VEVENT\u2028\t\x07\x0b{ODD}\u2029\x85"
    body = {"title": "Talk", "description": lines, "location": ODD, "starts_at": days(1)}
    meeting = member.make("/meetings", body)
    events = entries(server, link_of(member))
    assert set(events) == {task["id"], meeting["id"]}
    assert events[task["id"]]["SUMMARY"] == events[meeting["id"]]["LOCATION"] == ODD
    assert events[meeting["id"]]["DESCRIPTION"].startswith(f"{ODD}\nBEGIN:VEVENT\n\t{ODD}\n\n\n\nhttp")
    pasted = member.data(member.patch(f"/tasks/{task['id']}", {"title": "One\u2028two\u2029"}))
    assert pasted["title"] == "One two"


def test_a_due_date_is_a_day_of_the_workspace_and_a_calendar_counts_as_a_request_of_its_member(launch_here):
    server = launch_here(TASKS_WORKSPACE__TIMEZONE="Pacific/Honolulu", TASKS_LIMITS__REQUESTS_PER_MINUTE="6")
    owner = server.client()
    day = date.today() + timedelta(days=3)
    task = owner.make_task(owner.make_project(), due_date=str(day), assignee_id=owner.member["id"])
    assert task["due_date"][:10] == str(day + timedelta(days=1))  # in UTC
    url = link_of(owner)
    assert entries(server, url)[task["id"]]["DTSTART"].dt == day  # the fifth request
    assert [fetch(server, url).status_code for _ in range(2)] == [200, 429]


def test_an_unchanged_calendar_is_a_304(server, owner, join):
    member = join()
    url = link_of(member)
    first = fetch(server, url)
    assert first.headers["Cache-Control"] == "private, no-cache"
    tag = first.headers["ETag"]
    for given in (tag, f'"other", W/{tag}', "*"):
        same = fetch(server, url, **{"If-None-Match": given})
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    head = fetch(server, url, "HEAD")
    assert (head.status_code, head.content, head.headers["ETag"]) == (200, b"", tag)
    assert head.headers["Content-Length"] == str(len(first.content))
    assert fetch(server, url, "POST").status_code == 405
    member.make_task(owner.make_project(), due_date=days(1), assignee_id=member.member["id"])
    changed = fetch(server, url, **{"If-None-Match": tag})
    assert (changed.status_code, changed.headers["ETag"] == tag) == (200, False)


def test_a_member_has_one_link_until_it_is_revoked_or_the_member_removed(server, owner, join):
    member = join("client")
    assert member.data(member.delete("/calendar")) == {"revoked": False}
    first, second = link_of(member), link_of(member)
    assert (fetch(server, first).status_code, fetch(server, second).status_code) == (404, 200)
    links = [answer.json()["data"]["url"] for answer in at_once(*[partial(member.post, "/calendar")] * 4)]
    assert sorted(fetch(server, url).status_code for url in links) == [200, 404, 404, 404]
    (key,) = [key for key in member.read("/keys")["keys"] if key["revoked_at"] is None][1:]
    assert (key["name"], key["scope"], key["is_session"]) == ("Calendar link", "calendar", False)
    assert member.data(member.delete("/calendar")) == {"revoked": True}
    assert member.data(member.delete("/calendar")) == {"revoked": False}
    assert {fetch(server, url, method).status_code for url in links for method in ("GET", "HEAD")} == {404}
    last = link_of(member)
    assert removed(owner, member.member).status_code == 200
    assert fetch(server, last).status_code == 404


def test_a_link_lives_no_longer_than_the_key_that_made_it_which_may_not_only_read(server, owner):
    brief = make_key(owner, expires_at=days(2))
    link_of(server.client(brief["api_key"]))
    newest = max(owner.read("/keys")["keys"], key=lambda key: key["id"])
    assert (newest["scope"], newest["expires_at"]) == ("calendar", brief["key"]["expires_at"])
    fault(server.client(make_key(owner, scope="read")["api_key"]).post("/calendar"), 403, "forbidden")


def test_only_the_whole_token_opens_a_calendar(server, owner, join):
    member = join()
    token = link_of(member).rpartition("/")[2].removesuffix(".ics")
    guesses = [member.key, OWNER_KEY, token[:-1], token.lower(), f"{token}x", "", "%00", "é", "x" * 4000]
    for guess in (*guesses, "a%2Fb"):
        assert fetch(server, f"/calendar/{guess}.ics").status_code == 404, guess
    fault(owner.post("/keys", {"name": "x", "scope": "calendar"}), 422, "validation_error", "scope")
    answer = member.post("/calendar", headers={"Idempotency-Key": "1"})
    fault(answer, 422, "validation_error", "Idempotency-Key")


def test_no_log_figure_or_file_has_the_token(launch):
    server = launch()
    url = link_of(server.join())
    token = url.rpartition("/")[2].removesuffix(".ics")
    assert (fetch(server, url).status_code, fetch(server, f"{url}/more?{token}").status_code) == (200, 404)
    assert fetch(server, "/", Referer=url).status_code == 200
    for target in (token, token.replace("_", "%5F", 1) + "\xff"):
        with socket.create_connection(("127.0.0.1", int(server.base.rpartition(":")[2]))) as connection:
            connection.sendall(f"GET /calendar/{target}.ics HTTP/9\r\n\r\n".encode("latin-1"))
            assert token[4:] not in connection.recv(65536).decode()
    figures = fetch(server, "/metrics", Authorization=f"Bearer {OWNER_KEY}").text
    assert 'route="/calendar/:key.ics"' in figures
    kept = server.log.read_bytes() + server.database.read_bytes() + figures.encode()
    kept += server.database.with_name("tasks.db-wal").read_bytes()
    assert token[20:].encode() not in kept
    assert re.search("GET /calendar/ 200 .* GET /calendar/ 404 ", server.log.read_text(), re.DOTALL)
