"""Environment of the daemon: its clocks, its sockets, and the network. The daemon receives it when it is built."""

import asyncio
import random
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from posd.base import clocks
from posd.clock.clock import kernel_state
from posd.clock.rules import Kernel
from posd.config.schema import DiscoveryConfig
from posd.daemon import sockets
from posd.records import callback_urls
from posd.storage import database_files
from posd.storage.database_files import FolderWatch
from posd.terminals import interfaces
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interface, Interfaces
from posd.tls.certificate import local_addresses

#: Maximum number of concurrent look-ups of host names.
MAX_LOOKUPS = 8


class DaemonLoop(asyncio.SelectorEventLoop):
    """Event loop of the daemon. The event loop looks up host names on separate threads.

    If a name server does not answer, such a thread is blocked for half a minute or longer. Other work on threads, such
    as parsing large events, must not wait for such a thread. The stop of posd must not wait for it either.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        """Return the addresses of a host name. Raise OSError."""
        await self._lookups.acquire()
        found = self.create_future()

        def finish(addresses: Any, error: Exception | None) -> None:
            self._lookups.release()
            if found.cancelled():
                return
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)

        threading.Thread(target=self._look_up, args=(host, port, hints, finish), daemon=True).start()
        return await found

    def _look_up(self, host: Any, port: Any, hints: dict[str, int], finish: Callable[..., None]) -> None:
        addresses, error = None, None
        try:
            addresses = socket.getaddrinfo(host, port, **hints)
        except (OSError, UnicodeError) as failure:
            error = failure
        with suppress(RuntimeError):  # the loop is closed, because posd has stopped
            self.call_soon_threadsafe(partial(finish, addresses, error))


class Surroundings(msgspec.Struct, frozen=True):
    """Functions of the environment. The defaults are the real ones. Each part of the daemon receives only the functions
    that it needs.

    The event loop provides timers, connections, DNS, threads, processes, signals and the clock of durations
    (`posd.base.clocks.monotonic`).
    """

    #: Returns the time of the wall clock: aware, in UTC.
    now: Callable[[], datetime] = clocks.wall
    #: Returns the seconds since the boot, including sleep. `started` returns the start of this process on that clock.
    elapsed: Callable[[], float] = clocks.elapsed
    started: Callable[[], float] = clocks.started
    #: Returns whether a time service controls a clock that shows this time (seconds since 1970).
    kernel_state: Callable[[float], Kernel] = kernel_state
    #: Returns a random number from 0 to 1, for jitter and never for a secret.
    chance: Callable[[], float] = random.random
    #: Binds a listening socket: host, port, and its key in the configuration. Raise SocketError.
    tcp_socket: Callable[[str, int, str], socket.socket] = sockets.tcp_socket
    #: Binds a Unix socket for a group. "" is the daemon's own group. Raise SocketError.
    unix_socket: Callable[[Path, str], socket.socket] = sockets.unix_socket
    #: Raises the limit of file descriptors to a number, if allowed. Returns the present limit.
    descriptors: Callable[[int], int] = sockets.descriptors
    #: Returns the present network interfaces. Raise OSError if the system does not report them.
    snapshot: Callable[[], frozenset[Interface]] = interfaces.snapshot
    #: Yields at once, and after each possible change of the interfaces. Raise OSError at the first step if the system
    #: does not report changes.
    reports: Callable[[], AsyncIterator[None]] = interfaces.reports
    #: Reports files that appear or vanish in a folder.
    watch_folder: FolderWatch = database_files.watch_folder
    #: Returns addresses of this machine for its certificate.
    local_addresses: Callable[[], Sequence[str]] = local_addresses
    #: Returns this machine's address on the route to a terminal's base URL. Raise Problem terminal_offline.
    facing: Callable[[str], Awaitable[str]] = callback_urls.facing
    #: Creates the receiver of announcements. The last argument is the wall clock.
    discovery: Callable[[DiscoveryConfig, Fleet, Interfaces, Callable[[], datetime]], Discovery] = Discovery
