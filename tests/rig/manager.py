"""A service manager for a daemon: a socket for notifications, and sockets that the manager passes to the daemon."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Program that executes the daemon with one passed socket (sd_listen_fds(3)). The first argument is the descriptor.
PASSING = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Manager:
    """Receiver of notifications."""

    def __init__(self, listening: socket.socket, path: Path) -> None:
        self._socket = listening
        self.environment = {"NOTIFY_SOCKET": str(path)}

    async def heard(self) -> dict[str, str]:
        """Wait for the next notification."""
        text = (await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._socket, 8192), 60)).decode()
        return dict(line.split("=", 1) for line in text.splitlines())

    async def heard_of(self, name: str) -> dict[str, str]:
        """Wait for the next notification with this name."""
        while name not in (said := await self.heard()):
            pass
        return said

    def waiting(self) -> list[str]:
        """Return and remove the notifications so far."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(8192).decode())
            except BlockingIOError:
                return found


@contextmanager
def manager(home: Path) -> Iterator[Manager]:
    """Listen for notifications in a directory."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(home / "notify"))
        listening.setblocking(False)
        yield Manager(listening, home / "notify")


@contextmanager
def passed_socket(path: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    """Create a listening socket as a systemd unit does. Yield the command that passes the socket to a daemon, and the
    descriptor.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1024)
        yield (sys.executable, "-c", PASSING, str(listening.fileno())), listening.fileno()
