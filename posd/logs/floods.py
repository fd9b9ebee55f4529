"""What repeats without end is told a few times and then counted: how many lines of a kind a log takes.

A window of a key begins with its first line. So many lines pass in it; the rest are counted, and told as one number
when the window ends. The table is bounded: what is over it shares one key.
"""

import errno
import sqlite3
import traceback
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple

#: Keys that are counted apart. A shop has fewer open payments; a flood of keys is a flood as well.
MAX_KEYS = 512

#: How long a table that was found full is taken to be full, in seconds: a burst of a thousand payments would otherwise
#: look through all of it for each of its lines.
FULL_SECONDS = 1.0

#: A minute and an hour, in seconds.
MINUTE = 60.0
HOUR = 3600.0

#: Levels whose lines are all limited.
SEVERE = frozenset({"warning", "error", "critical"})


class Limit(NamedTuple):
    """How many `lines` of one event pass in `seconds`; those that differ in one of the fields `by` count apart."""

    lines: int
    seconds: float
    by: tuple[str, ...] = ()


#: What a line is about, one of these: a flood about one of them hides nothing of another.
SUBJECT = ("transaction", "print_job", "terminal")

#: A warning or an error without a row below. A fault that meets everything, as a full disk, is not told per payment.
TROUBLE: Final = Limit(20, MINUTE)

#: event -> its limit. An info line that is not here is written however often it comes: each is a fact of its own.
LIMITS: Final[Mapping[str, Limit]] = MappingProxyType(
    {
        # Facts about one payment each: however many payments meet it at once, each is told.
        "payment.attention": Limit(5, MINUTE, (*SUBJECT, "code")),
        "print.attention": Limit(5, MINUTE, (*SUBJECT, "code")),
        "print.outcome": Limit(5, MINUTE, SUBJECT),
        "store.difference": Limit(50, MINUTE),
        # What a proven terminal may send in a loop.
        "webhook.event": Limit(30, MINUTE, SUBJECT),
        "webhook.print": Limit(30, MINUTE, SUBJECT),
        "webhook.quarantined": Limit(5, MINUTE, SUBJECT),
        "webhook.too_large": Limit(5, MINUTE, SUBJECT),
        # What a till or an operator may call in a loop.
        "stream.cut_off": Limit(5, MINUTE, ("kind",)),
        "payment.abort": Limit(10, MINUTE, SUBJECT),
        "payment.operator": Limit(10, MINUTE, SUBJECT),
        "print.operator": Limit(10, MINUTE, SUBJECT),
        # What posd asks again and again for as long as a terminal is away: hours.
        "payment.search": Limit(10, HOUR, (*SUBJECT, "result")),
        "print.poll": Limit(10, HOUR, (*SUBJECT, "result", "status")),
        # What a flapping network or a device that announces itself without end causes.
        "discovery.claim": Limit(5, HOUR, SUBJECT),
        "discovery.gone": Limit(10, HOUR, SUBJECT),
        "discovery.started": Limit(10, HOUR),
        "discovery.unavailable": Limit(10, HOUR),
        "interfaces.polled": Limit(5, HOUR),
        "interfaces.unreadable": Limit(5, HOUR),
        # Limited where they are written, each in its own way: posd.httpd.rejected_traffic and posd.httpd.alerts.
        "listener.refused": Limit(1000, MINUTE),
        "listener.distrusted": Limit(1000, MINUTE),
    }
)

#: The event, the level, and the names and values of the fields by which its lines count apart.
Key = tuple[Any, ...]
#: So many parts of a key say what kind of line it is.
KIND = 2


def limit_of(fields: Mapping[str, Any]) -> Limit | None:
    """Return the limit of a line; None where it is written in any case."""
    limit = LIMITS.get(fields["event"])
    return TROUBLE if limit is None and fields["level"] in SEVERE else limit


@dataclass(slots=True)
class _Window:
    ends: float
    lines: int = 0
    left_out: int = 0


class Windows:
    """Counts lines by key; times are on the monotonic clock, in seconds."""

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._windows: dict[Key, _Window] = {}
        self._full_until = 0.0

    def admit(self, key: Key, limit: Limit, now: float) -> bool:
        """Whether a line passes; one that does not is counted."""
        window = self._window(key, now)
        if window is None and len(self._windows) >= self._max_keys and not self._make_room(now):
            key = key[:KIND]
            window = self._window(key, now)
        if window is None:
            window = self._windows[key] = _Window(now + limit.seconds)
        if window.lines < limit.lines:
            window.lines += 1
            return True
        window.left_out += 1
        return False

    def _window(self, key: Key, now: float) -> _Window | None:
        """Return the window of a key; one that has ended counts on until what it left out is told."""
        window = self._windows.get(key)
        return window if window is not None and (window.ends > now or window.left_out) else None

    def _make_room(self, now: float) -> bool:
        """Drop the windows that ended with nothing to tell; whether there is room now."""
        if now < self._full_until:
            return False
        self._windows = {key: item for key, item in list(self._windows.items()) if item.ends > now or item.left_out}
        if len(self._windows) < self._max_keys:
            return True
        self._full_until = now + FULL_SECONDS
        return False

    def next_end(self) -> float | None:
        """When the first window ends that has something to tell; None where none has."""
        return min((item.ends for item in list(self._windows.values()) if item.left_out), default=None)

    def take(self, now: float) -> list[tuple[Key, int]]:
        """Take out the windows that ended: the keys of which lines were left out, and how many."""
        over = [(key, item.left_out) for key, item in list(self._windows.items()) if item.ends <= now]
        for key, _ in over:
            del self._windows[key]
        return [(key, count) for key, count in over if count]


# Faults as the log may show them: where they happened and of what kind, without the values that met there.
#
# The message of an exception quotes what it failed on: a body, a key, a text of the till's. So it is left out,
# except where Python or SQLite make it of names in the code alone.

#: The newest calls of a traceback that are told, and the exceptions of a chain: a line has to fit into the journal.
MAX_FRAMES = 20
MAX_CHAIN = 4

#: Kinds whose messages name types, attributes and columns, never a value; their subclasses may be otherwise.
PLAIN = frozenset({TypeError, AttributeError, NameError, RecursionError, MemoryError, ZeroDivisionError})
PLAIN_SQL = frozenset({sqlite3.OperationalError, sqlite3.DatabaseError, sqlite3.IntegrityError})

#: Where the package is; what is not in it is told by its last two names.
_HERE = Path(__file__).parents[2]


def told(error: BaseException) -> list[dict[str, Any]]:
    """Return an exception and what it came from, the newest first: type, message where it can be told, frames."""
    chain: list[dict[str, Any]] = []
    item: BaseException | None = error
    while item is not None and len(chain) < MAX_CHAIN:
        chain.append(_one(item))
        item = item.__cause__ or (None if item.__suppress_context__ else item.__context__)
    return chain


def _one(error: BaseException) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": type(error).__qualname__}
    message = _message(error)
    if message:
        entry["message"] = message
    if isinstance(error, BaseExceptionGroup):
        entry["of"] = [_one(each) for each in error.exceptions[:MAX_CHAIN]]
    entry["frames"] = frames(error.__traceback__)
    return entry


def _message(error: BaseException) -> str | None:
    if isinstance(error, OSError):
        return error.strerror if isinstance(error.strerror, str) and error.errno in errno.errorcode else None
    return str(error) if type(error) in PLAIN | PLAIN_SQL else None


def frames(trace: TracebackType | None) -> list[str]:
    """Return the calls of a traceback, the outermost first, as `file:line function`."""
    calls = deque(traceback.walk_tb(trace), MAX_FRAMES)
    return [f"{place(frame.f_code.co_filename)}:{line} {frame.f_code.co_name}" for frame, line in calls]


def place(filename: str) -> str:
    """Return a file's name as it is told: from the package on, or of others the last two parts."""
    path = Path(filename)
    try:
        return str(path.relative_to(_HERE))
    except ValueError:
        return "/".join(path.parts[-2:])
