"""The metrics of the service in the text format of Prometheus."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from app import pages
from database import db
from members import Member
from metrics import (
    BUCKETS,
    BUSY,
    CLASSES,
    MAILED,
    OF_ROUTE,
    OF_WEBHOOK,
    OTHER,
    RESULTS,
    UNAVAILABLE,
    UNMAILED,
    LabelSet,
    metrics,
)
from outbox import Delivery, Webhook
from parts import backups
from settings import VERSION, without_paths
from times import now, seconds_since
from wire import Response, authorize, operation, request

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@pages.get("/metrics")
@operation(reads="nothing", role=None)
def get_metrics() -> Response:
    """Show an owner or admin the metrics of the service, in the format of Prometheus."""
    authorize(request().authenticate(), "admin", "read")
    lines = "".join(f"{line}\n" for line in _lines(metrics.totals()))
    return Response(lines.encode(), content_type="text/plain; version=0.0.4; charset=utf-8")


def _lines(cells: list[float]) -> Iterator[str]:
    yield from _family("info", "gauge", "The version that serves.", [({"version": VERSION}, 1)])
    used = [(labels, cells[at : at + OF_ROUTE]) for at, labels in metrics.routes.values()]
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
        for name, at in metrics.webhooks.items()
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
    age = backups.age_of_database() if (copied := backups.age()) is None else copied
    yield from _single("backup_age_seconds", "gauge", "Age of the newest backup, or of the database.", age)


def _single(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    return _family(name, kind, text, [({}, value)])


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[LabelSet, float]]) -> Iterator[str]:
    yield f"# HELP tasks_{name} {text}"
    yield f"# TYPE tasks_{name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _sample(name: str, labels: LabelSet, value: float) -> str:
    pairs = ",".join(f'{key}="{label.translate(ESCAPES)}"' for key, label in labels.items())
    return f"tasks_{name}{{{pairs}}} {value:.15g}"
