"""nginx before a server, with the file of deploy/."""

import os
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harness import ROOT, ending
from receivers import certificates

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
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


def site(folder: Path, port: int, upstream: str, below: str, more: str) -> str:
    """The file of deploy/, with the addresses and certificates of this machine, for / or a path, and more."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in text, "who asks is not what a client says"
    ours = {
        "listen 80;": f"listen unix:{folder}/plain;",
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/letsencrypt/live/tasks.example.com/fullchain.pem": str(folder / "right.pem"),
        "/etc/letsencrypt/live/tasks.example.com/privkey.pem": str(folder / "right.key"),
        "http://127.0.0.1:8000;": f"{upstream};",
        "http://127.0.0.1:8000$1;": f"{upstream}$1;",
        "http://127.0.0.1:8000$1$2;": f"{upstream}$1$2;",
        "/var/log/nginx/access.log": "access.log",
    }
    for theirs, our in ours.items():
        assert text.count(theirs) == 1, f"deploy/nginx.conf has no {theirs}"
        text = text.replace(theirs, our)
    text = text.replace("location / ", f"{more}\n    location / ")
    if below:
        text = text.replace("location / ", "location /nothing/ ")
        text = re.sub("# (location|    if|    proxy_pass|})", r"\1", text)
    return text


@contextmanager
def nginx(folder: Path, server, below: str = "", more: str = ""):
    """Run nginx before the server, on a port that the system chose, in a folder of its own."""
    authority, _ = certificates(folder)
    with socket.create_server(("127.0.0.1", 0), backlog=511) as listener:
        port = listener.getsockname()[1]
        (folder / "site.conf").write_text(site(folder, port, server.base, below, more))
        (folder / "nginx.conf").write_text(MAIN.format(user="user root;" if os.geteuid() == 0 else ""))
        words = [str(NGINX), "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
        # As on an upgrade of its program, nginx finds its listening socket in this variable.
        environment = os.environ | {"NGINX": f"{listener.fileno()};"}
        process = subprocess.Popen(words, env=environment, pass_fds=[listener.fileno()])
        with process, ending(process):
            yield Nginx(f"https://127.0.0.1:{port}{below}", str(authority))
