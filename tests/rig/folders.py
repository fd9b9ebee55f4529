"""A file system that cannot sync a folder. Some network shares and FUSE file systems have this limit."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

_fsync = os.fsync


@contextmanager
def folders_not_synced(number: int = errno.EINVAL) -> Iterator[None]:
    """Make each sync of a folder fail with this error for the block."""

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        _fsync(descriptor)

    with patch.object(os, "fsync", fsync):
        yield
