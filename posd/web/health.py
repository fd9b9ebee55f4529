"""The checks of the health resource (local API, GET /health)."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from posd import tls
from posd.core.problems import Problem
from posd.core.times import iso, parse_iso
from posd.store import changes, marks
from posd.terminals.discovery import Discovery
from posd.web.context import Context
from posd.web.server import Listener
from posd.web.service import Check

#: From here on a certificate that ends soon is a matter for people, in days.
CERTIFICATE_WARNING_DAYS = 30


class Health:
    """Looks at storage, webhook listener, certificate, discovery and clock."""

    def __init__(
        self,
        context: Context,
        lan: Listener,
        discovery: Discovery | None,
        certificate: Path,
        now: Callable[[], datetime],
    ) -> None:
        self._context = context
        self._lan = lan
        self._discovery = discovery
        self._certificate = certificate
        self._now = now
        self._not_after: datetime | None = None

    async def checks(self) -> Mapping[str, Check]:
        """Return the checks by name: state and words."""
        storage, newest = await self._storage()
        return {
            "storage": storage,
            "webhook_listener": self._listener(),
            "certificate": await self._end_of_certificate(),
            "discovery": self._browsing(),
            "clock": self._clock(newest),
        }

    async def _storage(self) -> tuple[Check, str | None]:
        try:
            newest = await self._context.read(changes.newest_at)
            restores = await self._context.read(marks.unseen_restores)
        except Problem as problem:
            return ("failing", problem.detail), None
        if self._context.write_error is not None:
            await self._context.probe_write()  # in an idle shop nothing else would show that it is well again
        if self._context.write_error is not None:
            return ("failing", f"the last write failed: {self._context.write_error}; free the disk"), newest
        if restores:
            words = " ".join(item.words for item in restores)
            return ("degraded", f"{words} Once a person has looked at it: posd restore --seen"), newest
        return ("ok", "the database can be read, and the last write succeeded"), newest

    def _listener(self) -> Check:
        if not self._lan.listening:
            return "failing", "the webhook listener does not accept connections; restart posd"
        return "ok", f"listening on port {self._lan.port}, {self._lan.connections} connections"

    async def _end_of_certificate(self) -> Check:
        if self._not_after is None:
            try:
                # Reading it loads a library that nothing else of the daemon needs: off the loop, and once.
                self._not_after = (await asyncio.to_thread(tls.describe, self._certificate)).not_after
            except tls.TlsError as error:
                return "degraded", str(error)
        days = (self._not_after.astimezone(UTC) - self._now()).days
        if days < 0:
            return "failing", "the certificate has expired; run posd tls init, then restart posd"
        if days < CERTIFICATE_WARNING_DAYS:
            return "degraded", f"the certificate ends in {days} days; run posd tls init, then restart posd"
        return "ok", f"valid for {days} more days"

    def _browsing(self) -> Check:
        if self._discovery is None:
            return "ok", "switched off; terminals need a base_url in the configuration"
        if not self._discovery.running:
            return "degraded", "mDNS is not running (no usable interface?); terminals with a base_url work"
        return "ok", "listening for announcements"

    def _clock(self, newest: str | None) -> Check:
        now = self._now()
        if newest is not None and parse_iso(newest) > now:
            return "degraded", f"the clock is behind the newest record ({newest}); set the clock of this machine"
        return "ok", iso(now)
