"""Every line that the daemon can log: its event's name, levels, fields, meaning and cure.

To add a line: log it with a literal name and keywords (`log.warning("payment.attention", transaction=…)`). Add its row
to en.toml and es.toml, and a new field to `posd.logs.output.FIELDS`. Write the page again (`python -m tests.logs`). A
test compares them. `means` is the line as a sentence with {field}s; a part in [ ] is left out if a field in it is. `do`
is the next step, or why there is none; every warning and error has it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from posd.base.negotiation import Language
from posd.cli.explain.catalogue import read


class LogEvent(NamedTuple):
    """What is known of an event."""

    levels: tuple[str, ...]
    fields: tuple[str, ...]
    says: str
    do: str = ""


EVENTS: Final[Mapping[str, LogEvent]] = {
    event: LogEvent(tuple(row["levels"]), tuple(row["fields"].split()), row["means"], row.get("do", ""))
    for event, row in read(Language.EN)["event"].items()
}
