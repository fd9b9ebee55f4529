"""Which payments explain that a terminal's own total is another one: exact, the smallest sets, and none invented."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from posd.cli.report.expect import MOST_SETS, MOST_TOGETHER, Candidate, Reason, compare, explain
from posd.cli.report.facts import read
from posd.cli.report.standing import count
from tests.cli.documents import attention
from tests.cli.report.shopday import identity, payment
from tests.support.slow import examples

AT = datetime(2026, 11, 20, 15, 0, tzinfo=UTC)
D = Decimal

#: Few different ones, so that sets are found; of different digits, so that none is a float by mistake.
amounts = st.sampled_from([D("11.20"), D("5.6"), D("-5.60"), D("0.1"), D("0.2"), D("0.30"), D("1E+1"), D("0.0001")])
ANY = [count(read(payment(number, AT)), {}) for number in range(1000)]
found = st.lists(st.builds(Candidate, st.sampled_from(ANY[:7]), st.sampled_from(Reason), amounts), max_size=9)


def naive(candidates: list[Candidate], wanted: Decimal) -> set[frozenset[int]]:
    """All the smallest sets, found by trying each; places in the list."""
    doubtful = [item for item in candidates if item.reason is not Reason.COUNTED]
    singles = [(item,) for item in candidates if item.difference == wanted]
    sets: list[tuple[Candidate, ...]] = []
    if not any(item.reason is not Reason.COUNTED for (item,) in singles):
        for size in (2, 3):
            sets = [
                items
                for items in combinations(doubtful, size)
                if sum(item.difference for item in items) == wanted and len({item.id for item in items}) == size
            ]
            if sets:
                break
    return {frozenset(map(id, items)) for items in (*singles, *sets)}


@settings(max_examples=examples(60, 400))
@given(found, st.lists(amounts, min_size=1, max_size=3), amounts)
def test_it_names_the_smallest_sets_that_add_up_and_no_other(
    candidates: list[Candidate], wanted: list[Decimal], counted: Decimal
) -> None:
    difference = sum(wanted, D(0))
    assume(difference)
    compared = explain(counted + difference, counted, candidates)
    named = {frozenset(map(id, items)) for items in compared.sets}
    assert compared.difference == difference
    assert len(named) == len(compared.sets) <= MOST_SETS
    every = naive(candidates, difference)
    assert named <= every
    assert compared.more or named == every
    for items in compared.sets:
        assert sum(item.difference for item in items) == difference


def test_of_a_thousand_payments_it_is_still_quick_and_says_what_it_left_out() -> None:
    many = [Candidate(ANY[number], Reason.NOT_CHARGED, D(number * 7 + 1).scaleb(-2)) for number in range(1000)]
    compared = explain(D("0.02"), D("-1000"), many)
    assert (compared.sets, compared.searched, compared.doubtful) == ([], MOST_TOGETHER, 1000)
    same = [Candidate(ANY[number], Reason.OPEN, D("1.10")) for number in range(1000)]
    assert (len(explain(D("3.30"), D(0), same).sets), explain(D("3.30"), D(0), same).more) == (MOST_SETS, True)
    assert explain(D("4.40"), D(0), same).sets == []


CHARGE = payment(1, AT, authorized=D("11.20"))


@pytest.mark.parametrize(
    ("document", "expected", "reason"),
    [
        (payment(2, AT, result=None), "22.40", Reason.OPEN),
        (payment(2, AT, result=None, phase="in_doubt"), "22.40", Reason.DOUBT),
        (payment(2, AT, result="declined"), "22.40", Reason.NOT_CHARGED),
        (payment(2, AT, evidence="operator"), "11.20", Reason.BY_PERSON),
        (payment(2, AT, outcome={"supersedes": {"result": "declined"}}), "11.20", Reason.CORRECTED),
        (payment(2, AT, attention=[attention("approval_unlikely", "x")]), "11.20", Reason.QUESTIONED),
        (payment(2, AT, result="declined", next_step="ask_person"), "22.40", Reason.QUESTIONED),
        (payment(2, AT, authorized=D("8.20")), "22.40", Reason.AMOUNT),
        (payment(2, AT, type="void", amount={}, original=identity(1)), "11.20", Reason.VOIDED),
        (payment(2, AT + timedelta(hours=1), authorized=D("3.00")), "11.20", Reason.COUNTED),
    ],
)
def test_what_a_terminal_may_count_differently(document: dict[str, Any], expected: str, reason: Reason) -> None:
    others = {identity(1): read(CHARGE)}
    payments = [count(read(item), others) for item in (CHARGE, document)]
    counted = sum((item.counted for item in payments if item.counted is not None), D(0))
    compared = compare(D(expected), counted, payments)
    assert (identity(2), reason) in [(item.id, item.reason) for (item,) in compared.sets]


def test_reservations_and_what_has_no_amount_explain_nothing() -> None:
    documents = [
        payment(2, AT, type="pre-auth", result=None),
        payment(3, AT, type="pre-auth"),
        payment(4, AT, type="pre-auth", result="declined"),
        payment(5, AT, amount={}, result=None),
    ]
    compared = compare(D("11.20"), D(0), [count(read(item), {}) for item in documents])
    assert (compared.sets, compared.equal) == ([], False)
    assert compare(D("1.0"), D("1.00"), []).equal
