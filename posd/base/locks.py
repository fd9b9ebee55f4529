"""Lock files: one process at a time, given up by the kernel whatever happens to that process."""

import fcntl
import os
from pathlib import Path


class Held(Exception):
    """Another process holds the lock."""


def take(path: Path) -> int:
    """Take the lock and return its file descriptor; closing it gives the lock up. Raise Held, or OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Held from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
