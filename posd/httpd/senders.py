"""Who may connect to a Unix socket how often: connections by process and by user, and the answer to one too many.

A process is known by its peer credentials (SO_PEERCRED), as they were when it connected. One whose number the kernel
does not say (it is of another pid namespace) is counted by its user alone.
"""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

#: struct ucred: process, user and group id (unix(7)).
_PEER_CREDENTIALS = struct.Struct("iII")
#: How long a connection that is turned away has to send its request and to read the answer, in seconds.
TURNED_AWAY_SECONDS = 1.0
#: How many of them there are at one time; one more is answered and closed at once, which costs least.
MAX_TURNED_AWAY = 64
#: What is read of such a request at a time, in bytes. Nothing is done with it.
_PIECE_BYTES = 65_536


class Sender(NamedTuple):
    """Process and user at the other end of a Unix socket; `pid` is 0 where the kernel does not say."""

    pid: int
    uid: int


def sender_of(connection: socket.socket) -> Sender | None:
    """Return who is at the other end, None on the LAN."""
    if connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
    return Sender(pid, uid)


class Senders(msgspec.Struct, eq=False):
    """The places of one socket. `on_full` is told which limit was reached by whom, and returns the answer's bytes.

    The limits are named `process`, `user` and `socket`.
    """

    of_process: int
    of_user: int
    on_full: Callable[[str, Sender], bytes]
    turned_away: "TurnedAway" = msgspec.field(default_factory=lambda: TurnedAway())
    _processes: Counter[int] = msgspec.field(default_factory=Counter)
    _users: Counter[int] = msgspec.field(default_factory=Counter)

    def enter(self, connection: socket.socket, sender: Sender, *, full: bool) -> bool:
        """Take a place for a connection; where there is none, answer and close it, and return False.

        `full`: the socket has as many connections as it may have.
        """
        reached = self._reached(sender) or ("socket" if full else None)
        if reached is not None:
            self.turned_away.take(connection, self.on_full(reached, sender))
            return False
        self._users[sender.uid] += 1
        if sender.pid:
            self._processes[sender.pid] += 1
        return True

    def leave(self, sender: Sender) -> None:
        """Give a place back."""
        for held, key in ((self._users, sender.uid), (self._processes, sender.pid)):
            if held[key] > 1:
                held[key] -= 1
            else:
                del held[key]

    def _reached(self, sender: Sender) -> str | None:
        if sender.pid and self._processes[sender.pid] >= self.of_process:
            return "process"
        return "user" if self._users[sender.uid] >= self.of_user else None


class TurnedAway:
    """Connections that are answered and closed: none holds a descriptor for long, and they are few.

    The answer follows the beginning of the request: a client that hears an answer before it has asked may take the
    connection for broken.
    """

    def __init__(self) -> None:
        self._waiting: dict[socket.socket, tuple[bytes, asyncio.TimerHandle]] = {}

    def take(self, connection: socket.socket, answer: bytes) -> None:
        """Answer a connection when its request begins, and close it when the client has."""
        connection.setblocking(False)
        if len(self._waiting) >= MAX_TURNED_AWAY:
            with suppress(OSError):  # it has gone
                connection.send(answer)
            connection.close()
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(TURNED_AWAY_SECONDS, self._end, connection)
        self._waiting[connection] = (answer, timer)
        loop.add_reader(connection, partial(self._hear, connection))

    def close(self) -> None:
        """End them all."""
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
            with suppress(OSError):  # it has gone
                connection.send(answer)
                connection.shutdown(socket.SHUT_WR)

    def _end(self, connection: socket.socket) -> None:
        self._answer(connection)
        _, timer = self._waiting.pop(connection)
        timer.cancel()
        asyncio.get_running_loop().remove_reader(connection)
        connection.close()
