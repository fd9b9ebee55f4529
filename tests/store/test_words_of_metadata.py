"""Words of the metadata. A list finds payments by these words, however a payment came into the database.

The SQLite files are real.
"""

import functools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments import lists
from posd.payments import rows as transactions
from posd.payments.record import begin
from posd.storage.batch import WriteTransaction
from posd.storage.connection import migrate, open_database
from posd.upkeep import merge
from tests.rig.tables import there
from tests.store.test_transactions import starting

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)
SCALARS = st.text(st.characters(exclude_categories=["Cs"]), max_size=120) | st.integers() | st.booleans() | st.none()
VALUES = SCALARS | st.lists(SCALARS, max_size=2)
METADATA = st.dictionaries(KEYS, VALUES, max_size=5)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_database(tmp_path / "posd.db")) as db:
        yield db


MEMORY = Path(":memory:")


@functools.cache
def empty() -> bytes:
    with closing(sqlite3.connect(MEMORY, isolation_level=None)) as db:
        migrate(db)
        return db.serialize()


@contextmanager
def in_memory() -> Iterator[sqlite3.Connection]:
    """Yield an empty database."""
    with closing(sqlite3.connect(MEMORY, isolation_level=None)) as db:
        db.deserialize(empty())
        yield db


def identity(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def insert(db: sqlite3.Connection, number: int, metadata: bytes) -> str:
    found = starting(client_transaction_id=identity(number), metadata=metadata)
    begin(WriteTransaction(db), found, "intent")
    return found.client_transaction_id


def found_by(db: sqlite3.Connection, key: str, text: str, **more: Any) -> list[str]:
    rows, _ = lists.read_page(db, lists.TransactionQuery(limit=50, metadata={key: text}, **more))
    return [row.client_transaction_id for row in rows]


def kept(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(db.execute("SELECT word, at, id FROM transaction_words").fetchall())


@given(metadata=METADATA, escaped=st.booleans())
def test_each_key_finds_the_payment_by_its_value_and_by_no_other_value(metadata: dict[str, Any], escaped: bool) -> None:
    with in_memory() as db:
        insert(db, 1, json.dumps(metadata, ensure_ascii=escaped).encode())
        insert(db, 2, b"{}")
        for key, value in metadata.items():
            text = value if isinstance(value, str) else json.dumps(value)
            for more in ({}, {"open": True}):
                assert found_by(db, key, text, **more) == [identity(1)]
                assert found_by(db, key, f"{text}+", **more) == []


@given(metadata=METADATA)
def test_an_upgraded_database_finds_the_same_payments(metadata: dict[str, Any]) -> None:
    with in_memory() as db:
        insert(db, 1, json.dumps(metadata, ensure_ascii=False).encode())
        insert(db, 2, b"{}")
        by_posd = kept(db)
        back_to_10(db)
        db.execute("INSERT INTO transaction_words VALUES ('reference=ticket', 'a', ?)", (identity(1),))
        migrate(db)
        assert kept(db) == by_posd


def back_to_10(db: sqlite3.Connection) -> None:
    db.executescript(
        "DROP VIEW payment_events; DROP VIEW lost_events; DROP TRIGGER events_numbers; DROP TRIGGER journal_numbers;"
        "DROP TRIGGER changes_numbers; DROP INDEX events_of_transaction; ALTER TABLE events DROP COLUMN together;"
        "CREATE INDEX events_of_transaction ON events (client_transaction_id, event_id);"
        "ALTER TABLE transactions DROP COLUMN first_event;"
        "DELETE FROM transaction_words; DROP INDEX transactions_unapproved;"
        "ALTER TABLE transactions DROP COLUMN unapproved; ALTER TABLE transactions DROP COLUMN answer_unit;"
        "DROP TABLE unread_approvals; DROP INDEX marks_kind;"
        "DROP INDEX print_jobs_any_case; DROP INDEX pruned_print_jobs_any_case; PRAGMA user_version = 10;"
    )


@pytest.mark.parametrize("metadata", [b"no JSON", b"\xff", b'{"a": 1', b'{"a": "\xff"}'])
def test_damaged_metadata_has_no_search_keys(db: sqlite3.Connection, metadata: bytes) -> None:
    transactions.keep_words(db, identity(1), "t", metadata)
    insert(db, 1, b"{}")
    db.execute("UPDATE transactions SET metadata = CAST(? AS TEXT)", (metadata,))
    back_to_10(db)
    migrate(db)
    assert kept(db) == set()


def test_removed_metadata_is_not_found(db: sqlite3.Connection) -> None:
    first, second = insert(db, 1, b'{"a": "b", "n": 1.10}'), insert(db, 2, b'{"a": "b"}')
    row = there(transactions.get(db, first))
    transactions.drop_words(db, first, row.created_at, row.metadata)
    assert {found for _, _, found in kept(db)} == {second}


def test_a_row_copied_by_a_restore_has_its_search_keys(db: sqlite3.Connection, tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "old.db")) as old:
        first, second = insert(old, 1, b'{"a": "newer"}'), insert(old, 2, b'{"a": "other"}')
    insert(db, 1, b'{"a": "older"}')
    db.execute("ATTACH ? AS old", (str(tmp_path / "old.db"),))
    for copied in (first, second):
        merge.copy_payment(db, merge.PAYMENTS, copied)
    assert [found_by(db, "a", text) for text in ("older", "newer", "other")] == [[], [first], [second]]
    assert len(kept(db)) == 2
