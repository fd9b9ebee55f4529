"""A daemon with a simulated terminal, for tests that block: generated clients and schemathesis."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, TypeVar

import httpx2

from tests.support.daemon import Daemon
from tests.support.simulated import simulated

T = TypeVar("T")


@contextmanager
def in_thread(opened: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Open the object for the block."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)

    def run(step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, loop).result()

    thread.start()
    try:
        value = run(opened.__aenter__())
        try:
            yield value
        finally:
            run(opened.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


SERIAL = "SN-0001"
#: Maximum duration of a response, in seconds. A longer wait fails the test.
STUCK_SECONDS = 30.0


@contextmanager
def opened() -> Iterator[Daemon]:
    """Run a daemon with a simulated terminal for the block."""
    with TemporaryDirectory(prefix="posd-") as home, in_thread(simulated(Path(home), {SERIAL: ""})) as (daemon, _):
        yield daemon


def calling(daemon: Daemon, *, admin: bool = False) -> httpx2.Client:
    """Return a client of one of the daemon's sockets."""
    socket = daemon.admin_socket if admin else daemon.till_socket
    return httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket)), base_url="http://posd", timeout=STUCK_SECONDS)
