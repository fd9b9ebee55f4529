"""Calls on terminals, the feed, and the daemon itself (local API, Terminals, feed, service)."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from posd.api import documents, figures
from posd.api.documents import Change, Check, Checks, FeedDatabase, FeedPage, State, Terminals, Version
from posd.base.clocks import monotonic
from posd.base.problems import Problem
from posd.calls import parameters, streams
from posd.calls.app import json_response
from posd.calls.context import Context
from posd.calls.parameters import FeedWith
from posd.calls.streams import BATCH_BYTES, BATCH_ROWS, NOTICE, Batch, Notice, message, wants_stream
from posd.payments import rows
from posd.payments.feed_outcomes import FeedOutcomes
from posd.payments.model import Result
from posd.records import feed_cursor
from posd.records.feed_cursor import Place
from posd.storage import changes, database_id, writer
from posd.terminals.fleet import Fleet

#: How long an answer waits for terminals that are looked at for it, in seconds.
CHECK_SECONDS = 5.0

#: The states of a check, the best first.
STATES: tuple[State, ...] = ("ok", "degraded", "failing")


def each(checks: Checks) -> dict[str, Check]:
    """Return the checks by name."""
    return msgspec.structs.asdict(checks)


def overall(checks: Checks) -> State:
    """Return the state of the worst check."""
    return max((check.status for check in each(checks).values()), key=STATES.index)


class ServiceCalls:
    """Handlers of /v1/terminals, /v1/feed, /v1/health and /v1/version."""

    def __init__(
        self, context: Context, fleet: Fleet, checks: Callable[[], Awaitable[Checks]], version: Version
    ) -> None:
        self._context = context
        self._fleet = fleet
        self._version = version
        self._checks = checks
        self._feed = Feed(context)

    async def list_terminals(self, request: Request) -> Response:
        """`GET /terminals`: the fleet, and with `all=true` announced terminals outside it.

        `check=true` looks at those that were not looked at just now first; without it they are looked at meanwhile.
        """
        query = request.state.query
        if query["check"]:
            await self._fleet.addresses.check_stale(CHECK_SECONDS)
        else:
            self._fleet.addresses.asked_for()
        held = await self._context.read(rows.leases)
        return json_response(Terminals(list(self._fleet.documents(held, everything=query["all"]))))

    async def get_terminal(self, request: Request) -> Response:
        """`GET /terminals/{serial}`."""
        serial = parameters.path(request, parameters.SERIAL)
        self._fleet.addresses.asked_for()
        held = await self._context.read(rows.leases)
        for document in self._fleet.documents(held, everything=True):
            if document.serial == serial:
                return json_response(document)
        raise Problem("not_found", f"terminal {serial} is neither in the fleet nor announced in this network")

    async def read_feed(self, request: Request) -> Response:
        """`GET /feed`: every recorded change, ascending, as a page or live."""
        return await self._feed.answer(request)

    async def get_health(self, _request: Request) -> Response:
        """`GET /health`: 200 ok or degraded, 503 failing, with each check in words."""
        checks = await self._checks()
        status = overall(checks)
        return json_response(documents.Health(status, checks), 503 if status == "failing" else 200)

    async def get_openapi(self, _request: Request) -> Response:
        """`GET /openapi.json`: made at the first call, beside the loop: few ask for it, and it takes some 0.1 s."""
        from posd.api import openapi

        return Response(await asyncio.to_thread(openapi.document), media_type="application/json")

    async def get_version(self, _request: Request) -> Response:
        """`GET /version`."""
        return json_response(self._version)


# The feed: every recorded change, ascending, as a page or live. It reports every gap: where retention has removed
# changes behind a place, and where a place is none of this database (a backup or an older copy of it was put there), a
# notice says so before what comes.

#: Reads at different places that are kept for clients that ask for the same until something changes.
MAX_READS = 8
#: Who is more changes behind than this catches up: a page of any size is full, and another one follows at once.
FAR_BEHIND = 500
#: While something happens (the last change is not older), each page of theirs waits so long: payments come first. That
#: leaves 2,000 changes a second at the usual hundred a page. Seconds.
BUSY_SECONDS = 5.0
GIVE_WAY_SECONDS = 0.05


class Stretch(msgspec.Struct, frozen=True):
    """Changes behind a place as messages, the number of the last, whether more may be there, and what is removed.

    `approvals` are the payments that a change calls approved.
    """

    data: bytes
    after: int
    more: bool
    removed: int
    approvals: Sequence[str]


class _Asked(NamedTuple):
    """What a stream asks for: at most `rows` changes after a number, with or without checks of their places."""

    after: int
    checked: bool
    rows: int
    adds: FeedWith | None


class Feed:
    """Answers `GET /feed`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reads: dict[_Asked, asyncio.Task[Stretch]] = {}
        self._newest = 0  # of this run
        self._moved_at = float("-inf")
        context.hub.listen(self._changed, writer.Change)

    async def answer(self, request: Request) -> Response:
        """Answer with a page or a stream. Of `after` and `Last-Event-ID` a stream takes the second. Raise Problem."""
        query = request.state.query
        place, limit, adds = query["after"], query["limit"], query["with"]
        if not wants_stream(request):
            await self.give_way(place.seq)
            page = await self._context.read(partial(_page, place=place, limit=limit, adds=adds))
            self._context.shows(request, _approvals(page.changes))
            return json_response(page)
        place = streams.resume_after(request, parameters.LAST_FEED_ID) or place
        reader = _Reader(self, self._context, place, min(limit, BATCH_ROWS), adds)
        return self._context.streams.answer(request, "feed", changes.ANY, reader.read)

    async def stretch(self, asked: _Asked) -> Stretch:
        """Read what is behind a number; one read serves all that ask for the same before something changes."""
        if (task := self._reads.get(asked)) is None:
            task = asyncio.ensure_future(self._context.read(partial(_stretch, asked=asked)))
            task.add_done_callback(partial(self._done, asked))
            if len(self._reads) < MAX_READS:
                self._reads[asked] = task
        return await asyncio.shield(task)

    async def give_way(self, after: int) -> None:
        """Let payments go first where a reader at that place catches up."""
        if self._newest > after + FAR_BEHIND and monotonic() - self._moved_at < BUSY_SECONDS:
            await asyncio.sleep(GIVE_WAY_SECONDS)

    def _done(self, key: _Asked, task: asyncio.Task[Stretch]) -> None:
        """Keep what was read at the end of the feed, for streams that wait there."""
        keep = not task.cancelled() and task.exception() is None and not task.result().more
        if not keep and self._reads.get(key) is task:
            del self._reads[key]

    def _changed(self, changed: Sequence[writer.Change]) -> None:
        self._reads.clear()
        self._newest, self._moved_at = changed[-1].seq, monotonic()


class _Reader(msgspec.Struct, eq=False):
    """Where one stream is in the feed."""

    feed: Feed
    context: Context
    place: Place
    rows: int
    adds: FeedWith | None
    after: int | None = None  # None until it is known where the place is
    told: int = 0  # up to where it was told that changes are removed

    async def read(self) -> Batch:
        """Return what comes next. Raise Problem."""
        notices = b""
        if self.after is None:
            standing = await self.context.read(partial(feed_cursor.stand, place=self.place))
            self.after = standing.after
            if not standing.known:
                notices = message(NOTICE, _unknown(self.place, standing.after))
        await self.feed.give_way(self.after)
        found = await self.feed.stretch(_Asked(self.after, self.place.checked, self.rows, self.adds))
        if found.removed > max(self.after, self.told):
            self.told = found.removed
            notices += message(NOTICE, _removed(found.removed))
        self.after = found.after
        return Batch(notices + found.data, found.more, approvals=found.approvals)


def _page(db: sqlite3.Connection, place: Place, limit: int, adds: FeedWith | None) -> FeedPage:
    standing, removed = feed_cursor.stand(db, place), feed_cursor.removed_up_to(db)
    notices = [] if standing.known else [_unknown(place, standing.after)]
    if removed > standing.after:
        notices.append(_removed(removed))
    # A number that the feed has not reached has nothing behind it: the next page begins where it goes on.
    back = standing.after < place.seq
    found = [] if back else changes.after(db, standing.after, limit)
    last = found[-1].seq if found else standing.after
    behind = feed_cursor.of(found[-1], checked=True) if found else feed_cursor.behind(db, last)
    databases = database_id.ranges(db)
    present = databases[-1]
    numbers = figures.read(db) if adds is not None and len(found) < limit else None
    return FeedPage(
        database_id=present.database_id,
        # Before it are changes of an earlier database, and such of which retention has removed some.
        first_seq=max(present.first_seq, removed + 1),
        changes=[*_documents(db, found, adds)],
        next_after=last,
        place=str(behind),
        notices=notices,
        databases=[FeedDatabase(**msgspec.structs.asdict(item)) for item in databases],
        open=sum(numbers.open.values()) if numbers else UNSET,
        attention=Counter(numbers.attention) + Counter(numbers.print_attention) if numbers else UNSET,
    )


def _stretch(db: sqlite3.Connection, asked: _Asked) -> Stretch:
    removed = feed_cursor.removed_up_to(db)
    found = changes.after(db, asked.after, asked.rows)
    data, after, more = bytearray(), asked.after, False
    for number, (change, document) in enumerate(zip(found, _documents(db, found, asked.adds), strict=True), 1):
        data += message(change.kind, document, str(feed_cursor.of(change, checked=asked.checked)))
        after, more = change.seq, len(data) >= BATCH_BYTES or number == asked.rows
        if more:
            break
    told = [change for change in found if change.seq <= after]
    return Stretch(bytes(data), after, more, removed, _approvals(told))


def _approvals(changed: Iterable[writer.Change | Change]) -> list[str]:
    return [change.id for change in changed if change.result == Result.APPROVED]


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


def _documents(db: sqlite3.Connection, found: Sequence[writer.Change], adds: FeedWith | None) -> Iterator[Change]:
    """Yield lines of the feed as they are taken, with the outcomes where these are asked for."""
    outcomes = FeedOutcomes(db, metadata=adds is FeedWith.METADATA)
    for change in found:
        outcome = outcomes.of(change) if adds is not None else None
        yield Change(**msgspec.structs.asdict(change), outcome=outcome if outcome is not None else UNSET)
