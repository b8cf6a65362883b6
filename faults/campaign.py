"""Run the campaign of faults on real servers and receivers, and print one table.

README.md beside this file describes each part, and shows the latest figures. The exit code is 1 if a promise
was broken, never because something is slow.
"""

import argparse
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from findings import Finding, Run, read_findings
from harness import ROOT, Server


class Part(NamedTuple):
    """A module of this folder. Its `run(run)` takes `seconds` of the campaign."""

    seconds: float
    short: float  # seconds of the short form
    is_alone: bool = False  # nothing else runs meanwhile


# Two parts run side by side, but a part that measures times runs alone.
PARTS = {
    "endurance": Part(100, 2, is_alone=True),
    "generated": Part(185, 8),
    "crashes": Part(110, 6),
    "network": Part(80, 5),
    "storage": Part(60, 4),
    "roles_model": Part(50, 2),
    "agents": Part(30, 8),
    "copies": Part(40, 3),
    "canary": Part(30, 10),
    "undone": Part(30, 4),
    "upgrades": Part(20, 3),
    "clock": Part(10, 2),
}
# The length of the whole campaign. The parts get the seconds above.
MINUTES = 8.0
SHORT_SCALE = 0.01
# A part that does not end is ended after this many more seconds.
GRACE = 60.0
SIDE_BY_SIDE = 2
SHORT_SIDE_BY_SIDE = 4  # each mostly waits


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--short", action="store_true", help="a small part of everything, in 40 s")
    add("--minutes", type=float, default=MINUTES, help="about how long it takes (%(default)g)")
    add("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)} (%(default)s)")
    add("--seed", type=int, default=None, help="repeats the choices of a campaign that printed it")
    add("--keep", type=Path, help="a folder in which databases, logs and findings stay")
    add("--output", type=Path, help="a file to which the table is written too")
    # The campaign runs each part in a process of its own.
    add("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.parts = [name for name in options.parts.split(",") if name]
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))}: not one of {', '.join(PARTS)}")
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(3))
    return options


def share(options: argparse.Namespace, name: str) -> tuple[float, float]:
    """Return the seconds that a part gets, and its scale."""
    if options.short:
        return PARTS[name].short, SHORT_SCALE
    return PARTS[name].seconds * options.minutes / MINUTES, options.minutes / MINUTES


def do_part(options: argparse.Namespace) -> None:
    """Run one part in this process."""
    Server.forks = options.short  # as in the tests: imports would take a third of the short form's time
    seconds, scale = share(options, options.part)
    import_module(options.part).run(Run(options.part, options.keep, seconds, scale, options.seed))


class Campaign:
    """The parts as processes, each with a folder and a log, and their findings."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        self.processes: list[subprocess.Popen] = []

    def do(self, name: str) -> list[Finding]:
        """Run a part and return its findings. A failure or a timeout of the process is a fault."""
        folder, seconds = self.folder / name, share(self.options, name)[0]
        folder.mkdir(parents=True)
        words = [sys.executable, __file__, "--part", name, "--keep", folder, "--seed", self.options.seed]
        words += ["--minutes", self.options.minutes, *(["--short"] if self.options.short else [])]
        log, started = folder / "log.txt", time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen([str(word) for word in words], cwd=ROOT, stdout=output, stderr=output)
        self.processes.append(process)
        said = ""
        try:
            code = process.wait(2 * seconds + GRACE)
            said = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            said = f"did not end within {2 * seconds + GRACE:.0f} s"
            self.end(process)
        found = read_findings(folder)
        if said:
            last = " ".join(log.read_text(errors="replace").split("\n")[-4:]).strip()
            found.append(Finding(name, "", "fault", f"{said}: {last[-300:]}", kept=False))
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
        return found

    def do_all(self) -> list[Finding]:
        """Run the parts, the longest first."""
        names = sorted(self.options.parts, key=lambda name: share(self.options, name)[0], reverse=True)
        alone = [name for name in names if PARTS[name].is_alone]
        found = [finding for name in alone for finding in self.do(name)]
        lanes = SHORT_SIDE_BY_SIDE if self.options.short else SIDE_BY_SIDE
        with ThreadPoolExecutor(lanes) as pool:
            rest = [pool.submit(self.do, name) for name in names if name not in alone]
            try:
                return found + [finding for part in rest for finding in part.result()]
            # Otherwise the pool would wait for all parts.
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.end_all()
                raise

    def end(self, process: subprocess.Popen) -> None:
        """End a part. It ends its servers itself."""
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def end_all(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                self.end(process)


def heading(seed: int) -> str:
    """Return the machine, the versions, the date and the commit."""
    processor = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
    packages = ("Flask", "peewee", "gunicorn", "requests", "schemathesis", "hypothesis")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"{processor}, {os.cpu_count()} cores. Python {platform.python_version()}, {versions}, "
        f"SQLite {sqlite3.sqlite_version}. {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, "
        f"commit {commit or 'unknown'}, seed {seed}."
    )


def table(found: Iterable[Finding]) -> str:
    """Return the findings in Markdown."""
    words = {True: "yes", False: "**no**", None: ""}
    rows = [("part", "goal", "what", "figure", "target", "met"), ("---",) * 6]
    for f in found:
        met = "no (speed)" if f.is_speed and f.kept is False else words[f.kept]
        rows.append((f.part, f.goal, f.what, f.figure, f.target, met))
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def main() -> int:
    """Run the campaign, and print its table."""
    options = arguments()
    # An exception, so that every process is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.part:
        do_part(options)
        return 0
    with TemporaryDirectory(prefix="faults-") as temporary:
        campaign = Campaign(options, options.keep or Path(temporary))
        started = time.monotonic()
        try:
            found = campaign.do_all()
        finally:
            campaign.end_all()
    faults = [finding for finding in found if finding.kept is False and not finding.is_speed]
    text = f"{heading(options.seed)}\n\n{table(found)}\n"
    text += f"\n{time.monotonic() - started:.0f} s. Promises broken: {len(faults) or 'none'}."
    print(f"\n{text}")
    if options.output:
        options.output.write_text(text + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
