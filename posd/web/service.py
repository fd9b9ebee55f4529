"""Calls on terminals, the feed, and the daemon itself (local API, Terminals, feed, service)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from posd import __version__
from posd.core.problems import Problem
from posd.store import leases
from posd.store.opening import schema_version
from posd.terminals.fleet import Fleet
from posd.web import parameters
from posd.web.context import Context
from posd.web.feed import Feed
from posd.web.local import Route, json_response

#: A check of the health resource: its state ("ok", "degraded", "failing"), what it means, and fields of its own.
Check = tuple[str, str] | tuple[str, str, Mapping[str, Any]]
Checks = Callable[[], Awaitable[Mapping[str, Check]]]

#: How long an answer waits for terminals that are looked at for it, in seconds.
CHECK_SECONDS = 5.0

#: The states of a check, the best first.
STATES = ("ok", "degraded", "failing")


class ServiceCalls:
    """Handlers of /v1/terminals, /v1/feed, /v1/health and /v1/version."""

    def __init__(self, context: Context, fleet: Fleet, checks: Checks) -> None:
        self._context = context
        self._fleet = fleet
        self._checks = checks
        self._feed = Feed(context)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The table of these calls."""
        return (
            Route("GET", "/v1/terminals", self.terminals, query=frozenset({"all", "check"})),
            Route("GET", "/v1/terminals/{serial}", self.terminal),
            Route("GET", "/v1/feed", self.feed, query=frozenset({"after", "limit"})),
            Route("GET", "/v1/health", self.health),
            Route("GET", "/v1/version", self.version),
        )

    async def terminals(self, request: Request) -> Response:
        """`GET /terminals`: the fleet, and with `all=true` announced terminals outside it.

        `check=true` looks at those that were not looked at just now first; without it they are looked at meanwhile.
        """
        query = parameters.Query(request)
        everything = bool(query.read("all", parameters.flag))
        check = bool(query.read("check", parameters.flag))
        query.check()
        if check:
            await self._fleet.check_stale(CHECK_SECONDS)
        else:
            self._fleet.asked_for()
        held = await self._context.read(leases.all_held)
        return json_response({"terminals": list(self._fleet.documents(held, everything=everything))})

    async def terminal(self, request: Request) -> Response:
        """`GET /terminals/{serial}`."""
        serial = request.path_params["serial"]
        self._fleet.asked_for()
        held = await self._context.read(leases.all_held)
        for document in self._fleet.documents(held, everything=True):
            if document["serial"] == serial:
                return json_response(document)
        raise Problem("not_found", f"terminal {serial} is neither in the fleet nor announced in this network")

    async def feed(self, request: Request) -> Response:
        """`GET /feed`: every recorded change, ascending, as a page or live."""
        return await self._feed.answer(request)

    async def health(self, _request: Request) -> Response:
        """`GET /health`: 200 ok or degraded, 503 failing, with each check in words."""
        checks = await self._checks()
        status = max((check[0] for check in checks.values()), key=STATES.index)
        document: dict[str, Any] = {
            "status": status,
            "checks": {
                name: {"status": check[0], "detail": check[1], **(check[2] if len(check) > 2 else {})}
                for name, check in checks.items()
            },
        }
        return json_response(document, 503 if status == "failing" else 200)

    async def version(self, _request: Request) -> Response:
        """`GET /version`."""
        return json_response({"version": __version__, "api": "v1", "schema": schema_version()})
