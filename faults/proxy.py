"""Run nginx with the file of deploy/: no misbehaving client and no reload may cause a 502 for others."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import requests
from findings import Run
from harness import OWNER_KEY, Client, Server
from nginx import NGINX, Nginx, nginx
from snapshot import Snapshot
from unruly import Target, new_target, storm
from writers import Writers

MIB = 1024 * 1024


def run(run: Run) -> None:
    if NGINX is None:
        run.found("O2", "through nginx", "not done: nginx is not installed")
        return
    with run.server("proxied") as server, nginx(run.folder / "nginx", server) as proxied:
        target = replace(new_target(server), server=proxied)
        carries_bodies(run, proxied, target)
        carries_load(run, server, target)


def carries_bodies(run: Run, proxied: Nginx, target: Target) -> None:
    """Check that files up to the limit arrive whole, and that larger files are refused, not cut off."""

    def trusting() -> requests.Session:  # the tests' own session speaks no TLS
        session = requests.Session()
        session.trust_env, session.verify = False, proxied.authority
        return session

    owner, nobody = (Client(f"{proxied.base}/api/v1", key, trusting) for key in (OWNER_KEY, None))
    content = run.random.randbytes(10 * MIB)
    made = owner.data(owner.request("POST", target.files, files={"file": ("f", content)}), 201)
    if owner.request("GET", f"{target.files}/{made['id']}", envelope=False).content != content:
        run.fault("through nginx a file is not read as it was written")
    too_large = owner.request("POST", target.files, files={"file": ("f", content + b"x")}).status_code
    without_key = nobody.request("POST", "/tasks", data=content).status_code
    if (too_large, without_key) != (413, 401):
        run.fault(f"through nginx large bodies are answered {too_large} and {without_key}, not 413 and 401")


def carries_load(run: Run, server: Server, target: Target) -> None:
    """Work over 64 connections while others misbehave and the server reloads."""
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
