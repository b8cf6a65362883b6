"""The limits of requests: how long each may take, how many may come, and how many may run at once."""

import math
import os
import socket
import threading
import time
from collections import Counter, OrderedDict
from contextlib import suppress
from typing import Any, NamedTuple


def bound(name: str, seconds: float) -> float:
    """Return the number of seconds; tests set another one in the environment as `BOUND_<name>`."""
    return float(os.environ.get(f"BOUND_{name}", seconds))


HEAD_SECONDS = bound("HEAD_SECONDS", 15.0)  # the longest that a request's head may take to arrive
READ_SECONDS = bound("READ_SECONDS", 15.0)  # the longest that a request's body may take to arrive
# Bytes of a refused body that are read and discarded, beyond a file's size; otherwise the client would not
# see the response.
DRAIN_BYTES = 4 * 1024 * 1024
DRAIN_SECONDS = 2.0  # the longest that discarding may take
UPLOAD_SECONDS = 120.0  # the longest that a file may take to arrive
THREADS = 16  # of a worker, besides one for each request that waits
UPLOADS = 6  # files that are received at once, each in memory and on one of those threads
SEARCHES = 4  # requests that read all texts or all activity at once; half as many of one member
SEARCH_PAUSE = 0.25  # seconds after which a search that gets no slot is refused
SEARCH_SECONDS = bound("SEARCH_SECONDS", 5.0)  # the longest that a search may take; then it gets a 503
WAITS = 24  # requests that wait for a change at once: from twenty pages and four agents
WAITS_OF_MEMBER = 2
WAIT_SECONDS = 25  # the longest wait; some proxies give up after 30
WAIT_STEP = 0.25  # seconds after which a request that waits looks for a new commit
WAIT_READ = 1.0  # seconds after which it reads without one, because a time may have come
WAIT_AGAIN = 5  # seconds after which a client whose wait was refused should ask again
SEND_SECONDS = bound("SEND_SECONDS", 30.0)  # the time for a client to read a response,
SEND_BYTES = 64 * 1024  # and another second for each part of this many bytes
SEND_MOST = 120.0  # the most seconds for a response, however large it is
QUERY_SECONDS = bound("QUERY_SECONDS", 20.0)  # the longest that a request may read; then it gets a 503
FORM_BYTES = 64 * 1024  # the most that a form may have besides its file


class SocketDeadline:
    """Shuts a socket down, as `how`, if more than `seconds` pass between `start` and `stop`.

    It can be used as a context manager. `is_over` says whether the time has passed, even without a socket.
    """

    def __init__(self, sock: socket.socket | None, seconds: float, how: int = socket.SHUT_RD):
        self.sock, self.seconds, self.how, self.is_over = sock, seconds, how, False

    def start(self) -> None:
        watcher.start(self)

    __enter__ = start

    def stop(self) -> None:
        watcher.stop(self)

    def expire(self) -> None:
        self.is_over = True
        if self.sock is not None:
            with suppress(OSError):  # the client has closed the connection
                self.sock.shutdown(self.how)

    def __exit__(self, *failure: Any) -> None:
        self.stop()


class Watcher:
    """A thread for the deadlines of all requests, which the first deadline starts.

    It wakes every `BEAT` seconds. Only a deadline before the next wake-up wakes it earlier: waking a thread
    costs more than reading a task.
    """

    BEAT = 1.0

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[SocketDeadline, float] = {}  # as `time.monotonic`
        self._wake_at = 0.0
        self._thread: threading.Thread | None = None

    def start(self, deadline: SocketDeadline) -> None:
        with self._changed:
            self._due[deadline] = due = time.monotonic() + deadline.seconds
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._thread.start()
            if due < self._wake_at:
                self._changed.notify()

    def stop(self, deadline: SocketDeadline) -> None:
        # Acquiring the lock waits for a running `expire`, which must not shut down the socket's next user.
        with self._changed:
            self._due.pop(deadline, None)

    def _watch(self) -> None:
        with self._changed:
            while True:
                at = time.monotonic()
                for deadline in [deadline for deadline, due in self._due.items() if due <= at]:
                    del self._due[deadline]
                    deadline.expire()
                self._wake_at = min([at + self.BEAT, *self._due.values()])
                self._changed.wait(self._wake_at - at)


watcher = Watcher()


class Verdict(NamedTuple):
    """Whether a request is within the limit, how many more may follow, and the seconds until more may."""

    allowed: bool
    left: int
    seconds: int


class RateLimit:
    """Allows `most` requests of each key in a window of `seconds`, which the key's first request opens.

    Up to `keys` windows are kept in memory; another key replaces the oldest window.
    """

    def __init__(self, most: int, seconds: float, keys: int = 4096):
        self.most, self.seconds, self.keys = most, seconds, keys
        self._lock = threading.Lock()
        self._windows: OrderedDict[Any, tuple[float, int]] = OrderedDict()

    def hit(self, key: Any) -> Verdict:
        """Count a request of the key; the seconds of the verdict are rounded up."""
        with self._lock:
            at = time.monotonic()
            begun_at, count = self._windows.get(key, (-math.inf, 0))
            if at - begun_at >= self.seconds:
                self._windows.pop(key, None)
                begun_at, count = at, 0
                if len(self._windows) >= self.keys:
                    self._windows.popitem(last=False)
            allowed = count < self.most
            self._windows[key] = begun_at, count + allowed
            left = self.seconds - (at - begun_at)  # `begun_at + seconds - at` may be rounded up
            return Verdict(allowed, self.most - count - allowed, math.ceil(left))

    def clear(self) -> None:
        """Forget all requests."""
        with self._lock:
            self._windows.clear()


class Slots:
    """Slots for `of_key` requests of each key at the same time, and for `most` of all keys together.

    Up to `most` other requests wait for a slot, at most `pause` seconds, so threads remain for the rest.
    """

    def __init__(self, of_key: int, most: float = math.inf, pause: float = 0.0):
        self.of_key, self.most, self.pause = of_key, most, pause
        self._changed = threading.Condition()
        self._counts: Counter[Any] = Counter()
        self._waiting = 0

    def acquire(self, key: Any) -> bool:
        """Return whether the request gets a slot, which must then be released."""
        with self._changed:
            pause = self.pause if self._waiting < self.most else 0.0
            self._waiting += 1
            is_free = self._changed.wait_for(lambda: self._has_room(key), pause)
            self._waiting -= 1
            if is_free:
                self._counts[key] += 1
            return is_free

    def _has_room(self, key: Any) -> bool:
        return self._counts[key] < self.of_key and self._counts.total() < self.most

    def release(self, key: Any) -> None:
        with self._changed:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]  # otherwise every key would stay in memory
            self._changed.notify_all()
