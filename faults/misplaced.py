"""Where canary.py puts secrets: `<<name>>`, or `<<>>` with the name of its row, is a secret of its own.

That of `<<name|shown>>` may be seen in some places, which canary.py knows.
"""

from typing import NamedTuple

# What the server is configured with; http://accepts and so on are receivers.
CONFIGURATION = """
[[webhooks]]
name = "accepts"
url = "http://accepts/<<path that accepts|shown>>?key=<<query that accepts|shown>>"
secret = "<<secret of a webhook>>"
previous_secret = "$PREVIOUS_SECRET"
events = EVENTS
[[webhooks]]
url = "http://refuses/<<path that refuses|shown>>?key=<<query that refuses|shown>>"
secret = "whsec_<<secret of a webhook in base64>>="
events = ["task.created"]
[[webhooks]]
url = "http://echoes/<<path that echoes|shown>>?key=<<query that echoes|shown>>"
secret = "<<secret of a webhook that echoes>>"
events = ["task.created"]
[[webhooks]]
url = "http://is-down/<<path that is down|shown>>?key=<<query that is down|shown>>"
secret = "<<secret of a webhook that is down>>"
events = ["task.created"]

[plugins.entries.webhooks.config.routes.literal]
sessionKey = "agent:main"
secret = "<<secret of the route literal>>"
[plugins.entries.webhooks.config.routes.environment]
sessionKey = "agent:main"
secret = "$ROUTE_SECRET"
[plugins.entries.webhooks.config.routes.single]
sessionKey = "agent:main"
secret = { source = "file", provider = "single", id = "value" }
[plugins.entries.webhooks.config.routes.json]
sessionKey = "agent:main"
secret = { source = "file", provider = "json", id = "/a" }
[plugins.entries.webhooks.config.routes.program]
sessionKey = "agent:main"
secret = { source = "exec", provider = "program", id = "a" }
[plugins.entries.webhooks.config.routes.open-file]
sessionKey = "agent:main"
secret = { source = "file", provider = "open-file", id = "value" }
[plugins.entries.webhooks.config.routes.no-json]
sessionKey = "agent:main"
secret = { source = "file", provider = "no-json", id = "/a" }
[plugins.entries.webhooks.config.routes.no-text]
sessionKey = "agent:main"
secret = { source = "file", provider = "no-text", id = "/a" }
[plugins.entries.webhooks.config.routes.fails]
sessionKey = "agent:main"
secret = { source = "exec", provider = "fails", id = "a" }
[plugins.entries.webhooks.config.routes.no-protocol]
sessionKey = "agent:main"
secret = { source = "exec", provider = "no-protocol", id = "a" }

[secrets.providers.single]
source = "file"
path = "FOLDER/single"
mode = "singleValue"
[secrets.providers.json]
source = "file"
path = "FOLDER/json"
[secrets.providers.program]
source = "exec"
command = "FOLDER/program.py"
env = { GIVEN = "<<environment of a program|shown>>" }
[secrets.providers.open-file]
source = "file"
path = "FOLDER/open-file"
mode = "singleValue"
[secrets.providers.no-json]
source = "file"
path = "FOLDER/no-json"
[secrets.providers.no-text]
source = "file"
path = "FOLDER/no-text"
[secrets.providers.fails]
source = "exec"
command = "FOLDER/fails.py"
[secrets.providers.no-protocol]
source = "exec"
command = "FOLDER/no-protocol.py"
"""
SERVED = ("literal", "environment", "single", "json", "program")  # the routes whose secret is found

# A program notes what it was given, and then does what follows.
PROGRAM = """#!PYTHON
import json, os, sys
print(dict(os.environ), open("/proc/self/cmdline").read(), file=open("FOLDER/given-to-programs", "a"))
"""
FILES = {
    "single": (0o600, "<<secret of the route single>>\n"),
    "json": (0o600, '{"a": "<<secret of the route json>>"}'),
    "program.py": (
        0o700,
        'print(json.dumps({"protocolVersion": 1, "values": {"a": "<<secret of the route program>>"}}))',
    ),
    "open-file": (0o644, "<<secret in a file that others can read>>"),
    "no-json": (0o600, '{"a": "<<secret in a file that is no JSON>>"'),
    "no-text": (0o600, '{"a": ["<<secret in a list>>"]}'),
    "fails.py": (0o700, 'print("<<secret of a program that fails>>", file=sys.stderr); sys.exit(3)'),
    "no-protocol.py": (0o700, 'print("<<secret of a program without the protocol>>")'),
    "netrc": (0o600, "machine 127.0.0.1 login user password <<password in .netrc>>\n"),
}


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
REQUESTS = (
    Sent("query", "GET", "/api/v1/tasks?api_key=<<>>"),
    Sent("repeated query", "GET", "/api/v1/tasks?limit=1&limit=<<>>"),
    Sent("query of a page", "GET", "/?token=<<>>"),
    Sent("query of a write", "POST", "/api/v1/projects?token=<<>>", {}, '{"name": "P"}'),
    Sent("number", "GET", "/api/v1/tasks?limit=<<>>"),
    Sent("choice", "GET", "/api/v1/tasks?status=<<>>"),
    Sent("id", "GET", "/api/v1/tasks?project_id=<<>>"),
    Sent("path", "DELETE", "/api/v1/keys/tms_<<>>"),
    Sent("wrong key", "GET", "/api/v1/me", {"Authorization": "Bearer <<>>"}),
    Sent("wrong key where none is needed", "GET", "/api/v1/health", {"Authorization": "Bearer <<>>"}),
    Sent("key without a scheme", "GET", "/api/v1/me", {"Authorization": "<<>>"}),
    Sent("wrong scheme", "GET", "/api/v1/me", {"Authorization": "Token <<>>"}),
    Sent("Basic", "GET", "/api/v1/me", {"Authorization": "BASIC <<user name of Basic>>:<<>>"}),
    Sent("X-Api-Key", "GET", "/api/v1/me", {"Authorization": "", "X-Api-Key": "<<>>"}),
    Sent("Cookie", "GET", "/api/v1/me", {"Cookie": "session=<<>>"}),
    Sent("Referer", "GET", "/api/v1/me", {"Referer": "https://a.example/enroll/<<>>"}),
    Sent("Referer with a query", "GET", "/", {"Referer": "https://a.example/?key=<<>>"}),
    Sent("User-Agent", "GET", "/api/v1/health", {"Proxy-Authorization": "Basic <<>>"}),
    Sent("Origin", "POST", "/mcp", {"Origin": "https://u:<<>>@a.example"}, "{}"),
    Sent("X-Forwarded-For", "GET", "/api/v1/me", {"X-Forwarded-For": "<<>>"}),
    Sent("If-Match", "DELETE", "/api/v1/tasks/TASK", {"If-Match": '"<<>>"'}),
    Sent("Idempotency-Key", "POST", "/api/v1/keys", {"Idempotency-Key": "<<>>"}, "{}"),
    Sent("Content-Type", "POST", "/api/v1/projects", {"Content-Type": "text/<<>>"}, "x"),
    Sent("wrong token", "GET", "/api/v1/enroll/<<>>", NONE),
    Sent("wrong token on the page", "GET", "/enroll/<<>>", NONE),
    Sent("wrong token that joins", "POST", "/enroll/<<>>", NONE),
    Sent("broken JSON", "POST", "/api/v1/projects", {}, '{"api_key": "<<>>" "name"'),
    Sent("JSON of another kind", "POST", "/api/v1/projects", {}, '["<<>>"]'),
    Sent("unknown field", "POST", "/api/v1/projects", {}, '{"password": "<<>>"}'),
    Sent("wrong type", "POST", "/api/v1/projects", {}, '{"name": {"a": "<<>>"}}'),
    Sent("wrong choice", "PATCH", "/api/v1/tasks/TASK", {}, '{"status": "<<>>"}'),
    Sent("wrong date", "PATCH", "/api/v1/tasks/TASK/details", {}, '{"due_date": "<<>>"}'),
    Sent("wrong reference", "PATCH", "/api/v1/tasks/TASK", {}, '{"assignee_id": "<<>>"}'),
    Sent("wrong address", "POST", "/api/v1/members/invite", {}, '{"email": "<<>>"}'),
    Sent("long text", "POST", "/api/v1/projects", {}, '{"name": "<<>>%s"}' % ("x" * 600)),
    Sent("surrogate", "POST", "/api/v1/projects", {}, '{"name": "<<>>\\ud800"}'),
    Sent(
        "form",
        "POST",
        "/api/v1/projects",
        {"Content-Type": "application/x-www-form-urlencoded"},
        "password=<<>>",
    ),
    Sent(
        "multipart",
        "POST",
        "/api/v1/tasks/TASK/attachments",
        {"Content-Type": "multipart/form-data; boundary=b"},
        '--b\r\nContent-Disposition: form-data; name="key"\r\n\r\n<<>>\r\n--b--\r\n',
    ),
    Sent("tool", "POST", "/mcp", {}, TOOL % ("get_task", '"task_id": "<<>>"')),
    Sent("tool's argument", "POST", "/mcp", {}, TOOL % ("get_task", '"api_key": "<<>>"')),
    Sent("tool's choice", "POST", "/mcp", {}, TOOL % ("find_tasks", '"status": "<<>>"')),
    Sent("broken message", "POST", "/mcp", {}, '{"jsonrpc": "2.0", "key": "<<>>"'),
    Sent("wrong key of an agent", "POST", "/mcp", {"Authorization": "Bearer <<>>"}, "{}"),
    Sent("wrong secret", "POST", AGENT, {"Authorization": "Bearer <<>>"}, "{}"),
    Sent(
        "wrong secret in the header",
        "POST",
        AGENT,
        {"Authorization": "", "x-agent-webhook-secret": "<<>>"},
        "{}",
    ),
    Sent("secret in a query", "POST", f"{AGENT}?secret=<<>>", {"Authorization": ""}, "{}"),
    Sent("wrong action", "POST", AGENT, RIGHT, '{"action": "<<>>"}'),
    Sent("wrong type of an action", "POST", AGENT, RIGHT, '{"action": "get_flow", "flowId": ["<<>>"]}'),
    Sent("broken action", "POST", AGENT, RIGHT, '{"action": "get_flow", "secret": "<<>>"'),
    Sent("nothing", "GET", "/nothing?key=<<>>"),
)

# Heads that gunicorn refuses itself, or that are followed by what is no request.
HEADS = {
    "a header without a colon": "GET /api/v1/me HTTP/1.1\r\nAuthorization Bearer <<>>\r\n\r\n",
    "the name of a header": "GET /api/v1/me HTTP/1.1\r\nAuthorization Bearer <<>>: x\r\n\r\n",
    "a folded header": "GET /api/v1/me HTTP/1.1\r\nAuthorization: Bearer\r\n <<>>\r\n\r\n",
    "a header with a NUL": "GET /api/v1/me HTTP/1.1\r\nAuthorization: Bearer <<>>\0\r\n\r\n",
    "Transfer-Encoding": "GET /api/v1/me HTTP/1.1\r\nTransfer-Encoding: <<>>\r\n\r\n",
    "Expect": "GET /api/v1/me HTTP/1.1\r\nExpect: <<>>\r\n\r\n",
    "a second Host": "GET /api/v1/me HTTP/1.1\r\nHost: <<>>\r\nHost: a\r\n\r\n",
    "a query with a raw byte": "GET /api/v1/me?key=<<>>\xff HTTP/1.1\r\n\r\n",
    "a query before a wrong version": "GET /api/v1/me?key=<<>> HTTP/9.9\r\n\r\n",
    "a query with a blank": "GET /api/v1/me?key=a <<>> HTTP/1.1\r\n\r\n",
    "a token with a raw byte": "GET /enroll/<<>>\xff HTTP/1.1\r\n\r\n",
    "a password in a target": "GET http://u:<<>>@a.example/api/v1/me HTTP/1.1\r\nHost: a\r\n\r\n",
    "a password in a target with a raw byte": "GET http://u:<<>>@a/\xff HTTP/1.1\r\n\r\n",
    "no request": "<<>>\r\n\r\n",
    "the rest of a body": 'POST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"secret": "<<>>"}\r\n\r\n',
    "no size of a chunk": "POST /api/v1/projects HTTP/1.1\r\nAuthorization: Bearer KEY\r\n"
    "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n<<>>\r\n{}\r\n0\r\n\r\n",
}

# Mistakes in the configuration; each ends the start with one line.
ROUTE = "[plugins.entries.webhooks.config.routes.a]\nsessionKey = 'a'\n"
HOOK = "[[webhooks]]\nurl = 'https://a.example/'\n"
MISTAKES = {
    "no TOML": "[bootstrap]\napi_key = '<<>>",
    "no TOML after it": "[bootstrap]\napi_key = '<<>>' x",
    "a setting in place of its section": "bootstrap = '<<>>'",
    "an unknown setting": "[bootstrap]\napi_kee = '<<>>'",
    "an unknown section": "[secret]\nvalue = '<<>>'",
    "a short key": "[bootstrap]\napi_key = '<<>> '",
    "a list in place of a secret": f"{HOOK}secret = ['<<>>']",
    "a secret with more keys": f"{HOOK}secret = {{ source = 'env', value = '<<>>' }}",
    "a wrong id of a secret": f"{HOOK}secret = {{ source = 'env', provider = 'default', id = '<<>>' }}",
    "a wrong whsec_": f"{HOOK}secret = 'whsec_%<<>>'",
    "no secret": "[[webhooks]]\nurl = 'https://a.example/<<>>'",
    "a blank in a URL": "[[webhooks]]\nsecret = 's'\nurl = 'https://a.example/<<>> x'",
    "a URL without a scheme": "[[webhooks]]\nsecret = 's'\nurl = 'a.example/<<>>'",
    "a password in a URL": "[[webhooks]]\nsecret = 's'\nurl = 'https://u:<<>>@a.example/'",
    "a password without a scheme": "[[webhooks]]\nsecret = 's'\nurl = 'u:<<>>@a'",
    "a password of a base URL": "[server]\nbase_url = 'https://u:<<>>@a.example'",
    "a query of a base URL": "[server]\nbase_url = 'https://a.example/?key=<<>>'",
    "the same webhook twice": "[[webhooks]]\nsecret = 's'\nurl = 'https://a.example/<<>>'\n" * 2,
    "a text in place of webhooks": "webhooks = 'https://a.example/<<>>'",
    "a text in place of a webhook": "webhooks = ['https://a.example/<<>>']",
    "a text in place of a route": "[plugins.entries.webhooks.config]\nroutes.a = '<<>>'",
    "an unknown key of a route": f"{ROUTE}secret = 's'\ntoken = '<<>>'",
    "a secret as the path of a route": f"{ROUTE}secret = ['<<>>']",
    "a text in place of a provider": "[secrets.providers]\na = '<<>>'",
    "a variable in place of an environment": "[secrets.providers.a]\nsource = 'exec'\ncommand = '/bin/true'\n"
    "env = '<<>>'",
    "a list in an environment": "[secrets.providers.a]\nsource = 'exec'\ncommand = '/bin/true'\n"
    "env = { TOKEN = ['<<>>'] }",
}
