"""Ports that are given up and taken again: none of those that the kernel hands out to whoever binds port 0.

What is killed and started again listens where it did before. Had it got its port from the kernel, any other test of
this machine could get the same one between the two, and the second start would fail once in a while.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from random import randrange

#: Below the kernel's own range (net.ipv4.ip_local_port_range begins at 32768), above what services use.
FIRST = 12_000
COUNT = 20_000
#: Counts those that were given out: in one file for all processes of a run of the tests, else one for this process.
COUNTER = Path(os.environ.get("TESTS_RUN", tempfile.gettempdir())) / "posd-test-ports"


def reserve(host: str = "127.0.0.1") -> int:
    """Return a TCP port that nobody listens on and that no other test is given for a long time."""
    while True:
        port = FIRST + _next() % COUNT
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port


def _next() -> int:
    descriptor = os.open(COUNTER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        number = int(file.read() or randrange(COUNT))  # runs beside this one begin elsewhere
        file.seek(0)
        file.write(str(number + 1))
        file.truncate()
        file.flush()
        return number
