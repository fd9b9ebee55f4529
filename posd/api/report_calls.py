"""Calls on the report and on shifts. The first call loads their code, because most daemons never need the code."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd.base.crashpoints import crash_point
from posd.base.times import parse_iso
from posd.calls import parameters
from posd.calls.app import json_response, page_response
from posd.calls.parameters import Parameter, ParameterKind, invalid
from posd.calls.streams import CallContext
from posd.clock.clock import WallClock
from posd.records.service import storage_problem
from posd.storage.store import Store

#: Maximum number of shifts in a response. Each may have thousands of payments.
MOST = 20
LIMIT = Parameter("limit", parameters.whole(1, MOST), "largest number of results", default=1)
BEFORE = Parameter("before", parameters.whole(1, parameters.MAX_SEQ), "only shifts before this number", example=8)
#: Years that a report can contain. Dates near the ends of the calendar would overflow.
YEARS = range(1970, 9000)
#: Words for the present shift, and for the last closed shift.
OPEN, LAST = "open", "last"


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("is not a time zone: write one like America/Guayaquil") from error


def _which(text: str) -> int | str:
    return text if text in (OPEN, LAST) else parameters.SEQ.read(text)


SINCE = Parameter("since", parameters.MOMENT, "beginning of the period", example="2026-11-20T05:00:00Z")
UNTIL = Parameter("until", parameters.MOMENT, "end, not included: at most 366 days", example="2026-11-21T05:00:00Z")
SHIFT = Parameter(
    "shift",
    ParameterKind(_which, {"type": "string", "pattern": f"^({OPEN}|{LAST}|[0-9]{{1,19}})$"}),
    f"in place of `since` and `until`: the number of a closed shift, `{LAST}` for the last one, `{OPEN}` for "
    "payments since the last close",
)
TERMINAL = Parameter("terminal", parameters.TEXT, "only this terminal", example="SN-0001")
TIMEZONE = Parameter(
    "timezone", ParameterKind(_zone, {"type": "string"}), "zone of days and hours; else the merchant's", example="UTC"
)
MEMBER = Parameter("metadata", parameters.TEXT, "a key of the till's metadata; payments are listed with its value")


class ReportCalls(msgspec.Struct, eq=False):
    """Handlers of /v1/report and /v1/shifts."""

    context: CallContext
    store: Store
    clock: WallClock
    timezone: str
    grace_seconds: float
    #: One report and one closing run at a time, each on its own connection. So closing a shift waits for no long
    #: report.
    _reading: asyncio.Semaphore = msgspec.field(default_factory=partial(asyncio.Semaphore, 1))
    _closing: asyncio.Semaphore = msgspec.field(default_factory=partial(asyncio.Semaphore, 1))

    async def get_report(self, request: Request) -> Response:
        """`GET /report`: sums of the payments of a period or of a shift."""
        from posd.api import shifts
        from posd.payments import report

        query = request.state.query
        zone, terminal, which = query["timezone"] or ZoneInfo(self.timezone), query["terminal"], query["shift"]
        context = self._row_context(query["metadata"])
        clock = [*filter(None, (self.clock.stretch,)), *self.clock.past]
        read: Any
        if which is None:
            since, until = _span(query["since"], query["until"], report.MOST_DAYS)
            span = report.ReportSpan(since, until, zone, terminal)
            read = partial(report.of_span, span=span, context=context, clock=clock)
        elif query["since"] or query["until"]:
            raise invalid("shift", "replaces `since` and `until`: omit them")
        else:
            options = shifts.ReportOptions(context, zone, clock, terminal)
            number = which if isinstance(which, int) else None
            read = partial(shifts.of_open, options=options)
            if which != OPEN:
                read = partial(shifts.of_closed, options=options, number=number)
        async with self._reading:
            return await page_response(await self.context.read_in_steps(read, request.state.pieces))

    async def list_shifts(self, request: Request) -> Response:
        """`GET /shifts`: closed shifts, the newest first."""
        from posd.api import shifts

        before, limit = request.state.query["before"], request.state.query["limit"]
        found = await self.context.read(partial(shifts.page, before=before, limit=limit + 1))
        more = len(found) > limit
        return json_response(shifts.Shifts(found[:limit], found[limit - 1].number if more else None))

    async def close_shift(self, request: Request) -> Response:
        """`POST /shifts`: 201 with the closed shift, or 200 with the last shift if there is nothing to close."""
        from posd.api import shifts

        asked = shifts.read_close(request.state.body)
        counting = partial(shifts.count, asked=asked, context=self._row_context(None), uid=request.state.uid)
        async with self._closing:
            shift, fresh = await self.context.read_in_steps(counting, request.state.pieces)
            if fresh:
                shift, fresh = await self._close(partial(shifts.close, shift=shift))
        return json_response(shift, 201 if fresh else 200)

    async def _close(self, closing: Any) -> Any:
        crash_point("operator.before_commit")
        detail = "no shift was closed, as far as is known: {error}; check the disk, and read the last shift"
        with storage_problem(detail):
            closed = await self.store.write(closing)
        crash_point("operator.committed")
        return closed

    def _row_context(self, metadata: str | None) -> Any:
        from posd.payments.accounting import RowContext

        return RowContext(self.context.now(), timedelta(seconds=self.grace_seconds), metadata)


def _span(since: str | None, until: str | None, most_days: int) -> Any:
    """Return the first and the last moment of the period. Raise Problem if they are not in order."""
    if since is None or until is None:
        raise invalid("since", "and `until` are required, or `shift`")
    begin, end = parse_iso(since), parse_iso(until)
    for name, moment in (("since", begin), ("until", end)):
        if moment.year not in YEARS:
            raise invalid(name, f"must be from {YEARS.start} to {YEARS.stop - 1}")
    if not begin < end <= begin + timedelta(days=most_days, hours=1):
        raise invalid("until", f"must be after `since`, by at most {most_days} days")
    return begin, end
