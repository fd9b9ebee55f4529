"""Room on the disks: what cannot be written cannot be acknowledged, and no payment starts."""

import os
from pathlib import Path

from posd.cli.doctor.context import AS_ROOT, NotForMe, Shop, allowed
from posd.cli.doctor.findings import Findings, failure, ok, warning

#: Below this, in bytes: the WAL (4 MiB and a checkpoint beside it) and some large events may not find room any more.
LEAST_BYTES = 32 * 1024 * 1024
#: Below this a person should look before it runs out: months of payments of one shop, or some days of a runaway log.
FEW_BYTES = 256 * 1024 * 1024
#: Files that can still be made; SQLite and posd make a handful.
LEAST_FILES = 64

MIB = 1024 * 1024


def check(shop: Shop) -> Findings:
    """Tell how much room is left where the database lies, and whether sockets can be made."""
    directory = shop.settings.database.path.parent
    yield from _room(directory, LEAST_BYTES, FEW_BYTES)
    sockets = shop.settings.local_api.directory
    if _existing(sockets).exists() and _device(sockets) != _device(directory):
        yield from _room(sockets, 64 * 1024, 64 * 1024)  # two sockets and a lock file


def _room(directory: Path, least: int, few: int) -> Findings:
    at = _existing(directory)
    try:
        with allowed():
            found = os.statvfs(at)
    except NotForMe as closed:
        yield warning(str(directory), str(closed), AS_ROOT)
        return
    free = found.f_bavail * found.f_frsize
    if found.f_flag & os.ST_RDONLY:
        yield failure(
            str(directory),
            "the file system cannot be written (mounted read-only): no payment can start",
            "find out why (dmesg): a disk that fails is often mounted so; then mount it writable again",
        )
    elif free < least:
        yield failure(
            str(directory),
            f"the disk is nearly full ({free / MIB:.1f} MiB free): posd refuses payments when nothing can be written",
            "free the disk: old logs, downloads, backups; posd goes on by itself, without a restart",
        )
    elif found.f_files and found.f_favail < LEAST_FILES:
        yield failure(
            str(directory),
            f"the disk has room, but no more than {found.f_favail} files can be made on it (inodes)",
            "remove files that nobody needs; a directory with very many small ones is the usual reason",
        )
    elif free < few:
        yield warning(str(directory), f"{free / MIB:.0f} MiB are free on this disk", "make room before it runs out")
    else:
        yield ok(str(directory), f"{free / MIB:,.0f} MiB are free on this disk".replace(",", " "))


def _existing(path: Path) -> Path:
    """Return the path, or the next directory above it that exists or cannot be looked into."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def _device(path: Path) -> int:
    return _existing(path).stat().st_dev
