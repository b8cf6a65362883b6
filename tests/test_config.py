"""The configuration: its example, where it is read from, and that a mistake ends the start with one line."""

import re
import runpy
import tomllib

import pytest
from harness import OWNER_KEY, ROOT, Server, invoke
from marshmallow import fields
from test_database import refused
from test_members import invite

from app import create_app
from outbox import EVENTS
from server import exit_on_error
from settings import Configuration, load_settings
from startup import read_secrets

EXAMPLE = (ROOT / "config.example.toml").read_text()


def declared(schema, path=""):
    """Every setting of the schema; a table's own names are stars."""
    for name, field in schema.fields.items():
        inner, at = field, f"{path}.{field.data_key or name}".strip(".")
        if isinstance(field, fields.Dict) and isinstance(field.value_field, fields.Nested):
            inner, at = field.value_field, f"{at}.*"
        elif isinstance(field, fields.List) and isinstance(field.inner, fields.Nested):
            inner = field.inner
        if isinstance(inner, fields.Nested):
            yield from declared(inner.schema, at)
        else:
            yield at


def written(value, path=""):
    """Every setting of a document, in the same form."""
    for name, inner in value.items():
        at = f"{path}.{name}".strip(".")
        if at in ("plugins.entries.webhooks.config.routes", "secrets.providers"):
            for table in inner.values():
                yield from written(table, f"{at}.*")
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield from written(inner[0], at)
        elif isinstance(inner, dict) and name not in ("secret", "env"):
            yield from written(inner, at)
        else:
            yield at


def test_the_example_names_every_setting_shows_the_defaults_and_works_with_its_comments_taken_away():
    uncommented = tomllib.loads(re.sub(r"^# (\[|\w+ = )", r"\1", EXAMPLE, flags=re.M))
    assert set(written(uncommented)) == set(declared(Configuration()))
    settings = load_settings(uncommented)
    routes = settings["plugins"]["entries"]["webhooks"]["config"]["routes"]
    assert routes["zapier"]["session_key"] == "agent:main"
    assert settings["webhooks"][0]["events"] == [*EVENTS]
    given, defaults = tomllib.loads(EXAMPLE), load_settings({})
    assert load_settings(given) == defaults
    without_default = {"bootstrap.api_key", "delivery.ca_file", "delivery.proxy", "server.sign_out_url"}
    without_default |= {"server.sign_in_header", "server.sign_in_networks"}
    without_default |= {"mail.url", "mail.user", "mail.password", "mail.from"}
    settings = {path for path in declared(Configuration()) if not re.search(r"^webhooks|\*", path)}
    assert {*written(given)} - {"webhooks"} == settings - without_default


@pytest.fixture
def place(tmp_path):
    """Make a server that reads this configuration, with no settings in its environment."""
    server = Server(tmp_path, TASKS_CONFIG=str(tmp_path / "config.toml"))
    server.database = tmp_path / "tasks.db"
    del server.environment["TASKS_SERVER__DATABASE"], server.environment["TASKS_BOOTSTRAP__API_KEY"]

    def make(text, **environment):
        (tmp_path / "config.toml").write_text(text)
        server.environment |= environment
        return server

    yield make
    server.stop()


def test_the_example_can_be_copied_paths_are_relative_to_it_and_the_environment_wins(place, tmp_path):
    server = place(EXAMPLE)
    assert "tasks.db is ready" in invoke(server, "init").stdout
    assert server.start().stop() == 0
    text = '[server]\ndatabase = "deep/er/my.db"\nbase_url = "https://a.example"\n[workspace]\nname = "A"'
    settings = {"TASKS_DELIVERY__RETRY_SCHEDULE": "[0.5, 1]", "TASKS_DELIVERY__SWEEPER": "false", "PORT": ""}
    settings |= {"TASKS_BOOTSTRAP__API_KEY": "$MY_KEY", "MY_KEY": OWNER_KEY, "TASKS_WORKSPACE__NAME": "B"}
    settings["TASKS_WEBHOOKS"] = '[{"url": "http://127.0.0.1:1/", "secret": "s"}]'
    client = place(text, **settings).start().client()
    assert (tmp_path / "deep" / "er" / "my.db").exists()
    assert client.read("/context")["system"]["workspace_name"] == "B"
    assert [webhook["name"] for webhook in client.read("/webhooks")["webhooks"]] == ["http://127.0.0.1:1/"]
    assert invite(client, "a@example.com")["enrollment_link"].startswith("https://a.example/enroll/")


DEEP = {"TASKS_DELIVERY__RETRY_SCHEDULE": "[" * 2000 + "]" * 2000}
OF_BOTH = {"TASKS_SERVER__BASE_URL": "http://b/", "TASKS_WEBHOOKS": "[]"}
RECEIVER = "[[webhooks]]\nurl = 'http://a/'\nsecret = 'S3CRET'\n"
ROUTE = "[plugins.entries.webhooks.config.routes.x]\nsessionKey = 'agent:main'\nsecret = 'S3CRET'\n"
UNSET = "[[webhooks]]\nurl = 'https://a/S3CRET?x=S3CRET'\nsecret = '$NOT_SET'"
OTHER_ROUTE = ROUTE.replace(".x]", ".y]")
REFERENCE = ROUTE.replace("'S3CRET'", "{ source = 'SOURCE', provider = 'a', id = '../b' }")
PROVIDER = "[secrets.providers.x]\nsource = "
NETWORKS = {"not all addresses": ("0.0.0.0/0", "::/0", "127.0.0.1/0")}
NETWORKS["_networks.1 must be a network"] = ("localhost", "*", "", "10.0.0.0/33")
SENDER = "[mail]\nurl = 'smtp://x'\nfrom = 'a@example.com'\n"


def test_a_mistake_is_named_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    for text, environment, words in (
        ("[server", {}, ["config.toml", "Expected ']'"]),
        ("nonsense = 1", {}, ["nonsense", "is not accepted", "server"]),
        ("[server]\nbase_url = 'tasks.example'", {}, ["server.base_url", "http or https"]),
        ("[server]\nbase_url = 'http://u:p@x/'", {}, ["server.base_url", "without user name"]),
        ("[server]\nbase_url = 'http://x/?S3CRET'", {}, ["server.base_url must have neither a query (?)"]),
        ("[server]\nmax_body_bytes = 5", {}, ["server.max_body_bytes must", "1024"]),
        ("[server]\ntrusted_proxies = -1", {}, ["server.trusted_proxies must", "from 0 to 10"]),
        ("[server]\nsign_in_header = 'Remote-Email'", {}, ["server.sign_in_networks must be"]),
        ("[server]\nsign_in_header = 'Remote_Email'", {}, ["server.sign_in_header must be", "without _"]),
        *(
            (f"[server]\nsign_in_networks = ['::1', '{network}']", {}, ["sign_in_networks", said])
            for said, networks in NETWORKS.items()
            for network in networks
        ),
        ("[server]\nsign_in_networks = '::1'", {}, ["server.sign_in_networks"]),
        ("", {"TASKS_SERVER__SIGN_IN_NETWORKS": "127.0.0.1/32"}, ["SIGN_IN_NETWORKS: must be a JSON array"]),
        ("[server]\nsign_out_url = 'javascript:alert(1)'", {}, ["server.sign_out_url must be an http"]),
        ("[delivery]\nretry_schedule = []", {}, ["delivery.retry_schedule", "from 1 to 100"]),
        ("[delivery]\nretry_schedule = [0]", {}, ["delivery.retry_schedule.0 must", "0.01"]),
        ("[delivery]\nsweeper = 'S3CRET'", {}, ["delivery.sweeper must be true or false"]),
        ("[workspace]\ninvitation_days = 0", {}, ["workspace.invitation_days must", "0.001"]),
        ("[bootstrap]\nowner_email = 'S3CRET'", {}, ["bootstrap.owner_email must be an e-mail"]),
        ("bootstrap = 'S3CRET'", {}, ["bootstrap must be an object"]),
        ("[plugins.entries.webhooks.config]\nroutes.a = 'S3CRET'", {}, ["routes.a must be an object"]),
        ("[secrets.providers]\na = 'S3CRET'", {}, ["secrets.providers.a must be an object"]),
        ("[mail]\nurl = 'http://x'", {}, ["mail.url must be an smtp or smtps URL"]),
        ("[mail]\nurl = 'smtp://a:S3CRET@x'", {}, ["mail.url must be"]),
        ("[mail]\nurl = 'smtp://x'", {}, ["mail.from is required"]),
        ('[mail]\nurl = "smtp://x"\nfrom = "a@example.com\\nBcc: b@example.com"', {}, ["mail.from must"]),
        (f"{SENDER}user = 'u'", {}, ["mail.password is required"]),
        ("webhooks = ['https://a/S3CRET']", {}, ["webhooks.0 must be an object"]),
        ("[[webhooks]]\nurl = 'http://a/'", {}, ["webhooks.0.secret", "is required"]),
        ("[[webhooks]]\nsecret = 'S3CRET'", {}, ["webhooks.0.url", "is required"]),
        *(
            (RECEIVER.replace("http://a/", url), {}, ["webhooks.0.url must be an http"])
            for url in (
                *("file:///etc/passwd", "gopher://a/", "http:///x", "http://a b/", "x", "a.example/S3CRET"),
                *("http://u:S3CRET@x/", "u:S3CRET@a/", "https://a/S3CRET x"),
            )
        ),
        ('[[webhooks]]\nurl = "http://a/\\r\\nX: y"\nsecret = "S3CRET"', {}, ["webhooks.0.url"]),
        (RECEIVER + "events = ['S3CRET']", {}, ["webhooks.0.events.0 must be one of task.updated"]),
        (RECEIVER + "events = []", {}, ["webhooks.0.events"]),
        (RECEIVER + "format = 'irc'", {}, ["webhooks.0.format must be one of json, slack, discord"]),
        (RECEIVER + "format = 'slack'", {}, ["webhooks.0.name is required if the URL is a secret"]),
        (RECEIVER.replace("http://a/", "$HOOK_URL"), {}, ["webhooks.0.name is required"]),
        (RECEIVER * 2, {}, ["webhooks.1.name", "is the name of another webhook"]),
        (ROUTE.replace("S3CRET", ""), {}, ["routes.x.secret must be a string that is not blank"]),
        (ROUTE.replace("secret = 'S3CRET'", ""), {}, ["routes.x.secret is required"]),
        (ROUTE.replace("sessionKey = 'agent:main'", ""), {}, ["routes.x.sessionKey is required"]),
        (ROUTE + "extra = '1'", {}, ["routes.x.extra is not accepted"]),
        (REFERENCE.replace("SOURCE", "vault"), {}, ["source must be one of env, file, exec"]),
        (REFERENCE.replace("SOURCE", "file"), {}, ["id is not valid for source file"]),
        (REFERENCE.replace("SOURCE", "exec"), {}, ["id is not valid for source exec"]),
        *(
            (f"{ROUTE}path = '{path}'", {}, ["routes.x.path must not"])
            for path in ("/api/v1/x", "/enroll", "/static/x", "/metrics", "mcp/")
        ),
        (f"{ROUTE}path = '/a/'\n{OTHER_ROUTE}path = 'a'", {}, ["routes.y.path is already the path of"]),
        (PROVIDER + "'exec'\ncommand = '/x'\nenv = {A = 'S3CRET'}\nargs = 0", {}, ["providers.x"]),
        (PROVIDER + "'file'", {}, ["secrets.providers.x.path is required"]),
        (PROVIDER + "'env'\npath = '/x'", {}, ["is not accepted for source env"]),
        ("[bootstrap]\napikey = 'S3CRET'", {}, ["bootstrap.apikey is not accepted"]),
        ("[server]\nbase_ulr = 'x'", {}, ["server.base_ulr is not accepted; accepted: base_url, database,"]),
        ("[server]\nport = 9000", {}, ["server.port", "set PORT in the environment"]),
        ("", {"TASKS_WEBHOOKS": "["}, ["TASKS_WEBHOOKS", "JSON array"]),
        ("", {"TASKS_WEBHOOKS": '{"url": "x"}'}, ["webhooks", "list"]),
        ("", {"TASKS_SERVER__COLOUR": "blue"}, ["server.colour", "is not accepted"]),
        ("", {"TASKS_SERVER": "{}"}, ["TASKS_SERVER", "TASKS_SERVER__BASE_URL"]),
        ("", {"TASKS_SERVER_BASE_URL": "x"}, ["TASKS_SERVER_BASE_URL", "TASKS_SERVER__BASE_URL"]),
        ("", {"TASKS_SERVR__BASE_URL": "x"}, ["servr", "is not accepted"]),
        ("", {"TASKS_SERVICE": "x"}, ["TASKS_SERVICE: must name a setting"]),
        ("", {"TASKS_WEBHOOKS__URL": "x"}, ["TASKS_WEBHOOKS__URL", "one JSON array"]),
        ("server = 'x'", OF_BOTH, ["server must be an object"]),
        ("[[server]]\nbase_url = 'http://a/'", OF_BOTH, ["server must be an object"]),
        ("webhooks = 1", OF_BOTH, ["webhooks "]),
        ("[webhooks]", OF_BOTH, ["webhooks "]),
        ("a = " + "[" * 2000 + "]" * 2000, {}, ["config.toml: its values are nested too deeply"]),
        ("a = " + "{b = " * 2000 + "1" + "}" * 2000, {}, ["config.toml: its values are nested too deeply"]),
        ("", DEEP, ["TASKS_DELIVERY__RETRY_SCHEDULE: must be a JSON array"]),
        ("", {"TASKS_BOOTSTRAP__API_KEY": "S3CRET" + "x" * 25}, ["bootstrap.api_key: must be 32 to 255"]),
        (RECEIVER.replace("S3CRET", "whsec_%%S3CRET"), {}, ["base64 must follow whsec_"]),
        (UNSET, {}, ["webhooks: https://a/…: secret: env:default:NOT_SET", "is not set"]),
    ):
        path.write_text(text)
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as raised, exit_on_error():
            for name, value in {"TASKS_CONFIG": str(path), **environment}.items():
                patch.setenv(name, value)
            read_secrets(create_app().config)
        said = raised.value.code
        assert said.startswith("Error: ") and all(word in said for word in words), (words, said)
        assert "\n" not in said
        assert "S3CRET" not in said


@pytest.mark.parametrize(
    ("text", "environment", "words"),
    [
        ("", {"TASKS_BOOTSTRAP__API_KEY": "$NOT_SET"}, ["bootstrap.api_key: env:default:NOT_SET: "]),
        ("", {"TASKS_CONFIG": "/nowhere/config.toml"}, ["/nowhere/config.toml", "No such file"]),
        ("", {"TASKS_DELIVERY__CA_FILE": "/nowhere/ca.pem"}, ["delivery.ca_file", "/nowhere/ca.pem"]),
        ("", {"PYTHONOPTIMIZE": "2"}, ["-OO (PYTHONOPTIMIZE=2) removes the texts"]),
    ],
)
def test_a_mistake_ends_the_start_with_one_line(place, text, environment, words):
    server = place(text, **environment)
    greeting, line = refused(server)
    assert "Starting gunicorn" in greeting
    assert line.startswith("Error: ")
    assert all(word in line for word in words), line
    assert "S3CRET" not in line
    assert not server.database.exists()
    command = server.flask("init")
    assert (command.returncode, command.stderr) == (1, line + "\n")


@pytest.mark.parametrize(
    ("name", "text"), [("WEB_CONCURRENCY", "0"), ("PORT", "http"), ("PORT", "0"), ("PORT", "65536")]
)
def test_a_number_for_gunicorn_that_is_none_ends_the_start_with_one_line(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(SystemExit, match=rf"^Error: {name} = {text!r} must be a whole number from 1 to \d+$"):
        runpy.run_path(ROOT / "gunicorn.conf.py")


def test_a_mistake_is_one_line_for_the_help_too_and_what_kubernetes_injects_is_none(place):
    done = place("", TASKS_SERVER__COLOUR="blue").flask("--help")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("Error: server.colour")
    del place("").environment["TASKS_SERVER__COLOUR"]
    names = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8000_TCP"]
    names += ["PORT_8000_TCP_PROTO", "PORT_8000_TCP_PORT", "PORT_8000_TCP_ADDR"]
    injected = {f"TASKS_{name}": "tcp://10.0.0.7:8000" for name in names}
    assert invoke(place("", **injected), "init").exit_code == 0
