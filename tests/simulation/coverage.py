"""What the runs have met: each situation, and with which faults under way; and what they have never met.

A situation is a kind and a value, as `World.seen` counts it. What is known to exist is taken from the product and from
the lists of the world, so that what was never met shows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from posd.base.problems import PROBLEMS
from posd.logs.events import EVENTS as LINES
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result
from posd.printing.model import PrintAttentionCode
from posd.records.model import Phase
from tests.simulation.habits import ABORTS, ENDS, EVENTS, REPLIES, SEARCHES
from tests.simulation.plan import FAULTS, MANNERS

Seen = Counter[tuple[str, str]]

#: The columns: no fault, each kind of fault, and a night of several weeks.
COLUMNS: Final = ("none", *FAULTS, "night")

_STATED: Final = ("event", "search", "operator")
#: What an outcome can rest on, at the end of its evidence.
_OUTCOMES: Final[Mapping[Result, tuple[str, ...]]] = {
    Result.APPROVED: _STATED,
    Result.DECLINED: _STATED,
    Result.REJECTED: _STATED,
    Result.CANCELED: _STATED,
    Result.NOT_STARTED: ("refusal", "unsent", "search", "operator"),
}

#: Kind -> what it is, and all values that are known.
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
        tuple(name for name, line in LINES.items() if not {"warning", "error"}.isdisjoint(line.levels)),
    ),
}


def never(seen: Seen) -> dict[str, list[str]]:
    """Return the known values of each kind that were never met."""
    met = {what for what, _ in seen}
    found = {kind: [value for value in values if f"{kind}: {value}" not in met] for kind, (_, values) in KNOWN.items()}
    return {kind: values for kind, values in found.items() if values}


def words(seen: Seen) -> str:
    """Tell for people in how many situations which faults were met, and what was never met."""
    lines = ["situations met, of those known; pairs with a fault under way"]
    for kind, (about, values) in KNOWN.items():
        met = [value for value in values if _counts(seen, kind, value)]
        pairs = sum(seen[f"{kind}: {value}", fault] > 0 for value in values for fault in FAULTS)
        lines.append(
            f"  {kind:16} {len(met):>3} of {len(values):<3}  pairs {pairs:>4} of {len(values) * len(FAULTS):<5} {about}"
        )
    lines.append("never met")
    lines += [f"  {kind:16} {', '.join(values)}" for kind, values in never(seen).items()]
    return "\n".join(lines)


def markdown(seen: Seen) -> str:
    """Return all counts as tables: a row for each situation, a column for each kind of fault that was under way."""
    return "\n".join(_markdown(seen)) + "\n"


def _markdown(seen: Seen) -> Iterator[str]:
    yield "How often each situation was met, and with which faults under way, or just over; `none`: without."
    for kind, (about, known) in KNOWN.items():
        others = {what.partition(": ")[2] for what, _ in seen if what.startswith(f"{kind}: ")} - set(known)
        yield f"\n**{kind}**: {about}\n"
        yield f"| {kind} | all | {' | '.join(COLUMNS)} |"
        yield f"| --- |{' ---: |' * (len(COLUMNS) + 1)}"
        for value in (*known, *sorted(others)):
            counts = " | ".join(str(seen[f"{kind}: {value}", fault]) for fault in COLUMNS)
            yield f"| `{value}` | {_counts(seen, kind, value)} | {counts} |"
    yield "\n**Never met**\n"
    yield "| kind | values |"
    yield "| --- | --- |"
    for kind, values in never(seen).items():
        yield f"| {kind} | {', '.join(f'`{value}`' for value in values)} |"


def _counts(seen: Seen, kind: str, value: str) -> int:
    """Return how often it was met at all: `none` counts it without a fault, an empty fault with one or more."""
    return seen[f"{kind}: {value}", "none"] + seen[f"{kind}: {value}", ""]
