"""A short version of the measurement; figures are never judged here, only what is asked, and how much at once."""

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from posd.payments import rows
from posd.payments.reconcile import MAX_CALLS
from tests.restart.fill import fill
from tests.restart.measure import start

#: What a start reads: each has to find its rows by an index, however many are stored.
STATEMENTS = {
    "open ones": lambda db: rows.open_ones(db),
    "to ask once": lambda db: rows.to_ask_once(db),
    "leases": lambda db: rows.leases(db),
}


@pytest.mark.slow
async def test_every_open_payment_is_asked_for_and_no_terminal_is_flooded() -> None:
    with TemporaryDirectory(prefix="posd-") as directory:
        result = await start(Path(directory), ended=5_000, opened=60, terminals=10)
    assert result.searches == 60
    assert result.most_of_a_terminal == 1
    assert 1 < result.most_at_once <= MAX_CALLS


def test_what_a_start_reads_does_not_grow_with_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    fill(path, ended=2_000, opened=3, terminals=2, sent_to="https://terminal", with_attention=20)
    statements: list[str] = []
    db = sqlite3.connect(path)
    db.set_trace_callback(statements.append)
    for read in STATEMENTS.values():
        read(db)
    db.set_trace_callback(None)
    assert len(statements) == len(STATEMENTS)
    for statement in statements:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert all("USING INDEX" in step or "leases" in step for step in plan), (statement, plan)
    db.close()
