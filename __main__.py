"""The installed program, `tasks COMMAND`, for a workspace in the folder where it is called.

The wheel has this folder's files in a folder of their own, whose name is no part of the modules' names.
"""

import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import settings

    settings.program, settings.folder = "tasks", Path()
    import click  # `commands` reads `program`
    from flask.cli import ScriptInfo

    from app import create_app
    from commands import every_command

    text = "Task management for a small team; `init` makes a workspace in this folder, `serve` serves it."
    tasks = click.Group(help=text, commands=every_command())
    tasks(obj=ScriptInfo(create_app=create_app), prog_name="tasks")


if __name__ == "__main__":
    main()
