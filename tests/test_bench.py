"""The benchmark, in its smallest form."""

import subprocess
import sys

from harness import PATIENCE, ROOT


def test_measures_and_finds_no_error(tmp_path):
    output = tmp_path / "figures.md"
    options = (
        "--short --rounds 1 --seconds 0.2 --tasks 200 --tables requests --only get,create --generator python"
    )
    words = [sys.executable, "bench/run.py", *options.split(), "--output", output]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = output.read_text().splitlines()
    first_column = [line.split()[1] for line in lines if line.startswith("| ")]
    assert first_column == ["operation", "-" * len("operation"), "get", "create"]
    assert lines[-1] == "Errors: none."
