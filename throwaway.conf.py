"""How gunicorn serves a workspace to throw away: as gunicorn.conf.py says, with what throwaway.py answers."""

import runpy
from pathlib import Path

from gunicorn.config import make_settings
from gunicorn.workers import gthread

from throwaway import Throwaway

CONF = runpy.run_path(str(Path(__file__).with_name("gunicorn.conf.py")))
globals().update((name, CONF[name]) for name in make_settings() & CONF.keys())
gthread.STOP_KEEPALIVE_LINGER = 0.0  # at a stop no client is about to send; else it takes 2 s


def post_worker_init(worker):
    CONF["post_worker_init"](worker)
    worker.wsgi.wsgi_app = Throwaway(worker)
