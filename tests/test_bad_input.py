"""Any bad input gets an error that names the mistake, and nothing is half written."""

import json
import re
from itertools import product

import pytest
from harness import NOBODY, document, fault, tables

from app import create_app
from parts.openapi import resolved

NEEDS_SOCKET = False  # nor is there a sweeper: nothing but requests can write
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def ids(owner):
    """The id of one thing of each kind."""
    task = owner.make_task(project := owner.make_project())
    made = {
        "comment": owner.make(f"/tasks/{task['id']}/comments", {"content": "x"}),
        "milestone": owner.make(f"/projects/{project['id']}/milestones", {"title": "x"}),
        "meeting": owner.make("/meetings", {"title": "x", "starts_at": "2099-01-01"}),
        "whiteboard": owner.make("/whiteboards", {"title": "x"}),
    }
    made |= {"project": project, "task": task, "member": owner.member}
    return {kind: row["id"] for kind, row in made.items()}


@pytest.fixture
def unchanged(server):
    """Fail when the test has written anything."""

    def stored():
        names = [table._meta.table_name for table in tables()]
        return {name: server.rows(f"SELECT * FROM {name}") for name in names}

    before = stored()
    yield
    assert stored() == before


def raw(client, path, body, method="POST", **headers):
    return client.request(method, path, data=body, headers=JSON | headers)


# The body as a whole


def test_too_many_members_or_items_are_refused_unread(owner, project, unchanged):
    body = json.dumps({f"{number:x}": 1 for number in range(80_000)}).encode()
    error = fault(raw(owner, "/tasks", body), 422, "validation_error", "body")
    assert error["message"] == "body: has 80000 members; at most 100 are accepted"
    body = b'{"title": "x", "starts_at": "2026-12-01", "participant_ids": [%s]}' % b",".join([b"1"] * 100_000)
    error = fault(raw(owner, "/meetings", body), 422, "validation_error", "participant_ids")
    assert error["message"] == "participant_ids: must be at most 500 members"
    for item in ("0", "[]"):
        items = ",".join([item] * (100_000 // (len(item) + 1)))
        body = f'{{"project_id": "{project["id"]}", "title": "x", "metadata": {{"a": [{items}]}}}}'
        error = fault(raw(owner, "/tasks", body.encode()), 422, "validation_error", "metadata")
        assert "64 KiB" in error["message"]


NO_OBJECTS = [b"null", b"[]", b'"text"', b"5", b"true", b" ", b"\n\t"]
NO_OBJECTS += [b'{"title": "x"', b'{"a": 1,}', b'{"a": 1} // c', b"{} {}", b"{'a': 1}", b"{a: 1}"]
NO_OBJECTS += [b"[" * 100_000, b'{"a":' * 100_000]
NO_OBJECTS += [b'{"metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
NO_OBJECTS += [b'{"metadata": {"a": %s}}' % word for word in (b"NaN", b"Infinity", b"-Infinity", b"1e400")]
NO_OBJECTS += [b'{"a": ' + b"9" * 5000 + b"}", b'{"title": "a", "title": "b"}', b'{"m": {"a": 1, "a": 2}}']
NO_OBJECTS += [b'{"title": "\xff"}', b'{"title": "\xc0\xaf"}', b'{"title": "\xed\xa0\x80"}']
NO_OBJECTS += ['{"title": "x"}'.encode(name) for name in ("utf-16", "utf-32", "utf-16-le", "utf-8-sig")]


def test_a_body_that_is_not_a_json_object_or_has_half_a_surrogate_pair_is_refused(owner, unchanged):
    for body in NO_OBJECTS:
        answer = raw(owner, "/tasks", body)
        assert answer.status_code == 400, body[:25]
        fault(answer, 400, "invalid_json")
    bodies = ['{"title": "%s"}', '{"description": "%s"}', '{"%s": 1}', '{"title": {"%s": 1}}']
    bodies += ['{"metadata": {"a": "%s"}}', '{"metadata": {"%s": 1}}', '{"metadata": {"a": [{"b": "%s"}]}}']
    for text, body in product(("\\ud800", "\\udfff", "a\\udc00b"), bodies):
        error = fault(raw(owner, "/tasks", (body % text).encode()), 422, "validation_error")
        assert "half a surrogate pair" in error["message"]


def test_only_uncompressed_json_is_read(owner, project, unchanged):
    body = json.dumps({"project_id": project["id"], "title": "x"})
    for kind in (
        *("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
        *("application/xml", "application/json; charset=utf-7", "application/json; charset=latin-1"),
        *("text/json", "application/jsonp", "json", "application/json/x", "*/*"),
    ):
        fault(raw(owner, "/tasks", body, **{"Content-Type": kind}), 415, "unsupported_media_type")
    for encoding in ("gzip", "br", "deflate", "nonsense"):
        answer = raw(owner, "/tasks", b"\x1f\x8b\x08", **{"Content-Encoding": encoding})
        fault(answer, 415, "unsupported_media_type")


def test_json_by_its_other_names_is_read(owner, project):
    body = json.dumps({"project_id": project["id"], "title": "x"})
    for kind in ("application/json; charset=UTF-8", "Application/JSON", "application/ld+json"):
        assert raw(owner, "/tasks", body, **{"Content-Type": kind}).status_code == 201


# The fields of bodies, and the parameters of queries

OBJECT, LIST = {"a": 1}, ["a"]
MARKS = "e" + "\u0301" * 31  # combining marks; 30 are accepted
HIDDEN = "\u200b\u2060\ufeff\u00ad\u3164\u115f\u1160\uffa0\u2800\u0301"  # all invisible
NAME = [None, "", " ", 5, LIST, "x" * 201, "a\nb", MARKS, HIDDEN]
NAME += [f"invoice{character}fdp.exe" for character in "\u202e\u2066\x1b\x85"]  # which hide what it is
TITLE = [None, "", " ", "\t\n", 5, 5.5, True, LIST, OBJECT, "x" * 501, "a\nb", "a\x1b[31m", "a\u0000", MARKS]
TITLE.append(HIDDEN)
TITLE += [sign * 31 for sign in "\u0f73\u0f75\u0f81\uff9e\uff9f"]  # they become marks, and are none
TEXT = [5, True, LIST, OBJECT, "x" * 50_001, "\u0000", f"a{MARKS}b"]
ID = ["", "x", 5, LIST, NOBODY]
PRIORITY = ["", "URGENT", "urgent ", "νrgent", 3, True, LIST]
METADATA = [LIST, "x", 5, True, {"a": "x" * 70_000}, {"a\u0000": 1}, {"a": {"b": "\u0000"}}]
METADATA += [{"a": [{MARKS: 1}]}]
DATE = ["soon", "", 5, 1.5, LIST, True, "9" * 100_000, "2026-02-30", "2026-13-01", "２０２６-01-01"]
DATE += ["0000-01-01", "10000-01-01", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59"]
DATE += ["9999-12-31T23:59:59-23:59", "1970-01-01T00:00:00+00:01", "2026-01-01T00:00:00+99:99"]
DATE += ["2026-W01-1", "20260101", "2026-01-01T00Z", "2026-1-1", "2026-01-01 00:00:00", "2026-001"]
DATE += ["2026-01-01T00:00:00+05:99", "2026-01-01T24:00:00Z", "2026-01-01T25:00:00Z", "2026-01-01T00:00:60Z"]
DATE += ["2026-01-01T00:00:00-00:60", "2026-01-01T00:00:00 Z", "2026-01-01T00:00:00.Z", "2026-12-24T17Z"]
DATE += ["20261224T173000Z", "2026-12-24T1730Z", "2026-12-24T17:30:00+00", "2026-W52-4", "2026-12-24 17:30Z"]
DATE += ["2026-12-24T17:30.5Z", "2026-12-24T17:30:0Z", "2026-12-24T17:30:00+24:00", "2026-12-24T17:30+"]
DATE += ["2026-12-24T17:30:00+1:00", "2026-12-24T17:30:00+00:0", "2026-12-24T24:00Z"]
NO_IDS = ["x", "%", "", f"{{{NOBODY}}}", NOBODY.replace("-", ""), NOBODY.replace("0", "０")]
EMAIL = ["", " ", "nobody", "a@@example.com", "a@b@example.com", "@example.com", "a@", "<a@example.com>", 5]
EMAIL += ["a@example.com\r\nBcc: b@example.com", "a b@example.com", "x" * 250 + "@example.com", None, OBJECT]
EMAIL += ["a@example.com\u0000", True, LIST]
HISTORY = {"limit": [0, 101], "before": ["x"], "since": ["yesterday"], "actor_id": ["me"]}
HISTORY |= {"entity": ["milestone"], "offset": [5], "action": ["done"], "until": ["now"]}


def unknown(*names):
    """Fields that are none, or that cannot be set."""
    return {name: ["x"] for name in names}


MILESTONE = {"title": TITLE, "due_date": ["soon", ""], **unknown("id", "created_at", "colour")}
MEETING = {"title": TITLE, "project_id": ID, **unknown("id", "organizer_id")}
WHITEBOARD = {"title": TITLE, "project_id": ID, "content": [LIST, "x", 5], **unknown("id", "updated_by")}
QUERY = {"limit": ["0", "101", "-1", "abc", "", "1.5", "1e2", "1_0", " 7", "٣", "9" * 3000]}
QUERY |= {"offset": ["-1", str(2**31), str(2**63), "x"], "project_id": NO_IDS, "assignee_id": ["You"]}
QUERY |= {"status": ["bogus", "TODO", "", "todo,done"], "priority": ["High", "higһ", ""]}
QUERY |= {"due_before": ["soon", "2026-W01-1", "20260101", "2026-13-01", "9" * 3000], "milestone_id": ["1"]}
QUERY |= {"due_since": ["soon", "2026-13-01"]}
QUERY |= {"updated_since": ["0000-01-01"], "q": ["", "  ", "x" * 201, MARKS], "include": ["comments"]}
QUERY |= {"sort": ["title", "id", "--priority", "project__name", "priority;DROP TABLE task"]}
QUERY |= {"wait": ["26", "-1", "x", "1"]}  # which takes ready, or after
QUERY |= {"archived": ["true"], "ready": ["false"], **unknown("order", "project_id[]", "page", "limit ")}
TASK = {"title": TITLE, "assignee_id": [*ID, "me"], "metadata": METADATA}
DETAILS = {"description": TEXT, "priority": PRIORITY, "due_date": DATE, "milestone_id": ID}
NEW_TASK = TASK | DETAILS | {"start_date": ["soon", "", 5, LIST]}
NEW_TASK |= {"project_id": [*ID, *NO_IDS, None, True, f"urn:uuid:{NOBODY}", NOBODY + "\n", "../x"]}
NEW_TASK |= unknown("id", "created_at", "completed_at", "created_by", "version", "is_admin", "project")
NEW_TASK |= unknown("status", "__class__", "save", "_data", "", "a.b", "search", "x" * 300)
ROLE, PHONE = [None, "", "boss", "Owner", 1, LIST], [5, "1" * 51, "", "1\n2"]
PERSON = {"full_name": NAME, "role": ROLE, "phone_number": PHONE, **unknown("id", "status")}
KEY = {"name": NAME, "scope": ["", "admin", "READ"], "expires_at": ["soon", 5, "2020-01-01"], "member_id": ID}
# The body besides the wrong value; {project} and others are ids.
RIGHT = {"POST /tasks": {"title": "A task"}, "PATCH /tasks/{task}": {"title": "New", "status": "done"}}
RIGHT |= {"PATCH /tasks/{task}/details": {"description": "New", "priority": "low"}}
RIGHT |= {"POST /tasks/{task}/comments": {"content": "C"}}
RIGHT |= {"PATCH /tasks/{task}/comments/{comment}": {"content": "New"}, "POST /projects": {"name": "P"}}
RIGHT |= {"PATCH /projects/{project}": {"name": "New", "description": "New"}}
RIGHT |= {"POST /projects/{project}/milestones": {"title": "M"}, "POST /whiteboards": {"title": "W"}}
RIGHT |= {"PATCH /milestones/{milestone}": {"title": "New", "description": "New"}}
RIGHT |= {"POST /meetings": {"title": "M", "starts_at": "2099-12-01"}, "POST /keys": {"name": "K"}}
RIGHT |= {"PATCH /meetings/{meeting}": {"title": "New", "location": "New"}}
RIGHT |= {"PATCH /whiteboards/{whiteboard}": {"title": "New", "content": {"a": 1}}}
RIGHT |= {"POST /members/invite": {"email": "wrong@example.com", "full_name": "X", "role": "member"}}
RIGHT |= {"PATCH /members/{member}": {"full_name": "New", "phone_number": "1"}}
RIGHT |= {"POST /session": {"api_key": "tms_…"}}
WRONG = {
    "GET /tasks": QUERY,
    "GET /activity": HISTORY,
    "GET /tasks/{task}/activity": HISTORY,
    "GET /tasks/{task}/comments": {"limit": [0, 501], "before": ["x"], "offset": [1]},
    "GET /projects": {"status": ["done"]},
    "GET /deleted": {"limit": [0, 501], "before": ["x"]},
    "GET /inbox": {"wait": ["26", "1.5"]},
    "GET /events": {"after": ["evt_0"]},
    "GET /deliveries": {"status": ["lost"], "event": ["task.moved"], "webhook_id": ["x"], "limit": [0]}
    | unknown("endpoint"),
    "POST /tasks": NEW_TASK,
    "PATCH /tasks/{task}": TASK
    | {"status": [None, "", "Done", "cancelled", 1, True, LIST], **unknown("id", "version")},
    "PATCH /tasks/{task}/details": DETAILS | unknown("colour"),
    "POST /tasks/{task}/comments": {"content": [None, "", " \n", *TEXT], "question": ["true", 1, None, []]},
    "POST /tasks/{task}/claim": {"minutes": [0, -1, 1441, "5", True, 1.5, 2**64]},
    "PATCH /tasks/{task}/comments/{comment}": {"content": [None, " "], **unknown("author_id")},
    "POST /projects": {"name": NAME, "description": TEXT, "owner_id": ID, **unknown("status", "stats", "id")},
    "PATCH /projects/{project}": {"name": NAME, "status": ["done"], "owner_id": [None, *ID]}
    | unknown("stats"),
    "POST /projects/{project}/milestones": MILESTONE,
    "PATCH /milestones/{milestone}": MILESTONE,
    "POST /meetings": MEETING | {"starts_at": [None, "soon"], "participant_ids": ["x", 5]},
    "PATCH /meetings/{meeting}": MEETING,
    "POST /whiteboards": WHITEBOARD,
    "PATCH /whiteboards/{whiteboard}": WHITEBOARD,
    "POST /members/invite": PERSON | {"email": EMAIL, **unknown("is_admin", "joined_at")},
    "PATCH /members/{member}": PERSON | unknown("email", "kind"),
    "POST /keys": KEY | unknown("key", "id", "hash", "prefix", "is_session"),
    "POST /session": {"api_key": [None, "", 5, LIST, "x" * 256, "a\nb"], **unknown("key", "name")},
}


def test_a_wrong_or_missing_value_is_named_and_nothing_is_written(owner, ids, unchanged):
    for operation, wrong in WRONG.items():
        method, path = operation.format(**ids).split()
        right = RIGHT.get(operation, {}) | ({"project_id": ids["project"]} if path == "/tasks" else {})
        for field, value in [(name, value) for name in wrong for value in wrong[name]]:
            sent = {"params" if method == "GET" else "json": right | {field: value}}
            answer = owner.request(method, path, **sent)
            assert answer.status_code == 422, f"{operation}: {field}: {value!r:.60}"
            fault(answer, 422, "validation_error", field[:100] or "body")
    for operation, right in RIGHT.items():
        method, path = operation.format(**ids).split()
        if method == "POST":
            fault(owner.request(method, path), 422, "validation_error", *right)


def test_every_mistake_in_a_body_is_named_at_once_and_shortened(owner, unchanged):
    body = {"email": f"{'a.' * 200}@example.com", "full_name": "A", "role": "member"}
    error = fault(owner.post("/members/invite", body), 422, "validation_error", "email")
    assert error["message"] == "email: must be at most 254 characters long"  # before the address is read
    body = {"title": 5, "project_id": "x", "due_date": "soon", "colour": 1, "priority": "y" * 900_000}
    answer = owner.post("/tasks", body)
    fault(answer, 422, "validation_error", *body)
    assert len(answer.content) < 3000
    many = owner.post("/tasks", {f"field-{n}-{'x' * 90}": 1 for n in range(90)})
    fault(many, 422, "validation_error")
    assert len(many.content) < 20_000


def test_metadata_may_be_32_levels_deep_and_holds_no_integer_that_javascript_could_not_hold(owner, project):
    def create(value):
        """Create a task whose metadata has this JSON text."""
        body = f'{{"project_id": "{project["id"]}", "title": "x", "metadata": {{"a": {value}}}}}'
        return raw(owner, "/tasks", body.encode())

    for begin, end in ("[]", ('{"a":', "}")):
        task = owner.data(create(begin * 31 + "1" + end * 31), 201)
        for path in (f"/tasks/{task['id']}", "/tasks", "/context"):
            assert owner.get(path).status_code == 200
        for levels in (32, 899):
            fault(create(begin * levels + "1" + end * levels), 422, "validation_error", "metadata")
    for number in ("9007199254740993", "-9007199254740993", "9" * 400, "123456789012345678901"):
        error = fault(create(f"[{number}]"), 422, "validation_error", "metadata")
        assert "double" in error["message"]
    for number in ("9007199254740991", "-9007199254740992", "9007199254740994", "42032169374222670"):
        assert owner.data(create(f"[{number}]"), 201)["metadata"] == {"a": [int(number)]}


def test_the_lists_and_objects_of_a_batch_are_no_levels_of_its_metadata(owner, project, task):
    plan = {"project_id": project["id"], "title": "x"}
    for levels in range(30, 34):
        metadata = {"a": json.loads("[" * (levels - 1) + "1" + "]" * (levels - 1))}
        created = owner.post("/tasks/batch", {"tasks": [plan | {"metadata": metadata}]})
        changed = owner.patch("/tasks/batch", {"tasks": [task["id"]], "changes": {"metadata": metadata}})
        if levels <= 32:
            (one,), (other,) = owner.data(created, 201)["tasks"], owner.data(changed)["tasks"]
            assert one["metadata"] == other["metadata"] == metadata
        else:
            fault(created, 422, "validation_error", "tasks[0].metadata")
            fault(changed, 422, "validation_error", "changes.metadata")


def test_a_field_at_its_limit_is_taken(owner, project):
    limits = {"title": "🎉" * 500, "description": "é" * 50_000, "metadata": {"a": "x" * (64 * 1024 - 8)}}
    for field, longest in limits.items():
        task = owner.make_task(project, **{field: longest})
        assert owner.read(f"/tasks/{task['id']}")[field] == longest
        longer = {"a": longest["a"] + "x"} if field == "metadata" else longest + "x"
        body = {"project_id": project["id"], "title": "x", field: longer}
        fault(owner.post("/tasks", body), 422, "validation_error", field)
    assert owner.make_project(name="é" * 200)["name"] == "é" * 200
    assert owner.post(f"/tasks/{task['id']}/comments", {"content": "é" * 50_000}).status_code == 201
    # Joiners of a word, and thirty combining marks: one more is refused by name, since to
    # bring them into order takes n² steps, during which no other request is served.
    for title in ("👩\u200d💻 مرحبا\u200f, क्\u200dष \u2068שלום\u2069", MARKS[:-1]):
        assert owner.data(owner.patch(f"/tasks/{task['id']}", {"title": title}))["title"] == title
    for text in ("x" * 200, MARKS[:-1]):
        assert owner.get("/tasks", q=text).status_code == 200
    error = fault(owner.get("/tasks", q=MARKS), 422, "validation_error", "q")
    assert "more than 30 combining marks" in error["message"]


# Queries and paths


def test_every_mistake_in_a_query_is_named_and_a_slash_at_the_end_of_a_path_is_none(owner):
    query = "limit=0&sort=name&foo=1&foo=2&limit=3&due_before=never&assignee_id=you"
    error = fault(owner.get(f"/tasks?{query}"), 422, "validation_error", "sort", "due_before")
    said = {detail["field"]: detail["message"] for detail in error["details"]}
    assert said["limit"] == said["foo"] == "is repeated"
    assert said["assignee_id"] == "must be a UUID, me or none"
    assert owner.get("/tasks/").status_code == 200
    assert owner.post("/projects/", {"name": "x"}).status_code == 201
    since = "/tasks?updated_since=2026-12-01T10:00:00"
    assert "%2B" in fault(owner.get(f"{since}+01:00"), 422, "validation_error", "updated_since")["message"]
    assert owner.get(f"{since}%2B01:00").status_code == 200


def test_every_mistake_of_a_request_is_named_at_once(server, owner, task, unchanged):
    path, file = f"/tasks/{task['number']}", {"files": {"shade": b"x"}}
    headers = {"If-None-Match": '"1"', "Idempotency-Key": ""}
    body = {"title": "a\0b", "description": "\ud800", "due_date": "soon", "labels": {}, "shade": "\0"}
    cases: dict = {
        "POST /tasks": ({"json": body}, [*headers, *body, "project_id"]),
        "POST /keys": ({"json": {"\0": 1}}, [*headers, "\0", "name"]),
        f"PATCH {path}": ({"json": {"status": "\0", "due_date": 1}}, ["If-None-Match", "status", "due_date"]),
        f"POST {path}/attachments": (file, [*headers, "shade", "file"]),
        f"POST {path}/complete": ({"json": {"a": "\0"}}, ["If-None-Match", "a"]),
        f"DELETE {path}": ({"json": {"a": 1}}, ["If-None-Match", "a"]),
        # A rule about several fields does not complain of one that is wrong by itself.
        "POST /inbox/read": ({"json": {"task_id": "\0"}}, ["If-None-Match", "task_id"]),
    }
    for operation, (sent, wrong) in cases.items():
        answer = owner.request(*f"{operation}?colour=1".split(), headers=headers, **sent)
        fields = [detail["field"] for detail in fault(answer, 422, "validation_error")["details"]]
        assert sorted(fields) == sorted(["colour", *wrong]), operation


def test_a_text_that_cannot_be_stored_hides_no_other_mistake(server, owner, unchanged):
    for text, (method, path, names) in product(("a\0", "\ud800", MARKS), operations_with_a_body(server)):
        body = dict.fromkeys(names, text) | {"colour": 1}
        answer = owner.request(method, re.sub("{[a-z_]*}", NOBODY, path), json=body)
        assert answer.status_code == 422, (method, path, answer.text)
        fault(answer, 422, "validation_error", *body)


def test_parameters_or_a_body_where_none_belong_are_refused(owner, task, unchanged):
    fault(owner.get("/context", verbose="1"), 422, "validation_error", "verbose")
    fault(owner.get(f"/tasks/{task['id']}", fields="x"), 422, "validation_error", "fields")
    fault(owner.request("POST", "/tasks?dry_run=1", json={}), 422, "validation_error", "dry_run")
    fault(owner.request("DELETE", f"/tasks/{task['id']}?force=true"), 422, "validation_error", "force")
    fault(owner.request("GET", "/tasks?%ff=1&a%0d%0ab=2"), 422, "validation_error")
    fault(owner.request("DELETE", f"/tasks/{task['id']}", json={"a": 1}), 422, "validation_error", "a")
    fault(owner.post(f"/tasks/{task['id']}/complete", {"status": "todo"}), 422, "validation_error", "status")
    assert owner.request("GET", "/context", data=b"{", headers=JSON).status_code == 200  # a GET has none


NO_THINGS = ["x", "%00", "a%2Fb", "%", ";x=1", "é", "%ff", "' OR 1=1", NOBODY, NOBODY + "%00", NOBODY[:-1]]
NO_THINGS += [NOBODY.replace("-", ""), f"{{{NOBODY}}}"]


def operations_on_things(server):
    """Method, path, and the body that is needed, of every operation whose path has an id."""
    spec = document(server.client()).spec
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {"content": {}})["content"]
            if "{id}" in path and "multipart/form-data" not in content:
                schema = resolved(spec, content.get("application/json", {}).get("schema", {}))
                yield method, path.removeprefix("/api/v1"), dict.fromkeys(schema.get("required", ()), "x")


def operations_with_a_body(server):
    """Method, path, and the names of the fields of every operation of the API with a JSON body."""
    spec = document(server.client()).spec
    for path in [path for path in spec["paths"] if path.startswith("/api/v1/")]:
        for method, operation in spec["paths"][path].items():
            if content := operation.get("requestBody", {"content": {}})["content"].get("application/json"):
                names = resolved(spec, content["schema"]).get("properties", {})
                yield method.upper(), path.removeprefix("/api/v1"), names


def test_an_id_of_nothing_and_an_unknown_path_are_not_found_in_json(server, owner, unchanged):
    for id, (method, path, body) in product(NO_THINGS, operations_on_things(server)):
        answer = owner.request(method.upper(), re.sub("{[a-z_]*}", id, path), json=body or None)
        fault(answer, 404, "not_found")
    for path in ("/", "", "/tasks//", "//tasks", "/nothing", "/tasks/x/y/z", "/TASKS", "/%00"):
        for method in ("GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"):
            fault(owner.request(method, path, headers={"Accept": "text/html"}), 404, "not_found")
        assert owner.request("HEAD", path).status_code == 404


def test_few_of_the_longest_paths_are_kept_in_memory(database):
    match = create_app(server={"database": database.database}).match
    for number in range(300):
        match(f"/api/v1/tasks/{number}{'x' * 4000}\U0001f389", "GET")
    assert match.cache_info().currsize == 256


def test_a_wrong_method_says_which_are_right(owner):
    methods = {"PUT /tasks": "GET, HEAD, POST", "OPTIONS /tasks": "GET, HEAD, POST"}
    methods |= {f"POST /tasks/{NOBODY}": "DELETE, GET, HEAD, PATCH, PUT", "DELETE /context": "GET, HEAD"}
    methods |= {f"GET /tasks/{NOBODY}/complete": "PATCH, POST, PUT", "BREW /health": "GET, HEAD"}
    for operation, allowed in (methods | {f"GET /webhooks/{NOBODY}/test": "POST"}).items():
        answer = owner.request(*operation.split(), headers={"X-HTTP-Method-Override": "GET"})
        fault(answer, 405, "method_not_allowed")
        assert answer.headers["Allow"] == allowed
