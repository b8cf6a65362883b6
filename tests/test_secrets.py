"""Secrets from the environment, files and programs; a route whose secret cannot be had is skipped."""

import json
import os
import signal
import sqlite3
import sys
from contextlib import closing

import pytest
import requests
from harness import OWNER_KEY, PATIENCE, Server, wait_until

from settings import Unresolved, exposed_secrets, resolve

HANG = "import time; time.sleep(60)"


@pytest.fixture
def program(tmp_path):
    """Write a program that only we can change, and return its path."""

    def write(body, mode=0o700):
        path = tmp_path / f"program-{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n")
        path.chmod(mode)
        return str(path)

    return write


@pytest.fixture
def file(tmp_path):
    def write(content, mode=0o600):
        path = tmp_path / f"file-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    return write


def ask(source, id, provider=None, alias="vault"):
    reference = {"source": source, "provider": alias, "id": id}
    (secret,) = resolve([reference], {alias: {"source": source, **provider}} if provider is not None else {})
    return secret


def fails(secret, *words):
    assert isinstance(secret, Unresolved)
    assert all(word in str(secret) for word in words), str(secret)


def test_a_string_is_itself():
    assert resolve([{"value": "s3cret"}], {}) == ["s3cret"]


def test_the_environment_needs_no_provider(monkeypatch):
    monkeypatch.setenv("A_SECRET", "s3cret")
    assert ask("env", "A_SECRET", alias="default") == "s3cret"
    fails(ask("env", "NOT_SET", alias="default"), "env:default:NOT_SET", "not set")
    monkeypatch.setenv("EMPTY", "")
    fails(ask("env", "EMPTY", alias="default"), "not set")


def test_an_allowlist_allows_what_it_lists(monkeypatch):
    monkeypatch.setenv("A_SECRET", "s3cret")
    assert ask("env", "A_SECRET", {"allowlist": ["A_SECRET"]}) == "s3cret"
    fails(ask("env", "A_SECRET", {"allowlist": []}), "allowlist")


def test_a_provider_must_exist_and_be_of_the_source():
    fails(ask("file", "value"), "no provider vault of source file")
    (secret,) = resolve(
        [{"source": "file", "provider": "vault", "id": "value"}], {"vault": {"source": "env"}}
    )
    fails(secret, "no provider vault of source file")


def test_a_file_holds_one_secret_or_a_json_document_of_them(file):
    single = {"path": str(file("s3cret\n\n")), "mode": "singleValue"}
    assert ask("file", "value", single) == "s3cret\n"
    document = {"path": str(file(json.dumps({"a/b": {"~c": ["x", "s3cret"]}})))}
    assert ask("file", "/a~1b/~0c/1", document) == "s3cret"
    fails(ask("file", "/a~1b/~0c/2", document), "no value at this JSON pointer")
    fails(ask("file", "/a~1b", document), "not valid text")
    assert ask("file", "value", {"path": str(file(b'\xef\xbb\xbf"s3cret"'))}) == "s3cret"
    fails(ask("file", "/a", {"path": str(file("not json"))}), "is not JSON")


def test_a_file_must_be_ours_alone_regular_and_not_too_large(file, tmp_path):
    def of(path):
        return ask("file", "value", {"path": str(path), "mode": "singleValue"})

    good = file("s3cret")
    link = tmp_path / "link"
    link.symlink_to(good)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    fails(of(file("s3cret", 0o640)), "chmod 600")
    fails(of(file("s3cret", 0o604)), "chmod 600")
    fails(of(link), "symbolic links")
    fails(of(pipe), "not a regular file")
    fails(of(tmp_path), "Is a directory")
    fails(of(tmp_path / "missing"), "No such file")
    fails(of("relative"), "not an absolute path")
    fails(of(file("x" * (1024 * 1024 + 1))), "larger than 1 MiB")
    fails(of(file("  \n")), "blank")
    fails(of(file(b"\xff")), "not UTF-8")
    fails(of("~nosuchuser/secret"), "cannot be read")
    deep = {"path": str(file("[" * 200_000))}
    fails(ask("file", "/a", deep), "cannot be read")
    fails(ask("file", "/a", {"path": str(file('{"a": "half \\ud800"}'))}), "not valid text")
    fails(ask("file", "/" + "9" * 5000, {"path": str(file("[1]"))}), "cannot be read")


def test_a_program_is_asked_in_the_protocol(program):
    answers = (
        "q = json.load(sys.stdin); assert q['protocolVersion'] == 1 and q['provider'] == 'vault'\n"
        "said = '+'.join(sys.argv[1:]) + ':' + ','.join(sorted(os.environ))\n"
        "values = {id: id + ':' + said for id in q['ids']}\n"
        "print(json.dumps({'protocolVersion': 1, 'values': values}))"
    )
    provider = {"command": program(answers), "args": ["$HOME; x"], "env": {"A": "1"}}
    ids = ["one", "two/three"]
    references = [{"source": "exec", "provider": "vault", "id": id} for id in ids]
    secrets = resolve(references, {"vault": {"source": "exec", **provider}})
    assert [secret.split(":")[:2] for secret in secrets] == [[id, "$HOME; x"] for id in ids]
    names = set(secrets[0].split(":")[2].split(","))
    assert names - {"LC_CTYPE"} == {"A"}  # Python itself may set the other


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit(3)", "code 3"),
        ('print(\'{"protocolVersion": 2, "values": {}}\')', "another version"),
        ("print('plain')", "protocol"),
        ("pass", "protocol"),
        ('print(\'{"protocolVersion": 1, "values": {}}\')', "no such secret"),
        ('print(\'{"protocolVersion": 1, "values": {"id": 5}}\')', "not valid text"),
        ("sys.stdout.write('x' * 2_000_000)", "more than 1 MiB"),
    ],
)
def test_a_program_that_misbehaves_gives_no_secret(program, body, words):
    provider = {"command": program(body)}
    fails(ask("exec", "id", provider), "exec:vault:id", words)


def test_a_program_whose_child_lives_on_is_waited_for_no_longer(program, tmp_path):
    noted = tmp_path / "child"
    lingering = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        f"open({str(noted)!r}, 'w').write(str(child.pid))\n"
        'print(\'{"protocolVersion": 1, "values": {"id": "s3cret"}}\', flush=True)'
    )
    fails(ask("exec", "id", {"command": program(lingering), "pass_env": ["PATH"]}), "took longer than 5 s")
    os.kill(int(noted.read_text()), signal.SIGKILL)  # it lives still


def test_a_program_that_takes_no_question_is_waited_for_no_longer(program, tmp_path):
    end = tmp_path / "end"
    deaf = program(f"import time; os.close(1); time.sleep(60); open({str(end)!r}, 'w')")
    references = [{"source": "exec", "provider": "vault", "id": f"{n}" + "x" * 240} for n in range(400)]
    (secret, *_) = resolve(references, {"vault": {"source": "exec", "command": deaf}})
    fails(secret, "took longer than 5 s")
    assert not end.exists()


def test_a_program_may_print_plain_text_where_that_is_allowed(program):
    provider = {
        "command": program("print('s3cret')"),
        "env": {"PATH": os.environ["PATH"]},
        "json_only": False,
    }
    assert ask("exec", "id", provider) == "s3cret"


def test_a_program_must_be_one_that_nobody_else_can_change(program, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(program("pass"))
    fails(ask("exec", "id", {"command": program("pass", 0o722)}), "writable by nobody else")
    fails(ask("exec", "id", {"command": str(link)}), "not a regular file")
    fails(ask("exec", "id", {"command": "env"}), "not an absolute path")
    fails(ask("exec", "id", {"command": "/nowhere"}), "No such file")


# On a server

ROUTE = """
[plugins.entries.webhooks.config.routes.{name}]
sessionKey = "agent:main"
secret = {secret}
"""
PROVIDER = '[secrets.providers.{alias}]\nsource = "{source}"\n{rest}\n'


def configured(folder, text, **settings):
    (folder / "config.toml").write_text(text)
    return Server(folder, TASKS_CONFIG=str(folder / "config.toml"), **settings)


def status(server, name, secret):
    headers = {"Authorization": f"Bearer {secret}"}
    url = f"{server.base}/plugins/webhooks/{name}"
    return requests.post(url, json={"action": "list_flows"}, headers=headers, timeout=PATIENCE).status_code


def reference(source, provider, id):
    return f'{{ source = "{source}", provider = "{provider}", id = "{id}" }}'


def test_a_route_without_its_secret_is_skipped_and_the_rest_served(tmp_path, program):
    hangs = program(HANG)
    text = (
        ROUTE.format(name="good", secret='"s3cret"')
        + ROUTE.format(name="unset", secret='"$NOT_SET"')
        + ROUTE.format(name="hangs", secret=reference("exec", "slow", "one"))
        + ROUTE.format(name="hangs2", secret=reference("exec", "slower", "two"))
        + PROVIDER.format(alias="slow", source="exec", rest=f'command = "{hangs}"')
        + PROVIDER.format(alias="slower", source="exec", rest=f'command = "{hangs}"')
    )
    server = configured(tmp_path, text).start()
    assert status(server, "good", "s3cret") == 200
    for name in ("unset", "hangs", "hangs2"):
        assert status(server, name, "s3cret") == 404
    log = server.log.read_text()
    assert "gateway route unset is not served: its secret: env:default:NOT_SET: " in log
    assert "gateway route hangs is not served: its secret: exec:slow:one: the program took longer" in log
    told = server.flask("doctor")
    assert told.returncode == 1
    assert "route good: /plugins/webhooks/good for agent:main: served" in told.stdout
    assert "problem: route hangs is skipped" in told.stdout
    assert "note: route unset: its secret: env:default:NOT_SET: " in told.stdout
    assert "s3cret" not in log + told.stdout + told.stderr
    server.stop()


def test_a_reload_shows_a_new_secret_of_a_file(tmp_path, file):
    path = file("old-secret")
    rest = f'path = "{path}"\nmode = "singleValue"'
    text = ROUTE.format(name="good", secret=reference("file", "vault", "value"))
    server = configured(tmp_path, text + PROVIDER.format(alias="vault", source="file", rest=rest)).start()
    assert status(server, "good", "old-secret") == 200
    before = server.children()
    path.write_text("new-secret")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.children() and not set(before) & set(server.children()))
    assert status(server, "good", "new-secret") == 200
    assert status(server, "good", "old-secret") == 401
    assert "new-secret" not in server.log.read_text()
    server.stop()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ROUTE.format(name="x", secret='""'), "routes.x.secret must be a string that is not blank"),
        (ROUTE.format(name="x", secret='"s"') + 'extra = "1"', "routes.x.extra is not accepted"),
        ('[bootstrap]\napikey = "s3cret"', "bootstrap.apikey is not accepted"),
        (PROVIDER.format(alias="x", source="exec", rest='env = {TOKEN = "s3cret"}\nargs = 0'), "providers.x"),
        (ROUTE.format(name="x", secret='"s"') + 'path = "/api/v1/x"', "routes.x.path must not"),
        (ROUTE.format(name="x", secret='"s"') + 'path = "/enroll"', "routes.x.path must not"),
        (ROUTE.format(name="x", secret='"s"') + 'path = "/static/x"', "routes.x.path must not"),
        (ROUTE.format(name="x", secret='"s"') + 'path = "mcp/"', "routes.x.path must not"),
        (
            ROUTE.format(name="x", secret='"s"')
            + 'path = "/a/"'
            + ROUTE.format(name="y", secret='"s"')
            + 'path = "a"',
            "routes.y.path is already the path of route x",
        ),
        ('[plugins.entries.webhooks.config.routes.x]\nsecret = "s3cret"', "routes.x.sessionKey is required"),
        ('[plugins.entries.webhooks.config.routes.x]\nsessionKey = "a"', "routes.x.secret is required"),
        (
            ROUTE.format(name="x", secret=reference("vault", "a", "b")),
            "source must be one of env, file, exec",
        ),
        (ROUTE.format(name="x", secret=reference("file", "a", "b")), "id is not valid for source file"),
        (ROUTE.format(name="x", secret=reference("exec", "a", "../b")), "id is not valid for source exec"),
        (PROVIDER.format(alias="x", source="file", rest=""), "secrets.providers.x.path is required"),
        (PROVIDER.format(alias="x", source="env", rest='path = "/x"'), "is not accepted for source env"),
        ('[bootstrap]\napi_key = "$NOT_SET"', "bootstrap.api_key: env:default:NOT_SET: "),
        *(
            (f'[bootstrap]\napi_key = "{key}"', "bootstrap.api_key: must be 32 to 255 visible ASCII")
            for key in ("s3cret", "s3cret" + "x" * 25, "s3cret" + "x" * 30 + " ", "s3cret é" + "x" * 30)
        ),
    ],
)
def test_a_mistake_ends_the_start_with_one_line_that_names_it(tmp_path, text, words):
    server = configured(tmp_path, text)
    if "api_key" in text:
        del server.environment["TASKS_BOOTSTRAP__API_KEY"]
    server.start()
    assert server.process.wait(PATIENCE) == 1
    last = server.log.read_text().splitlines()[-1]
    assert last.startswith("Error: ")
    assert words in last
    assert "s3cret" not in last
    assert not server.database.exists()
    server.process = None


HOOK = '[[webhooks]]\nurl = "http://127.0.0.1:1/"\nname = "r"\n'
IN_CLEAR = {
    "a route's": ROUTE.format(name="x", secret='"s3cret"'),
    "a webhook's": HOOK + 'secret = "s3cret"',
    "a webhook's previous one": HOOK + 'secret = "$A_SECRET"\nprevious_secret = "s3cret"',
    "the first owner's key": f'[bootstrap]\napi_key = "{OWNER_KEY}"',
    "a program's": PROVIDER.format(alias="x", source="exec", rest='command = "/x"\nenv = {TOKEN = "s3cret"}'),
}


@pytest.mark.parametrize("text", IN_CLEAR.values(), ids=IN_CLEAR)
def test_a_secret_in_clear_is_found_in_a_file_that_others_can_open(file, text):
    path = file(text, 0o644)
    assert exposed_secrets({"CONFIG_FILE": path}) == [
        f"{path} holds secrets in clear text, and users outside the server's group can open it; chmod 640 it"
    ]
    for mode in (0o640, 0o600):
        path.chmod(mode)
        assert exposed_secrets({"CONFIG_FILE": path}) == []


def test_the_log_and_doctor_warn_of_secrets_in_clear_that_others_can_read(tmp_path):
    server = configured(tmp_path, IN_CLEAR["a route's"])
    path = tmp_path / "config.toml"
    path.chmod(0o604)
    server.start().stop()
    (line,) = [line for line in server.log.read_text().splitlines() if "in clear" in line]
    assert f"[WARNING] {path} holds secrets in clear text, and users outside" in line
    told = server.flask("doctor")
    assert told.returncode == 1
    assert f"problem: {path} holds secrets in clear" in told.stdout


def test_a_file_that_only_refers_to_secrets_may_be_read_by_others(tmp_path, file):
    rest = f'path = "{file("s3cret")}"\nmode = "singleValue"'
    text = (
        ROUTE.format(name="x", secret=reference("file", "env", "value"))
        + PROVIDER.format(alias="env", source="file", rest=rest)
        + HOOK
        + 'secret = "${A_SECRET}"'
    )
    server = configured(tmp_path, text, A_SECRET="of the environment")
    (tmp_path / "config.toml").chmod(0o644)
    server.start().stop()
    assert "in clear" not in server.log.read_text()
    assert server.flask("doctor").returncode == 0


def test_a_worker_that_is_killed_is_replaced_though_a_secret_is_gone(tmp_path, file, new_receiver):
    path = file("the-secret")
    receiver = new_receiver().up()
    rest = f'path = "{path}"\nmode = "singleValue"'
    text = ROUTE.format(name="good", secret=reference("file", "vault", "value"))
    text += PROVIDER.format(alias="vault", source="file", rest=rest)
    text += f'[[webhooks]]\nurl = "{receiver.url}"\nname = "r"\nevents = ["task.created"]\n'
    text += f"secret = {reference('file', 'vault', 'value')}\n"
    server = configured(tmp_path, text).start()
    path.unlink()
    (worker,) = server.children()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: server.children() not in ([], [worker]))
    assert status(server, "good", "the-secret") == 200
    owner = server.client()
    owner.make_task(owner.make_project())
    assert receiver.next().event["event"] == "task.created"
    server.stop()


def test_a_reload_while_the_database_is_locked_is_no_end(tmp_path, file):
    server = configured(tmp_path, ROUTE.format(name="good", secret='"s3cret"')).start()
    before = server.children()
    with closing(sqlite3.connect(server.database)) as other:
        other.execute("BEGIN IMMEDIATE")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the webhooks are as they were" in server.log.read_text())
    wait_until(lambda: server.children() and not set(before) & set(server.children()))
    assert status(server, "good", "s3cret") == 200
    server.stop()


def test_a_reload_with_another_database_makes_and_holds_it(tmp_path):
    server = configured(tmp_path, '[server]\ndatabase = "one.db"\n')
    del server.environment["TASKS_SERVER__DATABASE"]
    before = server.start().children()
    (tmp_path / "config.toml").write_text('[server]\ndatabase = "two.db"\n')
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.children() and not set(before) & set(server.children()))
    server.client().make_project()
    two = tmp_path / "two.db"
    assert two.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(two)) as database:
        assert database.execute("SELECT count(*) FROM project").fetchone() == (1,)
    restored = server.flask("restore", str(two))
    assert "a server or a command uses it" in restored.stderr
    server.stop()
