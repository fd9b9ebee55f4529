"""The keys of `posd simulate`: a person at the keyboard acts on the simulated terminals."""

import asyncio
import os
import signal
import termios
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from posd.simulator.clock import Tasks
from posd.simulator.control import POWER_CYCLE_SECONDS
from posd.simulator.network import NotPossible
from posd.simulator.payment import ManualControl
from posd.simulator.scenario import CHOICE, Certificate
from posd.simulator.simulator import Simulator, TerminalGroup
from posd.simulator.wire import SettingsError

#: The most bytes that are read at once: a key, or a line that was typed.
_CHUNK = 1024
_STDIN = 0
#: Where `termios.tcgetattr` has them.
_LOCAL_MODES = 3
_CONTROL = 6


@dataclass
class Keyboard:
    """Gives keys one by one, from stdin, while the block runs; a line of text where one is asked for.

    `pressed` is called with each key. When the block ends the terminal is as it was. While the process is stopped, or
    in the background, it is too.
    """

    pressed: Callable[[str], None]
    _typed: Callable[[str], None] | None = field(default=None, init=False)
    _before: list[Any] = field(default_factory=lambda: termios.tcgetattr(_STDIN), init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._loop.add_signal_handler(signal.SIGCONT, self._take)
        self._take()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.remove_signal_handler(signal.SIGTSTP)
        self._loop.remove_signal_handler(signal.SIGCONT)
        self._give_back()

    def ask(self, typed: Callable[[str], None]) -> None:
        """Read lines that a person types, shown and corrected as anywhere; call `typed` with each."""
        self._typed = typed
        self._set(_unflushed(self._before))

    def _take(self) -> None:
        if _in_foreground():
            self._typed = None
            self._single_keys()
            self._loop.add_reader(_STDIN, self._read)
        else:
            self._loop.remove_reader(_STDIN)  # reading there would stop the process

    def _give_back(self) -> None:
        self._loop.remove_reader(_STDIN)
        self._set(self._before)

    def _stop(self) -> None:
        """Ctrl-Z: stop, but leave the terminal to the shell as it was."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _read(self) -> None:
        try:
            text = os.read(_STDIN, _CHUNK).decode(errors="replace")
        except OSError:
            text = ""  # it was hung up
        typed, self._typed = self._typed, None
        if typed is not None:
            self._single_keys()
            typed(text.strip())
        elif text:
            for key in text:
                self.pressed(key)
        else:
            self._loop.remove_reader(_STDIN)

    def _single_keys(self) -> None:
        """Read each key at once. In one step: between two, Ctrl-C would drop what was typed before it."""
        attributes = _unflushed(termios.tcgetattr(_STDIN))
        attributes[_LOCAL_MODES] &= ~(termios.ECHO | termios.ICANON)  # Ctrl-C and Ctrl-Z stay what they are
        attributes[_CONTROL][termios.VMIN], attributes[_CONTROL][termios.VTIME] = 1, 0
        self._set(attributes)

    def _set(self, attributes: list[Any]) -> None:
        if _in_foreground():
            termios.tcsetattr(_STDIN, termios.TCSANOW, attributes)


def _unflushed(attributes: list[Any]) -> list[Any]:
    """Ctrl-C and Ctrl-Z do not throw away what was typed before them.

    A read of what was announced, and is gone when it is read, would wait for the next key, and the loop with it.
    """
    kept = list(attributes)
    kept[_LOCAL_MODES] |= termios.NOFLSH
    return kept


def _in_foreground() -> bool:
    """Whether the terminal listens to this process; it stops one in the background that touches it."""
    try:
        return os.tcgetpgrp(_STDIN) == os.getpgrp()
    except OSError:
        return False  # it was hung up


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
