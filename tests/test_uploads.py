"""Many files at a time: what is received at once, and what memory it takes."""

import random
import select
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
from clients import Line
from harness import PATIENCE, fault, wait_until
from test_attachments import MIB, attach


def stalled_upload(server, task):
    """Begin to send a file, and go no further."""
    line = Line(server)
    headers = ["Content-Type: multipart/form-data; boundary=B", "Content-Length: 100"]
    line.send("POST", f"/tasks/{task['id']}/attachments", headers, b"--B\r\n")
    return line


def test_six_files_are_received_at_a_time_and_others_are_served_beside_them(launch):
    server = launch()
    owner = server.client()
    task = owner.make_task(owner.make_project())
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
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines[name].split()[0]) // 1024


def test_sixteen_large_files_at_once_do_not_keep_their_memory(launch):
    """With the allocator's threshold that deploy/ sets; before, they took 1 300 MB, and 600 MB stayed."""
    server = launch(MALLOC_MMAP_THRESHOLD_="1048576")
    owner = server.client()
    task = owner.make_task(owner.make_project())
    before = megabytes(server, "VmRSS")

    def upload(number):
        content = random.Random(number).randbytes(10 * MIB)
        return requests.post(
            f"{owner.base}/tasks/{task['id']}/attachments",
            files={"file": ("noise", content)},
            headers={"Authorization": f"Bearer {owner.key}", "Idempotency-Key": f"key-{number}"},
            timeout=PATIENCE,
        ).status_code

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(upload, range(32)))
    assert set(statuses) <= {201, 503}
    assert statuses.count(201) >= 6
    assert megabytes(server, "VmHWM") < before + 300
    assert megabytes(server, "VmRSS") < before + 50
