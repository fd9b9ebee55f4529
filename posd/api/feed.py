"""Feed: every recorded change in ascending order, as a page or a live stream.

If changes are missing after the place that a client gives, a notice says so before the next changes. Changes are
missing if retention has removed them, or if the place belongs to another database, for example after a restore.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from posd.api import metrics
from posd.api.documents import Change, FeedPage
from posd.base.problems import Problem
from posd.calls import parameters, streams
from posd.calls.app import page_response
from posd.calls.parameters import FeedWith
from posd.calls.streams import BATCH_BYTES, BATCH_ROWS, NOTICE, CallContext, MessageBatch, Notice, message, wants_stream
from posd.payments.accounting import feed_outcome
from posd.payments.model import Result
from posd.records.pages import FeedPosition, removed_up_to
from posd.storage import batch, changes

NO_METADATA = (
    "this socket does not give metadata: leave it out of `with`, or write `metadata = true` under [relay] in the "
    "configuration of posd, and reload posd"
)

#: A client is far behind if more than this number of changes follow its place.
FAR_BEHIND = 500
#: For BUSY_SECONDS after the newest change, each page of a client that is far behind is delayed by GIVE_WAY_SECONDS.
#: Payments come first. With the usual page of 100 changes, the client still receives 2,000 changes a second.
BUSY_SECONDS = 5.0
GIVE_WAY_SECONDS = 0.05


class FeedStream(msgspec.Struct, eq=False):
    """Handler of /v1/feed. `relays_metadata`: returns whether the feed socket serves metadata."""

    context: CallContext
    relays_metadata: Callable[[], bool]
    _newest: int = 0  # highest `seq` known in this process
    _moved_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.context.hub.listen(self._changed, batch.RecordedChange)

    async def read_feed(self, request: Request) -> Response:
        """`GET /feed`: every recorded change in ascending order, as a page or a stream. Raise Problem.

        `Last-Event-ID` overrides `after`.
        """
        query = request.state.query
        place, limit, adds = query["after"], query["limit"], query["with"]
        if adds is FeedWith.METADATA and request.state.feed and not self.relays_metadata():
            raise Problem("forbidden", NO_METADATA)
        if not wants_stream(request):
            await self.give_way(place.seq)
            page = await self.context.read(partial(_page, place=place, limit=limit, adds=adds))
            self.context.shows(request, _approvals(page.changes))
            return await page_response(page)
        place = streams.resume_after(request, parameters.LAST_FEED_ID) or place
        reader = _FeedReader(self, self.context, place, min(limit, BATCH_ROWS), adds)
        return self.context.streams.answer(request, "feed", changes.ANY, reader.read)

    async def give_way(self, after: int) -> None:
        """Delay a client that is far behind, so that payments come first."""
        if self._newest > after + FAR_BEHIND and asyncio.get_running_loop().time() - self._moved_at < BUSY_SECONDS:
            await asyncio.sleep(GIVE_WAY_SECONDS)

    def _changed(self, changed: Sequence[batch.RecordedChange]) -> None:
        self._newest, self._moved_at = changed[-1].seq, asyncio.get_running_loop().time()


class _FeedReader(msgspec.Struct, eq=False):
    """Position of one stream in the feed."""

    feed: FeedStream
    context: CallContext
    place: FeedPosition
    rows: int
    adds: FeedWith | None
    after: int | None = None  # None until the place is resolved
    told: int = 0  # highest removed number that was reported

    async def read(self) -> MessageBatch:
        """Return the next messages. Raise Problem."""
        await self.feed.give_way(self.place.seq if self.after is None else self.after)
        return await self.context.read(self._next)

    def _next(self, db: sqlite3.Connection) -> MessageBatch:
        data, more, after = bytearray(), False, self.after
        if after is None:
            known, after = self.place.stand(db)
            if not known:
                data += message(NOTICE, _unknown(self.place, after))
        removed = removed_up_to(db)
        if removed > max(after, self.told):
            self.told = removed
            data += message(NOTICE, _removed(removed))
        found = changes.after(db, after, self.rows)
        for number, (change, document) in enumerate(zip(found, _documents(db, found, self.adds), strict=True), 1):
            data += message(change.kind, document, str(FeedPosition.of(change, checked=self.place.checked)))
            after, more = change.seq, len(data) >= BATCH_BYTES or number == self.rows
            if more:
                break
        self.after = after
        return MessageBatch(bytes(data), more, approvals=_approvals(item for item in found if item.seq <= after))


def _page(db: sqlite3.Connection, place: FeedPosition, limit: int, adds: FeedWith | None) -> FeedPage:
    (known, after), removed = place.stand(db), removed_up_to(db)
    notices = [] if known else [_unknown(place, after)]
    if removed > after:
        notices.append(_removed(removed))
    # No changes follow a number beyond the end of the feed. The next page begins at the end of the feed.
    back = after < place.seq
    found = [] if back else changes.after(db, after, limit)
    last = found[-1].seq if found else after
    behind = FeedPosition.of(found[-1], checked=True) if found else FeedPosition.behind(db, last)
    databases = changes.ranges(db)
    present = databases[-1]
    numbers = metrics.read_gauges(db) if adds is not None and len(found) < limit else None
    return FeedPage(
        database_id=present.database_id,
        # Before `first_seq` there are changes of an earlier database, and gaps left by retention.
        first_seq=max(present.first_seq, removed + 1),
        changes=[*_documents(db, found, adds)],
        next_after=last,
        place=str(behind),
        notices=notices,
        databases=databases,
        open=sum(numbers.open.values()) if numbers else UNSET,
        attention=Counter(numbers.attention) + Counter(numbers.print_attention) if numbers else UNSET,
    )


def _approvals(changed: Iterable[batch.RecordedChange | Change]) -> list[str]:
    return [change.id for change in changed if change.result == Result.APPROVED]


def _removed(seq: int) -> Notice:
    detail = (
        f"changes up to {seq} are no longer complete: retention has removed payments and print jobs, with their "
        "changes; GET of such an id shows how it ended (`pruned`)"
    )
    return Notice("changes_removed", detail, seq)


def _unknown(place: FeedPosition, after: int) -> Notice:
    if after:
        detail = (
            f"change {place.seq} is not in this database, which has later ones: a backup was restored. The feed "
            "continues after it, and repeats what was taken over; data that only the lost database had is "
            "missing. Compare with GET /v1/transactions"
        )
    else:
        detail = (
            f"place {place} is not of this database: an older copy of it, or another database, is in its place. "
            "The feed begins again (after 0), with everything known here. Compare your other data with GET "
            "/v1/transactions"
        )
    return Notice("place_unknown", detail, after)


def _documents(
    db: sqlite3.Connection, found: Sequence[batch.RecordedChange], adds: FeedWith | None
) -> Iterator[Change]:
    """Yield lines of the feed in order, with the outcomes if requested."""
    for change in found:
        outcome = None if adds is None else feed_outcome(db, change, metadata=adds is FeedWith.METADATA)
        yield Change(**msgspec.structs.asdict(change), outcome=outcome if outcome is not None else UNSET)
