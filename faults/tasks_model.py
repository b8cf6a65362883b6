"""Hypothesis works with projects, tasks and what belongs to them, and compares the server with a model.

After every step the answer, the history, the webhook's calls, the context and a list of tasks must be what
the model says; after every example, everything.
"""

import json
from collections import Counter
from contextlib import contextmanager

from findings import Run
from harness import NOBODY, hook, receivers
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from workspace_input import (
    ANYBODY,
    COMMENTS,
    DETAILS,
    EXPECTED,
    LOCATED,
    NEW_TASK,
    NEW_THING,
    NUMBERS,
    PRECONDITIONS,
    TEAM,
    THING_UPDATE,
    UPDATES,
    WRONG,
    Edit,
    edits_of,
)
from workspace_machine import step
from workspace_model import read_body
from workspace_reading import ReadingMachine
from workspace_shown import Row
from workspace_stage import Enough, Failure, Stage, make_smaller

STEPS = 50  # of an example
EXAMPLES = 9  # at a time; of ten and more, Hypothesis makes the first ones very simple
SHRINKING, SHRINKING_SHORT = 40.0, 15.0  # seconds for making a failure smaller
MOST = 4000  # characters of a failure in the table; the log has all


class TasksMachine(ReadingMachine):
    """What a team does with its projects, tasks, comments, files, whiteboards and meetings."""

    @step(begins=True, fields=st.lists(NEW_TASK, min_size=4, max_size=8))
    def begin(self, fields: list[Row]) -> None:
        project = self.create("owner", "project", "/projects", {"name": "P"})
        path = f"/projects/{project}/milestones"
        self.create("owner", "milestone", path, {"title": "M"}, {"project_id": project})
        for body in fields:
            self.add_task("owner", 0, body)

    # Projects, milestones, whiteboards and meetings

    @step(actor=TEAM, what=NEW_THING, number=NUMBERS, keyed=st.booleans())
    def create_thing(self, actor: str, what: tuple[str, Row], number: int, keyed: bool) -> None:
        kind, body = what
        more, path, refused = {}, f"/{kind}s", set()
        if kind == "milestone":
            more = {"project_id": self.choose.pick("project", number)}
            path = f"/projects/{more['project_id']}/milestones"
            refused = set() if self.model.is_there("project", more["project_id"]) else {404}
        self.create(actor, kind, path, self.choose.resolved(body), more, refused=refused, keyed=keyed)

    @step(actor=TEAM, what=THING_UPDATE, number=NUMBERS)
    def update_thing(self, actor: str, what: tuple[str, Row], number: int) -> None:
        kind, body = what
        id, body = self.choose.pick(kind, number), self.choose.resolved(body)
        if body.get("owner_id", "") is None:
            del body["owner_id"]
        fields, row = read_body(body), self.model.rows[kind].get(id)
        refused = self.model.refusals(kind, fields, row) if row else set()
        refused |= self.not_allowed(actor, kind, id)
        self.change(actor, "PATCH", f"/{kind}s/{id}", kind, id, refused, fields, json=body)

    @step(actor=TEAM, kind=st.sampled_from(LOCATED), number=NUMBERS, force=st.booleans())
    def delete_thing(self, actor: str, kind: str, number: int, force: bool) -> None:
        id, query = self.choose.pick(kind, number), "?force=true" * (force and kind == "project")
        refused = self.not_allowed(actor, kind, id)
        if kind == "project" and self.model.ids_of("task", project_id=id) and not force:
            refused |= {409}
        self.delete(actor, kind, id, f"/{kind}s/{id}{query}", refused)

    # Tasks

    @step(actor=TEAM, project=NUMBERS, fields=st.lists(NEW_TASK, min_size=2, max_size=5), keyed=st.booleans())
    def create_tasks(self, actor: str, project: int, fields: list[Row], keyed: bool) -> None:
        for body in fields:
            self.add_task(actor, project, body, keyed=keyed)

    def add_task(self, actor: str, project: int, body: Row, *, keyed: bool = False) -> None:
        project_id = self.choose.pick("project", project)
        body = self.choose.resolved(body, project_id) | {"project_id": project_id}
        self.create(actor, "task", "/tasks", body, keyed=keyed)

    @step("task", actor=TEAM, edits=edits_of(UPDATES, "PATCH", "PUT"))
    def update_tasks(self, actor: str, edits: list[Edit]) -> None:
        for edit in edits:
            self.edit_task(actor, "", *edit)

    @step("task", actor=TEAM, edits=edits_of(DETAILS, "PATCH"))
    def update_details(self, actor: str, edits: list[Edit]) -> None:
        for edit in edits:
            self.edit_task(actor, "/details", *edit)

    @step("task", actor=TEAM, edits=edits_of({}, "POST", "PUT", "PATCH"))
    def complete_tasks(self, actor: str, edits: list[Edit]) -> None:
        for edit in edits:
            self.edit_task(actor, "/complete", *edit)

    def edit_task(self, actor: str, path: str, method: str, task: int, body: Row, expected: str) -> None:
        """Change a task, where its version is the expected one."""
        id, completes = self.choose.pick("task", task), path == "/complete"
        row = self.model.rows["task"][id]
        body = self.choose.resolved(body, row["project_id"])
        fields = {"status": "done"} if completes else read_body(body)
        headers, refused = self.if_match(row, expected)
        answer = self.write(
            *(actor, method, f"/tasks/{id}{path}", refused | self.model.refusals("task", fields, row)),
            lambda change, data: self.model.edit_task(change, id, fields, completes=completes),
            lambda data, at: self.model.shown("task", id),
            headers=headers,
            json=body,
        )
        self.touched.append(("task", id))
        if answer is not None:
            self.compare("ETag", answer.headers.get("ETag"), f'"{row["version"]}"')

    def if_match(self, task: Row, expected: str) -> tuple[Row, set[int]]:
        """The headers of a request, and how it must be refused because of them."""
        header, fits = PRECONDITIONS[expected]
        version = task["version"]
        headers = {"If-Match": header.format(version, version - 1)} if header else {}
        return headers, set() if fits else {412}

    @step("task", actor=TEAM, task=NUMBERS, expected=EXPECTED)
    def delete_task(self, actor: str, task: int, expected: str) -> None:
        id = self.choose.pick("task", task)
        headers, refused = self.if_match(self.model.rows["task"][id], expected)
        self.delete(actor, "task", id, f"/tasks/{id}", refused, headers=headers)

    @step(actor=TEAM, kind=st.sampled_from(["task", *LOCATED]), number=NUMBERS, wrong=st.sampled_from(WRONG))
    def send_what_is_refused(self, actor: str, kind: str, number: int, wrong: Row) -> None:
        """No request finds what was deleted; one wrong field keeps the right ones from being written."""
        ids = self.model.gone[kind] or [NOBODY]
        id = ids[number % len(ids)]
        self.refuse(actor, "GET", f"/{kind}s/{id}", 404)
        self.refuse(actor, "PATCH", f"/{kind}s/{id}", 404, json={})
        self.refuse(actor, "DELETE", f"/{kind}s/{id}", 404)
        if kind == "task":
            self.refuse(actor, "POST", f"/tasks/{id}/complete", 404, headers={"If-Match": '"1"'})
            self.refuse(actor, "POST", f"/tasks/{id}/comments", 404, json={"content": "x"})
        for task_id in list(self.model.rows["task"])[:1]:
            body = {"title": "Right", "metadata": {"right": True}} | wrong
            self.refuse(actor, "PATCH", f"/tasks/{task_id}", 422, json=body)
            body |= {"project_id": self.model.rows["task"][task_id]["project_id"]}
            self.refuse(actor, "POST", "/tasks", 422, json=body)

    # Comments and files

    @step("task", actor=ANYBODY, task=NUMBERS, content=COMMENTS, keyed=st.booleans())
    def add_comment(self, actor: str, task: int, content: str, keyed: bool) -> None:
        id = self.choose.pick("task", task)
        self.create(
            actor, "comment", f"/tasks/{id}/comments", {"content": content}, {"task_id": id}, keyed=keyed
        )

    @step("comment", actor=ANYBODY, comment=NUMBERS, content=st.none() | COMMENTS)
    def change_comment(self, actor: str, comment: int, content: str | None) -> None:
        """Edit a comment, or without a content delete it."""
        id = self.choose.pick("comment", comment)
        row, me = self.model.rows["comment"][id], self.stage.ids[actor]
        path, body = f"/tasks/{row['task_id']}/comments/{id}", {"content": content}
        if content is None:
            may = row["author_id"] == me or actor == "owner"
            self.delete(actor, "comment", id, path, set() if may else {403})
        else:
            may = row["author_id"] == me
            self.change(actor, "PATCH", path, "comment", id, set() if may else {403}, body, json=body)

    @step("task", actor=TEAM, task=NUMBERS, data=st.binary(max_size=20), keyed=st.booleans())
    def attach_file(self, actor: str, task: int, data: bytes, keyed: bool) -> None:
        id = self.choose.pick("task", task)
        name, kind = f"file {len(data)}.bin", "image/x-noise"
        described = {"task_id": id, "filename": name, "content_type": kind, "size": len(data)}
        path, files = f"/tasks/{id}/attachments", {"file": (name, data, kind)}
        if made := self.create(actor, "attachment", path, {}, described, keyed=keyed, files=files):
            self.model.files[made] = data

    @step("attachment", actor=TEAM, attachment=NUMBERS)
    def delete_file(self, actor: str, attachment: int) -> None:
        id = self.choose.pick("attachment", attachment)
        task_id = self.model.rows["attachment"][id]["task_id"]
        self.delete(actor, "attachment", id, f"/tasks/{task_id}/attachments/{id}", set())

    # People

    @step(number=NUMBERS, role=st.sampled_from(["member", "client", None]))
    def change_team(self, number: int, role: str | None) -> None:
        """Invite somebody, or without a role remove somebody."""
        others = [member for member in self.model.members if member not in self.stage.ids.values()]
        id = others[number % len(others)] if others else NOBODY
        if role is None:
            self.write(
                *("owner", "DELETE", f"/members/{id}"),
                set() if self.model.is_there("member", id) else {404},
                lambda change, data: self.model.remove_member(change, id),
                lambda data, at: {"id": id, "deleted": True},
            )
            return
        email = f"{self.stage.counts['examples']}-{len(others)}@example.com"
        body = {"email": email, "full_name": ("Zoë", "ada", "Éva")[number % 3], "role": role}
        self.write(
            *("owner", "POST", "/members/invite", set()),
            lambda change, data: self.model.invite(change, data["member"]["id"], body),
            lambda data, at: data | {"member": self.model.members[data["member"]["id"]]},
            json=body,
        )

    # Idempotency keys

    @step(number=NUMBERS)
    def repeat(self, number: int) -> None:
        """Repeat a POST with its key, also after what it made was changed or deleted."""
        if not self.keyed:
            return
        actor, path, options, kind, first = self.keyed[number % len(self.keyed)]
        headers, body = options["headers"], options.get("json", {})
        for field in (name for name in ("title", "name", "content") if isinstance(body.get(name), str)):
            another = body | {field: f"{body[field]}x"}
            self.refuse(actor, "POST", path, 422, json=another, headers=headers)
        if actor != "client":
            other = "/whiteboards" if kind == "project" else "/projects"
            another = {"title": "x"} if kind == "project" else {"name": "x"}
            self.refuse(actor, "POST", other, 422, json=another, headers=headers)
        again = self.write(
            *(actor, "POST", path, set()),
            lambda change, data: None,
            lambda data, at: first.json()["data"],
            **options,
        )
        for name in ("Location", "ETag"):
            self.compare(name, again.headers.get(name), first.headers.get(name))
        self.compare("Idempotent-Replayed", again.headers.get("Idempotent-Replayed"), "true")
        member = "member" if actor == "owner" else "owner"
        if kind == "project" and not any((key.actor, key.options) == (member, options) for key in self.keyed):
            self.create(member, kind, path, body, headers=headers)


def run(run: Run) -> None:
    """Play examples until the time is over; one that fails is made smaller and written down."""
    with contextmanager(receivers)() as new_receiver:
        receiver = new_receiver().up()
        hooks = json.dumps([hook(receiver)])
        with run.server(TASKS_WEBHOOKS=hooks, TASKS_DELIVERY__REQUEST_BUDGET_SECONDS="60") as server:
            stage = TasksMachine.stage = Stage(run, server, receiver)
            play(run, stage)
            counts = Counter(stage.counts)
            if stage.failure:
                server.allow_bugs = True  # which the failure tells
                make_smaller(stage, TasksMachine, SHRINKING_SHORT if run.is_short else SHRINKING)
            report(run, stage.failure, counts)
            doctor = server.flask("doctor")
            if doctor.returncode:
                run.fault(f"after the examples, doctor says: {' '.join(doctor.stdout.split())[-500:]}")


def report(run: Run, failure: Failure | None, counts: Counter[str]) -> None:
    """Write down how much was compared, and what differed after which requests."""
    if failure:
        print("\n".join([*failure.steps, failure.what]))
        text = f"after {len(failure.steps)} requests: {'; '.join(failure.steps)}; then {failure.what}"
        run.fault(" ".join(text.split())[:MOST])
    figure = f"{counts['examples']} examples with {counts['steps']} steps and {counts['restarts']} restarts, "
    figure += f"{counts['comparisons']} comparisons, {int(bool(failure))} differences"
    run.found("G4", "tasks and all around them: server equals model", figure, "0 differences", not failure)


def play(run: Run, stage: Stage) -> None:
    """Let Hypothesis make examples until the time is over or one fails."""
    how = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    while not (stage.is_over or stage.failure):
        try:
            run_state_machine_as_test(seed(run.random.getrandbits(64))(TasksMachine), settings=how)
        except (Enough, Exception):  # of `Enough`, Hypothesis says that the machine is flaky
            if not (stage.is_over or stage.failure):
                raise
