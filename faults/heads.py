"""Requests under /api/v1 that no client library would send: odd methods, paths, queries and headers."""

import socket
from typing import Any
from urllib.parse import urlsplit

from answers import Tally
from findings import Run
from harness import NOBODY, PATIENCE

METHODS = [b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT", b"QUERY"]
METHODS += [b"PROPFIND", b"get", b"G\0T", b"", b"X" * 30, b"\xff", b"GET GET"]
PIECES = [
    b"/",
    b"//",
    b"%2f",
    b"%00",
    b"%zz",
    b"%",
    b"%ff",
    b"%C0%AF",
    b"..",
    b"%2e%2e",
    b";a=b",
    b"\xc3\xa9",
]
PIECES += [
    b"tasks",
    b"projects",
    b"me",
    b"health",
    b"docs",
    b"x" * 300,
    b"*",
    b"\\",
    b"{id}",
    NOBODY.encode(),
]
QUERIES = [
    b"",
    b"?",
    b"?a",
    b"?limit=1&limit=2",
    b"?q=%",
    b"?q=%00",
    b"?q=%ff",
    b"?q=" + b"%F0%9F%92%A9" * 150,
]
QUERIES += [b"?limit=1e9", b"?&&&===", b"?q=a+b#c", b"?" + b"a=b&" * 900, b"?" + b"x" * 5000, b"?limit[]=1"]
HEADERS = [b"Accept: text/html", b"Content-Type: text/html", b"Content-Length: 5", b"Content-Length: -1"]
HEADERS += [b"Content-Length: 9" + b"9" * 30, b"Transfer-Encoding: chunked", b"Transfer-Encoding: rot13"]
HEADERS += [
    b"Expect: 100-continue",
    b"Expect: x",
    b"Upgrade: h2c",
    b"Connection: upgrade",
    b"Host: a\r\nHost: b",
]
HEADERS += [b"If-Match: \xff", b'If-Match: "', b"Range: bytes=0-", b"X: " + b"y" * 8000, b"X: " + b"y" * 9000]
HEADERS += [
    b"A: b\r\n folded",
    b"no colon",
    b": no name",
    b"\xff: \xff",
    b"Cookie: a=b",
    b"Origin: http://a.b",
]
HEADERS += [
    b"Authorization: Basic eDp5",
    b"Authorization: Bearer",
    b"X-HTTP-Method-Override: DELETE",
    b"X: \x01",
]
HEADERS += [
    b"X-Forwarded-For: \xff",
    b"Content-Encoding: gzip",
    b"Accept-Encoding: gzip",
    b"Idempotency-Key: \t",
]


def odd_heads(run: Run, base: str, key: str, tally: Tally, cases: int) -> None:
    """Send so many, of which each answer is JSON and no 5xx.

    501 is what RFC 9112 asks for where the transfer coding is not known.
    """
    address, random = (urlsplit(base).hostname, urlsplit(base).port), run.random
    for _ in range(cases):
        path = b"/api/v1/" + b"".join(random.choices(PIECES, k=random.randrange(5)))
        line = b"%s %s HTTP/1.1" % (random.choice(METHODS), path + random.choice(QUERIES))
        headers = random.sample(HEADERS, random.randrange(4))
        if random.random() < 0.7:
            headers.append(f"Authorization: Bearer {key}".encode())
        sent = (
            b"\r\n".join([line, b"Host: test", *headers])
            + b"\r\n\r\n"
            + random.choice([b"", b"{}", b"5\r\n"])
        )
        answer = exchange(address, sent).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        status = int(answer[9:12]) if answer[:12].startswith(b"HTTP/1.1 ") else 0
        tally.count("odd heads", "", status)
        head, _, _ = answer.partition(b"\r\n\r\n")
        is_page = b"/docs" in path and status == 200
        if (status >= 500 and status != 501) or (b"application/json" not in head and not is_page):
            tally.fault(f"heads: status {status}", f"{sent[:300]!r} -> {answer[:300]!r}")


def exchange(address: Any, sent: bytes) -> bytes:
    """What is answered to these bytes, after which nothing is sent."""
    received = b""
    with socket.create_connection(address, PATIENCE) as line:
        line.sendall(sent)
        line.shutdown(socket.SHUT_WR)
        while part := line.recv(65536):
            received += part
    return received
