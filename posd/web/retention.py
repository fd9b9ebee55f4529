"""The call that removes what is older than it has to be kept (local API, POST /prune)."""

import sqlite3

from starlette.requests import Request
from starlette.responses import Response

from posd.core.jsontext import Object, decode
from posd.core.problems import Problem
from posd.services.retention import Retention, Stopped
from posd.store.errors import CommitUncertain, StorageUnavailable
from posd.web.backup_request import whole_number
from posd.web.documents.operators import PruneProgress
from posd.web.local import Route, json_response

#: The most days that can be named, as in the configuration.
MOST_DAYS = 36_500

FIELDS = ("older_than_days", "dry_run")


class RetentionCalls:
    """Handlers of /v1/prune."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    @property
    def routes(self) -> tuple[Route, ...]:
        """The table of these calls."""
        return (
            Route("GET", "/v1/prune", self.progress, admin=True),
            Route("POST", "/v1/prune", self.prune, admin=True),
        )

    async def progress(self, _request: Request) -> Response:
        """`GET /prune`: for how many days records are kept, and what a run is doing."""
        doing, count = self._retention.progress
        return json_response(PruneProgress(retention_days=self._retention.days, doing=doing or None, removed=count))

    async def prune(self, request: Request) -> Response:
        """`POST /prune`: remove what ended longer ago than the days; payments go on meanwhile."""
        days, dry_run = self._read(request.state.body)
        try:
            report = await self._retention.prune(days, dry_run=dry_run)
        except (StorageUnavailable, CommitUncertain, sqlite3.Error) as error:
            raise Problem(
                "storage_unavailable", f"not all was removed: {error}; check the disk, and do it again"
            ) from error
        except Stopped as error:
            raise Problem("draining", "posd is stopping; not all was removed. Do it again in a moment") from error
        return json_response(report)

    def _read(self, body: bytes) -> tuple[int, bool]:
        """Return the days and whether only to tell. Raise Problem."""
        try:
            document = decode(body) if body else Object()
        except ValueError as error:
            raise Problem("malformed_json", f"the body is not JSON ({error}); nothing was removed") from error
        if not isinstance(document, Object):
            raise _invalid([{"path": "", "message": "must be a JSON object"}])
        errors = [
            {"path": f"/{name}", "message": f"is not a field of this call; fields are {', '.join(FIELDS)}"}
            for name in document
            if name not in FIELDS
        ] + [{"path": f"/{name}", "message": "stands more than once"} for name in sorted(document.repeated)]
        days, dry_run = document.get("older_than_days"), document.get("dry_run", False)
        if days is None:
            days = self._retention.days
            if not days and not errors:
                message = "is required, for the configuration keeps everything (database.retention_days is 0)"
                errors.append({"path": "/older_than_days", "message": message})
        elif whole_number(days, 0, MOST_DAYS) is None:
            errors.append({"path": "/older_than_days", "message": f"must be a whole number of 0 to {MOST_DAYS}"})
        if not isinstance(dry_run, bool):
            errors.append({"path": "/dry_run", "message": "must be true or false"})
        if errors:
            raise _invalid(errors)
        return int(days), bool(dry_run)


def _invalid(errors: list[dict[str, str]]) -> Problem:
    what = "; ".join(f"{error['path'] or 'the body'} {error['message']}" for error in errors)
    return Problem("invalid_request", f"nothing was removed: {what}", errors=errors)
