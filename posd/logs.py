"""Logs: structlog, JSON on stdout, one line a fact. Fields are allow-listed (design 11).

A field that is not in `FIELDS` is dropped and named in `dropped`, so that no token, header, metadata, e-mail or raw
body can slip into a log by a careless call. Libraries that log by themselves are heard from warnings on, as one line.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
import structlog

#: Every field that a log line may have, beside event, level, logger, timestamp and exception.
FIELDS = frozenset(
    {
        "code",
        "count",
        "database",
        "detail",
        "directory",
        "error",
        "error_id",
        "evidence",
        "expires",
        "fingerprint_sha256",
        "fleet",
        "host",
        "http_status",
        "in_fleet",
        "interfaces",
        "judgement",
        "kind",
        "limit_bytes",
        "listen",
        "method",
        "peer",
        "phase",
        "pid",
        "port",
        "print_job",
        "reason",
        "result",
        "retry_s",
        "service_types",
        "signal",
        "status",
        "terminal",
        "transaction",
        "type",
        "uid",
        "verdict",
        "version",
    }
)

_OWN = frozenset({"event", "level", "logger", "timestamp", "exc_info", "exception", "_record", "_from_structlog"})
_ALLOWED = FIELDS | _OWN

#: What a logger is told lines by.
_METHODS = ("debug", "info", "warning", "error", "exception", "critical")

_ENCODER = msgspec.json.Encoder(enc_hook=repr)


def allow_listed(logger: Any, level: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Put time, level and event first; drop fields that no log line may have, and those that say nothing (None)."""
    moment = datetime.now(UTC).isoformat(timespec="microseconds")[:-6]
    kept: dict[str, Any] = {
        "timestamp": f"{moment}Z",
        "level": level,
        "event": fields.pop("event"),
        "logger": logger.name,
    }
    for name, value in fields.items():
        if name not in _ALLOWED:
            kept.setdefault("dropped", []).append(name)
        elif value is not None:
            kept[name] = value
    return kept


class Lines:
    """Writes whole lines to stdout, those of one turn of the event loop at once.

    A reader that is gone is no reason to fail a payment.
    """

    waiting: ClassVar[list[bytes]] = []
    #: The loop at the end of whose turn they are written.
    turn: ClassVar[asyncio.AbstractEventLoop | None] = None

    def __init__(self, name: str = "posd") -> None:
        self.name = name

    def write(self, line: bytes) -> None:
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
    with suppress(AttributeError, OSError, ValueError):  # the first where neither is open
        stream = (sys.stdout or sys.stderr).buffer
        stream.write(b"".join(line + b"\n" for line in lines))
        stream.flush()


def _render(_logger: Any, _name: str, fields: MutableMapping[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(fields)
    except UnicodeEncodeError:  # a lone surrogate, as in the name of a file that is not UTF-8
        return json.dumps(fields, default=repr).encode()


def set_level(level: str) -> None:
    """Change the level at which lines are written, of all loggers at once: each keeps its class."""
    leveled = structlog.make_filtering_bound_logger(level)
    for method in _METHODS:
        setattr(structlog.get_config()["wrapper_class"], method, getattr(leveled, method))


def _logger_class(level: str) -> type[Any]:
    """Return a class of our own: structlog has one for each level, for everybody."""
    return type("Logger", (structlog.make_filtering_bound_logger(level),), {})


def configure(level: str) -> None:
    """Send every log line, ours and the libraries', to stdout as JSON."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    tracebacks = structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    )
    # Not by way of the standard library's loggers: a payment has some ten lines, and theirs cost five times as much.
    structlog.configure(
        processors=[allow_listed, tracebacks, _render],
        logger_factory=Lines,
        wrapper_class=_logger_class(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                tracebacks,
                structlog.processors.JSONRenderer(ensure_ascii=False, separators=(",", ":")),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
