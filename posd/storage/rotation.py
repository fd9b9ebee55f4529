"""Backups under names with their time in one directory, of which the newest are kept.

Removed is only what bears such a name, can be read as a backup of posd, and is older than the newest that are kept; and
nothing before the new one is whole. What bears such a name and cannot be read counts for nothing, and stays. The
unfinished file of a killed backup is removed first: a directory holds the backups of one posd.
"""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from posd.base.crashpoints import crash_point
from posd.base.json_types import Moment
from posd.base.times import iso
from posd.storage import backup, files
from posd.storage.backup import BadTarget, NotABackup, Written

NAME = re.compile(r"posd-\d{8}T\d{6}Z\.db", re.ASCII)
#: The same for `glob`.
NAMES = f"posd-{'[0-9]' * 8}T{'[0-9]' * 6}Z.db"
#: How many are kept where nobody says: two weeks of one a night.
KEEP = 14
#: More would be looked through at each backup.
MOST_KEPT = 10_000


class Rotated(msgspec.Struct, frozen=True):
    """A backup that was written, and what became of those before it: names of files in its directory."""

    path: Annotated[str, Meta(description="where it is")]
    bytes: Annotated[int, Meta(description="its size")]
    transactions: Annotated[int, Meta(description="how many payments are in it")]
    at: Annotated[Moment, Meta(description="of when it is")]
    kept: Annotated[int, Meta(description="how many backups are in the directory now")]
    removed: Annotated[list[str], Meta(description="names of the older ones that were removed")]
    unusable: Annotated[list[str], Meta(description="names of what looks like a backup there, and cannot be used")]


def write(
    database: Path, directory: Path, keep: int, keys: Sequence[bytes], at: datetime, stop: Callable[[], bool]
) -> Rotated:
    """Write a backup into a directory, and remove the oldest there. Raise as `backup.write` does, and then change
    nothing.
    """
    if not directory.is_absolute() or "\0" in str(directory):
        raise BadTarget("must be an absolute path of a directory, such as /var/backups/posd")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadTarget(f"cannot be made ({error.strerror}); make it, writable for the user of posd") from error
    _remove_unfinished(directory)
    target = directory / f"posd-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}.db"
    written = backup.write(database, target, keys, iso(at), stop)
    removed, unusable, kept = _rotate(directory, target, keep)
    return Rotated(**msgspec.structs.asdict(written), kept=kept, removed=removed, unusable=unusable)


def _remove_unfinished(directory: Path) -> None:
    """Remove the unfinished files of killed backups. Errors are ignored: the next backup tries again."""
    with suppress(OSError):
        for path in list(directory.glob(backup.unfinished(Path(NAMES)).name)):
            files.remove_database(path)


def _rotate(directory: Path, newest: Path, keep: int) -> tuple[list[str], list[str], int]:
    """Remove the oldest good ones beyond `keep`; return what was removed, what cannot be used, and how many are left.

    What cannot be removed is left to the next time: the backup is there.
    """
    good, unusable, removed = [newest], [], []
    for path in sorted((item for item in directory.iterdir() if NAME.fullmatch(item.name)), reverse=True):
        if path == newest:
            continue
        try:
            backup.read(path)
        except (NotABackup, OSError):
            unusable.append(path.name)
        else:
            good.append(path)
    left = len(good)
    for path in reversed(good[keep:]):
        try:
            path.unlink()
        except OSError:
            continue
        crash_point("backup.rotated")
        removed.append(path.name)
        left -= 1
    if removed:
        files.sync(directory)
    return removed, unusable, left


def write_unnamed(database: Path, keys: Sequence[bytes], at: str, stop: Callable[[], bool]) -> tuple[Written, int]:
    """Write a backup beside the database; return it and a descriptor of its file, which has no name any more.

    So nothing is left of it when that is closed, whoever is killed. Raise as `backup.write` does.
    """
    path = database.with_name(f"{database.name}.sent")
    path.unlink(missing_ok=True)  # of a daemon that was killed just here
    written = backup.write(database, path, keys, at, stop)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    path.unlink()
    return written, descriptor
