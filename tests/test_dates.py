"""A date alone is a day in the workspace's time zone: a due date its end, any other date its beginning."""

from zoneinfo import ZoneInfo

import pytest

import times
from app import create_app
from schemas import Instant

NEEDS_SOCKET = False


@pytest.fixture(scope="module")
def server(launch_here_module):
    return launch_here_module(TASKS_WORKSPACE__TIMEZONE="Europe/Berlin")


def test_a_task_starts_when_its_day_begins_and_is_due_when_its_day_ends(owner, project):
    task = owner.make_task(project, start_date="2026-12-24", due_date="2026-12-24")
    dates = {"start_date": "2026-12-23T23:00:00.000Z", "due_date": "2026-12-24T22:59:59.999Z"}
    assert task | dates == task
    body = {"start_date": "2026-07-01", "due_date": "2026-07-01"}
    dates = {"start_date": "2026-06-30T22:00:00.000Z", "due_date": "2026-07-01T21:59:59.999Z"}
    changed = owner.data(owner.patch(f"/tasks/{task['id']}/details", body))
    assert changed | dates == changed


def test_a_time_is_understood_in_each_documented_form_and_stays(owner, project):
    exact = [f"2026-12-24{time}" for time in ("T18:30:00+01:00", "T17:30:00", "T17:30Z", "t18:30+01:00")]
    exact += ["2026-12-24T17:30", "2026-12-24T17:30:00.000+0000", "2026-12-24T12:30-0500"]  # Java's, Jira's
    for sent, stored in {
        **dict.fromkeys([*exact, "2026-12-24t17:30:00z"], "2026-12-24T17:30:00.000Z"),
        "2026-12-24T18:30:00.5Z": "2026-12-24T18:30:00.500Z",
        "2026-12-24T18:30:00.123999+02:00": "2026-12-24T16:30:00.123Z",
        "2026-12-24T00:30:00+01:00": "2026-12-23T23:30:00.000Z",
        "1970-01-02": "1970-01-02T22:59:59.999Z",
        "9999-12-31T23:59:59.999Z": "9999-12-31T23:59:59.999Z",
    }.items():
        assert owner.make_task(project, due_date=sent)["due_date"] == stored


def test_a_milestone_is_due_when_its_day_ends_and_a_meeting_and_a_filter_begin_when_it_begins(owner, project):
    milestone = owner.make(f"/projects/{project['id']}/milestones", {"title": "M", "due_date": "2026-12-24"})
    assert milestone["due_date"] == "2026-12-24T22:59:59.999Z"
    meeting = owner.make("/meetings", {"title": "M", "starts_at": "2026-12-24"})
    assert meeting["starts_at"] == "2026-12-23T23:00:00.000Z"
    eve, day = [owner.make_task(project, due_date=date) for date in ("2026-12-23", "2026-12-24")]
    for before, expected in {"2026-12-24": [eve], "2026-12-25": [day, eve]}.items():
        assert owner.read("/tasks", project_id=project["id"], due_before=before)["tasks"] == expected


def test_a_day_is_as_long_as_the_zones_clocks_say_and_an_unknown_zone_ends_the_start(monkeypatch):
    for zone, date, begins, ends in (
        # Clocks are set forward at midnight: the day begins at one o'clock.
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00.000Z", "2018-11-05T01:59:59.999Z"),
        # Clocks are set back at midnight: the day's last hour comes twice.
        ("America/Sao_Paulo", "2018-02-17", "2018-02-17T02:00:00.000Z", "2018-02-18T02:59:59.999Z"),
        ("Pacific/Kiritimati", "2026-01-01", "2025-12-31T10:00:00.000Z", "2026-01-01T09:59:59.999Z"),
    ):
        monkeypatch.setattr(times, "zone", ZoneInfo(zone))
        assert (Instant().deserialize(date), Instant(ends_day=True).deserialize(date)) == (begins, ends)
    for name in ("Mars/Base", "", "../UTC", "Europe", "posix/UTC", "localtime", 5):
        with pytest.raises(SystemExit, match="workspace.timezone"):
            create_app(workspace={"timezone": name})
