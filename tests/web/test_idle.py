"""The end of an idle connection, at the very moment for which its timer was set."""

import asyncio

from posd.base.clocks import wall
from posd.httpd.admission import ListenerPolicy, RejectedTraffic
from posd.httpd.connection import ListenerContext
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network

SECONDS = 15.0


def rounded_down(seconds: float) -> float:
    """Return a moment from which the difference after this many seconds is slightly less than that."""
    return next(since for since in (1000 + number / 7 for number in range(10_000)) if since + seconds - since < seconds)


async def nothing(*_: object) -> None:
    """Answer no request."""


def test_an_idle_connection_ends_when_its_timer_says_so() -> None:
    loop = VirtualLoop(Network(1))
    ended: list[float] = []
    policy = ListenerPolicy(name="test", keep_alive_seconds=SECONDS, max_connections=1)
    context = ListenerContext(nothing, policy, RejectedTraffic(), wall)

    def end() -> None:
        ended.append(loop.time())
        context.idle.pop(end)

    async def be_idle() -> None:
        since = rounded_down(SECONDS)
        await asyncio.sleep(since - loop.time())
        context.start_idle(end)
        await asyncio.sleep(2 * SECONDS)

    loop.run_until_complete(be_idle())  # raises Stuck if the loop runs without end
    loop.close()
    assert len(ended) == 1
