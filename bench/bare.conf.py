"""Run the bare application with the settings in the service's own gunicorn.conf.py."""

from pathlib import Path

wsgi_app = "bare:app"
pythonpath = str(Path(__file__).parent)
workers = 1
worker_class = "gthread"
threads = 16
worker_connections = 500
graceful_timeout = 30
keepalive = 15
forwarder_headers = ""
control_socket_disable = True
