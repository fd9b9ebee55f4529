"""Signs of life for the service manager (sd_notify(3), WatchdogSec= in the unit).

One is given while the event loop turns and the thread that commits answers: if either hangs, systemd ends posd and
starts it again, and what is open goes on. A disk that takes a commit and never returns is such a hang.
"""

import os
from collections.abc import Awaitable, Callable

import structlog

from posd.base.clocks import tick
from posd.daemon.systemd import notify
from posd.storage.errors import StorageUnavailable

#: Signs in the time within which one has to come: one that is late by a slow disk must not be the last.
SIGNS = 3
#: How often the status is told where no signs of life are asked for, in seconds.
STATUS_SECONDS = 30.0

log = structlog.get_logger("posd.watchdog")


def pause() -> float | None:
    """Return the seconds between two signs, as the environment asks for them; None without a service manager."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not microseconds.isdecimal():
        return STATUS_SECONDS
    return int(microseconds) / 1e6 / SIGNS


async def run(alive: Callable[[], Awaitable[None]], status: Callable[[], str]) -> None:
    """Give signs of life until cancelled, each after `alive` has returned, and the status in words."""
    seconds = pause()
    while seconds is not None:
        try:
            await alive()
        except StorageUnavailable as error:
            log.error("posd.hung", error=str(error), detail="the service manager starts posd again")  # noqa: TRY400
            return
        notify(WATCHDOG="1", STATUS=status())
        await tick(seconds)
