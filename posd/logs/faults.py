"""Faults as the log may show them: where they happened and of what kind, without the values that met there.

The message of an exception quotes what it failed on: a body, a key, a text of the till's. So it is left out, except
where Python or SQLite make it of names in the code alone.
"""

import errno
import sqlite3
import traceback
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any

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
