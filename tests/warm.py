"""Makes once what each program would make again: the statements, and the forms of the board.

The process from which programs are forked (`forks.py`) imports this. Programs get another environment.
"""

import os
from inspect import getattr_static
from types import SimpleNamespace

import app
from database import Base, statement
from parts import openapi
from wire import thread_local

app.parts()  # they declare tables


def make_statements(table):
    for inner in table.__subclasses__():
        make_statements(inner)
    for name in dir(table) if not table.__subclasses__() else ():
        if isinstance(getattr_static(table, name), statement):
            getattr(table, name)


make_statements(Base)
for name in [name for name in os.environ if name.startswith("TASKS_")]:
    del os.environ[name]
os.environ["TASKS_CONFIG"] = os.devnull
thread_local.request = SimpleNamespace(app=app.create_app())
openapi.form_schemas(thread_local.request.app.config["SERVER"]["base_url"])
