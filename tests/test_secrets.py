"""Secrets from the environment, files and programs; a route whose secret cannot be had is skipped."""

import json
import os
import re
import signal
import sqlite3
import sys
from contextlib import closing

import pytest
from harness import OWNER_KEY, hook, invoke, wait_until

import settings
from settings import Unresolved, exposed_secrets, load_settings, resolve, resolve_webhooks


@pytest.fixture
def file(tmp_path):
    """Write a file that only we can read, and return its path."""

    def write(content, mode=0o600):
        path = tmp_path / f"file-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    return write


@pytest.fixture
def program(file):
    """Write a program that only we can change, and return its path."""
    return lambda body, mode=0o700: str(file(f"#!{sys.executable}\nimport json, os, sys\n{body}\n", mode))


def ask(source, id, provider=None, alias="vault"):
    reference = {"source": source, "provider": alias, "id": id}
    (secret,) = resolve([reference], {alias: {"source": source, **provider}} if provider is not None else {})
    return secret


def fails(secret, *words):
    assert isinstance(secret, Unresolved)
    assert all(word in str(secret) for word in words), str(secret)


def test_a_string_is_itself_and_the_environment_needs_no_provider_but_may_have_an_allowlist(monkeypatch):
    assert resolve([{"value": "s3cret"}], {}) == ["s3cret"]
    monkeypatch.setenv("A_SECRET", "s3cret")
    monkeypatch.setenv("EMPTY", "")
    assert ask("env", "A_SECRET", alias="default") == "s3cret"
    for name in ("NOT_SET", "EMPTY"):
        fails(ask("env", name, alias="default"), f"env:default:{name}", "not set")
    assert ask("env", "A_SECRET", {"allowlist": ["A_SECRET"]}) == "s3cret"
    fails(ask("env", "A_SECRET", {"allowlist": []}), "allowlist")


def test_a_file_holds_one_secret_or_a_json_document_of_them(file):
    for providers in ({}, {"vault": {"source": "env"}}):  # no provider, or one of another source
        (secret,) = resolve([{"source": "file", "provider": "vault", "id": "value"}], providers)
        fails(secret, "no provider vault of source file")
    assert ask("file", "value", {"path": str(file("s3cret\n\n")), "mode": "singleValue"}) == "s3cret\n"
    document = {"path": str(file(json.dumps({"a/b": {"~c": ["x", "s3cret"]}})))}
    assert ask("file", "/a~1b/~0c/1", document) == "s3cret"
    assert ask("file", "value", {"path": str(file(b'\xef\xbb\xbf"s3cret"'))}) == "s3cret"


def test_a_file_must_be_ours_alone_regular_and_not_too_large(file, tmp_path):
    good, link, pipe = file("s3cret"), tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(good)
    os.mkfifo(pipe, 0o600)
    for path, words in (
        *((file("s3cret", mode), "chmod 600") for mode in (0o640, 0o604)),
        *((link, "symbolic links"), (pipe, "not a regular file"), (tmp_path, "Is a directory")),
        *((tmp_path / "missing", "No such file"), ("relative", "not an absolute path")),
        (file("x" * (1024 * 1024 + 1)), "has 1048577 bytes; at most 1048576 are allowed"),
        (file("  \n"), "blank"),
        (file(b"\xff"), "not UTF-8"),
        ("~nosuchuser/secret", "cannot be read"),
    ):
        fails(ask("file", "value", {"path": str(path), "mode": "singleValue"}), words)


def test_a_json_document_that_does_not_hold_the_secret_says_so(file):
    for id, text, words in (
        *(("/a", "not json", "is not JSON"), ("/a", "[" * 200_000, "cannot be read")),
        *(("/a", text, "not valid text") for text in ('{"a": "half \\ud800"}', '{"a": ["s3cret"]}')),
        ("/a/1", '{"a": ["s3cret"]}', "no value at this JSON pointer"),
        ("/" + "9" * 5000, "[1]", "cannot be read"),
    ):
        fails(ask("file", id, {"path": str(file(text))}), words)


def test_a_program_is_asked_in_the_protocol(program):
    answers = (
        "q = json.load(sys.stdin); assert q['protocolVersion'] == 1 and q['provider'] == 'vault'\n"
        "said = '+'.join(sys.argv[1:]) + ':' + ','.join(sorted(os.environ))\n"
        "values = {id: id + ':' + said for id in q['ids']}\n"
        "print(json.dumps({'protocolVersion': 1, 'values': values}))"
    )
    provider = {"source": "exec", "command": program(answers), "args": ["$HOME; x"], "env": {"A": "1"}}
    references = [{"source": "exec", "provider": "vault", "id": id} for id in ("one", "two/three")]
    secrets = resolve(references, {"vault": provider})
    said = [secret.replace("A,LC_CTYPE", "A") for secret in secrets]  # Python itself may set the other
    assert said == ["one:$HOME; x:A", "two/three:$HOME; x:A"]
    assert ask("exec", "id", {"command": program("print('s3cret')"), "json_only": False}) == "s3cret"


def test_programs_are_asked_at_the_same_time(program, tmp_path):
    os.mkfifo(path := str(tmp_path / "pipe"))  # whose opening waits for the other program
    plain, body = {"source": "exec", "json_only": False}, "open({!r}, {!r}); print('s3cret')"
    providers = {mode: plain | {"command": program(body.format(path, mode))} for mode in "rw"}
    references = [{"source": "exec", "provider": mode, "id": "id"} for mode in "rw"]
    assert resolve(references, providers) == ["s3cret", "s3cret"]


def test_a_program_that_misbehaves_gives_no_secret(program):
    for body, words in (
        *(("sys.exit(3)", "code 3"), ("print('plain')", "protocol"), ("pass", "protocol")),
        ('print(\'{"protocolVersion": 2, "values": {}}\')', "another version"),
        ('print(\'{"protocolVersion": 1, "values": {}}\')', "does not return this secret"),
        ('print(\'{"protocolVersion": 1, "values": {"id": 5}}\')', "not valid text"),
        ("sys.stdout.write('x' * 2_000_000)", "more than 1 MiB"),
        ("os.write(1, b'x' * 2_000_000); os.kill(os.getpid(), 19)", "more than 1 MiB"),  # and does not end
    ):
        fails(ask("exec", "id", {"command": program(body)}), "exec:vault:id", words)


def test_a_program_must_be_one_that_nobody_else_can_change(program, tmp_path):
    (link := tmp_path / "link").symlink_to(program("pass"))
    for command, words in (
        *((program("pass", 0o722), "writable by nobody else"), (str(link), "not a regular file")),
        *(("env", "not an absolute path"), ("/nowhere", "No such file")),
    ):
        fails(ask("exec", "id", {"command": command}), words)


def test_a_program_that_lives_on_or_reads_nothing_is_not_waited_for(file, program, tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "EXEC_SECONDS", 2.0)  # in which a shell begins on a busy machine, too
    noted, end = tmp_path / "child", tmp_path / "end"
    answer = '{"protocolVersion": 1, "values": {"id": "s3cret"}}'
    lingering = file(f"#!/bin/sh\nsetsid sleep 300 &\necho $! > '{noted}'\necho '{answer}'\n", 0o700)
    deaf = f"import time; os.close(1); time.sleep(60); open({str(end)!r}, 'w')"
    providers = {
        "lingering": {"source": "exec", "command": str(lingering), "pass_env": ["PATH"]},
        "deaf": {"source": "exec", "command": program(deaf)},
    }
    references = [{"source": "exec", "provider": "deaf", "id": f"{n}" + "x" * 240} for n in range(400)]
    references.append({"source": "exec", "provider": "lingering", "id": "id"})
    (unheard, *_, unfinished) = resolve(references, providers)
    fails(unheard, "took longer than 2 s")
    fails(unfinished, "took longer than 2 s")
    os.kill(int(noted.read_text()), signal.SIGKILL)  # it lives still
    assert not end.exists()


def route(name, secret='"s3cret"', more=""):  # noqa: S107 - it is of the tests
    """The configuration of a route of the gateway."""
    head = f"[plugins.entries.webhooks.config.routes.{name}]"
    return f'\n{head}\nsessionKey = "agent:main"\nsecret = {secret}\n{more}'


def provider(alias, source, rest):
    return f'\n[secrets.providers.{alias}]\nsource = "{source}"\n{rest}'


def status(server, name, secret):
    headers = {"Authorization": f"Bearer {secret}"}
    action, path = {"action": "list_flows"}, f"/plugins/webhooks/{name}"
    return server.call("POST", path, json=action, headers=headers).status_code


def reference(source, provider, id):
    return f'{{ source = "{source}", provider = "{provider}", id = "{id}" }}'


@pytest.fixture(scope="module")
def filed(launch_module, make_receiver, tmp_path_factory):
    """A server with a route and a webhook whose secret is in a file, the file, and the receiver.

    The file beside it contains the webhook's header.
    """
    folder, receiver, given, text = tmp_path_factory.mktemp("vault"), make_receiver().up(), {}, ""
    for name, content in (("secret", "old-secret"), ("header", "Authorization: Bearer old-token\n")):
        (folder / name).touch(0o600)
        (folder / name).write_text(content)
        text += provider(name, "file", f'path = "{folder / name}"\nmode = "singleValue"')
        given[name] = {"source": "file", "provider": name, "id": "value"}
    text += route("good", reference(**given["secret"]))
    webhooks = json.dumps([hook(receiver, **given)])
    server = launch_module(config=text, TASKS_WEBHOOKS=webhooks, BOUND_LOCK_SECONDS="2")
    return server, folder / "secret", receiver


def test_a_route_without_its_secret_is_skipped_and_the_rest_served(launch, program):
    command = f'command = "{program("import time; time.sleep(60)")}"'
    text = route("good") + route("unset", '"$NOT_SET"')
    text += route("hangs", reference("exec", "slow", "one")) + provider("slow", "exec", command)
    server = launch(config=text, BOUND_EXEC_SECONDS="1")
    assert status(server, "good", "s3cret") == 200
    for name in ("unset", "hangs"):
        assert status(server, name, "s3cret") == 404
    log = server.log.read_text()
    assert "gateway route unset is not served: its secret: env:default:NOT_SET: " in log
    assert "gateway route hangs is not served: its secret: exec:slow:one: the program took longer" in log
    assert "s3cret" not in log


def test_a_reload_uses_new_secrets_and_headers_of_files_and_a_bad_one_changes_nothing(filed):
    server, path, receiver = filed
    header, old = path.with_name("header"), path.read_text()
    project = server.client().make_project()

    def sent():
        server.client().make_task(project)
        return receiver.next().headers

    assert (status(server, "good", old), sent()["Authorization"]) == (200, "Bearer old-token")
    path.write_text("new-secret")
    for line in ("X-Key: new-token", "X-Key: token\r\nX-Other: 1"):
        header.write_text(line)
        with server.replacing():
            server.process.send_signal(signal.SIGHUP)
        assert [status(server, "good", secret) for secret in ("new-secret", old)] == [200, 401]
        assert ((headers := sent()).get("Authorization"), headers["X-Key"]) == (None, "new-token")
    assert "Nothing is reloaded. Error: webhooks: receiver: header: must be" in server.log.read_text()
    header.write_text("X-Key: new-token")
    assert not re.search("token|new-secret", server.log.read_text())


HEADERS = ["Bearer token-1", "X-Key: token\r\nX-Other: 1", "X-Key: tok\u00e9n", "X Key: token", "X: "]
HEADERS += ["X-Key:", "webhook-signature: token", "X-Service-Event: token", "Host: token"]
TAKEN = "accept connection content-length expect keep-alive proxy-connection te trailer transfer-encoding"
HEADERS += [f"{name}: token" for name in f"{TAKEN} upgrade user-agent".split()]
PROXIES = ["https://127.0.0.1:token", "socks5://token", "127.0.0.1:token", "http://token@127.0.0.1:1"]
PROXIES += ["http://", "http://a:token@", "http://a:to ken@127.0.0.1:1", "http://a:token@127.0.0.1:0"]


def test_a_header_or_proxy_that_cannot_be_used_is_named_without_its_value():
    webhook = {"url": "http://127.0.0.1:1/", "secret": "s", "name": "x"}
    wrong = [{"webhooks": [webhook | {"header": line}]} for line in HEADERS]
    for given in (*wrong, *({"webhooks": [webhook], "delivery": {"proxy": url}} for url in PROXIES)):
        config = {name.upper(): section for name, section in load_settings(given).items()}
        with pytest.raises(LookupError, match=r"(webhooks: x: header|delivery\.proxy): must") as raised:
            resolve_webhooks(config)
        assert "token" not in str(raised.value), given


def test_a_worker_that_is_killed_is_replaced_though_a_secret_is_gone(filed):
    server, path, receiver = filed
    secret, elsewhere = path.read_text(), path.rename(path.with_name("elsewhere"))
    with server.replacing():
        os.kill(*server.children(), signal.SIGKILL)
    assert status(server, "good", secret) == 200
    server.client().make_task(server.client().make_project())
    assert receiver.next().event["event"] == "task.created"
    elsewhere.rename(path)


def test_a_reload_while_the_database_is_locked_is_no_end(filed):
    server, path, _ = filed
    path.with_name("header").write_text("X-Token: locked")
    with server.replacing(), closing(sqlite3.connect(server.database)) as other:
        other.execute("BEGIN IMMEDIATE")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the webhooks stay as they were" in server.log.read_text())
    assert status(server, "good", path.read_text()) == 200


HOOK = '\n[[webhooks]]\nurl = "http://127.0.0.1:1/"\nname = "r"\n'
IN_CLEAR = {
    "a route's": route("x"),
    "a webhook's": HOOK + 'secret = "s3cret"',
    "a webhook's previous one": HOOK + 'secret = "$A_SECRET"\nprevious_secret = "s3cret"',
    "a webhook's header": HOOK + 'secret = "$A_SECRET"\nheader = "Authorization: s3cret"',
    "a chat's URL": '\n[[webhooks]]\nurl = "http://127.0.0.1:1/s3cret"\nname = "r"\nformat = "slack"',
    "a proxy's": '[delivery]\nproxy = "http://user:s3cret@127.0.0.1:3128"',
    "the first owner's key": f'[bootstrap]\napi_key = "{OWNER_KEY}"',
    "a program's": provider("x", "exec", 'command = "/x"\nenv = {TOKEN = "s3cret"}'),
}


@pytest.mark.parametrize("text", IN_CLEAR.values(), ids=IN_CLEAR)
def test_a_secret_in_clear_is_found_in_a_file_that_others_can_open(file, text):
    path = file(text, 0o644)
    words = "contains secrets in clear text, and users outside its group can read it; run chmod 640"
    assert exposed_secrets({"CONFIG_FILE": path}) == [f"{path} {words}"]
    path.chmod(0o640)
    assert exposed_secrets({"CONFIG_FILE": path}) == []
    text = route("x", reference("file", "env", "value"))
    text += provider("env", "file", 'path = "/x"') + HOOK + 'secret = "${A_SECRET}"'
    assert exposed_secrets({"CONFIG_FILE": file(text, 0o644)}) == []  # which only refers to secrets


def test_the_log_and_doctor_warn_of_secrets_in_clear_that_others_can_read(launch, file):
    path = file(IN_CLEAR["a route's"], 0o604)
    server = launch(TASKS_CONFIG=str(path))
    assert f"[WARNING] {path} contains secrets in clear text, and users outside" in server.log.read_text()
    told = invoke(server, "doctor")
    assert told.exit_code == 1
    assert f"problem: {path} contains secrets in clear" in told.stdout
