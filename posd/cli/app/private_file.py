"""Writing of files for a person, readable only for their owner."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from posd.base import files
from posd.cli.app.context import drop_lost_output


def write_private_file(path: Path, content: bytes, *, replaces: bool) -> None:
    """Write the content of a `private_file`, and raise its errors."""
    with private_file(path, replaces=replaces) as fresh:
        fresh.write_bytes(content)


@contextmanager
def private_file(path: Path, *, replaces: bool) -> Iterator[Path]:
    """Yield an empty file with mode 0600 that is put in place at the end, completely or not at all.

    For a pipe or a device, yield that file. Root acts as the owner of the directory. If the file
    exists and `replaces` is false, raise FileExistsError. Raise OSError.
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
        with suppress(OSError):  # the file exists
            files.sync_folder(place.parent)


def _add(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        raise
    except OSError:  # the file system of a stick has no hard links
        if os.path.lexists(path):
            raise FileExistsError from None
        fresh.rename(path)
