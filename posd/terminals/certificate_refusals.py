"""Terminals that refuse this machine's certificate: their TLS alerts, counted per address.

A device that does not trust our CA sends an alert (RFC 8446, 6.2) and disconnects. Without this count the operator
would only find a payment without events. OpenSSL reports the alert as the reason of an SSLError, mostly in the
handshake. Under TLS 1.3 it can follow later: the device checks the certificate after our side's handshake.
"""

import ssl
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec
import structlog

from posd.base.clocks import monotonic
from posd.httpd.admission import plain

#: Alert of a device about a certificate (RFC 8446, 6.2) -> its meaning and the cure.
WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "unknown_ca": "it does not trust the CA: put ca.crt on it (posd tls ca)",
        "bad_certificate": "it does not trust the CA, or called a name or address that the certificate does not carry: "
        "put ca.crt on it (posd tls ca), and look at posd tls status",
        "certificate_unknown": "it does not trust the CA, or called a name or address that the certificate does not "
        "carry: put ca.crt on it (posd tls ca), and look at posd tls status",
        "certificate_expired": "to it the certificate is past its end: look at its clock, and at posd tls status",
        "certificate_revoked": "to it the certificate is revoked: ask who runs the CA",
        "unsupported_certificate": "it cannot use this kind of certificate: ask its vendor which kind it takes",
    }
)

#: Time for which a refusal is shown after the newest one.
SHOWN_FOR = timedelta(days=1)
#: Seconds between two log lines for an address, and most lines in that time: the LAN has any number of addresses.
LINE_EVERY_SECONDS = 3600.0
MAX_LINES = 32
#: Stored addresses; a shop has fewer terminals. The one that is silent longest is dropped first.
MAX_ADDRESSES = 64
#: Most addresses named in one sentence.
MAX_NAMED = 3

log = structlog.get_logger("posd.listener")


def refusal(error: BaseException | None) -> str | None:
    """Return the alert by which the peer refused our certificate, else None."""
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    _, found, name = (reason or "").partition("_ALERT_")  # as in TLSV1_ALERT_UNKNOWN_CA
    alert = name.lower()
    return alert if found and alert in WORDS else None


class AddressRefusals(msgspec.Struct):
    """Refusals of one address; `told_at` is on the monotonic clock, `untold` counts since then."""

    alert: str
    first_at: datetime
    last_at: datetime
    count: int = 0
    untold: int = 0
    told_at: float | None = None


class CertificateRefusals:
    """Counts of refusals per address, in a bounded table, and their log lines.

    The lines have no `Allowance`: it would return room within the hour, so twice MAX_LINES could be logged.
    """

    def __init__(self, now: Callable[[], datetime], is_own: Callable[[str], bool] = lambda _address: False) -> None:
        """`is_own`: returns whether an address belongs to this machine and no terminal:

        `posd doctor` connects from there.
        """
        self._now = now
        self._is_own = is_own
        self._addresses: dict[str, AddressRefusals] = {}
        self._lines: list[float] = []

    def told(self, peer: str, error: BaseException) -> bool:
        """Count the error that broke a connection if it is a refusal; return whether it is."""
        alert = refusal(error)
        if alert is not None and not self._is_own(plain(peer)):
            self.note(peer, alert)
        return alert is not None

    def note(self, peer: str, alert: str) -> None:
        """Count one more refusal."""
        address, now = plain(peer), self._now()
        entry = self._addresses.pop(address, None) or AddressRefusals(alert, now, now)
        if len(self._addresses) >= MAX_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[address] = entry  # last in the order: the newest
        entry.alert, entry.last_at = alert, now
        entry.count += 1
        entry.untold += 1
        self._tell(address, entry, monotonic())

    def _tell(self, address: str, entry: AddressRefusals, now: float) -> None:
        self._lines = [at for at in self._lines if now - at < LINE_EVERY_SECONDS]
        due = entry.told_at is None or now - entry.told_at >= LINE_EVERY_SECONDS
        if not due or len(self._lines) >= MAX_LINES:
            return
        self._lines.append(now)
        entry.told_at, count, entry.untold = now, entry.untold, 0
        detail = f"the device at {address} refuses this machine's certificate ({entry.alert}): {WORDS[entry.alert]}"
        log.warning("listener.distrusted", peer=address, kind=entry.alert, count=count, detail=detail)

    def recent(self) -> dict[str, AddressRefusals]:
        """Return the addresses that refused within `SHOWN_FOR`, the newest last."""
        oldest = self._now() - SHOWN_FOR
        return {address: entry for address, entry in self._addresses.items() if entry.last_at > oldest}

    def words(self, terminals: Mapping[str, str], *, complete: bool) -> str | None:
        """Return a sentence with the terminals that refuse the certificate, and the cure; None without any.

        `terminals`: address -> serial. `complete`: all of the fleet are among them; otherwise any address may be a
        terminal.
        """
        found = {address: item for address, item in self.recent().items() if address in terminals or not complete}
        if not found:
            return None
        named = list(reversed(found.items()))[:MAX_NAMED]
        more = f"; and {len(found) - len(named)} more" if len(found) > len(named) else ""
        names = {address: f"terminal {serial} ({address})" for address, serial in terminals.items()}
        told = (f"{names.get(at, at)} refuses it ({item.alert}): {WORDS[item.alert]}" for at, item in named)
        return "; ".join(told) + more
