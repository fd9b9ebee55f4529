"""The cost of posd's reads does not grow with the stored data, because every statement uses an index."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posd.api import metrics
from posd.base.times import parse_iso
from posd.daemon import status
from posd.payments import chains, journal, lists, rows
from posd.payments import rows as transactions
from posd.payments.entries import Reapplied
from posd.payments.lifecycle import Verdict
from posd.payments.model import Result
from posd.payments.record import Recorded, move
from posd.payments.wire import read_event
from posd.printing import documents as print_listing
from posd.printing import rows as print_jobs
from posd.records import quarantine
from posd.records.model import Phase
from posd.records.quarantine import ReceivedCallback
from posd.records.service import CallsInFlight
from posd.storage import changes, marks
from posd.storage.batch import WriteTransaction
from posd.upkeep import retention
from tests.rig.events import body
from tests.rig.tables import every, there
from tests.store.filled import OPEN, filling, name
from tests.store.printed import STORIES, happen, print_intent

#: Tables that do not grow with the number of payments. These tables have a row for each terminal, unread approval,
#: quarantined body, or attention of one payment.
SMALL = {"leases", "l", "unread_approvals", "quarantine", "a", "CONSTANT", "sqlite_sequence"}
#: Views whose rows belong to one payment.
FOUND = {"payment_events"}
#: Statements that read from the newest row backwards, and stop early.
FROM_THE_END = re.compile(r"ORDER BY (seq DESC|rowid DESC LIMIT [0-9]+)")
#: Statements that read from the oldest row on, and stop at a recent row. Retention removes old rows, so the statement
#: reads few rows.
FROM_THE_BEGINNING = re.compile(r"NOT INDEXED .* ORDER BY rowid LIMIT 1")
#: Reads that may sort. The sorted rows are few: the rows of one payment, or rows that are open or need an operator.
SORTS = {"bodies", "events of one", "open print jobs", "figures", "status"}

AT = "2026-11-20T10:00:05.000Z"
CAME = ReceivedCallback(b"body", "p", parse_iso(AT), [(b"signature", b"x")])
Read = Callable[[sqlite3.Connection], Any]


def every_list() -> Iterator[tuple[str, Read]]:
    """Yield the pages of both lists, for each filter alone and for each pair."""
    cursor = (AT, name(3))
    common: dict[str, Any] = {
        "open": True,
        "attention": True,
        "terminal": "SN-1",
        "since": AT,
        "until": AT,
        "cursor": cursor,
    }
    payments: dict[str, Any] = common | {
        "sale": "s",
        "phase": Phase.ACTIVE,
        "result": Result.DECLINED,
        "metadata": {"ticket": "s", "n": "2"},
    }
    prints: dict[str, Any] = common | {"external_reference": "r", "phase": Phase.FINAL}
    for first in (None, *payments):
        for second in (None, *payments):
            given = {key: payments[key] for key in (first, second) if key is not None}
            page = lists.TransactionQuery(limit=5, **given)
            yield f"list {first} {second}", lambda db, page=page: lists.read_page(db, page)  # type: ignore[misc]
    metadata = lists.TransactionQuery(limit=5, metadata={"ticket": "s"})
    yield "totals", lambda db: list(lists.read_totals(db, metadata))
    for first in (None, *prints):
        for second in (None, *prints):
            given = {key: prints[key] for key in (first, second) if key is not None}
            jobs = print_listing.PrintJobQuery(limit=5, **given)
            yield f"prints {first} {second}", lambda db, page=jobs: print_listing.read_page(db, page)  # type: ignore[misc]


def payment(db: sqlite3.Connection, number: int = 2) -> transactions.Transaction:
    return there(transactions.get(db, name(number)))


def another_event(unit: WriteTransaction, number: int) -> int:
    """Record another copy of an event of a payment."""
    _, newest, _ = rows.get_with_bodies(unit.db, name(number), "e")
    return journal.append_event(
        unit, name(number), read_event(body(name(number), "APPROVAL")), Verdict.LATE, AT, b"{}", newest
    )


#: Age limit that is later than every row.
OLD = retention.AgeLimit("9", retention.MAX_ROWID)

READS: dict[str, Read] = dict(every_list()) | {
    "ids that begin so": lambda db: lists.read_page(db, lists.TransactionQuery(limit=5, id=name(3)[:13])),
    "print jobs that begin so": lambda db: print_listing.read_page(
        db, print_listing.PrintJobQuery(limit=5, id="print-")
    ),
    "one": lambda db: transactions.get(db, name(2)),
    "open ones": transactions.open_ones,
    "called back": transactions.called_back,
    "open on": lambda db: list(transactions.open_on(db, "SN-1")),
    "of a sale": lambda db: list(transactions.of_sale(db, "s")),
    "to ask once": transactions.to_ask_once,
    "next ones": lambda db: transactions.by_rowid(db, 3, 5),
    "with a reference": lambda db: chains.with_reference(db, "r", "SN-1"),
    "another with the reference": lambda db: chains.another_with_reference(db, payment(db)),
    "derived": lambda db: chains.derived_ids(db, payment(db)),
    "members": lambda db: chains.ChainLinks(db).members(payment(db), "R"),
    "original": lambda db: chains.original_of(db, payment(db)),
    "whole": lambda db: chains.ChainLinks(db, 300).whole(payment(db)),
    "a search's control": lambda db: rows.search_control(db, "SN-2"),
    "an answer's unit": lambda db: rows.newest_answer_unit(db, "SN-2"),
    "approvals": lambda db: rows.approvals(db, "SN-2", but=""),
    "a proven search": lambda db: rows.search_found_another(db, "SN-2", "search", name(2)),
    "bodies": lambda db: journal.event_bodies(db, name(2), "e"),
    "one with bodies": lambda db: rows.get_with_bodies(db, name(2), "e"),
    "one without events": lambda db: rows.get_with_bodies(db, name(0), "e"),
    "scattered bodies": lambda db: journal.scattered_bodies(db, name(2), "e"),
    "how many events": lambda db: journal.count_events(db, name(2)),
    "final event": lambda db: journal.final_event(db, payment(db)),
    "events of one": lambda db: journal.events(db, name(2)),
    "journal of one": lambda db: list(journal.entries(db, name(2))),
    "closed by a person": lambda db: journal.closed_by_person(db, "2099"),
    "quarantine": lambda db: quarantine.page(db, 0, 5),
    "feed": lambda db: changes.after(db, 0, 5),
    "newest change": changes.newest_at,
    "what is left of a removed payment": lambda db: rows.PAYMENT.find_pruned(db, name(2)),
    "what is left of a removed print job": lambda db: print_jobs.PRINT_JOB.find_pruned(db, "p"),
    "old payments": lambda db: retention.candidates(db, retention.TRANSACTIONS, retention.BEGINNING, "9", 20),
    "old print jobs": lambda db: retention.candidates(db, retention.PRINT_JOBS, retention.BEGINNING, "9", 20),
    "a chain that may go": lambda db: retention.chain_of(db, name(2), "9", lambda _identity: False),
    "a chain of prints": lambda db: retention.print_chain_of(db, "print-2", "9", lambda _identity: False),
    "lines of the feed": lambda db: retention.lines(db, 0, "9", 20),
    "the first that is recent": lambda db: retention.first_recent(db, "transactions", "created_at", "2", "9"),
    "old refused bodies": lambda db: retention.quarantined(db, 0, OLD, 3),
    "newest number": changes.newest_seq,
    "figures": metrics.read_gauges,
    "status": lambda db: status.stored(db, ["SN-1"]),
    "an absence": lambda db: marks.newest_detail(db, marks.AWAY, dict),
    "leases": rows.leases,
    "holder": lambda db: rows.lease_holder(db, "SN-1"),
    "restores": marks.unseen_restores,
    "missing records": lambda db: marks.missing_records(db, ""),
    "unread approvals": lambda db: rows.unread(db),
    "one print job": lambda db: print_jobs.get(db, "p"),
    "one print job in any letters": lambda db: print_jobs.find(db, "P"),
    "open print jobs": print_jobs.open_ones,
    "reprints": lambda db: print_jobs.reprints(db, "p"),
    "journal of a print job": lambda db: list(print_jobs.journal(db, "p")),
    "webhooks of a print job": lambda db: print_jobs.callbacks(db, "p"),
}
#: Writes inside a commit, with the reads that these writes make.
WRITES: dict[str, Callable[[WriteTransaction], Any]] = {
    "an entry": lambda unit: journal.append(unit, name(2), Reapplied(), AT),
    "an event": lambda unit: another_event(unit, 2),
    "events scattered": lambda unit: journal.scatter(unit.db, name(2)),
    "one more event than a block holds": lambda unit: [another_event(unit, 2) for _ in range(journal.BLOCK)],
    "a final event": lambda unit: journal.set_final(unit, name(2), 1),
    "a lease given up": lambda unit: rows.give_up_lease(unit, "SN-1", name(2)),
    "all leases of a payment given up": lambda unit: rows.give_up_leases(unit, name(2)),
    "all leases of ended payments given up": rows.give_up_ended_leases,
    "quarantined": lambda unit: quarantine.put(unit, "transactions", name(2), "r", CAME),
    "a proven search kept": lambda unit: rows.remember_search(unit, "SN-2", "search", name(2), AT),
    "a chain removed": lambda unit: retention.remove_chain(unit, retention.TRANSACTIONS, name(5), OLD, lambda _: False),
    "a print removed": lambda unit: retention.remove_chain(unit, retention.PRINT_JOBS, "print-5", OLD, lambda _: False),
    "lines removed": lambda unit: retention.remove_lines(unit, [1, 2]),
    "refused bodies removed": lambda unit: quarantine.remove(unit, [1, 2]),
    "an approval read": lambda unit: rows.remove_unread(unit, [name(2)]),
    "a change": lambda unit: move(
        unit, payment(unit.db), msgspec.structs.replace(payment(unit.db), heard=False), Recorded("r"), CallsInFlight()
    ),
}
EVERYTHING: dict[str, Read] = READS | {
    word: lambda db, write=write: write(WriteTransaction(db))  # type: ignore[misc]
    for word, write in WRITES.items()
}


class Watched(sqlite3.Connection):
    """Connection that records each statement with its parameters."""

    said: list[tuple[str, Any]]

    def executemany(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        rows = list(parameters)
        self.said += [(statement, row) for row in rows[:1]]
        return super().executemany(statement, rows)

    def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.said.append((statement, parameters))
        return super().execute(statement, parameters)


def fill(path: Path, ended: int) -> Path:
    """Create a database. The number of open payments and attentions does not depend on the number of ended payments."""
    with filling(path) as filled:
        filled.db.execute("BEGIN")
        for number in range(1, ended):
            of_sale = "s" if number < 4 else f"sale {number}"
            filled.pay(number, sale=of_sale, metadata=msgspec.json.encode({"ticket": of_sale, "n": number}))
            job = print_intent(filled, f"print-{number}", number)
            happen(filled, job.print_job_id, *STORIES["completed"])
        read = [name(number) for number in range(4, ended)]
        rows.remove_unread(WriteTransaction(filled.db), read)
        for number in range(ended, ended + 4):
            filled.quarantine(filled.pay(number, OPEN))
            happen(filled, print_intent(filled, f"print-{number}", number).print_job_id, *STORIES["open"])
        filled.db.execute("COMMIT")
    return path


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("few") / "posd.db", 30)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("many") / "posd.db", 600)


@every("word", EVERYTHING)
def test_every_statement_reads_its_rows_by_an_index_and_in_order(few: Path, word: str) -> None:
    with closing(sqlite3.connect(few, factory=Watched)) as db:
        db.said = []
        db.execute("BEGIN")
        EVERYTHING[word](db)
        said = [item for item in db.said if item[0] != "BEGIN"]
        assert said
        for statement, parameters in said:
            for *_, step in db.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall():
                scanned = re.fullmatch(r"SCAN (?:main\.)?(\w+)(.*)", step)
                # a virtual table has the members of one JSON text
                counted = scanned and "VIRTUAL TABLE" not in scanned[2]
                from_an_end = FROM_THE_END.search(statement) or FROM_THE_BEGINNING.search(statement)
                if counted and scanned[1] not in SMALL | FOUND and not from_an_end:
                    assert "USING INDEX" in scanned[2], (statement, step)
                assert word in SORTS or "TEMP B-TREE" not in step, (statement, step)
        db.rollback()


def steps(path: Path, read: Read) -> int:
    """Return the number of steps that SQLite's virtual machine takes for a read."""
    taken = 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.set_progress_handler(step, 1)
        read(db)
        db.set_progress_handler(None, 1)
        db.execute("ROLLBACK")
    return taken


def test_metrics_that_posd_already_has_are_read_again_only_after_a_change(few: Path) -> None:
    with closing(sqlite3.connect(few, isolation_level=None)) as db:
        fresh = metrics.read_gauges(db)
        assert fresh.open["active"] == 4
        assert (fresh.attention, fresh.quarantined) == ({"quarantined_event": 4}, 4)
        stale = msgspec.structs.replace(fresh, attention={}, quarantined=0)
        assert metrics.read_gauges(db, stale) == msgspec.structs.replace(fresh, attention={})
        assert metrics.read_gauges(db, msgspec.structs.replace(stale, seq=fresh.seq - 1)) == fresh
