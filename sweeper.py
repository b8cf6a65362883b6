"""The service's work in the background: deliveries that requests have left, errands, and hourly chores."""

import fcntl
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import webhooks
from members import ApiKey
from models import write
from outbox import Delivery, Event, Webhook
from store import open_lock_file, optimize
from times import now

Step = Callable[[], object]
Errand = tuple[str, Step, Step]  # a name, whether there is something to do, and what does it


class Sweeper:
    """The threads that send what requests have left, in the worker that holds the lock."""

    def __init__(self, lock: Path, chores: list[Step], errands: list[Errand], notes: Sequence[Step] = ()):
        self._lock = open_lock_file(lock)
        self._chores = chores  # run once an hour
        self._errands = errands
        self._notes = (store_last_used, *notes)  # store what requests of this process have noted
        self._chores_at = 0.0
        self._threads: dict[str, threading.Thread] = {}  # the newest of each name

    def start(self) -> None:
        self._start("sweeper", "the sweeper ends", self._run)

    def stop(self, seconds: float = 5.0) -> None:
        """Stop after the current attempts, or after `seconds`; the rest stays pending."""
        webhooks.sending.stopping.set()
        webhooks.sending.has_work.set()
        ends_at = time.monotonic() + seconds
        for thread in list(self._threads.values()):
            thread.join(max(ends_at - time.monotonic(), 0))

    def _start(self, name: str, consequence: str, *steps: Step) -> None:
        """Run the steps in a thread with this name, unless the last one still runs."""

        def run() -> None:
            for step in steps:
                with webhooks.failures_logged(consequence):
                    if step():  # it has sent something, and more may have come since
                        webhooks.sending.has_work.set()

        if name not in self._threads or not self._threads[name].is_alive():
            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            self._threads[name] = thread

    def _run(self) -> None:
        delivery = webhooks.sending.delivery
        beat = min(1.0, *delivery["retry_schedule"], delivery["timeout_seconds"])
        while not webhooks.sending.stopping.is_set():
            with webhooks.failures_logged("the sweeper goes on"):
                self._beat()
            webhooks.sending.has_work.wait(beat)
            webhooks.sending.has_work.clear()

    def _beat(self) -> None:
        for store_noted in self._notes:
            store_noted()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
        except BlockingIOError:  # another worker sweeps
            return
        for name, is_due, run in self._errands:
            if is_due():
                self._start(name, f"{name} are left for later", run)
        for webhook_id in webhooks.due_ids():
            self._start(webhook_id, "deliveries are left pending", partial(webhooks.drain, webhook_id))
        if time.monotonic() >= self._chores_at:
            self._chores_at = time.monotonic() + 3600
            # In a thread, as they may take long and no event must wait for them.
            self._start("chores", "a chore is left for the next hour", *self._chores)


def in_steps(deletion: Callable[..., int], most: int = 500, **parameters: Any) -> int:
    """Delete rows, `most` in a step, so that others can write between the steps; return how many."""
    total, count = 0, 1
    while count and not webhooks.sending.stopping.is_set():
        with write():
            count = deletion(most=most, **parameters)
        total += count
    return total


def store_last_used() -> None:
    """Store when keys were last used, which requests only note."""
    if ApiKey.used:
        with write():
            pass


def prune_deliveries() -> None:
    """Delete deliveries that finished `keep_days` ago, or have waited that long for a disabled webhook."""
    before = now(-webhooks.sending.delivery["keep_days"] * 86400)
    for webhook in Webhook.listing():
        if webhook["state"] == "disabled":
            count = in_steps(Delivery.drop_waiting.run, webhook_id=webhook["id"], before=before)
            webhooks.log_deleted(webhook, count)
    in_steps(Delivery.delete_finished.run, before=before)
    in_steps(Event.delete_unused.run, before=before, last=Event.last_before.value(before=before))
    optimize()
