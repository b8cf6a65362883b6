"""Summarize the results of runs: medians of alternating rounds, and tables."""

from collections.abc import Callable, Sequence
from statistics import median

from load import Result


class Summary:
    """The medians of some runs; latencies in milliseconds, `cpu` in microseconds a request."""

    def __init__(self, results: Sequence[Result]):
        rates = [result.rate for result in results]
        self.rate, self.least, self.most = median(rates), min(rates), max(rates)
        self.p50 = median(result.p50 for result in results)
        self.p99 = median(result.p99 for result in results)
        self.max = max(result.max for result in results)
        self.requests = sum(result.requests for result in results)
        self.refused = sum(result.refused for result in results)
        self.cpu = sum(result.cpu for result in results) / max(self.requests, 1) * 1e6

    def over(self, other: "Summary") -> float:
        """Return this throughput divided by the throughput of `other`."""
        return self.rate / other.rate if other.rate else 0.0

    def rates(self) -> list[str]:
        """Return the table cells of the throughput: the median, then the lowest and the highest."""
        return [f"{self.rate:.0f}", f"{self.least:.0f}–{self.most:.0f}"]


def alternate(runs: Sequence[Callable[[], Result]], rounds: int) -> list[Summary]:
    """Call the runs in turn, round after round, and return a summary of each."""
    results = [[run() for run in runs] for _ in range(rounds)]
    return [Summary(of_run) for of_run in zip(*results, strict=True)]


def at_least(value: float, target: float | None) -> str:
    """Return the table cell of a value: `0.78 ≥ 0.75` meets its target, `0.46 < 0.75` misses it."""
    return f"{value:.2f}" + ("" if target is None else f" {'≥' if value >= target else '<'} {target:.2f}")


def at_most(value: float, target: float | None) -> str:
    return f"{value:.1f}" + ("" if target is None else f" {'≤' if value <= target else '>'} {target:g}")


def markdown(title: str, headings: list[str], rows: list[list[str]]) -> str:
    """Return an aligned table in Markdown."""
    cells = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = ["-" * widths[0], *["-" * (width - 1) + ":" for width in widths[1:]]]
    lines = [f"\n### {title}\n"]
    for line in [headings, rule, *rows]:
        padded = [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join(lines)
