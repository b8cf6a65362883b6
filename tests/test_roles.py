"""Rights: every operation of the API against each role, and against keys that only read."""

import re
from itertools import product

import pytest
from harness import NOBODY, fault
from test_keys import make_key

from app import create_app
from members import ROLES, SCOPES
from parts.tools import TOOLS

NEEDS_SOCKET = False

API = "/api/v1"
ALL, TEAM, ADMINS = ROLES, ROLES[: ROLES.index("member") + 1], ROLES[: ROLES.index("admin") + 1]
# For nobody in particular, or for whoever has the link.
PUBLIC = "GET /health|GET /enroll/<string:token>|POST /enroll/<string:token>|GET /openapi.json|GET /docs"
PUBLIC = set((PUBLIC + "|GET /docs/<string:name>|POST /session|POST /session/link").split("|"))
SESSION = {"DELETE /session"}  # which takes a cookie of whatever role and scope
FOR = {
    ALL: """
        GET /context|GET /me|GET /members|GET /members/<id>|PATCH /members/<id>
        POST /members/<id>/invitation|DELETE /members/<id>/invitation
        GET /meetings|GET /meetings/<id>
        GET /tasks|GET /tasks/<task:id>|GET /tasks/<task:id>/comments|POST /tasks/<task:id>/comments
        PATCH /tasks/<task:id>/comments/<comment_id>|DELETE /tasks/<task:id>/comments/<comment_id>
        GET /tasks/<task:id>/activity|GET /activity
        GET /tasks/<task:id>/attachments|GET /tasks/<task:id>/attachments/<attachment_id>
        GET /projects|GET /projects/<id>|GET /projects/<id>/milestones|GET /milestones/<id>
        GET /inbox|POST /inbox/read|POST /inbox/snooze|GET /today
        GET /labels|GET /changes|POST /calendar|DELETE /calendar
        GET /whiteboards|GET /whiteboards/<id>|GET /keys|POST /keys|DELETE /keys/<id>
    """,
    TEAM: """
        POST /tasks/batch|PUT /tasks/by-external-id/<path:external_id>|POST /tasks/<task:id>/claim
        POST /tasks|PATCH /tasks/<task:id>|PUT /tasks/<task:id>|DELETE /tasks/<task:id>
        PATCH /tasks/<task:id>/details|POST /tasks/<task:id>/copy|PATCH /tasks/batch
        POST /tasks/<task:id>/skip|GET /agents/stop
        POST /tasks/<task:id>/complete|PATCH /tasks/<task:id>/complete|PUT /tasks/<task:id>/complete
        POST /tasks/<task:id>/attachments|DELETE /tasks/<task:id>/attachments/<attachment_id>
        POST /projects|PATCH /projects/<id>|DELETE /projects/<id>|POST /projects/<id>/milestones
        PATCH /milestones/<id>|DELETE /milestones/<id>
        POST /meetings|PATCH /meetings/<id>|DELETE /meetings/<id>
        POST /whiteboards|PATCH /whiteboards/<id>|DELETE /whiteboards/<id>
        GET /deleted|POST /deleted/<id>/restore|DELETE /deleted/<id>|POST /activity/undo
    """,
    ADMINS: """
        POST /members/invite|DELETE /members/<id>
        GET /webhooks|POST /webhooks/<id>/test|POST /webhooks/<id>/enable
        POST /agents/stop|POST /agents/start
        GET /deliveries|GET /deliveries/<id>|POST /deliveries/<id>/redeliver|GET /events
    """,
}


def listed(names):
    """The operations of a table."""
    return [name.strip() for name in names.strip().replace("\n", "|").split("|")]


MAY = {name: roles for roles, names in FOR.items() for name in listed(names)}


# The operation behind each tool of an agent, and behind each right of the page.
TOOL_OF = {
    **{"get_context": "GET /context", "find_tasks": "GET /tasks", "get_task": "GET /tasks/<task:id>"},
    **{"create_task": "POST /tasks", "claim_task": "POST /tasks/<task:id>/claim"},
    **{"update_task": "PATCH /tasks/<task:id>/details", "complete_task": "POST /tasks/<task:id>/complete"},
    **{"add_comment": "POST /tasks/<task:id>/comments", "get_project": "GET /projects/<id>"},
    **{"create_project": "POST /projects", "list_meetings": "GET /meetings"},
}
# The operations of a key of scope agent besides reading.
OF_AGENTS = """
    POST /tasks|POST /tasks/batch|PATCH /tasks/batch|PUT /tasks/by-external-id/<path:external_id>
    PATCH /tasks/<task:id>|PUT /tasks/<task:id>|PATCH /tasks/<task:id>/details|POST /tasks/<task:id>/claim
    POST /tasks/<task:id>/copy|POST /tasks/<task:id>/skip
    POST /tasks/<task:id>/complete|PATCH /tasks/<task:id>/complete|PUT /tasks/<task:id>/complete
    POST /tasks/<task:id>/comments|PATCH /tasks/<task:id>/comments/<comment_id>
    POST /tasks/<task:id>/attachments|POST /inbox/read|POST /inbox/snooze
"""
OF_AGENTS = listed(OF_AGENTS)
RIGHTS = {"isWriter": "POST /tasks/<task:id>/comments", "isTeam": "POST /tasks"}
RIGHTS["isAdmin"] = "POST /members/invite"


def operations():
    """Every operation that is routed, as `METHOD /path`."""
    for rule in create_app().url_map.iter_rules():
        if rule.rule.startswith(API):
            for method in rule.methods - {"HEAD"}:
                yield f"{method} {rule.rule.removeprefix(API)}"


def ask(client, operation):
    """Call an operation for something that does not exist, and with a body that is always wrong."""
    method, path = operation.split()
    path = re.sub("<[^>]*>", NOBODY, path)
    body = None if method in ("GET", "DELETE") else {"surely not a field": 1}
    return client.request(method, path, json=body, envelope="/docs" not in path and "openapi" not in path)


def test_the_table_has_every_operation_and_public_ones_need_no_key(server):
    assert set(operations()) == set(MAY) | PUBLIC | SESSION
    for operation in PUBLIC:
        assert ask(server.client(None), operation).status_code in (200, 404, 422), operation


@pytest.fixture(scope="module")
def people(server):
    return people_of(server)


def people_of(server):
    return {"owner": server.client()} | {role: server.join(role) for role in ROLES if role != "owner"}


@pytest.fixture(scope="module")
def keys(server, owner):
    """Clients with keys of the owner's that may not do everything, by scope."""
    return {scope: server.client(make_key(owner, scope=scope)["api_key"]) for scope in ("read", "agent")}


@pytest.mark.parametrize("operation", sorted(MAY))
def test_an_operation_is_for_these_roles_and_these_scopes(people, keys, server, operation):
    for role, client in people.items():
        answer = ask(client, operation)
        if role in MAY[operation]:
            assert answer.status_code in (200, 404, 415, 422), (role, answer.text)
        else:
            assert f"your role is {role}" in fault(answer, 403, "forbidden")["message"]
    for scope, client in keys.items():
        answer = ask(client, operation)
        if may(operation, "owner", scope):
            assert answer.status_code in (200, 404, 415, 422) or "completes nothing" in answer.text
        else:
            assert f"has scope {scope}" in fault(answer, 403, "forbidden")["message"]
    fault(ask(server.client(None), operation), 401, "unauthorized")


def may(operation, role, scope):
    is_open = operation.startswith("GET ") or (scope == "agent" and operation in OF_AGENTS)
    return role in MAY[operation] and (scope == "write" or is_open)


def test_a_tool_is_listed_for_those_who_may_call_its_operation():
    assert TOOL_OF.keys() == TOOLS.keys()
    for name, role, scope in product(TOOL_OF, ALL, SCOPES):
        suits = TOOLS[name].suits({"role": role, "scope": scope})
        assert suits == may(TOOL_OF[name], role, scope), (name, role, scope)


def test_the_page_offers_what_the_role_and_the_key_may_do(launch, sign_in):
    rights = """async () => {
        const { rights } = await import(new URL("workspace.js", document.scripts[0].src));
        return rights();
    }"""
    server = launch()
    people = people_of(server)
    keys = {("owner", "read"): make_key(people["owner"], scope="read")["api_key"]}
    keys |= {(role, "write"): client.key for role, client in people.items()}
    for (role, scope), key in keys.items():
        shown = sign_in(key, base=server.base).evaluate(rights)
        for name, operation in RIGHTS.items():
            assert shown[name] == may(operation, role, scope), (name, role, scope)
