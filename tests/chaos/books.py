"""Comparison of the records of a run: the ledgers of terminals and tills, posd's transactions, and posd's database."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tests.rig.judge import RULES, Cases, Line, lost_events, payment_faults, row_faults


@dataclass
class Books:
    """Records of all parts of a run."""

    #: The lines of each terminal's ledger.
    terminals: Sequence[list[Line]]
    #: The lines of each till's ledger.
    tills: Sequence[list[Line]]
    #: Transactions from the local API.
    transactions: list[dict[str, Any]]
    database: Path
    #: Id -> key of the sale, if any.
    sales: dict[str, str]
    #: Ids that the operator resolved, with the result.
    resolved: Mapping[str, str]


#: Rows that the database of a run may not have, besides RULES.
NEVER = (
    ("SELECT subject, reason FROM quarantine", "posd refused an event:"),
    ("SELECT client_transaction_id, result FROM pruned_transactions", "retention removed the payment too early:"),
)


def cases(books: Books) -> Cases:
    """Collect all records by id."""
    found = Cases()
    found.read(chain(*books.terminals))
    for line in chain(*books.tills):
        case = found[line["id"]]
        if line["kind"] == "answer":
            case.answers.append(line["status"])
        elif line["kind"] == "outcome":
            case.told.append(line)
        elif line["kind"] == "refused":
            case.refused = line["code"]
    for document in books.transactions:
        found[document["client_transaction_id"]].shown = document
    for case in found.values():
        case.resolved = books.resolved.get(case.id)
    return found


def compare(books: Books) -> list[str]:
    """Return all faults in the records."""
    known = cases(books)
    found = [f"{case.id}: {fault}" for case in known.values() for fault in payment_faults(case)]
    charged = Counter(books.sales[case.id] for case in known.values() if case.charges and case.id in books.sales)
    found += [f"the sale {sale} was charged {count} times" for sale, count in charged.items() if count > 1]
    with closing(sqlite3.connect(books.database)) as db:
        found += [*row_faults(db, (*RULES, *NEVER)), *lost_events(db, chain(*books.terminals))]
        rows = {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")}
    listed = {document["client_transaction_id"] for document in books.transactions}
    return found + [f"{identity} is only in the database or only in the list" for identity in rows ^ listed]
