"""The way of someone new: start, invite, join in a browser, work through a project, and back it all up."""

import json
import re
import socket
import subprocess
import sys

from board import press
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
        words = ["make", "--silent", "-o", "install", "run", f"VENV={sys.prefix}"]
        options = {"cwd": ROOT, "env": server.environment | {"PORT": str(port), "MAKEFLAGS": ""}}
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, **options)
    said = f"port {port} is taken by another program; choose another one: PORT={port + 1} make run"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"Error: {said}"
    assert not server.database.exists()


def walk(server, owner, browse, receiver):
    """Work with a colleague until there is something in every corner; returns the context then."""
    body = {"email": "ana@example.com", "full_name": "Ana Lima", "role": "member"}
    link = owner.data(owner.post("/members/invite", body), 201)["enrollment_link"]
    page = browse(own=True)
    page.goto(link.replace("http://127.0.0.1:8000", server.base))
    press(page, "Join Workspace")
    page.wait_for_url(f"{server.base}/*")
    keys, headers = f"{server.base}/api/v1/keys", {"X-Requested-With": "page"}
    made = page.request.post(keys, data={"name": "Script"}, headers=headers)
    ana = server.client(made.json()["data"]["api_key"])
    page.close()  # it would miss the server when that is started again

    project = owner.make_project(name="Website")
    titles = ("Draft", "Publish")
    draft, publish = (owner.make_task(project, title=title, priority="urgent") for title in titles)
    path = f"/tasks/{draft['id']}"
    files = {"file": ("draft.html", b"<h1>Welcome</h1>", "text/html")}
    ana.data(ana.request("POST", f"{path}/attachments", files=files), 201)
    ana.data(ana.post(f"{path}/comments", {"content": "Please have a look."}), 201)
    ana.data(ana.post(f"{path}/complete"))
    events = [receiver.next().headers["x-service-event"] for _ in range(3)]
    assert events == ["member.joined", "comment.added", "task.completed"]
    owner.data(owner.post("/meetings", {"title": "Launch party", "starts_at": "2099-01-01"}), 201)
    owner.data(owner.post("/whiteboards", {"title": "Ideas", "project_id": project["id"]}), 201)

    context = owner.data(owner.get("/context"))
    stats = context["projects"][0]["stats"]
    assert (stats["total"], stats["todo"], stats["done"], stats["completion_rate"]) == (2, 1, 1, 0.5)
    assert [task["id"] for task in context["urgent_tasks"]] == [publish["id"]]
    assert [board["title"] for board in context["whiteboards"]] == ["Ideas"]
    return context
