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

from tests.rig.needs import SEARCH_PATH, lacking

#: Script that mounts the disk, prints that it is ready, and runs until its input is closed.
_HOLD = 'mount -t tmpfs -o size="$1",mode=0700 posd "$2" && echo ready && exec cat'


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


class CannotMake(Exception):
    """Error if this machine cannot make a namespace, a disk or a network. The message gives the reason."""


@contextmanager
def held(*command: str) -> Iterator[int]:
    """Run a command that makes a namespace, prints "ready", and holds the namespace until its input is closed. Yield
    the id of its process. Raise CannotMake.
    """
    with (
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PATH": SEARCH_PATH},
            text=True,
        ) as holder,
        holder.stdin,
    ):
        if (said := holder.stdout.readline().strip()) != "ready":
            raise CannotMake(f"this user may not make it here ({said})")
        yield holder.pid


@pytest.fixture(scope="session")
def small_disks() -> None:
    """Skip the test before its other fixtures if a small disk cannot be mounted here."""
    if reason := lacking("unshare", "nsenter", "mount"):
        pytest.skip(reason)
    try:
        with TemporaryDirectory() as home, small_disk(Path(home), Path(home), "64k"):
            pass
    except CannotMake as error:
        pytest.skip(f"needs to mount a tmpfs: {error}")


@contextmanager
def small_disk(home: Path, at: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a tmpfs of a size (in the notation of mount) at an existing directory. Raise CannotMake."""
    root = os.geteuid() == 0
    unshare = ["unshare", "--mount", *([] if root else ["--user", "--map-root-user"])]
    with held(*unshare, "sh", "-c", _HOLD, "sh", size, str(at)) as pid:
        python = home / "python"
        enter = [
            "nsenter",
            f"--target={pid}",
            "--mount",
            "--root",  # without the root directory nsenter would leave a chroot
            *([] if root else ["--user", "--preserve-credentials"]),
        ]
        python.write_text(f'#!/bin/sh\nexec {shlex.join([*enter, sys.executable])} "$@"\n')
        python.chmod(0o755)
        yield SmallDisk(Path(f"/proc/{pid}/root{at}"), python)
