"""A short random run, and falsified records. The comparison finds each falsification. The command `python -m
tests.chaos` makes long runs.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import Report, make_run
from tests.chaos.books import Books, Case, Line, cases, compare
from tests.chaos.plan import Kind, make_plan

PAYMENTS, TERMINALS, TILLS = 36, 3, 3
SEED = 52


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Report, Books]]:
    """Make a run. Return the report and the ledgers."""
    directory = Path(tempfile.mkdtemp(prefix="posd-chaos-"))
    report, books = asyncio.run(make_run(make_plan(SEED, PAYMENTS, TERMINALS, TILLS), directory))
    yield report, books
    if report.good:
        shutil.rmtree(directory)


def test_a_seed_gives_the_same_plan() -> None:
    assert make_plan(7, 200, 6, 5) == make_plan(7, 200, 6, 5)
    assert make_plan(7, 200, 6, 5) != make_plan(8, 200, 6, 5)


def test_a_plan_has_every_kind_of_fault_and_exactly_the_payments() -> None:
    plan = make_plan(SEED, PAYMENTS, TERMINALS, TILLS)
    assert {fault.kind for fault in plan.faults} == set(Kind)
    assert len({payment.id for payment in plan.payments}) == PAYMENTS
    for sale in {payment.sale for payment in plan.payments if payment.sale}:
        pair = [payment for payment in plan.payments if payment.sale == sale]
        assert pair[0].till != pair[1].till
        assert pair[0].terminal != pair[1].terminal


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_wrong(made: tuple[Report, Books]) -> None:
    report, books = made
    assert report.good, f"{report}\nledgers, log and database: {report.directory}"
    assert len({line["id"] for ledger in books.tills for line in ledger}) == PAYMENTS


@pytest.mark.slow
def test_every_kind_of_fault_was_injected(made: tuple[Report, Books]) -> None:
    report, _ = made
    assert not [kind for kind in Kind if not report.injected[kind]], report


class Records:
    """The records of a run and of one charged payment. No operator and no abort affected this payment."""

    def __init__(self, books: Books) -> None:
        self.books = replace(
            books,
            **{name: deepcopy(getattr(books, name)) for name in ("terminals", "tills", "transactions", "sales")},
        )
        charged = [case for case in cases(self.books).values() if case.charges and case.heard and not case.resolved]
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


#: Falsification, kind of the finding, and a part of the finding's text.
TAMPERINGS: tuple[tuple[Callable[[Records], None], str, str], ...] = (
    (Records.forget, "lost", "posd does not know a charged payment"),
    (Records.forget, "lost", "posd does not know a payment that it has shown to the till"),
    (Records.forget, "wrong", "only in the database or only in the list"),
    (Records.send_unknown, "lost", "posd does not know a sent payment"),
    (lambda records: records.end_as(result="declined"), "lost", "posd has declined, and the terminal has APPROVAL"),
    (lambda records: records.set("outcome", result="canceled"), "lost", "the till received canceled"),
    (
        lambda records: records.repeat("attempt", event_id="another", result=200),
        "lost",
        "and has lost it",
    ),
    (lambda records: records.leave_open("active"), "lost", "without an attention"),
    (lambda records: records.repeat("start"), "doubled", "2 start requests reached terminals"),
    (Records.start_twice, "doubled", "replied 201 to the till more than once"),
    (lambda records: records.repeat("final"), "doubled", "charged the payment 2 times"),
    (
        lambda records: records.books.sales.update({records.case.id: "basket", records.other.id: "basket"}),
        "doubled",
        "the sale was charged 2 times",
    ),
    (lambda records: records.remove("final"), "wrong", "the terminal has no end"),
    (lambda records: records.end_as(transaction_reference="another"), "wrong", "posd has the approval"),
    (Records.charge_more, "wrong", "and the terminal charged"),
    (
        lambda records: records.repeat("outcome", kind="refused", code="sale_conflict"),
        "wrong",
        "and recorded or sent it",
    ),
    (lambda records: records.leave_open("in_doubt", "in_doubt"), "wrong", "is open after the last search"),
    (lambda records: records.leave_open("starting", "in_doubt"), "wrong", "the payment is still starting"),
    (lambda records: records.set("outcome", reference="another"), "wrong", "the till received another reference"),
    (
        lambda records: records.set("final", charged=False),
        "wrong",
        "the customer was not charged, and the till received approved",
    ),
    (lambda records: records.end_as(result="declined"), "wrong", "without a correction"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("tamper", "kind", "what"), TAMPERINGS)
def test_the_comparison_finds_each_falsification(
    made: tuple[Report, Books], tamper: Callable[[Records], None], kind: str, what: str
) -> None:
    records = Records(made[1])
    tamper(records)
    found = compare(records.books)
    assert [finding for finding in found if finding.kind == kind and what in finding.what], found


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
#: Statement for the payment `:id`, kind of the finding, and a part of the finding's text.
DATABASE_TAMPERINGS = (
    ("UPDATE transactions SET phase = 'odd' WHERE client_transaction_id = :id", "wrong", "CHECK constraint failed"),
    ("DELETE FROM transactions WHERE client_transaction_id = :id", "wrong", "missing row of transactions"),
    ("DELETE FROM events WHERE client_transaction_id = :id", "lost", "and has lost it"),
    (_REPEATED, "wrong", "has an event 2 times"),
    (_REFUSED, "wrong", "posd refused an event: not an event"),
    ("INSERT INTO leases VALUES ('SN-9999', :id)", "wrong", "the ended payment still holds its terminal"),
    (_CHANGED, "wrong", "the outcome changed from approved to declined"),
    (_REMOVED, "lost", "retention removed the payment too early"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "kind", "what"), DATABASE_TAMPERINGS)
def test_the_comparison_finds_each_falsification_of_the_database(
    made: tuple[Report, Books], tmp_path: Path, statement: str, kind: str, what: str
) -> None:
    records = Records(made[1])
    records.books.database = Path(shutil.copy(records.books.database, tmp_path / "posd.db"))
    with closing(sqlite3.connect(records.books.database)) as db, db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        assert db.execute(statement, {"id": records.case.id}).rowcount > 0
    found = compare(records.books)
    assert [finding for finding in found if finding.kind == kind and what in finding.what], found
