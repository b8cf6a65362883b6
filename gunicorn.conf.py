"""The settings of gunicorn, and the hooks that it calls, which are in server.py."""

import os

import server
from limits import THREADS, WAITS

wsgi_app = "app:create_app()"
bind = f"127.0.0.1:{server.number('PORT', '8000', 65535)}"
workers = server.number("WEB_CONCURRENCY", "1", 1000)  # gunicorn reads it before, and accepts any number
worker_class = server.Worker
threads = THREADS + WAITS
http_parser = "python"  # `Worker.handle_error` handles its errors; the setting's default may change
worker_connections = 500
graceful_timeout = 30
keepalive = 15
limit_request_field_size = 16 * 1024  # bytes: a proxy that signs people in may send 12 KB of cookies
# For the files by which the master sees that workers are alive. A disk may block, or be read-only.
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
forwarder_headers = ""  # otherwise a client could send SCRIPT_NAME through a proxy on this machine
control_socket_disable = True
# For an operator who enables gunicorn's access log. Some clients send an API key in the query, the referrer
# or the user name, so these are left out.
access_log_format = '%(h)s - - %(t)s "%(m)s %(U)s %(H)s" %(s)s %(b)s "-" "%(a)s"'

# The hooks, which gunicorn finds by these names.
on_starting, when_ready, on_reload = server.on_starting, server.when_ready, server.on_reload
pre_fork, post_fork, post_worker_init = server.pre_fork, server.post_fork, server.post_worker_init
post_request, worker_exit, on_exit = server.post_request, server.worker_exit, server.on_exit
