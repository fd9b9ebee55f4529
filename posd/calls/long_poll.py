"""Waiting for a change without polling: woken by a change, a hang-up, a time-out, or the end of the daemon."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from posd.base.problems import Problem
from posd.httpd.connection import Pieces
from posd.storage.changes import Hub, Waiter

T = TypeVar("T")


DRAINING = "posd is stopping; ask again in a moment: nothing is lost, and the payment goes on"


class HungUp(Exception):
    """The client has gone: there is none to answer."""


async def wait_until(
    pieces: Pieces, woken: Waiter, hub: Hub, look: Callable[[], Awaitable[T | None]], timeout: float | None
) -> T | None:
    """Return what `look` gives as soon as it gives something, None when the time-out (seconds) has passed.

    `look` is called at once and each time that `woken` was, a waiter of the hub for what can bring what is looked for;
    `pieces` are the request's, and tell of a hang-up. Raise HungUp, or Problem draining.
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
                    raise HungUp
                await woken.wait()
        finally:
            pieces.on_gone = None
            if timer is not None:
                timer.cancel()
