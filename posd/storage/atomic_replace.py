"""Putting another database in place of the one that is there, at once or not at all, whatever is killed meanwhile.

A database is several files (its WAL holds what was committed last), and no system call renames them together. So the
one rename that counts gives the new file, complete and synced, a name that says what is to be done; `finish` does it,
and whoever opens the database calls it first. Nothing is ever deleted: the old files get another name.
"""

from datetime import UTC, datetime
from pathlib import Path

from posd.base.crashpoints import crash_point
from posd.storage import files

#: posd.db.restored-STAMP waits to be put in place; posd.db.replaced-STAMP is what was there before.
_WAITING = ".restored-"
_REPLACED = ".replaced-"


def name_for_replaced(path: Path, at: datetime) -> Path:
    """Return a name for what is at `path` now, such as posd.db.replaced-20261120T104203Z, that nothing has yet."""
    taken = {item.name for item in path.parent.iterdir()}
    stamp = f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    while any(name.startswith(f"{path.name}{word}{stamp}") for word in (_WAITING, _REPLACED) for name in taken):
        number += 1
        stamp = f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{number}"
    return path.with_name(f"{path.name}{_REPLACED}{stamp}")


def commit(fresh: Path, path: Path, replaced: Path) -> None:
    """Put a complete, synced database file in place of `path`, which is called `replaced` from then on.

    Raise OSError. It is done once the first rename is on disk: `finish` can always go on from there.
    """
    fresh.replace(path.with_name(replaced.name.replace(_REPLACED, _WAITING)))
    files.sync(path.parent)
    crash_point("replace.committed")
    finish(path)


def waiting(path: Path) -> list[Path]:
    """Return what a restore that was killed left to be put in place, oldest first. Raise OSError."""
    if not path.parent.is_dir():
        return []
    return sorted(item for item in path.parent.iterdir() if item.name.startswith(path.name + _WAITING))


def finish(path: Path) -> None:
    """Go on where a `commit` was killed, if one was. The caller holds the lock. Raise OSError."""
    for fresh in waiting(path):
        replaced = path.with_name(fresh.name.replace(_WAITING, _REPLACED))
        for suffix in (*files.COMPANIONS, ""):
            old = path.with_name(path.name + suffix)
            if old.exists():
                old.rename(replaced.with_name(replaced.name + suffix))
                crash_point("replace.old_aside")
        files.sync(path.parent)  # the new file must never stand beside the old one's WAL, whatever comes first on disk
        fresh.rename(path)
        crash_point("replace.in_place")
        files.sync(path.parent)
