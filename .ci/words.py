"""Refuse wording that makes a reader stop: `python .ci/words.py [FILES]` prints file:line and the words.

A sentence names its actor ("The caller …", not "Who …"), repeats its noun (not "that of"), and uses a precise
verb ("is notified", "is logged", not "is told"). There are no exceptions: rewrite the sentence.
"""

import re
import subprocess
import sys
from pathlib import Path

OUTSIDE = (
    "migrations",  # released migrations never change
    "tests/exports",  # data of other programs
    ".ci/words.py",  # lists the words
)
FILES = (".", *(f":(exclude){name}" for name in OUTSIDE))
READ = (".md", ".toml", ".py", ".js", ".html", ".css", ".conf", "file", ".yaml", ".yml", ".service", "tasks")
VENDORED = ("preact.js", "marked.js", "VENDORED.md")
WORDS = (
    "(?:is|are|was|were|be|been|being) told|that of|those of|so many|of which|of whom|stands? in|for ever"
    "|there (?:is|are) none|(?:has|have) no such|one's own|oneself|as it is asked for|go(?:es)? on to work"
    "|(?:who|that|which) (?:is|are|was|were) no(?! longer| more| fewer| less)"
)
GAP = r"(?:\s|\n\s*(?:#|\*|//)\s?)+"  # words of one sentence may be on two lines of a comment
PHRASE = re.compile(rf"\b(?:{WORDS.replace(' ', GAP)})\b", re.IGNORECASE)
# "Who" or "What" begins a sentence that is not a question; a heading of Markdown may begin with it.
BEGIN = r'(?:[.:;!]\s+|"""|\n\n|(?<!#)\* |\| {})(?:Who|What)(?:ever)?\b(?=\s)(?! you\b|[^.?!"|]*\?)'


def found(file: Path) -> list[tuple[int, str]]:
    """Return the line and the words of each place in this file that has to be written again."""
    text = file.read_text(encoding="utf-8")
    begin = re.compile(BEGIN.replace("{}", "" if file.suffix == ".md" else r"|# |// |>\s*"))
    matches = [*PHRASE.finditer(text), *begin.finditer(text)]
    places = [(text.count("\n", 0, match.end()) + 1, " ".join(match[0].split())) for match in matches]
    return sorted(places)


if __name__ == "__main__":
    listed = subprocess.run(["git", "ls-files", *FILES], capture_output=True, text=True, check=True)  # noqa: S603, S607
    names = sys.argv[1:] or [name for name in listed.stdout.split() if name.endswith(READ)]
    names = [name for name in names if not name.endswith(VENDORED)]
    places = [f"{name}:{line}: {words}" for name in names for line, words in found(Path(name))]
    sys.exit("\n".join(places) or 0)
