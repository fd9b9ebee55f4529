"""This posd opens a database of every released schema, and shows the same data as before."""

import gzip
import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from posd.payments import journal, lists
from posd.payments import rows as transactions
from posd.payments.entries import Attempted, apply
from posd.payments.lists import TransactionQuery
from posd.payments.model import Result, Transaction
from posd.payments.reprocess import difference
from posd.printing import rows as print_jobs
from posd.records.quarantine import Differing
from posd.storage import StoreError
from posd.storage.connection import open_database, schema_version
from posd.terminals.attempt import Replied
from posd.upkeep.verify import verify
from tests.core.scenarios import NOW, starting
from tests.rig.tables import there

RELEASED = {
    int(path.name.split(".")[0].removeprefix("schema-")): path for path in Path(__file__).parent.glob("released/*.gz")
}
NEWEST = schema_version()

#: First digits of an id in `tests.store.released` -> the end of that payment, or None for an open payment.
ENDED = {
    "approved": {1, 6, 11},
    "declined": {2},
    "canceled": {3},
    "rejected": {4},
    "not_started": {5, 20},
    None: {7, 8, 9, 10},
}


def unpack(version: int, place: Path) -> Path:
    place.write_bytes(gzip.decompress(RELEASED[version].read_bytes()))
    return place


def stored(path: Path) -> dict[str, Any]:
    """Return the parts of the rows that every schema has: phase, amount, metadata, outcome, and the events' bytes."""
    with closing(sqlite3.connect(path)) as db:
        found = {}
        query = "SELECT client_transaction_id, phase, amount, metadata, outcome FROM transactions"
        for identity, phase, amount, metadata, outcome in db.execute(query).fetchall():
            bodies = db.execute("SELECT body FROM events WHERE client_transaction_id = ? ORDER BY seq", (identity,))
            found[identity] = (phase, amount, metadata, outcome and json.loads(outcome)["result"], bodies.fetchall())
        return found


def jobs(path: Path) -> dict[str, tuple[str, str | None]]:
    with closing(sqlite3.connect(path)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'print_jobs'").fetchone():
            return {}
        return {row[0]: (row[1], row[2]) for row in db.execute("SELECT print_job_id, phase, status FROM print_jobs")}


def check(path: Path, before: dict[str, Any], printed: dict[str, tuple[str, str | None]]) -> None:
    """Check that the schema is the newest, `verify` finds nothing, and payments and print jobs are unchanged."""
    report = verify(path, lambda *_: None)
    assert (report.findings, report.schema) == ([], NEWEST)
    assert (stored(path), jobs(path)) == (before, printed)
    with closing(open_database(path)) as db:
        rows, _ = lists.read_page(db, TransactionQuery(limit=500))
        assert {row.client_transaction_id for row in rows} == before.keys()
        for identity, (phase, amount, metadata, result, bodies) in before.items():
            found = there(transactions.get(db, identity))
            assert (found.phase, found.amount.decode(), found.metadata.decode()) == (phase, amount, metadata)
            assert (found.outcome and found.outcome.result) == result
            assert [(item.body,) for item in journal.events(db, identity)] == bodies
        for identity, said in printed.items():
            job = there(print_jobs.get(db, identity))
            assert (job.phase, job.status) == said


def test_every_earlier_schema_has_a_test_database() -> None:
    """Run `python -m tests.store.released` with the old code before a migration is added."""
    assert sorted(RELEASED) == list(range(1, NEWEST))


@pytest.mark.parametrize("version", sorted(RELEASED))
def test_the_database_of_each_schema_has_every_kind_of_record(version: int, tmp_path: Path) -> None:
    path = unpack(version, tmp_path / "posd.db")
    assert RELEASED[version].stat().st_size < 50_000
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (version,)
        assert db.execute("SELECT count(*) FROM quarantine").fetchone()[0] > 0
        assert db.execute("SELECT count(*) FROM transactions WHERE attention <> '[]'").fetchone()[0] > 0
    said = {int(identity[-12:], 16): result for identity, (_, _, _, result, _) in stored(path).items()}
    for result, numbers in ENDED.items():
        assert {said[number] for number in numbers} == {result}
    if version > 4:  # the version with the fourth schema had no print jobs
        assert set(jobs(path).values()) == {
            ("final", "COMPLETED"),
            ("final", "FAILED"),
            ("final", None),
            ("active", "PENDING"),
        }


@pytest.mark.parametrize("version", sorted(RELEASED))
def test_an_upgraded_database_shows_the_same_data(version: int, tmp_path: Path) -> None:
    path = unpack(version, tmp_path / "posd.db")
    before, printed = stored(path), jobs(path)
    open_database(path).close()
    check(path, before, printed)


def test_an_approval_that_no_till_has_read_is_unread_after_the_upgrade(tmp_path: Path) -> None:
    path = unpack(14, tmp_path / "posd.db")
    open_database(path).close()
    with closing(sqlite3.connect(path)) as db:
        assert {int(identity[-12:], 16): told for identity, told in transactions.unread(db).items()} == dict.fromkeys(
            (1, 6, 11, 21), False
        )


#: Program that opens a database, and is killed within a migration step just before its COMMIT.
KILLED = """
import os, signal, sys
from pathlib import Path
from posd.storage import connection

path, wanted = Path(sys.argv[1]), int(sys.argv[2])
steps, connect = list(connection.migrations()), connection.connect_writer

def connected(path):
    db = connect(path)
    db.create_function("power_cut", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
    return db

connection.connect_writer = connected
connection.migrations = lambda: [(n, script + (";SELECT power_cut();" if n == wanted else "")) for n, script in steps]
connection.open_database(path)
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize("step", range(2, NEWEST + 1))
def test_a_killed_upgrade_begins_again(step: int, tmp_path: Path) -> None:
    path = unpack(1, tmp_path / "posd.db")
    before, printed = stored(path), jobs(path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(step)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (step - 1,)
    open_database(path).close()
    check(path, before, printed)


def test_a_newer_schema_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    path = unpack(NEWEST - 1, tmp_path / "posd.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA user_version = {NEWEST + 1}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="a newer posd has used it; install that version again, or restore a backup"):
        open_database(path)
    assert path.read_bytes() == before


def test_data_that_an_earlier_version_did_not_store_is_not_a_difference() -> None:
    """An earlier version did not store the tip of an approval, or posd's own text of a refusal.

    A different result counts as a difference.
    """
    before = apply(starting(), Attempted(Replied(409, b'{"type": "TERMINAL", "code": "TER-003"}')), NOW)
    after = apply(starting(), Attempted(Replied(409, b'{"type": "TERMINAL", "code": "TER-003"}'), False), NOW)
    assert after.outcome is not None
    assert there(before.outcome).failure_reason != after.outcome.failure_reason
    assert differing(before, after) == {}
    assert "outcome" in differing(starting(), after)
    approved = replace(after.outcome, result=Result.APPROVED, failure_reason=None)
    tipped = replace(approved, tip=Decimal(5))
    with_tip = [replace(before, outcome=replace(item, supersedes=item)) for item in (approved, tipped)]
    assert differing(*with_tip) == {}
    assert differing(*reversed(with_tip)).keys() == {"outcome"}


def differing(stored: Transaction, derived: Transaction) -> Differing:
    return difference(stored, derived)


def test_ids_and_sales_in_other_spellings_are_still_found(tmp_path: Path) -> None:
    """Earlier versions accepted print jobs whose ids differ only by case, and sales in any Unicode normalization."""
    path = unpack(13, tmp_path / "posd.db")
    with closing(sqlite3.connect(path)) as db:
        (one, two), columns = db.execute("SELECT print_job_id FROM print_jobs LIMIT 2").fetchall(), "print_job_id"
        for table in ("print_journal", "print_jobs"):
            for (old,), new in ((one, "Receipt-1"), (two, "RECEIPT-1")):
                db.execute(f"UPDATE {table} SET {columns} = ? WHERE {columns} = ?", (new, old))
        db.execute("UPDATE transactions SET sale = ? WHERE sale IS NOT NULL", ("mesa cafe\u0301",))
        db.commit()
    with closing(open_database(path)) as db:
        for identity, found in (("Receipt-1", "Receipt-1"), ("RECEIPT-1", "RECEIPT-1")):
            job = there(print_jobs.find(db, identity))
            assert job.print_job_id == found
        assert print_jobs.find(db, "receipt-1") is not None
        assert print_jobs.find(db, "receipt-2") is None
        assert [item.sale for item in transactions.of_sale(db, "mesa caf\u00e9")] == ["mesa caf\u00e9"]
