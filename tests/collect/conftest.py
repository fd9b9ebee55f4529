"""Tables of head office. Each test file has one PostgreSQL server, and each test has new tables."""

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio

from posd.collect.store import CollectorStore
from tests.collect.postgres import Postgres, postgres


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Postgres]:
    async with postgres() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def store(server: Postgres) -> AsyncIterator[CollectorStore]:
    async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
        store = CollectorStore(connection)
        await store.prepare(init=True)
        yield store
        await connection.execute("DROP SCHEMA posd CASCADE")


@pytest.fixture
def office(server: Postgres, tmp_path: Path) -> Path:
    """Return head office's configuration."""
    path = tmp_path / "office.toml"
    path.write_text(f'[collect]\ndsn = "{server.dsn}"\n')
    return path
