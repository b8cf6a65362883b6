"""The order of tasks by hand."""

from random import Random

import pytest
from harness import NOBODY, fault

from models import Task
from parts.order import Rank

NEEDS_SOCKET = False


def put(owner, task, **place):
    return owner.data(owner.patch(f"/tasks/{task['id']}/details", place))


def order(owner, tasks):
    """The titles of these tasks, as all lists have them."""
    (assignee,) = {task["assignee_id"] for task in tasks}
    listed = owner.read("/tasks", sort="rank", limit=100, assignee_id=assignee)["tasks"]
    assert [task["rank"] for task in listed] == sorted({task["rank"] for task in listed})
    return "".join(task["title"] for task in listed)


@pytest.fixture
def tasks(owner, join):
    """Four tasks of two projects, which are somebody's."""
    member, projects = join().member["id"], [owner.make_project() for _ in range(2)]
    return [owner.make_task(projects[n % 2], title="abcd"[n], assignee_id=member) for n in range(4)]


def test_a_task_is_put_after_or_before_another_one_or_first_or_last(owner, tasks):
    a, b, c, d = tasks
    assert order(owner, tasks) == "abcd"
    for task, place, expected in (
        *((d, {"after": a["number"]}, "adbc"), (b, {"before": d["id"]}, "abdc")),
        *((c, {"after": None}, "cabd"), (a, {"before": None}, "cbda")),
    ):
        put(owner, task, **place)
        assert order(owner, tasks) == expected
    owner.make_task({"id": a["project_id"]}, title="e", assignee_id=a["assignee_id"])
    put(owner, d, before=None)
    assert order(owner, tasks) == "cbaed"


def test_a_place_is_a_new_version_and_no_activity_and_no_place_is_none(owner, tasks):
    a, b, *_ = tasks
    after = owner.read("/tasks", sort="updated_at", limit=100)["pagination"]["next_after"]
    while (page := owner.read("/tasks", sort="updated_at", limit=100, after=after))["tasks"]:
        after = page["pagination"]["next_after"]
    moved = put(owner, a, after=b["id"])
    assert (moved["version"], moved["updated_at"] > a["updated_at"]) == (2, True)
    page = owner.read("/tasks", sort="updated_at", after=after)
    assert [task["number"] for task in page["tasks"]] == [a["number"]]
    assert put(owner, a, after=b["id"]) == moved
    both = put(owner, a, before=b["id"], status="done")
    assert both["rank"] < b["rank"]
    assert put(owner, a, status="todo")["rank"] == both["rank"]
    history = owner.read(f"/tasks/{a['id']}/activity")["activity"]
    assert [[*entry["changes"]] for entry in history] == [["status"], ["status"], []]


def test_a_place_that_does_not_exist_is_refused(owner, task):
    path = f"/tasks/{task['id']}/details"
    wrong = [("after", {"after": NOBODY}), ("after", {"after": "first"})]
    for field, place in (*wrong, ("before", {"after": None, "before": None})):
        fault(owner.patch(path, place), 422, "validation_error", field)
    assert owner.data(owner.patch(path, {"before": task["number"]})) == task


def test_tasks_of_one_rank_can_be_parted(server, owner, tasks):
    """As imports of earlier versions made them."""
    a, b, *_ = tasks
    for place, expected in (("before", "ba"), ("after", "ab")):
        server.rows("UPDATE task SET rank = ? WHERE id = ?", a["rank"], b["id"])
        put(owner, b, **{place: a["id"]})
        assert order(owner, tasks) == f"{expected}cd"


def test_ranks_stay_short_wherever_tasks_are_put(server, owner, tasks):
    a, b, c, _ = tasks
    in_order = "SELECT title, version FROM task WHERE assignee_id = ? ORDER BY rank"
    for number in range(120):  # always into the same gap, which is full after a hundred
        versions = {row["title"]: row["version"] for row in server.rows(in_order, a["assignee_id"])}
        moved = put(owner, (c, b)[number % 2], after=a["number"])
        assert len(moved["rank"]) <= Rank.MAX
        assert moved["version"] == versions[moved["title"]] + 1
        titles = [row["title"] for row in server.rows(in_order, a["assignee_id"])]
        assert "".join(titles) == ("acbd", "abcd")[number % 2]
    assert order(owner, tasks) == "abcd"


def test_a_task_in_the_way_of_the_ranks_of_a_full_gap_gets_another_one(owner, tasks):
    a, b, c, d = tasks
    put(owner, d, after=a["id"])
    full = a["rank"] + "01".rjust(Rank.MAX - Rank.DIGITS, "0")
    while put(owner, b, after=a["id"])["rank"] != full:
        b, c = c, b
    put(owner, c, after=None)  # so that the other one gets the middle of the gap, where d is
    before = owner.read(f"/tasks/{b['id']}")
    put(owner, d, after=a["id"])
    shorter = owner.read(f"/tasks/{b['id']}")
    assert (len(shorter["rank"]) < len(before["rank"]), shorter["version"]) == (True, before["version"] + 1)
    assert order(owner, tasks) == f"{c['title']}ad{b['title']}"


def test_a_rank_is_between_any_two():
    random, ranks = Random(1), [Task.last_rank(number) for number in range(3)]
    for _ in range(2000):
        place = random.randrange(1, len(ranks))
        ranks.insert(place, Rank.between(*ranks[place - 1 : place + 1]))
    assert ranks == sorted(set(ranks))
