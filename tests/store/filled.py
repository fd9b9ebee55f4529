"""A database with payments, as the daemon would write them."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from posd.base.operations import OperationType
from posd.base.times import iso
from posd.payments import journal, rows
from posd.payments.entries import Attempted, Quarantined
from posd.payments.lifecycle import Status
from posd.payments.model import Transaction
from posd.payments.record import Recorded, begin, move, record
from posd.payments.transitions import RepeatedEvent, advance
from posd.payments.wire import read_event
from posd.records import quarantine
from posd.records.model import Phase
from posd.records.quarantine import ReceivedCallback
from posd.records.service import CallsInFlight
from posd.storage.batch import WriteTransaction
from posd.storage.connection import open_database
from posd.terminals.attempt import NotSent, Replied
from tests.rig.events import APPROVED, body
from tests.rig.tables import there

MORNING = datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC)
ACKNOWLEDGED = Replied(200, json.dumps({"status": "TERMINAL_ACKNOWLEDGED", "terminal": {}}).encode())

FINAL = tuple(status for status, _ in APPROVED)
OPEN = FINAL[:2]


@dataclass
class Filled:
    """A database and its writer. `clock` advances by a second at each step."""

    db: sqlite3.Connection
    clock: datetime = MORNING
    known: list[str] = field(default_factory=list)

    def now(self) -> datetime:
        self.clock += timedelta(seconds=1)
        return self.clock

    def intent(self, number: int, **fields: object) -> str:
        """Record the intent and the lease of the payment with that number. The payment's phase is then `starting`."""
        identity = name(number)
        self.known.append(identity)
        at = iso(self.now())
        started = Transaction(
            client_transaction_id=identity,
            terminal=terminal(number),
            type=fields.pop("type", OperationType.CHARGE),
            created_at=at,
            updated_at=at,
            phase=Phase.STARTING,
            amount=b'{"iva": 1.20, "subtotal_iva": 10.00}',
            sent_to="https://127.0.0.1:1",
            **fields,
        )
        begin(WriteTransaction(self.db), started, "intent")
        rows.take_lease(WriteTransaction(self.db), started.terminal, identity)
        return identity

    def pay(self, number: int, statuses: Iterable[str] = FINAL, **fields: object) -> str:
        """Run a payment through these states."""
        identity = self.intent(number, **fields)
        self.attempt(identity)
        for status in statuses:
            self.event(identity, status)
        return identity

    def again(self, number: int, count: int, **changes: object) -> None:
        """Copy a payment `count` times. Each copy has its own id. `changes`: column -> value in each copy."""
        columns = ", ".join(rows.COLUMNS)
        changed = {"client_transaction_id": "?"} | {key: repr(value) for key, value in changes.items()}
        chosen = ", ".join(changed.get(column, column) for column in rows.COLUMNS)
        self.db.executemany(
            f"INSERT INTO transactions ({columns}) SELECT {chosen} FROM transactions WHERE client_transaction_id = ?",
            [(f"{name(number)[:-6]}{item + 1:06}", name(number)) for item in range(count)],
        )

    def attempt(self, identity: str, attempt: Replied | NotSent = ACKNOWLEDGED) -> None:
        """Record the result of the payment's start. `attempt`: how the request and the reply went."""
        after = record(
            WriteTransaction(self.db),
            self.get(identity),
            Attempted(attempt, errors_in_2xx=False),
            self.now(),
            CallsInFlight(),
        )
        self.free(after)

    def event(self, identity: str, status: str, **changes: object) -> bytes:
        """Record the payment's next event. Return the bytes of the event."""
        unit, before = WriteTransaction(self.db), self.get(identity)
        content = body(identity, status, dict(APPROVED).get(status), before.terminal, **changes)
        event, now = read_event(content), self.now()
        after, verdict = advance(before, event, seen=RepeatedEvent.NEW, now=now)
        _, newest, _ = rows.get_with_bodies(self.db, identity, event.event_id)
        seq = journal.append_event(unit, identity, event, verdict, iso(now), content, newest)
        after = move(unit, before, after, Recorded(f"event:{status}"), CallsInFlight())
        if status in (Status.APPROVAL, Status.DECLINED):
            journal.set_final(unit, identity, seq)
        self.free(after)
        return content

    def quarantine(self, identity: str, content: bytes = b"half a bo") -> None:
        """Quarantine a callback for the payment."""
        unit = WriteTransaction(self.db)
        quarantine.put(unit, "transactions", identity, "no event", ReceivedCallback(content, "127.0.0.1", self.now()))
        record(unit, self.get(identity), Quarantined("no event"), self.now(), CallsInFlight())

    def free(self, after: Transaction) -> None:
        if after.phase is Phase.FINAL:
            rows.give_up_leases(WriteTransaction(self.db), after.client_transaction_id)

    def get(self, identity: str) -> Transaction:
        return there(rows.get(self.db, identity))


def name(number: int) -> str:
    """Return the id of the payment with that number."""
    return str(UUID(int=number * 2**64 + 2**63, version=4))


def terminal(number: int) -> str:
    """Return the terminal of the payment with that number."""
    return f"SN-{number}"


@contextmanager
def filling(path: Path, clock: datetime = MORNING) -> Iterator[Filled]:
    """Open a database without syncs, so that a test can fill it.

    At the end, close the database, so that no WAL is left.
    """
    db = open_database(path)
    db.execute("PRAGMA synchronous = OFF").close()
    try:
        yield Filled(db, clock)
    finally:
        db.close()


def snapshot(db: sqlite3.Connection, identity: str) -> tuple[object, ...]:
    """Return all records of a payment, without their row numbers."""
    return (
        rows.get(db, identity),
        [(item.received_at, item.verdict, item.body) for item in journal.events(db, identity)],
        [(item.at, item.events_before, item.entry) for item in journal.entries(db, identity)],
        db.execute(
            "SELECT at, reason, phase, status, result, attention, terminal FROM changes WHERE id = ? ORDER BY seq",
            (identity,),
        ).fetchall(),
        journal.final_body(db, identity),
    )
