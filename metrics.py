"""The metrics of the service, which all workers count in memory that they share.

The master makes the memory before it forks, and each worker adds to a segment of its own. With files, as
`prometheus-client` uses, a full disk would end the process: they are written through a memory map.
"""

import mmap
import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from settings import without_paths

CLASSES = ("2xx", "3xx", "4xx", "5xx")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
RESULTS = ("delivered", "refused", "failed")
MOST_ROUTES, MOST_WEBHOOKS = 128, 64  # those beyond are counted as `OTHER`
OTHER = "other"
# The cells of a segment: four, then cells for each route (classes, buckets, sum of seconds) and each webhook.
BUSY, UNAVAILABLE, MAILED, UNMAILED, FIRST_ROUTE = 0, 1, 2, 3, 4
OF_ROUTE, OF_WEBHOOK = len(CLASSES) + len(BUCKETS) + 2, len(RESULTS)
FIRST_WEBHOOK = FIRST_ROUTE + MOST_ROUTES * OF_ROUTE
SIZE = FIRST_WEBHOOK + MOST_WEBHOOKS * OF_WEBHOOK

LabelSet = Mapping[str, str]


class Metrics:
    """The memory, this process's segment of it, and the first cell of each route and webhook in a segment."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # for threads that add to the segment
        self.routes: dict[str, tuple[int, LabelSet]] = {}  # the first cell and the labels, by endpoint
        self.webhooks: dict[str, int] = {}  # the first cell, by name
        self.share(1)

    def share(self, workers: int) -> None:
        """Make memory for this number of workers, and for as many that replace them at a reload."""
        self.segments = 2 * workers
        self.memory = memoryview(mmap.mmap(-1, self.segments * SIZE * 8)).cast("d")
        self.use(0)

    def use(self, number: int) -> None:
        """Add to this segment from now on; a worker that was killed may have used it before."""
        self.segment = self.memory[number * SIZE : (number + 1) * SIZE]
        self.busy(0)

    def busy(self, requests: int) -> None:
        """Note how many requests this process is answering."""
        self.segment[BUSY] = requests

    def name_routes(self, routes: Mapping[str, LabelSet]) -> None:
        """Count each of these endpoints separately, with its labels."""
        named = [(OTHER, {"method": "", "route": OTHER}), *routes.items()][:MOST_ROUTES]
        cells = range(FIRST_ROUTE, FIRST_WEBHOOK, OF_ROUTE)
        self.routes = {name: (cell, labels) for cell, (name, labels) in zip(cells, named, strict=False)}

    def name_webhooks(self, names: Iterable[str]) -> None:
        """Count each of these webhooks separately; earlier ones keep their cells, which workers may use."""
        for name in (OTHER, *map(without_paths, names)):
            if len(self.webhooks) < MOST_WEBHOOKS:
                self.webhooks.setdefault(name, FIRST_WEBHOOK + len(self.webhooks) * OF_WEBHOOK)

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        segment, cell = self.segment, (self.routes.get(endpoint) or self.routes[OTHER])[0]
        bucket, total = cell + len(CLASSES) + bisect_left(BUCKETS, seconds), cell + OF_ROUTE - 1
        with self.lock:  # or two threads that read the same value would count one request
            segment[cell + status // 100 - 2] += 1
            segment[bucket] += 1
            segment[total] += seconds
            if status == 503:
                segment[UNAVAILABLE] += 1

    def attempted(self, webhook: str, result: str) -> None:
        cell = self.webhooks.get(without_paths(webhook)) or self.webhooks[OTHER]
        with self.lock:
            self.segment[cell + RESULTS.index(result)] += 1

    def mailed(self, is_taken: bool) -> None:
        with self.lock:
            self.segment[MAILED if is_taken else UNMAILED] += 1

    def totals(self) -> list[float]:
        """Return the cells of a segment, summed over all segments."""
        cells = self.memory.tolist()
        return [sum(cells[cell::SIZE]) for cell in range(SIZE)]


metrics = Metrics()
metrics.name_routes({})
metrics.name_webhooks(())
