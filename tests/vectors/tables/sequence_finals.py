"""Two finals, finals against the spec's table, strange approvals (design 5, finals that disagree)."""

from collections.abc import Sequence
from typing import Any

from tests.vectors.case import Case
from tests.vectors.tables.sequence_steps import APPROVED, OUTCOMES, event, outcome_of, sequence, stands, start
from tests.vectors.wire import ACK, CANCELED, REJECTED, REQUESTED, SECOND_REFERENCE


def cases() -> list[Case]:
    """Return two finals, and ends that the spec's table does not have."""
    source = "design 5 (finals that disagree); spec 3.1 rules 1 and 2"
    found: list[Case] = []

    def add(
        name: str,
        about: str,
        names: Sequence[str],
        outcome: dict[str, Any],
        *attention: str,
        verdicts: Sequence[str],
        ask: bool = False,
    ) -> None:
        expect = stands(outcome["status"], outcome, attention, verdicts, next_step="ask_person" if ask else None)
        found.append(sequence(f"final-{name}", about, [start(), *map(event, names)], expect, source))

    yes, after, clash = "applied", "after_final", "conflicting_final"
    open_ = [yes, yes, yes]
    other = "valid-approval-another-reference"
    add(
        "approval-twice-references",
        "two approvals with two references: taken twice?",
        ["A", "C", "R", "F", other],
        APPROVED,
        clash,
        verdicts=[*open_, yes, after],
        ask=True,
    )
    add(
        "approval-twice-references-swapped",
        "the same, the other one first",
        ["A", "C", "R", other, "F"],
        APPROVED | {"transaction_reference": SECOND_REFERENCE},
        clash,
        verdicts=[*open_, yes, after],
        ask=True,
    )
    add(
        "approval-twice-same",
        "the same approval under two event_ids: one final",
        ["A", "C", "R", "F", "valid-approval-again"],
        APPROVED,
        verdicts=[*open_, yes, after],
    )
    add(
        "approval-then-declined",
        "approved, then declined",
        ["A", "C", "R", "F", "D"],
        APPROVED,
        clash,
        verdicts=[*open_, yes, after],
        ask=True,
    )
    add(
        "declined-then-approval",
        "declined, then approved",
        ["A", "C", "R", "D", "F"],
        OUTCOMES["D"],
        clash,
        verdicts=[*open_, yes, after],
        ask=True,
    )
    add(
        "declined-twice",
        "declined under two event_ids with two codes: one final",
        ["A", "C", "R", "D", "valid-declined-again"],
        OUTCOMES["D"],
        verdicts=[*open_, yes, after],
    )
    add(
        "canceled-twice",
        "canceled under two event_ids: one final",
        ["A", "X", "valid-canceled-again"],
        OUTCOMES["X"],
        verdicts=[yes, yes, after],
    )
    add(
        "canceled-then-approval",
        "canceled, then approved: the acquirer was asked after all",
        ["A", "X", "F"],
        OUTCOMES["X"] | {"reached_acquirer": None},
        clash,
        verdicts=[yes, yes, after],
        ask=True,
    )
    add(
        "approval-then-canceled",
        "approved, then canceled",
        ["A", "C", "R", "F", "X"],
        APPROVED,
        clash,
        verdicts=[*open_, yes, after],
        ask=True,
    )
    add(
        "canceled-then-rejected",
        "canceled, then rejected",
        ["A", "X", "J"],
        OUTCOMES["X"],
        clash,
        verdicts=[yes, yes, after],
        ask=True,
    )
    add(
        "rejected-then-approval",
        "rejected, then approved",
        ["A", "C", "K", "F"],
        OUTCOMES["K"] | {"reached_acquirer": None},
        clash,
        verdicts=[yes, yes, yes, after],
        ask=True,
    )
    illegal = "illegal_transition"
    canceled, rejected = outcome_of("canceled", CANCELED, reached=None), outcome_of("rejected", REJECTED, reached=None)
    add(
        "canceled-after-request",
        "canceled after the point of no return: applied, and nobody knows what the acquirer did",
        ["A", "C", "R", "valid-canceled-after-request"],
        canceled,
        illegal,
        verdicts=[*open_, yes],
        ask=True,
    )
    add(
        "rejected-after-request",
        "rejected after the point of no return",
        ["A", "C", "R", "valid-rejected-after-request"],
        rejected,
        illegal,
        verdicts=[*open_, yes],
        ask=True,
    )
    add(
        "canceled-after-request-lost",
        "the same, and the request's event is lost",
        ["A", "C", "valid-canceled-after-request"],
        canceled,
        illegal,
        "gap",
        verdicts=[yes, yes, yes],
        ask=True,
    )
    add(
        "canceled-then-requested",
        "the acquirer was asked after the cancellation, or the events are in disorder",
        ["A", "C", "Y", "R"],
        canceled,
        illegal,
        verdicts=[yes, yes, yes, after],
        ask=True,
    )
    add(
        "rejected-then-requested",
        "the same after a rejection",
        ["A", "C", "K", "R"],
        rejected,
        illegal,
        verdicts=[yes, yes, yes, after],
        ask=True,
    )
    add(
        "no-previous",
        "the final names no previous state, and none is missing",
        ["A", "C", "R", "valid-approval-no-previous"],
        APPROVED,
        verdicts=[*open_, yes],
    )
    add(
        "no-previous-lost",
        "the final names no previous state, and the request's event is lost",
        ["A", "C", "valid-approval-no-previous"],
        APPROVED,
        "gap",
        verdicts=[yes, yes, yes],
    )
    add(
        "other-amount",
        "10.00 authorized, 11.20 asked for",
        ["A", "C", "R", "valid-approval-other-amount"],
        APPROVED,
        "amount_differs",
        verdicts=[*open_, yes],
    )
    add(
        "tip",
        "12.70 authorized: 11.20 and a tip of 1.50",
        ["A", "C", "R", "valid-approval-tip"],
        APPROVED,
        verdicts=[*open_, yes],
    )
    for literal in ("1e400", "text-comma", "text-nan"):
        add(
            f"amount-{literal}",
            "the authorized amount is none: there is nothing to compare",
            ["A", "C", "R", f"number-{literal}"],
            APPROVED,
            verdicts=[*open_, yes],
        )
    for literal in ("negative", "zero", "binary-trap", "beyond-float"):
        add(
            f"amount-{literal}",
            "another amount was authorized",
            ["A", "C", "R", f"number-{literal}"],
            APPROVED,
            "amount_differs",
            verdicts=[*open_, yes],
        )
    add(
        "amount-text",
        "the authorized amount as a text, the same",
        ["A", "C", "R", "number-text"],
        APPROVED,
        verdicts=[*open_, yes],
    )
    add(
        "amount-exponent",
        "the authorized amount with an exponent, the same",
        ["A", "C", "R", "number-exponent-places"],
        APPROVED,
        verdicts=[*open_, yes],
    )
    add(
        "no-raw-response",
        "approved without the acquirer's response",
        ["A", "C", "R", "absent-raw-response"],
        APPROVED | {"transaction_reference": None, "reached_acquirer": None},
        "missing_reference",
        verdicts=[*open_, yes],
    )
    add(
        "no-reference",
        "approved without a reference",
        ["A", "C", "R", "absent-raw-response-transaction-reference"],
        APPROVED | {"transaction_reference": None},
        "missing_reference",
        verdicts=[*open_, yes],
    )
    add(
        "second-terminal",
        "another terminal of the fleet states the end",
        ["A", "C", "R", "valid-approval-second-terminal"],
        APPROVED,
        "serial_mismatch",
        verdicts=[*open_, yes],
    )
    found.append(
        sequence(
            "unknown-status",
            "a state that the spec does not have: kept, moves nothing",
            [start(), *map(event, "ACR"), event("status-new")],
            stands(REQUESTED, None, ["unknown_status"], [*open_, "unknown_status"]),
            "design 5",
        )
    )
    found.append(
        sequence(
            "unknown-status-lower-case",
            "a final in lower case is no final",
            [start(), *map(event, "ACR"), event("status-lower-case")],
            stands(REQUESTED, None, ["unknown_status"], [*open_, "unknown_status"]),
            "design 5 (names are never normalised)",
        )
    )
    found.append(
        sequence(
            "second-terminal-first",
            "another terminal of the fleet has it",
            [start(), event("valid-acknowledged-second-terminal")],
            stands(ACK, None, ["serial_mismatch"], [yes]),
            "design 5, 6",
        )
    )
    return found
