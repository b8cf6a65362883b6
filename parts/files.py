"""The commands `import` and `export`, for a workspace's tasks as files."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any
from zoneinfo import ZoneInfo

import click
from flask import current_app

import models
import times
from commands import as_click_errors, as_option, cli, exit_on_sigterm, fetch_actor, in_database
from database import LOCK_SECONDS, db
from parts import formats, transfer
from store import backup

FOLDER = click.Path(file_okay=False, path_type=Path)


@contextmanager
def copied() -> Iterator[None]:
    """Run the body on a copy of the database, which is deleted at the end; other writers need not wait."""
    path = db.database
    with TemporaryDirectory(prefix="tasks-") as folder:
        backup(Path(folder) / "tasks.db")
        db.disconnect()
        db.init(f"{folder}/tasks.db", timeout=LOCK_SECONDS)
        try:
            yield
        finally:
            db.disconnect()
            db.init(path, timeout=LOCK_SECONDS)


def words_of(_: Any, option: Any, pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the meaning of other words for statuses or priorities, or of other names for columns."""
    words, allowed = {}, transfer.CHOICES.get(option.name, ())
    for pair in pairs:
        word, _, value = pair.rpartition("=")
        if not (word and value) or (allowed and value not in allowed):
            choice = f" with one of {', '.join(allowed)}" if allowed else ""
            problem = f'"{pair}" must be NAME={option.name.upper()}{choice}'
            raise click.BadParameter(problem, param=option)
        words[transfer.word_of(word) if allowed else word] = value
    return words


@cli.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--apply", is_flag=True, help="Store the tasks; otherwise only a report is printed.")
@click.option("--project", help="The project of tasks that name none.")
@click.option("--files", type=FOLDER, help="The folder with the export's attachments.")
@click.option("--from", "program", type=click.Choice([*formats.PROGRAMS]), help="The file's program.")
@click.option("--status", multiple=True, callback=words_of, help='Such as "Doing=in_progress".')
@click.option("--priority", multiple=True, callback=words_of, help='Such as "P1=urgent".')
@click.option("--column", multiple=True, callback=words_of, help='Such as "Task Name=title".')
@click.option("--dates", type=click.Choice(["dmy", "mdy"]), help="How 03/04/2026 is read.")
@as_option
@in_database
def import_command(file: IO[bytes], apply: bool, program: str | None, email: str | None, **more: Any) -> None:
    """Import tasks from a file, all or none of them.

    The file is CSV, JSON lines, or another program's export. Neither members nor webhooks are notified.
    """
    actor = fetch_actor(email, "admin")
    times.zone = ZoneInfo(current_app.config["WORKSPACE"]["timezone"])
    more["most"] = current_app.config["LIMITS"]["max_attachment_bytes"]
    words, order, names = {name: more[name] for name in transfer.CHOICES}, more["dates"], more["column"]
    with as_click_errors(ValueError, RecursionError):
        text = transfer.decoded(file.read())
        try:
            if names and transfer.is_json(text):
                raise ValueError("--column is for CSV")
            if program:
                export = formats.Export(program, text, words, order, names, more["project"])
                lines, report, former = export.lines(), export.report, export.former
                vars(export).clear()  # frees the file, which takes as much memory as the lines
            else:
                lines, report, former = transfer.read(text, words, order, names), transfer.Report(), None
                if not (names or transfer.is_json(text)) and formats.suggestion(text, program):
                    raise ValueError("most of its columns would be left out")
        except ValueError as error:
            raise ValueError(formats.plain(f"{error}{formats.suggestion(text, program)}")) from error
        imported = transfer.Import(lines, report, former, **more)
    exit_on_sigterm()
    target = nullcontext() if apply and not report.problems else copied()
    with target, suppress(click.Abort), models.write(actor) as transaction:
        imported.store(transaction)
        if report.problems:
            raise click.Abort  # rolls the transaction back
    for line in report.lines():
        click.echo(formats.plain(line))
    if report.problems:
        raise click.ClickException(f"nothing is stored{formats.suggestion(text, program)}")
    click.echo("Stored." if apply else "Nothing is stored; --apply stores it.", err=True)


@cli.command("export")
@click.option("--format", "kind", type=click.Choice(["csv", "jsonl"]), default="csv", show_default=True)
@click.option("--files", type=FOLDER, help="The folder for the attachments (jsonl).")
@click.argument("file", type=click.File("w", encoding="utf-8"), default="-")
@in_database
def export_command(kind: str, files: Path | None, file: IO[str]) -> None:
    """Write all tasks to a file, or to standard output.

    CSV is for spreadsheets. JSON lines contain projects, milestones, comments and attachments too.
    """
    if files and kind == "csv":
        raise click.UsageError("--files needs --format jsonl")
    times.zone = ZoneInfo(current_app.config["WORKSPACE"]["timezone"])
    with as_click_errors(*((OSError,) if files else ())):  # click itself handles a closed pipe
        if files:
            files.mkdir(0o700, parents=True, exist_ok=True)
        write = transfer.write_csv if kind == "csv" else partial(transfer.write_json_lines, files=files)
        write(file)
