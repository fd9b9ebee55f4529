"""Comparison of the database with the replies and reports of posd."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from tests.chaos.books import Books, Finding, delivered


def of_database(books: Books) -> Iterator[Finding]:
    """Yield faults of the file: it must have every event that got 2xx, and everything that the API showed."""
    with closing(sqlite3.connect(books.database)) as db:
        for (message,) in db.execute("PRAGMA integrity_check"):
            if message != "ok":
                yield Finding("wrong", "database", message)
        for row in db.execute("PRAGMA foreign_key_check"):
            yield Finding("wrong", "database", f"a row of {row[0]} without its {row[2]}")
        stored = set(db.execute("SELECT client_transaction_id, event_id FROM events"))
        repeated = db.execute(
            "SELECT client_transaction_id, status, count(*) FROM events GROUP BY client_transaction_id, body"
            " HAVING count(*) > 1"
        ).fetchall()
        rows = {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")}
        refused = db.execute("SELECT subject, reason FROM quarantine").fetchall()
        removed = [row[0] for row in db.execute("SELECT client_transaction_id FROM pruned_transactions")]
        held = db.execute(
            "SELECT client_transaction_id FROM leases JOIN transactions USING (client_transaction_id)"
            " WHERE phase = 'final'"
        ).fetchall()
        changes = db.execute("SELECT id, result, attention FROM changes ORDER BY seq").fetchall()
    yield from _of_history(changes)
    for identity in removed:
        yield Finding("lost", identity, "retention has removed it, and it is not older than is kept")
    for line in delivered(books.terminals.values()):
        if (line["client_transaction_id"], line["event_id"]) not in stored:
            yield Finding("lost", line["client_transaction_id"], f"{line['status']} was answered 2xx and is not there")
    shown = {document["client_transaction_id"] for document in books.transactions}
    for identity in rows ^ shown:
        yield Finding("wrong", identity, "it stands in one of database and list, not in both")
    for identity, reason in refused:
        yield Finding("wrong", identity, f"an event was refused: {reason}")
    for identity, status, count in repeated:
        yield Finding("wrong", identity, f"{status} was recorded {count} times")
    for (identity,) in held:
        yield Finding("wrong", identity, "it has ended, and still holds its terminal")


def _of_history(changes: Sequence[tuple[Any, ...]]) -> Iterator[Finding]:
    """Yield changed outcomes without a reported correction, and changed approvals."""
    results: dict[str, str] = {}
    for identity, result, attention in changes:
        before = results.get(identity, result)
        if result is None:
            continue
        if before != result and (before == "approved" or "outcome_corrected" not in json.loads(attention)):
            yield Finding("wrong", identity, f"it was {before}, and then {result}")
        results[identity] = result
