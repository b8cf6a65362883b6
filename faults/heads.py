"""Requests under /api/v1 that no client library would send: odd methods, paths, queries and headers."""

import socket
from typing import Any
from urllib.parse import urlsplit

from answers import Tally
from findings import Run
from harness import NOBODY, PATIENCE

METHODS = b"GET POST PUT PATCH DELETE HEAD OPTIONS TRACE CONNECT QUERY PROPFIND get G\0T \xff".split()
METHODS += [b"", b"X" * 30, b"GET GET"]
PIECES = rb"/ // %2f %00 %zz % %ff %C0%AF .. %2e%2e ;a=b * \ {id} tasks projects me health docs".split()
PIECES += [b"\xc3\xa9", b"x" * 300, NOBODY.encode()]
QUERIES = b"? ?a ?limit=1&limit=2 ?q=% ?q=%00 ?q=%ff ?limit=1e9 ?limit[]=1 ?&&&=== ?q=a+b#c".split()
QUERIES += [b"", b"?q=" + b"%F0%9F%92%A9" * 150, b"?" + b"a=b&" * 900, b"?" + b"x" * 5000]
HEADERS = b"""\
Authorization: Basic eDp5
Authorization: Bearer
Content-Encoding: gzip
Content-Length: -1
Content-Length: 5
Content-Length: 9999999999999999999999999999999
Expect: 100-continue
Expect: x
Host: another
Idempotency-Key: \t
If-Match: \xff
Origin: http://a.b
Transfer-Encoding: chunked
Transfer-Encoding: rot13
X-Forwarded-For: \xff
X: \x01
no colon
: no name
 folded
\xff: \xff""".split(b"\n")
HEADERS += [b"X: " + b"y" * 16_000, b"X: " + b"y" * 17_000]


def odd_heads(run: Run, base: str, key: str, tally: Tally, cases: int) -> None:
    """Send `cases` odd heads. Each response must be JSON, and not a 5xx.

    501 is allowed: RFC 9112 asks for it if the transfer coding is unknown.
    """
    address, random = (urlsplit(base).hostname, urlsplit(base).port), run.random
    for _ in range(cases):
        path = b"/api/v1/" + b"".join(random.choices(PIECES, k=random.randrange(5)))
        line = b"%s %s HTTP/1.1" % (random.choice(METHODS), path + random.choice(QUERIES))
        headers = random.sample(HEADERS, random.randrange(4))
        if random.random() < 0.7:
            headers.append(f"Authorization: Bearer {key}".encode())
        sent = b"\r\n".join([line, b"Host: test", *headers, b"", random.choice([b"", b"{}", b"5\r\n"])])
        answer = exchange(address, sent).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        status = int(answer[9:12]) if answer[:12].startswith(b"HTTP/1.1 ") else 0
        tally.count("odd heads", "", ok=200 <= status < 300)
        head, _, _ = answer.partition(b"\r\n\r\n")
        is_page = b"/docs" in path and status == 200
        if (status >= 500 and status != 501) or (b"application/json" not in head and not is_page):
            tally.fault(f"heads: status {status}", f"{sent[:300]!r} -> {answer[:300]!r}")


def exchange(address: Any, sent: bytes) -> bytes:
    """Send these bytes, close the sending side, and return the response."""
    received = b""
    with socket.create_connection(address, PATIENCE) as line:
        line.sendall(sent)
        line.shutdown(socket.SHUT_WR)
        while part := line.recv(65536):
            received += part
    return received
