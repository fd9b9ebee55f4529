"""Files that commands write for the user, readable only for their owner."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from posd.base import files
from posd.cli.app.context import drop_lost_output


def write_private_file(path: Path, content: bytes, *, replaces: bool) -> None:
    """Write a file by `private_file`. Raise its errors."""
    with private_file(path, replaces=replaces) as fresh:
        fresh.write_bytes(content)


@contextmanager
def private_file(path: Path, *, replaces: bool) -> Iterator[Path]:
    """Yield the path of an empty file with mode 0600, which is renamed to `path` after the block.

    If the block raises, `path` stays as it was. If `path` is a pipe or a device and `replaces` is true, yield `path`
    itself. Root acts as the owner of the directory. Raise FileExistsError if `path` exists and `replaces` is false.
    Raise OSError.
    """
    drop_lost_output()
    with files.acting_as_owner(path):
        if replaces and path.exists() and not path.is_file():
            yield path
            return
        place = path.resolve() if replaces else path.absolute()
        fresh = place.with_name(f".{place.name}.{os.getpid()}.new")
        try:
            files.create_private(fresh)
            yield fresh
            files.sync(fresh)
            if replaces:
                fresh.replace(place)
            else:
                _add(fresh, place)
        finally:
            fresh.unlink(missing_ok=True)
        with suppress(OSError):  # the file is complete even if the sync of its folder fails
            files.sync_folder(place.parent)


def _add(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        raise
    except OSError:  # some file systems, as on a USB stick, have no hard links
        if os.path.lexists(path):
            raise FileExistsError from None
        fresh.rename(path)
