"""Which scenario a payment takes: armed live > named in its metadata > chosen by its amount > that of the settings."""

import asyncio
from collections.abc import Mapping

from posd.simulator.amounts import total
from posd.simulator.catalogue import by_amount
from posd.simulator.request import StartRequest
from posd.simulator.scenario import Certificate, Scenario
from posd.simulator.switches import Switches


class Choice:
    """Chooses, and lets a scenario that begins before the start begin."""

    def __init__(self, scenarios: Mapping[str, Scenario], default: str, switches: Switches) -> None:
        self.scenarios = scenarios
        #: The scenario that the next payment will take, whatever its request says; None where it is free.
        self.armed: str | None = None
        self._default = default
        self._switches = switches
        #: The one that was let begin.
        self._begun: Scenario | None = None
        self._beginning = asyncio.Lock()

    def arm(self, name: str | None) -> None:
        """Choose the scenario of the next payment; None leaves it free again. Raises KeyError where there is none."""
        if name is not None and name not in self.scenarios:
            raise KeyError(name)
        self.armed = name

    def choose(self, start: StartRequest) -> tuple[str, str]:
        """Return the name of the scenario of a payment that begins, and what has chosen it."""
        armed, self.armed = self.armed, None
        if armed is not None:
            return armed, "armed"
        if start.scenario is not None:
            return start.scenario, "metadata"
        name = None if start.amount is None else by_amount(total(start.amount), self.scenarios)
        return (self._default, "option") if name is None else (name, "amount")

    async def begin(self) -> None:
        """Let the scenario of the next payment begin where it begins before the start; end what one before began.

        Raises NotPossible where the terminal cannot do that.
        """
        async with self._beginning:
            before, wanted = self._begun, self.scenarios[self.armed or self._default]
            shown = before.certificate if before else None
            if wanted.certificate is not shown:
                await self._switches.show_certificate(wanted.certificate or Certificate.OWN)
            if wanted.away:
                await self._switches.unplug()
            elif before is not None and before.away:
                await self._switches.plug()
            self._begun = wanted
