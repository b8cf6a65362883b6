"""Times in wire form, and ids that begin with their time.

`now` is the system's clock, for due times and expiries; it may be set back. The times that are stored with a
change (`epoch_ms`, `Transaction.at`) and ids come from `tick`, which never goes back.
"""

import random
import secrets
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

time_ns, ahead = time.time_ns, 0  # the clock, which only `put_ahead` changes, and its lead in seconds
zone: tzinfo = UTC  # the setting `workspace.timezone`


def instant(moment: datetime) -> str:
    """Return the moment in wire form: UTC, milliseconds, fixed width, so text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now(seconds: float = 0) -> str:
    """Return the time `seconds` from now, in wire form."""
    return wire_time(time_ns() // 1_000_000 + round(seconds * 1000))


def local(time: str) -> datetime:
    """Return a time in wire form as a moment in the workspace's time zone; in the year 10000 it stays UTC."""
    moment = datetime.fromisoformat(time)
    with suppress(OverflowError):
        moment = moment.astimezone(zone)
    return moment


def local_time(text: str) -> str:
    """Return a time in the workspace's time zone, with its name; the end of a day is the day only."""
    moment = local(text)
    return f"{moment:%Y-%m-%d %H:%M} ({moment.tzinfo})".removesuffix(f" 23:59 ({moment.tzinfo})")


def seconds_since(time: str) -> float:
    """Return the seconds from this time until now; negative for a time to come."""
    return time_ns() / 10**9 - datetime.fromisoformat(time).timestamp()


def wire_time(epoch_milliseconds: int) -> str:
    whole, milliseconds = divmod(epoch_milliseconds, 1000)
    return f"{_second(whole)}.{milliseconds:03d}Z"


@lru_cache(maxsize=64)
def _second(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat()[:19]


def epoch_ms() -> int:
    """Return the current time in epoch milliseconds; it never decreases within this process."""
    return tick() // TICKS_PER_MS


TICKS_PER_MS = 4096  # per millisecond: one tick is 244 ns, less than a commit takes
_tick_lock = threading.Lock()
_last_tick = 0


def tick() -> int:
    """Return the ticks since the epoch: more than at any earlier call, even if the clock was set back.

    Stored times and ids are made while the write lock is held, so they have the order of the commits. If the
    last tick is more than a day in the future, the clock was wrong then, and that tick is ignored.
    """
    global _last_tick
    with _tick_lock:
        present = time_ns() * TICKS_PER_MS // 1_000_000
        is_wrong = _last_tick > present + 86_400_000 * TICKS_PER_MS
        _last_tick = present if is_wrong else max(_last_tick + 1, present)
        return _last_tick


def put_ahead(seconds: int) -> None:
    """Let this process's clock be `seconds` ahead of the system's, for tests; ticks go back with it."""
    global ahead, time_ns, _last_tick
    with _tick_lock:
        ahead, time_ns, _last_tick = seconds, (lambda: time.time_ns() + seconds * 10**9), 0


def follow_clock(newest: str) -> None:
    """Let ticks continue in the millisecond after `newest`, the id that was stored last.

    Each write then has a millisecond of its own, later than every earlier write of any process, whatever the
    clock does. So a client that asks for changes after a time misses none.
    """
    global _last_tick
    stored = int(newest[:8] + newest[9:13] + newest[15:18], 16)  # the ticks, as `uuid7` writes them
    with _tick_lock:
        _last_tick = max(_last_tick, stored | (TICKS_PER_MS - 1))


def uuid7(tick: int, random_bits: int) -> str:
    """Return the UUIDv7 of a tick (RFC 9562, section 6.2, method 3) and of 62 random bits."""
    value = tick >> 12 << 80 | 7 << 76 | (tick & 0xFFF) << 64 | 0b10 << 62 | random_bits
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def first_id(time: str, seconds: float = 0) -> str:
    """Return the smallest id that can be made `seconds` after this time; an id begins with its time."""
    milliseconds = round((datetime.fromisoformat(time).timestamp() + seconds) * 1000)
    return uuid7(milliseconds * TICKS_PER_MS, 0)


def new_id() -> str:
    """Return a UUIDv7 greater than all earlier ones of this process."""
    return uuid7(tick(), secrets.randbits(62))


def new_request_id() -> str:
    return f"req_{random.getrandbits(128):032x}"  # noqa: S311 - it is no secret
