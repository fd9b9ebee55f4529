"""`posd logs`: the daemon's log as sentences, from the journal, a file or a pipe."""

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import IO, Any

import click
import msgspec

from posd.base.files import login_name
from posd.base.text import escaped, shown
from posd.cli.app import parameters, times
from posd.cli.app.connection import json_option
from posd.cli.app.errors import fail
from posd.cli.app.output import Output
from posd.cli.app.tables import wrap
from posd.cli.explain.catalogue import events, language, named, say, translate

#: Level -> journalctl's name, least important first. --priority selects a level and more important ones.
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "err", "critical": "crit"}
#: Maximum size of a line in bytes. The journal cuts lines at 48 KiB.
MAX_LINE_BYTES = 256 * 1024
#: Maximum number of characters of a line that people see. --json has the whole line.
MAX_SHOWN = 4000
#: Fields of a line that are not written as name=value after its sentence.
APART = frozenset({"timestamp", "level", "event", "logger", "exception"})


RED: Mapping[str, Any] = {"fg": "red", "bold": True}
STYLES: Mapping[str, Mapping[str, Any]] = {
    "debug": {"dim": True},
    "warning": {"fg": "yellow"},
    "error": RED,
    "critical": RED,
}

_PREFIX = re.compile(rb"^<[0-7]>")  # level for the journal, which removes it; in a file it stays
_OPTIONAL = re.compile(r"\[([^][]*)\]")
_NAME = re.compile(r"{(\w+)}")

#: Bytes of a line, and its fields, or None if the line is not posd's.
Found = tuple[bytes, dict[str, Any] | None]


def _rank(level: object) -> int:
    return list(LEVELS).index(str(level)) if str(level) in LEVELS else -1


def _is_wanted(raw: bytes, line: Mapping[str, Any] | None, level: str, text: str) -> bool:
    """Return whether a line is selected by level and text. A line that is not posd's has no level."""
    enough = not level or (line is not None and _rank(line.get("level")) >= _rank(level))
    return enough and text.lower() in raw.decode("utf-8", "replace").lower()


def stripped(raw: bytes) -> bytes:
    """Return a line without its end and its level prefix."""
    return _PREFIX.sub(b"", raw.rstrip(b"\r\n"))


def read(raw: bytes) -> dict[str, Any] | None:
    """Return the fields of a line, or None if it is not posd's."""
    with suppress(ValueError, RecursionError):
        line = msgspec.json.decode(raw)
        if isinstance(line, dict) and isinstance(line.get("event"), str):
            return line
    return None


@dataclass
class LineWords:
    """Formatter of log lines as sentences.

    `width`: width of the screen. None: a pipe, for which no line is broken. `tracebacks`: whether to show all calls.
    """

    width: int | None = None
    tracebacks: bool = False
    _advised: set[str] = field(default_factory=set)

    def of(self, raw: bytes, line: Mapping[str, Any] | None) -> str:
        """Return a line of the log as text for people, with its exception and its advice below it."""
        if line is None:
            return _cut(shown(raw.decode("utf-8", "replace")))
        level = str(line.get("level", ""))
        words = f"{self._time(line.get('timestamp'))}  {shown(level):<7}  {_cut(sentence(line))}"
        below = [*self._exception(line.get("exception")), *self._advice(line)]
        styled = [(words, 0, STYLES.get(level, {})), *((text, 4, {"dim": True}) for text in below)]
        return "\n".join(self._wrapped(text, indent, style) for text, indent, style in styled)

    def _wrapped(self, text: str, indent: int, style: Mapping[str, Any]) -> str:
        if self.width is None:
            return " " * indent + text
        first, *rest = wrap(text, max(self.width, 40) - indent - 4)
        return click.style("\n".join([" " * indent + first, *(" " * (indent + 4) + part for part in rest)]), **style)

    def _time(self, stamp: object) -> str:
        try:
            at = datetime.fromisoformat(str(stamp))
        except ValueError:
            return f"{shown(str(stamp or '')):<19}"[:19]
        if self.width is None:
            return times.for_programs(at, milliseconds=True)
        return times.short(at, milliseconds=True)

    def _exception(self, chain: object) -> Iterator[str]:
        for number, item in enumerate(chain if isinstance(chain, list) else [] if chain is None else [chain]):
            why = say("logs", "because") if number else ""
            if not isinstance(item, Mapping):
                yield f"{why or named('exception') + ':'} {_cut(_value(item))}"
                continue
            frames = item.get("frames")
            calls = [_value(call) for call in frames] if isinstance(frames, list) else []
            message = f": {_value(item['message'])}" if "message" in item else ""
            where = say("logs", "at", call=calls[-1]) if calls else ""
            hidden = f" ({named('all calls')}: --traceback)" if len(calls) > 1 and not self.tracebacks else ""
            yield f"{why} {_value(item.get('type'))}{message}{where}{hidden}".lstrip()
            yield from (f"  {call}" for call in calls if self.tracebacks)

    def _advice(self, line: Mapping[str, Any]) -> list[str]:
        """Return the advice on an event, only at its first line."""
        row = events(language()).get(line["event"])
        if row is None or not row.do or _rank(line.get("level")) < _rank("warning") or line["event"] in self._advised:
            return []
        self._advised.add(line["event"])
        return [f"→ {row.do}"]


def sentence(line: Mapping[str, Any]) -> str:
    """Return the text of a line: the sentence of its event, fields that the sentence lacks, and the event's name."""
    row = events(language()).get(line["event"])
    line = {name: translate(value) if name in ("detail", "error", "reason") else value for name, value in line.items()}

    def has_all(text: str) -> bool:
        return all(name in line for name in _NAME.findall(text))

    if row is None or not has_all(_OPTIONAL.sub("", row.says)):
        return " ".join([shown(line["event"]), *_pairs(line, ())])
    said = _OPTIONAL.sub(lambda part: part[1] if has_all(part[1]) else "", row.says)
    words = _NAME.sub(lambda name: _value(line[name[1]]), said)
    return "  ".join([words, *_pairs(line, _NAME.findall(said)), f"({shown(line['event'])})"])


def _pairs(line: Mapping[str, Any], said: Sequence[str]) -> list[str]:
    return [f"{shown(name)}={_value(value)}" for name, value in line.items() if name not in APART and name not in said]


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value) or named("none")
    if isinstance(value, bool):
        return named("yes") if value else "no"
    return shown(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    more = len(text) - MAX_SHOWN
    return text if more <= 0 else f"{text[:MAX_SHOWN]}… ({say('logs', 'cut', more=more)})"


# Source of `posd logs`: the journal, a file, standard input.

#: journalctl's message if it cannot read the whole journal.
DENIED = ("insufficient permissions", "not seeing messages from other users", "Permission denied")
NO_ENTRIES = b"-- No entries --"
STDIN = "-"


class NoLog(Exception):
    """Error if the log cannot be read. The message says why, and what to do."""


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines as they arrive. A line that is too long is yielded in pieces."""
    while line := stream.readline(MAX_LINE_BYTES):
        if line.rstrip() != NO_ENTRIES:
            yield line


@contextmanager
def of_file(name: str) -> Iterator[Iterator[bytes]]:
    """Open a file or standard input (`-`), and yield its lines. Raise NoLog."""
    if name == STDIN:
        yield _pieces(sys.stdin.buffer)
        return
    try:
        with open(name, "rb") as stream:  # noqa: PTH123 - the name as it was typed, such as /dev/fd/3
            yield _pieces(stream)
    except OSError as error:
        if error.filename != name:  # an error of the output, which the block raised
            raise
        raise NoLog(say("logs", "not_read", file=name, reason=error.strerror)) from error


@contextmanager
def of_journal(unit: str, options: Sequence[str]) -> Iterator[Iterator[bytes]]:
    """Start journalctl, and yield its lines. Raise NoLog if the journal cannot be read, even only in part."""
    command = ["journalctl", f"--unit={unit}", "--output=cat", "--no-pager", *options]
    environment = os.environ | {"LC_ALL": "C", "SYSTEMD_COLORS": "0"}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment)  # noqa: S603
    except OSError as error:
        raise NoLog(say("logs", "no_journalctl", reason=error.strerror)) from error
    assert process.stdout is not None  # noqa: S101 - both are pipes
    assert process.stderr is not None  # noqa: S101
    with process:
        try:
            yield _pieces(process.stdout)
        except BaseException:
            process.terminate()
            raise
        process.stdout.close()
        said = process.stderr.read().decode("utf-8", "replace").strip()
    if any(words in said for words in DENIED):
        name = login_name(os.getuid())
        raise NoLog(say("logs", "join" if name else "denied", unit=unit, name=name))
    if process.returncode:
        why = "; ".join(said.splitlines()) or f"exit code {process.returncode}"
        raise NoLog(say("logs", "failed", why=why))


#: Number of lines that are shown without --lines, and with --follow before the first new line.
LINES = 200
LINES_BEFORE = 20


@click.command()
@click.argument("file", required=False, metavar="[FILE|-]")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="COUNT", help="The newest N lines.  [default: 200]")
@click.option("--all", "everything", is_flag=True, help="All lines.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines as they arrive, until Ctrl-C.")
@click.option("--since", type=parameters.moment, metavar="TIME", help=("From this time on, like 10:42, today or -1h."))
@click.option("--until", type=parameters.moment, metavar="TIME", help="Up to this time.")
@click.option("-p", "--level", type=click.Choice(list(LEVELS)), help="Only this level and more important ones.")
@click.option(
    "-g", "--grep", default="", metavar="TEXT", help="Only lines that contain this: an id, a serial, an event."
)
@click.option("--traceback", "tracebacks", is_flag=True, help="Show the whole traceback of a fault.")
@click.option("--unit", default="posd", show_default=True, metavar="UNIT", help="The service, in the journal.")
@json_option
def logs(
    output: Output, file: str | None, lines: int | None, everything: bool, follow: bool, unit: str, **given: Any
) -> None:
    """Show the daemon's log as sentences: from the journal, from FILE, or from standard input (-).

    With --json it prints the matching lines unchanged. `posd explain` lists all log events.
    """
    since, until, level, grep = (given[name] for name in ("since", "until", "level", "grep"))
    of_a_file = file is not None and (follow or since or until)
    parameters.check_usage("logs", of_a_file=of_a_file, both=everything and lines is not None)
    newest = lines
    if not everything and lines is None and not since and file is None:
        newest = LINES_BEFORE if follow else LINES
    # If this command selects lines, it also counts them, because journalctl would also count the other lines.
    counted = file is not None or bool(grep)
    if file is not None:
        source = of_file(file)
    else:
        options = [f"--lines={'all' if newest is None or (counted and not follow) else newest}"]
        options += [f"--since={_in_journal(since)}"] if since else []
        options += [f"--until={_in_journal(until)}"] if until else []
        options += [f"--priority={LEVELS[level]}"] if level else []
        source = of_journal(unit, [*options, "--follow"] if follow else options)
    if output.rich:
        output.line(say("logs", "times", zone=times.here()), "dim")
    words = LineWords(output.stdout.width if output.rich else None, given["tracebacks"])
    told = False
    try:
        with suppress(KeyboardInterrupt), source as lines_found:
            every = ((raw, read(raw)) for raw in map(stripped, lines_found))
            selected: Iterator[Found] = (found for found in every if _is_wanted(*found, level or "", grep))
            if newest is not None and counted and not follow:
                selected = iter(deque(selected, newest))
            told = _write((_written(output, words, *found) for found in selected), live=follow)
    except NoLog as error:
        fail(output, error)
    if not told and not follow:
        output.note(say("logs", "no_match" if level or grep else "empty" if file else "no_line", unit=unit))


def _in_journal(at: str | date) -> str:
    """Return a time, or the beginning of a local day, in journalctl's format."""
    if isinstance(at, date):
        return f"{at} 00:00:00"
    return f"@{datetime.fromisoformat(at).timestamp():.0f}"


def _written(output: Output, words: LineWords, raw: bytes, line: Mapping[str, Any] | None) -> bytes | None:
    """Return a line as a sentence.

    With --json return the line unchanged (on a screen escaped), or None if it is not JSON.
    """
    if not output.as_json:
        return words.of(raw, line).encode(sys.stdout.encoding, "replace")
    if line is None:
        return None
    return escaped(raw.decode("utf-8", "replace")).encode() if output.stdout.is_terminal else raw


def _write(texts: Iterable[bytes | None], *, live: bool) -> bool:
    """Write lines. With `live` and on a screen, write each at once. Return whether there were any."""
    stream = sys.stdout.buffer
    at_once = live or sys.stdout.isatty()
    told = False
    for text in filter(None, texts):
        told = True
        stream.write(text + b"\n")
        if at_once:
            stream.flush()
    stream.flush()
    return told
