"""Clients that misbehave: they send slowly, read slowly, pipeline, or vanish."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any

from clients import CHUNKED, JSON, NARROW, Line, head

FORM = "Content-Type: multipart/form-data; boundary=B"
FILE = b'--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


@dataclass
class Target:
    """A server or the proxy before it, with everything that hostile clients need."""

    server: Any
    project: str
    files: str  # the path of a task's files
    file: str  # the path of a large file

    @property
    def task(self) -> bytes:
        """Return the body that creates a task."""
        return json.dumps({"project_id": self.project, "title": "Of a hostile client"}).encode()


def new_target(server: Any, size: int = 500_000) -> Target:
    owner = server.client()
    project = owner.make_project()
    files = f"/tasks/{owner.make_task(project)['id']}/attachments"
    file = owner.data(owner.request("POST", files, files={"file": ("f", b"x" * size)}), 201)
    return Target(server, project["id"], files, f"{files}/{file['id']}")


# Ways to misbehave ------------------------------------------------------------------------------

Misbehaviour = Callable[[Line, Target, Random], None]


def expect(line: Line, *statuses: int) -> None:
    """Read a response for each of the statuses. Raise `AssertionError` if a status differs."""
    for status in statuses:
        said = line.answer()
        assert said[0] == status, f"{said[0]} instead of {status}: {said[1][:100]!r}"


def sends_its_head_slowly(line: Line, target: Target, random: Random) -> None:
    for byte in head("GET", "/api/v1/health", []):
        line.socket.sendall(bytes([byte]))
        time.sleep(0.01)
    expect(line, 200)


def sends_its_body_slowly(line: Line, target: Target, random: Random) -> None:
    line.send("POST", "/tasks", CHUNKED)
    for byte in target.task:
        line.socket.sendall(b"1\r\n%c\r\n" % byte)
        time.sleep(0.01)
    line.socket.sendall(b"0\r\n\r\n")
    expect(line, 201)


def vanishes_in_its_head(line: Line, target: Target, random: Random) -> None:
    line.socket.sendall(head("GET", "/api/v1/context", [])[: random.randrange(1, 60)])


def vanishes_in_its_body(line: Line, target: Target, random: Random) -> None:
    path = random.choice(["/api/v1/tasks", "/mcp"])
    line.socket.sendall(head("POST", path, [JSON, "Content-Length: 100"]) + b'{"title":')


def vanishes_in_an_upload(line: Line, target: Target, random: Random) -> None:
    line.send("POST", target.files, [FORM, "Content-Length: 1000000"], FILE + b"x" * 100_000)


def vanishes_in_its_answer(line: Line, target: Target, random: Random) -> None:
    line.send("GET", target.file, [])
    line.file.read(random.randrange(1, 100_000))


def reads_slowly(line: Line, target: Target, random: Random) -> None:
    line.send("GET", target.file, [])
    for _ in range(20):
        line.socket.recv(1500)
        time.sleep(0.05)


def pipelines(line: Line, target: Target, random: Random) -> None:
    write = head("POST", "/api/v1/tasks", [JSON, f"Content-Length: {len(target.task)}"]) + target.task
    line.socket.sendall((head("GET", "/api/v1/health", []) + write) * 10)
    expect(line, *[200, 201] * 10)


MISBEHAVIOURS: tuple[Misbehaviour, ...] = (
    sends_its_head_slowly,
    sends_its_body_slowly,
    vanishes_in_its_head,
    vanishes_in_its_body,
    vanishes_in_an_upload,
    vanishes_in_its_answer,
    reads_slowly,
    pipelines,
)


def misbehave(target: Target, kind: Misbehaviour, random: Random) -> str:
    """Misbehave on a connection of its own. Return the wrong response, or ''."""
    line = Line(target.server, NARROW if kind is reads_slowly else None)
    try:
        kind(line, target, random)
    except (OSError, AssertionError, IndexError, ValueError) as failure:
        return f"a client that {kind.__name__.replace('_', ' ')}: {failure!r}"
    finally:
        line.close(reset=random.random() < 0.5)
    return ""


def storm(target: Target, clients: int, seconds: float, random: Random) -> list[str]:
    """Let clients misbehave side by side, in each way again and again. Return the results of `misbehave`."""
    ends_at, done = time.monotonic() + seconds, []
    kinds = cycle(random.sample(MISBEHAVIOURS, len(MISBEHAVIOURS)))

    def client(_: int) -> None:
        while time.monotonic() < ends_at:
            done.append(misbehave(target, next(kinds), random))

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    return done
