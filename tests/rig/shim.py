"""Build the shim (tests/power/shim.c), load it into a process, and read its log."""

import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "power" / "shim.c"

#: Fields of a record: kind, process, file descriptor, flags, offset or length, length of the name, length of the data.
_HEADER = struct.Struct("=IiiIQII")


class Kind(IntEnum):
    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    UNLINK = 5
    RENAME = 6


@dataclass(frozen=True)
class Operation:
    """One successful operation on the directory or on a file in it. `offset`: offset of a write, or length after a
    truncation. `end`: length of the log after the operation.
    """

    kind: Kind
    descriptor: tuple[int, int]
    created: bool
    truncated: bool
    directory: bool
    offset: int
    name: str
    data: bytes
    end: int


@dataclass(frozen=True)
class Shim:
    """A built shim that watches one directory."""

    library: Path
    directory: Path
    log: Path

    @property
    def kill_file(self) -> Path:
        """Path of a file. If the file exists, the process dies instead of its next sync."""
        return self.log.with_suffix(".kill")

    def environment(self, sync_us: int = 0) -> dict[str, str]:
        """Return the environment of a process with the shim. Each sync takes `sync_us` microseconds longer."""
        return {
            "LD_PRELOAD": str(self.library),
            "POSD_SHIM_DIRECTORY": str(self.directory),
            "POSD_SHIM_LOG": str(self.log),
            "POSD_SHIM_KILL": str(self.kill_file),
            "POSD_SHIM_SYNC_US": str(sync_us),
        }

    def position(self) -> int:
        """Return the present length of the log. Every operation so far is before this offset."""
        return self.log.stat().st_size

    def operations(self) -> Iterator[Operation]:
        """Yield the recorded operations, in order."""
        log, at = self.log.read_bytes(), 0
        while at < len(log):
            kind, process, number, flags, offset, name_bytes, data_bytes = _HEADER.unpack_from(log, at)
            name_at = at + _HEADER.size
            data_at = name_at + name_bytes
            at = data_at + data_bytes
            yield Operation(
                kind=Kind(kind),
                descriptor=(process, number),
                created=bool(flags & 1),
                truncated=bool(flags & 2),
                directory=bool(flags & 4),
                offset=offset,
                name=log[name_at:data_at].decode(),
                data=log[data_at:at],
                end=at,
            )


def build(home: Path, directory: Path) -> Shim:
    """Compile the shim for a directory of files. The log is in `home`. The machine needs `cc`."""
    library = home / "shim.so"
    command = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(library), str(SOURCE), "-ldl", "-lpthread"], check=True)
    return Shim(library, directory, home / "operations.log")
