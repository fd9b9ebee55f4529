"""Comparison of the records of a run: the ledgers of terminals and tills, posd's transactions, and posd's database.

| word    | what it means here                                                                                        |
| ------- | --------------------------------------------------------------------------------------------------------- |
| lost    | a charge that is not approved in posd or at the till; an acknowledged event that is not stored            |
| doubled | an id that was sent more than once or charged twice; a sale that was charged twice                        |
| wrong   | another contradiction to the terminal's ledger; a payment that is open without attention                  |
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.events import RESULTS

Line = dict[str, Any]


class Finding(NamedTuple):
    """A fault in the records: `lost`, `doubled` or `wrong`."""

    kind: str
    subject: str
    what: str


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


@dataclass
class Case:
    """All records of one id."""

    id: str
    #: The operator's result, if the operator resolved the payment.
    resolved: str | None
    starts: list[Line] = field(default_factory=list)
    finals: list[Line] = field(default_factory=list)
    #: The lines of the till's ledger.
    till: list[Line] = field(default_factory=list)
    shown: dict[str, Any] | None = None

    @property
    def charges(self) -> list[Line]:
        """Final events of the terminal that charged money."""
        return [line for line in self.finals if line["charged"]]

    @property
    def heard(self) -> Line | None:
        """Outcome that the till received."""
        return next((line for line in reversed(self.till) if line["kind"] == "outcome"), None)

    @property
    def attention(self) -> set[str]:
        """The codes of the open attentions."""
        return {item["code"] for item in self.shown["attention"]} if self.shown else set()


def cases(books: Books) -> dict[str, Case]:
    """Collect all records by id."""
    found: dict[str, Case] = {}

    def of(identity: str) -> Case:
        return found.setdefault(identity, Case(identity, books.resolved.get(identity)))

    for line in (line for ledger in books.terminals for line in ledger):
        if line["kind"] == "start":
            of(line["client_transaction_id"]).starts.append(line)
        elif line["kind"] == "final":
            of(line["client_transaction_id"]).finals.append(line)
    for line in (line for ledger in books.tills for line in ledger):
        of(line["id"]).till.append(line)
    for document in books.transactions:
        of(document["client_transaction_id"]).shown = document
    return found


def compare(books: Books) -> list[Finding]:
    """Return all faults in the records."""
    known = cases(books)
    found = [Finding(kind, case.id, what) for case in known.values() for kind, what in _of_case(case)]
    charged = Counter(books.sales[case.id] for case in known.values() if case.charges and case.id in books.sales)
    twice = ((sale, count) for sale, count in charged.items() if count > 1)
    found += [Finding("doubled", sale, f"the sale was charged {count} times") for sale, count in twice]
    return [*found, *_of_database(books)]


def _of_case(case: Case) -> Iterator[tuple[str, str]]:
    if len(case.starts) > 1:
        yield "doubled", f"{len(case.starts)} start requests reached terminals"
    if len(case.charges) > 1:
        yield "doubled", f"the terminal charged the payment {len(case.charges)} times"
    if sum(line["kind"] == "answer" and line["status"] == 201 for line in case.till) > 1:
        yield "doubled", "posd replied 201 to the till more than once"
    if case.shown is None:
        yield from _of_unknown(case)
    elif case.shown["phase"] == "final":
        yield from _of_outcome(case, case.shown)
    else:
        yield from _of_open(case, case.shown)
    yield from _of_till(case)


def _of_unknown(case: Case) -> Iterator[tuple[str, str]]:
    """Yield faults of payments that posd does not know."""
    if case.charges:
        yield "lost", "posd does not know a charged payment"
    elif case.starts:
        yield "lost", "posd does not know a sent payment"
    if any(line["kind"] in ("answer", "outcome") for line in case.till):
        yield "lost", "posd does not know a payment that it has shown to the till"


def _of_outcome(case: Case, shown: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield faults of payments that ended in posd."""
    outcome = shown["outcome"]
    result = outcome["result"]
    if not case.finals:
        if result not in ("not_started", case.resolved):
            yield "wrong", f"posd has {result}, and the terminal has no end"
        return
    final = case.finals[-1]
    if result != RESULTS[final["status"]]:
        kind = "lost" if case.charges else "wrong"
        yield kind, f"posd has {result}, and the terminal has {final['status']}"
    elif case.charges:
        said = (outcome["transaction_reference"], outcome["ticket_number"], _number(outcome["authorized_amount"]))
        true = (final["transaction_reference"], final["ticket_number"], _number(final["amount"]))
        if said != true:
            yield "wrong", f"posd has the approval {said}, and the terminal has {true}"
        asked = sum((_number(value) or Decimal() for value in shown["amount"].values()), Decimal())
        if asked != true[2]:
            yield "wrong", f"the till requested {asked}, and the terminal charged {true[2]}"


def _of_open(case: Case, shown: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield faults of payments that are open in posd."""
    if not case.attention:
        yield "lost" if case.charges else "wrong", f"the payment is open ({shown['phase']}) without an attention"
    if shown["phase"] == "starting":
        yield "wrong", "the payment is still starting"
    if case.finals:
        yield "wrong", f"the payment is open after the last search, and the terminal has {case.finals[-1]['status']}"


def _of_till(case: Case) -> Iterator[tuple[str, str]]:
    """Compare the outcome that the till received with the terminal's record."""
    if case.till and case.till[-1]["kind"] == "refused" and (case.starts or case.shown):
        yield "wrong", f"posd refused the payment ({case.till[-1]['code']}), and recorded or sent it"
    heard = case.heard
    if heard is None:
        return
    if case.charges and heard["result"] != case.resolved:
        if heard["result"] != "approved":
            yield "lost", f"the customer was charged, and the till received {heard['result']}"
        elif heard["reference"] != case.charges[-1]["transaction_reference"]:
            yield "wrong", "the till received another reference than the terminal has"
    elif heard["result"] == "approved" and not case.charges:
        yield "wrong", "the customer was not charged, and the till received approved"
    now = case.shown["outcome"]["result"] if case.shown and case.shown["outcome"] else None
    if now != heard["result"] and "outcome_corrected" not in case.attention:
        yield "wrong", f"the till received {heard['result']}, and the outcome changed to {now} without a correction"


def _number(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))


#: Queries for rows that must not exist, with the kind and the text of the finding. The first column is the subject.
_QUERIES = (
    (
        "SELECT client_transaction_id, count(*) FROM events GROUP BY client_transaction_id, body HAVING count(*) > 1",
        "wrong",
        "the database has an event {} times",
    ),
    ("SELECT subject, reason FROM quarantine", "wrong", "posd refused an event: {}"),
    (
        (
            "SELECT client_transaction_id, '' FROM leases JOIN transactions USING (client_transaction_id)"
            " WHERE phase = 'final'"
        ),
        "wrong",
        "the ended payment still holds its terminal",
    ),
    (
        "SELECT client_transaction_id, '' FROM pruned_transactions",
        "lost",
        "retention removed the payment too early",
    ),
)


def _of_database(books: Books) -> Iterator[Finding]:
    """Yield faults of the database file. The database must have every acknowledged event and all data that the API
    showed.
    """
    with closing(sqlite3.connect(books.database)) as db:
        for (message,) in db.execute("PRAGMA integrity_check"):
            if message != "ok":
                yield Finding("wrong", "database", message)
        for row in db.execute("PRAGMA foreign_key_check"):
            yield Finding("wrong", "database", f"a row of {row[0]} refers to a missing row of {row[2]}")
        for query, kind, what in _QUERIES:
            yield from (Finding(kind, subject, what.format(found)) for subject, found in db.execute(query))
        stored = set(db.execute("SELECT client_transaction_id, event_id FROM events"))
        rows = {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")}
        changes = db.execute("SELECT id, result, attention FROM changes ORDER BY seq").fetchall()
    yield from _of_history(changes)
    for line in (line for ledger in books.terminals for line in ledger if line["kind"] == "attempt"):
        taken = isinstance(line["result"], int) and line["result"] // 100 == 2
        if taken and (line["client_transaction_id"], line["event_id"]) not in stored:
            yield Finding("lost", line["client_transaction_id"], f"posd acknowledged {line['status']} and has lost it")
    for identity in rows ^ {document["client_transaction_id"] for document in books.transactions}:
        yield Finding("wrong", identity, "the payment is only in the database or only in the list")


def _of_history(changes: Sequence[tuple[Any, ...]]) -> Iterator[Finding]:
    """Yield changed outcomes without a reported correction, and changed approvals."""
    results: dict[str, str] = {}
    for identity, result, attention in changes:
        before = results.get(identity, result)
        if result is None:
            continue
        if before != result and (before == "approved" or "outcome_corrected" not in json.loads(attention)):
            yield Finding("wrong", identity, f"the outcome changed from {before} to {result}")
        results[identity] = result
