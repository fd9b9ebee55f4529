"""Waiting for a change without polling: woken by a change, a hang-up, a time-out, or the end of the daemon."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request

from posd.core.problems import Problem
from posd.store.changes import Hub

T = TypeVar("T")

DRAINING = "posd is stopping; ask again in a moment: nothing is lost, and the payment goes on"


class HungUp(Exception):
    """The client has gone; nobody is there to answer."""


async def until(
    request: Request, hub: Hub, subject: str, look: Callable[[], Awaitable[T | None]], timeout: float | None
) -> T | None:
    """Return what `look` gives as soon as it gives something, None when the time-out (seconds) has passed.

    `look` is called at once and after each change of the subject. Raise HungUp, or Problem draining.
    """
    loop = asyncio.get_running_loop()
    with hub.subscribe(subject) as woken:
        over = False

        def expire() -> None:
            nonlocal over
            over = True
            woken.set()

        hang_up = loop.create_task(_hang_up(request, woken))
        timer = loop.call_later(timeout, expire) if timeout is not None else None
        try:
            while True:
                woken.clear()
                found = await look()
                if found is not None or over:
                    return found
                if hub.draining:
                    raise Problem("draining", DRAINING)
                if hang_up.done():
                    raise HungUp
                await woken.wait()
        finally:
            hang_up.cancel()
            if timer is not None:
                timer.cancel()


async def _hang_up(request: Request, woken: asyncio.Event) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    woken.set()
