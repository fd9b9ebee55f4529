"""Units of amounts. The conversion is exact in both directions.

An amount with too many digits for its unit is refused.
"""

from decimal import Decimal, Inexact

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import AMOUNT
from posd.base.money import AMOUNT_UNITS, EXACT, MOST_DIGITS, AmountUnit, digits_of, fits, from_wire, to_wire
from posd.base.operations import OperationType
from posd.payments.amounts import NOTHING_MORE, authorized, on_wire, read_amount, unfit
from posd.payments.model import Transaction
from posd.payments.outcomes import unlikely
from posd.payments.transitions import RepeatedEvent, advance
from posd.records.model import Phase
from tests.core.inputs import content
from tests.core.scenarios import IDENTITY, NOW, read, starting
from tests.rig.tables import every

D = Decimal
AMOUNTS = st.decimals(min_value=0, max_value=10**12 - 1, places=4) | st.integers(0, 10**12 - 1).map(Decimal)


@every(
    ("given", "unit", "wire"),
    [
        ("10.10", "main", "10.10"),
        ("10.00", "whole", "10"),
        ("0.00", "whole", "0"),
        ("438.9", "hundredths", "43890"),
        ("1.2000", "hundredths", "120"),
        ("999999999999.99", "hundredths", "99999999999999"),
        ("10.10", "whole", None),
        ("0.005", "hundredths", None),
    ],
    ids=str,
)
def test_a_sent_amount_is_in_the_terminals_unit(given: str, unit: AmountUnit, wire: str | None) -> None:
    assert fits(D(given), MOST_DIGITS[unit]) == (wire is not None)
    if wire is not None:
        assert str(to_wire(D(given), unit)) == wire


def test_a_sent_amount_is_never_rounded() -> None:
    with pytest.raises(Inexact):
        to_wire(D("1.5"), "whole")


@given(AMOUNTS, st.sampled_from(AMOUNT_UNITS))
def test_a_sent_amount_is_read_back_unchanged(amount: Decimal, unit: AmountUnit) -> None:
    if fits(amount, MOST_DIGITS[unit]):
        assert from_wire(to_wire(amount, unit), unit) == amount


@given(st.decimals(min_value=-(10**20), max_value=10**20, places=12))
def test_a_received_amount_is_never_rounded(amount: Decimal) -> None:
    assert EXACT.multiply(from_wire(amount, "hundredths"), D(100)) == amount
    assert from_wire(amount, "whole") == from_wire(amount, "main") == amount


def test_a_null_member_is_omitted() -> None:
    text, faults = read_amount({"iva": 1, "tip": None, "extra_taxes": {"iac": None, "ice": 2}}, NOTHING_MORE)
    assert faults == []
    assert AMOUNT.decode(text) == {"iva": 1, "subtotal_iva": 0, "subtotal_iva0": 0, "extra_taxes": {"ice": 2}}


def test_the_fault_of_an_unknown_member_names_the_setting_that_permits_it() -> None:
    _, (member, tax) = read_amount({"total": 1, "extra_taxes": {"total": 1}}, NOTHING_MORE)
    for fault, key in ((member, "members"), (tax, "extra_taxes")):
        assert f"[amounts] {key} in the configuration" in fault.message
    assert ("tip, extra_taxes" in member.message, "tip" in tax.message) == (True, False)
    assert tax.message.count("extra_taxes") == 1, "`extra_taxes` is not a tax itself"


def test_an_event_without_a_raw_response_has_no_authorized_amount() -> None:
    event = read(content("CARD_PRESENTED", ""))
    assert event.raw_response is None
    assert authorized(starting(), event) is None


def test_a_complete_amount_object_is_converted() -> None:
    text, faults = read_amount({"iva": D("1.20"), "subtotal_iva": 10, "extra_taxes": {"iac": D("0.05")}}, NOTHING_MORE)
    assert faults == []
    assert on_wire(text, "main") == text
    assert AMOUNT.decode(on_wire(text, "hundredths")) == {
        "iva": 120,
        "subtotal_iva": 1000,
        "subtotal_iva0": 0,
        "extra_taxes": {"iac": 5},
    }
    assert unfit(text, "main", 2) == unfit(text, "hundredths", 2) == []
    places = [fault.path for fault in unfit(text, "whole", 2)]
    assert places == ["/amount/iva", "/amount/extra_taxes/iac"]
    assert unfit(b"{}", "whole", 2) == []


@every(
    ("amount", "unit", "decimals", "words"),
    [
        ("1.005", "main", 2, "at most 2 digits after the point: [amounts] decimals"),
        ("0.0001", "main", 4, None),
        ("1.005", "main", 3, None),
        ("1.050", "main", 2, None),
        ("1.5", "main", 0, "no digits after the point: [amounts] decimals"),
        ("1.0", "main", 0, None),
        ("1.005", "hundredths", 3, "at most 2 digits after the point: amount_unit"),
        ("1.005", "hundredths", 2, "at most 2 digits after the point: amount_unit"),
        ("1.5", "hundredths", 0, "no digits after the point: [amounts] decimals"),
        ("1.5", "whole", 2, "no digits after the point: amount_unit"),
    ],
)
def test_an_amount_with_more_digits_than_the_currency_or_the_unit_has_is_refused(
    amount: str, unit: AmountUnit, decimals: int, words: str | None
) -> None:
    text, _ = read_amount({"subtotal_iva0": amount}, NOTHING_MORE)
    found = [fault.message for fault in unfit(text, unit, decimals)]
    assert [words in each for each in found if words] == [True] * (words is not None)
    assert len(found) == (words is not None)


@every(
    ("currencies", "digits"),
    [((), 2), (("USD",), 2), (("JPY",), 0), (("CLP", "CLF"), 4), (("KWD",), 3), (("USD", "JPY"), 2), (("NONE",), 2)],
)
def test_of_several_currencies_the_currency_with_the_most_digits_counts(
    currencies: tuple[str, ...], digits: int
) -> None:
    assert digits_of(currencies) == digits


def a_charge(answer_unit: AmountUnit | None) -> Transaction:
    return Transaction(
        client_transaction_id=IDENTITY,
        terminal="SN-TEST",
        type=OperationType.CHARGE,
        created_at="2026-11-20T10:42:00.000Z",
        updated_at="2026-11-20T10:42:00.000Z",
        phase=Phase.ACTIVE,
        amount=b'{"iva":0,"subtotal_iva":0,"subtotal_iva0":438.90}',
        sent_to="https://terminal",
        answer_unit=answer_unit,
    )


@every(
    ("unit", "says", "tip", "expected"),
    [
        ("hundredths", "43890", "0", ("438.90", "0", [])),
        ("hundredths", "44090", "200", ("440.90", "2", [])),
        ("hundredths", "438.90", "0", ("4.389", "0", ["amount_differs"])),
        ("main", "438.9", "0", ("438.9", "0", [])),
        (None, "43890", "0", (None, None, [])),
        ("main", "43890", "0", ("43890", "0", ["amount_differs"])),
    ],
    ids=str,
)
def test_amounts_of_the_terminal_are_read_in_the_terminals_unit(
    unit: AmountUnit | None, says: str, tip: str, expected: tuple[str | None, str | None, list[str]]
) -> None:
    response = {"transaction_reference": "r-1", "ticket_number": "1", "authorized_amount": float(says)}
    operation = {"type": "CHARGE", "amount": {"currency": "COP", "tip": float(tip)}}
    event = read(content("APPROVAL", raw_response=response, operation=operation))
    after, _ = advance(a_charge(unit), event, seen=RepeatedEvent.NEW, now=NOW)
    assert after.outcome is not None
    amounts = (after.outcome.authorized_amount, after.outcome.tip)
    assert amounts == tuple(None if text is None else D(text) for text in expected[:2])
    assert [item.code for item in after.attention if item.code != "gap"] == expected[2]
    _, by_sum = unlikely(a_charge(unit), event, frozenset(), None) or ((), False)
    assert by_sum == (expected[0] in ("4.389", "43890"))


def test_an_event_without_amounts_gives_no_amount() -> None:
    event = read(content("DECLINED"))
    after, _ = advance(a_charge("hundredths"), event, seen=RepeatedEvent.NEW, now=NOW)
    assert after.outcome is not None
    assert (after.outcome.authorized_amount, after.outcome.tip) == (None, None)
