"""Tasks that block tasks, and those that are ready."""

from harness import NOBODY, fault, last_event

from database import db
from members import Member
from models import Project, Task, write
from parts import batches

NEEDS_SOCKET = False


def numbers(task):
    return [blocker["number"] for blocker in task["blocked_by"]]


def test_a_task_shows_the_open_tasks_that_block_it(owner, project):
    one, two = owner.make_task(project, title="One"), owner.make_task(project)
    task = owner.make_task(project, blocked_by=[two["id"], one["number"], one["id"]])
    path = f"/tasks/{task['id']}"
    assert task["blocked_by"][0] == {"id": one["id"], "number": one["number"], "title": "One"}
    assert numbers(task) == [one["number"], two["number"]]
    for status, blocking in (("todo", numbers(task)), ("done", [two["number"]]), ("review", numbers(task))):
        owner.data(owner.patch(f"/tasks/{one['id']}", {"status": status}))
        assert numbers(owner.read(path)) == blocking
    assert owner.delete(f"/tasks/{one['id']}").status_code == 200
    listed = owner.read("/tasks", project_id=project["id"])["tasks"]
    assert [numbers(row) for row in listed] == [[two["number"]], []]


def test_blockers_are_replaced_as_one_change_and_naming_a_present_one_again_is_none(owner, project):
    one, two, task = (owner.make_task(project) for _ in range(3))
    path = f"/tasks/{task['id']}/details"
    for blocker, sent, version in ((one, "number", 2), (one, "id", 2), (two, "number", 3)):
        changed = owner.data(owner.patch(path, {"blocked_by": [blocker[sent]], "priority": "high"}))
        assert (numbers(changed), changed["version"]) == ([blocker["number"]], version)
    done = owner.read(f"/tasks/{task['id']}/activity")["activity"][0]
    assert done["changes"] == {"blocked_by": [[one["number"]], [two["number"]]]}
    assert numbers(owner.data(owner.patch(path, {"blocked_by": None}))) == []
    # One that is done is not shown, and what is shown can be sent back.
    owner.data(owner.post(f"/tasks/{one['id']}/complete"))
    for blockers in ([one["number"]], [one["number"]], []):
        changed = owner.data(owner.patch(path, {"blocked_by": blockers}))
        assert (numbers(changed), changed["version"]) == ([], 5)


def test_tasks_cannot_wait_for_one_another(owner, project):
    one, two, three = (owner.make_task(project) for _ in range(3))
    for blocked, blocker in ((two, one), (three, two)):
        owner.data(owner.patch(f"/tasks/{blocked['number']}/details", {"blocked_by": [blocker["number"]]}))
    both = {"tasks": [one["id"], two["id"]], "changes": {"blocked_by": [three["id"]]}}
    error = fault(owner.patch("/tasks/batch", both), 422, "validation_error", "tasks[1].blocked_by")
    assert error["details"][0]["message"] == f"#{three['number']} waits for #{one['number']} itself"
    for blocker in (one, two, three):
        answer = owner.patch(f"/tasks/{one['id']}/details", {"blocked_by": [blocker["id"]], "title": "x"})
        error = fault(answer, 422, "validation_error", "blocked_by")
        assert f"#{blocker['number']} waits for #{one['number']} itself" in error["message"]
    assert owner.read(f"/tasks/{one['id']}")["version"] == 1


def test_blockers_are_tasks(owner, project, task):
    for wrong, field in (
        *(([value], "blocked_by.0") for value in (NOBODY, 0, "1", True)),
        ([task["number"], 2**53 - 1], "blocked_by.1"),
        *((value, "blocked_by") for value in ("1", [task["number"]] * 21)),
    ):
        body = {"project_id": project["id"], "title": "x", "blocked_by": wrong}
        fault(owner.post("/tasks", body), 422, "validation_error", field)
        answer = owner.patch(f"/tasks/{task['id']}/details", {"blocked_by": wrong})
        fault(answer, 422, "validation_error", field)


def test_an_event_shows_the_beginnings_of_the_titles_of_blockers(server, owner, project):
    blocker = owner.make_task(project, title="é" * 500)
    assert owner.make_task(project, blocked_by=[blocker["number"]])["blocked_by"][0]["title"] == "é" * 500
    shown = {"id": blocker["id"], "number": blocker["number"], "title": "é" * 100}
    assert last_event(server)["data"]["task"]["blocked_by"] == [shown]


def test_blockers_are_read_at_once_and_only_for_new_ones_it_is_read_what_waits(database):
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        fields = {"project_id": Project.add(transaction, name="P")["id"], "title": "T"}
        others = [Task.add(transaction, **fields)["number"] for _ in range(20)]
        id = Task.add(transaction, **fields, blocked_by=others[:1])["id"]

    def executed(edit, *arguments):
        """The statements of an edit."""
        found = []
        with write(owner) as transaction:
            db.connection().set_trace_callback(found.append)
            edit(transaction, *arguments)
            db.connection().set_trace_callback(None)
        return found

    def statements(*blockers):
        """Return the statements that let these block the task."""
        return executed(Task.edit, id, {"blocked_by": list(blockers)}, None)

    batch = executed(batches.edit_all, others[2:], {"blocked_by": others[:2]})
    assert len([sql for sql in batch if "RECURSIVE" in sql]) == 1
    few, many = statements(others[1]), statements(*others)
    assert len(many) == len(few) + 20 - 1  # the rows that are inserted
    assert any("RECURSIVE" in sql for sql in many)
    fewer = [*statements(*others), *statements(others[0]), *statements()]
    assert not any("RECURSIVE" in sql for sql in fewer)


def test_ready_tasks_are_to_do_nobody_s_not_blocked_and_not_of_the_future(owner, project, join):
    blocker = owner.make_task(project, title="First", assignee_id=join().member["id"])
    owner.make_task(project, title="Blocked", blocked_by=[blocker["number"]])
    owner.make_task(project, title="Later", start_date="2099-01-01")
    owner.make_task(project, title="Started", start_date="2026-01-01")
    moved = owner.make_task(project, title="In progress")
    owner.data(owner.patch(f"/tasks/{moved['id']}", {"status": "review"}))

    def ready():
        page = owner.read("/tasks", project_id=project["id"], ready="true")
        assert page["pagination"]["total"] == len(page["tasks"])
        return [task["title"] for task in page["tasks"]]

    assert ready() == ["Started"]
    owner.data(owner.post(f"/tasks/{blocker['id']}/complete"))
    assert ready() == ["Started", "Blocked"]
    # Where a filter says whose, they are somebody's.
    project, ana = owner.make_project(), join()
    for title, start in (("Now", "2026-01-01"), ("Later", "2099-01-01")):
        owner.make_task(project, title=title, assignee_id=ana.member["id"], start_date=start)
    owner.make_task(project, title="Nobody's")
    query = {"project_id": project["id"], "ready": "true"}
    mine = {"me": "Now", ana.member["id"]: "Now"}
    for assignee, title in ({None: "Nobody's", "none": "Nobody's"} | mine).items():
        for sort in ("-priority", "updated_at"):
            (found,) = ana.read("/tasks", **query, assignee_id=assignee, sort=sort)["tasks"]
            assert found["title"] == title


def test_a_task_shows_what_it_blocks_as_long_as_both_are_open(owner, project):
    first, *others = (owner.make_task(project, title=title) for title in "abc")
    for task in others:
        owner.data(owner.patch(f"/tasks/{task['id']}/details", {"blocked_by": [first["number"]]}))
    for done, blocked in ((others[0], ["b", "c"]), (first, ["c"]), (others[1], [])):
        assert [task["title"] for task in owner.read(f"/tasks/{first['id']}")["blocks"]] == blocked
        owner.data(owner.post(f"/tasks/{done['id']}/complete"))
