"""The local API as one table: what can be called, with what, and what it answers. A row here is what is served, and the
description of the API is made of it.
"""

from collections.abc import Iterable

from posd.api.routes import operators, service
from posd.calls.route import Route
from posd.payments import routes as transactions
from posd.printing import routes as print_jobs

ALL: tuple[Route, ...] = (
    *transactions.ROUTES,
    *print_jobs.ROUTES,
    *service.ROUTES,
    *operators.ROUTES,
)


def by_path(routes: Iterable[Route]) -> dict[str, list[Route]]:
    """Return the routes of each path."""
    found: dict[str, list[Route]] = {}
    for route in routes:
        found.setdefault(route.path, []).append(route)
    return found
