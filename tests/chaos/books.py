"""Comparison of the records of a run: the ledgers of terminals and tills, posd's transactions, and its database.

| word    | what it means here                                                                                        |
| ------- | --------------------------------------------------------------------------------------------------------- |
| lost    | a charge that posd or its till does not have as approved; an event that was answered 2xx and is not there |
| doubled | an id that was sent more than once, or was charged twice; a sale that was charged twice                   |
| wrong   | anything else that contradicts the terminal's ledger, and what is open without attention                  |
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
    #: Transactions as the local API shows them.
    transactions: list[dict[str, Any]]
    database: Path
    #: Id -> the key of its sale, if it has one.
    sales: dict[str, str]
    #: Ids that the operator closed, with the result.
    resolved: Mapping[str, str]


@dataclass
class Case:
    """All records of one id."""

    id: str
    #: The operator's result, if the operator closed it.
    resolved: str | None
    starts: list[Line] = field(default_factory=list)
    finals: list[Line] = field(default_factory=list)
    #: The lines of its till.
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
        """The codes of its open attentions."""
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
        yield "doubled", f"it was charged {len(case.charges)} times"
    if sum(line["kind"] == "answer" and line["status"] == 201 for line in case.till) > 1:
        yield "doubled", "posd has told its till more than once that it was started now"
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
        yield "lost", "it was charged, and posd does not know it"
    elif case.starts:
        yield "lost", "it was sent, and posd does not know it"
    if any(line["kind"] in ("answer", "outcome") for line in case.till):
        yield "lost", "posd has shown it to its till, and does not know it"


def _of_outcome(case: Case, shown: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield faults of payments that ended in posd."""
    outcome = shown["outcome"]
    result = outcome["result"]
    if not case.finals:
        if result not in ("not_started", case.resolved):
            yield "wrong", f"it is {result}, and its terminal knows of no end of it"
        return
    final = case.finals[-1]
    if result != RESULTS[final["status"]]:
        kind = "lost" if case.charges else "wrong"
        yield kind, f"it is {result}, and its terminal says {final['status']}"
    elif case.charges:
        said = (outcome["transaction_reference"], outcome["ticket_number"], _number(outcome["authorized_amount"]))
        true = (final["transaction_reference"], final["ticket_number"], _number(final["amount"]))
        if said != true:
            yield "wrong", f"it is approved with {said}, and its terminal says {true}"
        asked = sum((_number(value) or Decimal() for value in shown["amount"].values()), Decimal())
        if asked != true[2]:
            yield "wrong", f"{asked} was asked for, and {true[2]} was charged"


def _of_open(case: Case, shown: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield faults of payments that are open in posd."""
    if not case.attention:
        yield "lost" if case.charges else "wrong", f"it is open ({shown['phase']}) and not in attention"
    if shown["phase"] == "starting":
        yield "wrong", "it is still starting"
    if case.finals:
        yield "wrong", f"it is open after the last search, and its terminal says {case.finals[-1]['status']}"


def _of_till(case: Case) -> Iterator[tuple[str, str]]:
    """Compare the outcome that the till received with the terminal's record."""
    if case.till and case.till[-1]["kind"] == "refused" and (case.starts or case.shown):
        yield "wrong", f"it was refused ({case.till[-1]['code']}): nothing should be recorded, and nothing sent"
    heard = case.heard
    if heard is None:
        return
    if case.charges and heard["result"] != case.resolved:
        if heard["result"] != "approved":
            yield "lost", f"it was charged, and its till heard {heard['result']}"
        elif heard["reference"] != case.charges[-1]["transaction_reference"]:
            yield "wrong", "its till heard another reference than the terminal's"
    elif heard["result"] == "approved" and not case.charges:
        yield "wrong", "it was not charged, and its till heard approved"
    now = case.shown["outcome"]["result"] if case.shown and case.shown["outcome"] else None
    if now != heard["result"] and "outcome_corrected" not in case.attention:
        yield "wrong", f"its till heard {heard['result']}, and now it is {now}, without a word of a correction"


def _number(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))


#: Queries for rows that must not exist, with the kind of the finding and its text. The first column is its subject.
_QUERIES = (
    (
        "SELECT client_transaction_id, count(*) FROM events GROUP BY client_transaction_id, body HAVING count(*) > 1",
        "wrong",
        "an event was recorded {} times",
    ),
    ("SELECT subject, reason FROM quarantine", "wrong", "an event was refused: {}"),
    (
        (
            "SELECT client_transaction_id, '' FROM leases JOIN transactions USING (client_transaction_id)"
            " WHERE phase = 'final'"
        ),
        "wrong",
        "it has ended, and still holds its terminal",
    ),
    (
        "SELECT client_transaction_id, '' FROM pruned_transactions",
        "lost",
        "retention has removed it, and it is not older than is kept",
    ),
)


def _of_database(books: Books) -> Iterator[Finding]:
    """Yield faults of the file: it must have every event that got 2xx, and everything that the API showed."""
    with closing(sqlite3.connect(books.database)) as db:
        for (message,) in db.execute("PRAGMA integrity_check"):
            if message != "ok":
                yield Finding("wrong", "database", message)
        for row in db.execute("PRAGMA foreign_key_check"):
            yield Finding("wrong", "database", f"a row of {row[0]} without its {row[2]}")
        for query, kind, what in _QUERIES:
            yield from (Finding(kind, subject, what.format(found)) for subject, found in db.execute(query))
        stored = set(db.execute("SELECT client_transaction_id, event_id FROM events"))
        rows = {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")}
        changes = db.execute("SELECT id, result, attention FROM changes ORDER BY seq").fetchall()
    yield from _of_history(changes)
    for line in (line for ledger in books.terminals for line in ledger if line["kind"] == "attempt"):
        taken = isinstance(line["result"], int) and line["result"] // 100 == 2
        if taken and (line["client_transaction_id"], line["event_id"]) not in stored:
            yield Finding("lost", line["client_transaction_id"], f"{line['status']} was answered 2xx and is not there")
    for identity in rows ^ {document["client_transaction_id"] for document in books.transactions}:
        yield Finding("wrong", identity, "it stands in one of database and list, not in both")


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
