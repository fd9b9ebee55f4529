"""Words of the metadata: what a list finds by them, however they came into the database - on real SQLite files."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments import documents, rows
from posd.payments import rows as transactions
from posd.payments.record import begin
from posd.storage.connection import migrations, open_database
from posd.storage.writer import Unit
from posd.upkeep import merge
from tests.store.test_transactions import starting

KEYS = st.text(st.characters(exclude_characters='"\\', exclude_categories=["Cs", "Cc"]), min_size=1, max_size=120)
SCALARS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=120) | st.integers() | st.booleans()
SCALARS |= st.none() | st.decimals(allow_nan=False, allow_infinity=False).map(str)
_ASCII = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]))
VALUES = SCALARS | st.lists(st.integers() | _ASCII, max_size=2)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_database(tmp_path / "posd.db")) as db:
        yield db


def identity(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def insert(db: sqlite3.Connection, number: int, metadata: bytes) -> str:
    found = starting(client_transaction_id=identity(number), metadata=metadata)
    begin(Unit(db), found, "intent")
    return found.client_transaction_id


def found_by(db: sqlite3.Connection, key: str, text: str, **more: Any) -> list[str]:
    rows, _ = documents.read_page(db, documents.Page(limit=50, metadata={key: text}, **more))
    return [row.client_transaction_id for row in rows]


def kept(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(db.execute("SELECT word, at, id FROM transaction_words").fetchall())


@given(metadata=st.dictionaries(KEYS, VALUES, max_size=5))
def test_each_key_finds_the_payment_and_another_value_does_not(metadata: dict[str, Any]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for _, script in migrations():
            db.executescript(script)
        insert(db, 1, json.dumps(metadata, ensure_ascii=False).encode())
        insert(db, 2, b"{}")
        for key, value in metadata.items():
            text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            assert found_by(db, key, text) == [identity(1)]
            assert found_by(db, key, f"{text}+") == []


@given(metadata=st.dictionaries(KEYS, VALUES, max_size=5))
def test_a_database_of_the_schema_before_finds_the_same(metadata: dict[str, Any]) -> None:
    content = json.dumps(metadata, ensure_ascii=False).encode()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        scripts = dict(migrations())
        newest = scripts.pop(7)
        for script in scripts.values():
            db.executescript(script)
        db.execute("CREATE TABLE transaction_words (word, at, id)")
        insert(db, 1, content)
        by_posd = kept(db)
        db.execute("DROP TABLE transaction_words")
        db.executescript(newest)
        assert kept(db) == by_posd


def test_of_a_repeated_key_the_first_value_counts_with_every_filter(db: sqlite3.Connection) -> None:
    insert(db, 1, b'{"a": 1, "a": 2}')
    for more in ({}, {"open": True}):
        assert [found_by(db, "a", text, **more) for text in ("1", "2", '"1"')] == [[identity(1)], [], []]


def test_a_text_is_found_by_its_value_with_every_filter(db: sqlite3.Connection) -> None:
    insert(db, 1, b'{"a": "b"}')
    for more in ({}, {"open": True}):
        assert [found_by(db, "a", text, **more) for text in ("b", '"b"')] == [[identity(1)], []]


def test_what_is_beyond_the_kept_beginning_is_looked_at_too(db: sqlite3.Connection) -> None:
    long = "x" * rows.LENGTH
    insert(db, 1, json.dumps({"note": f"{long}1"}).encode())
    second = insert(db, 2, json.dumps({"note": f"{long}2"}).encode())
    assert found_by(db, "note", f"{long}2") == [second]


def test_a_page_by_metadata_ends_where_the_next_begins(db: sqlite3.Connection) -> None:
    ids = [insert(db, number, b'{"batch": "a"}') for number in range(7)]
    insert(db, 8, b'{"batch": "b"}')
    seen: list[str] = []
    cursor = None
    while len(seen) < len(ids):
        page = documents.Page(limit=3, metadata={"batch": "a"}, cursor=cursor)
        rows, _ = documents.read_page(db, page)
        seen += [row.client_transaction_id for row in rows]
        cursor = (rows[-1].created_at, rows[-1].client_transaction_id)
    assert seen == ids[::-1]


def test_what_is_dropped_is_found_no_more(db: sqlite3.Connection) -> None:
    first, second = insert(db, 1, b'{"a": "b", "n": 1.10}'), insert(db, 2, b'{"a": "b"}')
    row = transactions.get(db, first)
    assert row is not None
    rows.drop_words(db, first, row.created_at, row.metadata)
    assert {found for _, _, found in kept(db)} == {second}


@pytest.mark.parametrize("metadata", [b"no JSON", b"\xff", b'{"a": 1'])
def test_metadata_of_a_damaged_file_have_no_words(db: sqlite3.Connection, metadata: bytes) -> None:
    rows.keep_words(db, identity(1), "t", metadata)
    assert kept(db) == set()


def test_a_row_that_a_restore_copies_brings_its_words(db: sqlite3.Connection, tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "old.db")) as old:
        first, second = insert(old, 1, b'{"a": "newer"}'), insert(old, 2, b'{"a": "other"}')
    insert(db, 1, b'{"a": "older"}')
    db.execute("ATTACH ? AS old", (str(tmp_path / "old.db"),))
    for copied in (first, second):
        merge.copy_payment(db, copied)
    assert [found_by(db, "a", text) for text in ("older", "newer", "other")] == [[], [first], [second]]
    assert len(kept(db)) == 2
