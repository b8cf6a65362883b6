"""The figures of the service for Prometheus, which all workers count in memory that they share.

The master makes the memory before it forks, and each worker adds to a part of its own. With files, as
`prometheus-client` uses, a full disk would end the process: they are written through a memory map.
"""

import mmap
import shutil
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

from database import db
from members import Member
from outbox import Delivery, Webhook
from schemas import VERSION
from settings import without_paths
from store import backup_age, database_age
from times import now, seconds_since

CLASSES = ("2xx", "3xx", "4xx", "5xx")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
RESULTS = ("delivered", "refused", "failed")
MOST = {"route": 128, "webhook": 64}  # names; routes and webhooks beyond these are counted as `OTHER`
OTHER = "other"
# The cells of a part: four, then cells for each route (classes, buckets, sum of seconds) and each webhook.
BUSY, UNAVAILABLE, MAILED, UNMAILED, FIRST_ROUTE = 0, 1, 2, 3, 4
OF_ROUTE, OF_WEBHOOK = len(CLASSES) + len(BUCKETS) + 2, len(RESULTS)
FIRST_WEBHOOK = FIRST_ROUTE + MOST["route"] * OF_ROUTE
SIZE = FIRST_WEBHOOK + MOST["webhook"] * OF_WEBHOOK

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Labels = Mapping[str, str]


class Figures:
    """The memory, this process's part of it, and the first cell of each route and webhook in a part."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # for threads that add to the part
        self.routes: dict[str, tuple[int, Labels]] = {}  # the first cell and the labels, by endpoint
        self.webhooks: dict[str, int] = {}  # the first cell, by name
        self.share(1)

    def share(self, workers: int) -> None:
        """Make memory for this number of workers, and for as many that replace them at a reload."""
        self.parts = 2 * workers
        self.memory = memoryview(mmap.mmap(-1, self.parts * SIZE * 8)).cast("d")
        self.use(0)

    def use(self, number: int) -> None:
        """Add to this part from now on; a worker that was killed may have used it before."""
        self.part = self.memory[number * SIZE : (number + 1) * SIZE]
        self.busy(0)

    def busy(self, requests: int) -> None:
        """Note how many requests this process is answering."""
        self.part[BUSY] = requests

    def name_routes(self, routes: Mapping[str, Labels]) -> None:
        """Count each of these endpoints separately, with its labels."""
        named = [(OTHER, {"method": "", "route": OTHER}), *routes.items()][: MOST["route"]]
        cells = range(FIRST_ROUTE, FIRST_WEBHOOK, OF_ROUTE)
        self.routes = {name: (cell, labels) for cell, (name, labels) in zip(cells, named, strict=False)}

    def name_webhooks(self, names: Iterable[str]) -> None:
        """Count each of these webhooks separately; earlier ones keep their cells, which workers may use."""
        for name in (OTHER, *map(without_paths, names)):
            if len(self.webhooks) < MOST["webhook"]:
                self.webhooks.setdefault(name, FIRST_WEBHOOK + len(self.webhooks) * OF_WEBHOOK)

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        part, cell = self.part, (self.routes.get(endpoint) or self.routes[OTHER])[0]
        bucket, total = cell + len(CLASSES) + bisect_left(BUCKETS, seconds), cell + OF_ROUTE - 1
        with self.lock:  # or two threads that read the same value would count one request
            part[cell + status // 100 - 2] += 1
            part[bucket] += 1
            part[total] += seconds
            if status == 503:
                part[UNAVAILABLE] += 1

    def attempted(self, webhook: str, result: str) -> None:
        cell = self.webhooks.get(without_paths(webhook)) or self.webhooks[OTHER]
        with self.lock:
            self.part[cell + RESULTS.index(result)] += 1

    def mailed(self, is_taken: bool) -> None:
        with self.lock:
            self.part[MAILED if is_taken else UNMAILED] += 1

    def totals(self) -> list[float]:
        """Return the cells of a part, summed over all parts."""
        cells = self.memory.tolist()
        return [sum(cells[cell::SIZE]) for cell in range(SIZE)]


figures = Figures()
figures.name_routes({})
figures.name_webhooks(())


def exposition() -> str:
    """Return all figures in the text format of Prometheus."""
    return "".join(f"{line}\n" for line in _lines(figures.totals()))


def _lines(cells: list[float]) -> Iterator[str]:
    yield from _family("info", "gauge", "The version that serves.", [({"version": VERSION}, 1)])
    used = [(labels, cells[at : at + OF_ROUTE]) for at, labels in figures.routes.values()]
    used = [(labels, row) for labels, row in used if any(row)]
    classes = [
        ({**labels, "status": name}, n) for labels, row in used for name, n in zip(CLASSES, row, strict=False)
    ]
    yield from _family("requests_total", "counter", "Requests that were answered.", classes)
    yield from _family("request_seconds", "histogram", "Time until an answer began.", [])
    for labels, row in used:
        sums = list(accumulate(row[len(CLASSES) : -1]))
        for most, count in zip((*map(str, BUCKETS), "+Inf"), sums, strict=True):
            yield _sample("request_seconds_bucket", {**labels, "le": most}, count)
        yield _sample("request_seconds_sum", labels, row[-1])
        yield _sample("request_seconds_count", labels, sums[-1])
    yield from _single("unavailable_total", "counter", "Answers with 503.", cells[UNAVAILABLE])
    yield from _single("busy_threads", "gauge", "Requests that have a thread, or wait for one.", cells[BUSY])
    attempts = [
        ({"webhook": name, "result": result}, cells[at + index])
        for name, at in figures.webhooks.items()
        for index, result in enumerate(RESULTS)
        if name != OTHER or any(cells[at : at + OF_WEBHOOK])
    ]
    yield from _family("delivery_attempts_total", "counter", "Attempts to send a delivery.", attempts)
    mails = [({"result": "sent"}, cells[MAILED]), ({"result": "failed"}, cells[UNMAILED])]
    yield from _family("mail_attempts_total", "counter", "Attempts to send a mail.", mails)
    unreached = len(Member.unreached.all(since=now(-86400)))
    yield from _single("members_unreached", "gauge", "Members whose last mail failed.", unreached)
    backlog = Webhook.backlog.all()
    left: Counter[tuple[str, str]] = Counter()  # summed, since names without paths may be equal
    for row in backlog:
        left.update({(without_paths(row["name"]), status): row[status] for status in Delivery.UNDELIVERED})
    counts = [({"webhook": name, "status": status}, n) for (name, status), n in left.items()]
    yield from _family("deliveries", "gauge", "Deliveries that are not delivered.", counts)
    oldest = min((row["oldest"] for row in backlog if row["oldest"]), default=None)
    age = max(seconds_since(oldest), 0) if oldest else 0
    yield from _single("oldest_pending_seconds", "gauge", "Age of the oldest that is pending.", age)
    for name, path in (("database", Path(db.database)), ("log", Path(f"{db.database}-wal"))):
        size = path.stat().st_size if path.exists() else 0
        yield from _single(f"{name}_bytes", "gauge", f"Size of {path.name}.", size)
    free = shutil.disk_usage(Path(db.database).parent).free
    yield from _single("disk_free_bytes", "gauge", "Space left on the disk of the database.", free)
    age = database_age() if (copied := backup_age()) is None else copied
    yield from _single("backup_age_seconds", "gauge", "Age of the newest backup, or of the database.", age)


def _single(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    return _family(name, kind, text, [({}, value)])


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# HELP tasks_{name} {text}"
    yield f"# TYPE tasks_{name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{key}="{label.translate(ESCAPES)}"' for key, label in labels.items())
    return f"tasks_{name}{{{pairs}}} {value:.15g}"
