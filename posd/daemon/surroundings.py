"""What the daemon has around it, beside its event loop, its files and its environment: handed in where it is built."""

import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from posd import tls
from posd.base.clocks import wall
from posd.clock import kernel
from posd.clock.rules import Kernel
from posd.config.schema import DiscoveryConfig
from posd.daemon import sockets
from posd.records import callback_urls
from posd.storage import folder
from posd.storage.folder import Told
from posd.terminals import interfaces
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interfaces, Snapshot


class Surroundings(msgspec.Struct, frozen=True):
    """By default the real things. A part is handed those that it needs, never all of them.

    Timers, connections, DNS, threads, processes and signals are the event loop's, and so is the clock of durations
    (`posd.base.clocks.monotonic`).
    """

    #: The wall clock: aware, in UTC.
    now: Callable[[], datetime] = wall
    #: Seconds since the boot, those included in which the machine slept; and when this process was started, by that.
    elapsed: Callable[[], float] = kernel.elapsed
    started: Callable[[], float] = kernel.started
    #: Whether a time service keeps the clock that says so many seconds since 1970.
    kernel_state: Callable[[float], Kernel] = kernel.state
    #: Return a random number from 0 to 1, for jitter; never for a secret.
    chance: Callable[[], float] = random.random
    #: Bind a listening socket: host, port, and the key of the configuration that says so. Raise SocketError.
    tcp_socket: Callable[[str, int, str], socket.socket] = sockets.tcp_socket
    #: Bind a Unix socket for a group, "" for the daemon's own. Raise SocketError.
    unix_socket: Callable[[Path, str], socket.socket] = sockets.unix_socket
    #: Raise the limit of file descriptors to this, where allowed; return the limit then in force.
    descriptors: Callable[[int], int] = sockets.descriptors
    #: The network interfaces as they are now. Raise OSError where the system does not tell.
    snapshot: Callable[[], Snapshot] = interfaces.snapshot
    #: Yield at once, and when they may have changed. Raise OSError at the first step where the system does not tell.
    reports: Callable[[], AsyncIterator[None]] = interfaces.reports
    #: Tells that files come or go in a folder.
    told: Told = folder.told
    #: The addresses of this machine that its certificate is for.
    local_addresses: Callable[[], Sequence[str]] = tls.local_addresses
    #: This machine's address on the way to a terminal's base URL. Raise Problem terminal_offline.
    facing: Callable[[str], Awaitable[str]] = callback_urls.facing
    #: Make what hears announcements of terminals; it is told the wall clock.
    discovery: Callable[[DiscoveryConfig, Fleet, Interfaces, Callable[[], datetime]], Discovery] = Discovery
