"""The answers to generated requests: counted by source and operation, and checked against the document."""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import requests
from findings import Run
from harness import Document, check_answer
from links import add_links

STATEFUL = "along links"  # the source whose cases use what was answered before
MOST_FAULTS = 20  # kinds of faults in the table; the log has them all


class FastDocument(Document):
    """The document of the tests, with validators that are fast enough for tens of thousands of answers."""

    def conforms(self, value, where, described):
        if "request" in where:  # a text is trimmed before its length is checked
            value = {name: text.strip() if isinstance(text, str) else text for name, text in value.items()}
        if where not in self.validators:
            schema = described["content"]["application/json"].get("schema", {})
            self.validators[where] = jsonschema_rs.Draft202012Validator(
                {"components": self.spec["components"], **schema}, validate_formats=True
            )
        problem = next(self.validators[where].iter_errors(value), None)
        assert problem is None, f"{where}: {str(problem)[:300]}"


class Tally:
    """What was sent and answered."""

    def __init__(self, base: str):
        self.document = FastDocument(f"{base}/api/v1")
        add_links(self.document.spec)
        self.cases: Counter[str] = Counter()  # by source
        self.accepted: Counter[str] = Counter()
        self.statuses: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)  # by source and operation
        self.faults: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def count(self, source: str, operation: str, status: int) -> None:
        """Count an answer; the operation is "" for what is none."""
        self.cases[source] += 1
        self.accepted[source] += 200 <= status < 300
        if operation:
            self.statuses[source, operation][status] += 1

    def fault(self, kind: str, example: str) -> None:
        """A broken promise; of each kind the first example is kept."""
        self.faults[kind] += 1
        self.first.setdefault(kind, " ".join(example.split())[:700])

    def examine(
        self,
        source: str,
        operation: str,
        answer: requests.Response,
        *checks: Callable[[], None],
        is_refusal: bool = False,
    ) -> bool:
        """Count an answer, check its status and what else the checks assert; returns whether it is sound.

        With `is_refusal`, it is one in spite of its status.
        """
        self.count(source, operation, 400 if is_refusal else answer.status_code)
        try:
            assert answer.status_code < 500, f"status {answer.status_code}"
            for check in checks:
                check()
        except (AssertionError, ValueError, LookupError) as problem:  # such as what is no JSON
            what = str(problem).split("\n")[0]
            body: Any = answer.request.body or b""
            sent = f"{answer.request.method} {answer.request.url} {body[:200]!r}"
            kind = f"{source}: {operation}: {what[:80] or 'another promise'}"
            self.fault(kind, f"{sent} -> {answer.status_code} {answer.text[:200]}: {what}")
            return False
        return True

    def documented(self, answer: requests.Response, path: str, method: str, *, envelope: bool) -> None:
        """Assert that the document has this answer to a request of this operation."""
        self.document.validate(answer, path, method.lower())
        if envelope:
            check_answer(answer)

    @property
    def reached(self) -> set[str]:
        """The operations that were answered 2xx."""
        return {name for (_, name), seen in self.statuses.items() if any(200 <= s < 300 for s in seen)}

    def report(self, run: Run) -> None:
        """Write the figures, and a fault of each kind."""
        total = sum(self.cases.values())
        target = f"≥ {run.count(50_000):,}".replace(",", " ")
        run.found("G4", "generated requests", total, target, total >= run.count(50_000), is_speed=True)
        parts = [
            f"{source} {count} ({100 * self.accepted[source] / count:.0f} %)"
            for source, count in self.cases.items()
        ]
        run.found("G4", "of them by source (answered 2xx)", "; ".join(parts))
        walked = {name: seen for (source, name), seen in self.statuses.items() if source == STATEFUL}
        most = len(walked) - sum(map(mostly_refused, walked.values()))
        run.found("G4", f"{STATEFUL}: operations answered 2xx in most cases", f"{most} of {len(walked)}")
        never = {name for _, name in self.statuses} - self.reached
        names, what = ", ".join(sorted(never)) or 0, "operations that were never answered 2xx"
        is_slow = total < run.count(50_000)  # too few requests to have come to each
        run.found("G4", what, names, "0", not never, is_speed=is_slow)
        broken = sum(self.faults.values())
        run.found("G4", "answers ≥ 500, not JSON, or not as documented", broken, "0", not broken)
        for kind, times in self.faults.most_common(MOST_FAULTS):
            run.fault(f"{self.first[kind]} ({times} times)")


def mostly_refused(seen: Counter[int]) -> bool:
    """Whether no more than half of an operation's cases were answered 2xx."""
    return 2 * sum(n for status, n in seen.items() if 200 <= status < 300) <= sum(seen.values())
