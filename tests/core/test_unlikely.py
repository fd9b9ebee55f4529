"""An approval that contradicts its request: differences that posd reports, and differences that it does not report."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.operations import OperationType
from posd.payments.entries import Unlikely, apply
from posd.payments.model import AttentionCode, Transaction
from posd.payments.outcomes import unlikely
from posd.payments.transitions import RepeatedEvent, advance
from posd.payments.wire import TransactionEvent, read_event
from tests.core.scenarios import IDENTITY, NOW, REQUESTED, starting
from tests.rig.events import body
from tests.rig.tables import every, there

DAY = timedelta(days=1)
ON_TIME = NOW.isoformat()
USD = frozenset({"USD"})


def asked(total: str = "112.00", kind: OperationType | None = OperationType.CHARGE) -> Transaction:
    return msgspec.structs.replace(starting(), amount=f'{{"subtotal_iva0": {total}}}'.encode(), type=kind)


def approval(
    authorized: Any = "112.00", *, currency: Any = "USD", kind: Any = "CHARGE", at: Any = ON_TIME
) -> TransactionEvent:
    return read_event(
        body(
            IDENTITY,
            "APPROVAL",
            REQUESTED,
            occurred_at=at,
            operation={"type": kind, "amount": {"currency": currency}},
            raw_response={"transaction_reference": "r", "authorized_amount": authorized},
        )
    )


@every(
    ("authorized", "total", "said"),
    [
        ("0.01", "112.00", True),
        ("55.99", "112.00", True),
        ("56.00", "112.00", False),
        ("112.00", "112.00", False),
        ("224.00", "112.00", False),
        ("224.01", "112.00", True),
        ("11200", "112.00", True),
        ("-112.00", "112.00", True),
        ("0", "112.00", True),
        ("0.01", "0", False),
        (None, "112.00", False),
    ],
)
def test_under_half_or_over_twice_the_requested_sum_is_reported(authorized: str | None, total: str, said: bool) -> None:
    found = unlikely(asked(total), approval(authorized), USD, NOW)
    assert found == (((f"asked for {total}, authorized {authorized}",), True) if said else None)


def test_a_reference_of_another_approval_is_reported() -> None:
    reasons, by_sum = there(unlikely(asked(), approval(), USD, NOW, same_reference="another-id"))
    assert "another-id" in reasons[0]
    assert not by_sum


def test_without_an_answer_of_the_acquirer_no_sum_is_compared() -> None:
    event = read_event(body(IDENTITY, "APPROVAL", REQUESTED, raw_response=None))
    assert unlikely(asked(), event, USD, None) is None


@every("kind", [OperationType.VOID, OperationType.POST_TIP])
def test_an_operation_whose_sum_may_differ_is_not_compared(kind: OperationType) -> None:
    assert unlikely(asked(kind=kind), approval("0.01", kind="CHARGE"), USD, NOW) is None


@every(
    ("currency", "allowed", "said"),
    [
        ("USD", USD, False),
        ("usd", USD, False),
        ("COP", USD, True),
        ("COP", frozenset(), False),
        ("COP", frozenset({"USD", "COP"}), False),
        (None, USD, False),
        ([], USD, False),
        ("\x1b[31m", USD, True),
    ],
)
def test_another_currency_is_reported(currency: Any, allowed: frozenset[str], said: bool) -> None:
    found = unlikely(asked(), approval(currency=currency), allowed, NOW)
    assert (found is not None) is said
    if found is not None:
        reasons, by_sum = found
        assert reasons[0].isprintable()
        assert not by_sum


@every(
    ("kind", "word", "said"),
    [
        (OperationType.CHARGE, "CHARGE", False),
        (OperationType.CHARGE, "charge", False),
        (OperationType.CHARGE, "VOID", True),
        (OperationType.CHARGE, "PREAUTH", True),
        (OperationType.CHARGE, "pre-auth", True),
        (OperationType.PRE_AUTH, "PREAUTH", False),
        (OperationType.PRE_AUTH, "CHARGE", True),
        (OperationType.RE_AUTH, "REAUTHORIZATION", False),
        (OperationType.RE_AUTH, "re-auth", False),
        (OperationType.CAPTURE, "CHARGE", True),
        (OperationType.CHARGE, "SALE", False),
        (OperationType.CHARGE, None, False),
        (OperationType.VOID, "CHARGE", False),
        (None, "CAPTURE", False),
    ],
)
def test_another_operation_type_is_reported(kind: OperationType | None, word: str | None, said: bool) -> None:
    assert (unlikely(asked(kind=kind), approval(kind=word), USD, NOW) is not None) is said


@every(
    ("at", "said"),
    [
        (NOW.isoformat(), False),
        ((NOW + DAY).isoformat(), False),
        ((NOW + DAY + timedelta(seconds=1)).isoformat(), True),
        ((NOW - timedelta(days=365)).isoformat(), True),
        ((NOW - timedelta(days=4) - DAY).isoformat(), False),  # the event was delayed in the terminal's queue
        ((NOW - timedelta(days=4, seconds=2) - DAY).isoformat(), True),
        ("0001-01-01T00:00:00Z", True),
        ("9999-12-31T23:59:59-14:00", True),
        ("yesterday", False),
        (None, False),
    ],
)
def test_a_date_far_from_request_and_arrival_is_reported(at: str | None, said: bool) -> None:
    created = (NOW - timedelta(days=4)).isoformat()
    transaction = msgspec.structs.replace(asked(), created_at=created)
    assert (unlikely(transaction, approval(at=at), USD, NOW) is not None) is said
    assert unlikely(transaction, approval(at=at), USD, None) is None, "an untrusted clock proves nothing"


def test_a_request_from_the_future_is_not_reported() -> None:
    transaction = msgspec.structs.replace(asked(), created_at=(NOW + 900 * DAY).isoformat())
    assert unlikely(transaction, approval(), USD, NOW) is None


def test_all_unlikely_values_are_one_attention_and_change_no_outcome() -> None:
    event = approval("0.01", currency="COP", kind="VOID", at="2020-01-01T00:00:00Z")
    after, _ = advance(asked(), event, seen=RepeatedEvent.NEW, now=NOW)
    assert [item.code for item in after.attention if item.code is AttentionCode.AMOUNT_DIFFERS]
    found = Unlikely(*there(unlikely(after, event, USD, NOW)))
    said = apply(after, found, NOW)
    codes = [item.code for item in said.attention]
    assert AttentionCode.AMOUNT_DIFFERS not in codes
    (attention,) = (item for item in said.attention if item.code is AttentionCode.APPROVAL_UNLIKELY)
    for part in ("112.00", "0.01", "COP", "void", "2020-01-01"):
        assert part in attention.detail
    assert (said.outcome, said.phase) == (after.outcome, after.phase)


def test_a_smaller_difference_of_the_amount_keeps_its_own_attention() -> None:
    event = approval("100.00", currency="COP")
    after, _ = advance(asked(), event, seen=RepeatedEvent.NEW, now=NOW)
    found = Unlikely(*there(unlikely(after, event, USD, NOW)))
    codes = {item.code for item in apply(after, found, NOW).attention}
    assert codes >= {AttentionCode.AMOUNT_DIFFERS, AttentionCode.APPROVAL_UNLIKELY}


@given(st.decimals(0, 10_000, places=2), st.decimals("0.01", 10_000, places=2))
def test_an_amount_between_half_and_twice_is_never_reported(authorized: Decimal, total: Decimal) -> None:
    found = unlikely(asked(str(total)), approval(str(authorized)), USD, NOW)
    assert (found is None) == (total / 2 <= authorized <= total * 2)


@pytest.mark.parametrize("hours", [-23, 23])
def test_a_clock_that_is_some_hours_off_is_not_reported(hours: int) -> None:
    at = datetime.now(UTC) + timedelta(hours=hours)
    transaction = msgspec.structs.replace(asked(), created_at=datetime.now(UTC).isoformat())
    assert unlikely(transaction, approval(at=at.isoformat()), USD, datetime.now(UTC)) is None
