"""A small disk, made of a tmpfs in a mount namespace. A new interpreter can enter the namespace. The rest of the
machine does not see the disk. The disk ends with the last process in the namespace. Users other than root also need a
user namespace, in which the kernel permits every user to mount.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.needs import lacking

#: Script that mounts the disk, prints that it is ready, and runs until its input is closed.
_HOLD = 'mount -t tmpfs -o size="$1",mode=0700 posd "$2" && echo mounted && exec cat'


@dataclass(frozen=True)
class SmallDisk:
    """A mounted tmpfs. `files`: path at which this process sees the disk. `python`: interpreter that sees the disk at
    its mount point.
    """

    files: Path
    python: Path

    @property
    def _ballast(self) -> Path:
        return self.files / "ballast"

    def fill(self, spare: int = 0) -> None:
        """Fill the disk, then free some bytes."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while True:
                os.write(descriptor, bytes(65536))
        except OSError as error:
            if error.errno != ENOSPC:
                raise
            os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - spare))
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Free the filled space."""
        self._ballast.unlink()


class CannotMount(Exception):
    """Error if this machine cannot mount a small disk. The message gives the reason."""


def skip_without_small_disks() -> None:
    """Skip the test if a small disk cannot be mounted. The first fixture of a test calls this function."""
    if reason := lacking("unshare", "nsenter", "mount"):
        pytest.skip(reason)
    try:
        with TemporaryDirectory() as home, small_disk(Path(home), Path(home), "64k"):
            pass
    except CannotMount as error:
        pytest.skip(f"needs to mount a tmpfs: {error}")


@contextmanager
def small_disk(home: Path, at: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a tmpfs of a size (in the notation of mount) at an existing directory. Raise CannotMount."""
    root = os.geteuid() == 0
    unshare = ["unshare", "--mount", *([] if root else ["--user", "--map-root-user"])]
    with subprocess.Popen(
        [*unshare, "sh", "-c", _HOLD, "sh", size, str(at)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        said = holder.stdout.readline().strip()
        if said != "mounted":
            holder.stdin.close()
            who = "root" if root else "this user, even in a user namespace"
            raise CannotMount(f"{who} may not do that here ({said})")
        python = home / "python"
        enter = [
            "nsenter",
            f"--target={holder.pid}",
            "--mount",
            "--root",  # without the root directory nsenter would leave a chroot
            *([] if root else ["--user", "--preserve-credentials"]),
        ]
        python.write_text(f'#!/bin/sh\nexec {shlex.join([*enter, sys.executable])} "$@"\n')
        python.chmod(0o755)
        try:
            yield SmallDisk(Path(f"/proc/{holder.pid}/root{at}"), python)
        finally:
            holder.stdin.close()
