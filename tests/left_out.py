"""Run the service without each of its parts in turn, and print a line for each wrong response.

`python left_out.py FOLDER` imports the core once. Each case runs in a fork, which imports the other parts.
"""

import logging
import os
import re
import sqlite3
import sys
import traceback
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from werkzeug.test import Client  # noqa: E402

import app  # noqa: E402
from database import db  # noqa: E402
from members import ApiKey, Member  # noqa: E402
from models import write  # noqa: E402
from store import prepare  # noqa: E402

KEY = "tms_" + "k" * 43
LINES = re.findall(
    r'^    "(\w+)",  # [^;\n]*(?:; needs (.*))?$', Path(app.__file__).read_text(), re.MULTILINE
)
NEEDS = {part: re.findall(r"(?!and\b)\b\w+", needs) for part, needs in LINES}

SETTINGS: dict = {
    "server": {
        "sign_in_header": "X-User",
        "sign_in_networks": ["10.0.0.0/8"],
        "sign_out_url": "http://127.0.0.1/out",
    },
    "workspace": {"due_notice_hours": 1},
    "limits": {"tool_calls_per_minute": 1},
    "mail": {"url": "smtp://127.0.0.1", "from": "tasks@example.com"},
    "oauth": {"enabled": True},
}


def without(part):
    """Return the other parts, except for those that need this one."""
    left: list[str] = []
    for name in app.PARTS:
        if name != part and {*NEEDS[name]} <= {*left}:
            left.append(name)
    return tuple(left)


def responses(service):
    """Return each request with the status of its response, and the statuses that are right."""

    def call(method, path, body=None, right=(200,), key=KEY):
        headers = {"Authorization": f"Bearer {key}"}
        response = client.open(f"/api/v1{path}", method=method, json=body, headers=headers)
        found.append((f"{method} {path} {body or ''}", response.status_code, right))
        return (response.get_json(silent=True) or {}).get("data") or {}

    client, found = Client(service), []
    made, perhaps = (201,), (200, 201, 404, 409, 422)
    project = call("POST", "/projects", {"name": "Core"}, made).get("id")
    plan = {"project_id": project, "title": "Try it", "due_date": "2027-01-01", "labels": ["A", "B"]}
    tasks = [call("POST", "/tasks", plan | {"metadata": {"n": n}}, made).get("id") for n in range(3)]
    invited = {"email": "c@example.com", "full_name": "Cleo", "role": "client", "project_ids": [project]}
    link = call("POST", "/members/invite", invited, made).get("enrollment_link", "")
    limited = call("POST", f"/enroll/{link.rpartition('/')[2]}", None, made).get("api_key", "")
    for more in ({"blocked_by": [tasks[1]]}, {"repeat": "FREQ=DAILY"}, {"blocked_by": [], "repeat": None}):
        call("POST", "/tasks", plan | more, perhaps)
    for more in ({"after": tasks[0]}, {"before": None}, {"blocked_by": [tasks[1]]}, {"repeat": "FREQ=DAILY"}):
        call("PATCH", f"/tasks/{tasks[2]}/details", more, perhaps)
    path = f"/tasks/{tasks[2]}"
    call("POST", f"{path}/comments", {"content": "@Cleo why?", "question": True}, perhaps)
    call("POST", f"{path}/comments", {"content": "So."}, made)
    call("POST", f"{path}/claim", {}, perhaps)
    call("PATCH", path, {"title": "Tried", "status": "in_progress"})
    call("PATCH", f"{path}/details", {"labels": ["a"], "description": "- [ ] @Cleo"})
    lists = ("", "?sort=rank", "?ready=true", "?q=it", "?label=a", "?include=comment_count&sort=updated_at")
    for key in (KEY, limited):
        for read in (*(f"/tasks{query}" for query in lists), "/context", "/health", "/meetings", path):
            call("GET", read, key=key)
        for read in ("/changes", "/inbox", "/today", "/labels", "/activity", "/openapi.json"):
            call("GET", read, right=perhaps, key=key)
    call("PATCH", f"/tasks/{tasks[1]}", {"assignee_id": call("GET", "/me")["member"]["id"]})
    for _ in range(2):  # it is reopened between
        call("POST", f"{path}/complete")
        call("PATCH", path, {"status": "todo"})
    call("DELETE", f"/tasks/{tasks[0]}")
    call("DELETE", f"/projects/{project}?force=true")
    return found


def warn_of_settings():
    """Expect a line of the log for each setting that nothing but a missing part reads."""
    logged = []
    logging.getLogger("tasks").addFilter(lambda record: not logged.append(record.getMessage()))
    app.create_app(**SETTINGS)
    warned = [line.split()[0] for line in logged if " does nothing without " in line]
    if warned != [name for name, part in app.READ_BY.items() if part not in app.PARTS]:
        print(f"without parts: the start warns of {warned}")


def refuse_a_chat():
    """Expect that a webhook whose format no part sends ends the start, not each delivery."""
    os.environ["TASKS_WEBHOOKS"] = '[{"name": "chat", "url": "https://chat.example.com/", "format": "slack"}]'
    try:
        app.create_app()
        print("without chats: a webhook with the format slack is accepted")
    except SystemExit as error:
        if "no part sends slack" not in str(error):
            print(f"without chats: {error}")


def main(folder):
    db.init(str(folder / "tasks.db"), timeout=5)
    prepare()
    with write() as transaction:
        owner = Member.bootstrap(transaction, full_name="Olga Owner", email="olga@example.com")
        ApiKey.issue(transaction, owner["id"], name="test", key=KEY)
    db.close()
    for part in app.PARTS:
        sys.stdout.flush()
        if not (child := os.fork()):
            try:
                app.PARTS, file = without(part), folder / f"{part}.db"
                with (
                    closing(sqlite3.connect(folder / "tasks.db")) as full,
                    closing(sqlite3.connect(file)) as copy,
                ):
                    full.backup(copy)
                service = app.create_app(server={"database": str(file), "base_url": "http://127.0.0.1:1"})
                for operation, status, right in responses(service):
                    if status not in right:
                        print(f"without {part}: {operation} is {status}")
                warn_of_settings()
                if part == "chats":
                    refuse_a_chat()
            except BaseException:
                print(f"without {part}: {traceback.format_exc()}")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


main(Path(sys.argv[1]))
