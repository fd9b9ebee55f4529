"""The call that removes what is older than it has to be kept (local API, POST /prune)."""

import sqlite3

from starlette.requests import Request
from starlette.responses import Response

from posd.api.operator_documents import PruneProgress
from posd.api.prune_request import read_prune
from posd.base.problems import Problem
from posd.calls.app import json_response
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.upkeep.retention import Retention, Stopped


class RetentionCalls:
    """Handlers of /v1/prune."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    async def get_prune(self, _request: Request) -> Response:
        """`GET /prune`: for how many days records are kept, and what a run is doing."""
        doing, count = self._retention.progress
        return json_response(PruneProgress(retention_days=self._retention.days, doing=doing or None, removed=count))

    async def prune(self, request: Request) -> Response:
        """`POST /prune`: remove what ended longer ago than the days; payments go on meanwhile."""
        asked = read_prune(request.state.body, self._retention.days)
        try:
            report = await self._retention.prune(asked.older_than_days, dry_run=asked.dry_run)
        except (StorageUnavailable, CommitUncertain, sqlite3.Error) as error:
            raise Problem(
                "storage_unavailable", f"not all was removed: {error}; check the disk, and do it again"
            ) from error
        except Stopped as error:
            raise Problem("draining", "posd is stopping; not all was removed. Do it again in a moment") from error
        return json_response(report)
