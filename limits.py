"""What bounds a request: how long it may take, how often it may come, and how many there may be at a time."""

import contextlib
import math
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Deadlines:
    """Cuts off whatever is still going on when its time is up; one thread watches over all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wake_at = float("inf")
        self._watcher: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, cut: Callable[[], None]) -> Iterator[None]:
        """Call `cut` (which must not wait) if the body takes longer than so many seconds."""
        entry, at = object(), time.monotonic() + seconds
        with self._changed:
            self._due[entry] = (at, cut)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._watcher.start()
            if at < self._wake_at:
                self._changed.notify()
        try:
            yield
        finally:
            # Taking the lock waits for a cut under way, so none hits the socket's next user.
            with self._changed:
                self._due.pop(entry, None)

    def _watch(self) -> None:
        with self._changed:
            while True:
                at = time.monotonic()
                for entry in [entry for entry, (due, _) in self._due.items() if due <= at]:
                    self._due.pop(entry)[1]()
                self._wake_at = min((due for due, _ in self._due.values()), default=float("inf"))
                idle = self._wake_at == float("inf")
                self._changed.wait(None if idle else self._wake_at - at)


deadlines = Deadlines()


class Late:
    """Ends one direction of a connection, or both, when the time is up; `cut` says whether it had to."""

    def __init__(self, line: socket.socket | None, seconds: float, how: int = socket.SHUT_RD):
        self.line, self.how, self.cut = line, how, False
        self.guard = deadlines.within(seconds, self._cut)

    def _cut(self) -> None:
        self.cut = True
        if self.line is not None:
            with contextlib.suppress(OSError):  # the client has gone
                self.line.shutdown(self.how)

    def __enter__(self) -> None:
        self.guard.__enter__()

    def __exit__(self, *failure: Any) -> None:
        self.guard.__exit__(*failure)


class FixedWindow:
    """How often each key may come within a window that begins with its first coming.

    At most `keys` are known at a time; the oldest is forgotten for a new one.
    """

    def __init__(self, most: int, seconds: float, keys: int = 4096):
        self.most, self.seconds, self.keys = most, seconds, keys
        self._lock = threading.Lock()
        self._windows: OrderedDict[Any, tuple[float, int]] = OrderedDict()

    def take(self, key: Any) -> tuple[int, int]:
        """Count a coming; returns how many more may follow, or -1 for one too many, and the seconds left.

        The seconds are whole ones, rounded up: after them the window is over.
        """
        with self._lock:
            at = time.monotonic()
            ends_at, count = self._windows.get(key, (0.0, 0))
            if ends_at <= at:
                self._windows.pop(key, None)
                ends_at, count = at + self.seconds, 0
                if len(self._windows) >= self.keys:
                    self._windows.popitem(last=False)
            if count >= self.most:
                return -1, math.ceil(ends_at - at)
            self._windows[key] = ends_at, count + 1
            return self.most - count - 1, math.ceil(ends_at - at)


class Slots:
    """How many requests of each key are being answered."""

    def __init__(self, most: int):
        self.most = most
        self._lock = threading.Lock()
        self._taken: dict[Any, int] = {}

    def take(self, key: Any) -> bool:
        with self._lock:
            if self._taken.get(key, 0) >= self.most:
                return False
            self._taken[key] = self._taken.get(key, 0) + 1
            return True

    def free(self, key: Any) -> None:
        with self._lock:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]
