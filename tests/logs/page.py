"""docs/logs.md: the text around the table, and the table."""

from collections.abc import Iterator

from posd.cli.explain.events import EVENTS, LogEvent
from posd.logs.output import HOUR, LIMITS, MINUTE, SEVERE, TROUBLE, LineLimit
from tests.logs.found import PACKAGE

PAGE = PACKAGE.parent / "docs" / "logs.md"

HEAD = """# What posd logs

posd writes its log to standard output, one JSON object a line, which systemd keeps in the journal. `posd logs` shows \
it in words; `posd logs --events` shows the table below.

```sh
posd logs                                # the newest lines, in words
posd logs --follow --level warning       # what people should look at, as it comes
posd logs --transaction ID --since today # all that was said of one payment
journalctl -u posd -p warning            # the lines as they are; levels are the journal's
```

Every line has `timestamp` (UTC), `level`, `event` and `logger`, then the fields of its event. Times and addresses \
apart, fields are ids and words: no token, no header, no metadata, no card data, no operator's name, no body. A fault \
is told by its kind and by the calls that led to it, without the values that met there: its `exception` is a list, the \
newest fault first, each with `type`, `frames` and, where it names nothing of a payment, `message`. What \
is not printable in a text is written as `\\u001b`, so that a line is one line wherever it is read.

A line that comes again and again is written a few times and then counted (the column "at most"): `log.collapsed` says \
how many were left out. What counts apart stands behind "each".

What a line says is its sentence as `posd logs` writes it: {field} stands for a field's value, and a part in [ ] is \
left out where a field of it is not there.

| level | journal | what it says |
| --- | --- | --- |
| `debug` | 7 | details for the search for a fault; written with `logging.level = "debug"` |
| `info` | 6 | a fact of every day |
| `warning` | 4 | something for a person to look at, soon |
| `error` | 3 | something for a person to look at, now |
"""

#: Limits that are not by posd.logs.output.
OWN_WAY = {"listener.refused": "1 a minute, each `kind`", "listener.distrusted": "1 an hour, each `peer`"}

#: first part of an event's name -> the heading of its table.
GROUPS = {
    "posd": "The daemon",
    "config": "The configuration",
    "log": "The log",
    "manager": "The service manager",
    "payment": "Payments",
    "webhook": "Callbacks of terminals",
    "print": "Print jobs",
    "listener": "The listener on the LAN",
    "certificate": "Its certificate",
    "discovery": "Terminals on the network",
    "interfaces": "Addresses of this machine",
    "store": "The database",
}


def page() -> str:
    """Return the whole page."""
    groups = dict.fromkeys(event.split(".", 1)[0] for event in EVENTS)
    return "\n".join([HEAD, *(line for group in groups for line in _group(group))]).rstrip() + "\n"


def _group(group: str) -> Iterator[str]:
    yield f"## {GROUPS.get(group, group)}\n"
    yield "| event | level | fields | says | what to do | at most |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for event, row in EVENTS.items():
        if event.split(".", 1)[0] == group:
            fields = " ".join(f"`{field}`" for field in row.fields)
            yield f"| `{event}` | {', '.join(row.levels)} | {fields} | {row.says} | {row.do} | {at_most(event, row)} |"
    yield ""


def at_most(event: str, row: LogEvent) -> str:
    """Write the limit of an event."""
    limit = LIMITS.get(event, TROUBLE if SEVERE & set(row.levels) else None)
    if limit is None or event in ("log.collapsed", "log.dropped"):
        return ""
    if event in OWN_WAY:
        return OWN_WAY[event]
    return _words(limit, row)


def _words(limit: LineLimit, row: LogEvent) -> str:
    per = {MINUTE: "a minute", HOUR: "an hour"}[limit.seconds]
    by = [f"`{field}`" for field in limit.by if field in row.fields]
    return f"{limit.lines} {per}" + (f", each {' '.join(by)}" if by else "")
