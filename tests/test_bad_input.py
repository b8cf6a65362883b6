"""Whatever is sent, the answer is an error that names what is wrong, and nothing is half written.

The numbers are those of the catalogue of bad input on which this service is built.
"""

import json
import unicodedata
from urllib.parse import urlencode

import pytest
from harness import NOBODY, fault
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def unchanged(server, owner):
    """Fail when the test has left anything behind but its project and task."""
    tables = ("project", "task", "comment", "member", "activity", "event", "delivery")

    def count():
        return {t: server.rows(f"SELECT count(*) AS n FROM {t}")[0]["n"] for t in tables}  # noqa: S608

    before = count()
    yield
    assert count() == before


def raw(client, path, body, method="POST", **headers):
    return client.request(method, path, data=body, headers=JSON | headers)


# The body as a whole


def test_of_very_many_members_none_is_looked_at(owner, task, unchanged):
    body = json.dumps({f"{number:x}": 1 for number in range(80_000)}).encode()
    for method, path in (("POST", "/tasks"), ("PATCH", f"/tasks/{task['id']}"), ("POST", "/keys")):
        error = fault(raw(owner, path, body, method), 422, "validation_error", "body")
        assert error["message"] == "body: has 80000 members; at most 100 are accepted"


def test_of_a_list_that_is_too_long_no_item_is_looked_at(owner, unchanged):
    body = b'{"title": "x", "starts_at": "2026-12-01", "participant_ids": [%s]}' % b",".join([b"1"] * 500_000)
    error = fault(raw(owner, "/meetings", body), 422, "validation_error", "participant_ids")
    assert error["message"] == "participant_ids: must be at most 500 members"


@pytest.mark.parametrize("item", ["0", "1.5", '""', "[]", "12345678901234567890123"])
def test_metadata_far_beyond_its_limit_is_refused(owner, project, unchanged, item):
    items = ",".join([item] * (1_000_000 // (len(item) + 1)))
    body = f'{{"project_id": "{project["id"]}", "title": "x", "metadata": {{"a": [{items}]}}}}'
    error = fault(raw(owner, "/tasks", body.encode()), 422, "validation_error", "metadata")
    assert "64 KiB" in error["message"] or "integer" in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"null", b"[]", b'"text"', b"5", b"true", b" ", b"\n\t"),  # A1
        *(b'{"title": "x"', b'{"a": 1,}', b'{"a": 1} // c', b"{} {}", b"{'a': 1}", b"{a: 1}"),  # A2
        *(
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b'{"metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        ),  # A3
        *(b'{"metadata": {"a": %s}}' % word for word in (b"NaN", b"Infinity", b"-Infinity")),  # A5
        *(b'{"metadata": {"a": 1e400}}', b'{"metadata": {"a": -1e400}}', b'{"a": ' + b"9" * 5000 + b"}"),
        *(b'{"title": "a", "title": "b"}', b'{"metadata": {"a": 1, "a": 2}}'),  # A11
        *(b'{"title": "\xff"}', b'{"title": "\xc0\xaf"}', b'{"title": "\xed\xa0\x80"}'),  # A12
        *('{"title": "x"}'.encode(name) for name in ("utf-16", "utf-32", "utf-16-le")),  # A13
        b'\xef\xbb\xbf{"title": "x"}',
    ],
    ids=lambda body: repr(body[:25]),
)
def test_a_body_that_is_not_a_json_object_is_refused(owner, task, unchanged, body):
    for method, path in (("POST", "/tasks"), ("PATCH", f"/tasks/{task['id']}"), ("POST", "/members/invite")):
        fault(raw(owner, path, body, method), 400, "invalid_json")


@pytest.mark.parametrize(
    "kind",
    [
        *("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),  # A14
        *("application/xml", "application/json; charset=utf-7", "application/json; charset=latin-1"),
        *("text/json", "application/jsonp", "json", "application/json/x", "*/*"),
    ],
)
def test_a_body_of_another_type_is_not_read(owner, project, unchanged, kind):
    body = json.dumps({"project_id": project["id"], "title": "x"})
    answer = owner.request("POST", "/tasks", data=body, headers={"Content-Type": kind})
    fault(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind", ["application/json; charset=UTF-8", "Application/JSON", "application/ld+json"]
)
def test_json_by_its_other_names_is_read(owner, project, kind):
    body = json.dumps({"project_id": project["id"], "title": "x"})
    assert owner.request("POST", "/tasks", data=body, headers={"Content-Type": kind}).status_code == 201


def test_a_compressed_body_is_not_read(owner, unchanged):  # A15
    for encoding in ("gzip", "br", "deflate", "nonsense"):
        answer = raw(owner, "/tasks", b"\x1f\x8b\x08", **{"Content-Encoding": encoding})
        fault(answer, 415, "unsupported_media_type")


def test_no_body_at_all_is_an_empty_one(owner, unchanged):
    fault(owner.request("POST", "/tasks"), 422, "validation_error", "project_id", "title")


# Fields of a task

OBJECT, LIST = {"a": 1}, ["a"]
WRONG = {
    "title": [None, "", " ", "\t\n", 5, 5.5, True, LIST, OBJECT, "x" * 501, "a\nb", "a\x1b[31m", "a\u0000"],
    "description": [5, True, LIST, OBJECT, "x" * 50_001, "\u0000"],
    "project_id": [None, "", "x", 5, True, LIST, "%", NOBODY, "{" + NOBODY + "}", f"urn:uuid:{NOBODY}"]
    + [NOBODY.replace("-", ""), NOBODY.replace("0", "０"), NOBODY + "\n", "../x", "00000000-0000-0000"],
    "milestone_id": ["", "x", 5, NOBODY, LIST],
    "assignee_id": ["", "me", 5, NOBODY, LIST],
    "priority": ["", "URGENT", "urgent ", "νrgent", 3, True, LIST],
    "start_date": ["soon", "", 5, LIST],
    "due_date": [
        *("soon", "2026-02-30", "2026-13-01", "2026-01-01T25:00:00Z", "2026-01-01T00:00:00+99:99"),  # A33
        *("0000-01-01", "10000-01-01", 5, 1.5, LIST, True, "", "9" * 100_000, "1969-12-31T23:59:59Z"),
        *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1970-01-01T00:00:00+00:01"),  # A34
        *("2026-W01-1", "20260101", "2026-01-01T00Z", "2026-1-1", "2026-01-01 00:00:00", "2026-001"),  # A35
        *("2026-01-01T00:00:00+05:99", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00-00:60"),
        *("2026-01-01T00:00:00 Z", "2026-01-01T00:00:60Z", "２０２６-01-01", "2026-01-01T00:00:00.Z"),
    ],
    "metadata": [LIST, "x", 5, True, {"a": "x" * 70_000}, {"a\u0000": 1}, {"a": {"b": "\u0000"}}],
    # A28: what is not a field, or not one that can be set
    **{
        name: [1]
        for name in ("id", "created_at", "completed_at", "created_by", "version", "is_admin", "status")
    },
    **{name: ["x"] for name in ("__class__", "save", "_data", "", "a.b", "project", "search", "x" * 300)},
}


@pytest.mark.parametrize(
    ("field", "value"),
    [pytest.param(f, v, id=f"{f[:20]}-{str(v)[:25]!r}") for f, values in WRONG.items() for v in values],
)
def test_a_wrong_field_of_a_new_task_is_named(owner, project, unchanged, field, value):
    body = {"project_id": project["id"], "title": "A task", field: value}
    answer = owner.post("/tasks", body)
    fault(answer, 422, "validation_error", field[:100] or "body")


@pytest.mark.parametrize("text", ["\\ud800", "\\udfff", "a\\udc00b"])
@pytest.mark.parametrize(
    "body",
    [
        '{"title": "%s"}',
        '{"description": "%s"}',
        '{"metadata": {"a": "%s"}}',
        '{"metadata": {"%s": 1}}',
        '{"metadata": {"a": [{"b": "%s"}]}}',
        '{"%s": 1}',
        '{"title": {"%s": 1}}',
    ],
)
def test_half_a_surrogate_pair_is_refused(owner, unchanged, body, text):  # A8
    fault(raw(owner, "/tasks", (body % text).encode()), 422, "validation_error")


@pytest.mark.parametrize(
    "number", ["9007199254740993", "-9007199254740993", "9" * 400, "123456789012345678901"]
)
def test_an_integer_that_javascript_could_not_hold_is_refused(owner, project, unchanged, number):  # A7
    body = f'{{"project_id": "{project["id"]}", "title": "x", "metadata": {{"a": [{number}]}}}}'
    error = fault(raw(owner, "/tasks", body.encode()), 422, "validation_error", "metadata")
    assert "double" in error["message"]


@pytest.mark.parametrize(
    "number", ["9007199254740991", "-9007199254740992", "9007199254740994", "42032169374222670"]
)
def test_an_integer_that_a_double_holds_is_kept(owner, project, number):
    body = f'{{"project_id": "{project["id"]}", "title": "x", "metadata": {{"a": {number}}}}}'
    task = owner.data(raw(owner, "/tasks", body.encode()), 201)
    assert task["metadata"] == {"a": int(number)}


def nested(levels, kind):
    value = 1
    for _ in range(levels - 1):
        value = [value] if kind is list else {"a": value}
    return {"a": value}


@pytest.mark.parametrize("kind", [list, dict])
def test_metadata_may_be_31_levels_deep_below_the_body(owner, project, kind):  # A4
    # The body is the first level, so that 32 levels of the body's own value are 32 of metadata.
    task = owner.make_task(project, metadata=nested(32, kind))
    for path in (f"/tasks/{task['id']}", "/tasks", "/context"):
        assert owner.get(path).status_code == 200
    body = {"project_id": project["id"], "title": "x", "metadata": nested(33, kind)}
    fault(owner.post("/tasks", body), 422, "validation_error", "metadata")
    body["metadata"] = nested(900, kind)
    fault(owner.post("/tasks", body), 422, "validation_error", "metadata")


@pytest.mark.parametrize(
    ("field", "longest"),
    [
        ("title", "x" * 500),
        ("title", "🎉" * 500),
        ("description", "x" * 50_000),
        ("metadata", {"a": "x" * (64 * 1024 - 8)}),
    ],
)
def test_a_field_at_its_limit_is_taken(owner, project, field, longest):
    task = owner.make_task(project, **{field: longest})
    assert owner.data(owner.get(f"/tasks/{task['id']}"))[field] == longest
    longer = {"a": longest["a"] + "x"} if field == "metadata" else longest + "x"
    body = {"project_id": project["id"], "title": "x", field: longer}
    fault(owner.post("/tasks", body), 422, "validation_error", field)


def test_metadata_may_hold_strange_keys(owner, project):  # A32
    metadata = {
        "": 1,
        "__proto__": {"x": 1},
        "constructor": None,
        "é": "\u2028",
        **{str(n): n for n in range(5000)},
    }
    task = owner.make_task(project, metadata=metadata)
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["metadata"] == metadata


def test_all_that_is_wrong_is_named_at_once_and_shown_short(owner, unchanged):  # A55
    body = {"title": 5, "project_id": "x", "due_date": "soon", "colour": 1, "priority": "y" * 900_000}
    answer = owner.post("/tasks", body)
    fault(answer, 422, "validation_error", "title", "project_id", "due_date", "colour", "priority")
    assert len(answer.content) < 3000
    many = owner.post("/tasks", {f"field-{n}-{'x' * 90}": 1 for n in range(5000)})
    fault(many, 422, "validation_error")
    assert len(many.content) < 20_000


# Updates


@pytest.mark.parametrize(
    "field",
    ["project_id", "milestone_id", "description", "priority", "start_date", "due_date", "version", "id", "x"],
)
def test_an_update_takes_four_fields_and_no_other(owner, task, unchanged, field):  # A29
    error = fault(owner.patch(f"/tasks/{task['id']}", {field: "x"}), 422, "validation_error", field)
    assert "accepted: title, status, assignee_id, metadata" in error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("title", value) for value in WRONG["title"]),
        *(("status", value) for value in (None, "", "Done", "cancelled", 1, True, LIST)),
        *(("assignee_id", value) for value in WRONG["assignee_id"]),
        *(("metadata", value) for value in WRONG["metadata"]),
    ],
    ids=lambda value: repr(value)[:25],
)
def test_one_wrong_field_of_an_update_writes_none(owner, task, unchanged, field, value):  # A30
    right = {"title": "New"} if field != "title" else {"status": "done"}
    answer = owner.patch(f"/tasks/{task['id']}", right | {field: value})
    fault(answer, 422, "validation_error", field)
    shown = owner.data(owner.get(f"/tasks/{task['id']}"))
    assert {name: shown[name] for name in task} == task


# Comments, projects


@pytest.mark.parametrize("content", [None, "", " \n", 5, True, LIST, OBJECT, "x" * 50_001, "a\u0000"])
def test_a_comment_without_content_is_refused(owner, task, unchanged, content):
    fault(
        owner.post(f"/tasks/{task['id']}/comments", {"content": content}), 422, "validation_error", "content"
    )


def test_a_comment_of_50_000_characters_is_taken(owner, task):
    assert owner.post(f"/tasks/{task['id']}/comments", {"content": "é" * 50_000}).status_code == 201


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", value) for value in (None, "", " ", 5, LIST, "x" * 201, "a\nb")),
        *(("description", value) for value in (5, LIST, "x" * 50_001)),
        *(("owner_id", value) for value in ("x", NOBODY, 5)),
        *((name, "active") for name in ("status", "stats", "id")),
    ],
    ids=lambda value: repr(value)[:25],
)
def test_a_wrong_field_of_a_project_is_named(owner, unchanged, field, value):
    fault(owner.post("/projects", {"name": "P", field: value}), 422, "validation_error", field)


def test_a_name_of_200_characters_is_taken(owner):
    assert owner.make_project(name="é" * 200)["name"] == "é" * 200


# Paths


@pytest.mark.parametrize(
    "id",
    [
        *("x", "1", "%00", "%0a", "a%2Fb", "%", ";x=1", "..", "é", "%ff", "' OR 1=1"),  # A43
        *(NOBODY, NOBODY + ";x=1", NOBODY + "%00", NOBODY[:-1], NOBODY.replace("-", ""), "{" + NOBODY + "}"),
    ],
)
def test_an_id_of_nothing_is_not_found(owner, unchanged, id):
    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"title": "x"}),
        ("DELETE", "", None),
        ("POST", "/complete", None),
        ("GET", "/comments", None),
        ("POST", "/comments", {"content": "x"}),
    ):
        answer = owner.request(method, f"/tasks/{id}{path}", json=body)
        assert answer.status_code in (404, 405), answer.text  # ".." is resolved by the client
        assert answer.json()["error"]["code"] in ("not_found", "method_not_allowed")


@pytest.mark.parametrize(
    "path", ["/", "", "/tasks//", "//tasks", "/nothing", "/tasks/x/y/z", "/TASKS", "/%00"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_an_unknown_path_is_json_and_no_redirect(owner, path, method):  # A44
    answer = owner.request(method, path, headers={"Accept": "text/html"})
    assert answer.status_code == 404
    if method != "HEAD":
        fault(answer, 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/tasks", "GET, HEAD, POST"),
        ("OPTIONS", "/tasks", "GET, HEAD, POST"),
        ("POST", f"/tasks/{NOBODY}", "DELETE, GET, HEAD, PATCH, PUT"),
        ("GET", f"/tasks/{NOBODY}/complete", "PATCH, POST, PUT"),
        ("GET", f"/webhooks/{NOBODY}/test", "POST"),
        ("DELETE", "/context", "GET, HEAD"),
        ("TRACE", "/health", "GET, HEAD"),
        ("BREW", "/health", "GET, HEAD"),
    ],
)
def test_a_wrong_method_says_which_are_right(owner, method, path, allowed):
    answer = owner.request(method, path, headers={"X-HTTP-Method-Override": "GET"})
    fault(answer, 405, "method_not_allowed")
    assert answer.headers["Allow"] == allowed


def test_a_slash_at_the_end_makes_no_difference(owner, project):
    assert owner.get("/tasks/").status_code == 200
    assert owner.post("/tasks/", {"project_id": project["id"], "title": "x"}).status_code == 201


def test_parameters_where_none_belong_are_refused(owner, task, unchanged):  # A42
    fault(owner.get("/context", verbose="1"), 422, "validation_error", "verbose")
    fault(owner.get(f"/tasks/{task['id']}", fields="x"), 422, "validation_error", "fields")
    fault(owner.request("POST", "/tasks?dry_run=1", json={}), 422, "validation_error", "dry_run")
    fault(owner.request("DELETE", f"/tasks/{task['id']}?force=true"), 422, "validation_error", "force")
    fault(owner.request("GET", "/tasks?%ff=1&a%0d%0ab=2"), 422, "validation_error")


def test_a_body_where_none_belongs_is_refused(owner, task, unchanged):
    fault(owner.request("DELETE", f"/tasks/{task['id']}", json={"a": 1}), 422, "validation_error", "a")
    assert owner.request("GET", "/context", data=b"{", headers=JSON).status_code == 200  # a GET has none


# Anything at all

TEXT = st.text(max_size=40) | st.sampled_from(["\u0000", "\ud800", "é", "\u2028", "9999-12-31", NOBODY])
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)
NAMES = ["title", "description", "project_id", "milestone_id", "priority", "assignee_id", "start_date"]
NAMES += ["due_date", "metadata", "status", "content", "email", "full_name", "role", "phone_number", "name"]
PATHS = [
    "/tasks",
    "/tasks/{task}",
    "/tasks/{task}/comments",
    "/members/invite",
    "/projects",
    "/tasks/{task}/complete",
]
ONE_SERVER = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ONE_SERVER
@given(
    path=st.sampled_from(PATHS),
    method=st.sampled_from(["POST", "PATCH"]),
    body=st.dictionaries(st.sampled_from(NAMES) | TEXT, VALUE, max_size=8),
    ascii=st.booleans(),
)
def test_no_body_is_a_server_error_and_what_is_taken_can_be_read(owner, task, path, method, body, ascii):
    content = json.dumps(body, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    answer = raw(owner, path.format(task=task["id"]), content, method)  # the client checks the envelope
    if answer.status_code in (200, 201):
        assert owner.get(f"/tasks/{task['id']}").status_code == 200
        assert owner.get("/context").status_code == 200


@ONE_SERVER
@given(body=st.binary(max_size=200))
def test_no_bytes_are_a_server_error(owner, task, body):
    raw(owner, f"/tasks/{task['id']}", body, "PATCH")


@ONE_SERVER
@given(
    names=st.lists(
        st.sampled_from(["limit", "offset", "q", "sort", "status", "due_before", "project_id"]) | TEXT
    ),
    texts=st.lists(TEXT, min_size=1),
)
def test_no_query_is_a_server_error(owner, names, texts):
    texts = [text.encode("utf-8", "surrogatepass") for text in texts]
    query = [(name.encode("utf-8", "surrogatepass"), texts[n % len(texts)]) for n, name in enumerate(names)]
    assume(len(urlencode(query)) < 4000)  # gunicorn itself refuses longer lines
    answer = owner.request("GET", "/tasks", params=query)
    assert answer.status_code in (200, 422)


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\x1b", "\x85"])
def test_a_name_with_a_character_that_hides_what_it_is_is_refused(owner, task, unchanged, character):
    name = f"invoice{character}fdp.exe"
    fault(owner.post("/projects", {"name": name}), 422, "validation_error", "name")
    fault(owner.post("/keys", {"name": name}), 422, "validation_error", "name")
    body = {"email": "x@example.com", "full_name": name, "role": "member"}
    fault(owner.post("/members/invite", body), 422, "validation_error", "full_name")
    part = f'--B\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\nx\r\n--B--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=B"}
    path = f"/tasks/{task['id']}/attachments"
    answer = owner.request("POST", path, data=part.encode(), headers=headers)
    fault(answer, 422, "validation_error", "file")


def test_what_joins_characters_of_one_word_is_kept(owner, task):
    title = "👩\u200d💻 مرحبا\u200f, क्\u200dष \u2068שלום\u2069"
    assert owner.data(owner.patch(f"/tasks/{task['id']}", {"title": title}))["title"] == title


def test_more_than_30_combining_marks_in_a_row_are_refused_wherever_text_is_taken(owner, project, task):
    # To bring them into order takes n² steps, during which no other request is served.
    thirty, more = "e" + "\u0301" * 30, "e" + "\u0301" * 31
    assert owner.make_task(project, title=thirty)["title"] == thirty
    assert owner.get("/tasks", q=thirty).status_code == 200
    file = {"files": {"file": (f"{more}.txt", b"x")}}
    # Some are made of marks, but are none themselves.
    others = [c for c in map(chr, range(0x110000)) if not unicodedata.combining(c)]
    made_of_marks = [c for c in others if unicodedata.combining(unicodedata.normalize("NFD", c)[0])]
    assert len(made_of_marks) == 3
    for sign in made_of_marks:
        fault(owner.patch(f"/tasks/{task['id']}", {"title": sign * 31}), 422, "validation_error", "title")
    for name, answer in {
        "title": owner.patch(f"/tasks/{task['id']}", {"title": more}),
        "description": owner.patch(f"/tasks/{task['id']}/details", {"description": f"a{more}b"}),
        "metadata": owner.patch(f"/tasks/{task['id']}", {"metadata": {"a": [{more: 1}]}}),
        "content": owner.post(f"/tasks/{task['id']}/comments", {"content": more}),
        "name": owner.post("/projects", {"name": more}),
        "q": owner.get("/tasks", q=more),
        "file": owner.post(f"/tasks/{task['id']}/attachments", **file),
    }.items():
        assert "combining marks" in fault(answer, 422, "validation_error", name)["message"]


def test_the_length_of_an_email_address_is_checked_before_the_address(owner, unchanged):
    body = {"email": f"{'a.' * 200}@example.com", "full_name": "A", "role": "member"}
    error = fault(owner.post("/members/invite", body), 422, "validation_error", "email")
    assert error["message"] == "email: must be at most 254 characters long"
