"""Writer of the witness. It adds a line for each start, each end and each other change, and rewrites a large file.

No payment waits for a sync of a line. A kill loses nothing, because the kernel has the written lines. A power cut loses
the lines since the last sync, which follows `SYNC_SECONDS` after the first unsynced line. The loss matters only if the
database also goes back at the same time. A full disk loses nothing, because the blocks of the file are allocated before
the lines are written. A failing disk does not stop payments.
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
from posd.storage import StorageUnavailable

#: Maximum time between a line and its sync, in seconds. A power cut can lose the starts of that time.
SYNC_SECONDS = 60.0
#: Number of payments in a rewritten file: several weeks of a shop.
KEPT = 5000
#: Size at which the file is rewritten, in bytes. KEPT payments take about half of this size.
MOST_BYTES = 2 * 1024 * 1024
#: Bytes that are allocated beyond `MOST_BYTES`. If the disk has no space for a rewrite, they are enough for some
#: hundred payments.
SPARE_BYTES = MOST_BYTES // 4

log = structlog.get_logger("posd.witness")

#: Function that writes the lines of a new witness to an empty file at a path.
Content = Callable[[Path], Awaitable[None]]


class WitnessFile:
    """Writer of the witness.

    Call `read` and `open` at the start, `add` for each line, run `run` as a task, and call `close` at the stop.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES, sync_seconds: float = SYNC_SECONDS) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._sync_seconds = sync_seconds
        self._descriptor = -1
        self._size = 0
        self._unsynced = asyncio.Event()
        self._meanwhile: list[bytes] | None = None  # lines added while the file is rewritten
        self._broken = False  # a line is missing or cut off, so no line is added
        self._stale = False  # the file has to be rewritten, but still accepts lines
        self._reserved = False
        #: Reason why the newest line could not be written, or None.
        self.error: str | None = None

    def read(self) -> WitnessContents | None:
        """Return the content of an earlier daemon's file, or None if there is no file.

        Raise OSError if the file cannot be read.
        """
        try:
            return witness.read(self._path.read_bytes())
        except FileNotFoundError:
            return None

    async def open(self, anew: Content | None = None) -> None:
        """Open the present file for further lines. With `anew`, replace it by a new file with the lines of `anew`.

        If the file cannot be written, raise no error: `run` tries again. Raise all other exceptions of `anew`.
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
                self.add(b"\n")  # the last line may be torn

    def add(self, line: bytes) -> None:
        """Write a line without a sync."""
        if self._meanwhile is not None:
            self._meanwhile.append(line)
        self._unsynced.set()
        if self._broken:
            return  # the whole file will be rewritten
        try:
            _append(self._descriptor, line)
        except OSError as error:
            self._failed(error)
        else:
            self._size += len(line)

    async def run(self, content: Content) -> None:
        """Sync written lines, and rewrite the file if it is too large or incomplete, until cancelled."""
        while True:
            await self._unsynced.wait()
            await asyncio.sleep(self._sync_seconds)
            self._unsynced.clear()
            await self.keep(content)

    async def keep(self, content: Content) -> None:
        """Sync the written lines, or rewrite the file if it is too large or incomplete. One step of `run`."""
        try:
            if self._broken or not self._in_place():
                await self._replace(content)
                return
            if self._stale or self._size > self._most_bytes:
                with suppress(OSError, StorageUnavailable):
                    await self._replace(content)
                    return
                self._unsynced.set()  # the next step tries again
            elif not self._reserved:
                self._reserve()
            await asyncio.to_thread(os.fdatasync, self._descriptor)
        except (OSError, StorageUnavailable) as error:
            self._failed(error)
            self._unsynced.set()

    def _reserve(self) -> None:
        self._reserved = files.reserve(self._descriptor, self._most_bytes + SPARE_BYTES)

    def _in_place(self) -> bool:
        """Whether the open file is the file at the path."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    async def _replace(self, content: Content) -> None:
        """Rewrite the file, with the lines that are added during the rewrite."""
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
        # Sync the folder, so that a power cut cannot bring back the old file. After a restore the old file belongs to
        # another database.
        await asyncio.to_thread(files.sync_folder, self._path.parent)
        self._stale = False

    def close(self, line: bytes) -> None:
        """Write a last line, sync the file and close it."""
        self.add(line)
        with suppress(OSError):
            os.fdatasync(self._descriptor)
        self._broken = True  # no further line is written
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
    """Write all bytes. Raise OSError."""
    if os.write(descriptor, content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
