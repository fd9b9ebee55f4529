"""The content of a disk after a power loss, computed from the operations of a process (tests/support/shim.py).

Assumptions about disk and file system:

- Writes and truncations of a file are certain after a later sync of the file.
- A made, removed or changed name is certain after a later sync of its directory. In many file systems the sync of a
  file also makes its name certain. posd must not rely on this effect.
- Of unsynced data a part may remain. The part can have any sectors of a write. Of the changed names only the first
  remain, because a file system writes its journal in order. A rename has happened completely or not at all.
- A sector of 512 bytes is old or new, never half of each. The sectors beside it are not damaged (SQLite assumes the
  same).
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TypeVar

from tests.support.shim import Kind, Operation

SECTOR = 512

#: Shares of the unsynced writes that reached the disk.
SHARES = (0.05, 0.5, 0.95)

Image = Mapping[str, bytes]


#: A change of a file: (offset, data), or (length, None) for a truncation.
Change = tuple[int, bytes | None]


class File:
    """A file: the certain content, and the later changes. `name`: newest name."""

    __slots__ = ("certain", "name", "unsynced")

    def __init__(self, name: str, content: bytes = b"") -> None:
        self.name = name
        self.certain = bytearray(content)
        self.unsynced: list[Change] = []

    def sync(self) -> None:
        """Make every earlier change certain, as an honest sync does."""
        _apply(self.certain, self.unsynced)
        self.unsynced.clear()

    def seen(self) -> bytearray:
        """Return the content that the process sees."""
        content = bytearray(self.certain)
        _apply(content, self.unsynced)
        return content

    def torn(self, random: Random) -> bytes:
        """Return the certain content, with a random part of the unsynced changes applied."""
        content, share = bytearray(self.certain), random.choice(SHARES)
        for start, data in self.unsynced:
            if data is None:
                if random.random() < share:
                    _apply(content, [(start, None)])
                continue
            while data:
                length = SECTOR - start % SECTOR
                if random.random() < share:
                    _apply(content, [(start, data[:length])])
                start, data = start + length, data[length:]
        return bytes(content)


class Platter:
    """The directory of a process, rebuilt operation by operation. `believes` returns whether a sync is honest."""

    def __init__(self, initial: Image, believes: Callable[[str], bool] = lambda _name: True) -> None:
        self._certain = {name: File(name, content) for name, content in initial.items()}
        self._live = dict(self._certain)
        self._names: list[Mapping[str, File | None]] = []
        self._open: dict[tuple[int, int], str | File] = {}
        self._believes = believes

    def apply(self, operation: Operation) -> None:
        """Repeat one operation of the process."""
        match operation.kind:
            case Kind.OPEN:
                self._opened(operation)
            case Kind.WRITE:
                self._file(operation).unsynced.append((operation.offset, operation.data))
            case Kind.TRUNCATE:
                self._file(operation).unsynced.append((operation.offset, None))
            case Kind.SYNC:
                self._synced(self._open[operation.descriptor])
            case Kind.UNLINK:
                self._rename({operation.name: None})
            case Kind.RENAME:
                self._rename({operation.name: None, operation.data.decode(): self._live[operation.name]})

    def _opened(self, operation: Operation) -> None:
        if operation.directory:
            self._open[operation.descriptor] = ""
            return
        if operation.created:
            self._rename({operation.name: File(operation.name)})
        file = self._open[operation.descriptor] = self._live[operation.name]
        if operation.truncated:
            file.unsynced.append((operation.offset, None))

    def _file(self, operation: Operation) -> File:
        file = self._open[operation.descriptor]
        assert isinstance(file, File)
        return file

    def _synced(self, what: str | File) -> None:
        if isinstance(what, File):
            if self._believes(what.name):
                what.sync()
        elif self._believes(what):
            for names in self._names:
                rename_in(self._certain, names)
            self._names.clear()

    def _rename(self, names: Mapping[str, File | None]) -> None:
        rename_in(self._live, names)
        self._names.append(names)
        for name, file in names.items():
            if file is not None:
                file.name = name

    def live(self) -> Image:
        """Return the files as the process sees them."""
        return {name: bytes(file.seen()) for name, file in self._live.items()}

    def cut(self) -> Image:
        """Return the files after a power loss that loses all unsynced operations."""
        return {name: bytes(file.certain) for name, file in self._certain.items()}

    def torn(self, random: Random) -> Image:
        """Return the files after a power loss that keeps a part of the unsynced operations."""
        directory = dict(self._certain)
        for names in self._names[: random.randint(0, len(self._names))]:
            rename_in(directory, names)
        return {name: file.torn(random) for name, file in directory.items()}


def replay(initial: Image, operations: Iterable[Operation]) -> Platter:
    """Return the platter after these operations."""
    platter = Platter(initial)
    for operation in operations:
        platter.apply(operation)
    return platter


FileKind = TypeVar("FileKind", bound=File)


def rename_in(directory: dict[str, FileKind], names: Mapping[str, FileKind | None]) -> None:
    """Set the files of these names in a directory. None removes a name."""
    for name, file in names.items():
        if file is None:
            directory.pop(name, None)
        else:
            directory[name] = file


def _apply(content: bytearray, changes: Iterable[Change]) -> None:
    """Apply changes. The function makes no objects, since the simulation runs it at each commit."""
    length = len(content)
    for offset, data in changes:
        if data is None:
            if offset < length:
                del content[offset:]
            else:
                content.extend(bytes(offset - length))
            length = offset
            continue
        if offset > length:
            content.extend(bytes(offset - length))
        end = offset + len(data)
        content[offset:end] = data
        length = max(length, end)
