"""Peers that do not read, so that bytes written to them stay unread."""

import fcntl
import json
import os
import socket
from typing import Any, Self


def fill(descriptor: int) -> None:
    """Write to a pipe or a socket until it is full. Afterwards, set the descriptor to blocking mode again."""
    os.set_blocking(descriptor, False)
    try:
        while True:
            os.write(descriptor, b"-" * 512)
    except BlockingIOError:
        os.set_blocking(descriptor, True)


class FullOutput:
    """A full pipe or stream socket. The socket of the journal is a stream socket. `write`: descriptor for the writer of
    a log."""

    def __init__(self, kind: str) -> None:
        if kind == "pipe":
            self._read, self.write = os.pipe()
            fcntl.fcntl(self.write, fcntl.F_SETPIPE_SZ, 4096)
        else:
            self._read, self.write = (item.detach() for item in socket.socketpair())
        fill(self.write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._read)
        if self.write >= 0:
            os.close(self.write)

    def lines(self) -> list[dict[str, Any]]:
        """Read until all writers have closed. Return the written lines."""
        os.close(self.write)
        self.write = -1
        found = b""
        while piece := os.read(self._read, 65536):
            found += piece
        return [json.loads(line) for line in found.lstrip(b"-").splitlines()]


def fill_manager(address: str) -> None:
    """Send notifications to a service manager until its socket is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            while True:
                sender.sendto(b"X_FULL=1", address)
        except BlockingIOError:
            return
