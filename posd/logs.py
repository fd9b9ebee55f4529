"""Logs: structlog, JSON on stdout, one line a fact. Fields are allow-listed (design 11).

A field that is not in `FIELDS` is dropped and named in `dropped`, so that no token, header, metadata, e-mail or raw
body can slip into a log by a careless call. Libraries that log by themselves are heard from warnings on, as one line.
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

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


def allow_listed(_logger: Any, _name: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Drop fields that no log line may have, and those that say nothing (None)."""
    dropped = sorted(fields.keys() - FIELDS - _OWN)
    kept = {name: value for name, value in fields.items() if name not in dropped and value is not None}
    first = {name: kept.pop(name) for name in ("timestamp", "level", "event") if name in kept}
    return first | kept | ({"dropped": dropped} if dropped else {})


def configure(level: str) -> None:
    """Send every log line, ours and the libraries', to stdout as JSON."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            allow_listed,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.ExceptionRenderer(
                    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
                ),
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("posd").setLevel(level.upper())
