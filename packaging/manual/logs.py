"""docs/reference/logs.md: the text around the tables of log events, and the tables."""

from collections.abc import Iterator

from posd.cli.explain.catalogue import LogEvent, events
from posd.logs.output import HOUR, LIMITS, MINUTE, SEVERE, TROUBLE, LineLimit

HEAD = """# What posd logs

posd writes its log to standard output, one JSON object a line; systemd stores it in the journal. `posd logs` shows \
each line as a sentence, with what to do.

```sh
posd logs                                # the newest lines, in words
posd logs --follow --level warning       # warnings and errors, live
posd logs --grep ID --since today        # all lines of one payment
journalctl -u posd -p warning            # the JSON lines
```

Every line has `timestamp` (UTC), `level`, `event` and `logger`, then the fields of its event: ids, words, times and \
addresses. No line has a token, header, metadata, card data, operator's name or body. `exception` is a list of faults, \
newest first, each with `type` and `frames`, and with `message` if that has no data of a payment. Unprintable \
characters are written as `\\u001b`.

posd writes a repeated line only a few times (column "at most"), then counts further lines and logs their number as \
`log.collapsed`. For example, "10 an hour, each `transaction`" means 10 lines an hour for each value of `transaction`.

The column "says" has the sentence of `posd logs`. {field} stands for a value. If a field is missing, its part in [ ] \
is left out.

| level | journal | meaning |
| --- | --- | --- |
| `debug` | 7 | details; written with `logging.level = "debug"` |
| `info` | 6 | normal operation |
| `warning` | 4 | needs a person soon |
| `error` | 3 | needs a person now |
"""

#: Limits that posd.logs.output does not apply.
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
    "certificate": "The listener's certificate",
    "discovery": "Terminals on the network",
    "interfaces": "Addresses of this machine",
    "store": "The database",
    "start": "Calls of tills",
    "stream": "Streams",
    "metrics": "The metrics",
    "limit": "Limits of one sender",
    "feed": "The feed",
    "terminal": "Terminals",
    "clock": "The clock",
    "witness": "The witness file",
    "relay": "The relay",
    "collect": "The collector",
}


def markdown() -> str:
    """Return the whole page."""
    groups = dict.fromkeys(event.split(".", 1)[0] for event in events())
    return "\n".join([HEAD, *(line for group in groups for line in _group(group))]).rstrip() + "\n"


def _group(group: str) -> Iterator[str]:
    yield f"## {GROUPS.get(group, group)}\n"
    yield "| event | level | fields | says | what to do | at most |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for event, row in events().items():
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
