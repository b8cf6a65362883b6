"""The input of a part of the campaign, and its findings."""

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import Server, launcher


@dataclass(frozen=True)
class Finding:
    """A row of the table. `kept` says whether a promise was kept; `None` means that nothing was promised."""

    part: str
    # The goal's number in faults/README.md. Empty for a figure without a goal.
    goal: str
    what: str
    figure: str
    target: str = ""
    kept: bool | None = None
    # A slow or busy machine may miss this target. This is shown, but is not an error.
    is_speed: bool = False


class Run:
    """A part's share of the campaign: its folder, the amount of work, and the time.

    `scale` is 1 in the campaign, and less in the short form. Each finding is written to a file at once, so
    that it is not lost if the part does not end.
    """

    def __init__(self, part: str, folder: Path, seconds: float, scale: float, seed: int):
        self.part, self.folder, self.seconds, self.scale = part, folder, seconds, scale
        self.random = random.Random(f"{seed} {part}")
        self.seed = seed
        self.ends_at = time.monotonic() + seconds
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def is_short(self) -> bool:
        return self.scale < 1

    def count(self, full: int) -> int:
        """Return the part of `full` that has to be done: at least one."""
        return max(1, round(full * self.scale))

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self.ends_at - time.monotonic())

    def rounds(self, full: int) -> Iterator[int]:
        """Count from 0 up to `count(full)`, or until the time is over; at least once."""
        for number in range(self.count(full)):
            if number and not self.left:
                return
            yield number

    def found(
        self,
        goal: str,
        what: str,
        figure: object,
        target: str = "",
        kept: bool | None = None,
        *,
        is_speed=False,
    ) -> None:
        """Write a row of the table."""
        finding = Finding(self.part, goal, what, str(figure), target, kept, is_speed)
        with (self.folder / "findings.jsonl").open("a") as file:
            file.write(json.dumps(asdict(finding)) + "\n")

    def fault(self, what: str) -> None:
        """Write that a promise was broken, in one line."""
        self.found("", "fault", what, kept=False)

    @contextmanager
    def server(self, name: str = "server", *arguments: str, **settings: str) -> Iterator[Server]:
        """Start a server in a folder of its own, and stop it at the end."""
        folder = self.folder / name
        folder.mkdir()
        with contextmanager(launcher)(folder) as launch:
            yield launch(*arguments, **{"TASKS_LIMITS__TOOL_CALLS_PER_MINUTE": "0"} | settings)


def read_findings(folder: Path) -> list[Finding]:
    """Return the findings that a part wrote to its folder."""
    file = folder / "findings.jsonl"
    return [Finding(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
