"""Notice of files that appear, vanish or move in a folder (inotify(7))."""

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

#: IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF (linux/inotify.h). Writes to the files
#: are not among them.
_MASK = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
#: Bytes read of the reports at a time; their content is not used.
_READ_BYTES = 4096

#: Context manager that calls a function, on the running loop, when the folder may have changed.
Told = Callable[[Path, Callable[[], None]], AbstractContextManager[None]]


@contextmanager
def told(folder: Path, changed: Callable[[], None]) -> Iterator[None]:
    """Call `changed`, on the running loop, at each change of a folder (see `Told`).

    Without reports from the kernel (its limits, another system) nothing is called.
    """
    descriptor = _watched(folder)
    if descriptor is None:
        yield
        return

    def read() -> None:
        with suppress(OSError):  # BlockingIOError: no more reports
            while os.read(descriptor, _READ_BYTES):
                pass
        changed()

    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _watched(folder: Path) -> int | None:
    """Return a descriptor that becomes readable at a change, or None if there is none."""
    library = ctypes.CDLL(None)
    try:
        descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        added = descriptor >= 0 and library.inotify_add_watch(descriptor, os.fsencode(folder), _MASK) >= 0
    except AttributeError:
        return None
    if added:
        return descriptor
    if descriptor >= 0:
        os.close(descriptor)
    return None
