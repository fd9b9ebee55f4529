"""What may be derived from what: the whole table, and every small chain."""

from itertools import product

import msgspec
import pytest

from posd.payments.model import OperationType, Result, Transaction
from posd.payments.operations import Misfit, in_the_way, misfit, reference
from posd.payments.transitions import Seen, advance, conclude_start, resolved
from posd.terminals.attempt import Refused
from tests.core.inputs import content, event
from tests.core.scenarios import ACK, CANCELED, CARD, NOW, REJECTED, REQUESTED, read, starting
from tests.support.tables import every

CHARGE, PRE_AUTH, RE_AUTH = OperationType.CHARGE, OperationType.PRE_AUTH, OperationType.RE_AUTH
CAPTURE, POST_TIP, VOID = OperationType.CAPTURE, OperationType.POST_TIP, OperationType.VOID
FITS = {(PRE_AUTH, RE_AUTH), (PRE_AUTH, CAPTURE), (PRE_AUTH, VOID), (CHARGE, POST_TIP), (CHARGE, VOID), (CAPTURE, VOID)}
DERIVED = (RE_AUTH, CAPTURE, POST_TIP, VOID)
STATES = ("open", "in_doubt", "approved", "approved by a person", "declined", "rejected", "canceled", "not_started")


def in_state(kind: OperationType | None, state: str, number: int = 1, **fields: object) -> Transaction:
    """Make a transaction that came to this state by its own inputs; its reference is `reference NUMBER`."""
    identity = f"00000000-0000-4000-8000-{number:012}"
    transaction = msgspec.structs.replace(starting(type=kind, **fields), client_transaction_id=identity)
    finals = {"declined": "DECLINED", "rejected": REJECTED, "canceled": CANCELED}
    match state:
        case "open":
            return event(content(CARD, ACK)).apply(transaction)
        case "in_doubt":
            return transaction
        case "not_started":
            return conclude_start(transaction, Refused(409, "busy"), NOW)
        case "approved by a person":
            return resolved(transaction, Result.APPROVED, "Ana", "slip", f"reference {number}", NOW)
        case "approved" | "approved without":
            given = {"transaction_reference": f"reference {number}", "ticket_number": "000001"}
            answer = given if state == "approved" else {"ticket_number": "000001"}
            final = read(content("APPROVAL", REQUESTED, raw_response=answer))
            return advance(transaction, final, seen=Seen.NEW, now=NOW)[0]
        case _:
            return event(content(finals[state], CARD)).apply(transaction)


@every("kind", DERIVED)
@every("of", [*OperationType, None])
@every("state", STATES)
def test_only_an_approved_original_of_a_fitting_type_is_taken(
    kind: OperationType, of: OperationType | None, state: str
) -> None:
    original = in_state(of, state)
    fits = (of, kind) in FITS and state.startswith("approved")
    said = misfit(kind, original)
    assert (said is None) is fits
    if said is not None:
        assert original.client_transaction_id in said
        assert ("is for a" in said) is ((of, kind) not in FITS)
        assert (of, kind) not in FITS or ("still open" if state in ("open", "in_doubt") else f"as {state}") in said


@pytest.mark.parametrize("kind", DERIVED)
def test_by_its_reference_a_re_authorization_stands_for_its_pre_authorization(kind: OperationType) -> None:
    re_auth = in_state(RE_AUTH, "approved")
    assert (misfit(kind, re_auth, by_reference=True) is None) is ((PRE_AUTH, kind) in FITS)
    assert misfit(kind, re_auth) is not None


RE_AUTHS = [(), *(states for count in (1, 2, 3) for states in product(("approved", "declined", "open"), repeat=count))]


@every("kind", [CAPTURE, VOID, RE_AUTH])
@every("states", RE_AUTHS, ids=str)
def test_which_reference_is_sent(kind: OperationType, states: tuple[str, ...]) -> None:
    """A capture and a void take that of the newest approved re-authorization, a re-authorization the original's."""
    original = in_state(PRE_AUTH, "approved", 1)
    derived = [in_state(RE_AUTH, state, number) for number, state in enumerate(states, 2)]
    others = [in_state(VOID, "declined", 90), in_state(CAPTURE, "canceled", 91), in_state(CAPTURE, "approved", 92)]
    approved = [number for number, state in enumerate(states, 2) if state == "approved"]
    newest = approved[-1] if approved and kind is not RE_AUTH else 1
    assert reference(kind, original, [*derived, *others]) == f"reference {newest}"


@pytest.mark.parametrize("kind", DERIVED)
def test_an_approval_without_a_reference_is_not_guessed_around(kind: OperationType) -> None:
    original = in_state(PRE_AUTH, "approved without", 1)
    with pytest.raises(Misfit, match="000000000001 was approved without a transaction_reference"):
        reference(kind, original, [])
    if kind in (CAPTURE, VOID):
        with pytest.raises(Misfit, match="000000000002 was approved without"):
            reference(kind, in_state(PRE_AUTH, "approved", 1), [in_state(RE_AUTH, "approved without", 2)])


UNDECIDED = {"open", "in_doubt"}
BLOCKS = {
    RE_AUTH: {RE_AUTH: UNDECIDED},
    CAPTURE: {CAPTURE: UNDECIDED | {"approved", "approved by a person"}, RE_AUTH: UNDECIDED},
    POST_TIP: {POST_TIP: UNDECIDED | {"approved", "approved by a person"}},
    VOID: {VOID: UNDECIDED | {"approved", "approved by a person"}, RE_AUTH: UNDECIDED},
}


@every("kind", OperationType)
@every("other", OperationType)
@every("state", STATES)
def test_what_stands_in_the_way_of_paying_twice(kind: OperationType, other: OperationType, state: str) -> None:
    sibling = in_state(other, state)
    blocks = state in BLOCKS.get(kind, {}).get(other, set())
    assert in_the_way(kind, [sibling]) == ([sibling] if blocks else [])


def test_a_sibling_with_two_finals_stands_in_the_way_until_a_person_has_looked() -> None:
    sibling = in_state(CAPTURE, "declined")
    approval = read(content("APPROVAL", REQUESTED, event_id="0b7d2a8e-3333-4d7c-9d55-0f6b1c2a9e11"))
    conflicting, _ = advance(sibling, approval, seen=Seen.NEW, now=NOW)
    assert in_the_way(CAPTURE, [sibling, conflicting]) == [conflicting]
