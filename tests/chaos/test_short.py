"""A short random run, and falsified records. The comparison finds each falsification. The command `python -m
tests.chaos` makes long runs.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import make_run
from tests.chaos.books import Books, cases, compare
from tests.chaos.plan import Kind, make_plan
from tests.rig.judge import Case, Line

#: Result of a run: the number of faults of each kind, the findings, and the records.
Made = tuple[Counter[str], list[str], Books]

PAYMENTS, TERMINALS, TILLS = 36, 3, 3
SEED = 52


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    """Make a run. Return the number of faults of each kind, the findings and the records."""
    directory = Path(tempfile.mkdtemp(prefix="posd-chaos-"))
    yield (result := asyncio.run(make_run(make_plan(SEED, PAYMENTS, TERMINALS, TILLS), directory)))
    if not result[1]:
        shutil.rmtree(directory)


def test_only_the_same_seed_gives_the_same_plan() -> None:
    assert make_plan(7, 200, 6, 5) == make_plan(7, 200, 6, 5)
    assert make_plan(7, 200, 6, 5) != make_plan(8, 200, 6, 5)


def test_a_plan_has_every_kind_of_fault_and_the_requested_payments() -> None:
    plan = make_plan(SEED, PAYMENTS, TERMINALS, TILLS)
    assert {fault.kind for fault in plan.faults} == set(Kind)
    assert len({payment.id for payment in plan.payments}) == PAYMENTS
    for sale in {payment.sale for payment in plan.payments if payment.sale}:
        pair = [payment for payment in plan.payments if payment.sale == sale]
        assert pair[0].till != pair[1].till
        assert pair[0].terminal != pair[1].terminal


@pytest.mark.slow
def test_every_payment_of_a_run_is_recorded_correctly(made: Made) -> None:
    _, findings, books = made
    assert not findings, f"ledgers, log and database are beside {books.database}"
    assert len({line["id"] for ledger in books.tills for line in ledger}) == PAYMENTS


@pytest.mark.slow
def test_every_kind_of_fault_was_injected(made: Made) -> None:
    assert not [kind for kind in Kind if not made[0][kind]], made[0]


class Records:
    """The records of a run and of one charged payment. No operator and no abort affected this payment."""

    def __init__(self, books: Books) -> None:
        self.books = replace(
            books, **{name: deepcopy(getattr(books, name)) for name in ("terminals", "tills", "transactions", "sales")}
        )
        charged = [case for case in cases(self.books).values() if case.charges and case.told and not case.resolved]
        self.case, self.other = [case for case in charged if not self.lines("abort", case)][:2]
        assert self.case.shown is not None
        self.shown = self.case.shown

    def ledgers(self, kind: str, case: Case | None = None) -> Iterator[tuple[list[Line], Line]]:
        """Yield the lines of a kind about the payment. Each line comes with its ledger."""
        identity = (case or self.case).id
        for ledger in (*self.books.terminals, *self.books.tills):
            for line in list(ledger):
                if line["kind"] == kind and identity in (line.get("client_transaction_id"), line.get("id")):
                    yield ledger, line

    def lines(self, kind: str, case: Case | None = None) -> list[Line]:
        """Return the lines of a kind about the payment."""
        return [line for _, line in self.ledgers(kind, case)]

    def set(self, kind: str, **fields: Any) -> None:
        """Change all lines of a kind about the payment."""
        for line in self.lines(kind):
            line.update(fields)

    def repeat(self, of: str, **fields: Any) -> None:
        """Add a changed copy of a line about the payment."""
        ledger, line = next(self.ledgers(of))
        ledger.append(line | fields)

    def remove(self, kind: str) -> None:
        """Remove all lines of a kind about the payment."""
        for ledger, line in self.ledgers(kind):
            ledger.remove(line)

    def forget(self) -> None:
        """Remove the payment from posd."""
        self.books.transactions.remove(self.shown)

    def end_as(self, **fields: Any) -> None:
        """Change the outcome in posd."""
        self.shown["outcome"].update(fields)

    def leave_open(self, phase: str, *attention: str) -> None:
        """Make the payment open in posd."""
        self.shown.update(phase=phase, outcome=None, attention=[{"code": code} for code in attention])

    def never_end(self, phase: str, *attention: str) -> None:
        """Make the payment open at the terminal and in posd."""
        self.remove("final")
        self.leave_open(phase, *attention)

    def charge_more(self) -> None:
        """Make terminal and posd agree on an amount that the till did not request."""
        more = float(self.lines("final")[0]["amount"]) + 1
        self.set("final", amount=more)
        self.end_as(authorized_amount=more)

    def start_twice(self) -> None:
        """Make posd reply 201 to the till twice."""
        self.repeat("answer", status=201)
        self.repeat("answer", status=201)
        self.repeat("outcome")  # the last line of the till is still the outcome

    def send_unknown(self) -> None:
        """Remove the payment from posd, and the final event from the ledger, so that only the start is left."""
        self.remove("final")
        self.forget()


#: Falsification, and a part of the finding.
TAMPERINGS: tuple[tuple[Callable[[Records], None], str], ...] = (
    (Records.forget, "posd does not know a payment with 1 starts and 1 charges"),
    (Records.forget, "only in the database or only in the list"),
    (Records.send_unknown, "posd does not know a payment with 1 starts and 0 charges"),
    (lambda records: records.end_as(result="declined"), "and posd has ('declined', 'APPROVAL'"),
    (lambda records: records.set("outcome", result="canceled"), "the till received canceled"),
    (lambda records: records.repeat("attempt", event_id="another", result=200), "and has lost it"),
    (lambda records: records.leave_open("active"), "and posd has None (active)"),
    (lambda records: records.never_end("active"), "with the attentions set()"),
    (lambda records: records.repeat("start"), "2 start requests reached terminals"),
    (Records.start_twice, "replies 201 were sent to the till"),
    (lambda records: records.repeat("final"), "2 final events were made by the terminal"),
    (
        lambda records: records.books.sales.update({records.case.id: "basket", records.other.id: "basket"}),
        "the sale basket was charged 2 times",
    ),
    (lambda records: records.remove("final"), "the terminal has no end"),
    (
        lambda records: records.end_as(transaction_reference="another"),
        "and posd has ('approved', 'APPROVAL', 'another'",
    ),
    (Records.charge_more, "and the terminal charged"),
    (lambda records: records.repeat("outcome", kind="refused", code="sale_conflict"), "and recorded or sent it"),
    (lambda records: records.leave_open("in_doubt", "in_doubt"), "and posd has None (in_doubt)"),
    (lambda records: records.never_end("starting", "anything"), "the payment is open (starting"),
    (lambda records: records.set("outcome", transaction_reference="another"), "the till received another reference"),
    (lambda records: records.set("final", charged=False), "the terminal made 0 charges, and posd has approved"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("tamper", "what"), TAMPERINGS)
def test_the_comparison_finds_each_altered_record(made: Made, tamper: Callable[[Records], None], what: str) -> None:
    records = Records(made[2])
    tamper(records)
    found = compare(records.books)
    assert [finding for finding in found if what in finding], found


_REPEATED = """
INSERT INTO events (client_transaction_id, event_id, received_at, verdict, status, body)
SELECT client_transaction_id, event_id, received_at, verdict, status, body FROM events
 WHERE client_transaction_id = :id LIMIT 1
"""
_REFUSED = """
INSERT INTO quarantine (received_at, channel, subject, reason, peer, body)
VALUES ('', 'transactions', :id, 'not an event', '', '')
"""
_CHANGED = """
INSERT INTO changes (at, kind, id, reason, phase, result, attention)
VALUES ('', 'transaction', :id, 'event', 'final', 'declined', '["outcome_corrected"]')
"""
_REMOVED = """
INSERT INTO pruned_transactions (client_transaction_id, terminal, result, ended_on) VALUES (:id, '', 'approved', '')
"""
#: Statement for the payment `:id`, and a part of the finding.
DATABASE_TAMPERINGS = (
    ("UPDATE transactions SET phase = 'odd' WHERE client_transaction_id = :id", "CHECK constraint failed"),
    ("UPDATE transactions SET phase = 'active' WHERE client_transaction_id = :id", "without an outcome, or the rev"),
    ("DELETE FROM transactions WHERE client_transaction_id = :id", "missing row of transactions"),
    ("DELETE FROM events WHERE client_transaction_id = :id", "and has lost it"),
    (_REPEATED, "has an event twice"),
    (_REFUSED, "posd refused an event: not an event"),
    ("INSERT INTO leases VALUES ('SN-9999', :id)", "the ended payment still holds its terminal"),
    (_CHANGED, "the outcome changed from approved to declined"),
    (_REMOVED, "retention removed the payment too early"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "what"), DATABASE_TAMPERINGS)
def test_the_comparison_finds_each_altered_row_of_the_database(
    made: Made, tmp_path: Path, statement: str, what: str
) -> None:
    records = Records(made[2])
    records.books.database = Path(shutil.copy(records.books.database, tmp_path / "posd.db"))
    with closing(sqlite3.connect(records.books.database)) as db, db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        assert db.execute(statement, {"id": records.case.id}).rowcount > 0
    found = compare(records.books)
    assert [finding for finding in found if what in finding], found
