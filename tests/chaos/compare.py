"""The ledgers of terminals, tills and daemon, held against each other.

| word    | what it means here                                                                                        |
| ------- | --------------------------------------------------------------------------------------------------------- |
| lost    | a charge that posd or its till does not have as approved; an event that was answered 2xx and is not there |
| doubled | an id that was sent more than once, or was charged twice; a sale that was charged twice                   |
| wrong   | anything else that contradicts the terminal's ledger, and what is open without attention                  |
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

Line = dict[str, Any]

#: The terminal's final -> posd's result (spec 3.1).
RESULTS = {
    "APPROVAL": "approved",
    "DECLINED": "declined",
    "TERMINAL_REJECTED": "rejected",
    "TERMINAL_CANCELED": "canceled",
}
#: What these runs can raise. Everything else tells of something that never happened.
EXPECTED_ATTENTION = {"in_doubt", "gap", "stalled", "no_callback", "outcome_corrected", "released"}


@dataclass(frozen=True)
class Finding:
    """Something that must not be: `lost`, `doubled` or `wrong`."""

    kind: str
    subject: str
    what: str


@dataclass
class Books:
    """What everybody has written down."""

    #: Serial -> the lines of its ledger.
    terminals: Mapping[str, Sequence[Line]]
    #: Till -> the lines of its ledger.
    tills: Mapping[str, Sequence[Line]]
    #: Transactions as the local API shows them.
    transactions: Sequence[dict[str, Any]]
    database: Path
    #: Id -> the key of its sale, of those that have one.
    sales: Mapping[str, str]
    #: Ids that a person closed, with the word.
    resolved: Mapping[str, str] = field(default_factory=dict)
    #: What somebody who follows the feed has read: seq -> id, reason, phase, result.
    feed: Mapping[int, tuple[str, str, str, str | None]] = field(default_factory=dict)


@dataclass
class Case:
    """All that is known of one id."""

    id: str
    starts: list[Line] = field(default_factory=list)
    finals: list[Line] = field(default_factory=list)
    #: The lines of its till.
    till: list[Line] = field(default_factory=list)
    shown: dict[str, Any] | None = None

    @property
    def charges(self) -> list[Line]:
        """The finals of the terminal that took money."""
        return [line for line in self.finals if line["charged"]]

    @property
    def heard(self) -> Line | None:
        """The outcome that the till heard."""
        return next((line for line in reversed(self.till) if line["kind"] == "outcome"), None)

    @property
    def attention(self) -> set[str]:
        """The codes of its open attentions."""
        return {item["code"] for item in self.shown["attention"]} if self.shown else set()


def read_ledger(path: Path) -> list[Line]:
    """Read a ledger; a last line that a kill has cut short was never written."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    return [json.loads(line, parse_float=Decimal) for line in whole.splitlines()]


def cases(books: Books) -> dict[str, Case]:
    """Collect what is known by id."""
    found: dict[str, Case] = {}

    def of(identity: str) -> Case:
        return found.setdefault(identity, Case(identity))

    for ledger in books.terminals.values():
        for line in ledger:
            if line["kind"] == "start":
                of(line["client_transaction_id"]).starts.append(line)
            elif line["kind"] == "final":
                of(line["client_transaction_id"]).finals.append(line)
    for ledger in books.tills.values():
        for line in ledger:
            of(line["id"]).till.append(line)
    for document in books.transactions:
        of(document["client_transaction_id"]).shown = document
    return found


def compare(books: Books) -> list[Finding]:
    """Return all that must not be."""
    known = cases(books)
    found = [Finding(kind, case.id, what) for case in known.values() for kind, what in _of_case(case, books)]
    found += _of_sales(known, books.sales)
    return [*found, *_of_database(books)]


def _of_case(case: Case, books: Books) -> Iterator[tuple[str, str]]:
    yield from _of_requests(case)
    if case.shown is None:
        yield from _of_unknown(case)
    elif case.shown["phase"] == "final":
        yield from _of_outcome(case, books)
    else:
        yield from _of_open(case)
    if case.shown is not None and (strange := case.attention - EXPECTED_ATTENTION):
        yield "wrong", f"attention {', '.join(sorted(strange))}, of which nothing has happened"
    yield from _of_till(case, books)


def _of_requests(case: Case) -> Iterator[tuple[str, str]]:
    """What reached the terminals."""
    if len(case.starts) > 1:
        yield "doubled", f"{len(case.starts)} start requests reached terminals"
    if len(case.charges) > 1:
        yield "doubled", f"it was charged {len(case.charges)} times"
    if sum(line["kind"] == "answer" and line["status"] == 201 for line in case.till) > 1:
        yield "doubled", "posd has told its till more than once that it was started now"


def _of_unknown(case: Case) -> Iterator[tuple[str, str]]:
    """Of what posd does not know."""
    if case.charges:
        yield "lost", "it was charged, and posd does not know it"
    elif case.starts:
        yield "lost", "it was sent, and posd does not know it"
    if any(line["kind"] in ("answer", "outcome") for line in case.till):
        yield "lost", "posd has shown it to its till, and does not know it"


def _of_outcome(case: Case, books: Books) -> Iterator[tuple[str, str]]:
    """Of what posd says has ended."""
    assert case.shown is not None
    outcome = case.shown["outcome"]
    result = outcome["result"]
    if not case.finals:
        if case.id in books.resolved and result == books.resolved[case.id]:
            return
        if result != "not_started":
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
        asked = sum((_number(value) or Decimal() for value in case.shown["amount"].values()), Decimal())
        if asked != true[2]:
            yield "wrong", f"{asked} was asked for, and {true[2]} was charged"


def _of_open(case: Case) -> Iterator[tuple[str, str]]:
    """Of what posd says is open."""
    assert case.shown is not None
    if not case.attention:
        yield "lost" if case.charges else "wrong", f"it is open ({case.shown['phase']}) and not in attention"
    if case.shown["phase"] == "starting":
        yield "wrong", "it is still starting"
    if case.finals:
        final = case.finals[-1]["status"]
        yield "wrong", f"it is open after everybody was asked, and its terminal says {final}"


def _of_till(case: Case, books: Books) -> Iterator[tuple[str, str]]:
    """What the till heard, against what happened."""
    last = next((line for line in reversed(case.till) if line["kind"] != "closing"), None)
    if last is not None and last["kind"] == "refused" and (case.starts or case.shown):
        yield "wrong", f"it was refused ({last['code']}): nothing of it should be recorded, and nothing sent"
    for line in case.till:
        if line["kind"] == "refused" and line["code"] != "sale_conflict":
            yield "wrong", f"it was refused with {line['code']}, for which there was no reason"
    heard = case.heard
    if heard is None:
        return
    by_person = heard["result"] == books.resolved.get(case.id)
    if case.charges and not by_person:
        if heard["result"] != "approved":
            yield "lost", f"it was charged, and its till heard {heard['result']}"
        elif heard["reference"] != case.charges[-1]["transaction_reference"]:
            yield "wrong", "its till heard another reference than the terminal's"
    elif heard["result"] == "approved" and not case.charges:
        yield "wrong", "it was not charged, and its till heard approved"
    now = case.shown["outcome"]["result"] if case.shown and case.shown["outcome"] else None
    if now != heard["result"] and "outcome_corrected" not in case.attention:
        yield "wrong", f"its till heard {heard['result']}, and now it is {now}, without a word of a correction"


def _of_sales(known: Mapping[str, Case], sales: Mapping[str, str]) -> Iterator[Finding]:
    charged = Counter(sales[case.id] for case in known.values() if case.charges and case.id in sales)
    return (
        Finding("doubled", sale, f"the sale was charged {count} times") for sale, count in charged.items() if count > 1
    )


def _of_database(books: Books) -> Iterator[Finding]:
    """What the file holds: whole, with every event that was answered 2xx, and all that the API has shown."""
    with closing(sqlite3.connect(books.database)) as db:
        for (message,) in db.execute("PRAGMA integrity_check"):
            if message != "ok":
                yield Finding("wrong", "database", message)
        for row in db.execute("PRAGMA foreign_key_check"):
            yield Finding("wrong", "database", f"a row of {row[0]} without its {row[2]}")
        stored = set(db.execute("SELECT client_transaction_id, json_extract(body, '$.event_id') FROM events"))
        repeated = db.execute(
            "SELECT client_transaction_id, status, count(*) FROM events GROUP BY client_transaction_id, body"
            " HAVING count(*) > 1"
        ).fetchall()
        rows = {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")}
        refused = db.execute("SELECT subject, reason FROM quarantine").fetchall()
        held = db.execute(
            "SELECT client_transaction_id FROM leases JOIN transactions USING (client_transaction_id)"
            " WHERE phase = 'final'"
        ).fetchall()
        changes = db.execute("SELECT seq, id, reason, phase, result, attention FROM changes ORDER BY seq").fetchall()
        # What a person has freed or closed may run on: an abort for its successor then hits it, and says so by its end.
        asked = {
            row[0]
            for row in db.execute(
                "SELECT id FROM changes WHERE reason IN ('abort_requested', 'probe_requested', 'release', 'resolve')"
            )
        }
    yield from _of_history(changes, books.feed)
    for line in (line for ledger in books.terminals.values() for line in ledger if line["kind"] == "abort"):
        if line["http_status"] == 200 and line["client_transaction_id"] not in asked:
            yield Finding("wrong", line["client_transaction_id"], "an abort hit it that was not for it")
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


def _of_history(changes: Sequence[tuple[Any, ...]], feed: Mapping[int, tuple[Any, ...]]) -> Iterator[Finding]:
    """No outcome becomes another without being told as corrected, an approval never does; and the feed had it all."""
    results: dict[str, str] = {}
    for seq, identity, reason, phase, result, attention in changes:
        if feed.get(seq) != (identity, reason, phase, result):
            yield Finding("wrong", identity, f"change {seq} is {reason}, and the feed said {feed.get(seq)}")
        before = results.get(identity, result)
        if result is None:
            continue
        if before != result and (before == "approved" or "outcome_corrected" not in json.loads(attention)):
            yield Finding("wrong", identity, f"it was {before}, and then {result}")
        results[identity] = result
    for seq in feed.keys() - {change[0] for change in changes}:
        yield Finding("lost", feed[seq][0], f"the feed told of change {seq} ({feed[seq][1]}), which is not there")


def delivered(ledgers: Iterable[Sequence[Line]]) -> Iterator[Line]:
    """The attempts that posd has answered 2xx."""
    for ledger in ledgers:
        for line in ledger:
            if line["kind"] == "attempt" and isinstance(line["result"], int) and 200 <= line["result"] <= 299:
                yield line


def figures(books: Books) -> dict[str, int]:
    """Count what happened, as the ledgers and the database tell it."""
    known = cases(books)
    attempts = [line for ledger in books.terminals.values() for line in ledger if line["kind"] == "attempt"]
    dropped = [line for ledger in books.terminals.values() for line in ledger if line["kind"] == "dropped"]
    doubled: dict[str, int] = defaultdict(int)
    for line in delivered(books.terminals.values()):
        doubled[line["event_id"]] += 1
    with closing(sqlite3.connect(books.database)) as db:
        verdicts = dict(db.execute("SELECT verdict, count(*) FROM events GROUP BY verdict"))
        reasons = dict(db.execute("SELECT reason, count(DISTINCT id) FROM changes GROUP BY reason"))
        doubts = db.execute("SELECT count(DISTINCT id) FROM changes WHERE phase = 'in_doubt'").fetchone()[0]
        by_search = db.execute(
            "SELECT count(*) FROM transactions WHERE json_extract(outcome, '$.evidence[0].kind') = 'search'"
        ).fetchone()[0]
    shown = [case for case in known.values() if case.shown is not None]
    results = Counter(case.shown["outcome"]["result"] for case in shown if case.shown and case.shown["outcome"])
    return {
        **{f"payments {result}": count for result, count in sorted(results.items())},
        "payments open at the end": sum(case.shown["phase"] != "final" for case in shown if case.shown),
        "payments charged": sum(bool(case.charges) for case in known.values()),
        "payments that were in doubt": doubts,
        "payments forgotten by a killed terminal": sum(
            bool(case.starts) and not case.finals and case.starts[0]["http_status"] == 200 for case in known.values()
        ),
        "outcomes first told by a search": by_search,
        "outcomes proved not_started": reasons.get("proof", 0),
        "of these forgotten by a killed terminal": sum(
            bool(case.starts)
            and not case.finals
            and any(item["kind"] == "search" for item in case.shown["outcome"]["evidence"])
            for case in shown
            if case.shown and case.shown["outcome"] and case.shown["outcome"]["result"] == "not_started"
        ),
        "outcomes corrected": sum("outcome_corrected" in case.attention for case in shown),
        "sales refused to a second till": sum(
            any(line["kind"] == "problem" and line["code"] == "sale_conflict" for line in case.till)
            for case in known.values()
        ),
        "aborts by tills": sum(line["kind"] == "abort" for ledger in books.tills.values() for line in ledger),
        "events stored": sum(verdicts.values()),
        "events out of order": verdicts.get("late", 0) + verdicts.get("after_final", 0),
        "events delivered again": sum(count - 1 for count in doubled.values()),
        "deliveries that failed": sum(line["retry_in_seconds"] is not None for line in attempts),
        "events given up by terminals": len(dropped),
    }


def _number(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))
