"""Storage of messages in PostgreSQL: each batch in one transaction."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from posd.base.operations import OPERATIONS
from posd.collect import reading
from posd.collect.reading import KEPT_BYTES, ChangeRow, LaneMessage, RejectedMessage
from posd.relay.messages import AnyMessage, Begin, Changes, Lost, OperatorNeeded, StateMessage

#: Version of the tables that this program needs. Each file in `tables` upgrades the tables by one version.
VERSION = 6
#: Rows that the table `posd.operations` must have: the effect of each operation type.
EFFECTS = [(kind.value, row.reserves, row.reverses, row.by_original) for kind, row in OPERATIONS.items()]
#: Number of the advisory lock for changes of the tables. It is arbitrary.
LOCK = 0x706F7364
#: Maximum number of databases of one lane. Each restore creates one. The limit exists because a late message about a
#: database makes head office reorder all data of the lane.
MOST_DATABASES = 500
#: Classes of SQLSTATE for errors in the data: the same data would fail again. Errors of any other class (08, 40, 53,
#: 57, ...) are about the connection or the server. After them, the same data can be stored later. Source: PostgreSQL,
#: Appendix A.
OF_THE_DATA = frozenset(
    {
        "21",  # cardinality violation
        "22",  # data exception
        "23",  # integrity constraint violation
        "44",  # WITH CHECK OPTION violation
        "54",  # program limit exceeded: an index row, a statement, a depth
    }
)


def is_of_the_data(error: Exception) -> bool:
    """Return whether an error is caused by the data, and not by the server or the connection."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate[:2] in OF_THE_DATA
    return isinstance(error, psycopg.DataError | UnicodeError)  # the driver refused the data before sending it


class ParsedMessage(NamedTuple):
    """Message, its decoded content, and its changes as rows."""

    message: LaneMessage
    says: AnyMessage
    rows: Sequence[ChangeRow] = ()

    def aside(self, reason: str, row: ChangeRow | None = None) -> RejectedMessage:
        """Return the message as unusable, or only the change in `row`."""
        if row is None or not isinstance(self.says, Changes):
            return RejectedMessage(self.message, 0, reason, self.message.data)
        data = bytes(self.says.changes[row.seq - self.says.first_seq])
        return RejectedMessage(self.message, row.seq, f"change {row.seq} {reason}", data)


#: Messages to store together. Some messages or changes are already known to be unusable.
Batch = Sequence[ParsedMessage | RejectedMessage]


def parsed(messages: Sequence[LaneMessage]) -> Batch:
    """Decode and check messages. Unusable messages and changes become RejectedMessage."""
    batch: list[ParsedMessage | RejectedMessage] = []
    for message in messages:
        try:
            says = reading.read(message)
        except ValueError as error:
            batch.append(RejectedMessage(message, 0, str(error), message.data))
            continue
        rows, unusable = reading.rows(message, says) if isinstance(says, Changes) else ([], [])
        batch += [ParsedMessage(message, says, rows), *unusable]
    return batch


def halves(batch: Batch) -> tuple[Batch, Batch] | None:
    """Split a batch into two parts. A batch of one message is split between its changes.

    Return None if there is nothing to split.
    """
    if (middle := len(batch) // 2) > 0:
        return batch[:middle], batch[middle:]
    for item in batch:
        if isinstance(item, ParsedMessage) and (middle := len(item.rows) // 2) > 0:
            return [item._replace(rows=item.rows[:middle])], [item._replace(rows=item.rows[middle:])]
    return None


def refused(batch: Batch, reason: str) -> Iterator[RejectedMessage]:
    """Yield each change of a batch, and each message without changes, as unusable."""
    for item in batch:
        if isinstance(item, RejectedMessage):
            yield item
        else:
            yield from [item.aside(reason, row) for row in item.rows] or [item.aside(reason)]


class CollectorStore:
    """The tables in PostgreSQL, over one connection."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self.connection = connection

    async def prepare(self, *, init: bool = False) -> bool:
        """Check the tables. With `init`, create or upgrade them. Return whether the tables had to be created or
        upgraded.

        Raise OperatorNeeded for missing tables, or tables of another version.
        """
        # JIT compilation of a query takes seconds, longer than the query itself.
        await self.connection.execute("SET jit = off")
        async with self.connection.transaction():
            await self.connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            ((there,),) = await self._rows("SELECT to_regclass('posd.schema_version') IS NOT NULL")
            if not there and not init:
                raise OperatorNeeded("the database has no tables of posd: make them with posd collect --init")
            ((found,),) = await self._rows("SELECT max(version) FROM posd.schema_version") if there else [(0,)]
            if found > VERSION:
                raise OperatorNeeded(f"the tables are of version {found}, and this posd supports version {VERSION}")
            if found < VERSION and not init:
                words = f"the tables are of version {found}, this posd needs version {VERSION}"
                raise OperatorNeeded(f"{words}: bring them up to date with posd collect --init")
            for version in range(found + 1, VERSION + 1):
                await self.connection.execute((files("posd.collect") / "tables" / f"{version}.sql").read_bytes())
                await self.connection.execute("INSERT INTO posd.schema_version (version) VALUES (%s)", (version,))
            lacking = set(EFFECTS).difference(await self._rows("SELECT * FROM posd.operations"))
            if lacking and not init:
                kinds = ", ".join(sorted(kind for kind, *_ in lacking))
                raise OperatorNeeded(f"the tables do not count {kinds}: bring them up to date with posd collect --init")
            async with self.connection.cursor() as cursor:
                await cursor.executemany(_OPERATIONS, list(lacking))
        return bool(found < VERSION or lacking)

    async def write(self, batch: Batch) -> int:
        """Store a batch and wait until it is on disk. Return the number of unusable messages or changes.

        A message or change that PostgreSQL refuses is stored in the table `unreadable`. All others are stored normally.
        """
        try:
            return await self._write(batch)
        except (psycopg.Error, UnicodeError) as error:
            if not is_of_the_data(error):
                raise
            if (parts := halves(batch)) is not None:
                return sum([await self.write(part) for part in parts])
            reason = f"is refused by PostgreSQL: {str(error).splitlines()[0]}"
            return await self._write(list(refused(batch, reason)))

    async def _write(self, batch: Batch) -> int:
        found = [item for item in batch if isinstance(item, ParsedMessage)]
        aside = [item for item in batch if isinstance(item, RejectedMessage)]
        async with self.connection.transaction():
            foreign = await self._lanes(found)
            reason = f"its database_id is another lane's, or the lane has {MOST_DATABASES} others"
            aside += [item.aside(reason) for item in found if item.message in foreign]
            found = [item for item in found if item.message not in foreign]
            await self._begins([item.says for item in found if isinstance(item.says, Begin)])
            aside += await self._changes([(item, row) for item in found for row in item.rows])
            await self._lost([item.says for item in found if isinstance(item.says, Lost)])
            states = [(item.message.received_at, item.says) for item in found if isinstance(item.says, StateMessage)]
            await self._states(states)
            await self._move_on({item.says.database_id for item in found})
            await self._put_aside(aside)
        return len(aside)

    async def _lanes(self, found: Sequence[ParsedMessage]) -> set[LaneMessage]:
        """Create the rows of lanes and databases, and lock the rows of the lanes.

        Return the messages whose database belongs to another lane, or exceeds the lane's limit.
        """
        if not found:
            return set()
        lanes = {(item.says.merchant, item.says.lane): None for item in found}
        named: dict[str, tuple[str, str]] = {}
        for item in found:
            named.setdefault(item.says.database_id, (item.says.merchant, item.says.lane))
        await self.connection.execute(_LANES, _columns(lanes))
        await self.connection.execute(_LOCKED, _columns(lanes))
        columns = _columns((name, *lane) for name, lane in named.items())
        await self.connection.execute(_DATABASES, (*columns, MOST_DATABASES))
        known = await self._rows(
            "SELECT database_id, merchant, lane FROM posd.databases WHERE database_id = ANY(%s)", (list(named),)
        )
        owners = {database_id: (merchant, lane) for database_id, merchant, lane in known}
        return {
            item.message for item in found if owners.get(item.says.database_id) != (item.says.merchant, item.says.lane)
        }

    async def _begins(self, found: Sequence[Begin]) -> None:
        """Record the first number and the predecessor of each database. Then sort the databases of these lanes."""
        for says in found:
            previous = says.previous
            await self.connection.execute(
                "UPDATE posd.databases SET first_seq = coalesce(first_seq, %s),"
                " previous_id = coalesce(previous_id, %s), previous_last_seq = greatest(previous_last_seq, %s),"
                " begun_at = coalesce(begun_at, %s) WHERE database_id = %s",
                (
                    says.first_seq,
                    previous.database_id if previous else None,
                    previous.last_seq if previous else None,
                    reading.moment(says.at),
                    says.database_id,
                ),
            )
        for lane in {(says.merchant, says.lane) for says in found}:
            await self._order(*lane)

    async def _order(self, merchant: str, lane: str) -> None:
        """Number the databases of a lane, each after its predecessor.

        If the order changes, derive the lane's payments again.
        """
        known = await self._rows(
            "SELECT database_id, previous_id FROM posd.databases WHERE merchant = %s AND lane = %s"
            " ORDER BY begun_at NULLS LAST, ordinal",
            (merchant, lane),
        )
        before = await self._rows(
            "SELECT database_id FROM posd.databases WHERE merchant = %s AND lane = %s ORDER BY ordinal",
            (merchant, lane),
        )
        ordered = in_order(known)
        if ordered == [row[0] for row in before]:
            return
        for ordinal, database_id in enumerate(ordered):
            await self.connection.execute(
                "UPDATE posd.databases SET ordinal = %s WHERE database_id = %s", (ordinal, database_id)
            )
        await self.connection.execute(_INCOMING)
        await self.connection.execute(
            "INSERT INTO incoming SELECT database_id, seq, merchant, lane, at, kind, id, change FROM posd.changes"
            " WHERE merchant = %s AND lane = %s",
            (merchant, lane),
        )
        await self._stand()

    async def _changes(self, found: Sequence[tuple[ParsedMessage, ChangeRow]]) -> list[RejectedMessage]:
        """Store changes, and update their payments and print jobs.

        Return as unusable the changes whose number is already stored with other content.
        """
        if not found:
            return []
        await self.connection.execute(_INCOMING)
        async with self.connection.cursor() as cursor, cursor.copy("COPY incoming FROM STDIN") as copy:
            await copy.write("".join(_line(item.message, row, number) for number, (item, row) in enumerate(found)))
        stored = await self.connection.execute(_STORED)
        others = [] if stored.rowcount == len(found) else await self._rows(_OTHERS)
        await self._stand()
        return [
            item.aside("of this database is here already, and says something else", row)
            for item, row in (found[number] for (number,) in others)
        ]

    async def _stand(self) -> None:
        """Update payments, print jobs and attentions from the changes in the table `incoming`."""
        for statement in _STAND:
            await self.connection.execute(statement)

    async def _lost(self, found: Iterable[Lost]) -> None:
        for says in found:
            await self.connection.execute(_LOST, (says.database_id, says.from_seq, says.to_seq, says.reason))

    async def _states(self, found: Iterable[tuple[datetime, StateMessage]]) -> None:
        states = [
            {
                "at": received_at,
                "as_of": min(reading.moment(says.as_of), received_at),  # a lane's clock can be ahead
                "id": says.database_id,
                "seq": says.last_seq,
                "version": says.version,
                "health": Jsonb(dict(says.health)),
                "open": says.open,
                "attention": Jsonb(dict(says.attention)),
                "merchant": says.merchant,
                "lane": says.lane,
            }
            for received_at, says in found
        ]
        async with self.connection.cursor() as cursor:
            await cursor.executemany(_STATE_OF_DATABASE, states)
            await cursor.executemany(_STATE_OF_LANE, states)

    async def _move_on(self, databases: set[str]) -> None:
        """Advance the frontier of each database to its first gap.

        Then update the time up to which each lane is complete.
        """
        if not databases:
            return
        moving = list(databases)
        while moving:
            moving = [database_id for (database_id,) in await self._rows(_FRONTIER, {"ids": moving})]
        await self.connection.execute(_COMPLETE, {"ids": list(databases)})

    async def _put_aside(self, found: Iterable[RejectedMessage]) -> None:
        values = [
            (
                message.stream_seq,
                message.received_at,
                message.subject.replace("\0", ""),
                reason.replace("\0", "")[:KEPT_BYTES],
                data[:KEPT_BYTES],
                seq,
            )
            for message, seq, reason, data in found
        ]
        async with self.connection.cursor() as cursor:
            await cursor.executemany(_ASIDE, values)

    async def _rows(self, query: str, values: Any = None) -> list[Any]:
        return await (await self.connection.execute(query, values)).fetchall()


def _columns(rows: Iterable[tuple[str, ...]]) -> list[list[str]]:
    """Return rows as columns, for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)]


def _line(message: LaneMessage, row: ChangeRow, number: int) -> str:
    """Return a row in COPY's text format, with its number in the batch and the server's time of its message."""
    texts = (
        *(row.database_id, str(row.seq), row.merchant, row.lane, row.at.isoformat(), row.kind, row.id, row.change),
        str(number),
        message.received_at.isoformat(),
    )
    line = "\t".join(texts)
    if line.count("\t") != len(texts) - 1 or _SPECIAL.search(line):
        line = "\t".join(text.translate(_ESCAPED) for text in texts)
    return line + "\n"


#: Characters that COPY's text format escapes.
_SPECIAL = re.compile(r"[\\\n\r]")
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def in_order(known: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return the ids of databases so that each follows its predecessor. Apart from that, the order stays the same.

    `known`: (id, predecessor).
    """
    names = {database_id for database_id, _ in known}
    found: dict[str, None] = {}
    left = list(known)
    while left:
        ready = [name for name, previous in left if previous not in names or previous in found]
        for name in ready or [left[0][0]]:  # a faulty lane can name two databases as each other's predecessor
            found[name] = None
        left = [item for item in left if item[0] not in found]
    return list(found)


#: Temporary table of the new changes of a batch.
_INCOMING = """
DROP TABLE IF EXISTS incoming;
CREATE TEMPORARY TABLE incoming (
  database_id text, seq bigint, merchant text, lane text, at timestamptz, kind text, id text, change jsonb,
  number integer, received_at timestamptz
) ON COMMIT DROP
"""
_STORED = """
INSERT INTO posd.changes SELECT database_id, seq, merchant, lane, at, kind, id, change FROM incoming
ON CONFLICT DO NOTHING
"""
#: Changes whose number is already stored with other content. Outcomes are not compared: after a correction, the feed
#: has fewer members of the corrected outcome.
_OTHERS = """
SELECT i.number FROM incoming i JOIN posd.changes c USING (database_id, seq)
WHERE c.change - 'outcome' <> i.change - 'outcome' ORDER BY 1
"""
#: Ranges of changes that a relay reported as lost, without the changes that are stored here. The stored ones were sent
#: earlier, when the feed still had them.
_LOST = """
INSERT INTO posd.lost SELECT of.id, before + 1, seq - 1, of.reason FROM
  (SELECT %s::text AS id, %s::bigint AS first, %s::bigint AS last, %s::text AS reason) of,
  LATERAL (
    SELECT seq, lag(seq, 1, of.first - 1) OVER (ORDER BY seq) AS before FROM (
      SELECT seq FROM posd.changes WHERE database_id = of.id AND seq BETWEEN of.first AND of.last
      UNION ALL SELECT of.last + 1
    ) known
  ) steps
WHERE seq > before + 1 ON CONFLICT DO NOTHING
"""
_ASIDE = "INSERT INTO posd.unreadable VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"

#: State of each payment and print job with new changes. The state is from the newest change: that with the highest
#: `ordinal` of its database, and there with the highest number. The outcome is from the newest change that has one. A
#: later change without an outcome removes the outcome only if it is in the same database. A later database may have
#: lost the outcome, so its changes do not remove it.
_NEWEST = """
CREATE TEMPORARY TABLE newest ON COMMIT DROP AS
WITH of_one AS (
  SELECT merchant, lane, kind, id, max(received_at) AS received_at FROM incoming GROUP BY merchant, lane, kind, id
),
by_database AS MATERIALIZED (  -- once for each, not for each of the lane's databases
  SELECT of_one.*, here.* FROM of_one, LATERAL (  -- by the index, however large the table is thought to be
    SELECT database_id, max(seq) AS last, max(seq) FILTER (WHERE c.change ? 'outcome') AS told, min(c.at) AS first_at
    FROM posd.changes c
    WHERE c.merchant = of_one.merchant AND c.lane = of_one.lane AND c.kind = of_one.kind AND c.id = of_one.id
    GROUP BY database_id
  ) here
),
standing AS (
  SELECT merchant, lane, kind, id, min(first_at) AS first_at, max(received_at) AS received_at,
    max(ARRAY[ordinal, last]) AS newest, max(ARRAY[ordinal, told, last]) FILTER (WHERE told IS NOT NULL) AS told
  FROM by_database JOIN posd.databases USING (merchant, lane, database_id) GROUP BY merchant, lane, kind, id
)
SELECT s.merchant, s.lane, s.kind, s.id, s.first_at, s.received_at, n.database_id, n.seq, n.at, n.change,
  ARRAY(SELECT jsonb_array_elements_text(n.change -> 'attention')) AS attention,
  o.change -> 'outcome' AS about, CASE WHEN s.told[2] = s.told[3] THEN o.change -> 'outcome' END AS stands
FROM standing s
JOIN posd.databases d ON d.merchant = s.merchant AND d.lane = s.lane AND d.ordinal = s.newest[1]
JOIN posd.changes n ON n.database_id = d.database_id AND n.seq = s.newest[2]
LEFT JOIN posd.databases e ON e.merchant = s.merchant AND e.lane = s.lane AND e.ordinal = s.told[1]
LEFT JOIN posd.changes o ON o.database_id = e.database_id AND o.seq = s.told[2]
"""

_PAYMENTS = """
INSERT INTO posd.payments (
  merchant, lane, client_transaction_id, database_id, seq, phase, in_doubt, result, corrected, type, amount,
  authorized_amount, tip, currency, sale, original, reversal, terminal, transaction_reference, ticket_number,
  created_at, decided_at, occurred_at, updated_at, attention, received_at
)
SELECT merchant, lane, id, database_id, seq, change ->> 'phase', change ->> 'phase' = 'in_doubt',
  stands ->> 'result', coalesce((stands -> 'corrected')::boolean, false), about ->> 'type',
  posd.total(about -> 'amount'), (stands ->> 'authorized_amount')::numeric, (stands ->> 'tip')::numeric,
  stands ->> 'currency', about ->> 'sale', about ->> 'original', stands ->> 'reversal', change ->> 'terminal',
  stands ->> 'transaction_reference', stands ->> 'ticket_number',
  coalesce((about ->> 'created_at')::timestamptz, first_at), (stands ->> 'decided_at')::timestamptz,
  stands ->> 'occurred_at', at, attention, received_at
FROM newest WHERE kind = 'transaction'
ON CONFLICT (merchant, lane, client_transaction_id) DO UPDATE SET
  database_id = excluded.database_id, seq = excluded.seq, phase = excluded.phase, in_doubt = excluded.in_doubt,
  result = excluded.result, corrected = excluded.corrected, type = excluded.type, amount = excluded.amount,
  authorized_amount = excluded.authorized_amount, tip = excluded.tip, currency = excluded.currency,
  sale = excluded.sale, original = excluded.original, reversal = excluded.reversal, terminal = excluded.terminal,
  transaction_reference = excluded.transaction_reference, ticket_number = excluded.ticket_number,
  created_at = excluded.created_at, decided_at = excluded.decided_at, occurred_at = excluded.occurred_at,
  updated_at = excluded.updated_at, attention = excluded.attention,
  received_at = greatest(payments.received_at, excluded.received_at)
"""

_PRINT_JOBS = """
INSERT INTO posd.print_jobs (
  merchant, lane, print_job_id, database_id, seq, phase, status, terminal, created_at, updated_at, attention
)
SELECT merchant, lane, id, database_id, seq, change ->> 'phase', change ->> 'status', change ->> 'terminal', first_at,
  at, attention
FROM newest WHERE kind = 'print_job'
ON CONFLICT (merchant, lane, print_job_id) DO UPDATE SET
  database_id = excluded.database_id, seq = excluded.seq, phase = excluded.phase, status = excluded.status,
  terminal = excluded.terminal, created_at = excluded.created_at, updated_at = excluded.updated_at,
  attention = excluded.attention
"""

_CLEARED = """
DELETE FROM posd.attention a USING newest n
WHERE (a.merchant, a.lane, a.kind, a.id) = (n.merchant, n.lane, n.kind, n.id)
"""

_STAND = (
    "DROP TABLE IF EXISTS newest",
    _NEWEST,
    _PAYMENTS,
    _PRINT_JOBS,
    _CLEARED,
    "INSERT INTO posd.attention SELECT DISTINCT merchant, lane, kind, id, unnest(attention), at FROM newest",
)

_OPERATIONS = """
INSERT INTO posd.operations VALUES (%s, %s, %s, %s) ON CONFLICT (type) DO UPDATE SET reserves = excluded.reserves,
  reverses = excluded.reverses, by_original = excluded.by_original
"""

#: Rows of lanes. Every collector creates and locks them in the same order, so that two collectors never deadlock.
_LANES = """
INSERT INTO posd.lanes (merchant, lane) SELECT * FROM unnest(%s::text[], %s::text[]) AS t (merchant, lane)
ORDER BY merchant, lane ON CONFLICT DO NOTHING
"""
_LOCKED = """
SELECT 1 FROM posd.lanes JOIN unnest(%s::text[], %s::text[]) AS t (merchant, lane) USING (merchant, lane)
ORDER BY merchant, lane FOR UPDATE OF lanes
"""

#: Rows of new databases. Their ordinals follow those of the lane's other databases.
_DATABASES = """
INSERT INTO posd.databases (database_id, merchant, lane, ordinal)
SELECT * FROM (SELECT database_id, merchant, lane,
  (SELECT coalesce(max(ordinal) + 1, 0) FROM posd.databases d WHERE d.merchant = t.merchant AND d.lane = t.lane)
    + row_number() OVER (PARTITION BY merchant, lane ORDER BY number) - 1 AS ordinal
FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS t (database_id, merchant, lane, number)
WHERE NOT EXISTS (SELECT 1 FROM posd.databases d WHERE d.database_id = t.database_id)
ORDER BY merchant, lane, number) fresh WHERE ordinal < %s ON CONFLICT DO NOTHING
"""

_STATE_OF_DATABASE = """
UPDATE posd.databases SET state_seq = %(seq)s, state_as_of = %(as_of)s
WHERE database_id = %(id)s AND (state_as_of IS NULL OR state_as_of < %(as_of)s)
"""
_STATE_OF_LANE = """
UPDATE posd.lanes SET last_state_at = %(at)s, version = %(version)s, health = %(health)s, open = %(open)s,
  attention = %(attention)s, retired_at = CASE WHEN retired_at >= %(at)s THEN retired_at END
WHERE merchant = %(merchant)s AND lane = %(lane)s AND (last_state_at IS NULL OR last_state_at <= %(at)s)
"""

#: One step of the frontiers: to the last change before a gap, or over a lost range.
_FRONTIER = """
UPDATE posd.databases d SET frontier = step.seq FROM (
  SELECT at.database_id, greatest(
    (SELECT max(seq) FROM (
      SELECT seq, seq - row_number() OVER (ORDER BY seq) AS run FROM (
        SELECT seq FROM posd.changes WHERE database_id = at.database_id AND seq > at.seq ORDER BY seq LIMIT 10000
      ) ahead
    ) runs WHERE run = at.seq),
    (SELECT max(to_seq) FROM posd.lost
     WHERE database_id = at.database_id AND from_seq <= at.seq + 1 AND to_seq > at.seq)
  ) AS seq
  FROM (
    SELECT database_id, coalesce(frontier, first_seq - 1) AS seq FROM posd.databases WHERE database_id = ANY(%(ids)s)
  ) at
  WHERE EXISTS (SELECT 1 FROM posd.changes c WHERE c.database_id = at.database_id AND c.seq = at.seq + 1)
    OR EXISTS (
      SELECT 1 FROM posd.lost l WHERE l.database_id = at.database_id AND l.from_seq <= at.seq + 1 AND l.to_seq > at.seq
    )
) step
WHERE d.database_id = step.database_id RETURNING d.database_id
"""

#: A lane is complete up to the time of a state if its newest database has all changes up to that state, and no earlier
#: database has a gap.
_COMPLETE = """
UPDATE posd.lanes l SET database_id = d.database_id, complete_to_seq = d.frontier,
  complete_to_at = CASE
    WHEN coalesce(d.frontier, d.first_seq - 1) >= d.state_seq AND NOT EXISTS (
      SELECT 1 FROM posd.known_ends e WHERE e.merchant = d.merchant AND e.lane = d.lane AND e.ordinal < d.ordinal
        AND (e.first_seq IS NULL OR coalesce(e.frontier, e.first_seq - 1) < e.end_seq)
    ) THEN greatest(l.complete_to_at, d.state_as_of)
    ELSE l.complete_to_at
  END
FROM (
  SELECT DISTINCT ON (merchant, lane) n.* FROM posd.databases n
  JOIN (SELECT DISTINCT merchant, lane FROM posd.databases WHERE database_id = ANY(%(ids)s)) o USING (merchant, lane)
  ORDER BY merchant, lane, n.ordinal DESC
) d
WHERE l.merchant = d.merchant AND l.lane = d.lane
"""
