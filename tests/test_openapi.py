"""The OpenAPI document is valid, and says everything: paths, bodies, errors, events and actions."""

import contextlib
import json
import re
from itertools import chain

import pytest
from harness import EVERY_EVENT, NOBODY, PATIENT, ROOT, document, hook
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from marshmallow import ValidationError

import app
import gateway
import members
import models
import schemas
from lists import FILTERS
from parts import openapi, transfer
from parts.tools import ARGUMENTS, SCHEMAS, TOOLS

NEEDS_SOCKET = False
INTAKE = "/plugins/webhooks/{routeId}"
# The views of a page and of pages' files are not operations.
FILES = {"get_docs_file", "get_metrics", "show_board", "show_static_file", "show_calendar"}


@pytest.fixture(scope="module")
def spec(server):
    answer = server.call("GET", "/api/v1/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    return answer.json()


def operations(spec):
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def validator(spec, schema):
    return Draft202012Validator({"components": spec["components"], **schema})


def test_the_document_is_valid_and_has_every_route_and_none_besides(spec):
    from openapi_spec_validator import OpenAPIV31SpecValidator  # it takes a second, which no other file needs

    assert spec["openapi"].startswith("3.1.")
    OpenAPIV31SpecValidator(spec).validate()
    routed = {
        (method.lower(), re.sub("<(?:string:|task:|path:)?([^>]*)>", r"{\1}", rule.rule))
        for rule in app.create_app().url_map.iter_rules()
        for method in rule.methods - {"HEAD"}
        if rule.endpoint.rpartition(".")[2] not in FILES
    }
    assert {(method, path) for method, path, _ in operations(spec)} == routed | {("post", INTAKE)}


def test_bodies_answers_enumerations_and_operations_have_names_of_their_own(spec):
    """Generated clients name their types after them, and make one type for each name."""
    # apispec appends a number to the name of the second schema, and warns of it in the log.
    assert not [name for name in spec["components"]["schemas"] if name[-1].isdigit()]
    names = [operation["operationId"] for _, _, operation in operations(spec)]
    assert len(set(names)) == len(names)
    assert all(operation["summary"].endswith(".") for _, _, operation in operations(spec))
    named = spec["components"]["schemas"]
    for method, path, operation in operations(spec):
        responses = [response for response in operation["responses"].values() if "content" in response]
        for described in [*responses, operation.get("requestBody", {"content": {}})]:
            schema = described["content"].get("application/json", {}).get("schema", {})
            assert set(schema) <= {"$ref"}, (method, path)
        is_alias = operation["operationId"].endswith(("_by_put", "_by_patch"))
        assert operation.get("deprecated", False) is is_alias
    assert named["TaskAnswer"]["properties"]["data"] == {"$ref": "#/components/schemas/Task"}
    assert named["TaskStatus"] == {"type": "string", "enum": list(models.STATUSES)}
    task, nothing = {"$ref": "#/components/schemas/TaskPriority"}, {"type": "null"}
    assert named["CreateTaskBody"]["properties"]["priority"] == {"anyOf": [task, nothing]}
    answers = [response["content"] for response in spec["components"]["responses"].values()]
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    assert answers == [error] * len(answers)


def test_an_operation_says_what_it_needs_how_it_refuses_and_who_may_call_it(spec):
    assert all(re.fullmatch("[A-Z].{10,100}[.]", tag["description"]) for tag in spec["tags"])
    used = [operation["tags"] for _, _, operation in operations(spec)]
    assert {len(tags) for tags in used} == {1}
    assert list(dict.fromkeys(tag for (tag,) in used)) == [*openapi.TAGS], "order TAGS as the views are"
    for method, path, operation in operations(spec):
        if not path.startswith("/api/v1"):
            continue
        named = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert named == set(re.findall("{([^}]*)}", path))
        assert {"401", "422", "429", "500", "503"} < set(operation["responses"])
        assert ("404" in operation["responses"]) == ("{" in path)
        assert {} in operation["security"] or "403" in operation["responses"], (method, path)
    described = {(method, path): operation["description"] for method, path, operation in operations(spec)}
    said = {place: text for place, text in described.items() if INTAKE not in place}
    unused = set(openapi.WHO.values()) - set(said.values())
    assert not unused, "WHO describes a role that no operation has as its lowest `role`"
    assert said["get", "/api/v1/health"] == "For anyone, without a key."
    assert said["get", "/api/v1/tasks"] == "For everyone in the workspace."
    assert said["post", "/api/v1/tasks"] == "For the team: owners, admins and members."
    assert said["get", "/api/v1/events"] == "For owners and admins."


def test_answers_may_have_more_members_in_a_later_version_and_bodies_may_not(spec):
    answers = [operation["responses"] for _, _, operation in operations(spec)]
    named = spec["components"]["schemas"]
    open_ones = {name: schema for name, schema in named.items() if not name.endswith("Body")}
    described = json.dumps([answers, open_ones, spec["components"]["responses"], spec["webhooks"]])
    assert set(re.findall('"additionalProperties": (.{2})', described)) == {"{}"}
    assert named["Meta"]["properties"]["version"]["type"] == "string"
    bodies = [schema for name, schema in named.items() if name.endswith("Body") and name != "DriveFlowBody"]
    assert {body["additionalProperties"] for body in bodies} == {False}


def test_the_client_of_these_tests_refuses_what_a_view_does_not_declare(server, owner, task, monkeypatch):
    """So whatever view raises or sends what it does not declare fails the test that calls it."""
    documented = document(server.client())
    monkeypatch.setattr(documented, "validators", {})
    described, paths = documented.spec["components"]["schemas"], documented.spec["paths"]
    monkeypatch.delitem(described["TaskDetail"]["properties"], "comment_count")
    monkeypatch.setattr(documented, "registry", documented.registered())
    monkeypatch.delitem(paths["/api/v1/projects/{id}"]["delete"]["responses"], "409")
    monkeypatch.delitem(paths["/api/v1/tasks/{id}"]["patch"]["responses"]["200"]["headers"], "ETag")
    with pytest.raises(AssertionError, match="comment_count"):
        owner.get(f"/tasks/{task['id']}")
    with pytest.raises(AssertionError, match="does not document 409"):
        owner.delete(f"/projects/{task['project_id']}")
    with pytest.raises(AssertionError, match="does not document ETag"):
        owner.patch(f"/tasks/{task['id']}", {"title": "x"})


def test_every_body_is_described_with_an_example_that_fits(spec):
    for method, path, operation in operations(spec):
        body = operation.get("requestBody", {"content": {}})["content"].get("application/json")
        if body:
            examples = [named["value"] for named in body.get("examples", {}).values()]
            for example in examples or [body["example"]]:
                problems = list(validator(spec, body["schema"]).iter_errors(example))
                assert not problems, (method, path, problems)
    loaded = 0  # by the schemas that check bodies
    for schema in chain(*(vars(module).values() for module in (schemas, *app.parts()))):
        if isinstance(schema, schemas.Schema) and (example := getattr(schema, "EXAMPLE", None)):
            schema.load({name: value for name, value in example.items() if name in schema.fields})
            loaded += 1
    assert loaded > 8


def test_a_field_or_a_filter_of_tasks_is_everywhere_where_it_belongs():
    """In the table, requests, answers and copies, in tools, page and export, and in docs/api.md."""
    wrong = []

    def agree(place, present, expected):
        """Note what the place lacks, and what it has in excess."""
        for verb, names in {"add": {*expected} - {*present}, "remove": {*present} - {*expected}}.items():
            wrong.extend(f"{place}: {verb} {name}" for name in sorted(names))

    def arguments(tool):
        return TOOLS[tool].definition["inputSchema"]["properties"]

    def of_the_page(names):
        (listed,) = re.findall(rf"const {names} = \[(.*?)\];", page, re.DOTALL)
        return set(re.findall(r'"(\w+)"', listed))

    page = (ROOT / "static" / "task.js").read_text()
    shown = models.Task._meta.columns.keys() - {*models.HIDDEN}
    made = {"id", "number", "created_by", "completed_at", "version", "created_at", "updated_at", "repeats"}
    passing = {"claimed_until", "question_id", "checks", "rank", "tries"}
    taken = shown - made - passing | {"blocked_by"}
    agree("TaskShown in schemas.py", schemas.TaskShown().fields, shown | {"blocked_by"})
    agree("TaskInput in schemas.py (or `made` or `passing` of this test)", schemas.TaskInput().fields, taken)
    agree(
        "UPDATED_FIELDS or DETAIL_FIELDS in schemas.py", schemas.UPDATED_FIELDS + schemas.DETAIL_FIELDS, taken
    )
    assert not {*schemas.UPDATED_FIELDS} & {*schemas.DETAIL_FIELDS}
    agree("PLANNED in models.py", models.PLANNED, taken - {"status", "external_id", "blocked_by"})
    programs = {"metadata", "external_id"}  # which people do not set
    agree("FIELDS in task.js", of_the_page("FIELDS"), taken - {"title", "description"} - programs)
    assert of_the_page("names") < taken
    named = {ARGUMENTS.get(name, name) for name in taken - {"repeat_from"}}  # which agents need rarely
    agree("create_task (PLAN) in tools.py", arguments("create_task"), named - {"status"} | {"more"})
    changing = {"add_blocked_by", "remove_blocked_by", "task_id", "if_version"}
    changed = named - {"project", "external_id"} | changing
    agree("update_task (PLAN) in tools.py", arguments("update_task"), changed)
    texts = (schemas.Text, schemas.Id, schemas.Instant)
    no_texts = {name for name, field in schemas.TaskInput().fields.items() if not isinstance(field, texts)}
    agree("SCHEMAS in tools.py", SCHEMAS.keys() & no_texts, no_texts - {"repeat_from"})
    agree("CELLS in transfer.py", transfer.CELLS.keys() & no_texts, no_texts)
    names = {f"{name}_id": name for name in ("project", "milestone", "assignee")} | {"created_by": "creator"}
    moved = {names.get(name, name) for name in shown - passing | {"blocked_by"}}
    agree("IMPORTED in transfer.py", transfer.EXPORTED, moved)
    filters = schemas.LIST_TASKS.fields.keys() - {"limit", "offset", "sort", "include"}
    # Of `assignee_id=none`, `status=open`, `q`, `priority=urgent`, and `created_since` or `completed_since`.
    derived = {"unassigned", "open", "other_words", "urgent", "touched_since", "for_agents"}
    agree("FILTERS in lists.py", FILTERS.keys() - derived, filters - {"wait"})
    of_programs = {"archived", "after", "created_by", "due_since", "external_id", "wait"}
    of_agents = {ARGUMENTS.get(name, name) for name in filters - of_programs | {"limit", "offset", "sort"}}
    agree("find_tasks (or `of_programs` of this test) in tools.py", arguments("find_tasks"), of_agents)
    page = (ROOT / "docs" / "api.md").read_text()
    told = page.partition("`GET /tasks` filters by")[2].partition("\n### ")[0]
    agree("the filters in docs/api.md", {name for name in filters if f"`{name}" in told}, filters)
    assert not wrong, "\n".join(wrong)


def test_the_page_has_a_word_for_each_role_and_status_and_draws_each_status():
    files = ("words.js", "parts.js", "page.css")
    words, parts, styles = ((ROOT / "static" / name).read_text() for name in files)

    def keys(text, name):
        return re.findall(r"(\w+):", re.search(rf"const {name} = {{(.*?)}}", text, re.DOTALL)[1])

    assert keys(words, "ROLES") == [*members.ROLES]
    assert keys(words, "STATUSES") == [*models.STATUSES]
    assert keys(parts, "SHARES") == [*models.STATUSES]
    assert re.findall(r"--of-(\w+):", styles) == [*models.STATUSES]


def test_the_document_has_every_action_of_the_gateway(spec):
    intake = spec["paths"][INTAKE]["post"]
    content = intake["requestBody"]["content"]["application/json"]
    schema = openapi.resolved(spec, content["schema"])
    actions = [body["properties"]["action"]["const"] for body in schema["oneOf"]]
    assert list(schema["discriminator"]["mapping"]) == actions
    assert set(actions) == set(content["examples"]) == set(gateway.ACTIONS)
    # Where there is no route the answer is a text.
    assert set(intake["responses"]["404"]["content"]) == {"application/json", "text/plain"}


def test_the_document_describes_every_event_as_it_arrives(launch_here, receiver, spec):
    server = launch_here(TASKS_WEBHOOKS=json.dumps([hook(receiver)]), **PATIENT)
    owner = server.client()
    task = owner.make_task(owner.make_project())
    path = f"/tasks/{task['id']}"
    owner.patch(path, {"status": "review", "metadata": {"a": 1}})
    owner.post(f"{path}/comments", {"content": "x"})
    owner.post(f"{path}/complete")
    owner.delete(path)
    server.join("client")
    (webhook,) = owner.read("/webhooks")["webhooks"]
    owner.post(f"/webhooks/{webhook['id']}/test")
    arrived = set()
    for call in receiver.all_here():
        described = spec["webhooks"][call.headers["x-service-event"]]["post"]
        assert {parameter["name"] for parameter in described["parameters"]} <= set(call.headers)
        schema = described["requestBody"]["content"]["application/json"]["schema"]
        problems = list(validator(spec, schema).iter_errors(json.loads(call.body)))
        assert not problems, problems
        arrived.add(call.headers["x-service-event"])
    assert arrived == {*EVERY_EVENT, "ping"} == set(spec["webhooks"]) - {"task.due"}  # see test_due.py


def test_a_body_that_is_refused_is_wrong_by_the_document_too(spec):
    content = spec["paths"]["/api/v1/tasks"]["post"]["requestBody"]["content"]["application/json"]
    good = {"project_id": NOBODY, "title": "x"}
    check = validator(spec, content["schema"])
    assert check.is_valid(good)
    longer = "x" * 501
    for wrong in ({"title": 5}, {"title": longer}, {"priority": "asap"}, {"unknown": 1}, {"metadata": []}):
        assert not check.is_valid(good | wrong), wrong
    for missing in good:
        assert not check.is_valid({name: good[name] for name in good.keys() - {missing}})


ALPHABET = st.characters(max_codepoint=0xFF) | st.sampled_from("\u2028\u3000\u200b漢")
ALPHABET |= st.characters(exclude_categories=["Cs"])  # surrogates, which no body may hold


@given(st.text(ALPHABET, max_size=6))
@settings(max_examples=500, database=None, deadline=None)
def test_a_line_of_text_is_right_by_the_document_if_the_service_takes_it(text):
    # JSON Schema's patterns know no categories of characters, by which the service finds invisible texts.
    is_right = re.search(schemas.ONE_LINE, text) and not schemas.is_blank(text)
    with contextlib.nullcontext() if is_right else pytest.raises(ValidationError):
        schemas.Text(schemas.MAX_TITLE).deserialize(text)
