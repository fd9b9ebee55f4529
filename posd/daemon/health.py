"""The checks of the health resource (local API, GET /health)."""

import asyncio
import hashlib
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from posd.api import documents
from posd.api.certificate import ServedCertificate
from posd.api.documents import CertificateCheck, Check, Checks, Refusals
from posd.base.problems import Problem
from posd.base.times import iso, parse_iso
from posd.calls.context import Context
from posd.daemon import downtime
from posd.daemon.presence import Presence
from posd.httpd.alerts import CertificateRefusals
from posd.httpd.server import Listener
from posd.storage import changes, marks
from posd.terminals.discovery import Discovery
from posd.tls import Served


class Health:
    """Looks at storage, webhook listener, certificate, discovery and clock."""

    def __init__(
        self,
        context: Context,
        lan: Listener,
        discovery: Discovery | None,
        certificate: ServedCertificate,
        distrust: CertificateRefusals,
        presence: Presence,
        now: Callable[[], datetime],
    ) -> None:
        self._context = context
        self._lan = lan
        self._discovery = discovery
        self._certificate = certificate
        self._distrust = distrust
        self._presence = presence
        self._now = now

    async def checks(self) -> Checks:
        """Return the checks: state and words."""
        storage, newest = await self._storage()
        return Checks(
            storage=storage,
            webhook_listener=await self._listener(),
            certificate=self._certificate_check(),
            discovery=self._browsing(),
            clock=self._clock(newest),
        )

    async def _storage(self) -> tuple[Check, str | None]:
        try:
            newest = await self._context.read(changes.newest_at)
            restores = await self._context.read(marks.unseen_restores)
        except Problem as problem:
            return Check("failing", problem.detail), None
        if self._context.write_error is not None:
            await self._context.probe_write()  # in an idle shop nothing else would show that it is well again
        if self._context.write_error is not None:
            return Check("failing", f"the last write failed: {self._context.write_error}; free the disk"), newest
        if restores:
            words = " ".join(item.words for item in restores)
            return Check("degraded", f"{words} Once a person has looked at it: posd restore --seen"), newest
        return Check("ok", "the database can be read, and the last write succeeded"), newest

    async def _listener(self) -> Check:
        if not self._lan.listening:
            return Check("failing", "the webhook listener does not accept connections; restart posd")
        if (error := self._lan.accept_error) is not None:
            return Check(
                "failing", f"the webhook listener cannot accept connections now ({error}); look at what else runs"
            )
        if (found := await self._presence.look()) is not None:
            return Check("degraded", downtime.words(*found))
        return Check("ok", f"listening on port {self._lan.port}, {self._lan.connections} connections")

    def _certificate_check(self) -> CertificateCheck:
        state, words = self._certificate.check()
        if (refused := self._distrust.words()) is not None:
            state, words = ("degraded" if state == "ok" else state), f"{words}; {refused}"
        info = self._certificate.served.info
        served = documents.Served(info.fingerprint_sha256, not_after=iso(info.not_after), port=self._lan.port)
        return CertificateCheck(state, words, served, _refused_by(self._distrust))

    def _browsing(self) -> Check:
        if self._discovery is None:
            return Check("ok", "switched off; terminals need a base_url in the configuration")
        if not self._discovery.running:
            return Check("degraded", f"{self._discovery.trouble}; terminals with a base_url work")
        return Check("ok", "listening for announcements")

    def _clock(self, newest: str | None) -> Check:
        now = self._now()
        if newest is not None and parse_iso(newest) > now:
            return Check("degraded", f"the clock is behind the newest record ({newest}); set the clock of this machine")
        return Check("ok", iso(now))


def _refused_by(distrust: CertificateRefusals) -> list[Refusals]:
    """Return the recent refusals of the certificate, the newest last."""
    return [
        Refusals(address, item.alert, item.count, iso(item.first_at), iso(item.last_at))
        for address, item in distrust.recent().items()
    ]


# Whether the webhook listener answers, asked as a terminal would: over TCP and TLS, by a callback address.

#: How long the answer may take, in seconds.
ANSWER_SECONDS = 5.0
#: Who listens on all addresses is asked at this one.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here


async def trouble(host: str, port: int, served: Served, path: str) -> str | None:
    """Ask the listener at an address; return in words why it does not answer as it should, None where it does.

    `path` is an authentic callback address. It is asked for by GET, which is answered with 405 and has no effect.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is compared: it is this one and no other
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(_LOOPBACK.get(host, host), port, ssl=context)
            try:
                shown = hashlib.sha256(writer.get_extra_info("ssl_object").getpeercert(binary_form=True)).hexdigest()
                if shown != served.info.fingerprint_sha256:
                    return f"another program answers on port {port}, with another certificate"
                writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode("ascii"))
                status = await reader.readline()
            finally:
                with suppress(AttributeError):  # Python 3.11.2 (Debian 12): so it fails where it is closed
                    writer.transport.abort()
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except OSError as error:
        return error.strerror or type(error).__name__
    return None if status.startswith(b"HTTP/1.1 405 ") else f"the answer was {status.decode('latin-1').strip()!r}"
