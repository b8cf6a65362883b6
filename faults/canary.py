"""Put a secret in every place that can hold one, and then search for it everywhere else.

A real server has every kind of secret. Clients, receivers and operators use it, rightly and wrongly. Then its
log, responses, events, deliveries, database, copies, processes and commands are searched. To a client of some
projects, the texts of another project are secrets too.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import requests
from aiosmtpd.smtp import AuthResult
from findings import Run
from harness import EVERY_EVENT, PATIENCE, ROOT, Receiver, Server, at_once, receivers
from mailboxes import Mailbox, token_in
from misplaced import ENTER, HEADS, MISTAKES, PROVIDER, PROVIDERS, REFERENCE, REQUESTS, ROUTE, SERVED, WEBHOOK
from receivers import certificates
from test_client_projects import ALL, MAY, fill, read_all
from test_tools import text_of
from traces import Hunt

# Texts that may contain the path and query of a webhook's URL.
URL_IS_SHOWN = ("answer: GET webhooks", "answer: GET deliveries", "command: webhook", "database", "copy")
# Texts that may contain what a client of some projects must not see.
OF_OTHERS = ("answer: GET", "database", "copy", "delivery")
READ = "context activity members me keys health openapi.json docs tasks tasks/TASK/activity"
READ += " webhooks deliveries?limit=100 events?limit=100"
COMMANDS = ("webhook list", "key list", "member list", "doctor", "init", "deliver")
KEY = re.compile(r"tms_[\w-]{43}")
TOOL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_context"}}
NOBODY = {"Authorization": ""}
GUEST = {"email": "guest@example.com", "full_name": "Guy Guest", "role": "member"}
CLIENT = {"email": "client@example.com", "full_name": "Clara Client", "role": "client"}
LINK = re.compile(rb"/enroll/[\w-]+")
PROXY = "127.0.0.2"  # a proxy that names the member


class Refusing(Mailbox):
    """A mail server that refuses the first mail to each address. Its error has the password and the link."""

    def authenticate(self, *arguments):
        super().authenticate(*arguments)
        return AuthResult(success=True)

    async def handle_DATA(self, server, session, envelope):
        if not self.count(envelope.rcpt_tos[0]):
            self.answers.append(f"554 {self.credentials[-1]} {LINK.findall(envelope.content)}")
        return await super().handle_DATA(server, session, envelope)


class Repeating(BaseHTTPRequestHandler):
    """A receiver that answers with the header of the webhook alone."""

    def do_POST(self) -> None:
        self.wfile.write(f"{self.headers['Authorization']}\r\n\r\n".encode())

    def log_message(self, *_) -> None:
        pass


class Stage:
    """A server with a secret of each kind, and the steps that use it."""

    server: Server

    def __init__(self, run: Run, hunt: Hunt, urls: dict[str, str], box: Mailbox, authority: Path):
        self.hunt, self.folder, self.box = hunt, run.folder, box
        self.step = 4 if run.is_short else 1  # skips some of many cases
        self.session = requests.Session()
        self.session.trust_env = False
        self.key = hunt.place("bootstrap key", is_key=True)
        netrc = self.folder / "netrc"
        netrc.write_text(hunt.fill("machine 127.0.0.1 login user password <<password in .netrc>>"))
        self.config = self.folder / "config.toml"
        self.config.write_text(self.configuration(urls))
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
            "NETRC": str(netrc),
            "TASKS_MAIL__URL": box.url,
            "TASKS_MAIL__FROM": "tasks@example.com",
            "TASKS_MAIL__USER": "tasks",
            "TASKS_MAIL__PASSWORD": "$MAIL_PASSWORD",
            "MAIL_PASSWORD": hunt.place("password of the mail server"),
            "TASKS_DELIVERY__CA_FILE": str(authority),
            "BOUND_AGAIN_SECONDS": "0.1",
            "BOUND_QUIET_SECONDS": "0",
            "TASKS_SERVER__SIGN_IN_HEADER": "Remote-Email",
            "TASKS_SERVER__SIGN_IN_NETWORKS": f'["{PROXY}"]',
            "TMPDIR": str(self.folder),
        }

    def configuration(self, urls: dict[str, str]) -> str:
        """Return a configuration with these webhooks, and a route for each place where a secret may be."""
        text = ""
        for name, url in urls.items():
            self.hunt.place(f"path of {name}", *URL_IS_SHOWN)
            self.hunt.place(f"query of {name}", *URL_IS_SHOWN)
            shown = ["delivery"] if name == "accepts" else []  # `read_rest` reads what this one got
            self.hunt.place(f"header of {name}", *shown)
            text += WEBHOOK.format(name=name, url=url, events=EVERY_EVENT)
        self.hunt.place("environment of a program", "given to a program")
        text += ROUTE.format(name="literal", secret='"<<secret of the route literal>>"')
        text += ROUTE.format(name="environment", secret='"$ROUTE_SECRET"')
        for provider in PROVIDERS:
            file = self.folder / provider.name
            content = provider.content.replace("PYTHON", sys.executable).replace("FOLDER", str(self.folder))
            file.write_text(self.hunt.fill(content))
            file.chmod(provider.mode)
            text += PROVIDER.format(file=file, **provider._asdict())
            text += ROUTE.format(name=provider.name, secret=REFERENCE.format(**provider._asdict()))
        return self.hunt.fill(text)

    def call(self, name: str, method: str, path: str, headers=None, **options) -> requests.Response:
        """Make a request and search its response. The owner's key is the default `Authorization`."""
        headers = {"Authorization": f"Bearer {self.key}"} | (headers or {})
        sent = {header: text for header, text in headers.items() if text}
        options |= {"timeout": PATIENCE, "allow_redirects": False}
        answer = self.session.request(method, self.server.base + path, headers=sent, **options)
        self.hunt.read(f"answer: {name}", f"{answer.headers}\n\n".encode() + answer.content)
        return answer

    def make(self, name: str, path: str, body: dict | None, **headers: str) -> dict:
        """Make something over the API."""
        answer = self.call(name, "POST", f"/api/v1{path}", headers, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["data"]

    def use(self) -> None:
        """Use secrets as intended: webhooks, keys, tools, links, routes."""
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
        for name in ("first", "second"):  # the second replaces the first
            token = KEY.findall(self.make(f"{name} calendar", "/calendar", None)["url"])[0]
            self.hunt.place(f"token of the {name} calendar", f"answer: {name} calendar", text=token)
        for name in ("first", "second"):
            path = self.hunt.fill(f"/calendar/<<token of the {name} calendar>>.ics")
            self.call(f"entries of the {name} link", "GET", path, NOBODY)
        self.make("a mailed invitation", "/members/invite", GUEST)
        token = token_in(self.box.next(GUEST["email"]))
        joined = self.call("joined by mail", "POST", f"/api/v1/enroll/{token}", NOBODY).json()["data"]
        self.hunt.place("key of who joined by mail", "answer: joined by mail", text=joined["api_key"])
        entered = self.exchange("signed in by the proxy", ENTER.format("11@example.com"), PROXY)
        key = KEY.findall(entered.decode())[0]
        self.hunt.place("key of who signed in by the proxy", "answer: signed in by the proxy", text=key)
        name = f"{self.hunt.run.random.getrandbits(160):x}"  # addresses are shown in lower case
        name = self.hunt.place("whom the proxy names", "answer: a stranger", text=name)
        self.exchange("a stranger", ENTER.format(f"{name}@example.com"), PROXY)
        for route in SERVED:
            headers = {"x-agent-webhook-secret": self.hunt.place(f"secret of the route {route}"), **NOBODY}
            flow = {"action": "create_flow", "goal": "G"}
            answer = self.call(f"route {route}", "POST", f"/plugins/webhooks/{route}", headers, json=flow)
            assert answer.status_code == 200, (route, answer.text)

    def enroll(self, how: str, path: str) -> None:
        """Invite somebody, and join with the second link."""
        body = {"email": f"{len(how)}@example.com", "full_name": "Ana", "role": "member"}
        invited = self.make(f"invitation {how}", "/members/invite", body)
        self.place_token(f"first token {how}", f"answer: invitation {how}", invited)
        invited = self.make(f"renewal {how}", f"/members/{invited['member']['id']}/invitation", {})
        token = self.place_token(f"token {how}", f"answer: renewal {how}", invited)
        self.call("an unused link", "GET", f"{path}/{token}", NOBODY)
        joined = self.call(f"joined {how}", "POST", f"{path}/{token}", NOBODY)
        key = KEY.findall(f"{joined.headers} {joined.text}")[0]
        self.hunt.place(f"key of who joined {how}", f"answer: joined {how}", text=key)
        self.call("a used link", "GET", f"{path}/{token}", NOBODY)

    def place_token(self, name: str, place: str, invited: dict) -> str:
        return self.hunt.place(name, place, text=invited["enrollment_link"].rpartition("/")[2])

    def look_elsewhere(self) -> None:
        """Let a client of one project read everything, while another project is full of secrets."""
        owner, hidden = self.server.client(self.key), self.hunt.place("text of a hidden project", *OF_OTHERS)
        seen, other = owner.make_project(), owner.make_project(name=hidden)
        invited = self.make(
            "a client's invitation", "/members/invite", CLIENT | {"project_ids": [seen["id"]]}
        )
        token = invited["enrollment_link"].rpartition("/")[2]
        joined = owner.data(self.server.client(None).post(f"/enroll/{token}"), 201)
        client = self.server.client(joined["api_key"])
        client.calendar = "/calendar/" + client.data(client.post("/calendar"), 201)["url"].rpartition("/")[2]
        client.data(client.patch(f"/members/{joined['member']['id']}", {"mail": "at_once"}))
        ids = fill(owner, other, hidden, CLIENT["full_name"])
        shown = self.hunt.place("text of a client's project", "client", *OF_OTHERS)
        inside = fill(owner, seen, shown, CLIENT["full_name"])
        moved = owner.make_task(seen)["id"]
        for id, changes in (
            (moved, {"project_id": other["id"], "title": hidden}),
            (inside["task"], {"blocked_by": [ids["number"], moved]}),
        ):
            owner.data(owner.patch(f"/tasks/{id}/details", changes))
        read = read_all(self.server, client)
        paths = [name.split()[1] for name, roles in MAY.items() if roles == ALL and name.startswith("GET")]
        paths = [re.sub("<[^>]*>", str(id), path) for path in paths for id in (*ids.values(), moved)]
        paths += [f"/tasks/{ids['task']}/attachments/{ids['attachment']}", f"/tasks?q={hidden}"]
        read |= {path: client.request("GET", path, envelope=False).text for path in paths}
        for name, given in (("get_task", {"task_id": moved}), ("get_project", {"project": other["id"]})):
            read[name], _ = text_of(client, name, given)
        while "invites" in (mail := self.box.next(CLIENT["email"]))["Subject"]:
            continue
        assert shown in str(read) and shown in str(mail)
        for name, text in (read | {"mail": str(mail)}).items():
            self.hunt.read(f"client: {name}", text)

    def misuse(self) -> None:
        """Send secrets where they do not belong."""
        for name, method, path, headers, body in REQUESTS[:: self.step]:
            fill = partial(self.hunt.fill, name=name)
            filled = {"Content-Type": "application/json"} | {key: fill(text) for key, text in headers.items()}
            path = fill(path.replace("TASK", self.task))
            answer = self.call(name, method, path, filled, data=fill(body) if body else None)
            assert answer.status_code != 500, (name, answer.text)
        for name, head in [*HEADS.items()][:: self.step]:
            self.exchange(name, self.hunt.fill(head.replace("KEY", self.key), name))

    def exchange(self, name: str, head: str, source: str = "") -> bytes:
        """Send one message from the address `source` of this machine. Return the response and search it."""
        with self.connected(source) as line:
            line.sendall(head.encode("latin-1"))
            line.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(partial(line.recv, 65536), b""))
        self.hunt.read(f"answer: {name}", answer)
        return answer

    def connected(self, source: str = "") -> socket.socket:
        host, port = self.server.base.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), PATIENCE, (source, 0))

    def read_all(self) -> None:
        """Read everything that the API shows."""
        for path in READ.replace("TASK", self.task).split():
            answer = self.call(f"GET {path}", "GET", f"/api/v1/{path}")
            assert answer.ok, answer.text
            for delivery in answer.json()["data"]["deliveries"][:8] if path.startswith("deliveries") else ():
                self.call("GET deliveries/:id", "GET", f"/api/v1/deliveries/{delivery['id']}")
        for path in ("/", "/api/v1/health", "/static/page.js"):
            self.call(f"GET {path}", "GET", path, NOBODY)

    def command(self, words: str) -> str:
        """Run a command, and search its output."""
        done = self.server.flask(*words.split())
        self.hunt.read(f"command: {words}", done.stdout + done.stderr)
        return done.stdout

    def operate(self) -> None:
        """Run commands, and have a whole key revoked."""
        names = [f"backup {self.folder}/backup.db", *COMMANDS[:: self.step]]
        at_once(*(partial(self.command, name) for name in names))
        self.hunt.read_files("copy", self.folder, "backup*")
        key = KEY.findall(self.command("key create"))[0]
        self.hunt.place("key that a command made", "command: key create", text=key)
        self.hunt.read("command: key revoke", self.server.flask("key", "revoke", key).stdout)

    def break_down(self) -> None:
        """Reload with a mistake, kill a worker that holds a key, and cause bugs."""
        good = self.config.read_text()
        for number, mistake in enumerate(MISTAKES, 1):
            self.config.write_text(good + self.hunt.fill(mistake))
            with self.server.replacing():
                self.server.process.send_signal(signal.SIGHUP)
            assert self.server.log.read_text().count("Nothing is reloaded") >= number
        self.config.write_text(good)
        # The connection ends before the wait for the new worker. Otherwise the old worker would wait for
        # the body.
        with self.server.replacing(), self.connected() as line:
            head = f"POST /api/v1/projects HTTP/1.1\r\nAuthorization: Bearer {self.key}\r\n"
            line.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
            # The worker has read the head above before it answers this.
            self.call("beside a body that stalls", "GET", "/api/v1/health", NOBODY)
            os.kill(self.server.children()[0], signal.SIGABRT)
        for table in ("whiteboard", "flow"):
            self.server.rows(f"ALTER TABLE {table} RENAME TO other_{table}")
        cookie = {"Cookie": self.hunt.fill("session=<<password in a cookie of a bug>>")}
        answer = self.call("a bug", "GET", "/api/v1/context", cookie)
        assert answer.status_code == 500, answer.text
        secret = {"Authorization": f"Bearer {self.hunt.place('secret of the route literal')}"}
        reading = {"action": "list_flows"}
        answer = self.call("a route's bug", "POST", "/plugins/webhooks/literal", secret, json=reading)
        assert answer.status_code == 500, answer.text

    def read_rest(self, receiver: Receiver) -> None:
        """Read the files on disk, the deliveries to a receiver, and the processes' titles."""
        self.hunt.read_processes([self.server.process.pid, *self.server.children()])
        self.hunt.read_files("database", self.server.database.parent)
        self.hunt.read_files("file that was left", ROOT, "core*")
        self.hunt.read_files("given to a program", self.folder, "given-to-programs")
        self.hunt.read("log", self.server.log.read_bytes())
        for number, mail in enumerate(mail for mail in self.box.seen if LINK.search(mail.raw)):
            self.hunt.place(f"token of mail {number}", text=token_in(mail))
        for call in receiver.all_here():
            self.hunt.read("delivery", f"{call.headers}\n\n".encode() + call.body)


def run(run: Run) -> None:
    if not shutil.which("openssl"):
        run.found("G17", "secrets found where they may not be", "not done: openssl is missing")
        return
    hunt = Hunt(run)
    authority, contexts = certificates(run.folder / "tls")
    box = Refusing(tls_context=contexts["right"], require_starttls=True, auth_required=True)
    with contextlib.closing(box), contextlib.contextmanager(receivers)() as make:
        accepts, refuses, is_down = make().up(), make().up(), make()
        refuses.answer = lambda call: 500
        repeats = HTTPServer(("127.0.0.1", 0), Repeating)
        threading.Thread(target=repeats.serve_forever, daemon=True).start()
        urls = {"accepts": accepts.url, "refuses": refuses.url, "is-down": is_down.url}
        urls["repeats"] = f"http://127.0.0.1:{repeats.server_port}"
        stage = Stage(run, hunt, urls, box, authority)
        # Options that an operator may switch on to find a fault.
        options = ("--log-level", "debug", "--access-logfile", "-")
        with run.server("server", *options, **stage.settings) as stage.server:
            stage.server.allow_bugs = True
            for step in (
                stage.use,
                stage.look_elsewhere,
                stage.misuse,
                stage.read_all,
                stage.operate,
                stage.break_down,
            ):
                step()
            stage.read_rest(accepts)
            hunt.report()
