"""What the runs have met: each situation, and with which faults under way; and what they have never met.

A situation is a kind and a value, as `World.seen` counts it. What is known to exist is taken from the product and from
the lists of the world, so that what was never met shows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from posd.base.problems import PROBLEMS
from posd.cli.explain.events import EVENTS as LINES
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

#: What other processes than the daemon say.
OF_OTHERS: Final = ("relay.", "collect.", "metrics.not_served")

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
        tuple(
            name
            for name, line in LINES.items()
            if not {"warning", "error"}.isdisjoint(line.levels) and not name.startswith(OF_OTHERS)
        ),
    ),
}

_FAULT: Final = "a fault where it comes: the run fails by it"
_PROCESS: Final = "said by the process around what is simulated, or by its watchdog"
_DAMAGE: Final = "nothing of the simulated disk damages a file that was synced (tests/store and tests/e2e do)"
_CERTIFICATE: Final = (
    "nothing is done to the certificate's files, and each renewal succeeds (tests/e2e/test_certificates.py)"
)
#: What cannot be met, and why.
WHY: Final[Mapping[str, str]] = {
    "phase: starting": "over before the call that starts it is answered",
    "problem: expired": "no till here says until when a start is wanted",
    "problem: clock_unsure": "asked of payments on signed terminals and of a prune by a person alone",
    "problem: not_configured": "the profile is the default one",
    "problem: queue_full": "so many print jobs never wait",
    "problem: limit_reached": "tills keep within their connections; a crowd beside them is not a till",
    "problem: request_timeout": "tills send their bodies at once",
    "problem: internal_error": _FAULT,
    "log: posd.internal_error": _FAULT,
    "log: posd.library": _FAULT,
    "log: posd.crashed": _PROCESS,
    "log: posd.cannot_start": _PROCESS,
    "log: posd.hung": _PROCESS,
    "log: log.collapsed": "the log is taken before it is written",
    "log: config.needs_restart": "what is reloaded is the same configuration, or one that is refused",
    "log: payment.not_readable": _DAMAGE,
    "log: print.not_readable": _DAMAGE,
    "log: store.damaged": _DAMAGE,
    "log: store.difference": "logged by `posd reprocess`, which is not called here",
    "log: store.file_moved": "the file is exchanged while posd is away alone",
    "log: store.backups_unusable": "no backups are rotated here",
    "log: metrics.not_written": "no metrics are written to a file here",
    "log: metrics.failed": _FAULT,
    "log: listener.distrusted": "terminals that check the certificate have it",
    "log: listener.no_answer": "the self-test of the process is not simulated",
    "log: certificate.not_renewed": _CERTIFICATE,
    "log: certificate.refused": _CERTIFICATE,
    "log: certificate.ends": _CERTIFICATE,
    "log: certificate.ca_lost": _CERTIFICATE,
    "log: terminal.commission_lapsed": "no terminal is commissioned here",
    "log: discovery.unavailable": "zeroconf is not simulated",
    "log: interfaces.unreadable": "the addresses can always be read",
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
        met, pairs = _met(seen, kind, values)
        most = len(values) * len(COLUMNS[1:])
        lines.append(f"  {kind:16} {met:>3} of {len(values):<3}  pairs {pairs:>4} of {most:<5} {about}")
    lines.append("never met")
    lines += [f"  {kind:16} {', '.join(values)}" for kind, values in never(seen).items()]
    return "\n".join(lines)


def markdown(seen: Seen) -> str:
    """Return all counts as tables: a row for each situation, a column for each kind of fault that was under way."""
    return "\n".join(_markdown(seen)) + "\n"


def _markdown(seen: Seen) -> Iterator[str]:
    yield "How often each situation was met, and with which faults under way, or just over; `none`: without."
    yield ""
    yield from summary(seen)
    for kind, (about, known) in KNOWN.items():
        others = {what.partition(": ")[2] for what, _ in seen if what.startswith(f"{kind}: ")} - set(known)
        yield f"\n**{kind}**: {about}\n"
        yield f"| {kind} | all | {' | '.join(COLUMNS)} |"
        yield f"| --- |{' ---: |' * (len(COLUMNS) + 1)}"
        for value in (*known, *sorted(others)):
            counts = " | ".join(str(seen[f"{kind}: {value}", fault]) for fault in COLUMNS)
            yield f"| `{value}` | {_counts(seen, kind, value)} | {counts} |"
    yield "\n**Never met**\n"
    yield from never_met(seen)


def never_met(seen: Seen) -> Iterator[str]:
    """Yield the lines of a table of what was never met, and why."""
    yield "| kind | value | why |"
    yield "| --- | --- | --- |"
    for kind, values in never(seen).items():
        for value in values:
            yield f"| {kind} | `{value}` | {WHY.get(f'{kind}: {value}', 'rare: nothing stands against it')} |"


def summary(seen: Seen) -> Iterator[str]:
    """Yield the lines of a table of how much was met of what is known."""
    yield "| what | met | of | pairs with a fault | of |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for kind, (about, values) in KNOWN.items():
        met, pairs = _met(seen, kind, values)
        yield f"| {about} | {met} | {len(values)} | {pairs:,} | {len(values) * len(COLUMNS[1:]):,} |"


def _met(seen: Seen, kind: str, values: Sequence[str]) -> tuple[int, int]:
    """Return how many of the values were met, and in how many pairs with a kind of fault."""
    met = sum(_counts(seen, kind, value) > 0 for value in values)
    return met, sum(seen[f"{kind}: {value}", fault] > 0 for value in values for fault in COLUMNS[1:])


def _counts(seen: Seen, kind: str, value: str) -> int:
    """Return how often it was met at all: `none` counts it without a fault, an empty fault with one or more."""
    return seen[f"{kind}: {value}", "none"] + seen[f"{kind}: {value}", ""]
