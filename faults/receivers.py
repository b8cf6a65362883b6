"""Receivers of webhooks that misbehave: what an exchange with each may take, and what it may cost others."""

import gzip
import json
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from harness import PATIENCE

OK = b"HTTP/1.1 200 OK\r\n"
ACCEPTED = OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n"
TLS_HELLO = bytes.fromhex("160303007a0200007603")  # the beginning of a server's first message
GIGABYTE = 1 << 30
BLOCK = b"0" * 65536
BOMB = gzip.compress(bytes(10_000_000))  # 10 KB, of which any number can follow each other

Behaviour = Callable[[socket.socket, threading.Event], object]


def read_request(line: socket.socket) -> bytes:
    """What a client sends, up to the end of its body, or to where it breaks off."""
    sent = b""
    while part := line.recv(65536):
        sent += part
        # The first message of TLS is whole too: its sender waits for an answer.
        if whole_body(sent) is not None or sent.startswith(b"\x16"):
            break
    return sent


def whole_body(sent: bytes) -> bytes | None:
    """The body of a request, or None if it is not all there."""
    head, end, body = sent.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return body if end and len(body) >= (int(length[1]) if length else 0) else None


class Hostile:
    """A receiver that does as it pleases with each connection that it gets; with a context it speaks TLS.

    `behave` and `context` may be changed while it runs. It keeps what it was sent, and how long each
    connection lasted until the sender ended it.
    """

    def __init__(self, behave: Behaviour, context: ssl.SSLContext | None = None, scheme: str = ""):
        self.behave, self.context = behave, context
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.url = f"{scheme or ('https' if context else 'http')}://127.0.0.1:{self.port}/hook"
        self.requests: list[bytes] = []
        self.lasted: list[float] = []  # seconds
        self.stopped = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        at, behave = time.monotonic(), self.behave
        with suppress(OSError), line:
            line.settimeout(2 * PATIENCE)
            try:
                spoken = self.context.wrap_socket(line, server_side=True) if self.context else line
                with spoken:
                    if behave is not stay_silent:
                        self.requests.append(read_request(spoken))
                    behave(spoken, self.stopped)
                    with suppress(OSError):
                        spoken.shutdown(socket.SHUT_RDWR)
            finally:
                self.lasted.append(time.monotonic() - at)

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the requests that arrived whole."""
        return [body for body in map(whole_body, self.requests) if body is not None]

    def close(self) -> None:
        self.stopped.set()
        self.listener.close()


# What they do ----------------------------------------------------------------------------------


def stay_silent(line: socket.socket, stopped: threading.Event) -> None:
    """Answer nothing, until the sender ends the connection."""
    while line.recv(65536):
        pass


def send(content: bytes) -> Behaviour:
    return lambda line, stopped: line.sendall(content)


def dribble(first: bytes, part: bytes, seconds: float = 0.05) -> Behaviour:
    """Send something, and then without end a part after another."""

    def behave(line: socket.socket, stopped: threading.Event) -> None:
        line.sendall(first)
        while not stopped.wait(seconds):
            line.sendall(part)

    return behave


def reset(line: socket.socket, stopped: threading.Event) -> None:
    """Have the connection reset when it is closed."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def send_much(head: bytes, part: bytes, size: int) -> Behaviour:
    """Send so many bytes, unless the sender ends the connection before."""

    def behave(line: socket.socket, stopped: threading.Event) -> None:
        line.sendall(head)
        for _ in range(size // len(part)):
            if stopped.is_set():
                return
            line.sendall(part)

    return behave


def answer(status: int, *headers: str) -> Behaviour:
    """Answer with this status, without a body, and close the connection."""
    lines = [f"HTTP/1.1 {status} So", *headers, "Content-Length: 0", "Connection: close", "", ""]
    return send("\r\n".join(lines).encode())


def redirect(status: int) -> Behaviour:
    return answer(status, "Location: http://127.0.0.1:1/elsewhere")


class Bad(NamedTuple):
    """A way to misbehave, and what becomes of a delivery: an error of `GET /deliveries`, or None."""

    behave: Behaviour
    error: str | None
    certificate: str = ""  # which of `certificates` it presents
    host: str = "127.0.0.1"  # or a name that `resolver` knows
    scheme: str = ""


LATE = "timed out after"
BAD: dict[str, Bad] = {
    "never answers": Bad(stay_silent, LATE),
    "dribbles its status": Bad(dribble(b"HTTP/1.1 ", b"2"), LATE),
    "dribbles headers": Bad(dribble(OK, b"X: y\r\n"), LATE),
    "dribbles its body": Bad(dribble(OK + b"Content-Length: 1000\r\n\r\n", b"x"), LATE),
    "dribbles a TLS handshake": Bad(dribble(TLS_HELLO, b"\0"), LATE, scheme="https"),
    "sends 100 Continue for ever": Bad(dribble(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), LATE),
    "resets": Bad(reset, "reset"),
    "closes": Bad(send(b""), "closed connection"),
    "sends garbage": Bad(send(b"\x00\xffgarbage\r\n\r\n"), "garbage"),
    "redirects with 301": Bad(redirect(301), "answered 301"),
    "redirects with 302": Bad(redirect(302), "answered 302"),
    "redirects with 307": Bad(redirect(307), "answered 307"),
    "redirects with 308": Bad(redirect(308), "answered 308"),
    "answers 500": Bad(answer(500), "answered 500"),
    "answers 410": Bad(answer(410), "answered 410"),
    "sends a header of 10 MB": Bad(send_much(OK + b"X: ", BLOCK, 10_000_000), "more than"),
    "sends headers for ever": Bad(send_much(OK, b"X: y\r\n" * 10_000, GIGABYTE), "more than"),
    "answers a gigabyte": Bad(send_much(OK + b"\r\n", BLOCK, GIGABYTE), None),
    "answers a gzip bomb": Bad(send_much(OK + b"Content-Encoding: gzip\r\n\r\n", BOMB, GIGABYTE), None),
    "breaks off after 200": Bad(send(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe"), None),
    "has an address that refuses": Bad(send(ACCEPTED), None, host="refuses.test"),
    "has an address that is silent": Bad(send(ACCEPTED), None, host="silent.test"),
    "has a name that is not resolved": Bad(send(ACCEPTED), LATE, host="hangs.test"),
    "has an expired certificate": Bad(send(ACCEPTED), "expired", certificate="expired"),
    "has another host's certificate": Bad(send(ACCEPTED), "mismatch", certificate="wrong"),
    "has a self-signed certificate": Bad(send(ACCEPTED), "self-signed", certificate="self-signed"),
}


# Names and certificates ------------------------------------------------------------------------

RESOLVER = '''
"""Resolves the names of the campaign, which no name server knows, and leaves all others to the system."""
import json, os, socket, time

ports, system = json.loads(os.environ["CAMPAIGN_PORTS"]), socket.getaddrinfo


def getaddrinfo(host, *arguments, **options):
    if host not in ports:
        return system(host, *arguments, **options)
    if not ports[host]:
        time.sleep(3600)
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports[host]]


socket.getaddrinfo = getaddrinfo
'''


def resolver(folder: Path, ports: dict[str, list[int]]) -> dict[str, str]:
    """The environment in which a server finds each name at these ports of this machine, in order.

    A name without ports is looked up for ever.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(RESOLVER)
    return {"PYTHONPATH": str(folder), "CAMPAIGN_PORTS": json.dumps(ports)}


@contextmanager
def blackhole() -> Iterator[tuple[str, int]]:
    """The address of a listener whose queue is full, so that Linux drops what would connect to it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as filling:
        address = listener.getsockname()
        while True:
            line = filling.enter_context(socket.socket())
            line.settimeout(0.2)
            try:
                line.connect(address)
            except TimeoutError:
                break
        yield address


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        yield line.getsockname()[1]


def certificates(folder: Path) -> tuple[Path, dict[str, ssl.SSLContext]]:
    """An authority's certificate, and servers' contexts with certificates: a right one and wrong ones."""
    folder.mkdir(exist_ok=True)

    def openssl(*words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

    def make(name: str, address: str, days: int, *, signed: bool = True) -> ssl.SSLContext:
        request = ("req", *key, "-keyout", f"{name}.key", "-subj", f"/CN={name}")
        names = f"subjectAltName=IP:{address}"
        if signed:
            openssl(*request, "-out", f"{name}.csr")
            (folder / f"{name}.ext").write_text(f"{names}\nauthorityKeyIdentifier=keyid\n")
            by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext")
            openssl("x509", "-req", "-in", f"{name}.csr", "-days", days, *by, "-out", f"{name}.pem")
        else:
            openssl(*request, "-addext", names, "-x509", "-days", days, "-out", f"{name}.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        return context

    # With what Python 3.13 and later demand of an authority.
    signs = ("-subj", "/CN=authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", 2, *signs)
    return folder / "ca.pem", {
        "right": make("right", "127.0.0.1", 2),
        "expired": make("expired", "127.0.0.1", -1),
        "wrong": make("wrong", "127.0.0.9", 2),
        "self-signed": make("self-signed", "127.0.0.1", 2, signed=False),
    }
