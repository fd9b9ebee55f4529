"""Two finals, finals against the spec's table, strange approvals (design 5, finals that disagree)."""

from typing import Any

from tests.vectors.case import Case
from tests.vectors.tables.sequence_steps import APPROVED, OUTCOMES, event, outcome_of, sequence, stands, start
from tests.vectors.wire import ACK, CANCELED, REJECTED, REQUESTED, SECOND_REFERENCE

CLASH, ILLEGAL = "conflicting_final", "illegal_transition"
CANCELED_LATE = outcome_of("canceled", CANCELED, reached=None)
REJECTED_LATE = outcome_of("rejected", REJECTED, reached=None)

#: Name, what it is about, the events (behind the bar: those that come after the end), the outcome, what has attention.
FINALS: list[tuple[Any, ...]] = [
    (
        "approval-twice-references",
        "two approvals with two references: taken twice?",
        "A C R F | valid-approval-another-reference",
        APPROVED,
        CLASH,
    ),
    (
        "approval-twice-references-swapped",
        "the same, the other one first",
        "A C R valid-approval-another-reference | F",
        APPROVED | {"transaction_reference": SECOND_REFERENCE},
        CLASH,
    ),
    (
        "approval-twice-same",
        "the same approval under two event_ids: one final",
        "A C R F | valid-approval-again",
        APPROVED,
    ),
    ("approval-then-declined", "approved, then declined", "A C R F | D", APPROVED, CLASH),
    ("declined-then-approval", "declined, then approved", "A C R D | F", OUTCOMES["D"], CLASH),
    (
        "declined-twice",
        "declined under two event_ids with two codes: one final",
        "A C R D | valid-declined-again",
        OUTCOMES["D"],
    ),
    ("canceled-twice", "canceled under two event_ids: one final", "A X | valid-canceled-again", OUTCOMES["X"]),
    (
        "canceled-then-approval",
        "canceled, then approved: the acquirer was asked after all",
        "A X | F",
        OUTCOMES["X"] | {"reached_acquirer": None},
        CLASH,
    ),
    ("approval-then-canceled", "approved, then canceled", "A C R F | X", APPROVED, CLASH),
    ("canceled-then-rejected", "canceled, then rejected", "A X | J", OUTCOMES["X"], CLASH),
    (
        "rejected-then-approval",
        "rejected, then approved",
        "A C K | F",
        OUTCOMES["K"] | {"reached_acquirer": None},
        CLASH,
    ),
    (
        "canceled-after-request",
        "canceled after the point of no return: applied, and it is not known what the acquirer did",
        "A C R valid-canceled-after-request",
        CANCELED_LATE,
        ILLEGAL,
    ),
    (
        "rejected-after-request",
        "rejected after the point of no return",
        "A C R valid-rejected-after-request",
        REJECTED_LATE,
        ILLEGAL,
    ),
    (
        "canceled-after-request-lost",
        "the same, and the request's event is lost",
        "A C valid-canceled-after-request",
        CANCELED_LATE,
        ILLEGAL,
        "gap",
    ),
    (
        "canceled-then-requested",
        "the acquirer was asked after the cancellation, or the events are in disorder",
        "A C Y | R",
        CANCELED_LATE,
        ILLEGAL,
    ),
    ("rejected-then-requested", "the same after a rejection", "A C K | R", REJECTED_LATE, ILLEGAL),
    (
        "no-previous",
        "the final names no previous state, and none is missing",
        "A C R valid-approval-no-previous",
        APPROVED,
    ),
    (
        "no-previous-lost",
        "the final names no previous state, and the request's event is lost",
        "A C valid-approval-no-previous",
        APPROVED,
        "gap",
    ),
    (
        "other-amount",
        "10.00 authorized, 11.20 asked for",
        "A C R valid-approval-other-amount",
        APPROVED,
        "amount_differs",
    ),
    ("tip", "12.70 authorized: 11.20 and a tip of 1.50", "A C R valid-approval-tip", APPROVED),
    (
        "amount-1e400",
        "the authorized amount is none: there is nothing to compare",
        "A C R number-1e400",
        APPROVED,
        "damaged_event",
    ),
    (
        "amount-text-comma",
        "the authorized amount is none: there is nothing to compare",
        "A C R number-text-comma",
        APPROVED,
        "damaged_event",
    ),
    (
        "amount-text-nan",
        "the authorized amount is none: there is nothing to compare",
        "A C R number-text-nan",
        APPROVED,
        "damaged_event",
    ),
    ("amount-negative", "another amount was authorized", "A C R number-negative", APPROVED, "amount_differs"),
    ("amount-zero", "another amount was authorized", "A C R number-zero", APPROVED, "amount_differs"),
    ("amount-binary-trap", "another amount was authorized", "A C R number-binary-trap", APPROVED, "amount_differs"),
    ("amount-beyond-float", "another amount was authorized", "A C R number-beyond-float", APPROVED, "amount_differs"),
    ("amount-text", "the authorized amount as a text, the same", "A C R number-text", APPROVED),
    ("amount-exponent", "the authorized amount with an exponent, the same", "A C R number-exponent-places", APPROVED),
    (
        "no-raw-response",
        "approved without the acquirer's response",
        "A C R absent-raw-response",
        APPROVED | {"transaction_reference": None, "reached_acquirer": None},
        "missing_reference",
    ),
    (
        "no-reference",
        "approved without a reference",
        "A C R absent-raw-response-transaction-reference",
        APPROVED | {"transaction_reference": None},
        "missing_reference",
    ),
    (
        "second-terminal",
        "another terminal of the fleet states the end",
        "A C R valid-approval-second-terminal",
        APPROVED,
        "serial_mismatch",
    ),
]


def _final(name: str, about: str, steps: str, outcome: dict[str, Any], *attention: str) -> Case:
    """Return two finals, or an end that the spec's table does not have: finals that disagree are for a person."""
    before, _, behind = (part.split() for part in steps.partition("|"))
    verdicts = ["applied"] * len(before) + ["after_final"] * len(behind)
    next_step = "ask_person" if {CLASH, ILLEGAL} & set(attention) else None
    expect = stands(outcome["status"], outcome, attention, verdicts, next_step=next_step)
    source = "design 5 (finals that disagree); spec 3.1 rules 1 and 2"
    return sequence(f"final-{name}", about, [start(), *map(event, before + behind)], expect, source)


def cases() -> list[Case]:
    """Return two finals, and ends that the spec's table does not have."""
    open_ = ["applied"] * 3
    return [
        *(_final(*row) for row in FINALS),
        sequence(
            "unknown-status",
            "a state that the spec does not have: kept, moves nothing",
            [start(), *map(event, "ACR"), event("status-new")],
            stands(REQUESTED, None, ["unknown_status"], [*open_, "unknown_status"]),
            "design 5",
        ),
        sequence(
            "unknown-status-lower-case",
            "a final in lower case is no final",
            [start(), *map(event, "ACR"), event("status-lower-case")],
            stands(REQUESTED, None, ["unknown_status"], [*open_, "unknown_status"]),
            "design 5 (names are never normalised)",
        ),
        sequence(
            "second-terminal-first",
            "another terminal of the fleet has it",
            [start(), event("valid-acknowledged-second-terminal")],
            stands(ACK, None, ["serial_mismatch"], ["applied"]),
            "design 5, 6",
        ),
    ]
