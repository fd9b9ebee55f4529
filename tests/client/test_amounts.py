"""The client checks an amount before a call with the same rules as the daemon."""

from decimal import Decimal
from typing import Any

import pytest

from posd.client.calls import MEMBERS, check_amount
from posd.client.documents import encode
from posd.payments import amounts
from posd.payments.request import read_start
from tests.rig.tables import every

GOOD: list[Any] = [
    1,
    "11.20",
    Decimal("11.20"),
    Decimal("0.0001"),
    "999999999999.9999",
    999999999999,
    Decimal("1E+11"),
    Decimal("1E+2"),
    {"iva": Decimal("1.20"), "subtotal_iva": "10.00"},
    {"subtotal_iva0": 0, "tip": "0.50"},
    {"iva": Decimal("-0"), "tip": 1},
    {"extra_taxes": {"airport_tax": 1, "iac": "0", "ice": "0.5", "travel_agency": Decimal("0.1")}},
    {"iva": 1, "extra_taxes": {}},
]
#: Amounts refused with ValueError.
BAD: list[Any] = [
    0,
    "0.00",
    {},
    {"iva": 0, "extra_taxes": {"ice": 0}},
    -1,
    Decimal("-0.01"),
    {"subtotal_iva0": 5, "iva": -1},
    Decimal("0.00001"),
    Decimal("1.00000"),
    Decimal("1E-5"),
    "1.00000",
    10**12,
    10**40,
    Decimal("1E+12"),
    "1000000000000",
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    *("", "+1", "-1", "1e2", " 1", "1,20", "1.", ".5", "1_0", "1\n", "\u0661", "abc"),
]
#: Amounts that are not exact numbers, refused with TypeError.
NO_NUMBER: list[Any] = [
    1.5,
    {"iva": 1.0},
    True,
    None,
    {"iva": None},
    {"extra_taxes": {"ice": 0.5}},
    {"iva": b"1"},
    {"iva": {}},
    {"iva": {"ice": 1}},
    {"extra_taxes": {"ice": {"ice": 1}}},
    [1],
]


def refused_by_posd(amount: Any) -> bool:
    body = amount if isinstance(amount, dict) else {"subtotal_iva0": amount}
    _, faults = read_start(encode({"amount": body}))
    return bool(faults)


@every("amount", GOOD)
def test_an_amount_that_posd_accepts_is_accepted(amount: Any) -> None:
    parts = check_amount(amount)
    assert parts == amount if isinstance(amount, dict) else {"subtotal_iva0": amount}
    assert not refused_by_posd(amount)


@every("amount", BAD)
def test_an_amount_that_posd_refuses_is_refused(amount: Any) -> None:
    with pytest.raises(ValueError):
        check_amount(amount)
    if not isinstance(amount, Decimal) or amount.is_finite():  # JSON cannot express other values
        assert refused_by_posd(amount)


@every("amount", NO_NUMBER)
def test_an_inexact_number_is_refused(amount: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        check_amount(amount)
    assert "{" in str(amount) or caught.type is TypeError


@every(
    ("amount", "meant"),
    [
        ({"total": "5.00"}, "subtotal_iva"),
        ({"sum": "5.00"}, None),
        ({"subtotal": 5}, "subtotal_iva"),
        ({"subtotal_iva": 5, "tipp": 1}, "tip"),
        ({"IVA": 1}, "iva"),
        ({"extra_taxes": {"isd": 1}}, "extra_taxes.ice"),
        ({"extra_tax": {"ice": 1}}, "extra_taxes.ice"),
        ({"extra_taxes": 1}, "extra_taxes.ice"),
        ({"extra_taxes.ice": 1}, "extra_taxes.ice"),
    ],
)
def test_an_unknown_part_is_refused_and_the_nearest_known_part_is_named(amount: Any, meant: str | None) -> None:
    words = "The parts are iva, " if meant is None else f"did you mean '{meant}'"
    with pytest.raises(ValueError, match=f"is not a part of an amount: {words}"):
        check_amount(amount)
    assert refused_by_posd(amount)


def test_the_client_knows_the_members_that_the_daemon_knows() -> None:
    nested = (f"{amounts.NESTED}.{tax}" for tax in amounts.EXTRA_TAXES)
    assert set(MEMBERS) == {*amounts.REQUIRED, amounts.TIP, *nested}


def test_parts_added_by_the_configuration_are_accepted() -> None:
    amount = {"subtotal_iva0": 5, "service": "0.50", "extra_taxes": {"isd": 1}}
    assert check_amount(amount, ["service", "extra_taxes.isd"]) == amount
    for further in ([], ["service"], ["extra_taxes.isd"], ["service", "isd"]):
        with pytest.raises(ValueError, match="not a part of an amount"):
            check_amount(amount, further)


def test_the_error_for_a_float_shows_what_to_write() -> None:
    with pytest.raises(TypeError, match=r'write Decimal\("11\.2"\) or "11\.2"'):
        check_amount(11.20)  # type: ignore[arg-type]  # the test passes a wrong type
