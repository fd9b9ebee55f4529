"""The end of an idle connection, at the exact moment of its timer."""

import asyncio

from posd.base.clocks import wall
from posd.httpd.admission import ListenerPolicy, RejectedTraffic
from posd.httpd.connection import ListenerContext
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network

SECONDS = 15.0


def rounded_down(seconds: float) -> float:
    """Return a start for a timer of this many seconds. By rounding, end minus start is slightly less than these
    seconds.
    """
    return next(since for since in (1000 + number / 7 for number in range(10_000)) if since + seconds - since < seconds)


async def nothing(*_: object) -> None:
    """Send no response."""


def test_an_idle_connection_ends_at_the_moment_of_its_timer() -> None:
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

    loop.run_until_complete(be_idle())  # the loop raises Stuck if it runs without end
    loop.close()
    assert len(ended) == 1
