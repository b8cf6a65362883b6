"""How gunicorn serves: all that knows it, but for `app.read_body`."""

import contextlib
import logging
import os
import sys
from functools import partial
from pathlib import Path

import click
from peewee import DatabaseError

import commands
import gateway
import webhooks
from app import create_app
from models import BadDatabase, StoredAnswer, Unavailable, db, hold

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


@contextlib.contextmanager
def one_line():
    """What is wrong ends the service with one line."""
    try:
        yield
    except click.ClickException as error:
        sys.exit(f"Error: {error.format_message()}")
    except (BadDatabase, LookupError) as error:
        sys.exit(f"Error: {error}")


def on_starting(server):
    """Check everything before a port is bound."""
    logger = logging.getLogger("tasks")
    logger.handlers = server.log.error_log.handlers
    logger.setLevel(logging.INFO)
    logger.propagate = False
    with one_line():
        config = create_app().config
        hooks = commands.check_webhooks(config)
        prepare(server, config)
        learn(server, config, hooks)


def on_reload(server):
    """Check the configuration and its secrets again, before new workers serve with them."""
    with one_line():
        before = db.database
        config = create_app().config
        hooks = commands.check_webhooks(config)
        if db.database != before:
            prepare(server, config)
        learn(server, config, hooks)


def prepare(server, config):
    """Hold the database, for all workers, as long as one of them lives, and bring it into order."""
    server.held = hold()
    if made := commands.start(config):
        server.log.info("The first owner is %s, with the key of the configuration", made[0]["email"])


def learn(server, config, hooks):
    """Note the webhooks, and resolve all secrets for the workers: one that is made later needs none anew."""
    try:
        for name in commands.note_webhooks(config):
            server.log.warning("webhook %s is no longer configured; what waits for it is parked", name)
    except (Unavailable, DatabaseError) as error:  # a database that is busy is no wrong configuration
        server.log.error("the webhooks are as they were until the next reload: %s", error)
    webhooks.configure(hooks, config["DELIVERY"], server.cfg.threads)
    gateway.open_routes(config)
    db.close()  # before the fork: a connection must not be shared


def post_worker_init(worker):
    """Pin the worker, and start its sweeper."""
    if pin:
        _pin(worker)
    if worker.wsgi.config["DELIVERY"]["sweeper"]:
        chores = (*CHORES, partial(commands.prune_activity, worker.wsgi.config))
        worker.sweeper = webhooks.Sweeper(Path(f"{db.database}.sender"), chores)
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
