"""Ports for listeners that are closed and opened again. The kernel never gives these ports to a program that binds port
0.

A process that is killed and started again listens on the same port. If the kernel had chosen this port, another test
could get the port between kill and start. Each process of the tests therefore claims a block of ports. The process
binds the first port of the block, so that no other run can claim the block.
"""

import atexit
import functools
import itertools
import random
import socket
from collections.abc import Iterator

#: First and last port. The kernel's own range begins above the last port (net.ipv4.ip_local_port_range: 32768). Usual
#: services have ports below the first port.
FIRST = 12_000
#: Number of ports in a block, more than the tests of one file need. After the last port, the first port is used again.
BLOCK = 500
BLOCKS = 40


def reserve(host: str = "127.0.0.1") -> int:
    """Return a TCP port without a listener. No other test gets this port for a long time."""
    _, ports = _claimed()
    while True:
        port = next(ports)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port


def descriptors() -> set[int]:
    """Return the descriptor with which this process holds its block."""
    return {_claimed()[0].fileno()} if _claimed.cache_info().currsize else set()


@functools.cache
def _claimed() -> tuple[socket.socket, Iterator[int]]:
    """Claim a block for the life of this process. Return the bound socket, and an endless iterator over the other
    ports.
    """
    for block in random.sample(range(BLOCKS), BLOCKS):
        first = FIRST + block * BLOCK
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
        else:
            atexit.register(claim.close)  # an open socket would cause a warning at the end of the interpreter
            return claim, itertools.cycle(range(first + 1, first + BLOCK))
    raise AssertionError(f"{BLOCKS} processes on this machine have ports for tests already")
