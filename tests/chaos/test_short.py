"""A short random run, and that the comparison sees what it is there to see. The long runs are a command."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import Report, run, words
from tests.chaos.compare import Books, Case, cases, compare
from tests.chaos.plan import Kind, make_plan
from tests.chaos.proxy import Fate

PAYMENTS, TERMINALS, TILLS, SEED = 40, 3, 3, 8
#: How much faster than people the terminals are.
SPEED = 40.0


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Report, Books]]:
    """The run, with its ledgers."""
    directory = Path(tempfile.mkdtemp(prefix="posd-chaos-", dir="/tmp"))
    plan = make_plan(SEED, PAYMENTS, TERMINALS, TILLS)
    command = f"python -m tests.chaos --payments {PAYMENTS} --terminals {TERMINALS} --tills {TILLS} --seed {SEED}"
    report, books = asyncio.run(run(plan, directory, SPEED, command))
    yield report, books
    if report.good:
        shutil.rmtree(directory)


def test_a_seed_gives_the_same_plan():
    assert make_plan(7, 200, 6, 5) == make_plan(7, 200, 6, 5)
    assert make_plan(7, 200, 6, 5) != make_plan(8, 200, 6, 5)


def test_a_plan_has_every_kind_of_fault_and_exactly_the_payments():
    plan = make_plan(SEED, PAYMENTS, TERMINALS, TILLS)
    assert {fault.kind for fault in plan.faults} == set(Kind)
    assert len({payment.id for payment in plan.payments}) == PAYMENTS
    for sale in {payment.sale for payment in plan.payments if payment.sale}:
        pair = [payment for payment in plan.payments if payment.sale == sale]
        assert pair[0].till != pair[1].till
        assert pair[0].terminal != pair[1].terminal


def test_nothing_is_lost_doubled_or_wrong(made):
    report, books = made
    assert report.good, f"{words(report)}\nledgers, logs and the database: {report.directory}"
    assert len({line["id"] for ledger in books.tills.values() for line in ledger}) == PAYMENTS


def test_every_kind_of_fault_was_injected(made):
    report, _ = made
    met = Counter[str]()
    for fates in report.connections.values():
        met.update(fates)
    assert not [kind for kind in Kind if not report.injected[kind]], words(report)
    assert not [fate for fate in Fate if not met[fate]], words(report)
    for happened in ("payments charged", "events out of order", "events delivered again", "deliveries that failed"):
        assert report.figures[happened] > 0, words(report)


def charged(books: Books) -> Iterator[Case]:
    """The payments that were charged and whose tills have heard it."""
    return (case for case in cases(books).values() if case.charges and case.heard is not None)


def lines(books: Books, kind: str, identity: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """The lines of a kind of an id in anybody's ledger, each with its ledger."""
    return [
        (ledger, line)
        for ledger in (*books.terminals.values(), *books.tills.values())
        for line in ledger
        if line["kind"] == kind and identity in (line.get("client_transaction_id"), line.get("id"))
    ]


def unknown(books: Books, case: Case) -> None:
    """posd does not have it."""
    books.transactions.remove(case.shown)


def not_charged(books: Books, case: Case) -> None:
    """posd says that it was declined."""
    case.shown["outcome"]["result"] = "declined"


def heard_canceled(books: Books, case: Case) -> None:
    """Its till heard that it was canceled."""
    for _, line in lines(books, "outcome", case.id):
        line["result"] = "canceled"


def never_stored(books: Books, case: Case) -> None:
    """An event was answered 2xx that is not in the database."""
    ledger, line = lines(books, "attempt", case.id)[0]
    ledger.append(line | {"event_id": "another", "result": 200})


def sent_twice(books: Books, case: Case) -> None:
    """The terminal got it twice."""
    ledger, line = lines(books, "start", case.id)[0]
    ledger.append(line)


def started_twice(books: Books, case: Case) -> None:
    """posd said twice that it was started now."""
    ledger, line = lines(books, "answer", case.id)[0]
    ledger[:] = [{**line, "status": 201}, {**line, "status": 201}, *ledger]


def charged_twice(books: Books, case: Case) -> None:
    """The terminal charged it twice."""
    ledger, line = lines(books, "final", case.id)[0]
    ledger.append(line)


def sale_charged_twice(books: Books, case: Case) -> None:
    """It was for the basket of another payment that was charged."""
    other = next(other for other in charged(books) if other.id != case.id)
    books.sales.update({case.id: "basket", other.id: "basket"})


def never_charged(books: Books, case: Case) -> None:
    """posd says approved, and the terminal has no end of it."""
    for ledger, line in lines(books, "final", case.id):
        ledger.remove(line)


def another_reference(books: Books, case: Case) -> None:
    """posd has another reference than the terminal."""
    case.shown["outcome"]["transaction_reference"] = "another"


def another_amount(books: Books, case: Case) -> None:
    """The terminal charged another amount than was asked for."""
    for _, line in lines(books, "final", case.id):
        line["amount"] += 1
    case.shown["outcome"]["authorized_amount"] += 1


def refused_and_sent(books: Books, case: Case) -> None:
    """posd said that nothing was sent."""
    ledger, _ = lines(books, "outcome", case.id)[-1]
    ledger.append({"kind": "refused", "id": case.id, "code": "sale_conflict"})


def open_unseen(books: Books, case: Case) -> None:
    """posd has it open, and tells nobody."""
    case.shown.update(phase="active", outcome=None, attention=[])


def strange_attention(books: Books, case: Case) -> None:
    """posd tells of something that has not happened."""
    case.shown["attention"] = [{"code": "conflicting_final"}]


def told_and_gone(books: Books, case: Case) -> None:
    """The feed told of a change of it that is not there."""
    books.feed[max(books.feed) + 1] = (case.id, "event:APPROVAL", "final", "approved")


def never_told(books: Books, case: Case) -> None:
    """The feed did not tell of a change of it."""
    del books.feed[next(seq for seq, change in books.feed.items() if change[0] == case.id)]


@pytest.mark.parametrize(
    ("kind", "tamper"),
    [
        ("lost", unknown),
        ("lost", not_charged),
        ("lost", heard_canceled),
        ("lost", never_stored),
        ("doubled", sent_twice),
        ("doubled", started_twice),
        ("doubled", charged_twice),
        ("doubled", sale_charged_twice),
        ("wrong", never_charged),
        ("wrong", another_reference),
        ("wrong", another_amount),
        ("wrong", refused_and_sent),
        ("lost", open_unseen),
        ("wrong", strange_attention),
        ("lost", told_and_gone),
        ("wrong", never_told),
    ],
)
def test_the_comparison_sees_it(made, kind: str, tamper: Callable[[Books, Case], None]):
    names = ("terminals", "tills", "sales", "feed", "transactions")
    books = replace(made[1], **{name: deepcopy(getattr(made[1], name)) for name in names})
    tamper(books, next(charged(books)))
    assert kind in {finding.kind for finding in compare(books)}
