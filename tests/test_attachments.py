"""Attaching files to tasks, and getting them back unharmed and harmless."""

import io
import random
from itertools import product
from urllib.parse import quote

from harness import NOBODY, fault

NEEDS_SOCKET = False

MIB = 1024 * 1024
FORM = "multipart/form-data; boundary=B"


def attach(client, task, name="notes.txt", content=b"Hello", kind="text/plain", **options):
    files = {"file": (name, io.BytesIO(content), kind)}
    return client.request("POST", f"/tasks/{task['id']}/attachments", files=files, **options)


def download(client, task, attachment):
    return client.request("GET", f"/tasks/{task['id']}/attachments/{attachment['id']}", envelope=False)


def test_a_file_comes_back_as_it_was(owner, task):
    content = bytes(range(256)) * 100
    answer = attach(owner, task, "scan.bin", content, "image/png")
    made = owner.data(answer, 201)
    sent = {"filename": "scan.bin", "content_type": "image/png", "size": len(content), "task_id": task["id"]}
    sent["created_by"] = task["created_by"]
    assert made == sent | {name: made[name] for name in ("id", "created_at")}
    assert answer.headers["Location"] == f"/api/v1/tasks/{task['id']}/attachments/{made['id']}"
    assert download(owner, task, made).content == content
    assert owner.read(f"/tasks/{task['id']}")["attachments"] == [made]
    assert owner.read(f"/tasks/{task['id']}/attachments") == {"attachments": [made]}
    change = owner.read(f"/tasks/{task['id']}/activity")["activity"][0]
    attached = {"attachment": [None, "scan.bin"], "attachment_id": [None, made["id"]]}
    assert (change["action"], change["changes"]) == ("updated", attached)


SIZES = (0, 1, 4095, 16_384, 65_535, 65_536, 65_537, 131_072, 200_000, 3 * MIB + 7, 10 * MIB)
CONTENTS = [random.Random(size).randbytes(size) for size in SIZES]
CONTENTS += [b"\r\n--" * (MIB // 4), b"\r\n--B" * (MIB // 5), b"\r" * MIB, b"\n" * MIB]


def test_files_of_every_content_and_size_come_back_as_they_were(owner, task):
    for content in CONTENTS:
        made = owner.data(attach(owner, task, "file", content, "application/octet-stream"), 201)
        assert (made["size"], download(owner, task, made).content) == (len(content), content)
        owner.delete(f"/tasks/{task['id']}/attachments/{made['id']}")


def test_a_file_is_never_shown_inline(owner, task):
    for kind in ("text/html", "image/svg+xml", "application/javascript"):
        made = owner.data(attach(owner, task, "page.html", b"<script>alert(1)</script>", kind), 201)
        headers = download(owner, task, made).headers
        assert headers["Content-Type"] == "application/octet-stream"
        assert headers["Content-Disposition"].startswith('attachment; filename="page.html"')
        assert headers["X-Content-Type-Options"] == "nosniff"
    for kind in ("a\x01/b", "a b/c", "é/ü", "x/" + "y" * 300):  # which are none
        answer = send_form(owner, task, form(f'name="file"; filename="a"\r\nContent-Type: {kind}') + END)
        assert owner.data(answer, 201)["content_type"] == "application/octet-stream"


def test_a_name_is_kept_without_its_folders(owner, task):
    names = {"../../etc/passwd": "passwd", "/etc/passwd": "passwd", "C:\\\\x\\\\con": "con"}
    names["..\\\\..\\\\boot.ini"] = "boot.ini"  # a backslash is escaped by another one
    for sent, kept in (names | {name: name for name in ("été 🎉.pdf", "a;b=c,d'e.txt", "x" * 255)}).items():
        made = owner.data(attach(owner, task, sent), 201)
        assert made["filename"] == kept
        header = download(owner, task, made).headers["Content-Disposition"]
        assert header.isascii() and f"filename*=UTF-8''{quote(kept, safe='')}" in header


def send_form(client, task, body, kind=FORM):
    headers = {"Content-Type": kind}
    return client.request("POST", f"/tasks/{task['id']}/attachments", data=body, headers=headers)


def form(header, content=b"x"):
    """A part of a form, with this after its `form-data; `."""
    return b"--B\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (header.encode(), content)


END = b"--B--\r\n"
FILE, MORE = form('name="file"; filename="a"'), form('name="more"')
OTHER, TOO_LONG = form('name="other"; filename="a"'), form('name="text"', b"x" * 9 * MIB) + END
TOO_MANY = b"".join(form(f'name="f{n}"') for n in range(3000)) + END


def test_a_name_that_is_none_or_a_file_of_more_than_10_mib_is_refused(server, owner, task):
    before = server.rows(count := "SELECT count(*) AS n FROM attachment_content")
    marks = "e" + "\u0301" * 31
    for name in ("x" * 256, "..\\", "/", "a\x01b", "a\u202eb", "a\u2066b", "a\x85b", marks):
        answer = send_form(owner, task, form(f'name="file"; filename="{name}"') + END)
        fault(answer, 422, "validation_error", "file")
    for size in (10 * MIB + 1, 12 * MIB):
        fault(attach(owner, task, content=b"x" * size), 413, "payload_too_large")
    assert server.rows(count) == before


def test_the_limit_can_be_set(launch_here):
    owner = launch_here(TASKS_LIMITS__MAX_ATTACHMENT_BYTES="2000").client()
    task = owner.make_task(owner.make_project())
    assert attach(owner, task, content=b"x" * 2000).status_code == 201
    fault(attach(owner, task, content=b"x" * 2001), 413, "payload_too_large")


def test_a_form_that_holds_no_file_or_more_is_refused(server, owner, task):
    before = server.rows("SELECT count(*) AS n FROM attachment")
    for kind, body, status, code in (
        ("application/json", b"{}", 415, "unsupported_media_type"),
        ("application/octet-stream", b"x", 415, "unsupported_media_type"),
        ("multipart/form-data", b"x", 400, "invalid_json"),
        # The third one is not closed.
        *((FORM, body, 400, "invalid_json") for body in (b"no form at all", TOO_MANY, FILE, TOO_LONG)),
        # The second one is a text, no file.
        *((FORM, body, 422, "validation_error") for body in (END, form('name="file"') + END)),
        *((FORM, body + END, 422, "validation_error") for body in (OTHER, FILE + FILE, FILE + MORE)),
    ):
        fault(send_form(owner, task, body, kind), status, code)
    assert server.rows("SELECT count(*) AS n FROM attachment") == before


def test_an_attachment_is_found_under_its_own_task_while_it_and_its_bytes_exist(server, owner, project, task):
    deleted, made = (owner.data(attach(owner, task), 201) for _ in range(2))
    answer = owner.delete(f"/tasks/{task['id']}/attachments/{deleted['id']}")
    assert owner.data(answer) == {"id": deleted["id"], "deleted": True}
    assert owner.read(f"/tasks/{task['id']}")["attachments"] == [made]
    other = owner.make_task(project)
    ids = [(other["id"], made["id"]), (NOBODY, made["id"]), (task["id"], NOBODY), (task["id"], deleted["id"])]
    for (id, attachment), call in product(ids, (owner.get, owner.delete)):
        fault(call(f"/tasks/{id}/attachments/{attachment}"), 404, "not_found")
    fault(attach(owner, {"id": NOBODY}), 404, "not_found")
    assert download(owner, task, made).content == b"Hello"
    last = owner.data(attach(owner, task), 201)
    server.rows("DELETE FROM attachment_content WHERE attachment_id = ?", made["id"])
    fault(owner.get(f"/tasks/{task['id']}/attachments/{made['id']}"), 404, "not_found")
    owner.delete(f"/tasks/{task['id']}")
    for id in (deleted["id"], task["id"]):
        owner.data(owner.delete(f"/deleted/{id}"))
    kept = "SELECT 1 FROM attachment_content WHERE attachment_id IN (?, ?)"
    assert server.rows(kept, deleted["id"], last["id"]) == []
