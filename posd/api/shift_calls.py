"""Calls on shifts. What they read and write is loaded by the first: most daemons are never asked."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from posd.base.crashpoints import crash_point
from posd.base.problems import Problem
from posd.base.times import iso
from posd.calls import parameters
from posd.calls.app import json_response
from posd.calls.context import Context
from posd.calls.parameters import Parameter
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store

#: The most shifts in an answer: each may have thousands of payments.
MOST = 20
LIMIT = Parameter("limit", parameters.whole(1, MOST), "at most so many", default=1)
BEFORE = Parameter("before", parameters.whole(1, parameters.MAX_SEQ), "only those before this number", example=8)


class ShiftCalls:
    """Handlers of /v1/shifts."""

    def __init__(self, context: Context, store: Store) -> None:
        self._context = context
        self._store = store

    async def list_shifts(self, request: Request) -> Response:
        """`GET /shifts`: what was closed, the newest first."""
        from posd.api import shifts

        before, limit = request.state.query["before"], request.state.query["limit"]
        found = await self._context.read(partial(shifts.page, before=before, limit=limit + 1))
        more = len(found) > limit
        return json_response(shifts.Shifts(found[:limit], found[limit - 1].number if more else None))

    async def close_shift(self, request: Request) -> Response:
        """`POST /shifts`: 201 with the shift; 200 with the last one where it does not begin where that ends."""
        from posd.api import shifts

        asked = shifts.read_close(request.state.body)
        closing = partial(shifts.close, asked=asked, at=iso(self._context.now()), uid=request.state.uid)
        crash_point("operator.before_commit")
        try:
            shift, fresh = await self._store.write(closing)
        except (StorageUnavailable, CommitUncertain) as error:
            detail = f"no shift was closed, as far as is known: {error}; check the disk, and look at the last shift"
            raise Problem("storage_unavailable", detail) from error
        crash_point("operator.committed")
        return json_response(shift, 201 if fresh else 200)
