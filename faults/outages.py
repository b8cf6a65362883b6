"""Receivers with outages of all kinds."""

import json
import threading
from collections.abc import Iterator

from harness import PATIENCE, Call, Receiver, hook
from snapshot import Snapshot

MODES = ["up", "up", "up", "refuses", "fails", "hangs", "hangs"]  # how a receiver behaves
# Short waits, so that the service retries often. On a busy machine a healthy receiver may be too slow for
# them. This is an outage too.
SHORT_WAITS = {
    "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "1",
    "TASKS_DELIVERY__TIMEOUT_SECONDS": "2",
    "TASKS_DELIVERY__RETRY_SCHEDULE": "[0.1, 0.2, 0.5]",
}


class Recorder:
    """A receiver that notes the events that it accepts, and has outages of each of the `MODES`."""

    def __init__(self, receiver: Receiver, name: str):
        self.receiver, self.name, self.mode = receiver.up(), name, "up"
        self.accepted: list[str] = []  # ids of events
        self.has_changed = threading.Event()
        receiver.answer = self.answer

    def answer(self, call: Call) -> int | None:
        mode = self.mode
        if mode == "fails":
            return 503
        if mode == "hangs":
            self.has_changed.wait(PATIENCE)
            return None
        self.accepted.append(call.headers["webhook-id"])
        return 200

    def change(self, mode: str) -> None:
        """Behave in this way from now on."""
        if "refuses" in (mode, self.mode) and mode != self.mode:
            (self.receiver.down if mode == "refuses" else self.receiver.up)()
        self.mode = mode
        changed, self.has_changed = self.has_changed, threading.Event()
        changed.set()

    def problems(self, stored: Snapshot) -> Iterator[str]:
        """Yield what is wrong with the events that arrived, except their order."""
        for call in self.receiver.all_here():
            id = call.headers["webhook-id"]
            if call.body != stored.bodies.get(id):
                yield f"{self.name} got {id} as {call.body[:300]!r}, not {stored.bodies.get(id)!r:.300}"
        for id in stored.events.keys() - set(self.accepted):
            yield f"{self.name} never got {id}, {stored.events[id]['event']}"


def environment(recorders: list[Recorder], **others: str) -> dict[str, str]:
    """Return the environment of a server that sends everything to these receivers."""
    webhooks = [hook(recorder.receiver, name=recorder.name) for recorder in recorders]
    return {"TASKS_WEBHOOKS": json.dumps(webhooks), **SHORT_WAITS, **others}
