"""Terminals as rows of a table, and what there is to say of each."""

from collections.abc import Mapping
from typing import Any

from posd.cli.app.output import moment

#: characters of a payment's id in the table on a terminal, which has no room for more.
SHORT_ID = 8

COLUMNS = ("serial", "model", "address", "source", "reachable", "payment", "seen")

#: A further column in a pipe; on a terminal these words stand below the table.
WHY = "why"

REACHABLE = {True: "yes", False: "no", None: "not known"}

#: state of another address under the serial -> what it means.
CLAIM_STATES: Mapping[str, str] = {
    "answers": "which answers and is trusted as well",
    "unchecked": "where nobody has looked yet",
    "silent": "which does not answer",
    "refused": "which is not trusted",
}

NOTHING = 'No terminals: name them in the configuration ([[terminals]] with serial = "...").'


def plain_row(terminal: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a terminal's row in a pipe: with the words for why it is not reachable, and who else claims to be it."""
    return (*terminal_row(terminal, short=False), "; ".join(why(terminal)) or "-")


def terminal_row(terminal: Mapping[str, Any], *, short: bool) -> tuple[str, ...]:
    """Return a terminal's row; one that the configuration does not name is marked."""
    known = terminal.get("in_fleet", True)
    payment = terminal["transaction"] or "-"
    return (
        terminal["serial"] if known else f"{terminal['serial']} (not in the fleet)",
        " ".join(part for part in (terminal["brand"], terminal["model"]) if part) or "-",
        terminal["base_url"] or "no address",
        terminal["source"] or "-",
        REACHABLE[terminal["reachable"]],
        payment[:SHORT_ID] if short else payment,
        moment(terminal["last_seen"]),
    )


def why(terminal: Mapping[str, Any]) -> list[str]:
    """Say why a terminal is not reachable, and where else something announces itself under its serial."""
    words = [terminal["reason"]] if terminal.get("reason") else []
    for claim in terminal.get("claims") or []:
        if not claim["same_device"]:
            because = f": {claim['reason']}" if claim["reason"] else ""
            words.append(f"also announced at {claim['base_url']}, {CLAIM_STATES[claim['state']]}{because}")
    return words


def remarks(items: list[Mapping[str, Any]]) -> list[str]:
    """Return what stands below the table on a terminal."""
    return [f"{item['serial']}: {words}" for item in items for words in why(item)]
