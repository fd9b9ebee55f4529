"""The list of `posd restore --ids`: payments that were started on a lane whose database is lost.

UTF-8 text, one payment a line, with TAB between the fields. The fields are: its id, its start time (UTC, with Z), the
serial of its terminal, and the till's key of its sale. All but the id may be missing. Empty lines and lines with "#" at
the beginning are ignored. The first line of a repeated id counts.
"""

import re
from typing import BinaryIO

from posd.base.ids import canonical_uuid
from posd.base.text import shown
from posd.base.times import iso, parse_iso
from posd.records.witness import StartedPayment
from posd.storage.errors import StoreError

#: Most lines of a list: weeks of a busy lane. posd queries the terminals for each payment.
MOST_LINES = 10_000
#: Most bytes of a line, with its end: its fields have at most 700.
MOST_LINE_BYTES = 1000
#: Most fields of a line, and most characters of a sale, as in a call that starts a payment.
MOST_PARTS = 4
MOST_SALE_CHARACTERS = 128
#: Most wrong lines shown, and most characters of a wrong field.
SHOWN_LINES = 5
SHOWN_CHARACTERS = 40

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)
_SERIAL = re.compile(r"[!-~]([ -~]{0,62}[!-~])?", re.ASCII)


class InvalidIdList(StoreError):
    """List that cannot be used; `lines` describe the wrong lines, as far as there is room."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read(file: BinaryIO) -> dict[str, StartedPayment]:
    """Return the payments of a list, by id; a missing time or serial is "".

    Raise InvalidIdList; raise OSError if the file cannot be read.
    """
    found: dict[str, StartedPayment] = {}
    faults: list[str] = []
    number = 0
    while line := file.readline(MOST_LINE_BYTES + 1):
        number += 1
        if number > MOST_LINES:
            raise InvalidIdList(
                f"the list of --ids has more than {MOST_LINES} lines; nothing was changed. Make it of less time, by a "
                "later --since of posd collect ids"
            )
        try:
            started = _payment(line)
        except ValueError as error:
            faults.append(f"  line {number}: {error}")
        else:
            if started is not None:
                found.setdefault(started.client_transaction_id, started)
        if len(line) > MOST_LINE_BYTES:
            break  # the rest may be one line without an end
    if faults:
        raise InvalidIdList(*_words(faults))
    if not found:
        raise InvalidIdList(
            "the list of --ids names no payment; nothing was changed. See whether posd collect ids wrote it to its "
            "end. Where head office knows of no payment, restore without --ids"
        )
    return found


def _payment(line: bytes) -> StartedPayment | None:
    """Return the payment of a line, None for a line without one. Raise ValueError in words."""
    if len(line) > MOST_LINE_BYTES:
        raise ValueError(f"longer than {MOST_LINE_BYTES} bytes: a line has one id, a time, a serial and a sale")
    try:
        text = line.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError("no UTF-8 text: save the file as UTF-8") from error
    if not text or text.startswith("#"):
        return None
    parts = text.split("\t")
    if len(parts) > MOST_PARTS:
        raise ValueError(f"{len(parts)} parts, and 4 are the most: id, time, serial, sale, with a TAB between them")
    identity, at, serial, sale = parts + [""] * (MOST_PARTS - len(parts))
    canonical = canonical_uuid(identity)
    if canonical is None:
        raise ValueError(f"{_quoted(identity)} is no id of a payment: write a UUID, and a TAB before what follows it")
    if serial and not _SERIAL.fullmatch(serial):
        raise ValueError(
            f"{_quoted(serial)} is no serial number: write it as it is printed on the terminal, or omit it"
        )
    if len(sale) > MOST_SALE_CHARACTERS:
        raise ValueError(f"{_quoted(sale)} is no sale: it has more than {MOST_SALE_CHARACTERS} characters")
    return StartedPayment(canonical, serial, _moment(at) if at else "", sale=sale or None)


def _moment(text: str) -> str:
    """Return a time in posd's format. Raise ValueError in words."""
    try:
        if _MOMENT.fullmatch(text):
            return iso(parse_iso(text))
    except ValueError:
        pass
    raise ValueError(f"{_quoted(text)} is no time: write it as 2026-11-20T10:42:03.120Z (UTC), or omit it")


def _quoted(part: str) -> str:
    short = part if len(part) <= SHOWN_CHARACTERS else f"{part[:SHOWN_CHARACTERS]}..."
    return f"'{shown(short)}'"


def _words(faults: list[str]) -> list[str]:
    count = "1 line" if len(faults) == 1 else f"{len(faults)} lines"
    left = len(faults) - SHOWN_LINES
    return [
        f"{count} of the list of --ids cannot be read; nothing was changed:",
        *faults[:SHOWN_LINES],
        *([f"  and {left} more"] if left > 0 else []),
        "Correct the file, or make it again by posd collect ids",
    ]
