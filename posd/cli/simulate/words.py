"""The lines that `posd simulate` writes to stdout: an entry of a ledger as JSON, or as a person reads it."""

import os
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from posd.base.text import shown
from posd.cli.app import times
from posd.cli.app.output import money

#: Lines of a print that are shown on the screen; `GET /simulator/prints` has them all.
MAX_PAPER_LINES = 60
#: Stands before each of them.
PAPER_MARGIN = " " * 24 + "| "
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def as_json(entry: Mapping[str, Any]) -> str:
    return _ENCODER.encode(entry).decode()


def as_words(entry: Mapping[str, Any]) -> str | None:
    # A text from the network stays in its line and does not steer the screen; a print alone has lines.
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
    named = f"{entry['serial']}  " if "serial" in entry else ""  # where there are several terminals
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


#: A ledger entry's kind -> its words for people, but not for each question for a print job; `attempt` and `dropped`
#: follow their event, which follows a `final`.
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
#: Lines that wait where stdout is read slowly or not at all; further ones are dropped, the ledger file has them all.
MAX_WAITING_LINES = 10_000
#: Seconds that the last lines have to be written at the end.
LAST_LINES_SECONDS = 0.3


class OutputThread:
    """Writes lines to stdout from a thread: a pipe that is not read must not stop the terminal."""

    def __init__(self, text: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._text = text
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING_LINES)
        self._writer = threading.Thread(target=self._write_all, name="stdout", daemon=True)
        self._writer.start()

    def write(self, entry: Mapping[str, Any]) -> None:
        """Write what the line function makes of an entry; None writes nothing."""
        text = self._text(entry)
        if text is not None:
            self.say(text)

    def say(self, text: str) -> None:
        """Write a line as it is."""
        if not self._waiting.full():
            self._waiting.put_nowait(f"{text}\n".encode())

    def close(self) -> None:
        """Wait a moment until the last lines are written."""
        if not self._waiting.full():
            self._waiting.put_nowait(None)
            self._writer.join(LAST_LINES_SECONDS)

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                while line:
                    line = line[os.write(1, line) :]  # not by sys.stdout: its lock would hold up the exit
            except OSError:
                return  # the reader has closed the pipe
