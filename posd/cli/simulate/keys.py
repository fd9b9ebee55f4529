"""The keys of `posd simulate`: a person at the keyboard acts on the simulated terminals."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Self

from posd.cli.app.keyboard import Keyboard
from posd.simulator.clock import Tasks
from posd.simulator.control import POWER_CYCLE_SECONDS
from posd.simulator.journal import SettingsError
from posd.simulator.network import NotPossible
from posd.simulator.payment import ManualControl
from posd.simulator.scenario import CHOICE, Certificate
from posd.simulator.simulator import Simulator, TerminalGroup


@dataclass(frozen=True, slots=True)
class _Key:
    words: str
    do: Callable[[Simulator], Awaitable[None]]


def _hand(words: str, hand: ManualControl) -> _Key:
    async def do(terminal: Simulator) -> None:
        terminal.terminal.hand(hand)  # the ledger's line tells whether it was possible

    return _Key(words, do)


async def _network(terminal: Simulator) -> None:
    await (terminal.unplug() if terminal.plugged else terminal.plug())


async def _power(terminal: Simulator) -> None:
    await (terminal.power_off() if terminal.powered else terminal.power_on())


async def _cycle(terminal: Simulator) -> None:
    await terminal.power_cycle(POWER_CYCLE_SECONDS)


async def _certificate(terminal: Simulator) -> None:
    order = list(Certificate)
    shown = order.index(terminal.certificate or Certificate.OWN)
    await terminal.show_certificate(order[(shown + 1) % len(order)])


async def _paper(terminal: Simulator) -> None:
    terminal.put_paper_in()


KEYS: Mapping[str, _Key] = {
    "p": _hand("present card", ManualControl.PRESENT_CARD),
    "i": _hand("insert card", ManualControl.INSERT_CARD),
    "a": _hand("approve", ManualControl.APPROVE),
    "d": _hand("decline", ManualControl.DECLINE),
    "r": _hand("reject", ManualControl.REJECT),
    "c": _hand("cancel", ManualControl.CANCEL),
    "u": _Key("unplug, plug", _network),
    "o": _Key("power off, on", _power),
    "y": _Key("power cycle", _cycle),
    "m": _Key("move", Simulator.move),
    "e": _Key("next certificate", _certificate),
    "w": _Key("put paper in", _paper),
}
#: Asks for the scenario of the next payment.
SCENARIO_KEY = "s"


class Keys:
    """What each key does to the terminal that is selected, while the block runs."""

    def __init__(self, shop: TerminalGroup, say: Callable[[str], None]) -> None:
        """`say` writes a line for the person."""
        self._terminals = list(shop.terminals.values())
        self._selected = self._terminals[0]
        self._say = say
        self._keyboard = Keyboard(self._pressed)
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        self._say(self._help())
        self._keyboard.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._keyboard.__exit__(None, None, None)
        await self._tasks.stop()

    def _pressed(self, key: str) -> None:
        if key.isdecimal() and 0 < int(key) <= len(self._terminals):
            self._selected = self._terminals[int(key) - 1]
            self._say(f"The keys are for {self._selected.settings.serial}.")
        elif key == SCENARIO_KEY:
            self._say(f"Scenario of the next payment, or {CHOICE}NAME of the next print job (Enter alone: as usual):")
            self._keyboard.ask(self._arm)
        elif key in KEYS:
            self._tasks.begin(self._do(KEYS[key], self._selected))
        else:
            self._say(self._help())

    def _arm(self, name: str) -> None:
        try:
            self._selected.arm(name or None)
        except LookupError:
            self._say(f"There is no scenario {name}: posd simulate --list shows them.")
        else:
            what = "print job" if name.startswith(CHOICE) else "payment"
            self._say(f"The next {what}: {name or 'as usual'}.")

    async def _do(self, key: _Key, terminal: Simulator) -> None:
        try:
            await key.do(terminal)
        except (NotPossible, SettingsError) as error:
            self._say(str(error))

    def _help(self) -> str:
        keys = [f"{letter} {key.words}" for letter, key in KEYS.items()]
        lines = [f"Keys: {'   '.join(keys[:6])}", f"      {'   '.join(keys[6:])}"]
        lines.append(f"      {SCENARIO_KEY} scenario of the next payment   ? this help   Ctrl-C ends")
        if len(self._terminals) > 1:
            numbered = (f"{number} {item.settings.serial}" for number, item in enumerate(self._terminals[:9], start=1))
            lines.append(f"Terminals: {'   '.join(numbered)}")
        return "\n".join([*lines, ""])
