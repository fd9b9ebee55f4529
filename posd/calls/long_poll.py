"""Waiting for a change without polling: ended by a change, a disconnect, a time-out, or the stop of the daemon."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from posd.base.fair_queue import end_turn
from posd.base.problems import Problem
from posd.httpd.connection import BodyChannel
from posd.storage.changes import Hub, Waiter

T = TypeVar("T")


DRAINING = "posd is stopping; ask again in a moment: nothing is lost, and the payment goes on"


class ClientGone(Exception):
    """Client that disconnected: no response is needed."""


async def wait_until(
    pieces: BodyChannel, woken: Waiter, hub: Hub, look: Callable[[], Awaitable[T | None]], timeout: float | None
) -> T | None:
    """Return the first result of `look` that is not None; None when the time-out (seconds) is over.

    `look` is called at once and each time that `woken` is set, a waiter of the hub for the relevant changes. `pieces`:
    those of the request, which report a disconnect. Raise ClientGone, or Problem draining.
    """
    with woken:
        over = False

        def expire() -> None:
            nonlocal over
            over = True
            woken.set()

        pieces.on_gone = woken.set
        timer = asyncio.get_running_loop().call_later(timeout, expire) if timeout is not None else None
        try:
            while True:
                woken.clear()
                found = await look()
                if found is not None or over:
                    return found
                if hub.draining:
                    raise Problem("draining", DRAINING)
                if pieces.gone:
                    raise ClientGone
                end_turn()
                await woken.wait()
        finally:
            pieces.on_gone = None
            if timer is not None:
                timer.cancel()
