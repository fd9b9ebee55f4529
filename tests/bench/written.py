"""What a daemon under the shim wrote to its database's directory, commit by commit (tests/support/shim.py).

A commit is the frames of SQLite's log up to the one that ends it (https://www.sqlite.org/fileformat2.html#walformat).
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.shim import Kind, Operation

#: A file system's block, and the least that a disk is given to write, in bytes.
BLOCK = 4096
_FRAME_HEADER = 24


@dataclass
class Span:
    """What was written between two moments: syncs and bytes by file, and the pages of each commit, in order.

    `blocks` is how much the disk was given: whole blocks, each once for all that was written to it between two syncs.
    """

    syncs: int = 0
    written: dict[str, int] = field(default_factory=dict)
    blocks: int = 0
    commits: list[list[int]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """All that was written."""
        return sum(self.written.values())


def spans(operations: Iterable[Operation], moments: Sequence[int]) -> list[Span]:
    """Return what was written between each two moments (`Shim.position`), the last of which is the end."""
    names: dict[tuple[int, int], str] = {}
    dirty: dict[str, set[int]] = {}
    found = [Span() for _ in moments[1:]]
    at, frames = 0, list[int]()
    for operation in operations:
        if operation.kind is Kind.OPEN:
            names[operation.descriptor] = operation.name
            continue
        while at < len(moments) and operation.end > moments[at]:
            at += 1
        if at == len(moments):
            break
        span = found[at - 1] if at else Span()
        name = names.get(operation.descriptor, operation.name)
        if operation.kind is Kind.WRITE:
            span.written[name] = span.written.get(name, 0) + len(operation.data)
            first, last = operation.offset // BLOCK, (operation.offset + len(operation.data) - 1) // BLOCK
            dirty.setdefault(name, set()).update(range(first, last + 1))
            if name.endswith("-wal") and len(operation.data) == _FRAME_HEADER:
                frames.append(int.from_bytes(operation.data[:4], "big"))
                if operation.data[4:8] != bytes(4):
                    span.commits.append(frames)
                    frames = []
        elif operation.kind is Kind.SYNC:
            span.syncs += 1
            span.blocks += len(dirty.pop(name, ())) * BLOCK
    return found


def owners(database: Path) -> Mapping[int, str]:
    """Return which table or index each page of a database belongs to. Raise sqlite3.Error where SQLite cannot tell."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return dict(db.execute("SELECT pageno, name FROM dbstat"))
