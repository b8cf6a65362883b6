"""Through nginx, with the file of deploy/: no client that misbehaves, and no reload, is a 502 for others."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from clients import Target, new_target, storm
from findings import Run
from harness import OWNER_KEY, PATIENCE, ROOT, Client, Server
from receivers import certificates
from snapshot import Snapshot
from writers import Writers

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
MIB = 1024 * 1024
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


class Nginx(NamedTuple):
    """nginx before a server, as clients see it."""

    base: str
    authority: str  # the file of its certificate's


def site(folder: Path, port: int, upstream: str, below: str) -> str:
    """The file of deploy/, with the addresses and certificates of this machine, for / or a path."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in text, "who asks is not what a client says"
    ours = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/letsencrypt/live/tasks.example.com/fullchain.pem": str(folder / "right.pem"),
        "/etc/letsencrypt/live/tasks.example.com/privkey.pem": str(folder / "right.key"),
        "http://127.0.0.1:8000;": f"{upstream};",
        "http://127.0.0.1:8000/;": f"{upstream}/;",
    }
    for theirs, our in ours.items():
        assert text.count(theirs) == 1, f"deploy/nginx.conf has no {theirs}"
        text = text.replace(theirs, our)
    return (
        text.replace("location / ", "location /nothing/ ").replace("# location", "location")
        if below
        else text
    )


@contextmanager
def nginx(folder: Path, server: Server, below: str = "") -> Iterator[Nginx]:
    """Run nginx before the server, on a port that the system chose, in a folder of its own."""
    authority, _ = certificates(folder)
    with socket.create_server(("127.0.0.1", 0), backlog=511) as listener:
        port = listener.getsockname()[1]
        (folder / "site.conf").write_text(site(folder, port, server.base, below))
        (folder / "nginx.conf").write_text(MAIN.format(user="user root;" if os.geteuid() == 0 else ""))
        words = [str(NGINX), "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
        # As on an upgrade of its program, nginx finds its listening socket in this variable.
        environment = os.environ | {"NGINX": f"{listener.fileno()};"}
        process = subprocess.Popen(words, env=environment, pass_fds=[listener.fileno()])
        try:
            yield Nginx(f"https://127.0.0.1:{port}{below}", str(authority))
        finally:
            process.terminate()
            process.wait(PATIENCE)


def run(run: Run) -> None:
    if NGINX is None:
        run.found("O2", "through nginx", "not done: nginx is not installed")
        return
    with run.server("proxied") as server, nginx(run.folder / "nginx", server) as proxied:
        target = replace(new_target(server), server=proxied)
        carries_bodies(run, proxied, target)
        carries_load(run, server, target)


def carries_bodies(run: Run, proxied: Nginx, target: Target) -> None:
    """Files up to the limit are taken whole, and what is too large is refused, not cut off."""
    owner, nobody = (Client(f"{proxied.base}/api/v1", key) for key in (OWNER_KEY, None))
    owner.session.verify = nobody.session.verify = proxied.authority
    content = run.random.randbytes(10 * MIB)
    made = owner.data(owner.request("POST", target.files, files={"file": ("f", content)}), 201)
    if owner.request("GET", f"{target.files}/{made['id']}", envelope=False).content != content:
        run.fault("through nginx a file is not read as it was written")
    too_large = owner.request("POST", target.files, files={"file": ("f", content + b"x")}).status_code
    without_key = nobody.request("POST", "/tasks", data=content).status_code
    if (too_large, without_key) != (413, 401):
        run.fault(f"through nginx large bodies are answered {too_large} and {without_key}, not 413 and 401")


def carries_load(run: Run, server: Server, target: Target) -> None:
    """64 connections work while others misbehave and the server reloads."""
    seconds, connections, hostile = (1, 8, 4) if run.is_short else (10, 64, 16)
    ends_at, reloads = time.monotonic() + seconds, 0
    others = Writers(target.server, target.project, connections, 0.02)
    with others, ThreadPoolExecutor(1) as pool:
        storming = pool.submit(storm, target, hostile, seconds, run.random)
        while not reloads or time.monotonic() < ends_at - 1:
            time.sleep(0.5)
            with server.replacing():
                server.process.send_signal(signal.SIGHUP)
            reloads += 1
        wrong = {problem for problem in storming.result() if problem}
    for problem in sorted(wrong):
        run.fault(f"through nginx, {problem}")
    if lost := others.answered - Snapshot(server.database).keys.keys():
        run.fault(f"through nginx {len(lost)} changes are lost that were answered")
    run.found(
        "O2",
        f"through nginx, {connections} connections, clients that misbehave, {reloads} reloads",
        f"{len(others.answers)} requests: {others.failures or 'none failed'}; p99 {others.p99():.0f} ms",
        "0 x 502 or 504",
        not others.failures,
    )
