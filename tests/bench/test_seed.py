"""The payments that the benchmark stores are what posd would have left: nothing is wrong with them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from posd.payments import lists, rows
from posd.payments.reprocess import derive
from posd.upkeep.verify import verify
from tests.bench import seed

PAYMENTS = 2 * seed.CYCLE


async def test_they_can_be_verified_and_follow_from_their_record(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    with TemporaryDirectory(prefix="posd-") as directory:
        courses = await seed.run_courses(Path(directory))
    await seed.fill(path, courses, PAYMENTS, terminals=7)
    report = verify(path, lambda _what, _done, _total: None)
    assert report.findings == []
    assert (report.transactions, report.events) == (PAYMENTS, 4 * PAYMENTS)
    with closing(sqlite3.connect(path)) as db:
        stored = [found for _, found in rows.by_rowid(db, 0, PAYMENTS)]
        assert [item.client_transaction_id for item in stored] == [seed.identity(ago) for ago in range(PAYMENTS, 0, -1)]
        assert len({item.terminal for item in stored}) == 7
        page = lists.TransactionQuery(limit=5, metadata={"ticket": seed.ticket(3), "till": "2"})
        assert [item.client_transaction_id for item in lists.read_page(db, page)[0]] == [seed.identity(3)]
        assert len({item.outcome.result for item in stored if item.outcome}) == 2
        assert sum(bool(item.attention) for item in stored) == 2
        for item in stored:
            derived = derive(db, item).derived
            assert (derived.outcome, derived.trail, derived.attention) == (item.outcome, item.trail, item.attention)
