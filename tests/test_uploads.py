"""Many files at a time: what is received at once, and what memory it takes."""

import os
import select
from pathlib import Path

import pytest
from clients import Line
from harness import PATIENCE, at_once, fault, wait_until
from test_attachments import MIB, attach


def stalled_upload(server, task):
    """Begin to send a file, and go no further."""
    line = Line(server)
    headers = ["Content-Type: multipart/form-data; boundary=B", "Content-Length: 100"]
    line.send("POST", f"/tasks/{task['id']}/attachments", headers, b"--B\r\n")
    return line


@pytest.fixture(scope="module")
def server(launch_module):
    """A server with the allocator's threshold that deploy/ sets."""
    return launch_module(MALLOC_MMAP_THRESHOLD_="1048576")


def test_six_files_are_received_at_a_time_and_others_are_served_beside_them(server, owner, task):
    lines = {line.socket: line for line in (stalled_upload(server, task) for _ in range(7))}
    (refused,), _, _ = select.select(lines, [], [], PATIENCE)  # whichever came last
    assert lines.pop(refused).code() == (503, "unavailable")
    refused.close()
    answer = attach(owner, task)
    assert "6 files" in fault(answer, 503, "unavailable")["message"]
    assert int(answer.headers["Retry-After"]) > 0
    assert owner.get("/context").status_code == 200
    lines.popitem()[0].close()
    wait_until(lambda: attach(owner, task).status_code == 201)
    for line in lines:
        line.close()


def megabytes(server, name):
    status = Path(f"/proc/{server.children()[0]}/status").read_text()
    return int(dict(line.split(":", 1) for line in status.splitlines())[name].split()[0]) // 1024


def test_sixteen_large_files_at_once_do_not_keep_their_memory(server, task):
    """Without the allocator's threshold 50 MB and more would stay."""
    before = megabytes(server, "VmRSS")

    def upload():
        files, key = {"file": ("noise", os.urandom(10 * MIB))}, {"Idempotency-Key": os.urandom(8).hex()}
        return server.client().request("POST", f"/tasks/{task['id']}/attachments", files=files, headers=key)

    statuses = [answer.status_code for answer in at_once(*[upload] * 16)]
    assert set(statuses) <= {201, 503}
    assert statuses.count(201) >= 6
    assert megabytes(server, "VmHWM") < before + 300
    assert megabytes(server, "VmRSS") < before + 30
