"""The files of deploy/: what they name exists, they agree with one another and the code, and they run."""

import json
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import ClassVar
from urllib.parse import quote, urlencode

import click
import pytest
import requests
import yaml
from harness import BIN, OWNER_KEY, PATIENCE, ROOT, ending, output_of, wait_until
from nginx import NGINX, nginx
from test_members import invite, token_of

from app import create_app
from settings import load_settings, read_settings

DEPLOY = ROOT / "deploy"
README = (DEPLOY / "README.md").read_text()
MIB = 1024 * 1024
CADDY, SYSTEMD = shutil.which("caddy"), shutil.which("systemd-analyze")
needs_nginx = pytest.mark.skipif(not NGINX, reason="nginx is not installed")
needs_caddy = pytest.mark.skipif(not CADDY, reason="Caddy is not installed")
needs_systemd = pytest.mark.skipif(not SYSTEMD, reason="systemd-analyze is not installed")


def text(name):
    return (DEPLOY / name).read_text()


@pytest.fixture
def instructions():
    """The Dockerfile's instructions, by their first words."""
    joined = text("Dockerfile").replace("\\\n", "")
    return [line.split(" ", 1) for line in joined.splitlines() if line and line[0] != "#"]


def test_the_files_agree_on_ports_places_and_times():
    conf = runpy.run_path(str(ROOT / "gunicorn.conf.py"))
    address, port = conf["bind"], conf["bind"].rpartition(":")[2]
    for name, words in {
        "nginx.conf": [f"proxy_pass http://{address};"],
        "Caddyfile": [f"{{$UPSTREAM:{address}}}"],
        "compose.yaml": [f'ports: ["{address}:{port}"]', f"UPSTREAM: tasks:{port}\n"],
        "Dockerfile": [f"EXPOSE {port}\n", f'"--bind", "0.0.0.0:{port}"]', "MALLOC_MMAP_THRESHOLD_=1048576"],
        "tasks": ["TASKS_CONFIG=/etc/tasks/config.toml\n", "</etc/tasks/env\n"],
        "tasks.service": ["=TASKS_CONFIG=/etc/tasks/config.toml\n", "EnvironmentFile=-/etc/tasks/env\n"]
        + ["User=tasks\n", "StateDirectory=tasks\n", "MALLOC_MMAP_THRESHOLD_=1048576\n"],
        "tasks-backup.service": ["User=tasks\n"],
        "litestream.yml": ["path: /var/lib/tasks/tasks.db\n"],
        "README.md": ['database = "/var/lib/tasks/tasks.db"'],
    }.items():
        assert [word for word in words if word not in text(name)] == [], name
    for name, setting in (("tasks.service", "TimeoutStopSec="), ("compose.yaml", "stop_grace_period: ")):
        assert int(re.search(f"{setting}(\\d+)", text(name))[1]) > conf["graceful_timeout"]


def test_the_settings_files_and_commands_that_are_named_exist():
    texts = "".join(file.read_text() for file in DEPLOY.iterdir())
    named = set(re.findall(r"TASKS_([A-Z]+)__([A-Z_]+)", texts))
    assert len(named) >= 3
    for section, key in named:
        assert key.lower() in load_settings({})[section.lower()]
    linked = set(re.findall(r"\]\(([^/)#]*)\)", README))
    assert linked == {file.name for file in DEPLOY.iterdir()} - {"README.md"}
    app = create_app()
    listed = re.findall(r"(?:^ +|; |`|root |sudo )tasks (\w+)(?: ([a-z]+))?", README, re.MULTILINE)
    assert {words[0] for words in listed} >= {"init", "backup", "restore", "doctor", "member"}
    for first, second in listed:
        command = app.cli.commands[first]
        assert not isinstance(command, click.Group) or second in command.commands, (first, second)


def test_the_compose_file_fits_the_image_whose_build_context_has_what_is_copied(monkeypatch, instructions):
    service = yaml.safe_load(text("compose.yaml"))["services"]["tasks"]
    assert [f"data:{folder}" for word, folder in instructions if word == "VOLUME"] == service["volumes"]
    file = DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]
    assert file.samefile(DEPLOY / "Dockerfile")
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:-(.*)\}", r"\1", value))
    assert read_settings({})["server"]["base_url"] == "http://127.0.0.1:8000"
    taken = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    copied = {name for word, rest in instructions if word == "COPY" for name in rest.split()[:-1]}
    needed = {"*.py", "migrations", "templates", "static", "requirements.txt", "config.example.toml"}
    assert copied == set(taken) == needed | {"parts"}
    for private in (".git", ".venv", "config.toml", "tasks.db", "deploy", "tests", "secrets.json"):
        assert not any(fnmatch(private, pattern) for pattern in taken), private


@needs_systemd
def test_systemd_takes_the_units(tmp_path):
    for file in DEPLOY.glob("tasks*.*"):
        here = re.sub(r"/(opt|usr/local)/\S*/(gunicorn|tasks)\b", "/bin/true", file.read_text())
        (tmp_path / file.name).write_text(here)
    units = sorted(path.name for path in tmp_path.iterdir())
    assert units == ["tasks-backup.service", "tasks-backup.timer", "tasks.service"]
    command = [SYSTEMD, "verify", "--man=no", *units]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert [line for line in done.stderr.splitlines() if "tasks" in line] == []
    assert done.returncode == 0, done.stderr


@pytest.fixture
def wrapper(tmp_path):
    """The command, in a folder in place of /, for somebody whom `id` calls `tasks`."""
    for folder in ("etc/tasks", "bin", "sbin", "var/lib/tasks/backups"):
        (tmp_path / folder).mkdir(parents=True)
    here = text("tasks").replace("/opt/tasks/.venv/bin", str(BIN))
    here = here.replace("/opt/tasks/app", str(ROOT / "app")).replace("/usr/sbin", f"{tmp_path}/sbin")
    (tmp_path / "bin/tasks").write_text(here.replace("/etc/tasks", f"{tmp_path}/etc/tasks"))
    identity = '[ "$WHO" = root ] && [ "$1" = -u ] && echo 0 || echo "$WHO"'
    (tmp_path / "bin/id").write_text(f"#!/bin/sh\n{identity}\n")
    for name in ("sbin/runuser", "bin/sudo"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name.partition("/")[2]} "$@"\n')
    for file in tmp_path.glob("*bin/*"):
        file.chmod(0o755)
    (tmp_path / "etc/tasks/config.toml").write_text('[server]\ndatabase = "../../var/lib/tasks/tasks.db"\n')
    (tmp_path / "etc/tasks/env").write_text(
        '# Ours.\n\nNO-NAME=1\nNO NAME=2\n TASKS_BOOTSTRAP__OWNER_NAME= Ana "$(id)" & Lima \n'
        "TASKS_WORKSPACE__NAME = 'A = b'\n"
        'TASKS_SERVER__BASE_URL="https://tasks.example.com"'
    )
    return tmp_path


def run(folder, *words, who="tasks"):
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "WHO": who}  # as cron sets it
    return output_of(*words, cwd=folder, env=environment)


@pytest.mark.long
def test_the_command_runs_as_the_service_does(wrapper):
    said = run(wrapper, "tasks", "init")
    assert 'The first owner is Ana "$(id)" & Lima <owner@example.com>.' in said
    assert "https://tasks.example.com/enroll/" in said
    assert run(wrapper, "tasks", "doctor", who="root") == f"runuser -u tasks -- {wrapper}/bin/tasks doctor\n"
    assert run(wrapper, "tasks", "backup", "a b", who="ana").startswith("sudo -u tasks -- ")
    assert " root /usr/local/bin/tasks backup " in text("README.md")  # cron does not search that folder
    old, new = (wrapper / "var/lib/tasks/backups" / name for name in ("old.db", "new.db"))
    for file, days in ((old, 14.1), (new, 13.5)):
        file.touch()
        os.utime(file, (time.time() - days * 86400,) * 2)
    commands = re.findall("^ExecStart(?:Post)?=(.*)", text("tasks-backup.service"), re.MULTILINE)
    assert len(commands) == 2
    for line in commands:
        line = line.replace("%%", "%").replace("$$", "$").replace("/var/lib", f"{wrapper}/var/lib")
        run(wrapper, *shlex.split(line.replace("/usr/local/bin/tasks", f"{wrapper}/bin/tasks")))
    names = sorted(file.name for file in old.parent.iterdir())
    assert names[1:] == ["new.db"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-\d{6}\.db", names[0])
    assert (old.parent / names[0]).stat().st_mode & 0o777 == 0o600
    assert "note: the newest backup in " in run(wrapper, "tasks", "doctor")


@pytest.mark.long
def test_the_image_s_steps_serve_from_a_folder_that_its_user_cannot_write(instructions):
    """As the image's user where this is root, who may become another one."""
    (user,) = (rest for word, rest in instructions if word == "USER")
    assert re.fullmatch(r"(\d+):\1", user)
    uid = int(user.partition(":")[0])
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if os.geteuid() == 0 else []
    tried = subprocess.run([*become, BIN / "python", "-c", "import flask"])
    if tried.returncode:  # it may not enter that folder
        become, uid = ["setpriv", "--bounding-set=-dac_override"], 0
    with TemporaryDirectory() as folder:
        home, data = Path(folder, "app"), Path(folder, "data")
        for path in (Path(folder), home, data):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        if become:
            os.chown(data, uid, uid)
        for names in [rest.split()[:-1] for word, rest in instructions if word == "COPY"]:
            for path in [path for name in names for path in ROOT.glob(name)]:
                copy = shutil.copytree if path.is_dir() else shutil.copy
                copy(path, home / path.name)
        subprocess.run(["chmod", "-R", "a+rX,a-w", home], check=True)
        (pairs,) = (rest for word, rest in instructions if word == "ENV")
        environment = dict(pair.split("=") for pair in pairs.replace("=/data", f"={data}").split())
        assert environment["TMPDIR"] == str(data)
        environment |= {"PATH": os.environ["PATH"]}
        options = {"cwd": home, "env": environment}
        words = [*become, BIN / "flask", "--app", "app", "init"]
        assert "API key for programs" in output_of(*words, **options)
        with socket.create_server(("127.0.0.1", 0)) as listener, Path(folder, "log").open("w") as log:
            (command,) = (json.loads(rest) for word, rest in instructions if word == "CMD")
            words = [*become, BIN / command[0], "--bind", f"fd://{listener.fileno()}"]
            server = subprocess.Popen(words, stdout=log, stderr=log, pass_fds=[listener.fileno()], **options)
            (health,) = (rest for word, rest in instructions if word == "HEALTHCHECK")
            code = json.loads(health.partition("CMD ")[2])[2]
            port = str(listener.getsockname()[1])
            code = code.replace("8000", port).replace("timeout=4", f"timeout={PATIENCE}")
            check = [BIN / "python", "-c", code]
        with server, ending(server):
            proxy = {"http_proxy": "http://127.0.0.1:9"}  # as Docker sets it; nothing answers there
            done = subprocess.run(check, timeout=PATIENCE, env=proxy)
            assert done.returncode == 0, Path(folder, "log").read_text()
        assert server.returncode == 0


@pytest.fixture(scope="module")
def proxied(launch_module):
    settings = {"TASKS_SERVER__TRUSTED_PROXIES": "1", "TASKS_OAUTH__ENABLED": "true"}
    return launch_module(TASKS_SERVER__BASE_URL="https://127.0.0.1/team", **settings)


def shows_documents(base, verify):
    """Check that a program that knows only /mcp finds the documents where it looks first (RFC 9728, 8414)."""
    from mcp.client.auth import utils  # which takes a second

    mcp, issuer = f"{base}/mcp", "https://127.0.0.1/team"
    (resource, *_) = utils.build_protected_resource_metadata_discovery_urls(None, mcp)
    (metadata, *_) = utils.build_oauth_authorization_server_metadata_discovery_urls(base, mcp)
    resource, metadata = (requests.get(url, verify=verify, timeout=PATIENCE) for url in (resource, metadata))
    assert (resource.json()["resource"], metadata.json()["issuer"]) == (f"{issuer}/mcp", issuer)


def carries(server, base, verify):
    """Check that behind a proxy limits and paths are the service's, and the address is the client's."""
    owner = server.client()
    project = owner.make_project()
    files = f"{base.rstrip('/')}/api/v1/tasks/{owner.make_task(project)['id']}/attachments"
    with requests.Session() as session:
        session.trust_env = False  # or it could name other authorities
        session.verify, session.headers["Authorization"] = verify, f"Bearer {OWNER_KEY}"
        for size, status in ((10 * MIB, 201), (10 * MIB + 1, 413), (13 * MIB, 413)):
            answer = session.post(files, files={"file": ("f", bytes(size))}, timeout=PATIENCE)
            assert (answer.status_code, "meta" in answer.json()) == (status, True)
        for external_id in ("https://example.com/issues/7", "a/../b", "../x", "%2F a//b"):
            path = f"{base.rstrip('/')}/api/v1/tasks/by-external-id/{quote(external_id, safe='')}"
            task = {"project_id": project["id"], "title": "Synced"}
            assert session.put(path, json=task, timeout=PATIENCE).json()["data"]["external_id"] == external_id
        cookies = "; ".join(f"_oauth2_proxy_{part}={'x' * 4000}" for part in range(3))
        assert session.get(files, headers={"Cookie": cookies}, timeout=PATIENCE).status_code == 200
        id = session.get(files, headers={"X-Forwarded-For": "192.0.2.1"}).headers["X-Request-Id"]
        page = session.get(base, headers={"Accept": "text/html"})
    assert "</html>" in page.text
    (line,) = [line for line in server.log.read_text().splitlines() if id in line]
    assert line.endswith(" 127.0.0.1")


@needs_nginx
@pytest.mark.parametrize("below", ["", "/team"])
def test_nginx_passes_on_what_the_service_takes_and_refuses(proxied, tmp_path, below):
    with nginx(tmp_path, proxied, below) as site:
        carries(proxied, site.base, site.authority)
        if below:
            shows_documents(site.base, site.authority)
        path, body = f"{site.base}/api/v1/tasks", bytes(15 * MIB)
        huge = requests.post(path, data=body, verify=site.authority, timeout=PATIENCE)
        assert (huge.status_code, huge.json()["error"]["code"]) == (413, "payload_too_large")
        assert huge.json()["meta"]["request_id"].startswith("req_")
        for secret in ("enroll/t0ken", "calendar/t0ken.ics", "api/v1/enroll/t0ken?x"):
            requests.get(f"{site.base}/{secret}", verify=site.authority, timeout=PATIENCE)
    logged = (tmp_path / "access.log").read_text()
    assert "/api/v1/tasks" in logged
    assert "t0ken" not in logged


@needs_nginx
def test_nginx_says_in_json_that_the_service_is_down(tmp_path):
    with nginx(tmp_path, SimpleNamespace(base="http://127.0.0.1:1")) as site:
        answer = requests.get(f"{site.base}/api/v1/health", verify=site.authority, timeout=PATIENCE)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json()["error"]["code"] == "unavailable"
    assert answer.json()["meta"].keys() == {"timestamp", "version", "request_id"}


@contextmanager
def caddy(folder, upstream, more="", below="", **variables):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    version = output_of(CADDY, "version")
    config = text("Caddyfile")
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < (2, 6, 3):
        config = re.sub(r"# (buffer_|max_buffer)", r"\1", re.sub(r"\n\s*re\w+_buffers .*", "", config))
    config = config.replace("\treverse_proxy", f"{more}\n\treverse_proxy", 1)
    if below:
        config = re.sub(r"# (redir|uri path|handle_path|\}\n\}$)", r"\1", config)
    (folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + config)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "UPSTREAM": upstream}
    environment |= {"SITE": f"http://127.0.0.1:{port}"} | variables
    with (folder / "log").open("w") as log:
        words = [CADDY, "run", "--config", "Caddyfile", "--adapter", "caddyfile"]
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
    with process, ending(process):
        said = wait_until(lambda: re.search("serving initial|Error.*", (folder / "log").read_text()))
        assert said[0] == "serving initial"
        yield f"http://127.0.0.1:{port}"


@needs_caddy
@pytest.mark.parametrize("below", ["", "/team"])
def test_caddy_passes_on_what_the_service_takes_and_refuses(proxied, tmp_path, below):
    with caddy(tmp_path, proxied.base.removeprefix("http://"), below=below) as base:
        carries(proxied, f"{base}{below}/", None)
        if below:
            shows_documents(f"{base}{below}", None)
            answer = requests.get(f"{base}{below}", allow_redirects=False, timeout=PATIENCE)
            assert answer.headers["Location"] == f"{below}/"


class SignIn(BaseHTTPRequestHandler):
    """Answers a proxy as oauth2-proxy and Authelia do, for a person whose cookie `who` is an address."""

    asked: ClassVar[list] = []  # the paths

    def do_GET(self):
        self.asked.append(self.path)
        _, _, who = self.headers.get("Cookie", "").partition("who=")
        oauth2 = self.path == "/oauth2/auth"
        self.send_response((202 if oauth2 else 200) if who else (401 if oauth2 else 302))
        if "@" in who:
            self.send_header("X-Auth-Request-Email" if oauth2 else "Remote-Email", who)
        if not who and not oauth2:
            self.send_header("Location", "https://auth.example.com/?rd=here")
        if self.path == "/oauth2/callback":
            for part in range(3):
                self.send_header("Set-Cookie", f"_oauth2_proxy_{part}={'x' * 4000}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def signs_in():
    """The address at which that answers."""
    SignIn.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as httpd:
        threading.Thread(target=httpd.serve_forever, args=(0.01,)).start()
        yield f"127.0.0.1:{httpd.server_port}"
        httpd.shutdown()  # which waits until it serves no more


@pytest.fixture(scope="module")
def entered(launch_module):
    settings = {"TASKS_SERVER__SIGN_IN_NETWORKS": '["127.0.0.1/32"]', "TASKS_SERVER__TRUSTED_PROXIES": "1"}
    return launch_module(TASKS_SERVER__SIGN_IN_HEADER="Remote-Email", TASKS_OAUTH__ENABLED="true", **settings)


def passes_no_name_on(base, verify):
    """Where the setting is there and the file that goes with it is not."""
    headers = {"Accept": "text/html", "Remote-Email": "owner@example.com"}
    answer = requests.get(base, headers=headers, verify=verify, timeout=PATIENCE)
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (200, False)


def guards(base, verify, login):
    """Check that the proxy names the person who signs in, and that no client can name itself."""

    def get(path, **headers):
        headers, options = {"Accept": "text/html"} | headers, {"verify": verify, "allow_redirects": False}
        return requests.get(base + path, headers=headers, timeout=PATIENCE, **options)

    entered = get("/", Cookie="who=owner@example.com")
    assert (entered.status_code, "tasks_session_8000" in entered.cookies) == (200, True)
    assert get("/", Cookie="who=stranger@example.com").status_code == 403
    for name in ("Remote-Email", "remote-email", "Remote_Email", "X-Auth-Request-Email"):
        forged = {name: "owner@example.com"}
        asked, nameless = get("/", **forged), get("/", Cookie="who=nameless", **forged)
        assert (asked.status_code, asked.headers["Location"]) == (302, login)
        assert nameless.status_code in (200, 403)  # Caddy before 2.10 sends a word of its own
        assert get("/", Cookie="who=stranger@example.com", **forged).status_code == 403
        assert not any("Set-Cookie" in answer.headers for answer in (asked, nameless, get("/?x", **forged)))
    assert get("/api/v1/me", Authorization=f"Bearer {OWNER_KEY}").status_code == 200
    assert get("/api/v1/me").status_code == 401


@needs_nginx
def test_nginx_and_oauth2_proxy_say_who_signs_in(entered, signs_in, tmp_path):
    more = text("sign-in.nginx.conf").replace("http://127.0.0.1:8000;", f"{entered.base};")
    more = more.replace("127.0.0.1:4180", signs_in)
    with nginx(tmp_path, entered) as site:
        passes_no_name_on(site.base, site.authority)
    with nginx(tmp_path, entered, more=more) as site:
        guards(site.base, site.authority, f"{site.base}/oauth2/start?rd=/")
        options = {"verify": site.authority, "allow_redirects": False}
        assert len(requests.get(f"{site.base}/oauth2/callback", timeout=PATIENCE, **options).cookies) == 3
        # A member without an account at the proxy reaches the page with a session, even from a mail.
        token, html = token_of(invite(entered.client(), "client@example.com")), {"Accept": "text/html"}
        path = f"{site.base}/enroll/{token}"
        session = requests.post(path, headers=html, timeout=PATIENCE, **options).cookies
        forged = html | {"Remote-Email": "owner@example.com"}
        answer = requests.get(site.base, headers=forged, cookies=session, timeout=PATIENCE, **options)
        cross = {"Sec-Fetch-Site": "cross-site"}
        mailed = requests.get(site.base, headers=cross, timeout=PATIENCE, **options)
    assert (answer.status_code, 'id="schemas"' in answer.text, len(answer.cookies)) == (200, True, 0)
    assert "location.replace" in mailed.text


@needs_nginx
def test_a_person_whom_nginx_sends_to_sign_in_allows_a_program(entered, signs_in, tmp_path, browse):
    """The proxy guards only /. The page looks there who has signed in, and starts no sign-in by itself."""
    more = text("sign-in.nginx.conf").replace("http://127.0.0.1:8000;", f"{entered.base};")
    more = more.replace("127.0.0.1:4180", signs_in)
    program = f"http://{signs_in}/callback"
    made = requests.post(
        f"{entered.base}/oauth/register", json={"redirect_uris": [program]}, timeout=PATIENCE
    )
    asked = {"client_id": made.json()["client_id"], "redirect_uri": program, "response_type": "code"}
    asked |= {"code_challenge_method": "S256", "code_challenge": "c" * 43}
    with nginx(tmp_path, entered, more=more) as site:
        page = browse(own=True, refusals=True, ignore_https_errors=True)
        page.set_extra_http_headers({"Remote-Email": "owner@example.com"})
        page.goto(f"{site.base}/oauth/authorize?{urlencode(asked)}")
        page.get_by_text("Sign in first").wait_for()
        assert page.get_by_role("button", name="Allow").count() == 0
        assert set(SignIn.asked) == {"/oauth2/auth"}
        page.set_extra_http_headers({})
        cookie = {"name": "who", "value": "owner@example.com", "url": site.base}
        page.context.add_cookies([cookie])  # the person signs in at the proxy, in another tab
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.get_by_role("button", name="Allow").wait_for()
        shown = page.get_by_label("It works in the name of").locator("option:checked")
        assert shown.inner_text() == "Olga Owner"
        with page.expect_request(lambda request: request.url.startswith(program)) as sent:
            page.get_by_role("button", name="Allow").click()
        assert "code=" in sent.value.url
        page.close()


@needs_caddy
def test_caddy_and_authelia_say_who_signs_in(entered, signs_in, tmp_path):
    more, upstream = text("sign-in.Caddyfile"), entered.base.removeprefix("http://")
    with caddy(tmp_path, upstream) as base:
        passes_no_name_on(base, None)
    with caddy(tmp_path, upstream, more, AUTHELIA=signs_in) as base:
        guards(base, None, "https://auth.example.com/?rd=here")
