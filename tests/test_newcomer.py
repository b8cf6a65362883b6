"""The way of someone new: start, invite, join in a browser, work through a project, and back it all up."""

import io
import json
import re
import socket
import subprocess
import sys

from harness import PATIENCE, ROOT, Server


def test_from_nothing_to_a_backed_up_workspace(browse, receiver, tmp_path):
    hooks = [{"url": receiver.url, "secret": "s", "name": "chat"}]
    server = Server(tmp_path, TASKS_WEBHOOKS=json.dumps(hooks))
    del server.environment["TASKS_BOOTSTRAP__API_KEY"]
    key = re.search(r"tms_[\w-]{43}", server.flask("init").stdout)[0]
    owner = server.start().client(key)
    try:
        context = walk(server, owner, browse, receiver)
        copy = tmp_path / "backup.db"
        assert server.flask("backup", str(copy)).returncode == 0
        owner.make_project(name="After the backup")
    finally:
        server.stop()
    assert server.flask("restore", str(copy)).returncode == 0
    owner = server.start().client(key)
    again = owner.data(owner.get("/context"))
    server.stop()
    assert {**again, "system": None} == {**context, "system": None}


def test_a_port_that_is_taken_is_said_before_anything_is_made(tmp_path):
    server = Server(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            ["make", "--silent", "-o", "install", "run", f"VENV={sys.prefix}"],
            cwd=ROOT,
            env=server.environment | {"PORT": str(port), "MAKEFLAGS": ""},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    said = f"port {port} is taken by another program; choose another one: PORT={port + 1} make run"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"Error: {said}"
    assert not server.database.exists()


def walk(server, owner, browse, receiver):
    """Work with a colleague until there is something in every corner; returns the context then."""
    body = {"email": "ana@example.com", "full_name": "Ana Lima", "role": "member"}
    link = owner.data(owner.post("/members/invite", body), 201)["enrollment_link"]
    page = browse()
    page.goto(link.replace("http://127.0.0.1:8000", server.base))
    page.get_by_role("button", name="Join Workspace").click()
    ana = server.client(page.get_by_label("Your API key").inner_text())
    me = ana.data(ana.get("/me"))["member"]
    assert receiver.next().headers["x-service-event"] == "member.joined"

    project = owner.make_project(name="Website")
    milestones = [
        owner.data(owner.post(f"/projects/{project['id']}/milestones", {"title": title}), 201)
        for title in ("First version", "Launch")
    ]
    draft, publish = (
        owner.make_task(project, title=title, milestone_id=milestone["id"], priority="urgent")
        for title, milestone in zip(("Draft", "Publish"), milestones, strict=True)
    )
    path = f"/tasks/{draft['id']}"
    ana.data(ana.patch(path, {"assignee_id": me["id"], "status": "in_progress"}))
    files = {"file": ("draft.html", io.BytesIO(b"<h1>Welcome</h1>"), "text/html")}
    ana.data(ana.request("POST", f"{path}/attachments", files=files), 201)
    ana.data(ana.post(f"{path}/comments", {"content": "Please have a look."}), 201)
    owner.data(owner.post(f"{path}/comments", {"content": "Ship it."}), 201)
    ana.data(ana.post(f"{path}/complete"))
    events = [receiver.next().headers["x-service-event"] for _ in range(4)]
    assert events == ["task.updated", "comment.added", "comment.added", "task.completed"]
    meeting = {"title": "Launch party", "starts_at": "2099-01-01", "participant_ids": [me["id"]]}
    owner.data(owner.post("/meetings", meeting), 201)
    owner.data(owner.post("/whiteboards", {"title": "Ideas", "project_id": project["id"]}), 201)

    detail = ana.data(ana.get(path))
    assert (detail["milestone"]["title"], detail["assignee"]["full_name"]) == ("First version", "Ana Lima")
    assert [attachment["filename"] for attachment in detail["attachments"]] == ["draft.html"]
    assert detail["comment_count"] == 2
    assert [listed["title"] for listed in ana.data(ana.get("/meetings"))["meetings"]] == ["Launch party"]
    context = owner.data(owner.get("/context"))
    assert context["projects"][0]["stats"] | {"overdue": 0} == {
        **{"total": 2, "todo": 1, "in_progress": 0, "review": 0, "done": 1},
        **{"overdue": 0, "completion_rate": 0.5},
    }
    assert {member["full_name"] for member in context["members"]} == {"Olga Owner", "Ana Lima"}
    assert [task["id"] for task in context["urgent_tasks"]] == [publish["id"]]
    assert [board["title"] for board in context["whiteboards"]] == ["Ideas"]
    assert context["recent_activity"][0]["title"] == "Ideas"
    return context
