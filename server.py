"""How gunicorn serves, beyond its settings: a worker that slow clients cannot hold up, and the hooks.

`Worker` overrides methods that are mostly private, so the server starts with one version of gunicorn only.
This table says what happens without each override, and which test shows it:

override            without it                                                test
__init__            open connections use up all files, and the worker ends    slow_clients: than_files_may_be
accept              a connection that sends nothing holds a thread            slow_clients: that_send_nothing
is_parent_alive     busy workers outlive a master that was killed             serving: workers_leave
set_accept_enabled  idle connections keep new clients out                     slow_clients: idle_longest
finish_request      a closed connection counts twice; busy threads below 0    metrics: threads_are_busy
handle              a head that stops coming holds a thread                   slow_clients: heads_that_stop
handle_request      the deadline of the head ends a body that is coming       slow_clients: bodies_that_stop
handle_error        a secret in a malformed head is logged and sent back      wire: malformed_head
_cap_keepalive      a stop waits until silent connections time out            slow_clients: a_stop_waits
murder_pending      the metrics do not say how many threads are busy          metrics: threads_are_busy
write_error         a head that cannot be read is answered in HTML            wire: answered_in_json
"""

import contextlib
import errno
import logging
import os
import re
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any
from urllib.parse import quote

import gunicorn.util
from gunicorn.http.errors import ParseException
from gunicorn.workers.gthread import TConn, ThreadWorker

import startup
from app import create_app
from database import LOCK_SECONDS, BadDatabase, db, write_turn
from limits import DRAIN_BYTES, HEAD_SECONDS, THREADS, WAITS, SocketDeadline
from metrics import metrics
from settings import exposed_secrets, port_of
from times import new_request_id
from wire import KEY, STATUS_LINES, TOKEN, ending, envelope, waits

GUNICORN = "27.0.1"  # as in requirements.txt
LINGER_SECONDS = 0.5  # for a client to close its side after we closed ours
PAUSE_SECONDS = 0.5  # without accepting, when no file descriptor is free and no connection is idle
# Each worker stays on one core, so its threads do not compete for the interpreter's lock.
PIN_WORKERS = os.environ.get("PIN_WORKERS", "1") != "0"
# The part of a malformed head that is shown: gunicorn's own words, method and path, or a header's name.
SHOWN_OF_HEAD = re.compile(
    r"bare LF as line terminator$|[A-Z]{3,20} /[^\s?#]{0,200}|[A-Za-z-]{1,30}(?![\w-])"
)


class Worker(ThreadWorker):
    """gunicorn's threaded worker, changed so that a few clients cannot hold up all others (table above)."""

    def __init__(self, *arguments: Any, **options: Any):
        """Limit the connections by the file descriptors, not only by gunicorn's setting."""
        super().__init__(*arguments, **options)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = limit // 2 if limit > 0 else sys.maxsize  # half is for the database, webhooks and files
        self.worker_connections = min(self.cfg.worker_connections, most)
        self.max_keepalived = self.worker_connections  # `make_room` closes those that were idle longest
        self.paused_until = 0.0

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection, and let the poller wait for its first byte; gunicorn would block a thread."""
        try:
            sock, address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # must not end the worker
                self.paused_until = time.monotonic() + PAUSE_SECONDS
                super().set_accept_enabled(False)
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                raise
            return
        self.nr_conns += 1
        conn = TConn(self.cfg, sock, address, listener.getsockname())
        conn.set_timeout()
        self.pending_conns.append(conn)
        self.poller.register(sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def is_parent_alive(self) -> bool:
        """Stop as with SIGTERM when the master has died; gunicorn would continue with busy clients."""
        if not super().is_parent_alive():
            self.alive = False
        return self.alive

    def set_accept_enabled(self, enabled: bool) -> None:
        """Close the connection that was idle longest, where gunicorn would stop accepting."""
        if self.alive:
            paused = time.monotonic() < self.paused_until
            enabled = (enabled and not paused) or self.make_room()
        super().set_accept_enabled(enabled)

    def finish_request(self, conn: TConn, future: Future) -> None:
        """Forget a connection that `handle` has closed; gunicorn would close and count it twice."""
        if future.cancelled() or future.exception() or future.result():
            super().finish_request(conn, future)
        else:
            self.nr_conns -= 1
            conn.close()

    def handle(self, conn: TConn) -> bool:
        """Limit the time in which a request's head arrives; gunicorn would wait forever.

        Closing at once would reset a connection on which the client is still sending, and lose the response.
        So our side is closed first, and the client has a moment to close its own (RFC 9112, section 9.6).
        """
        conn.head = SocketDeadline(conn.sock, HEAD_SECONDS)
        with conn.head:
            is_kept = super().handle(conn)
        if not is_kept:
            gunicorn.util.close_graceful(conn.sock, LINGER_SECONDS, DRAIN_BYTES)
        return is_kept

    def handle_request(self, request: Any, conn: TConn) -> bool:
        conn.head.stop()  # the head is complete; other deadlines follow
        return super().handle_request(request, conn)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Refuse a malformed request; gunicorn would repeat it, with secrets, in log and response."""
        if isinstance(exc, ParseException):
            for name, value in vars(exc).items():
                if isinstance(value, str | bytes) and name != "msg":  # gunicorn's own text
                    setattr(exc, name, shown_of_head(value))
        super().handle_error(req, client, addr, exc)

    def make_room(self) -> bool:
        """Close the connection that was idle longest; return whether there was one."""
        oldest = [conns[0] for conns in (self.pending_conns, self.keepalived_conns) if conns]
        if oldest:
            min(oldest, key=lambda conn: conn.timeout).timeout = 0.0
            self.murder_pending()
            self.murder_keepalived()
        return bool(oldest)

    def _cap_keepalive(self, deadline: float) -> None:
        """Treat silent new connections as idle ones at a stop; gunicorn would wait until they time out."""
        super()._cap_keepalive(deadline)
        ending.set()
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)
        self.murder_pending()

    def murder_pending(self) -> None:
        """Count the current requests; gunicorn calls this after each event and once a second."""
        super().murder_pending()
        metrics.busy(self.nr_conns - len(self.pending_conns) - len(self.keepalived_conns))


def shown_of_head(text: str | bytes) -> str:
    """Return the beginning of a malformed head, if it shows what is wrong, without secrets."""
    shown = SHOWN_OF_HEAD.match(text) if isinstance(text, str) else None
    if shown is None:
        return "..."
    hidden = KEY.sub(r"\1...", TOKEN.sub(r"\1...", shown[0]))
    return hidden if hidden == text else f"{hidden} ..."


def number(name: str, default: str, most: int) -> int:
    """Return the number in an environment variable, or the default; a wrong value ends the program."""
    text = os.environ.get(name) or default
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        sys.exit(f"Error: {name} = {text!r} must be a whole number from 1 to {most}")
    return int(text)


def write_error(sock: socket.socket, status: int, reason: str, message: str) -> None:
    """Answer an unreadable request with an error of the API; gunicorn would answer in HTML."""
    error = {"code": "invalid_request", "message": message[:200] or reason}
    body = envelope(request_id := new_request_id(), {"success": False, "error": error})
    head = (
        f"HTTP/1.1 {STATUS_LINES[status]}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"X-Request-Id: {request_id}\r\nX-Content-Type-Options: nosniff\r\n"
        "Cache-Control: no-store\r\n\r\n"
    )
    gunicorn.util.write_nonblock(sock, head.encode() + body)


if gunicorn.__version__ != GUNICORN:
    sys.exit(f"Error: gunicorn {gunicorn.__version__} is installed; this service needs {GUNICORN}")
gunicorn.util.write_error = write_error  # gunicorn has no hook for this


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """End the program with one line for an error of the configuration or the database."""
    try:
        yield
    except (BadDatabase, LookupError) as error:
        sys.exit(f"Error: {error}")


def on_starting(server: Any) -> None:
    """Check everything before a port is bound."""
    with contextlib.suppress(OSError, ValueError):  # not allowed: fewer connections are possible
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    logger = logging.getLogger("tasks")
    logger.handlers = server.log.error_log.handlers
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for gunicorns in (server.log.error_log, server.log.access_log):
        gunicorns.addFilter(hide_secrets)
    with exit_on_error():
        app = create_app()
        server.secrets = startup.read_secrets(app.config)
        startup.open_database(app.config, server.secrets)
    for problem in exposed_secrets(app.config):
        server.log.warning(problem)
    base_url = app.config["SERVER"]["base_url"]
    is_here = re.match(r"(?i)http://(127\.0\.0\.1|localhost|\[::1\])([:/]|$)", base_url)  # https is a proxy's
    ports = {address[1] for address in server.cfg.address if isinstance(address, tuple)}
    if is_here and ports and port_of(base_url) not in ports:
        server.log.warning("Links will begin with %s: set server.base_url to the server's address", base_url)
    metrics.share(max(server.cfg.workers, 1))
    server.app.callable = app  # for all workers, even those that start after config.toml has changed


def hide_secrets(record: logging.LogRecord) -> bool:
    """Remove secrets from gunicorn's messages, and control characters from its access log."""
    text = KEY.sub(r"\1…", TOKEN.sub(r"\1…", record.getMessage()))
    text = re.sub(r"://[^\s/'\"]*@", "://…@", re.sub(r"\?[^\s'\"]+", "?…", text))
    if record.name == "gunicorn.access":  # a path may contain the end of a line, which would forge another
        text = re.sub(r"[\x00-\x1f\x7f]", lambda control: quote(control[0]), text)
    record.msg, record.args = text, ()
    return True


def threads_without_waits(cfg: Any) -> int:
    """Return the number of threads that no waiting request may occupy, also if `--threads` sets fewer."""
    return cfg.threads - min(WAITS, cfg.threads * WAITS // (THREADS + WAITS))


def when_ready(server: Any) -> None:
    """Store this server's configuration in the database, now that the port is bound."""
    with exit_on_error():
        startup.apply_configuration(server.app.callable, server.secrets, threads_without_waits(server.cfg))


def on_reload(server: Any) -> None:
    """Read the configuration and its secrets again, on SIGHUP; after an error, nothing changes."""
    before = db.database
    try:
        with exit_on_error():
            app = create_app()
            if db.database != before:
                raise LookupError("server.database: a reload cannot change it; restart the service")
            secrets = startup.read_secrets(app.config)
            threads = threads_without_waits(server.cfg)
            startup.apply_configuration(app, secrets, threads, is_reload=True)
    except (SystemExit, Exception) as error:
        db.init(before, timeout=LOCK_SECONDS)
        is_bug = not isinstance(error, SystemExit)
        server.log.error("Nothing is reloaded. %s", error, exc_info=is_bug)
    else:
        server.app.callable = app
        server.log.info("The configuration and its secrets have been read again.")


def post_request(worker: Worker, request: Any, environ: dict, response: Any) -> None:
    """End the request after its response. Without this reference to `environ`, it is freed at once."""
    if answered := environ.pop("tasks.request", None):
        answered.end()


def pre_fork(server: Any, worker: Worker) -> None:
    """Choose the worker's segment of the metrics, and the core that fewest living workers have."""
    used = {other.segment for other in server.WORKERS.values()}
    worker.segment = min({*range(metrics.segments)} - used, default=0)  # further workers share one
    with contextlib.suppress(AttributeError):  # not Linux
        cores, taken = sorted(os.sched_getaffinity(0)), [other.core for other in server.WORKERS.values()]
        start = server.pid % len(cores)  # spreads several servers on one machine over its cores
        worker.core = min(cores[start:] + cores[:start], key=taken.count)


def post_fork(server: Any, worker: Worker) -> None:
    """Let SIGTERM end a worker at once until gunicorn has set its handlers.

    The inherited handler of the master would only note the signal, and a stop take `graceful_timeout`.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def post_worker_init(worker: Worker) -> None:
    """Set the worker's segment of the metrics and its core, keep threads for reads, start the sweeper."""
    metrics.use(worker.segment)
    if PIN_WORKERS:
        # Affinity belongs to the thread, and the threads of the pool, which starts later, inherit it.
        with contextlib.suppress(AttributeError, OSError):  # not Linux, or not allowed
            os.sched_setaffinity(0, {worker.core})
    waits.most = worker.cfg.threads - threads_without_waits(worker.cfg)
    write_turn.most = max(threads_without_waits(worker.cfg) // 2, 1)
    if worker.wsgi.config["DELIVERY"]["sweeper"]:
        worker.sweeper = startup.start_sweeper(worker.wsgi)
    worker.wsgi.is_served_by_gunicorn = True
    for begin in worker.wsgi.workers:
        begin(worker)


def worker_exit(server: Any, worker: Worker) -> None:
    """Let the sweeper finish its current deliveries."""
    metrics.busy(0)
    if sweeper := getattr(worker, "sweeper", None):
        sweeper.stop()


def on_exit(server: Any) -> None:
    """Drop log lines that a full disk refused; Python would write them again, and exit with code 120."""
    try:
        if sys.stderr:  # it may be closed
            sys.stderr.flush()
    except OSError:
        sys.stderr = None
