"""Calls on terminals, the feed, and the daemon itself (local API, Terminals, feed, service)."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd import __version__
from posd.api import documents
from posd.api.documents import Check, Checks, State, Terminals
from posd.api.feed import Feed
from posd.base.problems import Problem
from posd.calls import parameters
from posd.calls.app import json_response
from posd.calls.context import Context
from posd.payments import rows
from posd.storage.opening import schema_version
from posd.terminals.fleet import Fleet

#: How long an answer waits for terminals that are looked at for it, in seconds.
CHECK_SECONDS = 5.0

#: The states of a check, the best first.
STATES: tuple[State, ...] = ("ok", "degraded", "failing")


def each(checks: Checks) -> dict[str, Check]:
    """Return the checks by name."""
    return msgspec.structs.asdict(checks)


class ServiceCalls:
    """Handlers of /v1/terminals, /v1/feed, /v1/health and /v1/version."""

    def __init__(self, context: Context, fleet: Fleet, checks: Callable[[], Awaitable[Checks]]) -> None:
        self._context = context
        self._fleet = fleet
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
        status = max((check.status for check in each(checks).values()), key=STATES.index)
        return json_response(documents.Health(status, checks), 503 if status == "failing" else 200)

    async def get_openapi(self, _request: Request) -> Response:
        """`GET /openapi.json`: made at the first call, beside the loop: few ask for it, and it takes some 0.1 s."""
        from posd.api import openapi

        return Response(await asyncio.to_thread(openapi.document), media_type="application/json")

    async def get_version(self, _request: Request) -> Response:
        """`GET /version`."""
        return json_response(documents.Version(version=__version__, api="v1", schema=schema_version()))
