"""Several terminals in one process: each with its own serial, address, state and ledger, all with one time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from posd.simulator.clock import VirtualClock
from posd.simulator.errors import SettingsError
from posd.simulator.settings import Settings
from posd.simulator.simulator import Simulator, make_clock


class Shop:
    """Terminals that run together, as an async context manager; all stop when the block ends.

    Entering raises SettingsError where one of them cannot run; none does then.
    """

    def __init__(self, settings: Sequence[Settings]) -> None:
        """One terminal for each of the settings.

        Raises SettingsError where a serial is there twice, or where they do not agree on what time is.
        """
        twice = [serial for serial, count in Counter(item.serial for item in settings).items() if count > 1]
        if twice:
            raise SettingsError(f"serial {twice[0]} is there twice: each terminal has its own")
        if len({(item.virtual, item.speed) for item in settings}) != 1:
            raise SettingsError(
                "a shop needs at least one terminal, and one time for all: the same speed, virtual or not"
            )
        #: The time of all of them.
        self.clock = make_clock(settings[0])
        #: By serial, in the order of the settings.
        self.terminals: Mapping[str, Simulator] = {item.serial: Simulator(item, self.clock) for item in settings}
        self._running = AsyncExitStack()

    @property
    def virtual_clock(self) -> VirtualClock | None:
        """The clock that can be advanced; None where time is real."""
        return self.clock if isinstance(self.clock, VirtualClock) else None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as started:
            for terminal in self.terminals.values():
                await started.enter_async_context(terminal)
            self._running = started.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._running.aclose()
