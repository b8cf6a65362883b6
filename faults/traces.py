"""Canaries: made-up secrets, and the search for them in everything that can be read."""

import base64
import contextlib
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from findings import Run

from models import KEY_PREFIX

LEAST = 12  # characters of a secret in a row that are a hit
SHOWN = 12  # the first characters of a key are its prefix, which is stored and shown
STEP = 6  # any `LEAST` characters hold one of the groups of so many whole


@dataclass(frozen=True)
class Canary:
    """A secret, and how the names of the texts begin that may hold it."""

    name: str
    text: str
    places: tuple[str, ...] = ()

    def trace(self, text: bytes) -> str:
        """How the text holds it; "" if it does not.

        Letters and digits are the same in URLs, JSON and HTML.
        """
        raw = self.text.encode()
        if most := max(self._run(text, raw, start) for start in range(0, len(raw) - STEP + 1, STEP)):
            return f"{most} of its {len(raw)} characters"
        if any(piece in text for piece in _pieces(raw.hex().encode(), 2 * LEAST)):
            return "in hex"
        return "in base64" if any(piece in text for piece in _base64(raw)) else ""

    def _run(self, text: bytes, raw: bytes, start: int) -> int:
        """The length of the longest part around this group that the text holds, if it tells too much."""
        shown = SHOWN if self.text.startswith(KEY_PREFIX) else 0
        longest, at = 0, text.find(raw[start : start + STEP])
        while at >= 0:
            first, last = start, start + STEP
            while first and text[at - 1 : at] == raw[first - 1 : first]:
                first, at = first - 1, at - 1
            end = at + last - first
            while last < len(raw) and text[end : end + 1] == raw[last : last + 1]:
                last, end = last + 1, end + 1
            if last - first >= LEAST and last - shown >= LEAST // 2:
                longest = max(longest, last - first)
            at = text.find(raw[start : start + STEP], end)
        return longest


def _pieces(text: bytes, size: int) -> list[bytes]:
    return [text[start : start + size] for start in range(0, len(text) - size + 1, size)]


def _base64(raw: bytes) -> list[bytes]:
    """Pieces of each base64 in which the secret may be, after any number of other bytes."""
    pieces = []
    for before, mixed in ((0, 0), (1, 2), (2, 3)):  # the first characters hold other bytes too
        encoded = base64.b64encode(bytes(before) + raw)[mixed : 8 * (before + len(raw)) // 6]
        pieces += _pieces(encoded, 16) + _pieces(encoded.translate(bytes.maketrans(b"+/", b"-_")), 16)
    return pieces


class Hunt:
    """The canaries that are placed, and the texts that are searched for them."""

    def __init__(self, run: Run):
        self.run = run
        self.canaries: dict[str, Canary] = {}
        self.texts: list[tuple[str, bytes]] = []

    def place(self, name: str, *places: str, text: str = "", is_key: bool = False) -> str:
        """The secret of this name: what is given, or else a new one."""
        if name not in self.canaries:
            letters = self.run.random.choices(string.ascii_letters + string.digits, k=43)
            text = text or (KEY_PREFIX if is_key else "") + "".join(letters)
            self.canaries[name] = Canary(name, text, places)
        return self.canaries[name].text

    def fill(self, text: str, name: str = "", places: tuple[str, ...] = ()) -> str:
        """The text with secrets in place of `<<name>>`, and of `<<>>` one with the name that is given.

        A secret `<<name|shown>>` may be in these places.
        """

        def place(match: re.Match) -> str:
            named, _, is_shown = match[1].partition("|")
            return self.place(named or name, *(places if is_shown else ()))

        return re.sub("<<(.*?)>>", place, text)

    def read(self, name: str, text: bytes | str) -> None:
        """Have this text searched."""
        self.texts.append((name, text if isinstance(text, bytes) else text.encode(errors="replace")))

    def read_files(self, name: str, folder: Path, pattern: str = "*") -> None:
        """Have files and their names searched."""
        for path in folder.glob(pattern):
            if path.is_file():
                self.read(name, f"{path.name}\n".encode() + path.read_bytes())

    def read_processes(self, pids: list[int]) -> None:
        """Have that searched which any user of the machine sees of these processes."""
        for pid in pids:
            for file in ("cmdline", "comm", "status"):
                with contextlib.suppress(OSError):  # it has ended
                    self.read("title of a process", Path(f"/proc/{pid}/{file}").read_bytes())

    def hits(self) -> Iterator[tuple[Canary, str, str]]:
        """Each canary with the name of a text that holds it, and how."""
        for canary in self.canaries.values():
            for name, text in self.texts:
                if trace := canary.trace(text):
                    yield canary, name, trace

    def report(self) -> None:
        """Write the figures, and a fault for each secret in a place where it may not be."""
        allowed: set[str] = set()
        leaks: dict[tuple[str, str], str] = {}
        for canary, name, trace in self.hits():
            if name.startswith(canary.places or ("nowhere",)):
                allowed.add(canary.name)
            else:
                leaks.setdefault((canary.name, name), trace)
        for (canary_name, name), trace in leaks.items():
            self.run.fault(f"{canary_name} is in: {name} ({trace})")
        expected = {canary.name for canary in self.canaries.values() if canary.places}
        for missing in sorted(expected - allowed):
            self.run.fault(f"{missing} was not found where it is shown: the search sees nothing there")
        size = sum(len(text) for _, text in self.texts)
        searched = f"{len(self.canaries)} in {len(self.texts)} texts, {size / 1e6:.1f} MB"
        self.run.found("G17", "secrets searched for in all that can be read", searched)
        self.run.found("G17", "secrets found where they may not be", len(leaks), "0", kept=not leaks)
        self.run.found("G17", "secrets found where they are shown", f"{len(allowed)} of {len(expected)}")
