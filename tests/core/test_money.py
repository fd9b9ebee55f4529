"""Money stays exact from JSON to JSON."""

from decimal import Decimal, Inexact
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import encode
from posd.base.money import MAX_WIRE_DIGITS, parse_money, read_money, sum_of, to_decimal, total
from tests.rig.tables import every

DECODER = msgspec.json.Decoder(float_hook=to_decimal)

amounts = st.decimals(min_value=0, max_value=Decimal("999999999999.9999"), places=4, allow_nan=False)


def through(literal: str) -> bytes:
    """Return the number that posd sends to the terminal for a literal of the till."""
    return encode(parse_money(DECODER.decode(literal.encode())))


REFUSED = """
    -1  -0.01  0.00001  1000000000000  1e12  1e999999999  true  null  [] {}
    "" "1e1" "-1" "+1" "1_0" "NaN" "Infinity" "1." "٣" "1.23456" "1234567890123"
"""


@every("written", [*REFUSED.split(), '" 1"'])
def test_a_value_that_is_not_an_amount_is_refused_with_a_reason(written: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_money(DECODER.decode(written.encode()))


@every(
    ("written", "sent"),
    [("0", "0"), ("-0", "0"), ("-0.00", "0.00"), ("0e5", "0"), ("0e20", "0"), ("-0E+3", "0"), ("1.5e1", "15")],
)
def test_an_amount_is_sent_without_a_sign_and_an_exponent(written: str, sent: str) -> None:
    assert through(written) == sent.encode()


def test_numbers_that_no_decimal_can_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        DECODER.decode(b"1e99999999999999999999")
    with pytest.raises(ValueError, match="finite"):
        parse_money(Decimal("NaN"))


@given(amounts)
def test_every_amount_survives_the_round_trip_to_the_digit(amount: Decimal) -> None:
    assert through(str(amount)) == str(amount).encode()
    assert through(f'"{amount}"') == str(amount).encode()


def test_the_sum_of_an_amount_includes_nested_objects() -> None:
    amount = {"currency": "USD", "iva": Decimal("1.20"), "extra_taxes": {"ice": "0.30", "note": "none"}}
    assert sum_of(amount) == Decimal("1.50")


@given(st.lists(st.integers(-(10**30), 10**30), max_size=20))
def test_a_sum_is_exact_for_any_number_of_digits(hundredths: list[int]) -> None:
    assert Fraction(total(Decimal(f"{number}e-2") for number in hundredths)) == Fraction(sum(hundredths), 100)


def test_numbers_that_cannot_be_added_exactly_are_refused() -> None:
    with pytest.raises(Inexact):
        total([Decimal("1e100"), Decimal("1e-100")])


@every(("number", "read"), [("NaN", False), ("Infinity", False), ("1e-24", True), ("1e-25", False), ("1e25", False)])
def test_only_a_finite_number_of_limited_size_is_read_from_the_wire(number: str, read: bool) -> None:
    assert (read_money(Decimal(number)) is not None) is read


@pytest.mark.parametrize(
    ("digits", "read"), [(MAX_WIRE_DIGITS, True), (2 * MAX_WIRE_DIGITS - 1, True), (2 * MAX_WIRE_DIGITS, False)]
)
def test_a_number_from_the_wire_has_a_limited_number_of_digits(digits: int, read: bool) -> None:
    value = Decimal("1." + "1" * digits)
    assert read_money(value) == (value if read else None)
