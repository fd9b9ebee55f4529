"""The story of a run. The story has the events of the payments with broken promises, in order of time.

The story is made from the notes of the world. A note has a time, a subject, a kind, and details.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from tests.simulation.loop import BEGIN
from tests.simulation.world import Note, Result

#: Ids in the messages of checks.
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|job-\d+")
_SALE: Final = re.compile(r"\bsale (\d+)\b")
#: Maximum number of notes printed before a broken promise that names no payment.
BEFORE: Final = 25
#: Paths of the lists that the operator reads. The replies to these requests have many payments.
LISTS: Final = ("/v1/feed", "/v1/transactions?")
#: Maximum number of sales and of faults that are printed.
MOST: Final = 12
#: Longest line, in characters.
WIDTH: Final = 400


def concerned(result: Result) -> frozenset[str]:
    """Return the ids in the broken promises, with all other ids of their sales."""
    ids = {found for failure in result.failures for found in _ID.findall(failure)}
    numbers = {int(found) for failure in result.failures for found in _SALE.findall(failure)}
    for number, made in result.ids.items():
        if number in numbers or not ids.isdisjoint(made):
            ids |= {*made}
    return frozenset(ids)


def tell(result: Result, *, everything: bool = False) -> str:
    """Print the faults and the events of payments with broken promises. `everything`: print all events."""
    ids = concerned(result)
    told = [note for note in result.notes if everything or _concerns(note, ids)]
    if not everything and not ids:
        told = [*_before(result.notes)]
    zone = "the shop's clock, if it is right, in UTC"
    began = result.plan.began
    return "\n".join((f"seconds of the run, {zone}", *(_line(note, began) for note in told)))


def about_plan(result: Result) -> str:
    """Print the sales and faults of a run, if their number is small."""
    plan = result.plan
    sales = [f"sale {sale.number} at till {sale.till}: {sale.cents / 100:.2f}, {sale.manner}" for sale in plan.sales]
    faults = [
        f"fault {fault.number} at {fault.at:.1f}: {fault.kind}, target {fault.target}, for {fault.seconds:.1f} s"
        for fault in plan.faults
    ]
    lines = [f"{len(sales)} sales", *_few(sales), f"{len(faults)} faults", *_few(faults)]
    return "\n".join(lines)


def _few(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines[:MOST]] + ([f"  … and {len(lines) - MOST} more"] if len(lines) > MOST else [])


def _concerns(note: Note, ids: Collection[str]) -> bool:
    _, what = note
    if what[0] in ("CHECK", "fault", "fault ends", "killed", "stopped", "cannot start"):
        return True
    if what[0] == "log" and what[1] == "error":
        return True
    if what[0] == "person" and str(what[2]).startswith(LISTS):
        return False
    words = " ".join(map(_text, what))
    return any(identity in words for identity in ids)


def _before(notes: Sequence[Note]) -> Iterator[Note]:
    """Yield the faults, the broken promises, and the events just before them."""
    wrong = [place for place, (_, what) in enumerate(notes) if what[0] == "CHECK"]
    near = {place for end in wrong for place in range(end - BEFORE, end + 1)}
    for place, note in enumerate(notes):
        if place in near or _concerns(note, ()):
            yield note


def _line(note: Note, began: datetime) -> str:
    at, what = note
    clock = began + timedelta(seconds=at)
    return f"{at - BEGIN:12.6f}  {clock:%d %b %H:%M:%S}  {_words(what)}"[:WIDTH]


def _words(what: Sequence[object]) -> str:
    match what:
        case ("CHECK", problem):
            return f"*** A PROMISE DOES NOT HOLD: {problem}"
        case ("fault" | "fault ends" | "killed" | "stopped" | "cannot start", *particulars):
            return f"--- {what[0]} {' '.join(map(_text, particulars))}"
    return " ".join(map(_text, what))


def _text(what: object) -> str:
    return what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)
