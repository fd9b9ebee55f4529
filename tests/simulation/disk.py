"""The disk of the simulated machine: its files, the durable content, and the content after a crash.

tests/power/platter.py describes the assumptions about disk and file system. In addition:

- After a failed sync only some sectors of the file are on the disk. No later sync writes the other sectors, because
  the kernel counts them as written. Processes still read the new content.
- After the kill of a process, other processes see all of its writes. A power cut can still lose unsynced writes.
- Folders are durable as soon as they are made. A rename from one folder into another is two changes.
- SQLite's shared memory (`-shm`) is never written to the disk: it survives a kill, but not a power cut.

The files themselves are real. SQLite (see `vfs`) and the module `os` use an active disk, which keeps a record of each
write in memory. The replacements for functions of `os`, which `pathlib`, `tempfile` and asyncio use, change only
operations in the machine's directory. A file object writes without these functions, so no fault affects its writes. The
disk finds such writes by comparison, when the file is synced or the machine crashes. All calls must come from one
thread.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import Any, Self
from unittest.mock import patch

from posd.base import files
from tests.power import platter
from tests.simulation import vfs
from tests.simulation.vfs import SHARED_MEMORY, Kind

#: Sizes that statvfs reports, in bytes: a block, the disk, and its free space. The last constant is a number of files.
BLOCK, DISK_BYTES, FREE_BYTES, _FILES = 4096, 16 << 30, 8 << 30, 1 << 20

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

# The original functions of `os`. An active disk replaces these functions.
_open, _write, _unlink, _replace = os.open, os.write, os.unlink, os.replace
_fsync, _statvfs = os.fsync, os.statvfs


class File(platter.File):
    """A file with its durable content and the later changes.

    `size`: length that processes see. `reserved`: greatest length on a full disk. `recorded`: whether every write is
    recorded. `whole`: whether the durable content and the later changes together give the content that processes see.
    False after a failed sync.
    """

    __slots__ = ("inode", "recorded", "reserved", "size", "stat", "whole")

    def __init__(self, name: str, inode: int = 0, content: bytes = b"") -> None:
        super().__init__(name, content)
        self.inode, self.size, self.reserved = inode, len(content), 0
        self.recorded, self.whole = False, True
        self.stat: os.stat_result | None = None  # the content at the end of the process or at the unlink

    def write(self, offset: int, data: bytes) -> None:
        """Record a write."""
        self.unsynced.append((offset, data))
        self.size = max(self.size, offset + len(data))

    def truncate(self, length: int) -> None:
        """Record a truncation."""
        self.unsynced.append((length, None))
        self.size = length


class Disk:
    """The files in a directory, by relative name, with faults and crashes. `now`: seconds since 1970, for SQLite.

    `directory` is resolved, and no file in it is open. Raise vfs.Unavailable if SQLite cannot use the disk.
    """

    def __init__(self, directory: Path, random: Random, now: Callable[[], float] = time.time) -> None:
        if directory != directory.resolve():
            raise ValueError(f"{directory} is reached by way of {directory.resolve()}; name that one")
        self.directory = directory
        #: Function that is called before each operation, with the kind of operation and the file's name. The function
        #: may call `die`.
        self.on_operation: Callable[[Kind, str], None] | None = None
        #: Whether the disk is full. On a full disk a file cannot be made or lengthened, and statvfs reports no free
        #: space.
        self.full, self.free_bytes = False, FREE_BYTES
        #: Exception of `on_operation` inside SQLite. SQLite cannot pass on the exception, so `crash` and the end of the
        #: block raise it.
        self.raised: BaseException | None = None

        self._random, self._prefix, self._now = random, f"{directory}/", now
        self._device, self._vfs = directory.stat().st_dev, vfs.shared()
        self._failures: dict[Kind, int] = {}
        #: Function that is called when a fault refuses an operation.
        self.on_failure: Callable[[], None] | None = None
        #: Whether the process has been killed. Operations of a killed process have no effect.
        self.dead = False
        self._left: dict[str, tuple[bytes, os.stat_result]] = {}  # the content of files when the process died
        self._names = platter.Names[File]()
        self._inodes: dict[int, File] = {}
        self.settle()

    def settle(self) -> None:
        """Make all files durable. No file may be open."""
        self._settled({name: content for name, (content, _) in self._read().items()})

    def _settled(self, files: Mapping[str, bytes]) -> None:
        kept = {name: content for name, content in files.items() if not name.endswith(SHARED_MEMORY)}
        self._names = platter.Names(File(name, self._inode(name), content) for name, content in kept.items())
        self._inodes = {file.inode: file for file in self._names.live.values()}

    def _inode(self, name: str) -> int:
        return os.lstat(self._prefix + name).st_ino

    # Faults.

    def fail_after(self, count: int, kind: Kind) -> None:
        """Raise an I/O error at the `count`-th operation of a kind from this moment. 1 is the next operation."""
        self._failures[kind] = count

    def clear_faults(self) -> None:
        """Remove all faults of operations."""
        self._failures.clear()
        self.on_failure = None
        self.full = False

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """Suspend all faults for the block, for a reader outside the simulated process."""
        with patch.multiple(self, _failures={}, full=False):
            yield

    def refusal(self, kind: Kind, name: str, grows: bool = False) -> int:
        """Return the `errno` of a refused operation, or 0. `on_failure` is called before a refusal."""
        if self.on_operation is not None and not self.dead:
            self.on_operation(kind, name)
        if self.dead:
            return errno.EIO
        if kind in self._failures:
            self._failures[kind] -= 1
            if not self._failures[kind]:
                del self._failures[kind]
                if self.on_failure is not None:
                    self.on_failure()
                return errno.EIO
        return errno.ENOSPC if grows and self.full else 0

    # Completed operations.

    def relative(self, path: str) -> str | None:
        """Return a path's name in the machine's directory.

        The name is "" for the directory itself, and None for a path outside the directory.
        """
        if not path.startswith(self._prefix):
            return "" if path == self._prefix[:-1] else None
        return None if path.endswith(SHARED_MEMORY) else path[len(self._prefix) :]

    def find(self, name: str) -> File | None:
        """Return the file of that name, or None. Record the file if its creation was not recorded."""
        file = self._names.live.get(name)
        if self.dead:
            return file
        try:
            found = os.lstat(self._prefix + name)
        except FileNotFoundError:
            return None
        if (file is None or file.inode != found.st_ino) and S_ISREG(found.st_mode):
            file = self.made(name, found.st_ino)
        return file

    def opened(self, name: str) -> File:
        """Return a file that SQLite has just opened. The disk records the writes to this file."""
        file = self.find(name)
        assert file is not None
        self.compare(file)
        file.recorded = True
        return file

    def made(self, name: str, inode: int) -> File:
        """Record a new file."""
        file = self._inodes[inode] = File(name, inode)
        self._names.change({name: file})
        return file

    def compare(self, file: File) -> None:
        """Record the unrecorded writes to a file. The file is read only if it can have changed."""
        path = Path(self._prefix + file.name)
        if not file.recorded or path.stat().st_size != file.size:
            self._record(file, path.read_bytes())

    def _record(self, file: File, content: bytes) -> None:
        seen = file.seen()
        if content == seen:
            return
        if not content.startswith(seen):
            file.truncate(0)
            seen = bytearray()
        file.write(len(seen), content[len(seen) :])
        file.whole = True

    def unlink(self, name: str) -> int:
        """Remove a file. Return the `errno` of a refusal, or 0. Raise OSError."""
        if refused := self.refusal("unlink", name):
            return refused
        self._gone(name, _unlink)
        self._names.change({name: None})
        return 0

    def rename(self, name: str, target: str) -> int:
        """Rename a file. Return the `errno` of a refusal, or 0. Raise OSError."""
        if refused := self.refusal("rename", name):
            return refused
        if self.find(target) is None:
            _replace(self._prefix + name, self._prefix + target)
        else:
            self._gone(target, lambda path: _replace(self._prefix + name, path))
        self._names.change({name: None, target: self._names.live[name]})
        return 0

    def _gone(self, name: str, do: Callable[[str], None]) -> None:
        """Remove the name of a file, and keep the content that a power cut would restore."""
        path = self._prefix + name
        found = os.lstat(path)
        do(path)
        file = self._names.live[name]
        file.stat = found
        self._inodes.pop(file.inode, None)

    def sync(self, file: File) -> int:
        """Make a file's changes durable. Return the `errno` of a refusal, or 0."""
        if not (refused := self.refusal("sync", file.name)):
            file.sync()
        elif not self.dead:
            file.certain, file.whole = bytearray(file.torn(self._random)), False
            file.unsynced.clear()
        return refused

    def sync_names(self, folder: str) -> int:
        """Make the names in a folder durable. Return the `errno` of a refusal, else 0."""
        if not (refused := self.refusal("sync", folder)):
            self._names.sync(folder)
        return refused

    # Crashes.

    def die(self) -> None:
        """Kill the process. Its later operations have no effect."""
        if not self.dead:
            self.dead = True  # the process was killed before the operation
            self._left = self._read()
            self._complete()

    def crash(self, power: bool) -> None:
        """Write the files that a kill or a power cut leaves, as new files. The daemon must have ended."""
        self.die()
        if power:
            # the durable changes and some later changes
            names = sorted(self._names.torn(self._random).items())
            files = {name: (file.torn(self._random), file.stat) for name, file in names}
            self._put(files)
            self._settled({name: content for name, (content, _) in files.items()})
        else:
            self._put(self._left)
            for name, file in self._names.live.items():
                file.inode = self._inode(name)
            self._inodes = {file.inode: file for file in self._names.live.values()}
        self._left = {}
        self.dead = False
        for pointer, opened in self._vfs.files.items():
            self._vfs.files[pointer] = File(opened.name)  # the descriptor's file has been unlinked
        self._tell_raised()

    def _there(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the names of existing regular files."""
        for folder, _, names in os.walk(self.directory):
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118 - `os.walk` gives text
                if S_ISREG((stat := os.lstat(path)).st_mode):
                    yield path[len(self._prefix) :], stat

    def _read(self) -> dict[str, tuple[bytes, os.stat_result]]:
        return {name: (Path(self._prefix + name).read_bytes(), stat) for name, stat in sorted(self._there())}

    def _complete(self) -> None:
        """Record all writes of file objects, and check that every other write is recorded."""
        for name in sorted(self._names.live.keys() - self._left.keys()):
            self._names.change({name: None})
        for name in sorted(self._left):
            content, stat = self._left[name]
            if name.endswith(SHARED_MEMORY):
                continue
            file = self._names.live.get(name)
            if file is None or file.inode != stat.st_ino:
                file = self.made(name, stat.st_ino)
            file.stat = stat
            if not file.recorded or len(content) != file.size:
                self._record(file, content)
            elif file.whole:
                assert file.seen() == content, f"the disk has not recorded a write to {name}"

    def _put(self, files: Mapping[str, tuple[bytes, os.stat_result | None]]) -> None:
        """Replace all files, with mode and times."""
        for name, _ in list(self._there()):
            _unlink(self._prefix + name)
        for name, (content, stat) in sorted(files.items()):
            path = Path(self._prefix + name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o600 if stat is None else S_IMODE(stat.st_mode))
            if stat is not None:
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    # Use of the disk.

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
            _fsync(descriptor)
        elif refused := self.sync(found) if isinstance(found, File) else self.sync_names(found):
            raise _error(refused)

    def _renames(self, path: _Path, target: _Path) -> None:
        old, new = self._name(path), self._name(target)
        if not old or not new or self.find(old) is None:
            _replace(path, target)
        elif refused := self.rename(old, new):
            raise _error(refused, path)

    def _unlinks(self, path: _Path, *, dir_fd: int | None = None) -> None:
        name = self._name(path, dir_fd)
        if not name or (not self.dead and self.find(name) is None):
            _unlink(path, dir_fd=dir_fd)
        elif not self.dead and (refused := self.unlink(name)):
            raise _error(refused, path)

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
            if name is None or S_ISDIR(found.st_mode):
                return name
            file = self.find(name)
            if file is None or file.inode != found.st_ino:
                return None  # the file has been unlinked
        if not self.dead:
            self.compare(file)
        return file


def _error(number: int, path: _Path | None = None) -> OSError:
    return OSError(number, os.strerror(number), None if path is None else os.fsdecode(path))
