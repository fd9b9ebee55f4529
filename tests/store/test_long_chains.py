"""Chains and sales of any length. The cost of placing an operation does not depend on the length."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC
from pathlib import Path
from time import thread_time
from typing import Any

import pytest

from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.payments import chains, rows
from posd.payments.amounts import NOTHING_MORE
from posd.payments.chains import refuse_sale
from posd.payments.model import Transaction
from posd.records.model import Phase
from posd.storage.batch import WriteTransaction
from posd.storage.connection import connect_reader
from tests.rig.tables import every, there
from tests.store.filled import OPEN, Filled, filling, name, terminal
from tests.store.test_cost_of_statements import steps

REFERENCE = "a1b2c3d4-0000-4000-8000-000000000001"
GIVEN = {"transaction_reference": REFERENCE, "ticket_number": "000001"}
#: MANY: far more operations than posd reads.
MANY, TEN_TIMES = 400, 4000
#: Limit in processor seconds for which the loop may be blocked.
LONGEST = 0.05


def refused_voids(filled: Filled, count: int) -> None:
    """Record failed voids under new ids. The voids have a reference that posd does not know."""
    filled.pay(2, ["TERMINAL_REJECTED"], type=OperationType.VOID, transaction_reference=REFERENCE)
    filled.again(2, count)


def refused_voids_of_one(filled: Filled, count: int) -> None:
    filled.pay(2, ["TERMINAL_REJECTED"], type=OperationType.VOID, original=name(1), derives_from=name(1))
    filled.again(2, count)


def refunds(filled: Filled, count: int) -> None:
    """Record refunds that were sent with the reference before posd knew the payment of the reference."""
    filled.pay(2, type=OperationType.REFUND, transaction_reference=REFERENCE)
    filled.again(2, count)


def charges_elsewhere(filled: Filled, count: int) -> None:
    """Record payments of another terminal. All these payments return the reference of the original."""
    filled.intent(2)
    filled.attempt(name(2))
    filled.event(name(2), "CARD_PRESENTED")
    filled.event(name(2), "APPROVAL_REQUESTED")
    filled.event(name(2), "APPROVAL", raw_response=GIVEN)
    filled.again(2, count)


#: Kind of record with an unlimited number -> whether these records make posd refuse a void of the payment.
SHAPES: dict[Callable[[Filled, int], None], bool] = {
    refused_voids: True,
    refused_voids_of_one: True,
    refunds: True,
    charges_elsewhere: False,
}


def fill(path: Path, shape: Callable[[Filled, int], None], count: int) -> Path:
    with filling(path) as filled:
        filled.db.execute("BEGIN")
        filled.intent(1, sale="s")
        filled.attempt(name(1))
        filled.event(name(1), "CARD_PRESENTED")
        filled.event(name(1), "APPROVAL_REQUESTED")
        filled.event(name(1), "APPROVAL", raw_response=GIVEN)
        shape(filled, count)
        filled.db.execute("COMMIT")
    return path


def asked(**fields: Any) -> Transaction:
    return Transaction(
        client_transaction_id=name(9_999),
        terminal=terminal(1),
        created_at="2026-11-20T11:00:00.000Z",
        updated_at="2026-11-20T11:00:00.000Z",
        phase=Phase.STARTING,
        sent_to="https://127.0.0.1:1",
        **({"type": OperationType.VOID, "original": name(1)} | fields),
    )


def place(db: Any, transaction: Transaction | None = None) -> str | None:
    """Place a void. Return the code of the problem, or None if the void may be started."""
    try:
        chains.place(WriteTransaction(db), transaction or asked(), UTC, NOTHING_MORE)
    except Problem as problem:
        return problem.code
    return None


@every("shape", SHAPES)
def test_placing_an_operation_costs_the_same_for_any_length_of_its_chain(
    tmp_path: Path, shape: Callable[[Filled, int], None]
) -> None:
    many, more = (fill(tmp_path / f"{shape.__name__}-{count}.db", shape, count) for count in (MANY, TEN_TIMES))
    assert steps(more, place) <= 1.1 * steps(many, place) + 20
    with closing(connect_reader(more)) as db:
        assert place(db) == ("chain_conflict" if SHAPES[shape] else None)
        took = []
        for _ in range(3):
            began = thread_time()
            place(db)
            took.append(thread_time() - began)
        assert min(took) < LONGEST


def test_starting_a_payment_costs_the_same_for_any_number_of_payments_of_its_sale(tmp_path: Path) -> None:
    def declined(filled: Filled, count: int) -> None:
        filled.pay(2, ["CARD_PRESENTED", "APPROVAL_REQUESTED", "DECLINED"], sale="t")
        filled.again(2, count)

    def start(db: Any) -> None:
        with pytest.raises(Problem, match="sale t has more than"):
            refuse_sale(WriteTransaction(db), asked(type=OperationType.CHARGE, original=None, sale="t"), ())

    many, more = (fill(tmp_path / f"{count}.db", declined, count) for count in (MANY, TEN_TIMES))
    assert steps(more, start) <= 1.1 * steps(many, start) + 20


@pytest.mark.parametrize("count", [50, 500])
def test_the_amount_of_an_original_is_right_for_any_number_of_derived_operations(tmp_path: Path, count: int) -> None:
    """The sum of the tips does not depend on the number of refunds.

    For an operation, only the tips before it are added to the amount of its original.
    """

    def tips(filled: Filled, refunds: int) -> None:
        derived = {"original": name(1), "derives_from": name(1)}
        filled.pay(2, type=OperationType.POST_TIP, **derived)
        filled.pay(3, type=OperationType.REFUND, **derived)
        filled.again(3, refunds)
        filled.pay(4, type=OperationType.POST_TIP, **derived)

    with closing(connect_reader(fill(tmp_path / "tips.db", tips, count))) as db:
        refund, tip = rows.get(db, name(3)), rows.get(db, name(2))
        assert refund is not None
        assert tip is not None
        facts = there(chains.original_facts(db, refund, chains.read_original(db, refund)))
        assert facts.tips == tip.total


def test_an_operation_keeps_its_original_if_another_payment_gets_the_same_reference(tmp_path: Path) -> None:
    def refund_by_reference(filled: Filled, count: int) -> None:
        filled.pay(2, type=OperationType.REFUND, transaction_reference=REFERENCE, derives_from=name(1))
        filled.pay(3, OPEN)
        filled.event(name(3), "APPROVAL", raw_response=GIVEN)

    with closing(connect_reader(fill(tmp_path / "same.db", refund_by_reference, 1))) as db:
        refund = there(rows.get(db, name(2)))
        assert chains.original_of(db, refund) == name(1)


NEWEST: dict[str, Callable[[Any], Any]] = {
    "search_control": lambda db: rows.search_control(db, terminal(2)),
    "newest_answer_unit": lambda db: rows.newest_answer_unit(db, terminal(2)),
    "approvals": lambda db: rows.approvals(db, terminal(2), but=""),
}


@every("word", NEWEST)
def test_a_query_about_a_terminal_reads_only_its_newest_payments(tmp_path: Path, word: str) -> None:
    """No query finds a match on a terminal whose payments were all canceled."""

    def canceled(filled: Filled, count: int) -> None:
        filled.pay(2, ["CARD_PRESENTED", "TERMINAL_CANCELED"])
        filled.again(2, count)

    many, more = (fill(tmp_path / f"{word}-{count}.db", canceled, count) for count in (1200, 3 * 1200))
    assert steps(more, NEWEST[word]) <= 1.1 * steps(many, NEWEST[word]) + 20
