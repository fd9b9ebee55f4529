"""Log output: structlog, JSON on stdout, one line for each fact.

Fields are allow-listed (docs/design/architecture.md, Rules that hold everywhere). A field that is not in `FIELDS` is
dropped, and its name is added to `dropped`. So a mistake in a call cannot log a token, header, metadata, e-mail or raw
body. Texts of exceptions and libraries can quote data, so posd omits most of them. If lines of one kind repeat
endlessly, a few are logged, and the others are only counted. Every event in the log has a row in
`posd.cli.explain.catalogue`.
"""

import asyncio
import atexit
import errno
import json
import logging
import os
import re
import secrets
import select
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
from types import TracebackType
from typing import Any, ClassVar, Final, TextIO

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
#: Every allowed field of a log line, in addition to event, level, logger, timestamp and exception.
FIELDS = frozenset(_FIELDS.split())

#: Fields with text that may come from a device or a library.
TEXTS = frozenset({"code", "detail", "error", "reason", "status"})
#: Longest text in a line, in characters, and longest list, in items. The journal splits a line longer than 48 KiB.
MAX_TEXT = 2000
MAX_ITEMS = 200

_OWN = frozenset({"event", "level", "logger", "timestamp", "exc_info"})
_ALLOWED = FIELDS | _OWN
_E_MAIL = re.compile(r"[^\s@<>\"',;:()]+@[^\s@<>\"',;:()]+")

#: Log level -> prefix by which the journal recognizes the priority of a line (sd-daemon(3)).
PREFIXES: Mapping[str, bytes] = {
    "debug": b"<7>",
    "info": b"<6>",
    "warning": b"<4>",
    "error": b"<3>",
    "critical": b"<2>",
}

#: Methods of a logger that log a line.
_METHODS = ("debug", "info", "warning", "error", "exception", "critical")

_ENCODER = msgspec.json.Encoder(enc_hook=repr)

log = structlog.get_logger("posd.logs")


def to_journal(stream: TextIO | None) -> bool:
    """Return whether a stream is connected to the journal (JOURNAL_STREAM of systemd.exec(5))."""
    if stream is None:
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def allow_listed(moment: datetime, logger: str, level: str, fields: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the fields of a line: time, level and event first, without None values and fields that are not allowed."""
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
    """Return a time as msgspec writes it, but always with six digits. msgspec omits zero microseconds."""
    return f"{moment.isoformat(timespec='microseconds')[:-6]}Z"


def _text(value: str) -> str:
    """Return a text for a line, shortened and without e-mail addresses."""
    if len(value) > MAX_TEXT:
        value = f"{value[:MAX_TEXT]}…"
    return _E_MAIL.sub("(an e-mail address)", value) if "@" in value else value


# Limits of repeated lines.
#
# The key of a line is its event, its level, and some of its fields. A window of a key begins with its first line. The
# first lines of the window are logged. Further lines are counted, and logged as one number when the window ends. The
# number of windows is limited. Above the limit, new keys share one window for each event and level.

#: Maximum number of keys that are counted separately. A shop has fewer open payments, so more keys mean a flood.
MAX_KEYS = 512

#: Seconds after which a full table is searched again for ended windows. Otherwise each line in a burst of a thousand
#: payments would search the whole table.
FULL_SECONDS = 1.0

#: A minute and an hour, in seconds.
MINUTE = 60.0
HOUR = 3600.0

#: Levels at which a line has a limit even without a row in `LIMITS`.
SEVERE = frozenset({"warning", "error", "critical"})


class LineLimit(msgspec.Struct, frozen=True):
    """Limit of an event: `lines` in `seconds`. Lines that differ in a field of `by` are counted separately."""

    lines: int
    seconds: float
    by: tuple[str, ...] = ()


#: Fields that name the subject of a line. A flood about one subject must not hide lines about another.
SUBJECT = ("transaction", "print_job", "terminal")

#: Limit of a warning or an error without a row in `LIMITS`. Because of this limit, a general fault such as a full disk
#: is not logged for each payment.
TROUBLE: Final = LineLimit(20, MINUTE)

#: event -> its limit. An info line without a row is always written, because each is a separate fact.
LIMITS: Final[Mapping[str, LineLimit]] = {
    # Results of a payment or print job: counted for each of them, so that a flood about one hides no other.
    "payment.attention": LineLimit(5, MINUTE, (*SUBJECT, "code")),
    "print.attention": LineLimit(5, MINUTE, (*SUBJECT, "code")),
    "print.outcome": LineLimit(5, MINUTE, SUBJECT),
    "store.difference": LineLimit(50, MINUTE),
    # Data that an authentic terminal may send in a loop.
    "webhook.event": LineLimit(30, MINUTE, SUBJECT),
    "webhook.print": LineLimit(30, MINUTE, SUBJECT),
    "webhook.quarantined": LineLimit(5, MINUTE, SUBJECT),
    "webhook.too_large": LineLimit(5, MINUTE, SUBJECT),
    "webhook.unreadable": LineLimit(5, MINUTE, SUBJECT),
    # Calls that a till or an operator may make in a loop.
    "stream.cut_off": LineLimit(5, MINUTE, ("kind",)),
    "start.dropped": LineLimit(30, MINUTE),
    "payment.abort": LineLimit(10, MINUTE, SUBJECT),
    "payment.operator": LineLimit(10, MINUTE, SUBJECT),
    "print.operator": LineLimit(10, MINUTE, SUBJECT),
    # Searches that posd repeats for hours while a terminal is unreachable.
    "payment.search": LineLimit(10, HOUR, (*SUBJECT, "result")),
    "print.poll": LineLimit(10, HOUR, (*SUBJECT, "result", "status")),
    # Effects of an unstable network or of a device that announces without end.
    "discovery.claim": LineLimit(5, HOUR, SUBJECT),
    "discovery.found": LineLimit(10, HOUR, SUBJECT),
    "discovery.gone": LineLimit(10, HOUR, SUBJECT),
    "discovery.started": LineLimit(10, HOUR),
    "discovery.unavailable": LineLimit(10, HOUR),
    "interfaces.polled": LineLimit(5, HOUR),
    "interfaces.unreadable": LineLimit(5, HOUR),
    # Events whose lines are limited at their source: posd.httpd.admission and posd.api.certificate.
    "listener.refused": LineLimit(1000, MINUTE),
    "listener.distrusted": LineLimit(1000, MINUTE),
}

#: Key of a window: event, level, and the values of the fields in `LineLimit.by` (None if missing).
Key = tuple[Any, ...]
#: The first two parts of a key, event and level, are the kind of a line.
KIND = 2


def limit_of(event: str, level: str) -> LineLimit | None:
    """Return the limit of a line, or None if the line is always written."""
    limit = LIMITS.get(event)
    return TROUBLE if limit is None and level in SEVERE else limit


class _Window(msgspec.Struct):
    ends: float
    lines: int = 0
    left_out: int = 0


class LineCounter:
    """Counts of lines by key. Times are on the monotonic clock, in seconds.

    `posd.httpd.allowance.Allowance` does not fit: its budget refills bit by bit, so single lines would be logged again.
    A window ends at one moment, and then the number of its omitted lines is logged. So a window with omitted lines must
    stay until then.
    """

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._windows: dict[Key, _Window] = {}
        self._full_until = 0.0

    def admit(self, key: Key, limit: LineLimit, now: float) -> bool:
        """Return whether to log a line. If not, count the line as omitted."""
        window = self._windows.get(key)
        if window is None or (window.ends <= now and not window.left_out):
            window = self._begin(key, limit, now)
        if window.lines < limit.lines:
            window.lines += 1
            return True
        window.left_out += 1
        return False

    def _begin(self, key: Key, limit: LineLimit, now: float) -> _Window:
        """Return a new window for a key. If the table is full, return the shared window of the key's kind.

        An ended window continues to count until the number of its omitted lines is logged.
        """
        if len(self._windows) >= self._max_keys and not self._make_room(now):
            key = key[:KIND]
            window = self._windows.get(key)
            if window is not None and (window.ends > now or window.left_out):
                return window
        window = self._windows[key] = _Window(now + limit.seconds)
        return window

    def _make_room(self, now: float) -> bool:
        """Drop ended windows without omitted lines. Return whether the table has free entries again."""
        if now < self._full_until:
            return False
        self._windows = {key: item for key, item in list(self._windows.items()) if item.ends > now or item.left_out}
        if len(self._windows) < self._max_keys:
            return True
        self._full_until = now + FULL_SECONDS
        return False

    def next_end(self) -> float | None:
        """Return the earliest end of a window with omitted lines, or None."""
        return min((item.ends for item in list(self._windows.values()) if item.left_out), default=None)

    def take(self, now: float) -> list[tuple[Key, int]]:
        """Remove ended windows. Return each key that has omitted lines, with the number of these lines."""
        over = [(key, item.left_out) for key, item in list(self._windows.items()) if item.ends <= now]
        for key, _ in over:
            del self._windows[key]
        return [(key, count) for key, count in over if count]


class FloodFilter:
    """Filter of repeated lines. The filter logs the number of omitted lines when a window ends."""

    def __init__(self) -> None:
        # An RLock, because garbage collection can run while the lock is held, and a failing finalizer logs a line.
        self._lock = threading.RLock()
        self.forget()

    def forget(self) -> None:
        """Reset the filter for a new event loop."""
        self._windows = LineCounter()
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, fields: Mapping[str, Any], now: float) -> None:
        """Count a line. `now`: time of the monotonic clock. Raise DropEvent after too many lines of its kind."""
        event, level = fields["event"], fields["level"]
        limit = limit_of(event, level)
        if limit is None or event in ("log.collapsed", "log.dropped"):
            return
        key = (event, level, *map(fields.get, limit.by))
        with self._lock:
            passes = self._windows.admit(key, limit, now)
        if not passes:
            self._wait()
            raise structlog.DropEvent

    def _wait(self) -> None:
        """Set the timer for the first end of a window.

        A line outside the event loop cannot set the timer, so the next line on the loop sets it.
        """
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
        """Log the number of omitted lines for each window that has ended by `now`, by default for all windows."""
        with self._lock:
            told = self._windows.take(now)
        for (event, level, *about), count in told:
            limit = limit_of(event, level)
            named = zip(limit.by if limit is not None else (), about, strict=False)  # a shared window has no values
            fields = dict(named) | {"kind": event, "count": count}
            (log.warning if level in SEVERE else log.info)("log.collapsed", **fields)


floods = FloodFilter()


# Exceptions in the log: place and type, without values.
#
# The message of an exception can quote data: a body, a key, a till's text. So the message is omitted, unless Python or
# SQLite build it only from names in the code.

#: Maximum number of calls in a traceback, and of exceptions in a chain, because a line must fit into the journal.
MAX_FRAMES = 20
MAX_CHAIN = 4

#: Exception types whose messages name types, attributes or columns, and never contain a value. Subclasses may differ.
PLAIN = frozenset({TypeError, AttributeError, NameError, RecursionError, MemoryError, ZeroDivisionError})
PLAIN_SQL = frozenset({sqlite3.OperationalError, sqlite3.DatabaseError, sqlite3.IntegrityError})

#: Folder that contains the package. Files outside it are shown by the last two parts of their path.
_HERE = Path(__file__).parents[2]


def exception_words(error: BaseException) -> list[dict[str, Any]]:
    """Return an exception and its causes, the newest first: type, message if allowed, frames."""
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
    """Return a file's name for display: the path within the package, otherwise the last two parts of the path."""
    path = Path(filename)
    try:
        return str(path.relative_to(_HERE))
    except ValueError:
        return "/".join(path.parts[-2:])


def taken_out(fields: MutableMapping[str, Any]) -> list[dict[str, Any]] | None:
    """Remove the exception from the fields of a line. Return its entries (see `exception_words`), or None."""
    given = fields.pop("exc_info", None)
    error = sys.exception() if given is True else given
    return exception_words(error) if isinstance(error, BaseException) else None


# Log writer with its own thread. If the program that reads the log stops, only the log waits.
#
# An inherited descriptor is shared with other processes, so it stays blocking, and the thread waits in `write`.

#: Maximum size of the waiting lines, and of the lines that are being written, in bytes. The size is enough for about
#: 3,000 lines or 300 payments.
MAX_BYTES = 1_048_576
#: Longest wait for the reader at the end of the process, in seconds. A working journal takes milliseconds.
END_SECONDS = 0.5


def output_descriptor() -> int:
    """Return the descriptor of this process's output. Raise ValueError if no output is open."""
    stream = sys.stdout or sys.stderr
    if stream is None:
        raise ValueError("there is no output")
    return stream.fileno()


class LogWriter:
    """Bounded queue of lines, and the thread that writes them in order.

    If the queue is full, lines are dropped until the thread has taken all queued lines. Then `tell` logs the number of
    dropped lines. `descriptor` raises OSError or ValueError if there is no output.
    """

    def __init__(self, descriptor: Callable[[], int], tell: Callable[[int], None], max_bytes: int = MAX_BYTES) -> None:
        self._descriptor = descriptor
        self._tell = tell
        self._max_bytes = max_bytes
        # A Condition uses an RLock, which is needed here: garbage collection can run while the lock is held, and a
        # failing finalizer logs a line.
        self._changed = threading.Condition()
        self._lines: list[bytes] = []
        self._bytes = 0
        self._is_full = False
        self._is_writing = False
        self._is_started = False
        #: Number of lines dropped since the start.
        self.dropped = 0

    def put(self, lines: list[bytes]) -> None:
        """Queue complete lines, each with its line end. The call never waits for the reader."""
        with self._changed:
            for line in lines:
                self._is_full = self._is_full or self._bytes + len(line) > self._max_bytes
                if self._is_full:
                    self.dropped += 1
                else:
                    self._lines.append(line)
                    self._bytes += len(line)
            self._changed.notify_all()

    def start(self) -> None:
        """Start the thread, once. Waiting lines are still written at the end of the process."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name="log", daemon=True).start()
            atexit.register(self.drain)

    def drain(self, seconds: float = END_SECONDS) -> bool:
        """Wait until all lines are written, at most `seconds`. Return whether all lines are written."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._is_writing), seconds)

    def _run(self) -> None:
        told, failed, torn = 0, False, False
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._lines))
                lines, dropped = self._lines, self.dropped
                self._lines, self._bytes, self._is_full, self._is_writing = [], 0, False, True
            if dropped > told and not failed:
                self._tell(dropped - told)
                told = dropped
            data = b"\n" * torn + b"".join(lines)  # end a line that a full disk has cut off
            count = len(lines)
            del lines  # free the lines, because the reader can be slow
            written = self._write(memoryview(data))
            failed = written < len(data)
            if written:
                torn = failed and not data[:written].endswith(b"\n")
            if failed:
                with self._changed:
                    self.dropped += count
            elif dropped > told:  # lines lost in earlier failures
                self._tell(dropped - told)
                told = dropped

    def _write(self, data: memoryview) -> int:
        """Write data without a time limit. Return the number of written bytes.

        Fewer bytes than given are written if the reader has ended, or the disk is full.
        """
        written = 0
        try:
            descriptor = self._descriptor()
            while written < len(data):
                try:
                    written += os.write(descriptor, data[written:])
                except BlockingIOError:  # another process that shares this pipe may have made it non-blocking
                    poll = select.poll()
                    poll.register(descriptor, select.POLLOUT)
                    poll.poll()
        except (OSError, ValueError):
            pass
        return written


# Lines from posd's loggers and from libraries.


#: Function that returns the text of a line without its line end, or raises DropEvent. Argument: the monotonic time.
Line = Callable[[float], bytes]


#: Arguments of `LineSink.write`, as a processor of structlog returns them.
_Written = tuple[tuple[Line], dict[str, Any]]


def renderer(
    prefixes: Mapping[str, bytes], now: Callable[[], datetime]
) -> Callable[[Any, str, MutableMapping[str, Any]], _Written]:
    """Return the processor of structlog that makes the arguments of `LineSink.write`.

    The text is built only when the line is written, because a terminal may be waiting for a reply.
    """

    def render(logger: Any, level: str, fields: MutableMapping[str, Any]) -> _Written:
        return (partial(_line, prefixes, now(), logger.name, level, fields, taken_out(fields)),), {}

    return render


def _line(
    prefixes: Mapping[str, bytes],
    moment: datetime,
    logger: str,
    level: str,
    given: Mapping[str, Any],
    exception: list[dict[str, Any]] | None,
    now: float,
) -> bytes:
    """Return the text of a line. Raise DropEvent after too many lines of the same kind.

    Unprintable characters are escaped, so the text is one line for every reader. For the journal the text has a prefix
    with its level, which the journal removes. All steps are in one function to save time: a payment logs about ten
    lines.
    """
    fields = allow_listed(moment, logger, level, given)
    floods.admit(fields, now)
    if exception is not None:
        fields["exception"] = exception
    try:
        line = _ENCODER.encode(fields)
    except UnicodeEncodeError:  # a lone surrogate, as in a file's name that is not UTF-8
        fields["timestamp"] = _written(moment)
        line = json.dumps(fields, default=repr).encode()
    if not line.isascii() or 0x7F in line:  # JSON itself escapes only characters below a space
        line = escaped(line.decode()).encode()
    return prefixes.get(fields["level"], b"") + REDACTOR.body(line)


class LineSink:
    """Logger that collects the lines of one step of the event loop, and passes them to the writer together."""

    waiting: ClassVar[list[Line]] = []
    #: Event loop on which `flush` is scheduled, or None.
    turn: ClassVar[asyncio.AbstractEventLoop | None] = None

    def __init__(self, name: str = "posd") -> None:
        self.name = name

    def write(self, line: Line) -> None:
        """Write one line: on the event loop at the end of the present step, elsewhere at once."""
        LineSink.waiting.append(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no loop runs, or this is another thread
            flush()
            return
        if LineSink.turn is not loop:
            LineSink.turn = loop
            loop.call_soon(flush)

    debug = info = warning = error = critical = write


def flush() -> None:
    """Pass the waiting lines to the writer."""
    LineSink.turn = None
    lines = LineSink.waiting[:]
    del LineSink.waiting[: len(lines)]
    texts: list[bytes] = []
    now = monotonic()
    for line in lines:
        try:
            texts.append(line(now) + b"\n")
        except structlog.DropEvent:  # `suppress` would take a third of the time of a line
            continue
    if texts:
        writer.put(texts)


#: Writer of this process's lines.
writer = LogWriter(output_descriptor, lambda count: log.warning("log.dropped", count=count))


#: Placeholder of a value in a message of the standard library's logging, such as `%s`.
_FIELD = re.compile(r"%(\(\w+\))?[-+ #0]*\d*(\.\d+)?[a-zA-Z]")


class LibraryHandler(logging.Handler):
    """Handler of the log records of libraries, from level WARNING.

    A library's message may quote any data. If a message has arguments, its source and its pattern are logged, with "…"
    for each value. Otherwise only its source is logged.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record as a line of posd."""
        pattern = _FIELD.sub("…", record.msg) if isinstance(record.msg, str) and record.args else None
        error = record.exc_info[1] if record.exc_info else None
        where = f"{record.name} ({record.module}:{record.lineno})"
        try:
            severe = record.levelno >= logging.ERROR
            (log.error if severe else log.warning)("posd.library", kind=where, detail=pattern, exc_info=error)
        except Exception:  # noqa: BLE001 - a failure to log a line must not fail the caller
            return


def warned(
    message: Warning | str,  # noqa: ARG001 - signature of warnings.showwarning; its message quotes data
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Log the type and the place of a Python warning."""
    log.warning("posd.library", kind=f"{category.__name__} ({place(filename)}:{lineno})")


def crashed(error: BaseException, detail: str) -> None:
    """Log an unhandled exception with a new id."""
    log.error("posd.internal_error", error_id=secrets.token_hex(8), detail=detail, exc_info=error)


def set_level(level: str) -> None:
    """Set the log level of all existing loggers at once, by changing their common class."""
    leveled = structlog.make_filtering_bound_logger(level)
    for method in _METHODS:
        setattr(structlog.get_config()["wrapper_class"], method, getattr(leveled, method))


def configure(level: str, now: Callable[[], datetime] = wall) -> None:
    """Configure all logs, posd's and the libraries', as JSON on stdout."""
    # The standard library's loggers are not used, because they take five times as long, and a payment logs about ten
    # lines.
    floods.forget()
    writer.start()
    prefixes = PREFIXES if to_journal(sys.stdout or sys.stderr) else {}
    structlog.configure(
        processors=[renderer(prefixes, now)],
        logger_factory=LineSink,
        # `set_level` changes this class. So it is not one of structlog's classes, which other code uses too.
        wrapper_class=type("Logger", (structlog.make_filtering_bound_logger(level),), {}),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [LibraryHandler()]
    root.setLevel(logging.WARNING)
    # By default Python writes warnings, and unhandled errors of threads and finalizers, to stderr, with values.
    threading.excepthook = lambda hook: crashed(hook.exc_value or SystemError(), "this fault ended a thread")
    warnings.showwarning = warned
    sys.unraisablehook = lambda hook: crashed(hook.exc_value or SystemError(), "raised where it cannot be caught")
