"""The benchmark, in its smallest form."""

import os
import shutil
import sys

import pytest
from harness import PATIENCE, ROOT, output_of


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")
@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler, for what makes a disk slow")
def test_measures_and_finds_no_error(tmp_path):
    output = tmp_path / "figures.md"
    options = "--short --rounds 1 --seconds 0.2 --tasks 200 --tables requests,slow-disk --only get,create"
    words = [sys.executable, "bench/run.py", *options.split(), "--output", output]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    output_of(*words, cwd=ROOT, env=environment, timeout=3 * PATIENCE)
    lines = output.read_text().splitlines()
    first_column = [line.split()[1] for line in lines if line.startswith("| ")]
    assert [word for word in first_column if word.strip("-")] == ["operation", "get", "create", "a", "2"]
    assert lines[-1] == "Errors: none."
