"""The effect of an operation on money, by vectors. No reply of a terminal increases the limits of a chain."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import encode
from posd.base.operations import OperationType
from posd.payments.amounts import NOTHING_MORE
from posd.payments.counting import Of, Section, charged, effect, excess, operation_of, original_of, tipped
from posd.payments.model import Outcome, Result, Transaction
from posd.payments.outcomes import inferred
from posd.records.model import Phase
from tests.core.scenarios import NOW, starting
from tests.rig.tables import every, there

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "counting.json").read_text())
CHARGE, PRE_AUTH, RE_AUTH = OperationType.CHARGE, OperationType.PRE_AUTH, OperationType.RE_AUTH
CAPTURE, POST_TIP = OperationType.CAPTURE, OperationType.POST_TIP
VOID, REFUND = OperationType.VOID, OperationType.REFUND


def operation(
    kind: OperationType | None,
    amount: Decimal | None,
    authorized: Decimal | None = None,
    result: Result | None = Result.APPROVED,
    *,
    tip: Decimal = Decimal(0),
    reversal: str | None = None,
    added: Decimal | None = None,
) -> Transaction:
    """Return an operation with this result and these amounts."""
    asked = b"{}" if amount is None else encode({"subtotal_iva0": amount, "tip": tip})
    outcome: Outcome | None = None
    if result is not None:
        answer = {"authorized_amount": authorized, "reversal": reversal, "tip": added}
        outcome = msgspec.structs.replace(inferred(result, (), NOW), **answer)
    return starting(type=kind, amount=asked, outcome=outcome, phase=Phase.FINAL if outcome else Phase.ACTIVE)


def number(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def test_the_vectors_have_approved_operations_of_each_type() -> None:
    stated = {case["rows"][-1]["type"] for case in VECTORS if case["rows"][-1]["result"] == Result.APPROVED}
    assert stated >= set(OperationType)


@every("case", VECTORS, ids=lambda case: case["about"])
def test_an_operation_has_the_effect_of_its_vector(case: dict[str, Any]) -> None:
    made = [
        operation(
            row["type"] and OperationType(row["type"]),
            number(row["amount"]),
            number(row["authorized_amount"]),
            row["result"] and Result(row["result"]),
            reversal=row["reversal"],
        )
        for row in case["rows"]
    ]
    named = case["rows"][-1]["original"]
    original = None
    if named is not None:
        members = [item for item, row in zip(made[:-1], case["rows"], strict=False) if row["original"] == named]
        original = original_of(made[named], members)
    found = effect(operation_of(made[-1]), original)
    assert (found.kind, found.counted) == (case["kind"], number(case["counted"]))
    result = case["rows"][-1]["result"]
    assert (found.section is Section.OPEN) is (result is None)
    assert (found.section is Section.NOT_CHARGED) is (result not in (None, Result.APPROVED))
    assert (found.section is Section.UNCLEAR) is (result == Result.APPROVED and None in (found.amount, found.of))


def test_a_release_has_the_amount_of_the_newest_re_authorization() -> None:
    pre_auth, again = operation(PRE_AUTH, Decimal(100)), operation(RE_AUTH, Decimal(150))
    found = effect(operation_of(operation(VOID, None)), original_of(pre_auth, [again]))
    assert (found.kind, found.of, found.amount, found.counted) == ("release", Of.RESERVATION, -150, None)


# Limits.

D = Decimal
RULES = NOTHING_MORE


@every(
    ("asked", "original", "others", "allowed"),
    [
        # the sign of a reported amount has no effect
        (operation(REFUND, D(1)), operation(CHARGE, D(10)), [operation(REFUND, D(10), D(-10))], 0),
        (operation(CAPTURE, D(60)), operation(PRE_AUTH, D(100)), [operation(CAPTURE, D(60), D(-60))], 40),
        (operation(REFUND, D(11)), operation(CHARGE, D(10), D(-10)), [], 10),
        (operation(REFUND, D(11)), operation(CHARGE, D(10), D(-12), added=D(2)), [], 10),
        # the till's tip counts, because a terminal may report the new total instead of the tip
        (operation(REFUND, D(22)), operation(CHARGE, D(10)), [operation(POST_TIP, D(2), D(12))], 12),
        # after an approval of 0 no refund is possible
        (operation(REFUND, None), operation(CHARGE, D(10), D(0)), [], 0),
        # the larger of the requested and the reported amount counts as given back or captured
        (operation(REFUND, D(7)), operation(CHARGE, D(10)), [operation(REFUND, D(4), D(1))], 6),
        (operation(REFUND, D(1)), operation(CHARGE, D(10)), [operation(REFUND, D(4), D(10))], 0),
        (operation(CAPTURE, D(50)), operation(PRE_AUTH, D(100)), [operation(CAPTURE, D(60), D(10))], 40),
        (operation(CAPTURE, D(50)), operation(PRE_AUTH, D(100)), [operation(CAPTURE, D(60), D(70))], 30),
        # the smaller of the requested and the reported amount counts as charged or reserved
        (operation(REFUND, D(11)), operation(CHARGE, D(10), D(1000)), [], 10),
        (operation(CAPTURE, D(101)), operation(PRE_AUTH, D(100), D(500)), [], 100),
        (operation(VOID, D(12)), operation(CHARGE, D(10)), [operation(POST_TIP, D(2), D(1))], 11),
        # a tip added at the terminal was charged, and is not part of the reservation
        (operation(REFUND, D(13)), operation(CHARGE, D(10), D(12), added=D(2)), [], 12),
        (operation(CAPTURE, D(41)), operation(PRE_AUTH, D(100)), [operation(CAPTURE, D(60), D(62), added=D(2))], 40),
        (operation(CAPTURE, D(101)), operation(PRE_AUTH, D(100), D(120), added=D(20)), [], 100),
        # only one refund is sent if the charged amount is unknown
        (operation(REFUND, D(5)), operation(CHARGE, None), [], None),
        (operation(REFUND, D(5)), operation(CHARGE, None), [operation(REFUND, D(5))], 0),
        (operation(CAPTURE, D(5)), operation(PRE_AUTH, None), [], None),
        (operation(VOID, D(5)), operation(CHARGE, None), [], None),
        (operation(REFUND, D(5)), operation(CHARGE, None, D(4)), [], 4),
    ],
    ids=str,
)
def test_no_reply_increases_the_amount_left_to_refund_or_capture(
    asked: Transaction, original: Transaction, others: list[Transaction], allowed: int | None
) -> None:
    found = excess(asked, original, others, RULES)
    assert (found and found.extra["allowed"]) == allowed


AMOUNTS = st.decimals("0.01", "200", places=2)
ANSWERS = st.none() | st.just(D(0)) | st.decimals("-400", "400", places=2)


def allowance(kind: OperationType, original: Transaction, members: list[Transaction]) -> Decimal:
    """Return the largest permitted sum. The refusal of a far larger request contains this sum."""
    found = there(excess(operation(kind, D(10**6)), original, members, RULES))
    allowed: Decimal = found.extra["allowed"]
    return allowed


@given(
    st.sampled_from([CHARGE, CAPTURE]),
    AMOUNTS,
    ANSWERS,
    st.lists(st.tuples(st.sampled_from([POST_TIP, REFUND, REFUND]), AMOUNTS | st.none(), ANSWERS), max_size=6),
)
def test_refunds_never_exceed_the_charge(
    kind: OperationType,
    asked: Decimal,
    answer: Decimal | None,
    steps: list[tuple[OperationType, Decimal | None, Decimal | None]],
) -> None:
    original = operation(kind, asked, answer)
    members: list[Transaction] = []
    given_back = D(0)
    taken = charged(original) or D(0)
    for step, amount, said in steps:
        before = allowance(REFUND, original, members)
        amount = D(1) if amount is None and step is POST_TIP else amount
        wanted = operation(step, amount, None, None)
        if excess(wanted, original, members, RULES) is not None:
            continue
        done = operation(step, amount, said)
        after = allowance(REFUND, original, [*members, done])
        as_asked = allowance(REFUND, original, [*members, operation(step, amount)])
        assert after <= as_asked  # no reply increases the limit
        if step is POST_TIP:
            taken += tipped(done)
            assert before <= after <= before + (amount or 0)
        else:
            given_back += amount if amount is not None else taken
            assert after < before
        members.append(done)
        assert after + given_back <= taken
        assert taken <= asked + sum((item.total for item in members if item.type is POST_TIP), D(0))


@given(
    AMOUNTS, ANSWERS, st.lists(st.tuples(st.sampled_from([RE_AUTH, CAPTURE, CAPTURE]), AMOUNTS, ANSWERS), max_size=6)
)
def test_captures_never_exceed_the_reservation(
    asked: Decimal, answer: Decimal | None, steps: list[tuple[OperationType, Decimal, Decimal | None]]
) -> None:
    original = operation(PRE_AUTH, asked, answer)
    members: list[Transaction] = []
    used, most = D(0), asked
    for step, amount, said in steps:
        before = allowance(CAPTURE, original, members)
        if excess(operation(step, amount, None, None), original, members, RULES) is not None:
            continue
        done = operation(step, amount, said)
        after = allowance(CAPTURE, original, [*members, done])
        assert after <= allowance(CAPTURE, original, [*members, operation(step, amount)])
        if step is RE_AUTH:
            most = max(most, amount)
            assert after <= max(D(0), amount - used)
        else:
            used += amount
            assert after <= before - amount
        members.append(done)
        assert used <= most
