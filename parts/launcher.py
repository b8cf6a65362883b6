"""The installed program, `tasks COMMAND`, for a workspace in the folder where it is called.

The wheel contains the modules in a folder, which is not part of their names.
"""

import sys
from pathlib import Path

from flask.cli import ScriptInfo


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import settings

    settings.program, settings.folder = "tasks", Path()  # before `commands` reads them
    from app import create_app, parts
    from commands import cli

    parts()
    cli(obj=ScriptInfo(create_app=create_app), prog_name="tasks")
