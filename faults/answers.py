"""Count the responses to generated requests by source and operation, and keep their faults."""

from collections import Counter

from findings import Run

REQUESTS = 15_000  # of the whole campaign


class Tally:
    """How many requests were sent, which operations succeeded, and the first fault of each kind."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()  # by source
        # Requests that succeeded, by source.
        self.accepted: Counter[str] = Counter()
        self.operations: set[str] = set()  # they have to succeed
        self.reached: set[str] = set()  # operations that succeeded
        self.faults: Counter[str] = Counter()  # by kind
        self.first: dict[str, str] = {}  # by kind

    def count(self, source: str, operation: str, *, ok: bool) -> None:
        """Count a response. `operation` is empty if the request matches no operation."""
        self.sent[source] += 1
        self.accepted[source] += ok
        if ok:
            self.reached.add(operation)

    def fault(self, kind: str, example: str) -> None:
        """Count a broken promise. Keep the first example of each kind."""
        print(kind, example)
        self.faults[kind] += 1
        self.first.setdefault(kind, " ".join(example.split())[:700])

    def report(self, run: Run) -> None:
        """Write the figures, and one fault of each kind."""
        total, least = self.sent.total(), run.count(REQUESTS)
        run.found("G4", "generated requests", total, f"≥ {least}", total >= least, is_speed=True)
        shares = [
            f"{source} {count} ({100 * self.accepted[source] / count:.0f} %)"
            for source, count in self.sent.items()
        ]
        run.found("G4", "of them by source (answered 2xx or 303)", "; ".join(shares))
        if not run.is_short:  # it reaches some operations only
            never = ", ".join(sorted(self.operations - self.reached)) or 0
            what = "operations that never succeeded"
            run.found("G4", what, never, "0", not never, is_speed=not run.left)
        broken = self.faults.total()
        run.found("G4", "answers ≥ 500, not JSON, or not as documented", broken, "0", not broken)
        for kind, times in self.faults.most_common(20):  # the log contains all of them
            run.fault(f"{self.first[kind]} ({times} times)")
