"""Runs the tests in a child, waits for all that comes from it, and says how much CPU all have used."""

import os
import resource
import time
from ctypes import CDLL
from pathlib import Path
from signal import SIG_BLOCK, SIGCHLD, SIGINT, SIGKILL, SIGTERM, pthread_sigmask, sigtimedwait

PATIENCE = 20  # seconds in which what a run has left may end by itself
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIGNALS = {SIGCHLD, SIGINT, SIGTERM}


def end_with_parent(how=SIGTERM):
    """Let the system send this process a signal when its parent ends."""
    CDLL(None).prctl(PR_SET_PDEATHSIG, how)


def run_watched():
    """Return in the child. The parent passes signals on, ends what the child leaves, and exits with its code.

    Servers are children of multiprocessing's fork servers, for which no test process waits.
    """
    CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # who loses its parent becomes a child of this process
    child = os.fork()
    if not child:
        end_with_parent(SIGINT)
        return
    pthread_sigmask(SIG_BLOCK, SIGNALS)
    code, ended_at, here = None, 0.0, Path(f"/proc/self/task/{os.getpid()}/children")
    while code is None or here.read_text():
        told = sigtimedwait(SIGNALS, 0.1 if code is not None else 60)
        if told and told.si_signo != SIGCHLD and told.si_pid:  # 0: from the terminal, which tells all
            os.kill(child, told.si_signo)
        while here.read_text() and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code, ended_at = os.waitstatus_to_exitcode(ended[1]), time.monotonic()
        for left in here.read_text().split() if code is not None else ():
            os.kill(int(left), SIGKILL if time.monotonic() - ended_at > PATIENCE else SIGTERM)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(f"{seconds:.0f} s of CPU, with servers and browsers", flush=True)
    os._exit(code if code >= 0 else 128 - code)
