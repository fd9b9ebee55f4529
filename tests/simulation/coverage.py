"""Situations that occurred in the runs, and known situations that did not occur.

A situation is a kind and a value. `World.seen` counts situations. The known values come from the product and from the
tables of the simulation.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from posd.base.problems import PROBLEMS
from posd.cli.explain.catalogue import events
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result
from posd.printing.model import PrintAttentionCode
from posd.records.model import Phase
from tests.simulation.habits import ABORTS, ENDS, EVENTS, REPLIES, SEARCHES
from tests.simulation.plan import MANNERS

#: Events that the daemon can log.
LINES = events()

Seen = Counter[tuple[str, str]]

_STATED: Final = ("event", "search", "operator")
#: Result -> kinds of the last evidence that the result can have.
_OUTCOMES: Final[Mapping[Result, tuple[str, ...]]] = {
    Result.APPROVED: _STATED,
    Result.DECLINED: _STATED,
    Result.REJECTED: _STATED,
    Result.CANCELED: _STATED,
    Result.NOT_STARTED: ("refusal", "unsent", "search", "operator"),
}

#: Prefixes of the log events of other processes.
OF_OTHERS: Final = ("relay.", "collect.", "metrics.not_served")

#: Kind -> description and all known values.
KNOWN: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "manner": ("behaviour of a till with a sale", tuple(MANNERS)),
    "end": ("end of a payment at the terminal", tuple(ENDS)),
    "reply": ("reply of a terminal to a start", tuple(REPLIES)),
    "events": ("arrival of a payment's events", tuple(EVENTS)),
    "search": ("result of a search", tuple(SEARCHES)),
    "abort": ("effect of an abort", tuple(ABORTS)),
    "event-answer": ("posd's reply to an event", ("200", "400", "403", "413", "503")),
    "phase": ("phase in a payment document", tuple(Phase)),
    "next_step": ("next_step in a payment document", tuple(NextStep)),
    "outcome": (
        "outcome that a till receives, with the last evidence",
        tuple(f"{result} {evidence}" for result, kinds in _OUTCOMES.items() for evidence in kinds),
    ),
    "evidence": ("evidence of an outcome", tuple(EvidenceKind)),
    "attention": ("attention of a payment", tuple(AttentionCode)),
    "print-attention": ("attention of a print job", tuple(PrintAttentionCode)),
    "problem": ("problem in a reply to a till or a person", tuple(PROBLEMS)),
    "log": (
        "warning or error in the log",
        tuple(
            name
            for name, line in LINES.items()
            if not {"warning", "error"}.isdisjoint(line.levels) and not name.startswith(OF_OTHERS)
        ),
    ),
}


def never(seen: Seen) -> dict[str, list[str]]:
    """Return, for each kind, the known values that occurred in no run."""
    met = {what for what, _ in seen}
    found = {kind: [value for value in values if f"{kind}: {value}" not in met] for kind, (_, values) in KNOWN.items()}
    return {kind: values for kind, values in found.items() if values}


def words(seen: Seen) -> str:
    """Return a text with the number of known situations that occurred, and the names of the others."""
    missed = never(seen)
    lines = ["situations met, of those known, and never met"]
    for kind, (about, values) in KNOWN.items():
        unmet = missed.get(kind, [])
        lines.append(f"  {about}: {len(values) - len(unmet)} of {len(values)}; never: {', '.join(unmet) or 'none'}")
    return "\n".join(lines)
