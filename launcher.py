"""The installed program, `tasks COMMAND`, for a workspace in the folder where it is called.

The wheel contains the modules in a folder, which is not part of their names.
"""

import sys
from pathlib import Path

import click
from flask.cli import ScriptInfo


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import settings

    settings.program, settings.folder = "tasks", Path()  # before `commands` reads them
    from app import create_app
    from commands import register
    from throwaway import throwaway

    text = "Task management for a small team. `init` creates a workspace in this folder, `serve` serves it."
    register(tasks := click.Group(help=text))
    tasks.add_command(throwaway)
    tasks(obj=ScriptInfo(create_app=create_app), prog_name="tasks")
