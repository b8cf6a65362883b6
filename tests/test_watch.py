"""A run of the tests that is interrupted leaves no server behind."""

import os
import select
import signal
import subprocess
import sys

import pytest
from harness import PATIENCE, ROOT, wait_until

STUCK = """
import threading
from pathlib import Path

def test_is_stuck(launch):
    server = launch()
    new = Path(__file__).with_name("pids.new")
    new.write_text(" ".join(map(str, [server.process.pid, *server.children()])))
    new.rename(new.with_name("pids"))
    threading.Event().wait()
"""


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_interrupted_leaves_no_server(tmp_path, how):
    stuck = tmp_path / "test_stuck.py"
    stuck.write_text(STUCK)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    options = "-q -n 1 -p no:cacheprovider -p conftest"
    # A shell's background job ignores SIGINT, and its children would.
    words = ["env", "--default-signal=INT", sys.executable, "-m", "pytest", *options.split(), stuck]
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as run:
        pids = wait_until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
        ends = [os.pidfd_open(int(pid)) for pid in pids.split()]
        assert len(ends) == 2
        run.send_signal(how)
        for end in ends:
            assert select.select([end], [], [], PATIENCE)[0]
            os.close(end)
        said = run.communicate(timeout=PATIENCE)[0]
    assert run.returncode == (2 if how == signal.SIGINT else -how)
    assert ("s of CPU, with servers and browsers" in said) == (how == signal.SIGINT)
