"""Word of files that come, go or are moved in a folder, from the kernel (inotify(7))."""

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

#: IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF (linux/inotify.h). What is written to
#: the files is not among them.
_MASK = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
#: What is read of the reports at a time, in bytes; what they say is not looked at.
_READ_BYTES = 4096

#: Calls a function, on the running loop, when something may have changed in a folder, for as long as it is entered.
Told = Callable[[Path, Callable[[], None]], AbstractContextManager[None]]


@contextmanager
def told(folder: Path, changed: Callable[[], None]) -> Iterator[None]:
    """See `Told`. Where the kernel does not report (its limits, another system), nothing is called."""
    descriptor = _watched(folder)
    if descriptor is None:
        yield
        return

    def read() -> None:
        with suppress(OSError):  # BlockingIOError: that was all
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
    """Return a descriptor that can be read when something changes there, None where there is none to be had."""
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
