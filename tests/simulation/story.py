"""What a run tells. The story has the events of the payments with broken promises, in order of time.

The story is made from the notes of the world. A note has a time, a subject, a kind, and details.

A situation is a kind and a value. `World.seen` counts situations. The known values come from the product and from the
tables of the simulation.
"""

import re
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from posd.base.problems import PROBLEMS
from posd.cli.explain.catalogue import events
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result
from posd.printing.model import PrintAttentionCode
from posd.records.model import Phase
from tests.simulation import world
from tests.simulation.habits import ABORTS, ENDS, EVENTS, REPLIES, SEARCHES
from tests.simulation.loop import BEGIN
from tests.simulation.plan import MANNERS, Plan

#: Ids in the messages of checks.
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|job-\d+")
_SALE: Final = re.compile(r"\bsale (\d+)\b")
#: Maximum number of notes printed before a broken promise that names no payment.
BEFORE: Final = 25
#: Maximum number of sales and of faults that are printed.
MOST: Final = 12
#: Longest line, in characters.
WIDTH: Final = 400
#: Kinds of notes that each story has.
ALWAYS: Final = ("CHECK", "fault", "fault ends", "killed", "stopped", "cannot start")


def concerned(result: world.Result) -> frozenset[str]:
    """Return the ids in the broken promises, with all other ids of their sales."""
    ids = {found for failure in result.failures for found in _ID.findall(failure)}
    numbers = {int(found) for failure in result.failures for found in _SALE.findall(failure)}
    for number, made in result.ids.items():
        if number in numbers or not ids.isdisjoint(made):
            ids |= {*made}
    return frozenset(ids)


def tell(plan: Plan, result: world.Result, *, everything: bool = False) -> str:
    """Print the faults and the events of payments with broken promises. `everything`: print all events."""
    ids, lines = concerned(result), ["seconds of the run, the shop's clock, if it is right, in UTC"]
    wrong = [place for place, (_, what) in enumerate(result.notes) if what[0] == "CHECK" and not ids]
    near = {place for end in wrong for place in range(end - BEFORE, end + 1)}
    for place, (at, what) in enumerate(result.notes):
        if everything or place in near or _concerns(what, ids):
            mark = {"CHECK": "*** A PROMISE DOES NOT HOLD: "}.get(str(what[0]), "--- " if what[0] in ALWAYS else "")
            words = " ".join(map(_text, what[mark.startswith("*") :]))
            clock = plan.began + timedelta(seconds=at)
            lines.append(f"{at - BEGIN:12.6f}  {clock:%d %b %H:%M:%S}  {mark}{words}"[:WIDTH])
    return "\n".join(lines)


def about_plan(plan: Plan) -> str:
    """Print the numbers of sales and faults of a run, and the first ones."""
    sales, faults = plan.sales, plan.faults
    lines = f"{len(sales)} sales", *sales[:MOST], f"{len(faults)} faults", *faults[:MOST]
    return "\n".join(map(str, lines))


def _concerns(what: Sequence[object], ids: Collection[str]) -> bool:
    if what[0] in ALWAYS or (what[0] == "log" and what[1] == "error"):
        return True
    # the operator's lists have many payments
    if what[0] == "person" and str(what[2]).startswith(("/v1/feed", "/v1/transactions?")):
        return False
    words = " ".join(map(_text, what))
    return any(identity in words for identity in ids)


def _text(what: object) -> str:
    return what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)


_STATED: Final = ("event", "search", "operator")
_EVIDENCE: Final = dict.fromkeys(Result, _STATED) | {Result.NOT_STARTED: ("refusal", "unsent", "search", "operator")}
#: Each result, with each kind of the last evidence that it can have.
OUTCOMES: Final = [f"{result} {kind}" for result, kinds in _EVIDENCE.items() for kind in kinds]
#: Prefixes of the log events of other processes.
OF_OTHERS: Final = ("relay.", "collect.", "metrics.not_served")
#: Warnings and errors that the daemon can log.
WARNINGS: Final = [
    name
    for name, line in events().items()
    if not {"warning", "error"}.isdisjoint(line.levels) and not name.startswith(OF_OTHERS)
]
#: Kind, description, and all known values.
KNOWN: Final[tuple[tuple[str, str, Collection[str]], ...]] = (
    ("manner", "behaviour of a till with a sale", MANNERS),
    ("end", "end of a payment at the terminal", ENDS),
    ("reply", "reply of a terminal to a start", REPLIES),
    ("events", "arrival of a payment's events", EVENTS),
    ("search", "result of a search", SEARCHES),
    ("abort", "effect of an abort", ABORTS),
    ("event-answer", "posd's reply to an event", ("200", "400", "403", "413", "503")),
    ("phase", "phase in a payment document", tuple(Phase)),
    ("next_step", "next_step in a payment document", tuple(NextStep)),
    ("outcome", "outcome that a till receives, with the last evidence", OUTCOMES),
    ("evidence", "evidence of an outcome", tuple(EvidenceKind)),
    ("attention", "attention of a payment", tuple(AttentionCode)),
    ("print-attention", "attention of a print job", tuple(PrintAttentionCode)),
    ("problem", "problem in a reply to a till or a person", tuple(PROBLEMS)),
    ("log", "warning or error in the log", WARNINGS),
)


def situations(seen: Collection[str]) -> str:
    """Return a text with the number of known situations that occurred, and the names of the others."""
    lines = ["situations met, of those known, and never met"]
    for kind, about, values in KNOWN:
        unmet = [value for value in values if f"{kind}: {value}" not in seen]
        lines.append(f"  {about}: {len(values) - len(unmet)} of {len(values)}; never: {', '.join(unmet) or 'none'}")
    return "\n".join(lines)
