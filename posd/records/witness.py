"""Content of the witness, a file beside the database with recent starts.

Each line has a checksum and a JSON array, so a torn or damaged line does not affect other lines. The file has no
amounts, no metadata and no references. It has the key of the sale. So if the database loses a payment, the
sale is not paid again under another id.

Source: architecture, A database that goes back in time.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from posd.storage.changes import DatabaseIdentity, IdentityCause


class StartedPayment(msgspec.Struct, frozen=True):
    """Start of one payment: terminal, time and sale, and the end if it is known."""

    client_transaction_id: str
    terminal: str
    at: str
    result: str | None = None
    sale: str | None = None


class WitnessContents(msgspec.Struct):
    """Content of a witness. `seq`: the highest feed number in the file. `unreadable`: the number of damaged lines.

    `torn`: the file ends within a line. `database_id` is None if the first line is damaged.
    """

    database_id: str | None = None
    seq: int = 0
    started: dict[str, StartedPayment] = msgspec.field(default_factory=dict)
    unreadable: int = 0
    torn: bool = False


def database_line(database_id: str, seq: int) -> bytes:
    """Return the first line: the identity of the database, and the feed number up to which the file is complete."""
    return _line("database", database_id, seq)


def start_line(seq: int, started: StartedPayment) -> bytes:
    """Return the line of a payment that was recorded for the first time."""
    sale = () if started.sale is None else (started.sale,)
    return _line("start", seq, started.client_transaction_id, started.terminal, started.at, *sale)


def end_line(seq: int, client_transaction_id: str, result: str) -> bytes:
    """Return the line of a payment that ended."""
    return _line("end", seq, client_transaction_id, result)


def seq_line(seq: int) -> bytes:
    """Return a line with the newest number of the feed."""
    return _line("seq", seq)


def whole(database_id: str, seq: int, started: Iterable[StartedPayment]) -> Iterator[bytes]:
    """Yield the lines of a new witness. `started`: the payments, oldest first."""
    yield database_line(database_id, seq)
    for item in started:
        yield start_line(0, item)
        if item.result is not None:
            yield end_line(0, item.client_transaction_id, item.result)


def _line(*members: Any) -> bytes:
    text = msgspec.json.encode(members)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read(content: bytes) -> WitnessContents:
    """Parse the content of a witness. Any part of it may be damaged."""
    found = WitnessContents()
    *lines, rest = content.split(b"\n")
    found.torn = bool(rest)
    for line in lines:
        if line and not _take(found, line):
            found.unreadable += 1
    return found


def _take(found: WitnessContents, line: bytes) -> bool:
    """Add the content of a line to `found`. Return False if the line is damaged."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return False
    try:
        members = msgspec.json.decode(text)
    except ValueError:
        return False
    match members:
        case ["database", str(database_id), int(seq)]:
            found.database_id = database_id
        case ["start", int(seq), str(identity), str(terminal), str(at)]:
            found.started[identity] = StartedPayment(identity, terminal, at)
        case ["start", int(seq), str(identity), str(terminal), str(at), str(sale)]:
            found.started[identity] = StartedPayment(identity, terminal, at, sale=sale)
        case ["end", int(seq), str(identity), str(result)] if identity in found.started:
            found.started[identity] = msgspec.structs.replace(found.started[identity], result=result)
        case ["end" | "seq", int(seq), *_]:  # an end without a readable start: only the number is used
            pass
        case _:  # a line of a later version of posd
            return True
    found.seq = max(found.seq, seq)
    return True


def why_gone_back(
    witness: WitnessContents, identities: Sequence[DatabaseIdentity], seq: int, unknown: int
) -> str | None:
    """Return as text why a database has gone back in time, or None.

    `identities`: identities of the database, the present one last. `seq`: highest feed number of the database.
    `unknown`: number of payments in the witness that the database does not have. After `posd restore`, the witness has
    the identity of the replaced database, which is correct.
    """
    known = {item.database_id for item in identities}
    if (
        witness.database_id is not None
        and witness.database_id not in known
        and identities[-1].cause != IdentityCause.RESTORED
    ):
        return "it is not the database that posd used here"
    if unknown:
        payments = "1 payment" if unknown == 1 else f"{unknown} payments"
        return f"it lacks {payments} that posd started here"
    if witness.seq > seq:
        return f"its newest change has number {seq}, and {witness.seq} was used already"
    return None
