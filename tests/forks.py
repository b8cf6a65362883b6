"""Programs of the service that are forked from a process which has imported it.

Most of the time of a start goes into imports, and the tests start some hundred servers and commands.
"""

import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from ctypes import CDLL, c_uint32
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_DFL, SIGHUP, SIGINT, SIGKILL, SIGTERM, signal
from subprocess import Popen, TimeoutExpired

from watch import end_with_parent

LIBC, ROOT = CDLL(None), Path(__file__).parents[1]
context = get_context("forkserver")
of_gunicorn = ["gunicorn.app.wsgiapp", "gunicorn.workers.gthread"]
context.set_forkserver_preload(["__main__", "app", "tests.warm", "flask.cli", *of_gunicorn])


class Forked:
    """A program in a fork, with the methods of `Popen` that the tests use."""

    def __init__(self, words, folder, environment, stdout, stderr, listener=None, first=None):
        """Run `gunicorn` or `flask`; both outputs are added to files. gunicorn gets a listening socket.

        The fork calls `first` before it becomes the program.
        """
        arguments = ([str(word) for word in words], folder, environment, stdout, stderr, listener, first)
        self._process = context.Process(target=become, args=arguments, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.poll() is None:
            raise TimeoutExpired("a forked program", timeout)
        return self.poll()

    def send_signal(self, how):
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the fork server has not said so yet
                os.kill(self.pid, how)

    def terminate(self):
        self.send_signal(SIGTERM)

    def kill(self):
        self.send_signal(SIGKILL)


@contextmanager
def running(words, folder, environment, first=None):
    """Run `gunicorn` or `flask` in a fork; its outputs can be read, and it is terminated at the end."""
    with tempfile.TemporaryDirectory() as home:
        pipes = [Path(home, name) for name in ("stdout", "stderr")]
        for pipe in pipes:
            os.mkfifo(pipe)
        process = Forked(words, folder, environment, *pipes, first=first)
        process.stdout, process.stderr = map(open, pipes)
        with process.stdout, process.stderr:
            try:
                yield process
            finally:
                process.terminate()
                process.wait(90)


def alone():
    """Lead a process group, and let `throwaway` fork the server that it starts."""
    os.setpgrp()
    import_module("parts.throwaway").Popen = server_or_program


def server_or_program(words, env, pass_fds=(), **options):
    becomes = partial(serve, words[2:], env, pass_fds) if words[1:3] == ("-m", "gunicorn") else None
    return Popen(words, env=env, pass_fds=pass_fds, preexec_fn=becomes, **options)


def serve(words, environment, files):
    """Be the server in the fork that was to execute it; `Popen` waits until other files are closed."""
    for file in {*map(int, os.listdir("/proc/self/fd"))} - {0, 1, 2, *files}:
        with suppress(OSError):
            os.close(file)
    for number in (SIGINT, SIGTERM, SIGHUP):
        signal(number, SIG_DFL)
    try:
        be(words, environment)
    except SystemExit as end:
        os._exit(end.code)


def as_no_root():
    """Give up the capabilities by which root may open every file and folder."""
    head, sets = (c_uint32 * 2)(0x20080522, 0), (c_uint32 * 6)()
    assert LIBC.capget(head, sets) == 0
    sets[0] &= ~0b110  # of those in effect: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert LIBC.capset(head, sets) == 0


def bounds(environment):
    """The variables that limits.py reads when it is imported."""
    return {name: text for name, text in environment.items() if name.startswith("BOUND_")}


def become(words, folder, environment, stdout, stderr, listener, first):
    """Be the program from now on: what a start by the operating system would do."""
    end_with_parent()  # the fork server, which ends with the tests' process
    os.chdir(folder)
    if bounds(environment) != bounds(os.environ):
        for file in ROOT.glob("*.py"):  # they are imported again
            sys.modules.pop(file.stem, None)
        for name in [name for name in sys.modules if name.partition(".")[0] == "parts"]:
            del sys.modules[name]
    for place, path in ((1, stdout), (2, stderr)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, place)
        os.close(file)
    if listener:
        words += ["-b", f"fd://{listener.fileno()}"]
    if first:
        first()
    be(words, environment)


def be(words, environment):
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # TMPDIR may be another one
    sys.argv = [*words]
    if words[0] == "flask":
        from flask.cli import main  # imported before the fork; the tests' own process does not need it
    else:
        from gunicorn.app.wsgiapp import run as main
    main()
