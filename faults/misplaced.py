"""List the places of canary.py's secrets. `<<name>>` is a secret; `<<>>` takes the name of its row."""

from typing import NamedTuple

# For each receiver of webhooks.
WEBHOOK = """
[[webhooks]]
name = "{name}"
url = "{url}/<<path of {name}>>?key=<<query of {name}>>"
secret = "<<secret of {name}>>"
previous_secret = "$PREVIOUS_SECRET"
header = "Authorization: Bearer <<header of {name}>>"
events = {events}
"""
ROUTE = """
[plugins.entries.webhooks.config.routes.{name}]
sessionKey = "agent:main"
secret = {secret}
"""
PROVIDER = """
[secrets.providers.{name}]
source = "{source}"
{key} = "{file}"
{options}
"""
REFERENCE = '{{ source = "{source}", provider = "{name}", id = "{id}" }}'
# Changes of the configuration that a reload refuses.
WRONG_HEADER = WEBHOOK.format(name="wrong", url="http://a.example", events="[]").replace(
    "Authorization", "Host"
)
MISTAKES = ('\n[bootstrap]\napi_key = "<<key in a reload>>" x', WRONG_HEADER)


class Provider(NamedTuple):
    """A provider of secrets with its file, which holds a secret or is a program that prints one."""

    name: str
    source: str
    key: str  # of the file's path
    options: str
    id: str  # of the secret, which a route of the same name refers to
    mode: int
    content: str


# A program notes its environment and arguments, and then runs the lines that follow.
PROGRAM = """#!PYTHON
import json, os, sys
print(dict(os.environ), open("/proc/self/cmdline").read(), file=open("FOLDER/given-to-programs", "a"))
"""
ANSWER = 'print(json.dumps({"protocolVersion": 1, "values": {"a": "<<secret of the route program>>"}}))'
GIVEN = 'env = { GIVEN = "<<environment of a program>>" }'
SINGLE = 'mode = "singleValue"'
PROVIDERS = (
    Provider("single", "file", "path", SINGLE, "value", 0o600, "<<secret of the route single>>\n"),
    Provider("json", "file", "path", "", "/a", 0o600, '{"a": "<<secret of the route json>>"}'),
    Provider("program", "exec", "command", GIVEN, "a", 0o700, PROGRAM + ANSWER),
    Provider("open", "file", "path", SINGLE, "value", 0o644, "<<secret in a file that others can read>>"),
    Provider("broken", "file", "path", "", "/a", 0o600, '{"a": "<<secret in a file that is not JSON>>"'),
    Provider("fails", "exec", "command", "", "a", 0o700, PROGRAM + 'sys.exit("<<secret of a failure>>")'),
    Provider("prints", "exec", "command", "", "a", 0o700, PROGRAM + 'print("<<secret without protocol>>")'),
)
SERVED = ("literal", "environment", "single", "json", "program")  # the routes whose secret is found


class Sent(NamedTuple):
    """A request with a secret where it does not belong."""

    name: str
    method: str
    path: str
    headers: dict[str, str] = {}  # noqa: RUF012 - nothing changes it
    body: str | None = None  # JSON, unless the headers have another type


AGENT = "/plugins/webhooks/literal"
RIGHT = {"Authorization": "Bearer <<secret of the route literal>>"}
NONE = {"Authorization": ""}
TOOL = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "%s", "arguments": {%s}}}'
PART = 'Content-Disposition: form-data; name="key"'
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
REQUESTS = (
    Sent("query", "GET", "/api/v1/tasks?api_key=<<>>"),
    Sent("choice", "GET", "/api/v1/tasks?status=<<>>"),
    Sent("path", "DELETE", "/api/v1/keys/tms_<<>>"),
    Sent("wrong key", "GET", "/api/v1/me", {"Authorization": "Bearer <<>>"}),
    Sent("Cookie", "GET", "/api/v1/me", {"Cookie": "session=<<>>"}),
    Sent("Referer", "GET", "/", {"Referer": "https://a.example/enroll/<<>>"}),
    Sent("Origin", "POST", "/mcp", {"Origin": "https://u:<<>>@a.example"}, "{}"),
    Sent("X-Forwarded-For", "GET", "/api/v1/me", {"X-Forwarded-For": "<<>>"}),
    Sent("If-Match", "DELETE", "/api/v1/tasks/TASK", {"If-Match": '"<<>>"'}),
    Sent("Idempotency-Key", "POST", "/api/v1/keys", {"Idempotency-Key": "<<>>"}, "{}"),
    Sent("Content-Type", "POST", "/api/v1/projects", {"Content-Type": "text/<<>>"}, "x"),
    Sent("wrong token", "GET", "/api/v1/enroll/<<>>", NONE),
    Sent("wrong token on the page", "POST", "/enroll/<<>>", NONE),
    Sent("wrong token of a calendar", "GET", "/calendar/tms_<<>>.ics", NONE),
    Sent("a calendar's token as a key", "GET", "/api/v1/me?key=<<token of the second calendar>>"),
    Sent(
        "sign-in header of a client that is not a proxy",
        "GET",
        "/",
        NONE | {"Remote-Email": "<<>>", "Accept": "text/html"},
    ),
    Sent("label", "PATCH", "/api/v1/tasks/batch", {}, '{"tasks": ["TASK"], "changes": {"labels": "<<>>"}}'),
    Sent("cursor", "GET", "/api/v1/changes?after=<<>>"),
    Sent("broken JSON", "POST", "/api/v1/projects", {}, '{"api_key": "<<>>" "name"'),
    Sent("unknown field", "POST", "/api/v1/projects", {}, '{"password": "<<>>"}'),
    Sent("wrong choice", "PATCH", "/api/v1/tasks/TASK", {}, '{"status": "<<>>"}'),
    Sent("wrong date", "PATCH", "/api/v1/tasks/TASK/details", {}, '{"due_date": "<<>>"}'),
    Sent("long text", "POST", "/api/v1/projects", {}, '{"name": "<<>>%s"}' % ("x" * 600)),
    Sent("form", "POST", "/api/v1/tasks/TASK/attachments", FORM, f"--b\r\n{PART}\r\n\r\n<<>>\r\n--b--"),
    Sent("tool's argument", "POST", "/mcp", {}, TOOL % ("get_task", '"api_key": "<<>>"')),
    Sent("tool's choice", "POST", "/mcp", {}, TOOL % ("find_tasks", '"status": "<<>>"')),
    Sent("wrong secret", "POST", AGENT, {"Authorization": "Bearer <<>>"}, "{}"),
    Sent("wrong action", "POST", AGENT, RIGHT, '{"action": "<<>>"}'),
    Sent("wrong type of an action", "POST", AGENT, RIGHT, '{"action": "get_flow", "flowId": ["<<>>"]}'),
    Sent("broken action", "POST", AGENT, RIGHT, '{"action": "get_flow", "secret": "<<>>"'),
)

# The request of a proxy that names the member who signs in.
ENTER = "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\nRemote-Email: {}\r\n\r\n"

# Heads that gunicorn refuses itself, or that are followed by bytes that are not a request.
HEADS = {
    "a header without a colon": "GET /api/v1/me HTTP/1.1\r\nAuthorization Bearer <<>>\r\n\r\n",
    "the name of a header": "GET /api/v1/me HTTP/1.1\r\nAuthorization Bearer <<>>: x\r\n\r\n",
    "a folded header": "GET /api/v1/me HTTP/1.1\r\nAuthorization: Bearer\r\n <<>>\r\n\r\n",
    "Expect": "GET /api/v1/me HTTP/1.1\r\nExpect: <<>>\r\n\r\n",
    "Transfer-Encoding": "GET /api/v1/me HTTP/1.1\r\nTransfer-Encoding: <<>>\r\n\r\n",
    "a query with a raw byte": "GET /api/v1/me?key=<<>>\xff HTTP/1.1\r\n\r\n",
    "a query with a blank": "GET /api/v1/me?key=a <<>> HTTP/1.1\r\n\r\n",
    "a token with a raw byte": "GET /enroll/<<>>\xff HTTP/1.1\r\n\r\n",
    "a token of the API with a raw byte": "GET /api/v1/enroll/<<>>\xff HTTP/1.1\r\n\r\n",
    "a password in a target": "GET http://u:<<>>@a.example/api/v1/me HTTP/1.1\r\nHost: a\r\n\r\n",
    "a password in a target with a raw byte": "GET http://u:<<>>@a/\xff HTTP/1.1\r\n\r\n",
    "a calendar's token with a raw byte": "GET /calendar/<<>>\xff.ics HTTP/1.1\r\n\r\n",
    "no request": "<<>>\r\n\r\n",
    "no size of a chunk": "POST /api/v1/projects HTTP/1.1\r\nAuthorization: Bearer KEY\r\n"
    "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n<<>>\r\n{}\r\n0\r\n\r\n",
}
