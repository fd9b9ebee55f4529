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

#: Program that connects this many times, passes each socket, and runs until its input ends.
_PROGRAM = """
import os, socket, sys
path, (count, channel, uid) = sys.argv[1], map(int, sys.argv[2:])
if uid >= 0:
    os.setgroups([])
    os.setuid(uid)
with socket.socket(fileno=channel) as passing:
    for _ in range(count):
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(path)
            socket.send_fds(passing, [b"x"], [made.fileno()])
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
            for _ in range(count):
                _, (number,), _, _ = socket.recv_fds(ours, 1, 1)  # fails if the process could not connect
                found.append(socket.socket(fileno=number))
            yield found
        finally:
            ours.close()
            for item in found:
                item.close()
            running.stdin.close()


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
    opened = Connection(*await asyncio.open_unix_connection(sock=connection.dup()))
    opened.send("GET", f"/v1{path}", headers)
    return opened
