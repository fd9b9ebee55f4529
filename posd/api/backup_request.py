"""The body of `POST /backup`, and the answer that has a backup in it."""

import asyncio
import os
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import StreamingResponse

from posd.base.json_text import Object, decode
from posd.base.json_types import Wire
from posd.base.problems import Problem
from posd.storage.rotation import KEEP, MOST_KEPT

#: An absolute path on this machine.
AbsolutePath = Annotated[str, Meta(pattern="^/", min_length=1)]
#: Bytes that are read and sent at a time.
PIECE_BYTES = 256 * 1024


class BackupRequest(msgspec.Struct, frozen=True):
    """Where a backup goes: exactly one of `path`, `into` and `send`."""

    path: Annotated[
        Path | None, Wire(AbsolutePath | None), Meta(description="a file, which is replaced when the new one is whole")
    ] = None
    into: Annotated[
        Path | None,
        Wire(AbsolutePath | None),
        Meta(description="a directory: the file gets a name with the time in it, and the oldest are removed"),
    ] = None
    keep: Annotated[
        int,
        Wire(Annotated[int, Meta(ge=1, le=MOST_KEPT)] | None),
        Meta(description=f"of `into`: how many are kept, {KEEP} if left out"),
    ] = KEEP
    send: Annotated[bool, Wire(bool | None), Meta(description="the answer is the backup")] = False

    @property
    def field(self) -> str:
        """The field that says where to."""
        return "path" if self.path is not None else "into"


FIELDS = BackupRequest.__struct_fields__


def read_backup(body: bytes) -> BackupRequest:
    """Read the body. Raise Problem."""
    try:
        document = decode(body)
    except ValueError as error:
        raise Problem("malformed_json", f"the body is not JSON ({error}); no backup was made") from error
    if not isinstance(document, Object):
        raise invalid("the body must be a JSON object", [{"path": "", "message": "must be a JSON object"}])
    errors = [
        {"path": f"/{name}", "message": f"is not a field of this call; fields are {', '.join(FIELDS)}"}
        for name in document
        if name not in FIELDS
    ] + [{"path": f"/{name}", "message": "stands more than once"} for name in sorted(document.repeated)]
    path, into, keep, send = (document.get(name) for name in FIELDS)
    for name, value in (("path", path), ("into", into)):
        if value is not None and (not isinstance(value, str) or not value):
            errors.append({"path": f"/{name}", "message": "must be a string: an absolute path"})
    if not isinstance(send, bool | None):
        errors.append({"path": "/send", "message": "must be true or false"})
    if keep is not None:
        if whole_number(keep, 1, MOST_KEPT) is None:
            errors.append({"path": "/keep", "message": f"must be a whole number of 1 to {MOST_KEPT}"})
        elif into is None:
            errors.append({"path": "/keep", "message": "belongs to /into: the directory of which so many are kept"})
    if [bool(path), bool(into), bool(send)].count(True) != 1 and not errors:
        message = "is required, or `into` (a directory), or `send`: one of them, once; the absolute path of the file"
        errors.append({"path": "/path", "message": message})
    if errors:
        raise invalid("; ".join(f"{error['path']} {error['message']}" for error in errors), errors)
    return BackupRequest(_path(path), _path(into), KEEP if keep is None else int(keep), bool(send))


def _path(value: Any) -> Path | None:
    return Path(value) if value else None


def whole_number(value: Any, least: int, most: int) -> int | None:
    """Return a number of a JSON text where it is whole and in that range."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not least <= value <= most:
        return None
    return int(value) if value == int(value) else None


def invalid(what: str, errors: list[dict[str, str]]) -> Problem:
    """Return the problem of a body that is not as described."""
    return Problem("invalid_request", f"nothing was done: {what}", errors=errors)


class Sent(StreamingResponse):
    """Sends what a descriptor reads, piece by piece, and closes it, whether the reader stays or goes."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        headers = {"content-length": str(size), "cache-control": "no-store"}
        super().__init__(self._pieces(), media_type="application/octet-stream", headers=headers)

    async def _pieces(self) -> AsyncIterator[bytes]:
        while piece := await asyncio.to_thread(os.read, self._descriptor, PIECE_BYTES):
            yield piece

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._descriptor)
