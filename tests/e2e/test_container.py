"""A till in a container reaches posd. The test makes a mount namespace with bind mounts, as a container's runtime does.
docs/guides/install.md advises to mount the directory, or to let systemd hold the socket.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posd.tls import issue
from tests.rig.daemon import Daemon, toml
from tests.rig.manager import passed_socket
from tests.rig.tables import there
from tests.rig.terminal import ScriptedTerminal

#: Script that mounts the directory read-only at $2, and only the socket at $3.
CONTAINER = """
mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && mount --bind "$1/till.sock" "$3" && shift 3 && exec "$@"
"""
#: Program that calls posd over the mounted directory and over the mounted file for each line of input. The program
#: prints both results.
TILL = """
import socket, sys
for _ in sys.stdin:
    said = []
    for path in (sys.argv[1] + "/till.sock", sys.argv[2]):
        with socket.socket(socket.AF_UNIX) as till:
            try:
                till.connect(path)
                till.sendall(b"GET /v1/version HTTP/1.1\\r\\nhost: posd\\r\\nconnection: close\\r\\n\\r\\n")
                said.append(till.recv(12).decode().split()[1])
            except OSError as error:
                said.append(type(error).__name__)
    print(*said, flush=True)
"""


class Container:
    """A running container with a till."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def calls(self) -> list[str]:
        """Call posd over the mounted directory and over the mounted file. Return both results."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return there(self._process.stdout).readline().split()


@contextmanager
def container(home: Path, run: Path) -> Iterator[Container]:
    """Run a container for the block."""
    directory, file = home / "mounted", home / "mounted.sock"
    directory.mkdir()
    file.touch()
    places = [str(directory), str(file)]
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    command = [*alone, "sh", "-c", CONTAINER, "sh", str(run), *places, sys.executable, "-c", TILL, *places]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Container(process)


async def test_after_a_restart_a_mounted_directory_reaches_posd_and_a_mounted_socket_does_not(
    small_disks: None, posd: Daemon, home: Path
) -> None:
    with container(home, posd.till_socket.parent) as inside:
        assert inside.calls() == ["200", "200"]
        await posd.restart()
        assert inside.calls() == ["200", "ConnectionRefusedError"]


async def test_if_systemd_holds_the_socket_both_mounts_reach_posd_after_a_restart(
    small_disks: None, home: Path, terminal: ScriptedTerminal
) -> None:
    with passed_socket(home / "run" / "till.sock") as (entering, descriptor):
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        posd = Daemon(home, toml(home, terminal.toml), entering=entering, passing=(descriptor,))
        await posd.start()
        with container(home, home / "run") as inside:
            assert inside.calls() == ["200", "200"]
            assert await posd.stop() == 0
            await posd.start()
            assert inside.calls() == ["200", "200"]
        await posd.stop()
