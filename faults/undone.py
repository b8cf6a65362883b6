"""A random run of one key beside the work of another, undone, and the undo undone."""

import random
from typing import Any

from findings import Run
from harness import Client, Server
from test_changes import Writer, listed
from test_keys import make_key

Row = dict[str, Any]
# Columns that an undo does not set back, and what follows from the objects themselves.
SKIPPED = {"version", "updated_at", "rank", "completed_at", "stats", "edited_at", "mentions", "tries"}
PEOPLE = ("owner", "author", "organizer", "updated_by")


def state(server: Server, client: Client) -> dict[tuple[str, str], Row]:
    """Return all objects but members, without columns that an undo does not set back."""
    rows = {}
    for key, row in listed(server, client).items():
        shown = {name: value for name, value in row.items() if name not in SKIPPED and name not in PEOPLE}
        shown.pop("participants", None)  # their ids are there too
        rows[key] = shown
    return {key: row for key, row in rows.items() if key[0] != "member"}


def walk(server: Server, seed: int, members: list[str]) -> list[str]:
    """Let two keys act, undo what one did, and undo the undo; return the differences."""
    chance, owner = random.Random(seed), server.client()  # noqa: S311
    first, colleague = (Writer(owner, number, members) for number in (seed, seed + 1))
    key = server.client(make_key(owner, name="Robot")["api_key"])
    for _ in range(4):
        first.step()
    robot = Writer(key, seed + 2, members)
    before, since = state(server, owner), owner.get("/me").json()["meta"]["timestamp"]
    for number in range(chance.randint(3, 9)):
        robot.project, robot.tasks = first.project, first.tasks
        robot.step()
        colleague.step()
        if number == 4 and seed % 2:
            robot.new_project()
            break
    after, problems = state(server, owner), []
    theirs = {colleague.project["id"], *(task["id"] for task in colleague.tasks)}

    def is_theirs(key: tuple[str, str], row: Row) -> bool:
        return {key[1], row.get("project_id"), row.get("task_id")} & theirs != set()

    kept = {key: row for key, row in after.items() if is_theirs(key, row)}
    body = {"since": since, "key": key.read("/me")["key"]["id"]}
    again = owner.get("/me").json()["meta"]["timestamp"]
    undone = owner.data(owner.post("/activity/undo", body | {"dry_run": True}))
    if owner.data(owner.post("/activity/undo", body)) != undone:
        problems.append(f"{seed}: the preview is another one")
    wanted = {key: row for key, row in before.items() if not is_theirs(key, row)} | kept
    problems += compare(seed, "the undo", wanted, state(server, owner))
    owner.data(owner.post("/activity/undo", {"since": again, "actor_id": owner.read("/me")["member"]["id"]}))
    return problems + compare(seed, "the undo of it", after, state(server, owner))


def compare(seed: int, what: str, wanted: dict, found: dict) -> list[str]:
    """Return a line for each object that is another one."""
    different = (key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    return [f"{seed}, {what}: {key} is {found.get(key)}, not {wanted.get(key)}" for key in different]


def run(run: Run) -> None:
    problems: list[str] = []
    with run.server("undone") as server:
        owner = server.client()
        bodies = ({"email": f"{n}@example.com", "full_name": f"M {n}", "role": "admin"} for n in range(3))
        members = [owner.make("/members/invite", body)["member"]["id"] for body in bodies]
        for _number in run.rounds(40):
            problems += walk(server, run.random.randrange(10**6), members)
        checks = server.rows("PRAGMA foreign_key_check") + server.rows("PRAGMA integrity_check")
    for problem in problems[:5]:
        run.fault(problem[:400])
    what = f"differences after {_number + 1} random runs of a key were undone, and redone, beside a colleague"
    run.found("", what, len(problems), "0", not problems and checks == [{"integrity_check": "ok"}])
