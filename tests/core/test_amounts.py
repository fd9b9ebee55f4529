"""Amounts: members that a till may send, and limits of an original."""

import json
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from posd.base.operations import OperationType
from posd.config.schema import AmountsConfig
from posd.payments.amounts import NOTHING_MORE, read_amount
from posd.payments.counting import excess
from posd.payments.model import Result, Transaction, amount_and_tip
from posd.payments.request import read_start
from posd.payments.transitions import RepeatedEvent, advance, resolved
from posd.records.request import MAX_FAULTS
from tests.core.inputs import content
from tests.core.scenarios import NOW, REQUESTED, read, starting
from tests.rig.tables import every

CHARGE, PRE_AUTH, RE_AUTH = OperationType.CHARGE, OperationType.PRE_AUTH, OperationType.RE_AUTH
CAPTURE, POST_TIP = OperationType.CAPTURE, OperationType.POST_TIP
VOID, REFUND = OperationType.VOID, OperationType.REFUND

RULES = NOTHING_MORE


def faults(amount: Any, rules: AmountsConfig = RULES) -> dict[str, str]:
    """Return the faults of an amount, JSON Pointer -> fault."""
    _, found = read_start(json.dumps({"amount": amount}).encode(), rules)
    return {fault.path: fault.message for fault in found}


@every(
    ("amount", "path", "words"),
    [
        ({"total": "5.00"}, "/amount/total", "is not a known member"),
        ({"Total": 5}, "/amount/Total", "is not a known member"),
        ({"subtotal": 5}, "/amount/subtotal", "did you mean subtotal_iva"),
        ({"SUBTOTAL_IVA": 5}, "/amount/SUBTOTAL_IVA", "did you mean subtotal_iva?"),
        ({"iva": 1, "tips": 1}, "/amount/tips", "did you mean tip?"),
        ({"iva": 1, "extra_tax": {}}, "/amount/extra_tax", "did you mean extra_taxes?"),
        ({"iva": 1, "a/b~c": 1}, "/amount/a~1b~0c", "is not a known member"),
        ({"iva": 1, "extra_taxes": {"airport": 1}}, "/amount/extra_taxes/airport", "did you mean airport_tax?"),
        ({"iva": 1, "extra_taxes": {"iva": 1}}, "/amount/extra_taxes/iva", "is not a known member"),
        ({"iva": 1, "extra_taxes": 5}, "/amount/extra_taxes", "must be an object with airport_tax"),
        ({"iva": 1, "extra_taxes": {"ice": {"x": 1}}}, "/amount/extra_taxes/ice", "must be a number"),
        ({"iva": {"x": 1}}, "/amount/iva", "must be a number"),
        ({"iva": 0, "subtotal_iva": "0.00"}, "/amount", "must add up to more than 0"),
        ({}, "/amount", "must add up to more than 0"),
        ({"iva": -1}, "/amount/iva", "must not be negative"),
        ({"iva": "1,20"}, "/amount/iva", "must be a decimal string"),
    ],
)
def test_an_amount_with_a_wrong_sum_is_refused(amount: Any, path: str, words: str) -> None:
    found = faults(amount)
    assert list(found) == [path]
    assert words in found[path]


def test_a_refusal_lists_a_bounded_number_of_unknown_members() -> None:
    assert len(faults({f"member{number}": 1 for number in range(MAX_FAULTS + 1)})) == MAX_FAULTS


def test_a_refusal_names_the_setting_that_permits_the_member() -> None:
    assert "[amounts] members" in faults({"total": 5})["/amount/total"]
    found = faults({"iva": 1, "extra_taxes": {"xyz": 1}})
    assert "[amounts] extra_taxes" in found["/amount/extra_taxes/xyz"]


def test_the_configuration_permits_further_members() -> None:
    rules = msgspec.structs.replace(NOTHING_MORE, members=("service",), extra_taxes=("city",))
    amount = {"service": 1, "extra_taxes": {"city": 2}}
    assert set(faults(amount)) == {"/amount/service", "/amount/extra_taxes/city"}
    assert faults(amount, rules) == {}


def test_omitted_members_are_sent_as_0_and_digits_stay() -> None:
    given_amount = {"subtotal_iva": "10.10", "tip": Decimal("1.50"), "extra_taxes": None}
    assert read_amount(given_amount, RULES) == (b'{"iva":0,"subtotal_iva":10.10,"subtotal_iva0":0,"tip":1.50}', [])


def test_an_amount_without_a_tip_has_a_tip_of_0() -> None:
    assert amount_and_tip(b'{"iva":1}') == (1, 0)


NAMES = st.sampled_from(["iva", "subtotal_iva", "subtotal_iva0", "tip", "total", "extra_taxes", "", "ivá"])
VALUES = st.one_of(
    st.decimals("0", "999", places=2).map(str),
    st.integers(-5, 5),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.dictionaries(st.sampled_from(["ice", "iac", "x"]), st.integers(0, 3), max_size=2),
)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_an_accepted_amount_has_only_known_members_and_a_sum_above_0(amount: dict[str, Any]) -> None:
    encoded, found = read_amount(amount, RULES)
    if found:
        assert all(fault.message for fault in found)
        return
    sent = json.loads(encoded, parse_float=Decimal)
    taxes = sent.pop("extra_taxes", {})
    assert set(sent) <= {"iva", "subtotal_iva", "subtotal_iva0", "tip"}
    assert set(taxes) <= {"ice", "iac"}
    assert sum(sent.values()) + sum(taxes.values()) > 0


# Limits of an original.


def of(
    kind: OperationType, asked: str | None, number: int = 1, *, took: str | None = None, tip: str = "0"
) -> Transaction:
    """Return an approval with a requested amount. The authorized amount and the tip are optional."""
    transaction = msgspec.structs.replace(
        asking(kind, asked, tip=tip), client_transaction_id=f"00000000-0000-4000-8000-{number:012}"
    )
    if took is None:
        return resolved(transaction, Result.APPROVED, "Ana", "slip", f"reference {number}", NOW)
    given_answer = {"transaction_reference": f"reference {number}", "authorized_amount": float(took)}
    final = read(content("APPROVAL", REQUESTED, raw_response=given_answer))
    return advance(transaction, final, seen=RepeatedEvent.NEW, now=NOW)[0]


def asking(kind: OperationType, asked: str | None, *, tip: str = "0") -> Transaction:
    amount = b"{}" if asked is None else f'{{"subtotal_iva0":{asked},"tip":{tip}}}'.encode()
    return starting(type=kind, amount=amount)


PERCENT = msgspec.structs.replace(NOTHING_MORE, capture_over_percent=15)
PARTIAL = msgspec.structs.replace(NOTHING_MORE, partial_void=True)


@every(
    ("asked", "original", "others", "rules", "allowed"),
    [
        # all captures together must not exceed the reservation without its tip
        (asking(CAPTURE, "100"), of(PRE_AUTH, "100"), (), RULES, None),
        (asking(CAPTURE, "60"), of(PRE_AUTH, "100"), (), RULES, None),
        (asking(CAPTURE, "100.01"), of(PRE_AUTH, "100"), (), RULES, "100"),
        (asking(CAPTURE, "100", tip="10"), of(PRE_AUTH, "100"), (), RULES, None),
        (asking(CAPTURE, "100"), of(PRE_AUTH, "100", took="80"), (), RULES, "80"),
        (asking(CAPTURE, "120"), of(PRE_AUTH, "100"), (of(RE_AUTH, "150", 2),), RULES, None),
        (asking(CAPTURE, "100"), of(PRE_AUTH, "100"), (of(RE_AUTH, "150", 2), of(RE_AUTH, "90", 3)), RULES, "90"),
        (asking(CAPTURE, "40"), of(PRE_AUTH, "100"), (of(CAPTURE, "60", 2),), RULES, None),
        (asking(CAPTURE, "41"), of(PRE_AUTH, "100"), (of(CAPTURE, "60", 2),), RULES, "40"),
        (asking(CAPTURE, "41"), of(PRE_AUTH, "100"), (of(CAPTURE, "60", 2, tip="9"),), RULES, "40"),
        (asking(CAPTURE, "1"), of(PRE_AUTH, "100"), (of(CAPTURE, "130", 2),), RULES, "0"),
        (asking(CAPTURE, "115"), of(PRE_AUTH, "100"), (), PERCENT, None),
        (asking(CAPTURE, "115.01"), of(PRE_AUTH, "100"), (), PERCENT, "115"),
        # a void has the whole amount of its original
        (asking(VOID, None), of(CHARGE, "11.20"), (), RULES, None),
        (asking(VOID, "11.20"), of(CHARGE, "11.20"), (), RULES, None),
        (asking(VOID, "11.2000"), of(CHARGE, "11.20"), (), RULES, None),
        (asking(VOID, "40"), of(CHARGE, "11.20"), (), RULES, "11.20"),
        (asking(VOID, "5"), of(CHARGE, "11.20"), (), RULES, "11.20"),
        (asking(VOID, "5"), of(CHARGE, "11.20"), (), PARTIAL, None),
        (asking(VOID, "40"), of(CHARGE, "11.20"), (), PARTIAL, "11.20"),
        (asking(VOID, "12.20"), of(CHARGE, "11.20"), (of(POST_TIP, "1", 2),), RULES, None),
        (asking(VOID, "11.20"), of(CHARGE, "11.20"), (of(POST_TIP, "1", 2),), RULES, None),
        (asking(VOID, "11.70"), of(CHARGE, "11.20"), (of(POST_TIP, "1", 2),), RULES, "12.20"),
        (asking(VOID, "150"), of(PRE_AUTH, "100"), (of(RE_AUTH, "150", 2),), RULES, None),
        (asking(VOID, "100"), of(PRE_AUTH, "100"), (of(RE_AUTH, "150", 2),), RULES, "150"),
        # all refunds together must not exceed the charge
        (asking(REFUND, None), of(CHARGE, "11.20"), (), RULES, None),
        (asking(REFUND, "5"), of(CHARGE, "11.20"), (), RULES, None),
        (asking(REFUND, "11.21"), of(CHARGE, "11.20"), (), RULES, "11.20"),
        (asking(REFUND, "12.20"), of(CHARGE, "11.20"), (of(POST_TIP, "1", 2),), RULES, None),
        (asking(REFUND, "6.20"), of(CHARGE, "11.20"), (of(REFUND, "5", 2),), RULES, None),
        (asking(REFUND, "6.21"), of(CHARGE, "11.20"), (of(REFUND, "5", 2),), RULES, "6.20"),
        (asking(REFUND, None), of(CHARGE, "11.20"), (of(REFUND, "5", 2),), RULES, "6.20"),
        (asking(REFUND, "1"), of(CHARGE, "11.20"), (of(REFUND, None, 2),), RULES, "0"),
        (asking(REFUND, "5"), of(CAPTURE, "11.20", took="4"), (), RULES, "4"),
        # other types have no limit
        (asking(RE_AUTH, "500"), of(PRE_AUTH, "100"), (), RULES, None),
        (asking(POST_TIP, "500"), of(CHARGE, "100"), (), RULES, None),
    ],
    ids=str,
)
def test_an_operation_is_limited_by_its_original(
    asked: Transaction,
    original: Transaction,
    others: tuple[Transaction, ...],
    rules: AmountsConfig,
    allowed: str | None,
) -> None:
    found = excess(asked, original, others, rules)
    assert (None if found is None else found.extra["allowed"]) == (None if allowed is None else Decimal(allowed))
    if found is not None:
        assert found.extra["asked"] == (asked.total or original.total)
        assert set(found.extra["transactions"]) <= {item.client_transaction_id for item in (original, *others)}
        assert found.code == "amount_exceeds"
        before = any(item.type is asked.type for item in others)
        assert ("of it captured" in found.detail, "of it refunded" in found.detail) == (
            asked.type is CAPTURE and before,
            asked.type is REFUND and before,
        )
        part = asked.type is VOID and asked.total < Decimal(str(allowed))
        assert ("for a part ask for a refund" in found.detail) is part


def test_an_operation_without_an_approval_is_not_counted() -> None:
    declined = resolved(asking(CAPTURE, "60"), Result.DECLINED, "Ana", "slip", None, NOW)
    assert excess(asking(CAPTURE, "100"), of(PRE_AUTH, "100"), [declined], RULES) is None
