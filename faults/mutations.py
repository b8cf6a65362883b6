"""Faults that are put into a copy of the service, each of which its tests must find.

P1 to P17 are the pitfalls of the stack, each of which once was a defect in a prototype.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from findings import Run
from harness import ROOT

SIDE_BY_SIDE = 2
FAILED = 1  # the exit code of pytest when tests failed


class Mutation(NamedTuple):
    """A fault: in this file, this text, which occurs once, is replaced; and the tests that must fail."""

    what: str
    file: str
    old: str
    new: str
    tests: str  # a file in tests/
    chosen: str  # an expression for pytest's -k


MUTATIONS = (
    Mutation(
        "P1: a body that does not arrive is one that is too short",
        "limits.py",
        "        self.cut = True\n",
        "",
        "gateway_ladder",
        "stalls",
    ),
    Mutation(
        "P2: a body nested too deeply is a bug",
        "schemas.py",
        'raise BadBody("the body is nested too deeply") from error',
        "raise",
        "bad_input",
        "not_a_json_object",
    ),
    Mutation(
        "P2: NaN is JSON",
        "schemas.py",
        "parse_float=_finite, parse_constant=_no_constant",
        "parse_float=_finite",
        "bad_input",
        "not_a_json_object",
    ),
    Mutation(
        "P2: a repeated key counts once",
        "schemas.py",
        "if len(members) < len(pairs):",
        "if False:",
        "bad_input",
        "not_a_json_object",
    ),
    Mutation(
        "P3: a body over the limit is cut",
        "wire.py",
        "get_input_stream(self.environ).read(limit + 1)",
        "get_input_stream(self.environ).read(limit)",
        "wire",
        "1_mib",
    ),
    Mutation(
        "P4: a bad chunk is a bug",
        "wire.py",
        "except Exception as error:  # gunicorn's",
        "except ValueError as error:  # gunicorn's",
        "wire",
        "bad_chunk",
    ),
    Mutation(
        "P5: a refused body is left unread",
        "wire.py",
        "self.discard(limits.DRAIN_BYTES)",
        "self.unread = False",
        "wire",
        "refused_early",
    ),
    Mutation(
        "P6: slashes are merged",
        "app.py",
        "app.url_map.merge_slashes = False",
        "app.url_map.merge_slashes = True",
        "errors",
        "slashes",
    ),
    Mutation(
        "P6: a slash at the end redirects",
        "app.py",
        "app.url_map.strict_slashes = False",
        "app.url_map.strict_slashes = True",
        "bad_input",
        "slash_at_the_end",
    ),
    Mutation(
        "P7: a write begins as a read",
        "database.py",
        'connection.execute("BEGIN IMMEDIATE")',
        'connection.execute("BEGIN")',
        "database",
        "one_way",
    ),
    Mutation(
        "P8: foreign keys are not checked",
        "database.py",
        '"foreign_keys": 1',
        '"foreign_keys": 0',
        "database",
        "pragmas",
    ),
    Mutation(
        "P9: after the commit an error reaches the client",
        "webhooks.py",
        "    except Exception:\n        # The transaction is on disk",
        "    except OSError:\n        # The transaction is on disk",
        "sweeper",
        "after_the_commit",
    ),
    Mutation(
        "P10: a request that is refused is not counted",
        "app.py",
        "if self.window and current.caller:",
        "if self.window and current.caller and failure is None:",
        "rate_limit",
        "sixth",
    ),
    Mutation(
        "P11: an unknown field is ignored",
        "schemas.py",
        """names what it accepts.\"""\n\n    class Meta:\n        unknown = RAISE""",
        """names what it accepts.\"""\n\n    class Meta:\n        unknown = "exclude\"""",
        "bad_input",
        "update_takes_four_fields",
    ),
    Mutation(
        "P11: a number may have blanks and other digits",
        "schemas.py",
        're.fullmatch("[0-9]{1,12}", str(value))',
        're.fullmatch(r"\\s*\\d{1,12}\\s*", str(value))',
        "task_list",
        "not_understood",
    ),
    Mutation(
        "P12: secrets are compared as text",
        "gateway.py",
        "hmac.compare_digest(secret, route.secret)",
        'hmac.compare_digest(secret.decode("latin-1"), route.secret.decode("latin-1"))',
        "gateway_ladder",
        "wrong_or_missing_secret or looks_like_a_blank",
    ),
    Mutation(
        "P13: an exchange may take any time",
        "webhooks.py",
        "if exchange.cut or time.monotonic() - started_at >= seconds:",
        "if time.monotonic() - started_at >= 60:",
        "webhooks",
        "hostile_receiver and body",
    ),
    Mutation(
        "P13: proxies of the environment are used",
        "webhooks.py",
        "session.trust_env = False",
        "session.trust_env = True",
        "webhooks",
        "proxies",
    ),
    Mutation(
        "P14: workers share the master's connections",
        "gunicorn.conf.py",
        "db.disconnect()  # before the fork",
        "pass",
        "serving",
        "before_it_forks",
    ),
    Mutation(
        "P15: the cause that a rollback hides is not seen",
        "database.py",
        "error = error.__cause__ or error.__context__\n    return False",
        "error = None\n    return False",
        "database",
        "hides",
    ),
    Mutation(
        "P16: others may read the database",
        "database.py",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644",
        "commands",
        "owners_alone",
    ),
    Mutation(
        "P16: a client chooses the service's path",
        "gunicorn.conf.py",
        'forwarder_headers = ""',
        'forwarder_headers = "SCRIPT_NAME,PATH_INFO"',
        "wire",
        "below_another_path",
    ),
    Mutation(
        "P17: OPTIONS is answered in HTML",
        "app.py",
        'app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False',
        'app.config["PROVIDE_AUTOMATIC_OPTIONS"] = True',
        "bad_input",
        "wrong_method",
    ),
    Mutation(
        "a commit is acknowledged before it is on disk",
        "database.py",
        '"synchronous": "full"',
        '"synchronous": "off"',
        "database",
        "pragmas",
    ),
    Mutation(
        "a link to join works twice",
        "models.py",
        'if invitation["used_at"]:',
        "if False:",
        "members",
        "joining_activates or many_who_join",
    ),
    Mutation(
        "a revoked key works",
        "models.py",
        'cls.hash == placeholder("hash"),\n            cls.revoked_at.is_null(),',
        'cls.hash == placeholder("hash"),',
        "keys",
        "revoked",
    ),
    Mutation(
        "a key of scope read may write",
        "app.py",
        'if writes and caller["scope"] != "write":',
        "if False:",
        "keys",
        "read_key",
    ),
    Mutation(
        "If-Match is ignored",
        "app.py",
        "return None if tags.star_tag else frozenset(tags)",
        "return None",
        "task_details",
        "expected_version",
    ),
    Mutation(
        "an Idempotency-Key is for all paths",
        "app.py",
        'digest(f"{call().path} {_ordered(arguments)!r}")',
        'digest(f"{_ordered(arguments)!r}")',
        "idempotency",
        "one_path",
    ),
    Mutation(
        "a flow is changed at any revision",
        "gateway.py",
        'if flow["revision"] != expected_revision:',
        "if False:",
        "gateway",
        "expected_revision",
    ),
    Mutation(
        "a route sees the flows of other sessions",
        "gateway.py",
        'cls.select(*columns(cls)).where(cls.owner == placeholder("owner"), cls.id == placeholder("id"))',
        'cls.select(*columns(cls)).where(cls.id == placeholder("id"))',
        "gateway",
        "stranger_sees",
    ),
    Mutation(
        "an event overtakes one that a process that was killed had leased",
        "outbox.py",
        "(cls.queued == 1) | is_abandoned",
        "(cls.queued == 1)",
        "sweeper",
        "when_the_server_was_killed",
    ),
    Mutation(
        "during a rotation only the old secret signs",
        "webhooks.py",
        "sign(body, secrets[0])",
        "sign(body, secrets[-1])",
        "webhooks",
        "rotation",
    ),
    Mutation(
        "tokens of links are logged",
        "wire.py",
        'path, link, _ = self.environ["PATH_INFO"].partition("/enroll/")',
        'path, link = self.environ["PATH_INFO"], ""',
        "members",
        "stored_or_logged",
    ),
)


def copy_tree(folder: Path) -> Path:
    """Copy what the tests need."""
    skipped = shutil.ignore_patterns(".*", "__pycache__", "*.db*", "config.toml", "node_modules")
    return Path(shutil.copytree(ROOT, folder, ignore=skipped))


def run_tests(tree: Path, mutations: Iterable[Mutation], *options: str) -> int:
    """Run the tests of these mutations; return the exit code of pytest."""
    mutations = list(mutations)
    files = sorted({f"tests/test_{mutation.tests}.py" for mutation in mutations})
    chosen = " or ".join(f"(test_{mutation.tests} and ({mutation.chosen}))" for mutation in mutations)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        chosen,
        *options,
        *files,
    ]
    environment = os.environ | {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    with (tree.parent / f"{tree.name}.txt").open("ab") as log:
        return subprocess.run(words, cwd=tree, env=environment, stdout=log, stderr=log).returncode


def is_found(tree: Path, mutation: Mutation) -> bool:
    """Whether a test fails with the mutation. Raises `ValueError` where it cannot be made or tested."""
    file = tree / mutation.file
    text = file.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.file} has the text {text.count(mutation.old)} times: {mutation.old}")
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        code = run_tests(tree, [mutation])
    finally:
        file.write_text(text)
    if code not in (0, FAILED):
        raise ValueError(f"pytest ended with {code}: test_{mutation.tests}.py, -k {mutation.chosen!r}")
    return code == FAILED


def run(run: Run) -> None:
    """Make each mutation in a copy, and run its tests there."""
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(SIDE_BY_SIDE):
        trees.put(copy_tree(run.folder / f"tree-{number}"))

    def judge(mutation: Mutation) -> bool:
        tree = trees.get()
        try:
            if is_found(tree, mutation):
                return True
            run.fault(f"no test finds: {mutation.what} ({mutation.file})")
        except ValueError as error:
            run.fault(f"{mutation.what}: {error}")
        finally:
            trees.put(tree)
        return False

    tree = trees.get()
    if run_tests(tree, MUTATIONS, "-n", str(SIDE_BY_SIDE), "--dist", "loadfile"):
        run.fault(f"tests fail without a mutation; see {tree}.txt")
        return
    trees.put(tree)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        found = list(pool.map(judge, MUTATIONS))
    figure = f"{sum(found)} of {len(found)}"
    run.found("G18", "faults in the service that its tests find", figure, "all", kept=all(found))
