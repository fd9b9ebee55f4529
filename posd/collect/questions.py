"""What is asked of the tables: whether all lanes are complete, totals, and ids that were started."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from psycopg import AsyncConnection


class Gap(NamedTuple):
    """Changes that are missing: those after one number and before another."""

    merchant: str
    lane: str
    database_id: str
    after_seq: int | None
    before_seq: int


class Lane(NamedTuple):
    """How a lane is known. `silent`: nothing was heard of it for ten minutes."""

    merchant: str
    lane: str
    complete_to_at: datetime | None
    complete_to_seq: int | None
    last_state_at: datetime | None
    silent: bool
    gaps: int
    in_doubt: int
    attention: int
    health: str | None
    version: str | None


class Total(NamedTuple):
    """What a lane's payments of a day and kind come to."""

    day: date
    merchant: str
    lane: str
    kind: str
    payments: int
    total: Decimal


async def lanes(connection: AsyncConnection[Any]) -> list[Lane]:
    """Return all lanes, those that need a person first."""
    found = await _rows(
        connection,
        """
        SELECT l.merchant, l.lane, l.complete_to_at, l.complete_to_seq, l.last_state_at,
          EXISTS (SELECT 1 FROM posd.silent s WHERE s.merchant = l.merchant AND s.lane = l.lane),
          (SELECT count(*) FROM posd.gaps g WHERE g.merchant = l.merchant AND g.lane = l.lane),
          (SELECT count(*) FROM posd.payments p WHERE p.merchant = l.merchant AND p.lane = l.lane AND in_doubt),
          (SELECT count(*) FROM posd.attention a WHERE a.merchant = l.merchant AND a.lane = l.lane),
          l.health ->> 'status', l.version
        FROM posd.lanes l ORDER BY 1, 2
        """,
    )
    return sorted((Lane(*row) for row in found), key=lambda lane: not (lane.silent or lane.gaps))


async def gaps(connection: AsyncConnection[Any]) -> list[Gap]:
    """Return all that is missing."""
    query = "SELECT merchant, lane, database_id, after_seq, before_seq FROM posd.gaps ORDER BY 1, 2, 3, 4"
    return [Gap(*row) for row in await _rows(connection, query)]


async def unreadable(connection: AsyncConnection[Any]) -> int:
    """Return how many messages were put aside."""
    ((count,),) = await _rows(connection, "SELECT count(*) FROM posd.unreadable")
    return int(count)


async def totals(connection: AsyncConnection[Any], first: date, last: date, zone: str) -> list[Total]:
    """Return the totals of the days from `first` to `last` in a time zone, by day, lane and kind."""
    async with connection.transaction():
        await connection.execute("SELECT set_config('TimeZone', %s, true)", (zone,))
        query = "SELECT * FROM posd.totals WHERE day BETWEEN %s AND %s ORDER BY 1, 2, 3, 4"
        return [Total(*row) for row in await _rows(connection, query, (first, last))]


async def started(
    connection: AsyncConnection[Any], merchant: str | None, lane: str, since: datetime
) -> list[tuple[str, datetime, str | None, str | None]]:
    """Return the ids of payments that a lane has started since then: when, on which terminal, for which sale."""
    query = (
        "SELECT client_transaction_id, created_at, terminal, sale FROM posd.payments"
        " WHERE lane = %s AND (%s::text IS NULL OR merchant = %s) AND updated_at >= %s ORDER BY created_at, 1"
    )
    return [tuple(row) for row in await _rows(connection, query, (lane, merchant, merchant, since))]


async def _rows(connection: AsyncConnection[Any], query: Any, values: Sequence[Any] | None = None) -> list[Any]:
    return await (await connection.execute(query, values)).fetchall()
