"""The files of the simulated machine, with the operations on them, the durable content, and the content after a crash.

tests/power/platter.py describes the assumptions about disk and file system. In addition:

- After a failed sync only some sectors of the file are on the disk. No later sync writes the other sectors, because
  the kernel counts them as written. Processes still read the new content.
- After the kill of a process, other processes see all of its writes. A power cut can still lose unsynced writes.
- Folders are durable as soon as they are made. A rename from one folder into another is two changes.
- SQLite's shared memory (`-shm`) is never written to the disk: it survives a kill, but no power cut.

The files themselves are real. A record of each write is kept in memory. Writes that bypass the module `os` are found by
comparison, at a sync and at a crash.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from stat import S_IMODE, S_ISREG
from typing import Literal

from tests.power import platter

Kind = Literal["write", "sync", "truncate", "rename", "unlink"]

SHARED_MEMORY = "-shm"

#: Sizes that statvfs reports, in bytes: a block, the disk, and its free space.
BLOCK = 4096
DISK_BYTES = 16 << 30
FREE_BYTES = 8 << 30

_EIO, _ENOSPC = errno.EIO, errno.ENOSPC
_replace, _unlink = os.replace, os.unlink  # the original functions; an active disk replaces these functions


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


class Recorded:
    """The files in a directory, by relative name, with faults and crashes."""

    def __init__(self, directory: Path, random: Random) -> None:
        if directory != directory.resolve():
            raise ValueError(f"{directory} is reached by way of {directory.resolve()}; name that one")
        self.directory = directory
        #: Function that is called before each operation, with the kind of operation and the file's name. The function
        #: may set `dead`.
        self.on_operation: Callable[[Kind, str], None] | None = None
        #: Whether the disk is full. On a full disk a file cannot be made or lengthened, and statvfs reports no free
        #: space.
        self.full, self.free_bytes = False, FREE_BYTES
        #: Exception of `on_operation` inside SQLite. SQLite cannot pass on the exception, so `crash` and the end of the
        #: block raise it.
        self.raised: BaseException | None = None

        self._random, self._prefix = random, f"{directory}/"
        self._failures: dict[Kind, int] = {}
        #: Function that is called when a fault refuses an operation.
        self.on_failure: Callable[[], None] | None = None
        self._dead = False
        self._left: dict[str, tuple[bytes, os.stat_result]] = {}  # the content of files when the process died
        self._live: dict[str, File] = {}
        self._certain: dict[str, File] = {}
        self._inodes: dict[int, File] = {}
        self._names: dict[str, list[dict[str, File | None]]] = {}  # unsynced names in each folder
        self.settle()

    def settle(self) -> None:
        """Make all files durable. No file may be open."""
        self._settled({name: content for name, (content, _) in self._read().items()})

    def _settled(self, files: Mapping[str, bytes]) -> None:
        self._names.clear()
        self._live = {}
        for name, content in files.items():
            if not name.endswith(SHARED_MEMORY):
                self._live[name] = File(name, os.lstat(self._prefix + name).st_ino, content)
        self._certain = dict(self._live)
        self._inodes = {file.inode: file for file in self._live.values()}

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
        before = self._failures, self.full
        self._failures, self.full = {}, False
        try:
            yield
        finally:
            self._failures, self.full = before

    def refusal(self, kind: Kind, name: str, grows: bool = False) -> int:
        """Return the `errno` of a refused operation, or 0. `on_failure` is called before a refusal."""
        if self._dead:
            return _EIO
        if self.on_operation is not None:
            self.on_operation(kind, name)
            if self.dead:
                return _EIO
        if kind in self._failures:
            self._failures[kind] -= 1
            if not self._failures[kind]:
                del self._failures[kind]
                if self.on_failure is not None:
                    self.on_failure()
                return _EIO
        return _ENOSPC if grows and self.full else 0

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
        file = self._live.get(name)
        if self._dead:
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
        file = self._live[name] = self._inodes[inode] = File(name, inode)
        self._rename({name: file})
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
        self._rename({name: None})
        return 0

    def rename(self, name: str, target: str) -> int:
        """Rename a file. Return the `errno` of a refusal, or 0. Raise OSError."""
        if refused := self.refusal("rename", name):
            return refused
        if self.find(target) is None:
            _replace(self._prefix + name, self._prefix + target)
        else:
            self._gone(target, lambda path: _replace(self._prefix + name, path))
        file = self._live[target] = self._live.pop(name)
        file.name = target
        self._rename({name: None, target: file})
        return 0

    def _gone(self, name: str, do: Callable[[str], None]) -> None:
        """Remove the name of a file, and keep the content that a power cut would restore."""
        path = self._prefix + name
        found = os.lstat(path)
        do(path)
        file = self._live.pop(name)
        file.stat = found
        self._inodes.pop(file.inode, None)

    def _rename(self, names: dict[str, File | None]) -> None:
        for folder in {folder_of(name): None for name in names}:
            there = {name: file for name, file in names.items() if folder_of(name) == folder}
            self._names.setdefault(folder, []).append(there)

    def sync(self, file: File) -> int:
        """Make a file's changes durable. Return the `errno` of a refusal, or 0."""
        refused = self.refusal("sync", file.name)
        if refused:
            if not self._dead:
                file.certain = bytearray(file.torn(self._random))
                file.unsynced.clear()
                file.whole = False
            return refused
        file.sync()
        return 0

    def sync_names(self, folder: str) -> int:
        """Make the names in a folder durable. Return the `errno` of a refusal, else 0."""
        refused = self.refusal("sync", folder)
        if refused:
            return refused
        for names in self._names.pop(folder, ()):
            platter.rename_in(self._certain, names)
        return 0

    # Crashes.

    @property
    def dead(self) -> bool:
        """Whether the process has been killed. Operations of a killed process have no effect."""
        return self._dead

    @dead.setter
    def dead(self, dead: bool) -> None:
        if dead and not self._dead:
            self._dead = True  # the process was killed before the operation
            self._left = self._read()
            self._complete()
        elif not dead:
            self._dead = False

    def crash(self, power: bool) -> None:
        """Write the files that a kill or a power cut leaves, as new files. The daemon must have ended."""
        self.dead = True
        if power:
            files = self._cut()
            self._put(files)
            self._settled({name: content for name, (content, _) in files.items()})
        else:
            self._put(self._left)
            self._inodes = {}
            for name, file in self._live.items():
                file.inode = os.lstat(self._prefix + name).st_ino
                self._inodes[file.inode] = file
        self._left = {}
        self._dead = False

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
        for name in sorted(self._live.keys() - self._left.keys()):
            self._live.pop(name)
            self._rename({name: None})
        for name in sorted(self._left):
            content, stat = self._left[name]
            if name.endswith(SHARED_MEMORY):
                continue
            file = self._live.get(name)
            if file is None or file.inode != stat.st_ino:
                file = self.made(name, stat.st_ino)
            file.stat = stat
            if not file.recorded or len(content) != file.size:
                self._record(file, content)
            elif file.whole:
                assert file.seen() == content, f"the disk has not recorded a write to {name}"

    def _cut(self) -> dict[str, tuple[bytes, os.stat_result | None]]:
        """Return the content after a power cut: the durable changes and some later changes."""
        names = dict(self._certain)
        for folder in sorted(self._names):
            unsynced = self._names[folder]
            for change in unsynced[: self._random.randint(0, len(unsynced))]:
                platter.rename_in(names, change)
        return {name: (names[name].torn(self._random), names[name].stat) for name in sorted(names)}

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


def folder_of(name: str) -> str:
    """Return the name of a file's folder."""
    return name.rpartition("/")[0]
