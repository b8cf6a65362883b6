"""Labels of tasks: their spelling, their limits, the filter, and the list with counts."""

from harness import fault

from database import db
from members import Member
from models import Project, Task, write
from parts import batches

NEEDS_SOCKET = False


def labels_of(owner, **filters):
    return [task["labels"] for task in owner.read("/tasks", **filters)["tasks"]]


def test_a_label_is_spelled_as_it_was_first_used_as_long_as_a_task_has_it(owner, project):
    first = owner.make_task(project, labels=["Straße", "UI not"])
    second = owner.make_task(project, labels=["STRASSE", "Other"])
    assert (first["labels"], second["labels"]) == (["Straße", "UI not"], ["Straße", "Other"])
    path = f"/tasks/{second['id']}/details"
    assert owner.data(owner.patch(path, {"labels": ["strasse", "other"]}))["version"] == 1
    assert owner.data(owner.patch(path, {"labels": None}))["labels"] == []
    assert owner.data(owner.patch(path, {"labels": ["Two", "a, b", "TWO"]}))["labels"] == ["Two", "a, b"]
    assert owner.data(owner.patch(path, {"labels": []}))["labels"] == []
    assert owner.data(owner.patch(path, {"labels": ["OTHER"]}))["labels"] == ["OTHER"]
    (entry,) = owner.read(f"/tasks/{second['id']}/activity", limit=1)["activity"]
    assert entry["changes"] == {"labels": [[], ["OTHER"]]}


def test_labels_of_many_tasks_are_spelled_as_they_are_in_others_and_in_the_first_of_them(owner, project):
    owner.make_task(project, labels=["Fußweg"])
    labels = [["FUSSWEG", *(f"Way {number}" for number in range(9))], ["WAY 1", "fussweg", "Last"]]
    tasks = [{"project_id": project["id"], "title": "x", "labels": given} for given in labels]
    made = owner.make("/tasks/batch", {"tasks": tasks})["tasks"]
    assert [task["labels"][:2] for task in made] == [["Fußweg", "Way 0"], ["Way 1", "Fußweg"]]
    body = {"tasks": [task["id"] for task in made], "changes": {"labels": ["last", "Novel", "NOVEL"]}}
    changed = owner.data(owner.patch("/tasks/batch", body))["tasks"]
    assert [task["labels"] for task in changed] == [["Last", "Novel"]] * 2  # the first of both spellings


def test_labels_of_many_tasks_are_looked_up_once(database):
    """Each search for a new label reads all tasks that have labels, and holds up every other writer."""
    executed, labels = [], [f"Label {number}" for number in range(10)]
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="O", email="o@example.com")
        fields = {"project_id": Project.add(transaction, name="P")["id"], "title": "T"}
        ids = [Task.add(transaction, **fields)["id"] for _ in range(20)]

    def lookups(act):
        """The number of statements that look for labels while `act` runs."""
        executed.clear()
        with write(owner) as transaction:
            db.connection().set_trace_callback(executed.append)
            act(transaction)
            db.connection().set_trace_callback(None)
        return len([sql for sql in executed if "INSTR" in sql or "GROUP BY" in sql])

    tasks = [fields | {"labels": labels}, *(fields | {"labels": [f"Of {id}"]} for id in ids)]
    assert lookups(lambda transaction: [Task.add(transaction, **task) for task in tasks]) == 10 + 1
    new = {"labels": [f"New {number}" for number in range(10)]}
    assert lookups(lambda transaction: batches.edit_all(transaction, ids, new)) == 10


def test_labels_are_filtered_by_and_counted(owner, project):
    names = ['Say "x"', "x", "Ünique\\"]
    for labels in (names, names[1:], [], ["xx"]):
        owner.make_task(project, labels=labels)
    of = {"project_id": project["id"]}
    assert len(labels_of(owner, **of, label="X")) == 2
    assert labels_of(owner, **of, label='say "X"') == [names]
    assert len(labels_of(owner, **of, label="ünique\\", ready="true")) == 2
    assert labels_of(owner, **of, label="u") == labels_of(owner, **of, label=",") == []
    assert {"label": "Ünique\\", "count": 2} in owner.read("/labels")["labels"]


def test_labels_that_do_not_fit_are_refused(owner, project):
    wrong = [(["x"] * 11, "labels"), ("x", "labels"), *(([one], "labels.0") for one in ("x" * 51, " ", None))]
    for labels, field in wrong:
        body = {"project_id": project["id"], "title": "x", "labels": labels}
        fault(owner.post("/tasks", body), 422, "validation_error", field)
