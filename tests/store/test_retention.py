"""Retention: what is old goes whole, with its space; what somebody needs stays; no id is ever free again."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from posd.services.retention import Removed, Report, Retention
from posd.store import changes
from posd.store.batch import Unit
from posd.store.opening import connect_reader
from posd.store.store import Store
from posd.store.verify import verify
from tests.store.filled import MORNING, OPEN, Filled, filling, name, snapshot
from tests.store.printed import print_out

#: Words of people that stand in the old payments, and nowhere else.
SECRETS = ("ada@example.com", "Lovelace", "Analytical Engine")
YEAR = timedelta(days=365)
LATER = MORNING + 3 * YEAR


def secret(number: int) -> dict[str, Any]:
    return {"metadata": b'{"mail": "%s", "note": "%s %d"}' % (SECRETS[0].encode(), b"x" * 200, number)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "posd.db"


@pytest.fixture
def filled(path: Path) -> Iterator[Filled]:
    with filling(path) as filled:
        yield filled


@asynccontextmanager
async def retaining(path: Path, now: datetime = LATER, days: int = 400) -> AsyncIterator[Retention]:
    store = await Store.open(path, path.with_name("lock"))
    try:
        yield Retention(store, path, days, lambda _identity: False, lambda: now)
    finally:
        await store.close()


async def prune(path: Path, now: datetime = LATER, days: int = 400, *, dry_run: bool = False) -> Report:
    async with retaining(path, now, days) as retention:
        return await retention.prune(days, dry_run=dry_run)


def left(path: Path) -> set[str]:
    with closing(connect_reader(path)) as db:
        return {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")}


def sound(path: Path) -> None:
    assert verify(path, lambda *_: None).findings == []


def size(path: Path) -> int:
    return path.stat().st_size


def in_files(path: Path) -> set[str]:
    """Return which of the secrets stand in any file beside the database, in whatever page."""
    found = set()
    for file in path.parent.iterdir():
        content = file.read_bytes()
        found |= {word for word in SECRETS if word.encode() in content}
    return found


async def test_what_is_old_goes_whole_with_its_space_and_every_word_of_it(path: Path) -> None:
    with filling(path) as filled:
        filled.db.execute("BEGIN")
        for number in range(1500):
            filled.pay(number, OPEN, **secret(number))
            filled.event(name(number), "APPROVAL_REQUESTED")
            filled.event(name(number), "APPROVAL", metadata={"engine": SECRETS[2]})
            if number % 10 == 0:
                filled.quarantine(name(number), SECRETS[1].encode() + b" %d" % number)
                dismiss(filled, name(number))
                print_out(filled, f"P-{number}", pad=3000)
        filled.clock = LATER - timedelta(days=10)
        newer = [filled.pay(number) for number in range(2000, 2020)]
        filled.db.execute("COMMIT")
    assert in_files(path) == set(SECRETS)
    with closing(connect_reader(path)) as db:
        kept = {identity: snapshot(db, identity) for identity in newer}
    before = size(path)

    report = await prune(path)

    assert report.removed == Removed(1500, 150, 150, report.removed.changes)
    assert report.kept == {}
    assert (left(path), in_files(path)) == (set(newer), set())
    sound(path)
    assert report.bytes_returned is not None
    assert before - size(path) >= report.bytes_returned > before * 0.8
    with closing(connect_reader(path)) as db:
        assert {identity: snapshot(db, identity) for identity in newer} == kept
        assert db.execute("SELECT count(*) FROM pruned_transactions").fetchone() == (1500,)
        for table in ("transaction_words", "quarantine", "print_journal", "print_jobs"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
        lines = changes.after(db, 0, 10_000)
        assert {line.id for line in lines} == set(newer)


def dismiss(filled: Filled, identity: str) -> None:
    from posd.core.entries import Dismissed
    from posd.core.transactions import AttentionCode
    from posd.store import journal

    entry = Dismissed("ada", "seen", None, AttentionCode.QUARANTINED_EVENT)
    journal.record(Unit(filled.db), filled.get(identity), entry, filled.now())
