"""Secrets that must stay where they are: one in every place that can hold a secret, and then a search.

A real server with every kind of secret is driven, also as clients, receivers and operators do it that go
wrong; then its log, answers, events, deliveries, database, copies, processes and commands are searched.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import signal
import socket
import sys
import threading
from functools import partial
from subprocess import PIPE, Popen
from unittest.mock import patch

import requests
from findings import Run
from harness import BIN, EVERY_EVENT, PATIENCE, ROOT, Server, at_once, receivers, wait_until
from misplaced import CONFIGURATION, FILES, HEADS, MISTAKES, PROGRAM, REQUESTS, SERVED, Sent
from traces import Hunt

import startup
from settings import SettingsError, bootstrap_key, read_settings

# Of a webhook. The other secret that may be seen is what a program gets in its environment.
URL_IS_SHOWN = ("answer: admin's", "command: webhook", "database", "copy", "given to a program")
READ = ("context", "activity", "members", "me", "keys", "health", "openapi.json", "docs", "tasks")
READ_BY_ADMINS = ("webhooks", "deliveries?limit=100", "events?limit=100")
READ_BY_ALL = ("/", "/api/v1/health", "/static/board.js", "/static/api.js")
COMMANDS = ("webhook list", "key list", "member list", "doctor", "init", "deliver", "--help", "key --help")
KEY = re.compile(r"tms_[\w-]{43}")
TOOL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_context"}}


class Echo:
    """A receiver that sends back what it gets: the request's first line is then its status line."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                sock, _ = self.listener.accept()
                with sock, contextlib.suppress(OSError):
                    sock.sendall(sock.recv(65536))


class Stage:
    """A server with a secret of each kind, and what is done with it."""

    server: Server

    def __init__(self, run: Run, hunt: Hunt, urls: dict[str, str]):
        self.run, self.hunt, self.folder = run, hunt, run.folder
        self.config = self.folder / "config.toml"
        self.session = requests.Session()
        self.session.trust_env = False
        self.key = hunt.place("bootstrap key", is_key=True)
        for name, (mode, text) in FILES.items():
            program = PROGRAM.replace("PYTHON", sys.executable) if name.endswith(".py") else ""
            path = self.folder / name
            path.write_text(hunt.fill((program + text).replace("FOLDER", str(self.folder))))
            path.chmod(mode)
        text = CONFIGURATION.replace("FOLDER", str(self.folder)).replace("EVENTS", json.dumps(EVERY_EVENT))
        for name, url in urls.items():
            text = text.replace(f"http://{name}/", f"{url}/")
        self.config.write_text(hunt.fill(text, places=URL_IS_SHOWN))
        proxy = hunt.fill("http://user:<<password of a proxy>>@127.0.0.1:9")
        self.settings = {
            "TASKS_CONFIG": str(self.config),
            "TASKS_BOOTSTRAP__API_KEY": self.key,
            "TASKS_DELIVERY__RETRY_SCHEDULE": "[3600]",
            "PREVIOUS_SECRET": hunt.place("previous secret of a webhook"),
            "ROUTE_SECRET": hunt.place("secret of the route environment"),
            "UNUSED_SECRET": hunt.place("a secret in the environment that nothing refers to"),
            "HTTP_PROXY": proxy,
            "http_proxy": proxy,
            "NETRC": str(self.folder / "netrc"),
            "TMPDIR": str(self.folder),
        }

    def call(self, name: str, method: str, path: str, headers=None, **options) -> requests.Response:
        """Make a request, whose answer is searched; as the owner, unless it has another `Authorization`."""
        headers = {"Authorization": f"Bearer {self.key}"} | (headers or {})
        options |= {"timeout": PATIENCE, "allow_redirects": False}
        answer = self.session.request(method, self.server.base + path, headers=headers, **options)
        self.hunt.read(f"answer: {name}", f"{answer.headers}\n\n".encode() + answer.content)
        return answer

    def make(self, name: str, path: str, body: dict, **headers: str) -> dict:
        """Make something over the API."""
        answer = self.call(name, "POST", f"/api/v1{path}", headers, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["data"]

    def use(self) -> None:
        """Do what uses secrets, as it should be done: webhooks, keys, tools, links, routes."""
        project = self.make("a project", "/projects", {"name": "P"})
        fields = {"project_id": project["id"], "title": "T"}
        self.task = self.make("a task", "/tasks", fields)["id"]
        once = self.hunt.place("an Idempotency-Key", "database", "copy")
        self.make("a task, once", "/tasks", fields, **{"Idempotency-Key": once})
        made = self.make("a key", "/keys", {"name": "K"})
        holder = {"Authorization": f"Bearer {made['api_key']}"}
        self.hunt.place("key that was made", "answer: a key", text=made["api_key"])
        self.call("a tool", "POST", "/mcp", holder, json=TOOL)
        self.call("a key that is revoked", "DELETE", f"/api/v1/keys/{made['key']['id']}")
        self.call("a revoked key", "GET", "/api/v1/me", holder)
        self.enroll("over the API", "/api/v1/enroll")
        self.enroll("on the page", "/enroll")
        for route in SERVED:
            secret = self.hunt.place(f"secret of the route {route}")
            headers = {"x-agent-webhook-secret": secret, "Authorization": ""}
            flow = {"action": "create_flow", "goal": "G"}
            answer = self.call(f"route {route}", "POST", f"/plugins/webhooks/{route}", headers, json=flow)
            assert answer.status_code == 200, (route, answer.text)

    def enroll(self, how: str, path: str) -> None:
        """Invite somebody, who joins."""
        body = {"email": f"{len(how)}@example.com", "full_name": "Ana", "role": "member"}
        invited = self.make(f"invitation {how}", "/members/invite", body)
        self.place_token(f"first token {how}", f"answer: invitation {how}", invited)
        invited = self.make(f"renewal {how}", f"/members/{invited['member']['id']}/invitation", {})
        token = self.place_token(f"token {how}", f"answer: renewal {how}", invited)
        nobody = {"Authorization": ""} if path == "/enroll" else {"Authorization": f"Bearer {self.key}"}
        self.call("an unused link", "GET", f"{path}/{token}", nobody)
        joined = self.call(f"joined {how}", "POST", f"{path}/{token}", nobody)
        self.hunt.place(f"key of who joined {how}", f"answer: joined {how}", text=KEY.findall(joined.text)[0])
        self.call("a used link", "GET", f"{path}/{token}", nobody)

    def place_token(self, name: str, place: str, invited: dict) -> str:
        return self.hunt.place(name, place, text=invited["enrollment_link"].rpartition("/")[2])

    def misuse(self) -> None:
        """Send secrets where they do not belong."""
        for request in REQUESTS[:: 4 if self.run.is_short else 1]:
            self.send(request)
        for name, head in HEADS.items():
            with self.connected() as line:
                line.sendall(self.hunt.fill(head.replace("KEY", self.key), name).encode("latin-1"))
                line.shutdown(socket.SHUT_WR)
                self.hunt.read(f"answer: {name}", b"".join(iter(partial(line.recv, 65536), b"")))

    def connected(self) -> socket.socket:
        host, port = self.server.base.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), PATIENCE)

    def send(self, request: Sent) -> None:
        """Send one of the requests of misplaced.py."""
        fill = partial(self.hunt.fill, name=request.name)
        headers = {name: fill(text) for name, text in request.headers.items()}
        scheme, _, credentials = headers.get("Authorization", "").partition(" ")
        if scheme == "BASIC":
            headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        body = fill(request.body).encode("latin-1") if request.body else None
        if body:
            headers = {"Content-Type": "application/json"} | headers
        path = fill(request.path.replace("TASK", self.task))
        answer = self.call(request.name, request.method, path, headers, data=body)
        assert answer.status_code != 500, (request, answer.text)

    def read_all(self) -> None:
        """Read what the API shows."""
        for path in READ:
            self.call(f"GET {path}", "GET", f"/api/v1/{path}")
        for path in READ_BY_ADMINS:
            answer = self.call(f"admin's {path}", "GET", f"/api/v1/{path}")
            if path == "deliveries?limit=100":
                for delivery in answer.json()["data"]["deliveries"][:8]:
                    self.call("admin's delivery", "GET", f"/api/v1/deliveries/{delivery['id']}")
        for path in READ_BY_ALL:
            self.call(f"GET {path}", "GET", path, {"Authorization": "", "Accept": "text/html"})
        answer = self.call("GET /tasks/:id/activity", "GET", f"/api/v1/tasks/{self.task}/activity")
        assert answer.ok, answer.text

    def break_down(self) -> None:
        """Reload with mistakes, kill a worker that holds a key, and cause bugs."""
        good = self.config.read_text()
        self.config.write_text(good + self.hunt.fill('\n[bootstrap]\napi_key = "<<key in a reload>>" x'))
        before = self.server.children()
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.children() and not set(before) & set(self.server.children()))
        assert "Nothing is reloaded" in self.server.log.read_text()
        self.config.write_text(good)
        before = self.server.children()
        with self.connected() as line:
            head = f"POST /api/v1/projects HTTP/1.1\r\nAuthorization: Bearer {self.key}\r\n"
            line.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
            os.kill(before[0], signal.SIGABRT)
            wait_until(lambda: set(self.server.children()) - set(before))
        for table in ("whiteboard", "flow"):
            self.server.rows(f"ALTER TABLE {table} RENAME TO other_{table}")
        cookie = {"Cookie": self.hunt.fill("session=<<password in a cookie of a bug>>")}
        answer = self.call("a bug", "GET", "/api/v1/context", cookie)
        assert answer.status_code == 500, answer.text
        self.call("a tool's bug", "POST", "/mcp", cookie, json=TOOL)
        secret = {"Authorization": f"Bearer {self.hunt.place('secret of the route literal')}"}
        action = {"action": "list_flows"}
        answer = self.call("a route's bug", "POST", "/plugins/webhooks/literal", secret, json=action)
        assert answer.status_code == 500, answer.text

    def command(self, words: str) -> str:
        """Run a command, whose output is searched."""
        done = self.server.flask(*words.split())
        self.hunt.read(f"command: {words}", done.stdout + done.stderr)
        return done.stdout

    def operate(self) -> None:
        """Run commands, a backup too, and have a whole key revoked."""
        names = [f"backup {self.folder}/backup.db", *COMMANDS[: 1 if self.run.is_short else None]]
        at_once(*(partial(self.command, name) for name in names))
        self.hunt.read_files("copy", self.folder, "backup*")
        if not self.run.is_short:
            key = KEY.findall(self.command("key create"))[0]
            self.hunt.place("key that a command made", "command: key create", text=key)
            self.hunt.read("command: key revoke", self.server.flask("key", "revoke", key).stdout)
            self.throw_away()

    def throw_away(self) -> None:
        """Look at the processes and the log of a server for tests."""
        key = self.hunt.place("key of a throwaway", "its line", is_key=True)
        environment = self.server.environment | {"TASKS_BOOTSTRAP__API_KEY": key}
        words = [BIN / "flask", "--app", "app", "throwaway", "--log", self.folder / "throwaway.txt"]
        with Popen(words, cwd=ROOT, env=environment, stdout=PIPE, text=True) as program:
            try:
                assert program.stdout
                self.hunt.read("its line", program.stdout.readline())
                children = f"/proc/{program.pid}/task/{program.pid}/children"
                with open(children) as file:
                    self.hunt.read_processes([program.pid, *map(int, file.read().split())])
            finally:
                program.terminate()
        self.hunt.read_files("log", self.folder, "throwaway.txt")

    def read_rest(self, calls: list) -> None:
        """Read what is on disk, what receivers got, and the processes' titles."""
        self.hunt.read_processes([self.server.process.pid, *self.server.children()])
        self.hunt.read_files("database", self.server.database.parent)
        self.hunt.read_files("file that was left", ROOT, "core*")
        self.hunt.read_files("given to a program", self.folder, "given-to-programs")
        self.hunt.read("log", self.server.log.read_bytes())
        for call in calls:
            self.hunt.read("delivery", f"{call.headers}\n\n".encode() + call.body)
        secret = self.hunt.place("secret of a webhook").encode()
        signed = [hmac.new(secret, call.body, hashlib.sha256).hexdigest() for call in calls]
        assert calls and signed[0] == calls[0].headers["x-service-signature"], "nothing is signed with it"


def read_mistakes(hunt: Hunt) -> None:
    """Read what is printed for each mistake in the configuration."""
    path = hunt.run.folder / "mistake.toml"
    for name, text in MISTAKES.items():
        path.write_text(hunt.fill(text, name))
        with patch.dict(os.environ, {"TASKS_CONFIG": str(path)}):
            hunt.read(f"message for {name}", message())
    text = hunt.fill('[{"url": "http://a/", "secret": "<<secret in a broken TASKS_WEBHOOKS>>"')
    with patch.dict(os.environ, {"TASKS_CONFIG": os.devnull, "TASKS_WEBHOOKS": text}):
        hunt.read("message for TASKS_WEBHOOKS", message())


def message() -> str:
    """The line that ends the start with this configuration."""
    try:
        config = {section.upper(): values for section, values in read_settings({}).items()}
        startup.check_webhooks(config)
        bootstrap_key(config)
    except (SettingsError, LookupError) as error:
        return str(error)
    raise AssertionError("the configuration is accepted")


def run(run: Run) -> None:
    hunt = Hunt(run)
    read_mistakes(hunt)
    echo = Echo()
    with contextlib.contextmanager(receivers)() as make, echo.listener:
        accepts, refuses, is_down = make().up(), make().up(), make()
        refuses.answer = lambda call: 500
        urls = {"accepts": accepts.url, "refuses": refuses.url, "echoes": echo.url, "is-down": is_down.url}
        stage = Stage(run, hunt, urls)
        # What an operator may switch on to find a fault.
        options = ("--log-level", "debug", "--access-logfile", "-")
        with run.server("server", *options, **stage.settings) as stage.server:
            stage.server.allow_bugs = True
            for step in (stage.use, stage.misuse, stage.read_all, stage.operate, stage.break_down):
                step()
            stage.read_rest([*accepts.all_here(), *refuses.all_here()])
            hunt.report()
