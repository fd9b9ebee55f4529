"""Limits of a Unix socket: connections by process and by user, and the response beyond them.

The peer credentials (SO_PEERCRED), as of the connect, identify a process. A process of another pid namespace has no
number; it is counted by its user only.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from posd.httpd.allowance import Allowance

#: struct ucred: process, user and group id (unix(7)).
_PEER_CREDENTIALS = struct.Struct("iII")
#: Seconds that a refused connection has to send its request and to read the response.
TURNED_AWAY_SECONDS = 1.0
#: Most refused connections at one time. A further one gets its response and is closed at once, which costs least.
MAX_TURNED_AWAY = 64
#: Bytes read of such a request at a time. They are dropped.
_PIECE_BYTES = 65_536


class SocketPeer(NamedTuple):
    """Process and user at the other end of a Unix socket; `pid` is 0 if the kernel reports none."""

    pid: int
    uid: int


def sender_of(connection: socket.socket) -> SocketPeer | None:
    """Return the process and user at the other end, or None on the LAN."""
    if connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
    return SocketPeer(pid, uid)


class PeerQuotas:
    """Places of one Unix socket. `on_full` gets the reached limit and the sender, and returns the response's bytes.

    The limits are named `process`, `user` and `socket`.
    """

    def __init__(self, of_process: int, of_user: int, on_full: Callable[[str, SocketPeer], bytes]) -> None:
        self._processes = Allowance(of_process)
        self._users = Allowance(of_user)
        self._on_full = on_full
        self.turned_away = RejectedConnections()

    def enter(self, connection: socket.socket, sender: SocketPeer, *, full: bool) -> bool:
        """Occupy a place for a connection; without a free one, send the response, close it and return False.

        `full`: the socket has all the connections that it may have.
        """
        reached = self._occupy(sender)
        if reached is None and full:
            self.leave(sender)
            reached = "socket"
        if reached is not None:
            self.turned_away.take(connection, self._on_full(reached, sender))
        return reached is None

    def leave(self, sender: SocketPeer) -> None:
        """Free the place of a connection."""
        self._users.give_back(sender.uid)
        if sender.pid:
            self._processes.give_back(sender.pid)

    def _occupy(self, sender: SocketPeer) -> str | None:
        """Occupy a place; without a free one return the reached limit."""
        if sender.pid and not self._processes.try_take(sender.pid):
            return "process"
        if self._users.try_take(sender.uid):
            return None
        if sender.pid:
            self._processes.give_back(sender.pid)
        return "user"


class RejectedConnections:
    """Refused connections that get a response and are closed: few, and each for a short time.

    The response follows the first bytes of the request: a client may treat an earlier response as a broken connection.
    """

    def __init__(self) -> None:
        self._waiting: dict[socket.socket, tuple[bytes, asyncio.TimerHandle]] = {}

    def take(self, connection: socket.socket, answer: bytes) -> None:
        """Send the response when the request begins; close the connection when the client has closed."""
        connection.setblocking(False)
        if len(self._waiting) >= MAX_TURNED_AWAY:
            with suppress(OSError):  # the client is gone
                connection.send(answer)
            connection.close()
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(TURNED_AWAY_SECONDS, self._end, connection)
        self._waiting[connection] = (answer, timer)
        loop.add_reader(connection, partial(self._hear, connection))

    def close(self) -> None:
        """End all refused connections."""
        for connection in list(self._waiting):
            self._end(connection)

    def _hear(self, connection: socket.socket) -> None:
        try:
            piece = connection.recv(_PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            piece = b""
        if not piece:
            self._end(connection)
            return
        self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        answer, timer = self._waiting[connection]
        if answer:
            self._waiting[connection] = (b"", timer)
            with suppress(OSError):  # the client is gone
                connection.send(answer)
                connection.shutdown(socket.SHUT_WR)

    def _end(self, connection: socket.socket) -> None:
        self._answer(connection)
        _, timer = self._waiting.pop(connection)
        timer.cancel()
        asyncio.get_running_loop().remove_reader(connection)
        connection.close()
