"""A VFS for the library of the module sqlite3. The VFS puts the simulated disk between SQLite and its files.

The VFS is a copy of the default VFS under another name, and becomes the default. Functions of this module replace
opening, deleting, randomness, sleep and time. For a file in the disk's directory, other functions replace writing,
truncating, syncing, closing and growing the shared memory. Each replacement calls the original. Connections keep
pointers to objects of this module. Therefore a process has one VFS, which is never freed.
"""

import _sqlite3
import ctypes
import errno
import functools
import os
import sqlite3
from collections.abc import Callable
from ctypes import PYFUNCTYPE, addressof, byref, c_char_p, c_int, c_int64, c_ssize_t, c_void_p
from random import Random
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tests.simulation.disk import Disk, File

Kind = Literal["write", "sync", "truncate", "rename", "unlink"]
SHARED_MEMORY = "-shm"

_OK = 0

# Flags of `xOpen` (sqlite3.h).
_CREATE = 0x00000004
#: Flags of journals and WALs. The first sync of a new file of these kinds also syncs the folder (os_unix.c:
#: UNIXFILE_DIRSYNC).
_SYNCS_FOLDER = 0x00000800 | 0x00004000 | 0x00080000

#: 1970-01-01 as a Julian day, in milliseconds.
_EPOCH_MS = 210_866_760_000_000

#: Kind of operation -> SQLite's code for its I/O error.
_IO_ERRORS: dict[Kind, int] = {
    "write": sqlite3.SQLITE_IOERR_WRITE,
    "truncate": sqlite3.SQLITE_IOERR_TRUNCATE,
    "sync": sqlite3.SQLITE_IOERR_FSYNC,
    "unlink": sqlite3.SQLITE_IOERR_DELETE,
}

# Types of the functions that SQLite calls. A call of an original does not release Python's lock, since there is one
# thread.
_Open = PYFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Delete = PYFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_Bytes = PYFUNCTYPE(c_int, c_void_p, c_int, c_void_p)
_Number = PYFUNCTYPE(c_int, c_void_p, c_int)
_Result = PYFUNCTYPE(c_int, c_void_p, c_void_p)
_Close = PYFUNCTYPE(c_int, c_void_p)
_Transfer = PYFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Length = PYFUNCTYPE(c_int, c_void_p, c_int64)
_Map = PYFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, c_void_p)

_Function = Callable[..., int]
_NAME_OF_VFS = c_char_p(b"simulated")

#: Return the bytes at an address, like `ctypes.string_at` but without a Python function around it.
_bytes_at: Callable[[int, int], bytes] = PYFUNCTYPE(ctypes.py_object, c_void_p, c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)


class Unavailable(Exception):
    """Error if SQLite cannot use a simulated disk. The message gives the reason."""


#: Positions of pointers in `sqlite3_vfs` and in `sqlite3_io_methods`, in words of 8 bytes (sqlite3.h).
_NEXT, _NAME, _OPEN, _DELETE, _RANDOMNESS, _SLEEP, _TIME_MS = 2, 3, 5, 6, 13, 14, 17
_CLOSE, _WRITE, _TRUNCATE, _SYNC, _MAP = 1, 3, 4, 5, 13
#: Both structures of version 3.
_Vfs: Any = c_void_p * 21
_Methods: Any = c_void_p * 19


def _library() -> ctypes.CDLL:
    """Return the library that the module sqlite3 uses in this process. Raise Unavailable."""
    try:
        library = ctypes.CDLL(_sqlite3.__file__)  # a look-up also searches the libraries on which the module depends
        library.sqlite3_vfs_find.restype = c_void_p
    except (AttributeError, OSError) as error:
        raise Unavailable(f"the functions of SQLite cannot be called: {error}") from error
    return library


class Vfs:
    """The VFS of this process. `shared` returns it. Call `install` for one disk, and `remove` at the end of the use."""

    def __init__(self) -> None:
        self._library = _library()
        self._default = self._library.sqlite3_vfs_find(None)
        original = _Vfs.from_address(self._default)
        if c_int.from_address(self._default).value < 3:
            raise Unavailable("the VFS of this SQLite is older than version 3")
        self._disk: Disk | None = None
        self._seed = 0
        self._now: Callable[[], float] | None = None
        #: Open files of the disk, by SQLite's address of the file.
        self.files: dict[int, File] = {}
        self._methods: dict[int, Any] = {}  # address of the original methods -> the copy
        self._names_to_sync: set[int] = set()
        self._keep: list[Any] = []  # objects to which SQLite has pointers
        self._open_original: _Function = _Open(original[_OPEN])
        self._delete_original: _Function = _Delete(original[_DELETE])

        self._vfs = _Vfs.from_buffer_copy(original)
        self._vfs[_NEXT] = None
        self._vfs[_NAME] = ctypes.cast(_NAME_OF_VFS, c_void_p).value
        self._vfs[_OPEN] = self._pointer(_Open, self._open)
        self._vfs[_DELETE] = self._pointer(_Delete, self._delete)
        self._vfs[_RANDOMNESS] = self._pointer(_Bytes, self._randomness)
        self._vfs[_SLEEP] = self._pointer(_Number, lambda _vfs, microseconds: microseconds)  # there is only one thread
        self._vfs[_TIME_MS] = self._pointer(_Result, self._time_ms)

    def install(self, disk: "Disk", seed: int, now: Callable[[], float]) -> None:
        """Make new connections use the disk. `now`: seconds since 1970. `seed`: seed of SQLite's randomness."""
        if self._disk is not None:
            raise RuntimeError("another disk is in force")
        self._disk, self._seed, self._now = disk, seed, now
        self._library.sqlite3_vfs_register(byref(self._vfs), 1)
        self._library.sqlite3_randomness(0, None)  # this call makes SQLite's generator ask `xRandomness` for a new seed

    def remove(self) -> None:
        """Make connections use the system's files."""
        self._library.sqlite3_vfs_unregister(byref(self._vfs))
        self._library.sqlite3_vfs_register(c_void_p(self._default), 1)
        self._library.sqlite3_randomness(0, None)
        self._disk = self._now = None
        self.files.clear()
        self._names_to_sync.clear()

    def _pointer(self, prototype: Any, function: _Function) -> int:
        """Return the address of a function for SQLite.

        The disk stores the function's exceptions, and SQLite gets an I/O error.
        """

        def guarded(*arguments: Any) -> int:
            try:
                return function(*arguments)
            except BaseException as error:  # noqa: BLE001 - the exception cannot pass through SQLite
                assert self._disk is not None
                self._disk.raised = self._disk.raised or error
                return sqlite3.SQLITE_IOERR

        callback = prototype(guarded)
        self._keep.append(callback)
        return ctypes.cast(callback, c_void_p).value or 0

    # Methods of the VFS.

    def _open(self, _vfs: int, path: int | None, file: int, flags: int, out: int | None) -> int:
        disk, name = self._disk, None
        if disk is not None and path is not None:
            name = disk.relative(os.fsdecode(ctypes.string_at(path)))
        if disk is None or name is None:
            return self._open_original(self._default, path, file, flags, out)
        creates = bool(flags & _CREATE) and not os.path.lexists(disk.directory / name)
        if disk.dead or (creates and disk.full):
            return sqlite3.SQLITE_CANTOPEN
        code = self._open_original(self._default, path, file, flags, out)
        if code != _OK:
            return code
        self.files[file] = disk.opened(name)
        if flags & _CREATE and flags & _SYNCS_FOLDER:
            self._names_to_sync.add(file)
        cell = c_void_p.from_address(file)
        cell.value = addressof(self._copied(cell.value or 0))
        return _OK

    def _delete(self, _vfs: int, path: int, sync_folder: int) -> int:
        disk = self._disk
        name = None if disk is None else disk.relative(os.fsdecode(ctypes.string_at(path)))
        if disk is None or name is None:
            return self._delete_original(self._default, path, sync_folder)
        if disk.dead:
            return _OK
        if disk.find(name) is None:
            return sqlite3.SQLITE_IOERR_DELETE_NOENT
        if refused := disk.unlink(name):
            return _OK if disk.dead else _code("unlink", refused)
        if sync_folder and disk.sync_names(name.rpartition("/")[0]):
            return sqlite3.SQLITE_IOERR_DIR_FSYNC
        return _OK

    def _randomness(self, _vfs: int, length: int, out: int) -> int:
        ctypes.memmove(out, Random(self._seed).randbytes(length), length)
        return length

    def _time_ms(self, _vfs: int, out: int) -> int:
        assert self._now is not None
        c_int64.from_address(out).value = _EPOCH_MS + int(self._now() * 1000)
        return _OK

    # Methods of open files. The first argument is SQLite's address of the file.

    def _copied(self, original: int) -> Any:
        """Return a file's methods, with some replaced."""
        if original not in self._methods:
            found = _Methods.from_address(original)
            self._methods[original] = copy = _Methods.from_buffer_copy(found)
            for place, kind, function in (
                (_CLOSE, _Close, self._close),
                (_WRITE, _Transfer, _write),
                (_TRUNCATE, _Length, _truncate),
                (_SYNC, _Number, self._sync),
                (_MAP, _Map, _map),
            ):
                if address := found[place]:
                    copy[place] = self._pointer(kind, self._around(kind(address), function))
        return self._methods[original]

    def _around(self, original: _Function, function: _Function) -> _Function:
        """Return a method that calls a function of this module for a file of the disk."""

        def method(pointer: int, *arguments: int) -> int:
            file, disk, proceed = self.files.get(pointer), self._disk, functools.partial(original, pointer, *arguments)
            if file is None or disk is None:
                return proceed()
            return function(disk, file, proceed, pointer, *arguments)

        return method

    def _close(self, _disk: "Disk", _file: "File", proceed: _Function, pointer: int) -> int:
        self.files.pop(pointer, None)
        self._names_to_sync.discard(pointer)
        return proceed()

    def _sync(self, disk: "Disk", file: "File", _proceed: _Function, pointer: int, _flags: int) -> int:
        if refused := disk.sync(file):
            return _code("sync", refused)
        if pointer in self._names_to_sync:
            self._names_to_sync.discard(pointer)
            disk.sync_names(file.name.rpartition("/")[0])  # SQLite ignores the result, and syncs the folder once
        return _OK


def _write(disk: "Disk", file: "File", proceed: _Function, _pointer: int, data: int, length: int, offset: int) -> int:
    if refused := disk.refusal("write", file.name, offset + length > file.size):
        return _code("write", refused)
    if (code := proceed()) == _OK:
        file.write(offset, _bytes_at(data, length))
    return code


def _truncate(disk: "Disk", file: "File", proceed: _Function, _pointer: int, length: int) -> int:
    if refused := disk.refusal("truncate", file.name, length > file.size):
        return _code("truncate", refused)
    if (code := proceed()) == _OK:
        file.truncate(length)
    return code


def _map(disk: "Disk", file: "File", proceed: _Function, *arguments: int) -> int:
    _, region, size, extend, _ = arguments
    shared = disk.directory / f"{file.name}{SHARED_MEMORY}"
    if disk.full and extend and (not shared.exists() or shared.stat().st_size < (region + 1) * size):
        return sqlite3.SQLITE_IOERR_SHMSIZE
    return proceed()


def _code(kind: Kind, refused: int) -> int:
    return sqlite3.SQLITE_FULL if refused == errno.ENOSPC else _IO_ERRORS[kind]


@functools.cache
def shared() -> Vfs:
    """Return the VFS of this process. Raise Unavailable."""
    return Vfs()
