"""Fills a database with payments, as they lie there after years: all ended but some."""

import sqlite3
from pathlib import Path

from posd.records.callback_urls import make_key
from posd.storage.connection import open_database

_ENDED = """
WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i < :last)
INSERT INTO transactions (client_transaction_id, terminal, type, phase, amount, metadata, options, repeat, sent_to,
                          acknowledged, heard, trail, outcome, attention, created_at, updated_at, revision)
SELECT printf('%08x-0000-4000-8000-000000000000', i), 'SN-' || (i % :terminals), 'charge', :phase,
       '{"iva":1.20,"subtotal_iva":10.00,"subtotal_iva0":0}', '{"reference":"ticket ' || i || '"}', '{}', 0, :sent_to,
       1, 1, '{"position":"' || :status || '","last":"' || :status || '","edges":[[null,"' || :status || '"]]}',
       :outcome, :attention, printf('2026-%02d-%02dT10:00:%06.3fZ', 1 + i % 12, 1 + i % 28, i % 60),
       '2026-11-20T10:00:00.000Z', 3
FROM n
"""

_EVENTS = """
INSERT INTO events (client_transaction_id, event_id, received_at, verdict, status, body)
SELECT client_transaction_id, client_transaction_id, created_at, 'applied', 'APPROVAL', zeroblob(600) FROM transactions
"""

_CHANGES = """
INSERT INTO changes (at, kind, id, reason, phase, attention, terminal)
SELECT created_at, 'transaction', client_transaction_id, 'event:APPROVAL', phase, '[]', terminal FROM transactions
"""

OUTCOME = (
    '{"result":"approved","status":"APPROVAL","transaction_reference":"r","ticket_number":"1","failure_reason":null,'
    '"reached_acquirer":true,"reading_type":"CHIP","authorized_amount":11.20,"receipt":null,"reversal":null,'
    '"decided_at":"2026-11-20T10:00:00.000Z","evidence":[{"kind":"event","at":"2026-11-20T10:00:00.000Z"}]}'
)
ATTENTION = '[{"code":"missing_reference","since":"2026-11-20T10:00:00.000Z","detail":"d"}]'


def fill(path: Path, *, ended: int, opened: int, terminals: int, sent_to: str, with_attention: int = 0) -> None:
    """Make the database at `path`: `ended` payments, some of them `with_attention`, and `opened` ones."""
    make_key(path.with_name("callback.key"))
    db = open_database(path)
    db.execute("PRAGMA synchronous = OFF").close()
    db.execute("BEGIN")
    common = {"terminals": terminals, "sent_to": sent_to}
    final = common | {"phase": "final", "status": "APPROVAL", "outcome": OUTCOME}
    _insert(db, 1, ended - with_attention, final | {"attention": "[]"})
    _insert(db, ended - with_attention + 1, ended, final | {"attention": ATTENTION})
    active = common | {"phase": "active", "status": "CARD_PRESENTED", "outcome": None, "attention": "[]"}
    _insert(db, ended + 1, ended + opened, active)
    db.execute(_EVENTS)
    db.execute(_CHANGES)
    db.execute("COMMIT")
    db.close()


def _insert(db: sqlite3.Connection, first: int, last: int, values: dict[str, object]) -> None:
    if last >= first:
        db.execute(_ENDED, values | {"first": first, "last": last})
