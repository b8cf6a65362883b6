"""What Prometheus reads: figures of the service, which all of its workers count in memory that they share.

The master makes the memory before it forks. Files in its place, as those of `prometheus-client`, would be
written through a map, and on a full disk that ends the process. Each worker adds to a part of its own.
"""

import mmap
import shutil
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate
from pathlib import Path

from database import db
from members import Member
from outbox import Delivery, Webhook
from schemas import VERSION
from settings import without_paths
from store import backup_age, database_age
from times import now

CLASSES = ("2xx", "3xx", "4xx", "5xx")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
RESULTS = ("delivered", "refused", "failed")
MOST = {"route": 128, "webhook": 64}  # names; what exceeds them is counted as `OTHER`
OTHER = "other"
# A part's cells: four, then those of each route (classes, buckets, the sum of seconds) and of each webhook.
BUSY, UNAVAILABLE, MAILED, UNMAILED, FIRST_ROUTE = 0, 1, 2, 3, 4
OF_ROUTE, OF_WEBHOOK = len(CLASSES) + len(BUCKETS) + 2, len(RESULTS)
FIRST_WEBHOOK = FIRST_ROUTE + MOST["route"] * OF_ROUTE
SIZE = FIRST_WEBHOOK + MOST["webhook"] * OF_WEBHOOK

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Labels = Mapping[str, str]


class Figures:
    """The memory, this process's part of it, and the place of each route and webhook in a part."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # of the part
        self.routes: dict[str, tuple[int, Labels]] = {}  # by endpoint, with their labels
        self.webhooks: dict[str, int] = {}  # by name
        self.share(1)

    def share(self, workers: int) -> None:
        """Make memory for so many workers, and as many that take their places at a reload."""
        self.parts = 2 * workers
        self.memory = memoryview(mmap.mmap(-1, self.parts * SIZE * 8)).cast("d")
        self.use(0)

    def use(self, number: int) -> None:
        """Add to this part from now on; a worker that was killed may have used it before."""
        self.part = self.memory[number * SIZE : (number + 1) * SIZE]
        self.busy(0)

    def busy(self, requests: int) -> None:
        """Tell how many requests this process answers now."""
        self.part[BUSY] = requests

    def name_routes(self, routes: Mapping[str, Labels]) -> None:
        """Count these endpoints apart, with these labels."""
        named = [(OTHER, {"method": "", "route": OTHER}), *routes.items()][: MOST["route"]]
        self.routes = {
            name: (FIRST_ROUTE + place * OF_ROUTE, labels) for place, (name, labels) in enumerate(named)
        }

    def name_webhooks(self, names: Iterable[str]) -> None:
        """Count these webhooks apart, too; those of before keep their places, which workers may use."""
        for name in (OTHER, *map(without_paths, names)):
            if len(self.webhooks) < MOST["webhook"]:
                self.webhooks.setdefault(name, FIRST_WEBHOOK + len(self.webhooks) * OF_WEBHOOK)

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        part, place = self.part, (self.routes.get(endpoint) or self.routes[OTHER])[0]
        bucket, total = place + len(CLASSES) + bisect_left(BUCKETS, seconds), place + OF_ROUTE - 1
        with self.lock:  # of threads that have read the same value, one would be lost
            part[place + status // 100 - 2] += 1
            part[bucket] += 1
            part[total] += seconds
            if status == 503:
                part[UNAVAILABLE] += 1

    def attempted(self, webhook: str, result: str) -> None:
        place = self.webhooks.get(without_paths(webhook)) or self.webhooks[OTHER]
        with self.lock:
            self.part[place + RESULTS.index(result)] += 1

    def mailed(self, is_taken: bool) -> None:
        with self.lock:
            self.part[MAILED if is_taken else UNMAILED] += 1

    def totals(self) -> list[float]:
        """The cells of a part, summed over the parts."""
        cells = self.memory.tolist()
        return [sum(cells[place::SIZE]) for place in range(SIZE)]


figures = Figures()
figures.name_routes({})
figures.name_webhooks(())


def exposition() -> str:
    """All figures in the text format of Prometheus."""
    return "".join(f"{line}\n" for line in _lines(figures.totals()))


def _lines(cells: list[float]) -> Iterator[str]:
    yield from _family("info", "gauge", "The version that serves.", [({"version": VERSION}, 1)])
    used = [(labels, cells[at : at + OF_ROUTE]) for at, labels in figures.routes.values()]
    used = [(labels, row) for labels, row in used if any(row)]
    classes = [
        ({**labels, "status": name}, row[place]) for labels, row in used for place, name in enumerate(CLASSES)
    ]
    yield from _family("requests_total", "counter", "Requests that were answered.", classes)
    yield from _family("request_seconds", "histogram", "Time until an answer began.", [])
    for labels, row in used:
        sums = list(accumulate(row[len(CLASSES) : -1]))
        for most, count in zip((*map(str, BUCKETS), "+Inf"), sums, strict=True):
            yield _sample("request_seconds_bucket", {**labels, "le": most}, count)
        yield _sample("request_seconds_sum", labels, row[-1])
        yield _sample("request_seconds_count", labels, sums[-1])
    yield from _family("unavailable_total", "counter", "Answers with 503.", [({}, cells[UNAVAILABLE])])
    yield from _family(
        "busy_threads", "gauge", "Requests that have a thread, or wait for one.", [({}, cells[BUSY])]
    )
    attempts = [
        ({"webhook": name, "result": result}, cells[at + place])
        for name, at in figures.webhooks.items()
        for place, result in enumerate(RESULTS)
        if name != OTHER or any(cells[at : at + OF_WEBHOOK])
    ]
    yield from _family("delivery_attempts_total", "counter", "Attempts to send a delivery.", attempts)
    mails = [({"result": "sent"}, cells[MAILED]), ({"result": "failed"}, cells[UNMAILED])]
    yield from _family("mail_attempts_total", "counter", "Attempts to send a mail.", mails)
    unreached = len(Member.unreached.all(since=now(-86400)))
    yield from _family("members_unreached", "gauge", "Members whose last mail failed.", [({}, unreached)])
    backlog = Webhook.backlog.all()
    left: Counter[tuple[str, str]] = Counter()  # since names without paths may be equal
    for row in backlog:
        left.update({(without_paths(row["name"]), status): row[status] for status in Delivery.UNDELIVERED})
    counts = [({"webhook": name, "status": status}, n) for (name, status), n in left.items()]
    yield from _family("deliveries", "gauge", "Deliveries that are not delivered.", counts)
    oldest = min((row["oldest"] for row in backlog if row["oldest"]), default=None)
    age = max(time.time() - datetime.fromisoformat(oldest).timestamp(), 0) if oldest else 0
    yield from _family("oldest_pending_seconds", "gauge", "Age of the oldest that is pending.", [({}, age)])
    for name, path in (("database", Path(db.database)), ("log", Path(f"{db.database}-wal"))):
        size = path.stat().st_size if path.exists() else 0
        yield from _family(f"{name}_bytes", "gauge", f"Size of {path.name}.", [({}, size)])
    free = shutil.disk_usage(Path(db.database).parent).free
    yield from _family("disk_free_bytes", "gauge", "Space left on the disk of the database.", [({}, free)])
    age = database_age() if (copied := backup_age()) is None else copied
    yield from _family(
        "backup_age_seconds", "gauge", "Age of the newest backup, or of the database.", [({}, age)]
    )


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# HELP tasks_{name} {text}"
    yield f"# TYPE tasks_{name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{key}="{label.translate(ESCAPES)}"' for key, label in labels.items())
    return f"tasks_{name}{{{pairs}}} {value:.15g}"
