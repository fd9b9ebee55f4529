"""The content of a disk after a power loss, computed from the operations of a process (tests/rig/shim.py).

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
from typing import Generic, TypeVar

from tests.rig.shim import Kind, Operation

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


FileKind = TypeVar("FileKind", bound=File)


class Names(Generic[FileKind]):
    """The files by name: as the process sees them, and as they are certain."""

    def __init__(self, files: Iterable[FileKind] = ()) -> None:
        self.live = {file.name: file for file in files}
        self.certain = dict(self.live)
        #: Folder -> its later changes. A change has the new file of each name, or None for a removed name.
        self._unsynced: dict[str, list[Mapping[str, FileKind | None]]] = {}

    def change(self, names: Mapping[str, FileKind | None]) -> None:
        """Make, remove or rename files."""
        _rename_in(self.live, names)
        for folder in dict.fromkeys(map(folder_of, names)):
            there = {name: file for name, file in names.items() if folder_of(name) == folder}
            self._unsynced.setdefault(folder, []).append(there)
        for name, file in names.items():
            if file is not None:
                file.name = name

    def sync(self, folder: str = "") -> None:
        """Make the names in a folder certain."""
        for names in self._unsynced.pop(folder, ()):
            _rename_in(self.certain, names)

    def torn(self, random: Random) -> dict[str, FileKind]:
        """Return the certain names, with a random number of the first later changes."""
        found = dict(self.certain)
        for _, unsynced in sorted(self._unsynced.items()):
            for names in unsynced[: random.randint(0, len(unsynced))]:
                _rename_in(found, names)
        return found


class Platter:
    """The directory of a process, rebuilt operation by operation. `believes`: whether a sync writes its data."""

    def __init__(self, initial: Image, believes: Callable[[str], bool] = lambda _name: True) -> None:
        self._names = Names(File(name, content) for name, content in initial.items())
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
                self._names.change({operation.name: None})
            case Kind.RENAME:
                file = self._names.live[operation.name]
                self._names.change({operation.name: None, operation.data.decode(): file})

    def _opened(self, operation: Operation) -> None:
        if operation.directory:
            self._open[operation.descriptor] = ""
            return
        if operation.created:
            self._names.change({operation.name: File(operation.name)})
        file = self._open[operation.descriptor] = self._names.live[operation.name]
        if operation.truncated:
            file.unsynced.append((operation.offset, None))

    def _file(self, operation: Operation) -> File:
        file = self._open[operation.descriptor]
        assert isinstance(file, File)
        return file

    def _synced(self, what: str | File) -> None:
        if self._believes(what.name if isinstance(what, File) else what):
            (what if isinstance(what, File) else self._names).sync()

    def live(self) -> Image:
        """Return the files as the process sees them."""
        return {name: bytes(file.seen()) for name, file in self._names.live.items()}

    def cut(self) -> Image:
        """Return the files after a power loss that loses all unsynced operations."""
        return {name: bytes(file.certain) for name, file in self._names.certain.items()}

    def torn(self, random: Random) -> Image:
        """Return the files after a power loss that keeps a part of the unsynced operations."""
        return {name: file.torn(random) for name, file in self._names.torn(random).items()}


def replay(initial: Image, operations: Iterable[Operation]) -> Platter:
    """Return the platter after these operations."""
    platter = Platter(initial)
    for operation in operations:
        platter.apply(operation)
    return platter


def folder_of(name: str) -> str:
    """Return the name of a file's folder."""
    return name.rpartition("/")[0]


def _rename_in(directory: dict[str, FileKind], names: Mapping[str, FileKind | None]) -> None:
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
