"""Generated payments in a database of posd, for code that reads many payments."""

import functools
import json
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from posd.base.json_types import encode
from posd.base.operations import OperationType
from posd.base.times import iso
from posd.payments import journal, record, report, rows
from posd.payments.accounting import RowContext
from posd.payments.lifecycle import Status, Trail, Verdict
from posd.payments.model import Attention, AttentionCode, Evidence, EvidenceKind, Failure, Receipt, Result, Transaction
from posd.payments.outcomes import inferred
from posd.payments.report_documents import PaymentReport
from posd.payments.wire import read_element
from posd.records.model import Phase
from posd.storage import changes
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.connection import migrate
from tests.rig.events import RESULTS

MEMORY = Path(":memory:")
T = TypeVar("T")
STATUSES = {result: Status(status) for status, result in RESULTS.items()}


def identity(number: int) -> str:
    """Return the id of the payment with this number."""
    return str(UUID(int=Random(number).getrandbits(128), version=4))


@functools.cache
def _empty() -> bytes:
    with closing(sqlite3.connect(MEMORY, isolation_level=None)) as db:
        migrate(db)
        return db.serialize()


class Book:
    """A database, with methods that add payments."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.unit = WriteTransaction(db)

    def put(
        self,
        number: int,
        at: datetime,
        *,
        result: str | None = "approved",
        seconds: Decimal = Decimal("11.2"),
        authorized: Decimal | None = None,
        event: Any = None,
        occurred_at: Any = None,
        brand: str | None = "VISA",
        currency: str | None = "USD",
        evidence: str = "event",
        amount: dict[str, Any] | None = None,
        kind: str | None = "charge",
        original: int | None = None,
        attention: tuple[str, ...] = (),
        was: str | None = None,
        reversal: str | None = None,
        tip: int = 0,
        terminal: str = "SN-0001",
        **fields: Any,
    ) -> str:
        """Store or replace a payment. Return the id. `event` replaces the payment's final event."""
        found = identity(number)
        decided = at + timedelta(milliseconds=int(seconds * 1000))
        amount = {"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00")} if amount is None else amount
        outcome = body = None
        if result is not None:
            stated = STATUSES.get(result) if evidence in ("event", "search") else None
            approved = result == "approved"
            if stated is not None:
                named = {"amount": {"currency": currency, "tip": tip}} if currency or tip else {}
                body = json.dumps(
                    {
                        "event_id": found,
                        "client_transaction_id": found,
                        "status": stated,
                        "occurred_at": iso(decided) if occurred_at is None else occurred_at,
                        "terminal": {"serial_number": terminal},
                        "operation": named,
                    }
                    | (event or {})
                ).encode()
            proof = Evidence(EvidenceKind(evidence), iso(decided), event_id=found)
            outcome = replace(
                inferred(Result(result), [proof], decided),
                status=stated,
                authorized_amount=authorized,
                currency=currency if stated is not None else None,
                tip=Decimal(tip) if tip else None,
                transaction_reference=identity(number + 10**9) if approved and evidence != "operator" else None,
                ticket_number=f"{number:06}" if approved else None,
                receipt=Receipt(f"{number:06}", brand, "credit", "PIN") if approved else None,
                failure_reason=Failure("ACQUIRER", "51", "Insufficient funds") if result == "declined" else None,
                reversal=reversal,
                supersedes=None if was is None else inferred(Result(was), [], decided),
            )
        phase = fields.pop("phase", Phase.ACTIVE if outcome is None else Phase.FINAL)
        trail = Trail(position=Status.CARD_PRESENTED) if outcome is None and phase is Phase.ACTIVE else Trail()
        transaction = Transaction(
            client_transaction_id=found,
            terminal=terminal,
            type=None if kind is None else OperationType(kind),
            created_at=iso(at),
            updated_at=iso(at),
            phase=phase,
            amount=encode(amount),
            outcome=outcome,
            derives_from=None if original is None else identity(original),
            attention=tuple(Attention(AttentionCode(code), iso(at), "<b>") for code in attention),
            sent_to="https://192.0.2.7",
            acknowledged=True,
            trail=trail,
            **fields,
        )
        self._write(transaction, body)
        return found

    def _write(self, transaction: Transaction, body: bytes | None) -> None:
        found, at = transaction.client_transaction_id, transaction.updated_at
        if rows.get(self.db, found) is None:
            record.begin(self.unit, transaction, "intent")
        else:
            self.remove(found)
            rows.insert(self.unit, transaction)
            result = transaction.outcome.result if transaction.outcome else None
            change = RecordedChange(0, at, "transaction", found, "event", transaction.phase, None, result, ())
            changes.record(self.unit, change)
        if body is not None:
            seq = journal.append_event(self.unit, found, read_element(body), Verdict.APPLIED, at, body, None)
            self.db.execute("UPDATE transactions SET final_event = ? WHERE client_transaction_id = ?", (seq, found))

    def remove(self, found: str) -> None:
        """Remove a payment, as retention does."""
        for table in ("events", "leases", "transactions"):
            self.db.execute(f"DELETE FROM {table} WHERE client_transaction_id = ?", (found,))


@contextmanager
def book() -> Iterator[Book]:
    """Yield an empty database."""
    with closing(sqlite3.connect(MEMORY, isolation_level=None)) as db:
        db.deserialize(_empty())
        changes.renew(db, "2026-11-20T00:00:00.000Z", 1, changes.IdentityCause.MADE)
        yield Book(db)


def whole(steps: Generator[None, None, T]) -> T:
    """Run all steps. Return the result of the last step."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def context(now: datetime, metadata: str | None = None) -> RowContext:
    return RowContext(now, timedelta(seconds=10), metadata)


def days_of(first: date, last: date, zone: ZoneInfo, terminal: str | None = None) -> report.ReportSpan:
    """Return a report's span of whole days."""
    midnights = [datetime(day.year, day.month, day.day, tzinfo=zone) for day in (first, last + timedelta(days=1))]
    since, until = (moment.astimezone(UTC) for moment in midnights)
    return report.ReportSpan(since, until, zone, terminal)


def reported(
    book: Book, span: report.ReportSpan, now: datetime, metadata: str | None = None, clock: Any = ()
) -> PaymentReport:
    """Return the report of a span of days."""
    return whole(report.of_span(book.db, span, context(now, metadata), clock))


def fill_trouble(book: Book, morning: datetime) -> None:
    """Add payments that are open, in doubt, contradicted, of another amount, decided by an operator, or corrected."""
    at = [morning.astimezone(UTC) + timedelta(hours=10, minutes=17 * number) for number in range(6)]
    book.put(900001, at[0], result=None)
    book.put(900002, at[1], result=None, phase=Phase.IN_DOUBT, terminal="SN-0002", attention=("in_doubt",))
    book.put(900003, at[2], result="declined", attention=("conflicting_final",))
    book.put(900004, at[3], authorized=Decimal("8.20"), attention=("amount_differs",))
    book.put(900005, at[4], evidence="operator", terminal="SN-0002")
    book.put(900006, at[5], authorized=Decimal("11.20"), was="not_started")
