"""The disk of the simulated machine. SQLite and the module `os` use an active disk.

`recorded` describes the assumptions about the disk. `vfs` describes SQLite's access to the disk. This module replaces
functions of `os`, which `pathlib`, `tempfile` and asyncio use. The replacements change only operations in the machine's
directory. A file object writes without these functions, so no fault affects its writes. The disk records these writes
when the file is synced or the machine crashes. All calls must come from one thread.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Self
from unittest.mock import patch

from posd.base import files
from tests.simulation import vfs
from tests.simulation.recorded import BLOCK, DISK_BYTES, File, Recorded

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FILES = 1 << 20

# The original functions of `os`.
_open, _write, _unlink, _replace = os.open, os.write, os.unlink, os.replace
_fsync, _statvfs = os.fsync, os.statvfs
_reserve = files.reserve


class Disk(Recorded):
    """The disk. `now`: seconds since 1970, for SQLite.

    `directory` is resolved, and no file in it is open. Raise vfs.Unavailable if SQLite cannot use the disk.
    """

    def __init__(self, directory: Path, random: Random, now: Callable[[], float] = time.time) -> None:
        super().__init__(directory, random)
        self._now = now
        self._device = directory.stat().st_dev
        self._vfs = vfs.shared()

    @contextmanager
    def active(self) -> Iterator[Self]:
        """Make SQLite and the module `os` use the disk for the block."""
        self._vfs.install(self, self._random.getrandbits(64), self._now)
        functions: dict[str, Any] = {
            "open": self._opens,
            "write": self._writes,
            "fsync": self._syncs,
            "fdatasync": self._syncs,
            "rename": self._renames,
            "replace": self._renames,
            "unlink": self._unlinks,
            "statvfs": self._tells_size,
        }
        try:
            with patch.multiple(os, **functions), patch.object(files, "reserve", self._reserves):
                yield self
        finally:
            self._vfs.remove()
        self._tell_raised()

    def open_files(self) -> list[str]:
        """Return the names of the files that SQLite has open."""
        return sorted(file.name for file in self._vfs.files.values())

    def crash(self, power: bool) -> None:
        """Write the files that a kill or a power cut leaves, as new files. The daemon must have ended."""
        super().crash(power)
        for pointer, file in self._vfs.files.items():
            self._vfs.files[pointer] = File(file.name)  # the descriptor's file has been unlinked
        self._tell_raised()

    def _tell_raised(self) -> None:
        if self.raised is not None:
            error, self.raised = self.raised, None
            raise error

    # Replacements for functions of `os`, with the same arguments

    def _opens(self, path: _Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = self._name(path, dir_fd)
        if not name or not flags & _WRITES:
            return _open(path, flags, mode, dir_fd=dir_fd)
        if self.dead:
            raise _error(errno.EIO, path)
        if flags & os.O_CREAT and self.full and self.find(name) is None:
            raise _error(errno.ENOSPC, path)
        descriptor = _open(path, flags, mode)
        self.find(name)
        return descriptor

    def _writes(self, descriptor: int, data: bytes | bytearray | memoryview) -> int:
        file = self._file(descriptor)
        if not isinstance(file, File):
            return _write(descriptor, data)
        content = bytes(data)
        appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        offset = file.size if appends else os.lseek(descriptor, 0, os.SEEK_CUR)
        if refused := self.refusal("write", file.name, offset + len(content) > max(file.size, file.reserved)):
            raise _error(refused)
        written = _write(descriptor, content)
        file.write(offset, content[:written])
        file.recorded = True
        return written

    def _reserves(self, descriptor: int, size: int) -> bool:
        file = self._file(descriptor)
        if isinstance(file, File) and not self.dead and not (self.full and size > file.reserved):
            file.reserved = size
            return True
        return False

    def _syncs(self, descriptor: int) -> None:
        found = self._file(descriptor)
        if found is None:
            return _fsync(descriptor)
        if refused := self.sync(found) if isinstance(found, File) else self.sync_names(found):
            raise _error(refused)
        return None

    def _renames(self, path: _Path, target: _Path) -> None:
        old, new = self._name(path), self._name(target)
        if not old or not new or self.find(old) is None:
            return _replace(path, target)
        if refused := self.rename(old, new):
            raise _error(refused, path)
        return None

    def _unlinks(self, path: _Path, *, dir_fd: int | None = None) -> None:
        name = self._name(path, dir_fd)
        if name and self.dead:
            return None
        if not name or self.find(name) is None:
            return _unlink(path, dir_fd=dir_fd)
        if refused := self.unlink(name):
            raise _error(refused, path)
        return None

    def _tells_size(self, path: _Path | int) -> os.statvfs_result:
        found = self._file(path) if isinstance(path, int) else self._name(path)
        if found is None:
            return _statvfs(path)
        free = 0 if self.full else self.free_bytes // BLOCK
        return os.statvfs_result((BLOCK, BLOCK, DISK_BYTES // BLOCK, free, free, _FILES, _FILES, _FILES, 0, 255))

    def _name(self, path: _Path, folder: int | None = None) -> str | None:
        return None if folder is not None else self.relative(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - quick

    def _file(self, descriptor: int) -> File | str | None:
        """Return the open file of the disk, the name of an open folder, or None for anything else."""
        found = os.fstat(descriptor)
        if found.st_dev != self._device:
            return None
        file = self._inodes.get(found.st_ino)
        if file is None:
            name = self.relative(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            if name is None or stat.S_ISDIR(found.st_mode):
                return name
            file = self.find(name)
            if file is None or file.inode != found.st_ino:
                return None  # the file has been unlinked
        if not self.dead:
            self.compare(file)
        return file


def _error(number: int, path: _Path | None = None) -> OSError:
    if path is None:
        return OSError(number, os.strerror(number))
    return OSError(number, os.strerror(number), os.fsdecode(path))
