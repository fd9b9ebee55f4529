"""Where a payment stands in the report, and with which amount: a table of what can be."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from posd.cli.report.facts import read
from posd.cli.report.standing import Payment, count, related
from tests.cli.report.shopday import identity, payment

AT = datetime(2026, 11, 20, 15, 0, tzinfo=UTC)
ASKED = {"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00"), "extra_taxes": {"ice": Decimal("0.05")}}
D = Decimal


def counted(document: dict[str, Any], *others: dict[str, Any]) -> Payment:
    return count(read(document), {item["client_transaction_id"]: read(item) for item in others})


def of(kind: str, original: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A payment of a type: of 11.25, or a void of an original."""
    named = {"original": original["client_transaction_id"]} if original else {}
    amount = {"amount": {} if kind == "void" else ASKED}
    return payment(2, AT, **({"type": kind} | amount | named | fields))


CHARGE = payment(1, AT, amount=ASKED, authorized=D("12.00"))
UNNAMED = payment(1, AT, amount=ASKED)
DECLINED = payment(1, AT, amount=ASKED, result="declined")
RESERVATION = payment(1, AT, type="pre-auth", amount=ASKED, authorized=D("11.25"))
CAPTURE = payment(1, AT, type="capture", amount=ASKED, authorized=D("5.00"))


@pytest.mark.parametrize(
    ("document", "others", "section", "kind", "amount", "basis"),
    [
        (of("charge", authorized=D("11.25")), (), "counted", "charge", "11.25", "authorized"),
        (of("charge", authorized=D("8.00")), (), "counted", "charge", "8.00", "authorized"),
        (of("charge"), (), "counted", "charge", "11.25", "requested"),
        (of("charge", amount={}), (), "unclear", "charge", None, "unknown"),
        (of("charge", authorized=D("-1")), (), "unclear", "charge", None, "unknown"),
        (of("charge", authorized=D(0)), (), "counted", "charge", "0", "authorized"),
        (of("charge", result="declined"), (), "not_charged", "charge", "11.25", "requested"),
        (of("charge", result="not_started", evidence="refusal"), (), "not_charged", "charge", "11.25", "requested"),
        (of("charge", result=None), (), "open", "charge", "11.25", "requested"),
        (of("capture", RESERVATION, authorized=D("4")), (RESERVATION,), "counted", "capture", "4", "authorized"),
        (of("pre-auth", authorized=D("11.25")), (), "reserved", "pre-auth", "11.25", "authorized"),
        (of("re-auth", RESERVATION), (), "reserved", "re-auth", "11.25", "requested"),
        (of("post-tip", CHARGE, authorized=D("11.25")), (CHARGE,), "counted", "post-tip", "11.25", "authorized"),
        (of("post-tip", CHARGE, authorized=D("23.25")), (CHARGE,), "counted", "post-tip", "11.25", "new_total"),
        (of("post-tip", authorized=D("23.25")), (), "counted", "post-tip", "23.25", "authorized"),
        (of("void", CHARGE), (CHARGE,), "counted", "void", "-12.00", "original"),
        (of("void", UNNAMED), (UNNAMED,), "counted", "void", "-11.25", "original"),
        (of("void", CHARGE, authorized=D("12.00")), (CHARGE,), "counted", "void", "-12.00", "authorized"),
        (of("void", CHARGE, authorized=D("-12.00")), (CHARGE,), "counted", "void", "-12.00", "authorized"),
        (
            of("void", CAPTURE, outcome={"reversal": "refund"}),
            (CAPTURE,),
            "counted",
            "refund",
            "-5.00",
            "original",
        ),
        (of("void", RESERVATION), (RESERVATION,), "reserved", "release", "-11.25", "original"),
        (of("void", authorized=D("12.00")), (), "unclear", "void of unknown", "-12.00", "authorized"),
        (of("void", CHARGE), (), "unclear", "void of unknown", None, "unknown"),
        (of("void", DECLINED), (DECLINED,), "unclear", "void", None, "unknown"),
        (of("void", CHARGE, result=None), (CHARGE,), "open", "void", "-12.00", "original"),
        (payment(2, AT, type=None, amount={}, authorized=D("5")), (), "unclear", "unknown", "5", "authorized"),
    ],
)
def test_where_a_payment_stands(
    document: dict[str, Any], others: tuple[dict[str, Any], ...], section: str, kind: str, amount: str, basis: str
) -> None:
    found = counted(document, *others)
    assert (found.section, found.kind, found.basis) == (section, kind, basis)
    assert found.amount == (None if amount is None else D(amount))
    assert found.counted == (found.amount if section == "counted" else None)
    assert found.in_question == (section in ("open", "unclear"))


@pytest.mark.parametrize(
    ("document", "others", "differs"),
    [
        (of("charge", authorized=D("11.25")), (), False),
        (of("charge", authorized=D("11.250")), (), False),
        (of("charge", authorized=D("11.24")), (), True),
        (of("charge"), (), False),
        (of("void", CHARGE, authorized=D("12")), (CHARGE,), False),
        (of("void", CHARGE, authorized=D("11")), (CHARGE,), True),
        (of("post-tip", CHARGE, authorized=D("23.25")), (CHARGE,), False),
        (of("charge", authorized=D("11.24"), result="declined"), (), False),
    ],
)
def test_another_amount_than_was_asked_for_is_noticed(
    document: dict[str, Any], others: tuple[dict[str, Any], ...], differs: bool
) -> None:
    assert counted(document, *others).differs == differs


def test_a_tip_that_the_customer_added_is_no_difference() -> None:
    document = of("charge", authorized=D("12.25"))
    document["outcome"]["final_event"]["operation"]["amount"]["tip"] = 1
    found = counted(document)
    assert (found.amount, found.differs) == (D("12.25"), False)


@pytest.mark.parametrize("section", ["counted", "not_charged"])
def test_what_a_person_has_to_settle_is_in_question_wherever_it_stands(section: str) -> None:
    result = {"counted": "approved", "not_charged": "declined"}[section]
    found = counted(of("charge", result=result, next_step="ask_person"))
    assert (found.section, found.in_question) == (section, True)


@pytest.mark.parametrize(
    ("word", "by", "wrong"),
    [
        (timedelta(0), "terminal", False),
        (timedelta(minutes=-59), "terminal", False),
        (timedelta(hours=-2), "posd", True),
        (timedelta(minutes=59), "terminal", False),
        (timedelta(hours=2), "posd", True),
        (timedelta(days=-20000), "posd", True),
    ],
)
def test_the_terminal_says_when_as_far_as_its_clock_can_be_right(word: timedelta, by: str, wrong: bool) -> None:
    found = read(of("charge", occurred_at=(AT + word).isoformat()))
    assert (found.at, found.at_by, found.clock_wrong) == (AT + word if by == "terminal" else AT, by, wrong)


def test_what_came_days_late_counts_when_it_happened() -> None:
    found = read(of("charge", occurred_at=(AT + timedelta(seconds=9)).isoformat(), seconds=D(5 * 86400)))
    assert (found.at, found.at_by) == (AT + timedelta(seconds=9), "terminal")


@pytest.mark.parametrize("word", ["", "yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", 7])
def test_a_time_that_is_none_is_not_believed(word: object) -> None:
    document = of("charge")
    document["outcome"]["final_event"]["occurred_at"] = word
    assert (read(document).at, read(document).at_by) == (AT, "posd")


def test_an_event_of_other_shapes_is_read_all_the_same() -> None:
    for event in (None, {}, {"terminal": [], "operation": {"amount": 5}}, {"operation": [], "terminal": "x"}):
        document = of("charge", authorized=D("11.25"))
        document["outcome"]["final_event"] = event
        assert counted(document).counted == D("11.25")


def test_what_is_related_is_what_was_done_to_and_what_was_done() -> None:
    pre = payment(5, AT, type="pre-auth", derived=[identity(6), identity(7)])
    void = of("void", CHARGE)
    assert related([read(pre), read(void), read(payment(7, AT))]) == {identity(1), identity(6)}


@pytest.mark.parametrize(
    ("done", "became"),
    [
        ([], "held"),
        ([("capture", "declined")], "held"),
        ([("capture", None)], "in question"),
        ([("void", "approved")], "released"),
        ([("re-auth", "approved"), ("capture", "approved")], "captured"),
    ],
)
def test_what_has_become_of_a_reservation(done: list[tuple[str, str | None]], became: str) -> None:
    others = [payment(10 + place, AT, type=kind, result=result) for place, (kind, result) in enumerate(done)]
    ids = [item["client_transaction_id"] for item in others]
    assert counted(of("pre-auth", derived=ids), *others).became == became
