"""Change a module in one place at a time, and see whether its tests notice: `make mutate ARGS=models.py`.

This program tries a few mutants at random, on a copy of the project. cosmic-ray makes thousands, in the files
that you edit. mutmut calls functions in its own process, but these tests start servers.
"""

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPPOSITE = {ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "=="}
OPPOSITE |= {ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}
LEFT_OUT = (".git", ".*_cache", ".npm", "*.db*", "config.toml")


def mutants(source: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the beginning and the end of each place to replace, in bytes, and the replacement."""
    begins = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    for node in ast.walk(ast.parse(source)):
        changed, text = node, ""
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            changed, text = node.test, f"(not ({ast.unparse(node.test)}))"
        elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            text = "pass"
        elif isinstance(node, ast.Return) and node.value:
            text = "return None"
        elif isinstance(node, ast.BoolOp):
            text = f"({ast.unparse(node.values[0])})"
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = ast.unparse(node.left), ast.unparse(node.comparators[0])
            text = f"({sides[0]} {OPPOSITE[type(node.ops[0])]} {sides[1]})"
        if text and isinstance(changed, ast.expr | ast.stmt):
            end = begins[(changed.end_lineno or 0) - 1] + (changed.end_col_offset or 0)
            yield begins[changed.lineno - 1] + changed.col_offset, end, text


def run(words: list[str], folder: Path, seconds: float | None) -> tuple[int, str]:
    """Run the tests. Return their exit code and output. Tests that take longer than `seconds` have failed."""
    with subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as tests:
        try:
            output = tests.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(tests.pid, signal.SIGKILL)  # and the servers that they started
            return 1, ""
        return tests.returncode, output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument(
        "tests",
        nargs="*",
        help="test files (default: the ones named after the module, or else the quick tests)",
    )
    parser.add_argument("--count", type=int, default=20, help="how many places (20)")
    parser.add_argument("--seed", type=int, default=0, help="which places")
    asked = parser.parse_args()
    source, stem = (ROOT / asked.module).read_bytes(), Path(asked.module).stem
    tests = asked.tests or sorted(ROOT.glob(f"tests/test_{stem}*.py")) or ["--quick"]
    found = list(mutants(source))
    chosen = random.Random(asked.seed).sample(found, min(asked.count, len(found)))
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "project")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        words = [sys.executable, "-m", "pytest", "-qx", "-n", "2", "--dist", "loadfile"]
        words += [str(test).replace(str(ROOT), str(copy)) for test in tests]
        seconds: float | None = None
        for begin, end, text in [(0, 0, ""), *sorted(chosen)]:  # at first without a change
            (copy / asked.module).write_bytes(source[:begin] + text.encode() + source[end:])
            began = time.monotonic()
            code, output = run(words, copy, seconds)
            if not text and code:
                sys.exit(f"The tests fail without a change:\n{output[-2000:]}")
            seconds = seconds or 60 + 3 * (time.monotonic() - began)
            if text and not code:
                unnoticed += 1
                line = source.count(b"\n", 0, begin) + 1
                print(f"{asked.module}:{line}: nothing noticed {text!r}", flush=True)
    print(f"{asked.module}: {len(chosen)} of {len(found)} places tried, {unnoticed} not noticed")


if __name__ == "__main__":
    main()
