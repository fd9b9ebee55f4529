"""Logs: structlog, JSON on stdout, one line a fact. Fields are allow-listed (architecture, Rules that hold everywhere).

A field that is not in `FIELDS` is dropped and named in `dropped`, so that no token, header, metadata, e-mail or raw
body can slip into a log by a careless call. Nor do exceptions and libraries, which quote what they are about. What
repeats without end is told a few times, then counted. Every event that is logged has its row in `posd.logs.events`.
"""

import asyncio
import errno
import json
import logging
import os
import re
import secrets
import sqlite3
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Final, NamedTuple, TextIO

import msgspec
import structlog

from posd.base.clocks import monotonic, wall
from posd.base.redaction import REDACTOR
from posd.base.text import escaped

_FIELDS = """
before bytes_returned code count database detail directory error error_id evidence expires fingerprint_sha256 fleet
host http_status in_fleet interfaces judgement kept kind limit_bytes listen method peer phase pid port print_job
print_jobs quarantined reason result retry_s seconds service_types signal status terminal transaction type uid
verdict version
"""
#: Every field that a log line may have, beside event, level, logger, timestamp and exception.
FIELDS = frozenset(_FIELDS.split())

#: Those that hold words; a device or a library may have had a part in them.
TEXTS = frozenset({"code", "detail", "error", "reason", "status"})
#: Longest text and list that a line has, in characters and items. The journal cuts a line that is over 48 KiB.
MAX_TEXT = 2000
MAX_ITEMS = 200

_OWN = frozenset({"event", "level", "logger", "timestamp", "exc_info"})
_ALLOWED = FIELDS | _OWN
_E_MAIL = re.compile(r"[^\s@<>\"',;:()]+@[^\s@<>\"',;:()]+")

#: level -> what begins its lines where the journal reads them: how important they are (sd-daemon(3)).
PREFIXES: Mapping[str, bytes] = {
    "debug": b"<7>",
    "info": b"<6>",
    "warning": b"<4>",
    "error": b"<3>",
    "critical": b"<2>",
}

#: What a logger is told lines by.
_METHODS = ("debug", "info", "warning", "error", "exception", "critical")

_ENCODER = msgspec.json.Encoder(enc_hook=repr)

log = structlog.get_logger("posd.logs")


def to_journal(stream: TextIO | None) -> bool:
    """Whether what is written to a stream goes to the journal by itself (JOURNAL_STREAM of systemd.exec(5))."""
    if stream is None:
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def allow_listed(moment: datetime, logger: str, level: str, fields: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """Put time, level and event first; drop fields that no log line may have, and those that say nothing (None)."""
    kept: dict[str, Any] = {
        "timestamp": moment if moment.microsecond else _written(moment),
        "level": level,
        "event": fields["event"],
        "logger": logger,
    }
    for name, value in fields.items():
        if name not in _ALLOWED:
            kept.setdefault("dropped", []).append(name)
        elif isinstance(value, str):
            kept[name] = _text(value) if name in TEXTS and (len(value) > MAX_TEXT or "@" in value) else value
        elif isinstance(value, list) and len(value) > MAX_ITEMS:
            kept[name] = [*value[:MAX_ITEMS], f"and {len(value) - MAX_ITEMS} more"]
        elif value is not None:
            kept[name] = value
    return kept


def _written(moment: datetime) -> str:
    """Return a moment as msgspec writes it, in all six digits: where they are zeros, it leaves them out."""
    return f"{moment.isoformat(timespec='microseconds')[:-6]}Z"


def _text(value: str) -> str:
    """Return a text as a line may have it: not too long, and without e-mail addresses."""
    if len(value) > MAX_TEXT:
        value = f"{value[:MAX_TEXT]}…"
    return _E_MAIL.sub("(an e-mail address)", value) if "@" in value else value


# What repeats without end is told a few times and then counted: how many lines of a kind a log takes.
#
# A window of a key begins with its first line. So many lines pass in it; the rest are counted, and told as one
# number when the window ends. The table is bounded: what is over it shares one key.

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
        # Limited where they are written: posd.httpd.admission and posd.terminals.certificate_refusals.
        "listener.refused": Limit(1000, MINUTE),
        "listener.distrusted": Limit(1000, MINUTE),
    }
)

#: The event, the level, and the values of the fields by which its lines count apart, None where a line has it not.
Key = tuple[Any, ...]
#: So many parts of a key say what kind of line it is.
KIND = 2


def limit_of(event: str, level: str) -> Limit | None:
    """Return the limit of a line; None where it is written in any case."""
    limit = LIMITS.get(event)
    return TROUBLE if limit is None and level in SEVERE else limit


class _Window(msgspec.Struct):
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
        window = self._windows.get(key)
        if window is None or (window.ends <= now and not window.left_out):
            window = self._begin(key, limit, now)
        if window.lines < limit.lines:
            window.lines += 1
            return True
        window.left_out += 1
        return False

    def _begin(self, key: Key, limit: Limit, now: float) -> _Window:
        """Return a new window of a key; where there is no room, the window that the keys of its kind share.

        A window that has ended counts on until what it left out is told.
        """
        if len(self._windows) >= self._max_keys and not self._make_room(now):
            key = key[:KIND]
            window = self._windows.get(key)
            if window is not None and (window.ends > now or window.left_out):
                return window
        window = self._windows[key] = _Window(now + limit.seconds)
        return window

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


class Floods:
    """Leaves out what repeats without end, and tells when its time is over how much that was (`posd.logs.output`)."""

    def __init__(self) -> None:
        # Garbage collection can run here, and an object that fails at its end is a line as well.
        self._lock = threading.RLock()
        self.forget()

    def forget(self) -> None:
        """Begin anew, on the loop that runs then."""
        self._windows = Windows()
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, fields: Mapping[str, Any], now: float) -> None:
        """Let a line pass, by the monotonic clock. Raise DropEvent where there were too many of its kind."""
        event, level = fields["event"], fields["level"]
        limit = limit_of(event, level)
        if limit is None or event == "log.collapsed":
            return
        key = (event, level, *map(fields.get, limit.by))
        with self._lock:
            passes = self._windows.admit(key, limit, now)
        if not passes:
            self._wait()
            raise structlog.DropEvent

    def _wait(self) -> None:
        """See to it that the end of the window is told; off the loop the next line on it sees to that."""
        if self._timer is not None:
            return
        with suppress(RuntimeError), self._lock:
            ends = self._windows.next_end()
            if ends is not None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(max(0.0, ends - monotonic()), self._ended)

    def _ended(self) -> None:
        self._timer = None
        self.tell(monotonic())
        self._wait()

    def tell(self, now: float = float("inf")) -> None:
        """Tell what was left out of the windows that have ended; by default of all."""
        with self._lock:
            told = self._windows.take(now)
        for (event, level, *about), count in told:
            limit = limit_of(event, level)
            named = zip(limit.by if limit is not None else (), about, strict=False)  # of a shared window nothing is
            fields = dict(named) | {"kind": event, "count": count}
            (log.warning if level in SEVERE else log.info)("log.collapsed", **fields)


floods = Floods()


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


def exception_words(error: BaseException) -> list[dict[str, Any]]:
    """Return an exception and what it came from, the newest first: type, message where it can be told, frames."""
    chain: list[dict[str, Any]] = []
    item: BaseException | None = error
    while item is not None and len(chain) < MAX_CHAIN:
        chain.append(_exception_entry(item))
        item = item.__cause__ or (None if item.__suppress_context__ else item.__context__)
    return chain


def _exception_entry(error: BaseException) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": type(error).__qualname__}
    message = _exception_message(error)
    if message:
        entry["message"] = message
    if isinstance(error, BaseExceptionGroup):
        entry["of"] = [_exception_entry(each) for each in error.exceptions[:MAX_CHAIN]]
    entry["frames"] = frames(error.__traceback__)
    return entry


def _exception_message(error: BaseException) -> str | None:
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


def taken_out(fields: MutableMapping[str, Any]) -> list[dict[str, Any]] | None:
    """Take the exception out of a line, in words: where and of what kind, not what it was about; None without one."""
    given = fields.pop("exc_info", None)
    error = sys.exception() if given is True else given
    return exception_words(error) if isinstance(error, BaseException) else None


# How lines are written, and what else than posd's own loggers writes them.


#: A line that is to be written: by the monotonic clock it returns its text, without its end, or raises DropEvent.
Line = Callable[[float], bytes]


class Renderer:
    """Makes a line of what was logged: all steps in one, for a payment has some ten lines.

    A line is one line wherever it is read: what is not printable in it is escaped. For the journal it has its level in
    front, which the journal takes off again.
    """

    def __init__(self, prefixes: Mapping[str, bytes], now: Callable[[], datetime]) -> None:
        self._prefixes = prefixes
        self._now = now

    def __call__(self, logger: Any, level: str, fields: MutableMapping[str, Any]) -> tuple[tuple[Line], dict[str, Any]]:
        """Return what `Lines.write` is called with. The text is made when it is written: a terminal may be waiting."""
        return (partial(self._text, self._now(), logger.name, level, fields, taken_out(fields)),), {}

    def _text(
        self,
        moment: datetime,
        logger: str,
        level: str,
        given: Mapping[str, Any],
        exception: list[dict[str, Any]] | None,
        now: float,
    ) -> bytes:
        """Return the text of a line. Raise DropEvent where there were too many of its kind."""
        fields = allow_listed(moment, logger, level, given)
        floods.admit(fields, now)
        if exception is not None:
            fields["exception"] = exception
        try:
            line = _ENCODER.encode(fields)
        except UnicodeEncodeError:  # a lone surrogate, as in the name of a file that is not UTF-8
            fields["timestamp"] = _written(moment)
            line = json.dumps(fields, default=repr).encode()
        if not line.isascii() or 0x7F in line:  # JSON itself escapes only what is below a space
            line = escaped(line.decode()).encode()
        line = REDACTOR.body(line)
        return self._prefixes.get(fields["level"], b"") + line


class Lines:
    """Writes whole lines to stdout, those of one turn of the event loop at once.

    A reader that is gone is no reason to fail a payment.
    """

    waiting: ClassVar[list[Line]] = []
    #: The loop at the end of whose turn they are written.
    turn: ClassVar[asyncio.AbstractEventLoop | None] = None

    def __init__(self, name: str = "posd") -> None:
        self.name = name

    def write(self, line: Line) -> None:
        """Write one line: on the event loop at the end of this turn of it, elsewhere now."""
        Lines.waiting.append(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # there is none, or this is another thread
            flush()
            return
        if Lines.turn is not loop:
            Lines.turn = loop
            loop.call_soon(flush)

    debug = info = warning = error = critical = write


def flush() -> None:
    """Write the lines that wait."""
    Lines.turn = None
    lines = Lines.waiting[:]
    del Lines.waiting[: len(lines)]
    texts: list[bytes] = []
    now = monotonic()
    for line in lines:
        try:
            texts.append(line(now) + b"\n")
        except structlog.DropEvent:  # not `suppress`: that costs as much as a third of a line
            continue
    with suppress(AttributeError, OSError, ValueError):  # the first where neither is open
        stream = (sys.stdout or sys.stderr).buffer
        stream.write(b"".join(texts))
        stream.flush()


class Libraries(logging.Handler):
    """Hears what libraries log by themselves, from warnings on.

    A message of theirs may quote anything. Of one that is filled in only the pattern is told, and where it is from.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write it as a line of ours."""
        pattern = record.msg if isinstance(record.msg, str) and record.args else None
        error = record.exc_info[1] if record.exc_info else None
        where = f"{record.name} ({record.module}:{record.lineno})"
        try:
            severe = record.levelno >= logging.ERROR
            (log.error if severe else log.warning)("posd.library", kind=where, detail=pattern, exc_info=error)
        except Exception:  # noqa: BLE001 - a line that cannot be written is no reason to fail what it is about
            return


def warned(
    message: Warning | str,  # noqa: ARG001 - warnings.showwarning; what it quotes is not told
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Tell of a warning of Python's: of what kind, and where."""
    log.warning("posd.library", kind=f"{category.__name__} ({place(filename)}:{lineno})")


def crashed(error: BaseException, detail: str) -> None:
    """Log an exception that was not handled, once and with an id."""
    log.error("posd.internal_error", error_id=secrets.token_hex(8), detail=detail, exc_info=error)


def set_level(level: str) -> None:
    """Change the level at which lines are written, of all loggers at once: each keeps its class."""
    leveled = structlog.make_filtering_bound_logger(level)
    for method in _METHODS:
        setattr(structlog.get_config()["wrapper_class"], method, getattr(leveled, method))


def _logger_class(level: str) -> type[Any]:
    """Return a class of our own: the classes of structlog are shared by all who use it."""
    return type("Logger", (structlog.make_filtering_bound_logger(level),), {"_proxy_to_logger": _hand_over})


def _hand_over(logger: Any, level: str, event: str | None = None, **fields: Any) -> None:
    """Write a line by structlog's processors, as its BoundLoggerBase does, where the last one returns arguments.

    That copies the fields twice on the way, and asks of what type the result is.
    """
    if logger._context:
        fields = {**logger._context, **fields}
    fields["event"] = event
    made: Any = fields
    try:
        for processor in logger._processors:
            made = processor(logger._logger, level, made)
    except structlog.DropEvent:
        return
    args, named = made
    getattr(logger._logger, level)(*args, **named)


def configure(level: str, now: Callable[[], datetime] = wall) -> None:
    """Send every log line, ours and the libraries', to stdout as JSON."""
    # Not by way of the standard library's loggers: a payment has some ten lines, and theirs cost five times as much.
    floods.forget()
    prefixes = PREFIXES if to_journal(sys.stdout or sys.stderr) else {}
    structlog.configure(
        processors=[Renderer(prefixes, now)],
        logger_factory=Lines,
        wrapper_class=_logger_class(level),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [Libraries()]
    root.setLevel(logging.WARNING)
    # What Python itself would write to stderr, values and all.
    threading.excepthook = lambda hook: crashed(hook.exc_value or SystemError(), "a thread ended by it")
    warnings.showwarning = warned
    sys.unraisablehook = lambda hook: crashed(hook.exc_value or SystemError(), "it came where nothing can be raised")
