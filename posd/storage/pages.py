"""Reader of SQLite's file format, for records in single pages of a damaged file.

Numbers in parentheses are sections of https://www.sqlite.org/fileformat2.html. Every length, pointer and page number in
the file may be garbage.
"""

import os
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

#: Page sizes of posd's databases, in bytes: the present size (`connection.PAGE_BYTES`) and the older size.
_SMALL, _LARGE = 2048, 4096
#: Number of small pages that are read to detect the page size of a file without headers.
_PAGES_LOOKED_AT = 4096
#: Longest row, in bytes: one message of a terminal. A greater length is garbage.
MAX_ROW_BYTES = 64 * 1024 * 1024

_PAGE_SIZES = frozenset(2**power for power in range(9, 17))
_MAGIC = b"SQLite format 3\0"
_WAL_HEADER, _FRAME_HEADER = 32, 24
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x0A, 0x02
#: Type of a b-tree page -> size of its header in bytes (1.6).
_TREE_HEADER = {_TABLE_LEAF: 8, _INDEX_LEAF: 8, _INDEX_INTERIOR: 12}
#: Every type of a b-tree page, including the inner pages of tables (1.6).
_TREES = {*_TREE_HEADER, 0x05}
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}

Value = None | int | float | str | bytes


class CellRecord(msgspec.Struct, frozen=True):
    """One cell: rowid (None in an index), values, and whether the values are complete."""

    rowid: int | None
    values: list[Value]
    complete: bool


class Pages:
    """Pages of a database file, as of the last commit in its WAL. Context manager."""

    def __init__(self, path: Path) -> None:
        self._main = path.open("rb") if path.exists() else None
        wal = path.with_name(f"{path.name}-wal")
        self._wal = wal.open("rb") if wal.exists() else None
        self.size = self._page_size()
        self._frames = dict(self._committed_frames())
        self._count = -(-self._length(self._main) // self.size)
        header = self.page(1)
        whole = header[: len(_MAGIC)] == _MAGIC
        self.usable = self.size - (header[20] if whole and header[20] <= 32 else 0)
        #: `user_version` of the file, or None without a header.
        self.user_version = int.from_bytes(header[60:64], "big") if whole else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._main, self._wal):
            if file is not None:
                file.close()

    def __len__(self) -> int:
        return self._count + sum(number > self._count for number in self._frames)

    def __iter__(self) -> Iterator[int]:
        return chain(range(1, self._count + 1), sorted(number for number in self._frames if number > self._count))

    def page(self, number: int) -> bytes:
        """Return a page. Return zeros if the page is missing or unreadable."""
        file, offset = self._main, (number - 1) * self.size
        if number in self._frames:
            file, offset = self._wal, self._frames[number]
        return self._read(file, offset, self.size).ljust(self.size, b"\0")

    def _read(self, file: BinaryIO | None, offset: int, count: int) -> bytes:
        if file is None:
            return b""
        try:
            return os.pread(file.fileno(), count, offset)
        except OSError:
            return b""

    def _length(self, file: BinaryIO | None) -> int:
        return os.fstat(file.fileno()).st_size if file is not None else 0

    def _page_size(self) -> int:
        """Return the page size from the header of the file or the WAL (1.3.2, 4.1), or a guess."""
        header, wal = self._read(self._main, 0, 100), self._read(self._wal, 0, _WAL_HEADER)
        sizes = []
        if header[: len(_MAGIC)] == _MAGIC:
            size = int.from_bytes(header[16:18], "big")
            sizes.append(65536 if size == 1 else size)
        if int.from_bytes(wal[:4], "big") in _WAL_MAGIC:
            sizes.append(int.from_bytes(wal[8:12], "big"))
        return next((size for size in sizes if size in _PAGE_SIZES), 0) or self._likely_size()

    def _likely_size(self) -> int:
        """Guess the page size: only pages of 2048 bytes can begin at an odd multiple of 2048."""
        begun = [0, 0]
        for number in range(min(_PAGES_LOOKED_AT, self._length(self._main) // _SMALL)):
            begun[number % 2] += _begins_tree(self._read(self._main, number * _SMALL, 8))
        return _SMALL if 2 * begun[1] >= begun[0] else _LARGE

    def _committed_frames(self) -> Iterator[tuple[int, int]]:
        """Yield page number and offset of the frames of the WAL's present generation up to its last commit (4.1)."""
        header = self._read(self._wal, 0, _WAL_HEADER)
        salts, open_frames = header[16:24], []
        for start in range(_WAL_HEADER, self._length(self._wal), _FRAME_HEADER + self.size):
            frame = self._read(self._wal, start, _FRAME_HEADER)
            if len(frame) < _FRAME_HEADER or frame[8:16] != salts:
                continue
            open_frames.append((int.from_bytes(frame[:4], "big"), start + _FRAME_HEADER))
            # Size of the database after a commit; nonzero only in the last frame of a commit.
            if frame[4:8] != bytes(4):
                yield from open_frames
                open_frames.clear()


def _begins_tree(head: bytes) -> bool:
    """Return whether a page begins like a b-tree page (1.6): a known type, room for its cells, few fragments."""
    if len(head) < 8 or head[0] not in _TREES:
        return False
    cells, content = int.from_bytes(head[3:5], "big"), int.from_bytes(head[5:7], "big")
    return 8 + 2 * cells <= content <= _LARGE and head[7] <= 60


def records(pages: Pages, number: int) -> Iterator[CellRecord]:
    """Yield the records of a page that is the leaf of a table or any page of an index (1.6)."""
    page = pages.page(number)
    start = 100 if number == 1 else 0
    kind = page[start]
    if kind not in _TREE_HEADER:
        return
    cells = int.from_bytes(page[start + 3 : start + 5], "big")
    first = start + _TREE_HEADER[kind]
    for place in range(first, min(first + 2 * cells, pages.size - 1), 2):
        try:
            yield _cell(pages, page, int.from_bytes(page[place : place + 2], "big"), kind)
        except (ValueError, IndexError):
            continue


def _cell(pages: Pages, page: bytes, at: int, kind: int) -> CellRecord:
    """Read a cell. The payload is on the page, and the overflow is in a chain of other pages (1.6, 1.7)."""
    rowid = None
    if kind == _INDEX_INTERIOR:
        at += 4  # skip the pointer to the left child
    length, at = _varint(page, at)
    if kind == _TABLE_LEAF:
        rowid, at = _varint(page, at)
        rowid -= 1 << 64 if rowid >= 1 << 63 else 0
    if length > MAX_ROW_BYTES:
        raise ValueError("it is longer than any row")
    usable = pages.usable
    most = usable - 35 if kind == _TABLE_LEAF else (usable - 12) * 64 // 255 - 23
    local = length
    if length > most:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
    payload = bytearray(page[at : at + local])
    if local < length:
        follow = int.from_bytes(page[at + local : at + local + 4], "big")
        _follow(pages, payload, follow, length)
    values, complete = _decode(bytes(payload[:length]), length)
    return CellRecord(rowid, values, complete)


def _follow(pages: Pages, payload: bytearray, number: int, length: int) -> None:
    """Append the rest of a payload from its chain of pages, as far as the pages are readable."""
    while len(payload) < length and number:
        page = pages.page(number)
        payload += page[4 : pages.usable]
        number = int.from_bytes(page[:4], "big")


def _decode(payload: bytes, length: int) -> tuple[list[Value], bool]:
    """Decode a record (2.1).

    Return the readable values, and whether they are complete. Raise ValueError for garbage.
    """
    end, at = _varint(payload, 0)
    if not at <= end <= length:
        raise ValueError("its header is cut off")
    place, values = end, list[Value]()
    while at < end:
        kind, at = _varint(payload, at)
        size = _value_bytes(kind)
        content = payload[place : place + size]
        place += size
        try:
            values.append(_value(kind, content, size))
        except ValueError:
            return values, False
    return values, place == length


def _value_bytes(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    if kind in (10, 11):
        raise ValueError("no value has this type")
    return 8 if kind == 7 else _INTEGER_BYTES.get(kind, 0)


def _value(kind: int, content: bytes, size: int) -> Value:
    if len(content) < size:
        raise ValueError("it ends inside a value")
    if kind == 0:
        return None
    if kind in _INTEGER_BYTES:
        return int.from_bytes(content, "big", signed=True)
    if kind == 7:
        return float(struct.unpack(">d", content)[0])
    if kind in (8, 9):
        return kind - 8
    if kind % 2 == 0:
        return content
    return content.decode()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a variable-length integer. Return the integer and its end. Raise IndexError if the data ends before."""
    value = 0
    for count in range(8):
        byte = data[at + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    return value << 8 | data[at + 8], at + 9
