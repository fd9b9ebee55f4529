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
from dataclasses import dataclass, field, replace
from random import Random

from tests.support.shim import Kind, Operation

SECTOR = 512

#: Shares of the unsynced writes that reached the disk.
SHARES = (0.05, 0.5, 0.95)

Image = Mapping[str, bytes]


@dataclass
class File:
    """A file: the content for the process, the certain content, and the operations between the two contents. `name`:
    newest name.
    """

    name: str
    live: bytearray = field(default_factory=bytearray)
    certain: bytearray = field(default_factory=bytearray)
    unsynced: list[Operation] = field(default_factory=list)

    def change(self, operation: Operation) -> None:
        """Repeat a write or a truncation."""
        _change(self.live, operation)
        self.unsynced.append(operation)

    def sync(self) -> None:
        """Make every earlier operation certain, as an honest sync does."""
        for operation in self.unsynced:
            _change(self.certain, operation)
        self.unsynced.clear()

    def torn(self, random: Random) -> bytes:
        """Return the certain content, with a random part of the unsynced operations applied."""
        content, share = bytearray(self.certain), random.choice(SHARES)
        for operation in self.unsynced:
            if operation.kind is Kind.TRUNCATE:
                if random.random() < share:
                    _change(content, operation)
                continue
            start, data = operation.offset, operation.data
            while data:
                length = SECTOR - start % SECTOR
                if random.random() < share:
                    _write(content, start, data[:length])
                start, data = start + length, data[length:]
        return bytes(content)


class Platter:
    """The directory of a process, rebuilt operation by operation. `believes` returns whether a sync is honest."""

    def __init__(self, initial: Image, believes: Callable[[str], bool] = lambda _name: True) -> None:
        self._certain = {name: File(name, bytearray(content), bytearray(content)) for name, content in initial.items()}
        self._live = dict(self._certain)
        self._names: list[Mapping[str, File | None]] = []
        self._open: dict[tuple[int, int], str | File] = {}
        self._believes = believes

    def apply(self, operation: Operation) -> None:
        """Repeat one operation of the process."""
        match operation.kind:
            case Kind.OPEN:
                self._opened(operation)
            case Kind.WRITE | Kind.TRUNCATE:
                self._file(operation).change(operation)
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
            file.change(replace(operation, kind=Kind.TRUNCATE))

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
                _rename(self._certain, names)
            self._names.clear()

    def _rename(self, names: Mapping[str, File | None]) -> None:
        _rename(self._live, names)
        self._names.append(names)
        for name, file in names.items():
            if file is not None:
                file.name = name

    def live(self) -> Image:
        """Return the files as the process sees them."""
        return {name: bytes(file.live) for name, file in self._live.items()}

    def cut(self) -> Image:
        """Return the files after a power loss that loses all unsynced operations."""
        return {name: bytes(file.certain) for name, file in self._certain.items()}

    def torn(self, random: Random) -> Image:
        """Return the files after a power loss that keeps a part of the unsynced operations."""
        directory = dict(self._certain)
        for names in self._names[: random.randint(0, len(self._names))]:
            _rename(directory, names)
        return {name: file.torn(random) for name, file in directory.items()}


def replay(initial: Image, operations: Iterable[Operation]) -> Platter:
    """Return the platter after these operations."""
    platter = Platter(initial)
    for operation in operations:
        platter.apply(operation)
    return platter


def _rename(directory: dict[str, File], names: Mapping[str, File | None]) -> None:
    for name, file in names.items():
        if file is None:
            directory.pop(name, None)
        else:
            directory[name] = file


def _change(content: bytearray, operation: Operation) -> None:
    if operation.kind is Kind.WRITE:
        _write(content, operation.offset, operation.data)
    elif operation.offset < len(content):
        del content[operation.offset :]
    else:
        content.extend(bytes(operation.offset - len(content)))


def _write(content: bytearray, start: int, data: bytes) -> None:
    if start > len(content):
        content.extend(bytes(start - len(content)))
    content[start : start + len(data)] = data
