"""Attaching files to tasks, and getting them back unharmed and harmless."""

import io
import random
import struct
import zlib
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest
from harness import NOBODY, fault

MIB = 1024 * 1024
FORM = {"Content-Type": "multipart/form-data; boundary=B"}


def attach(client, task, name="notes.txt", content=b"Hello", kind="text/plain", **options):
    files = {"file": (name, io.BytesIO(content), kind)}
    return client.request("POST", f"/tasks/{task['id']}/attachments", files=files, **options)


def download(client, task, attachment):
    path = f"/tasks/{task['id']}/attachments/{attachment['id']}"
    return client.request("GET", path, envelope=False)


def test_a_file_comes_back_as_it_was(owner, task):
    content = bytes(range(256)) * 100
    answer = attach(owner, task, "scan.bin", content, "image/png")
    made = owner.data(answer, 201)
    assert made == {
        "id": made["id"],
        "task_id": task["id"],
        "filename": "scan.bin",
        "content_type": "image/png",
        "size": len(content),
        "created_by": task["created_by"],
        "created_at": made["created_at"],
    }
    assert answer.headers["Location"] == f"/api/v1/tasks/{task['id']}/attachments/{made['id']}"
    assert download(owner, task, made).content == content
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["attachments"] == [made]
    assert owner.data(owner.get(f"/tasks/{task['id']}/attachments")) == {"attachments": [made]}


def png(width, height):
    """A picture of noise, which hardly compresses."""
    rows = b"".join(b"\0" + random.Random(row).randbytes(3 * width) for row in range(height))
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def noise(size):
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize(
    "content",
    [
        *(noise(size) for size in (1, 4095, 16_384, 65_535, 65_536, 65_537, 131_072, 200_000)),
        *(noise(size) for size in (MIB, 3 * MIB + 7, 10 * MIB)),
        b"\r\n--" * (MIB // 4),
        b"\r\n--B" * (MIB // 5),
        b"\r" * MIB,
        b"\n" * MIB,
        png(512, 512),
        Path(orjson.orjson.__file__).read_bytes()[: 10 * MIB],  # a program
    ],
    ids=lambda content: f"{content[:6].hex()}-{len(content)}",
)
def test_files_of_every_content_and_size_come_back_as_they_were(owner, task, content):
    made = owner.data(attach(owner, task, "file", content, "application/octet-stream"), 201)
    assert made["size"] == len(content)
    assert download(owner, task, made).content == content
    owner.delete(f"/tasks/{task['id']}/attachments/{made['id']}")


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/javascript", "x/" + "y" * 300])
def test_a_file_is_never_shown_inline(owner, task, kind):
    made = owner.data(attach(owner, task, "page.html", b"<script>alert(1)</script>", kind), 201)
    answer = download(owner, task, made)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="page.html"')
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\\\..\\\\boot.ini", "boot.ini"),  # a backslash is escaped by another one
        ("C:\\\\x\\\\con", "con"),
        ("été 🎉.pdf", "été 🎉.pdf"),
        ("a;b=c,d'e.txt", "a;b=c,d'e.txt"),
        ("x" * 255, "x" * 255),
    ],
)
def test_a_name_is_kept_without_its_folders(owner, task, sent, kept):
    made = owner.data(attach(owner, task, sent), 201)
    assert made["filename"] == kept
    header = download(owner, task, made).headers["Content-Disposition"]
    assert header.isascii()
    assert "\n" not in header
    assert f"filename*=UTF-8''{quote(kept, safe='')}" in header


@pytest.mark.parametrize("name", ["x" * 256, "..\\", "/", "a\x01b"])
def test_a_name_that_is_none_is_refused(server, owner, task, name):
    part = f'--B\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\nx\r\n'
    body = part.encode() + b"--B--\r\n"
    answer = owner.request("POST", f"/tasks/{task['id']}/attachments", data=body, headers=FORM)
    fault(answer, 422, "validation_error", "file")
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["attachments"] == []


def test_a_file_of_10_mib_is_taken_and_one_byte_more_is_not(server, owner, task):
    count = "SELECT count(*) AS n FROM attachment_content"
    before = server.rows(count)[0]["n"]
    made = owner.data(attach(owner, task, content=b"x" * 10 * MIB), 201)
    assert made["size"] == 10 * MIB
    fault(attach(owner, task, content=b"x" * (10 * MIB + 1)), 413, "payload_too_large")
    fault(attach(owner, task, content=b"x" * (12 * MIB)), 413, "payload_too_large")
    assert server.rows(count)[0]["n"] == before + 1
    owner.delete(f"/tasks/{task['id']}/attachments/{made['id']}")


def test_the_limit_can_be_set(launch):
    owner = launch(TASKS_LIMITS__MAX_ATTACHMENT_BYTES="2000").client()
    task = owner.make_task(owner.make_project())
    assert attach(owner, task, content=b"x" * 2000).status_code == 201
    fault(attach(owner, task, content=b"x" * 2001), 413, "payload_too_large")


def test_an_empty_file_is_a_file(owner, task):
    made = owner.data(attach(owner, task, content=b""), 201)
    assert made["size"] == 0
    assert download(owner, task, made).content == b""


PART = b'--B\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
FILE = PART % (b"file", b'; filename="a"', b"x")


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"Content-Type": "application/json"}, b"{}", 415, "unsupported_media_type"),
        ({"Content-Type": "application/octet-stream"}, b"x", 415, "unsupported_media_type"),
        ({"Content-Type": "multipart/form-data"}, b"x", 400, "invalid_json"),
        (FORM, b"no form at all", 400, "invalid_json"),
        (FORM, FILE, 400, "invalid_json"),  # it is not closed
        (FORM, b"--B--\r\n", 422, "validation_error"),
        (FORM, PART % (b"file", b"", b"x") + b"--B--\r\n", 422, "validation_error"),  # a text, no file
        (FORM, PART % (b"other", b'; filename="a"', b"x") + b"--B--\r\n", 422, "validation_error"),
        (FORM, FILE + FILE + b"--B--\r\n", 422, "validation_error"),
        (FORM, FILE + PART % (b"more", b"", b"x") + b"--B--\r\n", 422, "validation_error"),
        (
            FORM,
            b"".join(PART % (b"f%d" % n, b"", b"") for n in range(3000)) + b"--B--\r\n",
            400,
            "invalid_json",
        ),
        (FORM, PART % (b"text", b"", b"x" * 9 * MIB) + b"--B--\r\n", 400, "invalid_json"),
    ],
    ids=range(12),
)
def test_a_form_that_holds_no_file_or_more_is_refused(server, owner, task, headers, body, status, code):
    before = server.rows("SELECT count(*) AS n FROM attachment")
    answer = owner.request("POST", f"/tasks/{task['id']}/attachments", data=body, headers=headers)
    fault(answer, status, code)
    assert server.rows("SELECT count(*) AS n FROM attachment") == before


@pytest.mark.parametrize("kind", ["a\x01/b", "a b/c", "é/ü", "x/" + "y" * 300])
def test_a_content_type_that_is_none_is_that_of_bytes(owner, task, kind):
    part = '--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n'
    body = f"{part}Content-Type: {kind}\r\n\r\nx\r\n--B--\r\n".encode()
    answer = owner.request("POST", f"/tasks/{task['id']}/attachments", data=body, headers=FORM)
    assert owner.data(answer, 201)["content_type"] == "application/octet-stream"


def test_an_attachment_whose_bytes_went_meanwhile_is_not_found(server, owner, task):
    made = owner.data(attach(owner, task), 201)
    server.rows("DELETE FROM attachment_content WHERE attachment_id = ?", made["id"])
    fault(owner.get(f"/tasks/{task['id']}/attachments/{made['id']}"), 404, "not_found")


def test_an_attachment_is_found_under_its_own_task_alone(owner, project, task):
    made = owner.data(attach(owner, task), 201)
    other = owner.make_task(project)
    for path in (f"/tasks/{other['id']}", f"/tasks/{NOBODY}"):
        fault(owner.get(f"{path}/attachments/{made['id']}"), 404, "not_found")
        fault(owner.delete(f"{path}/attachments/{made['id']}"), 404, "not_found")
    fault(owner.get(f"/tasks/{task['id']}/attachments/{NOBODY}"), 404, "not_found")
    fault(owner.get(f"/tasks/{NOBODY}/attachments"), 404, "not_found")
    fault(attach(owner, {"id": NOBODY}), 404, "not_found")
    assert download(owner, task, made).content == b"Hello"


def test_attachments_go_alone_or_with_their_task(server, owner, task):
    first, second = (owner.data(attach(owner, task), 201) for _ in range(2))
    answer = owner.delete(f"/tasks/{task['id']}/attachments/{first['id']}")
    assert owner.data(answer) == {"id": first["id"], "deleted": True}
    fault(owner.get(f"/tasks/{task['id']}/attachments/{first['id']}"), 404, "not_found")
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["attachments"] == [second]
    owner.delete(f"/tasks/{task['id']}")
    kept = "SELECT 1 FROM attachment_content WHERE attachment_id IN (?, ?)"
    assert server.rows(kept, first["id"], second["id"]) == []


def test_attaching_is_an_activity_of_the_task(owner, task):
    made = owner.data(attach(owner, task), 201)
    seen = owner.data(owner.get("/context"))["recent_activity"][0]
    assert (seen["entity"], seen["entity_id"], seen["action"]) == ("task", task["id"], "updated")
    assert seen["changes"] == {"attachment": [None, made["filename"]]}
