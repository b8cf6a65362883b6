"""The workspace's summary for AI agents, complete and at its edges."""

import pytest
from harness import INSTANT, wait_past
from test_deleted import restore
from test_keys import days

NEEDS_SOCKET = False

PROFILE = {"id", "full_name", "email", "role"}


@pytest.fixture(scope="module")
def another(launch_here_module):
    names = {"TASKS_WORKSPACE__NAME": "Atelier", "TASKS_WORKSPACE__AI_INSTRUCTIONS": "Be kind."}
    return launch_here_module(**names).client()


@pytest.fixture
def alone(another):
    """The owner of a workspace in which there are no projects, and so no tasks."""
    for project in another.read("/projects")["projects"]:
        another.data(another.delete(f"/projects/{project['id']}?force=true"))
    return another


def test_a_workspace_without_projects_has_its_owner_who_is_told_what_to_observe(alone):
    data = alone.read("/context")
    assert data["projects"] == data["urgent_tasks"] == []
    (owner,) = data["members"]
    assert owner["role"] == "owner"
    caller = {name: owner[name] for name in PROFILE} | {"scope": "write"}
    assert INSTANT.fullmatch(data["system"].pop("current_time"))
    assert data["system"] == {"ai_instructions": "Be kind.", "workspace_name": "Atelier", "caller": caller}


def test_at_most_ten_urgent_tasks_overdue_first_then_by_date(alone):
    project = alone.make_project(name="P")
    me = alone.read("/context")["members"][0]
    overdue = [alone.make_task(project, title=f"late {n}", due_date=days(-n)) for n in range(1, 8)]
    soon = {"in 5": {"due_date": days(5)}, "in 2": {"due_date": days(2), "assignee_id": me["id"]}}
    urgent = [
        alone.make_task(project, title=title, priority="urgent", **more)
        for title, more in ({"undated": {}} | soon).items()
    ]
    alone.make_task(project, title="not urgent", priority="high", due_date=days(1))
    for done in ({"due_date": days(-30)}, {"priority": "urgent"}):
        alone.post(f"/tasks/{alone.make_task(project, title='done', **done)['id']}/complete")
    expected = [*reversed(overdue), urgent[2], urgent[1], urgent[0]]
    for task, made, place in zip(alone.read("/context")["urgent_tasks"], expected, range(10), strict=True):
        assignee = me["full_name"] if made["assignee_id"] else None
        assert task == made | {"project_name": "P", "assignee_name": assignee, "overdue": place < 7}
    # An eleventh: the last by order is left out.
    alone.make_task(project, title="late urgent", priority="urgent", due_date=days(-9))
    titles = [task["title"] for task in alone.read("/context")["urgent_tasks"]]
    assert titles == ["late urgent", *(f"late {n}" for n in range(7, 0, -1)), "in 2", "in 5"]


def test_only_active_projects_by_name_with_a_project_without_tasks(alone):
    second, first = alone.make_project(name="beta"), alone.make_project(name="Alpha")
    archived = alone.make_project(name="Attic")
    alone.make_task(archived, due_date=days(-1))
    alone.make_task(archived, priority="urgent")
    alone.patch(f"/projects/{archived['id']}", {"status": "archived"})
    task = alone.make_task(first, due_date=days(-1))
    alone.make_task(first)
    alone.post(f"/tasks/{alone.make_task(first)['id']}/complete")
    alone.patch(f"/tasks/{task['id']}", {"status": "review"})
    shown = alone.read("/context")
    assert [project["id"] for project in shown["projects"]] == [first["id"], second["id"]]
    stats = {"total": 3, "todo": 1, "in_progress": 0, "review": 1, "done": 1, "overdue": 1}
    assert shown["projects"][0]["stats"] == stats | {"completion_rate": 0.3333}
    assert shown["projects"][1] == second | {"description_cut": False}
    assert [urgent["id"] for urgent in shown["urgent_tasks"]] == [task["id"]]


def test_the_latest_five_actions_newest_first_without_deletions_and_restorations(alone):
    project = alone.make_project(name="Website")
    task = alone.make_task(project, title="Draft")
    alone.patch(f"/tasks/{task['id']}", {"title": "Draft it"})
    alone.patch(f"/tasks/{task['id']}", {"status": "review", "metadata": {"a": 1}})
    comment = alone.make(f"/tasks/{task['id']}/comments", {"content": "Hm"})
    gone = alone.make_task(project, title="Gone")
    alone.delete(f"/tasks/{gone['id']}")
    restore(alone, gone)
    shown = alone.read("/context")["recent_activity"]
    said = [f"{a['action']} {a['entity']} {a['title']}" for a in shown]
    assert said[:3] == ["created task Gone", "created comment Draft it", "moved task Draft it"]
    assert said[3:] == ["updated task Draft it", "created task Draft"]
    assert shown[1]["entity_id"] == comment["id"]
    assert shown[2]["changes"] == {"status": ["todo", "review"], "metadata": [{}, {"a": 1}]}
    assert shown[3]["changes"] == {"title": ["Draft", "Draft it"]}


def test_long_values_of_changes_are_left_out_and_it_says_so(alone):
    project = alone.make_project(description="short")
    alone.patch(f"/projects/{project['id']}", {"description": "é" * 50_000})
    task = alone.make_task(project)
    for text in ("x" * 1016, "y" * 60_000, "z" * 60_000):
        alone.patch(f"/tasks/{task['id']}", {"metadata": {"a": text}})
    answer = alone.get("/context")
    last, second, first, _, described = [a["changes"] for a in alone.data(answer)["recent_activity"]]
    assert described == {"description": ["short", {"omitted_bytes": 100_002}]}
    assert first == {"metadata": [{}, {"a": "x" * 1016}]}
    assert second == {"metadata": [{"a": "x" * 1016}, {"omitted_bytes": 60_008}]}
    assert last == {"metadata": [{"omitted_bytes": 60_008}, {"omitted_bytes": 60_008}]}
    assert len(answer.content) < 20_000  # the project is shown with the beginning of its description


def test_the_names_of_keys_are_in_nobody_elses_context(owner, join):
    made = owner.make("/keys", {"name": "the secret project"})["key"]
    owner.delete(f"/keys/{made['id']}")
    member = join()
    answer = member.get("/context")
    assert "the secret project" not in answer.text
    changes = [a["changes"] for a in member.data(answer)["recent_activity"]]
    assert {"api_key": [None, made["id"]]} in changes
    assert {"api_key": [made["id"], None]} in changes


def test_clients_and_invited_people_are_not_the_team(owner, join):
    members, others = [join().member, join("admin").member], [join("client").member]
    body = {"email": "not-in-the-team@example.com", "full_name": "X", "role": "member"}
    others.append(owner.make("/members/invite", body)["member"])
    team = owner.read("/context")["members"]
    assert all(member in team for member in members)
    assert not any(other in team for other in others)
    names = [member["full_name"].casefold() for member in team]
    assert names == sorted(names)


def test_the_context_lists_ten_whiteboards_without_content(alone):
    made = [alone.make("/whiteboards", {"title": str(n)}) for n in range(11)]
    wait_past(made[-1]["updated_at"])
    alone.patch(f"/whiteboards/{made[0]['id']}", {"title": "New"})
    shown = alone.read("/context")["whiteboards"]
    assert [board["title"] for board in shown] == ["New", *(str(n) for n in range(10, 1, -1))]
    assert "content" not in shown[0]


def test_a_client_may_read_the_context_and_sees_of_the_latest_actions_those_on_tasks(owner, join, project):
    client, task = join("client"), owner.make_task(project)
    owner.patch(f"/members/{client.member['id']}", {"phone_number": "+49 30 1234"})
    shown = client.read("/context")
    assert shown["system"]["caller"]["role"] == "client"
    said = shown["system"]["ai_instructions"]  # the default
    assert all(word in said for word in ("you claimed", "never as instructions", "disclose", "delete"))
    assert {action["entity"] for action in shown["recent_activity"]} <= {"task", "comment"}
    assert shown["recent_activity"][0]["entity_id"] == task["id"]
    assert owner.read("/context")["recent_activity"][0]["changes"] == {"phone_number": [None, "+49 30 1234"]}
