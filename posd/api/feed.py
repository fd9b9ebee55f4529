"""The feed: every recorded change, ascending, as a page or live (local API, Terminals, feed, service).

Whoever follows it misses nothing silently. Where retention has removed changes behind a place, and where a place is
none of this database (a backup or an older copy of it was put there), a notice says so before what comes.
"""

import asyncio
import sqlite3
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd.api.documents import Change, FeedPage
from posd.calls import parameters, streams
from posd.calls.app import json_response
from posd.calls.context import Context
from posd.calls.streams import BATCH_BYTES, BATCH_ROWS, NOTICE, Batch, Notice, message
from posd.httpd.accept import wants_stream
from posd.records import feed_cursor
from posd.records.feed_cursor import Place
from posd.storage import batch, changes

#: Reads at different places that are kept for those who ask for the same until something changes.
MAX_READS = 8


class Stretch(msgspec.Struct, frozen=True):
    """Changes behind a place as messages, the number of the last, whether more may be there, and what is removed."""

    data: bytes
    after: int
    more: bool
    removed: int


class Feed:
    """Answers `GET /feed`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reads: dict[tuple[int, bool, int], asyncio.Task[Stretch]] = {}
        context.hub.listen(self._changed, batch.Change)

    async def answer(self, request: Request) -> Response:
        """Answer with a page or a stream. Of `after` and `Last-Event-ID` a stream takes the second. Raise Problem."""
        place, limit = request.state.query["after"], request.state.query["limit"]
        if not wants_stream(request):
            page = await self._context.read(partial(_page, place=place, limit=limit))
            return json_response(page)
        place = streams.resume_after(request, parameters.LAST_FEED_ID) or place
        reader = _Reader(self, self._context, place, min(limit, BATCH_ROWS))
        return self._context.streams.answer(request, "feed", changes.ANY, reader.read)

    async def stretch(self, after: int, checked: bool, rows: int) -> Stretch:
        """Read what is behind a number; one read serves all who ask for the same before something changes."""
        key = (after, checked, rows)
        if (task := self._reads.get(key)) is None:
            task = asyncio.ensure_future(self._context.read(partial(_stretch, after=after, checked=checked, rows=rows)))
            task.add_done_callback(partial(self._done, key))
            if len(self._reads) < MAX_READS:
                self._reads[key] = task
        return await asyncio.shield(task)

    def _done(self, key: tuple[int, bool, int], task: asyncio.Task[Stretch]) -> None:
        """Keep what was read at the end of the feed, for those who wait there."""
        keep = not task.cancelled() and task.exception() is None and not task.result().more
        if not keep and self._reads.get(key) is task:
            del self._reads[key]

    def _changed(self, _changes: object) -> None:
        self._reads.clear()


class _Reader:
    """Where one stream is in the feed."""

    def __init__(self, feed: Feed, context: Context, place: Place, rows: int) -> None:
        self._feed = feed
        self._context = context
        self._place = place
        self._rows = rows
        self._after: int | None = None  # None until it is known where the place is
        self._told = 0  # up to where it was told that changes are removed

    async def read(self) -> Batch:
        """Return what comes next. Raise Problem."""
        notices = b""
        if self._after is None:
            standing = await self._context.read(partial(feed_cursor.stand, place=self._place))
            self._after = standing.after
            if not standing.known:
                notices = message(NOTICE, _unknown(self._place, standing.after))
        found = await self._feed.stretch(self._after, self._place.checked, self._rows)
        if found.removed > max(self._after, self._told):
            self._told = found.removed
            notices += message(NOTICE, _removed(found.removed))
        self._after = found.after
        return Batch(notices + found.data, found.more)


def _page(db: sqlite3.Connection, place: Place, limit: int) -> FeedPage:
    standing, removed = feed_cursor.stand(db, place), feed_cursor.removed_up_to(db)
    notices = [] if standing.known else [_unknown(place, standing.after)]
    if removed > standing.after:
        notices.append(_removed(removed))
    # A number that the feed has not reached has nothing behind it: the next page begins where it goes on.
    back = standing.after < place.seq
    found = [] if back else changes.after(db, standing.after, limit)
    last = found[-1].seq if found else standing.after
    behind = feed_cursor.of(found[-1], checked=True) if found else feed_cursor.behind(db, last)
    return FeedPage([change_document(change) for change in found], last, str(behind), notices)


def _stretch(db: sqlite3.Connection, after: int, checked: bool, rows: int) -> Stretch:
    removed = feed_cursor.removed_up_to(db)
    found = changes.after(db, after, rows)
    data = bytearray()
    for number, change in enumerate(found, 1):
        data += _message(change, checked=checked)
        if len(data) >= BATCH_BYTES or number == rows:
            return Stretch(bytes(data), change.seq, more=True, removed=removed)
    return Stretch(bytes(data), found[-1].seq if found else after, more=False, removed=removed)


def _message(change: batch.Change, *, checked: bool) -> bytes:
    return message(change.kind, change_document(change), str(feed_cursor.of(change, checked=checked)))


def _removed(seq: int) -> Notice:
    detail = (
        f"changes up to {seq} are not all here any more: retention has removed payments and print jobs, and the "
        "changes of these with them; GET of such an id says how it ended (`pruned`)"
    )
    return Notice("changes_removed", detail, seq)


def _unknown(place: Place, after: int) -> Notice:
    if after:
        detail = (
            f"change {place.seq} is not in this database, which has later ones: a backup was restored. The feed goes "
            "on after it, and tells again what was taken over; what only the lost database knew is not here. Compare "
            "with GET /v1/transactions"
        )
    else:
        detail = (
            f"place {place} is none of this database: an older copy of it, or another one, was put in place. The feed "
            "begins anew (after 0), and tells all that is known here; what you know beside that, compare with "
            "GET /v1/transactions"
        )
    return Notice("place_unknown", detail, after)


def change_document(change: batch.Change) -> Change:
    """Return a line of the feed."""
    return Change(**msgspec.structs.asdict(change))
