"""Signs of life for the service manager (sd_notify(3), WatchdogSec= in the unit).

Each requires that the event loop runs and the committing thread replies. If either hangs, systemd ends posd and starts
it again, and open payments continue. A disk that never completes a commit is such a hang.
"""

import os
from collections.abc import Awaitable, Callable

import structlog

from posd.base.clocks import tick
from posd.daemon.systemd import notify
from posd.storage.errors import StorageUnavailable

#: Signs within the required time, so that a slow disk may delay one.
SIGNS = 3
#: Seconds between two status notices without a watchdog.
STATUS_SECONDS = 30.0
#: Seconds to the next attempt if the service manager did not accept the last one.
RETRY_SECONDS = 1.0

log = structlog.get_logger("posd.watchdog")


def pause() -> float | None:
    """Return the seconds between two signs, from the environment; None without a service manager."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not microseconds.isdecimal():
        return STATUS_SECONDS
    return int(microseconds) / 1e6 / SIGNS


async def watch(alive: Callable[[], Awaitable[None]], status: Callable[[], str]) -> None:
    """Send signs of life until cancelled, each after `alive` has returned, and the status in words."""
    seconds = pause()
    while seconds is not None:
        try:
            await alive()
        except StorageUnavailable as error:
            log.error(  # noqa: TRY400 - the message is the whole story
                "posd.hung", error=str(error), detail="the service manager starts posd again"
            )
            return
        taken = notify(WATCHDOG="1", STATUS=status())
        await tick(seconds if taken else min(seconds, RETRY_SECONDS))
