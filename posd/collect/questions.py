"""What is asked of the tables: whether all lanes are complete, totals, and ids that were started."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from posd.payments.model import AttentionCode
from posd.printing.model import PrintAttentionCode
from posd.relay.messages import UNREACHABLE

#: What a lane can say of posd's health, and the codes of what needs a person; whatever else it says is `OTHER`.
STATUSES = ("ok", "degraded", "failing", UNREACHABLE)
CODES = tuple(sorted({*map(str, AttentionCode), *map(str, PrintAttentionCode)}))
OTHER = "other"


class Gap(NamedTuple):
    """Changes that are missing: those after one number and before another."""

    merchant: str
    lane: str
    database_id: str
    after_seq: int | None
    before_seq: int


class Lane(NamedTuple):
    """How a lane is known. `silent`: nothing was heard of it for ten minutes; `retired_at`: since when nobody waits."""

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
    retired_at: datetime | None

    @property
    def unreachable(self) -> bool:
        """Whether its relay gets no answer of its posd."""
        return self.health == UNREACHABLE

    @property
    def wanting(self) -> bool:
        """Whether its totals cannot be relied on, and somebody should look."""
        return self.retired_at is None and (self.silent or self.unreachable or self.gaps > 0)


class Fleet(NamedTuple):
    """All lanes in numbers: `open` and `health` without those that are closed, as the numbers of what is wrong.

    `health` and `attention` count by words of posd's own; what else a lane says is `other`.
    """

    lanes: int
    silent: int
    away: int
    incomplete: int
    open: int
    in_doubt: int
    lost: int
    unreadable: int
    health: Mapping[str, int]
    attention: Mapping[str, int]


class Total(NamedTuple):
    """What a lane's payments of a day, kind and currency come to. `currency` is None where no terminal named it."""

    day: date
    merchant: str
    lane: str
    kind: str
    payments: int
    total: Decimal
    currency: str | None


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
          l.health ->> 'status', l.version, l.retired_at
        FROM posd.lanes l ORDER BY 1, 2
        """,
    )
    return sorted((Lane(*row) for row in found), key=lambda lane: (not lane.wanting, lane.retired_at is not None))


async def fleet(connection: AsyncConnection[Any]) -> Fleet:
    """Return how all lanes are."""
    (numbers,) = await _rows(
        connection,
        """
        SELECT (SELECT count(*) FROM posd.lanes),
          (SELECT count(*) FROM posd.silent),
          (SELECT count(*) FROM posd.silent WHERE last_state_at IS NULL OR last_state_at < now() - interval '1 day'),
          (SELECT count(DISTINCT (merchant, lane)) FROM posd.gaps JOIN posd.lanes USING (merchant, lane)
           WHERE retired_at IS NULL),
          (SELECT coalesce(sum(open), 0) FROM posd.lanes WHERE retired_at IS NULL),
          (SELECT count(*) FROM posd.payments WHERE in_doubt),
          (SELECT coalesce(sum(to_seq - from_seq + 1), 0) FROM posd.lost),
          (SELECT count(*) FROM posd.unreadable)
        """,
    )
    lanes, silent, away, incomplete, opened, in_doubt, lost, unreadable = map(int, numbers)
    query = "SELECT health ->> 'status', count(*) FROM posd.lanes WHERE retired_at IS NULL GROUP BY 1"
    health = await _rows(connection, query)
    attention = await _rows(connection, "SELECT code, count(*) FROM posd.attention GROUP BY 1")
    by_word = _known(health, STATUSES), _known(attention, CODES)
    return Fleet(lanes, silent, away, incomplete, opened, in_doubt, lost, unreadable, *by_word)


def _known(found: list[Any], known: Sequence[str]) -> Mapping[str, int]:
    """Return a count for each word that is known, and one for all others together."""
    counts = dict.fromkeys((*known, OTHER), 0)
    for word, count in found:
        counts[word if word in known else OTHER] += count
    return counts


async def gaps(connection: AsyncConnection[Any]) -> list[Gap]:
    """Return all that is missing of lanes that are not closed."""
    query = (
        "SELECT merchant, lane, g.database_id, after_seq, before_seq FROM posd.gaps g JOIN posd.lanes"
        " USING (merchant, lane) WHERE retired_at IS NULL ORDER BY 1, 2, 3, 4"
    )
    return [Gap(*row) for row in await _rows(connection, query)]


async def unreadable(connection: AsyncConnection[Any]) -> int:
    """Return how many messages were put aside."""
    ((count,),) = await _rows(connection, "SELECT count(*) FROM posd.unreadable")
    return int(count)


async def merchants_of(connection: AsyncConnection[Any], lane: str) -> list[str]:
    """Return the merchants that have a lane of that name."""
    return [name for (name,) in await _rows(connection, "SELECT merchant FROM posd.lanes WHERE lane = %s", (lane,))]


async def retire(connection: AsyncConnection[Any], merchant: str, lane: str) -> None:
    """Wait no longer for a lane that is closed."""
    query = "UPDATE posd.lanes SET retired_at = coalesce(retired_at, now()) WHERE merchant = %s AND lane = %s"
    await connection.execute(query, (merchant, lane))


async def totals(connection: AsyncConnection[Any], first: date, last: date, zone: str) -> list[Total]:
    """Return the totals of the days from `first` to `last` in a time zone, by day, lane, kind and currency."""
    async with connection.transaction():
        await connection.execute("SELECT set_config('TimeZone', %s, true)", (zone,))
        query = "SELECT * FROM posd.totals WHERE day BETWEEN %s AND %s ORDER BY 1, 2, 3, 4, currency"
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
