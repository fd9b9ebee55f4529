"""Environment of the daemon besides its event loop, its files and its variables, injected where it is built."""

import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from posd import tls
from posd.base import clocks
from posd.clock.clock import kernel_state
from posd.clock.rules import Kernel
from posd.config.schema import DiscoveryConfig
from posd.daemon import sockets
from posd.records import callback_urls
from posd.storage import open_files
from posd.storage.open_files import FolderWatch
from posd.terminals import interfaces
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interface, Interfaces


class Surroundings(msgspec.Struct, frozen=True):
    """The real environment by default. Each part gets only what it needs.

    The event loop provides timers, connections, DNS, threads, processes, signals and the clock of durations
    (`posd.base.clocks.monotonic`).
    """

    #: Wall clock: aware, in UTC.
    now: Callable[[], datetime] = clocks.wall
    #: Seconds since the boot, sleep included; and the start of this process on that clock.
    elapsed: Callable[[], float] = clocks.elapsed
    started: Callable[[], float] = clocks.started
    #: Returns whether a time service keeps a clock with so many seconds since 1970.
    kernel_state: Callable[[float], Kernel] = kernel_state
    #: Returns a random number from 0 to 1, for jitter; never for a secret.
    chance: Callable[[], float] = random.random
    #: Binds a listening socket: host, port, and its key in the configuration. Raise SocketError.
    tcp_socket: Callable[[str, int, str], socket.socket] = sockets.tcp_socket
    #: Binds a Unix socket for a group, "" for the daemon's own. Raise SocketError.
    unix_socket: Callable[[Path, str], socket.socket] = sockets.unix_socket
    #: Raise the limit of file descriptors to this, if allowed; return the limit in force.
    descriptors: Callable[[int], int] = sockets.descriptors
    #: Returns the present network interfaces. Raise OSError if the system does not report them.
    snapshot: Callable[[], frozenset[Interface]] = interfaces.snapshot
    #: Yields at once, and after possible changes. Raise OSError at the first step if the system does not report them.
    reports: Callable[[], AsyncIterator[None]] = interfaces.reports
    #: Reports files that appear or vanish in a folder.
    watch_folder: FolderWatch = open_files.watch_folder
    #: Addresses of this machine for its certificate.
    local_addresses: Callable[[], Sequence[str]] = tls.local_addresses
    #: Returns this machine's address on the route to a terminal's base URL. Raise Problem terminal_offline.
    facing: Callable[[str], Awaitable[str]] = callback_urls.facing
    #: Makes the receiver of announcements; its last argument is the wall clock.
    discovery: Callable[[DiscoveryConfig, Fleet, Interfaces, Callable[[], datetime]], Discovery] = Discovery
