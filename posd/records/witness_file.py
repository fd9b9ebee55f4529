"""The file of the witness: a line more for each start, each end and each other change, rewritten as a whole at times.

No line is synced on the way of a payment. A kill takes nothing: what was written is with the kernel. A power cut takes
what was written since the last sync, which comes `SYNC_SECONDS` after the first line that it covers. That matters only
where the database goes back as well. A disk that is full takes nothing: the file has its blocks before its lines. A
disk that fails stops no payment.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import structlog

from posd.base import files
from posd.records import witness
from posd.records.witness import WitnessContents
from posd.storage.errors import StorageUnavailable

#: How long after a line it is synced at the latest, in seconds: a minute of starts is what a power cut can take.
SYNC_SECONDS = 60.0
#: Payments in a rewritten file: weeks of a shop.
KEPT = 5000
#: Size from which on it is rewritten, in bytes: KEPT payments take about half of it.
MOST_BYTES = 2 * 1024 * 1024
#: Bytes that are kept for it beyond that: some hundred payments on a disk that has no room to rewrite it.
SPARE_BYTES = MOST_BYTES // 4

log = structlog.get_logger("posd.witness")

#: Writes the lines of a new file to a path, where an empty one is.
Content = Callable[[Path], Awaitable[None]]


class WitnessFile:
    """`read` and `open` at the start, `add` for each line, `run` as a task, `close` at the stop."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES, sync_seconds: float = SYNC_SECONDS) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._sync_seconds = sync_seconds
        self._descriptor = -1
        self._size = 0
        self._unsynced = asyncio.Event()
        self._meanwhile: list[bytes] | None = None  # lines added while the file is rewritten
        self._broken = False  # a line is missing, or cut off, and none is added
        self._stale = False  # it has to be rewritten, and lines are added meanwhile
        self._reserved = False
        #: Why the newest line could not be written, None if it could.
        self.error: str | None = None

    def read(self) -> WitnessContents | None:
        """Return what an earlier daemon left, None if there is no file. Raise OSError if it cannot be read."""
        try:
            return witness.read(self._path.read_bytes())
        except FileNotFoundError:
            return None

    async def open(self, anew: Content | None = None) -> None:
        """Open what is there for further lines, and put a new file in its place, or do that later where it fails.

        An unwritable file raises nothing; what `anew` raises is raised.
        """
        try:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._descriptor).st_size
            self._reserve()
        except OSError as error:
            self._failed(error)
        if anew is not None:
            self._stale = True
            try:
                await self._replace(anew)
            except OSError:
                self.add(b"\n")  # its last line may be torn

    def add(self, line: bytes) -> None:
        """Write a line. It is not synced here."""
        if self._meanwhile is not None:
            self._meanwhile.append(line)
        self._unsynced.set()
        if self._broken:
            return  # the whole file is to be rewritten
        try:
            _append(self._descriptor, line)
        except OSError as error:
            self._failed(error)
        else:
            self._size += len(line)

    async def run(self, content: Content) -> None:
        """Sync what was written, and rewrite the file if it is too large or not whole, until cancelled."""
        while True:
            await self._unsynced.wait()
            await asyncio.sleep(self._sync_seconds)
            self._unsynced.clear()
            await self.keep(content)

    async def keep(self, content: Content) -> None:
        """Do what `run` does, once."""
        try:
            if self._broken or not self._in_place():
                await self._replace(content)
                return
            if self._stale or self._size > self._most_bytes:
                with suppress(OSError, StorageUnavailable):
                    await self._replace(content)
                    return
                self._unsynced.set()  # it is tried again
            elif not self._reserved:
                self._reserve()
            await asyncio.to_thread(os.fdatasync, self._descriptor)
        except (OSError, StorageUnavailable) as error:
            self._failed(error)
            self._unsynced.set()

    def _reserve(self) -> None:
        self._reserved = files.reserve(self._descriptor, self._most_bytes + SPARE_BYTES)

    def _in_place(self) -> bool:
        """Whether the file that is open is the one at the path."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    async def _replace(self, content: Content) -> None:
        """Rewrite the file, with the lines added meanwhile."""
        fresh = self._path.with_name(f"{self._path.name}.new")
        self._meanwhile = []
        descriptor = -1
        try:
            fresh.unlink(missing_ok=True)
            files.create_private(fresh)
            await content(fresh)
            await asyncio.to_thread(files.sync, fresh)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            reserved = files.reserve(descriptor, self._most_bytes + SPARE_BYTES)
            _append(descriptor, b"".join(self._meanwhile))
            size = os.fstat(descriptor).st_size
            fresh.replace(self._path)
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        finally:
            self._meanwhile = None
        self._close()
        self._descriptor, self._size, self._reserved = descriptor, size, reserved
        self._broken, self._stale, self.error = False, True, None
        # A power cut must not bring the one before back: it tells of another database after a restore.
        await asyncio.to_thread(files.sync_folder, self._path.parent)
        self._stale = False

    def close(self, line: bytes) -> None:
        """Write a last line, sync the file and close it."""
        self.add(line)
        with suppress(OSError):
            os.fdatasync(self._descriptor)
        self._broken = True  # what is committed yet is found missing at the next start
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _failed(self, error: Exception) -> None:
        if not self._broken:
            log.warning("witness.not_written", detail=str(self._path), error=str(error))
        self._broken, self.error = True, str(error)


def _append(descriptor: int, content: bytes) -> None:
    """Write all of it at once. Raise OSError."""
    if os.write(descriptor, content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
