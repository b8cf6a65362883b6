"""What a part of the campaign is given, and what it finds."""

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
    """A figure of the table. `kept` is whether a promise was kept, `None` where nothing was promised."""

    part: str
    goal: str  # its number in the table of goals in faults/README.md; empty for a figure without one
    what: str
    figure: str
    target: str = ""
    kept: bool | None = None
    is_speed: bool = False  # a target that a slow or busy machine misses: shown, but no error


class Run:
    """A part's share of the campaign: its folder, how much it does, and until when.

    `scale` is 1 in the campaign, and less in the short form. What a part finds is written to a file at
    once, so that it is not lost if the part does not end.
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
        """How many of so many are to be done: at least one."""
        return max(1, round(full * self.scale))

    @property
    def left(self) -> float:
        """The seconds that are left."""
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
        """Write a figure to the table."""
        finding = Finding(self.part, goal, what, str(figure), target, kept, is_speed)
        with (self.folder / "findings.jsonl").open("a") as file:
            file.write(json.dumps(asdict(finding)) + "\n")

    def fault(self, what: str) -> None:
        """Write that a promise was broken, in one line."""
        self.found("", "fault", what, kept=False)

    @contextmanager
    def server(self, name: str = "server", *arguments: str, **settings: str) -> Iterator[Server]:
        """A server in a folder of its own, which is ended at last."""
        folder = self.folder / name
        folder.mkdir()
        with contextmanager(launcher)(folder) as launch:
            yield launch(*arguments, **{"TASKS_LIMITS__TOOL_CALLS_PER_MINUTE": "0"} | settings)


def read_findings(folder: Path) -> list[Finding]:
    """What a part has written to its folder."""
    file = folder / "findings.jsonl"
    return [Finding(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
