"""Lines of posd's log: read, selected, and put into words for people."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from posd.cli.app.output import escaped
from posd.logs.events import EVENTS

#: From the least important on.
LEVELS = ("debug", "info", "warning", "error", "critical")
#: Longest line that is read as one, in bytes; the journal cuts at 48 KiB.
MAX_LINE_BYTES = 256 * 1024
#: Longest line that is shown to people, in characters; --json has all of it.
MAX_SHOWN = 4000
#: Fields that stand elsewhere than in the words.
APART = frozenset({"timestamp", "level", "event", "logger", "exception"})

STYLES: Mapping[str, Mapping[str, Any]] = {
    "debug": {"dim": True},
    "warning": {"fg": "yellow"},
    "error": {"fg": "red", "bold": True},
    "critical": {"fg": "red", "bold": True},
}

_PREFIX = re.compile(rb"^<[0-7]>")  # the level that the journal takes off, where somebody kept the lines otherwise
_OPTIONAL = re.compile(r"\[([^][]*)\]")
_NAME = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class Selection:
    """Which lines are wanted; empty: all of them. A line that is none of posd's meets no wish."""

    level: str = ""
    event: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def all(self) -> bool:
        """Whether there are no wishes."""
        return not (self.level or self.event or self.fields)

    def takes(self, line: Mapping[str, Any] | None) -> bool:
        """Whether a line is wanted; None is one that is none of posd's."""
        if line is None or self.all:
            return self.all
        level = line.get("level")
        return (
            (not self.level or (level in LEVELS and LEVELS.index(level) >= LEVELS.index(self.level)))
            and line["event"].startswith(self.event)
            and all(str(line.get(name, "")).lower() == value.lower() for name, value in self.fields.items())
        )


def stripped(raw: bytes) -> bytes:
    """Return a line without its end, and without a level in front of it."""
    return _PREFIX.sub(b"", raw.rstrip(b"\r\n"))


def read(raw: bytes) -> dict[str, Any] | None:
    """Return the fields of a line; None where it is none of posd's."""
    if not raw.startswith(b"{"):
        return None
    try:
        line = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and isinstance(line.get("event"), str) else None


def plain(text: str) -> str:
    """Return a text in one line that cannot steer a screen: what is not printable is written as JSON does."""
    return escaped(text).replace("\n", "\\n")


@dataclass
class Words:
    """Puts lines into words. `width` is that of the screen, None in a pipe, where a line stays one line."""

    utc: bool = False
    width: int | None = None
    tracebacks: bool = False
    _advised: set[str] = field(default_factory=set)

    def of(self, raw: bytes, line: Mapping[str, Any] | None) -> str:
        """Return a line for people, with those that belong to it below."""
        if line is None:
            return _cut(plain(raw.decode("utf-8", "replace")))
        level = str(line.get("level", ""))
        style = STYLES.get(level, {})
        words = f"{self._time(line.get('timestamp'))}  {plain(level):<7}  {_cut(sentence(line))}"
        below = [*self._exception(line.get("exception")), *self._advice(line)]
        if self.width is None:
            return "\n".join([words, *(f"    {text}" for text in below)])
        first = click.style(self._wrapped(words, "    "), **style)
        return "\n".join([first, *(click.style(self._wrapped(f"    {text}", "      "), dim=True) for text in below)])

    def _wrapped(self, text: str, indent: str) -> str:
        width = max(self.width or 0, 40)
        return "\n".join(
            textwrap.wrap(
                text,
                width,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
                drop_whitespace=True,
                replace_whitespace=False,
            )
        )

    def _time(self, stamp: object) -> str:
        try:
            moment = datetime.fromisoformat(str(stamp))
        except ValueError:
            return f"{plain(str(stamp or '')):<23}"[:23]
        moment = moment.astimezone(UTC if self.utc else None)
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}{'Z' if self.utc else ''}"

    def _exception(self, chain: object) -> list[str]:
        if chain is None:
            return []
        if not isinstance(chain, list):
            return [f"exception: {_cut(_value(chain))}"]
        return [text for number, item in enumerate(chain) for text in self._fault(item, "because of " * (number > 0))]

    def _fault(self, item: object, why: str) -> list[str]:
        if not isinstance(item, Mapping):
            return [f"{why}{_cut(_value(item))}"]
        frames = item.get("frames")
        calls = [_value(call) for call in frames] if isinstance(frames, list) else []
        message = f": {_value(item['message'])}" if "message" in item else ""
        where = f", at {calls[-1]}" if calls else ""
        hidden = len(calls) > 1 and not self.tracebacks
        told = [f"{why}{_value(item.get('type'))}{message}{where}" + " (all calls: --traceback)" * hidden]
        if self.tracebacks:
            told += [f"  {call}" for call in calls]
        return told

    def _advice(self, line: Mapping[str, Any]) -> list[str]:
        """Say what to do, at the first line of an event: the same words under each of them help nobody."""
        row = EVENTS.get(line["event"])
        if row is None or not row.do or line.get("level") not in LEVELS[2:] or line["event"] in self._advised:
            return []
        self._advised.add(line["event"])
        return [f"→ {row.do}"]


def sentence(line: Mapping[str, Any]) -> str:
    """Return what a line says: the sentence of its event, then the fields that are not in it, then its name."""
    row = EVENTS.get(line["event"])
    if row is None or any(name not in line for name in _NAME.findall(_OPTIONAL.sub("", row.says))):
        return " ".join([plain(line["event"]), *_pairs(line, ())])
    said = _OPTIONAL.sub(lambda part: part[1] if all(name in line for name in _NAME.findall(part[1])) else "", row.says)
    words = _NAME.sub(lambda name: _value(line[name[1]]), said)
    return "  ".join([words, *_pairs(line, _NAME.findall(said)), f"({plain(line['event'])})"])


def _pairs(line: Mapping[str, Any], said: Sequence[str]) -> list[str]:
    return [f"{plain(name)}={_value(value)}" for name, value in line.items() if name not in APART and name not in said]


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value) or "nobody"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text) - MAX_SHOWN} more characters)"
