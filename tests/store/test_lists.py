"""Lists of payments and their totals, compared with a scan of all payments.

The filters are generated, and the SQLite file is real.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Generator
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import encode
from posd.base.operations import OperationType
from posd.base.times import iso
from posd.payments import lists
from posd.payments.model import Outcome, Result, Transaction
from posd.payments.record import Recorded, begin, move
from posd.records import pages
from posd.records.model import Phase
from posd.records.service import CallsInFlight
from posd.storage.batch import WriteTransaction
from tests.store.test_transactions import NOW, starting
from tests.store.test_words_of_metadata import in_memory

T = TypeVar("T")

AMOUNTS = [
    {"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00"), "subtotal_iva0": Decimal(0)},
    {"iva": Decimal(0), "subtotal_iva": Decimal(0), "subtotal_iva0": Decimal("0.0001"), "tip": Decimal("3.3")},
    {"subtotal_iva0": Decimal("999999999999.9999"), "extra_taxes": {"ice": Decimal("0.1"), "iac": Decimal("0.2")}},
    {},
]
AUTHORIZED = [None, Decimal("11.20"), Decimal("0.1"), Decimal("123456789012345678901234.123456789012345678901234")]
METADATA = [{}, {"till": 1}, {"till": "1", "day": "mon"}, {"till": 1.0, "day": "tue"}, {"till": 2, "day": "mon"}]


class Stored(msgspec.Struct, frozen=True):
    """A payment. `amount`, `authorized` and `metadata` are positions in the lists above."""

    second: int
    terminal: int
    type: OperationType | None
    result: Result | None
    amount: int
    authorized: int
    metadata: int


PAYMENTS = st.lists(
    st.builds(
        Stored,
        second=st.integers(0, 3),
        terminal=st.integers(0, 1),
        type=st.sampled_from([OperationType.CHARGE, OperationType.VOID, None]),
        result=st.sampled_from([None, *Result]),
        amount=st.integers(0, len(AMOUNTS) - 1),
        authorized=st.integers(0, len(AUTHORIZED) - 1),
        metadata=st.integers(0, len(METADATA) - 1),
    ),
    max_size=8,
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "result": st.sampled_from(list(Result)),
        "terminal": st.sampled_from(["SN-0", "SN-1"]),
        "open": st.just(True),
        "phase": st.sampled_from([Phase.FINAL, Phase.STARTING]),
        "attention": st.just(True),
        "sale": st.just("s"),
        "since": st.integers(0, 4).map(lambda second: iso(NOW + timedelta(seconds=second))),
        "until": st.integers(0, 4).map(lambda second: iso(NOW + timedelta(seconds=second))),
        "metadata": st.dictionaries(
            st.sampled_from(["till", "day", "none"]), st.sampled_from(["1", "1.00", "2", "mon"]), max_size=2
        ),
    },
)


def store(db: sqlite3.Connection, number: int, item: Stored) -> Transaction:
    at = iso(NOW + timedelta(seconds=item.second))
    first = starting(
        client_transaction_id=f"00000000-0000-4000-8000-{number:012}",
        created_at=at,
        terminal=f"SN-{item.terminal}",
        type=item.type,
        sale="s" if number % 2 else None,
        amount=encode(AMOUNTS[item.amount]),
        metadata=json.dumps(METADATA[item.metadata]).encode(),
    )
    begin(WriteTransaction(db), first, "intent")
    if item.result is None:
        return first
    outcome = Outcome(item.result, None, None, None, None, None, None, AUTHORIZED[item.authorized], None, None, at, ())
    final = msgspec.structs.replace(first, phase=Phase.FINAL, outcome=outcome)
    return move(WriteTransaction(db), first, final, Recorded("end"), CallsInFlight())


def fits(row: Transaction, filters: dict[str, Any]) -> bool:
    def has(name: str, text: str) -> bool:
        value = json.loads(row.metadata).get(name)
        if isinstance(value, str):
            return value == text
        return value is not None and text != "mon" and value == float(text)

    return (
        ("result" not in filters or (row.outcome and row.outcome.result) == filters["result"])
        and row.terminal == filters.get("terminal", row.terminal)
        and row.phase == filters.get("phase", row.phase)
        and not ("open" in filters and row.phase is Phase.FINAL)
        and not ("attention" in filters and not row.attention)
        and ("sale" not in filters or row.sale == filters["sale"])
        and filters.get("since", "") <= row.created_at < filters.get("until", "9")
        and all(has(name, text) for name, text in filters.get("metadata", {}).items())
    )


def listed(db: sqlite3.Connection, filters: dict[str, Any]) -> list[str]:
    """Return the ids of all pages. A page has two payments."""
    page = lists.TransactionQuery(limit=2, **filters)
    found: list[str] = []
    while True:
        rows, cursor = lists.read_page(db, page)
        found += [row.client_transaction_id for row in rows]
        if cursor is None:
            return found
        page = msgspec.structs.replace(page, cursor=pages.decode_cursor(cursor))


def returned(steps: Generator[None, None, T]) -> T:
    try:
        while True:
            next(steps)
    except StopIteration as done:
        value: T = done.value
        return value


@given(PAYMENTS, FILTERS)
def test_a_list_has_all_matching_payments_in_order(payments: list[Stored], filters: dict[str, Any]) -> None:
    with in_memory() as db:
        stored = [store(db, number, item) for number, item in enumerate(payments)]
        fitting = [(row.created_at, row.client_transaction_id) for row in stored if fits(row, filters)]
        assert listed(db, filters) == [identity for _, identity in sorted(fitting, reverse=True)]


@given(PAYMENTS, FILTERS)
def test_totals_are_the_sums_of_all_matching_payments(payments: list[Stored], filters: dict[str, Any]) -> None:
    with in_memory() as db:
        counts: Counter[Any] = Counter()
        sums: Counter[Any] = Counter()
        for number, item in enumerate(payments):
            if fits(store(db, number, item), filters):
                key = item.type, item.result
                counts[key] += 1
                for name, value in AMOUNTS[item.amount].items():
                    for part in value.values() if isinstance(value, dict) else [value]:
                        sums[key, "tips" if name == "tip" else "amount"] += scaled(part)
        found = returned(lists.read_totals(db, lists.TransactionQuery(limit=1, cursor=("", ""), **filters)))
        for row in found:
            key = row.type, row.result
            counts[key] -= row.count
            for name in ("amount", "tips"):
                sums[key, name] -= scaled(getattr(row, name))
        assert not any(counts.values())
        assert not any(sums.values())


def scaled(amount: Decimal) -> int:
    """Return an amount as an integer, exact for any size."""
    return int(amount.as_integer_ratio()[0] * 10**24 // amount.as_integer_ratio()[1])
