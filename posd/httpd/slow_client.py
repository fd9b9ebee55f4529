"""Whether a client takes what is written to it, and how long posd waits for that.

asyncio waits for ever for a client that does not read, with all that it was to be sent. A till that hangs, or forgot a
stream that it had opened, would hold memory and a connection until it ends.
"""

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable

#: Who takes nothing for so long is cut off, in seconds: longer than a till waits for its disk or a collection of its
#: garbage, short enough that forgotten streams do not gather. Who takes something has as long again. The kernel counts
#: in pieces of up to 32 KiB, so less than that may be nothing.
TAKE_SECONDS = 30.0
#: What was left for a client that was cut off waits so long for it to read on, in seconds; then the connection is
#: aborted. So does the rest of any answer whose connection ends.
LINGER_SECONDS = 60.0

#: What the ioctl TIOCOUTQ gives: bytes that the other side has not taken (on a Unix socket with the kernel's overhead).
_OUTQ = struct.Struct("i")


class Untaken(OSError):
    """A client does not take what is written to it."""


async def drain(writer: asyncio.StreamWriter) -> None:
    """Wait until there is room for more to write. Raise Untaken, or OSError where the connection is lost."""
    transport = writer.transport
    if not transport.get_write_buffer_size():
        await writer.drain()
        return
    lying = untaken(transport)
    while True:
        try:
            async with asyncio.timeout(TAKE_SECONDS) as bound:
                await writer.drain()
                return
        except TimeoutError:
            if not bound.expired():
                raise  # the kernel's own: the connection is lost
        before, lying = lying, untaken(transport)
        if lying >= before:
            raise Untaken(f"{lying} bytes are not taken")


class Linger:
    """Lets what was written wait for a client that takes some of it at least; else the connection is aborted."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._lying = untaken(transport)
        self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._look)

    def cancel(self) -> None:
        """The connection is over."""
        self._timer.cancel()

    def _look(self) -> None:
        before, self._lying = self._lying, untaken(self._transport)
        if self._lying >= before:
            self._transport.abort()
        else:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._look)


def untaken(transport: asyncio.WriteTransport) -> int:
    """Return how many bytes lie in the socket and before it; 0 where the connection is over."""
    sock = transport.get_extra_info("socket")
    try:
        (lying,) = _OUTQ.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_OUTQ.size)))
    except (OSError, ValueError):
        return 0
    return transport.get_write_buffer_size() + int(lying)


class Taking:
    """For how long a client has taken nothing of what lies in its socket, although that is not full.

    `untaken` tells how many bytes lie there, `clock` the time in seconds.
    """

    __slots__ = ("_clock", "_lying", "_since", "_untaken")

    def __init__(self, untaken: Callable[[], int], clock: Callable[[], float]) -> None:
        self._untaken = untaken
        self._clock = clock
        self._lying = 0
        self._since = 0.0

    def wrote(self) -> None:
        """Note what lies there after something was written: it is more, and hides what was taken before (`look`)."""
        lying = self._untaken()
        if not self._lying:
            self._since = self._clock()
        self._lying = lying

    def look(self) -> float:
        """Return for how many seconds nothing was taken of what lay there, 0 where nothing lies. For before a write."""
        lying = self._untaken()
        if lying < self._lying:
            self._since = self._clock()
        self._lying = lying
        return self._clock() - self._since if lying else 0.0
