"""`verify` finds each fault. The command prints the meaning and what to do, and changes nothing."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from posd.storage import UnusableFile, backup, connection
from posd.storage.connection import PAGE_BYTES, open_database
from posd.upkeep.verify import KINDS, MAX_SHOWN, VerifyReport, verify
from tests.store.filled import OPEN, Filled, filling, name, terminal


def look(_what: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    with filling(tmp_path / "posd.db") as filled:
        for number in range(3):
            filled.pay(number)
        filled.pay(3, OPEN)
        yield filled


def checked(filled: Filled, tmp_path: Path, *statements: str) -> VerifyReport:
    """Make a change that no code of posd makes, and verify the file."""
    filled.db.execute("PRAGMA foreign_keys = OFF")
    filled.db.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        filled.db.execute(statement)
    before = (tmp_path / "posd.db").read_bytes(), (tmp_path / "posd.db-wal").read_bytes()
    report = verify(tmp_path / "posd.db", look)
    assert ((tmp_path / "posd.db").read_bytes(), (tmp_path / "posd.db-wal").read_bytes()) == before
    return report


def test_a_sound_database_in_use_has_no_findings(filled: Filled, tmp_path: Path) -> None:
    report = checked(filled, tmp_path)
    assert (report.counts, report.findings, report.transactions, report.events) == ({}, [], 4, 14)


SECOND, FOURTEENTH = (f"(SELECT seq FROM events ORDER BY seq LIMIT 1 OFFSET {before})" for before in (1, 13))
FINAL_0 = f"(SELECT final_event FROM transactions WHERE client_transaction_id = '{name(0)}')"

#: Change -> the kinds of the findings, and the name that each finding contains.
WRONG = {
    "an id that is listed as removed but exists": (
        [f"INSERT INTO pruned_transactions VALUES ('{name(0)}', 'SN-0', 'charge', 'approved', '2026-11-20')"],
        {"pruned": 1},
        f"payment {name(0)}",
    ),
    "an invalid removed id and an unknown result": (
        [
            "INSERT INTO pruned_transactions VALUES ('x', 'SN-0', 'charge', 'approved', '2026-11-20')",
            f"INSERT INTO pruned_transactions VALUES ('{name(77)}', 'SN-0', 'charge', 'well', '2026-11-20')",
            "INSERT INTO pruned_print_jobs VALUES ('a b', 'SN-0', 'COMPLETED', '2026-11-20')",
        ],
        {"pruned": 3},
        "payment x",
    ),
    "an outcome of an open payment": (
        ["UPDATE transactions SET phase = 'active' WHERE rowid = 1"],
        {"outcome": 1, "history": 1},
        name(0),
    ),
    "a final event of another payment": (
        [f"UPDATE transactions SET final_event = {FINAL_0} WHERE client_transaction_id = '{name(1)}'"],
        {"final_event": 1},
        f"of {name(0)}",
    ),
    "a missing final event": (
        ["UPDATE transactions SET final_event = 999 WHERE rowid = 2"],
        {"final_event": 1},
        "999",
    ),
    "a missing event": (
        [f"DELETE FROM events WHERE seq = {FINAL_0}"],
        {"evidence": 1, "final_event": 1},
        name(0),
    ),
    "an event with a changed status": (
        [f"UPDATE events SET status = 'DECLINED' WHERE seq = {SECOND}"],
        {"unreadable": 1},
        "event 65",
    ),
    "an event with an incomplete body": (
        [f"UPDATE events SET body = substr(body, 1, 60) WHERE seq = {SECOND}"],
        {"unreadable": 1},
        "event 65",
    ),
    "a lease without a payment": (["INSERT INTO leases VALUES ('SN-9', 'x')"], {"dangling": 1}, "leases"),
    "a lease of another terminal": (
        [f"UPDATE leases SET terminal = 'SN-9' WHERE client_transaction_id = '{name(3)}'"],
        {"lease": 1},
        terminal(3),
    ),
    "no history": ([f"DELETE FROM changes WHERE id = '{name(0)}'"], {"history": 1}, "says nothing"),
    "a wrong history": (
        ["UPDATE changes SET result = 'declined' WHERE result = 'approved'"],
        {"history": 3},
        "declined",
    ),
    "an invalid trail": (["UPDATE transactions SET trail = '{' WHERE rowid = 1"], {"unreadable": 1}, name(0)),
    "an amount that is not text": (
        ["UPDATE transactions SET amount = x'ff' WHERE rowid = 1"],
        {"unreadable": 1},
        name(0),
    ),
    "text with invalid bytes": (
        ["UPDATE transactions SET trail = cast(x'ff' AS TEXT) WHERE rowid = 1"],
        {"unreadable": 1},
        name(0),
    ),
    "an invalid id": (
        ["UPDATE transactions SET client_transaction_id = 'x' WHERE rowid = 4"],
        {"unreadable": 1, "history": 1, "dangling": 4},
        "payment x",
    ),
    "an invalid entry": (["UPDATE journal SET entry = '{}' WHERE seq = 1"], {"unreadable": 1}, "journal entry 1"),
    "an event without a payment": (
        [f"UPDATE events SET client_transaction_id = 'x' WHERE seq = {FOURTEENTH}"],
        {"dangling": 1, "unreadable": 1},
        "events",
    ),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("wrong", WRONG)
def test_each_fault_is_found(filled: Filled, tmp_path: Path, wrong: str) -> None:
    statements, kinds, names = WRONG[wrong]
    report = checked(filled, tmp_path, *statements)
    assert report.counts == kinds
    assert any(names in f"{item.subject} {item.detail}" for item in report.findings)
    assert all(item.means and item.cure for item in report.findings)
    assert not any(" ID" in item.cure or "{" in item.cure for item in report.findings)


def test_of_many_faults_some_are_shown_and_all_are_counted(filled: Filled, tmp_path: Path) -> None:
    for number in range(100, 130):
        filled.pay(number)
    report = checked(filled, tmp_path, "UPDATE transactions SET trail = '{'")
    assert report.counts == {"unreadable": 34}
    assert len(report.findings) == MAX_SHOWN


def test_a_damaged_page_is_found_and_the_rest_is_still_checked(filled: Filled, tmp_path: Path) -> None:
    filled.db.execute("UPDATE journal SET entry = '{}' WHERE seq = 1")
    filled.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (root,) = filled.db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
    filled.db.close()
    content = bytearray((tmp_path / "posd.db").read_bytes())
    content[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    (tmp_path / "posd.db").write_bytes(content)
    report = verify(tmp_path / "posd.db", look)
    assert report.counts["damaged"] >= 1
    assert report.counts["unreadable"] == 1
    assert "posd restore" in next(item.cure for item in report.findings if item.kind == "damaged")


def test_a_backup_is_checked_too_and_gets_other_advice(filled: Filled, tmp_path: Path) -> None:
    copy = tmp_path / "b.db"
    backup.write(tmp_path / "posd.db", copy, [b"k" * 32], "at", lambda: False)
    assert verify(copy, look).counts == {}
    with closing(sqlite3.connect(copy)) as db:
        db.execute(f"DELETE FROM {connection.KEY_TABLE}")
        db.execute("UPDATE journal SET entry = '{}' WHERE seq = 1")
        db.commit()
    report = verify(copy, look)
    assert report.counts == {"key": 1, "unreadable": 1}
    assert all("another backup" in item.cure for item in report.findings)


def test_a_restore_that_waits_for_its_last_step_is_named(filled: Filled, tmp_path: Path) -> None:
    (tmp_path / "posd.db.restored-20261120T100000Z").write_bytes(b"")
    report = checked(filled, tmp_path)
    assert report.counts == {"interrupted": 1}


def unusable() -> dict[str, tuple[Callable[[Path], object], str]]:
    return {
        "not there": (lambda path: path.unlink(), "there is no file"),
        "a directory": (lambda path: (path.unlink(), path.mkdir()), "there is no file"),
        "empty": (lambda path: path.write_bytes(b""), "is empty"),
        "garbage": (lambda path: path.write_bytes(b"garbage" * 999), "posd restore"),
        "no header": (lambda path: path.write_bytes(bytes(100) + path.read_bytes()[100:]), "posd restore"),
        "truncated": (lambda path: os.truncate(path, 9000), "posd restore"),
        "another's": (anothers, "not a database of posd"),
        "newer": (newer, "a newer posd has used it"),
    }


def anothers(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (a)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")


@pytest.mark.quick(6)
@pytest.mark.parametrize("what", unusable())
def test_a_database_that_cannot_be_checked_is_reported(tmp_path: Path, what: str) -> None:
    damage, words = unusable()[what]
    with filling(tmp_path / "posd.db") as filled:
        filled.pay(1)
    damage(tmp_path / "posd.db")
    with pytest.raises(UnusableFile, match=words):
        verify(tmp_path / "posd.db", look)


def test_a_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="cannot look at"):
        verify(tmp_path / ("x" * 300), look)


def test_a_file_of_an_older_schema_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        first = [item for item in connection.migrations() if item[0] == 1]
        patch.setattr(connection, "migrations", lambda: iter(first))
        db = open_database(tmp_path / "posd.db")
    db.execute("PRAGMA foreign_keys = OFF")
    assert verify(tmp_path / "posd.db", look).counts == {}
    db.execute("INSERT INTO leases VALUES ('SN-1', 'x')")
    report = verify(tmp_path / "posd.db", look)
    assert (report.schema, report.counts) == (1, {"dangling": 1})
    db.close()


def test_each_kind_of_finding_is_tested() -> None:
    seen = {kind for _, kinds, _ in WRONG.values() for kind in kinds}
    # test_print_restore tests the kind `print_job`
    assert seen | {"damaged", "key", "interrupted", "print_job"} == set(KINDS)
