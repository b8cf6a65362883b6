"""Faults that are put into copies of the service, to see whether its tests find them (see seeded.py)."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from findings import Run
from harness import ROOT
from seeded import MUTATIONS, Mutation

SIDE_BY_SIDE = 2
PASSED, FAILED = 0, 1  # exit codes of pytest


def copy_tree(folder: Path) -> Path:
    """Copy what the tests need."""
    skipped = shutil.ignore_patterns(".*", "__pycache__", "*.db*", "config.toml")
    return Path(shutil.copytree(ROOT, folder, ignore=skipped))


class Copies:
    """Copies of the service, in which tests run side by side."""

    def __init__(self, run: Run):
        self.run = run
        self.programs: list[subprocess.Popen] = []
        self.trees: SimpleQueue[Path] = SimpleQueue()  # that no thread uses at the moment
        for number in range(SIDE_BY_SIDE):
            self.trees.put(copy_tree(run.folder / f"tree-{number}"))

    @contextmanager
    def tree(self) -> Iterator[Path]:
        """A copy for this thread alone."""
        tree = self.trees.get()
        try:
            yield tree
        finally:
            self.trees.put(tree)

    def test(self, tree: Path, mutations: Iterable[Mutation], *options: str) -> int:
        """Run the tests of these mutations; return the exit code of pytest."""
        mutations = list(mutations)
        files = sorted({f"tests/test_{mutation.tests}.py" for mutation in mutations})
        chosen = " or ".join(f"(test_{mutation.tests} and ({mutation.chosen}))" for mutation in mutations)
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", chosen]
        environment = os.environ | {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
        with (tree.parent / f"{tree.name}.txt").open("ab") as log:
            options = (*options, *files)
            program = subprocess.Popen([*words, *options], cwd=tree, env=environment, stdout=log, stderr=log)
            self.programs.append(program)
            return program.wait()

    def stop(self) -> None:
        """Interrupt the tests, which then end their servers."""
        for program in self.programs:
            if program.poll() is None:
                program.send_signal(signal.SIGINT)

    def is_found(self, mutation: Mutation) -> bool:
        """Whether a test fails with the mutation."""
        with self.tree() as tree:
            file = tree / mutation.file
            text = file.read_text()
            count = text.count(mutation.old)
            if count != 1:
                self.run.fault(f"{mutation.what}: {mutation.file} has this {count} times: {mutation.old}")
                return False
            file.write_text(text.replace(mutation.old, mutation.new))
            code = self.test(tree, [mutation])
            file.write_text(text)
        if code == PASSED:
            self.run.fault(f"no test finds: {mutation.what} ({mutation.file})")
        elif code != FAILED:
            self.run.fault(f"{mutation.what}: pytest ended with {code}; see {tree}.txt")
        return code == FAILED


def run(run: Run) -> None:
    """Run the tests without a mutation, and then those of each mutation with it."""
    copies = Copies(run)
    pool = ThreadPoolExecutor(SIDE_BY_SIDE)
    try:
        with copies.tree() as tree:
            if copies.test(tree, MUTATIONS, "-n", str(SIDE_BY_SIDE), "--dist", "loadfile"):
                run.fault(f"tests fail without a mutation; see {tree}.txt")
                return
        found = list(pool.map(copies.is_found, MUTATIONS))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        copies.stop()
    run.found(
        "G18",
        "faults in the service that its tests find",
        f"{sum(found)} of {len(found)}",
        "all",
        kept=all(found),
    )
