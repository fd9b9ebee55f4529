"""Head office counts as posd does: its view, over the vectors of `payments.counting`."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from posd.collect.store import CollectorStore
from tests.collect.postgres import postgres
from tests.support.needs import needs

pytestmark = needs("postgres", "initdb")

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "counting.json").read_text())
BEGAN = datetime(2026, 11, 20, 12, tzinfo=UTC)
INSERT = """
INSERT INTO posd.payments (merchant, lane, client_transaction_id, database_id, seq, phase, in_doubt, corrected,
  type, result, amount, authorized_amount, original, reversal, currency, created_at, updated_at, attention)
VALUES ('m', 'l', %(id)s, 'd', 1, 'final', false, false, %(type)s, %(result)s, %(amount)s, %(authorized_amount)s,
  %(of)s, %(reversal)s, 'USD', %(at)s, %(at)s, '{}')
"""


@pytest.fixture
async def connection() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with postgres() as server, await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
        await CollectorStore(connection).prepare(init=True)
        yield connection


async def test_the_view_counts_as_posd_does(connection: psycopg.AsyncConnection[Any]) -> None:
    for number, case in enumerate(VECTORS):
        for place, row in enumerate(case["rows"]):
            of = None if row["original"] is None else f"{number}-{row['original']}"
            at = BEGAN + timedelta(seconds=place)
            await connection.execute(INSERT, row | {"id": f"{number}-{place}", "of": of, "at": at})
    found = await (await connection.execute("SELECT client_transaction_id, kind, amount FROM posd.counted")).fetchall()
    counted = {identity: (kind, str(amount)) for identity, kind, amount in found}
    for number, case in enumerate(VECTORS):
        expected = None if case["counted"] is None else (case["kind"], case["counted"])
        assert counted.get(f"{number}-{len(case['rows']) - 1}") == expected, case["about"]
