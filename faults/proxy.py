"""Through nginx, with the file of deploy/: no client that misbehaves, and no reload, is a 502 for others."""

import copy
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import clients
from bystanders import Work, working
from clients import JSON, Line, Misbehaviour, Target, head, misbehave
from findings import Run
from harness import OWNER_KEY, PATIENCE, ROOT
from receivers import certificates

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
MIB = 1024 * 1024
CONNECTIONS = 64
MAIN = """
daemon off;
{user}
pid nginx.pid;
worker_rlimit_nofile 4096;
events {{ worker_connections 2048; }}
http {{
    access_log access.log;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include site.conf;
}}
"""
# The others of `clients.MISBEHAVIOURS` are answered by nginx itself, each in its own way.
PASSED_ON: tuple[Misbehaviour, ...] = (
    clients.sends_its_head_slowly,
    clients.sends_its_body_slowly,
    clients.sends_chunks_byte_by_byte,
    clients.vanishes_in_its_head,
    clients.vanishes_in_its_body,
    clients.vanishes_in_a_chunk,
    clients.vanishes_in_an_upload,
    clients.vanishes_before_its_answer,
    clients.vanishes_in_its_answer,
    clients.vanishes_in_a_request_of_a_route,
    clients.vanishes_in_a_call_of_a_tool,
    clients.reads_slowly,
    clients.pipelines,
    clients.waits_to_be_told_to_continue,
)


class Proxied:
    """A server as its clients see it behind nginx."""

    def __init__(self, server: Any, port: int, tls: ssl.SSLContext):
        self.server, self.base, self.tls = server, f"https://127.0.0.1:{port}", tls

    def line(self) -> Line:
        return Line(self, tls=self.tls)

    def ask(
        self, method: str, path: str, *headers: str, body: bytes = b"", key: str | None = OWNER_KEY
    ) -> Any:
        """The status and the body of an answer, on a connection of its own."""
        line = self.line()
        length = [f"Content-Length: {len(body)}"] if body else []
        line.socket.sendall(head(method, path, ["Connection: close", *length, *headers], key))
        line.socket.sendall(body)
        said = line.answer()
        line.close()
        return said


def site(folder: Path, port: int, upstream: str) -> str:
    """The file of deploy/, with the addresses and certificates of this machine."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    ours = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/letsencrypt/live/tasks.example.com/fullchain.pem": str(folder / "right.pem"),
        "/etc/letsencrypt/live/tasks.example.com/privkey.pem": str(folder / "right.key"),
        "http://127.0.0.1:8000;": f"{upstream};",
    }
    for theirs, our in ours.items():
        assert text.count(theirs) == 1, f"deploy/nginx.conf has no {theirs}"
        text = text.replace(theirs, our)
    return text


@contextmanager
def nginx(folder: Path, server: Any) -> Iterator[Proxied]:
    """Run nginx before the server, on a port that the system chose, in a folder of its own."""
    authority, _ = certificates(folder)
    with socket.create_server(("127.0.0.1", 0), backlog=511) as listener:
        port = listener.getsockname()[1]
        (folder / "site.conf").write_text(site(folder, port, server.base))
        (folder / "nginx.conf").write_text(MAIN.format(user="user root;" if os.geteuid() == 0 else ""))
        words = [str(NGINX), "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
        # As on an upgrade of its program, nginx finds its listening socket in this variable.
        environment = os.environ | {"NGINX": f"{listener.fileno()};"}
        process = subprocess.Popen(words, env=environment, pass_fds=[listener.fileno()])
        try:
            yield Proxied(server, port, ssl.create_default_context(cafile=str(authority)))
        finally:
            process.send_signal(signal.SIGQUIT if process.poll() is None else signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait(PATIENCE)


def run(run: Run, server: Any, secret: str, route: str) -> None:
    if NGINX is None:
        run.found("O1", "through nginx", "not done: nginx is not installed")
        return
    target = Target(server, route, secret)
    folder = run.folder / "nginx"
    folder.mkdir()
    with nginx(folder, server) as proxied:
        passes_everything_on(run, proxied)
        carries_large_bodies(run, proxied, target)
        counts_addresses(run, proxied, target)
        carries_load(run, proxied, target)
    said = (folder / "error.log").read_text().splitlines()
    if bad := [line for line in said if "upstream" in line and "buffered to a temporary file" not in line]:
        run.found("O1", "what nginx says of the server", f"{len(bad)} lines, the first: {bad[0][20:220]}")


def passes_everything_on(run: Run, proxied: Proxied) -> None:
    """The page, its files and the tools are as they are without nginx."""
    expected = {
        "/": 200,
        "/static/board.js": 200,
        "/api/v1/docs": 200,
        "/api/v1/nowhere": 404,
        "/enroll/nobody": 404,
    }
    for path, status in expected.items():
        said = proxied.ask("GET", path)
        if said[0] != status:
            run.fault(f"through nginx GET {path} is answered {said[0]}, not {status}")
    ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    if (said := proxied.ask("POST", "/mcp", JSON, body=ping))[0] != 200:
        run.fault(f"through nginx a call of /mcp is answered {said[0]}")


def carries_large_bodies(run: Run, proxied: Proxied, target: Target) -> None:
    """Files up to the limit are taken whole, and what is too large is refused, not cut off."""
    for size, status in ((10 * MIB, 201), (10 * MIB + 1, 413), (13 * MIB, 413)):
        content = run.random.randbytes(size)
        said = proxied.ask("POST", f"/api/v1{target.files}", clients.FORM, body=clients.FILE % content)
        if said[0] != status:
            run.fault(f"through nginx a file of {size} bytes is answered {said[0]}, not {status}")
        elif status == 201:
            id = json.loads(said[1])["data"]["id"]
            read = proxied.ask("GET", f"/api/v1{target.files}/{id}")[1]
            if read != content:
                run.fault("through nginx a file is not read as it was written")
    refused: Counter[tuple[int, int]] = Counter()
    for _ in run.rounds(10):  # refused before the body is read
        for size, key, status in ((5 * MIB, OWNER_KEY, 413), (11 * MIB, None, 401)):
            said = proxied.ask("POST", "/api/v1/tasks", JSON, body=b"x" * size, key=key)
            refused[size, said[0]] += said[0] != status
    for (size, status), count in refused.items():
        if count:
            run.fault(f"through nginx {count} bodies of {size} bytes that are refused are answered {status}")


def counts_addresses(run: Run, proxied: Proxied, target: Target) -> None:
    """A route's limit counts the address that nginx saw, not what a client says."""
    body = b'{"action": "list_flows"}'
    headers = [JSON, f"x-agent-webhook-secret: {target.secret}"]

    def ask(number: int) -> int:
        return proxied.ask(
            "POST", target.route, *headers, f"X-Forwarded-For: 10.0.0.{number}", body=body, key=None
        )[0]

    statuses = [ask(number) for number in range(21)]
    if statuses != [200] * 20 + [429]:
        run.fault(f"through nginx a client that says it has other addresses gets past a limit: {statuses}")
    other = socket.socket()
    other.bind(("127.0.0.2", 0))
    other.settimeout(PATIENCE)
    other.connect(("127.0.0.1", int(proxied.base.rpartition(":")[2])))
    with proxied.tls.wrap_socket(other, server_hostname="127.0.0.1") as line:
        line.sendall(head("POST", target.route, [*headers, f"Content-Length: {len(body)}"], None) + body)
        said = line.recv(65536).split()[1]
    if said != b"200":
        run.fault(f"through nginx a client of another address shares the first one's limit: {said.decode()}")


def carries_load(run: Run, proxied: Proxied, target: Target) -> None:
    """64 connections work while others misbehave and the server reloads."""
    seconds, server = (1.5 if run.is_short else 10), target.server
    ends_at, wrong, reloads = time.monotonic() + seconds, [], 0
    through = copy.copy(target)
    through.server = proxied

    def storm(seed: float) -> None:
        random = Random(seed)
        while time.monotonic() < ends_at:
            kinds = random.sample(PASSED_ON, 3 if run.is_short else len(PASSED_ON))
            wrong.extend(misbehave(through, kinds, random, proxied.tls))

    many = 4 if run.is_short else 16
    seeds = [run.random.random() for _ in range(many)]
    project, connections = target.project["id"], 16 if run.is_short else CONNECTIONS
    with (
        working(proxied, project, connections, 0.02, proxied.tls) as others,
        ThreadPoolExecutor(many) as pool,
    ):
        storms = pool.map(storm, seeds)
        while not reloads or time.monotonic() < ends_at - 1:
            time.sleep(0.5)
            reload(server)
            reloads += 1
        list(storms)
    work = Work(others)
    for problem in sorted(set(wrong)):
        run.fault(f"through nginx, {problem}")
    if work.failures:
        run.fault(f"through nginx others got {work.failures}")
    rows = server.rows("SELECT count(*) AS count FROM task WHERE title = 'Of a client that works'")
    if rows[0]["count"] < len(work.created):
        run.fault(
            f"through nginx {len(work.created)} tasks were created, of which {rows[0]['count']} are there"
        )
    run.found(
        "O2",
        f"through nginx, {connections} connections, clients that misbehave, {reloads} reloads",
        f"{len(work.answers)} requests: {work.failures or 'none failed'}; p99 {work.p99():.0f} ms",
        "0 x 502 or 504",
        not work.failures,
    )


def reload(server: Any) -> None:
    """Have the server replace its workers, and wait until it has."""
    before = set(server.children())
    server.process.send_signal(signal.SIGHUP)
    ends_at = time.monotonic() + PATIENCE
    while before & set(server.children()) and time.monotonic() < ends_at:
        time.sleep(0.05)
