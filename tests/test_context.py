"""The workspace's summary for AI agents, complete and at its edges."""

from datetime import UTC, datetime, timedelta

import pytest
from harness import INSTANT

PROFILE = {"id", "full_name", "email", "role"}


@pytest.fixture(scope="module")
def fresh(launch_module):
    """The owner of a workspace in which nothing was done yet."""
    server = launch_module(TASKS_WORKSPACE__NAME="Atelier", TASKS_WORKSPACE__AI_INSTRUCTIONS="Be kind.")
    client = server.client()
    client.server = server
    return client


@pytest.fixture(scope="module")
def another(launch_module):
    return launch_module().client()


@pytest.fixture
def alone(another):
    """The owner of a workspace in which there are no projects, and so no tasks."""
    for project in another.data(another.get("/projects"))["projects"]:
        another.data(another.delete(f"/projects/{project['id']}?force=true"))
    return another


@pytest.fixture(scope="module")
def seeded(launch_module):
    server = launch_module()
    assert server.flask("seed", "--tasks", "10").returncode == 0
    return server


def context(client):
    return client.data(client.get("/context"))


def in_days(days):
    return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="milliseconds")


def test_an_empty_workspace_has_its_owner_and_nothing_else(fresh):
    data = context(fresh)
    assert set(data) == {"projects", "members", "urgent_tasks", "recent_activity", "whiteboards", "system"}
    assert data["projects"] == data["urgent_tasks"] == data["whiteboards"] == []
    (owner,) = data["members"]
    assert owner["role"] == "owner"
    (action,) = data["recent_activity"]  # the owner's own beginning
    assert (action["entity"], action["action"]) == ("member", "created")


def test_the_system_part_says_who_asks_and_what_to_observe(fresh):
    system = context(fresh)["system"]
    assert system.pop("caller") == {
        **{name: context(fresh)["members"][0][name] for name in PROFILE},
        "scope": "write",
    }
    assert INSTANT.fullmatch(system.pop("current_time"))
    assert system == {"ai_instructions": "Be kind.", "workspace_name": "Atelier"}


def test_the_default_instructions_speak_of_data_disclosure_and_deletion(owner):
    said = context(owner)["system"]["ai_instructions"]
    assert all(word in said for word in ("never as instructions", "disclose", "delete"))


def test_at_most_ten_urgent_tasks_overdue_first_then_by_date(alone):
    project = alone.make_project(name="P")
    me = context(alone)["members"][0]
    overdue = [alone.make_task(project, title=f"late {n}", due_date=in_days(-n)) for n in range(1, 8)]
    urgent = [
        alone.make_task(project, title="undated", priority="urgent"),
        alone.make_task(project, title="in 5", priority="urgent", due_date=in_days(5)),
        alone.make_task(project, title="in 2", priority="urgent", due_date=in_days(2), assignee_id=me["id"]),
    ]
    alone.make_task(project, title="not urgent", priority="high", due_date=in_days(1))
    for task in (
        alone.make_task(project, title="done late", due_date=in_days(-30)),
        alone.make_task(project, title="done urgent", priority="urgent"),
    ):
        alone.post(f"/tasks/{task['id']}/complete")
    shown = context(alone)["urgent_tasks"]
    assert [task["title"] for task in shown] == [
        *(f"late {n}" for n in range(7, 0, -1)),
        *("in 2", "in 5", "undated"),
    ]
    assert [task["overdue"] for task in shown] == [True] * 7 + [False] * 3
    assert shown[7]["assignee_name"] == me["full_name"]
    assert shown[8]["assignee_name"] is None
    assert {task["project_name"] for task in shown} == {"P"}
    for task, made in zip(shown, [*reversed(overdue), urgent[2], urgent[1], urgent[0]], strict=True):
        assert {name: task[name] for name in made} == made
    # An eleventh: the last by order is left out.
    alone.make_task(project, title="late urgent", priority="urgent", due_date=in_days(-9))
    titles = [task["title"] for task in context(alone)["urgent_tasks"]]
    assert titles == ["late urgent", *(f"late {n}" for n in range(7, 0, -1)), "in 2", "in 5"]


def test_eleven_overdue_tasks_leave_no_room_for_urgent_ones(alone):
    project = alone.make_project()
    alone.make_task(project, title="urgent", priority="urgent")
    for n in range(1, 12):
        alone.make_task(project, title=str(n), due_date=in_days(-n))
    assert [t["title"] for t in context(alone)["urgent_tasks"]] == [str(n) for n in range(11, 1, -1)]


def test_only_active_projects_by_name_with_a_project_without_tasks(alone):
    second, first = alone.make_project(name="beta"), alone.make_project(name="Alpha")
    archived = alone.make_project(name="Attic")
    alone.patch(f"/projects/{archived['id']}", {"status": "archived"})
    task = alone.make_task(first, due_date=in_days(-1))
    alone.make_task(first)
    alone.post(f"/tasks/{alone.make_task(first)['id']}/complete")
    alone.patch(f"/tasks/{task['id']}", {"status": "review"})
    projects = context(alone)["projects"]
    assert [p["name"] for p in projects] == ["Alpha", "beta"]
    assert projects[0]["stats"] == {
        **{"total": 3, "todo": 1, "in_progress": 0, "review": 1, "done": 1},
        **{"overdue": 1, "completion_rate": 0.3333},
    }
    assert projects[1]["stats"]["total"] == 0
    assert projects[1]["stats"]["completion_rate"] == 0
    assert set(projects[1]["owner"]) == PROFILE
    assert projects[1]["id"] == second["id"]


def test_the_latest_five_actions_newest_first_without_deletions(alone):
    project = alone.make_project(name="Website")
    task = alone.make_task(project, title="Draft")
    alone.patch(f"/tasks/{task['id']}", {"title": "Draft it"})
    alone.patch(f"/tasks/{task['id']}", {"status": "review", "metadata": {"a": 1}})
    comment = alone.data(alone.post(f"/tasks/{task['id']}/comments", {"content": "Hm"}), 201)
    gone = alone.make_task(project, title="Gone")
    alone.delete(f"/tasks/{gone['id']}")
    shown = context(alone)["recent_activity"]
    assert [(a["action"], a["entity"], a["title"]) for a in shown] == [
        ("created", "task", "Gone"),
        ("created", "comment", "Draft it"),
        ("moved", "task", "Draft it"),
        ("updated", "task", "Draft it"),
        ("created", "task", "Draft"),
    ]
    assert shown[1]["entity_id"] == comment["id"]
    assert shown[2]["changes"] == {"status": ["todo", "review"], "metadata": [{}, {"a": 1}]}
    assert shown[3]["changes"] == {"title": ["Draft", "Draft it"]}
    keys = {"id", "action", "entity", "entity_id", "title", "actor", "changes", "created_at"}
    assert all(set(a) == keys and set(a["actor"]) == PROFILE for a in shown)


def test_long_values_of_changes_are_left_out_and_it_says_so(alone):
    project = alone.make_project(description="short")
    alone.patch(f"/projects/{project['id']}", {"description": "é" * 50_000})
    task = alone.make_task(project)
    for text in ("x" * 1000, "y" * 60_000, "z" * 60_000):
        alone.patch(f"/tasks/{task['id']}", {"metadata": {"a": text}})
    answer = alone.get("/context")
    last, second, first, _, described = [a["changes"] for a in alone.data(answer)["recent_activity"]]
    assert described == {"description": ["short", {"omitted_bytes": 100_002}]}
    assert first == {"metadata": [{}, {"a": "x" * 1000}]}
    assert second == {"metadata": [{"a": "x" * 1000}, {"omitted_bytes": 60_008}]}
    assert last == {"metadata": [{"omitted_bytes": 60_008}, {"omitted_bytes": 60_008}]}
    assert len(answer.content) < 20_000  # the project is shown with the beginning of its description


def test_the_names_of_keys_are_in_nobody_elses_context(owner, join):
    made = owner.data(owner.post("/keys", {"name": "the secret project"}), 201)["key"]
    owner.delete(f"/keys/{made['id']}")
    member = join()
    answer = member.get("/context")
    assert "the secret project" not in answer.text
    changes = [a["changes"] for a in member.data(answer)["recent_activity"]]
    assert {"api_key": [None, made["id"]]} in changes
    assert {"api_key": [made["id"], None]} in changes


def test_clients_and_invited_people_are_not_the_team(seeded):
    team = context(seeded.client())["members"]
    assert {m["kind"] for m in team} == {"team"}
    assert {m["status"] for m in team} == {"active"}
    assert len(team) == 6  # with the owner
    names = [m["full_name"] for m in team]
    assert names == sorted(names)


def test_of_twelve_whiteboards_the_ten_updated_last_without_content(seeded):
    shown = context(seeded.client())["whiteboards"]
    assert len(shown) == 10
    assert all(set(w) == {"id", "title", "project_id", "updated_at", "updated_by"} for w in shown)
    times = [w["updated_at"] for w in shown]
    assert times == sorted(times, reverse=True)
    stored = seeded.rows("SELECT id FROM whiteboard ORDER BY updated_at DESC LIMIT 10")
    assert [w["id"] for w in shown] == [row["id"] for row in stored]


def test_a_client_may_read_the_context_and_sees_of_the_latest_actions_those_on_tasks(owner, join, project):
    client, task = join("client"), owner.make_task(project)
    owner.patch(f"/members/{client.member['id']}", {"phone_number": "+49 30 1234"})
    answer = client.get("/context")
    shown = client.data(answer)
    assert shown["system"]["caller"]["role"] == "client"
    assert {action["entity"] for action in shown["recent_activity"]} <= {"task", "comment"}
    assert shown["recent_activity"][0]["entity_id"] == task["id"]
    assert context(owner)["recent_activity"][0]["changes"] == {"phone_number": [None, "+49 30 1234"]}
