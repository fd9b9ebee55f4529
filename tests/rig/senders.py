"""Connections of other processes and other users on this machine. The kernel records the connecting process at the
connect (SO_PEERCRED). Another process therefore connects, and passes the sockets to the test. In this way one test uses
the connections of a hundred tills.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from posd.base.limits import CONNECTIONS_OF_PROCESS
from tests.rig.streams import Connection

#: Maximum of descriptors in one message (SCM_MAX_FD is 253).
_PIECE = 200
#: Program that connects this many times, passes the sockets, and runs until its input ends.
_PROGRAM = """
import os, socket, sys
path, count, channel, uid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
if uid >= 0:
    os.setgroups([])
    os.setuid(uid)
channel = socket.socket(fileno=channel)
for first in range(0, count, 200):
    found = []
    for _ in range(min(200, count - first)):
        found.append(socket.socket(socket.AF_UNIX))
        found[-1].connect(path)
    socket.send_fds(channel, [b"x"], [item.fileno() for item in found])
    for item in found:
        item.close()
channel.close()
sys.stdin.read()
"""


@contextmanager
def process(path: Path, count: int, uid: int = -1) -> Iterator[list[socket.socket]]:
    """Yield this many connections of another process. The process ends with the block. `uid`: user of the process,
    which needs root.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    arguments = (sys.executable, "-S", "-c", _PROGRAM, str(path), str(count), str(theirs.fileno()), str(uid))
    found: list[socket.socket] = []
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, pass_fds=(theirs.fileno(),)) as running:
        theirs.close()
        try:
            while len(found) < count:
                found += _sockets(ours)
            yield found
        finally:
            ours.close()
            for item in found:
                item.close()
            running.stdin.close()


def _sockets(channel: socket.socket) -> list[socket.socket]:
    data, descriptors, _, _ = socket.recv_fds(channel, 1, _PIECE)
    if not data:
        raise AssertionError("the process could not connect")
    return [socket.socket(fileno=number) for number in descriptors]


@contextmanager
def crowd(path: Path, count: int, each: int = CONNECTIONS_OF_PROCESS.value) -> Iterator[list[socket.socket]]:
    """Yield this many connections, made by several processes. A process has at most `each` connections."""
    with ExitStack() as stack:
        yield [
            item
            for first in range(0, count, each)
            for item in stack.enter_context(process(path, min(each, count - first)))
        ]


async def ask_on(connection: socket.socket, path: str, headers: str = "") -> Connection:
    """Send a GET on a connection without waiting for the response. The caller closes the connection."""
    reader, writer = await asyncio.open_unix_connection(sock=connection.dup())
    writer.write(f"GET /v1{path} HTTP/1.1\r\nhost: posd\r\n{headers}\r\n".encode())
    return Connection(reader, writer)
