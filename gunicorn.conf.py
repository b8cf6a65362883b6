"""How gunicorn serves: all that knows it, but for `app.read_body`."""

import contextlib
import logging
import os
import sys
from pathlib import Path

import click

import commands
import gateway
import webhooks
from app import create_app
from models import BadDatabase, StoredAnswer, db, hold

wsgi_app = "app:create_app()"
bind = f"127.0.0.1:{os.environ.get('PORT', '8000')}"
workers = int(os.environ.get("WEB_CONCURRENCY", "1"))
worker_class = "gthread"
threads = 16
graceful_timeout = 30
keepalive = 15
forwarder_headers = ""  # or else a client could send SCRIPT_NAME through a proxy on this machine
control_socket_disable = True
# Each worker keeps to one core, where its threads do not fight for the interpreter's lock.
pin = os.environ.get("PIN_WORKERS", "1") != "0"


CHORES = (webhooks.prune, gateway.prune, StoredAnswer.prune)


def on_starting(server):
    """Check everything before a port is bound; what is wrong is said in one line."""
    try:
        app = create_app()
        server.held = hold()  # by all workers, as long as one of them lives
        made = commands.start(app.config)
        left = commands.note_webhooks(app.config)
    except click.ClickException as error:
        sys.exit(f"Error: {error.format_message()}")
    except BadDatabase as error:
        sys.exit(f"Error: {error}")
    for name in left:
        server.log.warning("webhook %s is no longer in the configuration; what waits for it is parked", name)
    db.close()  # before the fork: a connection must not be shared
    if made:
        server.log.info("The first owner is %s, with the key of the configuration", made[0]["email"])


def on_reload(server):
    """Check again before new workers read the configuration; what is wrong ends the service."""
    on_starting(server)


def post_worker_init(worker):
    """Pin the worker, let it know its webhook receivers, and start its sweeper."""
    if pin:
        _pin(worker)
    logger = logging.getLogger("tasks")
    logger.handlers = worker.log.error_log.handlers
    logger.setLevel(logging.INFO)
    logger.propagate = False
    config = worker.wsgi.config
    gateway.open_routes(config)
    webhooks.configure(gateway.resolve_hooks(config), config["DELIVERY"], worker.cfg.threads)
    if config["DELIVERY"]["sweeper"]:
        worker.sweeper = webhooks.Sweeper(Path(f"{db.database}.sender"), CHORES)
        worker.sweeper.start()


def worker_exit(server, worker):
    """Let the sweeper finish what it is sending."""
    if sweeper := getattr(worker, "sweeper", None):
        sweeper.stop()


def _pin(worker):
    # Before the pool starts: affinity belongs to the thread, and is inherited. The master's id
    # spreads several servers on one machine over its cores.
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or not allowed: it works unpinned
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[(worker.ppid + worker.age) % len(cores)]})
