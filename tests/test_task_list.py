"""Listing tasks: filters, orders, pages and totals."""

import itertools
import random

import pytest
from harness import NOBODY, add_copies
from test_changes import end

from lists import SORTS
from models import PRIORITIES, STATUSES

NEEDS_SOCKET = False


@pytest.fixture(scope="module")
def listing(launch_here_module):
    """A server with a few projects (the last one is archived), and their tasks as the API shows them."""
    owner = launch_here_module().client()
    projects = [owner.make_project(name=f"Project {number}") for number in range(3)]
    me = owner.member["id"]
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
    owner.patch(f"/projects/{projects[-1]['id']}", {"status": "archived"})
    owner.me, owner.projects, owner.tasks = me, projects, tasks
    return owner


def every_page(client, limit=7, **query):
    """The ids of all pages, following `next_offset`."""
    ids, offset = [], 0
    while offset is not None:
        data = client.read("/tasks", limit=limit, offset=offset, **query)
        page = data["pagination"]
        assert (page["limit"], page["offset"]) == (limit, offset)
        assert page["has_more"] == (page["next_offset"] is not None)
        ids += [task["id"] for task in data["tasks"]]
        offset = page["next_offset"]
    assert (page["total"], page["total_exact"]) == (len(ids), True)
    assert len(set(ids)) == len(ids)
    return ids


def test_the_newest_come_first_in_pages_that_do_not_overlap_of_20_tasks_unless_told(listing):
    assert every_page(listing) == sorted((task["id"] for task in listing.tasks), reverse=True)
    data = listing.read("/tasks")
    assert len(data["tasks"]) == 20
    page = {"total": 60, "total_exact": True, "limit": 20, "offset": 0, "has_more": True, "next_offset": 20}
    assert data["pagination"] == page | {"next_after": None}
    assert data["tasks"][0] == listing.tasks[-1]


def test_the_filters_combine(listing):
    values = [(None, listing.projects[0]["id"]), (None, "todo", "done"), (None, "urgent", "high")]
    values += [(None, "me", "none"), (None, "2026-02-05"), (None, "false")]
    for project, status, priority, assignee, due, archived in itertools.product(*values):
        query = {"project_id": project, "status": status, "priority": priority, "assignee_id": assignee}
        query |= {"due_before": due, "archived": archived}
        expected = [
            task["id"]
            for task in reversed(listing.tasks)
            if (project is None or task["project_id"] == project)
            and (status is None or task["status"] == status)
            and (priority is None or task["priority"] == priority)
            and (assignee is None or task["assignee_id"] == {"me": listing.me, "none": None}[assignee])
            and (due is None or (task["due_date"] or "9") < "2026-02-05T00:00:00.000Z")
            and (archived is None or task["project_id"] != listing.projects[2]["id"])
        ]
        assert every_page(listing, 100, **query) == expected, query


def test_due_before_excludes_that_moment_and_since_includes_it(listing):
    at = "2026-02-05T23:59:59.999Z"
    due = {task["id"] for task in listing.tasks if task["due_date"] == at}
    assert due
    assert not due & {*every_page(listing, 100, due_before=at)}
    assert due <= {*every_page(listing, 100, due_before="2026-02-06")}
    assert due <= {*every_page(listing, 100, due_since=at)}
    assert {*every_page(listing, 100, due_since="2026-02-05", due_before="2026-02-06")} == due
    later = {task["id"] for task in listing.tasks if (task["due_date"] or "") > at}
    assert {*every_page(listing, 100, due_since="2026-02-06")} == later
    last = max(task["updated_at"] for task in listing.tasks)
    late = [task["id"] for task in reversed(listing.tasks) if task["updated_at"] >= last]
    assert every_page(listing, 100, updated_since=last) == late


# The words of a search, and the words that the title or the description must contain.
SEARCHES = {
    **dict.fromkeys(["école", "ÉCOLE", "e\u0301cole", "ecole", "ｅｃｏｌｅ", "\"l'ecole"], ["école"]),
    **{"100%": ["100%"], "t_p": ["t_p"], "strasse": ["strasse"], "straße": ["strasse"]},
    **{"1 plain": ["plain", "1"], '"plain 1"': ["plain 1"], '"see l" plain': ["see l", "plain"]},
    **dict.fromkeys(['"', '" "" ', '""\u0301'], []),
    **{'1 "of it': ["1", "of it"], "1 o % of it écrire": ["1", "écrire 100% of it"]},
}


@pytest.mark.parametrize("text", SEARCHES)
def test_all_words_and_phrases_are_found_in_every_script_and_literally(listing, text):
    texts = {task["id"]: f"{task['title']}|{task['description']}".lower() for task in reversed(listing.tasks)}
    expected = [id for id in texts if all(word in texts[id] for word in SEARCHES[text])]
    assert expected
    assert every_page(listing, 100, q=text) == expected


def test_a_phrase_does_not_span_title_and_description_and_parts_of_letters_are_no_accents(owner, project):
    owner.make_task(project, title="one が한", description="two")
    found = {"two one": 1, "が": 1, "か": 0, "한": 1, "하": 0, "onetwo": 0, '"one two"': 0, "one three": 0}
    for text, count in found.items():
        assert len(every_page(owner, project_id=project["id"], q=text)) == count, text


def test_strokes_and_typographic_signs_do_not_count(owner, project):
    task = owner.make_task(project, title="Łódź – it’s Ørsted’s “e\u2011mail” \u22125")
    owner.make(f"/tasks/{task['id']}/comments", {"content": "Đorđe ‘said’ so"})
    texts = ["lodz", "ŁODZ", "it's", "it‘s", '"orsted\'s"', "e-mail", "“lodz - it's”", "-5", "dorde 'said'"]
    for text in texts:
        assert every_page(owner, project_id=project["id"], q=text) == [task["id"]], text


def test_words_of_a_comment_numbers_and_a_text_that_changes_are_found(owner, project):
    task, other = (owner.make_task(project, title=title) for title in ("Ländle", "Plan #7000001 [a*?]"))
    comments = f"/tasks/{task['id']}/comments"
    made = [owner.make(comments, {"content": f"Ein {word} Text"}) for word in ("Öl", "Gas")]
    of = {"project_id": project["id"]}

    def found(text):
        return every_page(owner, **of, q=text)

    for text in ("text öl", "gas", f"#{task['number']}", str(task["number"]), '"ein gas"'):
        assert found(text) == [task["id"]], text
    assert found("öl gas") == found("ländle gas") == []  # not in one text
    assert found("#7000001") == found("7000001 plan") == [other["id"]]
    assert found("[a*?]") == [other["id"]]
    assert found("[a]") == found("pl?n") == found("pl*n") == []
    owner.data(owner.patch(f"{comments}/{made[0]['id']}", {"content": "Käse"}))
    owner.data(owner.delete(f"{comments}/{made[1]['id']}"))
    assert found("KASE") == [task["id"]]
    assert found("öl") == found("gas") == []
    owner.patch(f"/tasks/{task['id']}/details", {"description": "Crème brûlée"})
    owner.patch(f"/tasks/{task['id']}", {"title": "Gâteau"})
    assert found("LÄNDLE") == []
    assert found("GÂTEAU") == found("BRÛLÉE") == found("kase") == [task["id"]]
    owner.patch(f"/tasks/{task['id']}/details", {"description": None})
    assert found("BRÛLÉE") == []
    assert found("gâteau") == [task["id"]]


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort])
def test_each_order_is_total_with_undated_tasks_last(listing, sort):
    name, falling = sort.lstrip("-"), sort.startswith("-")
    value = {"priority": lambda task: PRIORITIES.index(task["priority"])}.get(name, lambda task: task[name])
    dated = [task for task in listing.tasks if value(task) is not None]
    undated = [task for task in listing.tasks if value(task) is None]
    expected = sorted(dated, key=lambda task: (value(task), task["id"]), reverse=falling)
    expected += sorted(undated, key=lambda task: task["id"], reverse=falling)
    assert every_page(listing, 7, sort=sort) == [task["id"] for task in expected]
    active = [task["id"] for task in expected if task["project_id"] != listing.projects[2]["id"]]
    assert every_page(listing, 100, sort=sort, archived="false") == active


def test_a_page_on_which_nothing_is_found_is_empty(listing):
    queries = [({name: NOBODY}, 0) for name in ("project_id", "assignee_id", "milestone_id")]
    for query, total in (*queries, ({"offset": 2**31 - 1}, 60)):
        data = listing.read("/tasks", **query)
        assert data["tasks"] == []
        assert (data["pagination"]["total"], data["pagination"]["has_more"]) == (total, False)


def test_the_number_of_comments_is_included_where_it_is_asked_for(owner, project):
    quiet, discussed = owner.make_task(project), owner.make_task(project)
    for n in range(3):
        owner.post(f"/tasks/{discussed['id']}/comments", {"content": str(n)})
    query = {"project_id": project["id"]}
    assert owner.read("/tasks", **query)["tasks"] == [discussed, quiet]
    counted = owner.read("/tasks", include="comment_count", **query)["tasks"]
    assert counted == [discussed | {"comment_count": 3}, quiet | {"comment_count": 0}]


def test_a_total_beyond_10_000_is_said_to_be_inexact(launch_here):
    server = launch_here()
    owner = server.client()
    projects = [owner.make_project() for _ in range(2)]
    for project in projects:
        add_copies(server, owner.make_task(project), 5_999)
    beyond, since = (10_000, False), {"updated_since": "1970-01-01"}
    for query, total in (({}, beyond), (since, beyond), ({"project_id": projects[0]["id"]}, (6_000, True))):
        page = owner.read("/tasks", limit=1, **query)["pagination"]
        assert (page["total"], page["total_exact"]) == total
    # Beyond the limit of counting, the rows show whether more follow.
    for offset, count, next_offset in ((11_000, 100, 11_100), (11_950, 50, None)):
        page = owner.read("/tasks", limit=100, offset=offset, **since)
        assert (len(page["tasks"]), page["pagination"]["next_offset"]) == (count, next_offset)


@pytest.fixture(scope="module")
def large(launch_here_module):
    """A server with 40 changed tasks of 200 000 bytes, and where its pages begin."""
    server = launch_here_module()
    owner = server.client()
    task = owner.make_task(owner.make_project(), description="\U0001f600" * 50_000)
    cursor, owner.ids = end(owner), [task["id"], *add_copies(server, task, 39)]
    *_, last = owner.read("/events")["events"]
    after = {"after": last["id"]}
    for begin in range(0, 40, 10):
        batch = {"tasks": owner.ids[begin : begin + 10], "changes": {"priority": "low"}}
        owner.data(owner.patch("/tasks/batch", batch))
    owner.begin = {"/events": after, "/changes": {"after": cursor}}
    return owner


@pytest.mark.parametrize("path", ["/tasks", "/tasks?sort=updated_at", "/events", "/changes"])
def test_a_page_ends_at_four_mebibytes_and_leads_to_the_others(large, path):
    found, pages, more = [], [], large.begin.get(path, {})
    following = "next_offset" if path == "/tasks" else "next_after"
    while more is not None:
        answer = large.get(path, limit=100, **more)
        data = large.data(answer)
        pages.append(len(answer.content))
        found += [row.get("object", row) for row in data.get("tasks") or data.get("changes") or []]
        found += [event["data"]["task"] for event in data.get("events", [])]
        place = data["pagination"]
        more = {following.removeprefix("next_"): place[following]} if place["has_more"] else None
    assert sorted(task["id"] for task in found) == sorted(large.ids)
    assert len(pages) > 1 and max(pages) < 4.2 * 1024 * 1024, pages
