"""What a scenario can do to the terminal around the payment: its power, its network, its address, its certificate.

`Switches` is what a course pulls while it plays its steps; the running terminal provides it. `Outbox` is where a
course puts its events.
"""

from typing import Protocol

from posd.simulator.delivery import Item
from posd.simulator.scenario import Certificate


class NotPossible(RuntimeError):
    """The terminal cannot do what was asked of it; the message says why and what to do instead."""


class Switches(Protocol):
    """Power, network, address and certificate of one terminal. What is so already is left as it is."""

    async def unplug(self) -> None:
        """Take it off the network: calls are refused, connections end, events wait, no goodbye is said."""

    async def plug(self) -> None:
        """Put it back on the network, at the same address; it announces itself, and its events set out in order."""

    async def power_cycle(self, seconds: float) -> None:
        """Switch it off for so many terminal seconds and on again; returns when it is on.

        0: it stays off until somebody switches it on. The queue, the record of finals and the print jobs are what
        they are over a restart. The payment that runs is left alone: what it still does is what it remembers.
        """

    async def move(self) -> None:
        """Give it another port; it announces it."""

    async def show_certificate(self, which: Certificate) -> None:
        """Show another certificate from the next connection on; those that are open end.

        Raises NotPossible where it speaks plain HTTP.
        """


class Outbox(Protocol):
    """Takes events on their way to the consumer; what it took is on file."""

    def submit(self, item: Item) -> None:
        """Queue an event; it is on file when this returns. A terminal that is off keeps it until it is on again."""
