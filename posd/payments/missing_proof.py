"""Proof that a transaction in doubt never started. Only `concluded` decides this.

A search that finds nothing proves nothing alone. A terminal can lose its data in a power cut. The acquirer does not
know a payment while its terminal waits for a card. The search can read old data, and its path can be wrong. So
`not_started` is concluded only if all of these conditions hold:

1. The terminal never sent anything for the id: no acknowledgement, event, search hit or other callback (`heard`).
2. The transaction is in doubt from the first call to the last reply. So no call of its start is under way.
3. posd calls the device to which it sent the start, and no other device claims to be this terminal.
4. That terminal replies to an abort with "nothing is running". A search that is sent after that abort has the explicit
   result "none". (If a payment had ended before the abort, the search would find it.)
5. Both replies arrive a second time, in the same order. The second abort is sent at least `settle` seconds after the
   first search.
6. The same kind of search has found another transaction of this terminal before.
7. An operator vouches for both the search and the abort: by `confirmed` in the profile, or by commissioning the
   terminal (`terminals.identity`).

If a condition is missing, the transaction stays in doubt, and `missing` returns that condition for the operator.
`payments.schedule` counts the two rounds of conditions 4 and 5.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, assert_never

import msgspec
from msgspec import Meta

from posd.base.times import iso
from posd.payments.answers import NOTHING_RUNNING_STATUS
from posd.payments.model import Evidence, EvidenceKind, SearchResult
from posd.payments.schedule import NotStartedProof


class ProofCode(StrEnum):
    """Condition that is missing for the proof that a transaction never started (local API, `missing_proof`)."""

    WAS_ACKNOWLEDGED = "was_acknowledged"
    SEARCH_NOT_CONFIRMED = "search_not_confirmed"
    ABORT_NOT_CONFIRMED = "abort_not_confirmed"
    SEARCH_NEVER_FOUND_ANY = "search_never_found_any"
    IDENTITY_CONFLICT = "identity_conflict"
    TERMINAL_UNREACHABLE = "terminal_unreachable"
    ABORT_NOT_ASKED = "abort_not_asked"


class MissingProof(msgspec.Struct, frozen=True):
    """Condition that is missing for `not_started`, and how to meet it."""

    code: Annotated[ProofCode, Meta(description="the missing condition")]
    detail: Annotated[str, Meta(description="its meaning, and what to do")]


class DoubtFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Known facts about a transaction in doubt and its terminal."""

    heard: bool  # condition 1 does not hold, and cannot hold later
    search_confirmed: bool  # condition 7
    abort_confirmed: bool  # condition 7
    search_proven: bool  # condition 6
    conflict: bool  # condition 3 does not hold: two devices claim to be this terminal
    reachable: bool  # condition 3: the device to which the start was sent can be called
    idle: bool  # condition 5: the second abort had the answer "nothing is running"


#: Code -> function that returns whether the condition is missing. An operator should handle them in this order.
_LACKS: dict[ProofCode, Callable[[DoubtFacts], bool]] = {
    ProofCode.SEARCH_NOT_CONFIRMED: lambda facts: not facts.search_confirmed,
    ProofCode.ABORT_NOT_CONFIRMED: lambda facts: not facts.abort_confirmed,
    ProofCode.SEARCH_NEVER_FOUND_ANY: lambda facts: not facts.search_proven,
    ProofCode.IDENTITY_CONFLICT: lambda facts: facts.conflict,
    ProofCode.TERMINAL_UNREACHABLE: lambda facts: not facts.reachable,
    ProofCode.ABORT_NOT_ASKED: lambda facts: not facts.idle,
}


def missing(facts: DoubtFacts) -> tuple[ProofCode, ...]:
    """Return the missing conditions.

    If condition 1 does not hold, return only this condition, because it can never hold again.
    """
    if facts.heard:
        return (ProofCode.WAS_ACKNOWLEDGED,)
    return tuple(code for code, lacks in _LACKS.items() if lacks(facts))


def concluded(facts: DoubtFacts, rounds: NotStartedProof) -> bool:
    """Whether the proof is complete that the transaction never started."""
    return rounds.complete and not missing(facts)


def evidence(rounds: NotStartedProof, passed: float, wall: datetime) -> tuple[Evidence, ...]:
    """Return the evidence of the proof in order of time.

    `passed` (monotonic clock, s) and `wall` (wall clock) are the same moment.
    """
    asked = [
        *((at, EvidenceKind.ABORT) for at in (rounds.first_abort, rounds.second_abort)),
        *((at, EvidenceKind.SEARCH) for at in (rounds.first_none, rounds.second_none)),
    ]
    return tuple(
        Evidence(
            kind=kind,
            at=iso(wall - timedelta(seconds=passed - at)),
            status=NOTHING_RUNNING_STATUS if kind is EvidenceKind.ABORT else None,
            result=SearchResult.NONE if kind is EvidenceKind.SEARCH else None,
        )
        for at, kind in sorted((at, kind) for at, kind in asked if at is not None)
    )


class ProofContext(msgspec.Struct, frozen=True):
    """Values for the texts about missing conditions.

    `settle`: see condition 5. `probes`: whether posd sends aborts by itself. `abortable`: whether an abort may be sent.
    `control`: a payment that the acquirer decided; posd tries the search on it. None if there is none.
    """

    identity: str
    terminal: str
    settle: float
    probes: bool
    abortable: bool
    control: str | None = None


def explained(facts: DoubtFacts, told: ProofContext) -> tuple[MissingProof, ...]:
    """Return the missing conditions, each with its meaning and advice."""
    return tuple(MissingProof(code, detail(code, told)) for code in missing(facts))


def detail(code: ProofCode, told: ProofContext) -> str:
    """Return the meaning of a missing condition, and the advice to the operator."""
    identity, terminal = told.identity, told.terminal
    match code:
        case ProofCode.WAS_ACKNOWLEDGED:
            return (
                f"terminal {terminal} has reported about this payment, so posd never concludes that it did not "
                f"start. Ask how it ended: posd reconcile {identity}"
            )
        case ProofCode.SEARCH_NOT_CONFIRMED | ProofCode.ABORT_NOT_CONFIRMED:
            row = "search" if code is ProofCode.SEARCH_NOT_CONFIRMED else "abort"
            return (
                f"no operator has confirmed that {row} works on terminal {terminal}, so its answer proves nothing. "
                f"Test it when no payment is open there: posd terminals commission {terminal} "
                f"(or write confirmed = true under [profile.{row}] and reload posd)"
            )
        case ProofCode.SEARCH_NEVER_FOUND_ANY if told.control is not None:
            return (
                f"no search has found another payment of terminal {terminal} yet. Nothing to do now: posd searches for "
                f"{told.control} when the other conditions hold"
            )
        case ProofCode.SEARCH_NEVER_FOUND_ANY:
            return (
                f"no search has found another payment of terminal {terminal} yet, so an empty search proves nothing. "
                "If the terminal has run a payment before, also a canceled one, search for it: posd reconcile ITS_ID. "
                f"If not, record how this payment ended: posd resolve {identity} RESULT. After one complete payment "
                "there, posd can settle the next doubt by itself"
            )
        case ProofCode.IDENTITY_CONFLICT:
            return (
                f"two devices claim to be terminal {terminal}, so their answers prove nothing. Check both, and record "
                f"which one is the terminal: posd terminals identity {terminal}"
            )
        case ProofCode.TERMINAL_UNREACHABLE:
            return (
                f"terminal {terminal} cannot be reached at the address that got the payment. Switch it on and check "
                f"its network; posd asks again by itself"
            )
        case ProofCode.ABORT_NOT_ASKED if not told.abortable:
            return f"posd may send no abort, so it cannot ask whether terminal {terminal} runs anything: check it"
        case ProofCode.ABORT_NOT_ASKED if told.probes:
            return (
                f"terminal {terminal} has not yet answered twice, {told.settle:g} s apart, that it runs nothing. "
                "posd asks it by itself; wait"
            )
        case ProofCode.ABORT_NOT_ASKED:
            return (
                f"posd has not asked terminal {terminal} twice, {told.settle:g} s apart, whether it runs anything. Run "
                f"posd abort {identity}, then posd reconcile {identity}, and both again {told.settle:g} s later; "
                "or set probe_with_abort = true under [reconcile]"
            )
        case _:
            assert_never(code)
