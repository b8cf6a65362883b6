"""Make up secrets, and search for them in everything that can be read."""

import contextlib
import re
import string
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

from findings import Run

from members import KEY_PREFIX

LEAST = 12  # characters in a row that are a trace of a secret


def pieces(secret: str) -> Iterator[bytes]:
    """Yield the traces of a secret: each piece of it as it is, in hex and in base64.

    A piece consists of letters and digits, which look the same in URLs, JSON and HTML. The first 12
    characters of a key may be shown: they are its prefix.
    """
    raw = secret.encode()
    for start in range(LEAST // 2 if secret.startswith(KEY_PREFIX) else 0, len(raw) - LEAST + 1):
        piece = raw[start : start + LEAST]
        yield from (piece, piece.hex().encode(), b64encode(piece), urlsafe_b64encode(piece))


class Hunt:
    """The secrets that are placed, and the texts that are searched for them."""

    def __init__(self, run: Run):
        self.run = run
        self.secrets: dict[str, str] = {}  # by name
        # By name: the beginnings of the names of the texts that may contain the secret.
        self.places: dict[str, tuple[str, ...]] = {}
        self.texts: list[tuple[str, bytes]] = []  # with their names

    def place(self, name: str, *places: str, text: str = "", is_key: bool = False) -> str:
        """Return the secret of this name. If it is new, its value is `text`, or else made up."""
        if name not in self.secrets:
            letters = self.run.random.choices(string.ascii_letters + string.digits, k=43)
            self.secrets[name] = text or (KEY_PREFIX if is_key else "") + "".join(letters)
            self.places[name] = places
        return self.secrets[name]

    def fill(self, text: str, name: str = "") -> str:
        """Return the text with secrets in place of `<<name>>`. `<<>>` becomes the secret `name`."""
        return re.sub("<<(.*?)>>", lambda match: self.place(match[1] or name), text)

    def read(self, name: str, text: bytes | str) -> None:
        """Add a text to the search."""
        self.texts.append((name, text if isinstance(text, bytes) else text.encode(errors="replace")))

    def read_files(self, name: str, folder: Path, pattern: str = "*") -> None:
        """Add files and their names to the search."""
        for path in folder.glob(pattern):
            if path.is_file():
                self.read(name, f"{path.name}\n".encode() + path.read_bytes())

    def read_processes(self, pids: list[int]) -> None:
        """Add everything that any user of the machine sees of these processes to the search."""
        for pid in pids:
            for file in ("cmdline", "comm", "status"):
                with contextlib.suppress(OSError):  # it has ended
                    self.read("title of a process", Path(f"/proc/{pid}/{file}").read_bytes())

    def hits(self) -> Iterator[tuple[str, str]]:
        """Yield the name of a secret and the name of a text, for each text that contains a trace of it."""
        names = {piece: name for name, secret in self.secrets.items() for piece in pieces(secret)}
        sizes = {len(piece) for piece in names}
        for name, text in self.texts:
            parts = {text[start : start + size] for size in sizes for start in range(len(text))}
            for secret in {names[piece] for piece in parts & names.keys()}:
                yield secret, name

    def report(self) -> None:
        """Write the figures, and a fault for each secret in a forbidden place."""
        hits = set(self.hits())
        shown = {hit for hit in hits if hit[1].startswith(self.places[hit[0]] or ("nowhere",))}
        for secret, name in sorted(hits - shown):
            self.run.fault(f"{secret} is in: {name}")
        expected = {secret for secret, places in self.places.items() if places}
        found = expected & {secret for secret, _ in shown}
        for secret in sorted(expected - found):
            self.run.fault(f"{secret} was not found where it is shown: the search sees nothing there")
        leaks, size = len(hits - shown), sum(len(text) for _, text in self.texts)
        searched = f"{len(self.secrets)} in {len(self.texts)} texts, {size / 1e6:.1f} MB"
        self.run.found("G17", "secrets searched for in all that can be read", searched)
        self.run.found("G17", "secrets found where they may not be", leaks, "0", kept=not leaks)
        self.run.found("G17", "secrets found where they are shown", f"{len(found)} of {len(expected)}")
