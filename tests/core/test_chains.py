"""Permitted derivations: the whole table, and every small chain."""

from itertools import product
from pathlib import Path

import msgspec
import pytest

from posd.base.operations import OPERATIONS, OperationType
from posd.payments.model import Result, Transaction
from posd.payments.operations import in_the_way, misfit, source_of
from posd.payments.transitions import RepeatedEvent, advance, conclude_start, resolved
from posd.terminals.attempt import StartRefused
from tests.core.inputs import content, event
from tests.core.scenarios import ACK, CANCELED, CARD, NOW, REJECTED, REQUESTED, read, starting
from tests.rig.tables import every, there

CHARGE, PRE_AUTH, RE_AUTH = OperationType.CHARGE, OperationType.PRE_AUTH, OperationType.RE_AUTH
CAPTURE, POST_TIP = OperationType.CAPTURE, OperationType.POST_TIP
VOID, REFUND = OperationType.VOID, OperationType.REFUND
FITS = {
    *((PRE_AUTH, kind) for kind in (RE_AUTH, CAPTURE, VOID)),
    *((original, kind) for original in (CHARGE, CAPTURE) for kind in (POST_TIP, REFUND, VOID)),
}
DERIVED = tuple(kind for kind in OperationType if OPERATIONS[kind].originals)
STATES = ("open", "in_doubt", "approved", "approved by a person", "declined", "rejected", "canceled", "not_started")


def in_state(kind: OperationType | None, state: str, number: int = 1, **fields: object) -> Transaction:
    """Return a transaction in this state, reached by inputs. The transaction's reference is `reference NUMBER`."""
    identity = f"00000000-0000-4000-8000-{number:012}"
    transaction = msgspec.structs.replace(starting(type=kind, **fields), client_transaction_id=identity)
    finals = {"declined": "DECLINED", "rejected": REJECTED, "canceled": CANCELED}
    match state:
        case "open":
            return event(content(CARD, ACK)).apply(transaction)
        case "in_doubt":
            return transaction
        case "not_started":
            return conclude_start(transaction, StartRefused(409, "busy"), NOW)
        case "approved by a person":
            return resolved(transaction, Result.APPROVED, "Ana", "slip", f"reference {number}", NOW)
        case "approved" | "approved without":
            given = {"transaction_reference": f"reference {number}", "ticket_number": "000001"}
            answer = given if state == "approved" else {"ticket_number": "000001"}
            final = read(content("APPROVAL", REQUESTED, raw_response=answer))
            return advance(transaction, final, seen=RepeatedEvent.NEW, now=NOW)[0]
        case _:
            return event(content(finals[state], CARD)).apply(transaction)


@every("kind", DERIVED)
@every("of", [*OperationType, None])
@every("state", STATES)
def test_only_an_approved_original_of_a_fitting_type_is_accepted(
    kind: OperationType, of: OperationType | None, state: str
) -> None:
    original = in_state(of, state)
    fits = (of, kind) in FITS and state.startswith("approved")
    said = misfit(kind, original)
    assert (said is None) is fits
    assert of is RE_AUTH or misfit(kind, original, by_reference=True) == said
    if said is not None:
        assert original.client_transaction_id in said
        assert ("is for a" in said) is ((of, kind) not in FITS)
        assert (of, kind) not in FITS or ("still open" if state in ("open", "in_doubt") else f"as {state}") in said


@pytest.mark.parametrize("kind", DERIVED)
def test_a_reference_of_a_re_authorization_stands_for_its_pre_authorization(kind: OperationType) -> None:
    re_auth = in_state(RE_AUTH, "approved")
    assert (misfit(kind, re_auth, by_reference=True) is None) is ((PRE_AUTH, kind) in FITS)
    assert misfit(kind, re_auth) is not None


RE_AUTHS = [(), *(states for count in (1, 2, 3) for states in product(("approved", "declined", "open"), repeat=count))]


@every("kind", [CAPTURE, VOID, RE_AUTH])
@every("states", RE_AUTHS, ids=str)
def test_the_newest_approved_reference_of_a_chain_is_sent(kind: OperationType, states: tuple[str, ...]) -> None:
    """A capture or void is sent with the reference of the newest approved re-authorization.

    A re-authorization is sent with the original's reference.
    """
    original = in_state(PRE_AUTH, "approved", 1)
    derived = [in_state(RE_AUTH, state, number) for number, state in enumerate(states, 2)]
    others = [in_state(VOID, "declined", 90), in_state(CAPTURE, "canceled", 91), in_state(CAPTURE, "approved", 92)]
    approved = [number for number, state in enumerate(states, 2) if state == "approved"]
    newest = approved[-1] if approved and kind is not RE_AUTH else 1
    outcome = source_of(kind, original, [*derived, *others]).outcome
    assert outcome is not None
    assert outcome.transaction_reference == f"reference {newest}"


@pytest.mark.parametrize("kind", [CAPTURE, VOID])
def test_the_newest_approval_counts_even_without_a_reference(kind: OperationType) -> None:
    newest = in_state(RE_AUTH, "approved without", 2)
    assert source_of(kind, in_state(PRE_AUTH, "approved", 1), [newest]) is newest


OPEN_STATES = ("open", "in_doubt")
APPROVED_STATES = ("approved", "approved by a person")

FREE, REPEAT, NEVER = "free", "repeat", "never"
#: (requested, already approved) for one original -> permitted, only with `additional`, or never.
APPROVED_BEFORE = {
    (RE_AUTH, RE_AUTH): FREE,
    (RE_AUTH, CAPTURE): REPEAT,
    (RE_AUTH, VOID): NEVER,
    (CAPTURE, RE_AUTH): FREE,
    (CAPTURE, CAPTURE): REPEAT,
    (CAPTURE, VOID): NEVER,
    (VOID, RE_AUTH): FREE,
    (VOID, CAPTURE): NEVER,
    (VOID, VOID): NEVER,
    (VOID, POST_TIP): FREE,
    (VOID, REFUND): NEVER,
    (POST_TIP, POST_TIP): REPEAT,
    (POST_TIP, REFUND): FREE,
    (POST_TIP, VOID): NEVER,
    (REFUND, POST_TIP): FREE,
    (REFUND, REFUND): REPEAT,
    (REFUND, VOID): NEVER,
}


def test_the_table_has_each_pair_of_operations_of_one_original() -> None:
    pairs = {(asked, before) for of in OperationType for asked in _after(of) for before in _after(of)}
    assert set(APPROVED_BEFORE) == pairs
    named = {(kind, before) for kind, row in OPERATIONS.items() for before in row.ended_by | row.repeats}
    assert named == {pair for pair, rule in APPROVED_BEFORE.items() if rule != FREE}


def _after(original: OperationType) -> list[OperationType]:
    return [kind for kind in DERIVED if (original, kind) in FITS]


#: Rule for a second operation of one original -> text in docs/reference/api.md.
PAGE = {FREE: "allowed", REPEAT: 'with `"additional": true`, else `{code}`', NEVER: "`chain_conflict`, always"}


def test_the_page_of_the_api_has_the_table_of_second_operations() -> None:
    rows = ["| asked for | approved before | |", "| --- | --- | --- |"]
    for (kind, before), rule in APPROVED_BEFORE.items():
        code = "already_derived" if kind is before else "chain_conflict"
        said = PAGE[rule].format(code=code)
        if rule == NEVER and kind is before:
            said = 'never: `already_derived`; with `"additional": true`, `chain_conflict`'
        rows.append(f"| `{kind}` | `{before}` | {said} |")
    note = "An operation that certainly failed blocks nothing."
    rows += ["", note]
    page = (Path(__file__).parents[2] / "docs/reference/api.md").read_text()
    expected = "\n".join(rows)
    assert page.split("<!-- chains -->")[1].split("<!-- /chains -->")[0].split() == expected.split(), expected


@every("pair", sorted(APPROVED_BEFORE))
@every("state", STATES)
@every("repeat", [False, True])
def test_a_second_operation_is_blocked_as_the_table_says(
    pair: tuple[OperationType, OperationType], state: str, repeat: bool
) -> None:
    """Each pair of types is tested with every state of the first operation, with and without `additional`."""
    kind, before = pair
    other = in_state(before, state)
    found = in_the_way(kind, [other], [other], repeat=repeat)
    rule = APPROVED_BEFORE[pair] if state in APPROVED_STATES else FREE
    if state in OPEN_STATES:
        expected = "already_derived" if kind is before else "chain_conflict"
    elif rule == FREE or (rule == REPEAT and repeat):
        expected = None
    elif rule == NEVER and repeat:
        expected = "chain_conflict"
    else:
        expected = "already_derived" if kind is before else "chain_conflict"
    assert (found and found.code) == expected
    if found is not None:
        assert list(found.others) == [other]
        assert found.by_repeat is (state in APPROVED_STATES and rule == REPEAT)


@every("kind", DERIVED)
@every("elsewhere", DERIVED)
@every("state", STATES)
def test_an_open_operation_anywhere_in_the_chain_blocks_an_operation(
    kind: OperationType, elsewhere: OperationType, state: str
) -> None:
    """The two operations may have different originals.

    For example, an open refund of the second capture blocks a refund of the first.
    """
    other = in_state(elsewhere, state)
    found = in_the_way(kind, [], [other], repeat=True)
    assert (found and found.code) == ("chain_conflict" if state in OPEN_STATES else None)


def test_the_original_itself_blocks_no_operation() -> None:
    assert in_the_way(VOID, [], [in_state(CHARGE, "open")], repeat=False) is None


def test_an_open_operation_of_unknown_type_blocks_an_operation() -> None:
    found = there(in_the_way(VOID, [], [in_state(None, "open")], repeat=True))
    assert found.code == "chain_conflict"


def test_operations_that_block_even_an_additional_payment_are_reported_first() -> None:
    captured, voided = in_state(CAPTURE, "approved", 1), in_state(VOID, "approved", 2)
    found = there(in_the_way(CAPTURE, [captured, voided], [captured, voided], repeat=False))
    assert (found.code, list(found.others)) == ("chain_conflict", [voided])


def test_two_final_events_block_further_operations_until_acknowledged() -> None:
    sibling = in_state(CAPTURE, "declined")
    approval = read(content("APPROVAL", REQUESTED, event_id="0b7d2a8e-3333-4d7c-9d55-0f6b1c2a9e11"))
    conflicting, _ = advance(sibling, approval, seen=RepeatedEvent.NEW, now=NOW)
    both = [sibling, conflicting]
    found = there(in_the_way(CAPTURE, both, both, repeat=True))
    assert list(found.others) == [conflicting]
