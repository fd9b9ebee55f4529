"""Screen of `posd simulate`: entries of a ledger as JSON or as sentences, and the keys for manual actions."""

import asyncio
import os
import queue
import signal
import termios
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, get_args

import click
import msgspec

from posd.base.text import shown
from posd.cli.app import times
from posd.cli.app.output import money
from posd.simulator.clock import Tasks
from posd.simulator.control import POWER_CYCLE_SECONDS, put_paper_in
from posd.simulator.scenario import CHOICE, Certificate
from posd.simulator.simulator import Simulator
from posd.simulator.terminal import ManualControl
from posd.simulator.wire import SettingsError

#: Maximum number of lines of a printed document on the screen. `GET …/prints` of the control API returns all lines.
MAX_PAPER_LINES = 60
#: Prefix of each line of a printed document.
PAPER_MARGIN = " " * 24 + "| "
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def as_json(entry: Mapping[str, Any]) -> str:
    return _ENCODER.encode(entry).decode()


def as_words(entry: Mapping[str, Any]) -> str | None:
    # Texts from the network are escaped, and stay on one line. Only a printed document has several lines.
    return _words({name: _shown(value) if name != "text" else value for name, value in entry.items()})


def _shown(value: object) -> object:
    return shown(value) if isinstance(value, str) else value


def _words(entry: Mapping[str, Any]) -> str | None:
    if "ready" in entry:
        lines = [f"Terminal {click.style(entry['serial'], bold=True)} is ready at {entry['base_url']}."]
        if entry["ca_file"]:
            lines.append(f"Its CA, for posd's ca_file: {entry['ca_file']}")
        if entry["control"]:
            lines.append(f"The control API: {entry['control']}")
        return "\n".join([*lines, f"Times are {times.here()}. Ctrl-C ends it.", ""])
    describe = _WORDS.get(entry["kind"])
    if describe is None:
        return None
    subject = entry.get("client_transaction_id") or entry.get("print_job_id") or ""
    named = f"{entry['serial']}  " if "serial" in entry else ""  # only if there are several terminals
    return f"{times.clock(entry['at'], milliseconds=True)}  {named}{subject[:8]:8}  {describe(entry)}"


def _answered(entry: Mapping[str, Any], lost: str = "not answered") -> str:
    status = entry["http_status"]
    return lost if status is None else f"answered {status}"


def _asked_words(what: str, entry: Mapping[str, Any], answer: str) -> str:
    way = {"local": "", "cloud": " over the cloud path"}[entry["access_mode"]]
    detail = f"scenario {entry['scenario']}" if entry["code"] is None else entry["code"]
    return f"{what}{way} {answer}, {detail}"


def _start_words(entry: Mapping[str, Any]) -> str:
    reference = entry["transaction_reference"]
    what = click.style(entry["operation"], bold=True) + (f" of {reference}" if reference else "")
    return _asked_words(what, entry, _answered(entry))


def _hand_words(entry: Mapping[str, Any]) -> str:
    return f"hand: {entry['hand']}" if entry["taken"] else click.style(f"hand: {entry['hand']}, not now", fg="yellow")


def _attempt_words(entry: Mapping[str, Any]) -> str:
    once_more = " once more" if entry["again"] else ""
    text = f"  {entry['status']}{once_more}, delivery {entry['attempt']}: {entry['result']}"
    retry = entry["retry_in_seconds"]
    return text if retry is None else click.style(f"{text}, again in {retry:.1f} s of the terminal's time", fg="yellow")


def _final_words(entry: Mapping[str, Any]) -> str:
    if not entry["charged"]:
        return click.style(f"final: {entry['operation']} {entry['status']}, no money moved", fg="red")
    reference, ticket = entry["transaction_reference"], entry["ticket_number"]
    text = f"final: {entry['operation']} approved, {money(entry['amount'])}, reference {reference}, ticket {ticket}"
    return click.style(text, fg="green")


def _print_words(entry: Mapping[str, Any]) -> str:
    what = f"{click.style('print', bold=True)} {entry['print_job_id'] or 'of no job'}"
    return _asked_words(what, entry, _answered(entry, lost="not answered, connection closed"))


def _printed_words(entry: Mapping[str, Any]) -> str:
    identity = entry["print_job_id"]
    if entry["text"] is None:
        return click.style(f"not printed: {identity}, {entry['error_code']}", fg="red")
    lines = entry["text"].splitlines()
    more = [f"... and {len(lines) - MAX_PAPER_LINES} more lines"] if len(lines) > MAX_PAPER_LINES else []
    paper = "".join(f"\n{PAPER_MARGIN}{shown(line)}".rstrip() for line in [*lines[:MAX_PAPER_LINES], *more])
    return click.style(f"printed: {identity}", fg="green") + paper


def _print_webhook_words(entry: Mapping[str, Any]) -> str:
    again = " once more" if entry["call"] > 1 else ""
    result = entry["result"]
    text = f"  told {entry['status']}{again}: {result}"
    lost = not (isinstance(result, int) and 200 <= result <= 299)
    return click.style(f"{text}, not tried again", fg="yellow") if lost else text


#: Kind of a ledger entry -> function that returns its sentence. Kinds that are missing here are not shown.
_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "unauthorized": lambda entry: click.style(
        f"{entry['method']} {entry['path']} refused: {entry['reason']}", fg="red"
    ),
    "start": _start_words,
    "abort": lambda entry: f"abort {_answered(entry)}",
    "search": lambda entry: f"search {_answered(entry)}, found {entry['found']}",
    "hand": _hand_words,
    "event": lambda entry: click.style(entry["status"], bold=True),
    "attempt": _attempt_words,
    "dropped": lambda entry: click.style(f"  {entry['status']} given up: {entry['reason']}", fg="red"),
    "final": _final_words,
    "forgotten": lambda entry: click.style(f"forgotten in {entry['status']}", fg="red"),
    "print": _print_words,
    "printed": _printed_words,
    "print_webhook": _print_webhook_words,
    "unplugged": lambda _: click.style("off the network", fg="yellow"),
    "plugged": lambda _: "on the network again",
    "power_off": lambda _: click.style("without power", fg="yellow"),
    "power_on": lambda _: "power is back",
    "moved": lambda entry: f"moved to {entry['base_url']}",
    "certificate": lambda entry: f"shows another certificate: {entry['which']}",
    "mdns": lambda entry: f"mDNS: {entry['result']}, {entry['detail']}",
}
#: Maximum number of lines that wait for a slow reader of stdout. Further lines are dropped. The ledger file has all.
MAX_WAITING_LINES = 10_000
#: Longest wait at the end for the last lines, in seconds.
LAST_LINES_SECONDS = 0.3


class OutputThread:
    """Writer of lines to stdout in a thread, so that the terminal continues even if no program reads the pipe."""

    def __init__(self, text: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._text = text
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING_LINES)
        self._writer = threading.Thread(target=self._write_all, name="stdout", daemon=True)
        self._writer.start()

    def write(self, entry: Mapping[str, Any]) -> None:
        """Write the line of an entry, unless `text` returned None for it."""
        text = self._text(entry)
        if text is not None:
            self.say(text)

    def say(self, text: str) -> None:
        """Write a line unchanged."""
        if not self._waiting.full():
            self._waiting.put_nowait(f"{text}\n".encode())

    def close(self) -> None:
        """Wait briefly until the last lines are written."""
        if not self._waiting.full():
            self._waiting.put_nowait(None)
            self._writer.join(LAST_LINES_SECONDS)

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                while line:
                    line = line[os.write(1, line) :]  # not by sys.stdout, whose lock would delay the exit
            except OSError:
                return  # the reader has closed the pipe


# Keys of `posd simulate`, for manual actions on the simulated terminals.

#: Maximum number of bytes of one read: of a key, or of a typed line.
_CHUNK = 1024
_STDIN = 0
#: Indices in the result of `termios.tcgetattr`.
_LOCAL_MODES = 3
_CONTROL = 6
#: Text about a key in the help, and its action.
_Key = tuple[str, Callable[[Simulator], Awaitable[None]]]


def _hand(words: str, hand: ManualControl) -> _Key:
    async def do(terminal: Simulator) -> None:
        terminal.terminal.hand(hand)  # an entry of the ledger shows whether it was possible

    return words, do


async def _network(terminal: Simulator) -> None:
    switches = terminal.switchboard
    await switches.set_plugged(not switches.plugged)


async def _power(terminal: Simulator) -> None:
    await (terminal.power_off() if terminal.switchboard.powered else terminal.switchboard.set_powered(True))


async def _certificate(terminal: Simulator) -> None:
    order = get_args(Certificate)
    shown = order.index(terminal.certificate or "own")
    await terminal.switchboard.show_certificate(order[(shown + 1) % len(order)])


KEYS: Mapping[str, _Key] = {
    "p": _hand("present card", "present-card"),
    "i": _hand("insert card", "insert-card"),
    "a": _hand("approve", "approve"),
    "d": _hand("decline", "decline"),
    "r": _hand("reject", "reject"),
    "c": _hand("cancel", "cancel"),
    "u": ("unplug, plug", _network),
    "o": ("power off, on", _power),
    "y": ("power cycle", lambda terminal: terminal.power_cycle(POWER_CYCLE_SECONDS)),
    "m": ("move", lambda terminal: terminal.switchboard.move()),
    "e": ("next certificate", _certificate),
    "w": ("put paper in", put_paper_in),
}
#: Key that asks for the scenario of the next payment.
SCENARIO_KEY = "s"


class Keys:
    """Keys for the selected terminal, read one by one from stdin during the block.

    The modes of stdin are restored at the end of the block, and while the process is stopped or in the background.
    """

    def __init__(self, terminals: Sequence[Simulator], say: Callable[[str], None]) -> None:
        """`say` writes a line on the screen."""
        self._terminals = terminals
        self._selected = terminals[0]
        self._say = say
        #: Whether the next input is a whole line with the name of a scenario.
        self._typing = False
        self._before: list[Any] = termios.tcgetattr(_STDIN)
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        self._say(self._help())
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._loop.add_signal_handler(signal.SIGCONT, self._take)
        self._take()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop.remove_signal_handler(signal.SIGTSTP)
        self._loop.remove_signal_handler(signal.SIGCONT)
        self._give_back()
        await self._tasks.stop()

    def _take(self) -> None:
        if _in_foreground():
            self._read_keys()
            self._loop.add_reader(_STDIN, self._read)
        else:
            self._loop.remove_reader(_STDIN)  # a read in the background would stop the process

    def _give_back(self) -> None:
        self._loop.remove_reader(_STDIN)
        self._set(self._before)

    def _stop(self) -> None:
        """Handle Ctrl-Z: restore the modes of stdin for the shell, and stop the process."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _read(self) -> None:
        try:
            text = os.read(_STDIN, _CHUNK).decode(errors="replace")
        except OSError:
            text = ""  # the terminal was closed
        if self._typing:
            self._read_keys()
            self._arm(text.strip())
        elif text:
            for key in text:
                self._press(key)
        else:
            self._loop.remove_reader(_STDIN)

    def _read_keys(self) -> None:
        """Set the modes of stdin in one step, so that each key is read at once."""
        self._typing = False
        attributes = _unflushed(termios.tcgetattr(_STDIN))
        attributes[_LOCAL_MODES] &= ~(termios.ECHO | termios.ICANON)  # Ctrl-C and Ctrl-Z still work
        attributes[_CONTROL][termios.VMIN], attributes[_CONTROL][termios.VTIME] = 1, 0
        self._set(attributes)

    def _set(self, attributes: list[Any]) -> None:
        if _in_foreground():
            termios.tcsetattr(_STDIN, termios.TCSANOW, attributes)

    def _press(self, key: str) -> None:
        if key.isdecimal() and 0 < int(key) <= len(self._terminals):
            self._selected = self._terminals[int(key) - 1]
            self._say(f"The keys are for {self._selected.settings.serial}.")
        elif key == SCENARIO_KEY:
            self._say(f"Scenario of the next payment, or {CHOICE}NAME of the next print job (Enter alone: as usual):")
            self._typing = True
            self._set(_unflushed(self._before))  # the line has echo and editing
        elif key in KEYS:
            self._tasks.begin(self._do(key, self._selected))
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

    async def _do(self, key: str, terminal: Simulator) -> None:
        _, do = KEYS[key]
        try:
            await do(terminal)
        except SettingsError as error:
            self._say(str(error))

    def _help(self) -> str:
        keys = [f"{letter} {words}" for letter, (words, _) in KEYS.items()]
        lines = [f"Keys: {'   '.join(keys[:6])}", f"      {'   '.join(keys[6:])}"]
        lines.append(f"      {SCENARIO_KEY} scenario of the next payment   ? this help   Ctrl-C ends")
        if len(self._terminals) > 1:
            numbered = (f"{number} {item.settings.serial}" for number, item in enumerate(self._terminals[:9], start=1))
            lines.append(f"Terminals: {'   '.join(numbered)}")
        return "\n".join([*lines, ""])


def _unflushed(attributes: list[Any]) -> list[Any]:
    """Return modes in which Ctrl-C and Ctrl-Z do not drop input that was typed before.

    If input that was reported as readable were dropped, the read would wait for the next key, and block the event loop.
    """
    kept = list(attributes)
    kept[_LOCAL_MODES] |= termios.NOFLSH
    return kept


def _in_foreground() -> bool:
    """Return whether this process is in the foreground.

    The system stops a background process that uses the terminal.
    """
    try:
        return os.tcgetpgrp(_STDIN) == os.getpgrp()
    except OSError:
        return False  # the terminal was closed
