"""A daemon with a simulated terminal, for tests that block: generated clients and schemathesis."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from tests.rig.counter import in_thread
from tests.rig.daemon import Daemon
from tests.rig.simulated import simulated

SERIAL = "SN-0001"
#: Maximum duration of a response, in seconds. A longer wait fails the test.
STUCK_SECONDS = 30.0


@contextmanager
def opened() -> Iterator[Daemon]:
    """Run a daemon with a simulated terminal for the block."""
    with TemporaryDirectory(prefix="posd-") as home, in_thread(simulated(Path(home), {SERIAL: ""})) as (made, _):
        yield made[0]


def calling(daemon: Daemon, *, admin: bool = False) -> httpx2.Client:
    """Return a client of one of the daemon's sockets."""
    socket = daemon.admin_socket if admin else daemon.till_socket
    return httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket)), base_url="http://posd", timeout=STUCK_SECONDS)
