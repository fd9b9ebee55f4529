"""The events of a payment are found, whether their numbers are in one block or scattered."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.times import iso
from posd.payments import journal, rows
from posd.payments.lifecycle import Verdict
from posd.payments.wire import read_event
from posd.storage import changes, connection
from posd.storage.batch import WriteTransaction
from posd.storage.connection import migrate
from posd.upkeep import retention
from posd.upkeep.verify import verify
from tests.rig.events import body
from tests.store.filled import OPEN, Filled, filling, name


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    with filling(tmp_path / "posd.db") as made:
        yield made


def add(filled: Filled, number: int, content: bytes) -> int:
    """Record an event of a payment with these bytes."""
    identity = name(number)
    _, newest, _ = rows.get_with_bodies(filled.db, identity, "")
    event = read_event(body(identity, "APPROVAL"))
    return journal.append_event(
        WriteTransaction(filled.db), identity, event, Verdict.LATE, iso(filled.now()), content, newest
    )


def place(db: sqlite3.Connection, number: int) -> tuple[int | None, list[tuple[int, int | None]]]:
    """Return `first_event` of a payment, and `seq` and `together` of its events."""
    query = "SELECT first_event FROM transactions WHERE client_transaction_id = ?"
    (first,) = db.execute(query, (name(number),)).fetchone()
    query = "SELECT seq, together FROM events WHERE client_transaction_id = ? ORDER BY seq"
    return first, db.execute(query, (name(number),)).fetchall()


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["event"] * 4 + ["scatter", "remove", "leave out"])))
)
def test_each_payment_finds_its_events_in_order_after_any_steps(steps: list[tuple[int, str]]) -> None:
    """No number is used twice."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        filled, expected, given_out = Filled(db), dict[int, list[bytes]](), list[int]()
        for at, (number, what) in enumerate(steps):
            if number not in expected:
                filled.intent(number)
                expected[number] = []
            content = b"%d" % at
            if what == "event":
                given_out.append(add(filled, number, content))
                expected[number].append(content)
            elif what == "scatter":
                journal.scatter(db, name(number))
            elif what == "leave out":
                given_out.append(changes.newest_number(db, "events") + 10)
                changes.advance_sequence(db, "events", given_out[-1])
            else:
                journal.remove_events(db, name(number))
                expected[number] = []
        for number, bodies in expected.items():
            assert [item.body for item in journal.events(db, name(number))] == bodies
            assert journal.count_events(db, name(number)) == len(bodies)
        assert len(set(given_out)) == len(given_out)
        assert db.execute("SELECT * FROM lost_events").fetchall() == []
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("table", ["events", "journal", "changes"])
def test_a_number_is_not_used_again_after_the_newest_row_was_removed(filled: Filled, table: str) -> None:
    filled.pay(0)
    before = changes.newest_number(filled.db, table)
    assert before > 0
    filled.db.execute(f"DELETE FROM {table} WHERE seq > ?", (before - 2,))
    assert changes.newest_number(filled.db, table) == before
    filled.db.execute(f"DELETE FROM {table}")
    assert changes.newest_number(filled.db, table) == before
    filled.pay(1)
    (first,) = filled.db.execute(f"SELECT min(seq) FROM {table}").fetchone()
    assert first > before
    changes.advance_sequence(filled.db, table, first + 10**6)
    filled.pay(2)
    assert changes.newest_number(filled.db, table) > first + 10**6


def test_events_from_before_and_after_an_upgrade_are_found(tmp_path: Path) -> None:
    """The payment was open at the upgrade."""
    path = tmp_path / "posd.db"
    with filling(path) as filled:
        filled.pay(0, OPEN)
        journal.scatter(filled.db, name(0))  # the upgrade leaves the numbers scattered
        filled.pay(1, OPEN)
        content = filled.event(name(0), "APPROVAL")
        assert journal.event_bodies(filled.db, name(0), read_event(content).event_id) == [content]
        assert rows.get_with_bodies(filled.db, name(0), read_event(content).event_id)[2] == [content]
        assert {together for _, together in place(filled.db, 0)[1]} == {None}
        assert len(journal.events(filled.db, name(0))) == len(OPEN) + 1
    assert verify(path, lambda *_: None).findings == []


WRONG = {
    "the payment names no block": "UPDATE transactions SET first_event = NULL",
    "the payment names another block": "UPDATE transactions SET first_event = first_event + 1",
    "an event names another payment": f"UPDATE events SET client_transaction_id = '{name(1)}'",
    "an event names no existing payment": f"UPDATE events SET client_transaction_id = '{name(2)}'",
}


@pytest.mark.parametrize("statement", WRONG.values(), ids=WRONG)
def test_verify_finds_an_event_that_no_payment_names(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "posd.db"
    with filling(path) as filled:
        filled.intent(1)
        filled.pay(0)
        filled.db.execute(statement)
        (lost,) = filled.db.execute("SELECT count(*) FROM events").fetchone()
    found = verify(path, lambda *_: None)
    assert found.counts["dangling"] == (1 if statement.endswith("+ 1") else lost)
    with pytest.raises(sqlite3.DatabaseError, match=r"events \d+: there is no payment .* that names it"):
        connection.check_file(path)


def test_a_payment_is_removed_with_its_events_without_a_scan_of_a_table(filled: Filled) -> None:
    filled.pay(0)
    filled.pay(1)
    left = place(filled.db, 1)
    retention.forget(filled.db, name(0))
    assert filled.db.execute("SELECT DISTINCT client_transaction_id FROM events").fetchall() == [(name(1),)]
    assert place(filled.db, 1) == left
    plan = filled.db.execute("EXPLAIN QUERY PLAN DELETE FROM transactions WHERE client_transaction_id = 'x'").fetchall()
    assert [step for *_, step in plan if step.startswith("SCAN") and step != "SCAN leases"] == []
