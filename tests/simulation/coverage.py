"""Situations that the runs have met, and known situations that they have not met.

A situation is a kind and a value, as `World.seen` counts it. The known values come from the product and from the tables
of the simulation.
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
#: Result -> last parts of the evidence that it can have.
_OUTCOMES: Final[Mapping[Result, tuple[str, ...]]] = {
    Result.APPROVED: _STATED,
    Result.DECLINED: _STATED,
    Result.REJECTED: _STATED,
    Result.CANCELED: _STATED,
    Result.NOT_STARTED: ("refusal", "unsent", "search", "operator"),
}

#: Log events of other processes than the daemon.
OF_OTHERS: Final = ("relay.", "collect.", "metrics.not_served")

#: Kind -> its description, and all known values.
KNOWN: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "manner": ("what a till does with a sale", tuple(MANNERS)),
    "end": ("how the terminal means to end a payment", tuple(ENDS)),
    "reply": ("how a terminal answers a start", tuple(REPLIES)),
    "events": ("how its events come", tuple(EVENTS)),
    "search": ("what a search finds", tuple(SEARCHES)),
    "abort": ("what an abort does", tuple(ABORTS)),
    "event-answer": ("what posd answers to an event", ("200", "400", "403", "413", "503")),
    "phase": ("phase of a payment that is read", tuple(Phase)),
    "next_step": ("next_step that is read", tuple(NextStep)),
    "outcome": (
        "outcome that a till hears, and its last evidence",
        tuple(f"{result} {evidence}" for result, kinds in _OUTCOMES.items() for evidence in kinds),
    ),
    "evidence": ("evidence of an outcome", tuple(EvidenceKind)),
    "attention": ("attention of a payment", tuple(AttentionCode)),
    "print-attention": ("attention of a print job", tuple(PrintAttentionCode)),
    "problem": ("problem that a till or a person is answered", tuple(PROBLEMS)),
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
    """Return the known values of each kind that the runs never met."""
    met = {what for what, _ in seen}
    found = {kind: [value for value in values if f"{kind}: {value}" not in met] for kind, (_, values) in KNOWN.items()}
    return {kind: values for kind, values in found.items() if values}


def words(seen: Seen) -> str:
    """Return a text with the share of known situations that were met, and those that never were."""
    missed = never(seen)
    lines = ["situations met, of those known, and never met"]
    for kind, (about, values) in KNOWN.items():
        unmet = missed.get(kind, [])
        lines.append(f"  {about}: {len(values) - len(unmet)} of {len(values)}; never: {', '.join(unmet) or 'none'}")
    return "\n".join(lines)
