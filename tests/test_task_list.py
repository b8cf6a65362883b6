"""Listing tasks: filters, orders, pages and totals."""

import itertools
import random

import pytest
from harness import NOBODY, UUID, fault

import schemas
from lists import FILTERS, SORTS
from models import PRIORITIES, STATUSES


@pytest.fixture(scope="module")
def listing(launch_module):
    """A server of our own with a few projects full of tasks, and the tasks as the API shows them."""
    server = launch_module()
    owner = server.client()
    projects = [owner.make_project(name=f"Project {number}") for number in range(3)]
    me = owner.data(owner.get("/context"))["system"]["caller"]["id"]
    choose = random.Random(7)  # noqa: S311 - for variety
    tasks = []
    for number in range(60):
        task = owner.make_task(
            choose.choice(projects),
            title=choose.choice(["Écrire 100% of it", "draft_page", "STRASSE", "plain"]) + f" {number}",
            description=choose.choice([None, "see L'ÉCOLE", "nothing", "a_b"]),
            priority=choose.choice(PRIORITIES),
            assignee_id=choose.choice([None, me]),
            due_date=choose.choice([None, "2026-01-05", "2026-02-05", "2026-03-05"]),
        )
        status = choose.choice(STATUSES)
        if status != "todo":
            task = owner.data(owner.patch(f"/tasks/{task['id']}", {"status": status}))
        tasks.append(task)
    owner.server, owner.me, owner.projects, owner.tasks = server, me, projects, tasks
    return owner


def every_page(client, limit=7, **query):
    """The ids of all pages, following `next_offset`."""
    ids, offset = [], 0
    while offset is not None:
        data = client.data(client.get("/tasks", limit=limit, offset=offset, **query))
        page = data["pagination"]
        assert page["limit"] == limit
        assert page["offset"] == offset
        assert page["has_more"] == (page["next_offset"] is not None)
        ids += [task["id"] for task in data["tasks"]]
        offset = page["next_offset"]
    assert page["total"] == len(ids)
    assert page["total_exact"] is True
    assert len(set(ids)) == len(ids)
    return ids


def test_the_newest_come_first_in_pages_that_do_not_overlap(listing):
    assert every_page(listing) == sorted((task["id"] for task in listing.tasks), reverse=True)


def test_a_page_has_20_tasks_unless_told(listing):
    data = listing.data(listing.get("/tasks"))
    assert len(data["tasks"]) == 20
    assert data["pagination"] == {
        "total": 60,
        "total_exact": True,
        "limit": 20,
        "offset": 0,
        "has_more": True,
        "next_offset": 20,
    }
    assert data["tasks"][0] == listing.tasks[-1]


def test_the_filters_combine(listing):
    for project, status, priority, mine, due in itertools.product(
        (None, listing.projects[0]["id"]),
        (None, "todo", "done"),
        (None, "urgent"),
        (None, "me"),
        (None, "2026-02-05"),
    ):
        query = {"project_id": project, "status": status, "priority": priority, "assignee_id": mine}
        query |= {"due_before": due}
        expected = [
            task["id"]
            for task in reversed(listing.tasks)
            if (project is None or task["project_id"] == project)
            and (status is None or task["status"] == status)
            and (priority is None or task["priority"] == priority)
            and (mine is None or task["assignee_id"] == listing.me)
            and (due is None or (task["due_date"] or "9") < "2026-02-05T00:00:00.000Z")
        ]
        assert every_page(listing, 100, **query) == expected, query


def test_due_before_excludes_that_moment_and_updated_since_includes_it(listing):
    at = "2026-02-05T23:59:59.999Z"
    due = [task for task in listing.tasks if task["due_date"] == at]
    assert due
    found = every_page(listing, 100, due_before=at)
    assert not {task["id"] for task in due} & set(found)
    assert {task["id"] for task in due} <= set(every_page(listing, 100, due_before="2026-02-06"))
    last = max(task["updated_at"] for task in listing.tasks)
    assert every_page(listing, 100, updated_since=last) == [
        task["id"] for task in reversed(listing.tasks) if task["updated_at"] >= last
    ]


@pytest.mark.parametrize(
    "text", ["école", "ÉCOLE", "e\u0301cole", "100%", "t_p", "strasse", "straße", "plain 1"]
)
def test_text_is_found_in_every_script_and_literally(listing, text):
    words = {"e\u0301cole": "école", "straße": "strasse"}.get(text, text.lower())
    expected = [
        task["id"]
        for task in reversed(listing.tasks)
        if words in task["title"].lower() or words in (task["description"] or "").lower()
    ]
    assert expected
    assert every_page(listing, 100, q=text) == expected


def test_text_does_not_span_title_and_description(owner, project):
    owner.make_task(project, title="one", description="two")
    assert owner.data(owner.get("/tasks", project_id=project["id"], q="onetwo"))["tasks"] == []
    assert owner.data(owner.get("/tasks", project_id=project["id"], q="nothing at all"))["tasks"] == []


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort])
def test_each_order_is_total_with_undated_tasks_last(listing, sort):
    name, falling = sort.lstrip("-"), sort.startswith("-")
    value = {"priority": lambda task: PRIORITIES.index(task["priority"])}.get(name, lambda task: task[name])
    dated = [task for task in listing.tasks if value(task) is not None]
    undated = [task for task in listing.tasks if value(task) is None]
    expected = sorted(dated, key=lambda task: (value(task), task["id"]), reverse=falling)
    expected += sorted(undated, key=lambda task: task["id"], reverse=falling)
    assert every_page(listing, 7, sort=sort) == [task["id"] for task in expected]


@pytest.mark.parametrize("name", ["project_id", "assignee_id", "milestone_id"])
def test_an_id_of_nothing_gives_an_empty_list(listing, name):
    data = listing.data(listing.get("/tasks", **{name: NOBODY}))
    assert data["tasks"] == []
    assert data["pagination"]["total"] == 0
    assert data["pagination"]["has_more"] is False


def test_ids_in_capitals_filter_too(listing):
    id = listing.projects[0]["id"]
    assert UUID.fullmatch(id)
    assert every_page(listing, 100, project_id=id.upper()) == every_page(listing, 100, project_id=id)


def test_past_the_end_is_an_empty_page(listing):
    data = listing.data(listing.get("/tasks", offset=2**31 - 1))
    assert data["tasks"] == []
    assert data["pagination"]["total"] == 60


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("limit", value)
            for value in ("0", "101", "-1", "abc", "", "1.5", "1e2", "1_0", " 7", "٣", "9" * 3000)
        ),
        *(("offset", value) for value in ("-1", str(2**31), str(2**63), "x")),
        *(("project_id", value) for value in ("x", "%", "", "{" + NOBODY + "}", NOBODY.replace("-", ""))),
        ("project_id", NOBODY.replace("0", "０")),
        ("assignee_id", "You"),
        ("milestone_id", "1"),
        *(("status", value) for value in ("bogus", "TODO", "", "todo,done")),
        *(("priority", value) for value in ("High", "higһ", "")),
        *(("due_before", value) for value in ("soon", "2026-W01-1", "20260101", "2026-13-01", "9" * 3000)),
        ("updated_since", "0000-01-01"),
        *(("q", value) for value in ("", "  ", "x" * 201)),
        *(
            ("sort", value)
            for value in ("title", "id", "--priority", "project__name", "priority;DROP TABLE task")
        ),
        *((name, "1") for name in ("order", "project_id[]", "page", "limit ")),
    ],
)
def test_a_parameter_that_is_not_understood_is_refused(owner, name, value):
    fault(owner.get("/tasks", **{name: value}), 422, "validation_error", name)


def test_a_search_of_200_characters_is_taken(owner):
    assert owner.get("/tasks", q="x" * 200).status_code == 200


def test_a_repeated_parameter_is_refused(owner):
    fault(owner.request("GET", "/tasks?limit=5&limit=5"), 422, "validation_error", "limit")


def test_every_wrong_parameter_is_named(owner):
    answer = owner.get("/tasks", limit="x", status="y", colour="z")
    fault(answer, 422, "validation_error", "limit", "status", "colour")


def test_every_filter_and_order_has_its_place_in_the_schema():
    fields = schemas.TaskQuery().fields
    assert set(FILTERS) - {"unassigned"} | {"limit", "offset", "sort", "include"} == set(fields)
    assert set(fields["sort"].validate.choices) == {sort for sort in SORTS if sort}


def test_the_number_of_comments_is_included_where_it_is_asked_for(owner, project):
    quiet, discussed = owner.make_task(project), owner.make_task(project)
    for n in range(3):
        owner.post(f"/tasks/{discussed['id']}/comments", {"content": str(n)})
    query = {"project_id": project["id"]}
    plain = owner.data(owner.get("/tasks", **query))["tasks"]
    assert plain == [discussed, quiet]
    counted = owner.data(owner.get("/tasks", include="comment_count", **query))["tasks"]
    assert counted == [discussed | {"comment_count": 3}, quiet | {"comment_count": 0}]
    fault(owner.get("/tasks", include="comments"), 422, "validation_error", "include")


def test_a_total_beyond_10_000_is_said_to_be_inexact(launch):
    server = launch()
    server.flask("seed", "--tasks", "12000")
    owner = server.client()
    page = owner.data(owner.get("/tasks", limit=1))["pagination"]
    assert (page["total"], page["total_exact"]) == (10_000, False)
    projects = owner.data(owner.get("/projects"))["projects"]
    counted = {p["id"]: p["stats"]["total"] for p in projects}
    assert sum(counted.values()) == 12_000
    for id, total in counted.items():
        page = owner.data(owner.get("/tasks", project_id=id, limit=1))["pagination"]
        assert (page["total"], page["total_exact"]) == (total, True)
    page = owner.data(owner.get("/tasks", updated_since="1970-01-01", limit=1))["pagination"]
    assert (page["total"], page["total_exact"]) == (10_000, False)
    # The last page of what was counted no further is still told from the rows.
    page = owner.data(owner.get("/tasks", updated_since="1970-01-01", limit=100, offset=11_950))
    assert len(page["tasks"]) == 50
    assert page["pagination"]["has_more"] is False


def test_all_that_is_wrong_with_a_query_is_said(owner):
    answer = owner.request(
        "GET", "/tasks?limit=0&sort=name&foo=1&foo=2&limit=3&due_before=never&assignee_id=you"
    )
    error = fault(answer, 422, "validation_error", "limit", "sort", "foo", "due_before", "assignee_id")
    said = {detail["field"]: detail["message"] for detail in error["details"]}
    assert said["limit"] == said["foo"] == "is repeated"
    assert said["assignee_id"] == "must be a UUID or me or none"


def test_nobodys_tasks_are_found(listing):
    nobodys = [task for task in listing.tasks if task["assignee_id"] is None]
    assert every_page(listing, assignee_id="none") == [task["id"] for task in reversed(nobodys)]
    done = [task["id"] for task in reversed(nobodys) if task["status"] == "done"]
    assert every_page(listing, assignee_id="none", status="done", sort="-created_at") == done


def test_the_tasks_of_archived_projects_are_left_out_where_it_is_asked_for(launch):
    owner = launch().client()
    kept, archived = owner.make_project(name="Kept"), owner.make_project(name="Attic")
    shown = [owner.make_task(kept, due_date="2026-01-01")["id"] for _ in range(3)]
    hidden = [owner.make_task(archived, due_date="2026-01-01")["id"] for _ in range(3)]
    owner.patch(f"/tasks/{shown[0]}", {"status": "review"})
    owner.patch(f"/projects/{archived['id']}", {"status": "archived"})
    assert every_page(owner) == (shown + hidden)[::-1]
    for query in (
        {},
        {"sort": "-updated_at"},
        {"sort": "due_date"},
        {"due_before": "2026-02-01"},
        {"q": "task"},
    ):
        assert set(every_page(owner, archived="false", **query)) == set(shown), query
    assert every_page(owner, archived="false", status="todo") == [shown[2], shown[1]]
    assert every_page(owner, archived="false", project_id=archived["id"]) == []
    assert {task["id"] for task in owner.data(owner.get("/context"))["urgent_tasks"]} == set(shown)
    owner.patch(f"/projects/{archived['id']}", {"status": "active"})
    assert every_page(owner, archived="false") == (shown + hidden)[::-1]
    fault(owner.get("/tasks", archived="true"), 422, "validation_error", "archived")


def test_a_plus_that_was_not_escaped_is_pointed_out(owner):
    answer = owner.request("GET", "/tasks?updated_since=2026-12-01T10:00:00+01:00")
    assert "%2B" in fault(answer, 422, "validation_error", "updated_since")["message"]
    answer = owner.request("GET", "/tasks?updated_since=2026-12-01T10:00:00%2B01:00")
    assert answer.status_code == 200


def test_a_text_that_changes_is_found_and_the_other_one_still(owner, project):
    task = owner.make_task(project, title="Crème", description="brûlée")
    owner.patch(f"/tasks/{task['id']}", {"title": "Gâteau"})
    found = {
        text: every_page(owner, project_id=project["id"], q=text) for text in ("CRÈME", "GÂTEAU", "BRÛLÉE")
    }
    assert found == {"CRÈME": [], "GÂTEAU": [task["id"]], "BRÛLÉE": [task["id"]]}
    owner.patch(f"/tasks/{task['id']}/details", {"description": None})
    assert every_page(owner, project_id=project["id"], q="BRÛLÉE") == []
    assert every_page(owner, project_id=project["id"], q="gâteau") == [task["id"]]
