"""Queries of the tables: completeness of all lanes, totals, and started ids."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from posd.payments.model import AttentionCode
from posd.printing.model import PrintAttentionCode
from posd.relay.messages import UNREACHABLE

#: Known values of a lane's health, and known codes of attentions. Any other value counts as `OTHER`.
STATUSES = ("ok", "degraded", "failing", UNREACHABLE)
CODES = tuple(sorted({*map(str, AttentionCode), *map(str, PrintAttentionCode)}))
OTHER = "other"


class Gap(NamedTuple):
    """Range of missing changes of a database: those after `after_seq` and before `before_seq`."""

    merchant: str
    lane: str
    database_id: str
    after_seq: int | None
    before_seq: int


class LaneStatus(NamedTuple):
    """State of a lane. `complete_to_at`, `complete_to_seq`: no change is missing up to this time and number.

    `silent`: whether no message arrived for ten minutes. `retired_at`: time since which the lane is closed and sends no
    messages. `lost`: number of changes that are missing in the lane's feed, and that no operator has compared.
    """

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
    lost: int

    @property
    def unreachable(self) -> bool:
        """Whether the lane's relay has reported that posd does not respond."""
        return self.health == UNREACHABLE

    @property
    def wanting(self) -> bool:
        """Whether the totals of the lane are unreliable, so that an operator should check."""
        return self.retired_at is None and (self.silent or self.unreachable or self.gaps > 0 or self.lost > 0)


class FleetSummary(NamedTuple):
    """Totals over all lanes. Each field is the metric `posd_fleet_` with its name.

    `lanes_silent`, `lanes_away`, `lanes_incomplete`, `payments_open` and `lanes_health` do not count closed lanes.
    `lanes_health` and `attention`: number for each known value. Any other value counts as `other`.
    """

    lanes: int
    lanes_silent: int
    lanes_away: int
    lanes_incomplete: int
    payments_open: int
    payments_in_doubt: int
    lost_changes: int
    unreadable_messages: int
    lanes_health: Mapping[str, int]
    attention: Mapping[str, int]


class DayTotal(NamedTuple):
    """Total of a lane's payments of one day, kind and currency. `currency` is None if no terminal sent it."""

    day: date
    merchant: str
    lane: str
    kind: str
    payments: int
    total: Decimal
    currency: str | None


class TotalsGap(NamedTuple):
    """What the totals of some days may lack.

    `lanes`: lanes that are not complete up to the end of these days (merchant, lane, time up to which it is complete).
    `open`: payments without an outcome. `unclear`: approved payments of unknown type or amount. `lost`: lost changes of
    these days. `unreadable`: unusable messages.
    """

    lanes: Sequence[tuple[str, str, datetime | None]]
    open: int
    unclear: int
    lost: int
    unreadable: int


class CompletenessCheck(NamedTuple):
    """State of all lanes, gaps, and number of unusable messages. `counted`: as in `check`."""

    lanes: Sequence[LaneStatus]
    gaps: Sequence[Gap]
    unreadable: int
    counted: bool

    @property
    def well(self) -> bool:
        """Whether every lane is complete, and none needs an operator."""
        return not self.unreadable and not any(lane.wanting for lane in self.lanes)


async def check(connection: AsyncConnection[Any], *, counted: bool) -> CompletenessCheck:
    """Return the state of all lanes, and the gaps of lanes that are not closed. Lanes that need an operator come first.

    `counted`: whether to look for gaps in all rows. Otherwise only the rows after each database's stored frontier are
    examined, because a database has no gap up to its frontier.
    """
    query = (
        "SELECT merchant, lane, g.database_id, after_seq, before_seq FROM posd.missing(%s) g JOIN posd.lanes"
        " USING (merchant, lane) WHERE retired_at IS NULL ORDER BY 1, 2, 3, 4"
    )
    missing = [Gap(*row) for row in await _rows(connection, query, (counted,))]
    of_lane = Counter((gap.merchant, gap.lane) for gap in missing)
    found = await _rows(
        connection,
        """
        SELECT l.merchant, l.lane, l.complete_to_at, l.complete_to_seq, l.last_state_at,
          EXISTS (SELECT 1 FROM posd.silent s WHERE s.merchant = l.merchant AND s.lane = l.lane),
          (SELECT count(*) FROM posd.payments p WHERE p.merchant = l.merchant AND p.lane = l.lane AND in_doubt),
          (SELECT count(*) FROM posd.attention a WHERE a.merchant = l.merchant AND a.lane = l.lane),
          l.health ->> 'status', l.version, l.retired_at,
          (SELECT least(coalesce(sum(to_seq - from_seq + 1), 0), 9e18)::bigint
           FROM posd.lost JOIN posd.databases d USING (database_id)
           WHERE d.merchant = l.merchant AND d.lane = l.lane AND reason NOT IN ('deleted', 'compared'))
        FROM posd.lanes l ORDER BY 1, 2
        """,
    )
    lanes = [LaneStatus._make((*row[:6], of_lane[row[0], row[1]], *row[6:])) for row in found]
    lanes.sort(key=lambda lane: (not lane.wanting, lane.retired_at is not None))
    return CompletenessCheck(lanes, missing, await unreadable(connection), counted)


async def fleet(connection: AsyncConnection[Any]) -> FleetSummary:
    """Return the totals over all lanes."""
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
          (SELECT coalesce(sum(to_seq - from_seq + 1), 0) FROM posd.lost WHERE reason <> 'deleted'),
          (SELECT count(*) FROM posd.unreadable)
        """,
    )
    query = "SELECT health ->> 'status', count(*) FROM posd.lanes WHERE retired_at IS NULL GROUP BY 1"
    health = await _rows(connection, query)
    attention = await _rows(connection, "SELECT code, count(*) FROM posd.attention GROUP BY 1")
    return FleetSummary._make([*map(int, numbers), _known(health, STATUSES), _known(attention, CODES)])


def _known(found: list[Any], known: Sequence[str]) -> Mapping[str, int]:
    """Return the count of each known value, and the count of all others as `OTHER`.

    `found`: rows of value and count.
    """
    counts = dict.fromkeys((*known, OTHER), 0)
    for word, count in found:
        counts[word if word in known else OTHER] += count
    return counts


async def unreadable(connection: AsyncConnection[Any]) -> int:
    """Return the number of unusable messages."""
    ((count,),) = await _rows(connection, "SELECT count(*) FROM posd.unreadable")
    return int(count)


async def merchants_of(connection: AsyncConnection[Any], lane: str) -> list[str]:
    """Return the merchants that have a lane of that name."""
    return [name for (name,) in await _rows(connection, "SELECT merchant FROM posd.lanes WHERE lane = %s", (lane,))]


async def retire(connection: AsyncConnection[Any], merchant: str, lane: str) -> None:
    """Mark a lane as closed, so that no messages are expected from it."""
    query = "UPDATE posd.lanes SET retired_at = coalesce(retired_at, now()) WHERE merchant = %s AND lane = %s"
    await connection.execute(query, (merchant, lane))


async def totals(connection: AsyncConnection[Any], first: date, last: date, zone: str) -> list[DayTotal]:
    """Return the totals of the days from `first` to `last` in a time zone, by day, lane, kind and currency."""
    async with connection.transaction():
        await connection.execute("SELECT set_config('TimeZone', %s, true)", (zone,))
        query = "SELECT * FROM posd.totals WHERE day BETWEEN %s AND %s ORDER BY 1, 2, 3, 4, currency"
        return [DayTotal(*row) for row in await _rows(connection, query, (first, last))]


async def totals_gap(connection: AsyncConnection[Any], first: date, last: date, zone: str) -> TotalsGap:
    """Return what the totals of these days may lack. A lane may be up to ten minutes behind."""
    behind = await _rows(
        connection,
        "SELECT merchant, lane, complete_to_at FROM posd.lanes WHERE retired_at IS NULL AND coalesce(complete_to_at"
        " < least((%s::date + 1)::timestamp AT TIME ZONE %s, now() - interval '10 minutes'), true) ORDER BY 1, 2",
        (last, zone),
    )
    query = """
        SELECT (SELECT count(*) FROM posd.payments WHERE result IS NULL AND (created_at AT TIME ZONE %s)::date
          BETWEEN %s AND %s),
          (SELECT count(*) FROM posd.effects WHERE section = 'unclear' AND (counts_at AT TIME ZONE %s)::date
          BETWEEN %s AND %s)
        """
    ((unsettled, unclear),) = await _rows(connection, query, 2 * (zone, first, last))
    # The time of lost changes is unknown, but it is between the times of the changes before and after them.
    query = """
        SELECT coalesce(sum(to_seq - from_seq + 1), 0) FROM posd.lost l
        WHERE reason <> 'deleted' AND coalesce((
          SELECT at FROM posd.changes c
          WHERE c.database_id = l.database_id AND c.seq < l.from_seq ORDER BY seq DESC LIMIT 1
        ) < (%s::date + 1)::timestamp AT TIME ZONE %s, true) AND coalesce((
          SELECT at FROM posd.changes c
          WHERE c.database_id = l.database_id AND c.seq > l.to_seq ORDER BY seq LIMIT 1
        ) >= %s::date::timestamp AT TIME ZONE %s, true)
        """
    ((lost,),) = await _rows(connection, query, (last, zone, first, zone))
    incomplete = [tuple(row) for row in behind]
    return TotalsGap(incomplete, int(unsettled), int(unclear), int(lost), await unreadable(connection))


async def started(
    connection: AsyncConnection[Any], merchant: str | None, lane: str, since: datetime
) -> list[tuple[str, datetime, str | None, str | None]]:
    """Return id, time, terminal and sale of each payment that a lane has started since `since`.

    The lane's clock may have been behind, so a payment is also returned if its message arrived since then.
    """
    query = (
        "SELECT client_transaction_id, created_at, terminal, sale FROM posd.payments"
        " WHERE lane = %s AND (%s::text IS NULL OR merchant = %s) AND (updated_at >= %s OR received_at >= %s)"
        " ORDER BY created_at, 1"
    )
    return [tuple(row) for row in await _rows(connection, query, (lane, merchant, merchant, since, since))]


async def _rows(connection: AsyncConnection[Any], query: Any, values: Sequence[Any] | None = None) -> list[Any]:
    return await (await connection.execute(query, values)).fetchall()
